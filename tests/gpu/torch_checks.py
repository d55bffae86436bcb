"""Checks of gputop's view into PyTorch: the allocator from outside, and the probe from inside."""

import concurrent.futures
import functools
import json
import os
import pickle
import re
import statistics
import subprocess
import time

import check as pytorch_check
import faults_check
import probe_check
from lab import DEVICE_FILES, HERE, TESTS, Failed
from session_checks import series_of

PROBE = TESTS.parent / "assets/probe"
# The models of models.py, and by how many percent the estimate may miss the measured peak. Before a
# step, nobody knows what cuDNN reserves for an LSTM.
MODELS = {
    "mlp": 10,
    "convolutions": 10,
    "transformer": 10,
    "recurrent": 30,
    "embeddings": 10,
    "checkpointed": 10,
}
# The workspaces of cuBLAS on a Hopper GPU, which the estimate counts beside the peak.
WORKSPACES_MIB = 66
# The figures of `torch.cuda.memory_stats()` and those of gputop.
PAIRS = [
    pair
    for name, key in pytorch_check.FIGURES.items()
    for pair in (
        (f"{name}.current", f"{key}_bytes"),
        (f"{name}.peak", f"{key}_peak_bytes"),
    )
] + list(pytorch_check.COUNTS.items())


def compare_stats(lab, it, trainer, what, device=0):
    """Waits until gputop's figures are those of the process, to the byte, and compares each."""
    stats = trainer.ask("keep 0")

    def ours():
        devices = (lab.allocator(trainer.pid) or {}).get("devices", [])
        return next((one for one in devices if one["cuda_device"] == device), None)

    def same():
        figures = ours()
        return figures and all(figures[key] == stats[name] for name, key in PAIRS) and figures

    try:
        figures = lab.wait(what, same, 15)
    except Failed:
        figures = ours()
        if figures is None:
            raise Failed(f"{what}: gputop has no figures: {lab.allocator(trainer.pid)}") from None
    for name, key in PAIRS:
        it.same(f"{what}: {name}", figures[key], stats[name])


def run_allocator(lab, it, what, commands, environment=None, under=()):
    trainer = lab.trainer(environment=environment, under=under)
    for command in commands:
        trainer.ask(command)
    compare_stats(lab, it, trainer, what)
    trainer.end()


def stats_native(lab, it):
    """The native allocator: after steps, with a cache, and after it was emptied."""
    if not lab.is_real and not lab.has_fake_cuda:
        return stand_in_stats(lab, it)
    trainer = lab.trainer()
    for commands in (["step 20"], ["keep 300", "keep 7"], ["drop"], ["empty"]):
        for command in commands:
            trainer.ask(command)
        compare_stats(lab, it, trainer, " ".join(commands))
    trainer.end()


def stand_in_stats(lab, it):
    """The stand-in for PyTorch's allocator of tests/pytorch, in C."""
    source, folder = TESTS / "pytorch/stand_in.c", lab.out
    program, library = folder / "torch", folder / "libc10_cuda.so"
    common = ["cc", "-O1", "-pthread", str(source), "-ldl"]
    for arguments in (
        ["-DPROGRAM", "-o", str(program)],
        ["-shared", "-fPIC", "-DLAYOUT=25", "-o", str(library)],
    ):
        subprocess.run([*common, *arguments], check=True)
    devices = [folder / name for name in DEVICE_FILES]
    child = lab.child(program, library, 1, *devices, name="stand-in")

    def ask(line):
        child.process.stdin.write(f"{line}\n".encode())
        child.process.stdin.flush()
        return child.process.stdout.readline().decode()

    ask("work 0 2 20971520 15728640 15000000 5242880 0")
    ask("work 0 1 2097152 1024 700 2096128 0")
    lab.pretend(child.pid, 600 << 20)
    figures = [int(word) for word in ask("stats 0").split()]
    keys = ["allocated", "reserved", "active", "inactive_split", "requested"]

    def ours():
        devices = (lab.allocator(child.pid) or {}).get("devices", [])
        return devices and devices[0]

    own = lab.wait("the figures of the stand-in", ours)
    for at, key in enumerate(keys):
        it.same(key, own[f"{key}_bytes"], figures[8 + 2 * at])
        it.same(f"{key}, peak", own[f"{key}_peak_bytes"], figures[9 + 2 * at])
    child.end()


