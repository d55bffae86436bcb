#!/usr/bin/env python3
"""Compares the allocator stats that gputop reads with those that PyTorch reports, to the byte, with
real wheels.

    cargo build --workspace && tests/pytorch/check.py DIRECTORY [VERSION...]

Needs no GPU. Each wheel (0.5 to 0.9 GB, from PyPI, for the Python that runs this) is unpacked below
DIRECTORY and runs on a fake CUDA runtime, which is built with gcc from fake_cudart.c and from stubs
for NVIDIA's other libraries. So PyTorch's real allocator counts real blocks. After each command of
train.py, the script compares PyTorch's stats with those that the shipped `gputop agent` reads from
outside; the fake NVML reports the memory that the fake runtime allocated. Then PyTorch is started
with each of its other allocators, which gputop must recognise. Prints a table. The exit code is 1
when any value differs.
"""

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
import venv
import zipfile
from pathlib import Path

import static_runtime

HERE = Path(__file__).resolve().parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target")) / "debug"
VERSIONS = ["2.1.2", "2.3.1", "2.5.1", "2.7.1", "2.11.0", "2.15.0"]
NEEDED = [
    "numpy<2",
    "filelock",
    "typing-extensions",
    "sympy",
    "networkx",
    "jinja2",
    "fsspec",
    "setuptools",
]
# The packages with the headers, and with the one library that is no stub.
CUDA = {
    11: [
        "nvidia-cuda-runtime-cu11==11.7.99",
        "nvidia-cuda-cupti-cu11==11.7.101",
        "nvidia-cuda-nvcc-cu11==11.7.99",
    ],
    12: ["nvidia-cuda-runtime-cu12", "nvidia-cuda-cupti-cu12", "nvidia-cuda-nvcc-cu12"],
    13: ["nvidia-cuda-runtime", "nvidia-cuda-cupti", "nvidia-cuda-crt"],
}
DEVICES = 2
# The functions of the driver that need more than a stub.
DRIVER = """
int cuGetProcAddress_v2(const char *name, void **at, int version, unsigned long long flags, int *status) {
    *at = 0;
    if (status) *status = 1;
    return 500;
}
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active) {
    *flags = 0, *is_active = 1;
    return 0;
}
"""
# PyTorch's names, and those of gputop's JSON.
FIGURES = {
    "allocated_bytes.all": "allocated",
    "reserved_bytes.all": "reserved",
    "active_bytes.all": "active",
    "inactive_split_bytes.all": "inactive_split",
    "requested_bytes.all": "requested",
}
COUNTS = {
    "allocation.all.current": "allocations",
    "segment.all.current": "segments",
    "num_alloc_retries": "allocation_retries",
    "num_ooms": "out_of_memory_errors",
}
# gputop's word for each other allocator, and how PyTorch is told to use it: Python code,
# environment variables.
OTHERS = {
    "cuda_malloc_async": ("", {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}),
    "pluggable": (
        "torch.cuda.memory.change_current_allocator(torch.cuda.memory.CUDAPluggableAllocator(sys.argv[1], 'take', 'give'))",
        {},
    ),
}
PLUGGABLE = """
#include <stdlib.h>
void *take(long size, int device, void *stream) { return malloc(size); }
void give(void *block, long size, int device, void *stream) { free(block); }
"""
OTHER = """
import sys, torch
{}
kept = torch.empty(1000, device="cuda")
print("{{}}", flush=True)
sys.stdin.readline()
"""
STEPS = [
    "step 3",
    "keep 100",
    "keep 33",
    "step 2",
    "drop",
    "stream",
    "step 1",
    "empty",
    "peaks",
    "keep 7",
    "oom",
    "totals",
    "step 5",
]


def run(*command, **options):
    return subprocess.run(command, check=True, text=True, capture_output=True, **options).stdout


def download(directory, *names):
    """Downloads wheels and unpacks them into one directory."""
    if not (directory / "done").exists():
        wheels = directory / "wheels"
        run(
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--only-binary=:all:",
            "-d",
            wheels,
            *names,
        )
        for wheel in wheels.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(directory)
            wheel.unlink()
        (directory / "done").touch()
    return directory


