//! Lines from the viewer to the agent.
//!
//! Ending a process takes two commands. `hold` opens a pidfd, verifies that the process is the one
//! that the user saw, and keeps the pidfd open; `signal` sends a signal through that pidfd.
//! [Replies](crate::protocol::reply) report what became of the process.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::text::Text;
use crate::protocol::snapshot::{GpuUuid, ProcessId};

/// A line from the viewer to the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Change the time from one pass to the next.
    Interval {
        /// The new interval in milliseconds; at least 100.
        #[serde(rename = "interval_ms")]
        milliseconds: u64,
        /// End when no line has arrived for this time, in milliseconds; at least 1000. Absent: as
        /// before; at first, only the end of the standard input ends the agent. Agents of earlier
        /// versions ignore it: the `full` line of one that does not names the ability
        /// `end_after_silence`.
        #[serde(
            rename = "end_after_silence_ms",
            default,
            skip_serializing_if = "Option::is_none"
        )]
        silence: Option<u64>,
    },
    /// Pass now, and scan every process of the host.
    Scan,
    /// Pass now, and answer with a `full` line: for a viewer that lost a line.
    Full,
    /// Read the detail of this GPU in each pass, and no longer that of another GPU.
    Detail {
        /// The GPU; `null` for none.
        #[serde(rename = "gpu_uuid")]
        gpu: Option<GpuUuid>,
    },
    /// Read the environment, resource limits and open files of a process, once.
    Inspect {
        /// The process to inspect.
        process: ProcessId,
    },
    /// Verify the identity of a process and keep a pidfd of it open.
    Hold {
        /// The process to hold.
        process: ProcessId,
    },
    /// Close the pidfd of a held process.
    Release {
        /// The process to release.
        process: ProcessId,
    },
    /// Report the end of the process that has this PID now, whether or not it is listed. The reply
    /// names the start of the process.
    Watch {
        /// The PID, as a person or a script gave it.
        pid: u32,
    },
    /// Send a signal to a held process.
    Signal {
        /// The held process that gets the signal.
        process: ProcessId,
        /// The signal to send.
        signal: Signal,
    },
    /// End held processes together by force: SIGSTOP to all, scan for descendants until there are
    /// no new ones, then SIGKILL from the leaves to the root. Either all of them end, or none.
    Force {
        /// The processes to end. If one of them is not held, the agent refuses the whole command,
        /// unless it has reported the end of that process.
        processes: Vec<ProcessId>,
    },
    /// Ask the probe in a process for something. The answer is in a later report of the probe.
    AskProbe {
        /// The process that the probe is in.
        process: ProcessId,
        /// The request.
        request: ProbeRequest,
    },
}

/// A request to the probe in a process: `assets/probe/FORMAT.md` describes what each does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum ProbeRequest {
    /// Read all tensors now.
    Tensors,
    /// Find the variables that hold leaking tensors.
    Holders,
    /// Record the stacks of allocations.
    Record {
        /// For how many steps.
        steps: u32,
    },
    /// Rebuild what the peak of a step is made of.
    Peak {
        /// The number of steps to record: 1 or 2.
        steps: u32,
    },
    /// Record one step, and tell the memory of each module.
    Modules,
    /// Count changes of tensors from now on.
    Mark {
        /// The name of the mark.
        name: Text,
    },
    /// Count changes of tensors from the reading before.
    Unmark,
    /// Tell which tensors came and went between two marks of the program.
    Compare {
        /// The name of the first mark.
        since: Text,
        /// The name of the second mark; absent: now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Text>,
    },
    /// Write a snapshot that PyTorch's `memory_viz` opens.
    Snapshot {
        /// The path of the new file, from the root.
        path: Text,
        /// For how many steps allocations are recorded before, so that the snapshot has traces;
        /// absent: it has only what is allocated now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        steps: Option<u32>,
    },
}

/// The signals that the end-process dialog offers: from gentle to hard, then those that do not end
/// a process by themselves.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, strum::Display,
)]
#[serde(rename_all = "UPPERCASE")]
#[strum(serialize_all = "UPPERCASE", prefix = "SIG")]
pub enum Signal {
    /// Interrupt, as Ctrl-C: Python raises `KeyboardInterrupt`.
    Int,
    /// Terminate; the process may clean up.
    Term,
    /// Kill at once; nothing is saved.
    Kill,
    /// Hang up: the terminal is gone. Servers reload their configuration.
    Hup,
    /// Quit with a core dump, as Ctrl-\\.
    Quit,
    /// Defined by the program: many trainers save a checkpoint.
    Usr1,
    /// Defined by the program.
    Usr2,
    /// Stop. The process keeps its memory.
    Stop,
    /// Continue after a stop.
    Cont,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_of_the_first_version_takes_the_interval_of_a_command_with_a_silence() {
        /// The command as the first version knew it.
        #[derive(Debug, PartialEq, Deserialize)]
        #[serde(tag = "command", rename_all = "snake_case")]
        enum FirstVersion {
            Interval {
                #[serde(rename = "interval_ms")]
                milliseconds: u64,
            },
        }
        let mut line = Vec::new();
        let command = Command::Interval {
            milliseconds: 2000,
            silence: Some(45_000),
        };
        command.write(&mut line).unwrap();
        assert_eq!(
            serde_json::from_slice::<FirstVersion>(&line).unwrap(),
            FirstVersion::Interval { milliseconds: 2000 }
        );
        assert_eq!(Command::parse(&line).unwrap(), command);
    }

    #[test]
    fn an_interval_of_the_first_version_asks_for_no_end_after_a_silence() {
        let line = br#"{"command":"interval","interval_ms":2000}"#;
        let command = Command::Interval {
            milliseconds: 2000,
            silence: None,
        };
        assert_eq!(Command::parse(line).unwrap(), command);
        let mut written = Vec::new();
        command.write(&mut written).unwrap();
        assert_eq!(written.trim_ascii_end(), line);
    }
}
