//! Draws memory over time: of the GPU or process under the cursor, and on a wide screen of both,
//! side by side.
//!
//! A GPU is drawn as a stack of its processes, a process as a stack of PyTorch's parts where its
//! allocator stats are known. [`axes`] and [`time_axis`] draw the labels and lines around them,
//! [`forecast`] the future of a leak.

mod areas;
pub(super) mod axes;
mod dots;
mod forecast;
mod lists;
mod load;
mod stack;
mod time_axis;

use ratatui::buffer::Buffer;
use ratatui::style::Style;

use self::axes::Level;
use super::pen::Pen;
use super::theme::Theme;
use crate::app::App;
use crate::app::graph::panel::{self, Panel};
use crate::app::layout::Area;
use crate::base::units::{Bytes, Elapsed, Moment};
use crate::model::{Curve, GpuHistory, GpuOrProcess, HostModel, MemoryHistory};
use crate::output::labels;
use crate::output::labels::growth::full_between;

/// The least width of a graph whose head says that it shows memory.
const HEAD_WITH_MEMORY: u16 = 76;

/// The least width of a graph whose head has the clock time of the cursor.
const HEAD_WITH_CLOCK: u16 = 90;

/// Draws every graph on the screen, and the lists below the graph over the whole screen.
pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, body: Area) {
    draw_panels(buffer, theme, app);
    if let Some(subject) = app.modes.graph() {
        lists::draw(buffer, theme, app, subject, panel::whole_screen(body).1);
    }
}

/// Draws every graph on the screen.
pub(super) fn draw_panels(buffer: &mut Buffer, theme: Theme, app: &App) {
    for panel in app.panels() {
        draw_one(buffer, theme, app, &panel);
    }
}

fn draw_one(buffer: &mut Buffer, theme: Theme, app: &App, panel: &Panel) {
    let Some(model) = app.fleet().host(panel.subject.host) else {
        return;
    };
    let now = model.now();
    let Some(series) = model.series(&panel.subject.subject) else {
        return;
    };
    head(buffer, theme, app, model, panel, series);
    let is_known = series.peak.is_some();
    if let Some(mut pen) = Pen::at(buffer, panel.plot, panel.plot.height / 2).filter(|_| !is_known)
    {
        pen.put(
            "its memory is not known, so there is nothing to draw",
            theme.dim(),
        );
    }
    let clock = model.wall_clock();
    time_axis::draw(buffer, theme, panel, clock, now);
    let cursor = app.graph.cursor();
    match &panel.subject.subject {
        GpuOrProcess::Gpu(uuid) => stack::draw_gpu(buffer, theme, app, uuid, panel),
        GpuOrProcess::Process(_) => {
            stack::draw_process(buffer, theme, model, panel, series, cursor);
        }
    }
    load::draw(buffer, theme, model, panel, cursor.unwrap_or(now));
    let capacity = panel.capacity.map(|amount| Level {
        amount,
        name: format!("capacity {amount}"),
        is_capacity: true,
        style: theme.text(),
    });
    let peak = series.peak.map(|amount| Level {
        amount,
        name: format!("peak {amount}"),
        is_capacity: false,
        style: theme.dim(),
    });
    let levels = [capacity, peak];
    let past = Area {
        width: panel.past,
        ..panel.plot
    };
    levels
        .iter()
        .flatten()
        .for_each(|level| level.line(buffer, panel, past));
    axes::marks(buffer, theme, panel, &app.marks.list);
    if let Some(x) = cursor.and_then(|at| panel.column(at)) {
        axes::vertical_line(buffer, theme.accent(), panel, x);
    }
    let named_rows: Vec<u16> = levels
        .iter()
        .flatten()
        .filter_map(|level| level.name(buffer, panel))
        .collect();
    // Amounts beside an empty graph would look like a reading of 0.
    if is_known {
        axes::amounts(buffer, theme, panel, &named_rows);
    }
    if let Some(capacity) = panel
        .capacity
        .filter(|capacity| panel.scale.is_below(*capacity))
    {
        axes::capacity_above(buffer, theme, panel, capacity);
    }
    axes::events(buffer, theme, model, panel);
    forecast::draw(buffer, theme, panel, clock, now);
    axes::names(buffer, theme, panel, &app.marks.list);
}

