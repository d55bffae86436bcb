//! Reads many values of a GPU in one call of `nvmlDeviceGetFieldValues`. Each value has its own
//! type and its own error.

use std::mem;

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::nvmlFieldValue_t;

use super::errors;
use super::gpu_calls::{GpuCalls, take};
use super::plausible::{celsius, milliwatts};
use super::raw::handle;
use crate::base::units::Bytes;
use crate::protocol::snapshot::{GpuDetail, GpuHealth, Missing, Reading};

/// The scope of fields of a GPU as a whole.
const GPU: u32 = 0;
/// The scope of the module that joins GPU and processor, as opposed to the GPU alone.
const MODULE: u32 = 1;
/// The scope of all links together.
const ALL_LINKS: u32 = u32::MAX;

// Field IDs of nvml.h (`NVML_FI_DEV_…`). These IDs are the same in all drivers.

/// The fields of the GPU that [`GpuCalls::read_fields`] reads, in its order.
const DETAIL: [u32; 8] = [29, 30, 74, 76, 82, 185, 186, 230];
/// The fields of the GPU that [`GpuCalls::read_damage`] reads, in its order.
const DAMAGE: [u32; 6] = [3, 4, 31, 144, 145, 230];
/// Milliwatts of the module: average and instant power; lowest, highest, default, enforced and
/// requested limit.
const MODULE_POWER: [u32; 7] = [185, 186, 187, 188, 189, 190, 192];
/// The number of NVLink connections.
const LINKS: u32 = 91;
/// The state of an NVLink connection, and its speed in MB per second.
const LINK: [u32; 2] = [165, 164];
/// KiB sent and received over NVLink since the driver was loaded.
const TRANSFERRED: [u32; 2] = [138, 139];
/// Bytes sent and received over PCIe. The counters have 32 bits and wrap.
const PCIE_BYTES: [u32; 2] = [197, 198];
/// The EDPP multiplier, in an undocumented unit; gputop assumes percent. This and the
/// power-smoothing fields exist since driver 590.
const EDPP: u32 = 274;
/// Power smoothing of the board, in the order of [`GpuDetail::power_smoothing`].
const SMOOTHING: [u32; 6] = [280, 275, 276, 277, 278, 279];
/// The number of the active power-smoothing profile. This number is the scope of
/// [`PROFILE_FIELDS`].
const PROFILE: u32 = 264;
const PROFILE_FIELDS: [u32; 4] = [281, 282, 283, 284];
const ADMINISTRATOR_FIELDS: [u32; 4] = [285, 286, 287, 288];
/// Power smoothing of the board, then of the profile, in the order of
/// [`GpuDetail::power_smoothing_settings`]. 251 to 268 are the fields of nvml.h from
/// `NVML_FI_PWR_SMOOTHING_ENABLED` on, of which the active profile is the 14th: 264.
const SETTINGS: [u32; 10] = [251, 252, 253, 254, 255, 256, 257, 258, 259, PROFILE];
const PROFILE_SETTINGS: [u32; 4] = [260, 261, 262, 263];
const ADMINISTRATOR_SETTINGS: [u32; 4] = [265, 266, 267, 268];
/// The number of remapped rows whose remapping is not in effect, after corrected and after
/// uncorrected errors. Since driver 595, and in late releases of 580 (seen in 580.159); an older one
/// of those does not know the numbers.
const INACTIVE_ROWS: [u32; 2] = [301, 302];

/// The states of a link that is up: `NVML_NVLINK_STATE_ACTIVE`, and since driver 575
/// `NVML_NVLINK_STATE_SLEEP`. An unused link sleeps, and wakes by itself.
const UP: [u64; 2] = [1, 2];
const MOST_LINKS: u32 = 36;
const MOST_EDPP: u32 = 1000;
/// The largest plausible value. A `u64` can hold it.
const MOST_DOUBLE: f64 = 1e15;

fn values<const N: usize>(
    device: &Device<'static>,
    scope: u32,
    fields: [u32; N],
) -> Result<[Reading<u64>; N], NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceGetFieldValues.as_ref())?;
    let mut values = fields.map(|field| {
        // SAFETY: the structure is plain numbers, for all of which zero is valid.
        let mut value: nvmlFieldValue_t = unsafe { mem::zeroed() };
        (value.fieldId, value.scopeId) = (field, scope);
        value
    });
    let count = i32::try_from(N).map_err(|_| NvmlError::InvalidArg)?;
    // SAFETY: `values` has `count` of the structures that this function fills.
    nvml_try(unsafe { function(handle(device), count, values.as_mut_ptr()) })?;
    Ok(values.map(|value| number(&value)))
}

