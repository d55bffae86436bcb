//! The thread that reads the driver. The main loop never waits for it.
//!
//! When a call is past its deadline, its thread is abandoned, its GPU or the driver is marked as
//! hung, and a new thread reads the other GPUs. A hung call is made again after a delay that
//! doubles, or as soon as the call returns.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use super::nvml::call_watch::{Call, CallSubject, CallWatch, Unresponsive};
use super::nvml::{HANDLE, NvmlReader, SharedInheritance, library};
use super::worker::{Received, Worker, WorkerMessage, WorkerThread};
use super::{AgentEvent, GpuReadings, GpuSource, PassRequest, Readings, clock, demo};
use crate::base::units::Moment;
use crate::protocol::agent_options::{AgentOptions, SimulatedMachine};
use crate::protocol::snapshot::{Cause, Driver, GpuUuid, Missing, Trouble};

/// A call that takes longer counts as hung.
const DEADLINE: Duration = Duration::from_secs(1);
/// The deadline of the call that starts the driver, which may load firmware.
const START_DEADLINE: Duration = Duration::from_secs(2);
/// How long a GPU counts as starting before it counts as hung. Without persistence mode, NVML
/// starts an unused GPU when its handle is requested, which takes "seconds" (NVIDIA's driver
/// persistence guide), and 3 s each on a host with eight A100 (Azure/AgentBaker#2829).
const GPU_START: Duration = Duration::from_secs(8);
/// The delay until a hung call is made again, at first and at most.
const RETRY_DELAY: [Duration; 2] = [Duration::from_secs(2), Duration::from_mins(1)];

pub(super) struct Sampler {
    options: AgentOptions,
    request: Arc<Mutex<PassRequest>>,
    shared: SharedInheritance,
    worker: Worker<(), Call, Box<Readings>>,
    /// The calls that hang, each with the delay before the next attempt.
    unresponsive: Vec<(Unresponsive, Duration)>,
}

impl Sampler {
    pub(super) fn spawn(
        options: &AgentOptions,
        last: Readings,
        events: mpsc::Sender<AgentEvent>,
    ) -> io::Result<Self> {
        let deliver = move |message| events.send(AgentEvent::Sampled(message)).is_ok();
        let mut sampler = Self {
            options: options.clone(),
            request: Arc::default(),
            shared: SharedInheritance::default(),
            worker: Worker::new("nvml", Call::limit, deliver),
            unresponsive: vec![],
        };
        sampler.start_thread(last)?;
        Ok(sampler)
    }

    fn start_thread(&mut self, last: Readings) -> io::Result<()> {
        let unresponsive = self
            .unresponsive
            .iter()
            .map(|(hung, _)| hung.clone())
            .collect();
        let (options, shared, request) = (
            self.options.clone(),
            self.shared.clone(),
            self.request.clone(),
        );
        self.worker.start(move |thread| {
            let mut source: Box<dyn GpuSource> = match options.demo {
                SimulatedMachine::None => Box::new(NvmlReader::new(
                    &options,
                    CallWatch::new(thread.progress.clone()),
                    shared,
                    last,
                    unresponsive,
                )),
                demo => Box::new(demo::Machine::start(demo, options.detail)),
            };
            run(&thread, &mut *source, &request);
        })
    }

    fn request(&self) -> MutexGuard<'_, PassRequest> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a pass now. With `reads_slow`, it also reads values that it otherwise reads seldom.
    pub(super) fn wake(&mut self, reads_slow: bool) {
        self.request().reads_slow |= reads_slow;
        // If a request already waits, its pass serves this request too.
        self.worker.send(());
    }

    pub(super) fn set_detail(&self, gpu: Option<GpuUuid>) {
        self.request().detail = gpu;
    }

    /// Takes a message of the current thread or of an abandoned one. Returns the readings of the
    /// current thread, if the message holds any.
    pub(super) fn receive(&mut self, message: WorkerMessage<Box<Readings>>) -> Option<Readings> {
        match self.worker.receive(message) {
            Received::Output(readings) => {
                self.forget_recovered(&readings);
                Some(*readings)
            }
            Received::Late => None,
            Received::CameBack(_) => {
                self.request().came_back = true;
                self.wake(false);
                None
            }
        }
    }

