"""Measures what it costs to read PyTorch's figures out of running processes.

    cargo build --release && cargo build -p fake-nvml && python3 benches/peek.py [PROCESSES] [SECONDS]

The processes are those of tests/peek/stand_in.c, which have PyTorch's symbol and its layout of torch 2.15, with one
device each, or with eight. The agent looks ten times a second, so that there is more to measure. It prints the CPU time
of gputop's thread `peek`, by the kernel's clock, for each process and look, beside the noise: the least and the most of
five rounds. The look that finds the allocator is before the first round.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
ROUNDS = 5


def stand_in(directory):
    source = ROOT / "tests/peek/stand_in.c"
    program, library = directory / "torch", directory / "libc10_cuda.so"
    subprocess.run(["cc", "-O1", "-DPROGRAM", source, "-o", program, "-ldl"], check=True)
    subprocess.run(["cc", "-O1", "-pthread", "-shared", "-fPIC", "-DLAYOUT=215", source, "-o", library], check=True)
    return program, library


def start(program, library, devices):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen([program, library, str(devices), "/dev/null"], **pipes)
    for device in range(devices):
        process.stdin.write(f"work {device} 2 20971520 15728640 15000000 5242880 0\n")
        process.stdin.flush()
        process.stdout.readline()
    return process


def computed(pid):
    """Nanoseconds of CPU that the thread has had."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == "peek":
            return int((task / "schedstat").read_text().split()[0])
    return 0


def measure(directory, count, devices, seconds):
    program, library = stand_in(directory)
    processes = [start(program, library, devices) for _ in range(count)]
    gpus = [{"persona": "H100", "tenants": [{"pid": it.pid, "memory": 1 << 30} for it in processes]} for _ in range(devices)]
    (directory / "world.json").write_text(json.dumps({"gpus": gpus}))
    environment = {
        "GPUTOP_NVML_LIB": str(next(TARGET.glob("debug/**/libfake_nvml.so"))),
        "FAKE_NVML_WORLD": str(directory / "world.json"),
    }
    command = [TARGET / "release/gputop", "agent", "--interval", "100ms"]
    agent = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    lines, read = [0], set()

    def follow():
        for line in agent.stdout:
            lines[0] += 1
            for process in json.loads(line).get("processes", []):
                if process.get("peek", {}).get("allocators"):
                    read.add(process["id"]["pid"])

    threading.Thread(target=follow, daemon=True).start()
    deadline = time.monotonic() + 60
    while len(read) < count and time.monotonic() < deadline:
        time.sleep(0.1)
    costs = []
    for _ in range(ROUNDS):
        before = computed(agent.pid), lines[0]
        time.sleep(seconds)
        looks = lines[0] - before[1]
        costs.append((computed(agent.pid) - before[0]) / 1000 / max(looks, 1) / count)
    agent.stdin.close()
    agent.wait()
    for process in processes:
        process.stdin.close()
        process.wait()
    return len(read), sorted(costs)


def main():
    count, seconds = (int(it) for it in (*sys.argv[1:], *("16", "5")[len(sys.argv) - 1 :]))
    for devices in (1, 8):
        with tempfile.TemporaryDirectory() as directory:
            read, costs = measure(pathlib.Path(directory), count, devices, seconds)
        middle = costs[len(costs) // 2]
        print(f"{count} processes of {devices} devices, {read} read: {middle:.1f} µs a look ({costs[0]:.1f} to {costs[-1]:.1f}); the bar is 20")


if __name__ == "__main__":
    main()
