//! Lines of gputop's own, one JSON object each, as `gputop --json -l SECONDS` and the agent write them: whole ones, and what
//! changed since.

use std::collections::HashMap;

use crate::base::units::{Bytes, Moment};
use crate::model::{Reserved, reserved};
use crate::protocol::line::Line;
use crate::protocol::snapshot::{Gpu, GpuUuid, Process, ProcessId, Snapshot};

/// What was seen until now.
#[derive(Debug, Default)]
pub(super) struct Stream {
    latest: Option<Box<Snapshot>>,
    /// When each GPU was read last.
    read: HashMap<GpuUuid, Moment>,
}

/// The memory of one GPU, or of one process on it.
pub(super) struct Sample<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) process: Option<(ProcessId, Option<&'a Process>)>,
    /// Absent where it could not be read.
    pub(super) held: Option<Bytes>,
    /// What PyTorch reserved.
    pub(super) reserved: Option<Reserved>,
    /// The amount at which it runs out, where that is known.
    pub(super) limit: Option<Bytes>,
}

impl Stream {
    /// Takes a line. Says in milliseconds when it was written, and what was read anew; or what is wrong with it.
    pub(super) fn line(&mut self, line: &str) -> Result<(i64, Vec<Sample<'_>>), String> {
        match Line::parse(line.as_bytes()) {
            Err(why) => return Err(format!("no line of gputop's: {why}")),
            Ok(Some(Line::Full(snapshot))) => self.latest = Some(snapshot),
            Ok(Some(Line::Tick(change))) => {
                let applied = self.latest.as_mut().map(|it| it.apply(change));
                if !matches!(applied, Some(Ok(()))) {
                    return Err("it says what changed, and the line before is missing".to_owned());
                }
            }
            Ok(Some(Line::Reply(_)) | None) => return Ok((0, Vec::new())),
        }
        let Some(snapshot) = self.latest.as_deref() else { return Ok((0, Vec::new())) };
        let mut samples = Vec::new();
        for gpu in &snapshot.gpus {
            // One that hangs says again what it said before.
            if self.read.insert(gpu.uuid.clone(), gpu.load.at) == Some(gpu.load.at) {
                continue;
            }
            let (used, total) = (gpu.load.memory_used.ok(), gpu.load.memory_total.ok());
            samples.push(Sample { gpu, process: None, held: used, reserved: None, limit: total });
            let free = total.zip(used).map(|(total, used)| total.saturating_sub(used));
            samples.extend(gpu.processes.iter().map(|gpu_process| {
                let held = gpu_process.memory.ok();
                let reserved = reserved(snapshot, gpu_process.process, Some(gpu));
                let limit = held.zip(free).map(|(held, free)| Bytes(held.0.saturating_add(free.0)));
                let process = Some((gpu_process.process, snapshot.process(gpu_process.process)));
                Sample { gpu, process, held, reserved, limit }
            }));
        }
        Ok((i64::try_from(snapshot.unix_ms).unwrap_or(i64::MAX), samples))
    }
}
