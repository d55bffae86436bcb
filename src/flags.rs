//! Flags that several subcommands share, and the parsers of values. Each command flattens them into
//! its own arguments.

pub(crate) mod values;

use std::collections::HashSet;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgGroup, Args};

use crate::base::terminal::TerminalAbilities;
use crate::base::text::Text;
use crate::base::units::parse_span;
use crate::protocol::agent_options::{AgentOptions, DEFAULT_INTERVAL, Interval, SimulatedMachine};
use crate::protocol::slurm_job::SlurmJob;
use crate::source::prometheus::PrometheusOptions;
use crate::source::{
    AskedJob, HostList, HostName, HostTables, NamedHost, SlurmCommands, SlurmTarget, Source,
    SrunStep, SshHost, SshSettings, ViaCommand,
};

/// From this number of hosts on, the usual interval is longer.
const MANY_HOSTS: usize = 20;

/// The usual interval of many hosts.
const INTERVAL_OF_MANY: Duration = Duration::from_secs(2);

/// The help of a subcommand. clap prints examples (`before_help`) first; here they come last.
pub(crate) const SUBCOMMAND_HELP: &str = "\
{about-with-newline}
{usage-heading} {usage}

{all-args}{after-help}

{before-help}";

/// The hosts to show.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Other hosts", group = ArgGroup::new("other_hosts").multiple(true))]
pub(crate) struct HostArgs {
    /// Show these hosts over your own ssh, as in `-H gpu-01,node[01-16],alice@big:2222,@lab`; `@lab`
    /// is `hosts.lab` in config.toml. A port follows the name; put an IPv6 address in brackets.
    /// Repeat it for more hosts
    #[arg(short = 'H', long = "host", value_name = "HOST,…", group = "other_hosts", value_parser = HostList::from_str)]
    host: Vec<HostList>,

    /// Show the hosts of this file over your own ssh: one host or range a line, and comments after
    /// `#`
    #[arg(long, value_name = "FILE", group = "other_hosts")]
    hosts: Vec<PathBuf>,

    /// Show the nodes of this Slurm job over your own ssh: `--slurm 4242`, or `--slurm 4242_3` for a
    /// task of an array. Its GPUs come first on the screen; the others of its nodes are dim. `squeue`
    /// runs here, or on a login host, as in `--slurm login:4242`: once, and again at Ctrl-R
    #[arg(long, value_name = "[LOGIN:]JOB[_TASK]", group = "other_hosts", value_parser = SlurmTarget::from_str)]
    slurm: Option<SlurmTarget>,

    /// With `--slurm`: reach each node by a step of the job, `srun --overlap`, in place of ssh. The
    /// steps end with gputop, and stay in the lists of `sacct`
    #[arg(long, requires = "slurm")]
    srun: bool,

    /// Show the host that this command connects to, such as `kubectl exec -i POD -- gputop agent`;
    /// repeat it for more hosts. The command is split as a shell does, and run without a shell and
    /// without the terminal
    #[arg(long, value_name = "[NAME=]COMMAND", group = "other_hosts", value_parser = ViaCommand::from_str)]
    pub(crate) via: Vec<ViaCommand>,

    /// Copy gputop to no host: one without gputop shows what its `nvidia-smi` prints, without
    /// processes
    #[arg(long, requires = "other_hosts")]
    no_upload: bool,

    /// With other hosts: show this host too
    #[arg(long, requires = "other_hosts")]
    local: bool,

    /// The hosts that the lists name, once the configuration was read.
    #[arg(skip)]
    named: Vec<NamedHost>,

    #[arg(skip)]
    ssh: SshSettings,

    /// The job of Slurm, once Slurm was asked.
    #[arg(skip)]
    slurm_job: Option<SlurmJob>,
}

/// The Prometheus server whose hosts are shown.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "A cluster, through Prometheus")]
pub(crate) struct ClusterArgs {
    /// Show all hosts that this Prometheus knows, or a server that answers as it does, from the series
    /// of `dcgm-exporter`, `nvidia_gpu_exporter`, `nvitop-exporter`, `all-smi` or `gputop exporter`
    #[arg(long, value_name = "URL", conflicts_with_all = ["other_hosts", "demo"])]
    prometheus: Option<String>,

    /// Log in to the server as this file says: that of promtool, with passwords, tokens and
    /// certificates. Its name there, `--http.config.file`, works too
    // fish refuses completions with a dot in a name.
    #[arg(
        long = "http-config-file",
        alias = "http.config.file",
        value_name = "FILE",
        requires = "prometheus"
    )]
    http_config: Option<PathBuf>,

    /// Reach the server from this host, over your own ssh (`ssh -W`)
    #[arg(long, value_name = "HOST", requires = "prometheus")]
    prometheus_from: Option<HostName>,
}

impl ClusterArgs {
    /// The host from which the server is reached; `None` for this one.
    pub(crate) fn login(&self) -> Option<&HostName> {
        self.prometheus_from.as_ref()
    }

    /// The server, and how it is reached; `None` without one.
    pub(crate) fn options(&self, hosts: &HostArgs) -> Option<PrometheusOptions> {
        Some(PrometheusOptions {
            url: self.prometheus.clone()?,
            http_config: self.http_config.clone(),
            ssh: self.login().map(|login| hosts.ssh_host(login)),
        })
    }
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
    /// Whether there are other hosts.
    pub(crate) fn has_others(&self) -> bool {
        self.names_lists() || !self.via.is_empty()
    }

