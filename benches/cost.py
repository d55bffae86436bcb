"""Measures the cost of an open monitor: gputop beside nvtop, in one run, on the same fake driver.

    python3 benches/cost.py                        builds what it needs; about six minutes
    python3 benches/cost.py --scene 8/64 --others 0 --seconds 5 --rounds 1
    python3 benches/cost.py --peer "btop" --json readings.json
    python3 benches/cost.py --call-ms 1            each NVML call takes a millisecond, as on some drivers

Each program runs on a terminal of 120x40 that is always read, against tests/fake-nvml, in scenes
with a number of GPUs and GPU processes. These are real processes, asleep; so are the other
processes of the host. All readings change all the time. The programs take turns, so that noise on
the machine affects both. For each program and scene, the script measures, as medians over the
rounds:

    CPU           of the program and all its descendants, by the kernel's clock of each process, with the
                  cost of the fake driver, and without descendants that have ended
    scans         the share of gputop's thread `scan`, which reads all processes of the host. Its first scan
                  is over before the measurement.
    PSS           of the same processes, at the end
    NVML calls    counted by the fake driver
    bytes         written to the terminal
    first frame   from the start of the program until the PIDs of three GPU processes are on the terminal
    key           from an arrow key until the next output, on a screen at rest

A dash means not measurable: below 16 GPUs, nvtop has no room for a process list.

This is a measurement, not a test: the exit code is 0 whatever the result, and `MISSED` marks a
reading above its limit. Leave the machine idle: other load distorts the milliseconds, and CPU and
PSS a little.
"""

import argparse
import contextlib
import dataclasses
import fcntl
import itertools
import json
import math
import os
import pathlib
import pty
import re
import select
import shlex
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLUMNS, LINES = 120, 40
STARTS = 7
KEYS = 20
# A screen is at rest after this time without output.
REST_S = 0.25
# The longest wait for output.
PATIENCE_S = 2.0
# A colour sequence may be inside a word. Any other sequence separates words.
COLOUR = re.compile(rb"\x1b\[[\d;:]*m")
SEQUENCE = re.compile(
    rb"\x1b(?:\[[ -?]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])|[\x00-\x1f]"
)
# A number between blanks, like a PID in a list: not 1980MHz, not 12.5.
NUMBER = re.compile(rb"(?<![\w.,:])\d+(?![\w.,:%])")
# Queries of programs to a terminal, and xterm's answers.
QUESTIONS = {
    b"\x1b[6n": b"\x1b[1;1R",
    b"\x1b[c": b"\x1b[?64;1;22c",
    b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
}


@dataclasses.dataclass(frozen=True)
class Scene:
    """The number of GPUs, of GPU processes, and of other processes of a host."""

    gpus: int
    gpu_processes: int
    others: int = 0

    @classmethod
    def parse(cls, text: str) -> "Scene":
        gpus, gpu_processes = text.split("/")
        return cls(int(gpus), int(gpu_processes))

    def __str__(self) -> str:
        return f"{self.gpus}/{self.gpu_processes}" + (f"+{self.others}" if self.others else "")

    def title(self) -> str:
        gpus = "1 GPU" if self.gpus == 1 else f"{self.gpus} GPUs"
        return f"{gpus}, {self.gpu_processes} processes" + (
            f", and {self.others} others" if self.others else ""
        )


SCENES = [Scene(1, 5), Scene(8, 64), Scene(16, 1000)]
CROWDED = Scene(8, 64)


@dataclasses.dataclass(frozen=True)
class Measure:
    """One reading, and its limit by scene (`*`: all scenes), as a ratio to the peer or absolute."""

    name: str
    label: str
    limits: dict[str, float]
    by_peer: bool

    def limit(self, scene: Scene) -> float | None:
        return self.limits.get(str(scene), self.limits.get("*"))


MEASURES = [
    Measure("cpu_ms_per_s", "CPU, ms per s", {"8/64": 1.5, "16/1000": 1.0}, by_peer=True),
    Measure("scans_percent", "scans, % of that CPU", {}, by_peer=False),
    Measure("pss_mib", "PSS, MiB", {"*": 3.0}, by_peer=True),
    Measure("nvml_calls_per_s", "NVML calls per s", {"*": 0.5}, by_peer=True),
    Measure("terminal_bytes_per_s", "bytes per s to the terminal", {"*": 1.0}, by_peer=True),
    Measure("first_frame_ms", "first frame, ms", {"*": 30.0}, by_peer=False),
    Measure("key_ms", "key to output, ms", {"16/1000": 5.0}, by_peer=False),
]

