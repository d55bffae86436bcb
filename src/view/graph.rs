//! Draws memory over time: of the GPU or process under the cursor, and on a wide screen of both, side by side.
//!
//! A GPU is drawn as a stack of its processes. A process is drawn as a curve, or as a stack of PyTorch's parts where
//! its allocator stats are known. [`axes`] draws the labels and lines around them.

mod axes;
mod dots;
mod lists;
mod stack;

use ratatui::buffer::Buffer;
use ratatui::style::Style;

use self::axes::Level;
use self::dots::Dots;
use super::pen::Pen;
use super::theme::Theme;
use crate::app::App;
use crate::app::graph::panel::{self, Panel};
use crate::app::labels;
use crate::app::layout::Area;
use crate::base::text::Text;
use crate::base::units::{Bytes, Elapsed, Moment};
use crate::model::{Curve, GpuHistory, GpuOrProcess, HostModel, MemoryHistory};
use crate::protocol::snapshot::{ProcessId, Reading};

/// Draws every graph on the screen, and the lists below the graph over the whole screen.
pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, body: Area) {
    for panel in app.panels() {
        draw_one(buffer, theme, app, &panel);
    }
    if let Some(subject) = app.modes.graph() {
        lists::draw(buffer, theme, app, subject, panel::whole_screen(body).1);
    }
}

/// `4711 python`, or only the PID if the name is not known.
fn name_of(id: ProcessId, name: &Reading<Text>) -> String {
    name.as_ref().map_or_else(|_| id.pid.to_string(), |name| format!("{} {name}", id.pid))
}

fn title(model: &HostModel, subject: &GpuOrProcess) -> Option<String> {
    Some(match subject {
        GpuOrProcess::Gpu(uuid) => {
            let gpu = model.latest()?.gpu(uuid)?;
            format!("GPU {} memory", labels::gpu_label(gpu))
        }
        GpuOrProcess::Process(id) => {
            let process = model.history().process(*id)?;
            format!("{} memory", name_of(*id, &process.name))
        }
    })
}

fn draw_one(buffer: &mut Buffer, theme: Theme, app: &App, panel: &Panel) {
    let Some(model) = app.fleet().host(panel.subject.host) else { return };
    let now = model.now();
    let Some(series) = model.series(&panel.subject.subject) else { return };
    head(buffer, theme, app, model, panel, series);
    // Amounts beside an empty graph would look like a reading of 0.
    if series.peak.is_some() {
        axes::amounts(buffer, theme, panel);
    } else if let Some(mut pen) = Pen::at(buffer, panel.plot, panel.plot.height / 2) {
        pen.put("its memory is not known, so there is nothing to draw", theme.dim());
    }
    axes::time(buffer, theme, panel, now);
    let baseline = series.baseline().filter(|_| matches!(panel.subject.subject, GpuOrProcess::Process(_)));
    let levels = [
        (panel.capacity, "capacity", theme.notable()),
        (series.peak, "peak", theme.dim()),
        (baseline, "baseline", theme.dim()),
    ];
    let levels = levels.map(|(amount, name, style)| amount.map(|amount| Level { amount, name, style }));
    levels.iter().flatten().for_each(|level| level.line(buffer, panel));
    // Drawn before the curves, which cover the marks, and over the fillings.
    axes::marks(buffer, theme, panel, &app.marks.list);
    if let Some(x) = app.graph.cursor().and_then(|at| panel.column(at)) {
        axes::upright(buffer, theme.accent(), panel, x);
    }
    match &panel.subject.subject {
        GpuOrProcess::Gpu(uuid) => {
            stack::draw(buffer, theme, model, uuid, panel, app.graph.cursor());
            if let Some(gpu) = model.history().gpu(uuid) {
                axes::work(buffer, theme, panel, &gpu.sm, now);
            }
        }
        GpuOrProcess::Process(id) => {
            match model.allocator_history(&panel.subject.subject) {
                Some(split) => stack::draw_parts(buffer, theme, model, panel, series, split, app.graph.cursor()),
                None => curve(buffer, theme, panel, series, now),
            }
            if let Some(process) = model.history().process(*id) {
                axes::work(buffer, theme, panel, &process.sm, now);
            }
        }
    }
    axes::projection(buffer, theme, panel);
    levels.iter().flatten().for_each(|level| level.name(buffer, panel));
    axes::events(buffer, theme, model, panel);
    axes::names(buffer, theme, panel, &app.marks.list);
}

