//! The times in one file of a recording, found without reading all of it.

use std::io::{self, BufRead, ErrorKind, Read};
use std::time::Duration;

use super::super::limits::LONGEST_LINE;
use super::blank_lines;
use super::line_head::LineHead;
use super::part::Part;

/// The most hosts of a recording, which is the most `full` lines at the beginning of a frame.
const MOST_HOSTS: usize = 1024;

/// A place among plain lines is not searched more closely than this number of bytes.
const CLOSE_ENOUGH: u64 = 256 << 10;

/// As many plain lines are read in a moment, and verdicts follow from all lines before.
const READ_ANYWAY: u64 = 4 << 20;

impl Part {
    /// Returns the first time in the file; `None` when nothing in it has a time.
    pub(super) fn begin_ms(&mut self) -> io::Result<Option<u64>> {
        match self.first_ms(0)? {
            None if self.has_frames => {
                let offsets = self.frames()?.to_vec();
                first_some(offsets, |offset| self.first_ms(offset))
            }
            time => Ok(time),
        }
    }

    /// Returns the last time in the file; `None` when nothing in it has a time.
    pub(super) fn end_ms(&mut self) -> io::Result<Option<u64>> {
        if self.has_frames {
            let offsets = self.frames()?.to_vec();
            return first_some(offsets.into_iter().rev(), |offset| self.last_ms(offset));
        }
        let mut distance = CLOSE_ENOUGH;
        loop {
            let offset = self.length().saturating_sub(distance);
            let last = self.last_ms(offset)?;
            if last.is_some() || offset == 0 || distance > 4 * LONGEST_LINE as u64 {
                return Ok(last);
            }
            distance *= 4;
        }
    }

    /// Returns the offset from which a replay must read to show this moment: the last frame with
    /// checkpoints before it, or the place that is `before` earlier when there are none. Returns
    /// `None` when the file begins later.
    pub(super) fn start_for(&mut self, unix_ms: u64, before: Duration) -> io::Result<Option<u64>> {
        if self.begin_ms()?.is_none_or(|begin| begin > unix_ms) {
            return Ok(None);
        }
        let earlier =
            |time: u64| time.saturating_sub(u64::try_from(before.as_millis()).unwrap_or(u64::MAX));
        if !self.has_frames {
            let end = self.end_ms()?.unwrap_or(unix_ms);
            let offset = self.full_line_before(earlier(unix_ms.min(end)))?;
            return Ok(Some(if offset <= READ_ANYWAY { 0 } else { offset }));
        }
        let offsets = self.frames()?.to_vec();
        let (mut low, mut high) = (0, offsets.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            // A damaged frame has the time of one before it.
            let time = first_some((low..=middle).rev(), |number| {
                self.first_ms(offsets[number])
            })?;
            if time.is_none_or(|time| time <= unix_ms) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let time = first_some((0..low).rev(), |number| self.first_ms(offsets[number]))?;
        let early_ms = earlier(time.unwrap_or(unix_ms));
        for offset in offsets[..low].iter().rev() {
            if self.has_checkpoint(*offset)?
                || self.first_ms(*offset)?.is_some_and(|time| time <= early_ms)
            {
                return Ok(Some(*offset));
            }
        }
        Ok(Some(0))
    }

    /// Returns the offset of a full line at or before this time, or that of the first line.
    fn full_line_before(&self, unix_ms: u64) -> io::Result<u64> {
        let (mut low, mut high) = (0, self.length());
        while high - low > CLOSE_ENOUGH {
            let middle = u64::midpoint(low, high);
            match self.next_full_line(middle, high)? {
                Some((offset, time)) if time <= unix_ms => low = offset,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// Returns the offset and the time of the first full line that begins between two offsets.
    fn next_full_line(&self, offset: u64, end: u64) -> io::Result<Option<(u64, u64)>> {
        let (mut lines, mut line) = (self.content_from(offset)?, Vec::new());
        let mut line_offset = offset;
        let mut is_first = true;
        while line_offset < end
            && let Some(length) = next_of(&mut *lines, &mut line)?
        {
            let head = LineHead::parse(&line).filter(|head| head.kind == "full" && !is_first);
            if let Some(time) = head.and_then(|head| head.unix_ms) {
                return Ok(Some((line_offset, time)));
            }
            // The first line may have begun before the offset.
            is_first = false;
            line_offset += length;
        }
        Ok(None)
    }

    /// Returns the first time in the frame or in the lines that begin at `offset`; `None` when
    /// nothing there has a time.
    fn first_ms(&self, offset: u64) -> io::Result<Option<u64>> {
        let mut line = Vec::new();
        let mut lines = self.content_from(offset)?;
        while next_of(&mut *lines, &mut line)?.is_some() {
            if let Some(time) = LineHead::parse(&line).and_then(|head| head.unix_ms) {
                return Ok(Some(time));
            }
        }
        Ok(None)
    }

    /// Returns the last time in the frame or in the lines that begin at `offset`; `None` when
    /// nothing there has a time.
    fn last_ms(&self, offset: u64) -> io::Result<Option<u64>> {
        let (mut line, mut last) = (Vec::new(), None);
        let mut lines = self.content_from(offset)?;
        while next_of(&mut *lines, &mut line)?.is_some() {
            last = LineHead::parse(&line)
                .and_then(|head| head.unix_ms)
                .or(last);
        }
        Ok(last)
    }

    /// Returns whether checkpoints follow the full lines at the beginning of the frame.
    fn has_checkpoint(&self, offset: u64) -> io::Result<bool> {
        let mut line = Vec::new();
        let mut lines = self.content_from(offset)?;
        for _ in 0..=MOST_HOSTS {
            if next_of(&mut *lines, &mut line)?.is_none() {
                break;
            }
            match LineHead::parse(&line) {
                Some(head) if head.kind == "full" => {}
                head => return Ok(head.is_some_and(|head| head.kind == "checkpoint")),
            }
        }
        Ok(false)
    }
}

/// Returns the first time that a function finds for these items.
fn first_some<T>(
    items: impl IntoIterator<Item = T>,
    find: impl Fn(T) -> io::Result<Option<u64>>,
) -> io::Result<Option<u64>> {
    for item in items {
        if let Some(time) = find(item)? {
            return Ok(Some(time));
        }
    }
    Ok(None)
}

/// Reads the next whole line that is not empty, without its line end. Returns the bytes up to the
/// line after it; `None` when there is none, or none that can be read.
fn next_of(lines: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<Option<u64>> {
    line.clear();
    let skipped = blank_lines::skip(lines);
    match skipped.and_then(|skipped| {
        Ok(skipped + lines.take(LONGEST_LINE as u64).read_until(b'\n', line)? as u64)
    }) {
        Err(error)
            if !matches!(
                error.kind(),
                ErrorKind::UnexpectedEof | ErrorKind::InvalidData
            ) =>
        {
            Err(error)
        }
        Err(_) => Ok(None),
        Ok(length) => Ok((line.pop() == Some(b'\n')).then_some(length)),
    }
}
