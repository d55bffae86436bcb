//! Finds out-of-memory messages in a stream of any bytes, in little memory, however long the stream is.
//!
//! A log wraps lines, puts a time or a rank before each, colours them, and mixes what several processes write.
//! So white space and colour are left out, and the grammar says which line goes on with a message: a line that
//! does not is somebody else's, and passed over.

use std::collections::VecDeque;
use std::ops::Range;

use super::grammar::{self, LONGEST_START, Outcome};
use super::message::{Form, Message};

/// A message, and where it stood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub message: Message,
    /// The line that it began in, from 1.
    pub line: u64,
    /// The ranks that said it, where the log names them.
    pub ranks: Vec<u32>,
    /// How often it was said.
    pub count: u64,
}

/// What was found in a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Log {
    /// Distinct messages, in the order of the first of each.
    pub found: Vec<Found>,
    /// Distinct messages beyond those that are kept.
    pub more: u64,
    /// Lines read.
    pub lines: u64,
}

/// A longer line is taken as wrapped here. No message is as long.
const LONGEST_LINE: usize = 1 << 16;
/// A message has some 600 letters.
const LONGEST_MESSAGE: usize = 4096;
/// Lines of others that may come between two of a message.
const PATIENCE: u64 = 200;
/// Messages that may be half read at once.
const MOST_OPEN: usize = 64;
/// Distinct messages that are kept: more of them nobody reads.
const MOST_KEPT: usize = 100;
/// Ranks that are named.
const MOST_RANKS: usize = 1024;

/// A message of which the end has not been seen.
#[derive(Debug)]
struct Open {
    text: String,
    /// What stood in its line where it should have gone on.
    junk: String,
    /// What stood before it in its line, the name of the exception aside.
    prefix: String,
    line: u64,
}

/// What reads a log.
#[derive(Debug, Default)]
pub(super) struct Finder {
    log: Log,
    /// The line that is being read, without white space and colour.
    line: Vec<u8>,
    escape: Escape,
    /// The end of what stood before this line: a message may begin there.
    tail: String,
    /// The number of the line before this one that was not empty, and how that began.
    tail_line: u64,
    head: String,
    open: VecDeque<Open>,
}

/// Where in a terminal's escape sequence we are.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Escape {
    #[default]
    None,
    /// After ESC.
    Begun,
    /// In one that ends with a letter.
    Control,
    /// In one that ends with BEL or ESC \.
    Title,
}

impl Finder {
    /// Takes more of the log.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match (self.escape, byte) {
                (_, b'\n') => {
                    self.escape = Escape::None;
                    self.end_line();
                    self.log.lines += 1;
                }
                (_, 0x1b) => self.escape = Escape::Begun,
                (Escape::Begun, b'[') => self.escape = Escape::Control,
                (Escape::Begun, b']') => self.escape = Escape::Title,
                (Escape::Begun, _) => self.escape = Escape::None,
                (Escape::Control, 0x40..=0x7e) => self.escape = Escape::None,
                (Escape::Title, 0x07) => self.escape = Escape::None,
                (Escape::Control | Escape::Title, _) => {}
                // A bar of progress begins its line anew.
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

    /// The log is over.
    pub(super) fn finish(mut self) -> Log {
        let is_begun = !self.line.is_empty();
        self.end_line();
        self.log.lines += u64::from(is_begun);
        for open in std::mem::take(&mut self.open) {
            self.close(&open);
        }
        // One that was said in full elsewhere says nothing new.
        let (cut, whole): (Vec<Found>, Vec<Found>) = self.log.found.drain(..).partition(|it| it.message.is_cut);
        self.log.found = whole;
        for part in cut {
            match self.log.found.iter_mut().find(|it| part.message.is_part_of(&it.message)) {
                Some(whole) => whole.count += part.count,
                None => self.insert(part),
            }
        }
        // Who catches the error writes of it too. Beside its figures, that says nothing.
        if self.log.found.iter().any(|it| it.message.form != Form::Bare) {
            self.log.found.retain(|it| it.message.form != Form::Bare || it.message.requested.is_some());
        }
        self.log
    }

