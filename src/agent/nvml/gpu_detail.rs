//! All that a GPU says of itself, for those who ask: what never changes once, the rest at each pass.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::Clock;
use nvml_wrapper::error::NvmlError;

use super::call_watch::Watch;
use super::calls;
use super::gpu::{Detail, Gpu, Pass, hertz, milliwatts, percent};
use crate::base::units::{Bytes, Celsius, Moment};
use crate::protocol::snapshot::{EccCounts, GpuDetail, Missing, Reading};

/// `nvmlMemoryLocation_t`, and the sum of all.
const PLACES: [u32; 8] = [2, 3, 0, 1, 4, 6, 7, 8];

impl Gpu {
    /// Reads the lane, if it is wanted. Whoever looks has the state of the GPU every few seconds.
    pub(super) fn read_detail(&mut self, pass: &Pass<'_>, now: Moment) {
        let (watch, wanted) = (pass.watch, pass.detail);
        let due = match wanted {
            _ if self.is_part() => return,
            Detail::No => {
                if self.live.end() {
                    watch.look_away();
                }
                return;
            }
            Detail::Once => true,
            Detail::Live(_) => self.live.detail_is_due(now),
        };
        watch.aside(true);
        let mut detail = match self.readings.detail.take() {
            Some(detail) => detail,
            None => Box::new(self.still(watch)),
        };
        if due {
            self.moving(watch, &mut detail, pass.driver);
        }
        if let Detail::Live(everyone) = wanted {
            self.read_live(watch, &mut detail, everyone, now);
        }
        watch.aside(false);
        // The time of the lane is that of its older part.
        if due {
            detail.at = now;
        }
        self.readings.detail = Some(detail);
    }

