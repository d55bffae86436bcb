//! How far a viewer has come in connecting to a host.

use std::time::Duration;

/// The state of the connection to a host. No state is told of the agent of this host, of a
/// recording, and of a command that the user gave as long as it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionState {
    /// Waits for its turn: a server takes a few new connections at once.
    Waiting,
    /// The connection is being made.
    Connecting,
    /// The host has no gputop, and is getting a copy.
    Copying,
    /// The host has answered. Its first line is still to come.
    Answered,
    /// The connection is over. The next try begins after this time.
    TriesAgain(Duration),
    /// The connection is over. The next try begins when the user asks for it.
    WaitsForUser,
    /// The connection is over, since ssh has a question, such as for a password. The next try begins
    /// when the user has logged in, or asks for it.
    NeedsLogin,
}
