//! The statistics of the devices of one process, read again and again: as few pages of its memory as prove them.
//!
//! To read a page that nobody looked at for a second costs about a microsecond, whether of eight bytes or a thousand.
//! So a sample is one call, and for each device that is used mostly one piece.
//!
//! What is read counts when it stood there for a while without a change: some of it counts up with each change, so the
//! same bytes are the same state. A device that stood still between the last two samples is read once, and its bytes are
//! those from before: a state that was proven. One that moved is read twice in the one call, which copies one piece after
//! the other; when both are the same, nothing changed between them, and the mutex, which is a part of it, says that
//! nobody was about to. Whatever is neither is read until it is the same twice, in calls of its own. While someone holds
//! the mutex, the same twice is not enough: he may have lost his processor halfway. Then it has to be the same from one
//! sample to the next.
//!
//! The way there is gone whole by the first sample, and by the others now and then, a part at a time: each is a pointer
//! that no other program has there. What stands at its end tells most: as long as it is the same nothing changed, and
//! when it is not, it keeps the allocator's rules.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::thread;

use super::find::Place;
use super::layout::{self, Proof, SIZE, Stats};
use super::memory::{Memory, Piece, word};
use crate::protocol::snapshot::ProcessId;

/// So many times it is tried to read the same twice, while nobody holds the mutex.
const TRIES: u32 = 8;

/// In so many samples each of the three parts of the way has its turn.
const WAY: usize = 12;

/// So many places are remembered.
const PLACES: usize = 4096;

/// What a thread takes along: room, so that no look takes it anew, and what it knows of all processes.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
    /// The oldest process that had its allocator at a place, by the hash of all addresses on the way. No two programs
    /// have the same by chance; who was forked has that of its parent.
    origins: BTreeMap<u64, ProcessId>,
}

impl Scratch {
    /// Takes note of who has its allocator where; gives the hash of that.
    pub(super) fn note_place(&mut self, books: &Books, id: ProcessId) -> u64 {
        let mut hash = DefaultHasher::new();
        books.place.hash(&mut hash);
        let place = hash.finish();
        if self.origins.len() >= PLACES {
            self.origins.clear();
        }
        let oldest = self.origins.entry(place).or_insert(id);
        if id.start_ticks < oldest.start_ticks {
            *oldest = id;
        }
        place
    }

    /// The oldest process that had its allocator at that place, if that is another.
    pub(super) fn older(&self, place: u64, id: ProcessId) -> Option<ProcessId> {
        self.origins.get(&place).copied().filter(|oldest| *oldest != id)
    }
}

/// Which of the devices that are not used are asked whether they are now. Of a host of many GPUs a process sees all and
/// uses one, and to ask each time would be most of what a sample costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    /// One after the other.
    One,
    /// Half of them, then the other half.
    Half,
    /// All.
    All,
}

/// What came of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sample {
    /// The statistics are those of now.
    Whole {
        /// Whether they are others than before.
        has_moved: bool,
    },
    /// Some were read while they changed, and are those from before: another will do better.
    Torn,
    /// Of one, someone held the mutex, and had changed it since the last sample: its statistics are those from before.
    Held,
    /// The allocator is not there any more.
    Gone,
}

/// How a device is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// It is not in use, and asked in turn.
    Unused,
    /// It stood still between the last two samples: once.
    AtRest,
    /// It moved between them, or nothing is known: twice.
    Moving,
}

/// The statistics of each device, and how they are read again.
#[derive(Debug)]
pub(super) struct Books {
    place: Place,
    /// In CUDA's order. Before the first sample it says nothing.
    stats: Vec<Stats>,
    /// The same as it stands there, a piece after the other: of those that are at rest, or stood there while someone held
    /// the mutex.
    bytes: Vec<u8>,
    /// How each is read.
    paces: Vec<Pace>,
    /// Whether some changed since the last sample that was whole.
    has_moved: bool,
    /// How many samples there were.
    turn: usize,
}

impl Books {
    pub(super) fn of(place: Place) -> Self {
        let count = place.devices.len();
        Self {
            place,
            stats: Vec::new(),
            bytes: vec![0; count * SIZE],
            paces: vec![Pace::Moving; count],
            has_moved: false,
            turn: 0,
        }
    }

    /// What each device's allocator says, in CUDA's order.
    pub(super) fn stats(&self) -> &[Stats] {
        &self.stats
    }

    /// Whether blocks were handed out since it said that.
    pub(super) fn hands_out(&self, before: &[Stats]) -> bool {
        self.stats.iter().zip(before).any(|(now, before)| now.handed_out > before.handed_out)
    }

