//! Recognises lines that state a failure of memory in words that no known form has.
//!
//! The line says that memory was missing, and is no source code, setting, count, advice or prose. Its level or the exception
//! that it names shows that something failed. Without both, the log or the program must end soon after it.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use regex::bytes::Regex;

use super::log_line::{is_code, is_harmless, is_start};
use super::{literal_search, log_pattern};

/// How a line shows that something failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureSign {
    /// By its level, or by the exception that it names.
    Error,
    /// By its words alone: they count only if the log or the program ends soon after the line.
    WordsAlone,
}

/// Words by which programs say that memory was missing.
struct Statement {
    /// Texts of which each line with these words contains one.
    literals: &'static [&'static str],
    pattern: &'static str,
    /// A line that states a failure in these words.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test reads it"))]
    example: &'static str,
}

const fn statement(literals: &'static [&'static str], pattern: &'static str, example: &'static str) -> Statement {
    Statement { literals, pattern, example }
}

const STATEMENTS: &[Statement] = &[
    statement(
        &[
            "ut of mem",
            "ut of Mem",
            "ut Of Mem",
            "UT OF MEM",
            "ut-of-mem",
            "ut-of-Mem",
            "ut-Of-Mem",
            "ut of gpu",
            "ut of GPU",
            "ut of dev",
            "ut of host",
            "ut of cuda",
            "ut of CUDA",
            "ut of shared",
            "ut of vid",
            "ut of virt",
            "ut of phys",
            "ut of sys",
            "ut of hbm",
            "ut of HBM",
            "ut of pinned",
            "ut of proc",
            "ut of vram",
            "ut of VRAM",
            "ut of RAM",
            "ut of heap",
            "ut of free",
            "ut of avail",
            "ut of unif",
            "ut of priv",
            "ut of metal",
            "ut of Metal",
            "ut of graph",
            "ut of main",
            "ut of CPU",
            "ut of cpu",
        ],
        r"(?i)\b(?:(?-i:[A-Z]{2,5}) )?out[ -]of[ -](?:(?:and|process|private|gpu|device|host|cuda|shared|video|virtual|physical|system|main|hbm|pinned|unified|free|available|metal|graphics|cpu|on-chip)[ -]){0,4}(?:memory|mem|vram|ram|hbm|heap)\b",
        "ERROR: LoadError: Out of GPU memory trying to allocate 4.000 GiB",
    ),
    statement(
        &["UT_OF_", "OUTOFMEMORY"],
        r"\b(?:[A-Za-z0-9]\w*_)?(?:OUT_OF_(?:[A-Z]+_)*(?:MEMORY|RESOURCES|MEM)|OUTOFMEMORY)\b",
        "VK_ERROR_OUT_OF_DEVICE_MEMORY",
    ),
    statement(
        &["OutOf"],
        r"(?:^|[^A-Za-z]|[Ee]rror|Exception)OutOf[A-Z]\w*?(?:Memory|Resources)(?:Error|Exception)?\b|(?:^|[^A-Za-z]|[Ee]rror|Exception)OutOfMemory\w*",
        "java.lang.OutOfMemoryError: Java heap space",
    ),
    statement(
        &["ot enough ", "o enough ", "nsufficient ", "ack of ", "NSUFFICIENT_"],
        r"(?i)\b(?:not enough|no enough|insufficient|lack of)[ -](?:[\w/]+[ -]){0,3}?(?:memory|vram|ram|hbm)\b|(?-i:\b\w*INSUFFICIENT_(?:MEMORY|RESOURCES))\b",
        "RuntimeError: Insufficient VRAM for model and cache",
    ),
    statement(
        &["insufficient", "not sufficient", "xhausted", "XHAUSTED"],
        r"(?i)\b(?:memory|heap|vram|ram|swap|hbm|cache)(?: space| pool)? (?:is |was |has been )?(?:insufficient|not sufficient|exhausted)\b|\bexhausted (?:all |the |its )?(?:\w+ ){0,2}(?:memory|vram|ram|heap)\b|\bRESOURCE_?EXHAUSTED(?:Error)?\b.{0,200}?(?:memory|alloc|\bOOM\b|reserve)",
        "ERROR: virtual memory exhausted",
    ),
    statement(
        &["o available ", "o free ", "o more ", "o memory "],
        r"(?i)\bno (?:available|free|more|remaining) (?:\w+ ){0,2}(?:memory|vram|ram)\b|\bno memory (?:left|available)\b",
        "ERROR no free GPU memory for the model",
    ),
    statement(
        &[
            "o alloc",
            "o realloc",
            "o malloc",
            "annot alloc",
            "an't alloc",
            "not alloc",
            "n't alloc",
            " CUDA calloc",
            " host alloc",
        ],
        r"(?i)\b(?:failed|fails|failing|cannot|can not|can't|could not|couldn't|unable|not able) (?:to )?(?:\w+ ){0,3}?(?:re|m|c)?alloc(?:ate)?\b(?P<after>.{0,80}?)(?:\b(?:memory|buffers?|tensors?|arrays?|pinned|heap|pages?|vram|ram|hbm|cache|workspace|chunk|pool|arena|storage|space)\b|\d ?(?:bytes|[kmgt]i?b?\b)|\d{4}|\s*$)",
        "Failed to CUDA calloc async 608 bytes",
    ),
    statement(
        &[
            "llocation fail",
            "llocation has ",
            "llocation of ",
            "llocation for ",
            "llocation error",
            "lloc fail",
            "lloc error",
        ],
        r"(?i)\b(?P<before>\w+ )?alloc(?:ation)?s?(?: of [\w.,: ]{1,40}?)?(?: for [\w.:, ]{1,40}?)? (?:has |have |was )?(?:failed|failure|error|refused|rejected)\b",
        "memory allocation of 8589934592 bytes failed",
    ),
    statement(
        &[
            "alloc(",
            "alloc fail",
            "alloc retry",
            "alloc ret",
            "alloc has",
            "alloc err",
            "alloc of size",
            "alloc:",
            "Alloc(",
            "Alloc fail",
            "llocAsync",
            "llocManaged",
            "llocHost",
            "MemCreate",
            "memalign(",
            "memalign fail",
        ],
        r"(?i)\b\w*(?:malloc|memalloc\w*|hostalloc|memcreate|memalign)\w*(?:\(.{0,60}?\))?(?: of size \d+)?:? (?:retry )?(?:has )?(?:failed|failure|returned (?:null|nullptr|0)|error|out of memory)\b",
        "[KeOps] error: cuMemAlloc(&p_data, sizeof(TYPE *) * nargs) failed",
    ),
    statement(
        &["ALLOC_FAIL", "ALLOCATION_FAIL"],
        r"\b\w*ALLOC(?:ATION)?_FAIL(?:ED|URE)\b",
        "OpenCL error: CL_MEM_OBJECT_ALLOCATION_FAILURE",
    ),
    statement(
        &[
            "o mmap",
            "o map ",
            "o reserve ",
            "annot map ",
            "annot reserve ",
            "o grow ",
            "o extend ",
            "o pin ",
            "o commit ",
        ],
        r"(?i)\b(?:failed|cannot|can't|could not|couldn't|unable|not able) (?:to )?(?:mmap|map|reserve|grow|extend|pin|commit)\b.{0,60}?\b(?:memory|bytes|[kmgt]i?b)\b",
        "OSError: Unable to mmap 8589934592 bytes from file <model.safetensors>: Cannot allocate memory (12)",
    ),
    statement(
        &["xceed"],
        r"(?i)\bexceed(?:ed|s|ing)? (?:\S+ ){0,4}?(?:memory|vram|ram|rss|hbm|mem)(?:[\s.,:;)]|$)|\b(?:memory|vram|ram|rss|hbm|mem)\b.{0,60}?\bexceed(?:ed|s|ing)?\b",
        "ERROR: job 12 exceeded its memory limit",
    ),
    statement(
        &[
            "ore memory",
            "ore GPU",
            "ore device",
            "ore system",
            "ore VRAM",
            "ore RAM",
            "aximum allowed buffer",
            "not fit ",
            "n't fit ",
            "equires ",
        ],
        r"(?i)\bmore (?:\w+ )?(?:memory|vram|ram) than\b|\bmaximum allowed buffer size\b|\brequires? .{0,40}?\d ?[kmgt]i?b\b.{0,60}?\b(?:memory|vram|ram)\b.{0,20}?\bavailable\b|(?:not|n't) fit (?:in|into|on|onto|within)\b.{0,30}?\b(?:memory|vram|ram|hbm|gpu)\b",
        "ValueError: the model does not fit into the memory of one GPU",
    ),
    statement(
        &["bad_alloc", "bad allocation", "ENOMEM", "MemoryError"],
        r"\b(?:std::)?bad_alloc\b|\bbad allocation\b|\bENOMEM\b(?:[):]|$)|\bMemoryErrors?\b",
        "multiprocessing.pool.MaybeEncodingError: MemoryError()",
    ),
    statement(
        &["OOM", "oom-kill", "oom_kill", "oom kill"],
        r"\bOOM(?:ed|s|Killed|-[Kk]illed)?\b|\boom[-_ ]kill(?:ed)?\b",
        "[ERROR] worker 3: OOM while loading the checkpoint",
    ),
    statement(
        &["illed", "KILLED"],
        r"(?i)\bkilled by (?:the )?(?:kernel )?(?:oom|out[- ]of[- ]memory)[- ]killer\b|\bkilled\b[^?.;]{0,80}?\b(?:memory|oom|sigkill|signal 9|signal: 9)\b|\b(?:memory|oom|sigkill|signal:? 9)\b[^?.;]{0,80}?\bkilled\b",
        "ERROR: pid 7 was killed by signal 9",
    ),
];

