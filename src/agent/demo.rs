//! The simulated machine of `--demo`: GPUs that do not exist, and real, harmless processes on them.
//!
//! The processes ([`processes`]) are this program again, under other names, so `/proc` knows them and they
//! can be ended for good. What they do to the GPUs is a play of the clock alone ([`scene`]).

mod board;
mod processes;
mod scene;

use std::io;

use self::processes::{Actor, Role};
pub use self::processes::{ROLE_VARIABLE, be};
use super::{NvmlProcess, Readings, clock};
use crate::base::units::{Moment, Percent};
use crate::protocol::snapshot::{Driver, GpuUuid, Use};

/// A small busy machine.
#[derive(Debug)]
pub(super) struct Machine {
    started: Moment,
    actors: Vec<Actor>,
}

impl Machine {
    /// Starts its processes. They end with the agent, and with the thread that calls this.
    pub(super) fn start() -> io::Result<Self> {
        Ok(Self { started: clock::now(), actors: processes::start()? })
    }

    /// What a pass over its driver brings, with all that there is of the GPU that is wanted. A process that was ended has left for good.
    pub(super) fn pass(&mut self, now: Moment, wanted: Option<&GpuUuid>) -> Readings {
        self.actors.retain(Actor::lives);
        let seconds = now.since(self.started).as_secs_f64();
        let processes = self.actors.iter().map(|actor| (actor.role(), process(actor, now, seconds)));
        let (hidden, listed): (Vec<_>, Vec<_>) = processes.partition(|(role, _)| *role == Role::Hidden);
        Readings {
            driver: Driver { version: Some("demo".into()), cuda_version: None, trouble: None, failures: Vec::new() },
            simulated: self
                .actors
                .iter()
                .filter_map(|it| Some((it.pid(), vec![scene::allocator(it.role(), seconds)?])))
                .collect(),
            gpus: (0..scene::GPUS)
                .map(|gpu| scene::gpu(gpu, now, seconds, &on(gpu, &listed), &on(gpu, &hidden)))
                .map(|gpu| if wanted == Some(&gpu.uuid) { board::detailed(gpu) } else { gpu })
                .collect(),
        }
    }
}

fn process(actor: &Actor, now: Moment, seconds: f64) -> NvmlProcess {
    let part = scene::part(actor.role(), seconds);
    NvmlProcess {
        pid: actor.pid(),
        listed: now,
        usage: Use::Compute,
        memory: Ok(part.memory),
        sm: Ok(Percent::new(part.sm)),
    }
}

fn on(gpu: u32, processes: &[(Role, NvmlProcess)]) -> Vec<NvmlProcess> {
    processes.iter().filter(|(role, _)| scene::gpu_of(*role) == gpu).map(|(_, process)| process.clone()).collect()
}
