//! Draws what is around areas: amounts at the left, levels, marks and events.

use ratatui::buffer::Buffer;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use super::areas::draw_over;
use crate::app::graph::panel::{AXIS, Panel};
use crate::app::layout::Area;
use crate::app::lists::columns::Align;
use crate::app::recordings::marks::Mark;
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::model::{
    GpuOrProcess, HistoryEvent, HistoryEventKind, HostModel, LeakDetector, ProcessHistory,
};
use crate::output::labels::name_of;
use crate::protocol::snapshot::{ProcessId, Reading};
use crate::view::pen::Pen;
use crate::view::theme::Theme;

/// Draws the amounts at the left. An amount above the lowest gives way to the name of a level in
/// its row, which is exact.
pub(super) fn amounts(buffer: &mut Buffer, theme: Theme, panel: &Panel, named_rows: &[u16]) {
    let left = Area {
        x: panel.area.x,
        width: AXIS,
        ..panel.plot
    };
    for (from_bottom, label) in panel.scale.labels() {
        let row = panel.plot.height - 1 - from_bottom;
        if from_bottom > 0 && named_rows.contains(&(panel.plot.y + row)) {
            continue;
        }
        if let Some(mut pen) = Pen::at(buffer, left, row) {
            pen.cell(label, usize::from(AXIS) - 1, Align::Right, theme.dim());
        }
    }
    if !panel.scale.begins_at_zero()
        && let Some(mut pen) = Pen::at(buffer, left, panel.plot.height - 1)
    {
        pen.tab_from_end(1).put("≈", theme.notable());
    }
}

/// Says at the top right that the capacity is above the scale.
pub(super) fn capacity_above(buffer: &mut Buffer, theme: Theme, panel: &Panel, capacity: Bytes) {
    let words = format!("capacity {capacity} ↑");
    let width = u16::try_from(words.chars().count()).unwrap_or(u16::MAX);
    if let Some(room) = panel.plot.width.checked_sub(width) {
        write_over(
            buffer,
            (panel.plot.x + room, panel.plot.y),
            &words,
            theme.dim(),
        );
    }
}

/// Writes over areas, which stay visible behind the words.
pub(super) fn write_over(buffer: &mut Buffer, (x, y): (u16, u16), words: &str, style: Style) {
    let width = u16::try_from(UnicodeWidthStr::width(words)).unwrap_or(u16::MAX);
    for x in x..x.saturating_add(width) {
        draw_over(&mut buffer[(x, y)], ' ', style);
    }
    buffer.set_string(x, y, words, style);
}

/// An amount with a name, such as the capacity.
#[derive(Debug, Clone)]
pub(super) struct Level {
    pub(super) amount: Bytes,
    pub(super) name: String,
    pub(super) is_capacity: bool,
    pub(super) style: Style,
}

impl Level {
    pub(super) fn row(&self, panel: &Panel) -> Option<u16> {
        let rows = panel.plot.height;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the rows there are"
        )]
        let from_bottom =
            ((panel.scale.height(self.amount) * f64::from(rows)).max(0.0) as u16).min(rows - 1);
        panel
            .scale
            .holds(self.amount)
            .then(|| panel.plot.y + rows - 1 - from_bottom)
    }

    /// Draws the line where nothing else is, and the capacity also over areas.
    pub(super) fn line(&self, buffer: &mut Buffer, panel: &Panel, plot: Area) {
        let Some(row) = self.row(panel) else { return };
        for x in (plot.x..plot.x + plot.width).step_by(2) {
            let cell = &mut buffer[(x, row)];
            if self.is_free(cell.symbol()) {
                draw_over(cell, '╌', self.style);
            }
        }
    }

    fn is_free(&self, symbol: &str) -> bool {
        matches!(symbol, " " | "╌") || self.is_capacity && symbol == "█"
    }

    /// Draws the name of the level on its line, where the line is visible and has room for the
    /// whole name. Returns the row of the name; `None` without a name.
    pub(super) fn name(&self, buffer: &mut Buffer, panel: &Panel) -> Option<u16> {
        let row = self.row(panel)?;
        let width = u16::try_from(self.name.len()).unwrap_or(u16::MAX);
        // The forecast is drawn over the future, and must not cover the name.
        let end = panel.plot.x + panel.past;
        let free_in = |row: u16| {
            let has_room =
                |x: &u16| (x - 1..=x + width).all(|x| self.is_free(buffer[(x, row)].symbol()));
            (panel.plot.x + 2..end.saturating_sub(width))
                .step_by(2)
                .find(has_room)
                .map(|x| (x, row))
        };
        // The upper edge of an area hides a line in its row. The name of the capacity says that
        // memory is almost full: it is above the edge then, or over it.
        let above = (row > panel.plot.y && self.is_capacity).then(|| row - 1);
        let over = end
            .checked_sub(width + 1)
            .filter(|x| self.is_capacity && *x > panel.plot.x)
            .map(|x| (x, row));
        let (x, row) = free_in(row).or_else(|| free_in(above?)).or(over)?;
        // Blanks separate the name from the line.
        write_over(
            buffer,
            (x - 1, row),
            &format!(" {} ", self.name),
            self.style,
        );
        Some(row)
    }
}

pub(super) fn vertical_line(buffer: &mut Buffer, style: Style, panel: &Panel, x: u16) {
    for y in panel.plot.y..panel.plot.y + panel.plot.height {
        let cell = &mut buffer[(x, y)];
        // A cell with the upper edge of an area has no room for a line.
        if matches!(cell.symbol(), " " | "╌" | "█" | "▒" | "░") {
            draw_over(cell, '┊', style);
        }
    }
}

