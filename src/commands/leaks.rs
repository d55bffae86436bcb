//! `gputop leaks`: lists the leaks that the probe finds in programs of `gputop run`, each with its
//! line and with what to try.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::live::probed_process::{self, PROBE_INTERVAL, ProbedProcess};
use super::live::read_hosts;
use crate::base::text::Text;
use crate::base::units::Elapsed;
use crate::flags::{OutputArgs, ReadArgs};
use crate::output::labels::tensors;
use crate::output::table::{self, Heading};
use crate::output::{self, Exit};
use crate::protocol::snapshot::{ProbeMissing, ProbeReport, ProcessId, Snapshot, TensorLeak};
use crate::source::Source;

/// The options of `gputop leaks`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct LeaksArgs {
    /// The PID of a program; without it, all programs with the probe
    pid: Option<u32>,

    #[command(flatten)]
    read: ReadArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// The end of the help.
const EXIT_CODES: &str = "\
Exit codes:
   10  a leak is likely
    0  no leak is likely; some may be leaks
    5  no leak is likely, but a program that was started with the probe could not be judged
    6  no program has a report of the probe
    1  another error";

/// After this number of passes, the environment of every process has usually been read.
const FEWEST_PASSES: u32 = 4;

/// After this number of passes, a program without a report will have none soon.
const MOST_PASSES: u32 = 8;

/// Prints the leaks. Fails if no agent can be started, or if the standard output cannot be written.
pub(crate) fn run(args: &LeaksArgs) -> anyhow::Result<ExitCode> {
    let found = match args.pid {
        Some(pid) => probed_process::converse(&args.read, false, pid, |found, _, _| {
            Some(Ok(FoundLeaks::in_process(&found)))
        })?,
        None => in_all_processes(&args.read)?,
    };
    match found {
        Ok(found) => {
            if args.output.json {
                output::print_json(&found.json())?;
            } else {
                output::print_text(&found.text(), args.output.is_ascii())?;
            }
            Ok(found.exit().into())
        }
        Err(why) => {
            output::print_error(&why);
            Ok(Exit::Nothing.into())
        }
    }
}

/// Reads this host until every program with the probe has a report, or the rest will have none
/// soon.
fn in_all_processes(args: &ReadArgs) -> anyhow::Result<Result<FoundLeaks, Text>> {
    let mut read = args.this_host(Some(PROBE_INTERVAL));
    for source in &mut read.sources {
        if let Source::LocalAgent(agent) = source {
            // Only the processes of GPUs matter.
            agent.only = ["processes", "facts.minor_number"]
                .map(str::to_owned)
                .to_vec();
        }
    }
    let mut passes = 0;
    read_hosts::read_until(&read, true, |hosts| {
        passes += 1;
        let (_, snapshot) = hosts.first()?.seen?;
        let found = FoundLeaks::in_all(snapshot);
        let is_waiting = found
            .unjudged
            .iter()
            .any(|unjudged| unjudged.why == ProbeMissing::NotYet);
        let is_enough = passes >= MOST_PASSES || passes >= FEWEST_PASSES && !is_waiting;
        is_enough.then_some(found)
    })
}

/// The leaks of some programs, and the programs that could not be judged.
#[derive(Debug, Default)]
struct FoundLeaks {
    programs: Vec<JudgedProgram>,
    unjudged: Vec<UnjudgedProgram>,
}

/// A program with a report of the probe.
#[derive(Debug)]
struct JudgedProgram {
    id: ProcessId,
    command: String,
    report: ProbeReport,
    /// Why the report is not of just now; `None` if it is.
    old: Option<String>,
}

/// A Python program on a GPU without a report.
#[derive(Debug)]
struct UnjudgedProgram {
    id: ProcessId,
    command: String,
    why: ProbeMissing,
}

const COLUMNS: [Heading; 7] = [
    ("PID", true),
    ("SURE", false),
    ("LINE", false),
    ("KEPT", true),
    ("GROWTH", false),
    ("CAUSE", false),
    ("COMMAND", false),
];

impl FoundLeaks {
    fn in_process(found: &ProbedProcess<'_>) -> Self {
        Self {
            programs: vec![JudgedProgram::new(found)],
            unjudged: Vec::new(),
        }
    }

    fn in_all(snapshot: &Snapshot) -> Self {
        let mut found = Self::default();
        for process in &snapshot.processes {
            let Some(probe) = &process.probe else {
                continue;
            };
            match (&probe.report, probe.missing) {
                (Some(report), _) => found.programs.push(JudgedProgram::new(&ProbedProcess {
                    process,
                    report,
                    snapshot,
                })),
                (None, Some(why)) => found.unjudged.push(UnjudgedProgram {
                    id: process.id,
                    command: table::command(process),
                    why,
                }),
                (None, None) => {}
            }
        }
        found
    }

    /// The leaks, the likely ones first, and among these the fastest.
    fn leaks(&self) -> Vec<(&JudgedProgram, &TensorLeak)> {
        let mut leaks: Vec<(&JudgedProgram, &TensorLeak)> = self
            .programs
            .iter()
            .flat_map(|program| program.report.leaks.iter().map(move |leak| (program, leak)))
            .collect();
        leaks.sort_by_key(|(program, leak)| {
            let speed = Reverse((leak.bytes_per_step, leak.bytes_per_second));
            (!leak.is_likely(), speed, program.id)
        });
        leaks
    }

    fn exit(&self) -> Exit {
        let mut leaks = self.leaks().into_iter();
        let mut unjudged = self.unjudged.iter();
        if leaks.any(|(_, leak)| leak.is_likely()) {
            Exit::Found
        } else if unjudged.any(|unjudged| unjudged.why.is_of_a_started_probe()) {
            Exit::Partial
        } else if self.programs.is_empty() {
            Exit::Nothing
        } else {
            Exit::Success
        }
    }

