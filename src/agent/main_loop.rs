//! The agent's main loop: wakes the sampler at each interval, joins its readings with `/proc`, and
//! gives snapshots to the writer. A slow thread never blocks the main loop.

mod pass_readers;
mod pass_schedule;
mod probed_holders;
mod scan_state;

use std::cmp::Reverse;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use self::pass_readers::PassReaders;
use self::pass_schedule::PassSchedule;
use self::scan_state::ScanState;
use super::actions::CommandInput;
use super::line_writer::LineWriter;
use super::sampler::{self, Sampler};
use super::scan::ScanResult;
use super::{AgentEvent, CommandTargets, GpuReadings, Readings, actions, clock};
use crate::base::units::Moment;
use crate::protocol::agent_options::{AgentOptions, SimulatedMachine};
use crate::protocol::snapshot::{
    AgentFacts, Gpu, Host, HostLoad, Identity, Process, ProcessId, Snapshot,
};

/// The delay of the first scan after the first line was written. Meanwhile the viewer can draw the
/// line without competing for a processor.
const FIRST_SCAN: Duration = Duration::from_millis(20);
/// The longest time that commands wait for the first line.
const ACTIONS_WAIT: Duration = Duration::from_secs(1);

/// The most GPU processes that are listed. A longer list would make keys slow and lines large, and
/// nobody reads it.
const MOST_LISTED: usize = 2048;

struct MainLoop {
    agent_facts: Arc<AgentFacts>,
    schedule: PassSchedule,
    sampler: Sampler,
    /// The last readings of the driver. A call that has hung since then is in them as a trouble.
    readings: Readings,
    readers: PassReaders,
    scans: ScanState,
    targets: CommandTargets,
    writer: LineWriter,
}

/// Runs the main loop. Returns only when a thread cannot be started.
pub(super) fn run(options: &AgentOptions, input: CommandInput) -> io::Result<()> {
    let is_demo = options.demo != SimulatedMachine::None;
    let (events, received) = mpsc::channel();
    let now = clock::now();
    let mut main_loop = MainLoop::new(options, is_demo, &events, now)?;
    let targets = main_loop.targets.clone();
    let writer = main_loop.writer.clone();
    let replies = Arc::new(move |reply| writer.reply(reply));
    // Commands wait for the first line, so that an agent without an input writes a line before it
    // ends. They wait for a limited time: a closed input ends the agent even when nobody reads its
    // output.
    let actions_due = now.after(ACTIONS_WAIT);
    let mut start_actions =
        Some(|| actions::spawn(input, targets, events, replies, options.readonly, !is_demo));
    loop {
        main_loop.on_time(clock::now())?;
        let actions_due = start_actions.as_ref().map(|_| actions_due);
        let event = main_loop.wait(&received, actions_due);
        let now = clock::now();
        if (matches!(event, Some(AgentEvent::Written)) || actions_due.is_some_and(|due| now >= due))
            && let Some(start_actions) = start_actions.take()
        {
            start_actions()?;
        }
        if let Some(event) = event {
            main_loop.handle(event, now);
        }
    }
}

impl MainLoop {
    fn new(
        options: &AgentOptions,
        is_demo: bool,
        events: &Sender<AgentEvent>,
        now: Moment,
    ) -> io::Result<Self> {
        let readings = sampler::nothing_yet(now);
        Ok(Self {
            agent_facts: AgentFacts::of_this_program().into(),
            schedule: PassSchedule::new(options.interval, now),
            sampler: Sampler::spawn(options, readings.clone(), events.clone())?,
            readings,
            readers: PassReaders::new(options.detail, is_demo, events),
            scans: ScanState::spawn(is_demo, events)?,
            targets: CommandTargets::default(),
            writer: LineWriter::spawn(events.clone())?,
        })
    }

    /// Waits for an event. `None` when something is due first.
    fn wait(
        &self,
        received: &Receiver<AgentEvent>,
        actions_due: Option<Moment>,
    ) -> Option<AgentEvent> {
        let now = clock::now();
        let slow_files = self.readers.processes.deadline(now);
        let times = [
            self.schedule.line_due,
            self.sampler.deadline(),
            self.readers.allocators.deadline(),
            slow_files,
            self.scans.first,
            actions_due,
        ];
        let due = times
            .into_iter()
            .flatten()
            .fold(self.schedule.next_pass, Moment::min);
        received.recv_timeout(due.since(now)).ok()
    }

