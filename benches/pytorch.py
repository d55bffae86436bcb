"""Measures what it costs to read PyTorch's figures out of running processes.

    cargo build --release && cargo build -p fake-nvml && python3 benches/pytorch.py [PROCESSES] [SECONDS]

The processes are those of tests/pytorch/stand_in.c, which have PyTorch's symbol, its layout of torch 2.15, and its devices
as far apart. They see one device; or eight and use one of them, as each process of a job does on a host of eight; or
eight, and use all. They are at rest, or each device's figures change between any two looks. The agent looks ten times a
second, so that there is more to measure. It prints the CPU time of gputop's thread `pytorch`, by the kernel's clock, for
each process and look, beside the noise: the least and the most of five rounds. The look that finds the allocator is
before the first round. The thread is woken once for all of them, and finds nothing in the caches: where PROCESSES is 1,
that one has to bear it alone, and costs some four times as much.

Then what it costs the process that is looked into: the time of its steps while the agent looks over that while it is
stopped. Windows of a quarter of a second take turns (with, without, without, with), so that whatever else the machine
does hits both; each pair gives a ratio, and of all ratios it prints the median and the middle half. So it does for pairs of
windows that are both without: that is the noise. The time computed is the one that counts; that which passed says more
of who else wanted the processor.
"""

import itertools
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
ROUNDS = 5


def stand_in(directory):
    source = ROOT / "tests/pytorch/stand_in.c"
    program, library = directory / "torch", directory / "libc10_cuda.so"
    subprocess.run(["cc", "-O1", "-DPROGRAM", source, "-o", program, "-ldl"], check=True)
    subprocess.run(["cc", "-O1", "-pthread", "-shared", "-fPIC", "-DLAYOUT=215", source, "-o", library], check=True)
    return program, library


def start(program, library, devices, used, moves=False):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen([program, library, str(devices), "/dev/null"], **pipes)
    works = [f"work {device} 2 20971520 15728640 15000000 5242880 0\n" for device in range(used)]
    for line in works + ["stir\n"] * moves:
        process.stdin.write(line)
        process.stdin.flush()
        process.stdout.readline()
    return process


def computed(pid):
    """Nanoseconds of CPU that the thread has had."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == "pytorch":
            return int((task / "schedstat").read_text().split()[0])
    return 0


class Agent:
    """The shipped agent on a host whose GPUs these processes hold."""

    def __init__(self, directory, processes, devices, used):
        tenants = [{"pid": it.pid, "memory": 1 << 30} for it in processes]
        gpus = [{"persona": "H100", "processes": tenants if at < used else []} for at in range(devices)]
        (directory / "world.json").write_text(json.dumps({"gpus": gpus}))
        environment = {
            "GPUTOP_NVML_LIB": str(next(TARGET.glob("debug/**/libfake_nvml.so"))),
            "FAKE_NVML_WORLD": str(directory / "world.json"),
        }
        command = [TARGET / "release/gputop", "agent", "--interval", "100ms"]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines, self.read = 0, set()
        threading.Thread(target=self.follow, daemon=True).start()
        deadline = time.monotonic() + 60
        while len(self.read) < len(processes) and time.monotonic() < deadline:
            time.sleep(0.1)

    def follow(self):
        for line in self.process.stdout:
            self.lines += 1
            for process in json.loads(line).get("processes", []):
                if process.get("allocator_stats", {}).get("devices"):
                    self.read.add(process["pid"])

    def end(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        self.process.wait()


def end(processes):
    for process in processes:
        process.stdin.close()
        process.wait()


def measure(directory, count, devices, used, moves, seconds):
    program, library = stand_in(directory)
    processes = [start(program, library, devices, used, moves) for _ in range(count)]
    agent = Agent(directory, processes, devices, used)
    costs = []
    for _ in range(ROUNDS):
        before = computed(agent.process.pid), agent.lines
        time.sleep(seconds)
        looks = agent.lines - before[1]
        costs.append((computed(agent.process.pid) - before[0]) / 1000 / max(looks, 1) / count)
    agent.end()
    end(processes)
    return len(agent.read), sorted(costs)


def middle(ratios):
    low, median, high = statistics.quantiles(ratios, n=4)
    return f"{median:.4f} ({low:.4f} to {high:.4f})"


def disturb(directory, devices, pairs):
    """Steps with someone looking over steps without, and, as noise, steps without over steps without."""
    process = start(*stand_in(directory), devices, devices)
    agent = Agent(directory, [process], devices, devices)

    def steps(count, looks):
        agent.process.send_signal(signal.SIGCONT if looks else signal.SIGSTOP)
        process.stdin.write(f"steps 0 {count}\n")
        process.stdin.flush()
        return [int(it) / count for it in process.stdout.readline().split()]

    count = max(1, round(0.25e9 / steps(20, False)[1]))
    found = {True: [], False: []}
    for _ in range(pairs):
        for looks in (True, False):
            a, b, c, d = (steps(count, it) for it in (looks, False, False, looks))
            found[looks].append([(a[clock] + d[clock]) / (b[clock] + c[clock]) for clock in (0, 1)])
    agent.end()
    end([process])
    for clock, name in enumerate(("computed", "passed")):
        ratio, noise = (middle([it[clock] for it in found[looks]]) for looks in (True, False))
        print(f"a step of a process of {devices} devices, time {name}: {ratio} of that without; noise {noise}")


def main():
    count, seconds = (int(it) for it in (*sys.argv[1:], *("16", "5")[len(sys.argv) - 1 :]))
    for devices, used, moves in itertools.product((1, 8), (1, 8), (False, True)):
        if used > devices:
            continue
        with tempfile.TemporaryDirectory() as directory:
            read, costs = measure(pathlib.Path(directory), count, devices, used, moves, seconds)
        how = "moving" if moves else "at rest"
        half = costs[len(costs) // 2]
        print(f"{count} processes that use {used} of {devices} devices, {how}, {read} read: {half:.1f} µs a look ({costs[0]:.1f} to {costs[-1]:.1f}); the bar is 20")
    with tempfile.TemporaryDirectory() as directory:
        disturb(pathlib.Path(directory), 8, 30)


if __name__ == "__main__":
    main()
