//! The subcommands, and the reports that gputop prints without a screen: one file or folder each.

pub(crate) mod attach;
pub(crate) mod chosen_processes;
pub(crate) mod doctor;
pub(crate) mod estimate;
pub(crate) mod explain;
pub(crate) mod free;
pub(crate) mod gpu_ids;
pub mod once;
pub(crate) mod orphans;
mod probe_files;
mod probed_process;
pub mod query;
pub(crate) mod read_hosts;
pub(crate) mod record;
mod replace_program;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod schema;
pub(crate) mod snapshot;
pub(crate) mod tensors;
