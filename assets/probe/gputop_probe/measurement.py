"""Estimates from steps that run on the GPU: their peaks, and how they grow with the batch."""

from .estimates import ASSUMPTIONS, Estimate


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
        "the peak grows evenly with the batch: measure a large one, because in a small one the optimizer decides the peak",
        "one GPU, no DistributedDataParallel: its buckets would add as much as the gradients",
        "the CUDA context and libraries take about 800 MiB; workspaces of cuBLAS and cuDNN are in the peak",
        ASSUMPTIONS[-1],
    )
    found = Estimate(parts, many, slope, gpu_bytes, None, assumptions, True)
    if gpu_bytes is not None:
        found.largest_batch = found.largest(gpu_bytes)
    found.per_sample = round(slope)
    return found


def measure_training(
    model,
    *inputs,
    optimizer="adamw",
    loss=None,
    targets=None,
    batch=None,
    precision=None,
    **keywords,
):
    """Measures training steps of `model(*inputs, **keywords)` on the current GPU, with the whole
    batch and with half of it.

    The arguments are those of `estimate`. The model is moved to the GPU, and trained. Peaks of the
    process are reset.
    """
    import torch

    from .nested import changed, tensors_of

    if not torch.cuda.is_available():
        raise ValueError("no CUDA device can be used here: estimate without measuring")
    tensors = [value for value in tensors_of((list(inputs), keywords)) if value.dim()]
    batch = batch or (tensors[0].shape[0] if tensors else None)
    if not batch:
        raise ValueError("the inputs have no batch")
    model.to("cuda")
    made = optimizer
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        from .simulation import new_optimizer

        made, missing = new_optimizer(
            optimizer, [it for it in model.parameters() if it.requires_grad]
        )
        if missing:
            raise ValueError(
                "PyTorch has no optimizer %s: return an optimizer of the model" % optimizer
            )

    def on_gpu(value, count):
        return changed(value, lambda tensor: _resized(tensor, batch, count))

    def loss_of(output, count):
        from .simulation import sum_of
        from .step_memory import MovedTensors

        if loss is None:
            return sum_of(output)
        given = [output] if targets is None else [output, on_gpu(targets, count)]
        if isinstance(loss, torch.nn.Module):
            loss.to("cuda")

        def move(tensor):
            return (
                _resized(tensor, batch, count)
                if tensor.device.type == "cpu" and tensor.dim()
                else tensor
            )

        with MovedTensors(move):
            return loss(*given)

    def step(count):
        with _autocast(precision):
            output = model(*on_gpu(list(inputs), count), **on_gpu(dict(keywords), count))
            total = loss_of(output, count) if made is not None else None
        if made is not None:
            made.zero_grad(set_to_none=True)
            total.backward()
            made.step()

    def peak(count):
        # The first step makes the optimizer's state.
        step(count)
        torch.cuda.reset_peak_memory_stats()
        step(count)
        return count, torch.cuda.max_memory_allocated()

    with torch.set_grad_enabled(made is not None):
        return measured(*map(peak, (batch // 2, batch) if batch > 1 else (1, 2)))


def _resized(tensor, batch, count):
    """A copy on the GPU, with another batch."""
    import torch

    if tensor.dim() and tensor.shape[0] == batch and count != batch:
        tensor = tensor[:count] if count < batch else torch.cat([tensor] * count)[:count]
    return tensor.to("cuda")


def _autocast(precision):
    import contextlib

    if precision is None:
        return contextlib.nullcontext()
    from .simulation import autocast

    return autocast(precision)
