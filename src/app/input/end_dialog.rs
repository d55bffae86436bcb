//! The dialog that ends processes. It signals only the processes that it shows.
//!
//! The targets are fixed when the dialog opens: the process under the cursor or the tagged ones, or
//! their whole job once the user presses Tab. From then on the agent holds each process by a pidfd,
//! and every command names the same identities, whatever moves in the list and whichever PID is
//! used again. Only children that the agent finds below a process that it stopped for a forced end
//! join the targets, and the dialog shows them.

mod confirmation;
mod member;

use std::time::Duration;

use crossterm::event::KeyCode;

pub(crate) use self::confirmation::PlannedEnd;
use self::confirmation::PlannedOnHost;
pub(super) use self::confirmation::{neighbour, type_digit};
pub(crate) use self::member::{Member, Stage};
use crate::base::text::Text;
use crate::base::units::Moment;
use crate::model::{HostModel, Reclaim, Returned};
use crate::protocol::command::{Command, Signal};
use crate::protocol::host_key::HostKey;
use crate::protocol::reply::{Outcome, Reply, is_advice};
use crate::protocol::snapshot::{Gpu, Process, ProcessId, Snapshot};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Chosen,
    Job,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    Signal(Signal),
    /// Send SIGINT to the root, which ends the others itself, then SIGTERM to all that do not end
    /// in time, and never SIGKILL.
    Gently,
    /// Stop all targets, scan for children, send SIGKILL to all: one command to the agent.
    ByForce,
}

/// The choices for one or for many processes: from gentle to hard, then signals that do not end a
/// process.
const FOR_ONE: &[Choice] = &[
    Choice::Signal(Signal::Int),
    Choice::Signal(Signal::Term),
    Choice::Signal(Signal::Kill),
    Choice::Signal(Signal::Hup),
    Choice::Signal(Signal::Quit),
    Choice::Signal(Signal::Usr1),
    Choice::Signal(Signal::Usr2),
    Choice::Signal(Signal::Stop),
    Choice::Signal(Signal::Cont),
];

pub(super) const FOR_MANY: &[Choice] = &[
    Choice::Gently,
    Choice::Signal(Signal::Int),
    Choice::Signal(Signal::Term),
    Choice::ByForce,
    Choice::Signal(Signal::Usr1),
    Choice::Signal(Signal::Stop),
    Choice::Signal(Signal::Cont),
];

/// How long memory may still come back after the end: the driver frees in the background.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time between SIGINT and SIGTERM of a gentle end.
const GRACE: Duration = Duration::from_secs(10);

/// The time that torchrun has to end after SIGINT: it gives its own ranks 30 s before it kills
/// them.
const TORCHRUN_GRACE: Duration = Duration::from_secs(35);

/// With more processes than this the user types the root's PID to confirm.
pub(crate) const MANY: usize = 20;

/// A process that the parent of a target started next.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Successor {
    /// The target that has ended.
    pub ended: ProcessId,
    pub process: Process,
    /// Whether the process replaces the target, so that its parent is to be ended first; `false` if
    /// the parent may have started it anyway.
    pub is_restart: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EndDialog {
    /// The host of all of its processes. A dialog over several hosts has one of these for each.
    pub host: HostKey,
    /// The processes of the job, root first, then chosen processes outside of the job, then
    /// descendants that the agent found while it ended the job by force.
    members: Vec<Member>,
    /// The job, the root first, as last seen before the scope became [`Scope::Job`].
    job: Vec<ProcessId>,
    /// The members that were under the cursor, or tagged. Tab switches to the job of the first.
    pub(in crate::app) chosen: Vec<ProcessId>,
    pub scope: Scope,
    /// How many of the first targets get the SIGINT with which a gentle end begins.
    root_count: usize,
    pub choice: Choice,
    pub typed: String,
    /// The effect of Enter that the user had time to read; `None` until then, and after each key
    /// that changes it.
    read: Option<PlannedEnd>,
    /// The moment of the first signal; `None` before it.
    pub first_sent: Option<Moment>,
    /// The moment of the last SIGINT of a gentle end; `None` when no SIGTERM is to follow.
    interrupted: Option<Moment>,
    /// The moment of the latest snapshot.
    latest: Moment,
    pub reclaim: Reclaim,
    /// The memory that came back, GPU by GPU; `None` until the GPUs are read after the end.
    pub returned: Option<Vec<Returned>>,
    /// The processes that took the places of targets.
    pub successors: Vec<Successor>,
    /// Why the audit log was not written; `None` while it is.
    pub unrecorded: Option<Text>,
    pub top: usize,
}

