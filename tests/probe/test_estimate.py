"""Tests of estimates without torch: python3 -m unittest discover -s tests/probe"""

import json
import sys
import types
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "assets/probe"))

import estimate_command  # noqa: E402
from gputop_probe import estimates, measurement  # noqa: E402


class LargestBatch(unittest.TestCase):
    def check(self, peak_of, batch, slope, room, expected):
        calls = []

        def counted(count):
            calls.append(count)
            return peak_of(count)

        self.assertEqual(estimates._largest(counted, batch, peak_of(batch), slope, room), expected)
        self.assertLess(len(calls), 40)

    def test_a_line_is_found(self):
        self.check(lambda count: 1000 + 70 * count, 8, 70, 71000, 1000)
        self.check(lambda count: 1000 + 70 * count, 2000, 70, 71000, 1000)

    def test_the_optimizer_decides_in_small_batches(self):
        # The slope is that of large batches.
        self.check(lambda count: max(50000, 1000 + 70 * count), 8, 70, 71000, 1000)
        self.check(lambda count: max(50000, 1000 + 70 * count), 8, 70, 50000, 700)
        # A slope that was measured in a small batch is much too small.
        self.check(lambda count: max(50000, 1000 + 70 * count), 8, 1, 71000, 1000)

    def test_nothing_fits(self):
        self.check(lambda count: 1000 + 70 * count, 8, 70, 900, 0)
        self.check(lambda count: 1000 + 70 * count, 8, 70, 1070, 1)

    def test_an_unlimited_batch_has_no_number(self):
        self.check(lambda count: 1000, 8, 0, 5000, None)
        self.check(lambda count: 1000, 8, 0.001, 5000, None)


class Measured(unittest.TestCase):
    def test_two_measured_steps_give_the_batch_that_fits(self):
        mib = 1 << 20
        found = measurement.measured((16, 1600 * mib), (8, 900 * mib), gpu_bytes=10000 * mib)
        self.assertEqual(found.per_sample, 87.5 * mib)
        self.assertEqual(found.fixed, 200 * mib)
        self.assertEqual(found.largest_batch, int((9700 - 800 - 200) / 87.5))
        self.assertTrue(json.loads(found.json())["measured"])
        self.assertIn("largest batch", str(found))
        with self.assertRaises(ValueError):
            measurement.measured((8, 1), (8, 2))


class FakeTensor:
    def __init__(self, *shape):
        self.shape = shape

    def dim(self):
        return len(self.shape)

    def to(self, device):
        return self

    def __getitem__(self, rows):
        return FakeTensor(rows.stop, *self.shape[1:])


class Measure(unittest.TestCase):
    def measure(self, shape):
        """Measures a model whose steps need 1000 bytes and 10 for each sample."""
        batches, peaks = [], [0]

        class Model:
            def to(self, device):
                batches.append(device)

            def parameters(self):
                return []

            def __call__(self, inputs):
                batches.append(inputs.shape[0])
                peaks[0] = max(peaks[0], 1000 + 10 * inputs.shape[0])
                return inputs

        torch = types.ModuleType("torch")
        torch.Tensor = FakeTensor
        torch.cat = lambda tensors: FakeTensor(
            sum(tensor.shape[0] for tensor in tensors), *tensors[0].shape[1:]
        )
        torch.set_grad_enabled = lambda is_enabled: mock.MagicMock()
        torch.optim = types.SimpleNamespace(Optimizer=FakeTensor)
        torch.cuda = types.SimpleNamespace(
            is_available=lambda: True,
            reset_peak_memory_stats=lambda: peaks.__setitem__(0, 0),
            max_memory_allocated=lambda: peaks[0],
        )
        with mock.patch.dict(sys.modules, {"torch": torch}):
            model, inputs = Model(), FakeTensor(*shape)
            return measurement.measure_training(model, inputs, optimizer=None), batches

    def test_two_batches_give_the_slope(self):
        found, batches = self.measure((32, 3))
        self.assertEqual(batches, ["cuda", 16, 16, 32, 32])
        self.assertEqual(
            (found.parts, found.batch, found.per_sample), ({"peak": 1320, "fixed": 1000}, 32, 10)
        )
        self.assertTrue(found.measured)
        gib = 1 << 30
        self.assertEqual(found.largest(gib), int((gib * 0.97 - (800 << 20) - 1000) / 10))
        self.assertEqual(found.largest(800 << 20), 0)

    def test_a_single_sample_is_doubled(self):
        found, batches = self.measure((1, 3))
        self.assertEqual((batches[1:], found.per_sample), ([1, 1, 2, 2], 10))


class Parameters(unittest.TestCase):
    """The values of `--sweep` go to the parameters that a function has."""

    def accepted(self, function, **parameters):
        return estimate_command.accepted(function, "build", parameters)

    def test_a_function_gets_its_parameters(self):
        def build(batch, *, length=512):
            pass

        wanted = {"batch": 2, "length": 8}
        self.assertEqual(self.accepted(build, **wanted), (wanted, None))
        self.assertEqual(self.accepted(lambda **options: None, **wanted), (wanted, None))

    def test_a_batch_that_it_lacks_is_that_of_its_inputs(self):
        self.assertEqual(self.accepted(lambda length: None, batch=2, length=8), ({"length": 8}, 2))
        self.assertEqual(self.accepted(lambda: None), ({}, None))

    def test_another_name_is_refused(self):
        with self.assertRaises(estimate_command.Failure) as raised:
            self.accepted(lambda length, *rest: None, width=8)
        self.assertEqual(
            str(raised.exception), "build() has no parameter width to sweep; its parameters: length"
        )


if __name__ == "__main__":
    unittest.main()
