//! The troubles of all hosts: which one the header names, which ones rest because the user has seen
//! them, and which ones ended unseen.

use std::time::Duration;

use super::host_trouble::HostTrouble;
use crate::app::App;
use crate::base::time::ViewerTime;
use crate::base::units::Elapsed;
use crate::model::{Fleet, GpuOrProcess, HostModel, RankedTrouble, Severity, TroubleRank, Verdict};
use crate::output::labels::growth::when_full;
use crate::output::labels::{self, gpu_label};
use crate::protocol::host_key::HostKey;

/// The least time for which a trouble is named before a key lets it rest: the key may be older than
/// the trouble.
const READ: Duration = Duration::from_secs(2);

/// A trouble that rests speaks again when memory is full sooner than this.
const NEAR: Duration = Duration::from_mins(5);

/// From this share on, a GPU whose memory no longer grows was full.
const FULL: f64 = 0.97;

/// The words for a trouble, and how bad it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TroubleWords {
    pub(crate) text: String,
    pub(crate) severity: Severity,
}

#[derive(Debug)]
struct KnownTrouble {
    host: HostKey,
    trouble: RankedTrouble,
    /// Whether the user has seen it.
    rests: bool,
    /// The name of the GPU or process in trouble when the trouble was last seen: a process that has
    /// ended has none.
    name: String,
    /// Whether a GPU of the subject was full then.
    was_full: bool,
    /// The words about a trouble that ended before the user saw it; `None` while it lasts.
    ended: Option<String>,
}

/// The troubles that last, and those that ended before the user saw them. The most urgent come
/// first, and those that ended last.
#[derive(Debug, Default)]
pub(crate) struct TroubleLog {
    known: Vec<KnownTrouble>,
    /// How long the first trouble that does not rest has been named.
    named_for: ViewerTime,
}

impl TroubleLog {
    /// Lets the trouble that is named rest after a key press, or forgets it if it has ended.
    pub(in crate::app) fn press(&mut self) {
        if self.named_for.duration() < READ {
            return;
        }
        if let Some(place) = self.known.iter().position(|known| !known.rests) {
            self.named_for = ViewerTime::ZERO;
            if self.known[place].ended.is_some() {
                self.known.remove(place);
            } else {
                self.known[place].rests = true;
            }
        }
    }

    pub(in crate::app) fn advance(&mut self, elapsed: ViewerTime) {
        self.named_for += elapsed;
    }

    fn update(&mut self, fleet: &Fleet, mut current: Vec<(HostKey, RankedTrouble)>) {
        let named = self.named().map(|known| {
            (
                known.host,
                known.trouble.rank,
                known.trouble.subject.clone(),
            )
        });
        self.known.retain_mut(|known| {
            let is_same = |(host, trouble): &(HostKey, RankedTrouble)| {
                (*host, trouble.rank, &trouble.subject)
                    == (known.host, known.trouble.rank, &known.trouble.subject)
            };
            if let Some(place) = current.iter().position(is_same) {
                let (_, trouble) = current.remove(place);
                let is_near =
                    |trouble: &RankedTrouble| trouble.left.is_some_and(|left| left < NEAR);
                known.rests &= is_near(&known.trouble) || !is_near(&trouble);
                known.was_full = is_full(fleet, known.host, &trouble);
                known.name = name(fleet, known.host, &trouble);
                (known.trouble, known.ended) = (trouble, None);
                return true;
            }
            // The same subject has a more urgent trouble now.
            let is_worse = current.iter().any(|(host, trouble)| {
                *host == known.host
                    && trouble.subject.is_some()
                    && trouble.subject == known.trouble.subject
            });
            if known.ended.is_none() {
                known.ended = Some(words_of_ended(fleet, known));
            }
            !known.rests && !is_worse
        });
        let new = current.into_iter();
        self.known.extend(new.map(|(host, trouble)| {
            let (name, was_full) = (name(fleet, host, &trouble), is_full(fleet, host, &trouble));
            KnownTrouble {
                host,
                trouble,
                rests: false,
                name,
                was_full,
                ended: None,
            }
        }));
        self.known
            .sort_by_key(|known| (known.ended.is_some(), known.trouble.urgency()));
        if self.named().map(|known| {
            (
                known.host,
                known.trouble.rank,
                known.trouble.subject.clone(),
            )
        }) != named
        {
            self.named_for = ViewerTime::ZERO;
        }
    }

