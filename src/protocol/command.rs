//! Lines from the viewer to the agent.
//!
//! Ending a process takes two commands. `hold` opens a pidfd, verifies that it is the process that the user saw, and keeps
//! it open; `signal` goes through that pidfd. [Replies](crate::protocol::reply) say what became of the process.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::protocol::snapshot::{GpuUuid, ProcessId};

/// A line from the viewer to the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Change the time from one pass to the next.
    Interval {
        /// The new interval; at least 100.
        #[serde(rename = "interval_ms")]
        milliseconds: u64,
    },
    /// Pass now, and scan every process of the host.
    Scan,
    /// Pass now, and answer with a `full` line: for a viewer that lost a line.
    Full,
    /// Read the detail of one GPU in each pass, instead of that of another.
    Detail {
        /// The GPU; `null` for none.
        #[serde(rename = "gpu_uuid")]
        gpu: Option<GpuUuid>,
    },
    /// Read the environment, resource limits and open files of a process, once.
    Inspect {
        /// The process.
        process: ProcessId,
    },
    /// Verify the identity of a process and keep a pidfd of it open.
    Hold {
        /// The process.
        process: ProcessId,
    },
    /// Close the pidfd of a held process.
    Release {
        /// The process.
        process: ProcessId,
    },
    /// Send a signal to a held process.
    Signal {
        /// The process.
        process: ProcessId,
        /// The signal.
        signal: Signal,
    },
    /// End held processes together by force: SIGSTOP to all, scan for descendants until there are no new ones, then SIGKILL
    /// from the leaves to the root. All of them end, or none.
    Force {
        /// The processes. One that is not held refuses the whole command, unless the viewer was told of its end.
        processes: Vec<ProcessId>,
    },
}

/// The signals that the end-process dialog offers, from gentle to hard, then those that do not end a process by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, strum::Display)]
#[serde(rename_all = "UPPERCASE")]
#[strum(serialize_all = "UPPERCASE", prefix = "SIG")]
pub enum Signal {
    /// Interrupt, as Ctrl-C: Python raises `KeyboardInterrupt`.
    Int,
    /// Terminate; the process may clean up.
    Term,
    /// Kill at once; nothing is saved.
    Kill,
    /// The terminal is gone; servers reload their configuration.
    Hup,
    /// Quit with a core dump, as Ctrl-\\.
    Quit,
    /// Defined by the program: Slurm and many trainers save a checkpoint.
    Usr1,
    /// Defined by the program.
    Usr2,
    /// Stop. The process keeps its memory.
    Stop,
    /// Continue after a stop.
    Cont,
}
