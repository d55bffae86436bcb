//! Draws the process list, one line for each row. A wider screen has more columns and longer bars.

mod header;
mod unaccounted;

use ratatui::buffer::Buffer;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Widget, Wrap};

use super::mirror::{self, Samples};
use super::pen::{self, Pen};
use super::rect;
use super::theme::{Fill, Theme};
use crate::app::layout::Area;
use crate::app::lists::columns::{Align, ListColumn, Tone};
use crate::app::lists::gpu_list::gpu_rows;
use crate::app::lists::process_cells;
use crate::app::lists::process_cells::ProcessLine;
use crate::app::lists::process_columns::ProcessColumn;
use crate::app::lists::process_widths::{MEMORY, ProcessWidths};
use crate::app::lists::{rows, unread_stats};
use crate::app::{App, List};
use crate::base::units::Bytes;
use crate::model::UserHue;
use crate::model::{
    Breakdown, GpuOrProcess, HostGpu, HostProcess, ProcessTotal, Severity, Total, UnaccountedMemory,
};
use crate::output::labels::server::served;
use crate::output::labels::{gpu_labels, word};
use crate::protocol::host_key::HostKey;
use crate::protocol::snapshot::{Identity, ProcessId, Snapshot};

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    // Without a GPU the process list would stay empty, and the GPU list says why there is none.
    if gpu_rows(app.fleet()).next().is_none() && app.processes.rows.is_empty() {
        return;
    }
    let columns = ProcessWidths::new(app, usize::from(area.width));
    let painter = RowPainter {
        theme,
        app,
        columns: &columns,
    };
    let (cursor, top) = (app.processes.cursor, app.processes.top);
    let below = app
        .processes
        .rows
        .len()
        .saturating_sub(top + usize::from(area.height.saturating_sub(1)));
    if let Some(mut pen) = Pen::at(buffer, area, 0) {
        header::draw(&mut pen, theme, app, &columns, below);
    }
    for (line, (place, row)) in
        (1..area.height).zip(app.processes.rows.iter().enumerate().skip(top))
    {
        let Some(mut pen) = Pen::at(buffer, area, line) else {
            return;
        };
        match &row.subject {
            rows::RowSubject::Process(id) => {
                let Some((model, process)) = app.fleet().process(*id) else {
                    continue;
                };
                let Some(snapshot) = model.latest() else {
                    continue;
                };
                let on_gpu = row
                    .gpu
                    .as_ref()
                    .and_then(|gpu| on_gpu(snapshot, gpu, id.process));
                let whole = ProcessLine::new(app.fleet().name(id.host), model, snapshot, process);
                let process_line = ProcessLine {
                    process_total: on_gpu.as_ref().or(whole.process_total),
                    is_kept: row.is_kept,
                    only_suspects: app.processes.view.only_suspects,
                    ..whole
                };
                painter.draw_process(&mut pen, *id, &process_line, row.depth);
            }
            rows::RowSubject::Unaccounted(gpu) => unaccounted::draw(&mut pen, &painter, gpu),
            rows::RowSubject::Group(group) => draw_group(&mut pen, theme, app, group),
            rows::RowSubject::Heading(text) => _ = pen.put(text, theme.dim()),
        }
        if app.focus == List::Processes && place == cursor {
            pen.select(theme, area.row());
        }
    }
    let used = u16::try_from(app.processes.rows.len().saturating_sub(top))
        .unwrap_or(u16::MAX)
        .saturating_add(2);
    let below = Area {
        y: area.y + used,
        height: area.height.saturating_sub(used),
        ..area
    };
    let mut reasons = unread_stats::sentences(app.fleet(), &app.processes.view);
    if let Some(mut pen) = app
        .layout()
        .and_then(|layout| Pen::at(buffer, layout.unread_note, 0))
    {
        pen.rest(
            unread_stats::short_note(app.fleet(), &app.processes.view),
            theme.dim(),
        );
        reasons.clear();
    }
    draw_notes(buffer, theme, app, reasons, below);
    if app.processes.rows.is_empty()
        && let Some(mut pen) = Pen::at(buffer, area, 1)
    {
        pen.rest(app.why_empty(), theme.dim());
    }
}

/// Draws below the list, where there is room, which hosts are silent, what is wrong with GPUs,
/// which processes are not known, and why PyTorch's figures are not known.
fn draw_notes(buffer: &mut Buffer, theme: Theme, app: &App, reasons: Vec<String>, area: Area) {
    let troubles = super::gpus::troubles(app, area.width.into()).into_iter();
    // With one host, the first line says so. A host without a line has a row below the GPUs.
    let has_line = |host: HostKey| {
        app.fleet()
            .host(host)
            .is_some_and(|model| model.latest().is_some())
    };
    let silent = app
        .troubles()
        .filter(|(host, _)| app.processes.view.shows(*host))
        .filter(|(host, _)| app.fleet().has_many() && has_line(*host));
    let silent = silent.filter_map(|(host, _)| app.silence_words(host));
    let troubles = silent
        .chain(troubles)
        .map(|sentence| Line::styled(sentence, theme.alarm()));
    let reasons = app.notes_on_unknown_processes().into_iter().chain(reasons);
    let reasons = reasons.map(|sentence| Line::styled(sentence, theme.dim()));
    let area = rect(area).intersection(*buffer.area());
    Paragraph::new(troubles.chain(reasons).collect::<Vec<_>>())
        .wrap(Wrap { trim: true })
        .render(area, buffer);
}

