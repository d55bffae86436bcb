//! Calls that return plain numbers and names. nvml-wrapper has some of them only.
//!
//! A function that the library lacks is an error, never a panic.

use std::ffi::c_char;

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::{
    nvmlC2cModeInfo_v1_t, nvmlDeviceAddressingMode_v1_t, nvmlDramEncryptionInfo_v1_t, nvmlEccSramErrorStatus_v1_t,
    nvmlMarginTemperature_v1_t, nvmlMemory_t, nvmlPciInfoExt_v1_t, nvmlRowRemapperHistogramValues_t,
    nvmlTemperature_v1_t, nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU as CORE,
};

use super::errors::DEPRECATED;
use super::raw::handle;
use crate::base::text::Text;

/// Functions that write one number.
macro_rules! one {
    ($($name:ident = $function:ident: $type:ty;)+) => {
        $(
            #[doc = concat!("`", stringify!($function), "`.")]
            pub(super) fn $name(device: &Device<'static>) -> Result<$type, NvmlError> {
                let function = nvml_sym(device.nvml().lib().$function.as_ref())?;
                let mut value: $type = 0;
                // SAFETY: NVML writes one number there.
                nvml_try(unsafe { function(handle(device), &raw mut value) })?;
                Ok(value)
            }
        )+
    };
}

/// Functions that write two numbers.
macro_rules! two {
    ($($name:ident = $function:ident;)+) => {
        $(
            #[doc = concat!("`", stringify!($function), "`.")]
            pub(super) fn $name(device: &Device<'static>) -> Result<[u32; 2], NvmlError> {
                let function = nvml_sym(device.nvml().lib().$function.as_ref())?;
                let mut values = [0_u32; 2];
                let [first, second] = &mut values;
                // SAFETY: NVML writes one number to each.
                nvml_try(unsafe { function(handle(device), std::ptr::from_mut(first), std::ptr::from_mut(second)) })?;
                Ok(values)
            }
        )+
    };
}

/// Functions that write a text of at most 96 bytes.
macro_rules! text {
    ($($name:ident = $function:ident;)+) => {
        $(
            #[doc = concat!("`", stringify!($function), "`, whatever bytes it has.")]
            pub(super) fn $name(device: &Device<'static>) -> Result<Text, NvmlError> {
                let function = nvml_sym(device.nvml().lib().$function.as_ref())?;
                let mut bytes = [0_u8; 96];
                // SAFETY: NVML writes at most the length given.
                nvml_try(unsafe { function(handle(device), bytes.as_mut_ptr().cast::<c_char>(), 96) })?;
                Ok(until_nul(&bytes))
            }
        )+
    };
}

one! {
    pcie_generation = nvmlDeviceGetCurrPcieLinkGeneration: u32;
    pcie_generation_max = nvmlDeviceGetMaxPcieLinkGeneration: u32;
    pcie_generation_gpu_max = nvmlDeviceGetGpuMaxPcieLinkGeneration: u32;
    pcie_width = nvmlDeviceGetCurrPcieLinkWidth: u32;
    pcie_width_max = nvmlDeviceGetMaxPcieLinkWidth: u32;
    display_mode = nvmlDeviceGetDisplayMode: u32;
    display_active = nvmlDeviceGetDisplayActive: u32;
    persistence = nvmlDeviceGetPersistenceMode: u32;
    accounting = nvmlDeviceGetAccountingMode: u32;
    accounting_buffer = nvmlDeviceGetAccountingBufferSize: u32;
    compute_mode = nvmlDeviceGetComputeMode: u32;
    retired_pending = nvmlDeviceGetRetiredPagesPendingStatus: u32;
    power_draw = nvmlDeviceGetPowerUsage: u32;
    power_limit_enforced = nvmlDeviceGetEnforcedPowerLimit: u32;
    power_limit = nvmlDeviceGetPowerManagementLimit: u32;
    power_limit_default = nvmlDeviceGetPowerManagementDefaultLimit: u32;
    virtualization = nvmlDeviceGetVirtualizationMode: u32;
    throttle_reasons = nvmlDeviceGetCurrentClocksThrottleReasons: u64;
    event_reasons = nvmlDeviceGetCurrentClocksEventReasons: u64;
    throttle_reasons_supported = nvmlDeviceGetSupportedClocksThrottleReasons: u64;
    event_reasons_supported = nvmlDeviceGetSupportedClocksEventReasons: u64;
}

