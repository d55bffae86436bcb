"""A PyTorch process for prove.py: a small network with AdamW. It reads a command per line, and
answers each with a line of JSON, `torch.cuda.memory_stats()` of the GPU unless said otherwise.

    trainer.py [MODE]

MODE
    compile    the network is compiled by torch.compile (inductor)
    autocast   bfloat16 by autocast

step N          trains for N steps
keep MIB        allocates a tensor and keeps it
drop            frees all kept tensors
stream          frees a tensor that another stream still uses
graph           captures a step of inference in a CUDA graph, and replays it
empty           empty_cache()
fork            forks a child that sleeps; answers with its PID
parts           answers with the bytes, in blocks, of parameters, gradients, optimizer state and
                buffers
time SECONDS [PAUSE]  trains, with a pause after each step, and answers with the median time of a
                step in seconds
leak MIB PAUSE  in each step keeps MIB of activations and then rests for PAUSE seconds, until memory
                is out; answers with the Unix time of that, and exits with 3
"""

import json
import os
import statistics
import sys
import time

import torch

MODE = sys.argv[1] if len(sys.argv) > 1 else ""
WIDTH = 2048


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.norm = torch.nn.BatchNorm1d(4 * WIDTH)
        self.second = torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return self.second(torch.relu(self.norm(self.first(x))))


def answer(value):
    print(json.dumps(value), flush=True)


net = Net().cuda()
optimizer = torch.optim.AdamW(net.parameters())
model = torch.compile(net) if MODE == "compile" else net
kept, graphs = [], []


def step(rows=256):
    x = torch.randn(rows, WIDTH, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=MODE == "autocast"):
        loss = model(x).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def stream():
    other = torch.cuda.Stream()
    block = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    with torch.cuda.stream(other):
        torch.cuda._sleep(2_000_000_000)
        block.add_(1)
    block.record_stream(other)
    del block


def graph():
    x = torch.randn(256, WIDTH, device="cuda")
    other = torch.cuda.Stream()
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other), torch.no_grad():
        for _ in range(3):
            net(x)
    torch.cuda.current_stream().wait_stream(other)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured), torch.no_grad():
        y = net(x)
    captured.replay()
    graphs.append((captured, x, y))


def sizes(tensors):
    """The bytes of the blocks of these tensors, as the allocator rounds them."""
    blocks = {}
    for segment in torch.cuda.memory_snapshot():
        at = segment["address"]
        for block in segment["blocks"]:
            blocks[block.get("address", at)] = block["size"]
            at += block["size"]
    return sum(blocks[it] for it in {it.untyped_storage().data_ptr() for it in tensors})


def parts():
    states = [it for state in optimizer.state.values() for it in state.values() if it.is_cuda]
    gradients = [it.grad for it in net.parameters() if it.grad is not None]
    snapshot = torch.cuda.memory_snapshot()
    answer(
        {
            "parameters": sizes(list(net.parameters())),
            "gradients": sizes(gradients),
            "optimizer_state": sizes(states),
            "buffers": sizes([it for it in net.buffers() if it.is_cuda]),
            "reserved": sum(it["total_size"] for it in snapshot),
            "allocated": sum(it["allocated_size"] for it in snapshot),
        }
    )


def leak(mib, pause):
    """The bug of many training scripts: a sum of losses that keeps each step's graph."""
    rows = max(1, (mib << 20) // (4 * WIDTH * 4 * 3))
    total = 0
    number = 0
    while True:
        x = torch.randn(rows, WIDTH, device="cuda")
        try:
            total += net(x).square().mean()  # fault
        except torch.OutOfMemoryError as error:
            print(error, file=sys.stderr, flush=True)
            answer({"out_of_memory": time.time(), "steps": number})
            sys.exit(3)
        number += 1
        time.sleep(pause)


answer({"torch": torch.__version__, "pid": os.getpid()})
for line in sys.stdin:
    word, *rest = line.split()
    if word == "step":
        for _ in range(int(rest[0])):
            step()
        torch.cuda.synchronize()
    elif word == "keep":
        kept.append(torch.empty(int(rest[0]) << 20, dtype=torch.uint8, device="cuda"))
    elif word == "drop":
        kept.clear()
    elif word == "stream":
        stream()
    elif word == "graph":
        graph()
    elif word == "empty":
        torch.cuda.empty_cache()
    elif word == "fork":
        child = os.fork()
        if child == 0:
            os.close(0)
            time.sleep(600)
            os._exit(0)
        answer({"child": child})
        continue
    elif word == "parts":
        parts()
        continue
    elif word == "time":
        times, end = [], time.perf_counter() + float(rest[0])
        while time.perf_counter() < end:
            began = time.perf_counter()
            step()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
            time.sleep(float(rest[1]) if len(rest) > 1 else 0)
        answer({"median": statistics.median(times), "steps": len(times)})
        continue
    elif word == "leak":
        leak(int(rest[0]), float(rest[1]))
    answer(torch.cuda.memory_stats())
