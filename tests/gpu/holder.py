"""Holds GPU memory through the CUDA driver alone, without PyTorch.

    holder.py MIB [HOW] [--stand-in]

HOW:
    (none)    this process holds the memory
    job       two children hold it, as DataLoader workers do; this process holds nothing
    deaf      this process holds it, and ignores SIGINT and SIGTERM
    fork      this process holds it; a forked child inherits the open device files, and sleeps
    share     this process holds it and prints an IPC handle; a child maps the handle
    zombie    a child ended, and this process never waits for it

Prints a line of JSON with the PIDs that hold the memory, and then waits until its input ends.
`--stand-in` does the same without CUDA: the fake driver makes the memory up.
"""

import ctypes
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time


class Cuda:
    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, self.context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.call("cuCtxSetCurrent", self.context)

    def call(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        if result:
            raise SystemExit(f"{name} failed with {result}")

    def allocate(self, size):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self.call("cuMemsetD8_v2", address, ctypes.c_ubyte(1), ctypes.c_size_t(size))
        return address

    def share(self, address):
        handle = (ctypes.c_char * 64)()
        self.call("cuIpcGetMemHandle", ctypes.byref(handle), address)
        return bytes(handle).hex()

    def map(self, text):
        class Handle(ctypes.Structure):
            _fields_ = [("bytes", ctypes.c_char * 64)]

        handle = Handle.from_buffer_copy(bytes.fromhex(text))
        address = ctypes.c_uint64()
        self.call("cuIpcOpenMemHandle_v2", ctypes.byref(address), handle, ctypes.c_uint(1))
        return address


def fork_sleeper():
    """Forks a child that only sleeps, with the files that are open now. Returns its PID."""
    child = os.fork()
    if child == 0:
        os.close(0)
        os.close(1)
        time.sleep(600)
        os._exit(0)
    return child


def wait():
    sys.stdin.read()


def announce(**more):
    print(json.dumps(more), flush=True)


def hold(size, stands_in):
    """Allocates, and returns what keeps the memory. Without CUDA, opens the device files."""
    if stands_in:
        devices = os.environ["GPUTOP_DEVICES"]
        return [open(devices + name) for name in ("0", "-uvm")]
    cuda = Cuda()
    return cuda, cuda.allocate(size)


def work(size, stands_in, ready):
    memory = hold(size, stands_in)
    ready.put(True)
    time.sleep(600)
    del memory


def main():
    words = [it for it in sys.argv[1:] if it != "--stand-in"]
    stands_in = "--stand-in" in sys.argv
    mib, how = int(words[0]), words[1] if len(words) > 1 else ""
    size = mib << 20

    if how == "job":
        # As DataLoader workers that are started anew.
        context = multiprocessing.get_context("spawn")
        ready = context.Queue()
        workers = [context.Process(target=work, args=(size, stands_in, ready)) for _ in range(2)]
        for worker in workers:
            worker.start()
        for _ in workers:
            ready.get()
        announce(pids=[it.pid for it in workers])
        wait()
    elif how == "zombie":
        memory = hold(size, stands_in)
        child = os.fork()
        if child == 0:
            os._exit(0)
        announce(pids=[os.getpid()], zombie=child)
        wait()
        del memory
    elif how == "fork":
        memory = hold(size, stands_in)
        child = fork_sleeper()
        announce(pids=[os.getpid()], child=child)
        wait()
        del memory
    elif how == "share":
        # Keeps the input of the child open. It is forked before CUDA opens device files.
        read, write = os.pipe()
        keeper = fork_sleeper()
        memory = hold(size, stands_in)
        child = subprocess.Popen(
            [sys.executable, __file__, "0", "map", memory[0].share(memory[1])],
            stdin=read,
            stdout=subprocess.PIPE,
        )
        child.stdout.readline()
        announce(pids=[os.getpid()], child=child.pid, keeper=keeper)
        wait()
        del memory, write
    elif how == "map":
        cuda = Cuda()
        address = cuda.map(words[2])
        announce(pids=[os.getpid()], address=address.value)
        wait()
    else:
        if how == "deaf":
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        memory = hold(size, stands_in)
        announce(pids=[os.getpid()])
        wait()
        del memory


if __name__ == "__main__":
    main()
