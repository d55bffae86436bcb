"""One pass over all live objects, for the tensors and modules that the diagnosis needs."""

from . import code_lines
from .objects import live_objects, with_subclasses

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Pass:
    """The finds of one pass over the live objects: tensors on the GPU by address, those with
    history, modules. Dropped at once.
    """

    def __init__(self, probe):
        torch, reader = probe.torch, probe.reader
        kinds = [with_subclasses(torch.Tensor), with_subclasses(torch.nn.Module)]
        objects = live_objects(set().union(*kinds))
        self.modules = [value for value in objects if type(value) in kinds[1]]
        # Parallel lists.
        self.addresses, self.tensors, self.with_history = [], [], []
        with reader.guard():
            for value in objects:
                if type(value) not in kinds[0]:
                    continue
                reader.claim(value)
                for address, piece in reader.pieces(value):
                    self.addresses.append(address)
                    self.tensors.append(piece)
                    if reader.grad_fn(piece) is not None:
                        self.with_history.append(piece)

    def own(self):
        """The lists that refer to tensors: no holders."""
        return (self.tensors, self.with_history)

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

    def models_of(self, parameters):
        """The number of models that have some of the parameters: modules that are part of no
        other module.
        """
        wanted = {id(parameter) for parameter in parameters}
        parents, owners = {}, []
        for module in self.modules:
            attributes = object.__getattribute__(module, "__dict__")
            for child in list((attributes.get("_modules") or {}).values()):
                parents[id(child)] = id(module)
            if any(
                id(parameter) in wanted
                for parameter in list((attributes.get("_parameters") or {}).values())
            ):
                owners.append(id(module))
        models = set()
        for model in owners:
            seen = set()
            while model in parents and model not in seen:
                seen.add(model)
                model = parents[model]
            models.add(model)
        return len(models)

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
