//! The list of processes, one line each. A wider screen has more columns and longer bars.

mod header;
mod unaccounted;

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Widget, Wrap};

use super::header::word;
use super::pen::{Align, Pen};
use super::theme::{Theme, sparkline};
use super::{fitting, rect};
use crate::app::layout::Area;
use crate::app::process_columns::{Column, WIDE, WIDEST};
use crate::app::{App, List, growth, page, rows};
use crate::base::text::Text;
use crate::base::units::{Bytes, Elapsed, Percent};
use crate::model::{Breakdown, GpuOrProcess, Outlook, ProcessTotal, Total, Verdict};
use crate::protocol::snapshot::{Identity, Missing, Process, Snapshot, State};

/// The most of the past that a sparkline shows: its few cells would hide what is short.
const RECENT: Duration = Duration::from_mins(5);

/// The columns, and the widths that depend on the screen.
struct Columns {
    shown: Vec<Column>,
    gpu: usize,
    user: usize,
    bar: usize,
    spark: usize,
}

impl Columns {
    fn of(app: &App, width: usize) -> Self {
        let (gpu, user, bar, spark) = match width {
            width if width >= usize::from(WIDEST) => (9, 12, 16, 20),
            width if width >= usize::from(WIDE) => (5, 9, 6, 8),
            width if width >= BARS => (3, 8, 4, 5),
            // How much it holds is what one came for: the figure stays, whatever goes.
            _ => (3, 8, 0, 5),
        };
        // The short list has its room for the reasons.
        let bar = if app.view().suspects { 0 } else { bar };
        let columns = Self { shown: Vec::new(), gpu, user, bar, spark };
        let least = |column| if column == Column::Command { COMMAND } else { columns.width(column) };
        Self { shown: fitting(app.columns(), width, least), ..columns }
    }

    fn has(&self, column: Column) -> bool {
        self.shown.contains(&column)
    }

    /// Of one that does not take the rest of the line.
    fn width(&self, column: Column) -> usize {
        match column {
            Column::Gpu => self.gpu,
            Column::Pid => PID,
            Column::User => self.user,
            Column::Memory => self.bar + 1 + SHORT,
            Column::Cache | Column::Cpu | Column::Rss => SHORT,
            Column::Growth => GROWTH,
            Column::Sm => Percent::WIDTH,
            Column::Elapsed => Elapsed::WIDTH,
            Column::Threads => 4,
            Column::State => 1,
            Column::History => self.spark,
            Column::Origin => ORIGIN,
            Column::Verdict => VERDICT,
            Column::Command => 0,
        }
    }
}

const PID: usize = 7;
/// The narrowest screen with bars beside the figures.
const BARS: usize = 44;
/// The least that says anything of a command.
const COMMAND: usize = 12;
const SHORT: usize = 5;
const GROWTH: usize = 6;
const VERDICT: usize = 8;
const ORIGIN: usize = 16;

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let Some(snapshot) = app.model().latest() else { return };
    // Above, it says why there is no GPU; a list without one would be empty for ever.
    if snapshot.gpus.is_empty() && app.rows().is_empty() {
        return;
    }
    let columns = Columns::of(app, usize::from(area.width));
    let (cursor, top) = app.cursor();
    let below = app.rows().len().saturating_sub(top + usize::from(area.height.saturating_sub(1)));
    if let Some(mut pen) = Pen::at(buffer, area, 0) {
        header::draw(&mut pen, theme, app, &columns, below);
    }
    for (line, (at, row)) in (1..area.height).zip(app.rows().iter().enumerate().skip(top)) {
        let Some(mut pen) = Pen::at(buffer, area, line) else { return };
        match &row.subject {
            rows::Subject::Process(id) => {
                if let Some(process) = snapshot.process(*id) {
                    let process_total = app.model().process_total(*id);
                    draw_process(
                        &mut pen,
                        theme,
                        app,
                        &columns,
                        &Shown { snapshot, process, process_total, depth: row.depth, is_kept: row.is_kept },
                    );
                }
            }
            rows::Subject::Unaccounted(gpu) => unaccounted::draw(&mut pen, theme, app, snapshot, &columns, gpu),
            rows::Subject::Group(group) => draw_group(&mut pen, theme, app, group),
            rows::Subject::Heading(text) => _ = pen.put(text, theme.dim()),
        }
        if app.focus() == List::Processes && at == cursor {
            pen.restyle(area, theme.cursor());
        }
    }
    let used = u16::try_from(app.rows().len().saturating_sub(top)).unwrap_or(u16::MAX).saturating_add(2);
    let below = Area { y: area.y + used, height: area.height.saturating_sub(used), ..area };
    let mut reasons = rows::unreadable(snapshot);
    if let Some(mut pen) = app.layout().and_then(|it| Pen::at(buffer, it.unreadable, 0)) {
        pen.rest(rows::unread_in_short(snapshot), theme.dim());
        reasons.clear();
    }
    unreadable(buffer, theme, app, snapshot, reasons, below);
    if app.rows().is_empty()
        && let Some(mut pen) = Pen::at(buffer, area, 1)
    {
        pen.put(
            match () {
                () if !app.filter().value().is_empty() => "no process matches the filter (Esc clears it)",
                () if app.view().mine && rows::is_only_others(app.model()) => {
                    "nothing of yours is here; u shows what is others'"
                }
                () if app.view().suspects => "nobody holds memory who should not (o shows all)",
                () if snapshot.gpus.iter().any(|it| it.trouble.is_some() || !it.failures.is_empty()) => {
                    "no process is listed; who uses a GPU that fails is not known"
                }
                () => "no process uses a GPU",
            },
            theme.dim(),
        );
    }
}

