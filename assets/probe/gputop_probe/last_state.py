"""Leaves the last state of this process for `gputop run --fail-on-leak`: see FORMAT.md.

The state is written again and again, because a process may be killed, and once more at its end,
also at `os._exit`, by which forked workers end.
"""

import _thread
import functools
import json
import os
import sys
import time

from . import probe as probes
from . import publish, test_steps
from .diagnosis import Diagnosis
from .files import OwnFile
from .ooms import write_file
from .state import VERSION
from .trouble import pass_on_if_foreign

# Where this variable is set, PyTorch frees each block at once, and lists none.
NO_CACHE = ("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING")
# Censuses may take one part in so many of the program's time: many more than otherwise, so that a
# loop of a second shows whether memory grows.
CENSUSES = 20
# Seconds until a container must have grown.
CONFIRM = 0.1
# Seconds that the end of the process waits for a write of the probe's thread.
PATIENCE = 0.5


class DenseDiagnosis(Diagnosis):
    """Takes censuses at each step, where that is cheap, and soon looks again at containers."""

    def _is_census_due(self, now):
        return now >= self._last_census + CENSUSES * self._cost

    def look(self, now):
        super().look(now)
        self._confirm_at = time.monotonic() + CONFIRM


class LastState:
    def __init__(self, probe, path):
        """`path`: the folder."""
        self.probe, self.path = probe, path
        self._peak = None
        # The diagnosis over the tests of pytest, or None.
        self.tests = None
        self._name = "%d-%d-%d.json" % (*publish.owner(), time.monotonic_ns())
        # Python forgets the path of the main module before functions of `atexit` run.
        self._main = getattr(sys.modules.get("__main__"), "__file__", None)
        self._lock = _thread.allocate_lock()
        # Likely leaks by cause and holders: (fields, steps when the diagnosis had it last).
        self._likely = {}
        self._possible = []
        # Likely leaks of loops in tests that have ended, and the number of steps then.
        self._of_ended_tests = {}
        self._steps_of_ended_tests = 0
        self._is_broken = False
        self._watch_exit()
        if not probes.has_no_gil() and test_steps.watch(probe.test_ended):
            self.tests = test_steps.TestSteps(probe)

    def _watch_exit(self):
        original = os._exit

        @functools.wraps(original)
        def exit_with_state(status):
            try:
                self.end()
            finally:
                original(status)

        os._exit = exit_with_state

    # In any thread.

    def note(self):
        self._guarded(self._note)

    def test_ended(self):
        self._guarded(self._test_ended)

    def end(self):
        """Writes the state at the end of the process."""
        # A forked child has the functions of its parent, and no probe of its own.
        if probes.active is self.probe:
            self.note()
            self.write(is_end=True)

    def _guarded(self, function):
        """Calls a function. After an error of it, the process counts as not judged."""
        try:
            function()
        except Exception as error:
            pass_on_if_foreign(error)
            self._is_broken = True
            self.probe.troubles.add_error("judging leaks", error)

    def _note(self):
        """Takes the leaks of the diagnosis. A likely leak stays one if no step follows, but not if
        steps go on without it: then something filled up, such as a replay buffer.
        """
        diagnosis, count = self.probe.diagnosis, self.probe.steps.count
        if diagnosis is None:
            return
        found = [leak for leak in diagnosis.leaks() if leak["sure"] != "bounded"]
        self._possible = [dict(leak, sure="maybe") for leak in found if not _is_likely(leak)]
        now = {_key(leak): (leak, count) for leak in found if _is_likely(leak)}
        doubtful = {_key(leak) for leak in self._possible}
        for key, (leak, seen) in self._likely.items():
            # Without steps, what grew may have been evaluation, which ends.
            if count == seen and _has_steps(leak) and key not in doubtful:
                now.setdefault(key, (leak, seen))
        self._likely = now

    def _test_ended(self):
        """The loops of a test have ended, so no later step can withdraw their leaks."""
        self._note()
        self._of_ended_tests.update(self._of_running_test())
        self._steps_of_ended_tests = self.probe.steps.count
        self.tests.test_ended()

    def _of_running_test(self):
        """The likely leaks; under pytest, only those of a loop in the test that runs. What grows
        from test to test, the diagnosis over tests judges.
        """
        began = self._steps_of_ended_tests
        return {
            key: (leak, seen)
            for key, (leak, seen) in self._likely.items()
            if self.tests is None or _has_steps(leak) and leak["oldest_step"] >= began
        }

    def write(self, is_end=False):
        """Writes the state. Never raises."""
        if not self._lock.acquire(True, PATIENCE):
            return
        try:
            content = json.dumps(self._build(is_end), separators=(",", ":")).encode()
            with OwnFile(self.path, os.O_RDONLY | os.O_DIRECTORY) as opened:
                write_file(opened.number, self._name, content)
        except Exception as error:
            self.probe.troubles.add_error("writing the last state", error)
        finally:
            self._lock.release()

    def _build(self, is_end):
        likely = {**self._of_ended_tests, **self._of_running_test()}
        found = [leak for leak, _ in likely.values()] + self._possible
        if self.tests is not None:
            known = [leak["held_by"] for leak in found]
            over_tests = self.tests.leaks_over_tests()
            found += [leak for leak in over_tests if leak["held_by"] not in known]
        state = identity()
        state.update(
            steps=self.probe.steps.count,
            peak_bytes=self._read_peak(),
            leaks=found,
            files=_files_of(found, self._main),
            is_end=is_end,
        )
        if self.tests is not None:
            state["tests"] = self.tests.count
        why = self._why_unjudged()
        if why is not None:
            state["unjudged"] = why
        return state

    def _read_peak(self):
        """The highest allocated bytes so far, of the device that has most; None if unknown."""
        try:
            for device in self.probe.levels:
                peak = self.probe.allocator.levels(device)[1]
                # The program may reset its peaks.
                self._peak = max(peak, self._peak or 0)
        except Exception as error:
            pass_on_if_foreign(error)
        return self._peak

    def _why_unjudged(self):
        if probes.has_no_gil():
            return "this Python runs without the global interpreter lock"
        variable = next((name for name in NO_CACHE if os.environ.get(name)), None)
        if variable is not None:
            return "%s is set: PyTorch lists no memory then" % variable
        is_broken = self._is_broken or self.probe.diagnosis is None
        is_broken = is_broken or self.probe.diagnosis.is_broken
        is_broken = is_broken or self.tests is not None and self.tests.is_broken
        # The program may have closed the memory files of the probe too often.
        if is_broken or probes.active is not self.probe:
            return "; ".join(self.probe.troubles.sentences) or "the probe has stopped"
        return None


