//! Assigns a GPU to each CUDA device of a process.
//!
//! CUDA numbers the devices of a process from 0, in an order that the environment may change, and
//! that the program may change after its start. NVML reports which GPUs the process uses, and how
//! much memory of each. The first rule that applies counts:
//!
//! 1. The process has used one device, and NVML lists it on one GPU.
//! 2. The order of `CUDA_VISIBLE_DEVICES`, or of all GPUs if it is not set. It must have as many
//!    devices as PyTorch sees, and NVML must list the process on the GPU of each used device. CUDA's
//!    own order starts with the fastest GPU: it is the bus order if all GPUs are alike, and unknown
//!    otherwise.
//! 3. The only assignment in which the reserved memory of each device fits the memory that NVML
//!    reports.
//! 4. The process sees as many devices as NVML lists GPUs, and runs in a container or job that may
//!    show it only these. Their order counts, and `CUDA_VISIBLE_DEVICES` numbers them. Elsewhere, a
//!    program that sees so many devices chose them itself after its start, in an unknown order.
//!
//! Rules 2 and 4 do not hold if one device has much more reserved than another, and its GPU much
//! less memory: the program may have set another `CUDA_VISIBLE_DEVICES` after its start.
//!
//! Rules 2 to 4 give way to what later changes of memory prove:
//! [`device_proof`](super::device_proof).
//!
//! Otherwise the GPU is unknown, and is shown so.

use super::device_proof::{DeviceProof, GpuAmount};
use super::device_stats::DeviceStats;
use super::{AllocatorReading, ReadOutcome, StatsOwner, locate::MOST_DEVICES};
use crate::agent::procfs::CudaEnvironment;
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::protocol::snapshot::{
    AllocatorStats, AllocatorUnreadable, DeviceAllocator, Gpu, GpuUuid, Missing, ProcessId, Reading,
};
use crate::protocol::visible_gpus::{CudaVariables, are_alike};

/// By how many bytes the reserved memory may exceed NVML's figure, which was read a moment before.
const NVML_DELAY: u64 = 1 << 30;
/// The most bytes that a process has besides PyTorch's: the context, kernels, NCCL buffers.
const MOST_OVERHEAD: u64 = 4 << 30;
/// By how many bytes amounts of two devices differ at least to contradict their order. GPUs that
/// are alike have contexts of almost the same size.
const CONTRADICTION: u64 = 512 << 20;
/// The most assignments of the first devices that are kept while the only assignment of all devices
/// is searched for.
const MOST_ASSIGNMENTS: usize = 1000;

/// The memory of a process on one GPU, as NVML reports it.
struct GpuMemory {
    /// The index of the GPU in the snapshot.
    gpu: usize,
    memory: Reading<Bytes>,
}

impl GpuMemory {
    fn amount(&self, gpus: &[Gpu]) -> Reading<GpuAmount> {
        let gpu = &gpus[self.gpu];
        self.memory.map(|memory| GpuAmount {
            gpu: gpu.uuid.clone(),
            bytes: memory.0,
            at: gpu.load.at,
        })
    }

    /// Whether the reserved memory of a device can be a part of this memory.
    fn has_room(&self, stats: &DeviceStats) -> bool {
        self.memory.map_or(true, |memory| {
            stats.reserved.current <= memory.0.saturating_add(NVML_DELAY)
        })
    }

    /// Whether the reserved memory of a device can be all of this memory but the overhead.
    fn fits(&self, stats: &DeviceStats) -> bool {
        self.has_room(stats)
            && self
                .memory
                .is_ok_and(|memory| memory.0.saturating_sub(stats.reserved.current) < MOST_OVERHEAD)
    }
}

