//! Two GPUs with all their figures, and each field as nvidia-smi writes it for them.

use super::*;

/// Makes a GPU an idle H100.
pub(super) fn set_h100(gpu: &mut Gpu) {
    gpu.serial = Some("0000000000000".to_owned());
    "00000000:00:09.0".clone_into(&mut gpu.pci);
    gpu.memory = Memory {
        total: 81_559 * MIB,
        reserved: 501_809_152,
        unaccounted: 0,
        v2: true,
    };
    gpu.utilization = Utilization {
        gpu: Some(0),
        memory: Some(0),
        encoder: Some(0),
        decoder: Some(0),
        jpeg: Some(0),
        ofa: Some(0),
    };
    (
        gpu.temperature.gpu,
        gpu.temperature.memory,
        gpu.temperature.gpu_max,
    ) = (Some(41), Some(48), Some(87));
    gpu.power.usage = Some(69_856);
    gpu.power_instant = Some(69_620);
    gpu.clocks = Clocks {
        graphics: Some(345),
        sm: Some(345),
        memory: Some(2619),
        video: Some(765),
    };
    gpu.throttle = Some(1);
    gpu.ecc = Some(Ecc {
        enabled: true,
        pending: true,
        ..Ecc::default()
    });
    gpu.pcie = Some(Pcie {
        generation: 5,
        width: 16,
        max_generation: 5,
        max_width: 16,
        ..Pcie::default()
    });
    gpu.display_attached = Some(true);
    gpu.inforom = Some(Inforom {
        image: Some("G520.0200.00.05".to_owned()),
        oem: Some("2.1".to_owned()),
        ecc: Some("7.16".to_owned()),
        ..Inforom::default()
    });
    gpu.encoder = Some((0, 0, 0));
    (gpu.gsp, gpu.addressing, gpu.c2c) = (Some(true), Some(0), Some(false));
    gpu.protected_memory = Some((0, 0));
    gpu.fields.insert(274, 100);
}

/// Makes a GPU the `GeForce` with two encoder sessions.
pub(super) fn set_rtx_2080(gpu: &mut Gpu) {
    "NVIDIA GeForce RTX 2080 SUPER".clone_into(&mut gpu.name);
    "00000000:0C:00.0".clone_into(&mut gpu.pci);
    (gpu.pci_device_id, gpu.pci_subclass, gpu.pci_subsystem_id) =
        (0x1E81_10DE, Some(0), Some(0x4005_1458));
    gpu.vbios = Some("90.04.7A.40.73".to_owned());
    gpu.compute_capability = (7, 5);
    gpu.memory = Memory {
        total: 8192 * MIB,
        reserved: 408 * MIB - 900_000,
        unaccounted: 819 * MIB - 900_000,
        v2: true,
    };
    gpu.utilization = Utilization {
        gpu: Some(8),
        memory: Some(3),
        encoder: Some(100),
        decoder: Some(0),
        jpeg: Some(0),
        ofa: Some(0),
    };
    (gpu.temperature.gpu, gpu.temperature.gpu_max) = (Some(45), None);
    gpu.power = Power {
        usage: Some(111_500),
        limit: Some(250_000),
        default_limit: Some(250_000),
        min_limit: Some(105_000),
        max_limit: Some(350_000),
        ..Power::default()
    };
    gpu.power_without_average = true;
    gpu.clocks = Clocks {
        graphics: Some(2055),
        sm: Some(2055),
        memory: Some(7500),
        video: Some(1905),
    };
    gpu.max_clocks = Clocks {
        graphics: Some(2145),
        sm: Some(2145),
        memory: Some(7751),
        video: None,
    };
    gpu.throttle = Some(4);
    gpu.throttle_ns.insert(74, 212_553_937_123);
    gpu.fans = vec![38];
    gpu.accounting = Some(false);
    gpu.pcie = Some(Pcie {
        generation: 3,
        width: 16,
        max_generation: 3,
        max_width: 16,
        ..Pcie::default()
    });
    gpu.inforom = Some(Inforom {
        image: Some("G001.0000.02.04".to_owned()),
        oem: Some("1.1".to_owned()),
        ..Inforom::default()
    });
    gpu.encoder = Some((2, 107, 99_454));
    (gpu.gsp, gpu.addressing) = (Some(true), Some(1));
    gpu.protected_memory = Some((0, 0));
    gpu.module = Some(1);
}

