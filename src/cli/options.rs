//! Turns the command line into the option types of the other folders.

use std::time::Duration;

use clap::error::ErrorKind;

use super::{
    AgentArgs, Cli, DoctorArgs, ExplainArgs, FormatArgs, HostArgs, OrphansArgs, ReadArgs,
    ReplayArgs, ScreenArgs, Task,
};
use crate::app::fleet::alert_scope::AlertScope;
use crate::base::terminal::{self, TerminalAbilities};
use crate::commands::chosen_processes::ChosenProcesses;
use crate::commands::doctor::{AuditLogState, DoctorOptions, SettingsState};
use crate::commands::once::{ChosenColumns, ReportFormat, ReportOptions};
use crate::commands::orphans::OrphansOptions;
use crate::commands::query::{Caller, FieldTable, Query, QueryOptions};
use crate::commands::read_hosts::ReadOptions;
use crate::logs::explain::ExplainOptions;
use crate::protocol::agent_options::{
    AgentOptions, DEFAULT_INTERVAL, Interval, SHORTEST_LOOP, SimulatedMachine,
};
use crate::protocol::playback::Speed;
use crate::source::{Recording, Source};

impl Cli {
    /// Returns the options of a report, or `None` if the command line asks for the screen and the
    /// standard output is a terminal.
    pub(crate) fn report(&self) -> Option<ReportOptions> {
        let every = self.every();
        let format = match &self.format {
            FormatArgs { json: true, .. } => ReportFormat::Json,
            FormatArgs { plain: true, .. } => ReportFormat::Plain,
            _ if self.format.once || every.is_some() || !terminal::can_show_screen() => {
                ReportFormat::Table
            }
            _ => return None,
        };
        let interval = every
            .map(|every| every.max(SHORTEST_LOOP))
            .or(self.agent.interval.map(|Interval(interval)| interval));
        Some(ReportOptions {
            read: ReadOptions {
                sources: self.sources(interval),
                interval: interval.unwrap_or(DEFAULT_INTERVAL),
                timeout: self.timeout,
            },
            format,
            every,
            ascii: is_ascii(self.screen.ascii),
            columns: ChosenColumns {
                processes: self.screen.columns.clone(),
                gpus: self.screen.gpu_columns.clone(),
                sort: self.screen.sort,
            },
            ids: self.query.id.clone(),
            processes: self.screen.processes(),
        })
    }

    /// Returns the options of a query, or `None` if the command line has no option of nvidia-smi.
    pub(crate) fn query(&self) -> Option<QueryOptions> {
        let args = &self.query;
        let query = if args.help_gpu {
            Some(Query::Help(FieldTable::Gpu))
        } else if args.help_compute_apps {
            Some(Query::Help(FieldTable::ComputeApps))
        } else if args.help_remapped_rows {
            Some(Query::Help(FieldTable::RemappedRows))
        } else if let Some(names) = &args.query_remapped_rows {
            Some(Query::Fields(FieldTable::RemappedRows, names.clone()))
        } else if let Some(names) = &args.gpu {
            Some(Query::Fields(FieldTable::Gpu, names.clone()))
        } else if let Some(names) = &args.query_compute_apps {
            Some(Query::Fields(FieldTable::ComputeApps, names.clone()))
        } else if let Some(table) = &args.csv {
            Some(if table == "processes" {
                Query::ProcessCsv
            } else {
                Query::Csv
            })
        } else {
            args.list.then_some(Query::List)
        };
        let has_no_output = || !args.id.is_empty() && self.report().is_none();
        let is_asked = query.is_some()
            || !args.format.is_empty()
            || args.filename.is_some()
            || has_no_output();
        is_asked.then(|| QueryOptions {
            caller: Caller::Gputop,
            agent: AgentOptions::from(&self.agent),
            timeout: self.timeout,
            every: self.every(),
            count: None,
            query,
            format: args.format.clone(),
            ids: args.id.clone(),
            processes: self.screen.processes(),
            file: args.filename.clone(),
        })
    }

    /// Returns the command line, or an error if it has an option for alerts without effect: only
    /// the screen raises alerts.
    pub(super) fn with_useful_options(self) -> Result<Self, clap::Error> {
        match self.alert_option_without_effect() {
            Some(sentence) => Err(clap::Error::raw(
                ErrorKind::ArgumentConflict,
                format!("{sentence}\n"),
            )),
            None => Ok(self),
        }
    }

