//! Where lines for the viewer go.

use std::sync::mpsc;

use crate::control::Reply;

/// Takes replies for the viewer. It never blocks.
#[derive(Debug, Clone)]
pub(super) struct Replies(pub(super) mpsc::Sender<Reply>);

impl Replies {
    /// Sends one, between two snapshots.
    pub(super) fn send(&self, reply: Reply) {
        // The writer is gone only when the agent is leaving.
        let _leaving: Result<(), mpsc::SendError<Reply>> = self.0.send(reply);
    }
}
