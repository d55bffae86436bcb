#!/usr/bin/env python3
"""Runs leaking and healthy programs under `gputop run --fail-on-leak` with real PyTorch wheels, and
checks the exit codes.

    cargo build && tests/pytorch/gate_check.py DIRECTORY [VERSION...] [--pytest FOLDER]

Needs no GPU: see check.py, which downloads the wheels into DIRECTORY and builds the fake CUDA
runtime. `--pytest` names a folder with pytest and pytest-xdist, as `pip install --target` makes it:
without it, the cases with pytest are skipped. `--healthy` runs so many healthy programs instead of
each case once. Prints a line for each run. The exit code is 1 when a code is wrong.
"""

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import check

HERE = Path(__file__).resolve().parent
LEAK = 12
# name: (arguments of Python, the right exit code). SUITE is gate_suite.py.
PROGRAMS = {
    name: ([str(HERE / "faults" / (name + ".py"))], 0 if name.startswith("healthy") else LEAK)
    for name in (
        "buffer_in_graph",
        "closure_cache",
        "hooks_hold",
        "layer_cache",
        "log_records",
        "outputs_kept",
        "retain_graph",
        "traceback_kept",
        "healthy_accumulation",
        "healthy_checkpointing",
        "healthy_ema",
        "healthy_generation",
        "healthy_lengths",
        "healthy_loader",
        "healthy_loading",
        "healthy_replay",
        "healthy_sorted",
        "healthy_warm_up",
    )
}
WORKERS = str(HERE / "gate_workers.py")
PROGRAMS.update(
    {
        "short": ([WORKERS, "healthy", "short"], 0),
        "workers": ([WORKERS, "healthy", "fork", "spawn"], 0),
        "leak, fork": ([WORKERS, "leak", "fork"], LEAK),
        "leak, spawn": ([WORKERS, "leak", "spawn"], LEAK),
        "leak, os._exit": ([WORKERS, "leak", "os._exit"], LEAK),
        "leak, killed": ([WORKERS, "leak", "kill"], 128 + 9),
    }
)
SUITE = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "gate_suite.py")]
SUITES = {
    "pytest": ([*SUITE, "-k", "healthy"], 0),
    "pytest, xdist": ([*SUITE, "-k", "healthy", "-n2"], 0),
    "pytest, leak over tests": ([*SUITE, "-k", "kept_over_tests"], LEAK),
    "pytest, leak in a test": ([*SUITE, "-k", "kept_in_a_test or healthy"], LEAK),
    "pytest, xdist, leak": ([*SUITE, "-k", "kept_over_tests", "-n2"], LEAK),
}


def run(python, environment, arguments):
    """Returns the exit code, and what gputop said."""
    with tempfile.TemporaryDirectory() as home:
        result = subprocess.run(
            [check.TARGET / "gputop", "run", "--fail-on-leak", "--", python, "-B", *arguments],
            env=dict(environment, HOME=home),
            cwd=HERE / "faults",
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
    lines = result.stderr.decode(errors="replace").splitlines()
    said = [line for line in lines if line.startswith("gputop: ")]
    code = result.returncode
    return 128 - code if code < 0 else code, said


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("versions", nargs="*", default=["2.6.0", "2.15.0"])
    parser.add_argument("--pytest")
    parser.add_argument("--healthy", type=int)
    options = parser.parse_args()
    cases = dict(PROGRAMS, **SUITES) if options.pytest else PROGRAMS
    python, failed, count = check.python_of(options.directory), 0, 0
    for version in options.versions:
        environment = check.prepare(options.directory, version)
        # The fake CUDA has no cuBLASLt, which a Linear with bias would use.
        environment["DISABLE_ADDMM_CUDA_LT"] = "1"
        environment["FAULT_SECONDS"] = os.environ.get("FAULT_SECONDS", "4")
        if options.pytest:
            environment["PYTHONPATH"] += os.pathsep + options.pytest
        chosen = cases.items()
        if options.healthy:
            healthy = [case for case in cases.items() if case[1][1] == 0]
            chosen = itertools.islice(itertools.cycle(healthy), options.healthy)
        for name, (arguments, wanted) in chosen:
            code, said = run(python, environment, arguments)
            count += 1
            failed += code != wanted
            is_right = "ok" if code == wanted else "WRONG, not %d" % wanted
            print(version, name, code, is_right, said[-1:], sep="  ", flush=True)
            if code != wanted:
                print(*said, sep="\n", flush=True)
    print(f"{count} runs, {failed} wrong")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
