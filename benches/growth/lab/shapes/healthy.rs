//! Jobs that do not leak, though some look like it for a while.

use super::super::Case;
use super::super::allocator::MIB;
use super::super::job::{Job, Lengths, Plan};
use super::super::random::Random;
use super::{HOUR, hours, mild, random_job, varied};

pub(super) fn flat(random: &mut Random) -> Case {
    let end = hours(random);
    let lengths = mild(random);
    let mut job = random_job(random, 0.02, 0.8, lengths);
    job.run(600.0, |_| ());
    Case::new(job, end)
}

pub(super) fn warm_up(random: &mut Random) -> Case {
    let end = hours(random);
    let plan = Plan::random(random, 0.1, 0.8);
    let mut job = Job::start(
        Plan {
            load: random.log_uniform(20.0, 200.0),
            ..plan
        },
        random.clone(),
    );
    // Buffers and kernel caches, at growing intervals.
    let mut wait = random.log_uniform(2.0, 20.0);
    for _ in 0..random.whole(5, 40) {
        let until = job.now + wait;
        job.run(until, |_| ());
        let size = job
            .random
            .log_uniform(MIB as f64, 0.01 * job.plan.capacity as f64);
        job.allocate_forever(size as u64);
        wait *= job.random.uniform(1.0, 1.5);
    }
    Case::new(job, end)
}

pub(super) fn slow_warm_up(random: &mut Random) -> Case {
    let end = hours(random);
    let mut job = random_job(random, 0.3, 0.8, Lengths::Fixed);
    let room = random.uniform(0.02, 0.25) * job.plan.capacity as f64;
    let slowness = random.log_uniform(20.0, 900.0);
    let (began, mut held) = (job.now, 0.0);
    job.run(began + 12.0 * slowness, |job| {
        let due = room * (1.0 - (-(job.now - began) / slowness).exp()) - held;
        if due > MIB as f64 {
            job.allocate_forever(due as u64);
            held += due;
        }
    });
    Case::new(job, end)
}

pub(super) fn variable_lengths(random: &mut Random) -> Case {
    let end = hours(random);
    let lengths = varied(random);
    let mut job = random_job(random, 0.05, 0.8, lengths);
    job.run(end, |_| ());
    Case::new(job, end)
}

pub(super) fn evaluation(random: &mut Random) -> Case {
    let end = hours(random);
    let lengths = mild(random);
    let mut job = random_job(random, 0.3, 0.8, lengths);
    let epoch = random.log_uniform(30.0, 2.0 * HOUR);
    let (span, larger, empties) = (
        random.uniform(0.02, 0.3),
        random.uniform(0.2, 2.0),
        random.chance(0.6),
    );
    while job.now < end && job.is_alive() {
        let until = job.now + epoch;
        job.run(until, |_| ());
        let until = job.now + epoch * span;
        while job.now < until && job.is_alive() {
            let length = larger * job.random.uniform(0.9, 1.0);
            job.batch(length);
        }
        if empties {
            job.empty_cache();
        }
    }
    Case::new(job, end)
}

pub(super) fn checkpoints(random: &mut Random) -> Case {
    let end = hours(random);
    let lengths = mild(random);
    let mut job = random_job(random, 0.4, 0.8, lengths);
    let every = random.log_uniform(60.0, 2.0 * HOUR);
    let size = random.uniform(0.3, 1.0) * job.plan.weights as f64;
    while job.now < end && job.is_alive() {
        let until = job.now + every;
        job.run(until, |_| ());
        let before = job.kept();
        for _ in 0..20 {
            job.allocate_forever((size / 20.0) as u64);
            job.now += job.random.uniform(0.05, 2.0);
        }
        job.release(before);
        job.empty_cache();
    }
    Case::new(job, end)
}

