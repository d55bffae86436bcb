//! Reads what may hang in the kernel, on a few threads.
//!
//! A read that hangs cannot be cancelled. As long as each read is quick, one thread does them all. When a read takes longer than
//! the pool's patience, more threads start, [`MOST_READERS`] at most, and read what waits behind it. A late answer counts like
//! any other: a key whose read hangs is not read a second time meanwhile, since that would cost another thread.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;

use crate::agent::clock;
use crate::base::units::Moment;

/// The most threads of one pool. When all of them hang, what waits is not read.
pub(super) const MOST_READERS: usize = 8;

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
    /// The key that the thread reads, and since when. `None` while the thread is idle.
    reading: Option<(Key, Moment)>,
}

impl<Key: Copy + PartialEq + Send + 'static, Value: Send + 'static> ReadPool<Key, Value> {
    pub(super) fn new(
        name: &'static str,
        patience: Duration,
        read: fn(Key) -> Value,
        deliver: impl Fn(Answer<Key, Value>) -> bool + Send + Sync + 'static,
    ) -> Self {
        let (readers, waiting) = (Vec::new(), VecDeque::new());
        Self { name, patience, read, deliver: Arc::new(deliver), readers, started: 0, waiting, high: 0 }
    }

    /// Reads a key as soon as possible. If the key is being read now, it is read once more after that.
    pub(super) fn push(&mut self, key: Key, priority: Priority) {
        match priority {
            _ if self.waiting.contains(&key) => {}
            Priority::High => {
                self.waiting.insert(self.high, key);
                self.high += 1;
            }
            Priority::Normal => self.waiting.push_back(key),
        }
        self.read_waiting(clock::now());
    }

    /// Forgets the waiting keys that are no longer wanted.
    pub(super) fn retain(&mut self, mut is_wanted: impl FnMut(&Key) -> bool) {
        let mut at = 0..;
        let high = self.high;
        self.waiting.retain(|key| {
            let (is_wanted, is_high) = (is_wanted(key), at.next().is_some_and(|at| at < high));
            self.high -= usize::from(is_high && !is_wanted);
            is_wanted
        });
    }

    pub(super) fn receive(&mut self, Answer { reader, key, value }: Answer<Key, Value>) -> (Key, Value) {
        if let Some(reader) = self.readers.iter_mut().find(|known| known.number == reader) {
            reader.reading = None;
        }
        self.read_waiting(clock::now());
        // One idle thread is enough. The others end when their channels close.
        let mut idle = 0;
        self.readers.retain(|reader| {
            idle += usize::from(reader.reading.is_none());
            reader.reading.is_some() || idle == 1
        });
        (key, value)
    }

    /// Gives the waiting keys to idle threads. Starts more threads if there is none, or one has read for too long.
    pub(super) fn read_waiting(&mut self, now: Moment) {
        loop {
            let is_read =
                |key: &Key| self.readers.iter().any(|reader| reader.reading.is_some_and(|(read, _)| read == *key));
            let Some(at) = self.waiting.iter().position(|key| !is_read(key)) else { return };
            let idle = self.readers.iter().position(|reader| reader.reading.is_none());
            // Without a thread, the key waits until the next call.
            let Some(reader) = idle.or_else(|| self.start_reader(now)) else { return };
            let Some(key) = self.waiting.remove(at) else { return };
            self.high -= usize::from(at < self.high);
            if self.readers[reader].requests.try_send(key).is_ok() {
                self.readers[reader].reading = Some((key, now));
            } else {
                // The thread has ended.
                self.readers.remove(reader);
            }
        }
    }

    /// Starts a thread where another one is needed. Returns its place.
    fn start_reader(&mut self, now: Moment) -> Option<usize> {
        let is_needed = self.readers.is_empty() || self.slower_than(self.patience, now).next().is_some();
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
        self.readers.push(ReaderThread { number, requests, reading: None });
        Some(self.readers.len() - 1)
    }

    /// When a read will have taken too long for a key that waits. `None` if no key waits, or no more threads may start.
    pub(super) fn deadline(&self, now: Moment) -> Option<Moment> {
        if self.waiting.is_empty() || self.readers.len() >= MOST_READERS {
            return None;
        }
        let deadlines = self.readers.iter().filter_map(|reader| Some(reader.reading?.1.after(self.patience)));
        deadlines.filter(|deadline| *deadline > now).min()
    }

    /// Returns the keys whose read has taken at least this time, and since when it does.
    pub(super) fn slower_than(&self, time: Duration, now: Moment) -> impl Iterator<Item = (Key, Moment)> {
        let reading = self.readers.iter().filter_map(|reader| reader.reading);
        reading.filter(move |(_, since)| now.since(*since) >= time)
    }