/// The most bytes at the beginning of a line that are read.
const LONGEST_STATEMENT: usize = 4096;

/// An error number's message at the end of a line, after the name of what failed: a program's own words, never prose.
const ERROR_NUMBER: &str =
    r"(?i):\s*(?:out of memory|cannot allocate memory|not enough memory|insufficient memory)[.!]?(?: ?\(\d+\))?\s*$";

/// All texts of which a line that states a failure contains one.
pub(super) fn literals() -> impl Iterator<Item = &'static str> {
    STATEMENTS.iter().flat_map(|statement| statement.literals).copied()
}

struct FailurePatterns {
    literals: AhoCorasick,
    /// The statement to which each literal belongs.
    of_literals: Vec<usize>,
    statements: Vec<Regex>,
    error_number: Regex,
    error_level: Regex,
    low_level: Regex,
    exception: Regex,
    prose: Regex,
    guess: Regex,
    general: Regex,
    no_failure: Regex,
    other_resource: Regex,
}

static PATTERNS: LazyLock<FailurePatterns> = LazyLock::new(|| FailurePatterns {
    literals: literal_search(literals(), AhoCorasickKind::ContiguousNFA),
    of_literals: STATEMENTS.iter().enumerate().flat_map(|(at, statement)| vec![at; statement.literals.len()]).collect(),
    statements: STATEMENTS.iter().map(|statement| log_pattern(statement.pattern)).collect(),
    error_number: log_pattern(ERROR_NUMBER),
    error_level: log_pattern(
        r"(?x)
        \b(?:ERROR|FATAL|CRITICAL|SEVERE|PANIC|ALERT|EMERG|FAILED)\b
        | \[(?:E|F|ERR|error|fatal|err|crit|critical)\] | (?:^|[\s\[|])[EF]\d{3,4}\b | (?:^|[\d\]]\ )[EF][\ ]
        | \blevel=\x22?(?:error|fatal|crit|panic) | \x22(?:level|severity|levelname|lvl)\x22\s*:\s*\x22(?:error|fatal|critical|ERROR|FATAL|CRITICAL)
        | (?:^|[\]):>|\d]\ ?)(?:[Ff]atal\ )?[Ee]rror\b | ^\w+:\ (?:fatal\ )?error: | !!! | \bwhat\(\): | terminate\ called | terminating\ (?:due\ to|with)\ uncaught | panicked\ at
        ",
    ),
    low_level: log_pattern(
        r"(?x)
        \b(?:WARN|WARNING|INFO|DEBUG|TRACE|NOTICE|VERBOSE|Info|Debug)\b | Warning\b
        | \[(?:W|I|D|warn|warning|info|debug)\] | (?:^|[\s\[|])[WID]\d{3,4}\b | (?:^|[\d\]]\ )[WID][\ ]
        | \blevel=\x22?(?:warn|info|debug|trace) | \x22(?:level|severity|levelname|lvl)\x22\s*:\s*\x22(?:warn|info|debug|WARN|INFO|DEBUG)
        | (?i:^\W*(?:warning|note|hint|tip|usage)\b)
        ",
    ),
    exception: log_pattern(
        r"(?:[A-Za-z_][\w.:]*)?(?:Error|Exception|Failure|OutOfMemory|OutOfResources)(?:Error|Exception)?(?:\([\x22']?|:|\s*$)|^Error\b",
    ),
    // Words before a statement by which advice, documentation and changes speak of failures that have not happened here.
    prose: log_pattern(
        r"(?x)
        \b(?: [Ii]f | [Ww]henever | [Hh]ow | [Ww]hy | may | might | should | would | avoid\w* | Avoid\w* | prevent\w* | Prevent\w* | handl(?:es|ed|ing)
          | Handl\w+ | catch\w* | caught | Catch\w* | docs? | Docs? | documentation | example | Example | in\ case | In\ case | instead\ of | so\ that
          | reduc(?:e|es|ed|ing) | Reduc\w+ | fix(?:es|ed)? | Fix(?:es|ed)? | risk | chance | simulat\w+ | expect(?:ed|s)? | helps? | detects? | never
          | no | No | not\ an? | without | until | test_\w+ | usually | often | sometimes | could\ (?:run|go|be) | can\ (?:run|go|be|cause|lead) )\b
        ",
    ),
    guess: log_pattern(
        r"(?i)\b(?:possibl[ey]|likely|probably|perhaps|maybe|potential(?:ly)?|when)\s|(?:\b[a-z]{2,}[ ,]+){5}",
    ),
    // The rest of a sentence about failures in general, of a question, and of a line of source code.
    general: log_pattern(
        r"^[^.:;]*\b(?:may|might|can|could|should|would|is|are|if|usually|often|occurs|happens|means|caused|causes|warnings?|errors)\b|\?\s*$|[;,{]\s*$",
    ),
    // The text after words that name a failure without stating one: a setting, a count of 0, a part of the system.
    no_failure: log_pattern(
        r"(?xi)
        ^(?: [\ -]?\(?(?:OOM\)\ )?(?: killers? | scores? | handl\w+ | retr(?:y|ies) | protect\w* | polic(?:y|ies) | monitor\w* | thresholds? | adj\w*
              | guards? | issues | situations? | conditions? | risks? | prevention | tests? | counts? | counters? | safe\w* | aware | detect\w+ | recover\w+
              | behaviou?r | kill\ disable\w* | is\ (?:now\ )?caught | events )\b
          | \w*[\x22']?\s*[:=]\s*[\x22']?(?:0(?:[^.\d]|$)|false\b|no\b|none\b|null\b|off\b|disabled\b|true\b|kill\b|\w+\(\)) )
        ",
    ),
    other_resource: log_pattern(
        r"(?i)^ ?(?:(?:a|an|the|new|requested|any) )*(?:resource|ip|port|address|node|job|task|thread|id|slot|subnet|gpu|device|cpu|core|quota|inode|tty|pty|license|budget)s?\b",
    ),
});

