//! The plots of a page: one for each GPU with its processes stacked, and one for each process with
//! its parts stacked.

use super::plot::{Plot, PlotEvent, PlotForecast, PlotLayer, PlotPoint, PlotRow, RowPoint};
use super::words;
use crate::base::units::Bytes;
use crate::logs::recorded_run::{
    Decimated, Extremes, GpuRun, HostRun, LeakFound, LoadRange, Mean, MemoryLayer, ProcessKey,
    ProcessRun, RunSubject,
};
use crate::output::fill::Fill;

/// The bytes that all curves of a page may take.
const CURVE_BYTES: usize = 600_000;

/// The bytes that a point of one layer takes.
const POINT_BYTES: usize = 9;

/// The most and fewest buckets of a curve. A bucket has two points.
const MOST_BUCKETS: usize = 400;
const FEWEST_BUCKETS: usize = 40;

/// The most processes with a layer of their own in the plot of a GPU.
const MOST_LAYERS: usize = Fill::LAYERS;

/// The most events of one plot.
const MOST_EVENTS: usize = 200;

/// The recording's time divided by this is shown of a forecast that is longer than the recording.
const FORECAST_SHARE: u64 = 4;

/// How many buckets the curves of a page have, so that it stays small.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlotResolution {
    gpu: usize,
    process: usize,
}

impl PlotResolution {
    /// Returns the resolution of a page with this many GPUs and processes.
    pub(super) fn for_page(gpus: usize, processes: usize) -> Self {
        // A GPU has up to ten layers, and rows below; it gets twice the buckets of a process, with
        // four layers.
        let parts = gpus * 12 * 2 + processes * 5;
        let buckets = CURVE_BYTES / (POINT_BYTES * 2 * parts.max(1));
        let within = |buckets: usize| buckets.clamp(FEWEST_BUCKETS, MOST_BUCKETS);
        Self {
            gpu: within(buckets * 2),
            process: within(buckets),
        }
    }
}

/// Returns the plot of a GPU; `None` if its memory was never read.
pub(super) fn of_gpu(
    host: &HostRun,
    gpu: &GpuRun,
    id: String,
    resolution: PlotResolution,
) -> Option<Plot> {
    let curve = gpu.curve.reduced(resolution.gpu);
    (!curve.is_empty()).then_some(())?;
    let (layers, points) = layers_of_gpu(host, &curve);
    let leak = host
        .leaks
        .iter()
        .find(|leak| concerns_gpu(host, &leak.subject, gpu) && leak.is_current);
    let last = curve.iter().next_back().and_then(|(_, bucket)| {
        bucket
            .in_order()
            .last()
            .map(|sample| (sample.at, sample.kib))
    });
    let forecast = leak
        .zip(last)
        .and_then(|(leak, last)| forecast(leak, last, gpu.capacity));
    let peak = words::peak(&gpu.memory, gpu.capacity, host);
    Some(Plot {
        id,
        title: format!("Memory of GPU {}", gpu.label),
        description: format!("Memory in use over time, stacked by process. {peak}"),
        span: span(host, forecast.as_ref()),
        utc_offset: words::utc_offset(host),
        layers,
        points,
        capacity: gpu.capacity,
        forecast,
        events: events(host, |subject| concerns_gpu(host, subject, gpu)),
        rows: load_rows(gpu, resolution.gpu),
    })
}

/// Returns the layers of a GPU's plot: its largest processes, the others, and the memory that no
/// process is listed for.
fn layers_of_gpu(
    host: &HostRun,
    curve: &Decimated<Extremes<Vec<(ProcessKey, u32)>>>,
) -> (Vec<PlotLayer>, Vec<PlotPoint>) {
    let shown = largest_parts(curve);
    let mut layers: Vec<PlotLayer> = shown
        .iter()
        .enumerate()
        .map(|(rank, key)| PlotLayer {
            name: host.subject_name(&RunSubject::Process(*key)),
            fill: Fill::Layer(rank),
        })
        .collect();
    let amounts = |kib: u32, parts: &Vec<(ProcessKey, u32)>| {
        let of = |key: &ProcessKey| {
            parts
                .iter()
                .filter(|(part, _)| part == key)
                .map(|(_, kib)| *kib)
                .sum::<u32>()
        };
        let mut amounts: Vec<u32> = shown.iter().map(of).collect();
        let all: u32 = parts
            .iter()
            .fold(0, |sum, (_, kib)| sum.saturating_add(*kib));
        let others =
            all.saturating_sub(amounts.iter().fold(0, |sum, kib| sum.saturating_add(*kib)));
        amounts.extend([others, kib.saturating_sub(all)]);
        amounts
    };
    let mut points = points(curve, amounts);
    let others = [
        ("other processes", Fill::User(None)),
        ("of no listed process", Fill::Other),
    ];
    layers.extend(others.map(|(name, fill)| PlotLayer {
        name: name.to_owned(),
        fill,
    }));
    drop_empty_layers(&mut layers, &mut points);
    (layers, points)
}

