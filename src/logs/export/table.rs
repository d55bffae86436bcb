//! The columns of an export, and the rows that a snapshot has. Names have their units, and never
//! change.

use serde_json::Value;

use crate::base::text::Text;
use crate::base::units::{Bytes, Percent, Watts};
use crate::model::HostModel;
use crate::output::judged::{self, JudgedColumn, JudgedKind};
use crate::output::table::command;
use crate::protocol::snapshot::{Gpu, GpuProcess, Process, Snapshot};

/// A column with its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ExportColumn {
    pub(super) name: &'static str,
    pub(super) kind: ColumnKind,
}

/// The values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnKind {
    /// Milliseconds since 1970 (UTC).
    Time,
    Integer,
    Float,
    Text,
}

/// A value, or none if it is not known.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ExportCell {
    Empty,
    Integer(i64),
    Float(f32),
    Text(String),
}

impl ExportCell {
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }
}

/// The subject of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExportSubject {
    Gpus,
    Processes,
}

const fn column(name: &'static str, kind: ColumnKind) -> ExportColumn {
    ExportColumn { name, kind }
}

const GPU_COLUMNS: [ExportColumn; 17] = [
    column("time", ColumnKind::Time),
    column("unix_time_ms", ColumnKind::Integer),
    column("host", ColumnKind::Text),
    column("gpu_index", ColumnKind::Integer),
    column("gpu_uuid", ColumnKind::Text),
    column("gpu_name", ColumnKind::Text),
    column("memory_used_bytes", ColumnKind::Integer),
    column("memory_free_bytes", ColumnKind::Integer),
    column("memory_reserved_bytes", ColumnKind::Integer),
    column("memory_total_bytes", ColumnKind::Integer),
    column("sm_utilization_percent", ColumnKind::Float),
    column("memory_utilization_percent", ColumnKind::Float),
    column("temperature_celsius", ColumnKind::Integer),
    column("power_watts", ColumnKind::Float),
    column("sm_clock_hertz", ColumnKind::Integer),
    column("processes", ColumnKind::Integer),
    column("trouble", ColumnKind::Text),
];

const PROCESS_COLUMNS: [ExportColumn; 23] = [
    column("time", ColumnKind::Time),
    column("unix_time_ms", ColumnKind::Integer),
    column("host", ColumnKind::Text),
    column("gpu_index", ColumnKind::Integer),
    column("gpu_uuid", ColumnKind::Text),
    column("pid", ColumnKind::Integer),
    column("start_ticks", ColumnKind::Integer),
    column("user", ColumnKind::Text),
    column("command", ColumnKind::Text),
    column("memory_used_bytes", ColumnKind::Integer),
    column("sm_utilization_percent", ColumnKind::Float),
    column("allocated_bytes", ColumnKind::Integer),
    column("reserved_bytes", ColumnKind::Integer),
    column("active_bytes", ColumnKind::Integer),
    column("allocated_peak_bytes", ColumnKind::Integer),
    column("allocation_retries", ColumnKind::Integer),
    column("out_of_memory_errors", ColumnKind::Integer),
    column("step", ColumnKind::Integer),
    column("step_seconds", ColumnKind::Float),
    column("cpu_percent", ColumnKind::Float),
    column("rss_bytes", ColumnKind::Integer),
    column("threads", ColumnKind::Integer),
    column("state", ColumnKind::Text),
];

impl ExportSubject {
    /// Returns the readings, and after them the verdict and the growth.
    pub(super) fn columns(self) -> Vec<ExportColumn> {
        let readings = match self {
            Self::Gpus => &GPU_COLUMNS[..],
            Self::Processes => &PROCESS_COLUMNS,
        };
        let judged = self.judged().iter().copied().flatten();
        let judged = judged.map(|judged| {
            let kind = match judged.kind {
                JudgedKind::Text => ColumnKind::Text,
                JudgedKind::Integer => ColumnKind::Integer,
            };
            column(judged.name, kind)
        });
        readings.iter().copied().chain(judged).collect()
    }

