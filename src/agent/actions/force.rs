//! Ends a whole job by force, all of it or nothing.
//!
//! 1. Stop every process that the person was shown.
//! 2. Stop the children of stopped processes too, and show them, until a scan of all of `/proc` finds no new ones while all
//!    are stopped. Then none of them can start another process.
//! 3. Kill all of them, children before their parents. Child-first without a stop, a supervisor starts
//!    them anew; parent-first, they become orphans.
//!
//! If that fails, all processes that were stopped for it are continued, and none is killed. A process that left the job
//! before the scan, because its parent ended and another process adopted it, is not found.

mod observe;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal as Number, pidfd_send_signal};

use self::observe::StopActivity;
use self::plan::{EndPlan, SeenProcess};
use super::audit::SignalMode;
use super::held::HeldProcess;
use super::refusal::Refusal;
use super::{CommandHandler, clock};
use crate::base::units::Moment;
use crate::protocol::command::Signal;
use crate::protocol::reply::Outcome;
use crate::protocol::snapshot::{ProcessId, State};

/// Locked while processes are stopped: an agent that left now would leave them stopped.
static ACT: Mutex<()> = Mutex::new(());

/// The pidfds of the processes that are stopped now. They are continued if a bug ends the agent halfway.
static STOPPED: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());

/// Continues all stopped processes, after a panic of the thread that stopped them.
pub(in crate::agent) fn break_off_act() {
    // If the mutex is locked, the calling thread itself holds it.
    let Ok(stopped) = STOPPED.try_lock() else { return };
    for pidfd in &*stopped {
        // The process may have ended.
        let _ended = pidfd_send_signal(pidfd, Number::CONT);
    }
}

/// Waits until no process is stopped by this agent. That takes no longer than [`ForcedEnd::LONGEST`].
pub(in crate::agent) fn finish_act() {
    drop(ACT.lock().unwrap_or_else(PoisonError::into_inner));
}

impl CommandHandler {
    /// Ends these processes, all or none, and what descends from them.
    pub(super) fn force(&mut self, processes: &[ProcessId]) {
        // A process that ended just now is no reason to keep the others: the viewer has been told.
        let shown: BTreeSet<ProcessId> = processes.iter().copied().filter(|it| !self.gone.contains(it)).collect();
        let stranger = shown.iter().find(|it| !self.held.contains_key(it)).copied();
        if self.readonly || stranger.is_some() {
            for process in shown {
                let refusal = match stranger {
                    _ if self.readonly => Refusal::ReadOnly,
                    Some(stranger) if stranger != process => Refusal::NotAlone(stranger.pid),
                    _ => Refusal::NotHeld,
                };
                self.tell(process, refusal.outcome(process.pid));
            }
            return;
        }
        let undisturbed = ACT.lock().unwrap_or_else(PoisonError::into_inner);
        let mut act = ForcedEnd::new(self);
        match act.stop_all(&shown) {
            Ok(()) => act.end_all(),
            Err(failure) => act.let_all_go(&shown, &failure),
        }
        drop(act);
        STOPPED.lock().unwrap_or_else(PoisonError::into_inner).clear();
        drop(undisturbed);
    }
}

/// Why the act cannot go on.
#[derive(Debug, PartialEq, Eq)]
enum ForceFailure {
    /// One of them may not be ended.
    Refused(u32, Refusal),
    /// One of them runs on.
    Runs(u32),
    /// There is always another one.
    NoEnd,
    /// `/proc` does not say who is whose child.
    Blind(String),
}

impl ForceFailure {
    fn sentence(&self) -> String {
        let why = match self {
            Self::Refused(pid, refusal) => refusal.sentence(*pid),
            Self::Runs(pid) => format!(
                "{pid} does not stop, because someone makes it go on or it is busy in the kernel: send SIGKILL to it alone"
            ),
            Self::NoEnd => "they start new processes faster than these can be stopped: try again".to_owned(),
            Self::Blind(error) => format!("cannot look for their children: {error}"),
        };
        format!("nothing was ended: {why}")
    }
}

