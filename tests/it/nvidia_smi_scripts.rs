//! Scripts that called nvidia-smi before: rare fields, output files, hosts without a GPU, and usage
//! errors.

use std::fs;

use fake_nvml::{Fabric, Fault, GpuSelector};

use crate::host::{GIB, Host};

const OK: i32 = 0;
const USAGE: i32 = 2;
const NO_DRIVER: i32 = 3;
const NO_GPU: i32 = 4;
const PARTIAL: i32 = 5;
const NOTHING_FOUND: i32 = 6;
const NONE_FREE: i32 = 11;

/// Returns the output of `--query-gpu` for these fields, without a header.
fn query(host: &Host, fields: &str) -> String {
    host.run([&format!("--query-gpu={fields}"), "--format=csv,noheader"])
        .text()
        .trim_end()
        .to_owned()
}

#[test]
fn an_output_file_keeps_its_content_until_there_is_an_answer() {
    let mut host = Host::new(["H100"]);
    let file = host.path("answers.csv");
    fs::write(&file, "old content\n").expect("/tmp has room");
    let path = file.to_str().expect("the path is UTF-8");
    let query = |host: &Host| host.run(["--query-gpu=index,name", "--format=csv", "-f", path]);
    let read = || fs::read_to_string(&file).expect("the file exists");
    host.change(|world| {
        world
            .faults
            .push(Fault::error("nvmlInit_v2", "DRIVER_NOT_LOADED"));
    });
    assert_eq!(
        (query(&host).code, read().as_str()),
        (NO_DRIVER, "old content\n")
    );
    host.change(|world| world.faults.clear());
    assert_eq!(
        (query(&host).code, read().as_str()),
        (OK, "index, name\n0, NVIDIA H100 80GB HBM3\n")
    );
    let output = host.run(["--query-gpu=index", "--format=csv", "-f", "/nowhere/at all"]);
    assert_eq!(
        (output.code, output.stderr.lines().count()),
        (1, 1),
        "{}",
        output.stderr
    );
    assert!(
        output.stderr.contains("cannot write /nowhere/at all"),
        "{}",
        output.stderr
    );
}

#[test]
fn power_smoothing_is_reported_for_boards_that_have_it() {
    let mut host = Host::new(["H100"]);
    let fields = "edpp_multiplier,power_smoothing.delayed_power_smoothing_supported,\
        power_smoothing.primary_power_floor,power_smoothing.window_multiplier,\
        power_smoothing.curr_profile.primary_floor_act_offset,power_smoothing.admin_override.secondary_power_floor";
    host.change(|world| {
        "590.48.01".clone_into(&mut world.driver);
        world.gpus[0].fields = [
            (274, 95),
            (280, 1),
            (275, 300),
            (279, 5),
            (264, 2),
            (284, 40),
        ]
        .into();
    });
    assert_eq!(
        query(&host, fields),
        "95.00 %, Yes, 300 W, 5 ms, 40 W, [N/A]"
    );
    // Older drivers use these field numbers for other fields, or for none.
    host.change(|world| "580.95.05".clone_into(&mut world.driver));
    assert_eq!(query(&host, fields), ["[N/A]"; 6].join(", "));
}

/// The 25 fields that nvidia-smi has since driver 610.
#[test]
fn the_fields_of_driver_610_are_answered() {
    let mut host = Host::new(["H100"]);
    host.change(|world| {
        "610.43.02".clone_into(&mut world.driver);
        world.gpus[0].fields = [(254, 900), (258, 99), (264, 3), (261, 50), (268, 7)].into();
    });
    let smoothing = [
        "enabled",
        "priv_level",
        "imm_ramp_down",
        "tmp_floor",
        "tmp_ceil",
        "hw_lifetime_remaining_percent",
        "max_percent_tmp_floor",
        "min_percent_tmp_floor",
        "num_preset_profiles",
        "active_profile",
        "curr_profile.percent_tmp_floor",
        "curr_profile.ramp_up_rate",
        "curr_profile.ramp_down_rate",
        "curr_profile.ramp_down_hysteresis",
        "admin_override.percent_tmp_floor",
        "admin_override.ramp_up_rate",
        "admin_override.ramp_down_rate",
        "admin_override.ramp_down_hysteresis",
        "soc_power_smoothing_enabled",
    ];
    let base =
        ["current", "requested", "default", "min", "max"].map(|name| format!("gpu.base.{name}"));
    let names = smoothing
        .map(|name| format!("power_smoothing.{name}"))
        .into_iter()
        .chain(base);
    let names: Vec<String> = names.chain(["bbx.time_run".to_owned()]).collect();
    let values = query(&host, &names.join(","));
    let values: Vec<&str> = values.split(", ").collect();
    assert_eq!((names.len(), values.len()), (25, 25));
    assert_eq!(
        values[..10],
        [
            "Enabled", "0", "Disabled", "[N/A]", "900 W", "99 %", "[N/A]", "[N/A]", "[N/A]", "3"
        ]
    );
    assert_eq!(
        (values[11], values[17], values[24]),
        ("50 mW/s", "7 ms", "[N/A]")
    );
}

