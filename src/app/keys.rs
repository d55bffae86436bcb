//! Which key means what.

pub(crate) mod keymap;
pub(crate) mod probe_task;
pub(crate) mod steering;
