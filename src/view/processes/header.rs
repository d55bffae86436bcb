//! Draws the headings of the process list, and marks the columns that it is sorted by.

use super::ColumnWidths;
use crate::app::App;
use crate::app::columns::{Align, ListColumn};
use crate::app::process_cells::recent;
use crate::app::process_columns::ProcessColumn;
use crate::view::pen::Pen;
use crate::view::theme::Theme;

/// Draws the headings, and at the end how many lines of the list are below the screen.
pub(super) fn draw(pen: &mut Pen<'_>, theme: Theme, app: &App, columns: &ColumnWidths, below: usize) {
    let mut more = if below > 0 { format!(" {below} more below") } else { String::new() };
    let sort = app.processes.sort;
    for column in &columns.shown {
        let mark = match sort.then {
            _ if *column == sort.column => Some(if sort.descending { '▼' } else { '▲' }),
            Some((then, descending)) if *column == then => Some(if descending { '▾' } else { '▴' }),
            _ => None,
        };
        let is_last = column.spec().is_last;
        let mut text = title(*column, app, columns);
        // The mark matters more than the last letter of the heading.
        if mark.is_some() && !is_last && text.len() >= columns.width(*column) {
            text.truncate(columns.width(*column) - 1);
        }
        text.extend(mark);
        let style = if *column == sort.column { theme.accent() } else { theme.head() };
        let (width, align) = if is_last {
            // The last heading shares its cell with the number of lines below. Where both do not fit, the word `below`
            // is left out, then the heading.
            let name = text.chars().count();
            if name + more.len() > pen.room() {
                more.truncate(more.trim_end_matches(" below").len());
            }
            if name + more.len() > pen.room() {
                continue;
            }
            (name, Align::Left)
        } else {
            (columns.width(*column), column.spec().align)
        };
        pen.cell(text, width, align, style).skip(1);
    }
    pen.over_end(more.len()).put(more, theme.notable());
}

fn title(column: ProcessColumn, app: &App, columns: &ColumnWidths) -> String {
    match column {
        ProcessColumn::Memory if columns.memory_bar > 0 => "MEMORY".to_owned(),
        ProcessColumn::History => {
            let longest = app.fleet().hosts().map(|(_, model)| recent(model)).max().unwrap_or_default();
            let minutes = longest.as_secs() / 60;
            if columns.history > 8 { format!("LAST {minutes} MIN") } else { format!("{minutes} MIN") }
        }
        ProcessColumn::Command => {
            let mut text = if app.processes.view.suspects { "WHY" } else { column.spec().title }.to_owned();
            if !app.processes.filter.value().is_empty() || app.processes.view.mine {
                text = format!(
                    "{text} ({}/{})",
                    app.processes.rows.len(),
                    app.fleet().hosts().map(|(_, model)| model.process_totals().len()).sum::<usize>()
                );
            }
            if app.processes.command_offset > 0 {
                text = format!("{text} from {}", app.processes.command_offset + 1);
            }
            text
        }
        _ => column.spec().title.to_owned(),
    }
}
