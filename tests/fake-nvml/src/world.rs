//! The world file, which describes the machine. Plain data.
//!
//! Every field may be left out. A reading that is absent or `null` is not supported by the GPU: its
//! call answers `NVML_ERROR_NOT_SUPPORTED`. A field that does not exist is an error, so that a
//! typing mistake is found at once.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{abi::Code, gpu::Gpu, personas};

/// One machine with its driver and its GPUs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct World {
    /// The driver's version. NVML's own is `cuda / 1000`, a dot, and this.
    pub driver: String,
    /// 1000 × major + 10 × minor: 12040 is CUDA 12.4.
    pub cuda: i32,
    /// Bytes per entry that the `_v3` process lists write: 16, 24 (as the header says) or 32
    /// (535.43 to 535.98).
    pub stride: usize,
    /// Whether utilization samples of processes are dated from the boot instead of from 1970.
    pub samples_since_boot: bool,
    /// The GPUs in the order of their NVML index; hidden ones have no index.
    pub gpus: Vec<Gpu>,
    /// The faults. The first that fits a call is applied.
    pub faults: Vec<Fault>,
    /// The Xid errors. Append one to make an event: an event set does not deliver those from before
    /// its creation.
    pub xids: Vec<Xid>,
}

impl Default for World {
    fn default() -> Self {
        Self {
            driver: "550.54.15".to_owned(),
            cuda: 12040,
            stride: 24,
            samples_since_boot: false,
            gpus: Vec::new(),
            faults: Vec::new(),
            xids: Vec::new(),
        }
    }
}

/// A GPU process: one process's use of a GPU or MIG instance.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GpuProcess {
    /// The PID that the driver reports.
    pub pid: u32,
    /// The process lists that contain it. Its memory counts once.
    pub kinds: Vec<ProcessKind>,
    /// Bytes; absent: not available (`ULLONG_MAX` in the list), and counted as 0 on the device.
    pub memory: Option<u64>,
    /// Bytes per second that are added (or freed) since `since`.
    pub growth: f64,
    /// Unix seconds; absent: the first time that the library, loaded by a monitor, saw the process.
    pub since: Option<f64>,
    /// Whether its memory is its resident memory plus `memory`.
    pub follow_rss: bool,
    /// Percent of the SMs. Absent: no samples, as for an idle process.
    pub sm: Option<u32>,
    /// Percent of the memory bandwidth.
    pub mem: u32,
    /// Percent of the encoder.
    pub enc: u32,
    /// Percent of the decoder.
    pub dec: u32,
    /// PIDs of processes that keep the memory in use after this process has ended and is no longer
    /// listed.
    pub holders: Vec<u32>,
    /// Whether the driver lists it although no such process exists.
    pub fictional: bool,
    /// The answer of `nvmlSystemGetProcessName`; absent: argv\[0\] of the process.
    pub name: Option<String>,
}

impl Default for GpuProcess {
    fn default() -> Self {
        Self {
            pid: 0,
            kinds: vec![ProcessKind::Compute],
            memory: Some(0),
            growth: 0.0,
            since: None,
            follow_rss: false,
            sm: None,
            mem: 0,
            enc: 0,
            dec: 0,
            holders: Vec::new(),
            fictional: false,
            name: None,
        }
    }
}

/// The driver's three process lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessKind {
    /// `nvmlDeviceGetComputeRunningProcesses`.
    Compute,
    /// `nvmlDeviceGetGraphicsRunningProcesses`.
    Graphics,
    /// `nvmlDeviceGetMPSComputeRunningProcesses`.
    Mps,
}

/// A fault of one function, or of all. Latency comes first, then hang, then error.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fault {
    /// The C name, or `*`.
    pub function: String,
    /// The GPU (with its MIG instances) or instance; absent: all.
    pub gpu: Option<GpuSelector>,
    /// The error that the function answers.
    pub error: Option<ErrorCode>,
    /// Whether the function blocks its thread until the file changes.
    pub hang: bool,
    /// The milliseconds after which the function answers.
    pub latency_ms: u64,
    /// Whether the function answers nonsense: utilization over 100 %, old samples, impossible PIDs,
    /// more memory in use than there is.
    pub garbage: bool,
}

/// A GPU in the world file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum GpuSelector {
    /// Its position in the list of the file.
    Position(usize),
    /// Its UUID, or that of a MIG instance.
    Uuid(String),
}

/// An `nvmlReturn_t`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ErrorCode {
    /// As a number.
    Number(u32),
    /// As in nvml.h, with or without `NVML_ERROR_`.
    Name(String),
}

/// An Xid error: a message of the driver about one GPU.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Xid {
    /// The GPU.
    pub gpu: GpuSelector,
    /// The number: 79 means that the GPU fell off the bus.
    pub xid: u64,
}

