//! The gate that each claim of a failure passes: by the words of a known form, by other words, and
//! by a message of PyTorch.
//!
//! The same words may report a failure, or stand in advice, source code, a test, a quotation, or a
//! line on a retry that succeeded. The text around them decides.

use std::ops::Range;
use std::sync::LazyLock;

use regex::bytes::{Match, Regex};

use super::log_line::{is_code, is_definition, is_harmless, is_quotation, is_start};
use super::log_pattern;

/// The meaning that the text around a claim gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing has failed in this line.
    Mention,
    /// A warning or less: the program may have continued.
    Warning,
    /// Neither a level nor an exception.
    Plain,
    /// The level of the line, or an exception, says that something failed.
    Error,
}

struct ClaimPatterns {
    error_level: Regex,
    low_level: Regex,
    exception: Regex,
    prose: Regex,
    denied: Regex,
    quoted: Regex,
    quoting: Regex,
    error_record: Regex,
    reporting: Regex,
    went_on: Regex,
    redis_mark: Regex,
}

static PATTERNS: LazyLock<ClaimPatterns> = LazyLock::new(|| ClaimPatterns {
    error_level: log_pattern(
        r"(?x)
        \bNCCL\ WARN\b | \b(?:ERROR|EXCEPTION|FATAL|CRITICAL|SEVERE|PANIC|ALERT|EMERG|FAILED)\b
        | \[(?:E|F|ERR|error|fatal|err|crit|critical)\] | (?:^|[\s\[|])[EF]\d{3,4}\b | (?:^|[\d\]]\ |\[)[EF][\ ]
        | \blevel=\x22?(?:error|fatal|crit|panic) | \x22(?:level|severity|levelname|lvl)\x22\s*:\s*\x22(?:error|fatal|critical|ERROR|FATAL|CRITICAL)
        | (?:^|[\]):>|\d]\ ?)(?:[Ff]atal\ )?[Ee]rror\b | ^\w+:\ (?:fatal\ )?error: | !!! | \bwhat\(\): | terminate\ called | terminating\ (?:due\ to|with)\ uncaught | panicked\ at
        ",
    ),
    low_level: log_pattern(
        r"(?x)
        \b(?:WARN|WARNING|INFO|DEBUG|TRACE|NOTICE|VERBOSE|Info|Debug)\b | Warning\b
        | \[(?:W|I|D|warn|warning|info|debug)\] | (?:^|[\s\[|])[WID]\d{3,4}\b | (?:^|[\d\]]\ |\[)[WID][\ ]
        | \blevel=\x22?(?:warn|info|debug|trace) | \x22(?:level|severity|levelname|lvl)\x22\s*:\s*\x22(?:warn|info|debug|WARN|INFO|DEBUG)
        | (?i:^\W*(?:warning|note|hint|tip|usage)\b)
        ",
    ),
    exception: log_pattern(
        r"(?:[A-Za-z_][\w.:]*)?(?:Error|Exception|Failure|OutOfMemory|OutOfResources)(?:Error|Exception)?(?:\([\x22']?|:|\s*$)|^Error\b",
    ),
    // Words before a claim by which advice, documentation, tests and changes speak of failures that
    // have not happened here.
    prose: log_pattern(
        r"(?x)
        (?:^|[^\w/.])
        (?: [Ii]f | [Ww]henever | [Hh]ow | [Ww]hy | may | might | should | would | avoid\w* | Avoid\w* | prevent\w* | Prevent\w* | handl(?:es|ed|ing) | [Tt]o\ handle
          | Handl\w+ | catch\w* | Catch\w* | docs? | Docs? | documentation | example | Example | in\ case | In\ case | instead\ of | so\ that
          | reduc(?:e|es|ed|ing) | Reduc\w+ | fix(?:es|ed)? | Fix(?:es|ed)? | risk | chance | simulat\w+ | expect(?:ed|s)? | helps? | detects?
          | Would | Might | Could | [Bb]ug[\ -]?fix\w* | [Rr]esolv(?:es?|ed|ing) | RESOLVED | FIX[M]E | TO[D]O | [Kk]nown\ issues?
          | (?:[Pp]revious|[Ll]ast)\ (?:run|attempt|try|trial|job) | [Ss]imulated | FAQ | Subject | Title | xfail | XFAIL | [Pp]enalty
          | [Ss]kipp(?:ed|ing|s) | SKIP | SKIPPED | that\ r[ua]n | until | usually | often | sometimes | could\ (?:run|go|be)
          | [Cc]lose\ to | [Rr]eported\ by | e\.g\. | [Ll]egend | [Ee]xit[\ _][Cc]odes | [Pp]revious\ (?:exit)? | [Ee]arlier | [Ii]nject\w+ | can\ (?:run|go|be|cause|lead) )
        (?:[^\w/(]|$)
        | https?://\S*$
        ",
    ),
    // Words before a claim that deny it, or say that a test is about it, unless the line reports an
    // error.
    denied: log_pattern(
        r"(?:^|[^\w/.])(?:no|No|[Nn]one|not an?|without|never) [^.]*$|(?:^|[\s:/.])test_\w+",
    ),
    // A quotation that begins with the claim, or with the name of its exception.
    quoted: log_pattern(r"(?:^|\W)(?P<quote>[\x22'`])(?:[\w.]+: ?){0,3}$"),
    // The end of the text before a quotation, or inside of it, of what somebody else wrote: a key
    // of a data set, a heading, or the next item of a list.
    quoting: log_pattern(
        r"(?i)\b(?:text|prompt|instruction|sentence|comment|title|label|query|input|content|caption|question|answer|generat\w+|completion|summary|description|subject)[\x22']?\s*[:=]\s*(?:$|[\x22'`][^\x22'`]*$)|[\x22'],\s*[\x22']$",
    ),
    // The level of a log line that is one JSON object, before or after its message.
    error_record: log_pattern(
        r"^\s*\{.*\x22(?:level|severity|levelname|lvl)\x22\s*:\s*\x22(?i:error|fatal|critical)",
    ),
    // The end of the text before a quotation of a program's own message.
    reporting: log_pattern(
        r"(?i)(?:^|[(\[{,=:>\\/|&!-]|\]|\)|\b(?:error|err|fail\w*|with|to|status|reason|exception|returned?|message|code|raised|by|of|value|was|is|at|b|r)(?: (?:= )?-?\d+)?)\s*$",
    ),
    // Words after a claim by which a program says that it goes on, or a test that it wanted the
    // failure.
    went_on: log_pattern(
        r"(?x)
        ^[^.]{0,60}?[,;:(-]+\s*(?i: (?:and\ )?retrying | dropping | discarding | next\ try | trying\ (?:again|with|batch|size|half|a\ smaller|smaller|\d) | falling\ back | skipping | ignoring
          | evicting | continuing | halving | now\ using | best\ config | (?:reducing|lowering|halving)\b.{0,60}\bretry
          | (?:freeing|emptied|emptying|clearing)\b.{0,40}\bretr )
        | \(expected\)|\bas\ expected\b
        ",
    ),
    // The time in a line of Redis, and the mark of its level: `# ` is no comment there.
    redis_mark: log_pattern(r"^\d+:[A-Z] .{8,30}? [#*] "),
});

/// Returns what the text around a claim in this part of the line says of it.
pub(super) fn standing(line: &[u8], claim: Range<usize>) -> Standing {
    let claim = without_punctuation(line, claim);
    let (before, after) = (text_before(line, claim.start), &line[claim.end..]);
    let error = PATTERNS.error_level.find(before).map(|found| found.start());
    let is_error = error.is_some() || names_exception(line, claim.start);
    let is_denied = !is_error && PATTERNS.denied.is_match(before);
    let is_prose = is_denied || PATTERNS.prose.is_match(before);
    let is_quoted =
        (is_quoted(before) || is_quotation(line)) && !PATTERNS.error_record.is_match(line);
    let is_told = is_code(before) || is_prose || is_quoted;
    if is_told || PATTERNS.went_on.is_match(after) || is_definition(after) || is_harmless(line) {
        return Standing::Mention;
    }
    let low = PATTERNS.low_level.find(before).map(|found| found.start());
    match (low, error) {
        (Some(low), error) if error.is_none_or(|error| low < error) => Standing::Warning,
        (_, None) if !names_exception(line, claim.end) => Standing::Plain,
        _ => Standing::Error,
    }
}

/// Returns the claim without the quotation marks and punctuation that its pattern takes with it:
/// they belong to the text around it.
fn without_punctuation(line: &[u8], claim: Range<usize>) -> Range<usize> {
    let words = &line[claim.clone()];
    let is_mark = |byte: &&u8| b"\x22'`,;:. ".contains(byte);
    let (before, after) = (
        words.iter().take_while(is_mark).count(),
        words.iter().rev().take_while(is_mark).count(),
    );
    if before == words.len() {
        claim
    } else {
        claim.start + before..claim.end - after
    }
}

/// Returns the text before this place, without the time and the mark of the level in a line of
/// Redis.
pub(super) fn text_before(line: &[u8], place: usize) -> &[u8] {
    let before = &line[..place];
    PATTERNS
        .redis_mark
        .find(before)
        .map_or(before, |mark| &before[mark.end()..])
}

/// Whether the line has the name of an exception, where a message starts, before this place.
pub(super) fn names_exception(line: &[u8], end: usize) -> bool {
    let is_exception = |name: Match<'_>| name.start() <= end && is_start(&line[..name.start()]);
    PATTERNS.exception.find_iter(line).any(is_exception)
}

/// Whether the claim is in a quotation of words that somebody looks for, explains or has written.
fn is_quoted(before: &[u8]) -> bool {
    let quote = PATTERNS
        .quoted
        .captures(before)
        .and_then(|groups| groups.name("quote"));
    PATTERNS.quoting.is_match(before)
        || quote.is_some_and(|quote| !PATTERNS.reporting.is_match(&before[..quote.start()]))
}
