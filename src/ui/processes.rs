//! The list of processes, one line each. A wider screen has more columns and longer bars.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::style::Style;

use super::host::word;
use super::pen::{Align, Pen};
use super::theme::{Theme, sparkline};
use crate::app::layout::Area;
use crate::app::rows::Column;
use crate::app::{App, List, growth, page, rows};
use crate::model::{Holding, Subject};
use crate::snapshot::{Identity, Process, Snapshot, State};
use crate::units::{Bytes, Elapsed, Moment, Percent};

/// The most of the past that a sparkline shows: its few cells would hide what is short.
const RECENT: Duration = Duration::from_mins(5);

/// Widths that depend on the screen.
struct Columns {
    gpu: usize,
    user: usize,
    bar: usize,
    spark: usize,
    growth: bool,
    threads: bool,
}

impl Columns {
    fn of(width: usize) -> Self {
        match width {
            160.. => Self { gpu: 9, user: 12, bar: 16, spark: 30, growth: true, threads: true },
            110.. => Self { gpu: 5, user: 9, bar: 6, spark: 12, growth: true, threads: false },
            _ => Self { gpu: 3, user: 8, bar: 4, spark: 5, growth: false, threads: false },
        }
    }
}

const PID: usize = 7;
const SHORT: usize = 5;
const GROWTH: usize = 6;

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let Some(snapshot) = app.model().latest() else { return };
    let columns = Columns::of(usize::from(area.width));
    if let Some(mut pen) = Pen::at(buffer, area, 0) {
        head(&mut pen, theme, app, &columns);
    }
    let (cursor, top) = app.cursor();
    let now = app.model().now();
    for (line, (at, id)) in (1..area.height).zip(app.rows().iter().enumerate().skip(top)) {
        let Some(mut pen) = Pen::at(buffer, area, line) else { return };
        let (Some(process), Some(holding)) = (snapshot.process(*id), app.model().holding(*id)) else { continue };
        draw_line(&mut pen, theme, app, &columns, &Row { snapshot, process, holding, now });
        if app.focus() == List::Processes && at == cursor {
            pen.restyle(area, theme.cursor());
        }
    }
    if app.rows().is_empty()
        && let Some(mut pen) = Pen::at(buffer, area, 1)
    {
        pen.put(
            match () {
                () if !app.filter().value().is_empty() => "no process matches the filter (Esc clears it)",
                () if snapshot.gpus.is_empty() => "",
                () => "no process uses a GPU",
            },
            theme.dim(),
        );
    }
}

/// One process and where it stands.
struct Row<'a> {
    snapshot: &'a Snapshot,
    process: &'a Process,
    holding: &'a Holding,
    now: Moment,
}

fn head(pen: &mut Pen<'_>, theme: Theme, app: &App, columns: &Columns) {
    let sort = app.sort();
    let mut title = |text: &str, width: usize, align: Align, column: Option<Column>| {
        let sorted = column == Some(sort.column);
        let mark = if sort.descending { '▼' } else { '▲' };
        let text = if sorted { format!("{text}{mark}") } else { text.to_owned() };
        pen.cell(text, width, align, if sorted { theme.accent() } else { theme.head() }).skip(1);
    };
    title("GPU", columns.gpu, Align::Left, Some(Column::Gpu));
    title("PID", PID, Align::Right, Some(Column::Pid));
    title("USER", columns.user, Align::Left, Some(Column::User));
    title("MEMORY", columns.bar + 1 + SHORT, Align::Right, Some(Column::Memory));
    if columns.growth {
        title("GROWN", GROWTH, Align::Right, Some(Column::Growth));
    }
    title("SM", Percent::WIDTH, Align::Right, Some(Column::Sm));
    title("CPU", SHORT, Align::Right, Some(Column::Cpu));
    title("RSS", SHORT, Align::Right, Some(Column::Rss));
    title("TIME", Elapsed::WIDTH, Align::Right, Some(Column::Elapsed));
    if columns.threads {
        title("THR", 4, Align::Right, None);
    }
    title("S", 1, Align::Left, Some(Column::State));
    let minutes = recent(app).as_secs() / 60;
    let spark = if columns.spark > 8 { format!("LAST {minutes} MIN") } else { format!("{minutes} MIN") };
    title(&spark, columns.spark, Align::Left, None);
    let shown = format!("{}/{}", app.rows().len(), app.model().holdings().len());
    let command = if app.filter().value().is_empty() { "COMMAND".to_owned() } else { format!("COMMAND ({shown})") };
    title(&command, command.len() + 1, Align::Left, Some(Column::Command));
}

