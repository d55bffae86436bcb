"""One training step on tensors without data, and the bytes of its parts."""

import contextlib
import copy
import math

import torch

from .nested import changed, tensors_of
from .sharding import OneOfSeveral, Sharding
from .step_memory import KEPT_ELEMENTS, MovedTensors, bytes_of, rounded

# Optimizers of PyTorch by their names, and their options.
KINDS = {
    "adam": ("Adam", {}),
    "adamw": ("AdamW", {}),
    "sgd": ("SGD", {}),
    "sgd_momentum": ("SGD", {"momentum": 0.9}),
    "rmsprop": ("RMSprop", {}),
    "adagrad": ("Adagrad", {}),
    "adafactor": ("Adafactor", {}),
}


def _eight_bits(parameter):
    """The state of 8-bit Adam of bitsandbytes: two bytes for an element, and two scales for each
    256 of them. Small parameters have two numbers of four bytes.
    """
    count = parameter.numel()
    if count < 4096:
        return 2 * rounded(4 * count)
    return 2 * (rounded(count) + rounded(4 * -(-count // 256)))


# Optimizers that PyTorch lacks: the bytes of the state of a parameter.
FORMULAS = {
    "lion": lambda parameter: bytes_of([parameter]),
    "adamw8bit": _eight_bits,
}


class Subject:
    """The model and its inputs to estimate, as the user gave them."""

    def __init__(
        self,
        model,
        inputs,
        keywords,
        optimizer,
        loss,
        targets,
        batch=None,
        precision=None,
        sharding=None,
    ):
        self.model = model
        self.inputs, self.keywords = list(inputs), dict(keywords)
        self.optimizer = optimizer
        self.loss, self.targets = loss, targets
        tensors = [value for value in tensors_of((self.inputs, self.keywords)) if value.dim()]
        self.batch = batch or (tensors[0].shape[0] if tensors else None)
        self.precision = precision
        self.sharding = sharding or Sharding()
        # Whether outputs were summed, because there is no loss.
        self.is_summed = False


# The data types of `precision`.
PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(precision):
    """Autocast around the model and the loss. None: there is none."""
    if precision is None:
        return contextlib.nullcontext()
    return torch.autocast("cuda", dtype=PRECISIONS[precision])


def simulate(device, subject, count):
    """Runs two steps with a batch of `count`: bytes by part, and the peak."""
    with device.running():
        return _Step(device, subject, count).run()


class _Step:
    def __init__(self, device, subject, count):
        self.device, self.memory = device, device.memory
        self.subject, self.count = subject, count
        self.memory.now = self.memory.peak = self.memory.elsewhere = 0
        self.memory.known.clear()
        copies = {}
        self.model = _copied(device, subject.model, copies)
        self.counted = {
            "parameters": _living(self.memory, self.model.parameters()),
            "buffers": _living(self.memory, self.model.buffers()),
        }
        self.loss = subject.loss
        if isinstance(subject.loss, torch.nn.Module):
            self.loss = _copied(device, subject.loss, copies)
        self.parameters = [
            parameter for parameter in self.model.parameters() if parameter.requires_grad
        ]
        self.is_training = subject.optimizer is not None and bool(self.parameters)
        # The bytes of the state of an optimizer that cannot run here.
        self.optimizer, self.extra = None, 0
        if self.is_training:
            self.optimizer, self.extra = _optimizer_of(
                device, subject.optimizer, self.parameters, copies
            )
        self.share = OneOfSeveral(subject.sharding, self.model, self.memory)

    def run(self):
        peaks = [self.step()]
        if self.is_training:
            # The second step has the optimizer's state from its beginning.
            peaks.append(self.step())
        counted = self.counted
        if self.is_training:
            counted["gradients"] = bytes_of(self.parameters)
            counted["optimizer_state"] = self.state() + self.extra
        found = self.share.parts(counted)
        found["peak"] = max(peaks) + self.subject.sharding.part(self.extra)
        return found

    def state(self):
        """The bytes of the optimizer's state. Its counters of steps stay on the CPU."""
        states = self.optimizer.state.values() if self.optimizer is not None else []
        return bytes_of(
            tensor
            for state in states
            for tensor in tensors_of(list(state.values()))
            if tensor.dim()
        )

    def step(self):
        """Returns the peak."""
        memory, subject, counted = self.memory, self.subject, self.counted
        before = memory.now
        stale = bytes_of(
            parameter.grad for parameter in self.parameters if parameter.grad is not None
        )
        self.share.before_forward(self.state(), stale)
        memory.peak = memory.now - memory.elsewhere
        inputs = self.moved(subject.inputs)
        keywords = self.moved(subject.keywords)
        targets = None if subject.targets is None else self.moved(subject.targets)
        counted["inputs"] = memory.now - before
        if not self.is_training:
            with torch.no_grad(), autocast(subject.precision):
                self.model(*inputs, **keywords)
            counted["activations"] = memory.peak + memory.elsewhere - before - counted["inputs"]
            return memory.peak
        with autocast(subject.precision):
            output = self.model(*inputs, **keywords)
            total = self.loss_of(output, targets)
        counted["activations"] = memory.now - before - counted["inputs"]
        for parameter in self.parameters:
            parameter.grad = None
        self.share.before_backward(self.state())
        total.backward()
        return max(memory.peak, self.optimizer_step())

    def optimizer_step(self):
        """Returns the peak of the optimizer's part of a step."""
        if self.optimizer is None:
            return 0
        memory, held, state = self.memory, self.memory.now, self.state()
        memory.peak, memory.elsewhere = held, 0
        with self.device.guessing():
            self.optimizer.step()
        return self.share.optimizer_peak(held, memory.peak, state)

    def moved(self, value):
        return changed(value, lambda tensor: self.moved_tensor(tensor, False))

    def moved_tensor(self, tensor, is_of_loss):
        """The tensor on the device, for this batch. A loss may have flattened the batch."""
        batch, shape = self.subject.batch, list(tensor.shape)
        if shape and batch and shape[0] == batch:
            shape[0] = self.count
        elif shape and batch and is_of_loss and shape[0] % batch == 0:
            shape[0] = shape[0] // batch * self.count
        value = self.device.value(tensor)
        if value is not None and (value.is_floating_point() or math.prod(shape) > KEPT_ELEMENTS):
            # Nothing may depend on the values of a batch, but of masks and positions.
            value = None
        if value is not None and list(value.shape) != shape:
            value = torch.cat([value] * -(-shape[0] // value.shape[0]))[: shape[0]]
        if shape == list(tensor.shape):
            shape = None
        made = self.device.tensor(tensor, shape, None if value is None else value.clone())
        return made.requires_grad_() if tensor.requires_grad and tensor.is_leaf else made

    def loss_of(self, output, targets):
        if self.loss is None:
            total = sum_of(output)
            self.subject.is_summed = not any(total is tensor for tensor in tensors_of([output]))
            return total
        copies = {}

        def move(tensor):
            if not tensor.dim() or tensor.device.type == self.device.name:
                return tensor
            if id(tensor) not in copies:
                # The original is kept, because its ID may be used again.
                copies[id(tensor)] = (tensor, self.moved_tensor(tensor, True))
            return copies[id(tensor)][1]

        with MovedTensors(move):
            return self.loss(output) if targets is None else self.loss(output, targets)


def _living(memory, tensors):
    """The bytes of the storages of tensors, each counted once."""
    storages = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        storages[storage._cdata] = rounded(storage.nbytes())
    return sum(storages.values())


def _copied(device, module, copies):
    """A copy of the module on the device. The memory of the original is not copied. `copies`
    becomes the copies by the IDs of the originals.
    """
    for tensor in list(module.parameters()) + list(module.buffers()):
        if id(tensor) in copies:
            continue
        fresh = device.tensor(tensor)
        if isinstance(tensor, torch.nn.Parameter):
            fresh = torch.nn.Parameter(fresh, requires_grad=tensor.requires_grad)
        copies[id(tensor)] = fresh
    return copy.deepcopy(module, copies)


def _optimizer_of(device, optimizer, parameters, copies):
    """An optimizer for the copies. Returns (optimizer or None, bytes of state that are counted
    instead).
    """
    if isinstance(optimizer, torch.optim.Optimizer):
        return _copied_optimizer(device, optimizer, parameters, copies)
    return new_optimizer(optimizer, parameters)


def is_by_formula(optimizer):
    """Returns whether the state of an optimizer is computed from the parameters."""
    return isinstance(optimizer, str) and optimizer.lower() in FORMULAS


def new_optimizer(optimizer, parameters):
    """An optimizer of a name or a function. Returns what `_optimizer_of` returns."""
    if not isinstance(optimizer, str):
        made = optimizer(parameters)
    elif is_by_formula(optimizer):
        return None, sum(FORMULAS[optimizer.lower()](parameter) for parameter in parameters)
    elif optimizer.lower() in KINDS:
        name, options = KINDS[optimizer.lower()]
        if not hasattr(torch.optim, name):
            raise ValueError("PyTorch %s has no optimizer %s" % (torch.__version__, name))
        made = getattr(torch.optim, name)(parameters, lr=1e-3, **options)
    else:
        names = sorted(list(KINDS) + list(FORMULAS))
        raise ValueError("unknown optimizer %r: one of %s" % (optimizer, ", ".join(names)))
    _like_cuda(made)
    return made, 0


def _copied_optimizer(device, optimizer, parameters, copies):
    held = [tensor for group in optimizer.param_groups for tensor in group["params"]]
    states = [
        tensor
        for state in optimizer.state.values()
        for tensor in tensors_of(list(state.values()))
        if tensor.dim()
    ]
    for tensor in held:
        latest = device.latest(tensor)
        if id(latest) in copies:
            copies[id(tensor)] = copies[id(latest)]
    if held and not any(id(tensor) in copies for tensor in held):
        raise ValueError(
            "the optimizer has no parameter of the model: make it after the model is complete"
        )
    for tensor in held + states:
        if id(tensor) not in copies:
            fresh = device.tensor(tensor)
            if isinstance(tensor, torch.nn.Parameter):
                fresh = torch.nn.Parameter(fresh, requires_grad=tensor.requires_grad)
            copies[id(tensor)] = fresh
    try:
        made = copy.deepcopy(optimizer, copies)
    except Exception:
        tensors = len(states) / max(1, len(optimizer.state)) if states else 2
        return None, round(tensors * bytes_of(parameters))
    _like_cuda(made)
    return made, 0


def _like_cuda(optimizer):
    """Lets an optimizer work as on a GPU: with operations on all tensors at once, which need more
    memory.
    """
    for group in optimizer.param_groups:
        if group.get("fused") or group.get("capturable"):
            # They need kernels that tensors without data lack. Their memory is that of a loop.
            group["fused"], group["capturable"], group["foreach"] = None, False, False
        elif "foreach" in group and group["foreach"] is None:
            group["foreach"] = True


def sum_of(output):
    """The loss where an output is named so, as by models of transformers; else a sum."""
    loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor) and not loss.dim():
        return loss
    found = [
        tensor.sum() if tensor.dim() else tensor
        for tensor in tensors_of(output if isinstance(output, (dict, list, tuple)) else [output])
        if tensor.is_floating_point()
    ]
    if not found:
        found = [tensor.sum() for tensor in tensors_of(vars(output)) if tensor.is_floating_point()]
    if not found:
        raise ValueError("the model returns no floating-point tensor: give a loss function")
    return sum(found[1:], found[0])
