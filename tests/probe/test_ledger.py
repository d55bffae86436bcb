"""Tests of the ledger of marks and of the stub, without torch: python3 -m unittest discover -s
tests/probe
"""

import json
import subprocess
import sys
import types
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "assets/probe"))

from gputop_probe import ledger  # noqa: E402

KEY, OTHER = (
    (0, "named_tensors", None, shape, "float32", False, None) for shape in ((64,), (128,))
)


def mark(name, *groups, moment=0.0, **more):
    """A mark with groups (key, count, bytes); without any, only the totals were read."""
    found = {key: [count, size] for key, count, size in groups}
    total = sum(size for _, _, size in groups)
    return ledger.Mark(name, 1, moment, None, {0: total}, found or None, **more)


def begin():
    ledger.early.clear()
    return ledger.Ledger(0.0)


class LedgerTest(unittest.TestCase):
    def test_a_pair_in_a_loop_keeps_its_number_its_total_and_its_last_groups(self):
        book = begin()
        for turn in range(3):
            book.add(mark("a", (KEY, 1, 256)))
            book.add(mark("b", (KEY, 2 + turn, 256 * (2 + turn)), (OTHER, 1, 512)))
        pair = next(pair for pair in book.publish() if pair["since"]["name"] == "a")
        device = pair["devices"][0]
        self.assertEqual((pair["times"], pair["groups_from"]), (3, 3))
        self.assertEqual(
            (device["bytes_change"], device["total_bytes_change"]), (1280, 768 + 1024 + 1280)
        )
        changes = [(it["shape"], it["count_change"], it["bytes_change"]) for it in pair["groups"]]
        self.assertEqual(changes, [((64,), 3, 768), ((128,), 1, 512)])

    def test_groups_that_are_left_out_have_their_change(self):
        groups = [((0, "named_tensors", None, (at,), "f", False, None), 1, at) for at in range(40)]
        found, left_out = ledger.compare(mark("a", (KEY, 1, 1)), mark("b", *groups), 10)
        self.assertEqual((len(found), left_out["count"]), (10, 31))
        total = sum(group["bytes_change"] for group in found) + left_out["bytes_change"]
        self.assertEqual(total, sum(range(40)) - 1)

    def test_the_line_is_the_one_whose_bytes_changed_as_the_group_did(self):
        old = mark("a", (KEY, 2, 512), lines={KEY: {("x.py:1", None): 256, ("x.py:2", "l"): 256}})
        new = mark("b", (KEY, 3, 768), lines={KEY: {("x.py:1", None): 256, ("x.py:2", "l"): 512}})
        line = {"user": "x.py:2", "inner": "l"}
        self.assertEqual(ledger.compare(old, new, 9)[0][0]["allocated_at"], line)
        self.assertEqual(ledger.compare(new, old, 9)[0][0]["allocated_at"], line)
        self.assertNotIn("allocated_at", ledger.compare(old, mark("c", (KEY, 3, 768)), 9)[0][0])

    def test_a_phase_with_marks_within_has_a_pair_of_its_own(self):
        book = begin()
        first = mark("eval", (KEY, 1, 256))
        for it, since in ((first, None), (mark("inner"), None), (mark("eval end"), first)):
            book.add(it, since)
        names = [(it["since"]["name"], it["until"]["name"]) for it in book.publish()]
        self.assertEqual(names, [("eval", "inner"), ("inner", "eval end"), ("eval", "eval end")])
        # A child that was forked within the phase.
        child = begin()
        child.add(mark("eval end"), first)
        self.assertEqual(child.publish(), [])

    def test_all_tensors_are_read_at_both_marks_of_a_pair_or_at_none(self):
        book = begin()

        def add(name, now, since=None):
            has_groups, is_first = book.wants_groups(now, since)
            it = mark(name, *[(KEY, 1, 256)] * has_groups)
            it.is_first = is_first
            book.add(it, since)
            return it

        self.assertIsNotNone(add("a", 1.0).groups)
        book.spend(ledger.BURST + 1)
        self.assertIsNotNone(add("b", 2.0).groups)
        self.assertIsNone(add("a", 3.0).groups)
        self.assertIsNone(add("b", 4.0).groups)
        (pair,) = (it for it in book.publish() if it["until"]["name"] == "b")
        self.assertEqual((pair["times"], pair["groups_from"]), (2, 1))
        # Later there is room again.
        phase = add("eval", 4.0 + ledger.SHARE)
        self.assertIsNotNone(phase.groups)
        book.spend(ledger.BURST)
        self.assertIsNotNone(add("eval end", 60.0, phase).groups)

    def test_old_marks_lose_their_groups_when_there_are_too_many(self):
        book = begin()
        for name in "abc":
            many = [((0, "other", None, None, None, False, at), 1, 1) for at in range(9000)]
            book.add(mark(name, *many))
        self.assertEqual([it.groups is None for it in book.marks], [True, False, False])
        with self.assertRaisesRegex(LookupError, "only the totals were read at the mark a"):
            book.answer("a", "b")

    def test_a_comparison_takes_the_last_mark_before_the_other(self):
        book = begin()
        for name, count in (("a", 1), ("b", 2), ("a", 5)):
            book.add(mark(name, (KEY, count, 256 * count)))
        changes = lambda found: [it["count_change"] for it in found["groups"]]
        self.assertEqual(changes(book.answer("a", "b")), [1])
        self.assertEqual(changes(book.answer("b", "a")), [3])
        self.assertEqual(changes(book.answer("a", mark("now", (KEY, 4, 1024)))), [-1])
        for since, until, sentence in (
            ("c", "a", "there is no mark c; the last ones are a, b"),
            ("a", "c", "there is no mark c; the last ones are a, b"),
            ("b", "b", "no mark b is before the mark b"),
        ):
            with self.assertRaises(LookupError) as caught:
                book.answer(since, until)
            self.assertEqual(caught.exception.args[0], sentence)
        with self.assertRaisesRegex(LookupError, "the program has set no mark"):
            begin().answer("a", "b")

    def test_marks_before_the_first_use_of_cuda_have_no_memory(self):
        begin()
        # As `mark` does without a probe.
        it = ledger.mark("early")
        self.assertEqual(it.at.split(":")[0], "test_ledger.py")
        book = ledger.Ledger(0.0)
        book.add(mark("a", (KEY, 1, 256)))
        (pair,) = book.publish()
        self.assertEqual(
            (pair["since"]["name"], pair["devices"][0]["bytes_change"]), ("early", 256)
        )
        self.assertFalse(ledger.early)

    def test_the_blocks_of_a_recording_have_lines(self):
        label = types.SimpleNamespace(
            category="named_tensors", kind=None, shape=(64,), dtype="float32", is_part=False
        )
        frames = [{"filename": "x.py"}, {"filename": "y.py"}]
        blocks = types.SimpleNamespace(
            address=[0, 512, 1024, 1536, 2048],
            size=[512] * 5,
            device=[0] * 5,
            private=[False, False, False, True, False],
            # One was not recorded, and the last has frames of C++ only.
            frames=[frames, frames[:1], [], frames, frames[1:]],
        )
        line_of = lambda frames: frames[0]["filename"] if frames[0] is not y else None
        y = frames[1]
        found = ledger.lines_of(blocks, {0: label}, {512: 512}, line_of)
        hidden = lambda name: (0, name, None, None, None, False, 512)
        self.assertEqual(set(found), {KEY, hidden("libraries"), hidden("graph_pools")})
        self.assertEqual(found[KEY], {"x.py": 512})


