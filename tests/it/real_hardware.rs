//! Runs on real GPUs, in `tests/data/real/`: what nvidia-smi printed, and what gputop recorded in
//! the same seconds. `tests/gpu/anonymize.py` replaced what identifies the machine.

mod traces;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::cli::json;
use crate::host::Host;
use crate::process::{Output, run};

const H100: &str = "h100-80gb-hbm3-580";
const MIB: u64 = 1 << 20;

/// The path of a file of the run on the H100.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/real")
        .join(H100)
        .join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("cannot read {name}: {error}"))
}

/// Runs a subcommand on a recording of the H100.
#[track_caller]
fn run_on(recording: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gputop"));
    command
        .args(args)
        .arg(path(recording))
        .env("NO_COLOR", "1")
        .env("COLUMNS", "120")
        .env("XDG_STATE_HOME", "/nonexistent")
        .env("XDG_CONFIG_HOME", "/nonexistent");
    let output = run(&mut command);
    assert_eq!(output.code, 0, "{args:?}: {}", output.stderr);
    output
}

/// Parses `nvidia-smi -q` to values by their path: `FB Memory Usage > Total`.
fn parse_q(text: &str) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    let mut sections: Vec<&str> = Vec::new();
    for line in text.lines() {
        let depth = (line.len() - line.trim_start().len()) / 4;
        let (label, value) = match line.split_once(" : ") {
            Some((label, value)) => (label.trim(), Some(value.trim())),
            None => (line.trim(), None),
        };
        sections.truncate(depth.saturating_sub(1));
        if let Some(value) = value {
            let path: Vec<&str> = sections.iter().copied().chain([label]).collect();
            values
                .entry(path.join(" > "))
                .or_insert_with(|| value.to_owned());
        } else if depth > 0 {
            sections.push(label);
        }
    }
    values
}

/// Fields of `--query-gpu`, each with the line of `nvidia-smi -q` that has the same value. Other
/// fields of `platform` are 0 for this GPU in a query of nvidia-smi, too, and `N/A` in `-q` only.
const FIELDS: &[(&str, &str)] = &[
    ("name", "Product Name"),
    ("display_attached", "Display Attached"),
    ("display_active", "Display Active"),
    ("persistence_mode", "Persistence Mode"),
    ("addressing_mode", "Addressing Mode"),
    ("mig.mode.current", "MIG Mode > Current"),
    ("mig.mode.pending", "MIG Mode > Pending"),
    ("accounting.mode", "Accounting Mode"),
    ("accounting.buffer_size", "Accounting Mode Buffer Size"),
    ("driver_model.current", "Driver Model > Current"),
    ("serial", "Serial Number"),
    ("vbios_version", "VBIOS Version"),
    ("platform.module_id", "Platform Info > Module Id"),
    ("inforom.img", "Inforom Version > Image Version"),
    ("inforom.oem", "Inforom Version > OEM Object"),
    ("inforom.ecc", "Inforom Version > ECC Object"),
    ("inforom.pwr", "Inforom Version > Power Management Object"),
    ("gom.current", "GPU Operation Mode > Current"),
    ("c2c.mode", "GPU C2C Mode"),
    ("gpu_recovery_action", "GPU Recovery Action"),
    (
        "pcie.link.gen.max",
        "PCI > GPU Link Info > PCIe Generation > Max",
    ),
    (
        "pcie.link.gen.current",
        "PCI > GPU Link Info > PCIe Generation > Current",
    ),
    (
        "pcie.link.gen.gpumax",
        "PCI > GPU Link Info > PCIe Generation > Device Max",
    ),
    (
        "pcie.link.gen.hostmax",
        "PCI > GPU Link Info > PCIe Generation > Host Max",
    ),
    ("fan.speed", "Fan Speed"),
    ("pstate", "Performance State"),
    (
        "clocks_event_reasons.gpu_idle",
        "Clocks Event Reasons > Idle",
    ),
    (
        "clocks_event_reasons.sw_power_cap",
        "Clocks Event Reasons > SW Power Cap",
    ),
    (
        "clocks_event_reasons_counters.sw_power_cap",
        "Clocks Event Reasons Counters > SW Power Capping",
    ),
    ("memory.total", "FB Memory Usage > Total"),
    ("memory.reserved", "FB Memory Usage > Reserved"),
    ("memory.used", "FB Memory Usage > Used"),
    ("memory.free", "FB Memory Usage > Free"),
    ("compute_mode", "Compute Mode"),
    ("utilization.gpu", "Utilization > GPU"),
    ("utilization.memory", "Utilization > Memory"),
    ("utilization.encoder", "Utilization > Encoder"),
    ("utilization.ofa", "Utilization > OFA"),
    (
        "encoder.stats.sessionCount",
        "Encoder Stats > Active Sessions",
    ),
    ("ecc.mode.current", "ECC Mode > Current"),
    (
        "ecc.errors.corrected.volatile.sram",
        "ECC Errors > Volatile > SRAM Correctable",
    ),
    (
        "ecc.errors.uncorrected.aggregate.dram",
        "ECC Errors > Aggregate > DRAM Uncorrectable",
    ),
    (
        "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",
        "ECC Errors > Aggregate > SRAM Threshold Exceeded",
    ),
    (
        "retired_pages.single_bit_ecc.count",
        "Retired Pages > Single Bit ECC",
    ),
    (
        "remapped_rows.correctable",
        "Remapped Rows > Correctable Error",
    ),
    ("remapped_rows.pending", "Remapped Rows > Pending"),
    (
        "remapped_rows.failure",
        "Remapped Rows > Remapping Failure Occurred",
    ),
    ("temperature.gpu", "Temperature > GPU Current Temp"),
    ("temperature.gpu.tlimit", "Temperature > GPU T.Limit Temp"),
    ("temperature.memory", "Temperature > Memory Current Temp"),
    (
        "power.draw.average",
        "GPU Power Readings > Average Power Draw",
    ),
    (
        "power.draw.instant",
        "GPU Power Readings > Instantaneous Power Draw",
    ),
    ("power.limit", "GPU Power Readings > Current Power Limit"),
    (
        "power.default_limit",
        "GPU Power Readings > Default Power Limit",
    ),
    ("power.min_limit", "GPU Power Readings > Min Power Limit"),
    ("power.max_limit", "GPU Power Readings > Max Power Limit"),
    ("clocks.current.graphics", "Clocks > Graphics"),
    ("clocks.current.memory", "Clocks > Memory"),
    ("clocks.current.video", "Clocks > Video"),
    ("clocks.max.sm", "Max Clocks > SM"),
    ("fabric.state", "Fabric > State"),
    ("fabric.status", "Fabric > Status"),
    ("fabric.cliqueId", "Fabric > CliqueId"),
    ("fabric.health.summary", "Fabric > Health > Summary"),
    (
        "module.power.draw.average",
        "Module Power Readings > Average Power Draw",
    ),
];

