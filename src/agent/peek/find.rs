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
//! whole way, and each sample goes it again: when a pointer on it has changed, the place is not one any more.

use super::elf;
use super::memory::{Memory, Piece, word};
use super::stats::{self, Layout, Proof, Stats};

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// Where the symbol is, and what it points to.
    symbol: [u64; 2],
    /// Where the vector is, and its first two words.
    vector: [u64; 3],
    /// The allocators of the devices, in CUDA's order.
    devices: Vec<u64>,
    layout: Layout,
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
            let stats: Option<Vec<Stats>> = allocators.iter().map(|it| stats::decode(it, *layout, proof)).collect();
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
    let mut bytes = vec![0; stats::SIZE];
    memory.read(at, &mut bytes)?;
    Some(bytes)
}

/// What came of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sample {
    /// What each device's allocator says, in CUDA's order.
    Whole(Vec<Stats>),
    /// Read while it changed: another will do better.
    Torn,
    /// The allocator is not there any more.
    Gone,
}

impl Place {
    /// So many times it is tried to read the same twice, while nobody holds the mutex.
    const TRIES: u32 = 8;

    /// Reads the statistics of each device that was in use `before`; of all, where nothing is known from before. The
    /// others say zeros: on a host of many GPUs a process sees all and uses one, and to look at each would be most of
    /// what a sample costs. Of these, one is asked whether it is in use now: the one whose `turn` it is.
    ///
    /// The figures of a device are of one moment. They are read twice, in one call, which copies one piece after the
    /// other. What is the same both times stood there all the while between them, since some of it counts up with each
    /// change; whether that takes one call or two makes no difference. The mutex is a part of it: nobody was at changing
    /// them then.
    ///
    /// They are read into `scratch`, which no pass takes anew.
    pub(super) fn sample(
        &self,
        memory: &mut Memory<'_>,
        before: &[Stats],
        turn: usize,
        scratch: &mut Vec<u8>,
    ) -> Sample {
        let is_read = |device: usize| before.get(device).is_none_or(Stats::is_used);
        let mut pieces = Vec::with_capacity(8);
        pieces.extend(self.way());
        let way: usize = pieces.iter().map(|it| it.1).sum();
        for (device, at) in self.devices.iter().enumerate() {
            if is_read(device) {
                pieces.extend([(*at, stats::SIZE); 2]);
            }
        }
        if let Some(at) = self.devices.get(turn).filter(|_| !is_read(turn)) {
            pieces.push((at + stats::USED, 8));
        }
        let size = pieces.iter().map(|it| it.1).sum();
        if scratch.len() < size {
            scratch.resize(size, 0);
        }
        let bytes = &mut scratch[..size];
        if memory.read_all(&pieces, bytes).is_none() {
            return Sample::Gone;
        }
        let (way, twice) = bytes.split_at(way);
        if !self.leads_there(way) {
            return Sample::Gone;
        }
        let mut twice = twice.chunks_exact(stats::SIZE);
        let is_news = word(twice.remainder(), 0).is_some_and(|it| it > 0);
        let stats = self.devices.iter().enumerate().map(|(device, at)| {
            if !is_read(device) {
                return if device == turn && is_news { self.sample_device(memory, *at) } else { Ok(Stats::default()) };
            }
            match (twice.next(), twice.next()) {
                (Some(first), Some(second)) if first == second && !stats::is_locked(first) => {
                    stats::decode(first, self.layout, Proof::Partial).ok_or(Sample::Torn)
                }
                _ => self.sample_device(memory, *at),
            }
        });
        match stats.collect::<Result<Vec<_>, _>>() {
            Ok(stats) => Sample::Whole(stats),
            Err(sample) => sample,
        }
    }

    /// How many devices it sees.
    pub(super) fn devices(&self) -> usize {
        self.devices.len()
    }

    /// The pointers on the way to the devices: the symbol, the vector, its elements.
    fn way(&self) -> [Piece; 3] {
        [(self.symbol[0], 8), (self.vector[0], 16), (self.vector[1], 8 * self.devices.len())]
    }

    /// Whether they are still what they were.
    fn leads_there(&self, way: &[u8]) -> bool {
        let expected = [self.symbol[1], self.vector[1], self.vector[2]].into_iter().chain(self.devices.iter().copied());
        (0..way.len()).step_by(8).map(|at| word(way, at)).eq(expected.map(Some))
    }

    fn sample_device(&self, memory: &mut Memory<'_>, at: u64) -> Result<Stats, Sample> {
        let mut read = |buffer: &mut [u8; stats::SIZE]| memory.read(at, buffer).ok_or(Sample::Gone);
        let (mut before, mut now) = ([0; stats::SIZE], [0; stats::SIZE]);
        let mut same = None;
        read(&mut before)?;
        for _ in 0..Self::TRIES {
            read(&mut now)?;
            if before == now {
                same = Some(now);
                if !stats::is_locked(&now) {
                    break;
                }
            }
            before = now;
        }
        // One that holds the mutex for long is stopped, or waits for the driver. What must be true of the
        // numbers tells whether it was at changing them.
        same.and_then(|it| stats::decode(&it, self.layout, Proof::Partial)).ok_or(Sample::Torn)
    }
}
