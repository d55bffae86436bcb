//! Draws the headings of the process list, and marks the columns that it is sorted by.

use std::collections::HashSet;

use crate::app::App;
use crate::app::lists::columns::{Align, ListColumn};
use crate::app::lists::process_columns::ProcessColumn;
use crate::app::lists::process_widths::{MEMORY, ProcessWidths};
use crate::app::lists::rows::Row;
use crate::output::labels;
use crate::view::pen::Pen;
use crate::view::theme::Theme;

/// The least width of the column of memory whose heading says what a full bar is.
const WITH_SCALE: usize = "MEMORY▼ OF GPU".len() - "▼".len() + 1;

/// Draws the headings, and at the end how many lines of the list are below the screen.
pub(super) fn draw(
    pen: &mut Pen<'_>,
    theme: Theme,
    app: &App,
    columns: &ProcessWidths,
    below: usize,
) {
    let mut more = if below > 0 {
        format!(" {below} more below")
    } else {
        String::new()
    };
    let sort = app.processes.sort;
    pen.style_as_heading(theme);
    for column in &columns.shown {
        let mark = match sort.then {
            _ if *column == sort.column => Some(if sort.descending { '▼' } else { '▲' }),
            Some((then, descending)) if *column == then => {
                Some(if descending { '▾' } else { '▴' })
            }
            _ => None,
        };
        let is_last = column.spec().is_last;
        let mut text = title(*column, app, columns);
        // The mark matters more than the last letter of the heading.
        if mark.is_some() && !is_last && text.len() >= columns.width(*column) {
            text.truncate(columns.width(*column) - 1);
        }
        text.extend(mark);
        if *column == ProcessColumn::Memory && columns.width(*column) >= WITH_SCALE {
            text = format!("{text:<width$}OF GPU", width = MEMORY + 2);
        }
        let style = if *column == sort.column {
            theme.head().patch(theme.accent())
        } else {
            theme.head()
        };
        let (width, align) = if is_last {
            // The last heading shares its cell with the number of lines below. Where both do not
            // fit, the word `below` is left out, then the heading.
            let name = text.chars().count();
            if name + more.len() > pen.room() {
                more.truncate(more.trim_end_matches(" below").len());
            }
            if name + more.len() > pen.room() {
                continue;
            }
            (name, Align::Left)
        } else {
            // Above the amounts of memory, also where a bar follows them.
            let align = if *column == ProcessColumn::Memory && columns.memory_bar > 0 {
                Align::Left
            } else {
                column.spec().align
            };
            (columns.width(*column), align)
        };
        pen.cell(text, width, align, style).skip(1);
    }
    pen.over_end(more.len()).put(more, theme.accent());
}

fn title(column: ProcessColumn, app: &App, columns: &ProcessWidths) -> String {
    match column {
        ProcessColumn::Memory if columns.memory_bar > 0 => "MEMORY".to_owned(),
        ProcessColumn::Growth => format!("IN {}", period(app)),
        ProcessColumn::Command => {
            let mut text = if app.processes.view.only_suspects {
                "WHY"
            } else {
                column.spec().title
            }
            .to_owned();
            let view = &app.processes.view;
            if !app.processes.filter.value().is_empty() || view.only_mine || view.gpu.is_some() {
                let shown = app
                    .processes
                    .rows
                    .iter()
                    .filter_map(Row::process)
                    .collect::<HashSet<_>>()
                    .len();
                let all = app
                    .fleet()
                    .hosts()
                    .map(|(_, model)| model.process_totals().len())
                    .sum::<usize>();
                text = format!("{text} ({shown}/{all})");
            }
            if app.processes.command_offset > 0 {
                text = format!("{text} from {}", app.processes.command_offset + 1);
            }
            text
        }
        _ => column.spec().title.to_owned(),
    }
}

/// The longest period that a line shows the history and the change of memory for.
fn period(app: &App) -> String {
    labels::period(
        app.fleet()
            .hosts()
            .map(|(_, model)| labels::recent(model))
            .max()
            .unwrap_or_default(),
    )
}
