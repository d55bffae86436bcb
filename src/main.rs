//! Reads the command line, and turns what came of it into an exit code.

use std::io;
use std::process::ExitCode;

use gputop::report::Exit;

fn main() -> ExitCode {
    match gputop::run(gputop::cli::parse()) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            Exit::Error.into()
        }
    }
}

/// Whoever read our output has had enough: that is no error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// Says what went wrong in one line. A closed standard error is no reason to panic.
fn complain(error: &anyhow::Error) {
    use io::Write;
    let _closed: io::Result<()> = writeln!(io::stderr(), "gputop: {error:#}");
}
