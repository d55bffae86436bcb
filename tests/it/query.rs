//! The options of nvidia-smi. The expected output was copied from the real nvidia-smi on an H100
//! (driver 590.48.01) and on a `GeForce` RTX 2080 Super (595.71.05).

use std::io::BufRead;
use std::process::Stdio;

use fake_nvml::{
    Clocks, Ecc, Fabric, Gpu, GpuProcess, Inforom, Memory, Pcie, Power, ProcessKind, Utilization,
    World,
};

use crate::host::{GIB, Host};
use crate::process::{ChildProcess, wait_until};

const OK: i32 = 0;
const USAGE: i32 = 2;
const NO_DRIVER: i32 = 3;
const PARTIAL: i32 = 5;
const NOTHING_FOUND: i32 = 6;

const MIB: u64 = 1 << 20;
const DEPRECATED: &str = "[Requested functionality has been deprecated]";

/// Makes a GPU an idle H100.
fn set_h100(gpu: &mut Gpu) {
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
fn set_rtx_2080(gpu: &mut Gpu) {
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

fn host() -> Host {
    host_with_driver("590.48.01")
}

fn host_with_driver(driver: &str) -> Host {
    let mut host = Host::new(["H100", "RTX-4090"]);
    host.change(|world: &mut World| {
        driver.clone_into(&mut world.driver);
        set_h100(&mut world.gpus[0]);
        set_rtx_2080(&mut world.gpus[1]);
    });
    host
}

/// Name in the query, header, and the answers of the H100 and of the `GeForce`.
const FIELDS: &[(&str, &str, &str, &str)] = &[
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

#[test]
fn every_field_is_written_as_nvidia_smi_writes_it() {
    let host = host();
    let names: Vec<&str> = FIELDS.iter().map(|(name, ..)| *name).collect();
    let output = host.run([&format!("--query-gpu={}", names.join(",")), "--format=csv"]);
    assert_eq!((output.code, output.stderr.as_str()), (OK, ""));
    let text = output.text();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split(", ").collect())
        .collect();
    assert_eq!(
        rows.iter().map(Vec::len).collect::<Vec<_>>(),
        [names.len(); 3],
        "{text}"
    );
    let answers: Vec<_> = (0..names.len())
        .map(|at| (names[at], rows[0][at], rows[1][at], rows[2][at]))
        .collect();
    let wrong: Vec<_> = answers
        .iter()
        .zip(FIELDS)
        .filter(|(answer, expected)| answer != expected)
        .collect();
    assert!(wrong.is_empty(), "answer, expected: {wrong:#?}");
}

/// Newer drivers answer these fields with "deprecated".
#[test]
fn older_drivers_answer_withdrawn_fields() {
    let fields = "--query-gpu=display_mode,clocks.applications.gr,clocks.default_applications.mem";
    let answers = |driver| {
        host_with_driver(driver)
            .run([fields, "--format=csv,noheader"])
            .text()
    };
    assert_eq!(
        answers("535.86.05"),
        "Enabled, 1980 MHz, 2619 MHz\nEnabled, [N/A], [N/A]\n"
    );
    let deprecated = [DEPRECATED; 3].join(", ");
    assert_eq!(
        answers("590.48.01"),
        format!("{deprecated}\n{deprecated}\n")
    );
}

/// A module of GPU and CPU has power fields of its own. The health of a fabric has a field for each
/// problem.
#[test]
fn module_power_and_fabric_are_shown_where_they_exist() {
    let mut host = Host::new(["GH200"]);
    // Bandwidth degraded, no route recovery, a route unhealthy.
    let health = 1 | 2 << 2 | 1 << 4;
    host.change(|world| {
        world.gpus[0].fabric = Some(Fabric {
            state: 3,
            clique: 7,
            health,
            summary: 2,
            status: 0,
        });
    });
    let fields = "module.power.draw.average,module.power.max_limit,fabric.cliqueId,fabric.health.summary,\
        fabric.health.bandwidth,fabric.health.route_recovery_in_progress,fabric.health.route_unhealthy,\
        fabric.health.access_timeout_recovery";
    let output = host.run([&format!("--query-gpu={fields}"), "--format=csv,noheader"]);
    assert_eq!(
        output.text(),
        "731.40 W, 1000.00 W, 7, Unhealthy, Degraded, False, True, N/A\n"
    );
    host.change(|world| {
        world.gpus[0].fabric = Some(Fabric {
            state: 2,
            ..Fabric::default()
        });
    });
    let output = host.run([
        "--query-gpu=fabric.state,fabric.status",
        "--format=csv,noheader",
    ]);
    assert_eq!(output.text(), "In Progress, N/A\n");
}

/// Driver 575 added three of the counters; driver 580.82 renumbered their NVML field IDs.
#[test]
fn clock_event_counters_are_read_from_old_and_new_drivers() {
    const OLD: &str = "1, 2, [N/A], [N/A], [N/A]\n";
    const NEW: &str = "1, 2, 3, 4, 5\n";
    for (driver, expected) in [
        ("550.54.15", OLD),
        ("570.86.16", OLD),
        ("575.51.03", NEW),
        ("580.65.06", NEW),
        ("580.95.05", NEW),
        ("590.48.01", NEW),
    ] {
        let mut host = host_with_driver(driver);
        host.change(|world| {
            let nanoseconds = [
                (74, 1_000),
                (76, 2_000),
                (251, 3_000),
                (252, 4_000),
                (253, 5_000),
            ];
            world.gpus[0].throttle_ns = nanoseconds.into();
        });
        let names = [
            "sw_power_cap",
            "sync_boost",
            "sw_thermal_slowdown",
            "hw_thermal_slowdown",
            "hw_power_brake_slowdown",
        ];
        let fields = names
            .map(|name| format!("clocks_event_reasons_counters.{name}"))
            .join(",");
        let output = host.run([
            &format!("--query-gpu={fields}"),
            "--format=csv,noheader,nounits",
            "-i",
            "0",
        ]);
        assert_eq!(output.text(), expected, "{driver}");
    }
}

#[test]
fn help_lists_every_field_and_every_field_can_be_queried() {
    let host = host();
    let help = host.run(["--help-query-gpu"]);
    let text = help.text();
    let names: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with('"'))
        .flat_map(|line| line.split('"').skip(1).step_by(2))
        .collect();
    assert!(names.len() >= 230, "{}", names.len());
    assert!(FIELDS.iter().all(|(name, ..)| names.contains(name)));
    let output = host.run([
        &format!("--query-gpu={}", names.join(",")),
        "--format=csv,noheader",
    ]);
    assert_eq!((output.code, output.stderr.as_str()), (OK, ""));
    assert_eq!(
        output
            .text()
            .lines()
            .map(|line| line.split(", ").count())
            .collect::<Vec<_>>(),
        [names.len(); 2]
    );
}

#[test]
fn noheader_nounits_and_id_are_obeyed() {
    let host = host();
    let query = "--query-gpu=index,memory.total,power.draw,fan.speed";
    let query = |args: &[&str]| {
        let output = host.run([query].iter().chain(args).copied());
        (output.code, output.text())
    };
    let nounits = "0, 81559, 69.85, [N/A]\n1, 8192, 111.50, 38\n";
    assert_eq!(
        query(&["--format=csv,noheader,nounits"]),
        (OK, nounits.to_owned())
    );
    let head = "index, memory.total [MiB], power.draw [W], fan.speed [%]\n";
    assert_eq!(
        query(&["--format=csv,nounits"]),
        (OK, format!("{head}{nounits}"))
    );
    let uuid = host
        .run(["--query-gpu=uuid", "--format=csv,noheader", "-i", "1"])
        .text();
    for id in ["1", "00000000:0C:00.0", "0c:00.0", uuid.trim_end()] {
        assert_eq!(
            query(&["--format=csv,noheader", "-i", id]),
            (OK, "1, 8192 MiB, 111.50 W, 38 %\n".to_owned()),
            "{id}"
        );
    }
    assert_eq!(
        query(&["--format=csv, noheader, nounits", "-i", "0, 1"]),
        (OK, nounits.to_owned())
    );
    assert_eq!(
        query(&["--format=csv,noheader", "--id=9"]),
        (NOTHING_FOUND, String::new())
    );
}

#[test]
fn invalid_queries_are_named() {
    let host = host();
    let output = host.run(["--query-gpu=index,nonsense", "--format=csv"]);
    assert_eq!(
        (output.code, output.stderr.as_str()),
        (
            USAGE,
            "gputop: Field \"nonsense\" is not a valid field to query; see gputop --help-query-gpu\n"
        )
    );
    let output = host.run(["--format=csv"]);
    assert_eq!(
        (output.code, output.stderr.lines().count()),
        (USAGE, 1),
        "{}",
        output.stderr
    );
    assert!(
        output.stderr.contains("--format go with --query-gpu"),
        "{}",
        output.stderr
    );
    let output = host.run(["--query-gpu=index", "-i", "9"]);
    assert_eq!(
        (output.code, output.text(), output.stderr.as_str()),
        (
            NOTHING_FOUND,
            String::new(),
            "gputop: no such GPU here: 9\n"
        )
    );
    let output = host.run([
        "--query-gpu=index",
        "--nvml-lib",
        "/nowhere/libnvidia-ml.so.1",
    ]);
    assert_eq!((output.code, output.text()), (NO_DRIVER, String::new()));
    assert!(
        output.stderr.contains("/nowhere/libnvidia-ml.so.1"),
        "{}",
        output.stderr
    );
    let output = host.run(["--query-gpu=index", "--format=xml"]);
    assert_eq!(
        (output.code, output.stderr.as_str()),
        (
            USAGE,
            "gputop: `xml` is no format; these are: csv, noheader, nounits\n"
        )
    );
}

#[test]
fn timestamps_are_local_and_have_milliseconds() {
    let host = host();
    let text = host
        .run(["--query-gpu=timestamp", "--format=csv,noheader", "-i", "0"])
        .text();
    let shape: String = text
        .trim_end()
        .chars()
        .map(|character| {
            if character.is_ascii_digit() {
                '0'
            } else {
                character
            }
        })
        .collect();
    assert_eq!(shape, "0000/00/00 00:00:00.000");
    let mut command = host.gputop(["--query-gpu=timestamp", "--format=csv,noheader", "-i", "0"]);
    let there = crate::process::run(command.env("TZ", "XYZ-9")).text();
    assert_ne!(there[..13], text[..13], "nine hours later");
}

#[test]
fn a_lost_gpu_never_answers_with_old_values() {
    let mut host = host();
    host.change(|world| world.gpus[1].lost = true);
    let output = host.run([
        "--query-gpu=index,memory.used,power.draw",
        "--format=csv,noheader",
    ]);
    assert_eq!(output.code, PARTIAL);
    assert_eq!(
        output.text(),
        "0, 0 MiB, 69.85 W\n1, [GPU is lost], [GPU is lost]\n"
    );
}

#[test]
fn compute_processes_are_listed_and_graphics_processes_are_not() {
    let mut host = host();
    let pid = host.start_sleep(0, 19 * GIB);
    host.add_process(
        1,
        GpuProcess {
            kinds: vec![ProcessKind::Graphics],
            ..GpuProcess::new(pid, GIB)
        },
    );
    let output = host.run([
        "--query-compute-apps=gpu_name,pid,name,used_memory",
        "--format=csv",
    ]);
    let expected = format!(
        "gpu_name, pid, process_name, used_gpu_memory [MiB]\nNVIDIA H100 80GB HBM3, {pid}, sleep, 19456 MiB\n"
    );
    assert_eq!((output.code, output.text()), (OK, expected));
    let output = host.run([
        "--query-compute-apps=pid,used_gpu_memory",
        "--format=csv,noheader,nounits",
    ]);
    assert_eq!(output.text(), format!("{pid}, 19456\n"));
    let help = host.run(["--help-query-compute-apps"]).text();
    assert!(
        help.contains("\"used_gpu_memory\" or \"used_memory\""),
        "{help}"
    );
}

#[test]
fn list_shows_gpus_and_mig_instances() {
    let host = Host::new(["H100", "A100-MIG"]);
    let text = host.run(["-L"]).text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-1111-2222-3333-000000000000)"
    );
    assert!(
        lines[1].starts_with("GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-00000001-"),
        "{text}"
    );
    assert!(
        lines[2].starts_with("  MIG 3g.20gb     Device  0: (UUID: MIG-"),
        "{text}"
    );
    assert!(lines[3].contains(" Device  1: (UUID: MIG-"), "{text}");
}