/// Returns the rows below a GPU's plot.
fn load_rows(gpu: &GpuRun, buckets: usize) -> Vec<PlotRow> {
    let row = |name, top: f64, unit: &str, range: &LoadRange| row(name, top, unit, range, buckets);
    let highest = |range: &LoadRange| range.all.map_or(0.0, |all| f64::from(all.high));
    [
        row("SM", 100.0, "%", &gpu.sm),
        row(
            "power",
            gpu.power_limit
                .map_or(0.0, f64::from)
                .max(highest(&gpu.power)),
            "W",
            &gpu.power,
        ),
        row(
            "temp",
            highest(&gpu.temperature).max(60.0),
            "°C",
            &gpu.temperature,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the plot of a process; `None` if its memory was never read.
pub(super) fn of_process(
    host: &HostRun,
    key: ProcessKey,
    id: String,
    resolution: PlotResolution,
) -> Option<Plot> {
    let process = host.processes.get(&key)?;
    let curve = process.curve.reduced(resolution.process);
    (!curve.is_empty()).then_some(())?;
    let mut layers: Vec<PlotLayer> = MemoryLayer::ALL
        .iter()
        .map(|layer| PlotLayer {
            name: layer.to_string(),
            fill: fill(*layer),
        })
        .collect();
    let mut points = points(&curve, |_, parts| parts.to_vec());
    drop_empty_layers(&mut layers, &mut points);
    let subject = RunSubject::Process(key);
    let leak = host
        .leaks
        .iter()
        .find(|leak| leak.subject == subject && leak.is_current);
    let last = curve.iter().next_back().and_then(|(_, bucket)| {
        bucket
            .in_order()
            .last()
            .map(|sample| (sample.at, sample.kib))
    });
    let forecast = leak
        .zip(last)
        .and_then(|(leak, last)| forecast(leak, last, capacity(host, process)));
    let name = process.name_with_pid(key);
    Some(Plot {
        id,
        title: format!("Memory of {name}"),
        description: format!(
            "GPU memory over time by its parts. {}",
            words::peak(&process.memory, None, host)
        ),
        span: span(host, forecast.as_ref()),
        utc_offset: words::utc_offset(host),
        layers,
        points,
        capacity: None,
        forecast,
        events: events(host, |other| *other == subject),
        rows: row("SM", 100.0, "%", &process.sm, resolution.process)
            .into_iter()
            .collect(),
    })
}

/// Returns the fill of a layer, as in the graph of the process on the screen.
fn fill(layer: MemoryLayer) -> Fill {
    match layer {
        MemoryLayer::Tensors(layer) => Fill::of_layer(layer),
        MemoryLayer::Allocated | MemoryLayer::Undivided => Fill::Allocated,
        MemoryLayer::Other => Fill::Other,
    }
}

/// Returns the points of a curve, with the amounts of its layers.
fn points<P: Clone>(
    curve: &Decimated<Extremes<P>>,
    amounts: impl Fn(u32, &P) -> Vec<u32>,
) -> Vec<PlotPoint> {
    let mut points = Vec::new();
    for (_, bucket) in curve.iter() {
        for (number, sample) in bucket.in_order().enumerate() {
            let after_gap = number == 0 && bucket.after_gap;
            points.push(PlotPoint {
                at: sample.at,
                after_gap,
                amounts: amounts(sample.kib, &sample.parts),
            });
        }
    }
    points
}

/// Removes the layers without an amount.
fn drop_empty_layers(layers: &mut Vec<PlotLayer>, points: &mut [PlotPoint]) {
    /// Less than this is not visible.
    const LEAST_KIB: u32 = 1024;
    let is_used: Vec<bool> = (0..layers.len())
        .map(|layer| {
            points.iter().any(|point| {
                point
                    .amounts
                    .get(layer)
                    .is_some_and(|kib| *kib >= LEAST_KIB)
            })
        })
        .collect();
    let retain = |number: &mut usize| {
        *number += 1;
        is_used.get(*number - 1).copied().unwrap_or(false)
    };
    let mut number = 0;
    layers.retain(|_| retain(&mut number));
    for point in points {
        let mut number = 0;
        point.amounts.retain(|_| retain(&mut number));
    }
}

/// Returns the processes with the highest memory in a curve, the largest first.
fn largest_parts(curve: &Decimated<Extremes<Vec<(ProcessKey, u32)>>>) -> Vec<ProcessKey> {
    let mut peaks: Vec<(ProcessKey, u32)> = Vec::new();
    for (_, bucket) in curve.iter() {
        for (key, kib) in &bucket.high.parts {
            match peaks.iter_mut().find(|(known, _)| known == key) {
                Some((_, peak)) => *peak = (*peak).max(*kib),
                None => peaks.push((*key, *kib)),
            }
        }
    }
    peaks.sort_by_key(|(key, kib)| (std::cmp::Reverse(*kib), *key));
    peaks.truncate(MOST_LAYERS);
    peaks.into_iter().map(|(key, _)| key).collect()
}

/// Whether something happened to a GPU or to a process that used it.
fn concerns_gpu(host: &HostRun, subject: &RunSubject, gpu: &GpuRun) -> bool {
    match subject {
        RunSubject::Gpu(uuid) => *uuid == gpu.uuid,
        RunSubject::Process(key) => host
            .processes
            .get(key)
            .is_some_and(|process| process.gpus.contains(&gpu.uuid)),
    }
}

fn events(host: &HostRun, concerns: impl Fn(&RunSubject) -> bool) -> Vec<PlotEvent> {
    let events = host.events.iter().filter(|event| concerns(&event.subject));
    let mut events: Vec<PlotEvent> = events
        .map(|event| PlotEvent {
            at: event.at,
            label: words::event_label(host, event),
            sentence: format!("{}: {}", words::time(host, event.at), event.sentence),
            severity: event.severity,
        })
        .collect();
    // The worst of too many stay.
    if events.len() > MOST_EVENTS {
        events.sort_by_key(|event| (std::cmp::Reverse(event.severity), event.at));
        events.truncate(MOST_EVENTS);
        events.sort_by_key(|event| event.at);
    }
    events
}

/// Returns the times at both ends of a plot: those of the recording, and some more for a forecast.
fn span(host: &HostRun, forecast: Option<&PlotForecast>) -> (u64, u64) {
    let length = (host.ended - host.began).max(1000);
    let ended = host.began + length;
    let more = forecast.map_or(0, |forecast| {
        forecast.likely.saturating_sub(ended) * 21 / 20
    });
    // The end of a forecast that is far away is outside the plot.
    (
        host.began,
        ended
            + if more <= length {
                more
            } else {
                length / FORECAST_SHARE
            },
    )
}

fn forecast(leak: &LeakFound, from: (u64, u32), capacity: Option<Bytes>) -> Option<PlotForecast> {
    let forecast = leak.evidence.forecast?;
    let after = |span: std::time::Duration| {
        leak.until + u64::try_from(span.as_millis()).unwrap_or(u64::MAX / 4)
    };
    // The forecast ends where the memory of the GPU does; without its size, where the rate leads.
    let full = capacity.map(|capacity| u32::try_from(capacity.0 >> 10).unwrap_or(u32::MAX));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an amount of memory"
    )]
    let by_rate =
        (f64::from(from.1) + leak.evidence.rate.0 * forecast.likely.as_secs_f64() / 1024.0) as u32;
    Some(PlotForecast {
        from,
        full: full.unwrap_or(by_rate).max(from.1),
        likely: after(forecast.likely),
        low: after(forecast.low),
        high: after(forecast.high),
    })
}

/// Returns the memory of the GPUs of a process that no other process may hold: what it can grow to;
/// `None` when it is not known.
fn capacity(host: &HostRun, process: &ProcessRun) -> Option<Bytes> {
    process
        .gpus
        .iter()
        .map(|uuid| host.gpu(uuid)?.capacity)
        .sum()
}

/// Returns a thin row; `None` if the value was never read.
fn row(
    name: &'static str,
    top: f64,
    unit: &str,
    range: &LoadRange,
    buckets: usize,
) -> Option<PlotRow> {
    range.all?;
    let curve = range.curve.reduced(buckets);
    let point =
        |(at, bucket): (u64, &Mean)| -> RowPoint { (at, bucket.mean(), f64::from(bucket.high)) };
    Some(PlotRow {
        name,
        top,
        top_label: format!("{top:.0}{unit}"),
        points: curve.iter().map(point).collect(),
        patience: curve.patience(),
    })
}
