//! Reads the driver and every GPU through NVML.
//!
//! A pass cannot fail: a GPU that does not answer keeps its slot, with its last readings and its
//! trouble. The thread may hang in any call. Its owner notices the hang through the [`CallWatch`],
//! and starts another thread with the last readings.

pub(super) mod call_watch;
mod driver_versions;
mod errors;
mod field_values;
mod gpu_calls;
mod gpu_detail;
mod gpu_process_lists;
mod gpu_slot;
pub(super) mod library;
mod mig_instances;
mod nvml_gpu;
mod on_demand;
mod pcie_traffic;
mod plausible;
mod process_list_reader;
mod process_utilization;
mod raw;
mod topology;
mod wanted;

use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::nvmlProcessUtilizationSample_t;

use self::call_watch::{CallSubject, CallWatch, Unresponsive};
use self::errors::concerns_driver;
use self::gpu_calls::CallError;
use self::gpu_slot::GpuSlot;
use self::nvml_gpu::{DetailLevel, GpuPass, NvmlGpu};
use self::process_list_reader::ProcessListReader;
use self::raw::{EventSet, Handle, Library};
use self::wanted::Wanted;
use super::{GpuSource, PassRequest, Readings, clock};
use crate::base::text::Text;
use crate::base::units::Moment;
use crate::protocol::agent_options::AgentOptions;
use crate::protocol::snapshot::{Driver, GpuUuid, Trouble, Xid};

/// How long to wait before a failed driver is started again, or a lost GPU is looked for.
const RETRY_INTERVAL: Duration = Duration::from_secs(3);
const COUNT_INTERVAL: Duration = Duration::from_secs(10);
/// Xid events are also fetched at once when a GPU is lost: an event may say why.
const EVENT_INTERVAL: Duration = Duration::from_secs(5);
const MOST_EVENTS: usize = 64;

/// The function that returns the handle of a GPU. It also starts a GPU that no process uses, which
/// takes long.
pub(super) const HANDLE: &str = "nvmlDeviceGetHandleByIndex_v2";
const COUNT_CALL: &str = "nvmlDeviceGetCount_v2";
const VERSION: &str = "nvmlSystemGetDriverVersion";
const CUDA_VERSION: &str = "nvmlSystemGetCudaDriverVersion_v2";
const WAIT: &str = "nvmlEventSetWait_v2";

/// State that the next thread inherits from an abandoned one.
pub(super) type SharedInheritance = Arc<Mutex<Inherited>>;

#[derive(Debug, Default)]
pub(super) struct Inherited {
    library: Option<Library>,
    /// The event set that the GPUs are registered with. It may hold an Xid error that came just
    /// before a hang.
    events: Option<Arc<EventSet>>,
    /// The UUID of each GPU by its handle: the UUID of a lost GPU cannot be read.
    handles: HashMap<Handle, GpuUuid>,
}

#[derive(Debug)]
pub(super) struct NvmlReader {
    /// The library that the user named. `None`: search the usual places.
    library_file: Option<PathBuf>,
    /// Whether to read the detail of every GPU, and not only of the GPU `wanted`.
    detail: bool,
    /// The readings to take.
    only: Rc<Wanted>,
    /// The GPU whose page is open.
    wanted: Option<GpuUuid>,
    watch: Rc<CallWatch>,
    shared: SharedInheritance,
    library: Option<Library>,
    driver: Driver,
    slots: Vec<GpuSlot>,
    /// The hung calls that concern the whole driver. They are made again only when their retry is
    /// due.
    avoided: Vec<Unresponsive>,
    lists: ProcessListReader,
    samples: Vec<nvmlProcessUtilizationSample_t>,
    events: Option<Arc<EventSet>>,
    registered: Vec<Handle>,
    /// The number of GPUs at the last count. `None` when every index must be looked up again.
    counted: Option<u32>,
    start_due: Moment,
    count_due: Moment,
    events_due: Moment,
}

impl NvmlReader {
    /// Takes over the last readings and the hung calls of an abandoned thread.
    pub(super) fn new(
        options: &AgentOptions,
        watch: CallWatch,
        shared: SharedInheritance,
        last: Readings,
        unresponsive: Vec<Unresponsive>,
    ) -> Self {
        let (slots, avoided) = gpu_slot::from_readings(last.gpus, unresponsive);
        Self {
            library_file: options.nvml_lib.clone(),
            detail: options.detail,
            only: Rc::new(Wanted::new(&options.only)),
            wanted: None,
            watch: Rc::new(watch),
            library: None,
            shared,
            driver: last.driver,
            slots,
            avoided,
            lists: ProcessListReader::new(),
            samples: vec![],
            events: None,
            registered: vec![],
            counted: None,
            start_due: Moment(0),
            count_due: Moment(0),
            events_due: Moment(0),
        }
    }

