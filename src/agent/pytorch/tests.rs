//! Allocators in made-up memory: right ones of each layout, and every wrong one that one can think of.

mod again;
mod fuzz;
mod peeker;

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::find::{Absent, Other, Place, find};
use super::layout::{Stat, Stats};
use super::memory::Memory;
use super::stats::{Asks, Books, Sample, Scratch};

const BASE: u64 = 0x7f00_0000_0000;
const SYMBOL: u64 = BASE + 0x3008;
const OBJECT: u64 = BASE + 0x8_0000;
const HEAP: u64 = 0x5500_0000_0000;
const DEVICE: u64 = HEAP + 0x1_0000;
/// Between two devices.
const STRIDE: u64 = 0x1000;
const NAME: &str = "_ZN3c104cuda20CUDACachingAllocator9allocatorE";
/// Before the statistics of a device.
const MUTEX: u64 = if cfg!(target_arch = "aarch64") { 48 } else { 40 };

fn sample(books: &mut Books, asks: Asks, read: &dyn Fn(u64, &mut [u8]) -> bool) -> Result<Vec<Stats>, Sample> {
    match books.sample(&mut Memory::new(read), asks, &mut Scratch::default()) {
        Sample::Whole { .. } => Ok(books.stats().to_vec()),
        sample => Err(sample),
    }
}

/// Memory in which something stands, in pieces.
#[derive(Debug, Clone, Default)]
struct Image(BTreeMap<u64, Vec<u8>>);

impl Image {
    fn read(&self, at: u64, buffer: &mut [u8]) -> bool {
        let piece = self.0.range(..=at).next_back().and_then(|(start, bytes)| {
            let from = usize::try_from(at - start).ok()?;
            bytes.get(from..from.checked_add(buffer.len())?)
        });
        piece.map(|piece| buffer.copy_from_slice(piece)).is_some()
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        let (start, piece) = self.0.range_mut(..=at).next_back().expect("there is a piece");
        let from = usize::try_from(at - start).unwrap();
        piece[from..from + bytes.len()].copy_from_slice(bytes);
    }

    fn words(&mut self, at: u64, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|it| it.to_ne_bytes()).collect();
        self.put(at, &bytes);
    }

    /// A library that exports the allocator, its object with the vector at `vector`, and devices of zeros.
    fn new(vector: u64, devices: u64) -> Self {
        let mut image = Self::default();
        image.0.insert(BASE, vec![0; 0x4000]);
        image.0.insert(OBJECT, vec![0; 0x6000]);
        image.0.insert(HEAP, vec![0; 0x4_0000]);
        image.put(BASE, b"\x7fELF\x02\x01\x01");
        image.words(BASE + 0x20, &[64]);
        image.put(BASE + 0x36, &[56, 0, 2, 0]);
        // LOAD at 0, DYNAMIC at 0x400.
        image.put(BASE + 64, &[1]);
        image.put(BASE + 120, &[2]);
        image.words(BASE + 120 + 16, &[0x400]);
        // One name, one symbol, one bucket. The names' table by its real address, as glibc leaves it.
        image.words(BASE + 0x400, &[5, BASE + 0x800, 6, 0x900, 0x6fff_fef5, 0xa00, 0, 0]);
        image.put(BASE + 0x801, NAME.as_bytes());
        image.put(BASE + 0x918, &[1, 0, 0, 0, 0x11, 0, 24, 0]);
        image.words(BASE + 0x920, &[SYMBOL - BASE, 8]);
        let hash = NAME.bytes().fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(byte.into()));
        for (at, word) in [1, 1, 1, 0, 0, 0, 1, hash | 1].into_iter().enumerate() {
            image.put(BASE + 0xa00 + 4 * at as u64, &u32::to_ne_bytes(word));
        }
        image.words(SYMBOL, &[OBJECT]);
        image.words(OBJECT + vector, &[HEAP, HEAP + 8 * devices, HEAP + 8 * devices]);
        let pointers: Vec<u64> = (0..devices).map(|at| DEVICE + at * STRIDE).collect();
        image.words(HEAP, &pointers);
        image
    }

    /// Writes what a device's allocator has counted.
    fn device(&mut self, device: u64, second: u64, books: &Ledger) {
        let at = DEVICE + device * STRIDE + MUTEX;
        let places = (0..6).map(|it| it * 96).chain((0..3).map(|it| second + it * 96));
        if second > 576 {
            // A hash map: its first entry, a mask, a policy, a load factor, a count.
            self.words(at + 576, &[HEAP + 0x3_0000, 3, 0x3f00_0000_0004, 0]);
        }
        for (place, array) in places.zip(&books.0) {
            self.words(at + place, array.as_flattened());
        }
        self.words(at + second + 288, &[2, 1]);
    }

    /// The type of the allocator's object.
    fn is_a(&mut self, name: &str) {
        self.words(OBJECT, &[HEAP + 0x3_8010]);
        self.words(HEAP + 0x3_8008, &[HEAP + 0x3_8100]);
        self.words(HEAP + 0x3_8108, &[HEAP + 0x3_8200]);
        self.put(HEAP + 0x3_8200, name.as_bytes());
    }

    fn find(&self) -> Result<Place, Absent> {
        find(&mut Memory::new(&|at, buffer| self.read(at, buffer)), BASE)
    }

    /// What the first sample says.
    fn sample(&self, place: &Place) -> Result<Vec<Stats>, Sample> {
        self.resample(&mut Books::of(place.clone()), Asks::One)
    }

    /// What the next one says.
    fn resample(&self, books: &mut Books, asks: Asks) -> Result<Vec<Stats>, Sample> {
        sample(books, asks, &|at, buffer| self.read(at, buffer))
    }
}

