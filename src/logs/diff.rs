//! `gputop diff`: two recordings, two parts of one, or two logs, side by side: did a change help?

mod comparison;
mod log_figures;
mod verdicts;

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::ensure;
use clap::Args;
use serde_json::{Map, Value, json};

pub(crate) use self::comparison::{ComparedSubject, Metric, RunComparison};
use self::verdicts::RunVerdict;
use crate::base::terminal;
use crate::base::text::Text;
use crate::base::time::local_time;
use crate::flags::OutputArgs;
use crate::logs::analyze;
use crate::logs::recent_recordings;
use crate::logs::recorded_run::{RecordedRun, RunRange, fold};
use crate::output::table::{self, Heading};
use crate::output::{self, Exit};

#[derive(Debug, Clone, Args)]
pub(crate) struct DiffArgs {
    /// The recording or log before the change, of any kind that `gputop analyze` reads.
    /// `FILE@FROM..TO` is a part of a recording: from and to a local time
    /// (`10:15`), a time after its beginning (`+5m`), or a mark that the program set with
    /// `gputop_probe.mark` [default: the two newest recordings of this host]
    #[arg(value_name = "A", requires = "b")]
    a: Option<String>,

    /// The recording or log after the change, or a part of a recording
    #[arg(value_name = "B")]
    b: Option<String>,

    #[command(flatten)]
    output: OutputArgs,
}

/// Prints the comparison. Fails if a file cannot be read, or both have nothing in common.
pub(crate) fn run(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let names = match (&args.a, &args.b) {
        (Some(a), Some(b)) => [a.clone(), b.clone()],
        _ => recent_recordings::two_newest()?.map(|path| path.display().to_string()),
    };
    let ranges = [RunRange::parse(&names[0]), RunRange::parse(&names[1])];
    let sides = if ranges.iter().any(|range| analyze::is_log(&range.path)) {
        ComparedFiles::of_logs(&ranges)?
    } else {
        ComparedFiles::of_recordings(&ranges)?
    };
    if args.output.json {
        output::print_json(&sides.to_json(&names))?;
        return Ok(Exit::Success.into());
    }
    let comparison = &sides.comparison;
    ensure!(
        !comparison.gpus.is_empty() || !comparison.processes.is_empty(),
        "the recordings have no GPU and no process in common"
    );
    output::print_text(&sides.text(&names), args.output.is_ascii())?;
    Ok(Exit::Success.into())
}

/// Two files with their figures.
struct ComparedFiles {
    comparison: RunComparison,
    verdicts: [RunVerdict; 2],
    /// The times of both files for a person, and in JSON.
    spans: [String; 2],
    times: [[Option<String>; 2]; 2],
    doubts: Vec<String>,
}

impl ComparedFiles {
    fn of_recordings(ranges: &[RunRange; 2]) -> anyhow::Result<Self> {
        let (a, b) = (fold(&ranges[0])?, fold(&ranges[1])?);
        Ok(Self {
            comparison: RunComparison::compare(&a, &b),
            verdicts: [RunVerdict::of_recording(&a), RunVerdict::of_recording(&b)],
            spans: [&a, &b].map(span),
            times: [&a, &b].map(|run| [time(run, |host| host.began), time(run, |host| host.ended)]),
            doubts: Vec::new(),
        })
    }

    /// Judges both files as `gputop analyze` does.
    fn of_logs(ranges: &[RunRange; 2]) -> anyhow::Result<Self> {
        for range in ranges {
            ensure!(
                !range.is_part(),
                "parts are compared of recordings only: name the whole file {}",
                Text::new(range.path.as_os_str().as_encoded_bytes())
            );
        }
        let (a, b) = (
            analyze::summarize(&ranges[0].path)?,
            analyze::summarize(&ranges[1].path)?,
        );
        let doubts = [("A", &a), ("B", &b)]
            .iter()
            .flat_map(|(side, log)| {
                log.doubts
                    .iter()
                    .map(move |doubt| format!("{side}: {doubt}"))
            })
            .collect();
        Ok(Self {
            comparison: log_figures::compare(&a, &b),
            verdicts: [RunVerdict::of_log(&a), RunVerdict::of_log(&b)],
            spans: [a.span.clone(), b.span.clone()],
            times: [[None, None], [None, None]],
            doubts,
        })
    }

