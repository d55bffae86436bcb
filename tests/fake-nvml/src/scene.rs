//! The world as it is at this moment: the file as last read, who lives, what each device holds.

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
    lives::Lives,
    world::{Fault, Tenant, Which, World},
};

/// How old our view of file and processes may be, in seconds.
const FRESH: f64 = 0.005;

/// The first device handle. Any number will do that is no likely pointer or index.
const FIRST_HANDLE: usize = 0x6e76_0000;

/// Everything the calls answer from.
#[derive(Default)]
pub struct Scene {
    /// How often the library was initialised and not shut down.
    pub opened: u32,
    pub world: World,
    /// Unix seconds.
    pub now: f64,
    pub events: EventSets,
    path: PathBuf,
    stamp: Option<Stamp>,
    loaded: Option<f64>,
    looked: f64,
    /// Every UUID of a GPU ever seen, and each place for a part of one. Its number makes the handle, so that of a GPU
    /// outlives changes of the index, and that of a part is given to the next part in its place.
    ids: Vec<String>,
    numbers: HashMap<String, usize>,
    /// Where the device of that number stands now.
    places: Vec<Option<Place>>,
    /// The GPU at each NVML index.
    order: Vec<usize>,
    /// Who is on the device of that number.
    sights: Vec<Vec<Sight>>,
    lives: Lives,
}

/// Tells one state of the file from the next: device, inode, size, and time of change.
type Stamp = (u64, u64, u64, i64, i64);

/// A GPU in the world's list, or a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub gpu: usize,
    pub part: Option<usize>,
}

/// One tenant, as the driver sees it now.
#[derive(Debug, Clone)]
pub struct Sight {
    pub pid: u32,
    /// In the lists. If not, its process ended and only its memory is here.
    pub listed: bool,
    /// One bit per `Kind`.
    pub kinds: u8,
    pub bytes: Option<u64>,
    pub sm: Option<u32>,
    pub mem: u32,
    pub enc: u32,
    pub dec: u32,
    pub gpu_instance: u32,
    pub compute_instance: u32,
}

impl Scene {
    /// Sets the file to answer from, and reads it.
    pub fn open(&mut self, path: &Path) -> Result<(), Code> {
        if self.path != path {
            path.clone_into(&mut self.path);
            self.stamp = None;
            self.loaded = None;
        }
        self.now = unix_now();
        self.looked = self.now;
        if let Err(why) = self.read() {
            eprintln!("fake-nvml: cannot read the world from {}: {why}", self.path.display());
            return Err(Code::UNKNOWN);
        }
        self.see();
        Ok(())
    }

    /// Lets time go on. Cheap unless the last real look is `FRESH` ago.
    pub fn look(&mut self) {
        self.now = unix_now();
        // Not only later: the wall clock may be set back.
        if (self.now - self.looked).abs() < FRESH || self.path.as_os_str().is_empty() {
            return;
        }
        self.looked = self.now;
        if let Err(why) = self.read() {
            eprintln!("fake-nvml: staying with the old world, {} is not one: {why}", self.path.display());
        }
        self.see();
    }

    /// Makes the next look a real one.
    #[cfg(test)]
    pub fn grow_stale(&mut self) {
        self.looked = 0.0;
    }

    /// Forgets the processes, and closes what was open for them.
    pub fn close(&mut self) {
        self.lives = Lives::default();
        self.events = EventSets::default();
    }

    /// Reads the file, if it changed.
    fn read(&mut self) -> Result<(), String> {
        let meta = fs::metadata(&self.path).map_err(|error| error.to_string())?;
        let stamp = (meta.dev(), meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec());
        if self.stamp == Some(stamp) {
            return Ok(());
        }
        // Before the parsing, so that a broken file is complained of once.
        self.stamp = Some(stamp);
        let text = fs::read_to_string(&self.path).map_err(|error| error.to_string())?;
        self.world = World::parse(&text).inspect_err(|_| {
            if self.loaded.is_none() {
                self.stamp = None;
            }
        })?;
        self.loaded.get_or_insert(self.now);
        self.settle();
        Ok(())
    }

