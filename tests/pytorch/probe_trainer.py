"""Small trainers for probe_check.py, on the fake CUDA runtime.

    probe_trainer.py SCENARIO STEPS

After each step it notes `torch.cuda.memory_stats()`. Then it waits for a line, and prints one line
of JSON: the stats of each step, and the expected bytes of some categories after the last step,
which it finds with PyTorch's public functions. Results of kernels are undefined here; the amounts
of memory are real.
"""

import copy
import gc
import json
import os
import sys
import time

import torch
from torch import nn

DEVICES = range(torch.cuda.device_count())
STATS = [
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
]


class Net(nn.Module):
    """Has parameters of several sizes, and buffers."""

    def __init__(self, width=512):
        super().__init__()
        # A bias would need cuBLASLt, of which there is only a stub.
        self.first = nn.Linear(width, 4 * width, bias=False)
        self.norm = nn.BatchNorm1d(4 * width)
        self.second = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        return self.second(torch.relu(self.norm(self.first(x))))


def loss_of(net, device=0, batch=64, width=512):
    x = torch.randn(batch, width, device=f"cuda:{device}")
    return net(x).square().mean()


def state_of(optimizer):
    return [value for state in optimizer.state.values() for value in state.values()]


def parts(nets, optimizers, **more):
    """The expected tensors by category, for the usual case."""
    modules = nn.ModuleList(nets)
    return dict(
        {
            "parameters": list(modules.parameters()),
            "gradients": [it.grad for it in modules.parameters() if it.grad is not None],
            "optimizer_state": [it for optimizer in optimizers for it in state_of(optimizer)],
            "buffers": list(modules.buffers()),
        },
        **more,
    )


# Each scenario returns (step, expected): a function that makes one step, and one that returns
# tensors by category.


def plain():
    nets = [Net().to(f"cuda:{device}") for device in DEVICES]
    optimizers = [torch.optim.AdamW(net.parameters()) for net in nets]
    net = nn.ModuleList(nets)
    # One optimizer for both devices.
    optimizer = torch.optim.AdamW(net.parameters())
    del optimizers

    def step():
        optimizer.zero_grad()
        for device in DEVICES:
            loss_of(nets[device], device).backward()
        optimizer.step()

    return step, lambda: parts(nets, [optimizer])


