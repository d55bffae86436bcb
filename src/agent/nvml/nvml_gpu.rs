//! One GPU, or one MIG instance, that answers: reads its facts, load, health and processes.
//!
//! A function that a GPU does not support is called once: support does not change while the driver runs. A GPU that is lost
//! in the middle of a pass keeps the readings of its last whole pass.

use std::rc::Rc;

use nvml_wrapper::Device;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureThreshold};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlProcessUtilizationSample_t};

use super::call_watch::CallWatch;
use super::errors::{self, needs_reset};
use super::gpu_calls::{CallError, GpuCalls};
use super::gpu_process_lists::GpuProcessLists;
use super::on_demand::OnDemand;
use super::plausible::{celsius, hertz, percent, watts};
use super::process_list_reader::ProcessListReader;
use super::{calls, process_utilization, raw};
use crate::agent::{GpuReadings, clock};
use crate::base::units::{Bytes, Moment, Percent};
use crate::protocol::snapshot::{Cause, GpuHealth, GpuLoad, GpuUuid, Missing, Throttle, Trouble};

/// The readings wanted in a pass, and the buffers that all GPUs use in turn.
#[derive(Debug)]
pub(super) struct GpuPass<'a> {
    pub(super) lists: &'a mut ProcessListReader,
    pub(super) samples: &'a mut Vec<nvmlProcessUtilizationSample_t>,
    /// The driver's version; empty when it is not known.
    pub(super) driver: &'a str,
    /// Whether to read everything that is otherwise read seldom.
    pub(super) scan: bool,
    /// Whether to read only what the first line needs: names, memory and compute processes.
    pub(super) is_first_stage: bool,
    pub(super) detail: DetailLevel<'a>,
}

/// How much of a GPU's detail to read.
#[derive(Debug, Clone, Copy)]
pub(super) enum DetailLevel<'a> {
    No,
    /// In each pass, everything that one call can tell.
    Once,
    /// While a person looks at this GPU: also what takes long or needs two calls. With the index and handle of every GPU.
    Live(&'a [(u32, nvmlDevice_t)]),
}

/// A GPU, or a MIG instance, that answers.
#[derive(Debug)]
pub(super) struct NvmlGpu {
    pub(super) calls: GpuCalls,
    /// The readings of the last whole pass.
    pub(super) readings: GpuReadings,
    processes: GpuProcessLists,
    slow_due: Moment,
    on_demand: OnDemand,
}

/// Milliseconds between two readings of health, detail and the rarely used process lists. Each GPU is read at a second of
/// its own: no pass reads all of them.
const SLOW_MS: u64 = 10_000;
/// Milliseconds until the second such reading, before a GPU's own second is added.
const SECOND_SLOW_MS: u64 = 1500;

impl NvmlGpu {
    /// A GPU, or an instance of `parent`, of which nothing was read.
    pub(super) fn new(
        device: Device<'static>,
        uuid: GpuUuid,
        index: u32,
        parent: Option<GpuUuid>,
        watch: &Rc<CallWatch>,
    ) -> Self {
        Self {
            calls: GpuCalls::new(device, index, watch.clone()),
            readings: GpuReadings::missing(uuid, index, parent, clock::now(), Missing::NotYet),
            processes: GpuProcessLists::default(),
            slow_due: Moment(0),
            on_demand: OnDemand::default(),
        }
    }

    pub(super) fn is_instance(&self) -> bool {
        self.readings.facts.parent.is_some()
    }

    pub(super) fn set_index(&mut self, index: u32) {
        (self.calls.index, self.readings.facts.index) = (index, index);
    }

    /// Reads the facts that were not read yet, and those that failed before. The owner of an instance reads its name.
    fn read_facts(&mut self) {
        let Self { calls, readings: GpuReadings { facts, .. }, .. } = self;
        let missing = [
            facts.name.as_ref().err(),
            facts.bus_id.as_ref().err(),
            facts.slowdown_temperature.as_ref().err(),
            facts.minor.as_ref().err(),
        ];
        if !missing.contains(&Some(&Missing::NotYet)) && !missing.contains(&Some(&Missing::Failed)) {
            return;
        }
        facts.bus_id = calls.ask("nvmlDeviceGetPciInfo_v3", Device::pci_info).map(|pci| pci.bus_id.into());
        if facts.parent.is_some() {
            facts.slowdown_temperature = Err(Missing::Unsupported);
            facts.gpu_instance = calls.ask("nvmlDeviceGetGpuInstanceId", raw::gpu_instance);
            facts.compute_instance = calls.ask("nvmlDeviceGetComputeInstanceId", raw::compute_instance);
        } else {
            let slowdown = calls.ask("nvmlDeviceGetTemperatureThreshold", |gpu| {
                gpu.temperature_threshold(TemperatureThreshold::Slowdown)
            });
            facts.slowdown_temperature = slowdown.and_then(celsius);
            facts.minor = calls.ask("nvmlDeviceGetMinorNumber", Device::minor_number);
            (facts.gpu_instance, facts.compute_instance) = (Err(Missing::Unsupported), Err(Missing::Unsupported));
        }
    }

