//! Draws the row of the unaccounted memory of a GPU.

use super::super::pen::Pen;
use super::super::theme::Theme;
use super::ColumnWidths;
use crate::app::App;
use crate::app::columns::Align;
use crate::app::labels::{gpu_label, short};
use crate::app::process_columns::{BYTES_WIDTH, ProcessColumn};
use crate::model::HostGpu;
use crate::protocol::snapshot::ProcessId;

pub(super) fn draw(pen: &mut Pen<'_>, theme: Theme, app: &App, columns: &ColumnWidths, gpu: &HostGpu) {
    let Some(model) = app.fleet().host(gpu.host) else { return };
    let Some(snapshot) = model.latest() else { return };
    let Some(unaccounted) = model.unaccounted().iter().find(|unaccounted| unaccounted.gpu == gpu.gpu) else { return };
    let label = snapshot.gpu(&gpu.gpu).map(gpu_label).unwrap_or_default();
    // The cells up to the amount stay in their columns; words follow.
    let until = columns.shown.iter().position(|column| *column == ProcessColumn::Memory);
    let before = columns.shown.iter().take(until.unwrap_or(1));
    for column in before {
        let (text, align) = match column {
            ProcessColumn::Host => (app.fleet().name(gpu.host), Align::Left),
            ProcessColumn::Gpu => (label.as_str(), Align::Left),
            ProcessColumn::Pid => ("-", Align::Right),
            ProcessColumn::User => ("-", Align::Left),
            _ => ("", Align::Left),
        };
        let style = if *column == ProcessColumn::Gpu { theme.text() } else { theme.dim() };
        pen.cell(text, columns.width(*column), align, style).skip(1);
    }
    if until.is_some() {
        pen.skip(columns.memory_bar + 1)
            .cell(short(unaccounted.memory), BYTES_WIDTH, Align::Right, theme.notable())
            .skip(1);
    } else {
        pen.put(format!("{} on GPU {label} ", unaccounted.memory), theme.notable());
    }
    pen.put("unaccounted", theme.notable()).skip(1);
    let comm = |id: &ProcessId| match snapshot.process(*id).map(|process| &process.facts.comm) {
        Some(Ok(comm)) => format!("{} {comm}", id.pid),
        _ => id.pid.to_string(),
    };
    let mut parts: Vec<String> = unaccounted.device_file_holders.iter().take(6).map(comm).collect();
    if parts.is_empty() {
        parts.push("nobody that gputop may look at".to_owned());
    }
    // Nothing is written if the first name would be cut.
    if "open in ".len() + parts[0].len() > pen.room() {
        return;
    }
    pen.words(format!("open in {}", parts.join(", ")), theme.text());
    if unaccounted.unreadable > 0 {
        pen.put(format!("; {} processes could not be looked at (run as root)", unaccounted.unreadable), theme.dim());
    }
}
