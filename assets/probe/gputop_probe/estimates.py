"""Estimates the GPU memory of training before a run, or from two measured steps.

    from gputop_probe import estimate
    print(estimate(model, x, optimizer="adamw", gpu_gib=80))

The model and the inputs may be on the CPU or on the meta device. One training step (forward,
backward, optimizer) runs on copies on the meta device, which hold no data and compute nothing,
while a dispatch mode counts the memory of every tensor: so what backward saves and the peak come
from PyTorch's own operations. The program calls this itself; the probe never does.
"""

import json
import weakref

# Measured on an H100 with driver 580, CUDA 13 and torch 2.11: 742 MiB outside the allocator once
# cuBLAS is loaded, and 65 MiB of its workspaces inside. Older GPUs and drivers need less.
CONTEXT = 800 << 20
GRANULE = 512
# Assumptions, with each result.
ASSUMPTIONS = (
    "one GPU, no CUDA graphs, no compilation; blocks are rounded up to 512 bytes",
    "the CUDA context and libraries take about 800 MiB; cuBLAS workspaces are in that",
    "scaled_dot_product_attention uses a fused kernel",
    "fragmentation takes 3 % of the GPU",
)
FRAGMENTATION = 0.03
MAX_BATCH = 1 << 30
# State of well-known optimizers: tensors of the parameter's size, for each parameter.
STATES = {"sgd": 0, "sgd_momentum": 1, "adagrad": 1, "rmsprop": 1, "lion": 1, "adam": 2, "adamw": 2}
_PARTS = ("parameters", "gradients", "optimizer_state", "buffers", "inputs", "activations", "peak")


class Estimate:
    """Bytes of each part, the peak, and the batch that fits. Prints as a table; `json()` and
    `dictionary()` convert it.
    """

    def __init__(
        self,
        parts,
        batch=None,
        per_sample=None,
        gpu_bytes=None,
        largest_batch=None,
        assumptions=ASSUMPTIONS,
        measured=False,
    ):
        self.parts = parts
        # The size of the first dimension of the inputs, and how the peak of large batches grows
        # with each more, in bytes. None: unknown.
        self.batch = batch
        self.per_sample = per_sample
        self.gpu_bytes = gpu_bytes
        self.largest_batch = largest_batch
        # Returns the highest amount in a step with a batch. None: a line through the peak and
        # `per_sample`.
        self.peak_of = None
        self.assumptions = tuple(assumptions)
        self.measured = measured

    def __getattr__(self, name):
        try:
            return self.__dict__["parts"][name]
        except KeyError:
            raise AttributeError(name) from None

    def largest(self, gpu_bytes):
        """The largest batch that fits a GPU; 0: none does. None: it is not known how the peak
        grows.
        """
        if self.batch is None or self.per_sample is None:
            return None
        room = gpu_bytes * (1 - FRAGMENTATION) - CONTEXT
        peak = self.parts["peak"]
        if self.peak_of is not None:
            return _largest(self.peak_of, self.batch, peak, self.per_sample, room)
        return (
            max(0, int(self.batch + (room - peak) / self.per_sample))
            if self.per_sample > 0
            else None
        )

    def dictionary(self):
        found = {
            "bytes": dict(self.parts),
            "measured": self.measured,
            "assumptions": list(self.assumptions),
        }
        for name in ("batch", "per_sample", "gpu_bytes", "largest_batch"):
            if getattr(self, name) is not None:
                found[name] = getattr(self, name)
        return found

    def json(self):
        return json.dumps(self.dictionary())

    def __str__(self):
        rows = [
            (name.replace("_", " "), size(self.parts[name]))
            for name in _PARTS
            if name in self.parts
        ]
        if self.batch is not None:
            rows.append(("batch", str(self.batch)))
        if self.per_sample is not None:
            rows.append(("per sample", size(self.per_sample)))
        if self.gpu_bytes is not None:
            rows.append(("GPU", size(self.gpu_bytes)))
            rows.append(
                (
                    "largest batch",
                    "none fits" if not self.largest_batch else str(self.largest_batch),
                )
            )
        table = "\n".join("%-16s %12s" % row for row in rows)
        return table + "\n\nassumptions: " + ";\n  ".join(self.assumptions)

    __repr__ = __str__