    fn alert_option_without_effect(&self) -> Option<String> {
        let cli = match &self.task {
            None => self.clone(),
            Some(Task::Replay(replay)) => self.with_replay(replay),
            Some(_) => return None,
        };
        let (screen, format, query) = (&cli.screen, &cli.format, &cli.query);
        let alert_options = [
            ("--on-alert", screen.on_alert.is_some()),
            ("--bell", screen.bell),
            ("--warn-before", screen.warn_before.is_some()),
        ];
        let outputs = [
            ("--once", format.once),
            ("--plain", format.plain),
            ("--json", format.json),
            ("--csv", query.csv.is_some()),
            ("a query", cli.query().is_some()),
            ("-l", cli.every().is_some()),
            (
                "an output that is no terminal",
                screen.screenshot.file.is_none() && !terminal::is_stdout(),
            ),
            (
                "TERM=dumb",
                screen.screenshot.file.is_none() && terminal::is_dumb(),
            ),
        ];
        let first = |named: &[(&'static str, bool)]| {
            named
                .iter()
                .find(|(_, is_given)| *is_given)
                .map(|(name, _)| *name)
        };
        let (option, output) = (first(&alert_options)?, first(&outputs)?);
        Some(format!(
            "{option} has no effect with {output}: only the screen raises alerts"
        ))
    }

    /// Returns the sources of lines. `interval` is the time from one pass of an agent to the next;
    /// `None` leaves it to the agents.
    pub(crate) fn sources(&self, interval: Option<Duration>) -> Vec<Source> {
        if let Some(Task::Replay(replay)) = &self.task {
            return vec![Source::Recording(Recording {
                path: replay.file.clone(),
                speed: replay.speed,
            })];
        }
        self.hosts.sources(&self.agent, interval)
    }

    /// Returns this command line with the format and screen flags of `replay`. A report replays as
    /// fast as possible.
    pub(crate) fn with_replay(&self, replay: &ReplayArgs) -> Self {
        let FormatArgs { once, plain, json } = replay.format;
        let is_report = once
            || plain
            || json
            || !terminal::can_show_screen()
            || replay.screen.screenshot.file.is_some();
        let speed = if is_report { Speed::Max } else { replay.speed };
        Self {
            task: Some(Task::Replay(ReplayArgs {
                speed,
                ..replay.clone()
            })),
            screen: replay.screen.clone(),
            format: replay.format.clone(),
            ..self.clone()
        }
    }

    /// The speed of a replay.
    pub(crate) fn speed(&self) -> Speed {
        if let Some(Task::Replay(replay)) = &self.task {
            replay.speed
        } else {
            Speed::Times(1.0)
        }
    }

    fn every(&self) -> Option<Duration> {
        self.every.or(self.loop_ms)
    }
}

impl HostArgs {
    /// Returns the sources of lines: of this host, unless there are only others.
    pub(super) fn sources(&self, agent: &AgentArgs, interval: Option<Duration>) -> Vec<Source> {
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

impl ScreenArgs {
    /// The text of the filter with which the screen begins; empty without one.
    pub(crate) fn filter(&self) -> String {
        let user = self.user.as_ref().map(|user| format!("user:{user}"));
        let pids = self
            .pid
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(",");
        let pids = (!pids.is_empty()).then(|| format!("pid:{pids}"));
        [self.filter.clone(), user, pids]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// The processes that a report shows.
    fn processes(&self) -> ChosenProcesses {
        ChosenProcesses {
            words: self.filter(),
            only_mine: self.mine,
        }
    }

    /// Returns the users whose memory growth raises alerts. `is_mine` says whether flags or
    /// settings ask for the user's own processes.
    pub(crate) fn alert_scope(&self, is_mine: bool) -> AlertScope {
        match &self.user {
            Some(user) => AlertScope::User(user.clone()),
            None if is_mine => AlertScope::Mine,
            None => AlertScope::Shared,
        }
    }

    pub(crate) fn alert_command(&self) -> Vec<String> {
        self.on_alert
            .iter()
            .flat_map(|command| command.split_whitespace())
            .map(str::to_owned)
            .collect()
    }
}

impl From<&AgentArgs> for AgentOptions {
    fn from(args: &AgentArgs) -> Self {
        Self {
            interval: args
                .interval_ms
                .or(args.interval.map(|Interval(interval)| interval))
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

impl From<&ExplainArgs> for ExplainOptions {
    fn from(args: &ExplainArgs) -> Self {
        Self {
            words: args.words.clone(),
            json: args.output.json,
            ascii: is_ascii(args.output.ascii),
        }
    }
}

impl ExplainArgs {
    pub(crate) fn read(&self) -> ReadOptions {
        self.read.options(&HostArgs::default(), None)
    }
}

/// The interval of `orphans`: a report needs three passes, and nobody waits long for it.
const ORPHANS_INTERVAL: Duration = Duration::from_millis(250);

impl From<&OrphansArgs> for OrphansOptions {
    fn from(args: &OrphansArgs) -> Self {
        Self {
            read: args.read.options(&args.hosts, Some(ORPHANS_INTERVAL)),
            watch: args.watch,
            json: args.output.json,
            user: args.user.clone(),
            ids: args.id.clone(),
            ascii: is_ascii(args.output.ascii),
        }
    }
}

impl ReadArgs {
    /// Returns the options. `usual` is the interval of a subcommand that has another one than the
    /// screen.
    pub(super) fn options(&self, hosts: &HostArgs, usual: Option<Duration>) -> ReadOptions {
        let interval = self
            .agent
            .interval
            .map(|Interval(interval)| interval)
            .or(usual);
        ReadOptions {
            sources: hosts.sources(&self.agent, interval),
            interval: interval.unwrap_or(DEFAULT_INTERVAL),
            timeout: self.timeout,
        }
    }
}

impl DoctorArgs {
    /// Whether the secrets on this host are listed, and nothing is diagnosed.
    pub(crate) fn lists_secrets(&self) -> bool {
        self.secrets
    }

    pub(crate) fn options(
        &self,
        settings: SettingsState,
        audit_log: AuditLogState,
    ) -> DoctorOptions {
        DoctorOptions {
            read: self.read.options(&HostArgs::default(), None),
            nvml_lib: self.read.agent.nvml_lib.clone(),
            settings,
            audit_log,
        }
    }
}

/// Returns whether output is ASCII only: by flag, or because the locale or the terminal cannot show
/// more.
pub(crate) fn is_ascii(flag: bool) -> bool {
    flag || TerminalAbilities::from_env().ascii
}
