//! Errors other than PyTorch's own message, by which GPU programs run out of memory: one table with
//! the forms of each.
//!
//! Each form has a literal text, which finds the few lines of a large log that may be an error, and
//! a pattern. A line of source code, or prose that mentions an error, does not match: see
//! [`error_finder`](super::error_finder).

mod aftermath;
mod frameworks;
mod gpu;
mod host;
mod limits;
mod serving;

pub(super) use aftermath::AFTERMATH;

/// An error with a name of its own in JSON.
#[derive(Debug, PartialEq)]
pub(super) struct KnownError {
    /// The name in JSON; never changes.
    pub cause: &'static str,
    /// The headline.
    pub title: &'static str,
    pub forms: &'static [ErrorForm],
    /// The names of the advice, most useful first.
    pub advice: &'static [&'static str],
    /// Causes of which this error is a consequence if both are in a log.
    pub follows: &'static [&'static str],
    /// Causes that are other words for the same failure: they are left out if both are in a log.
    pub absorbs: &'static [&'static str],
}

impl KnownError {
    /// Whether this is an out-of-memory error of a GPU without figures, which any program may have.
    pub(super) fn is_full_gpu(&self) -> bool {
        [
            "pytorch",
            "cuda_malloc_async",
            "cuda_out_of_memory",
            "cublas",
            "cudnn",
            "nvml_assert",
        ]
        .contains(&self.cause)
    }
}

impl KnownError {
    /// Whether a program can continue after this error. Nothing continues after the others: they
    /// end a process, or tell that one has ended.
    pub(super) fn may_be_recovered(&self) -> bool {
        const ENDS: [&str; 11] = [
            "batch_size_search",
            "cgroup_limit",
            "earlyoom",
            "evicted",
            "job_memory_limit",
            "kernel_oom_killer",
            "killed",
            "ray_memory_monitor",
            "slurm_oom_kill",
            "worker_killed",
            "xid",
        ];
        !ENDS.contains(&self.cause)
    }
}

/// One form in which an error is printed.
#[derive(Debug, PartialEq)]
pub(super) struct ErrorForm {
    /// A text that each line of this form contains.
    pub literal: &'static str,
    /// A regular expression for the error in its line. Its groups can be used in the sentence. The
    /// groups `local_rank`, `gpu`, `key` and `backend` also tell torchrun's local rank, the GPU,
    /// errors that count as different, and the software that ran out of memory. `in_table` marks a
    /// line of torchrun's table, where an earlier line names the rank, and `vague` a line of a
    /// report of which a later line tells more.
    pub pattern: &'static str,
    /// Whether the error begins in the middle of prose, as `Killed` at the end of a line does.
    pub starts_anywhere: bool,
    /// A line that the log has above this one, if the form needs it.
    pub below: Option<&'static EarlierLine>,
    /// The sentence on what happened. `{name}` stands for a group of the pattern, or of the earlier
    /// line.
    pub sentence: &'static str,
}

/// A line that some form needs above its own, because its own line does not tell enough.
#[derive(Debug, PartialEq)]
pub(super) struct EarlierLine {
    pub literal: &'static str,
    pub pattern: &'static str,
    /// The most lines from this line to that of the form.
    pub within: u64,
}

impl ErrorForm {
    /// Returns the form for lines that stand below such a line.
    const fn below(self, earlier: &'static EarlierLine) -> Self {
        Self {
            below: Some(earlier),
            ..self
        }
    }
}

/// A form that starts where a message starts in its line: after a time, a rank, or the name of an
/// exception.
const fn form(literal: &'static str, pattern: &'static str, sentence: &'static str) -> ErrorForm {
    ErrorForm {
        literal,
        pattern,
        starts_anywhere: false,
        below: None,
        sentence,
    }
}

/// A form that proves itself, wherever in the line it stands.
const fn anywhere(
    literal: &'static str,
    pattern: &'static str,
    sentence: &'static str,
) -> ErrorForm {
    ErrorForm {
        literal,
        pattern,
        starts_anywhere: true,
        below: None,
        sentence,
    }
}

/// Returns all known errors. Where several match one line, the first one counts.
pub(super) fn all() -> impl Iterator<Item = &'static KnownError> {
    [
        limits::ERRORS,
        serving::ERRORS,
        frameworks::ERRORS,
        gpu::ERRORS,
        host::ERRORS,
    ]
    .into_iter()
    .flatten()
}
