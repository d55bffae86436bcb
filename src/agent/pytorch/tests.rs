//! Tests with allocators in simulated memory: valid ones of each layout, and invalid ones.

mod allocator_reader;
mod fuzz;
mod repeated_reads;

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::device_stats::{CurrentAndPeak, DeviceStats};
use super::locate::{AllocatorLocation, locate};
use super::memory::{Memory, one_by_one};
use super::stats_reader::{SampleOutcome, StatsReader, ThreadState};
use crate::protocol::snapshot::AllocatorUnreadable;

const BASE: u64 = 0x7f00_0000_0000;
const SYMBOL: u64 = BASE + 0x3008;
const OBJECT: u64 = BASE + 0x8_0000;
const HEAP: u64 = 0x5500_0000_0000;
const DEVICE: u64 = HEAP + 0x1_0000;
/// The distance between two devices.
const STRIDE: u64 = 0x1000;
const NAME: &str = "_ZN3c104cuda20CUDACachingAllocator9allocatorE";
/// The size of the mutex before the statistics of a device.
const MUTEX: u64 = if cfg!(target_arch = "aarch64") {
    48
} else {
    40
};

fn sample(
    reader: &mut StatsReader,
    check_all: bool,
    read: &dyn Fn(u64, &mut [u8]) -> bool,
) -> Result<Vec<DeviceStats>, SampleOutcome> {
    match reader.sample(
        &mut Memory::new(&one_by_one(read)),
        check_all,
        &mut ThreadState::default(),
    ) {
        SampleOutcome::Complete { .. } => Ok(reader.stats.clone()),
        sample => Err(sample),
    }
}

/// The memory of a process: bytes by address.
#[derive(Debug, Clone, Default)]
struct MemoryImage(BTreeMap<u64, Vec<u8>>);

impl MemoryImage {
    fn read(&self, at: u64, buffer: &mut [u8]) -> bool {
        let piece = self.0.range(..=at).next_back().and_then(|(start, bytes)| {
            let from = usize::try_from(at - start).ok()?;
            bytes.get(from..from.checked_add(buffer.len())?)
        });
        piece.map(|piece| buffer.copy_from_slice(piece)).is_some()
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        let (start, piece) = self
            .0
            .range_mut(..=at)
            .next_back()
            .expect("the address is mapped");
        let from = usize::try_from(at - start).unwrap();
        piece[from..from + bytes.len()].copy_from_slice(bytes);
    }

    fn words(&mut self, at: u64, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.put(at, &bytes);
    }

    /// Returns the image of a library that exports the allocator, of its object with the vector at
    /// offset `vector`, and of devices of zeros.
    fn new(vector: u64, devices: u64) -> Self {
        let mut image = Self::default();
        image.0.insert(BASE, vec![0; 0x4000]);
        image.0.insert(OBJECT, vec![0; 0x6000]);
        image.0.insert(HEAP, vec![0; 0x4_0000]);
        image.put(BASE, b"\x7fELF\x02\x01\x01");
        image.words(BASE + 0x20, &[64]);
        image.put(BASE + 0x36, &[56, 0, 2, 0]);
        // Two program headers: `PT_LOAD` with address 0 and `PT_DYNAMIC` with address 0x400.
        image.put(BASE + 64, &[1]);
        image.put(BASE + 120, &[2]);
        image.words(BASE + 120 + 16, &[0x400]);
        // One name, one symbol, one bucket. The table of names has its real address, as glibc
        // leaves it.
        image.words(
            BASE + 0x400,
            &[5, BASE + 0x800, 6, 0x900, 0x6fff_fef5, 0xa00, 0, 0],
        );
        image.put(BASE + 0x801, NAME.as_bytes());
        image.put(BASE + 0x918, &[1, 0, 0, 0, 0x11, 0, 24, 0]);
        image.words(BASE + 0x920, &[SYMBOL - BASE, 8]);
        let hash = NAME.bytes().fold(5381_u32, |hash, byte| {
            hash.wrapping_mul(33).wrapping_add(byte.into())
        });
        for (place, word) in [1, 1, 1, 0, 0, 0, 1, hash | 1].into_iter().enumerate() {
            image.put(BASE + 0xa00 + 4 * place as u64, &u32::to_ne_bytes(word));
        }
        image.words(SYMBOL, &[OBJECT]);
        image.words(
            OBJECT + vector,
            &[HEAP, HEAP + 8 * devices, HEAP + 8 * devices],
        );
        let pointers: Vec<u64> = (0..devices)
            .map(|device| DEVICE + device * STRIDE)
            .collect();
        image.words(HEAP, &pointers);
        image
    }

