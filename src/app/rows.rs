//! Which processes the list shows, and in which order.

use std::cmp::Ordering;

use crate::model::{Holding, Model};
use crate::snapshot::{Gpu, Process, ProcessId, Reading, Snapshot};
use crate::units::{Bytes, Percent};
use crate::untrusted::Text;

/// A column of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// The GPUs it is on.
    Gpu,
    /// Its PID.
    Pid,
    /// Whose it is.
    User,
    /// Device memory.
    Memory,
    /// What became of that since gputop first saw it.
    Growth,
    /// Use of the multiprocessors.
    Sm,
    /// CPU time.
    Cpu,
    /// Memory of the host.
    Rss,
    /// Time since it started.
    Elapsed,
    /// Running, sleeping…
    State,
    /// What it runs.
    Command,
}

impl Column {
    /// Every column, from left to right.
    pub const ALL: [Self; 11] = [
        Self::Gpu,
        Self::Pid,
        Self::User,
        Self::Memory,
        Self::Growth,
        Self::Sm,
        Self::Cpu,
        Self::Rss,
        Self::Elapsed,
        Self::State,
        Self::Command,
    ];

    /// The column so many places further on, around the end.
    pub fn step(self, by: isize) -> Self {
        let at = Self::ALL.iter().position(|it| *it == self).unwrap_or(0);
        let len = Self::ALL.len().cast_signed();
        Self::ALL[(at.cast_signed() + by).rem_euclid(len).cast_unsigned()]
    }

    /// Whether one looks for the largest in it.
    fn starts_descending(self) -> bool {
        matches!(self, Self::Memory | Self::Growth | Self::Sm | Self::Cpu | Self::Rss | Self::Elapsed)
    }
}

/// How the list is sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sort {
    /// By this.
    pub column: Column,
    /// The largest first.
    pub descending: bool,
}

impl Sort {
    /// The order in which one usually looks at a column.
    pub fn by(column: Column) -> Self {
        Self { column, descending: column.starts_descending() }
    }
}

/// What a process runs: its arguments, or its short name while these are not known.
pub fn command(process: &Process) -> Reading<String> {
    match &process.facts.argv {
        Ok(argv) if !argv.is_empty() => Ok(argv.iter().map(Text::as_str).collect::<Vec<_>>().join(" ")),
        // A kernel thread and a zombie have none.
        _ => process.facts.comm.as_ref().map(|comm| format!("[{comm}]")).map_err(|why| *why),
    }
}

/// A GPU's short name in the list: its index, or `index:instance` for an instance.
pub fn gpu_label(gpu: &Gpu) -> String {
    match gpu.facts.gpu_instance {
        Ok(instance) if gpu.facts.parent.is_some() => format!("{}:{instance}", gpu.facts.index),
        _ => gpu.facts.index.to_string(),
    }
}

/// The GPUs of a process: `0`, `0,2`, `0-7`.
pub fn gpu_labels(snapshot: &Snapshot, holding: &Holding) -> String {
    let gpus = || holding.gpus.iter().map(|at| &snapshot.gpus[*at]);
    let run = gpus().all(|gpu| gpu.facts.parent.is_none())
        && gpus().zip(gpus().skip(1)).all(|(a, b)| a.facts.index + 1 == b.facts.index);
    match (gpus().next(), gpus().next_back()) {
        (Some(first), Some(last)) if run && holding.gpus.len() > 2 => {
            format!("{}-{}", first.facts.index, last.facts.index)
        }
        _ => gpus().map(gpu_label).collect::<Vec<_>>().join(","),
    }
}

/// The processes to show.
pub(super) fn rows(model: &Model, sort: Sort, filter: &str) -> Vec<ProcessId> {
    let Some(snapshot) = model.latest() else { return Vec::new() };
    let terms: Vec<String> = filter.split_whitespace().map(str::to_lowercase).collect();
    let mut rows: Vec<(&Process, &Holding)> = snapshot
        .processes
        .iter()
        .filter_map(|process| Some((process, model.holding(process.id)?)))
        .filter(|(process, holding)| terms.is_empty() || matches(snapshot, process, holding, &terms))
        .collect();
    rows.sort_by(|a, b| compare(model, sort, *a, *b).then_with(|| a.0.id.cmp(&b.0.id)));
    rows.into_iter().map(|(process, _)| process.id).collect()
}

/// Whether each term stands somewhere in what the line shows.
fn matches(snapshot: &Snapshot, process: &Process, holding: &Holding, terms: &[String]) -> bool {
    let user = process.facts.user.as_ref().map_or("", Text::as_str);
    let comm = process.facts.comm.as_ref().map_or("", Text::as_str);
    let gpus = holding.gpus.iter().map(|at| &snapshot.gpus[*at].facts);
    let names: Vec<&str> = gpus.filter_map(|it| it.name.as_ref().ok().map(Text::as_str)).collect();
    let line = format!(
        "gpu{} {} {user} {comm} {} {}",
        gpu_labels(snapshot, holding),
        process.id.pid,
        command(process).unwrap_or_default(),
        names.join(" ")
    )
    .to_lowercase();
    terms.iter().all(|term| line.contains(term))
}

type Row<'a> = (&'a Process, &'a Holding);

/// How two values compare, and whether each is known.
fn order<T: PartialOrd, E>(a: &Result<T, E>, b: &Result<T, E>) -> (Option<Ordering>, bool, bool) {
    (a.as_ref().ok().partial_cmp(&b.as_ref().ok()), a.is_ok(), b.is_ok())
}

/// Missing values come last, whichever way the others go. Amounts that look the same are the same: lines do
/// not change places over what nobody sees.
fn compare(model: &Model, sort: Sort, a: Row<'_>, b: Row<'_>) -> Ordering {
    let by = |a: Option<Ordering>, a_known: bool, b_known: bool| match (a_known, b_known) {
        (true, true) => {
            let order = a.unwrap_or(Ordering::Equal);
            if sort.descending { order.reverse() } else { order }
        }
        (known, other) => other.cmp(&known),
    };
    let growth = |row: Row<'_>| super::growth(model, row.0.id).ok_or(());
    let started = |row: Row<'_>| row.0.id.start_ticks.map(std::cmp::Reverse).ok_or(());
    let (order, a_known, b_known) = match sort.column {
        Column::Gpu => order(&Ok::<_, ()>(&a.1.gpus), &Ok(&b.1.gpus)),
        Column::Pid => order(&Ok::<_, ()>(a.0.id.pid), &Ok(b.0.id.pid)),
        Column::User => order(&a.0.facts.user, &b.0.facts.user),
        Column::Memory => order(&a.1.memory.map(|it| it.bytes.as_shown()), &b.1.memory.map(|it| it.bytes.as_shown())),
        Column::Growth => order(&growth(a), &growth(b)),
        Column::Sm => order(&a.1.sm.map(Percent::as_shown), &b.1.sm.map(Percent::as_shown)),
        Column::Cpu => order(&a.0.load.cpu.map(Percent::as_shown), &b.0.load.cpu.map(Percent::as_shown)),
        Column::Rss => order(&a.0.load.rss.map(Bytes::as_shown), &b.0.load.rss.map(Bytes::as_shown)),
        Column::Elapsed => order(&started(a), &started(b)),
        Column::State => order(&a.0.load.state, &b.0.load.state),
        Column::Command => order(&command(a.0), &command(b.0)),
    };
    by(order, a_known, b_known)
}
