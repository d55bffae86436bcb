//! The dialog that ends a job, or tagged processes, on several hosts: one dialog for each host, and
//! one choice for all of them.
//!
//! The number of hosts is typed before anything is sent. Nothing is sent to a host that does not
//! answer then, also not when it answers later.

use std::collections::BTreeMap;
use std::time::Duration;

use crossterm::event::KeyCode;

use super::end_dialog::{
    Choice, EndDialog, FOR_MANY, MANY, Member, PlannedEnd, Stage, neighbour, type_digit,
};
use crate::base::text::Text;
use crate::protocol::command::Command;
use crate::protocol::host_key::HostKey;
use crate::protocol::reply::is_advice;
use crate::protocol::slurm_job::{SlurmCancel, SlurmCancelAnswer};

/// How long an agent may take to answer about a process before the dialog goes on without it.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EndOverHosts {
    /// The words for all that is ended: `the job slurm 4242 llama`, `the tagged processes`.
    pub subject: String,
    /// The dialog of each host.
    pub(in crate::app) parts: Vec<EndDialog>,
    /// The hosts that do not answer now.
    silent: Vec<HostKey>,
    /// The ranks of the job that no host showed when the dialog opened, and how many it has in all; `None`
    /// if all were seen, or their number is not known.
    pub unseen: Option<(u32, u32)>,
    /// How long each host has owed an answer about a process, while its lines may come.
    owed: BTreeMap<HostKey, Duration>,
    /// The choice for all hosts; `None` for `scancel`.
    pub choice: Option<Choice>,
    /// The job of Slurm, and whether `scancel` may end it; `None` if it is no job of Slurm.
    pub slurm: Option<(SlurmCancel, Cancel)>,
    pub typed: String,
    /// The number that was typed for, and what it counts.
    typed_for: Option<(String, &'static str)>,
    read: Option<PlannedEnd>,
    /// Whether the user has confirmed the first signal.
    confirmed: bool,
    /// How many rows are scrolled out above; the drawing stops at the last page.
    pub top: usize,
}

/// Whether a job of Slurm can be ended with `scancel`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cancel {
    /// It is not offered, or did not run, for this reason.
    Refused(Text),
    /// Slurm was asked, and has not answered yet.
    Asked,
    /// Slurm says that the user owns the job, and that it has these hosts.
    Offered,
    /// The user has chosen it. Slurm is asked once more before.
    Running,
    /// `scancel` has ended without an error.
    Done,
}

impl EndOverHosts {
    pub(in crate::app) fn new(
        subject: String,
        parts: Vec<EndDialog>,
        slurm: Option<SlurmCancel>,
    ) -> Self {
        Self {
            subject,
            parts,
            silent: Vec::new(),
            unseen: None,
            owed: BTreeMap::new(),
            choice: Some(Choice::Gently),
            slurm: slurm.map(|slurm| (slurm, Cancel::Asked)),
            typed: String::new(),
            typed_for: None,
            read: None,
            confirmed: false,
            top: 0,
        }
    }

    pub(crate) fn parts(&self) -> &[EndDialog] {
        &self.parts
    }

    /// Lets time pass. Takes the hosts from which no data comes; one whose agent has owed an answer
    /// for too long does not answer either, so that the others need not wait for it.
    pub(in crate::app) fn advance(&mut self, mut silent: Vec<HostKey>, elapsed: Duration) {
        let owes = |target: &Member| {
            matches!(
                target.stage,
                Stage::Unasked | Stage::Verifying | Stage::Asked(_)
            )
        };
        for part in &self.parts {
            if part.targets().any(owes) {
                *self.owed.entry(part.host).or_default() += elapsed;
            } else {
                self.owed.remove(&part.host);
            }
        }
        let late = self.owed.iter().filter(|(_, owed)| **owed >= PATIENCE);
        silent.extend(late.map(|(host, _)| *host));
        self.silent = silent;
    }

    pub(crate) fn is_silent(&self, host: HostKey) -> bool {
        self.silent.contains(&host)
    }

    /// Whether `scancel` may end the job; `None` if it is no job of Slurm.
    pub(crate) fn cancel(&self) -> Option<&Cancel> {
        self.slurm.as_ref().map(|(_, cancel)| cancel)
    }

    /// The job of Slurm; `None` if it is none.
    pub(in crate::app) fn slurm_job(&self) -> Option<SlurmCancel> {
        self.slurm.as_ref().map(|(slurm, _)| slurm.clone())
    }

    /// Returns the commands to release every process that an agent was asked to hold.
    pub(in crate::app) fn release(&self) -> Vec<(HostKey, Command)> {
        let commands = |part: &EndDialog| {
            let host = part.host;
            let commands = part.release().into_iter();
            commands
                .map(move |command| (host, command))
                .collect::<Vec<_>>()
        };
        self.parts.iter().flat_map(commands).collect()
    }

    /// The dialogs of the hosts that answer, and have a target that has not ended.
    fn reached(&self) -> impl Iterator<Item = &EndDialog> {
        self.parts
            .iter()
            .filter(|part| !self.is_silent(part.host) && part.left() > 0)
    }

    /// The number of hosts that Enter reaches.
    pub(crate) fn reached_count(&self) -> usize {
        self.reached().count()
    }

    pub(crate) fn choices(&self) -> Vec<Option<Choice>> {
        let cancel = self.can_cancel().then_some(None);
        let signals = FOR_MANY.iter().copied().map(Some);
        cancel.into_iter().chain(signals).collect()
    }

