"""Measures what it costs a host when many users watch it over ssh.

    python3 benches/users.py                          1, 10 and 40 viewers
    python3 benches/users.py --gputop PROGRAM --viewers 40 --seconds 20

Each viewer is an agent as ssh starts it, whose lines are read. The host has 8 GPUs and 64 GPU
processes, on the fake driver. Two ways are compared, each for all numbers of viewers:

    own agents    each viewer is another user, so that each agent reads the host
    one recorder  the viewers are of one user, whose `gputop record` reads the host for all

For each, the script prints CPU in milliseconds per second, memory (PSS) and NVML calls per second, of
all processes of gputop on the host together, and as ratios to one agent of the same run. sshd is not
measured.

It is a measurement, not a test: the exit code is 0 whatever the result.
"""

import argparse
import contextlib
import os
import pathlib
import struct
import subprocess
import tempfile
import threading
import time

from cost import ROOT, Crowd, Host, Scene, build, cpu_ns, environ, processes, pss_kib, target

SCENE = Scene(8, 64)
# From the start of the last viewer until readings are taken: agents read more at first.
WARM_UP_S = 15
STEADY_S = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures what many viewers cost one host.")
    parser.add_argument("--gputop", help="the program (default: as cargo builds it)")
    parser.add_argument("--driver", help="the fake driver (default: as cargo builds it)")
    parser.add_argument(
        "--viewers", type=int, action="append", help="how many (default: 1, 10 and 40)"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of a measurement")
    options = parser.parse_args()
    if not options.gputop or not options.driver:
        build(whole=not options.gputop)
    gputop = options.gputop or str(target() / "release" / "gputop")
    driver = pathlib.Path(options.driver or target() / "release" / "libfake_nvml.so")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {SCENE.title()}")
    print(f"{'':24}{'CPU, ms per s':>20}{'PSS, MiB':>16}{'NVML calls per s':>22}")
    one = measure(gputop, driver, 1, False, options.seconds)
    show("1 own agent", one, one)
    for viewers in options.viewers or [1, 10, 40]:
        if viewers > 1:
            own = measure(gputop, driver, viewers, False, options.seconds)
            show(f"{viewers} own agents", own, one)
        shared = measure(gputop, driver, viewers, True, options.seconds)
        show(f"one recorder, {viewers} viewers", shared, one)


def show(name: str, found: tuple[float, float, float], one: tuple[float, float, float]) -> None:
    cells = [f"{value:.1f} ({value / first:.1f}x)" for value, first in zip(found, one, strict=True)]
    print(f"{name:24}{cells[0]:>20}{cells[1]:>16}{cells[2]:>22}", flush=True)


def measure(
    gputop: str, driver: pathlib.Path, viewers: int, is_shared: bool, seconds: float
) -> tuple[float, float, float]:
    """Returns CPU in ms per second, PSS in MiB, and NVML calls per second."""
    with (
        tempfile.TemporaryDirectory(prefix="users-") as folder,
        Crowd(SCENE.gpu_processes) as crowd,
        contextlib.ExitStack() as running,
    ):
        host = Host(pathlib.Path(folder), driver, SCENE, crowd.pids, [], 0)
        # Also the folder of the recorder's socket.
        environment = host.environment() | {"GPUTOP_DEVICES": f"{folder}/nvidia"}
        if is_shared:
            recording = ["-o", f"{folder}/recording.jsonl.zst"]
            recorder = start([gputop, "record", *recording], environment)
            running.callback(end, recorder)
            wait_for(pathlib.Path(f"{folder}/nvidia-locks/recorder.sock"))
            environment = environment | {"GPUTOP_SHARED_LINES": "1"}
        for _ in range(viewers):
            agent = start([gputop, "agent"], environment)
            running.callback(end, agent)
            read_lines(agent)
        time.sleep(WARM_UP_S)
        pids = processes_of(environment, host)
        began, used, calls = time.perf_counter(), cpu_ns(pids), calls_of(environment)
        time.sleep(seconds)
        elapsed = time.perf_counter() - began
        used_ns = sum(cpu_ns(pids).values()) - sum(used.values())
        pss = sum(map(pss_kib, pids)) / 1024
        calls = calls_of(environment) - calls
        return used_ns / 1e6 / elapsed, pss, calls / elapsed


def start(command: list[str], environment: dict[str, str]) -> subprocess.Popen:
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def end(process: subprocess.Popen) -> None:
    process.stdin.close()
    process.terminate()
    process.wait()


def read_lines(process: subprocess.Popen) -> None:
    """Reads the output of a process until it ends, as its viewer would. Waits for the first line."""
    first = threading.Event()

    def read() -> None:
        for _ in process.stdout:
            first.set()

    threading.Thread(target=read, daemon=True).start()
    if not first.wait(30):
        raise SystemExit("an agent wrote no line for 30 s")


def wait_for(path: pathlib.Path) -> None:
    deadline = time.perf_counter() + 30
    while not path.exists():
        if time.perf_counter() > deadline:
            raise SystemExit(f"the recorder did not make {path} within 30 s")
        time.sleep(STEADY_S)


def processes_of(environment: dict[str, str], host: Host) -> set[int]:
    sign = f"FAKE_NVML_COUNTS={environment['FAKE_NVML_COUNTS']}".encode()
    every = (pid for pid, _ in processes(besides=host.crowd))
    return {pid for pid in every if sign in environ(pid).split(b"\0")}


def calls_of(environment: dict[str, str]) -> int:
    """The number of NVML calls so far. Each record of 64 bytes ends with a count of 8 bytes."""
    counts = pathlib.Path(environment["FAKE_NVML_COUNTS"]).read_bytes()
    return sum(count for _, count in struct.iter_unpack("<56sQ", counts))


if __name__ == "__main__":
    main()
