//! Writes a recording: lines in zstd frames, in parts whose size and age have limits.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use tokio::time::Instant;

use super::folder::RecordingFolder;
use super::frame::MAGIC;
use super::frame_writer::FrameWriter;
use super::part::Part;
use super::torn_end::{Repaired, close_frame, repair};
use crate::base::units::{Bytes, Elapsed};
use crate::protocol::host_key::HostKey;

/// The largest share of the limits that one part has.
const PARTS: u32 = 8;

/// A clock that is set back by more than this, in milliseconds, begins a part.
const CLOCK_SET_BACK_MS: u64 = 60_000;

/// A clock that was set back begins no more parts than this: one that is set all the time would
/// make the recording a heap of files.
const MOST_OUT_OF_ORDER: usize = 32;

/// How long lines wait in memory. Together with the time to write them, they are safe after 10
/// seconds.
const FLUSH_AFTER: Duration = Duration::from_secs(8);

/// A full line begins a new frame from this age of a frame on. An agent writes a full line each
/// minute.
const FRAME_MS: u64 = 45_000;

/// A frame is not longer than this, whether a full line comes or not.
const LONGEST_FRAME_MS: u64 = 120_000;

/// A frame has no more bytes of lines than this, unless its first lines have.
const LARGEST_FRAME: u64 = 16 << 20;

/// The time between two checkpoints.
const CHECKPOINT_MS: u64 = 300_000;

/// The time between two attempts to write after one has failed.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The limits of a recording. They hold while it is written.
#[derive(Debug, Clone, Copy)]
pub struct RecordingLimits {
    /// The most bytes of all parts together.
    pub max_size: Bytes,
    /// How long lines are kept at least; an eighth longer at most.
    pub max_age: Duration,
}

/// Writes a recording. A write that fails pauses it, and it continues by itself.
pub struct RecordingWriter {
    folder: RecordingFolder,
    limits: RecordingLimits,
    file: Arc<File>,
    /// The length of the file up to its last flush.
    length: u64,
    frames: FrameWriter,
    frame: Option<OpenFrame>,
    pause: Option<WritePause>,
    /// The time of the first line of the file, in milliseconds since 1970.
    part_begin_ms: Option<u64>,
    /// The times since the last checkpoints; `None` before the first.
    since_checkpoints: Option<HostTimes>,
    /// Whether this writer has written lines.
    has_written: bool,
    notes: Vec<String>,
}

/// The time of the first line of each host, in milliseconds since 1970. Clocks of hosts differ, so
/// a time says how much time went by only beside another time of the same host.
#[derive(Debug, Default)]
struct HostTimes(BTreeMap<HostKey, u64>);

impl HostTimes {
    /// Returns the time from the first line of a host to this one; `None` if its clock was set
    /// back. Adds a host that has no line.
    fn age(&mut self, host: HostKey, unix_ms: u64) -> Option<u64> {
        unix_ms.checked_sub(*self.0.entry(host).or_insert(unix_ms))
    }
}

/// The frame that lines are added to.
struct OpenFrame {
    /// Where it begins in the file.
    offset: u64,
    times: HostTimes,
    /// The bytes of its lines.
    content: u64,
    /// When the oldest line was added that was not flushed.
    waiting_since: Option<Instant>,
}

/// Why nothing is recorded.
struct WritePause {
    since: Instant,
    retry_at: Instant,
    /// The beginning of the frame that was cut off.
    torn_at: Option<u64>,
}

/// The beginning of a new frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameStart {
    /// Whether checkpoints follow the full lines.
    pub has_checkpoints: bool,
}

impl Drop for RecordingWriter {
    /// Unlocks the file. Closing it is not enough: a child that another thread is just starting has
    /// it open until its `exec`.
    fn drop(&mut self) {
        let _unlocked: rustix::io::Result<()> = flock(&self.file, FlockOperation::Unlock);
    }
}

impl RecordingWriter {
    /// Opens a recording to append to it, and creates it if it is absent. Repairs its end.
    ///
    /// # Errors
    ///
    /// When it cannot be written safely: one sentence.
    pub fn open(path: &Path, limits: RecordingLimits) -> Result<Self, String> {
        Self::open_here(path, limits)
            .map_err(|phrase| format!("cannot record to {}: {phrase}", path.display()))
    }

    fn open_here(path: &Path, limits: RecordingLimits) -> Result<Self, String> {
        let folder = RecordingFolder::open(path)?;
        let file = folder.open_newest()?;
        let (mut writer, repaired) =
            Self::with_file(folder, limits, file).map_err(|error| error.to_string())?;
        let Some(Repaired { cut, is_closed, .. }) = repaired else {
            return Err("it is another kind of file: choose a new file".to_owned());
        };
        if cut > 0 || is_closed {
            let kept = if is_closed {
                "; the lines before are kept"
            } else {
                ""
            };
            let sentence = format!(
                "the end of {} was damaged: {} were cut off{kept}",
                path.display(),
                Bytes(cut)
            );
            writer.notes.push(sentence);
        }
        Ok(writer)
    }

