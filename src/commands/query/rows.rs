//! Builds the rows of a query as JSON, for a GPU or a process that computes on it, and reads the
//! fields of a GPU from its row.

use std::time::Duration;

use serde_json::{Value, json};

use super::field::{QueryField, WITHDRAWN, missing_words};
use crate::base::time::local_time;
use crate::base::units::Bytes;
use crate::protocol::snapshot::{Cause, Gpu, GpuProcess, Missing, Process, Snapshot, Use};

/// Returns the row of a GPU: the groups of its readings, and `snapshot` for facts about the host.
pub(super) fn gpu(snapshot: &Snapshot, gpu: &Gpu) -> Value {
    const FABRIC_COMPLETED: u32 = 3;
    let version = snapshot.driver.version.as_ref();
    let mut row = json!({
        "snapshot": {
            "local_time": timestamp(snapshot.unix_ms, snapshot.host.facts.utc_offset.unwrap_or(0)),
            "driver_version": version.map_or(missing_words(Missing::Failed), |version| version.as_str()),
            "gpu_count": snapshot.gpus.iter().filter(|gpu| gpu.facts.parent.is_none()).count(),
        },
        "facts": gpu.facts,
        "load": gpu.load,
        "health": gpu.health,
        "detail": gpu.detail,
    });
    row["facts"]["uuid"] = json!(gpu.uuid);
    let major = version.and_then(|version| version.as_str().split('.').next()?.parse::<u32>().ok());
    let Some(detail) = &gpu.detail else {
        return row;
    };
    for (name, reading, first) in WITHDRAWN {
        if major.is_some_and(|major| major < first) {
            let detail = &mut row["detail"];
            detail[name] = detail[reading].clone();
            detail["missing"][name] = detail["missing"][reading].clone();
        }
    }
    if let Ok([total, used]) = detail.protected_memory {
        row["detail"]["protected_memory_bytes"] = json!([total, used, total.saturating_sub(used)]);
    }
    // NVML's status tells whether joining the fabric failed. It has a meaning only once the state
    // is completed.
    if let Ok([state, status, ..]) = detail.fabric {
        row["detail"]["fabric"][1] = if state == FABRIC_COMPLETED {
            json!(status != 0)
        } else {
            Value::Null
        };
    }
    row
}

/// Returns a row for each compute process (one whose use is not only graphics) on `gpus` and on
/// their MIG instances. A GPU or an instance whose processes are not known has one row, as in
/// nvidia-smi, with words in place of a process: a script that counts rows must not find it free.
pub(super) fn compute_apps(snapshot: &Snapshot, gpus: &[&Gpu]) -> Vec<Value> {
    let mut rows = Vec::new();
    for whole in gpus {
        let mut row = gpu(snapshot, whole);
        for gpu in std::iter::once(*whole).chain(instances(snapshot, whole)) {
            let mut compute = gpu
                .processes
                .iter()
                .filter(|gpu_process| gpu_process.usage != Use::Graphics)
                .peekable();
            if let Some(why) = gpu.missing.processes.filter(|_| compute.peek().is_none()) {
                if gpu.trouble.is_some() && gpu.facts.name.is_err() {
                    // The UUID of a GPU that never answered is a placeholder.
                    row["facts"]["missing"]["uuid"] = json!(Missing::Failed);
                }
                row["process"] =
                    json!({ "missing": { "pid": why, "name": why, "memory_used_bytes": why } });
                rows.push(row.clone());
            }
            for gpu_process in compute {
                row["process"] = json!(gpu_process);
                row["process"]["name"] = json!(process_name(snapshot, gpu_process));
                rows.push(row.clone());
            }
        }
    }
    rows
}

/// Returns the MIG instances of a GPU.
pub(super) fn instances<'a>(snapshot: &'a Snapshot, whole: &Gpu) -> impl Iterator<Item = &'a Gpu> {
    snapshot
        .gpus
        .iter()
        .filter(|instance| instance.facts.parent.as_ref() == Some(&whole.uuid))
}

/// Returns the processes on a GPU and on its MIG instances, each with the GPU or instance.
pub(super) fn gpu_processes<'a>(
    snapshot: &'a Snapshot,
    whole: &'a Gpu,
) -> impl Iterator<Item = (&'a Gpu, &'a GpuProcess)> {
    let places = std::iter::once(whole).chain(instances(snapshot, whole));
    places.flat_map(|gpu| {
        gpu.processes
            .iter()
            .map(move |gpu_process| (gpu, gpu_process))
    })
}

/// Returns an amount in MiB, rounded up as nvidia-smi does.
pub(super) fn mib(bytes: Bytes) -> u64 {
    bytes.0.div_ceil(1 << 20)
}

