//! Which processes the list shows, and in which order.

use std::collections::HashSet;

use super::labels::{command, gpu_labels};
use super::list_view::{Grouping, View};
use super::process_cells::sort_key;
use super::process_columns::Sort;
use super::row_order::{RowOrder, SortKeys};
use crate::base::text::Text;
use crate::model::{HostModel, JobKey, ProcessTotal};
use crate::protocol::snapshot::{GpuUuid, Process, ProcessId, Snapshot};

/// A line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// What it is about.
    pub subject: RowSubject,
    /// How far it is indented.
    pub depth: usize,
    /// Its memory stands on the line of the one process that keeps it, and would be counted twice here.
    pub is_kept: bool,
}

/// What a line is about. The cursor stays with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowSubject {
    /// A process.
    Process(ProcessId),
    /// Memory of a GPU that no listed process accounts for.
    Unaccounted(GpuUuid),
    /// The head of a group.
    Group(ProcessGroup),
    /// A word on what follows.
    Heading(&'static str),
}

/// Processes that stand together.
#[derive(Debug, Clone)]
pub struct ProcessGroup {
    /// What they have in common: a user, or a job's name.
    pub name: String,
    /// Who they are.
    pub members: Vec<ProcessId>,
    /// What tells two jobs of one name apart.
    job: Option<JobKey>,
}

/// Members come and go; the group stays.
impl PartialEq for ProcessGroup {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.job) == (&other.name, &other.job)
    }
}

impl Eq for ProcessGroup {}

impl Row {
    fn new(subject: RowSubject, depth: usize) -> Self {
        Self { subject, depth, is_kept: false }
    }

    fn of(process: ProcessId, depth: usize) -> Self {
        Self::new(RowSubject::Process(process), depth)
    }

    /// The process, when it is about one.
    pub fn process(&self) -> Option<ProcessId> {
        if let RowSubject::Process(id) = self.subject { Some(id) } else { None }
    }
}

/// The lines to show.
pub(super) fn rows(model: &HostModel, view: View, sort: Sort, filter: &str, order: &mut RowOrder) -> Vec<Row> {
    let Some(snapshot) = model.latest() else { return Vec::new() };
    let terms: Vec<String> = filter.split_whitespace().map(str::to_lowercase).collect();
    let me = Ok(snapshot.host.facts.uid);
    let is_shown = |line: &RowCandidate<'_>| {
        (!view.mine || line.process.facts.uid == me) && (terms.is_empty() || matches(snapshot, line, &terms))
    };
    let lines: Vec<(ProcessId, SortKeys<'_>)> = snapshot
        .processes
        .iter()
        .map(|process| RowCandidate { process, process_total: model.process_total(process.id) })
        .filter(|line| if view.suspects { is_suspect(model, line.process.id) } else { line.process_total.is_some() })
        .filter(is_shown)
        .map(|line| {
            let key = |column| sort_key(column, model, line.process, line.process_total);
            (line.process.id, [key(sort.column), sort.then.and_then(|(column, _)| key(column))])
        })
        .collect();
    let ids = order.settle(model.now(), sort, lines);
    let ids = || ids.iter().copied();
    let mut rows = match view.grouping {
        Grouping::Flat => ids().map(|id| Row::of(id, 0)).collect(),
        Grouping::Tree => {
            let tree = with_kin(model, ids().collect());
            model.process_tree().forest(&tree).into_iter().map(|(id, depth)| Row::of(id, depth)).collect()
        }
        Grouping::Job => grouped(ids(), |id| {
            let job = model.job(id)?;
            Some((job.name.clone(), Some(job.key.clone())))
        }),
        Grouping::User => grouped(ids(), |id| {
            let user = snapshot.process(id)?.facts.user.as_ref().map_or_else(ToString::to_string, ToString::to_string);
            Some((user, None))
        }),
    };
    if terms.is_empty() && !view.mine {
        rows.extend(model.unaccounted().iter().map(|it| Row::new(RowSubject::Unaccounted(it.gpu.clone()), 0)));
    }
    count_once(model, snapshot, &mut rows);
    if view.suspects {
        let left = model.verdicts().iter().filter(|it| it.is_leftover());
        let left = left
            .filter_map(|it| snapshot.process(it.process))
            .map(|process| RowCandidate { process, process_total: None })
            .filter(is_shown);
        let left: Vec<Row> = left.map(|line| Row::of(line.process.id, 0)).collect();
        if !left.is_empty() {
            let text = "Python processes without GPU memory that a dead job left behind:";
            rows.push(Row::new(RowSubject::Heading(text), 0));
            rows.extend(left);
        }
    }
    rows
}

