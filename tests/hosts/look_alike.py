"""Starts a process that looks like a rank on a host of the lab, for `ends.py`, and prints its PID.

    look_alike.py UID GPU [PID]

With a PID, the process gets that one, which must be free. Its environment is the one of this
program.
"""

import os
import pathlib
import sys

# The processes that may take the PID before it is tried.
TRIES = 2000


def become(user, gpu):
    """Becomes a process of the user with the name of a rank and the files of a GPU open."""
    os.setsid()
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    null = os.open("/dev/null", os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    for name in (gpu, "-uvm"):
        os.set_inheritable(os.open(os.environ["GPUTOP_DEVICES"] + name, os.O_RDWR), True)
    os.execv("/usr/bin/sleep", ["python train.py --steps", "infinity"])


def main():
    user, gpu = int(sys.argv[1]), sys.argv[2]
    wanted = int(sys.argv[3]) if len(sys.argv) > 3 else None
    for _ in range(TRIES):
        if wanted is not None:
            pathlib.Path("/proc/sys/kernel/ns_last_pid").write_text(str(wanted - 1))
        child = os.fork()
        if child == 0:
            if wanted not in (None, os.getpid()):
                os._exit(0)
            become(user, gpu)
        if wanted in (None, child):
            print(child)
            return
        os.waitpid(child, 0)
    sys.exit(f"PID {wanted} was not free")


main()
