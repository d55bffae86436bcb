//! The grammar of PyTorch's out-of-memory messages, from 1.0 to 2.15.
//!
//! Parses text without white space, so that a message reads the same however its lines were
//! wrapped. [`message_finder`](super::message_finder) takes the text out of a log.

use std::ops::Range;
use std::str::FromStr;
use std::sync::LazyLock;

use super::message::{MessageForm, OomMessage, RoundedAmount};
use crate::protocol::snapshot::{Missing, Reading};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ParseOutcome {
    Complete(Box<OomMessage>),
    Incomplete,
    Invalid,
}

/// The first word of a message. [`OUT_OF_MEMORY`] follows.
const BACKENDS: [&str; 4] = ["CUDA", "HIP", "XPU", "NPU"];
const OUT_OF_MEMORY: &str = "outofmemory";
/// The first words of a message of the allocator `cudaMallocAsync`.
const ASYNC: &str = "Allocationondevice";
/// The first words of a warning of 2.13 and later: PyTorch frees its cache and tries again.
const RETRIED: &str = "memoryallocationfailedwithOOMondevice";
/// The first words of a message that was copied without its first sentence.
const HEADLESS: &str = "Triedtoallocate";

// Patterns of the grammar: the text of a message, with the figures of `Cursor::figure` in braces.

/// The start of the sentence on the request. After the third, the figures follow in brackets, and
/// after the last one in sentences.
const REQUESTS: [&str; 4] = [
    "Allocationwaspreemptivelyrejectedbecauseitwouldexceedper_process_memory_fractionlimit.Requestedsize:{requested}",
    "Triedtoallocatemorethan1EBmemory",
    "Triedtoallocate{requested}(",
    "Triedtoallocate{requested}.",
];
/// The start of the brackets: `GPU 0; 7.93 GiB total capacity; 130.35 MiB already allocated; 47.06
/// MiB free; …)`.
const BRACKETS: [&str; 3] = ["GPU{gpu};", "XPU{gpu};", "NPU{gpu};"];
/// The names of the figures in the brackets, and their patterns.
const BRACKET_FIELDS: [(&str, &str); 6] = [
    ("totalcapacity", "total"),
    ("alreadyallocated", "allocated"),
    ("free", "free"),
    ("allowed", "allowed"),
    ("reservedintotalbyPyTorch", "reserved"),
    // PyTorch 1.0 to 1.3: reserved and not allocated.
    ("cached", "unallocated"),
];
/// The first sentence after the request. PyTorch 2.1 misspells "capacity".
const CAPACITY: [&str; 3] = [
    "GPU{gpu}hasatotalcapactyof{total}ofwhich{free}isfree.",
    "GPU{gpu}hasatotalcapacityof{total}ofwhich{free}isfree.",
    // PyTorch 2.3 and 2.4 lose the index.
    "GPUhasatotalcapacityof{total}ofwhich{free}isfree.",
];
/// The sentences on the memory of each process, and on its limit.
const HOLDERS: [&str; 4] = [
    "{allowed}allowed;",
    "Process{pid}has{other}memoryinuse.",
    "Includingnon-PyTorchmemory,thisprocesshas{this_process}memoryinuse.",
    "thisprocesshas{this_process}memoryinuse.",
];
const ALLOCATED: [&str; 4] = [
    "Oftheallocatedmemory{allocated}isallocatedbyPyTorch,and{unallocated}isreservedbyPyTorchbutunallocated",
    "Oftheallocatedmemory{allocated}isallocatedbyPyTorch,with{pools}allocatedinprivatepools(e.g.,CUDAGraphs),\
     and{unallocated}isreservedbyPyTorchbutunallocated",
    "Oftheallocatedmemory{allocated}isallocatedbyPyTorch,with{pools}allocatedinprivatepools(e.g.,HIPGraphs),\
     and{unallocated}isreservedbyPyTorchbutunallocated",
    "Oftheallocatedmemory{allocated}isallocatedbyPyTorch,with{pools}allocatedinprivatepools(e.g.,XPUGraphs),\
     and{unallocated}isreservedbyPyTorchbutunallocated",
];
const ASYNC_LINES: [&str; 5] = [
    "Currentlyallocated:{allocated}",
    "Requested:{requested}",
    "Devicelimit:{total}",
    "Free(accordingtoCUDA):{free}",
    "PyTorchlimit(setbyuser-suppliedmemoryfraction):{allowed}",
];
/// The rest of the warning. Its amounts are numbers of bytes without a unit.
const RETRIED_FIGURES: &str =
    "{gpu}whiletryingtoallocate{#requested}bytes(free:{#free},total:{#total})";