    /// Writes the counters of a device.
    fn device(&mut self, device: u64, second: u64, counters: &Counters) {
        let address = DEVICE + device * STRIDE + MUTEX;
        let places = (0..6)
            .map(|index| index * 96)
            .chain((0..3).map(|index| second + index * 96));
        if second > 576 {
            // A hash map: its first entry, a mask, a policy, a load factor, a count.
            self.words(address + 576, &[HEAP + 0x3_0000, 3, 0x3f00_0000_0004, 0]);
        }
        for (place, array) in places.zip(&counters.0) {
            self.words(address + place, array.as_flattened());
        }
        self.words(address + second + 288, &[2, 1]);
    }

    /// Sets the type of the allocator's object.
    fn set_type(&mut self, name: &str) {
        self.words(OBJECT, &[HEAP + 0x3_8010]);
        self.words(HEAP + 0x3_8008, &[HEAP + 0x3_8100]);
        self.words(HEAP + 0x3_8108, &[HEAP + 0x3_8200]);
        self.put(HEAP + 0x3_8200, name.as_bytes());
    }

    fn locate(&self) -> Result<AllocatorLocation, AllocatorUnreadable> {
        locate(
            &mut Memory::new(&one_by_one(|at, buffer| self.read(at, buffer))),
            BASE,
        )
    }

    fn sample(&self, location: &AllocatorLocation) -> Result<Vec<DeviceStats>, SampleOutcome> {
        self.resample(&mut StatsReader::new(location.clone()), false)
    }

    fn resample(
        &self,
        reader: &mut StatsReader,
        check_all: bool,
    ) -> Result<Vec<DeviceStats>, SampleOutcome> {
        sample(reader, check_all, &|at, buffer| self.read(at, buffer))
    }
}

/// The counters of an allocator, updated as PyTorch does: nine arrays of whole, small pool and
/// large pool, each with current, peak, allocated, freed.
#[derive(Debug, Clone, Default)]
struct Counters([[[u64; 4]; 3]; 9]);

/// The index of a counter.
#[derive(Debug, Clone, Copy)]
enum CounterKind {
    Allocations,
    Segments,
    ActiveBlocks,
    Allocated = 4,
    Reserved,
    Active,
    InactiveSplit,
    Requested,
}

impl Counters {
    fn add(&mut self, kind: CounterKind, pool: usize, amount: u64) {
        for pool in [0, 1 + pool] {
            let [current, peak, added, _] = &mut self.0[kind as usize][pool];
            *current += amount;
            *peak = (*peak).max(*current);
            *added += amount;
        }
    }

    fn remove(&mut self, kind: CounterKind, pool: usize, amount: u64) {
        for pool in [0, 1 + pool] {
            let [current, _, _, removed] = &mut self.0[kind as usize][pool];
            *current -= amount;
            *removed += amount;
        }
    }

    fn stat(&self, kind: CounterKind) -> CurrentAndPeak {
        let [current, peak, ..] = self.0[kind as usize][0];
        CurrentAndPeak { current, peak }
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats {
            allocations: self.stat(CounterKind::Allocations),
            total_allocations: self.0[CounterKind::Allocations as usize][0][2],
            segments: self.stat(CounterKind::Segments),
            allocated: self.stat(CounterKind::Allocated),
            reserved: self.stat(CounterKind::Reserved),
            active: self.stat(CounterKind::Active),
            inactive_split: self.stat(CounterKind::InactiveSplit),
            requested: self.stat(CounterKind::Requested),
            retries: 2,
            ooms: 1,
        }
    }

    /// Reserves a segment of this many blocks of 512 bytes, and allocates the requested bytes from
    /// it. The bits tell what is freed again.
    fn work(&mut self, pool: usize, blocks: u64, asked: u64, bits: u8) {
        let size = blocks * 512;
        let used = asked.min(size).div_ceil(512) * 512;
        self.add(CounterKind::Segments, pool, 1);
        self.add(CounterKind::Reserved, pool, size);
        for (kind, amount) in [
            (CounterKind::Allocations, 1),
            (CounterKind::ActiveBlocks, 1),
            (CounterKind::Allocated, used),
            (CounterKind::Active, used),
            (CounterKind::Requested, asked.min(size)),
        ] {
            self.add(kind, pool, amount);
        }
        self.add(CounterKind::InactiveSplit, pool, size - used);
        if bits & 1 == 1 {
            // The program has freed the memory, and another stream still uses it.
            self.remove(CounterKind::Allocations, pool, 1);
            self.remove(CounterKind::Allocated, pool, used);
            if bits & 2 == 2 {
                self.remove(CounterKind::ActiveBlocks, pool, 1);
                self.remove(CounterKind::Active, pool, used);
                self.remove(CounterKind::Requested, pool, asked.min(size));
                self.remove(CounterKind::InactiveSplit, pool, size - used);
                if bits & 4 == 4 {
                    self.remove(CounterKind::Reserved, pool, size);
                    self.remove(CounterKind::Segments, pool, 1);
                }
            }
        }
        if bits & 8 == 8 {
            for [current, peak, ..] in self.0.iter_mut().flatten() {
                *peak = *current;
            }
        }
    }
}

