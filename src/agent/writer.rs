//! Where lines for the viewer go.

use std::io;

use crate::control::Reply;
use crate::snapshot::line::Line;

/// Where replies go.
#[derive(Debug, Clone)]
pub(super) struct Replies;

impl Replies {
    /// Has a reply written.
    #[expect(clippy::unused_self, reason = "the snapshots come between")]
    pub(super) fn send(&self, reply: Reply) {
        if Line::Reply(reply).write(io::stdout()).is_err() {
            super::leave();
        }
    }
}
