//! Finds out-of-memory messages in a stream of bytes of any length, with bounded memory.
//!
//! Logs wrap lines, put a time or a rank before each, colour them, and interleave the output of
//! several processes. So white space and colours are dropped, and the grammar decides which line
//! continues a message. Other lines are ignored.

use std::collections::VecDeque;
use std::ops::Range;

use super::grammar::{self, LONGEST_START, ParseOutcome};
use super::message::{MessageForm, OomMessage};

/// The number of a process in a job, as a log names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogRank {
    /// Its number among all processes of the job.
    Global(u32),
    /// Its number among the processes that torchrun started on its node.
    Local(u32),
}

impl LogRank {
    pub(super) fn global(ranks: &[Self]) -> Vec<u32> {
        let global = |rank: &Self| {
            if let Self::Global(number) = rank {
                Some(*number)
            } else {
                None
            }
        };
        ranks.iter().filter_map(global).collect()
    }

    pub(super) fn local(ranks: &[Self]) -> Vec<u32> {
        let local = |rank: &Self| {
            if let Self::Local(number) = rank {
                Some(*number)
            } else {
                None
            }
        };
        ranks.iter().filter_map(local).collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundMessage {
    pub message: OomMessage,
    /// The line of its start, counted from 1.
    pub line: u64,
    /// The line of the start of its last copy.
    pub last_line: u64,
    /// The ranks that wrote the message, if the log names them.
    pub ranks: Vec<LogRank>,
    pub count: u64,
}

impl FoundMessage {
    /// Whether its first and its last copy are in these lines.
    pub(super) fn is_in(&self, lines: &[u64]) -> bool {
        lines.contains(&self.line) && lines.contains(&self.last_line)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FoundMessages {
    /// The different messages, in the order of their first lines.
    pub found: Vec<FoundMessage>,
    pub left_out: u64,
    pub lines: u64,
}

/// The most bytes of a line: a longer line is split. No message is as long.
const LONGEST_LINE: usize = 1 << 16;
/// The most bytes of a message. PyTorch's have some 600.
const LONGEST_MESSAGE: usize = 4096;
/// The most lines after the start of a message in which it may continue.
const MOST_LINES_BETWEEN: u64 = 200;
/// The most messages whose end is awaited at the same time.
const MOST_PARTIAL: usize = 64;
const MOST_KEPT: usize = 100;
const MOST_RANKS: usize = 1024;

/// A message whose end has not been seen.
#[derive(Debug)]
struct PartialMessage {
    text: String,
    /// The rest of the message's first line, from the first text that is not part of the message.
    junk: String,
    /// The text before the message in its first line, without the name of the exception.
    prefix: String,
    line: u64,
}

#[derive(Debug, Default)]
pub(super) struct MessageFinder {
    log: FoundMessages,
    /// The current line, without white space and colours.
    line: Vec<u8>,
    escape: EscapeState,
    /// The end of the text before this line, in which a message may start.
    tail: String,
    /// The number of the last line that was not empty.
    tail_line: u64,
    head: String,
    partial: VecDeque<PartialMessage>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum EscapeState {
    #[default]
    Outside,
    Started,
    /// In a sequence that ends with a letter.
    Control,
    /// In a sequence that ends with BEL or ESC \.
    Title,
}

impl MessageFinder {
    pub(super) fn scan(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match (self.escape, byte) {
                (_, b'\n') => {
                    self.escape = EscapeState::Outside;
                    self.end_line();
                    self.log.lines += 1;
                }
                (_, 0x1b) => self.escape = EscapeState::Started,
                (EscapeState::Started, b'[') => self.escape = EscapeState::Control,
                (EscapeState::Started, b']') => self.escape = EscapeState::Title,
                (EscapeState::Started, _)
                | (EscapeState::Control, 0x40..=0x7e)
                | (EscapeState::Title, 0x07) => {
                    self.escape = EscapeState::Outside;
                }
                (EscapeState::Control | EscapeState::Title, _) => {}
                // A progress bar starts its line again.
                (_, b'\r') => self.end_line(),
                (_, byte) if byte.is_ascii_whitespace() || byte.is_ascii_control() => {}
                (_, byte) => {
                    self.line.push(*byte);
                    if self.line.len() >= LONGEST_LINE {
                        self.end_line();
                    }
                }
            }
        }
    }

    pub(super) fn finish(mut self) -> FoundMessages {
        let has_last_line = !self.line.is_empty();
        self.end_line();
        self.log.lines += u64::from(has_last_line);
        for partial in std::mem::take(&mut self.partial) {
            self.close(&partial);
        }
        // A cut copy of a complete message adds nothing but its count.
        let (cut, complete): (Vec<FoundMessage>, Vec<FoundMessage>) = self
            .log
            .found
            .drain(..)
            .partition(|found| found.message.is_cut);
        self.log.found = complete;
        for part in cut {
            match self
                .log
                .found
                .iter_mut()
                .find(|whole| part.message.is_part_of(&whole.message))
            {
                Some(whole) => {
                    whole.count += part.count;
                    whole.last_line = whole.last_line.max(part.last_line);
                }
                None => self.insert(part),
            }
        }
        self.log
    }

    fn end_line(&mut self) {
        if self.line.is_empty() {
            return;
        }
        let line = std::mem::take(&mut self.line);
        let text = clean(&line);
        let is_taken = self.continue_partial(&text);
        self.find_starts(&text, is_taken);
        self.line = line;
        self.line.clear();
        let now = self.log.lines;
        let is_old =
            |partial: &PartialMessage| now.saturating_sub(partial.line) > MOST_LINES_BETWEEN;
        while self.partial.front().is_some_and(is_old) || self.partial.len() > MOST_PARTIAL {
            let Some(oldest) = self.partial.pop_front() else {
                break;
            };
            self.close(&oldest);
        }
    }

    /// Appends the line to the first partial message that it continues. Returns whether there is
    /// one.
    fn continue_partial(&mut self, line: &str) -> bool {
        let now = self.log.lines + 1;
        for place in 0..self.partial.len() {
            let partial = &self.partial[place];
            // The line number is removed first: its last digits could be taken for the start of the
            // next amount.
            let uncounted = uncounted(partial, number_of_cat, now, line);
            let stripped = strip(&partial.prefix, line).unwrap_or(line);
            // If the name of the exception was wrapped, too, the prefix is what two lines have in
            // common.
            let shared = shared(&self.head, line)
                .filter(|shared| strip(shared, &partial.prefix).is_some())
                .map(|shared| &line[shared.len()..]);
            let rests: Vec<&str> = uncounted
                .into_iter()
                .chain([stripped])
                .chain(shared)
                .collect();
            if self.continues(place, &rests) {
                return true;
            }
        }
        // The line numbers of `grep -n` come last, because they may be the number of a rank or
        // host.
        (0..self.partial.len()).any(|place| {
            let rest = uncounted(&self.partial[place], number_of_grep, now, line);
            rest.is_some_and(|rest| self.continues(place, &[rest]))
        })
    }

    /// Appends to a partial message the first of `rests` that continues it. Returns whether there
    /// is one.
    fn continues(&mut self, place: usize, rests: &[&str]) -> bool {
        let partial = &mut self.partial[place];
        let before = partial.text.len();
        let outcome = rests.iter().find_map(|rest| {
            partial.text.truncate(before);
            partial.text.push_str(cut(rest, LONGEST_MESSAGE));
            Some(grammar::parse(&partial.text)).filter(|outcome| *outcome != ParseOutcome::Invalid)
        });
        match outcome.unwrap_or(ParseOutcome::Invalid) {
            ParseOutcome::Invalid => {
                partial.text.truncate(before);
                return false;
            }
            ParseOutcome::Incomplete if partial.text.len() < LONGEST_MESSAGE => {}
            ParseOutcome::Complete(message) => {
                if let Some(partial) = self.partial.remove(place) {
                    self.keep(*message, &partial);
                }
            }
            ParseOutcome::Incomplete => {
                if let Some(partial) = self.partial.remove(place) {
                    self.close(&partial);
                }
            }
        }
        true
    }

    /// Finds messages that start in this line, or at the end of the last line. `is_taken` says that
    /// the line continues a message, so that a headless start in it is a part of that message.
    fn find_starts(&mut self, line: &str, is_taken: bool) {
        let before = self.tail.len();
        let mut text = std::mem::take(&mut self.tail);
        // A start that was wrapped may have the prefix of the line in its middle.
        let joins = |prefix: &&str| {
            grammar::splits(
                &format!("{text}{}", cut(&line[prefix.len()..], LONGEST_START)),
                before,
            )
        };
        let skipped = if grammar::may_begin(&text) {
            shared(&self.head, line).find(joins)
        } else {
            None
        };
        let skipped = skipped.unwrap_or_default();
        text.push_str(&line[skipped.len()..]);
        let starts = grammar::starts(&text);
        // A start that is complete in the tail was found with the last line.
        let known = if before == 0 || starts.is_empty() {
            Vec::new()
        } else {
            grammar::starts(&text[..before])
        };
        for (place, start) in starts.iter().enumerate() {
            if known.contains(start) || is_taken && start.is_headless {
                continue;
            }
            // The next message in the line ends this message.
            let end = starts.get(place + 1).map_or(text.len(), |next| next.offset);
            let start = start.offset;
            let is_in_line = start >= before;
            let partial = PartialMessage {
                text: cut(&text[start..end], LONGEST_MESSAGE).to_owned(),
                junk: String::new(),
                prefix: if is_in_line {
                    prefix(&text[before..start])
                } else {
                    skipped.to_owned()
                },
                line: if is_in_line {
                    self.log.lines + 1
                } else {
                    self.tail_line
                },
            };
            self.read_start(partial, end == text.len());
        }
        let keep = text.len().saturating_sub(LONGEST_START);
        let keep = (keep..=text.len())
            .find(|offset| text.is_char_boundary(*offset))
            .unwrap_or(text.len());
        text[keep..].clone_into(&mut self.tail);
        self.tail_line = self.log.lines + 1;
        cut(line, LONGEST_START).clone_into(&mut self.head);
    }

    /// Parses a message up to the end of its first line.
    fn read_start(&mut self, mut partial: PartialMessage, may_continue: bool) {
        match grammar::parse(&partial.text) {
            ParseOutcome::Complete(message) => self.keep(*message, &partial),
            ParseOutcome::Incomplete if may_continue => self.partial.push_back(partial),
            ParseOutcome::Invalid if may_continue => {
                // Another process wrote into the line. The rest may follow in one of the next
                // lines.
                partial.junk = partial.text.split_off(valid_length(&partial.text));
                if grammar::salvage(&partial.text).requested.is_some() {
                    self.partial.push_back(partial);
                } else {
                    self.close(&partial);
                }
            }
            ParseOutcome::Incomplete | ParseOutcome::Invalid => self.close(&partial),
        }
    }

    fn close(&mut self, partial: &PartialMessage) {
        self.keep(
            grammar::salvage(&format!("{}{}", partial.text, partial.junk)),
            partial,
        );
    }

    fn keep(&mut self, message: OomMessage, partial: &PartialMessage) {
        // Messages without figures are known errors of their own, and other text has no figures
        // either.
        if message.form == MessageForm::Bare && message.requested.is_none() {
            return;
        }
        if message.backend.is_none()
            && message.total.is_none()
            && message.form != MessageForm::Absurd
        {
            return;
        }
        let rank = rank(&partial.prefix);
        if let Some(known) = self
            .log
            .found
            .iter_mut()
            .find(|found| found.message == message)
        {
            known.count += 1;
            known.last_line = known.last_line.max(partial.line);
            if let Some(rank) =
                rank.filter(|rank| !known.ranks.contains(rank) && known.ranks.len() < MOST_RANKS)
            {
                known.ranks.push(rank);
            }
        } else if self.log.found.len() >= MOST_KEPT {
            self.log.left_out += 1;
        } else {
            let (line, ranks) = (partial.line, rank.into_iter().collect());
            self.insert(FoundMessage {
                message,
                line,
                last_line: line,
                ranks,
                count: 1,
            });
        }
    }

    fn insert(&mut self, found: FoundMessage) {
        // A message that was partial for long is kept after messages that started later.
        let place = self
            .log
            .found
            .partition_point(|earlier| earlier.line <= found.line);
        self.log.found.insert(place, found);
    }
}

/// Returns the line without white space of any script, frames and escaped line ends.
fn clean(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_matches(['│', '|', '┃']);
    // Docker's log format.
    let inner = text
        .strip_prefix(r#"{"log":""#)
        .and_then(|rest| rest.split_once(r#"","stream":"#));
    let text = inner.map_or(text, |(log, _)| log);
    let text = if text.contains("&nbsp;") {
        &text.replace("&nbsp;", "")
    } else {
        text
    };
    let text = if text.contains('\\') {
        text.replace("\\n", "").replace("\\r", "")
    } else {
        text.to_owned()
    };
    if text.is_ascii() {
        text
    } else {
        text.chars()
            .filter(|character| !character.is_whitespace())
            .collect()
    }
}

fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len()))
        .rev()
        .find(|offset| text.is_char_boundary(*offset));
    &text[..end.unwrap_or_default()]
}

/// Returns the prefix of the log's lines: the text before a message, without the name of the
/// exception. Empty if it is too long for a prefix.
fn prefix(before: &str) -> String {
    const LONGEST: usize = 256;
    const EXCEPTIONS: [&str; 5] = [
        "torch.cuda.OutOfMemoryError:",
        "torch.OutOfMemoryError:",
        "torch.AcceleratorError:",
        "OutOfMemoryError:",
        "RuntimeError:",
    ];
    let before = EXCEPTIONS
        .iter()
        .find_map(|name| before.strip_suffix(name))
        .unwrap_or(before);
    if before.len() > LONGEST {
        String::new()
    } else {
        before.to_owned()
    }
}

/// Removes a prefix from a line. A time in the line may differ from that in the prefix. `None` if
/// the line has another prefix.
fn strip<'a>(prefix: &str, line: &'a str) -> Option<&'a str> {
    if prefix.is_empty() {
        return None;
    }
    let start = line.get(..prefix.len())?;
    let is_in_time = |offset: usize| {
        let is_part = |byte: &u8| byte.is_ascii_digit() || b":.,-/+TZ".contains(byte);
        let begin = prefix.as_bytes()[..offset]
            .iter()
            .rposition(|byte| !is_part(byte))
            .map_or(0, |before| before + 1);
        let end = prefix.as_bytes()[offset..]
            .iter()
            .position(|byte| !is_part(byte))
            .map_or(prefix.len(), |end| offset + end);
        prefix.as_bytes()[begin..end]
            .windows(3)
            .any(|bytes| matches!(bytes, [b'0'..=b'9', b':', b'0'..=b'9']))
    };
    // Kubernetes marks a line that was split with P (partial), and its last part with F (full).
    let is_split = prefix.ends_with("stderrP") || prefix.ends_with("stdoutP");
    let fits = |(offset, (ours, theirs)): (usize, (u8, u8))| {
        ours == theirs
            || ours.is_ascii_digit() && theirs.is_ascii_digit() && is_in_time(offset)
            || is_split && offset + 1 == prefix.len() && theirs == b'F'
    };
    prefix
        .bytes()
        .zip(start.bytes())
        .enumerate()
        .all(fits)
        .then(|| &line[prefix.len()..])
}

/// Removes the prefix of a message from line `now`, where the number that `find` finds in it is
/// higher by the lines since the start of the message. `None` if the line has another prefix.
fn uncounted<'a>(
    PartialMessage {
        prefix,
        line: start,
        ..
    }: &PartialMessage,
    find: fn(&str) -> Option<Range<usize>>,
    now: u64,
    line: &'a str,
) -> Option<&'a str> {
    let number = find(prefix)?;
    let number_now = prefix[number.clone()]
        .parse::<u64>()
        .ok()?
        .checked_add(now.saturating_sub(*start))?;
    line.strip_prefix(prefix.get(..number.start)?)?
        .strip_prefix(&number_now.to_string())?
        .strip_prefix(&prefix[number.end..])
}

