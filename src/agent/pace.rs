//! The agent's loop: wakes the sampler each interval, joins what it brings with `/proc`, hands lines to
//! the writer, and never waits for any of them.

use std::io;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use super::host::Host;
use super::proc::Tenants;
use super::sampler::{self, Sampler};
use super::writer::Writer;
use super::{Known, Readings, Wake, clock, hands};
use crate::cli::AgentArgs;
use crate::snapshot::{Gpu, Host as HostLanes, HostFacts, HostScan, Missing, Snapshot, Tenant};
use crate::units::Moment;

/// The second pass comes this soon after the first line, since a rate needs two.
const SECOND: Duration = Duration::from_millis(205);
/// A line waits no longer for the driver.
const PATIENCE: Duration = Duration::from_millis(250);

/// The agent's loop.
struct Loop {
    sampler: Sampler,
    writer: Writer,
    tenants: Tenants,
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
pub(super) fn run(args: &AgentArgs) -> io::Result<()> {
    let (events, happened) = mpsc::channel();
    let now = clock::now();
    let readings = sampler::nothing_yet(now);
    let known = Known::default();
    let mut it = Loop {
        sampler: Sampler::spawn(args, readings.clone(), events.clone())?,
        writer: Writer::spawn(events.clone())?,
        tenants: Tenants::new(args.demo, events.clone()),
        host: Host::new(),
        host_facts: Host::facts(),
        known: known.clone(),
        readings,
        interval: args.interval,
        next: now,
        awaiting: None,
        said: false,
    };
    let replies = it.writer.replies();
    // Commands wait for the first line, so that an agent without an input says what it sees before it
    // leaves. They do not wait long: an input that closes ends the agent even when nobody reads.
    let mut hands =
        Some((it.next.after(Duration::from_secs(1)), move || hands::spawn(known, events, replies, args.readonly)));
    loop {
        let now = clock::now();
        it.on_time(now)?;
        let due = hands.as_ref().map(|(due, _)| *due);
        let mut first_line = due.is_some_and(|due| now >= due);
        match it.wait(&happened, due) {
            Some(Wake::Written) => first_line = true,
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
        let until = [Some(self.next), self.awaiting, self.sampler.deadline(), also].into_iter().flatten().min();
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
    }

    /// Takes what happened.
    fn on(&mut self, event: Wake, now: Moment) {
        match event {
            Wake::Read(generation, readings) if self.sampler.is_current(generation) => {
                self.readings = *readings;
                self.sampler.heard(&self.readings);
                self.line(now);
            }
            // Of a thread that was left behind meanwhile; and the first line, which `run` waits for.
            Wake::Read(..) | Wake::Written => (),
            Wake::CameBack => self.sampler.came_back(),
            Wake::Found(finding) => self.tenants.learn(finding),
            Wake::Interval(interval) => {
                self.interval = interval;
                self.next = self.next.min(now.after(interval));
            }
            Wake::Scan => self.begin(now, true),
        }
    }

    /// Joins what is known into a snapshot, and has it written.
    fn line(&mut self, now: Moment) {
        self.awaiting = None;
        if !self.said {
            self.said = true;
            self.next = self.next.min(now.after(SECOND));
        }
        self.tenants.begin();
        let gpus = self.readings.gpus.iter().map(|gpu| Gpu {
            uuid: gpu.uuid.clone(),
            facts: gpu.facts.clone(),
            load: gpu.load.clone(),
            health: gpu.health.clone(),
            tenants: gpu
                .holds
                .iter()
                .map(|hold| Tenant {
                    process: self.tenants.see(hold.pid, gpu.load.at),
                    usage: hold.usage,
                    memory: hold.memory,
                    sm: hold.sm,
                })
                .collect(),
            holders: Vec::new(),
            trouble: gpu.trouble.clone(),
        });
        let gpus = gpus.collect();
        let processes: Vec<_> = self.tenants.end().cloned().collect();
        self.known.set(&processes);
        let snapshot = Snapshot {
            schema: Snapshot::SCHEMA,
            sequence: 0,
            at: now,
            unix_ms: clock::unix_ms(),
            interval_ms: u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX),
            host: HostLanes {
                facts: self.host_facts.clone(),
                load: self.host.load(now),
                scan: HostScan::missing(Moment(0), 0, 0, Missing::NotYet),
            },
            driver: self.readings.driver.clone(),
            gpus,
            processes,
        };
        self.writer.put(Box::new(snapshot));
    }
}