/// Draws the line above the graph: the subject, the most important figures, and the span of time at
/// the right.
fn head(
    buffer: &mut Buffer,
    theme: Theme,
    app: &App,
    model: &HostModel,
    panel: &Panel,
    series: &MemoryHistory,
) {
    let span = labels::period(panel.span);
    let width = u16::try_from(span.len() + 2).unwrap_or(u16::MAX);
    let has_room = panel.area.width > width + 30;
    if let Some(mut pen) = Pen::at(buffer, panel.area, 0).filter(|_| has_room) {
        pen.tab_from_end(span.len()).put(span, theme.dim());
    }
    let left = Area {
        width: panel.area.width - if has_room { width } else { 0 },
        ..panel.area
    };
    let Some(mut pen) = Pen::at(buffer, left, 0) else {
        return;
    };
    let on_host = if app.fleet().has_many() {
        format!("{}: ", app.fleet().name(panel.subject.host))
    } else {
        String::new()
    };
    let title = labels::subject(model, &panel.subject.subject).unwrap_or_default();
    let memory = if panel.area.width < HEAD_WITH_MEMORY {
        ""
    } else {
        " memory"
    };
    pen.put(format!("{on_host}{title}{memory}"), theme.accent())
        .skip(2);
    if let Some(range) = panel.scale.zoomed() {
        figure(
            &mut pen,
            theme,
            "",
            &format!("zoomed: {range}"),
            theme.notable(),
        );
    }
    match app.graph.cursor() {
        Some(at) => under_cursor(&mut pen, theme, model, panel, at),
        None => figures(&mut pen, theme, app, model, panel, series),
    }
}

/// Draws a name and a figure if both fit: a figure that is cut would read as another figure.
fn figure(pen: &mut Pen<'_>, theme: Theme, name: &str, text: &str, style: Style) {
    let gap = usize::from(!name.is_empty());
    if name.len() + gap + text.len() <= pen.room() {
        pen.put(name, theme.dim())
            .skip(gap)
            .put(text, style)
            .skip(2);
    }
}

/// Draws the figures of the present.
fn figures(
    pen: &mut Pen<'_>,
    theme: Theme,
    app: &App,
    model: &HostModel,
    panel: &Panel,
    series: &MemoryHistory,
) {
    held_memory(pen, theme, model, panel, series);
    if let Some(full) = panel.projection.and_then(|projection| projection.full) {
        let text = full_between(model.wall_clock(), model.now(), &full);
        figure(pen, theme, "", &format!(" {text} "), theme.alarm());
    }
    let lines = app.marks.lines(model, &panel.subject);
    if let [.., mark, present] = lines.as_slice()
        && let (Some(name), Some(change)) = (&mark.name, present.change(|memory| memory.held))
    {
        let text = format!("{} since {name}", labels::change(change));
        figure(pen, theme, "", &text, theme.accent());
    }
    // Where there is room for the legend, it has these figures.
    if let Some(split) = model
        .allocator_history(&panel.subject.subject)
        .filter(|_| panel.legend.width == 0)
        && let (Some(allocated), Some(reserved)) =
            (split.allocated.latest(), split.reserved.latest())
    {
        let unallocated = reserved.saturating_sub(allocated);
        for (name, bytes) in [("allocated", allocated), ("unallocated", unallocated)] {
            figure(pen, theme, name, &bytes.to_string(), theme.text());
        }
    }
    for (name, value) in [("peak", series.peak), ("at first", series.baseline())] {
        figure(pen, theme, name, &amount(value), theme.text());
    }
    if let (Some(first), Some(last), Some(began)) =
        (series.baseline(), series.latest(), series.began())
    {
        let change = labels::change(last.0.cast_signed() - first.0.cast_signed());
        let text = format!("{change:>9} in {}", Elapsed(series.end().since(began)));
        figure(pen, theme, "", &text, theme.text());
    }
}

