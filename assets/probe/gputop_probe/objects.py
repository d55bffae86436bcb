"""Finds the live modules, optimizers and tensors of the program, and looks into tensors without
running code of the program.
"""

import contextlib
import ctypes
import gc
from collections import deque
from itertools import compress
from operator import not_

from .trouble import pass_on_if_foreign


@contextlib.contextmanager
def without_collections():
    """The many small objects of a reading, a census or a pass, which soon die, would start a
    collection of all objects.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def with_subclasses(base):
    """The class and all its subclasses. Types are looked at rather than objects: `isinstance`
    believes proxies.
    """
    found, waiting = set(), [base]
    while waiting:
        kind = waiting.pop()
        if kind not in found:
            found.add(kind)
            waiting += type.__subclasses__(kind)
    return found


def live_objects(types):
    """All objects of exactly these types that Python's garbage collector tracks. Takes about 0.1 ms
    per 1000 objects of the process.

    The list of all objects lives as short as possible: each object whose owner drops it meanwhile
    dies with the list. Nothing here may be in a reference cycle with it (as itertools.tee would
    be).
    """
    objects = gc.get_objects()
    found = list(compress(objects, map(types.__contains__, map(type, objects))))
    del objects
    return found


class TensorReader:
    """Reads addresses, shapes and types of CUDA tensors.

    Call it inside `with reader.guard():`, which keeps subclasses and modes of the program from
    seeing the access. The methods are those of torch.Tensor, so that subclasses cannot replace
    them.
    """

    def __init__(self, torch):
        self.tensor = tensor = torch.Tensor
        self.guard = torch._C.DisableTorchFunction
        self.is_cuda = tensor.is_cuda.__get__
        self.data_ptr = tensor.data_ptr
        self._grad_fn, self._is_leaf = tensor.grad_fn.__get__, tensor.is_leaf.__get__
        self._requires_grad, self._version, self._is_view = (
            tensor.requires_grad.__get__,
            tensor._version.__get__,
            tensor._is_view,
        )
        self.known_types = {tensor, torch.nn.Parameter}
        self.dtypes = {}
        # In PyTorch 1.13, each call of `_fix_weakref` adds a reference that nothing takes back.
        self._keeps_reference = str(torch.__version__).startswith("1.")

    def claim(self, tensors):
        """Makes Python the owner of tensors that were just found: otherwise their owners in C++
        could free the objects.
        """
        deque(map(self.tensor._fix_weakref, tensors), 0)
        if self._keeps_reference:
            for tensor in tensors:
                ctypes.pythonapi.Py_DecRef(ctypes.py_object(tensor))

    def is_tensor(self, value):
        return type(value) in self.known_types or issubclass(type(value), self.tensor)

    def grad_fn(self, tensor):
        """The operation that made a tensor. None: there is none, or it cannot be read."""
        try:
            return None if self._is_modified_view(tensor) else self._grad_fn(tensor)
        except Exception as error:
            pass_on_if_foreign(error)
            return None

    def has_history(self, tensor):
        """Whether the tensor was made by an operation that backward() goes through."""
        try:
            return (
                self._requires_grad(tensor)
                if self._is_modified_view(tensor)
                else not self._is_leaf(tensor)
            )
        except Exception as error:
            pass_on_if_foreign(error)
            return False

    def _is_modified_view(self, tensor):
        """Whether the tensor is a view of memory that was modified in place.

        When `grad_fn` or `is_leaf` of it is read, PyTorch may make a new operation for it, or
        raise.
        """
        return self._is_view(tensor) and self._version(tensor) > 0

    def pieces(self, tensor, depth=3):
        """Yields (address, tensor) for each piece of GPU memory behind a tensor."""
        address = 0
        try:
            if not self.is_cuda(tensor):
                return
            if type(tensor).__module__.startswith("torch._subclasses"):
                # Fake tensors of torch.compile have no memory, and warn.
                return
            address = self.data_ptr(tensor)
        except Exception as error:
            # No storage: a wrapper, a sparse tensor, or one inside a transformation of torch.func.
            pass_on_if_foreign(error)
        if address:
            yield address, tensor
        elif depth:
            for inner in self._inner(tensor):
                yield from self.pieces(inner, depth - 1)

    def survey(self, tensors):
        """Returns the tensors with GPU memory as three lists: addresses, tensors, and whether each
        has a history. Most of it runs in C: a program may have 100,000 tensors.
        """
        addresses, found, histories, others = [], [], [], tensors
        try:
            plain = list(compress(tensors, map(self.known_types.__contains__, map(type, tensors))))
            plain = list(compress(plain, map(self.is_cuda, plain)))
            numbers = list(map(self.data_ptr, plain))
            # The history of a view may not be read, see below.
            views = list(map(self._is_view, plain))
            owned = [bool(number) and not view for number, view in zip(numbers, views)]
            found = list(compress(plain, owned))
            addresses = list(compress(numbers, owned))
            histories = list(map(not_, map(self._is_leaf, found)))
            rest = [not is_owned for is_owned in owned]
            others = list(compress(plain, rest)) + [
                tensor for tensor in tensors if type(tensor) not in self.known_types
            ]
        except Exception as error:
            # One without a storage: each is looked at by itself.
            pass_on_if_foreign(error)
            addresses, found, histories = [], [], []
        for tensor in others:
            for address, piece in self.pieces(tensor):
                addresses.append(address)
                found.append(piece)
                histories.append(self.has_history(piece))
        return addresses, found, histories

    def _inner(self, tensor):
        """The tensors inside a sparse tensor, or inside a wrapper such as DTensor."""
        if type(tensor) in self.known_types:
            try:
                return [tensor._indices(), tensor._values()] if tensor.is_sparse else []
            except Exception as error:
                pass_on_if_foreign(error)
                return []
        values = list(tensor.__dict__.values()) if hasattr(tensor, "__dict__") else []
        for base in type(tensor).__mro__:
            slots = base.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                try:
                    values.append(object.__getattribute__(tensor, name))
                except AttributeError:
                    pass
        return [value for value in values if self.is_tensor(value) and value is not tensor]

    def describe(self, tensor):
        """Shape, name of the type, and bytes."""
        dtype = tensor.dtype
        name = self.dtypes.get(dtype)
        if name is None:
            name = self.dtypes[dtype] = str(dtype).replace("torch.", "")
        return tuple(tensor.shape), name, tensor.numel() * tensor.element_size()