fn any_counters() -> impl Strategy<Value = Counters> {
    proptest::collection::vec(
        (0..2usize, 1..1_000_000u64, 1..600_000_000u64, any::<u8>()),
        1..20,
    )
    .prop_map(|works| {
        let mut counters = Counters::default();
        for (pool, blocks, asked, bits) in works {
            counters.work(pool, blocks, asked, bits);
        }
        // Some memory stays in use: a device without any is recognized by its peak alone.
        counters.work(1, 4096, 1000, 0);
        counters
    })
}

/// Offsets of the vector and of the second run of arrays in torch 2.1, 2.5 and 2.15.
const LAYOUTS: [(u64, u64); 3] = [(80, 576), (22_584, 576), (22_584, 608)];

fn valid_image(layout: usize, devices: u64, used: u64, counters: &Counters) -> MemoryImage {
    let (vector, second) = LAYOUTS[layout];
    let mut image = MemoryImage::new(vector, devices);
    for device in (0..devices).filter(|device| *device != used) {
        image.device(device, second, &Counters::default());
        image.words(DEVICE + device * STRIDE + MUTEX + second + 288, &[0, 0]);
    }
    image.device(used, second, counters);
    image
}

fn used_counters() -> Counters {
    let mut counters = Counters::default();
    counters.work(1, 40_960, 1_000_000, 0);
    counters.work(0, 4096, 700, 3);
    counters
}

proptest! {
    /// The statistics of any program are read exactly, in each layout.
    #[test]
    fn statistics_are_read_exactly(counters in any_counters(), layout in 0..3usize, devices in 1..9u64, used in 0..8u64) {
        let used = used % devices;
        let image = valid_image(layout, devices, used, &counters);
        let location = image.locate();
        prop_assert!(location.is_ok(), "{location:?}");
        let stats = image.sample(&location.unwrap()).expect("the image does not change");
        prop_assert_eq!(stats.len() as u64, devices);
        for (device, stats) in stats.iter().enumerate() {
            let expected = if device as u64 == used { counters.stats() } else { DeviceStats::default() };
            prop_assert_eq!(*stats, expected);
        }
    }
}

#[test]
fn devices_may_be_in_any_order_and_far_apart() {
    let counters = used_counters();
    let mut image = valid_image(2, 4, 1, &counters);
    image.0.insert(HEAP + (1 << 30), vec![0; 0x2000]);
    let device = |at: u64| DEVICE + at * STRIDE;
    image.words(HEAP, &[device(3), HEAP + (1 << 30), device(1), device(0)]);
    let location = image.locate().unwrap();
    let none = DeviceStats::default();
    assert_eq!(
        image.sample(&location),
        Ok(vec![none, none, counters.stats(), none])
    );
}

#[test]
fn a_vector_of_a_billion_pointers_is_rejected() {
    let mut image = valid_image(0, 1, 0, &used_counters());
    image.words(OBJECT + 80, &[HEAP, HEAP + (8 << 30), HEAP + (8 << 30)]);
    assert_eq!(image.locate(), Err(AllocatorUnreadable::NotYet));
}

#[test]
fn pointers_in_a_circle_are_rejected() {
    let mut image = valid_image(0, 4, 0, &used_counters());
    // The object is full of vectors whose elements are the object.
    for offset in (8..0x6000 - 24).step_by(24) {
        image.words(OBJECT + offset, &[OBJECT, OBJECT + 1024, OBJECT + 1024]);
    }
    assert_eq!(image.locate(), Err(AllocatorUnreadable::NotYet));
    // The elements of the vector are the same.
    let mut image = valid_image(0, 2, 0, &used_counters());
    image.words(HEAP, &[DEVICE, DEVICE]);
    assert_eq!(image.locate(), Err(AllocatorUnreadable::NotYet));
}

#[test]
fn an_unused_allocator_is_not_found_yet() {
    assert_eq!(
        valid_image(1, 2, 0, &Counters::default()).locate(),
        Err(AllocatorUnreadable::NotYet)
    );
}

#[test]
fn foreign_allocators_are_recognized_by_their_type() {
    let mut image = valid_image(1, 1, 0, &used_counters());
    image.set_type("N3c104cuda20CUDACachingAllocator15CudaMallocAsync24CudaMallocAsyncAllocatorE");
    assert_eq!(image.locate(), Err(AllocatorUnreadable::CudaMallocAsync));
    let mut image = valid_image(1, 1, 0, &used_counters());
    image.set_type("N5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE");
    assert_eq!(image.locate(), Err(AllocatorUnreadable::Pluggable));
    let mut image = valid_image(1, 1, 0, &used_counters());
    image.set_type("N3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocatorE");
    assert!(image.locate().is_ok());
}

