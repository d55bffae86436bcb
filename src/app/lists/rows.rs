//! Builds the rows of the process list: processes, groups, unaccounted memory and headings, of all
//! hosts together.

use std::collections::HashSet;

use super::gpu_list::{GpuRow, gpu_rows};
use super::list_view::{Grouping, View};
use super::process_cells::{ProcessLine, cell, sort_keys};
use super::process_columns::{ProcessColumn, Sort};
use super::row_order::{RowOrder, SortKeys};
use crate::base::text::Text;
use crate::base::units::Moment;
use crate::model::{Fleet, HostGpu, HostModel, HostProcess, JobKey};
use crate::output::labels::{command, gpu_label, use_in_words};
use crate::protocol::host_key::HostKey;
use crate::protocol::snapshot::{Gpu, GpuUuid, ProcessId, Snapshot, Use};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub subject: RowSubject,
    pub depth: usize,
    /// The GPU whose memory the row shows; `None` for the memory on all GPUs.
    pub gpu: Option<HostGpu>,
    /// Whether this row's memory is shown in the row of the one process that keeps it, and must not
    /// be counted twice.
    pub is_kept: bool,
}

/// The subject of a row. The cursor stays on its subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RowSubject {
    Process(HostProcess),
    Unaccounted(HostGpu),
    Group(ProcessGroup),
    /// A sentence about the rows that follow.
    Heading(&'static str),
}

#[derive(Debug, Clone)]
pub(crate) struct ProcessGroup {
    pub host: HostKey,
    pub name: String,
    pub members: Vec<ProcessId>,
    pub kind: GroupKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GroupKind {
    User,
    /// Tells jobs of the same name apart.
    Job(JobKey),
    Gpu(GpuUuid),
}

/// A group stays the same group when its members change.
impl PartialEq for ProcessGroup {
    fn eq(&self, other: &Self) -> bool {
        (self.host, &self.name, &self.kind) == (other.host, &other.name, &other.kind)
    }
}

impl Eq for ProcessGroup {}

impl ProcessGroup {
    pub(crate) fn processes(&self) -> impl Iterator<Item = HostProcess> + '_ {
        self.members.iter().map(|process| HostProcess {
            host: self.host,
            process: *process,
        })
    }

    /// The GPU of the group; `None` if it is a job or a user.
    pub(crate) fn gpu(&self) -> Option<HostGpu> {
        let GroupKind::Gpu(gpu) = &self.kind else {
            return None;
        };
        Some(HostGpu {
            host: self.host,
            gpu: gpu.clone(),
        })
    }
}

impl Row {
    fn new(subject: RowSubject, depth: usize) -> Self {
        Self {
            subject,
            depth,
            gpu: None,
            is_kept: false,
        }
    }

    fn of_process(process: HostProcess, depth: usize) -> Self {
        Self::new(RowSubject::Process(process), depth)
    }

    pub(crate) fn process(&self) -> Option<HostProcess> {
        if let RowSubject::Process(process) = self.subject {
            Some(process)
        } else {
            None
        }
    }
}

pub(in crate::app) fn rows(
    fleet: &Fleet,
    view: &View,
    sort: Sort,
    filter: &str,
    order: &mut RowOrder,
) -> Vec<Row> {
    let filter = Filter {
        gpu: view.gpu.as_ref(),
        host: view.host,
        ..Filter::new(filter, view.only_mine, fleet.has_many())
    };
    let sorted = order.settle(sort, sortable(fleet, view, sort, &filter));
    let mut rows = in_groups(fleet, view, sorted, &filter);
    if view.grouping != Grouping::Gpu {
        rows.extend(
            unaccounted(fleet)
                .filter(|gpu| {
                    filter.gpu.is_none_or(|shown| shown == gpu)
                        && view.shows(gpu.host)
                        && filter.matches_unaccounted(fleet, gpu)
                })
                .map(|gpu| Row::new(RowSubject::Unaccounted(gpu), 0)),
        );
    }
    if let Some(gpu) = filter.gpu {
        rows.iter_mut()
            .filter(|row| row.process().is_some())
            .for_each(|row| row.gpu = Some(gpu.clone()));
    }
    count_once(fleet, &mut rows);
    if view.only_suspects {
        let before = rows.len();
        rows.extend(
            fleet
                .hosts()
                .filter(|(host, _)| view.shows(*host))
                .flat_map(|(host, model)| leftovers(host, fleet.name(host), model, &filter)),
        );
        if rows.len() > before {
            let text = "Python processes without GPU memory that a dead job left behind:";
            rows.insert(before, Row::new(RowSubject::Heading(text), 0));
        }
    }
    rows
}