    fn to_json(&self, names: &[String; 2]) -> Value {
        let run = |side: usize| {
            json!({
                "recording": names[side],
                "begin": self.times[side][0],
                "end": self.times[side][1],
                "verdict": self.verdicts[side].name(),
            })
        };
        let subjects =
            |subjects: &[ComparedSubject]| subjects.iter().map(to_json).collect::<Value>();
        json!({
            "a": run(0),
            "b": run(1),
            "verdict": verdicts::sentence(&self.verdicts),
            "doubts": self.doubts,
            "gpus": subjects(&self.comparison.gpus),
            "processes": subjects(&self.comparison.processes),
            "marks": subjects(&self.comparison.marks),
            "unmatched_processes": { "a": self.comparison.unmatched[0], "b": self.comparison.unmatched[1] },
        })
    }

    fn text(&self, names: &[String; 2]) -> String {
        let comparison = &self.comparison;
        let mut text = format!("{}\n", Text::new(verdicts::sentence(&self.verdicts)));
        for (side, name) in ["A", "B"]
            .iter()
            .zip(names)
            .zip(&self.spans)
            .map(|((side, name), span)| (side, format!("{} ({span})", Text::new(name))))
        {
            _ = writeln!(text, "{side}: {name}");
        }
        for doubt in &self.doubts {
            _ = writeln!(text, "DOUBT: {}", Text::new(doubt));
        }
        if let Some(headline) = comparison.headline() {
            text.push_str(&Text::new(headline).to_string());
            text.push('\n');
        }
        for (heading, subjects) in [
            ("PROCESS", &comparison.processes),
            ("MARKS", &comparison.marks),
            ("GPU", &comparison.gpus),
        ] {
            add_table(&mut text, heading, subjects);
        }
        let [only_a, only_b] = comparison.unmatched;
        if only_a + only_b > 0 {
            _ = writeln!(
                text,
                "\nprocesses that only A has: {only_a}, that only B has: {only_b}"
            );
        }
        text
    }
}

/// Adds the figures that differ, and a line with those that are the same.
fn add_table(text: &mut String, heading: &'static str, subjects: &[ComparedSubject]) {
    let columns: [Heading; 5] = [
        ("", false),
        ("A", true),
        ("B", true),
        ("CHANGE", true),
        (heading, false),
    ];
    let changed: Vec<[String; 5]> = subjects.iter().flat_map(rows).collect();
    if !changed.is_empty() {
        text.push('\n');
        table::rows(text, terminal::width(), &columns, changed.into_iter());
    }
    let same: Vec<String> = subjects.iter().filter_map(same_figures).collect();
    if !same.is_empty() {
        _ = writeln!(
            text,
            "\nthe same in A and B: {}",
            Text::new(same.join("; "))
        );
    }
}

/// Returns the figures of a subject that are the same in both files: `GPU 0: peak 19 GiB`.
fn same_figures(subject: &ComparedSubject) -> Option<String> {
    let same: Vec<String> = subject
        .shown_metrics()
        .filter(|metric| metric.is_same())
        .map(|metric| {
            format!(
                "{} {}",
                metric.metric.words(),
                metric.metric.format(metric.a)
            )
        })
        .collect();
    (!same.is_empty()).then(|| format!("{}: {}", subject.name, same.join(", ")))
}

/// Returns a row for each figure that is not the same; the first one names the subject.
fn rows(subject: &ComparedSubject) -> impl Iterator<Item = [String; 5]> {
    let name = match subject.pids {
        [Some(a), Some(b)] if a != b => format!("{} (PID {a}, {b})", subject.name),
        [Some(pid), _] => format!("{} (PID {pid})", subject.name),
        _ => subject.name.clone(),
    };
    subject
        .shown_metrics()
        .filter(|metric| !metric.is_same())
        .enumerate()
        .map(move |(number, metric)| {
            let [a, b] = metric.values_in_words();
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
            let mut values = json!({ "a": metric.a, "b": metric.b, "change": metric.change(), "change_percent": metric.change_percent() });
            if metric.errors.iter().any(Option::is_some) {
                values["a_error"] = json!(metric.errors[0]);
                values["b_error"] = json!(metric.errors[1]);
                values["is_within_noise"] = json!(metric.is_within_noise());
            }
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

/// Returns the times of a recording for a person.
fn span(run: &RecordedRun) -> String {
    let time = |of| {
        time(run, of).map_or_else(String::new, |time| {
            time.chars().take(19).collect::<String>().replace('T', " ")
        })
    };
    format!("{} to {}", time(|host| host.began), time(|host| host.ended))
}
