//! The report of gputop's probe, which runs inside a Python program that was started with `gputop
//! run`.
//!
//! The probe writes the same object: `assets/probe/FORMAT.md`. A value that the probe does not know
//! is absent.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_with::skip_serializing_none;

use super::tensor_group::{AllocationLines, TensorCategory, TensorGroup, known_items};
use super::{GpuUuid, KeptResult, MarkPair, ModuleMemory, ProgramMark};
use crate::base::text::Text;
use crate::base::units::{Bytes, Moment};

/// The last report of the probe in a process, and why there is no newer report.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ProbeReading {
    /// The last report; absent while there is none.
    pub report: Option<ProbeReport>,
    /// Why there is no report, or none since the last one; absent while the probe can be read.
    pub missing: Option<ProbeMissing>,
}

/// Why there is no report of a probe. The text of each says what to do.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, strum::Display,
)]
#[serde(rename_all = "snake_case")]
pub enum ProbeMissing {
    /// The process was not started with `gputop run`.
    #[strum(
        to_string = "start it as `gputop run -- python train.py` to see weights, gradients, activations and leaks here; \
                     on Python 3.14 or later, `gputop attach` looks into it now"
    )]
    NotStarted,
    /// The process was started below `gputop run`, but its `PYTHONPATH` does not contain the probe.
    #[strum(
        to_string = "`gputop run` started it, but something changed PYTHONPATH on the way (a container, uv, a launcher of a \
         cluster): put `gputop run --` directly before `python`"
    )]
    PathDropped,
    /// Python was started with `-E`, `-I` or `-S`, which ignore `PYTHONPATH` or `sitecustomize`.
    #[strum(to_string = "Python does not load the probe with -E, -I or -S: start it without")]
    Isolated,
    /// `GPUTOP_PROBE=0` is in the environment of the process.
    #[strum(to_string = "GPUTOP_PROBE=0 turns the probe off there")]
    TurnedOff,
    /// The process was started with the probe, and has not published a report yet.
    #[strum(to_string = "the probe waits for the program to use a GPU through PyTorch")]
    NotYet,
    /// The process belongs to another user.
    #[strum(to_string = "it belongs to another user: run gputop as that user or as root")]
    OtherUser,
    /// The kernel refuses for another reason: the process is not dumpable, or the agent runs in a
    /// container.
    #[strum(
        to_string = "the kernel lets nobody but root look into it: run gputop as root; in a container, \
         start that with `--cap-add SYS_PTRACE`"
    )]
    Protected,
    /// The report is damaged, or something other than the probe wrote it.
    #[strum(to_string = "its report is damaged, or something other than gputop's probe wrote it")]
    Damaged,
    /// The probe is of a later version of gputop than the one that reads it.
    #[strum(
        to_string = "its probe is of a newer gputop than the one that reads it: restart the reading one \
         (this viewer, its agent or the recorder)"
    )]
    OtherVersion,
}

impl ProbeMissing {
    /// Whether the process was started with the probe, so that a report was to be expected.
    pub(crate) fn is_of_a_started_probe(self) -> bool {
        match self {
            Self::PathDropped | Self::NotYet | Self::Damaged | Self::OtherVersion => true,
            Self::NotStarted
            | Self::Isolated
            | Self::TurnedOff
            | Self::OtherUser
            | Self::Protected => false,
        }
    }
}

/// A report of the probe.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ProbeReport {
    /// The version of the format in which the probe wrote it: 1 or 2.
    pub version: u32,
    /// When the probe wrote it: seconds since 1970 (UTC).
    #[serde(rename = "unix_time_seconds")]
    pub unix_time: Option<f64>,
    /// When the agent first saw this report, in milliseconds since boot.
    #[serde(rename = "time_ms", default)]
    pub at: Moment,
    /// The version of PyTorch.
    pub torch: Option<Text>,
    /// The version of Python.
    pub python: Option<Text>,
    /// The training steps; absent before the first one.
    pub steps: Option<TrainingSteps>,
    /// The memory on each CUDA device that PyTorch uses.
    #[serde(default)]
    pub devices: Vec<ProbeDevice>,
    /// Tensors by category, shape and type: the largest groups, and those that grew most. `gputop
    /// tensors` lists more.
    #[serde(default, deserialize_with = "known_items")]
    pub groups: Vec<TensorGroup>,
    /// The groups that are left out; absent when there are none.
    pub groups_left_out: Option<OmittedGroups>,
    /// The time that the changes of groups are counted from; absent in the first reading.
    pub changes_since: Option<ChangesSince>,
    /// The last marks of the program, the latest last.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "known_items"
    )]
    pub marks: Vec<ProgramMark>,
    /// The changes from each mark to the next one, and from the beginning of each phase to its end,
    /// the latest last.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "known_items"
    )]
    pub mark_pairs: Vec<MarkPair>,
    /// Groups of tensors that grow with each step.
    #[serde(default, deserialize_with = "known_items")]
    pub leaks: Vec<TensorLeak>,
    /// Containers of limited length that fill with tensors: their memory grows no further than that.
    #[serde(
        default,
        deserialize_with = "known_items",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub fills: Vec<TensorFill>,
    /// Whether the stacks of allocations are recorded.
    pub recording: Option<StackRecording>,
    /// The answer to the latest request; absent before the first one.
    pub answer: Option<ProbeAnswer>,
    /// Sentences about what the probe cannot do here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trouble: Vec<Text>,
}

