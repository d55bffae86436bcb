//! Where device memory went: from the driver's figure down to what tensors hold, in parts that add up.
//!
//! ```text
//! driver's figure
//!  = outside      not PyTorch's: the CUDA context, kernels, NCCL, other libraries
//!  + cache        empty_cache() would give it back
//!  + fragmented   free, in segments of which a part is in use
//!  + pending      freed, and awaited by another stream
//!  + allocated    held by tensors
//! allocated + pending = what the program asked for + rounding
//! ```

use super::{ProcessTotal, UnaccountedMemory};
use crate::base::units::Bytes;
use crate::protocol::snapshot::{DeviceAllocator, Gpu, GpuProcess, Missing, ProcessId, Reading, Snapshot};

/// A part of the whole, from what tensors hold to what nobody does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryPart {
    /// Held by tensors.
    Allocated,
    /// Freed, and awaited by another stream.
    Pending,
    /// Free, in segments of which a part is in use.
    Fragmented,
    /// Free: `empty_cache()` would give it back.
    Cache,
    /// Not PyTorch's, or of a process that could not be read.
    Outside,
    /// In use, and no listed process accounts for it.
    Unaccounted,
    /// Kept by the driver for itself.
    Driver,
    /// Nobody's.
    Free,
}

/// What PyTorch's allocator took for one device, part by part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReservedMemory {
    /// Held by tensors.
    pub allocated: Bytes,
    /// Freed, and awaited by another stream.
    pub pending: Bytes,
    /// Free, in segments of which a part is in use.
    pub fragmented: Bytes,
    /// `empty_cache()` would give it back.
    pub cache: Bytes,
    /// Of allocated and pending: what the program did not ask for.
    pub rounding: Bytes,
}

impl ReservedMemory {
    /// What the allocator says. Missing where it is, and failed where it does not add up: a line may come from
    /// any program.
    pub fn of(allocator: &DeviceAllocator) -> Reading<Self> {
        let less = |a: Bytes, b: Bytes| a.0.checked_sub(b.0).map(Bytes).ok_or(Missing::Failed);
        let (active, fragmented) = (allocator.active?, allocator.inactive_split?);
        Ok(Self {
            allocated: allocator.allocated?,
            pending: less(active, allocator.allocated?)?,
            fragmented,
            cache: less(less(allocator.reserved?, active)?, fragmented)?,
            rounding: less(active, allocator.requested?)?,
        })
    }

    /// What these say together. Absent where one of them says nothing, or there is none.
    pub fn of_all<'a>(devices: impl IntoIterator<Item = &'a DeviceAllocator>) -> Option<Self> {
        let all: Vec<Self> = devices.into_iter().map(Self::of).collect::<Reading<_>>().ok()?;
        all.into_iter().reduce(Self::plus)
    }

    /// All of it: `memory_reserved()`.
    pub fn sum(&self) -> Bytes {
        [self.allocated, self.pending, self.fragmented, self.cache].into_iter().sum()
    }

    /// Held by tensors, or awaited by another stream.
    pub fn active(&self) -> Bytes {
        [self.allocated, self.pending].into_iter().sum()
    }

    /// Its parts.
    pub fn parts(&self) -> [(MemoryPart, Bytes); 4] {
        [
            (MemoryPart::Allocated, self.allocated),
            (MemoryPart::Pending, self.pending),
            (MemoryPart::Fragmented, self.fragmented),
            (MemoryPart::Cache, self.cache),
        ]
    }

    fn plus(self, other: Self) -> Self {
        let add = |a: Bytes, b: Bytes| Bytes(a.0.saturating_add(b.0));
        Self {
            allocated: add(self.allocated, other.allocated),
            pending: add(self.pending, other.pending),
            fragmented: add(self.fragmented, other.fragmented),
            cache: add(self.cache, other.cache),
            rounding: add(self.rounding, other.rounding),
        }
    }
}

/// A whole and its parts, which add up to it. A part is below 0 where the figures were not read at one moment, and
/// stays in the sum: a difference is shown, not hidden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breakdown {
    /// The driver's figure.
    pub whole: Bytes,
    /// Its parts in bytes, in their order.
    pub parts: Vec<(MemoryPart, i64)>,
}

