//! The panel that ends processes: whom it shows is whom it can hit, and nobody else.
//!
//! The targets are fixed when the panel opens: what is under the cursor or tagged; and the job it belongs
//! to, as far as that is known when the person turns to it. The list may move, PIDs may be used again: the
//! agent holds each process by a pidfd from then on, and every command names the same identities. Only what
//! the agent itself finds as a child of a process that it stopped for a forced end joins them, and is shown.

mod member;

use std::time::Duration;

pub use self::member::{Member, Stage};
use crate::base::text::{Argv, Text};
use crate::base::units::{Bytes, Moment};
use crate::model::{HostModel, Reclaim, Returned};
use crate::protocol::command::{Command, Signal};
use crate::protocol::host_key::HostKey;
use crate::protocol::reply::{Outcome, Reply, is_advice};
use crate::protocol::snapshot::{Process, ProcessId, Snapshot};

/// How much of what the panel shows is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// What was under the cursor, or tagged.
    Chosen,
    /// The whole job: its root launcher and all its related processes.
    Job,
}

/// What Enter would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Send it to each.
    Signal(Signal),
    /// SIGINT to the root; SIGTERM if that did not end it in time; no more.
    Gently,
    /// Stop all, look for more, end all: one act of the agent.
    ByForce,
}

/// What Enter would do, and to whom, which run what.
#[derive(Debug, PartialEq, Eq)]
pub struct PlannedEnd(HostKey, Choice, Vec<(ProcessId, Option<Argv>)>);

/// For one process, from gentle to hard, then what ends nothing by itself.
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

/// For several.
const FOR_MANY: &[Choice] = &[
    Choice::Gently,
    Choice::Signal(Signal::Int),
    Choice::Signal(Signal::Term),
    Choice::ByForce,
    Choice::Signal(Signal::Usr1),
    Choice::Signal(Signal::Stop),
    Choice::Signal(Signal::Cont),
];

/// How long after the end memory may still come back: the driver frees in the background.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a root has to end after a gentle signal.
const GRACE: Duration = Duration::from_secs(10);

/// torchrun gives its own ranks 30 s before it kills them.
const TORCHRUN_GRACE: Duration = Duration::from_secs(35);

/// From so many processes on, the person types the root's PID: nobody means that many by accident.
pub const MANY: usize = 20;

/// The panel.
#[derive(Debug, Clone, PartialEq)]
pub struct EndDialog {
    /// The host of all of its processes: a dialog never spans hosts.
    host: HostKey,
    /// Everyone of the job, the root first, then who joined.
    members: Vec<Member>,
    /// The job, the root first, as last seen before it was meant.
    job: Vec<ProcessId>,
    /// Those of the members that were under the cursor, or tagged.
    chosen: Vec<ProcessId>,
    scope: Scope,
    choice: Choice,
    /// What was typed to confirm.
    typed: String,
    first_sent: Option<Moment>,
    reclaim: Reclaim,
    returned: Option<Vec<Returned>>,
    respawned: Vec<(ProcessId, Process)>,
    /// Why what was done is not written down; absent while it is.
    unrecorded: Option<Text>,
    top: usize,
}

impl EndDialog {
    /// Opens the panel on some processes of a job, and says what the agent is to do first. The job's
    /// root comes first among its members; without a job, they are the chosen ones.
    pub(super) fn open(
        host: HostKey,
        chosen: Vec<ProcessId>,
        job: &[ProcessId],
        model: &HostModel,
        snapshot: &Snapshot,
    ) -> (Self, Vec<Command>) {
        let others = chosen.iter().filter(|id| !job.contains(id));
        let members = job.iter().chain(others).filter_map(|id| Member::of(*id, model, snapshot));
        let mut panel = Self {
            host,
            members: members.collect(),
            job: job.to_vec(),
            scope: Scope::Chosen,
            choice: Choice::Signal(Signal::Term),
            typed: String::new(),
            first_sent: None,
            reclaim: Reclaim::expect(chosen.clone(), snapshot),
            returned: None,
            respawned: Vec::new(),
            unrecorded: None,
            top: 0,
            chosen,
        };
        if panel.chosen.len() > 1 {
            panel.choice = Choice::Signal(Signal::Term);
        }
        let commands = panel.hold();
        (panel, commands)
    }

