#!/usr/bin/env python3
"""Runs scripts with known faults, and healthy ones, under gputop's probe with real PyTorch wheels,
and checks what it says.

    tests/pytorch/faults_check.py DIRECTORY [VERSION...] [--only NAME]

Needs no GPU: see check.py, which downloads the wheels into DIRECTORY and builds the fake CUDA
runtime. For each script of faults/, the first leak that the probe publishes must have the right
cause, holder and line, and none that is likely may have another cause; for a healthy one it must
publish none. Then stacks are recorded, and the
line that allocates is compared too. Prints a table. The exit code is 1 when a script fails.
"""

import json
import os
import re
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import check

HERE = Path(__file__).resolve().parent
FAULTS = HERE / "faults"
PROBE = HERE.parent.parent / "assets/probe"
HEADER = struct.Struct("<8sIIQQII24x")
# Seconds until a leak must be there, and steps that a healthy script must make without one.
PATIENCE, HEALTHY = 100, 400
BOTH = ("", "--no-backward")
# script: (variants, causes that are right, what holds the tensors). The line is the one with the
# comment `# fault`.
CASES = {
    "loss_summed": (BOTH, ["history_summed"], r"tensor total, "),
    "buffer_in_graph": (BOTH, ["buffer_in_graph"], r"Normalized\.running"),
    "outputs_kept": (BOTH, ["kept_outputs"], r"list outputs, "),
    "layer_cache": (BOTH, ["layer_cache"], r"LeakyLayer\.cache"),
    "eval_with_history": (
        ("", "--sum"),
        ["eval_without_no_grad"],
        r"list predictions, |tensor total, ",
    ),
    "retain_graph": (("",), ["retain_graph"], r"list losses, "),
    "optimizer_recreated": (("",), ["optimizer_recreated"], r"list optimizers, "),
    "hooks_hold": (BOTH, ["hooks_hold"], r"list features, "),
    "traceback_kept": (BOTH, ["traceback_frame"], r"list errors, "),
    "fragmentation": (BOTH, ["fragmentation"], None),
    "concatenated": (("",), ["extended"], r"tensor history, "),
    "bank_extended": (("",), ["extended"], r"Bank\.keys, "),
    "closure_cache": (("",), ["kept_outputs"], r"dict cache, "),
    "log_records": (("",), ["kept_outputs"], r"Keep\.records, "),
    "validation_kept": (("",), ["kept_outputs"], r"Trainer\.activations, "),
    "states_saved": (("",), ["kept_outputs"], r"Finder\.trials, "),
    "hidden_carried": (("",), ["history_carried"], r"tensor hidden, "),
    "model_copies": (("",), ["model_copies"], r"list snapshots, "),
    "hooks_registered": (("",), ["hooks_registered"], r"forward hook on LayerNorm, "),
    "reference_cycle": (("",), ["reference_cycle"], r"Node\.children, |Node\.parent, "),
    "parameter_attribute": (("",), ["kept_outputs"], r"Linear\.weight\.past, "),
    "average_meter": (("",), ["history_summed"], r"AverageMeter\.sum, "),
    "adapters_loaded": (("",), ["model_copies"], r"Adapted\.adapters, "),
    "views_kept": (("",), ["kept_outputs"], r"list examples, "),
    "create_graph": (("",), ["create_graph"], None),
    "healthy_warm_up": (("",), None, None),
    "healthy_lengths": (("",), None, None),
    "healthy_checkpointing": (("",), None, None),
    "healthy_accumulation": (("",), None, None),
    "healthy_ema": (("",), None, None),
    "healthy_sorted": (("",), None, None),
    "healthy_generation": (("",), None, None),
    "healthy_replay": (("",), None, None),
    "healthy_loader": (("",), None, None),
    "healthy_loading": (("",), None, None),
    "healthy_ring": (("",), None, None),
    "healthy_evaluation": (("",), None, None),
    "healthy_cache": (("",), None, None),
}


