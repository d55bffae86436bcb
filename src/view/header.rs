//! Draws the first line: the hosts, their load, warnings, and why no data comes from a host.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use super::pen::Pen;
use super::theme::Theme;
use crate::app::App;
use crate::app::fleet::troubles::TroubleWords;
use crate::app::layout::Area;
use crate::app::lists::columns::Align;
use crate::app::lists::gpu_cells::short_name;
use crate::app::lists::gpu_list::gpu_rows;
use crate::base::units::{Bytes, Percent};
use crate::model::{HostModel, Severity, Verdict};
use crate::output::labels::{visible_gpus, word};
use crate::protocol::host_key::HostKey;
use crate::protocol::snapshot::{Reading, Snapshot};

/// The least width of the host's name beside warnings.
const NAME: usize = 8;

pub(super) const SIMULATED: &str = " SIMULATED MACHINE ";

/// The widths of a clock with two spaces before it, and of its hour and minute alone.
const CLOCK: usize = "  03:41:12".len();
const HOUR_AND_MINUTE: usize = "03:41".len();

/// A screen of this width shows the time, even if a warning is cut for it.
const WITH_CLOCK: u16 = 80;

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let Some(mut pen) = Pen::at(buffer, area, 0) else {
        return;
    };
    pen.put("gputop", theme.accent()).skip(1);
    replay_and_recording(&mut pen, theme, app);
    if let Some((words, style)) = silence(theme, app) {
        pen.put(words, style);
        return;
    }
    let fleet = app.fleet();
    let is_simulated = gpu_rows(fleet).any(|row| row.gpu.facts.simulated);
    let troubles = troubles(theme, app);
    let warnings = warnings(theme, app);
    // A long name gives way to the warnings.
    let name = host_names(app);
    let wanted_by = |texts: &[(String, Style)]| {
        texts
            .iter()
            .map(|(words, _)| 2 + words.width())
            .sum::<usize>()
    };
    let (of_troubles, wanted) = (wanted_by(&troubles), wanted_by(&warnings));
    let fits = |pen: &Pen<'_>, others: usize| {
        others + NAME.min(name.width()) + of_troubles + wanted <= pen.room()
    };
    let simulated = match is_simulated {
        true if fits(&pen, SIMULATED.len() + 2 + CLOCK) => SIMULATED,
        true => " SIMULATED ",
        false => "",
    };
    // The clock shrinks before a warning is cut, and goes last.
    if let Some(clock) = app.time_of_day() {
        let clocks = [
            clock.as_str(),
            clock.get(..HOUR_AND_MINUTE).unwrap_or(&clock),
        ];
        let fitting = clocks
            .into_iter()
            .find(|clock| fits(&pen, simulated.len() + 4 + clock.len()));
        if let Some(clock) = fitting.or((area.width >= WITH_CLOCK).then_some(clocks[1])) {
            pen.put_at_end(clock, theme.text());
        }
    }
    // Troubles come first.
    for (words, style) in &troubles {
        pen.skip(1).badge(words, *style).skip(1);
    }
    pen.skip(usize::from(!troubles.is_empty()));
    if is_simulated {
        pen.put(simulated, theme.head()).skip(2);
    }
    let room = pen.room().saturating_sub(wanted).max(NAME);
    pen.cell(&name, room.min(name.width()), Align::Left, theme.text());
    for (words, style) in warnings {
        // A few letters say nothing.
        if pen.room() > 2 + NAME || pen.room() >= 2 + words.width() {
            pen.skip(2).badge(&words, style);
        }
    }
    let mut hosts = shown_hosts(app);
    if let (Some((_, model)), None) = (hosts.next(), hosts.next())
        && let Some(snapshot) = model.latest()
    {
        figures(&mut pen, theme, snapshot);
    }
}

/// Draws the state of the replay and of the recording that the user started.
pub(super) fn replay_and_recording(pen: &mut Pen<'_>, theme: Theme, app: &App) {
    if let Some(replay) = &app.replay {
        pen.put(replay.words(), theme.badge()).skip(2);
    }
    if let Some(recording) = &app.active_recording {
        let style = if recording.is_paused() {
            theme.alarm()
        } else {
            theme.badge()
        };
        pen.put(recording.words(), style).skip(2);
    }
}

