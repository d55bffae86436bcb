//! Draws the GPUs: as tiles, or as a list, one line for each: `0 H100 80GB HBM3  ▇▇▇▇▇▇────
//! 61.2/79.6G  97% ▇▇▇▇▇▇▇─ 64°C 512/700W ok`

mod occupants;
mod tiles;

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Widget, Wrap};
use unicode_width::UnicodeWidthStr;

use super::pen::Pen;
use super::rect;
use super::theme::{Fill, Theme};
use crate::app::layout::Area;
use crate::app::lists::columns::{Align, ListColumn, fitting};
use crate::app::lists::gpu_columns::{GpuColumn, MEMORY_WIDTH, WIDEST_FOR_GPUS};
use crate::app::lists::gpu_list::GpuRow;
use crate::app::lists::{gpu_cells, gpu_users};
use crate::app::{App, List};
use crate::base::units::Elapsed;
use crate::model::{Breakdown, health};
use crate::output::labels::gpu_label;
use crate::protocol::host_key::HostKey;
use crate::protocol::snapshot::{Cause, Snapshot, Trouble};

/// The columns that are shown, and the widths that depend on the screen and on the GPUs.
struct GpuColumnWidths {
    shown: Vec<GpuColumn>,
    host: usize,
    label: usize,
    name: usize,
    bar: usize,
    power: usize,
    health: usize,
}

/// The mark of memory that a GPU shares with the host.
const SHARED: &str = "shared";

/// A screen of this width has room for the own names of hosts, up to this width together with the
/// names that the user typed.
const WIDE_FOR_HOSTS: u16 = 100;
const LONGEST_HOSTS: usize = 26;

/// The least width of a bar.
const NARROWEST_BAR: usize = 3;
/// The width that a long GPU name leaves to each bar.
const FAIR_BAR: usize = 6;
/// The width of the health where there is room for the whole phrase, as a badge.
const HEALTH_AT_LENGTH: usize = 38;

impl GpuColumnWidths {
    fn new(app: &App, width: usize) -> Self {
        let gpus = || app.gpus.rows(app.fleet()).map(|row| row.gpu);
        let label = gpus()
            .map(|gpu| gpu_label(gpu).len())
            .max()
            .unwrap_or(1)
            .max(2);
        let hosts = app
            .fleet()
            .hosts()
            .map(|(host, _)| app.fleet().both_names(host).width());
        let host = if width < usize::from(WIDE_FOR_HOSTS) {
            0
        } else {
            hosts.max().unwrap_or(0).min(LONGEST_HOSTS)
        };
        let host = host.max(GpuColumn::Host.spec().width);
        let health = if width >= usize::from(WIDEST_FOR_GPUS) {
            HEALTH_AT_LENGTH
        } else {
            GpuColumn::Health.spec().width
        };
        // From 1000 W on the limit has one digit more, and so may the power that is drawn.
        let limits = gpus().filter_map(|gpu| gpu.health.power_limit.ok());
        let widest = limits
            .map(|limit| 2 * limit.to_string().len())
            .max()
            .unwrap_or(0);
        let power = widest.max(GpuColumn::Power.spec().width);
        let mut columns = Self {
            shown: Vec::new(),
            host,
            label,
            name: GpuColumn::Name.spec().width,
            bar: NARROWEST_BAR,
            power,
            health,
        };
        columns.shown = fitting(app.gpus.columns(app.size.0, app.fleet()), width, |column| {
            columns.width(column)
        });
        (columns.name, columns.bar) = (0, 0);
        let fixed: usize = columns
            .shown
            .iter()
            .map(|column| columns.width(*column) + 1)
            .sum();
        let left = (width + 1).saturating_sub(fixed);
        // The bars and the name share the rest of the line.
        let has_bar = |column: &&GpuColumn| matches!(column, GpuColumn::Memory | GpuColumn::Sm);
        let bars = columns.shown.iter().filter(has_bar).count();
        if columns.shown.contains(&GpuColumn::Name) {
            let names = gpus().filter_map(|gpu| gpu.facts.name.as_ref().ok());
            let longest = names
                .map(|name| gpu_cells::short_name(name.as_str()).chars().count())
                .max();
            columns.name = longest.unwrap_or(4).clamp(4, 28).min(
                left.saturating_sub(bars * FAIR_BAR)
                    .max(GpuColumn::Name.spec().width),
            );
        }
        columns.bar = (left.saturating_sub(columns.name) / bars.max(1)).clamp(NARROWEST_BAR, 30);
        columns
    }

