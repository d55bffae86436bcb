//! Writes settings on a thread of its own, because a home directory on a network may hang.

use std::env;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::SessionInput;
use super::options::{ScreenFiles, SessionOptions, SettingsFiles};
use crate::app::settings::Settings;
use crate::app::{App, AppOptions};
use crate::base::text::Text;
use crate::files::action::{self, PATIENCE, in_background};
use crate::files::folders::state_file;
use crate::files::settings_text;

/// How long quitting waits for all writes: a user hardly notices the delay, and a busy host needs
/// some of it.
const QUIT_TIMEOUT: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct SettingsWriter<'a> {
    files: &'a SettingsFiles,
    /// The settings with which the session began.
    start: Settings,
    inputs: UnboundedSender<SessionInput>,
    /// Ends when the latest write is over and its result was sent; `None` before the first write.
    write_task: Option<JoinHandle<()>>,
}

impl<'a> SettingsWriter<'a> {
    pub(super) fn new(options: &'a SessionOptions, inputs: UnboundedSender<SessionInput>) -> Self {
        let start = options
            .settings
            .clone()
            .or(App::new(AppOptions::default()).settings());
        Self {
            files: &options.settings_files,
            start,
            inputs,
            write_task: None,
        }
    }

    /// Starts to write settings into `config.toml`. The result comes as a
    /// [`SessionInput::SettingsWritten`].
    ///
    /// # Errors
    ///
    /// When the last write still runs, or no thread can be started: one sentence.
    pub(super) fn write(&mut self, settings: &Settings) -> Result<(), Text> {
        let path = self
            .files
            .config
            .clone()
            .ok_or("cannot save settings: HOME is not set")?;
        let (late, lines) = (
            format!(
                "{} does not respond: settings may not have been saved",
                path.display()
            ),
            settings.toml_lines(),
        );
        self.start("settings were not written", late, move || {
            settings_text::write(&path, &lines)
        })
    }

    /// Starts to save a screen in new files. The result comes as a
    /// [`SessionInput::SettingsWritten`].
    ///
    /// # Errors
    ///
    /// When the last write still runs, or no thread can be started: one sentence.
    pub(super) fn write_screen(&mut self, files: ScreenFiles) -> Result<(), Text> {
        let late =
            "the file system does not respond: the screen may not have been saved".to_owned();
        self.start("the screen was not saved", late, move || {
            save_screen(&files)
        })
    }

    fn start(
        &mut self,
        failure: &str,
        late: String,
        write: impl FnOnce() -> String + Send + 'static,
    ) -> Result<(), Text> {
        if self
            .write_task
            .as_ref()
            .is_some_and(|task| !task.is_finished())
        {
            return Err(format!("{failure}: the last write has not ended yet").into());
        }
        let (sender, mut result) = oneshot::channel::<String>();
        thread::Builder::new()
            .name("settings".to_owned())
            .spawn(move || _ = sender.send(write()))
            .map_err(|error| Text::from(format!("{failure}: {error}")))?;
        let inputs = self.inputs.clone();
        // Nothing receives the sentence once the session is over.
        let send =
            move |sentence: String| _ = inputs.send(SessionInput::SettingsWritten(sentence.into()));
        self.write_task = Some(tokio::spawn(async move {
            let in_time = timeout(PATIENCE, &mut result).await;
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

    /// Waits for a write that runs, then saves for the next run what the user changed on the
    /// screen. Takes no longer than [`QUIT_TIMEOUT`].
    pub(super) async fn finish(&mut self, settings: &Settings) {
        let deadline = Instant::now() + QUIT_TIMEOUT;
        // `config.toml` and `screen.toml` are usually in the same home directory: if the first
        // write hangs, the second would hang too.
        if let Some(task) = self.write_task.take()
            && timeout_at(deadline, task).await.is_err()
        {
            return;
        }
        self.save_changes(settings, deadline.saturating_duration_since(Instant::now()));
    }

    /// Saves the settings that were changed on the screen for the next run. Waits no longer than
    /// `patience`.
    fn save_changes(&self, now: &Settings, patience: Duration) {
        // Which processes are shown, and the interval, are for one run only.
        let for_next_run = |settings: Settings| Settings {
            mine: None,
            interval: None,
            ..settings
        };
        let Some((path, last_run)) = self.files.last_run.clone() else {
            return;
        };
        let changed = for_next_run(now.changed_since(&self.start));
        if changed == Settings::default() {
            return;
        }
        let Ok(text) = settings_text::merged("", &changed.or(for_next_run(last_run)).toml_lines())
        else {
            return;
        };
        // The screen is already gone, and losing these settings costs little: a failure is not
        // reported.
        let _late_or_lost =
            in_background(move || action::replace(&path, &text)).recv_timeout(patience);
    }
}

/// Saves a screen in new files: in the current directory, or in the state directory where that
/// fails. Returns a sentence that says where, or why it failed. Blocks while the file system hangs.
fn save_screen(files: &ScreenFiles) -> String {
    let state = state_file(&files.name);
    let places = env::current_dir()
        .ok()
        .map(|folder| folder.join(&files.name))
        .into_iter()
        .chain(state);
    let mut failure = "there is no directory to save it in".to_owned();
    for place in places {
        let svg = match action::create(&place.with_extension("svg"), &files.svg) {
            Ok(svg) => svg,
            Err(error) => {
                failure = format!("{}: {error}", place.with_extension("svg").display());
                continue;
            }
        };
        let csv = files
            .csv
            .as_ref()
            .map(|csv| action::create(&svg.with_extension("csv"), csv));
        return match csv {
            None => format!("saved {}", svg.display()),
            Some(Ok(csv)) if csv == svg.with_extension("csv") => {
                format!("saved {} and .csv", svg.display())
            }
            Some(Ok(csv)) => format!("saved {} and {}", svg.display(), csv.display()),
            Some(Err(error)) => format!("saved {}, but not the graph: {error}", svg.display()),
        };
    }
    format!("the screen was not saved: {failure}")
}
