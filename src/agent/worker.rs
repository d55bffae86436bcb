//! A worker thread that can be abandoned when a call hangs.
//!
//! A call that blocks in the kernel cannot be cancelled. Instead, the [`Worker`] abandons the
//! thread that made the call, and its owner may start another thread. The abandoned thread ends as
//! soon as its call returns, and the owner receives [`Received::CameBack`].
//!
//! ```text
//! owner   Worker ── requests ─────────────► WorkerThread   thread
//!         receive ◄── WorkerMessage ──────── deliver
//!         deadline, abandon ◄── Progress ─── begin, end
//! ```

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::base::units::Moment;

/// The most abandoned threads of one worker. Each keeps its stack and a PID until its call returns.
pub(super) const MOST_ABANDONED: usize = 8;

/// Delivers a message to the owner. Returns false when the owner is gone.
type Deliver<Output> = Arc<dyn Fn(WorkerMessage<Output>) -> bool + Send + Sync>;

pub(super) struct Worker<Request, Task, Output> {
    name: &'static str,
    limit: fn(&Task) -> Duration,
    deliver: Deliver<Output>,
    /// The number of the newest thread. Outputs of earlier threads come too late.
    generation: u64,
    thread: Option<(SyncSender<Request>, Arc<Progress<Task>>)>,
    /// Abandoned threads that have not come back, by generation, with the task that hangs.
    abandoned: BTreeMap<u64, Task>,
}

impl<Request, Task, Output> Worker<Request, Task, Output>
where
    Request: Send + 'static,
    Task: Copy + Send + 'static,
    Output: 'static,
{
    pub(super) fn new(
        name: &'static str,
        limit: fn(&Task) -> Duration,
        deliver: impl Fn(WorkerMessage<Output>) -> bool + Send + Sync + 'static,
    ) -> Self {
        let deliver = Arc::new(deliver);
        Self {
            name,
            limit,
            deliver,
            generation: 0,
            thread: None,
            abandoned: BTreeMap::new(),
        }
    }

    pub(super) fn start(
        &mut self,
        run: impl FnOnce(WorkerThread<Request, Task, Output>) + Send + 'static,
    ) -> io::Result<()> {
        self.generation += 1;
        let (sender, requests) = mpsc::sync_channel(1);
        let progress = Arc::new(Progress(Mutex::new(ProgressState::Idle)));
        let thread = WorkerThread {
            generation: self.generation,
            requests,
            progress: progress.clone(),
            deliver: self.deliver.clone(),
        };
        thread::Builder::new()
            .name(self.name.to_owned())
            .spawn(move || run(thread))?;
        self.thread = Some((sender, progress));
        Ok(())
    }

    /// False also after the thread was abandoned.
    pub(super) fn is_running(&self) -> bool {
        self.thread.is_some()
    }

    /// Whether so many abandoned threads hang that no more should be started.
    pub(super) fn is_exhausted(&self) -> bool {
        self.abandoned.len() >= MOST_ABANDONED
    }

    /// Sends a request. Returns false when no thread runs, or when the thread has not yet received
    /// the request before.
    pub(super) fn send(&mut self, request: Request) -> bool {
        let Some((requests, _)) = &self.thread else {
            return false;
        };
        match requests.try_send(request) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => false,
            Err(TrySendError::Disconnected(_)) => {
                self.thread = None;
                false
            }
        }
    }

    /// When the task in progress will have taken too long; `None` while the thread is idle.
    pub(super) fn deadline(&self) -> Option<Moment> {
        match *self.thread.as_ref()?.1.lock() {
            ProgressState::Busy(task, since) => Some(since.after((self.limit)(&task))),
            ProgressState::Idle | ProgressState::Abandoned => None,
        }
    }

    /// Abandons the thread if its task takes too long. Returns that task and when it began.
    pub(super) fn abandon_overdue(&mut self, now: Moment) -> Option<(Task, Moment)> {
        let mut state = self.thread.as_ref()?.1.lock();
        let ProgressState::Busy(task, since) = *state else {
            return None;
        };
        if now < since.after((self.limit)(&task)) {
            return None;
        }
        *state = ProgressState::Abandoned;
        drop(state);
        self.thread = None;
        self.abandoned.insert(self.generation, task);
        Some((task, since))
    }

    /// Any thread of this worker, also an abandoned one, may have sent the message.
    pub(super) fn receive(&mut self, message: WorkerMessage<Output>) -> Received<Task, Output> {
        match message.output {
            Some(output) if message.generation == self.generation && self.is_running() => {
                Received::Output(output)
            }
            Some(_) => Received::Late,
            None => self
                .abandoned
                .remove(&message.generation)
                .map_or(Received::Late, Received::CameBack),
        }
    }

    #[cfg(test)]
    pub(super) fn pretend(&mut self, task: Task, since: Moment) {
        if self.thread.is_none() {
            self.generation += 1;
            self.thread = Some((
                mpsc::sync_channel(1).0,
                Arc::new(Progress(Mutex::new(ProgressState::Idle))),
            ));
        }
        self.thread.as_ref().unwrap().1.begin(task, since);
    }
}