    /// Reads everything that is due. On failure load, health and processes stay as they were. Returns whether it read what
    /// is read seldom.
    pub(super) fn read(&mut self, pass: &mut GpuPass<'_>) -> Result<bool, CallError> {
        self.calls.begin();
        let now = clock::now();
        let first = pass.is_first_stage;
        let slow = pass.scan || now >= self.slow_due;
        if slow && !self.is_instance() && self.readings.facts.name.is_err() {
            self.readings.facts.name = self.calls.ask("nvmlDeviceGetName", raw::name);
        }
        if slow && !first {
            self.read_facts();
        }
        let load = self.load(now, first);
        let health = slow.then(|| self.health(now, first));
        if !first && !self.is_instance() {
            self.read_detail(pass, now);
        }
        let mig = health.as_ref().unwrap_or(&self.readings.health).mig;
        if pass.scan || mig != self.readings.health.mig {
            self.calls.forget_unsupported();
        }
        let is_split = mig == Ok(true);
        let trouble = if is_split { None } else { self.read_processes(pass, slow, now) };
        if let Some(fatal) = self.calls.fatal.take() {
            return Err(fatal);
        }
        self.readings.load = load;
        if let Some(health) = health {
            self.readings.health = health;
        }
        self.readings.processes = if is_split { vec![] } else { std::mem::take(&mut self.processes.merged) };
        let trouble = match self.calls.failed.take() {
            Some((function, error)) if !self.calls.has_answered || needs_reset(&error) => {
                Some(errors::of_gpu(function, &error, &self.readings.facts, now))
            }
            // The calls of other passes may not tell that the GPU needs a reset.
            _ if !slow && self.readings.trouble.as_ref().is_some_and(|trouble| trouble.cause == Cause::Reset) => {
                self.readings.trouble.clone()
            }
            _ => trouble,
        };
        self.set_trouble(trouble);
        if slow && !first {
            let own_second = u64::from(self.readings.facts.index) * 1000 % SLOW_MS;
            let is_second_next = self.slow_due == Moment(0);
            self.slow_due = Moment(now.0 + if is_second_next { SECOND_SLOW_MS + own_second } else { SLOW_MS });
        }
        Ok(slow)
    }

    /// Sets the trouble. If the same trouble goes on, it keeps the time when it began.
    fn set_trouble(&mut self, mut trouble: Option<Trouble>) {
        if let (Some(new), Some(old)) = (&mut trouble, &self.readings.trouble)
            && new.cause == old.cause
            && new.call == old.call
        {
            new.since = old.since;
        }
        self.readings.trouble = trouble;
    }

    fn read_processes(&mut self, pass: &mut GpuPass<'_>, slow: bool, now: Moment) -> Option<Trouble> {
        // NVML has no process utilization of an instance.
        let has_utilization = !self.is_instance();
        let sm = if has_utilization { Missing::NotYet } else { Missing::Unsupported };
        // The first stage reads the list of compute processes only.
        let slow = slow && !pass.is_first_stage;
        let Self { calls, processes, readings, .. } = self;
        let trouble = processes.read(calls, pass.lists, &readings.facts, sm, slow, now);
        if has_utilization && !pass.is_first_stage && !processes.merged.is_empty() {
            let GpuProcessLists { merged, utilization, .. } = processes;
            process_utilization::read(utilization, calls, pass.samples, merged, pass.lists.is_contained(), slow, now);
        }
        trouble
    }

    /// Reads the detail that is wanted: the state of the GPU every few seconds while a person looks.
    fn read_detail(&mut self, pass: &GpuPass<'_>, now: Moment) {
        let Self { calls, on_demand, readings, .. } = self;
        let is_due = match pass.detail {
            DetailLevel::No => {
                if on_demand.end() {
                    calls.watch.forget_on_demand(readings.facts.index);
                }
                return;
            }
            DetailLevel::Once => true,
            DetailLevel::Live(_) => on_demand.is_state_due(now),
        };
        calls.watch.set_on_demand(true);
        let mut detail = match readings.detail.take() {
            Some(detail) => detail,
            None => Box::new(calls.fixed_detail(&readings.facts.bus_id)),
        };
        if is_due {
            calls.read_state(&mut detail, pass.driver);
            // The lane's time is that of its older part.
            detail.at = now;
        }
        if let DetailLevel::Live(gpus) = pass.detail {
            on_demand.read(calls, &mut detail, gpus, now);
        }
        calls.watch.set_on_demand(false);
        readings.detail = Some(detail);
    }