class Program:
    """A script under the probe."""

    def __init__(self, python, environment, script, arguments):
        self.process = subprocess.Popen(
            [python, "-B", script, *arguments],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=FAULTS,
        )
        self.sequence = 0

    def memfd(self, name):
        folder = f"/proc/{self.process.pid}/fd"
        try:
            for entry in os.listdir(folder):
                if os.readlink(f"{folder}/{entry}").startswith(f"/memfd:{name} "):
                    return f"{folder}/{entry}"
        except OSError:
            pass
        return None

    def state(self):
        """The published state, or None."""
        path = self.memfd("gputop-probe")
        if path is None:
            return None
        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError:
            return None
        if len(content) < HEADER.size:
            # Just made.
            return None
        magic, _, _, _, sequence, length, checksum = HEADER.unpack_from(content)
        payload = content[HEADER.size : HEADER.size + length]
        if magic != b"gputopP1" or sequence % 2 or not length or zlib.crc32(payload) != checksum:
            return None
        return json.loads(payload)

    def wait(self, condition, seconds):
        """The first state that fulfils the condition, else the last one."""
        deadline, last = time.monotonic() + seconds, None
        while time.monotonic() < deadline and self.process.poll() is None:
            state = self.state()
            if state is not None:
                last = state
                if condition(state):
                    break
            time.sleep(0.1)
        return last

    def ask(self, **request):
        path = self.memfd("gputop-probe-requests")
        with open(path, "r+b", buffering=0) as file:
            magic, size, pid, ticks, _, _, _ = HEADER.unpack(file.read(HEADER.size))
            self.sequence += 2
            payload = json.dumps(dict(request, id=self.sequence)).encode()
            os.pwrite(file.fileno(), payload, HEADER.size)
            os.pwrite(
                file.fileno(),
                HEADER.pack(
                    magic, size, pid, ticks, self.sequence, len(payload), zlib.crc32(payload)
                ),
                0,
            )
        state = self.wait(lambda state: state.get("answer", {}).get("id") == self.sequence, 30)
        return (state or {}).get("answer", {})

    def end(self):
        self.process.kill()
        return self.process.communicate()[1].decode(errors="replace")


def fault_line(script, variant):
    """The number of the line with the fault."""
    marks = [
        number
        for number, line in enumerate(script.read_text().splitlines(), 1)
        if "# fault" in line
    ]
    return marks[0] if variant == "--sum" or len(marks) == 1 else marks[-1]


def run(python, environment, name, variant, wanted, holder):
    """Returns (whether it is right, what the probe said)."""
    script = FAULTS / f"{name}.py"
    program = Program(python, environment, script, [variant] if variant else [])
    began = time.monotonic()
    try:
        if wanted is None:
            # Some programs make no steps.
            has_ended = lambda state: time.monotonic() - began > (
                PATIENCE / 3 if state.get("steps", {}).get("count", 0) >= HEALTHY else PATIENCE
            )
            found = program.wait(
                lambda state: bool(state.get("leaks")) or has_ended(state), 3 * PATIENCE
            )
            leaks = (found or {}).get("leaks", [])
            return (
                bool(found) and not leaks and "trouble" not in found,
                f"{found.get('steps', {}).get('count')} steps {leaks} {found.get('trouble', '')}"
                if found
                else "no state",
            )
        found = program.wait(lambda state: bool(state.get("leaks")), PATIENCE)
        seconds = time.monotonic() - began
        if not found or not found.get("leaks"):
            return False, f"nothing found {(found or {}).get('trouble')} {program.process.poll()}"
        # A better explanation may follow the first.
        found = (
            program.wait(
                lambda state: bool(state.get("leaks")) and state["leaks"][0]["cause"] in wanted, 4
            )
            or found
        )
        if not found.get("leaks"):
            return False, "the leak vanished"
        leak = found["leaks"][0]
        held = leak.get("held_by", [])
        line = f"{script.name}:{fault_line(script, variant)}"
        is_right = leak["cause"] in wanted
        if holder:
            is_right &= (
                bool(held)
                and bool(re.search(holder, held[0]))
                and (line in held[0] or name == "retain_graph" and line.split(":")[0] in held[0])
            )
        said = f"{seconds:4.1f} s  {leak['cause']}, {leak['sure']}; {', '.join(held)}; "
        said += f"{len(found['leaks'])} leak(s)"
        if holder and "--verbose" in sys.argv:
            said += f"\n      {leak}"
        return is_right and "trouble" not in found, said + f" {found.get('trouble', '')}"
    finally:
        errors = program.end()
        if "Traceback" in errors:
            print(errors[-2000:])


def main():
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    if not arguments:
        raise SystemExit(__doc__)
    only = None
    if "--only" in sys.argv:
        only = sys.argv[sys.argv.index("--only") + 1]
        arguments.remove(only)
    directory = Path(arguments[0]).resolve()
    python = check.python_of(directory)
    failed = False
    for version in arguments[1:] or ["2.5.1", "2.11.0"]:
        environment = check.prepare(directory, version)
        environment["PYTHONPATH"] = f"{PROBE}:{environment['PYTHONPATH']}"
        environment |= {
            "FAULT_SECONDS": "120",
            "FAULT_STEPS": "1000000",
            "FAKE_CUDA_TOTAL_MB": "64000",
            "HOME": os.environ.get("HOME", "/"),
        }
        for name, (variants, wanted, holder) in CASES.items():
            for variant in variants:
                if only and only not in f"{name} {variant}":
                    continue
                is_right, said = run(python, environment, name, variant, wanted, holder)
                failed |= not is_right
                verdict = "ok   " if is_right else "WRONG"
                print(f"{version:<8} {name + ' ' + variant:<36} {verdict}  {said}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