    fn on_time(&mut self, now: Moment) -> io::Result<()> {
        if self.sampler.check(now, &mut self.readings)?
            || self.schedule.line_due.is_some_and(|due| now >= due)
        {
            self.write_line(now);
        }
        if self.readers.allocators.abandon_overdue(now) {
            // Reads the other processes now, not only at the next pass.
            self.readers.request_allocators(now);
        }
        self.readers.processes.read_waiting_files(now);
        if self.scans.begin_if_due(now) {
            self.readers.processes.read_postponed();
            // Early enough for the second line, which `--json` prints.
            self.readers.request_allocators(now);
        }
        if self.schedule.take_pass(now) {
            self.begin_pass(now, false);
        }
        Ok(())
    }

    /// With `reads_slow`, the sampler also reads values that it otherwise reads seldom.
    fn begin_pass(&mut self, now: Moment, reads_slow: bool) {
        self.schedule.await_driver(now);
        self.sampler.wake(reads_slow);
        // Both figures of a process should be from the same time: its allocator's, and that of the
        // driver.
        self.readers.request_allocators(now);
    }

    fn handle(&mut self, event: AgentEvent, now: Moment) {
        match event {
            AgentEvent::Sampled(message) => {
                if let Some(mut readings) = self.sampler.receive(message) {
                    limit_processes(&mut readings.gpus, MOST_LISTED);
                    self.readings = readings;
                    self.write_line(now);
                }
            }
            AgentEvent::Written => self.scans.first = Some(now.after(FIRST_SCAN)),
            AgentEvent::Allocators(message) => self.readers.allocators.receive(message),
            AgentEvent::SlowFile(message) => {
                self.readers.processes.receive(message);
                self.accept_scan(now);
            }
            AgentEvent::Scanned(scan) => self.receive_scan(scan, now),
            AgentEvent::Interval(interval) => self.schedule.set_interval(interval, now),
            AgentEvent::Scan => {
                self.scans.is_full_requested = true;
                self.begin_pass(now, true);
            }
            AgentEvent::Full => {
                self.writer.request_full();
                self.begin_pass(now, false);
            }
            AgentEvent::OwnerChanged(process) => {
                self.readers.processes.forget_user(process);
                self.begin_pass(now, false);
            }
            AgentEvent::Ended(argv) => {
                self.readers.processes.expect_argv(argv);
                self.scans.ended = Some(now);
            }
            AgentEvent::Detail(gpu) => {
                let is_wanted = gpu.is_some();
                self.sampler.set_detail(gpu);
                if is_wanted {
                    self.begin_pass(now, false);
                }
            }
        }
    }

    fn receive_scan(&mut self, scan: Box<ScanResult>, now: Moment) {
        self.readers.processes.examine(&scan.candidates);
        self.readers
            .processes
            .examine_holders(&scan.device_file_holders);
        self.scans.receive(scan);
        self.accept_scan(now);
    }

    /// Accepts the result of a scan once its holders are known. If a full scan found other related
    /// processes and no line is about to be written, writes a line at once: the user may be waiting
    /// for it.
    fn accept_scan(&mut self, now: Moment) {
        let is_known = !self.readers.processes.awaits_holders(now);
        if is_known && self.scans.accept() && !self.schedule.is_line_near(now) {
            self.write_line(now);
        }
    }