/// The allocator's books, kept as PyTorch keeps them: nine arrays of all, small and large, each of current,
/// peak, allocated, freed.
#[derive(Debug, Clone, Default)]
struct Ledger([[[u64; 4]; 3]; 9]);

/// Where they stand.
#[derive(Debug, Clone, Copy)]
enum Book {
    Allocations,
    Segments,
    ActiveBlocks,
    Allocated = 4,
    Reserved,
    Active,
    InactiveSplit,
    Requested,
}

impl Ledger {
    fn add(&mut self, book: Book, pool: usize, amount: u64) {
        for pool in [0, 1 + pool] {
            let [current, peak, added, _] = &mut self.0[book as usize][pool];
            *current += amount;
            *peak = (*peak).max(*current);
            *added += amount;
        }
    }

    fn take(&mut self, book: Book, pool: usize, amount: u64) {
        for pool in [0, 1 + pool] {
            let [current, _, _, taken] = &mut self.0[book as usize][pool];
            *current -= amount;
            *taken += amount;
        }
    }

    fn stat(&self, book: Book) -> Stat {
        let [current, peak, ..] = self.0[book as usize][0];
        Stat { current, peak }
    }

    fn stats(&self) -> Stats {
        Stats {
            allocations: self.stat(Book::Allocations),
            handed_out: self.0[Book::Allocations as usize][0][2],
            segments: self.stat(Book::Segments),
            allocated: self.stat(Book::Allocated),
            reserved: self.stat(Book::Reserved),
            active: self.stat(Book::Active),
            inactive_split: self.stat(Book::InactiveSplit),
            requested: self.stat(Book::Requested),
            retries: 2,
            ooms: 1,
        }
    }