    fn readings(&mut self) -> Readings {
        let trouble = self
            .driver
            .trouble
            .as_ref()
            .and_then(|trouble| trouble.call.as_ref());
        self.driver.failures = self.watch.failures(CallSubject::Driver);
        self.driver
            .failures
            .retain(|failure| Some(&failure.call) != trouble);
        Readings {
            driver: self.driver.clone(),
            gpus: self
                .slots
                .iter()
                .flat_map(GpuSlot::all_readings)
                .cloned()
                .collect(),
            simulation: None,
        }
    }

    /// Makes the retry of every hung call due now, because one of these calls has returned.
    fn came_back(&mut self, now: Moment) {
        let of_gpus = self
            .slots
            .iter_mut()
            .filter_map(|slot| slot.unresponsive.as_mut());
        for hung in self.avoided.iter_mut().chain(of_gpus) {
            hung.again = Some(now);
        }
    }

    /// Calls a function that concerns the whole driver. A function that hung before is not called,
    /// and its result is a timeout.
    fn call<T>(
        &self,
        function: &'static str,
        call: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Result<T, NvmlError> {
        if self
            .avoided
            .iter()
            .any(|hung| hung.call.function == function)
        {
            return Err(NvmlError::Timeout);
        }
        self.watch.call(CallSubject::Driver, function, call)
    }

    fn inherited(&self) -> MutexGuard<'_, Inherited> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&mut self, now: Moment) {
        // While one start hangs, another start would hang too.
        let hangs = |hung: &Unresponsive| {
            hung.call.function == library::INIT || hung.call.function == VERSION
        };
        if now < self.start_due || self.avoided.iter().any(hangs) {
            return;
        }
        let (already, events) = {
            let inherited = self.inherited();
            (inherited.library, inherited.events.clone())
        };
        let library = match already {
            Some(library) => library,
            None => match library::start(&self.watch, self.library_file.as_deref(), now) {
                Ok(library) => library,
                Err(trouble) => {
                    self.start_due = now.after(RETRY_INTERVAL);
                    self.set_driver_trouble(Some(trouble));
                    return;
                }
            },
        };
        self.inherited().library = Some(library);
        self.library = Some(library);
        // If an abandoned thread hangs while it waits for the event set, this thread creates its
        // own set.
        self.events =
            events.filter(|_| !self.avoided.iter().any(|hung| hung.call.function == WAIT));
        (self.counted, self.count_due) = (None, Moment(0));
        self.set_driver_trouble(None);
    }

    fn read_versions(&mut self, library: Library) {
        if self.driver.version.is_none() {
            let version = self.call(VERSION, || library.sys_driver_version());
            self.driver.version = version.ok().map(Text::from);
        }
        if self.driver.cuda_version.is_none() {
            let version = self.call(CUDA_VERSION, || library.sys_cuda_driver_version());
            self.driver.cuda_version = version
                .ok()
                .map(|cuda| format!("{}.{}", cuda / 1000, cuda % 1000 / 10).into());
        }
    }

    /// `None` clears the trouble, unless a call still hangs.
    fn set_driver_trouble(&mut self, trouble: Option<Trouble>) {
        let trouble = trouble.or_else(|| self.avoided.first().map(|hung| hung.trouble.clone()));
        let before = self.driver.trouble.take();
        self.driver.trouble = trouble.map(|trouble| errors::continued(trouble, before.as_ref()));
    }

    fn lose_driver(&mut self, function: &'static str, error: &NvmlError, now: Moment) {
        let trouble = errors::driver_trouble(function, error, now);
        for slot in &mut self.slots {
            slot.set_trouble(&trouble);
        }
        self.set_driver_trouble(Some(trouble));
        self.library = None;
        *self.inherited() = Inherited::default();
        // The driver may have been updated, so its versions are read again.
        (self.driver.version, self.driver.cuda_version) = (None, None);
        self.start_due = now.after(RETRY_INTERVAL);
        self.lists = ProcessListReader::new();
    }

