//! Turns the flags of the screen, of a report and of a query into the option types of the other
//! folders.

use std::time::Duration;

use clap::error::ErrorKind;

use super::{CastArgs, Cli, FormatArgs, ReplayArgs, ScreenArgs, Subcommand};
use crate::app::fleet::alert_scope::AlertScope;
use crate::base::terminal;
use crate::commands::live::chosen_processes::ChosenProcesses;
use crate::commands::once::{ChosenColumns, ReportFormat, ReportOptions};
use crate::commands::query::{Caller, FieldTable, Query, QueryOptions};
use crate::flags::{HostArgs, ReadOptions, is_ascii};
use crate::protocol::agent_options::{AgentOptions, SHORTEST_LOOP};
use crate::protocol::playback::Speed;
use crate::source::prometheus::PrometheusOptions;
use crate::source::{AskedJob, Recording, SlurmCommands, Source};

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
            .or(self.agent.given_interval());
        Some(ReportOptions {
            read: ReadOptions {
                sources: self.sources(interval),
                interval: interval.unwrap_or_else(|| self.usual_interval()),
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
            Some(Subcommand::Replay(replay)) => self.with_replay(replay),
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
        if let Some(Subcommand::Replay(replay)) = &self.task {
            return vec![Source::Recording(Recording {
                path: replay.file.clone().unwrap_or_default(),
                speed: replay.speed,
                from_end: false,
            })];
        }
        // The film takes lines when their time has come.
        if let Some(CastArgs {
            replay: Some(file), ..
        }) = self.cast()
        {
            return vec![Source::Recording(Recording {
                path: file.clone(),
                speed: Speed::Max,
                from_end: false,
            })];
        }
        self.hosts.sources(&self.agent, interval)
    }

    /// The flags on hosts of the subcommand, or of the screen and reports; `None` for a subcommand
    /// without them.
    pub(crate) fn hosts_mut(&mut self) -> Option<&mut HostArgs> {
        match &mut self.task {
            None => Some(&mut self.hosts),
            Some(Subcommand::Exporter(args)) => Some(&mut args.hosts),
            Some(Subcommand::Free(args)) => Some(&mut args.hosts),
            Some(Subcommand::Hosts(args)) => Some(args.hosts_mut()),
            Some(Subcommand::Idle(args)) => Some(&mut args.hosts),
            Some(Subcommand::Orphans(args)) => Some(&mut args.hosts),
            Some(Subcommand::Record(args)) => Some(&mut args.hosts),
            Some(Subcommand::Wait(args)) => Some(&mut args.hosts),
            Some(_) => None,
        }
    }

    /// The Prometheus server whose hosts are shown; `None` without one.
    pub(crate) fn prometheus(&self) -> Option<PrometheusOptions> {
        self.cluster.options(&self.hosts)
    }

    /// Whether a report is printed: a flag asks for it, or there is no terminal.
    pub(crate) fn wants_report(&self) -> bool {
        let FormatArgs { once, plain, json } = self.format;
        once || plain || json || self.every().is_some() || !terminal::can_show_screen()
    }

    /// The commands of Slurm, where `--slurm` says; on this host without it.
    pub(crate) fn slurm_commands(&self) -> SlurmCommands {
        self.hosts.slurm_commands()
    }

    /// The job that Slurm was asked for; `None` without `--slurm`.
    pub(crate) fn asked_job(&self) -> Option<AskedJob> {
        self.hosts.asked_job()
    }

    /// The usual interval of the hosts on the screen.
    pub(crate) fn usual_interval(&self) -> Duration {
        self.hosts.usual_interval()
    }

    fn cast(&self) -> Option<&CastArgs> {
        match &self.task {
            Some(Subcommand::Cast(cast)) => Some(cast),
            _ => None,
        }
    }

    /// Returns this command line with the flags of `gputop cast` that the screen has too.
    pub(crate) fn with_cast(&self, cast: &CastArgs) -> Self {
        Self {
            agent: cast.agent.clone(),
            screen: ScreenArgs {
                theme: cast.theme,
                ..self.screen.clone()
            },
            ..self.clone()
        }
    }

    /// Whether the screen shows a recording.
    pub(crate) fn is_recording(&self) -> bool {
        matches!(self.task, Some(Subcommand::Replay(_)))
            || self.cast().is_some_and(|cast| cast.replay.is_some())
    }

    /// Whether the screen is drawn into a file, without a terminal.
    pub(crate) fn is_picture(&self) -> bool {
        self.screen.screenshot.file.is_some() || self.cast().is_some()
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
            task: Some(Subcommand::Replay(ReplayArgs {
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
        match &self.task {
            Some(Subcommand::Replay(replay)) => replay.speed,
            Some(Subcommand::Cast(cast)) => cast.speed,
            _ => Speed::Times(1.0),
        }
    }

    fn every(&self) -> Option<Duration> {
        self.every.or(self.loop_ms)
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
