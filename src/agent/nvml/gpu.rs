//! One GPU, or one instance of a split one: asks it for its lanes.
//!
//! What a GPU does not support it never will while its driver runs, so that is asked once. A GPU that
//! was lost keeps the lanes of its last whole pass: half a pass would pass for news.

use nvml_wrapper::Device;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureThreshold};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlProcessUtilizationSample_t};

use super::call_watch::Watch;
use super::errors::{self, is_fatal, missing, the_gpu};
use super::gpu_processes::{self, Lane};
use super::on_demand::Live;
use super::process_lists::{Fault, List, Lists};
use super::{calls, mig, raw};
use crate::agent::{GpuReadings, clock};
use crate::base::text::Text;
use crate::base::units::{Bytes, Celsius, Hertz, Moment, Percent, Watts};
use crate::protocol::snapshot::{Cause, GpuFacts, GpuHealth, GpuLoad, GpuUuid, Missing, Reading, Throttle, Trouble};

/// What a pass carries from GPU to GPU.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    pub(super) watch: &'a Watch,
    pub(super) lists: &'a mut Lists,
    pub(super) samples: &'a mut Vec<nvmlProcessUtilizationSample_t>,
    /// The driver's version; empty when it is not known.
    pub(super) driver: &'a str,
    /// Someone asked for everything now.
    pub(super) scan: bool,
    /// Whether to read only what the first line needs: names, memory and processes.
    pub(super) is_first_stage: bool,
    /// What is wanted of this GPU besides.
    pub(super) detail: Detail<'a>,
}

/// How much of what few ask for is wanted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Detail<'a> {
    No,
    /// At each pass, what one call can say.
    Once,
    /// For as long as someone looks: also what takes long or needs two looks. These are the GPUs there are.
    Live(&'a [(u32, nvmlDevice_t)]),
}

