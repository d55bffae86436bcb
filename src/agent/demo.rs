//! The simulated machine of `--demo`: GPUs that do not exist, and real, harmless processes on them.
//!
//! Each process ([`processes`]) is this program, started under another name, so it appears in
//! `/proc` and can be ended. The names of their users are made up. Their GPU use depends only on
//! the time since the start ([`scene`]), so what it was before the start is known too.

mod board;
mod processes;
mod report;
mod scene;

use std::io;
use std::time::Duration;

use self::processes::{Actors, DemoRole};
pub use self::processes::{ROLE_VARIABLE, be};
use super::pytorch::AllocatorReading;
use super::{NvmlProcess, Readings, SimulatedProcess, clock};
use crate::base::units::Moment;
use crate::protocol::snapshot::{Driver, GpuUuid, ProbeReading, Process, Snapshot};

/// How long the scene has lasted when the machine starts, in milliseconds: long enough for a
/// verdict on its leak.
const PAST_MS: u64 = 15 * 60 * 1000;

/// The time between two readings of the past, in milliseconds.
const PAST_INTERVAL_MS: u64 = 6000;

#[derive(Debug)]
pub(super) struct Machine {
    started: Moment,
    actors: Actors,
    /// Whether the next pass returns the past too.
    is_past_due: bool,
}

impl Machine {
    /// All processes end when the agent ends; most also end when the calling thread ends.
    pub(super) fn start(with_past: bool) -> io::Result<Self> {
        Ok(Self {
            started: clock::now(),
            actors: Actors::start()?,
            is_past_due: with_past,
        })
    }

    /// Returns the readings of one pass, with the detail of the GPU `wanted`. An ended process is
    /// not started again.
    pub(super) fn pass(&mut self, now: Moment, wanted: Option<&GpuUuid>) -> Readings {
        self.actors.forget_ended();
        let seconds = now.since(self.started).as_secs_f64() + in_seconds(PAST_MS);
        let mut readings = self.readings(now, seconds, wanted);
        if std::mem::take(&mut self.is_past_due) {
            // The last reading of the past is as far from the present as two readings of the
            // present.
            let ages = (0..PAST_MS / PAST_INTERVAL_MS)
                .rev()
                .map(|number| 1000 + number * PAST_INTERVAL_MS);
            let times =
                ages.filter_map(|age| Some((now.0.checked_sub(age)?, seconds - in_seconds(age))));
            readings.past = times
                .map(|(at, seconds)| self.readings(Moment(at), seconds, None))
                .collect();
        }
        readings
    }

    fn readings(&self, at: Moment, seconds: f64, wanted: Option<&GpuUuid>) -> Readings {
        let on_gpu = |gpu: u32| {
            self.actors
                .iter()
                .filter(move |actor| scene::gpu_of(actor.role) == Some(gpu))
        };
        let uses = |gpu: u32, is_hidden: bool| -> Vec<NvmlProcess> {
            let actors = on_gpu(gpu).filter(|actor| (actor.role == DemoRole::Hidden) == is_hidden);
            actors
                .filter_map(|actor| scene::process(actor.role, actor.pid, at, seconds))
                .collect()
        };
        let gpus = (0..scene::GPUS).map(|index| {
            let mut gpu = scene::gpu(index, at, seconds, uses(index, false), &uses(index, true));
            gpu.device_file_holders = on_gpu(index)
                .filter(|actor| actor.role.is_holder())
                .map(|actor| actor.pid)
                .collect();
            if wanted == Some(&gpu.uuid) {
                board::detailed(gpu)
            } else {
                gpu
            }
        });
        let simulated = self.actors.iter().map(|actor| SimulatedProcess {
            pid: actor.pid,
            user: actor.role.user(),
            allocator: scene::allocator(actor.role, seconds).map(|stats| {
                Ok(AllocatorReading {
                    devices: [stats].into(),
                    ..AllocatorReading::default()
                })
            }),
            probe: report::report(actor.role, at, seconds).map(|report| {
                ProbeReading {
                    report: Some(report),
                    missing: None,
                }
                .into()
            }),
        });
        Readings {
            driver: Driver {
                version: Some("demo".into()),
                cuda_version: None,
                trouble: None,
                failures: Vec::new(),
            },
            simulated: simulated.collect(),
            gpus: gpus.collect(),
            past: Vec::new(),
        }
    }
}

fn in_seconds(milliseconds: u64) -> f64 {
    Duration::from_millis(milliseconds).as_secs_f64()
}

/// Gives the processes of the simulated machine the names of their users, and the reports of their
/// probes.
pub(super) fn add_facts(processes: &mut [Process], simulated: &[SimulatedProcess]) {
    for process in processes {
        if let Some(simulated) = simulated
            .iter()
            .find(|simulated| simulated.pid == process.id.pid)
        {
            process.facts_mut().user = Ok(simulated.user.into());
            process.probe.clone_from(&simulated.probe);
        }
    }
}

/// Returns a snapshot as it would have been at the time of earlier readings, without allocator
/// stats.
pub(super) fn earlier(snapshot: &Snapshot, readings: &Readings) -> Snapshot {
    let at = readings.gpus.first().map_or(snapshot.at, |gpu| gpu.load.at);
    let unix_ms = snapshot
        .unix_ms
        .saturating_sub(snapshot.at.0.saturating_sub(at.0));
    let mut earlier = Snapshot {
        at,
        unix_ms,
        interval_ms: PAST_INTERVAL_MS,
        ..snapshot.clone()
    };
    for (gpu, readings) in earlier.gpus.iter_mut().zip(&readings.gpus) {
        gpu.load = readings.load.clone();
        for gpu_process in &mut gpu.processes {
            let reading = readings
                .processes
                .iter()
                .find(|reading| reading.pid == gpu_process.process.pid);
            if let Some(NvmlProcess { memory, sm, .. }) = reading {
                (gpu_process.memory, gpu_process.sm) = (*memory, *sm);
            }
        }
    }
    earlier
}
