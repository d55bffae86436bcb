#!/usr/bin/env python3
"""Compares the memory by module with sums computed by hand, to the byte, with real PyTorch wheels.

    tests/pytorch/modules_check.py DIRECTORY [VERSION...]

Needs no GPU: see check.py, which downloads the wheels into DIRECTORY and builds the fake CUDA
runtime. transformer.py trains, and the probe records one of its steps, and three steps for a
snapshot, whose traces must have all their allocations. The exit code is 1 when anything differs.
"""

import pickle
import sys
import tempfile
from pathlib import Path

import check
from faults_check import PROBE, Program
from marks_check import Comparison

HERE = Path(__file__).resolve().parent
# As in transformer.py.
BATCH, LENGTH, WIDTH, WORDS, BLOCKS = 4, 64, 128, 1000, 3
TOKENS = BATCH * LENGTH * 4
STATE = TOKENS * WIDTH


def expected():
    """The bytes that each module leaves for the backward pass, with the modules in it."""
    # The normalized tensor, and the mean and standard deviation of each token.
    norm = STATE + 2 * TOKENS
    found = {"words": STATE, "norm": norm, "head": TOKENS * WORDS}
    for number in range(BLOCKS):
        block = f"blocks.{number}"
        attention, mlp = f"{block}.attention", f"{block}.mlp"
        for name in ("query", "key", "value"):
            found[f"{attention}.{name}"] = STATE
        # The probabilities, and the input of `out`. Nothing keeps the output of that.
        found[attention] = 3 * STATE + TOKENS * LENGTH + STATE
        # The input of GELU, and the input of the last layer.
        found[f"{mlp}.0"] = found[f"{mlp}.1"] = 4 * STATE
        found[mlp] = 8 * STATE
        found[f"{block}.before_attention"] = found[f"{block}.before_mlp"] = norm
        # Both sums.
        found[block] = found[attention] + found[mlp] + 2 * norm + 2 * STATE
    found["blocks"] = sum(found[f"blocks.{number}"] for number in range(BLOCKS))
    found["Transformer"] = sum(found[name] for name in ("words", "blocks", "norm", "head"))
    return found


def compare_snapshot(program, path, count, compared):
    """Checks the traces of three steps with so many allocations each."""
    answer = program.ask(request="snapshot", path=str(path), steps=3)
    compared.same("steps of the snapshot", answer.get("steps"), 3)
    with open(path, "rb") as file:
        trace = pickle.load(file)["device_traces"][0]
    allocations = [event for event in trace if event["action"] == "alloc"]
    compared.same("allocations of three steps", len(allocations), 3 * count)
    lines = {frame["name"] for event in allocations for frame in event["frames"]}
    compared.same("a function in the traces", "forward" in lines, True)
    frees = [event for event in trace if event["action"] == "free_completed"]
    compared.same("frees of three steps", len(frees), 3 * count)


def run(python, environment):
    """Returns the comparison, and how much longer the recorded step took."""
    compared = Comparison()
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "figures"
        program = Program(python, environment, HERE / "transformer.py", [str(output)])
        try:
            is_training = lambda state: state.get("steps", {}).get("count", 0) > 250
            program.wait(is_training, 120)
            answer = program.ask(request="modules")
            peak, count, median, longest = output.read_text().split()
            compared.same("error", answer.get("error"), None)
            (device,) = answer["modules"]
            rows = {row["path"]: row for row in device["rows"]}
            found = {path: row["activation_bytes"] for path, row in rows.items()}
            compared.same(
                "activations", {path: size for path, size in found.items() if size}, expected()
            )
            compared.same("peak", device["peak_bytes"], int(peak))
            parts = device["before_bytes"] + device["outside_bytes"] + device["backward_bytes"]
            whole = parts + rows["Transformer"]["peak_bytes"]
            compared.same("parts of the peak", whole, device["peak_bytes"])
            compared.same("calls", rows["blocks.1.mlp"]["calls"], 1)
            kept = [(it["names"], it["bytes"]) for it in answer["kept"]]
            compared.same("kept", kept, [(["logits"], TOKENS * WORDS)])
            compare_snapshot(program, Path(folder) / "snapshot.pickle", int(count), compared)
            state = program.wait(lambda state: state["recording"]["state"] == "off", 30)
            compared.same("trouble", state.get("trouble"), None)
        finally:
            errors = program.end()
    compared.same("errors", errors, "")
    return compared, float(longest) / float(median)


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    directory = Path(sys.argv[1]).resolve()
    python = check.python_of(directory)
    failed = False
    for version in sys.argv[2:] or ["2.6.0", "2.15.0"]:
        environment = check.prepare(directory, version)
        environment |= {"DISABLE_ADDMM_CUDA_LT": "1", "FAKE_CUDA_TOTAL_MB": "64000"}
        environment["PYTHONPATH"] = f"{PROBE}:{environment['PYTHONPATH']}"
        found, longer = run(python, environment)
        print(f"{version:<8} {found.count} values, {len(found.wrong)} differ")
        print(f"         the longest step took {longer:.1f} times as long as most")
        print("".join(f"    {it}\n" for it in found.wrong), end="", flush=True)
        failed |= bool(found.wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