two! {
    encoder = nvmlDeviceGetEncoderUtilization;
    decoder = nvmlDeviceGetDecoderUtilization;
    jpeg = nvmlDeviceGetJpgUtilization;
    ofa = nvmlDeviceGetOfaUtilization;
    ecc_mode = nvmlDeviceGetEccMode;
    mig_mode = nvmlDeviceGetMigMode;
    gsp_mode = nvmlDeviceGetGspFirmwareMode;
    operation_mode = nvmlDeviceGetGpuOperationMode;
    driver_model = nvmlDeviceGetDriverModel_v2;
    power_limits = nvmlDeviceGetPowerManagementLimitConstraints;
}

text! {
    serial = nvmlDeviceGetSerial;
    vbios = nvmlDeviceGetVbiosVersion;
    inforom_image = nvmlDeviceGetInforomImageVersion;
}

/// The name of a function, and a call of it.
pub(super) type NamedCall<T> = (&'static str, fn(&Device<'static>) -> Result<T, NvmlError>);

/// NVML's arguments for the clocks that are read.
pub(super) const SM_CLOCK: u32 = 1;
pub(super) const MEMORY_CLOCK: u32 = 2;

/// The reasons that hold the clocks, as NVML's bits: by the older function and by the newer.
pub(super) const CLOCK_REASONS: [NamedCall<u64>; 2] = [
    ("nvmlDeviceGetCurrentClocksThrottleReasons", throttle_reasons),
    ("nvmlDeviceGetCurrentClocksEventReasons", event_reasons),
];
/// The reasons that can hold the clocks.
pub(super) const CLOCK_REASONS_SUPPORTED: [NamedCall<u64>; 2] = [
    ("nvmlDeviceGetSupportedClocksThrottleReasons", throttle_reasons_supported),
    ("nvmlDeviceGetSupportedClocksEventReasons", event_reasons_supported),
];
/// The temperature of the core.
pub(super) const TEMPERATURE: [NamedCall<u32>; 2] =
    [("nvmlDeviceGetTemperature", temperature), ("nvmlDeviceGetTemperatureV", temperature_v)];

/// `nvmlDeviceGetTemperature` of the core.
fn temperature(device: &Device<'static>) -> Result<u32, NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceGetTemperature.as_ref())?;
    let mut celsius = 0;
    // SAFETY: NVML writes one number there.
    nvml_try(unsafe { function(handle(device), CORE, &raw mut celsius) })?;
    Ok(celsius)
}

/// `nvmlDeviceGetTemperatureV` of the core.
fn temperature_v(device: &Device<'static>) -> Result<u32, NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceGetTemperatureV.as_ref())?;
    let mut reading =
        nvmlTemperature_v1_t { version: version::<nvmlTemperature_v1_t>(), sensorType: CORE, temperature: 0 };
    // SAFETY: `reading` is the structure that this function fills, of the version that it says.
    nvml_try(unsafe { function(handle(device), &raw mut reading) })?;
    u32::try_from(reading.temperature).map_err(|_| NvmlError::NotSupported)
}

/// `nvmlGetVgpuDriverCapabilities`: whether the driver can do that for virtual machines.
pub(super) fn vgpu_of_driver(device: &Device<'static>, capability: u32) -> Result<bool, NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlGetVgpuDriverCapabilities.as_ref())?;
    let mut has = 0;
    // SAFETY: NVML writes one number there.
    nvml_try(unsafe { function(capability, &raw mut has) })?;
    Ok(has != 0)
}

/// `nvmlDeviceGetVgpuCapabilities`: whether the GPU can.
pub(super) fn vgpu(device: &Device<'static>, capability: u32) -> Result<bool, NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceGetVgpuCapabilities.as_ref())?;
    let mut has = 0;
    // SAFETY: NVML writes one number there.
    nvml_try(unsafe { function(handle(device), capability, &raw mut has) })?;
    Ok(has != 0)
}

/// `nvmlDeviceGetFanSpeed_v2` of the first fan. A board without one may say that there is no such fan.
pub(super) fn fan(device: &Device<'static>) -> Result<u32, NvmlError> {
    device.fan_speed(0).map_err(|error| match error {
        NvmlError::InvalidArg => NvmlError::NotSupported,
        error => error,
    })
}

fn until_nul(bytes: &[u8]) -> Text {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    Text::new(&bytes[..end])
}

/// `nvmlDeviceGetInforomVersion` of a part: 0 OEM, 1 ECC, 2 power.
pub(super) fn inforom(device: &Device<'static>, part: u32) -> Result<Text, NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceGetInforomVersion.as_ref())?;
    let mut bytes = [0_u8; 96];
    // SAFETY: NVML writes at most the length given.
    nvml_try(unsafe { function(handle(device), part, bytes.as_mut_ptr().cast::<c_char>(), 96) })?;
    Ok(until_nul(&bytes))
}

