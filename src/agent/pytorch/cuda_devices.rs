//! Which GPU each of a process's CUDA devices is.
//!
//! CUDA counts the devices of a process from 0, in an order that its environment may change, and so may the
//! program itself, after it started. NVML says which GPUs the process holds, and how much. The first that
//! applies counts:
//!
//! 1. It used one device, and holds one GPU.
//! 2. `CUDA_VISIBLE_DEVICES`, or without it all GPUs in order, where that names as many devices as PyTorch
//!    sees, and each that was used is one that it holds. CUDA's own order puts the fastest first: that is
//!    the bus's order where all are alike, and unknown otherwise.
//! 3. What it reserved fits what it holds in one way only.
//! 4. It sees as many devices as it holds, and runs in a container or a job that may be shown these only: they have
//!    their order, and `CUDA_VISIBLE_DEVICES` counts among them. Elsewhere a program that sees so many chose them itself,
//!    after it started, and in which order nobody tells.
//!
//! Otherwise it is not known, and is said so.

use super::layout::Stats;
use super::{Outcome, Said, Whose, find::MOST_DEVICES};
use crate::agent::procfs::CudaEnvironment;
use crate::base::units::Bytes;
use crate::protocol::snapshot::{
    AllocatorStats, AllocatorUnreadable, DeviceAllocator, Gpu, Missing, ProcessId, Reading,
};

/// What the allocator took may be so much more than what the driver said: that was a moment ago.
const LATE: u64 = 1 << 30;
/// What a process holds besides is less: the context, kernels, buffers of NCCL.
const BESIDES: u64 = 4 << 30;
/// More ways to match are not tried.
const STEPS: u32 = 10_000;

/// What a process holds of one GPU.
struct Hold {
    /// The GPU's place in the list.
    gpu: usize,
    memory: Reading<Bytes>,
}

impl Hold {
    /// Whether so much can be a part of it.
    fn has_room(&self, stats: &Stats) -> bool {
        self.memory.map_or(true, |memory| stats.reserved.current <= memory.0.saturating_add(LATE))
    }

    /// Whether so much can be its allocator's part of it.
    fn fits(&self, stats: &Stats) -> bool {
        self.has_room(stats)
            && self.memory.is_ok_and(|memory| memory.0.saturating_sub(stats.reserved.current) < BESIDES)
    }
}

/// Puts what a process said in the terms of the snapshot: of each device, which GPU it is, and its figures.
pub(in crate::agent) fn peek(
    said: &Outcome,
    process: ProcessId,
    gpus: &[Gpu],
    cuda: &CudaEnvironment,
) -> AllocatorStats {
    let Said { devices: stats, whose } = match said {
        Ok(said) => said,
        Err(why) => return AllocatorStats::unreadable(*why),
    };
    let mut holds: Vec<Hold> = gpus
        .iter()
        .enumerate()
        .filter_map(|(gpu, it)| {
            let gpu_process = it.processes.iter().find(|gpu_process| gpu_process.process == process)?;
            Some(Hold { gpu, memory: gpu_process.memory })
        })
        .collect();
    let held: Reading<Vec<Bytes>> = holds.iter().map(|it| it.memory).collect();
    let held = held.map(|it| it.into_iter().sum::<Bytes>());
    let reserved: Bytes = stats.iter().map(|it| Bytes(it.reserved.current)).sum();
    // It cannot have more than the driver gave it in all, but a copy of another's may say so. Otherwise the driver does
    // not tell all, as in some containers, or told it a moment before: the difference is shown.
    let is_copy = match whose {
        Whose::Own => false,
        Whose::Left => true,
        Whose::Unsure => held.is_ok_and(|held| held < reserved),
    };
    if is_copy {
        return AllocatorStats::unreadable(AllocatorUnreadable::Copied);
    }
    if held.is_ok_and(|held| held.0.saturating_add(LATE) < reserved.0) {
        // These amounts tell no GPU from another.
        for hold in &mut holds {
            hold.memory = Err(Missing::NotYet);
        }
    }
    let places = places(stats, &holds, gpus, cuda);
    let used = (0..).zip(stats.iter()).zip(places).filter(|((_, it), _)| it.is_used());
    let allocators = used.map(|((device, it), gpu)| {
        let bytes = |amount| Ok(Bytes(amount));
        DeviceAllocator {
            allocated: bytes(it.allocated.current),
            allocated_peak: bytes(it.allocated.peak),
            reserved: bytes(it.reserved.current),
            reserved_peak: bytes(it.reserved.peak),
            active: bytes(it.active.current),
            active_peak: bytes(it.active.peak),
            inactive_split: bytes(it.inactive_split.current),
            inactive_split_peak: bytes(it.inactive_split.peak),
            requested: bytes(it.requested.current),
            requested_peak: bytes(it.requested.peak),
            allocations: Ok(it.allocations.current),
            segments: Ok(it.segments.current),
            retries: Ok(it.retries),
            ooms: Ok(it.ooms),
            ..DeviceAllocator::missing(device, gpu.map(|at| gpus[at].uuid.clone()), Missing::NotYet)
        }
    });
    AllocatorStats { devices: allocators.collect(), unreadable: None }
}

