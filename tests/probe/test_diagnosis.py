"""Tests of the probe's diagnosis without torch: python3 -m unittest discover -s tests/probe"""

import json
import os
import pickle
import random
import stat
import sys
import tempfile
import types
import unittest
from collections import deque
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "assets/probe"))

from gputop_probe import (
    causes,
    code_lines,
    extended,
    graphs,
    holders,
    leaks,
    objects,
    ooms,
    paths,
    readings,
)  # noqa: E402


class Allocator:
    """Live blocks with addresses that are used again, as those of PyTorch."""

    def __init__(self):
        self.live, self.free, self.next = {}, {}, 512

    def take(self, size):
        unused = self.free.get(size)
        if unused:
            address = unused.pop()
        else:
            address, self.next = self.next, self.next + size
        self.live[address] = size
        return address

    def give(self, address):
        self.free.setdefault(self.live.pop(address), []).append(address)

    def census(self):
        return [(0, address, size, "other") for address, size in self.live.items()]


def watch(step_of, steps, census_every=1):
    """Runs `step_of(allocator, step)`, and returns what leaked at some of the censuses, the last
    one among them.
    """
    allocator, history, found = Allocator(), leaks.History(), []
    for step in range(steps):
        step_of(allocator, step)
        if step % census_every == 0:
            history.take(step, step * 0.1, allocator.census())
            is_tested = history.count % 8 == 0 or step + census_every >= steps
            found.append(history.growing().get((0, "other")) if is_tested else None)
    return found


class Operation:
    """An operation of an autograd graph."""

    def __init__(self, *children):
        self.next_functions = [(child, 0) for child in children]


class Tensor:
    """A tensor whose `grad_fn` can be read only where it is no view of memory that was modified
    in place, as in PyTorch.
    """

    def __init__(self, operation=None, is_view=False, version=0, requires_grad=False):
        self._operation, self._view, self.version, self.needs_gradient = (
            operation,
            is_view,
            version,
            requires_grad,
        )

    def _is_view(self):
        return self._view

    is_cuda = property(lambda self: True)
    _version = property(lambda self: self.version)
    requires_grad = property(lambda self: self.needs_gradient)

    def data_ptr(self):
        return 512

    @property
    def grad_fn(self):
        if self._view and self._version:
            raise RuntimeError("Output 0 of ViewBackward0 is a view and is being modified inplace")
        return self._operation

    @property
    def is_leaf(self):
        return self.grad_fn is None


def reader():
    """A TensorReader of tensors as above, without torch."""

    class Torch:
        __version__ = "2.5.1"

        class _C:
            DisableTorchFunction = None

        class nn:
            Parameter = None

    Torch.Tensor = Tensor
    return objects.TensorReader(Torch)


class HistoryOfTensorsTest(unittest.TestCase):
    def test_the_history_of_a_view_that_was_modified_in_place_is_not_read(self):
        modified = Tensor(Operation(), is_view=True, version=1, requires_grad=True)
        self.assertIsNone(reader().grad_fn(modified))
        self.assertTrue(reader().has_history(modified))
        self.assertFalse(reader().has_history(Tensor(is_view=True, version=1)))

    def test_a_tensor_that_cannot_be_read_does_not_hide_the_longest_history(self):
        short, long = (
            Tensor(Operation(), is_view=True),
            Tensor(Operation(Operation(Operation())), version=3),
        )
        chain = graphs.Chain(reader().grad_fn)
        found = chain.take(
            1,
            [
                Tensor(Operation(), is_view=True, version=1),
                short,
                long,
                Tensor(is_view=True, version=None),
            ],
        )
        self.assertIs(found, long)
        self.assertEqual(chain.looks, [(1, 3)])

    def looks(self, sizes):
        """A Chain after looks at histories of these lengths, five steps apart."""
        chain = graphs.Chain(reader().grad_fn)
        for look, size in enumerate(sizes):
            operation = Operation()
            for _ in range(size - 1):
                operation = Operation(operation)
            chain.take(5 * look, [Tensor(operation)])
        return chain

    def test_a_history_that_gets_longer_at_a_steady_rate_grows(self):
        self.assertEqual(self.looks([20, 40, 60]).growth(), 4.0)
        for sizes in ([20, 40], [20, 20, 20], [20, 40, 40], [20, 40, 300]):
            self.assertIsNone(self.looks(sizes).growth(), sizes)
        self.assertEqual(
            [self.looks(sizes).may_grow() for sizes in ([20], [20, 40], [20, 20])],
            [True, True, False],
        )


