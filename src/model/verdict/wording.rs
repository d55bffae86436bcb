//! The wording of verdicts: a word for the table, a sentence with the figures, and a summary of
//! many verdicts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use super::{KnownProcess, OrphanEvidence, OrphanSign, RetainedMemory, Verdict, VerdictKind};
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::model::{Severity, Total};
use crate::protocol::snapshot::{Missing, ProcessId};

/// The noun for a process that was not watched long enough to judge it.
const UNDECIDED: &str = "undecided process";

impl Verdict {
    /// The word for the table, at most 8 columns wide.
    pub fn word(&self) -> &'static str {
        match self.kind {
            VerdictKind::MaybeOrphan(_) => "orphan?",
            VerdictKind::StuckInDriver { .. } => "stuck",
            VerdictKind::Launcher => "launcher",
            VerdictKind::Active { .. } | VerdictKind::WorkerOf(_) => "ok",
            VerdictKind::Ghost { .. } => "ended",
            VerdictKind::TooSoon => "…",
            VerdictKind::Unreadable => "ERR",
            _ => self.name(),
        }
    }

    /// The name in JSON; never changes.
    pub fn name(&self) -> &'static str {
        (&self.kind).into()
    }

    /// Returns the device memory of some processes together. Memory that several of them may keep
    /// counts once.
    pub fn total<'a>(verdicts: &(impl Iterator<Item = &'a Self> + Clone)) -> Total {
        let listed = verdicts.clone().filter_map(|verdict| verdict.listed);
        let mut pools: Vec<&RetainedMemory> =
            verdicts.clone().flat_map(|verdict| &verdict.kept).collect();
        pools.sort_unstable_by_key(|pool| (pool.gpu, pool.ghost));
        pools.dedup_by_key(|pool| (pool.gpu, pool.ghost));
        // Where a ghost is among these processes, its listing already contains the memory.
        pools.retain(|pool| {
            pool.ghost
                .is_none_or(|ghost| verdicts.clone().all(|verdict| verdict.process != ghost))
        });
        let kept = pools.iter().map(|pool| {
            Ok(Total {
                bytes: pool.memory,
                is_lower_bound: false,
            })
        });
        Total::sum(listed.chain(kept)).unwrap_or(Total {
            bytes: Bytes(0),
            is_lower_bound: true,
        })
    }

    /// The group in which the header counts the process: its rank, the worst first, and its noun.
    /// `None` when the process is no suspect. A zombie without GPU memory is none: each process is
    /// one until its parent has reaped it.
    fn group(&self) -> Option<(u8, &'static str)> {
        match self.kind {
            VerdictKind::Orphan(_) => Some((0, "orphan")),
            VerdictKind::Ghost { .. } => Some((1, "ended process")),
            VerdictKind::StuckInDriver { .. } => Some((2, "stuck process")),
            VerdictKind::MaybeOrphan(_) => Some((3, "possible orphan")),
            VerdictKind::Dying { .. } => Some((4, "dying process")),
            VerdictKind::Blocked { .. } => Some((5, "blocked process")),
            VerdictKind::Zombie {
                has_gpu_answered, ..
            } => (has_gpu_answered && self.holds_gpu_memory()).then_some((6, "zombie")),
            VerdictKind::Frozen { .. } => Some((7, "frozen process")),
            VerdictKind::Stopped { .. } => Some((8, "stopped process")),
            VerdictKind::Idle { .. } => Some((9, "idle process")),
            VerdictKind::Foreign { .. }
            | VerdictKind::Unreadable
            | VerdictKind::WorkerOf(_)
            | VerdictKind::Launcher
            | VerdictKind::Active { .. }
            | VerdictKind::TooSoon => None,
        }
    }

    /// How bad the verdict is for the user.
    pub fn severity(&self) -> Severity {
        match self.kind {
            VerdictKind::Orphan(_)
            | VerdictKind::StuckInDriver { .. }
            | VerdictKind::Ghost { .. } => Severity::Bad,
            _ if self.is_suspect() => Severity::Notable,
            _ => Severity::Fine,
        }
    }

    /// Whether the process holds, or may hold, memory that it should not: the filter of `o`.
    pub fn is_suspect(&self) -> bool {
        self.group().is_some()
    }

    /// Whether the process is on a GPU: the driver lists it, or it has the device open.
    pub fn is_on_gpu(&self) -> bool {
        self.listed.is_some() || !self.open.is_empty()
    }

    /// Whether the process holds GPU memory, or may: the driver lists more than zero bytes for it
    /// or an unknown amount, or it has a GPU open whose memory no listed process explains.
    pub fn holds_gpu_memory(&self) -> bool {
        self.listed
            .is_some_and(|total| total.map(|total| total.bytes) != Ok(Bytes(0)))
            || !self.kept.is_empty()
    }

    /// Whether the process has ended and is not forgotten yet: by its parent, or by the driver.
    pub fn is_dead(&self) -> bool {
        matches!(
            self.kind,
            VerdictKind::Zombie { .. } | VerdictKind::Ghost { .. }
        )
    }

    /// Whether there is more to say than that the process works, or started just now.
    pub(crate) fn is_remarkable(&self) -> bool {
        !matches!(self.kind, VerdictKind::Active { .. } | VerdictKind::TooSoon)
    }

    /// Whether the process is an orphan, or may be one.
    pub(super) fn is_orphan(&self) -> bool {
        matches!(
            self.kind,
            VerdictKind::Orphan(_) | VerdictKind::MaybeOrphan(_)
        )
    }

    /// Whether the process is, or may be, an orphan without device memory: it only takes host
    /// memory.
    pub fn is_leftover(&self) -> bool {
        !self.is_on_gpu() && self.is_orphan()
    }

    /// The sentence about the process, as in `its trainer (4711, python train.py) ended 12 s ago;
    /// still holds 11.0 GiB`.
    pub fn sentence(&self) -> String {
        let holds = || self.holds();
        match &self.kind {
            VerdictKind::Orphan(orphaned) => format!("{}; still {}", orphaned.why(), holds()),
            VerdictKind::MaybeOrphan(orphaned) => {
                format!("possibly orphaned: {}; {}", orphaned.why(), holds())
            }
            VerdictKind::Zombie {
                parent,
                has_gpu_answered,
            } => self.zombie_sentence(parent.as_deref(), *has_gpu_answered),
            VerdictKind::Dying { threads } => {
                let run = if *threads == 1 { "runs" } else { "run" };
                let threads = many(*threads, "other thread");
                format!(
                    "its main thread has ended, {threads} still {run}; {}",
                    holds()
                )
            }
            VerdictKind::StuckInDriver { wchan, span } => {
                format!(
                    "waits in the driver{}: signals have no effect; {}",
                    place(wchan.as_ref(), *span),
                    holds()
                )
            }
            VerdictKind::Blocked { wchan, span } => {
                format!(
                    "waits in the kernel{}: signals have no effect; {}",
                    place(wchan.as_ref(), *span),
                    holds()
                )
            }
            VerdictKind::Frozen { by } => {
                let word = if by.as_str().ends_with("freezer.state") {
                    "THAWED"
                } else {
                    "0"
                };
                format!(
                    "frozen with its control group; {}; write {word} to {by} to resume it",
                    holds()
                )
            }
            VerdictKind::Stopped { traced: false } => {
                format!("stopped by a signal (SIGCONT resumes it); {}", holds())
            }
            VerdictKind::Stopped { traced: true } => format!("stopped by a debugger; {}", holds()),
            VerdictKind::Foreign { hidden: false } => {
                format!(
                    "in another PID namespace (a container's or the host's); {}",
                    holds()
                )
            }
            VerdictKind::Foreign { hidden: true } => format!("hidden from this user; {}", holds()),
            VerdictKind::Unreadable => format!("its state could not be read; {}", holds()),
            VerdictKind::Ghost { was, keepers } => self.ghost_sentence(was.as_deref(), keepers),
            VerdictKind::Idle { span, notebook } => {
                let notebook = if *notebook { "a notebook; " } else { "" };
                format!(
                    "{notebook}has computed nothing for {}; holds {}",
                    ago(*span),
                    self.amount()
                )
            }
            VerdictKind::WorkerOf(creator) => {
                format!("works for {}, {}", creator.id.pid, creator.command())
            }
            VerdictKind::Launcher => "starts or serves the processes of a job".to_owned(),
            VerdictKind::Active { trainer: true } => format!("training; {}", holds()),
            VerdictKind::Active { trainer: false } => format!("no problem found; {}", holds()),
            VerdictKind::TooSoon => "not watched long enough to say".to_owned(),
        }
    }

    fn zombie_sentence(&self, parent: Option<&KnownProcess>, has_gpu_answered: bool) -> String {
        let parent = parent.map_or_else(String::new, |parent| format!(" ({parent})"));
        let holds = match self.listed {
            Some(_) if !has_gpu_answered => {
                format!(
                    "and its GPU has not answered since: it held {}",
                    self.amount()
                )
            }
            Some(total) if !total.is_ok_and(|total| total.bytes == Bytes(0)) => {
                format!("but the driver still lists {}", self.amount())
            }
            _ => "and holds nothing".to_owned(),
        };
        format!("has ended, {holds}; its parent{parent} has not reaped it")
    }

    fn ghost_sentence(&self, was: Option<&KnownProcess>, keepers: &[ProcessId]) -> String {
        let process = was.map_or_else(
            || "no process has this PID".to_owned(),
            |process| format!("{} has ended", process.command()),
        );
        let keepers = match keepers {
            [] => "no visible process holds it".to_owned(),
            [one] => format!("{} holds it", one.pid),
            [first, rest @ ..] => {
                format!("{} and {} hold it", first.pid, many(rest.len(), "other"))
            }
        };
        format!(
            "{process}, but the driver still lists {}; {keepers}",
            self.amount()
        )
    }

    /// Returns the line of the news, in which the figure comes before the reason: `orphan 4711
    /// train.py (alice) holds 11.0 GiB: its parent exited`. `name` is that of the process.
    pub(in crate::model) fn news(&self, name: &str) -> String {
        let word = self.word();
        match &self.kind {
            VerdictKind::Orphan(orphaned) | VerdictKind::MaybeOrphan(orphaned) => {
                format!("{word} {name} {}: {}", self.holds(), orphaned.why())
            }
            _ => format!("{word} {name}: {}", self.sentence()),
        }
    }

    /// The summary for the header: `3 orphans hold 41.2 GiB`. `None` when no suspect is on a GPU.
    pub fn summary<'a>(verdicts: impl IntoIterator<Item = &'a Self>) -> Option<String> {
        let suspects: Vec<&Self> = verdicts
            .into_iter()
            .filter(|verdict| verdict.is_suspect() && verdict.is_on_gpu())
            .collect();
        // The memory of a ghost counts for the processes that keep it, where these are known.
        let kept: BTreeSet<_> = suspects
            .iter()
            .flat_map(|suspect| &suspect.kept)
            .filter_map(|kept| kept.ghost)
            .collect();
        let mut groups: BTreeMap<(u8, &str), Vec<&Self>> = BTreeMap::new();
        for suspect in suspects
            .into_iter()
            .filter(|suspect| !kept.contains(&suspect.process))
        {
            if let Some(group) = suspect.group() {
                groups.entry(group).or_default().push(suspect);
            }
        }
        let mut parts = Vec::new();
        for ((_, noun), group) in groups {
            let holds = if group.len() == 1 { "holds" } else { "hold" };
            let total = Self::total(&group.iter().copied());
            let count = many(group.len(), noun);
            // "1 dying process holds 0 B" would say that nothing is wrong.
            let says_amount = parts.is_empty() && total != Total::default();
            parts.push(if says_amount {
                format!("{count} {holds} {total}")
            } else {
                count
            });
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// Counts processes by their kinds, the worst first, and last those without GPU memory: `3
    /// orphans, 1 healthy process, 19 without GPU memory`. `None` stands for a process that is not
    /// judged yet.
    pub fn kinds<'a>(verdicts: impl IntoIterator<Item = Option<&'a Self>>) -> String {
        let mut counts: BTreeMap<(u8, &str), usize> = BTreeMap::new();
        let mut without_memory = 0;
        for verdict in verdicts {
            if verdict.is_some_and(|verdict| !verdict.holds_gpu_memory()) {
                without_memory += 1;
            } else {
                let kind = verdict.map_or((u8::MAX, UNDECIDED), |verdict| {
                    verdict
                        .group()
                        .unwrap_or_else(|| (u8::MAX, verdict.innocent_noun()))
                });
                *counts.entry(kind).or_default() += 1;
            }
        }
        let mut parts: Vec<String> = counts
            .into_iter()
            .map(|((_, noun), count)| many(count, noun))
            .collect();
        parts.extend((without_memory > 0).then(|| format!("{without_memory} without GPU memory")));
        parts.join(", ")
    }

    /// The noun for a process that is no suspect.
    fn innocent_noun(&self) -> &'static str {
        match self.kind {
            VerdictKind::Foreign { .. } => "foreign process",
            VerdictKind::Launcher => "launcher",
            VerdictKind::TooSoon => UNDECIDED,
            _ => "healthy process",
        }
    }

    /// `holds 11.0 GiB`, `holds 11.0 GiB with 3 others`, `holds 1.0 GiB, and another 11.0 GiB with 3
    /// others`.
    fn holds(&self) -> String {
        let listed = self.listed.map(|_| format!("holds {}", self.amount()));
        let kept = (!self.kept.is_empty()).then(|| {
            let memory = Self::total(
                &[&Self {
                    listed: None,
                    ..self.clone()
                }]
                .into_iter(),
            );
            let others = self
                .kept
                .iter()
                .map(|kept| kept.holders)
                .max()
                .unwrap_or(1)
                .saturating_sub(1);
            let with = if others == 0 {
                String::new()
            } else {
                format!(" with {}", many(others, "other"))
            };
            format!("{memory}{with}")
        });
        match (listed, kept) {
            (Some(listed), Some(kept)) => format!("{listed}, and another {kept}"),
            (None, Some(kept)) => format!("holds {kept}"),
            (Some(listed), None) => listed,
            (None, None) if self.is_on_gpu() => "has a GPU open".to_owned(),
            (None, None) => match self.rss {
                Ok(rss) => format!("holds {rss} of host memory"),
                Err(_) => "holds no GPU memory".to_owned(),
            },
        }
    }

    fn amount(&self) -> String {
        match self.listed {
            Some(Ok(total)) => total.to_string(),
            Some(Err(Missing::NotYet)) | None => "nothing yet".to_owned(),
            Some(Err(_)) => "an unknown amount of memory".to_owned(),
        }
    }
}

