"""Gives blocks of the allocator their category, by the addresses of the tensors that the program
can reach.
"""

import weakref

from .objects import live_objects, with_subclasses

# More kinds of optimizer state than these are summed as "other".
MAX_KINDS = 16
# Programs with variable shapes make new labels all the time.
MAX_LABELS = 20000
_NONE = (0, None)


class Label:
    """The category of a block, and the tensor that is in it. All equal labels are one object."""

    __slots__ = ("category", "kind", "shape", "dtype", "is_part")

    def __init__(self, category, kind, shape, dtype, is_part):
        self.category, self.kind, self.shape, self.dtype, self.is_part = (
            category,
            kind,
            shape,
            dtype,
            is_part,
        )


class Labels:
    """Labels blocks in a thread of the program, where no tensor can vanish meanwhile."""

    def __init__(self, torch, reader, steps):
        self.torch, self.reader = torch, reader
        # The `Steps` that know the optimizers.
        self.steps = steps
        # Modules with parameters or buffers of their own, found by `scan`.
        self.modules = []
        self.known = {}
        # Tensors of the last scan: address → (size of the block, label).
        self.seen = {}

    def scan(self, blocks, thread):
        """Finds modules and tensors among all objects of the process, then labels. Returns the
        labels by position of the block.
        """
        torch = self.torch
        kinds = [
            with_subclasses(base) for base in (torch.nn.Module, torch.optim.Optimizer, torch.Tensor)
        ]
        objects = live_objects(set().union(*kinds))
        tensors = [value for value in objects if type(value) in kinds[2]]
        self.reader.claim(tensors)
        self.modules = []
        for value in objects:
            if type(value) in kinds[0]:
                members = value.__dict__
                if members.get("_parameters") or members.get("_buffers"):
                    self.modules.append(weakref.ref(value))
            elif type(value) in kinds[1]:
                self.steps.add(value)
        with self.reader.guard():
            found = self._reachable(blocks, thread)
            self._label_others(blocks, found, tensors)
        return found

    def light(self, blocks, thread):
        """Labels with the modules and tensors of the last scan."""
        with self.reader.guard():
            found = self._reachable(blocks, thread)
        self.recall(blocks, found, ("named_tensors", "activations", "parameters", "gradients"))
        return found

    def recall(self, blocks, found, categories):
        """Labels blocks that the last scan labelled, if they are still in use with the same
        size.
        """
        for address, (size, label) in self.seen.items():
            place = blocks.place.get(address)
            if (
                place is not None
                and place not in found
                and blocks.size[place] == size
                and label.category in categories
            ):
                found[place] = label

    def _reachable(self, blocks, thread):
        """Labels what optimizers and modules hold."""
        found = {}
        put = self._put
        gradients = []
        optimizers = list(self.steps.optimizers.values())
        for known in optimizers:
            optimizer = known.reference()
            if optimizer is None:
                continue
            # The autograd engine may change `.grad` of another thread's parameters at any time.
            readable = known.thread in (None, thread)
            for group in list(optimizer.__dict__.get("param_groups", ())):
                for parameter in list(group.get("params", ())):
                    put(blocks, found, "parameters", None, parameter)
                    if readable:
                        gradients.append(parameter)
        only_this_thread = all(known.thread in (None, thread) for known in optimizers)
        buffers = []
        for reference in self.modules:
            module = reference()
            if module is None:
                continue
            members = module.__dict__
            for parameter in _values(members.get("_parameters")):
                put(blocks, found, "parameters", None, parameter)
                if only_this_thread:
                    gradients.append(parameter)
            buffers += _values(members.get("_buffers"))
        module = None
        for parameter in gradients:
            if (
                self.reader.is_tensor(parameter)
                and parameter.requires_grad
                and not self.reader.has_history(parameter)
            ):
                gradient = parameter.grad
                if gradient is not None:
                    put(blocks, found, "gradients", None, gradient)
        gradient = parameter = None
        kinds = set()
        for known in optimizers:
            optimizer = known.reference()
            state = optimizer.__dict__.get("state") if optimizer is not None else None
            for values in _values(state):
                for kind, value in list(values.items()) if issubclass(type(values), dict) else ():
                    if len(kinds) >= MAX_KINDS and kind not in kinds:
                        kind = "other"
                    kinds.add(kind)
                    self._put_nested(blocks, found, str(kind)[:40], value, 3)
        optimizer = None
        for buffer in buffers:
            put(blocks, found, "buffers", None, buffer)
        return found

    def _put_nested(self, blocks, found, kind, value, depth):
        if self.reader.is_tensor(value):
            self._put(blocks, found, "optimizer_state", kind, value)
        elif depth and type(value) in (list, tuple, dict):
            for inner in list(value.values()) if type(value) is dict else list(value):
                self._put_nested(blocks, found, kind, inner, depth - 1)

    def _put(self, blocks, found, category, kind, tensor):
        if not self.reader.is_tensor(tensor):
            return
        for address, piece in self.reader.pieces(tensor):
            place = blocks.find(address)
            if place is not None and place not in found:
                found[place] = self._label(category, kind, piece, blocks.requested[place])

    def _label_others(self, blocks, found, tensors):
        """Labels the tensors that no optimizer or module holds."""
        before, self.seen = self.seen, {}
        parameter = self.torch.nn.Parameter
        addresses, pieces, histories = self.reader.survey(tensors)
        place_of = blocks.place.get
        for address, piece, has_history in zip(addresses, pieces, histories):
            place = place_of(address)
            if place is None:
                place = blocks.find(address)
            if place is None or place in found:
                continue
            if issubclass(type(piece), parameter):
                category = "parameters"
            elif has_history:
                category = "activations"
            else:
                category = "named_tensors"
            start, size = blocks.address[place], blocks.size[place]
            label = before.get(start, _NONE)[1]
            # Describing a tensor takes most of the time.
            is_same = (
                label is not None
                and label.category == category
                and label.shape == piece.shape
                and self.reader.dtypes.get(piece.dtype) == label.dtype
            )
            if not is_same:
                label = self._label(category, None, piece, blocks.requested[place])
            found[place] = label
            self.seen[start] = (size, label)

    def _label(self, category, kind, tensor, requested):
        shape, dtype, size = self.reader.describe(tensor)
        key = (category, kind, shape, dtype, requested is not None and size < requested)
        label = self.known.get(key)
        if label is None:
            if len(self.known) >= MAX_LABELS:
                self.known.clear()
            label = self.known[key] = Label(*key)
        return label


def _values(members):
    """The values of a dictionary. The copy is made in one step, so that another thread cannot
    change it meanwhile.
    """
    kind = type(members)
    return (
        list(members.values())
        if issubclass(kind, dict) or kind.__module__ == "torch.jit._script"
        else []
    )
