//! The simulated machine of `--demo`: GPUs that do not exist, and real, harmless processes on them.
//!
//! The processes ([`processes`]) are this program again, under other names: `/proc` knows them, and they can be ended. Their
//! use of the GPUs is a function of time alone ([`scene`]).

mod board;
mod processes;
mod scene;

use std::io;

use self::processes::{Actor, DemoRole};
pub use self::processes::{ROLE_VARIABLE, be};
use super::{NvmlProcess, Readings, clock};
use crate::base::units::{Moment, Percent};
use crate::protocol::snapshot::{Driver, GpuUuid, Use};

/// The simulated machine.
#[derive(Debug)]
pub(super) struct Machine {
    started: Moment,
    actors: Vec<Actor>,
}

impl Machine {
    /// Starts the processes. They end with the agent, and with the thread that calls this.
    pub(super) fn start() -> io::Result<Self> {
        Ok(Self { started: clock::now(), actors: processes::start()? })
    }

    /// The readings of a pass, with the detail of the wanted GPU. A process that was ended does not come back.
    pub(super) fn pass(&mut self, now: Moment, wanted: Option<&GpuUuid>) -> Readings {
        self.actors.retain(Actor::lives);
        let seconds = now.since(self.started).as_secs_f64();
        let processes = self.actors.iter().map(|actor| (actor.role(), process(actor, now, seconds)));
        let (hidden, listed): (Vec<_>, Vec<_>) = processes.partition(|(role, _)| *role == DemoRole::Hidden);
        Readings {
            driver: Driver { version: Some("demo".into()), cuda_version: None, trouble: None, failures: Vec::new() },
            simulated: self
                .actors
                .iter()
                .filter_map(|actor| Some((actor.pid(), vec![scene::allocator(actor.role(), seconds)?])))
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

fn on(gpu: u32, processes: &[(DemoRole, NvmlProcess)]) -> Vec<NvmlProcess> {
    processes.iter().filter(|(role, _)| scene::gpu_of(*role) == gpu).map(|(_, process)| process.clone()).collect()
}