/// Converts the result of reading a process to the protocol's type, with the GPU of each device.
/// `proof` is kept for the next pass; `None` while the process uses one GPU.
pub(in crate::agent) fn allocator_stats(
    result: &ReadOutcome,
    process: ProcessId,
    gpus: &[Gpu],
    cuda: &CudaEnvironment,
    proof: &mut Option<DeviceProof>,
) -> AllocatorStats {
    let AllocatorReading { devices, owner } = match result {
        Ok(reading) => reading,
        Err(AllocatorUnreadable::NoPytorch) => {
            // The process runs another program now, or never ran PyTorch.
            *proof = None;
            return AllocatorStats::unreadable(AllocatorUnreadable::NoPytorch);
        }
        Err(AllocatorUnreadable::NotYet) if cuda.is_uncached => {
            return AllocatorStats::unreadable(AllocatorUnreadable::Uncached);
        }
        Err(why) => return AllocatorStats::unreadable(*why),
    };
    let mut used_gpus = used_gpus(gpus, process);
    let total: Reading<Vec<Bytes>> = used_gpus.iter().map(|used| used.memory).collect();
    let total = total.map(|memory| memory.into_iter().sum::<Bytes>());
    let reserved: Bytes = devices
        .iter()
        .map(|device| Bytes(device.reserved.current))
        .sum();
    if let Some(why) = why_copied(*owner, total, reserved) {
        return AllocatorStats::unreadable(why);
    }
    if total.is_ok_and(|total| total.0.saturating_add(NVML_DELAY) < reserved.0) {
        // Amounts that are wrong cannot tell one GPU from another.
        for used in &mut used_gpus {
            used.memory = Err(Missing::NotYet);
        }
    }
    let mut assigned = assign_gpus(devices, &used_gpus, gpus, cuda);
    if used_gpus.len() > 1 {
        let proof = proof.get_or_insert_default();
        if let Ok(amounts) = used_gpus.iter().map(|used| used.amount(gpus)).collect() {
            proof.observe(devices, amounts);
        }
        assigned = proof.correct(assigned, gpus);
    }
    let numbered = (0..).zip(devices.iter()).zip(assigned);
    let used = numbered.filter(|((_, stats), _)| stats.is_used());
    let allocators = used.map(|((number, stats), gpu)| {
        let gpu = gpu.and_then(|index| gpus.get(index));
        device_allocator(number, stats, gpu.map(|gpu| gpu.uuid.clone()))
    });
    AllocatorStats {
        devices: allocators.collect(),
        unreadable: None,
    }
}

/// Returns the GPUs that a process uses.
fn used_gpus(gpus: &[Gpu], process: ProcessId) -> Vec<GpuMemory> {
    let on_gpu = |(index, gpu): (usize, &Gpu)| {
        let memory = gpu.process(process)?.memory;
        Some(GpuMemory { gpu: index, memory })
    };
    gpus.iter().enumerate().filter_map(on_gpu).collect()
}

/// Returns why the stats are, or may be, a copy of another process's; `None` if they are not.
///
/// A copy may claim more memory than NVML reports. So may the process's own stats: some containers
/// hide a part from NVML, and NVML's figure is from a moment before. Then the difference is shown.
fn why_copied(
    owner: StatsOwner,
    total: Reading<Bytes>,
    reserved: Bytes,
) -> Option<AllocatorUnreadable> {
    let claims_more = total.is_ok_and(|total| total < reserved);
    match owner {
        StatsOwner::Own => None,
        StatsOwner::Inherited => Some(AllocatorUnreadable::Copied),
        StatsOwner::Unknown | StatsOwner::Orphaned if claims_more => {
            Some(AllocatorUnreadable::Copied)
        }
        StatsOwner::Unknown => None,
        StatsOwner::Orphaned => Some(AllocatorUnreadable::MaybeCopied),
    }
}

fn device_allocator(number: u32, stats: &DeviceStats, gpu: Option<GpuUuid>) -> DeviceAllocator {
    let bytes = |amount| Ok(Bytes(amount));
    DeviceAllocator {
        allocated: bytes(stats.allocated.current),
        allocated_peak: bytes(stats.allocated.peak),
        reserved: bytes(stats.reserved.current),
        reserved_peak: bytes(stats.reserved.peak),
        active: bytes(stats.active.current),
        active_peak: bytes(stats.active.peak),
        inactive_split: bytes(stats.inactive_split.current),
        inactive_split_peak: bytes(stats.inactive_split.peak),
        requested: bytes(stats.requested.current),
        requested_peak: bytes(stats.requested.peak),
        allocations: Ok(stats.allocations.current),
        segments: Ok(stats.segments.current),
        retries: Ok(stats.retries),
        ooms: Ok(stats.ooms),
        ..DeviceAllocator::missing(number, gpu, Missing::NotYet)
    }
}

