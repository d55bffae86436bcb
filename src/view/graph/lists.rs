//! The lists below the graph over the whole screen: marks, with the change of memory from one to the next, and events.

use ratatui::buffer::Buffer;

use super::axes;
use crate::app::App;
use crate::app::columns::Align;
use crate::app::layout::Area;
use crate::app::marks::MarkLine;
use crate::base::units::{Bytes, Elapsed, Moment};
use crate::model::{GpuOrProcess, HostModel, HostSubject};
use crate::view::pen::Pen;
use crate::view::theme::Theme;

const WIDE: u16 = 110;

const AGO: usize = 8;
const CHANGE: usize = 10;

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, subject: &HostSubject, area: Area) {
    let marked = u16::try_from(app.marks.list.len()).unwrap_or(u16::MAX).saturating_add(2);
    let (marks, events) = if area.width >= WIDE {
        let half = area.width / 2;
        (Area { width: half - 1, ..area }, Area { x: area.x + half, width: area.width - half, ..area })
    } else {
        let height = marked.min(area.height.saturating_sub(2).max(area.height / 2));
        (Area { height, ..area }, Area { y: area.y + height, height: area.height - height, ..area })
    };
    let Some(model) = app.fleet().host(subject.host) else { return };
    draw_marks(buffer, theme, app.marks.lines(model, subject), model.now(), marks);
    draw_events(buffer, theme, model, &subject.subject, events);
}

fn ago(now: Moment, at: Moment) -> String {
    format!("-{}", Elapsed(now.since(at)))
}

fn draw_marks(buffer: &mut Buffer, theme: Theme, mut lines: Vec<MarkLine>, now: Moment, area: Area) {
    let figures = AGO + Bytes::WIDTH + 2 * CHANGE + 4;
    let name_width = usize::from(area.width).saturating_sub(figures + 1).clamp(8, 24);
    if let Some(mut pen) = Pen::at(buffer, area, 0) {
        pen.cell("MARK", name_width, Align::Left, theme.head()).skip(1);
        pen.cell("AT", AGO, Align::Right, theme.head()).skip(1);
        pen.cell("MEMORY", Bytes::WIDTH, Align::Right, theme.head()).skip(1);
        pen.cell("SINCE LAST", CHANGE, Align::Right, theme.head()).skip(1);
        pen.cell("OVER BASE", CHANGE, Align::Right, theme.head());
    }
    if lines.len() == 1 {
        if let Some(mut pen) = Pen::at(buffer, area, 1) {
            pen.put("m marks this moment, to compare memory later", theme.dim());
        }
        return;
    }
    let room = usize::from(area.height.saturating_sub(1));
    lines.drain(..lines.len().saturating_sub(room));
    for (row, line) in (1..).zip(&lines) {
        let Some(mut pen) = Pen::at(buffer, area, row) else { return };
        let is_now = line.name.is_none();
        let (name, at) = match &line.name {
            Some(name) => (name.as_str(), ago(now, line.at)),
            None => ("now", String::new()),
        };
        pen.cell(name, name_width, Align::Left, if is_now { theme.dim() } else { theme.notable() }).skip(1);
        pen.cell(at, AGO, Align::Right, theme.dim()).skip(1);
        let held = line.held.map_or_else(|| "unknown".to_owned(), |bytes| bytes.to_string());
        pen.cell(held, Bytes::WIDTH, Align::Right, theme.text()).skip(1);
        for change in [line.since_last, line.over_baseline] {
            pen.cell(change.map_or_else(|| "-".to_owned(), signed), CHANGE, Align::Right, theme.text()).skip(1);
        }
    }
}

/// `+1.2 GiB`, `-20 MiB`, and `+0` where nothing changed.
pub(super) fn signed(bytes: i64) -> String {
    let sign = match bytes {
        0 => return "+0".to_owned(),
        1.. => '+',
        _ => '-',
    };
    format!("{sign}{}", Bytes(bytes.unsigned_abs()))
}

fn draw_events(buffer: &mut Buffer, theme: Theme, model: &HostModel, subject: &GpuOrProcess, area: Area) {
    if let Some(mut pen) = Pen::at(buffer, area, 0) {
        pen.cell("AT", AGO, Align::Right, theme.head()).skip(1).put("EVENT", theme.head());
    }
    let mut is_empty = true;
    for (row, event) in (1..area.height).zip(model.history().events(subject)) {
        let Some(mut pen) = Pen::at(buffer, area, row) else { return };
        let (letter, style) = axes::glyph(theme, event.kind);
        pen.cell(ago(model.now(), event.at), AGO, Align::Right, theme.dim()).skip(1);
        pen.put(letter.to_string(), style).skip(1).put(axes::sentence(model, event), theme.text());
        is_empty = false;
    }
    if is_empty && let Some(mut pen) = Pen::at(buffer, area, 1) {
        pen.skip(AGO + 1).put("nothing yet: starts, ends, signals, drops, Xid", theme.dim());
    }
}
