//! Hosts whose memory grows: when the figures appear, when growth is urgent, and what looks like
//! loading.

use super::*;
use crate::base::units::{Bytes, Percent};
use crate::model::HostModel;
use crate::protocol::snapshot::example::host;

const GIB: f64 = 1024.0;

/// A process on a GPU with 80 GiB: the MiB that it holds, its SM use in percent, and the MiB that
/// it has read, at each second.
struct GrowthStory<'a> {
    held: &'a dyn Fn(f64) -> f64,
    sm: &'a dyn Fn(f64) -> f32,
    read: Option<&'a dyn Fn(f64) -> f64>,
}

impl<'a> GrowthStory<'a> {
    fn of(held: &'a dyn Fn(f64) -> f64) -> Self {
        Self {
            held,
            sm: &|_| 90.0,
            read: None,
        }
    }

    /// Plays the story for some seconds, and returns for each what grows then.
    fn play(&self, seconds: u16) -> Vec<Option<Growing>> {
        let mut model = HostModel::default();
        let mut host = host(1).with(7, "python train.py", 0, Bytes(0));
        host.gpus[0].load.memory_total = Ok(mib(80.0 * GIB));
        let play = |second: u16| {
            host = host.later(1);
            let second = f64::from(second);
            let held = mib((self.held)(second));
            host.gpus[0].processes[0].memory = Ok(held);
            host.gpus[0].processes[0].sm = Ok(Percent::new((self.sm)(second)));
            host.gpus[0].load.memory_used = Ok(held);
            host.processes[0].bytes_read = self.read.map(|read| mib(read(second)));
            model.replace(host.clone());
            assert!(
                model.growing().len() < 2,
                "one process grows: {:?}",
                model.growing()
            );
            model.growing().first().cloned()
        };
        (0..seconds).map(play).collect()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an amount of memory"
)]
fn mib(mib: f64) -> Bytes {
    Bytes((mib.min(80.0 * GIB) * 1024.0 * 1024.0) as u64)
}

/// The first second at which something holds.
fn first(story: &[Option<Growing>], holds: impl Fn(&Growing) -> bool) -> Option<usize> {
    story
        .iter()
        .position(|growing| growing.as_ref().is_some_and(&holds))
}

#[test]
fn an_even_growth_has_its_figure_within_two_minutes_and_is_urgent_while_four_minutes_are_left() {
    // Seconds until memory is full from 20 GiB on, after 300 s of steady work.
    for full in [180_u16, 300, 480, 600, 900, 1800, 3600, 5400, 7200, 10_800] {
        let mut model = HostModel::default();
        let mut host = host(1).with(7, "python train.py", 0, Bytes(0));
        host.gpus[0].load.memory_total = Ok(mib(80.0 * GIB));
        let (mut shown, mut urgent) = (None, None);
        for second in 0..300 + full {
            host = host.later(1);
            let grown = f64::from(second.saturating_sub(300)) / f64::from(full);
            let held = mib(20.0 * GIB + 60.0 * GIB * grown);
            host.gpus[0].processes[0].memory = Ok(held);
            host.gpus[0].processes[0].sm = Ok(Percent::new(90.0));
            host.gpus[0].load.memory_used = Ok(held);
            model.replace(host.clone());
            let since = second.saturating_sub(300);
            if let Some(growing) = model.growing().first() {
                shown = shown.or(Some(since));
                urgent = urgent.or(growing.is_urgent().then_some(since));
            } else {
                assert_eq!(
                    shown, None,
                    "{full}: the figure goes at {since} s although memory grows"
                );
            }
        }
        let limit = 128.min(full / 4 + 8);
        assert!(
            shown.is_some_and(|shown| shown <= limit),
            "{full}: shown at {shown:?}, not by {limit}"
        );
        let left = urgent.map(|urgent| full - urgent);
        assert!(
            full <= 300 || left.is_some_and(|left| left >= 240),
            "{full}: urgent with {left:?} s left"
        );
    }
}

