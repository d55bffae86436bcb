"""Shared by the scripts of this folder: a small model, batches, and a loop that runs for
FAULT_SECONDS.
"""

import os
import sys
import time

import torch

DEVICE = "cuda"
WITH_BACKWARD = "--no-backward" not in sys.argv


class Net(torch.nn.Module):
    def __init__(self, width=256):
        super().__init__()
        # A bias would need cuBLASLt, of which the fake CUDA has only a stub.
        self.first = torch.nn.Linear(width, 2 * width, bias=False)
        self.norm = torch.nn.LayerNorm(2 * width)
        self.second = torch.nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        return self.second(torch.relu(self.norm(self.first(x))))


def batch(rows=64, width=256):
    return torch.randn(rows, width, device=DEVICE)


def loss_of(output):
    return torch.nn.functional.mse_loss(output, torch.zeros_like(output))


def steps(seconds=None):
    """Yields the numbers of steps for some seconds, or until STEPS steps."""
    end = time.monotonic() + float(seconds or os.environ.get("FAULT_SECONDS", "10"))
    most = int(os.environ.get("FAULT_STEPS", "2000"))
    step = 0
    while time.monotonic() < end and step < most:
        yield step
        step += 1
        time.sleep(0.002)


def train(optimizer, loss, **options):
    if WITH_BACKWARD:
        optimizer.zero_grad()
        loss.backward(**options)
        optimizer.step()
