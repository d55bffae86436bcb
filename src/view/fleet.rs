//! Draws the fleet view: the totals in the first line, troubles, hosts as a table or in columns, and
//! who has what below.

use ratatui::buffer::Buffer;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use super::header::{self, SIMULATED};
use super::host_line::{self, GPU, HostUser, cells, list, middle_cut};
use super::pen::Pen;
use super::rect;
use super::theme::Theme;
use crate::app::App;
use crate::app::fleet::fleet_areas::HostGrid;
use crate::app::fleet::fleet_view::FleetFocus;
use crate::app::fleet::host_rows::{FleetTotals, HostRow, JobLine};
use crate::app::layout::Area;
use crate::app::lists::columns::Align;
use crate::app::lists::gpu_list::gpu_rows;
use crate::model::HostOverview;
use crate::output::labels::gpu_hours;

const HOUR_AND_MINUTE: usize = "03:41".len();

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

/// Draws a host as a row of the table.
fn draw_row(pen: &mut Pen<'_>, theme: Theme, app: &App, row: &HostRow<'_>) {
    let areas = &app.fleet_view.areas;
    let name = middle_cut(row.name, areas.name);
    pen.cell(name, areas.name, Align::Left, theme.text());
    pen.skip(1 + GPU.len());
    cells(pen, theme, &row.cells, areas.cells);
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
    cells(pen, theme, &row.cells, areas.cells);
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
    host_line::figures(pen, theme, &overview.into());
    draw_who(pen, theme, app, row, overview);
}

/// Writes what is special about a host, its users and its jobs.
fn draw_who(
    pen: &mut Pen<'_>,
    theme: Theme,
    app: &App,
    row: &HostRow<'_>,
    overview: &HostOverview,
) {
    for note in [&row.clock, &row.sees_some].into_iter().flatten() {
        pen.put(note, theme.notable()).skip(2);
    }
    let model = app.fleet().host(row.host);
    let users: Vec<HostUser<'_>> = overview
        .users
        .iter()
        .map(|(user, gpus)| {
            let hue = model.and_then(|model| model.user_hue(user));
            (user, *gpus, hue)
        })
        .collect();
    let jobs: Vec<&str> = overview
        .jobs
        .iter()
        .map(|job| job.origin.as_str())
        .collect();
    host_line::who(pen, theme, &users, &jobs);
}

/// Draws the headings of the table.
fn draw_headings(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let view = &app.fleet_view;
    let (areas, hosts) = (&view.areas, view.hosts.len());
    let below = hosts.saturating_sub(view.first + areas.capacity());
    host_line::headings(buffer, theme, area, areas, view.sort, view.first + below);
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
        host_line::selected(&mut pen, theme, &overview.into());
        draw_who(&mut pen, theme, app, &row, overview);
        return;
    }
    draw_figures(&mut pen, theme, app, &row);
}

/// Draws the hosts with free GPUs.
fn draw_free(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    host_line::free(buffer, theme, area, app.free_gpus().into_iter());
}

/// Draws the users of all hosts.
fn draw_users(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let users = app.fleet_users();
    let users: Vec<(&str, usize)> = users
        .iter()
        .map(|(name, gpus)| (name.as_str(), *gpus))
        .collect();
    host_line::users(buffer, theme, area, users.into_iter());
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
            pen.put(": ", theme.dim());
            list(&mut pen, theme, job.hosts.iter().map(ToString::to_string));
        }
        let place = view.first_job + usize::from(line);
        if view.focus == FleetFocus::Jobs && place == view.job_cursor {
            pen.select(theme, area);
        }
    }
}
