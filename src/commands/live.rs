//! Reads hosts for the subcommands, and chooses the processes and GPUs of their reports.

pub(crate) mod chosen_processes;
pub(super) mod end_signals;
pub(crate) mod gpu_ids;
pub(super) mod probed_process;
pub(crate) mod read_hosts;