/// Returns the processes that the list shows, with what they are sorted by.
fn sortable<'a>(
    fleet: &'a Fleet,
    view: &View,
    sort: Sort,
    filter: &Filter<'_>,
) -> Vec<(HostProcess, Moment, SortKeys<'a>)> {
    let mut sortable: Vec<(HostProcess, Moment, SortKeys<'a>)> = Vec::new();
    for (host, model) in fleet.hosts().filter(|(host, _)| view.shows(*host)) {
        let Some(snapshot) = model.latest() else {
            continue;
        };
        let processes = snapshot.processes.iter();
        let only_suspects = view.only_suspects;
        let lines = processes.map(|process| {
            let line = ProcessLine::new(fleet.name(host), model, snapshot, process);
            ProcessLine {
                only_suspects,
                ..line
            }
        });
        let listed = lines.filter(|line| {
            if view.only_suspects {
                is_suspect(model, line.process.id)
            } else {
                line.process_total.is_some()
            }
        });
        sortable.extend(
            listed
                .filter(|line| filter.is_on_gpu(host, line) && filter.matches(line))
                .map(|line| {
                    (
                        HostProcess {
                            host,
                            process: line.process.id,
                        },
                        model.now(),
                        sort_keys(sort, &line),
                    )
                }),
        );
    }
    sortable
}

/// Returns the rows of the processes, each in its group if the view has groups.
fn in_groups(
    fleet: &Fleet,
    view: &View,
    sorted: Vec<HostProcess>,
    filter: &Filter<'_>,
) -> Vec<Row> {
    match view.grouping {
        Grouping::Flat => sorted
            .into_iter()
            .map(|process| Row::of_process(process, 0))
            .collect(),
        Grouping::Tree => trees(fleet, &sorted),
        Grouping::Gpu => by_gpu(fleet, &sorted, filter, view.only_suspects),
        Grouping::Job => grouped(sorted, |process| {
            let job = fleet.host(process.host)?.job(process.process)?;
            Some((job.name.clone(), GroupKind::Job(job.key.clone())))
        }),
        Grouping::User => grouped(sorted, |process| {
            let user = &fleet.process(process)?.1.facts.user;
            Some((
                user.as_ref()
                    .map_or_else(ToString::to_string, ToString::to_string),
                GroupKind::User,
            ))
        }),
    }
}

/// The processes without GPU memory that a dead job left behind.
fn leftovers(host: HostKey, host_name: &str, model: &HostModel, filter: &Filter<'_>) -> Vec<Row> {
    let Some(snapshot) = model.latest() else {
        return Vec::new();
    };
    let verdicts = model
        .verdicts()
        .iter()
        .filter(|verdict| verdict.is_leftover());
    let processes = verdicts.filter_map(|verdict| snapshot.process(verdict.process));
    let lines = processes.map(|process| ProcessLine::new(host_name, model, snapshot, process));
    let shown = lines
        .filter(|line| filter.is_on_gpu(host, line) && filter.matches(line))
        .map(|line| line.process);
    shown
        .map(|process| {
            Row::of_process(
                HostProcess {
                    host,
                    process: process.id,
                },
                0,
            )
        })
        .collect()
}

/// Marks rows whose memory is shown in the row of the only process that keeps it, and removes
/// unaccounted memory that only one process keeps.
fn count_once(fleet: &Fleet, rows: &mut Vec<Row>) {
    let mut kept: HashSet<(HostKey, usize, Option<ProcessId>)> = HashSet::new();
    for HostProcess { host, process } in rows.iter().filter_map(Row::process) {
        let Some(model) = fleet.host(host) else {
            continue;
        };
        // The row of a process that the driver lists shows what the driver lists.
        let verdict = model
            .verdict(process)
            .filter(|_| model.process_total(process).is_none());
        let memory = verdict
            .into_iter()
            .flat_map(|verdict| &verdict.kept)
            .filter(|memory| memory.holders == 1);
        kept.extend(memory.map(|memory| (host, memory.gpu, memory.ghost)));
    }
    rows.retain_mut(|row| match &row.subject {
        RowSubject::Process(HostProcess { host, process }) => {
            let total = fleet
                .host(*host)
                .and_then(|model| model.process_total(*process));
            let gpus = total.map(|total| total.gpus.as_slice()).unwrap_or_default();
            row.is_kept = !gpus.is_empty()
                && gpus
                    .iter()
                    .all(|gpu| kept.contains(&(*host, *gpu, Some(*process))));
            true
        }
        RowSubject::Unaccounted(HostGpu { host, gpu }) => {
            let snapshot = fleet.host(*host).and_then(HostModel::latest);
            let place = snapshot
                .and_then(|snapshot| snapshot.gpus.iter().position(|listed| listed.uuid == *gpu));
            place.is_none_or(|place| !kept.contains(&(*host, place, None)))
        }
        RowSubject::Group(_) | RowSubject::Heading(_) => true,
    });
}

/// Whether processes of other users hold GPU memory, and none of the user's own.
pub(crate) fn is_only_others(fleet: &Fleet) -> bool {
    let mut has_others = false;
    for (_, model) in fleet.hosts() {
        let Some(snapshot) = model.latest() else {
            continue;
        };
        for process in model
            .process_totals()
            .iter()
            .filter_map(|total| snapshot.process(total.process))
        {
            if process.facts.uid == Ok(snapshot.host.facts.uid) {
                return false;
            }
            has_others = true;
        }
    }
    has_others
}

fn is_suspect(model: &HostModel, process: ProcessId) -> bool {
    model
        .verdict(process)
        .is_some_and(|verdict| verdict.is_suspect() && verdict.is_on_gpu())
}

/// The processes of each host below their parents, one host after the other.
fn trees(fleet: &Fleet, sorted: &[HostProcess]) -> Vec<Row> {
    let tree = |(host, model): (HostKey, &HostModel)| {
        let on_host = sorted
            .iter()
            .filter(|process| process.host == host)
            .map(|process| process.process);
        let tree = model
            .process_tree()
            .forest(&with_related(model, on_host.collect()));
        let rows = tree
            .into_iter()
            .map(move |(process, depth)| Row::of_process(HostProcess { host, process }, depth));
        rows.collect::<Vec<_>>()
    };
    fleet.hosts().flat_map(tree).collect()
}

/// These processes and the rest of their jobs: without the launcher between two ranks, one tree
/// would be two.
fn with_related(model: &HostModel, mut processes: Vec<ProcessId>) -> Vec<ProcessId> {
    let mut seen: HashSet<ProcessId> = processes.iter().copied().collect();
    let jobs: Vec<&[ProcessId]> = processes
        .iter()
        .filter_map(|process| Some(model.job(*process)?.members.as_slice()))
        .collect();
    processes.extend(
        jobs.into_iter()
            .flatten()
            .copied()
            .filter(|process| seen.insert(*process)),
    );
    processes
}

/// Groups in the order of their first process, each below its head. A job with one process has no
/// head: the row of the process says everything.
fn grouped(
    sorted: Vec<HostProcess>,
    group_of: impl Fn(HostProcess) -> Option<(String, GroupKind)>,
) -> Vec<Row> {
    let mut groups: Vec<ProcessGroup> = Vec::new();
    for process in sorted {
        let (name, kind) = group_of(process).unwrap_or_else(|| (String::new(), GroupKind::User));
        let new = ProcessGroup {
            host: process.host,
            name,
            members: vec![process.process],
            kind,
        };
        match groups.iter_mut().find(|group| **group == new) {
            Some(group) => group.members.push(process.process),
            None => groups.push(new),
        }
    }
    let rows = groups.into_iter().flat_map(|group| {
        let is_alone = matches!(group.kind, GroupKind::Job(_)) && group.members.len() == 1;
        let depth = usize::from(!is_alone);
        let members: Vec<Row> = group
            .processes()
            .map(|process| Row::of_process(process, depth))
            .collect();
        let head = (!is_alone).then(|| Row::new(RowSubject::Group(group), 0));
        head.into_iter().chain(members)
    });
    rows.collect()
}

/// The GPUs with unaccounted memory.
fn unaccounted(fleet: &Fleet) -> impl Iterator<Item = HostGpu> + '_ {
    fleet.hosts().flat_map(|(host, model)| {
        model.unaccounted().iter().map(move |unaccounted| HostGpu {
            host,
            gpu: unaccounted.gpu.clone(),
        })
    })
}

