//! What a GPU is a part of: a fabric of NVLink switches, a rack, a module with a processor.

use super::{Asked, List};
use crate::commands::query::cell::{Cell, plain, watts};
use crate::protocol::snapshot::{GpuDetail, Missing, Reading};

/// Without such a fabric, the absence of these fields has no brackets.
fn fabric(it: &Asked<'_>, show: impl FnOnce([u32; 5]) -> Option<String>) -> Cell {
    match it.detail(|it| it.fabric) {
        Err(Missing::Unsupported) => Cell::None("N/A"),
        fabric => Cell::of(fabric, |it| show(it).map_or(Cell::None("N/A"), Cell::plain)),
    }
}

/// Of one thing that NVML's bits of health say: at which bit its two begin, and its words for true and false.
type Health = (&'static str, u32, [&'static str; 2], &'static str);
const HEALTH: [Health; 5] = [
    ("bandwidth", 0, ["Degraded", "Full"], "Whether the fabric has its whole bandwidth."),
    ("route_recovery_in_progress", 2, ["True", "False"], "Whether it looks for new ways."),
    ("route_unhealthy", 4, ["True", "False"], "Whether a way of it is broken."),
    ("access_timeout_recovery", 6, ["True", "False"], "Whether it recovers from accesses that took too long."),
    ("partition_assigned", 12, ["True", "False"], "Whether it has its partition of the fabric."),
];
/// What can be wrong with how the fabric is set up, from NVML's 1 on.
const WRONG: [&str; 8] = [
    "None",
    "Incorrect SysGUID",
    "Incorrect Chassis SN",
    "No Partition",
    "Insufficient Nvlinks",
    "Incompatible GPU FW",
    "Invalid Location",
    "GPU State Invalid",
];

pub(super) fn fabrics(list: &mut List) {
    list.add("fabric.state", "", "Whether it has joined its fabric of NVLink switches.", |it| {
        fabric(it, |[state, ..]| {
            let states = ["Not Started", "In Progress", "Completed"];
            Some((*states.get(usize::try_from(state).ok()?.checked_sub(1)?)?).to_owned())
        })
    });
    list.add("fabric.status", "", "What came of that.", |it| {
        // While it goes on, nothing has come of it.
        fabric(it, |[state, status, ..]| match (state, status) {
            (3, 0) => Some("Success".to_owned()),
            (3, _) => Some("Unknown Error".to_owned()),
            _ => None,
        })
    });
    list.add("fabric.cliqueId", "", "GPUs of one clique reach each other.", |it| {
        fabric(it, |[_, _, clique, ..]| Some(clique.to_string()))
    });
    list.add("fabric.clusterUuid", "", "The cluster that the fabric belongs to.", |it| {
        match it.detail(|it| it.fabric_cluster.clone()) {
            Err(Missing::Unsupported) => Cell::None("N/A"),
            cluster => plain(cluster),
        }
    });
    list.add("fabric.health.summary", "", "How the fabric is.", |it| {
        fabric(it, |[.., summary]| match summary {
            1 => Some("Healthy".to_owned()),
            2 => Some("Unhealthy".to_owned()),
            3 => Some("Limited Capacity".to_owned()),
            _ => None,
        })
    });
    for (name, shift, words, about) in HEALTH {
        if name == "partition_assigned" {
            list.add("fabric.health.incorrect_configuration", "", "What is wrong with how it is set up.", |it| {
                fabric(it, |[_, _, _, health, _]| {
                    let wrong = usize::try_from(health >> 8 & 15).ok()?.checked_sub(1)?;
                    WRONG.get(wrong).map(|it| (*it).to_owned())
                })
            });
        }
        list.add(&format!("fabric.health.{name}"), "", about, move |it| {
            fabric(it, |[_, _, _, health, _]| match health >> shift & 3 {
                1 => Some(words[0].to_owned()),
                2 => Some(words[1].to_owned()),
                _ => None,
            })
        });
    }
}

/// Names, what it is, and where it stands.
type Place = fn(&GpuDetail) -> Reading<u32>;
const PLATFORM: [(&str, &str, Place); 4] = [
    ("platform.slot_number", "Its slot in the chassis.", |it| it.slot),
    ("platform.tray_index", "Its tray there.", |it| it.tray),
    ("platform.host_id", "The host in that tray.", |it| it.rack_host),
    ("platform.module_id", "Its place on the board.", |it| it.module),
];

pub(super) fn platform(list: &mut List) {
    list.add("platform.chassis_serial_number", "", "The number of the chassis that it is in.", |it| {
        plain(it.detail(|it| it.chassis.clone()))
    });
    for (name, about, place) in PLATFORM {
        if name == "platform.module_id" {
            list.add("platform.peer_type", "", "How it reaches others.", |it| {
                Cell::of(it.detail(|it| it.peer_type), |it| match it {
                    0 => Cell::plain("Direct Connected"),
                    1 => Cell::plain("Switch Connected"),
                    _ => Cell::missing(Missing::Failed),
                })
            });
        }
        list.add(name, "", about, move |it| plain(it.detail(place)));
    }
    list.add("platform.gpu_fabric_guid", "", "Its id in the fabric.", |it| {
        Cell::of(it.detail(|it| it.fabric_guid.clone()), |it| Cell::plain(format!("0x{it}")))
    });
}

const MODULE: [(&str, &str, Place); 7] = [
    ("module.power.draw.average", "What the module of GPU and processor draws, on average.", |it| {
        it.module_power_average
    }),
    ("module.power.draw.instant", "What it draws now.", |it| it.module_power_instant),
    ("module.power.limit module.power.requested_limit", "The limit that was asked for.", |it| it.module_power_limit),
    ("module.enforced.power.limit module.power.current_limit", "The limit in force.", |it| {
        it.module_power_limit_enforced
    }),
    ("module.power.default_limit", "The limit after a reboot.", |it| it.module_power_limit_default),
    ("module.power.min_limit", "The lowest that may be asked for.", |it| it.module_power_limit_min),
    ("module.power.max_limit", "The highest that may be asked for.", |it| it.module_power_limit_max),
];

pub(super) fn module_power(list: &mut List) {
    for (names, about, power) in MODULE {
        list.add(names, "W", about, move |it| watts(it.detail(power)));
    }
}

/// Of boards that can be set up for computing alone.
pub(super) fn operation_mode(list: &mut List) {
    for (at, name, short, about) in [
        (
            0,
            "gpu_operation_mode.current",
            "gom.current",
            "What it is set up for: All On, Compute, Low Double Precision.",
        ),
        (1, "gpu_operation_mode.pending", "gom.pending", "What it will be after a reboot."),
    ] {
        list.add(&format!("{short} {name}"), "", about, move |it| {
            Cell::of(it.detail(|it| it.operation_mode), |it| match it[at] {
                0 => Cell::plain("All On"),
                1 => Cell::plain("Compute"),
                2 => Cell::plain("Low Double Precision"),
                _ => Cell::missing(Missing::Failed),
            })
        });
    }
}