def symbols(library):
    """Yields each dynamic symbol: name, version, type, whether it is undefined, and whether it
    is global.
    """
    for line in run("readelf", "--dyn-syms", "-W", library).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[0].rstrip(":").isdigit():
            name, *version = re.split("@+", fields[7])
            yield name, "".join(version), fields[3], fields[6] == "UND", fields[4] == "GLOBAL"


def versions_of_files(library):
    """Yields each needed symbol version, and the library that must define it."""
    file = None
    for line in run("readelf", "-V", "-W", library).splitlines():
        if found := re.search(r"File: (\S+)", line):
            file = found[1]
        elif (found := re.search(r"Name: (\S+)\s+Flags", line)) and file:
            yield found[1], file


def compile_library(out, name, source, versions=None, *arguments):
    """Builds a shared library from source text. `versions` maps symbol versions to symbols."""
    (out / "source.c").write_text(source)
    command = [
        "gcc",
        "-w",
        "-O1",
        "-shared",
        "-fPIC",
        f"-Wl,-soname,{name}",
        "-o",
        out / name,
        out / "source.c",
        *arguments,
    ]
    if versions:
        script = "\n".join(
            f"{it} {{ global: {' '.join(f'{s};' for s in names)} }};"
            for it, names in versions.items()
        )
        (out / "versions").write_text(script)
        command.append(f"-Wl,--version-script,{out / 'versions'}")
    run(*command)


def stub(wanted):
    lines = [
        f"char {name}[8];" if kind == "OBJECT" else f"int {name}(void) {{ return 0; }}"
        for name, kind in sorted(wanted.items())
    ]
    return "\n".join(lines)


def build(torch, out, cuda):
    """Builds the fake runtime and the stubs for a build of PyTorch."""
    if (out / "done").exists():
        return
    out.mkdir(parents=True, exist_ok=True)
    libraries = [
        it
        for it in (torch / "torch/lib").glob("*.so*")
        if it.name.startswith(("libtorch", "libc10", "libcaffe2"))
    ]
    needed, homes, wanted = set(), {}, {}
    for library in libraries:
        needed |= set(
            re.findall(
                r"NEEDED.*\[(lib(?:cu|nccl|nvrtc|nvshmem|nvJit|nvTools)\S*)\]",
                run("readelf", "-d", library),
            )
        )
        homes |= {version: file for version, file in versions_of_files(library)}
        for name, version, kind, is_wanted, is_strong in symbols(library):
            if is_wanted and is_strong:
                wanted[name] = (version, kind)
    needed.add("libcuda.so.1")
    prefixes = {it.split(".so")[0].removeprefix("lib").split("-")[0]: it for it in needed}

    def home(name, version):
        if version:
            return homes.get(version)
        if name.startswith("nvtx"):
            return prefixes.get("nvToolsExt")
        if re.match(r"cu[A-Z]", name) and not name.startswith("cuFile"):
            return "libcuda.so.1"
        fitting = [it for it in prefixes if name.lower().startswith(it.lower())]
        return prefixes[max(fitting, key=len)] if fitting else None

    inner = static_runtime.redirect(libraries)
    for name in needed:
        # A library of NVIDIA inside the wheel would be found first.
        (torch / "torch/lib" / name).unlink(missing_ok=True)
    by_library = {it: {} for it in needed}
    for name, (version, kind) in wanted.items():
        library = home(name, version)
        if library in by_library:
            by_library[library].setdefault(version, {})[name] = kind
    include = [f"-I{it}" for it in cuda.glob("nvidia/*/include")]
    for library, wants in by_library.items():
        own = library.split(".so")[0].split("-")[0]
        if own == "libcupti":
            continue
        known, source = set(), ""
        if own == "libcudart":
            source = (HERE / "fake_cudart.c").read_text()
            properties = [
                it
                for names in wants.values()
                for it in names
                if it.startswith("cudaGetDeviceProperties")
            ]
            source = (
                f"#define PROPERTIES {(properties or ['cudaGetDeviceProperties'])[0]}\n{source}"
            )
            known = set(re.findall(r"^\w[\w *]*?\b(\w+)\([^;]*\{", source, re.M)) | {
                (properties or ["cudaGetDeviceProperties"])[0]
            }
            source += static_runtime.table(inner, known) if inner else ""
        elif own == "libcuda":
            source = DRIVER
            known = set(re.findall(r"^int (\w+)", source, re.M))
        all_of_it = {
            name: kind
            for names in wants.values()
            for name, kind in names.items()
            if name not in known
        }
        versions = {version: names for version, names in wants.items() if version}
        # Other libraries need these symbol versions too.
        compile_library(out, library, source + stub(all_of_it), versions, *include)
    (out / "done").touch()


