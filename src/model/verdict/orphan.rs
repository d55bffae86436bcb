//! Applies rules 4 and 5 of [`judge`](super::judge): finds processes that were left behind.
//!
//! The *starter* of a process is its parent, if gputop saw the process begin there. Otherwise it is
//! the nearest living ancestor that is not a helper (a forkserver may live on without its trainer),
//! unless that ancestor is a known adopter that was not [told to start](was_told_to_start) the
//! process, or evidently [did not start](did_not_start) the process. A shell or wrapper counts as a
//! starter like any other program.
//!
//! While the starter lives and is no orphan, the process is none. A process whose starter is an
//! orphan is one, too, unless it [is independent](is_independent). In all other cases these signs
//! show that a process was left behind ([`OrphanSign`]): a. the starter, which is a Python process,
//! launcher or server, ended while gputop watched. For a process that only serves another, the end
//! of any other program counts, too. The end of a program's starter is no sign if the program
//! [detached itself](detached) from it; b. the parent, or the parent of the helper that the process
//! comes from, adopts orphans, or did not start the process; c. the leader of the process group is
//! gone; d. the process that was to be served is gone; e. the environment or the program shows that
//! a launcher started the process and waits for its end, or that the process works for this
//! launcher only, as the [launch table](launchers) says; and that launcher is not among the
//! ancestors.
//!
//! The kind of process decides how many signs are enough:
//! 1. A launcher (rule 4) is an orphan with (a), when it and its descendants have not computed for
//!    [`QUIET_AFTER`]; before that, *orphan?*. A helper is an orphan with (a), (b) or (d).
//! 2. A process that only serves another (worker, spawned or forked child) is an orphan with (a),
//!    with two of (b) to (e), or when its parent did not start it; with one of them, *orphan?*. Such
//!    a process may still compute until it notices that it is alone.
//! 3. Any other program that computes is an orphan only if it depends on another process: with (a)
//!    about a launcher or server, which wait for those that they start, or with (d) or (e) and one
//!    more sign. The other signs also appear with `nohup`, `tmux` and `setsid`. One that [was forked
//!    to work](is_forked_child) is *orphan?* with (b).
//! 4. A Python process that has not computed for [`QUIET_AFTER`] is an orphan with (a), or with two
//!    of (b) to (e); before that time, or with a single sign other than (b), it is *orphan?*. With
//!    (b) and (c) alone, a process with a trainer's threads is no orphan, and one that the driver
//!    lists is *orphan?* until it computes: a server started with `nohup` from a script looks like
//!    that until its first request. A process that holds a GPU without being listed inherited it; so
//!    did one that was forked to work, which is *orphan?* with (b) alone.
//! 5. A process on no GPU needs (a), (d) or (e); a program other than Python needs (a) or (e). For
//!    a shell that runs a script, only what rule 3 says counts.

use std::time::Duration;

use super::process_records::{Activity, LostParent, ProcessRecord, ProcessView};
use super::{OrphanEvidence, OrphanSign, ProcessEnd, VerdictKind};
use crate::base::text::{Argv, Text};
use crate::base::time::WallClock;
use crate::base::units::Moment;
use crate::model::process_role::{self, ProcessRole};
use crate::protocol::launchers::{self, LaunchPlace, Launcher};
use crate::protocol::snapshot::{Missing, Process, ProcessFacts, ProcessId, Reading};

/// The time without computation after which a process is quiet. A trainer may wait for a file or
/// for its peers that long.
const QUIET_AFTER: Duration = Duration::from_secs(10);

/// Whether a process only serves another one.
pub(in crate::model) fn serves(record: &ProcessRecord) -> bool {
    record.role == ProcessRole::Worker || record.role == ProcessRole::Helper || record.forked
}

/// Returns the process whose parent counts: the process itself, or the last of the helpers that it
/// comes from.
fn top(view: ProcessView<'_>, place: usize) -> usize {
    view.tree
        .ancestors_of(place)
        .take_while(|ancestor| view.role(*ancestor) == ProcessRole::Helper)
        .last()
        .unwrap_or(place)
}

