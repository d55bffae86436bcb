"""PyTorch's meta device, on which `estimate` runs a training step where PyTorch is older than 2.6:
without autocast, and without what a model asks of CUDA.
"""

import contextlib

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .step_memory import Memory, OperationsOfCuda


class MetaDevice(TorchDispatchMode):
    """Counts the memory of tensors on the meta device."""

    name = "meta"

    def __init__(self):
        super().__init__()
        self.memory = Memory("meta")
        self.operations = set()

    @contextlib.contextmanager
    def installed(self):
        yield

    @contextlib.contextmanager
    def running(self):
        with OperationsOfCuda(self), self:
            yield

    @contextlib.contextmanager
    def guessing(self):
        """The optimizer runs."""
        yield

    def tensor(self, like, shape=None, value=None):
        """A new tensor of the device, with the type of another."""
        if shape is None:
            made = torch.empty_like(like, device="meta")
        else:
            made = torch.empty(shape, dtype=like.dtype, device="meta")
        self.memory.add(made)
        return made

    @staticmethod
    def latest(tensor):
        """The parameter that a parameter has become."""
        return tensor

    @staticmethod
    def value(tensor):
        return None

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        self.operations.add(function.__name__.split(".")[0])
        result = function(*arguments, **(keywords or {}))
        self.memory.add_all(result)
        return result
