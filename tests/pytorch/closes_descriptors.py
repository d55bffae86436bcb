"""Closes all descriptors as daemons do, also those of the probe, and opens files, which get their
numbers.

Arguments: how the process that does so is started, and a folder for its files. It waits until the
probe has published 20 reports in a new memfd, and then writes into each file, the last line as late
as Python allows.
"""

import gc
import json
import multiprocessing
import os
import struct
import sys
import time

LINES = 3


def read_memfd():
    """The number of reports that the probe has published in the open memfd of this process, and
    the last report.
    """
    for number in os.listdir("/proc/self/fd"):
        try:
            if os.readlink("/proc/self/fd/" + number) == "/memfd:gputop-probe (deleted)":
                pid, _, sequence, length = struct.unpack_from(
                    "<IQQI", os.pread(int(number), 64, 0), 12
                )
                if pid == os.getpid():
                    return sequence // 2, os.pread(int(number), length, 64)
        except FileNotFoundError:
            pass
    return 0, b""


def wait_for_reports(count, optimizer):
    """Trains until then: the probe reads a program that only waits once a second at most."""
    while read_memfd()[0] < count:
        optimizer.step()
        time.sleep(0.01)


def reopen(folder):
    os.closerange(3, 4096)
    return [open(os.path.join(folder, "file%d" % number), "w") for number in range(8)]


def work(folder):
    import torch

    tensor = torch.empty(1000)
    optimizer = torch.optim.Optimizer([tensor])
    wait_for_reports(1, optimizer)
    files = reopen(folder)
    for line in range(LINES):
        if line > 0:
            wait_for_reports(20, optimizer)
            gc.collect()
        for file in files:
            file.write("line %d\n" % line)
            if line < LINES - 1:
                file.flush()
    del optimizer, tensor
    return files


def close_again_and_again():
    """Prints why the probe does not come back any more."""
    import torch

    tensor = torch.empty(1000)
    optimizer = torch.optim.Optimizer([tensor])
    wait_for_reports(1, optimizer)
    while True:
        os.closerange(3, 4096)
        wait_for_reports(1, optimizer)
        trouble = json.loads(read_memfd()[1]).get("trouble", [""])[0]
        if "stopped" in trouble:
            print(trouble)
            del optimizer, tensor
            return


def work_in_fork(folder):
    """The child of a program with the probe."""
    import torch

    tensor = torch.empty(1000)
    optimizer = torch.optim.Optimizer([tensor])
    wait_for_reports(1, optimizer)
    child = os.fork()
    if child:
        del optimizer, tensor
        return os.waitpid(child, 0)[1]
    kept = reopen(folder)
    gc.collect()
    for file in kept:
        file.write("".join("line %d\n" % line for line in range(LINES)))
    # The module of this function keeps the files until Python exits.
    globals()["kept"] = kept
    return 0


if __name__ == "__main__":
    method, folder = sys.argv[1:]
    if method == "none":
        kept = work(folder)
    elif method == "again and again":
        close_again_and_again()
    elif method == "fork of the probe":
        sys.exit(work_in_fork(folder))
    else:
        process = multiprocessing.get_context(method).Process(target=work, args=(folder,))
        process.start()
        process.join()
        sys.exit(process.exitcode)