/// Returns the index of the GPU of each device. `None` where the GPU is unknown.
fn assign_gpus(
    stats: &[DeviceStats],
    used_gpus: &[GpuMemory],
    gpus: &[Gpu],
    cuda: &CudaEnvironment,
) -> Vec<Option<usize>> {
    let used: Vec<usize> = (0..stats.len())
        .filter(|device| stats[*device].is_used())
        .collect();
    let mut assigned = vec![None; stats.len()];
    if let ([device], [only]) = (used.as_slice(), used_gpus) {
        assigned[*device] = Some(only.gpu);
        return assigned;
    }
    let has_room = |device: usize, gpu: usize| {
        used_gpus
            .iter()
            .any(|used| used.gpu == gpu && used.has_room(&stats[device]))
    };
    let is_possible =
        |order: &Vec<usize>| used.iter().all(|device| has_room(*device, order[*device]));
    let memory = |gpu: usize| used_gpus.iter().find(|used| used.gpu == gpu)?.memory.ok();
    let is_contradicted = |order: &[usize]| {
        let amounts: Vec<(u64, u64)> = used
            .iter()
            .filter_map(|device| Some((stats[*device].reserved.current, memory(order[*device])?.0)))
            .collect();
        let exceeds = |more: u64, less: u64| more.saturating_sub(less) > CONTRADICTION;
        let is_reverse = |a: &(u64, u64), b: &(u64, u64)| exceeds(a.0, b.0) && exceeds(b.1, a.1);
        amounts
            .iter()
            .any(|a| amounts.iter().any(|b| is_reverse(a, b)))
    };
    let by_environment = visible_gpus(gpus, cuda).filter(|order| order.len() == stats.len());
    if let Some(order) = by_environment.filter(is_possible) {
        // Memory of other libraries may be the reason as well, so the reverse order is no more
        // certain.
        return if is_contradicted(&order) {
            assigned
        } else {
            order.into_iter().map(Some).collect()
        };
    }
    if let Some(order) = by_memory(&used, stats, used_gpus) {
        for (device, gpu) in used.iter().zip(order) {
            assigned[*device] = Some(gpu);
        }
        return assigned;
    }
    let own: Vec<usize> = used_gpus.iter().map(|used| used.gpu).collect();
    let confined: Option<Vec<usize>> = match &cuda.visible {
        None => Some(own.clone()),
        Some(visible) => visible
            .as_str()
            .split(',')
            .map(|index| own.get(index.trim().parse::<usize>().ok()?).copied())
            .collect(),
    };
    let confined = confined
        .filter(|order| cuda.is_confined && order.len() == stats.len() && are_alike(gpus, &own));
    match confined
        .filter(is_possible)
        .filter(|order| !is_contradicted(order))
    {
        Some(order) => order.into_iter().map(Some).collect(),
        None => assigned,
    }
}

/// Returns the indices of the GPUs that the environment makes visible, in CUDA's order. `None` when
/// the order is unknown.
fn visible_gpus(gpus: &[Gpu], cuda: &CudaEnvironment) -> Option<Vec<usize>> {
    let visible = cuda.visible.as_ref().map(Text::as_str);
    let order = cuda.order.as_ref().map(Text::as_str);
    let order = CudaVariables { visible, order }.visible_gpus(gpus)?;
    (!order.is_empty() && order.len() <= MOST_DEVICES).then_some(order)
}

