//! One process of the panel, and how far it has come.

use crate::base::text::{Argv, Text};
use crate::base::units::Moment;
use crate::model::HostModel;
use crate::protocol::command::Signal;
use crate::protocol::reply::Outcome;
use crate::protocol::snapshot::{Identity, Missing, Process, ProcessFacts, ProcessId, ProcessLoad, Snapshot, State};

/// How far it has come.
#[derive(Debug, Clone, PartialEq)]
pub enum Stage {
    /// Of the job, but not meant: nobody was asked to hold it.
    Unasked,
    /// The agent is making sure of the process.
    Verifying,
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
    /// It was stopped for the end of its job, and let go on, since that failed; why.
    LetGo(Text),
    /// It ended.
    Ended {
        /// When.
        at: Moment,
        /// The parent that has not reaped it; absent when it is gone for good.
        zombie_of: Option<u32>,
    },
}

/// A process of the panel.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// The process, with its user, command and state, as last seen.
    pub process: Process,
    /// Its GPUs, by label and name.
    pub gpus: Vec<(String, String)>,
    /// How far it has come.
    pub stage: Stage,
    /// Why to think twice.
    pub caution: Option<Text>,
    /// The agent found it below a process that it had stopped.
    pub joined: bool,
    /// What its parent ran; absent when that is not known.
    parent: Option<Argv>,
    /// What it ran when it was first known here; absent when that is not known.
    ran: Option<Argv>,
}

impl Member {
    /// A process that the host has.
    pub(super) fn of(id: ProcessId, model: &HostModel, snapshot: &Snapshot) -> Option<Self> {
        let process = snapshot.process(id)?.clone();
        let places = model.process_total(id).map(|it| it.gpus.as_slice()).unwrap_or_default();
        let gpus = places.iter().map(|at| {
            let gpu = &snapshot.gpus[*at];
            let name = gpu.facts.name.as_ref().map_or_else(ToString::to_string, ToString::to_string);
            (crate::app::labels::gpu_label(gpu), name)
        });
        let parent = parent_of(&process, snapshot);
        let ran = argv_of(&process);
        Some(Self { process, gpus: gpus.collect(), stage: Stage::Unasked, caution: None, joined: false, parent, ran })
    }

    /// A process that only the agent has seen yet.
    pub(super) fn joined(id: ProcessId, comm: Text, parent: ProcessId) -> Self {
        let facts = ProcessFacts {
            comm: Ok(comm),
            parent: Ok(parent.pid),
            ..ProcessFacts::missing(Identity::Sure, Missing::NotYet)
        };
        let process = Process { id, facts: facts.into(), load: ProcessLoad::missing(Missing::NotYet), allocator: None };
        let stage = Stage::Asked(Signal::Kill);
        Self { process, gpus: Vec::new(), stage, caution: None, joined: true, parent: None, ran: None }
    }

    /// Its identity.
    pub fn id(&self) -> ProcessId {
        self.process.id
    }

    /// What it ran when the panel opened, if that was something else.
    pub fn ran(&self) -> Option<&Argv> {
        self.ran.as_ref().filter(|ran| argv_of(&self.process).is_some_and(|runs| runs != **ran))
    }

    /// Whether a signal would reach it.
    pub fn is_held(&self) -> bool {
        matches!(self.stage, Stage::Held | Stage::Sent { .. } | Stage::LetGo(_))
    }

    /// Whether there is nothing left to do about it.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Refused(_) | Stage::Ended { .. })
    }

    /// Whether it launches ranks that it ends itself, and gives them time.
    pub(super) fn is_torchrun(&self) -> bool {
        let facts = &self.process.facts;
        facts.comm.as_ref().is_ok_and(|comm| comm.as_str() == "pt_elastic")
            || facts.argv.as_ref().is_ok_and(|argv| {
                argv.iter().any(|it| it.ends_with("torchrun") || it.starts_with("torch.distributed."))
            })
    }

    pub(super) fn see(&mut self, snapshot: &Snapshot) {
        if let Some(process) = snapshot.process(self.id()) {
            self.process.clone_from(process);
            self.ran = self.ran.take().or_else(|| argv_of(process));
            self.parent = parent_of(process, snapshot).or(self.parent.take());
        }
    }

    /// Whether that process has its place: a supervisor starts its child again, with the same arguments. Others
    /// of its name may start at any time, a trainer's workers have its arguments; so the parent is the same, too,
    /// or runs what the parent ran.
    pub(super) fn is_succeeded_by(&self, new: &Process, snapshot: &Snapshot) -> bool {
        let (facts, mine) = (&new.facts, &self.process.facts);
        let is_alike = facts.argv.is_ok() && facts.argv == mine.argv && facts.uid == mine.uid;
        let parent = || parent_of(new, snapshot).filter(|_| self.parent.is_some());
        is_alike
            && (facts.parent.is_ok() && facts.parent == mine.parent
                || parent().is_some_and(|it| Some(it) == self.parent))
    }

    pub(super) fn take_outcome(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Held { caution } if self.stage == Stage::Verifying => {
                self.stage = Stage::Held;
                self.caution.clone_from(caution);
            }
            Outcome::Refused { reason } if !self.is_over() && self.stage != Stage::Unasked => {
                self.stage = Stage::Refused(reason.clone());
            }
            // An answer to an earlier panel says nothing of the hold of this one.
            Outcome::Sent { signal, at } if matches!(self.stage, Stage::Asked(_) | Stage::Sent { .. }) => {
                self.stage = Stage::Sent { signal: *signal, at: *at, alive: None };
            }
            Outcome::Alive { state, wchan, .. } => {
                if let Stage::Sent { alive, .. } = &mut self.stage {
                    *alive = Some((*state, wchan.clone()));
                }
            }
            Outcome::Resumed { reason } if matches!(self.stage, Stage::Asked(_) | Stage::Sent { .. }) => {
                self.stage = Stage::LetGo(reason.clone());
            }
            // The memory counts from the first word of the end: a zombie holds none.
            Outcome::Zombie { at, parent } => self.end(*at, Some(*parent)),
            Outcome::Ended { at } => self.end(*at, None),
            _ => {}
        }
    }

    fn end(&mut self, at: Moment, zombie_of: Option<u32>) {
        let first = if let Stage::Ended { at: first, .. } = self.stage { first } else { at };
        self.stage = Stage::Ended { at: first, zombie_of };
    }
}

/// What the parent of a process runs.
fn parent_of(process: &Process, snapshot: &Snapshot) -> Option<Argv> {
    let pid = process.facts.parent.ok()?;
    // They are by PID.
    let at = snapshot.processes.partition_point(|it| it.id.pid < pid);
    let parent = snapshot.processes.get(at).filter(|it| it.id.pid == pid)?;
    argv_of(parent)
}

/// What a process runs; absent when that is not known, or when it has ended.
fn argv_of(process: &Process) -> Option<Argv> {
    process.facts.argv.clone().ok().filter(|argv| !argv.is_empty())
}
