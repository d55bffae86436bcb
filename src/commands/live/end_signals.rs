//! The signals that end a subcommand which runs until then.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end a subcommand.
pub(in crate::commands) struct EndSignals([Signal; 3]);

impl EndSignals {
    /// # Errors
    ///
    /// When the process cannot wait for signals.
    pub(in crate::commands) fn new() -> anyhow::Result<Self> {
        let waiting = |kind| signal(kind).context("cannot wait for signals");
        let [interrupt, terminate, hangup] = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ];
        Ok(Self([
            waiting(interrupt)?,
            waiting(terminate)?,
            waiting(hangup)?,
        ]))
    }

    /// Waits for one of the signals. Safe to cancel.
    pub(in crate::commands) async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