impl Breakdown {
    /// The parts that are known, and one that is the rest.
    fn new(whole: Bytes, known: &[(MemoryPart, Bytes)], rest: MemoryPart) -> Self {
        let signed = |bytes: Bytes| bytes.0.min(1 << 60).cast_signed();
        let mut parts: Vec<(MemoryPart, i64)> = known.iter().map(|(part, bytes)| (*part, signed(*bytes))).collect();
        // A whole of more than that is no device's.
        let whole = Bytes(whole.0.min(1 << 60));
        let sum = parts.iter().fold(0_i64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        parts.push((rest, signed(whole).saturating_sub(sum)));
        parts.sort_by_key(|(part, _)| *part);
        Self { whole, parts }
    }

    /// What a process holds of one GPU. Missing where either figure is.
    pub fn of_tenant(memory: Reading<Bytes>, allocator: &DeviceAllocator) -> Reading<Self> {
        Ok(Self::new(memory?, &ReservedMemory::of(allocator)?.parts(), MemoryPart::Outside))
    }

    /// What a process holds of all its GPUs. Absent where its allocator was not read.
    pub fn of_process(snapshot: &Snapshot, process_total: &ProcessTotal) -> Option<Self> {
        let total = process_total.memory.ok().filter(|it| !it.lower_bound)?;
        Some(Self::new(total.bytes, &reserved(snapshot, process_total.process, None)?.parts(), MemoryPart::Outside))
    }

    /// What of a GPU's memory is in use; of one that is split, with what is on its instances. Absent where the driver does
    /// not say that, or nothing is known of PyTorch's part.
    pub fn of_used(snapshot: &Snapshot, gpu: &Gpu) -> Option<Self> {
        let whole = gpu.load.memory_used.ok()?;
        Some(Self::new(whole, &reserved_on(snapshot, gpu)?.parts(), MemoryPart::Outside))
    }

    /// All memory of a GPU; of one that is split, with what is on its instances. Missing where the driver does not say
    /// what is used.
    pub fn of_gpu(snapshot: &Snapshot, gpu: &Gpu, unaccounted: &[UnaccountedMemory]) -> Reading<Self> {
        let load = &gpu.load;
        let all = || with_instances(snapshot, gpu);
        let reserved = reserved_on(snapshot, gpu);
        let unaccounted = unaccounted.iter().filter(|it| all().any(|gpu| gpu.uuid == it.gpu));
        let mut known = reserved.map_or_else(Vec::new, |it| it.parts().to_vec());
        let free = load.memory_total?.saturating_sub(load.memory_used?);
        // Older drivers count their own part as used.
        let (own, free) = match load.memory_reserved {
            Ok(own) => (Some(own), free.saturating_sub(own)),
            Err(_) => (None, free),
        };
        known.extend(unaccounted.map(|it| (MemoryPart::Unaccounted, it.memory)));
        known.extend(own.map(|own| (MemoryPart::Driver, own)));
        known.push((MemoryPart::Free, free));
        Ok(Self::new(load.memory_total?, &known, MemoryPart::Outside))
    }

    /// So much of one part; 0 where there is none.
    pub fn part(&self, part: MemoryPart) -> i64 {
        self.parts.iter().filter(|it| it.0 == part).map(|it| it.1).sum()
    }
}

/// A GPU, and the instances that it is split into.
pub fn with_instances<'a>(snapshot: &'a Snapshot, gpu: &'a Gpu) -> impl Iterator<Item = &'a Gpu> {
    snapshot.gpus.iter().filter(|it| it.uuid == gpu.uuid || it.facts.parent.as_ref() == Some(&gpu.uuid))
}

/// What PyTorch took of a GPU in all that was read there, with its instances.
fn reserved_on(snapshot: &Snapshot, gpu: &Gpu) -> Option<ReservedMemory> {
    let of = |gpu| move |it: &GpuProcess| reserved(snapshot, it.process, Some(gpu));
    with_instances(snapshot, gpu).flat_map(|gpu| gpu.processes.iter().filter_map(of(gpu))).reduce(ReservedMemory::plus)
}

/// What PyTorch took in one process, on one GPU or on all. Absent where that was not read.
pub fn reserved(snapshot: &Snapshot, process: ProcessId, gpu: Option<&Gpu>) -> Option<ReservedMemory> {
    let allocators = &snapshot.process(process)?.allocator.as_ref()?.devices;
    ReservedMemory::of_all(allocators.iter().filter(|it| gpu.is_none_or(|gpu| it.gpu.as_ref() == Some(&gpu.uuid))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::HostModel;
    use crate::protocol::snapshot::example::host;
    use crate::protocol::snapshot::{AllocatorStats, GpuUuid};

    /// An allocator on the first GPU with these parts: allocated, pending, fragmented, cache, rounding.
    pub(crate) fn allocator(parts: [u64; 5]) -> DeviceAllocator {
        let [allocated, pending, fragmented, cache, rounding] = parts;
        let active = allocated.saturating_add(pending);
        DeviceAllocator {
            allocated: Ok(Bytes(allocated)),
            active: Ok(Bytes(active)),
            inactive_split: Ok(Bytes(fragmented)),
            reserved: Ok(Bytes(active.saturating_add(fragmented).saturating_add(cache))),
            requested: Ok(Bytes(active.saturating_sub(rounding))),
            ..DeviceAllocator::missing(0, Some(GpuUuid("GPU-0".into())), Missing::NotYet)
        }
    }

    fn sum(breakdown: &Breakdown) -> i128 {
        breakdown.parts.iter().map(|it| i128::from(it.1)).sum()
    }

    fn any_parts() -> impl Strategy<Value = [u64; 5]> {
        let amount = prop_oneof![0..1_u64 << 36, any::<u64>().prop_map(|it| it >> 3)];
        proptest::array::uniform5(amount)
    }

    proptest! {
        /// Whatever anyone says, the parts are the whole.
        #[test]
        fn the_parts_add_up_to_the_whole(
            gpu_processes in proptest::collection::vec((any_parts(), any::<u64>(), any::<bool>()), 1..6),
            used: u64,
            total: u64,
            own in proptest::option::of(any::<u64>()),
        ) {
            let mut snapshot = host(1);
            for (pid, (parts, memory, is_read)) in (100..).zip(&gpu_processes) {
                snapshot = snapshot.with(pid, "python train.py", 0, Bytes(memory >> 4));
                if *is_read {
                    let place = snapshot.processes.iter().position(|it| it.id.pid == pid).unwrap();
                    let peek = AllocatorStats { devices: vec![allocator(*parts)], unreadable: None };
                    snapshot.processes[place].allocator = Some(peek.into());
                    if let Ok(it) = Breakdown::of_tenant(Ok(Bytes(memory >> 4)), &allocator(*parts)) {
                        prop_assert_eq!(sum(&it), i128::from(it.whole.0));
                    }
                }
            }
            let load = &mut snapshot.gpus[0].load;
            (load.memory_used, load.memory_total) = (Ok(Bytes(used)), Ok(Bytes(total)));
            load.memory_reserved = own.map(Bytes).ok_or(Missing::Unsupported);
            let mut model = HostModel::default();
            model.replace(snapshot.clone());
            let it = Breakdown::of_gpu(&snapshot, &snapshot.gpus[0], model.unaccounted()).unwrap();
            prop_assert_eq!(sum(&it), i128::from(it.whole.0));
            for it in model.process_totals().iter().filter_map(|it| Breakdown::of_process(&snapshot, it)) {
                prop_assert_eq!(sum(&it), i128::from(it.whole.0));
            }
        }
    }

    proptest! {
        /// On GPUs that are whole or split, of GPU processes of whom the driver says how much or not, whose devices are known
        /// or not: what PyTorch says is in the parts of one GPU, all of it and once, and the rest is named.
        #[test]
        fn what_pytorch_says_is_in_the_parts(
            gpu_processes in proptest::collection::vec(
                (
                    proptest::array::uniform5(0..1_u64 << 50),
                    proptest::option::of(0..1_u64 << 50),
                    0..3_usize,
                    proptest::option::of(0..3_usize),
                ),
                1..6,
            ),
            used in proptest::array::uniform3(0..1_u64 << 50),
            is_split: bool,
        ) {
            let mut snapshot = host(3);
            let uuids = [0, 1, 2].map(|at: usize| snapshot.gpus[at].uuid.clone());
            let mut expected = [0; 3];
            for (pid, (parts, memory, held, named)) in (100..).zip(&gpu_processes) {
                snapshot = snapshot.with(pid, "python train.py", *held, memory.map_or(Bytes(0), Bytes));
                let gpu_process = snapshot.gpus[*held].processes.last_mut().unwrap();
                gpu_process.memory = memory.map(Bytes).ok_or(Missing::Unsupported);
                let allocator = DeviceAllocator { gpu: named.map(|at| uuids[at].clone()), ..allocator(*parts) };
                let reserved = ReservedMemory::of(&allocator).ok();
                prop_assert_eq!(reserved.map(|it| it.sum()), allocator.reserved.ok().filter(|_| reserved.is_some()));
                if named == &Some(*held) {
                    expected[*held] += reserved.map_or(0, |it| i128::from(it.sum().0));
                }
                let peek = AllocatorStats { devices: vec![allocator], unreadable: None };
                let process = snapshot.processes.iter_mut().find(|it| it.id.pid == pid).unwrap();
                process.allocator = Some(peek.into());
            }
            for (gpu, used) in snapshot.gpus.iter_mut().zip(used) {
                gpu.load.memory_used = Ok(Bytes(used));
            }
            if is_split {
                snapshot.gpus[0].facts.parent = Some(uuids[2].clone());
                snapshot.gpus[1].facts.parent = Some(uuids[2].clone());
                expected[2] = expected.iter().sum();
            }
            let mut model = HostModel::default();
            model.replace(snapshot.clone());
            for (gpu, expected) in snapshot.gpus.iter().zip(expected) {
                let it = Breakdown::of_gpu(&snapshot, gpu, model.unaccounted()).unwrap();
                let said = [MemoryPart::Allocated, MemoryPart::Pending, MemoryPart::Fragmented, MemoryPart::Cache].map(|part| it.part(part));
                prop_assert_eq!(said.into_iter().map(i128::from).sum::<i128>(), expected);
                prop_assert_eq!(sum(&it), i128::from(it.whole.0));
            }
        }
    }

    #[test]
    fn what_the_allocator_took_since_the_driver_was_asked_is_a_difference() {
        let it = Breakdown::of_tenant(Ok(Bytes(900)), &allocator([500, 100, 200, 300, 7])).unwrap();
        assert_eq!(it.parts.last(), Some(&(MemoryPart::Outside, -200)));
        assert_eq!((it.part(MemoryPart::Cache), it.part(MemoryPart::Free)), (300, 0));
    }

    #[test]
    fn an_allocator_that_does_not_add_up_is_no_figure() {
        let mut it = allocator([500, 100, 200, 300, 7]);
        it.active = Ok(Bytes(400));
        assert_eq!(ReservedMemory::of(&it), Err(Missing::Failed));
        it.active = Err(Missing::NotYet);
        assert_eq!(ReservedMemory::of(&it), Err(Missing::NotYet));
    }

    #[test]
    fn a_gpu_is_all_that_is_on_it() {
        let gib = Bytes::from_gib;
        let mut snapshot = host(1).with(7, "python train.py", 0, gib(20)).with(8, "python other.py", 0, gib(10));
        let peek = AllocatorStats { devices: vec![allocator([10 << 30, 0, 2 << 30, 6 << 30, 7])], unreadable: None };
        snapshot.processes[0].allocator = Some(peek.into());
        let it = Breakdown::of_gpu(&snapshot, &snapshot.gpus[0], &[]).unwrap();
        let parts =
            [MemoryPart::Allocated, MemoryPart::Fragmented, MemoryPart::Cache, MemoryPart::Outside, MemoryPart::Free]
                .map(|part| it.part(part) >> 30);
        assert_eq!(parts, [10, 2, 6, 12, 50]);
    }

    #[test]
    fn a_split_gpu_has_what_is_on_its_instances() {
        let gib = Bytes::from_gib;
        let mut snapshot = host(3).with(7, "python train.py", 0, gib(20));
        for gpu in &mut snapshot.gpus[..2] {
            gpu.facts.parent = Some(GpuUuid("GPU-2".into()));
        }
        // On the second instance nobody accounts for what is in use.
        snapshot.gpus[1].load.memory_used = Ok(gib(5));
        snapshot.gpus[2].load.memory_used = Ok(gib(26));
        let peek = AllocatorStats { devices: vec![allocator([10 << 30, 0, 2 << 30, 6 << 30, 7])], unreadable: None };
        snapshot.processes[0].allocator = Some(peek.into());
        let mut model = HostModel::default();
        model.replace(snapshot.clone());
        let it = Breakdown::of_gpu(&snapshot, &snapshot.gpus[2], model.unaccounted()).unwrap();
        let parts = [
            MemoryPart::Allocated,
            MemoryPart::Fragmented,
            MemoryPart::Cache,
            MemoryPart::Unaccounted,
            MemoryPart::Outside,
        ];
        assert_eq!(parts.map(|part| it.part(part) >> 30), [10, 2, 6, 5, 3]);
    }
}