/// The job of a process, its root first. Empty until every process of the host was scanned: a part
/// of a job must not be taken for the whole.
pub(in crate::app) fn job(model: &HostModel, process: ProcessId) -> Vec<ProcessId> {
    let Some(job) = model.job(process).filter(|_| model.is_complete()) else {
        return Vec::new();
    };
    let others = job
        .members
        .iter()
        .copied()
        .filter(|id| Some(*id) != job.root);
    job.root.into_iter().chain(others).collect()
}

impl EndDialog {
    /// Opens the dialog on the processes in `chosen`. `job` is their job, root first. Also returns
    /// the first commands to the agent.
    pub(in crate::app) fn open(
        host: HostKey,
        chosen: Vec<ProcessId>,
        job: &[ProcessId],
        model: &HostModel,
        snapshot: &Snapshot,
    ) -> (Self, Vec<Command>) {
        let others = chosen.iter().filter(|id| !job.contains(id));
        let members = job
            .iter()
            .chain(others)
            .filter_map(|id| Member::new(*id, model, snapshot));
        let mut dialog = Self {
            host,
            members: members.collect(),
            job: job.to_vec(),
            scope: Scope::Chosen,
            root_count: 1,
            choice: Choice::Signal(Signal::Term),
            typed: String::new(),
            read: None,
            first_sent: None,
            interrupted: None,
            latest: snapshot.at,
            reclaim: Reclaim::expect(chosen.clone(), snapshot),
            returned: None,
            successors: Vec::new(),
            unrecorded: None,
            top: 0,
            chosen,
        };
        let commands = dialog.hold();
        (dialog, commands)
    }

    /// Opens the part of a dialog over several hosts: the processes of one host, of which the first
    /// `root_count` started the others.
    pub(super) fn open_part(
        host: HostKey,
        processes: Vec<ProcessId>,
        root_count: usize,
        model: &HostModel,
        snapshot: &Snapshot,
    ) -> (Self, Vec<Command>) {
        let (mut dialog, commands) = Self::open(host, processes, &[], model, snapshot);
        // A process that is gone by now has no member.
        let roots = &dialog.chosen[..root_count.min(dialog.chosen.len())];
        let is_root = |member: &&Member| roots.contains(&member.id());
        dialog.root_count = dialog.members.iter().filter(is_root).count();
        dialog.choice = Choice::Gently;
        (dialog, commands)
    }

    /// Returns the commands to hold every target that the agent was not asked to hold before.
    fn hold(&mut self) -> Vec<Command> {
        let chosen = (self.scope == Scope::Chosen).then(|| self.chosen.clone());
        let is_meant = |id: ProcessId| chosen.as_ref().is_none_or(|chosen| chosen.contains(&id));
        let new = self
            .members
            .iter_mut()
            .filter(|member| member.stage == Stage::Unasked && is_meant(member.id()));
        new.map(|member| {
            member.stage = Stage::Verifying;
            Command::Hold {
                process: member.id(),
            }
        })
        .collect()
    }

