//! The identity of a process, how sure it is, and its state.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A process on one boot of one host. This is not its PID, which is used again.
///
/// Without start ticks it is only a PID that NVML named and `/proc` does not know: nobody to signal.
#[derive(Debug, Clone, Copy, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessId {
    /// Its number.
    pub pid: u32,
    /// Clock ticks from boot to its start: field 22 of `/proc/PID/stat`. Absent when it is not in `/proc`.
    pub start_ticks: Option<u64>,
}

// Everything is found by them, tens of thousands of times a second on a large host, in a program that is built for its
// size: derived, comparing and hashing them was a fifth of what the viewer does.
impl PartialEq for ProcessId {
    #[expect(clippy::inline_always, reason = "see above")]
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.pid == other.pid && self.start_ticks == other.start_ticks
    }
}

impl Ord for ProcessId {
    #[expect(clippy::inline_always, reason = "see above")]
    #[inline(always)]
    fn cmp(&self, other: &Self) -> Ordering {
        match self.pid.cmp(&other.pid) {
            Ordering::Equal => self.start_ticks.cmp(&other.start_ticks),
            unequal => unequal,
        }
    }
}

impl PartialOrd for ProcessId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for ProcessId {
    /// By the PID: two processes that have had the same one are few.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.pid);
    }
}

/// How surely a [`ProcessId`] names the process that holds the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// It was read at least one whole tick after it started, so that no successor with its PID can
    /// have its start ticks too. Only such a process may be signalled.
    Sure,
    /// It started within the last tick. Sure at the next pass.
    Fresh,
    /// NVML may mean a process of another PID namespace: this one may be an innocent stranger.
    Unverified,
}

/// What a process was doing, as `/proc/PID/stat` says in its third field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// `R`.
    Running,
    /// `S`.
    Sleeping,
    /// `D`: in the kernel, out of reach of signals.
    DiskSleep,
    /// `T`.
    Stopped,
    /// `t`: a debugger holds it.
    Traced,
    /// `Z`: ended, and its parent has not asked how.
    Zombie,
    /// `X`.
    Dead,
    /// `I`: a kernel thread without work.
    Idle,
    /// A letter that the manual page `proc_pid_stat(5)` did not name when this was written.
    Other,
}

impl State {
    /// The kernel's letter for it; `?` for one not known here.
    pub fn letter(self) -> char {
        match self {
            Self::Running => 'R',
            Self::Sleeping => 'S',
            Self::DiskSleep => 'D',
            Self::Stopped => 'T',
            Self::Traced => 't',
            Self::Zombie => 'Z',
            Self::Dead => 'X',
            Self::Idle => 'I',
            Self::Other => '?',
        }
    }
}

impl From<u8> for State {
    fn from(letter: u8) -> Self {
        match letter {
            b'R' => Self::Running,
            b'S' => Self::Sleeping,
            b'D' => Self::DiskSleep,
            b'T' => Self::Stopped,
            b't' => Self::Traced,
            b'Z' => Self::Zombie,
            b'X' | b'x' => Self::Dead,
            b'I' => Self::Idle,
            _ => Self::Other,
        }
    }
}