/// One group for each GPU: its processes, then its unaccounted memory. Processes that the driver
/// lists for no GPU come last.
fn by_gpu(
    fleet: &Fleet,
    sorted: &[HostProcess],
    filter: &Filter<'_>,
    only_suspects: bool,
) -> Vec<Row> {
    let total = |process: &HostProcess| fleet.host(process.host)?.process_total(process.process);
    let mut rows = Vec::new();
    for GpuRow { host, model, gpu } in gpu_rows(fleet) {
        let id = HostGpu {
            host,
            gpu: gpu.uuid.clone(),
        };
        let place = model.latest().and_then(|snapshot| place(snapshot, &id));
        let is_on = |process: &&HostProcess| {
            let total = total(process).filter(|_| process.host == host);
            total
                .zip(place)
                .is_some_and(|(total, place)| total.gpus.contains(&place))
        };
        let members: Vec<ProcessId> = sorted
            .iter()
            .filter(is_on)
            .map(|process| process.process)
            .collect();
        let is_unaccounted = unaccounted(fleet).any(|unaccounted| unaccounted == id)
            && filter.matches_unaccounted(fleet, &id);
        let is_empty = members.is_empty() && !is_unaccounted;
        if filter.gpu.is_some_and(|shown| *shown != id)
            || filter.host.is_some_and(|shown| shown != host)
            || is_empty && (!filter.is_open() || only_suspects)
        {
            continue;
        }
        let name = format!("GPU {}", gpu_label(gpu));
        let processes: Vec<HostProcess> = members
            .iter()
            .map(|process| HostProcess {
                host,
                process: *process,
            })
            .collect();
        let group = ProcessGroup {
            host,
            name,
            members,
            kind: GroupKind::Gpu(gpu.uuid.clone()),
        };
        rows.push(Row::new(RowSubject::Group(group), 0));
        let on_gpu = processes.into_iter().map(|process| Row {
            gpu: Some(id.clone()),
            ..Row::of_process(process, 1)
        });
        rows.extend(on_gpu);
        rows.extend(is_unaccounted.then(|| Row::new(RowSubject::Unaccounted(id), 1)));
    }
    let unlisted = sorted.iter().filter(|process| total(process).is_none());
    rows.extend(unlisted.map(|process| Row::of_process(*process, 0)));
    rows
}

