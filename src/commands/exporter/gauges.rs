//! The samples of a host and of its GPUs.

use std::time::Duration;

use super::metrics::{Exposition, Metric, SampleLabels};
use super::sample_values::{is_leak, leftover_memory, ratio, word};
use crate::base::units::Watts;
use crate::model::{
    GpuOrProcess, GpuOverview, GpuState, HeldIdle, HostModel, RankedTrouble, TroubleRank,
    telling_xid,
};
use crate::output::judged;
use crate::protocol::snapshot::{Gpu, Missing, Snapshot, Throttle};

/// A host, as the exporter knows it.
#[derive(Debug)]
pub(super) struct SeenHost<'a> {
    pub name: &'a str,
    /// `None` before the first line, and while none comes.
    pub model: Option<&'a HostModel>,
    /// The time since the last line; `None` before the first one.
    pub since_line: Option<Duration>,
}

/// The kinds of trouble and their names. A host that is silent has no samples but `host_up`.
const TROUBLES: [(TroubleRank, &str); 6] = [
    (TroubleRank::Lost, "gpu_lost"),
    (TroubleRank::FullSoon, "full_soon"),
    (TroubleRank::HardwareError, "hardware_error"),
    (TroubleRank::Leak, "leak"),
    (TroubleRank::Leftover, "leftover"),
    (TroubleRank::Slowdown, "slowdown"),
];

/// The reasons for a low clock.
const THROTTLES: [Throttle; 6] = [
    Throttle::PowerCap,
    Throttle::Thermal,
    Throttle::HardwareThermal,
    Throttle::PowerBrake,
    Throttle::Hardware,
    Throttle::SyncBoost,
];

/// Adds the samples of a host.
pub(super) fn add_host(out: &mut Exposition, host: &SeenHost<'_>) {
    let labels = SampleLabels::default().with("host", host.name);
    out.add(
        Metric::HostUp,
        &labels,
        u8::from(host.model.is_some_and(|model| model.latest().is_some())),
    );
    if let Some(since) = host.since_line {
        out.add(Metric::HostReadingAge, &labels, since.as_secs_f64());
    }
    let Some((model, snapshot)) = host.model.and_then(|model| Some((model, model.latest()?)))
    else {
        return;
    };
    out.add(
        Metric::HostUnreadable,
        &labels,
        snapshot.host.scan.unreadable,
    );
    let mut troubles = model.troubles();
    if model.has_broken_driver() {
        troubles.push(RankedTrouble::of_driver());
    }
    // Before the first scan, nobody knows who is left over.
    let is_scanned = snapshot.host.scan.at.0 > 0;
    let known = |(rank, _): &(TroubleRank, &str)| *rank != TroubleRank::Leftover || is_scanned;
    for (rank, name) in TROUBLES.into_iter().filter(known) {
        let count = troubles
            .iter()
            .filter(|trouble| trouble.rank == rank)
            .count();
        out.add(Metric::Troubles, &labels.with("trouble", name), count);
    }
    let overview = model.overview();
    for gpu in overview.iter().flat_map(|overview| &overview.gpus) {
        add_state(out, model, snapshot, gpu, &labels);
    }
    let since_line = host.since_line.unwrap_or_default();
    for gpu in &snapshot.gpus {
        add_gpu(
            out,
            model,
            snapshot,
            gpu,
            &labels_of(gpu, &labels),
            since_line,
        );
    }
}

fn labels_of(gpu: &Gpu, of_host: &SampleLabels) -> SampleLabels {
    let labels = of_host.with("gpu", &gpu.label());
    labels.with_known("uuid", Some(&gpu.uuid.0))
}

/// Adds how gputop judges a whole GPU.
fn add_state(
    out: &mut Exposition,
    model: &HostModel,
    snapshot: &Snapshot,
    judged: &GpuOverview,
    labels: &SampleLabels,
) {
    let Some(gpu) = snapshot.gpu(&judged.uuid) else {
        return;
    };
    let labels = labels_of(gpu, labels);
    if judged.state != GpuState::Unknown {
        let is_free = judged.state == GpuState::Free;
        out.add(Metric::GpuFree, &labels, u8::from(is_free));
    }
    let rank = model.rank_of(gpu);
    let name = TROUBLES.into_iter().find(|(known, _)| Some(*known) == rank);
    if let Some((_, name)) = name {
        out.add(Metric::GpuTrouble, &labels.with("trouble", name), 1);
    }
}

