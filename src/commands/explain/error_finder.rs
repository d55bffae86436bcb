//! Finds known errors in the lines of a log, with bounded memory.
//!
//! A search for the literals of all forms finds the few lines that may be an error; the rest of a large log costs no more than
//! that search. In such a line, colours are removed, and source code and prose are told from errors.

use std::sync::LazyLock;

use regex::bytes::{Captures, Regex};

use super::find::{self, LogRank};
use super::known_errors::{self, AFTERMATH, ErrorForm, KnownError};
use super::program::ProgramFinder;
use super::{exact, log_pattern};
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
    pub ranks: Vec<LogRank>,
    pub count: u64,
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

#[derive(Default)]
pub(super) struct LineFindings {
    /// The different errors, in the order of their first lines.
    pub errors: Vec<FoundError>,
    pub aftermath: Vec<AftermathLine>,
    pub programs: ProgramFinder,
    /// Whether a message of PyTorch advises `max_split_size_mb`, which PyTorch 1.10 to 2.0 do.
    pub advises_split_size: bool,
}

/// The most bytes of a line. The rest of a longer line is read as lines of their own.
const LONGEST_LINE: usize = 1 << 16;
/// The most bytes of an error that are searched for and shown.
const LONGEST_EXCERPT: usize = 240;
/// The characters at the beginning of an error by which a copy in the same line is recognized.
const REPEATED: usize = 24;
const MOST_ERRORS: usize = 100;
const MOST_RANKS: usize = 1024;
const SPLIT_SIZE: &str = "max_split_size_mb";
/// A part of the line of torchrun's table that names a rank, some lines before its exit code.
const TABLE_RANK: &str = "(local_rank: ";

struct CompiledForm {
    form: &'static ErrorForm,
    literal: Regex,
    pattern: Regex,
}

/// The table of known errors, ready to search.
struct Patterns {
    /// Any literal of the table.
    literals: Regex,
    errors: Vec<(&'static KnownError, Vec<CompiledForm>)>,
    aftermath: Vec<CompiledForm>,
}

static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    let compile = |form: &'static ErrorForm| CompiledForm {
        form,
        literal: log_pattern(&regex::escape(form.literal)),
        pattern: log_pattern(form.pattern),
    };
    let forms = || known_errors::all().flat_map(|error| error.forms).chain(AFTERMATH);
    let literals: Vec<String> =
        forms().map(|form| form.literal).chain([SPLIT_SIZE, TABLE_RANK]).map(regex::escape).collect();
    Patterns {
        literals: log_pattern(&literals.join("|")),
        errors: known_errors::all().map(|error| (error, error.forms.iter().map(compile).collect())).collect(),
        aftermath: AFTERMATH.iter().map(compile).collect(),
    }
});

static ESCAPES: LazyLock<Regex> = LazyLock::new(|| {
    log_pattern(r"\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.|\^\[\[[0-9;]*m")
});

