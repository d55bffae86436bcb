//! The command line: the flags of the screen and of reports, and the list of subcommands, whose
//! flags are in the files of the commands.

pub(crate) mod cast;
pub(crate) mod manual;
mod nvidia_smi;
pub(crate) mod nvidia_smi_arguments;
pub(crate) mod offered;
mod option_order;
mod options;
mod query;
pub(crate) mod reference;
mod replay;
pub(crate) mod screenshot;
mod suggestions;

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser};

use self::cast::CastArgs;
use self::query::QueryArgs;
use self::replay::ReplayArgs;
use self::screenshot::ScreenshotArgs;
use crate::agent::demo::ROLE_VARIABLE;
use crate::app::layout::GpuView;
use crate::app::lists::columns::Columns;
use crate::app::lists::gpu_columns::GpuColumn;
use crate::app::lists::list_view::Grouping;
use crate::app::lists::process_columns::{ProcessColumn, Sort};
use crate::app::settings::ThemeName;
use crate::base::units::parse_span;
use crate::commands::attach::AttachArgs;
use crate::commands::completions::CompletionsArgs;
use crate::commands::doctor::DoctorArgs;
use crate::commands::estimate::EstimateArgs;
use crate::commands::explain::ExplainArgs;
use crate::commands::exporter::ExporterArgs;
use crate::commands::free::{FreeArgs, print_no_gpu};
use crate::commands::hosts::HostsArgs;
use crate::commands::idle::IdleArgs;
use crate::commands::leaks::LeaksArgs;
use crate::commands::man::ManArgs;
use crate::commands::notify::NotifyArgs;
use crate::commands::orphans::OrphansArgs;
use crate::commands::record::RecordArgs;
use crate::commands::report::ReportArgs;
use crate::commands::rest::RestArgs;
use crate::commands::run::RunArgs;
use crate::commands::snapshot::SnapshotArgs;
use crate::commands::tensors::TensorsArgs;
use crate::commands::wait::WaitArgs;
use crate::files::action::FileAction;
use crate::flags::{AgentArgs, ClusterArgs, HostArgs, OutputArgs, SUBCOMMAND_HELP, values};
use crate::logs::analyze::AnalyzeArgs;
use crate::logs::clip::ClipArgs;
use crate::logs::diff::DiffArgs;
use crate::logs::export::ExportArgs;

/// See every GPU, who holds its memory, and end the right process.
#[derive(Debug, Clone, Parser)]
#[command(version, max_term_width = 100, args_conflicts_with_subcommands = true, after_help = "`gputop --help` also lists files, variables and settings; `?` on the screen lists keys.", after_long_help = reference::after_help())]
pub struct Cli {
    #[command(subcommand)]
    pub(crate) task: Option<Subcommand>,

    #[command(flatten)]
    format: FormatArgs,

    /// Print again at this interval, until interrupted [default: 5]
    #[arg(short = 'l', long = "loop", value_name = "SECONDS", value_parser = values::positive_seconds)]
    #[arg(num_args = 0..=1, default_missing_value = "5")]
    every: Option<Duration>,

    /// Print again at this interval; also `-lms`
    #[arg(long, value_name = "MILLISECONDS", value_parser = values::positive_milliseconds, conflicts_with = "every")]
    loop_ms: Option<Duration>,

    /// How long to wait for the driver before printing what is known
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = values::positive_span)]
    pub(crate) timeout: Duration,

    #[command(flatten)]
    pub(crate) agent: AgentArgs,

    #[command(flatten)]
    hosts: HostArgs,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    #[command(flatten)]
    pub(crate) screen: ScreenArgs,

    #[command(flatten)]
    pub(crate) query: QueryArgs,
}

/// The format of a report.
#[derive(Debug, Clone, Args)]
struct FormatArgs {
    /// Print a table and exit (default if the output is not a terminal)
    #[arg(long, conflicts_with = "json")]
    once: bool,

    /// Print sentences for screen readers and exit: no colour, columns or cursor movement
    #[arg(long, conflicts_with = "json")]
    plain: bool,

    /// Print everything as one line of JSON for each host and exit; `gputop schema` describes it
    #[arg(long)]
    json: bool,
}

/// How the screen looks.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options of the screen")]
pub(crate) struct ScreenArgs {
    /// Do not use the mouse
    #[arg(long)]
    pub(crate) no_mouse: bool,

