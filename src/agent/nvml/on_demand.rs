//! What is read of a GPU only while a person looks at it: what takes long, as PCIe throughput does, and what needs
//! two looks, as GPM's activities and NVLink's rates do.

use std::time::Duration;

use nvml_wrapper::GpmSample;
use nvml_wrapper::enum_wrappers::device::PcieUtilCounter;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_NVLINK as NVLINK};

use super::call_watch::Watch;
use super::gpu::Gpu;
use super::raw::handle;
use crate::base::units::{Bytes, Moment, Percent};
use crate::protocol::snapshot::{GpuDetail, Missing, Reading, Route};

/// How often the state of the GPU is read.
const DETAIL: Duration = Duration::from_secs(8);
/// How often what changes all the time is.
const LIVE: Duration = Duration::from_millis(1900);

/// In the order of the figures that they become.
const METRICS: [GpmMetricId; 4] =
    [GpmMetricId::SmUtil, GpmMetricId::SmOccupancy, GpmMetricId::AnyTensorUtil, GpmMetricId::DramBwUtil];

/// What was read of a GPU while someone looks.
#[derive(Debug, Default)]
pub(super) struct Live {
    /// When to read again; absent while nobody looks.
    due: Option<[Moment; 2]>,
    /// GPM tells what happened between two samples.
    sample: Option<GpmSample<'static>>,
    /// What went over NVLink so far, and when that was.
    transferred: Option<(Moment, [Reading<Bytes>; 2])>,
}

impl Live {
    /// Whether the state of the GPU is to be read. The first time someone looks, it is.
    pub(super) fn detail_is_due(&mut self, now: Moment) -> bool {
        let [detail, _] = self.due.get_or_insert([Moment(0); 2]);
        let is_due = now >= *detail;
        if is_due {
            *detail = now.after(DETAIL);
        }
        is_due
    }

    fn is_due(&mut self, now: Moment) -> bool {
        let [_, live] = self.due.get_or_insert([Moment(0); 2]);
        let is_due = now >= *live;
        if is_due {
            *live = now.after(LIVE);
        }
        is_due
    }

    /// Nobody looks. Says whether someone did until now.
    pub(super) fn end(&mut self) -> bool {
        let looked = self.due.is_some();
        *self = Self::default();
        looked
    }
}

impl Gpu {
    pub(super) fn read_live(
        &mut self,
        watch: &Watch,
        it: &mut GpuDetail,
        everyone: &[(u32, nvmlDevice_t)],
        now: Moment,
    ) {
        if !self.live.is_due(now) {
            return;
        }
        let mut pcie = |direction: u32, counter| {
            let rate = self.ask(watch, "nvmlDeviceGetPcieThroughput", direction, |gpu| gpu.pcie_throughput(counter));
            // In units of 1000 bytes.
            rate.map(|it| Bytes(u64::from(it) * 1000))
        };
        it.pcie_sent = pcie(0, PcieUtilCounter::Send);
        it.pcie_received = pcie(1, PcieUtilCounter::Receive);
        self.read_nvlink(watch, it, now);
        [it.sm_active, it.sm_occupancy, it.tensor_active, it.dram_active] = self.activities(watch);
        if it.routes.is_err() {
            it.routes = self.routes(watch, everyone);
        }
    }

    fn read_nvlink(&mut self, watch: &Watch, it: &mut GpuDetail, now: Moment) {
        if !matches!(it.nvlinks, Ok(1..)) {
            (it.nvlink_sent, it.nvlink_received) = (Err(Missing::Unsupported), Err(Missing::Unsupported));
            return;
        }
        let after = self.transferred(watch);
        let before = self.live.transferred.replace((now, after));
        let rate = |direction: usize| -> Reading<Bytes> {
            let (since, before) = before.as_ref().ok_or(Missing::NotYet)?;
            // A counter that was reset starts over.
            let moved = after[direction]?.saturating_sub(before[direction]?);
            let millis = u64::try_from(now.since(*since).as_millis()).map_err(|_| Missing::Failed)?;
            Ok(Bytes(moved.0.saturating_mul(1000) / millis.max(1)))
        };
        (it.nvlink_sent, it.nvlink_received) = (rate(0), rate(1));
    }

    /// What the parts of the chip did since the last look, where the chip counts that.
    fn activities(&mut self, watch: &Watch) -> [Reading<Percent>; METRICS.len()] {
        let all = |why| [Err(why); METRICS.len()];
        match self.ask(watch, "nvmlGpmQueryDeviceSupport", 0, nvml_wrapper::Device::gpm_support) {
            Ok(true) => {}
            Ok(false) => return all(Missing::Unsupported),
            Err(why) => return all(why),
        }
        let sample = match self.ask(watch, "nvmlGpmSampleGet", 0, nvml_wrapper::Device::gpm_sample) {
            Ok(sample) => sample,
            Err(why) => return all(why),
        };
        let Some(before) = self.live.sample.take() else {
            self.live.sample = Some(sample);
            return all(Missing::NotYet);
        };
        let metrics =
            self.ask(watch, "nvmlGpmMetricsGet", 0, |gpu| gpm_metrics_get(gpu.nvml(), &before, &sample, &METRICS));
        self.live.sample = Some(sample);
        let metrics = match metrics {
            Ok(metrics) => metrics,
            Err(why) => return all(why),
        };
        let mut metrics = metrics.into_iter().map(|it| it.map_or(Err(Missing::Unsupported), |it| share(it.value)));
        METRICS.map(|_| metrics.next().unwrap_or(Err(Missing::Unsupported)))
    }

    /// The way to each other GPU.
    fn routes(&mut self, watch: &Watch, everyone: &[(u32, nvmlDevice_t)]) -> Reading<Vec<Route>> {
        let own = self.readings.facts.index;
        let others = everyone.iter().filter(|(index, _)| *index != own);
        let mut routes = Vec::new();
        for &(to, other) in others {
            let level = self.ask(watch, "nvmlDeviceGetTopologyCommonAncestor", 0, |gpu| level(gpu, other))?;
            let nvlink = self.ask(watch, "nvmlDeviceGetP2PStatus", 0, |gpu| p2p_by_nvlink(gpu, other)).ok();
            routes.push(Route { to, level, nvlink });
        }
        Ok(routes)
    }
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

/// A share that can be one.
fn share(value: f64) -> Reading<Percent> {
    #[expect(clippy::cast_possible_truncation, reason = "a percentage needs no more digits than an f32 has")]
    if (0.0..=100.5).contains(&value) { Ok(Percent::new(value.min(100.0) as f32)) } else { Err(Missing::Failed) }
}