#[test]
fn remapped_rows_are_listed_for_gpus_that_have_them() {
    let host = Host::new(["H100", "RTX-4090"]);
    let output = host.run([
        "--query-remapped-rows=gpu_name,remapped_rows.correctable,remapped_rows.pending",
        "--format=csv",
    ]);
    let expected = "gpu_name, remapped_rows.correctable, remapped_rows.pending\nNVIDIA H100 80GB HBM3, 0, No\n";
    assert_eq!(
        (output.code, output.text().as_str()),
        (OK, expected),
        "{}",
        output.stderr
    );
    assert!(
        host.run(["--help-query-remapped-rows"])
            .text()
            .contains("\"remapped_rows.histogram.none\"")
    );
}

#[test]
fn habits_of_nvidia_smi_are_answered_in_one_sentence() {
    let host = Host::new(["H100"]);
    let settings = "changes no setting";
    for (line, words) in [
        ("-lgc 1000,1500", settings),
        ("-i 0 -lmc=5000", settings),
        ("--reset-gpu-clocks", settings),
        ("--multi-instance-gpu=1", settings),
        ("mig -cgi 9", settings),
        ("mig -lgi", "gputop -L"),
        ("-a", "--help-query-gpu"),
        ("-qx", "--help-query-gpu"),
        ("vgpu -q", "virtual GPUs"),
        ("conf-compute -f", "protected_memory"),
        (
            "--query-gpu=index, name --format=csv",
            "`name` after --query-gpu",
        ),
        ("--format=csv noheader", "`noheader` after --format"),
        ("-i 0 1 --csv", "`1` after --id"),
    ] {
        let output = host.run(line.split(' '));
        assert_eq!(
            (output.code, output.stderr.lines().count()),
            (USAGE, 1),
            "{line}: {}",
            output.stderr
        );
        assert!(output.stderr.contains(words), "{line}: {}", output.stderr);
    }
    let output = host.run(["-l", "often"]);
    assert!(
        output.stderr.contains("not a number of seconds"),
        "{}",
        output.stderr
    );
}

#[test]
fn a_link_called_nvidia_smi_tells_its_version_as_nvidia_smi_does() {
    let host = Host::new(["H100"]);
    let link = host.path("nvidia-smi");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_gputop"), &link).expect("/tmp has room");
    let output = crate::process::run(
        host.set_environment(std::process::Command::new(link).arg("--version")),
    );
    let expected = "NVIDIA-SMI version  : 550.54.15\nNVML version        : 550.54\nDRIVER version      : 550.54.15\n\
        CUDA Version        : 12.4\n";
    assert_eq!(
        (output.code, output.text().as_str()),
        (OK, expected),
        "{}",
        output.stderr
    );
    assert!(host.run(["--version"]).text().starts_with("gputop "));
}

#[test]
fn inactive_remapped_rows_are_reported_since_driver_580() {
    let mut host = Host::new(["H100"]);
    let fields = "remapped_rows.correctable_inactive,remapped_rows.uncorrectable_inactive";
    host.change(|world| world.gpus[0].fields = [(301, 2), (302, 1)].into());
    for (driver, expected) in [("570.86.10", "[N/A], [N/A]"), ("580.159.04", "2, 1")] {
        host.change(|world| driver.clone_into(&mut world.driver));
        assert_eq!(query(&host, fields), expected, "{driver}");
    }
}

#[test]
fn a_fabric_reports_its_problems() {
    let mut host = Host::new(["H100"]);
    let fields = "fabric.state,fabric.status,fabric.health.incorrect_configuration,fabric.health.partition_assigned";
    let health = 4 << 8 | 2 << 12;
    host.change(|world| {
        world.gpus[0].fabric = Some(Fabric {
            state: 3,
            health,
            ..Fabric::default()
        });
    });
    assert_eq!(
        query(&host, fields),
        "Completed, Success, No Partition, False"
    );
    host.change(|world| {
        world.gpus[0].fabric = Some(Fabric {
            state: 3,
            status: 999,
            ..Fabric::default()
        });
    });
    assert_eq!(query(&host, fields), "Completed, Unknown Error, N/A, N/A");
}

