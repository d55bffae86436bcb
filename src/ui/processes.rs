//! The list of processes, one line each. A wider screen has more columns and longer bars.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::style::Style;
use ratatui::widgets::{Paragraph, Widget, Wrap};

use super::host::word;
use super::pen::{Align, Pen};
use super::rect;
use super::theme::{Theme, sparkline};
use crate::app::layout::Area;
use crate::app::rows::{Column, View};
use crate::app::{App, List, growth, page, rows};
use crate::model::{Breakdown, Holding, Outlook, Subject, Total, Verdict};
use crate::snapshot::{GpuUuid, Identity, Missing, Process, ProcessId, Snapshot, State};
use crate::units::{Bytes, Elapsed, Percent};
use crate::untrusted::Text;

/// The most of the past that a sparkline shows: its few cells would hide what is short.
const RECENT: Duration = Duration::from_mins(5);

/// Widths that depend on the screen.
#[expect(clippy::struct_excessive_bools, reason = "each says of one column whether it is there")]
struct Columns {
    gpu: usize,
    user: usize,
    bar: usize,
    /// What of it `empty_cache()` would give back.
    cache: bool,
    spark: usize,
    /// What a process does, beside what it holds: left out where the room is for the reasons.
    doings: bool,
    growth: bool,
    threads: bool,
    origin: bool,
    verdict: bool,
}

impl Columns {
    fn of(width: usize, view: View) -> Self {
        let wide = match width {
            width if width >= usize::from(rows::WIDEST) => Self {
                gpu: 9,
                user: 12,
                bar: 16,
                cache: true,
                spark: 20,
                doings: true,
                growth: true,
                threads: true,
                origin: true,
                verdict: true,
            },
            width if width >= usize::from(rows::WIDE) => Self {
                gpu: 5,
                user: 9,
                bar: 6,
                cache: width >= usize::from(rows::ROOMY),
                spark: if width >= usize::from(rows::ROOMY) { 8 } else { 12 },
                doings: true,
                growth: true,
                threads: false,
                origin: false,
                verdict: true,
            },
            _ => Self {
                gpu: 3,
                user: 8,
                bar: 4,
                cache: false,
                spark: 5,
                doings: true,
                growth: false,
                threads: false,
                origin: false,
                verdict: false,
            },
        };
        if view.suspects {
            Self { bar: 0, cache: false, doings: false, growth: false, threads: false, verdict: true, ..wide }
        } else {
            wide
        }
    }
}

const PID: usize = 7;
const SHORT: usize = 5;
const GROWTH: usize = 6;
const VERDICT: usize = 8;
const ORIGIN: usize = 16;

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let Some(snapshot) = app.model().latest() else { return };
    let columns = Columns::of(usize::from(area.width), app.view());
    if let Some(mut pen) = Pen::at(buffer, area, 0) {
        head(&mut pen, theme, app, &columns);
    }
    let (cursor, top) = app.cursor();
    let below = app.rows().len().saturating_sub(top + usize::from(area.height.saturating_sub(1)));
    if below > 0
        && let Some(mut pen) = Pen::at(buffer, area, 0)
    {
        // Where the last column has its name.
        let word = format!(" {below} more below");
        pen.tab_from_end(word.len()).put(word, theme.notable());
    }
    for (line, (at, row)) in (1..area.height).zip(app.rows().iter().enumerate().skip(top)) {
        let Some(mut pen) = Pen::at(buffer, area, line) else { return };
        match &row.subject {
            rows::Subject::Process(id) => {
                if let Some(process) = snapshot.process(*id) {
                    let holding = app.model().holding(*id);
                    draw_process(
                        &mut pen,
                        theme,
                        app,
                        &columns,
                        &Shown { snapshot, process, holding, depth: row.depth, is_kept: row.is_kept },
                    );
                }
            }
            rows::Subject::Unclaimed(gpu) => draw_unclaimed(&mut pen, theme, app, snapshot, &columns, gpu),
            rows::Subject::Group(group) => draw_group(&mut pen, theme, app, group),
            rows::Subject::Heading(text) => _ = pen.put(text, theme.dim()),
        }
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
                () if app.view().suspects => "nobody holds memory who should not (o shows all)",
                () => "no process uses a GPU",
            },
            theme.dim(),
        );
    }
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
    /// Absent when it is no tenant of a GPU.
    holding: Option<&'a Holding>,
    depth: usize,
    /// Its memory stands on another line.
    is_kept: bool,
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
    title(if columns.bar > 0 { "MEMORY" } else { "MEM" }, columns.bar + 1 + SHORT, Align::Right, Some(Column::Memory));
    if columns.cache {
        title("CACHE", SHORT, Align::Right, Some(Column::Cache));
    }
    if columns.growth {
        title("GROWN", GROWTH, Align::Right, Some(Column::Growth));
    }
    if columns.doings {
        title("SM", Percent::WIDTH, Align::Right, Some(Column::Sm));
        title("CPU", SHORT, Align::Right, Some(Column::Cpu));
        title("RSS", SHORT, Align::Right, Some(Column::Rss));
        title("TIME", Elapsed::WIDTH, Align::Right, Some(Column::Elapsed));
    }
    if columns.threads {
        title("THR", 4, Align::Right, None);
    }
    if columns.doings {
        title("S", 1, Align::Left, Some(Column::State));
        let minutes = recent(app).as_secs() / 60;
        let spark = if columns.spark > 8 { format!("LAST {minutes} MIN") } else { format!("{minutes} MIN") };
        title(&spark, columns.spark, Align::Left, None);
    }
    if columns.origin {
        title("ORIGIN", ORIGIN, Align::Left, None);
    }
    if columns.verdict {
        title("VERDICT", VERDICT, Align::Left, None);
    }
    let shown = format!("{}/{}", app.rows().len(), app.model().holdings().len());
    let what = if app.view().suspects { "WHY" } else { "COMMAND" };
    let command = if app.filter().value().is_empty() { what.to_owned() } else { format!("{what} ({shown})") };
    title(&command, command.len() + 1, Align::Left, Some(Column::Command));
}

