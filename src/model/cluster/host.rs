//! A host of a cluster: its figures, its troubles and its GPUs.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::health::{TroubleRank, describe_xid};
use super::ClusterTrouble;
use super::known_exporter::{Figure, SeriesForm};
use crate::base::text::Text;
use crate::base::units::{Bytes, Elapsed, Percent};
use crate::model::GpuState;
use crate::protocol::snapshot::GpuUuid;

/// The share of its memory above which a GPU counts as nearly full.
const NEARLY_FULL: f64 = 0.9;

/// The letters of a UUID that stand for an index.
const LETTERS_OF_UUID: usize = 8;

/// A sample that is older says nothing about the present.
const OLD: Duration = Duration::from_mins(5);

/// A host of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClusterHostId {
    /// The label `cluster`; `None` without one.
    pub(crate) cluster: Option<Text>,
    pub(crate) name: Text,
}

/// The label that selects the series of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostSelector {
    pub(super) form: SeriesForm,
    pub(super) label: &'static str,
    pub(super) value: Text,
}

/// The figures of a host: the sums over its GPUs.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ClusterFigures {
    pub(crate) gpus: usize,
    /// The GPUs whose memory in use is known; `None` where that was not asked.
    pub(crate) known: Option<usize>,
    /// The GPUs that nobody uses; `None` where that is not known.
    pub(crate) free: Option<usize>,
    pub(crate) memory_used: Option<Bytes>,
    pub(crate) memory_total: Option<Bytes>,
    /// The mean over the GPUs.
    pub(crate) sm: Option<Percent>,
    /// In watts.
    pub(crate) power: Option<f32>,
    /// The age of the oldest sample.
    pub(crate) age: Option<Duration>,
}

impl ClusterFigures {
    /// The GPUs whose memory in use the exporter does not know. They are neither free nor busy, and
    /// missing in the sums.
    pub(crate) fn unknown(&self) -> usize {
        let known = self.known.unwrap_or(self.gpus);
        self.gpus.saturating_sub(known)
    }
}

/// The figures of a host over time: Unix times in seconds and values, the oldest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct HostPast {
    /// In bytes.
    pub(crate) memory_used: Vec<(f64, f64)>,
    /// In percent.
    pub(crate) sm: Vec<(f64, f64)>,
    /// The Unix time in seconds of the end.
    pub(crate) end: f64,
}

/// A host of a cluster.
#[derive(Debug, Clone)]
pub(crate) struct ClusterHost {
    pub(super) selector: HostSelector,
    /// The name on the screen.
    pub(super) shown_name: String,
    pub(crate) figures: ClusterFigures,
    pub(super) flags: Vec<GpuFlag>,
    /// The GPUs, in the order of their indices; empty before they were asked for.
    pub(crate) gpus: Vec<ClusterGpu>,
    /// The users, jobs and models on the host; empty before a filter asked for them.
    pub(crate) words: BTreeSet<Text>,
    /// `None` before it was asked for.
    pub(crate) past: Option<HostPast>,
    /// The server's time when it last had samples of the host; `None` where it has had none since
    /// gputop asks.
    pub(super) last_seen: Option<f64>,
    /// Whether there are no samples now.
    pub(crate) is_silent: bool,
}

/// A trouble of a GPU, or of its host.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GpuFlag {
    pub(super) gpu: ClusterGpuKey,
    pub(super) figure: Figure,
    pub(super) value: f64,
}

/// The labels that tell a GPU of a host from the others. Both are empty for the whole host.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClusterGpuKey {
    /// `3`, or `3:7` for a MIG instance; empty where no label holds it.
    pub(super) index: String,
    pub(super) uuid: String,
}

/// A user or a team, and a job, on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClusterOwner {
    pub(crate) user: Option<Text>,
    pub(crate) job: Option<Text>,
}

/// A GPU of a host of a cluster.
#[derive(Debug, Clone)]
pub(crate) struct ClusterGpu {
    pub(crate) key: ClusterGpuKey,
    /// The index, where no label holds it; `None` where the key has it, or where it is not known.
    pub(super) index: Option<u64>,
    pub(crate) state: GpuState,
    pub(crate) model: Option<Text>,
    pub(crate) memory_used: Option<Bytes>,
    pub(crate) memory_total: Option<Bytes>,
    pub(crate) sm: Option<Percent>,
    /// In watts.
    pub(crate) power: Option<f32>,
    /// In degrees Celsius.
    pub(crate) temperature: Option<f32>,
    pub(super) is_free: bool,
    /// The age of the sample.
    pub(crate) age: Option<Duration>,
    pub(crate) owners: Vec<ClusterOwner>,
}

