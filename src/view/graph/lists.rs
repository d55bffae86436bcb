//! The lists below the graph over the whole screen: marks, with the change of memory from one to
//! the next, and events.

use ratatui::buffer::Buffer;

use super::axes;
use crate::app::App;
use crate::app::layout::Area;
use crate::app::lists::columns::Align;
use crate::app::recordings::marks::{MarkLine, MarkedMemory};
use crate::base::units::{Bytes, Elapsed, Moment};
use crate::model::{GpuOrProcess, HostModel, HostSubject};
use crate::output::labels;
use crate::view::pen::Pen;
use crate::view::theme::Theme;

/// The width from which both lists fit beside each other: the sentence of an event takes up to 60
/// columns.
const WIDE: u16 = 160;

const AT: usize = 8;
const AGO: usize = 8;
const CHANGE: usize = 10;
const ALLOCATED: usize = 9;
const SHORTEST_NAME: usize = 8;
const LONGEST_NAME: usize = 24;

pub(super) fn draw(
    buffer: &mut Buffer,
    theme: Theme,
    app: &App,
    subject: &HostSubject,
    area: Area,
) {
    let marked = u16::try_from(app.marks.list.len())
        .unwrap_or(u16::MAX)
        .saturating_add(2);
    let (marks, events) = if area.width >= WIDE {
        let half = area.width / 2;
        (
            Area {
                width: half - 1,
                ..area
            },
            Area {
                x: area.x + half,
                width: area.width - half,
                ..area
            },
        )
    } else {
        let height = marked.min(area.height.saturating_sub(2).max(area.height / 2));
        (
            Area { height, ..area },
            Area {
                y: area.y + height,
                height: area.height - height,
                ..area
            },
        )
    };
    let Some(model) = app.fleet().host(subject.host) else {
        return;
    };
    draw_marks(buffer, theme, model, app.marks.lines(model, subject), marks);
    draw_events(buffer, theme, model, &subject.subject, events);
}

fn ago(now: Moment, at: Moment) -> String {
    format!("-{}", Elapsed(now.since(at)))
}

/// The clock time of a moment; empty if the wall clock is not known.
fn clock_time(model: &HostModel, at: Moment) -> String {
    model
        .wall_clock()
        .map_or_else(String::new, |clock| clock.seconds(at, model.now()))
}

/// A column of the list of marks.
struct MarkColumn {
    heading: &'static str,
    width: usize,
    /// A list without room drops the column with the highest number first.
    rank: u8,
    text: fn(&HostModel, &MarkLine) -> String,
}

impl MarkColumn {
    /// The columns after the name, from left to right.
    fn all(is_split: bool) -> Vec<Self> {
        let column = |heading, width, rank, text| Self {
            heading,
            width,
            rank,
            text,
        };
        let mut columns = vec![
            column("AT", AT, 5, |model, line| clock_time(model, line.at)),
            column("AGO", AGO, 8, |model, line| ago(model.now(), line.at)),
            column("MEMORY", Bytes::WIDTH, 0, |_, line| {
                amount(line.memory.held)
            }),
            column("SINCE LAST", CHANGE, 1, |_, line| {
                change(line, |memory| memory.held)
            }),
            column("ALLOCATED", ALLOCATED, 3, |_, line| {
                amount(line.memory.allocated)
            }),
            column("CHANGE", CHANGE, 6, |_, line| {
                change(line, |memory| memory.allocated)
            }),
            column("RESERVED", Bytes::WIDTH, 4, |_, line| {
                amount(line.memory.reserved)
            }),
            column("CHANGE", CHANGE, 7, |_, line| {
                change(line, |memory| memory.reserved)
            }),
            column("PEAK", Bytes::WIDTH, 2, |_, line| amount(line.memory.peak)),
        ];
        columns.retain(|column| is_split || ![3, 4, 6, 7].contains(&column.rank));
        columns
    }