# The readings of one program in one scene, by measure.
Readings = dict[str, list[float]]


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    command: list[str]


class Ended(Exception):
    """A program ended that should have stayed open; with its last output."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the cost of an open monitor.")
    parser.add_argument(
        "--subject", help="the command to measure (default: gputop as cargo builds it)"
    )
    parser.add_argument(
        "--peer", default="nvtop", help="the command to measure beside it (default: %(default)s)"
    )
    parser.add_argument("--scene", type=Scene.parse, action="append", metavar="GPUS/PROCESSES")
    parser.add_argument(
        "--others",
        type=int,
        default=5000,
        help="other processes in a last scene; 0: none (default: %(default)s)",
    )
    parser.add_argument(
        "--call-ms", type=int, default=0, help="duration of each NVML call (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=10.0,
        help="duration of a measurement (default: %(default)s)",
    )
    parser.add_argument(
        "--warm-up",
        type=float,
        default=3.0,
        help="seconds before a measurement (default: %(default)s)",
    )
    parser.add_argument(
        "--rounds", type=int, default=2, help="measurements of each program (default: %(default)s)"
    )
    parser.add_argument("--no-build", action="store_true", help="measure without building")
    parser.add_argument(
        "--json", type=pathlib.Path, metavar="FILE", help="also write all readings to this file"
    )
    options = parser.parse_args()

    if not options.no_build:
        build(whole=options.subject is None)
    release = target() / "release"
    driver = release / "libfake_nvml.so"
    if not driver.exists():
        parser.error(f"no fake driver in {driver}: run without --no-build")
    subject = (
        shlex.split(options.subject)
        if options.subject
        else [str(release / "gputop"), "--interval", "1s"]
    )
    if not shutil.which(subject[0]):
        parser.error(f"cannot run {subject[0]}: run without --no-build, or name a --subject")
    programs = [Program(pathlib.Path(subject[0]).name, subject)]
    peer = shlex.split(options.peer)
    if shutil.which(peer[0]):
        name = pathlib.Path(peer[0]).name
        programs.append(Program(name if name != programs[0].name else f"{name}, again", peer))
    else:
        print(f"{peer[0]} is not on PATH: {programs[0].name} is measured alone.")

    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {COLUMNS}x{LINES}, {options.seconds:g} s a round"
    )
    scenes = options.scene or SCENES
    if options.others:
        scenes = [*scenes, dataclasses.replace(CROWDED, others=options.others)]
    found = []
    for scene in scenes:
        readings = measure_scene(scene, programs, driver, options)
        print_table(scene, programs, readings)
        found.append({**dataclasses.asdict(scene), "programs": readings})
    if options.json:
        text = json.dumps({"seconds": options.seconds, "scenes": found}, indent=1)
        options.json.write_text(text + "\n", encoding="utf-8")


def build(whole: bool) -> None:
    """Builds the fake driver; with `whole`, also gputop."""
    cargo = ["cargo", "build", "--release", "--quiet"]
    for package in [["--package", "fake-nvml"], *([[]] if whole else [])]:
        if subprocess.run([*cargo, *package], cwd=ROOT).returncode != 0:
            sys.exit("cargo build failed")


def target() -> pathlib.Path:
    """The target directory of cargo."""
    metadata = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
    answer = subprocess.run(metadata, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return pathlib.Path(json.loads(answer.stdout)["target_directory"])


# One scene.


def measure_scene(
    scene: Scene, programs: list[Program], driver: pathlib.Path, options: argparse.Namespace
) -> dict[str, Readings]:
    """Measures all programs in one scene, in turn."""
    found: dict[str, Readings] = {
        program.name: {measure.name: [] for measure in MEASURES} for program in programs
    }
    with (
        tempfile.TemporaryDirectory(prefix="cost-") as directory,
        Crowd(scene.gpu_processes) as gpu_processes,
        Crowd(scene.others) as others,
    ):
        host = Host(
            pathlib.Path(directory), driver, scene, gpu_processes.pids, others.pids, options.call_ms
        )
        takes = [keep_open] * options.rounds + [first_frame] * STARTS
        ended = []
        for take, program in itertools.product(takes, programs):
            if program in ended:
                continue
            try:
                readings = take(host, program, options)
            except Ended as last_output:
                print(f"{program.name} ended by itself: {last_output}")
                ended.append(program)
                continue
            for name, values in readings.items():
                found[program.name][name] += values
    return found


def first_frame(host: "Host", program: Program, _: argparse.Namespace) -> Readings:
    """The time until GPU processes are shown; empty when they never are."""
    with Monitor(host, program) as monitor:
        seen = monitor.wait_for_gpu_processes()
    return {"first_frame_ms": [seen * 1e3] if seen else []}


def keep_open(host: "Host", program: Program, options: argparse.Namespace) -> Readings:
    """The cost of the open program, and the time to answer a key."""
    with Monitor(host, program) as monitor:
        monitor.read_for(options.warm_up)
        # From redraw to redraw, so that whole intervals are measured.
        monitor.wait_for_redraw()
        before = monitor.meter()
        monitor.read_for(options.seconds)
        monitor.wait_for_redraw()
        after = monitor.meter()
        elapsed = after.at - before.at
        used_ns = sum(ns - before.cpu_ns.get(pid, 0) for pid, ns in after.cpu_ns.items())
        # Down and up in turn, so that the cursor always moves.
        arrows = itertools.islice(itertools.cycle("BA"), math.ceil(KEYS / options.rounds))
        return {
            "cpu_ms_per_s": [used_ns / 1e6 / elapsed],
            "scans_percent": [100 * (after.scans_ns - before.scans_ns) / used_ns]
            if after.scans_ns
            else [],
            "pss_mib": [sum(map(pss_kib, after.cpu_ns)) / 1024],
            "nvml_calls_per_s": [(after.calls - before.calls) / elapsed],
            "terminal_bytes_per_s": [(after.received - before.received) / elapsed],
            "key_ms": [answer * 1e3 for arrow in arrows if (answer := monitor.press(arrow))],
        }


class Host:
    """A host: a directory with the fake driver, its world file, and an empty home directory."""

    def __init__(
        self,
        directory: pathlib.Path,
        driver: pathlib.Path,
        scene: Scene,
        gpu_processes: list[int],
        others: list[int],
        call_ms: int,
    ) -> None:
        self.directory = directory
        self.gpu_processes = set(gpu_processes)
        self.crowd = {*gpu_processes, *others}
        self.runs = 0
        # nvtop tries the first name first, which must not be a real driver.
        for name in ["libnvidia-ml.so", "libnvidia-ml.so.1"]:
            (directory / name).symlink_to(driver)
        (directory / "home").mkdir()
        self.world = directory / "world.json"
        self.world.write_text(json.dumps(world(scene, gpu_processes, call_ms)), encoding="utf-8")

    def environment(self) -> dict[str, str]:
        """The environment of one run. `FAKE_NVML_COUNTS` is different in each run, and
        identifies its processes.
        """
        self.runs += 1
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.directory / "home"),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "LD_LIBRARY_PATH": str(self.directory),
            "FAKE_NVML_WORLD": str(self.world),
            "FAKE_NVML_COUNTS": str(self.directory / f"counts-{self.runs}"),
        }


def world(scene: Scene, gpu_processes: list[int], call_ms: int) -> dict:
    """The world file (tests/fake-nvml/README.md), with the processes assigned to the GPUs in
    turn.
    """
    gpus = []
    for gpu in range(scene.gpus):
        share = gpu_processes[gpu :: scene.gpus]
        there = [gpu_process(rank, pid, of=len(share)) for rank, pid in enumerate(share)]
        gpus.append({"persona": "H100", "jitter": True, "processes": there})
    faults = [{"function": "*", "latency_ms": call_ms}] if call_ms else []
    return {"gpus": gpus, "faults": faults}


def gpu_process(rank: int, pid: int, of: int) -> dict:
    """A GPU process. All processes of a GPU use four fifths of its memory; every fourth does not
    compute.
    """
    memory = (64 << 30) * (of + rank) // (of * of * 3 // 2)
    # Fictional, so that the fake driver does not check whether it lives, which would count as the
    # monitor's CPU.
    return {
        "pid": pid,
        "memory": memory,
        "sm": None if rank % 4 == 3 else 90 // of + rank % 3,
        "fictional": True,
    }


class Crowd:
    """Idle processes, which end with the context. Their PIDs are in `pids`."""

    # The workers of a launcher on a host with eight GPUs.
    WORKERS_PER_JOB = 8

    def __init__(self, size: int) -> None:
        self.size = size

    def __enter__(self) -> "Crowd":
        jobs = math.ceil(self.size / self.WORKERS_PER_JOB)
        crowd = [
            sys.executable,
            "-IS",
            str(ROOT / "benches" / "crowd.py"),
            str(jobs),
            str(self.size),
        ]
        # A session of its own, so that a monitor does not find this script as a related process.
        self.process = subprocess.Popen(
            crowd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self.pids = [int(pid) for pid in self.process.stdout.readline().split()]
        return self

    def __exit__(self, *_) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


# One program on its terminal.


@dataclasses.dataclass(frozen=True)
class Meter:
    """Counters of a program at a moment: CPU by process, CPU of scans, NVML calls, bytes
    written.
    """

    at: float
    cpu_ns: dict[int, int]
    scans_ns: int
    calls: int
    received: int


class Monitor:
    """A running program and its terminal, while the context lasts."""

    def __init__(self, host: Host, program: Program) -> None:
        self.host = host
        self.program = program
        self.environment = host.environment()
        # The number of bytes written, and the latest of them.
        self.received = 0
        self.latest = b""
        # Whether the last key caused output.
        self.answering = True
        self.arrow_prefix = b"\x1b["

    def __enter__(self) -> "Monitor":
        self.terminal, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        # The terminal that a session leader opens first becomes its controlling one.
        streams = [
            (os.POSIX_SPAWN_OPEN, 0, os.ttyname(inner), os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
        ]
        command = self.program.command
        self.started = time.perf_counter()
        # Not `subprocess`: its fork of this interpreter would be part of the first frame.
        self.pid = os.posix_spawnp(
            command[0], command, self.environment, file_actions=streams, setsid=True
        )
        os.close(inner)
        return self

    def __exit__(self, *_) -> None:
        pids = self.processes_of_program()
        # The program may have ended, and its terminal with it.
        with contextlib.suppress(Ended, OSError):
            os.write(self.terminal, b"q")
            self.read_for(1.0)
        os.close(self.terminal)
        for pid in pids & self.processes_of_program():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def read_output(self, deadline: float) -> float | None:
        """Reads the next output and returns its time; `None` when there is none before the
        deadline.
        """
        ready, _, _ = select.select(
            [self.terminal], [], [], max(0.0, deadline - time.perf_counter())
        )
        if not ready:
            return None
        came = time.perf_counter()
        try:
            chunk = os.read(self.terminal, 1 << 16)
        except OSError:
            chunk = b""
        if not chunk:
            raise Ended(
                SEQUENCE.sub(b" ", self.latest).decode(errors="replace").strip()[-200:]
                or "no output"
            )
        self.received += len(chunk)
        self.latest = (self.latest + chunk)[-(1 << 16) :]
        self.answer_queries(chunk)
        return came

    def answer_queries(self, chunk: bytes) -> None:
        """Answers queries and follows the mode of the arrow keys, like a terminal."""
        for question, answer in QUESTIONS.items():
            if question in chunk:
                os.write(self.terminal, answer)
        if b"\x1b[?1h" in chunk:
            self.arrow_prefix = b"\x1bO"

    def read_for(self, seconds: float) -> None:
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            self.read_output(deadline)

    def wait_for_rest(self) -> None:
        """Reads until there is no output for `REST_S`, at most for `PATIENCE_S`."""
        end = time.perf_counter() + PATIENCE_S
        while self.read_output(time.perf_counter() + REST_S) and time.perf_counter() < end:
            pass

    def wait_for_redraw(self) -> None:
        """Waits for output, then for rest; each at most for `PATIENCE_S`."""
        if self.read_output(time.perf_counter() + PATIENCE_S):
            self.wait_for_rest()

    def wait_for_gpu_processes(self) -> float | None:
        """Waits until three GPU processes are on the screen. Returns the seconds since the
        start, or `None`.
        """
        enough = min(3, len(self.host.gpu_processes))
        deadline = self.started + PATIENCE_S
        while came := self.read_output(deadline):
            text = SEQUENCE.sub(b" ", COLOUR.sub(b"", self.latest))
            if len(self.host.gpu_processes.intersection(map(int, NUMBER.findall(text)))) >= enough:
                return came - self.started
        return None

    def press(self, arrow: str) -> float | None:
        """Types an arrow key when the screen is at rest. Returns the seconds until the next
        output, or `None`.
        """
        if self.answering:
            self.wait_for_rest()
        else:
            # Right after a redraw, an answer comes before the next redraw.
            self.wait_for_redraw()
        pressed = time.perf_counter()
        os.write(self.terminal, self.arrow_prefix + arrow.encode())
        came = self.read_output(pressed + REST_S)
        self.answering = came is not None
        return came and came - pressed

    def meter(self) -> Meter:
        # Finds the processes first, because that takes a while.
        pids = self.processes_of_program()
        return Meter(
            time.perf_counter(), cpu_ns(pids), sum(map(scans_ns, pids)), self.calls(), self.received
        )

    def calls(self) -> int:
        """The number of NVML calls so far. Each record of 64 bytes ends with a count of 8 bytes."""
        try:
            counts = pathlib.Path(self.environment["FAKE_NVML_COUNTS"]).read_bytes()
        except FileNotFoundError:
            return 0
        return sum(count for _, count in struct.iter_unpack("<56sQ", counts))

    def processes_of_program(self) -> set[int]:
        """The PIDs of the program and its descendants, whatever their session or parent is now."""
        sign = f"FAKE_NVML_COUNTS={self.environment['FAKE_NVML_COUNTS']}".encode()
        pids = {self.pid}
        # By PID, so that a parent comes before its child.
        for pid, parent in sorted(processes(besides=self.host.crowd)):
            if parent in pids or sign in environ(pid).split(b"\0"):
                pids.add(pid)
        return pids


# Reading /proc.


def processes(besides: set[int]) -> Iterator[tuple[int, int]]:
    """The PID and parent of each process that is not in `besides`."""
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        if pid in besides:
            continue
        try:
            stat = pathlib.Path(f"/proc/{pid}/stat").read_bytes()
        except OSError:
            continue
        yield pid, int(stat.rpartition(b")")[2].split()[1])


def environ(pid: int) -> bytes:
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        # The process has ended, or belongs to another user.
        return b""


def cpu_ns(pids: set[int]) -> dict[int, int]:
    """The CPU time of each process, its ended threads included.

    The fields of /proc/PID/stat count in ticks of 10 ms, and schedstat forgets ended threads. So
    this reads the clocks that clock_getcpuclockid(3) would name.
    """
    used = {}
    for pid in pids:
        try:
            used[pid] = time.clock_gettime_ns(~pid << 3 | 2)
        except OSError:
            continue
    return used


def scans_ns(pid: int) -> int:
    """The CPU time of gputop's thread `scan`; 0 when there is none."""
    used = 0
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            if (task / "comm").read_text(encoding="utf-8") == "scan\n":
                used += int((task / "schedstat").read_text(encoding="ascii").split()[0])
    return used


