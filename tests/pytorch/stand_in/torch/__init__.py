"""A stand-in for PyTorch, for tests of the probe on machines without it: a few tensors, an
allocator that counts them, an optimizer.

The names are those of PyTorch that the probe uses.
"""

import os

if os.environ.get("STAND_IN_FAILS"):
    raise ImportError("libcudart.so.12: cannot open shared object file")

from . import _C  # noqa: E402

__version__ = "2.99.0"


class _Device:
    index = 0


class Tensor:
    device = _Device()
    grad = None
    is_leaf = property(lambda self: True)
    grad_fn = property(lambda self: None)
    requires_grad = property(lambda self: False)
    _version = property(lambda self: 0)

    def __init__(self, *shape, dtype="torch.float32"):
        self.shape, self.dtype = shape, dtype
        self._address = _C.allocate(self.numel() * 4)

    def __del__(self):
        _C.free(self._address)

    @property
    def is_cuda(self):
        return True

    def _is_view(self):
        return False

    def data_ptr(self):
        return self._address

    def numel(self):
        count = 1
        for size in self.shape:
            count *= size
        return count

    def element_size(self):
        return 4

    def _fix_weakref(self):
        pass


def empty(*shape):
    cuda._lazy_init()
    return Tensor(*shape)


from . import cuda, nn, optim  # noqa: E402, F401, I001
import torch._last  # noqa: E402, F401
