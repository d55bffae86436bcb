//! Finds known errors in the lines of a log, with bounded memory.
//!
//! A search for the literals of all forms finds the few lines that may be an error; the rest of a
//! large log costs no more than that search. In such a line, colours are removed, and source code
//! and prose are told from errors.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input};
use regex::bytes::{Captures, Regex};

use super::after_failure::AfterFailure;
use super::claim::{self, Standing};
use super::failure_line::{self, FailureSign};
use super::known_errors::{EarlierLine, ErrorForm, KnownError, TABLE};
use super::log_line::{is_start, without_markup};
use super::message_finder::{self, LogRank};
use super::program::ProgramFinder;
use super::{exact, literal_search, log_pattern};
use crate::base::secrets;
use crate::base::text::Text;
use crate::base::units::Bytes;

/// A known error in a log.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FoundError {
    pub error: &'static KnownError,
    pub title: String,
    pub sentence: String,
    /// The text of the error in its line, shortened.
    pub excerpt: Text,
    /// Distinguishes errors of one cause: the number of an Xid.
    key: Option<String>,
    pub backend: Option<String>,
    pub line: u64,
    /// The line of its last copy.
    pub last_line: u64,
    pub ranks: Vec<LogRank>,
    pub count: u64,
    /// Whether its form leaves open what another line of the same report may tell.
    pub is_vague: bool,
    /// Whether each of its lines is a warning or less.
    pub is_warning: bool,
    /// The form that is counted: one error may print several.
    form: usize,
}

/// A line that follows from an error.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AftermathLine {
    pub sentence: &'static str,
    pub line: u64,
    pub ranks: Vec<LogRank>,
}

/// A line that states a failure of memory in words that no known form has.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct UnknownLine {
    pub line: u64,
    /// The line of its last copy, which may have other numbers.
    pub last_line: u64,
    pub sign: FailureSign,
    /// The text of the line, shortened.
    pub text: Text,
    /// The text without its digits, by which a copy is recognized.
    shape: Vec<u8>,
}

#[derive(Default)]
pub(super) struct LineFindings {
    /// The different errors, in the order of their first lines.
    pub errors: Vec<FoundError>,
    pub aftermath: Vec<AftermathLine>,
    pub programs: ProgramFinder,
    /// Whether a message of PyTorch advises `max_split_size_mb`, which PyTorch 1.10 to 2.0 do.
    pub advises_split_size: bool,
    pub unknown: Vec<UnknownLine>,
    /// Lines that speak of a failure without reporting one.
    pub mentions: Vec<u64>,
    /// Lines that report a failure as a warning or less.
    pub warnings: Vec<u64>,
    pub after: AfterFailure,
}

/// The most bytes of a line. The rest of a longer line is read as lines of their own.
const LONGEST_LINE: usize = 1 << 16;
/// The most bytes of an error that are searched for and shown.
const LONGEST_EXCERPT: usize = 240;
/// The characters at the beginning of an error by which a copy in the same line is recognized.
const REPEATED: usize = 24;
const MOST_ERRORS: usize = 100;
const MOST_RANKS: usize = 1024;
const MOST_UNKNOWN: usize = 100;
const MOST_MARKED: usize = 4096;
const SPLIT_SIZE: &str = "max_split_size_mb";
/// A part of the line of torchrun's table that names a rank, some lines before its exit code.
const TABLE_RANK: &str = "(local_rank: ";

struct CompiledForm {
    form: &'static ErrorForm,
    pattern: Regex,
}