/// An output of a worker's thread, or the notice that an abandoned thread came back.
#[derive(Debug)]
pub(super) struct WorkerMessage<Output> {
    generation: u64,
    /// `None`: the thread was abandoned, and has come back and ended.
    output: Option<Output>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received<Task, Output> {
    Output(Output),
    /// An output of a thread that was abandoned meanwhile.
    Late,
    /// An abandoned thread came back from this task.
    CameBack(Task),
}

#[derive(Debug)]
pub(super) struct Progress<Task>(Mutex<ProgressState<Task>>);

#[derive(Debug, Clone, Copy)]
enum ProgressState<Task> {
    Idle,
    /// The task in progress, and when it began.
    Busy(Task, Moment),
    Abandoned,
}

impl<Task> Progress<Task> {
    fn lock(&self) -> MutexGuard<'_, ProgressState<Task>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns false, and changes nothing, when the thread was abandoned.
    fn set(&self, state: ProgressState<Task>) -> bool {
        let mut current = self.lock();
        let is_abandoned = matches!(*current, ProgressState::Abandoned);
        if !is_abandoned {
            *current = state;
        }
        !is_abandoned
    }

    /// Announces a task that may hang. Returns false when the thread was abandoned.
    pub(super) fn begin(&self, task: Task, now: Moment) -> bool {
        self.set(ProgressState::Busy(task, now))
    }

    /// Announces that the task has ended. Returns false when the thread was abandoned.
    pub(super) fn end(&self) -> bool {
        self.set(ProgressState::Idle)
    }

