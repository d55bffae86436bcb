//! The agent's loop: wakes the sampler each interval, joins what it brings with `/proc`, hands lines to
//! the writer, and never waits for any of them.

use std::cmp::Reverse;
use std::io;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use super::host::Host;
use super::line_writer::Writer;
use super::procfs::Processes;
use super::procfs::device_files::DeviceFiles;
use super::pytorch::{Peeker, Said, cuda_devices};
use super::sampler::{self, Sampler};
use super::scan::{Census, Order, Scope, Sighting, Unaccounted};
use super::{GpuReadings, Known, Readings, Wake, actions, clock};
use crate::base::units::Moment;
use crate::protocol::agent_options::AgentOptions;
use crate::protocol::snapshot::{
    Gpu, GpuProcess, Host as HostLanes, HostFacts, HostScan, Identity, Missing, Process, ProcessId, Snapshot,
};

/// The second pass comes this soon after the first line, since a rate needs two.
const SECOND: Duration = Duration::from_millis(205);
/// The others are looked at so long after the first line was written: whoever draws it needs a processor too.
const HEAD_START: Duration = Duration::from_millis(20);
/// A line waits no longer for the driver.
const PATIENCE: Duration = Duration::from_millis(250);
/// For so long after the end of a process that was held, one looks for who takes its place.
const SUCCESSION: Duration = Duration::from_secs(30);

/// The agent's loop.
struct Loop {
    sampler: Sampler,
    writer: Writer,
    processes: Processes,
    /// Absent on the simulated machine, whose processes hold nothing.
    peeker: Option<Peeker>,
    census: Census,
    sighting: Option<Box<Sighting>>,
    unaccounted: Unaccounted,
    /// The GPU processes that the census knows of.
    counted: Vec<ProcessId>,
    /// When to look at those who are not in the first line.
    others: Option<Moment>,
    /// The census has begun.
    is_counting: bool,
    /// Someone wants to know of everyone.
    scan: bool,
    /// When the last one ended that was held, as long as one looks for who takes its place.
    ended: Option<Moment>,
    host: Host,
    host_facts: HostFacts,
    known: Known,
    /// What the driver said last, with the troubles that were found since.
    readings: Readings,
    interval: Duration,
    next: Moment,
    /// Until when a line waits for the pass that is under way.
    awaiting: Option<Moment>,
    /// Whether there was a line yet.
    said: bool,
}

/// Runs until the process ends.
pub(super) fn run(options: &AgentOptions) -> io::Result<()> {
    let (events, happened) = mpsc::channel();
    let now = clock::now();
    let readings = sampler::nothing_yet(now);
    let known = Known::default();
    let mut it = Loop {
        sampler: Sampler::spawn(options, readings.clone(), events.clone())?,
        writer: Writer::spawn(events.clone())?,
        processes: Processes::new(options.demo, DeviceFiles::of_host(), events.clone()),
        peeker: (!options.demo).then(|| Peeker::new(events.clone())),
        census: Census::spawn((!options.demo).then(DeviceFiles::of_host), events.clone())?,
        sighting: None,
        unaccounted: Unaccounted::default(),
        counted: vec![],
        others: None,
        is_counting: false,
        scan: false,
        ended: None,
        host: Host::new(),
        host_facts: Host::facts(),
        known: known.clone(),
        readings,
        interval: options.interval,
        next: now,
        awaiting: None,
        said: false,
    };
    let replies = it.writer.replies();
    // Commands wait for the first line, so that an agent without an input says what it sees before it
    // leaves. They do not wait long: an input that closes ends the agent even when nobody reads.
    let mut hands =
        Some((it.next.after(Duration::from_secs(1)), move || actions::spawn(known, events, replies, options.readonly)));
    loop {
        let now = clock::now();
        it.on_time(now)?;
        let due = hands.as_ref().map(|(due, _)| *due);
        let mut first_line = due.is_some_and(|due| now >= due);
        match it.wait(&happened, due) {
            Some(Wake::Written) => {
                first_line = true;
                it.others = Some(clock::now().after(HEAD_START));
            }
            Some(event) => it.on(event, clock::now()),
            None => (),
        }
        if first_line && let Some((_, spawn)) = hands.take() {
            spawn()?;
        }
    }
}