    fn width(&self, column: GpuColumn) -> usize {
        match column {
            GpuColumn::Host => self.host,
            GpuColumn::Index => self.label,
            GpuColumn::Name => self.name,
            GpuColumn::Memory | GpuColumn::Sm => {
                self.bar + column.spec().width + usize::from(column == GpuColumn::Sm)
            }
            GpuColumn::Power => self.power,
            GpuColumn::Health => self.health,
            _ => column.spec().width,
        }
    }
}

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let latest = || {
        app.fleet()
            .hosts()
            .filter_map(|(host, model)| Some((host, model.latest()?)))
    };
    let gpus = app.gpus.rows(app.fleet()).count();
    if gpus == 0 {
        let lines: Vec<Line<'_>> = latest()
            .flat_map(|(host, snapshot)| why_no_gpu(theme, app, host, snapshot))
            .collect();
        Paragraph::new(lines)
            .wrap(Wrap { trim: true })
            .render(rect(area), buffer);
        return;
    }
    if let Some(grid) = app.layout().and_then(|layout| layout.tiles) {
        return tiles::draw(buffer, theme, app, grid);
    }
    let columns = GpuColumnWidths::new(app, usize::from(area.width));
    let hidden = gpus.saturating_sub(usize::from(area.height.saturating_sub(1)));
    if let Some(mut pen) = Pen::at(buffer, area, 0) {
        // With several hosts, one whose driver is in trouble has a row of its own.
        let only_host = latest().next().filter(|_| !app.fleet().has_many());
        match only_host.and_then(|(_, snapshot)| snapshot.driver.trouble.as_ref()) {
            Some(trouble) => _ = pen.put(trouble.sentence.as_str(), theme.alarm()),
            None => head(&mut pen, theme, &columns),
        }
    }
    if hidden > 0
        && let Some(mut pen) = Pen::at(buffer, area, 0)
    {
        // Drawn over the end of the headings.
        let word = format!(" Tab: {hidden} more");
        pen.tab_from_end(word.len()).put(word, theme.accent());
    }
    let (cursor, top) = (app.gpus.cursor, app.gpus.top);
    for (line, (place, row)) in
        (1..area.height).zip(app.gpus.rows(app.fleet()).enumerate().skip(top))
    {
        let Some(mut pen) = Pen::at(buffer, area, line) else {
            return;
        };
        let user = gpu_users::names(row.model, row.gpu).into_iter().next();
        pen.mark_edge(
            theme,
            user.and_then(|user| row.model.user_hue(&user)),
            false,
        );
        draw_line(&mut pen, theme, app, row, &columns);
        if app.focus == List::Gpus && place == cursor {
            pen.select(theme, area.row());
        }
    }
}

/// The name of a host before a sentence about it; empty with one host.
fn on_host(app: &App, host: HostKey) -> String {
    if app.fleet().has_many() {
        format!("{}: ", app.fleet().name(host))
    } else {
        String::new()
    }
}

fn why_no_gpu(theme: Theme, app: &App, host: HostKey, snapshot: &Snapshot) -> [Line<'static>; 2] {
    let sentence = match &snapshot.driver.trouble {
        Some(trouble) => trouble.sentence.to_string(),
        None => "The NVIDIA driver works, and finds no GPU on this host.".to_owned(),
    };
    let style = if snapshot.driver.trouble.is_some() {
        theme.alarm()
    } else {
        theme.text()
    };
    let hint = "`gputop doctor` says what is missing; `gputop --demo` shows a simulated machine.";
    [
        Line::styled(format!("{}{sentence}", on_host(app, host)), style),
        Line::styled(hint, theme.dim()),
    ]
}

