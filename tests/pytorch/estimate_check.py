#!/usr/bin/env python3
"""Compares `gputop estimate` with the peak that its `--measure` finds, with real wheels.

    cargo build --workspace && tests/pytorch/estimate_check.py DIRECTORY [VERSION...]

Needs no GPU: like check.py, it runs each wheel on a fake CUDA runtime, where PyTorch's real
allocator counts real blocks. The estimates run without that runtime, as on a machine without a
driver. Prints a table. The exit code is 1 when a difference is over the limit, when a model that
depends on data gets no sentence, or when an estimate has touched CUDA.

Flags that are computed by formula are compared with PyTorch's own FSDP and stage 1 of ZeRO
(sharded_step.py), and with figures that are computed here. Where TRANSFORMERS names a folder of
`pip install --target FOLDER transformers peft`, configurations of Hugging Face and LoRA are also
compared with models of transformers and peft.

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
import transformers_models

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
LIMITS["llama_bf16 --lora r=16"] = 5
LIMITS["llama_bf16 --lora r=16 --precision bf16 --checkpoint"] = 5
LIMITS["gpt2 --lora r=4 --optimizer sgd_momentum"] = 5
# Steps that several GPUs share: a model with flags, and the arguments of sharded_step.py.
SHARED = {
    "gpt2 --fsdp 8": ("fsdp", 8, "gpt2"),
    "gpt2 --fsdp 2": ("fsdp", 2, "gpt2"),
    "gpt2_autocast --fsdp 8": ("fsdp", 8, "gpt2_autocast"),
    "llama_bf16 --fsdp 4": ("fsdp", 4, "llama_bf16"),
    "lora --fsdp 8": ("fsdp", 8, "lora"),
    "checkpoint_autocast --fsdp 8": ("fsdp", 8, "checkpoint_autocast"),
    "resnet50 --optimizer adamw --fsdp 8": ("fsdp", 8, "resnet50"),
    "mlp --optimizer adamw --zero 1 --gpus 2": ("zero1", 2, "mlp"),
}
# The bytes of layers of 2048 inputs and outputs with a bias, in single precision.
LAYER = 4 * (2048 * 2048 + 2048)
# The parts of `mlp`, 6 such layers with AdamW, on one of 8 GPUs, by stage of ZeRO.
BY_STAGE = {
    1: {"parameters": 6 * LAYER, "gradients": 6 * LAYER, "optimizer_state": 12 * LAYER / 8},
    2: {"parameters": 6 * LAYER, "gradients": 6 * LAYER / 8, "optimizer_state": 12 * LAYER / 8},
    3: {
        "parameters": 6 * LAYER / 8,
        "gradients": 6 * LAYER / 8,
        "optimizer_state": 12 * LAYER / 8,
        # The largest layer and its gradient.
        "gathered": 2 * LAYER,
    },
}
# Models of transformers_models.py with flags.
OF_TRANSFORMERS = {
    "llama": 5,
    "llama_peft": 5,
    "llama --lora r=16": 5,
    "gpt2_peft": 5,
    "gpt2 --lora r=16": 5,
    "bert": 5,
    "t5": 5,
    "mixtral": 5,
}
# A model that looks at its data, and the words that its sentence must have.
REFUSED = {"experts": ["nonzero", "in forward", "--measure runs it on a GPU instead"]}
MEMORY_MB = 200_000
# Older versions have no CUDA device without memory.
VERSIONS = ["2.6.0", "2.11.0", "2.15.0"]


def gputop(python, environment, name, *more, file="estimate_models.py"):
    """Runs an estimate. Returns the answer, or the sentence of the error."""
    function, *flags = name.split()
    subject = function if function.startswith("hf:") else f"{HERE / file}:{function}"
    command = [check.TARGET / "gputop", "estimate", subject, "--time-limit", "600s"]
    # Without a GPU, no largest batch is searched.
    command += ["--python", python, "--json", "--nvml-lib", "/none", *flags, *more]
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
                print(f"{version:<8} {name:<58} {'' if is_refused else 'WRONG: '}{sentence}")
                is_right &= is_refused
        for name, arguments in SHARED.items():
            peak = sharded(python, measured, arguments)
            is_right &= row(version, name, 5, gputop(python, estimated, name), peak)
        is_right &= check_stages(version, python, estimated)
        is_right &= check_sweep(version, python, estimated)
        if "TRANSFORMERS" in os.environ:
            is_right &= check_transformers(version, python, measured, estimated, Path(scratch))
        if (Path(scratch) / "touched").exists():
            print(f"{version:<8} an estimate has touched CUDA")
            is_right = False
    return is_right


def sharded(python, environment, arguments):
    """The answer of PyTorch's own sharding, or the end of its error."""
    command = [python, HERE / "sharded_step.py", *map(str, arguments)]
    done = subprocess.run(command, env=environment, text=True, capture_output=True)
    if done.returncode:
        return done.stderr.strip()[-300:]
    return {"peak_bytes": int(done.stdout.split()[-1])}


