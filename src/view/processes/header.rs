//! The names of the columns of the list of processes, and by which it is sorted.

use super::{Columns, recent};
use crate::app::App;
use crate::app::process_columns::Column;
use crate::view::pen::{Align, Pen};
use crate::view::theme::Theme;

/// The names of the columns, and at the end how many lines are below the screen.
pub(super) fn draw(pen: &mut Pen<'_>, theme: Theme, app: &App, columns: &Columns, below: usize) {
    let mut more = if below > 0 { format!(" {below} more below") } else { String::new() };
    let sort = app.sort();
    for column in &columns.shown {
        let mark = match sort.then {
            _ if *column == sort.column => Some(if sort.descending { '▼' } else { '▲' }),
            Some((then, descending)) if *column == then => Some(if descending { '▾' } else { '▴' }),
            _ => None,
        };
        let mut text = title(*column, app, columns);
        // By what the list is sorted says more than the last letter of a name.
        if mark.is_some() && *column != Column::Command && text.len() >= columns.width(*column) {
            text.truncate(columns.width(*column) - 1);
        }
        text.extend(mark);
        let style = if *column == sort.column { theme.accent() } else { theme.head() };
        let (width, align) = match column {
            // Beside the number, as much as there is room for; no half of a word.
            Column::Command => {
                let name = text.chars().count();
                if name + more.len() > pen.room() {
                    more.truncate(more.trim_end_matches(" below").len());
                }
                if name + more.len() > pen.room() {
                    continue;
                }
                (name, Align::Left)
            }
            Column::Gpu | Column::User | Column::State | Column::History | Column::Origin | Column::Verdict => {
                (columns.width(*column), Align::Left)
            }
            _ => (columns.width(*column), Align::Right),
        };
        pen.cell(text, width, align, style).skip(1);
    }
    pen.over_end(more.len()).put(more, theme.notable());
}

fn title(column: Column, app: &App, columns: &Columns) -> String {
    let fixed = match column {
        Column::Gpu => "GPU",
        Column::Pid => "PID",
        Column::User => "USER",
        Column::Memory if columns.bar == 0 => "MEM",
        Column::Memory => "MEMORY",
        Column::Cache => "CACHE",
        Column::Growth => "GROWN",
        Column::Sm => "SM",
        Column::Cpu => "CPU",
        Column::Rss => "RSS",
        Column::Elapsed => "TIME",
        Column::Threads => "THR",
        Column::State => "S",
        Column::Origin => "ORIGIN",
        Column::Verdict => "VERDICT",
        Column::History => {
            let minutes = recent(app).as_secs() / 60;
            return if columns.spark > 8 { format!("LAST {minutes} MIN") } else { format!("{minutes} MIN") };
        }
        Column::Command => {
            let mut text = if app.view().suspects { "WHY" } else { "COMMAND" }.to_owned();
            if !app.filter().value().is_empty() || app.view().mine {
                text = format!("{text} ({}/{})", app.rows().len(), app.model().process_totals().len());
            }
            if app.command_at() > 0 {
                text = format!("{text} from {}", app.command_at() + 1);
            }
            return text;
        }
    };
    fixed.to_owned()
}
