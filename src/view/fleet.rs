//! Draws the fleet view: the totals in the first line, troubles, hosts as a table or in columns, and
//! who has what below.

use ratatui::buffer::Buffer;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use super::header::{self, SIMULATED};
use super::pen::Pen;
use super::rect;
use super::theme::{Fill, Theme};
use crate::app::App;
use crate::app::fleet::fleet_areas::HostGrid;
use crate::app::fleet::fleet_view::FleetFocus;
use crate::app::fleet::host_rows::{FleetTotals, HostRow, JobLine};
use crate::app::fleet::host_sort::HostSort;
use crate::app::layout::Area;
use crate::app::lists::columns::Align;
use crate::app::lists::gpu_list::gpu_rows;
use crate::base::units::Percent;
use crate::model::{GpuState, HostOverview, Severity, UserHue};
use crate::output::labels::gpu_hours;

/// The heading of the cells, above the column before the first one.
const GPU: &str = "GPU ";

const HOUR_AND_MINUTE: usize = "03:41".len();

/// The widths of the figures of the table. The memory of a host with sixteen GPUs of 192 GiB fits.
const FREE: usize = 4;
const MEMORY: usize = 11;
const POWER: usize = 7;

/// Draws the first line: the number of hosts, the GPUs by their states, and the time.
pub(super) fn draw_header(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let Some(mut pen) = Pen::at(buffer, area, 0) else {
        return;
    };
    pen.put("gputop", theme.accent()).skip(1);
    header::replay_and_recording(&mut pen, theme, app);
    if gpu_rows(app.fleet()).any(|row| row.gpu.facts.simulated) {
        let room = pen.room() > 100;
        pen.put(if room { SIMULATED } else { " SIMULATED " }, theme.head());
    }
    if let Some(clock) = app.time_of_day() {
        let is_wide = pen.room() >= 100;
        let shown = if is_wide {
            &clock
        } else {
            clock.get(..HOUR_AND_MINUTE).unwrap_or(&clock)
        };
        pen.put_at_end(shown, theme.text());
    }
    let totals = app.fleet_totals();
    let hosts = format!("{} hosts", totals.hosts);
    pen.skip(1).put(hosts, theme.accent());
    if totals.unread > 0 {
        pen.put(format!(" ({} without data)", totals.unread), theme.dim());
    }
    // The parts of the busy GPUs go first where there is no room.
    let parts = [
        TotalDetails::WithHours,
        TotalDetails::Counts,
        TotalDetails::None,
    ]
    .map(|details| total_parts(theme, &totals, details));
    let width = |parts: &[(String, Style)]| -> usize {
        parts.iter().map(|(words, _)| words.width() + 2).sum()
    };
    let fitting = parts.iter().find(|parts| width(parts) <= pen.room());
    for (words, style) in fitting.unwrap_or(&parts[2]) {
        if words.width() + 2 > pen.room() {
            break;
        }
        pen.skip(2).put(words, *style);
    }
}

/// The details of the busy GPUs in the totals.
#[derive(Clone, Copy, PartialEq)]
enum TotalDetails {
    WithHours,
    Counts,
    None,
}