    fn judged(self) -> &'static [&'static [JudgedColumn]] {
        match self {
            Self::Gpus => &[&judged::GROWTH_COLUMNS],
            Self::Processes => &[&judged::PROCESS_COLUMNS, &judged::GROWTH_COLUMNS],
        }
    }

    /// Calls `each` with every row of the latest snapshot of a model, whose host has this name.
    pub(super) fn rows<E>(
        self,
        model: &HostModel,
        host: &Text,
        mut each: impl FnMut(Vec<ExportCell>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(snapshot) = model.latest() else {
            return Ok(());
        };
        let with_judged = |mut row: Vec<ExportCell>, judged: serde_json::Result<Value>| {
            let judged = judged.unwrap_or(Value::Null);
            let judged = self
                .judged()
                .iter()
                .flat_map(|columns| judged::cells(&judged, columns));
            row.extend(judged.map(|value| match value {
                Value::String(words) => text(Some(words)),
                number => integer(number.as_i64()),
            }));
            row
        };
        for gpu in &snapshot.gpus {
            match self {
                Self::Gpus => {
                    each(with_judged(
                        gpu_row(snapshot, host, gpu),
                        serde_json::to_value(judged::gpu(model, gpu)),
                    ))?;
                }
                Self::Processes => {
                    for gpu_process in &gpu.processes {
                        let verdict = model.verdict(gpu_process.process);
                        let judged = verdict.map(|verdict| judged::process(model, verdict));
                        each(with_judged(
                            process_row(snapshot, host, gpu, gpu_process),
                            serde_json::to_value(judged),
                        ))?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn integer(number: Option<impl TryInto<i64>>) -> ExportCell {
    number
        .and_then(|number| number.try_into().ok())
        .map_or(ExportCell::Empty, ExportCell::Integer)
}

fn bytes(bytes: Option<Bytes>) -> ExportCell {
    integer(bytes.map(|bytes| bytes.0))
}

fn percent(percent: Option<Percent>) -> ExportCell {
    percent.map_or(ExportCell::Empty, |percent| {
        ExportCell::Float(percent.value())
    })
}

fn text(text: Option<impl Into<String>>) -> ExportCell {
    text.map_or(ExportCell::Empty, |text| ExportCell::Text(text.into()))
}

fn when_and_where(snapshot: &Snapshot, host: &Text) -> [ExportCell; 3] {
    [
        integer(Some(snapshot.unix_ms)),
        integer(Some(snapshot.unix_ms)),
        text(Some(host.as_str())),
    ]
}

fn gpu_row(snapshot: &Snapshot, host: &Text, gpu: &Gpu) -> Vec<ExportCell> {
    let load = &gpu.load;
    let mut row = when_and_where(snapshot, host).to_vec();
    row.extend([
        integer(Some(gpu.facts.index)),
        text(Some(gpu.uuid.0.as_str())),
        text(gpu.facts.name.as_ref().ok().map(Text::as_str)),
        bytes(load.memory_used.ok()),
        bytes(load.memory_free.ok()),
        bytes(load.memory_reserved.ok()),
        bytes(load.memory_total.ok()),
        percent(load.sm.ok()),
        percent(load.memory_bandwidth.ok()),
        integer(load.temperature.ok().map(|temperature| temperature.0)),
        load.power
            .ok()
            .map(Watts::value)
            .map_or(ExportCell::Empty, ExportCell::Float),
        integer(load.sm_clock.ok().map(|clock| clock.0)),
        integer(
            gpu.missing
                .processes
                .is_none()
                .then_some(gpu.processes.len()),
        ),
        text(
            gpu.trouble
                .as_ref()
                .map(|trouble| trouble.cause.to_string()),
        ),
    ]);
    row
}

fn process_row(
    snapshot: &Snapshot,
    host: &Text,
    gpu: &Gpu,
    gpu_process: &GpuProcess,
) -> Vec<ExportCell> {
    let id = gpu_process.process;
    let process = snapshot.process(id);
    let on_gpu = |device: Option<&crate::protocol::snapshot::GpuUuid>| device == Some(&gpu.uuid);
    let allocator = process.and_then(|process| process.allocator.as_deref());
    let device = allocator.and_then(|stats| {
        stats
            .devices
            .iter()
            .find(|device| on_gpu(device.gpu.as_ref()))
    });
    let report = process.and_then(|process| process.fresh_report(snapshot.at));
    let steps = report.and_then(|report| report.steps.as_ref());
    let load = process.map(|process| &process.load);
    let name = gpu_process
        .names
        .as_ref()
        .map(|names| names.command.to_string());
    let user = |process: &Process| process.facts.user.as_ref().ok().map(Text::to_string);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a duration needs few digits"
    )]
    let step_seconds = steps
        .and_then(|steps| steps.seconds)
        .map(|seconds| ExportCell::Float(seconds as f32));
    let mut row = when_and_where(snapshot, host).to_vec();
    row.extend([
        integer(Some(gpu.facts.index)),
        text(Some(gpu.uuid.0.as_str())),
        integer(Some(id.pid)),
        integer(id.start_ticks),
        text(process.and_then(user)),
        text(process.map(command).or(name)),
        bytes(gpu_process.memory.ok()),
        percent(gpu_process.sm.ok()),
        bytes(device.and_then(|device| device.allocated.ok())),
        bytes(device.and_then(|device| device.reserved.ok())),
        bytes(device.and_then(|device| device.active.ok())),
        bytes(device.and_then(|device| device.allocated_peak.ok())),
        integer(device.and_then(|device| device.retries.ok())),
        integer(device.and_then(|device| device.ooms.ok())),
        integer(steps.map(|steps| steps.count)),
        step_seconds.unwrap_or(ExportCell::Empty),
        percent(load.and_then(|load| load.cpu.ok())),
        bytes(load.and_then(|load| load.rss.ok())),
        integer(load.and_then(|load| load.threads.ok())),
        text(load.and_then(|load| Some(load.state.ok()?.letter().to_string()))),
    ]);
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::snapshot::example;

    #[test]
    fn each_row_has_a_cell_of_the_right_kind_for_each_column() {
        let mut model = HostModel::default();
        model.replace(example::host(2).with(100, "python train.py", 1, Bytes::from_gib(1)));
        for (subject, count) in [(ExportSubject::Gpus, 2), (ExportSubject::Processes, 1)] {
            let mut rows = 0;
            let checked: Result<(), String> = subject.rows(&model, &"box".into(), |row| {
                rows += 1;
                assert_eq!(row.len(), subject.columns().len());
                for (cell, column) in row.iter().zip(subject.columns()) {
                    let is_right = match cell {
                        ExportCell::Empty => true,
                        ExportCell::Integer(_) => {
                            matches!(column.kind, ColumnKind::Integer | ColumnKind::Time)
                        }
                        ExportCell::Float(_) => column.kind == ColumnKind::Float,
                        ExportCell::Text(_) => column.kind == ColumnKind::Text,
                    };
                    assert!(is_right, "{column:?}: {cell:?}");
                }
                Ok(())
            });
            assert_eq!((checked, rows), (Ok(()), count));
        }
    }
}
