//! The table of a page about the marks of programs: which tensors came and went between two of them.

use super::table::{PageCell, PageTable};
use crate::logs::recorded_run::{HostRun, RunSubject};
use crate::output::labels::{self, tensors};
use crate::protocol::snapshot::MarkPair;

/// The most groups of tensors of a pair.
const MOST_GROUPS: usize = 4;

/// Returns the table of the marks of all processes, the largest process first.
pub(super) fn marks(host: &HostRun) -> PageTable {
    let processes = host.largest_processes().into_iter();
    let rows = processes.flat_map(|(key, process)| {
        let name = host.subject_name(&RunSubject::Process(key));
        process.mark_pairs.iter().map(move |pair| row(&name, pair))
    });
    PageTable {
        title: "Between marks of the program",
        headings: vec![
            "Process",
            "Marks",
            "Times",
            "Last change",
            "In all",
            "Tensors that came (+) and went (-)",
        ],
        rows: rows.collect(),
    }
}

fn row(process: &str, pair: &MarkPair) -> Vec<PageCell> {
    let number = |change: Option<i64>| {
        PageCell::Number(change.map_or_else(|| "-".to_owned(), labels::change))
    };
    let groups = pair
        .groups
        .iter()
        .take(MOST_GROUPS)
        .map(tensors::changed_group);
    let mut groups: Vec<String> = groups.collect();
    let unlisted = pair.groups.len().saturating_sub(MOST_GROUPS) as u64;
    let left_out = pair
        .groups_left_out
        .as_ref()
        .map_or(0, |left_out| left_out.count);
    match unlisted.saturating_add(left_out) {
        0 => {}
        unlisted => groups.push(format!("and {unlisted} more")),
    }
    vec![
        PageCell::Text(process.to_owned()),
        PageCell::Text(format!("{} → {}", pair.since.name, pair.until.name)),
        PageCell::Number(pair.times.unwrap_or(1).to_string()),
        number(Some(pair.bytes_change())),
        number(pair.total_bytes_change()),
        PageCell::Code(groups.join("; ")),
    ]
}