class Child:
    """A process that reads commands and answers in JSON, one line each."""

    def __init__(self, command, environment):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, env=environment, text=True, **pipes)

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args} ended with {self.process.wait()}")
        return json.loads(line)

    def ask(self, line):
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.read()

    def end(self):
        self.process.stdin.close()
        self.process.wait()


class Watcher:
    """The shipped agent, on a fake driver that reports the memory of the fake runtime."""

    def __init__(self, directory, pid):
        self.directory, self.pid = directory, pid
        self.world()
        environment = {
            "PATH": os.environ["PATH"],
            "GPUTOP_NVML_LIB": str(next(TARGET.glob("**/libfake_nvml.so"))),
            "FAKE_NVML_WORLD": str(directory / "world.json"),
        }
        self.agent = Child([TARGET / "gputop", "agent", "--interval", "100ms"], environment)
        self.process = None

    def world(self):
        used = [int(it) for it in (self.directory / "used").read_text().split()]
        tenant = lambda it: {"pid": self.pid, "memory": it}
        gpus = [{"persona": "H100", "processes": [tenant(it)] if it else []} for it in used]
        draft = self.directory / "draft.json"
        draft.write_text(json.dumps({"gpus": gpus}))
        draft.rename(self.directory / "world.json")

    def peek(self):
        """Reads a line, and returns the latest allocator stats of the process."""
        line = self.agent.read()
        for process in line.get("processes", []):
            if process["pid"] == self.pid and "allocator_stats" in process:
                self.process = process["allocator_stats"]
        return self.process


def differences(stats, peek):
    """The values that differ. A device that was never used has none."""
    used = [(at, it) for at, it in enumerate(stats) if it["reserved_bytes.all.peak"] > 0]
    allocators = {it["cuda_device"]: it for it in (peek or {}).get("devices", [])}
    if set(allocators) != {at for at, _ in used}:
        return [f"devices {sorted(allocators)}: {(peek or {}).get('unread')}"]
    pairs = []
    for at, theirs in used:
        ours = allocators[at]
        for name, key in FIGURES.items():
            pairs += [
                (at, name, theirs[f"{name}.current"], ours[f"{key}_bytes"]),
                (at, name + ".peak", theirs[f"{name}.peak"], ours[f"{key}_peak_bytes"]),
            ]
        pairs += [(at, name, theirs[name], ours[key]) for name, key in COUNTS.items()]
    return [
        f"cuda:{at} {name}: {theirs} is not {ours}"
        for at, name, theirs, ours in pairs
        if theirs != ours
    ]


def others(out, python, environment):
    """Returns a message for each other allocator that is not recognised."""
    compile_library(out, "pluggable.so", PLUGGABLE)
    wrong = []
    for expected, (how, variables) in OTHERS.items():
        (out / "used").write_text(f"{1 << 30}\n")
        child = Child(
            [python, "-c", OTHER.format(how), out / "pluggable.so"], environment | variables
        )
        child.read()
        (out / "used").write_text(f"{1 << 30}\n")
        watcher, deadline = Watcher(out, child.process.pid), time.monotonic() + 20
        while (
            found := (watcher.peek() or {}).get("unreadable")
        ) != expected and time.monotonic() < deadline:
            pass
        wrong += [f"{expected} is reported as {found}"] if found != expected else []
        watcher.agent.end()
        child.end()
    return wrong


def disturb(trainer, watcher, pairs=12):
    """Ratios of the step time with an agent that reads ten times per second to that without; and as
    noise, ratios of times both without. The windows alternate, so that other load affects both.
    """
    threading.Thread(
        target=lambda: [None for _ in watcher.agent.process.stdout], daemon=True
    ).start()

    def steps(looks):
        watcher.agent.process.send_signal(signal.SIGCONT if looks else signal.SIGSTOP)
        return trainer.ask("run 0.5")["median"]

    found = {True: [], False: []}
    for _ in range(pairs):
        for looks in (True, False):
            a, b, c, d = (steps(it) for it in (looks, False, False, looks))
            found[looks].append((a + d) / (b + c))
    return found[True], found[False]


