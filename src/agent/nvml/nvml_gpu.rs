//! Reads one GPU, or one MIG instance, that answers: its facts, load, health, detail and processes.
//!
//! A function that the GPU does not support is called again only in a scan, or after MIG was
//! switched on or off. A GPU that is lost during a pass keeps the readings of its last complete
//! pass.

use std::rc::Rc;

use nvml_wrapper::Device;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::{
    nvmlClockType_enum_NVML_CLOCK_MEM as MEMORY_CLOCK,
    nvmlClockType_enum_NVML_CLOCK_SM as SM_CLOCK, nvmlDevice_t, nvmlProcessUtilizationSample_t,
    nvmlTemperature_v1_t, nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU as CORE,
    nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_SLOWDOWN as SLOWDOWN,
};

use super::call_watch::CallWatch;
use super::errors;
use super::gpu_calls::{CallError, GpuCalls, read, read_structure, read_text, take};
use super::gpu_detail::engine;
use super::gpu_process_lists::{GpuProcessLists, ListedProcesses};
use super::on_demand::OnDemand;
use super::pcie_traffic::PcieTraffic;
use super::plausible::{celsius, hertz, percent, watts};
use super::process_list_reader::ProcessListReader;
use super::process_utilization::Utilization;
use super::wanted::Wanted;
use crate::agent::{GpuReadings, clock};
use crate::base::units::{Bytes, Moment, Percent};
use crate::protocol::snapshot::{
    Cause, GpuHealth, GpuLoad, GpuUuid, Missing, Reading, Throttle, Use,
};