    /// Forgets the hung calls of GPUs that answer again, and of the driver when it does.
    fn forget_recovered(&mut self, readings: &Readings) {
        let is_silent =
            |trouble: &Option<Trouble>| trouble.as_ref().is_some_and(Trouble::is_silence);
        self.unresponsive
            .retain(|(hung, _)| match hung.call.subject {
                CallSubject::Driver => is_silent(&readings.driver.trouble),
                CallSubject::Gpu(index) => readings
                    .gpus
                    .iter()
                    .any(|gpu| gpu.facts.index == index && is_silent(&gpu.trouble)),
            });
    }

    pub(super) fn deadline(&self) -> Option<Moment> {
        self.worker.deadline()
    }

    /// Abandons the thread when its call is past its deadline, marks the GPU or driver of the call
    /// in `last`, and starts another thread. Returns whether it did.
    pub(super) fn check(&mut self, now: Moment, last: &mut Readings) -> io::Result<bool> {
        let Some((call, called)) = self.worker.abandon_overdue(now) else {
            return Ok(false);
        };
        let before = self.unresponsive.iter().position(|(hung, _)| {
            hung.call.subject == call.subject
                && (call.subject != CallSubject::Driver || hung.call == call)
        });
        let was_hung =
            before.is_some_and(|place| self.unresponsive[place].0.trouble.cause == Cause::Hung);
        let (since, delay) = match before.map(|place| self.unresponsive.swap_remove(place)) {
            Some((hung, delay)) => (hung.trouble.since, (delay * 2).min(RETRY_DELAY[1])),
            None => (called, RETRY_DELAY[0]),
        };
        let may_start = !was_hung && !has_answered(last, &call);
        let trouble = silence(&call, since, now, may_start);
        // A second start of the driver beside one that hangs would hang too.
        let is_useless = self.worker.is_exhausted() || call.function == library::INIT;
        let again = (!is_useless).then(|| now.after(delay));
        mark(last, &call, &trouble, now);
        self.unresponsive.push((
            Unresponsive {
                call,
                again,
                trouble,
            },
            delay,
        ));
        self.start_thread(last.clone())?;
        self.wake(false);
        Ok(true)
    }
}

impl Call {
    fn limit(&self) -> Duration {
        if self.function == library::INIT {
            START_DEADLINE
        } else {
            DEADLINE
        }
    }
}

/// `may_start`: the GPU has not answered before, so the driver may be starting it.
fn silence(call: &Call, since: Moment, now: Moment, may_start: bool) -> Trouble {
    let starts = may_start && call.function == HANDLE && now.since(since) < GPU_START;
    let (subject, words) = match call.subject {
        CallSubject::Driver => ("the NVIDIA driver".to_owned(), "-e xid -e nvrm"),
        CallSubject::Gpu(index) => (format!("GPU {index}"), "xid"),
    };
    let (cause, rest) = if starts {
        let rest =
            " yet; without persistence mode the driver starts a GPU then, which takes seconds"
                .to_owned();
        (Cause::Starting, rest)
    } else {
        (
            Cause::Hung,
            format!(
                "; it is asked again from time to time, and `dmesg | grep -i {words}` may say why"
            ),
        )
    };
    let sentence = format!("{subject} has not answered {}{rest}", call.function);
    Trouble {
        cause,
        sentence: sentence.into(),
        call: Some(call.function.into()),
        since,
    }
}

/// Whether the GPU that the call is about was read before.
fn has_answered(last: &Readings, call: &Call) -> bool {
    let is_subject = |gpu: &GpuReadings| call.subject == CallSubject::Gpu(gpu.facts.index);
    last.gpus
        .iter()
        .any(|gpu| is_subject(gpu) && gpu.load.memory_used.is_ok())
}

