//! A fake `libnvidia-ml.so.1` that answers from a world file.
//!
//! As a C library, any NVML program can load it; it reads the file that `$FAKE_NVML_WORLD` names.
//! As a Rust library, tests use it to write that file:
//!
//! ```no_run
//! use fake_nvml::{GpuProcess, World, WorldFile};
//!
//! let mut world = World::with_gpus(["H100", "A100-MIG"]);
//! world.gpus[0].processes.push(GpuProcess::new(std::process::id(), 20 << 30));
//! let file = WorldFile::create("/tmp/world.json", world)?;
//! fake_nvml::install("/tmp/driver")?;
//! // … start a monitor with FAKE_NVML_WORLD and LD_LIBRARY_PATH=/tmp/driver, then:
//! # let mut file = file;
//! file.change(|world| world.gpus[0].falls_off_the_bus())?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! README.md has an example of the file.

// The world file.
mod gpu;
mod world;

// For tests only.
mod library;
mod personas;

// The state of the machine, and the frame of every call.
mod abi;
mod calls;
mod counts;
mod machine;
mod process_tracker;

// The exported functions.
mod devices;
mod events;
mod fields;
mod gpm;
mod health;
mod inforom;
mod links;
mod mig;
mod processes;
mod system;

pub use counts::read as counts;
pub use gpu::{
    Bar1, Clocks, Ecc, EccCounts, Fabric, Gpu, Inforom, Memory, Mig, MigInstance, NvLink, Pcie,
    Power, RemappedRows, RetiredPages, Temperature, Utilization,
};
pub use library::{install, library, library_without};
pub use world::{ErrorCode, Fault, GpuProcess, GpuSelector, ProcessKind, World, WorldFile, Xid};

#[cfg(test)]
mod tests;
