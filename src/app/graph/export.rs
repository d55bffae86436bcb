//! Writes the series of the graph as CSV, and names the files of a saved screen.

use std::time::Duration;

use crate::app::App;
use crate::base::time::local_time;
use crate::base::units::{Bytes, Moment};
use crate::model::{Curve, Fleet, GpuHistory, GpuOrProcess, HostModel, MemoryHistory, Window};
use crate::output;
use crate::protocol::host_key::HostKey;
use crate::protocol::snapshot::GpuUuid;

/// The most rows of a series.
const MOST_ROWS: u64 = 900;

impl App {
    /// Returns the name of the files of a saved screen, without an ending:
    /// `gputop-HOST-2026-11-23T034112`.
    pub(crate) fn saved_name(&self) -> String {
        let host = self
            .subject()
            .map(|subject| subject.host)
            .or_else(|| Some(self.fleet().hosts().next()?.0));
        let Some(host) = host else {
            return "gputop".to_owned();
        };
        let (name, time) = host_and_time(self.fleet(), host);
        format!("gputop-{name}-{time}")
    }

    /// Returns the memory and load that the graph shows, as CSV: of the GPU or process of the
    /// graph, and of the GPUs of that process. `None` while there is nothing to draw.
    pub(crate) fn series_csv(&self) -> Option<String> {
        let subject = self.subject()?;
        let model = self.fleet().host(subject.host)?;
        let end = self.graph.still.map_or(model.now(), |still| still.end);
        let span = self.graph_span().min(model.span());
        let rows = span.as_secs().clamp(1, MOST_ROWS);
        let window = Window::until(
            end,
            span.max(Duration::from_secs(1)),
            usize::try_from(rows).ok()?,
        );
        let mut csv = SeriesCsv {
            model,
            window,
            rows: vec![HEADER.map(str::to_owned).to_vec()],
        };
        csv.add(&subject.subject);
        Some(output::csv(csv.rows))
    }
}

const HEADER: [&str; 9] = [
    "time",
    "host",
    "subject",
    "memory_bytes",
    "allocated_bytes",
    "reserved_bytes",
    "sm_percent",
    "power_watts",
    "temperature_celsius",
];

/// Returns the name of a host and its time now, both fit for the name of a file.
pub(in crate::app) fn host_and_time(fleet: &Fleet, host: HostKey) -> (String, String) {
    let plain = |letter: char| {
        if letter.is_ascii_alphanumeric() {
            letter
        } else {
            '-'
        }
    };
    let time = fleet.host(host).map(|model| time_of(model, model.now()));
    let time = time
        .into_iter()
        .flat_map(|time| time.chars().take(19).collect::<Vec<_>>());
    (
        fleet.name(host).chars().map(plain).collect(),
        time.filter(|letter| *letter != ':').collect(),
    )
}

fn time_of(model: &HostModel, at: Moment) -> String {
    let Some(latest) = model.latest() else {
        return String::new();
    };
    local_time(
        (latest.unix_ms + at.0).saturating_sub(latest.at.0),
        latest.host.facts.utc_offset.unwrap_or(0),
    )
}

struct SeriesCsv<'a> {
    model: &'a HostModel,
    window: Window,
    rows: Vec<Vec<String>>,
}

impl SeriesCsv<'_> {
    fn add(&mut self, subject: &GpuOrProcess) {
        let history = self.model.history();
        match subject {
            GpuOrProcess::Gpu(gpu) => self.add_gpu(gpu),
            GpuOrProcess::Process(id) => {
                let Some(process) = history.process(*id) else {
                    return;
                };
                let allocator = process.allocator.as_deref();
                let columns = [
                    process.memory().map(|memory| self.memory(memory)),
                    allocator.map(|allocator| self.memory(&allocator.allocated)),
                    allocator.map(|allocator| self.memory(&allocator.reserved)),
                    Some(self.curve(&process.sm)),
                ];
                self.add_rows(&format!("process {}", id.pid), &columns);
                for (gpu, _) in &process.parts {
                    self.add_gpu(gpu);
                }
            }
        }
    }

    fn add_gpu(&mut self, gpu: &GpuUuid) {
        let Some(history) = self.model.history().gpu(gpu) else {
            return;
        };
        let celsius = |kelvin: &mut Option<u64>| {
            *kelvin = kelvin.and_then(|kelvin| {
                u64::try_from(GpuHistory::celsius(u32::try_from(kelvin).ok()?)).ok()
            });
        };
        let mut temperature = self.curve(&history.temperature);
        temperature.iter_mut().for_each(celsius);
        let memory = self.memory(&history.memory);
        let (sm, power) = (self.curve(&history.sm), self.curve(&history.power));
        let index = self
            .model
            .latest()
            .and_then(|snapshot| snapshot.gpu(gpu))
            .map(|gpu| gpu.facts.index);
        let name = index.map_or_else(|| format!("GPU {gpu}"), |index| format!("GPU {index}"));
        self.add_rows(
            &name,
            &[
                Some(memory),
                None,
                None,
                Some(sm),
                Some(power),
                Some(temperature),
            ],
        );
    }

    fn memory(&self, memory: &MemoryHistory) -> Vec<Option<u64>> {
        let parts = memory.over(&self.window, self.model.now());
        parts
            .into_iter()
            .map(|part| {
                part.map(|range| {
                    let Bytes(bytes) = range.high;
                    bytes
                })
            })
            .collect()
    }

    fn curve(&self, curve: &Curve) -> Vec<Option<u64>> {
        let parts = curve.over(&self.window, self.model.now());
        parts
            .into_iter()
            .map(|part| part.map(|range| range.high.into()))
            .collect()
    }

    /// Adds a row for each part of the window in which at least one of the columns has a value.
    fn add_rows(&mut self, subject: &str, columns: &[Option<Vec<Option<u64>>>]) {
        let latest = self.model.latest();
        let host = latest.map_or("", |snapshot| snapshot.host.facts.name.as_str());
        for part in 0..self.window.parts() {
            let value = |column: &Option<Vec<Option<u64>>>| *column.as_ref()?.get(part)?;
            let values: Vec<Option<u64>> = columns.iter().map(value).collect();
            if values.iter().any(Option::is_some) {
                let time = time_of(self.model, self.window.moment(part));
                let text =
                    |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
                let mut row = vec![time, host.to_owned(), subject.to_owned()];
                row.extend(values.into_iter().map(text));
                row.resize(HEADER.len(), String::new());
                self.rows.push(row);
            }
        }
    }
}