    /// Gives everyone in the world a number and a place.
    fn settle(&mut self) {
        self.order = (0..self.world.gpus.len()).filter(|it| !self.world.gpus[*it].hidden).collect();
        self.places.fill(None);
        for (at, gpu) in self.world.gpus.iter().enumerate() {
            let parts = (0..gpu.parts().len()).map(|index| (part_id(&gpu.uuid, index), Some(index)));
            for (id, part) in std::iter::once((gpu.uuid.clone(), None)).chain(parts) {
                let number = *self.numbers.entry(id.clone()).or_insert_with(|| {
                    self.ids.push(id);
                    self.places.push(None);
                    self.sights.push(Vec::new());
                    self.ids.len() - 1
                });
                self.places[number] = Some(Place { gpu: at, part });
            }
        }
        let tenants =
            self.world.gpus.iter().flat_map(Gpu::everyone).filter(|it| !it.fictional || !it.holders.is_empty());
        let pids = tenants.flat_map(|it| std::iter::once(it.pid).chain(it.holders.iter().copied()));
        self.lives.meet(pids, self.now);
    }

    /// Finds out who is where with how much.
    fn see(&mut self) {
        self.lives.look(self.now);
        for tenant in self.world.gpus.iter().flat_map(Gpu::everyone).filter(|it| it.follow_rss) {
            self.lives.weigh(tenant.pid);
        }
        for (number, place) in self.places.iter().enumerate() {
            let mut seen = std::mem::take(&mut self.sights[number]);
            seen.clear();
            if let Some(place) = place {
                let gpu = &self.world.gpus[place.gpu];
                let parts =
                    gpu.parts().iter().enumerate().filter(|(index, _)| place.part.is_none_or(|it| it == *index));
                for (_, part) in parts {
                    let instances = (part.gpu_instance, part.compute_instance);
                    seen.extend(part.tenants.iter().filter_map(|it| self.sight(gpu, it, instances)));
                }
                if place.part.is_none() {
                    seen.extend(gpu.tenants.iter().filter_map(|it| self.sight(gpu, it, (NONE, NONE))));
                }
            }
            self.sights[number] = seen;
        }
    }

    fn sight(&self, gpu: &Gpu, tenant: &Tenant, instances: (u32, u32)) -> Option<Sight> {
        let life = self.lives.get(tenant.pid);
        let ended = if tenant.fictional { None } else { life.map_or(Some(0.0), |it| it.ended) };
        let held = tenant.holders.iter().any(|it| self.lives.get(*it).is_some_and(|it| it.ended.is_none()));
        if ended.is_some() && !held {
            return None;
        }
        let first_seen = life.map(|it| it.first_seen).or(self.loaded).unwrap_or(self.now);
        let until = ended.unwrap_or(self.now);
        let grown = tenant.growth * (until - tenant.since.unwrap_or(first_seen)).max(0.0);
        let restless = gpu.jitter && ended.is_none();
        let wave = if restless { wave(until, tenant.pid.into()) } else { 0.0 };
        let rss = life.filter(|_| tenant.follow_rss).map_or(0, |it| it.rss);
        Some(Sight {
            pid: tenant.pid,
            listed: ended.is_none(),
            kinds: tenant.kinds.iter().fold(0, |all, it| all | it.bit()),
            bytes: tenant.memory.map(|base| {
                // An allocator takes and gives back memory by 2 MiB.
                let block = f64::from(2 << 20);
                shifted(base.saturating_add(rss), grown + block * (8.0 * wave).round())
            }),
            sm: tenant.sm.map(|it| if restless { percent(it, 8.0 * wave) } else { it }),
            mem: tenant.mem,
            enc: tenant.enc,
            dec: tenant.dec,
            gpu_instance: instances.0,
            compute_instance: instances.1,
        })
    }

    /// How many GPUs have an index.
    pub fn count(&self) -> usize {
        self.order.len()
    }