impl ClusterGpuKey {
    /// The index of the GPU; the beginning of its UUID where no label holds the index.
    fn label(&self) -> String {
        if self.index.is_empty() {
            let start = self.bare_uuid().chars();
            return start.take(LETTERS_OF_UUID).collect();
        }
        self.index.clone()
    }

    /// The UUID without the beginning that one exporter leaves out; empty where it is not known.
    /// There `gputop exporter` writes an index, which GPUs of other hosts have too.
    pub(super) fn bare_uuid(&self) -> &str {
        if self.uuid.starts_with(GpuUuid::UNKNOWN) {
            return "";
        }
        self.uuid.strip_prefix("GPU-").unwrap_or(&self.uuid)
    }

    /// Whether the key is that of a MIG instance of this GPU, of an exporter that has both. Its index is
    /// that of the GPU, or begins with it.
    pub(super) fn is_split_into(&self, other: &Self) -> bool {
        let gpu = other.index.split(':').next();
        other.uuid.starts_with("MIG-") && gpu == Some(self.index.as_str())
    }

    pub(super) fn is_gpu(&self) -> bool {
        !self.index.is_empty() || !self.uuid.is_empty()
    }
}

impl ClusterGpu {
    pub(super) fn new(key: ClusterGpuKey) -> Self {
        Self {
            key,
            index: None,
            state: GpuState::Unknown,
            model: None,
            memory_used: None,
            memory_total: None,
            sm: None,
            power: None,
            temperature: None,
            is_free: false,
            age: None,
            owners: Vec::new(),
        }
    }

    /// The index of the GPU; the beginning of its UUID where the index is not known.
    pub(crate) fn label(&self) -> String {
        let index = self.index.map(|index| index.to_string());
        index.unwrap_or_else(|| self.key.label())
    }

    /// The place of the GPU on its host: `10` comes after `9`.
    pub(super) fn order(&self) -> (Vec<u64>, &ClusterGpuKey) {
        let label = self.label();
        let numbers = label.split(':');
        let numbers = numbers.map(|number| number.parse().unwrap_or(u64::MAX));
        (numbers.collect(), &self.key)
    }

    /// Judges the state of the GPU by its figures and its troubles. `sick` are UUIDs of GPUs that have
    /// an error of the hardware on a host of another name.
    pub(super) fn judge(&mut self, flags: &[GpuFlag], sick: &BTreeSet<&str>) {
        let has_any = |is_meant: &dyn Fn(Figure) -> bool| {
            let mut flags = flags
                .iter()
                .filter(|flag| flag.gpu == self.key || self.key.is_split_into(&flag.gpu));
            flags.any(|flag| is_meant(flag.figure))
        };
        let has = |figure: Figure| has_any(&|other| other == figure);
        let share = || self.memory_used?.share_of(self.memory_total?);
        self.state = match () {
            () if has_any(&Figure::is_of_hardware) || sick.contains(self.key.bare_uuid()) => {
                GpuState::Sick
            }
            () if self.memory_used.is_none() || self.age.is_some_and(|age| age > OLD) => {
                GpuState::Unknown
            }
            () if has(Figure::Leak) => GpuState::Leak,
            () if has(Figure::Leftover) => GpuState::Orphan,
            () if has(Figure::HeldIdle) => GpuState::HeldIdle,
            () if self.is_free && self.owners.is_empty() => GpuState::Free,
            () if share().is_some_and(|share| share > NEARLY_FULL) => GpuState::NearlyFull,
            () => GpuState::Busy,
        };
    }
}

impl ClusterHost {
    pub(super) fn new(selector: HostSelector) -> Self {
        Self {
            selector,
            shown_name: String::new(),
            figures: ClusterFigures::default(),
            flags: Vec::new(),
            gpus: Vec::new(),
            words: BTreeSet::new(),
            past: None,
            last_seen: None,
            is_silent: false,
        }
    }

    /// The index of a GPU; the beginning of its UUID where the index is not known.
    fn label(&self, key: &ClusterGpuKey) -> String {
        let gpu = self.gpus.iter().find(|gpu| gpu.key == *key);
        gpu.map_or_else(|| key.label(), ClusterGpu::label)
    }