pub(super) fn marks(buffer: &mut Buffer, theme: Theme, panel: &Panel, marks: &[Mark]) {
    for x in marks
        .iter()
        .filter_map(|mark| panel.column(mark.at(panel.subject.host)?))
    {
        vertical_line(buffer, theme.accent(), panel, x);
    }
}

/// Draws the names of marks beside their lines, each as high as other texts allow.
pub(super) fn names(buffer: &mut Buffer, theme: Theme, panel: &Panel, marks: &[Mark]) {
    let Area {
        x: left,
        y: top,
        width,
        height,
    } = panel.plot;
    for (line, mark) in marks
        .iter()
        .rev()
        .filter_map(|mark| Some((panel.column(mark.at(panel.subject.host)?)?, mark)))
    {
        let name = mark.name.as_str();
        let name_width = u16::try_from(UnicodeWidthStr::width(name)).unwrap_or(u16::MAX);
        let is_free = |(x, y): &(u16, u16)| {
            let end = x.saturating_add(name_width);
            let is_inside = *x >= left && end <= left + width;
            // A blank, or another line, is between two names.
            let mut cells = x.saturating_sub(1)..=end.min(left + width - 1);
            is_inside && cells.all(|x| x == line || is_background(buffer[(x, *y)].symbol()))
        };
        let places =
            (top..top + height).flat_map(|y| [(line + 1, y), (line.saturating_sub(name_width), y)]);
        if let Some(place) = places.into_iter().find(is_free) {
            write_over(buffer, place, name, theme.accent());
        }
    }
}

/// Whether a cell has neither text, an upright line, nor the upper edge of an area.
fn is_background(symbol: &str) -> bool {
    let is_background =
        |letter: char| letter != '┊' && !('▁'..='▇').contains(&letter) && !letter.is_alphanumeric();
    symbol.chars().all(is_background)
}

pub(in crate::view) fn glyph(theme: Theme, event: HistoryEventKind) -> (char, Style) {
    match event {
        HistoryEventKind::Began => ('▲', theme.text()),
        HistoryEventKind::Ended(_) => ('▼', theme.dim()),
        HistoryEventKind::Signalled(_) => ('✕', theme.accent()),
        HistoryEventKind::Dropped { .. } => ('↘', theme.text()),
        HistoryEventKind::Xid(_) => ('!', theme.alarm()),
    }
}

pub(super) fn sentence(model: &HostModel, event: &HistoryEvent) -> String {
    // The name may have been read after the event.
    let name = |(id, then): &(ProcessId, Reading<Text>)| {
        name_of(
            *id,
            &model
                .history()
                .process(*id)
                .map_or_else(|| then.clone(), ProcessHistory::name),
        )
    };
    let who = event.process.as_ref().map(name).unwrap_or_default();
    let lives = event
        .process
        .as_ref()
        .is_some_and(|(id, _)| model.latest().is_some_and(|snapshot| snapshot.lives(*id)));
    match event.kind {
        HistoryEventKind::Began => format!("{who} began"),
        HistoryEventKind::Ended(Some(held)) if lives => format!("{who} let go of {held}"),
        HistoryEventKind::Ended(None) if lives => format!("{who} let go"),
        HistoryEventKind::Ended(Some(held)) => format!("{who} ended, held {held}"),
        HistoryEventKind::Ended(None) => format!("{who} ended"),
        HistoryEventKind::Signalled(signal) => format!("{signal} to {who}"),
        HistoryEventKind::Dropped { from, to } => {
            let growth = event
                .process
                .as_ref()
                .and_then(|(id, _)| model.leak_detector(&GpuOrProcess::Process(*id)));
            // The kind of a drop is known only for the latest one.
            let fall = growth
                .and_then(LeakDetector::last_drop)
                .filter(|(at, _)| *at == event.at);
            let name = fall.map_or_else(String::new, |(_, fall)| format!(": {fall}"));
            format!("{who} fell from {from} to {to}{name}")
        }
        HistoryEventKind::Xid(code) => format!("Xid {code}"),
    }
}

/// Draws the events in their row, in words where these fit.
pub(super) fn events(buffer: &mut Buffer, theme: Theme, model: &HostModel, panel: &Panel) {
    let Some(y) = panel.events else { return };
    let row = Area {
        y,
        height: 1,
        ..panel.plot
    };
    let column = |event: &HistoryEvent| {
        panel
            .column(event.at)
            .map(|x| usize::from(x - panel.plot.x))
    };
    let shown: Vec<(usize, &HistoryEvent)> = model
        .history()
        .events(&panel.subject.subject)
        .filter_map(|event| Some((column(event)?, event)))
        .collect();
    let mut end = usize::from(panel.plot.width);
    for (number, (x, event)) in shown.iter().enumerate() {
        let mut x = *x;
        let (letter, style) = glyph(theme, event.kind);
        let Some(mut pen) = Pen::at(buffer, row, 0).filter(|_| x < end) else {
            continue;
        };
        pen.skip(x).put(letter.to_string(), style);
        let words = sentence(model, event);
        // Words must not cover the symbol of the event before.
        let before = shown[number + 1..]
            .iter()
            .map(|(column, _)| *column)
            .find(|before| *before < x);
        let is_free = |place: &usize| before.is_none_or(|before| before + 1 < *place);
        if x + 2 + words.len() < end {
            pen.skip(1).put(words, theme.dim());
        } else if let Some(place) = x.checked_sub(words.len() + 1).filter(is_free)
            && let Some(mut pen) = Pen::at(buffer, row, 0)
        {
            pen.skip(place).put(words, theme.dim());
            x = place;
        }
        end = x;
    }
}
