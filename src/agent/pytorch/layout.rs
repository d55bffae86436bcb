//! PyTorch's `DeviceStats` out of memory: what it is known by, and what it says.
//!
//! ```text
//! DeviceCachingAllocator            DeviceStats                           StatArray   Stat
//!   0  mutex                          0  allocation        (number)         all         current
//!  40  DeviceStats                   96  segment           (number)         small       peak
//!                                   192  active            (number)         large       allocated
//!                                   288  inactive_split    (number)                     freed
//!                                   384  allocated_bytes
//!                                   480  reserved_bytes
//!                                   576  (since 2.15: a hash map of 32 bytes)
//!                                     +  active_bytes, inactive_split_bytes, requested_bytes
//!                                   288+ num_alloc_retries, num_ooms
//! ```
//!
//! Since torch 2.1 only that map came in between. No file says which layout a process has, so it is known by
//! what must be true of it: [`decode`].

use super::memory::word;

/// What is read of a `DeviceCachingAllocator`.
pub(super) const SIZE: usize = MUTEX + SECOND[1] + 3 * ARRAY + 16;

/// Where the word is that tells whether a device is used, [`Stats::is_used`]: the peak of what was reserved. It is 0
/// before, and as long as what was taken is given back.
pub(super) const USED: u64 = (MUTEX + 5 * ARRAY + 8) as u64;

/// The mutex before the statistics: glibc's `pthread_mutex_t`.
const MUTEX: usize = if cfg!(target_arch = "aarch64") { 48 } else { 40 };
const STAT: usize = 32;
const ARRAY: usize = 3 * STAT;
/// Where the second run of arrays may begin, counted from the first: right after it, or after the map.
const SECOND: [usize; 2] = [6 * ARRAY, 6 * ARRAY + 32];
/// Blocks and segments are multiples of it, a power of two: `kMinBlockSize`.
const BLOCK: u64 = 512;
/// No device has so much: a number beyond is none. A power of two.
const MOST: u64 = 1 << 56;

/// A number and the highest that it was since the peak was reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::agent) struct Stat {
    pub(super) current: u64,
    pub(super) peak: u64,
}

/// What one device's allocator says. Amounts are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::agent) struct Stats {
    /// Blocks handed out.
    pub(super) allocations: Stat,
    /// How many ever were, since these totals were reset.
    pub(super) handed_out: u64,
    /// Pieces of device memory that CUDA gave.
    pub(super) segments: Stat,
    /// `memory_allocated`.
    pub(super) allocated: Stat,
    /// `memory_reserved`.
    pub(super) reserved: Stat,
    /// Allocated, or freed and still in use by another stream.
    pub(super) active: Stat,
    /// Free, but in a segment of which a part is in use.
    pub(super) inactive_split: Stat,
    /// What was asked for, of what is active, before it was rounded up.
    pub(super) requested: Stat,
    /// How often the cache was given back since CUDA had no more.
    pub(super) retries: u64,
    /// How often that did not help.
    pub(super) ooms: u64,
}

/// How much must be true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// Each number is what was added less what was taken: true until someone calls
    /// `reset_accumulated_memory_stats`.
    Full,
    /// All but that: of a place where an allocator was found, or is to be.
    Partial,
}

/// Where the second run of arrays begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Layout(usize);

impl Layout {
    /// The layouts that there are. Read as arrays, the map is no sums, so that only one fits an allocator
    /// that was used.
    pub(super) const ALL: [Self; 2] = [Self(SECOND[0]), Self(SECOND[1])];
}

/// Whether someone is changing the statistics: holds the mutex.
pub(super) fn is_locked(bytes: &[u8]) -> bool {
    bytes.first_chunk::<4>().is_none_or(|lock| *lock != [0; 4])
}

/// What stands after the mutex: as long as that is the same, nothing was changed, whoever held it.
pub(super) fn after_mutex(bytes: &[u8]) -> &[u8] {
    &bytes[MUTEX.min(bytes.len())..]
}