def pss_kib(pid: int) -> int:
    try:
        rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0
    return int(re.search(r"^Pss: +(\d+) kB$", rollup, re.MULTILINE)[1])


# Output.


def print_table(scene: Scene, programs: list[Program], found: dict[str, Readings]) -> None:
    print(f"\n{scene.title()}")
    names = [it.name for it in programs]
    print(f"{'':28}" + "".join(f"{name:>14}" for name in names) + f"{'ratio':>9}   limit")
    for measure in MEASURES:
        values = [
            statistics.median(readings) if (readings := found[name][measure.name]) else None
            for name in names
        ]
        known = len(values) == 2 and None not in values and values[1] > 0
        ratio = values[0] / values[1] if known else None
        judged, unit = (ratio, "x") if measure.by_peer else (values[0], "ms")
        cells = "".join(f"{number(value):>14}" for value in values)
        judgement = verdict(judged, measure.limit(scene), unit)
        print(f"{measure.label:28}{cells}{number(ratio):>9}   {judgement}".rstrip(), flush=True)


def number(value: float | None) -> str:
    """The value in three digits, or a dash for `None`."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def verdict(value: float | None, limit: float | None, unit: str) -> str:
    if limit is None:
        return ""
    if value is None:
        return f"≤ {limit:g} {unit}, not known"
    return f"≤ {limit:g} {unit}, {'met' if value <= limit else 'MISSED'}"


if __name__ == "__main__":
    main()
