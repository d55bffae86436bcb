//! Details of a GPU: its full identity, bus, modes, limits and error counts.
//!
//! It costs some hundred calls of the driver, so an agent reads it only when it was started with `--detail`, or of
//! the one GPU that a person looks at. What takes long, or needs two looks, is read only then.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::readings::{EccCounts, reading_groups};
use super::{Missing, Reading, Route};
use crate::base::text::Text;
use crate::base::units::{Bytes, Celsius, Hertz, Moment, Percent};

reading_groups! {
    /// All that is seldom asked about a GPU.
    GpuDetail {
        /// When this lane was read.
        at: Moment = "time_ms",
        /// Mended, since the driver was loaded.
        corrected: EccCounts = "ecc_corrected_volatile",
        /// Mended, since the board was made.
        corrected_ever: EccCounts = "ecc_corrected_aggregate",
        /// Not mended, since the driver was loaded.
        uncorrected: EccCounts = "ecc_uncorrected_volatile",
        /// Not mended, since the board was made.
        uncorrected_ever: EccCounts = "ecc_uncorrected_aggregate",
        readings:
        /// The number on the board.
        serial: Text = "serial",
        /// PCI base class and subclass.
        pci_class: [u32; 2] = "pci_class",
        /// PCI device and vendor, as in `0x233010DE`.
        pci_device: u32 = "pci_device_id",
        /// PCI subsystem.
        pci_subsystem: u32 = "pci_subsystem_id",
        /// PCIe generation in use.
        pcie_generation: u32 = "pcie_generation",
        /// The highest that GPU and host can do together.
        pcie_generation_max: u32 = "pcie_generation_max",
        /// The highest that the GPU can do.
        pcie_generation_gpu_max: u32 = "pcie_generation_gpu_max",
        /// The highest that the port of the host can do: of GPUs that no virtual machine was given.
        pcie_generation_host_max: u32 = "pcie_generation_host_max",
        /// PCIe lanes in use.
        pcie_width: u32 = "pcie_width",
        /// The most there can be.
        pcie_width_max: u32 = "pcie_width_max",
        /// Whether a display can be connected.
        display_attached: bool = "display_attached",
        /// Whether one is drawn.
        display_active: bool = "display_active",
        /// Whether the driver stays when nobody uses the GPU.
        persistence: bool = "persistence_mode",
        /// Whether the driver accounts for ended processes.
        accounting: bool = "accounting_mode",
        /// For how many.
        accounting_buffer: u32 = "accounting_buffer_size",
        /// Version of the board's firmware.
        vbios: Text = "vbios_version",
        /// Version of the whole infoROM.
        inforom_image: Text = "inforom_image_version",
        /// Version of its OEM part.
        inforom_oem: Text = "inforom_oem_version",
        /// Version of its ECC part.
        inforom_ecc: Text = "inforom_ecc_version",
        /// Version of its power part.
        inforom_power: Text = "inforom_power_version",
        /// Whether its checksum is right.
        inforom_valid: bool = "inforom_valid",
        /// The recovery action that the driver recommends: 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset,
        /// 5 recover the IMEX domain, 6 reset its bus, 7 reboot the system.
        recovery_action: u32 = "recovery_action",
        /// 0 default, 1 exclusive thread, 2 prohibited, 3 exclusive process.
        compute_mode: u32 = "compute_mode",
        /// CUDA compute capability, as in `9.0`.
        compute_capability: Text = "compute_capability",
        /// NVML's bits for what can hold the clocks.
        clock_reasons_supported: u64 = "clock_event_reasons_supported",
        /// NVML's bits for what holds the clocks.
        clock_reasons: u64 = "clock_event_reasons",
        /// Time that the power cap held the clocks, in nanoseconds; so with the next ones.
        held_power_cap: u64 = "throttled_by_power_cap_ns",
        /// The sync group.
        held_sync_boost: u64 = "throttled_by_sync_boost_ns",
        /// Heat, by software.
        held_thermal: u64 = "throttled_by_thermal_ns",
        /// Heat, by hardware.
        held_hardware_thermal: u64 = "throttled_by_hardware_thermal_ns",
        /// The power brake.
        held_power_brake: u64 = "throttled_by_power_brake_ns",
        /// Use of the encoder.
        encoder: Percent = "encoder_utilization_percent",
        /// Use of the decoder.
        decoder: Percent = "decoder_utilization_percent",
        /// Use of the JPEG engine.
        jpeg: Percent = "jpeg_utilization_percent",
        /// Use of the optical flow engine.
        ofa: Percent = "ofa_utilization_percent",
        /// Encoder sessions, their mean frames per second, and their mean latency in microseconds.
        encoder_stats: [u32; 3] = "encoder_stats",
        /// Whether ECC is on.
        ecc: bool = "ecc_mode",
        /// Whether it will be after a reboot.
        ecc_pending: bool = "ecc_mode_pending",
        /// Pages taken out of use after single-bit errors.
        retired_single: u64 = "retired_pages_single_bit",
        /// After double-bit errors.
        retired_double: u64 = "retired_pages_double_bit",
        /// Whether some wait for a reboot.
        retired_pending: bool = "retired_pages_pending",
        /// Rows replaced after errors that were mended.
        remapped_correctable: u32 = "remapped_rows_correctable",
        /// After errors that were not.
        remapped_uncorrectable: u32 = "remapped_rows_uncorrectable",
        /// As `remapped_rows_correctable`, of those that are not in force.
        remapped_correctable_inactive: u64 = "remapped_rows_correctable_inactive",
        /// As `remapped_rows_uncorrectable`, of those that are not in force.
        remapped_uncorrectable_inactive: u64 = "remapped_rows_uncorrectable_inactive",
        /// Whether some wait for a reset.
        remapped_pending: bool = "remapped_rows_pending",
        /// Whether one could not be replaced.
        remapped_failed: bool = "remapped_rows_failed",
        /// Banks by the spare rows that they have left: all, most, some, few, none.
        remapped_banks: [u32; 5] = "remapped_rows_histogram",
        /// How far it is from slowing down for heat.
        temperature_margin: Celsius = "temperature_margin_celsius",
        /// Clock of the device memory.
        memory_temperature: Celsius = "memory_temperature_celsius",
        /// Drawn, in milliwatts as all of these: on average on some chips, now on others.
        power_draw: u32 = "power_draw_milliwatts",
        /// Drawn on average over the last second.
        power_average: u32 = "power_average_milliwatts",
        /// Drawn now.
        power_instant: u32 = "power_instant_milliwatts",
        /// The limit that was asked for.
        power_limit: u32 = "power_limit_requested_milliwatts",
        /// The limit in force.
        power_limit_enforced: u32 = "power_limit_enforced_milliwatts",
        /// The limit after a reboot.
        power_limit_default: u32 = "power_limit_default_milliwatts",
        /// The lowest that may be asked for.
        power_limit_min: u32 = "power_limit_min_milliwatts",
        /// The highest that may be asked for.
        power_limit_max: u32 = "power_limit_max_milliwatts",
        /// How far peaks of power may go beyond the limit, in percent of it.
        edpp: u32 = "edpp_multiplier_percent",
        /// Power smoothing, in nvidia-smi's order: whether that can be delayed (0 or 1), the first and second floor, the
        /// least offset and point of activation in watts, the multiplier of the window in ms; the second floor, both
        /// multipliers and the offset of the profile in force; the same as an administrator set them. Absent there: not set.
        power_smoothing: Vec<Option<u64>> = "power_smoothing",
        /// Clock of the graphics engine.
        graphics_clock: Hertz = "graphics_clock_hertz",
        /// Clock of the video engines.
        video_clock: Hertz = "video_clock_hertz",
        /// The highest of the graphics engine.
        graphics_clock_max: Hertz = "graphics_clock_max_hertz",
        /// The highest of the multiprocessors.
        sm_clock_max: Hertz = "sm_clock_max_hertz",
        /// The highest of the device memory.
        memory_clock_max: Hertz = "memory_clock_max_hertz",
        /// Application clocks of the graphics engine and of the device memory, in MHz; then both by default. Absent there: the
        /// driver says that nobody sets them any more.
        application_clocks: Vec<Option<u32>> = "application_clocks_mhz",
        /// Whether MIG will split it after a reset.
        mig_pending: bool = "mig_pending",
        /// Whether the GPU's own processor runs the driver's firmware.
        gsp: bool = "gsp_firmware_mode",
        /// Whether it does by default.
        gsp_default: bool = "gsp_firmware_mode_default",
        /// The operation mode, now and after a reboot: 0 all, 1 computing only, 2 graphics without double precision.
        operation_mode: [u32; 2] = "operation_mode",
        /// How Windows drives it, below WSL, now and after a reboot: 0 WDDM, 1 TCC, 2 MCDM.
        driver_model: [u32; 2] = "driver_model",
        /// How it addresses the host's memory: 0 not, 1 HMM, 2 ATS.
        addressing: u32 = "addressing_mode",
        /// Whether the chip-to-chip link to the processor is on.
        c2c: bool = "c2c_mode",
        /// Whether device memory is encrypted.
        dram_encryption: bool = "dram_encryption_mode",
        /// Whether it will be after a reboot.
        dram_encryption_pending: bool = "dram_encryption_mode_pending",
        /// Errors in memory on the chip that were not mended: since the driver was loaded by parity and SEC-DED, since
        /// the board was made by the same, and that again by place: L2, multiprocessors, microcontroller, PCIe, other.
        sram_errors: [u64; 9] = "sram_uncorrected_errors",
        /// Whether these are so many that the board should be replaced.
        sram_exceeded: bool = "sram_threshold_exceeded",
        /// Memory under confidential computing: all, and in use.
        protected_memory: [Bytes; 2] = "protected_memory_bytes",
        /// Size of the window (BAR1) through which the processor accesses the device memory.
        bar1_used: Bytes = "bar1_used_bytes",
        /// All of that window.
        bar1_total: Bytes = "bar1_total_bytes",
        /// Drawn since the driver was loaded.
        energy: u64 = "energy_millijoules",
        /// Packets that PCIe had to send again.
        pcie_replays: u64 = "pcie_replays",
        /// NVLink connections that there are.
        nvlinks: u32 = "nvlinks",
        /// NVLink connections that work.
        nvlinks_up: u32 = "nvlinks_up",
        /// Bandwidth of one NVLink connection, in bytes per second.
        nvlink_speed: Bytes = "nvlink_speed_bytes_per_second",
        /// The intended speed of each of its fans.
        fans: Vec<Percent> = "fan_speeds_percent",
        /// Processors of the host that are near it, as in `0-15,32-47`.
        cpus: Text = "cpu_affinity",
        /// NUMA nodes of the host whose memory is near it.
        numa_nodes: Text = "memory_affinity",
        /// The NUMA node that its own memory is to the host, on boards where it is one.
        numa_node: u32 = "numa_node",
        /// Where it is shared among virtual machines: what driver and GPU can do for that, in nvidia-smi's order. Absent there:
        /// they do not say, or could not be asked.
        vgpu: Vec<Option<bool>> = "vgpu_capabilities",
        /// Its state in the fabric of NVLink switches (1 not started, 2 in progress, 3 completed), what came of it (an
        /// `nvmlReturn_t`), its clique, NVML's bits of health, and their summary. Unsupported without such a fabric.
        fabric: [u32; 5] = "fabric",
        /// The cluster of that fabric.
        fabric_cluster: Text = "fabric_cluster_uuid",
        /// The number of the chassis that it is in.
        chassis: Text = "platform_chassis_serial",
        /// Its place there; so with the next ones.
        slot: u32 = "platform_slot",
        /// The tray.
        tray: u32 = "platform_tray",
        /// The host in that tray.
        rack_host: u32 = "platform_host",
        /// How it reaches others: 0 directly, 1 through switches.
        peer_type: u32 = "platform_peer_type",
        /// The place on its board.
        module: u32 = "platform_module",
        /// Its id in the fabric, in hex.
        fabric_guid: Text = "platform_fabric_guid",
        /// Drawn by the whole module, GPU and processor, in milliwatts, on average; so with the next ones.
        module_power_average: u32 = "module_power_average_milliwatts",
        /// Drawn now.
        module_power_instant: u32 = "module_power_instant_milliwatts",
        /// The lowest that may be asked for.
        module_power_limit_min: u32 = "module_power_limit_min_milliwatts",
        /// The highest.
        module_power_limit_max: u32 = "module_power_limit_max_milliwatts",
        /// The limit after a reboot.
        module_power_limit_default: u32 = "module_power_limit_default_milliwatts",
        /// The limit in force.
        module_power_limit_enforced: u32 = "module_power_limit_enforced_milliwatts",
        /// The limit that was asked for.
        module_power_limit: u32 = "module_power_limit_requested_milliwatts",
        /// Bytes per second that this GPU sent over PCIe. Not read, like all values below, unless the GPU's page is open.
        pcie_sent: Bytes = "pcie_sent_bytes_per_second",
        /// Bytes per second that it received.
        pcie_received: Bytes = "pcie_received_bytes_per_second",
        /// Bytes per second that it sent over all of its NVLink connections.
        nvlink_sent: Bytes = "nvlink_sent_bytes_per_second",
        /// Bytes per second that it received.
        nvlink_received: Bytes = "nvlink_received_bytes_per_second",
        /// Multiprocessors that worked, on average.
        sm_active: Percent = "sm_active_percent",
        /// Warps that were there, of those that there is room for.
        sm_occupancy: Percent = "sm_occupancy_percent",
        /// Tensor cores that worked.
        tensor_active: Percent = "tensor_active_percent",
        /// Use of the bandwidth of device memory.
        dram_active: Percent = "dram_active_percent",
        /// The way from here to each other GPU.
        routes: Vec<Route> = "routes",
    }
}
