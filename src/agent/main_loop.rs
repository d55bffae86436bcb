//! The agent's main loop: wakes the sampler at each interval, joins its readings with `/proc`, and
//! gives snapshots to the writer. A slow thread never blocks the main loop.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use super::demo::Simulation;
use super::host::HostReader;
use super::line_writer::LineWriter;
use super::probe::ProbeReader;
use super::procfs::Processes;
use super::procfs::device_files::DeviceFiles;
use super::pytorch::{AllocatorReader, DeviceProof, cuda_devices};
use super::sampler::{self, Sampler};
use super::scan::{self, ScanRequest, ScanResult, ScanScope, UnaccountedBaseline};
use super::{AgentEvent, CommandTargets, GpuReadings, Readings, actions, clock};
use crate::base::units::Moment;
use crate::protocol::agent_options::{AgentOptions, SimulatedMachine};
use crate::protocol::snapshot::{
    Gpu, GpuProcess, Host, HostFacts, HostLoad, HostScan, Identity, Missing, MissingLists, Process,
    ProcessId, SharedMemory, Snapshot,
};

/// The delay of the second pass after the first line. A rate needs two passes.
const SECOND_PASS: Duration = Duration::from_millis(205);
/// The delay of the first scan after the first line was written. Meanwhile the viewer can draw the
/// line without competing for a processor.
const FIRST_SCAN: Duration = Duration::from_millis(20);
/// The longest time that a line waits for the driver.
const LINE_WAIT: Duration = Duration::from_millis(250);
/// How long to search for the replacement of a held process after its end.
const REPLACEMENT: Duration = Duration::from_secs(30);
/// The longest time that commands wait for the first line.
const ACTIONS_WAIT: Duration = Duration::from_secs(1);

/// The most GPU processes that are listed. A longer list would make keys slow and lines large, and
/// nobody reads it.
const MOST_LISTED: usize = 2048;

/// The most groups of tensors of one process: more would be most of a line.
const MOST_GROUPS: usize = 32;
/// The most groups with `--detail`.
const ALL_GROUPS: usize = 1000;

struct MainLoop {
    sampler: Sampler,
    writer: LineWriter,
    processes: Processes,
    allocators: AllocatorReader,
    probes: ProbeReader,
    /// For each process with allocator stats on several GPUs: which of them its CUDA devices are.
    device_proofs: BTreeMap<ProcessId, DeviceProof>,
    scan_requests: mpsc::Sender<ScanRequest>,
    /// `None` before the first scan.
    scan: Option<Box<ScanResult>>,
    unaccounted: UnaccountedBaseline,
    scanned_for: Vec<ProcessId>,
    /// When to begin the first scan. `None` before the first line is written, and once the scan has
    /// begun.
    first_scan: Option<Moment>,
    /// No scan is requested before the first one, which waits for the first line.
    is_scanning: bool,
    is_full_scan_requested: bool,
    /// When the last held process ended. `None` while no replacement is searched for.
    ended: Option<Moment>,
    host: HostReader,
    host_facts: HostFacts,
    targets: CommandTargets,
    /// The last readings of the driver. A call that has hung since then is in them as a trouble.
    readings: Readings,
    interval: Duration,
    next_pass: Moment,
    /// Until when the line of the current pass waits for the driver. `None` once the line is
    /// written.
    line_due: Option<Moment>,
    has_line: bool,
}