/// The GPU of each device, by its place in the list.
fn places(stats: &[Stats], holds: &[Hold], gpus: &[Gpu], cuda: &CudaEnvironment) -> Vec<Option<usize>> {
    let used: Vec<usize> = (0..stats.len()).filter(|at| stats[*at].is_used()).collect();
    let mut places = vec![None; stats.len()];
    if let ([device], [hold]) = (used.as_slice(), holds) {
        places[*device] = Some(hold.gpu);
        return places;
    }
    let holds_room = |device: usize, gpu: usize| holds.iter().any(|it| it.gpu == gpu && it.has_room(&stats[device]));
    let visible = visible(gpus, cuda).filter(|it| it.len() == stats.len());
    let held: Vec<usize> = holds.iter().map(|it| it.gpu).collect();
    let by_count = || {
        let order: Option<Vec<usize>> = match &cuda.visible {
            None => Some(held.clone()),
            Some(visible) => {
                visible.as_str().split(',').map(|it| held.get(it.trim().parse::<usize>().ok()?).copied()).collect()
            }
        };
        order.filter(|it| cuda.is_confined && it.len() == stats.len() && are_alike(gpus, &held))
    };
    let is_so = |order: &Vec<usize>| used.iter().all(|device| holds_room(*device, order[*device]));
    if let Some(order) = visible.filter(is_so) {
        return order.into_iter().map(Some).collect();
    }
    if let Some(order) = by_memory(&used, stats, holds) {
        for (device, gpu) in used.iter().zip(order) {
            places[*device] = Some(gpu);
        }
        return places;
    }
    match by_count().filter(is_so) {
        Some(order) => order.into_iter().map(Some).collect(),
        None => places,
    }
}

/// Whether CUDA's own order of these is the bus's.
fn are_alike(gpus: &[Gpu], places: &[usize]) -> bool {
    let mut names = places.iter().map(|at| gpus[*at].facts.name.as_ref().ok());
    let first = names.next();
    first.is_some_and(|first| first.is_some() && names.all(|it| it == first))
}

/// The places of CUDA's devices, as the environment says.
fn visible(gpus: &[Gpu], cuda: &CudaEnvironment) -> Option<Vec<usize>> {
    // NVML counts GPUs by their place on the bus.
    let whole: Vec<usize> = (0..gpus.len()).filter(|at| gpus[*at].facts.parent.is_none()).collect();
    let is_ordered = cuda.order.as_ref().is_some_and(|it| it.as_str() == "PCI_BUS_ID") || are_alike(gpus, &whole);
    let Some(visible) = &cuda.visible else { return is_ordered.then_some(whole) };
    let mut places = Vec::new();
    for name in visible.as_str().split(',').map(str::trim) {
        let found = match name.parse::<usize>() {
            Ok(index) => whole.get(index).copied().filter(|_| is_ordered),
            Err(_) => by_uuid(gpus, name),
        };
        // What comes after a device that does not exist does not count.
        let Some(found) = found else { break };
        places.push(found);
    }
    (!places.is_empty() && places.len() <= MOST_DEVICES).then_some(places)
}