/// The table of known errors, ready to search.
struct Patterns {
    /// Any literal of a known form, or of words that state a failure. It takes a MiB, and reads all
    /// bytes of a log.
    literals: AhoCorasick,
    /// The literals of known forms.
    known: AhoCorasick,
    known_texts: Vec<&'static str>,
    errors: Vec<(&'static KnownError, Vec<CompiledForm>)>,
    aftermath: Vec<CompiledForm>,
    earlier: Vec<(&'static EarlierLine, Regex)>,
}

static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    let compile = |form: &'static ErrorForm| CompiledForm {
        form,
        pattern: log_pattern(form.pattern),
    };
    let forms = || {
        let errors = TABLE.errors.iter().flat_map(|error| &error.forms);
        errors.chain(&TABLE.aftermath)
    };
    let mut earlier: Vec<&EarlierLine> = Vec::new();
    for line in forms().filter_map(|form| form.below.as_ref()) {
        if !earlier.contains(&line) {
            earlier.push(line);
        }
    }
    let known_texts: Vec<&str> = forms()
        .map(|form| form.literal)
        .chain(earlier.iter().map(|earlier| earlier.literal))
        .chain([SPLIT_SIZE, TABLE_RANK])
        .collect();
    Patterns {
        literals: literal_search(
            known_texts.iter().copied().chain(failure_line::literals()),
            AhoCorasickKind::DFA,
        ),
        known: literal_search(known_texts.iter().copied(), AhoCorasickKind::ContiguousNFA),
        known_texts,
        errors: TABLE
            .errors
            .iter()
            .map(|error| (error, error.forms.iter().map(compile).collect()))
            .collect(),
        aftermath: TABLE.aftermath.iter().map(compile).collect(),
        earlier: earlier
            .into_iter()
            .map(|earlier| (earlier, log_pattern(earlier.pattern)))
            .collect(),
    }
});

/// Returns the literals of known forms that the line contains.
fn known_literals(line: &[u8]) -> Vec<&'static str> {
    PATTERNS
        .known
        .find_overlapping_iter(line)
        .map(|found| PATTERNS.known_texts[found.pattern().as_usize()])
        .collect()
}

/// The line of torchrun's table that names a rank.
static TABLE_LINE: LazyLock<Regex> =
    LazyLock::new(|| log_pattern(r"^rank\s*: (?P<rank>\d+) \(local_rank: \d+\)"));

#[derive(Default)]
pub(super) struct ErrorFinder {
    findings: LineFindings,
    /// The start of a line whose end has not been read.
    rest: Vec<u8>,
    /// The lines that ended before `rest`.
    lines: u64,
    /// The rank whose failure torchrun's table tells next.
    table_rank: Option<LogRank>,
    /// The last lines that forms need above their own, with the groups of their patterns.
    earlier: Vec<EarlierMatch>,
}

/// A line that a form needs above its own.
struct EarlierMatch {
    earlier: &'static EarlierLine,
    line: u64,
    groups: Vec<(&'static str, String)>,
}

impl ErrorFinder {
    pub(super) fn scan(&mut self, bytes: &[u8]) {
        let Some(end) = bytes.iter().rposition(|byte| matches!(byte, b'\n' | b'\r')) else {
            self.rest.extend_from_slice(bytes);
            if self.rest.len() > LONGEST_LINE {
                self.read_rest();
            }
            return;
        };
        let (mut whole, rest) = bytes.split_at(end + 1);
        if !self.rest.is_empty() {
            let first = whole
                .iter()
                .position(|byte| matches!(byte, b'\n' | b'\r'))
                .map_or(whole.len(), |offset| offset + 1);
            let (line, others) = whole.split_at(first);
            self.rest.extend_from_slice(line);
            self.read_rest();
            whole = others;
        }
        self.read_lines(whole);
        self.rest.extend_from_slice(rest);
    }

    pub(super) fn finish(mut self) -> LineFindings {
        self.read_rest();
        self.findings
    }

    fn read_rest(&mut self) {
        let rest = std::mem::take(&mut self.rest);
        self.read_lines(&rest);
        self.rest = rest;
        self.rest.clear();
    }

