//! The breakdown of device memory: from the driver's figure to the memory of tensors, in parts that
//! add up.
//!
//! ```text
//! driver's figure
//!  = outside      not PyTorch's: CUDA context, kernels, NCCL, other libraries
//!  + cache        freed by empty_cache()
//!  + fragmented   free, in segments of which a part is in use
//!  + pending      freed, waiting for another stream
//!  + allocated    held by tensors
//! allocated + pending = requested by the program + rounding
//! ```

use super::{ProcessTotal, UnaccountedMemory};
use crate::base::units::{Bytes, Moment};
use crate::protocol::snapshot::{
    DeviceAllocator, Gpu, GpuUuid, Missing, ProbeDevice, Process, ProcessId, Reading, Snapshot,
    TensorCategory,
};

/// A part of device memory, ordered from allocated to free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryPart {
    /// Held by tensors.
    Allocated,
    /// Freed, waiting for another stream.
    Pending,
    /// Free, in segments of which a part is in use.
    Fragmented,
    /// Free in whole segments: `empty_cache()` returns it.
    Cache,
    /// Memory of a process whose PyTorch figures are not known.
    Undivided,
    /// Not PyTorch's, of a process whose PyTorch figures are known, or of no process.
    Outside,
    /// In use by no listed process.
    Unaccounted,
    /// Reserved by the driver.
    Driver,
    Free,
}

/// The memory that PyTorch's allocator reserved, part by part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReservedMemory {
    /// Held by tensors.
    pub allocated: Bytes,
    /// Freed, waiting for another stream.
    pub pending: Bytes,
    /// Free, in segments of which a part is in use.
    pub fragmented: Bytes,
    /// Free in whole segments: `empty_cache()` returns it.
    pub cache: Bytes,
    /// The part of allocated and pending that the program did not request.
    pub rounding: Bytes,
}

impl ReservedMemory {
    /// Returns the parts of one device. Missing where a figure is missing, and failed where the
    /// figures do not add up: the program that they come from may be hostile.
    pub(crate) fn of(allocator: &DeviceAllocator) -> Reading<Self> {
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

    /// Returns the parts of one device by the probe's figures, as [`ReservedMemory::of`] does.
    fn of_probe(device: &ProbeDevice) -> Reading<Self> {
        let known = |bytes: Option<Bytes>| bytes.ok_or(Missing::Unsupported);
        let less = |a: Bytes, b: Bytes| a.0.checked_sub(b.0).map(Bytes).ok_or(Missing::Failed);
        let part = |category| known(device.categories.get(&category).copied());
        let (allocated, pending) = (
            known(device.allocated)?,
            part(TensorCategory::Pending).unwrap_or(Bytes(0)),
        );
        let fragmented = part(TensorCategory::Fragmentation)?;
        Ok(Self {
            allocated,
            pending,
            fragmented,
            // The free memory of CUDA graphs is not among the probe's cache.
            cache: less(
                less(known(device.reserved)?, allocated + pending)?,
                fragmented,
            )?,
            // PyTorch before 2.0 does not count what was requested.
            rounding: less(
                allocated + pending,
                device.requested.unwrap_or(allocated + pending),
            )?,
        })
    }

    /// Returns the memory that PyTorch reserved in a process, on one GPU or on all: by its
    /// allocator stats, or where these cannot be read, by a report of the probe. `None` where the
    /// parts of a device are unknown, or there is no device.
    pub(crate) fn of_process(process: &Process, gpu: Option<&Gpu>, now: Moment) -> Option<Self> {
        let is_on_gpu =
            |uuid: &Option<GpuUuid>| gpu.is_none_or(|gpu| uuid.as_ref() == Some(&gpu.uuid));
        let stats = process
            .allocator
            .iter()
            .flat_map(|allocator| &allocator.devices);
        let by_stats: Vec<Reading<Self>> = stats
            .filter(|device| is_on_gpu(&device.gpu))
            .map(Self::of)
            .collect();
        let all = if by_stats.is_empty() {
            let devices = process
                .fresh_report(now)
                .into_iter()
                .flat_map(|report| &report.devices);
            devices
                .filter(|device| is_on_gpu(&device.gpu))
                .map(Self::of_probe)
                .collect()
        } else {
            by_stats
        };
        all.into_iter()
            .collect::<Reading<Vec<Self>>>()
            .ok()?
            .into_iter()
            .reduce(Self::plus)
    }

    /// The sum of the parts: `memory_reserved()`.
    pub(crate) fn sum(&self) -> Bytes {
        self.active() + self.fragmented + self.cache
    }

    /// The memory held by tensors or waiting for another stream.
    pub(crate) fn active(&self) -> Bytes {
        self.allocated + self.pending
    }

    /// The parts that add up to [`ReservedMemory::sum`]: all but the rounding.
    pub(crate) fn parts(&self) -> [(MemoryPart, Bytes); 4] {
        [
            (MemoryPart::Allocated, self.allocated),
            (MemoryPart::Pending, self.pending),
            (MemoryPart::Fragmented, self.fragmented),
            (MemoryPart::Cache, self.cache),
        ]
    }

    fn plus(self, other: Self) -> Self {
        Self {
            allocated: self.allocated + other.allocated,
            pending: self.pending + other.pending,
            fragmented: self.fragmented + other.fragmented,
            cache: self.cache + other.cache,
            rounding: self.rounding + other.rounding,
        }
    }
}

/// An amount of memory, and its parts, which add up to it. A part is negative where the figures
/// were not read at the same moment: the difference is shown, not hidden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Breakdown {
    pub whole: Bytes,
    /// The parts in bytes, in the order of [`MemoryPart`].
    pub parts: Vec<(MemoryPart, i64)>,
}

