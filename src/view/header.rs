//! The first line: whose machine this is, how busy it is, and whether what follows is fresh.

use ratatui::buffer::Buffer;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use super::pen::Pen;
use super::theme::Theme;
use crate::app::App;
use crate::app::columns::Align;
use crate::app::layout::Area;
use crate::base::units::{Bytes, Elapsed, Percent};
use crate::model::{Severity, Verdict};
use crate::protocol::snapshot::{Reading, Snapshot};

/// So much of the machine's name stands there whatever else there is to say.
const NAME: usize = 8;

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let Some(mut pen) = Pen::at(buffer, area, 0) else { return };
    pen.put("gputop", theme.accent()).skip(1);
    let Some(snapshot) = app.model().latest() else {
        match app.lost() {
            Some(reason) => pen.put(format!("{reason} (R starts a new one)"), theme.alarm()),
            None => match app.silence() {
                Some(silence) => pen.put(format!("no word from the agent for {}", Elapsed(silence)), theme.alarm()),
                None => pen.put("starting…", theme.dim()),
            },
        };
        return;
    };
    if let Some(reason) = app.lost() {
        pen.put(format!("{reason} (R starts a new one)"), theme.alarm());
        return;
    }
    if let Some(silence) = app.silence() {
        pen.put(format!("no word from the agent for {} (R starts a new one)", Elapsed(silence)), theme.alarm());
        return;
    }
    if let Some(paused) = app.paused() {
        let words = format!("PAUSED: all of this is {} old (p goes on)", Elapsed(paused));
        pen.put(words, theme.alarm()).skip(2);
    }
    if snapshot.gpus.iter().any(|gpu| gpu.facts.simulated) {
        pen.put("SIMULATED MACHINE", theme.notable()).skip(2);
    }
    let warnings = warnings(theme, app);
    // The name of a machine may be long, and gives way to what one has to know.
    let name = snapshot.host.facts.name.as_str();
    let wanted: usize = warnings.iter().map(|(words, _)| 2 + words.width()).sum();
    let room = pen.room().saturating_sub(wanted).max(NAME);
    pen.cell(name, room.min(name.width()), Align::Left, theme.text());
    for (words, style) in warnings {
        // Half of a figure would read as another one.
        match pen.skip(2).room() {
            room if room < words.width() => pen.rest(words, style),
            _ => pen.put(words, style),
        };
    }
    load(&mut pen, theme, snapshot);
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
    let every = format!("every {:?}", app.interval());
    if pen.room() >= 2 + every.len() {
        pen.tab_from_end(every.len()).put(every, theme.dim());
    }
}

/// What one has to know, the most urgent first.
fn warnings(theme: Theme, app: &App) -> Vec<(String, Style)> {
    let leak = app.leak().map(|leak| (leak, theme.alarm()));
    let news = app.news().map(|news| (news.to_owned(), theme.notable()));
    let summary = Verdict::summary(app.model().verdicts()).map(|summary| {
        // As loud as the worst of them is on its line.
        let weights = app.model().verdicts().iter().filter(|it| it.is_on_gpu()).map(Verdict::severity);
        (summary, theme.severity(weights.max().unwrap_or(Severity::Bad)))
    });
    [leak, news, summary].into_iter().flatten().collect()
}

fn load(pen: &mut Pen<'_>, theme: Theme, snapshot: &Snapshot) {
    // What is cut would read as another figure.
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
        // Each has as many figures from 1 to 1000, and what follows stays where it is.
        let places = |load: f64| if load < 99.995 { 2 } else { 1 };
        for (at, load) in [one, five, fifteen].into_iter().enumerate() {
            pen.skip(at.min(1)).put(format!("{load:>5.*}", places(load)), theme.text());
        }
    }
    let memory = of(load.memory_used, load.memory_total);
    if pen.room() < LABEL + memory.len() {
        return;
    }
    pen.skip(2).put("mem ", theme.dim()).put(memory, theme.text());
    if let (Ok(used), Ok(Bytes(1..))) = (load.swap_used, load.swap_total)
        && pen.room() > 50
    {
        pen.skip(2).put("swap ", theme.dim()).put(used.to_string(), theme.text());
    }
}

fn of(part: Reading<Bytes>, whole: Reading<Bytes>) -> String {
    match (part, whole) {
        (Ok(part), Ok(whole)) => {
            let whole = format!("{:.0}", whole.gib());
            format!("{:>width$.1}/{whole} GiB", part.gib(), width = whole.len() + 2)
        }
        (part, _) => word(part),
    }
}

/// A reading, or why there is none.
pub(super) fn word(reading: Reading<impl ToString>) -> String {
    reading.map_or_else(|why| why.to_string(), |value| value.to_string())
}
