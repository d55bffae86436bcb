//! The readings, lane by lane: the one list of everything that gputop measures.
//!
//! A new column begins here, with a line that says its type, its name in JSON and what it means. The
//! macro makes of a lane what JSON needs: an absent reading is `null`, and a `missing` map beside it
//! says why.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{GpuUuid, Identity, Missing, Reading, State, Throttle, Xid};
use crate::base::text::{Argv, Text};
use crate::base::units::{Bytes, Celsius, Hertz, Moment, Percent, Watts};

/// Defines lanes: first the values that are always known, then those that are a [`Reading`].
macro_rules! lanes {
    ($(
        $(#[doc = $doc:literal])+
        $lane:ident {
            $( $(#[doc = $known_doc:literal])+ $known:ident: $known_type:ty = $known_key:literal, )*
            readings:
            $( $(#[doc = $doc_of:literal])+ $reading:ident: $type:ty = $key:literal, )*
        }
    )+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Debug, Clone, PartialEq)]
            pub struct $lane {
                $( $(#[doc = $known_doc])+ pub $known: $known_type, )*
                $( $(#[doc = $doc_of])+ pub $reading: Reading<$type>, )*
            }

            impl $lane {
                /// The lane before anything was read: every reading is missing, and this is why.
                pub fn missing($($known: $known_type,)* why: Missing) -> Self {
                    Self { $($known,)* $($reading: Err(why),)* }
                }
            }

            #[cfg(test)]
            impl crate::protocol::snapshot::arbitrary::Arbitrary for $lane {
                fn arbitrary(random: &mut proptest::test_runner::TestRng) -> Self {
                    use crate::protocol::snapshot::arbitrary::Arbitrary;
                    Self {
                        $( $known: Arbitrary::arbitrary(random), )*
                        $( $reading: Arbitrary::arbitrary(random), )*
                    }
                }
            }

            impl Serialize for $lane {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    let mut map = serializer.serialize_map(None)?;
                    $( map.serialize_entry($known_key, &self.$known)?; )*
                    $( map.serialize_entry($key, &self.$reading.as_ref().ok())?; )*
                    let mut missing: BTreeMap<&str, Missing> = BTreeMap::new();
                    $( if let Err(why) = self.$reading { missing.insert($key, why); } )*
                    if !missing.is_empty() {
                        map.serialize_entry("missing", &missing)?;
                    }
                    map.end()
                }
            }

            impl<'de> Deserialize<'de> for $lane {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    let wire = wire::$lane::deserialize(deserializer)?;
                    // A field that a later agent no longer sends, or an earlier one did not know.
                    let why = |key| wire.missing.get(key).copied().unwrap_or(Missing::Unsupported);
                    Ok(Self {
                        $( $reading: wire.$reading.ok_or_else(|| why($key)), )*
                        $( $known: wire.$known, )*
                    })
                }
            }

            impl JsonSchema for $lane {
                fn schema_name() -> Cow<'static, str> {
                    wire::$lane::schema_name()
                }

                fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                    wire::$lane::json_schema(generator)
                }
            }
        )+

        /// The lanes as they stand in JSON.
        mod wire {
            use super::*;
            $(
                $(#[doc = $doc])+
                #[derive(Deserialize, JsonSchema)]
                pub(super) struct $lane {
                    $( $(#[doc = $known_doc])+ #[serde(rename = $known_key)] pub(super) $known: $known_type, )*
                    $( $(#[doc = $doc_of])+ #[serde(rename = $key)] pub(super) $reading: Option<$type>, )*
                    /// Why a value above is null, by its name.
                    #[serde(default)]
                    pub(super) missing: BTreeMap<String, Missing>,
                }
            )+
        }
    };
}

pub(super) use lanes;

lanes! {
    /// What does not change about the host.
    HostFacts {
        /// Its name.
        name: Text = "name",
        /// The kernel's id of this boot: `/proc/sys/kernel/random/boot_id`.
        boot_id: Text = "boot_id",
        /// Clock ticks a second, the unit of start ticks.
        ticks_per_second: u64 = "ticks_per_second",
        /// The user that the agent runs as.
        uid: u32 = "agent_uid",
        readings:
        /// Logical processors.
        cpus: u32 = "cpus",
        /// How far its local time is ahead of UTC.
        utc_offset: i32 = "utc_offset_seconds",
    }

    /// The last look at every process of the host.
    HostScan {
        /// When it ended.
        at: Moment = "time_ms",
        /// Processes that there were.
        processes: u32 = "processes",
        /// Those of them whose open files we may not see: other users', unless we are root.
        unreadable: u32 = "unreadable_processes",
        readings:
        /// What is in use of `/dev/shm`, where DataLoader workers leave what nobody fetched.
        shm_used: Bytes = "shm_used_bytes",
    }

    /// What changes each second about the host.
    HostLoad {
        readings:
        /// Use of all processors together; 100 when all are busy.
        cpu: Percent = "cpu_percent",
        /// Runnable and blocked tasks, averaged over 1, 5 and 15 minutes.
        load: [f64; 3] = "load_average",
        /// Memory in use: total less available.
        memory_used: Bytes = "memory_used_bytes",
        /// All memory.
        memory_total: Bytes = "memory_total_bytes",
        /// Swap in use.
        swap_used: Bytes = "swap_used_bytes",
        /// All swap; 0 when there is none.
        swap_total: Bytes = "swap_total_bytes",
    }

    /// What does not change about a GPU while its driver runs.
    GpuFacts {
        /// Its place in NVML's order; an instance has its parent's.
        index: u32 = "index",
        /// The GPU that this is an instance of; absent for a whole GPU.
        parent: Option<GpuUuid> = "parent_uuid",
        /// No such GPU exists: it belongs to `--demo`.
        simulated: bool = "simulated",
        readings:
        /// Product name.
        name: Text = "name",
        /// PCI domain, bus, device and function, as in `00000000:17:00.0`.
        bus_id: Text = "pci_bus_id",
        /// The number of its device file: `/dev/nvidia0`.
        minor: u32 = "minor_number",
        /// Where the GPU slows down to stay whole.
        slowdown_temperature: Celsius = "slowdown_temperature_celsius",
        /// MIG: id of the GPU instance.
        gpu_instance: u32 = "gpu_instance_id",
        /// MIG: id of the compute instance.
        compute_instance: u32 = "compute_instance_id",
    }

    /// What changes each second about a GPU.
    GpuLoad {
        /// When this lane was read.
        at: Moment = "time_ms",
        readings:
        /// Device memory given out, without the driver's reserve: nvidia-smi's `memory.used`.
        memory_used: Bytes = "memory_used_bytes",
        /// Device memory left.
        memory_free: Bytes = "memory_free_bytes",
        /// Device memory that the driver keeps for itself. Unsupported before driver 510.
        memory_reserved: Bytes = "memory_reserved_bytes",
        /// All device memory.
        memory_total: Bytes = "memory_total_bytes",
        /// Share of the last sample period in which a kernel ran; says nothing of how full the GPU was.
        sm: Percent = "sm_utilization_percent",
        /// Share of the last sample period in which device memory was read or written.
        memory_bandwidth: Percent = "memory_utilization_percent",
        /// Of the GPU's core.
        temperature: Celsius = "temperature_celsius",
        /// Of the whole board.
        power: Watts = "power_watts",
        /// Of the streaming multiprocessors.
        sm_clock: Hertz = "sm_clock_hertz",
        /// Why that clock is low; empty when nothing holds it.
        throttle: Vec<Throttle> = "throttle_reasons",
    }

    /// What changes now and then about a GPU.
    GpuHealth {
        /// When this lane was read.
        at: Moment = "time_ms",
        /// The Xid errors that came while the agent ran, the latest last, 16 at most.
        xids: Vec<Xid> = "xids",
        readings:
        /// The power it may draw: nvidia-smi's `enforced.power.limit`.
        power_limit: Watts = "power_limit_watts",
        /// Of the device memory.
        memory_clock: Hertz = "memory_clock_hertz",
        /// 0 is fastest, 15 slowest: `P0` to `P15`.
        performance_state: u32 = "performance_state",
        /// Intended speed; may pass 100.
        fan: Percent = "fan_speed_percent",
        /// Whether MIG splits it.
        mig: bool = "mig_enabled",
        /// Memory errors that ECC mended since the driver was loaded.
        ecc_corrected: u64 = "ecc_corrected_errors",
        /// Memory errors that it could not mend, since the driver was loaded.
        ecc_uncorrected: u64 = "ecc_uncorrected_errors",
        /// Whether rows of its memory wait for a reset to be replaced.
        remap_pending: bool = "remapped_rows_pending",
        /// Whether a row of its memory could not be replaced: no spare one is left.
        remap_failed: bool = "remapped_rows_failed",
        /// Whether pages of its memory wait for a reboot to be taken out of use. Before Ampere.
        retired_pending: bool = "retired_pages_pending",
        /// What the driver says should be done to mend it: 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset,
        /// 5 recover the IMEX domain.
        recovery_action: u32 = "recovery_action",
        /// PCIe generation in use.
        pcie_generation: u32 = "pcie_generation",
        /// PCIe lanes in use.
        pcie_width: u32 = "pcie_width",
        /// Use of the encoder.
        encoder: Percent = "encoder_utilization_percent",
        /// Use of the decoder.
        decoder: Percent = "decoder_utilization_percent",
    }

    /// Memory errors of one kind since one time, by where they were.
    EccCounts {
        readings:
        /// In device memory.
        dram: u64 = "dram",
        /// In registers.
        register_file: u64 = "register_file",
        /// In L1 caches.
        l1_cache: u64 = "l1_cache",
        /// In the L2 cache.
        l2_cache: u64 = "l2_cache",
        /// In texture memory.
        texture_memory: u64 = "texture_memory",
        /// In the convergence barrier unit.
        cbu: u64 = "cbu",
        /// In memory on the chip.
        sram: u64 = "sram",
        /// Everywhere.
        total: u64 = "total",
    }

    /// PyTorch's caching allocator for one CUDA device of a process, as `torch.cuda.memory_stats()` says it.
    DeviceAllocator {
        /// PyTorch's number of the device: `cuda:0`.
        device: u32 = "cuda_device",
        /// Which GPU that is; absent when it cannot be told.
        gpu: Option<GpuUuid> = "gpu_uuid",
        readings:
        /// Held by tensors: `memory_allocated`.
        allocated: Bytes = "allocated_bytes",
        /// The most that was since the process started or reset it.
        allocated_peak: Bytes = "allocated_peak_bytes",
        /// Taken from CUDA, in use or not: `memory_reserved`.
        reserved: Bytes = "reserved_bytes",
        /// The most that was.
        reserved_peak: Bytes = "reserved_peak_bytes",
        /// Allocated, or freed and still awaited by another stream.
        active: Bytes = "active_bytes",
        /// The most that was.
        active_peak: Bytes = "active_peak_bytes",
        /// Free, in segments of which a part is in use: `empty_cache` cannot give it back.
        inactive_split: Bytes = "inactive_split_bytes",
        /// The most that was.
        inactive_split_peak: Bytes = "inactive_split_peak_bytes",
        /// What the program asked for, of what is active, before it was rounded up.
        requested: Bytes = "requested_bytes",
        /// The most that was.
        requested_peak: Bytes = "requested_peak_bytes",
        /// Blocks that tensors hold.
        allocations: u64 = "allocations",
        /// Pieces of device memory taken from CUDA.
        segments: u64 = "segments",
        /// How often the cache was emptied since CUDA had no more to give.
        retries: u64 = "allocation_retries",
        /// How often there was not enough even then: out-of-memory errors.
        ooms: u64 = "out_of_memory_errors",
    }

    /// What changes about a process only by an `exec`, a new user id or a new parent.
    ProcessFacts {
        /// Whether the PID surely is the process that NVML means.
        identity: Identity = "identity",
        readings:
        /// Its real user id.
        uid: u32 = "uid",
        /// The name of that user; the number where there is none.
        user: Text = "user",
        /// Its parent's PID; 0 when that is in another PID namespace.
        parent: u32 = "parent_pid",
        /// Its process group: the PID of that group's leader.
        group: u32 = "process_group_id",
        /// Its session: the PID of that session's leader.
        session: u32 = "session_id",
        /// The kernel's short name for it, 15 bytes at most.
        comm: Text = "comm",
        /// Its arguments, 4 KiB at most.
        argv: Argv = "argv",
        /// Where it was started, by its control group and environment, as in `slurm 4711`, `docker 3f2a91`,
        /// `kubernetes 1b2c`, `tmux`. Unsupported when nothing of that is to be seen.
        origin: Text = "origin",
        /// The file that freezes it with its control group, as `docker pause` does: `cgroup.freeze`, where 0 lets it go on, or
        /// `freezer.state`, where `THAWED` does. Unsupported when it is not frozen, as far as can be seen.
        frozen_by: Text = "freezer_file",
        /// `TORCHELASTIC_RUN_ID`: the run of `torchrun` that it belongs to. Unsupported when it has none.
        elastic_run: Text = "torchelastic_run_id",
        /// `RANK`, or else `LOCAL_RANK`: its place in a distributed run. Unsupported when it has none.
        rank: Text = "rank",
        /// Whether it has threads that only a trainer has: `pt_autograd_*`, `pt_data_pin`, `pt_nccl_*`.
        /// Unsupported for related processes: read only of GPU processes.
        trainer_threads: bool = "has_trainer_threads",
    }

    /// What changes each second about a process.
    ProcessLoad {
        readings:
        /// Running, sleeping…
        state: State = "state",
        /// Its threads.
        threads: u32 = "threads",
        /// The kernel function that it waits in. Unsupported when it waits for nothing worth a word: read
        /// only while it is blocked.
        wchan: Text = "wchan",
        /// CPU time a second; 100 for one core.
        cpu: Percent = "cpu_percent",
        /// Resident set: memory of the host in use.
        rss: Bytes = "rss_bytes",
    }
}

/// So two processes that share their facts need no look at them to have the same.
impl Eq for ProcessFacts {}
