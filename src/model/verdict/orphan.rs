//! Rules 4 and 5: whether a process was left behind.
//!
//! The creator of a process is its nearest ancestor that is not a helper: a forkserver may live on without its trainer.
//! Five signs show that a process was left behind ([`OrphanSign`]):
//! a. its creator, a Python process or launcher, ended while gputop watched;
//! b. its parent, or the parent of the helper that it comes from, is one that adopts orphans;
//! c. the leader of its process group is gone;
//! d. the process that it was started to serve (`--parent=PID`) is gone;
//! e. it is a rank of `torchrun`, and no agent of `torchrun` is among its ancestors.
//!
//! The kind of process decides how many signs are enough:
//! 1. A launcher (rule 4) is an orphan with (a), unless one of its descendants computes; a helper with (a) or (b).
//! 2. A process that only serves another (worker, spawned or forked child) is an orphan with (a), or with two of (b) to
//!    (e); with one of them, *orphan?*. It may still compute: it may not have noticed yet that it is alone.
//! 3. Any other Python process that computes is an orphan only with (d) or (e) and one more sign: (a), (b) and (c) also
//!    appear with `nohup`, `tmux` and `setsid`.
//! 4. One that has not computed for [`QUIET_AFTER`] is an orphan with (a), or with two of (b) to (e); before that time,
//!    or with a single sign other than (b), it is *orphan?*. With (b) and (c) alone, a process with a trainer's threads
//!    is no orphan, and one that the driver lists is *orphan?* until it computes: a server started with `nohup` from a
//!    script looks like that until its first request. A process that holds a GPU without being listed inherited it.
//! 5. A process on no GPU needs (a), (d) or (e); a program other than Python needs (a) or (e).

use std::time::Duration;

use super::judge_input::JudgeInput;
use super::process_records::{Activity, ProcessRecord, SharedIds};
use super::{OrphanEvidence, OrphanSign, ProcessEnd, VerdictKind};
use crate::base::text::Argv;
use crate::base::units::Moment;
use crate::model::process_role::ProcessRole;
use crate::protocol::snapshot::{Process, ProcessId, State};

/// The time without computation after which a process is quiet. A trainer may wait for a file or for its peers that
/// long.
const QUIET_AFTER: Duration = Duration::from_secs(10);

/// Whether a process only serves another one.
pub(super) fn serves(record: &ProcessRecord) -> bool {
    record.role == ProcessRole::Worker || record.role == ProcessRole::Helper || record.forked
}

/// Returns the index of a living creator: the nearest ancestor that is not a helper, if it runs Python.
pub(super) fn creator(input: JudgeInput<'_>, at: usize) -> Option<usize> {
    let creator =
        input.tree.ancestors_of(at).find(|ancestor| input.records.record(*ancestor).role != ProcessRole::Helper)?;
    input.records.record(creator).role.runs_python().then_some(creator)
}

/// Returns *orphan*, *orphan?* or *too soon*; `None` when the process was not left behind.
pub(super) fn judge(input: JudgeInput<'_>, at: usize, is_listed: bool, is_on_gpu: bool) -> Option<VerdictKind> {
    let record = input.records.record(at);
    if record.role.is_keeper() || matches!(record.role, ProcessRole::NotebookServer | ProcessRole::Unknown) {
        return None;
    }
    let signs = signs(input, at);
    // Its creator lives: a missing group leader or agent is a sign about the creator.
    let summary = SignSummary::of(&signs);
    if signs.is_empty() || serves(record) && !summary.ended && creator(input, at).is_some() {
        return None;
    }
    let evidence = |signs: Vec<OrphanSign>| OrphanEvidence {
        signs,
        serves: serves(record),
        computes: record.activity == Activity::Computes,
    };
    let verdict = match record.role {
        // (1)
        ProcessRole::Launcher if !record.forked => {
            (summary.ended && record.activity != Activity::Computes).then_some(OrphanAnswer::Yes)
        }
        ProcessRole::Helper => (summary.ended || summary.left).then_some(OrphanAnswer::Yes),
        // (2)
        _ if serves(record) => Some(if summary.proves { OrphanAnswer::Yes } else { OrphanAnswer::Maybe }),
        role => {
            // (5)
            let is_enough = summary.ended || summary.elastic || role.is_python() && (is_on_gpu || summary.served);
            let trains = input.snapshot.processes[at].facts.trainer_threads == Ok(true);
            is_enough.then(|| main(&summary, record, trains, is_listed, input.snapshot.at)).flatten()
        }
    };
    verdict.map(|answer| match answer {
        OrphanAnswer::Yes => VerdictKind::Orphan(evidence(signs)),
        OrphanAnswer::Maybe => VerdictKind::MaybeOrphan(evidence(signs)),
        OrphanAnswer::TooSoon => VerdictKind::TooSoon,
    })
}