impl Loop {
    /// Waits for something to happen, or for the time to do something.
    fn wait(&self, happened: &Receiver<Wake>, also: Option<Moment>) -> Option<Wake> {
        let peek = self.peeker.as_ref().and_then(Peeker::deadline);
        let times = [Some(self.next), self.awaiting, self.sampler.deadline(), peek, self.others, also];
        let until = times.into_iter().flatten().min();
        let until = until.unwrap_or(self.next);
        happened.recv_timeout(until.since(clock::now())).ok()
    }

    /// Does what the time has come for.
    fn on_time(&mut self, now: Moment) -> io::Result<()> {
        if self.sampler.check(now, &mut self.readings)? {
            self.line(now);
        }
        if self.awaiting.is_some_and(|until| now >= until) {
            self.line(now);
        }
        if self.peeker.as_mut().is_some_and(|it| it.check(now)) {
            // The others do not wait for the next pass.
            self.look_into(now);
        }
        if self.others.take_if(|due| now >= *due).is_some() {
            self.is_counting = true;
            self.census.order(Order {
                gpu_processes: Some(self.counted.clone()),
                scope: Scope::Files,
                ..Order::default()
            });
            self.processes.read_postponed();
            // So the second line says it, which is the one that `--json` prints.
            self.look_into(now);
        }
        if now >= self.next {
            // In step with the clock, unless we were stopped for a while.
            let next = self.next.after(self.interval);
            self.next = if next > now { next } else { now.after(self.interval) };
            self.begin(now, false);
        }
        Ok(())
    }

    fn begin(&mut self, now: Moment, scan: bool) {
        self.awaiting = Some(now.after(self.interval.min(PATIENCE)));
        self.sampler.wake(scan);
        // At the time at which the driver says what they hold.
        self.look_into(now);
    }

    /// Has the GPU processes looked into.
    fn look_into(&mut self, now: Moment) {
        if let Some(peeker) = &mut self.peeker {
            peeker.order(self.processes.listed(), now);
        }
    }

    /// Takes what happened.
    fn on(&mut self, event: Wake, now: Moment) {
        match event {
            Wake::Read(message) => {
                if let Some(readings) = self.sampler.receive(message) {
                    self.readings = readings;
                    self.line(now);
                }
            }
            // The first line, which `run` waits for.
            Wake::Written => (),
            Wake::Peeked(generation, said) => {
                if let Some(peeker) = &mut self.peeker {
                    peeker.learn(generation, said);
                }
            }
            Wake::Found(message) => self.processes.receive(message),
            Wake::Sighted(sighting) => self.take(sighting, now),
            Wake::Interval(interval) => {
                self.interval = interval;
                self.next = self.next.min(now.after(interval));
            }
            Wake::Scan => {
                self.scan = true;
                self.begin(now, true);
            }
            Wake::Full => {
                self.writer.request_full();
                self.begin(now, false);
            }
            Wake::Ended(argv) => {
                self.processes.expect_argv(argv);
                self.ended = Some(now);
            }
            Wake::Detail(gpu) => {
                let someone_waits = gpu.is_some();
                self.sampler.detail(gpu);
                if someone_waits {
                    self.begin(now, false);
                }
            }
        }
    }

    /// Takes what the census found. When it looked at everyone, someone waits to hear of it.
    fn take(&mut self, sighting: Box<Sighting>, now: Moment) {
        self.processes.examine(&sighting.strays);
        let is_news = sighting.is_full && self.sighting.as_ref().is_none_or(|old| old.related != sighting.related);
        self.sighting = Some(sighting);
        if is_news && self.awaiting.is_none() && self.next.since(now) > PATIENCE {
            self.line(now);
        }
    }

    /// Reads the processes that hold most, before the others.
    fn see_largest(&mut self) {
        let mut listed: Vec<_> = self.readings.gpus.iter().flat_map(|gpu| &gpu.processes).collect();
        listed.sort_by_key(|process| Reverse(process.memory.ok()));
        for process in listed {
            self.processes.read_listed(process.pid, process.listed, process.memory);
        }
    }

