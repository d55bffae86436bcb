//! The command line: what a person may ask for, and in which words.

mod habits;

use std::env;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ErrorKind};
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::app::columns::Columns;
use crate::app::gpu_columns::GpuColumn;
use crate::app::list_view::Grouping;
use crate::app::process_columns::{ProcessColumn, Sort};
use crate::app::settings::Look;
use crate::base::units::Bytes;

/// See every GPU, who holds its memory, and end the right process.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do instead of showing the screen.
    #[command(subcommand)]
    pub task: Option<Task>,

    /// What the agent is started with.
    #[command(flatten)]
    pub agent: AgentArgs,

    /// How the screen is drawn.
    #[command(flatten)]
    pub screen: ScreenArgs,

    /// What is asked in nvidia-smi's words.
    #[command(flatten)]
    pub query: QueryArgs,

    /// Print a table once and leave; so it is, too, when the output is no terminal
    #[arg(long, conflicts_with = "json")]
    pub once: bool,

    /// Print sentences instead, once or with `-l`: for screen readers. No colour, no columns, no cursor that moves
    #[arg(long, conflicts_with = "json")]
    pub plain: bool,

    /// Print all there is to know as one line of JSON (see `gputop schema`) and leave
    #[arg(long)]
    pub json: bool,

    /// Print again every so often, until interrupted; every 5 seconds when it is not said
    #[arg(short = 'l', long = "loop", value_name = "SECONDS", value_parser = some_seconds)]
    #[arg(num_args = 0..=1, default_missing_value = "5")]
    pub every: Option<Duration>,

    /// The same in milliseconds; `-lms` too
    #[arg(long, value_name = "MILLISECONDS", value_parser = some_milliseconds, conflicts_with = "every")]
    pub loop_ms: Option<Duration>,

    /// Give up on a driver that does not answer after this time, and print what there is
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = some_time)]
    pub timeout: Duration,

    /// Whether the interval was said by flag or variable: otherwise the configuration may say it.
    #[arg(skip)]
    pub interval_given: bool,
}

/// What is asked in nvidia-smi's words, and answered in them.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "As nvidia-smi")]
pub struct QueryArgs {
    /// Print these fields of each GPU; `--help-query-gpu` lists them
    #[arg(long = "query-gpu", value_name = "FIELD,…", value_delimiter = ',')]
    pub gpu: Option<Vec<String>>,

    /// Print these fields of each process that computes; `--help-query-compute-apps` lists them
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',', conflicts_with = "gpu")]
    pub query_compute_apps: Option<Vec<String>>,

    /// How: `csv`, and with it `noheader`, `nounits`
    #[arg(long, value_name = "csv[,…]", value_delimiter = ',')]
    pub format: Vec<String>,

    /// List the GPUs and their instances
    #[arg(short = 'L', long = "list-gpus")]
    pub list: bool,

    /// Print all that changes each second about each GPU, in base units under the names of the JSON
    #[arg(long, conflicts_with_all = ["gpu", "query_compute_apps", "list"])]
    pub csv: bool,

    /// Write to this file instead of the standard output
    #[arg(short = 'f', long, value_name = "FILE")]
    pub filename: Option<PathBuf>,

    /// Only these GPUs: by index, UUID or PCI bus id
    #[arg(short = 'i', long = "id", value_name = "GPU,…", value_delimiter = ',')]
    pub id: Vec<String>,

    /// List the fields of `--query-gpu`
    #[arg(long = "help-query-gpu")]
    pub help_gpu: bool,

    /// List the fields of `--query-compute-apps`
    #[arg(long = "help-query-compute-apps")]
    pub help_compute_apps: bool,
}

/// What the agent is started with, by the viewer or by hand.
#[derive(Debug, Clone, Args)]
pub struct AgentArgs {
    /// Time from one reading to the next, as in `500ms` or `2s`
    #[arg(long, value_name = "TIME", default_value = "1s", env = "GPUTOP_INTERVAL", value_parser = interval)]
    pub interval: Duration,

    /// The NVML library to load instead of the system's libnvidia-ml.so.1
    #[arg(long, value_name = "FILE", env = "GPUTOP_NVML_LIB")]
    pub nvml_lib: Option<PathBuf>,

    /// Show a simulated machine: no GPU needed, its processes are real and harmless
    #[arg(long)]
    pub demo: bool,

    /// Signal no process, whatever is pressed
    #[arg(long)]
    pub readonly: bool,

    /// Read all that the driver says of a GPU, which takes a hundred calls more each time
    #[arg(long, hide = true)]
    pub detail: bool,
}

/// How the screen is drawn.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "The screen")]
pub struct ScreenArgs {
    /// Leave the mouse to the terminal
    #[arg(long)]
    pub no_mouse: bool,

    /// Draw with ASCII only; so it is, too, when the locale is not UTF-8
    #[arg(long)]
    pub ascii: bool,

    /// Colours: `terminal` has the terminal's own, `safe` is for the colour-blind, `light` for light backgrounds, `mono`
    /// has none
    #[arg(long, value_name = "THEME", env = "GPUTOP_THEME", value_parser = one_of::<Look>(Look::ALL.map(Look::name)), hide_possible_values = true)]
    pub theme: Option<Look>,