#[test]
fn a_fast_growth_on_a_small_or_an_empty_gpu_is_urgent_although_it_is_not_called_a_leak() {
    let story = GrowthStory::of(&|second| 500.0 + 80.0 * second).play(600);
    let second = first(&story, Growing::is_urgent);
    assert!(second.is_some_and(|second| second <= 260), "{second:?}");
    assert!(
        story
            .iter()
            .flatten()
            .all(|growing| growing.verdict == LeakVerdict::Suspect)
    );
}

#[test]
fn the_figure_goes_within_half_a_minute_when_growth_stops() {
    // 0.2 GiB a second for 200 s.
    let story = GrowthStory::of(&|second| 450.0 + 204.8 * second.min(200.0)).play(400);
    assert!(story[199].is_some(), "{:?}", story[199]);
    assert!(
        story[232..].iter().all(Option::is_none),
        "{:?}",
        first(&story[232..], |_| true)
    );
}

#[test]
fn stairs_have_their_figure_after_the_fourth_step() {
    // 2 GiB each minute.
    let story =
        GrowthStory::of(&|second| 20.0 * GIB + (second / 60.0).floor() * 2.0 * GIB).play(900);
    let shown = first(&story, |_| true);
    assert!(
        shown.is_some_and(|shown| (240..=320).contains(&shown)),
        "{shown:?}"
    );
    let gone = story[320..].iter().position(Option::is_none);
    assert_eq!(gone, None, "the figure does not flicker");
}

#[test]
fn a_process_that_has_not_computed_yet_loads_until_the_gpu_is_almost_full() {
    let loads = |held| GrowthStory {
        held,
        sm: &|_| 0.0,
        read: None,
    };
    let story = loads(&|second| 450.0 + 204.8 * second.min(200.0)).play(400);
    assert!(first(&story, |growing| growing.is_soon && growing.is_loading).is_some());
    assert_eq!(first(&story, Growing::is_urgent), None);
    let story = loads(&|second| 450.0 + 204.8 * second).play(400);
    let urgent = first(&story, Growing::is_urgent).expect("it is full after 400 s");
    assert!(
        (375..=385).contains(&urgent),
        "95 % are in use after 378 s: {urgent}"
    );
}

#[test]
fn a_process_that_has_not_computed_is_urgent_after_ten_minutes() {
    let story = GrowthStory {
        held: &|second| 450.0 + 60.0 * second,
        sm: &|_| 0.0,
        read: None,
    }
    .play(1300);
    let soon = first(&story, |growing| growing.is_soon).expect("memory is full after 1350 s");
    let urgent = first(&story, Growing::is_urgent).expect("it is urgent then");
    assert!(
        soon < 500 && (690..=760).contains(&urgent),
        "{soon}, {urgent}"
    );
}

#[test]
fn reading_from_files_excuses_one_minute_of_growth_and_not_the_last_minutes() {
    // The weights are converted from 32 to 16 bits.
    fn reads(held: fn(f64) -> f64, read: fn(f64) -> f64) -> Vec<Option<Growing>> {
        GrowthStory {
            held: &held,
            sm: &|_| 90.0,
            read: Some(&read),
        }
        .play(300)
    }
    let story = reads(
        |second| 450.0 + 102.4 * second,
        |second| 9000.0 + 204.8 * second,
    );
    let [soon, urgent] =
        [|growing: &Growing| growing.is_soon, Growing::is_urgent].map(|holds| first(&story, holds));
    let [soon, urgent] = [soon, urgent].map(|at| at.expect("memory is full after 800 s"));
    assert!((40..=72).contains(&(urgent - soon)), "{soon}, {urgent}");
    // Memory is full within four minutes.
    let story = reads(|second| 450.0 + 300.0 * second, |second| 300.0 * second);
    let [soon, urgent] =
        [|growing: &Growing| growing.is_soon, Growing::is_urgent].map(|holds| first(&story, holds));
    assert_eq!(soon, urgent);
    // A training that reads its data.
    let story = reads(|second| 450.0 + 102.4 * second, |second| 1000.0 * second);
    let [soon, urgent] =
        [|growing: &Growing| growing.is_soon, Growing::is_urgent].map(|holds| first(&story, holds));
    assert_eq!(soon, urgent);
}