/// Returns the index of the living starter.
pub(super) fn starter(view: ProcessView<'_>, place: usize) -> Option<usize> {
    let top = top(view, place);
    let can_start =
        |above: &usize| !is_adopter(view, *above) || was_told_to_start(view, *above, top);
    let starter = view.tree.parent_of(top).filter(can_start)?;
    (!did_not_start(view, starter, top)).then_some(starter)
}

/// Whether a process adopts orphans. Those that start nothing are the first process of a container,
/// and adopted all their children.
fn is_adopter(view: ProcessView<'_>, place: usize) -> bool {
    view.role(place) == ProcessRole::Adopter || process_role::starts_nothing(view.facts(place))
}

/// Whether the arguments of an adopter, such as `tini -- python serve.py`, end with the program of
/// its child. A forked child has the arguments of its creator, which may have been that program.
fn was_told_to_start(view: ProcessView<'_>, adopter: usize, child: usize) -> bool {
    let words = process_role::arguments(view.facts(adopter));
    let is_option = |word: &&&str| word.starts_with('-');
    let program: Vec<&str> = words
        .iter()
        .skip(1)
        .skip_while(is_option)
        .copied()
        .collect();
    let is_started = view.facts(child).forked == Ok(false);
    is_started
        && !program.is_empty()
        && process_role::arguments(view.facts(child)).ends_with(&program)
}

/// Whether a process evidently did not start its child, which only serves another process, but has
/// adopted it: any process may adopt the orphans among its descendants (`PR_SET_CHILD_SUBREAPER`).
/// The process that the child was to serve may be known to be gone.
///
/// A child begins in its starter's process group, with its starter's arguments. Later it may lead a
/// group of its own. A child that called `exec` has other arguments; so has a starter that gave
/// itself a title, which is a single word.
fn did_not_start(view: ProcessView<'_>, parent: usize, child: usize) -> bool {
    if view.record(child).was_seen_to_begin() {
        return false;
    }
    let (above, below) = (view.facts(parent), view.facts(child));
    let has_other_group = above.group.is_ok()
        && below
            .group
            .is_ok_and(|group| group != view.process(child).id.pid && Ok(group) != above.group);
    let is_program = |argv: &Argv| argv.iter().filter(|word| !word.is_empty()).count() > 1;
    let has_other_program = below.forked == Ok(true)
        && above.argv.as_ref().is_ok_and(is_program)
        && below.argv.as_ref().is_ok_and(is_program)
        && above.argv != below.argv;
    serves(view.record(child)) && (has_other_group || below.ended_served.is_ok())
        || has_other_program && view.role(child).is_python()
        || cannot_start(view, parent, child)
}

/// Whether the program of the parent cannot have started this child, as the first process of a
/// container often cannot: it runs no Python code, and the child was forked or started by such
/// code.
fn cannot_start(view: ProcessView<'_>, parent: usize, child: usize) -> bool {
    let (above, below, role) = (view.facts(parent), view.facts(child), view.role(parent));
    let runs_no_python = matches!(role, ProcessRole::Shell | ProcessRole::Script);
    let is_forked = below.forked == Ok(true) && view.role(child).is_python();
    let is_rank = below.session == Ok(view.process(child).id.pid)
        && below.elastic_run.is_ok()
        && matches!(above.elastic_run, Err(Missing::Unsupported));
    runs_no_python && (is_forked || is_rank || process_role::is_started_by_python(below))
        || role == ProcessRole::Server && process_role::is_module_of_python(below)
}

/// Whether a program goes on without its starter: it leads a session of its own, and no launcher
/// started it.
fn is_independent(view: ProcessView<'_>, starter: usize, place: usize) -> bool {
    let leads_session = view.facts(place).session == Ok(view.process(place).id.pid);
    leads_session && !serves(view.record(place)) && view.role(starter) != ProcessRole::Launcher
}

/// Whether a process was evidently forked to do a part of its creator's work: it called no `exec`,
/// and leads no group or session. A daemon calls no `exec` either, but the leader of the session
/// that it made for itself has ended.
fn is_forked_child(view: ProcessView<'_>, place: usize) -> bool {
    let (facts, own) = (view.facts(place), Ok(view.process(place).id.pid));
    let is_member = facts.forked == Ok(true)
        && facts.group.is_ok()
        && facts.group != own
        && facts.session != own;
    is_member && !may_be_daemon(view, place)
}

