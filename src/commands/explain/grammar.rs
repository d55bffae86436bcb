//! The grammar of PyTorch's out-of-memory messages, from 1.0 to 2.15.
//!
//! It reads text without any white space, so that a message says the same however its lines were wrapped. It
//! knows nothing of logs: [`find`](super::find) brings it the text.

use std::ops::Range;

use super::message::{Amount, Form, Message};
use crate::base::units::Bytes;
use crate::protocol::snapshot::{Missing, Reading};

/// Where reading came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The message is whole.
    Whole(Box<Message>),
    /// So far so good, and the text is at its end: more of it may come.
    More,
    /// No message goes on like this.
    Stop,
}

/// What begins a message, without white space.
const DEVICES: [&str; 4] = ["CUDA", "HIP", "XPU", "NPU"];
const MEMORY: &str = "outofmemory";
const ASYNC: &str = "Allocationondevice";
/// Where a message begins that lost its head: people leave it out when they copy one.
const HEADLESS: &str = "Triedtoallocate";

/// What is said between brackets.
const FIELDS: [&str; 6] =
    ["totalcapacity", "alreadyallocated", "free", "allowed", "reservedintotalbyPyTorch", "cached"];

/// No text before the word that gives a message away is longer.
pub(super) const LONGEST_START: usize = 96;

/// Where a message begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    pub at: usize,
    /// It has lost its head, as people and terminals cut it; or it is the middle of one that began before.
    pub headless: bool,
}

/// Where messages begin in a text without white space. One without a head begins only before all that have one:
/// elsewhere it is a part of these.
pub(super) fn starts(text: &str) -> Vec<Start> {
    let whole: Vec<usize> = with_head(text).map(|it| it.start).collect();
    let before = &text[..whole.first().copied().unwrap_or(text.len())];
    let starts = whole.into_iter().map(|at| Start { at, headless: false });
    headless(before).map(|at| Start { at, headless: true }).into_iter().chain(starts).collect()
}

/// Whether a message may begin with the end of this text.
pub(super) fn may_begin(text: &str) -> bool {
    let ends = |words: &str| (1..words.len()).any(|length| text.ends_with(&words[..length]));
    DEVICES.iter().any(|it| ends(&format!("{it}{MEMORY}")) || ends(&format!("{it}error:{MEMORY}")))
}

/// Whether a message begins before that place, in words that end after it.
pub(super) fn splits(text: &str, place: usize) -> bool {
    with_head(text).any(|it| it.start < place && place < it.end)
}

/// `Tried to allocate …`, `GPU 0 has a total capacity …`, `GPU 0; 11.00 GiB total capacity; …`
fn headless(text: &str) -> Option<usize> {
    let tried = text.find(HEADLESS);
    let gpu = || {
        let (before, _) = text.split_once("totalcapac")?;
        let at = before.rfind("GPU")?;
        (before.len() - at < 40).then_some(at)
    };
    tried.or_else(gpu)
}

/// Where the words stand that give a message away.
fn with_head(text: &str) -> impl Iterator<Item = Range<usize>> {
    let start = move |at: usize| {
        let before = &text[..at];
        if before.ends_with("allowedmemory.(") {
            return before.rfind(ASYNC);
        }
        let before = before.strip_suffix("error:").unwrap_or(before);
        DEVICES.iter().find_map(|it| before.ends_with(it).then(|| before.len() - it.len()))
    };
    text.match_indices(MEMORY).filter_map(move |(at, _)| Some(start(at)?..at + MEMORY.len()))
}

/// Reads a message from the start of the text on.
pub(super) fn read(text: &str) -> Outcome {
    let mut cursor = Cursor(text);
    match cursor.message() {
        Ok(message) => Outcome::Whole(Box::new(message)),
        Err(Break::End) => Outcome::More,
        Err(Break::Other) => Outcome::Stop,
    }
}

