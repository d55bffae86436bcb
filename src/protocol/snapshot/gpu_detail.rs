//! The detail of a GPU: its full identity, bus, modes, limits and error counts.
//!
//! Reading the detail of a GPU takes about a hundred driver calls. An agent reads the detail of all
//! GPUs if it was started with `--detail`, else only of the GPU whose page is open. Slow readings
//! and rates, which need two readings, are read only for an open page.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::missing_by_name::MissingByName;
use super::readings::{EccCounts, reading_groups};
use super::{Missing, Reading, Route};
use crate::base::text::Text;
use crate::base::units::{Bytes, Celsius, Hertz, Moment, Percent};

reading_groups! {
    /// Readings of a GPU that its page shows and its list does not.
    GpuDetail {
        /// When the detail was read.
        at: Moment = "time_ms",
        /// Corrected ECC errors since the driver was loaded.
        corrected: EccCounts = "ecc_corrected_volatile",
        /// Corrected ECC errors in the lifetime of the board.
        corrected_ever: EccCounts = "ecc_corrected_aggregate",
        /// Uncorrected ECC errors since the driver was loaded.
        uncorrected: EccCounts = "ecc_uncorrected_volatile",
        /// Uncorrected ECC errors in the lifetime of the board.
        uncorrected_ever: EccCounts = "ecc_uncorrected_aggregate",
        readings:
        /// The serial number on the board.
        serial: Text = "serial",
        /// PCI base class and subclass.
        pci_class: [u32; 2] = "pci_class",
        /// PCI device and vendor ID, as in `0x233010DE`.
        pci_device: u32 = "pci_device_id",
        /// PCI subsystem: device and vendor ID, as in `0x16C110DE`.
        pci_subsystem: u32 = "pci_subsystem_id",
        /// The PCIe generation in use.
        pcie_generation: u32 = "pcie_generation",
        /// The highest PCIe generation that GPU and host support together.
        pcie_generation_max: u32 = "pcie_generation_max",
        /// The highest PCIe generation that the GPU supports.
        pcie_generation_gpu_max: u32 = "pcie_generation_gpu_max",
        /// The highest PCIe generation that the port of the host supports. Missing in a virtual
        /// machine.
        pcie_generation_host_max: u32 = "pcie_generation_host_max",
        /// The number of PCIe lanes in use.
        pcie_width: u32 = "pcie_width",
        /// The highest number of PCIe lanes that GPU and host support together.
        pcie_width_max: u32 = "pcie_width_max",
        /// Whether a display is connected.
        display_attached: bool = "display_attached",
        /// Whether a display is initialised on the GPU.
        display_active: bool = "display_active",
        /// Whether the driver stays loaded when no process uses the GPU.
        persistence: bool = "persistence_mode",
        /// Whether the driver manages the power of the board.
        power_management: bool = "power_management",
        /// Whether the driver records ended processes.
        accounting: bool = "accounting_mode",
        /// The number of ended processes that the driver can record.
        accounting_buffer: u32 = "accounting_buffer_size",
        /// The version of the VBIOS, the firmware of the board.
        vbios: Text = "vbios_version",
        /// The version of the whole infoROM.
        inforom_image: Text = "inforom_image_version",
        /// The version of the OEM object of the infoROM.
        inforom_oem: Text = "inforom_oem_version",
        /// The version of the ECC object of the infoROM.
        inforom_ecc: Text = "inforom_ecc_version",
        /// The version of the power object of the infoROM.
        inforom_power: Text = "inforom_power_version",
        /// Whether the checksum of the infoROM is correct.
        inforom_valid: bool = "inforom_valid",
        /// The recovery action that the driver recommends: 0 none, 1 reset, 2 reboot, 3 drain P2P,
        /// 4 drain and reset, 5 recover the IMEX domain, 6 reset its bus, 7 reboot the system.
        recovery_action: u32 = "recovery_action",
        /// The compute mode: 0 default, 1 exclusive thread, 2 prohibited, 3 exclusive process.
        compute_mode: u32 = "compute_mode",
        /// CUDA compute capability, as in `9.0`.
        compute_capability: Text = "compute_capability",
        /// The bits of NVML for the reasons that can lower the clocks of this GPU.
        clock_reasons_supported: u64 = "clock_event_reasons_supported",
        /// The bits of NVML for the reasons that lower the clocks now.
        clock_reasons: u64 = "clock_event_reasons",
        /// The time for which the power cap lowered the clocks, in nanoseconds.
        held_power_cap: u64 = "throttled_by_power_cap_ns",
        /// The time for which the sync boost group lowered the clocks, in nanoseconds.
        held_sync_boost: u64 = "throttled_by_sync_boost_ns",
        /// The time for which the driver lowered the clocks because of heat, in nanoseconds.
        held_thermal: u64 = "throttled_by_thermal_ns",
        /// The time for which the hardware lowered the clocks because of heat, in nanoseconds.
        held_hardware_thermal: u64 = "throttled_by_hardware_thermal_ns",
        /// The time for which the external power brake lowered the clocks, in nanoseconds.
        held_power_brake: u64 = "throttled_by_power_brake_ns",
        /// Utilization of the video encoder.
        encoder: Percent = "encoder_utilization_percent",
        /// Utilization of the video decoder.
        decoder: Percent = "decoder_utilization_percent",
        /// Utilization of the JPEG engine.
        jpeg: Percent = "jpeg_utilization_percent",
        /// Utilization of the optical flow engine.
        ofa: Percent = "ofa_utilization_percent",
        /// Encoder sessions, their mean frames per second, and their mean latency in microseconds.
        encoder_stats: [u32; 3] = "encoder_stats",
        /// Whether ECC is on.
        ecc: bool = "ecc_mode",
        /// Whether ECC is on after the next reboot.
        ecc_pending: bool = "ecc_mode_pending",
        /// Memory pages that were retired after single-bit errors.
        retired_single: u64 = "retired_pages_single_bit",
        /// Memory pages that were retired after double-bit errors.
        retired_double: u64 = "retired_pages_double_bit",
        /// Whether a page will be retired at the next reboot.
        retired_pending: bool = "retired_pages_pending",
        /// Memory rows that were remapped because of corrected errors.
        remapped_correctable: u32 = "remapped_rows_correctable",
        /// Memory rows that were remapped because of uncorrected errors.
        remapped_uncorrectable: u32 = "remapped_rows_uncorrectable",
        /// How many of the rows in `remapped_rows_correctable` have a remapping that is not in
        /// effect.
        remapped_correctable_inactive: u64 = "remapped_rows_correctable_inactive",
        /// How many of the rows in `remapped_rows_uncorrectable` have a remapping that is not in
        /// effect.
        remapped_uncorrectable_inactive: u64 = "remapped_rows_uncorrectable_inactive",
        /// Whether a row will be remapped at the next reset.
        remapped_pending: bool = "remapped_rows_pending",
        /// Whether the remapping of a row failed.
        remapped_failed: bool = "remapped_rows_failed",
        /// The number of memory banks by the spare rows that they have left: all, most, some, few,
        /// none.
        remapped_banks: [u32; 5] = "remapped_rows_histogram",
        /// How much hotter the GPU can become before it lowers its clocks, in degrees Celsius.
        temperature_margin: Celsius = "temperature_margin_celsius",
        /// Temperature of the device memory.
        memory_temperature: Celsius = "memory_temperature_celsius",
        /// Power draw in milliwatts: the average over a second on some chips, the instantaneous
        /// draw on others.
        power_draw: u32 = "power_draw_milliwatts",
        /// Average power draw over the last second, in milliwatts.
        power_average: u32 = "power_average_milliwatts",
        /// Instantaneous power draw, in milliwatts.
        power_instant: u32 = "power_instant_milliwatts",
        /// The requested power limit, in milliwatts.
        power_limit: u32 = "power_limit_requested_milliwatts",
        /// The power limit in effect, in milliwatts.
        power_limit_enforced: u32 = "power_limit_enforced_milliwatts",
        /// The power limit after a reboot, in milliwatts.
        power_limit_default: u32 = "power_limit_default_milliwatts",
        /// The lowest power limit that can be requested, in milliwatts.
        power_limit_min: u32 = "power_limit_min_milliwatts",
        /// The highest power limit that can be requested, in milliwatts.
        power_limit_max: u32 = "power_limit_max_milliwatts",
        /// How far power peaks may exceed the limit (`EDPp` multiplier), in percent of the limit.
        edpp: u32 = "edpp_multiplier_percent",
        /// Power smoothing, in nvidia-smi's order: whether it can be delayed (0 or 1), the first
        /// and second floor, the least offset and the activation point in watts, the multiplier of
        /// the window in milliseconds; the second floor, both multipliers and the offset of the
        /// active profile; the same as an administrator set them. `null` in the list: not set.
        power_smoothing: Vec<Option<u64>> = "power_smoothing",
        /// Power smoothing since driver 590: whether it is on, the privilege level, whether power
        /// may fall at once, ceiling and floor, highest and lowest floor in percent, remaining
        /// lifetime in percent, the number of profiles, the active profile; then floor, rates and
        /// hysteresis of the profile, and those of the administrator. `null` in the list: not set.
        /// Unsupported on boards without power smoothing.
        power_smoothing_settings: Vec<Option<u64>> = "power_smoothing_settings",
        /// Clock of the graphics engine.
        graphics_clock: Hertz = "graphics_clock_hertz",
        /// Clock of the video engines.
        video_clock: Hertz = "video_clock_hertz",
        /// The highest clock of the graphics engine.
        graphics_clock_max: Hertz = "graphics_clock_max_hertz",
        /// The highest clock of the multiprocessors.
        sm_clock_max: Hertz = "sm_clock_max_hertz",
        /// The highest clock of the device memory.
        memory_clock_max: Hertz = "memory_clock_max_hertz",
        /// Application clocks of the graphics engine and of the device memory, in MHz, then the
        /// defaults of both. `null` in the list: the driver no longer supports them.
        application_clocks: Vec<Option<u32>> = "application_clocks_mhz",
        /// Whether MIG is on after the next reset.
        mig_pending: bool = "mig_pending",
        /// Whether the GSP, a processor of the GPU, runs the firmware of the driver.
        gsp: bool = "gsp_firmware_mode",
        /// Whether the GSP runs the firmware of the driver by default.
        gsp_default: bool = "gsp_firmware_mode_default",
        /// The operation mode, now and after a reboot: 0 all, 1 compute only, 2 graphics with low
        /// double precision.
        operation_mode: [u32; 2] = "operation_mode",
        /// The driver model of Windows for a GPU in WSL, now and after a reboot: 0 WDDM, 1 TCC, 2
        /// MCDM.
        driver_model: [u32; 2] = "driver_model",
        /// How the GPU addresses the memory of the host: 0 not at all, 1 HMM, 2 ATS.
        addressing: u32 = "addressing_mode",
        /// Whether the chip-to-chip link to the processor is on.
        c2c: bool = "c2c_mode",
        /// Whether device memory is encrypted.
        dram_encryption: bool = "dram_encryption_mode",
        /// Whether device memory is encrypted after the next reboot.
        dram_encryption_pending: bool = "dram_encryption_mode_pending",
        /// Uncorrected SRAM errors: since the driver was loaded by parity and by SEC-DED, in the
        /// lifetime of the board by both, and the lifetime errors by place: L2, multiprocessors,
        /// microcontroller, PCIe, other.
        sram_errors: [u64; 9] = "sram_uncorrected_errors",
        /// Whether the uncorrected SRAM errors exceed the threshold at which the board should be
        /// replaced.
        sram_exceeded: bool = "sram_threshold_exceeded",
        /// Memory under confidential computing: the total, and the part in use.
        protected_memory: [Bytes; 2] = "protected_memory_bytes",
        /// The part in use of BAR1, the window through which the processor accesses device memory.
        bar1_used: Bytes = "bar1_used_bytes",
        /// The size of BAR1.
        bar1_total: Bytes = "bar1_total_bytes",
        /// Energy consumption since the driver was loaded, in millijoules.
        energy: u64 = "energy_millijoules",
        /// Packets that PCIe sent again.
        pcie_replays: u64 = "pcie_replays",
        /// The number of NVLink connections.
        nvlinks: u32 = "nvlinks",
        /// The number of NVLink connections that are up.
        nvlinks_up: u32 = "nvlinks_up",
        /// Bandwidth of one NVLink connection, in bytes per second.
        nvlink_speed: Bytes = "nvlink_speed_bytes_per_second",
        /// The target speed of each fan.
        fans: Vec<Percent> = "fan_speeds_percent",
        /// The processors of the host that are nearest to the GPU, as in `0-15,32-47`.
        cpus: Text = "cpu_affinity",
        /// The NUMA nodes of the host whose memory is nearest to the GPU.
        numa_nodes: Text = "memory_affinity",
        /// The NUMA node that the device memory is to the host, on boards where it is one.
        numa_node: u32 = "numa_node",
        /// Support of the driver and the GPU for virtual GPUs, in nvidia-smi's order. `null` in the
        /// list: the driver does not report it.
        vgpu: Vec<Option<bool>> = "vgpu_capabilities",
        /// The state in the NVLink fabric (1 not started, 2 in progress, 3 completed), its result
        /// (an `nvmlReturn_t`), the clique, the health bits of NVML, and the health summary. Not
        /// supported without an NVLink fabric.
        fabric: [u32; 5] = "fabric",
        /// The UUID of the cluster in the NVLink fabric.
        fabric_cluster: Text = "fabric_cluster_uuid",
        /// The serial number of the chassis.
        chassis: Text = "platform_chassis_serial",
        /// The slot of the GPU in the chassis.
        slot: u32 = "platform_slot",
        /// The index of the tray in the slot.
        tray: u32 = "platform_tray",
        /// The number of the host in its tray.
        rack_host: u32 = "platform_host",
        /// How the GPU reaches its peers: 0 directly, 1 through switches.
        peer_type: u32 = "platform_peer_type",
        /// The place of the GPU on its board.
        module: u32 = "platform_module",
        /// The GUID of the GPU in the NVLink fabric, in hexadecimal.
        fabric_guid: Text = "platform_fabric_guid",
        /// Average power draw of the module, which is GPU and processor, in milliwatts.
        module_power_average: u32 = "module_power_average_milliwatts",
        /// Instantaneous power draw of the module, in milliwatts.
        module_power_instant: u32 = "module_power_instant_milliwatts",
        /// The lowest power limit of the module that can be requested, in milliwatts.
        module_power_limit_min: u32 = "module_power_limit_min_milliwatts",
        /// The highest power limit of the module that can be requested, in milliwatts.
        module_power_limit_max: u32 = "module_power_limit_max_milliwatts",
        /// The power limit of the module after a reboot, in milliwatts.
        module_power_limit_default: u32 = "module_power_limit_default_milliwatts",
        /// The power limit of the module in effect, in milliwatts.
        module_power_limit_enforced: u32 = "module_power_limit_enforced_milliwatts",
        /// The requested power limit of the module, in milliwatts.
        module_power_limit: u32 = "module_power_limit_requested_milliwatts",
        /// Bytes per second that the GPU sends over PCIe. This reading and all below are read only
        /// while the GPU's page is open.
        pcie_sent: Bytes = "pcie_sent_bytes_per_second",
        /// Bytes per second that the GPU receives over PCIe.
        pcie_received: Bytes = "pcie_received_bytes_per_second",
        /// Bytes per second that the GPU sends over all of its NVLink connections.
        nvlink_sent: Bytes = "nvlink_sent_bytes_per_second",
        /// Bytes per second that the GPU receives over all of its NVLink connections.
        nvlink_received: Bytes = "nvlink_received_bytes_per_second",
        /// Share of time in which a multiprocessor has at least one warp, averaged over all
        /// multiprocessors.
        sm_active: Percent = "sm_active_percent",
        /// Resident warps, as a share of the most that the multiprocessors can hold.
        sm_occupancy: Percent = "sm_occupancy_percent",
        /// Share of time in which the tensor cores are active.
        tensor_active: Percent = "tensor_active_percent",
        /// Share of time in which device memory sends or receives.
        dram_active: Percent = "dram_active_percent",
        /// The route to each other GPU.
        routes: Vec<Route> = "routes",
    }
}
