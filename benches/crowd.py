"""Starts many idle processes, prints their PIDs, and ends them all when its standard input closes.

    python3 crowd.py JOBS PROCESSES

The processes are dealt out to the jobs as a training launcher would have them: a launcher in a
session of its own, and its workers as children, each with a command line of its own. They sleep in
`pause()` from birth to death and cost no CPU. Whoever starts a crowd keeps the other end of its
standard input; when that end closes, even by SIGKILL, the crowd is gone.
"""

import contextlib
import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36

LIBC = ctypes.CDLL(None)


def main() -> None:
    jobs, processes = (int(it) for it in sys.argv[1:])
    # Workers whose launcher has ended come here to be reaped: not every PID 1 does that.
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
    arguments = argument_memory()
    receive, send = os.pipe()
    # A worker that wrote to a page of the interpreter would own a copy of it, 5,000 times over.
    gc.disable()
    gc.freeze()
    launchers = []
    for job in range(jobs):
        workers = processes // jobs + (job < processes % jobs)
        launchers.append(fork(launch, job, workers, arguments, send))
    os.close(send)
    with open(receive, encoding="ascii") as pids:
        print(*sorted(int(pid) for pid in pids), flush=True)
    sys.stdin.read()
    for launcher in launchers:
        os.kill(launcher, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def launch(job: int, workers: int, arguments: tuple[int, int], send: int) -> None:
    """Is one launcher, with all its workers. Never returns."""
    os.setsid()
    rename("launcher", f"torchrun\0train.py\0--job={job}", arguments)
    for rank in range(workers):
        worker = fork(work, job, rank, arguments, send)
        os.write(send, f"{worker}\n".encode())
    os.close(send)
    signal.pause()


def work(job: int, rank: int, arguments: tuple[int, int], send: int) -> None:
    """Is one worker. Never returns."""
    os.close(send)
    rename(f"rank-{rank}", f"python\0train.py\0--job={job}\0--rank={rank}", arguments)
    signal.pause()


def fork(child: Callable[..., None], *arguments) -> int:
    """Calls `child` in a process of its own, which ends when this one does."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have ended before the line above.
    if os.getppid() == parent:
        child(*arguments)
    os._exit(0)


def argument_memory() -> tuple[int, int]:
    """Where this process keeps its command line: the fields `arg_start` and `arg_end` of proc_pid_stat(5)."""
    with open("/proc/self/stat", encoding="ascii") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return int(fields[45]), int(fields[46])


def rename(name: str, command_line: str, arguments: tuple[int, int]) -> None:
    """Gives this process the name and the command line that a monitor will show."""
    start, end = arguments
    LIBC.prctl(PR_SET_NAME, name.encode())
    # Filled to the end with a last argument, as the kernel shows all of the old length.
    text = f"{command_line}\0--name=".encode().ljust(end - start - 1, b"x")
    ctypes.memmove(start, text[: end - start - 1] + b"\0", end - start)


if __name__ == "__main__":
    main()