/// Sets the trouble of the GPU or driver that the call is about. The readings stay as they are, but
/// which processes use a hung GPU is unknown from now on.
fn mark(last: &mut Readings, call: &Call, trouble: &Trouble, now: Moment) {
    let forget_processes = |gpu: &mut GpuReadings| {
        if trouble.cause == Cause::Hung {
            gpu.processes_missing = Some(Missing::Failed);
        }
    };
    let CallSubject::Gpu(index) = call.subject else {
        last.gpus.iter_mut().for_each(forget_processes);
        last.driver.trouble = Some(trouble.clone());
        return;
    };
    // A lost GPU may have had this index before.
    let is_subject = |gpu: &GpuReadings| {
        gpu.facts.index == index
            && gpu
                .trouble
                .as_ref()
                .is_none_or(|trouble| trouble.cause != Cause::Lost)
    };
    if !last.gpus.iter().any(is_subject) {
        let place = last.gpus.partition_point(|gpu| gpu.facts.index < index);
        last.gpus
            .insert(place, GpuReadings::unknown(index, now, Missing::NotYet));
    }
    for gpu in last.gpus.iter_mut().filter(|gpu| is_subject(gpu)) {
        gpu.trouble = Some(trouble.clone());
        forget_processes(gpu);
    }
    // The driver answers now: only a GPU does not.
    if last
        .driver
        .trouble
        .as_ref()
        .is_some_and(|trouble| trouble.cause == Cause::Starting)
    {
        last.driver.trouble = None;
    }
}

pub(super) fn nothing_yet(now: Moment) -> Readings {
    let sentence = "the NVIDIA driver is being asked for the first time; without persistence mode it starts each GPU \
                    then, which takes seconds";
    let trouble = Trouble {
        cause: Cause::Starting,
        sentence: sentence.into(),
        call: None,
        since: now,
    };
    Readings {
        driver: Driver {
            version: None,
            cuda_version: None,
            trouble: Some(trouble),
            failures: vec![],
        },
        gpus: vec![],
        simulation: None,
    }
}

fn run(
    thread: &WorkerThread<(), Call, Box<Readings>>,
    source: &mut dyn GpuSource,
    request: &Mutex<PassRequest>,
) {
    while thread.requests.recv().is_ok() {
        let now = clock::now();
        if let Some(readings) = source.first_stage(now)
            && !thread.deliver(Box::new(readings))
        {
            return;
        }
        let request = {
            let mut request = request.lock().unwrap_or_else(PoisonError::into_inner);
            let next = PassRequest {
                detail: request.detail.clone(),
                ..PassRequest::default()
            };
            std::mem::replace(&mut *request, next)
        };
        if !thread.deliver(Box::new(source.pass(now, request))) {
            return;
        }
        source.retry(clock::now());
    }
}

#[cfg(test)]
mod tests {
    use super::super::worker::MOST_ABANDONED;
    use super::*;
    use crate::base::units::Bytes;

    /// Returns a sampler that finds no driver, readings of two GPUs at 7 ms, and the sampler's
    /// events.
    fn two_gpus() -> (Sampler, Readings, mpsc::Receiver<AgentEvent>) {
        let options = AgentOptions {
            interval: Duration::from_secs(1),
            nvml_lib: Some("/nowhere/libnvidia-ml.so.1".into()),
            demo: SimulatedMachine::None,
            readonly: false,
            detail: false,
            only: Vec::new(),
            shares_lines: false,
        };
        let mut readings = nothing_yet(Moment(7));
        for index in 0..2 {
            let mut gpu = GpuReadings::unknown(index, Moment(7), Missing::NotYet);
            gpu.load.memory_used = Ok(Bytes(1));
            readings.gpus.push(gpu);
        }
        let (events, received) = mpsc::channel();
        (
            Sampler::spawn(&options, readings.clone(), events).unwrap(),
            readings,
            received,
        )
    }

    fn hang(sampler: &mut Sampler, function: &'static str, subject: CallSubject, since: u64) {
        sampler
            .worker
            .pretend(Call { function, subject }, Moment(since));
    }

