"""The probe of one process: takes readings, answers requests, publishes.

Tensors may be looked at only in a thread of the program: at the end of a step, or between two
bytecodes of the main thread. `Probe.in_program` gets a function there. The probe's own thread looks
for requests and publishes.
"""

import _thread
import atexit
import os
import signal
import time

from . import frames, steps
from .allocator import Allocator
from .authors import is_library
from .changes import Changes
from .labels import Labels
from .ledger import NAME, Ledger, Mark, groups_of, lines_of
from .next_event import NextEvent
from .objects import TensorReader, without_collections
from .publish import REQUESTS, STATE, Memfd
from .readings import FIRST_STEPS, History, Reading, sum_up
from .requests import Requests
from .state import encode
from .trouble import Troubles, pass_on_if_foreign

# The probe of this process, or None.
active = None

# Seconds between two looks for requests, between two readings, and at most without a publication.
LOOK, INTERVAL, QUIET = 0.25, 1.0, 2.0
# Readings, and scans of all objects, may each take one part in so many of the program's time.
SHARE = 700
# Seconds after which the main thread is interrupted between two bytecodes, because no step ended,
# and after which the probe does without.
PATIENCE, GIVE_UP = 1.0, 5.0
# Seconds until objects are scanned again although nothing seems to have changed.
RESCAN = 30.0
# Scans of memory that was not looked at may take more than their share: so many seconds in all,
# which come back with time, and one part in so many.
BURST, BURST_SHARE = 2.0, 10
# Seconds until the next reading when much memory was not looked at.
SOON = 0.3
# Memfds that the program closed are replaced so often. Each one that it closed stays mapped until
# the process ends.
MOST_OPENED = 16
NOT_REACHED = "the program runs long outside of Python: try again"