    /// Whether Slurm may end the job. Not while a host does not answer or has refused: Slurm would
    /// end what the dialog says it leaves alone.
    fn can_cancel(&self) -> bool {
        let is_refused = |target: &Member| matches!(target.stage, Stage::Refused(_));
        let is_meant =
            |part: &EndDialog| !self.is_silent(part.host) && !part.targets().any(is_refused);
        self.cancel() == Some(&Cancel::Offered) && self.parts.iter().all(is_meant)
    }

    pub(in crate::app) fn choose(&mut self, by: isize) {
        self.read = None;
        self.choice = neighbour(&self.choices(), self.choice, by);
    }

    pub(crate) fn planned(&self) -> PlannedEnd {
        let plans = self.reached().map(|part| {
            let mut part = part.clone();
            part.choice = self.choice.unwrap_or(Choice::Gently);
            part.planned()
        });
        PlannedEnd::of(plans, self.choice.is_none())
    }

    pub(in crate::app) fn mark_as_read(&mut self) {
        self.read = Some(self.planned());
    }

    pub(crate) fn is_read(&self) -> bool {
        self.read.as_ref() == Some(&self.planned())
    }

    /// The number that the user types before anything is sent, and what it counts: hosts, or the
    /// processes on the only host. `None` if Enter is enough.
    pub(crate) fn word_to_type(&self) -> Option<(String, &'static str)> {
        let hosts = self.reached_count();
        let processes = self.reached().flat_map(EndDialog::targets).count();
        let is_grave = self.cautions().any(|(_, _, caution)| !is_advice(caution));
        if self.choice.is_none() {
            Some((self.parts.len().to_string(), "hosts"))
        } else if self.confirmed {
            None
        } else if hosts > 1 {
            Some((hosts.to_string(), "hosts"))
        } else {
            (is_grave || processes > MANY).then(|| (processes.to_string(), "processes"))
        }
    }

    pub(crate) fn cautions(&self) -> impl Iterator<Item = (HostKey, &Member, &Text)> {
        self.reached().flat_map(|part| {
            let cautions = part.cautions();
            cautions.map(|(member, caution)| (part.host, member, caution))
        })
    }

    /// Whether each host that answers has said for every target that it holds it, or why not.
    pub(crate) fn is_settled(&self) -> bool {
        self.reached().all(EndDialog::is_settled)
    }

    fn can_send(&self) -> bool {
        let mut targets = self.reached().flat_map(EndDialog::targets);
        self.is_settled()
            && self.is_read()
            && self.cancel() != Some(&Cancel::Running)
            && self
                .reached()
                .any(|part| part.targets().any(Member::is_held))
            && !targets.any(|target| matches!(target.stage, Stage::Asked(_)))
            && (self.choice.is_some() || self.can_cancel())
            && self
                .word_to_type()
                .is_none_or(|word| word.0 == self.typed && self.typed_for.as_ref() == Some(&word))
    }

    /// Whether all targets have ended or were refused, so that the dialog can only be closed.
    pub(crate) fn is_over(&self) -> bool {
        self.parts.iter().all(EndDialog::is_over)
    }

    pub(crate) fn was_sent(&self) -> bool {
        self.confirmed
    }

    /// Returns the commands of the choice for each host that answers. `None` if `scancel` is to be
    /// run instead.
    pub(in crate::app) fn confirm(&mut self) -> Option<Vec<(HostKey, Command)>> {
        if !self.can_send() {
            return Some(Vec::new());
        }
        let Some(choice) = self.choice else {
            if let Some((_, cancel)) = &mut self.slurm {
                *cancel = Cancel::Running;
            }
            return None;
        };
        if !std::mem::replace(&mut self.confirmed, true) {
            for part in &mut self.parts {
                if self.silent.contains(&part.host) {
                    part.give_up("did not answer: nothing was sent to it");
                }
            }
        }
        let mut commands = Vec::new();
        for part in &mut self.parts {
            // Also of a silent host: nothing of an earlier choice follows there.
            part.choice = choice;
            if !self.silent.contains(&part.host) {
                let host = part.host;
                commands.extend(part.send().into_iter().map(|command| (host, command)));
            }
        }
        Some(commands)
    }

    /// Takes the answer of Slurm to this question: whether `scancel` may end the job, or whether it
    /// has run. Returns false if the question is not of this dialog.
    pub(in crate::app) fn take_cancel(&mut self, answer: &SlurmCancelAnswer) -> bool {
        let Some((asked, cancel)) = &mut self.slurm else {
            return false;
        };
        let awaited = if answer.has_run {
            Cancel::Running
        } else {
            Cancel::Asked
        };
        if *asked != answer.question || *cancel != awaited {
            return false;
        }
        *cancel = match &answer.result {
            Err(why) => Cancel::Refused(why.clone()),
            Ok(()) if answer.has_run => Cancel::Done,
            Ok(()) => Cancel::Offered,
        };
        self.read = None;
        if self.choice.is_none() {
            self.choice = Some(Choice::Gently);
        }
        true
    }

    /// Types a key into the confirmation.
    pub(in crate::app) fn type_in(&mut self, key: KeyCode) {
        let word = self.word_to_type();
        if self.typed_for != word {
            self.typed.clear();
            self.typed_for = word;
        }
        type_digit(&mut self.typed, key);
    }

    pub(in crate::app) fn scroll(&mut self, by: isize) {
        // No host has more rows than it has processes, and two for its name and its state.
        let processes: usize = self.parts.iter().map(|part| part.targets().count()).sum();
        let rows = processes + 2 * self.parts.len();
        self.top = self.top.saturating_add_signed(by).min(rows);
    }
}
