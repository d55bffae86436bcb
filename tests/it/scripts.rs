//! Output that scripts read: the table for `grep` and `awk`, `-i`, short loops, `--csv`.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::cli::json;
use crate::host::{GIB, Host};
use crate::process::{ChildProcess, Output, run};

const OK: i32 = 0;
const NOTHING_FOUND: i32 = 6;

/// Pipes the table through a shell command.
fn piped(host: &Host, filter: &str) -> Output {
    let line = format!("{} --once | {filter}", env!("CARGO_BIN_EXE_gputop"));
    run(host
        .set_environment(&mut Command::new("sh"))
        .args(["-c", &line]))
}

#[test]
fn the_table_begins_with_the_time_and_the_versions_that_scripts_look_for() {
    let host = Host::new(["H100"]);
    let text = host.run(["--once"]).text();
    let shape: String = text
        .chars()
        .map(|letter| if letter.is_ascii_digit() { '0' } else { letter })
        .take(19)
        .collect();
    assert_eq!(shape, "0000-00-00 00:00:00", "{text}");
    // Ollama's installer.
    let output = piped(&host, r#"grep -o "CUDA Version: [0-9]*\.[0-9]*""#);
    assert_eq!(
        (output.code, output.text().as_str()),
        (OK, "CUDA Version: 12.4\n")
    );
    // PyTorch's collect_env searches for `Driver Version: (.*?) ` with a space at its end.
    let output = piped(&host, r"sed -nE 's/.*Driver Version: ([^ ]*) .*/\1/p'");
    assert_eq!((output.code, output.text().as_str()), (OK, "550.54.15\n"));
    let (_, rest) = text
        .split_once("Driver Version: ")
        .expect("the table has the version");
    assert_eq!(
        rest.split_once(' ').map(|(version, _)| version),
        Some("550.54.15")
    );
}

#[test]
fn awk_counts_the_same_columns_in_each_row() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, 34 * GIB);
    let output = piped(
        &host,
        "awk '/^GPU +PID/ { for (at = 1; at <= NF; at++) column[$at] = at } /sleep 1000/ \
        { print $column[\"PID\"], $column[\"MEM\"], $column[\"VERDICT\"], $column[\"COMMAND\"] }'",
    );
    assert_eq!(
        output.text(),
        format!("{pid} 34.0G - sleep\n"),
        "{}",
        host.run(["--once"]).text()
    );
    let text = host.run(["--once"]).text();
    let memory = text
        .lines()
        .next()
        .and_then(|line| line.split_once("memory "))
        .map(|(_, memory)| memory);
    assert_eq!(
        memory.map(|memory| memory.split(' ').count()),
        Some("8.0GiB of 64.0GiB".split(' ').count()),
        "{text}"
    );
}

#[test]
fn a_pipe_is_as_wide_as_columns_says() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, GIB);
    for (columns, longest) in [("40", 40), ("nonsense", usize::MAX)] {
        let output = run(host.gputop(["--once"]).env("COLUMNS", columns));
        let width = output
            .text()
            .lines()
            .map(|line| line.chars().count())
            .max()
            .unwrap_or_default();
        assert!(
            width <= longest && width >= 40,
            "{width}: {}",
            output.text()
        );
    }
}

#[test]
fn an_id_limits_every_output_to_its_gpu() {
    let mut host = Host::new(["H100", "A100"]);
    let (first, second) = (
        host.start_sleep(0, GIB).to_string(),
        host.start_sleep(1, GIB).to_string(),
    );
    for arguments in [
        ["--once"].as_slice(),
        &["--plain"],
        &[],
        &["--csv=processes"],
        &["--csv"],
        &["-L"],
    ] {
        let output = host.run(arguments.iter().chain(&["-i", "1"]).copied());
        let text = output.text();
        assert_eq!(output.code, OK, "{arguments:?}: {text}{}", output.stderr);
        assert!(
            text.contains("A100") || text.contains(&second),
            "{arguments:?}: {text}"
        );
        assert!(
            !text.contains("H100") && !text.contains(&first),
            "{arguments:?}: {text}"
        );
    }
    let line = json(&host.run(["--json", "-i", "1"]));
    let gpus = line["gpus"].as_array().expect("a list");
    assert!(
        gpus.len() == 1 && gpus[0]["facts"]["index"] == 1,
        "{line:#}"
    );
    let output = host.run(["--once", "-i", "1,7"]);
    assert_eq!(
        (output.code, output.stderr.as_str()),
        (NOTHING_FOUND, "gputop: no such GPU here: 7\n")
    );
}

#[test]
fn a_loop_of_ten_milliseconds_is_kept() {
    /// Half of the interval that a loop was limited to before.
    const LONGEST_MS: u64 = 50;
    let host = Host::new(["H100"]);
    let mut command = host.gputop(["--csv", "-lms", "10"]);
    let mut gputop = ChildProcess::spawn(
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null()),
    );
    let mut lines = BufReader::new(gputop.child().stdout.take().expect("stdout is piped")).lines();
    let mut line = || {
        lines
            .next()
            .expect("gputop prints another line")
            .expect("a pipe can be read")
    };
    let header = line();
    let column = header
        .split(',')
        .position(|name| name == "unix_time_ms")
        .expect("the CSV has the time");
    let times: Vec<u64> = (0..30)
        .map(|_| {
            line()
                .split(',')
                .nth(column)
                .expect("a cell")
                .parse()
                .expect("a number")
        })
        .collect();
    let mut gaps: Vec<u64> = times
        .windows(2)
        .map(|pair| pair[1].abs_diff(pair[0]))
        .collect();
    gaps.sort_unstable();
    // A busy machine delays some lines, not most.
    assert!(gaps[gaps.len() / 2] < LONGEST_MS, "{gaps:?}");
}

#[test]
fn csv_of_processes_has_a_row_for_each_process_on_each_gpu() {
    let mut host = Host::new(["H100", "H100"]);
    let mut sleep = Command::new("sleep");
    sleep.arg("1000").env("SLURM_JOB_ID", "77");
    let pid = host.start(1, 2 * GIB, &mut sleep).pid().to_string();
    let output = host.run(["--csv=processes"]);
    let text = output.text();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    let cell = |name: &str| {
        rows[1][rows[0]
            .iter()
            .position(|column| *column == name)
            .expect(name)]
    };
    assert_eq!(
        (output.code, rows.len(), rows[1].len()),
        (OK, 2, rows[0].len()),
        "{text}{}",
        output.stderr
    );
    let cells = ["gpu_index", "pid", "command", "memory_used_bytes"].map(cell);
    assert_eq!(
        cells,
        ["1", pid.as_str(), "sleep 1000", &(2 * GIB).to_string()]
    );
    assert!(
        cell("start_ticks").parse::<u64>().is_ok() && cell("cpu_percent").parse::<f32>().is_ok(),
        "{text}"
    );
    let line = json(&host.run(["--json"]));
    assert_eq!(
        Value::from(cell("user")),
        line["gpus"][1]["processes"][0]["user"]
    );
    // A process that has just begun may not be judged yet.
    assert!(["active", "too_soon"].contains(&cell("verdict")), "{text}");
    assert_eq!([cell("job"), cell("job_origin")], ["sleep", "slurm 77"]);
    assert_eq!(line["gpus"][1]["processes"][0]["origin"], "slurm 77");
}
