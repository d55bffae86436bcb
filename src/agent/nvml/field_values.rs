//! `nvmlDeviceGetFieldValues`: many numbers in one call, each of its own type and with its own answer.

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

/// A field by its number in nvml.h (`NVML_FI_DEV_…`), which must be one that no driver has renumbered; and of which link.
type Field = (u32, u32);

/// Of whole GPUs, in the order of [`Gpu::read_fields`].
const DETAILS: [u32; 8] = [29, 30, 74, 76, 82, 185, 186, 230];

/// Of all links together.
const ALL: u32 = u32::MAX;

/// More links than any GPU has.
const MOST_LINKS: u32 = 36;

/// Memory errors since the driver was loaded: those that ECC mended, and the others.
const CORRECTED: Field = (3, 0);
const UNCORRECTED: Field = (4, 0);
const RETIRED_PENDING: Field = (31, 0);
const REMAPPED_PENDING: Field = (144, 0);
const REMAPPED_FAILED: Field = (145, 0);
const RECOVERY_ACTION: Field = (230, 0);
/// Average, instant, the lowest, highest and default limit, the one in force, the one asked for; in milliwatts.
const MODULE_POWER: [u32; 7] = [185, 186, 187, 188, 189, 190, 192];
/// Of the module, and not of the GPU alone.
const MODULE: u32 = 1;
const LINKS: Field = (91, 0);
/// In MB.
const LINK_SPEED: u32 = 164;
const LINK_STATE: u32 = 165;
/// `NVML_NVLINK_STATE_ACTIVE`, and since 575 `NVML_NVLINK_STATE_SLEEP`: a link that nobody uses sleeps, and wakes by itself.
const UP: [u64; 2] = [1, 2];
/// In percent; so with the ones below since driver 590.
const EDPP: Field = (274, 0);
/// Of power smoothing: whether it can be delayed, the floors, the least activation, the window.
const SMOOTHING: [Field; 6] = [(280, 0), (275, 0), (276, 0), (277, 0), (278, 0), (279, 0)];
/// The number of the profile in force, which is the scope of its fields.
const PROFILE: Field = (264, 0);
const OF_PROFILE: [u32; 4] = [281, 282, 283, 284];
const OF_ADMINISTRATOR: [Field; 4] = [(285, 0), (286, 0), (287, 0), (288, 0)];
/// Rows whose replacement is not in force, since driver 595: after errors that were mended, and after others.
const INACTIVE: [Field; 2] = [(301, 0), (302, 0)];
/// In KiB, since the driver was loaded; so with the next.
const SENT: Field = (138, ALL);
const RECEIVED: Field = (139, ALL);

/// What each field says.
fn values<const N: usize>(device: &Device<'static>, fields: [Field; N]) -> Result<[Reading<u64>; N], NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceGetFieldValues.as_ref())?;
    let mut values = fields.map(|(field, scope)| {
        // SAFETY: the structure is plain numbers, for all of which zero is a value.
        let mut value: nvmlFieldValue_t = unsafe { mem::zeroed() };
        (value.fieldId, value.scopeId) = (field, scope);
        value
    });
    let count = i32::try_from(N).map_err(|_| NvmlError::InvalidArg)?;
    // SAFETY: there are so many of the structures that this function fills.
    nvml_try(unsafe { function(handle(device), count, values.as_mut_ptr()) })?;
    Ok(values.map(|value| number(&value)))
}

fn number(value: &nvmlFieldValue_t) -> Reading<u64> {
    nvml_try(value.nvmlReturn).map_err(|error| match errors::missing(&error) {
        // A field that this driver does not know is an invalid argument.
        Missing::Failed if matches!(error, NvmlError::InvalidArg) => Missing::Unsupported,
        why => why,
    })?;
    let it = &value.value;
    if value.valueType == 0 {
        // SAFETY: NVML says that it wrote this member.
        let double = unsafe { it.dVal };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in range")]
        return if (0.0..1e15).contains(&double) { Ok(double.round() as u64) } else { Err(Missing::Failed) };
    }
    // SAFETY: NVML says which member it wrote, and every bit pattern is a number.
    match unsafe { (value.valueType, it.uiVal, it.ullVal, it.sllVal, it.siVal, it.usVal) } {
        (1, it, ..) => Ok(it.into()),
        (2 | 3, _, it, ..) => Ok(it),
        (4, _, _, it, ..) => u64::try_from(it).map_err(|_| Missing::Failed),
        (5, .., it, _) => u64::try_from(it).map_err(|_| Missing::Failed),
        (6, .., it) => Ok(it.into()),
        _ => Err(Missing::Failed),
    }
}

impl GpuCalls {
    fn field_values<const N: usize>(&mut self, fields: [Field; N]) -> [Reading<u64>; N] {
        self.ask("nvmlDeviceGetFieldValues", |gpu| values(gpu, fields)).unwrap_or_else(|why| [Err(why); N])
    }

    /// Its memory errors, whether it waits to be mended, and what the driver says should be done: one call.
    pub(super) fn read_damage(&mut self, health: &mut GpuHealth) {
        let fields = [CORRECTED, UNCORRECTED, RETIRED_PENDING, REMAPPED_PENDING, REMAPPED_FAILED, RECOVERY_ACTION];
        let [corrected, uncorrected, retired, pending, failed, action] = self.field_values(fields);
        (health.ecc_corrected, health.ecc_uncorrected) = (corrected, uncorrected);
        health.retired_pending = retired.map(|it| it != 0);
        health.remap_pending = pending.map(|it| it != 0);
        health.remap_failed = failed.map(|it| it != 0);
        health.recovery_action = action.and_then(small);
    }

