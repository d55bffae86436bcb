//! The panel that ends a process: whom it shows is whom it can hit, and nobody else.
//!
//! The target is fixed when the panel opens. The list may move, the PID may be used again: the agent
//! holds the process by a pidfd from then on, and every command names the same identity.

use crate::control::{Command, Outcome, Reply, Signal};
use crate::model::{Model, Reclaim, Returned};
use crate::snapshot::{Process, ProcessId, Snapshot, State};
use crate::units::{Bytes, Moment};
use crate::untrusted::Text;

/// Whom the panel is about: one and the same from opening to closing, as last seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// The process, with its user, command and state.
    pub process: Process,
    /// Its GPUs, by label and name.
    pub gpus: Vec<(String, String)>,
}

/// How far it has come.
#[derive(Debug, Clone, PartialEq)]
pub enum Stage {
    /// The agent is making sure of the process.
    Holding,
    /// It is held; a signal would reach it, and only it.
    Held,
    /// Nothing can be done, and why.
    Refused(Text),
    /// A signal was asked for, and the agent has not answered yet.
    Asked(Signal),
    /// A signal was sent.
    Sent {
        /// Which.
        signal: Signal,
        /// When.
        at: Moment,
        /// What the process does instead of ending, once that was worth a word: state, and what it waits in.
        alive: Option<(State, Option<Text>)>,
    },
    /// It ended.
    Ended {
        /// When.
        at: Moment,
        /// The parent that has not reaped it; absent when it is gone for good.
        zombie_of: Option<u32>,
    },
}

/// The panel.
#[derive(Debug, Clone, PartialEq)]
pub struct EndPanel {
    target: Target,
    /// The signal that Enter would send.
    pub choice: Signal,
    stage: Stage,
    /// When the first signal was sent; absent before.
    pub first_sent: Option<Moment>,
    reclaim: Reclaim,
    returned: Option<Returned>,
}

/// From gentle to hard.
pub const CHOICES: [Signal; 3] = [Signal::Int, Signal::Term, Signal::Kill];

/// How long after the end memory may still come back: the driver frees in the background.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

impl EndPanel {
    /// Opens the panel on a process, and what the agent is to do first.
    pub(super) fn open(process: &Process, model: &Model, snapshot: &Snapshot) -> (Self, Command) {
        let gpus = model.holding(process.id).map(|it| it.gpus.clone()).unwrap_or_default();
        let gpus = gpus.into_iter().map(|at| {
            let gpu = &snapshot.gpus[at];
            (super::rows::gpu_label(gpu), gpu.facts.name.as_ref().map_or_else(ToString::to_string, ToString::to_string))
        });
        let panel = Self {
            target: Target { process: process.clone(), gpus: gpus.collect() },
            choice: Signal::Term,
            stage: Stage::Holding,
            first_sent: None,
            reclaim: Reclaim::expect(process.id, snapshot),
            returned: None,
        };
        (panel, Command::Hold { process: process.id })
    }

    /// Whom it is about.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The identity of that process.
    pub fn id(&self) -> ProcessId {
        self.target.process.id
    }

    /// How far it has come.
    pub fn stage(&self) -> &Stage {
        &self.stage
    }

    /// The memory that should come back; absent when no GPU says how much it is.
    pub fn expected(&self) -> Option<Bytes> {
        self.reclaim.expected()
    }

    /// The memory that came back; absent before the GPUs were read again after the end.
    pub fn returned(&self) -> Option<Returned> {
        self.returned
    }

    /// Whether Enter would send now.
    pub fn can_send(&self) -> bool {
        matches!(self.stage, Stage::Held | Stage::Sent { .. })
    }

    /// Whether there is nothing left to do but to close it.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Refused(_) | Stage::Ended { .. })
    }

    /// Chooses a gentler or a harder signal.
    pub(super) fn choose(&mut self, by: isize) {
        let at = CHOICES.iter().position(|it| *it == self.choice).unwrap_or(0);
        let last = CHOICES.len() - 1;
        self.choice = CHOICES[at.saturating_add_signed(by).min(last)];
    }

    /// Enter was pressed: what the agent is to do, if anything can be done.
    pub(super) fn confirm(&mut self) -> Option<Command> {
        if !self.can_send() {
            return None;
        }
        self.stage = Stage::Asked(self.choice);
        Some(Command::Signal { process: self.id(), signal: self.choice })
    }

    /// The agent said something; other processes are not this panel's business.
    pub(super) fn hear(&mut self, reply: &Reply) {
        if reply.process != self.id() {
            return;
        }
        match &reply.outcome {
            Outcome::Held { .. } if self.stage == Stage::Holding => self.stage = Stage::Held,
            Outcome::Refused { reason } if !self.is_over() => self.stage = Stage::Refused(reason.clone()),
            Outcome::Sent { signal, at } => {
                self.first_sent.get_or_insert(*at);
                // An answer to an earlier panel says nothing of the hold of this one.
                if matches!(self.stage, Stage::Asked(_) | Stage::Sent { .. }) {
                    self.stage = Stage::Sent { signal: *signal, at: *at, alive: None };
                }
            }
            Outcome::Alive { state, wchan, .. } => {
                if let Stage::Sent { alive, .. } = &mut self.stage {
                    *alive = Some((*state, wchan.clone()));
                }
            }
            // The memory counts from the first word of the end: a zombie holds none.
            Outcome::Zombie { at, parent } => self.end(*at, Some(*parent)),
            Outcome::Ended { at } => self.end(*at, None),
            Outcome::Held { .. }
            | Outcome::Refused { .. }
            | Outcome::Joined { .. }
            | Outcome::LetGo { .. }
            | Outcome::Unrecorded { .. }
            | Outcome::Inspected(_) => {}
        }
    }

    fn end(&mut self, at: Moment, zombie_of: Option<u32>) {
        let first = if let Stage::Ended { at: first, .. } = self.stage { first } else { at };
        self.stage = Stage::Ended { at: first, zombie_of };
    }

    /// The host was seen again: what is held now is what is expected back, until the end; then, what came back.
    pub(super) fn see(&mut self, snapshot: &Snapshot) {
        // The same process, of which more may be known by now.
        if let Some(process) = snapshot.process(self.id()) {
            self.target.process.clone_from(process);
        }
        match self.stage {
            Stage::Ended { at, .. } if snapshot.at <= at.after(PATIENCE) || self.returned.is_none() => {
                self.returned = self.reclaim.returned(at, snapshot).or(self.returned);
            }
            Stage::Ended { .. } => {}
            _ if snapshot.process(self.id()).is_some() => self.reclaim = Reclaim::expect(self.id(), snapshot),
            _ => {}
        }
    }

    /// The agent is gone, and with it the hold on the process.
    pub(super) fn lose_agent(&mut self) {
        if !self.is_over() {
            self.stage = Stage::Refused(Text::from(
                "the agent is gone, and with it the hold on this process: close this panel, press R, and look again",
            ));
        }
    }
}