class TrendTest(unittest.TestCase):
    def test_one_rise_is_warm_up_and_a_steady_rise_is_not(self):
        for counts, wanted in (
            ([450] * 9 + [1801] * 7, False),
            ([450] * 2 + [1801] * 14, False),
            (range(16), True),
            ([number // 5 for number in range(16)], True),
        ):
            trend = leaks.Trend()
            for count in counts:
                trend.take(count, 1 << 20)
            self.assertEqual(trend.is_rising(), wanted, counts)

    def test_more_bytes_in_as_many_blocks_are_a_rise(self):
        for sizes, wanted in (
            (range(16), True),
            ([size // 3 for size in range(16)], True),
            ([7] * 16, False),
            ([1] * 8 + [9] * 8, False),
            ([5, 3, 8, 1] * 4, False),
        ):
            trend = leaks.Trend()
            for size in sizes:
                trend.take(450, size)
            self.assertEqual(trend.is_rising(), wanted, sizes)


class GrowthTest(unittest.TestCase):
    def test_one_block_per_step_leaks(self):
        found = watch(lambda allocator, step: allocator.take(1024), 60)
        self.assertIsNone(found[leaks.SHORTEST - 2])
        self.assertEqual(found[-1].rates(found[-1].blocks)[:2], (1024, 1.0))

    def test_a_leak_of_every_fifth_step_is_found(self):
        found = watch(lambda allocator, step: step % 5 == 0 and allocator.take(1 << 20), 200, 2)
        self.assertIsNotNone(found[-1])

    def test_a_leak_after_a_long_healthy_time_is_found_soon(self):
        found = watch(lambda allocator, step: step >= 1000 and allocator.take(1024), 1030)
        self.assertFalse(any(found[:1000]))
        self.assertIsNotNone(found[-1])

    def test_a_slow_leak_of_a_long_run_is_found(self):
        found = watch(lambda allocator, step: step % 160 == 0 and allocator.take(1024), 8000)
        self.assertIsNotNone(found[-1])

    def test_warm_up_is_no_leak_any_more(self):
        found = watch(lambda allocator, step: step < 12 and allocator.take(1024), 200)
        self.assertFalse(any(found))

    def test_a_leak_is_found_although_the_censuses_become_rare(self):
        allocator, history, step = Allocator(), leaks.History(), 0
        for distance in [5] * 12 + [80] * 10:
            for _ in range(distance):
                step += 1
                allocator.take(1024)
            history.take(step, step * 0.1, allocator.census())
            if history.count >= leaks.SHORTEST:
                self.assertIn((0, "other"), history.growing())

    def test_a_leak_is_found_although_a_census_follows_at_once(self):
        allocator, history, step = Allocator(), leaks.History(), 0
        for distance in [20] * 8 + [1] + [20] * 9:
            for _ in range(distance):
                step += 1
                if step % 5 == 0:
                    allocator.take(1024)
            history.take(step, step * 0.1, allocator.census())
        self.assertIn((0, "other"), history.growing())

    def test_one_block_that_gets_larger_swells_and_does_not_grow(self):
        kept = []

        def swell(allocator, step):
            new = allocator.take(1024 * (step + 1))
            if kept:
                allocator.give(kept.pop())
            kept.append(new)

        allocator, history = Allocator(), leaks.History()
        for step in range(40):
            swell(allocator, step)
            history.take(step, step * 0.1, allocator.census())
        self.assertEqual((history.growing(), history.swelling()), ({}, {0}))

    def test_locals_of_variable_length_are_no_leak(self):
        chance, kept = random.Random(1), []

        def step_of(allocator, step):
            new = [allocator.take(512 * chance.randint(1, 64)) for _ in range(3)]
            for address in kept:
                allocator.give(address)
            kept[:] = new

        self.assertFalse(any(watch(step_of, 400)))

    def test_gradients_that_are_made_anew_in_each_step_are_no_part_of_a_leak(self):
        chance, gradients = random.Random(3), []

        def step_of(allocator, step):
            for address in gradients:
                allocator.give(address)
            # Now and then, activations of the same size take some of the addresses.
            activations = (
                [allocator.take(4096) for _ in range(2)] if chance.randrange(10) == 0 else []
            )
            gradients[:] = [allocator.take(4096) for _ in range(24)]
            for address in activations:
                allocator.give(address)
            allocator.take(32768)

        growths = [growth for growth in watch(step_of, 300) if growth]
        self.assertGreater(len(growths), 20)
        for growth in growths:
            alike = {}
            for block in growth.blocks:
                alike.setdefault(block.size, []).append(block)
            self.assertEqual(
                [size for size, blocks in alike.items() if leaks.is_spread(blocks, growth)], [32768]
            )

    def test_a_queue_of_bounded_length_is_no_leak_once_it_is_full(self):
        queue = deque()

        def step_of(allocator, step):
            queue.append(allocator.take(4096))
            if len(queue) > 40:
                allocator.give(queue.popleft())

        self.assertFalse(any(watch(step_of, 400)[50:]))

    def test_a_cache_that_fills_more_and_more_slowly_is_no_leak(self):
        chance, seen = random.Random(2), set()

        def step_of(allocator, step):
            length = chance.randint(1, 100)
            if length not in seen:
                seen.add(length)
                allocator.take(512 * length)

        self.assertFalse(any(watch(step_of, 2000)[400:]))

    def test_reserved_memory_that_was_never_needed_is_fragmentation(self):
        reserved = leaks.Reserved()
        for _ in range(leaks.SHORTEST):
            reserved.take(0, 4 << 30, 1 << 30)
            reserved.take(1, 4 << 30, 3 << 30)
        # The program resets its peak.
        reserved.take(1, 4 << 30, 1 << 20)
        self.assertEqual((reserved.gap(0), reserved.gap(1)), (3 << 30, None))


class CauseTest(unittest.TestCase):
    def decide(self, holder=None, **facts):
        return causes.decide(causes.Facts(holder=holder, **facts))[0]

    def test_each_cause(self):
        local = holders.Holder("list outputs", "local", "outputs", {0})
        layer = holders.Holder(
            "Layer.cache", "attribute", "cache", {0}, owner="Layer", is_module=True
        )
        via = lambda mark: holders.Holder("x", "local", "x", {0}, via={mark})
        self.assertEqual(self.decide(local, is_training=True), "kept_outputs")
        self.assertEqual(
            self.decide(local, has_history=True, is_evaluation=True), "eval_without_no_grad"
        )
        self.assertEqual(self.decide(local, has_history=True), "kept_outputs")
        self.assertEqual(self.decide(local, fills_in_hook=True, is_training=True), "hooks_hold")
        self.assertEqual(self.decide(layer, has_history=True), "layer_cache")
        self.assertEqual(self.decide(local, chain_grows=True, is_training=True), "history_summed")
        self.assertEqual(self.decide(via("buffer"), chain_grows=True), "buffer_in_graph")
        self.assertEqual(self.decide(via("traceback"), is_training=True), "traceback_frame")
        # One optimizer is the one that the program uses.
        for optimizers, wanted in ((1, "kept_outputs"), (8, "optimizer_recreated")):
            self.assertEqual(self.decide(via("optimizer"), optimizers=optimizers), wanted)
        self.assertEqual(self.decide(via("cycle")), "reference_cycle")
        self.assertEqual(self.decide(via("hook")), "hooks_registered")
        self.assertEqual(self.decide(via("module")), "model_copies")
        self.assertEqual(self.decide(create_graph=object()), "create_graph")
        # What nothing explains is told when it lasts.
        told = [causes.is_told(causes.Facts(), 9, seconds) for seconds in (12.0, 30.0)]
        self.assertEqual(told, [False, True])
        # A model that moves to the GPU brings parameters, too.
        self.assertFalse(causes.is_told(causes.Facts(holder=via("module")), 9, 60.0))
        line = object()
        self.assertEqual(
            self.decide(
                local, has_history=True, is_training=True, hidden_ratio=3.0, retain_graph=line
            ),
            "retain_graph",
        )
        # The word in the code alone is no evidence: nothing hidden grows.
        self.assertEqual(
            self.decide(local, has_history=True, is_training=True, retain_graph=line),
            "kept_outputs",
        )
        self.assertEqual(self.decide(), "unknown")

    def test_likely_needs_a_container_that_was_seen_to_grow_and_a_named_way(self):
        def sure(before, limit=None, text="[…]", **facts):
            container = paths.Container([], 9, limit, before)
            before.clear()
            step = paths.Step(text, None, container)
            holder = holders.Holder("list kept", "local", "kept", {0}, steps=[step])
            return causes.judge(causes.Facts(holder=holder, **facts))[1]

        class Before(dict):
            def get(self, address, default=None):
                return dict.get(self, "any", default)

        grew, same = (lambda: Before(any=4)), (lambda: Before(any=9))
        self.assertEqual(sure(grew()), "likely")
        self.assertEqual(sure(same()), "maybe")
        self.assertEqual(sure(Before()), "maybe")
        self.assertEqual(sure(grew(), covers=0.7), "maybe")
        self.assertEqual(sure(grew(), text=None), "maybe")
        self.assertEqual(sure(grew(), is_temporary=True), "maybe")
        self.assertEqual(sure(grew(), is_cache=True), "maybe")
        self.assertEqual(sure(grew(), limit=300), "bounded")


class ExtendedTest(unittest.TestCase):
    """A tensor that gets longer, held by a local of a function as below."""

    def leaks(self, function, sizes):
        found = extended.Extended()
        line = code_lines.Line(function.__code__, function.__code__.co_firstlineno)
        holder = holders.Holder(
            "tensor history", "local", "history", {0}, line=line, codes=[function.__code__]
        )
        for step, size in enumerate(sizes):
            places = found.candidates([(0, 4096), (0, size)])
            found.take(step, step * 0.1, [(holder, size, {"device": 0})] if 1 in places else [])
        return found.leaks

    def concatenates(torch, history, x):
        history = torch.cat([history, x])
        return history

    def replaces(model, history):
        history = model(history)
        return history

    def test_a_tensor_that_is_concatenated_and_larger_at_each_look_leaks(self):
        (leak,) = self.leaks(ExtendedTest.concatenates, range(10000, 20000, 1000))
        self.assertEqual(
            (leak["cause"], leak["bytes"], leak["bytes_per_step"], leak["count_per_step"]),
            ("extended", 19000, 1000, 0),
        )
        self.assertIn("`history = torch.cat([history, x])`", leak["advice"])

    def test_batches_that_get_longer_are_no_leak(self):
        self.assertEqual(self.leaks(ExtendedTest.replaces, range(10000, 20000, 1000)), [])

    def test_a_tensor_of_bounded_length_is_no_leak(self):
        self.assertEqual(self.leaks(ExtendedTest.concatenates, [10000, 11000, 12000] * 4), [])
        self.assertEqual(
            self.leaks(
                ExtendedTest.concatenates, [10000, 11000, 12000, 13000, 14000, 15000] + [15000] * 4
            ),
            [],
        )


class BlackBoxTest(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.TemporaryDirectory()
        self.addCleanup(self.home.cleanup)

    def test_files_are_private_and_appear_whole(self):
        with ooms.open_folder(self.home.name) as folder:
            ooms.write_file(folder.number, "oom-1.json", b"{}")
        path = os.path.join(self.home.name, "gputop", "ooms")
        modes = [
            stat.S_IMODE(os.stat(name).st_mode) for name in (path, os.path.join(path, "oom-1.json"))
        ]
        self.assertEqual((modes, os.listdir(path)), ([0o700, 0o600], ["oom-1.json"]))

    def test_symbolic_links_and_open_folders_are_refused(self):
        os.mkdir(os.path.join(self.home.name, "elsewhere"))
        os.symlink("elsewhere", os.path.join(self.home.name, "gputop"))
        with self.assertRaises(OSError):
            ooms.open_folder(self.home.name)
        os.unlink(os.path.join(self.home.name, "gputop"))
        os.mkdir(os.path.join(self.home.name, "gputop"))
        os.chmod(os.path.join(self.home.name, "gputop"), 0o777)
        with self.assertRaises(PermissionError):
            ooms.open_folder(self.home.name)

    def test_old_reports_are_removed_with_their_snapshots(self):
        with ooms.open_folder(self.home.name) as opened:
            folder = opened.number
            for number in range(6):
                for end in (".json", ".pickle"):
                    ooms.write_file(folder, "oom-%d%s" % (number, end), b"")
            ooms.remove_old(folder, 2)
            self.assertEqual(
                sorted(os.listdir(folder)),
                ["oom-4.json", "oom-4.pickle", "oom-5.json", "oom-5.pickle"],
            )

    def test_a_report_is_bounded(self):
        report = {"version": 1, "groups": [{"shape": [1] * 50}] * 5000}
        content = ooms.report_bytes(report, 4096)
        self.assertLessEqual(len(content), 4096)
        self.assertEqual(json.loads(content)["version"], 1)
        self.assertIsNone(ooms.report_bytes({"text": "x" * 5000}, 4096))

    def test_a_snapshot_has_an_old_protocol_small_integers_and_a_limit(self):
        content = ooms.snapshot_bytes(
            {"segments": [{"address": 1 << 70, "blocks": [(1, 2)], "unknown": None}]}
        )
        self.assertEqual(content[:2], b"\x80\x04")
        self.assertLess(pickle.loads(content)["segments"][0]["address"], 1 << 63)
        with self.assertRaises(OverflowError):
            ooms.snapshot_bytes({"segments": list(range(100000))}, most=1000)
        with self.assertRaises(TimeoutError):
            ooms.snapshot_bytes({"segments": list(range(100000))}, deadline=0)

    def test_a_report_counts_the_tensors_of_the_moment_when_memory_ran_out(self):
        step_end, now = readings.Reading(3, "step_end"), readings.Reading(3, "any")
        for reading, activations in ((step_end, 3 << 30), (now, 26 << 30)):
            memory = types.SimpleNamespace(
                allocated=activations, reserved=48 << 30, requested=None, free={}
            )
            reading.devices[0] = readings.DeviceReading(memory)
            reading.devices[0].categories["activations"] = activations
        probe = types.SimpleNamespace(
            waits=None,
            torch=types.SimpleNamespace(__version__="2.11.0", _C=types.SimpleNamespace()),
            steps=types.SimpleNamespace(count=3, seconds=lambda: 0.1),
            is_attached=False,
            levels={0: (0, 30 << 30, 3, None)},
            uuids={},
            reading=step_end,
            step_end=step_end,
            grouped=None,
            ledger=types.SimpleNamespace(marks=[]),
            diagnosis=None,
            requests=types.SimpleNamespace(answer=None),
            troubles=types.SimpleNamespace(sentences=[]),
        )
        probe.read_all = lambda: setattr(probe, "reading", now)
        report = ooms.BlackBox(probe, lambda: []).report(0, 17 << 30, 80 << 30, 11 << 30, 1.0)
        (device,) = report["devices"]
        self.assertEqual(device["category_bytes"]["activations"], 26 << 30)
        self.assertEqual(device["moment"], "any")
        self.assertEqual(device["step_end"]["category_bytes"]["activations"], 3 << 30)

    def test_why(self):
        stats = lambda allocated, reserved: {
            "allocated_bytes": allocated << 30,
            "reserved_bytes": reserved << 30,
        }
        cause = lambda **report: ooms.why(report)["cause"]
        gib = 1 << 30
        self.assertEqual(
            cause(requested=gib, free=0, total=8 * gib, stats=stats(3, 8)), "fragmentation"
        )
        self.assertEqual(
            cause(requested=2 * gib, free=gib, total=16 * gib, stats=stats(4, 4)), "other_processes"
        )
        self.assertEqual(
            ooms.why({"requested": 9 * gib, "free": 8 * gib, "total": 8 * gib})["sentence"],
            "one tensor is larger than the GPU",
        )
        self.assertEqual(
            cause(requested=6 * gib, free=gib, total=8 * gib, stats=stats(7, 7)), "too_big"
        )
        self.assertEqual(
            cause(requested=60 * gib, free=8 * gib, total=8 * gib, stats=stats(0, 0)), "too_big"
        )
        leak = {
            "cause": "kept_outputs",
            "bytes": 5 * gib,
            "title": "tensors are kept",
            "advice": "",
        }
        self.assertEqual(
            cause(requested=gib, free=0, total=8 * gib, stats=stats(8, 8), leaks=[leak]),
            "kept_outputs",
        )


if __name__ == "__main__":
    unittest.main()
