//! The subcommands that read the logs, recordings and reports of earlier runs. Nothing here asks a
//! live host.

pub(crate) mod analyze;
pub(crate) mod clip;
pub(crate) mod compressed_log;
pub(crate) mod diff;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod ooms;
pub(crate) mod recent_recordings;
pub(crate) mod recorded_run;
pub(crate) mod recording_output;
pub(crate) mod report;
