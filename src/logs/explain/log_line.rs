//! A line of a log: without colours and frames, and whether it reports something or is source code,
//! prose or a quotation.

use std::sync::LazyLock;

use regex::bytes::Regex;

use super::log_pattern;

/// The most bytes at the beginning of a line in which a speaker is looked for.
const LONGEST_BEGINNING: usize = 1024;

static ESCAPES: LazyLock<Regex> = LazyLock::new(|| {
    log_pattern(
        r"\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.|\^\[\[[0-9;]*m",
    )
});

/// Text that shows that a line is source code, a command or prose: before the error.
static CODE: LazyLock<Regex> = LazyLock::new(|| {
    log_pattern(
        r"(?x)
        (?:^|[\s\]|>:;({\d]|│|❱)(?:fn|raise|except|assert|return|elif|if|print|def|import|throw|catch|class|alias|\#define)[\s(:]
        | (?:print|log|logger|logging|warn|warnings|error|console|printf|fprintf|str|match|contains|startswith|endswith|find|search|compile)
          (?:\.\w+)?\(
        | (?:^[+-]?|\s)(?:\#{1,6}|//|/\*|>>>|\$|grep|rg|sed|awk|echo)\s
        | ^\s*:raises?\s | ^\s*(?:case|catch)\s | ^\s*\#\s?define\s
        | \.(?:md|rst)[:-]\d+[:-]
        | [!=]=\s*$
        | \s=\s*[\x22']$
        ",
    )
});

/// Text that says that nothing has failed, or that the program continued.
static HARMLESS: LazyLock<Regex> = LazyLock::new(|| {
    log_pattern(
        r"(?x)
        The\ caller\ indicates\ that\ this\ is\ not\ a\ failure | \]\ No\ valid\ triton\ configs | Ignoring\ this\ choice
        | [Ss]kipping\ tactic | [Rr]etract\ requests | \#retracted_reqs | [Ff]alling\ back\ to | [Ff]ell\ back\ to
        | =\ -1\ E[A-Z]+\ \( | \bis\ ENOMEM\b | failed\ to\ mlock | static\ TLS\ block | spilling\ to\ disk | ;\ split(?:ting)?\ into\b | \(default:\ | \(OOM\s?[:=]
        | \bbatch[\ _]size:?\ \d+\ ->\ \d+ | \[\s*(?:PASSED|OK|RUN)\s*\] | \bPASSED\b | ^\W*✓.*\(\d+\ ?m?s\)$ | \{\{\ 
        | (?:^|\s)0\ (?:pods|jobs|tasks|workers|processes|containers|events|batches|errors)\b | \}\s+0(?:\.0+)?\s*$
        | [Rr]etrying\ (?:with|without|in|on|at)\b | [Ww]ill\ (?:be\ )?retr(?:y|ied) | ,\ offloading\ | [Ss]kipping\ (?:this\ |the\ )?(?:batch|sample|step)
        ",
    )
});

/// The text before an error is the start of its line, with a time, a rank, the name of an exception
/// and so on.
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

/// The start of a line in which somebody else speaks: a turn of a chat, a text of a data set, a
/// line of `git log`.
static QUOTATION: LazyLock<Regex> = LazyLock::new(|| {
    log_pattern(
        r"(?x)
        ^\#\d+\s+(?:OPEN|CLOSED|MERGED)\b
        | ^\W{0,4}(?:[Ss]ample|[Ee]xample|[Gg]enerated|[Rr]esponse|[Cc]ompletion|[Pp]rediction|User|USER|Assistant|ASSISTANT|Human|HUMAN|Bot|AI|Q|A|Question|Answer|Prompt|PROMPT|Instruction|Customer|Student)
          \ ?\d{0,3}\ ?(?:\([^)]*\))?\W?:(?:\s|$)
        | <\|?(?:user|assistant|im_start|human)\|?>
        | \x22(?:content|prompt|instruction|question|answer|completion|conversations)\x22\s*:\s*\x22
        | ^(?:(?:[*|/\\]\ ){0,4}[0-9a-f]{7,40}|[*-])\ (?:\([^)]*\)\ )?
          (?: (?:fix|feat|docs?|chore|test|tests|refactor|perf|ci|build|style|revert)(?:\([^)]*\))?!?:
            | (?:Fix|Add|Handle|Catch|Avoid|Remove|Merge|Update|Revert|Document|Improve|Support|Make|Retry|Reduce|Use|Allow|Raise|Explain)\w*\ )
        ",
    )
});

/// The rest of a sentence that explains an error instead of reporting one.
static DEFINITION: LazyLock<Regex> = LazyLock::new(|| {
    log_pattern(
        r"^\W{0,3}(?:means?|usually|indicates?|is (?:an?|the|when|raised|thrown|usually|often|caused))\b",
    )
});

/// Returns the line without colours, frames and the shell of a container's JSON log.
pub(super) fn without_markup(raw: &[u8]) -> Vec<u8> {
    let line = ESCAPES.replace_all(raw, b"".as_slice());
    let line = line.trim_ascii();
    let line = ["│", "┃", "|"].iter().fold(line, |line, frame| {
        let line = line.strip_suffix(frame.as_bytes()).unwrap_or(line);
        line.strip_prefix(frame.as_bytes()).unwrap_or(line)
    });
    let line = line.strip_prefix(br#"{"log":""#.as_slice()).unwrap_or(line);
    line.trim_ascii().to_vec()
}

/// Whether the text before an error belongs to source code or a command.
pub(super) fn is_code(before: &[u8]) -> bool {
    CODE.is_match(before)
}

/// Whether the line says that nothing has failed, or that the program continued.
pub(super) fn is_harmless(line: &[u8]) -> bool {
    HARMLESS.is_match(line)
}

/// Whether an error after this text stands where a message starts: after a time, a rank, or the
/// name of an exception.
pub(super) fn is_start(before: &[u8]) -> bool {
    START.is_match(before)
}

/// Whether somebody else speaks in the line, as in a chat that a program prints.
pub(super) fn is_quotation(line: &[u8]) -> bool {
    QUOTATION.is_match(&line[..line.len().min(LONGEST_BEGINNING)])
}

/// Whether the text after an error explains what such an error is.
pub(super) fn is_definition(after: &[u8]) -> bool {
    DEFINITION.is_match(after)
}
