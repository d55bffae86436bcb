//! Separates the terminal's replies from keys: the background colour, and the end mark after it.
//!
//! gputop asks for the background with OSC 11, and then for the device attributes (DA1). Terminals
//! answer in order, so the second reply is the end mark of the first, also where the first is
//! missing. Replies come between keys, late, in pieces, damaged or cut off. They look like keys:
//! `ESC ] 1 1 ;` is Alt-] and four letters to a reader of keys.
//!
//! Nothing here reads or waits. A byte may be a key that a person typed if it was read alone; the
//! bytes of a reply arrive together or in a few pieces.

use std::time::Duration;

use tokio::time::Instant;

use crate::base::terminal::Background;

/// The bytes that ask for the background colour, and for the end mark.
pub(super) const QUESTION: &str = "\x1b]11;?\x1b\\\x1b[c";

/// How long the question is open, and how long a byte that may be a key is held back.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long the rest of a reply may take. It holds no key back, so it may be longer.
const PATIENCE_FOR_REST: Duration = Duration::from_secs(5);

/// The longest reply on a colour, without `ESC ]`, and a length that no device attributes have.
const LONGEST: usize = 30;

const ESC: u8 = 0x1b;
const BEL: u8 = 0x07;
/// The string terminator in one byte.
const ST: u8 = 0x9c;

/// Something that the terminal sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TerminalInput {
    /// Bytes of keys, of the mouse or of a paste. `ESC` at their end is the Esc key.
    Keys(Vec<u8>),
    /// The reply to the question for the background.
    Background(Background),
    /// The reply to the question after it.
    EndMark,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InputState {
    Keys,
    /// After `ESC`.
    Escape,
    /// After `ESC [`, or after `[` or `]` that a person may have typed after Esc.
    Bracket,
    /// After `ESC [ ?`: only replies begin so.
    Report,
    /// After `ESC ]`: only replies begin so.
    Osc,
    /// After `ESC` in an OSC sequence, which `\` would end.
    OscEscape,
}

/// The state between two reads.
#[derive(Debug)]
pub(super) struct ReplyFilter {
    state: InputState,
    /// The bytes since the last key that may still be keys.
    held: Vec<u8>,
    /// Whether the last byte of `held` was read alone, so that a person may have typed it.
    is_typed: bool,
    /// The bytes of the reply so far.
    reply: Vec<u8>,
    last_read: Option<Instant>,
    asked: Option<Instant>,
    has_end_mark: bool,
    /// When `ESC` was passed on as the Esc key, if nothing was passed on since.
    passed_escape: Option<Instant>,
    /// The bytes to pass on.
    keys: Vec<u8>,
    inputs: Vec<TerminalInput>,
}

/// Where a byte is in what was read at once.
#[derive(Debug, Clone, Copy)]
struct Place {
    is_first: bool,
    is_alone: bool,
}

impl ReplyFilter {
    pub(super) fn new() -> Self {
        Self {
            state: InputState::Keys,
            held: Vec::new(),
            is_typed: false,
            reply: Vec::new(),
            last_read: None,
            asked: None,
            has_end_mark: false,
            passed_escape: None,
            keys: Vec::new(),
            inputs: Vec::new(),
        }
    }

    /// Expects replies from now on.
    pub(super) fn ask(&mut self, now: Instant) {
        (self.asked, self.has_end_mark) = (Some(now), false);
    }

    /// Whether the end mark may still come.
    pub(super) fn is_open(&self, now: Instant) -> bool {
        !self.has_end_mark
            && self
                .asked
                .is_some_and(|asked| now.saturating_duration_since(asked) < PATIENCE)
    }

    /// Whether the terminal has not answered, and may never.
    fn is_unanswered(&self) -> bool {
        self.asked.is_some() && !self.has_end_mark
    }

