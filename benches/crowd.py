"""Starts many idle processes, prints their PIDs, and ends them all when its standard input closes.

    python3 crowd.py JOBS PROCESSES

Each job is like that of a training launcher: a launcher in a session of its own, and its workers as
children, each with a command line of its own. All sleep in `pause()` and cost no CPU. They end when
the standard input of this script closes, also when the process at its other end is killed.
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
    jobs, processes = (int(argument) for argument in sys.argv[1:])
    # Reaps the workers of ended launchers: not every PID 1 does.
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
    arguments = argument_memory()
    receive, send = os.pipe()
    # Garbage collection would write to pages of the interpreter, and so copy them into each of
    # 5,000 workers.
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
    """Runs as a launcher and starts its workers. Never returns."""
    os.setsid()
    rename("launcher", f"torchrun\0train.py\0--job={job}", arguments)
    for rank in range(workers):
        worker = fork(work, job, rank, arguments, send)
        os.write(send, f"{worker}\n".encode())
    os.close(send)
    signal.pause()


def work(job: int, rank: int, arguments: tuple[int, int], send: int) -> None:
    """Runs as a worker. Never returns."""
    os.close(send)
    rename(f"rank-{rank}", f"python\0train.py\0--job={job}\0--rank={rank}", arguments)
    signal.pause()


def fork(child: Callable[..., None], *arguments) -> int:
    """Calls `child` in a child process, which ends when this process does."""
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
    """The address range of the command line of this process: the fields `arg_start` and
    `arg_end` of proc_pid_stat(5).
    """
    with open("/proc/self/stat", encoding="ascii") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return int(fields[45]), int(fields[46])


def rename(name: str, command_line: str, arguments: tuple[int, int]) -> None:
    """Sets the name and the command line of this process."""
    start, end = arguments
    LIBC.prctl(PR_SET_NAME, name.encode())
    # A last argument fills the range, because the kernel shows all of it.
    text = f"{command_line}\0--name=".encode().ljust(end - start - 1, b"x")
    ctypes.memmove(start, text[: end - start - 1] + b"\0", end - start)


if __name__ == "__main__":
    main()