impl OrphanEvidence {
    /// `its trainer (4711, python train.py) ended 12 s ago`.
    fn why(&self) -> String {
        let ended = self
            .signs
            .iter()
            .find(|sign| matches!(sign, OrphanSign::CreatorEnded(_)));
        let mut why = match ended {
            // The end of the creator alone is proof.
            Some(sign) => self.describe(sign),
            None => {
                let signs: Vec<String> =
                    self.signs.iter().map(|sign| self.describe(sign)).collect();
                signs.join("; ")
            }
        };
        if self.computes {
            let _infallible: std::fmt::Result = write!(why, ", but it still computes");
        }
        why
    }

    /// The relation of another process to this one. A process that does not serve another has a
    /// parent, not a trainer.
    fn relation<'a>(&self, process: &'a KnownProcess) -> &'a str {
        if self.serves || process.relation != "trainer" {
            &process.relation
        } else {
            "parent"
        }
    }

    fn describe(&self, sign: &OrphanSign) -> String {
        match sign {
            OrphanSign::CreatorEnded(ended) => {
                let when = ended
                    .recorded
                    .as_ref()
                    .map_or_else(|| format!("{} ago", ago(ended.ago)), Text::to_string);
                format!(
                    "its {} ({}) ended {when}",
                    self.relation(&ended.process),
                    ended.process
                )
            }
            OrphanSign::StarterIsOrphan(starter) => {
                format!("its {} ({starter}) is an orphan", self.relation(starter))
            }
            OrphanSign::Left { to } => format!("its parent exited (now under {to})"),
            OrphanSign::GroupLeaderGone(leader) => {
                format!("its process group leader {leader} is gone")
            }
            OrphanSign::ServedGone(served) => {
                format!("the process that it served ({served}) is gone")
            }
            OrphanSign::LauncherGone(launcher) => format!("its {launcher} is gone"),
        }
    }
}

/// `4711, python train.py`.
impl std::fmt::Display for KnownProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.facts {
            Some(_) => write!(f, "{}, {}", self.id.pid, self.command()),
            None => write!(f, "{}", self.id.pid),
        }
    }
}

/// `1 other`, `3 others`.
fn many(count: impl TryInto<u64>, noun: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    let plural = match noun {
        _ if count == 1 => "",
        _ if noun.ends_with("ss") => "es",
        _ => "s",
    };
    format!("{count} {noun}{plural}")
}

/// ` (nv_drm_ioctl) for 34 s`.
fn place(wchan: Option<&Text>, span: Duration) -> String {
    let wchan = wchan.map_or_else(String::new, |wchan| format!(" ({wchan})"));
    if span.is_zero() {
        wchan
    } else {
        format!("{wchan} for {}", ago(span))
    }
}

/// A span in its largest unit: `12 s`, `4 min`, `3 h`, `2 days`.
fn ago(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}