#[test]
fn an_older_library_exports_no_allocator() {
    let mut image = valid_image(0, 1, 0, &used_counters());
    image.put(BASE + 0x801, b"_ZN3c104cuda20CUDACachingAllocator3getEv\0");
    assert_eq!(image.locate(), Err(AllocatorUnreadable::OldPytorch));
}

#[test]
fn statistics_with_reset_totals_are_read() {
    let mut counters = used_counters();
    for [_, _, added, taken] in counters.0.iter_mut().flatten() {
        (*added, *taken) = (0, 0);
    }
    let image = valid_image(2, 1, 0, &counters);
    let location = image.locate().unwrap();
    assert_eq!(image.sample(&location), Ok(vec![counters.stats()]));
}

#[test]
fn a_device_with_only_cached_memory_is_in_use() {
    // All tensors are freed, their memory is cached; then the peaks were reset.
    let mut counters = Counters::default();
    counters.work(1, 40_960, 1_000_000, 3 | 8);
    assert_eq!(counters.stat(CounterKind::Allocations).peak, 0);
    let image = valid_image(1, 1, 0, &counters);
    let stats = image
        .sample(&image.locate().unwrap())
        .expect("the image does not change");
    assert!(stats[0].is_used() && stats == [counters.stats()]);
}

/// An image that changes with each read of a device.
struct ChangingImage(RefCell<(MemoryImage, Counters, u64)>);

impl ChangingImage {
    fn sample(
        &self,
        location: &AllocatorLocation,
        after: u64,
    ) -> Result<Vec<DeviceStats>, SampleOutcome> {
        let read = |at: u64, buffer: &mut [u8]| {
            let (image, counters, reads) = &mut *self.0.borrow_mut();
            if (DEVICE..DEVICE + STRIDE).contains(&at) {
                *reads += 1;
                if *reads <= after {
                    counters.work(1, 4096, 1000, 0);
                    image.device(0, 576, counters);
                }
            }
            image.read(at, buffer)
        };
        sample(&mut StatsReader::new(location.clone()), false, &read)
    }
}

#[test]
fn a_sample_is_repeated_until_nothing_changes() {
    let counters = used_counters();
    let image = valid_image(1, 1, 0, &counters);
    let location = image.locate().unwrap();
    let changing = ChangingImage(RefCell::new((image, counters, 0)));
    let stats = changing
        .sample(&location, 4)
        .expect("the image stops changing");
    assert_eq!(stats, [changing.0.borrow().1.stats()]);
    changing.0.borrow_mut().2 = 0;
    assert_eq!(changing.sample(&location, 1000), Err(SampleOutcome::Torn));
}

#[test]
fn statistics_mid_update_are_not_accepted() {
    let mut counters = used_counters();
    let image = valid_image(1, 1, 0, &counters);
    let location = image.locate().unwrap();
    // The lock holder was stopped before it wrote the last number.
    counters.0[CounterKind::Allocated as usize][0][0] += 512;
    let mut image = image;
    image.device(0, 576, &counters);
    image.put(DEVICE, &[1]);
    assert_eq!(image.sample(&location), Err(SampleOutcome::Locked));
}

#[test]
fn an_allocator_with_other_pointers_is_gone() {
    let image = valid_image(1, 2, 0, &used_counters());
    let location = image.locate().unwrap();
    let after = |change: &dyn Fn(&mut MemoryImage)| {
        let (mut image, mut reader) = (image.clone(), StatsReader::new(location.clone()));
        image.resample(&mut reader, false).unwrap();
        change(&mut image);
        assert_eq!(
            image.sample(&location).is_ok(),
            image.0 == valid_image(1, 2, 0, &used_counters()).0
        );
        // Within 12 samples, each part of the pointer chain has its turn.
        [0; 12]
            .map(|_| image.resample(&mut reader, false))
            .into_iter()
            .find_map(Result::err)
    };
    assert_eq!(after(&|_| ()), None);
    assert_eq!(
        after(&|image| image.words(SYMBOL, &[OBJECT + 8])),
        Some(SampleOutcome::Gone)
    );
    assert_eq!(
        after(&|image| image.words(OBJECT + 22_592, &[HEAP + 8])),
        Some(SampleOutcome::Gone)
    );
    assert_eq!(
        after(&|image| image.words(HEAP, &[DEVICE + STRIDE, DEVICE])),
        Some(SampleOutcome::Gone)
    );
    assert_eq!(
        after(&|image| _ = image.0.remove(&HEAP)),
        Some(SampleOutcome::Gone)
    );
}
