//! Ends a whole job by force, all of it or nothing.
//!
//! 1. Stop every process that the user saw.
//! 2. Stop the children of stopped processes too, and report them, until a scan of all of `/proc`
//!    finds no new ones while all are stopped. Then none of them can start another process.
//! 3. Kill all of them, children before their parents. Child-first without a stop, a supervisor
//!    starts them anew; parent-first, they become orphans.
//!
//! If a step before the last one fails, all processes that were stopped for it are continued, and
//! none is killed. If the agent itself is killed meanwhile, another process continues them
//! ([`rescuer`]). A process that left the job before the scan, because its parent ended and another
//! process adopted it, is not found.

mod observe;
mod plan;
mod rescuer;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal as Number;

use self::observe::StopActivity;
use self::plan::{Parents, SeenProcess, joining, leaves_first};
use self::rescuer::Rescuer;
pub(in crate::agent) use self::rescuer::continue_stopped;
use super::audit::SignalMode;
use super::held::HeldProcess;
use super::refusal::Refusal;
use super::{CommandHandler, clock};
use crate::base::units::Moment;
use crate::protocol::command::Signal;
use crate::protocol::reply::Outcome;
use crate::protocol::snapshot::{ProcessId, State};

/// Locked while processes are stopped: an agent that ended now would leave them stopped.
static FORCED_END: Mutex<()> = Mutex::new(());

/// Waits until no forced end is in progress. That takes no longer than
/// [`CommandHandler::LONGEST_STOP`].
pub(in crate::agent) fn finish_forced_end() {
    drop(FORCED_END.lock().unwrap_or_else(PoisonError::into_inner));
}

impl CommandHandler {
    pub(super) fn force(&mut self, processes: &[ProcessId]) {
        // A process whose end was reported to the viewer does not prevent the end of the others.
        let shown: BTreeSet<ProcessId> = processes
            .iter()
            .copied()
            .filter(|process| !self.reported_ended.contains(process))
            .collect();
        let not_held = shown
            .iter()
            .find(|process| !self.held.contains_key(process))
            .copied();
        if self.readonly || not_held.is_some() {
            for process in shown {
                let refusal = match not_held {
                    _ if self.readonly => Refusal::ReadOnly,
                    Some(other) if other != process => Refusal::NotAlone(process.pid, other.pid),
                    _ => Refusal::NotHeld(process.pid),
                };
                self.report(process, refusal.into());
            }
            return;
        }
        let guard = FORCED_END.lock().unwrap_or_else(PoisonError::into_inner);
        let mut forced_end = ForcedEnd::new(self);
        match forced_end.stop_all(&shown) {
            Ok(()) => forced_end.kill_all(),
            Err(why) => forced_end.continue_all(&shown, &why),
        }
        forced_end.rescuer.dismiss();
        drop(guard);
    }
}

struct ForcedEnd<'a> {
    handler: &'a mut CommandHandler,
    parents: Parents,
    /// By PID: the processes to end, and whether each is stopped.
    members: BTreeMap<u32, (ProcessId, StopActivity)>,
    /// The processes that this forced end has stopped, in this order.
    stopped: Vec<ProcessId>,
    rescuer: Rescuer,
    started: Moment,
}

impl<'a> ForcedEnd<'a> {
    /// How long to wait for a process that is busy in the kernel, where no signal reaches it. Most
    /// return within milliseconds. A process that hangs there never does, and is killed all the
    /// same.
    const BLOCKED: Duration = Duration::from_millis(500);

    const MOST_SCANS: u32 = 10;

    fn new(handler: &'a mut CommandHandler) -> Self {
        let rescuer = Rescuer::start();
        let (parents, members, stopped) = (Parents::new(), BTreeMap::new(), Vec::new());
        Self {
            handler,
            parents,
            members,
            stopped,
            rescuer,
            started: clock::now(),
        }
    }

    fn stop_all(&mut self, shown: &BTreeSet<ProcessId>) -> Result<(), String> {
        for process in shown {
            self.stop(*process, SignalMode::Job)?;
        }
        let mut scans = 0;
        loop {
            self.wait_for_stops()?;
            if self.stop_descendants()? {
                scans += 1;
            } else if self.are_all_still() {
                return Ok(());
            }
            if scans >= Self::MOST_SCANS || self.has_lasted(self.handler.longest_stop) {
                return Err(
                    "they start new processes faster than these can be stopped: try again"
                        .to_owned(),
                );
            }
        }
    }

    /// Finds and stops descendants of members. Returns false when it found no new ones.
    fn stop_descendants(&mut self) -> Result<bool, String> {
        let scan = observe::all_processes()
            .map_err(|error| format!("cannot look for their children: {error}"))?;
        let mut has_grown = false;
        // One scan serves all generations: once a process is stopped, its children are searched for
        // in the same scan.
        loop {
            let mut has_joined = false;
            for seen in joining(&self.parents, &scan) {
                has_joined |= self.join(seen)?;
            }
            if !has_joined {
                return Ok(has_grown);
            }
            has_grown = true;
            self.wait_for_stops()?;
        }
    }

