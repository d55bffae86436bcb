//! Which processes the list shows, and in which order.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::model::{Holding, Model};
use crate::snapshot::{Gpu, Process, ProcessId, Reading, Snapshot, State};
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
    let mut rows: Vec<(Option<Key>, ProcessId)> = snapshot
        .processes
        .iter()
        .filter_map(|process| Some((process, model.holding(process.id)?)))
        .filter(|(process, holding)| terms.is_empty() || matches(snapshot, process, holding, &terms))
        .map(|(process, holding)| (key(model, sort.column, process, holding), process.id))
        .collect();
    rows.sort_unstable_by(|a, b| compare(a.0.as_ref(), b.0.as_ref(), sort.descending).then_with(|| a.1.cmp(&b.1)));
    rows.into_iter().map(|(_, id)| id).collect()
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

/// What a line shows in the column that the list is sorted by.
#[derive(PartialEq, PartialOrd)]
enum Key<'a> {
    Number(i64),
    Amount(Bytes),
    Share(Percent),
    Gpus(&'a [usize]),
    Word(Cow<'a, str>),
    State(State),
}

/// The key of a process; absent where its value is missing. Amounts that look the same are the same: lines do
/// not change places over what nobody sees.
fn key<'a>(model: &Model, column: Column, process: &'a Process, holding: &'a Holding) -> Option<Key<'a>> {
    let amount = |bytes: Bytes| Key::Amount(bytes.as_shown());
    let share = |percent: Percent| Key::Share(percent.as_shown());
    match column {
        Column::Gpu => Some(Key::Gpus(&holding.gpus)),
        Column::Pid => Some(Key::Number(process.id.pid.into())),
        Column::User => process.facts.user.as_ref().ok().map(|user| Key::Word(user.as_str().into())),
        Column::Memory => holding.memory.ok().map(|total| amount(total.bytes)),
        Column::Growth => super::growth(model, process.id).map(Key::Number),
        Column::Sm => holding.sm.ok().map(share),
        Column::Cpu => process.load.cpu.ok().map(share),
        Column::Rss => process.load.rss.ok().map(amount),
        // Who started later has run for less.
        Column::Elapsed => process.id.start_ticks.map(|ticks| Key::Number(-ticks.cast_signed())),
        Column::State => process.load.state.ok().map(Key::State),
        Column::Command => command(process).ok().map(|command| Key::Word(command.into())),
    }
}

/// Missing values come last, whichever way the others go.
fn compare(a: Option<&Key<'_>>, b: Option<&Key<'_>>, descending: bool) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => {
            let order = a.partial_cmp(b).unwrap_or(Ordering::Equal);
            if descending { order.reverse() } else { order }
        }
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}
