//! All that a GPU says of itself, for those who ask: what never changes once, the rest at each pass.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::Clock;
use nvml_wrapper::error::NvmlError;

use super::calls;
use super::gpu_calls::GpuCalls;
use super::plausible::{hertz, milliwatts, percent};
use crate::base::text::Text;
use crate::base::units::{Bytes, Celsius, Moment};
use crate::protocol::snapshot::{EccCounts, GpuDetail, Missing, Reading};

/// `nvmlMemoryLocation_t`, and the sum of all.
const PLACES: [u32; 8] = [2, 3, 0, 1, 4, 6, 7, 8];

impl GpuCalls {
    /// Reads the detail that does not change while the driver runs.
    pub(super) fn fixed_detail(&mut self, bus_id: &Reading<Text>) -> GpuDetail {
        let none = || EccCounts::missing(Missing::Unsupported);
        let mut it = GpuDetail::missing(Moment(0), none(), none(), none(), none(), Missing::Unsupported);
        it.serial = self.ask("nvmlDeviceGetSerial", calls::serial);
        let pci = self.ask("nvmlDeviceGetPciInfo_v3", Device::pci_info);
        it.pci_device = pci.as_ref().map(|it| it.pci_device_id).map_err(|why| *why);
        it.pci_subsystem = pci.and_then(|it| it.pci_sub_system_id.ok_or(Missing::Unsupported));
        it.pci_class = self.ask("nvmlDeviceGetPciInfoExt", calls::pci_class);
        it.pcie_generation_max = self.ask("nvmlDeviceGetMaxPcieLinkGeneration", calls::pcie_generation_max);
        it.pcie_generation_gpu_max = self.ask("nvmlDeviceGetGpuMaxPcieLinkGeneration", calls::pcie_generation_gpu_max);
        it.pcie_width_max = self.ask("nvmlDeviceGetMaxPcieLinkWidth", calls::pcie_width_max);
        it.accounting_buffer = self.ask("nvmlDeviceGetAccountingBufferSize", calls::accounting_buffer);
        it.vbios = self.ask("nvmlDeviceGetVbiosVersion", calls::vbios);
        it.inforom_image = self.ask("nvmlDeviceGetInforomImageVersion", calls::inforom_image);
        let mut inforom = |part| self.ask_with("nvmlDeviceGetInforomVersion", part, |gpu| calls::inforom(gpu, part));
        (it.inforom_oem, it.inforom_ecc, it.inforom_power) = (inforom(0), inforom(1), inforom(2));
        it.inforom_valid = self.ask("nvmlDeviceValidateInforom", calls::inforom_valid);
        let capability = self.ask("nvmlDeviceGetCudaComputeCapability", calls::compute_capability);
        it.compute_capability = capability.map(|[major, minor]| format!("{major}.{minor}").into());
        it.clock_reasons_supported = self.renamed(calls::CLOCK_REASONS_SUPPORTED);
        let limit = self.ask("nvmlDeviceGetPowerManagementDefaultLimit", calls::power_limit_default);
        it.power_limit_default = limit.and_then(milliwatts);
        let limits = self.ask("nvmlDeviceGetPowerManagementLimitConstraints", calls::power_limits);
        it.power_limit_min = limits.and_then(|[least, _]| milliwatts(least));
        it.power_limit_max = limits.and_then(|[_, most]| milliwatts(most));
        let mut max = |domain: u32, clock: Clock| {
            self.ask_with("nvmlDeviceGetMaxClockInfo", domain, |gpu| gpu.max_clock_info(clock)).and_then(hertz)
        };
        it.graphics_clock_max = max(0, Clock::Graphics);
        it.sm_clock_max = max(1, Clock::SM);
        it.memory_clock_max = max(2, Clock::Memory);
        self.read_place(&mut it, bus_id);
        // Only for who looks: the others ask once, and do not wait.
        for rate in [&mut it.pcie_sent, &mut it.pcie_received, &mut it.nvlink_sent, &mut it.nvlink_received] {
            *rate = Err(Missing::NotYet);
        }
        for share in [&mut it.sm_active, &mut it.sm_occupancy, &mut it.tensor_active, &mut it.dram_active] {
            *share = Err(Missing::NotYet);
        }
        it.routes = Err(Missing::NotYet);
        it
    }

