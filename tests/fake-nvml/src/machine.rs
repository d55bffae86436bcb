//! The machine at this moment: the world file as last read, which processes live, and what each
//! device has in use.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    ptr,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{
    abi::{Code, Handle, NONE},
    events::EventSets,
    gpu::Gpu,
    process_tracker::ProcessTracker,
    world::{Fault, GpuProcess, GpuSelector, World},
};

/// The longest time in seconds for which the file and the processes are not looked at again.
const REFRESH_S: f64 = 0.005;

/// The first device handle. Any number that is no likely pointer or index will do.
const FIRST_HANDLE: usize = 0x6e76_0000;

/// All that the calls answer from.
#[derive(Default)]
pub struct Machine {
    /// How often the library was initialised, less how often it was shut down.
    pub opened: u32,
    pub world: World,
    /// Unix seconds.
    pub now: f64,
    pub events: EventSets,
    path: PathBuf,
    stamp: Option<Stamp>,
    /// Unix seconds when the file was first read; `None` before.
    loaded: Option<f64>,
    /// Unix seconds of the last refresh.
    refreshed: f64,
    /// The ID of each device that ever was: the UUID of a GPU, or the slot of a MIG instance. The
    /// number of a device is its index here, and makes its handle. So the handle of a GPU stays
    /// valid when its index changes, and the handle of a MIG instance goes to the next instance in
    /// its slot.
    ids: Vec<String>,
    numbers: HashMap<String, usize>,
    /// The position of the device with each number; `None` when it is gone.
    positions: Vec<Option<Position>>,
    /// The GPU at each NVML index.
    order: Vec<usize>,
    /// The processes on the device with each number.
    process_states: Vec<Vec<ProcessState>>,
    tracker: ProcessTracker,
}

/// Device, inode, size and time of change of the file: different for each version of it.
type Stamp = (u64, u64, u64, i64, i64);

/// A GPU in the world's list, or a MIG instance of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub gpu: usize,
    pub instance: Option<usize>,
}

/// One GPU process, as the driver sees it now.
#[derive(Debug, Clone)]
pub struct ProcessState {
    pub pid: u32,
    /// Whether the process lists contain it. Otherwise it has ended, and only its memory remains.
    pub listed: bool,
    /// One bit per [`crate::ProcessKind`].
    pub kinds: u8,
    pub bytes: Option<u64>,
    pub sm: Option<u32>,
    pub mem: u32,
    pub enc: u32,
    pub dec: u32,
    pub gpu_instance: u32,
    pub compute_instance: u32,
}

impl Machine {
    /// Sets the world file, and reads it.
    pub fn open(&mut self, path: &Path) -> Result<(), Code> {
        if self.path != path {
            path.clone_into(&mut self.path);
            self.stamp = None;
            self.loaded = None;
        }
        self.now = unix_now();
        self.refreshed = self.now;
        if let Err(error) = self.read() {
            eprintln!(
                "fake-nvml: cannot read the world file {}: {error}",
                self.path.display()
            );
            return Err(Code::UNKNOWN);
        }
        self.update_processes();
        Ok(())
    }

    /// Reads the clock, and at most every [`REFRESH_S`] the file and the processes.
    pub fn refresh(&mut self) {
        self.now = unix_now();
        // The difference may be negative: the wall clock may be set back.
        if (self.now - self.refreshed).abs() < REFRESH_S || self.path.as_os_str().is_empty() {
            return;
        }
        self.refreshed = self.now;
        if let Err(error) = self.read() {
            eprintln!(
                "fake-nvml: cannot read the world file {}, keeping the last one: {error}",
                self.path.display()
            );
        }
        self.update_processes();
    }

    /// Makes the next refresh read file and processes.
    #[cfg(test)]
    pub fn expire(&mut self) {
        self.refreshed = 0.0;
    }

    /// Stops tracking processes, and closes all that was open for them.
    pub fn close(&mut self) {
        self.tracker = ProcessTracker::default();
        self.events = EventSets::default();
    }

    /// Reads the file, if it changed.
    fn read(&mut self) -> Result<(), String> {
        let meta = fs::metadata(&self.path).map_err(|error| error.to_string())?;
        let stamp = (
            meta.dev(),
            meta.ino(),
            meta.size(),
            meta.mtime(),
            meta.mtime_nsec(),
        );
        if self.stamp == Some(stamp) {
            return Ok(());
        }
        // Set before parsing, so that a broken file is reported once.
        self.stamp = Some(stamp);
        let text = fs::read_to_string(&self.path).map_err(|error| error.to_string())?;
        self.world = World::parse(&text).inspect_err(|_| {
            if self.loaded.is_none() {
                self.stamp = None;
            }
        })?;
        self.loaded.get_or_insert(self.now);
        self.assign_numbers();
        Ok(())
    }