impl Breakdown {
    /// Returns the breakdown into known parts, and `rest`.
    fn new(whole: Bytes, known: &[(MemoryPart, Bytes)], rest: MemoryPart) -> Self {
        /// No device has more bytes. The sum of all parts does not overflow.
        const MOST: u64 = 1 << 58;
        let signed = |bytes: Bytes| bytes.0.min(MOST).cast_signed();
        let mut parts: Vec<(MemoryPart, i64)> = known
            .iter()
            .map(|(part, bytes)| (*part, signed(*bytes)))
            .collect();
        let whole = Bytes(whole.0.min(MOST));
        let sum = parts
            .iter()
            .fold(0_i64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        parts.push((rest, signed(whole).saturating_sub(sum)));
        parts.sort_by_key(|(part, _)| *part);
        Self { whole, parts }
    }

    /// The breakdown of a process's memory on one GPU. Missing where the driver's figure or
    /// PyTorch's is missing.
    pub(crate) fn of_gpu_process(
        memory: Reading<Bytes>,
        allocator: &DeviceAllocator,
    ) -> Reading<Self> {
        Ok(Self::new(
            memory?,
            &ReservedMemory::of(allocator)?.parts(),
            MemoryPart::Outside,
        ))
    }

    /// The breakdown of a process's memory on these GPUs: on all that it uses, or on one. `None`
    /// where its allocator was not read.
    pub(crate) fn of_process(snapshot: &Snapshot, process_total: &ProcessTotal) -> Option<Self> {
        let total = process_total
            .memory
            .ok()
            .filter(|total| !total.is_lower_bound)?;
        let id = process_total.process;
        let is_on_others = || {
            snapshot
                .gpus
                .iter()
                .filter(|gpu| gpu.process(id).is_some())
                .nth(1)
                .is_some()
        };
        let gpu = match process_total.gpus.as_slice() {
            [one] if is_on_others() => snapshot.gpus.get(*one),
            _ => None,
        };
        Some(Self::new(
            total.bytes,
            &reserved(snapshot, id, gpu)?.parts(),
            MemoryPart::Outside,
        ))
    }

    /// The breakdown of a GPU's memory in use, including MIG instances. Missing where the memory in
    /// use is missing.
    pub(crate) fn of_used(
        snapshot: &Snapshot,
        gpu: &Gpu,
        unaccounted: &[UnaccountedMemory],
    ) -> Reading<Self> {
        let (known, rest) = known_on(snapshot, gpu, unaccounted);
        Ok(Self::new(gpu.load.memory_used?, &known, rest))
    }

    /// The breakdown of all memory of a GPU, including MIG instances. Missing where the total, or
    /// the memory in use, is missing.
    pub(crate) fn of_gpu(
        snapshot: &Snapshot,
        gpu: &Gpu,
        unaccounted: &[UnaccountedMemory],
    ) -> Reading<Self> {
        let (total, used) = (gpu.load.memory_total?, gpu.load.memory_used?);
        // Drivers before 510 do not report their own part, and count it as used.
        let own = gpu.load.memory_reserved.ok();
        let (mut known, rest) = known_on(snapshot, gpu, unaccounted);
        known.extend(own.map(|own| (MemoryPart::Driver, own)));
        let free = total.saturating_sub(used);
        known.push((
            MemoryPart::Free,
            own.map_or(free, |own| free.saturating_sub(own)),
        ));
        Ok(Self::new(total, &known, rest))
    }

    /// The bytes of one part; 0 where there is none.
    pub(crate) fn part(&self, part: MemoryPart) -> i64 {
        self.parts
            .iter()
            .filter(|(known, _)| *known == part)
            .map(|(_, bytes)| bytes)
            .sum()
    }
}

/// Returns a GPU and its MIG instances.
pub(crate) fn with_instances<'a>(
    snapshot: &'a Snapshot,
    gpu: &'a Gpu,
) -> impl Iterator<Item = &'a Gpu> {
    snapshot
        .gpus
        .iter()
        .filter(|other| other.uuid == gpu.uuid || other.facts.parent.as_ref() == Some(&gpu.uuid))
}