/// The words of the totals: `64 GPUs: 41 busy (4 held for 2.4 GPU-hours, 1 leaks)`, `14 free`, `1
/// sick`, `8 unknown`.
fn total_parts(theme: Theme, totals: &FleetTotals, shown: TotalDetails) -> Vec<(String, Style)> {
    let held = if shown == TotalDetails::WithHours {
        format!("held for {} GPU-hours", gpu_hours(totals.held_time))
    } else {
        "held".to_owned()
    };
    let details: Vec<String> = [
        (totals.held, held.as_str()),
        (totals.leaks, "leaks"),
        (totals.orphans, "orphaned"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0 && shown != TotalDetails::None)
    .map(|(count, word)| format!("{count} {word}"))
    .collect();
    let details = if details.is_empty() {
        String::new()
    } else {
        format!(" ({})", details.join(", "))
    };
    let mut parts = vec![
        (
            format!("{} GPUs: {} busy{details}", totals.gpus, totals.busy),
            theme.text(),
        ),
        (format!("{} free", totals.free), theme.text()),
    ];
    if totals.sick > 0 {
        parts.push((format!(" {} sick ", totals.sick), theme.alarm()));
    }
    if totals.unknown > 0 {
        parts.push((format!("{} unknown", totals.unknown), theme.text()));
    }
    parts
}

/// Draws the body of the screen.
pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App) {
    let areas = &app.fleet_view.areas;
    draw_troubles(buffer, theme, app, areas.troubles);
    draw_headings(buffer, theme, app, areas.headings);
    for (place, row) in app.host_rows() {
        let area = areas.host(place - app.fleet_view.first);
        let Some(mut pen) = Pen::at(buffer, area, 0) else {
            continue;
        };
        match areas.grid {
            HostGrid::Table => draw_row(&mut pen, theme, app, &row),
            HostGrid::Columns { .. } => draw_short(&mut pen, theme, app, &row),
        }
        if place == app.fleet_view.cursor && app.fleet_view.focus == FleetFocus::Hosts {
            theme.select(buffer, rect(area));
        }
    }
    draw_selected(buffer, theme, app, areas.selected_host);
    draw_free(buffer, theme, app, areas.free);
    draw_users(buffer, theme, app, areas.users);
    draw_jobs(buffer, theme, app, areas.jobs);
}

/// Draws the lines of troubles, and how many others there are.
fn draw_troubles(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let view = &app.fleet_view;
    if view.trouble_count == 0 {
        if let Some(mut pen) = Pen::at(buffer, area, 0) {
            pen.rest("no trouble on any host", theme.dim());
        }
        return;
    }
    let widest = view.troubles.iter().map(|line| line.place.width()).max();
    let width = widest.unwrap_or(0).max(10).min(usize::from(area.width) / 3);
    for (row, line) in (0..area.height).zip(&view.troubles) {
        let Some(mut pen) = Pen::at(buffer, area, row) else {
            return;
        };
        let style = theme.severity(line.severity);
        pen.put(line.letter.to_string(), style).skip(1);
        pen.put(middle_cut(&line.place, width), theme.accent());
        pen.tab_to(2 + width + 1).rest(&line.sentence, theme.text());
        let place = view.first_trouble + usize::from(row);
        if view.focus == FleetFocus::Troubles && place == view.trouble_cursor {
            pen.select(theme, area);
        }
    }
    let hidden = view.trouble_count - view.troubles.len();
    let row = u16::try_from(view.troubles.len()).unwrap_or(u16::MAX);
    if hidden > 0
        && view.focus != FleetFocus::Troubles
        && let Some(mut pen) = Pen::at(buffer, area, row)
    {
        pen.put(format!("+{hidden} more"), theme.accent())
            .put(" (Tab shows them)", theme.dim());
    }
}

/// The figures of the table from left to right: the heading, the width, and the order by it.
const FIGURES: [(&str, usize, HostSort); 4] = [
    ("FREE", 1 + FREE, HostSort::Free),
    ("MEMORY", MEMORY, HostSort::Memory),
    ("SM", Percent::WIDTH, HostSort::Sm),
    ("POWER", POWER, HostSort::Power),
];

/// The least width of the column of users.
const WHO: usize = 12;

/// The figures that fit into this room beside the users.
fn fitting_figures(room: usize) -> &'static [(&'static str, usize, HostSort)] {
    let mut left = room.saturating_sub(WHO);
    let fits = |(_, width, _): &&(&str, usize, HostSort)| {
        let has_room = left > *width;
        left = left.saturating_sub(width + 1);
        has_room
    };
    &FIGURES[..FIGURES.iter().take_while(fits).count()]
}