/// Whether a process is an orphan.
enum OrphanAnswer {
    Yes,
    Maybe,
    TooSoon,
}

/// The signs that a process shows.
#[expect(clippy::struct_excessive_bools, reason = "each is one sign, as the rules above name them")]
struct SignSummary {
    /// Whether (a) holds.
    ended: bool,
    /// Whether (b) holds.
    left: bool,
    /// Whether (d) holds.
    served: bool,
    /// Whether (e) holds.
    elastic: bool,
    /// Whether (a) holds, or two of the others.
    proves: bool,
}

impl SignSummary {
    fn of(signs: &[OrphanSign]) -> Self {
        let any = |is_one: fn(&OrphanSign) -> bool| signs.iter().any(is_one);
        let ended = any(|sign| matches!(sign, OrphanSign::CreatorEnded(_)));
        Self {
            ended,
            left: any(|sign| matches!(sign, OrphanSign::Left { .. })),
            served: any(|sign| matches!(sign, OrphanSign::ServedGone(_))),
            elastic: any(|sign| matches!(sign, OrphanSign::NoElasticAgent(_))),
            proves: ended || signs.len() >= 2,
        }
    }
}

/// (3) and (4)
fn main(
    summary: &SignSummary,
    record: &ProcessRecord,
    trains: bool,
    is_listed: bool,
    now: Moment,
) -> Option<OrphanAnswer> {
    // `nohup` does not cause these signs.
    let is_telling = summary.served || summary.elastic;
    match record.activity {
        _ if is_telling && summary.proves => Some(OrphanAnswer::Yes),
        Activity::Computes => None,
        Activity::Unknown => summary.proves.then_some(OrphanAnswer::TooSoon),
        Activity::Quiet if summary.proves => {
            let quiet = record.quiet_since.map_or(Duration::ZERO, |since| now.since(since));
            match () {
                () if trains && !summary.ended => None,
                () if is_listed && !summary.ended => (!record.computed).then_some(OrphanAnswer::Maybe),
                () if quiet >= QUIET_AFTER => Some(OrphanAnswer::Yes),
                () => Some(OrphanAnswer::Maybe),
            }
        }
        Activity::Quiet => (!summary.left && !trains && !record.computed).then_some(OrphanAnswer::Maybe),
    }
}

/// Returns the signs that a process was left behind, strongest first.
fn signs(input: JudgeInput<'_>, at: usize) -> Vec<OrphanSign> {
    let mut signs = Vec::new();
    // A forkserver outlives its trainer: the children of the forkserver lost that trainer, too.
    let helpers =
        input.tree.ancestors_of(at).take_while(|ancestor| input.records.record(*ancestor).role == ProcessRole::Helper);
    let top = helpers.clone().last().unwrap_or(at);
    let lost_parent = [at].into_iter().chain(helpers).find_map(|process| {
        input.records.record(process).lost_parent.as_ref().filter(|lost_parent| lost_parent.role.makes())
    });
    if let Some(lost_parent) = lost_parent {
        signs.push(OrphanSign::CreatorEnded(ProcessEnd {
            process: lost_parent.process.clone(),
            ago: input.snapshot.at.since(lost_parent.at),
        }));
    }
    let process = &input.snapshot.processes[at];
    signs.extend(left(input, top));
    signs.extend(group_leader_gone(input, process));
    signs.extend(served_gone(input, at, process));
    signs.extend(no_elastic_agent(input, at, process));
    signs
}

/// (b)
fn left(input: JudgeInput<'_>, at: usize) -> Option<OrphanSign> {
    let parent = input.snapshot.processes[at].facts.parent.ok()?;
    let to = match input.tree.parent_of(at) {
        Some(parent) => {
            let record = input.records.record(parent);
            // In a container, the trainer itself may be PID 1.
            record.role.is_keeper().then(|| format!("{} ({})", record.known.program(), record.known.id.pid).into())?
        }
        None if parent == 1 => "PID 1".into(),
        None if parent == 0 => "something outside of its PID namespace".into(),
        None => return None,
    };
    Some(OrphanSign::Left { to })
}

/// (c)
fn group_leader_gone(input: JudgeInput<'_>, process: &Process) -> Option<OrphanSign> {
    let (group, parent) = (process.facts.group.ok()?, process.facts.parent.ok()?);
    // Until the first full scan, a process that is not in the list may be alive.
    let is_complete = input.snapshot.host.scan.at != Moment(0) && (parent <= 1 || input.tree.living(parent).is_some());
    (is_complete && group != process.id.pid && group > 1 && !is_alive(input, group))
        .then_some(OrphanSign::GroupLeaderGone(group))
}

