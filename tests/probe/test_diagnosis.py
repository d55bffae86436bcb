"""Tests of the probe's diagnosis without torch: python3 -m unittest discover -s tests/probe"""

import json
import os
import pickle
import random
import stat
import sys
import tempfile
import unittest
from collections import deque
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "assets/probe"))

from gputop_probe import causes, code_lines, estimates, frames, graphs, holders, leaks, lines, objects, ooms  # noqa: E402


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
    """Runs `step_of(allocator, step)`, and returns what leaked at some of the censuses, the last one among them."""
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
    """A tensor whose `grad_fn` can be read only where it is no view of memory that was modified in place, as in PyTorch."""

    def __init__(self, operation=None, is_view=False, version=0, requires_grad=False):
        self._operation, self._view, self.version, self.needs_gradient = operation, is_view, version, requires_grad

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
        short, long = Tensor(Operation(), is_view=True), Tensor(Operation(Operation(Operation())), version=3)
        chain = graphs.Chain(reader().grad_fn)
        found = chain.take(1, [Tensor(Operation(), is_view=True, version=1), short, long, Tensor(is_view=True, version=None)])
        self.assertIs(found, long)
        self.assertEqual(chain.looks, [(1, 3)])


class TrendTest(unittest.TestCase):
    def test_one_rise_is_warm_up_and_a_steady_rise_is_not(self):
        for counts, wanted in (([450] * 9 + [1801] * 7, False), ([450] * 2 + [1801] * 14, False), (range(16), True), ([number // 5 for number in range(16)], True)):
            trend = leaks.Trend()
            for count in counts:
                trend.take(count)
            self.assertEqual(trend.is_rising(), wanted, counts)


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

    def test_locals_of_variable_length_are_no_leak(self):
        chance, kept = random.Random(1), []

        def step_of(allocator, step):
            new = [allocator.take(512 * chance.randint(1, 64)) for _ in range(3)]
            for address in kept:
                allocator.give(address)
            kept[:] = new

        self.assertFalse(any(watch(step_of, 400)))

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
        layer = holders.Holder("Layer.cache", "attribute", "cache", {0}, owner="Layer", is_module=True)
        via = lambda mark: holders.Holder("x", "local", "x", {0}, via={mark})
        self.assertEqual(self.decide(local, is_training=True), "kept_outputs")
        self.assertEqual(self.decide(local, has_history=True, is_evaluation=True), "eval_without_no_grad")
        self.assertEqual(self.decide(local, has_history=True), "kept_outputs")
        self.assertEqual(self.decide(local, fills_in_hook=True, is_training=True), "hooks_hold")
        self.assertEqual(self.decide(layer, has_history=True), "layer_cache")
        self.assertEqual(self.decide(local, chain_grows=True, is_training=True), "history_summed")
        self.assertEqual(self.decide(via("buffer"), chain_grows=True), "buffer_in_graph")
        self.assertEqual(self.decide(via("traceback"), is_training=True), "traceback_frame")
        self.assertEqual(self.decide(via("optimizer"), is_training=True), "optimizer_recreated")
        line = object()
        self.assertEqual(self.decide(local, has_history=True, is_training=True, hidden_ratio=3.0, retain_graph=line), "retain_graph")
        # The word in the code alone is no evidence: nothing hidden grows.
        self.assertEqual(self.decide(local, has_history=True, is_training=True, retain_graph=line), "kept_outputs")
        self.assertEqual(self.decide(), "unknown")

    def test_the_advice_has_the_users_line(self):
        holder = keep_one()
        title, advice = causes.explain("kept_outputs", causes.Facts(holder=holder))
        self.assertIn("`outputs.append(Value())`", advice)
        self.assertEqual(title, "tensors are kept")


class Value:
    pass


history = []


class Layer:
    seen = []

    def __init__(self):
        self.cache = {}

    def forward(self, step):
        self.cache[step] = Value()


class Record:
    def __init__(self, loss):
        self.loss = loss


def keep_one():
    outputs = []
    for _ in range(4):
        outputs.append(Value())
    return holders.find(list(outputs))[0][0]


def fail():
    value = Value()
    raise ValueError(id(value))


class HolderTest(unittest.TestCase):
    def test_a_list_of_a_running_function(self):
        holder = keep_one()
        self.assertRegex(holder.text, r"^list outputs, test_diagnosis\.py:\d+ in keep_one$")
        self.assertEqual(holder.line.text(), "outputs.append(Value())")

    def test_a_global_a_class_and_an_attribute(self):
        layer = Layer()
        for step in range(3):
            history.append(Value())
            layer.forward(step)
            Layer.seen.append(Value())
        texts = [holders.find(list(history))[0][0].text, holders.find(list(Layer.seen))[0][0].text]
        texts.append(holders.find(list(layer.cache.values()))[0][0].text)
        name = "global history" if __name__ == "__main__" else "global %s.history" % __name__
        self.assertRegex(texts[0], "^%s, test_diagnosis" % name)
        self.assertRegex(texts[1], r"^Layer\.seen")
        self.assertRegex(texts[2], r"^Layer\.cache, test_diagnosis\.py:\d+ in forward$")

    def test_records_are_elements_and_not_the_owner(self):
        records = [Record(Value()) for _ in range(4)]
        found = holders.find([record.loss for record in records])[0]
        self.assertRegex(found[0].text, r"^list records, ")

    def test_an_exception_holds_the_locals_of_its_frames(self):
        errors, samples = [], []
        for _ in range(3):
            try:
                fail()
            except ValueError as error:
                errors.append(error)
        for error in errors:
            names = frames.names_of_locals(error.__traceback__.tb_next.tb_frame)
            self.assertIn("value", names.values())
            samples += [value for value in all_values() if id(value) in names]
        self.assertEqual(len(samples), 3)
        by_name = {holder.text.split(",")[0]: holder for holder in holders.find(samples[:2])[0]}
        self.assertIn("traceback", by_name["list errors"].via)

    def test_nothing_is_kept_alive(self):
        import weakref

        outputs = [Value() for _ in range(4)]
        references = [weakref.ref(value) for value in outputs]
        found = holders.find(list(outputs))
        self.assertTrue(found)
        del outputs
        self.assertEqual([reference() for reference in references], [None] * 4)

    def test_locals_are_read_without_f_locals(self):
        def function(argument):
            value = Value()
            shared = Value()
            return frames.names_of_locals(sys._getframe()), id(argument), id(value), id(shared), lambda: shared

        names, *ids, _ = function(Value())
        self.assertEqual([names[address] for address in ids], ["argument", "value", "shared"])


def all_values():
    import gc

    return [value for value in gc.get_objects() if type(value) is Value]


class LineTest(unittest.TestCase):
    def test_the_line_that_fills_a_name(self):
        def main(model):
            total = 0
            plain = model()
            kept = {}
            for step in range(3):
                total += plain
                kept[step] = total
            return kept

        text = lambda name: code_lines.fill_line(code_lines.codes_in(main.__code__), name).text()
        self.assertEqual([text("total"), text("kept"), text("plain")], ["total += plain", "kept[step] = total", "plain = model()"])

    def test_a_keyword_is_found(self):
        def main(loss):
            loss.backward()
            loss.backward(retain_graph=True)

        self.assertEqual(code_lines.keyword_line([main.__code__], "retain_graph").text(), "loss.backward(retain_graph=True)")
        self.assertIsNone(code_lines.keyword_line([main.__code__], "create_graph"))

    def test_the_users_line_and_the_innermost_outside_torch(self):
        stack = [
            ("/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", 114, "forward"),
            ("/tmp/torchinductor_user/x.py", 3, "call"),
            ("/venv/lib/python3.11/site-packages/transformers/model.py", 12, "forward"),
            ("/home/user/train.py", 40, "step"),
            ("/home/user/train.py", 60, "<module>"),
        ]
        self.assertEqual(lines.user_and_inner(stack), ("train.py:40 in step", "model.py:12 in forward"))
        self.assertEqual(lines.user_and_inner([]), (None, None))

    def test_the_peak_is_rebuilt(self):
        live = {0: (100, "weights")}
        events = [("alloc", 1, 50, "a"), ("alloc", 2, 70, "b"), ("free_requested", 1, 50, None), ("alloc", 1, 10, "c"), ("free_requested", 2, 70, None)]
        most, parts = lines.rebuild_peak(live, events)
        self.assertEqual((most, sorted(parts)), (220, [(50, "a"), (70, "b"), (100, "weights")]))


class BlackBoxTest(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.TemporaryDirectory()
        self.addCleanup(self.home.cleanup)

    def test_files_are_private_and_appear_whole(self):
        folder = ooms.open_folder(self.home.name)
        ooms.write_file(folder, "oom-1.json", b"{}")
        path = os.path.join(self.home.name, "gputop", "ooms")
        modes = [stat.S_IMODE(os.stat(name).st_mode) for name in (path, os.path.join(path, "oom-1.json"))]
        self.assertEqual((modes, os.listdir(path)), ([0o700, 0o600], ["oom-1.json"]))
        os.close(folder)

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
        folder = ooms.open_folder(self.home.name)
        for number in range(6):
            for end in (".json", ".pickle"):
                ooms.write_file(folder, "oom-%d%s" % (number, end), b"")
        ooms.remove_old(folder, 2)
        self.assertEqual(sorted(os.listdir(folder)), ["oom-4.json", "oom-4.pickle", "oom-5.json", "oom-5.pickle"])
        os.close(folder)

    def test_a_report_is_bounded(self):
        report = {"version": 1, "groups": [{"shape": [1] * 50}] * 5000}
        content = ooms.report_bytes(report, 4096)
        self.assertLessEqual(len(content), 4096)
        self.assertEqual(json.loads(content)["version"], 1)
        self.assertIsNone(ooms.report_bytes({"text": "x" * 5000}, 4096))

    def test_a_snapshot_has_an_old_protocol_small_integers_and_a_limit(self):
        content = ooms.snapshot_bytes({"segments": [{"address": 1 << 70, "blocks": [(1, 2)], "unknown": None}]})
        self.assertEqual(content[:2], b"\x80\x04")
        self.assertLess(pickle.loads(content)["segments"][0]["address"], 1 << 63)
        with self.assertRaises(OverflowError):
            ooms.snapshot_bytes({"segments": list(range(100000))}, most=1000)
        with self.assertRaises(TimeoutError):
            ooms.snapshot_bytes({"segments": list(range(100000))}, deadline=0)

    def test_why(self):
        stats = lambda allocated, reserved: {"allocated_bytes": allocated << 30, "reserved_bytes": reserved << 30}
        cause = lambda **report: ooms.why(report)["cause"]
        gib = 1 << 30
        self.assertEqual(cause(requested=gib, free=0, total=8 * gib, stats=stats(3, 8)), "fragmentation")
        self.assertEqual(cause(requested=2 * gib, free=gib, total=16 * gib, stats=stats(4, 4)), "other_processes")
        self.assertEqual(cause(requested=6 * gib, free=gib, total=8 * gib, stats=stats(7, 7)), "too_big")
        self.assertEqual(cause(requested=60 * gib, free=8 * gib, total=8 * gib, stats=stats(0, 0)), "too_big")
        leak = {"cause": "kept_outputs", "bytes": 5 * gib, "title": "tensors are kept", "advice": ""}
        self.assertEqual(cause(requested=gib, free=0, total=8 * gib, stats=stats(8, 8), leaks=[leak]), "kept_outputs")


class EstimateTest(unittest.TestCase):
    def test_two_measured_steps_give_the_batch_that_fits(self):
        mib = 1 << 20
        found = estimates.measured((16, 1600 * mib), (8, 900 * mib), gpu_bytes=10000 * mib)
        self.assertEqual(found.per_sample, 87.5 * mib)
        self.assertEqual(found.fixed, 200 * mib)
        self.assertEqual(found.largest_batch, int((9700 - 500 - 200) / 87.5))
        self.assertTrue(json.loads(found.json())["measured"])
        self.assertIn("largest batch", str(found))
        with self.assertRaises(ValueError):
            estimates.measured((8, 1), (8, 2))


if __name__ == "__main__":
    unittest.main()