def stats_expandable(lab, it):
    """Expandable segments."""
    lab.needs_real("the fake CUDA runtime has no virtual memory")
    run_allocator(
        lab,
        it,
        "expandable segments",
        ["step 20", "keep 300", "drop"],
        {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    )


def stats_async(lab, it):
    """cudaMallocAsync keeps no figures: gputop says so, and how to get them."""
    lab.needs_real("the fake CUDA runtime has no memory pools")
    trainer = lab.trainer(environment={"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"})
    trainer.ask("step 5")
    found = lab.wait("the stats of the process", lambda: lab.allocator(trainer.pid))
    it.same("the reason", found.get("unreadable"), "cuda_malloc_async")
    it.holds("the reason is on `--plain`", "cudaMallocAsync" in lab.gputop("--plain").stdout)
    trainer.end()


def stats_streams(lab, it):
    """A block that another stream still uses is pending, and becomes cache when it ends."""
    lab.needs_real("kernels of the fake CUDA runtime take no time")
    run_allocator(lab, it, "streams", ["step 5", "stream", "step 5"])


def stats_graphs(lab, it):
    """The private pool of a CUDA graph."""
    lab.needs_real("the fake CUDA runtime has no graphs")
    run_allocator(lab, it, "CUDA graph", ["step 5", "graph", "empty"])


def stats_two(lab, it):
    """Two processes on one GPU."""
    trainers = [lab.trainer(), lab.trainer()]
    trainers[0].ask("keep 100")
    trainers[1].ask("step 10")
    for number, trainer in enumerate(trainers, 1):
        compare_stats(lab, it, trainer, f"process {number}")
        trainer.end()


def stats_fork(lab, it):
    """The figures in a forked child are a copy, and gputop does not count them."""
    trainer = lab.trainer()
    trainer.ask("step 5")
    child = trainer.ask("fork")["child"]
    compare_stats(lab, it, trainer, "the parent")
    found = lab.allocator(child) or {}
    it.holds(
        "the child's copy has no figures of its own",
        not any(one.get("reserved_bytes") for one in found.get("devices", [])),
        str(found),
    )
    trainer.end()


def stats_visible(lab, it):
    """CUDA_VISIBLE_DEVICES names the GPU by its index: the figures belong to this GPU."""
    trainer = lab.trainer(environment={"CUDA_VISIBLE_DEVICES": str(lab.index)})
    trainer.ask("step 3")
    found = lab.wait(
        "the stats of the process", lambda: (lab.allocator(trainer.pid) or {}).get("devices")
    )
    it.same("the GPU", found[0]["gpu_uuid"], lab.uuid)
    trainer.end()


# The probe


def probe_environment(lab, name):
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(PROBE), os.environ.get("PYTHONPATH", "")]).rstrip(":"),
        "FAKE_CUDA_LOG": str(lab.log(name)),
    }


def probe_categories(lab, it):
    """Categories of the probe to the byte, in the scenarios of tests/pytorch/probe_check.py."""
    lab.needs_torch()
    names = ["plain", "lora", "gan", "in_backward", "odd_tensors", "pools", "inference"]

    def one(name):
        return name, probe_check.check_scenario(
            lab.python, probe_environment(lab, f"probe-{name}"), name
        )

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for name, (readings, compared, wrong) in pool.map(one, names):
            it.holds(f"{name}: {compared} values in {readings} readings", not wrong, wrong[:3])


def probe_modes(lab, it):
    """Categories under torch.compile, with a CUDA graph, and under autocast."""
    lab.needs_real("the fake CUDA runtime compiles no kernels")
    for mode, commands in (
        ("", ["step 20", "graph", "step 5"]),
        ("compile", ["step 20"]),
        ("autocast", ["step 20"]),
    ):
        trainer = lab.trainer(mode, under=[lab.gputop_path, "run", "--"])
        for command in commands:
            trainer.ask(command)
        own = trainer.ask("parts")
        find = functools.partial(categories_of, lab, trainer.pid)
        answer = lab.wait("the report of the probe", find, 20)
        for category in ("parameters", "gradients", "optimizer_state", "buffers"):
            it.near(f"{mode or 'graph'}: {category}", answer.get(category, 0), own[category], 4096)
        trainer.end()


def categories_of(lab, pid):
    """The bytes of each category, as the probe last published them; None until it has."""
    done = lab.gputop("tensors", pid, "--json", codes=range(20))
    if done.returncode:
        return None
    devices = json.loads(done.stdout)["report"]["devices"]
    found = devices[0].get("step_end", devices[0]).get("category_bytes") if devices else None
    return found if found and found.get("optimizer_state") else None