/// Parts of a message that has no start or is mixed with other text, with the form that they prove.
const FRAGMENTS: [(&str, Option<MessageForm>); 8] = [
    ("Triedtoallocate{requested}", None),
    ("Requestedsize:{requested}", None),
    ("preemptivelyrejected", Some(MessageForm::Rejected)),
    ("GPU{gpu};", Some(MessageForm::Brackets)),
    ("GPU{gpu}has", Some(MessageForm::Sentences)),
    ("totalcapactyof{total}", None),
    ("totalcapacityof{total}", None),
    ("ofwhich{free}isfree", None),
];

/// The most bytes of a message up to the words by which it is recognized.
pub(super) const LONGEST_START: usize = 96;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MessageStart {
    pub offset: usize,
    /// Whether the first sentence is missing, because the message was cut or started in an earlier
    /// line.
    pub is_headless: bool,
}

/// Returns the starts of all messages in a text without white space. A headless start counts only
/// before all others, because after another start it is a part of that message.
pub(super) fn starts(text: &str) -> Vec<MessageStart> {
    let mut complete: Vec<usize> = heads(text).map(|head| head.start).collect();
    complete.sort_unstable();
    let before = &text[..complete.first().copied().unwrap_or(text.len())];
    let headless = headless(before).map(|offset| MessageStart {
        offset,
        is_headless: true,
    });
    headless
        .into_iter()
        .chain(complete.into_iter().map(|offset| MessageStart {
            offset,
            is_headless: false,
        }))
        .collect()
}

pub(super) fn may_begin(text: &str) -> bool {
    /// The first words of messages, of which a line may end with a part.
    static WORDS: LazyLock<Vec<String>> = LazyLock::new(|| {
        BACKENDS
            .iter()
            .flat_map(|backend| {
                [
                    format!("{backend}{OUT_OF_MEMORY}"),
                    format!("{backend}error:{OUT_OF_MEMORY}"),
                ]
            })
            .collect()
    });
    let Some(last) = text.bytes().next_back() else {
        return false;
    };
    // The last byte rules out nearly all parts. All words are ASCII.
    WORDS.iter().any(|words| {
        (1..words.len())
            .any(|length| words.as_bytes()[length - 1] == last && text.ends_with(&words[..length]))
    })
}

/// Whether the first words of a message start before `place` and end after it.
pub(super) fn splits(text: &str, place: usize) -> bool {
    heads(text).any(|head| head.start < place && place < head.end)
}

/// Returns where a headless message starts: at `Tried to allocate …`, `GPU 0 has a total capacity
/// …`, or `GPU 0; 11.00 GiB total capacity; …`.
fn headless(text: &str) -> Option<usize> {
    /// The most bytes from `GPU` to `totalcapac`: an index and an amount.
    const LONGEST_AMOUNT: usize = 40;
    let tried = text.find(HEADLESS);
    let gpu = || {
        let (before, _) = text.split_once("totalcapac")?;
        let offset = before.rfind("GPU")?;
        (before.len() - offset < LONGEST_AMOUNT).then_some(offset)
    };
    tried.or_else(gpu)
}

fn heads(text: &str) -> impl Iterator<Item = Range<usize>> {
    let start = move |offset: usize| {
        let before = &text[..offset];
        if before.ends_with("allowedmemory.(") {
            return before.rfind(ASYNC);
        }
        let before = before.strip_suffix("error:").unwrap_or(before);
        BACKENDS.iter().find_map(|backend| {
            before
                .ends_with(backend)
                .then(|| before.len() - backend.len())
        })
    };
    let retried = text
        .match_indices(RETRIED)
        .map(|(offset, words)| offset..offset + words.len());
    text.match_indices(OUT_OF_MEMORY)
        .filter_map(move |(offset, _)| Some(start(offset)?..offset + OUT_OF_MEMORY.len()))
        .chain(retried)
}

pub(super) fn parse(text: &str) -> ParseOutcome {
    match Cursor(text).message() {
        Ok(message) => ParseOutcome::Complete(Box::new(message)),
        Err(ParseStop::EndOfText) => ParseOutcome::Incomplete,
        Err(ParseStop::Mismatch) => ParseOutcome::Invalid,
    }
}

/// Collects the figures of a message that is cut off or mixed with other text.
pub(super) fn salvage(text: &str) -> OomMessage {
    let backend = BACKENDS
        .into_iter()
        .find(|backend| text.starts_with(backend));
    let mut message = OomMessage {
        backend,
        ..OomMessage::default()
    };
    let mut cursor = Cursor(text);
    if cursor.take_words(ASYNC).is_ok() {
        message.form = MessageForm::Async;
        message.backend = Some("CUDA");
        message.gpu = cursor.number().ok();
    }
    if cursor.take_words(RETRIED).is_ok() {
        (message.form, message.backend) = (MessageForm::Retried, Some("CUDA"));
    }
    while !cursor.0.is_empty() {
        let here = cursor.0;
        if cursor.fragment(&mut message).is_err() {
            cursor.0 = here
                .char_indices()
                .nth(1)
                .map_or("", |(offset, _)| &here[offset..]);
        }
    }
    // `CUDA out of memory.` alone is a complete message.
    message.is_cut = message.form != MessageForm::Bare || message.requested.is_some();
    message
}