    /// The troubles that last, the most urgent first.
    pub(super) fn lasting(&self) -> impl Iterator<Item = (HostKey, &RankedTrouble)> {
        let lasting = self.known.iter().filter(|known| known.ended.is_none());
        lasting.map(|known| (known.host, &known.trouble))
    }

    /// The kind of the most urgent trouble of a host; `None` without one.
    pub(super) fn worst_of(&self, host: HostKey) -> Option<TroubleRank> {
        let mut lasting = self.lasting().filter(|(of, _)| *of == host);
        lasting.next().map(|(_, trouble)| trouble.rank)
    }

    fn named(&self) -> Option<&KnownTrouble> {
        self.known.iter().find(|known| !known.rests)
    }
}

impl App {
    /// The hosts whose troubles count: as they are now, also while the screen stands still, and as they
    /// were before a jump of a recording until it has ended.
    fn watched_fleet(&self) -> &Fleet {
        if self.is_jumping() {
            self.data.shown()
        } else {
            self.data.live()
        }
    }

    /// Looks for troubles that are new, have changed or have ended.
    pub(in crate::app) fn update_troubles(&mut self) {
        let fleet = self.watched_fleet();
        let hosts = fleet.hosts().flat_map(|(host, model)| {
            let silent = self.trouble(host).filter(|_| fleet.has_many());
            let silent = silent.map(|_| RankedTrouble::of_silence());
            // One host without a driver has a page that says so, and no other list.
            let broken = fleet.has_many() && silent.is_none() && model.has_broken_driver();
            model
                .troubles()
                .into_iter()
                .chain(broken.then(RankedTrouble::of_driver))
                .chain(silent)
                .map(move |trouble| (host, trouble))
                .collect::<Vec<_>>()
        });
        let current = hosts.collect();
        let mut log = std::mem::take(&mut self.troubles);
        log.update(self.watched_fleet(), current);
        self.troubles = log;
    }

    /// The most urgent trouble that the user has not seen; `None` if all rest.
    pub(crate) fn named_trouble(&self) -> Option<TroubleWords> {
        let known = self.troubles.named()?;
        let severity = if known.ended.is_some() {
            Severity::Notable
        } else {
            known.trouble.rank.severity()
        };
        let text = known
            .ended
            .clone()
            .unwrap_or_else(|| self.trouble_words(known.host, &known.trouble));
        Some(TroubleWords { text, severity })
    }

    /// Counts the troubles that the header does not name, except leftovers: `1 full soon, 2 leaks`.
    /// `None` if there are none.
    pub(crate) fn other_troubles(&self) -> Option<TroubleWords> {
        let named = self
            .troubles
            .named()
            .map(|named| (named.host, &named.trouble));
        let others = self.troubles.known.iter().filter(|known| {
            known.ended.is_none()
                && known.trouble.rank != TroubleRank::Leftover
                && named != Some((known.host, &known.trouble))
        });
        let mut counts: Vec<(TroubleRank, usize)> = Vec::new();
        for other in others {
            match counts
                .last_mut()
                .filter(|(rank, _)| *rank == other.trouble.rank)
            {
                Some((_, count)) => *count += 1,
                None => counts.push((other.trouble.rank, 1)),
            }
        }
        let severity = counts.first()?.0.severity();
        let counts: Vec<String> = counts
            .into_iter()
            .map(|(rank, count)| count_of(rank, count))
            .collect();
        Some(TroubleWords {
            text: counts.join(", "),
            severity,
        })
    }

    /// The hosts whose leftovers are the trouble that the header names.
    pub(crate) fn names_leftovers_of(&self, host: HostKey) -> bool {
        let is_leftover = |known: &KnownTrouble| {
            known.host == host && known.trouble.rank == TroubleRank::Leftover
        };
        self.troubles.named().is_some_and(is_leftover)
    }

