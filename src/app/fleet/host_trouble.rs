//! Hosts from which no data comes, and the line that says so.

use std::fmt;
use std::time::Duration;

use crate::app::App;
use crate::app::event::Effect;
use crate::base::text::Text;
use crate::base::units::Elapsed;
use crate::protocol::host_key::HostKey;
use crate::protocol::snapshot::Snapshot;

/// Why no data comes from a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostTrouble<'a> {
    /// The source of the host has ended, for this reason.
    Lost(&'a Text),
    /// A line is overdue. Holds the time since the last line.
    Silent(Duration),
    /// No line ever came. Holds the time since the viewer began to wait.
    NeverAnswered(Duration),
}

impl fmt::Display for HostTrouble<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(reason) => reason.fmt(f),
            Self::Silent(silence) => write!(f, "no word from the agent for {}", Elapsed(*silence)),
            Self::NeverAnswered(silence) => write!(f, "no answer for {}", Elapsed(*silence)),
        }
    }
}

/// A host from which no line has come. It has no GPU in the lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingHost {
    /// The name of the host.
    pub name: String,
    /// The facts about it, as in `no answer for 34s: ssh: connect to host gpu-02 port 22:
    /// Connection timed out`.
    pub words: String,
    /// Whether its first line is overdue, or will not come.
    pub is_in_trouble: bool,
}

/// The reason why no data of a host comes, or why its GPUs cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DataTrouble {
    /// The facts, as in `no answer for 34s: ssh: connect to host gpu-02 port 22: Connection timed
    /// out`.
    pub words: String,
    /// Whether it is a trouble. Otherwise the host starts.
    pub is_trouble: bool,
}

impl App {
    /// The hosts from which no line has come, and those of several whose driver is in trouble. One
    /// host alone is not among them before its first line is overdue.
    pub(crate) fn waiting_hosts(&self) -> Vec<WaitingHost> {
        let fleet = self.fleet();
        let hosts = fleet
            .hosts()
            .filter(|(host, _)| self.processes.view.shows(*host));
        let waiting = hosts.filter_map(|(host, model)| {
            let is_read = model.latest().is_some();
            let state = if is_read {
                self.driver_state(host)
            } else {
                self.host_state(host)
            };
            let DataTrouble { words, is_trouble } = state?;
            Some(WaitingHost {
                name: fleet.name(host).to_owned(),
                words,
                is_in_trouble: is_trouble,
            })
        });
        waiting
            .filter(|waiting| waiting.is_in_trouble || fleet.has_many())
            .collect()
    }

    /// The reason why no data of a host comes, or why its GPUs cannot be read; `None` if they are
    /// read.
    pub(crate) fn host_state(&self, host: HostKey) -> Option<DataTrouble> {
        let trouble = self.trouble(host);
        let is_read = self.fleet().host(host)?.latest().is_some();
        let words = match (self.host_words(host), self.said.get(&host)) {
            (None, _) if is_read => return self.driver_state(host),
            // The reason has the last words of the command.
            (Some(words), Some(said)) if !matches!(trouble, Some(HostTrouble::Lost(_))) => {
                format!("{words}: {said}")
            }
            (Some(words), _) => words,
            (None, Some(said)) => format!("starting… {said}"),
            (None, None) => "starting…".to_owned(),
        };
        Some(DataTrouble {
            words,
            is_trouble: trouble.is_some(),
        })
    }

    /// The sentence about the driver of one of several hosts; `None` where the driver works.
    fn driver_state(&self, host: HostKey) -> Option<DataTrouble> {
        let fleet = self.fleet();
        let snapshot = fleet.host(host)?.latest().filter(|_| fleet.has_many())?;
        let trouble = snapshot.driver.trouble.as_ref()?;
        Some(DataTrouble {
            words: trouble.sentence.to_string(),
            is_trouble: !trouble.is_starting(),
        })
    }

    /// Remembers the last line that the command of a host wrote to its standard error, and shows it
    /// for a while.
    pub(in crate::app) fn note_error_line(&mut self, host: HostKey, said: Text) -> Option<Effect> {
        self.notice
            .set(format!("{}: {said}", self.data.live().name(host)));
        self.said.insert(host, said);
        None
    }

    pub(crate) fn trouble(&self, host: HostKey) -> Option<HostTrouble<'_>> {
        let silence = || {
            // It was not asked yet.
            if self.waits_for_others(host) {
                return None;
            }
            let model = self.data.live().host(host)?;
            let trouble = if model.latest().is_some() {
                HostTrouble::Silent
            } else {
                HostTrouble::NeverAnswered
            };
            model.silence().map(trouble)
        };
        self.lost.get(&host).map(HostTrouble::Lost).or_else(silence)
    }

    pub(crate) fn troubles(&self) -> impl Iterator<Item = (HostKey, HostTrouble<'_>)> {
        self.data
            .live()
            .hosts()
            .filter_map(|(host, _)| Some((host, self.trouble(host)?)))
    }

    /// Tells the user that a host calls itself otherwise than before: another machine may have
    /// answered.
    pub(in crate::app) fn note_new_name(&mut self, host: HostKey, before: Option<String>) {
        let fleet = self.data.live();
        if let (Some(before), Some(now)) = (before, fleet.own_name(host))
            && before != now
        {
            self.notice.set(format!(
                "{} called itself {before} and now calls itself {now}",
                fleet.name(host)
            ));
        }
    }

    /// Whether the host line is shown: if the user wants it, in a replay, during a recording, for
    /// simulated GPUs, and whenever a host is in trouble.
    pub(in crate::app) fn shows_host(&self) -> bool {
        let is_fine = self.fleet().hosts().all(|(host, model)| {
            let is_real =
                |snapshot: &Snapshot| snapshot.gpus.iter().all(|gpu| !gpu.facts.simulated);
            self.trouble(host).is_none() && model.latest().is_some_and(is_real)
        });
        let is_recorded = self.options.is_recording || self.active_recording.is_some();
        self.host_line || is_recorded || !is_fine || !self.lost.is_empty()
    }
}