fn number(value: &nvmlFieldValue_t) -> Reading<u64> {
    nvml_try(value.nvmlReturn).map_err(|error| match errors::missing(&error) {
        // For a field that the driver does not know, NVML returns this error.
        Missing::Failed if matches!(error, NvmlError::InvalidArg) => Missing::Unsupported,
        why => why,
    })?;
    let member = &value.value;
    if value.valueType == 0 {
        // SAFETY: the type says that NVML wrote this member.
        let double = unsafe { member.dVal };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the value is in range"
        )]
        return if (0.0..MOST_DOUBLE).contains(&double) {
            Ok(double.round() as u64)
        } else {
            Err(Missing::Failed)
        };
    }
    // SAFETY: every bit pattern is a number, whichever member NVML wrote.
    match unsafe {
        (
            value.valueType,
            member.uiVal,
            member.ullVal,
            member.sllVal,
            member.siVal,
            member.usVal,
        )
    } {
        (1, number, ..) => Ok(number.into()),
        (2 | 3, _, number, ..) => Ok(number),
        (4, _, _, number, ..) => u64::try_from(number).map_err(|_| Missing::Failed),
        (5, .., number, _) => u64::try_from(number).map_err(|_| Missing::Failed),
        (6, .., number) => Ok(number.into()),
        _ => Err(Missing::Failed),
    }
}

impl GpuCalls {
    fn field_values<const N: usize>(&mut self, scope: u32, fields: [u32; N]) -> [Reading<u64>; N] {
        let values = self.read("nvmlDeviceGetFieldValues", |gpu| values(gpu, scope, fields));
        values.unwrap_or_else(|why| [Err(why); N])
    }

    /// Reads memory errors, pending repairs and the recovery action that the driver recommends, in
    /// one call.
    pub(super) fn read_damage(&mut self, health: &mut GpuHealth) {
        take! { self, health:
            (
                ecc_corrected, ecc_uncorrected, retired_pending, remap_pending, remap_failed,
                recovery_action
            ) = {
                let [corrected, uncorrected, retired, pending, failed, action] =
                    self.field_values(GPU, DAMAGE);
                let is_some = |count: Reading<u64>| count.map(|count| count != 0);
                (
                    corrected, uncorrected, is_some(retired), is_some(pending), is_some(failed),
                    action.and_then(small),
                )
            };
        }
    }

    /// Reads the number of NVLink connections, the number of those that are up, and the speed of
    /// one.
    pub(super) fn links(&mut self) -> (Reading<u32>, Reading<u32>, Reading<Bytes>) {
        let [links] = self.field_values(GPU, [LINKS]);
        let links = links.and_then(|links| at_most(MOST_LINKS, links));
        let mut link_speed = Err(Missing::Unsupported);
        let Ok(count @ 1..) = links else {
            return (links, Err(Missing::Unsupported), link_speed);
        };
        let mut up = Ok(0);
        for link in 0..count {
            let [state, speed] = self.field_values(link, LINK);
            match state {
                Ok(state) if UP.contains(&state) => {
                    up = up.map(|links| links + 1);
                    // A link that sleeps may have no speed.
                    if let Ok(speed @ 1..) = speed {
                        link_speed = Ok(Bytes(speed.saturating_mul(1_000_000)));
                    }
                }
                Ok(_) => {}
                Err(why) => up = Err(why),
            }
        }
        (links, up, link_speed)
    }

    /// Reads power and power limits of the module, on boards that join GPU and processor in one
    /// module.
    pub(super) fn read_module_power(&mut self, detail: &mut GpuDetail) {
        take! { self, detail:
            (
                module_power_average, module_power_instant, module_power_limit_min,
                module_power_limit_max, module_power_limit_default,
                module_power_limit_enforced, module_power_limit
            ) = self
                .field_values(MODULE, MODULE_POWER)
                .map(|value| value.and_then(small).and_then(milliwatts))
                .into();
        }
    }

    pub(super) fn read_fields(&mut self, detail: &mut GpuDetail, driver: &str) {
        take! { self, detail:
            (
                retired_single, retired_double, held_power_cap, held_sync_boost,
                memory_temperature, power_average, power_instant, recovery_action
            ) = {
                let [single, double, power_cap, sync_boost, memory, average, instant, action] =
                    self.field_values(GPU, DETAIL);
                // Boards without a sensor answer 0.
                let temperature = match memory.and_then(small) {
                    Ok(0) => Err(Missing::Unsupported),
                    temperature => temperature.and_then(celsius),
                };
                let power = |value: Reading<u64>| value.and_then(small).and_then(milliwatts);
                (
                    single, double, power_cap, sync_boost,
                    temperature, power(average), power(instant), action.and_then(small),
                )
            };
            (held_thermal, held_hardware_thermal, held_power_brake) = throttle_time_fields(driver)
                .map_or([Err(Missing::Unsupported); 3], |fields| self.field_values(GPU, fields))
                .into();
        }
    }

