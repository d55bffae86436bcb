//! The exit codes of the program.

use std::process::ExitCode;

/// The exit code of the program. Signals end it with 128 and their number, a bug with 101.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The command succeeded, and everything that it needed could be read.
    Success = 0,
    /// The command failed; the standard error says why.
    Error = 1,
    /// The command line or the configuration file is invalid.
    Usage = 2,
    /// The host has no NVIDIA driver, or the driver does not respond.
    NoDriver = 3,
    /// The driver finds no GPU.
    NoGpu = 4,
    /// A GPU or a reading failed, or the time was up.
    Partial = 5,
    /// `gputop explain` found no message, `gputop analyze` no series, no GPU has the given ID, no
    /// process the PID or job of `gputop wait`, `gputop tensors`, `gputop snapshot` or `gputop
    /// report`, or none a report for `gputop leaks`.
    Nothing = 6,
    /// `gputop orphans` found orphans, `gputop leaks` a likely leak, or `gputop idle` GPUs that are
    /// held idle.
    Found = 10,
    /// `gputop free` found too few GPUs.
    NoneFree = 11,
    /// `gputop wait` saw a leak, or a process of `gputop run --fail-on-leak` likely leaks.
    Leak = 12,
    /// `gputop run --fail-on-leak` could not judge.
    NotJudged = 13,
    /// `gputop wait` saw that memory will be full within the given time.
    FullSoon = 14,
    /// `gputop wait` waited for the given time, and nothing happened: the code of `timeout`.
    TimedOut = 124,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl Exit {
    /// Returns the exit code of several hosts: their common one if they agree, else that of a
    /// partial report.
    pub(crate) fn combined(exits: &[Self]) -> Self {
        let first = exits.first().copied().unwrap_or(Self::Error);
        if exits.iter().all(|exit| *exit == first) {
            first
        } else {
            Self::Partial
        }
    }
}
