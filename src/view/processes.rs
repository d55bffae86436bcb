//! Draws the process list, one line for each row. A wider screen has more columns and longer bars.

mod header;
mod unaccounted;

use ratatui::buffer::Buffer;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Widget, Wrap};

use super::pen::Pen;
use super::theme::Theme;
use super::{fitting, rect};
use crate::app::columns::{Align, ListColumn};
use crate::app::gpu_list::gpu_rows;
use crate::app::layout::Area;
use crate::app::process_cells::{self, ProcessLine};
use crate::app::process_columns::{BYTES_WIDTH, ProcessColumn, WIDE, WIDEST};
use crate::app::{App, List, rows, unread_stats};
use crate::model::{Breakdown, Total};
use crate::protocol::snapshot::Identity;

struct ColumnWidths {
    shown: Vec<ProcessColumn>,
    gpu: usize,
    user: usize,
    memory_bar: usize,
    history: usize,
}

/// The narrowest screen with bars beside the amounts of memory.
const SCREEN_WITH_BARS: usize = 44;

impl ColumnWidths {
    fn new(app: &App, width: usize) -> Self {
        let (gpu, user, memory_bar, history) = match width {
            width if width >= usize::from(WIDEST) => (9, 12, 16, 20),
            width if width >= usize::from(WIDE) => (5, 9, 6, 8),
            width if width >= SCREEN_WITH_BARS => (3, 8, 4, 5),
            // The narrowest screens have no bars, but keep the amounts.
            _ => (3, 8, 0, 5),
        };
        // The list of suspects needs the room for the reasons.
        let memory_bar = if app.processes.view.suspects { 0 } else { memory_bar };
        let columns = Self { shown: Vec::new(), gpu, user, memory_bar, history };
        Self {
            shown: fitting(app.processes.columns(app.size.0, app.fleet()), width, |column| columns.width(column)),
            ..columns
        }
    }

    /// The width of a column. For the last column, the least useful width.
    fn width(&self, column: ProcessColumn) -> usize {
        match column {
            ProcessColumn::Gpu => self.gpu,
            ProcessColumn::User => self.user,
            ProcessColumn::Memory => self.memory_bar + column.spec().width,
            ProcessColumn::History => self.history,
            _ => column.spec().width,
        }
    }
}

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    // Without a GPU the process list would stay empty, and the GPU list says why there is none.
    if gpu_rows(app.fleet()).next().is_none() && app.processes.rows.is_empty() {
        return;
    }
    let columns = ColumnWidths::new(app, usize::from(area.width));
    let (cursor, top) = (app.processes.cursor, app.processes.top);
    let below = app.processes.rows.len().saturating_sub(top + usize::from(area.height.saturating_sub(1)));
    if let Some(mut pen) = Pen::at(buffer, area, 0) {
        header::draw(&mut pen, theme, app, &columns, below);
    }
    for (line, (at, row)) in (1..area.height).zip(app.processes.rows.iter().enumerate().skip(top)) {
        let Some(mut pen) = Pen::at(buffer, area, line) else { return };
        match &row.subject {
            rows::RowSubject::Process(id) => {
                let Some((model, process)) = app.fleet().process(*id) else { continue };
                let Some(snapshot) = model.latest() else { continue };
                let mark = match () {
                    () if app.processes.tagged.contains(id) => "*",
                    () if app.alerts.is_watched(&(*id).into()) => "w",
                    () => "",
                };
                let process_line = ProcessLine {
                    mark,
                    is_kept: row.is_kept,
                    only_suspects: app.processes.view.suspects,
                    history_width: columns.history,
                    ..ProcessLine::new(app.fleet().name(id.host), model, snapshot, process)
                };
                draw_process(&mut pen, theme, app.processes.command_offset, &columns, &process_line, row.depth);
            }
            rows::RowSubject::Unaccounted(gpu) => unaccounted::draw(&mut pen, theme, app, &columns, gpu),
            rows::RowSubject::Group(group) => draw_group(&mut pen, theme, app, group),
            rows::RowSubject::Heading(text) => _ = pen.put(text, theme.dim()),
        }
        if app.focus == List::Processes && at == cursor {
            pen.restyle(area, theme.cursor());
        }
    }
    let used = u16::try_from(app.processes.rows.len().saturating_sub(top)).unwrap_or(u16::MAX).saturating_add(2);
    let below = Area { y: area.y + used, height: area.height.saturating_sub(used), ..area };
    let mut reasons = unread_stats::sentences(app.fleet());
    if let Some(mut pen) = app.layout().and_then(|layout| Pen::at(buffer, layout.unreadable, 0)) {
        pen.rest(unread_stats::short_note(app.fleet()), theme.dim());
        reasons.clear();
    }
    draw_notes(buffer, theme, app, reasons, below);
    if app.processes.rows.is_empty()
        && let Some(mut pen) = Pen::at(buffer, area, 1)
    {
        pen.put(why_empty(app), theme.dim());
    }
}

fn why_empty(app: &App) -> &'static str {
    match () {
        () if !app.processes.filter.value().is_empty() => "no process matches the filter (Esc clears it)",
        () if app.processes.view.mine && rows::is_only_others(app.fleet()) => {
            "no process of yours uses a GPU (u shows those of others)"
        }
        () if app.processes.view.suspects => "no process holds memory that it should not (o shows all)",
        () if gpu_rows(app.fleet()).any(|row| row.gpu.trouble.is_some() || !row.gpu.failures.is_empty()) => {
            "no process is listed; the processes of a GPU that fails are not known"
        }
        () => "no process uses a GPU",
    }
}

