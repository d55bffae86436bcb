//! Tests of forged memory: what is found there keeps the rules, or nothing is found, after a
//! bounded number of reads.

use std::cell::{Cell, RefCell};

use proptest::prelude::*;

use super::super::locate::locate;
use super::super::memory::{Memory, one_by_one};
use super::super::stats_reader::{StatsReader, ThreadState};
use super::{
    BASE, DEVICE, HEAP, MUTEX, OBJECT, STRIDE, SYMBOL, sample, used_counters, valid_image,
};
use crate::agent::pytorch::device_stats::DeviceStats;

/// The addresses to forge on the way to the statistics: headers, dynamic section, names, symbol,
/// hashes, the symbol's value, the object, its vector in each layout, the devices, and their
/// statistics.
const FORGED: [u64; 18] = [
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

/// Numbers that break programs, and addresses that are mapped.
fn any_number() -> impl Strategy<Value = u64> {
    let near = |base: u64| (0..0x100_u64).prop_map(move |index| base + index * 8);
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

/// Whether statistics keep the rules.
fn is_plausible(stats: &DeviceStats) -> bool {
    let DeviceStats {
        allocated,
        reserved,
        active,
        inactive_split,
        requested,
        ..
    } = stats;
    let peaks = [allocated, reserved, active, inactive_split, requested]
        .iter()
        .all(|amount| amount.current <= amount.peak);
    peaks
        && allocated.current <= active.current
        && requested.current <= active.current
        && active.current + inactive_split.current <= reserved.current
        && reserved.current.is_multiple_of(512)
}

proptest! {
    /// A changed image is rejected or keeps every rule, after a bounded number of reads.
    #[test]
    fn a_forged_image_is_rejected_or_plausible(
        layout in 0..3usize,
        forgeries in proptest::collection::vec((0..3usize, any::<u16>(), any::<u64>()), 1..8),
    ) {
        let mut image = valid_image(layout, 2, 1, &used_counters());
        for (piece, at, word) in forgeries {
            let (start, bytes) = image.0.iter().nth(piece).map(|(start, bytes)| (*start, bytes.len())).unwrap();
            image.words(start + u64::from(at) * 8 % (bytes as u64 - 8), &[word]);
        }
        let reads = Cell::new(0_u32);
        let read = |at: u64, buffer: &mut [u8]| {
            reads.set(reads.get() + 1);
            image.read(at, buffer)
        };
        if let Ok(location) = locate(&mut Memory::new(&one_by_one(read)), BASE)
            && let Ok(stats) = sample(&mut StatsReader::new(location), true, &read)
        {
            prop_assert!(stats.iter().all(is_plausible), "{stats:?}");
        }
        prop_assert!(reads.get() <= 2 * 8192, "{}", reads.get());
    }

    /// A forged pointer chain is rejected or keeps every rule. The forgeries are chosen numbers in
    /// headers, tables, pointers and statistics, and memory that changes between two reads.
    #[test]
    fn a_forged_pointer_chain_is_rejected_or_plausible(
        layout in 0..3usize,
        forgeries in proptest::collection::vec((0..FORGED.len(), 0..8u64, any_number(), 0..40_u32), 1..12),
    ) {
        let image = RefCell::new(valid_image(layout, 3, 1, &used_counters()));
        let reads = Cell::new(0_u32);
        let read = |at: u64, buffer: &mut [u8]| {
            reads.set(reads.get() + 1);
            for (place, word, number, _) in forgeries.iter().filter(|(.., read)| *read == reads.get() || *read == 0 && reads.get() == 1) {
                image.borrow_mut().words(FORGED[*place] + word * 8, &[*number]);
            }
            image.borrow().read(at, buffer)
        };
        let read = one_by_one(read);
        let memory = || Memory::new(&read);
        if let Ok(mut reader) = locate(&mut memory(), BASE).map(StatsReader::new) {
            let mut state = ThreadState::default();
            for check_all in [true, false, true] {
                reader.sample(&mut memory(), check_all, &mut state);
                prop_assert!(reader.stats.iter().all(is_plausible), "{:?}", reader.stats);
            }
        }
        prop_assert!(reads.get() <= 5 * 8192, "{}", reads.get());
    }

    /// Random bytes at every address are read without a panic.
    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 4096), elf: bool) {
        let read = |at: u64, buffer: &mut [u8]| {
            for (place, byte) in (at..).zip(buffer.iter_mut()) {
                *byte = bytes[usize::try_from(place % 4096).unwrap()];
                if elf && at == BASE && place - at < 6 {
                    *byte = b"\x7fELF\x02\x01"[usize::try_from(place - at).unwrap()];
                }
            }
            true
        };
        let read = one_by_one(read);
        let memory = &mut Memory::new(&read);
        if let Ok(location) = locate(memory, BASE) {
            StatsReader::new(location).sample(memory, true, &mut ThreadState::default());
        }
    }
}
