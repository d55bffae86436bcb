//! The interactive program: takes over the terminal and runs the loop in which lines, keys and time
//! meet.

pub(crate) mod session;
pub mod terminal;