fn draw_line(pen: &mut Pen<'_>, theme: Theme, app: &App, columns: &Columns, row: &Row<'_>) {
    let Row { snapshot, process, holding, now } = row;
    let is_old = holding.gpus.iter().any(|at| app.model().age(&snapshot.gpus[*at]).is_some());
    let is_sure = process.facts.identity != Identity::Unverified;
    let plain = if is_sure { theme.text() } else { theme.dim() };
    let held = if is_old { theme.dim() } else { plain };
    pen.cell(rows::gpu_labels(snapshot, holding), columns.gpu, Align::Left, plain).skip(1);
    pen.cell(process.id.pid, PID, Align::Right, plain).skip(1);
    pen.cell(word(process.facts.user.as_ref().map_err(|why| *why)), columns.user, Align::Left, plain).skip(1);
    memory(pen, theme, columns, holding, held, is_old || !is_sure);
    if columns.growth {
        let grown = growth(app.model(), process.id).map_or_else(String::new, signed);
        pen.cell(grown, GROWTH, Align::Right, held).skip(1);
    }
    pen.cell(word(holding.sm), Percent::WIDTH, Align::Right, held).skip(1);
    pen.cell(word(process.load.cpu), SHORT, Align::Right, plain).skip(1);
    pen.cell(word(process.load.rss.map(short)), SHORT, Align::Right, plain).skip(1);
    pen.cell(word(page::elapsed(snapshot, process).map(Elapsed)), Elapsed::WIDTH, Align::Right, plain).skip(1);
    if columns.threads {
        pen.cell(word(process.load.threads), 4, Align::Right, plain).skip(1);
    }
    let letter = process.load.state.map_or('?', State::letter);
    pen.cell(letter, 1, Align::Left, state(theme, process, plain)).skip(1);
    let series = app.model().series(&Subject::Process(process.id));
    let values = series.map(|it| it.columns(*now, recent(app), columns.spark)).unwrap_or_default();
    let values: Vec<Option<u64>> = values.iter().map(|it| it.map(|bytes| bytes.0)).collect();
    pen.cell(sparkline(&values), columns.spark, Align::Left, if is_sure { theme.good() } else { theme.dim() }).skip(1);
    let room = pen.room();
    pen.cell(word(rows::command(process)), room, Align::Left, plain);
}

/// What the sparklines show of the past.
fn recent(app: &App) -> Duration {
    app.model().span().min(RECENT)
}

fn memory(pen: &mut Pen<'_>, theme: Theme, columns: &Columns, holding: &Holding, style: Style, dim: bool) {
    let share = holding.memory.ok().zip(holding.capacity.ok()).and_then(|(it, all)| it.bytes.share_of(all.bytes));
    pen.gauge(theme, share, columns.bar, if dim { theme.dim() } else { theme.full(share) });
    let (mark, figure) = match holding.memory {
        Ok(total) => (if total.lower_bound { "≥" } else { " " }, short(total.bytes)),
        Err(why) => (" ", why.to_string()),
    };
    pen.put(mark, style).cell(figure, SHORT, Align::Right, style).skip(1);
}

/// What is not as it should be stands out: stopped, dead, or out of reach of signals.
fn state(theme: Theme, process: &Process, plain: Style) -> Style {
    match process.load.state {
        Ok(State::Zombie | State::DiskSleep | State::Dead) => theme.alarm(),
        Ok(State::Stopped | State::Traced) => theme.notable(),
        _ => plain,
    }
}

/// Five columns: `38.2G`, `512M`.
fn short(bytes: Bytes) -> String {
    let text = bytes.to_string();
    match text.split_once(' ') {
        Some((number, unit)) => format!("{number}{}", unit.chars().next().unwrap_or('B')),
        None => text,
    }
}

/// Six columns: `+1.2G`, and `0` where nothing changed.
fn signed(bytes: i64) -> String {
    match bytes {
        0 => "0".to_owned(),
        1.. => format!("+{}", short(Bytes(bytes.unsigned_abs()))),
        _ => format!("-{}", short(Bytes(bytes.unsigned_abs()))),
    }
}
