//! Watches which processes of the command use a GPU, because a process without the probe leaves no
//! last state.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{process, thread};

use super::last_states::LastState;
use crate::commands::live::read_hosts;
use crate::flags::ReadOptions;
use crate::output::table;
use crate::protocol::agent_options::{AgentOptions, SimulatedMachine};
use crate::protocol::snapshot::{Process, ProcessId, Snapshot};
use crate::source::Source;

/// The time from one look to the next. A process that uses a GPU for less time may be missed.
const INTERVAL: Duration = Duration::from_secs(1);
/// The time that the driver may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Processes of the command that use a GPU.
pub(super) struct GpuWatch {
    seen: Arc<Mutex<BTreeMap<ProcessId, LastState>>>,
}

impl GpuWatch {
    /// Starts an agent, and a thread that reads its lines until gputop ends. Without a driver, it
    /// sees no process.
    pub(super) fn start() -> Self {
        let seen = Arc::default();
        let noted = Arc::clone(&seen);
        // Nobody waits for the thread. Without it, only processes with the probe are known.
        let _unwatched = thread::Builder::new().spawn(move || watch(&noted));
        Self { seen }
    }

    /// Returns a state of each process that is none of these, with the reason why it could not be
    /// judged.
    pub(super) fn others(&self, known: &[LastState]) -> Vec<LastState> {
        let is_known = |id: &ProcessId| {
            let mut known = known.iter();
            known.any(|state| state.pid == id.pid && state.start_ticks == id.start_ticks)
        };
        let seen = locked(&self.seen);
        let others = seen.iter().filter(|(id, _)| !is_known(id));
        others.map(|(_, state)| state.clone()).collect()
    }
}

fn watch(seen: &Mutex<BTreeMap<ProcessId, LastState>>) {
    let agent = AgentOptions {
        interval: INTERVAL,
        nvml_lib: None,
        demo: SimulatedMachine::None,
        readonly: true,
        detail: false,
        only: vec!["processes".to_owned()],
        shares_lines: false,
    };
    let read = ReadOptions {
        sources: vec![Source::LocalAgent(agent)],
        interval: INTERVAL,
        timeout: TIMEOUT,
    };
    let _no_driver = read_hosts::read_until(&read, false, |hosts| {
        let (_, snapshot) = hosts.first()?.seen?;
        let of_command = of_command(snapshot, process::id());
        locked(seen).extend(of_command.map(|process| (process.id, unjudged(process))));
        None::<()>
    });
}

/// Returns the processes that use a GPU and descend from the process with this PID.
fn of_command(snapshot: &Snapshot, root: u32) -> impl Iterator<Item = &Process> {
    let parents: HashMap<u32, u32> = snapshot
        .processes
        .iter()
        .filter_map(|process| Some((process.id.pid, process.facts.parent.ok()?)))
        .collect();
    let descends = move |process: &&Process| {
        let parent = |pid: &u32| parents.get(pid).copied();
        // Bounded, because processes may end and PIDs be used again while they are read.
        std::iter::successors(parent(&process.id.pid), parent)
            .take(parents.len())
            .any(|pid| pid == root)
    };
    let uses_gpu = |process: &&Process| {
        let mut gpus = snapshot.gpus.iter();
        gpus.any(|gpu| gpu.process(process.id).is_some())
    };
    snapshot.processes.iter().filter(uses_gpu).filter(descends)
}

fn unjudged(process: &Process) -> LastState {
    let missing = process.probe.as_ref().and_then(|probe| probe.missing);
    let why = missing.map_or_else(
        || "it uses a GPU, and left no state of the probe".to_owned(),
        |why| why.to_string(),
    );
    LastState::unjudged(process.id, table::command(process), why)
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
