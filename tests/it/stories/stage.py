"""What the programs of the stories have in common. Each tells the test its part and its PID when it is ready."""

import ctypes
import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

PR_SET_CHILD_SUBREAPER = 36
SYS_EXIT = {"x86_64": 60, "aarch64": 93}


def limit():
    # The test ends whom it started. Should it be killed itself, nobody stays for ever.
    signal.alarm(300)


limit()
os.register_at_fork(after_in_child=limit)


def say(part):
    with open(os.environ["STORY_PARTS"], "a") as parts:
        parts.write(f"{os.environ['STORY']} {part} {os.getpid()}\n")


def rest(part):
    """Says who it is, and does nothing from then on."""
    say(part)
    while True:
        signal.pause()


def hold():
    """Opens the GPU's device file and those that all GPUs share, as CUDA does. A forked child has them too."""
    for name in os.environ["STORY"], "ctl", "-uvm":
        os.open(os.environ["GPUTOP_DEVICES"] + name, os.O_RDONLY)


def watch():
    """Opens what NVML opens: a monitor has no memory on a GPU."""
    for name in os.environ["STORY"], "ctl":
        os.open(os.environ["GPUTOP_DEVICES"] + name, os.O_RDONLY)


def rename(comm):
    with open("/proc/self/comm", "w") as file:
        file.write(comm)


def adopt():
    """From now on, orphans below this process are left to it, and not to PID 1."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def python(*args, **more):
    return subprocess.Popen([sys.executable, *args], stdin=subprocess.DEVNULL, **more)


def end_first_thread():
    """Ends the thread that runs this, and no other."""
    ctypes.CDLL(None).syscall(SYS_EXIT[os.uname().machine], 0)


class DataLoader:
    """PyTorch's, as far as its processes go: forked workers that look every 5 s whether their parent lives."""

    def __init__(self, dataset, workers):
        context = get_context("fork")
        self.results = context.Queue()
        self.indices = []
        for number in range(workers):
            indices = context.Queue()
            indices.cancel_join_thread()
            part = f"worker{number}"
            context.Process(target=work, args=(dataset, indices, self.results, part), daemon=True).start()
            self.indices.append(indices)

    def ask(self):
        """Asks each worker for one item; nobody fetches what they bring."""
        for number, indices in enumerate(self.indices):
            indices.put(number)


def work(dataset, indices, results, part):
    parent = os.getppid()
    rename("pt_data_worker")
    dataset.part = part
    dataset.ready()
    while True:
        try:
            index = indices.get(timeout=5)
        except queue.Empty:
            if os.getppid() != parent:
                return
            continue
        results.put(dataset[index])


class Dataset:
    """Small items, at once."""

    def ready(self):
        say(self.part)

    def __getitem__(self, index):
        return index


class Large(Dataset):
    """Items that no pipe takes whole: the worker is ready when one waits to be fetched."""

    def ready(self):
        pass

    def __getitem__(self, index):
        say(self.part)
        return bytes(1 << 20)


class Stuck(Large):
    """An item that never comes."""

    def __getitem__(self, index):
        rest(self.part)