/// What can still be said where the message is not whole: it was cut, or something came between.
pub(super) fn salvage(text: &str) -> Message {
    let device = DEVICES.into_iter().find(|it| text.starts_with(it));
    let mut message = Message::new(Form::Bare, device);
    message.is_cut = true;
    let mut cursor = Cursor(text);
    if cursor.take(ASYNC).is_ok() {
        message.form = Form::Async;
        message.backend = Some("CUDA");
        message.gpu = cursor.number().ok();
    }
    while !cursor.0.is_empty() {
        let here = cursor.0;
        if cursor.any_clause(&mut message).is_err() {
            cursor.0 = here.char_indices().nth(1).map_or("", |(at, _)| &here[at..]);
        }
    }
    // `CUDA out of memory.` and nothing after it is whole as it is.
    message.is_cut &= message.form != Form::Bare || message.requested.is_some();
    message
}

/// Why reading stopped.
enum Break {
    /// The text is at its end.
    End,
    /// Something else stands there.
    Other,
}

type Read<T> = Result<T, Break>;

/// What is left of the text.
struct Cursor<'a>(&'a str);

impl Cursor<'_> {
    /// Takes these words.
    fn take(&mut self, words: &str) -> Read<()> {
        match self.0.strip_prefix(words) {
            Some(rest) => {
                self.0 = rest;
                Ok(())
            }
            None if words.starts_with(self.0) => Err(Break::End),
            None => Err(Break::Other),
        }
    }

    /// Takes one of these, the first that fits.
    fn one_of(&mut self, words: &[&'static str]) -> Read<&'static str> {
        let mut why = Break::Other;
        for word in words {
            match self.take(word) {
                Ok(()) => return Ok(word),
                Err(Break::End) => why = Break::End,
                Err(Break::Other) => {}
            }
        }
        Err(why)
    }

    fn digits(&mut self) -> Read<&str> {
        let end = self.0.find(|it: char| !it.is_ascii_digit()).ok_or(Break::End)?;
        if end == 0 {
            return Err(Break::Other);
        }
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        Ok(digits)
    }

    fn number(&mut self) -> Read<u32> {
        self.digits()?.parse().map_err(|_| Break::Other)
    }

    /// `71.43MiB`. What the driver did not say comes as the largest number there is.
    fn amount(&mut self) -> Read<Reading<Amount>> {
        const NOT_SAID: u128 = 1 << 62;
        let (mut number, mut scale) = (self.digits()?.parse::<u128>().map_err(|_| Break::Other)?, 1);
        if self.0.starts_with('.') {
            self.take(".")?;
            let fraction = self.digits()?;
            // More digits than these are nothing that PyTorch prints.
            if fraction.len() > 6 {
                return Err(Break::Other);
            }
            scale = 10_u128.pow(u32::try_from(fraction.len()).map_err(|_| Break::Other)?);
            number = number.saturating_mul(scale) + fraction.parse::<u128>().map_err(|_| Break::Other)?;
        }
        let unit: u128 = match self.one_of(&["bytes", "KiB", "MiB", "GiB", "TiB"])? {
            "bytes" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => 1 << 40,
        };
        let bytes = (number.saturating_mul(unit) + scale / 2) / scale;
        if bytes >= NOT_SAID {
            return Ok(Err(Missing::Unsupported));
        }
        let slack = if unit == 1 { 0 } else { unit.div_ceil(2 * scale) };
        let narrow = |it: u128| u64::try_from(it).map(Bytes).map_err(|_| Break::Other);
        Ok(Ok(Amount { bytes: narrow(bytes)?, slack: narrow(slack)? }))
    }

    /// An amount that the driver always says, and then these words.
    fn known(&mut self, words: &[&'static str]) -> Read<(Amount, &'static str)> {
        let amount = self.amount()?.map_err(|_| Break::Other)?;
        Ok((amount, self.one_of(words)?))
    }

    fn message(&mut self) -> Read<Message> {
        if self.0.starts_with(ASYNC) {
            return self.of_async();
        }
        if self.0.starts_with("GPU") {
            return self.middle();
        }
        let mut backend = None;
        if !self.0.starts_with(HEADLESS) {
            backend = Some(self.one_of(&DEVICES)?);
            if self.0.starts_with("error:") {
                self.take("error:outofmemory")?;
                return Ok(Message::new(Form::Bare, backend));
            }
            self.take("outofmemory.")?;
            if self.0.starts_with("Alloc") {
                return self.rejected(backend);
            }
        }
        self.take("Triedtoallocate")?;
        if self.0.starts_with('m') {
            self.take("morethan1EBmemory")?;
            return Ok(Message::new(Form::Absurd, backend));
        }
        let mut message = Message::new(Form::Brackets, backend);
        message.requested = Some(self.amount()?.map_err(|_| Break::Other)?);
        match self.one_of(&["(", "."])? {
            "(" => self.brackets(&mut message)?,
            _ => self.sentences(&mut message)?,
        }
        Ok(message)
    }

    /// A message from its second sentence on.
    fn middle(&mut self) -> Read<Message> {
        let mut message = Message::new(Form::Brackets, None);
        message.is_cut = true;
        let whole = self.0;
        self.take("GPU")?;
        self.number()?;
        let is_bracket = self.0.starts_with(';');
        self.0 = whole;
        if is_bracket {
            self.brackets(&mut message)?;
        } else {
            self.sentences(&mut message)?;
        }
        Ok(message)
    }

    /// `GPU 0; 7.93 GiB total capacity; 130.35 MiB already allocated; 47.06 MiB free; 3.23 MiB cached)`
    fn brackets(&mut self, message: &mut Message) -> Read<()> {
        self.one_of(&["GPU", "XPU", "NPU"])?;
        message.gpu = Some(self.number()?);
        self.take(";")?;
        while self.bracket(message)? != ")" {}
        Ok(())
    }

    /// One of these figures, and what ends it.
    fn bracket(&mut self, message: &mut Message) -> Read<&'static str> {
        let amount = self.amount()?.map_err(|_| Break::Other)?;
        let Some(end) = self.0.find([';', ')']) else {
            // A line of somebody else's is no beginning of a name.
            let may_go_on = FIELDS.iter().any(|name| name.starts_with(self.0));
            return Err(if may_go_on { Break::End } else { Break::Other });
        };
        let field = match &self.0[..end] {
            "totalcapacity" => &mut message.total,
            "alreadyallocated" => &mut message.allocated,
            "free" => &mut message.free,
            "allowed" => &mut message.allowed,
            "reservedintotalbyPyTorch" => &mut message.reserved,
            // Then, what the allocator held and no tensor did.
            "cached" => &mut message.unallocated,
            // Some builds say more, and it is said elsewhere too. What stands before a line has more than letters.
            name if end < 40 && name.bytes().all(|it| it.is_ascii_alphabetic()) => &mut None,
            _ => return Err(Break::Other),
        };
        *field = Some(amount);
        self.0 = &self.0[end..];
        self.one_of(&[";", ")"])
    }

    /// `1.51 GiB reserved in total by PyTorch`, and the bracket is not closed.
    fn last_of_brackets(&mut self, message: &mut Message) -> Read<()> {
        let (reserved, _) = self.known(&["reservedintotalbyPyTorch"])?;
        message.reserved = Some(reserved);
        Ok(())
    }

    /// `GPU 0 has a total capacity of 14.75 GiB of which 11.06 MiB is free. Process 3258 has … unallocated.`
    fn sentences(&mut self, message: &mut Message) -> Read<()> {
        message.form = Form::Sentences;
        self.take("GPU")?;
        message.gpu = Some(self.number()?);
        self.capacity(message)?;
        loop {
            match self.clause(message) {
                Ok(()) => {}
                Err(Break::Other) => break,
                Err(Break::End) => return Err(Break::End),
            }
        }
        self.allocated(message)
    }

    fn capacity(&mut self, message: &mut Message) -> Read<()> {
        // The first of them is a slip of 2.1.
        self.one_of(&["hasatotalcapactyof", "hasatotalcapacityof"])?;
        let (total, _) = self.known(&["ofwhich"])?;
        message.total = Some(total);
        let (free, _) = self.known(&["isfree."])?;
        message.free = Some(free);
        Ok(())
    }

    /// What a process holds, or may.
    fn clause(&mut self, message: &mut Message) -> Read<()> {
        if self.0.starts_with(|it: char| it.is_ascii_digit()) {
            message.allowed = Some(self.known(&["allowed;"])?.0);
            return Ok(());
        }
        if self.one_of(&["Process", "Includingnon-PyTorchmemory,thisprocesshas", "thisprocesshas"])? != "Process" {
            let held = self.amount()?;
            self.take("memoryinuse.")?;
            message.this_process = Some(held);
            return Ok(());
        }
        let pid = self.number()?;
        self.take("has")?;
        let held = self.amount()?;
        self.take("memoryinuse.")?;
        message.others.push((pid, held));
        Ok(())
    }

    fn allocated(&mut self, message: &mut Message) -> Read<()> {
        self.take("Oftheallocatedmemory")?;
        message.allocated = Some(self.known(&["isallocatedbyPyTorch,"])?.0);
        if self.one_of(&["and", "with"])? == "with" {
            message.pools = Some(self.known(&["allocatedinprivatepools(e.g.,"])?.0);
            self.one_of(&["CUDAGraphs),and", "HIPGraphs),and", "XPUGraphs),and"])?;
        }
        message.unallocated = Some(self.known(&["isreservedbyPyTorchbutunallocated"])?.0);
        Ok(())
    }

    fn rejected(&mut self, backend: Option<&'static str>) -> Read<Message> {
        self.take(
            "Allocationwaspreemptivelyrejectedbecauseitwouldexceedper_process_memory_fractionlimit.Requestedsize:",
        )?;
        let mut message = Message::new(Form::Rejected, backend);
        message.requested = Some(self.amount()?.map_err(|_| Break::Other)?);
        Ok(message)
    }

    fn of_async(&mut self) -> Read<Message> {
        self.take(ASYNC)?;
        let mut message = Message::new(Form::Async, Some("CUDA"));
        message.gpu = Some(self.number()?);
        self.take("wouldexceedallowedmemory.(outofmemory)")?;
        for _ in 0..5 {
            self.line_of_async(&mut message)?;
        }
        Ok(message)
    }

    /// `Requested               : 567.00 MiB`
    fn line_of_async(&mut self, message: &mut Message) -> Read<()> {
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
        // No limit comes as the largest number there is.
        *field = self.amount()?.ok();
        Ok(())
    }

    /// Any part of a message, wherever it stands.
    fn any_clause(&mut self, message: &mut Message) -> Read<()> {
        type Clause = fn(&mut Cursor<'_>, &mut Message) -> Read<()>;
        const CLAUSES: [Clause; 8] = [
            |it, message| {
                it.one_of(&["Triedtoallocate", "Requestedsize:"])?;
                message.requested = Some(it.amount()?.map_err(|_| Break::Other)?);
                Ok(())
            },
            |it, message| {
                it.take("preemptivelyrejected")?;
                message.form = Form::Rejected;
                Ok(())
            },
            |it, message| {
                it.take("GPU")?;
                let gpu = it.number()?;
                message.form = if it.one_of(&[";", "has"])? == ";" { Form::Brackets } else { Form::Sentences };
                message.gpu = Some(gpu);
                Ok(())
            },
            |it, message| {
                let total = |it: &mut Cursor<'_>| {
                    it.one_of(&["totalcapactyof", "totalcapacityof"])?;
                    it.amount()?.map_err(|_| Break::Other)
                };
                message.total = Some(total(it)?);
                Ok(())
            },
            |it, message| {
                it.take("ofwhich")?;
                message.free = Some(it.known(&["isfree"])?.0);
                Ok(())
            },
            |it, message| it.clause(message),
            |it, message| it.allocated(message),
            |it, message| match message.form {
                Form::Brackets => {
                    let here = it.0;
                    it.bracket(message).map(|_| ()).or_else(|_| {
                        it.0 = here;
                        it.last_of_brackets(message)
                    })
                }
                Form::Async => it.line_of_async(message),
                _ => Err(Break::Other),
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
        Err(Break::Other)
    }
}
