//! `gputop tensors`: lists the tensors of a Python program by category, shape and type, as the
//! probe in it reports them, or those that came and went between two marks of the program.

mod between_marks;
mod by_module;

use std::cmp::Reverse;
use std::process::ExitCode;
use std::str::FromStr;

use clap::Args;
use serde_json::json;
use strum::VariantArray;

use super::live::probed_process::{self, ProbedProcess};
use crate::base::terminal;
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::flags::{OutputArgs, ReadArgs, values};
use crate::output::labels::{self, tensors};
use crate::output::table::{self, Heading};
use crate::output::{self, Exit};
use crate::protocol::command::{Command, ProbeRequest};
use crate::protocol::reply::Outcome;
use crate::protocol::snapshot::{ProbeReport, Process, TensorGroup};

/// Which tensors to list, and how.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct TensorsArgs {
    /// The PID of the program
    pid: u32,

    /// Only the groups with all of these words in their shape, type and category, such as `float32
    /// parameters`
    #[arg(value_name = "WORD")]
    words: Vec<String>,

    /// Sort by `bytes`, `count`, `age` or `change`
    #[arg(long, value_name = "BY", default_value = "bytes", value_parser = values::one_of::<TensorOrder>(), hide_possible_values = true)]
    sort: TensorOrder,

    /// Only the tensors that came (+) and went (-) since this mark, which the program set with
    /// `gputop_probe.mark` or `gputop_probe.phase`
    #[arg(long, value_name = "MARK", conflicts_with = "sort")]
    since: Option<String>,

    /// Count up to this later mark instead of now, such as `eval end` for the end of the phase
    /// `eval`
    #[arg(long, value_name = "MARK", requires = "since")]
    until: Option<String>,

    /// Record one step, and show the memory that each module leaves for the backward pass, its part
    /// of the peak, and results that stay alive over the step. WORDs filter the modules
    #[arg(long, conflicts_with_all = ["sort", "since"])]
    modules: bool,

    #[command(flatten)]
    read: ReadArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// The end of the help.
const EXIT_CODES: &str = "\
Exit codes:
    0  the answer was printed
    6  no process has the PID, or it has no report of the probe
    1  the probe cannot do what was asked, or another error";

/// The order of groups of tensors: each begins with the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum TensorOrder {
    /// By memory.
    Bytes,
    /// By the number of tensors.
    Count,
    /// By age in steps.
    Age,
    /// By how much memory was added since the last step or mark.
    Change,
}

impl FromStr for TensorOrder {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::VARIANTS
            .iter()
            .find(|order| <&str>::from(**order) == name);
        found
            .copied()
            .ok_or_else(|| format!("`{name}` is not an order: it is bytes, count, age or change"))
    }
}

/// After this number of passes, the program is in a long call, and the last report is printed.
const MOST_PASSES: u32 = 10;
/// After this number of passes, the probe will not compare marks: it gives up after 10 seconds.
const MOST_COMPARING_PASSES: u32 = 50;
/// After this number of passes, the probe will not record a step: it gives up after 10 minutes.
const MOST_RECORDING_PASSES: u32 = 2500;

/// A request to the probe, and what came of it.
#[derive(Debug, Default)]
struct TensorRequest {
    is_sent: bool,
    /// The number under which the probe answers; `None` before the agent has passed it on.
    id: Option<u64>,
    /// The number of passes since it was sent.
    passes: u32,
}

/// Lets the probe read all tensors, compare two marks or record a step, and prints the answer: between two readings,
/// which cost the program time, the probe cannot tell new tensors from blocks of the autograd graph.
/// Fails if no agent can be started, or if the standard output cannot be written.
pub(crate) fn run(args: &TensorsArgs) -> anyhow::Result<ExitCode> {
    let (wanted, most_passes) = match &args.since {
        Some(since) => {
            let until = args.until.as_ref().map(Text::new);
            let since = Text::new(since);
            (
                ProbeRequest::Compare { since, until },
                MOST_COMPARING_PASSES,
            )
        }
        None if args.modules => (ProbeRequest::Modules, MOST_RECORDING_PASSES),
        None => (ProbeRequest::Tensors, MOST_PASSES),
    };
    let mut request = TensorRequest::default();
    let found = probed_process::converse(&args.read, true, args.pid, |found, replies, command| {
        let ProbedProcess {
            process, report, ..
        } = found;
        let known = |why: Option<Text>| Some(Ok((process.clone(), report.clone(), why)));
        if !request.is_sent {
            request.is_sent = true;
            *command = Some(Command::AskProbe {
                process: process.id,
                request: wanted.clone(),
            });
            return None;
        }
        for reply in replies {
            match &reply.outcome {
                Outcome::ProbeAsked { id } => request.id = Some(*id),
                Outcome::Refused { reason } => return known(Some(reason.clone())),
                _ => {}
            }
        }
        request.passes += 1;
        let answer = report.answer.as_ref();
        match answer.filter(|answer| Some(answer.id) == request.id) {
            Some(answer) => known(answer.error.clone()),
            None if request.passes >= most_passes => known(Some("it does not answer".into())),
            None => None,
        }
    })?;
    let (process, report, why) = match found {
        Ok(found) => found,
        Err(why) => {
            output::print_error(&why);
            return Ok(Exit::Nothing.into());
        }
    };
    if args.since.is_some() {
        return between_marks::print(args, &process, report, why);
    }
    if args.modules {
        return by_module::print(args, &process, report, why);
    }
    if let Some(why) = why {
        let sentence = format!("the last report of the probe, since {why}");
        output::print_error(&Text::new(sentence));
    }
    print(args, &process, report)?;
    Ok(Exit::Success.into())
}

