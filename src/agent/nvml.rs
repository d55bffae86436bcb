//! Asks the driver about every GPU, through NVML.
//!
//! A pass cannot fail: a GPU that does not answer stays in its place with what was last known of it, and
//! its trouble. This runs on a thread that may hang at any call; [`watch`] is how others see that, and
//! a fresh thread takes over from the last readings.

pub(super) mod call_watch;
mod calls;
mod errors;
mod field_values;
mod gpu;
mod gpu_detail;
mod gpu_list;
mod gpu_processes;
pub(super) mod library;
mod mig;
mod on_demand;
mod process_lists;
mod process_utilization;
mod raw;
mod topology;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::nvmlProcessUtilizationSample_t;

use self::call_watch::{Subject, Watch};
use self::errors::concerns_driver;
use self::gpu::{Detail, Gpu, Pass};
use self::gpu_list::Seat;
pub(super) use self::gpu_list::unknown;
use self::library::Library;
use self::process_lists::Lists;
use self::raw::{EventSet, Handle};
use super::{Readings, clock};
use crate::base::text::Text;
use crate::base::units::Moment;
use crate::protocol::agent_options::AgentOptions;
use crate::protocol::snapshot::{Driver, GpuUuid, Trouble, Xid};

/// A driver that does not start, and a GPU that was lost, are tried again so often.
const AGAIN: Duration = Duration::from_secs(3);
/// GPUs are counted so often.
const COUNT: Duration = Duration::from_secs(10);
/// Xid events that one pass takes at most.
const MOST_EVENTS: usize = 64;

/// Xid events are fetched so often, and at once when a GPU falls silent: one of them may say why.
const EVENTS: Duration = Duration::from_secs(5);

/// What makes the driver start a GPU that nobody uses.
pub(super) const HANDLE: &str = "nvmlDeviceGetHandleByIndex_v2";
const COUNT_CALL: &str = "nvmlDeviceGetCount_v2";
const VERSION: &str = "nvmlSystemGetDriverVersion";
const CUDA_VERSION: &str = "nvmlSystemGetCudaDriverVersion_v2";
const WAIT: &str = "nvmlEventSetWait_v2";

/// What a thread in a hung call leaves to the next.
pub(super) type Started = Arc<Mutex<Legacy>>;

/// The driver once it was started, and what was set up with it.
#[derive(Debug, Default)]
pub(super) struct Legacy {
    library: Option<Library>,
    /// The set that the GPUs are registered with: the Xid that came just before a hang is in it.
    events: Option<Arc<EventSet>>,
    /// Whose handles NVML gave out. A GPU that is lost cannot be asked who it is.
    handles: HashMap<Handle, GpuUuid>,
}

/// Someone who hung, and must not be asked before its time.
#[derive(Debug, Clone)]
pub(super) struct Sick {
    /// Who.
    pub(super) subject: Subject,
    /// At which function.
    pub(super) function: &'static str,
    /// When to ask again; absent while that is of no use.
    pub(super) again: Option<Moment>,
    /// What stands on the screen.
    pub(super) trouble: Trouble,
}