fn head(pen: &mut Pen<'_>, theme: Theme, columns: &GpuColumnWidths) {
    pen.style_as_heading(theme);
    for column in &columns.shown {
        let (spec, whole) = (column.spec(), columns.width(*column));
        let width = match column {
            // Above the figure, with nothing above the bar.
            GpuColumn::Sm => spec.width,
            GpuColumn::Health => pen.room(),
            _ => whole,
        };
        let title = match column {
            // A healthy GPU says who is on it instead.
            GpuColumn::Health => "WHO",
            _ => spec.title,
        };
        pen.cell(title, width, spec.align, theme.head())
            .skip(whole.saturating_sub(width) + 1);
    }
}

fn draw_line(
    pen: &mut Pen<'_>,
    theme: Theme,
    app: &App,
    row: GpuRow<'_>,
    columns: &GpuColumnWidths,
) {
    let GpuRow { model, gpu, .. } = row;
    let is_read = is_read(row);
    let is_of_others = app.gpus.is_of_others(app.fleet(), row);
    let style = if is_read && !is_of_others {
        theme.text()
    } else {
        theme.dim()
    };
    let silent = gpu.trouble.as_ref().filter(|_| !is_read);
    // The age of old figures, or the trouble, is shown whichever columns the user chose: it takes
    // the room of the last one.
    let word = match model.age(gpu) {
        _ if silent.is_some() || columns.shown.contains(&GpuColumn::Health) => None,
        Some(age) => Some((format!("{} old", Elapsed(age)), theme.notable())),
        None => gpu
            .trouble
            .as_ref()
            .map(|_| (model.health(gpu).phrase, theme.alarm())),
    };
    let taken = word.as_ref().map_or(0, |(text, _)| text.len());
    for column in columns
        .shown
        .iter()
        .filter(|column| silent.is_none() || is_kept(**column))
    {
        if word.is_some() && pen.room() < columns.width(*column) + 1 + taken {
            break;
        }
        draw_cell(pen, theme, app, row, columns, style, *column);
    }
    if let Some(trouble) = silent {
        draw_trouble(pen, theme, row, trouble);
    } else if let Some((word, style)) = word {
        pen.tab_from_end(taken).put(word, style);
    }
}

/// Whether the figures of a GPU are current. They may be although its processes cannot be listed.
fn is_read(GpuRow { model, gpu, .. }: GpuRow<'_>) -> bool {
    if model.age(gpu).is_some() {
        return false;
    }
    let answers = |trouble: &Trouble| {
        !trouble.is_silence() && trouble.cause != Cause::Lost && health::has_figures(gpu)
    };
    gpu.trouble.as_ref().is_none_or(answers)
}

/// Whether the line of a GPU that does not answer keeps this column. The rest of the line says what
/// is wrong.
fn is_kept(column: GpuColumn) -> bool {
    matches!(
        column,
        GpuColumn::Host | GpuColumn::Index | GpuColumn::Name | GpuColumn::Memory
    )
}

/// Returns a sentence on each GPU in trouble whose line or tile has no room for it: what is wrong,
/// and what to do.
pub(super) fn troubles(app: &App, width: usize) -> Vec<String> {
    let grid = app.layout().and_then(|layout| layout.tiles);
    let columns = GpuColumnWidths::new(app, width);
    let kept = columns
        .shown
        .iter()
        .filter(|column| is_kept(**column))
        .map(|column| columns.width(*column) + 1);
    let room = width.saturating_sub(kept.sum::<usize>());
    let troubled = app
        .gpus
        .rows(app.fleet())
        .enumerate()
        .filter_map(|(place, row)| Some((place, row, row.gpu.trouble.as_ref()?)));
    let unexplained = troubled.filter(|(place, row, trouble)| {
        let has_room = match grid {
            Some(grid) => tiles::has_room_for(trouble, grid.tile(*place)),
            None => has_room_for(*row, trouble, room),
        };
        is_read(*row) || !has_room
    });
    unexplained
        .map(|(_, row, trouble)| format!("{}{}", on_host(app, row.host), trouble.sentence))
        .collect()
}