/// A call that failed in a way that concerns more than its figure.
pub(super) type Failure = (&'static str, NvmlError);

/// A GPU that answers.
#[derive(Debug)]
pub(super) struct Gpu {
    pub(super) device: Device<'static>,
    pub(super) readings: GpuReadings,
    /// The instances, when it is split.
    pub(super) parts: Vec<Gpu>,
    pub(super) lane: Lane,
    /// Functions, each with its argument, that this GPU does not support.
    never: Vec<(&'static str, u32)>,
    slow_due: Moment,
    /// What is read while someone looks.
    pub(super) live: Live,
    answered: bool,
    /// What failed first in this pass.
    failed: Option<Failure>,
    /// What ended this pass for this GPU.
    fatal: Option<Failure>,
}

/// How often the slow lane is read. A GPU's turn comes at a second of its own, so that no pass carries all.
const SLOW_MS: u64 = 10_000;

impl Gpu {
    /// Opens a GPU, or an instance of `parent`, and reads its name. The other facts are read in the first whole pass.
    pub(super) fn open(
        device: Device<'static>,
        uuid: GpuUuid,
        index: u32,
        parent: Option<GpuUuid>,
        watch: &Watch,
    ) -> Self {
        let now = clock::now();
        let mut gpu = Self {
            device,
            readings: GpuReadings {
                uuid,
                facts: GpuFacts::missing(index, parent, false, Missing::NotYet),
                load: GpuLoad::missing(now, Missing::NotYet),
                health: GpuHealth::missing(now, vec![], Missing::NotYet),
                detail: None,
                holds: vec![],
                device_file_holders: vec![],
                trouble: None,
                failures: vec![],
            },
            parts: vec![],
            lane: Lane::default(),
            never: vec![],
            slow_due: Moment(0),
            live: Live::default(),
            answered: false,
            failed: None,
            fatal: None,
        };
        gpu.readings.facts.name = gpu.name(watch);
        gpu
    }

    pub(super) fn is_part(&self) -> bool {
        self.readings.facts.parent.is_some()
    }

    fn name(&mut self, watch: &Watch) -> Reading<Text> {
        if self.is_part() { mig::name(self, watch) } else { self.ask(watch, "nvmlDeviceGetName", 0, raw::name) }
    }

    /// Reads the facts that were not read yet, and those that should have been readable and were not.
    fn read_facts(&mut self, watch: &Watch) {
        let facts = &self.readings.facts;
        let missing = [
            facts.name.as_ref().err(),
            facts.bus_id.as_ref().err(),
            facts.slowdown_temperature.as_ref().err(),
            facts.minor.as_ref().err(),
        ];
        if !missing.contains(&Some(&Missing::NotYet)) && !missing.contains(&Some(&Missing::Failed)) {
            return;
        }
        if facts.name.is_err() {
            self.readings.facts.name = self.name(watch);
        }
        let bus_id = self.ask(watch, "nvmlDeviceGetPciInfo_v3", 0, Device::pci_info);
        self.readings.facts.bus_id = bus_id.map(|pci| pci.bus_id.into());
        if self.is_part() {
            self.readings.facts.slowdown_temperature = Err(Missing::Unsupported);
            self.readings.facts.gpu_instance = self.ask(watch, "nvmlDeviceGetGpuInstanceId", 0, raw::gpu_instance);
            self.readings.facts.compute_instance =
                self.ask(watch, "nvmlDeviceGetComputeInstanceId", 0, raw::compute_instance);
        } else {
            let slowdown = self.ask(watch, "nvmlDeviceGetTemperatureThreshold", 0, |gpu| {
                gpu.temperature_threshold(TemperatureThreshold::Slowdown)
            });
            self.readings.facts.slowdown_temperature = slowdown.and_then(celsius);
            self.readings.facts.minor = self.ask(watch, "nvmlDeviceGetMinorNumber", 0, Device::minor_number);
            (self.readings.facts.gpu_instance, self.readings.facts.compute_instance) =
                (Err(Missing::Unsupported), Err(Missing::Unsupported));
        }
    }

    /// Asks for one figure.
    pub(super) fn ask<T>(
        &mut self,
        watch: &Watch,
        function: &'static str,
        argument: u32,
        call: impl FnOnce(&Device<'static>) -> Result<T, NvmlError>,
    ) -> Reading<T> {
        if self.fatal.is_some() {
            return Err(Missing::Failed);
        }
        if self.never.contains(&(function, argument)) {
            return Err(Missing::Unsupported);
        }
        match watch.call(function, || call(&self.device)) {
            Ok(value) => {
                self.answered = true;
                Ok(value)
            }
            Err(error) if is_fatal(&error) => {
                self.fatal = Some((function, error));
                Err(Missing::Failed)
            }
            Err(error) => {
                let why = missing(&error);
                if why == Missing::Unsupported {
                    self.answered = true;
                    self.never.push((function, argument));
                } else {
                    // That the whole GPU is in need says more than what failed before.
                    self.failed.take_if(|(_, it)| needs_reset(&error) && !needs_reset(it));
                    self.failed.get_or_insert((function, error));
                }
                Err(why)
            }
        }
    }

    /// Asks by a function that nvml.h means to drop, or by what takes its place; drivers before 535 have only the former.
    /// One that the driver has not, or has no more, is asked once.
    pub(super) fn renamed<T>(&mut self, watch: &Watch, [old, new]: [calls::Ask<T>; 2]) -> Reading<T> {
        match self.ask(watch, old.0, 0, old.1) {
            Err(Missing::Unsupported) => self.ask(watch, new.0, 0, new.1),
            other => other,
        }
    }

    /// Reads the lanes that are due. On failure all of them stay as they were.
    pub(super) fn read(&mut self, pass: &mut Pass<'_>) -> Result<(), Failure> {
        (self.answered, self.failed) = (false, None);
        let now = clock::now();
        let first = pass.is_first_stage;
        let slow = pass.scan || now >= self.slow_due;
        let load = self.load(pass.watch, now, first);
        let health = slow.then(|| self.health(pass.watch, now, first));
        if !first {
            self.read_detail(pass, now);
            if slow {
                self.read_facts(pass.watch);
            }
        }
        let mig = health.as_ref().unwrap_or(&self.readings.health).mig;
        // What a GPU supports depends on whether it is split.
        if pass.scan || mig != self.readings.health.mig {
            self.never.clear();
        }
        let split = mig == Ok(true);
        let trouble = if split { None } else { gpu_processes::read(self, pass, slow, now) };
        if let Some(fatal) = self.fatal.take() {
            return Err(fatal);
        }
        self.readings.load = load;
        self.readings.health = health.unwrap_or_else(|| self.readings.health.clone());
        self.readings.holds = if split { vec![] } else { self.lane.take_holds() };
        let trouble = match self.failed.take() {
            Some((function, error)) if !self.answered || needs_reset(&error) => {
                Some(errors::of_gpu(function, &error, &self.readings.facts, now))
            }
            // Not every pass asks what needs the reset.
            _ if !slow && self.readings.trouble.as_ref().is_some_and(|it| it.cause == Cause::Reset) => {
                self.readings.trouble.clone()
            }
            _ => trouble,
        };
        self.set_trouble(trouble);
        if slow && !first {
            let turn = u64::from(self.readings.facts.index) * 1000 % SLOW_MS;
            // Not a full round the first time, so that each GPU finds its own second.
            let first = self.slow_due == Moment(0);
            self.slow_due = Moment(now.0 + if first { 1500 + turn } else { SLOW_MS });
        }
        if !self.is_part() {
            mig::read(self, pass, split, slow);
        }
        Ok(())
    }

    /// Keeps the time since when it stands, when it is the same trouble as before.
    fn set_trouble(&mut self, mut trouble: Option<Trouble>) {
        if let (Some(new), Some(old)) = (&mut trouble, &self.readings.trouble)
            && new.cause == old.cause
            && new.call == old.call
        {
            new.since = old.since;
        }
        self.readings.trouble = trouble;
    }

    fn load(&mut self, watch: &Watch, now: Moment, is_first_stage: bool) -> GpuLoad {
        // An instance has memory of its own; all else is its parent's.
        let is_rest_due = is_first_stage && !self.is_part();
        let mut load = GpuLoad::missing(now, if is_rest_due { Missing::NotYet } else { Missing::Unsupported });
        self.read_memory(watch, &mut load);
        if self.is_part() || is_first_stage {
            return load;
        }
        let rates = self.ask(watch, "nvmlDeviceGetUtilizationRates", 0, Device::utilization_rates);
        load.sm = rates.as_ref().map_err(|why| *why).and_then(|rates| percent(rates.gpu));
        load.memory_bandwidth = rates.and_then(|rates| percent(rates.memory));
        load.temperature = self.renamed(watch, calls::TEMPERATURE).and_then(celsius);
        load.power = self.ask(watch, "nvmlDeviceGetPowerUsage", 0, Device::power_usage).and_then(watts);
        load.sm_clock = self.ask(watch, "nvmlDeviceGetClockInfo", 1, |gpu| gpu.clock_info(Clock::SM)).and_then(hertz);
        let reasons = self.renamed(watch, calls::CLOCK_REASONS);
        load.throttle = reasons.map(|it| throttles(ThrottleReasons::from_bits_truncate(it)));
        load
    }

    /// Memory, if it can be so: no more in use than there is.
    fn read_memory(&mut self, watch: &Watch, load: &mut GpuLoad) {
        self.ask_memory(watch, load);
        if let (Ok(used), Ok(total)) = (load.memory_used, load.memory_total)
            && used > total
        {
            (load.memory_used, load.memory_free) = (Err(Missing::Failed), Err(Missing::Failed));
        }
    }

    /// Memory as nvidia-smi counts it: the driver's reserve is not in use. Before driver 510 it cannot be told apart.
    fn ask_memory(&mut self, watch: &Watch, load: &mut GpuLoad) {
        match self.ask(watch, "nvmlDeviceGetMemoryInfo_v2", 0, Device::memory_info) {
            // So some GPUs say that they have none of their own (nvtop takes it for that too).
            Ok(memory) if memory.total == 0 => {}
            Ok(memory) => {
                load.memory_used = Ok(Bytes(memory.used));
                load.memory_free = Ok(Bytes(memory.free));
                load.memory_reserved = Ok(Bytes(memory.reserved));
                load.memory_total = Ok(Bytes(memory.total));
            }
            Err(Missing::Unsupported) => {
                let memory = self.ask(watch, "nvmlDeviceGetMemoryInfo", 0, raw::memory_v1);
                let memory = memory.and_then(|it| if it.2 == 0 { Err(Missing::Unsupported) } else { Ok(it) });
                load.memory_used = memory.map(|(used, _, _)| Bytes(used));
                load.memory_free = memory.map(|(_, free, _)| Bytes(free));
                load.memory_total = memory.map(|(_, _, total)| Bytes(total));
            }
            Err(why) => {
                (load.memory_used, load.memory_free) = (Err(why), Err(why));
                (load.memory_reserved, load.memory_total) = (Err(why), Err(why));
            }
        }
    }

    fn health(&mut self, watch: &Watch, now: Moment, is_first_stage: bool) -> GpuHealth {
        let xids = self.readings.health.xids.clone();
        if self.is_part() {
            return GpuHealth::missing(now, xids, Missing::Unsupported);
        }
        let why = if is_first_stage { Missing::NotYet } else { Missing::Unsupported };
        let mut health = GpuHealth::missing(now, xids, why);
        health.mig = self.ask(watch, "nvmlDeviceGetMigMode", 0, Device::mig_mode).map(|mode| mode.current == 1);
        if is_first_stage {
            return health;
        }
        let limit = self.ask(watch, "nvmlDeviceGetEnforcedPowerLimit", 0, Device::enforced_power_limit);
        health.power_limit = limit.and_then(watts);
        let clock = self.ask(watch, "nvmlDeviceGetClockInfo", 2, |gpu| gpu.clock_info(Clock::Memory));
        health.memory_clock = clock.and_then(hertz);
        let state = self.ask(watch, "nvmlDeviceGetPerformanceState", 0, Device::performance_state);
        // NVML's "unknown" is 32.
        health.performance_state =
            state.map(|it| it.as_c()).and_then(|it| if it < 16 { Ok(it) } else { Err(Missing::Unsupported) });
        let fan = self.ask(watch, "nvmlDeviceGetFanSpeed_v2", 0, calls::fan);
        health.fan = fan.map(|percent| Percent::new(f32::from(u16::try_from(percent).unwrap_or(u16::MAX))));
        self.read_damage(watch, &mut health);
        health.pcie_generation = self.ask(watch, "nvmlDeviceGetCurrPcieLinkGeneration", 0, calls::pcie_generation);
        health.pcie_width = self.ask(watch, "nvmlDeviceGetCurrPcieLinkWidth", 0, calls::pcie_width);
        let encoder = self.ask(watch, "nvmlDeviceGetEncoderUtilization", 0, calls::encoder);
        health.encoder = encoder.and_then(|[share, _]| percent(share));
        let decoder = self.ask(watch, "nvmlDeviceGetDecoderUtilization", 0, calls::decoder);
        health.decoder = decoder.and_then(|[share, _]| percent(share));
        health
    }

    /// Reads a process list into the lane; trouble when there is none to be had.
    pub(super) fn read_list(&mut self, pass: &mut Pass<'_>, list: List, now: Moment) -> Option<Trouble> {
        let function = pass.lists.function(list);
        if self.fatal.is_some() || self.never.contains(&(function, 0)) {
            return None;
        }
        let read = pass.lists.read(pass.watch, &self.device, list, self.lane.scratch());
        let function = pass.lists.function(list);
        match read {
            Ok(()) => {
                self.answered = true;
                self.lane.take(list, now);
                None
            }
            Err(Fault::Garbage(pid)) => {
                let sentence = format!(
                    "{}: {function} named PID {pid}, which no process can have, so its processes are shown as last seen",
                    the_gpu(&self.readings.facts)
                );
                Some(Trouble {
                    cause: Cause::Failed,
                    sentence: sentence.into(),
                    call: Some(function.into()),
                    since: now,
                })
            }
            Err(Fault::Error(error)) if is_fatal(&error) => {
                self.fatal = Some((function, error));
                None
            }
            Err(Fault::Error(error)) if missing(&error) == Missing::Unsupported => {
                self.never.push((function, 0));
                None
            }
            Err(Fault::Error(error)) => Some(errors::of_gpu(function, &error, &self.readings.facts, now)),
        }
    }
}

/// Whether the GPU needs a reset. What it can still say, it says: its memory, and whose it is.
fn needs_reset(error: &NvmlError) -> bool {
    matches!(error, NvmlError::ResetRequired)
}

/// A share that can be one.
pub(super) fn percent(value: u32) -> Reading<Percent> {
    match u8::try_from(value) {
        Ok(value @ 0..=100) => Ok(Percent::new(f32::from(value))),
        _ => Err(Missing::Failed),
    }
}

// A driver out of its mind gives figures that cannot be. The bounds are far from any that can.

pub(super) fn celsius(value: u32) -> Reading<Celsius> {
    if value < 250 { i32::try_from(value).map(Celsius).map_err(|_| Missing::Failed) } else { Err(Missing::Failed) }
}

fn watts(draw: u32) -> Reading<Watts> {
    milliwatts(draw).map(Watts::from_milliwatts)
}

pub(super) fn milliwatts(draw: u32) -> Reading<u32> {
    if draw < 100_000_000 { Ok(draw) } else { Err(Missing::Failed) }
}

pub(super) fn hertz(megahertz: u32) -> Reading<Hertz> {
    if megahertz < 100_000 { Ok(Hertz::from_mhz(megahertz)) } else { Err(Missing::Failed) }
}

fn throttles(reasons: ThrottleReasons) -> Vec<Throttle> {
    [
        (ThrottleReasons::SW_POWER_CAP, Throttle::PowerCap),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, Throttle::Thermal),
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, Throttle::HardwareThermal),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, Throttle::PowerBrake),
        (ThrottleReasons::HW_SLOWDOWN, Throttle::Hardware),
        (ThrottleReasons::SYNC_BOOST, Throttle::SyncBoost),
    ]
    .into_iter()
    .filter_map(|(bit, throttle)| reasons.contains(bit).then_some(throttle))
    .collect()
}
