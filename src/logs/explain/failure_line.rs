//! Recognises lines that state a failure of memory in words that no known form has.
//!
//! The line says that memory was missing, and is no source code, setting, count, advice or prose.
//! Its level or the exception that it names shows that something failed. Without both, the log or
//! the program must end soon after it.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use regex::bytes::{Captures, Regex};

use super::claim::{self, Standing};
use super::known_errors::TABLE;
use super::log_line::is_start;
use super::{literal_search, log_pattern};

/// How a line shows that something failed, the strongest sign first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FailureSign {
    /// By its level, or by the exception that it names.
    Error,
    /// By its words alone: they count only if the log or the program ends soon after the line.
    WordsAlone,
    /// Not at all: it only speaks of such a failure.
    Mention,
}

/// The most bytes at the beginning of a line that are read.
const LONGEST_STATEMENT: usize = 4096;

/// An error number's message at the end of a line, after the name of what failed: a program's own
/// words, never prose.
const ERROR_NUMBER: &str = r"(?i):\s*(?:out of memory|cannot allocate memory|not enough memory|insufficient memory)[.!]?(?: ?\(\d+\))?\s*$";

/// All texts of which a line that states a failure contains one.
pub(super) fn literals() -> impl Iterator<Item = &'static str> {
    let statements = TABLE.statements.iter();
    statements.flat_map(|statement| statement.literals.iter().copied())
}

struct FailurePatterns {
    literals: AhoCorasick,
    /// The statement to which each literal belongs.
    of_literals: Vec<usize>,
    statements: Vec<Regex>,
    error_number: Regex,
    guess: Regex,
    general: Regex,
    introduced: Regex,
    stated: Regex,
    conditional: Regex,
    explained: Regex,
    strong: Regex,
    result: Regex,
    no_failure: Regex,
    other_resource: Regex,
    adjective: Regex,
    moved: Regex,
}

