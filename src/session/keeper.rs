//! Has settings written down. A home may be far away, and hang: a thread of its own waits for it.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;

use tokio::sync::mpsc::UnboundedSender;

use super::Outside;
use crate::app::settings::Settings;
use crate::config::{Config, LAST_WORDS};
use crate::untrusted::Text;

/// Whoever keeps settings.
#[derive(Debug)]
pub(super) struct Keeper<'a> {
    config: &'a Config,
    outside: UnboundedSender<Outside>,
    /// Ends, without a word, when what is being written is.
    writing: Option<Receiver<()>>,
}

impl<'a> Keeper<'a> {
    /// Nothing is being written.
    pub(super) fn new(config: &'a Config, outside: UnboundedSender<Outside>) -> Self {
        Self { config, outside, writing: None }
    }

    /// Has them written into `config.toml`, and says why not. What comes of it is told later.
    pub(super) fn write(&mut self, settings: &Settings) -> Result<(), Text> {
        if self.writing.is_some() {
            return Err("settings are still being written".into());
        }
        let (busy, writing) = mpsc::channel();
        let (write, outside) = (self.config.write(settings), self.outside.clone());
        let kept = move || {
            let words = write();
            drop::<mpsc::Sender<()>>(busy);
            // The session may be over.
            let _leaving = outside.send(Outside::Kept(words.into()));
        };
        thread::Builder::new()
            .name("keeper".to_owned())
            .spawn(kept)
            .map_err(|error| Text::from(format!("settings were not written: {error}")))?;
        self.writing = Some(writing);
        Ok(())
    }

    /// They were, or it was too late.
    pub(super) fn is_back(&mut self) {
        self.writing = None;
    }

    /// Waits, not for long, for what is being written, and keeps for the next run what was changed in this one.
    pub(super) fn leave(&self, settings: &Settings) {
        let is_late = |it: &Receiver<()>| it.recv_timeout(LAST_WORDS) == Err(RecvTimeoutError::Timeout);
        // Mostly it is one home, and one is not waited for twice.
        if !self.writing.as_ref().is_some_and(is_late) {
            self.config.keep(settings);
        }
    }
}