    /// Says when a GPU would be full that a process seems to load a model into: `loading, would be
    /// full 13:41`. `None` if there is none.
    pub(crate) fn loading(&self) -> Option<String> {
        self.fleet().hosts().find_map(|(_, model)| {
            let growing = model
                .growing()
                .iter()
                .find(|growing| growing.is_soon && growing.is_loading)?;
            Some(format!("loading, would be {}", when_full(model, growing)?))
        })
    }

    fn trouble_words(&self, host: HostKey, trouble: &RankedTrouble) -> String {
        let fleet = self.watched_fleet();
        if trouble.rank == TroubleRank::Silent {
            return self.silence_words(host).unwrap_or_default();
        }
        words(fleet, host, trouble)
    }

    /// Why no data comes from a host, after its name where that is not clear; `None` while it comes.
    pub(crate) fn silence_words(&self, host: HostKey) -> Option<String> {
        let trouble = self.trouble(host)?;
        let words = self.host_words(host).unwrap_or_else(|| trouble.to_string());
        let fleet = self.watched_fleet();
        let is_named =
            fleet.must_be_named(host) || matches!(trouble, HostTrouble::NeverAnswered(_));
        Some(if is_named {
            format!("{}: {words}", fleet.name(host))
        } else {
            words
        })
    }
}

fn words(fleet: &Fleet, host: HostKey, trouble: &RankedTrouble) -> String {
    let Some(model) = fleet.host(host) else {
        return String::new();
    };
    let name = subject(model, trouble.subject.as_ref());
    let growing = || {
        model
            .growing()
            .iter()
            .find(|growing| Some(&growing.subject) == trouble.subject.as_ref())
    };
    let words = match trouble.rank {
        TroubleRank::FullSoon => {
            let full = growing()
                .and_then(|growing| when_full(model, growing))
                .unwrap_or_else(|| "full soon".to_owned());
            let gpus = match &trouble.subject {
                Some(GpuOrProcess::Process(id)) => {
                    model.process_total(*id).map(|total| total.gpus.as_slice())
                }
                _ => None,
            };
            let gpus = gpus
                .zip(model.latest())
                .map(|(gpus, snapshot)| labels::gpu_labels(snapshot, gpus));
            gpus.map_or_else(
                || format!("{full} {name}"),
                |gpus| format!("{full} GPU {gpus} {name}"),
            )
        }
        TroubleRank::Leak => format!("LEAK: {name}"),
        TroubleRank::Leftover => return summary(fleet, host, model),
        TroubleRank::Lost
        | TroubleRank::HardwareError
        | TroubleRank::Slowdown
        | TroubleRank::Silent => {
            let gpu = trouble.subject.as_ref().and_then(|subject| match subject {
                GpuOrProcess::Gpu(uuid) => model.latest()?.gpu(uuid),
                GpuOrProcess::Process(_) => None,
            });
            let driver = model
                .latest()
                .and_then(|snapshot| snapshot.driver.trouble.as_ref());
            match (gpu, driver) {
                (Some(gpu), _) if trouble.rank == TroubleRank::Lost => {
                    format!("{name} {}", model.health(gpu).phrase)
                }
                (Some(gpu), _) => format!("{name} {}", model.health(gpu).word),
                (None, Some(driver)) => format!(
                    "driver {} {}",
                    driver.cause,
                    Elapsed(model.now().since(driver.since))
                ),
                (None, None) => name,
            }
        }
    };
    if fleet.has_many() {
        format!("{words} on {}", fleet.name(host))
    } else {
        words
    }
}

/// Returns the words for the suspects of a host: `2 orphans hold 20.1 GiB`.
fn summary(fleet: &Fleet, host: HostKey, model: &HostModel) -> String {
    let summary = Verdict::summary(model.verdicts()).unwrap_or_default();
    if fleet.has_many() {
        format!("{}: {summary}", fleet.name(host))
    } else {
        summary
    }
}

