//! One process of the end-process dialog, and its progress.

use crate::base::text::{Argv, Text};
use crate::base::units::Moment;
use crate::model::HostModel;
use crate::protocol::command::Signal;
use crate::protocol::reply::Outcome;
use crate::protocol::snapshot::{Identity, Missing, Process, ProcessFacts, ProcessId, ProcessLoad, Snapshot, State};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stage {
    /// The process belongs to the job and is no target: the agent was not asked to hold it.
    Unasked,
    Verifying,
    /// The agent holds the process: a signal reaches this process only.
    Held,
    Refused(Text),
    /// The agent was asked to send this signal, and has not answered yet.
    Asked(Signal),
    Sent {
        signal: Signal,
        /// The moment by the clock of the host.
        at: Moment,
        /// The state of the process while it does not end, and the kernel function that it waits in; `None` until the
        /// agent reports them.
        alive: Option<(State, Option<Text>)>,
    },
    /// The forced end failed for this reason. The process, which was stopped for it, runs again.
    LetGo(Text),
    Ended {
        /// The moment by the clock of the host.
        at: Moment,
        /// The PID of the parent that has not reaped the process; `None` if it was reaped.
        zombie_of: Option<u32>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Member {
    pub process: Process,
    pub gpus: Vec<(String, String)>,
    pub stage: Stage,
    pub caution: Option<Text>,
    /// Whether the agent found the process below one that it had stopped.
    pub joined: bool,
    /// The arguments of the parent; `None` if they are not known.
    parent: Option<Argv>,
    /// The arguments that were known first; `None` if none were known yet.
    ran: Option<Argv>,
}

impl Member {
    /// Returns a member for a process of the snapshot; `None` if the process is gone.
    pub(super) fn new(id: ProcessId, model: &HostModel, snapshot: &Snapshot) -> Option<Self> {
        let process = snapshot.process(id)?.clone();
        let places = model.process_total(id).map(|total| total.gpus.as_slice()).unwrap_or_default();
        let gpus = places.iter().map(|at| {
            let gpu = &snapshot.gpus[*at];
            let name = gpu.facts.name.as_ref().map_or_else(ToString::to_string, ToString::to_string);
            (crate::app::labels::gpu_label(gpu), name)
        });
        let parent = parent_of(&process, snapshot);
        let ran = argv_of(&process);
        Some(Self { process, gpus: gpus.collect(), stage: Stage::Unasked, caution: None, joined: false, parent, ran })
    }

    /// Returns a member for a process that only the agent has seen yet.
    pub(super) fn joined(id: ProcessId, comm: Text, parent: ProcessId) -> Self {
        let facts = ProcessFacts {
            comm: Ok(comm),
            parent: Ok(parent.pid),
            ..ProcessFacts::missing(Identity::Sure, Missing::NotYet)
        };
        let process = Process {
            id,
            facts: facts.into(),
            load: ProcessLoad::missing(Missing::NotYet),
            allocator: None,
            probe: None,
            bytes_read: None,
        };
        let stage = Stage::Asked(Signal::Kill);
        Self { process, gpus: Vec::new(), stage, caution: None, joined: true, parent: None, ran: None }
    }

    pub(crate) fn id(&self) -> ProcessId {
        self.process.id
    }

    /// The arguments when the dialog opened, if the process runs another program now.
    pub(crate) fn ran(&self) -> Option<&Argv> {
        self.ran.as_ref().filter(|ran| argv_of(&self.process).is_some_and(|runs| runs != **ran))
    }

    /// Whether the agent holds the process, so that a signal reaches it.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.stage, Stage::Held | Stage::Sent { .. } | Stage::LetGo(_))
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Refused(_) | Stage::Ended { .. })
    }

    /// Whether the process is torchrun, which ends its ranks itself and gives them time.
    pub(super) fn is_torchrun(&self) -> bool {
        let facts = &self.process.facts;
        facts.comm.as_ref().is_ok_and(|comm| comm.as_str() == "pt_elastic")
            || facts.argv.as_ref().is_ok_and(|argv| {
                argv.iter().any(|word| word.ends_with("torchrun") || word.starts_with("torch.distributed."))
            })
    }

    pub(super) fn see(&mut self, snapshot: &Snapshot) {
        if let Some(process) = snapshot.process(self.id()) {
            self.process.clone_from(process);
            self.ran = self.ran.take().or_else(|| argv_of(process));
            self.parent = parent_of(process, snapshot).or(self.parent.take());
        }
    }

    /// Whether a supervisor started `new` in place of this process: with the same arguments and user, and with the same
    /// parent or one with the same arguments. The arguments of the process alone do not suffice: the workers of a
    /// trainer have those of the trainer.
    pub(super) fn is_succeeded_by(&self, new: &Process, snapshot: &Snapshot) -> bool {
        let (facts, mine) = (&new.facts, &self.process.facts);
        let is_alike = facts.argv.is_ok() && facts.argv == mine.argv && facts.uid == mine.uid;
        let parent = || parent_of(new, snapshot).filter(|_| self.parent.is_some());
        is_alike
            && (facts.parent.is_ok() && facts.parent == mine.parent
                || parent().is_some_and(|parent| Some(parent) == self.parent))
    }

    pub(super) fn take_outcome(&mut self, outcome: &Outcome) {
        match outcome {
            // The agent withholds a signal when the process has another owner than the user saw.
            Outcome::Held { caution }
                if self.stage == Stage::Verifying || self.stage == Stage::Held || *caution != self.caution =>
            {
                if matches!(self.stage, Stage::Verifying | Stage::Asked(_)) {
                    self.stage = Stage::Held;
                }
                self.caution.clone_from(caution);
            }
            Outcome::Refused { reason } if !self.is_over() && self.stage != Stage::Unasked => {
                self.stage = Stage::Refused(reason.clone());
            }
            // A reply to an earlier dialog says nothing about this one.
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
            // A zombie holds no memory, so the first report of the end counts.
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

fn parent_of(process: &Process, snapshot: &Snapshot) -> Option<Argv> {
    let pid = process.facts.parent.ok()?;
    // Processes are sorted by PID.
    let at = snapshot.processes.partition_point(|process| process.id.pid < pid);
    let parent = snapshot.processes.get(at).filter(|process| process.id.pid == pid)?;
    argv_of(parent)
}

/// The arguments of a process; `None` if they are not known, or the process has ended.
fn argv_of(process: &Process) -> Option<Argv> {
    process.facts.argv.clone().ok().filter(|argv| !argv.is_empty())
}
