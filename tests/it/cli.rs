//! Output without a terminal, and exit codes.

use std::process::{Command, Stdio};

use fake_nvml::Fault;
use serde_json::Value;

use crate::host::{GIB, Host};
use crate::process::{ChildProcess, Output, exit_code, run};
use crate::terminal::Terminal;

const OK: i32 = 0;
const USAGE: i32 = 2;
const NO_DRIVER: i32 = 3;
const NO_GPU: i32 = 4;
const PARTIAL: i32 = 5;

/// Parses the output, which must be one line of JSON.
#[track_caller]
pub(crate) fn json(output: &Output) -> Value {
    let text = output.text();
    assert_eq!(text.lines().count(), 1, "{text}\n{}", output.stderr);
    serde_json::from_str(&text).expect("the output is JSON")
}

/// The PIDs of the GPU processes.
fn gpu_processes(line: &Value) -> Vec<u64> {
    let gpus = line["gpus"].as_array().expect("a list").iter();
    let processes = gpus.flat_map(|gpu| gpu["processes"].as_array().expect("a list"));
    processes
        .filter_map(|process| process["pid"].as_u64())
        .collect()
}

/// The user of a process in the list of all processes.
fn process_user(line: &Value, pid: u32) -> Value {
    let processes = line["processes"].as_array().expect("a list");
    processes
        .iter()
        .find(|process| process["pid"] == pid)
        .expect("the process is listed")["facts"]["user"]
        .clone()
}

#[test]
fn the_table_lists_gpus_and_processes() {
    let mut host = Host::with_jitter(["H100", "A100"]);
    let pid = host.start_sleep(1, 5 * GIB);
    for args in [["--once"].as_slice(), &[]] {
        let output = host.run(args.iter().copied());
        let text = output.text();
        assert_eq!(output.code, OK, "{text}{}", output.stderr);
        for word in ["H100", "A100", &pid.to_string(), "sleep 1000", "5.0"] {
            assert!(text.contains(word), "no {word} in\n{text}");
        }
        assert!(!text.contains('\x1b'), "{text:?}");
    }
}

#[test]
fn json_is_one_line_and_has_rates() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, 5 * GIB);
    let output = host.run(["--json"]);
    assert_eq!((output.code, output.stderr.as_str()), (OK, ""));
    let line = json(&output);
    assert_eq!(line["kind"], "full");
    let gpu_process = &line["gpus"][0]["processes"][0];
    assert_eq!(
        (&gpu_process["memory_used_bytes"], &gpu_process["command"]),
        (&(5 * GIB).into(), &"sleep 1000".into())
    );
    assert_eq!(gpu_process["user"], process_user(&line, pid), "{line:#}");
    assert_eq!(gpu_processes(&line), [u64::from(pid)]);
    let processes = line["processes"].as_array().expect("a list");
    let process = processes
        .iter()
        .find(|process| process["pid"] == pid)
        .expect("the process is listed");
    assert!(
        process["load"]["cpu_percent"].is_number(),
        "a rate needs two samples: {line:#}"
    );
    assert!(line["host"]["load"]["cpu_percent"].is_number(), "{line:#}");
    assert_eq!(line["gpus"][0]["facts"]["simulated"], false);
}

#[test]
fn with_a_loop_json_is_printed_until_an_interrupt() {
    let host = Host::with_jitter(["H100"]);
    let mut command = host.gputop(["--json", "-l", "0.2"]);
    let mut gputop = ChildProcess::spawn(
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null()),
    );
    let lines = std::io::BufReader::new(gputop.child().stdout.take().expect("stdout is piped"));
    let mut lines = std::io::BufRead::lines(lines);
    for _ in 0..3 {
        let line = lines
            .next()
            .expect("gputop prints another line")
            .expect("a pipe can be read");
        assert_eq!(
            serde_json::from_str::<Value>(&line).expect("the output is JSON")["kind"],
            "full"
        );
    }
    gputop.handle.signal(rustix::process::Signal::INT);
    assert_eq!(exit_code(gputop.wait()), 130);
}