/// Below the list, where there is room, who is not listed and why; and why PyTorch's figures are not known of some, and what
/// to do about it: once.
fn unreadable(buffer: &mut Buffer, theme: Theme, app: &App, snapshot: &Snapshot, reasons: Vec<String>, area: Area) {
    let troubles = super::gpus::troubles(app, snapshot, area.width.into()).map(|it| Line::styled(it, theme.alarm()));
    let reasons = reasons.into_iter().map(|it| Line::styled(it, theme.dim()));
    let area = rect(area).intersection(*buffer.area());
    Paragraph::new(troubles.chain(reasons).collect::<Vec<_>>()).wrap(Wrap { trim: true }).render(area, buffer);
}

/// Below the short list, the whole of what speaks against the process under the cursor.
pub(super) fn reason(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let Some(verdict) = app.under_cursor().and_then(|id| app.model().verdict(id)) else { return };
    let text = format!("{}: {}", verdict.process.pid, verdict.sentence());
    Paragraph::new(text).style(theme.notable()).wrap(Wrap { trim: true }).render(rect(area), buffer);
}

/// A process and where it stands.
struct Shown<'a> {
    snapshot: &'a Snapshot,
    process: &'a Process,
    /// Absent when it is no GPU process of a GPU.
    process_total: Option<&'a ProcessTotal>,
    depth: usize,
    /// Its memory stands on another line.
    is_kept: bool,
}

/// The columns that the person chose, and that a screen of that width has no room for.
pub(super) fn crowded_out(app: &App, width: usize) -> Vec<Column> {
    let shown = Columns::of(app, width).shown;
    app.columns().into_iter().filter(|it| !shown.contains(it)).collect()
}

/// What the cells of one process have in common.
struct Styles {
    plain: Style,
    /// For what it holds, which may be old.
    held: Style,
    is_dim: bool,
}

fn draw_process(pen: &mut Pen<'_>, theme: Theme, app: &App, columns: &Columns, shown: &Shown<'_>) {
    let Shown { snapshot, process, process_total, .. } = shown;
    let gpus = process_total.map(|it| it.gpus.as_slice()).unwrap_or_default();
    let is_old = gpus.iter().any(|at| app.model().age(&snapshot.gpus[*at]).is_some());
    let is_sure = process.facts.identity != Identity::Unverified;
    // Related processes without a GPU is there for the picture.
    let plain = if is_sure && process_total.is_some() { theme.text() } else { theme.dim() };
    let styles = Styles { plain, held: if is_old { theme.dim() } else { plain }, is_dim: is_old || !is_sure };
    for column in &columns.shown {
        draw_cell(pen, theme, app, columns, shown, &styles, *column);
    }
}

