"""Checks the Python module `gputop_monitor` against a gputop whose driver is fake.

    FAKE_NVML_WORLD=FILE GPUTOP=PROGRAM python3 tests/python/module_check.py

The world in FILE has one GPU. `tests/it/packages.rs` runs this.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings

MODULES = str(pathlib.Path(__file__).parents[2] / "assets/python")
sys.path.insert(0, MODULES)

import gputop_monitor as monitor  # noqa: E402
from gputop_monitor.snapshot import from_json as snapshot_of  # noqa: E402

PROGRAM = os.environ["GPUTOP"]
WORLD = pathlib.Path(os.environ["FAKE_NVML_WORLD"])
GIB = 1 << 30
DEADLINE_S = 60.0


def write_world(world):
    draft = WORLD.with_suffix(".draft")
    draft.write_text(json.dumps(world))
    draft.replace(WORLD)


def put_on_gpu(**memory):
    """Puts processes on the GPU: their memory by `p` and their PIDs."""
    world = json.loads(WORLD.read_text())
    world["gpus"][0]["processes"] = [
        {"pid": int(name[1:]), "kinds": ["compute"], "memory": amount}
        for name, amount in memory.items()
    ]
    write_world(world)


def this_process(amount):
    return {"p%d" % os.getpid(): amount}


def fake_gputop(folder, script):
    path = pathlib.Path(folder) / "gputop"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return str(path)


def error_of(**options):
    try:
        next(monitor.snapshots(interval=0.1, **options))
    except monitor.GputopError as error:
        return error
    raise AssertionError("no error")


def snapshots_have_gpus_and_processes():
    put_on_gpu(**this_process(3 * GIB))
    source = monitor.snapshots(interval=0.1, program=PROGRAM)
    first, second = next(source), next(source)
    source.close()
    (gpu,) = first.gpus
    assert gpu.name and "H100" in gpu.name, gpu
    assert gpu.memory_total_bytes and gpu.memory_used_bytes >= 3 * GIB, gpu
    (process,) = gpu.processes
    assert (process.pid, process.memory_used_bytes) == (os.getpid(), 3 * GIB), process
    assert process.identity in [listed.identity for listed in first.processes]
    assert second.time > first.time
    assert second.raw["kind"] == "full"


def a_block_has_peak_growth_and_leftovers():
    put_on_gpu(**this_process(GIB))
    with monitor.measure(interval=0.1, program=PROGRAM) as block:
        child = subprocess.Popen(["sleep", "1000"])
        put_on_gpu(**this_process(5 * GIB), **{"p%d" % child.pid: 2 * GIB})
        wait_until(lambda: block._peak == 7 * GIB, lambda: block._peak)
        put_on_gpu(**this_process(2 * GIB), **{"p%d" % child.pid: GIB})
    assert block.trouble is None, block.trouble
    assert block.peak_bytes == 7 * GIB, block.peak_bytes
    assert block.growth_bytes == 2 * GIB, block.growth_bytes
    (left,) = block.leftovers
    assert (left.pid, left.memory_used_bytes) == (child.pid, GIB), left
    child.kill()
    child.wait()


def callbacks_get_figures():
    put_on_gpu(**this_process(GIB))
    calls = []
    done = threading.Event()

    class Service:
        def log(self, figures, commit):
            calls.append(("wandb", figures["gputop/gpu0/memory_used_bytes"], commit))

        def log_metrics(self, figures, step):
            calls.append(("mlflow", figures["gputop/gpu0/memory_used_bytes"], step))

        def add_scalar(self, name, value, global_step, walltime):
            if name == "gputop/gpu0/memory_used_bytes":
                calls.append(("tensorboard", value, global_step))
                done.set()

    service = Service()
    callbacks = [
        monitor.to_wandb(service),
        monitor.to_mlflow(service),
        monitor.to_tensorboard(service),
    ]
    with monitor.watch(*callbacks, interval=0.1, program=PROGRAM) as watch:
        assert done.wait(DEADLINE_S), (calls, watch.trouble)
    (wandb, mlflow, tensorboard) = calls[:3]
    assert wandb[0] == "wandb" and wandb[1] >= GIB and wandb[2] is False, wandb
    assert mlflow[0] == "mlflow" and mlflow[2] == 0, mlflow
    assert tensorboard == ("tensorboard", wandb[1], 0), tensorboard


def a_callback_that_fails_ends_the_watch_and_not_the_program():
    def fail(_snapshot):
        raise ValueError("no network")

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with monitor.watch(fail, interval=0.1, program=PROGRAM) as watch:
            wait_until(lambda: watch.trouble is not None, lambda: watch.latest)
        wait_until(lambda: warned, lambda: watch.trouble)
    assert watch.trouble == "a callback failed: ValueError: no network", watch.trouble
    assert len(warned) == 1, warned


def a_missing_gputop_is_one_sentence():
    path = os.environ["PATH"]
    try:
        os.environ["PATH"] = "/nonexistent"
        error = error_of()
        block = measured()
    finally:
        os.environ["PATH"] = path
    assert isinstance(error, monitor.GputopNotFound), error
    assert "install it" in str(error), error
    assert block.trouble == str(error), block.trouble
    gone = error_of(program="/nonexistent/gputop")
    assert str(gone) == "cannot start /nonexistent/gputop: No such file or directory", gone


def another_program_of_the_name_is_told():
    with tempfile.TemporaryDirectory() as folder:
        error = error_of(program=fake_gputop(folder, "echo GC320 performance counters\n"))
    assert isinstance(error, monitor.GputopEnded), error
    assert "another program called gputop" in str(error), error


def a_gputop_that_dies_is_told_and_the_program_goes_on():
    source = monitor.snapshots(interval=0.1, program=PROGRAM)
    next(source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # It prints one snapshot, and is killed.
        with tempfile.TemporaryDirectory() as folder:
            script = "'%s' --json\nkill -9 $$\n" % PROGRAM
            dying = fake_gputop(folder, script)
            with monitor.measure(interval=0.1, program=dying) as block:
                pass
    assert block.peak_bytes is None and block.leftovers is None
    assert "ended with code %d" % -signal.SIGKILL in block.trouble, block.trouble
    source.close()


def no_driver_and_no_gpu_are_told_apart():
    error = error_of(program=PROGRAM, arguments=["--nvml-lib", "/nonexistent/libnvidia-ml.so"])
    assert isinstance(error, monitor.NoDriver), error
    assert "cannot load /nonexistent/libnvidia-ml.so" in str(error), error
    world = WORLD.read_text()
    write_world({"gpus": []})
    try:
        error = error_of(program=PROGRAM)
        block = measured(program=PROGRAM)
    finally:
        write_world(json.loads(world))
    assert isinstance(error, monitor.NoGpu), error
    assert block.trouble == str(error), block.trouble


def memory_that_cannot_be_read_is_not_zero():
    put_on_gpu(**this_process(None))
    with monitor.measure(interval=0.1, program=PROGRAM) as block:
        pass
    assert block.peak_bytes is None and block.growth_bytes is None
    assert block.trouble == "the GPU memory of these processes cannot be read", block.trouble


def a_driver_that_lists_no_processes_is_not_zero():
    put_on_gpu(**this_process(GIB))
    world = json.loads(WORLD.read_text())
    functions = [
        "nvmlDeviceGet%sRunningProcesses%s" % (kind, version)
        for kind in ("Compute", "Graphics", "MPSCompute")
        for version in ("", "_v2", "_v3")
    ]
    faults = [{"function": function, "error": "NOT_SUPPORTED"} for function in functions]
    write_world({**world, "faults": faults})
    try:
        block = measured(program=PROGRAM)
    finally:
        write_world(world)
    assert block.peak_bytes is None and block.growth_bytes is None and block.leftovers is None
    assert block.trouble == "the GPU memory of these processes cannot be read", block.trouble


# Prints the trouble and the peak of a block in a container, where this process has PID 1.
CONTAINED = """
import os, sys, warnings
sys.path.insert(0, sys.argv[2])
import gputop_monitor
assert os.getpid() == 1
device = open(os.environ["GPUTOP_DEVICES"] + "0") if sys.argv[3:] else None
with gputop_monitor.measure(interval=0.1, program=sys.argv[1]) as block:
    pass