    /// When [`Self::expire`] is to be called unless bytes are read before; `None` while nothing is
    /// held back.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let patience = match self.state {
            InputState::Keys => return None,
            InputState::Escape | InputState::Bracket => PATIENCE,
            InputState::Osc | InputState::OscEscape | InputState::Report => PATIENCE_FOR_REST,
        };
        self.last_read.map(|last_read| last_read + patience)
    }

    /// Gives up waiting for the rest of a reply.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<TerminalInput> {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            match self.state {
                InputState::Osc | InputState::OscEscape => self.end_colour(),
                InputState::Report => self.reply.clear(),
                InputState::Keys | InputState::Escape | InputState::Bracket => self.release(now),
            }
            self.state = InputState::Keys;
            self.flush();
        }
        std::mem::take(&mut self.inputs)
    }

    /// Takes bytes that were read at once.
    pub(super) fn take(&mut self, bytes: &[u8], now: Instant) -> Vec<TerminalInput> {
        let mut rest = bytes;
        if self.state == InputState::Keys
            && let Some((state, length)) = self.headless_reply(bytes, now)
        {
            self.state = state;
            rest = &bytes[length..];
        }
        for (at, byte) in rest.iter().enumerate() {
            let place = Place {
                is_first: at == 0,
                is_alone: bytes.len() == 1,
            };
            self.step(*byte, place, now);
        }
        self.last_read = Some(now);
        if self.state == InputState::Escape && !self.is_open(now) {
            self.release(now);
            self.state = InputState::Keys;
        }
        self.flush();
        std::mem::take(&mut self.inputs)
    }

    /// Recognises a reply whose `ESC` is lost, or was passed on as the Esc key. Returns the state
    /// after its first bytes, and their number.
    fn headless_reply(&self, bytes: &[u8], now: Instant) -> Option<(InputState, usize)> {
        let follows_escape = self
            .passed_escape
            .is_some_and(|passed| now.saturating_duration_since(passed) < PATIENCE);
        match bytes {
            [b']', b'1', b'1', b';', ..] => Some((InputState::Osc, 1)),
            [b']', b'1', ..] if follows_escape => Some((InputState::Osc, 1)),
            [b'[', b'?', b'0'..=b'9', ..] => Some((InputState::Report, 2)),
            _ => None,
        }
    }

    fn step(&mut self, byte: u8, place: Place, now: Instant) {
        match self.state {
            InputState::Keys => self.key(byte, place, now),
            InputState::Escape => self.after_escape(byte, place, now),
            InputState::Bracket => self.after_bracket(byte, place, now),
            InputState::Report => self.in_report(byte, place, now),
            InputState::Osc => self.in_osc(byte, place, now),
            InputState::OscEscape => {
                self.end_colour();
                if byte == b'\\' {
                    self.state = InputState::Keys;
                } else {
                    // The reply was cut off, and another sequence or the Esc key came after it.
                    (self.state, self.held) = (InputState::Escape, vec![ESC]);
                    self.after_escape(byte, place, now);
                }
            }
        }
    }

    fn key(&mut self, byte: u8, place: Place, now: Instant) {
        let may_belong_to_escape = self.is_unanswered()
            && place.is_alone
            && self
                .passed_escape
                .take()
                .is_some_and(|passed| now.saturating_duration_since(passed) < PATIENCE);
        match byte {
            ESC => (self.state, self.held) = (InputState::Escape, vec![ESC]),
            b'[' | b']' if may_belong_to_escape => {
                (self.state, self.held, self.is_typed) = (InputState::Bracket, vec![byte], true);
            }
            _ => self.keys.push(byte),
        }
        if byte != ESC {
            self.passed_escape = None;
        }
    }

    fn after_escape(&mut self, byte: u8, place: Place, now: Instant) {
        let is_new_read = place.is_first;
        match byte {
            b'[' | b']' if is_new_read && place.is_alone => {
                self.held.push(byte);
                (self.state, self.is_typed) = (InputState::Bracket, true);
            }
            b']' => {
                self.held.clear();
                self.state = InputState::Osc;
            }
            b'[' => {
                self.held.push(byte);
                (self.state, self.is_typed) = (InputState::Bracket, false);
            }
            ESC => {
                // Two keys: together they would be one to the reader of keys.
                self.release(now);
                self.held.push(ESC);
            }
            // A function key, or a letter with Alt.
            _ if !is_new_read || (byte == b'O' && !place.is_alone) => {
                self.keys.append(&mut self.held);
                self.keys.push(byte);
                self.state = InputState::Keys;
            }
            _ => {
                self.release(now);
                self.state = InputState::Keys;
                self.key(byte, place, now);
            }
        }
    }

    fn after_bracket(&mut self, byte: u8, place: Place, now: Instant) {
        let is_colour = self.held.last() == Some(&b']');
        if is_colour && byte.is_ascii_digit() {
            self.held.clear();
            self.state = InputState::Osc;
            self.in_osc(byte, place, now);
        } else if !is_colour && byte == b'?' {
            self.held.clear();
            self.state = InputState::Report;
        } else {
            self.release(now);
            self.state = InputState::Keys;
            self.key(byte, place, now);
        }
    }

    /// Device attributes end with `c`; other reports are not asked for.
    fn in_report(&mut self, byte: u8, place: Place, now: Instant) {
        let is_typed = place.is_alone && self.reply.len() >= LONGEST;
        match byte {
            b'c' => {
                self.reply.clear();
                self.state = InputState::Keys;
                let is_awaited = self.is_unanswered();
                self.has_end_mark = true;
                self.flush();
                if is_awaited {
                    self.inputs.push(TerminalInput::EndMark);
                }
            }
            ESC => {
                self.reply.clear();
                (self.state, self.held) = (InputState::Escape, vec![ESC]);
            }
            b' '..=b'?' if !is_typed => self.store(byte),
            _ if place.is_alone => {
                self.reply.clear();
                self.state = InputState::Keys;
                self.key(byte, place, now);
            }
            b'@'..=b'~' => {
                self.reply.clear();
                self.state = InputState::Keys;
            }
            _ => self.store(byte),
        }
    }

    fn in_osc(&mut self, byte: u8, place: Place, now: Instant) {
        let is_of_colour = self.reply.len() < LONGEST
            && (byte.is_ascii_hexdigit() || b"rgba:;/#?".contains(&byte));
        match byte {
            BEL | ST => {
                self.end_colour();
                self.state = InputState::Keys;
            }
            ESC => self.state = InputState::OscEscape,
            _ if place.is_alone && !is_of_colour => {
                self.end_colour();
                self.state = InputState::Keys;
                self.key(byte, place, now);
            }
            _ => self.store(byte),
        }
    }

    fn store(&mut self, byte: u8) {
        if self.reply.len() < LONGEST {
            self.reply.push(byte);
        }
    }

    /// Reports the colour of the reply that was read, if it is one and was asked for.
    fn end_colour(&mut self) {
        let background = background(&self.reply).filter(|_| self.asked.is_some());
        self.reply.clear();
        if let Some(background) = background {
            self.flush();
            self.inputs.push(TerminalInput::Background(background));
        }
    }

    /// Passes on what was held back: it is keys.
    fn release(&mut self, now: Instant) {
        let is_sequence = self.held.len() > 1 && !self.is_typed;
        for byte in std::mem::take(&mut self.held) {
            self.keys.push(byte);
            let is_key = byte == ESC && !is_sequence;
            self.passed_escape = is_key.then_some(now);
            if is_key {
                self.flush();
            }
        }
        self.is_typed = false;
    }

    fn flush(&mut self) {
        if !self.keys.is_empty() {
            let keys = std::mem::take(&mut self.keys);
            self.inputs.push(TerminalInput::Keys(keys));
        }
    }
}