    /// Counts the GPUs. Looks up each index when the count has changed or a GPU does not answer.
    fn enumerate(&mut self, library: Library, now: Moment) {
        self.count_due = now.after(COUNT_INTERVAL);
        let count = match self.call(COUNT_CALL, || library.device_count()) {
            Ok(count) => count,
            // The call hung before. A new thread, which has no handles yet, assumes as many GPUs as
            // before.
            Err(NvmlError::Timeout) => match self.slots.iter().map(|slot| slot.index + 1).max() {
                Some(count) if self.counted.is_none() => count,
                _ => return,
            },
            Err(error) if concerns_driver(&error) => {
                return self.lose_driver(COUNT_CALL, &error, now);
            }
            Err(error) => {
                return self
                    .set_driver_trouble(Some(errors::driver_trouble(COUNT_CALL, &error, now)));
            }
        };
        self.set_driver_trouble(None);
        let missing = self
            .slots
            .iter()
            .any(|slot| slot.gpu.is_none() && slot.unresponsive.is_none());
        if self.counted == Some(count) && !missing {
            return;
        }
        if missing {
            self.count_due = now.after(RETRY_INTERVAL);
        }
        self.counted = Some(count);
        let (mut present, mut failed) = (vec![], vec![]);
        for index in 0..count {
            if self
                .slots
                .iter()
                .any(|slot| slot.index == index && slot.unresponsive.is_some())
            {
                continue;
            }
            match self.find(library, index) {
                _ if self.watch.is_abandoned() => return,
                Ok((device, uuid)) => {
                    present.push(uuid.clone());
                    self.put(index, device, uuid);
                }
                Err((function, error)) if concerns_driver(&error) => {
                    return self.lose_driver(function, &error, now);
                }
                Err(failure) => failed.push((index, failure)),
            }
        }
        gpu_slot::set_missing(&mut self.slots, &present, failed, now);
    }

    fn find(&self, library: Library, index: u32) -> Result<(Device<'static>, GpuUuid), CallError> {
        const UUID: &str = "nvmlDeviceGetUUID";
        let gpu = CallSubject::Gpu(index);
        let device = self
            .watch
            .call(gpu, HANDLE, || library.device_by_index(index))
            .map_err(|error| (HANDLE, error))?;
        let uuid = self
            .watch
            .call(gpu, UUID, || device.uuid())
            .map_err(|error| (UUID, error))?;
        Ok((device, GpuUuid(uuid.into())))
    }

    /// Puts a GPU into its slot. A GPU whose index has changed keeps its slot.
    fn put(&mut self, index: u32, device: Device<'static>, uuid: GpuUuid) {
        self.inherited()
            .handles
            .insert(raw::handle_of(&device), uuid.clone());
        let place = self
            .slots
            .iter()
            .position(|slot| slot.is(&uuid))
            .unwrap_or_else(|| {
                self.slots.push(GpuSlot {
                    index,
                    gpu: None,
                    instances: vec![],
                    last: vec![],
                    unresponsive: None,
                });
                self.slots.len() - 1
            });
        let slot = &mut self.slots[place];
        slot.set_index(index);
        if slot.gpu.is_none() {
            let mut gpu = NvmlGpu::new(device, uuid, index, None, &self.watch, &self.only);
            if let Some(last) = slot.last.first() {
                gpu.readings.health.xids.clone_from(&last.health.xids);
                // If the trouble persists, its start time is kept.
                gpu.readings.trouble.clone_from(&last.trouble);
            }
            slot.gpu = Some(gpu);
        }
    }

    fn read(&mut self, reads_slow: bool, is_first_stage: bool) {
        let mut lost_driver = None;
        let working = self
            .slots
            .iter()
            .filter(|slot| self.wanted.is_some() && slot.unresponsive.is_none());
        let gpus: Vec<_> = working
            .filter_map(|slot| Some((slot.index, raw::handle(&slot.calls()?.device))))
            .collect();
        for slot in &mut self.slots {
            let is_wanted = self.wanted.as_ref() == Some(&slot.readings().uuid);
            let Some(gpu) = &mut slot.gpu else { continue };
            let detail = match () {
                () if is_wanted => DetailLevel::Live(&gpus),
                () if self.detail => DetailLevel::Once,
                () => DetailLevel::No,
            };
            let (lists, samples) = (&mut self.lists, &mut self.samples);
            let driver = self.driver.version.as_ref().map_or("", Text::as_str);
            let mut pass = GpuPass {
                lists,
                samples,
                driver,
                reads_slow,
                is_first_stage,
                detail,
            };
            match mig_instances::read(gpu, &mut slot.instances, &mut pass) {
                Ok(()) => {
                    gpu.readings.failures = self.watch.failures(CallSubject::Gpu(slot.index));
                    slot.last.clear();
                }
                Err((function, error)) => {
                    let now = clock::now();
                    if concerns_driver(&error) {
                        lost_driver = Some((function, error, now));
                        break;
                    }
                    let trouble = errors::gpu_trouble(function, &error, &gpu.readings.facts, now);
                    slot.set_trouble(&trouble);
                    // The GPU may be back soon, at another index.
                    self.count_due = now.after(RETRY_INTERVAL);
                    self.events_due = Moment(0);
                }
            }
            if self.watch.is_abandoned() {
                return;
            }
        }
        if let Some((function, error, now)) = lost_driver {
            self.lose_driver(function, &error, now);
        }
    }

