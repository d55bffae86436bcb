"""Prints the bytes of the peak of a training step that several GPUs share, as one of them measures
it. `estimate_check.py` compares the formulas of `gputop estimate` with it.

    sharded_step.py fsdp|zero1 GPUS NAME    with a model of estimate_models.py

PyTorch itself shards: FSDP by `fully_shard`, stage 1 of ZeRO by `ZeroRedundancyOptimizer`. The
other GPUs are those of PyTorch's fake process group, which sends nothing.
"""

import sys

import estimate_models
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore


def blocks_of(model):
    """The blocks that people shard in these models."""
    inner = getattr(model, "model", model)
    if hasattr(inner, "layers"):
        return list(inner.layers)
    return [it for it in inner.modules() if isinstance(it, estimate_models.Bottleneck)]


def main(how, gpus, name):
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=int(gpus))
    torch.backends.cudnn.enabled = False
    made = getattr(estimate_models, name)()
    if isinstance(made, tuple):
        made = dict(zip(("model", "inputs"), made, strict=False))
    model, inputs, loss = made["model"].to("cuda"), made["inputs"], made.get("loss")
    if how == "fsdp":
        from torch.distributed.fsdp import fully_shard

        for block in blocks_of(model):
            fully_shard(block)
        fully_shard(model)
        kind, extra = torch.optim.AdamW, {}
    else:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        kind, extra = ZeroRedundancyOptimizer, {"optimizer_class": torch.optim.AdamW}
    optimizer = kind([it for it in model.parameters() if it.requires_grad], lr=1e-3, **extra)
    keywords = inputs if isinstance(inputs, dict) else {}
    inputs = [it.to("cuda") for it in ([] if keywords else [inputs])]
    keywords = {key: it.to("cuda") for key, it in keywords.items()}
    targets = [made["targets"].to("cuda")] if "targets" in made else []

    def step():
        output = model(*inputs, **keywords)
        total = loss(output, *targets) if loss else output.sum() if output.dim() else output
        optimizer.zero_grad(set_to_none=True)
        total.backward()
        optimizer.step()

    # The first step makes the optimizer's state.
    step()
    torch.cuda.reset_peak_memory_stats()
    step()
    print(torch.cuda.max_memory_allocated())


if __name__ == "__main__":
    main(*sys.argv[1:])