    /// The columns of the list of processes, from left to right; without it, as many as there is room for
    #[arg(long, value_name = "COLUMN,…", env = "GPUTOP_COLUMNS")]
    pub columns: Option<Columns<ProcessColumn>>,

    /// The columns of the list of GPUs
    #[arg(long, value_name = "COLUMN,…", env = "GPUTOP_GPU_COLUMNS")]
    pub gpu_columns: Option<Columns<GpuColumn>>,

    /// Sort by this column, and by the second what is the same there; `-` before a name inverts its order
    #[arg(long, value_name = "COLUMN[,COLUMN]", env = "GPUTOP_SORT", allow_hyphen_values = true)]
    pub sort: Option<Sort>,

    /// How processes stand together: `none`, `tree`, `job`, `user`
    #[arg(long, value_name = "HOW", env = "GPUTOP_GROUP", value_parser = one_of::<Grouping>(Grouping::ALL.map(Grouping::name)), hide_possible_values = true)]
    pub group: Option<Grouping>,

    /// Only processes of the user that gputop runs as
    #[arg(long)]
    pub mine: bool,

    /// Without the first line, of the host
    #[arg(long)]
    pub no_host: bool,

    /// The file of settings, instead of the one under `$XDG_CONFIG_HOME` (`~/.config/gputop/config.toml`)
    #[arg(long, value_name = "FILE", env = "GPUTOP_CONFIG")]
    pub config: Option<PathBuf>,

    /// Tell of a leak once more so long before its memory runs out
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = span)]
    pub warn_before: Duration,

    /// Ring the terminal's bell once for each alert: a leak, its end that comes near, what is watched (`w`)
    #[arg(long)]
    pub bell: bool,

    /// Run this program for each alert: split at spaces, no shell, no quotes; what happened is in its environment, as
    /// `GPUTOP_ALERT` (the kind) and `GPUTOP_ALERT_SENTENCE`, and in others
    #[arg(long, value_name = "PROGRAM [ARGUMENT…]", value_parser = program)]
    pub on_alert: Option<Program>,
}

/// A program and its arguments, as they are given to it: no shell is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program(pub Vec<String>);

/// What to say of orphans.
#[derive(Debug, Clone, Args)]
pub struct OrphansArgs {
    /// What the agent is started with.
    #[command(flatten)]
    pub agent: AgentArgs,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    /// Only those of this user; `me` for yourself
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,

    /// Draw with ASCII only; so it is, too, when the locale is not UTF-8
    #[arg(long)]
    pub ascii: bool,

    /// Give up on a driver that does not answer after this time, and print what there is
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = span)]
    pub timeout: Duration,
}

/// What to explain.
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// A log, or the message itself. Without one, the standard input, which is passed on as it comes, and explained at
    /// its end; `-` is the same and passes nothing on
    #[arg(value_name = "FILE|MESSAGE")]
    pub what: Vec<String>,

    /// What the agent is started with.
    #[command(flatten)]
    pub agent: AgentArgs,

    /// Print one JSON object, and pass nothing on
    #[arg(long)]
    pub json: bool,

    /// Draw with ASCII only; so it is, too, when the locale is not UTF-8
    #[arg(long)]
    pub ascii: bool,

    /// Give up on a driver that does not answer after this time, when it is asked who a process is
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = span)]
    pub timeout: Duration,
}

/// What to analyze.
#[derive(Debug, Clone, Args)]
pub struct AnalyzeArgs {
    /// Logs: CSV of `nvidia-smi --query-gpu` or `--query-compute-apps` with timestamps, in any order of columns, with or
    /// without header and units; plain `time,bytes`; or lines of `gputop --json -l SECONDS`. Columns `allocated_bytes` and
    /// `reserved_bytes`, if a header names them, are what PyTorch says. `-` for the standard input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// The memory of the GPU, as in `80GiB`, where a log does not say it
    #[arg(long, value_name = "AMOUNT", value_parser = capacity)]
    pub capacity: Option<Bytes>,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    /// Draw with ASCII only; so it is, too, when the locale is not UTF-8
    #[arg(long)]
    pub ascii: bool,
}

/// What to look at.
#[derive(Debug, Clone, Args)]
pub struct DoctorArgs {
    /// What the agent is started with.
    #[command(flatten)]
    pub agent: AgentArgs,

    /// Give up on a driver that does not answer after this time
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = span)]
    pub timeout: Duration,
}

/// Which GPUs are wanted.
#[derive(Debug, Clone, Args)]
pub struct FreeArgs {
    /// What the agent is started with.
    #[command(flatten)]
    pub agent: AgentArgs,

    /// How many
    #[arg(short = 'n', long, value_name = "COUNT", default_value = "1", value_parser = count)]
    pub count: NonZeroUsize,

    /// Those with so much memory free, as in `20GiB`, whoever else is on them; otherwise those that nobody is on
    #[arg(long, value_name = "AMOUNT")]
    pub memory: Option<Bytes>,

