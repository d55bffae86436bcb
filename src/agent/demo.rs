//! The simulated machine of `--demo`: GPUs that do not exist, and real, harmless processes on them.
//!
//! Each process ([`processes`]) is this program, started under another name, so it appears in `/proc` and can be ended. Its
//! GPU use depends only on the time since the start ([`scene`]).

mod board;
mod processes;
mod scene;

use std::io;

use self::processes::{Actor, DemoRole};
pub use self::processes::{ROLE_VARIABLE, be};
use super::pytorch::AllocatorReading;
use super::{NvmlProcess, Readings, clock};
use crate::base::units::Moment;
use crate::protocol::snapshot::{Driver, GpuUuid};

#[derive(Debug)]
pub(super) struct Machine {
    started: Moment,
    actors: Vec<Actor>,
}

impl Machine {
    /// All processes end when the agent ends; most also end when the calling thread ends.
    pub(super) fn start() -> io::Result<Self> {
        Ok(Self { started: clock::now(), actors: processes::start()? })
    }

    /// Returns the readings of one pass, with the detail of the GPU `wanted`. An ended process is not started again.
    pub(super) fn pass(&mut self, now: Moment, wanted: Option<&GpuUuid>) -> Readings {
        self.actors.retain(Actor::lives);
        let seconds = now.since(self.started).as_secs_f64();
        let on_gpu = |gpu: u32, is_hidden: bool| -> Vec<NvmlProcess> {
            let actors = self.actors.iter().filter(|actor| scene::gpu_of(actor.role) == gpu);
            let actors = actors.filter(|actor| (actor.role == DemoRole::Hidden) == is_hidden);
            actors.map(|actor| scene::process(actor.role, actor.pid, now, seconds)).collect()
        };
        Readings {
            driver: Driver { version: Some("demo".into()), cuda_version: None, trouble: None, failures: Vec::new() },
            simulated: self
                .actors
                .iter()
                .filter_map(|actor| {
                    let devices = [scene::allocator(actor.role, seconds)?].into();
                    Some((actor.pid, Ok(AllocatorReading { devices, ..AllocatorReading::default() })))
                })
                .collect(),
            gpus: (0..scene::GPUS)
                .map(|gpu| scene::gpu(gpu, now, seconds, on_gpu(gpu, false), &on_gpu(gpu, true)))
                .map(|gpu| if wanted == Some(&gpu.uuid) { board::detailed(gpu) } else { gpu })
                .collect(),
        }
    }
}
