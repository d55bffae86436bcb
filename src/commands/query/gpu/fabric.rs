//! Fields on the fabric of NVLink switches that a GPU belongs to, and on its place in the chassis.

use super::{GpuFields, QueriedGpu};
use crate::commands::query::value::{QueryValue, plain, word};
use crate::protocol::snapshot::{GpuDetail, Missing, Reading};

/// nvidia-smi writes no brackets for these fields.
const WITHOUT_FABRIC: QueryValue = QueryValue::Absent("N/A");

/// Shows one of `GpuDetail::fabric`: state, status, clique, health bits, summary.
fn show_fabric(queried: &QueriedGpu<'_>, show: impl FnOnce([u32; 5]) -> Option<&'static str>) -> QueryValue {
    match queried.detail(|detail| detail.fabric) {
        Err(Missing::Unsupported) => WITHOUT_FABRIC,
        fabric => QueryValue::of(fabric, |fabric| show(fabric).map_or(WITHOUT_FABRIC, QueryValue::plain)),
    }
}

/// Returns the word for a number that counts from 1; `None` for 0 and for a number without a word.
fn from_one(number: u32, words: &[&'static str]) -> Option<&'static str> {
    words.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
}

/// Name, position of the two bits in NVML's health mask, the words for 1 and 2, and help.
type HealthBits = (&'static str, u32, [&'static str; 2], &'static str);
const HEALTH: [HealthBits; 5] = [
    ("bandwidth", 0, ["Degraded", "Full"], "Whether the fabric has its full bandwidth."),
    ("route_recovery_in_progress", 2, ["True", "False"], "Whether routes are being recovered."),
    ("route_unhealthy", 4, ["True", "False"], "Whether a route is broken."),
    ("access_timeout_recovery", 6, ["True", "False"], "Whether access timeouts are being recovered."),
    ("partition_assigned", 12, ["True", "False"], "Whether the GPU has been assigned its partition."),
];
/// The problems of a configuration, in the order of NVML's enumeration, which counts from 1.
const CONFIGURATION: [&str; 8] = [
    "None",
    "Incorrect SysGUID",
    "Incorrect Chassis SN",
    "No Partition",
    "Insufficient Nvlinks",
    "Incompatible GPU FW",
    "Invalid Location",
    "GPU State Invalid",
];

pub(super) fn fabric(fields: &mut GpuFields) {
    fields.add("fabric.state", "", "Whether the GPU has joined its fabric of NVLink switches.", |queried| {
        show_fabric(queried, |[state, ..]| from_one(state, &["Not Started", "In Progress", "Completed"]))
    });
    fields.add("fabric.status", "", "Result of joining the fabric, once that is completed.", |queried| {
        show_fabric(queried, |[state, status, ..]| match (state, status) {
            (3, 0) => Some("Success"),
            (3, _) => Some("Unknown Error"),
            _ => None,
        })
    });
    fields.add("fabric.cliqueId", "", "Clique: the GPUs of one clique can reach each other.", |queried| match queried
        .detail(|detail| detail.fabric)
    {
        Err(Missing::Unsupported) => WITHOUT_FABRIC,
        fabric => plain(&fabric.map(|[_, _, clique, ..]| clique)),
    });
    fields.add("fabric.clusterUuid", "", "Cluster of the fabric.", |queried| {
        match queried.detail(|detail| detail.fabric_cluster.clone()) {
            Err(Missing::Unsupported) => WITHOUT_FABRIC,
            cluster => plain(&cluster),
        }
    });
    fields.add("fabric.health.summary", "", "Health of the fabric.", |queried| {
        show_fabric(queried, |[.., summary]| from_one(summary, &["Healthy", "Unhealthy", "Limited Capacity"]))
    });
    for (name, shift, words, help) in HEALTH {
        if name == "partition_assigned" {
            let help = "What is wrong with the configuration of the fabric.";
            fields.add("fabric.health.incorrect_configuration", "", help, |queried| {
                show_fabric(queried, |[.., health, _]| from_one(health >> 8 & 15, &CONFIGURATION))
            });
        }
        fields.add(format!("fabric.health.{name}"), "", help, move |queried| {
            show_fabric(queried, |[.., health, _]| from_one(health >> shift & 3, &words))
        });
    }
}

type PlatformNumber = fn(&GpuDetail) -> Reading<u32>;
const PLATFORM: [(&str, &str, PlatformNumber); 3] = [
    ("platform.slot_number", "Slot in the chassis.", |detail| detail.slot),
    ("platform.tray_index", "Tray in the chassis.", |detail| detail.tray),
    ("platform.host_id", "Host in the tray.", |detail| detail.rack_host),
];

pub(super) fn platform(fields: &mut GpuFields) {
    let help = "Serial number of the chassis.";
    fields.detail("platform.chassis_serial_number", "", help, |detail| plain(&detail.chassis));
    for (name, help, number) in PLATFORM {
        fields.detail(name, "", help, move |detail| plain(&number(detail)));
    }
    fields.detail("platform.peer_type", "", "How the GPU reaches other GPUs.", |detail| {
        word(detail.peer_type, &["Direct Connected", "Switch Connected"])
    });
    fields.detail("platform.module_id", "", "Module on the board.", |detail| plain(&detail.module));
    fields.detail("platform.gpu_fabric_guid", "", "ID of the GPU in the fabric.", |detail| {
        plain(&detail.fabric_guid.as_ref().map(|guid| format!("0x{guid}")).map_err(|reason| *reason))
    });
}