fn draw_process(pen: &mut Pen<'_>, theme: Theme, app: &App, columns: &Columns, shown: &Shown<'_>) {
    let Shown { snapshot, process, holding, depth, is_kept } = shown;
    let gpus = holding.map(|it| it.gpus.as_slice()).unwrap_or_default();
    let is_old = gpus.iter().any(|at| app.model().age(&snapshot.gpus[*at]).is_some());
    let is_sure = process.facts.identity != Identity::Unverified;
    // Kin without a GPU is there for the picture.
    let plain = if is_sure && holding.is_some() { theme.text() } else { theme.dim() };
    let held = if is_old { theme.dim() } else { plain };
    let tag = if app.tagged().contains(&process.id) { "*" } else { "" };
    let verdict = app.model().verdict(process.id);
    // Who is not listed may have a GPU open, and keep what is there.
    let open = verdict.map(|it| it.open.as_slice()).unwrap_or_default();
    let label = rows::gpu_labels(snapshot, holding.map_or(open, |it| it.gpus.as_slice()));
    pen.cell(format!("{tag}{label}"), columns.gpu, Align::Left, plain).skip(1);
    pen.cell(process.id.pid, PID, Align::Right, plain).skip(1);
    pen.cell(word(process.facts.user.as_ref().map_err(|why| *why)), columns.user, Align::Left, plain).skip(1);
    match holding {
        Some(_) if !is_kept => memory(pen, theme, columns, shown, held, is_old || !is_sure),
        _ => {
            let figure = if *is_kept { "kept".to_owned() } else { kept(verdict) };
            pen.skip(columns.bar).cell(figure, SHORT + 1, Align::Right, plain).skip(1);
            pen.skip(if columns.cache { SHORT + 1 } else { 0 });
        }
    }
    if columns.growth {
        let grown = growth(app.model(), process.id).map_or_else(String::new, signed);
        pen.cell(grown, GROWTH, Align::Right, held).skip(1);
    }
    if columns.doings {
        doings(pen, theme, app, columns, shown, plain, held);
    }
    if columns.origin {
        let origin = process.facts.origin.as_ref().map_or("", Text::as_str);
        pen.cell(origin, ORIGIN, Align::Left, theme.dim()).skip(1);
    }
    let grows = app.model().growing(&Subject::Process(process.id)).map(|it| it.detector.outlook());
    let (said, style) = match (verdict, grows) {
        // Who holds what nobody needs is the more urgent.
        (Some(verdict), _) if verdict.is_suspect() => (verdict.word(), theme.weight(verdict.weight())),
        (_, Some(grows @ (Outlook::Leak | Outlook::Suspect))) => (grows.word(), theme.weight(grows.weight())),
        (Some(verdict), _) if columns.verdict => (verdict.word(), verdict_style(theme, verdict, plain)),
        _ => ("", plain),
    };
    if columns.verdict {
        pen.cell(said, VERDICT, Align::Left, style).skip(1);
    } else if !said.is_empty() {
        pen.put(said, style).skip(1);
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
    let room = pen.room();
    pen.cell(text, room, Align::Left, plain);
}

/// What it alone keeps, though the driver lists it for nobody that lives. What several keep together stands where
/// the driver has it: at a ghost, or as unclaimed.
fn kept(verdict: Option<&Verdict>) -> String {
    let kept = verdict.map(|it| it.kept.as_slice()).unwrap_or_default();
    let alone = || kept.iter().filter(|it| it.keepers == 1);
    match kept {
        [] => String::new(),
        _ if alone().next().is_none() => "shared".to_owned(),
        _ => short(alone().map(|it| it.memory).sum()),
    }
}

/// What it does, beside what it holds.
fn doings(pen: &mut Pen<'_>, theme: Theme, app: &App, columns: &Columns, shown: &Shown<'_>, plain: Style, held: Style) {
    let Shown { snapshot, process, holding, .. } = shown;
    pen.cell(holding.map_or_else(String::new, |it| word(it.sm)), Percent::WIDTH, Align::Right, held).skip(1);
    pen.cell(word(process.load.cpu), SHORT, Align::Right, plain).skip(1);
    pen.cell(word(process.load.rss.map(short)), SHORT, Align::Right, plain).skip(1);
    pen.cell(word(page::elapsed(snapshot, process).map(Elapsed)), Elapsed::WIDTH, Align::Right, plain).skip(1);
    if columns.threads {
        pen.cell(word(process.load.threads), 4, Align::Right, plain).skip(1);
    }
    let letter = process.load.state.map_or('?', State::letter);
    pen.cell(letter, 1, Align::Left, state(theme, process, plain)).skip(1);
    let series = app.model().series(&Subject::Process(process.id));
    let values = series.map(|it| it.columns(app.model().now(), recent(app), columns.spark)).unwrap_or_default();
    let values: Vec<Option<u64>> = values.iter().map(|it| it.map(|bytes| bytes.0)).collect();
    let curve = if process.facts.identity == Identity::Unverified { theme.dim() } else { theme.good() };
    pen.cell(sparkline(&values), columns.spark, Align::Left, curve).skip(1);
}

/// What one should look at stands out.
fn verdict_style(theme: Theme, verdict: &Verdict, plain: Style) -> Style {
    if verdict.is_suspect() { theme.weight(verdict.weight()) } else { plain.patch(theme.dim()) }
}

/// Memory that nobody accounts for: how much, and who has the GPU open.
fn draw_unclaimed(pen: &mut Pen<'_>, theme: Theme, app: &App, snapshot: &Snapshot, columns: &Columns, gpu: &GpuUuid) {
    let Some(unclaimed) = app.model().unclaimed().iter().find(|it| it.gpu == *gpu) else { return };
    let label = snapshot.gpu(gpu).map(rows::gpu_label).unwrap_or_default();
    pen.cell(label, columns.gpu, Align::Left, theme.text()).skip(1);
    pen.cell("-", PID, Align::Right, theme.dim()).skip(1);
    pen.cell("-", columns.user, Align::Left, theme.dim()).skip(1);
    pen.skip(columns.bar + 1).cell(short(unclaimed.memory), SHORT, Align::Right, theme.notable()).skip(1);
    pen.put("unclaimed", theme.notable()).skip(1);
    let comm = |id: &ProcessId| match snapshot.process(*id).map(|it| &it.facts.comm) {
        Some(Ok(comm)) => format!("{} {comm}", id.pid),
        _ => id.pid.to_string(),
    };
    let mut parts: Vec<String> = unclaimed.holders.iter().take(6).map(comm).collect();
    if parts.is_empty() {
        parts.push("nobody that gputop may look at".to_owned());
    }
    pen.put(format!("open in {}", parts.join(", ")), theme.text());
    if unclaimed.unreadable > 0 {
        pen.put(format!("; {} processes could not be looked at (run as root)", unclaimed.unreadable), theme.dim());
    }
}

/// The head of a group: whose, how many, how much.
fn draw_group(pen: &mut Pen<'_>, theme: Theme, app: &App, group: &rows::Group) {
    let holdings = group.members.iter().filter_map(|id| app.model().holding(*id));
    let total = Total::sum(holdings.map(|it| it.memory));
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

fn memory(pen: &mut Pen<'_>, theme: Theme, columns: &Columns, shown: &Shown<'_>, style: Style, dim: bool) {
    let Some(holding) = shown.holding else { return };
    let share = holding.memory.ok().zip(holding.capacity.ok()).and_then(|(it, all)| it.bytes.share_of(all.bytes));
    let full = if dim { theme.dim() } else { theme.full(share) };
    let breakdown = Breakdown::of_process(shown.snapshot, holding);
    match (&breakdown, holding.capacity) {
        (Some(breakdown), Ok(all)) => pen.breakdown(theme, breakdown, all.bytes, columns.bar, full),
        _ => pen.gauge(theme, share, columns.bar, full),
    };
    let (mark, figure) = match holding.memory {
        Ok(total) => (if total.lower_bound { "≥" } else { " " }, short(total.bytes)),
        Err(why) => (" ", why.to_string()),
    };
    pen.put(mark, style).cell(figure, SHORT, Align::Right, style).skip(1);
    if columns.cache {
        let cache = rows::cache(shown.snapshot, shown.process);
        let figure = match cache {
            Some(Err(Missing::Unsupported)) | None => String::new(),
            Some(cache) => word(cache.map(short)),
        };
        pen.cell(figure, SHORT, Align::Right, style).skip(1);
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
