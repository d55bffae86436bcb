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
use super::gpu_calls::{GpuCalls, read, read_structure, read_text, take};
use super::plausible::{hertz, milliwatts, percent};
use super::raw::{handle, structure_version};
use crate::base::units::{Bytes, Celsius, Moment, Percent};
use crate::protocol::snapshot::{EccCounts, GpuDetail, Missing, Reading};

impl GpuCalls {
    /// Reads the detail that does not change while the driver runs.
    pub(super) fn fixed_detail(&mut self) -> GpuDetail {
        let none = || EccCounts::missing(Missing::NotYet);
        let mut fixed =
            GpuDetail::missing(Moment(0), none(), none(), none(), none(), Missing::NotYet);
        let detail = &mut fixed;
        take! { self, detail:
            serial = read_text!(self, nvmlDeviceGetSerial);
            (pci_device, pci_subsystem) = {
                let pci = self.read("nvmlDeviceGetPciInfo_v3", Device::pci_info);
                let pci = pci.map(|pci| (pci.pci_device_id, pci.pci_sub_system_id));
                let subsystem = pci.and_then(|(_, subsystem)| subsystem.ok_or(Missing::Unsupported));
                (pci.map(|(device, _)| device), subsystem)
            };
            pci_class =
                read_structure!(self, nvmlDeviceGetPciInfoExt, nvmlPciInfoExt_v1_t, version 1)
                    .map(|class| [class.baseClass, class.subClass]);
            pcie_generation_max = read!(self, nvmlDeviceGetMaxPcieLinkGeneration);
            pcie_generation_gpu_max = read!(self, nvmlDeviceGetGpuMaxPcieLinkGeneration);
            pcie_width_max = read!(self, nvmlDeviceGetMaxPcieLinkWidth);
            accounting_buffer = read!(self, nvmlDeviceGetAccountingBufferSize);
            vbios = read_text!(self, nvmlDeviceGetVbiosVersion);
            inforom_image = read_text!(self, nvmlDeviceGetInforomImageVersion);
            inforom_oem = read_text!(self, nvmlDeviceGetInforomVersion(0));
            inforom_ecc = read_text!(self, nvmlDeviceGetInforomVersion(1));
            inforom_power = read_text!(self, nvmlDeviceGetInforomVersion(2));
            inforom_valid = self.read("nvmlDeviceValidateInforom", is_inforom_valid);
            compute_capability = read!(self, nvmlDeviceGetCudaComputeCapability => [major, minor])
                .map(|[major, minor]| format!("{major}.{minor}").into());
            clock_reasons_supported = match read!(self, nvmlDeviceGetSupportedClocksThrottleReasons)
            {
                Err(Missing::Unsupported) => read!(self, nvmlDeviceGetSupportedClocksEventReasons),
                reasons => reasons,
            };
            power_limit_default =
                read!(self, nvmlDeviceGetPowerManagementDefaultLimit).and_then(milliwatts);
            (power_limit_min, power_limit_max) = {
                let limits =
                    read!(self, nvmlDeviceGetPowerManagementLimitConstraints => [lowest, highest]);
                (
                    limits.and_then(|[lowest, _]| milliwatts(lowest)),
                    limits.and_then(|[_, highest]| milliwatts(highest)),
                )
            };
            graphics_clock_max =
                read!(self, nvmlDeviceGetMaxClockInfo(GRAPHICS_CLOCK)).and_then(hertz);
            sm_clock_max = read!(self, nvmlDeviceGetMaxClockInfo(SM_CLOCK)).and_then(hertz);
            memory_clock_max = read!(self, nvmlDeviceGetMaxClockInfo(MEMORY_CLOCK)).and_then(hertz);
        }
        self.read_place(detail);
        fixed
    }

    /// Reads how the GPU finds the addresses of the host's memory: an
    /// `nvmlDeviceAddressingModeType_t`.
    pub(super) fn addressing_mode(&mut self) -> Reading<u32> {
        let mode = read_structure!(self, nvmlDeviceGetAddressingMode, nvmlDeviceAddressingMode_v1_t, version 1);
        mode.map(|mode| mode.value)
    }

    pub(super) fn read_state(&mut self, detail: &mut GpuDetail, driver: &str) {
        self.read_modes(detail);
        detail.corrected = self.ecc_counts("detail.ecc_corrected_volatile", 0, 0);
        detail.corrected_ever = self.ecc_counts("detail.ecc_corrected_aggregate", 0, 1);
        detail.uncorrected = self.ecc_counts("detail.ecc_uncorrected_volatile", 1, 0);
        detail.uncorrected_ever = self.ecc_counts("detail.ecc_uncorrected_aggregate", 1, 1);
        self.read_repairs_and_power(detail);
        self.read_fabric_and_fans(detail);
        self.read_module_power(detail);
        self.read_fields(detail, driver);
        self.read_rare(detail, driver);
    }