/// The GPU whose id begins so, if it is one only.
fn by_uuid(gpus: &[Gpu], name: &str) -> Option<usize> {
    if !name.starts_with("GPU-") && !name.starts_with("MIG-") {
        return None;
    }
    let mut found = (0..gpus.len()).filter(|at| gpus[*at].uuid.0.as_str().starts_with(name));
    found.next().filter(|_| found.next().is_none())
}

/// The only way to match what was reserved with what is held; absent when there are more, or none.
fn by_memory(used: &[usize], stats: &[Stats], holds: &[Hold]) -> Option<Vec<usize>> {
    fn go(devices: &[&Stats], holds: &[Hold], taken: &mut Vec<usize>, found: &mut Vec<Vec<usize>>, steps: &mut u32) {
        let Some((first, rest)) = devices.split_first() else { return found.push(taken.clone()) };
        for hold in holds.iter().filter(|it| it.fits(first)) {
            *steps = steps.saturating_sub(1);
            if *steps == 0 || found.len() > 1 {
                return;
            }
            if !taken.contains(&hold.gpu) {
                taken.push(hold.gpu);
                go(rest, holds, taken, found, steps);
                taken.pop();
            }
        }
    }
    let devices: Vec<&Stats> = used.iter().map(|at| &stats[*at]).collect();
    let (mut found, mut steps) = (Vec::new(), STEPS);
    go(&devices, holds, &mut Vec::new(), &mut found, &mut steps);
    if steps == 0 || found.len() != 1 { None } else { found.pop() }
}

#[cfg(test)]
mod tests {
    use super::super::layout::Stat;
    use super::*;
    use crate::protocol::snapshot::example::host;
    use crate::protocol::snapshot::{GpuUuid, Snapshot};

    /// A process that reserved so many GiB of each device; none of those with 0.
    fn said(reserved: &[u64]) -> Vec<Stats> {
        let stat = |gib: u64| Stat { current: gib << 30, peak: gib << 30 };
        let device = |gib: &u64| Stats { reserved: stat(*gib), ..Stats::default() };
        reserved.iter().map(device).collect()
    }

    /// Which GPUs its used devices are, where it holds so many GiB of each GPU.
    #[track_caller]
    fn check(reserved: &[u64], held: &[u64], visible: Option<&str>, expected: &[Option<u32>]) {
        check_on(host(u32::try_from(held.len()).unwrap()), reserved, held, (visible, None, false), expected);
    }

    /// The same where it is in a container.
    #[track_caller]
    fn check_confined(reserved: &[u64], held: &[u64], visible: Option<&str>, expected: &[Option<u32>]) {
        check_on(host(u32::try_from(held.len()).unwrap()), reserved, held, (visible, None, true), expected);
    }

    /// The same on another host, with that `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`, in a container or not.
    #[track_caller]
    fn check_on(
        mut snapshot: Snapshot,
        reserved: &[u64],
        held: &[u64],
        (visible, order, is_confined): (Option<&str>, Option<&str>, bool),
        expected: &[Option<u32>],
    ) {
        for (gpu, gib) in held.iter().enumerate().filter(|it| *it.1 > 0) {
            snapshot = snapshot.with(7, "python train.py", gpu, Bytes::from_gib(*gib));
        }
        let cuda = CudaEnvironment { visible: visible.map(Into::into), order: order.map(Into::into), is_confined };
        let said = Ok(Said { devices: said(reserved).into(), whose: Whose::Own });
        let peek = peek(&said, snapshot.processes[0].id, &snapshot.gpus, &cuda);
        let place = |it: &DeviceAllocator| snapshot.gpus.iter().position(|gpu| Some(&gpu.uuid) == it.gpu.as_ref());
        let index = |it: &DeviceAllocator| place(it).map(|at| u32::try_from(at).unwrap());
        assert_eq!(
            peek.devices.iter().map(index).collect::<Vec<_>>(),
            expected,
            "{reserved:?} of {held:?}, {visible:?}"
        );
    }

