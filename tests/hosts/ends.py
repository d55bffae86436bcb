#!/usr/bin/env python3
"""Ends jobs and tagged processes over eight hosts of the lab, and counts wrong signals.

    lab.py slurm 1-8
    ends.py --rounds 20

Needs root, tmux, and the lab with Slurm; the tests of `cargo test` do not run it. A round submits
a job
of 64 ranks, and ends it from its page, or ends tagged processes, in a viewer with a screen.
Meanwhile

- one host does not answer: its agent or all of its processes are stopped, before the dialog opens
or
  just before Enter;
- on another host, a rank is killed, and its PID is taken by a process of the same user with the
same
  arguments, GPU and environment: after the dialog has verified it, or before it asks the agent;
- on a third host run two look-alikes with the arguments, GPU and environment of a rank: one of
  another user, and one of the same user under another job of Slurm.

A signal is wrong if it reached another process than those in the dialog, or a host that did not
answer
at Enter. Processes of which none may end show that, and so does the log of all signals. A round
also
fails if a process that was to end did not, or if the screen does not name the silent host or the
memory that came back. Screens are written into the folder of --screens.
"""

import argparse
import contextlib
import io
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

import lab
import slurm_lab

NAME = "python train.py --steps"
SIZES = [(80, 24), (120, 40), (200, 60)]
# How long a change may take until the screen, a host or Slurm shows it.
PATIENCE = 60.0
SOCKET = f"{lab.LAB.name}-ends"
KILLS = lab.LAB / "home/alice/.local/state/gputop/kills.jsonl"
RANKS = 8


class Failure(Exception):
    """Why a round has failed."""