#[test]
fn a_loop_prints_the_header_once() {
    let host = host();
    let mut command = host.gputop([
        "--query-gpu=index,temperature.gpu",
        "--format=csv",
        "-i",
        "0",
        "-l",
        "0.1",
    ]);
    let mut gputop = ChildProcess::spawn(
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null()),
    );
    let lines =
        std::io::BufReader::new(gputop.child().stdout.take().expect("stdout is piped")).lines();
    let lines: Vec<String> = lines
        .take(4)
        .map(|line| line.expect("line can be read"))
        .collect();
    assert_eq!(lines, ["index, temperature.gpu", "0, 41", "0, 41", "0, 41"]);
}

/// `-lms` is nvidia-smi's loop in milliseconds, `-f` its output file.
#[test]
fn a_loop_of_milliseconds_goes_into_a_file_once_an_interval() {
    let host = host();
    let file = host.path("log.csv");
    let path = file.to_str().expect("the path is UTF-8");
    let mut command = host.gputop([
        "--query-gpu=timestamp",
        "--format=csv,noheader",
        "-i",
        "0",
        "-lms",
        "600",
        "-f",
        path,
    ]);
    let _gputop = ChildProcess::spawn(
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    );
    let text = || std::fs::read_to_string(&file).unwrap_or_default();
    wait_until("four lines", || text().lines().count() > 4);
    let text = text();
    let ms = |line: &str| {
        let [hour, minute, second, ms] = [11, 14, 17, 20].map(|at| {
            line[at..]
                .split([':', '.'])
                .next()
                .expect("a part")
                .to_owned()
        });
        let number = |text: String| text.parse::<u64>().unwrap_or_else(|_| panic!("{line}"));
        ((number(hour) * 60 + number(minute)) * 60 + number(second)) * 1000 + number(ms)
    };
    let times: Vec<u64> = text.lines().take(4).map(ms).collect();
    // The agent's second pass follows the first one at once. It must not cause a line of its own.
    assert!(
        times
            .windows(2)
            .all(|pair| (pair[1] + 86_400_000 - pair[0]) % 86_400_000 >= 300),
        "{text}"
    );
}

