//! Rules 4 and 5: whether a process was left behind.
//!
//! What it was made by is its nearest ancestor that is no helper: a forkserver lives on, and proves
//! nothing. Five signs speak for a process having been left behind ([`Sign`]):
//!
//! a. what made it ended while we watched: a Python process or a launcher, not a shell;
//! b. its parent, or that of the helper that it comes from, is one that processes are left to;
//! c. the leader of its process group is gone;
//! d. it was told to serve a process (`--parent=PID`) that is gone;
//! e. it is a rank of `torchrun`, and no agent of `torchrun` is above it.
//!
//! What they prove depends on what it is.
//!
//! 1. A launcher (rule 4) is an orphan on (a), unless one of its descendants computes; a helper on (a) or (b).
//! 2. What only works for another (worker, spawned or forked child) is an orphan on (a), or on two of (b) to (e);
//!    with one, perhaps. That it computes, or may notice within seconds that it is alone, makes it none the less one.
//! 3. Any other Python process that computes is an orphan only when (d) or (e) holds with another sign:
//!    (a), (b) and (c) are what `nohup`, `tmux` and `setsid` look like.
//! 4. One that computes nothing for [`QUIET`] is an orphan on (a), or on two of (b) to (e); perhaps, before
//!    that time is over, or with one other than (b). With (b) and (c) alone, one with a trainer's threads is none,
//!    and one that the driver lists is perhaps one, until it is seen to compute: so looks a server that a script
//!    started with `nohup`, while nobody asks it anything. What a GPU's holder is not listed for, it was left.
//! 5. One that is on no GPU needs (a) or (d) or (e); any other program needs (a) or (e).

use std::time::Duration;

use super::judge_input::JudgeInput;
use super::process_records::{Activity, ProcessRecord, SharedIds};
use super::{OrphanEvidence, OrphanSign, ProcessEnd, VerdictKind};
use crate::base::text::Argv;
use crate::base::units::Moment;
use crate::model::process_role::ProcessRole;
use crate::protocol::snapshot::{Process, ProcessId, State};

/// A trainer may wait for a file, or for its peers, that long without being idle.
const QUIET: Duration = Duration::from_secs(10);

/// Whether it works for another, and for nobody when that one is gone.
pub(super) fn serves(record: &ProcessRecord) -> bool {
    record.role == ProcessRole::Worker || record.role == ProcessRole::Helper || record.forked
}

/// The place of what made it and lives: its nearest ancestor that is no helper, if that runs Python.
pub(super) fn creator(input: JudgeInput<'_>, at: usize) -> Option<usize> {
    let maker = input.tree.line(at).find(|it| input.records.record(*it).role != ProcessRole::Helper)?;
    input.records.record(maker).role.runs_python().then_some(maker)
}

