//! When hosts are connected, and connected again: data only, without a process or a clock.
//!
//! A server takes few new connections at once (`MaxStartups` of sshd), so hosts behind one server
//! wait for each other. A connection that is over is made again after a time that doubles with
//! each try.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// The time between two starts of processes. Keys and lines are read in between.
const PACE: Duration = Duration::from_millis(5);

/// The first time from one try to the next.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The longest time from one try to the next, for a host that has answered before and for others.
const LONGEST_WAIT: Duration = Duration::from_secs(8);
const LONGEST_WAIT_UNKNOWN: Duration = Duration::from_mins(1);

/// A connection that lasted for this time was no failure.
const LASTING: Duration = Duration::from_secs(10);

/// A request of the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectStep {
    /// Find out through which server this host is reached.
    LookUp(usize),
    /// Connect to this host.
    Connect(usize),
}

/// How a host is connected again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextTry {
    ByItself,
    /// When the user asks for it: another try would fail as well, or do harm.
    OnRequest,
    /// When the user has logged in: ssh has a question, and no terminal to ask it on.
    AfterLogin,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ConnectPhase {
    /// Nothing is due.
    Idle,
    /// Is to be connected from this moment on.
    Due(Instant),
    LookingUp,
    Connecting,
    Connected(Instant),
}

#[derive(Debug)]
struct HostSchedule {
    phase: ConnectPhase,
    /// The server that takes the connection; `None` while it is not known.
    server: Option<Arc<str>>,
    /// Whether the server must be known.
    needs_server: bool,
    has_answered: bool,
    /// The tries in a row that led to no lasting connection.
    failures: u32,
    /// When the latest try began.
    began: Instant,
}

/// The schedule of all hosts. A host is its place in the list of sources.
#[derive(Debug)]
pub(super) struct Schedule {
    hosts: Vec<HostSchedule>,
    /// The most connects at once to one server.
    connects: usize,
    /// The next step and when it is due; `None` when there is none.
    next: Option<(Instant, ConnectStep)>,
    /// No step is due before.
    paced: Instant,
    random: Random,
}

impl Schedule {
    pub(super) fn new(connects: usize, now: Instant) -> Self {
        Self {
            hosts: Vec::new(),
            connects,
            next: None,
            paced: now,
            random: Random::default(),
        }
    }

    /// Adds a host that nothing is to be done for. `needs_server` says whether hosts may share a
    /// server with it.
    pub(super) fn add(&mut self, needs_server: bool, now: Instant) {
        self.hosts.push(HostSchedule {
            phase: ConnectPhase::Idle,
            server: None,
            needs_server,
            has_answered: false,
            failures: 0,
            began: now,
        });
    }

    /// Connects a host as soon as possible.
    pub(super) fn start(&mut self, host: usize, now: Instant) {
        self.change(host, |schedule| {
            schedule.phase = ConnectPhase::Due(now);
            schedule.failures = 0;
            // The configuration of ssh may have changed.
            schedule.server = None;
        });
    }

    /// Returns when [`Self::take`] has a step; `None` when nothing is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.next.map(|(due, _)| due)
    }

    /// Takes the step that is due.
    pub(super) fn take(&mut self, now: Instant) -> Option<ConnectStep> {
        let (_, step) = self.next.filter(|(due, _)| *due <= now)?;
        self.paced = now + PACE;
        match step {
            ConnectStep::LookUp(host) => {
                self.change(host, |schedule| schedule.phase = ConnectPhase::LookingUp);
            }
            ConnectStep::Connect(host) => self.change(host, |schedule| {
                schedule.phase = ConnectPhase::Connecting;
                schedule.began = now;
            }),
        }
        Some(step)
    }

    /// Notes the server through which a host is reached.
    pub(super) fn looked_up(&mut self, host: usize, server: &str, now: Instant) {
        self.change(host, |schedule| {
            schedule.server = Some(server.into());
            if schedule.phase == ConnectPhase::LookingUp {
                schedule.phase = ConnectPhase::Due(now);
            }
        });
    }

    /// Notes that the server of a host let gputop in: another host may connect.
    pub(super) fn let_in(&mut self, host: usize, now: Instant) {
        self.change(host, |schedule| {
            schedule.phase = ConnectPhase::Connected(now);
        });
    }

    /// Notes that the agent of a host has answered.
    pub(super) fn answered(&mut self, host: usize) {
        if let Some(schedule) = self.hosts.get_mut(host) {
            schedule.has_answered = true;
        }
    }

    /// Notes that the connection of a host is over. Returns the time until the next try; `None` if
    /// the user must ask for it.
    pub(super) fn ended(&mut self, host: usize, next: NextTry, now: Instant) -> Option<Duration> {
        let reconnects = next == NextTry::ByItself;
        let jitter = self.random.jitter();
        let schedule = self.hosts.get_mut(host)?;
        if matches!(schedule.phase, ConnectPhase::Connected(since) if now - since >= LASTING) {
            schedule.failures = 0;
        }
        let longest = if schedule.has_answered {
            LONGEST_WAIT
        } else {
            LONGEST_WAIT_UNKNOWN
        };
        let wait = FIRST_WAIT
            .saturating_mul(1 << schedule.failures.min(10))
            .min(longest);
        schedule.failures += 1;
        // A connect that timed out has waited already.
        let due = (schedule.began + wait.mul_f64(jitter)).max(now + FIRST_WAIT.mul_f64(jitter));
        schedule.phase = if reconnects {
            ConnectPhase::Due(due)
        } else {
            ConnectPhase::Idle
        };
        self.plan();
        reconnects.then(|| due - now)
    }

    fn change(&mut self, host: usize, change: impl FnOnce(&mut HostSchedule)) {
        if let Some(schedule) = self.hosts.get_mut(host) {
            change(schedule);
            self.plan();
        }
    }

    /// Finds the next step. Among hosts that are due, those that were looked up come first, in the
    /// order of their dues.
    fn plan(&mut self) {
        let mut connecting: HashMap<&Arc<str>, usize> = HashMap::new();
        for schedule in &self.hosts {
            if let (ConnectPhase::Connecting, Some(server)) = (&schedule.phase, &schedule.server) {
                *connecting.entry(server).or_default() += 1;
            }
        }
        let step = |(host, schedule): (usize, &HostSchedule)| {
            let ConnectPhase::Due(due) = schedule.phase else {
                return None;
            };
            match &schedule.server {
                Some(server) => {
                    let is_full = connecting.get(server).copied().unwrap_or(0) >= self.connects;
                    (!is_full).then_some((due, ConnectStep::Connect(host)))
                }
                None if schedule.needs_server => Some((due, ConnectStep::LookUp(host))),
                None => Some((due, ConnectStep::Connect(host))),
            }
        };
        let next = self
            .hosts
            .iter()
            .enumerate()
            .filter_map(step)
            .min_by_key(|(due, _)| *due);
        self.next = next.map(|(due, step)| (due.max(self.paced), step));
    }
}

/// Random numbers, good enough to spread tries.
#[derive(Debug, Default)]
struct Random {
    state: RandomState,
    count: u64,
}

impl Random {
    /// Returns a factor from 0.8 to 1.2.
    fn jitter(&mut self) -> f64 {
        self.count += 1;
        let thousandths = u32::try_from(self.state.hash_one(self.count) % 1001).unwrap_or(0);
        0.8 + 0.4 * f64::from(thousandths) / 1000.0
    }
}

#[cfg(test)]
mod tests;