/// Returns the known parts of the memory in use on a GPU and its MIG instances, and the part that
/// the rest belongs to.
fn known_on(
    snapshot: &Snapshot,
    gpu: &Gpu,
    unaccounted: &[UnaccountedMemory],
) -> (Vec<(MemoryPart, Bytes)>, MemoryPart) {
    let (mut divided, mut undivided, mut rest) = (None, Bytes(0), MemoryPart::Outside);
    for gpu in with_instances(snapshot, gpu) {
        if gpu.missing.processes.is_some() {
            rest = MemoryPart::Undivided;
        }
        for gpu_process in &gpu.processes {
            match (
                reserved(snapshot, gpu_process.process, Some(gpu)),
                gpu_process.memory,
            ) {
                (Some(reserved), _) => {
                    divided = Some(divided.map_or(reserved, |sum| reserved.plus(sum)));
                }
                (None, Ok(memory)) => undivided = undivided + memory,
                (None, Err(_)) => rest = MemoryPart::Undivided,
            }
        }
    }
    let mut known = divided.map_or_else(Vec::new, |reserved: ReservedMemory| {
        reserved.parts().to_vec()
    });
    if undivided > Bytes(0) {
        known.push((MemoryPart::Undivided, undivided));
    }
    let is_here =
        |pool: &&UnaccountedMemory| with_instances(snapshot, gpu).any(|gpu| gpu.uuid == pool.gpu);
    known.extend(
        unaccounted
            .iter()
            .filter(is_here)
            .map(|pool| (MemoryPart::Unaccounted, pool.memory)),
    );
    (known, rest)
}

