//! Draws the GPUs as tiles: memory, use, the memory of the last minutes, and who is on the GPU.
//!
//! ```text
//! ╭─ 0 H100 ──────── full in 14m 64°C 512W ─╮
//! │ MEM ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇──────── 61.2/79.6G │
//! │ SM  ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇──         97% │
//! │     ▁▁▂▂▃▃▃▄▄▄▅▅▅▆▆▆▇▇▇█████   +9.2G/15m │
//! │ alice 34G train.py · bob 21G serve.py   │
//! ╰─────────────────────────────────────────╯
//! ```

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Widget, Wrap};
use unicode_width::UnicodeWidthStr;

use super::{is_read, shared_memory_words};
use crate::app::layout::{Area, TileGrid};
use crate::app::lists::columns::Align;
use crate::app::lists::gpu_columns::{GpuColumn, MEMORY_WIDTH};
use crate::app::lists::gpu_list::{GpuRow, gpu_rows};
use crate::app::lists::{gpu_cells, gpu_users};
use crate::app::{App, List};
use crate::base::units::{Bytes, Elapsed};
use crate::model::{Breakdown, GpuOrProcess, HostModel, Severity, TroubleRank};
use crate::output::labels::{self, gpu_label, short_amount, word};
use crate::protocol::snapshot::{Gpu, Trouble};
use crate::view::pen::Pen;
use crate::view::theme::{Fill, Theme};
use crate::view::{frame, rect};

/// The width of the names of the bars.
const LABEL: u16 = 4;

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, grid: TileGrid) {
    for (place, row) in gpu_rows(app.fleet()).enumerate() {
        let area = grid.tile(place);
        let is_selected = app.focus == List::Gpus && place == app.gpus.cursor;
        let edge = edge(theme, row, is_selected);
        frame::draw_in(buffer, area, edge);
        head(buffer, theme, app, row, area, is_selected);
        let inside = area.inner();
        match row.gpu.trouble.as_ref().filter(|_| !is_read(row)) {
            Some(trouble) => {
                if let Some(mut pen) = Pen::at(buffer, inside, 0) {
                    memory(&mut pen, theme, app, row);
                }
                let text = if has_room_for(trouble, area) {
                    trouble.sentence.to_string()
                } else {
                    let phrase = row.model.health(row.gpu).phrase;
                    let call = trouble.call.as_ref().filter(|_| trouble.is_silence());
                    call.map_or_else(|| phrase.clone(), |call| format!("{phrase} {call}"))
                };
                let below = Area {
                    y: inside.y + 1,
                    height: inside.height.saturating_sub(1),
                    ..inside
                };
                let line = Line::styled(text, theme.alarm());
                Paragraph::new(line)
                    .wrap(Wrap { trim: true })
                    .render(rect(below), buffer);
            }
            None => figures(buffer, theme, app, row, inside),
        }
    }
}

/// The style of a tile's frame. The frame of a GPU in trouble is red, the loudest on the screen.
fn edge(theme: Theme, GpuRow { model, gpu, .. }: GpuRow<'_>, is_selected: bool) -> Style {
    let is_in_trouble = model
        .rank_of(gpu)
        .is_some_and(|rank| rank != TroubleRank::Slowdown)
        || gpu_users::growing(model, gpu)
            .is_some_and(|growing| growing.is_urgent() || growing.is_leak());
    match () {
        () if is_in_trouble => theme.alarm_line(),
        () if is_selected => theme.accent(),
        () => theme.dim(),
    }
}

/// Whether the sentence about a GPU in trouble fits into its tile. A seventh of each line counts as
/// lost to word wrap.
pub(super) fn has_room_for(trouble: &Trouble, tile: Area) -> bool {
    let inside = tile.inner();
    trouble.sentence.as_str().len()
        <= usize::from(inside.width) * 6 / 7 * usize::from(inside.height - 1)
}

/// Draws on the upper edge what the GPU is, what is wrong with it, its temperature and its power.
fn head(
    buffer: &mut Buffer,
    theme: Theme,
    app: &App,
    row: GpuRow<'_>,
    area: Area,
    is_selected: bool,
) {
    let GpuRow { gpu, .. } = row;
    let name = gpu
        .facts
        .name
        .as_ref()
        .map_or("", |name| gpu_cells::short_name(name.as_str()));
    let host = if app.fleet().has_many() {
        format!("{}:", app.fleet().name(row.host))
    } else {
        String::new()
    };
    let label = format!("{host}{}", gpu_label(gpu));
    let heat = cell(app, row, GpuColumn::Temperature);
    let mut right = notes(theme, app, row);
    // Beside the trouble of a GPU that does not answer, missing figures say nothing.
    if is_read(row) {
        right.push((heat.text, theme.tone(heat.tone, theme.text(), theme.text())));
        right.push((word(gpu.load.power), theme.text()));
    }
    // Each text has a blank before it, and the last one a blank after it.
    let width = |texts: &[(String, Style)]| {
        texts
            .iter()
            .map(|(text, _)| text.width() + 1)
            .sum::<usize>()
            + 1
    };
    let room = usize::from(area.width).saturating_sub(4);
    // Power, then the temperature, gives way to what is wrong.
    while right.len() > 1 && label.width() + 3 + width(&right) > room {
        right.pop();
    }
    // The last words of the model's name give way to all of them.
    let title = format!("{label} {name}");
    let mut short = title.as_str();
    while short.width() + 3 + width(&right) > room
        && let Some((words, _)) = short.rsplit_once(' ')
    {
        short = words;
    }
    if let Some(mut pen) = frame::title(buffer, theme, area, short) {
        pen.tab_from_end(width(&right));
        for (text, style) in right {
            pen.put(" ", theme.text()).put(text, style);
        }
        pen.put(" ", theme.text());
    }
    if is_selected {
        theme.select(
            buffer,
            Rect {
                height: 1,
                ..rect(area)
            },
        );
    }
}