/// Removes what the two forms write differently: brackets of a missing value, and the unit of
/// temperatures, which a column of `--query-gpu` does not have.
fn bare(value: &str) -> &str {
    value.trim_matches(['[', ']']).trim_end_matches(" C")
}

#[test]
fn the_fields_of_an_h100_are_those_that_nvidia_smi_printed() {
    let mut host = Host::new(["H100-580"]);
    host.change(|world| "580.159.04".clone_into(&mut world.driver));
    let expected = parse_q(&text("busy/nvidia-smi-q.txt"));
    let names: Vec<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
    let query = format!("--query-gpu={}", names.join(","));
    let output = host.run([&query, "--format=csv,noheader"]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let answer = output.text();
    let answers: Vec<&str> = answer.trim_end().split(", ").collect();
    assert_eq!(answers.len(), FIELDS.len(), "{answer}");
    let wrong: Vec<_> = FIELDS
        .iter()
        .zip(answers)
        .filter_map(|((field, label), answer)| {
            let real = expected.get(*label).map(String::as_str);
            (real.map(bare) != Some(bare(answer))).then_some((*field, answer, real))
        })
        .collect();
    assert!(wrong.is_empty(), "field, answer, nvidia-smi: {wrong:#?}");
}

#[test]
fn every_field_of_driver_580_is_known() {
    let host = Host::new(["H100-580"]);
    let fields = text("query-gpu-fields.txt");
    let names: Vec<&str> = fields.lines().collect();
    assert!(names.len() > 200, "{names:?}");
    let output = host.run([&format!("--query-gpu={}", names.join(",")), "--format=csv"]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
}

/// The figures of the GPU's page, each with the line of `nvidia-smi -q` in the same second.
#[test]
fn the_recorded_details_are_those_that_nvidia_smi_printed() {
    let line = json(&run_on("detail.jsonl.zst", &["replay", "--json"]));
    let gpu = &line["gpus"][0];
    let detail = &gpu["detail"];
    let expected = parse_q(&text("busy/nvidia-smi-q.txt"));
    let number = |label: &str| -> f64 {
        let value = &expected[label];
        let digits = value.split(' ').next().unwrap_or_default();
        digits
            .trim_end_matches('x')
            .parse()
            .unwrap_or_else(|_| panic!("{label}: {value}"))
    };
    let check = |reading: &Value, label: &str, scale: f64| {
        let reading = reading
            .as_f64()
            .unwrap_or_else(|| panic!("{label}: {reading}"));
        assert!(
            (reading / scale - number(label)).abs() < 0.01,
            "{label}: {reading} / {scale}, and {}",
            number(label)
        );
    };
    let mib = f64::from(1 << 20);
    check(
        &gpu["load"]["memory_total_bytes"],
        "FB Memory Usage > Total",
        mib,
    );
    check(
        &gpu["load"]["memory_reserved_bytes"],
        "FB Memory Usage > Reserved",
        mib,
    );
    check(
        &detail["bar1_total_bytes"],
        "BAR1 Memory Usage > Total",
        mib,
    );
    check(
        &detail["power_limit_requested_milliwatts"],
        "GPU Power Readings > Requested Power Limit",
        1e3,
    );
    check(
        &detail["power_limit_min_milliwatts"],
        "GPU Power Readings > Min Power Limit",
        1e3,
    );
    check(
        &detail["graphics_clock_max_hertz"],
        "Max Clocks > Graphics",
        1e6,
    );
    check(&detail["video_clock_hertz"], "Clocks > Video", 1e6);
    check(
        &detail["pcie_generation"],
        "PCI > GPU Link Info > PCIe Generation > Current",
        1.0,
    );
    check(
        &detail["pcie_width"],
        "PCI > GPU Link Info > Link Width > Current",
        1.0,
    );
    check(&detail["platform_module"], "Platform Info > Module Id", 1.0);
    check(
        &detail["remapped_rows_histogram"][0],
        "Remapped Rows > Bank Remap Availability Histogram > Max",
        1.0,
    );
    assert_eq!(detail["vbios_version"], *expected["VBIOS Version"]);
    assert_eq!(detail["serial"], *expected["Serial Number"]);
    assert_eq!(
        detail["inforom_image_version"],
        *expected["Inforom Version > Image Version"]
    );
    assert_eq!(
        detail["display_attached"],
        expected["Display Attached"] == "Yes"
    );
    assert_eq!(
        detail["display_active"],
        expected["Display Active"] == "Enabled"
    );
    assert_eq!(line["driver"]["version"], *expected["Driver Version"]);
    // nvidia-smi prints N/A for these.
    for missing in [
        "fabric",
        "fan_speeds_percent",
        "nvlinks",
        "numa_node",
        "operation_mode",
    ] {
        assert_eq!(detail["missing"][missing], "unsupported", "{missing}");
    }
}

/// The processes of the recording and of `nvidia-smi --query-compute-apps` in the same second.
#[test]
fn the_recorded_processes_are_those_that_nvidia_smi_printed() {
    let line = json(&run_on("detail.jsonl.zst", &["replay", "--json"]));
    let recorded: BTreeMap<u64, u64> = line["gpus"][0]["processes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|process| {
            let number = |name: &str| process[name].as_u64().expect("a number");
            (number("pid"), number("memory_used_bytes") / MIB)
        })
        .collect();
    let table = text("busy/compute-apps.csv");
    let printed: BTreeMap<u64, u64> = table
        .lines()
        .skip(1)
        .map(|row| {
            let cells: Vec<&str> = row.split(", ").collect();
            let memory = cells[7].trim_end_matches(" MiB");
            (
                cells[5].parse().expect("a PID"),
                memory.parse().expect("an amount"),
            )
        })
        .collect();
    assert_eq!(printed.len(), 8);
    // Process 804 leaks: it took two segments of 128 MiB between the readings.
    let growing = 804;
    for (pid, memory) in printed {
        let expected = if pid == growing {
            memory + 2 * 128
        } else {
            memory
        };
        assert_eq!(recorded.get(&pid), Some(&expected), "{pid}");
    }
    assert_eq!(recorded.len(), 8);
}

#[test]
fn the_recording_tells_the_story_of_the_run() {
    let page = run_on("recording.jsonl.zst", &["report", "--md", "-o", "-"]).text();
    for expected in [
        "1 GPU (NVIDIA H100 80GB HBM3), driver 580.159.04",
        "ran out of memory once",
        "4.0 MiB per step",
        "a loss or metric is summed with its history",
        "orphan 920 pt\\_data\\_worker (root) holds 630 MiB",
        "orphan 921 pt\\_data\\_worker (root) holds 630 MiB",
        "OUT OF MEMORY in 804 t1.py (root)",
        "OUT OF MEMORY in 1341 oomtest.py (root)",
    ] {
        assert!(page.contains(expected), "{expected} is not in\n{page}");
    }
}

/// PyTorch counted a peak of 44,155 MiB, most of it between two readings a second apart.
#[test]
fn the_peak_of_tensors_is_that_of_pytorch() {
    let page = run_on("recording.jsonl.zst", &["report", "--md", "-o", "-"]).text();
    let row = page
        .lines()
        .find(|line| line.starts_with("| 1341 "))
        .unwrap_or_else(|| panic!("{page}"));
    assert!(row.contains("| 51.0 GiB | 43.1 GiB |"), "{row}");
}

#[test]
fn nothing_is_wrong_before_the_run_and_after_it() {
    let after = run_on("recording.jsonl.zst", &["replay", "--plain"]).text();
    assert!(!after.contains("Watch out"), "{after}");
    let expected = "NVIDIA H100 80GB HBM3: memory 0 B of 79.6 GiB in use";
    assert!(after.contains(expected), "{after}");
    assert!(after.contains("No process uses a GPU."), "{after}");
    // nvidia-smi counted as little.
    let before = parse_q(&text("idle/nvidia-smi-q.txt"));
    assert_eq!(before["FB Memory Usage > Used"], "0 MiB");
}

#[test]
fn the_analysis_of_the_recording_counts_one_gpu() {
    let analysis = run_on("recording.jsonl.zst", &["analyze"]).text();
    let first = "10 curves of memory, of 1 GPU and of 9 processes on it";
    assert!(analysis.contains(first), "{analysis}");
}

/// Fields whose values differ from one moment or one GPU to the next, as in the capture.
const DIFFERING: [&str; 17] = [
    "timestamp",
    "serial",
    "uuid",
    "pci.",
    "memory.used",
    "memory.free",
    "pstate",
    "utilization.",
    "power.draw",
    "clocks.current.",
    "clocks_event_reasons.",
    "clocks_event_reasons_counters.",
    "temperature.",
    "minor_number",
    "hostname",
    "vbios_version",
    "platform.",
];

#[test]
fn every_field_has_the_value_that_nvidia_smi_printed() {
    let capture = text("idle/query-gpu.csv");
    let mut lines = capture.lines();
    let mut cells = || -> Vec<&str> { lines.next().expect("two lines").split(", ").collect() };
    let (headings, real) = (cells(), cells());
    let names: Vec<&str> = headings
        .iter()
        .map(|heading| heading.split(' ').next().unwrap_or_default())
        .collect();
    let mut host = Host::new(["H100-580"]);
    host.change(|world| "580.159.04".clone_into(&mut world.driver));
    let output = host.run([&format!("--query-gpu={}", names.join(",")), "--format=csv"]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let answer = output.text();
    let mut answers = answer.lines().map(|line| line.split(", "));
    let own_headings: Vec<&str> = answers.next().expect("a heading").collect();
    assert_eq!(own_headings, headings);
    let wrong: Vec<_> = names
        .iter()
        .zip(answers.next().expect("a GPU"))
        .zip(real)
        .filter(|((name, own), real)| {
            own != real && !DIFFERING.iter().any(|prefix| name.starts_with(prefix))
        })
        .collect();
    assert!(wrong.is_empty(), "field, answer, nvidia-smi: {wrong:#?}");
}

/// The leak filled the memory 187 s after the recording began.
#[test]
fn the_forecasts_of_a_real_leak_hold_its_end() {
    let analysis = json(&run_on("leak.jsonl.zst", &["analyze", "--all", "--json"]));
    let series = analysis["series"].as_array().expect("a list of series");
    let leak = series
        .iter()
        .find(|series| series["pid"] == 4399)
        .expect("the program that leaked");
    let end = leak["span_seconds"].as_f64().expect("a span");
    let forecasts: Vec<&Value> = ["timeline", "forecasts"]
        .iter()
        .flat_map(|list| leak[list].as_array().expect("a list"))
        .filter(|timed| timed["oom_in_s"].is_number())
        .collect();
    assert!(!forecasts.is_empty(), "{leak:#}");
    for forecast in forecasts {
        let [at, low, high] =
            ["at", "oom_low_s", "oom_high_s"].map(|name| forecast[name].as_f64().expect("seconds"));
        assert!((low..high).contains(&(end - at)), "{forecast}, end {end}");
    }
}
