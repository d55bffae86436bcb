//! Reads the statistics of the devices of one process again and again, with as few bytes as prove
//! them correct.
//!
//! Reading a page that was not read for a second costs about a microsecond, whether for eight bytes
//! or a thousand. So one sample is one call, with mostly one range for each device that is used.
//!
//! A sample counts when the bytes did not change for a while. Some of the bytes are totals that
//! grow with each change, so the same bytes are the same state:
//!
//! - A device that did not change between the last two samples is read once. Unchanged bytes are
//!   the state that was proven before.
//! - A device that changed is read twice in one call, which copies the ranges one after the other.
//!   If both copies are the same and the mutex, which is part of them, is free, nothing changed in
//!   between and no change was under way.
//! - In all other cases the device is read again, in calls of its own, until two copies are the
//!   same.
//!
//! While the mutex is held, two equal copies are not enough: the lock holder may be preempted
//! mid-update. Then the bytes have to be the same in two samples.
//!
//! The first sample verifies the whole pointer chain, later samples one part of it in turn. A
//! change of the chain also shows at its end: unchanged bytes are still the allocator's, and
//! changed bytes have to keep the allocator's rules.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::thread;

use super::device_stats::{self, CheckLevel, DeviceStats, SIZE};
use super::locate::AllocatorLocation;
use super::memory::{Memory, MemoryRange, word};
use crate::protocol::snapshot::ProcessId;

/// How often a device is read at most in search of two equal copies.
const TRIES: u32 = 8;

/// The number of samples in which each of the three parts of the pointer chain is verified once.
const CHAIN_INTERVAL: usize = 12;

const MOST_LOCATIONS: usize = 4096;

/// State that the thread keeps for all processes: buffers, so that no read allocates, and the
/// owners of allocator locations.
#[derive(Debug, Default)]
pub(super) struct ThreadState {
    bytes: Vec<u8>,
    ranges: Vec<MemoryRange>,
    /// The oldest process with its allocator at a location, by the hash of all addresses. Two
    /// programs never have the same addresses by chance; a forked process has those of its parent.
    oldest: BTreeMap<u64, ProcessId>,
}

impl ThreadState {
    /// Remembers the location of a process's allocator, and returns its hash.
    pub(super) fn add_location(&mut self, reader: &StatsReader, id: ProcessId) -> u64 {
        let mut hasher = DefaultHasher::new();
        reader.location.hash(&mut hasher);
        let hash = hasher.finish();
        if self.oldest.len() >= MOST_LOCATIONS {
            self.oldest.clear();
        }
        let oldest = self.oldest.entry(hash).or_insert(id);
        if id.start_ticks < oldest.start_ticks {
            *oldest = id;
        }
        hash
    }

    /// Returns the oldest process with its allocator at that location. `None` when that is the
    /// process itself.
    pub(super) fn older(&self, location: u64, id: ProcessId) -> Option<ProcessId> {
        self.oldest
            .get(&location)
            .copied()
            .filter(|oldest| *oldest != id)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SampleOutcome {
    Complete {
        /// Whether they differ from the last complete sample.
        has_moved: bool,
    },
    /// Some devices changed while they were read, and keep their last statistics.
    Torn,
    /// The mutex of a device was held, and its bytes have changed since the last sample. The device
    /// keeps its last statistics.
    Locked,
    /// The allocator is no longer at its address.
    Gone,
}

/// How much of a device the next sample reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadMode {
    /// The device was unused: in turn with the others, only the word that shows its first use.
    Unused,
    /// The device did not change between the last two samples: all, once.
    Steady,
    /// The device changed between the last two samples, or was never read: all, twice.
    Changing,
}

/// The statistics of each device of a process, and how to read them again.
#[derive(Debug)]
pub(super) struct StatsReader {
    location: AllocatorLocation,
    /// In CUDA's order. Empty before the first sample.
    pub(super) stats: Vec<DeviceStats>,
    /// The bytes of each device, [`SIZE`] each, with which its next sample is compared.
    bytes: Vec<u8>,
    modes: Vec<ReadMode>,
    /// Whether a device has changed since the last complete sample.
    has_moved: bool,
    turn: usize,
}

impl StatsReader {
    pub(super) fn new(location: AllocatorLocation) -> Self {
        let count = location.devices.len();
        Self {
            location,
            stats: Vec::new(),
            bytes: vec![0; count * SIZE],
            modes: vec![ReadMode::Changing; count],
            has_moved: false,
            turn: 0,
        }
    }

