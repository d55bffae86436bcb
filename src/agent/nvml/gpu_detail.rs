//! Reads the detail of a GPU: the fixed part once, and the state in each pass that needs it.

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::{
    nvmlClockType_enum_NVML_CLOCK_GRAPHICS as GRAPHICS_CLOCK,
    nvmlClockType_enum_NVML_CLOCK_MEM as MEMORY_CLOCK,
    nvmlClockType_enum_NVML_CLOCK_SM as SM_CLOCK,
    nvmlClockType_enum_NVML_CLOCK_VIDEO as VIDEO_CLOCK, nvmlDeviceAddressingMode_v1_t,
    nvmlDramEncryptionInfo_v1_t, nvmlEccSramErrorStatus_v1_t, nvmlMarginTemperature_v1_t,
    nvmlPciInfoExt_v1_t,
};

use super::errors::DEPRECATED;
use super::gpu_calls::{GpuCalls, read, read_structure, read_text};
use super::plausible::{hertz, milliwatts, percent};
use super::raw::{handle, structure_version};
use crate::base::text::Text;
use crate::base::units::{Bytes, Celsius, Moment, Percent};
use crate::protocol::snapshot::{EccCounts, GpuDetail, Missing, Reading};

impl GpuCalls {
    /// Reads the detail that does not change while the driver runs.
    pub(super) fn fixed_detail(&mut self, bus_id: &Reading<Text>) -> GpuDetail {
        let none = || EccCounts::missing(Missing::Unsupported);
        let pci = self.read("nvmlDeviceGetPciInfo_v3", Device::pci_info);
        let class = read_structure!(self, nvmlDeviceGetPciInfoExt, nvmlPciInfoExt_v1_t, version 1);
        let capability = read!(self, nvmlDeviceGetCudaComputeCapability => [major, minor]);
        let limits = read!(self, nvmlDeviceGetPowerManagementLimitConstraints => [lowest, highest]);
        let mut detail = GpuDetail {
            serial: read_text!(self, nvmlDeviceGetSerial),
            pci_device: pci
                .as_ref()
                .map(|pci| pci.pci_device_id)
                .map_err(|why| *why),
            pci_subsystem: pci.and_then(|pci| pci.pci_sub_system_id.ok_or(Missing::Unsupported)),
            pci_class: class.map(|class| [class.baseClass, class.subClass]),
            pcie_generation_max: read!(self, nvmlDeviceGetMaxPcieLinkGeneration),
            pcie_generation_gpu_max: read!(self, nvmlDeviceGetGpuMaxPcieLinkGeneration),
            pcie_width_max: read!(self, nvmlDeviceGetMaxPcieLinkWidth),
            accounting_buffer: read!(self, nvmlDeviceGetAccountingBufferSize),
            vbios: read_text!(self, nvmlDeviceGetVbiosVersion),
            inforom_image: read_text!(self, nvmlDeviceGetInforomImageVersion),
            inforom_oem: read_text!(self, nvmlDeviceGetInforomVersion(0)),
            inforom_ecc: read_text!(self, nvmlDeviceGetInforomVersion(1)),
            inforom_power: read_text!(self, nvmlDeviceGetInforomVersion(2)),
            inforom_valid: self.read("nvmlDeviceValidateInforom", is_inforom_valid),
            compute_capability: capability.map(|[major, minor]| format!("{major}.{minor}").into()),
            clock_reasons_supported: match read!(self, nvmlDeviceGetSupportedClocksThrottleReasons)
            {
                Err(Missing::Unsupported) => read!(self, nvmlDeviceGetSupportedClocksEventReasons),
                reasons => reasons,
            },
            power_limit_default: read!(self, nvmlDeviceGetPowerManagementDefaultLimit)
                .and_then(milliwatts),
            power_limit_min: limits.and_then(|[lowest, _]| milliwatts(lowest)),
            power_limit_max: limits.and_then(|[_, highest]| milliwatts(highest)),
            graphics_clock_max: read!(self, nvmlDeviceGetMaxClockInfo(GRAPHICS_CLOCK))
                .and_then(hertz),
            sm_clock_max: read!(self, nvmlDeviceGetMaxClockInfo(SM_CLOCK)).and_then(hertz),
            memory_clock_max: read!(self, nvmlDeviceGetMaxClockInfo(MEMORY_CLOCK)).and_then(hertz),
            // Only new drivers have these; `read_rare` reads them.
            edpp: Err(Missing::Unsupported),
            power_smoothing: Err(Missing::Unsupported),
            power_smoothing_settings: Err(Missing::Unsupported),
            remapped_correctable_inactive: Err(Missing::Unsupported),
            remapped_uncorrectable_inactive: Err(Missing::Unsupported),
            ..GpuDetail::missing(Moment(0), none(), none(), none(), none(), Missing::NotYet)
        };
        self.read_place(&mut detail, bus_id);
        detail
    }