print(block.peak_bytes, block.trouble)
"""


def in_a_container_pids_of_the_host_are_not_zero():
    def peak(pid, *device):
        world = json.loads(WORLD.read_text())
        process = {"pid": pid, "kinds": ["compute"], "memory": GIB, "fictional": True}
        world["gpus"][0]["processes"] = [process]
        write_world(world)
        namespace = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        program = [sys.executable, "-c", CONTAINED, PROGRAM, MODULES, *device]
        output = subprocess.run(
            namespace + program, stdout=subprocess.PIPE, check=True, timeout=DEADLINE_S
        )
        return output.stdout.decode().strip()

    if os.geteuid() != 0:
        print("skipped: only root can make a PID namespace")
        return
    unknown = "None the driver lists PIDs of another PID namespace"
    of_the_host = peak(4_000_001)
    assert of_the_host.startswith(unknown), of_the_host
    # PID 1 of the host, or this process: it does not use the GPU.
    ambiguous = peak(1)
    assert ambiguous.startswith(unknown), ambiguous
    of_the_container = peak(1, "with device file")
    assert of_the_container == "%d None" % GIB, of_the_container


def a_process_of_another_user_that_proc_hides_is_not_foreign():
    put_on_gpu(**this_process(GIB))
    source = monitor.snapshots(interval=0.1, program=PROGRAM)
    line = json.loads(json.dumps(next(source).raw))
    source.close()
    hidden = {"pid": 4_000_001, "start_ticks": None}
    line["judged"]["processes"].append({**hidden, "verdict": "foreign"})
    is_foreign = {}
    for reason in ("denied", "unsupported"):
        process = {**hidden, "facts": {}, "load": {"missing": {"state": reason}}}
        snapshot = snapshot_of({**line, "processes": [process]})
        is_foreign[reason] = snapshot.processes[0].is_foreign
    assert is_foreign == {"denied": False, "unsupported": True}, is_foreign


def a_watch_that_stops_ends_its_gputop():
    def children():
        return pathlib.Path("/proc/self/task/%d/children" % os.getpid()).read_text().split()

    before = children()
    watch = monitor.watch(interval=3600, program=PROGRAM)
    assert watch.wait_for(lambda snapshot: True, DEADLINE_S), watch.trouble
    watch.stop()
    wait_until(lambda: not watch._thread.is_alive(), children)
    assert watch.trouble is None, watch.trouble
    # One that is stopped at once has no gputop either, whether it was started or not.
    watch = monitor.watch(interval=3600, program=PROGRAM)
    watch.stop()
    wait_until(lambda: not watch._thread.is_alive(), children)
    assert children() == before, children()


def a_forked_process_does_not_end_the_watch():
    with monitor.watch(interval=0.1, program=PROGRAM) as watch:
        assert watch.wait_for(lambda snapshot: True, DEADLINE_S), watch.trouble
        forked = os.fork()
        if forked == 0:
            watch.stop()
            os._exit(0)
        assert os.waitpid(forked, 0)[1] == 0
        # Later than what an ending gputop may still print.
        late = time.time() + 0.5
        assert watch.wait_for(lambda snapshot: snapshot.time > late, DEADLINE_S), watch.trouble


def measured(**options):
    """An empty block, in which warnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with monitor.measure(interval=0.1, **options) as block:
            pass
    return block


def wait_until(is_met, seen):
    end = time.monotonic() + DEADLINE_S
    tick = threading.Event()
    while not is_met():
        assert time.monotonic() < end, seen()
        tick.wait(0.01)


CHECKS = [
    snapshots_have_gpus_and_processes,
    a_block_has_peak_growth_and_leftovers,
    callbacks_get_figures,
    a_callback_that_fails_ends_the_watch_and_not_the_program,
    a_missing_gputop_is_one_sentence,
    another_program_of_the_name_is_told,
    a_gputop_that_dies_is_told_and_the_program_goes_on,
    no_driver_and_no_gpu_are_told_apart,
    memory_that_cannot_be_read_is_not_zero,
    a_driver_that_lists_no_processes_is_not_zero,
    in_a_container_pids_of_the_host_are_not_zero,
    a_process_of_another_user_that_proc_hides_is_not_foreign,
    a_watch_that_stops_ends_its_gputop,
    a_forked_process_does_not_end_the_watch,
]

if __name__ == "__main__":
    for check in CHECKS:
        check()
        print("ok: %s" % check.__name__.replace("_", " "))
    print("%d checks, 0 failed" % len(CHECKS))
