//! Why no data comes from a host.

use std::time::Duration;

use crate::base::text::Text;

/// Why no data comes from a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostTrouble<'a> {
    /// Its source has ended, for this reason.
    Lost(&'a Text),
    /// A line is overdue; the time since the last line.
    Silent(Duration),
}
