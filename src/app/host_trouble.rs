//! Hosts from which no data comes, and the line that says so.

use std::time::Duration;

use super::App;
use crate::base::text::Text;
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

impl App {
    pub(crate) fn trouble(&self, host: HostKey) -> Option<HostTrouble<'_>> {
        let silence = || {
            let model = self.data.live().host(host)?;
            let trouble = if model.latest().is_some() { HostTrouble::Silent } else { HostTrouble::NeverAnswered };
            model.silence().map(trouble)
        };
        self.lost.get(&host).map(HostTrouble::Lost).or_else(silence)
    }

    pub(crate) fn troubles(&self) -> impl Iterator<Item = (HostKey, HostTrouble<'_>)> {
        self.data.live().hosts().filter_map(|(host, _)| Some((host, self.trouble(host)?)))
    }

    /// Tells the user that a host calls itself otherwise than before: another machine may have answered.
    pub(super) fn note_new_name(&mut self, host: HostKey, before: Option<String>) {
        let fleet = self.data.live();
        if let (Some(before), Some(now)) = (before, fleet.own_name(host))
            && before != now
        {
            self.notice.set(format!("{} called itself {before} and now calls itself {now}", fleet.name(host)));
        }
    }

    /// Whether the host line is shown: if the user wants it, in a replay, during a recording, for simulated GPUs, and whenever a
    /// host is in trouble.
    pub(super) fn shows_host(&self) -> bool {
        let is_fine = self.fleet().hosts().all(|(host, model)| {
            let is_real = |snapshot: &Snapshot| snapshot.gpus.iter().all(|gpu| !gpu.facts.simulated);
            self.trouble(host).is_none() && model.latest().is_some_and(is_real)
        });
        let is_recorded = self.options.is_recording || self.active_recording.is_some();
        self.host_line || is_recorded || !is_fine || !self.lost.is_empty()
    }
}
