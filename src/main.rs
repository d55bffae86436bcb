//! Parses the command line, runs gputop and returns the exit code.

use std::process::ExitCode;
use std::{io, panic, thread};

use gputop::base::text::Text;
use gputop::cli::{self, Cli};
use gputop::output::{self, Exit};

fn main() -> ExitCode {
    shrink_heap();
    // The kernel calls a process `exe` that was started as `/proc/self/exe`.
    let _unnamed: rustix::io::Result<()> = rustix::thread::set_name(c"gputop");
    match gputop::run(&parse_on_thread()) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // The message may quote a file or an argument: `Text` replaces control characters.
            output::print_error(&Text::new(format!("{error:#}")));
            Exit::Error.into()
        }
    }
}

/// Parses the command line on a thread of its own, whose stack is then freed: parsing needs 100 KiB
/// of stack, the rest 25. Without this, viewer and agent each hold 80 KiB more (measured).
fn parse_on_thread() -> Cli {
    match thread::Builder::new().spawn(cli::parse) {
        Ok(thread) => thread
            .join()
            .unwrap_or_else(|panic| panic::resume_unwind(panic)),
        // No thread can be started: parse here, and let the code that needs threads report it.
        Err(_) => cli::parse(),
    }
}

/// Sets up glibc's allocator for a small heap.
///
/// One arena is enough, because the threads rarely allocate at the same time. Free memory at the
/// end of the heap is returned, because the first lines of a large host need ten times the memory
/// that stays in use. Large allocations get pages of their own, because most last only while one
/// line of the protocol is processed and would leave holes.
fn shrink_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt only sets parameters, and no other thread runs yet.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 128 << 10);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 16 << 10);
    }
}

/// Returns whether the reader of the output closed the pipe, which is not an error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
