//! The lines after a failure: whether the program continued, or ended.

use std::sync::LazyLock;

use regex::bytes::Regex;

use super::log_pattern;

/// The most lines between a failure and the line in which the program says that it continued.
const MOST_LINES_TO_RECOVERY: u64 = 60;
/// The most lines between a failure that only its words show, and the end of the log or of the
/// program.
const MOST_LINES_TO_END: u64 = 8;
const MOST_KEPT: usize = 4096;
/// The most bytes at the beginning of a line that are read.
const LONGEST_BEGINNING: usize = 1024;

/// Words of a program that continued after a failed allocation: with less, elsewhere, or with the
/// next part of its work.
static CONTINUED: LazyLock<Regex> = LazyLock::new(|| {
    log_pattern(
        r"(?xi)
        \b(?:decreas|reduc|halv|lower)(?:ing|ed)\ (?:the\ )?(?:\w+[\ -]){0,2}batch | \btrying\ (?:with\ )?(?:a\ )?(?:smaller\ )?batch
        | \bretr(?:y|ying|ied)\ (?:\w+\ ){0,2}(?:without\ pipeline|with\ (?:a\ )?(?:smaller|less|lower|reduced|half|fewer|tiled|batch)|on\ (?:the\ )?cpu|on\ host)
        | \b(?:falling|falls|fell)\ back\ to\b.*\b(?:memory|cpu|host|tiled|smaller|less) | \bretrying\ with\ tiled
        | \b(?:retract\ requests|\#retracted_reqs)
        | \bskipping\ (?:this\ |the\ )?(?:batch|sample|step|iteration) | \bskipped\ (?:the\ |this\ |1\ )?batch
        | \brecover(?:ed|ing)?\ from\ (?:an?\ )?(?:oom|out[\ -]of[\ -]memory) | \bskipping\ this\ config
        | ^\W*(?:\w+:\ )?(?:study|training|scenario)\ (?:is\ )?(?:complete|completed|finished|passed)\b | ^test\ result:\ ok\b
        | \btrial\ \d+\ (?:finished|complete) | \bmain:\ server\ is\ listening
        | ^\W{0,4}(?:assistant|bot|ai)\W?:\s
        ",
    )
});

/// Words with which a program or its launcher ends.
static ENDED: LazyLock<Regex> = LazyLock::new(|| {
    log_pattern(
        r"(?xi)
        \bcore\ dumped\b | ^\W*(?:aborted|segmentation\ fault|killed|terminated|stack\ trace|backtrace|traceback\ \(most\ recent|make:\ \*\*\*)
        | \bexit(?:ed|ing)?\ (?:with\ )?(?:non-zero\ |exit\ )?(?:code|status)\W*[1-9] | ^\W*exiting\b | \bshutting\ down\b | \bterminate\ called\b
        | ^\W*exitcode\W*-?[1-9]
        ",
    )
});

/// Finds in the lines after a failure how the program went on.
#[derive(Debug, Default)]
pub(super) struct AfterFailure {
    /// The last line that is watched.
    watched: u64,
    /// The lines in which the program says that it continued.
    continued: Vec<u64>,
    /// The lines in which the program ended.
    ended: Vec<u64>,
}

impl AfterFailure {
    /// Watches the lines after a failure in `line`.
    pub(super) fn watch(&mut self, line: u64) {
        self.watched = line + MOST_LINES_TO_RECOVERY;
    }

    /// Reads whole lines, the first of which has this number.
    pub(super) fn read(&mut self, lines: &[u8], first: u64) {
        let mut number = first;
        for part in lines.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            if number > self.watched {
                return;
            }
            let beginning = &part[..part.len().min(LONGEST_BEGINNING)];
            if self.continued.len() < MOST_KEPT && CONTINUED.is_match(beginning) {
                self.continued.push(number);
            }
            if self.ended.len() < MOST_KEPT && ENDED.is_match(beginning) {
                self.ended.push(number);
            }
            number += u64::from(part.ends_with(b"\n"));
        }
    }

    /// Returns the line in which the program continued after a failure that it last stated in
    /// `line`. `None` if it did not.
    pub(super) fn continued(&self, line: u64) -> Option<u64> {
        let is_near =
            |continued: &&u64| (line..=line + MOST_LINES_TO_RECOVERY).contains(*continued);
        self.continued.iter().find(is_near).copied()
    }

    /// Whether the program or the log, which has this many lines, ended soon after `line`.
    pub(super) fn ends_soon(&self, line: u64, lines: u64) -> bool {
        let soon = line..=line + MOST_LINES_TO_END;
        soon.contains(&lines) || self.ended.iter().any(|ended| soon.contains(ended))
    }
}