fn add_gpu(
    out: &mut Exposition,
    model: &HostModel,
    snapshot: &Snapshot,
    gpu: &Gpu,
    labels: &SampleLabels,
    since_line: Duration,
) {
    let parent = gpu.facts.parent.as_ref().map(|parent| &parent.0);
    let info = labels
        .with_known("name", gpu.facts.name.as_ref().ok())
        .with_known("driver", snapshot.driver.version.as_ref())
        .with_known("pci_bus_id", gpu.facts.bus_id.as_ref().ok())
        .with_known("parent_uuid", parent);
    out.add(Metric::GpuInfo, &info, 1);
    for (group, at) in [("load", gpu.load.at), ("health", gpu.health.at)] {
        if at.0 > 0 {
            let age = model.now().since(at) + since_line;
            let labels = labels.with("readings", group);
            out.add(Metric::GpuReadingAge, &labels, age.as_secs_f64());
        }
    }
    // Readings of a GPU that hangs are those of the time before.
    if model.age(gpu).is_none() {
        add_load(out, gpu, labels);
        add_growth(out, model, gpu, labels);
        let is_split = |part: &Gpu| part.facts.parent.as_ref() == Some(&gpu.uuid);
        // The processes of a split GPU are on its instances.
        if !snapshot.gpus.iter().any(is_split) {
            add_holders(out, model, snapshot, gpu, labels);
        }
    }
    add_errors(out, model, gpu, labels, since_line);
}

fn add_load(out: &mut Exposition, gpu: &Gpu, labels: &SampleLabels) {
    let load = &gpu.load;
    out.add_known(
        Metric::GpuMemoryTotal,
        labels,
        load.memory_total.map(|bytes| bytes.0),
    );
    out.add_known(
        Metric::GpuMemoryUsed,
        labels,
        load.memory_used.map(|bytes| bytes.0),
    );
    out.add_known(
        Metric::GpuMemoryReserved,
        labels,
        load.memory_reserved.map(|bytes| bytes.0),
    );
    out.add_known(Metric::GpuSm, labels, load.sm.map(ratio));
    out.add_known(
        Metric::GpuBandwidth,
        labels,
        load.memory_bandwidth.map(ratio),
    );
    out.add_known(
        Metric::GpuTemperature,
        labels,
        load.temperature.map(|celsius| celsius.0),
    );
    out.add_known(Metric::GpuPower, labels, load.power.map(Watts::value));
    out.add_known(
        Metric::GpuSmClock,
        labels,
        load.sm_clock.map(|hertz| hertz.0),
    );
    if let Ok(active) = &load.throttle {
        for reason in THROTTLES {
            let labels = labels.with("reason", &word(reason));
            out.add(
                Metric::GpuThrottled,
                &labels,
                u8::from(active.contains(&reason)),
            );
        }
    }
    out.add_known(
        Metric::GpuPowerLimit,
        labels,
        gpu.health.power_limit.map(Watts::value),
    );
}

/// Adds the samples on processes that hold the GPU.
fn add_holders(
    out: &mut Exposition,
    model: &HostModel,
    snapshot: &Snapshot,
    gpu: &Gpu,
    labels: &SampleLabels,
) {
    out.add_known(
        Metric::GpuMemoryUnaccounted,
        labels,
        model.unaccounted_memory(gpu).map(|bytes| bytes.0),
    );
    match model.held_idle(gpu) {
        HeldIdle::No => out.add(Metric::GpuHeldIdle, labels, 0),
        HeldIdle::Unknown => {}
        HeldIdle::Since { since, .. } => {
            let idle = gpu.load.at.since(since);
            out.add(Metric::GpuHeldIdle, labels, idle.as_secs());
        }
    }
    // Before the first scan, nobody knows who is left over.
    if gpu.missing.processes.is_none() && snapshot.host.scan.at.0 > 0 {
        let leftovers = model.leftovers_on(gpu).count();
        out.add(Metric::GpuLeftovers, labels, leftovers);
        let memory = leftover_memory(model, gpu).ok_or(Missing::Failed);
        out.add_known(
            Metric::GpuLeftoverMemory,
            labels,
            memory.map(|bytes| bytes.0),
        );
    }
}

/// Adds the errors that the driver reported, which stay true.
fn add_errors(
    out: &mut Exposition,
    model: &HostModel,
    gpu: &Gpu,
    labels: &SampleLabels,
    since_line: Duration,
) {
    let health = &gpu.health;
    out.add_known(Metric::GpuEccUncorrected, labels, health.ecc_uncorrected);
    let remap_failed = health.remap_failed.map(u8::from);
    out.add_known(Metric::GpuRowRemapFailed, labels, remap_failed);
    if let Some(xid) = telling_xid(gpu, model.now()) {
        out.add(Metric::GpuLastXid, labels, xid.code);
        let age = model.now().since(xid.at) + since_line;
        out.add(Metric::GpuLastXidAge, labels, age.as_secs_f64());
    }
}

fn add_growth(out: &mut Exposition, model: &HostModel, gpu: &Gpu, labels: &SampleLabels) {
    let subject = GpuOrProcess::Gpu(gpu.uuid.clone());
    let Some(figures) = judged::growth(model, &subject).growth else {
        return;
    };
    let is_leak = is_leak(model, &subject, &figures);
    out.add(Metric::GpuLeaking, labels, u8::from(is_leak));
    if let Some(rate) = figures.rate_bytes_per_s {
        out.add(Metric::GpuGrowth, labels, rate);
    }
    for (estimate, seconds) in [
        ("earliest", figures.oom_low_s),
        ("likely", figures.oom_in_s),
        ("latest", figures.oom_high_s),
    ] {
        if let Some(seconds) = seconds {
            out.add(
                Metric::GpuFullIn,
                &labels.with("estimate", estimate),
                seconds,
            );
        }
    }
}
