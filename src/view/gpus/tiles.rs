//! Draws each GPU as a tile: its use upwards and its memory downwards over the last 15 minutes, the
//! latest figures beside them, and who is on the GPU below.
//!
//! ```text
//! ╭─ 0 alice ────────────── 64°C 594W ─╮
//! │ ⣿⣿⣿⣷⣿⣿⣿⣿⡇⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿  92% SM │
//! │ ⣿⣿⣿⣿⣿⣿⣿⣿⡇⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿        │
//! │ ⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿  61.6G │
//! │ ⠛⠛⠛⠛⠛⠿⠿⠿⠿⠿⠿⠿⠿⠿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿ /79.6G │
//! │  full 13:41  train.py              │
//! ╰────────────────────────────────────╯
//! ```

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Widget, Wrap};
use unicode_width::UnicodeWidthStr;

use super::{is_read, occupants, shared_memory_words};
use crate::app::layout::{Area, GpuView, TileGrid};
use crate::app::lists::columns::{Align, Cell};
use crate::app::lists::gpu_columns::GpuColumn;
use crate::app::lists::gpu_list::GpuRow;
use crate::app::lists::gpu_notes;
use crate::app::lists::{gpu_cells, gpu_users};
use crate::app::{App, List};
use crate::model::Severity;
use crate::output::labels::{gpu_label, short_amount, word};
use crate::protocol::snapshot::Trouble;
use crate::view::mirror::{self, Samples};
use crate::view::pen::Pen;
use crate::view::theme::{Fill, Theme};
use crate::view::{frame, rect};

/// The width of the figures beside the graph, as in `100% SM`.
const FIGURES: u16 = 7;

/// A tile of this width names the model of its GPU although all GPUs have the same.
const WITH_MODEL: u16 = 42;

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, grid: TileGrid) {
    let is_mixed = has_several_models(app);
    for (place, row) in app.gpus.rows(app.fleet()).enumerate() {
        let area = grid.tile(place);
        let is_selected = app.focus == List::Gpus && place == app.gpus.cursor;
        frame::draw_in(buffer, area, edge(theme, row, is_selected));
        let names_model = is_mixed || area.width >= WITH_MODEL;
        title(buffer, theme, app, row, area, names_model);
        if is_selected {
            theme.select(
                buffer,
                Rect {
                    height: 1,
                    ..rect(area)
                },
            );
        }
        let inside = area.inner();
        match row.gpu.trouble.as_ref().filter(|_| !is_read(row)) {
            Some(trouble) => silence(buffer, theme, app, row, trouble, area),
            None => figures(buffer, theme, app, row, inside),
        }
    }
}

/// Whether the GPUs on the screen are of more than one model.
fn has_several_models(app: &App) -> bool {
    let mut models = app
        .gpus
        .rows(app.fleet())
        .map(|row| row.gpu.facts.name.as_ref().ok());
    let first = models.next();
    models.any(|model| Some(model) != first)
}

/// The style of a tile's frame: the colour of the worst trouble of its GPU.
fn edge(theme: Theme, GpuRow { model, gpu, .. }: GpuRow<'_>, is_selected: bool) -> Style {
    match gpu_notes::worst(model, gpu) {
        Some(Severity::Bad) => theme.alarm_line(),
        Some(_) => theme.caution_line(),
        None if is_selected => theme.accent(),
        None => theme.dim(),
    }
}

