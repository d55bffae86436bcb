"""Estimates the GPU memory of training before a run, or from two measured steps.

    from gputop_probe import estimate
    print(estimate(model, x, optimizer="adamw", gpu_gib=80))

The model and the inputs may be on the CPU, on a GPU, or on the meta device. One training step
(forward, backward, optimizer) runs on copies on a CUDA device without memory, which hold no data
and compute nothing, while the memory of every tensor is counted: so what backward saves and the
peak come from PyTorch's own operations. The program calls this itself; the probe never does.
"""

import json
import time

# Measured on an H100 with driver 580, CUDA 13 and torch 2.11: 742 MiB outside the allocator once
# cuBLAS is loaded, and 65 MiB of its workspaces inside. Older GPUs and drivers need less.
CONTEXT = 800 << 20
# Assumptions, with each result.
ASSUMPTIONS = (
    "no CUDA graphs, no compilation; blocks are rounded up to 512 bytes",
    "the CUDA context and libraries take about 800 MiB; cuBLAS workspaces are in that",
    "scaled_dot_product_attention uses a fused kernel",
    "fragmentation takes 3 % of the GPU",
)
FRAGMENTATION = 0.03
# Where one step takes longer, the largest batch is that of a line.
SECONDS_TO_SEARCH = 8
MAX_BATCH = 1 << 30
_PARTS = (
    "parameters",
    "gradients",
    "optimizer_state",
    "gathered",
    "buffers",
    "inputs",
    "activations",
    "peak",
)


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
        # The parts that are computed from the parameters, and do not come from a step.
        self.by_formula = []

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
        room = room_of(gpu_bytes)
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
            "by_formula": self.by_formula,
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


def room_of(gpu_bytes):
    """The highest peak that fits a GPU."""
    return gpu_bytes * (1 - FRAGMENTATION) - CONTEXT


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
    targets=None,
    batch=None,
    precision=None,
    gpu_gib=None,
    gpu_bytes=None,
    device=None,
    sharding=None,
    **keywords,
):
    """Estimates a training step of `model(*inputs, **keywords)`.

    `optimizer` is an optimizer of the model, a function of parameters that makes one, a name
    (adamw, adam, sgd, sgd_momentum, rmsprop, adagrad, adafactor, lion, adamw8bit), or None for
    inference. `loss` is a
    function of the output, and of the targets if there are any; by default all floating-point
    outputs are summed. The batch is the first dimension of the first input; all inputs and targets
    with that first dimension are scaled together. `precision` is "bf16" or "fp16" for autocast
    around the model. With `gpu_gib` or `gpu_bytes`, the result has the largest batch that fits.
    `sharding` is a `gputop_probe.sharding.Sharding`, for one of several GPUs.
    """
    from .simulation import Subject

    if gpu_gib is not None:
        gpu_bytes = int(gpu_gib * (1 << 30))
    subject = Subject(model, inputs, keywords, optimizer, loss, targets, batch, precision, sharding)
    found = estimate_of(device or cuda_without_memory() or meta_device(), subject)
    found.gpu_bytes = gpu_bytes
    if gpu_bytes is not None:
        found.largest_batch = found.largest(gpu_bytes)
    return found


def estimate_of(device, subject):
    """The estimate of a subject, with how its peak grows with the batch."""
    from .simulation import simulate

    known = {}

    def peak_of(count):
        if count not in known:
            known[count] = simulate(device, subject, count)["peak"]
        return known[count]

    began = time.monotonic()
    found = brief_estimate(device, subject, subject.batch)
    seconds = time.monotonic() - began
    batch = found.batch
    known[batch] = found.peak
    if batch:
        # In a small batch, the peak may be that of the optimizer, which does not grow.
        found.per_sample = round((peak_of(8 * batch) - peak_of(4 * batch)) / (4 * batch))
    if seconds < SECONDS_TO_SEARCH:
        found.peak_of = peak_of
    return found


def brief_estimate(device, subject, batch):
    """The estimate of a subject with a batch, from one run."""
    from .simulation import is_by_formula, simulate

    parts = simulate(device, subject, batch)
    found = Estimate(parts, batch, assumptions=assumptions(device, subject, parts))
    found.by_formula = subject.sharding.by_formula()
    if is_by_formula(subject.optimizer) and "optimizer_state" not in found.by_formula:
        found.by_formula.append("optimizer_state")
    return found


def cuda_without_memory(is_alone=False):
    """The CUDA device on which steps run without data. None: this PyTorch is older than 2.6, and
    cannot have it. `is_alone` says that the process does nothing else, and may not ask a driver.
    """
    import torch

    if not can_follow_cuda(torch):
        return None
    from .fake_cuda import FakeCuda

    return FakeCuda(is_alone or not torch.cuda.is_available())


def can_follow_cuda(torch):
    version = tuple(int(number) for number in str(torch.__version__).split(".")[:2])
    return version >= (2, 6) and hasattr(torch._C, "_only_lift_cpu_tensors")


def meta_device():
    """The device of an older PyTorch."""
    from .meta_device import MetaDevice

    return MetaDevice()


def assumptions(device, subject, parts):
    """The assumptions that matter for this estimate, as sentences."""
    found = list(subject.sharding.assumptions(subject.model)) + list(ASSUMPTIONS)
    if device.name == "meta":
        found.append(
            "this PyTorch is older than 2.6: autocast is not followed; with 2.6 or later it is"
        )
    elif device.autocast is None:
        found.append("no autocast: the model enters none; --precision bf16 runs it in one")
    else:
        found.append("autocast to %s, with a copy of each weight while it lasts" % device.autocast)
    if "convolution" in device.operations:
        found.append("convolutions: the workspaces that cuDNN chooses are not counted")
    if "_thnn_fused_lstm_cell" in device.operations or "_thnn_fused_gru_cell" in device.operations:
        found.append("recurrent layers: as without cuDNN, with which an H100 needed a quarter less")
    if subject.optimizer is not None:
        if subject.is_summed:
            found.append("the loss is the sum of the outputs: return `loss` for another")
        if subject.sharding.kind is None:
            found.append(
                "no DistributedDataParallel: its buckets would add %s, as much as the gradients"
                % size(parts.get("gradients", 0))
            )
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
