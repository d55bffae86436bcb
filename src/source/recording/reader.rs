//! Reads the lines of a recording: plain or in zstd frames, with the older parts of the file.
//! Everything in it may be forged, so lines and frames have limits, and a damaged frame is skipped.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Cursor, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::de::IgnoredAny;

use super::super::line_buffer::LineBuffer;
use super::super::masked_lines::LineMasker;
use super::blank_lines;
use super::frame::{FrameEnd, FrameState, FrameStream, MAGIC, find_end, find_magic};
use super::line_head::LineHead;
use super::part::{Part, open_all};
use crate::base::time::local_time;
use crate::base::units::{Bytes, Elapsed};
use crate::protocol::snapshot::Snapshot;

/// After as many damaged places in a row, the rest of a part is skipped.
const MOST_DAMAGED_IN_A_ROW: u32 = 1000;

/// After so many bytes of content of damaged frames, the rest of a part is skipped.
const MOST_DAMAGED_CONTENT: u64 = 4 << 30;

/// Where a replay must begin to show a moment, if no checkpoint is before it: the finest history
/// covers as much.
const BEFORE_A_MOMENT: Duration = Duration::from_mins(15);

/// The bytes of buffer that are kept between two lines.
const KEPT_ROOM: usize = 1 << 20;

/// Reads the lines of a recording.
pub struct RecordingReader {
    /// The files of the recording, the oldest first.
    parts: Vec<Part>,
    /// The number of the part that is read, and the offset in it where reading goes on after
    /// `content`.
    part: usize,
    offset: u64,
    /// The frame or the plain lines that are read now.
    content: Option<Box<dyn BufRead>>,
    /// The line that was returned last; or the beginning of a line, if `is_partial`.
    line: LineBuffer,
    masker: LineMasker,
    is_partial: bool,
    /// The time of the last line that has one.
    last_ms: Option<u64>,
    problems: Problems,
}

/// Problems of the recording, as far as it was read.
#[derive(Debug, Default)]
struct Problems {
    /// Whether bytes are damaged since the last line that was read.
    is_damaged: bool,
    damaged_places: u64,
    /// The time that is missing in all damaged places, in milliseconds.
    lost_ms: u64,
    /// The last time before the first damaged place, and the first time after it.
    first: Option<(u64, u64)>,
    /// Whether the end of the recording cannot be read.
    is_end_damaged: bool,
    is_cut_off: bool,
}

/// Reads a recording of these bytes to its end, without a folder. Returns the number of its lines.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_bytes(bytes: &[u8]) -> usize {
    use std::os::fd::AsRawFd;

    let read = || -> io::Result<usize> {
        let mut lines = 0;
        let file = rustix::fs::memfd_create("recording", rustix::fs::MemfdFlags::CLOEXEC)?;
        io::Write::write_all(&mut std::fs::File::from(file.try_clone()?), bytes)?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let mut reader = RecordingReader::open(Path::new(&path))?;
        while reader.next_line()?.is_some() {
            lines += 1;
        }
        reader.span()?;
        for problem in reader.problems() {
            assert!(!problem.is_empty(), "a problem has no words");
        }
        Ok(lines)
    };
    // Bytes may be those of a version with another format.
    read().unwrap_or(0)
}

/// How the content that was opened relates to the content before it.
enum Opened {
    /// The content continues: a line may have its beginning in the content before.
    Continued,
    /// Something is missing in between, or another file begins.
    Apart,
    /// There is no more content.
    End,
}

