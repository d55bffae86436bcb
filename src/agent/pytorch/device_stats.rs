//! Decodes PyTorch's `DeviceStats` from memory, and checks that the bytes can be such statistics.
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
//! Since torch 2.1 the layout has changed only by that map. No file tells which layout a process
//! has, so `locate.rs` tries each: only the right one keeps the rules that [`decode`] checks.

use super::memory::word;

/// The bytes of a `DeviceCachingAllocator` that are read.
pub(super) const SIZE: usize = MUTEX + SECOND[1] + 3 * ARRAY + 16;

/// The offset of the peak of reserved memory, which tells whether a device is used:
/// [`DeviceStats::is_used`]. The peak is 0 before the first use, and again after a reset once all
/// memory is freed.
pub(super) const RESERVED_PEAK: u64 = (MUTEX + 5 * ARRAY + 8) as u64;

/// The size of glibc's `pthread_mutex_t`.
const MUTEX: usize = if cfg!(target_arch = "aarch64") {
    48
} else {
    40
};
const STAT: usize = 32;
const ARRAY: usize = 3 * STAT;
/// The possible offsets of the second run of arrays: directly after the first run, or after the
/// map.
const SECOND: [usize; 2] = [6 * ARRAY, 6 * ARRAY + 32];
/// PyTorch's `kMinBlockSize`, a power of two: sizes of blocks and segments are multiples of it.
const BLOCK: u64 = 512;
/// No device has so many bytes, so this or a larger number is no figure of an allocator. A power of
/// two.
const MOST: u64 = 1 << 56;

/// A number, and its highest value since the peak was reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::agent) struct CurrentAndPeak {
    pub(super) current: u64,
    pub(super) peak: u64,
}

/// The statistics of the allocator of one device. Amounts are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::agent) struct DeviceStats {
    /// The number of blocks in use.
    pub(super) allocations: CurrentAndPeak,
    /// The number of blocks that were allocated since totals were reset.
    pub(super) total_allocations: u64,
    /// The number of `cudaMalloc` segments.
    pub(super) segments: CurrentAndPeak,
    /// `torch.cuda.memory_allocated`.
    pub(super) allocated: CurrentAndPeak,
    /// `torch.cuda.memory_reserved`.
    pub(super) reserved: CurrentAndPeak,
    /// Allocated memory, and freed memory that another stream still uses.
    pub(super) active: CurrentAndPeak,
    /// Free memory in segments that are partly in use.
    pub(super) inactive_split: CurrentAndPeak,
    /// The part of active memory that the program asked for, before rounding up.
    pub(super) requested: CurrentAndPeak,
    /// How often `cudaMalloc` failed and the cache was freed to try again.
    pub(super) retries: u64,
    /// How often `cudaMalloc` failed again after that: an out-of-memory error.
    pub(super) ooms: u64,
}

/// The rules that the numbers of an allocator must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckLevel {
    /// All rules. Each current value is the total added less the total removed, which holds until
    /// the program calls `reset_accumulated_memory_stats`.
    WithTotals,
    /// All rules but that of the totals.
    WithoutTotals,
}

/// A layout of `DeviceStats`: the offset of the second run of arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct StatsLayout(usize);

impl StatsLayout {
    /// All known layouts. Only one fits an allocator that was used: the map, read as arrays, breaks
    /// the rules.
    pub(super) const ALL: [Self; 2] = [Self(SECOND[0]), Self(SECOND[1])];
}

/// Whether a thread holds the mutex, and so may be changing the statistics.
pub(super) fn is_locked(bytes: &[u8]) -> bool {
    bytes.first_chunk::<4>().is_none_or(|lock| *lock != [0; 4])
}

/// Returns the bytes after the mutex. As long as these are the same, the statistics have not
/// changed.
pub(super) fn after_mutex(bytes: &[u8]) -> &[u8] {
    &bytes[MUTEX.min(bytes.len())..]
}