/// Runs the main loop. Returns only when a thread cannot be started.
pub(super) fn run(options: &AgentOptions) -> io::Result<()> {
    let is_demo = options.demo != SimulatedMachine::None;
    let (events, received) = mpsc::channel();
    let now = clock::now();
    let readings = sampler::nothing_yet(now);
    let targets = CommandTargets::default();
    let mut main_loop = MainLoop {
        sampler: Sampler::spawn(options, readings.clone(), events.clone())?,
        writer: LineWriter::spawn(events.clone())?,
        processes: Processes::new(is_demo, DeviceFiles::of_host(), events.clone()),
        allocators: AllocatorReader::new(events.clone()),
        probes: ProbeReader::new(if options.detail {
            ALL_GROUPS
        } else {
            MOST_GROUPS
        }),
        device_proofs: BTreeMap::new(),
        scan_requests: scan::spawn((!is_demo).then(DeviceFiles::of_host), events.clone())?,
        scan: None,
        unaccounted: UnaccountedBaseline::default(),
        scanned_for: vec![],
        first_scan: None,
        is_scanning: false,
        is_full_scan_requested: false,
        ended: None,
        host: HostReader::new(),
        host_facts: HostReader::facts(),
        targets: targets.clone(),
        readings,
        interval: options.interval,
        next_pass: now,
        line_due: None,
        has_line: false,
    };
    let writer = main_loop.writer.clone();
    let replies = Arc::new(move |reply| writer.reply(reply));
    // Commands wait for the first line, so that an agent without an input writes a line before it
    // ends. They wait for a limited time: a closed input ends the agent even when nobody reads its
    // output.
    let actions_due = now.after(ACTIONS_WAIT);
    let mut start_actions =
        Some(|| actions::spawn(targets, events, replies, options.readonly, !is_demo));
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
    /// Waits for an event. `None` when something is due first.
    fn wait(
        &self,
        received: &Receiver<AgentEvent>,
        actions_due: Option<Moment>,
    ) -> Option<AgentEvent> {
        let now = clock::now();
        let slow_files = self.processes.deadline(now);
        let times = [
            self.line_due,
            self.sampler.deadline(),
            self.allocators.deadline(),
            slow_files,
            self.first_scan,
            actions_due,
        ];
        let due = times
            .into_iter()
            .flatten()
            .fold(self.next_pass, Moment::min);
        received.recv_timeout(due.since(now)).ok()
    }

    fn on_time(&mut self, now: Moment) -> io::Result<()> {
        if self.sampler.check(now, &mut self.readings)?
            || self.line_due.is_some_and(|due| now >= due)
        {
            self.write_line(now);
        }
        if self.allocators.abandon_overdue(now) {
            // Reads the other processes now, not only at the next pass.
            self.request_allocators(now);
        }
        self.processes.read_waiting_files(now);
        if self.first_scan.take_if(|due| now >= *due).is_some() {
            self.is_scanning = true;
            let gpu_users = Some(self.scanned_for.clone());
            self.send_scan(ScanRequest {
                gpu_users,
                scope: ScanScope::AllFiles,
                ..ScanRequest::default()
            });
            self.processes.read_postponed();
            // Early enough for the second line, which `--json` prints.
            self.request_allocators(now);
        }
        if now >= self.next_pass {
            // The passes keep their rhythm, unless this process was stopped for longer than an
            // interval.
            let next = self.next_pass.after(self.interval);
            self.next_pass = if next > now {
                next
            } else {
                now.after(self.interval)
            };
            self.begin_pass(now, false);
        }
        Ok(())
    }

    /// With `all`, the sampler also reads values that it otherwise reads seldom.
    fn begin_pass(&mut self, now: Moment, all: bool) {
        self.line_due = Some(now.after(self.interval.min(LINE_WAIT)));
        self.sampler.wake(all);
        // Both figures of a process should be from the same time: its allocator's, and that of the
        // driver.
        self.request_allocators(now);
    }

    fn request_allocators(&mut self, now: Moment) {
        self.allocators.request(self.processes.listed(), now);
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
            AgentEvent::Written => self.first_scan = Some(now.after(FIRST_SCAN)),
            AgentEvent::Allocators(message) => self.allocators.receive(message),
            AgentEvent::SlowFile(message) => self.processes.receive(message),
            AgentEvent::Scanned(scan) => self.receive_scan(scan, now),
            AgentEvent::Interval(interval) => {
                self.interval = interval;
                self.next_pass = self.next_pass.min(now.after(interval));
            }
            AgentEvent::Scan => {
                self.is_full_scan_requested = true;
                self.begin_pass(now, true);
            }
            AgentEvent::Full => {
                self.writer.request_full();
                self.begin_pass(now, false);
            }
            AgentEvent::OwnerChanged(process) => {
                self.processes.forget_user(process);
                self.begin_pass(now, false);
            }
            AgentEvent::Ended(argv) => {
                self.processes.expect_argv(argv);
                self.ended = Some(now);
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

    /// Takes the result of a scan. If a full scan found other related processes and no line is
    /// about to be written, writes a line at once: the user may be waiting for it.
    fn receive_scan(&mut self, scan: Box<ScanResult>, now: Moment) {
        self.processes.examine(&scan.candidates);
        let is_news = scan.is_full
            && self
                .scan
                .as_ref()
                .is_none_or(|old| old.related != scan.related);
        self.scan = Some(scan);
        if is_news && self.line_due.is_none() && self.next_pass.since(now) > LINE_WAIT {
            self.write_line(now);
        }
    }

    /// Reads the listed processes, those with the most GPU memory first: the first pass reads only
    /// some in full.
    fn read_largest(&mut self) {
        let mut listed: Vec<_> = self
            .readings
            .gpus
            .iter()
            .flat_map(|gpu| &gpu.processes)
            .collect();
        listed.sort_by_key(|process| Reverse(process.memory.ok()));
        for process in listed {
            self.processes
                .read_listed(process.pid, process.listed, process.memory);
        }
    }

    fn write_line(&mut self, now: Moment) {
        self.line_due = None;
        if self.has_line {
            self.processes.begin_pass();
        } else {
            self.has_line = true;
            self.next_pass = self.next_pass.min(now.after(SECOND_PASS));
            self.processes.begin_first_pass();
            self.read_largest();
        }
        let host_load = self.host.load(now);
        let join = |gpu| join(gpu, &host_load, &mut self.processes);
        let mut gpus: Vec<Gpu> = self.readings.gpus.iter().map(join).collect();
        for holder in self
            .readings
            .simulation
            .iter()
            .flat_map(Simulation::holders)
        {
            self.processes.read_holder(holder);
        }
        let related = self
            .scan
            .as_ref()
            .map_or_else(|| [].into(), |scan| scan.related.clone());
        let is_holder = |id| {
            let scan = self.scan.as_ref();
            scan.is_some_and(|scan| {
                scan.device_file_holders
                    .binary_search_by_key(&id, |(holder, _)| *holder)
                    .is_ok()
            })
        };
        self.processes
            .read_related(&related, self.is_full_scan_requested, is_holder);
        let mut processes: Vec<_> = self.processes.end_pass().cloned().collect();
        self.add_allocators(&mut processes, &gpus);
        self.add_probes(&mut processes, &gpus, now);
        for gpu in &mut gpus {
            add_holders(gpu, self.scan.as_deref(), &processes);
        }
        self.request_scan(now);
        let scan = self.scan.as_ref().map(|scan| scan.counts.clone());
        let mut snapshot = Snapshot {
            schema: Snapshot::SCHEMA,
            sequence: 0,
            at: now,
            unix_ms: clock::unix_ms(),
            interval_ms: u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX),
            host: Host {
                facts: self.host_facts.clone(),
                load: host_load,
                scan: scan.unwrap_or_else(|| HostScan::missing(Moment(0), 0, 0, Missing::NotYet)),
            },
            driver: self.readings.driver.clone(),
            gpus,
            processes,
        };
        if let Some(simulation) = &mut self.readings.simulation {
            let past = simulation.complete(&mut snapshot);
            self.writer.put_past(past);
        }
        self.targets.set(&snapshot.processes);
        self.writer.put(Box::new(snapshot));
    }

    fn add_allocators(&mut self, processes: &mut [Process], gpus: &[Gpu]) {
        let mut device_proofs = std::mem::take(&mut self.device_proofs);
        for process in processes {
            let result = self.allocators.results.get(&process.id);
            let result = result.zip(self.processes.cuda_environment(process.id));
            let mut proof = device_proofs.remove(&process.id);
            process.allocator = result.map(|(result, cuda)| {
                cuda_devices::allocator_stats(result, process.id, gpus, cuda, &mut proof).into()
            });
            self.device_proofs
                .extend(proof.map(|proof| (process.id, proof)));
        }
    }

    /// Adds the reports of probes, except to the first line, which does not wait for a search.
    fn add_probes(&mut self, processes: &mut [Process], gpus: &[Gpu], now: Moment) {
        if !self.is_scanning {
            return;
        }
        let listed: Vec<ProcessId> = self.processes.listed().map(|listed| listed.id).collect();
        let is_listed = |id| listed.binary_search(&id).is_ok();
        self.probes.begin_pass(is_listed);
        for process in processes.iter_mut().filter(|process| is_listed(process.id)) {
            process.probe =
                self.probes
                    .read(process, self.processes.probe_setup(process.id), gpus, now);
        }
    }

    /// Tells the scanner which processes use a GPU, if these changed, and how much to scan.
    fn request_scan(&mut self, now: Moment) {
        if self
            .ended
            .take_if(|ended| now.since(*ended) >= REPLACEMENT)
            .is_some()
        {
            self.processes.expected.clear();
        }
        let gpu_users: Vec<ProcessId> = self.processes.gpu_users().collect();
        let has_other_users = gpu_users != self.scanned_for;
        if has_other_users {
            self.scanned_for.clone_from(&gpu_users);
        }
        let has_grown = self.unaccounted.has_grown(&self.readings.gpus);
        let has_relation_changed = std::mem::take(&mut self.processes.has_relation_changed);
        if self.is_scanning {
            let is_requested = std::mem::take(&mut self.is_full_scan_requested);
            let scope = match () {
                () if is_requested || has_grown => ScanScope::AllFiles,
                () if has_relation_changed || self.ended.is_some() => ScanScope::AllProcesses,
                () => ScanScope::Few,
            };
            let gpu_users = has_other_users.then_some(gpu_users);
            let accepted = std::mem::take(&mut self.processes.accepted);
            self.send_scan(ScanRequest {
                gpu_users,
                accepted,
                ended: self.ended,
                scope,
            });
        }
    }

    fn send_scan(&self, request: ScanRequest) {
        // The thread ends only with the main loop.
        let _leaving: Result<(), mpsc::SendError<ScanRequest>> = self.scan_requests.send(request);
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

/// Converts the readings of a GPU to the protocol's type, and looks up its processes in `/proc`.
fn join(gpu: &GpuReadings, host: &HostLoad, processes: &mut Processes) -> Gpu {
    let shared_memory = || {
        Some(SharedMemory {
            used: host.memory_used.ok()?,
            total: host.memory_total.ok()?,
        })
    };
    let gpu_processes = gpu.processes.iter().map(|process| GpuProcess {
        process: processes.read_listed(process.pid, process.listed, process.memory),
        usage: process.usage,
        memory: process.memory,
        sm: process.sm,
        engines: process.engines,
        names: None,
    });
    Gpu {
        uuid: gpu.uuid.clone(),
        facts: gpu.facts.clone(),
        load: gpu.load.clone(),
        health: gpu.health.clone(),
        shared_memory: gpu.shares_memory.then(shared_memory).flatten(),
        detail: gpu.detail.clone(),
        processes: gpu_processes.collect(),
        missing: MissingLists {
            processes: gpu.processes_missing,
            processes_not_asked: gpu.processes_missing == Some(Missing::NotAsked),
        },
        device_file_holders: vec![],
        trouble: gpu.trouble.clone(),
        failures: gpu.failures.clone(),
    }
}

/// Adds to the device-file holders of a GPU its GPU processes, and the scanned processes whose open
/// device files let them hold memory of the GPU.
fn add_holders(gpu: &mut Gpu, scan: Option<&ScanResult>, processes: &[Process]) {
    let listed = gpu.processes.iter().map(|gpu_process| gpu_process.process);
    let mut holders: Vec<ProcessId> = listed.collect();
    if let (Some(scan), Ok(minor)) = (scan, gpu.facts.minor) {
        let scanned = scan
            .device_file_holders
            .iter()
            .filter(|(_, open)| open.may_hold_memory_of(minor));
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
