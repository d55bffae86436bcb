//! Reads the command line, and turns what came of it into an exit code.

use std::process::ExitCode;
use std::{io, panic, thread};

use gputop::base::text::Text;
use gputop::cli::{self, Cli};
use gputop::commands::report::{self, Exit};

fn main() -> ExitCode {
    keep_the_heap_small();
    match gputop::run(&command_line()) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // It may name a file, or say what stands in it.
            report::complain(&Text::new(format!("{error:#}")));
            Exit::Error.into()
        }
    }
}

/// Reads the command line on a stack that is given back: that takes a hundred KiB of it, and what follows a fourth.
fn command_line() -> Cli {
    match thread::Builder::new().spawn(cli::parse) {
        Ok(thread) => thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic)),
        // There can be no more threads: that is for others to say.
        Err(_) => cli::parse(),
    }
}

/// Has one heap for all threads, which do little at the same time, and gives back what is free at its end. The
/// first lines of a large host are ten times what remains of them. What is large is there for one line, as a rule:
/// it has pages of its own, so that it leaves no hole.
fn keep_the_heap_small() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets numbers of the allocator, and there are no other threads yet.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 128 << 10);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 16 << 10);
    }
}

/// Whoever read our output has had enough: that is no error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
