//! Reads the detail of a GPU: once the part that never changes, and the rest in each pass that asks for it.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::Clock;
use nvml_wrapper::error::NvmlError;

use super::calls;
use super::gpu_calls::GpuCalls;
use super::plausible::{hertz, milliwatts, percent};
use crate::base::text::Text;
use crate::base::units::{Bytes, Celsius, Moment};
use crate::protocol::snapshot::{EccCounts, GpuDetail, Missing, Reading};

/// Places of memory errors: `nvmlMemoryLocation_t`, and 8 for the sum of all.
const PLACES: [u32; 8] = [2, 3, 0, 1, 4, 6, 7, 8];

impl GpuCalls {
    /// Reads the detail that does not change while the driver runs.
    pub(super) fn fixed_detail(&mut self, bus_id: &Reading<Text>) -> GpuDetail {
        let none = || EccCounts::missing(Missing::Unsupported);
        let mut detail = GpuDetail::missing(Moment(0), none(), none(), none(), none(), Missing::Unsupported);
        detail.serial = self.ask("nvmlDeviceGetSerial", calls::serial);
        let pci = self.ask("nvmlDeviceGetPciInfo_v3", Device::pci_info);
        detail.pci_device = pci.as_ref().map(|pci| pci.pci_device_id).map_err(|why| *why);
        detail.pci_subsystem = pci.and_then(|pci| pci.pci_sub_system_id.ok_or(Missing::Unsupported));
        detail.pci_class = self.ask("nvmlDeviceGetPciInfoExt", calls::pci_class);
        detail.pcie_generation_max = self.ask("nvmlDeviceGetMaxPcieLinkGeneration", calls::pcie_generation_max);
        detail.pcie_generation_gpu_max =
            self.ask("nvmlDeviceGetGpuMaxPcieLinkGeneration", calls::pcie_generation_gpu_max);
        detail.pcie_width_max = self.ask("nvmlDeviceGetMaxPcieLinkWidth", calls::pcie_width_max);
        detail.accounting_buffer = self.ask("nvmlDeviceGetAccountingBufferSize", calls::accounting_buffer);
        detail.vbios = self.ask("nvmlDeviceGetVbiosVersion", calls::vbios);
        detail.inforom_image = self.ask("nvmlDeviceGetInforomImageVersion", calls::inforom_image);
        let mut inforom = |part| self.ask_with("nvmlDeviceGetInforomVersion", part, |gpu| calls::inforom(gpu, part));
        (detail.inforom_oem, detail.inforom_ecc, detail.inforom_power) = (inforom(0), inforom(1), inforom(2));
        detail.inforom_valid = self.ask("nvmlDeviceValidateInforom", calls::inforom_valid);
        let capability = self.ask("nvmlDeviceGetCudaComputeCapability", calls::compute_capability);
        detail.compute_capability = capability.map(|[major, minor]| format!("{major}.{minor}").into());
        detail.clock_reasons_supported = self.renamed(calls::CLOCK_REASONS_SUPPORTED);
        let limit = self.ask("nvmlDeviceGetPowerManagementDefaultLimit", calls::power_limit_default);
        detail.power_limit_default = limit.and_then(milliwatts);
        let limits = self.ask("nvmlDeviceGetPowerManagementLimitConstraints", calls::power_limits);
        detail.power_limit_min = limits.and_then(|[least, _]| milliwatts(least));
        detail.power_limit_max = limits.and_then(|[_, most]| milliwatts(most));
        let mut max = |domain: u32, clock: Clock| {
            self.ask_with("nvmlDeviceGetMaxClockInfo", domain, |gpu| gpu.max_clock_info(clock)).and_then(hertz)
        };
        detail.graphics_clock_max = max(0, Clock::Graphics);
        detail.sm_clock_max = max(1, Clock::SM);
        detail.memory_clock_max = max(2, Clock::Memory);
        self.read_place(&mut detail, bus_id);
        // These are read only while a person looks at the GPU.
        for rate in
            [&mut detail.pcie_sent, &mut detail.pcie_received, &mut detail.nvlink_sent, &mut detail.nvlink_received]
        {
            *rate = Err(Missing::NotYet);
        }
        for share in
            [&mut detail.sm_active, &mut detail.sm_occupancy, &mut detail.tensor_active, &mut detail.dram_active]
        {
            *share = Err(Missing::NotYet);
        }
        detail.routes = Err(Missing::NotYet);
        detail
    }