    /// The columns that fit beside each other, each after a blank.
    fn fitting(is_split: bool, room: usize) -> Vec<Self> {
        let mut columns = Self::all(is_split);
        while columns.iter().map(|column| column.width + 1).sum::<usize>() > room
            && let Some(last) = columns.iter().map(|column| column.rank).max()
        {
            columns.retain(|column| column.rank != last);
        }
        columns
    }
}

fn draw_marks(
    buffer: &mut Buffer,
    theme: Theme,
    model: &HostModel,
    mut lines: Vec<MarkLine>,
    area: Area,
) {
    let is_split = lines.iter().any(|line| line.memory.reserved.is_some());
    let columns = MarkColumn::fitting(
        is_split,
        usize::from(area.width).saturating_sub(SHORTEST_NAME),
    );
    let taken: usize = columns.iter().map(|column| column.width + 1).sum();
    let name_width = usize::from(area.width)
        .saturating_sub(taken)
        .min(LONGEST_NAME);
    if let Some(mut pen) = Pen::at(buffer, area, 0) {
        pen.style_as_heading(theme);
        pen.cell("MARK", name_width, Align::Left, theme.head());
        for column in &columns {
            pen.skip(1)
                .cell(column.heading, column.width, Align::Right, theme.head());
        }
    }
    if lines.len() == 1 {
        if let Some(mut pen) = Pen::at(buffer, area, 1) {
            pen.rest("m marks this moment, to compare memory later", theme.dim());
        }
        return;
    }
    let room = usize::from(area.height.saturating_sub(1));
    lines.drain(..lines.len().saturating_sub(room));
    for (row, line) in (1..).zip(&lines) {
        let Some(mut pen) = Pen::at(buffer, area, row) else {
            return;
        };
        match &line.name {
            Some(name) => pen.cell(name, name_width, Align::Left, theme.accent()),
            None => pen.cell("now", name_width, Align::Left, theme.dim()),
        };
        for column in &columns {
            let is_time = ["AT", "AGO"].contains(&column.heading);
            let text = if is_time && line.name.is_none() {
                String::new()
            } else {
                (column.text)(model, line)
            };
            let style = if is_time { theme.dim() } else { theme.text() };
            pen.skip(1).cell(text, column.width, Align::Right, style);
        }
    }
}

fn amount(bytes: Option<Bytes>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string())
}

fn change(line: &MarkLine, amount: fn(&MarkedMemory) -> Option<Bytes>) -> String {
    line.change(amount)
        .map_or_else(|| "-".to_owned(), labels::change)
}

fn draw_events(
    buffer: &mut Buffer,
    theme: Theme,
    model: &HostModel,
    subject: &GpuOrProcess,
    area: Area,
) {
    if let Some(mut pen) = Pen::at(buffer, area, 0) {
        pen.style_as_heading(theme);
        pen.cell("AT", AT, Align::Right, theme.head()).skip(1);
        pen.cell("AGO", AGO, Align::Right, theme.head())
            .skip(1)
            .put("EVENT", theme.head());
    }
    let mut is_empty = true;
    for (row, event) in (1..area.height).zip(model.history().events(subject)) {
        let Some(mut pen) = Pen::at(buffer, area, row) else {
            return;
        };
        let (letter, style) = axes::glyph(theme, event.kind);
        pen.cell(clock_time(model, event.at), AT, Align::Right, theme.text())
            .skip(1);
        pen.cell(ago(model.now(), event.at), AGO, Align::Right, theme.dim())
            .skip(1);
        pen.put(letter.to_string(), style)
            .skip(1)
            .put(axes::sentence(model, event), theme.text());
        is_empty = false;
    }
    if is_empty && let Some(mut pen) = Pen::at(buffer, area, 1) {
        pen.skip(AT + AGO + 2).put(
            "nothing yet: starts, ends, signals, drops, Xid",
            theme.dim(),
        );
    }
}
