//! Tells people who are not at the screen what the recorder sees: through a program, and through
//! notifications.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use tokio::time::Instant;

use crate::app::event::{Alert, AlertKind};
use crate::app::fleet::alert_scope::AlertScope;
use crate::app::fleet::told_news::{TellOptions, ToldNews};
use crate::base::text::Text;
use crate::base::units::ExactSpan;
use crate::files::local_time;
use crate::files::rests::{self, RestingNews};
use crate::flags::values;
use crate::model::Fleet;
use crate::notify::{AlertProgram, Destination, Message, Notifications, Phase};
use crate::protocol::host_key::HostKey;

/// A host that sends no line for this long is lost.
const SILENCE: Duration = Duration::from_secs(30);

/// The heading of the options below in `--help`.
pub(super) const TELL_HEADING: &str = "Telling people who are not at the screen";

/// The options of `gputop record` that decide who is told what.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = TELL_HEADING)]
pub(super) struct TellArgs {
    /// Run this program once for each alert, as the screen does with --on-alert
    #[arg(long, value_name = "PROGRAM")]
    on_alert: Option<String>,

    /// Tell the news of all users, not only those of your own processes and of the GPUs that they use
    #[arg(long)]
    all: bool,

    /// Tell that a process holds memory and has not computed for this long, at least `10m`
    #[arg(long, value_name = "TIME", default_value = "2h", value_parser = values::positive_span)]
    idle: Duration,
}

impl TellArgs {
    /// Returns what passes the news on; `None` where nobody is told anything.
    pub(super) fn telling(&self, destinations: Vec<Destination>) -> Option<Telling> {
        let words = self
            .on_alert
            .iter()
            .flat_map(|program| program.split_whitespace());
        let command: Vec<String> = words.map(str::to_owned).collect();
        if command.is_empty() && destinations.is_empty() {
            return None;
        }
        let scope = if self.all {
            AlertScope::Everyone
        } else {
            AlertScope::Mine
        };
        Some(Telling {
            news: ToldNews::new(TellOptions {
                scope,
                idle: self.idle,
            }),
            notifications: Notifications::new(destinations, AlertProgram::new(command)),
            heard: BTreeMap::new(),
        })
    }
}

/// The news that were told, and how they are passed on.
#[derive(Debug)]
pub(super) struct Telling {
    news: ToldNews,
    notifications: Notifications,
    /// When each host that is not lost sent its last line.
    heard: BTreeMap<HostKey, Instant>,
}

impl Telling {
    pub(super) fn see(&mut self, host: HostKey, fleet: &Fleet) {
        self.news.see(host, fleet);
    }

    pub(super) fn forget(&mut self, fleet: &Fleet) {
        self.news.forget(fleet);
    }

    /// Notes that a host sent a line.
    pub(super) fn hear(&mut self, host: HostKey) {
        self.heard.insert(host, Instant::now());
    }

    /// Returns when a host will have been silent for too long, unless it sends a line.
    pub(super) fn silence_due(&self) -> Option<Instant> {
        Some(*self.heard.values().min()? + SILENCE)
    }

    /// Tells which hosts have been silent for too long.
    pub(super) fn lose_silent(&mut self, now: Instant, fleet: &Fleet) {
        let is_silent = |heard: &Instant| now.duration_since(*heard) >= SILENCE;
        let silent: Vec<HostKey> = self
            .heard
            .iter()
            .filter(|(_, heard)| is_silent(heard))
            .map(|(host, _)| *host)
            .collect();
        for host in silent {
            let reason = Text::new(format!("no line for {}", ExactSpan(SILENCE)));
            self.lose(host, &reason, fleet);
        }
    }

    /// Tells that no more data comes from a host.
    pub(super) fn lose(&mut self, host: HostKey, reason: &Text, fleet: &Fleet) {
        self.heard.remove(&host);
        let alerts = self.news.lose(host, reason, fleet);
        let messages: Vec<Message> = alerts.into_iter().map(message).collect();
        self.send(&messages);
    }

    /// Returns the messages about a host that were not sent.
    pub(super) fn take(&mut self, host: HostKey, fleet: &Fleet) -> Vec<Message> {
        let alerts = self.news.take(host, fleet);
        alerts.into_iter().map(message).collect()
    }

    pub(super) fn send(&mut self, messages: &[Message]) {
        if messages.is_empty() {
            return;
        }
        // If the rests cannot be read, too much is told rather than too little.
        let rests = rests::read(local_time::unix_ms()).unwrap_or_default();
        let is_told = |message: &&Message| !rests.iter().any(|rest| rests_now(&rest.news, message));
        for message in messages.iter().filter(is_told) {
            self.notifications.send(message);
        }
    }

    /// Returns what became of messages, for the user.
    pub(super) fn take_notes(&mut self) -> Vec<Text> {
        self.notifications.take_notes()
    }

    /// Waits for messages that are on their way, no longer than `patience`.
    pub(super) fn close(self, patience: Duration) -> Vec<Text> {
        self.notifications.close(patience)
    }
}

/// Whether a message is one of the news that rest.
fn rests_now(news: &RestingNews, message: &Message) -> bool {
    let is = |name: &str, value: &str| {
        let mut facts = message.facts.iter();
        facts.any(|(fact, known)| *fact == name && known == value)
    };
    match news {
        RestingNews::Kind(kind) => message.kind == kind,
        RestingNews::Gpu { boot_id, gpu } => {
            let is_of_several = message.gpu.as_ref().is_some_and(|gpus| gpus.contains(','));
            is("BOOT_ID", boot_id) && message.gpu_ids.contains(gpu) && !is_of_several
        }
        RestingNews::Process {
            boot_id,
            pid,
            start_ticks,
        } => {
            is("BOOT_ID", boot_id)
                && message.pid == Some(*pid)
                && is("START_TICKS", &start_ticks.to_string())
        }
    }
}

fn message(alert: Alert) -> Message {
    let mut message = Message::of_host(
        alert.kind.into(),
        phase(alert.kind),
        String::new(),
        alert.sentence,
    );
    for (name, value) in alert.facts {
        match name {
            "HOST" => message.host = value,
            "GPU" => {
                message
                    .gpu_ids
                    .extend(value.split(',').map(|id| id.trim().to_owned()));
                message.gpu = Some(value);
            }
            "GPU_UUID" => {
                message.gpu_ids.push(value.clone());
                message.facts.push((name, value));
            }
            "JOB" => {
                message.job_ids.push(value.clone());
                message.job = Some(value);
            }
            "JOB_ORIGIN" => {
                let name = message.job.as_deref().unwrap_or_default();
                message.job = Some(format!("{name} ({value})"));
                let id = value.rsplit(' ').next().map(str::to_owned);
                message.job_ids.extend(id);
                message.job_ids.push(value);
            }
            "USER" => message.user = Some(value),
            "PID" => message.pid = value.parse().ok(),
            "COMMAND" => message.command = Some(value),
            _ => message.facts.push((name, value)),
        }
    }
    message
}

fn phase(kind: AlertKind) -> Phase {
    match kind {
        AlertKind::Leak
        | AlertKind::OutOfMemorySoon
        | AlertKind::GpuLost
        | AlertKind::HostLost
        | AlertKind::Idle => Phase::Begins,
        AlertKind::LeakOver
        | AlertKind::GpuAnswers
        | AlertKind::HostAnswers
        | AlertKind::IdleOver => Phase::Ends,
        AlertKind::OutOfMemory
        | AlertKind::GpuFree
        | AlertKind::ProcessEnded
        | AlertKind::Orphan
        | AlertKind::Xid => Phase::Once,
    }
}