    /// Reads the modes of the GPU, its engines, and the counts of errors in SRAM.
    fn read_modes(&mut self, detail: &mut GpuDetail) {
        take! { self, detail:
            pcie_generation = read!(self, nvmlDeviceGetCurrPcieLinkGeneration);
            pcie_width = read!(self, nvmlDeviceGetCurrPcieLinkWidth);
            display_attached = flag(read!(self, nvmlDeviceGetDisplayMode));
            display_active = flag(read!(self, nvmlDeviceGetDisplayActive));
            persistence = flag(read!(self, nvmlDeviceGetPersistenceMode));
            power_management = flag(read!(self, nvmlDeviceGetPowerManagementMode));
            accounting = flag(read!(self, nvmlDeviceGetAccountingMode));
            compute_mode = read!(self, nvmlDeviceGetComputeMode);
            clock_reasons = self.clock_reasons();
            encoder = engine(read!(self, nvmlDeviceGetEncoderUtilization => [share, period]));
            decoder = engine(read!(self, nvmlDeviceGetDecoderUtilization => [share, period]));
            jpeg = engine(read!(self, nvmlDeviceGetJpgUtilization => [share, period]));
            ofa = engine(read!(self, nvmlDeviceGetOfaUtilization => [share, period]));
            encoder_stats =
                read!(self, nvmlDeviceGetEncoderStats => [sessions, frames_per_second, latency]);
            (ecc, ecc_pending) = flags(read!(self, nvmlDeviceGetEccMode => [current, pending]));
            mig_pending = flags(read!(self, nvmlDeviceGetMigMode => [current, pending])).1;
            (gsp, gsp_default) =
                flags(read!(self, nvmlDeviceGetGspFirmwareMode => [current, default]));
            operation_mode = read!(self, nvmlDeviceGetGpuOperationMode => [current, pending]);
            driver_model = read!(self, nvmlDeviceGetDriverModel_v2 => [current, pending]);
            (dram_encryption, dram_encryption_pending) =
                flags(self.read("nvmlDeviceGetDramEncryptionMode", dram_encryption));
            addressing = self.addressing_mode();
            c2c = flag(read!(self, nvmlDeviceGetC2cModeInfoV).map(|mode| mode.isC2cEnabled));
            (sram_exceeded, sram_errors) = {
                let sram = read_structure!(
                    self, nvmlDeviceGetSramEccErrorStatus, nvmlEccSramErrorStatus_v1_t, version 1
                );
                let errors = sram.map(|sram| {
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
                (flag(sram.map(|sram| sram.bThresholdExceeded)), errors)
            };
        }
    }

    /// Reads the repairs of memory, temperature, power and clocks, and the links to the host and to
    /// other GPUs.
    fn read_repairs_and_power(&mut self, detail: &mut GpuDetail) {
        take! { self, detail:
            retired_pending = flag(read!(self, nvmlDeviceGetRetiredPagesPendingStatus));
            (remapped_correctable, remapped_uncorrectable, remapped_pending, remapped_failed) = {
                let rows = read!(
                    self, nvmlDeviceGetRemappedRows => [correctable, uncorrectable, pending, failed]
                );
                (
                    rows.map(|rows| rows[0]),
                    rows.map(|rows| rows[1]),
                    flag(rows.map(|rows| rows[2])),
                    flag(rows.map(|rows| rows[3])),
                )
            };
            remapped_banks = read!(self, nvmlDeviceGetRowRemapperHistogram)
                .map(|banks| [banks.max, banks.high, banks.partial, banks.low, banks.none]);
            temperature_margin = read_structure!(
                self, nvmlDeviceGetMarginTemperature, nvmlMarginTemperature_v1_t, version 1
            )
            .map(|margin| Celsius(margin.marginTemperature));
            power_limit = read!(self, nvmlDeviceGetPowerManagementLimit).and_then(milliwatts);
            power_draw = read!(self, nvmlDeviceGetPowerUsage).and_then(milliwatts);
            power_limit_enforced =
                read!(self, nvmlDeviceGetEnforcedPowerLimit).and_then(milliwatts);
            graphics_clock = read!(self, nvmlDeviceGetClockInfo(GRAPHICS_CLOCK)).and_then(hertz);
            video_clock = read!(self, nvmlDeviceGetClockInfo(VIDEO_CLOCK)).and_then(hertz);
            protected_memory = read!(self, nvmlDeviceGetConfComputeProtectedMemoryUsage)
                .map(|memory| [Bytes(memory.total), Bytes(memory.used)]);
            (bar1_used, bar1_total) = {
                let bar1 = read!(self, nvmlDeviceGetBAR1MemoryInfo);
                (bar1.map(|bar1| Bytes(bar1.bar1Used)), bar1.map(|bar1| Bytes(bar1.bar1Total)))
            };
            energy = read!(self, nvmlDeviceGetTotalEnergyConsumption);
            pcie_replays = read!(self, nvmlDeviceGetPcieReplayCounter).map(u64::from);
            application_clocks = self.application_clocks();
            (nvlinks, nvlinks_up, nvlink_speed) = self.links();
        }
    }

    /// Reads the application clocks of the graphics engine and of the memory, then their defaults.
    fn application_clocks(&mut self) -> Reading<Vec<Option<u32>>> {
        let clock = |(clock, is_default)| {
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
        clocks.into_iter().map(clock).collect()
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
            return EccCounts::missing(Missing::NotAsked);
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

fn flags(readings: Reading<[u32; 2]>) -> (Reading<bool>, Reading<bool>) {
    (
        flag(readings.map(|[first, _]| first)),
        flag(readings.map(|[_, second]| second)),
    )
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
