//! `gputop run --fail-on-leak`: runs a command to its end, and fails where one of its processes
//! leaked GPU memory.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

use clap::Args;

use super::gate_result::GateResult;
use super::gpu_watch::GpuWatch;
use super::known_leaks::KnownLeaks;
use super::last_states::{LastState, StateFolder};
use super::replace_program::refuse_program;
use super::signals::BlockedSignals;
use super::supervisor::{self, CommandEnd};
use crate::base::text::Text;
use crate::flags;
use crate::output::{self, Exit, table};

/// Names the folder in which each probe leaves the last state of its process.
const FOLDER_VARIABLE: &str = "GPUTOP_LAST_STATES";

/// The options of the gate.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct GateOptions {
    /// Fail with 12 if a process of the command likely leaks GPU memory. gputop stays its parent
    #[arg(long)]
    pub(super) fail_on_leak: bool,

    /// Succeed, too, where nothing used CUDA with the probe, or a process could not be judged
    #[arg(long, requires = "fail_on_leak")]
    allow_unjudged: bool,

    /// Do not fail for the leaks that are listed in FILE
    #[arg(long, requires = "fail_on_leak", value_name = "FILE")]
    baseline: Option<PathBuf>,

    /// Write the likely leaks of this run into FILE, for `--baseline`, and do not fail for them
    #[arg(long, requires = "fail_on_leak", value_name = "FILE")]
    write_baseline: Option<PathBuf>,

    /// Write the result of each process into FILE, as JUnit does for tests
    #[arg(long, requires = "fail_on_leak", value_name = "FILE")]
    junit: Option<PathBuf>,

    /// Print the result as annotations of GitHub Actions, too
    #[arg(long, requires = "fail_on_leak")]
    github: bool,
}

/// Runs the command, prints what its processes leaked, and returns the exit code of the command, or
/// that of the gate if the command succeeded.
///
/// # Errors
///
/// When the folder of last states cannot be made or read, or a file cannot be read or written.
pub(super) fn run(options: &GateOptions, command: &mut Command) -> anyhow::Result<ExitCode> {
    let known = match &options.baseline {
        Some(path) => match KnownLeaks::read(path) {
            Ok(known) => known,
            Err(why) => {
                let sentence = format!("cannot read the baseline {}: {why}", path.display());
                return Ok(output::refuse(&Text::new(sentence)));
            }
        },
        None => KnownLeaks::default(),
    };
    let folder = StateFolder::create().map_err(|why| {
        anyhow::anyhow!(
            "cannot make a folder for the states of the programs in {}: {why}",
            env::temp_dir().display()
        )
    })?;
    command.env(FOLDER_VARIABLE, folder.path());
    let blocked = BlockedSignals::block();
    let watch = GpuWatch::start();
    let end = match supervisor::run_to_end(command, &blocked) {
        Ok(end) => end,
        Err(why) => return Ok(refuse_program(command, &why)),
    };
    let states = folder.read().map_err(|why| {
        let path = folder.path().display();
        anyhow::anyhow!("cannot read the states of the programs in {path}: {why}")
    });
    drop(folder);
    let exit = states.and_then(|mut states| {
        states.append(&mut watch.others(&states));
        report(options, known, states, end)
    });
    match exit {
        Ok(exit) if end.is_success() => Ok(exit.into()),
        Err(why) if end.is_success() => Err(why),
        Ok(_) => Ok(end.reproduce()),
        Err(why) => {
            output::print_error(&Text::new(format!("{why:#}")));
            Ok(end.reproduce())
        }
    }
}

/// Prints and writes the result. Returns the exit code of a command that succeeded.
fn report(
    options: &GateOptions,
    mut known: KnownLeaks,
    states: Vec<LastState>,
    end: CommandEnd,
) -> anyhow::Result<Exit> {
    if let Some(path) = &options.write_baseline {
        let likely = states.iter().flat_map(LastState::likely_leaks);
        likely.for_each(|found| known.insert(&found.leak));
        known.write(path).map_err(|why| cannot_write(path, &why))?;
    }
    let result = GateResult::new(states, &known, options.allow_unjudged);
    // A command that failed may not have come so far that it used CUDA.
    let is_silent = !end.is_success() && result.is_empty();
    let mut text = if is_silent {
        String::new()
    } else {
        result.text()
    };
    if options.github && !is_silent {
        text += &result.annotations();
    }
    let text = if flags::is_ascii(false) {
        table::ascii(&text)
    } else {
        text
    };
    let _closed = io::stderr().write_all(text.as_bytes());
    if let Some(path) = &options.junit {
        fs::write(path, result.junit()).map_err(|why| cannot_write(path, &why))?;
    }
    Ok(result.exit())
}

fn cannot_write(path: &Path, why: &io::Error) -> anyhow::Error {
    anyhow::anyhow!("cannot write {}: {why}", path.display())
}
