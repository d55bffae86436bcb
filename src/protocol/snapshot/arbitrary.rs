//! Random snapshots for property tests. Every field has a random value: a type or field without one
//! does not compile.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::TestRng;

use super::{
    AgentFacts, AllocationLines, AllocatorStats, AllocatorUnreadable, ArgvDelay, Cause,
    ChangesSince, DistributedFacts, Driver, EngineShares, Failure, Gpu, GpuProcess, GpuUuid, Host,
    HostFacts, Identity, KeptResult, LineMemory, MarkPair, MarkedDevice, Missing, MissingLists,
    ModuleMemory, ModuleRow, OmittedChange, OmittedGroups, PeakParts, ProbeAnswer, ProbeDevice,
    ProbeMissing, ProbeReading, ProbeReport, Process, ProcessId, ProcessNames, ProgramMark,
    Reading, Route, SharedMemory, Snapshot, StackRecording, State, StepEnd, TensorCategory,
    TensorFill, TensorGroup, TensorLeak, Throttle, TrainingSteps, Trouble, Use, Xid,
};
use crate::base::text::{Argv, Text};
use crate::base::units::{Bytes, Celsius, Hertz, Moment, Percent, Watts};

/// A type with random values.
pub(crate) trait Arbitrary {
    fn arbitrary(random: &mut TestRng) -> Self;
}

/// Returns a pair of snapshots of which a tick can lead from the first to the second: of one boot,
/// with the same GPUs. Everything else differs at random.
pub(crate) fn consecutive_snapshots() -> impl Strategy<Value = (Snapshot, Snapshot)> {
    Just(()).prop_perturb(|(), mut random| {
        let old = Snapshot::arbitrary(&mut random);
        let new = successor(&old, &mut random);
        (old, new)
    })
}

fn successor(old: &Snapshot, random: &mut TestRng) -> Snapshot {
    Snapshot {
        schema: old.schema,
        sequence: old.sequence + 1,
        at: old_or_new(&old.at, random),
        unix_ms: old_or_new(&old.unix_ms, random),
        interval_ms: old_or_new(&old.interval_ms, random),
        agent: old.agent.clone(),
        host: Host {
            facts: HostFacts {
                boot_id: old.host.facts.boot_id.clone(),
                ..old_or_new(&old.host.facts, random)
            },
            load: old_or_new(&old.host.load, random),
            scan: old_or_new(&old.host.scan, random),
        },
        driver: old_or_new(&old.driver, random),
        gpus: old
            .gpus
            .iter()
            .map(|gpu| gpu_successor(gpu, random))
            .collect(),
        processes: processes_successor(&old.processes, random),
    }
}

fn gpu_successor(old: &Gpu, random: &mut TestRng) -> Gpu {
    let mut processes = old_or_new(&old.processes, random);
    for gpu_process in &mut processes {
        gpu_process.memory = old_or_new(&gpu_process.memory, random);
        gpu_process.sm = old_or_new(&gpu_process.sm, random);
    }
    Gpu {
        uuid: old.uuid.clone(),
        facts: old_or_new(&old.facts, random),
        load: old_or_new(&old.load, random),
        health: old_or_new(&old.health, random),
        shared_memory: old_or_new(&old.shared_memory, random),
        detail: old_or_new(&old.detail, random),
        processes,
        missing: old_or_new(&old.missing, random),
        device_file_holders: old_or_new(&old.device_file_holders, random),
        trouble: old_or_new(&old.trouble, random),
        failures: old_or_new(&old.failures, random),
    }
}

fn processes_successor(old: &[Process], random: &mut TestRng) -> Vec<Process> {
    let mut processes = Vec::<Process>::arbitrary(random);
    for process in old {
        if bool::arbitrary(random) {
            processes.push(Process {
                id: process.id,
                facts: old_or_new(&process.facts, random),
                load: old_or_new(&process.load, random),
                allocator: old_or_new(&process.allocator, random),
                probe: old_or_new(&process.probe, random),
                bytes_read: old_or_new(&process.bytes_read, random),
            });
        }
    }
    by_id(processes)
}

fn by_id(mut processes: Vec<Process>) -> Vec<Process> {
    processes.sort_by_key(|process| process.id);
    processes.dedup_by_key(|process| process.id);
    processes
}

