//! `nvmlDeviceGetFieldValues`: many numbers in one call, each with its own type and its own error.

use std::mem;

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::nvmlFieldValue_t;

use super::errors;
use super::gpu_calls::GpuCalls;
use super::plausible::{celsius, milliwatts};
use super::raw::handle;
use crate::base::units::Bytes;
use crate::protocol::snapshot::{GpuDetail, GpuHealth, Missing, Reading};

/// A field's number in nvml.h (`NVML_FI_DEV_…`) and its scope, such as a link. No driver may have renumbered the field.
type Field = (u32, u32);

/// Fields of whole GPUs, in the order of [`GpuCalls::read_fields`].
const DETAILS: [u32; 8] = [29, 30, 74, 76, 82, 185, 186, 230];

/// The scope of all links together.
const ALL: u32 = u32::MAX;

/// The largest plausible floating-point value, which a `u64` can hold.
const MOST_DOUBLE: f64 = 1e15;
/// The largest plausible percentage of EDPP.
const MOST_EDPP: u32 = 1000;
/// More links than any GPU has.
const MOST_LINKS: u32 = 36;

/// Memory errors since the driver was loaded: corrected and uncorrected by ECC.
const CORRECTED: Field = (3, 0);
const UNCORRECTED: Field = (4, 0);
const RETIRED_PENDING: Field = (31, 0);
const REMAPPED_PENDING: Field = (144, 0);
const REMAPPED_FAILED: Field = (145, 0);
const RECOVERY_ACTION: Field = (230, 0);
/// Milliwatts of the module: average and instant power; lowest, highest, default, enforced and requested limit.
const MODULE_POWER: [u32; 7] = [185, 186, 187, 188, 189, 190, 192];
/// The scope of the module, as opposed to the GPU alone.
const MODULE: u32 = 1;
const LINKS: Field = (91, 0);
/// In MB per second.
const LINK_SPEED: u32 = 164;
const LINK_STATE: u32 = 165;
/// `NVML_NVLINK_STATE_ACTIVE`, and since 575 `NVML_NVLINK_STATE_SLEEP`: an unused link sleeps, and wakes by itself.
const UP: [u64; 2] = [1, 2];
/// Its unit is undocumented; it is read as percent. This field and those below exist since driver 590.
const EDPP: Field = (274, 0);
/// Power smoothing of the board: whether it can be delayed, the floors, the least activation, the window.
const SMOOTHING: [Field; 6] = [(280, 0), (275, 0), (276, 0), (277, 0), (278, 0), (279, 0)];
/// The number of the active profile, which is the scope of the profile's fields.
const PROFILE: Field = (264, 0);
const OF_PROFILE: [u32; 4] = [281, 282, 283, 284];
const OF_ADMINISTRATOR: [Field; 4] = [(285, 0), (286, 0), (287, 0), (288, 0)];
/// Rows whose replacement is inactive, since driver 595: after corrected errors, and after uncorrected errors.
const INACTIVE: [Field; 2] = [(301, 0), (302, 0)];
/// KiB sent and received over NVLink since the driver was loaded.
const SENT: Field = (138, ALL);
const RECEIVED: Field = (139, ALL);

/// Reads the value of each field.
fn values<const N: usize>(device: &Device<'static>, fields: [Field; N]) -> Result<[Reading<u64>; N], NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceGetFieldValues.as_ref())?;
    let mut values = fields.map(|(field, scope)| {
        // SAFETY: the structure is plain numbers, for all of which zero is a value.
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
        // A field that this driver does not know is an invalid argument.
        Missing::Failed if matches!(error, NvmlError::InvalidArg) => Missing::Unsupported,
        why => why,
    })?;
    let member = &value.value;
    if value.valueType == 0 {
        // SAFETY: the type says that NVML wrote this member.
        let double = unsafe { member.dVal };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the value is in range")]
        return if (0.0..MOST_DOUBLE).contains(&double) { Ok(double.round() as u64) } else { Err(Missing::Failed) };
    }
    // SAFETY: every bit pattern is a number, whichever member NVML wrote.
    match unsafe { (value.valueType, member.uiVal, member.ullVal, member.sllVal, member.siVal, member.usVal) } {
        (1, number, ..) => Ok(number.into()),
        (2 | 3, _, number, ..) => Ok(number),
        (4, _, _, number, ..) => u64::try_from(number).map_err(|_| Missing::Failed),
        (5, .., number, _) => u64::try_from(number).map_err(|_| Missing::Failed),
        (6, .., number) => Ok(number.into()),
        _ => Err(Missing::Failed),
    }
}