/// The words for what is wrong with a GPU, the most urgent first.
fn notes(theme: Theme, app: &App, row: GpuRow<'_>) -> Vec<(String, Style)> {
    let GpuRow { model, gpu, .. } = row;
    let mut notes = Vec::new();
    if let Some(note) = gpu_users::growing(model, gpu).map(gpu_users::growth_note) {
        notes.push((note.text, theme.note(note.tone)));
    }
    let health = model.health(gpu);
    match model.age(gpu) {
        // The phrase has the time since when the GPU does not answer.
        _ if model.rank_of(gpu) == Some(TroubleRank::Lost) => {
            notes.push((health.phrase, theme.alarm_line()));
        }
        Some(age) => notes.push((format!("{} old", Elapsed(age)), theme.notable())),
        None if health.severity > Severity::Fine => {
            notes.push((health.word, theme.severity(health.severity)));
        }
        None => {}
    }
    if app.alerts.is_watched(&row.id().into()) {
        notes.push(("watched".to_owned(), theme.accent()));
    }
    notes
}

fn cell(
    app: &App,
    GpuRow { host, model, gpu }: GpuRow<'_>,
    column: GpuColumn,
) -> crate::app::lists::columns::Cell {
    gpu_cells::cell(column, app.fleet().name(host), model, gpu)
}

fn figures(buffer: &mut Buffer, theme: Theme, app: &App, row: GpuRow<'_>, area: Area) {
    if let Some(mut pen) = Pen::at(buffer, area, 0) {
        memory(&mut pen, theme, app, row);
    }
    if let Some(mut pen) = Pen::at(buffer, area, 1) {
        let style = if is_read(row) {
            theme.text()
        } else {
            theme.dim()
        };
        let bar = pen
            .room()
            .saturating_sub(usize::from(LABEL) + MEMORY_WIDTH + 1);
        pen.cell("SM", LABEL.into(), Align::Left, theme.dim());
        let share = row
            .gpu
            .load
            .sm
            .ok()
            .map(|percent| f64::from(percent.value()) / 100.0);
        pen.gauge(theme, share, bar, Fill::Busy, style);
        pen.skip(1).cell(
            cell(app, row, GpuColumn::Sm).text,
            MEMORY_WIDTH,
            Align::Right,
            style,
        );
    }
    let above = Area {
        y: area.y + 2,
        height: area.height.saturating_sub(3),
        ..area
    };
    history(buffer, theme, row, above);
    if let Some(mut pen) = Pen::at(buffer, area, area.height - 1) {
        users(&mut pen, theme, row);
    }
}

fn memory(pen: &mut Pen<'_>, theme: Theme, app: &App, row: GpuRow<'_>) {
    let GpuRow { model, gpu, .. } = row;
    let load = &gpu.load;
    let style = if is_read(row) {
        theme.text()
    } else {
        theme.dim()
    };
    let bar = pen
        .room()
        .saturating_sub(usize::from(LABEL) + MEMORY_WIDTH + 1);
    let share = load
        .memory_used
        .ok()
        .zip(load.memory_total.ok())
        .and_then(|(used, total)| used.share_of(total));
    pen.cell("MEM", LABEL.into(), Align::Left, theme.dim());
    let latest = model.latest().filter(|_| is_read(row));
    let parts =
        latest.and_then(|snapshot| Breakdown::of_used(snapshot, gpu, model.unaccounted()).ok());
    match parts.zip(load.memory_total.ok()) {
        _ if gpu.shared_memory.is_some() => {
            pen.cell(shared_memory_words(bar), bar, Align::Left, theme.dim())
        }
        Some((parts, total)) => pen.breakdown(theme, &parts, total, bar, style),
        None => pen.gauge(theme, share, bar, Fill::Allocated, style),
    };
    let figure = if is_read(row) {
        theme.memory_style(share, style)
    } else {
        style
    };
    pen.skip(1).cell(
        cell(app, row, GpuColumn::Memory).text,
        MEMORY_WIDTH,
        Align::Right,
        figure,
    );
}