    fn with_file(
        folder: RecordingFolder,
        limits: RecordingLimits,
        file: File,
    ) -> io::Result<(Self, Option<Repaired>)> {
        let file = Arc::new(file);
        let length = file.metadata()?.len();
        let is_recording =
            length < MAGIC.len() as u64 || Part::inspect(file.try_clone()?)?.has_frames;
        let repaired = if is_recording {
            Some(repair(&file, length)?)
        } else {
            None
        };
        let length = repaired.map_or(length, |repaired| repaired.length);
        let part_begin_ms = Part::inspect(file.try_clone()?)?.begin_ms()?;
        let writer = Self {
            folder,
            limits,
            file,
            length,
            frames: FrameWriter::new()?,
            frame: None,
            pause: None,
            part_begin_ms,
            since_checkpoints: None,
            has_written: false,
            notes: Vec::new(),
        };
        Ok((writer, repaired))
    }

    /// Decides whether a new frame begins with a line of this host and time. Ends the frame before
    /// it, and begins a new part when the limits ask for one. The caller then calls
    /// [`Self::begin_frame`].
    pub fn next_frame(
        &mut self,
        host: HostKey,
        unix_ms: u64,
        is_full: bool,
        now: Instant,
    ) -> Option<FrameStart> {
        let mut is_set_back = false;
        let checkpoint_age = self
            .since_checkpoints
            .as_mut()
            .and_then(|times| times.age(host, unix_ms));
        match (&mut self.frame, &self.pause) {
            (Some(frame), _) => {
                let age = frame.times.age(host, unix_ms).unwrap_or(u64::MAX);
                is_set_back = frame
                    .times
                    .age(host, unix_ms.saturating_add(CLOCK_SET_BACK_MS))
                    .is_none();
                let is_over = age >= LONGEST_FRAME_MS
                    || frame.content >= LARGEST_FRAME
                    || is_full && age >= FRAME_MS;
                if !is_over {
                    return None;
                }
            }
            (None, Some(pause)) if now < pause.retry_at => return None,
            (None, _) => {}
        }
        let is_new_part = self.attempt(now, |writer| writer.prepare(unix_ms, is_set_back))?;
        Some(FrameStart {
            has_checkpoints: is_new_part || checkpoint_age.is_none_or(|age| age >= CHECKPOINT_MS),
        })
    }

    /// Begins a frame with these lines, each with its line end. The times are those of hosts with
    /// lines among them.
    pub fn begin_frame(
        &mut self,
        start: FrameStart,
        lines: &[u8],
        times: BTreeMap<HostKey, u64>,
        now: Instant,
    ) {
        self.part_begin_ms = self.part_begin_ms.or(times.values().min().copied());
        if start.has_checkpoints {
            self.since_checkpoints = Some(HostTimes(times.clone()));
        }
        let times = HostTimes(times);
        self.frame = Some(OpenFrame {
            offset: self.length,
            times,
            content: 0,
            waiting_since: None,
        });
        self.add(lines, now);
        // The first frame shows at once whether writing succeeds.
        if (self.pause.is_none() && self.has_written) || self.attempt(now, Self::flush).is_none() {
            return;
        }
        if let Some(WritePause { since, .. }) = self.pause.take() {
            let paused = Elapsed(now.duration_since(since)).to_string();
            self.notes.push(format!(
                "recording continues; it was paused for {}",
                paused.trim()
            ));
        }
    }

    /// Adds lines to the frame, each with its line end. They are lost while the recording is
    /// paused.
    pub fn add(&mut self, lines: &[u8], now: Instant) {
        let Some(frame) = &mut self.frame else { return };
        frame.content += lines.len() as u64;
        frame.waiting_since.get_or_insert(now);
        self.attempt(now, |writer| writer.frames.add(lines));
        self.flush_if_due(now);
    }

    /// Writes the lines that have waited long enough.
    pub fn flush_if_due(&mut self, now: Instant) {
        if self.flush_due().is_some_and(|due| due <= now) {
            self.attempt(now, Self::flush);
        }
    }

    /// Writes the lines that wait, however short they have waited.
    pub fn flush_waiting(&mut self, now: Instant) {
        if self.flush_due().is_some() {
            self.attempt(now, Self::flush);
        }
    }

    /// Whether this writer has written lines.
    pub fn has_written(&self) -> bool {
        self.has_written
    }

