//! Memory that someone made to do harm: what is found there keeps the rules, or nothing is found, and a bounded number of
//! looks says so.

use std::cell::{Cell, RefCell};

use proptest::prelude::*;

use super::super::find::find;
use super::super::memory::{Memory, Piece};
use super::super::stats::{Asks, Books, Scratch};
use super::{BASE, DEVICE, HEAP, MUTEX, OBJECT, STRIDE, SYMBOL, books, right, sample};
use crate::agent::pytorch::layout::Stats;

/// Where the way to the books can be forged: headers, dynamic section, names, symbol, hashes, the symbol's value, the
/// object, its vector in each layout, the devices, and their books.
const WAY: [u64; 18] = [
    BASE,
    BASE + 0x20,
    BASE + 64,
    BASE + 120,
    BASE + 0x400,
    BASE + 0x440,
    BASE + 0x800,
    BASE + 0x918,
    BASE + 0xa00,
    SYMBOL,
    OBJECT,
    OBJECT + 80,
    OBJECT + 22_584,
    HEAP,
    DEVICE,
    DEVICE + MUTEX,
    DEVICE + STRIDE + MUTEX + 384,
    DEVICE + STRIDE + MUTEX + 576,
];

/// Numbers that break programs, and addresses of what is there.
fn any_number() -> impl Strategy<Value = u64> {
    let near = |base: u64| (0..0x100_u64).prop_map(move |it| base + it * 8);
    prop_oneof![
        any::<u64>(),
        0..1024_u64,
        (0..64_u32).prop_map(|bit| 1 << bit),
        (0..64_u32).prop_map(|bit| u64::MAX >> bit),
        near(BASE),
        near(SYMBOL),
        near(OBJECT),
        near(HEAP),
        near(DEVICE),
        near(DEVICE + STRIDE),
    ]
}

/// What must be true of whatever is shown.
fn is_plausible(stats: &Stats) -> bool {
    let Stats { allocated, reserved, active, inactive_split, requested, .. } = stats;
    let peaks = [allocated, reserved, active, inactive_split, requested].iter().all(|it| it.current <= it.peak);
    peaks
        && allocated.current <= active.current
        && requested.current <= active.current
        && active.current + inactive_split.current <= reserved.current
        && reserved.current.is_multiple_of(512)
}

proptest! {
    /// Bytes of a right one that were changed make a wrong one, or one that keeps every rule; and that is found
    /// out with a bounded number of looks.
    #[test]
    fn a_forged_image_is_refused_or_plausible(
        layout in 0..3usize,
        forgeries in proptest::collection::vec((0..3usize, any::<u16>(), any::<u64>()), 1..8),
    ) {
        let mut image = right(layout, 2, 1, &books());
        for (piece, at, word) in forgeries {
            let (start, bytes) = image.0.iter().nth(piece).map(|(start, bytes)| (*start, bytes.len())).unwrap();
            image.words(start + u64::from(at) * 8 % (bytes as u64 - 8), &[word]);
        }
        let looks = Cell::new(0_u32);
        let read = |at: u64, buffer: &mut [u8]| {
            looks.set(looks.get() + 1);
            image.read(at, buffer)
        };
        if let Ok(place) = find(&mut Memory::new(&read), BASE)
            && let Ok(stats) = sample(&mut Books::of(place), Asks::All, &read)
        {
            prop_assert!(stats.iter().all(is_plausible), "{stats:?}");
        }
        prop_assert!(looks.get() <= 2 * 8192, "{}", looks.get());
    }

    /// The same where it hurts most: in headers, tables, pointers and books, with numbers that are chosen for it; and a
    /// memory that changes between two looks, whether they are taken one by one or many at once.
    #[test]
    fn a_forged_way_is_refused_or_plausible(
        layout in 0..3usize,
        forgeries in proptest::collection::vec((0..WAY.len(), 0..8u64, any_number(), 0..40_u32), 1..12),
        at_once: bool,
    ) {
        let image = RefCell::new(right(layout, 3, 1, &books()));
        let looks = Cell::new(0_u32);
        let look = |at: u64, buffer: &mut [u8]| {
            looks.set(looks.get() + 1);
            for (place, word, number, _) in forgeries.iter().filter(|it| it.3 == looks.get() || it.3 == 0 && looks.get() == 1) {
                image.borrow_mut().words(WAY[*place] + word * 8, &[*number]);
            }
            image.borrow().read(at, buffer)
        };
        let gather = |pieces: &[Piece], buffer: &mut [u8]| {
            let mut rest = buffer;
            at_once && pieces.iter().all(|(at, size)| {
                let (piece, others) = std::mem::take(&mut rest).split_at_mut(*size);
                rest = others;
                look(*at, piece)
            })
        };
        let memory = || Memory::new(&look).gathering(&gather);
        if let Ok(mut of) = find(&mut memory(), BASE).map(Books::of) {
            let mut scratch = Scratch::default();
            for asks in [Asks::All, Asks::One, Asks::Half, Asks::All] {
                of.sample(&mut memory(), asks, &mut scratch);
                prop_assert!(of.stats().iter().all(is_plausible), "{:?}", of.stats());
            }
        }
        prop_assert!(looks.get() <= 5 * 8192, "{}", looks.get());
    }

    /// Memory of anything at all, everywhere.
    #[test]
    fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 4096), elf: bool) {
        let read = |at: u64, buffer: &mut [u8]| {
            for (place, byte) in (at..).zip(buffer.iter_mut()) {
                *byte = bytes[usize::try_from(place % 4096).unwrap()];
                if elf && at == BASE && place - at < 6 {
                    *byte = b"\x7fELF\x02\x01"[usize::try_from(place - at).unwrap()];
                }
            }
            true
        };
        let memory = &mut Memory::new(&read);
        if let Ok(place) = find(memory, BASE) {
            Books::of(place).sample(memory, Asks::All, &mut Scratch::default());
        }
    }
}