fn place(snapshot: &Snapshot, gpu: &HostGpu) -> Option<usize> {
    snapshot
        .gpus
        .iter()
        .position(|listed| listed.uuid == gpu.gpu)
}

/// The columns of words, in which a filter searches. It searches no figures: the digits of a PID
/// would be found in them.
const SEARCHED: [ProcessColumn; 5] = [
    ProcessColumn::Gpu,
    ProcessColumn::State,
    ProcessColumn::Origin,
    ProcessColumn::Verdict,
    ProcessColumn::Command,
];

/// The words by which a filter finds the lines of a GPU: `gpu3 NVIDIA H100 80GB HBM3`.
fn gpu_words(gpu: &Gpu) -> String {
    format!(
        "gpu{} {}",
        gpu_label(gpu),
        gpu.facts.name.as_ref().map_or("", Text::as_str)
    )
}

/// Returns whether a process shows all words of a search, which is no match while it is empty.
pub(in crate::app) fn matcher<'a>(
    fleet: &'a Fleet,
    search: &str,
) -> impl Fn(HostProcess) -> bool + 'a {
    let filter = Filter::new(search, false, fleet.has_many());
    move |process| {
        let Some(model) = fleet
            .host(process.host)
            .filter(|_| !filter.terms.is_empty())
        else {
            return false;
        };
        let seen = model
            .latest()
            .and_then(|snapshot| Some((snapshot, snapshot.process(process.process)?)));
        seen.is_some_and(|(snapshot, seen)| {
            filter.matches(&ProcessLine::new(
                fleet.name(process.host),
                model,
                snapshot,
                seen,
            ))
        })
    }
}

