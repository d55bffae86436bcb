//! Types that every other folder uses: quantities with their units, sanitized text, time, the
//! terminal at the standard output, the HTTP proxy, and the start of this program again. Uses
//! nothing else of gputop.

pub(crate) mod detach;
pub(crate) mod http_proxy;
pub mod secrets;
pub mod terminal;
pub mod text;
pub mod time;
pub mod units;
pub(crate) mod yaml;
