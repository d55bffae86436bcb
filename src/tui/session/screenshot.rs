//! `--screenshot`: draws the screen of a session into an SVG file, without a terminal.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crossterm::event::KeyEvent;

use super::watcher::{Product, Watcher};
use super::{SessionOptions, picture_file};
use crate::source::descriptors;
use crate::view;

/// How long to watch a live host if the user names no time: the second pass has rates, and the
/// third all processes.
const USUAL: Duration = Duration::from_secs(3);

/// How long after a key its result is on the screen, such as the reply of an agent.
const AFTER_KEY: Duration = Duration::from_secs(1);

/// The options of `--screenshot`.
#[derive(Debug, Clone)]
pub(crate) struct ScreenshotOptions {
    /// The file to write; `-` for the standard output.
    pub file: PathBuf,
    /// The columns and rows of the screen.
    pub size: (u16, u16),
    /// The time to watch before the first key; `None` for a few seconds, and for the whole of a
    /// recording.
    pub after: Option<Duration>,
    /// The keys to press, one after the other.
    pub keys: Vec<KeyEvent>,
    /// How long to wait for a line, beyond the time to watch.
    pub patience: Duration,
}

/// Watches the sources for a while and writes the screen.
///
/// # Errors
///
/// When no source can be started, no line arrives, or the file cannot be written.
pub(crate) fn run(
    options: &SessionOptions,
    screenshot: &ScreenshotOptions,
) -> anyhow::Result<ExitCode> {
    descriptors::check()?;
    picture_file::check(&screenshot.file)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let svg = runtime.block_on(async {
        let mut watcher = Watcher::start(
            options,
            screenshot.size,
            screenshot.patience,
            Product::Screenshot,
        )?;
        let drawn = draw(&mut watcher, options, screenshot).await;
        watcher.sources.close().await;
        drawn
    })?;
    picture_file::write(&screenshot.file, &svg)?;
    Ok(ExitCode::SUCCESS)
}

async fn draw(
    watcher: &mut Watcher,
    options: &SessionOptions,
    screenshot: &ScreenshotOptions,
) -> anyhow::Result<String> {
    let is_recording = watcher.sources.is_recording();
    watcher
        .begin(screenshot.after.or((!is_recording).then_some(USUAL)))
        .await?;
    for key in &screenshot.keys {
        watcher.press(*key, AFTER_KEY).await?;
        watcher.app.mark_end_as_read();
    }
    Ok(view::svg(&options.theme, &watcher.app))
}
