//! Finds PyTorch's caching allocator in a process: from the library that it loaded to the statistics of
//! each device.
//!
//! ```text
//! libc10_cuda.so   …::allocator ──► NativeCachingAllocator        (which class: by its type's name)
//!                                     std::vector ──► device 0 ──► DeviceCachingAllocator: stats.rs
//!                                                     device 1 ──► …
//! ```
//!
//! Where in the object the vector lies differs by version, so it is looked for. A [`Place`] remembers the
//! whole way; samples go it again, see `books.rs`.

use super::elf;
use super::layout::{self, Layout, Proof, Stats};
use super::memory::{Memory, word};

/// `c10::cuda::CUDACachingAllocator::allocator`, exported since torch 2.0.
const SYMBOL: &str = "_ZN3c104cuda20CUDACachingAllocator9allocatorE";
/// Types of allocators that keep no statistics that one could read.
const OTHERS: [(&str, Other); 2] = [
    ("N3c104cuda20CUDACachingAllocator15CudaMallocAsync24CudaMallocAsyncAllocatorE", Other::Async),
    ("N5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE", Other::Pluggable),
];
/// No process sees more devices: PyTorch is built for so many.
pub(super) const MOST_DEVICES: usize = 128;
/// The vector lies 80 bytes into the object in torch 2.1, and 22,584 in 2.5 to 2.15.
const OBJECT: usize = 32 << 10;
const PAGE: usize = 4096;
/// Beyond is the kernel's part of the address space.
const USER: u64 = 1 << 56;

/// An allocator that is not PyTorch's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Other {
    /// `backend:cudaMallocAsync`: the driver keeps the memory.
    Async,
    /// `torch.cuda.memory.change_current_allocator`.
    Pluggable,
}

/// Why there is nothing to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absent {
    /// The library exports no allocator: it is older.
    Symbol,
    /// The memory is another allocator's.
    Other(Other),
    /// Nothing that keeps the rules of the allocator: nothing was allocated yet, or it has another layout.
    Nothing,
}

/// Where the allocator of a process is, and the way there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    /// Where the symbol is, and what it points to.
    pub(super) symbol: [u64; 2],
    /// Where the vector is, and its first two words.
    pub(super) vector: [u64; 3],
    /// The allocators of the devices, in CUDA's order.
    pub(super) devices: Vec<u64>,
    pub(super) layout: Layout,
}

/// The parts of a vector of eight-byte pointers; absent for anything else.
fn vector(words: [u64; 3]) -> Option<u64> {
    let [begin, end, capacity] = words;
    let count = end.checked_sub(begin)? / 8;
    let is_one = begin >= PAGE as u64
        && begin % 8 == 0
        && (end - begin) % 8 == 0
        && (1..=MOST_DEVICES as u64).contains(&count)
        && end <= capacity
        && capacity < USER;
    is_one.then_some(count)
}

/// Finds the allocator of the process that loaded the library at `base`.
pub(super) fn find(memory: &mut Memory<'_>, base: u64) -> Result<Place, Absent> {
    let symbol = elf::find(memory, base, SYMBOL).ok_or(Absent::Symbol)?;
    let object = memory.word(symbol).filter(|it| *it >= PAGE as u64).ok_or(Absent::Nothing)?;
    if let Some(other) = other(memory, object) {
        return Err(Absent::Other(other));
    }
    let body = read_far(memory, object);
    [Proof::Full, Proof::Partial]
        .into_iter()
        .find_map(|proof| place(memory, [symbol, object], &body, proof))
        .ok_or(Absent::Nothing)
}

/// Which other allocator an object is, by the name of its type: the word before its table of functions
/// points to the type, whose second word points to the name.
fn other(memory: &mut Memory<'_>, object: u64) -> Option<Other> {
    let table = memory.word(object)?;
    let kind = memory.word(table.checked_sub(8)?)?;
    let name = memory.word(kind.checked_add(8)?)?;
    OTHERS.into_iter().find(|(it, _)| memory.has_text(name, it)).map(|(_, other)| other)
}

/// As much of the object as is there.
fn read_far(memory: &mut Memory<'_>, object: u64) -> Vec<u8> {
    let mut body = Vec::with_capacity(OBJECT);
    while body.len() < OBJECT {
        let at = object.saturating_add(body.len() as u64);
        // Up to the end of its page: the next may not be there.
        let part = PAGE - usize::try_from(at % PAGE as u64).unwrap_or(PAGE - 8);
        let filled = body.len();
        body.resize(filled + part, 0);
        if memory.read(at, &mut body[filled..]).is_none() {
            body.truncate(filled);
            break;
        }
    }
    body
}

/// The first vector in the object whose every element is an allocator, one of which was used.
fn place(memory: &mut Memory<'_>, symbol: [u64; 2], body: &[u8], proof: Proof) -> Option<Place> {
    for at in (0..body.len()).step_by(8) {
        let words = [word(body, at)?, word(body, at + 8)?, word(body, at + 16)?];
        let Some(count) = vector(words) else { continue };
        let Some(devices) = pointers(memory, words[0], count) else { continue };
        let allocators: Option<Vec<Vec<u8>>> = devices.iter().map(|it| read_device(memory, *it)).collect();
        let Some(allocators) = allocators else { continue };
        let fits = |layout: &Layout| {
            let stats: Option<Vec<Stats>> = allocators.iter().map(|it| layout::decode(it, *layout, proof)).collect();
            stats.is_some_and(|it| it.iter().any(Stats::is_telling))
        };
        if let Some(layout) = Layout::ALL.into_iter().find(fits) {
            let vector = [symbol[1] + at as u64, words[0], words[1]];
            return Some(Place { symbol, vector, devices, layout });
        }
    }
    None
}

/// The elements of a vector: each a pointer to something else.
fn pointers(memory: &mut Memory<'_>, begin: u64, count: u64) -> Option<Vec<u64>> {
    let mut bytes = vec![0; 8 * usize::try_from(count).ok()?];
    memory.read(begin, &mut bytes)?;
    let pointers: Vec<u64> = bytes.chunks_exact(8).filter_map(|it| word(it, 0)).collect();
    let is_pointer = |it: &u64| it.is_multiple_of(8) && (PAGE as u64..USER).contains(it);
    let mut sorted = pointers.clone();
    sorted.sort_unstable();
    sorted.dedup();
    (pointers.iter().all(is_pointer) && sorted.len() == pointers.len()).then_some(pointers)
}

fn read_device(memory: &mut Memory<'_>, at: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; layout::SIZE];
    memory.read(at, &mut bytes)?;
    Some(bytes)
}