    fn load(&mut self, now: Moment, is_first_stage: bool) -> GpuLoad {
        // An instance has memory of its own; all else is its parent's.
        let has_memory_only = self.is_instance();
        let is_rest_due = is_first_stage && !has_memory_only;
        let mut load = GpuLoad::missing(now, if is_rest_due { Missing::NotYet } else { Missing::Unsupported });
        self.read_memory(&mut load);
        if has_memory_only || is_first_stage {
            return load;
        }
        let calls = &mut self.calls;
        let rates = calls.ask("nvmlDeviceGetUtilizationRates", Device::utilization_rates);
        load.sm = rates.as_ref().map_err(|why| *why).and_then(|rates| percent(rates.gpu));
        load.memory_bandwidth = rates.and_then(|rates| percent(rates.memory));
        load.temperature = calls.renamed(calls::TEMPERATURE).and_then(celsius);
        load.power = calls.ask("nvmlDeviceGetPowerUsage", Device::power_usage).and_then(watts);
        let clock = calls.ask_with("nvmlDeviceGetClockInfo", calls::SM_CLOCK, |gpu| gpu.clock_info(Clock::SM));
        load.sm_clock = clock.and_then(hertz);
        let reasons = calls.renamed(calls::CLOCK_REASONS);
        load.throttle = reasons.map(|bits| throttles(ThrottleReasons::from_bits_truncate(bits)));
        load
    }

    /// Reads memory as nvidia-smi counts it: the driver's reserve is not in use. Before driver 510 the two cannot be told
    /// apart.
    fn read_memory(&mut self, load: &mut GpuLoad) {
        match self.calls.ask("nvmlDeviceGetMemoryInfo_v2", Device::memory_info) {
            // GPUs without memory of their own answer 0 (nvtop reads it so too).
            Ok(memory) if memory.total == 0 => set_memory(load, Missing::Unsupported),
            Ok(memory) => {
                load.memory_used = Ok(Bytes(memory.used));
                load.memory_free = Ok(Bytes(memory.free));
                load.memory_reserved = Ok(Bytes(memory.reserved));
                load.memory_total = Ok(Bytes(memory.total));
            }
            Err(Missing::Unsupported) => {
                let memory = self.calls.ask("nvmlDeviceGetMemoryInfo", raw::memory_v1);
                let memory = memory.and_then(|(used, free, total)| match total {
                    0 => Err(Missing::Unsupported),
                    _ => Ok((used, free, total)),
                });
                load.memory_used = memory.map(|(used, _, _)| Bytes(used));
                load.memory_free = memory.map(|(_, free, _)| Bytes(free));
                load.memory_reserved = Err(Missing::Unsupported);
                load.memory_total = memory.map(|(_, _, total)| Bytes(total));
            }
            Err(why) => set_memory(load, why),
        }
        if let (Ok(used), Ok(total)) = (load.memory_used, load.memory_total)
            && used > total
        {
            (load.memory_used, load.memory_free) = (Err(Missing::Failed), Err(Missing::Failed));
        }
    }

    fn health(&mut self, now: Moment, is_first_stage: bool) -> GpuHealth {
        let xids = self.readings.health.xids.clone();
        if self.is_instance() {
            return GpuHealth::missing(now, xids, Missing::Unsupported);
        }
        let why = if is_first_stage { Missing::NotYet } else { Missing::Unsupported };
        let mut health = GpuHealth::missing(now, xids, why);
        let calls = &mut self.calls;
        health.mig = calls.ask("nvmlDeviceGetMigMode", Device::mig_mode).map(|mode| mode.current == 1);
        if is_first_stage {
            return health;
        }
        let limit = calls.ask("nvmlDeviceGetEnforcedPowerLimit", Device::enforced_power_limit);
        health.power_limit = limit.and_then(watts);
        let clock = calls.ask_with("nvmlDeviceGetClockInfo", calls::MEMORY_CLOCK, |gpu| gpu.clock_info(Clock::Memory));
        health.memory_clock = clock.and_then(hertz);
        let state = calls.ask("nvmlDeviceGetPerformanceState", Device::performance_state).map(|state| state.as_c());
        // NVML's "unknown" is 32.
        health.performance_state =
            state.and_then(|state| if state < 16 { Ok(state) } else { Err(Missing::Unsupported) });
        let fan = calls.ask("nvmlDeviceGetFanSpeed_v2", calls::fan);
        health.fan = fan.map(|percent| Percent::new(f32::from(u16::try_from(percent).unwrap_or(u16::MAX))));
        calls.read_damage(&mut health);
        health.pcie_generation = calls.ask("nvmlDeviceGetCurrPcieLinkGeneration", calls::pcie_generation);
        health.pcie_width = calls.ask("nvmlDeviceGetCurrPcieLinkWidth", calls::pcie_width);
        let encoder = calls.ask("nvmlDeviceGetEncoderUtilization", calls::encoder);
        health.encoder = encoder.and_then(|[share, _]| percent(share));
        let decoder = calls.ask("nvmlDeviceGetDecoderUtilization", calls::decoder);
        health.decoder = decoder.and_then(|[share, _]| percent(share));
        health
    }
}

fn set_memory(load: &mut GpuLoad, why: Missing) {
    (load.memory_used, load.memory_free) = (Err(why), Err(why));
    (load.memory_reserved, load.memory_total) = (Err(why), Err(why));
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