def check_stages(version, python, environment):
    """Compares the parts of ZeRO with those that are computed here."""
    is_right = True
    for stage, parts in BY_STAGE.items():
        name = f"mlp --optimizer adamw --zero {stage} --gpus 8"
        ours = gputop(python, environment, name)
        for part, amount in parts.items():
            # Each tensor is rounded up to 512 bytes.
            found = ours[f"{part}_bytes"] if isinstance(ours, dict) else 0
            is_right &= same(version, f"{name}: {part}", found, amount, 40 * 512)
    return is_right


def check_sweep(version, python, environment):
    """A cell of a sweep has the peak of an estimate of its own."""
    ours = gputop(python, environment, "sized", "--sweep", "batch=1..8,length=128..256")
    cells = ours["sweep"]["cells"] if isinstance(ours, dict) else []
    found = [cell["peak_bytes"] for cell in cells]
    alone = gputop(python, environment, "gpt2")
    is_right = same(version, "sized --sweep: cells", len(found), 8, 0)
    return is_right and same(
        version, "sized --sweep: batch 8, length 256", found[-1], alone["peak_bytes"], 0
    )


def same(version, name, found, expected, tolerance):
    is_same = abs(found - expected) <= tolerance
    print(
        f"{version:<8} {name:<58} {found:>14.0f} {expected:>14.0f} {'' if is_same else 'WRONG'}",
        flush=True,
    )
    return is_same


def check_transformers(version, python, measured, estimated, scratch):
    """Compares models of transformers, and their configurations alone, with measured steps."""
    is_right = True
    path = os.pathsep.join([measured["PYTHONPATH"], os.environ["TRANSFORMERS"]])
    measured, estimated = (it | {"PYTHONPATH": path} for it in (measured, estimated))
    file = "transformers_models.py"
    for name, limit in OF_TRANSFORMERS.items():
        ours = gputop(python, estimated, name, file=file)
        theirs = gputop(python, measured, name, "--measure", file=file)
        is_right &= row(version, f"transformers: {name}", limit, ours, theirs)
    for name in transformers_models.CONFIGURATIONS:
        config = scratch / f"{name}.json"
        config.write_text(json.dumps(transformers_models.CONFIGURATIONS[name]))
        sweep = "batch=4,length=256"
        ours = gputop(python, estimated, f"hf:{config}", "--sweep", sweep)
        ours = ours["sweep"]["cells"][0] if isinstance(ours, dict) else ours
        theirs = gputop(python, measured, name, "--measure", file=file)
        is_right &= row(version, f"hf:{name}.json", 5, ours, theirs)
    return is_right


def row(version, name, limit, ours, theirs):
    if isinstance(ours, str) or isinstance(theirs, str):
        print(f"{version:<8} {name:<58} FAILED: {ours if isinstance(ours, str) else theirs}")
        return False
    estimate, peak = ours["peak_bytes"] / 2**20, theirs["peak_bytes"] / 2**20
    percent = 100 * (estimate - peak) / peak
    is_near = abs(percent) <= limit
    print(
        f"{version:<8} {name:<58} {estimate:>10.1f} {peak:>10.1f} {percent:>+7.1f} %"
        + ("" if is_near else f"  over {limit} %"),
        flush=True,
    )
    return is_near


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    directory = Path(sys.argv[1]).resolve()
    python = check.python_of(directory)
    print(f"{'torch':<8} {'model':<58} {'estimated':>10} {'measured':>10} MiB")
    rights = [check_version(directory, python, version) for version in sys.argv[2:] or VERSIONS]
    sys.exit(not all(rights))


if __name__ == "__main__":
    main()