/// Returns what the header says about a trouble that ended before anybody saw it: `was full 03:12:
/// GPU 0 4711 train.py`.
fn words_of_ended(fleet: &Fleet, known: &KnownTrouble) -> String {
    let KnownTrouble {
        host,
        trouble,
        name,
        ..
    } = known;
    let Some(model) = fleet.host(*host) else {
        return String::new();
    };
    let clock = model
        .wall_clock()
        .map(|clock| clock.near(model.now(), model.now()));
    // Without the time of day, only that it was.
    let until = clock
        .as_ref()
        .map_or_else(String::new, |clock| format!(" until {clock}"));
    let on_host = if fleet.has_many() {
        format!(" on {}", fleet.name(*host))
    } else {
        String::new()
    };
    let words = match trouble.rank {
        TroubleRank::FullSoon if known.was_full => {
            format!(
                "was full{}",
                clock.map_or_else(String::new, |clock| format!(" {clock}"))
            )
        }
        TroubleRank::FullSoon => format!("was filling{until}"),
        TroubleRank::Lost => format!("did not answer{until}"),
        TroubleRank::HardwareError => format!("had a hardware error{until}"),
        TroubleRank::Leak => format!("was a LEAK{until}"),
        TroubleRank::Silent => return format!("{} was not read{until}", fleet.name(*host)),
        TroubleRank::Leftover => return format!("had leftovers{until}{on_host}"),
        TroubleRank::Slowdown => format!("was slowed down{until}"),
    };
    // The driver has no name.
    let name = if name.is_empty() { "the driver" } else { name };
    format!("{words}: {name}{on_host}")
}

/// Returns the name of what is in trouble on a host; empty for the driver and for the host.
fn name(fleet: &Fleet, host: HostKey, trouble: &RankedTrouble) -> String {
    fleet.host(host).map_or_else(String::new, |model| {
        subject(model, trouble.subject.as_ref())
    })
}

/// Whether a GPU of the subject is full now.
fn is_full(fleet: &Fleet, host: HostKey, trouble: &RankedTrouble) -> bool {
    let Some((model, snapshot)) = fleet
        .host(host)
        .and_then(|model| Some((model, model.latest()?)))
    else {
        return false;
    };
    let total = match &trouble.subject {
        Some(GpuOrProcess::Process(id)) => model.process_total(*id),
        _ => None,
    };
    snapshot.gpus.iter().enumerate().any(|(place, gpu)| {
        let is_here = total.is_some_and(|total| total.gpus.contains(&place))
            || trouble.subject == Some(GpuOrProcess::Gpu(gpu.uuid.clone()));
        let (used, total) = (gpu.load.memory_used.ok(), gpu.load.memory_total.ok());
        let share = used
            .zip(total)
            .and_then(|(used, total)| used.share_of(total));
        is_here && share.is_some_and(|share| share >= FULL)
    })
}

/// Returns the name of a GPU or process in trouble: `GPU 3`, `GPU 0 4711 train.py`.
fn subject(model: &HostModel, subject: Option<&GpuOrProcess>) -> String {
    let Some(snapshot) = model.latest() else {
        return String::new();
    };
    match subject {
        Some(GpuOrProcess::Gpu(uuid)) => {
            format!(
                "GPU {}",
                snapshot.gpu(uuid).map(gpu_label).unwrap_or_default()
            )
        }
        Some(GpuOrProcess::Process(id)) => {
            let program = snapshot.process(*id).map_or_else(String::new, |process| {
                format!(" {}", labels::program(process))
            });
            format!("{}{program}", id.pid)
        }
        None => String::new(),
    }
}

fn count_of(rank: TroubleRank, count: usize) -> String {
    let (one, many) = match rank {
        TroubleRank::Lost => ("lost or hung", "lost or hung"),
        TroubleRank::FullSoon => ("full soon", "full soon"),
        TroubleRank::HardwareError => ("hardware error", "hardware errors"),
        TroubleRank::Leak => ("leak", "leaks"),
        TroubleRank::Silent => ("host silent", "hosts silent"),
        TroubleRank::Leftover => ("leftover", "leftovers"),
        TroubleRank::Slowdown => ("slowdown", "slowdowns"),
    };
    format!("{count} {}", if count == 1 { one } else { many })
}