/// Whether a forked process may have made a daemon of itself. The leader of a daemon's session
/// forks once, as the first thing that it does. A trainer may lead a session too, but it forks
/// later, or more than one worker.
fn may_be_daemon(view: ProcessView<'_>, place: usize) -> bool {
    /// The most processes and threads that are likely to begin on a busy host while a program
    /// becomes a daemon. A trainer begins more before its first fork: its libraries start threads
    /// for every core.
    const MOST_BETWEEN: u32 = 64;
    let (process, facts) = (view.process(place), view.facts(place));
    let Some(leader) = facts
        .session
        .ok()
        .filter(|session| facts.group == Ok(*session) && !view.is_alive(*session))
    else {
        return false;
    };
    let is_sibling = |other: &Process| {
        let (of_other, is_other) = (&other.facts, other.id != process.id);
        is_other
            && of_other.forked == Ok(true)
            && of_other.session == facts.session
            && of_other.parent == facts.parent
    };
    // PIDs begin anew after the highest.
    let is_late = process
        .id
        .pid
        .checked_sub(leader)
        .is_some_and(|distance| distance > MOST_BETWEEN);
    !is_late && !view.snapshot.processes.iter().any(is_sibling)
}

/// How a process uses GPUs.
#[derive(Debug, Clone, Copy)]
pub(super) struct GpuUse {
    /// Whether the driver lists the process.
    pub(super) is_listed: bool,
    /// Whether the driver lists the process, or it has a GPU open.
    pub(super) is_on_gpu: bool,
}

/// Judges the processes of a snapshot, each after its starter.
pub(super) struct OrphanJudge<'a> {
    view: ProcessView<'a>,
    /// By process index.
    uses: Vec<GpuUse>,
    /// By process index, whether the process is an orphan; `None` before it is judged.
    are_orphans: Vec<Option<bool>>,
}

impl<'a> OrphanJudge<'a> {
    pub(super) fn new(view: ProcessView<'a>, uses: Vec<GpuUse>) -> Self {
        Self {
            view,
            are_orphans: vec![None; uses.len()],
            uses,
        }
    }

    /// Returns *orphan*, *orphan?* or *too soon*; `None` when the process was not left behind.
    pub(super) fn judge(&mut self, place: usize) -> Option<VerdictKind> {
        let starters = std::iter::successors(starter(self.view, place), |place| {
            starter(self.view, *place)
        });
        let unjudged: Vec<usize> = starters
            .take_while(|starter| self.are_orphans[*starter].is_none())
            .collect();
        for starter in unjudged.into_iter().rev() {
            self.judge_after_starter(starter);
        }
        self.judge_after_starter(place)
    }

    fn judge_after_starter(&mut self, place: usize) -> Option<VerdictKind> {
        let verdict = self.verdict(place);
        self.are_orphans[place] = Some(matches!(verdict, Some(VerdictKind::Orphan(_))));
        verdict
    }

    /// Judges a process whose starter was judged.
    fn verdict(&self, place: usize) -> Option<VerdictKind> {
        let view = self.view;
        let record = view.record(place);
        let is_outside = matches!(
            record.role,
            ProcessRole::Adopter | ProcessRole::Shell | ProcessRole::Server | ProcessRole::Unknown
        );
        if is_outside || view.is_stand_in(place) {
            return None;
        }
        let lost_creator = lost_creator(view, place);
        let signs = match starter(view, place).filter(|_| lost_creator.is_none()) {
            Some(starter)
                if self.are_orphans[starter] == Some(true)
                    && !is_independent(view, starter, place) =>
            {
                vec![OrphanSign::StarterIsOrphan(
                    view.record(starter).known.clone(),
                )]
            }
            Some(_) => return None,
            None => signs(view, place, lost_creator),
        };
        let answer = match signs.first()? {
            OrphanSign::StarterIsOrphan(_) => Some(OrphanAnswer::Yes),
            _ => answer(view, place, &signs, self.uses[place]),
        };
        let evidence = OrphanEvidence {
            signs,
            serves: serves(record),
            computes: record.activity == Activity::Computes,
        };
        answer.map(|answer| match answer {
            // The arguments and the environment may show the starter, or that the process is one of
            // a demo.
            _ if view.process(place).awaits_arguments() => VerdictKind::TooSoon,
            OrphanAnswer::Yes => VerdictKind::Orphan(evidence),
            OrphanAnswer::Maybe => VerdictKind::MaybeOrphan(evidence),
            OrphanAnswer::TooSoon => VerdictKind::TooSoon,
        })
    }
}