    /// Whether every thread has read one key for at least this time, and no more may start: what waits is not read.
    pub(super) fn is_stuck(&self, time: Duration, now: Moment) -> bool {
        self.slower_than(time, now).count() >= MOST_READERS
    }
}

fn read_all<Key: Copy, Value>(
    reader: u64,
    requests: &Receiver<Key>,
    read: fn(Key) -> Value,
    deliver: &DeliverAnswer<Key, Value>,
) {
    while let Ok(key) = requests.recv() {
        if !deliver(Answer { reader, key, value: read(key) }) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use super::*;

    /// Longer than the test takes: only the times that it pretends exceed it.
    const PATIENCE: Duration = Duration::from_mins(5);

    /// The keys from 1000 on hang until this is true.
    static IS_RELEASED: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

    fn double(key: u32) -> u32 {
        let (is_released, changed) = &IS_RELEASED;
        if key >= 1000 {
            drop(changed.wait_while(is_released.lock().unwrap(), |is_released| !*is_released).unwrap());
        }
        key * 2
    }

    struct HangingPool {
        pool: ReadPool<u32, u32>,
        answers: Receiver<Answer<u32, u32>>,
    }

    impl HangingPool {
        fn new() -> Self {
            let (sender, answers) = mpsc::channel();
            Self { pool: ReadPool::new("test", PATIENCE, double, move |answer| sender.send(answer).is_ok()), answers }
        }

        /// Reads what waits, as if so much time had passed.
        fn pass(&mut self, time: Duration) {
            self.pool.read_waiting(clock::now().after(time));
        }

        fn receive(&mut self) -> (u32, u32) {
            let answer = self.answers.recv().unwrap();
            self.pool.receive(answer)
        }
    }

    #[test]
    fn one_thread_reads_as_long_as_none_hangs_and_keys_of_high_priority_come_first() {
        let mut hanging = HangingPool::new();
        hanging.pool.push(1, Priority::Normal);
        hanging.pool.push(2, Priority::Normal);
        hanging.pool.push(3, Priority::High);
        hanging.pool.push(4, Priority::High);
        hanging.pool.push(2, Priority::Normal);
        let answers: Vec<(u32, u32)> = (0..4).map(|_| hanging.receive()).collect();
        assert_eq!(answers, [(1, 2), (3, 6), (4, 8), (2, 4)]);
        assert_eq!((hanging.pool.readers.len(), hanging.pool.started), (1, 1));
    }

    #[test]
    fn reads_that_hang_delay_the_others_by_the_patience_until_eight_hang_and_late_answers_count() {
        let mut hanging = HangingPool::new();
        // Seven reads that hang leave one thread.
        (1000..1007).for_each(|key| hanging.pool.push(key, Priority::Normal));
        hanging.pool.push(1, Priority::Normal);
        assert!(hanging.pool.deadline(clock::now()).is_some());
        assert_eq!(hanging.pool.started, 1, "the first read may be quick");
        hanging.pass(PATIENCE);
        assert_eq!(hanging.receive(), (1, 2));
        hanging.pool.push(2, Priority::Normal);
        assert_eq!(hanging.receive(), (2, 4));
        // A key whose read hangs does not cost a second thread.
        hanging.pool.push(1000, Priority::High);
        hanging.pool.push(3, Priority::Normal);
        assert_eq!(hanging.receive(), (3, 6));
        let later = clock::now().after(PATIENCE * 2);
        assert_eq!(hanging.pool.slower_than(PATIENCE, later).count(), 7);
        assert!(!hanging.pool.is_stuck(PATIENCE, later));
        // The eighth leaves none.
        hanging.pool.push(1007, Priority::Normal);
        hanging.pool.push(4, Priority::Normal);
        hanging.pass(PATIENCE * 2);
        let later = clock::now().after(PATIENCE * 4);
        assert!(hanging.pool.is_stuck(PATIENCE, later) && hanging.pool.deadline(clock::now()).is_none());
        assert!(hanging.answers.try_recv().is_err(), "4 is not read");
        hanging.pool.push(5, Priority::Normal);
        hanging.pool.retain(|key| *key != 5);
        *IS_RELEASED.0.lock().unwrap() = true;
        IS_RELEASED.1.notify_all();
        let mut answers: Vec<u32> = (0..10).map(|_| hanging.receive().0).collect();
        answers.sort_unstable();
        assert_eq!(answers, [4, 1000, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007]);
        assert_eq!((hanging.pool.readers.len(), hanging.pool.high), (1, 0), "the other threads end");
    }
}