/// Draws the memory in use now, or that of a process when it ended or released its GPU memory.
fn held_memory(
    pen: &mut Pen<'_>,
    theme: Theme,
    model: &HostModel,
    panel: &Panel,
    series: &MemoryHistory,
) {
    let latest = amount(series.latest());
    let gone = match &panel.subject.subject {
        GpuOrProcess::Process(id) => model
            .history()
            .process(*id)
            .and_then(|process| Some((*id, process.gone?))),
        GpuOrProcess::Gpu(_) => None,
    };
    let Some((id, gone)) = gone else {
        figure(pen, theme, "now", &format!("{latest:>8}"), theme.text());
        return;
    };
    let lives = model.latest().is_some_and(|snapshot| snapshot.lives(id));
    let verb = if lives { "let go" } else { "ended" };
    let ago = Elapsed(model.now().since(gone));
    let text = format!("{verb} {ago} ago, held {latest}");
    figure(pen, theme, "", &text, theme.dim());
}

fn amount(bytes: Option<Bytes>) -> String {
    bytes.map_or_else(|| "unknown".to_owned(), |bytes| bytes.to_string())
}

fn under_cursor(pen: &mut Pen<'_>, theme: Theme, model: &HostModel, panel: &Panel, at: Moment) {
    let now = model.now();
    let clock = model
        .wall_clock()
        .filter(|_| panel.area.width >= HEAD_WITH_CLOCK);
    let clock = clock.map_or_else(String::new, |clock| format!(", {}", clock.seconds(at, now)));
    pen.put(
        format!("at -{}{clock}", Elapsed(now.since(at))),
        theme.accent(),
    )
    .skip(2);
    let held = model
        .series(&panel.subject.subject)
        .and_then(|series| series.at(at, now));
    pen.put(amount(held.map(|range| range.high)), theme.text())
        .skip(2);
    let high = |curve: &Curve| curve.at(at, now).map(|range| range.high);
    let mut parts = Vec::new();
    match &panel.subject.subject {
        GpuOrProcess::Gpu(uuid) => {
            if let Some(gpu) = model.history().gpu(uuid) {
                parts.extend(high(&gpu.sm).map(|sm| format!("SM {sm}%")));
                parts.extend(high(&gpu.power).map(|watts| format!("{watts} W")));
                parts.extend(
                    high(&gpu.temperature).map(|value| format!("{}°C", GpuHistory::celsius(value))),
                );
            }
            // Where there is room for the legend, it has these figures.
            if panel.legend.width == 0 {
                parts.extend(
                    stack::memory_at(model, uuid, at)
                        .into_iter()
                        .map(|(name, held)| format!("{name} {held}")),
                );
            }
        }
        GpuOrProcess::Process(id) => {
            // Where there is room for the legend, it has these figures.
            if let Some(split) = model
                .allocator_history(&panel.subject.subject)
                .filter(|_| panel.legend.width == 0)
            {
                let held = |name: &str, bytes: Bytes| format!("{name} {bytes}");
                let at = |series: &MemoryHistory| series.at(at, now).map(|range| range.high);
                if let (Some(allocated), Some(reserved)) =
                    (at(&split.allocated), at(&split.reserved))
                {
                    parts.push(held("allocated", allocated));
                    parts.push(held("unallocated", reserved.saturating_sub(allocated)));
                }
            }
            if let Some(process) = model.history().process(*id) {
                parts.extend(high(&process.sm).map(|sm| format!("SM {sm}%")));
                parts.extend(
                    high(&process.rss).map(|kib| format!("RSS {}", Bytes::from_kib(kib.into()))),
                );
            }
        }
    }
    for part in parts {
        figure(pen, theme, "", &part, theme.text());
    }
}

#[cfg(test)]
mod tests;
