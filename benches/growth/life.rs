//! Ordinary life that shares the curve with a job: what another program, or another phase of the
//! same one, does to it.

use crate::lab::Case;
use crate::lab::random::Random;

const HOUR: f64 = 3600.0;
const MIB: u64 = 1 << 20;

/// An event of ordinary life besides the leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Life {
    Nothing,
    /// A checkpoint takes much memory for some seconds, again and again.
    CheckpointSpikes,
    /// The job stands still while it evaluates: its memory stays, and its leak pauses.
    EvaluationPauses,
    /// The memory rises once, as after the longest batch so far, and stays there.
    HighWaterStep,
    /// Another process on the GPU ends and starts again.
    NeighbourRestarts,
    /// Requests to a server come and go, by day and by the minute.
    ServerNoise,
}

impl Life {
    pub(crate) const ALL: [Self; 6] = [
        Self::Nothing,
        Self::CheckpointSpikes,
        Self::EvaluationPauses,
        Self::HighWaterStep,
        Self::NeighbourRestarts,
        Self::ServerNoise,
    ];

    /// Adds this to the case.
    pub(crate) fn share(self, case: &mut Case, random: &mut Random) {
        let capacity = case.capacity as f64;
        let free = (capacity
            - case
                .log
                .iter()
                .take_while(|entry| entry.0 <= case.onset.unwrap_or(0.0))
                .map(|entry| entry.1 as f64)
                .fold(0.0, f64::max))
        .max(0.0);
        match self {
            Self::Nothing => {}
            Self::CheckpointSpikes => {
                let (every, long) = (random.log_uniform(600.0, HOUR), random.uniform(4.0, 20.0));
                let size = random.uniform(0.1, 0.5) * free;
                let mut changes = Vec::new();
                let mut now = random.uniform(0.2, 1.0) * every;
                while now < case.end {
                    changes.push((now, size as u64));
                    changes.push((now + long, 0));
                    now += every * random.uniform(0.95, 1.05);
                }
                case.add(&changes, true);
            }
            Self::EvaluationPauses => {
                let every = random.log_uniform(120.0, HOUR);
                let long = random.uniform(0.05, 0.5) * every;
                let from = random.uniform(0.2, 1.0) * every;
                case.pause(|time| (((time - from) / every).floor() + 1.0).max(0.0) * long);
            }
            Self::HighWaterStep => {
                let at = case.onset.unwrap_or(0.0).max(0.0);
                let at = at + random.uniform(0.0, 0.6) * (case.end - at);
                let step = random.uniform(0.05, 0.3) * free;
                case.add(&[(at, step as u64)], case.onset.is_none());
            }
            Self::NeighbourRestarts => {
                let size = random.uniform(0.1, 0.3) * free;
                let every = random.log_uniform(900.0, 4.0 * HOUR);
                let (mut changes, mut now) = (Vec::new(), 0.0);
                while now < case.end {
                    let load = random.uniform(5.0, 60.0);
                    for part in 1..=10 {
                        changes.push((
                            now + load * f64::from(part) / 10.0,
                            (size * f64::from(part) / 10.0) as u64,
                        ));
                    }
                    now += load + every * random.exponential();
                    changes.push((now, 0));
                    now += random.uniform(2.0, 120.0);
                }
                case.add(&changes, case.onset.is_none());
            }
            Self::ServerNoise => {
                let size = random.uniform(0.02, 0.15) * free;
                let (drift, day) = (
                    random.log_uniform(20.0, 600.0),
                    random.uniform(0.0, 24.0 * HOUR),
                );
                let (mut changes, mut now, mut load, mut burst) =
                    (Vec::new(), 0.0, 0.0_f64, 0.0_f64);
                while now < case.end {
                    let step = random.uniform(0.5, 2.0);
                    let share = (step / drift).min(1.0);
                    load += -share * load + (2.0 * share).sqrt() * 0.25 * random.normal();
                    burst = if random.chance(step / 300.0) {
                        random.uniform(0.2, 1.0)
                    } else {
                        burst * (1.0 - step / 8.0_f64).max(0.0)
                    };
                    let rhythm = 0.3 * (std::f64::consts::TAU * (now + day) / (24.0 * HOUR)).sin();
                    let held = size * (0.5 + rhythm + load + burst).max(0.0);
                    changes.push((now, held as u64 / (2 * MIB) * 2 * MIB));
                    now += step;
                }
                case.add(&changes, true);
            }
        }
    }
}

impl Case {
    /// Adds the memory of something else: the times and amounts of its changes. With `fits`, it
    /// takes no more than there is free; else the job runs out of memory when there is none left.
    pub(crate) fn add(&mut self, changes: &[(f64, u64)], fits: bool) {
        let mut log = Vec::with_capacity(self.log.len() + changes.len());
        let (mut own, mut other) = (self.log.iter().peekable(), changes.iter().peekable());
        let (mut held, mut more) = (0, 0);
        loop {
            let next_own = own.peek().map_or(f64::INFINITY, |entry| entry.0);
            let next_other = other.peek().map_or(f64::INFINITY, |entry| entry.0);
            let at = next_own.min(next_other);
            if at >= self.end {
                break;
            }
            if next_own <= next_other {
                held = own.next().map_or(held, |entry| entry.1);
            } else {
                more = other.next().map_or(more, |entry| entry.1);
            }
            if held + more > self.capacity && !fits {
                self.end = at;
                self.out_of_memory_at = Some(at);
                break;
            }
            log.push((at, (held + more).min(self.capacity)));
        }
        self.log = log;
        let end = self.end;
        self.tensors.retain(|entry| entry.0 < end);
    }

    /// Delays everything: `lost` returns the seconds that the job has stood still until a moment of
    /// its own time.
    fn pause(&mut self, lost: impl Fn(f64) -> f64) {
        let later = |time: f64| time + lost(time);
        for entry in self.log.iter_mut().chain(&mut self.tensors) {
            entry.0 = later(entry.0);
        }
        self.end = later(self.end);
        if self.detectable_from.is_finite() {
            self.detectable_from = later(self.detectable_from);
        }
        for time in [
            &mut self.onset,
            &mut self.out_of_memory_at,
            &mut self.plateau,
        ]
        .into_iter()
        .flatten()
        {
            *time = later(*time);
        }
    }
}