    /// Those on which no kernel ran for so long, as in `5m`; they are watched that long first
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub idle: Option<Duration>,

    /// Wait until there are as many
    #[arg(long)]
    pub wait: bool,

    /// Give up on a driver that does not answer after this time
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = span)]
    pub timeout: Duration,
}

/// What to do instead of showing the screen.
#[derive(Debug, Clone, Subcommand)]
pub enum Task {
    /// Watch this host and write what is seen to the standard output, a JSON object a line
    Agent(AgentArgs),
    /// Say whether memory leaks in a log, how fast, and when it runs out
    Analyze(AnalyzeArgs),
    /// Say what works here and what does not, why, and what may mend it
    Doctor(DoctorArgs),
    /// Take an out-of-memory message of PyTorch apart: who has the memory, why it failed, what to try first
    Explain(ExplainArgs),
    /// Print the `CUDA_VISIBLE_DEVICES` of GPUs that a job may take; 11 is the exit code when there are too few
    Free(FreeArgs),
    /// Say which processes hold GPU memory and should not, and why; 10 is the exit code when there are any
    Orphans(OrphansArgs),
    /// Print the JSON Schema of the agent's lines
    Schema,
    /// Be one of the processes of the simulated machine
    #[command(hide = true)]
    DemoProcess {
        /// Which one.
        role: String,
    },
}

/// The shortest interval: below it, reading would be most of what the host does.
pub const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// The longest interval: beyond it, nobody is watching.
pub const LONGEST_INTERVAL: Duration = Duration::from_hours(24);

/// `2`, `0.5`, `500ms`, `1m 30s`.
fn span(text: &str) -> Result<Duration, String> {
    seconds(text).or_else(|_| humantime::parse_duration(text).map_err(|error| error.to_string()))
}

/// The memory of a GPU, as in `80GiB`.
fn capacity(text: &str) -> Result<Bytes, String> {
    let amount: Bytes = text.parse()?;
    if amount == Bytes(0) {
        Err("a GPU without memory holds nothing: say how much it has, as in `80GiB`".to_owned())
    } else {
        Ok(amount)
    }
}

/// A program and its arguments, split at spaces.
fn program(text: &str) -> Result<Program, String> {
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    if words.is_empty() { Err("it names no program".to_owned()) } else { Ok(Program(words)) }
}

/// One of a few names, which completions know too.
fn one_of<T>(names: [&'static str; 4]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = String> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| name.parse::<T>())
}

/// From one reading to the next.
///
/// # Errors
///
/// When it is no span of time, or one that nobody can want.
pub fn interval(text: &str) -> Result<Duration, String> {
    let span = span(text)?;
    if span < SHORTEST_INTERVAL {
        return Err("the shortest interval is 100ms".to_owned());
    }
    if span > LONGEST_INTERVAL {
        return Err("the longest interval is 24h".to_owned());
    }
    Ok(span)
}

fn count(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "it takes a whole number from 1 on".to_owned())
}

fn some_time(text: &str) -> Result<Duration, String> {
    some(span(text)?)
}

fn some_seconds(text: &str) -> Result<Duration, String> {
    some(seconds(text)?)
}

fn some_milliseconds(text: &str) -> Result<Duration, String> {
    let milliseconds = text.parse().map_err(|_| format!("`{text}` is not a number of milliseconds"))?;
    some(Duration::from_millis(milliseconds))
}

fn some(span: Duration) -> Result<Duration, String> {
    if span.is_zero() { Err("it must be more than nothing".to_owned()) } else { Ok(span) }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("`{text}` is not a number of seconds"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// The variable that makes a process one of the simulated machine: its arguments are those of what it plays.
pub const DEMO_ROLE: &str = "GPUTOP_DEMO_ROLE";

/// Reads the command line; on `--help`, `--version` or a mistake, says so and leaves.
pub fn parse() -> Cli {
    match env::var(DEMO_ROLE) {
        Ok(role) => Cli::parse_from(["gputop", "demo-process", &role]),
        Err(_) => {
            let matches = Cli::command().try_get_matches_from(habits::spelled_out(env::args_os()));
            let matches = matches.unwrap_or_else(|error| {
                // What is no mistake there is one here; help and version are none.
                if let Some(sentence) = habits::out_of_place(&error) {
                    clap::Error::raw(error.kind(), format!("{sentence}\n")).exit();
                }
                let refused = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand].map(|it| error.get(it));
                let refused = refused.into_iter().flatten().next().map(ToString::to_string);
                match refused.and_then(|it| habits::elsewhere(env::args_os(), &it)).filter(|_| error.use_stderr()) {
                    Some(sentence) => clap::Error::raw(ErrorKind::UnknownArgument, format!("{sentence}\n")).exit(),
                    None => error.exit(),
                }
            });
            let is_given = matches.value_source("interval").is_some_and(|it| it != ValueSource::DefaultValue);
            match Cli::from_arg_matches(&matches) {
                Ok(cli) => Cli { interval_given: is_given, every: cli.every.or(cli.loop_ms), ..cli },
                Err(error) => error.format(&mut Cli::command()).exit(),
            }
        }
    }
}
