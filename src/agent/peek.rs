//! Looks into the memory of PyTorch's processes: how much of what they hold tensors hold, and how much is
//! cache. Nothing runs in them, and nothing is written.
//!
//! ```text
//! loop ──► order: the tenants ──► thread ──► Target, one a process ──► Place ──► Stats
//!      ◄── what each said ◄──────────────────  target.rs                find.rs   stats.rs
//! ```
//!
//! To look into a process takes its mmap lock, and hangs when that process hangs in the driver: so it has a
//! thread of its own, which is left behind when it does not come back.
//!
//! Only tenants are looked into, whom NVML names with memory of their own. A forked worker has a copy of its
//! parent's allocator, as it was at the fork; but what its parent had on the GPU it cannot use, so NVML does
//! not name it. Where it names one with less memory than its allocator claims, the join shows nothing
//! ([`devices`]).

pub(super) mod devices;
mod elf;
mod find;
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

pub(super) use self::stats::Stats;
pub(super) use self::target::Outcome;
use self::target::Target;
use super::{Wake, clock};
use crate::snapshot::{ProcessId, Reading, Unread};
use crate::units::Moment;

/// One that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(2);
/// It is not looked into for so long then.
const AVOID: Duration = Duration::from_mins(1);
/// So many are searched for an allocator in one pass: each takes some 0.1 ms. The others have their turn later.
const SEARCHES: u32 = 4;
/// And so many in the first passes together: one who asks once sees all of a common host.
const AT_ONCE: u32 = 64;
/// No more threads than this are left behind.
const STUCK: usize = 4;

/// A process to look into.
#[derive(Debug, Clone, Copy)]
pub(super) struct Whom {
    pub(super) id: ProcessId,
    /// The user whose it is.
    pub(super) uid: Reading<u32>,
    /// On how many GPUs the driver named it last. Another number is news, and no more.
    pub(super) gpus: usize,
}

/// Whom to look into, in order.
pub(super) type Order = Vec<Whom>;
/// What the thread is at, and since when.
type At = Arc<Mutex<Option<(ProcessId, Moment)>>>;

/// The thread, seen from the agent's loop.
#[derive(Debug)]
pub(super) struct Peeker {
    events: mpsc::Sender<Wake>,
    thread: Option<(SyncSender<Order>, At)>,
    /// Counts the threads: what an earlier one says comes too late.
    generation: u64,
    stuck: usize,
    avoid: BTreeMap<ProcessId, Moment>,
    /// What each said last.
    said: BTreeMap<ProcessId, Outcome>,
}

impl Peeker {
    /// Looks at nobody yet.
    pub(super) fn new(events: mpsc::Sender<Wake>) -> Self {
        Self { events, thread: None, generation: 0, stuck: 0, avoid: BTreeMap::new(), said: BTreeMap::new() }
    }

    /// Has these looked into. While the thread is still at the ones before, this is passed over.
    pub(super) fn order(&mut self, mut order: Order, now: Moment) {
        order.sort_unstable_by_key(|it| it.id);
        self.said.retain(|id, _| names(&order, *id));
        self.avoid.retain(|_, until| now < *until);
        order.retain(|it| !self.avoid.contains_key(&it.id));
        if order.is_empty() && self.thread.is_none() || self.stuck >= STUCK {
            return;
        }
        if self.thread.is_none() {
            self.generation += 1;
            self.thread = start(self.generation, self.events.clone()).ok();
        }
        if let Some((thread, _)) = &self.thread
            && let Err(TrySendError::Disconnected(_)) = thread.try_send(order)
        {
            self.thread = None;
        }
    }

    /// Leaves the thread behind when it hangs.
    pub(super) fn check(&mut self, now: Moment) {
        let Some((_, at)) = &self.thread else { return };
        let at = *at.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((id, since)) = at
            && now.since(since) >= DEADLINE
        {
            self.thread = None;
            self.stuck += 1;
            self.avoid.insert(id, now.after(AVOID));
            self.said.insert(id, Err(Unread::Hung));
        }
    }

    /// Takes what a thread found.
    pub(super) fn learn(&mut self, generation: u64, said: Vec<(ProcessId, Outcome)>) {
        if generation == self.generation && self.thread.is_some() {
            self.said.extend(said);
        } else {
            // It was left behind, and is free again.
            self.stuck = self.stuck.saturating_sub(1);
        }
    }

    /// What a process said last; absent for one that nobody looked into.
    pub(super) fn said(&self, id: ProcessId) -> Option<&Outcome> {
        self.said.get(&id)
    }
}

fn names(order: &Order, id: ProcessId) -> bool {
    order.binary_search_by_key(&id, |it| it.id).is_ok()
}

fn start(generation: u64, events: mpsc::Sender<Wake>) -> io::Result<(SyncSender<Order>, At)> {
    let (sender, orders) = mpsc::sync_channel(1);
    let at = At::default();
    let place = at.clone();
    thread::Builder::new().name("peek".to_owned()).spawn(move || run(generation, &orders, &place, &events))?;
    Ok((sender, at))
}

fn run(generation: u64, orders: &Receiver<Order>, at: &At, events: &mpsc::Sender<Wake>) {
    let mut targets: BTreeMap<ProcessId, Target> = BTreeMap::new();
    let (mut scratch, mut searches) = (Vec::new(), AT_ONCE);
    let tell = |what| *at.lock().unwrap_or_else(PoisonError::into_inner) = what;
    while let Ok(order) = orders.recv() {
        targets.retain(|id, _| names(&order, *id));
        let mut said = Vec::with_capacity(order.len());
        searches = searches.max(SEARCHES);
        for whom in order {
            let now = clock::now();
            tell(Some((whom.id, now)));
            let target = targets.entry(whom.id).or_insert_with(Target::new);
            said.push((whom.id, target.look(whom, now, &mut searches, &mut scratch).clone()));
        }
        tell(None);
        // What was read by the PID of one that has ended may be another's.
        for id in memory::ended(targets.iter().filter_map(|(id, it)| Some((*id, it.handle()?)))) {
            targets.remove(&id);
            said.retain(|it| it.0 != id);
        }
        if events.send(Wake::Peeked(generation, said)).is_err() {
            return;
        }
    }
}