impl RecordingReader {
    /// Opens a recording with its older parts `FILE.1`, `FILE.2` and so on.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            parts: open_all(path)?,
            part: 0,
            offset: 0,
            content: None,
            line: LineBuffer::default(),
            masker: LineMasker::default(),
            is_partial: false,
            last_ms: None,
            problems: Problems::default(),
        })
    }

    /// Returns the next line that is not empty, without its line end, and without the secrets in
    /// arguments of processes; `None` at the end of the recording.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or was written by a version of gputop with another format.
    pub fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.begin(KEPT_ROOM);
        self.is_partial = false;
        loop {
            let Some(content) = &mut self.content else {
                match self.open_next()? {
                    Opened::Continued => {}
                    Opened::Apart if self.take_rest() => break,
                    Opened::Apart => {}
                    Opened::End if self.take_rest() => break,
                    Opened::End => {
                        self.problems.is_end_damaged |= self.problems.is_damaged;
                        return Ok(None);
                    }
                }
                continue;
            };
            let skipped = if self.line.bytes.is_empty() {
                blank_lines::skip(&mut **content)
            } else {
                Ok(0)
            };
            match skipped.and_then(|_| self.line.read(&mut **content)) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
                read => read?,
            }
            if self.line.has_end() {
                break;
            }
            self.is_partial = !self.line.bytes.is_empty();
            self.content = None;
        }
        self.note_line()?;
        if let Cow::Owned(masked) = self.masker.mask(&self.line.bytes) {
            self.line.bytes = masked;
        }
        Ok(Some(&self.line.bytes))
    }

    /// Returns one sentence for each problem with the lines that were read so far.
    pub fn problems(&self) -> Vec<String> {
        let Problems {
            damaged_places,
            lost_ms,
            first,
            is_end_damaged,
            is_cut_off,
            ..
        } = self.problems;
        let mut sentences = Vec::new();
        if let Some((from, to)) = first {
            let count = damaged_places - u64::from(is_end_damaged);
            let places = if count == 1 {
                "1 place is".to_owned()
            } else {
                format!("{count} places are")
            };
            let lost = Elapsed(Duration::from_millis(lost_ms)).to_string();
            let time = |unix_ms| local_time(unix_ms, 0).replace("+00:00", "Z");
            let noun = if count == 1 { "from" } else { "the first from" };
            let (lost, from, to) = (lost.trim(), time(from), time(to));
            sentences
                .push(format!("the recording is damaged: {places} skipped; {lost} are missing, {noun} {from} to {to}"));
        }
        if is_end_damaged {
            sentences.push("the recording is damaged: its end cannot be read".to_owned());
        }
        if is_cut_off {
            sentences.push("the last line of the recording is cut off".to_owned());
        }
        sentences
    }

    /// Whether the recording is a pipe, which has no times to seek to.
    pub fn is_pipe(&self) -> bool {
        self.parts.iter().any(|part| part.length.is_none())
    }

    /// Returns the size of all parts, as it was when they were opened. Pipes have none.
    pub fn size(&self) -> Bytes {
        Bytes(self.parts.iter().filter_map(|part| part.length).sum())
    }

    /// Returns the times of the first and the last line, in milliseconds since 1970; `None` for a
    /// recording without any. Reads little of the files.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or the recording is a pipe.
    pub fn span(&mut self) -> io::Result<Option<(u64, u64)>> {
        self.check_no_pipe()?;
        let mut span: Option<(u64, u64)> = None;
        // After a clock was set back, the times of a part are before those of the part before it.
        for part in &mut self.parts {
            if let Some((begin, end)) = part.begin_ms()?.zip(part.end_ms()?) {
                let (first, last) = span.unwrap_or((begin, end));
                span = Some((first.min(begin), last.max(end)));
            }
        }
        Ok(span)
    }

    /// Continues reading where a replay must begin to show this moment: at the last frame with
    /// checkpoints before it, or 15 minutes before it when there are none. Clears
    /// [`RecordingReader::problems`].
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or the recording is a pipe.
    pub fn seek(&mut self, unix_ms: u64) -> io::Result<()> {
        self.check_no_pipe()?;
        (self.part, self.offset) = (0, 0);
        let mut is_found = false;
        for number in (0..self.parts.len()).rev() {
            let part = &mut self.parts[number];
            let Some(offset) = part.start_for(unix_ms, BEFORE_A_MOMENT)? else {
                continue;
            };
            // A user names a whole second, in which the part may end.
            let is_in_part = part
                .end_ms()?
                .is_some_and(|end| unix_ms < end.saturating_add(1000));
            // Without a part that has the moment, the newest that begins before it.
            if is_in_part || !is_found {
                (self.part, self.offset) = (number, offset);
            }
            is_found = true;
            if is_in_part {
                break;
            }
        }
        (self.content, self.last_ms, self.problems) = (None, None, Problems::default());
        Ok(())
    }

    fn check_no_pipe(&self) -> io::Result<()> {
        if self.is_pipe() {
            return Err(io::Error::other(
                "it is a pipe, in which gputop cannot go to a time: save it in a file first",
            ));
        }
        Ok(())
    }

    /// Opens the content at `part` and `offset`, and moves them behind it.
    fn open_next(&mut self) -> io::Result<Opened> {
        let mut is_apart = false;
        let (mut damaged, mut damaged_content) = (0, 0);
        while let Some(part) = self.parts.get(self.part) {
            let length = part.length();
            let is_over = self.offset >= length
                || damaged > MOST_DAMAGED_IN_A_ROW
                || damaged_content > MOST_DAMAGED_CONTENT;
            if is_over {
                (self.part, self.offset, is_apart) = (self.part + 1, 0, true);
                (damaged, damaged_content) = (0, 0);
                continue;
            }
            if !part.has_frames {
                self.content = Some(Box::new(part.lines_from(self.offset)?));
                self.offset = length;
                return Ok(if is_apart {
                    Opened::Apart
                } else {
                    Opened::Continued
                });
            }
            let (state, content) = FrameState::read(&part.file, self.offset, length)?;
            let is_torn = state == FrameState::Torn && !has_later_frame(part, self.offset)?;
            if state == FrameState::Damaged || state == FrameState::Torn && !is_torn {
                self.problems.damaged_places += u64::from(!self.problems.is_damaged);
                self.problems.is_damaged = true;
                (is_apart, damaged, damaged_content) =
                    (true, damaged + 1, damaged_content + content.length);
                let next = find_magic(&part.file, self.offset + MAGIC.len() as u64, length)?;
                self.offset = next.unwrap_or(length);
                continue;
            }
            self.content = Some(match content.kept {
                Some(bytes) => Box::new(Cursor::new(bytes)),
                None => Box::new(BufReader::new(FrameStream::new(
                    Arc::clone(&part.file),
                    self.offset,
                    length,
                )?)),
            });
            self.problems.is_cut_off |=
                is_torn && find_end(&part.file, self.offset, length)? != FrameEnd::Torn(length);
            self.offset = if let FrameState::Whole(end) = state {
                end
            } else {
                length
            };
            return Ok(if is_apart {
                Opened::Apart
            } else {
                Opened::Continued
            });
        }
        Ok(Opened::End)
    }

    /// Decides whether the line without a line end that was read last is whole. Forgets it if it is
    /// not.
    fn take_rest(&mut self) -> bool {
        if !std::mem::take(&mut self.is_partial) {
            return false;
        }
        if serde_json::from_slice::<IgnoredAny>(&self.line.bytes).is_ok() {
            return true;
        }
        self.line.begin(KEPT_ROOM);
        // Within the recording, the time of a damaged place names what is lost.
        self.problems.is_cut_off |= !self.problems.is_damaged;
        false
    }

    /// Notes the time of the line, and checks its version.
    fn note_line(&mut self) -> io::Result<()> {
        let Some(head) = LineHead::parse(&self.line.bytes) else {
            return Ok(());
        };
        if let Some(schema) = head.schema
            && schema != Snapshot::SCHEMA
        {
            let sentence = format!(
                "it has version {schema} of the format, and this gputop reads version {}: use the version of gputop that \
                 recorded it",
                Snapshot::SCHEMA
            );
            return Err(io::Error::new(ErrorKind::InvalidData, sentence));
        }
        let Some(time) = head.unix_ms else {
            return Ok(());
        };
        if std::mem::take(&mut self.problems.is_damaged) {
            let before = self.last_ms.unwrap_or(time);
            self.problems.lost_ms = self
                .problems
                .lost_ms
                .saturating_add(time.saturating_sub(before));
            self.problems.first.get_or_insert((before, time));
        }
        self.last_ms = Some(time);
        Ok(())
    }
}

/// Whether another frame begins behind the beginning of a frame that seems to end with the file:
/// then the frame is damaged.
fn has_later_frame(part: &Part, offset: u64) -> io::Result<bool> {
    let mut magic = offset;
    for _ in 0..MOST_DAMAGED_IN_A_ROW {
        let Some(next) = find_magic(&part.file, magic + MAGIC.len() as u64, part.length())? else {
            return Ok(false);
        };
        if find_end(&part.file, next, part.length())? != FrameEnd::Invalid {
            return Ok(true);
        }
        magic = next;
    }
    Ok(true)
}