impl ProbeReport {
    /// The age from which a report is old: the probe writes one every 2 seconds while it works.
    pub const FRESH: Duration = Duration::from_secs(10);
}

/// Reads an amount that may have a fraction, as a mean has.
fn amount<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Bytes>, D::Error> {
    let bytes: Option<f64> = Option::deserialize(deserializer)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, and means need no precision"
    )]
    Ok(bytes.map(|bytes| Bytes(bytes as u64)))
}

/// The training steps of a process.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrainingSteps {
    /// The number of steps so far; of an attached probe, since it was attached.
    pub count: u64,
    /// The mean duration of the last steps in seconds; absent before the second step.
    pub seconds: Option<f64>,
    /// The events that are counted as steps: `optimizer`, or `optimizer_since_attach`.
    pub source: Option<Text>,
}

/// Where the memory of one CUDA device goes.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ProbeDevice {
    /// PyTorch's number of the device: 0 for `cuda:0`.
    #[serde(rename = "cuda_device")]
    pub device: u32,
    /// The GPU; absent when it is not known.
    #[serde(rename = "gpu_uuid")]
    pub gpu: Option<GpuUuid>,
    /// When the amounts were read: seconds since 1970 (UTC). A report may repeat an earlier
    /// reading.
    #[serde(rename = "unix_time_seconds")]
    pub unix_time: Option<f64>,
    /// Where in a step the amounts were read: `step_end`, or `any` for somewhere in it.
    pub moment: Option<Text>,
    /// Memory of tensors: `memory_allocated`.
    #[serde(rename = "allocated_bytes")]
    pub allocated: Option<Bytes>,
    /// Memory taken from CUDA, in use or not: `memory_reserved`.
    #[serde(rename = "reserved_bytes")]
    pub reserved: Option<Bytes>,
    /// Memory of tensors as the program requested it, before rounding; absent before PyTorch 2.0.
    #[serde(rename = "requested_bytes")]
    pub requested: Option<Bytes>,
    /// The parts of the reserved memory, in bytes; their sum is the reserved memory. Empty when
    /// they are not known.
    #[serde(
        rename = "category_bytes",
        default,
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub categories: BTreeMap<TensorCategory, Bytes>,
    /// The optimizer state by its name in the optimizer, as in `exp_avg`, in bytes.
    #[serde(rename = "optimizer_state_bytes", default)]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub optimizer_state: BTreeMap<Text, Bytes>,
    /// Memory of tensors right after the last step.
    #[serde(rename = "floor_bytes")]
    pub floor: Option<Bytes>,
    /// The highest memory of tensors since the program started or reset its peaks.
    #[serde(rename = "peak_bytes")]
    pub peak: Option<Bytes>,
    /// The step that last raised the peak.
    pub peak_step: Option<u64>,
    /// The memory of live tensors soon after that step; absent when it is not known.
    #[serde(rename = "peak_base_bytes")]
    pub peak_base: Option<Bytes>,
    /// The last reading at the end of a step; absent before the first one.
    pub step_end: Option<StepEnd>,
}

/// Where the memory of one CUDA device went at the end of a step.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct StepEnd {
    /// The number of the step.
    pub step: Option<u64>,
    /// Memory of tensors: `memory_allocated`.
    #[serde(rename = "allocated_bytes")]
    pub allocated: Option<Bytes>,
    /// Memory taken from CUDA, in use or not: `memory_reserved`.
    #[serde(rename = "reserved_bytes")]
    pub reserved: Option<Bytes>,
    /// Memory of tensors as the program requested it, before rounding; absent before PyTorch 2.0.
    #[serde(rename = "requested_bytes")]
    pub requested: Option<Bytes>,
    /// The parts of the reserved memory, in bytes; their sum is the reserved memory. Empty when
    /// they are not known.
    #[serde(
        rename = "category_bytes",
        default,
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub categories: BTreeMap<TensorCategory, Bytes>,
    /// The optimizer state by its name in the optimizer, as in `exp_avg`, in bytes.
    #[serde(rename = "optimizer_state_bytes", default)]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub optimizer_state: BTreeMap<Text, Bytes>,
}

