//! One process's use of one GPU.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Missing, ProcessId, Reading, Use};
use crate::base::text::Text;
use crate::base::units::{Bytes, Percent};

/// One process's use of one GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "GpuProcessJson", into = "GpuProcessJson")]
pub struct GpuProcess {
    /// The identity of the process.
    pub process: ProcessId,
    /// The list of NVML that names the process.
    pub usage: Use,
    /// Device memory that the driver gave to the process.
    pub memory: Reading<Bytes>,
    /// Share of the last second in which kernels of the process ran.
    pub sm: Reading<Percent>,
    /// Shares of the other engines; `None` without a sample of the process, and in the lines of
    /// most agents.
    pub engines: Option<EngineShares>,
    /// The user and the command; `None` in the lines of an agent. `--json` adds them, so that its
    /// readers need not join two lists.
    pub names: Option<Box<ProcessNames>>,
}

/// Shares of the last second in which a process used the engines beside the multiprocessors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EngineShares {
    /// Share of the time in which device memory was read or written, in percent.
    pub memory_percent: u32,
    /// Share of the time of the video encoder, in percent.
    pub encoder_percent: u32,
    /// Share of the time of the video decoder, in percent.
    pub decoder_percent: u32,
}

/// The user and the command of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessNames {
    /// The user name, or the user ID where the user has no name; `None` when it could not be read.
    pub user: Option<Text>,
    /// The command line, or the kernel's name of the process where the command line could not be
    /// read.
    pub command: Text,
    /// The program, scheduler or container that started the process, as in `slurm 4711`; `None`
    /// when it is not known.
    pub origin: Option<Text>,
}

/// A [`GpuProcess`] in JSON.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "GpuProcess")]
struct GpuProcessJson {
    /// The PID.
    pid: u32,
    /// Clock ticks from boot to the start of the process: field 22 of `/proc/PID/stat`. Null for a
    /// PID that NVML names and `/proc` does not know.
    start_ticks: Option<u64>,
    /// The list of NVML that names the process.
    r#type: Use,
    /// Device memory that the driver gave to the process.
    memory_used_bytes: Option<Bytes>,
    /// Share of the last second in which kernels of the process ran.
    sm_utilization_percent: Option<Percent>,
    /// Shares of the other engines. Only in the lines of an agent that a query of them started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    engines: Option<EngineShares>,
    /// Why a value above is null, by the name of the value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    missing: BTreeMap<Cow<'static, str>, Missing>,
    /// The user name, or the user ID where the user has no name. Only in the output of `--json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<Text>,
    /// The command line, or the kernel's name of the process where the command line could not be
    /// read. Only in the output of `--json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<Text>,
    /// The program, scheduler or container that started the process, as in `slurm 4711`. Only in
    /// the output of `--json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<Text>,
}

const MEMORY_KEY: &str = "memory_used_bytes";
const SM: &str = "sm_utilization_percent";

impl From<GpuProcess> for GpuProcessJson {
    fn from(gpu_process: GpuProcess) -> Self {
        let GpuProcess {
            process: ProcessId { pid, start_ticks },
            usage,
            memory,
            sm,
            engines,
            names,
        } = gpu_process;
        let missing = [(MEMORY_KEY, memory.err()), (SM, sm.err())];
        let missing = missing
            .into_iter()
            .filter_map(|(name, why)| Some((name.into(), why?)));
        let (user, command, origin) = names.map_or((None, None, None), |names| {
            (names.user, Some(names.command), names.origin)
        });
        Self {
            pid,
            start_ticks,
            r#type: usage,
            memory_used_bytes: memory.ok(),
            sm_utilization_percent: sm.ok(),
            engines,
            missing: missing.collect(),
            user,
            command,
            origin,
        }
    }
}

impl From<GpuProcessJson> for GpuProcess {
    fn from(json: GpuProcessJson) -> Self {
        let why = |name| {
            json.missing
                .get(name)
                .copied()
                .unwrap_or(Missing::Unsupported)
        };
        Self {
            process: ProcessId {
                pid: json.pid,
                start_ticks: json.start_ticks,
            },
            usage: json.r#type,
            memory: json.memory_used_bytes.ok_or_else(|| why(MEMORY_KEY)),
            sm: json.sm_utilization_percent.ok_or_else(|| why(SM)),
            engines: json.engines,
            names: json.command.map(|command| {
                Box::new(ProcessNames {
                    user: json.user,
                    command,
                    origin: json.origin,
                })
            }),
        }
    }
}

impl JsonSchema for GpuProcess {
    fn schema_name() -> Cow<'static, str> {
        GpuProcessJson::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        GpuProcessJson::json_schema(generator)
    }
}