/// (d)
fn served_gone(input: JudgeInput<'_>, at: usize, process: &Process) -> Option<OrphanSign> {
    let served = input.records.record(at).served?;
    let is_above = input.tree.ancestors_of(at).any(|ancestor| input.snapshot.processes[ancestor].id.pid == served);
    // A PID given to a process in a container means another process outside.
    let in_container = process.facts.origin.as_ref().is_ok_and(|origin| {
        ["docker", "kubernetes", "podman", "containerd", "lxc", "crio"]
            .iter()
            .any(|name| origin.as_str().contains(name))
    });
    let is_known = input.snapshot.host.scan.at != Moment(0);
    (is_known && !is_above && !in_container && !is_alive(input, served)).then_some(OrphanSign::ServedGone(served))
}

/// (e)
fn no_elastic_agent(input: JudgeInput<'_>, at: usize, process: &Process) -> Option<OrphanSign> {
    let run = process.facts.elastic_run.as_ref().ok()?;
    let parent = process.facts.parent.ok()?;
    let is_agent = |ancestor: usize| {
        // A program may run the agent itself. Ranks pass the variable on to their own workers.
        let facts = &input.snapshot.processes[ancestor].facts;
        input.records.record(ancestor).role.runs_python() && facts.elastic_run.as_ref().ok() != Some(run)
    };
    let is_complete = parent <= 1 || input.tree.parent_of(at).is_some();
    (is_complete && !input.tree.ancestors_of(at).any(is_agent)).then(|| OrphanSign::NoElasticAgent(run.clone()))
}

/// Whether the process with that PID is there, and not only its number.
fn is_alive(input: JudgeInput<'_>, pid: u32) -> bool {
    let found = input.tree.living(pid).map(|at| &input.snapshot.processes[at].load);
    found.is_some_and(|load| load.state != Ok(State::Zombie) || load.threads.is_ok_and(|threads| threads > 1))
}

/// Returns the processes that most likely keep the memory of a ghost. Candidates have its GPU open without being
/// listed, have the same user, and do not work for another living process. The first group with members wins:
/// 1. the process group of the ghost;
/// 2. its session;
/// 3. `DataLoader` workers and others that only serve;
/// 4. processes with its arguments;
/// 5. all that run Python.
pub(super) fn keepers(input: JudgeInput<'_>, ghost: ProcessId) -> Vec<ProcessId> {
    let was = input.records.shared_ids(input.tree, ghost);
    let mut found: Vec<usize> = Vec::new();
    for gpu in
        input.snapshot.gpus.iter().filter(|gpu| gpu.processes.iter().any(|gpu_process| gpu_process.process == ghost))
    {
        let unlisted = gpu
            .device_file_holders
            .iter()
            .filter(|id| gpu.processes.iter().all(|gpu_process| gpu_process.process != **id));
        found.extend(unlisted.filter_map(|id| input.tree.place(*id)));
    }
    found.sort_unstable();
    found.dedup();
    let process = |at: usize| &input.snapshot.processes[at];
    found.retain(|at| {
        was.and_then(|(shared_ids, _)| shared_ids.uid.ok()).is_none_or(|uid| process(*at).facts.uid == Ok(uid))
    });
    found.retain(|at| {
        let record = input.records.record(*at);
        !serves(record) || record.lost_parent.is_some() || creator(input, *at).is_none()
    });
    let is_near = |at: usize, was: SharedIds| was.group.is_ok() && process(at).facts.group == was.group;
    let is_close = |at: usize, was: SharedIds| was.session.is_ok() && process(at).facts.session == was.session;
    let is_alike = |at: usize, argv: &Argv| process(at).facts.argv.as_ref() == Ok(argv);
    let ranks: [&dyn Fn(usize) -> bool; 5] = [
        &|at| was.is_some_and(|(shared_ids, _)| is_near(at, shared_ids)),
        &|at| was.is_some_and(|(shared_ids, _)| is_close(at, shared_ids)),
        &|at| serves(input.records.record(at)),
        &|at| was.and_then(|(_, argv)| argv).is_some_and(|argv| is_alike(at, argv)),
        &|at| input.records.record(at).role.is_python(),
    ];
    let best = ranks.iter().map(|rank| found.iter().copied().filter(|at| rank(*at)).collect::<Vec<_>>());
    let best = best.into_iter().find(|members| !members.is_empty());
    best.into_iter().flatten().map(|at| process(at).id).collect()
}
