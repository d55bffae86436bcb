"""A program with marks, for marks_check.py: `marked.py OUTPUT ORDER STEPS`.

ORDER is `stub` or `torch`, the module that is imported first. Writes what PyTorch said at each mark
into OUTPUT as JSON, and then goes on allocating until it is ended.
"""

import importlib
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "assets/stub"))
for module in ("gputop_probe", "torch") if sys.argv[2] == "stub" else ("torch", "gputop_probe"):
    importlib.import_module(module)

import gputop_probe  # noqa: E402
import torch  # noqa: E402
from gputop_probe import phase  # noqa: E402

allocated = {}


def mark(name):
    gputop_probe.mark(name)
    note(name)


def note(name):
    allocated[name] = torch.cuda.memory_allocated() if torch.cuda.is_initialized() else 0


mark("begin")
weights = [torch.zeros(1000, 100, device="cuda") for _ in range(3)]
mark("a")
kept = [torch.zeros(64, 64, device="cuda") for _ in range(5)]
del weights[0]
mark("b")
for _ in range(3):
    with phase("eval"):
        kept.append(torch.zeros(7, device="cuda", dtype=torch.float16))
    dropped = torch.zeros(9, device="cuda")
note("eval end")

model = torch.nn.Sequential(
    torch.nn.Linear(256, 512, bias=False), torch.nn.ReLU(), torch.nn.Linear(512, 128, bias=False)
).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(int(sys.argv[3])):
    inputs = torch.randn(32, 256, device="cuda")
    mark("step")
    loss = model(inputs).sum()
    mark("forward")
    loss.backward()
    del loss
    mark("backward")
    optimizer.step()
    mark("updated")
    optimizer.zero_grad()

draft = Path(sys.argv[1] + ".part")
draft.write_text(json.dumps(allocated))
draft.rename(sys.argv[1])
late = []
while True:
    late.append(torch.zeros(11, device="cuda"))  # kept
    passing = torch.zeros(300, 13, device="cuda")
    time.sleep(0.05)
    del passing
