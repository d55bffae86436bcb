//! `--query-compute-apps`: who computes on which GPU.

use std::fmt::Write;

use super::cell::{Cell, mib, plain, timestamp};
use crate::protocol::snapshot::{Gpu, GpuProcess, Missing, Process, Snapshot, State, Use};

/// A row: a process on a GPU.
struct Row<'a> {
    snapshot: &'a Snapshot,
    /// The whole GPU, also where the process is on an instance.
    gpu: &'a Gpu,
    gpu_process: &'a GpuProcess,
    process: Option<&'a Process>,
}

/// What can be asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    /// The first is what stands in the head.
    names: &'static [&'static str],
    unit: &'static str,
    about: &'static str,
    show: fn(&Row<'_>) -> Cell,
}

const FIELDS: &[Field] = &[
    Field {
        names: &["timestamp"],
        unit: "",
        about: "When it was asked, in local time.",
        show: |row| Cell::plain(timestamp(row.snapshot.unix_ms, row.snapshot.host.facts.utc_offset.unwrap_or(0))),
    },
    Field {
        names: &["gpu_name"],
        unit: "",
        about: "The GPU's product name.",
        show: |row| plain(row.gpu.facts.name.clone()),
    },
    Field {
        names: &["gpu_bus_id"],
        unit: "",
        about: "Where it sits on the bus.",
        show: |row| plain(row.gpu.facts.bus_id.clone()),
    },
    Field {
        names: &["gpu_serial"],
        unit: "",
        about: "The number on the board.",
        show: |row| plain(row.gpu.detail.as_ref().map_or(Err(Missing::Unsupported), |it| it.serial.clone())),
    },
    Field { names: &["gpu_uuid"], unit: "", about: "The GPU's own id.", show: |row| Cell::plain(&row.gpu.uuid) },
    Field {
        names: &["pid"],
        unit: "",
        about: "The process's number.",
        show: |row| Cell::plain(row.gpu_process.process.pid),
    },
    Field {
        names: &["process_name", "name"],
        unit: "",
        about: "What it runs: the first of its arguments.",
        show: name,
    },
    Field {
        names: &["used_gpu_memory", "used_memory"],
        unit: "MiB",
        about: "Device memory that the driver gave it.",
        show: |row| mib(row.gpu_process.memory),
    },
];

fn name(row: &Row<'_>) -> Cell {
    match row.process.map(|it| (&it.facts.argv, &it.facts.comm)) {
        Some((Ok(argv), _)) if !argv.is_empty() => argv.iter().next().map_or(Cell::None("[Not Found]"), Cell::plain),
        Some((_, Ok(comm))) => Cell::plain(comm),
        Some((_, Err(Missing::Denied))) => Cell::None("[Insufficient Permissions]"),
        _ => Cell::None("[Not Found]"),
    }
}

impl Field {
    pub(super) fn head(&self) -> String {
        let name = self.names[0];
        if self.unit.is_empty() { name.to_owned() } else { format!("{name} [{}]", self.unit) }
    }
}

/// The fields of these names, or the name that none has.
pub(super) fn fields(names: &[String]) -> Result<Vec<Field>, String> {
    let find =
        |name: &String| FIELDS.iter().find(|it| it.names.contains(&name.trim())).copied().ok_or_else(|| name.clone());
    names.iter().map(find).collect()
}

pub(super) fn help() -> String {
    let mut text = "Fields of --query-compute-apps, for processes that compute:\n".to_owned();
    for field in FIELDS {
        let names: Vec<String> = field.names.iter().map(|it| format!("\"{it}\"")).collect();
        let _infallible: std::fmt::Result = write!(text, "\n{}\n{}\n", names.join(" or "), field.about);
    }
    text
}

/// Whether somebody's arguments are still to be read.
pub(super) fn is_early(snapshot: &Snapshot) -> bool {
    let is_due =
        |it: &Process| it.facts.argv.as_ref().err() == Some(&Missing::NotYet) && it.load.state != Ok(State::Zombie);
    // One that nobody has looked at yet is not in the list.
    let mut gpu_processes = snapshot.gpus.iter().flat_map(|it| &it.processes);
    gpu_processes.any(|it| snapshot.process(it.process).is_none_or(is_due))
}

pub(super) fn rows(fields: &[Field], snapshot: &Snapshot, gpus: &[&Gpu]) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for gpu in gpus {
        let parts = snapshot.gpus.iter().filter(|it| it.facts.parent.as_ref() == Some(&gpu.uuid));
        let gpu_processes = std::iter::once(*gpu).chain(parts).flat_map(|it| &it.processes);
        for gpu_process in gpu_processes.filter(|it| it.usage != Use::Graphics) {
            let row = Row { snapshot, gpu, gpu_process, process: snapshot.process(gpu_process.process) };
            rows.push(fields.iter().map(|it| (it.show)(&row)).collect());
        }
    }
    rows
}