fn draw_cell(
    pen: &mut Pen<'_>,
    theme: Theme,
    app: &App,
    columns: &Columns,
    shown: &Shown<'_>,
    styles: &Styles,
    column: Column,
) {
    let Shown { snapshot, process, process_total, .. } = shown;
    let (load, facts, width) = (&process.load, &process.facts, columns.width(column));
    let (text, align, style) = match column {
        Column::Gpu => {
            let tag = match () {
                () if app.tagged().contains(&process.id) => "*",
                () if app.is_watched(&GpuOrProcess::Process(process.id)) => "w",
                () => "",
            };
            // Who is not listed may have a GPU open, and keep what is there.
            let open = app.model().verdict(process.id).map(|it| it.open.as_slice()).unwrap_or_default();
            let label = rows::gpu_labels(snapshot, process_total.map_or(open, |it| it.gpus.as_slice()));
            (format!("{tag}{label}"), Align::Left, styles.plain)
        }
        Column::Pid => (process.id.pid.to_string(), Align::Right, styles.plain),
        Column::User => (word(facts.user.as_ref().map_err(|why| *why)), Align::Left, styles.plain),
        Column::Memory => return memory(pen, theme, app, columns, shown, styles),
        Column::Cache => (cache(shown), Align::Right, styles.held),
        Column::Growth => (growth(app.model(), process.id).map_or_else(String::new, signed), Align::Right, styles.held),
        Column::Sm => (process_total.map_or_else(String::new, |it| word(it.sm)), Align::Right, styles.held),
        Column::Cpu => (word(load.cpu), Align::Right, styles.plain),
        Column::Rss => (word(load.rss.map(short)), Align::Right, styles.plain),
        Column::Elapsed => (word(page::elapsed(snapshot, process).map(Elapsed)), Align::Right, styles.plain),
        Column::Threads => (word(load.threads), Align::Right, styles.plain),
        Column::State => {
            let letter = load.state.map_or('?', State::letter);
            (letter.to_string(), Align::Left, state(theme, process, styles.plain))
        }
        Column::History => {
            let series = app.model().series(&GpuOrProcess::Process(process.id));
            let values = series.map(|it| it.columns(app.model().now(), recent(app), columns.spark)).unwrap_or_default();
            let values: Vec<Option<u64>> = values.iter().map(|it| it.map(|bytes| bytes.0)).collect();
            let curve = if facts.identity == Identity::Unverified { theme.dim() } else { theme.good() };
            (sparkline(&values), Align::Left, curve)
        }
        Column::Origin => (facts.origin.as_ref().map_or("", Text::as_str).to_owned(), Align::Left, theme.dim()),
        Column::Verdict => {
            let (said, style) = opinion(theme, app, process, styles.plain, true);
            (said.to_owned(), Align::Left, style)
        }
        Column::Command => return command(pen, theme, app, columns, shown, styles.plain),
    };
    pen.cell(text, width, align, style).skip(1);
}

/// What is thought of a process, in a word: who holds what nobody needs is more urgent than who leaks. What is no
/// trouble is said only where there is a column for it.
fn opinion(theme: Theme, app: &App, process: &Process, plain: Style, all: bool) -> (&'static str, Style) {
    let verdict = app.model().verdict(process.id);
    let grows = app.model().growing(&GpuOrProcess::Process(process.id)).map(|it| it.outlook());
    match (verdict, grows) {
        (Some(verdict), _) if verdict.is_suspect() => (verdict.word(), theme.weight(verdict.weight())),
        (_, Some(grows @ (Outlook::Leak | Outlook::Suspect))) => (grows.word(), theme.weight(grows.weight())),
        (Some(verdict), _) if all => (verdict.word(), verdict_style(theme, verdict, plain)),
        _ => ("", plain),
    }
}