    #[test]
    fn one_device_on_one_gpu_is_that() {
        check(&[10], &[0, 11], None, &[Some(1)]);
        // The program chose among all that it sees.
        check(&[0, 0, 10], &[0, 11, 0], Some("0,1,2"), &[Some(1)]);
    }

    #[test]
    fn the_environment_tells_the_order() {
        check(&[10, 10, 0], &[11, 11, 0], None, &[Some(0), Some(1)]);
        check(&[10, 10], &[11, 0, 11], Some("2,0"), &[Some(2), Some(0)]);
        check(&[10, 10], &[11, 0, 11], Some("GPU-2, GPU-0"), &[Some(2), Some(0)]);
        // What comes after one that does not exist does not count.
        check(&[10, 10], &[11, 0, 11], Some("2,0,-1,1"), &[Some(2), Some(0)]);
    }

    #[test]
    fn each_of_a_job_s_processes_has_its_own_of_eight_gpus() {
        let one = |at: usize, gib| (0..8).map(|it| if it == at { gib } else { 0 }).collect::<Vec<_>>();
        for rank in 0..8 {
            let gpu = Some(u32::try_from(rank).unwrap());
            check(&one(rank, 10), &one(rank, 11), None, &[gpu]);
            // Each made a context on the first GPU too, as large as all that it took of its own.
            let mut held = one(rank, 11);
            held[0] = 11;
            check(&one(rank, 10), &held, None, &[gpu]);
            // Each was given one.
            check(&[10], &held, Some(&rank.to_string()), &[gpu]);
        }
    }

    #[test]
    fn gpus_that_differ_are_counted_by_their_place_only_where_cuda_was_told_to() {
        let differ = || {
            let mut host = host(3);
            host.gpus[2].facts.name = Ok("NVIDIA A100-SXM4-80GB".into());
            host
        };
        let held = [11, 11, 11];
        check_on(differ(), &[10, 10], &held, (Some("2,0"), Some("PCI_BUS_ID"), false), &[Some(2), Some(0)]);
        check_on(differ(), &[10, 10, 10], &held, (None, Some("PCI_BUS_ID"), false), &[Some(0), Some(1), Some(2)]);
        // The fastest is the first, and which that is nobody tells.
        check_on(differ(), &[10, 10], &held, (Some("2,0"), None, false), &[None, None]);
        check_on(differ(), &[10, 10], &held, (Some("2,0"), Some("FASTEST_FIRST"), false), &[None, None]);
        check_on(differ(), &[10, 10, 10], &held, (None, None, false), &[None, None, None]);
        // An id means one GPU, wherever that stands.
        check_on(differ(), &[10, 10], &held, (Some("GPU-2,GPU-1"), None, false), &[Some(2), Some(1)]);
    }

    #[test]
    fn an_id_is_a_gpu_s_or_an_instance_s_and_may_be_cut_short() {
        let split = || {
            let mut host = host(4);
            let parent = host.gpus[1].uuid.clone();
            for (at, id) in [(2, "MIG-5f0a-1"), (3, "MIG-77b1-2")] {
                host.gpus[at].uuid = GpuUuid(id.into());
                host.gpus[at].facts.parent = Some(parent.clone());
            }
            host
        };
        let held = [11, 0, 11, 11];
        let check = |visible, expected: &[Option<u32>]| {
            check_on(split(), &vec![10; expected.len()], &held, (Some(visible), None, false), expected);
        };
        check("MIG-77b1-2,GPU-0", &[Some(3), Some(0)]);
        check("MIG-77,MIG-5f", &[Some(3), Some(2)]);
        // Two begin so; and an instance is none of the GPUs that are counted.
        check("MIG-,GPU-0", &[None, None]);
        check("2,3", &[None, None]);
    }

