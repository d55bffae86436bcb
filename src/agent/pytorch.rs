//! Looks into the memory of PyTorch's processes: how much of what they hold tensors hold, and how much is
//! cache. Nothing runs in them, and nothing is written.
//!
//! ```text
//! loop ──► order: the GPU processes ──► thread ──► Target, one a process ──► Place ──► Books ──► Stats
//!      ◄── what is new ◄───────────────────  target.rs                find.rs   books.rs  stats.rs
//! ```
//!
//! To look into a process takes its mmap lock, and hangs when that process hangs in the driver: so it has a
//! thread of its own, which is left behind when it does not come back.
//!
//! Only GPU processes are looked into, whom NVML names with memory of their own. A forked worker has a copy of its
//! parent's allocator, as it was at the fork; but what its parent had on the GPU it cannot use, so NVML does
//! not name it. Should it, for something else that the worker has there, the copy is known by where it stands: where it
//! stands in an older process, who opened all that the worker has of CUDA ([`fork`]). Where nobody older is known, or the
//! kernel does not tell who opened it, as in a container without `kcmp`, a copy is what was forked, stands still and claims
//! more than the driver gave ([`devices`]).

pub(super) mod cuda_devices;
mod elf;
mod find;
mod fork;
mod layout;
mod memory;
mod stats;
mod target;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

pub(super) use self::layout::Stats;
use self::stats::Scratch;
use self::target::Target;
pub(super) use self::target::{Outcome, Said, Whose};
use super::procfs::ListedProcess;
use super::{AgentEvent, clock};
use crate::base::units::Moment;
use crate::protocol::snapshot::{AllocatorUnreadable, ProcessId};

/// One that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(1);
/// It is not looked into for so long then, unless it comes back.
const AVOID: Duration = Duration::from_mins(1);
/// So many are searched for an allocator in one pass: each takes some 0.1 ms. The others have their turn later.
const SEARCHES: u32 = 4;
/// And so many in the first passes together: one who asks once sees all of a common host.
const AT_ONCE: u32 = 64;
/// No more threads than this are left behind.
const STUCK: usize = 8;

/// A process to look into.
#[derive(Debug, Clone, Copy)]
struct ReadRequest {
    process: ListedProcess,
    /// Whether the main loop still has the last result for this process. If so, only a new result is sent.
    is_known: bool,
}

/// The processes to look into, by identity.
type Order = Vec<ReadRequest>;
/// What the thread is at, and since when; and whether it was left behind, and is to end.
type At = Arc<Mutex<(Option<(ProcessId, Moment)>, bool)>>;

/// The thread, seen from the agent's loop.
#[derive(Debug)]
pub(super) struct Peeker {
    events: mpsc::Sender<AgentEvent>,
    thread: Option<(SyncSender<Order>, At)>,
    /// Counts the threads: what an earlier one says comes too late.
    generation: u64,
    /// Those that were left behind, and at whom: by their number.
    stuck: BTreeMap<u64, ProcessId>,
    avoid: BTreeMap<ProcessId, Moment>,
    /// What each said last.
    said: BTreeMap<ProcessId, Outcome>,
}

impl Peeker {
    /// Looks at nobody yet.
    pub(super) fn new(events: mpsc::Sender<AgentEvent>) -> Self {
        Self {
            events,
            thread: None,
            generation: 0,
            stuck: BTreeMap::new(),
            avoid: BTreeMap::new(),
            said: BTreeMap::new(),
        }
    }

    /// Has these looked into. While the thread is still at the ones before, this is passed over.
    pub(super) fn order(&mut self, processes: impl Iterator<Item = ListedProcess>, now: Moment) {
        let mut order: Order = processes.map(|process| ReadRequest { process, is_known: false }).collect();
        order.sort_unstable_by_key(|request| request.process.id);
        self.said.retain(|id, _| names(&order, *id));
        self.avoid.retain(|_, until| now < *until);
        order.retain(|request| !self.avoid.contains_key(&request.process.id));
        if order.is_empty() && self.thread.is_none() {
            return;
        }
        if self.thread.is_none() && self.stuck.len() < STUCK {
            self.generation += 1;
            self.thread = start(self.generation, self.events.clone()).ok();
        }
        let Some((thread, _)) = &self.thread else {
            // Nobody is looked into any more: what they said is too old to be shown.
            self.said.extend(order.iter().map(|request| (request.process.id, Err(AllocatorUnreadable::NotYet))));
            return;
        };
        for request in &mut order {
            request.is_known = self.said.contains_key(&request.process.id);
        }
        if let Err(TrySendError::Disconnected(_)) = thread.try_send(order) {
            self.thread = None;
        }
    }