#[test]
fn the_process_that_fills_a_gpu_has_the_verdict_of_the_gpu() {
    // The process grows from nothing, which may be loading. The GPU, half full with that of another
    // process, leaks.
    let mut model = HostModel::default();
    let mut host = host(1).with(7, "python train.py", 0, Bytes(0)).with(
        8,
        "python serve.py",
        0,
        mib(42.0 * GIB),
    );
    host.gpus[0].load.memory_total = Ok(mib(80.0 * GIB));
    for second in 0..500_u16 {
        host = host.later(1);
        let held = mib(500.0 + 40.0 * f64::from(second));
        host.gpus[0].processes[0].memory = Ok(held);
        host.gpus[0].load.memory_used = Ok(held + mib(42.0 * GIB));
        model.replace(host.clone());
    }
    let [id, other] = [0, 1].map(|place: usize| host.processes[place].id);
    let verdict = |subject| model.growth(&subject).map(|growth| growth.verdict());
    assert_eq!(
        verdict(GpuOrProcess::Gpu(host.gpus[0].uuid.clone())),
        Some(LeakVerdict::Leak)
    );
    assert_eq!(verdict(GpuOrProcess::Process(id)), Some(LeakVerdict::Leak));
    assert_eq!(
        verdict(GpuOrProcess::Process(other)),
        Some(LeakVerdict::Steady)
    );
    let growing: Vec<_> = model
        .growing()
        .iter()
        .map(|growing| growing.subject.clone())
        .collect();
    assert_eq!(growing, [GpuOrProcess::Process(id)]);
}

#[test]
fn the_end_of_a_load_raises_no_trouble_when_the_process_begins_to_compute() {
    // GiB, GiB per second, and the seconds of pause after each fifth of the load.
    for (size, rate, pause) in [
        (14.0, 0.2, 0.0),
        (24.0, 0.2, 0.0),
        (26.0, 0.3, 0.0),
        (30.0, 0.5, 0.0),
        (48.0, 0.3, 0.0),
        (60.0, 0.25, 0.0),
        (65.0, 0.5, 0.0),
        (70.0, 0.2, 0.0),
        (70.0, 5.0, 0.0),
        (30.0, 0.5, 15.0),
        (56.0, 0.4, 8.0),
    ] {
        let part = size / rate / 5.0;
        let ends = 5.0 * (part + pause);
        let held = |second: f64| {
            let (parts, rest) = ((second / (part + pause)).floor(), second % (part + pause));
            512.0 + GIB * (rate * (parts * part + rest.min(part))).min(size)
        };
        // The first step takes some memory, too.
        let held = |second: f64| held(second) + if second > ends { 1500.0 } else { 0.0 };
        let sm = |second: f64| if second > ends { 90.0 } else { 0.0 };
        let story = GrowthStory {
            held: &held,
            sm: &sm,
            read: None,
        }
        .play(600);
        assert_eq!(
            first(&story, Growing::is_urgent),
            None,
            "{size} GiB at {rate} GiB/s with pauses of {pause} s"
        );
    }
}

#[test]
fn the_end_of_a_load_that_was_excused_for_a_minute_raises_no_trouble() {
    // A process that has computed before reads 24 GiB in two minutes: the minute ends with the
    // load.
    for size in [20.0, 22.0, 24.0, 25.0] {
        let held = |second: f64| 512.0 + GIB * (0.2 * second).min(size);
        let story = GrowthStory {
            held: &held,
            sm: &|_| 90.0,
            read: Some(&held),
        }
        .play(300);
        assert_eq!(first(&story, Growing::is_urgent), None, "{size} GiB");
    }
}

#[test]
fn a_leak_that_follows_a_load_is_urgent_while_four_minutes_are_left() {
    // 20 GiB are loaded in 100 s. The rest fills in ten minutes.
    let held = |second: f64| GIB * (0.2 * second).min(20.0) + 102.4 * (second - 100.0).max(0.0);
    let story = GrowthStory {
        held: &held,
        sm: &|second| if second > 100.0 { 90.0 } else { 0.0 },
        read: None,
    }
    .play(700);
    let urgent = first(&story, Growing::is_urgent);
    assert!(
        urgent.is_some_and(|urgent| (140..=460).contains(&urgent)),
        "{urgent:?}"
    );
}