    /// Returns when lines must be written; `None` while none waits.
    pub fn flush_due(&self) -> Option<Instant> {
        Some(self.frame.as_ref()?.waiting_since? + FLUSH_AFTER)
    }

    /// Returns sentences for the user: what became of the recording since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Whether nothing is recorded, because writing failed.
    pub fn is_paused(&self) -> bool {
        self.pause.is_some()
    }

    /// Ends the frame, and with it the recording.
    pub fn close(mut self, now: Instant) -> Vec<String> {
        self.attempt(now, Self::end_frame);
        self.take_notes()
    }

    /// Runs a step. If it fails, pauses the recording.
    fn attempt<T>(
        &mut self,
        now: Instant,
        step: impl FnOnce(&mut Self) -> io::Result<T>,
    ) -> Option<T> {
        let error = match step(self) {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let frame = self.frame.take();
        // The bytes behind the last flush may be half of a block.
        let _still_full: io::Result<()> = self.file.set_len(self.length);
        let torn_at = frame
            .map(|frame| frame.offset)
            .filter(|offset| *offset < self.length);
        let retry_at = now + RETRY_AFTER;
        match &mut self.pause {
            Some(pause) => {
                pause.retry_at = retry_at;
                pause.torn_at = pause.torn_at.or(torn_at);
            }
            None => {
                self.pause = Some(WritePause {
                    since: now,
                    retry_at,
                    torn_at,
                });
                self.notes.push(format!(
                    "recording is paused: {error}; it continues when writing succeeds again"
                ));
            }
        }
        None
    }

    /// Prepares for a new frame. Returns whether it begins a part: also after a clock was set back,
    /// because a search for a time needs the times of a part in order.
    fn prepare(&mut self, unix_ms: u64, is_set_back: bool) -> io::Result<bool> {
        self.end_frame()?;
        self.frames.reset()?;
        if let Some(offset) = self.pause.as_ref().and_then(|pause| pause.torn_at) {
            self.length = close_frame(&self.file, offset, self.length)?.length;
            self.pause.iter_mut().for_each(|pause| pause.torn_at = None);
        }
        let part_size = self.limits.max_size.0 / u64::from(PARTS);
        let age = self
            .part_begin_ms
            .and_then(|begin| unix_ms.checked_sub(begin))
            .map(Duration::from_millis);
        let is_old = age.is_some_and(|age| age >= self.limits.max_age / PARTS);
        let is_out_of_order = is_set_back && self.folder.older_parts()?.len() < MOST_OUT_OF_ORDER;
        if self.length > 0 && (self.length >= part_size || is_old || is_out_of_order) {
            self.folder.rotate()?;
            self.begin_part()?;
        } else if self.file.metadata()?.nlink() == 0 {
            self.notes
                .push("the file of the recording was removed; a new one begins".to_owned());
            self.begin_part()?;
        }
        self.keep_limits(part_size)?;
        Ok(self.length == 0)
    }

    fn begin_part(&mut self) -> io::Result<()> {
        let file = self.folder.open_newest().map_err(io::Error::other)?;
        self.length = file.metadata()?.len();
        self.file = Arc::new(file);
        self.part_begin_ms = None;
        Ok(())
    }

    /// Deletes the oldest parts until the limits leave room for this part.
    fn keep_limits(&mut self, part_size: u64) -> io::Result<()> {
        let mut parts = self.folder.older_parts()?;
        let mut bytes: u64 = parts.iter().map(|part| part.bytes).sum();
        #[expect(
            clippy::disallowed_methods,
            reason = "the age of a file is measured by the same clock"
        )]
        let now = SystemTime::now();
        while let Some(oldest) = parts.pop() {
            // This part may become one frame longer than its size.
            let is_too_much = bytes + 2 * part_size > self.limits.max_size.0;
            let is_old = now
                .duration_since(oldest.modified)
                .is_ok_and(|age| age > self.limits.max_age);
            if !is_too_much && !is_old {
                break;
            }
            self.folder.remove(&oldest)?;
            bytes -= oldest.bytes;
        }
        Ok(())
    }

    fn end_frame(&mut self) -> io::Result<()> {
        if self.frame.is_none() {
            return Ok(());
        }
        self.frames.end()?;
        self.write()?;
        self.frame = None;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.frames.flush()?;
        self.write()
    }

    /// Writes the compressed bytes, and waits until the disk has them.
    fn write(&mut self) -> io::Result<()> {
        self.file.write_all_at(self.frames.bytes(), self.length)?;
        self.file.sync_data()?;
        self.length += self.frames.bytes().len() as u64;
        self.frames.take_bytes();
        if let Some(frame) = &mut self.frame {
            frame.waiting_since = None;
        }
        self.has_written = true;
        Ok(())
    }
}
