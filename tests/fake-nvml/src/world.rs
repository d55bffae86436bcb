//! The world file: what the machine looks like. Plain data; nothing here calls anything.
//!
//! Everything may be left out. An absent figure (`null`) is one that this GPU does not report: its
//! call answers `NVML_ERROR_NOT_SUPPORTED`. A field that is not listed here is an error, so that a
//! slip of the pen is found at once.

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
    /// Bytes per entry that the `_v3` process lists write: 16, 24 (as the header says) or 32 (535.43 to 535.98).
    pub stride: usize,
    /// The samples of what processes use are dated from the boot, and not from 1970.
    pub samples_since_boot: bool,
    /// In the order of their NVML index, less those that are hidden.
    pub gpus: Vec<Gpu>,
    /// What goes wrong. The first that fits a call counts.
    pub faults: Vec<Fault>,
    /// Append here to make an event. What an event set finds at its creation is old news to it.
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

/// A process that holds memory on a GPU or a part.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tenant {
    /// As the driver gives it.
    pub pid: u32,
    /// In which lists it stands. Its memory counts once.
    pub kinds: Vec<Kind>,
    /// Bytes; absent: not available (`ULLONG_MAX` in the list), and counted as 0 on the device.
    pub memory: Option<u64>,
    /// Bytes per second that are added (or freed) since `since`.
    pub growth: f64,
    /// Unix seconds; absent: when the process that loaded this library first saw the tenant.
    pub since: Option<f64>,
    /// The resident memory of the process, and what `memory` says, are its memory.
    pub follow_rss: bool,
    /// Percent of the SMs. Absent: no samples, as for an idle process.
    pub sm: Option<u32>,
    /// Percent of the memory bandwidth.
    pub mem: u32,
    /// Percent of the encoder.
    pub enc: u32,
    /// Percent of the decoder.
    pub dec: u32,
    /// PIDs that keep the memory on the device, unlisted, after the tenant ended.
    pub holders: Vec<u32>,
    /// It lives although no such process exists.
    pub fictional: bool,
    /// What `nvmlSystemGetProcessName` says; absent: argv\[0\] of the process.
    pub name: Option<String>,
}

impl Default for Tenant {
    fn default() -> Self {
        Self {
            pid: 0,
            kinds: vec![Kind::Compute],
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
pub enum Kind {
    /// `nvmlDeviceGetComputeRunningProcesses`.
    Compute,
    /// `nvmlDeviceGetGraphicsRunningProcesses`.
    Graphics,
    /// `nvmlDeviceGetMPSComputeRunningProcesses`.
    Mps,
}

/// One thing that goes wrong with one function, or with all. Latency comes first, then hang, then error.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fault {
    /// The C name, or `*`.
    pub function: String,
    /// On which GPU (its parts included) or part; absent: everywhere.
    pub gpu: Option<Which>,
    /// What it answers.
    pub error: Option<ErrorCode>,
    /// It blocks its thread until the file says otherwise.
    pub hang: bool,
    /// It takes this long, then answers.
    pub latency_ms: u64,
    /// It answers nonsense: shares over 100 %, old samples, impossible PIDs, used over total.
    pub garbage: bool,
}

/// A GPU in the world file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Which {
    /// Its place in the file's list.
    Place(usize),
    /// Its UUID, or a part's.
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

/// A message of the driver about one GPU.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Xid {
    /// Where it happened.
    pub gpu: Which,
    /// Its number: 79 is fallen off the bus.
    pub xid: u64,
}

impl World {
    /// A machine with these personas: `H100`, `A100`, `A100-MIG`, `RTX-4090`, `GTX-970`, `GH200`, `GB10`, `WSL`, `VGPU`, `ORIN`.
    ///
    /// # Panics
    ///
    /// On a name that is none of them.
    #[must_use]
    pub fn of<'a>(personas: impl IntoIterator<Item = &'a str>) -> Self {
        let gpus = personas
            .into_iter()
            .enumerate()
            .map(|(place, name)| personas::gpu(name, place).unwrap_or_else(|| panic!("no persona is called {name:?}")));
        Self { gpus: gpus.collect(), ..Self::default() }
    }

