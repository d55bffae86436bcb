//! `--query-compute-apps`: the processes that compute on each GPU.

use super::field::{self, QueryField};
use super::value::{QueryValue, mib, plain, timestamp};
use crate::protocol::snapshot::{Gpu, GpuProcess, Missing, Process, Snapshot, State, Use};

/// A process on a GPU: the subject of one row.
pub(super) struct ComputeApp<'a> {
    snapshot: &'a Snapshot,
    /// The whole GPU, even if the process runs on a MIG instance.
    gpu: &'a Gpu,
    gpu_process: &'a GpuProcess,
    process: Option<&'a Process>,
}

type ReadValue = fn(&ComputeApp<'_>) -> QueryValue;
pub(super) type ComputeAppField = QueryField<ReadValue>;

fn all() -> Vec<ComputeAppField> {
    let field = |names, unit, help, value: ReadValue| QueryField::new(names, unit, help, value);
    vec![
        field("timestamp", "", "Local time of the query.", |app| {
            QueryValue::plain(timestamp(app.snapshot.unix_ms, app.snapshot.host.facts.utc_offset.unwrap_or(0)))
        }),
        field("gpu_name", "", "Product name of the GPU.", |app| plain(&app.gpu.facts.name)),
        field("gpu_bus_id", "", "PCI address of the GPU.", |app| plain(&app.gpu.facts.bus_id)),
        field("gpu_serial", "", "Serial number of the board.", |app| {
            app.gpu.detail.as_ref().map_or(QueryValue::missing(Missing::Unsupported), |detail| plain(&detail.serial))
        }),
        field("gpu_uuid", "", "UUID of the GPU.", |app| QueryValue::plain(&app.gpu.uuid)),
        field("pid", "", "PID of the process.", |app| QueryValue::plain(app.gpu_process.process.pid)),
        field("process_name name", "", "First argument of the process.", name),
        field("used_gpu_memory used_memory", "MiB", "Device memory allocated by the driver for the process.", |app| {
            mib(app.gpu_process.memory)
        }),
    ]
}

fn name(app: &ComputeApp<'_>) -> QueryValue {
    const NOT_FOUND: QueryValue = QueryValue::Absent("[Not Found]");
    match app.process.map(|process| (&process.facts.argv, &process.facts.comm)) {
        Some((Ok(argv), _)) if !argv.is_empty() => argv.iter().next().map_or(NOT_FOUND, QueryValue::plain),
        Some((_, Ok(comm))) => QueryValue::plain(comm),
        Some((_, Err(Missing::Denied))) => QueryValue::missing(Missing::Denied),
        _ => NOT_FOUND,
    }
}

pub(super) fn select(names: &[String]) -> Result<Vec<ComputeAppField>, String> {
    field::select(all, names)
}

pub(super) fn help() -> String {
    field::help("Fields of --query-compute-apps, for processes that compute", all)
}

/// Whether the arguments of a listed process are still unread.
pub(super) fn is_incomplete(snapshot: &Snapshot) -> bool {
    let is_unread = |process: &Process| {
        process.facts.argv.as_ref().err() == Some(&Missing::NotYet) && process.load.state != Ok(State::Zombie)
    };
    // A process that has not been scanned yet is missing from the list of processes.
    let mut gpu_processes = snapshot.gpus.iter().flat_map(|gpu| &gpu.processes);
    gpu_processes.any(|gpu_process| snapshot.process(gpu_process.process).is_none_or(is_unread))
}

/// Returns a row of values for each computing process on `gpus` and on their MIG instances.
pub(super) fn rows(fields: &[ComputeAppField], snapshot: &Snapshot, gpus: &[&Gpu]) -> Vec<Vec<QueryValue>> {
    let mut rows = Vec::new();
    for gpu in gpus {
        let instances = snapshot.gpus.iter().filter(|instance| instance.facts.parent.as_ref() == Some(&gpu.uuid));
        let gpu_processes = std::iter::once(*gpu).chain(instances).flat_map(|gpu| &gpu.processes);
        for gpu_process in gpu_processes.filter(|gpu_process| gpu_process.usage != Use::Graphics) {
            let app = ComputeApp { snapshot, gpu, gpu_process, process: snapshot.process(gpu_process.process) };
            rows.push(fields.iter().map(|field| (field.value)(&app)).collect());
        }
    }
    rows
}