    /// Gives each device of the world a number and a position, and tracks the processes.
    fn assign_numbers(&mut self) {
        self.order = (0..self.world.gpus.len())
            .filter(|index| !self.world.gpus[*index].hidden)
            .collect();
        self.positions.fill(None);
        for (index, gpu) in self.world.gpus.iter().enumerate() {
            let instances =
                (0..gpu.instances().len()).map(|slot| (slot_id(&gpu.uuid, slot), Some(slot)));
            for (id, instance) in std::iter::once((gpu.uuid.clone(), None)).chain(instances) {
                let number = *self.numbers.entry(id.clone()).or_insert_with(|| {
                    self.ids.push(id);
                    self.positions.push(None);
                    self.process_states.push(Vec::new());
                    self.ids.len() - 1
                });
                self.positions[number] = Some(Position {
                    gpu: index,
                    instance,
                });
            }
        }
        let processes = self.world.gpus.iter().flat_map(Gpu::all_processes);
        let real = processes.filter(|process| !process.fictional || !process.holders.is_empty());
        let pids = real.flat_map(|process| {
            std::iter::once(process.pid).chain(process.holders.iter().copied())
        });
        self.tracker.track(pids, self.now);
    }

    /// Computes the state of all processes.
    fn update_processes(&mut self) {
        self.tracker.refresh(self.now);
        let processes = self.world.gpus.iter().flat_map(Gpu::all_processes);
        for process in processes.filter(|process| process.follow_rss) {
            self.tracker.read_rss(process.pid);
        }
        for (number, position) in self.positions.iter().enumerate() {
            let mut states = std::mem::take(&mut self.process_states[number]);
            states.clear();
            if let Some(position) = position {
                let gpu = &self.world.gpus[position.gpu];
                for (slot, instance) in gpu.instances().iter().enumerate() {
                    if position.instance.is_none_or(|wanted| wanted == slot) {
                        let ids = (instance.gpu_instance, instance.compute_instance);
                        states.extend(
                            instance
                                .processes
                                .iter()
                                .filter_map(|process| self.process_state(gpu, process, ids)),
                        );
                    }
                }
                if position.instance.is_none() {
                    states.extend(
                        gpu.processes
                            .iter()
                            .filter_map(|process| self.process_state(gpu, process, (NONE, NONE))),
                    );
                }
            }
            self.process_states[number] = states;
        }
    }

    /// The state of a process; `None` when the process has ended and no holder keeps its memory.
    fn process_state(
        &self,
        gpu: &Gpu,
        process: &GpuProcess,
        instance_ids: (u32, u32),
    ) -> Option<ProcessState> {
        /// The unit in which PyTorch's allocator takes memory from the driver.
        const BLOCK: f64 = (2 << 20) as f64;
        let tracked = self.tracker.get(process.pid);
        let ended = if process.fictional {
            None
        } else {
            tracked.map_or(Some(0.0), |tracked| tracked.ended)
        };
        let lives = |pid: &u32| {
            self.tracker
                .get(*pid)
                .is_some_and(|holder| holder.ended.is_none())
        };
        if ended.is_some() && !process.holders.iter().any(lives) {
            return None;
        }
        let first_seen = tracked
            .map(|tracked| tracked.first_seen)
            .or(self.loaded)
            .unwrap_or(self.now);
        let until = ended.unwrap_or(self.now);
        let grown = process.growth * (until - process.since.unwrap_or(first_seen)).max(0.0);
        let jitters = gpu.jitter && ended.is_none();
        let wave = if jitters {
            wave(until, process.pid.into())
        } else {
            0.0
        };
        let rss = tracked
            .filter(|_| process.follow_rss)
            .map_or(0, |tracked| tracked.rss);
        Some(ProcessState {
            pid: process.pid,
            listed: ended.is_none(),
            kinds: process.kinds.iter().fold(0, |bits, kind| bits | kind.bit()),
            bytes: process.memory.map(|base| {
                plus_u64(
                    base.saturating_add(rss),
                    grown + BLOCK * (8.0 * wave).round(),
                )
            }),
            sm: process
                .sm
                .map(|sm| if jitters { percent(sm, 8.0 * wave) } else { sm }),
            mem: process.mem,
            enc: process.enc,
            dec: process.dec,
            gpu_instance: instance_ids.0,
            compute_instance: instance_ids.1,
        })
    }

    /// The number of GPUs that have an NVML index.
    pub fn count(&self) -> usize {
        self.order.len()
    }

    /// The device that has this UUID now.
    pub fn find(&self, uuid: &str) -> Option<(usize, Position)> {
        let slot = |gpu: &Gpu| {
            let slot = gpu
                .instances()
                .iter()
                .position(|instance| instance.uuid == uuid)?;
            Some(slot_id(&gpu.uuid, slot))
        };
        let slot = self.world.gpus.iter().find_map(slot);
        let number = *self.numbers.get(slot.as_deref().unwrap_or(uuid))?;
        Some((number, self.positions[number]?))
    }

