//! Finds PyTorch's caching allocator in a process: from the library that it loaded to the
//! statistics of each device.
//!
//! ```text
//! libc10_cuda.so   …::allocator ──► NativeCachingAllocator        (recognized by the name of its type)
//!                                     std::vector ──► device 0 ──► DeviceCachingAllocator: device_stats.rs
//!                                                     device 1 ──► …
//! ```
//!
//! The offset of the vector in the object differs between versions, so the whole object is
//! searched. The result remembers every pointer on the way; later reads check them, see
//! `stats_reader.rs`.

use super::device_stats::{self, CheckLevel, DeviceStats, StatsLayout};
use super::elf;
use super::memory::{Memory, PAGE, word};
use crate::protocol::snapshot::AllocatorUnreadable;

/// `c10::cuda::CUDACachingAllocator::allocator`, exported since torch 2.0.
const SYMBOL: &str = "_ZN3c104cuda20CUDACachingAllocator9allocatorE";
/// The types of allocators that keep no statistics.
const FOREIGN_TYPES: [(&str, AllocatorUnreadable); 2] = [
    (
        "N3c104cuda20CUDACachingAllocator15CudaMallocAsync24CudaMallocAsyncAllocatorE",
        AllocatorUnreadable::CudaMallocAsync,
    ),
    (
        "N5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE",
        AllocatorUnreadable::Pluggable,
    ),
];
/// PyTorch's `C10_COMPILE_TIME_MAX_GPUS`.
pub(super) const MOST_DEVICES: usize = 128;
/// The bytes of the object that are searched. The vector is at 80 in torch 2.1, and at 22,584 in
/// 2.5 to 2.15.
const OBJECT: usize = 32 << 10;
/// The end of the addresses of user space.
const USER_SPACE_END: u64 = 1 << 56;

/// The addresses of a process's allocator, and the pointers that lead to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct AllocatorLocation {
    /// The address of the symbol, and its value.
    pub(super) symbol: [u64; 2],
    /// The address of the vector, and its first two words.
    pub(super) vector: [u64; 3],
    /// The addresses of the devices' allocators, in CUDA's order.
    pub(super) devices: Vec<u64>,
    pub(super) layout: StatsLayout,
}

/// Returns the number of elements if these three words are a vector of eight-byte pointers.
fn vector_length(words: [u64; 3]) -> Option<u64> {
    let [begin, end, capacity] = words;
    let count = end.checked_sub(begin)? / 8;
    let is_vector = begin >= PAGE as u64
        && begin % 8 == 0
        && (end - begin) % 8 == 0
        && (1..=MOST_DEVICES as u64).contains(&count)
        && end <= capacity
        && capacity < USER_SPACE_END;
    is_vector.then_some(count)
}

/// Whether the library at `base` exports an allocator.
pub(super) fn exports_allocator(memory: &mut Memory<'_>, base: u64) -> bool {
    elf::find(memory, base, SYMBOL).is_some()
}

/// Finds the allocator of the process that loaded the library at `base`. The error is `NotYet` when
/// no bytes keep the rules of an allocator: nothing was allocated yet, or the layout is unknown.
pub(super) fn locate(
    memory: &mut Memory<'_>,
    base: u64,
) -> Result<AllocatorLocation, AllocatorUnreadable> {
    // Libraries older than torch 2.0 do not export the symbol.
    let symbol = elf::find(memory, base, SYMBOL).ok_or(AllocatorUnreadable::OldPytorch)?;
    let object = memory
        .word(symbol)
        .filter(|address| *address >= PAGE as u64)
        .ok_or(AllocatorUnreadable::NotYet)?;
    if let Some(why) = foreign_allocator(memory, object) {
        return Err(why);
    }
    let body = read_mapped(memory, object);
    [CheckLevel::WithTotals, CheckLevel::WithoutTotals]
        .into_iter()
        .find_map(|level| search(memory, [symbol, object], &body, level))
        .ok_or(AllocatorUnreadable::NotYet)
}

/// Returns why an allocator of a foreign type cannot be read, by the name of its type; `None` for
/// other types. The word before the object's table of virtual functions points to the type, and the
/// second word of the type to the name.
fn foreign_allocator(memory: &mut Memory<'_>, object: u64) -> Option<AllocatorUnreadable> {
    let table = memory.word(object)?;
    let type_info = memory.word(table.checked_sub(8)?)?;
    let name = memory.word(type_info.checked_add(8)?)?;
    FOREIGN_TYPES
        .into_iter()
        .find(|(text, _)| memory.has_text(name, text))
        .map(|(_, why)| why)
}

/// Reads the object, up to the first page that is not mapped.
fn read_mapped(memory: &mut Memory<'_>, object: u64) -> Vec<u8> {
    let mut body = Vec::with_capacity(OBJECT);
    while body.len() < OBJECT {
        let address = object.saturating_add(body.len() as u64);
        // Each part ends with a page: the next page may not be mapped.
        let part = PAGE - usize::try_from(address % PAGE as u64).unwrap_or(PAGE - 8);
        let filled = body.len();
        body.resize(filled + part, 0);
        if memory.read(address, &mut body[filled..]).is_none() {
            body.truncate(filled);
            break;
        }
    }
    body
}

/// Finds the first vector in the object whose elements all point to allocators, at least one of
/// which was used.
fn search(
    memory: &mut Memory<'_>,
    symbol: [u64; 2],
    body: &[u8],
    level: CheckLevel,
) -> Option<AllocatorLocation> {
    for offset in (0..body.len()).step_by(8) {
        let words = [
            word(body, offset)?,
            word(body, offset + 8)?,
            word(body, offset + 16)?,
        ];
        let Some(count) = vector_length(words) else {
            continue;
        };
        let Some(devices) = pointers(memory, words[0], count) else {
            continue;
        };
        let allocators: Option<Vec<[u8; device_stats::SIZE]>> = devices
            .iter()
            .map(|address| memory.bytes(*address))
            .collect();
        let Some(allocators) = allocators else {
            continue;
        };
        let fits = |layout: &StatsLayout| {
            let stats: Option<Vec<DeviceStats>> = allocators
                .iter()
                .map(|bytes| device_stats::decode(bytes, *layout, level))
                .collect();
            stats.is_some_and(|stats| stats.iter().any(DeviceStats::is_recognizable))
        };
        if let Some(layout) = StatsLayout::ALL.into_iter().find(fits) {
            let vector = [symbol[1] + offset as u64, words[0], words[1]];
            return Some(AllocatorLocation {
                symbol,
                vector,
                devices,
                layout,
            });
        }
    }
    None
}

/// Reads the elements of a vector. Returns `None` unless they are different pointers.
fn pointers(memory: &mut Memory<'_>, begin: u64, count: u64) -> Option<Vec<u64>> {
    let mut bytes = vec![0; 8 * usize::try_from(count).ok()?];
    memory.read(begin, &mut bytes)?;
    let pointers: Vec<u64> = bytes
        .chunks_exact(8)
        .filter_map(|bytes| word(bytes, 0))
        .collect();
    let is_pointer = |address: &u64| {
        address.is_multiple_of(8) && (PAGE as u64..USER_SPACE_END).contains(address)
    };
    let mut sorted = pointers.clone();
    sorted.sort_unstable();
    sorted.dedup();
    (pointers.iter().all(is_pointer) && sorted.len() == pointers.len()).then_some(pointers)
}