fn draw_headings(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let Some(mut pen) = Pen::at(buffer, area, 0) else {
        return;
    };
    let view = &app.fleet_view;
    pen.style_as_heading(theme);
    let style = |sort: HostSort| {
        if view.sort == sort && sort != HostSort::Name {
            theme.accent()
        } else {
            theme.head()
        }
    };
    pen.cell("HOST", view.areas.name, Align::Left, style(HostSort::Name));
    pen.skip(1).put(GPU, theme.head());
    // Digits, as the labels of GPUs: from the tenth on the last one.
    let digits: String = (0..view.areas.cells)
        .map(|gpu| char::from(b'0' + u8::try_from(gpu % 10).unwrap_or(0)))
        .collect();
    pen.put(digits, theme.head()).skip(1);
    for (title, width, sort) in fitting_figures(pen.room()) {
        pen.cell(title, *width, Align::Right, style(*sort)).skip(1);
    }
    pen.skip(1).put("WHO", theme.head());
    let above = view.first;
    let below = view
        .hosts
        .len()
        .saturating_sub(view.first + view.areas.capacity());
    if above + below > 0 {
        let words = format!(" {} more hosts", above + below);
        pen.over_end(words.width()).put(words, theme.accent());
    }
}

/// Draws a host as a row of the table.
fn draw_row(pen: &mut Pen<'_>, theme: Theme, app: &App, row: &HostRow<'_>) {
    let areas = &app.fleet_view.areas;
    let name = middle_cut(row.name, areas.name);
    pen.cell(name, areas.name, Align::Left, theme.text());
    pen.skip(1 + GPU.len());
    draw_cells(pen, theme, row, areas.cells);
    pen.skip(1);
    draw_figures(pen, theme, app, row);
}

/// Draws the name and the cells of a host.
fn draw_short(pen: &mut Pen<'_>, theme: Theme, app: &App, row: &HostRow<'_>) {
    let areas = &app.fleet_view.areas;
    let is_trouble = row.state.as_ref().is_some_and(|state| state.is_trouble);
    let style = if is_trouble {
        theme.alarm_words()
    } else {
        theme.text()
    };
    let name = middle_cut(row.name, areas.name);
    pen.cell(name, areas.name, Align::Left, style).skip(1);
    if row.cells.is_empty() {
        // The first word of the state: `starting…`, `no`.
        let words = row.state.as_ref().map_or("", |state| state.words.as_str());
        pen.rest(words, theme.dim());
        return;
    }
    draw_cells(pen, theme, row, areas.cells);
}

/// Draws the figures of a host, or why there are none.
fn draw_figures(pen: &mut Pen<'_>, theme: Theme, app: &App, row: &HostRow<'_>) {
    if let Some(state) = &row.state {
        let style = if state.is_trouble {
            theme.alarm_words()
        } else {
            theme.dim()
        };
        pen.skip(2);
        if let Some(seen) = &row.last_seen {
            let words = format!("last seen {seen}");
            // The reason is worth more than the time.
            if pen.room() > 2 * words.width() {
                pen.put_at_end(&words, theme.dim());
            }
        }
        pen.rest(&state.words, style);
        return;
    }
    let Some(overview) = row.overview else { return };
    for (_, width, figure) in fitting_figures(pen.room()) {
        let (text, style) = figure_of(theme, overview, *figure);
        pen.cell(text, *width, Align::Right, style).skip(1);
    }
    pen.skip(1);
    who(pen, theme, app, row, overview);
}

/// A figure of a host, and its style.
fn figure_of(theme: Theme, overview: &HostOverview, figure: HostSort) -> (String, Style) {
    let text = match figure {
        HostSort::Free => {
            let free = overview.count(GpuState::Free);
            let style = if free > 0 {
                theme.accent()
            } else {
                theme.dim()
            };
            return (free.to_string(), style);
        }
        HostSort::Memory => memory(overview),
        HostSort::Sm => overview
            .sm
            .map_or_else(|| "?".to_owned(), |sm| sm.to_string()),
        HostSort::Power => power(overview),
        HostSort::Name | HostSort::Trouble => String::new(),
    };
    (text, theme.text())
}

