//! Sentences about what is not shown of the processes: allocator stats that could not be read, and
//! processes beyond the limit.

use std::cmp::Reverse;

use super::gpu_list::gpu_rows;
use super::list_view::View;
use crate::app::layout;
use crate::model::Fleet;
use crate::protocol::snapshot::{AllocatorUnreadable, Process, Snapshot};

/// Counts the processes by the reason why their allocator stats are not known, the most frequent
/// reason first. Leaves out reasons that need no action.
fn reasons(snapshots: &[&Snapshot]) -> Vec<(AllocatorUnreadable, usize)> {
    let mut reasons: Vec<(AllocatorUnreadable, usize)> = Vec::new();
    // The probe's figures stand in for allocator stats.
    let has_report = |process: &&Process| {
        process
            .probe
            .as_ref()
            .is_some_and(|probe| probe.report.is_some())
    };
    let processes = snapshots
        .iter()
        .flat_map(|snapshot| &snapshot.processes)
        .filter(|process| !has_report(process));
    for why in processes.filter_map(|process| process.allocator.as_ref()?.unreadable) {
        if matches!(
            why,
            AllocatorUnreadable::NotYet
                | AllocatorUnreadable::NoPytorch
                | AllocatorUnreadable::Copied
        ) {
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

/// Counts the GPU processes that the agents left out. Returns the sentence about them; `None` while
/// all are listed.
pub(crate) fn omitted(snapshots: &[&Snapshot]) -> Option<String> {
    let count: u32 = snapshots
        .iter()
        .flat_map(|snapshot| &snapshot.gpus)
        .filter_map(|gpu| gpu.health.omitted_processes.ok())
        .sum();
    (count > 0)
        .then(|| format!("{count} more GPU processes are not listed, those with the least memory"))
}

/// The latest snapshots of the hosts that the lists show.
fn snapshots<'a>(fleet: &'a Fleet, view: &View) -> Vec<&'a Snapshot> {
    fleet
        .hosts()
        .filter(|(host, _)| view.shows(*host))
        .filter_map(|(_, model)| model.latest())
        .collect()
}

/// A sentence for each reason on any host that the lists show, without a full stop.
pub(crate) fn sentences(fleet: &Fleet, view: &View) -> Vec<String> {
    sentences_about(&snapshots(fleet, view))
}

/// The rows that the sentences below the list of processes take, with those about GPUs in trouble,
/// and a blank row before.
pub(in crate::app) fn rows_below(fleet: &Fleet, view: &View, width: u16) -> u16 {
    let rows = gpu_rows(fleet).filter(|row| view.shows(row.host));
    let troubles = rows.filter_map(|row| row.gpu.trouble.as_ref());
    let mut sentences = sentences(fleet, view);
    sentences.extend(troubles.map(|trouble| trouble.sentence.to_string()));
    let rows = layout::rows_of(&sentences, usize::from(width).saturating_sub(4));
    u16::try_from(rows + usize::from(rows > 0)).unwrap_or(u16::MAX)
}

pub(crate) fn sentences_about(snapshots: &[&Snapshot]) -> Vec<String> {
    let sentence = |(why, count)| {
        format!(
            "PyTorch's part of the memory of {} is not known: {why}",
            processes(count)
        )
    };
    omitted(snapshots)
        .into_iter()
        .chain(reasons(snapshots).into_iter().map(sentence))
        .collect()
}

/// One line in place of the sentences, for screens without room for these.
pub(crate) fn short_note(fleet: &Fleet, view: &View) -> String {
    let snapshots = snapshots(fleet, view);
    let count = reasons(&snapshots)
        .into_iter()
        .map(|(_, count)| count)
        .sum();
    omitted(&snapshots).unwrap_or_else(|| {
        format!(
            "PyTorch's part of {} is not known (Enter says why, and what to do)",
            processes(count)
        )
    })
}

fn processes(count: usize) -> String {
    format!(
        "{count} {}",
        if count == 1 { "process" } else { "processes" }
    )
}
