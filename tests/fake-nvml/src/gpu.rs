//! One GPU of the world file, with its readings and MIG instances. Plain data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::world::GpuProcess;

/// One GPU. Its `uuid` identifies it, also when its position in the list changes.
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are independent fields of the file"
)]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gpu {
    /// `GPU-…`, unique in the world.
    pub uuid: String,
    /// The driver's name, for example `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Domain, bus, device, function: `00000000:1B:00.0`.
    pub pci: String,
    /// Device and vendor, `0x233010DE` for an H100.
    pub pci_device_id: u32,
    /// The number in `/dev/nvidia0`; absent: its position in the list.
    pub minor: Option<u32>,
    /// The board's serial number.
    pub serial: Option<String>,
    /// The version of the VBIOS.
    pub vbios: Option<String>,
    /// `nvmlBrandType_t`: 2 Tesla, 5 `GeForce`, 14 NVIDIA.
    pub brand: u32,
    /// `NVML_DEVICE_ARCH_…`: 3 Maxwell, 7 Ampere, 9 Hopper.
    pub architecture: u32,
    /// Major and minor.
    pub compute_capability: (i32, i32),
    /// Number of CUDA cores.
    pub cores: Option<u32>,
    /// Device memory.
    pub memory: Memory,
    /// The window through which the CPU accesses device memory.
    pub bar1: Option<Bar1>,
    /// Utilization of the engines.
    pub utilization: Utilization,
    /// Temperatures and their thresholds.
    pub temperature: Temperature,
    /// Power, energy and power limits.
    pub power: Power,
    /// The current clocks.
    pub clocks: Clocks,
    /// The highest clocks.
    pub max_clocks: Clocks,
    /// 0 (fastest) to 15.
    pub pstate: Option<u32>,
    /// Percent, one per fan. Empty: no fan.
    pub fans: Vec<u32>,
    /// `nvmlClocksThrottleReason…` bits that are set now.
    pub throttle: Option<u64>,
    /// Bits that this GPU can report; absent: all (`0x1ff`).
    pub throttle_supported: Option<u64>,
    /// Nanoseconds spent throttled since the driver was loaded, by field number (74, 76, 251, 252,
    /// 253).
    pub throttle_ns: BTreeMap<u32, u64>,
    /// Error correction; absent: not supported.
    pub ecc: Option<Ecc>,
    /// Pages taken out of use (before Ampere).
    pub retired_pages: Option<RetiredPages>,
    /// Rows replaced by spare ones (Ampere and later).
    pub remapped_rows: Option<RemappedRows>,
    /// `NVML_GPU_RECOVERY_ACTION_…`: 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset.
    pub recovery_action: Option<u32>,
    /// The values of other fields (`NVML_FI_DEV_…` of nvml.h), by number.
    pub fields: BTreeMap<u32, u64>,
    /// The PCI Express link.
    pub pcie: Option<Pcie>,
    /// NVLink, all links alike.
    pub nvlink: Option<NvLink>,
    /// Persistence mode.
    pub persistence: Option<bool>,
    /// 0 default, 2 prohibited, 3 exclusive process.
    pub compute_mode: Option<u32>,
    /// Accounting mode.
    pub accounting: Option<bool>,
    /// Whether a display is active on the GPU.
    pub display: Option<bool>,
    /// Whether a display is attached; absent: the same as `display`.
    pub display_attached: Option<bool>,
    /// PCI subclass of base class 3; absent: 2, a 3D controller.
    pub pci_subclass: Option<u32>,
    /// PCI subsystem; absent: NVIDIA's own.
    pub pci_subsystem_id: Option<u32>,
    /// The versions in the infoROM.
    pub inforom: Option<Inforom>,
    /// Encoder statistics: sessions, frames per second, latency in microseconds.
    pub encoder: Option<(u32, u32, u32)>,
    /// Whether the GPU's own processor (GSP) runs the driver's firmware.
    pub gsp: Option<bool>,
    /// The Windows driver model, under WSL: 0 WDDM, 1 TCC.
    pub driver_model: Option<u32>,
    /// The half of the host (0 or 1) whose CPUs and memory are near the GPU; absent: not supported.
    pub numa: Option<u32>,
    /// The NUMA node of the host that is the GPU's memory.
    pub numa_node: Option<u32>,
    /// The NVLink fabric of the GPU.
    pub fabric: Option<Fabric>,
    /// The module ID: its position on the board.
    pub module: Option<u8>,
    /// Milliwatts of the module of GPU and CPU: average, instant, and the limits: lowest, highest,
    /// default, in force, requested.
    pub module_power: Option<[u32; 7]>,
    /// The addressing mode for the host's memory: 0 none, 1 HMM, 2 ATS.
    pub addressing: Option<u32>,
    /// Whether a chip-to-chip link to the CPU is enabled.
    pub c2c: Option<bool>,
    /// Protected memory of confidential computing, in bytes: total and in use.
    pub protected_memory: Option<(u64, u64)>,
    /// The power now in milliwatts, where `power.usage` is an average; absent: the same.
    pub power_instant: Option<u32>,
    /// Whether the average power is not supported.
    pub power_without_average: bool,
    /// Whether both versions of `nvmlDeviceGetMemoryInfo` are not supported, as on a GPU without
    /// its own memory.
    pub no_memory_info: bool,
    /// Whether the process lists contain no memory (`ULLONG_MAX`), as under Windows.
    pub no_process_memory: bool,
    /// Whether the process lists are not supported.
    pub no_process_lists: bool,
    /// Whether `nvmlDeviceGetProcessUtilization` is supported.
    pub process_utilization: bool,
    /// GPM metrics by their number (2: SM activity, percent); absent: no GPM.
    pub gpm: Option<BTreeMap<u32, f64>>,
    /// Multi-instance mode; absent: not supported.
    pub mig: Option<Mig>,
    /// The GPU processes.
    pub processes: Vec<GpuProcess>,
    /// Whether the GPU fell off the bus: all calls answer `GPU_IS_LOST`. It is still counted.
    pub lost: bool,
    /// Whether the GPU is not counted and has no index. Calls with an old handle answer
    /// `GPU_IS_LOST`.
    pub hidden: bool,
    /// Whether utilization, power, temperature, clocks, bus traffic, and utilization and memory of
    /// processes change all the time.
    pub jitter: bool,
}