/// Draws below the list, where there is room, what is wrong with GPUs and why PyTorch's figures are not known.
fn draw_notes(buffer: &mut Buffer, theme: Theme, app: &App, reasons: Vec<String>, area: Area) {
    let troubles = super::gpus::troubles(app, area.width.into()).into_iter();
    let troubles = troubles.map(|sentence| Line::styled(sentence, theme.alarm()));
    let reasons = reasons.into_iter().map(|sentence| Line::styled(sentence, theme.dim()));
    let area = rect(area).intersection(*buffer.area());
    Paragraph::new(troubles.chain(reasons).collect::<Vec<_>>()).wrap(Wrap { trim: true }).render(area, buffer);
}

/// Draws the whole evidence against the process under the cursor, below the list of suspects.
pub(super) fn draw_evidence(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let Some(process) = app.processes.selected_process() else { return };
    let Some(verdict) = app.fleet().host(process.host).and_then(|model| model.verdict(process.process)) else { return };
    let text = format!("{}: {}", verdict.process.pid, verdict.sentence());
    Paragraph::new(text).style(theme.notable()).wrap(Wrap { trim: true }).render(rect(area), buffer);
}

/// The chosen columns that a screen of this width has no room for.
pub(super) fn crowded_out(app: &App, width: usize) -> Vec<ProcessColumn> {
    let shown = ColumnWidths::new(app, width).shown;
    app.processes.columns(app.size.0, app.fleet()).into_iter().filter(|column| !shown.contains(column)).collect()
}

fn draw_process(
    pen: &mut Pen<'_>,
    theme: Theme,
    command_at: usize,
    columns: &ColumnWidths,
    line: &ProcessLine<'_>,
    depth: usize,
) {
    let gpus = line.process_total.map(|total| total.gpus.as_slice()).unwrap_or_default();
    let is_old = gpus.iter().any(|at| line.model.age(&line.snapshot.gpus[*at]).is_some());
    let is_verified = line.process.facts.identity != Identity::Unverified;
    // Related processes without a GPU only complete the picture.
    let plain = if is_verified && line.process_total.is_some() { theme.text() } else { theme.dim() };
    let reading = if is_old { theme.dim() } else { plain };
    for column in &columns.shown {
        match column {
            ProcessColumn::Memory => draw_memory(pen, theme, columns, line, reading, is_old || !is_verified),
            ProcessColumn::Command => draw_command(pen, theme, command_at, columns, line, plain, depth),
            _ => {
                let cell = process_cells::cell(*column, line);
                let style = match column {
                    ProcessColumn::History if !is_verified => theme.dim(),
                    _ => theme.tone(cell.tone, plain, reading),
                };
                pen.cell(cell.text, columns.width(*column), column.spec().align, style).skip(1);
            }
        }
    }
}

/// Draws the command, or the reason in the list of suspects, in the last cell of a line.
fn draw_command(
    pen: &mut Pen<'_>,
    theme: Theme,
    command_at: usize,
    columns: &ColumnWidths,
    line: &ProcessLine<'_>,
    plain: Style,
    depth: usize,
) {
    if !columns.shown.contains(&ProcessColumn::Verdict) {
        let verdict = process_cells::verdict(line.model, line.process.id, false);
        if !verdict.text.is_empty() {
            pen.put(verdict.text, theme.tone(verdict.tone, plain, plain)).skip(1);
        }
    }
    if depth > 0 {
        pen.put("  ".repeat(depth - 1), theme.dim()).put("└ ", theme.dim());
    }
    let text: String = process_cells::cell(ProcessColumn::Command, line).text.chars().skip(command_at).collect();
    let room = pen.room();
    pen.cell(text, room, Align::Left, plain);
}

fn draw_group(pen: &mut Pen<'_>, theme: Theme, app: &App, group: &rows::ProcessGroup) {
    let model = app.fleet().host(group.host);
    let process_totals = group.members.iter().filter_map(|process| model?.process_total(*process));
    let total = match Total::sum(process_totals.map(|total| total.memory)) {
        Ok(Total { bytes, lower_bound }) => format!("{}{bytes}", if lower_bound { "≥ " } else { "" }),
        Err(why) => why.to_string(),
    };
    let count = group.members.len();
    let noun = if count == 1 { "process" } else { "processes" };
    if app.fleet().has_many() {
        pen.put(app.fleet().name(group.host), theme.dim()).skip(1);
    }
    pen.put(&group.name, theme.accent()).skip(1).put(format!("{count} {noun}, {total}"), theme.text());
}

fn draw_memory(
    pen: &mut Pen<'_>,
    theme: Theme,
    columns: &ColumnWidths,
    line: &ProcessLine<'_>,
    reading: Style,
    is_dim: bool,
) {
    let text = process_cells::cell(ProcessColumn::Memory, line).text;
    let figure_width = BYTES_WIDTH + 1;
    let Some(total) = line.process_total.filter(|_| !line.is_kept) else {
        pen.skip(columns.memory_bar).cell(text, figure_width, Align::Right, reading).skip(1);
        return;
    };
    let share = total.memory.ok().zip(total.capacity.ok());
    let share = share.and_then(|(memory, capacity)| memory.bytes.share_of(capacity.bytes));
    let full = if is_dim { theme.dim() } else { theme.full(share) };
    match (Breakdown::of_process(line.snapshot, total), total.capacity) {
        (Some(breakdown), Ok(capacity)) => {
            pen.breakdown(theme, &breakdown, capacity.bytes, columns.memory_bar, full);
        }
        _ => _ = pen.gauge(theme, share, columns.memory_bar, full),
    }
    pen.cell(text, figure_width, Align::Right, reading).skip(1);
}
