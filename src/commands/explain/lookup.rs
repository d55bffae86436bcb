//! Who the processes in a message are, here and now, as far as an agent can tell.
//!
//! A message has bare PIDs, and a PID is no identity: the message may be of another host, container or time. What
//! is found under the number is said with that care, and nothing is done to it.

use std::time::Duration;

use crate::base::units::{Elapsed, Moment};
use crate::commands::report::{self, table};
use crate::model::HostModel;
use crate::protocol::agent_options::AgentOptions;
use crate::protocol::snapshot::{Process, ProcessId, Snapshot};

/// What runs here.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    model: Option<HostModel>,
    /// Why that is not all.
    reason: Option<String>,
}

impl Neighbours {
    /// Looks through an agent, as every report does.
    pub(super) fn look(agent: &AgentOptions, patience: Duration) -> Self {
        match report::look(agent, patience, |snapshot| snapshot.host.scan.at != Moment(0)) {
            Ok((model, reason)) => {
                let trouble = model.latest().and_then(|it| it.driver.trouble.as_ref()).map(|it| it.sentence.clone());
                Self { model: Some(model), reason: trouble.or(reason).map(|it| it.to_string()) }
            }
            Err(error) => Self { model: None, reason: Some(format!("{error:#}")) },
        }
    }

    /// Who that is.
    pub(super) fn process(&self, pid: u32) -> Option<(&Snapshot, &Process)> {
        let snapshot = self.model.as_ref()?.latest()?;
        Some((snapshot, snapshot.processes.iter().find(|it| it.id.pid == pid)?))
    }

    /// When it started, in milliseconds since 1970.
    fn started(snapshot: &Snapshot, id: ProcessId) -> Option<u64> {
        let ticks = id.start_ticks?.saturating_mul(1000);
        let started = Moment(ticks.checked_div(snapshot.host.facts.ticks_per_second)?);
        snapshot.unix_ms.checked_sub(u64::try_from(snapshot.at.since(started).as_millis()).ok()?)
    }

    /// Whether it started only after the message was written, at `written` the latest: then it is another one.
    pub(super) fn is_younger(&self, pid: u32, written: Option<u64>) -> Option<bool> {
        let (snapshot, process) = self.process(pid)?;
        Some(Self::started(snapshot, process.id)? > written?)
    }

    /// What we think of it; absent when it is not known here.
    pub(super) fn verdict(&self, pid: u32) -> Option<(&'static str, String)> {
        let verdict = self.model.as_ref()?.verdicts().iter().find(|it| it.process.pid == pid)?;
        Some((verdict.name(), verdict.sentence()))
    }

    /// Who these are, for a person, a sentence for each, and one for all who are not seen; `written` is when the message
    /// was, at the latest.
    pub(super) fn sentences(&self, pids: &[u32], written: Option<u64>) -> Vec<String> {
        let unseen: Vec<String> =
            pids.iter().filter(|pid| self.process(**pid).is_none()).map(ToString::to_string).collect();
        let seen = pids.iter().filter_map(|pid| self.sentence(*pid, written));
        seen.chain((!unseen.is_empty()).then(|| self.of_unseen(&unseen))).collect()
    }

    fn of_unseen(&self, pids: &[String]) -> String {
        let (noun, is, has, it) = if pids.len() == 1 {
            ("process", "is", "has", "it has")
        } else {
            ("processes", "are", "have", "they have")
        };
        let who = format!("{noun} {}", pids.join(", "));
        match &self.reason {
            Some(reason) => format!("Who {who} {is} cannot be seen from here: {reason}"),
            None => format!(
                "P{} {has} no GPU of this host open now: {it} ended, or the message is of another host or container.",
                &who[1..]
            ),
        }
    }

    /// Who that is; absent when it is not seen here.
    fn sentence(&self, pid: u32, written: Option<u64>) -> Option<String> {
        let (snapshot, process) = self.process(pid)?;
        let command = table::command(process);
        if self.is_younger(pid, written) == Some(true) {
            return Some(format!(
                "Process {pid} of this host, {command}, started after this was written: it is not the one that is meant."
            ));
        }
        let user = table::cell(&process.facts.user);
        let process_total = self.model.as_ref().and_then(|it| it.process_total(process.id));
        let holds = match process_total.map(|it| it.memory) {
            Some(Ok(total)) => {
                let at_least = if total.lower_bound { "at least " } else { "" };
                format!("holds {at_least}{} of GPU memory", total.bytes)
            }
            _ => "has a GPU open".to_owned(),
        };
        let since = Self::started(snapshot, process.id)
            .and_then(|it| snapshot.unix_ms.checked_sub(it))
            .map_or_else(String::new, |it| format!(", runs for {}", Elapsed(Duration::from_millis(it))));
        let verdict = self.verdict(pid).filter(|(name, _)| *name != "active" && *name != "too_soon");
        let verdict = verdict.map_or_else(String::new, |(_, sentence)| format!(" ({sentence})"));
        Some(format!(
            "Process {pid} here and now: {command}, of {user}{since}, {holds}{verdict}. A PID is used again: it is the one \
             that is meant only if the message is of this host and not much older than this."
        ))
    }
}
