//! Tests of repeated reads: how little is read, and that no stale or wrong statistics are accepted.

use std::cell::RefCell;

use super::super::memory::{Memory, one_by_one};
use super::super::stats_reader::{SampleOutcome, StatsReader, ThreadState};
use super::{CounterKind, DEVICE, MemoryImage, STRIDE, sample, used_counters, valid_image};

#[test]
fn each_device_is_read_as_little_as_needed() {
    let mut image = valid_image(2, 4, 1, &used_counters());
    let reads = RefCell::new(Vec::new());
    let mut reader = StatsReader::new(image.locate().unwrap());
    // Returns the statistics, and how often each device was read.
    let mut read_devices = |image: &MemoryImage, check_all| {
        reads.borrow_mut().clear();
        let read = |at: u64, buffer: &mut [u8]| {
            let device = at
                .checked_sub(DEVICE)
                .map(|offset| offset / STRIDE)
                .filter(|device| *device < 4);
            reads.borrow_mut().extend(device);
            image.read(at, buffer)
        };
        let stats = sample(&mut reader, check_all, &read).expect("the image does not change");
        let count = |device| {
            reads
                .borrow()
                .iter()
                .filter(|read| **read == device)
                .count()
        };
        (stats, [0, 1, 2, 3].map(count))
    };
    // The first time, every device is read twice.
    let (first, read) = read_devices(&image, false);
    assert_eq!((&first[1], read), (&used_counters().stats(), [2; 4]));
    // A device that is known to be steady is read once. Unused devices are checked in turn.
    assert_eq!(read_devices(&image, false), (first.clone(), [0, 2, 1, 0]));
    assert_eq!(read_devices(&image, false), (first.clone(), [0, 1, 0, 1]));
    assert_eq!(read_devices(&image, true), (first.clone(), [1; 4]));
    // A device that changes is read again, and from then on twice at once.
    let mut moved = used_counters();
    moved.work(1, 4096, 1000, 0);
    image.device(1, 608, &moved);
    assert_eq!(read_devices(&image, false).0[1], moved.stats());
    assert_eq!(read_devices(&image, false).1[1], 2);
    // First use is noticed when the device is checked. From then on the device is read.
    image.device(3, 608, &used_counters());
    assert_eq!(read_devices(&image, true).0[3], used_counters().stats());
    assert_eq!(read_devices(&image, false).1[3], 2);
}

#[test]
fn statistics_that_break_the_rules_are_rejected_even_when_they_do_not_change() {
    let mut image = valid_image(2, 2, 1, &used_counters());
    let location = image.locate().unwrap();
    let mut reader = StatsReader::new(location);
    let first = image.resample(&mut reader, false).unwrap();
    let mut wrong = used_counters();
    wrong.0[CounterKind::Allocated as usize][0][0] += 512;
    image.device(1, 608, &wrong);
    for _ in 0..4 {
        assert_eq!(image.resample(&mut reader, false), Err(SampleOutcome::Torn));
    }
    image.device(1, 608, &used_counters());
    for _ in 0..4 {
        assert_eq!(image.resample(&mut reader, false), Ok(first.clone()));
    }
    // A change of another device during a torn sample is reported with the next complete sample.
    image.device(1, 608, &wrong);
    image.device(0, 608, &used_counters());
    let read = |at: u64, buffer: &mut [u8]| image.read(at, buffer);
    assert_eq!(
        reader.sample(
            &mut Memory::new(&one_by_one(read)),
            true,
            &mut ThreadState::default()
        ),
        SampleOutcome::Torn
    );
    image.device(1, 608, &used_counters());
    let read = |at: u64, buffer: &mut [u8]| image.read(at, buffer);
    let sample = reader.sample(
        &mut Memory::new(&one_by_one(read)),
        true,
        &mut ThreadState::default(),
    );
    assert_eq!(
        (sample, reader.stats.as_slice()),
        (
            SampleOutcome::Complete { has_moved: true },
            &[used_counters().stats(), used_counters().stats()][..]
        )
    );
}

#[test]
fn new_allocations_show_that_statistics_are_no_copy() {
    let mut image = valid_image(2, 1, 0, &used_counters());
    let mut reader = StatsReader::new(image.locate().unwrap());
    let first = image.resample(&mut reader, false).unwrap();
    // A copy may free inherited blocks.
    let mut less = used_counters();
    less.remove(CounterKind::Allocations, 1, 1);
    image.device(0, 608, &less);
    image.resample(&mut reader, false).unwrap();
    assert!(!reader.has_allocated_since(&first));
    less.work(1, 4096, 1000, 0);
    image.device(0, 608, &less);
    image.resample(&mut reader, false).unwrap();
    assert!(reader.has_allocated_since(&first));
}

#[test]
fn while_the_mutex_is_held_two_samples_must_be_equal() {
    let mut image = valid_image(2, 1, 0, &used_counters());
    let mut reader = StatsReader::new(image.locate().unwrap());
    image.put(DEVICE, &[1]);
    // The lock holder may be preempted mid-update: at first, and after each change.
    assert_eq!(
        image.resample(&mut reader, false),
        Err(SampleOutcome::Locked)
    );
    assert_eq!(
        image.resample(&mut reader, false),
        Ok(vec![used_counters().stats()])
    );
    let mut moved = used_counters();
    moved.work(1, 4096, 1000, 0);
    image.device(0, 608, &moved);
    assert_eq!(
        image.resample(&mut reader, false),
        Err(SampleOutcome::Locked)
    );
    assert_eq!(reader.stats, [used_counters().stats()]);
    assert_eq!(image.resample(&mut reader, false), Ok(vec![moved.stats()]));
    // A held mutex without a change is no reason to wait.
    image.put(DEVICE, &[0]);
    (0..3).for_each(|_| assert_eq!(image.resample(&mut reader, false), Ok(vec![moved.stats()])));
    image.put(DEVICE, &[1]);
    assert_eq!(image.resample(&mut reader, false), Ok(vec![moved.stats()]));
}

#[test]
fn a_device_whose_mutex_is_held_at_first_does_not_count_as_unused() {
    let mut image = valid_image(2, 4, 1, &used_counters());
    let complete = image
        .resample(&mut StatsReader::new(image.locate().unwrap()), false)
        .unwrap();
    for device in 0..4 {
        let lock = DEVICE + device * STRIDE;
        let mut reader = StatsReader::new(image.locate().unwrap());
        image.put(lock, &[1]);
        let first = image.resample(&mut reader, true);
        // A used device is not read in turn.
        assert_eq!(
            image.resample(&mut reader, false),
            Ok(complete.clone()),
            "{device}: {first:?}"
        );
        image.put(lock, &[0]);
    }
}
