//! The processes that gputop starts to leave them behind when they hang: hidden subcommands.
//!
//! Two more are at the code that starts them, which writes what they read:
//! `continue-stopped` (`agent/actions/force/rescuer.rs`) and `close-commands`
//! (`source/closing.rs`).

pub(crate) mod file_action;
mod history;
mod outline;
mod recorder;