/// Returns the background that a reply without `ESC ]` and its end reports: `11;rgb:RRRR/GGGG/BBBB`
/// with one to four hexadecimal digits each, `11;rgba:…` or `11;#RRGGBB`.
fn background(reply: &[u8]) -> Option<Background> {
    let colour = str::from_utf8(reply).ok()?.strip_prefix("11;")?;
    let share = |digits: &str| {
        let is_number = (1..=4).contains(&digits.len())
            && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let value = u32::from_str_radix(digits, 16).ok().filter(|_| is_number)?;
        Some(f64::from(value) / f64::from((1_u32 << (4 * digits.len())) - 1))
    };
    let parts: Vec<&str> = if let Some(digits) = colour.strip_prefix('#') {
        let length = digits.len() / 3;
        if !digits.is_ascii() || length == 0 || digits.len() != 3 * length {
            return None;
        }
        (0..3)
            .map(|part| &digits[part * length..(part + 1) * length])
            .collect()
    } else {
        let parts: Vec<&str> = colour
            .strip_prefix("rgb:")
            .or_else(|| colour.strip_prefix("rgba:"))?
            .split('/')
            .collect();
        if !(3..=4).contains(&parts.len()) {
            return None;
        }
        parts
    };
    let shares = parts.into_iter().map(share).collect::<Option<Vec<f64>>>()?;
    Some(Background::of_colour([shares[0], shares[1], shares[2]]))
}

#[cfg(test)]
mod tests;
