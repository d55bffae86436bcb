"""A CUDA device without memory, on which `estimate` runs a training step.

Tensors on the device are those of PyTorch's FakeTensorMode: they have a shape, a type and a device,
and no data. Tensors on the CPU stay real. While the device is there, `torch.cuda` describes it and
calls no driver, so no GPU is needed, and none is opened.
"""

import contextlib
import ctypes
import os
import types

import torch
from torch._subclasses import fake_tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .kernel_memory import bytes_while_running
from .nested import changed, tensors_of
from .step_memory import KEPT_ELEMENTS, KEPT_FLOATS, Memory, OperationsOfCuda

# What the fake device says of itself. Its memory is never full.
PROPERTIES = types.SimpleNamespace(
    name="gputop's estimate",
    major=9,
    minor=0,
    total_memory=80 << 30,
    multi_processor_count=132,
    warp_size=32,
    is_integrated=False,
    gcnArchName="",
)


class Stream:
    """A stream or an event of the fake device: everything is done at once."""

    cuda_stream = stream_id = device_index = 0
    device = torch.device("cuda", 0)

    def __init__(self, *arguments, **keywords):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def query(self):
        return True

    def is_capturing(self):
        return False

    def elapsed_time(self, end):
        return 0.0

    def record_event(self, event=None):
        return event or Stream()

    def _nothing(self, *arguments):
        pass

    record = wait = synchronize = wait_event = wait_stream = _nothing


def _constantly(value):
    return lambda *arguments, **keywords: value


# Functions of `torch.cuda` that would ask the driver, and the answers of the fake device.
FUNCTIONS = {
    "is_available": _constantly(True),
    "is_bf16_supported": _constantly(True),
    "is_current_stream_capturing": _constantly(False),
    "device_count": _constantly(1),
    "current_device": _constantly(0),
    "set_device": _constantly(None),
    "_exchange_device": _constantly(0),
    "_maybe_exchange_device": _constantly(0),
    "_lazy_init": _constantly(None),
    "init": _constantly(None),
    "get_device_properties": _constantly(PROPERTIES),
    "get_device_name": _constantly(PROPERTIES.name),
    "get_device_capability": _constantly((PROPERTIES.major, PROPERTIES.minor)),
    "mem_get_info": _constantly((PROPERTIES.total_memory, PROPERTIES.total_memory)),
    "get_rng_state": lambda *arguments: torch.zeros(16, dtype=torch.uint8),
    "set_rng_state": _constantly(None),
    "manual_seed": _constantly(None),
    "manual_seed_all": _constantly(None),
    "seed": _constantly(None),
    "synchronize": _constantly(None),
    "empty_cache": _constantly(None),
    "memory_allocated": _constantly(0),
    "max_memory_allocated": _constantly(0),
    "memory_reserved": _constantly(0),
    "max_memory_reserved": _constantly(0),
    "memory_stats": lambda *arguments: {},
    "reset_peak_memory_stats": _constantly(None),
    "current_stream": lambda *arguments: Stream(),
    "default_stream": lambda *arguments: Stream(),
    "set_stream": _constantly(None),
    "stream": lambda stream: stream or contextlib.nullcontext(),
    "Stream": Stream,
    "Event": Stream,
}


# The same of `torch.accelerator`.
OF_ACCELERATOR = {
    "is_available": _constantly(True),
    "device_count": _constantly(1),
    "current_accelerator": lambda *arguments, **keywords: torch.device("cuda"),
    "current_device_index": _constantly(0),
    "current_device_idx": _constantly(0),
    "set_device_index": _constantly(None),
    "set_device_idx": _constantly(None),
    "current_stream": lambda *arguments: Stream(),
    "set_stream": _constantly(None),
    "synchronize": _constantly(None),
    "empty_cache": _constantly(None),
}
# Random values of weights on the CPU, which need no computing: nothing depends on them.
UNNEEDED = (torch.ops.aten.normal_.default, torch.ops.aten.uniform_.default)