    /// Reads whole lines: looks only at those with a literal of the table.
    fn read_lines(&mut self, bytes: &[u8]) {
        self.findings.programs.scan(bytes);
        let mut done = 0;
        while let Some(found) = PATTERNS.literals.find(Input::new(bytes).range(done..)) {
            let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
            let start = bytes[..found.start()]
                .iter()
                .rposition(is_end)
                .map_or(0, |offset| offset + 1);
            let end = bytes[found.end()..]
                .iter()
                .position(is_end)
                .map_or(bytes.len(), |offset| found.end() + offset);
            self.pass_over(&bytes[done.min(start)..start]);
            self.findings.after.read(&bytes[start..end], self.lines + 1);
            self.read_line(&bytes[start..end]);
            done = end;
        }
        self.pass_over(&bytes[done..]);
    }

    /// Reads whole lines without a literal.
    fn pass_over(&mut self, bytes: &[u8]) {
        self.findings.after.read(bytes, self.lines + 1);
        self.lines += count_lines(bytes);
    }

    fn read_line(&mut self, raw: &[u8]) {
        let (line, number) = (without_markup(raw), self.lines + 1);
        let literals = known_literals(&line);
        if !literals.is_empty() && self.read_known(&line, &literals) {
            return;
        }
        match failure_line::sign(&line) {
            Some(FailureSign::Mention) => mark(&mut self.findings.mentions, number),
            Some(sign) => {
                self.findings.after.watch(number);
                self.keep_unknown(sign, &line);
            }
            None => {}
        }
    }

    /// Reads a line with literals of known forms. Returns whether such a form claims it.
    fn read_known(&mut self, line: &[u8], literals: &[&str]) -> bool {
        self.findings.advises_split_size |= literals.contains(&SPLIT_SIZE);
        if let Some(groups) = TABLE_LINE.captures(line) {
            let rank = String::from_utf8_lossy(&groups["rank"]).parse().ok();
            self.table_rank = rank.map(LogRank::Global);
        }
        self.remember(line, literals);
        for (error, forms) in &PATTERNS.errors {
            for (place, CompiledForm { form, pattern }) in forms.iter().enumerate() {
                if literals.contains(&form.literal)
                    && let Some(groups) = pattern.captures(line)
                    && let Some(standing) = standing(line, &groups, form)
                    && form
                        .below
                        .as_ref()
                        .is_none_or(|earlier| self.above(earlier).is_some())
                {
                    let is_warning = standing == Standing::Warning;
                    if is_warning {
                        mark(&mut self.findings.warnings, self.lines + 1);
                    }
                    self.findings.after.watch(self.lines + 1);
                    self.keep(error, place, line, &groups, is_warning);
                    return true;
                }
            }
        }
        for CompiledForm { form, pattern } in &PATTERNS.aftermath {
            if literals.contains(&form.literal)
                && let Some(groups) = pattern.captures(line)
                && standing(line, &groups, form).is_some()
            {
                self.keep_aftermath(form.sentence, line, &groups);
                return true;
            }
        }
        false
    }

    /// Remembers the line if a form needs it above its own.
    fn remember(&mut self, line: &[u8], literals: &[&str]) {
        for (earlier, pattern) in &PATTERNS.earlier {
            if literals.contains(&earlier.literal)
                && let Some(groups) = pattern.captures(line)
            {
                let value = |name| {
                    Some((
                        name,
                        String::from_utf8_lossy(groups.name(name)?.as_bytes()).into_owned(),
                    ))
                };
                let groups = pattern
                    .capture_names()
                    .flatten()
                    .filter_map(value)
                    .collect();
                self.earlier.retain(|known| known.earlier != *earlier);
                self.earlier.push(EarlierMatch {
                    earlier,
                    line: self.lines + 1,
                    groups,
                });
            }
        }
    }

    /// Returns the line above this one that a form needs. `None` if there is none, or it is too far
    /// away.
    fn above(&self, earlier: &EarlierLine) -> Option<&EarlierMatch> {
        let is_near = |known: &&EarlierMatch| self.lines + 1 - known.line <= earlier.within;
        self.earlier
            .iter()
            .find(|known| known.earlier == earlier)
            .filter(is_near)
    }

