//! Jobs that leak until memory runs out.

use super::super::Case;
use super::super::allocator::MIB;
use super::super::job::{Job, Lengths};
use super::super::random::Random;
use super::{HOUR, random_job, varied};

pub(super) enum Onset {
    /// At the beginning of training, or some minutes later.
    Early,
    /// After some hours.
    Late,
}

impl Onset {
    fn draw(&self, random: &mut Random) -> f64 {
        match self {
            Self::Early if random.chance(0.5) => 0.0,
            Self::Early => random.log_uniform(60.0, 0.5 * HOUR),
            Self::Late => random.uniform(HOUR, 6.0 * HOUR),
        }
    }
}

/// The rate in bytes per second at which a leak fills the free memory within this many seconds,
/// within limits.
fn rate(job: &Job, span: f64) -> f64 {
    let held = job.log.iter().map(|entry| entry.1).max().unwrap_or(0);
    let room = (job.plan.capacity - held) as f64;
    (room / span).clamp(20.0 * 1024.0, 50.0 * MIB as f64)
}

/// The seconds that leaks take.
fn leak_duration(random: &mut Random) -> f64 {
    random.log_uniform(0.4 * HOUR, 16.0 * HOUR)
}

/// The tensors that leak at each step: of one size, as many as the rate needs.
struct Leak {
    size: f64,
    due: f64,
}

impl Leak {
    fn random(random: &mut Random, large: bool, rate: f64) -> Self {
        let size = if large {
            random.log_uniform(1.1, 9.5)
        } else {
            random.log_uniform(0.02, 1.0)
        } * MIB as f64;
        // The model allocator would need too many blocks.
        Self {
            size: if large {
                size
            } else {
                size.max((rate * 0.5).min(MIB as f64))
            },
            due: 0.0,
        }
    }

    fn leak(&mut self, job: &mut Job, bytes: f64) {
        self.due += bytes;
        while self.due >= self.size && job.is_alive() {
            self.due -= self.size;
            job.allocate_forever(self.size as u64);
        }
    }
}

/// Runs a leak until memory runs out.
fn leak(mut job: Job, onset: f64, mut after: impl FnMut(&mut Job, f64)) -> Case {
    let end = onset + 26.0 * HOUR;
    let mut last = job.now;
    while job.now < end && job.is_alive() {
        let elapsed = job.now - last;
        last = job.now;
        let length = job.plan.lengths.draw(&mut job.random);
        job.batch_with(length, |job| after(job, elapsed));
    }
    Case {
        onset: Some(onset),
        ..Case::new(job, end)
    }
}

pub(super) fn steady(random: &mut Random, large: bool, onset: &Onset) -> Case {
    let mut job = random_job(random, 0.15, 0.8, Lengths::Fixed);
    let until = job.now + onset.draw(random);
    job.run(until, |_| ());
    let rate = rate(&job, leak_duration(random));
    let mut drops = Leak::random(random, large, rate);
    let uneven = if random.chance(0.3) {
        random.uniform(0.0, 1.0)
    } else {
        0.0
    };
    let onset = job.now;
    leak(job, onset, |job, elapsed| {
        let share = 1.0 + uneven * (job.random.exponential() - 1.0);
        drops.leak(job, rate * elapsed * share);
    })
}

/// One of eight ranks: collectives first add some buffers, as on the other ranks.
pub(super) fn one_rank(random: &mut Random) -> Case {
    let mut job = random_job(random, 0.15, 0.7, Lengths::Fixed);
    for _ in 0..random.whole(1, 8) {
        job.allocate_forever(random.log_uniform(4.0, 64.0) as u64 * MIB);
        let until = job.now + random.uniform(1.0, 20.0);
        job.run(until, |_| ());
    }
    let rate = rate(&job, leak_duration(random));
    let mut drops = Leak::random(random, false, rate);
    let onset = job.now;
    leak(job, onset, |job, elapsed| drops.leak(job, rate * elapsed))
}

pub(super) fn epoch_steps(random: &mut Random) -> Case {
    let job = random_job(random, 0.15, 0.8, Lengths::Fixed);
    let epoch = random.log_uniform(30.0, 2.0 * HOUR);
    let count = random
        .log_uniform(9.0, 60.0)
        .min(18.0 * HOUR / epoch)
        .max(9.0);
    let size = rate(&job, epoch * count) * epoch;
    let uneven = random.uniform(0.0, 0.15);
    let parts = random.whole(1, 20);
    let onset = job.now;
    let (mut next, mut done) = (onset + epoch, Vec::new());
    let mut case = leak(job, onset, |job, _| {
        if job.now >= next {
            let size = size * (1.0 + uneven * job.random.normal()).max(0.3);
            for _ in 0..parts {
                job.allocate_forever((size / parts as f64) as u64);
            }
            done.push(job.now);
            next += epoch * (1.0 + 0.3 * uneven * job.random.normal());
        }
    });
    case.detectable_from = done.get(5).copied().unwrap_or(f64::INFINITY);
    case
}

