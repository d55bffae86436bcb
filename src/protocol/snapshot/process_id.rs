//! The identity of a process, how sure it is, its state, and why its arguments take long.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The identity of a process on one boot of one host. Unlike a PID, an identity is never used
/// again.
///
/// Without start ticks, it names a PID that NVML named and `/proc` does not know. Such a process
/// cannot be signalled.
#[derive(Debug, Clone, Copy, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessId {
    /// The PID.
    pub pid: u32,
    /// Clock ticks from boot to the start of the process: field 22 of `/proc/PID/stat`. `null` when
    /// `/proc` does not know the process.
    pub start_ticks: Option<u64>,
}

// On a large host, identities are compared tens of thousands of times a second, in a program that
// is built for size. The derived comparing and hashing took a fifth of the viewer's CPU time.
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
    /// Hashes only the PID: few processes have had the same PID.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.pid);
    }
}

/// How certain it is that a [`ProcessId`] names the process that uses the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// The process was read at least one whole tick after it started, so that no later process with
    /// its PID can have the same start ticks. Only such a process may be signalled.
    Sure,
    /// The process started within the last tick. The identity is sure at the next pass.
    Fresh,
    /// NVML may mean a process of another PID namespace with the same PID.
    Unverified,
}

/// Why the arguments and the environment of a process take long. Reading them needs a lock of the
/// process, which may be held for ever, for example by a thread that waits for a dead NFS server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ArgvDelay {
    /// Reading them hangs. They are read as soon as the kernel answers.
    Hung,
    /// They wait to be read: each thread that reads arguments hangs at another process.
    #[serde(other)]
    NoReader,
}

/// The state of a process: field 3 of `/proc/PID/stat`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// `R`.
    Running,
    /// `S`.
    Sleeping,
    /// `D`: uninterruptible, in the kernel.
    DiskSleep,
    /// `T`.
    Stopped,
    /// `t`: stopped by a debugger.
    Traced,
    /// `Z`: ended, and not reaped by its parent.
    Zombie,
    /// `X`.
    Dead,
    /// `I`: an idle kernel thread.
    Idle,
    /// A letter that is not in the manual page `proc_pid_stat(5)`.
    Other,
}

impl State {
    const LETTERS: [(Self, char); 9] = [
        (Self::Running, 'R'),
        (Self::Sleeping, 'S'),
        (Self::DiskSleep, 'D'),
        (Self::Stopped, 'T'),
        (Self::Traced, 't'),
        (Self::Zombie, 'Z'),
        (Self::Dead, 'X'),
        // Some kernels write this letter.
        (Self::Dead, 'x'),
        (Self::Idle, 'I'),
    ];

    /// Returns the kernel's letter of the state; `?` for [`State::Other`].
    pub fn letter(self) -> char {
        Self::LETTERS
            .iter()
            .find(|(state, _)| *state == self)
            .map_or('?', |(_, letter)| *letter)
    }
}

impl From<u8> for State {
    fn from(letter: u8) -> Self {
        let found = Self::LETTERS
            .iter()
            .find(|(_, known)| *known == char::from(letter));
        found.map_or(Self::Other, |(state, _)| *state)
    }
}
