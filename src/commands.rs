//! The subcommands, and the reports that gputop prints without a screen: one file or folder each.

pub mod attach;
pub(crate) mod chosen_processes;
pub(crate) mod doctor;
pub mod estimate;
pub(crate) mod explain;
pub mod free;
pub(crate) mod gpu_ids;
pub mod once;
pub mod orphans;
mod probe_files;
mod probed_process;
pub mod query;
pub(crate) mod read_hosts;
pub mod record;
mod replace_program;
pub(crate) mod report;
pub mod run;
pub mod snapshot;
pub mod tensors;
