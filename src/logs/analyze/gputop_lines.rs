//! gputop's own JSON lines, as `gputop --json -l SECONDS` and the agent write them: full lines and
//! ticks.

use std::collections::HashMap;

use crate::base::units::{Bytes, Moment};
use crate::model::{ReservedMemory, reserved};
use crate::protocol::line::Line;
use crate::protocol::snapshot::{Gpu, GpuUuid, Process, ProcessId, Snapshot};

#[derive(Debug, Default)]
pub(super) struct GputopLines {
    /// The latest snapshot of each host, by its key. Lines without a tag have the key 0.
    latest: HashMap<u64, Box<Snapshot>>,
    /// The time of each GPU's latest reading, by the key of its host.
    read_at: HashMap<(u64, GpuUuid), Moment>,
}

/// The memory of a GPU, or of a process on it, in a line.
pub(super) struct SnapshotSample<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) process: Option<(ProcessId, Option<&'a Process>)>,
    /// `None` if the memory could not be read.
    pub(super) used: Option<Bytes>,
    pub(super) reserved: Option<ReservedMemory>,
    /// The amount at which memory runs out, if known.
    pub(super) limit: Option<Bytes>,
}

impl GputopLines {
    /// How far the time zone of a host is ahead of UTC, in milliseconds; `None` if it is not known.
    pub(super) fn zone(&self, host_key: u64) -> Option<i64> {
        let offset = self.latest.get(&host_key)?.host.facts.utc_offset.ok()?;
        Some(i64::from(offset) * 1000)
    }

    /// Applies a line of a host. Returns its time in milliseconds since 1970 and the new samples,
    /// or why the line cannot be used.
    pub(super) fn apply(
        &mut self,
        host_key: u64,
        line: &str,
    ) -> Result<(i64, Vec<SnapshotSample<'_>>), String> {
        match Line::parse(line.as_bytes()) {
            Err(error) => return Err(format!("not a line of gputop: {error}")),
            Ok(Some(Line::Full(snapshot))) => _ = self.latest.insert(host_key, snapshot),
            Ok(Some(Line::Tick(change))) => {
                let applied = self
                    .latest
                    .get_mut(&host_key)
                    .map(|latest| latest.apply(*change));
                if !matches!(applied, Some(Ok(()))) {
                    return Err("a tick without the line before it".to_owned());
                }
            }
            Ok(Some(Line::Reply(_) | Line::Checkpoint(_)) | None) => return Ok((0, Vec::new())),
        }
        let Some(snapshot) = self.latest.get(&host_key) else {
            return Ok((0, Vec::new()));
        };
        let mut samples = Vec::new();
        for gpu in &snapshot.gpus {
            // While a GPU hangs, each line repeats its latest reading.
            if self
                .read_at
                .insert((host_key, gpu.uuid.clone()), gpu.load.at)
                == Some(gpu.load.at)
            {
                continue;
            }
            let (used, total) = (gpu.load.memory_used.ok(), gpu.load.memory_total.ok());
            samples.push(SnapshotSample {
                gpu,
                process: None,
                used,
                reserved: None,
                limit: total,
            });
            let free = total
                .zip(used)
                .map(|(total, used)| total.saturating_sub(used));
            samples.extend(gpu.processes.iter().map(|gpu_process| {
                let used = gpu_process.memory.ok();
                let reserved = reserved(snapshot, gpu_process.process, Some(gpu));
                let limit = used
                    .zip(free)
                    .map(|(used, free)| Bytes(used.0.saturating_add(free.0)));
                let process = Some((gpu_process.process, snapshot.process(gpu_process.process)));
                SnapshotSample {
                    gpu,
                    process,
                    used,
                    reserved,
                    limit,
                }
            }));
        }
        Ok((i64::try_from(snapshot.unix_ms).unwrap_or(i64::MAX), samples))
    }
}
