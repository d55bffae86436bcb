//! Draws everything around a curve: amounts at the left, levels, the time axis, the projection of a leak, GPU use, marks and
//! events.

use ratatui::buffer::Buffer;
use ratatui::style::Style;

use super::dots::Dots;
use super::name_of;
use crate::app::columns::Align;
use crate::app::graph::panel::{AXIS, Panel};
use crate::app::layout::Area;
use crate::app::marks::Mark;
use crate::app::process_cells::block;
use crate::base::units::{Bytes, Moment};
use crate::model::{Curve, GpuOrProcess, HistoryEvent, HistoryEventKind, HostModel, LeakDetector};
use crate::view::pen::Pen;
use crate::view::theme::Theme;

pub(super) fn amounts(buffer: &mut Buffer, theme: Theme, panel: &Panel) {
    let left = Area { x: panel.area.x, width: AXIS, ..panel.plot };
    for (row, label) in panel.scale.labels() {
        let row = panel.plot.height - 1 - row;
        if let Some(mut pen) = Pen::at(buffer, left, row) {
            pen.cell(label, usize::from(AXIS) - 1, Align::Right, theme.dim());
        }
    }
}

/// An amount with a name, such as the capacity.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    pub(super) amount: Bytes,
    pub(super) name: &'static str,
    pub(super) style: Style,
}

impl Level {
    fn row(&self, panel: &Panel) -> Option<u16> {
        let rows = panel.plot.height;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the rows there are")]
        let from_bottom = ((panel.scale.height(self.amount) * f64::from(rows)).max(0.0) as u16).min(rows - 1);
        panel.scale.holds(self.amount).then(|| panel.plot.y + rows - 1 - from_bottom)
    }

    pub(super) fn line(&self, buffer: &mut Buffer, panel: &Panel) {
        let Some(row) = self.row(panel) else { return };
        for x in (0..panel.plot.width).step_by(2) {
            buffer[(panel.plot.x + x, row)].set_char('╌').set_style(self.style);
        }
    }

    /// Draws the name of the level on its line, where the line is visible and has room for the whole name.
    pub(super) fn name(&self, buffer: &mut Buffer, panel: &Panel) {
        let Some(row) = self.row(panel) else { return };
        let width = u16::try_from(self.name.len()).unwrap_or(u16::MAX);
        let end = panel.plot.x + panel.plot.width;
        let is_free = |x: u16| (x - 1..=x + width).all(|x| matches!(buffer[(x, row)].symbol(), " " | "╌"));
        let places = (panel.plot.x + 2..end.saturating_sub(width)).step_by(2);
        if let Some(x) = places.into_iter().find(|x| is_free(*x)) {
            // Blanks separate the name from the line.
            buffer.set_string(x - 1, row, format!(" {} ", self.name), self.style);
        }
    }
}

pub(super) fn upright(buffer: &mut Buffer, style: Style, panel: &Panel, x: u16) {
    for y in panel.plot.y..panel.plot.y + panel.plot.height {
        let cell = &mut buffer[(x, y)];
        if matches!(cell.symbol(), " " | "╌") {
            cell.set_char('┊').set_style(style);
        }
    }
}

pub(super) fn marks(buffer: &mut Buffer, theme: Theme, panel: &Panel, marks: &[Mark]) {
    for x in marks.iter().filter_map(|mark| panel.column(mark.at(panel.subject.host)?)) {
        upright(buffer, theme.notable(), panel, x);
    }
}

/// Draws the names of marks beside their lines, each as high as the names of later marks allow.
pub(super) fn names(buffer: &mut Buffer, theme: Theme, panel: &Panel, marks: &[Mark]) {
    const ROWS: usize = 3;
    let left = panel.plot.x;
    let mut ends = [left + panel.plot.width; ROWS];
    for (x, mark) in marks.iter().rev().filter_map(|mark| Some((panel.column(mark.at(panel.subject.host)?)?, mark))) {
        let name = mark.name.as_str();
        let width = u16::try_from(unicode_width::UnicodeWidthStr::width(name)).unwrap_or(u16::MAX);
        for (row, end) in (0..panel.plot.height).zip(&mut ends) {
            let place = match () {
                () if x + 1 + width <= *end => x + 1,
                () if x <= *end && x >= left + width => x - width,
                () => continue,
            };
            buffer.set_string(place, panel.plot.y + row, name, theme.notable());
            *end = place.min(x);
            break;
        }
    }
}

/// Draws round times before now below the graph.
pub(super) fn time(buffer: &mut Buffer, theme: Theme, panel: &Panel, now: Moment) {
    const STEPS: [u64; 17] =
        [5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800];
    const APART: u64 = 12;
    let row = Area { y: panel.time, height: 1, ..panel.plot };
    let cell = 2 * u64::try_from(panel.window.part().as_millis()).unwrap_or(u64::MAX);
    let steps = STEPS.into_iter().map(|seconds| seconds * 1000);
    let step = steps.into_iter().find(|step| step / cell >= APART).unwrap_or(345_600_000);
    // The present is always in the last column of a graph that follows the present.
    let last = panel.window.end().0.saturating_sub(cell);
    let behind = now.0.saturating_sub(last) / cell * cell;
    let (past, width) = (u64::from(panel.past), u64::from(panel.plot.width));
    // A label is below its moment, and stays within the graph.
    let mut put = |column: u64, label: String| {
        let half = label.len() as u64 / 2;
        let place = column.saturating_sub(half).min(width.saturating_sub(label.len() as u64));
        if column >= half
            && let Some(mut pen) = Pen::at(buffer, row, 0)
        {
            pen.skip(usize::try_from(place).unwrap_or(0)).put(label, theme.dim());
        }
    };
    let first = behind.div_ceil(step) * step;
    for at in (0..).map(|number| first + number * step) {
        let Some(column) = (past - 1).checked_sub((at - behind) / cell) else { break };
        put(column, if at == 0 { "now".to_owned() } else { format!("-{}", words(at / 1000)) });
    }
    for at in (1..).map(|number| number * step) {
        let column = past - 1 + at / cell;
        if column + 4 > width {
            break;
        }
        put(column, format!("+{}", words(at / 1000)));
    }
}