def probe_faults(lab, it):
    """Known faults are explained with their line, and healthy programs are not accused."""
    lab.needs_torch()
    environment = {"FAULT_SECONDS": "60", "FAULT_STEPS": "1000000"}

    def one(case):
        name, (variants, wanted, holder) = case
        return name, faults_check.run(
            lab.python,
            {**probe_environment(lab, name), **environment},
            name,
            variants[0],
            wanted,
            holder,
        )

    # Healthy programs take longest: first.
    cases = sorted(faults_check.CASES.items(), key=lambda case: case[1][1] is not None)
    with concurrent.futures.ThreadPoolExecutor(max(2, (os.cpu_count() or 2) - 4)) as pool:
        for name, (is_right, said) in pool.map(one, cases):
            it.holds(name, is_right, re.sub(r"\s+", " ", str(said))[:300])


def probe_snapshot(lab, it):
    """`gputop snapshot` writes a pickle that has the memory of the process."""
    trainer = lab.trainer(under=[lab.gputop_path, "run", "--"])
    trainer.ask("step 5")
    file = lab.out / "snapshot.pickle"
    # gputop overwrites no file.
    file.unlink(missing_ok=True)
    lab.wait(
        "the snapshot",
        lambda: lab.gputop("snapshot", trainer.pid, "-o", file, codes=(0, 1, 2)).returncode == 0,
        20,
    )
    own = trainer.ask("parts")
    segments = pickle.loads(file.read_bytes())["segments"]
    it.same("reserved", sum(one["total_size"] for one in segments), own["reserved"])
    trainer.end()


def probe_overhead(lab, it):
    """The time of a step with the probe to that without, in turns."""
    plain, probed = lab.trainer(), lab.trainer(under=[lab.gputop_path, "run", "--"])
    for trainer in (plain, probed):
        trainer.ask("step 50")
    ratios = []
    for _ in range(5):
        without = plain.ask("time 1")["median"]
        with_probe = probed.ask("time 1")["median"]
        again = plain.ask("time 1")["median"]
        ratios.append(2 * with_probe / (without + again))
    ratio = statistics.median(ratios)
    it.note(
        f"a step with the probe takes {ratio:.3f} of one without: {[round(r, 3) for r in ratios]}"
    )
    it.holds("at most 1.05 of the time", ratio <= 1.05, f"{ratio:.3f}")
    plain.end()
    probed.end()


def estimate(lab, it):
    """`gputop estimate` against the peak that its `--measure` finds on the GPU, for six models."""
    lab.needs_real("kernels of the fake CUDA runtime need no workspace")
    lab.needs_torch()

    def peak(name, *more):
        place = f"{HERE / 'models.py'}:{name}"
        words = ["estimate", place, "--python", lab.python, "--json", *more]
        return json.loads(lab.gputop(*words, seconds=150).stdout)["peak_bytes"] >> 20

    with concurrent.futures.ThreadPoolExecutor(2 * len(MODELS)) as pool:
        estimated = {name: pool.submit(peak, name) for name in MODELS}
        measured = {name: pool.submit(peak, name, "--measure") for name in MODELS}
        for name, percent in MODELS.items():
            ours, theirs = estimated[name].result(), measured[name].result()
            it.note(f"{name}: estimated {ours} MiB, measured {theirs} MiB")
            tolerance = theirs * percent // 100 + WORKSPACES_MIB
            it.near(f"{name}: peak in MiB", ours, theirs, tolerance)


def warm_up(lab, it):
    """Memory that grows for a while and then stays is not called a leak."""
    recording = lab.out / "warm-up.jsonl.zst"
    recorder = lab.record(recording)
    trainer = lab.trainer() if lab.is_real else lab.holder(2000)
    for _ in range(20 if lab.is_real else 0):
        trainer.ask("keep 64")
        time.sleep(0.5)
    # Long enough for a verdict.
    time.sleep(70)
    lab.end_recorder(recorder)
    series = series_of(lab, recording, trainer.pid)
    words = {single["worst_verdict"] for single in series}
    it.holds(
        "analyze has a verdict, and none of a leak", words in ({"steady"}, {"warming_up"}), words
    )
    trainer.end()


CHECKS = [
    stats_native,
    stats_expandable,
    stats_async,
    stats_streams,
    stats_graphs,
    stats_two,
    stats_fork,
    stats_visible,
    probe_categories,
    probe_modes,
    probe_faults,
    probe_snapshot,
    probe_overhead,
    estimate,
    warm_up,
]