/// Name in the query, header, and the answers of the H100 and of the `GeForce`.
pub(super) const FIELDS: &[(&str, &str, &str, &str)] = &[
    ("driver_version", "driver_version", "590.48.01", "590.48.01"),
    ("count", "count", "2", "2"),
    (
        "name",
        "name",
        "NVIDIA H100 80GB HBM3",
        "NVIDIA GeForce RTX 2080 SUPER",
    ),
    (
        "gpu_name",
        "name",
        "NVIDIA H100 80GB HBM3",
        "NVIDIA GeForce RTX 2080 SUPER",
    ),
    ("serial", "serial", "0000000000000", "[N/A]"),
    (
        "pci.bus_id",
        "pci.bus_id",
        "00000000:00:09.0",
        "00000000:0C:00.0",
    ),
    ("pci.domain", "pci.domain", "0x0000", "0x0000"),
    ("pci.bus", "pci.bus", "0x00", "0x0C"),
    ("pci.device", "pci.device", "0x09", "0x00"),
    ("pci.baseClass", "pci.baseClass", "0x3", "0x3"),
    ("pci.subClass", "pci.subClass", "0x2", "0x0"),
    ("pci.device_id", "pci.device_id", "0x233010DE", "0x1E8110DE"),
    (
        "pci.sub_device_id",
        "pci.sub_device_id",
        "0x16C110DE",
        "0x40051458",
    ),
    ("pcie.link.gen.current", "pcie.link.gen.current", "5", "3"),
    (
        "pcie.link.gen.gpucurrent",
        "pcie.link.gen.gpucurrent",
        "5",
        "3",
    ),
    ("pcie.link.gen.max", "pcie.link.gen.max", "5", "3"),
    ("pcie.link.gen.gpumax", "pcie.link.gen.gpumax", "5", "3"),
    (
        "pcie.link.width.current",
        "pcie.link.width.current",
        "16",
        "16",
    ),
    ("pcie.link.width.max", "pcie.link.width.max", "16", "16"),
    ("index", "index", "0", "1"),
    ("display_mode", "display_mode", DEPRECATED, DEPRECATED),
    ("display_attached", "display_attached", "Yes", "Yes"),
    ("display_active", "display_active", "Disabled", "Enabled"),
    (
        "persistence_mode",
        "persistence_mode",
        "Enabled",
        "Disabled",
    ),
    ("addressing_mode", "addressing_mode", "None", "HMM"),
    ("accounting.mode", "accounting.mode", "Disabled", "Disabled"),
    (
        "accounting.buffer_size",
        "accounting.buffer_size",
        "4000",
        "4000",
    ),
    (
        "driver_model.current",
        "driver_model.current",
        "[N/A]",
        "[N/A]",
    ),
    (
        "vbios_version",
        "vbios_version",
        "96.00.A5.00.01",
        "90.04.7A.40.73",
    ),
    (
        "inforom.image",
        "inforom.img",
        "G520.0200.00.05",
        "G001.0000.02.04",
    ),
    ("inforom.oem", "inforom.oem", "2.1", "1.1"),
    ("inforom.ecc", "inforom.ecc", "7.16", "[N/A]"),
    ("inforom.pwr", "inforom.pwr", "[N/A]", "[N/A]"),
    (
        "inforom.checksum_validation",
        "inforom.checksum_validation",
        "valid",
        "valid",
    ),
    ("gpu_recovery_action", "gpu_recovery_action", "None", "None"),
    ("gom.current", "gom.current", "[N/A]", "[N/A]"),
    ("fan.speed", "fan.speed [%]", "[N/A]", "38 %"),
    ("pstate", "pstate", "P0", "P2"),
    (
        "clocks_event_reasons.supported",
        "clocks_event_reasons.supported",
        "0x00000000000001FF",
        "0x00000000000001FF",
    ),
    (
        "clocks_throttle_reasons.active",
        "clocks_event_reasons.active",
        "0x0000000000000001",
        "0x0000000000000004",
    ),
    (
        "clocks_event_reasons.gpu_idle",
        "clocks_event_reasons.gpu_idle",
        "Active",
        "Not Active",
    ),
    (
        "clocks_event_reasons.sw_power_cap",
        "clocks_event_reasons.sw_power_cap",
        "Not Active",
        "Active",
    ),
    (
        "clocks_event_reasons.hw_thermal_slowdown",
        "clocks_event_reasons.hw_thermal_slowdown",
        "Not Active",
        "Not Active",
    ),
    (
        "clocks_event_reasons_counters.sw_power_cap",
        "clocks_event_reasons_counters.sw_power_cap [us]",
        "0 us",
        "212553937 us",
    ),
    (
        "clocks_event_reasons_counters.hw_power_brake_slowdown",
        "clocks_event_reasons_counters.hw_power_brake_slowdown [us]",
        "0 us",
        "0 us",
    ),
    // Each value is rounded up, so the sums exceed the total: 479 + 0 + 81081 by 1, 408 + 819 +
    // 6967 by 2.
    (
        "memory.total",
        "memory.total [MiB]",
        "81559 MiB",
        "8192 MiB",
    ),
    (
        "memory.reserved",
        "memory.reserved [MiB]",
        "479 MiB",
        "408 MiB",
    ),
    ("memory.used", "memory.used [MiB]", "0 MiB", "819 MiB"),
    ("memory.free", "memory.free [MiB]", "81081 MiB", "6967 MiB"),
    ("compute_mode", "compute_mode", "Default", "Default"),
    ("compute_cap", "compute_cap", "9.0", "7.5"),
    ("utilization.gpu", "utilization.gpu [%]", "0 %", "8 %"),
    ("utilization.memory", "utilization.memory [%]", "0 %", "3 %"),
    (
        "utilization.encoder",
        "utilization.encoder [%]",
        "0 %",
        "100 %",
    ),
    ("utilization.ofa", "utilization.ofa [%]", "0 %", "0 %"),
    (
        "encoder.stats.sessionCount",
        "encoder.stats.sessionCount",
        "0",
        "2",
    ),
    (
        "encoder.stats.averageFps",
        "encoder.stats.averageFps",
        "0",
        "107",
    ),
    (
        "encoder.stats.averageLatency",
        "encoder.stats.averageLatency",
        "0",
        "99454",
    ),
    (
        "dramEncryption.mode.current",
        "dramEncryption.mode.current",
        "[N/A]",
        "[N/A]",
    ),
    ("ecc.mode.current", "ecc.mode.current", "Enabled", "[N/A]"),
    ("ecc.mode.pending", "ecc.mode.pending", "Enabled", "[N/A]"),
    (
        "ecc.errors.corrected.volatile.dram",
        "ecc.errors.corrected.volatile.dram",
        "0",
        "[N/A]",
    ),
    (
        "ecc.errors.corrected.volatile.l1_cache",
        "ecc.errors.corrected.volatile.l1_cache",
        "[N/A]",
        "[N/A]",
    ),
    (
        "ecc.errors.uncorrected.aggregate.sram",
        "ecc.errors.uncorrected.aggregate.sram",
        "0",
        "[N/A]",
    ),
    (
        "ecc.errors.uncorrected.aggregate.total",
        "ecc.errors.uncorrected.aggregate.total",
        "0",
        "[N/A]",
    ),
    (
        "ecc.errors.uncorrected.volatile.sram.parity",
        "ecc.errors.uncorrected.volatile.sram.parity",
        "0",
        "[N/A]",
    ),
    (
        "ecc.errors.uncorrected.aggregate.sram.pcie",
        "ecc.errors.uncorrected.aggregate.sram.pcie",
        "0",
        "[N/A]",
    ),
    (
        "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",
        "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",
        "No",
        "[N/A]",
    ),
    (
        "retired_pages.sbe",
        "retired_pages.single_bit_ecc.count",
        "[N/A]",
        "[N/A]",
    ),
    (
        "retired_pages.pending",
        "retired_pages.pending",
        "[N/A]",
        "[N/A]",
    ),
    (
        "remapped_rows.correctable",
        "remapped_rows.correctable",
        "0",
        "[N/A]",
    ),
    (
        "remapped_rows.pending",
        "remapped_rows.pending",
        "No",
        "[N/A]",
    ),
    (
        "remapped_rows.failure",
        "remapped_rows.failure",
        "No",
        "[N/A]",
    ),
    (
        "remapped_rows.histogram.max",
        "remapped_rows.histogram.max",
        "2560",
        "[N/A]",
    ),
    (
        "remapped_rows.histogram.none",
        "remapped_rows.histogram.none",
        "0",
        "[N/A]",
    ),
    ("temperature.gpu", "temperature.gpu", "41", "45"),
    (
        "temperature.gpu.tlimit",
        "temperature.gpu.tlimit",
        "46",
        "[N/A]",
    ),
    ("temperature.memory", "temperature.memory", "48", "N/A"),
    (
        "power.management",
        "power.management",
        DEPRECATED,
        DEPRECATED,
    ),
    ("power.draw", "power.draw [W]", "69.85 W", "111.50 W"),
    (
        "power.draw.average",
        "power.draw.average [W]",
        "69.85 W",
        "[N/A]",
    ),
    (
        "power.draw.instant",
        "power.draw.instant [W]",
        "69.62 W",
        "111.50 W",
    ),
    ("power.limit", "power.limit [W]", "700.00 W", "250.00 W"),
    (
        "enforced.power.limit",
        "enforced.power.limit [W]",
        "700.00 W",
        "250.00 W",
    ),
    (
        "power.default_limit",
        "power.default_limit [W]",
        "700.00 W",
        "250.00 W",
    ),
    (
        "power.min_limit",
        "power.min_limit [W]",
        "200.00 W",
        "105.00 W",
    ),
    (
        "power.max_limit",
        "power.max_limit [W]",
        "700.00 W",
        "350.00 W",
    ),
    (
        "clocks.gr",
        "clocks.current.graphics [MHz]",
        "345 MHz",
        "2055 MHz",
    ),
    (
        "clocks.current.sm",
        "clocks.current.sm [MHz]",
        "345 MHz",
        "2055 MHz",
    ),
    (
        "clocks.mem",
        "clocks.current.memory [MHz]",
        "2619 MHz",
        "7500 MHz",
    ),
    (
        "clocks.current.video",
        "clocks.current.video [MHz]",
        "765 MHz",
        "1905 MHz",
    ),
    (
        "clocks.applications.graphics",
        "clocks.applications.graphics [MHz]",
        DEPRECATED,
        DEPRECATED,
    ),
    (
        "clocks.max.graphics",
        "clocks.max.graphics [MHz]",
        "1980 MHz",
        "2145 MHz",
    ),
    (
        "clocks.max.sm",
        "clocks.max.sm [MHz]",
        "1980 MHz",
        "2145 MHz",
    ),
    (
        "clocks.max.memory",
        "clocks.max.memory [MHz]",
        "2619 MHz",
        "7751 MHz",
    ),
    ("mig.mode.current", "mig.mode.current", "Disabled", "[N/A]"),
    ("mig.mode.pending", "mig.mode.pending", "Disabled", "[N/A]"),
    ("gsp.mode.current", "gsp.mode.current", "Enabled", "Enabled"),
    ("gsp.mode.default", "gsp.mode.default", "Enabled", "Enabled"),
    ("c2c.mode", "c2c.mode", "Disabled", "[N/A]"),
    (
        "protected_memory.total",
        "protected_memory.total [MiB]",
        "0 MiB",
        "0 MiB",
    ),
    (
        "protected_memory.free",
        "protected_memory.free [MiB]",
        "0 MiB",
        "0 MiB",
    ),
    ("fabric.state", "fabric.state", "Completed", "N/A"),
    ("fabric.status", "fabric.status", "Success", "N/A"),
    ("fabric.cliqueId", "fabric.cliqueId", "0", "N/A"),
    (
        "fabric.clusterUuid",
        "fabric.clusterUuid",
        "00000000-0000-0000-0000-000000000000",
        "N/A",
    ),
    (
        "fabric.health.summary",
        "fabric.health.summary",
        "N/A",
        "N/A",
    ),
    (
        "fabric.health.bandwidth",
        "fabric.health.bandwidth",
        "N/A",
        "N/A",
    ),
    (
        "fabric.health.route_unhealthy",
        "fabric.health.route_unhealthy",
        "N/A",
        "N/A",
    ),
    (
        "fabric.health.incorrect_configuration",
        "fabric.health.incorrect_configuration",
        "N/A",
        "N/A",
    ),
    ("hostname", "hostname", "[N/A]", "[N/A]"),
    (
        "edpp_multiplier",
        "edpp_multiplier [%]",
        "100.00 %",
        "[N/A]",
    ),
    (
        "power_smoothing.primary_power_floor",
        "power_smoothing.primary_power_floor [W]",
        "[N/A]",
        "[N/A]",
    ),
    (
        "power_smoothing.window_multiplier",
        "power_smoothing.window_multiplier [ms]",
        "[N/A]",
        "[N/A]",
    ),
    (
        "pcie.link.gen.hostmax",
        "pcie.link.gen.hostmax",
        "[N/A]",
        "[N/A]",
    ),
    (
        "platform.chassis_serial_number",
        "platform.chassis_serial_number",
        "",
        "",
    ),
    ("platform.slot_number", "platform.slot_number", "0", "0"),
    ("platform.tray_index", "platform.tray_index", "0", "0"),
    ("platform.host_id", "platform.host_id", "1", "1"),
    (
        "platform.peer_type",
        "platform.peer_type",
        "Direct Connected",
        "Direct Connected",
    ),
    ("platform.module_id", "platform.module_id", "7", "1"),
    (
        "platform.gpu_fabric_guid",
        "platform.gpu_fabric_guid",
        "0x0000000000000000",
        "0x0000000000000000",
    ),
    (
        "module.power.draw.average",
        "module.power.draw.average [W]",
        "[N/A]",
        "[N/A]",
    ),
    (
        "module.enforced.power.limit",
        "module.enforced.power.limit [W]",
        "[N/A]",
        "[N/A]",
    ),
];