    /// Holds and stops a child of a member. Returns false when the process is no longer one.
    fn join(
        &mut self,
        SeenProcess {
            pid, start_ticks, ..
        }: SeenProcess,
    ) -> Result<bool, String> {
        self.handler.protected.check(pid)?;
        if self.parents.len() >= self.handler.most_held {
            return Err(Refusal::TooMany(pid, self.handler.most_held).into());
        }
        let process = ProcessId {
            pid,
            start_ticks: Some(start_ticks),
        };
        let held = match HeldProcess::open(process) {
            Err(Refusal::Ended(_)) => return Ok(false),
            held => held?,
        };
        // The process of this pidfd must be the child of a member now, and that member must still
        // have its PID.
        let parent = held
            .state_and_parent()
            .and_then(|(_, pid)| self.members.get(&pid))
            .copied();
        let Some((parent, _)) = parent else {
            return Ok(false);
        };
        if held.has_ended()
            || self
                .handler
                .held
                .get(&parent)
                .is_none_or(HeldProcess::is_reaped)
        {
            return Ok(false);
        }
        let comm = held.comm.clone();
        let is_new = !self.handler.held.contains_key(&process);
        if is_new {
            self.handler.held.insert(process, held);
        }
        if let Err(why) = self.stop(process, SignalMode::Joined) {
            // The viewer does not know the process, and so would never release it.
            if is_new {
                self.handler.held.remove(&process);
            }
            return Err(why);
        }
        self.handler
            .reply(process, Outcome::Joined { comm, parent });
        Ok(true)
    }

    fn stop(&mut self, process: ProcessId, mode: SignalMode) -> Result<(), String> {
        let held = self
            .handler
            .held
            .get(&process)
            .ok_or(Refusal::NotHeld(process.pid))?;
        let was_stopped = held
            .state_and_parent()
            .is_some_and(|(state, _)| state == State::Stopped);
        // A process that another program has stopped stays stopped when the others are continued.
        if !was_stopped {
            self.rescuer.add(process);
            self.stopped.push(process);
        }
        held.send(Number::STOP)?;
        if let Some(audit) = &mut self.handler.audit {
            audit.signal(held.record(Signal::Kill, mode));
        }
        // A process that was reaped has no parent, and is no member.
        if let Some((_, parent)) = held.state_and_parent() {
            self.parents.insert(process.pid, parent);
            self.members
                .insert(process.pid, (process, StopActivity::Moving));
        }
        Ok(())
    }

    fn wait_for_stops(&mut self) -> Result<(), String> {
        loop {
            let mut running = None;
            for (pid, (_, activity)) in &mut self.members {
                if *activity == StopActivity::Moving {
                    *activity = StopActivity::read(*pid);
                    running = running.or((*activity == StopActivity::Moving).then_some(*pid));
                }
            }
            let Some(pid) = running else { return Ok(()) };
            if self.has_lasted(self.handler.longest_stop) {
                return Err(format!(
                    "{pid} does not stop, because someone makes it go on or it is busy in the kernel: \
                     send SIGKILL to it alone"
                ));
            }
            self.wait();
        }
    }

    /// Checks again that no member runs, since they stopped one after the other. Stops a member
    /// again that was continued meanwhile.
    fn are_all_still(&mut self) -> bool {
        let (mut is_blocked, mut is_moving) = (false, false);
        for (pid, (process, activity)) in &mut self.members {
            *activity = StopActivity::read(*pid);
            is_blocked |= *activity == StopActivity::Blocked;
            if *activity == StopActivity::Moving {
                is_moving = true;
                // If that fails, `wait_for_stops` names the process.
                let _refusal = self
                    .handler
                    .held
                    .get(process)
                    .map(|held| held.send(Number::STOP));
            }
        }
        if is_blocked && !self.has_lasted(Self::BLOCKED) {
            self.wait();
            return false;
        }
        !is_moving
    }

    fn kill_all(&mut self) {
        for pid in leaves_first(&self.parents) {
            if let Some((process, _)) = self.members.get(&pid)
                && let Some(held) = self.handler.held.get_mut(process)
            {
                let outcome = held.signal(Signal::Kill, clock::now());
                self.handler.report(*process, outcome);
            }
        }
    }

    fn continue_all(&mut self, shown: &BTreeSet<ProcessId>, why: &str) {
        for held in self
            .stopped
            .iter()
            .rev()
            .filter_map(|process| self.handler.held.get(process))
        {
            // If that is not permitted, the process was not stopped either.
            let _refusal = held.send(Number::CONT);
        }
        // If a stop failed, not all shown processes are members.
        let members = self.members.values().map(|(process, _)| *process);
        let reason = format!("nothing was ended: {why}");
        for process in members
            .chain(shown.iter().copied())
            .collect::<BTreeSet<ProcessId>>()
        {
            self.handler.report(
                process,
                Outcome::Resumed {
                    reason: reason.as_str().into(),
                },
            );
        }
    }

    fn has_lasted(&self, span: Duration) -> bool {
        clock::now().since(self.started) >= span
    }

    /// Waits for a millisecond, or until a member that is not still ends.
    fn wait(&self) {
        let a_millisecond = Timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        };
        let active = self
            .members
            .values()
            .filter(|(_, activity)| *activity != StopActivity::Still);
        let pidfds =
            active.filter_map(|(process, _)| self.handler.held.get(process)?.running_pidfd());
        let mut fds: Vec<PollFd<'_>> = pidfds
            .map(|pidfd| PollFd::from_borrowed_fd(pidfd, PollFlags::IN))
            .collect();
        // An interrupted wait is a short one.
        let _woken = poll(&mut fds, Some(&a_millisecond));
    }
}
