//! Reads the allocator stats of PyTorch processes from their memory: how much memory tensors hold,
//! and how much is cache. Runs nothing in these processes, and writes nothing to them.
//!
//! ```text
//! main loop ── requests ──► thread ──► TargetProcess ──► locate.rs ──► StatsReader ──► DeviceStats
//!           ◄── new results ───────────────┘
//! ```
//!
//! Reading the memory of a process takes its mmap lock, and hangs when the process hangs in the
//! driver. So the reader has a thread of its own, which is abandoned when it does not return in
//! time.
//!
//! Only processes that NVML lists with memory of their own are read. A forked worker has a copy of
//! its parent's allocator, but cannot use its parent's GPU memory, so NVML does not list it. If
//! NVML lists the worker for other memory, the copy is recognized by its location: the same as in
//! an older process that opened all `/dev/nvidia-uvm` descriptors of the worker ([`fork`]). If no
//! older process is known, or if the kernel does not compare descriptors, as in a container without
//! `kcmp`, stats count as a copy when the process was forked, does not allocate, and claims more
//! memory than NVML reports ([`cuda_devices`]). If its parent has ended or has no such stats, they
//! may be a copy even when they claim less, and are not shown until the process allocates. A thread
//! of CUDA's proves that they are its own: a fork does not copy threads.

pub(super) mod cuda_devices;
mod device_proof;
mod device_stats;
mod elf;
mod fork;
mod locate;
mod memory;
mod stats_reader;
mod target_process;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

pub(super) use self::device_proof::DeviceProof;
pub(super) use self::fork::StatsOwner;
use self::stats_reader::ThreadState;
use self::target_process::TargetProcess;
pub(super) use self::target_process::{AllocatorReading, ReadOutcome};
use super::procfs::ListedProcess;
use super::worker::{Received, Worker, WorkerMessage, WorkerThread};
use super::{AgentEvent, clock};
use crate::base::units::Moment;
use crate::protocol::snapshot::{AllocatorUnreadable, ProcessId};

/// A read that takes longer counts as hung.
const DEADLINE: Duration = Duration::from_secs(1);
/// How long a process is not read after a read of its memory hung, unless that read returns
/// earlier.
const AVOID_FOR: Duration = Duration::from_mins(1);
/// How many processes are searched for an allocator in one pass. Each search takes about 0.1 ms.
const SEARCHES_PER_PASS: u32 = 4;
/// How many processes are searched in the first passes together, so that a single snapshot has the
/// stats of all processes of a common host.
const FIRST_SEARCHES: u32 = 64;

#[derive(Debug, Clone, Copy)]
struct ReadRequest {
    process: ListedProcess,
    /// Whether the main loop has the last result for this process. If so, only a new result is
    /// delivered.
    is_known: bool,
}

type ReadResults = Vec<(ProcessId, ReadOutcome)>;

pub(super) struct AllocatorReader {
    worker: Worker<Vec<ReadRequest>, ProcessId, ReadResults>,
    /// Processes whose memory hung, and until when they are not read.
    avoided: BTreeMap<ProcessId, Moment>,
    /// The last result of each process that was read.
    pub(super) results: BTreeMap<ProcessId, ReadOutcome>,
}

impl AllocatorReader {
    /// Returns a reader whose thread starts with the first request.
    pub(super) fn new(events: mpsc::Sender<AgentEvent>) -> Self {
        let deliver = move |message| events.send(AgentEvent::Allocators(message)).is_ok();
        Self {
            worker: Worker::new("pytorch", |_| DEADLINE, deliver),
            avoided: BTreeMap::new(),
            results: BTreeMap::new(),
        }
    }

    /// Starts reading these processes, and forgets all others. The thread ignores the request if it
    /// has not yet begun the request before.
    pub(super) fn request(&mut self, processes: impl Iterator<Item = ListedProcess>, now: Moment) {
        let mut requests: Vec<_> = processes
            .map(|process| ReadRequest {
                process,
                is_known: false,
            })
            .collect();
        requests.sort_unstable_by_key(|request| request.process.id);
        self.results.retain(|id, _| contains(&requests, *id));
        self.avoided.retain(|_, until| now < *until);
        requests.retain(|request| !self.avoided.contains_key(&request.process.id));
        let is_needed = !requests.is_empty() && !self.worker.is_running();
        if is_needed
            && (self.worker.is_exhausted()
                || self.worker.start(|thread| read_all(&thread)).is_err())
        {
            // No thread can read these processes now, and their last results are too old to be
            // shown.
            let ids = requests.iter().map(|request| request.process.id);
            self.results
                .extend(ids.map(|id| (id, Err(AllocatorUnreadable::NotYet))));
            return;
        }
        for request in &mut requests {
            request.is_known = self.results.contains_key(&request.process.id);
        }
        self.worker.send(requests);
    }

    pub(super) fn deadline(&self) -> Option<Moment> {
        self.worker.deadline()
    }

    /// Abandons the thread when a read hangs. Returns whether one did: then the caller requests the
    /// other processes again.
    pub(super) fn abandon_overdue(&mut self, now: Moment) -> bool {
        let Some((id, _)) = self.worker.abandon_overdue(now) else {
            return false;
        };
        self.avoided.insert(id, now.after(AVOID_FOR));
        self.results.insert(id, Err(AllocatorUnreadable::Hung));
        true
    }

    pub(super) fn receive(&mut self, message: WorkerMessage<ReadResults>) {
        match self.worker.receive(message) {
            Received::Output(results) => self.results.extend(results),
            Received::Late => (),
            // The process does not hang any more.
            Received::CameBack(id) => {
                self.avoided.remove(&id);
                self.results.remove(&id);
            }
        }
    }
}

/// Whether a process is among these requests, which are sorted by process.
fn contains(requests: &[ReadRequest], id: ProcessId) -> bool {
    requests
        .binary_search_by_key(&id, |request| request.process.id)
        .is_ok()
}

fn read_all(thread: &WorkerThread<Vec<ReadRequest>, ProcessId, ReadResults>) {
    let mut targets: BTreeMap<ProcessId, TargetProcess> = BTreeMap::new();
    let (mut state, mut searches) = (ThreadState::default(), FIRST_SEARCHES);
    while let Ok(requests) = thread.requests.recv() {
        targets.retain(|id, _| contains(&requests, *id));
        searches = searches.max(SEARCHES_PER_PASS);
        let is_found = |request: &ReadRequest| {
            targets
                .get(&request.process.id)
                .is_some_and(TargetProcess::is_found)
        };
        let (found, others): (Vec<_>, Vec<_>) = requests.into_iter().partition(is_found);
        // Known allocators are read and delivered first, together. A search takes longer, and may
        // hang.
        for batch in std::iter::once(found.as_slice()).chain(others.chunks(1)) {
            let mut results = Vec::new();
            for request in batch {
                let (id, now) = (request.process.id, clock::now());
                if !thread.progress.begin(id, now) {
                    return;
                }
                let target = targets.entry(id).or_insert_with(TargetProcess::new);
                results.extend(
                    target
                        .read(*request, now, &mut searches, &mut state)
                        .map(|result| (id, result.clone())),
                );
            }
            // Memory that was read by PID may be that of a later process. Unchanged bytes need no
            // identity check.
            let pidfds = results
                .iter()
                .filter_map(|(id, _)| Some((*id, targets.get(id)?.pidfd()?)));
            for ended in memory::ended(pidfds) {
                targets.remove(&ended);
                results.retain(|(id, _)| *id != ended);
            }
            if !thread.progress.end() || !results.is_empty() && !thread.deliver(results) {
                return;
            }
        }
    }
}