    /// Reads the detail that changes, in one call for each reading.
    pub(super) fn read_state(&mut self, it: &mut GpuDetail, driver: &str) {
        it.pcie_generation = self.ask("nvmlDeviceGetCurrPcieLinkGeneration", calls::pcie_generation);
        it.pcie_width = self.ask("nvmlDeviceGetCurrPcieLinkWidth", calls::pcie_width);
        it.display_attached = flag(self.ask("nvmlDeviceGetDisplayMode", calls::display_mode));
        it.display_active = flag(self.ask("nvmlDeviceGetDisplayActive", calls::display_active));
        it.persistence = flag(self.ask("nvmlDeviceGetPersistenceMode", calls::persistence));
        it.accounting = flag(self.ask("nvmlDeviceGetAccountingMode", calls::accounting));
        it.compute_mode = self.ask("nvmlDeviceGetComputeMode", calls::compute_mode);
        it.clock_reasons = self.renamed(calls::CLOCK_REASONS);
        let mut engine = |function, call: fn(&Device<'static>) -> Result<[u32; 2], NvmlError>| {
            self.ask_with(function, 0, call).and_then(|[share, _]| percent(share))
        };
        it.encoder = engine("nvmlDeviceGetEncoderUtilization", calls::encoder);
        it.decoder = engine("nvmlDeviceGetDecoderUtilization", calls::decoder);
        it.jpeg = engine("nvmlDeviceGetJpgUtilization", calls::jpeg);
        it.ofa = engine("nvmlDeviceGetOfaUtilization", calls::ofa);
        it.encoder_stats = self.ask("nvmlDeviceGetEncoderStats", calls::encoder_stats);
        let mut mode = |function, call: fn(&Device<'static>) -> Result<[u32; 2], NvmlError>| {
            let modes = self.ask_with(function, 0, call);
            (flag(modes.map(|[now, _]| now)), flag(modes.map(|[_, then]| then)))
        };
        (it.ecc, it.ecc_pending) = mode("nvmlDeviceGetEccMode", calls::ecc_mode);
        (_, it.mig_pending) = mode("nvmlDeviceGetMigMode", calls::mig_mode);
        (it.gsp, it.gsp_default) = mode("nvmlDeviceGetGspFirmwareMode", calls::gsp_mode);
        it.operation_mode = self.ask("nvmlDeviceGetGpuOperationMode", calls::operation_mode);
        it.driver_model = self.ask("nvmlDeviceGetDriverModel_v2", calls::driver_model);
        let encryption = self.ask("nvmlDeviceGetDramEncryptionMode", calls::dram_encryption);
        it.dram_encryption = flag(encryption.map(|it| it[0]));
        it.dram_encryption_pending = flag(encryption.map(|it| it[1]));
        it.addressing = self.ask("nvmlDeviceGetAddressingMode", calls::addressing);
        it.c2c = flag(self.ask("nvmlDeviceGetC2cModeInfoV", calls::c2c));
        let sram = self.ask("nvmlDeviceGetSramEccErrorStatus", calls::sram_errors);
        (it.sram_errors, it.sram_exceeded) = (sram.map(|it| it.0), sram.map(|it| it.1));
        it.corrected = self.ecc_counts(0, 0);
        it.corrected_ever = self.ecc_counts(0, 1);
        it.uncorrected = self.ecc_counts(1, 0);
        it.uncorrected_ever = self.ecc_counts(1, 1);
        it.retired_pending = flag(self.ask("nvmlDeviceGetRetiredPagesPendingStatus", calls::retired_pending));
        let rows = self.ask("nvmlDeviceGetRemappedRows", calls::remapped_rows);
        it.remapped_correctable = rows.map(|it| it[0]);
        it.remapped_uncorrectable = rows.map(|it| it[1]);
        it.remapped_pending = flag(rows.map(|it| it[2]));
        it.remapped_failed = flag(rows.map(|it| it[3]));
        it.remapped_banks = self.ask("nvmlDeviceGetRowRemapperHistogram", calls::remapped_banks);
        let margin = self.ask("nvmlDeviceGetMarginTemperature", calls::temperature_margin);
        it.temperature_margin = margin.map(Celsius);
        let limit = self.ask("nvmlDeviceGetPowerManagementLimit", calls::power_limit);
        it.power_limit = limit.and_then(milliwatts);
        let draw = self.ask("nvmlDeviceGetPowerUsage", calls::power_draw);
        it.power_draw = draw.and_then(milliwatts);
        let limit = self.ask("nvmlDeviceGetEnforcedPowerLimit", calls::power_limit_enforced);
        it.power_limit_enforced = limit.and_then(milliwatts);
        let mut now = |domain: u32, clock: Clock| {
            self.ask_with("nvmlDeviceGetClockInfo", domain, |gpu| gpu.clock_info(clock)).and_then(hertz)
        };
        (it.graphics_clock, it.video_clock) = (now(0, Clock::Graphics), now(3, Clock::Video));
        let memory = self.ask("nvmlDeviceGetConfComputeProtectedMemoryUsage", calls::protected_memory);
        it.protected_memory = memory.map(|it| it.map(Bytes));
        let bar1 = self.ask("nvmlDeviceGetBAR1MemoryInfo", Device::bar1_memory_info);
        it.bar1_used = bar1.as_ref().map(|it| Bytes(it.used)).map_err(|why| *why);
        it.bar1_total = bar1.map(|it| Bytes(it.total));
        it.energy = self.ask("nvmlDeviceGetTotalEnergyConsumption", Device::total_energy_consumption);
        it.pcie_replays = self.ask("nvmlDeviceGetPcieReplayCounter", Device::pcie_replay_counter).map(u64::from);
        it.application_clocks = [(false, false), (true, false), (false, true), (true, true)]
            .into_iter()
            .map(|(memory, default)| {
                let function =
                    if default { "nvmlDeviceGetDefaultApplicationsClock" } else { "nvmlDeviceGetApplicationsClock" };
                self.ask_with(function, u32::from(memory), |gpu| calls::application_clock(gpu, memory, default))
            })
            .collect();
        self.read_links(it);
        self.read_fabric_and_fans(it);
        self.read_module_power(it);
        self.read_fields(it, driver);
        self.read_rare(it, driver);
    }

    fn ecc_counts(&mut self, kind: u32, counter: u32) -> EccCounts {
        let [dram, register_file, l1_cache, l2_cache, texture_memory, cbu, sram, total] = PLACES.map(|place| {
            let argument = place * 4 + kind * 2 + counter;
            self.ask_with("nvmlDeviceGetMemoryErrorCounter", argument, |gpu| {
                calls::ecc_errors(gpu, kind, counter, place)
            })
        });
        EccCounts { dram, register_file, l1_cache, l2_cache, texture_memory, cbu, sram, total }
    }
}

fn flag(reading: Reading<u32>) -> Reading<bool> {
    reading.map(|it| it != 0)
}