    fn end_line(&mut self) {
        if self.line.is_empty() {
            return;
        }
        let line = std::mem::take(&mut self.line);
        let text = clean(&line);
        let is_taken = self.continue_one(&text);
        self.begin(&text, is_taken);
        self.line = line;
        self.line.clear();
        let now = self.log.lines;
        while self.open.front().is_some_and(|it| now.saturating_sub(it.line) > PATIENCE) || self.open.len() > MOST_OPEN
        {
            let Some(oldest) = self.open.pop_front() else { break };
            self.close(&oldest);
        }
    }

    /// Gives the line to the first message that goes on with it, if there is one.
    fn continue_one(&mut self, line: &str) -> bool {
        let now = self.log.lines + 1;
        let lines = |open: &Open| now.saturating_sub(open.line);
        for at in 0..self.open.len() {
            let open = &self.open[at];
            // What is left of the number of a line would be taken for a part of the next amount.
            let counted = number_of_cat(&open.prefix).and_then(|it| uncounted(&open.prefix, it, lines(open), line));
            let stripped = strip(&open.prefix, line).unwrap_or(line);
            // Where the exception's name was wrapped, too, what stands before each line is seen from two of them.
            let shared = shared(&self.head, line);
            let ours = shared.filter(|it| strip(it, &open.prefix).is_some()).map(|it| &line[it.len()..]);
            let rests: Vec<&str> = counted.into_iter().chain([stripped]).chain(ours).collect();
            if self.goes_on(at, &rests) {
                return true;
            }
        }
        // Only what is nobody else's: a rank and a host have numbers, too.
        (0..self.open.len()).any(|at| {
            let open = &self.open[at];
            let rest = number_of_grep(&open.prefix).and_then(|it| uncounted(&open.prefix, it, lines(open), line));
            rest.is_some_and(|rest| self.goes_on(at, &[rest]))
        })
    }

    /// Whether this message goes on with one of these, the first that fits; it has it then.
    fn goes_on(&mut self, at: usize, rests: &[&str]) -> bool {
        let open = &mut self.open[at];
        let before = open.text.len();
        let outcome = rests.iter().find_map(|rest| {
            open.text.truncate(before);
            open.text.push_str(cut(rest, LONGEST_MESSAGE));
            Some(grammar::read(&open.text)).filter(|it| *it != Outcome::Stop)
        });
        match outcome.unwrap_or(Outcome::Stop) {
            Outcome::Stop => {
                open.text.truncate(before);
                return false;
            }
            Outcome::More if open.text.len() < LONGEST_MESSAGE => {}
            Outcome::Whole(message) => {
                if let Some(open) = self.open.remove(at) {
                    self.keep(*message, &open);
                }
            }
            Outcome::More => {
                if let Some(open) = self.open.remove(at) {
                    self.close(&open);
                }
            }
        }
        true
    }