def size(amount):
    amount = float(amount)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return "%.0f %s" % (amount, unit) if unit == "B" else "%.1f %s" % (amount, unit)
        amount /= 1024
    return "%.2f GiB" % amount


def estimate(
    model,
    *inputs,
    optimizer="adamw",
    loss=None,
    batch=None,
    gpu_gib=None,
    gpu_bytes=None,
    **keywords,
):
    """Estimates a training step of `model(*inputs, **keywords)`.

    `optimizer` is an optimizer of the model, a function of parameters that makes one, a name
    (adamw, adam, sgd, sgd_momentum, rmsprop, adagrad, lion), or None for inference. `loss` is a
    function of the output; by default all floating-point outputs are summed. The batch is the first
    dimension of the first input; all inputs with that first dimension are scaled together. With
    `gpu_gib` or `gpu_bytes`, the result has the largest batch that fits.
    """
    if gpu_gib is not None:
        gpu_bytes = int(gpu_gib * (1 << 30))
    tensors = [value for value in _tensors((inputs, keywords)) if value.dim()]
    batch = batch or (tensors[0].shape[0] if tensors else None)

    def simulate(count):
        return _simulate(model, inputs, keywords, optimizer, loss, batch, count)

    parts = simulate(batch)
    per_sample = None
    if batch:
        # In a small batch, the peak may be that of the optimizer, which does not grow.
        per_sample = (simulate(8 * batch)["peak"] - simulate(4 * batch)["peak"]) / (4 * batch)
    found = Estimate(parts, batch, None if per_sample is None else round(per_sample), gpu_bytes)
    found.peak_of = lambda count: simulate(count)["peak"]
    if gpu_bytes is not None:
        found.largest_batch = found.largest(gpu_bytes)
    return found


def _largest(peak_of, batch, peak, per_sample, room):
    """The largest batch whose peak fits. The peak grows slowly at first, where the optimizer
    needs more than the activations do.
    """
    if per_sample <= 0:
        return None
    # Two batches, one that fits and one that does not, move towards each other.
    low, low_peak, high, high_peak = (
        (batch, peak, None, None) if peak <= room else (0, None, batch, peak)
    )
    turn = 0
    while high is None or high - low > 1:
        if high is None:
            # In 4 times the batch that the slope allows, the optimizer does not matter.
            middle = max(2 * low, min(4 * int(low + (room - low_peak) / per_sample), MAX_BATCH))
        elif low_peak is None or turn % 3 == 2:
            # Where the peak does not grow, a line between the two would lead nowhere.
            middle = (low + high) // 2
        else:
            middle = int(low + (high - low) * (room - low_peak) / (high_peak - low_peak))
            middle = min(max(middle, low + 1), high - 1)
        if low >= MAX_BATCH:
            return None
        turn += 1
        found = peak_of(middle)
        if found <= room:
            low, low_peak = middle, found
        else:
            high, high_peak = middle, found
    return low


def measured(first, second, gpu_gib=None, gpu_bytes=None):
    """An estimate from two measured steps: each is (batch, peak in bytes), as from
    torch.cuda.max_memory_allocated().
    """
    (few, low), (many, high) = sorted((first, second))
    if few == many:
        raise ValueError("measure two different batches")
    if gpu_gib is not None:
        gpu_bytes = int(gpu_gib * (1 << 30))
    slope = (high - low) / (many - few)
    fixed = low - slope * few
    parts = {"peak": high, "fixed": round(fixed)}
    assumptions = (
        (
            "the peak grows evenly with the batch: measure a large one, because in a small one the optimizer decides the peak",
        )
        + ASSUMPTIONS[1:2]
        + ASSUMPTIONS[3:]
    )
    found = Estimate(parts, many, slope, gpu_bytes, None, assumptions, True)
    if gpu_bytes is not None:
        found.largest_batch = found.largest(gpu_bytes)
    found.per_sample = round(slope)
    return found


