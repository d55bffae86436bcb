//! Fields on temperature and power: of the GPU, of the module that it shares with a CPU, and power smoothing.

use super::GpuFields;
use crate::commands::query::value::{DEPRECATED, NOT_AVAILABLE, QueryValue, celsius, plain, watts};
use crate::protocol::snapshot::{GpuDetail, Missing, Reading};

type Milliwatts = fn(&GpuDetail) -> Reading<u32>;
const POWER: [(&str, &str, Milliwatts); 15] = [
    ("power.draw", "Power drawn by the board.", |detail| detail.power_draw),
    ("power.draw.average gpu.power.draw.average", "Average power over the last second.", |detail| detail.power_average),
    ("power.draw.instant gpu.power.draw.instant", "Power drawn now.", |detail| detail.power_instant),
    ("power.limit gpu.power.requested_limit", "Requested power limit.", |detail| detail.power_limit),
    ("enforced.power.limit gpu.power.current_limit", "Enforced power limit.", |detail| detail.power_limit_enforced),
    ("power.default_limit gpu.power.default_limit", "Power limit after a reboot.", |detail| detail.power_limit_default),
    ("power.min_limit gpu.power.min_limit", "Lowest power limit.", |detail| detail.power_limit_min),
    ("power.max_limit gpu.power.max_limit", "Highest power limit.", |detail| detail.power_limit_max),
    ("module.power.draw.average", "Average power of the module of GPU and CPU.", |detail| detail.module_power_average),
    ("module.power.draw.instant", "Power drawn by the module now.", |detail| detail.module_power_instant),
    ("module.power.limit module.power.requested_limit", "Requested power limit of the module.", |detail| {
        detail.module_power_limit
    }),
    ("module.enforced.power.limit module.power.current_limit", "Enforced power limit of the module.", |detail| {
        detail.module_power_limit_enforced
    }),
    ("module.power.default_limit", "Power limit of the module after a reboot.", |detail| {
        detail.module_power_limit_default
    }),
    ("module.power.min_limit", "Lowest power limit of the module.", |detail| detail.module_power_limit_min),
    ("module.power.max_limit", "Highest power limit of the module.", |detail| detail.module_power_limit_max),
];

pub(super) fn heat_and_power(fields: &mut GpuFields) {
    let help = "Temperature of the GPU core in degrees Celsius.";
    fields.add("temperature.gpu", "", help, |queried| celsius(queried.gpu.load.temperature));
    let help = "Degrees Celsius below the temperature at which the GPU slows down.";
    fields.detail("temperature.gpu.tlimit", "", help, |detail| celsius(detail.temperature_margin));
    let help = "Temperature of the device memory in degrees Celsius.";
    fields.add("temperature.memory", "", help, |queried| {
        match queried.detail(|detail| detail.memory_temperature) {
            // nvidia-smi writes no brackets here.
            Err(Missing::Unsupported) => QueryValue::Absent("N/A"),
            temperature => celsius(temperature),
        }
    });
    fields.add("power.management", "", "Not supported by drivers any more.", |_| DEPRECATED);
    for (names, help, milliwatts) in POWER {
        fields.detail(names, "W", help, move |detail| watts(milliwatts(detail)));
    }
}

/// Name, unit and help of each figure, in the order of `GpuDetail::power_smoothing`.
const SMOOTHING: [(&str, &str, &str); 14] = [
    ("delayed_power_smoothing_supported", "", "Whether power smoothing can be delayed: Yes, No."),
    ("primary_power_floor", "W", "Primary power floor."),
    ("secondary_power_floor", "W", "Secondary power floor."),
    ("min_primary_floor_activation_offset", "W", "Lowest activation offset of the primary floor."),
    ("min_primary_floor_activation_point", "W", "Lowest activation point of the primary floor."),
    ("window_multiplier", "ms", "Unit of the window multipliers."),
    ("curr_profile.secondary_power_floor", "W", "Secondary power floor of the current profile."),
    ("curr_profile.primary_floor_act_window_multiplier", "", "Activation window of the current profile."),
    ("curr_profile.primary_floor_tar_window_multiplier", "", "Target window of the current profile."),
    ("curr_profile.primary_floor_act_offset", "W", "Activation offset of the current profile."),
    ("admin_override.secondary_power_floor", "W", "Secondary power floor set by an administrator."),
    ("admin_override.primary_floor_act_window_multiplier", "", "Activation window set by an administrator."),
    ("admin_override.primary_floor_tar_window_multiplier", "", "Target window set by an administrator."),
    ("admin_override.primary_floor_act_offset", "W", "Activation offset set by an administrator."),
];

pub(super) fn power_smoothing(fields: &mut GpuFields) {
    for (at, (name, unit, help)) in SMOOTHING.into_iter().enumerate() {
        fields.detail(format!("power_smoothing.{name}"), unit, help, move |detail| {
            let all = detail.power_smoothing.as_ref().map_err(|reason| *reason);
            QueryValue::of(all, |all| match (at, all.get(at).copied().flatten()) {
                (_, None) => NOT_AVAILABLE,
                (0, Some(supported)) => QueryValue::plain(if supported == 0 { "No" } else { "Yes" }),
                (_, Some(value)) => QueryValue::plain(value),
            })
        });
    }
    let help = "How far power peaks may exceed the power limit, in percent of it.";
    fields.detail("edpp_multiplier", "%", help, |detail| plain(&detail.edpp.map(|percent| format!("{percent}.00"))));
}