# The symbol of `c10::impl::device_guard_impl_registry`.
DEVICES_OF_C10 = "_ZN3c104impl26device_guard_impl_registryE"


class _FakeMode(fake_tensor.FakeTensorMode):
    """Answers as on a machine without a driver, whatever `torch.cuda` says."""

    avoid_device_init = True


class FakeCuda(TorchDispatchMode):
    """The device: a mode that runs what concerns it without data, and counts its memory.

    Whole numbers and truth values that depend on no weights keep their values, because models look
    at masks and positions.
    """

    name = "cuda"

    def __init__(self, pretends):
        super().__init__()
        # Whether `torch.cuda` has to be told of the device, because the process uses no GPU.
        self.pretends = pretends
        self.fake = _FakeMode(allow_non_fake_inputs=True)
        self.memory = Memory("cuda")
        self.is_installed = self.is_guessing = False
        # Parameters of modules that were moved, and their successors, by their IDs.
        self.moved = {}
        # The names of the operations that ran, and the type of the last autocast.
        self.operations = set()
        self.autocast = None
        # The engine of autograd would ask the driver for streams of a CUDA device.
        self.is_in_engine = False

    @contextlib.contextmanager
    def running(self):
        with self.installed():
            yield

    @contextlib.contextmanager
    def installed(self):
        """The device is there."""
        if self.is_installed:
            yield
            return
        self.is_installed = True
        try:
            described = self.described() if self.pretends else contextlib.nullcontext()
            with described, self.followed():
                yield
        finally:
            self.is_installed = False

    @contextlib.contextmanager
    def followed(self):
        """Operations run on the device."""
        saved_engine = self.wrap_engine()
        # One thread sees all operations. cuDNN has functions of its own for recurrent layers, which
        # need data.
        try:
            with torch.autograd.set_multithreading_enabled(False), OperationsOfCuda(
                self
            ), self, torch.backends.cudnn.flags(enabled=False):
                yield
        finally:
            for owner, name, value in saved_engine:
                setattr(owner, name, value)

    @contextlib.contextmanager
    def described(self):
        """`torch.cuda` describes the device, and PyTorch asks no driver."""
        saved = []
        for module, functions in (
            (torch.cuda, FUNCTIONS),
            (getattr(torch, "accelerator", None), OF_ACCELERATOR),
        ):
            for name, value in functions.items():
                if hasattr(module, name):
                    saved.append((module, name, getattr(module, name)))
                    setattr(module, name, value)
        inits = [
            name for name in ("init_gpu_context", "init_cuda_context") if hasattr(fake_tensor, name)
        ]
        saved_inits = {name: getattr(fake_tensor, name) for name in inits}
        for name in inits:
            setattr(fake_tensor, name, _constantly(None))
        was_lifting = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)
        _hide_accelerator()
        move = torch.nn.Module._apply
        torch.nn.Module._apply = self.wrap_moving(move)
        try:
            with _no_driver():
                yield
        finally:
            torch.nn.Module._apply = move
            torch._C._set_only_lift_cpu_tensors(was_lifting)
            for module, name, value in saved:
                setattr(module, name, value)
            for name, value in saved_inits.items():
                setattr(fake_tensor, name, value)

    def wrap_engine(self):
        """Replaces the functions through which Python calls the engine of autograd, and it calls
        Python. Returns those that were there.
        """
        graph, function = torch.autograd.graph, torch.autograd.function
        run = graph._engine_run_backward
        apply = function.BackwardCFunction.apply
        enter = graph.saved_tensors_hooks.__enter__

        def inside(is_inside, call):
            def wrapped(*arguments, **keywords):
                before, self.is_in_engine = self.is_in_engine, is_inside and self.pretends
                try:
                    # The engine runs where the mode of operations is switched off.
                    with contextlib.nullcontext() if is_inside else OperationsOfCuda(self):
                        return call(*arguments, **keywords)
                finally:
                    self.is_in_engine = before

            return wrapped

        def enter_hooks(hooks):
            hooks.unpack_hook = inside(False, hooks.unpack_hook)
            return enter(hooks)

        changes = (
            (graph, "_engine_run_backward", run, inside(True, run)),
            (torch.autograd, "_engine_run_backward", run, inside(True, run)),
            (function.BackwardCFunction, "apply", apply, inside(False, apply)),
            (graph.saved_tensors_hooks, "__enter__", enter, enter_hooks),
        )
        for owner, name, _, value in changes:
            setattr(owner, name, value)
        return [change[:3] for change in changes]

    def wrap_moving(self, move):
        """Replaces the function that moves a module. PyTorch keeps the parameters of a module that
        moves to a GPU; here it makes others. They stay shared between modules, and known for an
        optimizer.
        """

        def moved(module, *arguments, **keywords):
            before = dict(module._parameters)
            result = move(module, *arguments, **keywords)
            for name, old in before.items():
                new = module._parameters[name]
                if new is old:
                    continue
                # The old one is kept, because its ID may be used again.
                module._parameters[name] = self.moved.setdefault(id(old), (old, new))[1]
            return result

        return moved

    def latest(self, tensor):
        """The parameter that a parameter has become."""
        while id(tensor) in self.moved:
            tensor = self.moved[id(tensor)][1]
        return tensor

    def forget(self):
        """Another model is estimated."""
        self.moved.clear()
        self.operations.clear()
        self.autocast = None

    @contextlib.contextmanager
    def guessing(self):
        """The optimizer runs: a number that it reads from a tensor is 1, because the memory of its
        state does not depend on numbers.
        """
        self.is_guessing = True
        try:
            yield
        finally:
            self.is_guessing = False

    def tensor(self, like, shape=None, value=None):
        """A new tensor of the device, with the type of another."""
        with self.fake:
            if shape is None and not like.is_sparse:
                made = torch.empty_strided(
                    like.shape, like.stride(), dtype=like.dtype, device="cuda"
                )
            else:
                made = torch.empty(
                    like.shape if shape is None else shape, dtype=like.dtype, device="cuda"
                )
        self.memory.add(made)
        self.keep(made, value)
        return made

    @staticmethod
    def is_here(tensor):
        return isinstance(tensor, fake_tensor.FakeTensor) and tensor.device.type == "cuda"

    @staticmethod
    def value(tensor):
        """The values of a tensor, on the CPU. None: they are not known."""
        if isinstance(tensor, fake_tensor.FakeTensor):
            return getattr(tensor, "gputop_value", None)
        return None if tensor.device.type == "meta" else tensor

    @staticmethod
    def keep(tensor, value):
        """Keeps the values of a tensor, if they are few."""
        if value is None or not isinstance(tensor, fake_tensor.FakeTensor):
            return
        limit = KEPT_FLOATS if value.is_floating_point() else KEPT_ELEMENTS
        if value.numel() <= limit:
            tensor.gputop_value = value

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        keywords = keywords or {}
        if function is torch.ops.prim.device.default:
            # PyTorch's C++ asks.
            return torch.device("meta") if self.is_in_engine else arguments[0].fake_device
        name = function.__name__
        if name.startswith(("_pin_memory.", "is_pinned.")):
            return arguments[0] if name.startswith("_pin") else False
        device = keywords.get("device")
        is_fake = device is not None and torch.device(device).type == "cuda"
        if self.is_in_engine and device is not None and torch.device(device).type == "meta":
            keywords, is_fake = dict(keywords, device=torch.device("cuda", 0)), True
        tensors = tensors_of((arguments, keywords))
        self.operations.add(name.split(".")[0])
        is_fake = is_fake or any(isinstance(tensor, fake_tensor.FakeTensor) for tensor in tensors)
        if not is_fake:
            return self.on_cpu(function, tensors, arguments, keywords)
        values = self.computed(function, tensors, arguments, keywords)
        if function is torch.ops.aten._to_copy.default and not isinstance(
            arguments[0], fake_tensor.FakeTensor
        ):
            # FakeTensorMode would remember the tensor, so that it could not be swapped.
            arguments = (self.unnoticed(arguments[0]),) + tuple(arguments[1:])
        try:
            with self.fake:
                result = function(*arguments, **keywords)
        except (
            fake_tensor.DataDependentOutputException,
            fake_tensor.DynamicOutputShapeException,
        ):
            if values is None and self.is_guessing and name.startswith("_local_scalar_dense"):
                return 1.0 if arguments[0].is_floating_point() else 1
            if values is None:
                raise
            result = changed(values, lambda value: self.tensor(value, value=value))
        else:
            self.keep_all(result, values)
        if name.split(".")[0].endswith("_") and isinstance(arguments[0], torch.Tensor):
            # Also where it is a real tensor, into which one of the device was copied.
            result = arguments[0]
        self.memory.add_all(result)
        if self.is_counted(result):
            self.memory.momentary(bytes_while_running(function, arguments, result))
        return result

    def is_counted(self, result):
        first = result[0] if isinstance(result, (list, tuple)) and result else result
        return isinstance(first, torch.Tensor) and self.is_here(first)

    def on_cpu(self, function, tensors, arguments, keywords):
        """Runs an operation on real tensors. Random weights of large tensors are not needed."""
        if (
            function in UNNEEDED
            and arguments[0].numel() > KEPT_FLOATS
            and arguments[0].is_floating_point()
        ):
            return arguments[0]
        return function(*arguments, **keywords)

    def unnoticed(self, tensor):
        with self.fake:
            return torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
            )

    def computed(self, function, tensors, arguments, keywords):
        """The values of a result, where those of all arguments are kept. None: they are not.
        Values that change are changed.
        """
        if not isinstance(function, torch._ops.OpOverload):
            return None
        is_mutable = function._schema.is_mutable
        values = [self.value(tensor) for tensor in tensors]
        if (
            any(value is None for value in values)
            or torch.Tag.nondeterministic_seeded in function.tags
            or "empty" in function._schema.name
            or sum(value.numel() for value in values) > KEPT_ELEMENTS
            or any(value.requires_grad for value in values)
        ):
            if is_mutable:
                for tensor in tensors:
                    if hasattr(tensor, "gputop_value"):
                        del tensor.gputop_value
            return None
        given, named = changed((arguments, keywords), self.value)
        if named.get("device") is not None:
            named = dict(named, device=torch.device("cpu"))
        try:
            if not tensors and _elements(function, arguments) > KEPT_ELEMENTS:
                return None
            return function(*given, **named)
        except Exception:
            return None

    def keep_all(self, result, values):
        if isinstance(result, torch.Tensor):
            if isinstance(values, torch.Tensor):
                self.keep(result, values)
        elif isinstance(result, (list, tuple)) and isinstance(values, (list, tuple)):
            for one, value in zip(result, values):
                self.keep_all(one, value)