/// Draws the memory of the last minutes, the name of that period, and the change of memory in it.
fn history(buffer: &mut Buffer, theme: Theme, GpuRow { model, gpu, .. }: GpuRow<'_>, area: Area) {
    let subject = GpuOrProcess::Gpu(gpu.uuid.clone());
    let (Some(series), Ok(total)) = (model.series(&subject), gpu.load.memory_total) else {
        return;
    };
    let curve = Area {
        x: area.x + LABEL,
        width: area
            .width
            .saturating_sub(LABEL + u16::try_from(MEMORY_WIDTH).unwrap_or(0) + 1),
        ..area
    };
    let period = labels::recent(model);
    let columns = series.columns(model.now(), period, curve.width.into());
    let fill = if unaccounted(model, gpu).is_some() {
        Fill::Other
    } else {
        Fill::Allocated
    };
    for line in 0..area.height {
        let Some(mut pen) = Pen::at(buffer, curve, line) else {
            return;
        };
        let row = u64::from(area.height - 1 - line);
        let glyph = |held: Bytes| {
            // From no memory at the bottom to all memory at the top: a constant amount does not
            // look like none. In eighths of a cell, of which a memory in use has at least one. The
            // highest one leaves a gap to the bar above.
            let most = u64::from(area.height) * 8 - 1;
            let eighths = held.0.saturating_mul(most).saturating_add(total.0 / 2) / total.0.max(1);
            let eighths = eighths.max(u64::from(held.0 > 0));
            usize::try_from(eighths.saturating_sub(row * 8)).map_or(8, |eighths| eighths.min(8))
        };
        let blocks: String = columns
            .iter()
            .map(|held| held.map_or(' ', |held| EIGHTHS[glyph(held)]))
            .collect();
        pen.put(
            blocks,
            theme.fill(fill, f64::from(area.height - line) / f64::from(area.height)),
        );
    }
    let label = format!("last {}", labels::period(period));
    // While memory grows, its rate says more than its change.
    let rate =
        gpu_users::growing(model, gpu).map(|growing| labels::growth::rate(growing.evidence.rate));
    let change = || labels::change_of_memory(model, &subject).filter(|change| *change != 0);
    let change =
        || change().map(|change| format!("{}/{}", labels::signed(change), labels::period(period)));
    let change = rate.or_else(change);
    let texts = match change {
        Some(change) if area.height == 1 => vec![(change, theme.text())],
        change => vec![
            (label, theme.dim()),
            (change.unwrap_or_default(), theme.text()),
        ],
    };
    let above = area
        .height
        .saturating_sub(u16::try_from(texts.len()).unwrap_or(0));
    for (line, (text, style)) in (above..).zip(texts) {
        let Some(mut pen) = Pen::at(buffer, area, line) else {
            return;
        };
        pen.tab_from_end(MEMORY_WIDTH)
            .cell(text, MEMORY_WIDTH, Align::Right, style);
    }
}

/// Blocks by their height in eighths of a cell.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The unaccounted memory of a GPU without processes; `None` if there is none, or some process uses
/// the GPU.
fn unaccounted(model: &HostModel, gpu: &Gpu) -> Option<Bytes> {
    let here = model
        .unaccounted()
        .iter()
        .find(|unaccounted| unaccounted.gpu == gpu.uuid);
    here.filter(|_| gpu.processes.is_empty())
        .map(|unaccounted| unaccounted.memory)
}

/// Draws who is on the GPU, the largest first, and how many have no room.
fn users(pen: &mut Pen<'_>, theme: Theme, row: GpuRow<'_>) {
    let users = gpu_users::occupants(row.model, row.gpu);
    if users.is_empty() {
        let GpuRow { model, gpu, .. } = row;
        _ = match unaccounted(model, gpu) {
            Some(memory) => pen.rest(
                format!("{} unaccounted", short_amount(memory)),
                theme.edge(Fill::Other),
            ),
            None if gpu.missing.processes.is_some()
                || gpu.trouble.is_some()
                || !gpu.failures.is_empty() =>
            {
                pen.rest("processes not known", theme.dim())
            }
            None if gpu_users::is_busy_without_process(gpu) => {
                pen.rest("busy, no process seen", theme.notable())
            }
            None => pen.put("no process", theme.dim()),
        };
        return;
    }
    for (place, user) in users.iter().enumerate() {
        let separator = if place > 0 { " · " } else { "" };
        let amount = user.amount();
        let words = [user.name.as_str(), amount.as_str(), user.program.as_str()];
        let width: usize = words.iter().map(|word| word.width() + 1).sum::<usize>() - 1;
        let more = format!(" +{}", users.len() - place);
        let after = if place + 1 < users.len() {
            more.len()
        } else {
            0
        };
        if place > 0 && separator.width() + width + after > pen.room() {
            pen.put(more, theme.dim());
            return;
        }
        pen.put(separator, theme.dim())
            .put(words[0], theme.dim())
            .skip(1)
            .put(words[1], theme.text())
            .skip(1);
        // The number of the others is not cut.
        let others = if after > 0 {
            format!(" +{}", users.len() - place - 1).len()
        } else {
            0
        };
        let room = pen.room().saturating_sub(others);
        pen.cell(
            words[2],
            words[2].width().min(room),
            Align::Left,
            theme.text(),
        );
    }
}
