"""Counts the tests of pytest as steps: memory that grows from the end of one test to the end of the
next one leaks, although no optimizer may step.
"""

import gc
import sys
import time

from . import leaks, ooms
from .diagnosis import Diagnosis

# A leak over tests ends when less than this part of its blocks is alive.
HELD = 0.5


class TestSteps(Diagnosis):
    """Takes a census at the end of each test only: within a test, its tensors are alive."""

    def __init__(self, probe):
        super().__init__(_ProbeOfTests(probe))
        # The other diagnosis writes the reports of out-of-memory errors.
        self.black_box.count = ooms.MOST
        # Leaks that were likely, and whose memory is held.
        self._held = []
        # The number of tests at the last garbage collection.
        self._collected_at = -leaks.SHORTEST

    @property
    def count(self):
        return self.probe.steps.count

    def test_ended(self):
        self._guarded(self._test_ended, time.monotonic())

    def _test_ended(self, now):
        self.probe.steps.count += 1
        self._next_test = 0.0
        self.take(self.count, now)
        if self._candidates:
            # A test has passed since the look that found them, in which a container grows.
            self._confirm()
        if self._is_pass_due(now):
            self.look(now)
        likely = [leak for leak in self._leaks if leak.fields["sure"] == "likely"]
        known = {leak.group for leak in self._held}
        if any(leak.group not in known for leak in likely):
            if self.count - self._collected_at < leaks.SHORTEST:
                likely = [leak for leak in likely if leak.group in known]
            else:
                # Tensors in reference cycles are no leak.
                self._collected_at = self.count
                gc.collect()
                self.take(self.count, now)
        groups = {leak.group for leak in likely}
        stopped = [leak for leak in self._held if leak.group not in groups]
        self._held = [leak for leak in likely + stopped if self._is_held(leak)]

    def _is_held(self, leak):
        alive = self.history.blocks
        held = [
            (leak.group[0], address) in alive and alive[leak.group[0], address].size == size
            for address, size in leak.blocks
        ]
        return sum(held) >= HELD * len(held)

    def leaks_over_tests(self):
        """The fields of the leaks."""
        found = [leak.fields for leak in self._held]
        found += [leak for leak in self.leaks() if leak["cause"] == "extended"]
        return [dict(leak, grows_over_tests=True) for leak in found]


class _ProbeOfTests:
    """The probe as a diagnosis sees it, with the tests as its steps."""

    def __init__(self, probe):
        self._probe = probe
        self.steps = _Steps()

    def __getattr__(self, name):
        return getattr(self._probe, name)


class _Steps:
    """The number of tests that have ended."""

    def __init__(self):
        self.count = 0
        self.ended_at = None


class _Plugin:
    """A plugin of pytest, which calls the methods by their names."""

    def __init__(self, test_ended):
        self._test_ended = test_ended

    def pytest_runtest_logfinish(self):
        self._test_ended()


def watch(test_ended):
    """Calls test_ended() after each test, if pytest runs in this process. Returns whether it
    does.
    """
    config = sys.modules.get("_pytest.config")
    kind = getattr(config, "PytestPluginManager", None)
    managers = [value for value in gc.get_objects() if type(value) is kind] if kind else []
    for manager in managers:
        manager.register(_Plugin(test_ended))
    return bool(managers)