impl GpuCalls {
    fn field_values<const N: usize>(&mut self, fields: [Field; N]) -> [Reading<u64>; N] {
        self.ask("nvmlDeviceGetFieldValues", |gpu| values(gpu, fields)).unwrap_or_else(|why| [Err(why); N])
    }

    /// Reads memory errors, pending repairs and the driver's recommendation, in one call.
    pub(super) fn read_damage(&mut self, health: &mut GpuHealth) {
        let fields = [CORRECTED, UNCORRECTED, RETIRED_PENDING, REMAPPED_PENDING, REMAPPED_FAILED, RECOVERY_ACTION];
        let [corrected, uncorrected, retired, pending, failed, action] = self.field_values(fields);
        (health.ecc_corrected, health.ecc_uncorrected) = (corrected, uncorrected);
        health.retired_pending = retired.map(|count| count != 0);
        health.remap_pending = pending.map(|count| count != 0);
        health.remap_failed = failed.map(|count| count != 0);
        health.recovery_action = action.and_then(small);
    }

    /// Reads the number of NVLink connections, and how many of them are up.
    pub(super) fn read_links(&mut self, detail: &mut GpuDetail) {
        let [links] = self.field_values([LINKS]);
        detail.nvlinks =
            links.and_then(small).and_then(|links| if links <= MOST_LINKS { Ok(links) } else { Err(Missing::Failed) });
        (detail.nvlinks_up, detail.nvlink_speed) = (Err(Missing::Unsupported), Err(Missing::Unsupported));
        let Ok(count @ 1..) = detail.nvlinks else { return };
        let mut up = Ok(0);
        for link in 0..count {
            let [state, speed] = self.field_values([(LINK_STATE, link), (LINK_SPEED, link)]);
            match (state, speed) {
                (Ok(state), speed) if UP.contains(&state) => {
                    up = up.map(|links| links + 1);
                    // A link that sleeps may have no speed.
                    if let Ok(speed @ 1..) = speed {
                        detail.nvlink_speed = Ok(Bytes(speed.saturating_mul(1_000_000)));
                    }
                }
                (Ok(_), _) => {}
                (Err(why), _) => up = Err(why),
            }
        }
        detail.nvlinks_up = up;
    }

    /// Reads power and power limits of the module, on boards that join GPU and processor in one module.
    pub(super) fn read_module_power(&mut self, detail: &mut GpuDetail) {
        let watts = self.field_values(MODULE_POWER.map(|field| (field, MODULE)));
        [
            detail.module_power_average,
            detail.module_power_instant,
            detail.module_power_limit_min,
            detail.module_power_limit_max,
            detail.module_power_limit_default,
            detail.module_power_limit_enforced,
            detail.module_power_limit,
        ] = watts.map(|value| value.and_then(small).and_then(milliwatts));
    }

    /// Reads the fields of a GPU as a whole.
    pub(super) fn read_fields(&mut self, detail: &mut GpuDetail, driver: &str) {
        let of_gpu = DETAILS.map(|field| (field, 0));
        let [single, double, power_cap, sync_boost, memory, average, instant, action] = self.field_values(of_gpu);
        (detail.retired_single, detail.retired_double) = (single, double);
        (detail.held_power_cap, detail.held_sync_boost) = (power_cap, sync_boost);
        // Boards without a sensor answer 0.
        detail.memory_temperature = match memory.and_then(small) {
            Ok(0) => Err(Missing::Unsupported),
            temperature => temperature.and_then(celsius),
        };
        detail.power_average = average.and_then(small).and_then(milliwatts);
        detail.power_instant = instant.and_then(small).and_then(milliwatts);
        detail.recovery_action = action.and_then(small);
        let unknown = [Err(Missing::Unsupported); 3];
        [detail.held_thermal, detail.held_hardware_thermal, detail.held_power_brake] =
            held(driver).map_or(unknown, |fields| self.field_values(fields));
    }