/// Returns the only assignment in which each device fits the memory of its GPU. `None` when there
/// is none, or more than one.
fn by_memory(used: &[usize], stats: &[DeviceStats], used_gpus: &[GpuMemory]) -> Option<Vec<usize>> {
    let mut assignments: Vec<Vec<usize>> = vec![vec![]];
    for device in used {
        let fitting = || {
            used_gpus
                .iter()
                .filter(|used| used.fits(&stats[*device]))
                .map(|used| used.gpu)
        };
        let longer = assignments.iter().flat_map(|assigned| {
            let free = fitting().filter(|gpu| !assigned.contains(gpu));
            free.map(|gpu| [assigned.as_slice(), &[gpu]].concat())
        });
        assignments = longer.take(MOST_ASSIGNMENTS + 1).collect();
        if assignments.len() > MOST_ASSIGNMENTS {
            return None;
        }
    }
    let only = assignments.pop()?;
    assignments.is_empty().then_some(only)
}

#[cfg(test)]
mod tests {
    use super::super::device_stats::CurrentAndPeak;
    use super::*;
    use crate::protocol::snapshot::example::host;
    use crate::protocol::snapshot::{GpuUuid, Snapshot};

    /// Returns the statistics of devices with these amounts reserved, in GiB. A device with 0 is
    /// unused.
    fn devices(reserved: &[u64]) -> Vec<DeviceStats> {
        let stat = |gib: u64| CurrentAndPeak {
            current: gib << 30,
            peak: gib << 30,
        };
        let device = |gib: &u64| DeviceStats {
            reserved: stat(*gib),
            ..DeviceStats::default()
        };
        reserved.iter().map(device).collect()
    }

    /// Checks the GPUs of the used devices, where NVML reports `held` GiB of each GPU.
    #[track_caller]
    fn check(reserved: &[u64], held: &[u64], visible: Option<&str>, expected: &[Option<u32>]) {
        check_on(
            host(u32::try_from(held.len()).unwrap()),
            reserved,
            held,
            (visible, None, false),
            expected,
        );
    }

    /// As `check`, for a process in a container.
    #[track_caller]
    fn check_confined(
        reserved: &[u64],
        held: &[u64],
        visible: Option<&str>,
        expected: &[Option<u32>],
    ) {
        check_on(
            host(u32::try_from(held.len()).unwrap()),
            reserved,
            held,
            (visible, None, true),
            expected,
        );
    }

    /// As `check`, on the GPUs of this snapshot, with `CUDA_VISIBLE_DEVICES`, `CUDA_DEVICE_ORDER`,
    /// and whether the process is confined.
    #[track_caller]
    fn check_on(
        mut snapshot: Snapshot,
        reserved: &[u64],
        held: &[u64],
        (visible, order, is_confined): (Option<&str>, Option<&str>, bool),
        expected: &[Option<u32>],
    ) {
        for (gpu, gib) in held.iter().enumerate().filter(|(_, gib)| **gib > 0) {
            snapshot = snapshot.with(7, "python train.py", gpu, Bytes::from_gib(*gib));
        }
        let cuda = CudaEnvironment {
            visible: visible.map(Into::into),
            order: order.map(Into::into),
            is_confined,
            is_uncached: false,
        };
        let result = Ok(AllocatorReading {
            devices: devices(reserved).into(),
            owner: StatsOwner::Own,
        });
        let allocator = allocator_stats(
            &result,
            snapshot.processes[0].id,
            &snapshot.gpus,
            &cuda,
            &mut None,
        );
        let index = |device: &DeviceAllocator| {
            let index = snapshot
                .gpus
                .iter()
                .position(|gpu| Some(&gpu.uuid) == device.gpu.as_ref());
            index.map(|index| u32::try_from(index).unwrap())
        };
        assert_eq!(
            allocator.devices.iter().map(index).collect::<Vec<_>>(),
            expected,
            "{reserved:?} of {held:?}, {visible:?}"
        );
    }

    #[test]
    fn one_device_and_one_gpu_belong_together() {
        check(&[10], &[0, 11], None, &[Some(1)]);
        // The program uses one of all devices that it sees.
        check(&[0, 0, 10], &[0, 11, 0], Some("0,1,2"), &[Some(1)]);
    }