/// The age of the kept figures of a GPU in trouble; `None` when they are not overdue, or when the
/// GPU has none to show.
fn age_of_kept(GpuRow { model, gpu, .. }: GpuRow<'_>) -> Option<Duration> {
    model.age(gpu).filter(|_| gpu.load.memory_used.is_ok())
}

fn has_room_for(row: GpuRow<'_>, trouble: &Trouble, room: usize) -> bool {
    trouble.sentence.as_str().len() <= room && age_of_kept(row).is_none()
}

/// Draws what is wrong with a GPU, at the length that fits.
fn draw_trouble(pen: &mut Pen<'_>, theme: Theme, row: GpuRow<'_>, trouble: &Trouble) {
    if has_room_for(row, trouble, pen.room()) {
        pen.rest(trouble.sentence.as_str(), theme.alarm());
        return;
    }
    let mut text = row.model.health(row.gpu).phrase;
    if let Some(age) = age_of_kept(row) {
        text = format!("{text}, figures {} old", Elapsed(age));
    }
    if let Some(call) = trouble.call.as_ref().filter(|_| trouble.is_silence()) {
        text = format!("{text}, {call}");
    }
    pen.rest(text, theme.alarm());
}

/// The chosen columns that a screen of this width has no room for.
pub(super) fn crowded_out(app: &App, width: usize) -> Vec<GpuColumn> {
    let shown = GpuColumnWidths::new(app, width).shown;
    app.gpus
        .columns(app.size.0, app.fleet())
        .into_iter()
        .filter(|column| !shown.contains(column))
        .collect()
}

fn draw_cell(
    pen: &mut Pen<'_>,
    theme: Theme,
    app: &App,
    row: GpuRow<'_>,
    columns: &GpuColumnWidths,
    style: Style,
    column: GpuColumn,
) {
    let GpuRow { host, model, gpu } = row;
    let load = &gpu.load;
    let is_old = style == theme.dim();
    if column == GpuColumn::Health {
        return occupants::draw(pen, theme, app, row, true);
    }
    let cell = gpu_cells::cell(column, &app.fleet().both_names(host), model, gpu);
    let cell_style = theme.tone(cell.tone, style, style);
    match column {
        GpuColumn::Memory => {
            let share = load.memory_used.ok().zip(load.memory_total.ok());
            let share = share.and_then(|(used, total)| used.share_of(total));
            let latest = model.latest().filter(|_| !is_old);
            let parts = latest
                .and_then(|snapshot| Breakdown::of_used(snapshot, gpu, model.unaccounted()).ok());
            match parts.zip(load.memory_total.ok()) {
                _ if gpu.shared_memory.is_some() => pen
                    .cell(
                        shared_memory_words(columns.bar),
                        columns.bar,
                        Align::Left,
                        theme.dim(),
                    )
                    .skip(1),
                Some((parts, total)) => pen
                    .breakdown(theme, &parts, total, columns.bar, style)
                    .skip(1),
                None => pen
                    .gauge(theme, share, columns.bar, Fill::Allocated, style)
                    .skip(1),
            };
            // The host's figure never stands without its mark.
            let is_unmarked = gpu.shared_memory.is_some() && columns.bar < SHARED.len();
            let text = if is_unmarked {
                SHARED.to_owned()
            } else {
                cell.text
            };
            pen.cell(
                text,
                MEMORY_WIDTH,
                Align::Right,
                if is_old {
                    style
                } else {
                    theme.memory_style(share, style)
                },
            )
            .skip(1);
        }
        GpuColumn::Sm => {
            pen.cell(cell.text, column.spec().width, Align::Right, style)
                .skip(1);
            let share = load
                .sm
                .ok()
                .map(|percent| f64::from(percent.value()) / 100.0);
            pen.gauge(theme, share, columns.bar, Fill::Busy, style)
                .skip(1);
        }
        _ => {
            _ = pen
                .cell(
                    cell.text,
                    columns.width(column),
                    column.spec().align,
                    cell_style,
                )
                .skip(1);
        }
    }
}

/// The words in the place of the bar of a GPU that shares the memory of the host: the figure after
/// them is the host's.
fn shared_memory_words(width: usize) -> &'static str {
    if width < "shared with the host".len() {
        SHARED
    } else {
        "shared with the host"
    }
}
