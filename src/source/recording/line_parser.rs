//! Reads and parses the lines of a recording in a thread of its own: a jump plays minutes at once,
//! and the model takes in one line while the thread parses the next ones.

use std::io::{self, BufRead, BufReader};
use std::process::ChildStdout;
use std::thread;

use tokio::sync::mpsc;

use super::super::limits;
use super::super::line_buffer::LineBuffer;
use crate::protocol::host_tag::HostTag;
use crate::protocol::line::Line;

/// The most lines that wait. A line of a thousand processes takes some MiB.
const MOST_WAITING: usize = 4;

/// The bytes of one read: as many as a pipe holds.
const READ_SIZE: usize = 64 << 10;

/// The bytes of buffer that are kept between two lines.
const KEPT_ROOM: usize = 1 << 20;

/// A line of a recording.
#[derive(Debug)]
pub(super) struct ParsedLine {
    /// The line; `Ok(None)` for an unknown kind, an error for a line that is not understood.
    pub(super) line: Result<Option<Line>, String>,
    pub(super) tag: Option<HostTag>,
}

impl ParsedLine {
    fn parse(raw: &[u8]) -> Self {
        let line = limits::parse(raw);
        let tag = if matches!(line, Ok(Some(_))) {
            HostTag::parse(raw)
        } else {
            None
        };
        Self { line, tag }
    }
}

/// The result of one read.
#[derive(Debug)]
pub(super) enum ParsedInput {
    Line(Box<ParsedLine>),
    /// The number of further lines that are not understood, after one that is not.
    Misunderstood(u64),
    /// The end of the input. `is_cut_off`: the last line has no line end, and is no whole line.
    End {
        is_cut_off: bool,
    },
    /// The input cannot be read any further.
    Failed(io::Error),
}

/// The lines that the thread has parsed. The thread ends after it is dropped.
#[derive(Debug)]
pub(super) struct LineParser(mpsc::Receiver<ParsedInput>);

impl LineParser {
    /// Starts the thread.
    pub(super) fn start(input: ChildStdout) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel(MOST_WAITING);
        let mut input = BufReader::with_capacity(READ_SIZE, input);
        thread::Builder::new()
            .name("line parser".to_owned())
            .spawn(move || {
                let mut line = LineBuffer::default();
                let (mut is_misunderstood, mut more) = (false, 0);
                loop {
                    let parsed = next(&mut input, &mut line).unwrap_or_else(ParsedInput::Failed);
                    let was_misunderstood = is_misunderstood;
                    is_misunderstood =
                        matches!(&parsed, ParsedInput::Line(line) if line.line.is_err());
                    if is_misunderstood && was_misunderstood {
                        // A file of another kind has millions of such lines, and each one sent
                        // would wake the receiver.
                        more += 1;
                        continue;
                    }
                    let is_line = matches!(parsed, ParsedInput::Line(_));
                    let before = Some(std::mem::take(&mut more))
                        .filter(|more| *more > 0)
                        .map(ParsedInput::Misunderstood);
                    if before
                        .into_iter()
                        .chain([parsed])
                        .any(|input| sender.blocking_send(input).is_err())
                        || !is_line
                    {
                        return;
                    }
                }
            })?;
        Ok(Self(receiver))
    }

    /// Returns the result of the next read. Safe to cancel.
    pub(super) async fn next(&mut self) -> ParsedInput {
        self.0
            .recv()
            .await
            .unwrap_or(ParsedInput::End { is_cut_off: false })
    }
}

fn next(input: &mut impl BufRead, line: &mut LineBuffer) -> io::Result<ParsedInput> {
    line.begin(KEPT_ROOM);
    line.read(input)?;
    if line.bytes.is_empty() && !line.has_end() {
        return Ok(ParsedInput::End { is_cut_off: false });
    }
    let parsed = ParsedLine::parse(&line.bytes);
    // Without a line end, a line of an unknown kind may be the beginning of a longer one.
    if !line.has_end() && !matches!(parsed.line, Ok(Some(_))) {
        return Ok(ParsedInput::End { is_cut_off: true });
    }
    Ok(ParsedInput::Line(Box::new(parsed)))
}