static PATTERNS: LazyLock<FailurePatterns> = LazyLock::new(|| FailurePatterns {
    literals: literal_search(literals(), AhoCorasickKind::ContiguousNFA),
    of_literals: TABLE
        .statements
        .iter()
        .enumerate()
        .flat_map(|(place, statement)| vec![place; statement.literals.len()])
        .collect(),
    statements: TABLE
        .statements
        .iter()
        .map(|statement| log_pattern(statement.pattern))
        .collect(),
    error_number: log_pattern(ERROR_NUMBER),
    guess: log_pattern(
        r"(?i)\b(?:possibl[ey]|likely|probably|perhaps|maybe|potential(?:ly)?|when)\s|(?:\b[a-z]{2,}[ ,]+){5}",
    ),
    // The rest of a sentence about failures in general, of a question, and of a line of source
    // code.
    general: log_pattern(
        r"^[^.:;(]*\b(?:may|might|can|could|should|would|is|are|was|if|usually|often|occurs|happens|means|caused|causes|warnings?|errors)\b|\?\s*$|[;,{]\s*$",
    ),
    // Words before a statement that make it a report: "failed with", "ran", "container was".
    introduced: log_pattern(
        r"(?x)
        (?: (?i: \b(?:fail(?:ed|ure)|errors?|exception|crash(?:ed)?|abort(?:ed)?|died|returned|exited|stopped|interrupted)\b
              (?:\ (?:with|by|from|at|due\ to|because\ of|because|code|status|reason|in|of|on))* (?:\ error)? (?:\ [-\d]+)? [\s:,;('\x22\[=-]* (?:[-\d]+\ ?\(?)?(?:process\ )?)
          | (?:^|[\s:\])])(?: [Rr]an | [Gg]ot\ an? | [Hh]it\ an? | [Ee]ncountered\ an? | [Rr]eason: | [Dd]ue\ to | [Bb]ecause\ of | [Tt]here\ is
              | (?:\w+\ ){0,3}(?:was|were|been|is|are|went|ran|became) | (?:DETAIL|HINT|[Dd]etails?): )\ ?
          | (?i:\b(?:fail(?:ed|ure)|error|unable|could\ not|cannot|crash(?:ed)?)\b)[^.;?]{0,60}[,:(-]\ ?
          | (?:^|:\ |\]\ )\W*(?:\[[^\]]*\]\ ?)*(?:[A-Za-z][\w.-]*\ ){1,2} )$
        ",
    ),
    // Words after a statement that make it a report.
    stated: log_pattern(
        r"^ (?:error |exception )?(?:has |have |was )?(?:happened|occurred|occured|encountered|detected|reported)\b",
    ),
    conditional: log_pattern(
        r"(?i)\b(?:when|whenever|if|kills)\b|\bkilled:? \d+\b|\bno memory\b|\bnot exceeded\b|\benough \w+ in memory\b",
    ),
    // Words anywhere before a statement by which a sentence explains, or estimates.
    explained: log_pattern(
        r"(?i)\b(?:means|because it|when|whenever|what to do|estimated|projected|predicted|injecting)\b|^\W*ENOMEM ",
    ),
    strong: log_pattern(
        r"(?i)^(?:failed|unable|cannot|can not|can't|could not|couldn't|exceeded|killed by|alloc\w*.*failed)\b",
    ),
    // Bare "OOM" in a table of results, a list, or a legend.
    result: log_pattern(r"(?:=\s*\d+:?|\||->|\d:|[\x22'=]|\b(?:for|of|about|against|on|from))\s*$"),
    // The text after words that name a failure without stating one: a setting, a count of 0, a part
    // of the system.
    no_failure: log_pattern(
        r"(?xi)
        ^(?: [\ -]?\(?(?:OOM\)\ )?(?: killers? | scores? | handl\w+ | retr(?:y|ies) | protect\w* | polic(?:y|ies) | monitor\w* | thresholds? | adj\w*
              | guards? | issues | situations? | conditions? | risks? | prevention | tests? | counts? | counters? | safe\w* | aware | detect\w+ | recover\w+
              | behaviou?r | observer | caught | watcher | hooks? | callbacks? | reaper | notif\w* | victim | kill\ disable\w* | is\ (?:now\ )?caught | events
              | kills?\ (?:counts?|events?) | checks? | mapped | trials? | jobs\ (?:are|get|will) )\b
          | \s+0(?:\ times?)?\s*$ | \?\ +\w | \s*=\s+\w | :\ out\ of\ memory\) | :\ (?:ok|passed)\b
          | \w*[\x22']?\s*[:=]\s*[\x22']?(?:0(?:[^.\d]|$)|-?\d+[;,]?\s*$|false\b|no\b|none\b|null\b|off\b|disabled\b|true\b|kill\b|\w+\(\)) )
        ",
    ),
    other_resource: log_pattern(
        r"(?i)^ ?(?:(?:a|an|the|new|requested|any) )*(?:resource|ip|port|address|node|job|task|thread|id|slot|subnet|gpu|device|cpu|core|quota|inode|tty|pty|license|budget|terminal|pseudo-terminal|socket|handle|connection|gateway|network|host\ port|channel|seat|session|color|partition|container|disk|inode|hugetlbfs)s?\b",
    ),
    // Words between "allocate" and a noun for memory that say whose memory: "allocate GPU memory".
    adjective: log_pattern(
        r"(?i)^ ?(?:(?:a|an|the|new|requested|any|\w+) )*(?:gpu|device|cpu|host)s? $",
    ),
    // Words before "out of memory" that say where data comes from: "read out of memory".
    moved: log_pattern(
        r"(?i)\b(?:swapped|paged|phased|read|reads|reading|loaded|loading|moved|copied|streamed|served)\b(?: \w+){0,2} $",
    ),
});