def _elements(function, arguments):
    """The number of elements that a function without tensors makes."""
    with torch.device("meta"):
        made = function(*arguments)
    return sum(tensor.numel() for tensor in tensors_of(made))


@contextlib.contextmanager
def _no_driver():
    """Lets PyTorch's C++ ask nothing of CUDA about streams and devices: in its table of devices,
    CUDA gets the entry of the meta device, which has none. A PyTorch for the CPU has no entry of
    CUDA.
    """
    library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"))
    kinds = torch._C._autograd.DeviceType
    table = (ctypes.c_void_p * (int(kinds.Meta) + 1)).in_dll(library, DEVICES_OF_C10)
    before = table[int(kinds.CUDA)]
    table[int(kinds.CUDA)] = table[int(kinds.Meta)]
    try:
        yield
    finally:
        table[int(kinds.CUDA)] = before


def _hide_accelerator():
    """Lets a PyTorch with CUDA take another device for its accelerator, so that autograd asks no
    driver for streams.
    """
    if torch.backends.cuda.is_built() and torch._C._get_privateuse1_backend_name() == (
        "privateuseone"
    ):
        torch.utils.rename_privateuse1_backend("gputop")
        module = types.ModuleType("torch.gputop")
        vars(module).update(FUNCTIONS)
        torch._register_device_module("gputop", module)
