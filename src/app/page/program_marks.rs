//! The part of a process's page about the marks of the program: what came and went between two of
//! them.

use super::Writer;
use crate::output::labels::{self, tensors};
use crate::protocol::snapshot::{MarkPair, ProbeReport};

/// The most pairs of marks on the page, and the most groups of tensors of each.
const MOST_PAIRS: usize = 6;
const MOST_GROUPS: usize = 4;

/// Writes the latest pairs of marks, the latest first.
pub(super) fn describe(writer: &mut Writer, report: &ProbeReport) {
    if report.mark_pairs.is_empty() {
        return;
    }
    writer.head("Between marks of the program");
    for pair in report.mark_pairs.iter().rev().take(MOST_PAIRS) {
        describe_pair(writer, pair);
    }
    let unlisted = report.mark_pairs.len().saturating_sub(MOST_PAIRS);
    if unlisted > 0 {
        writer.field("", format!("and {unlisted} more pairs of marks"));
    }
}

fn describe_pair(writer: &mut Writer, pair: &MarkPair) {
    let change = labels::change(pair.bytes_change());
    writer.field(&change, tensors::pair_in_words(pair));
    for group in pair.groups.iter().take(MOST_GROUPS) {
        writer.hanging("", tensors::changed_group(group), 2);
    }
    let unlisted = pair.groups.len().saturating_sub(MOST_GROUPS) as u64;
    let left_out = pair.groups_left_out.as_ref();
    let unlisted = unlisted.saturating_add(left_out.map_or(0, |left_out| left_out.count));
    if unlisted > 0 {
        let since = pair.since.name.as_str();
        let words = format!("and {unlisted} more groups: gputop tensors PID --since '{since}'");
        writer.field("", words);
    }
}
