//! Lines from the agent about a command, and about what became of the process afterwards.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::text::Text;
use crate::base::units::{Bytes, Moment};
use crate::protocol::command::Signal;
use crate::protocol::snapshot::{ProcessId, State};

/// A line from the agent about a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reply {
    /// The process that the command named.
    pub process: ProcessId,
    /// The result of the command, or what became of the process after it.
    pub outcome: Outcome,
}

/// The result of a command, or what became of a process after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    /// The process is held: the signals that follow can reach only this process.
    Held {
        /// A reason why the user must type the PID before a signal is sent, or [advice](is_advice):
        /// one sentence for the user, as in `it belongs to alice`. `null` when there is none.
        caution: Option<Text>,
    },
    /// A descendant was found while its job was being ended by force. The descendant is held and
    /// stopped like the others.
    Joined {
        /// The kernel's name of the descendant.
        comm: Text,
        /// The parent of the descendant.
        parent: ProcessId,
    },
    /// The process was stopped to end its job and then continued, because the job could not be
    /// ended as a whole. The process is still held. A process that someone else had stopped before
    /// stays stopped.
    Resumed {
        /// Why the job could not be ended: one sentence for the user.
        reason: Text,
    },
    /// The agent refused the command, and did nothing.
    Refused {
        /// Why the command was refused: one sentence for the user, as in `no permission to signal
        /// 4711 (alice): run gputop as alice or root`.
        reason: Text,
    },
    /// The signal was sent. This does not mean that the process ended.
    Sent {
        /// The signal that was sent.
        signal: Signal,
        /// When the signal was sent, in milliseconds since boot.
        #[serde(rename = "time_ms")]
        at: Moment,
    },
    /// The process is watched: `ended` follows.
    Watched {
        /// The kernel's name of the process; `null` where `/proc` hides the process.
        name: Option<Text>,
    },
    /// No process has the PID that was to be watched.
    NoProcess,
    /// The process ended, and its parent reaped it. A watched process has ended, whether or not
    /// its parent reaped it.
    Ended {
        /// When the agent saw the end, in milliseconds since boot.
        #[serde(rename = "time_ms")]
        at: Moment,
    },
    /// The process ended, and its parent has not reaped it. The process holds no memory any more.
    Zombie {
        /// When the agent saw the end, in milliseconds since boot.
        #[serde(rename = "time_ms")]
        at: Moment,
        /// The PID of the parent.
        #[serde(rename = "parent_pid")]
        parent: u32,
    },
    /// The process is still alive some time after the signal.
    Alive {
        /// The state of the process; where the first thread has ended, of a living thread.
        state: State,
        /// The kernel function that the process waits in; `null` when it does not wait, or reading
        /// it is not permitted.
        wchan: Option<Text>,
        /// Whole seconds since the last signal.
        #[serde(rename = "since_signal_seconds")]
        seconds: u64,
    },
    /// The audit log could not be written. Commands are executed nevertheless. Sent once.
    NotRecorded {
        /// Why the log could not be written: one sentence for the user.
        reason: Text,
    },
    /// The probe was asked. Its answer comes in a report with this number, unless another request
    /// replaces this one before the probe reads it.
    ProbeAsked {
        /// The number of the request.
        id: u64,
    },
    /// The answer to `inspect`.
    Inspected(Box<Inspection>),
    /// `inspect` failed. If the process is held, it stays held.
    NotInspected {
        /// Why the process could not be inspected: one sentence for the user.
        reason: Text,
    },
}

/// The beginning of a caution that is only advice.
pub const SUGGESTION: &str = "scancel ";

/// Returns whether a caution only names a better way to end the job. The user then need not type
/// the PID.
pub fn is_advice(caution: &Text) -> bool {
    caution.as_str().starts_with(SUGGESTION)
}

/// The answer to `inspect`: readings of a process that snapshots do not contain. `null` where
/// reading is not permitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Inspection {
    /// The ancestors, from the parent to PID 1: PID and the kernel's name.
    pub ancestors: Vec<(u32, Text)>,
    /// The working directory.
    pub cwd: Option<Text>,
    /// The program file.
    pub exe: Option<Text>,
    /// The variables of the environment that gputop uses, sorted by name: `NAME=value` where the
    /// value is a fact about the job or its GPUs, such as `CUDA_VISIBLE_DEVICES`, else `NAME`. No
    /// other variable is read out.
    pub environment: Option<Vec<Text>>,
    /// The resource limits as `/proc/PID/limits` prints them: name, soft limit and hard limit.
    pub limits: Option<Vec<(Text, Text, Text)>>,
    /// The targets of the open files, by descriptor.
    pub files: Option<Vec<(u32, Text)>>,
    /// The control group: the last line of `/proc/PID/cgroup`.
    pub cgroup: Option<Text>,
    /// Host memory in use, with a proportional share of shared pages (PSS).
    #[serde(rename = "pss_bytes")]
    pub pss: Option<Bytes>,
    /// Why parts are null or cut off although reading is permitted: one sentence for the user.
    /// `null` when no part is.
    #[serde(rename = "incomplete_reason", default)]
    pub trouble: Option<Text>,
}