/// One array: the whole is the sum of its two pools, in what is, came and went. Each word by its name: a program that is
/// built for size takes four times as long for the same in loops, and this is most of what a look computes.
fn array(bytes: &[u8], at: usize, proof: Proof) -> Option<Stat> {
    let words: &[[u8; 8]; 12] = bytes.get(at..)?.as_chunks().0.first_chunk()?;
    let word = |at: usize| u64::from_ne_bytes(words[at]);
    let (current, peak, added, taken) = (word(0), word(1), word(2), word(3));
    let (small, small_peak, small_added, small_taken) = (word(4), word(5), word(6), word(7));
    let (large, large_peak, large_added, large_taken) = (word(8), word(9), word(10), word(11));
    // Of many numbers below a power of two none has a higher bit.
    let all = current | peak | added | taken;
    let pools = small | small_peak | small_added | small_taken | large | large_peak | large_added | large_taken;
    let is_one = (all | pools) < MOST
        && (current <= peak && small <= small_peak && large <= large_peak)
        && (current == small + large && added == small_added + large_added && taken == small_taken + large_taken)
        // The pools had their peaks at times of their own.
        && (small_peak.max(large_peak)..=small_peak + large_peak).contains(&peak);
    let is_counted = || {
        let is_it = |current, added: u64, taken| added.checked_sub(taken) == Some(current);
        is_it(current, added, taken) && is_it(small, small_added, small_taken) && is_it(large, large_added, large_taken)
    };
    (is_one && (proof == Proof::Partial || is_counted())).then_some(Stat { current, peak })
}

/// What the bytes of a `DeviceCachingAllocator` of that layout say; absent when they are none, or were read
/// while they changed. Holds for every [`Stats`]: no amount is above its peak, blocks are whole, and
/// requested ≤ active, allocated ≤ active, active + inactive split ≤ reserved.
pub(super) fn decode(bytes: &[u8], Layout(second): Layout, proof: Proof) -> Option<Stats> {
    let first = |place: usize| array(bytes, MUTEX + place * ARRAY, proof);
    let after = |place: usize| array(bytes, MUTEX + second + place * ARRAY, proof);
    let counter = |place: usize| word(bytes, MUTEX + second + 3 * ARRAY + place * 8).filter(|it| *it < MOST);
    // These two are counted, and not used here; they tell a place that only looks right.
    let (active_blocks, _split_blocks) = (first(2)?, first(3)?);
    let stats = Stats {
        allocations: first(0)?,
        // Its own `added`: `array` has seen that it is one.
        handed_out: word(bytes, MUTEX + 16)?,
        segments: first(1)?,
        allocated: first(4)?,
        reserved: first(5)?,
        active: after(0)?,
        inactive_split: after(1)?,
        requested: after(2)?,
        retries: counter(0)?,
        ooms: counter(1)?,
    };
    let Stats { allocated, reserved, active, inactive_split, requested, .. } = stats;
    let blocks = [allocated, reserved, active, inactive_split];
    let is_whole = blocks.iter().all(|it| (it.current | it.peak).is_multiple_of(BLOCK));
    let is_ordered = stats.allocations.current <= active_blocks.current
        && allocated.current <= active.current
        && requested.current <= active.current
        && active.current + inactive_split.current <= reserved.current;
    (is_whole && is_ordered).then_some(stats)
}

impl Stats {
    /// What an allocator would say that took so much for so many tensors, of which these parts are free: kept, and kept
    /// in segments of which a part is in use. For the simulated machine.
    pub(in crate::agent) fn of_parts(reserved: u64, cache: u64, fragmented: u64) -> Self {
        let whole = |bytes: u64| bytes / BLOCK * BLOCK;
        let stat = |bytes: u64| Stat { current: whole(bytes), peak: whole(reserved) };
        let allocated = whole(reserved).saturating_sub(whole(cache)).saturating_sub(whole(fragmented));
        Self {
            allocations: Stat { current: 1000, peak: 1200 },
            handed_out: 1_000_000,
            segments: Stat { current: 100, peak: 100 },
            allocated: stat(allocated),
            reserved: stat(reserved),
            active: stat(allocated),
            inactive_split: stat(fragmented),
            requested: Stat { current: allocated / 100 * 99, peak: whole(reserved) },
            retries: 0,
            ooms: 0,
        }
    }

    /// Whether it has memory of the device, or had some since its peaks were reset.
    pub(super) fn is_used(&self) -> bool {
        self.reserved.peak > 0
    }

    /// Whether it says enough to be known for an allocator: before its first use it is zeros, as much else is.
    pub(super) fn is_telling(&self) -> bool {
        // Of tensors there may be none left, and segments that grow are not counted.
        self.is_used() && (self.allocations.peak > 0 || self.segments.peak > 0)
    }
}
