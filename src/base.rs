//! The base of every other folder: quantities with their units, sanitized text and time. Uses nothing else of gputop.

pub mod terminal;
pub mod text;
pub mod time;
pub mod units;