/// Draws the line above the graph: the subject, the most important figures, and the span of time at the right.
fn head(buffer: &mut Buffer, theme: Theme, app: &App, model: &HostModel, panel: &Panel, series: &MemoryHistory) {
    let span = axes::words(app.graph_span().as_secs());
    let (span, style) = match app.graph.still {
        Some(_) => (format!("{span}, still (Esc: now)"), theme.notable()),
        None => (span, theme.dim()),
    };
    let width = u16::try_from(span.len() + 2).unwrap_or(u16::MAX);
    let has_room = panel.area.width > width + 30;
    if let Some(mut pen) = Pen::at(buffer, panel.area, 0).filter(|_| has_room) {
        pen.tab_from_end(span.len()).put(span, style);
    }
    let left = Area { width: panel.area.width - if has_room { width } else { 0 }, ..panel.area };
    let Some(mut pen) = Pen::at(buffer, left, 0) else { return };
    let on_host =
        if app.fleet().has_many() { format!("{}: ", app.fleet().name(panel.subject.host)) } else { String::new() };
    let title = title(model, &panel.subject.subject).unwrap_or_default();
    pen.put(format!("{on_host}{title}"), theme.head()).skip(2);
    match app.graph.cursor() {
        Some(at) => under_cursor(&mut pen, theme, model, panel, at),
        None => figures(&mut pen, theme, app, model, panel, series),
    }
}

/// Draws a name and a figure if both fit: a figure that is cut would read as another figure.
fn figure(pen: &mut Pen<'_>, theme: Theme, name: &str, text: &str, style: Style) {
    let gap = usize::from(!name.is_empty());
    if name.len() + gap + text.len() <= pen.room() {
        pen.put(name, theme.dim()).skip(gap).put(text, style).skip(2);
    }
}

fn figures(pen: &mut Pen<'_>, theme: Theme, app: &App, model: &HostModel, panel: &Panel, series: &MemoryHistory) {
    let word = |bytes: Option<Bytes>| bytes.map_or_else(|| "unknown".to_owned(), |bytes| bytes.to_string());
    let now = model.now();
    let gone = match &panel.subject.subject {
        GpuOrProcess::Process(id) => model.history().process(*id).and_then(|process| Some((*id, process.gone?))),
        GpuOrProcess::Gpu(_) => None,
    };
    match gone {
        Some((id, gone)) => {
            let lives = model.latest().is_some_and(|snapshot| snapshot.lives(id));
            let what = if lives { "let go" } else { "ended" };
            let text = format!("{what} {} ago, held {}", Elapsed(now.since(gone)), word(series.latest()));
            figure(pen, theme, "", &text, theme.notable());
        }
        None => figure(pen, theme, "now", &format!("{:>8}", word(series.latest())), theme.text()),
    }
    if let Some(full) = panel.projection.and_then(|projection| projection.full) {
        let [low, likely, high] = [full.low, full.likely, full.high].map(Elapsed);
        figure(pen, theme, "", &format!("out of memory in {likely} ({low} to {high})"), theme.alarm());
    }
    let lines = app.marks.lines(model, &panel.subject);
    if let [.., mark, present] = lines.as_slice()
        && let (Some(name), Some(change)) = (&mark.name, present.since_last)
    {
        figure(pen, theme, "", &format!("{} since {name}", lists::signed(change)), theme.notable());
    }
    // Where there is room for the legend, it has these figures.
    if let Some(split) = model.allocator_history(&panel.subject.subject).filter(|_| panel.legend.width == 0)
        && let (Some(allocated), Some(reserved)) = (split.allocated.latest(), split.reserved.latest())
    {
        figure(pen, theme, "allocated", &allocated.to_string(), theme.text());
        figure(pen, theme, "unallocated", &reserved.saturating_sub(allocated).to_string(), theme.text());
    }
    for (name, value) in [("peak", series.peak), ("baseline", series.baseline())] {
        figure(pen, theme, name, &word(value), theme.text());
    }
    if let (Some(first), Some(last), Some(began)) = (series.baseline(), series.latest(), series.began()) {
        let change = format!("{:>9}", lists::signed(last.0.cast_signed() - first.0.cast_signed()));
        figure(pen, theme, "", &format!("{change} in {}", Elapsed(series.end().since(began))), theme.text());
    }
}