/// The readings that a pass takes, and the buffers that all GPUs share.
#[derive(Debug)]
pub(super) struct GpuPass<'a> {
    pub(super) lists: &'a mut ProcessListReader,
    pub(super) samples: &'a mut Vec<nvmlProcessUtilizationSample_t>,
    /// The driver's version; empty when it is not known.
    pub(super) driver: &'a str,
    /// Whether to read also the readings that are due only every 10 seconds, and to retry
    /// unsupported calls.
    pub(super) reads_slow: bool,
    /// Whether to read only names, memory and compute processes, which the first line needs.
    pub(super) is_first_stage: bool,
    pub(super) detail: DetailLevel<'a>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum DetailLevel<'a> {
    No,
    /// The fixed part and the state, in each pass.
    Once,
    /// The page of this GPU is open: also rates, which take long or need two readings. Holds the
    /// index and handle of every GPU that answers.
    Live(&'a [(u32, nvmlDevice_t)]),
}

#[derive(Debug)]
pub(super) struct NvmlGpu {
    pub(super) calls: GpuCalls,
    /// The readings of the last complete pass.
    pub(super) readings: GpuReadings,
    lists: GpuProcessLists,
    utilization: Utilization,
    slow_due: Moment,
    /// `None` while the page of the GPU is closed.
    on_demand: Option<OnDemand>,
    pcie_traffic: PcieTraffic,
}

/// Milliseconds between two slow passes, which also read facts, health, and the graphics and MPS
/// process lists.
const SLOW_MS: u64 = 10_000;
/// Milliseconds until the second slow pass. One second per GPU index is added, so that the GPUs
/// take turns.
const SECOND_SLOW_MS: u64 = 1500;

impl NvmlGpu {
    pub(super) fn new(
        device: Device<'static>,
        uuid: GpuUuid,
        index: u32,
        parent: Option<GpuUuid>,
        watch: &Rc<CallWatch>,
        only: &Rc<Wanted>,
    ) -> Self {
        Self {
            calls: GpuCalls::new(device, index, watch.clone(), only.clone()),
            readings: GpuReadings::missing(uuid, index, parent, clock::now(), Missing::NotYet),
            lists: GpuProcessLists::default(),
            utilization: Utilization::default(),
            slow_due: Moment(0),
            on_demand: None,
            pcie_traffic: PcieTraffic::default(),
        }
    }

    pub(super) fn is_instance(&self) -> bool {
        self.readings.facts.parent.is_some()
    }

    pub(super) fn set_index(&mut self, index: u32) {
        (self.calls.index, self.readings.facts.index) = (index, index);
    }

    fn read_facts(&mut self) {
        let Self {
            calls,
            readings: GpuReadings { facts, .. },
            ..
        } = self;
        let missing = [
            facts.name.as_ref().err(),
            facts.bus_id.as_ref().err(),
            facts.slowdown_temperature.as_ref().err(),
            facts.minor.as_ref().err(),
        ];
        if !missing.contains(&Some(&Missing::NotYet)) && !missing.contains(&Some(&Missing::Failed))
        {
            return;
        }
        take! { calls, facts:
            bus_id = calls
                .read("nvmlDeviceGetPciInfo_v3", Device::pci_info)
                .map(|pci| pci.bus_id.into());
        }
        if facts.parent.is_some() {
            facts.slowdown_temperature = Err(Missing::Unsupported);
            take! { calls, facts:
                gpu_instance = read!(calls, nvmlDeviceGetGpuInstanceId);
                compute_instance = read!(calls, nvmlDeviceGetComputeInstanceId);
            }
        } else {
            take! { calls, facts:
                slowdown_temperature =
                    read!(calls, nvmlDeviceGetTemperatureThreshold(SLOWDOWN)).and_then(celsius);
                minor = read!(calls, nvmlDeviceGetMinorNumber);
            }
            (facts.gpu_instance, facts.compute_instance) =
                (Err(Missing::Unsupported), Err(Missing::Unsupported));
        }
    }

    /// Reads everything that is due. On failure, the readings stay as they were. Returns whether
    /// this was a slow pass.
    pub(super) fn read(&mut self, pass: &mut GpuPass<'_>) -> Result<bool, CallError> {
        (self.calls.has_answered, self.calls.failed) = (false, None);
        let now = clock::now();
        let first = pass.is_first_stage;
        let slow = pass.reads_slow || now >= self.slow_due;
        if slow && !self.is_instance() && self.readings.facts.name.is_err() {
            let facts = &mut self.readings.facts;
            take! { self.calls, facts:
                name = read_text!(self.calls, nvmlDeviceGetName);
            }
        }
        if slow && !first {
            self.read_facts();
        }
        let load = self.load(now, first);
        if slow && !first {
            self.readings.shares_memory = self.readings.shares_memory || self.shares_memory(&load);
        }
        let health = slow.then(|| self.health(now, first, &load));
        if !first && !self.is_instance() {
            self.read_detail(pass, now);
        }
        let mig = health.as_ref().unwrap_or(&self.readings.health).mig;
        if pass.reads_slow || mig != self.readings.health.mig {
            // Support depends on whether MIG splits the GPU.
            self.calls.unsupported.clear();
        }
        let is_split = mig == Ok(true);
        let listed = if is_split {
            ListedProcesses::of_split_gpu()
        } else {
            self.read_processes(pass, slow, now)
        };
        if let Some(fatal) = self.calls.fatal.take() {
            return Err(fatal);
        }
        self.readings.load = load;
        if let Some(health) = health {
            self.readings.health = health;
        }
        (self.readings.processes, self.readings.processes_missing) =
            (listed.processes, listed.missing);
        let trouble = match self.calls.failed.take() {
            Some((function, error))
                if !self.calls.has_answered || matches!(error, NvmlError::ResetRequired) =>
            {
                Some(errors::gpu_trouble(
                    function,
                    &error,
                    &self.readings.facts,
                    now,
                ))
            }
            // The calls of a fast pass may not show that the GPU needs a reset, so this trouble
            // stays until the next slow pass.
            _ if !slow
                && self
                    .readings
                    .trouble
                    .as_ref()
                    .is_some_and(|trouble| trouble.cause == Cause::Reset) =>
            {
                self.readings.trouble.clone()
            }
            _ => listed.trouble,
        };
        let before = self.readings.trouble.take();
        self.readings.trouble = trouble.map(|trouble| errors::continued(trouble, before.as_ref()));
        if slow && !first {
            let own_second = u64::from(self.readings.facts.index) * 1000 % SLOW_MS;
            let is_second_next = self.slow_due == Moment(0);
            self.slow_due = Moment(
                now.0
                    + if is_second_next {
                        SECOND_SLOW_MS + own_second
                    } else {
                        SLOW_MS
                    },
            );
        }
        Ok(slow)
    }

    fn read_processes(
        &mut self,
        pass: &mut GpuPass<'_>,
        slow: bool,
        now: Moment,
    ) -> ListedProcesses {
        // The first stage reads only the list of compute processes.
        let slow = slow && !pass.is_first_stage;
        let is_instance = self.is_instance();
        let Self {
            calls,
            lists,
            utilization,
            readings,
            ..
        } = self;
        let mut listed = lists.read(calls, pass.lists, &readings.facts, slow, now);
        let processes = &mut listed.processes;
        if is_instance {
            // NVML has no process utilization for MIG instances.
            for process in processes {
                process.sm = Err(Missing::Unsupported);
            }
        } else if !pass.is_first_stage
            && !processes.is_empty()
            && calls.only.has("process_utilization")
        {
            utilization.read(
                calls,
                pass.samples,
                processes,
                pass.lists.is_contained,
                slow,
                now,
            );
        }
        listed
    }

    /// While the page of the GPU is open, its state is read every few seconds only.
    fn read_detail(&mut self, pass: &GpuPass<'_>, now: Moment) {
        let Self {
            calls,
            on_demand,
            readings,
            ..
        } = self;
        let is_due = match pass.detail {
            DetailLevel::No => {
                if on_demand.take().is_some() {
                    calls.watch.forget_on_demand(readings.facts.index);
                }
                return;
            }
            DetailLevel::Once => true,
            DetailLevel::Live(_) => on_demand.get_or_insert_default().is_state_due(now),
        };
        calls.watch.set_on_demand(true);
        let mut detail = match readings.detail.take() {
            Some(detail) => detail,
            None => Box::new(calls.fixed_detail()),
        };
        if is_due {
            calls.read_state(&mut detail, pass.driver);
            // The time of the detail is that of its oldest part: the rates are read more often than
            // the state.
            detail.at = now;
        }
        if let DetailLevel::Live(gpus) = pass.detail {
            on_demand
                .get_or_insert_default()
                .read(calls, &mut detail, gpus, now);
        }
        calls.watch.set_on_demand(false);
        readings.detail = Some(detail);
    }

    fn load(&mut self, now: Moment, is_first_stage: bool) -> GpuLoad {
        // An instance has its own memory. NVML reports the other values only for the parent.
        let has_memory_only = self.is_instance();
        let is_rest_due = is_first_stage && !has_memory_only;
        let mut load = GpuLoad::missing(
            now,
            if is_rest_due {
                Missing::NotYet
            } else {
                Missing::Unsupported
            },
        );
        take! { self.calls, load:
            (memory_used, memory_free, memory_reserved, memory_total) =
                memory(&mut self.calls).into();
        }
        if has_memory_only || is_first_stage {
            return load;
        }
        let calls = &mut self.calls;
        take! { calls, load:
            (sm, memory_bandwidth) = {
                let rates = read!(calls, nvmlDeviceGetUtilizationRates);
                (
                    rates.and_then(|rates| percent(rates.gpu)),
                    rates.and_then(|rates| percent(rates.memory)),
                )
            };
            temperature = core_temperature(calls).and_then(celsius);
            power = read!(calls, nvmlDeviceGetPowerUsage).and_then(watts);
            sm_clock = read!(calls, nvmlDeviceGetClockInfo(SM_CLOCK)).and_then(hertz);
            throttle = calls
                .clock_reasons()
                .map(|bits| throttles(ThrottleReasons::from_bits_truncate(bits)));
        }
        load
    }

    /// Whether the GPU has no memory of its own, and uses that of the host: it reports none, and
    /// finds addresses in the page tables of the CPUs (ATS).
    fn shares_memory(&mut self, load: &GpuLoad) -> bool {
        /// `NVML_DEVICE_ADDRESSING_MODE_ATS`.
        const ATS: u32 = 2;
        let has_none = load.memory_total == Err(Missing::Unsupported) && !self.is_instance();
        has_none && self.calls.addressing_mode() == Ok(ATS)
    }

    fn health(&mut self, now: Moment, is_first_stage: bool, load: &GpuLoad) -> GpuHealth {
        let xids = self.readings.health.xids.clone();
        if self.is_instance() {
            return GpuHealth::missing(now, xids, Missing::Unsupported);
        }
        let why = if is_first_stage {
            Missing::NotYet
        } else {
            Missing::Unsupported
        };
        let mut health = GpuHealth::missing(now, xids, why);
        // The processes are those of the pass before.
        let is_held_without_use = load.sm == Ok(Percent::new(0.0))
            && self
                .readings
                .processes
                .iter()
                .any(|process| process.usage != Use::Graphics);
        let Self {
            calls,
            pcie_traffic,
            ..
        } = self;
        take! { calls, health:
            mig = read!(calls, nvmlDeviceGetMigMode => [current, pending])
                .map(|[current, _]| current == 1);
        }
        if is_first_stage {
            return health;
        }
        take! { calls, health:
            power_limit = read!(calls, nvmlDeviceGetEnforcedPowerLimit).and_then(watts);
            memory_clock = read!(calls, nvmlDeviceGetClockInfo(MEMORY_CLOCK)).and_then(hertz);
            // The states are 0 to 15. NVML reports an unknown state as 32.
            performance_state = match read!(calls, nvmlDeviceGetPerformanceState) {
                Ok(16..) => Err(Missing::Unsupported),
                state => state,
            };
            fan = calls.fan(0);
        }
        calls.read_damage(&mut health);
        take! { calls, health:
            pcie_generation = read!(calls, nvmlDeviceGetCurrPcieLinkGeneration);
            pcie_width = read!(calls, nvmlDeviceGetCurrPcieLinkWidth);
            pcie_quiet = match pcie_traffic.is_quiet(calls.pcie_bytes(), now) {
                Err(Missing::Unsupported) => {
                    pcie_traffic.is_sample_quiet(is_held_without_use, now, || calls.pcie_rates())
                }
                is_quiet => is_quiet,
            };
            encoder = engine(read!(calls, nvmlDeviceGetEncoderUtilization => [share, period]));
            decoder = engine(read!(calls, nvmlDeviceGetDecoderUtilization => [share, period]));
        }
        health
    }
}

/// Reads used, free, reserved and total memory. As in nvidia-smi, memory that the driver reserves
/// does not count as used, except before driver 510.
fn memory(calls: &mut GpuCalls) -> [Reading<Bytes>; 4] {
    let memory = calls.read("nvmlDeviceGetMemoryInfo_v2", Device::memory_info);
    let memory = memory.map(|memory| {
        (
            memory.total,
            memory.used,
            memory.free,
            Ok(Bytes(memory.reserved)),
        )
    });
    let memory = match memory {
        Err(Missing::Unsupported) => read!(calls, nvmlDeviceGetMemoryInfo).map(|memory| {
            (
                memory.total,
                memory.used,
                memory.free,
                Err(Missing::Unsupported),
            )
        }),
        memory => memory,
    };
    let memory = match memory {
        // A GPU without memory of its own reports a total of 0 (nvtop treats it in the same way).
        Ok((0, ..)) => Err(Missing::Unsupported),
        memory => memory,
    };
    let plausible = memory.and_then(|(total, used, free, _)| {
        // Used memory cannot exceed the total.
        if used <= total {
            Ok((used, free))
        } else {
            Err(Missing::Failed)
        }
    });
    [
        plausible.map(|(used, _)| Bytes(used)),
        plausible.map(|(_, free)| Bytes(free)),
        memory.and_then(|(.., reserved)| reserved),
        memory.map(|(total, ..)| Bytes(total)),
    ]
}

/// Reads the temperature of the core. Old drivers have only the first function, which newer drivers
/// deprecate.
fn core_temperature(calls: &mut GpuCalls) -> Reading<u32> {
    match read!(calls, nvmlDeviceGetTemperature(CORE)) {
        Err(Missing::Unsupported) => {
            // Sensor 0 is that of the core.
            let temperature =
                read_structure!(calls, nvmlDeviceGetTemperatureV, nvmlTemperature_v1_t, version 1)?;
            u32::try_from(temperature.temperature).map_err(|_| Missing::Unsupported)
        }
        temperature => temperature,
    }
}

fn throttles(reasons: ThrottleReasons) -> Vec<Throttle> {
    [
        (ThrottleReasons::SW_POWER_CAP, Throttle::PowerCap),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, Throttle::Thermal),
        (
            ThrottleReasons::HW_THERMAL_SLOWDOWN,
            Throttle::HardwareThermal,
        ),
        (
            ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN,
            Throttle::PowerBrake,
        ),
        (ThrottleReasons::HW_SLOWDOWN, Throttle::Hardware),
        (ThrottleReasons::SYNC_BOOST, Throttle::SyncBoost),
    ]
    .into_iter()
    .filter_map(|(bit, throttle)| reasons.contains(bit).then_some(throttle))
    .collect()
}