    /// The device that has this UUID now.
    pub fn find(&self, uuid: &str) -> Option<(usize, Place)> {
        let part = |gpu: &Gpu| Some(part_id(&gpu.uuid, gpu.parts().iter().position(|it| it.uuid == uuid)?));
        let part = self.world.gpus.iter().find_map(part);
        let number = *self.numbers.get(part.as_deref().unwrap_or(uuid))?;
        Some((number, self.places[number]?))
    }

    /// The GPU that has this index now.
    pub fn indexed(&self, index: usize) -> Option<(usize, Place)> {
        self.find(&self.world.gpus[*self.order.get(index)?].uuid)
    }

    /// The index that the GPU at this place of the list has now.
    pub fn index(&self, gpu: usize) -> Option<usize> {
        self.order.iter().position(|it| *it == gpu)
    }

    pub fn handle(number: usize) -> Handle {
        ptr::without_provenance_mut(FIRST_HANDLE + number * 16)
    }

    /// The number that was given out as this handle.
    pub fn number(&self, handle: Handle) -> Result<usize, Code> {
        let offset = handle.addr().wrapping_sub(FIRST_HANDLE);
        if offset.is_multiple_of(16) && offset / 16 < self.ids.len() {
            Ok(offset / 16)
        } else {
            Err(Code::INVALID_ARGUMENT)
        }
    }

    /// Where that device stands, unless it is gone.
    pub fn place(&self, number: usize) -> Result<Place, Code> {
        let is_part = self.ids[number].contains('/');
        let place = self.places[number].ok_or(if is_part { Code::INVALID_ARGUMENT } else { Code::GPU_IS_LOST })?;
        let gpu = &self.world.gpus[place.gpu];
        if gpu.lost || gpu.hidden { Err(Code::GPU_IS_LOST) } else { Ok(place) }
    }

    /// What goes wrong with this call.
    pub fn fault(&self, function: &str, number: Option<usize>) -> Option<&Fault> {
        self.world.faults.iter().find(|it| {
            (it.function == "*" || it.function == function)
                && it.gpu.as_ref().is_none_or(|which| number.is_some_and(|it| self.is(it, which)))
        })
    }

    /// Whether the world means this device.
    pub fn is(&self, number: usize, which: &Which) -> bool {
        let place = self.places[number];
        match which {
            Which::Place(gpu) => place.is_some_and(|it| it.gpu == *gpu),
            Which::Uuid(uuid) => {
                let is_it = |it: Place| {
                    let gpu = &self.world.gpus[it.gpu];
                    gpu.uuid == *uuid || it.part.is_some_and(|part| gpu.parts()[part].uuid == *uuid)
                };
                self.ids[number] == *uuid || place.is_some_and(is_it)
            }
        }
    }

    pub fn sights(&self, number: usize) -> &[Sight] {
        &self.sights[number]
    }

    /// Seconds since the world was first read.
    pub fn elapsed(&self) -> f64 {
        self.loaded.map_or(0.0, |it| (self.now - it).max(0.0))
    }

    /// Microseconds since 1970, the driver's clock.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "after 1970, before 586512")]
    pub fn now_us(&self) -> u64 {
        (self.now * 1e6) as u64
    }
}

/// What stands for the part of that GPU in that place.
fn part_id(gpu: &str, index: usize) -> String {
    format!("{gpu}/{index}")
}

#[expect(clippy::disallowed_methods, reason = "the driver is where time comes in")]
fn unix_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |it| it.as_secs_f64())
}

/// Something between −1 and 1 that goes up and down, the same for everyone at the same time.
pub fn wave(now: f64, seed: f64) -> f64 {
    f64::midpoint(libm::sin(now * 1.3 + seed * 1.7), libm::sin(now * 0.41 + seed * 0.9))
}

/// A share that changed, and is one still.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
pub fn percent(value: u32, by: f64) -> u32 {
    (f64::from(value) + by).round().clamp(0.0, 100.0) as u32
}

/// A figure that changed, not below 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the whole part is kept exact; what is added may be rounded"
)]
pub fn shifted(value: u64, by: f64) -> u64 {
    if by < 0.0 { value.saturating_sub(-by as u64) } else { value.saturating_add(by as u64) }
}
