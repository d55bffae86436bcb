"""Tests of the last state: which leaks of the diagnosis stay until the end of the process."""

import json
import os
import sys
import tempfile
import types
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../assets/probe"))

from gputop_probe import last_state, probe, test_steps  # noqa: E402

LEAK = {
    "cuda_device": 0,
    "cause": "kept_outputs",
    "held_by": ["list outputs, train.py:4 in main"],
    "sure": "likely",
    "bytes_per_step": 512,
    "oldest_step": 3,
}
WITHOUT_STEPS = {name: LEAK[name] for name in ("cuda_device", "cause", "held_by", "sure")}


class LastStateTest(unittest.TestCase):
    def setUp(self):
        self.exit = os._exit
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.diagnosis = types.SimpleNamespace(found=[], is_broken=False)
        self.diagnosis.leaks = lambda: [dict(leak) for leak in self.diagnosis.found]
        self.steps = types.SimpleNamespace(count=20)
        self.probe = types.SimpleNamespace(
            diagnosis=self.diagnosis,
            steps=self.steps,
            levels={},
            allocator=None,
            troubles=types.SimpleNamespace(sentences=[], add_error=self.fail),
            test_ended=None,
        )
        probe.active = self.probe
        self.state = last_state.LastState(self.probe, self.folder)

    def tearDown(self):
        probe.active = None
        os._exit = self.exit

    def note(self, step, *found):
        self.steps.count, self.diagnosis.found = step, list(found)
        self.state.note()

    def written(self):
        self.state.end()
        (name,) = os.listdir(self.folder)
        with open(os.path.join(self.folder, name)) as file:
            return json.load(file)

    def sure(self):
        return [leak["sure"] for leak in self.written()["leaks"]]

    def test_a_leak_stays_after_the_loop_has_ended(self):
        self.note(100, LEAK)
        self.note(100)
        self.note(100)
        self.assertEqual(self.sure(), ["likely"])

    def test_a_leak_goes_when_steps_go_on_without_it(self):
        self.note(100, LEAK)
        self.note(101)
        self.assertEqual(self.sure(), [])

    def test_a_leak_without_steps_goes_when_it_has_stopped(self):
        self.note(100, WITHOUT_STEPS)
        self.assertEqual(self.sure(), ["likely"])
        self.note(100)
        self.assertEqual(self.sure(), [])

    def test_fragmentation_and_possible_leaks_do_not_count(self):
        self.note(100, dict(LEAK, cause="fragmentation"), dict(LEAK, sure="maybe"))
        self.assertEqual(self.sure(), ["maybe", "maybe"])

    def test_a_leak_of_a_loop_in_a_test_stays_although_steps_of_later_tests_follow(self):
        self.state.tests = tests = types.SimpleNamespace(count=1, is_broken=False)
        tests.test_ended, tests.leaks_over_tests = (lambda: None), (lambda: [])
        # It began before the first test ended, so it is one over tests.
        self.note(50, LEAK)
        self.state.test_ended()
        self.note(200, dict(LEAK, held_by=["global"], oldest_step=10), dict(LEAK, oldest_step=60))
        self.state.test_ended()
        self.note(300)
        found = [leak["held_by"] for leak in self.written()["leaks"]]
        self.assertEqual(found, [LEAK["held_by"]])
        self.note(300, WITHOUT_STEPS, dict(LEAK, held_by=["other"], oldest_step=250))
        found = [leak["held_by"] for leak in self.written()["leaks"]]
        self.assertEqual(found, [LEAK["held_by"], ["other"]])

    def test_reasons_why_a_process_could_not_be_judged(self):
        self.assertNotIn("unjudged", self.written())
        self.diagnosis.is_broken = True
        self.probe.troubles.sentences = ["looking for leaks failed"]
        self.assertEqual(self.written()["unjudged"], "looking for leaks failed")
        os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
        self.addCleanup(os.environ.pop, "PYTORCH_NO_CUDA_MEMORY_CACHING")
        self.assertIn("PYTORCH_NO_CUDA_MEMORY_CACHING is set", self.written()["unjudged"])
        original, probe.has_no_gil = probe.has_no_gil, lambda: True
        self.addCleanup(setattr, probe, "has_no_gil", original)
        self.assertIn("global interpreter lock", self.written()["unjudged"])

    def test_only_the_process_of_the_probe_writes_at_its_end(self):
        probe.active = None
        self.state.end()
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_probe_that_cannot_start_says_so(self):
        last_state.write_failure(self.folder, "no CUDA")
        (name,) = os.listdir(self.folder)
        with open(os.path.join(self.folder, name)) as file:
            state = json.load(file)
        self.assertEqual((state["unjudged"], state["pid"]), ("no CUDA", os.getpid()))
        self.assertNotIn("peak_bytes", state)


class WatchTest(unittest.TestCase):
    def test_without_pytest_there_are_no_tests(self):
        self.assertFalse(test_steps.watch(self.fail))


if __name__ == "__main__":
    unittest.main()