class Probe:
    def __init__(self, torch):
        self.torch = torch
        self.pid = os.getpid()
        # Whether the program ran before the probe did.
        self.is_attached = False
        self.troubles = Troubles()
        self.requests = Requests()
        self.steps = steps.Steps()
        self.reader = TensorReader(torch)
        self.allocator = Allocator(torch)
        self.labels = Labels(torch, self.reader, self.steps)
        self.history = History()
        self.changes = Changes()
        self.ledger = Ledger(time.monotonic())
        # Looks for leaks. None: it could not start.
        self.diagnosis = None
        # What `gputop run --fail-on-leak` reads, or None.
        self.last_state = None
        # For tests: shorter than one second, all goes faster.
        self.interval = _seconds_from_environment("GPUTOP_PROBE_INTERVAL", INTERVAL)
        self.share = SHARE * min(1.0, self.interval)
        # The moment of the last scan, and the bytes that no tensor of Python held then.
        self._hidden_at_scan = None
        # The UUID of each device, by its index.
        self.uuids = {}
        # By the index of a device: its allocated bytes after the last step, its highest allocated
        # bytes, the step that raised those last, and the allocated bytes soon after that step.
        self.levels = {}
        # Why no tensors are looked at now, as a sentence; None: they are.
        self.waits = None
        # The last readings: any, at the end of a step, and with groups.
        self.reading = self.step_end = self.grouped = None
        self.blocks_and_labels = None
        # Work that waits for a thread of the program: (moment, function, give_up).
        self._tasks = []
        self._wanted_at = self._pending_since = None
        # Seconds that scans of new memory may take now, and when that was.
        self._burst = (BURST, time.monotonic())
        self._next_levels = self._next_reading = self._next_scan = self._last_scan = 0.0
        self._readings = self._opened = 0
        self._is_busy = self._is_stopping = False
        # "step_end", while a step ends.
        self._moment = "any"

    # ---- in the thread of the program that starts CUDA ----

    def start(self, waiting):
        """`waiting` is the memfd of an attached probe, in which it said that it waits for CUDA."""
        self.is_attached = waiting is not None
        self.state = waiting or Memfd(*STATE)
        self.inbox = Memfd(*REQUESTS)
        self._read_uuids()
        if has_no_gil():
            self.troubles.add(
                "this Python runs without the global interpreter lock: only totals are read"
            )
        else:
            try:
                steps.watch(self.torch, self._step_ended)
            except Exception as error:
                pass_on_if_foreign(error)
                self.troubles.add_error("watching optimizers", error)
        self.requests.on("tensors", self._answer_tensors)
        self.requests.on("mark", self._answer_mark)
        self.requests.on("unmark", self._answer_unmark)
        self.requests.on("compare", self._answer_compare)
        self._start_diagnosis()
        folder = os.environ.get("GPUTOP_LAST_STATES")
        if folder:
            from .last_state import LastState

            self.last_state = LastState(self, folder)
            self.last_state.write()
        self._pending_call = _PendingCall(self)
        self._next_event = NextEvent(self.interrupt)
        self._wake = _thread.allocate_lock()
        self._wake.acquire()
        self._done = _thread.allocate_lock()
        self._done.acquire()
        # Not a threading.Thread: programs count those, or wait for them.
        _thread.start_new_thread(self._run, ())
        atexit.register(self._stop)

    def _read_uuids(self):
        try:
            count = self.torch.cuda.device_count()
            self.levels = {index: (None, 0, 0, None) for index in range(count)}
            for index in range(count):
                uuid = getattr(self.torch.cuda.get_device_properties(index), "uuid", None)
                if uuid is not None:
                    self.uuids[index] = "GPU-%s" % uuid
        except Exception as error:
            pass_on_if_foreign(error)
            self.troubles.add_error("reading the UUIDs of the GPUs", error)

    def _start_diagnosis(self):
        try:
            if os.environ.get("GPUTOP_LAST_STATES"):
                from .last_state import DenseDiagnosis as Diagnosis
            else:
                from .diagnosis import Diagnosis

            self.diagnosis = diagnosis = Diagnosis(self)
            self.requests.on("holders", diagnosis.answer_holders)
            self.requests.on("record", diagnosis.recorder.answer)
            self.requests.on("peak", diagnosis.recorder.answer)
            self.requests.on("modules", diagnosis.recorder.answer)
            self.requests.on("snapshot", diagnosis.answer_snapshot)
        except Exception as error:
            pass_on_if_foreign(error)
            self.troubles.add_error("starting the diagnosis", error)

    def _stop(self):
        """At exit: a thread that needs the interpreter must not outlive it."""
        self._is_stopping = True
        self._next_event.switch_off()
        if active is self:
            try:
                self._wake.release()
            except RuntimeError:
                pass
            self._done.acquire(True, 0.5)
            if self.last_state is not None:
                self.last_state.end()

    # ---- in any thread ----

    def in_program(self, function, give_up=None):
        """Calls function() in a thread of the program, where tensors may be looked at. Calls
        give_up() in the probe's thread if the program does not get there.
        """
        self._tasks.append((time.monotonic(), function, give_up))

    # ---- in a thread of the program ----

    def _step_ended(self, optimizer):
        if active is not self or self._is_busy:
            return
        self._is_busy = True
        try:
            if self.steps.note(optimizer):
                now = time.monotonic()
                if self.diagnosis is not None:
                    self.diagnosis.after_step(self.steps.count)
                if now >= self._next_levels:
                    self._read_levels(True)
                    # One slow reading does not make the next ones old.
                    spent = time.monotonic() - now
                    self._next_levels = now + min(self.share * spent, self.interval)
                if self._wanted_at is None and self.steps.count <= FIRST_STEPS:
                    self._wanted_at = now
                if self._wanted_at is not None or self._tasks:
                    self._work("step_end")
        except Exception as error:
            self._fail("the end of a step", error)
        finally:
            self._is_busy = False

    def test_ended(self):
        """Runs at the end of each test of pytest."""
        if active is not self or self._is_busy:
            return
        self._is_busy = True
        try:
            self.last_state.test_ended()
        finally:
            self._is_busy = False

    def interrupt(self):
        """Runs between two bytecodes of the main thread, or at an event of another thread."""
        self._pending_since = None
        self._next_event.switch_off()
        if active is not self or self._is_busy:
            return
        self._is_busy = True
        try:
            if self._wanted_at is not None or self._tasks:
                self._work("any")
        except Exception as error:
            self._fail("a reading", error)
        finally:
            self._is_busy = False

    def _work(self, moment):
        self._moment = moment
        if self._wanted_at is not None:
            self.read()
        while self._tasks:
            _, function, _ = self._tasks.pop(0)
            function()

    def read(self, scan=False, with_frames=False):
        """Takes a reading with tensors; `scan` looks at all objects of the process. Call it in a
        thread of the program only. `with_frames` keeps the recorded frames of blocks.
        """
        moment, self.waits = self._moment, None
        began = time.monotonic()
        self._readings += 1
        count = self.steps.count
        if moment == "step_end" and self.step_end is None:
            # From now on, the history counts steps instead of readings.
            self.history = History()
        scan = scan or moment == "step_end" and count <= FIRST_STEPS
        tick = count or self._readings
        scan = scan or self._wants_scan(began)
        with without_collections():
            return self._read(scan, with_frames, moment, began, tick)

    def _read(self, scan, with_frames, moment, began, tick):
        count = self.steps.count
        blocks = self.allocator.read(with_frames)
        labels = (self.labels.scan if scan else self.labels.light)(blocks, _thread.get_ident())
        if moment == "step_end" or not count:
            self.history.note(blocks, tick)
            if scan:
                self.history.find_libraries(blocks, labels, tick, bool(count), self.is_attached)
        reading = Reading(count or None, moment)
        reading.is_scan, reading.has_scan = scan, scan or self._hidden_at_scan is not None
        sum_up(reading, blocks, labels, self.history, True)
        self.blocks_and_labels = (blocks, labels)
        self.reading = self.grouped = reading
        if moment == "step_end":
            self.step_end = reading
        ended = time.monotonic()
        self._wanted_at = None
        self._next_reading = ended + self.interval
        if scan:
            self._hidden_at_scan, self._last_scan = (moment, reading.hidden), ended
            self._burst = (self._burst_left(ended) - (ended - began), ended)
            self._next_scan = ended + self.share * (ended - began)
        else:
            self._next_reading = ended + max(self.interval, self.share * (ended - began))
            if self._has_grown(reading, 10) and self._burst_left(ended) > 0:
                self._next_reading = ended + min(SOON, self.interval)
        if self.diagnosis is not None:
            self.diagnosis.after_reading()
        return reading

    def _wants_scan(self, now):
        if now >= self._next_scan:
            # What the last scan found stays labelled. Growth of the rest means new tensors or a
            # longer graph.
            is_old = self._hidden_at_scan is None or now - self._last_scan > RESCAN
            return is_old or self._has_grown(self.grouped, 1000)
        cost = (self._next_scan - self._last_scan) / self.share
        return (
            self._has_grown(self.grouped, 10)
            and self._burst_left(now) > 0
            and now - self._last_scan >= BURST_SHARE * cost
        )

    def _has_grown(self, reading, parts):
        """Whether the memory that no tensor holds grew since the last scan by one part in so many
        of all memory.
        """
        if self._hidden_at_scan is None or reading is None:
            return False
        moment, hidden = self._hidden_at_scan
        allocated = sum(device.allocated for device in reading.devices.values())
        return reading.moment == moment and reading.hidden > hidden + max(
            1 << 16, allocated // parts
        )

    def _burst_left(self, now):
        left, at = self._burst
        return min(BURST, left + (now - at) / self.share)

    def _read_levels(self, is_floor):
        for index, (floor, highest, step, base) in list(self.levels.items()):
            current, peak = self.allocator.levels(index)
            if peak != highest and step != self.steps.count:
                step, base = self.steps.count, None
            if is_floor and base is None:
                base = current
            self.levels[index] = (current if is_floor else floor, peak, step, base)

    def mark(self, name, at, since):
        """Called by the program, in any thread. Returns the mark; None if it could not be set."""
        found = []
        if has_no_gil():
            self.ledger.add(self._mark_of_totals(name, at), since)
            return self.ledger.marks[-1]
        self._at_once("a mark", lambda: found.append(self._set_mark(name, at, since)))
        if not found:
            self.troubles.add("a mark is missing: another thread was in the probe")
        return found[0] if found else None

    def _set_mark(self, name, at, since):
        began = time.thread_time()
        has_groups, is_first = self.ledger.wants_groups(time.monotonic(), since)
        if has_groups:
            found = self._mark_of_tensors(name, at)
            self.changes.mark(name, self.reading)
            self.ledger.spend(time.thread_time() - began)
        else:
            found = self._mark_of_totals(name, at)
        found.is_first = is_first
        self.ledger.add(found, since)
        return found

    def _mark_of_tensors(self, name, at):
        from .lines import line_of

        reading = self.read(scan=True, with_frames=True)
        blocks, labels = self.blocks_and_labels
        allocated = {index: device.allocated for index, device in reading.devices.items()}
        lines = lines_of(blocks, labels, self.history.libraries, line_of)
        blocks.frames = []
        return Mark(name, reading.step, reading.time, at, allocated, groups_of(reading), lines)

    def _mark_of_totals(self, name, at):
        allocated = {index: self.allocator.levels(index)[0] for index in self.levels}
        return Mark(name, self.steps.count or None, time.time(), at, allocated)

    def read_all(self):
        """Reads all tensors now. Called where the memory ran out, by any thread of the program."""
        self._at_once("a reading", lambda: self.read(scan=True))

    def _at_once(self, doing, function):
        """Calls function() in the thread of the caller, unless the probe is at work."""
        if self._is_busy or has_no_gil():
            return
        self._is_busy, self._moment = True, "any"
        try:
            function()
        except Exception as error:
            self._fail(doing, error)
        finally:
            self._is_busy = False

    def _fail(self, doing, error):
        """An error of the probe ends its readings. An error of the program's signal handlers is
        none of the probe.
        """
        pass_on_if_foreign(error)
        self._wanted_at = None
        self._next_reading = self._next_scan = float("inf")
        self.troubles.add_error(doing, error)

    # ---- in the probe's thread ----

    def _run(self):
        try:
            # Signals are for the threads of the program.
            kept = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}
            signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.valid_signals()) - kept)
            published = 0.0
            while not self._is_stopping and active is self:
                try:
                    published = self._turn(published)
                except Exception as error:
                    self.troubles.add_error("publishing", error)
                    published = time.monotonic()
                if self._wake.acquire(True, min(LOOK, self.interval)):
                    break
        finally:
            self._done.release()

    def _turn(self, published):
        request = self.inbox.read_new()
        answer = self.requests.answer
        if request is not None:
            self.requests.handle(request)
        now = time.monotonic()
        if self.diagnosis is not None and not has_no_gil():
            self.diagnosis.turn(now)
        if self.last_state is not None:
            self.last_state.note()
        self._plan(now)
        leaks = self._likely_leaks()
        is_new = (
            self.requests.answer is not answer
            or self._published_reading is not self.reading
            or self._published_leaks != leaks
        )
        if is_new or now - published >= QUIET:
            self._read_levels(False)
            self._open_again()
            self._published_reading, self._published_leaks = self.reading, leaks
            self.state.write(encode(self, self.state.room()))
            if self.last_state is not None:
                self.last_state.write()
            return now
        return published

    _published_reading, _published_leaks = None, []

    def _likely_leaks(self):
        """The holders of the leaks that are likely: a new one is published at once."""
        published = self.diagnosis.published if self.diagnosis is not None else {}
        return [leak["held_by"] for leak in published.get("leaks", ()) if leak["sure"] == "likely"]

    def _open_again(self):
        """Makes the memfds that the program has closed. The last ones only say that the probe
        stops.
        """
        global active
        is_state_open, is_inbox_open = self.state.is_open(), self.inbox.is_open()
        if is_state_open and is_inbox_open:
            return
        if not is_state_open:
            self.state = Memfd(*STATE)
        if not is_inbox_open:
            self.inbox = Memfd(*REQUESTS)
        self._opened += 1
        if self._opened > MOST_OPENED:
            self.troubles.add_first(
                "the program closed the probe's memory files %d times, so the probe has stopped"
                % self._opened
            )
            active = None

    def _plan(self, now):
        """Asks the program's threads for a reading when it is time."""
        if has_no_gil():
            return self._read_without_tensors(now)
        if self._wanted_at is None and now >= self._next_reading:
            self._wanted_at = now
        waiting = [began for began, _, _ in list(self._tasks)]
        if self._wanted_at is not None:
            waiting.append(self._wanted_at)
        if not waiting:
            return
        waited = now - min(waiting)
        mean = self.steps.seconds()
        is_stepping = self.steps.ended_at is not None and now - self.steps.ended_at < 3 * (
            mean or 0
        )
        if (
            waited > PATIENCE
            and not (is_stepping and waited < GIVE_UP)
            and self._pending_since is None
        ):
            self._pending_since = now
            self._pending_call.add()
        if (
            self._pending_since is not None
            and now - self._pending_since > PATIENCE
            and now >= self._next_reading
        ):
            # The main thread runs no Python: another thread of the program may.
            is_asked = self._next_event.is_on()
            if not self._next_event.switch_on() or is_asked:
                self._read_without_tensors(now)
        while self._tasks and now - self._tasks[0][0] > 2 * GIVE_UP:
            _, _, give_up = self._tasks.pop(0)
            if give_up is not None:
                give_up()

    def _read_without_tensors(self, now):
        """The program runs long in C code. Its tensors are left alone; blocks keep the labels
        that they had.
        """
        if now < self._next_reading:
            return
        place = frames.place_of_main(is_library)
        if place and not has_no_gil():
            self.waits = (
                "the main thread runs no Python, in %s: until it does, tensors are not looked at"
                % place
            )
        with without_collections():
            blocks = self.allocator.read()
        reading = Reading(self.steps.count or None, "any")
        labels = {}
        if self.blocks_and_labels is not None:
            old, known = self.blocks_and_labels
            for place, label in known.items():
                found = blocks.place.get(old.address[place])
                if (
                    label.category != "gradients"
                    and found is not None
                    and blocks.size[found] == old.size[place]
                ):
                    labels[found] = label
        sum_up(reading, blocks, labels, self.history, False)
        if self.blocks_and_labels is None and self.steps.count:
            for device in reading.devices.values():
                device.categories = None
        self.reading = reading
        ended = time.monotonic()
        self._next_reading = ended + max(self.interval, self.share * (ended - now))

    def _answer_tensors(self, request):
        def read():
            self.read(scan=True)
            request.answer()

        self.in_program(read, lambda: request.fail(NOT_REACHED))

    def _answer_mark(self, request):
        def mark():
            name = str(request.arguments.get("name") or "mark")[:NAME]
            self.ledger.add(self._mark_of_tensors(name, None))
            self.changes.mark(name, self.reading)
            request.answer()

        self.in_program(mark, lambda: request.fail(NOT_REACHED))

    def _answer_unmark(self, request):
        self.changes.unmark()
        request.answer()

    def _answer_compare(self, request):
        since, until = (request.arguments.get(name) for name in ("since", "until"))

        def answer(end):
            try:
                request.answer(compared=self.ledger.answer(since, end))
            except LookupError as error:
                request.fail(str(error.args[0]))

        if until is not None:
            answer(until)
        else:
            self.in_program(
                lambda: answer(self._mark_of_tensors("now", None)),
                lambda: request.fail(NOT_REACHED),
            )


class _PendingCall:
    """Makes the main thread call `Probe.interrupt` between two bytecodes.

    CPython's pending calls are C functions: int function(void *). `PyObject_IsTrue` is one. It
    calls `__bool__` of the object, and passes on exceptions, which may come from signal handlers of
    the program.
    """

    def __init__(self, probe):
        self.probe = probe
        self.function = None

    def __bool__(self):
        self.probe.interrupt()
        return False

    def add(self):
        import ctypes

        if self.function is None:
            self.function = ctypes.cast(ctypes.pythonapi.PyObject_IsTrue, ctypes.c_void_p)
        # Returns -1 if the queue is full: `Probe._plan` goes on without.
        ctypes.pythonapi.Py_AddPendingCall(self.function, ctypes.py_object(self))


def has_no_gil():
    import sys

    return not getattr(sys, "_is_gil_enabled", lambda: True)()


def _seconds_from_environment(name, default):
    try:
        return max(0.01, float(os.environ[name]))
    except (KeyError, ValueError):
        return default