    fn keep_unknown(&mut self, sign: FailureSign, line: &[u8]) {
        let (number, unknown) = (self.lines + 1, &mut self.findings.unknown);
        let shape: Vec<u8> = line
            .iter()
            .filter(|byte| !byte.is_ascii_digit())
            .take(LONGEST_EXCERPT)
            .copied()
            .collect();
        if let Some(known) = unknown.iter_mut().find(|known| known.shape == shape) {
            known.last_line = number;
            return;
        }
        if unknown.len() >= MOST_UNKNOWN {
            // A line whose words alone count tells nothing when the log goes on.
            let Some(stale) = unknown
                .iter()
                .position(|known| known.sign == FailureSign::WordsAlone)
            else {
                return;
            };
            unknown.remove(stale);
        }
        unknown.push(UnknownLine {
            line: number,
            last_line: number,
            sign,
            text: Text::new(secrets::mask_text(excerpt(line, 0).as_str())),
            shape,
        });
    }

    fn keep(
        &mut self,
        error: &'static KnownError,
        place: usize,
        line: &[u8],
        groups: &Captures<'_>,
        is_warning: bool,
    ) {
        let form = &error.forms[place];
        let text = |name: &str| {
            groups
                .name(name)
                .map(|group| String::from_utf8_lossy(group.as_bytes()).into_owned())
        };
        let of_table = groups.name("in_table").and_then(|_| self.table_rank.take());
        let (key, rank) = (text("key"), of_table.or_else(|| rank(line, groups)));
        let is_vague = groups.name("vague").is_some();
        let values = form
            .below
            .as_ref()
            .and_then(|earlier| self.above(earlier))
            .map_or(Vec::new(), |found| found.groups.clone());
        let number = self.lines + 1;
        let start = groups.get(0).map_or(0, |whole| whole.start());
        let backend = text("backend").map(|name| {
            name.to_uppercase()
                .replace("UR", "XPU")
                .replace("PI", "XPU")
                .replace("ROCM", "ROCm")
        });
        let fill = |template: &str| fill(template, groups, &values, backend.as_deref());
        let known = self
            .findings
            .errors
            .iter_mut()
            .find(|found| found.error.cause == error.cause && found.key == key);
        if let Some(known) = known {
            known.count += u64::from(known.form == place);
            known.last_line = number;
            known.is_warning &= is_warning;
            if known.is_vague && !is_vague {
                (known.title, known.sentence, known.excerpt) =
                    (fill(error.title), fill(form.sentence), excerpt(line, start));
                (known.error, known.form, known.is_vague) = (error, place, false);
            }
            known.ranks.extend(
                rank.filter(|rank| !known.ranks.contains(rank) && known.ranks.len() < MOST_RANKS),
            );
            return;
        }
        if self.findings.errors.len() >= MOST_ERRORS {
            return;
        }
        self.findings.errors.push(FoundError {
            error,
            title: fill(error.title),
            sentence: fill(form.sentence),
            excerpt: excerpt(line, start),
            key,
            backend: backend.clone(),
            line: number,
            last_line: number,
            ranks: rank.into_iter().collect(),
            count: 1,
            is_vague,
            is_warning,
            form: place,
        });
    }