/// Returns the place of the line number of `cat -n`, the first part of the prefix: `9`,
/// `9[rank0]:`.
fn number_of_cat(prefix: &str) -> Option<Range<usize>> {
    let end = prefix
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(prefix.len());
    let may_follow = |character: char| character.is_alphabetic() || "[(<".contains(character);
    (end > 0 && prefix[end..].chars().next().is_none_or(may_follow)).then_some(0..end)
}

/// Returns the place of the line number of `grep -n`: `98:`, `run.err:98:`. It may also be the
/// number of a rank or host.
fn number_of_grep(prefix: &str) -> Option<Range<usize>> {
    let before = prefix.strip_suffix(':')?;
    let begin = before
        .trim_end_matches(|character: char| character.is_ascii_digit())
        .len();
    (begin < before.len()).then_some(begin..before.len())
}

/// Returns the text at the start of two lines that is equal but for the time of day: the longest
/// first, then some shorter ones, because the rests of the lines may also start with equal text.
fn shared<'a>(before: &str, line: &'a str) -> impl Iterator<Item = &'a str> + Clone {
    const SHORTER: usize = 16;
    let is_alike = |(ours, theirs): &(u8, u8)| {
        ours == theirs || ours.is_ascii_digit() && theirs.is_ascii_digit()
    };
    let most = before
        .bytes()
        .zip(line.bytes())
        .take_while(is_alike)
        .count();
    let before = before.to_owned();
    (1..=most).rev().take(SHORTER).filter_map(move |length| {
        strip(before.get(..length)?, line)?;
        line.get(..length)
    })
}

/// Returns the length of the longest start of the text that is a start of a message.
fn valid_length(text: &str) -> usize {
    let ends: Vec<usize> = text.char_indices().map(|(offset, _)| offset).collect();
    // If a text is no start of a message, no longer text is.
    let valid = ends.partition_point(|end| grammar::parse(&text[..*end]) != ParseOutcome::Invalid);
    valid.checked_sub(1).map_or(0, |place| ends[place])
}

/// Returns the rank in `[rank3]:` or in the `3:` of `srun --label`, or the local rank in torchrun's
/// `[default3]:`.
pub(super) fn rank(prefix: &str) -> Option<LogRank> {
    let is_number =
        |label: &&str| !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_digit());
    let label = prefix.strip_suffix(':').filter(is_number);
    let number = |start: &str| prefix.rsplit_once(start)?.1.split_once(']')?.0.parse().ok();
    let global = label
        .and_then(|label| label.parse().ok())
        .or_else(|| number("[rank"));
    global
        .map(LogRank::Global)
        .or_else(|| number("[default").map(LogRank::Local))
}