    /// Looks for messages that begin in this line, or between the last one and this. Where a message went on with
    /// the line, what has no head is a part of that.
    fn begin(&mut self, line: &str, is_taken: bool) {
        let before = self.tail.len();
        let mut text = std::mem::take(&mut self.tail);
        // What begins with the line before may have what stands before each line in its middle.
        let joins = |it: &&str| grammar::splits(&format!("{text}{}", cut(&line[it.len()..], LONGEST_START)), before);
        let skipped = if grammar::may_begin(&text) { shared(&self.head, line).find(joins) } else { None };
        let skipped = skipped.unwrap_or_default();
        text.push_str(&line[skipped.len()..]);
        let starts = grammar::starts(&text);
        // What stands in the tail as a whole was found with the line before.
        let known = if before == 0 || starts.is_empty() { Vec::new() } else { grammar::starts(&text[..before]) };
        for (at, start) in starts.iter().enumerate() {
            if known.contains(start) || is_taken && start.headless {
                continue;
            }
            // The message that follows in the same line cuts this one off.
            let end = starts.get(at + 1).map_or(text.len(), |it| it.at);
            let start = start.at;
            let open = Open {
                text: cut(&text[start..end], LONGEST_MESSAGE).to_owned(),
                junk: String::new(),
                prefix: if start >= before { prefix(&text[before..start]) } else { skipped.to_owned() },
                line: if start >= before { self.log.lines + 1 } else { self.tail_line },
            };
            self.read(open, end == text.len());
        }
        let keep = text.len().saturating_sub(LONGEST_START);
        let keep = (keep..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
        text[keep..].clone_into(&mut self.tail);
        self.tail_line = self.log.lines + 1;
        cut(line, LONGEST_START).clone_into(&mut self.head);
    }

    /// Reads a message as far as its line goes.
    fn read(&mut self, mut open: Open, may_go_on: bool) {
        match grammar::read(&open.text) {
            Outcome::Whole(message) => self.keep(*message, &open),
            Outcome::More if may_go_on => self.open.push_back(open),
            Outcome::Stop if may_go_on => {
                // Another process wrote into the line. The rest may follow in one of the next.
                let good = valid(&open.text);
                open.junk = open.text.split_off(good);
                if grammar::salvage(&open.text).requested.is_some() {
                    self.open.push_back(open);
                } else {
                    self.close(&open);
                }
            }
            Outcome::More | Outcome::Stop => self.close(&open),
        }
    }

    /// The end of it never came.
    fn close(&mut self, open: &Open) {
        self.keep(grammar::salvage(&format!("{}{}", open.text, open.junk)), open);
    }

    fn keep(&mut self, message: Message, open: &Open) {
        // Words from a text on messages.
        if message.backend.is_none() && message.total.is_none() && message.form != Form::Absurd {
            return;
        }
        let rank = rank(&open.prefix);
        let same = |it: &&mut Found| it.message == message;
        if let Some(known) = self.log.found.iter_mut().find(same) {
            known.count += 1;
            if let Some(rank) = rank.filter(|it| !known.ranks.contains(it) && known.ranks.len() < MOST_RANKS) {
                known.ranks.push(rank);
            }
            return;
        }
        if self.log.found.len() >= MOST_KEPT {
            self.log.more += 1;
            return;
        }
        self.insert(Found { message, line: open.line, ranks: rank.into_iter().collect(), count: 1 });
    }

    fn insert(&mut self, found: Found) {
        // One that was half read for long ends after others that began later.
        let at = self.log.found.partition_point(|it| it.line <= found.line);
        self.log.found.insert(at, found);
    }
}

/// The line as the grammar reads it: no white space of any script, no frame, no `\r\n` written out.
fn clean(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_matches(['│', '|', '┃']);
    // As Docker keeps what a container says.
    let text = text.strip_prefix(r#"{"log":""#).and_then(|it| it.split_once(r#"","stream":"#)).map_or(text, |it| it.0);
    let text = if text.contains('\\') { text.replace("\\n", "").replace("\\r", "") } else { text.to_owned() };
    if text.is_ascii() { text } else { text.chars().filter(|it| !it.is_whitespace()).collect() }
}

/// No more than so many bytes of it.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or_default()]
}

/// What a log puts before each line: what stands before the message, without the name of the exception.
fn prefix(before: &str) -> String {
    const LONGEST: usize = 256;
    const NAMES: [&str; 5] = [
        "torch.cuda.OutOfMemoryError:",
        "torch.OutOfMemoryError:",
        "torch.AcceleratorError:",
        "OutOfMemoryError:",
        "RuntimeError:",
    ];
    let before = NAMES.iter().find_map(|it| before.strip_suffix(it)).unwrap_or(before);
    if before.len() > LONGEST { String::new() } else { before.to_owned() }
}

/// The line without that prefix, which it has, but for another time of day.
fn strip<'a>(prefix: &str, line: &'a str) -> Option<&'a str> {
    if prefix.is_empty() {
        return None;
    }
    let start = line.get(..prefix.len())?;
    let of_time = |at: usize| {
        let is_part = |it: &u8| it.is_ascii_digit() || b":.,-/+TZ".contains(it);
        let begin = prefix.as_bytes()[..at].iter().rposition(|it| !is_part(it)).map_or(0, |it| it + 1);
        let end = prefix.as_bytes()[at..].iter().position(|it| !is_part(it)).map_or(prefix.len(), |it| at + it);
        prefix.as_bytes()[begin..end].windows(3).any(|it| matches!(it, [b'0'..=b'9', b':', b'0'..=b'9']))
    };
    // A container's log says whether a part of a line follows, or was the last of it.
    let is_part = prefix.ends_with("stderrP") || prefix.ends_with("stdoutP");
    let fits = |(at, (ours, theirs)): (usize, (u8, u8))| {
        ours == theirs
            || ours.is_ascii_digit() && theirs.is_ascii_digit() && of_time(at)
            || is_part && at + 1 == prefix.len() && theirs == b'F'
    };
    let fits = start.len() == prefix.len() && prefix.bytes().zip(start.bytes()).enumerate().all(fits);
    fits.then(|| &line[prefix.len()..])
}

