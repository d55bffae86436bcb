//! The rules.

use super::{Kind, Verdict};
use crate::model::{Holding, Kin, Unclaimed};
use crate::snapshot::Snapshot;

/// A verdict on each process, in the order of the snapshot's list.
pub(in crate::model) fn judge(
    snapshot: &Snapshot,
    _kin: &Kin,
    holdings: &[Holding],
    _unclaimed: &[Unclaimed],
) -> Vec<Verdict> {
    let judged = snapshot.processes.iter().map(|process| Verdict {
        process: process.id,
        kind: Kind::TooSoon,
        listed: holdings.binary_search_by_key(&process.id, |it| it.process).ok().map(|at| holdings[at].memory),
        kept: Vec::new(),
        rss: process.load.rss,
    });
    judged.collect()
}
