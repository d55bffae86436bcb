//! Reads what may hang in the kernel, on a few threads.
//!
//! A read that hangs cannot be cancelled. As long as each read is quick, one thread does them all.
//! When a read takes longer than the pool's patience, more threads start, [`MOST_READERS`] at most,
//! and read what waits behind it. A late answer counts like any other: a key whose read hangs is
//! not read a second time meanwhile, since that would cost another thread.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;

use crate::base::units::Moment;

/// The most threads of one pool. When all of them hang, what waits is not read.
const MOST_READERS: usize = 8;
/// The most threads that may hang at keys of normal priority: the others are left for those of high
/// priority.
const MOST_NORMAL: usize = 6;

/// A value that a thread has read.
#[derive(Debug)]
pub(in crate::agent) struct Answer<Key, Value> {
    reader: u64,
    key: Key,
    value: Value,
}

/// Delivers an answer to the owner of the pool. Returns false when the owner is gone.
type DeliverAnswer<Key, Value> = Arc<dyn Fn(Answer<Key, Value>) -> bool + Send + Sync>;

/// How soon a key is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Priority {
    /// Before the keys of normal priority.
    High,
    Normal,
}

pub(super) struct ReadPool<Key, Value> {
    name: &'static str,
    patience: Duration,
    read: fn(Key) -> Value,
    deliver: DeliverAnswer<Key, Value>,
    readers: Vec<ReaderThread<Key>>,
    /// The number of threads that were ever started.
    started: u64,
    /// The keys that wait, each once: first those of high priority.
    waiting: VecDeque<Key>,
    /// How many of the waiting keys are of high priority.
    high: usize,
}

/// A thread that reads one key after the other.
struct ReaderThread<Key> {
    number: u64,
    requests: SyncSender<Key>,
    /// The key that the thread reads, since when, and its priority. `None` while the thread is
    /// idle.
    reading: Option<(Key, Moment, Priority)>,
}

impl<Key: Copy + PartialEq + Send + 'static, Value: Send + 'static> ReadPool<Key, Value> {
    pub(super) fn new(
        name: &'static str,
        patience: Duration,
        read: fn(Key) -> Value,
        deliver: impl Fn(Answer<Key, Value>) -> bool + Send + Sync + 'static,
    ) -> Self {
        let (readers, waiting) = (Vec::new(), VecDeque::new());
        Self {
            name,
            patience,
            read,
            deliver: Arc::new(deliver),
            readers,
            started: 0,
            waiting,
            high: 0,
        }
    }

    /// Reads a key as soon as possible. If the key is being read now, it is read once more after
    /// that.
    pub(super) fn push(&mut self, key: Key, priority: Priority, now: Moment) {
        match priority {
            _ if self.waiting.contains(&key) => {}
            Priority::High => {
                self.waiting.insert(self.high, key);
                self.high += 1;
            }
            Priority::Normal => self.waiting.push_back(key),
        }
        self.read_waiting(now);
    }

