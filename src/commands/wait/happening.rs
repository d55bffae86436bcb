//! The happening that ended a wait, as a sentence, as JSON and as an exit code.

use serde_json::{Value, json};

use crate::model::Evidence;
use crate::output::Exit;
use crate::protocol::snapshot::{GpuUuid, ProcessId, Snapshot};

/// The kind of a happening. Its text in `snake_case` is for programs and never changes; it is the
/// kind of the same alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum HappeningKind {
    ProcessEnded,
    JobEnded,
    GpuFree,
    Leak,
    OutOfMemorySoon,
    /// The time was up.
    Timeout,
}

impl HappeningKind {
    /// Each kind has its exit code, whatever else was waited for.
    pub(super) fn exit(self) -> Exit {
        match self {
            Self::ProcessEnded | Self::JobEnded | Self::GpuFree => Exit::Success,
            Self::Leak => Exit::Leak,
            Self::OutOfMemorySoon => Exit::FullSoon,
            Self::Timeout => Exit::TimedOut,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Happening {
    pub(super) kind: HappeningKind,
    pub(super) sentence: String,
    /// The host where it happened; `None` for all hosts.
    pub(super) host: Option<String>,
    /// The processes that ended or whose memory grows.
    pub(super) processes: Vec<ProcessId>,
    /// The GPUs that are free, or that these processes used last.
    pub(super) gpus: Vec<GpuUuid>,
    /// The figures of memory that grows.
    pub(super) evidence: Option<Evidence>,
}

impl Happening {
    pub(super) fn new(kind: HappeningKind, sentence: String) -> Self {
        Self {
            kind,
            sentence,
            host: None,
            processes: Vec::new(),
            gpus: Vec::new(),
            evidence: None,
        }
    }

    pub(super) fn json(&self) -> Value {
        let forecast = self.evidence.and_then(|evidence| evidence.forecast);
        let seconds = |span: std::time::Duration| span.as_secs_f64().round();
        let kind: &str = self.kind.into();
        json!({
            "schema": Snapshot::SCHEMA,
            "kind": kind,
            "exit_code": self.kind.exit() as u8,
            "sentence": self.sentence,
            "host": self.host,
            "processes": self.processes,
            "gpu_uuids": self.gpus,
            "rate_bytes_per_s": self.evidence.map(|evidence| evidence.rate.0.round()),
            "oom_in_s": forecast.map(|forecast| seconds(forecast.likely)),
            "oom_low_s": forecast.map(|forecast| seconds(forecast.low)),
            "oom_high_s": forecast.map(|forecast| seconds(forecast.high)),
        })
    }
}
