"""Measures the cost of reading PyTorch's allocator stats from running processes.

    cargo build --release && cargo build -p fake-nvml && python3 benches/pytorch.py [PROCESSES] [SECONDS]

The processes are those of tests/pytorch/stand_in.c, with PyTorch's symbol, the layout of torch
2.15, and devices as far apart as PyTorch's. They have one device; or eight and use one of them, as
each process of a job on a host of eight; or eight and use all. Their stats are constant, or change
between any two reads. The agent reads ten times per second, so that there is more to measure. The
script prints the CPU time of gputop's thread `pytorch` per process and read, as the median, minimum
and maximum of five rounds. The read that finds the allocator is before the first round. Each wakeup
of the thread starts with cold caches: with only one process, a read costs some four times as much.

Then the script measures the cost for the process that is read: the time of its steps while the
agent reads, divided by the time while the agent is stopped. Windows of a quarter of a second
alternate (with, without, without, with), so that other load affects both. The script prints the
median and the quartiles of the ratios, and as noise the same of windows that are all without. The
CPU time is the result; the elapsed time depends on other load too.
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
    subprocess.run(
        ["cc", "-O1", "-pthread", "-shared", "-fPIC", "-DLAYOUT=215", source, "-o", library],
        check=True,
    )
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


def cpu_time(pid):
    """The CPU time of the thread `pytorch` in nanoseconds."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == "pytorch":
            return int((task / "schedstat").read_text().split()[0])
    return 0


class Agent:
    """The shipped agent on a host whose GPUs these processes use."""

    def __init__(self, directory, processes, devices, used):
        gpu_processes = [{"pid": process.pid, "memory": 1 << 30} for process in processes]
        gpus = [
            {"persona": "H100", "processes": gpu_processes if at < used else []}
            for at in range(devices)
        ]
        (directory / "world.json").write_text(json.dumps({"gpus": gpus}))
        environment = {
            "GPUTOP_NVML_LIB": str(next(TARGET.glob("debug/**/libfake_nvml.so"))),
            "FAKE_NVML_WORLD": str(directory / "world.json"),
        }
        command = [TARGET / "release/gputop", "agent", "--interval", "100ms"]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
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
        before = cpu_time(agent.process.pid), agent.lines
        time.sleep(seconds)
        reads = agent.lines - before[1]
        costs.append((cpu_time(agent.process.pid) - before[0]) / 1000 / max(reads, 1) / count)
    agent.end()
    end(processes)
    return len(agent.read), sorted(costs)


def quartiles(ratios):
    low, median, high = statistics.quantiles(ratios, n=4)
    return f"{median:.4f} ({low:.4f} to {high:.4f})"


def measure_disturbance(directory, devices, pairs):
    """Prints the ratio of step times with and without the agent, and the ratio of times both
    without as noise.
    """
    process = start(*stand_in(directory), devices, devices)
    agent = Agent(directory, [process], devices, devices)

    def steps(count, is_read):
        agent.process.send_signal(signal.SIGCONT if is_read else signal.SIGSTOP)
        process.stdin.write(f"steps 0 {count}\n")
        process.stdin.flush()
        return [int(time) / count for time in process.stdout.readline().split()]

    count = max(1, round(0.25e9 / steps(20, False)[1]))
    found = {True: [], False: []}
    for _ in range(pairs):
        for is_read in (True, False):
            a, b, c, d = (
                steps(count, with_agent) for with_agent in (is_read, False, False, is_read)
            )
            found[is_read].append(
                [(a[clock] + d[clock]) / (b[clock] + c[clock]) for clock in (0, 1)]
            )
    agent.end()
    end([process])
    for clock, name in enumerate(("CPU", "elapsed")):
        ratio, noise = (
            quartiles([ratio[clock] for ratio in found[is_read]]) for is_read in (True, False)
        )
        print(
            f"a step of a process of {devices} devices, time {name}: {ratio} of that without; noise {noise}"
        )


def main():
    count, seconds = (
        int(argument) for argument in (*sys.argv[1:], *("16", "5")[len(sys.argv) - 1 :])
    )
    for devices, used, moves in itertools.product((1, 8), (1, 8), (False, True)):
        if used > devices:
            continue
        with tempfile.TemporaryDirectory() as directory:
            read, costs = measure(pathlib.Path(directory), count, devices, used, moves, seconds)
        change = "changing" if moves else "constant"
        half = costs[len(costs) // 2]
        print(
            f"{count} processes that use {used} of {devices} devices, {change}, {read} read: {half:.1f} µs per read ({costs[0]:.1f} to {costs[-1]:.1f}); the limit is 20"
        )
    with tempfile.TemporaryDirectory() as directory:
        measure_disturbance(pathlib.Path(directory), 8, 30)


if __name__ == "__main__":
    main()