    fn write_line(&mut self, now: Moment) {
        let is_first = self.schedule.begin_line(now);
        if !self.readers.processes.awaits_holders(now) {
            self.scans.accept();
        }
        self.readers.begin_pass(is_first, &self.readings.gpus);
        let load = self.readers.host.load(now);
        let join = |gpu| self.readers.join(gpu, &load);
        let mut gpus: Vec<Gpu> = self.readings.gpus.iter().map(join).collect();
        let simulation = self.readings.simulation.as_ref();
        let mut processes = self.readers.read_others(&self.scans, simulation);
        self.readers.add_allocators(&mut processes, &gpus);
        for gpu in &mut gpus {
            let is_monitor = |id| self.readers.processes.is_monitor(id);
            add_holders(gpu, self.scans.result.as_deref(), &processes, is_monitor);
        }
        // The first line does not wait for a search for probes.
        if self.scans.has_begun {
            self.readers.add_probes(&mut processes, &gpus, now);
            probed_holders::list_by_probe(&mut gpus, &processes);
        }
        self.scans
            .request(&mut self.readers.processes, &self.readings.gpus, now);
        self.put(self.snapshot(now, load, gpus, processes));
    }

    fn snapshot(
        &self,
        now: Moment,
        load: HostLoad,
        gpus: Vec<Gpu>,
        processes: Vec<Process>,
    ) -> Snapshot {
        let interval = self.schedule.interval.as_millis();
        Snapshot {
            schema: Snapshot::SCHEMA,
            sequence: 0,
            at: now,
            unix_ms: clock::unix_ms(),
            interval_ms: u64::try_from(interval).unwrap_or(u64::MAX),
            agent: Some(self.agent_facts.clone()),
            host: Host {
                facts: self.readers.host_facts.clone(),
                load,
                scan: self.scans.counts(),
            },
            driver: self.readings.driver.clone(),
            gpus,
            processes,
        }
    }

    fn put(&mut self, mut snapshot: Snapshot) {
        if let Some(simulation) = &mut self.readings.simulation {
            let past = simulation.complete(&mut snapshot);
            self.writer.put_past(past);
        }
        self.targets.set(&snapshot.processes);
        self.writer.put(Box::new(snapshot));
    }
}

/// Leaves out the processes with the least memory beyond `most` on all GPUs together.
fn limit_processes(gpus: &mut [GpuReadings], most: usize) {
    if gpus
        .iter()
        .map(|readings| readings.processes.len())
        .sum::<usize>()
        <= most
    {
        return;
    }
    let processes = gpus.iter().enumerate().flat_map(|(gpu, readings)| {
        readings
            .processes
            .iter()
            .map(move |process| (Reverse(process.memory.ok()), gpu, process.pid))
    });
    let mut processes: Vec<_> = processes.collect();
    processes.sort_unstable();
    let omitted: HashSet<(usize, u32)> = processes
        .drain(most..)
        .map(|(_, gpu, pid)| (gpu, pid))
        .collect();
    for (gpu, readings) in gpus.iter_mut().enumerate() {
        let (omitted, listed): (Vec<_>, Vec<_>) = readings
            .processes
            .drain(..)
            .partition(|process| omitted.contains(&(gpu, process.pid)));
        readings.processes = listed;
        readings.health.omitted_processes = Ok(u32::try_from(omitted.len()).unwrap_or(u32::MAX));
        readings.health.omitted_memory = omitted.iter().map(|process| process.memory).sum();
    }
}

/// Adds to the device-file holders of a GPU its GPU processes, and the scanned processes whose open
/// device files let them hold memory of the GPU.
fn add_holders(
    gpu: &mut Gpu,
    scan: Option<&ScanResult>,
    processes: &[Process],
    is_monitor: impl Fn(ProcessId) -> bool,
) {
    let listed = gpu.processes.iter().map(|gpu_process| gpu_process.process);
    let mut holders: Vec<ProcessId> = listed.collect();
    if let Some(scan) = scan {
        let minor = gpu.facts.minor.ok();
        let scanned = scan
            .device_file_holders
            .iter()
            .filter(|(id, open)| open.may_hold_memory_of(minor) && !is_monitor(*id));
        holders.extend(scanned.map(|(id, _)| *id));
    }
    holders.sort_unstable();
    holders.dedup();
    // A process counts only if it is in the snapshot, and is certainly the one that NVML means.
    holders.retain(|id| {
        let found = processes.binary_search_by_key(id, |process| process.id);
        found.is_ok_and(|index| processes[index].facts.identity != Identity::Unverified)
    });
    gpu.device_file_holders = holders;
}