    #[test]
    fn in_a_container_it_counts_what_that_shows() {
        check_confined(&[10, 10], &[0, 11, 11], Some("1,0"), &[Some(2), Some(1)]);
        check_confined(&[10, 10], &[0, 11, 11], Some("0,1"), &[Some(1), Some(2)]);
        check_confined(&[10, 10], &[0, 11, 11], None, &[Some(1), Some(2)]);
    }

    #[test]
    fn on_the_host_itself_who_sees_fewer_chose_them_in_an_order_that_nobody_tells() {
        // `os.environ["CUDA_VISIBLE_DEVICES"] = "2,1"`, after it was started with another, or without.
        for started_with in [Some("1,0"), Some("0,1"), None] {
            check(&[10, 10], &[0, 11, 11], started_with, &[None, None]);
        }
    }

    #[test]
    fn an_environment_that_changed_since_is_not_believed() {
        // It says one device, and PyTorch sees two; or others than those that are held.
        check(&[10, 20], &[21, 0, 11], Some("1"), &[Some(2), Some(0)]);
        check(&[10, 20], &[21, 0, 11], Some("1,2"), &[Some(2), Some(0)]);
    }

    #[test]
    fn amounts_that_fit_in_one_way_only_tell() {
        check(&[30, 10], &[11, 0, 31, 0], None, &[Some(2), Some(0)]);
        // They fit both ways, and nothing else tells.
        check(&[10, 10, 0, 0, 0], &[0, 11, 11, 11], Some("9"), &[None, None]);
    }

    #[test]
    fn more_than_the_driver_gave_is_a_copy_or_a_difference_that_is_shown() {
        let snapshot = host(2).with(7, "python train.py", 0, Bytes::from_gib(2)).with(7, "", 1, Bytes(0));
        let peek = |reserved: &[u64], whose| {
            let said = Ok(Said { devices: said(reserved).into(), whose });
            peek(&said, snapshot.processes[0].id, &snapshot.gpus, &CudaEnvironment::default())
        };
        assert_eq!(peek(&[0, 20], Whose::Unsure), AllocatorStats::unreadable(AllocatorUnreadable::Copied));
        // The amounts of one that is none are shown, and do not spoil what the environment says.
        let gpus =
            |allocator: AllocatorStats| allocator.devices.into_iter().map(|it| it.gpu.unwrap().0).collect::<Vec<_>>();
        assert_eq!(gpus(peek(&[0, 20], Whose::Own)), ["GPU-1".into()]);
        assert_eq!(gpus(peek(&[10, 20], Whose::Own)), ["GPU-0".into(), "GPU-1".into()]);
        // The driver's figure is that of a moment before.
        assert_eq!(gpus(peek(&[2, 1], Whose::Own)), ["GPU-0".into(), "GPU-1".into()]);
        // What a fork left is never shown, however much the worker has there for something else.
        assert_eq!(peek(&[0, 20], Whose::Left), AllocatorStats::unreadable(AllocatorUnreadable::Copied));
        assert_eq!(peek(&[1, 1], Whose::Left), AllocatorStats::unreadable(AllocatorUnreadable::Copied));
        // One that fits may be a server's child, which came to the same place by itself.
        assert_eq!(gpus(peek(&[1, 1], Whose::Unsure)), ["GPU-0".into(), "GPU-1".into()]);
    }

    #[test]
    fn many_devices_alike_take_no_time() {
        // No way fits, and there are more of them than one could try.
        check(&[30; 17], &[33; 16], Some("9"), &[None; 17]);
    }
}
