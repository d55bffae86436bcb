//! What a viewer asks of an agent, and what the agent answers.
//!
//! Ending a process takes two commands. *Hold* opens a pidfd, proves that it is the process the
//! person saw, and keeps it; *signal* goes through that pidfd and nowhere else. What became of the
//! process comes back by itself.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::text::Text;
use crate::base::units::{Bytes, Moment};
use crate::protocol::snapshot::{GpuUuid, ProcessId, State};

/// A line from the viewer to the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Pass so often from now on.
    Interval {
        /// 100 at least.
        milliseconds: u64,
    },
    /// Pass now, and read what is otherwise read seldom.
    Scan,
    /// Pass now, and answer with a `full` line: for a viewer that lost a line.
    Full,
    /// Read all that there is to know of one GPU too, until told otherwise.
    Detail {
        /// Which; absent for none.
        gpu: Option<GpuUuid>,
    },
    /// Say what never travels in the stream: environment, limits, open files.
    Inspect {
        /// Whose.
        process: ProcessId,
    },
    /// Make sure of this process and keep hold of it.
    Hold {
        /// Whom.
        process: ProcessId,
    },
    /// Let go of it.
    Release {
        /// Whom.
        process: ProcessId,
    },
    /// Signal a process that is held.
    Signal {
        /// Whom.
        process: ProcessId,
        /// With what.
        signal: Signal,
    },
    /// End processes that are held, all of them and by force, in one act: SIGSTOP to all, a look for
    /// descendants until there are no new ones, SIGKILL from the leaves to the root. It ends all or nobody.
    Force {
        /// Whom. One that is not held makes the whole act refused, unless the viewer was told of its end.
        processes: Vec<ProcessId>,
    },
}

/// The signals that the panel offers, from gentle to hard, then those that end nothing by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Signal {
    /// As Ctrl-C: Python raises `KeyboardInterrupt`.
    Int,
    /// Please end.
    Term,
    /// End now; nothing is saved.
    Kill,
    /// The terminal is gone; a server reads its configuration anew.
    Hup,
    /// As Ctrl-\\: end with a core dump.
    Quit,
    /// What the program makes of it: Slurm and many trainers save a checkpoint.
    Usr1,
    /// What the program makes of it.
    Usr2,
    /// Hold still. The memory stays.
    Stop,
    /// Go on.
    Cont,
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Int => "SIGINT",
            Self::Term => "SIGTERM",
            Self::Kill => "SIGKILL",
            Self::Hup => "SIGHUP",
            Self::Quit => "SIGQUIT",
            Self::Usr1 => "SIGUSR1",
            Self::Usr2 => "SIGUSR2",
            Self::Stop => "SIGSTOP",
            Self::Cont => "SIGCONT",
        })
    }
}

/// A line from the agent about a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reply {
    /// Whom the command was about.
    pub process: ProcessId,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The process is held: a signal can reach only it.
    Held {
        /// Why one should think twice and type the PID first, unless it [is advice](is_advice): one sentence
        /// for a person, as in `it belongs to alice`. Absent when there is no such reason.
        caution: Option<Text>,
    },
    /// Found while a job was being ended by force: a descendant of a process that was stopped for it,
    /// held and stopped like the others.
    Joined {
        /// Its name, for the list in the panel.
        comm: Text,
        /// Whose child it is.
        parent: ProcessId,
    },
    /// Stopped for the end of its job, then let go on, because the job could not be ended as a whole: nobody
    /// was. It is still held. One that someone else had stopped before stays stopped.
    LetGo {
        /// What went wrong: one sentence for a person.
        reason: Text,
    },
    /// Nothing was done, and why: one sentence for a person.
    Refused {
        /// As in `no permission to signal 4711 (alice): run gputop as alice or root`.
        reason: Text,
    },
    /// The signal was sent. That is no proof of an end.
    Sent {
        /// Which.
        signal: Signal,
        /// When, by the clock of the snapshots.
        #[serde(rename = "at_ms")]
        at: Moment,
    },
    /// The process is gone, and its parent knows.
    Ended {
        /// When, by the clock of the snapshots.
        #[serde(rename = "at_ms")]
        at: Moment,
    },
    /// The process has ended, and its parent has not asked how. It holds nothing.
    Zombie {
        /// When, by the clock of the snapshots.
        #[serde(rename = "at_ms")]
        at: Moment,
        /// The parent that could reap it.
        parent: u32,
    },
    /// It lives on, some time after the signal.
    Alive {
        /// What it was doing when last seen. When only its first thread has ended: what a living one was doing.
        state: State,
        /// The kernel function it waits in; absent when it does not, or when we may not know.
        wchan: Option<Text>,
        /// Whole seconds since the last signal.
        seconds: u64,
    },
    /// What is done is not written down in the audit; it is done all the same. Said once, beside the outcomes
    /// of what was done.
    Unrecorded {
        /// Why not: one sentence for a person.
        reason: Text,
    },
    /// What `inspect` found.
    Inspected(Box<Inspection>),
    /// `inspect` could not be done. It says nothing of a hold on the process.
    NotInspected {
        /// Why not: one sentence for a person.
        reason: Text,
    },
}

/// How a caution begins that is advice.
pub const SUGGESTION: &str = "scancel ";

/// Whether a caution names a better way, and nothing to be careful about: nobody needs to type a PID for it.
pub fn is_advice(caution: &Text) -> bool {
    caution.as_str().starts_with(SUGGESTION)
}

/// What is known of one process beyond the stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Inspection {
    /// Its ancestors, parent first, up to PID 1: number and comm.
    pub ancestors: Vec<(u32, Text)>,
    /// Working directory; absent when we may not know.
    pub cwd: Option<Text>,
    /// The program file; absent when we may not know.
    pub exe: Option<Text>,
    /// `NAME=value`, by name; absent when we may not know.
    pub environment: Option<Vec<Text>>,
    /// Resource limits as `/proc/PID/limits` prints them: name, soft and hard; absent when we may not know.
    pub limits: Option<Vec<(Text, Text, Text)>>,
    /// What its open files are, by descriptor; absent when we may not know.
    pub files: Option<Vec<(u32, Text)>>,
    /// The control group, as the last line of `/proc/PID/cgroup` names it.
    pub cgroup: Option<Text>,
    /// Memory of the host, with its share of what it shares (PSS); absent when we may not know.
    pub pss: Option<Bytes>,
    /// Why parts are absent or cut off although we may know them: one sentence for a person.
    #[serde(default)]
    pub trouble: Option<Text>,
}