    /// Reads fields that only new drivers have.
    pub(super) fn read_rare(&mut self, detail: &mut GpuDetail, driver: &str) {
        let major = driver.split('.').next().and_then(|major| major.parse::<u32>().ok());
        let has = |since| major.is_some_and(|major| major >= since);
        let inactive = if has(595) { self.field_values(INACTIVE) } else { [Err(Missing::Unsupported); 2] };
        [detail.remapped_correctable_inactive, detail.remapped_uncorrectable_inactive] = inactive;
        (detail.edpp, detail.power_smoothing) = (Err(Missing::Unsupported), Err(Missing::Unsupported));
        if !has(590) {
            return;
        }
        let [edpp] = self.field_values([EDPP]);
        detail.edpp = edpp
            .and_then(small)
            .and_then(|percent| if percent <= MOST_EDPP { Ok(percent) } else { Err(Missing::Failed) });
        let board = self.field_values(SMOOTHING);
        if board.iter().all(Result::is_err) {
            detail.power_smoothing = board[0].map(|_| Vec::new());
            return;
        }
        let profile = self.field_values([PROFILE])[0].and_then(small);
        let profile = profile.map(|profile| self.field_values(OF_PROFILE.map(|field| (field, profile))));
        let profile = profile.unwrap_or_else(|why| [Err(why); OF_PROFILE.len()]);
        let set = self.field_values(OF_ADMINISTRATOR);
        let or_not_set = |value: Reading<u64>| match value {
            Err(Missing::Unsupported) => Ok(None),
            other => other.map(Some),
        };
        detail.power_smoothing = board.into_iter().chain(profile).chain(set).map(or_not_set).collect();
    }

    /// Reads the bytes sent and received over all NVLink connections so far.
    pub(super) fn transferred(&mut self) -> [Reading<Bytes>; 2] {
        self.field_values([SENT, RECEIVED]).map(|value| value.map(Bytes::from_kib))
    }
}

/// The fields that tell how long heat, by software and by hardware, and the power brake held the clocks.
///
/// nvml.h has them as 251 to 253 in CUDA 12.9 and 13.0, and as 269 to 271 since 13.0 update 1, where 251 to 253 are again
/// what they were in 12.8: settings of power smoothing. nvml-wrapper changes the numbers at 580.82. The numbers between 580.65,
/// which came with 13.0, and 580.82 are not known.
fn held(driver: &str) -> Option<[Field; 3]> {
    let mut numbers = driver.split('.').map(str::parse::<u32>);
    let version = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    let first = match version {
        (..575, _) => return None,
        (575..580, _) | (580, ..=65) => 251,
        (580, ..82) => return None,
        _ => 269,
    };
    Some([first, first + 1, first + 2].map(|field| (field, 0)))
}

fn small(value: u64) -> Reading<u32> {
    u32::try_from(value).map_err(|_| Missing::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_held_the_clocks_is_asked_by_the_numbers_of_the_driver() {
        let first = |driver| held(driver).map(|fields| fields[0].0);
        assert_eq!(first("535.183.01"), None);
        assert_eq!(first("570.86.16"), None, "251 is whether power smoothing is on");
        assert_eq!(first("575.51.03"), Some(251));
        assert_eq!(first("580.65.06"), Some(251));
        assert_eq!(first("580.76.05"), None);
        assert_eq!(first("580.82.07"), Some(269));
        assert_eq!(first("590.48.01"), Some(269));
        assert_eq!(first("unheard of"), None);
    }
}
