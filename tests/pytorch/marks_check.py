#!/usr/bin/env python3
"""Compares the ledger of marks with sums computed by hand, to the byte, with real PyTorch wheels.

    tests/pytorch/marks_check.py DIRECTORY [VERSION...]

Needs no GPU: see check.py, which downloads the wheels into DIRECTORY and builds the fake CUDA
runtime. Runs marked.py with the probe and the stub of marks, imported before torch and after it,
and without the probe. The exit code is 1 when anything differs.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import check
from faults_check import PROBE, Program

HERE = Path(__file__).resolve().parent
FLOAT = 4


def block(*shape, size=FLOAT):
    """The bytes of the allocator's block for a tensor of less than 1 MiB."""
    count = 1
    for length in shape:
        count *= length
    return -(-count * size // 512) * 512


# What changed between two marks: {(category, shape): (count, bytes)}.
NAMED = "named_tensors"
FIRST = {
    ("begin", "a"): {(NAMED, (1000, 100)): (3, 3 * block(1000, 100))},
    ("a", "b"): {
        (NAMED, (64, 64)): (5, 5 * block(64, 64)),
        (NAMED, (1000, 100)): (-1, -block(1000, 100)),
    },
    ("b", "eval"): {},
    ("eval", "eval end"): {(NAMED, (7,)): (1, block(7, size=2))},
    # `dropped` of the time before is freed, another one comes.
    ("eval end", "eval"): {(NAMED, (9,)): (0, 0)},
}
WEIGHTS = [(512, 256), (128, 512)]
# In each step but the first.
STEP = {
    # The graph keeps the output of ReLU; the loss has a name.
    ("step", "forward"): {
        ("activations", (32, 512)): (1, block(32, 512)),
        ("activations", ()): (1, 512),
    },
    ("forward", "backward"): {
        **{("gradients", shape): (1, block(*shape)) for shape in WEIGHTS},
        ("activations", (32, 512)): (-1, -block(32, 512)),
        ("activations", ()): (-1, -512),
    },
    ("backward", "updated"): {},
}


def changes(pair):
    """{(category, shape or block): (count, bytes)} of a pair, without those that stayed."""
    return {
        (
            group["category"],
            tuple(group["shape"]) if "shape" in group else group["block_bytes"],
        ): (group["count_change"], group["bytes_change"])
        for group in pair["groups"]
    }


class Comparison:
    def __init__(self):
        self.count, self.wrong = 0, []

    def same(self, what, found, wanted):
        self.count += 1
        if found != wanted:
            self.wrong.append(f"{what}: {found} is not {wanted}")


def compare_first(state, program, own, compared):
    """Checks the marks before training."""
    pairs = {(pair["since"]["name"], pair["until"]["name"]): pair for pair in state["mark_pairs"]}
    for names, wanted in FIRST.items():
        wanted = {key: change for key, change in wanted.items() if change != (0, 0)}
        compared.same(f"groups of {names}", changes(pairs[names]), wanted)
        total = sum(size for _, size in wanted.values())
        devices = {device["cuda_device"]: device for device in pairs[names]["devices"]}
        compared.same(f"change of {names}", devices[0]["bytes_change"], total)
    evaluation = pairs["eval", "eval end"]
    compared.same("times", evaluation["times"], 3)
    compared.same("all times", evaluation["devices"][0]["total_bytes_change"], 3 * 512)
    compared.same("line", evaluation["since"]["at"].split(":")[0], "marked.py")
    answer = program.ask(request="compare", since="a", until="eval end")
    wanted = dict(FIRST["a", "b"])
    wanted[NAMED, (7,)] = (3, 3 * 512)
    wanted[NAMED, (9,)] = (1, 512)
    compared.same("from a to the end", changes(answer["compared"]), wanted)
    at_end = answer["compared"]["devices"][0]["allocated_bytes"]
    compared.same("allocated at the end", at_end, own["eval end"])
    answer = program.ask(request="compare", since="b", until="a")
    compared.same("order", answer.get("error"), "no mark b is before the mark a")
    answer = program.ask(request="compare", since="c", until="a")
    compared.same("unknown", answer["error"][:22], "there is no mark c; th")
    compare_now(program, "eval", compared)


def compare_steps(state, program, own, compared):
    """Checks the marks in a training step. The first step makes gradients and state."""
    pairs = {(pair["since"]["name"], pair["until"]["name"]): pair for pair in state["mark_pairs"]}
    for names, wanted in STEP.items():
        pair = pairs[names]
        compared.same(f"groups of {names}", changes(pair), wanted)
        compared.same(f"which of {names}", pair["groups_from"], pair["times"])
        difference = own[names[1]] - own[names[0]]
        compared.same(f"change of {names}", pair["devices"][0]["bytes_change"], difference)
    compare_now(program, "step", compared)


def compare_now(program, since, compared):
    """Compares a mark with the present: the sum, and the lines that a recording saw."""
    program.ask(request="record", steps=3)
    answer = program.ask(request="compare", since=since)
    compared.same("error", answer.get("error"), None)
    found = answer["compared"]
    compared.same("now", found["until"]["name"], "now")
    total = sum(group["bytes_change"] for group in found["groups"])
    compared.same("the sum until now", total, found["devices"][0]["bytes_change"])
    lines = {tuple(group.get("shape", ())): group.get("allocated_at") for group in found["groups"]}
    text = (HERE / "marked.py").read_text().splitlines()
    (number,) = (number for number, line in enumerate(text, 1) if "# kept" in line)
    compared.same("the line of what is kept", lines[11,], {"user": f"marked.py:{number}"})
    # Its block is the one that the recording saw, allocated anew since.
    compared.same("the line of what came later", lines.get((300, 13)), None)


def run(python, environment, order, steps):
    """Runs the program. Returns the comparison."""
    compared = Comparison()
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "own.json"
        program = Program(python, environment, HERE / "marked.py", [str(output), order, str(steps)])
        try:
            is_last = lambda state: (
                output.exists() and state["unix_time_seconds"] > output.stat().st_mtime
            )
            state = program.wait(is_last, 60)
            own = json.loads(output.read_text())
            (compare_steps if steps else compare_first)(state, program, own, compared)
            compared.same("trouble", state.get("trouble"), None)
        finally:
            errors = program.end()
    compared.same("errors", errors, "")
    return compared


def run_without(python, environment):
    """Runs the program without the probe. Returns the comparison."""
    compared = Comparison()
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "own.json"
        command = [python, "-B", HERE / "marked.py", output, "stub", "1"]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while not output.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        compared.same("output without the probe", output.exists(), True)
        process.kill()
        compared.same("errors", process.communicate()[1].decode(), "")
    return compared


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    directory = Path(sys.argv[1]).resolve()
    python = check.python_of(directory)
    failed = False
    for version in sys.argv[2:] or ["2.6.0", "2.15.0"]:
        environment = check.prepare(directory, version)
        environment |= {"DISABLE_ADDMM_CUDA_LT": "1", "FAKE_CUDA_TOTAL_MB": "64000"}
        with_probe = dict(environment, PYTHONPATH=f"{PROBE}:{environment['PYTHONPATH']}")
        for name, order, steps in (
            ("stub before torch", "stub", 0),
            ("stub after torch", "torch", 0),
            ("training", "stub", 5),
            ("without the probe", None, 0),
        ):
            if order is None:
                found = run_without(python, environment)
            else:
                found = run(python, with_probe, order, steps)
            print(f"{version:<8} {name:<18} {found.count} values, {len(found.wrong)} differ")
            print("".join(f"    {it}\n" for it in found.wrong), end="", flush=True)
            failed |= bool(found.wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
