//! Draws the cluster view: the totals in the first line, troubles, hosts as a table or in columns, the
//! GPUs of the host under the cursor with its past, and the keys.

mod cluster_panel;

use ratatui::buffer::Buffer;
use ratatui::widgets::{Paragraph, Widget, Wrap};
use unicode_width::UnicodeWidthStr;

use super::host_line::{self, GPU, HostUser, cells, middle_cut};
use super::pen::Pen;
use super::theme::Theme;
use super::{footer, frame, rect, too_small};
use crate::app::cluster::{ClusterApp, ClusterList, ClusterMode, ClusterRow, KEYS};
use crate::app::fleet::fleet_areas::HostGrid;
use crate::app::layout::{Area, SMALLEST};
use crate::app::lists::columns::Align;
use crate::app::settings::ThemeName;
use crate::base::text::Text;
use crate::base::time::local_time;
use crate::base::units::Elapsed;
use crate::model::Severity;
use crate::model::cluster::{ClusterTrouble, RoundKind, TroubleKnowledge};

/// The keys in the last line, the most useful first.
const FOOTER: [(&str, &str); 5] = [
    ("Enter", "open the host"),
    ("/", "filter"),
    ("s", "sort"),
    ("a", "all GPUs"),
    ("Tab", "troubles"),
];
/// The keys at its end, for which the others leave room.
const HELP_AND_QUIT: [(&str, &str); 2] = [("?", "help"), ("q", "quit")];

/// The least width of a first line whose clock has seconds.
const WIDE: usize = 100;

/// The width of the help.
const HELP_WIDTH: u16 = 70;

/// The width of the names of keys in the help.
const HELP_KEYS: usize = 20;

/// Draws everything. `theme` has the name that the user chose; `auto` follows the background.
pub(crate) fn draw(buffer: &mut Buffer, theme: &Theme, name: ThemeName, app: &ClusterApp) {
    let theme = theme.with(name.on(app.background));
    let screen = buffer.area;
    if (screen.width, screen.height) == app.size
        && screen.width >= SMALLEST.0
        && screen.height >= SMALLEST.1
    {
        draw_header(buffer, theme, app);
        draw_troubles(buffer, theme, app);
        draw_emptiness(buffer, theme, app);
        match app.list {
            ClusterList::Hosts => {
                draw_hosts(buffer, theme, app);
                cluster_panel::draw(buffer, theme, app);
            }
            ClusterList::AllGpus if !app.hosts.is_empty() => {
                cluster_panel::draw_all(buffer, theme, app);
            }
            ClusterList::AllGpus => {}
        }
        draw_footer(buffer, theme, app);
        if app.mode == ClusterMode::Help {
            draw_help(buffer, theme, app);
        }
    } else {
        too_small(buffer, theme);
    }
    theme.finish(buffer);
}

/// Draws the first line: `gputop  prom:9090  1,250 hosts  10000 GPUs: 7981 busy  2019 free`.
fn draw_header(buffer: &mut Buffer, theme: Theme, app: &ClusterApp) {
    let Some(mut pen) = Pen::at(buffer, app.areas.header, 0) else {
        return;
    };
    let totals = &app.totals;
    pen.put("gputop", theme.accent()).skip(1);
    if let Some(clock) = app.clock {
        let time = local_time(clock.unix_ms, clock.utc_offset);
        let shown = if pen.room() >= WIDE { 11..19 } else { 11..16 };
        pen.put_at_end(&time[shown], theme.text());
    }
    if totals.hosts == 0 {
        pen.skip(1).rest(&app.server, theme.text());
        return;
    }
    let mut parts = vec![(count(totals.hosts, "host"), theme.accent())];
    let known = totals.gpus.saturating_sub(totals.unknown);
    let sick = totals.sick + app.cluster.sick_elsewhere();
    let busy = known.saturating_sub(totals.free + sick);
    let gpus = count(totals.gpus, "GPU");
    let has_more = if app.cluster.has_more_troubles {
        "≥ "
    } else {
        ""
    };
    let details: Vec<String> = [
        (totals.held, "held idle"),
        (totals.leaks, "leak"),
        (totals.orphans, "orphaned"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, word)| format!("{has_more}{count} {word}"))
    .collect();
    let details = if details.is_empty() {
        String::new()
    } else {
        format!(" ({})", details.join(", "))
    };
    if sick > 0 {
        parts.push((format!(" {has_more}{sick} sick "), theme.alarm()));
    }
    // At first only the GPUs are counted.
    if known == 0 {
        parts.push((gpus, theme.text()));
    } else {
        parts.push((format!("{gpus}: {busy} busy{details}"), theme.text()));
        parts.push((format!("{} free", totals.free), theme.text()));
    }
    if totals.unknown > 0 && known > 0 {
        parts.push((format!("{} unknown", totals.unknown), theme.dim()));
    }
    if totals.silent > 0 {
        let words = format!("{} without samples", count(totals.silent, "host"));
        parts.push((words, theme.alarm_words()));
    }
    // The server comes last: the person has just typed it.
    let width: usize = parts.iter().map(|(words, _)| words.width() + 2).sum();
    let room = pen.room().saturating_sub(width + 2);
    if room >= app.server.width() {
        parts.insert(0, (app.server.clone(), theme.text()));
    }
    pen.skip(1);
    for (words, style) in parts {
        if words.width() <= pen.room() {
            pen.put(words, style).skip(2);
        }
    }
    if let Some(age) = totals.age {
        let age = Elapsed(age + app.since_totals.duration());
        for words in [format!("samples ≤ {age} old"), format!("≤ {age} old")] {
            if words.width() <= pen.room() {
                pen.put_at_end(&words, theme.dim());
                break;
            }
        }
    }
}

