//! The agent's main loop: wakes the sampler at each interval, joins its readings with `/proc`, and gives snapshots to the
//! writer. It never waits for another thread.

use std::cmp::Reverse;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use super::host::HostReader;
use super::line_writer::LineWriter;
use super::procfs::Processes;
use super::procfs::device_files::DeviceFiles;
use super::pytorch::{AllocatorReader, AllocatorReading, cuda_devices};
use super::sampler::{self, Sampler};
use super::scan::{ScanRequest, ScanResult, ScanScope, ScanThread, UnaccountedBaseline};
use super::{AgentEvent, CommandTargets, GpuReadings, Readings, actions, clock};
use crate::base::units::Moment;
use crate::protocol::agent_options::AgentOptions;
use crate::protocol::snapshot::{
    Gpu, GpuProcess, Host, HostFacts, HostScan, Identity, Missing, Process, ProcessId, Snapshot,
};

/// The delay of the second pass after the first line. A rate needs two passes.
const SECOND_PASS: Duration = Duration::from_millis(205);
/// The delay of the first scan after the first line was written: the viewer needs a processor to draw it.
const FIRST_SCAN: Duration = Duration::from_millis(20);
/// The longest time that a line waits for the driver.
const LINE_WAIT: Duration = Duration::from_millis(250);
/// The time after the end of a held process in which its replacement is searched for.
const REPLACEMENT: Duration = Duration::from_secs(30);

/// The longest time that commands wait for the first line.
const ACTIONS_WAIT: Duration = Duration::from_secs(1);

/// The state of the main loop.
struct MainLoop {
    sampler: Sampler,
    writer: LineWriter,
    processes: Processes,
    /// `None` on the simulated machine, whose processes have no PyTorch.
    peeker: Option<AllocatorReader>,
    census: ScanThread,
    sighting: Option<Box<ScanResult>>,
    unaccounted: UnaccountedBaseline,
    /// The GPU processes that the scan knows of.
    scanned_for: Vec<ProcessId>,
    /// When to begin the first scan.
    first_scan: Option<Moment>,
    /// Whether scans have begun.
    is_scanning: bool,
    /// Whether a full scan was asked for.
    scan: bool,
    /// When the last held process ended, while its replacement is searched for.
    ended: Option<Moment>,
    host: HostReader,
    host_facts: HostFacts,
    targets: CommandTargets,
    /// The last readings of the driver, with the troubles that were found since.
    readings: Readings,
    interval: Duration,
    next: Moment,
    /// Until when a line waits for the current pass.
    awaiting: Option<Moment>,
    /// Whether there was a line yet.
    has_line: bool,
}

/// Runs until the process ends.
pub(super) fn run(options: &AgentOptions) -> io::Result<()> {
    let (events, happened) = mpsc::channel();
    let now = clock::now();
    let readings = sampler::nothing_yet(now);
    let targets = CommandTargets::default();
    let mut main_loop = MainLoop {
        sampler: Sampler::spawn(options, readings.clone(), events.clone())?,
        writer: LineWriter::spawn(events.clone())?,
        processes: Processes::new(options.demo, DeviceFiles::of_host(), events.clone()),
        peeker: (!options.demo).then(|| AllocatorReader::new(events.clone())),
        census: ScanThread::spawn((!options.demo).then(DeviceFiles::of_host), events.clone())?,
        sighting: None,
        unaccounted: UnaccountedBaseline::default(),
        scanned_for: vec![],
        first_scan: None,
        is_scanning: false,
        scan: false,
        ended: None,
        host: HostReader::new(),
        host_facts: HostReader::facts(),
        targets: targets.clone(),
        readings,
        interval: options.interval,
        next: now,
        awaiting: None,
        has_line: false,
    };
    let writer = main_loop.writer.clone();
    let replies = Arc::new(move |reply| writer.reply(reply));
    // Commands wait for the first line, so that an agent without an input writes a line before it ends. They do not wait
    // long: a closed input ends the agent even when nobody reads.
    let mut start_actions =
        Some((main_loop.next.after(ACTIONS_WAIT), move || actions::spawn(targets, events, replies, options.readonly)));
    loop {
        let now = clock::now();
        main_loop.on_time(now)?;
        let due = start_actions.as_ref().map(|(due, _)| *due);
        let mut first_line = due.is_some_and(|due| now >= due);
        match main_loop.wait(&happened, due) {
            Some(AgentEvent::Written) => {
                first_line = true;
                main_loop.first_scan = Some(clock::now().after(FIRST_SCAN));
            }
            Some(event) => main_loop.handle(event, clock::now()),
            None => (),
        }
        if first_line && let Some((_, spawn)) = start_actions.take() {
            spawn()?;
        }
    }
}