    /// Asks the agent to hold everyone that is meant and not held yet.
    fn hold(&mut self) -> Vec<Command> {
        let chosen = (self.scope == Scope::Chosen).then(|| self.chosen.clone());
        let is_meant = |id: ProcessId| chosen.as_ref().is_none_or(|chosen| chosen.contains(&id));
        let new = self.members.iter_mut().filter(|it| it.stage == Stage::Unasked && is_meant(it.id()));
        new.map(|member| {
            member.stage = Stage::Verifying;
            Command::Hold { process: member.id() }
        })
        .collect()
    }

    /// Everyone that Enter would reach, the root first.
    pub fn targets(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|it| it.joined || self.scope == Scope::Job || self.chosen.contains(&it.id()))
    }

    /// The host of all of its processes.
    pub fn host(&self) -> HostKey {
        self.host
    }

    /// The first of them: of a job, its root.
    pub fn root(&self) -> Option<&Member> {
        self.targets().next()
    }

    /// The first of those that were under the cursor, or tagged: its job is the one to turn to.
    pub(super) fn first_chosen(&self) -> Option<ProcessId> {
        self.chosen.first().copied()
    }

    /// The processes of the job that are not meant.
    pub fn spared(&self) -> usize {
        self.members.len() - self.targets().count()
    }

    /// What Enter would do, and to whom.
    pub fn planned(&self) -> PlannedEnd {
        PlannedEnd(
            self.host,
            self.choice,
            self.targets().map(|it| (it.id(), it.process.facts.argv.clone().ok())).collect(),
        )
    }

    /// Whether Tab can switch between the chosen processes and their whole job: nothing was sent yet, and the job has more
    /// processes.
    pub fn can_widen(&self) -> bool {
        self.first_sent.is_none() && (self.scope == Scope::Job || self.spared() > 0)
    }

    /// How much is meant.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// What Enter would do.
    pub fn choice(&self) -> Choice {
        self.choice
    }

    /// What there is to choose from.
    pub fn choices(&self) -> &'static [Choice] {
        if self.targets().nth(1).is_some() { FOR_MANY } else { FOR_ONE }
    }

    /// The memory that should come back; absent when no GPU says how much it is.
    pub fn expected(&self) -> Option<Bytes> {
        self.reclaim.expected()
    }

    /// The memory that came back; absent before the GPUs were read again after the end.
    pub fn returned(&self) -> Option<&[Returned]> {
        self.returned.as_deref()
    }

    /// Processes that took the place of one that was ended.
    pub fn respawned(&self) -> &[(ProcessId, Process)] {
        &self.respawned
    }

    /// Why what was done is not written down; absent while it is.
    pub fn unrecorded(&self) -> Option<&Text> {
        self.unrecorded.as_ref()
    }

    /// When the first signal was sent; absent before.
    pub fn first_sent(&self) -> Option<Moment> {
        self.first_sent
    }

    /// The first of the targets on the screen.
    pub fn top(&self) -> usize {
        self.top
    }

    /// Whether everyone is held or refused, so that it can begin.
    pub fn is_settled(&self) -> bool {
        self.targets().all(|it| !matches!(it.stage, Stage::Unasked | Stage::Verifying))
    }

    /// Whether Enter would send now.
    pub fn can_send(&self) -> bool {
        self.is_settled()
            && self.targets().any(Member::is_held)
            && !self.targets().any(|it| matches!(it.stage, Stage::Asked(_)))
            && self.word_to_type().is_none_or(|word| word == self.typed)
    }

    /// What has to be typed before anything is sent; absent when Enter is enough.
    pub fn word_to_type(&self) -> Option<String> {
        let is_grave = self.cautions().any(|(_, caution)| !is_advice(caution)) || self.targets().count() > MANY;
        is_grave.then(|| self.root().map(|root| root.id().pid.to_string())).flatten()
    }

    /// What was typed of it.
    pub fn typed(&self) -> &str {
        &self.typed
    }

    /// Reasons to think twice.
    pub fn cautions(&self) -> impl Iterator<Item = (&Member, &Text)> {
        self.targets().filter_map(|it| Some((it, it.caution.as_ref()?)))
    }

    /// Whether there is nothing left to do but to close it.
    pub fn is_over(&self) -> bool {
        self.targets().all(Member::is_over)
    }

    /// Whether everyone that was signalled has ended.
    pub fn has_ended(&self) -> bool {
        self.ended().is_some()
    }

    /// When the last of them ended; absent while one lives.
    fn ended(&self) -> Option<Moment> {
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

    /// Chooses what comes before or after.
    pub(super) fn choose(&mut self, by: isize) {
        let choices = self.choices();
        let at = choices.iter().position(|it| *it == self.choice).unwrap_or(0);
        self.choice = choices[at.saturating_add_signed(by).min(choices.len() - 1)];
    }

    /// Who belongs to the job is found out while one looks: as long as it is not what is meant, it grows. Nobody
    /// leaves it, and nobody of those that are meant changes.
    pub(super) fn add_to_job(&mut self, job: &[ProcessId], model: &HostModel, snapshot: &Snapshot) {
        if self.scope == Scope::Job || self.first_sent.is_some() {
            return;
        }
        let is_new = |id: &&ProcessId| self.members.iter().all(|it| it.id() != **id);
        let new: Vec<Member> = job.iter().filter(is_new).filter_map(|id| Member::of(*id, model, snapshot)).collect();
        if !new.is_empty() {
            self.members.extend(new);
            self.job = job.to_vec();
        }
    }

    /// Between the chosen and the whole job.
    pub(super) fn widen(&mut self, snapshot: &Snapshot) -> Vec<Command> {
        if self.first_sent.is_some() || self.members.len() == self.chosen.len() {
            return Vec::new();
        }
        self.scope = if self.scope == Scope::Chosen { Scope::Job } else { Scope::Chosen };
        // The root first.
        self.members.sort_by_key(|it| self.job.iter().position(|id| *id == it.id()).unwrap_or(usize::MAX));
        self.choice = if self.choices() == FOR_MANY { Choice::Gently } else { Choice::Signal(Signal::Term) };
        self.typed.clear();
        self.expect(snapshot);
        self.hold()
    }

    /// Scrolls the targets.
    pub(super) fn scroll(&mut self, by: isize) {
        self.top = self.top.saturating_add_signed(by).min(self.targets().count().saturating_sub(1));
    }

    /// A character was typed, or taken back.
    pub(super) fn type_in(&mut self, character: Option<char>) {
        match character {
            Some(digit) if digit.is_ascii_digit() && self.typed.len() < 10 => self.typed.push(digit),
            Some(_) => {}
            None => _ = self.typed.pop(),
        }
    }

    /// Enter was pressed: what the agent is to do, if anything can be done.
    pub(super) fn confirm(&mut self) -> Vec<Command> {
        if !self.can_send() {
            return Vec::new();
        }
        let held: Vec<ProcessId> = self.targets().filter(|it| it.is_held()).map(Member::id).collect();
        match self.choice {
            Choice::Signal(signal) => self.ask(&held, signal),
            Choice::Gently => self.ask(&held[..1], Signal::Int),
            Choice::ByForce => {
                self.ask(&held, Signal::Kill);
                vec![Command::Force { processes: held }]
            }
        }
    }

    fn ask(&mut self, processes: &[ProcessId], signal: Signal) -> Vec<Command> {
        for member in self.members.iter_mut().filter(|it| processes.contains(&it.id())) {
            member.stage = Stage::Asked(signal);
        }
        processes.iter().map(|process| Command::Signal { process: *process, signal }).collect()
    }

    /// Time has come to here: a gentle end goes one step on when its first signal did nothing.
    pub(super) fn pass(&mut self, now: Moment) -> Vec<Command> {
        match self.next_step() {
            Some(at) if now >= at => {
                let root: Vec<ProcessId> = self.root().map(Member::id).into_iter().collect();
                self.ask(&root, Signal::Term)
            }
            _ => Vec::new(),
        }
    }

    /// When SIGTERM follows SIGINT by itself; absent when nothing follows.
    pub fn next_step(&self) -> Option<Moment> {
        let root = self.root().filter(|_| self.choice == Choice::Gently)?;
        match root.stage {
            Stage::Sent { signal: Signal::Int, at, .. } => Some(at.after(self.grace())),
            _ => None,
        }
    }

    /// How long the root has.
    pub fn grace(&self) -> Duration {
        if self.root().is_some_and(Member::is_torchrun) { TORCHRUN_GRACE } else { GRACE }
    }

    /// The agent said something; other processes are not this panel's business.
    pub(super) fn take_reply(&mut self, reply: &Reply) {
        if let Outcome::Joined { comm, parent } = &reply.outcome {
            let is_ours = self.targets().any(|it| it.id() == *parent);
            if is_ours && self.members.iter().all(|it| it.id() != reply.process) {
                self.members.push(Member::joined(reply.process, comm.clone(), *parent));
            }
            return;
        }
        if let Outcome::NotRecorded { reason } = &reply.outcome {
            self.unrecorded = Some(reason.clone());
        }
        if let Outcome::Sent { at, .. } = reply.outcome
            && self.members.iter().any(|it| it.id() == reply.process && matches!(it.stage, Stage::Asked(_)))
        {
            self.first_sent.get_or_insert(at);
        }
        if let Some(member) = self.members.iter_mut().find(|it| it.id() == reply.process) {
            member.take_outcome(&reply.outcome);
        }
    }

    /// The host was seen again: what is held now is what is expected back, until the end; then, what came back.
    pub(super) fn see(&mut self, snapshot: &Snapshot) {
        for member in &mut self.members {
            member.see(snapshot);
        }
        match self.ended() {
            Some(at) => {
                if snapshot.at <= at.after(PATIENCE) || self.returned.is_none() {
                    self.returned = self.reclaim.returned(at, snapshot).or(self.returned.take());
                }
                self.look_for_respawned(snapshot);
            }
            // Once a signal is on its way, what is missing may have ended: that still counts.
            None if self.targets().all(|it| matches!(it.stage, Stage::Verifying | Stage::Held)) => {
                let now = Reclaim::expect(self.targets().map(Member::id).collect(), snapshot);
                if now.covers(&self.reclaim) {
                    self.reclaim = now;
                }
            }
            None => {}
        }
    }

    fn expect(&mut self, snapshot: &Snapshot) {
        self.reclaim = Reclaim::expect(self.targets().map(Member::id).collect(), snapshot);
    }

    /// A supervisor starts its child again, after we sent the signal.
    fn look_for_respawned(&mut self, snapshot: &Snapshot) {
        let Some(sent) = self.first_sent else { return };
        let per_second = snapshot.host.facts.ticks_per_second.max(1);
        // It may be there within the tick in which the signal was sent.
        let is_new = |it: &Process| {
            let started = it.id.start_ticks.is_some_and(|ticks| (ticks + 1) * 1000 / per_second > sent.0);
            started && self.members.iter().all(|member| member.id() != it.id)
        };
        let like = |it: &Process| self.targets().find(|member| member.is_succeeded_by(it, snapshot)).map(Member::id);
        let found = snapshot.processes.iter().filter(|it| is_new(it));
        self.respawned = found.filter_map(|it| Some((like(it)?, it.clone()))).collect();
    }

    /// The agent is gone, and with it the hold on everyone.
    pub(super) fn lose_agent(&mut self) {
        for member in self.members.iter_mut().filter(|it| !it.is_over()) {
            member.stage = Stage::Refused(Text::from(
                "the agent is gone, and with it the hold on this process: close this panel, press R, and look again",
            ));
        }
    }

    /// What the agent need not hold any more.
    pub(super) fn release(&self) -> Vec<Command> {
        let held = self.members.iter().filter(|it| it.stage != Stage::Unasked);
        held.map(|member| Command::Release { process: member.id() }).collect()
    }
}