    /// What does not change while the driver runs.
    fn still(&mut self, watch: &Watch) -> GpuDetail {
        let none = || EccCounts::missing(Missing::Unsupported);
        let mut it = GpuDetail::missing(Moment(0), none(), none(), none(), none(), Missing::Unsupported);
        it.serial = self.ask(watch, "nvmlDeviceGetSerial", 0, calls::serial);
        let pci = self.ask(watch, "nvmlDeviceGetPciInfo_v3", 0, Device::pci_info);
        it.pci_device = pci.as_ref().map(|it| it.pci_device_id).map_err(|why| *why);
        it.pci_subsystem = pci.and_then(|it| it.pci_sub_system_id.ok_or(Missing::Unsupported));
        it.pci_class = self.ask(watch, "nvmlDeviceGetPciInfoExt", 0, calls::pci_class);
        it.pcie_generation_max = self.ask(watch, "nvmlDeviceGetMaxPcieLinkGeneration", 0, calls::pcie_generation_max);
        it.pcie_generation_gpu_max =
            self.ask(watch, "nvmlDeviceGetGpuMaxPcieLinkGeneration", 0, calls::pcie_generation_gpu_max);
        it.pcie_width_max = self.ask(watch, "nvmlDeviceGetMaxPcieLinkWidth", 0, calls::pcie_width_max);
        it.accounting_buffer = self.ask(watch, "nvmlDeviceGetAccountingBufferSize", 0, calls::accounting_buffer);
        it.vbios = self.ask(watch, "nvmlDeviceGetVbiosVersion", 0, calls::vbios);
        it.inforom_image = self.ask(watch, "nvmlDeviceGetInforomImageVersion", 0, calls::inforom_image);
        let mut inforom = |part| self.ask(watch, "nvmlDeviceGetInforomVersion", part, |gpu| calls::inforom(gpu, part));
        (it.inforom_oem, it.inforom_ecc, it.inforom_power) = (inforom(0), inforom(1), inforom(2));
        it.inforom_valid = self.ask(watch, "nvmlDeviceValidateInforom", 0, calls::inforom_valid);
        let capability = self.ask(watch, "nvmlDeviceGetCudaComputeCapability", 0, calls::compute_capability);
        it.compute_capability = capability.map(|[major, minor]| format!("{major}.{minor}").into());
        it.clock_reasons_supported = self.renamed(watch, calls::CLOCK_REASONS_SUPPORTED);
        let limit = self.ask(watch, "nvmlDeviceGetPowerManagementDefaultLimit", 0, calls::power_limit_default);
        it.power_limit_default = limit.and_then(milliwatts);
        let limits = self.ask(watch, "nvmlDeviceGetPowerManagementLimitConstraints", 0, calls::power_limits);
        it.power_limit_min = limits.and_then(|[least, _]| milliwatts(least));
        it.power_limit_max = limits.and_then(|[_, most]| milliwatts(most));
        let mut max = |domain: u32, clock: Clock| {
            self.ask(watch, "nvmlDeviceGetMaxClockInfo", domain, |gpu| gpu.max_clock_info(clock)).and_then(hertz)
        };
        it.graphics_clock_max = max(0, Clock::Graphics);
        it.sm_clock_max = max(1, Clock::SM);
        it.memory_clock_max = max(2, Clock::Memory);
        self.read_place(watch, &mut it);
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

    fn moving(&mut self, watch: &Watch, it: &mut GpuDetail, driver: &str) {
        it.pcie_generation = self.ask(watch, "nvmlDeviceGetCurrPcieLinkGeneration", 0, calls::pcie_generation);
        it.pcie_width = self.ask(watch, "nvmlDeviceGetCurrPcieLinkWidth", 0, calls::pcie_width);
        it.display_attached = flag(self.ask(watch, "nvmlDeviceGetDisplayMode", 0, calls::display_mode));
        it.display_active = flag(self.ask(watch, "nvmlDeviceGetDisplayActive", 0, calls::display_active));
        it.persistence = flag(self.ask(watch, "nvmlDeviceGetPersistenceMode", 0, calls::persistence));
        it.accounting = flag(self.ask(watch, "nvmlDeviceGetAccountingMode", 0, calls::accounting));
        it.compute_mode = self.ask(watch, "nvmlDeviceGetComputeMode", 0, calls::compute_mode);
        it.clock_reasons = self.renamed(watch, calls::CLOCK_REASONS);
        let mut engine = |function, call: fn(&Device<'static>) -> Result<[u32; 2], NvmlError>| {
            self.ask(watch, function, 0, call).and_then(|[share, _]| percent(share))
        };
        it.encoder = engine("nvmlDeviceGetEncoderUtilization", calls::encoder);
        it.decoder = engine("nvmlDeviceGetDecoderUtilization", calls::decoder);
        it.jpeg = engine("nvmlDeviceGetJpgUtilization", calls::jpeg);
        it.ofa = engine("nvmlDeviceGetOfaUtilization", calls::ofa);
        it.encoder_stats = self.ask(watch, "nvmlDeviceGetEncoderStats", 0, calls::encoder_stats);
        let mut mode = |function, call: fn(&Device<'static>) -> Result<[u32; 2], NvmlError>| {
            let modes = self.ask(watch, function, 0, call);
            (flag(modes.map(|[now, _]| now)), flag(modes.map(|[_, then]| then)))
        };
        (it.ecc, it.ecc_pending) = mode("nvmlDeviceGetEccMode", calls::ecc_mode);
        (_, it.mig_pending) = mode("nvmlDeviceGetMigMode", calls::mig_mode);
        (it.gsp, it.gsp_default) = mode("nvmlDeviceGetGspFirmwareMode", calls::gsp_mode);
        it.operation_mode = self.ask(watch, "nvmlDeviceGetGpuOperationMode", 0, calls::operation_mode);
        it.driver_model = self.ask(watch, "nvmlDeviceGetDriverModel_v2", 0, calls::driver_model);
        let encryption = self.ask(watch, "nvmlDeviceGetDramEncryptionMode", 0, calls::dram_encryption);
        it.dram_encryption = flag(encryption.map(|it| it[0]));
        it.dram_encryption_pending = flag(encryption.map(|it| it[1]));
        it.addressing = self.ask(watch, "nvmlDeviceGetAddressingMode", 0, calls::addressing);
        it.c2c = flag(self.ask(watch, "nvmlDeviceGetC2cModeInfoV", 0, calls::c2c));
        let sram = self.ask(watch, "nvmlDeviceGetSramEccErrorStatus", 0, calls::sram_errors);
        (it.sram_errors, it.sram_exceeded) = (sram.map(|it| it.0), sram.map(|it| it.1));
        it.corrected = self.ecc_counts(watch, 0, 0);
        it.corrected_ever = self.ecc_counts(watch, 0, 1);
        it.uncorrected = self.ecc_counts(watch, 1, 0);
        it.uncorrected_ever = self.ecc_counts(watch, 1, 1);
        it.retired_pending = flag(self.ask(watch, "nvmlDeviceGetRetiredPagesPendingStatus", 0, calls::retired_pending));
        let rows = self.ask(watch, "nvmlDeviceGetRemappedRows", 0, calls::remapped_rows);
        it.remapped_correctable = rows.map(|it| it[0]);
        it.remapped_uncorrectable = rows.map(|it| it[1]);
        it.remapped_pending = flag(rows.map(|it| it[2]));
        it.remapped_failed = flag(rows.map(|it| it[3]));
        it.remapped_banks = self.ask(watch, "nvmlDeviceGetRowRemapperHistogram", 0, calls::remapped_banks);
        let margin = self.ask(watch, "nvmlDeviceGetMarginTemperature", 0, calls::temperature_margin);
        it.temperature_margin = margin.map(Celsius);
        let limit = self.ask(watch, "nvmlDeviceGetPowerManagementLimit", 0, calls::power_limit);
        it.power_limit = limit.and_then(milliwatts);
        let draw = self.ask(watch, "nvmlDeviceGetPowerUsage", 0, calls::power_draw);
        it.power_draw = draw.and_then(milliwatts);
        let limit = self.ask(watch, "nvmlDeviceGetEnforcedPowerLimit", 0, calls::power_limit_enforced);
        it.power_limit_enforced = limit.and_then(milliwatts);
        let mut now = |domain: u32, clock: Clock| {
            self.ask(watch, "nvmlDeviceGetClockInfo", domain, |gpu| gpu.clock_info(clock)).and_then(hertz)
        };
        (it.graphics_clock, it.video_clock) = (now(0, Clock::Graphics), now(3, Clock::Video));
        let memory = self.ask(watch, "nvmlDeviceGetConfComputeProtectedMemoryUsage", 0, calls::protected_memory);
        it.protected_memory = memory.map(|it| it.map(Bytes));
        let bar1 = self.ask(watch, "nvmlDeviceGetBAR1MemoryInfo", 0, Device::bar1_memory_info);
        it.bar1_used = bar1.as_ref().map(|it| Bytes(it.used)).map_err(|why| *why);
        it.bar1_total = bar1.map(|it| Bytes(it.total));
        it.energy = self.ask(watch, "nvmlDeviceGetTotalEnergyConsumption", 0, Device::total_energy_consumption);
        it.pcie_replays =
            self.ask(watch, "nvmlDeviceGetPcieReplayCounter", 0, Device::pcie_replay_counter).map(u64::from);
        it.application_clocks = [(false, false), (true, false), (false, true), (true, true)]
            .into_iter()
            .map(|(memory, default)| {
                let function =
                    if default { "nvmlDeviceGetDefaultApplicationsClock" } else { "nvmlDeviceGetApplicationsClock" };
                self.ask(watch, function, u32::from(memory), |gpu| calls::application_clock(gpu, memory, default))
            })
            .collect();
        self.read_links(watch, it);
        self.read_fabric_and_fans(watch, it);
        self.read_module_power(watch, it);
        self.read_fields(watch, it, driver);
        self.read_rare(watch, it, driver);
    }

    fn ecc_counts(&mut self, watch: &Watch, kind: u32, counter: u32) -> EccCounts {
        let [dram, register_file, l1_cache, l2_cache, texture_memory, cbu, sram, total] = PLACES.map(|place| {
            let argument = place * 4 + kind * 2 + counter;
            self.ask(watch, "nvmlDeviceGetMemoryErrorCounter", argument, |gpu| {
                calls::ecc_errors(gpu, kind, counter, place)
            })
        });
        EccCounts { dram, register_file, l1_cache, l2_cache, texture_memory, cbu, sram, total }
    }
}

fn flag(reading: Reading<u32>) -> Reading<bool> {
    reading.map(|it| it != 0)
}