/// Draws the whole evidence against the process under the cursor, below the list of suspects.
pub(super) fn draw_evidence(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let Some(process) = app.processes.selected_process() else {
        return;
    };
    let Some(verdict) = app
        .fleet()
        .host(process.host)
        .and_then(|model| model.verdict(process.process))
    else {
        return;
    };
    let text = format!("{}: {}", verdict.process.pid, verdict.sentence());
    Paragraph::new(text)
        .style(theme.text())
        .wrap(Wrap { trim: true })
        .render(rect(area), buffer);
}

/// The chosen columns that a screen of this width has no room for.
pub(super) fn crowded_out(app: &App, width: usize) -> Vec<ProcessColumn> {
    let shown = ProcessWidths::new(app, width).shown;
    app.processes
        .columns(app.size.0, app.fleet())
        .into_iter()
        .filter(|column| !shown.contains(column))
        .collect()
}

/// The use of one GPU by a process; `None` when the driver does not list the process for it.
fn on_gpu(snapshot: &Snapshot, gpu: &HostGpu, process: ProcessId) -> Option<ProcessTotal> {
    let place = snapshot
        .gpus
        .iter()
        .position(|listed| listed.uuid == gpu.gpu)?;
    let listed = &snapshot.gpus[place];
    Some(ProcessTotal::on_gpu(
        listed.process(process)?,
        listed,
        place,
    ))
}

fn draw_group(pen: &mut Pen<'_>, theme: Theme, app: &App, group: &rows::ProcessGroup) {
    let model = app.fleet().host(group.host);
    let gpu = group.gpu();
    let memory = |process: &ProcessId| match &gpu {
        Some(gpu) => Some(on_gpu(model?.latest()?, gpu, *process)?.memory),
        None => Some(model?.process_total(*process)?.memory),
    };
    if let Some(gpu) = gpu.as_ref().filter(|_| group.members.is_empty()) {
        pen.put(&group.name, theme.accent()).skip(1);
        let last = app
            .last_user(gpu)
            .map_or_else(String::new, |last| format!("; last: {last}"));
        pen.rest(format!("no process{last}"), theme.dim());
        return;
    }
    let total = word(Total::sum(group.members.iter().filter_map(memory)));
    let count = group.members.len();
    let noun = if count == 1 { "process" } else { "processes" };
    if app.fleet().has_many() {
        pen.put(app.fleet().name(group.host), theme.dim()).skip(1);
    }
    pen.put(&group.name, theme.accent())
        .skip(1)
        .put(format!("{count} {noun}, {total}"), theme.text());
}

fn unaccounted<'a>(app: &'a App, gpu: &HostGpu) -> Option<&'a UnaccountedMemory> {
    app.fleet()
        .host(gpu.host)?
        .unaccounted()
        .iter()
        .find(|unaccounted| unaccounted.gpu == gpu.gpu)
}

/// Draws rows, with what they have in common.
struct RowPainter<'a> {
    theme: Theme,
    app: &'a App,
    columns: &'a ProcessWidths,
}