/// The numbers are nvml.h's; the last two came with driver 615.
#[test]
fn every_recovery_action_has_its_name() {
    let mut host = Host::new(["H100"]);
    for (action, name) in [
        (0, "None"),
        (1, "Reset"),
        (2, "Reboot"),
        (3, "Drain P2P"),
        (4, "Drain and Reset"),
        (5, "Recover IMEX Domain"),
        (6, "Bus Reset"),
        (7, "System Reboot"),
    ] {
        host.change(|world| world.gpus[0].recovery_action = Some(action));
        assert_eq!(query(&host, "gpu_recovery_action"), name);
    }
}

/// As in nvidia-smi's output in public logs, `[GPU requires reset]` replaces only the values that
/// cannot be read. Memory and processes stay readable: the processes must be ended before the
/// reset.
#[test]
fn a_gpu_that_needs_a_reset_says_so_beside_its_readable_values() {
    let mut host = Host::idle(["H100", "H100"]);
    let pid = host.start_sleep(0, 3 * GIB);
    host.change(|world| {
        for function in [
            "nvmlDeviceGetUtilizationRates",
            "nvmlDeviceGetTemperatureV",
            "nvmlDeviceGetTemperature",
        ] {
            world.faults.push(Fault {
                gpu: Some(GpuSelector::Position(0)),
                ..Fault::error(function, "RESET_REQUIRED")
            });
        }
    });
    let output = host.run([
        "--query-gpu=index,temperature.gpu,utilization.gpu,memory.used",
        "--format=csv",
    ]);
    let head = "index, temperature.gpu, utilization.gpu [%], memory.used [MiB]";
    let rows: Vec<String> = output.text().lines().map(str::to_owned).collect();
    assert_eq!(
        rows[..2],
        [
            head,
            "0, [GPU requires reset], [GPU requires reset], 3072 MiB"
        ],
        "{}",
        output.stderr
    );
    assert!(
        rows[2].ends_with("%, 0 MiB") && output.code == PARTIAL,
        "{rows:?}"
    );
    let table = host.run(["--once"]).text();
    assert!(
        table.contains("needs reset") && table.contains(&pid.to_string()),
        "{table}"
    );
    assert!(
        table.contains("GPU 0 (00000000:1B:00.0) needs a reset: end its processes"),
        "{table}"
    );
    let free = host.run(["free"]).text();
    assert!(
        free.ends_with("CUDA_VISIBLE_DEVICES=1\n"),
        "the other GPU is free: {free}"
    );
}

/// A pod with one instance has no permission to read the memory of the whole GPU:
/// Stability-AI/StableSwarmUI#388.
#[test]
fn values_of_a_split_gpu_without_permission_say_so() {
    let mut host = Host::new(["A100-MIG"]);
    host.change(|world| {
        for function in ["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo"] {
            world.faults.push(Fault::error(function, "NO_PERMISSION"));
        }
    });
    let denied = ["[Insufficient Permissions]"; 3].join(", ");
    assert_eq!(
        query(
            &host,
            "utilization.gpu,utilization.memory,memory.total,memory.free,memory.used"
        ),
        format!("[N/A], [N/A], {denied}")
    );
}

/// A power limit that fails leaves the other fields readable: Quake4/MindMiner#627. So does a fan:
/// enkore/i3pystatus#850.
#[test]
fn a_field_that_fails_is_an_unknown_error_beside_the_others() {
    let mut host = Host::new(["RTX-4090"]);
    host.change(|world| {
        for function in [
            "nvmlDeviceGetPowerManagementDefaultLimit",
            "nvmlDeviceGetFanSpeed_v2",
        ] {
            world.faults.push(Fault::error(function, "UNKNOWN"));
        }
    });
    let figures = "power.limit,power.default_limit,fan.speed,pstate";
    assert_eq!(
        query(&host, figures),
        "450.00 W, [Unknown Error], [Unknown Error], P2"
    );
}