fn old_or_new<T: Arbitrary + Clone>(old: &T, random: &mut TestRng) -> T {
    if bool::arbitrary(random) {
        old.clone()
    } else {
        T::arbitrary(random)
    }
}

fn one_of<T: Copy>(values: &[T], random: &mut TestRng) -> T {
    values[random.random_range(0..values.len())]
}

/// Implements [`Arbitrary`] for structs by all of their fields.
macro_rules! arbitrary_structs {
    ($($type:ident { $($field:ident),* })+) => {
        $(impl Arbitrary for $type {
            fn arbitrary(random: &mut TestRng) -> Self {
                Self { $($field: Arbitrary::arbitrary(random)),* }
            }
        })+
    };
}

arbitrary_structs! {
    AgentFacts { program, abilities }
    Host { facts, load, scan }
    Driver { version, cuda_version, trouble, failures }
    Gpu { uuid, facts, load, health, shared_memory, detail, processes, missing, device_file_holders, trouble, failures }
    SharedMemory { used, total }
    MissingLists { processes, processes_not_asked }
    GpuProcess { process, usage, memory, sm, engines, names }
    EngineShares { memory_percent, encoder_percent, decoder_percent }
    ProcessNames { user, command, origin }
    Process { id, facts, load, allocator, probe, bytes_read }
    ProcessId { pid, start_ticks }
    AllocatorStats { devices, unreadable }
    ProbeReading { report, missing }
    ProbeReport { version, unix_time, at, torch, python, steps, devices, groups, groups_left_out, changes_since, marks, mark_pairs, leaks, fills, recording, answer, trouble }
    TrainingSteps { count, seconds, source }
    ProbeDevice { device, gpu, unix_time, moment, allocated, reserved, requested, categories, optimizer_state, floor, peak, peak_step, peak_base, step_end }
    StepEnd { step, allocated, reserved, requested, categories, optimizer_state }
    TensorGroup { device, category, shape, dtype, block, kind, count, bytes, age_steps, count_change, bytes_change, part, allocated_at }
    OmittedGroups { count, bytes }
    ChangesSince { step, mark }
    ProbeAnswer { id, request, ok, error, path, bytes, steps, lines, peak, compared, modules, kept }
    ModuleMemory { device, peak, before, outside, backward, rows, rows_left_out }
    ModuleRow { path, kind, calls, activations, peak }
    KeptResult { device, names, line, bytes }
    ProgramMark { name, step, unix_time, at }
    MarkPair { since, until, seconds, times, devices, groups_from, groups, groups_left_out }
    MarkedDevice { device, allocated, bytes_change, total_bytes_change }
    OmittedChange { count, bytes_change }
    LineMemory { bytes, count, line }
    PeakParts { device, peak, categories, lines, is_complete }
    TensorLeak { device, category, shape, dtype, bytes_per_step, bytes_per_second, bytes, count_per_step, steps, allocated_at, held_by, path, cause, title, sure, advice }
    TensorFill { held_by, limit, length, bytes }
    AllocationLines { user, inner }
    StackRecording { state, cost_percent, steps_left }
    DistributedFacts {
        rank, rank_variable, local_rank, world_size, local_world_size, group_rank, master_address, master_port,
        restart_count, slurm_cluster, slurm_job_id, slurm_array_job_id, slurm_array_task_id, slurm_job_name,
        mpi_namespace, ray_job_id
    }
    Trouble { cause, sentence, call, since }
    Failure { call, error, since }
    Xid { at, code }
    Route { to, level, nvlink }
}

impl Arbitrary for Snapshot {
    fn arbitrary(random: &mut TestRng) -> Self {
        let mut gpus = Vec::<Gpu>::arbitrary(random);
        for (index, gpu) in gpus.iter_mut().enumerate() {
            gpu.uuid = GpuUuid(format!("GPU-{index}").into());
        }
        Self {
            schema: Self::SCHEMA,
            sequence: u32::arbitrary(random).into(),
            at: Arbitrary::arbitrary(random),
            unix_ms: Arbitrary::arbitrary(random),
            interval_ms: Arbitrary::arbitrary(random),
            agent: Arbitrary::arbitrary(random),
            host: Arbitrary::arbitrary(random),
            driver: Arbitrary::arbitrary(random),
            gpus,
            processes: by_id(Arbitrary::arbitrary(random)),
        }
    }
}