    #[test]
    fn the_environment_decides_the_order() {
        check(&[10, 10, 0], &[11, 11, 0], None, &[Some(0), Some(1)]);
        check(&[10, 10], &[11, 0, 11], Some("2,0"), &[Some(2), Some(0)]);
        check(
            &[10, 10],
            &[11, 0, 11],
            Some("GPU-2, GPU-0"),
            &[Some(2), Some(0)],
        );
        // CUDA ignores all devices after one that does not exist.
        check(
            &[10, 10],
            &[11, 0, 11],
            Some("2,0,-1,1"),
            &[Some(2), Some(0)],
        );
    }

    #[test]
    fn each_process_of_a_job_has_its_own_gpu_of_eight() {
        let one = |place: usize, gib| {
            (0..8)
                .map(|gpu| if gpu == place { gib } else { 0 })
                .collect::<Vec<_>>()
        };
        for rank in 0..8 {
            let gpu = Some(u32::try_from(rank).unwrap());
            check(&one(rank, 10), &one(rank, 11), None, &[gpu]);
            // Each process has a context on the first GPU too, as large as its memory on its own
            // GPU.
            let mut held = one(rank, 11);
            held[0] = 11;
            check(&one(rank, 10), &held, None, &[gpu]);
            // Each process was given one GPU.
            check(&[10], &held, Some(&rank.to_string()), &[gpu]);
        }
    }

    #[test]
    fn different_gpus_are_in_bus_order_only_with_pci_bus_id() {
        let differ = || {
            let mut host = host(3);
            host.gpus[2].facts.name = Ok("NVIDIA A100-SXM4-80GB".into());
            host
        };
        let held = [11, 11, 11];
        check_on(
            differ(),
            &[10, 10],
            &held,
            (Some("2,0"), Some("PCI_BUS_ID"), false),
            &[Some(2), Some(0)],
        );
        check_on(
            differ(),
            &[10, 10, 10],
            &held,
            (None, Some("PCI_BUS_ID"), false),
            &[Some(0), Some(1), Some(2)],
        );
        // The fastest GPU comes first, and which one that is cannot be known.
        check_on(
            differ(),
            &[10, 10],
            &held,
            (Some("2,0"), None, false),
            &[None, None],
        );
        check_on(
            differ(),
            &[10, 10],
            &held,
            (Some("2,0"), Some("FASTEST_FIRST"), false),
            &[None, None],
        );
        check_on(
            differ(),
            &[10, 10, 10],
            &held,
            (None, None, false),
            &[None, None, None],
        );
        // A UUID names one GPU in any order.
        check_on(
            differ(),
            &[10, 10],
            &held,
            (Some("GPU-2,GPU-1"), None, false),
            &[Some(2), Some(1)],
        );
    }

    #[test]
    fn a_uuid_names_a_gpu_or_a_mig_instance_and_may_be_shortened() {
        let split = || {
            let mut host = host(4);
            let parent = host.gpus[1].uuid.clone();
            for (gpu, id) in [(2, "MIG-5f0a-1"), (3, "MIG-77b1-2")] {
                host.gpus[gpu].uuid = GpuUuid(id.into());
                host.gpus[gpu].facts.parent = Some(parent.clone());
            }
            host
        };
        let held = [11, 0, 11, 11];
        let check = |visible, expected: &[Option<u32>]| {
            check_on(
                split(),
                &vec![10; expected.len()],
                &held,
                (Some(visible), None, false),
                expected,
            );
        };
        check("MIG-77b1-2,MIG-5f0a-1", &[Some(3), Some(2)]);
        // CUDA shows instances or whole GPUs.
        check("MIG-77b1-2,GPU-0", &[None, None]);
        check("MIG-77,MIG-5f", &[Some(3), Some(2)]);
        // Two UUIDs begin with `MIG-`. Numbers never mean MIG instances.
        check("MIG-,GPU-0", &[None, None]);
        check("2,3", &[None, None]);
    }

    #[test]
    fn in_a_container_only_visible_gpus_are_counted() {
        check_confined(&[10, 10], &[0, 11, 11], Some("1,0"), &[Some(2), Some(1)]);
        check_confined(&[10, 10], &[0, 11, 11], Some("0,1"), &[Some(1), Some(2)]);
        check_confined(&[10, 10], &[0, 11, 11], None, &[Some(1), Some(2)]);
    }