/// A group of tensors that grows with each step.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TensorLeak {
    /// PyTorch's number of the device.
    #[serde(rename = "cuda_device")]
    pub device: u32,
    /// The category.
    pub category: TensorCategory,
    /// The shape; absent for memory without a Python tensor.
    pub shape: Option<Vec<u64>>,
    /// The type of the elements; absent for memory without a Python tensor.
    pub dtype: Option<Text>,
    /// The growth in each step; absent without steps, and for memory that did not grow in each.
    #[serde(default, deserialize_with = "amount")]
    pub bytes_per_step: Option<Bytes>,
    /// The growth in each second; absent where it is not known.
    #[serde(default, deserialize_with = "amount")]
    pub bytes_per_second: Option<Bytes>,
    /// The memory that was added so far; absent where it is not known.
    #[serde(default, deserialize_with = "amount")]
    pub bytes: Option<Bytes>,
    /// The number of tensors that each step adds; absent when it is not known.
    pub count_per_step: Option<f64>,
    /// For how many steps it has grown; absent when that is not known.
    pub steps: Option<u64>,
    /// The lines that allocated the tensors; absent unless stacks were recorded.
    pub allocated_at: Option<AllocationLines>,
    /// The variables that hold the tensors, as in `list outputs, train.py:40 in main`. Empty when
    /// none was found.
    #[serde(default)]
    pub held_by: Vec<Text>,
    /// The way from the variable to the tensors, as in `Linear.weight.past[…]`; absent when it is not
    /// known.
    pub path: Option<Text>,
    /// The name of the probable cause, as in `kept_outputs`.
    pub cause: Option<Text>,
    /// The cause as a sentence.
    pub title: Option<Text>,
    /// How sure the cause is: `likely` or `maybe`.
    pub sure: Option<Text>,
    /// A sentence that says what to try.
    pub advice: Option<Text>,
}

/// A container of limited length that fills with tensors, such as a `deque(maxlen=300)`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TensorFill {
    /// The variable that holds it, as in `global window, train.py:5`.
    pub held_by: Text,
    /// The most elements that it can have.
    pub limit: u64,
    /// The elements that it has.
    pub length: u64,
    /// The memory of the tensors in it.
    pub bytes: Bytes,
}

impl TensorLeak {
    /// Whether the probe is sure of the cause, and the leak takes memory of the GPU. History that
    /// grows after `backward()` has freed its tensors takes none.
    pub(crate) fn is_likely(&self) -> bool {
        self.sure
            .as_ref()
            .is_some_and(|sure| sure.as_str() == "likely")
            && !self.takes_no_memory()
    }

    fn takes_no_memory(&self) -> bool {
        self.bytes_per_step == Some(Bytes(0)) && self.bytes.is_none_or(|bytes| bytes == Bytes(0))
    }

    /// The line of the program where the leak is, as in `train.py:41`: the one that holds the
    /// tensors, or else one that allocates them. `None` when the probe has found neither.
    pub(crate) fn line(&self) -> Option<&str> {
        let allocated = self.allocated_at.iter();
        let allocated = allocated.flat_map(|lines| lines.user.iter().chain(&lines.inner));
        self.held_by
            .iter()
            .chain(allocated)
            .find_map(|place| place.as_str().split(' ').find_map(as_line))
    }
}

/// Returns a word such as `train.py:41,` without the comma; `None` if it names no line of a file.
fn as_line(word: &str) -> Option<&str> {
    let word = word.trim_end_matches([',', ';']);
    let (file, number) = word.rsplit_once(':')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !file.is_empty() && file != "cuda").then_some(word)
}

/// Whether the stacks of allocations are recorded.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StackRecording {
    /// `off`, `on`, or `users`: the program records by itself.
    pub state: Text,
    /// How much longer a step takes while stacks are recorded, in percent; absent before it is
    /// known.
    pub cost_percent: Option<f64>,
    /// After how many steps the recording ends; absent while there is none.
    pub steps_left: Option<u64>,
}

/// Groups of tensors that a report leaves out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OmittedGroups {
    /// Their number.
    pub count: u64,
    /// Their memory.
    pub bytes: Bytes,
}