/// A process that is to end.
#[derive(Debug)]
struct EndedMember {
    process: ProcessId,
    /// Someone else had stopped it: it is not ours to let go on.
    was_stopped: bool,
    motion: StopActivity,
}

struct ForcedEnd<'a> {
    handler: &'a mut CommandHandler,
    plan: EndPlan,
    members: BTreeMap<u32, EndedMember>,
    began: Moment,
}

impl<'a> ForcedEnd<'a> {
    /// The longest that anyone is kept stopped before it is known whether all can be ended.
    const LONGEST: Duration = Duration::from_secs(3);

    /// How long one is waited for that no signal reaches now. Most leave the kernel within milliseconds;
    /// one that hangs there would never, and is killed all the same.
    const BLOCKED: Duration = Duration::from_millis(500);

    /// The number of times that new processes may appear.
    const MOST_LOOKS: u32 = 10;

    fn new(handler: &'a mut CommandHandler) -> Self {
        Self { handler, plan: EndPlan::default(), members: BTreeMap::new(), began: clock::now() }
    }

    /// Stops those shown and all that descends from them.
    fn stop_all(&mut self, shown: &BTreeSet<ProcessId>) -> Result<(), ForceFailure> {
        for process in shown {
            self.stop(*process, SignalMode::Job)?;
        }
        let mut looks = 0;
        loop {
            self.settle()?;
            if self.gather()? {
                looks += 1;
            } else if self.stand_still() {
                return Ok(());
            }
            if looks >= Self::MOST_LOOKS || self.lasts(Self::LONGEST) {
                return Err(ForceFailure::NoEnd);
            }
        }
    }

    /// Looks for who descends from members, and stops them. False when there was nobody new.
    fn gather(&mut self) -> Result<bool, ForceFailure> {
        let look = observe::look().map_err(|error| ForceFailure::Blind(error.to_string()))?;
        let mut has_grown = false;
        // One look serves for generation after generation: each is a parent only once it stands still.
        loop {
            let mut joined = false;
            for seen in self.plan.joining(&look) {
                joined |= self.join(seen)?;
            }
            if !joined {
                return Ok(has_grown);
            }
            has_grown = true;
            self.settle()?;
        }
    }

    /// Takes in a child of a member. False when it is none any more.
    fn join(&mut self, seen: SeenProcess) -> Result<bool, ForceFailure> {
        let refused = |refusal| ForceFailure::Refused(seen.pid, refusal);
        if let Some(refusal) = self.handler.own.refusal(seen.pid) {
            return Err(refused(refusal));
        }
        if self.plan.len() >= self.handler.most_held {
            return Err(refused(Refusal::TooMany(self.handler.most_held)));
        }
        let process = ProcessId { pid: seen.pid, start_ticks: Some(seen.start_ticks) };
        let held = match HeldProcess::open(process) {
            Ok(held) => held,
            Err(Refusal::Ended) => return Ok(false),
            Err(refusal) => return Err(refused(refusal)),
        };
        // Whoever has this pidfd: it must be a member's child now, and that member still have its PID.
        let Some(parent) = held.parent().and_then(|pid| self.members.get(&pid)).map(|it| it.process) else {
            return Ok(false);
        };
        if held.has_ended() || self.handler.held.get(&parent).is_none_or(HeldProcess::is_reaped) {
            return Ok(false);
        }
        let comm = held.comm().clone();
        let is_new = !self.handler.held.contains_key(&process);
        if is_new {
            self.handler.held.insert(process, held);
        }
        if let Err(failure) = self.stop(process, SignalMode::Joined) {
            // The viewer never heard of it, and so would never let go of it.
            if is_new {
                self.handler.held.remove(&process);
            }
            return Err(failure);
        }
        self.handler.reply(process, Outcome::Joined { comm, parent });
        Ok(true)
    }

