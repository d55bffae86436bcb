//! Has settings written down. A home may be far away, and hang: a thread of its own waits for it.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::Outside;
use super::options::SettingsFiles;
use crate::app::settings::Settings;
use crate::base::text::Text;

/// How long one who leaves waits for all that is to be written: nobody waits for a home that is far away longer than can be
/// felt. A host that is busy needs some of it.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// Whoever keeps settings.
#[derive(Debug)]
pub(super) struct Keeper<'a> {
    files: &'a SettingsFiles,
    outside: UnboundedSender<Outside>,
    /// Ends when what is being written is, and what there is to say of it was said.
    writing: Option<JoinHandle<()>>,
}

impl<'a> Keeper<'a> {
    /// Nothing is being written.
    pub(super) fn new(files: &'a SettingsFiles, outside: UnboundedSender<Outside>) -> Self {
        Self { files, outside, writing: None }
    }

    /// Has them written into `config.toml`, and says why not. What comes of it is told later.
    pub(super) fn write(&mut self, settings: &Settings) -> Result<(), Text> {
        if self.writing.as_ref().is_some_and(|it| !it.is_finished()) {
            return Err("settings were not written: the last time they were has not ended yet".into());
        }
        let (done, mut written) = oneshot::channel::<String>();
        let (write, settings) = (Arc::clone(&self.files.write_config), settings.clone());
        thread::Builder::new()
            .name("keeper".to_owned())
            .spawn(move || _ = done.send(write(&settings)))
            .map_err(|error| Text::from(format!("settings were not written: {error}")))?;
        let (outside, late, patience) = (self.outside.clone(), self.files.late.clone(), self.files.patience);
        // The session may be over.
        let say = move |words: String| _ = outside.send(Outside::Kept(words.into()));
        self.writing = Some(tokio::spawn(async move {
            let in_time = timeout(patience, &mut written).await;
            let words = match in_time {
                Ok(words) => words,
                Err(_) => {
                    say(late);
                    written.await
                }
            };
            words.into_iter().for_each(say);
        }));
        Ok(())
    }

    /// Waits, not for long, for what is being written, and keeps for the next run what was changed in this one.
    pub(super) async fn leave(&mut self, settings: &Settings) {
        let deadline = Instant::now() + LAST_WORDS;
        // Mostly it is one home, and one is not waited for twice.
        if let Some(writing) = self.writing.take()
            && timeout_at(deadline, writing).await.is_err()
        {
            return;
        }
        (self.files.save_changes)(settings, deadline.saturating_duration_since(Instant::now()));
    }
}