    /// The number of GPUs with a trouble of this kind.
    pub(crate) fn count(&self, figure: Figure) -> usize {
        let flags = self.flags.iter();
        flags.filter(|flag| flag.figure == figure).count()
    }

    /// The number of GPUs with an error of the hardware.
    pub(crate) fn sick(&self) -> usize {
        let flags = self.flags.iter();
        let of_hardware = flags.filter(|flag| flag.figure.is_of_hardware() && flag.gpu.is_gpu());
        let gpus: BTreeSet<&ClusterGpuKey> = of_hardware.map(|flag| &flag.gpu).collect();
        gpus.len()
    }

    /// The rank of the most urgent trouble.
    pub(super) fn worst(&self, silence: Option<Duration>) -> Option<TroubleRank> {
        if silence.is_some() {
            return Some(TroubleRank::Silent);
        }
        let ranks = self.flags.iter().filter_map(|flag| flag.words().0);
        ranks.min()
    }

    /// The troubles of the host.
    pub(super) fn troubles(
        &self,
        id: &ClusterHostId,
        silence: Option<Duration>,
    ) -> Vec<ClusterTrouble> {
        if let Some(silence) = silence {
            let sentence = if silence.is_zero() {
                "no samples now; there were some in the last hour".to_owned()
            } else {
                format!("no samples for {}", Elapsed(silence))
            };
            return vec![ClusterTrouble {
                host: id.clone(),
                gpus: Vec::new(),
                rank: Some(TroubleRank::Silent),
                sentence,
            }];
        }
        // GPUs with the same words share a line: a host often has them on all of its GPUs.
        let mut troubles: Vec<ClusterTrouble> = Vec::new();
        for flag in &self.flags {
            let (rank, sentence) = flag.words();
            let gpu = flag.gpu.is_gpu().then(|| self.label(&flag.gpu));
            let same =
                |known: &&mut ClusterTrouble| known.rank == rank && known.sentence == sentence;
            if let Some(known) = troubles.iter_mut().find(same) {
                known.gpus.extend(gpu);
                continue;
            }
            troubles.push(ClusterTrouble {
                host: id.clone(),
                gpus: gpu.into_iter().collect(),
                rank,
                sentence,
            });
        }
        troubles
    }
}

impl GpuFlag {
    /// The rank of the trouble, and a sentence.
    fn words(&self) -> (Option<TroubleRank>, String) {
        let span = || Elapsed(span(self.value).unwrap_or(Duration::MAX));
        let bytes = || Bytes(whole(self.value));
        let (rank, sentence) = match self.figure {
            Figure::Lost => (TroubleRank::Lost, "lost, or does not answer".to_owned()),
            Figure::FullSoon => (
                TroubleRank::FullSoon,
                format!("memory is full in {}, if it grows on", span()),
            ),
            Figure::Xid => {
                let code = whole(self.value);
                let words = match describe_xid(code) {
                    Some(words) => format!("last Xid {code}: {words}"),
                    None => format!("last Xid {code}"),
                };
                (TroubleRank::HardwareError, words)
            }
            Figure::RowRemapFailure => (
                TroubleRank::HardwareError,
                "a bad row of its memory could not be replaced".to_owned(),
            ),
            Figure::EccErrors => {
                let sentence = format!("uncorrected ECC errors: {}", whole(self.value));
                (TroubleRank::HardwareError, sentence)
            }
            Figure::HardwareError => (
                TroubleRank::HardwareError,
                "an error of the hardware: its host tells which".to_owned(),
            ),
            Figure::Leak => (TroubleRank::Leak, "memory leaks".to_owned()),
            Figure::Leftover if self.value <= 0.0 => (
                TroubleRank::Leftover,
                "leftover processes hold an unknown amount of memory".to_owned(),
            ),
            Figure::Leftover => (
                TroubleRank::Leftover,
                format!("leftover processes hold {}", bytes()),
            ),
            Figure::HeldIdle => return (None, format!("held without use for {}", span())),
            _ => (
                TroubleRank::Slowdown,
                "the hardware or its temperature slows it down".to_owned(),
            ),
        };
        (Some(rank), sentence)
    }
}

/// A time in seconds. One before 0 is 0: two clocks may differ. `None` if it is too long to count.
pub(super) fn span(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds.max(0.0)).ok()
}

/// Returns a value that is 0 at least, rounded.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a float saturates, and a count or an amount of bytes is meant"
)]
pub(super) fn whole(value: f64) -> u64 {
    value.round() as u64
}
