//! The users of a GPU, and the growth that fills it, in the few words of a tile.

use super::columns::{Cell, Tone};
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::model::{GpuOrProcess, Growing, HostModel, LeakVerdict};
use crate::output::labels::growth::{is_close, when_full};
use crate::output::labels::{program, short_amount, word};
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
    /// How many its processes are if not one: `2×`.
    pub(crate) fn count_if_several(&self) -> String {
        if self.count > 1 {
            format!("{}×", self.count)
        } else {
            String::new()
        }
    }

    /// The memory of all its processes there, and how many they are if not one: `34.0G`, `34.0G
    /// 2×`.
    pub(crate) fn amount(&self) -> String {
        let memory = word(self.memory.map(short_amount));
        if self.count > 1 {
            format!("{memory} {}×", self.count)
        } else {
            memory
        }
    }
}

/// Returns the names of the users of a GPU, the user of most memory first. Users whose name is not
/// known are left out.
pub(crate) fn names(model: &HostModel, gpu: &Gpu) -> Vec<Text> {
    let Some(snapshot) = model.latest() else {
        return Vec::new();
    };
    let mut memory_of: Vec<(&Text, Bytes)> = Vec::new();
    for listed in &gpu.processes {
        let process = snapshot.process(listed.process);
        let Some(Ok(name)) = process.map(|process| process.facts.user.as_ref()) else {
            continue;
        };
        let memory = listed.memory.unwrap_or(Bytes(0));
        match memory_of.iter_mut().find(|(other, _)| *other == name) {
            Some((_, sum)) => sum.0 += memory.0,
            None => memory_of.push((name, memory)),
        }
    }
    memory_of.sort_by_key(|(_, memory)| std::cmp::Reverse(*memory));
    memory_of
        .into_iter()
        .map(|(name, _)| name.clone())
        .collect()
}

/// Returns who is on a GPU, the user of most memory first.
pub(crate) fn occupants(model: &HostModel, gpu: &Gpu) -> Vec<GpuOccupant> {
    let Some(snapshot) = model.latest() else {
        return Vec::new();
    };
    let mut users: Vec<GpuOccupant> = Vec::new();
    for gpu_process in &gpu.processes {
        let Some(process) = snapshot.process(gpu_process.process) else {
            continue;
        };
        let name = process
            .facts
            .user
            .as_ref()
            .map_or_else(|_| "?".to_owned(), ToString::to_string);
        let program = program(process);
        match users
            .iter_mut()
            .find(|user| (&user.name, &user.program) == (&name, &program))
        {
            Some(user) => {
                user.memory = user
                    .memory
                    .and_then(|sum| Ok(Bytes(sum.0 + gpu_process.memory?.0)));
                user.count += 1;
            }
            None => users.push(GpuOccupant {
                name,
                program,
                memory: gpu_process.memory,
                count: 1,
            }),
        }
    }
    users.sort_by_key(|user| std::cmp::Reverse(user.memory.ok()));
    users
}

/// Returns the memory on a GPU that grows and is full first; `None` if nothing grows there. Growth
/// that is urgent or a leak counts before other growth.
pub(crate) fn growing<'a>(model: &'a HostModel, gpu: &Gpu) -> Option<&'a Growing> {
    let here = model
        .growing()
        .iter()
        .filter(|growing| match &growing.subject {
            GpuOrProcess::Gpu(uuid) => *uuid == gpu.uuid,
            GpuOrProcess::Process(id) => gpu.process(*id).is_some(),
        });
    // The first of equal ones is full first.
    here.min_by_key(|growing| !(growing.is_urgent() || growing.is_leak()))
}

/// Returns the growth of memory in few words: when it is full, if that is urgent or well known;
/// `LEAK` or `grows` where nobody can tell, `levels off 81.0G`, or `loading`.
pub(crate) fn growth_note(model: &HostModel, growing: &Growing) -> Cell {
    let is_alarming = growing.is_urgent() || growing.is_leak();
    if let Some(plateau) = growing.calm_plateau() {
        return Cell {
            text: format!("levels off {}", short_amount(plateau)),
            tone: Tone::Dim,
        };
    }
    let forecast = growing
        .evidence
        .forecast
        .filter(|forecast| is_alarming || is_close(forecast));
    let full = forecast.and_then(|_| when_full(model, growing));
    let (word, tone) = match () {
        () if growing.is_leak() => (LeakVerdict::Leak.word(), Tone::Alarm),
        () if growing.is_urgent() => ("grows", Tone::Alarm),
        () if growing.is_loading => {
            return Cell {
                text: "loading".to_owned(),
                tone: Tone::Dim,
            };
        }
        () => ("grows", Tone::Notable),
    };
    Cell {
        text: full.unwrap_or_else(|| word.to_owned()),
        tone,
    }
}
