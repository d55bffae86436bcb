//! The layout of one graph: the areas of its parts, the time of each column, the amount of each
//! row, and the projection of a leak.
//!
//! ```text
//!  head                    the subject and its figures, or those at the moment under the cursor
//!  plot       │ projection the past, and the future if the growth continues
//!  events                  events, where there is room
//!  load                    use of the multiprocessors, power and temperature, where there is room
//!  time
//! ```

use std::time::Duration;

use super::scale::Scale;
use super::{GraphView, ZOOMS};
use crate::app::layout::Area;
use crate::base::units::{Bytes, Moment};
use crate::model::{
    Forecast, GpuOrProcess, Growing, HostModel, HostSubject, MemoryPart, MinMax, Rate, Window,
};
use crate::output::labels::growth::is_close;

pub(super) const TWO_GRAPHS: u16 = 150;

/// The width of the amounts at the left.
pub(crate) const AXIS: u16 = 11;

/// The width of the names of layers at the right, and of a graph that has room for them.
const LEGENDS: [(u16, u16); 2] = [(28, 100), (25, 76)];

/// The same for the processes of a GPU, whose names have the user and the PID: `alice 88109
/// train.py`.
const LEGEND_OF_PROCESSES: (u16, u16) = (34, 110);

/// Divides the body of the screen for the graph over the whole screen: the graph, and the lists
/// below.
pub(crate) fn whole_screen(body: Area) -> (Area, Area) {
    let lists = if body.height < 14 {
        0
    } else {
        (body.height / 4).clamp(6, 12)
    };
    let graph = Area {
        height: body.height - lists,
        ..body
    };
    (
        graph,
        Area {
            y: body.y + graph.height,
            height: lists,
            ..body
        },
    )
}

/// The shares of the plot that the past takes beside a forecast, as fractions: what has been seen
/// matters more.
const PAST_SHARES: [(u16, u16); 5] = [(5, 6), (3, 4), (2, 3), (1, 2), (1, 3)];

/// The place in [`PAST_SHARES`] of a forecast that ends beyond the plot.
const BEYOND: usize = 1;

/// Whether the future of memory that grows is drawn: that of a leak, and of other growth whose end is
/// urgent or well known.
fn may_be_projected(growing: &Growing) -> bool {
    let is_close = growing.evidence.forecast.as_ref().is_some_and(is_close);
    growing.is_leak() || growing.is_urgent() || is_close && !growing.is_loading
}

/// Whether memory of this host grows so that its future is drawn.
pub(in crate::app) fn has_forecast(model: &HostModel) -> bool {
    model.growing().iter().any(may_be_projected)
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Projection {
    pub rate: Rate,
    /// The memory in use now.
    pub now: Bytes,
    /// The memory that grows, and what stays beside it: all memory in use, or if the tensors'
    /// memory grows, its recent maximum and the memory that is not PyTorch's.
    pub from: Bytes,
    /// The amount at which memory runs out; `None` if it is not known.
    pub limit: Option<Bytes>,
    /// The time until memory runs out; `None` if it is not known or too far away.
    pub full: Option<Forecast>,
}

impl Projection {
    /// Returns the projection of a leak, and of other growth whose end is urgent or well known;
    /// `None` where nothing grows, while a process loads, and for ended processes.
    fn new(model: &HostModel, subject: &GpuOrProcess) -> Option<Self> {
        if matches!(subject, GpuOrProcess::Process(id) if model.process_total(*id).is_none()) {
            return None;
        }
        let grows = model
            .growing()
            .iter()
            .find(|growing| growing.subject == *subject)?;
        may_be_projected(grows).then_some(())?;
        let evidence = &grows.evidence;
        let growing = model.growth(subject)?;
        let (held, limit) = (model.series(subject)?.latest()?, limit(model, subject));
        let split = model
            .allocator_history(subject)
            .filter(|_| growing.part == Some(MemoryPart::Allocated));
        // A training step runs out of memory at its peak, so the projection continues the peaks.
        let parts = split.and_then(|split| split.top(model.now()).zip(split.reserved.latest()));
        // Tensors can grow into everything that PyTorch can allocate: memory of other libraries
        // stays.
        let from = parts.map_or(held, |(from, reserved)| {
            from + held.saturating_sub(reserved)
        });
        Some(Self {
            rate: evidence.rate,
            now: held,
            from,
            limit,
            full: evidence.forecast,
        })
    }

    /// Returns the shortest span of the past, of `least` at least, beside which the future reaches
    /// to the end of memory; `least` where none does. The old span stays while it fits.
    fn span_that_reaches(&self, least: Duration, old: Option<Duration>) -> Duration {
        let Some(full) = self.full else { return least };
        let spans = || {
            ZOOMS
                .into_iter()
                .map(Duration::from_mins)
                .filter(|span| *span >= least)
        };
        // Beside a past of a third of the plot, the future is twice as long.
        let needed = full.likely * 9 / 16;
        let Some(fresh) = spans().find(|span| *span >= needed) else {
            return least;
        };
        let next = spans().find(|span| *span > fresh);
        old.filter(|old| 2 * *old >= full.likely && (*old == fresh || Some(*old) == next))
            .unwrap_or(fresh)
    }

    /// Chooses one of the [`PAST_SHARES`] so that the future reaches to the end of memory, or
    /// [`BEYOND`] if none does. The past is `span` long. The old choice stays while it fits.
    fn past_share(&self, old: Option<usize>, span: Duration) -> usize {
        let Some(full) = self.full else { return BEYOND };
        let fits = |share: usize, time: Duration| {
            let (past, whole) = PAST_SHARES[share];
            time <= span * u32::from(whole - past) / u32::from(past)
        };
        let Some(fresh) = (0..PAST_SHARES.len()).find(|share| fits(*share, full.likely * 9 / 8))
        else {
            return BEYOND;
        };
        old.filter(|old| *old <= fresh + 1 && fits(*old, full.likely))
            .unwrap_or(fresh)
    }

    /// The memory in use after this time: by the earliest, the likeliest and the latest forecast,
    /// up to the limit. It stays as it is while tensors grow into memory that PyTorch has reserved.
    pub(crate) fn held(&self, after: Duration) -> [Bytes; 3] {
        let from = self.from;
        let most = self.limit.map_or(f64::MAX, Bytes::gib);
        let grown = |rate: f64| {
            let gib = (from.gib() + rate * after.as_secs_f64()).clamp(0.0, most.max(from.gib()));
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "never below 0"
            )]
            Bytes((gib * f64::from(1 << 30)) as u64).max(self.now)
        };
        let left = self.limit.map(|limit| limit.saturating_sub(from).gib());
        let paths = self.full.zip(left).map(|(full, left)| {
            [full.low, full.likely, full.high].map(|time| left / time.as_secs_f64().max(1.0))
        });
        paths
            .unwrap_or([self.rate.0 / f64::from(1 << 30); 3])
            .map(grown)
    }
}