    fn fetch_events(&mut self, library: Library, now: Moment) {
        if now < self.events_due || self.library.is_none() {
            return;
        }
        self.events_due = now.after(EVENT_INTERVAL);
        if self.events.is_none() {
            let Ok(set) = self.call("nvmlEventSetCreate", || EventSet::create(library)) else {
                return;
            };
            self.registered.clear();
            self.events = Some(Arc::new(set));
            self.inherited().events.clone_from(&self.events);
        }
        let Some(set) = self.events.clone() else {
            return;
        };
        for calls in self.slots.iter().filter_map(GpuSlot::calls) {
            let handle = raw::handle_of(&calls.device);
            if !self.registered.contains(&handle) {
                self.registered.push(handle);
                // A GPU that does not support events returns an error.
                let _unsupported =
                    calls.call("nvmlDeviceRegisterEvents", || set.register(&calls.device));
            }
        }
        // Bounded, since a broken GPU can send events faster than they are read.
        for _ in 0..MOST_EVENTS {
            let (handle, code) = match self.call(WAIT, || set.next()) {
                Ok(event) => event,
                Err(NvmlError::Timeout) => return,
                Err(_) => {
                    // A set with a lost GPU always returns an error (nvml.h at nvmlEventSetWait_v2;
                    // NVIDIA/k8s-test-infra#746). The other GPUs get a new set.
                    let calls = self.slots.iter().filter_map(GpuSlot::calls);
                    let handles: Vec<Handle> =
                        calls.map(|calls| raw::handle_of(&calls.device)).collect();
                    if self
                        .registered
                        .iter()
                        .any(|handle| !handles.contains(handle))
                    {
                        self.events = None;
                        self.inherited().events = None;
                        self.events_due = now;
                    }
                    return;
                }
            };
            let Some(uuid) = self.inherited().handles.get(&handle).cloned() else {
                continue;
            };
            if let Some(slot) = self.slots.iter_mut().find(|slot| slot.is(&uuid)) {
                slot.note_xid(Xid { at: now, code });
            }
        }
        // The limit was reached, so more events may wait: the next pass continues to fetch them.
        self.events_due = now;
    }
}

impl GpuSource for NvmlReader {
    /// Reads only names, memory and compute processes, so that the first line does not wait for the
    /// rest. Returns `None` when there are readings already, no GPU, or only a few readings to
    /// take.
    fn first_stage(&mut self, now: Moment) -> Option<Readings> {
        if !self.only.is_everything() || self.library.is_some() || !self.slots.is_empty() {
            return None;
        }
        self.start(now);
        self.enumerate(self.library?, now);
        self.read(false, true);
        self.read_versions(self.library?);
        // Count the GPUs again in the first full pass: a GPU may have been missing.
        self.count_due = now;
        (!self.slots.is_empty()).then(|| self.readings())
    }

    fn pass(&mut self, now: Moment, request: PassRequest) -> Readings {
        let reads_slow = request.reads_slow;
        if request.came_back {
            self.came_back(now);
        }
        self.wanted = request.detail;
        if self.library.is_none() {
            self.start(now);
        }
        if let Some(library) = self.library {
            if reads_slow || now >= self.count_due {
                self.enumerate(library, now);
                if self.library.is_some() {
                    self.read_versions(library);
                }
            }
            self.read(reads_slow, false);
            if self.only.is_everything() {
                self.fetch_events(library, now);
            }
        }
        self.readings()
    }

    /// Repeats the hung calls whose retry is due. They may hang again, so the caller does this
    /// after the pass.
    fn retry(&mut self, now: Moment) {
        let is_due = |hung: &Unresponsive| hung.again.is_some_and(|again| now >= again);
        while let Some(place) = self.avoided.iter().position(is_due) {
            self.avoided.swap_remove(place);
            (self.start_due, self.events_due) = (now, now);
            if self.library.is_none() {
                self.start(now);
            }
            if let Some(library) = self.library {
                self.enumerate(library, now);
                self.read_versions(library);
                self.fetch_events(library, now);
            }
            if self.watch.is_abandoned() {
                return;
            }
            // The function answered. This clears the trouble, unless another function is still
            // avoided.
            self.set_driver_trouble(None);
        }
        let mut is_any_due = false;
        for slot in &mut self.slots {
            is_any_due |= slot.unresponsive.take_if(|hung| is_due(hung)).is_some();
        }
        if let (true, Some(library)) = (is_any_due, self.library) {
            self.counted = None;
            self.enumerate(library, now);
            self.read(false, false);
        }
    }
}
