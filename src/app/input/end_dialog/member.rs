//! One process of the end-process dialog, and its progress.

use crate::base::text::{Argv, Text};
use crate::base::units::Moment;
use crate::model::{HostModel, is_interactive_shell, short_name};
use crate::protocol::command::Signal;
use crate::protocol::reply::Outcome;
use crate::protocol::snapshot::{
    Identity, Missing, Process, ProcessFacts, ProcessId, ProcessLoad, Snapshot, State,
};

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
        /// The state of the process while it does not end, and the kernel function that it waits
        /// in; `None` until the agent reports them.
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
    pub was_found_late: bool,
    /// The parent as last seen; `None` if it was not listed.
    parent: Option<Process>,
    /// Whether the parent was seen to run another process of this name at the same time, as a queue
    /// of jobs does.
    has_twin: bool,
    /// The arguments that were known first; `None` if none were known yet.
    ran: Option<Argv>,
}

impl Member {
    /// Returns a member for a process of the snapshot; `None` if the process is gone.
    pub(super) fn new(id: ProcessId, model: &HostModel, snapshot: &Snapshot) -> Option<Self> {
        let process = snapshot.process(id)?.clone();
        let places = model
            .process_total(id)
            .map(|total| total.gpus.as_slice())
            .unwrap_or_default();
        let gpus = snapshot.gpus_at(places).map(|gpu| {
            let name = gpu
                .facts
                .name
                .as_ref()
                .map_or_else(ToString::to_string, ToString::to_string);
            (crate::output::labels::gpu_label(gpu), name)
        });
        let parent = parent_of(&process, snapshot).cloned();
        let (has_twin, ran) = (has_twin(&process, snapshot), argv_of(&process));
        let gpus = gpus.collect();
        Some(Self {
            process,
            gpus,
            stage: Stage::Unasked,
            caution: None,
            was_found_late: false,
            parent,
            has_twin,
            ran,
        })
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
        Self {
            process,
            gpus: Vec::new(),
            stage,
            caution: None,
            was_found_late: true,
            parent: None,
            has_twin: false,
            ran: None,
        }
    }

    pub(crate) fn id(&self) -> ProcessId {
        self.process.id
    }

    /// The arguments when the dialog opened, if the process runs another program now.
    pub(crate) fn earlier_arguments(&self) -> Option<&Argv> {
        self.ran
            .as_ref()
            .filter(|ran| argv_of(&self.process).is_some_and(|runs| runs != **ran))
    }