    fn text(&self) -> String {
        let leaks = self.leaks();
        let mut lines = vec![self.summary(&leaks)];
        if !leaks.is_empty() {
            let mut rows = String::new();
            let cells = leaks.iter().map(|(program, leak)| row(program, leak));
            table::rows(&mut rows, None, &COLUMNS, cells);
            // The evidence is below each row, and is not cut: its end says what to try.
            let evidence = leaks.iter().map(|(_, leak)| evidence(leak));
            let below_rows = std::iter::once(Vec::new()).chain(evidence);
            for (row, below) in rows.lines().zip(below_rows) {
                lines.push(row.to_owned());
                lines.extend(below);
            }
        }
        for program in &self.programs {
            let sentences = program.old.iter().map(String::as_str);
            let sentences = sentences.chain(program.report.trouble.iter().map(Text::as_str));
            lines.extend(sentences.map(|sentence| format!("{}: {sentence}", program.id.pid)));
        }
        for UnjudgedProgram { id, command, why } in &self.unjudged {
            lines.push(format!("{} {command}: not judged: {why}", id.pid));
        }
        lines.join("\n") + "\n"
    }

    fn summary(&self, leaks: &[(&JudgedProgram, &TensorLeak)]) -> String {
        let programs = match self.programs.len() {
            0 => return "no program on a GPU has a report of gputop's probe".to_owned(),
            1 => "the program with the probe".to_owned(),
            count => format!("{count} programs with the probe"),
        };
        let likely = leaks.iter().filter(|(_, leak)| leak.is_likely()).count();
        match (likely, leaks.len() - likely) {
            (0, 0) => format!("no leak in {programs}"),
            (0, maybe) => format!("{maybe} possible in {programs}: no leak is likely"),
            (likely, 0) => format!("{likely} likely in {programs}"),
            (likely, maybe) => format!("{likely} likely and {maybe} possible in {programs}"),
        }
    }

    fn json(&self) -> Value {
        let leaks = self.leaks().into_iter().map(|(program, leak)| {
            let mut value = json!(leak);
            value["pid"] = json!(program.id.pid);
            value["start_ticks"] = json!(program.id.start_ticks);
            value["command"] = json!(program.command);
            value["line"] = json!(leak.line());
            value["is_likely"] = json!(leak.is_likely());
            value
        });
        let programs = self.programs.iter().map(|program| {
            json!({
                "pid": program.id.pid,
                "start_ticks": program.id.start_ticks,
                "command": program.command,
                "report_unix_time_seconds": program.report.unix_time,
                "steps": program.report.steps,
                "trouble": program.report.trouble,
            })
        });
        let unjudged = self.unjudged.iter().map(|unjudged| {
            json!({
                "pid": unjudged.id.pid,
                "start_ticks": unjudged.id.start_ticks,
                "command": unjudged.command,
                "reason": unjudged.why,
                "sentence": unjudged.why.to_string(),
            })
        });
        json!({
            "schema": Snapshot::SCHEMA,
            "leaks": leaks.collect::<Vec<_>>(),
            "programs": programs.collect::<Vec<_>>(),
            "unjudged": unjudged.collect::<Vec<_>>(),
        })
    }
}

impl JudgedProgram {
    fn new(found: &ProbedProcess<'_>) -> Self {
        let ProbedProcess {
            process,
            report,
            snapshot,
        } = found;
        let missing = process.probe.as_ref().and_then(|probe| probe.missing);
        let old = match (missing, age(report, snapshot)) {
            (Some(why), _) => Some(format!("no newer report: {why}")),
            (None, Some(age)) if age >= ProbeReport::FRESH => Some(format!(
                "the report is {} old; the program may be in a long call",
                Elapsed(age)
            )),
            (None, _) => None,
        };
        Self {
            id: process.id,
            command: table::command(process),
            report: (*report).clone(),
            old,
        }
    }
}

/// The age of a report by the clock of the host; `None` if the probe did not give the time.
fn age(report: &ProbeReport, snapshot: &Snapshot) -> Option<Duration> {
    let now = Duration::from_millis(snapshot.unix_ms);
    let written = Duration::try_from_secs_f64(report.unix_time?).ok()?;
    Some(now.saturating_sub(written))
}

fn row(program: &JudgedProgram, leak: &TensorLeak) -> [String; 7] {
    let known = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        program.id.pid.to_string(),
        leak.sure
            .as_ref()
            .map_or_else(|| "maybe".to_owned(), Text::to_string),
        known(leak.line().map(str::to_owned)),
        known(leak.bytes.map(|bytes| bytes.to_string())),
        tensors::growth(leak),
        known(tensors::cause(leak)),
        program.command.clone(),
    ]
}

/// Returns the lines below the row of a leak: its tensors and their holders, and what to try.
fn evidence(leak: &TensorLeak) -> Vec<String> {
    let held_by = leak.held_by.iter().map(Text::as_str).collect::<Vec<_>>();
    let held_by = (!held_by.is_empty()).then(|| format!("held by {}", held_by.join("; ")));
    let lines = leak.allocated_at.as_ref();
    let allocated = lines.and_then(|lines| lines.user.as_ref().or(lines.inner.as_ref()));
    let parts = [
        Some(tensors::leaking_tensors(leak)),
        held_by,
        allocated.map(|line| format!("allocated at {line}")),
        leak.steps.map(|steps| format!("for {steps} steps")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let advice = leak.advice.as_ref().map(|advice| format!("try: {advice}"));
    std::iter::once(parts.join(", "))
        .chain(advice)
        .map(|line| format!("         {line}"))
        .collect()
}