def middle(ratios):
    """The median and the quartiles."""
    low, median, high = statistics.quantiles(ratios, n=4)
    return f"{median:.3f} ({low:.3f}-{high:.3f})"


def python_of(directory):
    """The Python of a virtual environment with what PyTorch needs."""
    directory.mkdir(exist_ok=True)
    python = directory / "venv/bin/python"
    if not python.exists():
        venv.create(directory / "venv", with_pip=True)
        run(python, "-m", "pip", "install", "-q", *NEEDED)
    return python


def prepare(directory, version):
    """Downloads a version, and builds its fake runtime. Returns the environment for Python."""
    torch = download(directory / f"torch-{version}", f"torch=={version}")
    libraries = [torch / "torch/lib" / name for name in ("libc10_cuda.so", "libtorch_cpu.so")]
    runtimes = [re.search(r"libcudart\S*\.so\.(\d+)", run("readelf", "-d", it)) for it in libraries]
    major = int(next(filter(None, runtimes))[1])
    cuda = download(directory / f"cuda-{major}", *CUDA[major])
    out = directory / f"fake-{version}"
    build(torch, out, cuda)
    real = [str(it.parent) for it in cuda.glob("nvidia/*/lib/libcupti.so*")]
    return {
        "PATH": os.environ["PATH"],
        "LD_LIBRARY_PATH": ":".join([str(out), *real]),
        "PYTHONPATH": str(torch),
        "FAKE_CUDA_DEVICES": str(DEVICES),
        "FAKE_CUDA_LOG": str(out / "used"),
        "FAKE_CUDA_BUSY": str(out / "busy"),
        "OMP_NUM_THREADS": "1",
        # The stub of cuBLAS causes warnings.
        "PYTHONWARNINGS": "ignore",
    }


def check(directory, python, version):
    """Checks one version. Returns the number of compared values, the differences, and the cost
    for the trainer.
    """
    environment, out = prepare(directory, version), directory / f"fake-{version}"
    trainer = Child([python, HERE / "train.py"], environment)
    name = trainer.read()["torch"]
    watcher = Watcher(out, trainer.process.pid)
    wrong, compared, pending = [], 0, 0
    for step in STEPS:
        (out / "busy").touch() if step == "stream" else (out / "busy").unlink(missing_ok=True)
        stats = trainer.ask(step)
        watcher.world()
        deadline = time.monotonic() + 20
        while (found := differences(stats, watcher.peek())) and time.monotonic() < deadline:
            pass
        wrong += [f"{step}: {it}" for it in found]
        compared += sum(
            2 * len(FIGURES) + len(COUNTS) for it in stats if it["reserved_bytes.all.peak"] > 0
        )
        pending = max(
            pending,
            *(it["active_bytes.all.current"] - it["allocated_bytes.all.current"] for it in stats),
        )
    gpus = {it["cuda_device"]: it["gpu_uuid"] for it in (watcher.process or {}).get("devices", [])}
    ratio, noise = disturb(trainer, watcher)
    watcher.agent.process.send_signal(signal.SIGCONT)
    watcher.agent.end()
    trainer.end()
    wrong += others(out, python, environment)
    return name, compared, wrong, pending, gpus, ratio, noise


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    directory = Path(sys.argv[1]).resolve()
    python = python_of(directory)
    print(
        f"{'torch':<14} {'figures':>8} {'differ':>7} {'pending':>9}  step with/without, median and middle half     devices"
    )
    failed = False
    for version in sys.argv[2:] or VERSIONS:
        name, compared, wrong, pending, gpus, ratio, noise = check(directory, python, version)
        places = ", ".join(f"cuda:{at} {gpu}" for at, gpu in gpus.items())
        print(
            f"{name:<14} {compared:>8} {len(wrong):>7} {pending:>9}  {middle(ratio)}, noise {middle(noise)}  {places}",
            flush=True,
        )
        print("".join(f"    {it}\n" for it in wrong), end="", flush=True)
        failed |= bool(wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