/// Versions in the infoROM; absent: not supported.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Inforom {
    /// The version of the whole image.
    pub image: Option<String>,
    /// The version of the OEM object.
    pub oem: Option<String>,
    /// The version of the ECC object.
    pub ecc: Option<String>,
    /// The version of the power object.
    pub power: Option<String>,
    /// Whether the checksum is wrong.
    pub corrupt: bool,
}

/// Device memory, in bytes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Memory {
    /// All of it.
    pub total: u64,
    /// Reserved by driver and firmware. Part of `used` in v1, and not in v2.
    pub reserved: u64,
    /// In use by no process that the driver lists.
    pub unaccounted: u64,
    /// Whether `nvmlDeviceGetMemoryInfo_v2` is supported.
    pub v2: bool,
}

/// BAR1 memory, in bytes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bar1 {
    /// All of it.
    pub total: u64,
    /// Mapped now.
    pub used: u64,
}

/// Percent of the last sample period.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Utilization {
    /// A kernel ran. Absent makes `nvmlDeviceGetUtilizationRates` unsupported.
    pub gpu: Option<u32>,
    /// Memory was read or written.
    pub memory: Option<u32>,
    /// The encoder worked.
    pub encoder: Option<u32>,
    /// The decoder worked.
    pub decoder: Option<u32>,
    /// The JPEG engine worked.
    pub jpeg: Option<u32>,
    /// The optical flow engine worked.
    pub ofa: Option<u32>,
}

/// Degrees Celsius.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Temperature {
    /// The chip.
    pub gpu: Option<u32>,
    /// The memory (field 82).
    pub memory: Option<u32>,
    /// The threshold at which the GPU switches off.
    pub shutdown: Option<u32>,
    /// The threshold at which the GPU slows down.
    pub slowdown: Option<u32>,
    /// The threshold of the memory at which the GPU slows down.
    pub memory_max: Option<u32>,
    /// The highest operating temperature, from which the margin (T.Limit) is counted.
    pub gpu_max: Option<u32>,
}

/// Milliwatts and millijoules.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Power {
    /// Drawn now.
    pub usage: Option<u32>,
    /// The limit in force, and the one asked for.
    pub limit: Option<u32>,
    /// The limit after a reboot.
    pub default_limit: Option<u32>,
    /// The lowest limit that may be set.
    pub min_limit: Option<u32>,
    /// The highest limit that may be set.
    pub max_limit: Option<u32>,
    /// Energy since the driver was loaded; grows with `usage` from the moment the world was first
    /// read.
    pub energy: Option<u64>,
}

/// MHz.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Clocks {
    /// Graphics.
    pub graphics: Option<u32>,
    /// Streaming multiprocessors.
    pub sm: Option<u32>,
    /// Memory.
    pub memory: Option<u32>,
    /// Video engines.
    pub video: Option<u32>,
}

