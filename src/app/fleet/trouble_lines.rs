//! The troubles of all hosts as lines of the fleet view: one sentence each, the most urgent first,
//! and GPUs that are held idle last.

use crate::app::App;
use crate::base::time::WallClock;
use crate::base::units::{Elapsed, Moment};
use crate::model::{
    GpuOrProcess, Growing, HeldGpus, HostModel, HostSubject, RankedTrouble, Severity, TroubleRank,
    Verdict,
};
use crate::output::labels::growth::full_after;
use crate::output::labels::{gpu_label, gpu_labels, program, word};
use crate::protocol::host_key::HostKey;
use crate::protocol::snapshot::{Gpu, ProcessId, Snapshot};

/// Tells lines apart: the host, and what is in trouble there. GPUs that are held idle have no rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TroubleId {
    pub(crate) host: HostKey,
    rank: Option<TroubleRank>,
    /// `None` for the host or its driver.
    pub(crate) subject: Option<GpuOrProcess>,
}

/// A trouble as a line of the fleet view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TroubleLine {
    pub(crate) id: TroubleId,
    /// The letter of the GPU's cell, or `!`.
    pub(crate) letter: char,
    pub(crate) severity: Severity,
    /// The host, and its GPUs where some are meant: `gpu-03:5`.
    pub(crate) place: String,
    pub(crate) sentence: String,
}

/// A trouble whose line is not written yet.
#[derive(Debug, Clone, Copy)]
pub(in crate::app) enum FleetTrouble<'a> {
    Ranked(HostKey, &'a RankedTrouble),
    Held(HostKey, &'a HeldGpus),
}

impl FleetTrouble<'_> {
    pub(in crate::app) fn id(&self) -> TroubleId {
        match self {
            Self::Ranked(host, trouble) => TroubleId {
                host: *host,
                rank: Some(trouble.rank),
                subject: trouble.subject.clone(),
            },
            Self::Held(host, held) => TroubleId {
                host: *host,
                rank: None,
                subject: Some(GpuOrProcess::Process(held.holder)),
            },
        }
    }
}

impl App {
    /// Writes the line of a trouble.
    pub(in crate::app) fn trouble_line(&self, trouble: &FleetTrouble<'_>) -> TroubleLine {
        let id = trouble.id();
        match trouble {
            FleetTrouble::Ranked(host, trouble) => self.ranked_line(*host, trouble, id),
            FleetTrouble::Held(host, held) => self.held_line(*host, held, id),
        }
    }

    fn ranked_line(&self, host: HostKey, trouble: &RankedTrouble, id: TroubleId) -> TroubleLine {
        let fleet = self.live_fleet();
        let (mut letter, mut gpus, mut sentence) = ('!', String::new(), String::new());
        if trouble.rank == TroubleRank::Silent {
            letter = '?';
            sentence = self
                .host_state(host)
                .map_or_else(String::new, |state| state.words);
        } else if let Some(host) = self.troubled_host(host) {
            let words = words_of(host, trouble);
            (letter, gpus, sentence) = (words.letter, words.gpus, words.sentence);
        }
        TroubleLine {
            id,
            letter,
            severity: trouble.rank.severity(),
            place: place(fleet.name(host), &gpus),
            sentence,
        }
    }

    /// The host whose line is written; `None` before its first line.
    fn troubled_host(&self, host: HostKey) -> Option<HostInTrouble<'_>> {
        let fleet = self.live_fleet();
        let model = fleet.host(host)?;
        Some(HostInTrouble {
            model,
            snapshot: model.latest()?,
            clock: self.clocks.shared(fleet, host),
        })
    }

    /// Returns the line of GPUs that are held idle: `carol's notebook: 212 GiB, 0 % for ≥ 0h34 (seen
    /// since 11:30)`.
    fn held_line(&self, host: HostKey, held: &HeldGpus, id: TroubleId) -> TroubleLine {
        let fleet = self.live_fleet();
        let mut line = TroubleLine {
            id,
            letter: 'h',
            severity: Severity::Notable,
            place: fleet.name(host).to_owned(),
            sentence: String::new(),
        };
        if let Some(troubled) = self.troubled_host(host) {
            let now = troubled.model.now();
            let span = now.since(held.since);
            let minutes = span.as_secs() / 60;
            let span = format!("{}h{:02}", minutes / 60, minutes % 60);
            let span = if held.was_seen {
                format!("{span}{}", troubled.since(held.since))
            } else {
                let since = troubled.clock.map_or_else(String::new, |clock| {
                    format!(" (seen since {})", clock.near(held.since, now))
                });
                format!("≥ {span}{since}")
            };
            line.place = place(fleet.name(host), &gpu_labels(troubled.snapshot, &held.gpus));
            line.sentence = format!(
                "{}: {}, 0 % for {span}",
                owned(troubled.snapshot, held.holder),
                word(held.memory)
            );
        }
        line
    }
}

/// The parts of a line after the name of the host.
struct TroublePhrase {
    letter: char,
    gpus: String,
    sentence: String,
}

fn words_of(host: HostInTrouble<'_>, trouble: &RankedTrouble) -> TroublePhrase {
    let snapshot = host.snapshot;
    let subject = trouble.subject.as_ref();
    match trouble.rank {
        TroubleRank::FullSoon | TroubleRank::Leak => growth(host, trouble),
        TroubleRank::Leftover => leftovers(host),
        _ => match subject {
            Some(GpuOrProcess::Gpu(uuid)) => {
                let gpu = snapshot.gpu(uuid);
                TroublePhrase {
                    letter: if trouble.rank == TroubleRank::Slowdown {
                        '!'
                    } else {
                        'x'
                    },
                    gpus: gpu.map(gpu_label).unwrap_or_default(),
                    sentence: gpu.map_or_else(String::new, |gpu| failure(host, gpu)),
                }
            }
            _ => {
                let driver = snapshot.driver.trouble.as_ref();
                TroublePhrase {
                    letter: 'x',
                    gpus: String::new(),
                    sentence: driver.map_or_else(String::new, |driver| {
                        format!("the driver: {}{}", driver.cause, host.since(driver.since))
                    }),
                }
            }
        },
    }
}