    /// Reads inactive row remappings, EDPP and power smoothing, which only new drivers have.
    pub(super) fn read_rare(&mut self, detail: &mut GpuDetail, driver: &str) {
        let major = driver
            .split('.')
            .next()
            .and_then(|major| major.parse().ok());
        let is_since = |first: u32| {
            (major >= Some(first))
                .then_some(())
                .ok_or(Missing::Unsupported)
        };
        take! { self, detail:
            (remapped_correctable_inactive, remapped_uncorrectable_inactive) = is_since(580)
                .map_or_else(|why| [Err(why); 2], |()| self.field_values(GPU, INACTIVE_ROWS))
                .into();
            edpp = is_since(590).and_then(|()| {
                let [edpp] = self.field_values(GPU, [EDPP]);
                edpp.and_then(|percent| at_most(MOST_EDPP, percent))
            });
            power_smoothing_settings = is_since(590)
                .and_then(|()| self.smoothing(SETTINGS, PROFILE_SETTINGS, ADMINISTRATOR_SETTINGS));
            power_smoothing = is_since(590)
                .and_then(|()| self.smoothing(SMOOTHING, PROFILE_FIELDS, ADMINISTRATOR_FIELDS));
        }
    }

    /// Reads power smoothing: the fields of the board, of its active profile and of the
    /// administrator.
    fn smoothing<const N: usize>(
        &mut self,
        board: [u32; N],
        of_profile: [u32; 4],
        of_administrator: [u32; 4],
    ) -> Reading<Vec<Option<u64>>> {
        let board = self.field_values(GPU, board);
        if board.iter().all(Result::is_err) {
            return board[0].map(|_| Vec::new());
        }
        let [profile] = self.field_values(GPU, [PROFILE]);
        let profile = profile
            .and_then(small)
            .map(|profile| self.field_values(profile, of_profile));
        let profile = profile.unwrap_or_else(|why| [Err(why); 4]);
        let administrator = self.field_values(GPU, of_administrator);
        let all = board.into_iter().chain(profile).chain(administrator);
        all.map(or_not_set).collect()
    }

    /// Reads the counters of bytes sent and received over PCIe, which wrap.
    pub(super) fn pcie_bytes(&mut self) -> Reading<[u32; 2]> {
        let [sent, received] = self.field_values(GPU, PCIE_BYTES);
        Ok([sent.and_then(small)?, received.and_then(small)?])
    }

    pub(super) fn transferred(&mut self) -> [Reading<Bytes>; 2] {
        self.field_values(ALL_LINKS, TRANSFERRED)
            .map(|value| value.map(Bytes::from_kib))
    }
}

/// Returns the IDs of three fields: how long the software thermal slowdown, the hardware thermal
/// slowdown and the power brake reduced the clocks. `None` when the driver lacks these fields, or
/// their IDs in this driver are unknown.
///
/// The IDs in nvml.h are 251 to 253 in CUDA 12.9 and 13.0, and 269 to 271 since 13.0 update 1.
/// There, 251 to 253 are settings of power smoothing again, as in 12.8. nvml-wrapper changes the
/// IDs at driver 580.82. The IDs between 580.65, the driver of 13.0, and 580.82 are unknown.
fn throttle_time_fields(driver: &str) -> Option<[u32; 3]> {
    let mut numbers = driver.split('.').map(str::parse::<u32>);
    let version = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    let first = match version {
        (..575, _) => return None,
        (575..580, _) | (580, ..=65) => 251,
        (580, ..82) => return None,
        _ => 269,
    };
    Some([first, first + 1, first + 2])
}

/// Returns `None` for a setting that is not set.
fn or_not_set(value: Reading<u64>) -> Reading<Option<u64>> {
    match value {
        Err(Missing::Unsupported) => Ok(None),
        other => other.map(Some),
    }
}

fn small(value: u64) -> Reading<u32> {
    u32::try_from(value).map_err(|_| Missing::Failed)
}

fn at_most(limit: u32, value: u64) -> Reading<u32> {
    small(value).and_then(|value| {
        if value <= limit {
            Ok(value)
        } else {
            Err(Missing::Failed)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_the_throttle_times_depend_on_the_driver() {
        let first = |driver| throttle_time_fields(driver).map(|fields| fields[0]);
        assert_eq!(first("535.183.01"), None);
        assert_eq!(
            first("570.86.16"),
            None,
            "251 is whether power smoothing is on"
        );
        assert_eq!(first("575.51.03"), Some(251));
        assert_eq!(first("580.65.06"), Some(251));
        assert_eq!(first("580.76.05"), None);
        assert_eq!(first("580.82.07"), Some(269));
        assert_eq!(first("590.48.01"), Some(269));
        assert_eq!(first("unheard of"), None);
    }
}