# Python of a program with the stub, in which a probe starts later.
ATTACHED = """
import json, sys
sys.path[:0] = [{stub!r}, {stand_in!r}]
import gputop_probe
from gputop_probe import mark, phase
import torch
mark("without")
with phase("around"):
    torch.cuda._lazy_init()
    exec(compile({attach!r}, "attach.py", "exec"), {{"FOLDER": {folder!r}}})
mark("a")
with phase("eval"):
    gputop_probe.mark("b")
marks = sys.modules["gputop_probe.probe"].active.ledger.marks
print(json.dumps([(it.name, it.at) for it in marks]))
"""


class StubTest(unittest.TestCase):
    def test_the_stub_passes_marks_on_to_a_probe_that_is_attached_later(self):
        folder = ROOT / "assets/probe"
        program = ATTACHED.format(
            stub=str(ROOT / "assets/stub"),
            stand_in=str(ROOT / "tests/pytorch/stand_in"),
            attach=(folder / "attach.py").read_text(),
            folder=str(folder),
        )
        command = [sys.executable, "-B", "-c", program]
        found = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
        *first, (last, _) = json.loads(found)
        lines = [["a", "<string>:11"], ["eval", "<string>:12"], ["b", "<string>:13"]]
        self.assertEqual((first, last), (lines, "eval end"))

    def test_the_stub_does_nothing_without_a_probe(self):
        program = (
            "import gputop_probe\n"
            "gputop_probe.mark()\n"
            "with gputop_probe.phase('x'): print(gputop_probe.__file__.split('/')[-2])\n"
            "try:\n    gputop_probe.estimate()\nexcept RuntimeError as error:\n    print(error)\n"
        )
        environment = {"PYTHONPATH": str(ROOT / "assets/stub")}
        command = [sys.executable, "-B", "-c", program]
        found = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
        lines = found.decode().splitlines()
        self.assertEqual(lines[0], "stub")
        self.assertIn("gputop run", lines[1])


if __name__ == "__main__":
    unittest.main()
