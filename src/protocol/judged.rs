//! Conclusions of gputop from the readings: a field of the lines of `--json`, and columns of tables.

use schemars::JsonSchema;
use serde::Serialize;

use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::protocol::snapshot::{GpuUuid, Missing, ProcessId};

/// Conclusions of gputop from this line and from those before. Only in the output of `--json`: an
/// agent never writes them, recordings have them in checkpoints only, and gputop ignores them in a
/// line that it reads.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Judged {
    /// The processes on these GPUs, and those that were left behind.
    pub processes: Vec<JudgedProcess>,
    /// The GPUs of this line.
    pub gpus: Vec<JudgedGpu>,
}

/// The verdict on a process.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct JudgedProcess {
    /// The PID.
    pub pid: u32,
    /// Clock ticks from boot to the start of the process.
    pub start_ticks: Option<u64>,
    /// One of `active`, `idle`, `orphan`, `zombie` and others. Later versions add words: readers must accept
    /// those that they do not know.
    pub verdict: String,
    /// Whether the process seems to be left behind, or is in trouble.
    pub is_suspect: bool,
    /// Whether another look would not change the verdict.
    pub is_decided: bool,
    /// The reason for the verdict.
    pub sentence: String,
    /// Null for a process that is in no job.
    pub job: Option<JudgedJob>,
    /// The line of the program where the probe of `gputop run` finds its worst leak, as in `train.py:41`;
    /// null without one.
    pub leak_line: Option<String>,
    /// How its memory grows.
    #[serde(flatten)]
    pub growth: JudgedGrowth,
}

/// The job of a process: its root launcher, and all that are related to it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct JudgedJob {
    /// The short name, as in `train.py`.
    pub name: String,
    /// The process that started the others; null when it has ended or was never seen.
    pub root: Option<ProcessId>,
    /// The program, scheduler or container that started the job, as in `slurm 4711`; null when it is
    /// not known.
    #[schemars(with = "Option<String>")]
    pub origin: Option<Text>,
}

/// The growth of the memory of a GPU.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct JudgedGpu {
    /// The UUID of the GPU.
    #[schemars(with = "String")]
    pub uuid: GpuUuid,
    /// How its memory grows.
    #[serde(flatten)]
    pub growth: JudgedGrowth,
}

/// How memory grows, or why that is not known.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct JudgedGrowth {
    /// Null while the memory was not watched for long enough. A single look goes on from what a
    /// `gputop record` of the same user saw.
    pub growth: Option<GrowthFigures>,
    /// Why the growth is null.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<MissingGrowth>,
}

/// The reason for a growth that is not known.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct MissingGrowth {
    /// `not_yet`: read and watched for too short a time.
    #[schemars(with = "String")]
    pub growth: Missing,
}

/// The figures of a growth.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct GrowthFigures {
    /// One of `steady`, `filling`, `suspect`, `leak` and others. Later versions add words: readers
    /// must accept those that they do not know.
    pub verdict: String,
    /// The evidence.
    pub sentence: String,
    /// The part of the memory that grows, as in `allocated`; null for all of it.
    pub part: Option<String>,
    /// Null while nothing grows.
    pub rate_bytes_per_s: Option<i64>,
    /// The bytes that were added since the growth began.
    #[schemars(with = "Option<u64>")]
    pub gained_bytes: Option<Bytes>,
    /// The seconds until memory is full; null where that is not to be expected.
    pub oom_in_s: Option<u64>,
    /// Memory is full no sooner than in this many seconds, most likely.
    pub oom_low_s: Option<u64>,
    /// Memory is full no later than in this many seconds, most likely.
    pub oom_high_s: Option<u64>,
}