/// The answer to the question whether a process is an orphan.
#[derive(Debug, Clone, Copy)]
enum OrphanAnswer {
    Yes,
    Maybe,
    TooSoon,
}

/// Applies rules 1 to 5 to the signs of a process without a living starter. `None` when it is no
/// orphan.
fn answer(
    view: ProcessView<'_>,
    place: usize,
    signs: &[OrphanSign],
    use_of_gpu: GpuUse,
) -> Option<OrphanAnswer> {
    let record = view.record(place);
    let has = |is_one: fn(&OrphanSign) -> bool| signs.iter().any(is_one);
    let has_ended = has(|sign| matches!(sign, OrphanSign::CreatorEnded(_)));
    let was_left = has(|sign| matches!(sign, OrphanSign::Left { .. }));
    let served = has(|sign| matches!(sign, OrphanSign::ServedGone(_)));
    let launched = has(|sign| matches!(sign, OrphanSign::LauncherGone(_)));
    let waited = lost_creator(view, place)
        .is_some_and(|creator| matches!(creator.role, ProcessRole::Launcher | ProcessRole::Server));
    let top = top(view, place);
    let was_adopted = view
        .tree
        .parent_of(top)
        .is_some_and(|parent| did_not_start(view, parent, top));
    let proves = has_ended || was_adopted || signs.len() >= 2;
    let trains = view.facts(place).trainer_threads == Ok(true);
    let is_forked_child = was_left && is_forked_child(view, place);
    let is_long = record
        .quiet_since
        .is_some_and(|since| view.snapshot.at.since(since) >= QUIET_AFTER);
    let unless_short = if is_long {
        OrphanAnswer::Yes
    } else {
        OrphanAnswer::Maybe
    };
    match record.role {
        // Rule 1
        ProcessRole::Launcher if !record.forked => match record.activity {
            Activity::Computes => None,
            Activity::Unknown => has_ended.then_some(OrphanAnswer::TooSoon),
            Activity::Quiet => has_ended.then_some(unless_short),
        },
        ProcessRole::Helper => (has_ended || was_left || served).then_some(OrphanAnswer::Yes),
        // Rule 2
        _ if serves(record) => Some(if proves {
            OrphanAnswer::Yes
        } else {
            OrphanAnswer::Maybe
        }),
        // Rules 3 and 4: it depends on another process
        _ if (served || launched || waited) && proves => Some(OrphanAnswer::Yes),
        // Rule 5
        ProcessRole::Script => None,
        role if !(has_ended
            || launched
            || role.is_python() && (use_of_gpu.is_on_gpu || served)) =>
        {
            None
        }
        // Rules 3 and 4
        _ => match record.activity {
            Activity::Computes => is_forked_child.then_some(OrphanAnswer::Maybe),
            Activity::Unknown => (proves || is_forked_child).then_some(OrphanAnswer::TooSoon),
            Activity::Quiet
                if has_ended || proves && (is_forked_child || !trains && !use_of_gpu.is_listed) =>
            {
                Some(unless_short)
            }
            Activity::Quiet if is_forked_child => Some(OrphanAnswer::Maybe),
            Activity::Quiet if proves || !was_left => {
                (!trains && !record.computed).then_some(OrphanAnswer::Maybe)
            }
            Activity::Quiet => None,
        },
    }
}

/// Sign (a): returns the creator that ended while gputop watched.
fn lost_creator(view: ProcessView<'_>, place: usize) -> Option<&LostParent> {
    // A forkserver outlives its trainer: the children of the forkserver lost that trainer, too.
    let helpers = view
        .tree
        .ancestors_of(place)
        .take_while(|ancestor| view.role(*ancestor) == ProcessRole::Helper);
    let lost = [place]
        .into_iter()
        .chain(helpers)
        .filter_map(|process| view.record(process).lost_parent.as_ref());
    let serves = serves(view.record(place));
    lost.filter(|lost| lost.role.runs_python() || serves && lost.role == ProcessRole::Other)
        .find(|lost| !detached(view, place, lost))
}

