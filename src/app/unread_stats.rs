//! Sentences about processes whose allocator stats could not be read.

use std::cmp::Reverse;

use crate::model::Fleet;
use crate::protocol::snapshot::{AllocatorUnreadable, Snapshot};

/// Counts the processes by the reason why their allocator stats are not known, the most frequent reason first. Leaves
/// out reasons that need no action.
fn reasons<'a>(snapshots: impl Iterator<Item = &'a Snapshot>) -> Vec<(AllocatorUnreadable, usize)> {
    let mut reasons: Vec<(AllocatorUnreadable, usize)> = Vec::new();
    let processes = snapshots.flat_map(|snapshot| &snapshot.processes);
    for why in processes.filter_map(|process| process.allocator.as_ref()?.unreadable) {
        if matches!(why, AllocatorUnreadable::NotYet | AllocatorUnreadable::NoPytorch | AllocatorUnreadable::Copied) {
            continue;
        }
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, count)) => *count += 1,
            None => reasons.push((why, 1)),
        }
    }
    reasons.sort_by_key(|(_, count)| Reverse(*count));
    reasons
}

/// A sentence for each reason on any host, without a full stop.
pub(crate) fn sentences(fleet: &Fleet) -> Vec<String> {
    sentences_about(fleet.hosts().filter_map(|(_, model)| model.latest()))
}

pub(crate) fn sentences_about<'a>(snapshots: impl Iterator<Item = &'a Snapshot>) -> Vec<String> {
    let sentence = |(why, count)| format!("PyTorch's part of the memory of {} is not known: {why}", processes(count));
    reasons(snapshots).into_iter().map(sentence).collect()
}

/// One line in place of the sentences, for screens without room for these.
pub(crate) fn short_note(fleet: &Fleet) -> String {
    let count =
        reasons(fleet.hosts().filter_map(|(_, model)| model.latest())).into_iter().map(|(_, count)| count).sum();
    format!("PyTorch's part of {} is not known (Enter says why, and what to do)", processes(count))
}

fn processes(count: usize) -> String {
    format!("{count} {}", if count == 1 { "process" } else { "processes" })
}
