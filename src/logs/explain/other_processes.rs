//! The processes of this host that a message names by PID.
//!
//! A PID is no identity: the message may be of another host, container or time. The sentences say
//! so, and nothing is done to the processes.

use crate::base::units::Elapsed;
use crate::model::{HostModel, Verdict};
use crate::output::{labels, table};
use crate::protocol::snapshot::{Process, Snapshot};

/// This host as it is now; nothing if no message names a process.
#[derive(Debug, Default)]
pub(crate) struct OtherProcesses {
    pub model: Option<HostModel>,
    /// Why the processes, or some of them, cannot be seen.
    pub reason: Option<String>,
}

impl OtherProcesses {
    pub(super) fn find(&self, pid: u32) -> Option<(&Snapshot, &Process)> {
        let snapshot = self.model.as_ref()?.latest()?;
        Some((
            snapshot,
            snapshot
                .processes
                .iter()
                .find(|process| process.id.pid == pid)?,
        ))
    }

    /// Whether the process started after the message was `written`, and so is not the one in the
    /// message. `None` if either time is not known.
    pub(super) fn started_after(&self, pid: u32, written: Option<u64>) -> Option<bool> {
        let (snapshot, process) = self.find(pid)?;
        let age = u64::try_from(labels::elapsed(snapshot, process).ok()?.as_millis()).ok()?;
        Some(snapshot.unix_ms.checked_sub(age)? > written?)
    }

    pub(super) fn verdict_on(&self, pid: u32) -> Option<&Verdict> {
        let mut verdicts = self.model.as_ref()?.verdicts().iter();
        verdicts.find(|verdict| verdict.process.pid == pid)
    }

    /// Returns a sentence for each of these processes that is on this host, and one for all others.
    /// `written` is the latest time at which the message may have been written, in milliseconds
    /// since 1970.
    pub(super) fn sentences(&self, pids: &[u32], written: Option<u64>) -> Vec<String> {
        let unseen: Vec<String> = pids
            .iter()
            .filter(|pid| self.find(**pid).is_none())
            .map(ToString::to_string)
            .collect();
        let seen = pids.iter().filter_map(|pid| self.sentence(*pid, written));
        seen.chain((!unseen.is_empty()).then(|| self.unseen_sentence(&unseen)))
            .collect()
    }

    fn unseen_sentence(&self, pids: &[String]) -> String {
        let (plural, are, they, have) = if pids.len() == 1 {
            ("", "is", "it", "has")
        } else {
            ("es", "are", "they", "have")
        };
        let pids = pids.join(", ");
        match &self.reason {
            Some(reason) => format!("Process{plural} {pids} {are} not visible from here: {reason}"),
            None => format!(
                "Process{plural} {pids} {are} not on a GPU of this host now: {they} {have} ended, or the message is of \
                 another host or container."
            ),
        }
    }

    fn sentence(&self, pid: u32, written: Option<u64>) -> Option<String> {
        let (snapshot, process) = self.find(pid)?;
        let command = table::command(process);
        if self.started_after(pid, written) == Some(true) {
            return Some(format!(
                "Process {pid} of this host, {command}, started after the message was written: the message means another \
                 process."
            ));
        }
        let user = table::cell(&process.facts.user);
        let process_total = self
            .model
            .as_ref()
            .and_then(|model| model.process_total(process.id));
        let holds = match process_total.map(|total| total.memory) {
            Some(Ok(total)) => {
                let at_least = if total.is_lower_bound {
                    "at least "
                } else {
                    ""
                };
                format!("holds {at_least}{} of GPU memory", total.bytes)
            }
            _ => "has a GPU open".to_owned(),
        };
        let age = labels::elapsed(snapshot, process);
        let age = age.map_or_else(
            |_| String::new(),
            |age| format!(", runs for {}", Elapsed(age)),
        );
        let verdict = self
            .verdict_on(pid)
            .filter(|verdict| verdict.is_remarkable());
        let verdict = verdict.map_or_else(String::new, |it| format!(" ({})", it.sentence()));
        Some(format!(
            "Process {pid} here and now: {command}, of {user}{age}, {holds}{verdict}. PIDs are reused: the message means \
             this process only if the message is of this host and recent."
        ))
    }
}
