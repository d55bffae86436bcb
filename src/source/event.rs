//! The events that a source sends.

use crate::base::text::Text;
use crate::protocol::checkpoint::Checkpoint;
use crate::protocol::connection_state::ConnectionState;
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;
use crate::protocol::playback::PlayerReport;

/// Something that happened at a source.
#[derive(Debug, Clone, PartialEq)]
pub enum SourceEvent {
    /// A line arrived from this host.
    Line(HostKey, Box<Line>),
    /// A recorder runs on this host, and tells what it knows. The event comes after the first full
    /// line of the host.
    Past(HostKey, Box<Checkpoint>),
    /// A recording names this host. The event comes before the first line of the host.
    Named(HostKey, Text),
    /// The command of this host wrote this text to its standard error, and still runs.
    Note(HostKey, Text),
    /// The connection to this other host has this state now.
    Connection(HostKey, ConnectionState),
    /// The path of gputop on this host.
    Program(HostKey, Text),
    /// No more lines come from this host; the text says why, in one sentence.
    Ended(HostKey, Text),
    /// All lines of a recording were sent. The text names the problem with the file; `None` when
    /// there is none.
    RecordingEnded(Option<Text>),
    /// The player of a recording reports its progress.
    Player(PlayerReport),
}