    /// Whether hosts are named in lists or by a job: the configuration is needed.
    pub(crate) fn names_lists(&self) -> bool {
        !self.host.is_empty() || !self.hosts.is_empty() || self.slurm.is_some()
    }

    /// The job of Slurm whose nodes are to be shown.
    pub(crate) fn slurm(&self) -> Option<&SlurmTarget> {
        self.slurm.as_ref()
    }

    /// Adds the nodes of a job, of which Slurm has told. A node that a list names is there once.
    ///
    /// # Errors
    ///
    /// When there are too many hosts: a sentence.
    pub(crate) fn add_nodes(
        &mut self,
        tables: &HostTables,
        target: &SlurmTarget,
        job: SlurmJob,
    ) -> Result<(), String> {
        let mut nodes = Vec::new();
        for node in &job.nodes {
            nodes.push(node.name.as_str().parse()?);
        }
        let known: HashSet<Text> = self.named.iter().map(NamedHost::name).collect();
        let step = SrunStep::new(target.login.clone(), &job);
        for node in tables.named_hosts(&nodes)? {
            if known.contains(&node.name()) {
                continue;
            }
            self.named.push(match node {
                NamedHost::Ssh(name) if self.srun => NamedHost::Srun(name, step.clone()),
                node => node,
            });
        }
        self.slurm_job = Some(job);
        Ok(())
    }

    /// The job that Slurm was asked for; `None` without `--slurm`.
    pub(crate) fn asked_job(&self) -> Option<AskedJob> {
        Some(AskedJob {
            commands: self.slurm_commands(),
            id: self.slurm.as_ref()?.job,
            job: self.slurm_job.clone()?,
        })
    }

    /// Returns the commands of Slurm, where `--slurm` says; on this host without it.
    pub(crate) fn slurm_commands(&self) -> SlurmCommands {
        let login = self.slurm.as_ref().and_then(|target| target.login.as_ref());
        SlurmCommands::new(login.map(|name| self.ssh_host(name)))
    }

    /// The lists of hosts on the command line.
    pub(crate) fn lists(&self) -> Vec<HostList> {
        self.host.clone()
    }

    /// The files with lists of hosts.
    pub(crate) fn inventories(&self) -> &[PathBuf] {
        &self.hosts
    }

    /// Sets the hosts that the lists name, and how ssh connects to them.
    pub(crate) fn set_named(&mut self, named: Vec<NamedHost>, ssh: SshSettings) {
        let upload = ssh.upload && !self.no_upload;
        (self.named, self.ssh) = (named, SshSettings { upload, ..ssh });
    }

    /// Sets the lists of hosts and the files with lists, where they are flags of the subcommand.
    pub(crate) fn set_lists(&mut self, lists: Vec<HostList>, inventories: Vec<PathBuf>) {
        (self.host, self.hosts) = (lists, inventories);
    }

    /// The hosts that the lists name.
    pub(crate) fn named(&self) -> &[NamedHost] {
        &self.named
    }

    /// Returns the host with this name, with the usual options of an agent.
    pub(crate) fn ssh_host(&self, name: &HostName) -> SshHost {
        let agent = AgentOptions {
            interval: self.usual_interval(),
            nvml_lib: None,
            demo: SimulatedMachine::None,
            readonly: false,
            detail: false,
            only: Vec::new(),
            shares_lines: false,
        };
        SshHost::new(name.clone(), Arc::new(self.ssh.clone()), agent)
    }

    /// The usual interval of so many hosts.
    pub(crate) fn usual_interval(&self) -> Duration {
        if self.named.len() + self.via.len() >= MANY_HOSTS {
            INTERVAL_OF_MANY
        } else {
            DEFAULT_INTERVAL
        }
    }

    /// Returns the sources of lines: of this host, unless there are only others. `interval` is the
    /// time from one pass of an agent to the next; `None` leaves it to the agents.
    pub(crate) fn sources(&self, agent: &AgentArgs, interval: Option<Duration>) -> Vec<Source> {
        let usual = self.usual_interval();
        let interval = interval.or((usual != DEFAULT_INTERVAL).then_some(usual));
        let agent = AgentOptions::from(agent);
        let agent = AgentOptions {
            interval: interval.unwrap_or(agent.interval),
            ..agent
        };
        let ssh = Arc::new(self.ssh.clone());
        let via = |via: &ViaCommand| Source::Via(via.clone().with_interval(interval));
        let named = self.named.iter().map(|named| match named {
            NamedHost::Ssh(name) => {
                Source::Ssh(SshHost::new(name.clone(), Arc::clone(&ssh), agent.clone()))
            }
            NamedHost::Srun(name, step) => {
                let host = SshHost::new(name.clone(), Arc::clone(&ssh), agent.clone());
                Source::Ssh(host.with_srun(step.clone()))
            }
            NamedHost::Via(command) => via(command),
        });
        let others: Vec<Source> = named.chain(self.via.iter().map(via)).collect();
        let is_local = self.local || others.is_empty();
        let local = is_local.then(|| Source::LocalAgent(agent.clone()));
        local.into_iter().chain(others).collect()
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
            interval: interval.unwrap_or_else(|| hosts.usual_interval()),
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
            shares_lines: false,
        }
    }
}