def lora():
    """Frozen weights, and a copy of a module for an average."""
    base, adapter = Net().cuda().requires_grad_(False), nn.Linear(512, 512, bias=False).cuda()
    average = copy.deepcopy(adapter)
    optimizer = torch.optim.SGD(adapter.parameters(), lr=0.1, momentum=0.9)

    def step():
        loss_of(lambda x: base(x) + adapter(x)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    return step, lambda: parts([base, adapter, average], [optimizer])


def gan():
    """Two optimizers take turns."""
    nets = [Net().cuda(), Net().cuda()]
    optimizers = [torch.optim.Adam(net.parameters()) for net in nets]

    def step():
        for net, optimizer in zip(nets, optimizers):
            optimizer.zero_grad()
            loss_of(net).backward()
            optimizer.step()

    return step, lambda: parts(nets, optimizers)


def in_backward():
    """One optimizer per parameter, which steps during backward."""
    net = Net().cuda()
    optimizers = {it: torch.optim.Adam([it]) for it in net.parameters()}
    gradients = []

    def hook(parameter):
        optimizers[parameter].step()
        if parameter is net.first.weight:
            step.own = stats()
            gradients[:] = block_sizes({"gradients": [parameter.grad]})["gradients"]
        optimizers[parameter].zero_grad()

    def step():
        loss_of(net).backward()

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(hook)
    return step, lambda: parts([net], optimizers.values(), gradients=gradients)


def recreated():
    """A new optimizer for each step."""
    net, last = Net().cuda(), []

    def step():
        last[:] = [torch.optim.Adam(net.parameters())]
        last[0].zero_grad()
        loss_of(net).backward()
        last[0].step()

    return step, lambda: parts([net], last)


def skipped():
    """Every third step is left out, as GradScaler does, and gradients are accumulated."""
    net, count = Net().cuda(), [0]
    optimizer = torch.optim.Adam(net.parameters())

    def step():
        for _ in range(3):
            loss_of(net).backward()
            count[0] += 1
        optimizer.step()
        loss_of(net).backward()
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()

    step.calls = 2
    return step, lambda: parts([net], [optimizer])


def leak():
    """Outputs with their history, and inputs, are kept."""
    net, kept = Net().cuda(), []
    optimizer = torch.optim.Adam(net.parameters())

    def step():
        optimizer.zero_grad()
        loss_of(net).backward()
        inputs = torch.randn(200, 512, device="cuda")
        kept.extend((inputs, net(inputs)))
        optimizer.step()

    return step, lambda: parts([net], [optimizer], named_tensors=kept[::2])


def odd_tensors():
    """Sparse gradients, subclasses of Tensor, lists in the optimizer's state, and a parameter
    that is a view of a larger buffer.
    """

    class Mine(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, arguments=(), keywords=None):
            if function.__name__ in ("data_ptr", "__get__"):
                raise AssertionError("the probe calls functions of the program")
            return super().__torch_function__(function, types, arguments, keywords or {})

    words = nn.Embedding(1000, 300, sparse=True).cuda()
    flat = torch.zeros(700_000, device="cuda")
    net = nn.Linear(512, 512, bias=False).cuda()
    net.weight = nn.Parameter(flat[: 512 * 512].view(512, 512))
    mine = torch.empty(300_000, device="cuda").as_subclass(Mine)
    optimizer = torch.optim.SGD([*words.parameters(), *net.parameters()], lr=0.1)
    optimizer.state[net.weight]["history"] = [torch.empty(50_000, device="cuda")]

    def step():
        optimizer.zero_grad()
        words.weight.grad = torch.sparse_coo_tensor(
            torch.zeros(1, 10, dtype=torch.long, device="cuda"),
            torch.zeros(10, 300, device="cuda"),
            (1000, 300),
        )
        (net(torch.randn(64, 512, device="cuda")).sum()).backward()
        optimizer.step()

    def expected():
        gradient = words.weight.grad
        return {
            "parameters": [words.weight, flat],
            "gradients": [net.weight.grad, gradient._values(), gradient._indices()],
            "optimizer_state": optimizer.state[net.weight]["history"],
            "named_tensors": [torch.Tensor.view(mine, torch.int32).as_subclass(torch.Tensor)],
        }

    return step, expected


def pools():
    """Memory that another stream still uses, fragments, and a private pool."""
    net, kept = Net().cuda(), []
    optimizer = torch.optim.Adam(net.parameters())
    pool = torch.cuda.MemPool() if hasattr(torch.cuda, "MemPool") else None

    def step():
        optimizer.zero_grad()
        loss_of(net).backward()
        shared = torch.empty(3_000_000, device="cuda")
        shared.record_stream(torch.cuda.Stream())
        del shared
        kept.append(torch.empty(150_000, device="cuda"))
        torch.empty(170_000, device="cuda")
        if pool is not None and len(kept) == 2:
            with torch.cuda.use_mem_pool(pool):
                kept.append(torch.empty(1_000_000, device="cuda"))
                torch.empty(900_000, device="cuda")
        optimizer.step()

    return step, lambda: parts([net], [optimizer])


def inference():
    """No optimizer, and no steps."""
    net, cache = Net().cuda().eval(), [torch.empty(200_000, device="cuda")]

    def step():
        with torch.no_grad():
            net(torch.randn(64, 512, device="cuda"))

    step.calls = 0
    return step, lambda: {
        "parameters": list(net.parameters()),
        "buffers": list(net.buffers()),
        "named_tensors": cache,
    }


def many():
    """More than 3000 allocations a step."""
    net = nn.Sequential(
        *(
            layer
            for _ in range(150)
            for layer in (nn.Linear(64, 64, bias=False), nn.LayerNorm(64), nn.ReLU())
        )
    ).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), foreach=False)

    def step():
        optimizer.zero_grad()
        loss_of(net, width=64).backward()
        optimizer.step()

    return step, lambda: parts([net], [optimizer])


def start_group(is_alone=False):
    """A process group of two ranks, of which only this one exists: its collectives do nothing."""
    if is_alone:
        torch.distributed.init_process_group(
            "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
        )
        return
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)


def ddp():
    start_group(is_alone=True)
    net = nn.parallel.DistributedDataParallel(
        Net().cuda(), device_ids=[0], gradient_as_bucket_view=True
    )
    optimizer = torch.optim.Adam(net.parameters())

    def step():
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()

    return step, lambda: parts([net], [optimizer])


def fsdp1():
    start_group()
    from torch.distributed.fsdp import FullyShardedDataParallel

    net = FullyShardedDataParallel(Net().cuda(), device_id=0)
    optimizer = torch.optim.Adam(net.parameters())

    def step():
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()

    return step, lambda: {
        "optimizer_state": state_of(optimizer),
        "parameters": list(net.parameters()),
    }