/// Returns the first argument of a process, or nvidia-smi's words for a missing name.
pub(super) fn process_name<'a>(snapshot: &'a Snapshot, gpu_process: &GpuProcess) -> &'a str {
    const NOT_FOUND: &str = "[Not Found]";
    match snapshot
        .process(gpu_process.process)
        .map(|process| (&process.facts.argv, &process.facts.comm))
    {
        Some((Ok(argv), _)) if !argv.is_empty() => argv.iter().next().unwrap_or(NOT_FOUND),
        Some((_, Ok(comm))) => comm.as_str(),
        Some((_, Err(Missing::Denied))) => missing_words(Missing::Denied),
        _ => NOT_FOUND,
    }
}

/// Whether a process on a GPU has not been scanned yet, or its arguments have not been read.
pub(super) fn is_incomplete(snapshot: &Snapshot) -> bool {
    let mut gpu_processes = snapshot.gpus.iter().flat_map(|gpu| &gpu.processes);
    gpu_processes.any(|gpu_process| {
        snapshot
            .process(gpu_process.process)
            .is_none_or(Process::awaits_arguments)
    })
}

/// The words for a GPU whose call hangs. nvidia-smi has none, because it would hang too.
const NO_ANSWER: &str = "[GPU does not answer]";

/// The reading that is unsupported where rows cannot be remapped.
pub(super) const REMAPPED_ROWS: &str = "detail.remapped_rows_correctable";

/// Whether the memory of the GPU can remap rows. A GPU that could not be read counts as one that
/// can: its row says why.
pub(super) fn remaps_rows(gpu: &Gpu) -> bool {
    gpu.detail
        .as_ref()
        .is_none_or(|detail| detail.remapped_correctable != Err(Missing::Unsupported))
}

/// Whether the CPU use of a process on a GPU has not been read yet, which takes two passes.
pub(super) fn lacks_cpu(snapshot: &Snapshot) -> bool {
    let mut gpu_processes = snapshot.gpus.iter().flat_map(|gpu| &gpu.processes);
    gpu_processes.any(|gpu_process| {
        snapshot
            .process(gpu_process.process)
            .is_some_and(|process| process.load.cpu == Err(Missing::NotYet))
    })
}

/// Returns the value of a field of a GPU. A GPU in trouble answers in nvidia-smi's words, or with
/// what could still be read.
pub(super) fn gpu_value(
    field: &QueryField,
    row: &Value,
    snapshot: &Snapshot,
    gpu: &Gpu,
) -> Result<String, &'static str> {
    /// If the load of a GPU in trouble is younger than this, it is from this pass.
    const FRESH: Duration = Duration::from_secs(1);
    let Some(trouble) = &gpu.trouble else {
        return field.value(row);
    };
    if field.is_static() {
        let failed = if trouble.is_silence() {
            NO_ANSWER
        } else {
            missing_words(Missing::Failed)
        };
        // The UUID of a GPU that never answered is a placeholder.
        let is_unknown = field.wanted_reading() == "facts.uuid" && gpu.facts.name.is_err();
        let value = field.value(row).map_err(|words| {
            if words == missing_words(Missing::Failed) {
                failed
            } else {
                words
            }
        });
        return if is_unknown { Err(failed) } else { value };
    }
    let read_at = gpu.load.at;
    let is_read =
        !trouble.is_silence() && (read_at >= trouble.since || snapshot.at.since(read_at) < FRESH);
    let failed = Err(missing_words(Missing::Failed));
    match trouble.cause {
        Cause::Lost => Err("[GPU is lost]"),
        _ if trouble.is_silence() => Err(NO_ANSWER),
        Cause::Denied if !is_read => Err(missing_words(Missing::Denied)),
        _ if !is_read => failed,
        Cause::Reset if field.value(row) == failed => Err("[GPU requires reset]"),
        _ => field.value(row),
    }
}

/// Returns `2026/07/14 08:12:38.696`, in a time zone that is `offset` seconds ahead of UTC.
fn timestamp(unix_ms: u64, offset: i32) -> String {
    let time = local_time(unix_ms, offset);
    let (date_and_time, _zone) = time.split_at(time.len() - "+00:00".len());
    date_and_time.replace('-', "/").replace('T', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_follow_the_calendar() {
        for (unix_ms, offset, expected) in [
            (0, 0, "1970/01/01 00:00:00.000"),
            (951_827_696_789, 0, "2000/02/29 12:34:56.789"),
            (1_784_016_758_696, 0, "2026/07/14 08:12:38.696"),
            (1_784_016_758_696, 7200, "2026/07/14 10:12:38.696"),
            (1_767_225_599_999, 3600, "2026/01/01 00:59:59.999"),
            (4_107_542_399_000, 0, "2100/02/28 23:59:59.000"),
            (4_107_542_400_000, 0, "2100/03/01 00:00:00.000"),
        ] {
            assert_eq!(timestamp(unix_ms, offset), expected);
        }
    }
}
