//! Draws the row of the unaccounted memory of a GPU.

use super::super::pen::Pen;
use super::super::theme::Fill;
use super::RowPainter;
use crate::app::lists::columns::Align;
use crate::app::lists::process_columns::ProcessColumn;
use crate::app::lists::process_widths::MEMORY;
use crate::model::{HostGpu, HostModel};
use crate::output::labels::{gpu_label, short};
use crate::protocol::snapshot::ProcessId;

pub(super) fn draw(pen: &mut Pen<'_>, painter: &RowPainter<'_>, gpu: &HostGpu) {
    let RowPainter {
        theme,
        app,
        columns,
    } = *painter;
    let Some(snapshot) = app.fleet().host(gpu.host).and_then(HostModel::latest) else {
        return;
    };
    let Some(unaccounted) = super::unaccounted(app, gpu) else {
        return;
    };
    let label = snapshot.gpu(&gpu.gpu).map(gpu_label).unwrap_or_default();
    // The cells up to the amount stay in their columns; words follow.
    let until = columns
        .shown
        .iter()
        .position(|column| *column == ProcessColumn::Memory);
    let before = columns.shown.iter().take(until.unwrap_or(1));
    for column in before {
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
    if until.is_some() {
        pen.cell(
            short(unaccounted.memory),
            MEMORY,
            Align::Right,
            theme.edge(Fill::Other),
        )
        .skip(1);
        if columns.memory_bar > 0 {
            let part = [(unaccounted.memory, Fill::Other)];
            match snapshot
                .gpu(&gpu.gpu)
                .and_then(|gpu| gpu.load.memory_total.ok())
            {
                Some(total) => pen
                    .amounts(theme, part, total, columns.memory_bar, theme.text())
                    .skip(1),
                None => pen.skip(columns.memory_bar + 1),
            };
        }
    } else {
        pen.put(
            format!("{} on GPU {label} ", unaccounted.memory),
            theme.edge(Fill::Other),
        );
    }
    pen.put("unaccounted", theme.edge(Fill::Other)).skip(1);
    let model = app.fleet().host(gpu.host);
    let suspicion = |id: ProcessId| model?.verdict(id).filter(|verdict| verdict.is_suspect());
    // An orphan among them is the likely holder.
    let suspect = unaccounted
        .device_file_holders
        .iter()
        .find_map(|id| suspicion(*id));
    let comm = |id: &ProcessId| match snapshot.process(*id).map(|process| &process.facts.comm) {
        Some(Ok(comm)) => format!("{} {comm}", id.pid),
        _ => id.pid.to_string(),
    };
    let mut parts: Vec<String> = unaccounted
        .device_file_holders
        .iter()
        .take(6)
        .map(comm)
        .collect();
    if parts.is_empty() {
        parts.push("nobody that gputop may look at".to_owned());
    }
    if let Some(verdict) = suspect {
        pen.put(
            format!("{}:", verdict.word()),
            theme.severity(verdict.severity()),
        )
        .skip(1);
    }
    let has_room = |pen: &Pen<'_>, part: &str| "open in ".len() + part.len() <= pen.room();
    if !has_room(pen, &parts[0]) {
        parts = unaccounted
            .device_file_holders
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