/// Draws the last figure of memory and the sentence about a GPU that does not answer.
fn silence(
    buffer: &mut Buffer,
    theme: Theme,
    app: &App,
    row: GpuRow<'_>,
    trouble: &Trouble,
    area: Area,
) {
    let inside = area.inner();
    if let Some(mut pen) = Pen::at(buffer, inside, 0) {
        pen.put("memory ", theme.dim())
            .put(cell(app, row, GpuColumn::Memory).text, theme.dim());
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
    Paragraph::new(Line::styled(text, theme.alarm()))
        .wrap(Wrap { trim: true })
        .render(rect(below), buffer);
}

/// Whether the sentence about a GPU in trouble fits into its tile. A seventh of each line counts as
/// lost to word wrap.
pub(super) fn has_room_for(trouble: &Trouble, tile: Area) -> bool {
    let inside = tile.inner();
    trouble.sentence.as_str().len()
        <= usize::from(inside.width) * 6 / 7 * usize::from(inside.height - 1)
}

/// Draws on the upper edge which GPU it is and whose, its temperature and its power. Power, then the
/// temperature, give way to the names.
fn title(
    buffer: &mut Buffer,
    theme: Theme,
    app: &App,
    row: GpuRow<'_>,
    area: Area,
    names_model: bool,
) {
    let GpuRow { gpu, model, .. } = row;
    let host = if app.fleet().has_many() {
        format!("{}:", app.fleet().name(row.host))
    } else {
        String::new()
    };
    let name = gpu.facts.name.as_ref().ok().filter(|_| names_model);
    let name = name.map_or(String::new(), |name| {
        format!(" {}", gpu_cells::short_name(name.as_str()))
    });
    let label = format!("{host}{}{name}", gpu_label(gpu));
    let users = gpu_users::names(model, gpu);
    let names: usize = users
        .iter()
        .take(1)
        .map(|name| name.as_str().width() + 1)
        .sum();
    let mut right = Vec::new();
    // Beside the trouble of a GPU that does not answer, missing figures say nothing.
    if is_read(row) {
        let heat = cell(app, row, GpuColumn::Temperature);
        right.push((heat.text, theme.tone(heat.tone, theme.text(), theme.text())));
        right.push((word(gpu.load.power), theme.text()));
    }
    let width = |texts: &[(String, Style)]| {
        let texts = texts.iter().map(|(text, _)| text.width() + 1);
        texts.sum::<usize>() + 1
    };
    let room = usize::from(area.width).saturating_sub(4);
    while !right.is_empty() && label.width() + names + 3 + width(&right) > room {
        right.pop();
    }
    let taken = if right.is_empty() { 0 } else { width(&right) };
    let left = Area {
        width: area
            .width
            .saturating_sub(u16::try_from(taken).unwrap_or(u16::MAX)),
        ..area
    };
    let Some(mut pen) = frame::title(buffer, theme, left, &label) else {
        return;
    };
    for (place, name) in users.iter().enumerate() {
        let more = format!("+{} ", users.len() - place);
        let after = if place + 1 < users.len() {
            more.len()
        } else {
            0
        };
        if place > 0 && name.as_str().width() + 1 + after > pen.room() {
            pen.put(more, theme.dim());
            break;
        }
        let width = name.as_str().width().min(pen.room().saturating_sub(1));
        pen.cell(name, width, Align::Left, theme.user(model.user_hue(name)))
            .put(" ", theme.text());
    }
    let edge = Area {
        x: area.x + 2,
        width: area.width.saturating_sub(4),
        height: 1,
        ..area
    };
    if let Some(mut pen) = Pen::at(buffer, edge, 0).filter(|_| !right.is_empty()) {
        pen.tab_from_end(taken);
        for (text, style) in right {
            pen.put(" ", theme.text()).put(text, style);
        }
        pen.put(" ", theme.text());
    }
}

fn cell(app: &App, GpuRow { host, model, gpu }: GpuRow<'_>, column: GpuColumn) -> Cell {
    gpu_cells::cell(column, app.fleet().name(host), model, gpu)
}

fn figures(buffer: &mut Buffer, theme: Theme, app: &App, row: GpuRow<'_>, area: Area) {
    let GpuRow { model, gpu, .. } = row;
    let rows = area.height.saturating_sub(1);
    let graph = Area {
        width: area.width.saturating_sub(FIGURES + 1),
        height: rows,
        ..area
    };
    let (now, cells) = (model.now(), usize::from(graph.width));
    let history = model.history().gpu(&gpu.uuid);
    let usage = history.map(|history| Samples::of_use(&history.sm, now, cells));
    let fill = if occupants::unaccounted(model, gpu).is_some() {
        Fill::Other
    } else {
        let user = gpu_users::names(model, gpu).into_iter().next();
        Fill::User(user.and_then(|user| model.user_hue(&user)))
    };
    let memory = history.zip(gpu.load.memory_total.ok());
    let memory =
        memory.map(|(history, all)| Samples::of_memory(&history.memory, now, all, fill, cells));
    match (app.gpus.view, &usage) {
        (GpuView::Use, Some(usage)) => mirror::draw_up(buffer, theme, graph, usage),
        _ => mirror::draw(buffer, theme, graph, usage.as_ref(), memory.as_ref()),
    }
    let beside = Area {
        x: graph.x + graph.width + 1,
        width: FIGURES,
        height: rows,
        ..area
    };
    let is_strong = is_read(row) && !app.gpus.is_of_others(app.fleet(), row);
    latest(buffer, theme, row, is_strong, beside);
    if let Some(mut pen) = Pen::at(buffer, area, rows) {
        occupants::draw(&mut pen, theme, app, row, false);
    }
}

/// Draws the use at the top, and memory in use and in total at the bottom.
fn latest(buffer: &mut Buffer, theme: Theme, row: GpuRow<'_>, is_strong: bool, area: Area) {
    let GpuRow { gpu, .. } = row;
    let strong = if is_strong {
        theme.accent()
    } else {
        theme.dim()
    };
    let mut put = |line: u16, text: String, style: Style| {
        if let Some(mut pen) = Pen::at(buffer, area, line) {
            pen.cell(text, usize::from(FIGURES), Align::Right, style);
        }
    };
    put(0, format!("{} SM", word(gpu.load.sm)), strong);
    let bottom = area.height.saturating_sub(1);
    if gpu.shared_memory.is_some() {
        put(
            bottom,
            shared_memory_words(usize::from(FIGURES)).to_owned(),
            theme.dim(),
        );
        return;
    }
    let used = word(gpu.load.memory_used.map(short_amount));
    put(bottom.saturating_sub(1), used, strong);
    let total = gpu.load.memory_total.map(short_amount);
    if let Ok(total) = total {
        put(bottom, format!("/{total}"), theme.dim());
    }
}
