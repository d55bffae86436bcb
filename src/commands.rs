//! The subcommands, and the reports that gputop prints without a screen: one file or folder each.

pub(crate) mod analyze;
pub mod attach;
pub mod clip;
pub(crate) mod diff;
pub(crate) mod doctor;
pub mod estimate;
pub(crate) mod explain;
pub(crate) mod export;
pub mod free;
pub(crate) mod history;
pub mod ooms;
pub mod orphans;
pub(crate) mod outline;
mod output;
mod private_folder;
mod probe_files;
mod probed_process;
pub mod query;
pub mod record;
pub(crate) mod recorded_run;
mod recording_output;
mod replace_program;
pub mod report;
pub mod run;
pub(crate) mod run_report;
pub mod tensors;
pub mod write_snapshot;