    #[cfg(test)]
    pub(super) fn was_never_used(&self) -> bool {
        self.started == 0
    }

    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.readers.iter().all(|reader| reader.reading.is_none())
    }

    /// Forgets the waiting keys that are no longer wanted.
    pub(super) fn retain(&mut self, mut is_wanted: impl FnMut(&Key) -> bool) {
        let mut places = 0..;
        let high = self.high;
        self.waiting.retain(|key| {
            let (is_wanted, is_high) = (
                is_wanted(key),
                places.next().is_some_and(|place| place < high),
            );
            self.high -= usize::from(is_high && !is_wanted);
            is_wanted
        });
    }

    pub(super) fn receive(
        &mut self,
        Answer { reader, key, value }: Answer<Key, Value>,
        now: Moment,
    ) -> (Key, Value) {
        if let Some(reader) = self.readers.iter_mut().find(|known| known.number == reader) {
            reader.reading = None;
        }
        self.read_waiting(now);
        // One idle thread is enough. The others end when their channels close.
        let mut idle = 0;
        self.readers.retain(|reader| {
            idle += usize::from(reader.reading.is_none());
            reader.reading.is_some() || idle == 1
        });
        (key, value)
    }

    /// Gives the waiting keys to idle threads. Starts more threads if there is none, or one has
    /// read for too long.
    pub(super) fn read_waiting(&mut self, now: Moment) {
        loop {
            let is_read = |key: &Key| {
                self.readers
                    .iter()
                    .any(|reader| reader.reading.is_some_and(|(read, ..)| read == *key))
            };
            let Some(place) = self.waiting.iter().position(|key| !is_read(key)) else {
                return;
            };
            let priority = if place < self.high {
                Priority::High
            } else {
                Priority::Normal
            };
            if priority == Priority::Normal && self.are_normal_stuck(self.patience, now) {
                return;
            }
            let idle = self
                .readers
                .iter()
                .position(|reader| reader.reading.is_none());
            // Without a thread, the key waits until the next call.
            let Some(reader) = idle.or_else(|| self.start_reader(now)) else {
                return;
            };
            let Some(key) = self.waiting.remove(place) else {
                return;
            };
            self.high -= usize::from(place < self.high);
            if self.readers[reader].requests.try_send(key).is_ok() {
                self.readers[reader].reading = Some((key, now, priority));
            } else {
                // The thread has ended.
                self.readers.remove(reader);
            }
        }
    }

    /// Starts a thread where another one is needed. Returns its place.
    fn start_reader(&mut self, now: Moment) -> Option<usize> {
        let is_needed =
            self.readers.is_empty() || self.slower_than(self.patience, now).next().is_some();
        if !is_needed || self.readers.len() >= MOST_READERS {
            return None;
        }
        self.started += 1;
        // The thread takes each request at once, unless it is busy, and then it gets none.
        let (requests, received) = mpsc::sync_channel(1);
        let (number, read, deliver) = (self.started, self.read, self.deliver.clone());
        let run = move || read_all(number, &received, read, &deliver);
        let started: io::Result<_> = thread::Builder::new().name(self.name.to_owned()).spawn(run);
        started.ok()?;
        self.readers.push(ReaderThread {
            number,
            requests,
            reading: None,
        });
        Some(self.readers.len() - 1)
    }

    /// When a read will have taken too long for a key that waits. `None` if no key waits, or no
    /// more threads may start.
    pub(super) fn deadline(&self, now: Moment) -> Option<Moment> {
        if self.waiting.is_empty() || self.readers.len() >= MOST_READERS {
            return None;
        }
        let deadlines = self
            .readers
            .iter()
            .filter_map(|reader| Some(reader.reading?.1.after(self.patience)));
        deadlines.filter(|deadline| *deadline > now).min()
    }

    /// Returns the keys whose read has taken at least this time.
    pub(super) fn slower_than(&self, time: Duration, now: Moment) -> impl Iterator<Item = Key> {
        self.slow_reads(time, now).map(|(key, _)| key)
    }

    fn slow_reads(&self, time: Duration, now: Moment) -> impl Iterator<Item = (Key, Priority)> {
        let reading = self.readers.iter().filter_map(|reader| reader.reading);
        reading
            .filter(move |(_, since, _)| now.since(*since) >= time)
            .map(|(key, _, priority)| (key, priority))
    }

    /// Whether as many reads of normal priority as may do so have taken at least this time.
    fn are_normal_stuck(&self, time: Duration, now: Moment) -> bool {
        self.slow_reads(time, now)
            .filter(|(_, priority)| *priority == Priority::Normal)
            .count()
            >= MOST_NORMAL
    }

    /// Returns the waiting keys that are not read, because the reads before them have taken at
    /// least this time.
    pub(super) fn delayed_keys(&self, time: Duration, now: Moment) -> Vec<Key> {
        let from = match () {
            () if self.slow_reads(time, now).count() >= MOST_READERS => 0,
            () if self.are_normal_stuck(time, now) => self.high,
            () => self.waiting.len(),
        };
        self.waiting.range(from..).copied().collect()
    }
}