    /// Reads a world file's text. A GPU with a `persona` starts from it and changes what it names.
    ///
    /// # Errors
    ///
    /// When the text is not JSON, or not a world; the message says where.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if let Some(gpus) = value.get_mut("gpus").and_then(Value::as_array_mut) {
            for (place, gpu) in gpus.iter_mut().enumerate() {
                dress(gpu, place)?;
            }
        }
        let world: Self = serde_json::from_value(value).map_err(|error| error.to_string())?;
        world.check()?;
        Ok(world)
    }

    fn check(&self) -> Result<(), String> {
        if let Some(place) = self.gpus.iter().position(|it| it.uuid.is_empty()) {
            return Err(format!("gpus[{place}] has neither a persona nor a uuid"));
        }
        if ![16, 24, 32].contains(&self.stride) {
            return Err(format!("stride is {}, not 16, 24 or 32", self.stride));
        }
        match self.faults.iter().filter_map(|it| it.error.as_ref()).find(|it| Code::of(it).is_none()) {
            Some(unknown) => Err(format!("{unknown:?} is no nvmlReturn_t")),
            None => Ok(()),
        }
    }

    /// Writes the file at once, for readers that look at any moment: a new file takes the old one's name.
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

/// Puts what the file says about a GPU over what its persona says.
fn dress(gpu: &mut Value, place: usize) -> Result<(), String> {
    let Some(persona) = gpu.as_object_mut().and_then(|it| it.remove("persona")) else {
        return Ok(());
    };
    let known = persona.as_str().and_then(|name| personas::gpu(name, place));
    let known = known.ok_or_else(|| format!("gpus[{place}]: no persona is called {persona}"))?;
    let mut dressed = serde_json::to_value(known).map_err(|error| error.to_string())?;
    overlay(&mut dressed, gpu.take());
    *gpu = dressed;
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

impl Kind {
    pub(crate) fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl Tenant {
    /// A process that computes, with this many bytes.
    #[must_use]
    pub fn new(pid: u32, memory: u64) -> Self {
        Self { pid, memory: Some(memory), ..Self::default() }
    }

    /// One that exists in the driver's list only.
    #[must_use]
    pub fn fictional(pid: u32, memory: u64) -> Self {
        Self { fictional: true, ..Self::new(pid, memory) }
    }
}

impl Fault {
    /// The function answers this error: `GPU_IS_LOST`, `NO_PERMISSION`…
    #[must_use]
    pub fn error(function: &str, error: &str) -> Self {
        Self { error: Some(ErrorCode::Name(error.to_owned())), ..Self::of(function) }
    }

    /// The function does not return.
    #[must_use]
    pub fn hang(function: &str) -> Self {
        Self { hang: true, ..Self::of(function) }
    }

    /// The function takes this many milliseconds.
    #[must_use]
    pub fn slow(function: &str, latency_ms: u64) -> Self {
        Self { latency_ms, ..Self::of(function) }
    }

    /// The function answers nonsense.
    #[must_use]
    pub fn garbage(function: &str) -> Self {
        Self { garbage: true, ..Self::of(function) }
    }

    /// Only on the GPU at this place of the list.
    #[must_use]
    pub fn on(self, place: usize) -> Self {
        Self { gpu: Some(Which::Place(place)), ..self }
    }

    fn of(function: &str) -> Self {
        Self { function: function.to_owned(), ..Self::default() }
    }
}

/// A world and the file it stands in.
#[derive(Debug)]
pub struct WorldFile {
    path: PathBuf,
    world: World,
}

impl WorldFile {
    /// Writes the world there. The file stays when this goes.
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

    /// For `$FAKE_NVML_WORLD`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was last written.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }
}
