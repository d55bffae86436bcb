"""Tests of memory by module, without torch: python3 -m unittest discover -s tests/probe"""

import sys
import threading
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "assets/probe"))

from gputop_probe import modules  # noqa: E402


class Module:
    """As torch.nn.Module, with the allocator as a list of (action, address, size)."""

    memory = []

    def __init__(self, **parts):
        self._modules = parts
        self.__dict__.update(parts)

    def _call_impl(self, *arguments):
        # PyTorch's function has its own object in a closure, too.
        def inner():
            return self.forward(*arguments)

        len(arguments)
        result = inner()
        len(arguments)
        return result

    __call__ = lambda self, *arguments: self._call_impl(*arguments)

    def forward(self, *arguments):
        pass


def allocate(size):
    address = sum(event[0] == "alloc" for event in Module.memory)
    Module.memory.append(("alloc", address, size))
    return address


def free(address):
    Module.memory.append(("free_requested", address, 0))


class Leaf(Module):
    def forward(self, size):
        return allocate(size)


class Both(Module):
    def forward(self, size):
        first = self.left(size)
        allocate(1)
        second = self.right(2 * size)
        allocate(10)
        free(second)
        return first


class Fails(Module):
    def forward(self, size):
        allocate(size)
        raise ValueError(size)


def model():
    return Module(
        _0=Both(left=Leaf(), right=Leaf()), _1=Both(left=Leaf(), right=Leaf()), bad=Fails()
    )


def live(whole):
    """All modules of a model."""
    found = [whole]
    for part in whole._modules.values():
        found += live(part)
    return found