    /// Joins what is known into a snapshot, and has it written.
    fn line(&mut self, now: Moment) {
        self.awaiting = None;
        if self.said {
            self.processes.begin_pass();
        } else {
            self.said = true;
            self.next = self.next.min(now.after(SECOND));
            self.processes.begin_first_pass();
            self.see_largest();
        }
        let mut gpus: Vec<Gpu> = self.readings.gpus.iter().map(|gpu| joined(gpu, &mut self.processes)).collect();
        let related = self.sighting.as_ref().map_or_else(|| [].into(), |sighting| sighting.related.clone());
        self.processes.read_related(&related, self.scan);
        let mut processes: Vec<_> = self.processes.end_pass().cloned().collect();
        for process in &mut processes {
            let simulated = self.readings.simulated.iter().find(|(pid, _)| *pid == process.id.pid);
            let simulated = simulated.map(|(_, stats)| Ok(Said { devices: stats.clone().into(), ..Said::default() }));
            let said = self.peeker.as_ref().and_then(|it| it.said(process.id)).or(simulated.as_ref());
            let said = said.zip(self.processes.cuda_environment(process.id));
            process.allocator = said.map(|(said, cuda)| cuda_devices::peek(said, process.id, &gpus, cuda).into());
        }
        for gpu in &mut gpus {
            add_holders(gpu, self.sighting.as_deref(), &processes);
        }
        self.known.set(&processes);
        self.give_order(now);
        let scan = self.sighting.as_ref().map(|sighting| sighting.scan.clone());
        let snapshot = Snapshot {
            schema: Snapshot::SCHEMA,
            sequence: 0,
            at: now,
            unix_ms: clock::unix_ms(),
            interval_ms: u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX),
            host: HostLanes {
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

    /// Tells the census who holds a GPU, and whether something happened.
    fn give_order(&mut self, now: Moment) {
        if self.ended.take_if(|ended| now.since(*ended) >= SUCCESSION).is_some() {
            self.processes.clear_expected();
        }
        let roots: Vec<ProcessId> = self.processes.gpu_users().collect();
        let gpu_processes = (roots != self.counted).then(|| {
            self.counted.clone_from(&roots);
            roots
        });
        let (jumped, upset) = (self.unaccounted.jumped(&self.readings.gpus), self.processes.take_relation_changed());
        if self.is_counting {
            let scope = match std::mem::take(&mut self.scan) || jumped {
                true => Scope::Files,
                false if upset || self.ended.is_some() => Scope::Everyone,
                false => Scope::Few,
            };
            let adopted = self.processes.take_accepted();
            self.census.order(Order { gpu_processes, adopted, ended: self.ended, scope });
        }
    }
}

fn joined(gpu: &GpuReadings, processes: &mut Processes) -> Gpu {
    let gpu_processes = gpu.processes.iter().map(|process| GpuProcess {
        process: processes.read_listed(process.pid, process.listed, process.memory),
        usage: process.usage,
        memory: process.memory,
        sm: process.sm,
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

/// Adds its GPU processes, and who may hold memory by the files it had open, of those that are shown.
fn add_holders(gpu: &mut Gpu, sighting: Option<&Sighting>, processes: &[Process]) {
    let mut holders = std::mem::take(&mut gpu.device_file_holders);
    holders.extend(gpu.processes.iter().map(|gpu_process| gpu_process.process));
    if let (Some(sighting), Ok(minor)) = (sighting, gpu.facts.minor) {
        holders.extend(
            sighting.device_file_holders.iter().filter(|(_, open)| open.may_hold_memory_of(minor)).map(|(id, _)| *id),
        );
    }
    holders.sort_unstable();
    holders.dedup();
    // A PID that may be a stranger's holds nothing, nor does one who has ended since.
    holders.retain(|id| {
        let at = processes.binary_search_by_key(id, |process| process.id);
        at.is_ok_and(|at| processes[at].facts.identity != Identity::Unverified)
    });
    gpu.device_file_holders = holders;
}