pub(super) fn curriculum(random: &mut Random) -> Case {
    let steps = random.whole(1, 5);
    let lengths = mild(random);
    let mut job = random_job(random, 0.5, 0.8, lengths);
    let every = random.log_uniform(60.0, 2.0 * HOUR);
    let end = (every * (steps + 2) as f64).max(2.0 * HOUR);
    let step = random.uniform(0.01, 0.08) * job.plan.capacity as f64;
    for _ in 0..steps {
        let until = job.now + every;
        job.run(until, |_| ());
        job.plan.activations += step as u64;
    }
    job.run(end, |_| ());
    Case::new(job, end)
}

pub(super) fn restarts(random: &mut Random) -> Case {
    let end = hours(random);
    let plan = Plan {
        lengths: varied(random),
        ..Plan::random(random, 0.1, 0.8)
    };
    let every = random.log_uniform(300.0, 2.0 * HOUR);
    let (mut log, mut now) = (Vec::new(), 0.0);
    while now < end {
        let mut job = Job::start(plan.clone(), Random::seeded(random.whole(0, u64::MAX - 1)));
        let life = every * random.uniform(0.3, 1.5);
        job.run(life, |_| ());
        log.extend(job.log.iter().map(|(at, held)| (at + now, *held)));
        now += life;
        log.push((now, 0));
        now += random.uniform(1.0, 90.0);
    }
    Case {
        log,
        end,
        ..Case::new(Job::start(plan, random.clone()), end)
    }
}

pub(super) fn recompiles(random: &mut Random) -> Case {
    let end = hours(random);
    let lengths = mild(random);
    let mut job = random_job(random, 0.3, 0.8, lengths);
    for _ in 0..random.whole(1, 12) {
        let until = job.now + random.log_uniform(20.0, HOUR);
        job.run(until, |_| ());
        let size = random.log_uniform(2.0 * MIB as f64, 0.03 * job.plan.capacity as f64);
        job.allocate_forever(size as u64);
        job.now += random.uniform(2.0, 60.0);
    }
    Case::new(job, end)
}

/// A whole GPU with healthy processes that come and go.
pub(super) fn neighbours(random: &mut Random) -> Case {
    let end = hours(random);
    let plan = Plan::random(random, 0.2, 0.5);
    let mut changes: Vec<(f64, i64)> = Vec::new();
    for _ in 0..random.whole(2, 6) {
        let (every, share) = (
            random.log_uniform(120.0, 3.0 * HOUR),
            random.uniform(0.02, 0.15),
        );
        let mut now = random.uniform(0.0, every);
        while now < end {
            let whole = share * random.uniform(0.7, 1.0) * plan.capacity as f64;
            let (life, load) = (every * random.exponential(), random.uniform(2.0, 60.0));
            let parts = 12;
            for part in 0..parts {
                changes.push((
                    now + load * f64::from(part) / f64::from(parts),
                    (whole / f64::from(parts)) as i64,
                ));
            }
            let ends = now + load + life;
            changes.push((ends, -(whole / f64::from(parts)) as i64 * i64::from(parts)));
            now = ends + every * random.exponential();
        }
    }
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut job = Job::start(plan, random.clone());
    job.run(600.0, |_| ());
    let mut own = job.log.clone();
    own.reverse();
    let (mut held, mut others, mut log) = (0_u64, 0_i64, Vec::new());
    for (at, change) in changes {
        while own.last().is_some_and(|entry| entry.0 <= at) {
            let (at, now) = own.pop().unwrap_or_default();
            held = now;
            log.push((at, held.saturating_add_signed(others)));
        }
        others += change;
        log.push((
            at,
            held.saturating_add_signed(others).min(job.plan.capacity),
        ));
    }
    Case {
        log,
        ..Case::new(job, end)
    }
}

pub(super) fn emptied_cache(random: &mut Random) -> Case {
    let end = hours(random);
    let lengths = varied(random);
    let mut job = random_job(random, 0.05, 0.8, lengths);
    let every = random.log_uniform(5.0, HOUR);
    while job.now < end && job.is_alive() {
        let until = job.now + every;
        job.run(until, |_| ());
        job.empty_cache();
    }
    Case::new(job, end)
}