    /// Reads how the GPU finds the addresses of the host's memory: an
    /// `nvmlDeviceAddressingModeType_t`.
    pub(super) fn addressing_mode(&mut self) -> Reading<u32> {
        let mode = read_structure!(self, nvmlDeviceGetAddressingMode, nvmlDeviceAddressingMode_v1_t, version 1);
        mode.map(|mode| mode.value)
    }

    pub(super) fn read_state(&mut self, detail: &mut GpuDetail, driver: &str) {
        detail.pcie_generation = read!(self, nvmlDeviceGetCurrPcieLinkGeneration);
        detail.pcie_width = read!(self, nvmlDeviceGetCurrPcieLinkWidth);
        detail.display_attached = flag(read!(self, nvmlDeviceGetDisplayMode));
        detail.display_active = flag(read!(self, nvmlDeviceGetDisplayActive));
        detail.persistence = flag(read!(self, nvmlDeviceGetPersistenceMode));
        detail.accounting = flag(read!(self, nvmlDeviceGetAccountingMode));
        detail.compute_mode = read!(self, nvmlDeviceGetComputeMode);
        detail.clock_reasons = self.clock_reasons();
        detail.encoder = engine(read!(self, nvmlDeviceGetEncoderUtilization => [share, period]));
        detail.decoder = engine(read!(self, nvmlDeviceGetDecoderUtilization => [share, period]));
        detail.jpeg = engine(read!(self, nvmlDeviceGetJpgUtilization => [share, period]));
        detail.ofa = engine(read!(self, nvmlDeviceGetOfaUtilization => [share, period]));
        detail.encoder_stats =
            read!(self, nvmlDeviceGetEncoderStats => [sessions, frames_per_second, latency]);
        [detail.ecc, detail.ecc_pending] =
            flags(read!(self, nvmlDeviceGetEccMode => [current, pending]));
        [_, detail.mig_pending] = flags(read!(self, nvmlDeviceGetMigMode => [current, pending]));
        [detail.gsp, detail.gsp_default] =
            flags(read!(self, nvmlDeviceGetGspFirmwareMode => [current, default]));
        detail.operation_mode = read!(self, nvmlDeviceGetGpuOperationMode => [current, pending]);
        detail.driver_model = read!(self, nvmlDeviceGetDriverModel_v2 => [current, pending]);
        [detail.dram_encryption, detail.dram_encryption_pending] =
            flags(self.read("nvmlDeviceGetDramEncryptionMode", dram_encryption));
        detail.addressing = self.addressing_mode();
        detail.c2c = flag(read!(self, nvmlDeviceGetC2cModeInfoV).map(|mode| mode.isC2cEnabled));
        let sram = read_structure!(self, nvmlDeviceGetSramEccErrorStatus, nvmlEccSramErrorStatus_v1_t, version 1);
        detail.sram_exceeded = flag(sram.map(|sram| sram.bThresholdExceeded));
        detail.sram_errors = sram.map(|sram| {
            [
                sram.volatileUncParity,
                sram.volatileUncSecDed,
                sram.aggregateUncParity,
                sram.aggregateUncSecDed,
                sram.aggregateUncBucketL2,
                sram.aggregateUncBucketSm,
                sram.aggregateUncBucketMcu,
                sram.aggregateUncBucketPcie,
                sram.aggregateUncBucketOther,
            ]
        });
        detail.corrected = self.ecc_counts("detail.ecc_corrected_volatile", 0, 0);
        detail.corrected_ever = self.ecc_counts("detail.ecc_corrected_aggregate", 0, 1);
        detail.uncorrected = self.ecc_counts("detail.ecc_uncorrected_volatile", 1, 0);
        detail.uncorrected_ever = self.ecc_counts("detail.ecc_uncorrected_aggregate", 1, 1);
        detail.retired_pending = flag(read!(self, nvmlDeviceGetRetiredPagesPendingStatus));
        let rows =
            read!(self, nvmlDeviceGetRemappedRows => [correctable, uncorrectable, pending, failed]);
        detail.remapped_correctable = rows.map(|rows| rows[0]);
        detail.remapped_uncorrectable = rows.map(|rows| rows[1]);
        detail.remapped_pending = flag(rows.map(|rows| rows[2]));
        detail.remapped_failed = flag(rows.map(|rows| rows[3]));
        let banks = read!(self, nvmlDeviceGetRowRemapperHistogram);
        detail.remapped_banks =
            banks.map(|banks| [banks.max, banks.high, banks.partial, banks.low, banks.none]);
        let margin = read_structure!(self, nvmlDeviceGetMarginTemperature, nvmlMarginTemperature_v1_t, version 1);
        detail.temperature_margin = margin.map(|margin| Celsius(margin.marginTemperature));
        detail.power_limit = read!(self, nvmlDeviceGetPowerManagementLimit).and_then(milliwatts);
        detail.power_draw = read!(self, nvmlDeviceGetPowerUsage).and_then(milliwatts);
        detail.power_limit_enforced =
            read!(self, nvmlDeviceGetEnforcedPowerLimit).and_then(milliwatts);
        detail.graphics_clock = read!(self, nvmlDeviceGetClockInfo(GRAPHICS_CLOCK)).and_then(hertz);
        detail.video_clock = read!(self, nvmlDeviceGetClockInfo(VIDEO_CLOCK)).and_then(hertz);
        let memory = read!(self, nvmlDeviceGetConfComputeProtectedMemoryUsage);
        detail.protected_memory = memory.map(|memory| [Bytes(memory.total), Bytes(memory.used)]);
        let bar1 = read!(self, nvmlDeviceGetBAR1MemoryInfo);
        detail.bar1_used = bar1.map(|bar1| Bytes(bar1.bar1Used));
        detail.bar1_total = bar1.map(|bar1| Bytes(bar1.bar1Total));
        detail.energy = read!(self, nvmlDeviceGetTotalEnergyConsumption);
        detail.pcie_replays = read!(self, nvmlDeviceGetPcieReplayCounter).map(u64::from);
        let mut clock = |(clock, is_default)| {
            let function = if is_default {
                "nvmlDeviceGetDefaultApplicationsClock"
            } else {
                "nvmlDeviceGetApplicationsClock"
            };
            self.read_with(function, &[clock], |gpu| {
                application_clock(gpu, clock, is_default)
            })
        };
        let clocks = [
            (GRAPHICS_CLOCK, false),
            (MEMORY_CLOCK, false),
            (GRAPHICS_CLOCK, true),
            (MEMORY_CLOCK, true),
        ];
        detail.application_clocks = clocks.into_iter().map(&mut clock).collect();
        self.read_links(detail);
        self.read_fabric_and_fans(detail);
        self.read_module_power(detail);
        self.read_fields(detail, driver);
        self.read_rare(detail, driver);
    }