    /// How many NVLink connections there are, and how many work.
    pub(super) fn read_links(&mut self, it: &mut GpuDetail) {
        let [links] = self.field_values([LINKS]);
        it.nvlinks = links.and_then(small).and_then(|it| if it <= MOST_LINKS { Ok(it) } else { Err(Missing::Failed) });
        (it.nvlinks_up, it.nvlink_speed) = (Err(Missing::Unsupported), Err(Missing::Unsupported));
        let Ok(count @ 1..) = it.nvlinks else { return };
        let mut up = Ok(0);
        for link in 0..count {
            let [state, speed] = self.field_values([(LINK_STATE, link), (LINK_SPEED, link)]);
            match (state, speed) {
                (Ok(state), speed) if UP.contains(&state) => {
                    up = up.map(|it| it + 1);
                    // One that sleeps may have none.
                    if let Ok(speed @ 1..) = speed {
                        it.nvlink_speed = Ok(Bytes(speed.saturating_mul(1_000_000)));
                    }
                }
                (Ok(_), _) => {}
                (Err(why), _) => up = Err(why),
            }
        }
        it.nvlinks_up = up;
    }

    /// What the module of GPU and processor draws and may draw, on boards where they are one.
    pub(super) fn read_module_power(&mut self, it: &mut GpuDetail) {
        let watts = self.field_values(MODULE_POWER.map(|field| (field, MODULE)));
        [
            it.module_power_average,
            it.module_power_instant,
            it.module_power_limit_min,
            it.module_power_limit_max,
            it.module_power_limit_default,
            it.module_power_limit_enforced,
            it.module_power_limit,
        ] = watts.map(|it| it.and_then(small).and_then(milliwatts));
    }

    /// What a GPU as a whole says in fields.
    pub(super) fn read_fields(&mut self, it: &mut GpuDetail, driver: &str) {
        let of_gpu = DETAILS.map(|field| (field, 0));
        let [single, double, power_cap, sync_boost, memory, average, instant, action] = self.field_values(of_gpu);
        (it.retired_single, it.retired_double) = (single, double);
        (it.held_power_cap, it.held_sync_boost) = (power_cap, sync_boost);
        // 0 is what boards without a sensor say.
        it.memory_temperature = match memory.and_then(small) {
            Ok(0) => Err(Missing::Unsupported),
            temperature => temperature.and_then(celsius),
        };
        it.power_average = average.and_then(small).and_then(milliwatts);
        it.power_instant = instant.and_then(small).and_then(milliwatts);
        it.recovery_action = action.and_then(small);
        let unknown = [Err(Missing::Unsupported); 3];
        [it.held_thermal, it.held_hardware_thermal, it.held_power_brake] =
            held(driver).map_or(unknown, |fields| self.field_values(fields));
    }

    /// What only new drivers know of.
    pub(super) fn read_rare(&mut self, it: &mut GpuDetail, driver: &str) {
        let major = driver.split('.').next().and_then(|it| it.parse::<u32>().ok());
        let has = |since| major.is_some_and(|it| it >= since);
        let inactive = if has(595) { self.field_values(INACTIVE) } else { [Err(Missing::Unsupported); 2] };
        [it.remapped_correctable_inactive, it.remapped_uncorrectable_inactive] = inactive;
        (it.edpp, it.power_smoothing) = (Err(Missing::Unsupported), Err(Missing::Unsupported));
        if !has(590) {
            return;
        }
        let [edpp] = self.field_values([EDPP]);
        // Nobody says in which unit it comes; as percent, it can be no more.
        it.edpp = edpp.and_then(small).and_then(|it| if it <= 1000 { Ok(it) } else { Err(Missing::Failed) });
        let board = self.field_values(SMOOTHING);
        if board.iter().all(Result::is_err) {
            it.power_smoothing = board[0].map(|_| Vec::new());
            return;
        }
        let profile = self.field_values([PROFILE])[0].and_then(small);
        let profile = profile.map(|profile| self.field_values(OF_PROFILE.map(|field| (field, profile))));
        let profile = profile.unwrap_or_else(|why| [Err(why); OF_PROFILE.len()]);
        let set = self.field_values(OF_ADMINISTRATOR);
        let or_not_set = |it: Reading<u64>| match it {
            Err(Missing::Unsupported) => Ok(None),
            other => other.map(Some),
        };
        it.power_smoothing = board.into_iter().chain(profile).chain(set).map(or_not_set).collect();
    }

    /// What went over all NVLink connections so far: sent and received.
    pub(super) fn transferred(&mut self) -> [Reading<Bytes>; 2] {
        self.field_values([SENT, RECEIVED]).map(|it| it.map(Bytes::from_kib))
    }
}

/// The fields that say for how long heat, by software and by hardware, and the power brake held the clocks.
///
/// nvml.h has them as 251 to 253 in CUDA 12.9 and 13.0, and as 269 to 271 since 13.0 update 1, where 251 to 253 are again
/// what they were in 12.8: settings of power smoothing. nvml-wrapper draws the line at 580.82. What is between 580.65, which
/// came with 13.0, and that is not known.
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
        let first = |driver| held(driver).map(|it| it[0].0);
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