/// Says what is wrong with a GPU, since when, and who has most memory there: `Xid 79 since 11:58;
/// bob's 4711 train.py holds 61.0 GiB`.
fn failure(host: HostInTrouble<'_>, gpu: &Gpu) -> String {
    let began = match &gpu.trouble {
        Some(trouble) => Some(trouble.since),
        None => gpu.health.xids.last().map(|xid| xid.at),
    };
    // The word alone: the page of the GPU says what it means.
    let word = host.model.health(gpu).word;
    let began = began.map_or_else(String::new, |began| host.since(began));
    let largest = gpu
        .processes
        .iter()
        .filter_map(|listed| Some((listed.memory.ok()?, listed.process)))
        .max_by_key(|(memory, _)| *memory);
    let holder = largest.map_or_else(String::new, |(memory, process)| {
        format!("; {} holds {memory}", owned(host.snapshot, process))
    });
    format!("{word}{began}{holder}")
}

/// `alice's 4711 train.py +3.5 GiB/min, full 12:31`
fn growth(host: HostInTrouble<'_>, trouble: &RankedTrouble) -> TroublePhrase {
    let HostInTrouble {
        model,
        snapshot,
        clock,
    } = host;
    let growing = model
        .growing()
        .iter()
        .find(|growing| Some(&growing.subject) == trouble.subject.as_ref());
    let (gpus, name) = match &trouble.subject {
        Some(GpuOrProcess::Process(id)) => {
            let gpus = model
                .process_total(*id)
                .map_or_else(String::new, |total| gpu_labels(snapshot, &total.gpus));
            (gpus, owned(snapshot, *id))
        }
        Some(GpuOrProcess::Gpu(uuid)) => {
            let label = snapshot.gpu(uuid).map(gpu_label).unwrap_or_default();
            (label, "its memory".to_owned())
        }
        None => (String::new(), String::new()),
    };
    let rate = growing.map_or_else(String::new, |growing| format!(" {}", growing.evidence.rate));
    let full = growing
        .and_then(Growing::left)
        .map_or_else(String::new, |left| {
            format!(", {}", full_after(clock, model.now(), left))
        });
    let is_leak = growing.is_some_and(Growing::is_leak);
    TroublePhrase {
        letter: if is_leak { 'L' } else { '!' },
        gpus,
        sentence: format!("{name}{rate}{full}"),
    }
}

/// `bob's 4711 train.py: orphan, holds 20.1 GiB`, or `2 orphans hold 41.2 GiB (alice, bob)`.
fn leftovers(host: HostInTrouble<'_>) -> TroublePhrase {
    let HostInTrouble {
        model, snapshot, ..
    } = host;
    let left: Vec<&Verdict> = model.leftovers().collect();
    let places: Vec<usize> = (0..snapshot.gpus.len())
        .filter(|place| model.leftovers_on(&snapshot.gpus[*place]).next().is_some())
        .collect();
    let sentence = match &left[..] {
        [one] => {
            let memory = Verdict::total(&left.iter().copied());
            format!(
                "{}: {}, holds {memory}",
                owned(snapshot, one.process),
                one.word()
            )
        }
        _ => {
            let mut users: Vec<&str> = left
                .iter()
                .filter_map(|verdict| snapshot.process(verdict.process))
                .filter_map(|process| Some(process.facts.user.as_ref().ok()?.as_str()))
                .collect();
            users.sort_unstable();
            users.dedup();
            let users = match &users[..] {
                [] => String::new(),
                users => format!(" ({})", users.join(", ")),
            };
            let summary = Verdict::summary(left.iter().copied()).unwrap_or_default();
            format!("{summary}{users}")
        }
    };
    TroublePhrase {
        letter: 'o',
        gpus: gpu_labels(snapshot, &places),
        sentence,
    }
}

/// A process with its user: `bob's 4711 train.py`; without the user where it is not known.
fn owned(snapshot: &Snapshot, id: ProcessId) -> String {
    let Some(process) = snapshot.process(id) else {
        return id.pid.to_string();
    };
    let name = format!("{} {}", id.pid, program(process));
    match &process.facts.user {
        Ok(user) => format!("{user}'s {name}"),
        Err(_) => name,
    }
}

fn place(host: &str, gpus: &str) -> String {
    if gpus.is_empty() {
        host.to_owned()
    } else {
        format!("{host}:{gpus}")
    }
}

/// A host whose lines are written, with the clock that times have; `None` where no time of day is
/// known.
#[derive(Clone, Copy)]
struct HostInTrouble<'a> {
    model: &'a HostModel,
    snapshot: &'a Snapshot,
    clock: Option<WallClock>,
}

impl HostInTrouble<'_> {
    /// ` since 11:58`, or ` for 12m03s` where no time of day is known.
    fn since(self, at: Moment) -> String {
        let now = self.model.now();
        self.clock.map_or_else(
            || format!(" for {}", Elapsed(now.since(at))),
            |clock| format!(" since {}", clock.near(at, now)),
        )
    }
}

/// The process or GPU that a line leads to; `None` for a host or its driver.
pub(in crate::app) fn target(id: &TroubleId) -> Option<HostSubject> {
    Some(HostSubject {
        host: id.host,
        subject: id.subject.clone()?,
    })
}