/// Returns the words about the first trouble and about the others.
fn troubles(theme: Theme, app: &App) -> Vec<(String, Style)> {
    let badge = |trouble: TroubleWords| {
        (
            format!(" {} ", trouble.text),
            theme.severity(trouble.severity),
        )
    };
    let first = app.named_trouble().map(badge);
    let others = app.other_troubles().map(badge);
    first.into_iter().chain(others).collect()
}

/// The hosts that the lists show.
fn shown_hosts(app: &App) -> impl Iterator<Item = (HostKey, &HostModel)> {
    let hosts = app.fleet().hosts();
    hosts.filter(|(host, _)| app.processes.view.shows(*host))
}

fn host_names(app: &App) -> String {
    let names: Vec<String> = shown_hosts(app)
        .map(|(host, _)| app.fleet().both_names(host))
        .collect();
    if names.len() > 1 {
        format!("{} hosts: {}", names.len(), names.join(", "))
    } else {
        names.concat()
    }
}

/// The words instead of the line while the only host has no data.
fn silence(theme: Theme, app: &App) -> Option<(String, Style)> {
    let fleet = app.fleet();
    if fleet.has_many() {
        return None;
    }
    if let Some((host, _)) = app.troubles().next() {
        let words = app.silence_words(host).unwrap_or_default();
        // The words about another host say when it is tried again.
        let hint = if app.is_other_host(host) {
            ""
        } else {
            " (Ctrl-R starts a new one)"
        };
        return Some((format!("{words}{hint}"), theme.alarm()));
    }
    let is_starting = fleet.hosts().all(|(_, model)| model.latest().is_none());
    is_starting.then(|| ("starting…".to_owned(), theme.dim()))
}

/// Draws the figures of the only host, as far as there is room.
fn figures(pen: &mut Pen<'_>, theme: Theme, snapshot: &Snapshot) {
    gpus(pen, theme, snapshot);
    load(pen, theme, snapshot);
    driver(pen, theme, snapshot);
    let every = format!("every {:?}", Duration::from_millis(snapshot.interval_ms));
    if pen.room() >= 2 + every.len() {
        pen.put_at_end(&every, theme.dim());
    }
}

/// Draws how many GPUs there are, and the memory in use on all of them.
fn gpus(pen: &mut Pen<'_>, theme: Theme, snapshot: &Snapshot) {
    let whole = snapshot
        .gpus
        .iter()
        .filter(|gpu| gpu.facts.parent.is_none());
    let count = whole.clone().count();
    let used: Reading<Bytes> = whole.clone().map(|gpu| gpu.load.memory_used).sum();
    let total: Reading<Bytes> = whole.map(|gpu| gpu.load.memory_total).sum();
    let mut models = whole_names(snapshot);
    let first = models.next();
    let is_uniform = first.is_some() && models.all(|name| Some(name) == first);
    let noun = match first.filter(|_| is_uniform) {
        Some(model) => short_name(model),
        None if count == 1 => "GPU",
        None => "GPUs",
    };
    let count = if is_uniform {
        format!("{count}× {noun}")
    } else {
        format!("{count} {noun}")
    };
    let memory = used_of_total(used, total);
    // The load of the host needs its room too.
    if used.is_ok() && pen.room() > 60 {
        pen.skip(2)
            .put(count, theme.dim())
            .skip(1)
            .put(memory, theme.text());
    }
}

/// The model names of the whole GPUs; of those that have one.
fn whole_names(snapshot: &Snapshot) -> impl Iterator<Item = &str> {
    let whole = snapshot
        .gpus
        .iter()
        .filter(|gpu| gpu.facts.parent.is_none());
    whole.filter_map(|gpu| Some(gpu.facts.name.as_ref().ok()?.as_str()))
}

