//! Draws the forecast of a leak, from now to the time at which memory ends.

use std::time::Duration;

use ratatui::buffer::Buffer;

use super::axes::{Level, write_over};
use super::dots::Dots;
use crate::app::graph::panel::{Panel, Projection};
use crate::app::layout::Area;
use crate::base::time::WallClock;
use crate::base::units::{Bytes, Moment};
use crate::output::labels::growth::full_after;
use crate::view::theme::Theme;

/// The least memory of others that a graph mentions: less is that of the driver.
const LEAST_OF_OTHERS: Bytes = Bytes(1 << 30);

/// Draws the likeliest path in red up to the line where memory ends, the earliest and the latest
/// path dimmed, and the time at which memory ends.
pub(super) fn draw(
    buffer: &mut Buffer,
    theme: Theme,
    panel: &Panel,
    clock: Option<WallClock>,
    now: Moment,
) {
    let Some(projection) = panel.projection else {
        return;
    };
    let (past, width) = (panel.past, panel.plot.width);
    let ahead = Area {
        x: panel.plot.x + past,
        width: width - past,
        ..panel.plot
    };
    let limit = projection.limit.map(|amount| Level {
        amount,
        name: String::new(),
        is_capacity: false,
        style: theme.alarm_line(),
    });
    if let Some(limit) = &limit {
        limit.line(buffer, panel, ahead);
    }
    let last = paths(
        buffer,
        theme,
        panel,
        projection,
        limit.as_ref().and_then(|limit| limit.row(panel)),
    );
    if let Some(limit) = &limit {
        memory_of_others(buffer, theme, panel, limit);
    }
    let (Some(full), Some(limit)) = (projection.full, limit) else {
        return;
    };
    let label = full_after(clock, now, full.likely);
    let label_width = u16::try_from(label.len()).unwrap_or(u16::MAX);
    let column = full.likely.as_millis() / panel.window.part().as_millis().max(1);
    let column = u16::try_from(column)
        .unwrap_or(u16::MAX)
        .saturating_add(past);
    if column < width {
        let Some(row) = limit.row(panel) else { return };
        if let Some(place) = place_of_label(buffer, panel, label_width, (column, row)) {
            write_over(buffer, place, &label, theme.alarm_words());
        }
    } else if let Some(start) = width.checked_sub(label_width + 2) {
        // The path leaves the plot before it meets the limit.
        let row = panel.plot.y + last.saturating_sub(1);
        write_over(
            buffer,
            (panel.plot.x + start, row),
            &format!("{label} →"),
            theme.alarm_words(),
        );
    }
}

/// Draws the line of the limit into the past, and the memory of others above it: it says why the
/// paths end below the capacity.
fn memory_of_others(buffer: &mut Buffer, theme: Theme, panel: &Panel, limit: &Level) {
    let others = panel
        .capacity
        .map(|capacity| capacity.saturating_sub(limit.amount));
    let Some(others) = others.filter(|others| *others >= LEAST_OF_OTHERS) else {
        return;
    };
    let before = Level {
        name: format!("others hold {others}"),
        style: theme.dim(),
        ..limit.clone()
    };
    let past = Area {
        width: panel.past,
        ..panel.plot
    };
    before.line(buffer, panel, past);
    before.name(buffer, panel);
}

/// Returns the place of the time at which memory ends: after the column and row where the path
/// meets the limit, or near it where the label covers no part of a path. `None` if the plot is
/// narrower than the label.
fn place_of_label(
    buffer: &Buffer,
    panel: &Panel,
    label_width: u16,
    (column, row): (u16, u16),
) -> Option<(u16, u16)> {
    let plot = panel.plot;
    let last = plot.width.checked_sub(label_width)?;
    let x = plot.x + last.min(column + 2);
    let is_free =
        |y: &u16| (x..x + label_width).all(|x| matches!(buffer[(x, *y)].symbol(), " " | "╌"));
    let above = row.checked_sub(1).filter(|above| *above >= plot.y);
    let mut rows = [row]
        .into_iter()
        .chain(above)
        .chain(row + 1..plot.y + plot.height);
    Some((x, rows.find(is_free).unwrap_or(row)))
}

/// Draws the paths up to the row of the limit. Returns the row of the last cell of the likeliest
/// one, counted from the top of the plot.
fn paths(
    buffer: &mut Buffer,
    theme: Theme,
    panel: &Panel,
    projection: Projection,
    limit: Option<u16>,
) -> u16 {
    let mut dots = Dots::new(panel.plot);
    let highest = limit.map_or(0, |row| usize::from(row - panel.plot.y) * 4);
    let past = usize::from(panel.past) * 2;
    let mut before = dots.row(panel.scale.height(projection.held(Duration::ZERO)[1]));
    for x in past..usize::from(panel.plot.width) * 2 {
        let after = panel.window.part() * u32::try_from(x - past + 1).unwrap_or(u32::MAX) / 2;
        let rows = projection
            .held(after)
            .map(|bytes| dots.row(panel.scale.height(bytes)));
        for row in [rows[0], rows[2]].into_iter().filter(|_| x % 4 < 2) {
            dots.line(x, (row, row), theme.dim());
        }
        // Neighbouring columns are joined, however steep the path is, and the line is two dots
        // thick.
        let top = before.min(rows[1]).saturating_sub(1).max(highest);
        dots.line(x, (top, before.max(rows[1])), theme.alarm_line());
        before = rows[1];
        // Memory has ended.
        if projection.full.is_some_and(|full| after >= full.likely) {
            break;
        }
    }
    dots.draw(buffer);
    u16::try_from(before / 4).unwrap_or(0)
}