/// Prints why the probe has not done what was asked.
fn print_refusal(process: &Process, doing: &str, why: Option<Text>) -> ExitCode {
    let why = match why {
        Some(why) if why.as_str() != "unknown request" => why,
        // The answer of a probe without this request.
        _ => "its probe is of an older gputop: start the program again".into(),
    };
    let sentence = format!("process {} cannot {doing}: {why}", process.id.pid);
    output::print_error(&Text::new(sentence));
    Exit::Error.into()
}

impl TensorsArgs {
    /// Whether a text has all words.
    fn is_wanted(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        self.words
            .iter()
            .all(|word| text.contains(&word.to_lowercase()))
    }

    /// Removes the groups that do not have all words.
    fn keep_wanted(&self, groups: &mut Vec<TensorGroup>) {
        groups.retain(|group| {
            self.is_wanted(&format!(
                "{} {}",
                tensors::tensors(group),
                tensors::category(group)
            ))
        });
    }
}

fn print(args: &TensorsArgs, process: &Process, mut report: ProbeReport) -> anyhow::Result<()> {
    sort(&mut report.groups, args.sort);
    args.keep_wanted(&mut report.groups);
    if args.output.json {
        let (pid, start_ticks) = (process.id.pid, process.id.start_ticks);
        return Ok(output::print_json(&json!({
            "pid": pid, "start_ticks": start_ticks, "command": table::command(process), "report": report,
        }))?);
    }
    let text = text(process, &report, terminal::width());
    Ok(output::print_text(&text, args.output.is_ascii())?)
}

fn sort(groups: &mut [TensorGroup], order: TensorOrder) {
    match order {
        TensorOrder::Bytes => groups.sort_by_key(|group| Reverse(group.bytes)),
        TensorOrder::Count => groups.sort_by_key(|group| Reverse(group.count)),
        TensorOrder::Age => groups.sort_by_key(|group| Reverse(group.age_steps)),
        TensorOrder::Change => groups.sort_by_key(|group| Reverse(group.bytes_change)),
    }
}

const COLUMNS: [Heading; 7] = [
    ("MEMORY", true),
    ("SHARE", true),
    ("AGE", true),
    ("CHANGE", true),
    ("DEVICE", false),
    ("TENSORS", false),
    ("CATEGORY", false),
];

fn text(process: &Process, report: &ProbeReport, width: Option<usize>) -> String {
    let mut text = String::new();
    let steps = report
        .steps
        .as_ref()
        .map_or_else(String::new, |steps| format!(", {}", tensors::steps(steps)));
    table::line(
        &mut text,
        width,
        &format!("{} {}{steps}", process.id.pid, table::command(process)),
    );
    let reserved = |device| {
        report
            .devices
            .iter()
            .find(|known| known.device == device)?
            .reserved
    };
    let cells = report.groups.iter().map(|group| {
        [
            group.bytes.to_string(),
            reserved(group.device)
                .map_or_else(String::new, |whole| tensors::share(group.bytes, whole)),
            group
                .age_steps
                .map_or_else(|| "-".to_owned(), |age| age.to_string()),
            group
                .bytes_change
                .filter(|change| *change != 0)
                .map_or_else(|| "-".to_owned(), labels::change),
            format!("cuda:{}", group.device),
            tensors::tensors(group),
            tensors::category(group),
        ]
    });
    table::rows(&mut text, width, &COLUMNS, cells);
    let since = report
        .changes_since
        .as_ref()
        .map(|since| match (&since.mark, since.step) {
            (Some(mark), _) => format!("CHANGE counts from the mark {mark}"),
            (None, Some(step)) => format!("CHANGE counts from step {step}"),
            (None, None) => "CHANGE counts from the reading before".to_owned(),
        });
    let left_out = report
        .groups_left_out
        .as_ref()
        .filter(|left_out| left_out.count > 0);
    let left_out = left_out.map(|left_out| {
        format!(
            "{} smaller groups with {} are left out",
            left_out.count, left_out.bytes
        )
    });
    let total: Bytes = report.groups.iter().map(|group| group.bytes).sum();
    let listed = format!("{} groups with {total}", report.groups.len());
    let note: Vec<String> = [Some(listed), left_out, since]
        .into_iter()
        .flatten()
        .collect();
    table::line(&mut text, width, &note.join("; "));
    if !report.marks.is_empty() {
        let marks = format!("marks for --since: {}", tensors::mark_names(&report.marks));
        table::line(&mut text, width, &marks);
    }
    text
}
