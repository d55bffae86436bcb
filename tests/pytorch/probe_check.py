#!/usr/bin/env python3
"""Compares what the probe publishes with what PyTorch reports, to the byte, with real wheels.

    tests/pytorch/probe_check.py DIRECTORY [--only SCENARIO] [VERSION...]

Needs no GPU: see check.py, whose wheels and fake CUDA runtime it shares. Each scenario of
probe_trainer.py runs with the probe, which takes readings at many steps. This script reads them
from the memfd, as the agent does, and checks for each reading:

- the sum of all categories is the reserved memory;
- at the end of a step, allocated, reserved, requested, pending (active − allocated) and
  fragmentation (inactive_split) are those of `torch.cuda.memory_stats()` right after that step;
- after the last step, categories are the blocks of the tensors that the program knows.

Then the same scenario runs without the probe: each step must allocate the same, to the byte, and so
must the peaks. The scenario `many` also measures the CPU time of the probe. Prints a table. The
exit code is 1 when anything differs.

CUDA graphs and expandable segments need a real GPU.
"""

import argparse
import json
import os
import re
import struct
import subprocess
import sys
import time
import venv
import zlib
from pathlib import Path

import check

HERE = Path(__file__).resolve().parent
PROBE = HERE.parent.parent / "assets/probe"
VERSIONS = ["1.13.1", "2.0.1", "2.1.2", "2.5.1", "2.11.0", "2.15.0"]
# The first version with all that a scenario needs.
SCENARIOS = {
    "plain": "1.13",
    "lora": "1.13",
    "gan": "1.13",
    "in_backward": "2.1",
    "recreated": "1.13",
    "skipped": "1.13",
    "leak": "1.13",
    "odd_tensors": "2.0",
    "pools": "1.13",
    "inference": "1.13",
    "ddp": "2.1",
    "fsdp1": "2.1",
    "fsdp2": "2.5",
    "many": "1.13",
}
STEPS = 60
# The thread of the process group frees its buffers sooner or later, also without the probe: peaks
# and reserved memory vary.
VARYING = {"ddp": ["allocated_bytes", "requested_bytes", "active_bytes"]}
# The part of the program's time that the probe may take.
COST = 0.01
HEADER = struct.Struct("<8sIIQQII24x")


def numbers(version):
    return [int(it) for it in re.findall(r"\d+", version)[:2]]


class Reader:
    """Reads the state from the memfd of a process."""

    def __init__(self, process):
        self.process, self.file = process, None

    def read(self):
        """The state, or None."""
        folder = Path(f"/proc/{self.process.pid}/fd")
        try:
            if self.file is None:
                for link in folder.iterdir():
                    if os.readlink(link).startswith("/memfd:gputop-probe "):
                        self.file = os.open(link, os.O_RDONLY)
                        break
                else:
                    return None
        except OSError:
            return None
        header = os.pread(self.file, HEADER.size, 0)
        if len(header) < HEADER.size:
            # Just made.
            return None
        magic, size, pid, _, sequence, length, checksum = HEADER.unpack(header)
        payload = os.pread(self.file, length, HEADER.size)
        if not sequence or sequence % 2 or zlib.crc32(payload) != checksum:
            return None
        assert (magic, size, pid) == (b"gputopP1", 1 << 20, self.process.pid)
        return json.loads(payload)


def run(python, environment, scenario, steps):
    """Runs a scenario. Returns its own figures, and all states that the probe published."""
    command = [python, HERE / "probe_trainer.py", scenario, str(steps)]
    with open(environment["FAKE_CUDA_LOG"] + ".err", "w") as errors:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        )
    os.set_blocking(process.stdout.fileno(), False)
    reader, states, output = Reader(process), [], b""
    while process.poll() is None and not output.endswith(b"\n"):
        state = reader.read()
        if state and (not states or states[-1] != state):
            states.append(state)
        output += process.stdout.read() or b""
        time.sleep(0.005)
    # The last state is published soon after the last step.
    deadline = time.monotonic() + 3
    while (
        process.poll() is None
        and environment.get("GPUTOP_PROBE") != "0"
        and time.monotonic() < deadline
    ):
        state = reader.read()
        if state and states[-1:] != [state]:
            states.append(state)
        time.sleep(0.005)
    process.stdin.close()
    errors = Path(environment["FAKE_CUDA_LOG"] + ".err")
    if process.wait():
        raise SystemExit(f"{scenario} ended with {process.returncode}:\n{errors.read_text()}")
    return json.loads(output), states, errors.read_text()