    /// Run in the terminal that the cluster view has lent: the key that quits goes back to it
    #[arg(long, hide = true)]
    pub(crate) of_cluster: bool,

    /// Neither show the history of earlier sessions nor keep that of this one
    #[arg(long)]
    pub(crate) no_history: bool,

    /// ASCII only (default in non-UTF-8 locales)
    #[arg(long)]
    pub(crate) ascii: bool,

    /// Colours: `auto` (`light` on a light background, else `dark`), `dark`, `light`, `terminal` (the terminal's own), `safe` (for
    /// colour-blind people), `mono` (none), `catppuccin`, `catppuccin-latte`, `gruvbox`,
    /// `gruvbox-light`, `nord`, `solarized`, `solarized-light`, `dracula`, `alucard` (Dracula's light
    /// variant), `tokyo-night` or `tokyo-night-day` [default: auto]
    #[arg(long, value_name = "THEME", env = "GPUTOP_THEME", value_parser = values::one_of::<ThemeName>(), hide_possible_values = true)]
    pub(crate) theme: Option<ThemeName>,

    /// Columns of the process list, from left to right; `F2` on the screen lists them [default: as
    /// many as fit]
    #[arg(long, value_name = "COLUMN,…", env = "GPUTOP_COLUMNS")]
    pub(crate) columns: Option<Columns<ProcessColumn>>,

    /// Columns of the GPU list; `F2` on the screen lists them [default: as many as fit]
    #[arg(long, value_name = "COLUMN,…", env = "GPUTOP_GPU_COLUMNS")]
    pub(crate) gpu_columns: Option<Columns<GpuColumn>>,

    /// Sort by this column, and by the second where the first is equal; `-` before a name reverses
    /// its order
    #[arg(
        long,
        value_name = "COLUMN[,COLUMN]",
        env = "GPUTOP_SORT",
        allow_hyphen_values = true
    )]
    pub(crate) sort: Option<Sort>,

    /// Group processes: `none`, `gpu`, `job`, `user` or `tree`
    #[arg(long, value_name = "BY", env = "GPUTOP_GROUP", value_parser = values::one_of::<Grouping>(), hide_possible_values = true)]
    pub(crate) group: Option<Grouping>,

    /// Show the GPUs as `tiles`, as tiles of their `use` alone, as `rows`, or as `auto` finds room
    /// [default: auto]
    #[arg(long, value_name = "VIEW", env = "GPUTOP_GPU_VIEW", value_parser = values::one_of::<GpuView>(), hide_possible_values = true)]
    pub(crate) gpu_view: Option<GpuView>,

    /// Show only your own processes, also in a report
    #[arg(long)]
    pub(crate) mine: bool,

    /// Show only the processes of this user, also in a report
    #[arg(short = 'u', long, value_name = "USER")]
    user: Option<String>,

    /// Show only these processes, also in a report
    #[arg(long, value_name = "PID,…", value_delimiter = ',')]
    pid: Vec<u32>,

    /// Begin with this filter: lines with all of its words, as `/` on the screen; also in a report
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,

    /// Hide the host line at the top
    #[arg(long)]
    pub(crate) no_host: bool,

    /// Configuration file [default: `$XDG_CONFIG_HOME/gputop/config.toml` or
    /// `~/.config/gputop/config.toml`]
    #[arg(long, value_name = "FILE", env = "GPUTOP_CONFIG")]
    pub(crate) config: Option<PathBuf>,

    /// Alert again when a leak will exhaust the memory within this time [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    pub(crate) warn_before: Option<Duration>,

    /// Ring the terminal bell at each alert
    #[arg(long)]
    pub(crate) bell: bool,

    /// Run this program at each alert. It is split at spaces and run without a shell;
    /// `GPUTOP_ALERT` (the kind), `GPUTOP_ALERT_SENTENCE` and other variables describe the alert
    #[arg(long, value_name = "PROGRAM [ARGUMENT…]", value_parser = values::check_program)]
    on_alert: Option<String>,

    #[command(flatten)]
    pub(crate) screenshot: ScreenshotArgs,
}