fn under_cursor(pen: &mut Pen<'_>, theme: Theme, model: &HostModel, panel: &Panel, at: Moment) {
    let now = model.now();
    pen.put(format!("at -{}", Elapsed(now.since(at))), theme.accent()).skip(2);
    let held = model.series(&panel.subject.subject).and_then(|series| series.at(at, now));
    let held = held.map_or_else(|| "unknown".to_owned(), |range| range.high.to_string());
    pen.put(held, theme.text()).skip(2);
    let high = |curve: &Curve| curve.at(at, now).map(|range| range.high);
    let mut parts = Vec::new();
    match &panel.subject.subject {
        GpuOrProcess::Gpu(uuid) => {
            if let Some(gpu) = model.history().gpu(uuid) {
                parts.extend(high(&gpu.sm).map(|sm| format!("SM {sm}%")));
                parts.extend(high(&gpu.power).map(|watts| format!("{watts} W")));
                parts.extend(high(&gpu.temperature).map(|value| format!("{}°C", GpuHistory::celsius(value))));
            }
            // Where there is room for the legend, it has these figures.
            if panel.legend.width == 0 {
                parts
                    .extend(stack::memory_at(model, uuid, at).into_iter().map(|(name, held)| format!("{name} {held}")));
            }
        }
        GpuOrProcess::Process(id) => {
            // Where there is room for the legend, it has these figures.
            if let Some(split) = model.allocator_history(&panel.subject.subject).filter(|_| panel.legend.width == 0) {
                let held = |name: &str, bytes: Bytes| format!("{name} {bytes}");
                let at = |series: &MemoryHistory| series.at(at, now).map(|range| range.high);
                if let (Some(allocated), Some(reserved)) = (at(&split.allocated), at(&split.reserved)) {
                    parts.push(held("allocated", allocated));
                    parts.push(held("unallocated", reserved.saturating_sub(allocated)));
                }
            }
            if let Some(process) = model.history().process(*id) {
                parts.extend(high(&process.sm).map(|sm| format!("SM {sm}%")));
                parts.extend(high(&process.rss).map(|kib| format!("RSS {}", Bytes::from_kib(kib.into()))));
            }
        }
    }
    for part in parts {
        figure(pen, theme, "", &part, theme.text());
    }
}

/// Draws the curve of one process: each column of dots spans the amounts of its time.
fn curve(buffer: &mut Buffer, theme: Theme, panel: &Panel, series: &MemoryHistory, now: Moment) {
    let mut dots = Dots::new(panel.plot);
    let mut before: Option<(usize, usize)> = None;
    for (x, part) in series.over(&panel.window, now).into_iter().enumerate() {
        let rows =
            part.map(|range| (dots.row(panel.scale.height(range.high)), dots.row(panel.scale.height(range.low))));
        if let Some((top, bottom)) = rows {
            // Neighbouring columns are joined, except where the amount is not known.
            let (top, bottom) = before.map_or((top, bottom), |(above, below)| (top.min(below), bottom.max(above)));
            dots.line(x, (top, bottom), theme.accent());
        }
        before = rows;
    }
    dots.draw(buffer);
}

#[cfg(test)]
mod tests;
