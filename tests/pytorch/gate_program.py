"""A program of `gputop run --fail-on-leak`, with the stand-in for PyTorch. The arguments are parts,
which run one after the other.
"""

import gc
import os
import signal
import sys
import time

SECONDS = 2.0


def train(keep):
    import torch

    parameter = torch.nn.Parameter(8, 8)
    torch.empty(1)
    optimizer = torch.optim.Optimizer([parameter])
    outputs = []
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        time.sleep(0.005)
        output = torch.empty(1000, 10)
        optimizer.step()
        if keep:
            outputs.append(output)


def in_child(function):
    """Runs a function in a forked child, which ends by os._exit without cleaning up."""
    child = os.fork()
    if child == 0:
        function()
        os._exit(0)
    os.waitpid(child, 0)


kept = []


def run_tests(test):
    """Stands in for pytest, which calls the plugin after each test."""

    class PytestPluginManager:
        def register(self, plugin):
            self.plugin = plugin

    sys.modules["_pytest.config"] = sys.modules[__name__]
    globals()["PytestPluginManager"] = PytestPluginManager
    manager = PytestPluginManager()

    import torch

    torch.empty(1)
    for number in range(60):
        test(number, torch.empty(1000, 10))
        manager.plugin.pytest_runtest_logfinish()


def test_kept(number, tensor):
    kept.append(tensor)


class Trainer:
    """A reference cycle, which the garbage collector frees."""

    def __init__(self, tensor):
        self.outputs = []
        self.outputs.append(tensor)
        self.trainer = self


def test_cycle(number, tensor):
    gc.disable()
    Trainer(tensor)


def test_freed_later(number, tensor):
    kept.append(tensor)
    if number == 40:
        kept.clear()


def train_unjudged():
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    train(False)


def count_signals():
    """Prints each signal, and reads a line of the standard input."""

    def tell(number, _):
        # `print` may not interrupt itself.
        os.write(1, signal.Signals(number).name.encode() + b"\n")

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, tell)
    print("ready %d" % os.getpid(), flush=True)
    print("read %s" % sys.stdin.readline().strip(), flush=True)


def tell_when_continued():
    signal.signal(signal.SIGCONT, lambda number, _: os.write(1, b"continued\n"))


def hold_devices():
    """Opens files that stand for device files, until the process ends."""
    for path in os.environ["DEVICES"].split():
        os.open(path, os.O_RDONLY)


PARTS = {
    "leak": lambda: train(True),
    "healthy": lambda: train(False),
    "leak in a child": lambda: in_child(lambda: train(True)),
    "unjudged in a child": lambda: in_child(train_unjudged),
    "leak over tests": lambda: run_tests(test_kept),
    "healthy tests": lambda: run_tests(lambda _, tensor: None),
    "cycles over tests": lambda: run_tests(test_cycle),
    "freed after tests": lambda: run_tests(test_freed_later),
    "devices": hold_devices,
    "signals": count_signals,
    "continued": tell_when_continued,
    "fail": lambda: sys.exit(7),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "print": lambda: print("printed", flush=True),
}

for part in sys.argv[1:]:
    PARTS[part]()
