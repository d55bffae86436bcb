//! The processes that a report shows: those of the filter with which the screen begins.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::app::lists::process_cells::ProcessLine;
use crate::app::lists::rows::Filter;
use crate::model::HostModel;
use crate::protocol::snapshot::{ProcessId, Snapshot};

/// The processes to show; all by default.
#[derive(Debug, Clone, Default)]
pub struct ChosenProcesses {
    /// The words that the line of each process has, as in the filter of the screen. Empty for all
    /// processes.
    pub words: String,
    /// Whether only processes of the user that gputop runs as are shown.
    pub only_mine: bool,
}

impl ChosenProcesses {
    /// Whether all processes are shown.
    pub(crate) fn is_all(&self) -> bool {
        !self.only_mine && self.words.trim().is_empty()
    }

    /// Returns the snapshot without the processes that are not shown. `has_hosts` says whether the
    /// report names its hosts.
    pub(crate) fn filter<'a>(
        &self,
        host: &str,
        model: &HostModel,
        snapshot: &'a Snapshot,
        has_hosts: bool,
    ) -> Cow<'a, Snapshot> {
        if self.is_all() {
            return Cow::Borrowed(snapshot);
        }
        let filter = Filter::new(&self.words, self.only_mine, has_hosts);
        let lines = snapshot
            .processes
            .iter()
            .map(|process| ProcessLine::new(host, model, snapshot, process));
        let ids: HashSet<ProcessId> = lines
            .filter(|line| filter.matches(line))
            .map(|line| line.process.id)
            .collect();
        let mut chosen = snapshot.clone();
        chosen.processes.retain(|process| ids.contains(&process.id));
        chosen.gpus.iter_mut().for_each(|gpu| {
            gpu.processes
                .retain(|process| ids.contains(&process.process));
        });
        Cow::Owned(chosen)
    }
}