/// `nvmlDeviceValidateInforom`: whether the checksum is right.
pub(super) fn inforom_valid(device: &Device<'static>) -> Result<bool, NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceValidateInforom.as_ref())?;
    // SAFETY: it takes a handle and no more.
    match nvml_try(unsafe { function(handle(device)) }) {
        Ok(()) => Ok(true),
        Err(NvmlError::CorruptedInfoROM) => Ok(false),
        Err(error) => Err(error),
    }
}

/// `nvmlDeviceGetCudaComputeCapability`: major and minor.
pub(super) fn compute_capability(device: &Device<'static>) -> Result<[i32; 2], NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceGetCudaComputeCapability.as_ref())?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: NVML writes one number to each.
    nvml_try(unsafe { function(handle(device), &raw mut major, &raw mut minor) })?;
    Ok([major, minor])
}

/// `nvmlDeviceGetApplicationsClock` and its default, of the graphics engine and of the memory; nothing where the driver calls
/// that deprecated.
pub(super) fn application_clock(
    device: &Device<'static>,
    memory: bool,
    default: bool,
) -> Result<Option<u32>, NvmlError> {
    let library = device.nvml().lib();
    let by_default = library.nvmlDeviceGetDefaultApplicationsClock.as_ref();
    let function = nvml_sym(if default { by_default } else { library.nvmlDeviceGetApplicationsClock.as_ref() })?;
    let mut megahertz = 0;
    let domain = if memory { 2 } else { 0 };
    // SAFETY: NVML writes one number there.
    match nvml_try(unsafe { function(handle(device), domain, &raw mut megahertz) }) {
        Err(NvmlError::UnexpectedVariant(DEPRECATED)) => Ok(None),
        other => other.map(|()| Some(megahertz)),
    }
}

/// `nvmlDeviceGetEncoderStats`: sessions, frames per second, latency.
pub(super) fn encoder_stats(device: &Device<'static>) -> Result<[u32; 3], NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceGetEncoderStats.as_ref())?;
    let (mut sessions, mut fps, mut latency) = (0, 0, 0);
    // SAFETY: NVML writes one number to each.
    nvml_try(unsafe { function(handle(device), &raw mut sessions, &raw mut fps, &raw mut latency) })?;
    Ok([sessions, fps, latency])
}

/// `nvmlDeviceGetMemoryErrorCounter`; a place of 8 and more is `nvmlDeviceGetTotalEccErrors`.
pub(super) fn ecc_errors(device: &Device<'static>, kind: u32, counter: u32, place: u32) -> Result<u64, NvmlError> {
    let mut count = 0;
    let library = device.nvml().lib();
    if place >= 8 {
        let function = nvml_sym(library.nvmlDeviceGetTotalEccErrors.as_ref())?;
        // SAFETY: NVML writes one number there.
        nvml_try(unsafe { function(handle(device), kind, counter, &raw mut count) })?;
    } else {
        let function = nvml_sym(library.nvmlDeviceGetMemoryErrorCounter.as_ref())?;
        // SAFETY: NVML writes one number there.
        nvml_try(unsafe { function(handle(device), kind, counter, place, &raw mut count) })?;
    }
    Ok(count)
}

/// `nvmlDeviceGetRemappedRows`: correctable, uncorrectable, pending, failed.
pub(super) fn remapped_rows(device: &Device<'static>) -> Result<[u32; 4], NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceGetRemappedRows.as_ref())?;
    let (mut correctable, mut uncorrectable, mut pending, mut failed) = (0, 0, 0, 0);
    // SAFETY: NVML writes one number to each.
    let result = unsafe {
        function(handle(device), &raw mut correctable, &raw mut uncorrectable, &raw mut pending, &raw mut failed)
    };
    nvml_try(result)?;
    Ok([correctable, uncorrectable, pending, failed])
}

/// `nvmlDeviceGetRowRemapperHistogram`: banks with all, most, some, few and none of their spare rows left.
pub(super) fn remapped_banks(device: &Device<'static>) -> Result<[u32; 5], NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceGetRowRemapperHistogram.as_ref())?;
    let mut banks = nvmlRowRemapperHistogramValues_t { max: 0, high: 0, partial: 0, low: 0, none: 0 };
    // SAFETY: `banks` is the structure that this function fills.
    nvml_try(unsafe { function(handle(device), &raw mut banks) })?;
    Ok([banks.max, banks.high, banks.partial, banks.low, banks.none])
}

/// `nvmlDeviceGetMarginTemperature`.
pub(super) fn temperature_margin(device: &Device<'static>) -> Result<i32, NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceGetMarginTemperature.as_ref())?;
    let mut margin =
        nvmlMarginTemperature_v1_t { version: version::<nvmlMarginTemperature_v1_t>(), marginTemperature: 0 };
    // SAFETY: `margin` is the structure that this function fills, of the version that it says.
    nvml_try(unsafe { function(handle(device), &raw mut margin) })?;
    Ok(margin.marginTemperature)
}