/// Decodes one `StatArray`. The current value and the totals of the whole must be the sums over its
/// two pools.
///
/// Each word has a name instead of a loop: built for size, loops take four times as long, and this
/// is most of the computing of a read.
fn array(bytes: &[u8], offset: usize, level: CheckLevel) -> Option<CurrentAndPeak> {
    let words: &[[u8; 8]; 12] = bytes.get(offset..)?.as_chunks().0.first_chunk()?;
    let word = |place: usize| u64::from_ne_bytes(words[place]);
    let (current, peak, added, removed) = (word(0), word(1), word(2), word(3));
    let (small, small_peak, small_added, small_removed) = (word(4), word(5), word(6), word(7));
    let (large, large_peak, large_added, large_removed) = (word(8), word(9), word(10), word(11));
    // `MOST` is a power of two, so the bits of many numbers are compared at once.
    let all = current | peak | added | removed;
    let pools = small
        | small_peak
        | small_added
        | small_removed
        | large
        | large_peak
        | large_added
        | large_removed;
    let is_array = (all | pools) < MOST
        && (current <= peak && small <= small_peak && large <= large_peak)
        && (current == small + large && added == small_added + large_added && removed == small_removed + large_removed)
        // The pools had their peaks at different times.
        && (small_peak.max(large_peak)..=small_peak + large_peak).contains(&peak);
    let are_totals_right = || {
        let is_right = |current, added: u64, removed| added.checked_sub(removed) == Some(current);
        is_right(current, added, removed)
            && is_right(small, small_added, small_removed)
            && is_right(large, large_added, large_removed)
    };
    (is_array && (level == CheckLevel::WithoutTotals || are_totals_right()))
        .then_some(CurrentAndPeak { current, peak })
}

/// Decodes the bytes of a `DeviceCachingAllocator` with this layout. Returns `None` when the bytes
/// are no allocator, or were read while they changed. In every result, no amount is above its peak,
/// amounts are multiples of [`BLOCK`], requested ≤ active, allocated ≤ active, and active +
/// inactive split ≤ reserved.
pub(super) fn decode(
    bytes: &[u8],
    StatsLayout(second): StatsLayout,
    level: CheckLevel,
) -> Option<DeviceStats> {
    let first = |index: usize| array(bytes, MUTEX + index * ARRAY, level);
    let after = |index: usize| array(bytes, MUTEX + second + index * ARRAY, level);
    let counter = |index: usize| {
        word(bytes, MUTEX + second + 3 * ARRAY + index * 8).filter(|count| *count < MOST)
    };
    // These two are not in the result, but must be arrays too.
    let (active_blocks, _split_blocks) = (first(2)?, first(3)?);
    let stats = DeviceStats {
        allocations: first(0)?,
        total_allocations: word(bytes, MUTEX + 16)?,
        segments: first(1)?,
        allocated: first(4)?,
        reserved: first(5)?,
        active: after(0)?,
        inactive_split: after(1)?,
        requested: after(2)?,
        retries: counter(0)?,
        ooms: counter(1)?,
    };
    let DeviceStats {
        allocated,
        reserved,
        active,
        inactive_split,
        requested,
        ..
    } = stats;
    let amounts = [allocated, reserved, active, inactive_split];
    let are_blocks = amounts
        .iter()
        .all(|amount| (amount.current | amount.peak).is_multiple_of(BLOCK));
    let is_ordered = stats.allocations.current <= active_blocks.current
        && allocated.current <= active.current
        && requested.current <= active.current
        && active.current + inactive_split.current <= reserved.current;
    (are_blocks && is_ordered).then_some(stats)
}

impl DeviceStats {
    /// Whether the allocator has reserved memory of the device since peaks were reset.
    pub(super) fn is_used(&self) -> bool {
        self.reserved.peak > 0
    }

    /// Whether the numbers suffice to recognize an allocator. Before its first use they are zeros,
    /// as in much other memory.
    pub(super) fn is_recognizable(&self) -> bool {
        // After a reset of the peaks, either peak may be 0: all tensors may be freed, and
        // expandable segments are not counted.
        self.is_used() && (self.allocations.peak > 0 || self.segments.peak > 0)
    }
}
