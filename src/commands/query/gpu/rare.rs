//! What few GPUs and few hosts have: power smoothing, and what driver and GPU can do for virtual machines.

use super::{Asked, List};
use crate::commands::query::cell::{Cell, NOT_AVAILABLE};
use crate::protocol::snapshot::Missing;

/// Of one thing that can be done for virtual machines, in the order of `GpuDetail::vgpu`.
fn can(it: &Asked<'_>, at: usize, words: [&'static str; 2]) -> Cell {
    Cell::of(it.detail(|it| it.vgpu.as_ref().map(|it| it.get(at).copied().flatten()).map_err(|why| *why)), |it| {
        it.map_or(NOT_AVAILABLE, |it| Cell::plain(words[usize::from(it)]))
    })
}

const SUPPORTED: [&str; 2] = ["Not Supported", "Supported"];

pub(super) fn vgpu_of_driver(list: &mut List) {
    let about = "Whether one virtual machine can have vGPUs of several kinds.";
    list.add("vgpu_driver_capability.heterogenous_multivGPU", "", about, |it| can(it, 0, SUPPORTED));
}

pub(super) fn vgpu_of_gpu(list: &mut List) {
    for (at, (name, about, words)) in [
        ("fractional_multiVgpu", "Whether a virtual machine can have several parts of GPUs.", SUPPORTED),
        ("heterogeneous_timeSlice_profile", "Whether vGPUs of several kinds can take turns.", SUPPORTED),
        ("heterogeneous_timeSlice_sizes", "Whether vGPUs of several sizes can.", SUPPORTED),
        ("homogeneous_placements", "Whether it says where vGPUs of one size are placed.", SUPPORTED),
        ("mig_timeSlicing", "Whether vGPUs can take turns on an instance of MIG.", SUPPORTED),
        ("mig_timeSlicing_mode", "Whether they do.", ["Disabled", "Enabled"]),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("vgpu_device_capability.{name}");
        list.add(&name, "", about, move |it| can(it, at + 1, words));
    }
}

/// Below WSL there is Windows.
pub(super) fn driver_model(list: &mut List) {
    for (at, name, about) in [
        (0, "current", "How Windows drives it, below WSL: WDDM, TCC, MCDM."),
        (1, "pending", "How it will after a reboot."),
    ] {
        list.add(&format!("driver_model.{name}"), "", about, move |it| {
            Cell::of(it.detail(|it| it.driver_model), |it| match it[at] {
                0 => Cell::plain("WDDM"),
                1 => Cell::plain("TCC"),
                2 => Cell::plain("MCDM"),
                _ => Cell::missing(Missing::Failed),
            })
        });
    }
}

/// Names, units, and what they are, in the order of `GpuDetail::power_smoothing`.
const SMOOTHING: [(&str, &str, &str); 14] = [
    ("delayed_power_smoothing_supported", "", "Whether it can be delayed: Yes, No."),
    ("primary_power_floor", "W", "Below this, power is kept up."),
    ("secondary_power_floor", "W", "Below this, when it lasts."),
    ("min_primary_floor_activation_offset", "W", "The least offset of activation."),
    ("min_primary_floor_activation_point", "W", "The least point of activation."),
    ("window_multiplier", "ms", "The unit of the windows."),
    ("curr_profile.secondary_power_floor", "W", "The second floor of the profile in force."),
    ("curr_profile.primary_floor_act_window_multiplier", "", "Its window of activation."),
    ("curr_profile.primary_floor_tar_window_multiplier", "", "Its window of the target."),
    ("curr_profile.primary_floor_act_offset", "W", "Its offset of activation."),
    ("admin_override.secondary_power_floor", "W", "As an administrator set it."),
    ("admin_override.primary_floor_act_window_multiplier", "", "As an administrator set it."),
    ("admin_override.primary_floor_tar_window_multiplier", "", "As an administrator set it."),
    ("admin_override.primary_floor_act_offset", "W", "As an administrator set it."),
];

pub(super) fn power_smoothing(list: &mut List) {
    for (at, (name, unit, about)) in SMOOTHING.into_iter().enumerate() {
        list.add(&format!("power_smoothing.{name}"), unit, about, move |it| {
            let all =
                it.detail(|it| it.power_smoothing.as_ref().map(|it| it.get(at).copied().flatten()).map_err(|why| *why));
            Cell::of(all, |it| match (at, it) {
                (_, None) => NOT_AVAILABLE,
                (0, Some(has)) => Cell::plain(if has == 0 { "No" } else { "Yes" }),
                (_, Some(value)) => Cell::Value(value.to_string(), unit),
            })
        });
    }
    list.add("edpp_multiplier", "%", "How far peaks of power may go, in percent of the limit.", |it| {
        Cell::of(it.detail(|it| it.edpp), |it| Cell::Value(format!("{it}.00"), "%"))
    });
}

/// Only an administrator's tool gives a GPU one.
pub(super) fn hostname(list: &mut List) {
    list.add("hostname", "", "A name that an administrator may have given the GPU: gputop does not read it.", |_| {
        NOT_AVAILABLE
    });
}