/// The subcommands.
#[derive(Debug, Clone, clap::Subcommand)]
pub(crate) enum Subcommand {
    /// Read this host and write JSON lines to the standard output
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop agent | head -n 1")]
    Agent(AgentArgs),
    /// Find memory leaks in a log or recording: how fast they grow, and when memory runs out
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop analyze train.log\n  gputop analyze --json memory.csv | jq .\n  gputop analyze --capacity 80GiB --interval 5 memory.csv")]
    Analyze(AnalyzeArgs),
    /// Look into the GPU memory of a Python program that runs already, as `gputop run` does; needs
    /// Python 3.14 or later there
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop attach 4711")]
    Attach(AttachArgs),
    /// Make a moving picture of the screen, while keys are pressed: an animated SVG for a web page
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop cast --demo --keys 'Enter 3s Esc' screen.svg")]
    Cast(CastArgs),
    /// Compare two recordings, or two parts of one: peak, floor, growth, step time and use
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop diff before.jsonl.zst after.jsonl.zst\n  gputop diff run.jsonl.zst@warm..tuned run.jsonl.zst@tuned..")]
    Diff(DiffArgs),
    /// Copy the time between two moments of a recording to a recording of its own
    #[command(
        help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop clip night.jsonl.zst --from 03:00 --to 03:30 -o leak.jsonl.zst"
    )]
    Clip(ClipArgs),
    /// Print the completions of a shell, as in `source <(gputop completions bash)`
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop completions bash")]
    Completions(CompletionsArgs),
    /// Diagnose the setup and suggest fixes
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop doctor")]
    Doctor(DoctorArgs),
    /// Estimate the GPU memory of a training step before it runs, and the largest batch that fits
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop estimate train.py:step\n  gputop estimate hf:config.json --sweep batch=1..64,length=512..4096 --gpu H100")]
    Estimate(EstimateArgs),
    /// Explain why a job ran out of memory, from its log or message: which processes held the memory,
    /// and what to try first
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop explain train.log\n  python train.py 2>&1 | gputop explain\n  gputop explain --last")]
    Explain(ExplainArgs),
    /// Write the samples of a recording as a table, in CSV or Parquet, for pandas or a spreadsheet
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop export night.jsonl.zst --parquet -o night.parquet")]
    Export(ExportArgs),
    /// Serve metrics to Prometheus until a signal ends it: GPUs, and processes by user, job and program,
    /// with leaks, leftovers and the time until memory is full
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop exporter\n  gputop exporter -H gpu-01,gpu-02")]
    Exporter(ExporterArgs),
    /// Run a command on free GPUs, as in `gputop free -n 2 -- python train.py`; the exit code is 11
    /// if there are too few
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop free -n 2 -- python train.py\n  gputop free --memory 20GiB --idle 5m --wait -- python train.py\n  gputop free --ids")]
    Free(FreeArgs),
    /// Log in to hosts of `-H` once for several uses, or remove the copies of gputop there
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop hosts connect 'gpu-[01-08]'")]
    Hosts(HostsArgs),
    /// List who holds GPUs idle: processes hold them, and for 30 minutes no kernel ran and nothing
    /// moved over PCIe; the exit code is 10 if there are any, 0 if none, and 5 if it is not known
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop idle -H 'gpu-[01-08]'\n  gputop idle --user me --watch 30m")]
    Idle(IdleArgs),
    /// List the leaks that the probe of `gputop run` finds in PyTorch programs, each with its line; the
    /// exit code is 10 if one is likely
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop leaks\n  gputop leaks 4711 --json")]
    Leaks(LeaksArgs),
    /// Print a manual page, as in `gputop man | man -l -`
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop man free | man -l -")]
    Man(ManArgs),
    /// Send a message to a notification of `gputop record`, to try it; the exit code is 1 if it does
    /// not arrive
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop notify phone")]
    Notify(NotifyArgs),
    /// List the times that programs started with `gputop run` ran out of GPU memory; `gputop explain --last`
    /// describes the latest
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop ooms", after_help = crate::logs::ooms::EXIT_CODES)]
    Ooms(OutputArgs),
    /// List processes that hold GPU memory and should not, and why; the exit code is 10 if there
    /// are any
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop orphans\n  gputop orphans --json --user me\n  gputop orphans --watch 12s")]
    Orphans(OrphansArgs),
    /// Record what gputop sees to a file, without a screen, until a signal such as Ctrl-C
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop record --notify phone\n  gputop record\n  gputop record -H gpu-01,gpu-02 -o lab.jsonl.zst")]
    Record(RecordArgs),
    /// Write a recording as one page to attach to a bug report, as Markdown, or as a plot
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop report night.jsonl.zst -o night.html\n  gputop report 4711 --md")]
    Report(ReportArgs),
    /// Show a recording on the same screens; nothing in it can be signalled
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop replay night.jsonl.zst\n  gputop replay\n  gputop replay --speed 10 night.jsonl.zst")]
    Replay(ReplayArgs),
    /// Mute events of `gputop record` for a time, as in `gputop rest 4711 --until 09:00`; without a
    /// name, list what is muted
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop rest 4711 --until 09:00\n  gputop rest idle gpu3 --for 8h\n  gputop rest --end")]
    Rest(RestArgs),
    /// Run a Python program, or a launcher of one, and look into its GPU memory: as in `gputop run
    /// -- python train.py`
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop run -- python train.py\n  gputop run -- torchrun --nproc-per-node 4 train.py\n  gputop run --fail-on-leak -- pytest tests")]
    Run(RunArgs),
    /// Print the JSON Schema of the agent's lines
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop schema > schema.json")]
    Schema,
    /// Write a snapshot of the GPU memory of a program started with `gputop run`, for PyTorch's
    /// `memory_viz`
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop snapshot 4711\n  gputop snapshot 4711 --steps 3")]
    Snapshot(SnapshotArgs),
    /// List the tensors of a program started with `gputop run` by category, shape and type
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop tensors 4711\n  gputop tensors 4711 float32 parameters\n  gputop tensors 4711 --modules")]
    Tensors(TensorsArgs),
    /// Wait until a process or a job has ended, GPUs are free, or memory leaks, as in `gputop wait
    /// 4711 --leak`; the exit code says which
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop wait 4711 --leak\n  gputop wait --free 2 -i 0,1\n  gputop wait 4711 && echo done")]
    Wait(WaitArgs),
    /// Run one process of the simulated machine
    #[command(hide = true)]
    DemoProcess {
        /// The name of its role
        role: String,
    },
    /// Answer as nvidia-smi does
    #[command(skip)]
    NvidiaSmi(Result<nvidia_smi_arguments::Arguments, nvidia_smi_arguments::RefusedArguments>),
    /// Continue the processes that an agent has stopped, if it is killed meanwhile
    #[command(hide = true)]
    ContinueStopped,
    /// Show whether a signal was sent to a whole process group
    #[command(hide = true)]
    GroupWitness,
    /// Let commands of `--via` end after their input was closed, in a process that gputop can leave
    /// behind
    #[command(hide = true)]
    CloseCommands {
        /// The commands: PID, pidfd and output of each
        commands: Vec<String>,
    },
    /// Act on one file, in a process that gputop can leave behind
    #[command(hide = true)]
    FileAction {
        /// The action
        #[arg(value_parser = |name: &str| FileAction::from_name(name).ok_or("there is no such action"))]
        action: FileAction,
        /// With `play`: print what a replay needs to show this time, in milliseconds since 1970
        #[arg(long, value_name = "UNIX_MS")]
        from: Option<u64>,
        /// The path of the file
        path: PathBuf,
    },
}

/// Parses the command line. On `--help`, `--version` or an error, prints a message and exits.
pub fn parse() -> Cli {
    if let Ok(role) = env::var(ROLE_VARIABLE) {
        return Cli::parse_from(["gputop", "demo-process", &role]);
    }
    if let Some(cli) = nvidia_smi_arguments::parse(env::args_os()) {
        return cli;
    }
    let args = option_order::without_help_of_help(nvidia_smi::spelled_out(env::args_os()));
    let args = option_order::after_subcommand(args);
    Cli::try_parse_from(&args)
        .and_then(Cli::with_useful_options)
        .unwrap_or_else(|error| {
            // In `env $(gputop free --typo) python train.py`, the job must not use all GPUs.
            let prints_ids = args
                .iter()
                .take_while(|arg| *arg != "--")
                .any(|arg| arg == "--ids");
            if error.use_stderr() && args.get(1).is_some_and(|task| task == "free") && !prints_ids {
                let _closed: anyhow::Result<()> = print_no_gpu();
            }
            nvidia_smi::explained(error, args.into_iter()).exit()
        })
}
