//! `gputop cast`: plays a session without a terminal into an animated SVG file.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use crossterm::event::KeyEvent;

use super::watcher::{Product, Watcher};
use super::{SessionOptions, picture_file};
use crate::base::text::Text;
use crate::base::units::{Bytes, ExactSpan};
use crate::output::print_error;
use crate::source::descriptors;
use crate::view::Film;

/// The largest file in bytes: a web page should show it at once.
const MOST: usize = 2 << 20;

/// The time from one frame to the next while no key is pressed.
const FRAME: Duration = Duration::from_secs(1);

/// How long a live host is watched before the first frame: its second pass has rates.
const BEFORE_FIRST_FRAME: Duration = Duration::from_secs(2);

/// How long after a key its frame is drawn: an agent has answered by then.
const AFTER_KEY: Duration = Duration::from_millis(100);

/// The options of `gputop cast`.
#[derive(Debug, Clone)]
pub(crate) struct CastOptions {
    /// The new file; `-` for the standard output.
    pub file: PathBuf,
    /// The columns and rows of the screen.
    pub size: (u16, u16),
    /// The time before the first key.
    pub after: Duration,
    /// The keys to press then, each with the time after it.
    pub keys: Vec<(KeyEvent, Duration)>,
    /// How long to wait for the first line.
    pub patience: Duration,
}

/// Plays the sources and writes the film.
///
/// # Errors
///
/// When no source can be started, no line arrives, or the file exists or cannot be written.
pub(crate) fn run(options: &SessionOptions, cast: &CastOptions) -> anyhow::Result<ExitCode> {
    descriptors::check()?;
    picture_file::check_new(&cast.file)?;
    picture_file::write_new(&cast.file, &play(options, cast)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the text of the animated SVG.
fn play(options: &SessionOptions, cast: &CastOptions) -> anyhow::Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let camera = runtime.block_on(async {
        let watcher = Watcher::start(options, cast.size, cast.patience, Product::Cast)?;
        let mut camera = Camera {
            film: Film::new(options.theme, &watcher.app),
            watcher,
            at: Duration::ZERO,
        };
        let played = camera.play(cast).await;
        camera.watcher.sources.close().await;
        played.map(|()| camera)
    })?;
    let fitted = camera.film.svg_within(MOST, camera.at, FRAME);
    let (svg, interval) = fitted.map_err(|size| {
        let [size, most] = [size, MOST].map(|bytes| Bytes(bytes as u64));
        anyhow!("the picture would have {size}, and the most is {most}: choose a smaller --size or fewer --keys")
    })?;
    if interval > FRAME {
        print_error(&lower_rate(interval));
    }
    Ok(svg)
}

fn lower_rate(interval: Duration) -> Text {
    format!(
        "a frame every {} instead of every {}: the picture would be larger than {}",
        ExactSpan(interval),
        ExactSpan(FRAME),
        Bytes(MOST as u64)
    )
    .into()
}

/// Takes the frames of a film.
struct Camera {
    watcher: Watcher,
    film: Film,
    /// The time of the film.
    at: Duration,
}

impl Camera {
    async fn play(&mut self, cast: &CastOptions) -> anyhow::Result<()> {
        let first = if self.watcher.sources.is_recording() {
            Duration::ZERO
        } else {
            BEFORE_FIRST_FRAME
        };
        self.watcher.begin(Some(first)).await?;
        self.take_frame(true);
        self.roll(cast.after).await;
        for (key, pause) in &cast.keys {
            self.watcher.press(*key, AFTER_KEY).await?;
            self.at += AFTER_KEY;
            self.take_frame(true);
            self.watcher.app.mark_end_as_read();
            self.roll(pause.saturating_sub(AFTER_KEY)).await;
        }
        Ok(())
    }

    /// Lets time pass, and takes a frame after each second of it.
    async fn roll(&mut self, span: Duration) {
        let end = self.at.saturating_add(span);
        while self.at < end {
            let step = end.saturating_sub(self.at).min(FRAME);
            self.watcher.pass(step).await;
            self.at += step;
            // The end of the time is the next frame after a key.
            if step == FRAME && self.at < end {
                self.take_frame(false);
            }
        }
    }

    fn take_frame(&mut self, is_after_key: bool) {
        self.film.take(&self.watcher.app, self.at, is_after_key);
    }
}