def wait_until(what, condition, patience=PATIENCE):
    """Waits until a condition is true, and returns its value."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise Failure(f"not within {patience:.0f} s: {what}")


# --- the viewer ---


def tmux(*words):
    command = ["tmux", "-L", SOCKET, "-f", "/dev/null", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def screen():
    return tmux("capture-pane", "-p", "-t", "ends")


def press(*keys):
    tmux("send-keys", "-t", "ends", *keys)


def stop_viewer():
    """Ends the viewer, and waits until its tmux has ended."""
    words = ["tmux", "-L", SOCKET]
    subprocess.run([*words, "kill-server"], check=False, capture_output=True)
    has_ended = lambda: subprocess.run([*words, "ls"], check=False, capture_output=True).returncode
    wait_until("the end of tmux", has_ended)


def start_viewer(hosts):
    stop_viewer()
    command = f"{sys.executable} {lab.HERE}/lab.py run gputop -H '{hosts}'"
    words = ["new-session", "-d", "-s", "ends", "-x", "120", "-y", "40"]
    tmux(*words, "-e", f"GPUTOP_LAB={lab.LAB}", command)
    wait_until("the overview of the hosts", lambda: "JOBS" in screen() or "FREE" in screen())


def on_screen(pattern, patience=PATIENCE):
    """Waits until the screen matches a pattern, and returns the match."""
    try:
        return wait_until(pattern, lambda: re.search(pattern, screen()), patience)
    except Failure as failure:
        raise Failure(f"{failure}\n{screen()}") from None


def to_overview():
    """Leaves dialogs, pages and lists."""
    for _ in range(8):
        if re.search(r"^HOST +GPU ", screen(), re.MULTILINE):
            return
        if "╭─ Processes" in screen() and "End " not in screen():
            press("U", "f")
        else:
            press("Escape")
        time.sleep(0.3)
    raise Failure(f"no way back to the overview:\n{screen()}")


# --- the hosts ---


class Process:
    """A process of a host: its PID there, its start, its user, and its PID on this machine."""

    def __init__(self, number, outer):
        self.number, self.outer = number, outer
        folder = pathlib.Path(f"/proc/{outer}")
        status = (folder / "status").read_text()
        self.pid = int(re.search(r"^NSpid:.*\s(\d+)$", status, re.MULTILINE)[1])
        self.uid = int(re.search(r"^Uid:\s+(\d+)", status, re.MULTILINE)[1])
        self.command = (folder / "cmdline").read_bytes()
        self.state, self.start = self.stat()

    def stat(self):
        fields = self.fields()
        return fields[0], int(fields[19])

    def fields(self):
        return pathlib.Path(f"/proc/{self.outer}/stat").read_text().rpartition(")")[2].split()

    def is_leader(self):
        """Whether it leads a process group or a session: the PID stays in use after its end."""
        return str(self.outer) in self.fields()[2:4]

    def key(self):
        return self.number, self.pid, self.start

    def is_alive(self):
        try:
            state, start = self.stat()
        except (OSError, IndexError):
            return False
        return start == self.start and state != "Z"

    def environment(self):
        text = pathlib.Path(f"/proc/{self.outer}/environ").read_text()
        return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)

    def __repr__(self):
        return f"{lab.name_of(self.number)}:{self.pid} (uid {self.uid}, start {self.start})"


def processes(number):
    found = []
    for outer in lab.processes_of(number):
        with contextlib.suppress(OSError, TypeError, IndexError):
            found.append(Process(number, outer))
    return found


def trainers(numbers):
    """Returns all processes that look like a rank."""
    return [
        process
        for number in numbers
        for process in processes(number)
        if process.command.startswith(NAME.encode()) and process.state != "Z"
    ]


def agents(number):
    return [
        process
        for process in processes(number)
        if b"agent" in process.command.split(b"\0") and process.uid == lab.USERS["alice"]
    ]


def first_of(number):
    first = (lab.LAB / "hosts" / str(number) / "pid").read_text()
    return pathlib.Path(f"/proc/{first}/task/{first}/children").read_text().split()[0]


def listing(number):
    """The file with the ranks that the driver of a host lists."""
    return lab.LAB / "hosts" / str(number) / "ranks"


def gpu_of(rank):
    """Returns the GPU of a rank: the number of the open file of its device."""
    for file in pathlib.Path(f"/proc/{rank.outer}/fd").iterdir():
        found = re.search(r"/dev/nvidia(\d+)$", os.readlink(file))
        if found:
            return found[1]
    raise Failure(f"{rank} has no GPU")


def start_look_alike(number, environment, gpu, user, pid=None):
    """Starts a process on a host with the arguments, GPU and environment of a rank. It gets a PID
    if
    one is asked for; else the driver lists it from now on. Returns it."""
    words = ["nsenter", "-t", first_of(number), "-m", "-u", "-n", "-p"]
    words += [sys.executable, str(lab.HERE / "look_alike.py"), str(lab.USERS[user]), gpu]
    words += [] if pid is None else [str(pid)]
    started = subprocess.run(
        words,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if started.returncode != 0:
        raise Failure(f"no look-alike on {lab.name_of(number)}: {started.stderr}")
    found = int(started.stdout)
    if pid is None:
        with open(listing(number), "a") as file:
            file.write(f"{found} {gpu} {environment['RANK']} look-alike 5\n")
    look = lambda: [it for it in trainers([number]) if it.pid == found]
    return wait_until(f"the look-alike with PID {found}", look)[0]


# --- a round ---


class Round:
    def __init__(self, number, options, names):
        self.number, self.options, self.names = number, options, names
        self.random = random.Random(f"{options.seed} {number}")
        choose = self.random.choice
        self.kind = "tags" if number % 4 == 3 else "job"
        # On a small screen, too few processes can be tagged.
        self.size = choose(SIZES[1:] if self.kind == "tags" else SIZES)
        self.choice = choose(["gently", "SIGTERM", "by force"])
        self.frozen_what = choose(["agent", "host"])
        self.frozen_when = choose(["before the dialog", "before the dialog", "before Enter"])
        self.reused_when = choose(["verified", "unasked"])
        self.wrong = []
        self.stopped = []

    def __str__(self):
        return (
            f"round {self.number}: {self.kind}, {self.choice}, {self.frozen_what} frozen"
            f" {self.frozen_when}, PID reused {self.reused_when}, {self.size[0]}x{self.size[1]}"
        )

    def clean(self):
        """Ends all jobs and look-alikes of the rounds before."""
        lab.as_alice(["scancel", "-u", "alice"])
        queue = ["squeue", "-h", "-o", "%i"]
        wait_until("no job in the queue", lambda: not lab.as_alice(queue).stdout.strip())
        for process in trainers(self.names):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.outer, signal.SIGKILL)
        wait_until("no process of the round before", lambda: not trainers(self.names))
        for number in self.names:
            listing(number).write_text("")
        slurm_lab.write_worlds(lab.LAB, self.names, RANKS)

    def submit(self):
        options = argparse.Namespace(
            name="llama", nodes=len(self.names), ranks=RANKS, array=None, leak=0.0
        )
        options.leak_rank = options.throttled_rank = None
        options.gpus = RANKS
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            slurm_lab.train(lab.LAB, lab.as_alice, self.names, options)
        self.job = printed.getvalue().strip()
        self.ranks = trainers(self.names)
        if len(self.ranks) != RANKS * len(self.names):
            raise Failure(f"{len(self.ranks)} ranks started")

    def ranks_on(self, number):
        return [rank for rank in self.ranks if rank.number == number]

    def add_look_alikes(self, number):
        rank = self.random.choice(self.ranks_on(number))
        same, gpu = rank.environment(), gpu_of(rank)
        number_of_other = str(int(self.job) + 100_000)
        other = dict(same, SLURM_JOB_ID=number_of_other, SLURM_JOBID=number_of_other)
        self.look_alikes = [
            start_look_alike(number, same, gpu, "bob"),
            start_look_alike(number, other, gpu, "alice"),
        ]
        slurm_lab.write_worlds(lab.LAB, self.names, RANKS)

    def freeze(self, number):
        self.stopped = processes(number) if self.frozen_what == "host" else agents(number)
        if not self.stopped:
            raise Failure(f"no agent on {lab.name_of(number)}")
        for process in self.stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.outer, signal.SIGSTOP)

    def thaw(self):
        for process in self.stopped:
            if process.is_alive():
                os.kill(process.outer, signal.SIGCONT)
        self.stopped = []

    def reuse(self, rank, is_seen=False):
        """Kills a rank, and starts a process with its PID, after the screen shows the end or
        before."""
        environment, gpu = rank.environment(), gpu_of(rank)
        lines = listing(rank.number).read_text()
        os.kill(rank.outer, signal.SIGKILL)
        wait_until("the end of a rank", lambda: not pathlib.Path(f"/proc/{rank.outer}").exists())
        if is_seen:
            # The driver no longer lists the old process, and then it lists the new one.
            listing(rank.number).write_text(re.sub(rf"(?m)^{rank.pid} .*\n", "", lines))
            slurm_lab.write_worlds(lab.LAB, self.names, RANKS)
            on_screen("63 busy|55 busy")
        self.reused = start_look_alike(rank.number, environment, gpu, "alice", rank.pid)
        listing(rank.number).write_text(lines)
        slurm_lab.write_worlds(lab.LAB, self.names, RANKS)

    def with_stopped_agent(self, number, action):
        """Does something on a host before its agent can read it. Returns what continues the
        agent."""
        held = agents(number)
        for process in held:
            os.kill(process.outer, signal.SIGSTOP)
        action()

        def go_on():
            for process in held:
                os.kill(process.outer, signal.SIGCONT)

        return go_on

    def open_job(self):
        to_overview()
        on_screen(rf"slurm {self.job} llama +alice  64 ranks on 8 hosts")
        press("J")
        press("Enter")
        # Until then, the agents have not read the environments of all processes.
        on_screen(rf"(?s)Job slurm {self.job} llama.*for \S+  64 ranks on 8 hosts *\n")

    def tag(self):
        """Tags a few processes in the list of all."""
        to_overview()
        on_screen(rf"slurm {self.job} llama +alice  64 ranks on 8 hosts")
        press("f")
        on_screen("╭─ Processes")
        press("U", "Home")
        for _ in range(self.random.randint(6, 14)):
            press("Space", *["Down"] * self.random.randint(2, 9))

    def shown(self):
        """Returns the PIDs in the rows of the dialog by the number of their host."""
        found = {}
        number = None
        for line in screen().splitlines():
            head = re.search(r"│ gpu-(\d+) \d+ process(?:es)? ([\d ]*)", line)
            rest = re.search(r"│   ([\d ]+) +│", line)
            if head:
                number = int(head[1])
                found[number] = [int(pid) for pid in head[2].split()]
            elif rest and number is not None:
                found[number] += [int(pid) for pid in rest[1].split()]
        return found

    def confirm(self):
        """Chooses, types the number of hosts, and presses Enter when the dialog is ready."""
        for _ in range(8):
            if re.search(rf"● {self.choice}", screen()):
                break
            press("Down")
            time.sleep(0.2)
        asked = on_screen(r"Type the number of (?:hosts|processes), (\d+), to confirm")[1]
        press(asked)
        on_screen("(?s)to confirm: +" + asked + "_.*Verified: only these")
        return int(asked)

    def run(self):
        self.clean()
        tmux("resize-window", "-t", "ends", "-x", str(self.size[0]), "-y", str(self.size[1]))
        self.submit()
        silent, reused, alike = self.random.sample(sorted(self.names), 3)
        self.add_look_alikes(alike)
        began = KILLS.stat().st_size if KILLS.exists() else 0
        if self.kind == "job":
            self.open_job()
            meant = list(self.ranks)
        else:
            self.tag()
            press("F9")
            on_screen(r"End .* on \d+ hosts", 10)
            on_screen("(?s)verified.*Verified|squeue", 20)
            shown = self.shown()
            press("Escape")
            by_place = {(it.number, it.pid): it for it in self.ranks + self.look_alikes}
            meant = [by_place[number, pid] for number, pids in shown.items() for pid in pids]
            silent, reused = self.random.sample(sorted(shown), 2)
        victim = self.random.choice(
            [it for it in meant if it.number == reused and it in self.ranks and not it.is_leader()]
            or [None]
        )
        go_on = lambda: None
        if self.frozen_when == "before the dialog":
            self.freeze(silent)
        if victim and self.reused_when == "unasked":
            go_on = self.with_stopped_agent(reused, lambda: self.reuse(victim))
        press("F9")
        on_screen(r"End .* on \d+ hosts", 10)
        go_on()
        if self.frozen_when == "before the dialog":
            on_screen(rf"{lab.name_of(silent)}.*\n?.*nothing is promised")
        on_screen("Verified: only these", 30)
        if victim and self.reused_when == "verified":
            self.reuse(victim, self.kind == "job" and self.random.random() < 0.5)
        self.confirm()
        self.save("confirmed")
        if self.frozen_when == "before Enter":
            self.freeze(silent)
        press("Enter")
        self.check(meant, victim, silent, began)

    def check(self, meant, victim, silent, began):
        is_left_out = self.frozen_when == "before the dialog"
        is_alice = lambda it: it.uid == lab.USERS["alice"]
        to_end = [it for it in meant if it is not victim and is_alice(it) and it.number != silent]
        everyone = self.ranks + self.look_alikes + ([self.reused] if victim else [])
        wait_until("the end of all in the dialog", lambda: not any(it.is_alive() for it in to_end))
        if is_left_out:
            text = wait_until(
                "the memory that came back",
                lambda: (text if "came back" in (text := screen()) else None),
            )
            self.save("ended")
            self.expect(rf"{lab.name_of(silent)}.*did not answer", text)
        else:
            text = on_screen(
                "what was sent may arrive later, and nothing is promised|did not answer"
            ).string
            self.save("silent")
            self.thaw()
            late = [it for it in meant if it.number == silent and is_alice(it) and it is not victim]
            wait_until(
                "the end on the host that was silent", lambda: not any(it.is_alive() for it in late)
            )
            to_end += late
            on_screen("came back")
            self.save("ended")
        self.thaw()
        press("Escape")
        to_overview()
        answers = lambda: not re.search(r"\d unknown|frozen|no data|connect", screen())
        wait_until("an answer of the silent host", answers)
        allowed = {it.key() for it in to_end}
        for it in everyone:
            if it in to_end or it is victim:
                continue
            if not it.is_alive():
                self.wrong.append(f"{it} has ended")
            elif it.stat()[0] == "T":
                self.wrong.append(f"{it} was stopped")
        self.read_kills(began, allowed)

    def read_kills(self, began, allowed):
        """Checks the log of all signals."""
        boots = {
            (lab.LAB / "hosts" / str(number) / "boot_id").read_text().strip(): number
            for number in self.names
        }
        with open(KILLS) as file:
            file.seek(began)
            lines = [json.loads(line) for line in file]
        signals = [line for line in lines if "signal" in line]
        for line in signals:
            key = boots.get(line["boot_id"]), line["pid"], line["start_ticks"]
            if key not in allowed:
                self.wrong.append(f"{line['signal']} to {key}")
        self.signals = len(signals)
        if {(boots.get(line["boot_id"]), line["pid"]) for line in signals} != {
            key[:2] for key in allowed
        }:
            raise Failure("the log of all signals lacks a process")

    def expect(self, pattern, text):
        if not re.search(pattern, text):
            raise Failure(f"the screen does not say {pattern}:\n{text}")

    def save(self, what):
        if self.options.screens:
            name = f"{self.number:03}-{what}.txt"
            (self.options.screens / name).write_text(f"{self}\n{screen()}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first round")
    parser.add_argument("--screens", type=pathlib.Path, help="a folder for the screens")
    options = parser.parse_args()
    if options.screens:
        options.screens.mkdir(parents=True, exist_ok=True)
    names, _ = lab.slurm_nodes()
    start_viewer(",".join(names.values()))
    wrong = failed = signals = 0
    for number in range(options.first, options.first + options.rounds):
        a_round = Round(number, options, names)
        began = time.monotonic()
        result = "right"
        try:
            a_round.run()
            signals += a_round.signals
        except Failure as failure:
            failed += 1
            result = f"FAILED: {failure}"
            a_round.save("failed")
            start_viewer(",".join(names.values()))
        finally:
            a_round.thaw()
        wrong += len(a_round.wrong)
        if a_round.wrong:
            result += "; WRONG: " + "; ".join(a_round.wrong)
        print(f"{a_round}: {result} ({time.monotonic() - began:.0f} s)", flush=True)
    stop_viewer()
    print(f"{options.rounds} rounds, {signals} signals, {wrong} wrong, {failed} rounds failed")
    return int(bool(wrong or failed))


if __name__ == "__main__":
    sys.exit(main())
