//! GPUs that report little: with the host's memory, under Windows, in a virtual machine, on a
//! Jetson. Missing values are `N/A`, and never 0.

use serde_json::Value;

use crate::cli::json;
use crate::host::{GIB, Host};
use crate::terminal::{ENTER, ESC, TAB, Terminal};

/// Checks that readings of the first GPU are missing because they are unsupported. `group` is
/// `load` or `health`.
#[track_caller]
fn check_unsupported(line: &Value, group: &str, names: &[&str]) {
    let group = &line["gpus"][0][group];
    for name in names {
        assert_eq!(group[name], Value::Null, "{name}: {group:#}");
        assert_eq!(group["missing"][name], "unsupported", "{name}: {group:#}");
    }
}

/// Returns the output of `--json`, which must succeed.
fn json_line(host: &Host) -> Value {
    let output = host.run(["--json"]);
    assert_eq!(output.code, 0, "{}{}", output.stderr, output.text());
    json(&output)
}

#[test]
fn a_gpu_that_shares_the_host_s_memory_reports_none() {
    let mut host = Host::new(["GB10"]);
    let pid = host.start_sleep(0, 5 * GIB).to_string();
    let line = json_line(&host);
    check_unsupported(
        &line,
        "load",
        &[
            "memory_used_bytes",
            "memory_free_bytes",
            "memory_total_bytes",
        ],
    );
    check_unsupported(
        &line,
        "health",
        &[
            "power_limit_watts",
            "memory_clock_hertz",
            "fan_speed_percent",
            "ecc_corrected_errors",
        ],
    );
    // The memory of each process is reported.
    assert_eq!(
        line["gpus"][0]["processes"][0]["memory_used_bytes"],
        5 * GIB
    );
    // Its memory is the host's.
    let (shared, load) = (&line["gpus"][0]["shared_memory"], &line["host"]["load"]);
    assert_eq!(
        (&shared["used_bytes"], &shared["total_bytes"]),
        (&load["memory_used_bytes"], &load["memory_total_bytes"])
    );
    assert!(
        shared["total_bytes"]
            .as_u64()
            .is_some_and(|total| total > 0),
        "{shared}"
    );
    let mut terminal = Terminal::start_at(&host, 120, 40, []);
    terminal.wait_for(&pid);
    terminal.wait_for("64%");
    terminal.wait_for(" root sleep");
    let gpu = terminal.line_starting_with(" 0 GB10");
    assert!(
        gpu.contains(" shared ") && gpu.contains("41W") && gpu.contains(" root sleep"),
        "{gpu}"
    );
    assert!(
        !terminal.text().contains("unaccounted"),
        "unknown memory is not unaccounted: {}",
        terminal.text()
    );
    terminal.keys(&format!("{TAB}i"));
    terminal.wait_for(
        "N/A: the driver reports none of its own, as for a GPU that shares the memory of the host",
    );
    terminal.wait_for("the host's memory too, by ATS");
    terminal.keys(ESC);
    terminal.wait_for(&pid);
    terminal.quit();
    let table = host.run(["--once"]).text();
    assert!(table.contains("GB10  shared:"), "{table}");
    let plain = host.run(["--plain"]).text();
    assert!(
        plain.contains("in use of the host's memory, which it shares"),
        "{plain}"
    );
}

#[test]
fn under_wsl_processes_are_listed_without_memory() {
    let mut host = Host::new(["WSL"]);
    let pid = host.start_sleep(0, 5 * GIB).to_string();
    let line = json_line(&host);
    let gpu_process = &line["gpus"][0]["processes"][0];
    assert_eq!(gpu_process["memory_used_bytes"], Value::Null);
    assert_eq!(gpu_process["missing"]["memory_used_bytes"], "unsupported");
    let mut terminal = Terminal::start_at(&host, 120, 40, []);
    terminal.wait_for(&pid);
    let process = terminal.line_starting_with("0 ");
    assert!(
        process.contains("N/A") && !process.contains("0 B"),
        "{process}"
    );
    terminal.keys(ENTER);
    terminal.wait_for("N/A (the driver does not say what one process holds)");
    terminal.keys(ESC);
    terminal.wait_for("COMMAND");
    terminal.quit();
    let apps = host
        .run([
            "--query-compute-apps=pid,used_memory",
            "--format=csv,noheader",
        ])
        .text();
    assert_eq!(apps.trim(), format!("{pid}, [N/A]"));
}

