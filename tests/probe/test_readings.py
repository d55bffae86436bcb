"""Tests of what the probe reads and publishes, without torch: python3 -m unittest discover -s
tests/probe
"""

import ctypes
import gc
import json
import os
import struct
import sys
import tempfile
import threading
import types
import unittest
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "assets/probe"))

from gputop_probe import (
    allocator,
    changes,
    files,
    labels,
    next_event,
    objects,
    publish,
    readings,
    requests,
    steps,
)  # noqa: E402


def block(size, state="active_allocated", **more):
    return dict(size=size, state=state, **more)


def segment(address, *blocks, **more):
    return dict(
        device=0,
        address=address,
        total_size=sum(it["size"] for it in blocks),
        blocks=list(blocks),
        **more,
    )


class Tensor:
    """A tensor at an address, with what the probe asks a tensor for."""

    is_cuda = property(lambda self: True)
    grad_fn = property(lambda self: self.operation)
    is_leaf = property(lambda self: self.operation is None)
    _version = property(lambda self: 0)
    requires_grad = property(lambda self: True)
    is_sparse, dtype = False, "torch.float32"

    def __init__(self, address, count=64, operation=None, grad=None):
        self.address, self.count, self.operation, self.grad = address, count, operation, grad
        self.shape = (count,)

    def _is_view(self):
        return False

    keep = staticmethod(lambda tensor: None)

    def _fix_weakref(self):
        self.keep(self)

    def data_ptr(self):
        return self.address

    def numel(self):
        return self.count

    def element_size(self):
        return 4


class Parameter(Tensor):
    pass


class Module:
    def __init__(self, parameters=(), buffers=()):
        self._parameters, self._buffers = dict(enumerate(parameters)), dict(enumerate(buffers))


class Optimizer:
    def __init__(self, parameters, state=()):
        self.param_groups = [{"params": list(parameters)}]
        self.state = {number: dict(values) for number, values in enumerate(state)}


class Guard:
    def __enter__(self):
        pass

    def __exit__(self, *error):
        pass


def torch(snapshot=None, stats=None, version="2.5.1"):
    inner = types.SimpleNamespace(
        _cuda_memorySnapshot=snapshot, _cuda_memoryStats=stats, DisableTorchFunction=Guard
    )
    network = types.SimpleNamespace(Parameter=Parameter, Module=Module)
    return types.SimpleNamespace(
        __version__=version,
        Tensor=Tensor,
        nn=network,
        optim=types.SimpleNamespace(Optimizer=Optimizer),
        _C=inner,
    )


def read(segments):
    return allocator.Allocator(torch(lambda: {"segments": segments})).read()


class AllocatorTest(unittest.TestCase):
    def test_each_byte_is_in_one_place(self):
        blocks = read(
            [
                segment(
                    4096,
                    block(1024, requested_size=1000),
                    block(512, "active_pending_free", requested_size=500),
                    block(2560, "inactive"),
                ),
                segment(1 << 20, block(4096, "inactive")),
                segment(1 << 21, block(512), block(512, "inactive"), segment_pool_id=(0, 1)),
                segment(1 << 22, block(512), block(1024, "inactive"), is_expandable=True),
            ]
        )
        memory = blocks.devices[0]
        self.assertEqual((memory.allocated, memory.reserved, memory.requested), (2048, 10752, 1500))
        self.assertEqual(
            memory.free, {"pending": 512, "fragmentation": 2560, "cache": 5120, "graph_pools": 512}
        )
        self.assertEqual(blocks.private, [False, True, False])
        self.assertEqual(
            [blocks.find(4096), blocks.find(5119), blocks.find(5120), blocks.find(100)],
            [0, 0, None, None],
        )

    def test_pytorch_1_13_gives_a_list_of_segments(self):
        blocks = allocator.Allocator(torch(lambda: [segment(4096, block(512))])).read()
        self.assertEqual((blocks.devices[0].allocated, blocks.devices[0].requested), (512, None))

    def test_a_call_that_the_version_does_not_know_is_not_repeated(self):
        calls = []

        def snapshot(*arguments):
            calls.append(arguments)
            if len(arguments) != 1 or type(arguments[0]) is tuple and len(arguments[0]) != 2:
                raise TypeError
            return {"segments": []}

        reader = allocator.Allocator(torch(snapshot))
        reader.read(), reader.read()
        self.assertEqual(calls, [((0, 0, False),), ((0, 0),), ((0, 0),)])


