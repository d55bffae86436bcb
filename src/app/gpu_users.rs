//! The users of a GPU, and whether a leak fills it, in the few words of a tile.

use std::fmt;
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

/// A leak on a GPU: `full in 9m`, or `leak` where nobody can tell when memory runs out. In whole minutes or hours: seconds would
/// be no surer than the forecast, and jump with each sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GpuLeak {
    full_in: Option<Duration>,
}

impl fmt::Display for GpuLeak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.full_in {
            Some(left) => write!(f, "full in {}", rounded(left)),
            None => f.write_str("leak"),
        }
    }
}

/// A time in its largest unit: `45s`, `9m`, `3h`, `2d`.
fn rounded(span: Duration) -> String {
    let seconds = span.as_secs();
    let whole = |unit: u64| (seconds + unit / 2) / unit;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..5940 => format!("{}m", whole(60)),
        5940..172_800 => format!("{}h", whole(3600)),
        _ => format!("{}d", whole(86_400)),
    }
}

/// Returns the leak on a GPU that fills its memory first; `None` if nothing leaks there.
pub(crate) fn leak(model: &HostModel, gpu: &Gpu) -> Option<GpuLeak> {
    let leaks = model.leaking().into_iter();
    let here = leaks.filter(|(subject, _)| match subject {
        GpuOrProcess::Gpu(uuid) => *uuid == gpu.uuid,
        GpuOrProcess::Process(id) => gpu.processes.iter().any(|process| process.process == *id),
    });
    let ends: Vec<Option<Duration>> = here.map(|(_, leak)| Some(leak.forecast?.likely)).collect();
    (!ends.is_empty()).then(|| GpuLeak { full_in: ends.into_iter().flatten().min() })
}

/// Whether the GPU computes although the driver lists no process for it. `false` where the list of processes may be
/// incomplete, and for a GPU whose instances have the processes.
pub(crate) fn is_busy_without_process(gpu: &Gpu) -> bool {
    /// A lower use may be that of a process that has just ended.
    const BUSY: f32 = 10.0;
    let is_listed = gpu.trouble.is_none()
        && gpu.missing.processes.is_none()
        && gpu.failures.is_empty()
        && gpu.health.mig != Ok(true);
    is_listed && gpu.processes.is_empty() && gpu.load.sm.is_ok_and(|sm| sm.value() >= BUSY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_leak_fit_eleven_columns() {
        let words = |seconds| format!("{}", GpuLeak { full_in: Some(Duration::from_secs(seconds)) });
        assert_eq!(
            [20, 699, 5939, 5940, 172_799, 172_800].map(words),
            ["full in 20s", "full in 12m", "full in 99m", "full in 2h", "full in 48h", "full in 2d"]
        );
    }
}