/// `nvmlDeviceGetAddressingMode`: 0 none, 1 HMM, 2 ATS.
pub(super) fn addressing(device: &Device<'static>) -> Result<u32, NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceGetAddressingMode.as_ref())?;
    let mut mode = nvmlDeviceAddressingMode_v1_t { version: version::<nvmlDeviceAddressingMode_v1_t>(), value: 0 };
    // SAFETY: `mode` is the structure that this function fills, of the version that it says.
    nvml_try(unsafe { function(handle(device), &raw mut mode) })?;
    Ok(mode.value)
}

/// `nvmlDeviceGetC2cModeInfoV`.
pub(super) fn c2c(device: &Device<'static>) -> Result<u32, NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceGetC2cModeInfoV.as_ref())?;
    let mut mode = nvmlC2cModeInfo_v1_t { isC2cEnabled: 0 };
    // SAFETY: `mode` is the structure that this function fills.
    nvml_try(unsafe { function(handle(device), &raw mut mode) })?;
    Ok(mode.isC2cEnabled)
}

/// `nvmlDeviceGetDramEncryptionMode`: now, and after a reboot.
pub(super) fn dram_encryption(device: &Device<'static>) -> Result<[u32; 2], NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceGetDramEncryptionMode.as_ref())?;
    let empty = nvmlDramEncryptionInfo_v1_t { version: version::<nvmlDramEncryptionInfo_v1_t>(), encryptionState: 0 };
    let (mut now, mut then) = (empty, empty);
    // SAFETY: both are the structure that this function fills, of the version that they say.
    nvml_try(unsafe { function(handle(device), &raw mut now, &raw mut then) })?;
    Ok([now.encryptionState, then.encryptionState])
}

/// `nvmlDeviceGetSramEccErrorStatus`: uncorrected errors, in the order of
/// [`GpuDetail::sram_errors`](crate::protocol::snapshot::GpuDetail), and whether they are too many.
pub(super) fn sram_errors(device: &Device<'static>) -> Result<([u64; 9], bool), NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceGetSramEccErrorStatus.as_ref())?;
    let mut it = nvmlEccSramErrorStatus_v1_t {
        version: version::<nvmlEccSramErrorStatus_v1_t>(),
        aggregateUncParity: 0,
        aggregateUncSecDed: 0,
        aggregateCor: 0,
        volatileUncParity: 0,
        volatileUncSecDed: 0,
        volatileCor: 0,
        aggregateUncBucketL2: 0,
        aggregateUncBucketSm: 0,
        aggregateUncBucketPcie: 0,
        aggregateUncBucketMcu: 0,
        aggregateUncBucketOther: 0,
        bThresholdExceeded: 0,
    };
    // SAFETY: it is the structure that this function fills, of the version that it says.
    nvml_try(unsafe { function(handle(device), &raw mut it) })?;
    let counts = [
        it.volatileUncParity,
        it.volatileUncSecDed,
        it.aggregateUncParity,
        it.aggregateUncSecDed,
        it.aggregateUncBucketL2,
        it.aggregateUncBucketSm,
        it.aggregateUncBucketMcu,
        it.aggregateUncBucketPcie,
        it.aggregateUncBucketOther,
    ];
    Ok((counts, it.bThresholdExceeded != 0))
}

/// `nvmlDeviceGetPciInfoExt`: base class and subclass.
pub(super) fn pci_class(device: &Device<'static>) -> Result<[u32; 2], NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceGetPciInfoExt.as_ref())?;
    let mut info = nvmlPciInfoExt_v1_t {
        version: version::<nvmlPciInfoExt_v1_t>(),
        domain: 0,
        bus: 0,
        device: 0,
        pciDeviceId: 0,
        pciSubSystemId: 0,
        baseClass: 0,
        subClass: 0,
        busId: [0; 32],
    };
    // SAFETY: `info` is the structure that this function fills, of the version that it says.
    nvml_try(unsafe { function(handle(device), &raw mut info) })?;
    Ok([info.baseClass, info.subClass])
}

/// `nvmlDeviceGetConfComputeProtectedMemoryUsage`: all, and in use.
pub(super) fn protected_memory(device: &Device<'static>) -> Result<[u64; 2], NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceGetConfComputeProtectedMemoryUsage.as_ref())?;
    let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
    // SAFETY: `memory` is the structure that this function fills.
    nvml_try(unsafe { function(handle(device), &raw mut memory) })?;
    Ok([memory.total, memory.used])
}

/// The first field that NVML expects in such a structure: its size, and its first version.
fn version<T>() -> u32 {
    u32::try_from(size_of::<T>()).map_or(0, |size| size | 1 << 24)
}
