"""Checks on processes: the list, the end of one and of a job, and memory whose owner is gone."""

import json
import re
import signal
import time

from lab import MIB, signal_own

F9 = "\x1b[20~"
DOWN, ENTER = "\x1b[B", "\r"


def listed(lab, it):
    """A process that allocates a known amount is listed with it, its user and its command."""
    child = lab.holder(1500)
    memory = lab.wait_for_memory(child.pid)
    # A CUDA context needs a few hundred MiB of its own.
    it.near("memory in MiB", memory // MIB, 1500 + 350, 350)
    row = next(one for one in lab.gpu()["processes"] if one["pid"] == child.pid)
    it.holds("the command", "holder.py" in row["command"], row["command"])
    it.note(f"1500 MiB allocated: the driver counts {memory // MIB} MiB")
    child.end()
    lab.wait("the end of the process", lambda: lab.memory_of(child.pid) is None)


def send_sigterm(screen, pid):
    """Ends a process in the dialog of a screen that shows it alone."""
    screen.wait_for(f" {pid} ")
    screen.keys(F9)
    screen.wait_for(f"End process {pid}")
    screen.wait_for("Verified: only")
    screen.keys(ENTER)


def end_process(lab, it):
    """The dialog ends one process and says that its memory came back."""
    child = lab.holder(3000)
    memory = lab.wait_for_memory(child.pid)
    before = lab.gpu()["load"]["memory_used_bytes"]
    screen = lab.screen("--pid", str(child.pid), "--interval", "500ms")
    try:
        send_sigterm(screen, child.pid)
        child.process.wait(30)
        screen.wait_for("returned", 30)
        said = next(line for line in screen.text().splitlines() if "returned" in line)
        amounts = re.search(r"returned ([\d.]+) GiB of ([\d.]+) GiB", said)
        it.holds("the screen says how much was returned", amounts, said.strip(" │"))
        if amounts:
            it.near("GiB returned", float(amounts[1]), float(amounts[2]), 0.2)
            it.near("GiB that it held", float(amounts[2]), memory / (1 << 30), 0.2)
        it.note(said.strip(" │"))
    finally:
        screen.end()
    if lab.is_real:
        lab.wait(
            "less memory in use",
            lambda: lab.gpu()["load"]["memory_used_bytes"] < before - 2000 * MIB,
        )
    lab.wait("the end of the process", lambda: lab.memory_of(child.pid) is None)


def orphan_rows(lab, pids, seconds=20):
    """The rows of `gputop orphans` for these PIDs, once it has all of them."""

    def rows():
        done = lab.gputop("orphans", "--json", codes=(0, 10))
        found = {
            one["pid"]: one for one in json.loads(done.stdout)["processes"] if one["pid"] in pids
        }
        return len(found) == len(pids) and (found, done.returncode)

    return lab.wait(f"gputop orphans names {pids}", rows, seconds)


def orphan_workers(lab, it):
    """Workers left by a `kill -9` of their parent are orphans, and their end frees the memory."""
    parent = lab.holder(600, "job")
    workers = parent.answer["pids"]
    lab.wait("the workers in gputop", lambda: all(lab.memory_of(pid) for pid in workers))
    signal_own(parent.pid, signal.SIGKILL)
    parent.process.wait()
    found, code = orphan_rows(lab, workers)
    it.same("the exit code", code, 10)
    for pid in workers:
        it.same("the verdict", found[pid]["verdict"], "orphan")
        it.holds(
            "the reason is a sentence", len(found[pid]["sentence"]) > 20, found[pid]["sentence"]
        )
    it.note(found[workers[0]]["sentence"])
    for pid in workers:
        signal_own(pid, signal.SIGTERM)
    lab.wait("no memory of them", lambda: not any(lab.memory_of(pid) for pid in workers))
    parent.end()


def deaf(lab, it):
    """A process that ignores SIGINT and SIGTERM: the dialog says so, and its force ends it."""
    child = lab.holder(800, "deaf")
    lab.wait_for_memory(child.pid)
    screen = lab.screen("--pid", str(child.pid), "--interval", "500ms")
    try:
        send_sigterm(screen, child.pid)
        screen.wait_for("it has not ended yet", 40)
        it.holds("it still runs after SIGTERM", child.process.poll() is None)
        screen.keys(DOWN)
        screen.wait_for("Enter sends SIGKILL")
        screen.keys(ENTER)
        it.same("the signal that ended it", child.process.wait(30), -signal.SIGKILL)
        screen.wait_for("returned")
    finally:
        screen.end()
    child.end()


def zombie(lab, it):
    """A zombie without memory is not said to hold any."""
    child = lab.holder(500, "zombie")
    number = child.answer["zombie"]
    lab.wait_for_memory(child.pid)
    found = json.loads(lab.gputop("orphans", "--json", codes=(0, 10)).stdout)
    it.holds(
        "the zombie holds no memory",
        all(not one.get("memory_used_bytes") for one in found["processes"] if one["pid"] == number),
        str(found["processes"]),
    )
    child.end()


def memory_without_owner(lab, it, parent, holders):
    """Kills the owner of memory, and compares what gputop says of the memory that stays. `holders`
    are the processes that then hold it.
    """
    lab.wait_for_memory(parent.pid)
    before = lab.gpu()["load"]["memory_used_bytes"]
    signal_own(parent.pid, signal.SIGKILL)
    parent.process.wait()
    # The driver needs a moment to free what it frees.
    time.sleep(3)
    gpu = lab.gpu()
    stays = before - gpu["load"]["memory_used_bytes"] < 1000 * MIB
    row = next((one for one in gpu["processes"] if one["pid"] == parent.pid), None)
    if not stays:
        where = "is returned"
    elif row:
        where = (
            f"stays, and the driver lists {row['memory_used_bytes'] // MIB} MiB for the dead PID"
        )
    else:
        where = "stays, and the driver lists no process for it"
    it.note(f"the memory {where}")
    found = lab.gputop("orphans", "--json", "--watch", "2s", codes=(0, 10)).stdout
    if stays:
        it.holds(
            "gputop orphans names a process that holds it",
            any(re.search(rf"\b{pid}\b", found) for pid in holders),
            found[:900],
        )
        said = [one["sentence"] for one in json.loads(found)["processes"]]
        it.note("; ".join(said[:3]))
        for pid in holders:
            signal_own(pid, signal.SIGKILL)
        lab.lists_no_more(parent.pid)
        lab.wait(
            "the memory is returned when they end",
            lambda: before - lab.gpu()["load"]["memory_used_bytes"] > 1000 * MIB,
        )
    else:
        unaccounted = json.loads(found)["unaccounted"]
        it.holds("nothing is said to be unaccounted", not unaccounted, unaccounted)


def forked_context(lab, it):
    """A forked child keeps the device files of its parent open when that is killed."""
    parent = lab.holder(1200, "fork")
    child = parent.answer["child"]
    try:
        lab.outlives(parent.pid)
        memory_without_owner(lab, it, parent, [child])
    finally:
        signal_own(child, signal.SIGKILL)


def shared_memory(lab, it):
    """Another process maps memory by an IPC handle when the owner is killed."""
    lab.needs_real("the stand-in has no IPC handles")
    owner = lab.holder(1200, "share")
    others = [owner.answer["child"], owner.answer["keeper"]]
    try:
        lab.wait_for_memory(owner.answer["child"])
        memory_without_owner(lab, it, owner, others[:1])
    finally:
        for pid in others:
            signal_own(pid, signal.SIGKILL)


def calm(lab, it):
    """While processes come and go and all is well, gputop warns of nothing."""
    for _ in range(5):
        child = lab.holder(300)
        lab.wait_for_memory(child.pid)
        child.process.stdin.close()
        said = lab.gputop("--plain").stdout
        warnings = [
            line for line in said.splitlines() if line.startswith("Watch out") and "0 B" in line
        ]
        it.holds("no warning of a process that holds nothing", not warnings, warnings)
        child.process.wait(20)


def free(lab, it):
    """`gputop free` refuses a GPU in use, and runs a command on one with enough memory."""
    child = lab.holder(400)
    lab.wait_for_memory(child.pid)
    done = lab.gputop("free", "--id", lab.uuid, "--ids", codes=(0, 11))
    it.same("the exit code while the GPU is in use", done.returncode, 11)
    done = lab.gputop(
        "free",
        "--id",
        lab.uuid,
        "--memory",
        "1GiB",
        "--",
        "sh",
        "-c",
        "echo $CUDA_VISIBLE_DEVICES",
        codes=(0, 11),
    )
    it.same("the exit code with --memory", done.returncode, 0)
    own = (str(lab.index), lab.uuid)
    it.holds("the command sees this GPU", done.stdout.strip() in own, done.stdout)
    child.end()


CHECKS = [
    listed,
    end_process,
    orphan_workers,
    deaf,
    zombie,
    forked_context,
    shared_memory,
    calm,
    free,
]