/// Implements [`Arbitrary`] by an expression.
macro_rules! arbitrary_values {
    ($($type:ty: |$random:ident| $value:expr;)+) => {
        $(impl Arbitrary for $type {
            fn arbitrary($random: &mut TestRng) -> Self {
                $value
            }
        })+
    };
}

arbitrary_values! {
    bool: |random| random.random();
    u32: |random| one_of(&[0, 1, 2, u32::MAX], random);
    u64: |random| one_of(&[0, 1, 2, u64::MAX], random);
    i64: |random| one_of(&[-1, 0, 1, i64::MIN], random);
    i32: |random| one_of(&[-1, 0, 1, i32::MIN], random);
    f64: |random| one_of(&[0.0, 0.25, 12.5], random);
    Text: |random| one_of(&["", "python", "été", "\u{1b}[2J"], random).into();
    Argv: |random| Vec::<Text>::arbitrary(random).into_iter().collect();
    Bytes: |random| Self(u64::arbitrary(random));
    Moment: |random| Self(one_of(&[0, 1, 2, 1_000_000], random));
    Hertz: |random| Self(u64::arbitrary(random));
    Celsius: |random| Self(i32::arbitrary(random));
    Watts: |random| Self::from_milliwatts(random.random_range(0..1_000_000));
    Percent: |random| Self::new(random.random_range(0.0..1000.0));
    GpuUuid: |random| Self(Text::arbitrary(random));
    Missing: |random| one_of(&[Self::Unsupported, Self::Denied, Self::Gone, Self::Failed, Self::NotYet], random);
    Identity: |random| one_of(&[Self::Sure, Self::Fresh, Self::Unverified], random);
    State: |random| one_of(&[Self::Running, Self::Zombie, Self::Other], random);
    Use: |random| one_of(&[Self::Compute, Self::Graphics, Self::ComputeAndGraphics, Self::Mps], random);
    Throttle: |random| one_of(&[Self::PowerCap, Self::HardwareThermal], random);
    Cause: |random| one_of(&[Self::Hung, Self::NoLibrary, Self::Lost], random);
    ProbeMissing: |random| one_of(&[Self::NotStarted, Self::Damaged], random);
    TensorCategory: |random| one_of(&[Self::Parameters, Self::Activations, Self::Other], random);
    ArgvDelay: |random| one_of(&[Self::Hung, Self::NoReader], random);
    AllocatorUnreadable: |random| one_of(&[Self::NotYet, Self::PtraceScope, Self::Hung], random);
}

impl<T: Arbitrary> Arbitrary for Reading<T> {
    fn arbitrary(random: &mut TestRng) -> Self {
        // Most readings are known: otherwise, hardly any two lists of GPU processes would differ by
        // columns alone.
        if random.random_range(0..8) > 0 {
            Ok(T::arbitrary(random))
        } else {
            Err(Missing::arbitrary(random))
        }
    }
}

impl<T: Arbitrary> Arbitrary for Option<T> {
    fn arbitrary(random: &mut TestRng) -> Self {
        bool::arbitrary(random).then(|| T::arbitrary(random))
    }
}

impl<T: Arbitrary> Arbitrary for Vec<T> {
    fn arbitrary(random: &mut TestRng) -> Self {
        (0..random.random_range(0..4))
            .map(|_| T::arbitrary(random))
            .collect()
    }
}

impl<Key: Arbitrary + Ord, T: Arbitrary> Arbitrary for BTreeMap<Key, T> {
    fn arbitrary(random: &mut TestRng) -> Self {
        (0..random.random_range(0..4))
            .map(|_| (Key::arbitrary(random), T::arbitrary(random)))
            .collect()
    }
}

impl<T: Arbitrary, const N: usize> Arbitrary for [T; N] {
    fn arbitrary(random: &mut TestRng) -> Self {
        std::array::from_fn(|_| T::arbitrary(random))
    }
}

impl<T: Arbitrary> Arbitrary for Box<T> {
    fn arbitrary(random: &mut TestRng) -> Self {
        Self::new(T::arbitrary(random))
    }
}

impl<T: Arbitrary> Arbitrary for Arc<T> {
    fn arbitrary(random: &mut TestRng) -> Self {
        Self::new(T::arbitrary(random))
    }
}