    /// When the thread hangs, should it not come back before.
    pub(super) fn deadline(&self) -> Option<Moment> {
        self.at().map(|(_, since)| since.after(DEADLINE))
    }

    fn at(&self) -> Option<(ProcessId, Moment)> {
        let (_, at) = self.thread.as_ref()?;
        at.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    /// Leaves the thread behind when it hangs. Says whether it did: then the others are to be ordered anew.
    pub(super) fn check(&mut self, now: Moment) -> bool {
        let Some((id, _)) = self.at().filter(|(_, since)| now.since(*since) >= DEADLINE) else { return false };
        if let Some((_, at)) = self.thread.take() {
            at.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        }
        self.stuck.insert(self.generation, id);
        self.avoid.insert(id, now.after(AVOID));
        self.said.insert(id, Err(AllocatorUnreadable::Hung));
        true
    }

    /// Takes what a thread found.
    pub(super) fn learn(&mut self, generation: u64, said: Vec<(ProcessId, Outcome)>) {
        if generation == self.generation && self.thread.is_some() {
            self.said.extend(said);
        } else if said.is_empty()
            && let Some(id) = self.stuck.remove(&generation)
        {
            // It was left behind, and is free again: the process did not hang, or does not any more.
            self.avoid.remove(&id);
            self.said.remove(&id);
        }
    }

    /// What a process said last; absent for one that nobody looked into.
    pub(super) fn said(&self, id: ProcessId) -> Option<&Outcome> {
        self.said.get(&id)
    }
}

fn names(order: &Order, id: ProcessId) -> bool {
    order.binary_search_by_key(&id, |request| request.process.id).is_ok()
}

fn start(generation: u64, events: mpsc::Sender<AgentEvent>) -> io::Result<(SyncSender<Order>, At)> {
    let (sender, orders) = mpsc::sync_channel(1);
    let at = At::default();
    let place = at.clone();
    thread::Builder::new().name("peek".to_owned()).spawn(move || run(generation, &orders, &place, &events))?;
    Ok((sender, at))
}

fn run(generation: u64, orders: &Receiver<Order>, at: &At, events: &mpsc::Sender<AgentEvent>) {
    let mut targets: BTreeMap<ProcessId, Target> = BTreeMap::new();
    let (mut scratch, mut searches) = (Scratch::default(), AT_ONCE);
    let say = |said| events.send(AgentEvent::Peeked(generation, said)).is_ok();
    // Says whether it goes on: one that was left behind says that it is back, and ends.
    let is_at = |what| {
        let was_left = {
            let mut at = at.lock().unwrap_or_else(PoisonError::into_inner);
            at.0 = what;
            at.1
        };
        if was_left {
            say(Vec::new());
        }
        !was_left
    };
    while let Ok(order) = orders.recv() {
        targets.retain(|id, _| names(&order, *id));
        searches = searches.max(SEARCHES);
        // Who was read before is read first, and told of before anyone is searched: that takes longer, and may hang.
        let (found, others): (Order, Order) =
            order.into_iter().partition(|request| targets.get(&request.process.id).is_some_and(Target::is_found));
        let mut said = Vec::new();
        for request in found {
            let id = request.process.id;
            let now = clock::now();
            if !is_at(Some((id, now))) {
                return;
            }
            let Some(target) = targets.get_mut(&id) else { continue };
            said.extend(target.look(request, now, &mut searches, &mut scratch).map(|it| (id, it.clone())));
        }
        // What was read by the PID of one that has ended may be another's. Who has nothing new to say is who he was.
        let handle = |id: &ProcessId| targets.get(id).and_then(Target::handle);
        let (ended, unknown) = memory::ended(said.iter().filter_map(|(id, _)| Some((*id, handle(id)?))));
        for id in &ended {
            targets.remove(id);
        }
        said.retain(|it| !ended.contains(&it.0));
        // Nor is what it said before told for what it says now: that is in the next pass.
        for (id, outcome) in said.iter_mut().filter(|it| unknown.contains(&it.0)) {
            *outcome = Err(AllocatorUnreadable::NotYet);
            targets.entry(*id).and_modify(Target::was_not_heard);
        }
        if !is_at(None) || !said.is_empty() && !say(said) {
            return;
        }
        for request in others {
            let id = request.process.id;
            let now = clock::now();
            if !is_at(Some((id, now))) {
                return;
            }
            let target = targets.entry(id).or_insert_with(Target::new);
            let said = target.look(request, now, &mut searches, &mut scratch).map(|it| (id, it.clone()));
            if !is_at(None) || said.is_some_and(|it| !say(vec![it])) {
                return;
            }
        }
    }
}