/// Who was found at a place.
type Found = Result<(Device<'static>, GpuUuid), gpu::Failure>;

/// The eyes on the driver.
#[derive(Debug)]
pub(super) struct Eyes {
    only: Option<PathBuf>,
    detail: bool,
    /// Of this one, all is wanted.
    wanted: Option<GpuUuid>,
    watch: Watch,
    started: Started,
    library: Option<Library>,
    driver: Driver,
    seats: Vec<Seat>,
    /// Functions of the driver as a whole that hung.
    avoid: Vec<Sick>,
    lists: Lists,
    samples: Vec<nvmlProcessUtilizationSample_t>,
    events: Option<Arc<EventSet>>,
    /// The GPUs that answered when that set was made.
    waits_for: Vec<Handle>,
    /// GPUs at the last count.
    counted: Option<u32>,
    start_due: Moment,
    count_due: Moment,
    events_due: Moment,
}

impl Eyes {
    /// Eyes that go on from `last`, and leave the sick alone.
    pub(super) fn new(options: &AgentOptions, watch: Watch, started: Started, last: Readings, sick: Vec<Sick>) -> Self {
        let (seats, avoid) = gpu_list::from_readings(last.gpus, sick);
        Self {
            only: options.nvml_lib.clone(),
            detail: options.detail,
            wanted: None,
            watch,
            library: None,
            started,
            driver: last.driver,
            seats,
            avoid,
            lists: Lists::new(),
            samples: vec![],
            events: None,
            waits_for: vec![],
            counted: None,
            start_due: Moment(0),
            count_due: Moment(0),
            events_due: Moment(0),
        }
    }

    /// From now on, all there is to know of this GPU is wanted, or of none.
    pub(super) fn want(&mut self, gpu: Option<GpuUuid>) {
        self.wanted = gpu;
    }

    /// Reads only names, memory and processes if nothing was read before: the first line does not wait for the rest.
    /// `None` if there are older readings, or no GPU.
    pub(super) fn first_stage(&mut self, now: Moment) -> Option<Readings> {
        if self.library.is_some() || !self.seats.is_empty() {
            return None;
        }
        self.start(now);
        self.enumerate(self.library?, now);
        self.read(false, true);
        // The whole pass begins with a count: a GPU may be missing, and the versions were not asked for.
        self.count_due = now;
        (!self.seats.is_empty()).then(|| self.readings())
    }

    /// Asks everyone who is well.
    pub(super) fn pass(&mut self, now: Moment, scan: bool) -> Readings {
        if self.library.is_none() {
            self.start(now);
        }
        if let Some(library) = self.library {
            if scan || now >= self.count_due {
                self.enumerate(library, now);
                if self.library.is_some() {
                    self.ask_versions(library);
                }
            }
            self.read(scan, false);
            self.fetch_events(library, now);
        }
        self.readings()
    }

    fn readings(&mut self) -> Readings {
        let trouble = self.driver.trouble.as_ref().and_then(|it| it.call.as_ref());
        self.driver.failures = self.watch.failures(Subject::Driver);
        self.driver.failures.retain(|failure| Some(&failure.call) != trouble);
        Readings {
            driver: self.driver.clone(),
            gpus: self.seats.iter().flat_map(|seat| seat.last.clone()).collect(),
            simulated: Vec::new(),
        }
    }

    /// Tries those again who hung and whose time has come. This may hang again: so it comes after the pass.
    pub(super) fn retry(&mut self, now: Moment) {
        let due = |sick: &Sick| sick.again.is_some_and(|again| now >= again);
        while let Some(at) = self.avoid.iter().position(due) {
            let function = self.avoid.swap_remove(at).function;
            self.ask_again(function, now);
            if self.watch.is_left_behind() {
                return;
            }
            // It answered; the trouble goes when no other function is avoided.
            self.set_driver_trouble(None);
        }
        let mut any = false;
        for seat in &mut self.seats {
            if seat.sick.as_ref().is_some_and(due) {
                seat.sick = None;
                any = true;
            }
        }
        if let (true, Some(library)) = (any, self.library) {
            self.counted = None;
            self.enumerate(library, now);
            self.read(false, false);
        }
    }

    /// Asks the driver as a whole what it did not answer before.
    fn ask_again(&mut self, function: &'static str, now: Moment) {
        match (self.library, function) {
            (None, _) => {
                self.start_due = now;
                self.start(now);
            }
            (Some(library), COUNT_CALL) => self.enumerate(library, now),
            (Some(library), VERSION | CUDA_VERSION) => self.ask_versions(library),
            (Some(library), _) => {
                self.events_due = now;
                self.fetch_events(library, now);
            }
        }
    }

    /// A hung call came back: what it asked is worth another try.
    pub(super) fn came_back(&mut self, now: Moment) {
        for sick in self.avoid.iter_mut().chain(self.seats.iter_mut().filter_map(|seat| seat.sick.as_mut())) {
            sick.again = Some(now);
        }
    }

    /// Calls a function of the driver as a whole, unless it hung.
    fn ask<T>(&self, function: &'static str, call: impl FnOnce() -> Result<T, NvmlError>) -> Result<T, NvmlError> {
        if self.avoid.iter().any(|sick| sick.function == function) {
            return Err(NvmlError::Timeout);
        }
        self.watch.about(Subject::Driver);
        self.watch.call(function, call)
    }

    fn legacy(&self) -> MutexGuard<'_, Legacy> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&mut self, now: Moment) {
        // Another start beside one that hangs would hang too, and both would do it at once.
        let hangs = |sick: &Sick| sick.function == library::INIT || sick.function == VERSION;
        if now < self.start_due || self.avoid.iter().any(hangs) {
            return;
        }
        let (already, events) = {
            let legacy = self.legacy();
            (legacy.library, legacy.events.clone())
        };
        let library = match already {
            Some(library) => library,
            None => match library::start(&self.watch, self.only.as_deref(), now) {
                Ok((library, version)) => {
                    self.driver.version = version;
                    library
                }
                Err(trouble) => {
                    self.start_due = now.after(AGAIN);
                    self.set_driver_trouble(Some(trouble));
                    return;
                }
            },
        };
        self.legacy().library = Some(library);
        self.library = Some(library);
        // A thread may hang in the set: then this one has a set of its own.
        self.events = events.filter(|_| !self.avoid.iter().any(|sick| sick.function == WAIT));
        (self.counted, self.count_due) = (None, Moment(0));
        self.set_driver_trouble(None);
    }

    fn ask_versions(&mut self, library: Library) {
        if self.driver.version.is_none() {
            let version = self.ask(VERSION, || library.sys_driver_version());
            self.driver.version = version.ok().map(Text::from);
        }
        if self.driver.cuda_version.is_none() {
            let version = self.ask(CUDA_VERSION, || library.sys_cuda_driver_version());
            self.driver.cuda_version = version.ok().map(|it| format!("{}.{}", it / 1000, it % 1000 / 10).into());
        }
    }

    /// The trouble of the driver; one that hung at some call keeps that one until it comes back.
    fn set_driver_trouble(&mut self, trouble: Option<Trouble>) {
        let new = trouble.or_else(|| self.avoid.first().map(|sick| sick.trouble.clone()));
        let same = matches!((&new, &self.driver.trouble), (Some(new), Some(old)) if new.cause == old.cause && new.sentence == old.sentence);
        if !same {
            self.driver.trouble = new;
        }
    }

    /// The driver went away under us.
    fn lose_driver(&mut self, function: &'static str, error: &NvmlError, now: Moment) {
        let trouble = errors::of_driver(function, error, now);
        for seat in &mut self.seats {
            seat.suffers(&trouble);
        }
        self.set_driver_trouble(Some(trouble));
        self.library = None;
        *self.legacy() = Legacy::default();
        // After an update of the driver all of this is asked anew.
        (self.driver.version, self.driver.cuda_version) = (None, None);
        self.start_due = now.after(AGAIN);
        self.lists = Lists::new();
    }

    /// Counts the GPUs, and looks at each place when the count changed or someone is missing.
    fn enumerate(&mut self, library: Library, now: Moment) {
        self.count_due = now.after(COUNT);
        let count = match self.ask(COUNT_CALL, || library.device_count()) {
            Ok(count) => count,
            // It hangs. A thread that took over has no handles yet: the GPUs are as many as there were.
            Err(NvmlError::Timeout) => match self.seats.iter().map(|seat| seat.index + 1).max() {
                Some(count) if self.counted.is_none() => count,
                _ => return,
            },
            Err(error) if concerns_driver(&error) => return self.lose_driver(COUNT_CALL, &error, now),
            Err(error) => {
                return self.set_driver_trouble(Some(errors::of_driver(COUNT_CALL, &error, now)));
            }
        };
        self.set_driver_trouble(None);
        let missing = self.seats.iter().any(|seat| seat.gpu.is_none() && seat.sick.is_none());
        if self.counted == Some(count) && !missing {
            return;
        }
        if missing {
            self.count_due = now.after(AGAIN);
        }
        self.counted = Some(count);
        let mut found = vec![];
        for index in 0..count {
            if self.seats.iter().any(|seat| seat.index == index && seat.sick.is_some()) {
                continue;
            }
            found.push((index, self.find(library, index)));
            if self.watch.is_left_behind() {
                return;
            }
        }
        self.place(found, now);
    }

    /// The GPU at a place, and its id.
    fn find(&self, library: Library, index: u32) -> Found {
        const UUID: &str = "nvmlDeviceGetUUID";
        self.watch.about(Subject::Gpu(index));
        let device = self.watch.call(HANDLE, || library.device_by_index(index)).map_err(|error| (HANDLE, error))?;
        let uuid = self.watch.call(UUID, || device.uuid()).map_err(|error| (UUID, error))?;
        Ok((device, GpuUuid(uuid.into())))
    }

    /// Gives each GPU that was found its seat, and those that were not their trouble.
    fn place(&mut self, found: Vec<(u32, Found)>, now: Moment) {
        let mut present = vec![];
        let mut failed = vec![];
        for (index, result) in found {
            match result {
                Ok((device, uuid)) => {
                    present.push(uuid.clone());
                    self.seat(index, device, uuid);
                }
                Err((function, error)) if concerns_driver(&error) => return self.lose_driver(function, &error, now),
                Err(failure) => failed.push((index, failure)),
            }
        }
        gpu_list::settle(&mut self.seats, &present, failed, now);
    }

    /// Seats a GPU: in its own place if it was here before, at whatever index.
    fn seat(&mut self, index: u32, device: Device<'static>, uuid: GpuUuid) {
        let at = self.seats.iter().position(|seat| seat.is(&uuid));
        if let Some(seat) = at.map(|at| &mut self.seats[at]) {
            seat.index = index;
            for readings in &mut seat.last {
                readings.facts.index = index;
            }
            if let Some(gpu) = &mut seat.gpu {
                gpu.readings.facts.index = index;
                for part in &mut gpu.parts {
                    part.readings.facts.index = index;
                }
                return;
            }
        }
        self.watch.about(Subject::Gpu(index));
        self.legacy().handles.insert(raw::handle_of(&device), uuid.clone());
        let mut gpu = Gpu::open(device, uuid, index, None, &self.watch);
        if let Some(at) = at {
            let last = &self.seats[at].last[0];
            gpu.readings.health.xids.clone_from(&last.health.xids);
            // What is still wrong with it began when it began.
            gpu.readings.trouble.clone_from(&last.trouble);
            self.seats[at].gpu = Some(gpu);
        } else {
            let last = vec![gpu.readings.clone()];
            self.seats.push(Seat { index, last, gpu: Some(gpu), sick: None });
        }
    }

    /// What NVML calls the GPUs that answer.
    fn here(&self) -> Vec<Handle> {
        self.seats.iter().filter_map(|seat| Some(raw::handle_of(&seat.gpu.as_ref()?.device))).collect()
    }

    /// Reads every GPU that is well.
    fn read(&mut self, scan: bool, is_first_stage: bool) {
        let mut lost_driver = None;
        let well = self.seats.iter().filter(|seat| self.wanted.is_some() && seat.sick.is_none());
        let everyone: Vec<_> =
            well.filter_map(|seat| Some((seat.index, raw::handle(&seat.gpu.as_ref()?.device)))).collect();
        for seat in &mut self.seats {
            let Some(gpu) = &mut seat.gpu else { continue };
            self.watch.about(Subject::Gpu(seat.index));
            let detail = match () {
                () if self.wanted.as_ref() == Some(&gpu.readings.uuid) => Detail::Live(&everyone),
                () if self.detail => Detail::Once,
                () => Detail::No,
            };
            let (lists, samples) = (&mut self.lists, &mut self.samples);
            let driver = self.driver.version.as_ref().map_or("", Text::as_str);
            let mut pass = Pass { watch: &self.watch, lists, samples, driver, scan, is_first_stage, detail };
            match gpu.read(&mut pass) {
                Ok(()) => {
                    gpu.readings.failures = self.watch.failures(Subject::Gpu(seat.index));
                    seat.last.clear();
                    seat.last.push(gpu.readings.clone());
                    seat.last.extend(gpu.parts.iter().map(|part| part.readings.clone()));
                }
                Err((function, error)) => {
                    let now = clock::now();
                    if concerns_driver(&error) {
                        lost_driver = Some((function, error, now));
                        break;
                    }
                    let trouble = errors::of_gpu(function, &error, &gpu.readings.facts, now);
                    seat.suffers(&trouble);
                    // It may be back soon, at another index.
                    self.count_due = now.after(AGAIN);
                    self.events_due = Moment(0);
                }
            }
            if self.watch.is_left_behind() {
                return;
            }
        }
        if let Some((function, error, now)) = lost_driver {
            self.lose_driver(function, &error, now);
        }
    }

    /// Fetches the Xid errors that came.
    fn fetch_events(&mut self, library: Library, now: Moment) {
        if now < self.events_due || self.library.is_none() {
            return;
        }
        self.events_due = now.after(EVENTS);
        if self.events.is_none() {
            let Ok(set) = self.ask("nvmlEventSetCreate", || EventSet::create(library)) else { return };
            self.waits_for.clear();
            self.events = Some(Arc::new(set));
            self.legacy().events.clone_from(&self.events);
        }
        let Some(set) = self.events.clone() else { return };
        // Those that answered in this pass, and are new or came back.
        for gpu in self.seats.iter().filter_map(|seat| seat.gpu.as_ref()) {
            if !self.waits_for.contains(&raw::handle_of(&gpu.device)) {
                self.waits_for.push(raw::handle_of(&gpu.device));
                self.watch.about(Subject::Gpu(gpu.readings.facts.index));
                // A GPU that has no events answers so; there is nothing to do about it.
                let _unsupported = self.watch.call("nvmlDeviceRegisterEvents", || set.register(&gpu.device));
            }
        }
        // Bounded, since a broken GPU can send them faster than they are read.
        for _ in 0..MOST_EVENTS {
            let (handle, code) = match self.ask(WAIT, || set.next()) {
                Ok(event) => event,
                Err(NvmlError::Timeout) => return,
                Err(_) => {
                    // A set with a lost GPU says that at once, and nothing of the others any more (nvml.h at
                    // nvmlEventSetWait_v2; NVIDIA/k8s-test-infra#746). They get one of their own.
                    let here = self.here();
                    if self.waits_for.iter().any(|handle| !here.contains(handle)) {
                        self.events = None;
                        self.legacy().events = None;
                        self.events_due = now;
                    }
                    return;
                }
            };
            let Some(uuid) = self.legacy().handles.get(&handle).cloned() else { continue };
            if let Some(seat) = self.seats.iter_mut().find(|seat| seat.is(&uuid)) {
                seat.note_xid(Xid { at: now, code });
            }
        }
        // There may be more, and the next pass goes on with them.
        self.events_due = now;
    }
}
