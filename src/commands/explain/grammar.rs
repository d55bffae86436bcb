//! The grammar of PyTorch's out-of-memory messages, from 1.0 to 2.15.
//!
//! Parses text without white space, so that a message reads the same however its lines were wrapped.
//! [`find`](super::find) takes the text out of a log.

use std::ops::Range;
use std::str::FromStr;

use super::message::{MessageForm, OomMessage, RoundedAmount};
use crate::base::units::Bytes;
use crate::protocol::snapshot::{Missing, Reading};

/// The result of parsing the start of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ParseOutcome {
    /// The message is complete.
    Complete(Box<OomMessage>),
    /// The text ends inside a message.
    Incomplete,
    /// The text is not a message.
    Invalid,
}

/// The first words of messages.
const BACKENDS: [&str; 4] = ["CUDA", "HIP", "XPU", "NPU"];
const MEMORY: &str = "outofmemory";
const ASYNC: &str = "Allocationondevice";
/// The first words of a message that was copied without its first sentence.
const HEADLESS: &str = "Triedtoallocate";

/// The names of the figures in the brackets.
const FIELDS: [&str; 6] =
    ["totalcapacity", "alreadyallocated", "free", "allowed", "reservedintotalbyPyTorch", "cached"];

/// No message has a longer text before the words by which it is recognized.
pub(super) const LONGEST_START: usize = 96;

/// The start of a message in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MessageStart {
    pub at: usize,
    /// The first sentence is missing, because the message was cut or started in an earlier line.
    pub is_headless: bool,
}

/// Returns the starts of all messages in a text without white space. A headless start counts only before all others,
/// because after another start it is a part of that message.
pub(super) fn starts(text: &str) -> Vec<MessageStart> {
    let complete: Vec<usize> = heads(text).map(|head| head.start).collect();
    let before = &text[..complete.first().copied().unwrap_or(text.len())];
    let headless = headless(before).map(|at| MessageStart { at, is_headless: true });
    headless.into_iter().chain(complete.into_iter().map(|at| MessageStart { at, is_headless: false })).collect()
}

/// Whether the text ends inside the first words of a message.
pub(super) fn may_begin(text: &str) -> bool {
    let ends_with_part_of = |words: &str| (1..words.len()).any(|length| text.ends_with(&words[..length]));
    BACKENDS.iter().any(|backend| {
        ends_with_part_of(&format!("{backend}{MEMORY}")) || ends_with_part_of(&format!("{backend}error:{MEMORY}"))
    })
}

/// Whether the first words of a message start before `place` and end after it.
pub(super) fn splits(text: &str, place: usize) -> bool {
    heads(text).any(|head| head.start < place && place < head.end)
}

/// Returns where a headless message starts: at `Tried to allocate …`, `GPU 0 has a total capacity …`, or
/// `GPU 0; 11.00 GiB total capacity; …`.
fn headless(text: &str) -> Option<usize> {
    /// No index and amount between these words is longer.
    const LONGEST_AMOUNT: usize = 40;
    let tried = text.find(HEADLESS);
    let gpu = || {
        let (before, _) = text.split_once("totalcapac")?;
        let at = before.rfind("GPU")?;
        (before.len() - at < LONGEST_AMOUNT).then_some(at)
    };
    tried.or_else(gpu)
}

/// Returns the places of the words by which messages are recognized.
fn heads(text: &str) -> impl Iterator<Item = Range<usize>> {
    let start = move |at: usize| {
        let before = &text[..at];
        if before.ends_with("allowedmemory.(") {
            return before.rfind(ASYNC);
        }
        let before = before.strip_suffix("error:").unwrap_or(before);
        BACKENDS.iter().find_map(|backend| before.ends_with(backend).then(|| before.len() - backend.len()))
    };
    text.match_indices(MEMORY).filter_map(move |(at, _)| Some(start(at)?..at + MEMORY.len()))
}

/// Parses the message at the start of the text.
pub(super) fn parse(text: &str) -> ParseOutcome {
    match Cursor(text).message() {
        Ok(message) => ParseOutcome::Complete(Box::new(message)),
        Err(ParseStop::EndOfText) => ParseOutcome::Incomplete,
        Err(ParseStop::Mismatch) => ParseOutcome::Invalid,
    }
}

