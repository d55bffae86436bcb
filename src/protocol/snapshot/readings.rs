//! The groups of readings: the list of everything that gputop measures.
//!
//! A new measurement is one line here: its type, its name in JSON and its meaning. The macro
//! derives the JSON form: a missing reading is `null`, and the `missing` map beside it says why.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::missing_by_name::MissingByName;
use super::{
    ArgvDelay, DistributedFacts, GpuUuid, Identity, Missing, Reading, State, Throttle, Xid,
};
use crate::base::text::{Argv, Text};
use crate::base::units::{Bytes, Celsius, Hertz, Moment, Percent, Watts};

/// Defines groups of readings: first the values that are always known, then those that are mostly
/// absent, then those that are a [`Reading`].
macro_rules! reading_groups {
    ($(
        $(#[doc = $doc:literal])+
        $group:ident {
            $( $(#[doc = $known_doc:literal])+ $known:ident: $known_type:ty = $known_key:literal, )*
            $( optional: $( $(#[doc = $optional_doc:literal])+ $optional:ident: $optional_type:ty = $optional_key:literal, )+ )?
            readings:
            $( $(#[doc = $doc_of:literal])+ $reading:ident: $type:ty = $key:literal, )*
        }
    )+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Debug, Clone, PartialEq)]
            pub struct $group {
                $( $(#[doc = $known_doc])+ pub $known: $known_type, )*
                $( $( $(#[doc = $optional_doc])+ pub $optional: Option<$optional_type>, )+ )?
                $( $(#[doc = $doc_of])+ pub $reading: Reading<$type>, )*
            }

            impl $group {
                /// Returns the group with every reading missing for the same reason.
                pub fn missing($($known: $known_type,)* why: Missing) -> Self {
                    Self { $($known,)* $($($optional: None,)+)? $($reading: Err(why),)* }
                }

                /// Returns the names in JSON of the readings that failed.
                pub(crate) fn failed(&self) -> impl Iterator<Item = &'static str> {
                    let whys = [$(($key, self.$reading.as_ref().err().copied()),)*];
                    let failed = whys.into_iter().filter(|(_, why)| *why == Some(Missing::Failed));
                    failed.map(|(name, _)| name)
                }

                /// Returns the name in JSON of the reading in this field.
                pub fn key_of(&self, field: &str) -> &'static str {
                    match field {
                        $( stringify!($reading) => $key, )*
                        _ => "",
                    }
                }
            }

            #[cfg(test)]
            impl crate::protocol::snapshot::arbitrary::Arbitrary for $group {
                fn arbitrary(random: &mut proptest::test_runner::TestRng) -> Self {
                    use crate::protocol::snapshot::arbitrary::Arbitrary;
                    Self {
                        $( $known: Arbitrary::arbitrary(random), )*
                        $( $( $optional: Arbitrary::arbitrary(random), )+ )?
                        $( $reading: Arbitrary::arbitrary(random), )*
                    }
                }
            }

            impl Serialize for $group {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    let mut map = serializer.serialize_map(None)?;
                    $( map.serialize_entry($known_key, &self.$known)?; )*
                    $( $(
                        if let Some(value) = &self.$optional {
                            map.serialize_entry($optional_key, value)?;
                        }
                    )+ )?
                    $( map.serialize_entry($key, &self.$reading.as_ref().ok())?; )*
                    let mut missing: BTreeMap<&str, Missing> = BTreeMap::new();
                    $( if let Err(why) = self.$reading { missing.insert($key, why); } )*
                    if !missing.is_empty() {
                        map.serialize_entry("missing", &missing)?;
                        missing.retain(|_, why| *why == Missing::NotAsked);
                    }
                    if !missing.is_empty() {
                        map.serialize_entry("not_asked", &missing.keys().collect::<Vec<_>>())?;
                    }
                    map.end()
                }
            }

            impl<'de> Deserialize<'de> for $group {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    let wire = wire::$group::deserialize(deserializer)?;
                    // An agent of another version may not know this reading.
                    let why = |key: &'static str| match wire.missing.get(key) {
                        Some(Missing::Unsupported) if wire.not_asked.contains(key) => {
                            Missing::NotAsked
                        }
                        why => why.unwrap_or(Missing::Unsupported),
                    };
                    Ok(Self {
                        $( $reading: wire.$reading.ok_or_else(|| why($key)), )*
                        $( $known: wire.$known, )*
                        $( $( $optional: wire.$optional, )+ )?
                    })
                }
            }

            impl JsonSchema for $group {
                fn schema_name() -> Cow<'static, str> {
                    wire::$group::schema_name()
                }

                fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                    wire::$group::json_schema(generator)
                }
            }
        )+

        /// The groups as JSON.
        mod wire {
            use super::*;
            $(
                $(#[doc = $doc])+
                #[derive(Deserialize, JsonSchema)]
                pub(super) struct $group<'a> {
                    $( $(#[doc = $known_doc])+ #[serde(rename = $known_key)] pub(super) $known: $known_type, )*
                    $( $(
                        $(#[doc = $optional_doc])+ #[serde(rename = $optional_key, default)]
                        pub(super) $optional: Option<$optional_type>,
                    )+ )?
                    $( $(#[doc = $doc_of])+ #[serde(rename = $key)] pub(super) $reading: Option<$type>, )*
                    /// Why a value above is null, by the name of the value.
                    #[serde(default, borrow)]
                    #[schemars(with = "BTreeMap<String, Missing>", extend("default" = {}))]
                    pub(super) missing: MissingByName<'a>,
                    /// The names of values that are null because the agent was not asked for them.
                    /// They are `unsupported` in `missing`. Absent when there is none.
                    #[serde(default)]
                    pub(super) not_asked: BTreeSet<String>,
                }
            )+
        }
    };
}

pub(super) use reading_groups;

reading_groups! {
    /// Static facts about the host.
    HostFacts {
        /// The host name.
        name: Text = "name",
        /// The kernel's ID of this boot: `/proc/sys/kernel/random/boot_id`.
        boot_id: Text = "boot_id",
        /// Clock ticks per second, the unit of start ticks.
        ticks_per_second: u64 = "ticks_per_second",
        /// The user ID that the agent runs as.
        uid: u32 = "agent_uid",
        optional:
        /// The number of GPUs that the kernel module of the driver lists in
        /// `/proc/driver/nvidia/gpus`; absent where it lists none. Where the agent sees fewer, a control
        /// group hides the others, or the driver cannot use them.
        driver_gpus: u32 = "driver_gpus",
        /// The job of Slurm whose control group the agent is in; absent outside of one.
        slurm_job: Text = "agent_slurm_job",
        readings:
        /// The number of logical processors.
        cpus: u32 = "cpus",
        /// Whether `/proc` hides the processes of other users from the agent: it is mounted with
        /// `hidepid`.
        hides_processes: bool = "hides_processes",
        /// How far the local time of the host is ahead of UTC, in seconds.
        utc_offset: i32 = "utc_offset_seconds",
    }

    /// The last scan of every process of the host.
    HostScan {
        /// When the scan ended; 0 before the first one.
        at: Moment = "time_ms",
        /// The number of processes.
        processes: u32 = "processes",
        /// The number of processes whose open files the agent may not read: those of other users,
        /// unless the agent runs as root.
        unreadable: u32 = "unreadable_processes",
        readings:
        /// Memory in use in `/dev/shm`, where `DataLoader` workers leave batches that no process
        /// fetched.
        shm_used: Bytes = "shm_used_bytes",
    }

    /// Readings of the host that change each second.
    HostLoad {
        readings:
        /// Use of all CPUs together; 100 when all are busy.
        cpu: Percent = "cpu_percent",
        /// Runnable and blocked tasks, averaged over 1, 5 and 15 minutes.
        load: [f64; 3] = "load_average",
        /// Memory in use: total minus available.
        memory_used: Bytes = "memory_used_bytes",
        /// Total memory.
        memory_total: Bytes = "memory_total_bytes",
        /// Swap in use.
        swap_used: Bytes = "swap_used_bytes",
        /// Total swap; 0 when there is none.
        swap_total: Bytes = "swap_total_bytes",
    }

    /// Static facts about a GPU.
    GpuFacts {
        /// The index of the GPU in NVML's order; a MIG instance has the index of its GPU.
        index: u32 = "index",
        /// The GPU that this MIG instance is a part of; `null` for a whole GPU.
        parent: Option<GpuUuid> = "parent_uuid",
        /// Whether `--demo` simulates this GPU.
        simulated: bool = "simulated",
        readings:
        /// Product name.
        name: Text = "name",
        /// PCI domain, bus, device and function, as in `00000000:17:00.0`.
        bus_id: Text = "pci_bus_id",
        /// The number of the device file: 0 for `/dev/nvidia0`.
        minor: u32 = "minor_number",
        /// The temperature at which the GPU slows down.
        slowdown_temperature: Celsius = "slowdown_temperature_celsius",
        /// MIG: ID of the GPU instance.
        gpu_instance: u32 = "gpu_instance_id",
        /// MIG: ID of the compute instance.
        compute_instance: u32 = "compute_instance_id",
    }

    /// Readings of a GPU that change each second.
    GpuLoad {
        /// When this group was read.
        at: Moment = "time_ms",
        readings:
        /// Device memory in use, without the memory that the driver reserves: nvidia-smi's
        /// `memory.used`.
        memory_used: Bytes = "memory_used_bytes",
        /// Free device memory.
        memory_free: Bytes = "memory_free_bytes",
        /// Device memory that the driver reserves. Unsupported before driver 510.
        memory_reserved: Bytes = "memory_reserved_bytes",
        /// Total device memory.
        memory_total: Bytes = "memory_total_bytes",
        /// Share of the last sample period in which a kernel ran, however much of the GPU it used.
        sm: Percent = "sm_utilization_percent",
        /// Share of the last sample period in which device memory was read or written.
        memory_bandwidth: Percent = "memory_utilization_percent",
        /// Temperature of the GPU's core.
        temperature: Celsius = "temperature_celsius",
        /// Power draw of the whole board.
        power: Watts = "power_watts",
        /// Clock of the streaming multiprocessors.
        sm_clock: Hertz = "sm_clock_hertz",
        /// Why the SM clock is low; empty when nothing lowers it.
        throttle: Vec<Throttle> = "throttle_reasons",
    }

    /// Readings of a GPU that change rarely.
    GpuHealth {
        /// When this group was read.
        at: Moment = "time_ms",
        /// The Xid errors that the driver reported while the agent ran: the last 16 at most, the
        /// latest last.
        xids: Vec<Xid> = "xids",
        readings:
        /// The power limit in force: nvidia-smi's `enforced.power.limit`.
        power_limit: Watts = "power_limit_watts",
        /// Clock of the device memory.
        memory_clock: Hertz = "memory_clock_hertz",
        /// Performance state, from 0 (`P0`, fastest) to 15 (`P15`, slowest).
        performance_state: u32 = "performance_state",
        /// The number of GPU processes that are left out because the host has more than gputop
        /// lists: those with the least memory. Unsupported while all are listed.
        omitted_processes: u32 = "omitted_processes",
        /// The device memory of the omitted processes. Unsupported while all are listed.
        omitted_memory: Bytes = "omitted_process_memory_bytes",
        /// Intended fan speed; may exceed 100.
        fan: Percent = "fan_speed_percent",
        /// Whether MIG splits the GPU.
        mig: bool = "mig_enabled",
        /// Memory errors that ECC corrected since the driver was loaded.
        ecc_corrected: u64 = "ecc_corrected_errors",
        /// Memory errors that ECC could not correct, since the driver was loaded.
        ecc_uncorrected: u64 = "ecc_uncorrected_errors",
        /// Whether rows of device memory wait for a reset to be remapped.
        remap_pending: bool = "remapped_rows_pending",
        /// Whether a row of device memory could not be remapped, because no spare row is left.
        remap_failed: bool = "remapped_rows_failed",
        /// Whether pages of device memory wait for a reboot to be retired. Only before Ampere.
        retired_pending: bool = "retired_pages_pending",
        /// The recovery that the driver recommends: 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain
        /// and reset, 5 recover the IMEX domain.
        recovery_action: u32 = "recovery_action",
        /// PCIe generation in use.
        pcie_generation: u32 = "pcie_generation",
        /// The number of PCIe lanes in use.
        pcie_width: u32 = "pcie_width",
        /// Whether less than 4 MB per second moved over PCIe in both directions together since this
        /// group was read before: calls of NVML move up to 1 MB. Where the driver has no counters, it
        /// is sampled each 30 seconds while a process holds the GPU and `sm` is 0, else not read.
        pcie_quiet: bool = "pcie_quiet",
        /// Utilization of the video encoder.
        encoder: Percent = "encoder_utilization_percent",
        /// Utilization of the video decoder.
        decoder: Percent = "decoder_utilization_percent",
    }

    /// Memory errors of one kind, by their location.
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
        /// In SRAM on the chip.
        sram: u64 = "sram",
        /// In all locations.
        total: u64 = "total",
    }

    /// PyTorch's allocator stats for one CUDA device of a process, as `torch.cuda.memory_stats()`
    /// returns them.
    DeviceAllocator {
        /// PyTorch's number of the device: 0 for `cuda:0`.
        device: u32 = "cuda_device",
        /// The GPU; `null` when it is not known.
        gpu: Option<GpuUuid> = "gpu_uuid",
        readings:
        /// Memory of tensors: `memory_allocated`.
        allocated: Bytes = "allocated_bytes",
        /// Peak of `allocated_bytes` since the process started or reset its peaks.
        allocated_peak: Bytes = "allocated_peak_bytes",
        /// Memory taken from CUDA, in use or not: `memory_reserved`.
        reserved: Bytes = "reserved_bytes",
        /// Peak of `reserved_bytes`.
        reserved_peak: Bytes = "reserved_peak_bytes",
        /// Memory that is allocated, or freed and still in use by another stream.
        active: Bytes = "active_bytes",
        /// Peak of `active_bytes`.
        active_peak: Bytes = "active_peak_bytes",
        /// Free memory in segments that are partly in use: `empty_cache` cannot return it.
        inactive_split: Bytes = "inactive_split_bytes",
        /// Peak of `inactive_split_bytes`.
        inactive_split_peak: Bytes = "inactive_split_peak_bytes",
        /// Active memory as the program requested it, before rounding.
        requested: Bytes = "requested_bytes",
        /// Peak of `requested_bytes`.
        requested_peak: Bytes = "requested_peak_bytes",
        /// The number of blocks in use by tensors.
        allocations: u64 = "allocations",
        /// The number of segments of device memory taken from CUDA.
        segments: u64 = "segments",
        /// How often PyTorch emptied its cache because CUDA was out of memory.
        retries: u64 = "allocation_retries",
        /// How often memory did not suffice even then: out-of-memory errors.
        ooms: u64 = "out_of_memory_errors",
    }

    /// Readings of a process that change only by an `exec`, a new user ID or a new parent.
    ProcessFacts {
        /// Whether the PID is certain to be the process that NVML means.
        identity: Identity = "identity",
        optional:
        /// Why the arguments and the environment take long; absent while they do not.
        argv_delay: ArgvDelay = "argv_delay",
        /// How long before its start a process of the simulated machine pretends to have begun, in
        /// milliseconds; absent for all other processes.
        simulated_past_ms: u64 = "simulated_past_ms",
        /// The facts in the environment about the distributed job that the process works for; absent
        /// when there are none, or it could not be read.
        distributed: Box<DistributedFacts> = "distributed",
        readings:
        /// The real user ID.
        uid: u32 = "uid",
        /// The user name; the user ID where the user has no name.
        user: Text = "user",
        /// The PID of the parent; 0 when the parent is in another PID namespace.
        parent: u32 = "parent_pid",
        /// The process group: the PID of the group leader.
        group: u32 = "process_group_id",
        /// The session: the PID of the session leader.
        session: u32 = "session_id",
        /// The kernel's name of the process, 15 bytes at most.
        comm: Text = "comm",
        /// The arguments, 4 KiB at most.
        argv: Argv = "argv",
        /// The job system, container runtime or terminal multiplexer that started the process, from
        /// its control group and environment, as in `slurm 4711`, `docker 3f2a91`, `kubernetes
        /// 1b2c`, `tmux`. Unsupported when none is found.
        origin: Text = "origin",
        /// The file through which the control group of the process was frozen, as by `docker
        /// pause`: `cgroup.freeze`, where `0` thaws it, or `freezer.state`, where `THAWED` does.
        /// Unsupported when the process is not known to be frozen.
        frozen_by: Text = "freezer_file",
        /// `TORCHELASTIC_RUN_ID`: the `torchrun` run of the process. Unsupported when it is not
        /// set.
        elastic_run: Text = "torchelastic_run_id",
        /// The launcher that started the process and waits for its end, as the environment shows:
        /// `accelerate`, `deepspeed`. Unsupported when it shows none.
        launcher: Text = "waiting_launcher",
        /// `RANK`, or else `LOCAL_RANK`, of a distributed run. Unsupported when neither is set.
        rank: Text = "rank",
        /// Whether the process was forked and has called no `exec` since: its memory began as a
        /// copy of its creator's.
        forked: bool = "forked",
        /// The PID that the process was started to serve, once that process has ended:
        /// `--parent=PID` of a compile worker, `JPY_PARENT_PID` of a notebook's kernel. Unsupported
        /// while the other process lives, when none is named, and when the number belongs to
        /// another PID namespace.
        ended_served: u32 = "ended_served_pid",
        /// Whether the process has threads that only a training process has: `pt_autograd_*`,
        /// `pt_data_pin`, `pt_nccl_*`. Unsupported for processes that are no GPU process.
        trainer_threads: bool = "has_trainer_threads",
    }

    /// Readings of a process that change each second.
    ProcessLoad {
        readings:
        /// The state.
        state: State = "state",
        /// The number of threads.
        threads: u32 = "threads",
        /// The kernel function that the process waits in; read only while it is blocked.
        /// Unsupported when the process waits in none.
        wchan: Text = "wchan",
        /// CPU use; 100 for one core.
        cpu: Percent = "cpu_percent",
        /// Resident set size: host memory in use.
        rss: Bytes = "rss_bytes",
    }
}

/// With `Eq`, comparing two `Arc`s of the same facts compares only the pointers.
impl Eq for ProcessFacts {}