/// Reference cycles that wait for Python's garbage collector.
pub(super) fn garbage(random: &mut Random) -> Case {
    let end = hours(random);
    let mut job = random_job(random, 0.3, 0.8, Lengths::Fixed);
    let tooth = random.uniform(0.02, 0.15) * job.plan.capacity as f64;
    let period = random.log_uniform(5.0, 150.0);
    let (floor, mut next, mut last) = (job.kept(), job.now + period, job.now);
    job.run(end, |job| {
        if job.now >= next {
            next += period * job.random.uniform(0.8, 1.2);
            job.release(floor);
            job.empty_cache();
        }
        job.allocate_forever((tooth * (job.now - last) / period) as u64);
        last = job.now;
    });
    Case::new(job, end)
}

/// A server: each request holds memory until it is answered, their number drifts, and the cache is
/// emptied at times.
pub(super) fn serving(random: &mut Random) -> Case {
    let end = hours(random);
    let mut job = random_job(random, 0.4, 0.8, Lengths::Fixed);
    let size = random.log_uniform(0.001, 0.02) * job.plan.capacity as f64;
    let (drift, every) = (
        random.log_uniform(20.0, 600.0),
        random.log_uniform(10.0, HOUR),
    );
    let most = random.uniform(2.0, 0.2 * job.plan.capacity as f64 / size);
    let floor = job.kept();
    let (mut next, mut load) = (job.now + every, 0.0_f64);
    while job.now < end && job.is_alive() {
        let share = (job.plan.step / drift).min(1.0);
        load += -share * load + (2.0 * share).sqrt() * 0.25 * random.normal();
        let due = floor + (most * (0.5 + load).clamp(0.0, 1.0)) as usize;
        if job.kept() > due {
            job.release(due);
        } else {
            job.allocate_forever((size * random.uniform(0.2, 1.0)) as u64);
        }
        job.now += job.plan.step;
        if job.now > next {
            next = job.now + every;
            job.empty_cache();
        }
    }
    Case::new(job, end)
}

pub(super) fn sorted_epoch(random: &mut Random) -> Case {
    let lengths = varied(random);
    let mut job = random_job(random, 0.05, 0.6, Lengths::Fixed);
    job.plan.step = job.plan.step.max(0.5);
    let epoch = random.log_uniform(300.0, 1.5 * HOUR);
    let count = (epoch / job.plan.step) as usize;
    let mut sorted: Vec<f64> = (0..count).map(|_| lengths.draw(random)).collect();
    sorted.sort_by(f64::total_cmp);
    // Only the weights: fixed batches would hide the requests.
    job.empty_cache();
    let began = job.now;
    for length in &sorted {
        job.batch(*length);
    }
    let plateau = job.now;
    job.plan.lengths = lengths;
    let end = began + epoch + 2.0 * HOUR;
    job.run(end, |_| ());
    Case {
        plateau: Some(plateau),
        ..Case::new(job, end)
    }
}

pub(super) fn replay_buffer(random: &mut Random) -> Case {
    let lengths = mild(random);
    let mut job = random_job(random, 0.2, 0.7, lengths);
    let whole = random.uniform(0.1, 0.9)
        * (job.plan.capacity - job.log.last().map_or(0, |entry| entry.1)) as f64;
    let fill = random.log_uniform(180.0, 3.0 * HOUR);
    let mut due = 0.0;
    let part = random.log_uniform(0.01, 8.0) * MIB as f64;
    let (began, mut held) = (job.now, 0.0);
    job.run(began + fill, |job| {
        due = whole * (job.now - began) / fill;
        while due - held > part && job.is_alive() {
            job.allocate_forever(part.max((due - held) / 4.0) as u64);
            held += part.max((due - held) / 4.0);
        }
    });
    let plateau = job.now;
    let end = plateau + 2.0 * HOUR;
    job.run(end, |_| ());
    Case {
        plateau: Some(plateau),
        ..Case::new(job, end)
    }
}
