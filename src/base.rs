//! Types that every other folder uses: quantities with their units, sanitized text, time, and the terminal at the standard
//! output. Uses nothing else of gputop.

pub mod secrets;
pub mod terminal;
pub mod text;
pub mod time;
pub mod units;