class CategoriesTest(unittest.TestCase):
    def test_the_first_label_that_fits_counts_and_all_add_up(self):
        weight = Parameter(4096, grad=Tensor(4608))
        frozen, moment, mean = Parameter(5120), Tensor(5632), Tensor(6144)
        optimizer = Optimizer([weight], [{"exp_avg": moment, "step": 3}])
        module = Module([weight, frozen], [mean])
        inputs, output = Tensor(6656, 32), Tensor(7168, operation=object())
        names = [
            "parameters",
            "gradients",
            "parameters",
            "optimizer_state",
            "buffers",
            "named_tensors",
            "activations",
            "activations",
        ]
        blocks = read(
            [
                segment(
                    4096, *(block(512, requested_size=256) for _ in names), block(512, "inactive")
                )
            ]
        )
        world = torch()
        known = labels.Labels(world, objects.TensorReader(world), steps.Steps())
        kept = [optimizer, module, inputs, output]
        found = known.scan(blocks, None)
        history = readings.History()
        history.first_tick = 0
        history.note(blocks, 10)
        reading = readings.Reading(10, "step_end")
        readings.sum_up(reading, blocks, found, history, True)
        categories = reading.devices[0].categories
        expected = {name: 512 * names.count(name) for name in set(names)}
        self.assertEqual({name: categories[name] for name in expected}, expected)
        self.assertEqual(sum(categories.values()), blocks.devices[0].reserved)
        self.assertEqual(reading.devices[0].optimizer_state, {"exp_avg": 512})
        # The last block has no tensor.
        self.assertEqual(reading.hidden, 512)
        parts = {label.shape: label.is_part for (_, label, size) in reading.groups if size is None}
        self.assertEqual(parts, {(64,): False, (32,): True})
        del kept

    def test_a_hidden_block_of_the_first_steps_belongs_to_a_library(self):
        history = readings.History()
        early, later = read([segment(0, block(512))]), read([segment(0, block(512), block(1024))])
        for tick, blocks in ((1, early), (2, early), (3, later), (4, later)):
            history.note(blocks, tick)
            history.find_libraries(blocks, {}, tick, True, False)
        self.assertEqual(history.libraries, {0: 512})
        for tick in range(5, 40):
            history.note(later, tick)
            history.find_libraries(later, {}, tick, True, False)
        # It came later, and no more of its size came since.
        self.assertEqual(history.libraries, {0: 512, 512: 1024})

    def test_a_block_of_a_program_without_steps_is_nothing_until_it_was_looked_at(self):
        history = readings.History()

        def category_of(step, *addresses):
            blocks = read([segment(at, block(512), block(512)) for at in addresses])
            reading = readings.Reading(step, "any")
            readings.sum_up(reading, blocks, {}, history, True)
            amounts = reading.devices[0].categories
            return {name: size for name, size in amounts.items() if size}, blocks

        found, blocks = category_of(None, 4096)
        self.assertEqual(found, {"not_looked_at": 1024})
        history.note(blocks, 1)
        history.find_libraries(blocks, {}, 1, False, False)
        found, _ = category_of(None, 4096, 1 << 20)
        self.assertEqual(found, {"activations": 1024, "not_looked_at": 1024})
        # Each step makes activations.
        self.assertEqual(category_of(4, 1 << 20)[0], {"activations": 1024})

    def test_groups_change_since_a_mark(self):
        label, found = (
            labels.Label("named_tensors", None, (64,), "float32", False),
            changes.Changes(),
        )

        def reading(step, count):
            it = readings.Reading(step, "step_end")
            group = readings.Group()
            group.count, group.bytes, group.first_seen = count, 512 * count, 1
            it.groups = {(0, label, None): group}
            return it

        found.mark("before", reading(10, 3))
        found.publish(reading(11, 4))
        (entry,) = found.publish(reading(12, 7))["groups"]
        self.assertEqual(
            [entry[name] for name in ("count", "count_change", "bytes_change", "age_steps")],
            [7, 4, 2048, 11],
        )
        found.unmark()
        self.assertEqual(found.publish(reading(13, 9))["groups"][0]["count_change"], 2)


class ReferenceTest(unittest.TestCase):
    def test_the_reference_that_pytorch_1_13_adds_is_taken_back(self):
        tensor = Tensor(512)
        tensor.keep = lambda it: ctypes.pythonapi.Py_IncRef(ctypes.py_object(it))
        before = sys.getrefcount(tensor)
        objects.TensorReader(torch(version="1.13.1+cu117")).claim([tensor])
        self.assertEqual(sys.getrefcount(tensor), before)
        tensor.keep = lambda it: None
        objects.TensorReader(torch()).claim([tensor])
        self.assertEqual(sys.getrefcount(tensor), before)


class StepsTest(unittest.TestCase):
    def count(self, calls):
        """The steps that end with each call, and their number."""
        found = steps.Steps()
        return [found.note(optimizer) for optimizer in calls], found.count

    def test_one_optimizer(self):
        optimizer = Optimizer([Parameter(0)])
        self.assertEqual(self.count([optimizer] * 3), ([True] * 3, 3))

    def test_two_optimizers_take_turns(self):
        first, second = Optimizer([Parameter(0)]), Optimizer([Parameter(512)])
        ends, count = self.count([first, second] * 3)
        self.assertEqual((ends[2:], count), ([False, True, False, True], 3))

    def test_an_optimizer_for_each_step(self):
        parameter = Parameter(0)
        self.assertEqual(self.count([Optimizer([parameter]) for _ in range(4)])[1], 4)