def measure(step, batches, **options):
    """Runs `step(batch)` on the GPU for two batches, the smaller first, and estimates from their
    peaks.

    The peaks of the program are not reset: the second batch must raise them.
    """
    import torch

    found = []
    for batch in sorted(batches)[:2]:
        for _ in range(2):
            # The first step makes the optimizer's state.
            step(batch)
        found.append((batch, torch.cuda.max_memory_allocated()))
    if found[0][1] == found[1][1]:
        raise ValueError(
            "the larger batch did not raise the peak: call torch.cuda.reset_peak_memory_stats() before, or use larger batches"
        )
    return measured(found[0], found[1], **options)


def measure_training(model, *inputs, optimizer="adamw", loss=None, batch=None, **keywords):
    """Measures training steps of `model(*inputs, **keywords)` on the current GPU, with the whole
    batch and with half of it.

    The arguments are those of `estimate`. The model is moved to the GPU, and trained. Peaks of the
    process are reset.
    """
    import torch

    if not torch.cuda.is_available():
        raise ValueError("no CUDA device can be used here: estimate without measuring")
    tensors = [value for value in _tensors((inputs, keywords)) if value.dim()]
    batch = batch or (tensors[0].shape[0] if tensors else None)
    if not batch:
        raise ValueError("the inputs have no batch")
    model.to("cuda")
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    made = optimizer
    if (
        isinstance(optimizer, str)
        or callable(optimizer)
        and not isinstance(optimizer, torch.optim.Optimizer)
    ):
        made, missing = _make_optimizer(optimizer, parameters)
        if missing:
            raise ValueError(
                "PyTorch has no optimizer %s: return an optimizer of the model" % optimizer
            )

    def step(count):
        output = model(
            *_on_gpu(list(inputs), batch, count), **_on_gpu(dict(keywords), batch, count)
        )
        if made is not None:
            made.zero_grad(set_to_none=True)
            (loss(output) if loss else _sum(output)).backward()
            made.step()

    def peak(count):
        # The first step makes the optimizer's state.
        step(count)
        torch.cuda.reset_peak_memory_stats()
        step(count)
        return count, torch.cuda.max_memory_allocated()

    with torch.set_grad_enabled(made is not None):
        return measured(*map(peak, (batch // 2, batch) if batch > 1 else (1, 2)))


def _on_gpu(value, batch, count):
    """A copy on the GPU, with another batch."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.dim() and value.shape[0] == batch and count != batch:
            value = value[:count] if count < batch else torch.cat([value] * count)[:count]
        return value.to("cuda")
    if isinstance(value, dict):
        return {key: _on_gpu(inner, batch, count) for key, inner in value.items()}
    return (
        type(value)(_on_gpu(inner, batch, count) for inner in value)
        if isinstance(value, (list, tuple))
        else value
    )


def _tensors(value):
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    elif hasattr(value, "__dataclass_fields__"):
        value = list(vars(value).values())
    return (
        [found for inner in value for found in _tensors(inner)]
        if isinstance(value, (list, tuple))
        else []
    )


def _on_meta(value, batch, count):
    """A copy on the meta device, with another batch."""
    import torch

    if isinstance(value, torch.Tensor):
        shape = list(value.shape)
        if shape and batch and shape[0] == batch:
            shape[0] = count
        return torch.empty(
            shape,
            dtype=value.dtype,
            device="meta",
            requires_grad=value.requires_grad and value.is_leaf,
        )
    if isinstance(value, dict):
        return {key: _on_meta(inner, batch, count) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_on_meta(inner, batch, count) for inner in value)
    return value


def _meta_model(model):
    """A copy of the model on the meta device. The memory of the original is not copied."""
    import copy

    import torch

    copies = {}
    for tensor in list(model.parameters()) + list(model.buffers()):
        fresh = torch.empty_like(tensor, device="meta")
        if isinstance(tensor, torch.nn.Parameter):
            fresh = torch.nn.Parameter(fresh, requires_grad=tensor.requires_grad)
        copies[id(tensor)] = fresh
    return copy.deepcopy(model, copies)


def _make_optimizer(optimizer, parameters):
    """An optimizer for the copies. Returns (optimizer or None, state tensors per parameter that
    are counted instead).
    """
    import torch

    if optimizer is None:
        return None, 0
    if isinstance(optimizer, torch.optim.Optimizer):
        options = {
            key: value
            for key, value in optimizer.defaults.items()
            if key not in ("fused", "capturable")
        }
        try:
            return _like_cuda(type(optimizer), parameters, options), 0
        except TypeError:
            known = {
                id(tensor)
                for states in optimizer.state.values()
                for tensor in _tensors(list(states.values()))
                if tensor.dim()
            }
            return None, len(known) / max(1, len(optimizer.state)) if known else 2
    if isinstance(optimizer, str):
        name = optimizer.lower()
        if name not in STATES:
            raise ValueError(
                "unknown optimizer %r: one of %s" % (optimizer, ", ".join(sorted(STATES)))
            )
        kinds = {
            "adam": "Adam",
            "adamw": "AdamW",
            "sgd": "SGD",
            "sgd_momentum": "SGD",
            "rmsprop": "RMSprop",
            "adagrad": "Adagrad",
        }
        if name not in kinds:
            return None, STATES[name]
        options = {"lr": 1e-3}
        if name == "sgd_momentum":
            options["momentum"] = 0.9
        return _like_cuda(getattr(torch.optim, kinds[name]), parameters, options), 0
    return optimizer(parameters), 0


def _like_cuda(kind, parameters, options):
    """An optimizer as it works on a GPU: with operations on all tensors at once, which need more
    memory.
    """
    if options.get("foreach") is None:
        try:
            return kind(parameters, **dict(options, foreach=True))
        except (TypeError, RuntimeError):
            options = {key: value for key, value in options.items() if key != "foreach"}
    return kind(parameters, **options)


def _fused_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    """The fused kernel that PyTorch chooses on GPUs: half precision without a mask has another
    one.
    """
    import torch

    if query.dim() != 4 or query.shape[:2] != key.shape[:2]:
        raise ValueError("no fused kernel")
    if attn_mask is None and query.dtype in (torch.float16, torch.bfloat16):
        return torch.ops.aten._scaled_dot_product_flash_attention(
            query, key, value, dropout_p, is_causal, False, scale=scale
        )[0]
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_mask = torch.empty_like(attn_mask, dtype=query.dtype)
        attn_mask = attn_mask.expand(*query.shape[:3], key.shape[2])
    is_training = torch.is_grad_enabled() and any(
        tensor.requires_grad for tensor in (query, key, value)
    )
    kernel = torch.ops.aten._scaled_dot_product_efficient_attention
    return kernel(query, key, value, attn_mask, is_training, dropout_p, is_causal, scale=scale)[0]


def _operations_like_cuda():
    """A mode in which dropout saves a mask of bytes, and attention uses a fused kernel, as on a
    GPU.
    """
    import torch
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode

    original = functional.scaled_dot_product_attention

    def attention(*arguments, **keywords):
        try:
            return _fused_attention(*arguments, **keywords)
        except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
            # Shapes that no fused kernel has, or an older PyTorch: the whole matrix of weights is
            # computed.
            return original(*arguments, **keywords)

    class LikeCuda(TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), keywords=None):
            keywords = keywords or {}
            if getattr(function, "__name__", "") == "dropout":
                given = dict(zip(("input", "p", "training"), arguments), **keywords)
                if given.get("training", True) and 0 < given.get("p", 0.5) < 1:
                    return torch.native_dropout(given["input"], given.get("p", 0.5), True)[0]
            elif getattr(function, "__name__", "") == "scaled_dot_product_attention":
                return attention(*arguments, **keywords)
            elif function is functional.multi_head_attention_forward:
                # The mode does not see calls inside of this function.
                functional.scaled_dot_product_attention = attention
                try:
                    return function(*arguments, **keywords)
                finally:
                    functional.scaled_dot_product_attention = original
            return function(*arguments, **keywords)

    return LikeCuda()


def _simulate(model, inputs, keywords, optimizer, loss, batch, count):
    """One training step on the meta device: bytes by part, and the peak."""
    copied = _meta_model(model)
    parameters = [parameter for parameter in copied.parameters() if parameter.requires_grad]
    counter = _counter()
    counter.add_all(copied.parameters())
    counted = {"parameters": counter.now}
    counter.add_all(copied.buffers())
    counted["buffers"] = counter.now - counted["parameters"]
    made, states = _make_optimizer(optimizer, parameters) if parameters else (None, 0)
    extra = round(
        states
        * sum(_bytes(parameter.numel() * parameter.element_size()) for parameter in parameters)
    )
    is_training = optimizer is not None and bool(parameters)
    peak = 0
    # The second step has the optimizer's state from its beginning.
    for _ in range(2 if is_training else 1):
        before = counter.now
        arguments, named = (
            _on_meta(list(inputs), batch, count),
            _on_meta(dict(keywords), batch, count),
        )
        counter.add_all(_tensors((arguments, named)))
        counted["inputs"] = counter.now - before
        counter.peak = counter.now
        with _operations_like_cuda(), counter:
            if not is_training:
                import torch

                with torch.no_grad():
                    output = copied(*arguments, **named)
                counted["activations"] = counter.peak - before - counted["inputs"]
                peak = counter.peak
                break
            output = copied(*arguments, **named)
            total = loss(output) if loss else _sum(output)
            counted["activations"] = counter.now - before - counted["inputs"]
            for parameter in parameters:
                parameter.grad = None
            total.backward()
            if made is not None:
                made.step()
        peak = max(peak, counter.peak)
        output = total = arguments = named = None
    if is_training:
        counted["gradients"] = sum(
            _bytes(parameter.numel() * parameter.element_size()) for parameter in parameters
        )
        state = (
            [tensor for states in made.state.values() for tensor in _tensors(list(states.values()))]
            if made is not None
            else []
        )
        # Counters of steps stay on the CPU.
        counted["optimizer_state"] = (
            sum(_bytes(tensor.numel() * tensor.element_size()) for tensor in state if tensor.dim())
            + extra
        )
    counted["peak"] = peak + extra
    return counted


def _sum(output):
    found = [
        tensor.sum()
        for tensor in _tensors(output if isinstance(output, (dict, list, tuple)) else [output])
        if tensor.is_floating_point()
    ]
    if not found:
        found = [tensor.sum() for tensor in _tensors(vars(output)) if tensor.is_floating_point()]
    if not found:
        raise ValueError("the model returns no floating-point tensor: give a loss function")
    return sum(found[1:], found[0])


def _bytes(amount):
    return (amount + GRANULE - 1) // GRANULE * GRANULE


def _counter():
    """A dispatch mode that counts the bytes of all living storages."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counter(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.now = self.peak = 0
            self.known = {}

        def add(self, tensor):
            if tensor.device.type != "meta":
                return
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key in self.known:
                return
            amount = _bytes(storage.nbytes())
            self.known[key] = weakref.finalize(storage, self.drop, key, amount)
            self.now += amount
            self.peak = max(self.peak, self.now)

        def drop(self, key, amount):
            if self.known.pop(key, None) is not None:
                self.now -= amount

        def add_all(self, values):
            for value in values:
                self.add(value)

        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            result = function(*arguments, **(keywords or {}))
            if isinstance(result, torch.Tensor):
                self.add(result)
            elif isinstance(result, (list, tuple)):
                self.add_all(_tensors(list(result)))
            return result

    return Counter()
