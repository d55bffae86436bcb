//! The lines between an agent and its readers: snapshots, changes, commands and replies, as plain
//! data.
//!
//! A [`Snapshot`](snapshot::Snapshot) is everything that an agent saw in one pass; a
//! [`Change`](change::Change) is the difference between two snapshots. Nothing here reads a device
//! or a file, or judges what was read.

pub mod agent_options;
pub mod change;
pub mod checkpoint;
pub mod command;
pub mod connection_state;
pub mod host_key;
pub mod host_tag;
pub mod judged;
pub mod launchers;
pub mod line;
pub mod playback;
pub mod recorder_report;
pub mod reply;
pub(crate) mod series;
pub mod slurm_job;
pub mod snapshot;
pub mod visible_gpus;