impl RowPainter<'_> {
    fn draw_process(
        &self,
        pen: &mut Pen<'_>,
        id: HostProcess,
        line: &ProcessLine<'_>,
        depth: usize,
    ) {
        let Self { theme, columns, .. } = *self;
        let gpus = line
            .process_total
            .map(|total| total.gpus.as_slice())
            .unwrap_or_default();
        let is_old = gpus
            .iter()
            .any(|gpu| line.model.age(&line.snapshot.gpus[*gpu]).is_some());
        let is_verified = line.process.facts.identity != Identity::Unverified;
        // Related processes without a GPU only complete the picture.
        let plain = if is_verified && line.process_total.is_some() {
            theme.text()
        } else {
            theme.dim()
        };
        let reading = if is_old { theme.dim() } else { plain };
        let user = line.process.facts.user.as_ref().ok();
        let hue = user.and_then(|user| line.model.user_hue(user));
        let uid = line.snapshot.host.facts.uid;
        let is_mine = uid != 0 && line.process.facts.uid == Ok(uid);
        pen.mark_edge(theme, hue, is_mine);
        for column in &columns.shown {
            match column {
                ProcessColumn::Memory => {
                    self.draw_memory(pen, line, reading, is_old || !is_verified);
                }
                ProcessColumn::Command => self.draw_command(pen, id, line, plain, depth),
                ProcessColumn::History | ProcessColumn::UseHistory => {
                    if let Some(samples) = self.samples(*column, line, hue) {
                        pen.area(columns.width(*column), |buffer, area| {
                            mirror::draw_up(buffer, theme, area, &samples);
                        })
                        .skip(1);
                    } else {
                        pen.skip(columns.width(*column) + 1);
                    }
                }
                ProcessColumn::Verdict => {
                    let verdict = process_cells::verdict(line.model, line.process.id, false);
                    let style = theme.tone(verdict.tone, plain, plain);
                    let width = columns.width(*column);
                    pen.cell(verdict.text, width, Align::Left, style).skip(1);
                }
                _ => {
                    let mut cell = process_cells::cell(*column, line);
                    // A line about one GPU names the others too.
                    if let (ProcessColumn::Gpu, Some(whole)) =
                        (column, line.model.process_total(line.process.id))
                    {
                        cell.text = gpu_labels(line.snapshot, &whole.gpus);
                    }
                    let style = match column {
                        ProcessColumn::User if is_verified => theme.user(hue),
                        _ => theme.tone(cell.tone, plain, reading),
                    };
                    pen.cell(
                        cell.text,
                        columns.width(*column),
                        column.spec().align,
                        style,
                    )
                    .skip(1);
                }
            }
        }
    }

    /// Returns the little graph of a column; `None` where nothing is known.
    fn samples(
        &self,
        column: ProcessColumn,
        line: &ProcessLine<'_>,
        hue: Option<UserHue>,
    ) -> Option<Samples> {
        let (model, cells) = (line.model, self.columns.graph);
        if column == ProcessColumn::UseHistory {
            let history = model.history().process(line.process.id)?;
            return Some(Samples::of_use(&history.sm, model.now(), cells));
        }
        let series = model.series(&GpuOrProcess::Process(line.process.id))?;
        let all = capacity(line.snapshot, model.process_total(line.process.id)?)?;
        let fill = Fill::User(hue);
        Some(Samples::of_memory(series, model.now(), all, fill, cells))
    }

    /// Draws the command, or the reason in the list of suspects, in the last cell of a line.
    fn draw_command(
        &self,
        pen: &mut Pen<'_>,
        id: HostProcess,
        line: &ProcessLine<'_>,
        plain: Style,
        depth: usize,
    ) {
        let Self {
            theme,
            app,
            columns,
            ..
        } = *self;
        if app.processes.tagged.contains(&id) {
            pen.put("tagged", theme.badge()).skip(1);
        }
        if app.alerts.is_watched(&id.into()) {
            pen.put("watched", theme.notable()).skip(1);
        }
        if !columns.shown.contains(&ProcessColumn::Verdict) {
            let verdict = process_cells::verdict(line.model, line.process.id, false);
            if !verdict.text.is_empty() {
                let text = match verdict.tone {
                    Tone::Alarm | Tone::Severity(Severity::Bad | Severity::Notable) => {
                        format!(" {} ", verdict.text)
                    }
                    _ => verdict.text,
                };
                pen.put(text, theme.tone(verdict.tone, plain, plain))
                    .skip(1);
            }
        }
        if let Some(growth) = process_cells::growth(line.model, line.process.id, pen.room()) {
            let style = match growth.tone {
                Tone::Dim => theme.dim(),
                // The badge before it says how bad it is.
                _ => theme.notable(),
            };
            pen.put(growth.text, style).skip(2);
        }
        if depth > 0 {
            pen.put("  ".repeat(depth - 1), theme.dim())
                .put("└ ", theme.dim());
        }
        let served = line.process.facts.argv.as_ref().ok().and_then(served);
        if let Some(served) = served.filter(|_| !line.only_suspects) {
            pen.put(served, theme.accent()).skip(2);
        }
        let text = process_cells::cell(ProcessColumn::Command, line).text;
        let text: String = text.chars().skip(app.processes.command_offset).collect();
        pen.rest(text, plain);
    }

    fn draw_memory(&self, pen: &mut Pen<'_>, line: &ProcessLine<'_>, reading: Style, is_dim: bool) {
        let Self { theme, columns, .. } = *self;
        pen.cell(
            process_cells::cell(ProcessColumn::Memory, line).text,
            MEMORY,
            Align::Right,
            reading,
        )
        .skip(1);
        if columns.memory_bar == 0 {
            return;
        }
        let total = line.process_total.filter(|_| !line.is_kept);
        let capacity = total.and_then(|total| capacity(line.snapshot, total));
        let (Some(total), Some(capacity)) = (total, capacity) else {
            pen.skip(columns.memory_bar + 1);
            return;
        };
        let amount = total.memory.map_or(Bytes(0), |memory| memory.bytes);
        let parts = match Breakdown::of_process(line.snapshot, total) {
            Some(breakdown) => pen::parts(&breakdown),
            None => [
                (amount, Fill::Allocated),
                (Bytes(0), Fill::Unallocated),
                (Bytes(0), Fill::Other),
            ],
        };
        let tint = if is_dim { theme.dim() } else { theme.text() };
        pen.amounts(theme, parts, capacity, columns.memory_bar, tint)
            .skip(1);
    }
}

/// All memory of the GPUs of a process: that of a full bar. `None` if the total of one is not
/// known.
fn capacity(snapshot: &Snapshot, process_total: &ProcessTotal) -> Option<Bytes> {
    process_total
        .gpus
        .iter()
        .map(|gpu| snapshot.gpus[*gpu].load.memory_total.ok())
        .sum()
}