/// *Orphan*, *orphan?*, *too soon*, or nothing of that.
pub(super) fn judge(input: JudgeInput<'_>, at: usize, is_listed: bool, is_on_gpu: bool) -> Option<VerdictKind> {
    let record = input.records.record(at);
    if record.role.is_keeper() || matches!(record.role, ProcessRole::NotebookServer | ProcessRole::Unknown) {
        return None;
    }
    let signs = signs(input, at);
    // What it works for lives: that its group has no leader, or its run no agent, is that one's matter.
    let has_lost = signs.iter().any(|it| matches!(it, OrphanSign::CreatorEnded(_)));
    if serves(record) && !has_lost && creator(input, at).is_some() {
        return None;
    }
    let strength = Strength::of(&signs)?;
    let evidence = |signs: Vec<OrphanSign>| OrphanEvidence {
        signs,
        serves: serves(record),
        computes: record.activity == Activity::Computes,
    };
    let verdict = match record.role {
        ProcessRole::Launcher if !record.forked => launcher(&strength, record),
        ProcessRole::Helper => (strength.ended.is_some() || strength.left).then_some(Answer::Yes),
        // (2)
        _ if serves(record) => Some(if strength.proves() { Answer::Yes } else { Answer::Maybe }),
        role => {
            let is_enough =
                strength.ended.is_some() || strength.elastic || role.is_python() && (is_on_gpu || strength.served);
            let trains = input.snapshot.processes[at].facts.trainer_threads == Ok(true);
            is_enough.then(|| main(&strength, record, trains, is_listed, input.snapshot.at)).flatten()
        }
    };
    verdict.map(|answer| match answer {
        Answer::Yes => VerdictKind::Orphan(evidence(signs)),
        Answer::Maybe => VerdictKind::MaybeOrphan(evidence(signs)),
        Answer::TooSoon => VerdictKind::TooSoon,
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Yes,
    Maybe,
    TooSoon,
}

/// What the signs come to.
#[derive(Debug, Clone, Copy)]
struct Strength {
    /// (a), and how long ago.
    ended: Option<Duration>,
    /// (b).
    left: bool,
    /// (d).
    served: bool,
    /// (e).
    elastic: bool,
    /// How many of (b) to (e).
    count: usize,
}

impl Strength {
    fn of(signs: &[OrphanSign]) -> Option<Self> {
        let ended = signs.iter().find_map(|it| match it {
            OrphanSign::CreatorEnded(ended) => Some(ended.ago),
            _ => None,
        });
        (!signs.is_empty()).then(|| Self {
            ended,
            left: signs.iter().any(|it| matches!(it, OrphanSign::Left { .. })),
            served: signs.iter().any(|it| matches!(it, OrphanSign::ServedGone(_))),
            elastic: signs.iter().any(|it| matches!(it, OrphanSign::NoElasticAgent(_))),
            count: signs.len() - usize::from(ended.is_some()),
        })
    }

    /// (a), or two of the others.
    fn proves(&self) -> bool {
        self.ended.is_some() || self.count >= 2
    }
}

/// (1)
fn launcher(strength: &Strength, record: &ProcessRecord) -> Option<Answer> {
    (strength.ended.is_some() && record.activity != Activity::Computes).then_some(Answer::Yes)
}

/// (3) and (4)
fn main(strength: &Strength, record: &ProcessRecord, trains: bool, is_listed: bool, now: Moment) -> Option<Answer> {
    let proves = strength.proves();
    // What nohup does not do.
    let is_telling = strength.served || strength.elastic;
    match record.activity {
        _ if is_telling && proves => Some(Answer::Yes),
        Activity::Computes => None,
        Activity::Unknown => proves.then_some(Answer::TooSoon),
        Activity::Quiet if proves => {
            let quiet = record.quiet_since.map_or(Duration::ZERO, |since| now.since(since));
            match () {
                () if trains && strength.ended.is_none() => None,
                () if is_listed && strength.ended.is_none() => (!record.computed).then_some(Answer::Maybe),
                () if quiet >= QUIET => Some(Answer::Yes),
                () => Some(Answer::Maybe),
            }
        }
        Activity::Quiet => (!strength.left && !trains && !record.computed).then_some(Answer::Maybe),
    }
}

/// What speaks for it having been left behind, the strongest first.
fn signs(input: JudgeInput<'_>, at: usize) -> Vec<OrphanSign> {
    let mut signs = Vec::new();
    // The forkserver of a dead trainer lives: its own loss is that of its children.
    let helpers = input.tree.line(at).take_while(|it| input.records.record(*it).role == ProcessRole::Helper);
    let top = helpers.clone().last().unwrap_or(at);
    let lost_parent = [at]
        .into_iter()
        .chain(helpers)
        .find_map(|it| input.records.record(it).lost_parent.as_ref().filter(|it| it.role.makes()));
    if let Some(lost_parent) = lost_parent {
        signs.push(OrphanSign::CreatorEnded(ProcessEnd {
            who: lost_parent.who.clone(),
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
    let to = match input.tree.up(at) {
        Some(parent) => {
            let record = input.records.record(parent);
            // In a container, the trainer itself may be PID 1.
            record.role.is_keeper().then(|| format!("{} ({})", record.named.program(), record.named.id.pid).into())?
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
    // Before every process was looked at once, someone who is not in the list may well live.
    let is_complete = input.snapshot.host.scan.at != Moment(0) && (parent <= 1 || input.tree.living(parent).is_some());
    (is_complete && group != process.id.pid && group > 1 && !records(input, group))
        .then_some(OrphanSign::GroupLeaderGone(group))
}

/// (d)
fn served_gone(input: JudgeInput<'_>, at: usize, process: &Process) -> Option<OrphanSign> {
    let served = input.records.record(at).served?;
    let is_above = input.tree.line(at).any(|it| input.snapshot.processes[it].id.pid == served);
    // In a container, it is told a number that means another process out here.
    let in_container = process.facts.origin.as_ref().is_ok_and(|it| {
        ["docker", "kubernetes", "podman", "containerd", "lxc", "crio"].iter().any(|name| it.as_str().contains(name))
    });
    let is_known = input.snapshot.host.scan.at != Moment(0);
    (is_known && !is_above && !in_container && !records(input, served)).then_some(OrphanSign::ServedGone(served))
}

/// (e)
fn no_elastic_agent(input: JudgeInput<'_>, at: usize, process: &Process) -> Option<OrphanSign> {
    let run = process.facts.elastic_run.as_ref().ok()?;
    let parent = process.facts.parent.ok()?;
    let is_agent = |it: usize| {
        // A program may run the agent within itself. Ranks hand the variable on to their own workers.
        let facts = &input.snapshot.processes[it].facts;
        input.records.record(it).role.runs_python() && facts.elastic_run.as_ref().ok() != Some(run)
    };
    let is_complete = parent <= 1 || input.tree.up(at).is_some();
    (is_complete && !input.tree.line(at).any(is_agent)).then(|| OrphanSign::NoElasticAgent(run.clone()))
}

/// Whether the process with that PID is there, and not only its number.
fn records(input: JudgeInput<'_>, pid: u32) -> bool {
    let found = input.tree.living(pid).map(|at| &input.snapshot.processes[at].load);
    found.is_some_and(|it| it.state != Ok(State::Zombie) || it.threads.is_ok_and(|it| it > 1))
}

/// Who most likely keeps the memory of a ghost: of those that have its GPU open, are not listed there, are
/// of the same user,
/// and work for nobody else who lives,
///
/// 1. those of its process group;
/// 2. else those of its session;
/// 3. else `DataLoader` workers and others that only serve;
/// 4. else those with its arguments;
/// 5. else all that run Python.
pub(super) fn heirs(input: JudgeInput<'_>, ghost: ProcessId) -> Vec<ProcessId> {
    let was = input.records.shared_ids(input.tree, ghost);
    let mut found: Vec<usize> = Vec::new();
    for gpu in input.snapshot.gpus.iter().filter(|gpu| gpu.processes.iter().any(|it| it.process == ghost)) {
        let unlisted = gpu.device_file_holders.iter().filter(|id| gpu.processes.iter().all(|it| it.process != **id));
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
    let best = best.into_iter().find(|it| !it.is_empty());
    best.into_iter().flatten().map(|at| process(at).id).collect()
}
