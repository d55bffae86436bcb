#!/usr/bin/env python3
"""Checks in the lab that no step of `gputop --slurm JOB --srun` outlives its viewer.

    lab.py slurm 1-8
    slurm_steps.py $(lab.py train --nodes 8 --ranks 4)

Starts a viewer in a terminal, here and through a login host, and ends it in three ways: by `q`, by
the end of its terminal, and by SIGKILL. Prints how long steps stayed, and fails after five seconds.
"""

import argparse
import fcntl
import os
import pathlib
import pty
import signal
import struct
import sys
import termios
import threading
import time

import lab
import slurm_lab

LONGEST = 5.0
# How long the steps may take to begin.
PATIENCE = 30.0


def steps(job):
    """Returns the steps of a job that run besides its own, which began first."""
    printed = lab.as_alice(["squeue", "-h", "-s", "-j", job, "-o", "%i"]).stdout.split()
    return [step for step in printed if not step.endswith((".batch", ".extern", f"{job}.0"))]


def start_viewer(words):
    """Starts a viewer in a terminal. Returns its PID, and the terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        lab.as_viewer(words)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))

    def discard():
        try:
            while os.read(terminal, 65536):
                pass
        except OSError:
            pass

    threading.Thread(target=discard, daemon=True).start()
    return pid, terminal


def wait_until(condition, patience):
    """Waits until a condition is true. Returns how long that took; `None` if it is never true."""
    began = time.monotonic()
    while time.monotonic() - began < patience:
        if condition():
            return time.monotonic() - began
        time.sleep(0.1)
    return None


def viewers():
    """Returns the PIDs of the viewers of the lab."""
    program = (lab.LAB / "bin/gputop").resolve()
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            is_viewer = b"--srun" in (process / "cmdline").read_bytes().split(b"\0")
            if is_viewer and (process / "exe").resolve() == program:
                found.append(int(process.name))
        except OSError:
            pass
    return found


def check(job, target, ending, nodes):
    pid, terminal = start_viewer(["gputop", "--slurm", target, "--srun"])
    begun = wait_until(lambda: len(steps(job)) == nodes, PATIENCE)
    if begun is None:
        sys.exit(f"{target}: the steps did not begin")
    # The agents have sent lines: what follows is the usual end.
    wait_until(lambda: False, 2.0)
    if ending == "q":
        os.write(terminal, b"q")
    elif ending == "hangup":
        os.close(terminal)
    else:
        for viewer in viewers():
            os.kill(viewer, signal.SIGKILL)
    stayed = wait_until(lambda: not steps(job), 4 * LONGEST)
    os.waitpid(pid, 0)
    words = "stayed" if stayed is None else f"gone after {stayed:.1f} s"
    print(f"{target:20} {ending:7} {nodes} steps after {begun:.1f} s, {words}")
    return stayed is not None and stayed <= LONGEST


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("job")
    job = parser.parse_args().job
    names, _ = lab.slurm_nodes()
    nodes = len({number for number, *_ in slurm_lab.ranks_of(lab.LAB, names, job)})
    login = names[min(names)]
    results = [
        check(job, target, ending, nodes)
        for target in (job, f"{login}:{job}")
        for ending in ("q", "hangup", "kill")
    ]
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
