//! Tests of the shipped binary, with a fake NVML driver that answers from a world file, and with
//! real processes.
//!
//! No test sleeps or retries: each waits for a condition, and fails at a deadline.

// Helpers.
mod agent;
mod file_systems;
mod host;
mod http_server;
mod probed_holders;
mod process;
mod process_tree;
mod ready_pipe;
mod terminal;

// Tests.
mod agent_lines;
mod alerts;
mod allocator_search;
mod allocator_stats;
mod analyze;
mod attach;
mod background;
mod cast;
mod cli;
mod container;
mod cuda_devices;
mod doc_scripts;
mod doctor;
mod drivers;
mod ending_a_process;
mod endings;
mod estimate;
mod explain;
mod export;
mod exporter;
mod exporter_access;
mod fail_on_leak;
mod first_line;
mod fleet_jobs;
mod fleet_view;
mod forks;
mod free;
mod frozen;
mod gpu_page;
mod hangs;
mod history;
mod hostile;
mod hostile_recordings;
mod hung_arguments;
mod idle;
mod json_names;
mod leaks;
mod left_behind;
mod list;
mod live_and_replay;
mod log_in;
mod many;
mod matrix;
mod module_memory;
mod news;
mod notify;
mod nvidia_smi_calls;
mod nvidia_smi_scripts;
mod only;
mod ooms;
mod orphans;

mod packages;
mod pages;
mod personas;
mod probe;
mod probe_commands;
mod probe_diagnosis;
mod probe_files;
mod probe_page;
mod program_marks;
mod prometheus;
mod prove;
mod python_programs;
mod query;
mod query_calls;
mod readme;
mod real_hardware;
mod record;
mod replay;
mod replay_steering;
mod run_program;
mod run_report;
mod screens;
mod screenshot;
mod scripts;
mod secrets;
mod shared_lines;
mod slurm;
mod sources;
mod ssh_copies;
mod ssh_hosts;
mod ssh_sessions;
mod stopwatch;
mod stories;
mod table;
mod tidy;
mod told_news;
mod trees;
mod two_hosts;
mod unknown_processes;
mod unseen_processes;
mod viewer_recording;
mod wait;
mod waiting_hosts;

use std::time::Duration;

/// The longest wait for a condition, far beyond what any takes: a test that reaches it fails.
const DEADLINE: Duration = Duration::from_mins(3);

/// Prints what a test measured, or why it was skipped.
#[expect(
    clippy::print_stderr,
    reason = "libtest shows it with --nocapture, and when a test fails"
)]
fn print_note(note: impl std::fmt::Display) {
    eprintln!("{note}");
}