def check_state(state, own, last):
    """Compares one state. Returns the number of compared values and the differences."""
    compared, wrong = 0, [f"trouble: {it}" for it in state.get("trouble", [])]

    def same(what, found, wanted):
        nonlocal compared
        compared += 1
        if found != wanted:
            wrong.append(f"{what}: {found} is not {wanted}")

    for device in state["devices"]:
        readings = [device] if "allocated_bytes" in device else []
        readings += [device["step_end"]] if "step_end" in device else []
        for reading in readings:
            if "category_bytes" in reading:
                same(
                    "sum of categories",
                    sum(reading["category_bytes"].values()),
                    reading["reserved_bytes"],
                )
        end = device.get("step_end")
        # In the first step, the probe does not know yet which optimizer is the last one.
        if end is None or own["calls"] == 0 or end["step"] % own["calls"] or end["step"] == 1:
            continue
        place = f"step {end['step']} cuda:{device['cuda_device']}"
        stats = own["steps"][end["step"] // own["calls"] - 1][device["cuda_device"]]
        same(f"{place} allocated", end["allocated_bytes"], stats["allocated_bytes"])
        same(f"{place} reserved", end["reserved_bytes"], stats["reserved_bytes"])
        if stats["requested_bytes"] is not None:
            same(f"{place} requested", end["requested_bytes"], stats["requested_bytes"])
        same(
            f"{place} pending",
            end["category_bytes"]["pending"],
            stats["active_bytes"] - stats["allocated_bytes"],
        )
        if not end["category_bytes"]["graph_pools"]:
            same(
                f"{place} fragmentation",
                end["category_bytes"]["fragmentation"],
                stats["inactive_split_bytes"],
            )
    if last:
        for category, sizes in own["expected"].items():
            for device in state["devices"]:
                reading = device["step_end"] if own["calls"] else device
                same(
                    f"{category} cuda:{device['cuda_device']}",
                    reading["category_bytes"][category],
                    sizes[device["cuda_device"]],
                )
    return compared, wrong


def check_scenario(python, environment, scenario):
    """Returns the number of readings, of compared values, and the differences."""
    environment = dict(environment, GPUTOP_PROBE_INTERVAL="0.02")
    own, states, errors = run(python, environment, scenario, STEPS)
    compared, wrong = 0, []
    for state in states:
        # Of a step that ended after the program's last look.
        more, differences = check_state(state, own, state is states[-1])
        compared, wrong = compared + more, wrong + differences
    ends = {
        device["step_end"]["step"]
        for state in states
        for device in state["devices"]
        if "step_end" in device
    }
    if own["calls"] and len(ends) < 3 or not states:
        wrong.append(f"only {len(states)} states with {len(ends)} readings at the end of a step")
    # The same without the probe.
    count = str(STEPS)
    own, _, errors = run(python, dict(environment, ONLY="1"), scenario, count)
    without, _, errors_without = run(
        python, dict(environment, ONLY="1", GPUTOP_PROBE="0"), scenario, count
    )
    compared += len(own["steps"])
    for number, (ours, theirs) in enumerate(zip(own["steps"], without["steps"])):
        if scenario in VARYING:
            ours, theirs = (
                [{name: device[name] for name in VARYING[scenario]} for device in it]
                for it in (ours, theirs)
            )
        if ours != theirs:
            wrong.append(f"step {number} allocates {ours} with the probe, and {theirs} without")
            break
    if errors != errors_without:
        wrong.append(f"with the probe, the program prints {errors}")
    return len(ends) or len(states), compared, wrong


def measure(python, environment):
    """The part of the program's CPU time that the probe takes."""
    own, _, _ = run(python, dict(environment, ONLY="1", MEASURE="1"), "many", 1000)
    return own["spent"] / own["seconds"], own["seconds"] / (len(own["steps"]) - 5)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only")
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    options = parser.parse_intermixed_args()
    directory = options.directory.resolve()
    directory.mkdir(exist_ok=True)
    python = directory / "venv/bin/python"
    if not python.exists():
        venv.create(directory / "venv", with_pip=True)
        check.run(python, "-m", "pip", "install", "-q", *check.NEEDED)
    failed = False
    print(f"{'torch':<10} {'scenario':<14} {'readings':>8} {'values':>8} {'differ':>7}")
    for version in options.versions:
        environment = check.prepare(directory, version)
        environment["PYTHONPATH"] = f"{PROBE}:{environment['PYTHONPATH']}"
        for scenario, since in SCENARIOS.items():
            if numbers(version) < numbers(since) or options.only not in (None, scenario):
                continue
            readings, compared, wrong = check_scenario(python, environment, scenario)
            print(
                f"{version:<10} {scenario:<14} {readings:>8} {compared:>8} {len(wrong):>7}",
                flush=True,
            )
            print("".join(f"    {it}\n" for it in wrong[:8]), end="", flush=True)
            failed |= bool(wrong)
        if options.only in (None, "many"):
            cost, step = measure(python, environment)
            verdict = "" if cost <= COST else f"    more than {COST:.0%}\n"
            took = f"the probe takes {cost:.2%} of steps of {step * 1000:.1f} ms"
            print(f"{version:<10} {took}\n{verdict}", end="", flush=True)
            failed |= cost > COST
    sys.exit(failed)


if __name__ == "__main__":
    main()