/// Returns the text after the last end of a sentence.
fn last_sentence(text: &[u8]) -> &[u8] {
    let end = text.windows(2).rposition(|pair| pair == b". ");
    end.map_or(text, |end| &text[end + 2..])
}

/// Returns how a line shows that memory was missing. `None` if it does not say that.
pub(super) fn sign(line: &[u8]) -> Option<FailureSign> {
    let line = &line[..line.len().min(LONGEST_STATEMENT)];
    let mut statements: Vec<usize> = PATTERNS
        .literals
        .find_overlapping_iter(line)
        .map(|found| PATTERNS.of_literals[found.pattern().as_usize()])
        .collect();
    statements.sort_unstable();
    statements.dedup();
    let matches = statements
        .iter()
        .flat_map(|place| PATTERNS.statements[*place].captures_iter(line));
    matches
        .filter_map(|groups| sign_of_statement(line, &groups))
        .min()
}

fn sign_of_statement(line: &[u8], groups: &Captures<'_>) -> Option<FailureSign> {
    let statement = groups.get(0)?;
    let standing = claim::standing(line, statement.range());
    if standing == Standing::Mention {
        return Some(FailureSign::Mention);
    }
    let (before, after) = (
        claim::text_before(line, statement.start()),
        &line[statement.end()..],
    );
    let is_noun_next =
        |end: usize| line.get(end).is_some_and(u8::is_ascii_alphabetic) && end < statement.end();
    let is_other = |name| {
        groups.name(name).is_some_and(|words| {
            let says_whose =
                || is_noun_next(words.end()) && PATTERNS.adjective.is_match(words.as_bytes());
            PATTERNS.other_resource.is_match(words.as_bytes()) && !says_whose()
        })
    };
    let is_other = is_other("before") || is_other("after");
    let is_other = is_other || PATTERNS.conditional.is_match(statement.as_bytes());
    let is_moved = statement.as_bytes().starts_with(b"out of") && PATTERNS.moved.is_match(before);
    let is_in_list = before.ends_with(b"[") && after.starts_with(b", ");
    if is_other || is_moved || is_in_list || PATTERNS.no_failure.is_match(after) {
        return None;
    }
    match standing {
        Standing::Error => return Some(FailureSign::Error),
        // An exception that a program passes on at a low level counts like words alone.
        Standing::Warning => {
            return claim::names_exception(line, statement.end())
                .then_some(FailureSign::WordsAlone);
        }
        Standing::Plain | Standing::Mention => {}
    }
    let introduction = PATTERNS.introduced.find(before).map(|words| words.start());
    let is_stated = introduction.is_some()
        || PATTERNS.strong.is_match(statement.as_bytes())
        || is_start(before)
        || PATTERNS.stated.is_match(after);
    let subject = last_sentence(&before[..introduction.unwrap_or(before.len())]);
    let is_listed = after.starts_with(b",") && after.iter().any(u8::is_ascii_digit);
    let is_result =
        statement.as_bytes() == b"OOM" && (is_listed || PATTERNS.result.is_match(before));
    let is_said = is_stated
        && !is_result
        && !PATTERNS.explained.is_match(before)
        && !PATTERNS.guess.is_match(subject)
        && !PATTERNS.general.is_match(after);
    let is_error_number = PATTERNS
        .error_number
        .find(line)
        .is_some_and(|end| end.end() >= statement.end());
    (is_said || is_error_number).then_some(FailureSign::WordsAlone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_example_is_recognised_by_its_own_words() {
        for statement in &TABLE.statements {
            let example = statement.example;
            assert!(
                statement
                    .literals
                    .iter()
                    .any(|literal| example.contains(literal)),
                "{example}"
            );
            assert!(
                log_pattern(statement.pattern).is_match(example.as_bytes()),
                "{example}"
            );
            assert!(
                sign(example.as_bytes()).is_some_and(|sign| sign != FailureSign::Mention),
                "{example}"
            );
        }
    }
}