class ModulesTest(unittest.TestCase):
    def setUp(self):
        Module.memory = []

    def track(self, *roots):
        paths = modules.paths_of([part for root in roots for part in live(root)])
        count = lambda: [sum(event[0] == "alloc" for event in Module.memory)]
        found = modules.Tracker(Module._call_impl.__code__, paths, count)
        self.assertIsNone(found.start())
        self.addCleanup(found.stop)
        return found

    def sum_up(self, tracker, before=()):
        """The recording of what was tracked: bytes of activations and of the peak, by path."""
        tracker.stop()
        recording = modules.Recording.__new__(modules.Recording)
        recording.tracker, recording.paths = tracker, tracker.paths
        recording._parents = {known.path: known.parent for known in tracker.paths.values()}
        recording.devices, recording.before = [0], {0: dict(before)}
        trace = [dict(zip(("action", "addr", "size"), event)) for event in Module.memory]
        found = recording.device(0, trace, lambda event: event["size"] != 7)
        rows = {row["path"]: (row["activation_bytes"], row["peak_bytes"]) for row in found["rows"]}
        return found, rows

    def test_paths_are_those_of_the_largest_model_and_others_begin_with_their_class(self):
        whole, criterion = model(), Both(left=Leaf())
        shared = whole._modules["_0"]
        whole._modules["again"] = shared
        found = modules.paths_of([*live(criterion), *live(whole)])
        names = lambda it: (found[id(it)].path, found[id(it)].kind, found[id(it)].parent)
        self.assertEqual(names(whole), ("Module", "Module", None))
        self.assertIn(names(shared), [("_0", "Both", "Module"), ("again", "Both", "Module")])
        self.assertEqual(names(whole._1.left), ("_1.left", "Leaf", "_1"))
        self.assertEqual(names(criterion), ("Both", "Both", None))
        self.assertEqual(names(criterion.left), ("Both.left", "Leaf", "Both"))

    def test_instances_that_share_their_code_are_told_apart(self):
        whole = model()
        tracker = self.track(whole)
        allocate(3)
        whole._0(100)
        whole._1(1000)
        allocate(7)
        found, rows = self.sum_up(tracker, {"weight": 50})
        self.assertEqual(
            rows,
            {
                "_0": (111, 111),
                "_0.left": (100, 100),
                # Freed at the end of the call.
                "_1": (1011, 3011),
                "_1.left": (1000, 1000),
                "_1.right": (0, 2000),
                "Module": (1122, 3122),
            },
        )
        figures = [found[name] for name in ("before_bytes", "outside_bytes", "backward_bytes")]
        self.assertEqual((figures, found["peak_bytes"]), ([50, 3, 0], 50 + 3 + 3122))
        self.assertEqual([row["calls"] for row in found["rows"] if row["path"] == "_1"], [1])

    def test_a_call_that_fails_ends_where_the_next_one_begins(self):
        whole = model()
        tracker = self.track(whole)
        for _ in range(2):
            with self.assertRaises(ValueError):
                whole.bad(5)
        whole._0.left(9)
        allocate(7)
        _, rows = self.sum_up(tracker)
        self.assertEqual(rows["_0.left"], (9, 9))
        self.assertEqual(rows["bad"][1], 10)
        self.assertEqual(tracker.running, [])

    def test_memory_outside_of_modules_is_of_no_module(self):
        whole = model()
        tracker = self.track(whole)
        whole._0.left(1)
        allocate(7)
        allocate(8)
        found, rows = self.sum_up(tracker)
        self.assertEqual((found["backward_bytes"], found["outside_bytes"]), (7, 8))
        self.assertEqual(rows["Module"], (1, 1))

    def test_the_largest_of_several_calls_counts(self):
        whole = model()
        tracker = self.track(whole)
        for size in (5, 30, 10):
            whole._0.left(size)
        _, rows = self.sum_up(tracker)
        self.assertEqual(rows["_0.left"], (30, 45))

    def test_nothing_is_left_of_the_tracking(self):
        whole = model()
        tracker = self.track(whole)
        whole._0(1)
        tracker.stop()
        length = len(tracker.log)
        whole._0(1)
        self.assertEqual(len(tracker.log), length)
        self.assertIsNone(sys.getprofile())
        # It can begin again.
        again = self.track(whole)
        whole._0(1)
        self.assertGreater(len(again.log), 1)

    def test_other_threads_are_not_followed(self):
        whole = model()
        tracker = self.track(whole)
        thread = threading.Thread(target=lambda: whole._0(1))
        thread.start()
        thread.join()
        self.assertEqual(len(tracker.log), 1)

    def test_a_recording_that_ends_in_another_thread_removes_itself(self):
        whole = model()
        tracker = self.track(whole)
        thread = threading.Thread(target=tracker.stop)
        thread.start()
        thread.join()
        whole._0(1)
        self.assertIsNone(sys.getprofile())
        self.assertEqual(len(tracker.log), 1)

    def test_an_error_of_a_signal_handler_reaches_the_program(self):
        whole = model()
        tracker = self.track(whole)

        class Alarm(Exception):
            pass

        def ring():
            raise Alarm

        # As a handler that runs while the probe is at work.
        tracker.count = ring
        with self.assertRaises(Alarm):
            whole._0(1)

    def test_a_profiler_of_the_program_is_left_alone(self):
        if hasattr(sys, "monitoring"):
            tools = [tool for tool in (3, 4) if sys.monitoring.get_tool(tool) is None]
            for tool in tools:
                sys.monitoring.use_tool_id(tool, "test")
                self.addCleanup(sys.monitoring.free_tool_id, tool)
        else:
            sys.setprofile(lambda *_: None)
            self.addCleanup(sys.setprofile, None)
        tracker = modules.Tracker(Module._call_impl.__code__, {}, lambda: [0])
        self.assertIsInstance(tracker.start(), str)

    def test_arguments_are_not_kept_alive(self):
        class Value:
            pass

        class Drops(Module):
            def forward(self, held):
                value = held.pop()
                seen.append(sys.getrefcount(value))
                return self.part(value)

        seen, whole = [], Drops(part=Leaf())
        whole.part = lambda value: seen.append(sys.getrefcount(value))
        whole([Value()])
        without, seen[:] = list(seen), []
        self.track(whole)
        whole([Value()])
        self.assertEqual(seen, without)


if __name__ == "__main__":
    unittest.main()
