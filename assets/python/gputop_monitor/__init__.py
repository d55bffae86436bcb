"""GPU memory of this machine in Python, by the program gputop.

    import gputop_monitor

    for snapshot in gputop_monitor.snapshots(interval=5):
        for gpu in snapshot.gpus:
            print(gpu.index, gpu.memory_used_bytes)

    with gputop_monitor.measure() as block:
        train()
    print(block.peak_bytes, block.growth_bytes, block.leftovers)

    with gputop_monitor.watch(gputop_monitor.to_wandb(wandb.run)):
        train()

`snapshots` raises a `GputopError` where gputop is missing, cannot read GPUs, or ends. `measure` and
`watch` never raise one into the program around them: they warn once, and say it in `trouble`.
"""

from .block import Block, measure
from .program import GputopEnded, GputopError, GputopNotFound, NoDriver, NoGpu, program_path
from .snapshot import Gpu, GpuProcess, Process, Snapshot, snapshots
from .watch import Watch, metrics, to_mlflow, to_tensorboard, to_wandb, watch

__all__ = [
    "Block",
    "Gpu",
    "GpuProcess",
    "GputopEnded",
    "GputopError",
    "GputopNotFound",
    "NoDriver",
    "NoGpu",
    "Process",
    "Snapshot",
    "Watch",
    "measure",
    "metrics",
    "program_path",
    "snapshots",
    "to_mlflow",
    "to_tensorboard",
    "to_wandb",
    "watch",
]
