//! Draws the row of the unaccounted memory of a GPU.

use super::super::pen::Pen;
use super::super::theme::{Fill, Theme};
use super::RowPainter;
use crate::app::lists::columns::Align;
use crate::app::lists::process_columns::ProcessColumn;
use crate::app::lists::process_widths::MEMORY;
use crate::base::units::Bytes;
use crate::model::{HostGpu, HostModel, UnaccountedMemory};
use crate::output::labels::{gpu_label, short_amount};
use crate::protocol::snapshot::{ProcessId, Snapshot};

pub(super) fn draw(pen: &mut Pen<'_>, painter: &RowPainter<'_>, gpu: &HostGpu) {
    let Some(model) = painter.app.fleet().host(gpu.host) else {
        return;
    };
    let (Some(snapshot), Some(unaccounted)) =
        (model.latest(), super::unaccounted(painter.app, gpu))
    else {
        return;
    };
    amount(pen, painter, gpu, snapshot, unaccounted.memory);
    pen.put("unaccounted", painter.theme.fill_name(Fill::Other))
        .skip(1);
    holders(pen, painter.theme, model, snapshot, unaccounted);
}

/// Draws the cells up to the amount. They stay in their columns; words follow.
fn amount(
    pen: &mut Pen<'_>,
    painter: &RowPainter<'_>,
    gpu: &HostGpu,
    snapshot: &Snapshot,
    memory: Bytes,
) {
    let RowPainter {
        theme,
        app,
        columns,
    } = *painter;
    let on = snapshot.gpu(&gpu.gpu);
    let label = on.map(gpu_label).unwrap_or_default();
    let until = columns
        .shown
        .iter()
        .position(|column| *column == ProcessColumn::Memory);
    for column in columns.shown.iter().take(until.unwrap_or(1)) {
        let (text, align) = match column {
            ProcessColumn::Host => (app.fleet().name(gpu.host), Align::Left),
            ProcessColumn::Gpu => (label.as_str(), Align::Left),
            ProcessColumn::Pid => ("-", Align::Right),
            ProcessColumn::User => ("-", Align::Left),
            _ => ("", Align::Left),
        };
        let style = if *column == ProcessColumn::Gpu {
            theme.text()
        } else {
            theme.dim()
        };
        pen.cell(text, columns.width(*column), align, style).skip(1);
    }
    let style = theme.fill_name(Fill::Other);
    if until.is_none() {
        pen.put(format!("{memory} on GPU {label} "), style);
        return;
    }
    pen.cell(short_amount(memory), MEMORY, Align::Right, style)
        .skip(1);
    if columns.memory_bar > 0 {
        match on.and_then(|gpu| gpu.load.memory_total.ok()) {
            Some(total) => {
                let part = [(memory, Fill::Other)];
                pen.amounts(theme, part, total, columns.memory_bar, theme.text())
                    .skip(1)
            }
            None => pen.skip(columns.memory_bar + 1),
        };
    }
}

/// Draws the processes that have the GPU open, as far as there is room.
fn holders(
    pen: &mut Pen<'_>,
    theme: Theme,
    model: &HostModel,
    snapshot: &Snapshot,
    unaccounted: &UnaccountedMemory,
) {
    let holders = &unaccounted.device_file_holders;
    let suspicion = |id: &ProcessId| model.verdict(*id).filter(|verdict| verdict.is_suspect());
    let comm = |id: &ProcessId| match snapshot.process(*id).map(|process| &process.facts.comm) {
        Some(Ok(comm)) => format!("{} {comm}", id.pid),
        _ => id.pid.to_string(),
    };
    let mut parts: Vec<String> = holders.iter().take(6).map(comm).collect();
    if parts.is_empty() {
        parts.push("no process that gputop may look at".to_owned());
    }
    // An orphan among them is the likely holder.
    if let Some(verdict) = holders.iter().find_map(suspicion) {
        pen.put(
            format!(" {} ", verdict.word()),
            theme.severity(verdict.severity()),
        )
        .skip(1);
    }
    let has_room = |pen: &Pen<'_>, part: &str| "open in ".len() + part.len() <= pen.room();
    if !has_room(pen, &parts[0]) {
        parts = holders
            .iter()
            .take(1)
            .map(|id| id.pid.to_string())
            .collect();
    }
    // Nothing is written if even the first PID would be cut.
    if !parts.first().is_some_and(|part| has_room(pen, part)) {
        return;
    }
    pen.words(format!("open in {}", parts.join(", ")), theme.text());
    if unaccounted.unreadable > 0 {
        pen.put(
            format!(
                "; {} processes could not be looked at (run as root)",
                unaccounted.unreadable
            ),
            theme.dim(),
        );
    }
}