/// The line without a prefix in which this is a number that grows by one with each line.
fn uncounted<'a>(prefix: &str, number: Range<usize>, lines: u64, line: &'a str) -> Option<&'a str> {
    let number_now = prefix[number.clone()].parse::<u64>().ok()?.checked_add(lines)?;
    line.strip_prefix(prefix.get(..number.start)?)?
        .strip_prefix(&number_now.to_string())?
        .strip_prefix(&prefix[number.end..])
}

/// The number that `cat -n` puts before all else: `9`, `9[rank0]:`.
fn number_of_cat(prefix: &str) -> Option<Range<usize>> {
    let end = prefix.find(|it: char| !it.is_ascii_digit()).unwrap_or(prefix.len());
    let ends = |it: char| it.is_alphabetic() || "[(<".contains(it);
    (end > 0 && prefix[end..].chars().next().is_none_or(ends)).then_some(0..end)
}

/// The number that `grep -n` puts there: `98:`, `run.err:98:`. It may be a rank or a host's, too.
fn number_of_grep(prefix: &str) -> Option<Range<usize>> {
    let before = prefix.strip_suffix(':')?;
    let begin = before.trim_end_matches(|it: char| it.is_ascii_digit()).len();
    (begin < before.len()).then_some(begin..before.len())
}

/// What two lines begin with, but for another time of day: the longest first, and some shorter ones, as what follows may
/// begin alike.
fn shared<'a>(before: &str, line: &'a str) -> impl Iterator<Item = &'a str> + Clone {
    const SHORTER: usize = 16;
    let alike = |(ours, theirs): &(u8, u8)| ours == theirs || ours.is_ascii_digit() && theirs.is_ascii_digit();
    let most = before.bytes().zip(line.bytes()).take_while(alike).count();
    let before = before.to_owned();
    (1..=most).rev().take(SHORTER).filter_map(move |length| {
        strip(before.get(..length)?, line)?;
        line.get(..length)
    })
}

/// How much of the text a message can begin with.
fn valid(text: &str) -> usize {
    let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    // What goes on from a start that does not, does not either.
    let good = ends.partition_point(|end| !matches!(grammar::read(&text[..*end]), Outcome::Stop));
    good.checked_sub(1).map_or(0, |at| ends[at])
}

/// The rank in `[rank3]:`, in torchrun's `[default3]:`, or in the `3:` of `srun --label`.
fn rank(prefix: &str) -> Option<u32> {
    let tag = prefix.strip_suffix(':').filter(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit()));
    let tagged = || {
        let (_, rest) = prefix.rsplit_once("[rank").or_else(|| prefix.rsplit_once("[default"))?;
        Some(rest.split_once(']')?.0)
    };
    tag.or_else(tagged)?.parse().ok()
}