/// Collects the figures of a message that is cut off or mixed with other text.
pub(super) fn salvage(text: &str) -> OomMessage {
    let backend = BACKENDS.into_iter().find(|backend| text.starts_with(backend));
    let mut message = OomMessage::new(MessageForm::Bare, backend);
    let mut cursor = Cursor(text);
    if cursor.take(ASYNC).is_ok() {
        message.form = MessageForm::Async;
        message.backend = Some("CUDA");
        message.gpu = cursor.number().ok();
    }
    while !cursor.0.is_empty() {
        let here = cursor.0;
        if cursor.any_clause(&mut message).is_err() {
            cursor.0 = here.char_indices().nth(1).map_or("", |(at, _)| &here[at..]);
        }
    }
    // `CUDA out of memory.` alone is a complete message.
    message.is_cut = message.form != MessageForm::Bare || message.requested.is_some();
    message
}

/// Why parsing stopped.
enum ParseStop {
    EndOfText,
    /// The text does not match.
    Mismatch,
}

type Parsed<T> = Result<T, ParseStop>;

/// The rest of the text.
struct Cursor<'a>(&'a str);

impl Cursor<'_> {
    /// Takes these words.
    fn take(&mut self, words: &str) -> Parsed<()> {
        match self.0.strip_prefix(words) {
            Some(rest) => {
                self.0 = rest;
                Ok(())
            }
            None if words.starts_with(self.0) => Err(ParseStop::EndOfText),
            None => Err(ParseStop::Mismatch),
        }
    }

    /// Takes the first of these alternatives that matches.
    fn one_of(&mut self, alternatives: &[&'static str]) -> Parsed<&'static str> {
        let mut stop = ParseStop::Mismatch;
        for words in alternatives {
            match self.take(words) {
                Ok(()) => return Ok(words),
                Err(ParseStop::EndOfText) => stop = ParseStop::EndOfText,
                Err(ParseStop::Mismatch) => {}
            }
        }
        Err(stop)
    }

    fn digits(&mut self) -> Parsed<&str> {
        let end = self.0.find(|character: char| !character.is_ascii_digit()).ok_or(ParseStop::EndOfText)?;
        if end == 0 {
            return Err(ParseStop::Mismatch);
        }
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        Ok(digits)
    }

    fn number<T: FromStr>(&mut self) -> Parsed<T> {
        self.digits()?.parse().map_err(|_| ParseStop::Mismatch)
    }

    /// Takes `71.43MiB`. An amount near 2^64 bytes stands for an unknown one.
    fn amount_or_missing(&mut self) -> Parsed<Reading<RoundedAmount>> {
        const UNKNOWN: u128 = 1 << 62;
        /// PyTorch prints two decimals.
        const MOST_DECIMALS: usize = 6;
        let (mut number, mut scale) = (self.number::<u128>()?, 1);
        if self.0.starts_with('.') {
            self.take(".")?;
            let decimals = self.digits()?;
            if decimals.len() > MOST_DECIMALS {
                return Err(ParseStop::Mismatch);
            }
            scale = 10_u128.pow(u32::try_from(decimals.len()).map_err(|_| ParseStop::Mismatch)?);
            number = number.saturating_mul(scale) + decimals.parse::<u128>().map_err(|_| ParseStop::Mismatch)?;
        }
        let unit: u128 = match self.one_of(&["bytes", "KiB", "MiB", "GiB", "TiB"])? {
            "bytes" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => 1 << 40,
        };
        let bytes = (number.saturating_mul(unit) + scale / 2) / scale;
        if bytes >= UNKNOWN {
            return Ok(Err(Missing::Unsupported));
        }
        let slack = if unit == 1 { 0 } else { unit.div_ceil(2 * scale) };
        let narrow = |bytes: u128| u64::try_from(bytes).map(Bytes).map_err(|_| ParseStop::Mismatch);
        Ok(Ok(RoundedAmount { bytes: narrow(bytes)?, slack: narrow(slack)? }))
    }

    /// Takes an amount that is always known.
    fn amount(&mut self) -> Parsed<RoundedAmount> {
        self.amount_or_missing()?.map_err(|_| ParseStop::Mismatch)
    }

    /// Takes an amount that is always known, and then these words.
    fn amount_before(&mut self, words: &'static str) -> Parsed<Option<RoundedAmount>> {
        let amount = self.amount()?;
        self.take(words)?;
        Ok(Some(amount))
    }

    fn message(&mut self) -> Parsed<OomMessage> {
        if self.0.starts_with(ASYNC) {
            return self.of_async();
        }
        if self.0.starts_with("GPU") {
            return self.headless();
        }
        let mut backend = None;
        if !self.0.starts_with(HEADLESS) {
            backend = Some(self.one_of(&BACKENDS)?);
            if self.0.starts_with("error:") {
                self.take("error:outofmemory")?;
                return Ok(OomMessage::new(MessageForm::Bare, backend));
            }
            self.take("outofmemory.")?;
            if self.0.starts_with("Alloc") {
                return self.rejected(backend);
            }
        }
        self.take("Triedtoallocate")?;
        if self.0.starts_with('m') {
            self.take("morethan1EBmemory")?;
            return Ok(OomMessage::new(MessageForm::Absurd, backend));
        }
        let mut message = OomMessage::new(MessageForm::Brackets, backend);
        message.requested = Some(self.amount()?);
        match self.one_of(&["(", "."])? {
            "(" => self.brackets(&mut message)?,
            _ => self.sentences(&mut message)?,
        }
        Ok(message)
    }

    /// Takes a headless message from its second sentence on.
    fn headless(&mut self) -> Parsed<OomMessage> {
        let mut message = OomMessage::new(MessageForm::Brackets, None);
        message.is_cut = true;
        let whole = self.0;
        self.take("GPU")?;
        self.number::<u32>()?;
        let is_bracket = self.0.starts_with(';');
        self.0 = whole;
        if is_bracket {
            self.brackets(&mut message)?;
        } else {
            self.sentences(&mut message)?;
        }
        Ok(message)
    }

    /// Takes `GPU 0; 7.93 GiB total capacity; 130.35 MiB already allocated; 47.06 MiB free; 3.23 MiB cached)`
    fn brackets(&mut self, message: &mut OomMessage) -> Parsed<()> {
        self.one_of(&["GPU", "XPU", "NPU"])?;
        message.gpu = Some(self.number()?);
        self.take(";")?;
        while self.bracket(message)? != ")" {}
        Ok(())
    }

    /// Takes one figure in the brackets. Returns the character after it.
    fn bracket(&mut self, message: &mut OomMessage) -> Parsed<&'static str> {
        const LONGEST_FIELD: usize = 40;
        let amount = self.amount()?;
        let Some(end) = self.0.find([';', ')']) else {
            let is_part_of_name = FIELDS.iter().any(|name| name.starts_with(self.0));
            return Err(if is_part_of_name { ParseStop::EndOfText } else { ParseStop::Mismatch });
        };
        let field = match &self.0[..end] {
            "totalcapacity" => &mut message.total,
            "alreadyallocated" => &mut message.allocated,
            "free" => &mut message.free,
            "allowed" => &mut message.allowed,
            "reservedintotalbyPyTorch" => &mut message.reserved,
            // PyTorch 1.0 to 1.3: reserved and not allocated.
            "cached" => &mut message.unallocated,
            // Some builds print more figures. The prefix of a line has more than letters, so it is not such a name.
            name if end < LONGEST_FIELD && name.bytes().all(|byte| byte.is_ascii_alphabetic()) => &mut None,
            _ => return Err(ParseStop::Mismatch),
        };
        *field = Some(amount);
        self.0 = &self.0[end..];
        self.one_of(&[";", ")"])
    }

    /// Takes `1.51 GiB reserved in total by PyTorch` without the closing bracket.
    fn last_of_brackets(&mut self, message: &mut OomMessage) -> Parsed<()> {
        message.reserved = self.amount_before("reservedintotalbyPyTorch")?;
        Ok(())
    }

    /// Takes `GPU 0 has a total capacity of 14.75 GiB of which 11.06 MiB is free. Process 3258 has … unallocated.`
    fn sentences(&mut self, message: &mut OomMessage) -> Parsed<()> {
        message.form = MessageForm::Sentences;
        self.take("GPU")?;
        message.gpu = Some(self.number()?);
        self.capacity(message)?;
        loop {
            match self.clause(message) {
                Ok(()) => {}
                Err(ParseStop::Mismatch) => break,
                Err(ParseStop::EndOfText) => return Err(ParseStop::EndOfText),
            }
        }
        self.allocated(message)
    }

    fn capacity(&mut self, message: &mut OomMessage) -> Parsed<()> {
        // PyTorch 2.1 has a typo.
        self.one_of(&["hasatotalcapactyof", "hasatotalcapacityof"])?;
        message.total = self.amount_before("ofwhich")?;
        message.free = self.amount_before("isfree.")?;
        Ok(())
    }

    /// Takes the memory of a process, or its limit.
    fn clause(&mut self, message: &mut OomMessage) -> Parsed<()> {
        if self.0.starts_with(|character: char| character.is_ascii_digit()) {
            message.allowed = self.amount_before("allowed;")?;
            return Ok(());
        }
        let is_other =
            self.one_of(&["Process", "Includingnon-PyTorchmemory,thisprocesshas", "thisprocesshas"])? == "Process";
        let mut pid = None;
        if is_other {
            pid = Some(self.number()?);
            self.take("has")?;
        }
        let held = self.amount_or_missing()?;
        self.take("memoryinuse.")?;
        match pid {
            Some(pid) => message.others.push((pid, held)),
            None => message.this_process = Some(held),
        }
        Ok(())
    }

    fn allocated(&mut self, message: &mut OomMessage) -> Parsed<()> {
        self.take("Oftheallocatedmemory")?;
        message.allocated = self.amount_before("isallocatedbyPyTorch,")?;
        if self.one_of(&["and", "with"])? == "with" {
            message.pools = self.amount_before("allocatedinprivatepools(e.g.,")?;
            self.one_of(&["CUDAGraphs),and", "HIPGraphs),and", "XPUGraphs),and"])?;
        }
        message.unallocated = self.amount_before("isreservedbyPyTorchbutunallocated")?;
        Ok(())
    }

    fn rejected(&mut self, backend: Option<&'static str>) -> Parsed<OomMessage> {
        self.take(
            "Allocationwaspreemptivelyrejectedbecauseitwouldexceedper_process_memory_fractionlimit.Requestedsize:",
        )?;
        let mut message = OomMessage::new(MessageForm::Rejected, backend);
        message.requested = Some(self.amount()?);
        Ok(message)
    }

    fn of_async(&mut self) -> Parsed<OomMessage> {
        self.take(ASYNC)?;
        let mut message = OomMessage::new(MessageForm::Async, Some("CUDA"));
        message.gpu = Some(self.number()?);
        self.take("wouldexceedallowedmemory.(outofmemory)")?;
        for _ in 0..5 {
            self.line_of_async(&mut message)?;
        }
        Ok(message)
    }

    /// Takes `Requested               : 567.00 MiB`.
    fn line_of_async(&mut self, message: &mut OomMessage) -> Parsed<()> {
        const LINES: [&str; 5] = [
            "Currentlyallocated:",
            "Requested:",
            "Devicelimit:",
            "Free(accordingtoCUDA):",
            "PyTorchlimit(setbyuser-suppliedmemoryfraction):",
        ];
        let field = match self.one_of(&LINES)? {
            "Currentlyallocated:" => &mut message.allocated,
            "Requested:" => &mut message.requested,
            "Devicelimit:" => &mut message.total,
            "Free(accordingtoCUDA):" => &mut message.free,
            _ => &mut message.allowed,
        };
        // An amount near 2^64 bytes stands for no limit.
        *field = self.amount_or_missing()?.ok();
        Ok(())
    }

    /// Takes any part of a message.
    fn any_clause(&mut self, message: &mut OomMessage) -> Parsed<()> {
        type Clause = fn(&mut Cursor<'_>, &mut OomMessage) -> Parsed<()>;
        const CLAUSES: [Clause; 8] = [
            |cursor, message| {
                cursor.one_of(&["Triedtoallocate", "Requestedsize:"])?;
                message.requested = Some(cursor.amount()?);
                Ok(())
            },
            |cursor, message| {
                cursor.take("preemptivelyrejected")?;
                message.form = MessageForm::Rejected;
                Ok(())
            },
            |cursor, message| {
                cursor.take("GPU")?;
                let gpu = cursor.number()?;
                let is_bracket = cursor.one_of(&[";", "has"])? == ";";
                message.form = if is_bracket { MessageForm::Brackets } else { MessageForm::Sentences };
                message.gpu = Some(gpu);
                Ok(())
            },
            |cursor, message| {
                cursor.one_of(&["totalcapactyof", "totalcapacityof"])?;
                message.total = Some(cursor.amount()?);
                Ok(())
            },
            |cursor, message| {
                cursor.take("ofwhich")?;
                message.free = cursor.amount_before("isfree")?;
                Ok(())
            },
            |cursor, message| cursor.clause(message),
            |cursor, message| cursor.allocated(message),
            |cursor, message| match message.form {
                MessageForm::Brackets => {
                    let here = cursor.0;
                    cursor.bracket(message).map(|_| ()).or_else(|_| {
                        cursor.0 = here;
                        cursor.last_of_brackets(message)
                    })
                }
                MessageForm::Async => cursor.line_of_async(message),
                _ => Err(ParseStop::Mismatch),
            },
        ];
        for clause in CLAUSES {
            let mut tried = Cursor(self.0);
            let mut after = message.clone();
            if clause(&mut tried, &mut after).is_ok() {
                *message = after;
                self.0 = tried.0;
                return Ok(());
            }
        }
        Err(ParseStop::Mismatch)
    }
}
