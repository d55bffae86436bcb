//! The input of every verdict.

use super::process_records::ProcessRecords;
use crate::model::process_tree::ProcessTree;
use crate::protocol::snapshot::Snapshot;

/// The latest snapshot, and what was derived from it and the snapshots before.
#[derive(Debug, Clone, Copy)]
pub(super) struct JudgeInput<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) tree: &'a ProcessTree,
    pub(super) records: &'a ProcessRecords,
}
