//! The thread that asks a Prometheus server.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::PrometheusClient;
use crate::protocol::series::{SeriesAnswer, SeriesQuestion};

/// The answers to the questions of one round.
#[derive(Debug, PartialEq)]
pub(crate) struct AskedRound {
    /// The slot of the questions.
    pub(crate) slot: usize,
    /// The number of the round, as it was given with the questions.
    pub(crate) round: u64,
    /// One answer for each question, in their order; or a sentence, since the first question
    /// without an answer ends the round.
    pub(crate) answers: Result<Vec<SeriesAnswer>, String>,
    /// The time from the first question to the last answer.
    pub(crate) took: Duration,
}

/// Asks questions on a thread of its own, which ends with this value after its present question.
#[derive(Debug)]
pub(crate) struct Asker(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The questions of each slot, with the number of their round.
    slots: BTreeMap<usize, (u64, Vec<SeriesQuestion>)>,
    is_over: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the questions of the lowest slot; `None` at the end.
    fn next(&self) -> Option<(usize, u64, Vec<SeriesQuestion>)> {
        let mut waiting = self.lock();
        loop {
            if waiting.is_over {
                return None;
            }
            if let Some((slot, (round, questions))) = waiting.slots.pop_first() {
                return Some((slot, round, questions));
            }
            waiting = self
                .changed
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether the round of a slot goes on.
    fn goes_on(&self, slot: usize) -> bool {
        let waiting = self.lock();
        !waiting.is_over && !waiting.slots.contains_key(&slot)
    }
}

#[expect(clippy::disallowed_methods, reason = "measures the time of answers")]
fn now() -> Instant {
    Instant::now()
}

impl Asker {
    /// Starts the thread. `answered` is called on it, and returns `false` when nobody listens any
    /// more.
    ///
    /// # Errors
    ///
    /// When the thread cannot be started.
    pub(crate) fn start(
        mut client: PrometheusClient,
        mut answered: impl FnMut(AskedRound) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let of_thread = shared.clone();
        let work = move || {
            while let Some((slot, round, questions)) = of_thread.next() {
                let start = now();
                let mut answers = Ok(Vec::with_capacity(questions.len()));
                for question in &questions {
                    if !of_thread.goes_on(slot) {
                        break;
                    }
                    match (client.ask(question), &mut answers) {
                        (Ok(answer), Ok(answers)) => answers.push(answer),
                        (Err(why), _) => {
                            answers = Err(why);
                            break;
                        }
                        (Ok(_), Err(_)) => break,
                    }
                }
                if !of_thread.goes_on(slot) {
                    continue;
                }
                let took = start.elapsed();
                let asked = AskedRound {
                    slot,
                    round,
                    answers,
                    took,
                };
                if !answered(asked) {
                    break;
                }
            }
        };
        thread::Builder::new()
            .name("prometheus".to_owned())
            .spawn(work)?;
        Ok(Self(shared))
    }

    /// Asks these questions as soon as those of lower slots are answered. They replace the questions
    /// of the same slot: a round that is replaced is dropped after its present question.
    pub(crate) fn ask(&self, slot: usize, round: u64, questions: Vec<SeriesQuestion>) {
        self.0.lock().slots.insert(slot, (round, questions));
        self.0.changed.notify_one();
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.changed.notify_one();
    }
}