/// Whether the text before an error is prose: advice, documentation, or a change that deals with such errors.
pub(super) fn is_prose(before: &[u8]) -> bool {
    PATTERNS.prose.is_match(before)
}

/// Returns how a line shows that memory was missing. `None` if it does not state that.
pub(super) fn sign(line: &[u8]) -> Option<FailureSign> {
    let line = &line[..line.len().min(LONGEST_STATEMENT)];
    let mut statements: Vec<usize> = PATTERNS
        .literals
        .find_overlapping_iter(line)
        .map(|found| PATTERNS.of_literals[found.pattern().as_usize()])
        .collect();
    statements.sort_unstable();
    statements.dedup();
    if statements.is_empty() || is_harmless(line) {
        return None;
    }
    let matches = statements.iter().flat_map(|at| PATTERNS.statements[*at].captures_iter(line));
    let signs = matches.filter_map(|groups| {
        let statement = groups.get(0)?;
        let (before, after) = (&line[..statement.start()], &line[statement.end()..]);
        let is_other = |name| groups.name(name).is_some_and(|words| PATTERNS.other_resource.is_match(words.as_bytes()));
        let is_other = is_other("before") || is_other("after");
        if is_other || is_code(before) || PATTERNS.no_failure.is_match(after) || is_prose(before) {
            return None;
        }
        let error = PATTERNS.error_level.find(before).map(|found| found.start());
        let low = PATTERNS.low_level.find(before).map(|found| found.start());
        if low.is_some_and(|low| error.is_none_or(|error| low < error)) {
            return None;
        }
        // The name of an exception may be a part of the statement.
        let is_exception =
            |name: regex::bytes::Match<'_>| name.start() <= statement.end() && is_start(&line[..name.start()]);
        if error.is_some() || PATTERNS.exception.find_iter(line).any(is_exception) {
            return Some(FailureSign::Error);
        }
        let is_said = is_start(before) && !PATTERNS.guess.is_match(before) && !PATTERNS.general.is_match(after);
        let is_error_number = PATTERNS.error_number.find(line).is_some_and(|end| end.end() >= statement.end());
        (is_said || is_error_number).then_some(FailureSign::WordsAlone)
    });
    signs.min_by_key(|sign| *sign != FailureSign::Error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_example_is_recognised_by_its_own_words() {
        for statement in STATEMENTS {
            let example = statement.example;
            assert!(statement.literals.iter().any(|literal| example.contains(literal)), "{example}");
            assert!(log_pattern(statement.pattern).is_match(example.as_bytes()), "{example}");
            assert!(sign(example.as_bytes()).is_some(), "{example}");
        }
    }
}