    /// Whether a device has allocated blocks since it had the statistics `before`.
    pub(super) fn has_allocated_since(&self, before: &[DeviceStats]) -> bool {
        self.stats
            .iter()
            .zip(before)
            .any(|(now, before)| now.total_allocations > before.total_allocations)
    }

    /// Whether the memory of another process has the allocator at the same location.
    pub(super) fn is_located_in(&self, memory: &mut Memory<'_>) -> bool {
        self.location.chain().into_iter().all(|(at, size)| {
            let mut pointers = vec![0; size];
            memory.read(at, &mut pointers).is_some() && self.location.is_unchanged(at, &pointers)
        })
    }

    /// Reads the statistics of each device that is in use; the first time, of all. Checks one
    /// unused device for first use, in turn, or all of them with `check_all`. A process on a large
    /// host sees all GPUs and uses one, so checking all each time would be most of the cost of a
    /// sample.
    pub(super) fn sample(
        &mut self,
        memory: &mut Memory<'_>,
        check_all: bool,
        thread: &mut ThreadState,
    ) -> SampleOutcome {
        let is_first = self.stats.is_empty();
        let count = self.location.devices.len();
        self.turn = self.turn.wrapping_add(1);
        let ThreadState { bytes, ranges, .. } = thread;
        let chain_parts = self.plan(check_all, ranges);
        let size = ranges.iter().map(|(_, size)| size).sum();
        if bytes.len() < size {
            bytes.resize(size, 0);
        }
        if memory.read_all(ranges, &mut bytes[..size]).is_none() {
            return SampleOutcome::Gone;
        }
        let mut copies = Copies(&bytes[..size]);
        let mut chain = ranges[..chain_parts].iter();
        if !chain.all(|(at, size)| self.location.is_unchanged(*at, copies.next(*size))) {
            return SampleOutcome::Gone;
        }
        let mut failure = None;
        self.stats.resize(count, DeviceStats::default());
        for device in 0..count {
            match self.found(device, check_all, memory, &mut copies) {
                None => {}
                Some(Ok(found)) => self.keep(device, found),
                Some(Err(SampleOutcome::Gone)) => return SampleOutcome::Gone,
                Some(Err(outcome)) => {
                    self.modes[device] = ReadMode::Changing;
                    failure = Some(outcome);
                }
            }
        }
        if let Some(failure) = failure {
            if is_first {
                // A device that could not be read must not count as unused.
                self.stats.clear();
                self.modes.fill(ReadMode::Changing);
            }
            return failure;
        }
        SampleOutcome::Complete {
            has_moved: std::mem::take(&mut self.has_moved),
        }
    }

    /// Whether this sample looks for the first use of a device that was unused.
    fn is_checked(&self, device: usize, check_all: bool) -> bool {
        check_all || self.turn % self.location.devices.len() == device
    }

    /// Lists the ranges of a sample: parts of the pointer chain, then what each device needs.
    /// Returns how many are of the chain.
    fn plan(&self, check_all: bool, ranges: &mut Vec<MemoryRange>) -> usize {
        ranges.clear();
        let chain = self.location.chain();
        if self.stats.is_empty() {
            ranges.extend(chain);
        } else {
            ranges.extend(chain.get(self.turn % CHAIN_INTERVAL));
        }
        let chain_parts = ranges.len();
        for (device, (at, mode)) in self.location.devices.iter().zip(&self.modes).enumerate() {
            match mode {
                ReadMode::Unused if self.is_checked(device, check_all) => {
                    ranges.push((at + device_stats::RESERVED_PEAK, 8));
                }
                ReadMode::Unused => (),
                ReadMode::Steady => ranges.push((*at, SIZE)),
                ReadMode::Changing => ranges.extend([(*at, SIZE); 2]),
            }
        }
        chain_parts
    }