class NextEventTest(unittest.TestCase):
    @unittest.skipIf(sys.version_info < (3, 12), "sys.monitoring is new in Python 3.12")
    def test_the_next_event_of_another_thread_calls_once_and_frees_the_tool(self):
        called = []
        event = next_event.NextEvent(lambda: called.append(threading.get_ident()))
        self.assertTrue(event.switch_on())
        # This thread stands for the probe's own.
        sum(number for number in range(3))
        self.assertEqual(called, [])
        worker = threading.Thread(target=lambda: [str(number) for number in range(3)])
        worker.start()
        worker.join()
        self.assertEqual(len(called), 1)
        self.assertNotEqual(called, [threading.get_ident()])
        self.assertFalse(event.is_on())
        self.assertIsNone(sys.monitoring.get_tool(3))

    def test_before_python_3_12_there_is_no_event(self):
        if sys.version_info < (3, 12):
            self.assertFalse(next_event.NextEvent(None).switch_on())


class OwnFileTest(unittest.TestCase):
    def test_a_number_that_is_a_file_of_the_program_by_now_is_neither_written_nor_closed(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path, other = os.path.join(folder.name, "own"), os.path.join(folder.name, "other")
        with files.OwnFile(path, os.O_RDWR | os.O_CREAT) as own:
            own.write(b"text")
            os.close(own.number)
            program = os.open(other, os.O_RDWR | os.O_CREAT)
            self.assertEqual(program, own.number)
            with self.assertRaises(OSError):
                own.write(b"more")
            with self.assertRaises(OSError):
                own.read(4)
        self.assertEqual(os.fstat(program).st_size, 0)
        os.close(program)
        with files.OwnFile(path, os.O_RDONLY) as own:
            os.close(own.number)
        self.assertEqual(files.read(path, 3), b"tex")
        self.assertEqual(os.stat(path).st_size, 4)


class PublishTest(unittest.TestCase):
    def test_a_memfd_is_mapped_without_a_descriptor_and_never_closed(self):
        def open_numbers():
            return {number for number in range(256) if files.identify(number)}

        before = open_numbers()
        memory = publish.Memfd(*publish.STATE)
        number = memory.descriptor
        self.assertEqual(open_numbers() - before, {number})
        os.close(number)
        self.assertFalse(memory.is_open())
        self.assertEqual(os.open("/dev/null", os.O_RDONLY), number)
        self.assertFalse(memory.is_open())
        memory.write(b"{}")
        del memory
        gc.collect()
        os.close(number)

    def test_a_payload_that_is_too_long_is_refused(self):
        memory = publish.Memfd("gputop-test", b"gputopP1", 4096)
        memory.write(b"x" * memory.room())
        with self.assertRaises(ValueError):
            memory.write(b"x" * (memory.room() + 1))

    def test_the_payload_follows_a_header_that_names_this_process(self):
        memory = publish.Memfd("gputop-test", b"gputopP1", 4096)
        memory.write(b'{"version":1}')
        header = struct.unpack_from("<8sIIQQII", os.pread(memory.descriptor, 64, 0))
        self.assertEqual(
            header,
            (
                b"gputopP1",
                4096,
                os.getpid(),
                publish.owner()[1],
                2,
                13,
                zlib.crc32(b'{"version":1}'),
            ),
        )
        self.assertTrue(memory.is_open())

    def test_a_request_is_read_once_and_a_torn_one_never(self):
        inbox = publish.Memfd("gputop-test", b"gputopR1", 4096)

        def send(sequence, payload, checksum=None):
            os.pwrite(inbox.descriptor, payload, 64)
            header = (
                b"gputopR1",
                4096,
                *inbox.owner,
                sequence,
                len(payload),
                zlib.crc32(payload) if checksum is None else checksum,
            )
            os.pwrite(inbox.descriptor, publish.HEADER.pack(*header), 0)

        send(2, b'{"id":1,"request":"mark"}')
        self.assertEqual((inbox.read_new(), inbox.read_new()), ({"id": 1, "request": "mark"}, None))
        for number, checksum in ((3, None), (4, 0)):
            send(number, b"{}", checksum)
            self.assertIsNone(inbox.read_new())

    def test_an_unknown_request_and_an_error_are_answered(self):
        found = requests.Requests()
        found.handle({"id": 1, "request": "dance"})
        self.assertEqual(
            found.answer, {"id": 1, "request": "dance", "ok": False, "error": "unknown request"}
        )
        found.on("mark", lambda request: request.answer(step=json.loads("3")))
        found.handle({"id": 2, "request": "mark"})
        self.assertEqual((found.answer["ok"], found.answer["step"]), (True, 3))


if __name__ == "__main__":
    unittest.main()
