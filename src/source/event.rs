//! What a source tells its reader.

use crate::base::text::Text;
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;

/// Something that happened at a source.
#[derive(Debug, Clone, PartialEq)]
pub enum SourceEvent {
    /// A line arrived from this host.
    Line(HostKey, Box<Line>),
    /// The command of this host wrote this to its standard error, and runs on.
    Note(HostKey, Text),
    /// No more lines come from this host; the text says why, in one sentence.
    Ended(HostKey, Text),
}
