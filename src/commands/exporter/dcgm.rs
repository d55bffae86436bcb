//! The metrics of NVIDIA's dcgm-exporter, for dashboards that read its names.
//!
//! Names, units and labels are those of its `default-counters.csv` and its README:
//! <https://github.com/NVIDIA/dcgm-exporter>.

use super::metrics::{Exposition, Metric, SampleLabels};
use crate::base::units::{Bytes, Hertz, Percent, Watts};
use crate::model::HostModel;
use crate::protocol::snapshot::{Gpu, Snapshot};

/// Where dcgm-exporter listens.
pub(super) const PORT: u16 = 9400;

/// Adds the samples of the whole GPUs of a host.
pub(super) fn add_host(out: &mut Exposition, host: &str, model: &HostModel, snapshot: &Snapshot) {
    let is_read = |gpu: &&Gpu| gpu.facts.parent.is_none() && model.age(gpu).is_none();
    for gpu in snapshot.gpus.iter().filter(is_read) {
        add_gpu(out, host, snapshot, gpu);
    }
}

fn add_gpu(out: &mut Exposition, host: &str, snapshot: &Snapshot, gpu: &Gpu) {
    let (facts, driver) = (&gpu.facts, snapshot.driver.version.as_ref());
    let minor = facts.minor.unwrap_or(facts.index);
    let labels = SampleLabels::default()
        .with("gpu", &facts.index.to_string())
        .with_known("UUID", Some(&gpu.uuid.0))
        .with_known("pci_bus_id", facts.bus_id.as_ref().ok())
        .with("device", &format!("nvidia{minor}"))
        .with_known("modelName", facts.name.as_ref().ok())
        .with("Hostname", host)
        .with_known("DCGM_FI_DRIVER_VERSION", driver);
    let (load, health) = (&gpu.load, &gpu.health);
    let mhz = |hertz: Hertz| hertz.0 / 1_000_000;
    let mib = |bytes: Bytes| bytes.0 >> 20;
    out.add_known(Metric::DcgmSmClock, &labels, load.sm_clock.map(mhz));
    out.add_known(
        Metric::DcgmMemoryClock,
        &labels,
        health.memory_clock.map(mhz),
    );
    out.add_known(
        Metric::DcgmTemperature,
        &labels,
        load.temperature.map(|celsius| celsius.0),
    );
    out.add_known(Metric::DcgmPower, &labels, load.power.map(Watts::value));
    out.add_known(Metric::DcgmUse, &labels, load.sm.map(Percent::value));
    out.add_known(
        Metric::DcgmMemoryUse,
        &labels,
        load.memory_bandwidth.map(Percent::value),
    );
    out.add_known(
        Metric::DcgmEncoder,
        &labels,
        health.encoder.map(Percent::value),
    );
    out.add_known(
        Metric::DcgmDecoder,
        &labels,
        health.decoder.map(Percent::value),
    );
    // Absent when clean, as there.
    if let Some(xid) = health.xids.last() {
        out.add(Metric::DcgmXid, &labels, xid.code);
    }
    out.add_known(Metric::DcgmFree, &labels, load.memory_free.map(mib));
    out.add_known(Metric::DcgmUsed, &labels, load.memory_used.map(mib));
    out.add_known(Metric::DcgmReserved, &labels, load.memory_reserved.map(mib));
}