    /// Whether the agent holds the process, so that a signal reaches it.
    pub(crate) fn is_held(&self) -> bool {
        matches!(
            self.stage,
            Stage::Held | Stage::Sent { .. } | Stage::LetGo(_)
        )
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Refused(_) | Stage::Ended { .. })
    }

    /// Whether the process is torchrun, which ends its ranks itself and gives them time.
    pub(super) fn is_torchrun(&self) -> bool {
        let facts = &self.process.facts;
        facts
            .comm
            .as_ref()
            .is_ok_and(|comm| comm.as_str() == "pt_elastic")
            || facts.argv.as_ref().is_ok_and(|argv| {
                argv.iter().any(|word| {
                    word.ends_with("torchrun") || word.starts_with("torch.distributed.")
                })
            })
    }

    pub(super) fn update(&mut self, snapshot: &Snapshot) {
        if let Some(process) = snapshot.process(self.id()) {
            self.process.clone_from(process);
            self.ran = self.ran.take().or_else(|| argv_of(process));
            self.parent = parent_of(process, snapshot).cloned().or(self.parent.take());
            self.has_twin = self.has_twin || has_twin(process, snapshot);
        }
    }

    /// Returns whether `new` replaces this process, which has ended: `Some(true)` for a restart,
    /// `Some(false)` for another process of the same name that the parent started next, and `None`
    /// for a process that has nothing to do with it.
    ///
    /// A restart has the same arguments and user, and the same parent, or one with the same
    /// arguments whose place it took. The arguments of the process alone do not suffice: the
    /// workers of a trainer have those of the trainer. It is no restart if the parent runs several
    /// of that name at once, or is a shell at which a person types.
    pub(super) fn is_restarted_as(&self, new: &Process, snapshot: &Snapshot) -> Option<bool> {
        let (facts, mine) = (&new.facts, &self.process.facts);
        let parent = parent_of(new, snapshot);
        let has_same_parent = facts.parent.is_ok() && facts.parent == mine.parent;
        let has_replaced_parent = || {
            let (Some(parent), Some(old)) = (parent, &self.parent) else {
                return false;
            };
            argv_of(old).is_some_and(|argv| argv_of(parent) == Some(argv))
                && !is_alive(old.id, snapshot)
        };
        if facts.uid != mine.uid || !(has_same_parent || has_replaced_parent()) {
            return None;
        }
        if argv_of(new).is_none_or(|argv| argv_of(&self.process) != Some(argv)) {
            return (has_same_parent && is_namesake(new, &self.process)).then_some(false);
        }
        Some(
            !self.has_twin && !has_twin(new, snapshot) && !parent.is_some_and(is_interactive_shell),
        )
    }

    pub(super) fn take_outcome(&mut self, outcome: &Outcome) {
        match outcome {
            // The agent withholds a signal when the process has another owner than the user saw.
            Outcome::Held { caution }
                if self.stage == Stage::Verifying
                    || self.stage == Stage::Held
                    || *caution != self.caution =>
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
            Outcome::Sent { signal, at }
                if matches!(self.stage, Stage::Asked(_) | Stage::Sent { .. }) =>
            {
                self.stage = Stage::Sent {
                    signal: *signal,
                    at: *at,
                    alive: None,
                };
            }
            Outcome::Alive { state, wchan, .. } => {
                if let Stage::Sent { alive, .. } = &mut self.stage {
                    *alive = Some((*state, wchan.clone()));
                }
            }
            Outcome::Resumed { reason }
                if matches!(self.stage, Stage::Asked(_) | Stage::Sent { .. }) =>
            {
                self.stage = Stage::LetGo(reason.clone());
            }
            // A zombie holds no memory, so the first report of the end counts.
            Outcome::Zombie { at, parent } => self.end(*at, Some(*parent)),
            Outcome::Ended { at } => self.end(*at, None),
            _ => {}
        }
    }

    fn end(&mut self, at: Moment, zombie_of: Option<u32>) {
        let first = if let Stage::Ended { at: first, .. } = self.stage {
            first
        } else {
            at
        };
        self.stage = Stage::Ended {
            at: first,
            zombie_of,
        };
    }
}

fn parent_of<'a>(process: &Process, snapshot: &'a Snapshot) -> Option<&'a Process> {
    let pid = process.facts.parent.ok()?;
    // Processes are sorted by PID.
    let place = snapshot
        .processes
        .partition_point(|process| process.id.pid < pid);
    snapshot
        .processes
        .get(place)
        .filter(|process| process.id.pid == pid)
}

/// Whether the parent of a process runs another one of the same name.
fn has_twin(process: &Process, snapshot: &Snapshot) -> bool {
    let is_sibling =
        |other: &&Process| other.id != process.id && other.facts.parent == process.facts.parent;
    process.facts.parent.is_ok()
        && snapshot
            .processes
            .iter()
            .filter(is_sibling)
            .any(|other| !is_zombie(other) && is_namesake(other, process))
}

fn is_namesake(one: &Process, other: &Process) -> bool {
    short_name(&one.facts).is_ok_and(|name| short_name(&other.facts) == Ok(name))
}

fn is_alive(id: ProcessId, snapshot: &Snapshot) -> bool {
    snapshot
        .process(id)
        .is_some_and(|process| !is_zombie(process))
}

fn is_zombie(process: &Process) -> bool {
    process.load.state == Ok(State::Zombie)
}

/// The arguments of a process; `None` if they are not known, or the process has ended.
fn argv_of(process: &Process) -> Option<Argv> {
    process
        .facts
        .argv
        .clone()
        .ok()
        .filter(|argv| !argv.is_empty())
}