#[test]
fn in_a_virtual_machine_temperature_and_power_are_missing() {
    let mut host = Host::new(["VGPU"]);
    let pid = host.start_sleep(0, 2 * GIB).to_string();
    let line = json_line(&host);
    check_unsupported(
        &line,
        "load",
        &[
            "temperature_celsius",
            "power_watts",
            "sm_clock_hertz",
            "throttle_reasons",
        ],
    );
    check_unsupported(
        &line,
        "health",
        &[
            "pcie_generation",
            "remapped_rows_pending",
            "recovery_action",
        ],
    );
    let mut terminal = Terminal::start_at(&host, 120, 60, []);
    terminal.wait_for(&pid);
    terminal.wait_for("31%");
    let gpu = terminal.line_starting_with(" 0 A40-24Q");
    assert!(
        gpu.contains("2.0/24.0G") && gpu.contains(" health unknown "),
        "{gpu}"
    );
    terminal.keys(&format!("{TAB}i"));
    terminal.wait_until("the missing readings", |screen| {
        let text = screen.contents();
        text.split("Not reported by")
            .nth(1)
            .is_some_and(|list| list.contains("temperature") && list.contains("power limit"))
    });
    terminal.keys(ESC);
    terminal.wait_for(&pid);
    terminal.quit();
}

#[test]
fn a_jetson_has_a_name_and_no_invented_values() {
    let host = Host::new(["ORIN"]);
    let line = json_line(&host);
    check_unsupported(
        &line,
        "load",
        &[
            "memory_used_bytes",
            "sm_utilization_percent",
            "temperature_celsius",
            "power_watts",
        ],
    );
    let table = host.run(["--once"]).text();
    let gpu = table
        .lines()
        .find(|line| line.contains("Orin"))
        .unwrap_or_default()
        .to_owned();
    assert_eq!(
        gpu.split_whitespace().collect::<Vec<_>>().join(" "),
        "0 Orin (nvgpu) N/A N/A N/A N/A unknown"
    );
    let plain = host.run(["--plain"]).text();
    assert!(
        plain.contains("memory not reported of not reported in use"),
        "{plain}"
    );
    assert_eq!(host.run(["free"]).code, 11, "whether it is free is unknown");
}

#[test]
fn a_gpu_on_one_module_with_a_cpu_says_so() {
    let mut host = Host::new(["GH200"]);
    let pid = host.start_sleep(0, 40 * GIB).to_string();
    assert_eq!(
        json_line(&host)["gpus"][0]["load"]["memory_total_bytes"],
        97_871_u64 << 20
    );
    let mut terminal = Terminal::start_at(&host, 120, 90, []);
    terminal.wait_for(&pid);
    terminal.keys(&format!("{TAB}i"));
    terminal.wait_for("the host's memory too, by ATS");
    terminal.keys(ESC);
    terminal.wait_for(&pid);
    terminal.quit();
}

#[test]
fn a_mig_instance_has_the_health_of_its_gpu() {
    const POWER_CAP: u64 = 4;
    let mut host = Host::new(["A100-MIG"]);
    host.change(|world| world.gpus[0].throttle = Some(POWER_CAP));
    let mut terminal = Terminal::start_at(&host, 120, 30, ["--interval", "100ms"]);
    terminal.wait_until("the GPU and its three instances", |screen| {
        let text = screen.contents();
        text.lines()
            .filter(|line| line.contains("power cap"))
            .count()
            == 4
    });
    terminal.wait_until_gone("unknown");
    terminal.quit();
}