    /// Takes a segment of that many blocks of 512 bytes, and hands out of it what was asked for. Frees some of
    /// it again, as the next use of the bits says.
    fn work(&mut self, pool: usize, blocks: u64, asked: u64, bits: u8) {
        let size = blocks * 512;
        let used = asked.min(size).div_ceil(512) * 512;
        self.add(Book::Segments, pool, 1);
        self.add(Book::Reserved, pool, size);
        for (book, amount) in [
            (Book::Allocations, 1),
            (Book::ActiveBlocks, 1),
            (Book::Allocated, used),
            (Book::Active, used),
            (Book::Requested, asked.min(size)),
        ] {
            self.add(book, pool, amount);
        }
        self.add(Book::InactiveSplit, pool, size - used);
        if bits & 1 == 1 {
            // Given back by the program, and for a while still in use by another stream.
            self.take(Book::Allocations, pool, 1);
            self.take(Book::Allocated, pool, used);
            if bits & 2 == 2 {
                self.take(Book::ActiveBlocks, pool, 1);
                self.take(Book::Active, pool, used);
                self.take(Book::Requested, pool, asked.min(size));
                self.take(Book::InactiveSplit, pool, size - used);
                if bits & 4 == 4 {
                    self.take(Book::Reserved, pool, size);
                    self.take(Book::Segments, pool, 1);
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

fn any_books() -> impl Strategy<Value = Ledger> {
    proptest::collection::vec((0..2usize, 1..1_000_000u64, 1..600_000_000u64, any::<u8>()), 1..20).prop_map(|works| {
        let mut books = Ledger::default();
        for (pool, blocks, asked, bits) in works {
            books.work(pool, blocks, asked, bits);
        }
        // One that is used now: a device that gave everything back is told by its peak alone.
        books.work(1, 4096, 1000, 0);
        books
    })
}

/// A right one: the layouts of torch 2.1, of 2.5 and of 2.15.
const LAYOUTS: [(u64, u64); 3] = [(80, 576), (22_584, 576), (22_584, 608)];

fn right(layout: usize, devices: u64, used: u64, books: &Ledger) -> Image {
    let (vector, second) = LAYOUTS[layout];
    let mut image = Image::new(vector, devices);
    for device in (0..devices).filter(|it| *it != used) {
        image.device(device, second, &Ledger::default());
        image.words(DEVICE + device * STRIDE + MUTEX + second + 288, &[0, 0]);
    }
    image.device(used, second, books);
    image
}

fn books() -> Ledger {
    let mut books = Ledger::default();
    books.work(1, 40_960, 1_000_000, 0);
    books.work(0, 4096, 700, 3);
    books
}

proptest! {
    /// Whatever a program does with its memory, its books are read as they are, in each layout.
    #[test]
    fn books_are_read_to_the_byte(books in any_books(), layout in 0..3usize, devices in 1..9u64, used in 0..8u64) {
        let used = used % devices;
        let image = right(layout, devices, used, &books);
        let place = image.find();
        prop_assert!(place.is_ok(), "{place:?}");
        let stats = image.sample(&place.unwrap()).expect("it does not change");
        prop_assert_eq!(stats.len() as u64, devices);
        for (device, stats) in stats.iter().enumerate() {
            let expected = if device as u64 == used { books.stats() } else { Stats::default() };
            prop_assert_eq!(*stats, expected);
        }
    }
}

#[test]
fn devices_lie_in_any_order_and_far_apart() {
    let books = books();
    let mut image = right(2, 4, 1, &books);
    image.0.insert(HEAP + (1 << 30), vec![0; 0x2000]);
    let device = |at: u64| DEVICE + at * STRIDE;
    image.words(HEAP, &[device(3), HEAP + (1 << 30), device(1), device(0)]);
    let place = image.find().unwrap();
    let none = Stats::default();
    assert_eq!(image.sample(&place), Ok(vec![none, none, books.stats(), none]));
}

#[test]
fn a_vector_of_a_billion_is_none() {
    let mut image = right(0, 1, 0, &books());
    image.words(OBJECT + 80, &[HEAP, HEAP + (8 << 30), HEAP + (8 << 30)]);
    assert_eq!(image.find(), Err(Absent::Nothing));
}

#[test]
fn pointers_that_lead_in_a_circle_end() {
    let mut image = right(0, 4, 0, &books());
    // The object is full of vectors of itself, and each element is that object.
    for at in (8..0x6000 - 24).step_by(24) {
        image.words(OBJECT + at, &[OBJECT, OBJECT + 1024, OBJECT + 1024]);
    }
    assert_eq!(image.find(), Err(Absent::Nothing));
    // The elements of the vector are all one.
    let mut image = right(0, 2, 0, &books());
    image.words(HEAP, &[DEVICE, DEVICE]);
    assert_eq!(image.find(), Err(Absent::Nothing));
}

#[test]
fn an_allocator_that_gave_out_nothing_yet_is_awaited() {
    assert_eq!(right(1, 2, 0, &Ledger::default()).find(), Err(Absent::Nothing));
}

#[test]
fn other_allocators_are_known_by_their_type() {
    let mut image = right(1, 1, 0, &books());
    image.is_a("N3c104cuda20CUDACachingAllocator15CudaMallocAsync24CudaMallocAsyncAllocatorE");
    assert_eq!(image.find(), Err(Absent::Other(Other::Async)));
    let mut image = right(1, 1, 0, &books());
    image.is_a("N5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE");
    assert_eq!(image.find(), Err(Absent::Other(Other::Pluggable)));
    let mut image = right(1, 1, 0, &books());
    image.is_a("N3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocatorE");
    assert!(image.find().is_ok());
}

#[test]
fn an_older_library_exports_none() {
    let mut image = right(0, 1, 0, &books());
    image.put(BASE + 0x801, b"_ZN3c104cuda20CUDACachingAllocator3getEv\0");
    assert_eq!(image.find(), Err(Absent::Symbol));
}

#[test]
fn books_whose_totals_were_reset_are_still_read() {
    let mut books = books();
    for [_, _, added, taken] in books.0.iter_mut().flatten() {
        (*added, *taken) = (0, 0);
    }
    let image = right(2, 1, 0, &books);
    let place = image.find().unwrap();
    assert_eq!(image.sample(&place), Ok(vec![books.stats()]));
}

#[test]
fn a_device_of_which_only_cache_is_left_is_one_in_use() {
    // All tensors are gone, their memory is not; then the peaks were reset.
    let mut books = Ledger::default();
    books.work(1, 40_960, 1_000_000, 3 | 8);
    assert_eq!(books.stat(Book::Allocations).peak, 0);
    let image = right(1, 1, 0, &books);
    let stats = image.sample(&image.find().unwrap()).expect("it does not change");
    assert!(stats[0].is_used() && stats == [books.stats()]);
}

/// An image that changes with every look at a device.
struct Restless(RefCell<(Image, Ledger, u64)>);

impl Restless {
    fn sample(&self, place: &Place, after: u64) -> Result<Vec<Stats>, Sample> {
        let read = |at: u64, buffer: &mut [u8]| {
            let (image, books, looks) = &mut *self.0.borrow_mut();
            if (DEVICE..DEVICE + STRIDE).contains(&at) {
                *looks += 1;
                if *looks <= after {
                    books.work(1, 4096, 1000, 0);
                    image.device(0, 576, books);
                }
            }
            image.read(at, buffer)
        };
        sample(&mut Books::of(place.clone()), Asks::One, &read)
    }
}

#[test]
fn a_sample_waits_until_nothing_moves() {
    let books = books();
    let image = right(1, 1, 0, &books);
    let place = image.find().unwrap();
    let restless = Restless(RefCell::new((image, books, 0)));
    let stats = restless.sample(&place, 4).expect("it came to rest");
    assert_eq!(stats, [restless.0.borrow().1.stats()]);
    restless.0.borrow_mut().2 = 0;
    assert_eq!(restless.sample(&place, 1000), Err(Sample::Torn));
}

#[test]
fn books_that_someone_is_writing_are_torn() {
    let mut books = books();
    let image = right(1, 1, 0, &books);
    let place = image.find().unwrap();
    // It holds the mutex, and was stopped before it wrote the last number.
    books.0[Book::Allocated as usize][0][0] += 512;
    let mut image = image;
    image.device(0, 576, &books);
    image.put(DEVICE, &[1]);
    assert_eq!(image.sample(&place), Err(Sample::Held));
}

#[test]
fn a_place_that_is_another_one_now_is_gone() {
    let image = right(1, 2, 0, &books());
    let place = image.find().unwrap();
    let changed = |change: &dyn Fn(&mut Image)| {
        let (mut image, mut of) = (image.clone(), Books::of(place.clone()));
        image.resample(&mut of, Asks::One).unwrap();
        change(&mut image);
        assert_eq!(image.sample(&place).is_ok(), image.0 == right(1, 2, 0, &books()).0);
        // Each part of the way has its turn.
        [0; 12].map(|_| image.resample(&mut of, Asks::One)).into_iter().find_map(Result::err)
    };
    assert_eq!(changed(&|_| ()), None);
    assert_eq!(changed(&|it| it.words(SYMBOL, &[OBJECT + 8])), Some(Sample::Gone));
    assert_eq!(changed(&|it| it.words(OBJECT + 22_592, &[HEAP + 8])), Some(Sample::Gone));
    assert_eq!(changed(&|it| it.words(HEAP, &[DEVICE + STRIDE, DEVICE])), Some(Sample::Gone));
    assert_eq!(changed(&|it| _ = it.0.remove(&HEAP)), Some(Sample::Gone));
}
