"""One pass over all live objects, for the tensors and modules that the diagnosis needs."""

from itertools import compress

from . import code_lines
from .objects import live_objects, with_subclasses

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Pass:
    """The finds of one pass over the live objects: tensors on the GPU by address, those with
    history, modules. Dropped at once.
    """

    def __init__(self, probe, is_collected=True):
        # Whether the program leaves the garbage collector on.
        self.is_collected = is_collected
        torch, reader = probe.torch, probe.reader
        kinds = [with_subclasses(torch.Tensor), with_subclasses(torch.nn.Module)]
        objects = live_objects(set().union(*kinds))
        self.modules = [value for value in objects if type(value) in kinds[1]]
        tensors = [value for value in objects if type(value) in kinds[0]]
        reader.claim(tensors)
        objects = None
        self._parents = None
        with reader.guard():
            # Parallel lists.
            self.addresses, self.tensors, histories = reader.survey(tensors)
            self.with_history = [
                tensor
                for tensor in compress(self.tensors, histories)
                if reader.grad_fn(tensor) is not None
            ]

    def own(self):
        """The lists that refer to tensors: no holders."""
        return (self.tensors, self.with_history, self.modules)

    def hook_codes(self):
        """The code objects of all functions that are registered as hooks of modules."""
        codes = set()
        for module in self.modules:
            attributes = object.__getattribute__(module, "__dict__")
            for name in _HOOKS:
                for hook in list((attributes.get(name) or {}).values()):
                    hook = getattr(hook, "func", hook)
                    hook = getattr(hook, "__func__", hook)
                    call = getattr(type(hook), "__call__", None)  # noqa: B004
                    code = getattr(hook, "__code__", None) or getattr(call, "__code__", None)
                    if code is not None:
                        codes.update(code_lines.codes_in(code))
        return codes

    def parents(self):
        """The module that a module is part of, and its name in it, by the module's `id`."""
        if self._parents is None:
            self._parents = {}
            for module in self.modules:
                attributes = object.__getattribute__(module, "__dict__")
                for name, child in list((attributes.get("_modules") or {}).items()):
                    if child is not None:
                        self._parents[id(child)] = (module, name)
        return self._parents

    def parameters(self):
        """Yields the parameters of the modules."""
        for module in self.modules:
            attributes = object.__getattribute__(module, "__dict__")
            yield from list((attributes.get("_parameters") or {}).values())

    def is_eval_mode(self):
        """Whether most modules with parameters of their own are in evaluation mode. None: there
        are none.
        """
        modes = []
        for module in self.modules:
            attributes = object.__getattribute__(module, "__dict__")
            if attributes.get("_parameters"):
                modes.append(bool(attributes.get("training", True)))
        return sum(modes) * 2 < len(modes) if modes else None