/// A process list that fails leaves the other readings.
#[test]
fn fields_are_reported_for_a_gpu_whose_processes_cannot_be_listed() {
    let mut host = Host::new(["H100"]);
    host.change(|world| {
        world.faults.push(Fault::error(
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "UNKNOWN",
        ));
    });
    assert_eq!(query(&host, "index,memory.used,pstate"), "0, 0 MiB, P0");
}

/// Memory that GPU and CPU share is not reported: unslothai/unsloth#10703. A Jetson reports no
/// temperature either.
#[test]
fn boards_without_their_own_memory_report_none() {
    let fields = "index,name,memory.total,memory.free,temperature.gpu";
    assert_eq!(
        query(&Host::new(["GB10"]), fields),
        "0, NVIDIA GB10, [N/A], [N/A], 58"
    );
    let jetson = query(&Host::new(["ORIN"]), fields);
    assert_eq!(jetson, "0, Orin (nvgpu), [N/A], [N/A], [N/A]");
}

/// NVIDIA/nvidia-container-toolkit#271. Without Windows there is no driver model.
#[test]
fn under_wsl_there_is_a_driver_model() {
    let fields = "driver_model.current,driver_model.pending";
    assert_eq!(query(&Host::new(["WSL"]), fields), "WDDM, WDDM");
    assert_eq!(query(&Host::new(["H100"]), fields), "[N/A], [N/A]");
}

#[test]
fn a_driver_that_finds_no_gpu_has_not_failed() {
    let mut host = Host::new(["H100"]);
    host.change(|world| {
        world
            .faults
            .push(Fault::error("nvmlInit_v2", "GPU_NOT_FOUND"));
    });
    for args in [
        vec!["--json"],
        vec!["--once"],
        vec!["--query-gpu=name", "--format=csv"],
        vec!["-L"],
        vec!["doctor"],
    ] {
        let output = host.run(args.iter().copied());
        assert_eq!(
            output.code,
            NO_GPU,
            "{args:?}: {}{}",
            output.text(),
            output.stderr
        );
    }
}

#[test]
fn an_option_that_a_subcommand_ignores_is_a_usage_error() {
    let host = Host::new(["H100"]);
    for (args, words) in [
        (["--once", "free"], "--once has no effect on free"),
        (["-L", "orphans"], "--list-gpus has no effect on orphans"),
        (["--csv", "doctor"], "--csv has no effect on doctor"),
    ] {
        let output = host.run(args);
        assert_eq!(
            (output.code, output.stderr.lines().count()),
            (USAGE, 1),
            "{}",
            output.stderr
        );
        assert!(
            output.stderr.contains(words) && output.stderr.contains("gputop"),
            "{}",
            output.stderr
        );
    }
    let output = host.run(["free", "-n", "0"]);
    assert!(
        output.code == USAGE && output.stderr.contains("whole number from 1"),
        "{}",
        output.stderr
    );
}

#[test]
fn an_unknown_id_is_reported_and_the_known_ones_are_printed() {
    let host = Host::new(["H100", "A100"]);
    let output = host.run([
        "--query-gpu=index",
        "--format=csv,noheader",
        "-i",
        "1,7,GPU-nobody",
    ]);
    assert_eq!(
        (output.code, output.text().as_str()),
        (NOTHING_FOUND, "1\n")
    );
    assert_eq!(output.stderr, "gputop: no such GPU here: 7,GPU-nobody\n");
}

#[test]
fn free_gives_a_job_at_most_one_mig_instance() {
    let host = Host::new(["A100-MIG"]);
    let one = host.run(["free"]);
    let line = "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=MIG-";
    assert!(
        one.code == OK && one.text().starts_with(line),
        "{}{}",
        one.text(),
        one.stderr
    );
    let two = host.run(["free", "-n", "2"]);
    assert!(
        two.code == NONE_FREE && two.stderr.contains("CUDA gives a process only one"),
        "{}{}",
        two.text(),
        two.stderr
    );
}

#[test]
fn doctor_reports_an_audit_log_that_cannot_be_written() {
    let host = Host::new(["H100"]);
    let file = host.path("a file");
    fs::write(&file, "").expect("/tmp has room");
    let mut command = host.gputop(["doctor"]);
    let output = crate::process::run(command.env("XDG_STATE_HOME", &file));
    let text = output.text();
    let line = text
        .lines()
        .find(|line| line.contains("audit log"))
        .unwrap_or_default();
    assert!(
        line.starts_with("warning") && line.contains("may not write"),
        "{text}"
    );
    assert!(!host.run(["doctor"]).text().contains("may not write"));
}
