//! The lines that a command of `--via` writes before those of the agent, as a `.bashrc` does.

use std::time::Duration;

use tokio::time::Instant;

use crate::base::text::Text;
use crate::source::limits;
use crate::source::opening::{Ending, Opening, OpeningLine};
use crate::source::schedule::NextTry;
use crate::source::ssh_messages::waits_for_user;

/// The most bytes that are skipped.
const MOST_BYTES: usize = 256 << 10;

/// How long after the first skipped line the agent may take to write.
const PATIENCE: Duration = Duration::from_secs(10);

/// The beginning of the first line of an agent. A line end may be missing before it.
const FIRST_LINE: &[u8] = b"{\"kind\":\"full\"";

/// The lines that were skipped.
#[derive(Debug, Default)]
pub(super) struct LeadingLines {
    /// The sentence about the first line, and when it came; `None` before.
    first: Option<(String, Instant)>,
    bytes: usize,
}

impl LeadingLines {
    fn not_understood(&self) -> Ending {
        let why = self.first.as_ref().map_or("it has no line", |(why, _)| why);
        Ending::new(format!("the command: {why}"))
    }
}

impl Opening for LeadingLines {
    fn take<'a>(&mut self, line: &'a [u8]) -> OpeningLine<'a> {
        let is_object = line.first() == Some(&b'{');
        let place = is_object.then_some(0).or_else(|| {
            line.windows(FIRST_LINE.len())
                .position(|part| part == FIRST_LINE)
        });
        if let Some(place) = place {
            self.first = None;
            return OpeningLine::Agent(&line[place..]);
        }
        if self.first.is_none() && !line.trim_ascii().is_empty() {
            let why = limits::parse(line).err().unwrap_or_default();
            self.first = Some((why, Instant::now()));
        }
        self.bytes += line.len() + 1;
        if self.bytes > MOST_BYTES {
            return OpeningLine::Over(self.not_understood());
        }
        OpeningLine::Skipped
    }

    fn deadline(&self) -> Option<Instant> {
        self.first.as_ref().map(|(_, since)| *since + PATIENCE)
    }

    fn timed_out(&self) -> Ending {
        self.not_understood()
    }

    fn ended(&self, last_lines: &[Text]) -> Ending {
        match last_lines.last() {
            None if self.first.is_some() => self.not_understood(),
            None => Ending::new("the command ended without a word"),
            Some(line) => Ending {
                next: if waits_for_user(line) {
                    NextTry::OnRequest
                } else {
                    NextTry::ByItself
                },
                ..Ending::new(format!("the command ended: {line}"))
            },
        }
    }
}