impl MainLoop {
    /// Waits for an event, or until something is due.
    fn wait(&self, happened: &Receiver<AgentEvent>, also: Option<Moment>) -> Option<AgentEvent> {
        let peek = self.peeker.as_ref().and_then(AllocatorReader::deadline);
        let times = [Some(self.next), self.awaiting, self.sampler.deadline(), peek, self.first_scan, also];
        let until = times.into_iter().flatten().min();
        let until = until.unwrap_or(self.next);
        happened.recv_timeout(until.since(clock::now())).ok()
    }

    /// Does everything that is due.
    fn on_time(&mut self, now: Moment) -> io::Result<()> {
        if self.sampler.check(now, &mut self.readings)? {
            self.line(now);
        }
        if self.awaiting.is_some_and(|until| now >= until) {
            self.line(now);
        }
        if self.peeker.as_mut().is_some_and(|peeker| peeker.abandon_overdue(now)) {
            // The other processes do not wait for the next pass.
            self.look_into(now);
        }
        if self.first_scan.take_if(|due| now >= *due).is_some() {
            self.is_scanning = true;
            self.census.request(ScanRequest {
                gpu_users: Some(self.scanned_for.clone()),
                scope: ScanScope::AllFiles,
                ..ScanRequest::default()
            });
            self.processes.read_postponed();
            // In time for the second line, which `--json` prints.
            self.look_into(now);
        }
        if now >= self.next {
            // In step with the clock, unless this process was stopped for a while.
            let next = self.next.after(self.interval);
            self.next = if next > now { next } else { now.after(self.interval) };
            self.begin(now, false);
        }
        Ok(())
    }

    fn begin(&mut self, now: Moment, scan: bool) {
        self.awaiting = Some(now.after(self.interval.min(LINE_WAIT)));
        self.sampler.wake(scan);
        // At the same time as the driver lists their memory.
        self.look_into(now);
    }

    /// Orders the allocator stats of all GPU processes.
    fn look_into(&mut self, now: Moment) {
        if let Some(peeker) = &mut self.peeker {
            peeker.request(self.processes.listed(), now);
        }
    }

    /// Handles an event.
    fn handle(&mut self, event: AgentEvent, now: Moment) {
        match event {
            AgentEvent::Read(message) => {
                if let Some(readings) = self.sampler.receive(message) {
                    self.readings = readings;
                    self.line(now);
                }
            }
            // `run` handles it.
            AgentEvent::Written => (),
            AgentEvent::Peeked(message) => {
                if let Some(peeker) = &mut self.peeker {
                    peeker.receive(message);
                }
            }
            AgentEvent::Found(message) => self.processes.receive(message),
            AgentEvent::Sighted(sighting) => self.take(sighting, now),
            AgentEvent::Interval(interval) => {
                self.interval = interval;
                self.next = self.next.min(now.after(interval));
            }
            AgentEvent::Scan => {
                self.scan = true;
                self.begin(now, true);
            }
            AgentEvent::Full => {
                self.writer.request_full();
                self.begin(now, false);
            }
            AgentEvent::Ended(argv) => {
                self.processes.expect_argv(argv);
                self.ended = Some(now);
            }
            AgentEvent::Detail(gpu) => {
                let is_waited_for = gpu.is_some();
                self.sampler.detail(gpu);
                if is_waited_for {
                    self.begin(now, false);
                }
            }
        }
    }

    /// Takes the result of a scan. News of a full scan are written at once: a person may wait for it.
    fn take(&mut self, sighting: Box<ScanResult>, now: Moment) {
        self.processes.examine(&sighting.candidates);
        let is_news = sighting.is_full && self.sighting.as_ref().is_none_or(|old| old.related != sighting.related);
        self.sighting = Some(sighting);
        if is_news && self.awaiting.is_none() && self.next.since(now) > LINE_WAIT {
            self.line(now);
        }
    }

    /// Reads the processes with the most GPU memory before the others.
    fn read_largest(&mut self) {
        let mut listed: Vec<_> = self.readings.gpus.iter().flat_map(|gpu| &gpu.processes).collect();
        listed.sort_by_key(|process| Reverse(process.memory.ok()));
        for process in listed {
            self.processes.read_listed(process.pid, process.listed, process.memory);
        }
    }

