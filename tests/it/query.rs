//! The options of nvidia-smi. The expected output was copied from the real nvidia-smi on an H100
//! (driver 590.48.01) and on a `GeForce` RTX 2080 Super (595.71.05).

mod fields;

use std::io::BufRead;
use std::process::Stdio;

use fake_nvml::{
    Clocks, Ecc, Fabric, Gpu, GpuProcess, Inforom, Memory, Pcie, Power, ProcessKind, Utilization,
    World,
};

use self::fields::{FIELDS, set_h100, set_rtx_2080};
use crate::host::{GIB, Host};
use crate::process::{ChildProcess, wait_until};

const OK: i32 = 0;
const USAGE: i32 = 2;
const NO_DRIVER: i32 = 3;
const PARTIAL: i32 = 5;
const NOTHING_FOUND: i32 = 6;

const MIB: u64 = 1 << 20;
const DEPRECATED: &str = "[Requested functionality has been deprecated]";

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
        .map(|column| {
            (
                names[column],
                rows[0][column],
                rows[1][column],
                rows[2][column],
            )
        })
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
        let [hour, minute, second, ms] = [11, 14, 17, 20].map(|offset| {
            line[offset..]
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
    let column = |name: &str| {
        rows[0]
            .iter()
            .position(|column| *column == name)
            .unwrap_or_else(|| panic!("no {name} in {text}"))
    };
    assert_eq!(
        rows[2][column("memory_total_bytes")],
        (8192 * MIB).to_string()
    );
    assert_eq!(rows[2][column("sm_utilization_percent")], "8");
    assert_eq!(
        rows[1][column("power_watts")],
        "69.9",
        "an f32 as f64 has noise"
    );
    assert_eq!(rows[1].len(), rows[0].len(), "{text}");
}