fn driver(pen: &mut Pen<'_>, theme: Theme, snapshot: &Snapshot) {
    if !snapshot.driver.failures.is_empty() && pen.room() > 12 {
        pen.skip(2).put("driver ERR", theme.notable());
    } else if pen.room() > 40 {
        if let Some(version) = &snapshot.driver.version {
            pen.skip(2).put(format!("driver {version}"), theme.dim());
        }
        if let Some(version) = &snapshot.driver.cuda_version {
            pen.put(format!(" CUDA {version}"), theme.dim());
        }
    }
}

/// The words after the troubles: what loads, what the user watches, and processes that hold memory
/// but should not.
fn warnings(theme: Theme, app: &App) -> Vec<(String, Style)> {
    let loading = app.loading().map(|loading| (loading, theme.dim()));
    let news = app
        .alerts
        .news()
        .map(|news| (news.to_owned(), theme.notable()));
    let fleet = app.fleet();
    let clock = shown_hosts(app).find_map(|(host, _)| {
        let difference = app.clock_difference(host)?;
        let words = if fleet.must_be_named(host) {
            format!("{}: {difference}", fleet.name(host))
        } else {
            difference
        };
        Some((words, theme.notable()))
    });
    let summaries = shown_hosts(app)
        .filter(|(host, _)| !app.names_leftovers_of(*host))
        .filter_map(|(host, model)| {
            let summary = Verdict::summary(model.verdicts())?;
            let summary = if fleet.has_many() {
                format!("{}: {summary}", fleet.name(host))
            } else {
                summary
            };
            // The summary has the style of the worst verdict.
            let severities = model
                .verdicts()
                .iter()
                .filter(|verdict| verdict.is_on_gpu())
                .map(Verdict::severity);
            Some((
                format!(" {summary} "),
                theme.severity(severities.max().unwrap_or(Severity::Bad)),
            ))
        });
    let sees_some = shown_hosts(app).find_map(|(host, model)| {
        let words = visible_gpus::sees_some(model.latest()?)?;
        let words = if fleet.has_many() {
            format!("{} {words}", fleet.name(host))
        } else {
            words
        };
        Some((words, theme.notable()))
    });
    [loading, news, clock, sees_some]
        .into_iter()
        .flatten()
        .chain(summaries)
        .collect()
}

fn load(pen: &mut Pen<'_>, theme: Theme, snapshot: &Snapshot) {
    // A figure that is cut would read as another figure.
    const LABEL: usize = "  CPU ".len();
    let load = &snapshot.host.load;
    if pen.room() < LABEL + Percent::WIDTH {
        return;
    }
    pen.skip(2).put("CPU ", theme.dim());
    pen.cell(word(load.cpu), Percent::WIDTH, Align::Right, theme.text());
    if pen.room() > 60
        && let Ok([one, five, fifteen]) = load.load
    {
        pen.skip(2).put("load ", theme.dim());
        // Values from 1 to 1000 have the same width, so the rest of the line does not move.
        let places = |load: f64| if load < 99.995 { 2 } else { 1 };
        for (place, load) in [one, five, fifteen].into_iter().enumerate() {
            pen.skip(place.min(1))
                .put(format!("{load:>5.*}", places(load)), theme.text());
        }
    }
    let memory = used_of_total(load.memory_used, load.memory_total);
    if pen.room() < LABEL + memory.len() {
        return;
    }
    pen.skip(2)
        .put("mem ", theme.dim())
        .put(memory, theme.text());
    if let (Ok(used), Ok(Bytes(1..))) = (load.swap_used, load.swap_total)
        && pen.room() > 50
    {
        pen.skip(2)
            .put("swap ", theme.dim())
            .put(used.to_string(), theme.text());
    }
}

fn used_of_total(part: Reading<Bytes>, whole: Reading<Bytes>) -> String {
    match (part, whole) {
        (Ok(part), Ok(whole)) => {
            let whole = format!("{:.0}", whole.gib());
            format!(
                "{:>width$.1}/{whole} GiB",
                part.gib(),
                width = whole.len() + 2
            )
        }
        (part, _) => word(part),
    }
}