def write_failure(path, why):
    """Writes that the probe could not start."""
    content = json.dumps(dict(identity(), unjudged=why)).encode()
    with OwnFile(path, os.O_RDONLY | os.O_DIRECTORY) as opened:
        write_file(opened.number, "%d-%d-failure.json" % publish.owner(), content)


def identity():
    """The fields of each last state that name the process."""
    pid, ticks = publish.owner()
    return {
        "version": VERSION,
        "pid": pid,
        "start_ticks": ticks,
        "program": _program(),
        "unix_time_seconds": time.time(),
    }


def _program():
    """The name of the program, without arguments, which may have secrets."""
    path = (getattr(sys, "argv", None) or [""])[0]
    name = os.path.basename(path)
    if name == "__main__.py":
        name = os.path.basename(os.path.dirname(path))
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker:
        return "pytest " + worker
    if name in ("", "-c"):
        name = "python -c"
    rank = os.environ.get("RANK")
    return "%s rank %s" % (name, rank) if rank else name


def _is_likely(leak):
    # Fragmentation does not grow: it is no leak.
    return leak["sure"] == "likely" and leak["cause"] != "fragmentation"


def _has_steps(leak):
    """Whether optimizers stepped while the leak grew."""
    return "bytes_per_step" in leak


def _key(leak):
    return (leak["cuda_device"], leak["cause"], tuple(leak["held_by"]))


def _files_of(leaks, main):
    """The paths of the files that leaks name without folders: {name: path}. `main` is that of the
    main module.
    """
    words = {
        word.rsplit(":", 1)[0]
        for leak in leaks
        for holder in [*leak["held_by"], *(leak.get("allocated_at") or {}).values()]
        for word in holder.split(" ")
        if ":" in word
    }
    found = {}
    paths = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    for path in [main, *paths] if words else ():
        name = os.path.basename(path) if isinstance(path, str) else None
        if name in words:
            # Two files of one name: neither is known.
            found[name] = path if found.get(name, path) == path else None
    return {name: os.path.abspath(path) for name, path in found.items() if path}
