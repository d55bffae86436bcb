//! A `libnvidia-ml.so.1` that answers from a world file. It knows no GPU and no gputop.
//!
//! As a C library it is loaded by any NVML program and reads the file that `$FAKE_NVML_WORLD` names.
//! As a Rust library it is how tests write that file:
//!
//! ```no_run
//! use fake_nvml::{Tenant, World, WorldFile};
//!
//! let mut world = World::of(["H100", "A100-MIG"]);
//! world.gpus[0].tenants.push(Tenant::new(std::process::id(), 20 << 30));
//! let file = WorldFile::create("/tmp/world.json", world)?;
//! fake_nvml::install("/tmp/driver")?;
//! // … start a monitor with FAKE_NVML_WORLD and LD_LIBRARY_PATH=/tmp/driver, then:
//! # let mut file = file;
//! file.change(|world| world.gpus[0].falls_off_the_bus())?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! README.md shows the file by example.

// What tests write, and what they find in the file.
mod gpu;
mod world;

// For tests only.
mod library;
mod personas;

// What every call goes through.
mod abi;
mod counts;
mod gate;
mod lives;
mod scene;

// The calls.
mod board;
mod devices;
mod events;
mod fields;
mod gpm;
mod health;
mod links;
mod mig;
mod processes;
mod system;

pub use counts::read as counts;
pub use gpu::{
    Bar1, Clocks, Ecc, EccCounts, Fabric, Gpu, Inforom, Memory, Mig, NvLink, Part, Pcie, Power, RemappedRows,
    RetiredPages, Temperature, Utilization,
};
pub use library::{install, library, library_without};
pub use world::{ErrorCode, Fault, Kind, Tenant, Which, World, WorldFile, Xid};

#[cfg(test)]
mod tests;