/// What one listed process alone keeps stands on its line: a ghost's line says so, and what was unaccounted is not.
fn count_once(model: &HostModel, snapshot: &Snapshot, rows: &mut Vec<Row>) {
    // Of one that the driver lists, the line says what it lists.
    let holders = rows.iter().filter_map(Row::process).filter(|id| model.process_total(*id).is_none());
    let kept = holders.filter_map(|id| model.verdict(id)).flat_map(|it| &it.kept).filter(|it| it.holders == 1);
    let kept: HashSet<(usize, Option<ProcessId>)> = kept.map(|it| (it.gpu, it.ghost)).collect();
    rows.retain_mut(|row| match &row.subject {
        RowSubject::Process(id) => {
            let gpus = model.process_total(*id).map(|it| it.gpus.as_slice()).unwrap_or_default();
            row.is_kept = !gpus.is_empty() && gpus.iter().all(|gpu| kept.contains(&(*gpu, Some(*id))));
            true
        }
        RowSubject::Unaccounted(gpu) => {
            let place = snapshot.gpus.iter().position(|it| it.uuid == *gpu);
            place.is_none_or(|gpu| !kept.contains(&(gpu, None)))
        }
        RowSubject::Group(_) | RowSubject::Heading(_) => true,
    });
}

/// Whether others' processes hold device memory, and none of one's own.
pub fn is_only_others(model: &HostModel) -> bool {
    let Some(snapshot) = model.latest() else { return false };
    let mut owners = model.process_totals().iter().filter_map(|it| snapshot.process(it.process)).map(|it| it.facts.uid);
    !model.process_totals().is_empty() && owners.all(|it| it != Ok(snapshot.host.facts.uid))
}

/// Whether it holds device memory and should not.
fn is_suspect(model: &HostModel, id: ProcessId) -> bool {
    model.verdict(id).is_some_and(|it| it.is_suspect() && it.is_on_gpu())
}

/// These processes and the rest of their jobs: a tree without the launcher between two ranks is two trees.
fn with_kin(model: &HostModel, mut ids: Vec<ProcessId>) -> Vec<ProcessId> {
    let mut seen: HashSet<ProcessId> = ids.iter().copied().collect();
    let jobs: Vec<&[ProcessId]> = ids.iter().filter_map(|id| Some(model.job(*id)?.members.as_slice())).collect();
    ids.extend(jobs.into_iter().flatten().copied().filter(|id| seen.insert(*id)));
    ids
}

/// Groups in the order of their first line, each below its head. A job of which one line shows needs no head:
/// the line says it all.
fn grouped(
    ids: impl Iterator<Item = ProcessId>,
    of: impl Fn(ProcessId) -> Option<(String, Option<JobKey>)>,
) -> Vec<Row> {
    let mut groups: Vec<ProcessGroup> = Vec::new();
    for id in ids {
        let (name, job) = of(id).unwrap_or_default();
        match groups.iter_mut().find(|it| it.name == name && it.job == job) {
            Some(group) => group.members.push(id),
            None => groups.push(ProcessGroup { name, members: vec![id], job }),
        }
    }
    let rows = groups.into_iter().flat_map(|group| {
        let is_alone = group.job.is_some() && group.members.len() == 1;
        let depth = usize::from(!is_alone);
        let members: Vec<Row> = group.members.iter().map(|id| Row::of(*id, depth)).collect();
        let head = (!is_alone).then(|| Row::new(RowSubject::Group(group), 0));
        head.into_iter().chain(members)
    });
    rows.collect()
}

/// A process, and what it holds if it is a GPU process.
struct RowCandidate<'a> {
    process: &'a Process,
    process_total: Option<&'a ProcessTotal>,
}

/// Whether each term stands somewhere in what the line shows.
fn matches(snapshot: &Snapshot, line: &RowCandidate<'_>, terms: &[String]) -> bool {
    let RowCandidate { process, process_total } = line;
    let user = process.facts.user.as_ref().map_or("", Text::as_str);
    let comm = process.facts.comm.as_ref().map_or("", Text::as_str);
    let gpus =
        process_total.map(|it| it.gpus.as_slice()).unwrap_or_default().iter().map(|at| &snapshot.gpus[*at].facts);
    let names: Vec<&str> = gpus.filter_map(|it| it.name.as_ref().ok().map(Text::as_str)).collect();
    let text = format!(
        "gpu{} {} {user} {comm} {} {}",
        process_total.map(|it| gpu_labels(snapshot, &it.gpus)).unwrap_or_default(),
        process.id.pid,
        command(process).unwrap_or_default(),
        names.join(" ")
    )
    .to_lowercase();
    terms.iter().all(|term| text.contains(term))
}
