//! Writes settings on a thread of its own, because a home directory on a network may hang.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::SessionInput;
use super::options::{ScreenFiles, SettingsFiles};
use crate::app::settings::Settings;
use crate::base::text::Text;

/// How long quitting waits for all writes: a user hardly notices the delay, and a busy host needs some of it.
const QUIT_TIMEOUT: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct SettingsWriter<'a> {
    files: &'a SettingsFiles,
    inputs: UnboundedSender<SessionInput>,
    /// Ends when the latest write is over and its result was sent; `None` before the first write.
    write_task: Option<JoinHandle<()>>,
}

impl<'a> SettingsWriter<'a> {
    pub(super) fn new(files: &'a SettingsFiles, inputs: UnboundedSender<SessionInput>) -> Self {
        Self { files, inputs, write_task: None }
    }

    /// Starts to write settings into `config.toml`. The result comes as a [`SessionInput::SettingsWritten`].
    ///
    /// # Errors
    ///
    /// When the last write still runs, or no thread can be started: one sentence.
    pub(super) fn write(&mut self, settings: &Settings) -> Result<(), Text> {
        let (write, settings) = (Arc::clone(&self.files.write_config), settings.clone());
        self.start("settings were not written", self.files.late.clone(), move || write(&settings))
    }

    /// Starts to save a screen in new files. The result comes as a [`SessionInput::SettingsWritten`].
    ///
    /// # Errors
    ///
    /// When the last write still runs, or no thread can be started: one sentence.
    pub(super) fn write_screen(&mut self, files: ScreenFiles) -> Result<(), Text> {
        let save = Arc::clone(&self.files.save_screen);
        let late = "the file system does not respond: the screen may not have been saved".to_owned();
        self.start("the screen was not saved", late, move || save(&files))
    }

    fn start(
        &mut self,
        failure: &str,
        late: String,
        write: impl FnOnce() -> String + Send + 'static,
    ) -> Result<(), Text> {
        if self.write_task.as_ref().is_some_and(|task| !task.is_finished()) {
            return Err(format!("{failure}: the last write has not ended yet").into());
        }
        let (sender, mut result) = oneshot::channel::<String>();
        thread::Builder::new()
            .name("settings".to_owned())
            .spawn(move || _ = sender.send(write()))
            .map_err(|error| Text::from(format!("{failure}: {error}")))?;
        let (inputs, patience) = (self.inputs.clone(), self.files.patience);
        // Nothing receives the sentence once the session is over.
        let send = move |sentence: String| _ = inputs.send(SessionInput::SettingsWritten(sentence.into()));
        self.write_task = Some(tokio::spawn(async move {
            let in_time = timeout(patience, &mut result).await;
            let sentence = match in_time {
                Ok(sentence) => sentence,
                Err(_) => {
                    send(late);
                    result.await
                }
            };
            sentence.into_iter().for_each(send);
        }));
        Ok(())
    }

    /// Waits for a write that runs, then saves for the next run what the user changed on the screen. Takes no longer than
    /// [`QUIT_TIMEOUT`].
    pub(super) async fn finish(&mut self, settings: &Settings) {
        let deadline = Instant::now() + QUIT_TIMEOUT;
        // `config.toml` and `screen.toml` are usually in the same home directory: if the first write hangs, the second
        // would hang too.
        if let Some(task) = self.write_task.take()
            && timeout_at(deadline, task).await.is_err()
        {
            return;
        }
        (self.files.save_changes)(settings, deadline.saturating_duration_since(Instant::now()));
    }
}