#[test]
fn the_first_figures_of_a_growth_that_began_after_a_rest_are_right() {
    for full in [500_u16, 700, 900, 1200, 1800, 3600] {
        for rest in [20_u16, 35, 40, 60, 100, 300] {
            let held = |second: f64| {
                4.0 * GIB + 76.0 * GIB * (second - f64::from(rest)).max(0.0) / f64::from(full)
            };
            let story = GrowthStory::of(&held).play(rest + 200);
            for (second, growing) in (0..).zip(&story) {
                let Some(left) = growing.as_ref().and_then(Growing::left) else {
                    continue;
                };
                let really = f64::from(rest + full - second);
                let ratio = left.as_secs_f64() / really;
                let place = format!(
                    "full after {full} s, {second} s after the start of a story with {rest} s of rest"
                );
                assert!(
                    (0.7..1.4).contains(&ratio),
                    "{place}: {left:?} instead of {really} s"
                );
            }
        }
    }
}

#[test]
fn the_end_of_the_process_that_filled_a_gpu_leaves_no_trouble_of_the_gpu() {
    let mut model = HostModel::default();
    let mut host =
        host(1)
            .with(7, "python train.py", 0, Bytes(0))
            .with(8, "python idle.py", 0, Bytes(0));
    host.gpus[0].load.memory_total = Ok(mib(80.0 * GIB));
    for second in 0..750_u16 {
        host = host.later(1);
        let held = mib(4.0 * GIB + 100.0 * f64::from(second));
        host.gpus[0].processes[0].memory = Ok(held);
        host.gpus[0].load.memory_used = Ok(held);
        model.replace(host.clone());
    }
    let filler = host.gpus[0].processes[0].process;
    let subjects = |model: &HostModel| {
        model
            .growing()
            .iter()
            .map(|growing| growing.subject.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(subjects(&model), [GpuOrProcess::Process(filler)]);
    // The driver forgets the process before it frees the memory.
    host = host.without(7);
    for used in [79.9, 79.9, 60.0, 0.0] {
        host = host.later(1);
        host.gpus[0].load.memory_used = Ok(mib(used * GIB));
        model.replace(host.clone());
        assert_eq!(subjects(&model), [], "{used} GiB are in use");
    }
}

#[test]
fn stairs_of_any_length_do_not_look_like_acceleration() {
    for stair in [20.0, 30.0, 40.0, 65.0, 90.0] {
        for full in [1200_u16, 1800, 2700] {
            let held = |second: f64| {
                let at = (second - 40.0).max(0.0);
                4.0 * GIB
                    + 76.0 * GIB * stair / f64::from(full)
                        * ((at / stair).floor() + (at % stair).min(1.0))
            };
            let story = GrowthStory::of(&held).play(700);
            for (second, growing) in (0..).zip(&story) {
                let Some(left) = growing.as_ref().and_then(Growing::left) else {
                    continue;
                };
                let ratio = left.as_secs_f64() / f64::from(40 + full - second);
                let place = format!("stairs of {stair} s, full after {full} s, at {second} s");
                assert!((0.7..1.4).contains(&ratio), "{place}: {left:?}");
            }
        }
    }
}

#[test]
fn a_cache_that_fills_up_levels_off_and_is_urgent_only_if_it_is_too_large() {
    let cache =
        |size: f64| move |second: f64| GIB * (10.0 + size * (1.0 - libm::exp(-second / 1200.0)));
    let fits = cache(40.0);
    let grew = GrowthStory::of(&fits).play(1080);
    let last = grew.last().and_then(Option::as_ref).expect("it grows");
    assert_eq!(last.verdict, LeakVerdict::Filling);
    assert!(!last.is_leak() && !last.is_urgent() && last.left().is_none());
    let plateau = last.calm_plateau().expect("it is known");
    assert!(
        plateau.0.abs_diff(mib(50.0 * GIB).0) < mib(2.0 * GIB).0,
        "{plateau}"
    );

    let too_large = cache(100.0);
    let grew = GrowthStory::of(&too_large).play(1300);
    let last = grew.last().and_then(Option::as_ref).expect("it grows");
    assert_eq!(last.verdict, LeakVerdict::Filling);
    assert!(!last.is_leak() && last.is_urgent());
    assert_eq!(last.calm_plateau(), None);
}