/// Whether a program is independent of the Python program that started it: it leads a session of
/// its own, or is the starter's own replacement, with the same arguments. Launchers and servers
/// start those that depend on them in such sessions; `torch.distributed` programs start the other
/// ranks with their own arguments.
fn detached(view: ProcessView<'_>, place: usize, starter: &LostParent) -> bool {
    let (process, facts) = (view.process(place), view.facts(place));
    // Unknown arguments may be the same.
    let is_replacement = || {
        let above = starter.process.facts.as_ref();
        facts.forked == Ok(false)
            && starter
                .process
                .argv()
                .is_none_or(|argv| facts.argv.as_ref().ok() == Some(argv))
            && (facts.rank.is_err() || above.is_some_and(|above| above.rank == facts.rank))
    };
    starter.role.is_python()
        && !serves(view.record(place))
        && (facts.session == Ok(process.id.pid) || is_replacement())
}

/// Returns the signs that a process was left behind, strongest first.
fn signs(
    view: ProcessView<'_>,
    place: usize,
    lost_creator: Option<&LostParent>,
) -> Vec<OrphanSign> {
    let ended = lost_creator.map(|lost| {
        let ago = view.snapshot.at.since(lost.at);
        OrphanSign::CreatorEnded(ProcessEnd {
            process: lost.process.clone(),
            ago,
            recorded: recorded_time(view, lost.at),
        })
    });
    let process = view.process(place);
    let signs = [
        ended,
        left(view, top(view, place)),
        group_leader_gone(view, process),
        process.facts.ended_served.ok().map(OrphanSign::ServedGone),
        launcher_gone(view, place, process),
    ];
    signs.into_iter().flatten().collect()
}

/// Returns when a recorder saw something that this model saw at this moment, or learned from the
/// recorder; `None` if no recorder saw it.
fn recorded_time(view: ProcessView<'_>, at: Moment) -> Option<Text> {
    let (snapshot, recorded) = (view.snapshot, view.records.recorded?);
    let clock = WallClock::new(
        snapshot.at,
        snapshot.unix_ms,
        snapshot.host.facts.utc_offset.ok()?,
    );
    if at <= recorded.until {
        Some(Text::new(format!(
            "at {}, seen by the recorder",
            clock.near(at, snapshot.at)
        )))
    } else {
        let last = clock.near(recorded.until, snapshot.at);
        (at <= recorded.resumed)
            .then(|| Text::new(format!("after {last}, when the recorder last looked")))
    }
}

/// Sign (b): the parent has adopted the process.
pub(in crate::model) fn left(view: ProcessView<'_>, place: usize) -> Option<OrphanSign> {
    let to = match view.tree.parent_of(place) {
        Some(parent) if is_adopter(view, parent) || did_not_start(view, parent, place) => {
            let known = &view.record(parent).known;
            format!("PID {}, {}", known.id.pid, known.program()).into()
        }
        None if view.facts(place).parent == Ok(1) => "PID 1".into(),
        _ => return None,
    };
    Some(OrphanSign::Left { to })
}

/// Sign (c): the leader of the process group is gone.
fn group_leader_gone(view: ProcessView<'_>, process: &Process) -> Option<OrphanSign> {
    let (group, parent) = (process.facts.group.ok()?, process.facts.parent.ok()?);
    // Until the first full scan, a process that is not in the list may be alive.
    let is_complete = view.snapshot.host.scan.at != Moment(0)
        && (parent == 1 || view.tree.living(parent).is_some());
    (is_complete && group != process.id.pid && group > 1 && !view.is_alive(group))
        .then_some(OrphanSign::GroupLeaderGone(group))
}