    /// Reads the statistics of each device that is in use; at first, of all.
    pub(super) fn sample(&mut self, memory: &mut Memory<'_>, asks: Asks, scratch: &mut Scratch) -> Sample {
        let is_first = self.stats.is_empty();
        let count = self.place.devices.len();
        self.turn = self.turn.wrapping_add(1);
        let turn = self.turn;
        let is_asked = |device: usize| match asks {
            Asks::One => turn % count == device,
            Asks::Half => turn % 2 == device % 2,
            Asks::All => true,
        };
        let Scratch { bytes, pieces, .. } = scratch;
        pieces.clear();
        let way = self.place.way();
        if is_first {
            pieces.extend(way);
        } else {
            pieces.extend(way.get(turn % WAY));
        }
        let checks = pieces.len();
        for (device, (at, pace)) in self.place.devices.iter().zip(&self.paces).enumerate() {
            match pace {
                Pace::Unused if is_asked(device) => pieces.push((at + layout::USED, 8)),
                Pace::Unused => (),
                Pace::AtRest => pieces.push((*at, SIZE)),
                Pace::Moving => pieces.extend([(*at, SIZE); 2]),
            }
        }
        let size = pieces.iter().map(|it| it.1).sum();
        if bytes.len() < size {
            bytes.resize(size, 0);
        }
        let mut rest = &mut bytes[..size];
        if memory.read_all(pieces, rest).is_none() {
            return Sample::Gone;
        }
        let mut next = |size: usize| {
            let (piece, others) = std::mem::take(&mut rest).split_at_mut(size);
            rest = others;
            piece
        };
        for (at, size) in &pieces[..checks] {
            if !self.place.leads_there(*at, next(*size)) {
                return Sample::Gone;
            }
        }
        let mut trouble = None;
        self.stats.resize(count, Stats::default());
        for (device, at) in self.place.devices.iter().enumerate() {
            let (stats, pace) = (&mut self.stats[device], &mut self.paces[device]);
            let known = &mut self.bytes[device * SIZE..(device + 1) * SIZE];
            let found = match pace {
                Pace::Unused if !is_asked(device) || word(next(8), 0) == Some(0) => continue,
                Pace::Unused => self.place.read_still(memory, *at, known),
                Pace::AtRest if is_still(next(SIZE), known) => continue,
                Pace::AtRest => self.place.read_still(memory, *at, known),
                Pace::Moving => {
                    let first = &*next(SIZE);
                    if is_still(first, next(SIZE)) {
                        let found = self.place.decode(first);
                        if found == Ok(*stats) {
                            known.copy_from_slice(first);
                        }
                        found
                    } else {
                        self.place.read_still(memory, *at, known)
                    }
                }
            };
            match found {
                Ok(found) => {
                    let is_new = *stats != found;
                    *pace = match () {
                        () if !found.is_used() => Pace::Unused,
                        () if is_new => Pace::Moving,
                        () => Pace::AtRest,
                    };
                    if is_new {
                        *stats = found;
                        self.has_moved = true;
                    }
                }
                Err(Sample::Gone) => return Sample::Gone,
                Err(sample) => {
                    *pace = Pace::Moving;
                    trouble = Some(sample);
                }
            }
        }
        if let Some(trouble) = trouble {
            if is_first {
                // What could not be read then is not unused.
                self.stats.clear();
                self.paces.fill(Pace::Moving);
            }
            return trouble;
        }
        Sample::Whole { has_moved: std::mem::take(&mut self.has_moved) }
    }
}

/// Whether nothing was changed between two readings, and nobody was about to.
fn is_still(bytes: &[u8], others: &[u8]) -> bool {
    bytes == others && !layout::is_locked(bytes)
}

impl Place {
    /// What such bytes say.
    fn decode(&self, bytes: &[u8]) -> Result<Stats, Sample> {
        layout::decode(bytes, self.layout, Proof::Partial).ok_or(Sample::Torn)
    }

    /// Reads a device until it is the same twice, while nobody holds the mutex. One that is held for long is so by who is
    /// stopped, or waits for the driver or for a processor: then it counts when it is the same as at the last sample,
    /// which is `known`. What is read becomes that.
    fn read_still(&self, memory: &mut Memory<'_>, at: u64, known: &mut [u8]) -> Result<Stats, Sample> {
        let (mut bytes, mut held) = ([0; 2 * SIZE], None);
        for _ in 0..TRIES {
            memory.read_all(&[(at, SIZE); 2], &mut bytes).ok_or(Sample::Gone)?;
            let (first, second) = bytes.split_at(SIZE);
            if first != second {
                continue;
            }
            if !layout::is_locked(first) || layout::after_mutex(first) == layout::after_mutex(known) {
                known.copy_from_slice(first);
                return self.decode(first);
            }
            held = first.first_chunk::<SIZE>().copied();
            // He may wait for the processor that we have.
            thread::yield_now();
        }
        let Some(held) = held else { return Err(Sample::Torn) };
        known.copy_from_slice(&held);
        Err(Sample::Held)
    }

    /// The pointers on the way to the devices: the symbol, the vector, its elements.
    fn way(&self) -> [Piece; 3] {
        [(self.symbol[0], 8), (self.vector[0], 16), (self.vector[1], 8 * self.devices.len())]
    }

    /// Whether those that stand there are still what they were.
    fn leads_there(&self, at: u64, pointers: &[u8]) -> bool {
        let expected = match at {
            _ if at == self.symbol[0] => &self.symbol[1..],
            _ if at == self.vector[0] => &self.vector[1..],
            _ => &self.devices,
        };
        pointers.chunks_exact(8).map(|it| word(it, 0)).eq(expected.iter().map(|it| Some(*it)))
    }
}