impl OmittedGroups {
    /// No group.
    pub const NONE: Self = Self {
        count: 0,
        bytes: Bytes(0),
    };

    /// Adds a group.
    pub fn add(&mut self, group: &TensorGroup) {
        self.count = self.count.saturating_add(1);
        self.bytes = Bytes(self.bytes.0.saturating_add(group.bytes.0));
    }
}

/// The time that the changes of groups are counted from.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChangesSince {
    /// The number of the step then; absent without steps.
    pub step: Option<u64>,
    /// The name of the mark; absent if it is the reading before.
    pub mark: Option<Text>,
}

/// The answer of the probe to a request.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeAnswer {
    /// The number of the request.
    pub id: u64,
    /// The name of the request.
    pub request: Option<Text>,
    /// Whether the probe did what was asked.
    #[serde(default)]
    pub ok: bool,
    /// Why it did not: one sentence.
    pub error: Option<Text>,
    /// The file that it wrote.
    pub path: Option<Text>,
    /// The length of that file.
    pub bytes: Option<Bytes>,
    /// Over how many steps stacks were recorded.
    pub steps: Option<u64>,
    /// The memory that was allocated during a recording and is still in use, by line, the largest
    /// first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<LineMemory>,
    /// The parts of the highest memory during a recording, for each CUDA device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peak: Vec<PeakParts>,
    /// The changes between two marks.
    pub compared: Option<Box<MarkPair>>,
    /// The memory of a recorded step by module, for each CUDA device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<ModuleMemory>,
    /// The variables that keep results of that step after its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptResult>,
}

/// The memory that one line of a program allocated.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LineMemory {
    /// The memory.
    pub bytes: Bytes,
    /// The number of blocks; absent for all lines that are not listed.
    pub count: Option<u64>,
    /// The line.
    #[serde(flatten)]
    pub line: AllocationLines,
}

/// The parts of the highest memory on one CUDA device during a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PeakParts {
    /// PyTorch's number of the device.
    #[serde(rename = "cuda_device")]
    pub device: u32,
    /// The highest memory of tensors.
    #[serde(rename = "peak_bytes")]
    pub peak: Bytes,
    /// Its parts, in bytes.
    #[serde(rename = "category_bytes", default)]
    pub categories: BTreeMap<TensorCategory, Bytes>,
    /// The part that was allocated during the recording, by line, the largest first.
    #[serde(default)]
    pub lines: Vec<LineMemory>,
    /// Whether the recording had room for all allocations; otherwise the peak may have been higher.
    pub is_complete: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn leak(fields: &serde_json::Value) -> TensorLeak {
        let mut leak = json!({"cuda_device": 0, "category": "activations"});
        let (leak_fields, fields) = (leak.as_object_mut(), fields.as_object());
        leak_fields
            .expect("an object")
            .extend(fields.expect("an object").clone());
        serde_json::from_value(leak).expect("a leak")
    }

    #[test]
    fn the_line_of_a_leak_is_that_of_its_holder_before_that_of_the_allocation() {
        let allocated = json!({"user": "train.py:28 in step", "inner": "model.py:12 in forward"});
        for (fields, line) in [
            (
                json!({"held_by": ["list outputs, train.py:41 in main"], "allocated_at": allocated}),
                Some("train.py:41"),
            ),
            (
                json!({"held_by": ["Meter.total, train.py:7"]}),
                Some("train.py:7"),
            ),
            (
                json!({"held_by": ["module list seen"], "allocated_at": allocated}),
                Some("train.py:28"),
            ),
            (
                json!({"allocated_at": {"user": "backward", "inner": "model.py:12 in forward"}}),
                Some("model.py:12"),
            ),
            (json!({"held_by": ["dict a:b on cuda:0"]}), None),
            (json!({}), None),
        ] {
            assert_eq!(leak(&fields).line(), line, "{fields}");
        }
    }

    #[test]
    fn only_a_leak_that_takes_memory_is_likely() {
        for (fields, is_likely) in [
            (json!({"sure": "likely", "bytes_per_step": 256}), true),
            (json!({"sure": "likely", "bytes": 1024}), true),
            (json!({"sure": "likely", "bytes_per_second": 16.5}), true),
            (json!({"sure": "likely", "bytes_per_step": 0}), false),
            (json!({"sure": "maybe", "bytes_per_step": 256}), false),
            (json!({"bytes_per_step": 256}), false),
        ] {
            assert_eq!(leak(&fields).is_likely(), is_likely, "{fields}");
        }
    }
}
