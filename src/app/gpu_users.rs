//! The users of a GPU, and when its memory runs out, in the few words of a tile.

use std::time::Duration;

use super::labels::{program, short, word};
use crate::base::units::Bytes;
use crate::model::{GpuOrProcess, HostModel};
use crate::protocol::snapshot::{Gpu, Reading};

/// The processes of one user that run the same program on one GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GpuOccupant {
    pub name: String,
    pub program: String,
    memory: Reading<Bytes>,
    count: usize,
}

impl GpuOccupant {
    /// The memory of all its processes there, and how many they are if not one: `34.0G`, `34.0G 2×`.
    pub(crate) fn amount(&self) -> String {
        let memory = word(self.memory.map(short));
        if self.count > 1 { format!("{memory} {}×", self.count) } else { memory }
    }
}

/// Returns who is on a GPU, the user of most memory first.
pub(crate) fn of(model: &HostModel, gpu: &Gpu) -> Vec<GpuOccupant> {
    let Some(snapshot) = model.latest() else { return Vec::new() };
    let mut users: Vec<GpuOccupant> = Vec::new();
    for gpu_process in &gpu.processes {
        let Some(process) = snapshot.process(gpu_process.process) else { continue };
        let name = process.facts.user.as_ref().map_or_else(|_| "?".to_owned(), ToString::to_string);
        let program = program(process);
        match users.iter_mut().find(|user| (&user.name, &user.program) == (&name, &program)) {
            Some(user) => {
                user.memory = user.memory.and_then(|sum| Ok(Bytes(sum.0 + gpu_process.memory?.0)));
                user.count += 1;
            }
            None => users.push(GpuOccupant { name, program, memory: gpu_process.memory, count: 1 }),
        }
    }
    users.sort_by_key(|user| std::cmp::Reverse(user.memory.ok()));
    users
}

/// Returns the time until a leak fills a GPU; `None` if nothing leaks there, or nobody can tell when.
pub(crate) fn runs_out_in(model: &HostModel, gpu: &Gpu) -> Option<Duration> {
    let leaks = model.leaking().into_iter();
    let here = leaks.filter(|(subject, _)| match subject {
        GpuOrProcess::Gpu(uuid) => *uuid == gpu.uuid,
        GpuOrProcess::Process(id) => gpu.processes.iter().any(|process| process.process == *id),
    });
    here.filter_map(|(_, evidence)| Some(evidence.forecast?.likely)).min()
}