    /// Reads why the clocks are reduced, as NVML's bit mask. Drivers before 535 have only the first
    /// function, which newer drivers deprecate.
    pub(super) fn clock_reasons(&mut self) -> Reading<u64> {
        match read!(self, nvmlDeviceGetCurrentClocksThrottleReasons) {
            Err(Missing::Unsupported) => read!(self, nvmlDeviceGetCurrentClocksEventReasons),
            reasons => reasons,
        }
    }

    /// Reads the memory errors of one kind (0 corrected, 1 uncorrected) and counter (0 volatile, 1
    /// aggregate), if the readings at `path` are wanted.
    fn ecc_counts(&mut self, path: &str, kind: u32, counter: u32) -> EccCounts {
        if !self.only.has(path) {
            return EccCounts::missing(Missing::Unsupported);
        }
        // The numbers are those of `nvmlMemoryLocation_t`.
        let mut count_at = |location: u32| {
            read!(
                self,
                nvmlDeviceGetMemoryErrorCounter(kind, counter, location)
            )
        };
        EccCounts {
            dram: count_at(2),
            register_file: count_at(3),
            l1_cache: count_at(0),
            l2_cache: count_at(1),
            texture_memory: count_at(4),
            cbu: count_at(6),
            sram: count_at(7),
            total: read!(self, nvmlDeviceGetTotalEccErrors(kind, counter)),
        }
    }
}