pub(super) fn sawtooth(random: &mut Random) -> Case {
    let job = random_job(random, 0.3, 0.8, Lengths::Fixed);
    let tooth = random.uniform(0.02, 0.15) * job.plan.capacity as f64;
    let period = random.log_uniform(10.0, 600.0);
    let rate = rate(&job, leak_duration(random).max(30.0 * period));
    let mut drops = Leak::random(random, true, rate);
    let (mut floor, mut next) = (job.kept(), job.now + period);
    let onset = job.now;
    leak(job, onset, |job, elapsed| {
        if job.now >= next {
            next += period * job.random.uniform(0.8, 1.2);
            job.release(floor);
            job.empty_cache();
            // The leak is among the garbage, and stays when that is collected.
            drops.leak(job, 0.0);
            floor = job.kept();
        }
        drops.due += rate * elapsed;
        job.allocate_forever((tooth * elapsed / period) as u64);
    })
}

pub(super) fn accelerating(random: &mut Random) -> Case {
    let mut job = random_job(random, 0.15, 0.8, Lengths::Fixed);
    let span = leak_duration(random).max(0.7 * HOUR);
    let room = rate(&job, span) * span;
    let mut drops = Leak::random(random, false, 2.0 * room / span);
    let (share, exponential) = (random.uniform(0.05, 0.5), random.chance(0.3));
    let until = job.now
        + if random.chance(0.5) {
            0.0
        } else {
            random.log_uniform(60.0, 0.5 * HOUR)
        };
    job.run(until, |_| ());
    let onset = job.now;
    leak(job, onset, |job, elapsed| {
        let progress = (job.now - onset) / span;
        let speed = if exponential {
            // Grows exponentially from `share` of the mean rate on.
            let growth = 3.0 * (1.0 - share);
            share.max(0.2) * (growth * progress).exp()
        } else {
            share + 2.0 * (1.0 - share) * progress
        };
        drops.leak(job, room / span * speed * elapsed);
    })
}

pub(super) fn in_evaluation(random: &mut Random) -> Case {
    let job = random_job(random, 0.3, 0.8, Lengths::Fixed);
    let epoch = random.log_uniform(60.0, 1.5 * HOUR);
    let count = random
        .log_uniform(9.0, 50.0)
        .min(18.0 * HOUR / epoch)
        .max(9.0);
    let span = random.uniform(0.05, 0.3) * epoch;
    let rate = rate(&job, epoch * count) * epoch / span;
    let large = random.chance(0.5);
    let mut drops = Leak::random(random, large, rate);
    let onset = job.now + epoch - span;
    let began = job.now;
    let mut case = leak(job, onset, |job, elapsed| {
        if (job.now - began) % epoch > epoch - span {
            drops.leak(job, rate * elapsed);
        }
    });
    case.detectable_from = began + 6.0 * epoch;
    case
}

pub(super) fn pausing(random: &mut Random) -> Case {
    let mut job = random_job(random, 0.2, 0.8, Lengths::Fixed);
    let rate = 2.0 * rate(&job, leak_duration(random));
    let large = random.chance(0.5);
    let mut drops = Leak::random(random, large, rate);
    let mean = random.log_uniform(200.0, 0.5 * HOUR);
    let (mut pauses, mut next) = (false, job.now + mean);
    let onset = job.now;
    job.now += 0.0;
    leak(job, onset, |job, elapsed| {
        if job.now >= next {
            pauses = !pauses;
            next = job.now + mean * job.random.uniform(0.5, 1.5);
        }
        if !pauses {
            drops.leak(job, rate * elapsed);
        }
    })
}

pub(super) fn under_high_water(random: &mut Random) -> Case {
    let lengths = varied(random);
    let mut job = random_job(random, 0.1, 0.6, lengths);
    let until = job.now + random.log_uniform(60.0, HOUR);
    job.run(until, |_| ());
    let rate = rate(&job, leak_duration(random));
    let large = random.chance(0.5);
    let mut drops = Leak::random(random, large, rate);
    let onset = job.now;
    leak(job, onset, |job, elapsed| drops.leak(job, rate * elapsed))
}

pub(super) fn slower_than_noise(random: &mut Random) -> Case {
    let lengths = varied(random);
    let mut job = random_job(random, 0.2, 0.6, lengths);
    let every = random.log_uniform(2.0, 60.0);
    let until = job.now + random.log_uniform(60.0, HOUR);
    let mut next = job.now;
    let mut empty = move |job: &mut Job| {
        if job.now >= next {
            next = job.now + every;
            job.empty_cache();
        }
    };
    job.run(until, &mut empty);
    let rate = rate(&job, random.uniform(10.0, 20.0) * HOUR);
    let mut drops = Leak::random(random, false, rate);
    let onset = job.now;
    leak(job, onset, |job, elapsed| {
        empty(job);
        drops.leak(job, rate * elapsed);
    })
}