/// Writes the users of a host in their hues, each with the number of its GPUs, and the jobs.
fn who(pen: &mut Pen<'_>, theme: Theme, app: &App, row: &HostRow<'_>, overview: &HostOverview) {
    for note in [&row.clock, &row.sees_some].into_iter().flatten() {
        pen.put(note, theme.notable()).skip(2);
    }
    let model = app.fleet().host(row.host);
    for (place, (user, gpus)) in overview.users.iter().enumerate() {
        let left = overview.users.len() - place;
        let words = format!("{user} {gpus}");
        // The last user needs no room for the count of others.
        let others = if left > 1 { ", +99".len() } else { 0 };
        if words.width() + others > pen.room() && place > 0 {
            pen.put(format!(", +{left}"), theme.dim());
            return;
        }
        if place > 0 {
            pen.put(", ", theme.dim());
        }
        let hue = model.and_then(|model| model.user_hue(user));
        pen.put(user.as_str(), theme.user(hue))
            .put(format!(" {gpus}"), theme.text());
    }
    for (place, job) in overview.jobs.iter().enumerate() {
        if job.origin.as_str().width() + 2 > pen.room() {
            return;
        }
        let before = if place == 0 { "  " } else { ", " };
        pen.put(before, theme.dim())
            .put(job.origin.as_str(), theme.dim());
    }
}

/// `421/637G`, with `≥` where the memory of a GPU is not known.
fn memory(overview: &HostOverview) -> String {
    match (overview.memory_used, overview.memory_total) {
        (Ok(used), Ok(total)) => {
            let bound = if used.is_lower_bound { "≥" } else { "" };
            format!("{bound}{:.0}/{:.0}G", used.bytes.gib(), total.bytes.gib())
        }
        _ => "?".to_owned(),
    }
}

/// `4.1 kW`
fn power(overview: &HostOverview) -> String {
    overview.power.map_or_else(
        || "?".to_owned(),
        |watts| format!("{:.1} kW", watts / 1000.0),
    )
}

/// Draws one cell for each GPU.
fn draw_cells(pen: &mut Pen<'_>, theme: Theme, row: &HostRow<'_>, width: usize) {
    let fits = row.cells.len() <= width;
    let shown = if fits { row.cells.len() } else { width - 1 };
    for (state, hue) in &row.cells[..shown] {
        pen.put(glyph(*state), cell_style(theme, *state, *hue));
    }
    if !fits {
        pen.put("…", theme.dim());
    }
    pen.skip(width - shown - usize::from(!fits));
}

fn glyph(state: GpuState) -> &'static str {
    match state {
        GpuState::Sick => "x",
        GpuState::Unknown => "?",
        GpuState::Leak => "L",
        GpuState::Orphan => "o",
        GpuState::HeldIdle => "h",
        GpuState::NearlyFull => "▓",
        GpuState::Busy => "█",
        GpuState::Free => "·",
    }
}

fn cell_style(theme: Theme, state: GpuState, hue: Option<UserHue>) -> Style {
    match state {
        GpuState::Sick | GpuState::Leak => theme.severity(Severity::Bad),
        GpuState::Orphan | GpuState::HeldIdle => theme.severity(Severity::Notable),
        GpuState::Unknown | GpuState::Free => theme.dim(),
        GpuState::NearlyFull | GpuState::Busy => theme.edge(Fill::User(hue)),
    }
}

/// Draws the figures of the host under the cursor, where the hosts are in columns.
fn draw_selected(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let view = &app.fleet_view;
    let Some(mut pen) = Pen::at(buffer, area, 0) else {
        return;
    };
    let hidden = view.hosts.len().saturating_sub(
        view.areas
            .capacity()
            .min(view.hosts.len() - view.first.min(view.hosts.len())),
    );
    if hidden > 0 {
        pen.put_at_end(&format!("{hidden} more hosts"), theme.accent());
    }
    let Some(row) = app.selected_host_row() else {
        return;
    };
    pen.put(row.name, theme.accent()).skip(1);
    if row.state.is_none()
        && let Some(overview) = row.overview
    {
        let free = overview.count(GpuState::Free);
        pen.skip(1)
            .put(format!("{free} free  {}  ", memory(overview)), theme.text())
            .put(
                overview
                    .sm
                    .map_or_else(String::new, |sm| format!("SM {sm}  ")),
                theme.text(),
            )
            .put(format!("{}  ", power(overview)), theme.text());
        who(&mut pen, theme, app, &row, overview);
        return;
    }
    draw_figures(&mut pen, theme, app, &row);
}

