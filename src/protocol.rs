//! The lines between an agent and whoever reads it: snapshots, changes, commands and replies, as plain data.
//!
//! A [`Snapshot`](snapshot::Snapshot) is everything that an agent saw in one pass; a [`Change`](change::Change) is the
//! difference to the snapshot before. Nothing here knows where the facts come from or what they mean.

pub mod agent_options;
pub mod change;
pub mod command;
pub mod host_key;
pub mod line;
pub mod reply;
pub mod snapshot;