enum ParseStop {
    EndOfText,
    Mismatch,
}

type Parsed<T> = Result<T, ParseStop>;

struct Cursor<'a>(&'a str);

impl Cursor<'_> {
    fn take_words(&mut self, words: &str) -> Parsed<()> {
        match self.0.strip_prefix(words) {
            Some(rest) => {
                self.0 = rest;
                Ok(())
            }
            None if words.starts_with(self.0) => Err(ParseStop::EndOfText),
            None => Err(ParseStop::Mismatch),
        }
    }

    fn digits(&mut self) -> Parsed<&str> {
        let end = self
            .0
            .find(|character: char| !character.is_ascii_digit())
            .ok_or(ParseStop::EndOfText)?;
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

    /// Takes an amount such as `71.43MiB`. An amount near 2^64 bytes means that it is unknown.
    fn amount(&mut self) -> Parsed<Reading<RoundedAmount>> {
        const UNKNOWN: u128 = 1 << 62;
        /// The most decimals that are accepted. PyTorch prints two.
        const MOST_DECIMALS: usize = 6;
        let (mut number, mut scale) = (self.number::<u128>()?, 1);
        if self.0.starts_with('.') {
            self.take_words(".")?;
            let decimals = self.digits()?;
            if decimals.len() > MOST_DECIMALS {
                return Err(ParseStop::Mismatch);
            }
            scale = 10_u128.pow(u32::try_from(decimals.len()).map_err(|_| ParseStop::Mismatch)?);
            number = number.saturating_mul(scale)
                + decimals.parse::<u128>().map_err(|_| ParseStop::Mismatch)?;
        }
        let unit = self.one_of(
            &["bytes", "KiB", "MiB", "GiB", "TiB"],
            &mut OomMessage::default(),
        )?;
        let unit = 1_u128 << (10 * unit);
        let bytes = (number.saturating_mul(unit) + scale / 2) / scale;
        if bytes >= UNKNOWN {
            return Ok(Err(Missing::Unsupported));
        }
        let slack = if unit == 1 {
            0
        } else {
            unit.div_ceil(2 * scale)
        };
        Ok(Ok(RoundedAmount {
            bytes: bytes.cast_signed(),
            slack: slack.cast_signed(),
        }))
    }

    /// Takes the text of a pattern, and puts its figures into `message`, also if the rest does not
    /// match.
    fn pattern(&mut self, pattern: &str, message: &mut OomMessage) -> Parsed<()> {
        for (place, part) in pattern.split(['{', '}']).enumerate() {
            // Words and the names of figures take turns.
            if place % 2 == 0 {
                self.take_words(part)?;
            } else {
                self.figure(part, message)?;
            }
        }
        Ok(())
    }

    fn figure(&mut self, name: &str, message: &mut OomMessage) -> Parsed<()> {
        match name {
            "gpu" => message.gpu = Some(self.number()?),
            "pid" => message
                .others
                .push((self.number()?, Err(Missing::Unsupported))),
            "other" => {
                let held = self.amount()?;
                message
                    .others
                    .last_mut()
                    .into_iter()
                    .for_each(|(_, other)| *other = held);
            }
            _ if name.starts_with('#') => {
                let bytes = i128::from(self.number::<u64>()?);
                *message.amount_mut(&name[1..]).ok_or(ParseStop::Mismatch)? =
                    Some(RoundedAmount { bytes, slack: 0 });
            }
            "this_process" => message.this_process = Some(self.amount()?),
            name => {
                let amount = match self.amount()? {
                    // With `cudaMallocAsync`, an amount near 2^64 bytes means no limit. In other
                    // forms, all amounts are known.
                    Err(_) if message.form != MessageForm::Async => {
                        return Err(ParseStop::Mismatch);
                    }
                    amount => amount.ok(),
                };
                *message.amount_mut(name).ok_or(ParseStop::Mismatch)? = amount;
            }
        }
        Ok(())
    }

    fn one_of(&mut self, patterns: &[&str], message: &mut OomMessage) -> Parsed<usize> {
        let mut stop = ParseStop::Mismatch;
        for (place, pattern) in patterns.iter().enumerate() {
            let (mut rest, mut with_figures) = (Cursor(self.0), message.clone());
            match rest.pattern(pattern, &mut with_figures) {
                Ok(()) => {
                    (self.0, *message) = (rest.0, with_figures);
                    return Ok(place);
                }
                Err(ParseStop::EndOfText) => stop = ParseStop::EndOfText,
                Err(ParseStop::Mismatch) => {}
            }
        }
        Err(stop)
    }

    fn message(&mut self) -> Parsed<OomMessage> {
        let mut message = OomMessage::default();
        if self.0.starts_with(ASYNC) {
            (message.form, message.backend) = (MessageForm::Async, Some("CUDA"));
            self.pattern(
                "Allocationondevice{gpu}wouldexceedallowedmemory.(outofmemory)",
                &mut message,
            )?;
            for _ in ASYNC_LINES {
                self.one_of(&ASYNC_LINES, &mut message)?;
            }
            return Ok(message);
        }
        if self.0.starts_with(RETRIED) {
            (message.form, message.backend) = (MessageForm::Retried, Some("CUDA"));
            self.take_words(RETRIED)?;
            self.pattern(RETRIED_FIGURES, &mut message)?;
            return Ok(message);
        }
        // Without its start, a message begins with the second sentence or with the brackets.
        message.is_cut = self.0.starts_with("GPU");
        let has_brackets = if message.is_cut {
            self.one_of(
                &[BRACKETS[0], CAPACITY[0], CAPACITY[1], CAPACITY[2]],
                &mut message,
            )? == 0
        } else {
            if !self.0.starts_with(HEADLESS) {
                message.backend = Some(BACKENDS[self.one_of(&BACKENDS, &mut message)?]);
                if self.one_of(&["error:outofmemory", "outofmemory."], &mut message)? == 0 {
                    return Ok(message);
                }
            }
            match self.one_of(&REQUESTS, &mut message)? {
                0 => {
                    return Ok(OomMessage {
                        form: MessageForm::Rejected,
                        ..message
                    });
                }
                1 => {
                    return Ok(OomMessage {
                        form: MessageForm::Absurd,
                        ..message
                    });
                }
                2 => self.one_of(&BRACKETS, &mut message).map(|_| true)?,
                _ => self.one_of(&CAPACITY, &mut message).map(|_| false)?,
            }
        };
        if has_brackets {
            message.form = MessageForm::Brackets;
            while self.bracket(&mut message)? != ")" {}
        } else {
            message.form = MessageForm::Sentences;
            let sentences = [HOLDERS, ALLOCATED].concat();
            while self.one_of(&sentences, &mut message)? < HOLDERS.len() {}
        }
        Ok(message)
    }

    /// Takes one figure in the brackets. Returns the character after it.
    fn bracket(&mut self, message: &mut OomMessage) -> Parsed<&str> {
        const LONGEST_FIELD: usize = 40;
        let amount = self.amount()?.map_err(|_| ParseStop::Mismatch)?;
        let Some(end) = self.0.find([';', ')']) else {
            let is_part_of_name = BRACKET_FIELDS
                .iter()
                .any(|(name, _)| name.starts_with(self.0));
            return Err(if is_part_of_name {
                ParseStop::EndOfText
            } else {
                ParseStop::Mismatch
            });
        };
        let name = &self.0[..end];
        match BRACKET_FIELDS.iter().find(|(known, _)| *known == name) {
            Some((_, figure)) => {
                *message.amount_mut(figure).ok_or(ParseStop::Mismatch)? = Some(amount);
            }
            // Some builds print more figures, with letters only in their names. A text with other
            // characters is the prefix of a line.
            None if end < LONGEST_FIELD && name.bytes().all(|byte| byte.is_ascii_alphabetic()) => {}
            None => return Err(ParseStop::Mismatch),
        }
        let (after, rest) = self.0[end..].split_at(1);
        self.0 = rest;
        Ok(after)
    }

    fn fragment(&mut self, message: &mut OomMessage) -> Parsed<()> {
        if let Ok(place) = self.one_of(&FRAGMENTS.map(|(pattern, _)| pattern), message) {
            message.form = FRAGMENTS[place].1.unwrap_or(message.form);
            return Ok(());
        }
        if self.one_of(&[HOLDERS, ALLOCATED].concat(), message).is_ok() {
            return Ok(());
        }
        let here = self.0;
        match message.form {
            MessageForm::Brackets => self.bracket(message).map(drop).or_else(|_| {
                self.0 = here;
                self.one_of(&["{reserved}reservedintotalbyPyTorch"], message)
                    .map(drop)
            }),
            MessageForm::Async => self.one_of(&ASYNC_LINES, message).map(drop),
            _ => Err(ParseStop::Mismatch),
        }
    }
}