    /// The processes that Enter reaches, the root first.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| {
            member.was_found_late || self.scope == Scope::Job || self.chosen.contains(&member.id())
        })
    }

    /// Whether every target is a process of the simulated machine.
    pub(crate) fn is_simulated(&self) -> bool {
        self.targets()
            .all(|target| target.process.facts.is_of_demo())
    }

    pub(crate) fn root(&self) -> Option<&Member> {
        self.targets().next()
    }

    /// The number of targets that have not ended and were not refused.
    pub(crate) fn left(&self) -> usize {
        self.targets().filter(|target| !target.is_over()).count()
    }

    /// The targets that a gentle end begins with.
    pub(super) fn roots(&self) -> impl Iterator<Item = &Member> {
        self.targets().take(self.root_count)
    }

    /// Whether a gentle end begins with some of the targets, those that started the others.
    pub(crate) fn begins_with_roots(&self) -> bool {
        self.is_root_left() && self.root_count < self.targets().count()
    }

    /// Whether a gentle end begins with the roots alone: one has not ended and was not refused.
    pub(crate) fn is_root_left(&self) -> bool {
        self.roots().any(|root| !root.is_over())
    }

    pub(crate) fn spared_count(&self) -> usize {
        self.members.len() - self.targets().count()
    }

    pub(crate) fn planned(&self) -> PlannedEnd {
        let targets = self.targets().map(|target| {
            let argv = target.process.facts.argv.clone().ok();
            (target.id(), argv, target.caution.clone())
        });
        let plan = PlannedOnHost {
            host: self.host,
            choice: self.choice,
            is_root_left: self.is_root_left(),
            targets: targets.collect(),
        };
        PlannedEnd::on_host(plan)
    }

    /// Records that the dialog was on the screen for long enough to be read.
    pub(in crate::app) fn mark_as_read(&mut self) {
        self.read = Some(self.planned());
    }

    /// Whether the user had time to read the effect that Enter would have now.
    pub(crate) fn is_read(&self) -> bool {
        self.read.as_ref() == Some(&self.planned())
    }

    /// Whether Tab can switch between the chosen processes and their whole job: nothing was sent
    /// yet, and the job has more processes.
    pub(crate) fn can_widen(&self) -> bool {
        self.first_sent.is_none() && (self.scope == Scope::Job || self.spared_count() > 0)
    }

    pub(crate) fn choices(&self) -> &'static [Choice] {
        if self.targets().nth(1).is_some() {
            FOR_MANY
        } else {
            FOR_ONE
        }
    }

    /// Whether the agent has answered for every target: it holds the process, or refused.
    pub(crate) fn is_settled(&self) -> bool {
        self.targets()
            .all(|target| !matches!(target.stage, Stage::Unasked | Stage::Verifying))
    }

    pub(crate) fn can_send(&self) -> bool {
        self.is_settled()
            && self.is_read()
            && self.targets().any(Member::is_held)
            && !self
                .targets()
                .any(|target| matches!(target.stage, Stage::Asked(_)))
            && self.word_to_type().is_none_or(|word| word == self.typed)
    }

    /// The text that the user types before anything is sent; `None` if Enter is enough.
    pub(crate) fn word_to_type(&self) -> Option<String> {
        let is_grave = self.cautions().any(|(_, caution)| !is_advice(caution))
            || self.targets().count() > MANY;
        is_grave
            .then(|| self.root().map(|root| root.id().pid.to_string()))
            .flatten()
    }

    pub(crate) fn cautions(&self) -> impl Iterator<Item = (&Member, &Text)> {
        self.targets()
            .filter_map(|target| Some((target, target.caution.as_ref()?)))
    }

    /// Whether every target has ended or was refused, so that the dialog can only be closed.
    pub(crate) fn is_over(&self) -> bool {
        self.targets().all(Member::is_over)
    }

    /// The moment when the last target ended; `None` while a target lives, or if all were refused.
    pub(crate) fn ended(&self) -> Option<Moment> {
        let mut last = None;
        for member in self.targets() {
            match member.stage {
                Stage::Ended { at, .. } => last = last.max(Some(at)),
                Stage::Refused(_) => {}
                _ => return None,
            }
        }
        last
    }

    pub(in crate::app) fn choose(&mut self, by: isize) {
        self.read = None;
        self.choice = neighbour(self.choices(), self.choice, by);
    }

    /// Adds processes that were found to belong to the job, unless the whole job is the target
    /// already. No process leaves the job, and the targets stay.
    pub(in crate::app) fn add_to_job(
        &mut self,
        job: &[ProcessId],
        model: &HostModel,
        snapshot: &Snapshot,
    ) {
        if self.scope == Scope::Job || self.first_sent.is_some() {
            return;
        }
        let is_new = |id: &&ProcessId| self.members.iter().all(|member| member.id() != **id);
        let new: Vec<Member> = job
            .iter()
            .filter(is_new)
            .filter_map(|id| Member::new(*id, model, snapshot))
            .collect();
        if !new.is_empty() {
            self.members.extend(new);
            self.job = job.to_vec();
        }
    }

    /// Switches between the chosen processes and the whole job. Returns the commands to hold new
    /// targets.
    pub(in crate::app) fn toggle_whole_job(&mut self, snapshot: &Snapshot) -> Vec<Command> {
        if self.first_sent.is_some() || self.members.len() == self.chosen.len() {
            return Vec::new();
        }
        self.read = None;
        self.scope = if self.scope == Scope::Chosen {
            Scope::Job
        } else {
            Scope::Chosen
        };
        // The root comes first.
        self.members.sort_by_key(|member| {
            self.job
                .iter()
                .position(|id| *id == member.id())
                .unwrap_or(usize::MAX)
        });
        self.choice = if self.choices() == FOR_MANY {
            Choice::Gently
        } else {
            Choice::Signal(Signal::Term)
        };
        self.typed.clear();
        self.reclaim = self.expected(snapshot);
        self.hold()
    }

    pub(in crate::app) fn scroll(&mut self, by: isize) {
        self.top = self
            .top
            .saturating_add_signed(by)
            .min(self.targets().count().saturating_sub(1));
    }

    /// Types a key into the confirmation.
    pub(in crate::app) fn type_in(&mut self, key: KeyCode) {
        type_digit(&mut self.typed, key);
    }

    pub(in crate::app) fn confirm(&mut self) -> Vec<Command> {
        if self.can_send() {
            self.send()
        } else {
            Vec::new()
        }
    }

    /// Returns the commands of the choice for all targets that the agent holds.
    pub(super) fn send(&mut self) -> Vec<Command> {
        let held = self.held();
        match self.choice {
            Choice::Signal(signal) => self.signal(&held, signal),
            Choice::Gently => {
                let roots = self.roots().filter(|root| root.is_held()).map(Member::id);
                let roots: Vec<ProcessId> = roots.collect();
                let first = if roots.is_empty() { &held } else { &roots };
                self.signal(first, Signal::Int)
            }
            Choice::ByForce => {
                self.signal(&held, Signal::Kill);
                vec![Command::Force { processes: held }]
            }
        }
    }

    /// The targets that a signal reaches.
    fn held(&self) -> Vec<ProcessId> {
        self.targets()
            .filter(|target| target.is_held())
            .map(Member::id)
            .collect()
    }

    fn signal(&mut self, processes: &[ProcessId], signal: Signal) -> Vec<Command> {
        for member in self
            .members
            .iter_mut()
            .filter(|member| processes.contains(&member.id()))
        {
            member.stage = Stage::Asked(signal);
        }
        processes
            .iter()
            .map(|process| Command::Signal {
                process: *process,
                signal,
            })
            .collect()
    }

    /// Returns the commands that are due: SIGTERM to all targets that have not ended in time after
    /// SIGINT.
    pub(in crate::app) fn due_commands(&mut self, now: Moment) -> Vec<Command> {
        if self.next_step().is_none_or(|at| now < at) {
            return Vec::new();
        }
        self.interrupted = None;
        self.signal(&self.held(), Signal::Term)
    }

    /// The moment when SIGTERM is due after SIGINT; `None` if it is not planned.
    pub(crate) fn next_step(&self) -> Option<Moment> {
        let at = self
            .interrupted
            .filter(|_| self.choice == Choice::Gently && self.left() > 0)?;
        Some(at.after(self.grace()))
    }

    pub(crate) fn grace(&self) -> Duration {
        let is_torchrun = self
            .roots()
            .any(|root| !root.is_over() && root.is_torchrun());
        if is_torchrun { TORCHRUN_GRACE } else { GRACE }
    }

    /// Takes a reply of the agent. Ignores a reply about a process that is not in the dialog,
    /// unless that process joined the job or the log could not be written.
    pub(in crate::app) fn take_reply(&mut self, reply: &Reply) {
        if let Outcome::Joined { comm, parent } = &reply.outcome {
            let is_ours = self.targets().any(|target| target.id() == *parent);
            if is_ours
                && self
                    .members
                    .iter()
                    .all(|member| member.id() != reply.process)
            {
                self.members
                    .push(Member::joined(reply.process, comm.clone(), *parent));
            }
            return;
        }
        if let Outcome::NotRecorded { reason } = &reply.outcome {
            self.unrecorded = Some(reason.clone());
        }
        self.take_withheld(reply);
        self.take_end_of_root(reply);
        if let Outcome::Sent { signal, at } = reply.outcome
            && self.members.iter().any(|member| {
                member.id() == reply.process && matches!(member.stage, Stage::Asked(_))
            })
        {
            self.first_sent.get_or_insert(at);
            self.interrupted = Some(at).filter(|_| signal == Signal::Int);
        }
        if let Some(member) = self
            .members
            .iter_mut()
            .find(|member| member.id() == reply.process)
        {
            member.take_outcome(&reply.outcome);
        }
    }

    /// Takes a reply that a signal was withheld, because the process is not what the user saw any
    /// more: nothing follows that signal.
    fn take_withheld(&mut self, reply: &Reply) {
        let Outcome::Held {
            caution: Some(caution),
        } = &reply.outcome
        else {
            return;
        };
        let member = self
            .members
            .iter()
            .find(|member| member.id() == reply.process);
        let Some(member) = member.filter(|member| member.caution.as_ref() != Some(caution)) else {
            return;
        };
        if !is_advice(caution) {
            self.interrupted = None;
        }
        if member.stage == Stage::Asked(Signal::Kill) && self.choice == Choice::ByForce {
            // A forced end of several processes is withheld as a whole.
            for member in &mut self.members {
                if member.stage == Stage::Asked(Signal::Kill) {
                    member.stage = Stage::Held;
                }
            }
        }
    }

    /// Takes a reply that a root was gone, or refused, before the SIGINT of a gentle end: the others
    /// get SIGTERM in time nevertheless.
    fn take_end_of_root(&mut self, reply: &Reply) {
        let at = match reply.outcome {
            Outcome::Ended { at } | Outcome::Zombie { at, .. } => at,
            Outcome::Refused { .. } => self.latest,
            _ => return,
        };
        let was_asked = self.members.iter().any(|member| {
            member.id() == reply.process && member.stage == Stage::Asked(Signal::Int)
        });
        if was_asked && self.choice == Choice::Gently {
            self.first_sent.get_or_insert(at);
            self.interrupted.get_or_insert(at);
        }
    }

    /// Takes a new snapshot. While targets live, it says how much memory to expect back;
    /// afterwards, how much came back.
    pub(in crate::app) fn update(&mut self, snapshot: &Snapshot) {
        self.latest = snapshot.at;
        for member in &mut self.members {
            member.update(snapshot);
        }
        match self.ended() {
            Some(at) => {
                if snapshot.at <= at.after(PATIENCE) || self.returned.is_none() {
                    self.returned = self.reclaim.returned(at, snapshot).or(self.returned.take());
                }
                self.look_for_successors(snapshot);
            }
            // Only before the first signal: later, a target may be absent because it has ended, and
            // its memory is still to be returned.
            None if self
                .targets()
                .all(|target| matches!(target.stage, Stage::Verifying | Stage::Held)) =>
            {
                let now = self.expected(snapshot);
                if now.covers(&self.reclaim) {
                    self.reclaim = now;
                }
            }
            None => {}
        }
    }

    fn expected(&self, snapshot: &Snapshot) -> Reclaim {
        Reclaim::expect(self.targets().map(Member::id).collect(), snapshot)
    }

    /// Finds the processes that the parents of targets started after the first signal.
    fn look_for_successors(&mut self, snapshot: &Snapshot) {
        let Some(sent) = self.first_sent else { return };
        let per_second = snapshot.host.facts.ticks_per_second.max(1);
        // A supervisor may start the new process within the clock tick of the signal.
        let is_new = |process: &Process| {
            let started = process
                .id
                .start_ticks
                .is_some_and(|ticks| (ticks + 1) * 1000 / per_second > sent.0);
            started && self.members.iter().all(|member| member.id() != process.id)
        };
        let found = snapshot
            .processes
            .iter()
            .filter(|process| is_new(process))
            .filter_map(|new| {
                let ended = self
                    .targets()
                    .filter_map(|target| Some((target, target.is_restarted_as(new, snapshot)?)));
                let (target, is_restart) = ended.min_by_key(|(_, is_restart)| !is_restart)?;
                Some(Successor {
                    ended: target.id(),
                    process: new.clone(),
                    is_restart,
                })
            });
        let mut successors: Vec<Successor> = found.collect();
        successors.sort_by_key(|successor| !successor.is_restart);
        self.successors = successors;
    }

    /// The living processes that may keep the memory of ended targets on a GPU: they have it open,
    /// and are of the job, or of the user of a target and without memory of their own there.
    /// Processes of other users and jobs have nothing to do with it.
    pub(crate) fn possible_holders(&self, gpu: &Gpu, snapshot: &Snapshot) -> Vec<ProcessId> {
        let is_target = |id: ProcessId| self.targets().any(|target| target.id() == id);
        let is_of_job = |id: ProcessId| {
            self.job.contains(&id) || self.members.iter().any(|member| member.id() == id)
        };
        let has_own_memory = |id: ProcessId| {
            gpu.processes
                .iter()
                .any(|gpu_process| gpu_process.process == id)
        };
        let is_of_user = |id: ProcessId| {
            let uid = snapshot
                .process(id)
                .and_then(|process| process.facts.uid.ok());
            uid.is_some()
                && self
                    .targets()
                    .any(|target| target.process.facts.uid.ok() == uid)
        };
        let may_keep = |id: &ProcessId| {
            !is_target(*id) && (is_of_job(*id) || is_of_user(*id) && !has_own_memory(*id))
        };
        gpu.device_file_holders
            .iter()
            .copied()
            .filter(may_keep)
            .collect()
    }

    /// Refuses every target that has not ended: the agent is gone, and no process is held any more.
    pub(in crate::app) fn lose_agent(&mut self) {
        self.give_up("the agent is gone, and with it the hold on this process: close this panel, press Ctrl-R, and look again");
    }

    /// Refuses every target that has not ended, for this reason.
    pub(super) fn give_up(&mut self, reason: &str) {
        for member in self.members.iter_mut().filter(|member| !member.is_over()) {
            member.stage = Stage::Refused(Text::from(reason));
        }
    }

    /// Returns the commands to release every process that the agent was asked to hold.
    pub(in crate::app) fn release(&self) -> Vec<Command> {
        let held = self
            .members
            .iter()
            .filter(|member| member.stage != Stage::Unasked);
        held.map(|member| Command::Release {
            process: member.id(),
        })
        .collect()
    }
}