#[test]
fn without_a_driver_the_reason_is_given_and_host_readings_remain() {
    let host = Host::with_jitter(["H100"]);
    let output = run(host
        .gputop(["--json"])
        .env_remove("GPUTOP_NVML_LIB")
        .env_remove("FAKE_NVML_WORLD"));
    if output.code == OK {
        return crate::print_note("skipped: this machine has a driver of its own");
    }
    assert_eq!(output.code, NO_DRIVER, "{}", output.stderr);
    let line = json(&output);
    assert!(
        line["host"]["load"]["memory_total_bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes > 0)
    );
    assert_eq!(line["driver"]["trouble"]["cause"], "no_library", "{line:#}");

    let output = host.run(["--once", "--nvml-lib", "/nowhere/libnvidia-ml.so.1"]);
    assert_eq!(output.code, NO_DRIVER);
    assert!(
        output.text().contains("/nowhere/libnvidia-ml.so.1"),
        "{}",
        output.text()
    );
}

#[test]
fn a_driver_that_fails_is_reported_with_the_cause() {
    for (error, exit, word) in [
        ("DRIVER_NOT_LOADED", NO_DRIVER, "no_driver"),
        ("LIB_RM_VERSION_MISMATCH", NO_DRIVER, "version_mismatch"),
        ("NO_PERMISSION", NO_DRIVER, "denied"),
    ] {
        let mut host = Host::with_jitter(["H100"]);
        host.change(|world| world.faults.push(Fault::error("nvmlInit_v2", error)));
        let output = host.run(["--json"]);
        let trouble = &json(&output)["driver"]["trouble"];
        assert_eq!(
            (output.code, trouble["cause"].as_str()),
            (exit, Some(word)),
            "{error}: {trouble:#}"
        );
        let output = host.run(["--once"]);
        assert_eq!(output.code, exit);
        let sentence = trouble["sentence"].as_str().expect("a sentence");
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert!(
            words(&output.text()).contains(&words(sentence)),
            "no `{sentence}` in\n{}",
            output.text()
        );
    }
}

#[test]
fn a_library_of_another_version_than_the_kernel_module_is_reported_with_both_versions() {
    let mut host = Host::with_jitter(["H100"]);
    host.change(|world| {
        world
            .faults
            .push(Fault::error("nvmlInit_v2", "LIB_RM_VERSION_MISMATCH"));
    });
    let library = host.install(&host.library, "libnvidia-ml.so.580.65.06");
    std::fs::write(host.path("nvidia-version"), "535.54.03\n").expect("/tmp has room");
    let output = run(host.gputop(["--json"]).env("GPUTOP_NVML_LIB", library));
    let sentence = json(&output)["driver"]["trouble"]["sentence"].to_string();
    let expected =
        "the NVIDIA library has version 580.65.06, and the kernel module has version 535.54.03";
    assert!(sentence.contains(expected), "{sentence}");
}

#[test]
fn a_dumb_terminal_gets_a_table_once() {
    let host = Host::new(["H100"]);
    let mut terminal = Terminal::run(host.gputop([]).env("TERM", "dumb"), 100, 24);
    terminal.wait_for("H100");
    assert_eq!(terminal.wait_for_exit().code(), Some(OK));
    let text = String::from_utf8_lossy(&terminal.bytes()).into_owned();
    assert!(!text.contains('\x1b'), "{text:?}");
}

#[test]
fn the_help_and_the_settings_file_name_the_same_settings_and_the_help_names_each_variable() {
    let help = Host::new([]).run(["--help"]).text();
    for word in [
        "gpu_view",
        "history",
        "config.toml",
        "screen.toml",
        "kills.jsonl",
        "recordings/",
        "ooms/",
    ] {
        assert!(help.contains(word), "{word} is not in\n{help}");
    }
    for word in [
        "GPUTOP_GPU_VIEW",
        "GPUTOP_PROBE_INTERVAL",
        "GPUTOP_ALERT_OOM_IN_S",
        "NO_COLOR",
        "TERM=dumb",
    ] {
        assert!(help.contains(word), "{word} is not in\n{help}");
    }
}

#[test]
fn without_proc_the_sentence_says_so() {
    let host = Host::new(["H100"]);
    let program = env!("CARGO_BIN_EXE_gputop");
    let mut command = Command::new("unshare");
    let script = format!(
        "umount -l /proc && exec {} --once",
        shell_words::quote(program)
    );
    host.set_environment(&mut command)
        .args(["-m", "sh", "-c", &script]);
    let output = run(&mut command);
    if !output.stderr.contains("gputop") {
        return crate::print_note(format_args!(
            "skipped: /proc cannot be unmounted here: {}",
            output.stderr
        ));
    }
    assert_eq!(output.code, 1, "{}", output.text());
    assert!(
        output
            .stderr
            .contains("cannot start the agent: /proc is not mounted"),
        "{}",
        output.stderr
    );
}

#[test]
fn a_file_that_is_no_library_is_reported() {
    let host = Host::with_jitter(["H100"]);
    std::fs::write(host.path("nonsense.so"), "no library").expect("/tmp has room");
    let path = host.path("nonsense.so");
    let output = host.run([
        "--json",
        "--nvml-lib",
        path.to_str().expect("the path is UTF-8"),
    ]);
    assert_eq!(output.code, NO_DRIVER);
    assert_eq!(json(&output)["driver"]["trouble"]["cause"], "not_loading");
}

#[test]
fn a_host_without_a_gpu_has_its_own_exit_code() {
    let host = Host::with_jitter([]);
    for args in [["--once"], ["--json"]] {
        let output = host.run(args);
        assert_eq!(output.code, NO_GPU, "{}{}", output.text(), output.stderr);
    }
}

#[test]
fn with_a_lost_gpu_the_result_is_partial_and_the_others_are_reported() {
    let mut host = Host::with_jitter(["H100", "H100"]);
    host.change(|world| world.gpus[0].falls_off_the_bus());
    let output = host.run(["--json"]);
    let line = json(&output);
    assert_eq!(output.code, PARTIAL);
    assert!(
        line["gpus"][1]["load"]["memory_used_bytes"].is_number(),
        "{line:#}"
    );
    let output = host.run(["--once"]);
    assert_eq!(output.code, PARTIAL);
    assert!(
        output.text().contains("fell off the bus"),
        "{}",
        output.text()
    );
}

#[test]
fn the_timeout_holds_whichever_call_hangs() {
    // One after the other: many at once miss the timeout on a busy machine.
    let all = [
        "*",
        "nvmlInit_v2",
        "nvmlDeviceGetCount_v2",
        "nvmlDeviceGetHandleByIndex_v2",
    ]
    .map(Fault::hang);
    let mut has_expired = false;
    for (fault, args) in all.into_iter().flat_map(|fault| {
        [
            (fault.clone(), ["--once", "--timeout", "0.9"]),
            (fault, ["--json", "--timeout", "900ms"]),
        ]
    }) {
        let mut host = Host::with_jitter(["H100", "H100"]);
        host.change(|world| world.faults.push(fault));
        let output = host.run(args);
        assert_eq!(output.code, PARTIAL, "{}{}", output.text(), output.stderr);
        let text = format!("{}{}", output.text(), output.stderr);
        // On a slow machine, the driver's own limit of a second ends first.
        let expired = text.contains("did not answer within");
        has_expired |= expired;
        assert!(expired || text.contains("has not answered"), "{text}");
    }
    assert!(has_expired, "the driver's limit ended first each time");
}

#[test]
fn wrong_arguments_are_usage_errors() {
    let host = Host::with_jitter(["H100"]);
    for args in [
        ["--colour"].as_slice(),
        &["--interval", "10ms"],
        &["--interval", "soon"],
        &["--interval", "1000000000000"],
        &["--timeout", "-1"],
        &["-l", "x"],
        &["--once", "--json"],
        &["trains"],
        &["--once", "schema"],
    ] {
        let output = host.run(args.iter().copied());
        assert_eq!(
            output.code,
            USAGE,
            "{args:?}: {}{}",
            output.text(),
            output.stderr
        );
        assert!(
            output.stderr.starts_with("error: ") && output.stdout.is_empty(),
            "{args:?}: {}",
            output.stderr
        );
    }
}

#[test]
fn help_and_version_succeed() {
    let host = Host::with_jitter(["H100"]);
    let help = host.run(["--help"]);
    assert_eq!(help.code, OK);
    for flag in [
        "--once",
        "--json",
        "--timeout",
        "--interval",
        "--demo",
        "--readonly",
        "--ascii",
        "--no-mouse",
        "schema",
    ] {
        assert!(help.text().contains(flag), "no {flag} in\n{}", help.text());
    }
    assert_eq!(
        host.run(["--version"]).text().trim_end(),
        concat!("gputop ", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn the_demo_is_marked_as_simulated() {
    let host = Host::with_jitter([]);
    let output = host.run(["--demo", "--json"]);
    assert_eq!(output.code, OK, "{}", output.stderr);
    let line = json(&output);
    let gpus = line["gpus"].as_array().expect("a list");
    assert!(
        !gpus.is_empty() && gpus.iter().all(|gpu| gpu["facts"]["simulated"] == true),
        "{line:#}"
    );
    assert!(
        !line["processes"].as_array().expect("a list").is_empty(),
        "{line:#}"
    );
    let fields = "--query-gpu=power.draw,power.limit,enforced.power.limit,power.max_limit";
    let output = host.run(["--demo", fields, "--format=csv,noheader,nounits"]);
    let rows: Vec<String> = output.text().lines().map(str::to_owned).collect();
    assert_eq!(rows.len(), gpus.len(), "{}", output.text());
    for row in rows {
        let watts: Vec<f64> = row
            .split(", ")
            .filter_map(|cell| cell.parse().ok())
            .collect();
        let [draw, limit, enforced, max] = watts[..] else {
            panic!("four amounts of power: {row}");
        };
        assert!(
            draw > 20.0 && draw <= limit && (limit - enforced).abs() < 0.01 && limit <= max,
            "{row}"
        );
    }
    let output = host.run(["--demo", "--once"]);
    assert!(
        output.text().to_lowercase().contains("simulated"),
        "{}",
        output.text()
    );
}

#[test]
fn an_old_driver_without_newer_functions_is_read() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, 5 * GIB);
    let missing = [
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetComputeRunningProcesses_v3",
    ];
    let old = host.path("old.so");
    fake_nvml::library_without(&missing, &old).expect("/tmp has room");
    host.library = old;
    let output = host.run(["--json"]);
    let line = json(&output);
    assert_eq!(output.code, OK, "{}{line:#}", output.stderr);
    assert_eq!(gpu_processes(&line), [u64::from(pid)]);
    assert!(
        line["gpus"][0]["load"]["memory_used_bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes >= 5 * GIB)
    );
}

#[test]
fn pids_are_right_for_every_size_of_list_entries() {
    for stride in [16, 24, 32] {
        let mut host = Host::with_jitter(["H100"]);
        let pids = [
            host.start_sleep(0, GIB),
            host.start_sleep(0, 2 * GIB),
            host.start_sleep(0, 3 * GIB),
        ];
        host.change(|world| world.stride = stride);
        let line = json(&host.run(["--json"]));
        assert_eq!(gpu_processes(&line), pids.map(u64::from), "stride {stride}");
    }
}

#[test]
fn the_schema_is_printed() {
    let output = run(Command::new(env!("CARGO_BIN_EXE_gputop")).arg("schema"));
    assert_eq!(output.code, OK);
    assert!(
        serde_json::from_str::<Value>(&output.text()).expect("the output is JSON")["$schema"]
            .is_string()
    );
}