    /// Reads the detail that changes, in one call for each reading.
    pub(super) fn read_state(&mut self, detail: &mut GpuDetail, driver: &str) {
        detail.pcie_generation = self.ask("nvmlDeviceGetCurrPcieLinkGeneration", calls::pcie_generation);
        detail.pcie_width = self.ask("nvmlDeviceGetCurrPcieLinkWidth", calls::pcie_width);
        detail.display_attached = flag(self.ask("nvmlDeviceGetDisplayMode", calls::display_mode));
        detail.display_active = flag(self.ask("nvmlDeviceGetDisplayActive", calls::display_active));
        detail.persistence = flag(self.ask("nvmlDeviceGetPersistenceMode", calls::persistence));
        detail.accounting = flag(self.ask("nvmlDeviceGetAccountingMode", calls::accounting));
        detail.compute_mode = self.ask("nvmlDeviceGetComputeMode", calls::compute_mode);
        detail.clock_reasons = self.renamed(calls::CLOCK_REASONS);
        let mut engine = |function, call: fn(&Device<'static>) -> Result<[u32; 2], NvmlError>| {
            self.ask_with(function, 0, call).and_then(|[share, _]| percent(share))
        };
        detail.encoder = engine("nvmlDeviceGetEncoderUtilization", calls::encoder);
        detail.decoder = engine("nvmlDeviceGetDecoderUtilization", calls::decoder);
        detail.jpeg = engine("nvmlDeviceGetJpgUtilization", calls::jpeg);
        detail.ofa = engine("nvmlDeviceGetOfaUtilization", calls::ofa);
        detail.encoder_stats = self.ask("nvmlDeviceGetEncoderStats", calls::encoder_stats);
        let mut mode = |function, call: fn(&Device<'static>) -> Result<[u32; 2], NvmlError>| {
            let modes = self.ask_with(function, 0, call);
            (flag(modes.map(|[now, _]| now)), flag(modes.map(|[_, then]| then)))
        };
        (detail.ecc, detail.ecc_pending) = mode("nvmlDeviceGetEccMode", calls::ecc_mode);
        (_, detail.mig_pending) = mode("nvmlDeviceGetMigMode", calls::mig_mode);
        (detail.gsp, detail.gsp_default) = mode("nvmlDeviceGetGspFirmwareMode", calls::gsp_mode);
        detail.operation_mode = self.ask("nvmlDeviceGetGpuOperationMode", calls::operation_mode);
        detail.driver_model = self.ask("nvmlDeviceGetDriverModel_v2", calls::driver_model);
        let encryption = self.ask("nvmlDeviceGetDramEncryptionMode", calls::dram_encryption);
        detail.dram_encryption = flag(encryption.map(|encryption| encryption[0]));
        detail.dram_encryption_pending = flag(encryption.map(|encryption| encryption[1]));
        detail.addressing = self.ask("nvmlDeviceGetAddressingMode", calls::addressing);
        detail.c2c = flag(self.ask("nvmlDeviceGetC2cModeInfoV", calls::c2c));
        let sram = self.ask("nvmlDeviceGetSramEccErrorStatus", calls::sram_errors);
        (detail.sram_errors, detail.sram_exceeded) = (sram.map(|sram| sram.0), sram.map(|sram| sram.1));
        detail.corrected = self.ecc_counts(0, 0);
        detail.corrected_ever = self.ecc_counts(0, 1);
        detail.uncorrected = self.ecc_counts(1, 0);
        detail.uncorrected_ever = self.ecc_counts(1, 1);
        detail.retired_pending = flag(self.ask("nvmlDeviceGetRetiredPagesPendingStatus", calls::retired_pending));
        let rows = self.ask("nvmlDeviceGetRemappedRows", calls::remapped_rows);
        detail.remapped_correctable = rows.map(|rows| rows[0]);
        detail.remapped_uncorrectable = rows.map(|rows| rows[1]);
        detail.remapped_pending = flag(rows.map(|rows| rows[2]));
        detail.remapped_failed = flag(rows.map(|rows| rows[3]));
        detail.remapped_banks = self.ask("nvmlDeviceGetRowRemapperHistogram", calls::remapped_banks);
        let margin = self.ask("nvmlDeviceGetMarginTemperature", calls::temperature_margin);
        detail.temperature_margin = margin.map(Celsius);
        let limit = self.ask("nvmlDeviceGetPowerManagementLimit", calls::power_limit);
        detail.power_limit = limit.and_then(milliwatts);
        let draw = self.ask("nvmlDeviceGetPowerUsage", calls::power_draw);
        detail.power_draw = draw.and_then(milliwatts);
        let limit = self.ask("nvmlDeviceGetEnforcedPowerLimit", calls::power_limit_enforced);
        detail.power_limit_enforced = limit.and_then(milliwatts);
        let mut now = |domain: u32, clock: Clock| {
            self.ask_with("nvmlDeviceGetClockInfo", domain, |gpu| gpu.clock_info(clock)).and_then(hertz)
        };
        (detail.graphics_clock, detail.video_clock) = (now(0, Clock::Graphics), now(3, Clock::Video));
        let memory = self.ask("nvmlDeviceGetConfComputeProtectedMemoryUsage", calls::protected_memory);
        detail.protected_memory = memory.map(|memory| memory.map(Bytes));
        let bar1 = self.ask("nvmlDeviceGetBAR1MemoryInfo", Device::bar1_memory_info);
        detail.bar1_used = bar1.as_ref().map(|bar1| Bytes(bar1.used)).map_err(|why| *why);
        detail.bar1_total = bar1.map(|bar1| Bytes(bar1.total));
        detail.energy = self.ask("nvmlDeviceGetTotalEnergyConsumption", Device::total_energy_consumption);
        detail.pcie_replays = self.ask("nvmlDeviceGetPcieReplayCounter", Device::pcie_replay_counter).map(u64::from);
        detail.application_clocks = [(false, false), (true, false), (false, true), (true, true)]
            .into_iter()
            .map(|(memory, default)| {
                let function =
                    if default { "nvmlDeviceGetDefaultApplicationsClock" } else { "nvmlDeviceGetApplicationsClock" };
                self.ask_with(function, u32::from(memory), |gpu| calls::application_clock(gpu, memory, default))
            })
            .collect();
        self.read_links(detail);
        self.read_fabric_and_fans(detail);
        self.read_module_power(detail);
        self.read_fields(detail, driver);
        self.read_rare(detail, driver);
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
    reading.map(|reading| reading != 0)
}
