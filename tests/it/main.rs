//! The shipped binary against a driver that answers from a world file, and against real processes.
//!
//! Nothing here sleeps or tries again: a condition is waited for, and a deadline ends a test that waits in vain.

// The stage.
mod alerts;
mod process;
mod stage;
mod terminal;
mod world;

// The claims.
mod analyze;
mod cli;
mod contract;
mod doctor;
mod drivers;
mod ending_a_process;
mod endings;
mod explain;
mod first_line;
mod forks;
mod free;
mod frozen;
mod gpu_page;
mod hostile;
mod json_names;
mod many;
mod matrix;
mod moving_over;
mod orphans;
mod peek;
mod personas;
mod query;
mod readme;
mod replay;
mod screens;
mod sources;
mod stories;
mod table;
mod tidy;
mod trees;
mod two_hosts;

use std::time::Duration;

/// Far beyond what anything here takes; a test that comes to it has failed.
const DEADLINE: Duration = Duration::from_mins(1);

/// A word to whoever runs the tests: what was measured, or why nothing was.
#[expect(clippy::print_stderr, reason = "libtest shows it with --nocapture, and when a test fails")]
fn say(word: impl std::fmt::Display) {
    eprintln!("{word}");
}