/// Draws the projection: the likeliest path, and the earliest and the latest one.
pub(super) fn projection(buffer: &mut Buffer, theme: Theme, panel: &Panel) {
    let Some(projection) = panel.projection else { return };
    let mut dots = Dots::new(panel.plot);
    let past = usize::from(panel.past) * 2;
    let mut before = dots.row(panel.scale.height(projection.from));
    for x in past..usize::from(panel.plot.width) * 2 {
        let after = panel.window.part() * u32::try_from(x - past + 1).unwrap_or(u32::MAX);
        let rows = projection.held(after).map(|bytes| dots.row(panel.scale.height(bytes)));
        for row in [rows[0], rows[2]].into_iter().filter(|_| x % 4 < 2) {
            dots.line(x, (row, row), theme.dim());
        }
        // Neighbouring columns are joined, however steep the path is.
        dots.line(x, (before, rows[1]), theme.alarm_line());
        before = rows[1];
    }
    dots.draw(buffer);
}

/// Formats a time: `40s`, `5m`, `1h30m`, `2d`.
pub(super) fn words(seconds: u64) -> String {
    let part = |amount: u64, unit: &str| if amount > 0 { format!("{amount}{unit}") } else { String::new() };
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => part(seconds / 60, "m") + &part(seconds % 60, "s"),
        3600..86_400 => part(seconds / 3600, "h") + &part(seconds / 60 % 60, "m"),
        _ => part(seconds / 86_400, "d") + &part(seconds / 3600 % 24, "h"),
    }
}

pub(super) fn work(buffer: &mut Buffer, theme: Theme, panel: &Panel, curve: &Curve, now: Moment) {
    let Some(y) = panel.work else { return };
    let left = Area { x: panel.area.x, y, width: AXIS, height: 1 };
    if let Some(mut pen) = Pen::at(buffer, left, 0) {
        pen.cell("SM", usize::from(AXIS) - 1, Align::Right, theme.dim());
    }
    let parts = curve.over(&panel.window, now);
    let steps: String = parts
        .chunks(2)
        .map(|cell| cell.iter().flatten().map(|range| range.high).max())
        .map(|percent| percent.map_or(' ', |percent| block(percent.into(), 100)))
        .collect();
    buffer.set_stringn(panel.plot.x, y, steps, usize::from(panel.past), theme.good());
}

pub(super) fn glyph(theme: Theme, what: HistoryEventKind) -> (char, Style) {
    match what {
        HistoryEventKind::Began => ('▲', theme.good()),
        HistoryEventKind::Ended(_) => ('▼', theme.dim()),
        HistoryEventKind::Signalled(_) => ('✕', theme.notable()),
        HistoryEventKind::Dropped { .. } => ('↘', theme.notable()),
        HistoryEventKind::Xid(_) => ('!', theme.alarm()),
    }
}

pub(super) fn sentence(model: &HostModel, event: &HistoryEvent) -> String {
    let who = event.process.as_ref().map(|(id, name)| name_of(*id, name)).unwrap_or_default();
    let lives =
        event.process.as_ref().is_some_and(|(id, _)| model.latest().is_some_and(|snapshot| snapshot.lives(*id)));
    match event.kind {
        HistoryEventKind::Began => format!("{who} began"),
        HistoryEventKind::Ended(Some(held)) if lives => format!("{who} let go of {held}"),
        HistoryEventKind::Ended(None) if lives => format!("{who} let go"),
        HistoryEventKind::Ended(Some(held)) => format!("{who} ended, held {held}"),
        HistoryEventKind::Ended(None) => format!("{who} ended"),
        HistoryEventKind::Signalled(signal) => format!("{signal} to {who}"),
        HistoryEventKind::Dropped { from, to } => {
            let growth = event.process.as_ref().and_then(|(id, _)| model.leak_detector(&GpuOrProcess::Process(*id)));
            // The kind of a drop is known only for the latest one.
            let fall = growth.and_then(LeakDetector::last_drop).filter(|(at, _)| *at == event.at);
            let name = fall.map_or_else(String::new, |(_, fall)| format!(": {fall}"));
            format!("{who} fell from {from} to {to}{name}")
        }
        HistoryEventKind::Xid(code) => format!("Xid {code}"),
    }
}

/// Draws the events in their row, in words where these fit.
pub(super) fn events(buffer: &mut Buffer, theme: Theme, model: &HostModel, panel: &Panel) {
    let Some(y) = panel.events else { return };
    let row = Area { y, height: 1, ..panel.plot };
    let column = |event: &HistoryEvent| panel.column(event.at).map(|x| usize::from(x - panel.plot.x));
    let shown: Vec<(usize, &HistoryEvent)> =
        model.history().events(&panel.subject.subject).filter_map(|event| Some((column(event)?, event))).collect();
    let mut end = usize::from(panel.plot.width);
    for (at, (x, event)) in shown.iter().enumerate() {
        let mut x = *x;
        let (letter, style) = glyph(theme, event.kind);
        let Some(mut pen) = Pen::at(buffer, row, 0).filter(|_| x < end) else { continue };
        pen.skip(x).put(letter.to_string(), style);
        let words = sentence(model, event);
        // Words must not cover the symbol of the event before.
        let before = shown[at + 1..].iter().map(|(column, _)| *column).find(|before| *before < x);
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