/// The condition for the processes that a list or a report shows.
pub(crate) struct Filter<'a> {
    only_mine: bool,
    /// The GPU whose processes alone match.
    gpu: Option<&'a HostGpu>,
    /// The host whose GPUs alone match.
    host: Option<HostKey>,
    /// Words in lower case; a row shows all of them.
    terms: Vec<String>,
    /// Whether rows show the name of their host, which then counts as a part of the text.
    has_hosts: bool,
}

impl Filter<'_> {
    /// Returns the filter for lines that have all of these words. `has_hosts` says whether the
    /// lines name their hosts.
    pub(crate) fn new(words: &str, only_mine: bool, has_hosts: bool) -> Self {
        let terms = words.split_whitespace().map(str::to_lowercase).collect();
        Self {
            only_mine,
            gpu: None,
            host: None,
            terms,
            has_hosts,
        }
    }

    /// Whether all lines of the GPU match.
    fn is_open(&self) -> bool {
        self.terms.is_empty() && !self.only_mine
    }

    /// Whether the line of the unaccounted memory of a GPU, which is of no user, has all words of
    /// the filter.
    fn matches_unaccounted(&self, fleet: &Fleet, unaccounted: &HostGpu) -> bool {
        let snapshot = fleet.host(unaccounted.host).and_then(HostModel::latest);
        let Some(gpu) = snapshot.and_then(|snapshot| snapshot.gpu(&unaccounted.gpu)) else {
            return self.is_open();
        };
        let host = if self.has_hosts {
            fleet.name(unaccounted.host)
        } else {
            ""
        };
        let text = format!("{host} {} unaccounted", gpu_words(gpu)).to_lowercase();
        !self.only_mine && self.terms.iter().all(|term| text.contains(term))
    }

    /// Whether the process is on the GPU of the filter, or the filter has none.
    fn is_on_gpu(&self, host: HostKey, line: &ProcessLine<'_>) -> bool {
        let Some(gpu) = self.gpu else { return true };
        // A process that the driver does not list may have the GPU open.
        let open = line
            .model
            .verdict(line.process.id)
            .map(|verdict| verdict.open.as_slice())
            .unwrap_or_default();
        let places = line
            .process_total
            .map_or(open, |total| total.gpus.as_slice());
        gpu.host == host && place(line.snapshot, gpu).is_some_and(|place| places.contains(&place))
    }

    /// Whether the process is of the user, if the filter asks for that, and its line has all words
    /// of the filter.
    pub(crate) fn matches(&self, line: &ProcessLine<'_>) -> bool {
        let ProcessLine {
            host,
            model,
            snapshot,
            process,
            process_total,
            ..
        } = *line;
        if self.only_mine && process.facts.uid != Ok(snapshot.host.facts.uid) {
            return false;
        }
        if self.terms.is_empty() {
            return true;
        }
        let user = process.facts.user.as_ref().map_or("", Text::as_str);
        let pid = process.id.pid.to_string();
        let drawn = SEARCHED.map(|column| cell(column, line).text);
        let open = model
            .verdict(process.id)
            .map(|verdict| verdict.open.as_slice())
            .unwrap_or_default();
        let gpus = snapshot.gpus_at(process_total.map_or(open, |total| total.gpus.as_slice()));
        let of_gpus = gpus.flat_map(|gpu| {
            let usage = gpu
                .process(process.id)
                .map(|on_gpu| on_gpu.usage)
                .filter(|usage| *usage != Use::Compute);
            [
                gpu_words(gpu),
                usage.map_or_else(String::new, |usage| use_in_words(usage).to_owned()),
            ]
        });
        let host = if self.has_hosts { host } else { "" };
        let comm = process.facts.comm.as_ref().map_or("", Text::as_str);
        // The reason of a suspect may stand in place of its command.
        let command = command(process).unwrap_or_default();
        let words = [host, &pid, user, comm, &command].map(str::to_owned);
        let text = words
            .into_iter()
            .chain(drawn)
            .chain(of_gpus)
            .collect::<Vec<_>>()
            .join(" ")
            .to_lowercase();
        self.terms.iter().all(|term| match term.split_once(':') {
            Some(("user", name)) => user.to_lowercase() == name,
            Some(("pid", pids)) => pids.split(',').any(|other| other == pid),
            _ => text.contains(term),
        })
    }
}