/// Returns the memory that PyTorch reserved in a process, on one GPU or on all; `None` where it was
/// not read.
pub(crate) fn reserved(
    snapshot: &Snapshot,
    process: ProcessId,
    gpu: Option<&Gpu>,
) -> Option<ReservedMemory> {
    ReservedMemory::of_process(snapshot.process(process)?, gpu, snapshot.at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::HostModel;
    use crate::protocol::snapshot::example::host;
    use crate::protocol::snapshot::{
        AllocatorStats, AllocatorUnreadable, ProbeReading, ProbeReport,
    };

    /// Returns an allocator on the first GPU with these parts: allocated, pending, fragmented,
    /// cache, rounding.
    pub(crate) fn allocator(parts: [u64; 5]) -> DeviceAllocator {
        let [allocated, pending, fragmented, cache, rounding] = parts;
        let active = allocated.saturating_add(pending);
        DeviceAllocator {
            allocated: Ok(Bytes(allocated)),
            active: Ok(Bytes(active)),
            inactive_split: Ok(Bytes(fragmented)),
            reserved: Ok(Bytes(
                active.saturating_add(fragmented).saturating_add(cache),
            )),
            requested: Ok(Bytes(active.saturating_sub(rounding))),
            ..DeviceAllocator::missing(0, Some(GpuUuid("GPU-0".into())), Missing::NotYet)
        }
    }

    fn sum(breakdown: &Breakdown) -> i128 {
        breakdown.parts.iter().map(|part| i128::from(part.1)).sum()
    }

    fn any_parts() -> impl Strategy<Value = [u64; 5]> {
        let amount = prop_oneof![0..1_u64 << 36, any::<u64>().prop_map(|bytes| bytes >> 3)];
        proptest::array::uniform5(amount)
    }

    proptest! {
        /// Any figures give parts that add up to the whole.
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
                    let place = snapshot.processes.iter().position(|process| process.id.pid == pid).unwrap();
                    let peek = AllocatorStats { devices: vec![allocator(*parts)], unreadable: None };
                    snapshot.processes[place].allocator = Some(peek.into());
                    if let Ok(breakdown) = Breakdown::of_gpu_process(Ok(Bytes(memory >> 4)), &allocator(*parts)) {
                        prop_assert_eq!(sum(&breakdown), i128::from(breakdown.whole.0));
                    }
                }
            }
            let load = &mut snapshot.gpus[0].load;
            (load.memory_used, load.memory_total) = (Ok(Bytes(used)), Ok(Bytes(total)));
            load.memory_reserved = own.map(Bytes).ok_or(Missing::Unsupported);
            let mut model = HostModel::default();
            model.replace(snapshot.clone());
            let breakdown = Breakdown::of_gpu(&snapshot, &snapshot.gpus[0], model.unaccounted()).unwrap();
            prop_assert_eq!(sum(&breakdown), i128::from(breakdown.whole.0));
            for breakdown in model.process_totals().iter().filter_map(|total| Breakdown::of_process(&snapshot, total)) {
                prop_assert_eq!(sum(&breakdown), i128::from(breakdown.whole.0));
            }
        }
    }

    proptest! {
        /// On GPUs with and without MIG, with GPU processes whose memory and devices are known or
        /// unknown: PyTorch's figures are in the parts of their GPU, each once, and the parts add
        /// up to the whole.
        #[test]
        fn pytorch_s_figures_are_in_the_parts(
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
            let uuids = [0, 1, 2].map(|gpu: usize| snapshot.gpus[gpu].uuid.clone());
            let mut expected = [0; 3];
            for (pid, (parts, memory, held, named)) in (100..).zip(&gpu_processes) {
                snapshot = snapshot.with(pid, "python train.py", *held, memory.map_or(Bytes(0), Bytes));
                let gpu_process = snapshot.gpus[*held].processes.last_mut().unwrap();
                gpu_process.memory = memory.map(Bytes).ok_or(Missing::Unsupported);
                let allocator = DeviceAllocator { gpu: named.map(|gpu| uuids[gpu].clone()), ..allocator(*parts) };
                let reserved = ReservedMemory::of(&allocator).ok();
                prop_assert_eq!(reserved.map(|reserved| reserved.sum()), allocator.reserved.ok().filter(|_| reserved.is_some()));
                if named == &Some(*held) {
                    expected[*held] += reserved.map_or(0, |reserved| i128::from(reserved.sum().0));
                }
                let peek = AllocatorStats { devices: vec![allocator], unreadable: None };
                let process = snapshot.processes.iter_mut().find(|process| process.id.pid == pid).unwrap();
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
                let breakdown = Breakdown::of_gpu(&snapshot, gpu, model.unaccounted()).unwrap();
                let parts = [MemoryPart::Allocated, MemoryPart::Pending, MemoryPart::Fragmented, MemoryPart::Cache].map(|part| breakdown.part(part));
                prop_assert_eq!(parts.into_iter().map(i128::from).sum::<i128>(), expected);
                prop_assert_eq!(sum(&breakdown), i128::from(breakdown.whole.0));
            }
        }
    }

    #[test]
    fn memory_reserved_after_the_driver_s_reading_is_a_negative_part() {
        let breakdown =
            Breakdown::of_gpu_process(Ok(Bytes(900)), &allocator([500, 100, 200, 300, 7])).unwrap();
        assert_eq!(breakdown.parts.last(), Some(&(MemoryPart::Outside, -200)));
        assert_eq!(
            (
                breakdown.part(MemoryPart::Cache),
                breakdown.part(MemoryPart::Free)
            ),
            (300, 0)
        );
    }

    #[test]
    fn the_probe_stands_in_for_allocator_stats_that_cannot_be_read() {
        let mut snapshot = host(1).with(7, "python train.py", 0, Bytes(2000));
        let device = ProbeDevice {
            gpu: Some(snapshot.gpus[0].uuid.clone()),
            allocated: Some(Bytes(700)),
            reserved: Some(Bytes(1000)),
            categories: [
                (TensorCategory::Activations, Bytes(700)),
                (TensorCategory::Fragmentation, Bytes(100)),
            ]
            .into(),
            ..ProbeDevice::default()
        };
        let report = ProbeReport {
            at: snapshot.at,
            devices: vec![device],
            ..ProbeReport::default()
        };
        let probe = ProbeReading {
            report: Some(report),
            missing: None,
        };
        snapshot.processes[0].allocator =
            Some(AllocatorStats::unreadable(AllocatorUnreadable::PtraceScope).into());
        snapshot.processes[0].probe = Some(probe.into());
        let mut model = HostModel::default();
        model.replace(snapshot.clone());
        let breakdown = Breakdown::of_process(&snapshot, &model.process_totals()[0]).unwrap();
        let parts = [
            MemoryPart::Allocated,
            MemoryPart::Fragmented,
            MemoryPart::Cache,
            MemoryPart::Outside,
        ];
        assert_eq!(
            parts.map(|part| breakdown.part(part)),
            [700, 100, 200, 1000]
        );
        let id = snapshot.processes[0].id;
        let layers: Vec<(String, Option<Bytes>)> = model
            .tensor_history(&crate::model::GpuOrProcess::Process(id))
            .unwrap()
            .layers()
            .map(|(layer, history)| (layer.to_string(), history.latest()))
            .filter(|(_, bytes)| *bytes != Some(Bytes(0)))
            .collect();
        assert_eq!(
            layers,
            [
                ("activations".to_owned(), Some(Bytes(700))),
                ("unallocated".to_owned(), Some(Bytes(100)))
            ]
        );
        // An old report is no figure of the present.
        snapshot.at = Moment(snapshot.at.0 + 60_000);
        assert_eq!(reserved(&snapshot, id, None), None);
    }

    #[test]
    fn an_allocator_that_does_not_add_up_is_no_figure() {
        let mut figures = allocator([500, 100, 200, 300, 7]);
        figures.active = Ok(Bytes(400));
        assert_eq!(ReservedMemory::of(&figures), Err(Missing::Failed));
        figures.active = Err(Missing::NotYet);
        assert_eq!(ReservedMemory::of(&figures), Err(Missing::NotYet));
    }

    #[test]
    fn the_breakdown_of_a_gpu_has_all_its_processes() {
        let gib = Bytes::from_gib;
        let mut snapshot =
            host(1)
                .with(7, "python train.py", 0, gib(20))
                .with(8, "python other.py", 0, gib(10));
        let peek = AllocatorStats {
            devices: vec![allocator([10 << 30, 0, 2 << 30, 6 << 30, 7])],
            unreadable: None,
        };
        snapshot.processes[0].allocator = Some(peek.into());
        let breakdown = Breakdown::of_gpu(&snapshot, &snapshot.gpus[0], &[]).unwrap();
        let parts = [
            MemoryPart::Allocated,
            MemoryPart::Fragmented,
            MemoryPart::Cache,
            MemoryPart::Undivided,
            MemoryPart::Outside,
            MemoryPart::Free,
        ];
        assert_eq!(
            parts.map(|part| breakdown.part(part) >> 30),
            [10, 2, 6, 10, 2, 50]
        );
    }

    #[test]
    fn the_memory_of_a_gpu_without_allocator_stats_is_undivided_or_unaccounted() {
        let gib = Bytes::from_gib;
        let mut snapshot = host(2).with(7, "program", 0, gib(20));
        snapshot.gpus[1].load.memory_used = Ok(gib(9));
        let mut model = HostModel::default();
        model.replace(snapshot.clone());
        let parts = |snapshot: &Snapshot, gpu: usize| {
            let used =
                Breakdown::of_used(snapshot, &snapshot.gpus[gpu], model.unaccounted()).unwrap();
            [
                MemoryPart::Undivided,
                MemoryPart::Outside,
                MemoryPart::Unaccounted,
            ]
            .map(|part| used.part(part) >> 30)
        };
        assert_eq!(
            (parts(&snapshot, 0), parts(&snapshot, 1)),
            ([20, 0, 0], [0, 0, 9])
        );
        snapshot.gpus[0].processes[0].memory = Err(Missing::Unsupported);
        assert_eq!(parts(&snapshot, 0), [20, 0, 0]);
    }

    #[test]
    fn a_split_gpu_has_what_is_on_its_instances() {
        let gib = Bytes::from_gib;
        let mut snapshot = host(3).with(7, "python train.py", 0, gib(20));
        for gpu in &mut snapshot.gpus[..2] {
            gpu.facts.parent = Some(GpuUuid("GPU-2".into()));
        }
        // The memory in use on the second instance is unaccounted.
        snapshot.gpus[1].load.memory_used = Ok(gib(5));
        snapshot.gpus[2].load.memory_used = Ok(gib(26));
        let peek = AllocatorStats {
            devices: vec![allocator([10 << 30, 0, 2 << 30, 6 << 30, 7])],
            unreadable: None,
        };
        snapshot.processes[0].allocator = Some(peek.into());
        let mut model = HostModel::default();
        model.replace(snapshot.clone());
        let breakdown =
            Breakdown::of_gpu(&snapshot, &snapshot.gpus[2], model.unaccounted()).unwrap();
        let parts = [
            MemoryPart::Allocated,
            MemoryPart::Fragmented,
            MemoryPart::Cache,
            MemoryPart::Unaccounted,
            MemoryPart::Outside,
        ];
        assert_eq!(
            parts.map(|part| breakdown.part(part) >> 30),
            [10, 2, 6, 5, 3]
        );
    }
}
