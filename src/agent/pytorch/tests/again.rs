//! Books that are read again and again: how little is read, and that nothing old or wrong passes for new.

use std::cell::RefCell;

use super::super::memory::Memory;
use super::super::stats::{Asks, Books, Sample, Scratch};
use super::{Book, DEVICE, Image, STRIDE, books, right, sample};

#[test]
fn of_each_device_as_little_is_read_as_tells_what_it_says() {
    let mut image = right(2, 4, 1, &books());
    let reads = RefCell::new(Vec::new());
    let mut of = Books::of(image.find().unwrap());
    // What it says, and how often each device was read.
    let mut look = |image: &Image, asks| {
        reads.borrow_mut().clear();
        let read = |at: u64, buffer: &mut [u8]| {
            let device = at.checked_sub(DEVICE).map(|it| it / STRIDE).filter(|it| *it < 4);
            reads.borrow_mut().extend(device);
            image.read(at, buffer)
        };
        let stats = sample(&mut of, asks, &read).expect("it does not change");
        let count = |device| reads.borrow().iter().filter(|it| **it == device).count();
        (stats, [0, 1, 2, 3].map(count))
    };
    // Where nothing is known from before, all of them, twice.
    let (first, read) = look(&image, Asks::One);
    assert_eq!((&first[1], read), (&books().stats(), [2; 4]));
    // Of one that stood still, once is enough, as soon as that is known. The others have their turns.
    assert_eq!(look(&image, Asks::One), (first.clone(), [0, 2, 1, 0]));
    assert_eq!(look(&image, Asks::One), (first.clone(), [0, 1, 0, 1]));
    assert_eq!(look(&image, Asks::Half), (first.clone(), [1, 1, 1, 0]));
    assert_eq!(look(&image, Asks::Half), (first.clone(), [0, 1, 0, 1]));
    // One that moves is read again, and from then on twice at once.
    let mut moved = books();
    moved.work(1, 4096, 1000, 0);
    image.device(1, 608, &moved);
    assert_eq!(look(&image, Asks::One).0[1], moved.stats());
    assert_eq!(look(&image, Asks::One).1[1], 2);
    // One that is used from now on is seen when it is asked, and is one of those that are read from then on.
    image.device(3, 608, &books());
    assert_eq!(look(&image, Asks::All).0[3], books().stats());
    assert_eq!(look(&image, Asks::One).1[3], 2);
}

#[test]
fn books_that_break_the_rules_are_no_figures_however_long_they_stand() {
    let mut image = right(2, 2, 1, &books());
    let place = image.find().unwrap();
    let mut of = Books::of(place);
    let first = image.resample(&mut of, Asks::One).unwrap();
    let mut wrong = books();
    wrong.0[Book::Allocated as usize][0][0] += 512;
    image.device(1, 608, &wrong);
    for _ in 0..4 {
        assert_eq!(image.resample(&mut of, Asks::One), Err(Sample::Torn));
    }
    image.device(1, 608, &books());
    for _ in 0..4 {
        assert_eq!(image.resample(&mut of, Asks::One), Ok(first.clone()));
    }
    // What moved on another device, while one was torn, is news with the next that is whole.
    image.device(1, 608, &wrong);
    image.device(0, 608, &books());
    let read = |at: u64, buffer: &mut [u8]| image.read(at, buffer);
    assert_eq!(of.sample(&mut Memory::new(&read), Asks::All, &mut Scratch::default()), Sample::Torn);
    image.device(1, 608, &books());
    let read = |at: u64, buffer: &mut [u8]| image.read(at, buffer);
    let sample = of.sample(&mut Memory::new(&read), Asks::All, &mut Scratch::default());
    assert_eq!((sample, of.stats()), (Sample::Whole { has_moved: true }, &[books().stats(), books().stats()][..]));
}

#[test]
fn who_hands_out_blocks_is_no_copy() {
    let mut image = right(2, 1, 0, &books());
    let mut of = Books::of(image.find().unwrap());
    let first = image.resample(&mut of, Asks::One).unwrap();
    // A copy may give back what it was left.
    let mut less = books();
    less.take(Book::Allocations, 1, 1);
    image.device(0, 608, &less);
    image.resample(&mut of, Asks::One).unwrap();
    assert!(!of.hands_out(&first));
    less.work(1, 4096, 1000, 0);
    image.device(0, 608, &less);
    image.resample(&mut of, Asks::One).unwrap();
    assert!(of.hands_out(&first));
}

#[test]
fn books_of_one_who_holds_the_mutex_count_when_they_stand_from_one_sample_to_the_next() {
    let mut image = right(2, 1, 0, &books());
    let mut of = Books::of(image.find().unwrap());
    image.put(DEVICE, &[1]);
    // He may be halfway through, and waiting for a processor: so it is right at the first, and after each change.
    assert_eq!(image.resample(&mut of, Asks::One), Err(Sample::Held));
    assert_eq!(image.resample(&mut of, Asks::One), Ok(vec![books().stats()]));
    let mut moved = books();
    moved.work(1, 4096, 1000, 0);
    image.device(0, 608, &moved);
    assert_eq!(image.resample(&mut of, Asks::One), Err(Sample::Held));
    assert_eq!(of.stats(), [books().stats()]);
    assert_eq!(image.resample(&mut of, Asks::One), Ok(vec![moved.stats()]));
    // Who takes it and has changed nothing yet, is no reason to wait.
    image.put(DEVICE, &[0]);
    (0..3).for_each(|_| assert_eq!(image.resample(&mut of, Asks::One), Ok(vec![moved.stats()])));
    image.put(DEVICE, &[1]);
    assert_eq!(image.resample(&mut of, Asks::One), Ok(vec![moved.stats()]));
}

#[test]
fn a_device_whose_mutex_was_held_at_first_is_not_taken_for_one_that_is_not_used() {
    let mut image = right(2, 4, 1, &books());
    let whole = image.resample(&mut Books::of(image.find().unwrap()), Asks::One).unwrap();
    for device in 0..4 {
        let lock = DEVICE + device * STRIDE;
        let mut of = Books::of(image.find().unwrap());
        image.put(lock, &[1]);
        let first = image.resample(&mut of, Asks::All);
        // Nobody has to wait for the turn of a device that is used.
        assert_eq!(image.resample(&mut of, Asks::One), Ok(whole.clone()), "{device}: {first:?}");
        image.put(lock, &[0]);
    }
}
