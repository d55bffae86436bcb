//! Reads the rates of a GPU and its routes to other GPUs, only while a person looks at it: rates
//! take long to read, or need two readings.

use std::time::Duration;

use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper::{Device, GpmSample};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_NVLINK as NVLINK,
    nvmlPcieUtilCounter_enum_NVML_PCIE_UTIL_RX_BYTES as PCIE_RECEIVED,
    nvmlPcieUtilCounter_enum_NVML_PCIE_UTIL_TX_BYTES as PCIE_SENT,
};

use super::gpu_calls::{GpuCalls, read};
use super::raw::handle;
use crate::base::units::{Bytes, Moment, Percent};
use crate::protocol::snapshot::{GpuDetail, Missing, Reading, Route};

const STATE_INTERVAL: Duration = Duration::from_secs(8);
const RATE_INTERVAL: Duration = Duration::from_millis(1900);

/// GPM metrics, in the order of `sm_active`, `sm_occupancy`, `tensor_active` and `dram_active`.
const METRICS: [GpmMetricId; 4] = [
    GpmMetricId::SmUtil,
    GpmMetricId::SmOccupancy,
    GpmMetricId::AnyTensorUtil,
    GpmMetricId::DramBwUtil,
];

/// When to read next, and the previous counters, while the page of a GPU is open.
#[derive(Debug, Default)]
pub(super) struct OnDemand {
    state_due: Moment,
    rates_due: Moment,
    /// The last GPM sample. GPM measures between two samples. `None` before the first.
    sample: Option<GpmSample<'static>>,
    /// The bytes sent and received over NVLink so far, and when they were read.
    transferred: Option<(Moment, [Reading<Bytes>; 2])>,
}

impl OnDemand {
    /// Returns whether to read the state of the GPU now. If so, the next reading is due after
    /// [`STATE_INTERVAL`].
    pub(super) fn is_state_due(&mut self, now: Moment) -> bool {
        let is_due = now >= self.state_due;
        if is_due {
            self.state_due = now.after(STATE_INTERVAL);
        }
        is_due
    }

    /// Reads the rates if they are due, and once the routes to other GPUs.
    pub(super) fn read(
        &mut self,
        calls: &mut GpuCalls,
        detail: &mut GpuDetail,
        gpus: &[(u32, nvmlDevice_t)],
        now: Moment,
    ) {
        if now < self.rates_due {
            return;
        }
        self.rates_due = now.after(RATE_INTERVAL);
        let kilobytes = |rate: u32| Bytes(u64::from(rate) * 1000);
        detail.pcie_sent = calls.pcie_rate(PCIE_SENT).map(kilobytes);
        detail.pcie_received = calls.pcie_rate(PCIE_RECEIVED).map(kilobytes);
        self.read_nvlink(calls, detail, now);
        [
            detail.sm_active,
            detail.sm_occupancy,
            detail.tensor_active,
            detail.dram_active,
        ] = self
            .activities(calls)
            .unwrap_or_else(|why| [Err(why); METRICS.len()]);
        if detail.routes.is_err() {
            detail.routes = routes(calls, gpus);
        }
    }

    fn read_nvlink(&mut self, calls: &mut GpuCalls, detail: &mut GpuDetail, now: Moment) {
        if !matches!(detail.nvlinks, Ok(1..)) {
            (detail.nvlink_sent, detail.nvlink_received) =
                (Err(Missing::Unsupported), Err(Missing::Unsupported));
            return;
        }
        let after = calls.transferred();
        let before = self.transferred.replace((now, after));
        let rate = |direction: usize| -> Reading<Bytes> {
            let (since, before) = before.as_ref().ok_or(Missing::NotYet)?;
            // After a reset, the counter is lower than before, and the rate counts as 0.
            let moved = after[direction]?.saturating_sub(before[direction]?);
            let millis =
                u64::try_from(now.since(*since).as_millis()).map_err(|_| Missing::Failed)?;
            Ok(Bytes(moved.0.saturating_mul(1000) / millis.max(1)))
        };
        (detail.nvlink_sent, detail.nvlink_received) = (rate(0), rate(1));
    }

    /// Returns the values of [`METRICS`] since the last reading, on GPUs that support GPM.
    fn activities(&mut self, calls: &mut GpuCalls) -> Reading<[Reading<Percent>; METRICS.len()]> {
        if !calls.read("nvmlGpmQueryDeviceSupport", Device::gpm_support)? {
            return Err(Missing::Unsupported);
        }
        let sample = calls.read("nvmlGpmSampleGet", Device::gpm_sample)?;
        let metrics = match &self.sample {
            Some(before) => calls.read("nvmlGpmMetricsGet", |gpu| {
                gpm_metrics_get(gpu.nvml(), before, &sample, &METRICS)
            }),
            None => Err(Missing::NotYet),
        };
        self.sample = Some(sample);
        let mut metrics = metrics?.into_iter();
        Ok(METRICS.map(|_| match metrics.next() {
            Some(Ok(metric)) => share(metric.value),
            Some(Err(_)) | None => Err(Missing::Unsupported),
        }))
    }
}

impl GpuCalls {
    /// Reads the KB per second that the GPU sends, or receives, over PCIe. NVML measures for 20 ms
    /// meanwhile.
    fn pcie_rate(&mut self, direction: u32) -> Reading<u32> {
        read!(self, nvmlDeviceGetPcieThroughput(direction))
    }

    /// Reads the KB per second that the GPU sends and receives over PCIe, which takes 40 ms.
    pub(super) fn pcie_rates(&mut self) -> Reading<[u32; 2]> {
        Ok([self.pcie_rate(PCIE_SENT)?, self.pcie_rate(PCIE_RECEIVED)?])
    }
}

fn routes(calls: &mut GpuCalls, gpus: &[(u32, nvmlDevice_t)]) -> Reading<Vec<Route>> {
    let own = calls.index;
    let others = gpus.iter().filter(|(index, _)| *index != own);
    others
        .map(|(to, other)| {
            let level = calls.read("nvmlDeviceGetTopologyCommonAncestor", |gpu| {
                topology_level(gpu, *other)
            })?;
            let nvlink = calls
                .read("nvmlDeviceGetP2PStatus", |gpu| p2p_by_nvlink(gpu, *other))
                .ok();
            Ok(Route {
                to: *to,
                level,
                nvlink,
            })
        })
        .collect()
}

fn topology_level(gpu: &Device<'static>, other: nvmlDevice_t) -> Result<u32, NvmlError> {
    let function = nvml_sym(
        gpu.nvml()
            .lib()
            .nvmlDeviceGetTopologyCommonAncestor
            .as_ref(),
    )?;
    let mut level = 0;
    // SAFETY: both handles came from NVML, which writes one number.
    nvml_try(unsafe { function(handle(gpu), other, &raw mut level) })?;
    Ok(level)
}

fn p2p_by_nvlink(gpu: &Device<'static>, other: nvmlDevice_t) -> Result<bool, NvmlError> {
    let function = nvml_sym(gpu.nvml().lib().nvmlDeviceGetP2PStatus.as_ref())?;
    let mut status = 0;
    // SAFETY: both handles came from NVML, which writes one number.
    nvml_try(unsafe { function(handle(gpu), other, NVLINK, &raw mut status) })?;
    Ok(status == 0)
}

/// Converts a percentage. Values up to 100.5 count as 100, because of rounding.
fn share(value: f64) -> Reading<Percent> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a percentage needs no more digits than an f32 has"
    )]
    if (0.0..=100.5).contains(&value) {
        Ok(Percent::new(value.min(100.0) as f32))
    } else {
        Err(Missing::Failed)
    }
}
