//! The limit on open files, `ulimit -n`.

use std::io;

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, getrlimit};

/// The fewest descriptors that must be free. The runtime and the pipes of one agent take a dozen,
/// the driver some per GPU.
const FEWEST_FREE: u64 = 24;

/// Checks that enough descriptors are free. Without them, tokio panics when its signal handling
/// starts.
///
/// # Errors
///
/// When there are too few: one sentence.
pub(crate) fn check() -> io::Result<()> {
    let free: Result<Vec<_>, _> = (0..FEWEST_FREE)
        .map(|_| eventfd(0, EventfdFlags::CLOEXEC))
        .collect();
    free.map(drop).map_err(|error| {
        let limit = getrlimit(Resource::Nofile).current.map_or("not set".to_owned(), |limit| limit.to_string());
        io::Error::other(format!(
            "gputop needs {FEWEST_FREE} free file descriptors; the limit `ulimit -n` is {limit}: {error}"
        ))
    })
}
