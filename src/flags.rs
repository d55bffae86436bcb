//! Flags that several subcommands share, and the parsers of values. Each command flattens them into
//! its own arguments.

pub(crate) mod values;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use crate::base::terminal::TerminalAbilities;
use crate::base::units::parse_span;
use crate::protocol::agent_options::{AgentOptions, DEFAULT_INTERVAL, Interval, SimulatedMachine};
use crate::source::{Source, ViaCommand};

/// The hosts to show.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Other hosts")]
pub(crate) struct HostArgs {
    /// Show the host that this command connects to, such as `ssh HOST gputop agent`; repeat it for
    /// more hosts. The command is split as a shell does, and run without a shell and without the
    /// terminal
    #[arg(long, value_name = "[NAME=]COMMAND", value_parser = ViaCommand::from_str)]
    pub(crate) via: Vec<ViaCommand>,

    /// With `--via`: show this host too
    #[arg(long, requires = "via")]
    local: bool,
}

/// How an agent is started, by the viewer or by hand.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
#[derive(Debug, Clone, Args)]
pub(crate) struct AgentArgs {
    /// Time between two readings, such as `500ms` or `2s` [default: 1s]
    #[arg(long, value_name = "TIME", env = "GPUTOP_INTERVAL")]
    pub(crate) interval: Option<Interval>,

    /// Time between two readings for a loop of milliseconds, which may be shorter than `--interval`
    /// allows
    #[arg(long, hide = true, value_parser = values::positive_milliseconds)]
    interval_ms: Option<Duration>,

    /// Load this NVML library instead of the system's libnvidia-ml.so.1
    #[arg(long, value_name = "FILE", env = "GPUTOP_NVML_LIB")]
    pub(crate) nvml_lib: Option<PathBuf>,

    /// Show a simulated machine with real, harmless processes; needs no GPU
    #[arg(long)]
    pub(crate) demo: bool,

    /// With `--demo`: begin with lines of what the simulated GPUs did before
    #[arg(long, hide = true, requires = "demo")]
    demo_past: bool,

    /// Never send a signal
    #[arg(long)]
    readonly: bool,

    /// Read the detail of every GPU, which takes about a hundred more NVML calls per reading
    #[arg(long, hide = true)]
    detail: bool,

    /// Take only these readings of GPUs, named by their paths in the JSON
    #[arg(long, hide = true, value_delimiter = ',')]
    only: Vec<String>,
}

/// How a subcommand reads this host.
#[derive(Debug, Clone, Args)]
pub(crate) struct ReadArgs {
    #[command(flatten)]
    pub(crate) agent: AgentArgs,

    /// How long to wait for the driver before printing what is known
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_span)]
    timeout: Duration,
}

/// How a subcommand prints its result.
#[derive(Debug, Clone, Args)]
pub(crate) struct OutputArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// ASCII only (default in non-UTF-8 locales)
    #[arg(long)]
    ascii: bool,
}

/// The hosts to read, and how long to wait for them.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// The sources of lines, in the order of their host keys.
    pub sources: Vec<Source>,
    /// The time from one pass of an agent to the next.
    pub interval: Duration,
    /// How long to wait until every host has all that the report needs.
    pub timeout: Duration,
}

impl HostArgs {
    /// Returns the sources of lines: of this host, unless there are only others. `interval` is the
    /// time from one pass of an agent to the next; `None` leaves it to the agents.
    pub(crate) fn sources(&self, agent: &AgentArgs, interval: Option<Duration>) -> Vec<Source> {
        let agent = AgentOptions::from(agent);
        let local = Source::LocalAgent(AgentOptions {
            interval: interval.unwrap_or(agent.interval),
            ..agent
        });
        let is_local = self.local || self.via.is_empty();
        let via = self
            .via
            .iter()
            .map(|via| Source::Via(via.clone().with_interval(interval)));
        is_local.then_some(local).into_iter().chain(via).collect()
    }
}

impl AgentArgs {
    /// The time from one pass to the next; `None` where no flag and no variable says it.
    pub(crate) fn given_interval(&self) -> Option<Duration> {
        self.interval.map(|Interval(interval)| interval)
    }
}

impl ReadArgs {
    /// Returns the options to read the hosts. `usual` is the interval of a subcommand that has
    /// another one than the screen.
    pub(crate) fn hosts(&self, hosts: &HostArgs, usual: Option<Duration>) -> ReadOptions {
        let interval = self.agent.given_interval().or(usual);
        ReadOptions {
            sources: hosts.sources(&self.agent, interval),
            interval: interval.unwrap_or(DEFAULT_INTERVAL),
            timeout: self.timeout,
        }
    }

    /// Returns the options to read this host.
    pub(crate) fn this_host(&self, usual: Option<Duration>) -> ReadOptions {
        self.hosts(&HostArgs::default(), usual)
    }
}

impl OutputArgs {
    /// Whether the output is ASCII only: by flag, or because the locale or the terminal cannot show
    /// more.
    pub(crate) fn is_ascii(&self) -> bool {
        is_ascii(self.ascii)
    }
}

/// Whether output is ASCII only, by this flag, or because the locale or the terminal cannot show
/// more.
pub(crate) fn is_ascii(flag: bool) -> bool {
    flag || TerminalAbilities::from_env().ascii
}

impl From<&AgentArgs> for AgentOptions {
    fn from(args: &AgentArgs) -> Self {
        Self {
            interval: args
                .interval_ms
                .or(args.given_interval())
                .unwrap_or(DEFAULT_INTERVAL),
            nvml_lib: args.nvml_lib.clone(),
            demo: match (args.demo, args.demo_past) {
                (true, true) => SimulatedMachine::WithPast,
                (true, false) => SimulatedMachine::FromNow,
                (false, _) => SimulatedMachine::None,
            },
            readonly: args.readonly,
            detail: args.detail,
            only: args.only.clone(),
        }
    }
}
