"""Functions for the programs of the stories. Each process reports its role and PID to the test
when it is ready.
"""

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
LONGEST_LIFE_S = 300


def limit_lifetime():
    """Ends this process after five minutes. The test ends its processes, but may be killed
    itself.
    """
    signal.alarm(LONGEST_LIFE_S)


limit_lifetime()
os.register_at_fork(after_in_child=limit_lifetime)


def report_ready(role):
    with open(os.environ["STORY_PIPE"], "a") as pipe:
        pipe.write(f"{os.environ['STORY_GPU']} {role} {os.getpid()}\n")


def sleep_as(role):
    """Reports that this process is ready, and sleeps from then on."""
    report_ready(role)
    while True:
        signal.pause()


def open_device_files():
    """Opens the device file of the GPU and those that all GPUs share, as CUDA does. A forked
    child inherits them.
    """
    for name in os.environ["STORY_GPU"], "ctl", "-uvm":
        os.open(os.environ["GPUTOP_DEVICES"] + name, os.O_RDONLY)


def open_monitor_files():
    """Opens the device files that NVML opens. A monitor uses no memory of a GPU."""
    for name in os.environ["STORY_GPU"], "ctl":
        os.open(os.environ["GPUTOP_DEVICES"] + name, os.O_RDONLY)


def set_comm(comm):
    with open("/proc/self/comm", "w") as file:
        file.write(comm)


def become_subreaper():
    """Makes this process the parent of orphans among its descendants, in place of PID 1."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start_python(*args, **options):
    return subprocess.Popen([sys.executable, *args], stdin=subprocess.DEVNULL, **options)


def end_this_thread():
    """Ends the calling thread only: the process lives on while it has other threads."""
    ctypes.CDLL(None).syscall(SYS_EXIT[os.uname().machine], 0)


class DataLoader:
    """Processes like those of PyTorch's DataLoader: forked workers that check every 5 s whether
    their parent lives.
    """

    def __init__(self, dataset, workers):
        context = get_context("fork")
        self.results = context.Queue()
        self.indices = []
        for number in range(workers):
            indices = context.Queue()
            indices.cancel_join_thread()
            role = f"worker{number}"
            context.Process(
                target=work, args=(dataset, indices, self.results, role), daemon=True
            ).start()
            self.indices.append(indices)

    def request_items(self):
        """Requests one item from each worker. The results are never fetched."""
        for number, indices in enumerate(self.indices):
            indices.put(number)


def work(dataset, indices, results, role):
    """The loop of a worker."""
    parent = os.getppid()
    set_comm("pt_data_worker")
    dataset.role = role
    dataset.started()
    while True:
        try:
            index = indices.get(timeout=5)
        except queue.Empty:
            if os.getppid() != parent:
                return
            continue
        results.put(dataset[index])


class Dataset:
    """Small items, available at once."""

    def started(self):
        report_ready(self.role)

    def __getitem__(self, index):
        return index


class Large(Dataset):
    """Items that are larger than a pipe: a worker is ready when one waits to be fetched."""

    def started(self):
        pass

    def __getitem__(self, index):
        report_ready(self.role)
        return bytes(1 << 20)


class Stuck(Large):
    """An item that never comes."""

    def __getitem__(self, index):
        sleep_as(self.role)