/// The amount that a subject could hold: its own memory and the free memory of its GPUs; `None` if
/// either is not known.
fn limit(model: &HostModel, subject: &GpuOrProcess) -> Option<Bytes> {
    let GpuOrProcess::Process(id) = subject else {
        return capacity(model, subject);
    };
    let snapshot = model.latest()?;
    let gpus = snapshot
        .gpus_at(&model.process_total(*id)?.gpus)
        .map(|gpu| &gpu.load);
    let free: Option<Bytes> = gpus
        .map(|gpu| Some(gpu.memory_total.ok()?.saturating_sub(gpu.memory_used.ok()?)))
        .sum();
    Some(Bytes(
        free?.0.saturating_add(model.series(subject)?.latest()?.0),
    ))
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Panel {
    pub subject: HostSubject,
    pub area: Area,
    pub plot: Area,
    /// The area of the names of layers; its width is 0 when there is no room.
    pub legend: Area,
    /// The row of the events; `None` when there is no room.
    pub events: Option<u16>,
    /// The first row of the load.
    pub load: u16,
    /// The rows of use, of power and of temperature.
    pub load_rows: [u16; 3],
    pub time: u16,
    /// The past that the graph shows: a part for each of its columns.
    pub window: Window,
    /// The span of the past.
    pub span: Duration,
    /// The columns of the plot for the past. Those at their right are for the future.
    pub past: u16,
    /// The place in [`PAST_SHARES`].
    past_share: usize,
    /// `None` when nothing leaks, or the graph shows the past only.
    pub projection: Option<Projection>,
    pub scale: Scale,
    /// All memory of the GPU, or of the GPUs of the process; `None` when it is not known.
    pub capacity: Option<Bytes>,
}

impl Panel {
    /// Lays out a graph, which was `old` before; `None` when there is no room, or nothing to show.
    pub(super) fn new(
        model: &HostModel,
        graph_view: &GraphView,
        subject: HostSubject,
        area: Area,
        old: Option<&Self>,
    ) -> Option<Self> {
        model.series(&subject.subject)?;
        let has_events = area.height >= 9;
        let load_rows = load_rows(area.height, graph_view.load.rows());
        let below = 1 + u16::from(has_events) + load_rows.into_iter().sum::<u16>();
        let legend = legend_width(model, &subject.subject, area.width);
        let plot = plot_area(area, legend, below)?;
        // A graph of the past has no forecast, and neither has one of the amounts in use only.
        let is_zoomed = graph_view.is_zoomed;
        let is_ahead = graph_view.still.is_none() && !is_zoomed;
        let projection = Projection::new(model, &subject.subject).filter(|_| is_ahead);
        let old_span = old.map(|old| old.span);
        let span = match (&projection, graph_view.chosen_span) {
            (Some(projection), None) => {
                projection.span_that_reaches(graph_view.span_without_forecast(), old_span)
            }
            _ => graph_view.span_without_forecast(),
        };
        let old_share = old.map(|old| old.past_share);
        let past_share = projection.map_or(0, |projection| projection.past_share(old_share, span));
        let (share, whole) = PAST_SHARES[past_share];
        let past = if projection.is_some() {
            plot.width * share / whole
        } else {
            plot.width
        };
        let end = graph_view.still.map_or(model.now(), |still| still.end);
        let window = Window::until(end, span, usize::from(past));
        let capacity = capacity(model, &subject.subject);
        let (low, high) = range_in(model, &subject.subject, &window);
        let to_come = projection.map(|projection| {
            let end = window.part() * u32::from(plot.width - past);
            projection
                .held(end)
                .into_iter()
                .fold(projection.from, Bytes::max)
        });
        let high = high.max(to_come.unwrap_or_default());
        let is_gpu = matches!(subject.subject, GpuOrProcess::Gpu(_));
        let top = capacity.filter(|capacity| !is_zoomed && (is_gpu || high.0 >= capacity.0 / 4));
        let scale = Scale::settle(
            old.map(|old| old.scale),
            low,
            top.map_or(high, |top| high.max(top)),
            !is_zoomed,
            plot.height,
        );
        let below = plot.y + plot.height;
        Some(Self {
            subject,
            area,
            plot,
            legend: Area {
                x: plot.x + plot.width,
                width: legend,
                ..plot
            },
            events: has_events.then_some(below),
            load: below + u16::from(has_events),
            load_rows,
            time: area.y + area.height - 1,
            window,
            span,
            past,
            past_share,
            projection,
            scale,
            capacity,
        })
    }

    /// The column of a moment; `None` when the graph does not show it.
    pub(crate) fn column(&self, at: Moment) -> Option<u16> {
        Some(self.plot.x + u16::try_from(self.window.place(at)?).ok()?)
    }

    /// The moment at which the time of a column begins; `None` outside of the past.
    pub(in crate::app) fn moment(&self, x: u16) -> Option<Moment> {
        let cell = usize::from(x.checked_sub(self.plot.x)?);
        (cell < self.window.parts()).then(|| self.window.moment(cell))
    }
}

/// Divides the rows that a graph of this height has for its load, of which it shows this many
/// figures. Use has as much as a third of a high graph, because it moves where memory is steady;
/// power and temperature have a row each, or two.
fn load_rows(height: u16, figures: u16) -> [u16; 3] {
    let mut room = height.saturating_sub(10);
    let others = if height >= 20 { 2 } else { 1 };
    let mut rows = [(height / 3).max(others), others, others];
    for (number, rows) in (0..).zip(&mut rows) {
        *rows = if number < figures {
            (*rows).min(room)
        } else {
            0
        };
        room -= *rows;
    }
    rows
}

/// Returns the area of the plot beside its axis and legend; `None` when there is no room. `below`
/// is the number of rows below the plot.
fn plot_area(area: Area, legend: u16, below: u16) -> Option<Area> {
    let plot = Area {
        x: area.x + AXIS,
        y: area.y + 1,
        width: area.width.checked_sub(AXIS + legend)?,
        height: area.height.checked_sub(1 + below)?,
    };
    (plot.width >= 4 && plot.height >= 2).then_some(plot)
}

/// Returns the width of the names of layers; 0 when there are none, or no room.
fn legend_width(model: &HostModel, subject: &GpuOrProcess, width: u16) -> u16 {
    let is_gpu = matches!(subject, GpuOrProcess::Gpu(_));
    let has_layers = is_gpu
        || model.allocator_history(subject).is_some()
        || model.tensor_history(subject).is_some();
    let fits = |(_, room): &(u16, u16)| has_layers && width >= *room;
    let widest = is_gpu.then_some(LEGEND_OF_PROCESSES);
    let mut legends = widest.into_iter().chain(LEGENDS);
    legends.find(fits).map_or(0, |(width, _)| width)
}

/// Returns the lowest and the highest amount of memory that the graph has to show of the past.
fn range_in(model: &HostModel, subject: &GpuOrProcess, window: &Window) -> (Bytes, Bytes) {
    let now = model.now();
    let held = model.series(subject).and_then(|series| {
        series
            .over(window, now)
            .into_iter()
            .flatten()
            .reduce(MinMax::with)
    });
    let (low, high) = held.map_or((Bytes(0), Bytes(0)), |held| (held.low, held.high));
    // The memory of tensors, the lowest part of a process, changes most.
    let split = model.allocator_history(subject);
    let tensors = split
        .iter()
        .flat_map(|split| split.allocated.over(window, now))
        .flatten();
    (tensors.map(|range| range.low).fold(low, Bytes::min), high)
}

fn capacity(model: &HostModel, subject: &GpuOrProcess) -> Option<Bytes> {
    let total = |uuid| model.latest()?.gpu(uuid)?.load.memory_total.ok();
    match subject {
        GpuOrProcess::Gpu(uuid) => total(uuid),
        GpuOrProcess::Process(id) => model
            .history()
            .process(*id)?
            .parts
            .iter()
            .map(|(uuid, _)| total(uuid))
            .sum(),
    }
}
