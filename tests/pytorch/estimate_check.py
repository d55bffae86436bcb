#!/usr/bin/env python3
"""Compares `gputop estimate` with the peak that its `--measure` finds, with real wheels.

    cargo build --workspace && tests/pytorch/estimate_check.py DIRECTORY [VERSION...]

Needs no GPU: like check.py, it runs each wheel on a fake CUDA runtime, where PyTorch's real
allocator counts real blocks. The estimates run without that runtime, as on a machine without a
driver. Prints a table. The exit code is 1 when a difference is over the limit, when a model that
depends on data gets no sentence, or when an estimate has touched CUDA.

The fake runtime has no cuDNN. So the measured convolutions unfold one sample at a time, and the
recurrent layers consist of cells; on a GPU, cuDNN has workspaces of its own. The workspaces of
cuBLAS are switched off, because the estimate has them in the memory of CUDA.
"""

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import check

HERE = Path(__file__).resolve().parent
# The models of estimate_models.py, and the limit of the difference in percent.
LIMITS = {
    "resnet50": 5,
    "vit_bf16": 5,
    "gpt2": 5,
    "gpt2_autocast": 5,
    "llama": 5,
    "llama_bf16": 5,
    "llama_inference": 5,
    "bert": 5,
    "t5_autocast": 5,
    "unet": 5,
    "lstm": 5,
    "mlp": 5,
    "mlp_on_cuda": 5,
    "checkpoint_reentrant": 5,
    "checkpoint_autocast": 5,
    "lora": 5,
}
# Models with flags.
LIMITS["gpt2 --precision bf16"] = 5
LIMITS["llama --optimizer adafactor"] = 5
LIMITS["gpt2_autocast --checkpoint"] = 5
LIMITS["vit_bf16 --checkpoint"] = 5
# A model that looks at its data, and the words that its sentence must have.
REFUSED = {"experts": ["nonzero", "in forward", "--measure runs it on a GPU instead"]}
MEMORY_MB = 200_000
# Older versions have no CUDA device without memory.
VERSIONS = ["2.6.0", "2.11.0", "2.15.0"]


def gputop(python, environment, name, *more):
    """Runs an estimate. Returns the answer, or the sentence of the error."""
    function, *flags = name.split()
    command = [check.TARGET / "gputop", "estimate", f"{HERE / 'estimate_models.py'}:{function}"]
    command += ["--python", python, "--json", "--gpu-memory", "80GiB", *flags, *more]
    done = subprocess.run(command, env=environment, text=True, capture_output=True)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()[-300:]


def environments(directory, version, scratch):
    """The environments of measurements and of estimates."""
    measured = check.prepare(directory, version) | {
        "HOME": scratch,
        "FAKE_CUDA_DEVICES": "1",
        "FAKE_CUDA_TOTAL_MB": str(MEMORY_MB),
        "CUBLAS_WORKSPACE_CONFIG": ":0:0",
        "DISABLE_ADDMM_CUDA_LT": "1",
        "TORCH_CUDNN_V8_API_DISABLED": "1",
    }
    # An estimate that allocates on the device would write this file.
    estimated = measured | {"FAKE_CUDA_LOG": str(Path(scratch) / "touched")}
    return measured, estimated


def check_version(directory, python, version):
    """Prints a row for each model. Returns whether all are within their limits."""
    is_right = True
    with tempfile.TemporaryDirectory() as scratch:
        measured, estimated = environments(directory, version, scratch)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            ours = {
                name: pool.submit(gputop, python, estimated, name) for name in [*LIMITS, *REFUSED]
            }
            theirs = {
                name: pool.submit(gputop, python, measured, f"without_cudnn_{name}", "--measure")
                for name in LIMITS
            }
            for name, limit in LIMITS.items():
                is_right &= row(version, name, limit, ours[name].result(), theirs[name].result())
            for name, words in REFUSED.items():
                sentence = ours[name].result()
                is_refused = isinstance(sentence, str) and all(word in sentence for word in words)
                print(f"{version:<8} {name:<28} {'' if is_refused else 'WRONG: '}{sentence}")
                is_right &= is_refused
        if (Path(scratch) / "touched").exists():
            print(f"{version:<8} an estimate has touched CUDA")
            is_right = False
    return is_right


def row(version, name, limit, ours, theirs):
    if isinstance(ours, str) or isinstance(theirs, str):
        print(f"{version:<8} {name:<28} FAILED: {ours if isinstance(ours, str) else theirs}")
        return False
    estimate, peak = ours["peak_bytes"] / 2**20, theirs["peak_bytes"] / 2**20
    percent = 100 * (estimate - peak) / peak
    is_near = abs(percent) <= limit
    print(
        f"{version:<8} {name:<28} {estimate:>10.1f} {peak:>10.1f} {percent:>+7.1f} %"
        + ("" if is_near else f"  over {limit} %"),
        flush=True,
    )
    return is_near


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    directory = Path(sys.argv[1]).resolve()
    python = check.python_of(directory)
    print(f"{'torch':<8} {'model':<28} {'estimated':>10} {'measured':>10} MiB")
    rights = [check_version(directory, python, version) for version in sys.argv[2:] or VERSIONS]
    sys.exit(not all(rights))


if __name__ == "__main__":
    main()
