//! `gputop diff`: two recordings, or two parts of one, side by side: did a change help?

mod comparison;

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::ensure;
use clap::Args;
use serde_json::{Map, Value, json};

pub(crate) use self::comparison::{ComparedSubject, Metric, RunComparison};
use crate::base::terminal;
use crate::base::text::Text;
use crate::base::time::local_time;
use crate::flags::OutputArgs;
use crate::logs::recent_recordings;
use crate::logs::recorded_run::{RecordedRun, RunRange, fold};
use crate::output::table::{self, Heading};
use crate::output::{self, Exit};

#[derive(Debug, Clone, Args)]
pub(crate) struct DiffArgs {
    /// The recording before the change. `FILE@FROM..TO` is a part of it: from and to a local time
    /// (`10:15`), a time after its beginning (`+5m`), or a mark that the program set with
    /// `gputop_probe.mark` [default: the two newest recordings of this host]
    #[arg(value_name = "A", requires = "b")]
    a: Option<String>,

    /// The recording after the change, or a part of it
    #[arg(value_name = "B")]
    b: Option<String>,

    #[command(flatten)]
    output: OutputArgs,
}

/// Prints the comparison. Fails if a recording cannot be read, or both have nothing in common.
pub(crate) fn run(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let [a_name, b_name] = match (&args.a, &args.b) {
        (Some(a), Some(b)) => [a.clone(), b.clone()],
        _ => recent_recordings::two_newest()?.map(|path| path.display().to_string()),
    };
    let (a_name, b_name) = (&a_name, &b_name);
    let (a, b) = (
        fold(&RunRange::parse(a_name))?,
        fold(&RunRange::parse(b_name))?,
    );
    let comparison = RunComparison::compare(&a, &b);
    if args.output.json {
        let run = |name: &str, run: &RecordedRun| json!({ "recording": name, "begin": time(run, |host| host.began), "end": time(run, |host| host.ended) });
        let subjects =
            |subjects: &[ComparedSubject]| subjects.iter().map(to_json).collect::<Value>();
        output::print_json(&json!({
            "a": run(a_name, &a),
            "b": run(b_name, &b),
            "gpus": subjects(&comparison.gpus),
            "processes": subjects(&comparison.processes),
            "unmatched_processes": { "a": comparison.unmatched[0], "b": comparison.unmatched[1] },
        }))?;
        return Ok(Exit::Success.into());
    }
    ensure!(
        !comparison.gpus.is_empty() || !comparison.processes.is_empty(),
        "the recordings have no GPU and no process in common"
    );
    let mut text = format!(
        "A: {}\nB: {}\n",
        described(a_name, &a),
        described(b_name, &b)
    );
    if let Some(headline) = comparison.headline() {
        text.push_str(&Text::new(headline).to_string());
        text.push('\n');
    }
    for (heading, subjects) in [
        ("PROCESS", &comparison.processes),
        ("GPU", &comparison.gpus),
    ] {
        if subjects.is_empty() {
            continue;
        }
        text.push('\n');
        let columns: [Heading; 5] = [
            ("", false),
            ("A", true),
            ("B", true),
            ("CHANGE", true),
            (heading, false),
        ];
        table::rows(
            &mut text,
            terminal::width(),
            &columns,
            subjects.iter().flat_map(rows),
        );
    }
    let [only_a, only_b] = comparison.unmatched;
    if only_a + only_b > 0 {
        _ = writeln!(
            text,
            "\nprocesses that only A has: {only_a}, that only B has: {only_b}"
        );
    }
    output::print_text(&text, args.output.is_ascii())?;
    Ok(Exit::Success.into())
}

/// Returns a row for each figure; the first one names the subject.
fn rows(subject: &ComparedSubject) -> impl Iterator<Item = [String; 5]> {
    let name = match subject.pids {
        [Some(a), Some(b)] if a != b => format!("{} (PID {a}, {b})", subject.name),
        [Some(pid), _] => format!("{} (PID {pid})", subject.name),
        _ => subject.name.clone(),
    };
    subject
        .shown_metrics()
        .enumerate()
        .map(move |(number, metric)| {
            let [a, b] = [metric.a, metric.b].map(|value| metric.metric.format(value));
            let name = if number == 0 {
                name.clone()
            } else {
                String::new()
            };
            [
                metric.metric.words().to_owned(),
                a,
                b,
                metric.change_in_words(),
                name,
            ]
        })
}

fn to_json(subject: &ComparedSubject) -> Value {
    let metrics: Map<String, Value> = subject
        .metrics
        .iter()
        .map(|metric| {
            let values = json!({ "a": metric.a, "b": metric.b, "change": metric.change(), "change_percent": metric.change_percent() });
            (metric.metric.name().to_owned(), values)
        })
        .collect();
    match subject.pids {
        [None, None] => json!({ "name": subject.name, "metrics": metrics }),
        [a, b] => json!({ "command": subject.name, "pid_a": a, "pid_b": b, "metrics": metrics }),
    }
}

/// Returns a time of the first host, as in `2026-07-14T10:12:38.696+02:00`.
fn time(run: &RecordedRun, of: fn(&crate::logs::recorded_run::HostRun) -> u64) -> Option<String> {
    run.hosts
        .first()
        .map(|host| local_time(of(host), host.utc_offset.unwrap_or(0)))
}

/// Returns the words of the user for a recording, with its times.
fn described(name: &str, run: &RecordedRun) -> String {
    let time = |of| {
        time(run, of).map_or_else(String::new, |time| {
            time.chars().take(19).collect::<String>().replace('T', " ")
        })
    };
    format!(
        "{} ({} to {})",
        Text::new(name),
        time(|host| host.began),
        time(|host| host.ended)
    )
}