/// `1 host`, `8 GPUs`.
fn count(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Draws the troubles: that of the server first.
fn draw_troubles(buffer: &mut Buffer, theme: Theme, app: &ClusterApp) {
    let area = app.areas.fleet.troubles;
    if app.cluster.hosts().next().is_none() {
        return;
    }
    if app.trouble_count() == 0 {
        if let Some(mut pen) = Pen::at(buffer, area, 0) {
            // The exporters are the evidence: some tell of few troubles, some of none.
            let exporters = app.cluster.exporters().join(", ");
            let words = match app.cluster.trouble_knowledge {
                TroubleKnowledge::NotAsked => "asking for troubles…".to_owned(),
                TroubleKnowledge::NotExported => {
                    format!("troubles are not known: {exporters} does not export them")
                }
                TroubleKnowledge::Refused => {
                    "troubles are not known: the server refuses a question about them".to_owned()
                }
                TroubleKnowledge::Known => format!("no trouble on any host, by {exporters}"),
            };
            pen.rest(words, theme.dim());
        }
        return;
    }
    let of_server = usize::from(app.server_trouble.is_some());
    let (total, height) = (app.trouble_count(), usize::from(area.height));
    let shown = if total > height && !app.is_in_troubles {
        height - 1
    } else {
        height
    };
    let first = app.trouble_place.first;
    let places: Vec<Option<&ClusterTrouble>> = (first..total.min(first + shown))
        .map(|place| app.troubles.get(place.checked_sub(of_server)?))
        .collect();
    let place_of = |trouble: &ClusterTrouble| {
        let host = app.cluster.shown_name(&trouble.host);
        match &trouble.gpus[..] {
            [] => host.to_owned(),
            [gpu] => format!("{host}:{gpu}"),
            gpus => format!("{host} {} GPUs", gpus.len()),
        }
    };
    let named = places.iter().flatten();
    let widest = named.map(|trouble| place_of(trouble).width()).max();
    let width = widest.unwrap_or(0).max(10).min(usize::from(area.width) / 3);
    for (row, trouble) in (0..area.height).zip(&places) {
        let Some(mut pen) = Pen::at(buffer, area, row) else {
            return;
        };
        match (trouble, &app.server_trouble) {
            (Some(trouble), _) => {
                let (letter, severity) = match trouble.rank {
                    Some(rank) => ('!', rank.severity()),
                    None => ('h', Severity::Notable),
                };
                pen.put(letter.to_string(), theme.severity(severity))
                    .skip(1);
                pen.put(middle_cut(&place_of(trouble), width), theme.accent());
                pen.tab_to(2 + width + 1)
                    .rest(&trouble.sentence, theme.text());
            }
            (None, Some(of_server)) => {
                let since = Elapsed(of_server.age.duration());
                pen.put("!", theme.severity(Severity::Bad)).skip(1);
                pen.put_at_end(&format!("for {since}"), theme.dim());
                pen.rest(&of_server.sentence, theme.alarm_words());
            }
            (None, None) => {}
        }
        let place = first + usize::from(row);
        if app.is_in_troubles && place == app.trouble_place.cursor {
            pen.select(theme, area);
        }
    }
    let hidden = total.saturating_sub(first + places.len());
    let row = u16::try_from(places.len()).unwrap_or(u16::MAX);
    if hidden > 0
        && !app.is_in_troubles
        && let Some(mut pen) = Pen::at(buffer, area, row)
    {
        pen.put(format!("+{hidden} more"), theme.accent())
            .put(" (Tab shows them)", theme.dim());
    }
}

/// Says why no host is on the screen, in as many lines as it takes.
fn draw_emptiness(buffer: &mut Buffer, theme: Theme, app: &ClusterApp) {
    if !app.hosts.is_empty() {
        return;
    }
    let is_filtered = app.cluster.hosts().next().is_some();
    let (words, style) = match &app.server_trouble {
        Some(trouble) if !is_filtered => (
            format!("{} (Ctrl-R asks again)", trouble.sentence),
            theme.alarm_words(),
        ),
        _ if is_filtered => ("no host has these words".to_owned(), theme.dim()),
        _ => (waiting_words(app), theme.dim()),
    };
    let troubles = app.areas.fleet.troubles;
    let skipped = if is_filtered { troubles.height } else { 0 };
    let area = Area {
        y: troubles.y + skipped,
        height: app.size.1.saturating_sub(troubles.y + skipped + 1),
        ..troubles
    };
    Paragraph::new(words)
        .style(style)
        .wrap(Wrap { trim: true })
        .render(rect(area), buffer);
}

/// Says what gputop waits for.
fn waiting_words(app: &ClusterApp) -> String {
    if app.awaits(RoundKind::Totals) {
        return format!("asking {}…", app.server);
    }
    if app.cluster.exporters().is_empty() {
        return format!(
            "{} has no series of GPUs: gputop reads those of `gputop exporter`, dcgm-exporter, \
             nvitop-exporter, all-smi and nvidia_gpu_exporter",
            app.server
        );
    }
    format!("{} knows no host with a GPU", app.server)
}

/// Draws the hosts, and what is below them.
fn draw_hosts(buffer: &mut Buffer, theme: Theme, app: &ClusterApp) {
    if app.hosts.is_empty() {
        return;
    }
    let areas = &app.areas.fleet;
    let (first, cursor) = (app.host_place.first, app.host_place.cursor);
    let below = app.hosts.len().saturating_sub(first + areas.capacity());
    host_line::headings(
        buffer,
        theme,
        areas.headings,
        areas,
        app.sort,
        first + below,
    );
    let shown = app.hosts.iter().enumerate().skip(first);
    for (place, id) in shown.take(areas.capacity()) {
        let area = areas.host(place - first);
        let (Some(mut pen), Some(row)) = (Pen::at(buffer, area, 0), app.row(id)) else {
            continue;
        };
        let style = if row.silence.is_some() {
            theme.alarm_words()
        } else {
            theme.text()
        };
        let name = middle_cut(row.name, areas.name);
        pen.cell(name, areas.name, Align::Left, style).skip(1);
        let is_table = areas.grid == HostGrid::Table;
        if is_table {
            pen.skip(GPU.len());
        }
        if row.silence.is_some() && row.cells.is_empty() && !is_table {
            pen.rest("no samples", theme.dim());
        } else {
            cells(&mut pen, theme, &row.cells, areas.cells);
            if is_table {
                pen.skip(1);
                draw_figures(&mut pen, theme, &row);
            }
        }
        if place == cursor && !app.is_in_troubles {
            theme.select(buffer, rect(area));
        }
    }
    draw_selected(buffer, theme, app, first + below);
    let totals = &app.totals;
    let totals_are_known = totals.gpus == 0 || totals.unknown < totals.gpus;
    if totals_are_known {
        host_line::free(buffer, theme, areas.free, app.free_gpus());
    }
    let users = app.cluster.owners.iter();
    let users = users.map(|(name, gpus)| (name.as_str(), *gpus));
    host_line::users(buffer, theme, areas.users, users);
}

fn draw_figures(pen: &mut Pen<'_>, theme: Theme, row: &ClusterRow<'_>) {
    if let Some(silence) = row.silence {
        pen.skip(2);
        let words = if silence.is_zero() {
            "no samples now".to_owned()
        } else {
            format!("no samples for {}", Elapsed(silence))
        };
        pen.rest(words, theme.alarm_words());
        return;
    }
    host_line::figures(pen, theme, &row.figures.into());
    draw_who(pen, theme, row);
}

fn draw_who(pen: &mut Pen<'_>, theme: Theme, row: &ClusterRow<'_>) {
    let users: Vec<HostUser<'_>> = row
        .users
        .iter()
        .map(|(user, gpus, hue)| (user, *gpus, *hue))
        .collect();
    let jobs: Vec<&str> = row.jobs.iter().map(Text::as_str).collect();
    host_line::who(pen, theme, &users, &jobs);
}

/// Draws the figures of the host under the cursor, where the hosts are in columns.
fn draw_selected(buffer: &mut Buffer, theme: Theme, app: &ClusterApp, hidden: usize) {
    let Some(mut pen) = Pen::at(buffer, app.areas.fleet.selected_host, 0) else {
        return;
    };
    if hidden > 0 {
        pen.put_at_end(&format!("{hidden} more hosts"), theme.accent());
    }
    let Some(row) = app.selected_host().and_then(|id| app.row(id)) else {
        return;
    };
    pen.put(row.name, theme.accent()).skip(1);
    if row.silence.is_some() {
        draw_figures(&mut pen, theme, &row);
        return;
    }
    host_line::selected(&mut pen, theme, &row.figures.into());
    draw_who(&mut pen, theme, &row);
}

/// Draws the last line: the filter, a notice, or the keys.
fn draw_footer(buffer: &mut Buffer, theme: Theme, app: &ClusterApp) {
    let Some(mut pen) = Pen::at(buffer, app.areas.footer, 0) else {
        return;
    };
    if app.mode == ClusterMode::Filter {
        footer::typed(&mut pen, theme, "filter: ", &app.filter);
    } else if !app.filter.value().is_empty() {
        let words = format!(" filter: {} ", app.filter.value());
        pen.put(words, theme.badge()).skip(1);
    }
    if let Some(words) = app.notice.text() {
        pen.rest(words, theme.notable());
        return;
    }
    if let Some(warning) = app.cluster.warning() {
        let words = format!("not all is known: {warning}");
        pen.rest(words, theme.notable());
        return;
    }
    let width = |(key, words): &(&str, &str)| key.width() + 1 + words.width() + 2;
    let kept: usize = HELP_AND_QUIT.iter().map(width).sum();
    // No gap follows the last key.
    let room = (pen.room() + 2).saturating_sub(kept);
    let keys = FOOTER.map(|(key, words)| match (key, app.list) {
        ("a", ClusterList::AllGpus) => (key, "hosts"),
        _ => (key, words),
    });
    let fitting = keys.iter().scan(0, |end, key| {
        *end += width(key);
        (*end <= room).then_some(key)
    });
    for (key, words) in fitting.chain(&HELP_AND_QUIT) {
        pen.put(key, theme.accent())
            .skip(1)
            .put(words, theme.dim())
            .skip(2);
    }
}

/// Draws the keys over the lists.
fn draw_help(buffer: &mut Buffer, theme: Theme, app: &ClusterApp) {
    let (columns, rows) = app.size;
    let width = HELP_WIDTH.min(columns);
    let lines = u16::try_from(KEYS.len()).unwrap_or(u16::MAX);
    let height = (lines + 2).min(rows);
    let area = Area {
        x: (columns - width) / 2,
        y: (rows - height) / 2,
        width,
        height,
    };
    ratatui::widgets::Clear.render(rect(area), buffer);
    frame::draw(buffer, theme, area, true);
    frame::title(buffer, theme, area, "Keys and cells");
    let inner = area.inner();
    for (row, (key, words)) in (0..inner.height).zip(KEYS) {
        if let Some(mut pen) = Pen::at(buffer, inner, row) {
            pen.cell(key, HELP_KEYS, Align::Left, theme.accent())
                .skip(1)
                .rest(words, theme.text());
        }
    }
}