fn read_all<Key: Copy, Value>(
    reader: u64,
    requests: &Receiver<Key>,
    read: fn(Key) -> Value,
    deliver: &DeliverAnswer<Key, Value>,
) {
    while let Ok(key) = requests.recv() {
        if !deliver(Answer {
            reader,
            key,
            value: read(key),
        }) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(50);

    /// The keys from 1000 on hang until this is true.
    static IS_RELEASED: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

    fn double(key: u32) -> u32 {
        let (is_released, changed) = &IS_RELEASED;
        if key >= 1000 {
            drop(
                changed
                    .wait_while(is_released.lock().unwrap(), |is_released| !*is_released)
                    .unwrap(),
            );
        }
        key * 2
    }

    /// A pool, and the time that the test pretends.
    struct HangingPool {
        pool: ReadPool<u32, u32>,
        answers: Receiver<Answer<u32, u32>>,
        now: Moment,
    }

    impl HangingPool {
        fn new() -> Self {
            let (sender, answers) = mpsc::channel();
            let pool = ReadPool::new("test", PATIENCE, double, move |answer| {
                sender.send(answer).is_ok()
            });
            Self {
                pool,
                answers,
                now: Moment(1000),
            }
        }

        fn push(&mut self, key: u32, priority: Priority) {
            self.pool.push(key, priority, self.now);
        }

        /// Lets the patience pass.
        fn wait(&mut self) {
            self.now = self.now.after(PATIENCE);
            self.pool.read_waiting(self.now);
        }

        fn receive(&mut self) -> (u32, u32) {
            let answer = self.answers.recv().unwrap();
            self.pool.receive(answer, self.now)
        }
    }

    #[test]
    fn one_thread_reads_as_long_as_none_hangs_and_keys_of_high_priority_come_first() {
        let mut hanging = HangingPool::new();
        hanging.push(1, Priority::Normal);
        hanging.push(2, Priority::Normal);
        hanging.push(3, Priority::High);
        hanging.push(4, Priority::High);
        hanging.push(2, Priority::Normal);
        let answers: Vec<(u32, u32)> = (0..4).map(|_| hanging.receive()).collect();
        assert_eq!(answers, [(1, 2), (3, 6), (4, 8), (2, 4)]);
        assert_eq!((hanging.pool.readers.len(), hanging.pool.started), (1, 1));
    }

    #[test]
    fn reads_that_hang_delay_the_others_by_the_patience_until_eight_hang_and_late_answers_count() {
        let mut hanging = HangingPool::new();
        // Six reads of normal priority may hang.
        (1000..1006).for_each(|key| hanging.push(key, Priority::Normal));
        hanging.push(1, Priority::Normal);
        assert_eq!(
            hanging.pool.deadline(hanging.now),
            Some(hanging.now.after(PATIENCE))
        );
        assert_eq!(hanging.pool.started, 1, "the first read may be quick");
        hanging.wait();
        assert_eq!(hanging.receive(), (1, 2));
        hanging.wait();
        assert_eq!(hanging.pool.slower_than(PATIENCE, hanging.now).count(), 6);
        hanging.push(2, Priority::Normal);
        hanging.push(3, Priority::High);
        assert_eq!(hanging.receive(), (3, 6));
        assert_eq!(hanging.pool.delayed_keys(PATIENCE, hanging.now), [2]);
        // A key whose read hangs does not cost a second thread. Two more of high priority leave
        // none.
        (1000..1001)
            .chain(1006..1008)
            .for_each(|key| hanging.push(key, Priority::High));
        hanging.wait();
        hanging.wait();
        hanging.push(4, Priority::High);
        assert_eq!(
            hanging.pool.delayed_keys(PATIENCE, hanging.now),
            [1000, 4, 2]
        );
        assert_eq!(
            (hanging.pool.deadline(hanging.now), hanging.pool.started),
            (None, 8)
        );
        assert!(hanging.answers.try_recv().is_err(), "4 is not read");
        hanging.push(5, Priority::Normal);
        hanging.pool.retain(|key| *key != 5);
        *IS_RELEASED.0.lock().unwrap() = true;
        IS_RELEASED.1.notify_all();
        let mut answers: Vec<u32> = (0..11).map(|_| hanging.receive().0).collect();
        answers.sort_unstable();
        assert_eq!(
            answers,
            [2, 4, 1000, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007]
        );
        assert_eq!(
            (hanging.pool.readers.len(), hanging.pool.high),
            (1, 0),
            "the other threads end"
        );
    }
}
