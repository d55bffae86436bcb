//! The subcommands, and the reports that gputop prints without a screen: one file or folder each.
//! `live` reads the hosts for them.

pub(crate) mod attach;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod estimate;
pub(crate) mod explain;
pub(crate) mod exporter;
pub(crate) mod free;
pub(crate) mod hosts;
pub(crate) mod idle;
pub(crate) mod leaks;
pub(crate) mod live;
pub(crate) mod man;
pub(crate) mod notify;
pub mod once;
pub(crate) mod orphans;
pub mod query;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod rest;
pub(crate) mod run;
pub(crate) mod schema;
pub(crate) mod snapshot;
pub(crate) mod tensors;
pub(crate) mod wait;