impl World {
    /// A machine with these personas: `H100`, `A100`, `A100-MIG`, `RTX-4090`, `GTX-970`, `GH200`,
    /// `GB10`, `WSL`, `VGPU`, `ORIN`.
    ///
    /// # Panics
    ///
    /// When no persona has a name.
    #[must_use]
    pub fn with_gpus<'a>(personas: impl IntoIterator<Item = &'a str>) -> Self {
        let gpus = personas.into_iter().enumerate().map(|(position, name)| {
            personas::gpu(name, position).unwrap_or_else(|| panic!("no persona is called {name:?}"))
        });
        Self {
            gpus: gpus.collect(),
            ..Self::default()
        }
    }

    /// Parses a world file. The fields of a GPU with a `persona` override those of the persona.
    ///
    /// # Errors
    ///
    /// When the text is no JSON, or describes no world; the message says where.
    pub fn parse(text: &str) -> Result<Self, String> {
        // Older world files call the processes `tenants`, and the MIG instances `parts`.
        let text = text
            .replace("\"tenants\":", "\"processes\":")
            .replace("\"parts\":", "\"instances\":");
        let mut value: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        if let Some(gpus) = value.get_mut("gpus").and_then(Value::as_array_mut) {
            for (position, gpu) in gpus.iter_mut().enumerate() {
                apply_persona(gpu, position)?;
            }
        }
        let world: Self = serde_json::from_value(value).map_err(|error| error.to_string())?;
        world.check()?;
        Ok(world)
    }

    fn check(&self) -> Result<(), String> {
        if let Some(position) = self.gpus.iter().position(|gpu| gpu.uuid.is_empty()) {
            return Err(format!("gpus[{position}] has neither a persona nor a uuid"));
        }
        if ![16, 24, 32].contains(&self.stride) {
            return Err(format!("stride is {}, not 16, 24 or 32", self.stride));
        }
        match self
            .faults
            .iter()
            .filter_map(|fault| fault.error.as_ref())
            .find(|error| Code::find(error).is_none())
        {
            Some(unknown) => Err(format!("{unknown:?} is no nvmlReturn_t")),
            None => Ok(()),
        }
    }

    /// Replaces the file atomically, by a rename: readers may read it at any moment.
    ///
    /// # Errors
    ///
    /// When the directory cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let mut draft = path.as_os_str().to_owned();
        draft.push(format!(".{}", std::process::id()));
        fs::write(&draft, serde_json::to_vec_pretty(self)?)?;
        fs::rename(draft, path)
    }
}

/// Replaces the `persona` of a GPU by the persona's fields, overridden by the GPU's own.
fn apply_persona(gpu: &mut Value, position: usize) -> Result<(), String> {
    let Some(persona) = gpu
        .as_object_mut()
        .and_then(|fields| fields.remove("persona"))
    else {
        return Ok(());
    };
    let known = persona
        .as_str()
        .and_then(|name| personas::gpu(name, position));
    let known = known.ok_or_else(|| format!("gpus[{position}]: no persona is called {persona}"))?;
    let mut fields = serde_json::to_value(known).map_err(|error| error.to_string())?;
    overlay(&mut fields, gpu.take());
    *gpu = fields;
    Ok(())
}

fn overlay(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                overlay(under.entry(key).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over,
    }
}

impl ProcessKind {
    pub(crate) fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl GpuProcess {
    /// A process in the compute list, with this many bytes.
    #[must_use]
    pub fn new(pid: u32, memory: u64) -> Self {
        Self {
            pid,
            memory: Some(memory),
            ..Self::default()
        }
    }

    /// A process that exists in the driver's list only.
    #[must_use]
    pub fn fictional(pid: u32, memory: u64) -> Self {
        Self {
            fictional: true,
            ..Self::new(pid, memory)
        }
    }
}

impl Fault {
    /// The function answers this error: `GPU_IS_LOST`, `NO_PERMISSION`…
    #[must_use]
    pub fn error(function: &str, error: &str) -> Self {
        Self {
            error: Some(ErrorCode::Name(error.to_owned())),
            ..Self::of(function)
        }
    }

    /// The function does not return.
    #[must_use]
    pub fn hang(function: &str) -> Self {
        Self {
            hang: true,
            ..Self::of(function)
        }
    }

    /// The function takes this many milliseconds.
    #[must_use]
    pub fn slow(function: &str, latency_ms: u64) -> Self {
        Self {
            latency_ms,
            ..Self::of(function)
        }
    }

    /// The function answers nonsense.
    #[must_use]
    pub fn garbage(function: &str) -> Self {
        Self {
            garbage: true,
            ..Self::of(function)
        }
    }

    /// Limits the fault to the GPU at this position of the list.
    #[must_use]
    pub fn on(self, position: usize) -> Self {
        Self {
            gpu: Some(GpuSelector::Position(position)),
            ..self
        }
    }

    fn of(function: &str) -> Self {
        Self {
            function: function.to_owned(),
            ..Self::default()
        }
    }
}

/// A world and its file.
#[derive(Debug)]
pub struct WorldFile {
    path: PathBuf,
    world: World,
}

impl WorldFile {
    /// Writes the file. Dropping the `WorldFile` does not delete it.
    ///
    /// # Errors
    ///
    /// When the directory cannot be written.
    pub fn create(path: impl Into<PathBuf>, world: World) -> io::Result<Self> {
        let path = path.into();
        world.save(&path)?;
        Ok(Self { path, world })
    }

    /// Changes the world; programs see it within 5 ms of their next call.
    ///
    /// # Errors
    ///
    /// When the directory cannot be written.
    pub fn change(&mut self, change: impl FnOnce(&mut World)) -> io::Result<()> {
        change(&mut self.world);
        self.world.save(&self.path)
    }

    /// The path, for `$FAKE_NVML_WORLD`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The world that was last written.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }
}
