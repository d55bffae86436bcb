"""A trainer on the fake CUDA runtime. It reads a command per line, and answers each with one line
of JSON: the `torch.cuda.memory_stats()` of each device.

step N      trains for N steps
keep MIB    allocates a tensor and keeps it
drop        frees all kept tensors
stream      frees a tensor that another stream still uses
empty       empty_cache()
peaks       reset_peak_memory_stats()
totals      reset_accumulated_memory_stats()
oom         requests more memory than there is
run SECONDS trains, and answers with the median CPU time of a step in seconds, instead of the stats
"""

import json
import statistics
import sys
import time

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        # A bias would need cuBLASLt, of which there is only a stub.
        self.first = torch.nn.Linear(1024, 4096, bias=False)
        self.norm = torch.nn.LayerNorm(4096)
        self.second = torch.nn.Linear(4096, 1000, bias=False)

    def forward(self, x):
        return self.second(torch.relu(self.norm(self.first(x))))


devices = range(torch.cuda.device_count())
nets = [Net().to(f"cuda:{device}") for device in devices]
optimizers = [torch.optim.AdamW(net.parameters()) for net in nets]
kept = []


def step():
    for device, net, optimizer in zip(devices, nets, optimizers):
        x = torch.randn(256 + 64 * device, 1024, device=f"cuda:{device}")
        y = net(x)
        loss = torch.nn.functional.mse_loss(y, torch.zeros_like(y))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def answer(value):
    print(json.dumps(value), flush=True)


answer({"torch": torch.__version__})
for line in sys.stdin:
    word, *rest = line.split()
    if word == "step":
        for _ in range(int(rest[0])):
            step()
    elif word == "keep":
        kept.append(torch.empty(int(rest[0]) << 18, device="cuda:0"))
    elif word == "drop":
        kept.clear()
    elif word == "stream":
        shared = torch.empty(5_000_001, device="cuda:0")
        shared.record_stream(torch.cuda.Stream())
        del shared
    elif word == "empty":
        torch.cuda.empty_cache()
    elif word == "peaks":
        for device in devices:
            torch.cuda.reset_peak_memory_stats(device)
    elif word == "totals":
        for device in devices:
            torch.cuda.reset_accumulated_memory_stats(device)
    elif word == "oom":
        try:
            torch.empty(1 << 40, device="cuda:0")
        except RuntimeError:
            pass
    elif word == "run":
        times, end = [], time.monotonic() + float(rest[0])
        while time.monotonic() < end:
            # CPU time: elapsed time would include other processes.
            began = time.process_time()
            step()
            times.append(time.process_time() - began)
        answer({"median": statistics.median(times), "steps": len(times)})
        continue
    answer([torch.cuda.memory_stats(device) for device in devices])