fn flag(reading: Reading<u32>) -> Reading<bool> {
    reading.map(|reading| reading != 0)
}

fn flags(readings: Reading<[u32; 2]>) -> [Reading<bool>; 2] {
    [
        flag(readings.map(|[first, _]| first)),
        flag(readings.map(|[_, second]| second)),
    ]
}

/// Returns the utilization of an engine. NVML also gives the length of the sample period, which is
/// not needed.
pub(super) fn engine(reading: Reading<[u32; 2]>) -> Reading<Percent> {
    reading.and_then(|[share, _]| percent(share))
}

fn is_inforom_valid(gpu: &Device<'static>) -> Result<bool, NvmlError> {
    let function = nvml_sym(gpu.nvml().lib().nvmlDeviceValidateInforom.as_ref())?;
    // SAFETY: the function takes only a handle.
    match nvml_try(unsafe { function(handle(gpu)) }) {
        Err(NvmlError::CorruptedInfoROM) => Ok(false),
        other => other.map(|()| true),
    }
}

/// Returns an application clock or its default, in MHz. `None` when the driver reports the function
/// as deprecated.
fn application_clock(
    gpu: &Device<'static>,
    clock: u32,
    is_default: bool,
) -> Result<Option<u32>, NvmlError> {
    let library = gpu.nvml().lib();
    let default = library.nvmlDeviceGetDefaultApplicationsClock.as_ref();
    let function = nvml_sym(if is_default {
        default
    } else {
        library.nvmlDeviceGetApplicationsClock.as_ref()
    })?;
    let mut megahertz = 0;
    // SAFETY: NVML writes one number to `megahertz`.
    match nvml_try(unsafe { function(handle(gpu), clock, &raw mut megahertz) }) {
        Err(NvmlError::UnexpectedVariant(DEPRECATED)) => Ok(None),
        other => other.map(|()| Some(megahertz)),
    }
}

fn dram_encryption(gpu: &Device<'static>) -> Result<[u32; 2], NvmlError> {
    let function = nvml_sym(gpu.nvml().lib().nvmlDeviceGetDramEncryptionMode.as_ref())?;
    let version = structure_version::<nvmlDramEncryptionInfo_v1_t>(1);
    let mut modes = [nvmlDramEncryptionInfo_v1_t {
        version,
        encryptionState: 0,
    }; 2];
    let [current, pending] = &mut modes;
    // SAFETY: both structures have the size and version that their first field declares.
    nvml_try(unsafe {
        function(
            handle(gpu),
            std::ptr::from_mut(current),
            std::ptr::from_mut(pending),
        )
    })?;
    Ok(modes.map(|mode| mode.encryptionState))
}