/// What it runs, or why it is in the short list; the last cell of a line.
fn command(pen: &mut Pen<'_>, theme: Theme, app: &App, columns: &Columns, shown: &Shown<'_>, plain: Style) {
    let Shown { process, depth, .. } = shown;
    let verdict = app.model().verdict(process.id);
    if !columns.has(Column::Verdict) {
        let (said, style) = opinion(theme, app, process, plain, false);
        if !said.is_empty() {
            pen.put(said, style).skip(1);
        }
    }
    if *depth > 0 {
        pen.put("  ".repeat(depth - 1), theme.dim()).put("└ ", theme.dim());
    }
    // In the short list, why it is there says more than what it runs. So does the name that a worker gave itself:
    // its arguments are those of its trainer.
    let comm = process.facts.comm.as_ref().ok().filter(|it| it.as_str() == "pt_data_worker");
    let text = match (verdict.filter(|it| app.view().suspects && it.is_suspect()), comm) {
        (Some(verdict), _) => verdict.sentence(),
        (None, Some(comm)) => format!("[{comm}]"),
        (None, None) => word(rows::command(process)),
    };
    let text: String = text.chars().skip(app.command_at()).collect();
    let room = pen.room();
    pen.cell(text, room, Align::Left, plain);
}

/// What it alone keeps, though the driver lists it for nobody that lives. What several keep together stands where
/// the driver has it: at a ghost, or as unaccounted.
fn kept(verdict: Option<&Verdict>) -> String {
    let kept = verdict.map(|it| it.kept.as_slice()).unwrap_or_default();
    let alone = || kept.iter().filter(|it| it.keepers == 1);
    match kept {
        [] => String::new(),
        _ if alone().next().is_none() => "shared".to_owned(),
        _ => short(alone().map(|it| it.memory).sum()),
    }
}

/// What one should look at stands out.
fn verdict_style(theme: Theme, verdict: &Verdict, plain: Style) -> Style {
    if verdict.is_suspect() { theme.weight(verdict.weight()) } else { plain.patch(theme.dim()) }
}

/// The head of a group: whose, how many, how much.
fn draw_group(pen: &mut Pen<'_>, theme: Theme, app: &App, group: &rows::Group) {
    let process_totals = group.members.iter().filter_map(|id| app.model().process_total(*id));
    let total = Total::sum(process_totals.map(|it| it.memory));
    let total = match total {
        Ok(Total { bytes, lower_bound }) => format!("{}{bytes}", if lower_bound { "≥ " } else { "" }),
        Err(why) => why.to_string(),
    };
    let count = group.members.len();
    let noun = if count == 1 { "process" } else { "processes" };
    pen.put(&group.name, theme.accent()).skip(1).put(format!("{count} {noun}, {total}"), theme.text());
}

/// What the sparklines show of the past.
fn recent(app: &App) -> Duration {
    app.model().span().min(RECENT)
}

fn memory(pen: &mut Pen<'_>, theme: Theme, app: &App, columns: &Columns, shown: &Shown<'_>, styles: &Styles) {
    let Some(process_total) = shown.process_total.filter(|_| !shown.is_kept) else {
        let figure = if shown.is_kept { "kept".to_owned() } else { kept(app.model().verdict(shown.process.id)) };
        pen.skip(columns.bar).cell(figure, SHORT + 1, Align::Right, styles.plain).skip(1);
        return;
    };
    let share =
        process_total.memory.ok().zip(process_total.capacity.ok()).and_then(|(it, all)| it.bytes.share_of(all.bytes));
    let full = if styles.is_dim { theme.dim() } else { theme.full(share) };
    let breakdown = Breakdown::of_process(shown.snapshot, process_total);
    match (&breakdown, process_total.capacity) {
        (Some(breakdown), Ok(all)) => pen.breakdown(theme, breakdown, all.bytes, columns.bar, full),
        _ => pen.gauge(theme, share, columns.bar, full),
    };
    let (mark, figure) = match process_total.memory {
        Ok(total) => (if total.lower_bound { "≥" } else { " " }, short(total.bytes)),
        Err(why) => (" ", why.to_string()),
    };
    pen.put(mark, styles.held).cell(figure, SHORT, Align::Right, styles.held).skip(1);
}

/// What PyTorch would give back.
fn cache(shown: &Shown<'_>) -> String {
    match shown.process_total.and_then(|_| rows::cache(shown.snapshot, shown.process)) {
        Some(Err(Missing::Unsupported)) | None => String::new(),
        Some(cache) => word(cache.map(short)),
    }
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