    #[test]
    fn a_gpu_that_hangs_keeps_its_readings_and_says_at_which_call() {
        let (mut sampler, mut readings, _received) = two_gpus();
        hang(
            &mut sampler,
            "nvmlDeviceGetPowerUsage",
            CallSubject::Gpu(1),
            10_000,
        );
        assert!(!sampler.check(Moment(10_999), &mut readings).unwrap());
        assert!(sampler.check(Moment(11_000), &mut readings).unwrap());
        let [well, hung] = readings.gpus.as_slice() else {
            panic!("{readings:?}")
        };
        assert_eq!(
            (&well.trouble, hung.load.memory_used, hung.load.at),
            (&None, Ok(Bytes(1)), Moment(7))
        );
        let trouble = hung.trouble.as_ref().unwrap();
        assert_eq!(
            (trouble.cause, trouble.since),
            (Cause::Hung, Moment(10_000))
        );
        assert_eq!(
            trouble.call.as_ref().map(crate::base::text::Text::as_str),
            Some("nvmlDeviceGetPowerUsage")
        );
    }

    #[test]
    fn a_gpu_that_the_driver_starts_is_starting_for_a_while_and_the_others_go_on() {
        let (mut sampler, mut readings, _received) = two_gpus();
        readings.gpus[0].load.memory_used = Err(Missing::NotYet);
        let mut causes = vec![];
        for since in [20_000, 23_000, 30_000] {
            hang(&mut sampler, HANDLE, CallSubject::Gpu(0), since);
            assert!(sampler.check(Moment(since + 1000), &mut readings).unwrap());
            sampler.forget_recovered(&readings);
            causes.push(
                readings.gpus[0]
                    .trouble
                    .as_ref()
                    .map(|trouble| (trouble.cause, trouble.since)),
            );
            assert_eq!(readings.gpus[1].trouble, None);
        }
        let since_first = |cause| Some((cause, Moment(20_000)));
        assert_eq!(
            causes,
            [
                since_first(Cause::Starting),
                since_first(Cause::Starting),
                since_first(Cause::Hung)
            ]
        );
    }

    #[test]
    fn a_gpu_that_was_read_before_is_hung_and_not_starting() {
        let (mut sampler, mut readings, _received) = two_gpus();
        hang(&mut sampler, HANDLE, CallSubject::Gpu(0), 20_000);
        assert!(sampler.check(Moment(21_000), &mut readings).unwrap());
        assert_eq!(
            readings.gpus[0]
                .trouble
                .as_ref()
                .map(|trouble| trouble.cause),
            Some(Cause::Hung)
        );
    }

    #[test]
    fn a_gpu_that_hangs_again_is_asked_after_a_longer_delay_each_time() {
        let (mut sampler, mut readings, received) = two_gpus();
        let mut again = vec![];
        for round in 0..MOST_ABANDONED as u64 {
            let since = 100_000 * round;
            hang(
                &mut sampler,
                "nvmlDeviceGetPowerUsage",
                CallSubject::Gpu(0),
                since,
            );
            assert!(sampler.check(Moment(since + 1000), &mut readings).unwrap());
            // The new thread finds no driver, and makes no further call.
            while !matches!(received.recv().unwrap(), AgentEvent::Sampled(..)) {}
            again.push(
                sampler.unresponsive[0]
                    .0
                    .again
                    .map(|again| (again.0 - since - 1000) / 1000),
            );
        }
        // Once eight threads hang, the call is not made again.
        assert_eq!(
            again,
            [
                Some(2),
                Some(4),
                Some(8),
                Some(16),
                Some(32),
                Some(60),
                Some(60),
                None
            ]
        );
        assert_eq!(
            readings.gpus[0]
                .trouble
                .as_ref()
                .map(|trouble| trouble.since),
            Some(Moment(0))
        );
    }

    #[test]
    fn a_start_that_hangs_is_the_drivers_trouble_and_is_not_tried_beside_itself() {
        let (mut sampler, mut readings, _received) = two_gpus();
        hang(&mut sampler, library::INIT, CallSubject::Driver, 0);
        assert!(!sampler.check(Moment(1999), &mut readings).unwrap());
        assert!(sampler.check(Moment(2000), &mut readings).unwrap());
        assert_eq!(
            readings.driver.trouble.map(|trouble| trouble.cause),
            Some(Cause::Hung)
        );
        assert_eq!(sampler.unresponsive[0].0.again, None);
    }
}