    /// The GPU that has this NVML index now.
    pub fn indexed(&self, index: usize) -> Option<(usize, Position)> {
        self.find(&self.world.gpus[*self.order.get(index)?].uuid)
    }

    /// The NVML index that the GPU at this position of the list has now.
    pub fn index(&self, gpu: usize) -> Option<usize> {
        self.order.iter().position(|listed| *listed == gpu)
    }

    pub fn handle(number: usize) -> Handle {
        ptr::without_provenance_mut(FIRST_HANDLE + number * 16)
    }

    /// The number of the device with this handle.
    pub fn number(&self, handle: Handle) -> Result<usize, Code> {
        let offset = handle.addr().wrapping_sub(FIRST_HANDLE);
        if offset.is_multiple_of(16) && offset / 16 < self.ids.len() {
            Ok(offset / 16)
        } else {
            Err(Code::INVALID_ARGUMENT)
        }
    }

    /// The position of a device, unless it is gone.
    pub fn position(&self, number: usize) -> Result<Position, Code> {
        let is_instance = self.ids[number].contains('/');
        let gone = if is_instance {
            Code::INVALID_ARGUMENT
        } else {
            Code::GPU_IS_LOST
        };
        let position = self.positions[number].ok_or(gone)?;
        let gpu = &self.world.gpus[position.gpu];
        if gpu.lost || gpu.hidden {
            Err(Code::GPU_IS_LOST)
        } else {
            Ok(position)
        }
    }

    /// The first fault that fits a call.
    pub fn fault(&self, function: &str, number: Option<usize>) -> Option<&Fault> {
        self.world.faults.iter().find(|fault| {
            (fault.function == "*" || fault.function == function)
                && fault
                    .gpu
                    .as_ref()
                    .is_none_or(|gpu| number.is_some_and(|number| self.is_selected(number, gpu)))
        })
    }

    /// The first fault that fits a call for the handle of the GPU at an index.
    pub fn handle_fault(&self, function: &str, index: u32) -> Option<&Fault> {
        let number = self.indexed(index as usize).map(|(number, _)| number);
        self.world.faults.iter().find(|fault| match &fault.gpu {
            None => fault.function == "*" || fault.function == function,
            Some(gpu) => {
                fault.function == function
                    && number.is_some_and(|number| self.is_selected(number, gpu))
            }
        })
    }

    /// Whether a selector of the world file means this device.
    pub fn is_selected(&self, number: usize, selector: &GpuSelector) -> bool {
        let position = self.positions[number];
        match selector {
            GpuSelector::Position(gpu) => position.is_some_and(|position| position.gpu == *gpu),
            GpuSelector::Uuid(uuid) => {
                let has_uuid = |position: Position| {
                    let gpu = &self.world.gpus[position.gpu];
                    gpu.uuid == *uuid
                        || position
                            .instance
                            .is_some_and(|slot| gpu.instances()[slot].uuid == *uuid)
                };
                self.ids[number] == *uuid || position.is_some_and(has_uuid)
            }
        }
    }

    pub fn process_states(&self, number: usize) -> &[ProcessState] {
        &self.process_states[number]
    }

    /// Seconds since the world was first read.
    pub fn elapsed(&self) -> f64 {
        self.loaded
            .map_or(0.0, |loaded| (self.now - loaded).max(0.0))
    }

    /// Microseconds since 1970, the driver's clock.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "after 1970, before 586512"
    )]
    pub fn now_us(&self) -> u64 {
        (self.now * 1e6) as u64
    }
}

/// The ID of a slot for a MIG instance.
fn slot_id(gpu: &str, slot: usize) -> String {
    format!("{gpu}/{slot}")
}

#[expect(clippy::disallowed_methods, reason = "the driver has a clock")]
fn unix_now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |time| time.as_secs_f64())
}

/// A number from −1 to 1 that changes with time, the same in all processes at the same time. Each
/// seed has its own course.
pub fn wave(now: f64, seed: f64) -> f64 {
    f64::midpoint(
        libm::sin(now * 1.3 + seed * 1.7),
        libm::sin(now * 0.41 + seed * 0.9),
    )
}

/// The sum, from 0 to 100.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped"
)]
pub fn percent(value: u32, change: f64) -> u32 {
    (f64::from(value) + change).round().clamp(0.0, 100.0) as u32
}

/// The sum, at least 0.
pub fn plus_u32(value: u32, change: f64) -> u32 {
    u32::try_from(plus_u64(value.into(), change)).unwrap_or(u32::MAX)
}

/// The sum, at least 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value stays exact; the change may be rounded"
)]
pub fn plus_u64(value: u64, change: f64) -> u64 {
    if change < 0.0 {
        value.saturating_sub(-change as u64)
    } else {
        value.saturating_add(change as u64)
    }
}