/// Draws the hosts with free GPUs: `FREE 14 GPUs: gpu-05 8, gpu-04 4`.
fn draw_free(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let Some(mut pen) = Pen::at(buffer, area, 0) else {
        return;
    };
    let free = app.free_gpus();
    let count: usize = free.iter().map(|(_, gpus)| gpus).sum();
    pen.put("FREE ", theme.head());
    if count == 0 {
        pen.put(" no GPU", theme.dim());
        return;
    }
    let noun = if count == 1 { "GPU" } else { "GPUs" };
    pen.put(format!(" {count} {noun}: "), theme.text());
    let hosts: Vec<String> = free
        .iter()
        .map(|(name, gpus)| format!("{name} {gpus}"))
        .collect();
    list(&mut pen, theme, &hosts);
}

/// Draws the users of all hosts: `USERS alice 24, bob 12`.
fn draw_users(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let Some(mut pen) = Pen::at(buffer, area, 0) else {
        return;
    };
    let users = app.fleet_users();
    if users.is_empty() {
        return;
    }
    pen.put("USERS", theme.head()).skip(1);
    let users: Vec<String> = users
        .iter()
        .map(|(name, gpus)| format!("{name} {gpus}"))
        .collect();
    list(&mut pen, theme, &users);
}

/// Draws the jobs with the most GPUs: `JOBS  slurm 4242 llama  alice  64 ranks on 8 hosts, 63 seen`.
fn draw_jobs(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    if area.height == 0 {
        return;
    }
    let view = &app.fleet_view;
    let jobs = app.job_lines().skip(view.first_job);
    let jobs: Vec<JobLine<'_>> = jobs.take(area.height.into()).collect();
    let width = jobs.iter().map(|job| job.title.width()).max();
    let width = width.unwrap_or(0).min(usize::from(area.width) / 3);
    for (line, job) in (0..area.height).zip(&jobs) {
        let Some(mut pen) = Pen::at(buffer, area, line) else {
            return;
        };
        let title = if line == 0 { "JOBS " } else { "     " };
        pen.put(title, theme.head());
        pen.skip(1)
            .cell(&job.title, width, Align::Left, theme.text())
            .skip(2);
        if let Some(user) = job.user {
            pen.put(user.as_str(), theme.user(None)).skip(2);
        }
        pen.put(&job.size, theme.text());
        if let Some(missing) = &job.missing {
            pen.put(", ", theme.dim()).put(missing, theme.notable());
        }
        if job.hosts.len() > 1 {
            let hosts: Vec<String> = job.hosts.iter().map(ToString::to_string).collect();
            pen.put(": ", theme.dim());
            list(&mut pen, theme, &hosts);
        }
        let place = view.first_job + usize::from(line);
        if view.focus == FleetFocus::Jobs && place == view.job_cursor {
            pen.select(theme, area);
        }
    }
}

/// Writes the items that fit, separated by commas, and the number of the others.
fn list(pen: &mut Pen<'_>, theme: Theme, items: &[String]) {
    for (place, item) in items.iter().enumerate() {
        let left = items.len() - place;
        let after = if left > 1 { ", +999".len() } else { 0 };
        let before = if place > 0 { ", " } else { "" };
        if before.len() + item.width() + after > pen.room() {
            pen.put(format!("{before}+{left}"), theme.dim());
            return;
        }
        pen.put(before, theme.dim()).put(item, theme.text());
    }
}

/// Returns a name in at most this many columns. A longer one has `…` in its middle: the beginning
/// and the end of names of hosts differ more often.
fn middle_cut(name: &str, width: usize) -> String {
    if name.width() <= width {
        return name.to_owned();
    }
    let letters: Vec<char> = name.chars().collect();
    let (head, tail) = (width.saturating_sub(1) / 2, width / 2);
    let tail = tail.min(width.saturating_sub(1 + head));
    let end: String = letters[letters.len().saturating_sub(tail)..]
        .iter()
        .collect();
    let start: String = letters.iter().take(head).collect();
    format!("{start}…{end}")
}