/// Sign (e): the launcher that waits for the end of the process is gone.
fn launcher_gone(view: ProcessView<'_>, place: usize, process: &Process) -> Option<OrphanSign> {
    let facts = &process.facts;
    let parent = facts.parent.ok()?;
    let name = launcher_name(view, place)?;
    let launcher = launchers::named(name);
    // Programs pass the variables on: one that leads a group or session was forked as a daemon, or
    // set itself free.
    let is_free =
        |id: &Reading<u32>| facts.forked != Ok(false) || id.is_err() || *id == Ok(process.id.pid);
    if match launcher.map_or(LaunchPlace::Group, |launcher| launcher.place) {
        LaunchPlace::Group => facts.launcher.is_ok() && is_free(&facts.group),
        LaunchPlace::OwnGroup => facts.launcher.is_ok() && is_free(&facts.session),
        LaunchPlace::Session | LaunchPlace::Any => false,
    } {
        return None;
    }
    let marks =
        |facts: &'_ ProcessFacts| (facts.elastic_run.clone().ok(), facts.launcher.clone().ok());
    let is_launcher = |ancestor: usize| {
        let (role, above) = (view.role(ancestor), view.facts(ancestor));
        let comm = above.comm.as_ref().map_or("", Text::as_str);
        // A program may itself run the launcher. Programs pass the variables on to their workers
        // and to other launchers.
        role == ProcessRole::Launcher
            || launcher
                .is_some_and(|launcher| launcher.is_program(comm, &process_role::arguments(above)))
            || role.runs_python() && marks(above) != marks(facts)
    };
    let is_complete = parent == 1 || view.tree.parent_of(place).is_some();
    let text = match &facts.elastic_run {
        Ok(run) => format!("torchrun (run {run})"),
        Err(_) => format!("launcher ({name})"),
    };
    (is_complete && !view.tree.ancestors_of(place).any(is_launcher))
        .then(|| OrphanSign::LauncherGone(text.into()))
}

/// Returns the name of the launcher that the environment of a process shows, or its program.
fn launcher_name(view: ProcessView<'_>, place: usize) -> Option<&str> {
    let facts = view.facts(place);
    match (&facts.elastic_run, &facts.launcher) {
        (Ok(_), _) => Some("torchrun"),
        (_, Ok(name)) if name.as_str() != launchers::DEMO => Some(name.as_str()),
        // The role of each child in the launch table.
        _ if view.role(place) != ProcessRole::Worker => None,
        _ => {
            let (comm, argv) = (
                facts.comm.as_ref().map_or("", Text::as_str),
                process_role::arguments(facts),
            );
            let is_child = |launcher: &&Launcher| launcher.is_child(comm, &argv);
            launchers::launchers()
                .iter()
                .find(is_child)
                .map(|launcher| launcher.name.as_str())
        }
    }
}

/// Returns the processes that most likely keep the memory of a ghost. `found` have one of its GPUs
/// open without being listed. Candidates have the same user, and do not work for another living
/// process. The first group with members wins:
/// 1. the process group of the ghost;
/// 2. the session of the ghost;
/// 3. `DataLoader` workers and others that only serve;
/// 4. processes with the arguments of the ghost;
/// 5. all processes that run Python.
pub(super) fn likely_holders(
    view: ProcessView<'_>,
    ghost: ProcessId,
    mut found: Vec<usize>,
) -> Vec<ProcessId> {
    let was = view.facts_of_ended(ghost);
    found.sort_unstable();
    found.dedup();
    found.retain(|at| {
        let record = view.record(*at);
        let is_alone =
            !serves(record) || record.lost_parent.is_some() || starter(view, *at).is_none();
        is_alone
            && was
                .and_then(|was| was.uid.ok())
                .is_none_or(|uid| view.facts(*at).uid == Ok(uid))
    });
    let shares = |at: usize, id: fn(&ProcessFacts) -> Reading<u32>| {
        was.and_then(|was| id(was).ok())
            .is_some_and(|shared| id(view.facts(at)) == Ok(shared))
    };
    let ranks: [&dyn Fn(usize) -> bool; 5] = [
        &|at| shares(at, |facts| facts.group),
        &|at| shares(at, |facts| facts.session),
        &|at| serves(view.record(at)),
        &|at| was.is_some_and(|was| was.argv.is_ok() && view.facts(at).argv == was.argv),
        &|at| view.role(at).is_python(),
    ];
    let best = ranks.iter().map(|rank| {
        found
            .iter()
            .copied()
            .filter(|at| rank(*at))
            .collect::<Vec<_>>()
    });
    let best = best.into_iter().find(|members| !members.is_empty());
    best.into_iter()
        .flatten()
        .map(|at| view.process(at).id)
        .collect()
}
