//! Reads detail of a GPU only while a person looks at it: PCIe throughput takes long, and GPM's activities and NVLink's
//! rates need two readings.

use std::time::Duration;

use nvml_wrapper::GpmSample;
use nvml_wrapper::enum_wrappers::device::PcieUtilCounter;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_NVLINK as NVLINK};

use super::gpu_calls::GpuCalls;
use super::raw::handle;
use crate::base::units::{Bytes, Moment, Percent};
use crate::protocol::snapshot::{GpuDetail, Missing, Reading, Route};

/// The interval at which the state of the GPU is read.
const STATE: Duration = Duration::from_secs(8);
/// The interval at which rates are read.
const RATES: Duration = Duration::from_millis(1900);

/// GPM metrics, in the order of `sm_active`, `sm_occupancy`, `tensor_active` and `dram_active`.
const METRICS: [GpmMetricId; 4] =
    [GpmMetricId::SmUtil, GpmMetricId::SmOccupancy, GpmMetricId::AnyTensorUtil, GpmMetricId::DramBwUtil];

/// The readings of a GPU on demand.
#[derive(Debug, Default)]
pub(super) struct OnDemand {
    /// When to read state and rates again; `None` while nobody looks.
    due: Option<[Moment; 2]>,
    /// The last GPM sample. GPM tells what happened between two samples.
    sample: Option<GpmSample<'static>>,
    /// The bytes sent and received over NVLink so far, and when they were read.
    transferred: Option<(Moment, [Reading<Bytes>; 2])>,
}

impl OnDemand {
    /// Whether to read the state of the GPU: the first time that a person looks, and at intervals.
    pub(super) fn is_state_due(&mut self, now: Moment) -> bool {
        let [state, _] = self.due.get_or_insert([Moment(0); 2]);
        let is_due = now >= *state;
        if is_due {
            *state = now.after(STATE);
        }
        is_due
    }

    fn are_rates_due(&mut self, now: Moment) -> bool {
        let [_, rates] = self.due.get_or_insert([Moment(0); 2]);
        let is_due = now >= *rates;
        if is_due {
            *rates = now.after(RATES);
        }
        is_due
    }

    /// Ends the readings on demand. Returns whether there were any.
    pub(super) fn end(&mut self) -> bool {
        let looked = self.due.is_some();
        *self = Self::default();
        looked
    }

    /// Reads rates if they are due, and once the routes to other GPUs.
    pub(super) fn read(
        &mut self,
        calls: &mut GpuCalls,
        detail: &mut GpuDetail,
        gpus: &[(u32, nvmlDevice_t)],
        now: Moment,
    ) {
        if !self.are_rates_due(now) {
            return;
        }
        let mut pcie = |direction: u32, counter| {
            let rate = calls.ask_with("nvmlDeviceGetPcieThroughput", direction, |gpu| gpu.pcie_throughput(counter));
            rate.map(|kilobytes| Bytes(u64::from(kilobytes) * 1000))
        };
        detail.pcie_sent = pcie(0, PcieUtilCounter::Send);
        detail.pcie_received = pcie(1, PcieUtilCounter::Receive);
        self.read_nvlink(calls, detail, now);
        [detail.sm_active, detail.sm_occupancy, detail.tensor_active, detail.dram_active] = self.activities(calls);
        if detail.routes.is_err() {
            detail.routes = routes(calls, gpus);
        }
    }

    fn read_nvlink(&mut self, calls: &mut GpuCalls, detail: &mut GpuDetail, now: Moment) {
        if !matches!(detail.nvlinks, Ok(1..)) {
            (detail.nvlink_sent, detail.nvlink_received) = (Err(Missing::Unsupported), Err(Missing::Unsupported));
            return;
        }
        let after = calls.transferred();
        let before = self.transferred.replace((now, after));
        let rate = |direction: usize| -> Reading<Bytes> {
            let (since, before) = before.as_ref().ok_or(Missing::NotYet)?;
            // A counter that was reset starts over.
            let moved = after[direction]?.saturating_sub(before[direction]?);
            let millis = u64::try_from(now.since(*since).as_millis()).map_err(|_| Missing::Failed)?;
            Ok(Bytes(moved.0.saturating_mul(1000) / millis.max(1)))
        };
        (detail.nvlink_sent, detail.nvlink_received) = (rate(0), rate(1));
    }

    /// Returns the activity of the parts of the chip since the last look, where the chip counts it.
    fn activities(&mut self, calls: &mut GpuCalls) -> [Reading<Percent>; METRICS.len()] {
        let all = |why| [Err(why); METRICS.len()];
        match calls.ask("nvmlGpmQueryDeviceSupport", nvml_wrapper::Device::gpm_support) {
            Ok(true) => {}
            Ok(false) => return all(Missing::Unsupported),
            Err(why) => return all(why),
        }
        let sample = match calls.ask("nvmlGpmSampleGet", nvml_wrapper::Device::gpm_sample) {
            Ok(sample) => sample,
            Err(why) => return all(why),
        };
        let Some(before) = self.sample.take() else {
            self.sample = Some(sample);
            return all(Missing::NotYet);
        };
        let metrics = calls.ask("nvmlGpmMetricsGet", |gpu| gpm_metrics_get(gpu.nvml(), &before, &sample, &METRICS));
        self.sample = Some(sample);
        let metrics = match metrics {
            Ok(metrics) => metrics,
            Err(why) => return all(why),
        };
        let mut metrics =
            metrics.into_iter().map(|metric| metric.map_or(Err(Missing::Unsupported), |metric| share(metric.value)));
        METRICS.map(|_| metrics.next().unwrap_or(Err(Missing::Unsupported)))
    }
}

/// The route to each other GPU.
fn routes(calls: &mut GpuCalls, gpus: &[(u32, nvmlDevice_t)]) -> Reading<Vec<Route>> {
    let mut routes = Vec::new();
    let own = calls.index;
    for &(to, other) in gpus.iter().filter(|(index, _)| *index != own) {
        let level = calls.ask("nvmlDeviceGetTopologyCommonAncestor", |gpu| level(gpu, other))?;
        let nvlink = calls.ask("nvmlDeviceGetP2PStatus", |gpu| p2p_by_nvlink(gpu, other)).ok();
        routes.push(Route { to, level, nvlink });
    }
    Ok(routes)
}

fn level(gpu: &nvml_wrapper::Device<'static>, other: nvmlDevice_t) -> Result<u32, NvmlError> {
    let function = nvml_sym(gpu.nvml().lib().nvmlDeviceGetTopologyCommonAncestor.as_ref())?;
    let mut level = 0;
    // SAFETY: both handles came from NVML, which writes one number.
    nvml_try(unsafe { function(handle(gpu), other, &raw mut level) })?;
    Ok(level)
}

fn p2p_by_nvlink(gpu: &nvml_wrapper::Device<'static>, other: nvmlDevice_t) -> Result<bool, NvmlError> {
    let function = nvml_sym(gpu.nvml().lib().nvmlDeviceGetP2PStatus.as_ref())?;
    let mut status = 0;
    // SAFETY: both handles came from NVML, which writes one number.
    nvml_try(unsafe { function(handle(gpu), other, NVLINK, &raw mut status) })?;
    Ok(status == 0)
}

/// A percentage of at most 100, with half a point of tolerance for rounding.
fn share(value: f64) -> Reading<Percent> {
    #[expect(clippy::cast_possible_truncation, reason = "a percentage needs no more digits than an f32 has")]
    if (0.0..=100.5).contains(&value) { Ok(Percent::new(value.min(100.0) as f32)) } else { Err(Missing::Failed) }
}