/// Text that shows that a line is source code, a command or prose: before the error.
static CODE: LazyLock<Regex> = LazyLock::new(|| {
    log_pattern(
        r"(?x)
        (?:^|[\s\]|>:;({\d]|│|❱)(?:raise|except|assert|return|elif|if|print|def|import|throw|catch|\#define)[\s(:]
        | (?:print|log|logger|logging|warn|warnings|error|console|printf|fprintf|str|match|contains|startswith|endswith|find|search|compile)
          (?:\.\w+)?\(
        | (?:^|\s)(?:\#|//|/\*|>>>|\$|grep|rg|sed|awk|echo)\s
        | \.(?:md|rst)[:-]\d+[:-]
        | [!=]=\s*$
        | \s=\s*[\x22']$
        ",
    )
});

/// The line of torchrun's table that names a rank.
static TABLE_LINE: LazyLock<Regex> = LazyLock::new(|| log_pattern(r"^rank\s*: (?P<rank>\d+) \(local_rank: \d+\)"));

/// Text that says that nothing has failed.
static HARMLESS: LazyLock<Regex> = LazyLock::new(|| {
    log_pattern(
        r"The caller indicates that this is not a failure|\] No valid triton configs|Ignoring this choice|[Ss]kipping tactic",
    )
});

/// The text before an error is the start of its line, with a time, a rank, the name of an exception and so on.
static START: LazyLock<Regex> = LazyLock::new(|| {
    log_pattern(
        r#"(?x)
        (?: ^
          | (?:[\])|>\#*;!]|│)[\ \t]*
          | :[\ \t]*
          | [\x22']\s*[=:]\s*[\x22']                              # in JSON: "message": "
          | (?:Error|Exception|Warning|Failure)\([\x22']          # Python's repr of an exception
          | \b(?:ERROR|WARNING|WARN|INFO|FATAL|CRITICAL|DEBUG|E|W|F|stderr|stdout|what\(\))[\ \t:]*
          | [\d:.,+-]*\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?[\ \t]*(?:-[\ \t]*)?
          | (?:\ -|\t-?|\ \ )[\ \t]*
          | [\w.]+(?:Error|Exception):?\s*
        )$"#,
    )
});

#[derive(Default)]
pub(super) struct ErrorFinder {
    findings: LineFindings,
    /// The start of a line whose end has not been read.
    rest: Vec<u8>,
    /// The lines that ended before `rest`.
    lines: u64,
    /// The rank whose failure torchrun's table tells next.
    table_rank: Option<LogRank>,
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
            let first = whole.iter().position(|byte| matches!(byte, b'\n' | b'\r')).map_or(whole.len(), |at| at + 1);
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
        while let Some(found) = PATTERNS.literals.find_at(bytes, done) {
            let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
            let start = bytes[..found.start()].iter().rposition(is_end).map_or(0, |at| at + 1);
            let end = bytes[found.end()..].iter().position(is_end).map_or(bytes.len(), |at| found.end() + at);
            self.lines += count_lines(&bytes[done.min(start)..start]);
            self.read_line(&bytes[start..end]);
            done = end;
        }
        self.lines += count_lines(&bytes[done..]);
    }

    fn read_line(&mut self, raw: &[u8]) {
        self.findings.advises_split_size |= contains(raw, SPLIT_SIZE);
        let line = plain(raw);
        if let Some(groups) = TABLE_LINE.captures(&line) {
            let rank = String::from_utf8_lossy(&groups["rank"]).parse().ok();
            self.table_rank = rank.map(LogRank::Global);
        }
        for (error, forms) in &PATTERNS.errors {
            for (at, CompiledForm { form, literal, pattern }) in forms.iter().enumerate() {
                if literal.is_match(&line)
                    && let Some(groups) = pattern.captures(&line)
                    && is_event(&line, &groups, form)
                {
                    return self.keep(error, at, form, &line, &groups);
                }
            }
        }
        for CompiledForm { form, literal, pattern } in &PATTERNS.aftermath {
            if literal.is_match(&line)
                && let Some(groups) = pattern.captures(&line)
                && is_event(&line, &groups, form)
            {
                return self.keep_aftermath(form.sentence, &line, &groups);
            }
        }
    }

    fn keep(&mut self, error: &'static KnownError, at: usize, form: &ErrorForm, line: &[u8], groups: &Captures<'_>) {
        let text = |name: &str| groups.name(name).map(|group| String::from_utf8_lossy(group.as_bytes()).into_owned());
        let of_table = groups.name("in_table").and_then(|_| self.table_rank.take());
        let (key, rank) = (text("key"), of_table.or_else(|| rank(line, groups)));
        let known = self.findings.errors.iter_mut().find(|found| found.error.cause == error.cause && found.key == key);
        if let Some(known) = known {
            known.count += u64::from(known.form == at);
            known.ranks.extend(rank.filter(|rank| !known.ranks.contains(rank) && known.ranks.len() < MOST_RANKS));
            return;
        }
        if self.findings.errors.len() >= MOST_ERRORS {
            return;
        }
        let start = groups.get(0).map_or(0, |whole| whole.start());
        let backend = text("backend").map(|name| name.to_uppercase().replace("UR", "XPU"));
        let fill = |template: &str| fill(template, groups, backend.as_deref());
        self.findings.errors.push(FoundError {
            error,
            title: fill(error.title),
            sentence: fill(form.sentence),
            excerpt: excerpt(line, start),
            key,
            backend: backend.clone(),
            line: self.lines + 1,
            ranks: rank.into_iter().collect(),
            count: 1,
            form: at,
        });
    }

    fn keep_aftermath(&mut self, sentence: &'static str, line: &[u8], groups: &Captures<'_>) {
        let rank = rank(line, groups);
        if let Some(known) = self.findings.aftermath.iter_mut().find(|known| known.sentence == sentence) {
            known.ranks.extend(rank.filter(|rank| !known.ranks.contains(rank) && known.ranks.len() < MOST_RANKS));
        } else {
            let ranks = rank.into_iter().collect();
            self.findings.aftermath.push(AftermathLine { sentence, line: self.lines + 1, ranks });
        }
    }
}

#[expect(clippy::naive_bytecount, reason = "the compiler makes it fast enough")]
fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

fn contains(line: &[u8], literal: &str) -> bool {
    line.windows(literal.len()).any(|window| window == literal.as_bytes())
}

/// Returns the line without colours, frames and the shell of a container's JSON log.
fn plain(raw: &[u8]) -> Vec<u8> {
    let line = ESCAPES.replace_all(raw, b"".as_slice());
    let line = line.trim_ascii();
    let line = ["│", "┃", "|"].iter().fold(line, |line, frame| {
        let line = line.strip_suffix(frame.as_bytes()).unwrap_or(line);
        line.strip_prefix(frame.as_bytes()).unwrap_or(line)
    });
    let line = line.strip_prefix(br#"{"log":""#.as_slice()).unwrap_or(line);
    line.trim_ascii().to_vec()
}

/// Whether the match is an error, and not a line of source code or prose that mentions one.
fn is_event(line: &[u8], groups: &Captures<'_>, form: &ErrorForm) -> bool {
    let start = groups.get(0).map_or(0, |whole| whole.start());
    let before = &line[..start];
    if CODE.is_match(before) {
        return false;
    }
    (form.starts_anywhere || START.is_match(before)) && !HARMLESS.is_match(line)
}

fn rank(line: &[u8], groups: &Captures<'_>) -> Option<LogRank> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let of_group = groups.name("local_rank").and_then(|rank| text(rank.as_bytes()).parse().ok());
    of_group.map(LogRank::Local).or_else(|| {
        let before = text(&line[..groups.get(0).map_or(0, |whole| whole.start())]);
        let prefix: String =
            before.split("  ").next()?.chars().filter(|character| !character.is_whitespace()).collect();
        find::rank(&prefix)
    })
}

/// Puts the groups of a match into a sentence. Groups whose names start with `bytes` are written as amounts.
fn fill(template: &str, groups: &Captures<'_>, backend: Option<&str>) -> String {
    let mut filled = String::new();
    for (at, part) in template.split(['{', '}']).enumerate() {
        if at % 2 == 0 {
            filled.push_str(part);
            continue;
        }
        let value = groups.name(part).map(|group| String::from_utf8_lossy(group.as_bytes()).into_owned());
        let value = match part {
            "backend" => Some(backend.unwrap_or("CUDA").to_owned()),
            _ if part.starts_with("bytes") => {
                value.map(|value| value.replace(',', "").parse().map_or(value, |bytes| exact(Bytes(bytes))))
            }
            _ => value,
        };
        filled.push_str(&value.unwrap_or_else(|| "?".to_owned()));
    }
    Text::new(filled).to_string()
}

/// Returns the text of an error from the name of its exception on, without the copies of other ranks in the same line.
fn excerpt(line: &[u8], start: usize) -> Text {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"._".contains(byte);
    let before = line[..start].trim_ascii_end();
    let name = before.strip_suffix(b":").filter(|before| before.ends_with(b"Error") || before.ends_with(b"Exception"));
    let start = name.map_or(start, |name| name.iter().rposition(|byte| !is_name(byte)).map_or(0, |at| at + 1));
    let text = String::from_utf8_lossy(&line[start..]).into_owned();
    let beginning = text.char_indices().nth(REPEATED).map_or("", |(at, _)| &text[..at]);
    let copies = if beginning.is_empty() { None } else { text.match_indices(beginning).nth(1) };
    let text = copies.map_or(text.as_str(), |(at, _)| text[..at].trim_end());
    let end = text.char_indices().nth(LONGEST_EXCERPT).map(|(at, _)| at);
    Text::new(end.map_or_else(|| text.to_owned(), |end| format!("{}...", &text[..end])))
}