def fsdp2():
    start_group()
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        from torch.distributed._composable.fsdp import fully_shard
    net = Net()
    net.norm = nn.LayerNorm(2048)
    net = net.cuda()
    fully_shard(net)
    optimizer = torch.optim.Adam(net.parameters())

    def step():
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()

    def local(tensors):
        return [it._local_tensor if hasattr(it, "_local_tensor") else it for it in tensors]

    return step, lambda: {
        "optimizer_state": local(state_of(optimizer)),
        "parameters": local(net.parameters()),
        "gradients": local(it.grad for it in net.parameters()),
    }


def stats():
    found = []
    for device in DEVICES:
        figures = torch.cuda.memory_stats(device)
        found.append({name: figures.get(f"{name}.all.current") for name in STATS})
        found[-1]["peak"] = figures["allocated_bytes.all.peak"]
    return found


def block_sizes(tensors_by_category):
    """Bytes of the blocks that the tensors are in."""
    blocks = []
    for segment in torch.cuda.memory_snapshot():
        address = segment["address"]
        for block in segment["blocks"]:
            blocks.append((address, block["size"], segment["device"]))
            address += block["size"]
    found = {}
    for category, tensors in tensors_by_category.items():
        if tensors and isinstance(tensors[0], int):
            found[category] = tensors
            continue
        mine = set()
        for tensor in tensors:
            if torch.is_tensor(tensor) and tensor.is_cuda:
                mine |= {it for it in blocks if it[0] <= tensor.data_ptr() < it[0] + it[1]}
        found[category] = [
            sum(size for _, size, its in mine if its == device) for device in DEVICES
        ]
    return found


def costs():
    """Measures the seconds that the probe takes, in its thread and in its hooks. Returns a
    function that tells them.
    """
    from gputop_probe import probe

    spent = {"_step_ended": 0.0, "interrupt": 0.0, "_turn": 0.0}

    def measure(name):
        inner = getattr(probe.active, name)

        def outer(*arguments):
            began = time.thread_time()
            try:
                return inner(*arguments)
            finally:
                spent[name] += time.thread_time() - began

        return outer

    probe.active._turn = measure("_turn")
    # The hook has a reference to the bound method.
    active = probe.active
    steps_note, work = active.steps.note, active._work
    active.steps.note = lambda optimizer: _timed(spent, "_step_ended", steps_note, optimizer)
    active._work = lambda moment: _timed(spent, "interrupt", work, moment)
    levels = active._read_levels
    active._read_levels = lambda is_floor: _timed(spent, "_step_ended", levels, is_floor)
    diagnose = active.diagnosis.after_step
    active.diagnosis.after_step = lambda count: _timed(spent, "_step_ended", diagnose, count)
    return spent


def _timed(spent, name, function, argument):
    began = time.thread_time()
    try:
        return function(argument)
    finally:
        spent[name] += time.thread_time() - began


def is_read(steps, calls):
    """Whether the probe read the memory after the last step, with a scan. If not, it is asked
    to. True without a probe.
    """
    try:
        from gputop_probe import probe
    except ImportError:
        return True
    last = probe.active.step_end if steps else probe.active.grouped
    if last is not None and last.is_scan and (not steps or last.step > steps - calls):
        return True
    if not probe.active._tasks:
        probe.active.in_program(lambda: probe.active.read(scan=True))
    return False


def main():
    scenario, count = sys.argv[1], int(sys.argv[2])
    if "MEASURE" not in os.environ:
        # Where the program makes garbage in cycles, the moment of its collection would differ.
        # PyTorch's own objects are left out.
        gc.disable()
        gc.freeze()
    step, expected = globals()[scenario]()
    history, calls = [], getattr(step, "calls", 1)
    spent = began = cpu = None
    while (
        len(history) < count
        or "ONLY" not in os.environ
        and not is_read(len(history) * calls, calls)
    ):
        if len(history) == 5:
            spent = costs() if "MEASURE" in os.environ else None
            began, cpu = time.monotonic(), time.process_time()
        step()
        history.append(getattr(step, "own", None) or stats())
        if not gc.isenabled():
            gc.collect()
    found = {
        "torch": torch.__version__,
        "calls": calls,
        "steps": history,
        "expected": block_sizes(expected()),
        "seconds": time.monotonic() - began,
        "cpu": time.process_time() - cpu,
        "spent": spent and sum(spent.values()),
    }
    print(json.dumps(found), flush=True)
    sys.stdin.readline()


main()