    /// Stops one that is held, and makes a member of it.
    fn stop(&mut self, process: ProcessId, mode: SignalMode) -> Result<(), ForceFailure> {
        let Some(held) = self.handler.held.get(&process) else {
            return Err(ForceFailure::Refused(process.pid, Refusal::NotHeld));
        };
        let was_stopped = held.state() == Some(State::Stopped);
        held.send(Number::STOP).map_err(|refusal| ForceFailure::Refused(process.pid, refusal))?;
        if !was_stopped {
            STOPPED.lock().unwrap_or_else(PoisonError::into_inner).extend(held.duplicate());
        }
        self.handler.audit.act(held.deed(Signal::Kill, mode));
        // One that is gone has no parent, and needs no end.
        let Some(parent) = held.parent() else { return Ok(()) };
        self.plan.add(process.pid, parent);
        self.members.insert(process.pid, EndedMember { process, was_stopped, motion: StopActivity::Moving });
        Ok(())
    }

    /// Waits until nobody moves.
    fn settle(&mut self) -> Result<(), ForceFailure> {
        loop {
            let mut moving = None;
            for (pid, member) in self.members.iter_mut().filter(|(_, it)| it.motion == StopActivity::Moving) {
                member.motion = StopActivity::of(*pid);
                if member.motion == StopActivity::Moving {
                    moving = Some(*pid);
                }
            }
            let Some(pid) = moving else { return Ok(()) };
            if self.lasts(Self::LONGEST) {
                return Err(ForceFailure::Runs(pid));
            }
            self.wait();
        }
    }

    /// Whether everyone stands still at once: what was seen one after the other proves it only so. Who was made
    /// to go on meanwhile is stopped again.
    fn stand_still(&mut self) -> bool {
        let is_patient = !self.lasts(Self::BLOCKED);
        let (mut is_blocked, mut all) = (false, true);
        for (pid, member) in &mut self.members {
            member.motion = StopActivity::of(*pid);
            is_blocked |= member.motion == StopActivity::Blocked;
            if member.motion == StopActivity::Moving {
                all = false;
                // Should it not be possible any more, `settle` says who runs.
                let _ended = self.handler.held.get(&member.process).map(|held| held.send(Number::STOP));
            }
        }
        if is_blocked && is_patient {
            self.wait();
            return false;
        }
        all
    }

    /// Kills everyone, children before their parents.
    fn end_all(&mut self) {
        let Self { handler, plan, members, .. } = self;
        for process in plan.leaves_first().iter().filter_map(|pid| members.get(pid)).map(|it| it.process) {
            if let Some(held) = handler.held.get_mut(&process) {
                let outcome = held.signal(Signal::Kill, clock::now());
                handler.tell(process, outcome);
            }
        }
    }

    /// Has everyone go on, and says why nobody was ended.
    fn let_all_go(&mut self, shown: &BTreeSet<ProcessId>, failure: &ForceFailure) {
        let Self { handler, plan, members, .. } = self;
        for member in plan.leaves_first().iter().filter_map(|pid| members.get(pid)) {
            if !member.was_stopped
                && let Some(held) = handler.held.get(&member.process)
            {
                // The process may have ended.
                let _ended = held.send(Number::CONT);
            }
        }
        let reason = failure.sentence();
        // It may have failed before the last of them was stopped.
        let all: BTreeSet<ProcessId> = members.values().map(|it| it.process).chain(shown.iter().copied()).collect();
        for process in all {
            handler.tell(process, Outcome::Resumed { reason: reason.as_str().into() });
        }
    }

    fn lasts(&self, span: Duration) -> bool {
        clock::now().since(self.began) >= span
    }

    /// Waits a moment, or until one of those that do not stand still has ended.
    fn wait(&self) {
        let a_millisecond = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let restless = self.members.values().filter(|it| it.motion != StopActivity::Still);
        let pidfds = restless.filter_map(|it| self.handler.held.get(&it.process)?.ends());
        let mut fds: Vec<PollFd<'_>> = pidfds.map(|it| PollFd::from_borrowed_fd(it, PollFlags::IN)).collect();
        // An interrupted wait is a short one.
        let _woken = poll(&mut fds, Some(&a_millisecond));
    }
}
