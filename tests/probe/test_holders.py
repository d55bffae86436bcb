"""Tests of the search for holders and for lines of code, without torch: python3 -m unittest
discover -s tests/probe
"""

import functools
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "assets/probe"))

from gputop_probe import causes, code_lines, frames, holders, lines  # noqa: E402


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
    def test_the_advice_has_the_users_line(self):
        holder = keep_one()
        title, advice = causes.explain("kept_outputs", causes.Facts(holder=holder))
        self.assertIn("`outputs.append(Value())`", advice)
        self.assertEqual(title, "tensors are kept")

    def test_a_list_of_a_running_function(self):
        holder = keep_one()
        self.assertRegex(holder.text, r"^list outputs, test_holders\.py:\d+ in keep_one$")
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
        self.assertRegex(texts[0], "^%s, test_holders" % name)
        self.assertRegex(texts[1], r"^Layer\.seen")
        self.assertRegex(texts[2], r"^Layer\.cache, test_holders\.py:\d+ in forward$")

    def test_a_variable_of_a_closure(self):
        def make():
            kept = {}

            def add(step):
                kept[step] = Value()
                return list(kept.values())

            return add

        add = make()
        samples = [add(step) for step in range(3)][-1]
        self.assertRegex(
            holders.find(samples)[0][0].text, r"^dict kept, test_holders\.py:\d+ in add$"
        )

    def test_a_record_may_hold_two_of_the_tensors(self):
        records = [Record((Value(), Value())) for _ in range(4)]
        found = holders.find([value for record in records for value in record.loss])[0]
        self.assertRegex(found[0].text, r"^list records, ")

    def test_an_element_of_something_without_a_name_is_named_itself(self):
        first, second = Record(Value()), Record(Value())
        first.other, second.other = second, first
        samples = [first.loss, second.loss]
        del first, second
        self.assertRegex(holders.find(samples)[0][0].text, r"^Record\.loss, test_holders")

    def test_a_cycle_that_nothing_else_refers_to_is_one(self):
        for is_held in (False, True):
            first, second = Record(Value()), Record(Value())
            first.other, second.other = second, first
            keeper = iter([first]) if is_held else None
            samples = [first.loss, second.loss]
            del first, second
            search = holders.Search()
            search.run(samples)
            self.assertEqual(search.cycles, frozenset() if is_held else {0, 1})
            del keeper

    def test_the_search_does_not_find_itself(self):
        samples, levels = [Value()], []
        search = holders.Search()
        up = search._up
        search._up = lambda *arguments: levels.append(up(*arguments)[0]) or (
            levels[-1],
            {id(it): None for it in levels[-1]},
        )
        search.run(samples)
        self.assertEqual([len(level) for level in levels], [0])

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
            return (
                frames.names_of_locals(sys._getframe()),
                id(argument),
                id(value),
                id(shared),
                lambda: shared,
            )

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
        self.assertEqual(
            [text("total"), text("kept"), text("plain")],
            ["total += plain", "kept[step] = total", "plain = model()"],
        )

    def test_a_decorated_method_fills_a_name_and_a_constructor_only_makes_it(self):
        def decorate(function):
            @functools.wraps(function)
            def wrapper(*arguments):
                return function(*arguments)

            return wrapper

        class Trainer:
            def __init__(self):
                self.kept, self.last = dict(), Value()

            @decorate
            def validate(self, step):
                self.kept[step] = Value()
                self.last = Value()

        text = lambda name: code_lines.fill_line(code_lines.codes_of_class(Trainer), name).text()
        self.assertEqual(
            [text("kept"), text("last")], ["self.kept[step] = Value()", "self.last = Value()"]
        )

    def test_an_element_that_is_read_is_no_operation(self):
        def main(values):
            kept = values[0]
            kept = values[1:]
            kept = sum(values)
            return kept

        self.assertEqual(code_lines.fill_line([main.__code__], "kept").text(), "kept = sum(values)")

    def test_a_line_that_concatenates_a_name(self):
        def main(torch, x, history, other):
            other = torch.cat([x, x])
            history = torch.cat(
                [
                    history,
                    x,
                ]
            )
            return history, other

        line = lambda name: code_lines.concatenating_line([main.__code__], name)
        self.assertIn("torch.cat(", line("history").text())
        self.assertIsNone(line("other"))

    def test_a_keyword_is_found(self):
        def main(loss):
            loss.backward()
            loss.backward(retain_graph=True)

        self.assertEqual(
            code_lines.keyword_line([main.__code__], "retain_graph").text(),
            "loss.backward(retain_graph=True)",
        )
        self.assertIsNone(code_lines.keyword_line([main.__code__], "create_graph"))

    def test_the_users_line_and_the_innermost_outside_torch(self):
        stack = [
            ("/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", 114, "forward"),
            ("/tmp/torchinductor_user/x.py", 3, "call"),
            ("/venv/lib/python3.11/site-packages/transformers/model.py", 12, "forward"),
            ("/home/user/train.py", 40, "step"),
            ("/home/user/train.py", 60, "<module>"),
        ]
        self.assertEqual(
            lines.user_and_inner(stack), ("train.py:40 in step", "model.py:12 in forward")
        )
        self.assertEqual(lines.user_and_inner([]), (None, None))

    def test_the_peak_is_rebuilt(self):
        live = {0: (100, "weights")}
        events = [
            ("alloc", 1, 50, "a"),
            ("alloc", 2, 70, "b"),
            ("free_requested", 1, 50, None),
            ("alloc", 1, 10, "c"),
            ("free_requested", 2, 70, None),
        ]
        most, parts = lines.rebuild_peak(live, events)
        self.assertEqual((most, sorted(parts)), (220, [(50, "a"), (70, "b"), (100, "weights")]))


if __name__ == "__main__":
    unittest.main()