    /// Whether the owner abandoned this thread. The thread should then return as soon as it can.
    pub(super) fn is_abandoned(&self) -> bool {
        matches!(*self.lock(), ProgressState::Abandoned)
    }
}

pub(super) struct WorkerThread<Request, Task, Output> {
    generation: u64,
    pub(super) requests: Receiver<Request>,
    pub(super) progress: Arc<Progress<Task>>,
    deliver: Deliver<Output>,
}

#[cfg(test)]
impl<Output> WorkerMessage<Output> {
    pub(super) fn pretend(generation: u64, output: Option<Output>) -> Self {
        Self { generation, output }
    }
}

impl<Request, Task, Output> WorkerThread<Request, Task, Output> {
    /// Delivers an output. Returns false when the thread should end: it was abandoned, or its owner
    /// is gone.
    pub(super) fn deliver(&self, output: Output) -> bool {
        !self.progress.is_abandoned()
            && (self.deliver)(WorkerMessage {
                generation: self.generation,
                output: Some(output),
            })
    }
}

impl<Request, Task, Output> Drop for WorkerThread<Request, Task, Output> {
    fn drop(&mut self) {
        if self.progress.is_abandoned() {
            (self.deliver)(WorkerMessage {
                generation: self.generation,
                output: None,
            });
        }
    }
}

/// Runs `call` on a thread of its own. Returns `None` when it takes longer than `limit`, or when no
/// thread can be started.
pub(super) fn call_in_time<Output: Send + 'static>(
    name: &str,
    limit: Duration,
    call: impl FnOnce() -> Output + Send + 'static,
) -> Option<Output> {
    let (sender, output) = mpsc::sync_channel(1);
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || sender.try_send(call()))
        .ok()?;
    output.recv_timeout(limit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    /// A worker whose thread answers each number with its double, and hangs at 0 until `released`
    /// closes.
    struct Doubler {
        worker: Worker<u32, u32, u32>,
        messages: Receiver<WorkerMessage<u32>>,
    }

    impl Doubler {
        fn new() -> Self {
            let (sender, messages) = mpsc::channel();
            Self {
                worker: Worker::new(
                    "test",
                    |_| LIMIT,
                    move |message| sender.send(message).is_ok(),
                ),
                messages,
            }
        }

        fn start(&mut self, began: mpsc::Sender<()>, released: Receiver<()>) {
            let run = move |thread: WorkerThread<u32, u32, u32>| {
                while let Ok(number) = thread.requests.recv() {
                    if !thread.progress.begin(number, Moment(1000)) {
                        return;
                    }
                    let _gone = began.send(());
                    if number == 0 {
                        let _closed = released.recv();
                    }
                    if !thread.progress.end() || !thread.deliver(number * 2) {
                        return;
                    }
                }
            };
            self.worker.start(run).unwrap();
        }

        fn receive(&mut self) -> Received<u32, u32> {
            let message = self.messages.recv().unwrap();
            self.worker.receive(message)
        }
    }

    #[test]
    fn an_idle_thread_is_not_abandoned() {
        let mut doubler = Doubler::new();
        assert!(!doubler.worker.send(1), "no thread runs");
        doubler.start(mpsc::channel().0, mpsc::channel().1);
        assert!(doubler.worker.send(4));
        assert_eq!(doubler.receive(), Received::Output(8));
        assert_eq!(doubler.worker.deadline(), None);
        assert_eq!(doubler.worker.abandon_overdue(Moment(1_000_000)), None);
    }

    #[test]
    fn a_thread_that_hangs_is_abandoned_at_its_deadline_and_comes_back_later() {
        let mut doubler = Doubler::new();
        let ((began, has_begun), (release, released)) = (mpsc::channel(), mpsc::channel());
        doubler.start(began, released);
        assert!(doubler.worker.send(0));
        has_begun.recv().unwrap();
        assert_eq!(doubler.worker.deadline(), Some(Moment(2000)));
        assert_eq!(doubler.worker.abandon_overdue(Moment(1999)), None);
        assert_eq!(
            doubler.worker.abandon_overdue(Moment(2000)),
            Some((0, Moment(1000)))
        );
        assert!(!doubler.worker.is_running() && !doubler.worker.send(1));
        doubler.start(mpsc::channel().0, mpsc::channel().1);
        assert!(doubler.worker.send(3));
        assert_eq!(doubler.receive(), Received::Output(6));
        drop(release);
        assert_eq!(
            doubler.receive(),
            Received::CameBack(0),
            "its output is not delivered"
        );
    }

    #[test]
    fn outputs_of_an_abandoned_thread_are_late() {
        let mut doubler = Doubler::new();
        doubler.start(mpsc::channel().0, mpsc::channel().1);
        assert!(doubler.worker.send(5));
        let message = doubler.messages.recv().unwrap();
        doubler.worker.pretend(9, Moment(0));
        doubler.worker.abandon_overdue(Moment(1000)).unwrap();
        assert_eq!(doubler.worker.receive(message), Received::Late);
    }

    #[test]
    fn too_many_abandoned_threads_exhaust_a_worker() {
        let mut doubler = Doubler::new();
        for task in 1..=8 {
            assert!(!doubler.worker.is_exhausted());
            doubler.worker.pretend(task, Moment(0));
            doubler.worker.abandon_overdue(Moment(1000)).unwrap();
        }
        assert!(doubler.worker.is_exhausted());
        let came_back = WorkerMessage {
            generation: 3,
            output: None,
        };
        assert_eq!(doubler.worker.receive(came_back), Received::CameBack(3));
        assert!(!doubler.worker.is_exhausted());
    }

    #[test]
    fn a_call_that_takes_too_long_has_no_result() {
        let (release, released) = mpsc::channel::<()>();
        assert_eq!(call_in_time("test", LIMIT * 60, || 7), Some(7));
        assert_eq!(
            call_in_time("test", Duration::from_millis(1), move || released
                .recv()
                .is_err()),
            None
        );
        drop(release);
    }
}