    #[test]
    fn outside_of_a_container_a_program_that_sees_fewer_gpus_chose_an_unknown_order() {
        // The program sets `os.environ["CUDA_VISIBLE_DEVICES"] = "2,1"` after it was started with
        // another value, or none.
        for started_with in [Some("1,0"), Some("0,1"), None] {
            check(&[10, 10], &[0, 11, 11], started_with, &[None, None]);
        }
    }

    #[test]
    fn an_environment_that_contradicts_nvml_is_ignored() {
        // The variable names one device and PyTorch sees two; or it names GPUs on which NVML does
        // not list the process.
        check(&[10, 20], &[21, 0, 11], Some("1"), &[Some(2), Some(0)]);
        check(&[10, 20], &[21, 0, 11], Some("1,2"), &[Some(2), Some(0)]);
    }

    #[test]
    fn memory_decides_if_only_one_assignment_fits() {
        check(&[30, 10], &[11, 0, 31, 0], None, &[Some(2), Some(0)]);
        // Both assignments fit, and no other rule applies.
        check(
            &[10, 10, 0, 0, 0],
            &[0, 11, 11, 11],
            Some("9"),
            &[None, None],
        );
    }

    #[test]
    fn more_memory_than_nvml_reports_is_a_copy_or_is_shown() {
        let snapshot = host(2)
            .with(7, "python train.py", 0, Bytes::from_gib(2))
            .with(7, "", 1, Bytes(0));
        let read = |reserved: &[u64], owner| {
            let result = Ok(AllocatorReading {
                devices: devices(reserved).into(),
                owner,
            });
            let environment = CudaEnvironment::default();
            allocator_stats(
                &result,
                snapshot.processes[0].id,
                &snapshot.gpus,
                &environment,
                &mut None,
            )
        };
        assert_eq!(
            read(&[0, 20], StatsOwner::Unknown),
            AllocatorStats::unreadable(AllocatorUnreadable::Copied)
        );
        // The process's own stats are shown, and the environment still decides the order.
        let gpus = |allocator: AllocatorStats| {
            allocator
                .devices
                .into_iter()
                .map(|device| device.gpu.unwrap().0)
                .collect::<Vec<_>>()
        };
        assert_eq!(gpus(read(&[0, 20], StatsOwner::Own)), ["GPU-1".into()]);
        assert_eq!(
            gpus(read(&[10, 20], StatsOwner::Own)),
            ["GPU-0".into(), "GPU-1".into()]
        );
        // NVML's figure is from a moment before.
        assert_eq!(
            gpus(read(&[2, 1], StatsOwner::Own)),
            ["GPU-0".into(), "GPU-1".into()]
        );
        // Inherited stats are never shown, however much memory the worker has for other uses.
        assert_eq!(
            read(&[0, 20], StatsOwner::Inherited),
            AllocatorStats::unreadable(AllocatorUnreadable::Copied)
        );
        assert_eq!(
            read(&[1, 1], StatsOwner::Inherited),
            AllocatorStats::unreadable(AllocatorUnreadable::Copied)
        );
        // Stats that fit may be the process's own: a forked server has the addresses of its parent
        // without a copy.
        assert_eq!(
            gpus(read(&[1, 1], StatsOwner::Unknown)),
            ["GPU-0".into(), "GPU-1".into()]
        );
    }

    #[test]
    fn an_order_in_which_more_reserved_memory_is_on_the_gpu_with_less_is_unknown() {
        // The program set `os.environ["CUDA_VISIBLE_DEVICES"] = "1,0"` after its start, and NVML's
        // figure may be late.
        check(&[5, 3], &[4, 6], None, &[None, None]);
        check(&[5, 3], &[6, 4], None, &[Some(0), Some(1)]);
        check(&[5, 5], &[4, 6], None, &[Some(0), Some(1)]);
        check_confined(&[5, 3], &[0, 4, 6], None, &[None, None]);
    }

    #[test]
    fn many_equal_devices_take_few_steps() {
        // No assignment fits, and there are too many to try them all.
        check(&[30; 17], &[33; 16], Some("9"), &[None; 17]);
    }
}