    /// Takes what the sample read of a device, and reads it again where that proves nothing. `None`
    /// if the device did not change.
    fn found(
        &mut self,
        device: usize,
        check_all: bool,
        memory: &mut Memory<'_>,
        copies: &mut Copies<'_>,
    ) -> Option<Result<DeviceStats, SampleOutcome>> {
        let is_checked = self.is_checked(device, check_all);
        let at = self.location.devices[device];
        let known = &mut self.bytes[device * SIZE..(device + 1) * SIZE];
        match self.modes[device] {
            ReadMode::Unused if !is_checked || word(copies.next(8), 0) == Some(0) => return None,
            ReadMode::Steady if is_still(copies.next(SIZE), known) => return None,
            ReadMode::Changing => {
                let first = copies.next(SIZE);
                if is_still(first, copies.next(SIZE)) {
                    let found = self.location.decode(first);
                    if found == Ok(self.stats[device]) {
                        known.copy_from_slice(first);
                    }
                    return Some(found);
                }
            }
            ReadMode::Unused | ReadMode::Steady => {}
        }
        Some(self.location.read_still(memory, at, known))
    }

    fn keep(&mut self, device: usize, found: DeviceStats) {
        let is_new = self.stats[device] != found;
        self.modes[device] = match () {
            () if !found.is_used() => ReadMode::Unused,
            () if is_new => ReadMode::Changing,
            () => ReadMode::Steady,
        };
        self.stats[device] = found;
        self.has_moved |= is_new;
    }
}

/// The copies that one call made, in the order of its ranges.
struct Copies<'a>(&'a [u8]);

impl<'a> Copies<'a> {
    /// Takes the next copy, which has this size.
    fn next(&mut self, size: usize) -> &'a [u8] {
        let (copy, rest) = self.0.split_at(size);
        self.0 = rest;
        copy
    }
}

/// Whether nothing changed between two copies, and no change was under way.
fn is_still(bytes: &[u8], others: &[u8]) -> bool {
    bytes == others && !device_stats::is_locked(bytes)
}

impl AllocatorLocation {
    fn decode(&self, bytes: &[u8]) -> Result<DeviceStats, SampleOutcome> {
        device_stats::decode(bytes, self.layout, CheckLevel::WithoutTotals)
            .ok_or(SampleOutcome::Torn)
    }

    /// Reads a device until two copies are the same while the mutex is free. A mutex that stays
    /// held belongs to a thread that is stopped, or that waits for the driver or a processor. Then
    /// the copy counts if it is the same as in the last sample, `known`. Puts the copy into
    /// `known`.
    fn read_still(
        &self,
        memory: &mut Memory<'_>,
        at: u64,
        known: &mut [u8],
    ) -> Result<DeviceStats, SampleOutcome> {
        let (mut bytes, mut locked) = ([0; 2 * SIZE], None);
        for _ in 0..TRIES {
            memory
                .read_all(&[(at, SIZE); 2], &mut bytes)
                .ok_or(SampleOutcome::Gone)?;
            let (first, second) = bytes.split_at(SIZE);
            if first != second {
                continue;
            }
            if !device_stats::is_locked(first)
                || device_stats::after_mutex(first) == device_stats::after_mutex(known)
            {
                known.copy_from_slice(first);
                return self.decode(first);
            }
            locked = first.first_chunk::<SIZE>().copied();
            // The lock holder may be waiting for this processor.
            thread::yield_now();
        }
        let Some(locked) = locked else {
            return Err(SampleOutcome::Torn);
        };
        known.copy_from_slice(&locked);
        Err(SampleOutcome::Locked)
    }

    /// Returns the memory ranges of the pointer chain to the devices: symbol, vector, elements.
    fn chain(&self) -> [MemoryRange; 3] {
        [
            (self.symbol[0], 8),
            (self.vector[0], 16),
            (self.vector[1], 8 * self.devices.len()),
        ]
    }

    /// Whether the pointers at `at`, a part of the chain, are the same as when the allocator was
    /// found.
    fn is_unchanged(&self, at: u64, pointers: &[u8]) -> bool {
        let expected = match at {
            _ if at == self.symbol[0] => &self.symbol[1..],
            _ if at == self.vector[0] => &self.vector[1..],
            _ => &self.devices,
        };
        pointers
            .chunks_exact(8)
            .map(|bytes| word(bytes, 0))
            .eq(expected.iter().map(|pointer| Some(*pointer)))
    }
}