    /// Joins all readings into a snapshot, and gives it to the writer.
    fn line(&mut self, now: Moment) {
        self.awaiting = None;
        if self.has_line {
            self.processes.begin_pass();
        } else {
            self.has_line = true;
            self.next = self.next.min(now.after(SECOND_PASS));
            self.processes.begin_first_pass();
            self.read_largest();
        }
        let mut gpus: Vec<Gpu> = self.readings.gpus.iter().map(|gpu| joined(gpu, &mut self.processes)).collect();
        let related = self.sighting.as_ref().map_or_else(|| [].into(), |sighting| sighting.related.clone());
        self.processes.read_related(&related, self.scan);
        let mut processes: Vec<_> = self.processes.end_pass().cloned().collect();
        for process in &mut processes {
            let simulated = self.readings.simulated.iter().find(|(pid, _)| *pid == process.id.pid);
            let simulated = simulated.map(|(_, stats)| {
                Ok(AllocatorReading { devices: stats.clone().into(), ..AllocatorReading::default() })
            });
            let said = self.peeker.as_ref().and_then(|peeker| peeker.result(process.id)).or(simulated.as_ref());
            let said = said.zip(self.processes.cuda_environment(process.id));
            process.allocator =
                said.map(|(said, cuda)| cuda_devices::allocator_stats(said, process.id, &gpus, cuda).into());
        }
        for gpu in &mut gpus {
            add_holders(gpu, self.sighting.as_deref(), &processes);
        }
        self.targets.set(&processes);
        self.order_scan(now);
        let scan = self.sighting.as_ref().map(|sighting| sighting.counts.clone());
        let snapshot = Snapshot {
            schema: Snapshot::SCHEMA,
            sequence: 0,
            at: now,
            unix_ms: clock::unix_ms(),
            interval_ms: u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX),
            host: Host {
                facts: self.host_facts.clone(),
                load: self.host.load(now),
                scan: scan.unwrap_or_else(|| HostScan::missing(Moment(0), 0, 0, Missing::NotYet)),
            },
            driver: self.readings.driver.clone(),
            gpus,
            processes,
        };
        self.writer.put(Box::new(snapshot));
    }

    /// Tells the scan which processes use a GPU, and how far to look.
    fn order_scan(&mut self, now: Moment) {
        if self.ended.take_if(|ended| now.since(*ended) >= REPLACEMENT).is_some() {
            self.processes.clear_expected();
        }
        let gpu_users: Vec<ProcessId> = self.processes.gpu_users().collect();
        let gpu_processes = (gpu_users != self.scanned_for).then(|| {
            self.scanned_for.clone_from(&gpu_users);
            gpu_users
        });
        let (jumped, has_changed) =
            (self.unaccounted.has_grown(&self.readings.gpus), self.processes.take_relation_changed());
        if self.is_scanning {
            let scope = match std::mem::take(&mut self.scan) || jumped {
                true => ScanScope::AllFiles,
                false if has_changed || self.ended.is_some() => ScanScope::AllProcesses,
                false => ScanScope::Few,
            };
            let adopted = self.processes.take_accepted();
            self.census.request(ScanRequest { gpu_users: gpu_processes, accepted: adopted, ended: self.ended, scope });
        }
    }
}

/// Joins the readings of a GPU with its processes.
fn joined(gpu: &GpuReadings, processes: &mut Processes) -> Gpu {
    let gpu_processes = gpu.processes.iter().map(|process| GpuProcess {
        process: processes.read_listed(process.pid, process.listed, process.memory),
        usage: process.usage,
        memory: process.memory,
        sm: process.sm,
        names: None,
    });
    Gpu {
        uuid: gpu.uuid.clone(),
        facts: gpu.facts.clone(),
        load: gpu.load.clone(),
        health: gpu.health.clone(),
        detail: gpu.detail.clone(),
        processes: gpu_processes.collect(),
        device_file_holders: gpu.device_file_holders.iter().filter_map(|pid| processes.read_holder(*pid)).collect(),
        trouble: gpu.trouble.clone(),
        failures: gpu.failures.clone(),
    }
}

/// Adds the GPU processes, and the shown processes whose open device files let them hold memory of the GPU.
fn add_holders(gpu: &mut Gpu, sighting: Option<&ScanResult>, processes: &[Process]) {
    let mut holders = std::mem::take(&mut gpu.device_file_holders);
    holders.extend(gpu.processes.iter().map(|gpu_process| gpu_process.process));
    if let (Some(sighting), Ok(minor)) = (sighting, gpu.facts.minor) {
        holders.extend(
            sighting.device_file_holders.iter().filter(|(_, open)| open.may_hold_memory_of(minor)).map(|(id, _)| *id),
        );
    }
    holders.sort_unstable();
    holders.dedup();
    // A process that is not certainly the listed one, or that has ended, holds nothing.
    holders.retain(|id| {
        let at = processes.binary_search_by_key(id, |process| process.id);
        at.is_ok_and(|at| processes[at].facts.identity != Identity::Unverified)
    });
    gpu.device_file_holders = holders;
}