/// Error correction.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ecc {
    /// In force now. When off, the counts are unsupported.
    pub enabled: bool,
    /// After the next reboot.
    pub pending: bool,
    /// Since the driver was loaded.
    pub volatile: EccCounts,
    /// Since the board was made.
    pub aggregate: EccCounts,
}

/// Errors counted, by place and kind.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EccCounts {
    /// Corrected in device memory.
    pub dram_corrected: u64,
    /// Not corrected in device memory.
    pub dram_uncorrected: u64,
    /// Corrected on the chip.
    pub sram_corrected: u64,
    /// Not corrected on the chip.
    pub sram_uncorrected: u64,
}

/// Pages taken out of use.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetiredPages {
    /// After several single-bit errors.
    pub single_bit: u32,
    /// After a double-bit error.
    pub double_bit: u32,
    /// Some wait for a reboot.
    pub pending: bool,
}

/// Rows replaced by spare ones.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RemappedRows {
    /// After correctable errors.
    pub correctable: u32,
    /// After uncorrectable errors.
    pub uncorrectable: u32,
    /// Some wait for a reset.
    pub pending: bool,
    /// No spare row was left.
    pub failed: bool,
}

/// The PCI Express link.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pcie {
    /// In use now.
    pub generation: u32,
    /// Lanes in use now.
    pub width: u32,
    /// Possible here.
    pub max_generation: u32,
    /// Lanes possible here.
    pub max_width: u32,
    /// KB/s from the GPU. The real call takes 20 ms: use a fault with `latency_ms` for that.
    pub tx: Option<u32>,
    /// KB/s to the GPU.
    pub rx: Option<u32>,
    /// Packets sent again.
    pub replays: Option<u32>,
}

/// A fabric of NVLink switches.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fabric {
    /// 1 not started, 2 in progress, 3 completed.
    pub state: u8,
    /// The result: an `nvmlReturn_t`.
    pub status: u32,
    /// GPUs of one clique reach each other.
    pub clique: u32,
    /// `NVML_GPU_FABRIC_HEALTH_MASK_…` bits.
    pub health: u32,
    /// `NVML_GPU_FABRIC_HEALTH_SUMMARY_…`: 0 not supported, 1 healthy, 2 unhealthy, 3 limited
    /// capacity.
    pub summary: u8,
}

/// NVLink.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NvLink {
    /// The number of links.
    pub links: u32,
    /// The number of links, from the last, that are down.
    pub down: u32,
    /// Whether the links that are up sleep, because nothing is transferred.
    pub asleep: bool,
    /// `NVML_NVLINK_VERSION_…`.
    pub version: u32,
    /// MB/s of one link.
    pub speed: u32,
    /// KiB sent over all links so far (data, fields 138 and 140).
    pub tx: u64,
    /// KiB received over all links so far.
    pub rx: u64,
    /// KiB per second that are added to `tx` and to `rx`, from the moment the world was first read.
    pub rate: u64,
}

/// Multi-instance mode.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mig {
    /// Whether the mode is on.
    pub enabled: bool,
    /// The most instances.
    pub max: u32,
    /// The instances, in the order of their MIG index.
    pub instances: Vec<MigInstance>,
}

/// One MIG instance.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MigInstance {
    /// `MIG-…`, unique in the world.
    pub uuid: String,
    /// The profile at the end of the name, such as `3g.20gb`.
    pub profile: String,
    /// The GPU instance's number.
    pub gpu_instance: u32,
    /// The compute instance's number within it.
    pub compute_instance: u32,
    /// Slices of the GPU.
    pub slices: u32,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Its share of the device memory.
    pub memory: Memory,
    /// The GPU processes.
    pub processes: Vec<GpuProcess>,
}

impl Gpu {
    /// Makes the GPU lost: all calls answer `GPU_IS_LOST`.
    pub fn falls_off_the_bus(&mut self) {
        self.lost = true;
    }

    /// The MIG instances, while the mode is on.
    #[must_use]
    pub fn instances(&self) -> &[MigInstance] {
        self.mig
            .as_ref()
            .filter(|mig| mig.enabled)
            .map_or(&[], |mig| &mig.instances)
    }

    /// The processes of the GPU and of its instances.
    pub fn all_processes(&self) -> impl Iterator<Item = &GpuProcess> {
        self.instances()
            .iter()
            .flat_map(|instance| &instance.processes)
            .chain(&self.processes)
    }
}
