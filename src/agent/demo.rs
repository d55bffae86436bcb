//! The simulated machine of `--demo`: GPUs that do not exist, and real, harmless processes on them.
//!
//! Each process ([`processes`]) is this program, started under another name, so it appears in
//! `/proc` and can be ended. The names of their users are made up. Their GPU use depends only on
//! the time since the start ([`scene`]), so what it was before the start is known too.

mod board;
mod processes;
mod report;
mod scene;

use std::time::Duration;

use self::processes::{Actors, DemoRole};
pub use self::processes::{ROLE_VARIABLE, run_role};
use super::{
    GpuReadings, GpuSource, NvmlProcess, PassRequest, Readings, clock, exit_now, print_error,
};
use crate::base::units::Moment;
use crate::protocol::agent_options::SimulatedMachine;
use crate::protocol::snapshot::{Driver, ProbeReading, Process, Snapshot};

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
    /// Whether each pass returns the detail of every GPU.
    has_detail: bool,
}

impl Machine {
    /// All processes end when the agent ends; most also end when the calling thread ends. The agent
    /// ends if one does not start.
    pub(super) fn start(kind: SimulatedMachine, has_detail: bool) -> Self {
        let actors = Actors::start().unwrap_or_else(|error| {
            print_error(&format!("cannot start the simulated machine: {error}"));
            exit_now(1)
        });
        Self {
            started: clock::now(),
            actors,
            is_past_due: kind == SimulatedMachine::WithPast,
            has_detail,
        }
    }
}

impl GpuSource for Machine {
    /// An ended process is not started again.
    fn pass(&mut self, now: Moment, request: PassRequest) -> Readings {
        self.actors.forget_ended();
        let simulation = Simulation {
            at: now,
            seconds: now.since(self.started).as_secs_f64() + in_seconds(PAST_MS),
            actors: self
                .actors
                .iter()
                .map(|actor| (actor.pid, actor.role))
                .collect(),
            ended: self.actors.ended().to_vec(),
            is_past_due: std::mem::take(&mut self.is_past_due),
        };
        let detailed = |gpu: GpuReadings| {
            if self.has_detail || request.detail.as_ref() == Some(&gpu.uuid) {
                board::with_detail(gpu)
            } else {
                gpu
            }
        };
        Readings {
            driver: Driver {
                version: Some("demo".into()),
                cuda_version: None,
                trouble: None,
                failures: Vec::new(),
            },
            gpus: simulation.gpus().map(detailed).collect(),
            simulation: Some(simulation),
        }
    }
}

/// The simulated machine at one time: its GPUs, and what it makes up about the real processes on
/// them.
#[derive(Debug, Clone)]
pub(super) struct Simulation {
    at: Moment,
    /// The time since the scene began.
    seconds: f64,
    /// The PID and role of each process.
    actors: Vec<(u32, DemoRole)>,
    /// The same of those that have ended.
    ended: Vec<(u32, DemoRole)>,
    /// Whether a snapshot of this time is preceded by earlier ones.
    is_past_due: bool,
}

impl Simulation {
    fn gpus(&self) -> impl Iterator<Item = GpuReadings> {
        (0..scene::GPUS).map(|index| {
            let uses = |is_hidden: bool| {
                let on_gpu = self.actors.iter().filter(move |(_, role)| {
                    scene::gpu_of(*role) == Some(index) && (*role == DemoRole::Hidden) == is_hidden
                });
                on_gpu
                    .filter_map(|(pid, role)| scene::process(*role, *pid, self.at, self.seconds))
                    .collect::<Vec<_>>()
            };
            scene::gpu(index, self.at, self.seconds, uses(false), &uses(true))
        })
    }

    /// Returns the PIDs of the processes that hold memory of a GPU without being listed.
    pub(super) fn holders(&self) -> impl Iterator<Item = u32> {
        let holders = self.actors.iter().filter(|(_, role)| role.is_holder());
        holders.map(|(pid, _)| *pid)
    }

    /// Gives the processes of a snapshot what is made up about them. Returns the earlier snapshots
    /// that come before it, oldest first.
    pub(super) fn complete(&mut self, snapshot: &mut Snapshot) -> Vec<Snapshot> {
        self.add_facts(snapshot);
        if !std::mem::take(&mut self.is_past_due) {
            return Vec::new();
        }
        // The last reading of the past is as far from the present as two readings of the present.
        (0..PAST_MS / PAST_INTERVAL_MS)
            .rev()
            .filter_map(|number| self.earlier(snapshot, 1000 + number * PAST_INTERVAL_MS))
            .collect()
    }

    /// Adds users, allocator stats, reports of probes and device-file holders.
    fn add_facts(&self, snapshot: &mut Snapshot) {
        for process in &mut snapshot.processes {
            let has_pid = |(pid, _): &&(u32, DemoRole)| *pid == process.id.pid;
            let Some((_, role)) = self.actors.iter().find(has_pid) else {
                // A process that is listed as ended keeps its user and its past.
                let ended = self.ended.iter().find(has_pid);
                if let Some((_, role)) = ended.filter(|_| process.facts.is_of_demo()) {
                    add_made_up_facts(process, *role);
                }
                continue;
            };
            add_made_up_facts(process, *role);
            let reserved = scene::reserved(*role, self.seconds);
            let gpu = scene::gpu_of(*role);
            let report = report::report(*role, self.at, self.seconds);
            process.probe = report.map(|report| {
                ProbeReading {
                    report: Some(report),
                    missing: None,
                }
                .into()
            });
            process.allocator = gpu
                .zip(reserved)
                .map(|(gpu, reserved)| scene::allocator(scene::uuid(gpu), reserved).into());
            let on_gpu = snapshot
                .gpus
                .iter_mut()
                .find(|on_gpu| Some(on_gpu.facts.index) == gpu && role.is_holder());
            if let Some(on_gpu) = on_gpu {
                on_gpu.device_file_holders.push(process.id);
                on_gpu.device_file_holders.sort_unstable();
                on_gpu.device_file_holders.dedup();
            }
        }
    }

    /// Returns a snapshot as it would have been some milliseconds earlier; `None` before the boot.
    fn earlier(&self, snapshot: &Snapshot, age: u64) -> Option<Snapshot> {
        let then = Self {
            at: Moment(self.at.0.checked_sub(age)?),
            seconds: self.seconds - in_seconds(age),
            ..self.clone()
        };
        let age = snapshot.at.0.saturating_sub(then.at.0);
        let mut earlier = Snapshot {
            at: then.at,
            unix_ms: snapshot.unix_ms.saturating_sub(age),
            interval_ms: PAST_INTERVAL_MS,
            ..snapshot.clone()
        };
        for (gpu, readings) in earlier.gpus.iter_mut().zip(then.gpus()) {
            gpu.load = readings.load;
            for gpu_process in &mut gpu.processes {
                let pid = gpu_process.process.pid;
                let mut uses = readings.processes.iter();
                if let Some(NvmlProcess { memory, sm, .. }) = uses.find(|used| used.pid == pid) {
                    (gpu_process.memory, gpu_process.sm) = (*memory, *sm);
                }
            }
        }
        then.add_facts(&mut earlier);
        Some(earlier)
    }
}

fn add_made_up_facts(process: &mut Process, role: DemoRole) {
    let facts = process.facts_mut();
    facts.user = Ok(role.user().into());
    facts.simulated_past_ms = u64::try_from(role.past().as_millis()).ok();
}

fn in_seconds(milliseconds: u64) -> f64 {
    Duration::from_millis(milliseconds).as_secs_f64()
}