    fn keep_aftermath(&mut self, sentence: &'static str, line: &[u8], groups: &Captures<'_>) {
        let rank = rank(line, groups);
        if let Some(known) = self
            .findings
            .aftermath
            .iter_mut()
            .find(|known| known.sentence == sentence)
        {
            known.ranks.extend(
                rank.filter(|rank| !known.ranks.contains(rank) && known.ranks.len() < MOST_RANKS),
            );
        } else {
            let ranks = rank.into_iter().collect();
            self.findings.aftermath.push(AftermathLine {
                sentence,
                line: self.lines + 1,
                ranks,
            });
        }
    }
}

#[expect(clippy::naive_bytecount, reason = "the compiler makes it fast enough")]
fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Remembers the line, unless too many are remembered.
fn mark(lines: &mut Vec<u64>, line: u64) {
    if lines.len() < MOST_MARKED {
        lines.push(line);
    }
}

/// Returns how the match stands in its line. `None` if it only mentions the error of the form, or
/// stands where no message starts.
fn standing(line: &[u8], groups: &Captures<'_>, form: &ErrorForm) -> Option<Standing> {
    let whole = groups.get(0)?;
    let is_in_place = form.starts_anywhere || is_start(&line[..whole.start()]);
    let standing = is_in_place.then(|| claim::standing(line, whole.range()));
    standing.filter(|standing| *standing != Standing::Mention)
}

fn rank(line: &[u8], groups: &Captures<'_>) -> Option<LogRank> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let of_group = groups
        .name("local_rank")
        .and_then(|rank| text(rank.as_bytes()).parse().ok());
    of_group.map(LogRank::Local).or_else(|| {
        let before = text(&line[..groups.get(0).map_or(0, |whole| whole.start())]);
        let prefix: String = before
            .split("  ")
            .next()?
            .chars()
            .filter(|character| !character.is_whitespace())
            .collect();
        message_finder::rank(&prefix)
    })
}

/// Puts the groups of a match, and those of an earlier line, into a sentence. Groups whose names
/// start with `bytes` or `kib` are written as amounts.
fn fill(
    template: &str,
    groups: &Captures<'_>,
    earlier: &[(&str, String)],
    backend: Option<&str>,
) -> String {
    let mut filled = String::new();
    for (place, part) in template.split(['{', '}']).enumerate() {
        if place % 2 == 0 {
            filled.push_str(part);
            continue;
        }
        let of_earlier = || {
            earlier
                .iter()
                .find(|(name, _)| *name == part)
                .map(|(_, value)| value.clone())
        };
        let value = groups
            .name(part)
            .map(|group| String::from_utf8_lossy(group.as_bytes()).into_owned());
        let value = value.or_else(of_earlier);
        let amount = |value: String, unit: u64| {
            let number: Result<u64, _> = value.replace(',', "").parse();
            number.map_or(value, |number| exact(Bytes(number.saturating_mul(unit))))
        };
        let value = match part {
            "backend" => Some(backend.unwrap_or("CUDA").to_owned()),
            _ if part.starts_with("bytes") => value.map(|value| amount(value, 1)),
            _ if part.starts_with("kib") => value.map(|value| amount(value, 1 << 10)),
            _ => value,
        };
        filled.push_str(&value.unwrap_or_else(|| "?".to_owned()));
    }
    Text::new(filled).to_string()
}

/// Returns the text of an error from the name of its exception on, without the copies of other
/// ranks in the same line.
fn excerpt(line: &[u8], start: usize) -> Text {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"._".contains(byte);
    let before = line[..start].trim_ascii_end();
    let name = before
        .strip_suffix(b":")
        .filter(|before| before.ends_with(b"Error") || before.ends_with(b"Exception"));
    let start = name.map_or(start, |name| {
        name.iter()
            .rposition(|byte| !is_name(byte))
            .map_or(0, |offset| offset + 1)
    });
    let text = String::from_utf8_lossy(&line[start..]).into_owned();
    let beginning = text
        .char_indices()
        .nth(REPEATED)
        .map_or("", |(offset, _)| &text[..offset]);
    let copies = if beginning.is_empty() {
        None
    } else {
        text.match_indices(beginning).nth(1)
    };
    let text = copies.map_or(text.as_str(), |(offset, _)| text[..offset].trim_end());
    let end = text
        .char_indices()
        .nth(LONGEST_EXCERPT)
        .map(|(offset, _)| offset);
    Text::new(end.map_or_else(|| text.to_owned(), |end| format!("{}...", &text[..end])))
}