#[test]
fn unsupported_nvidia_smi_options_name_the_replacement() {
    let host = host();
    for (args, words) in [
        (
            &["--query-accounted-apps=pid", "--format=csv"][..],
            "gputop analyze",
        ),
        (&["-q"], "--help-query-gpu"),
        (&["dmon", "-c", "1"], "gputop --csv -l 1"),
        (&["pmon"], "gputop --once -l 1"),
        (&["topo", "-m"], "page"),
        (&["-i", "0", "-pl", "300"], "changes no setting"),
    ] {
        let output = host.run(args.iter().copied());
        assert_eq!(
            (output.code, output.stderr.lines().count()),
            (2, 1),
            "{args:?}: {}",
            output.stderr
        );
        assert!(output.stderr.contains(words), "{}", output.stderr);
    }
    // Other unknown options get clap's message.
    assert!(host.run(["--bogus"]).stderr.contains("unexpected argument"));
}

#[test]
fn csv_has_the_names_and_units_of_json() {
    let host = host();
    let text = host.run(["--csv"]).text();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(
        rows[0][..6],
        ["time", "host", "unix_time_ms", "index", "uuid", "name"]
    );
    assert!(
        rows[1][0].len() == "2026-07-14T10:12:38.696+02:00".len() && rows[1][0].contains('T'),
        "{text}"
    );
    assert!(!rows[1][1].is_empty(), "the host has a name: {text}");
    let at = |name: &str| {
        rows[0]
            .iter()
            .position(|column| *column == name)
            .unwrap_or_else(|| panic!("no {name} in {text}"))
    };
    assert_eq!(rows[2][at("memory_total_bytes")], (8192 * MIB).to_string());
    assert_eq!(rows[2][at("sm_utilization_percent")], "8");
    assert_eq!(
        rows[1][at("power_watts")],
        "69.9",
        "an f32 as f64 has noise"
    );
    assert_eq!(rows[1].len(), rows[0].len(), "{text}");
}
