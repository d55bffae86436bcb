"""Measures what it costs to keep a monitor open: gputop beside nvtop, in one run, on one fake driver.

    python3 benches/cost.py                        builds what it needs; about six minutes
    python3 benches/cost.py --scene 8/64 --others 0 --seconds 5 --rounds 1
    python3 benches/cost.py --peer "btop" --json figures.json

Each program runs on a terminal of 120x40 that is always read, against tests/fake-nvml, in scenes of
so many GPUs and tenants. The tenants are real processes, asleep; so are the others on the host. What
the programs show changes all the time. They take turns, so that noise on the machine hits both. Per
program and scene it measures, with the medians over the rounds:

    CPU           of the program and all its descendants, by the kernel's clock for each process. What
                  the fake does on their behalf is in it. A descendant that came and went is not.
    scans         what of it went into looking at all processes of the host: the time of gputop's thread
                  `scan`. Its first look at everyone is over by then.
    PSS           of the same processes, when the time is over
    NVML calls    as the fake counted them
    bytes         that went to the terminal
    first frame   from the start of the program until three tenants' PIDs have come out of the terminal
    key           from an arrow key until something comes out, on a screen that was at rest

A dash is a figure that could not be had: beside 16 GPUs nvtop has no room for a list of processes.

It is a measurement, not a test: it ends with 0 whatever it finds. A bar that was missed says so.
Leave the machine alone meanwhile. CPU and PSS bear some company, the milliseconds do not.
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
# A screen is at rest when nothing came for this long.
REST_S = 0.25
# What has not come by then never will.
PATIENCE_S = 2.0
# A colour stands between two letters of a word, any other sequence between two words.
COLOUR = re.compile(rb"\x1b\[[\d;:]*m")
SEQUENCE = re.compile(rb"\x1b(?:\[[ -?]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])|[\x00-\x1f]")
# A number by itself, as a PID stands in a list: not 1980MHz, not 12.5.
NUMBER = re.compile(rb"(?<![\w.,:])\d+(?![\w.,:%])")
# What programs ask a terminal, and what xterm says.
QUESTIONS = {
    b"\x1b[6n": b"\x1b[1;1R",
    b"\x1b[c": b"\x1b[?64;1;22c",
    b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
}


@dataclasses.dataclass(frozen=True)
class Scene:
    """A host: its GPUs, the processes that hold memory on them, and those that do not."""

    gpus: int
    tenants: int
    others: int = 0

    @classmethod
    def parse(cls, text: str) -> "Scene":
        gpus, tenants = text.split("/")
        return cls(int(gpus), int(tenants))

    def __str__(self) -> str:
        return f"{self.gpus}/{self.tenants}" + (f"+{self.others}" if self.others else "")

    def title(self) -> str:
        gpus = "1 GPU" if self.gpus == 1 else f"{self.gpus} GPUs"
        return f"{gpus}, {self.tenants} processes" + (f", and {self.others} others" if self.others else "")


SCENES = [Scene(1, 5), Scene(8, 64), Scene(16, 1000)]
CROWDED = Scene(8, 64)


@dataclasses.dataclass(frozen=True)
class Measure:
    """One figure, and the bar for it by scene (`*`: in all), as a multiple of the peer's or as it is."""

    name: str
    label: str
    bars: dict[str, float]
    by_peer: bool

    def bar(self, scene: Scene) -> float | None:
        return self.bars.get(str(scene), self.bars.get("*"))


MEASURES = [
    Measure("cpu_ms_per_s", "CPU, ms per s", {"8/64": 2.0, "16/1000": 1.0}, by_peer=True),
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
    """A program ended that should have stayed open. Its last words."""


def main() -> None:
    parser = argparse.ArgumentParser(description="What it costs to keep a monitor open.")
    parser.add_argument("--subject", help="the command to measure (default: gputop as cargo builds it)")
    parser.add_argument("--peer", default="nvtop", help="the command to measure beside it (default: %(default)s)")
    parser.add_argument("--scene", type=Scene.parse, action="append", metavar="GPUS/PROCESSES")
    parser.add_argument("--others", type=int, default=5000, help="in a last scene; 0: none (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="to measure in each round (default: %(default)s)")
    parser.add_argument("--warm-up", type=float, default=3.0, help="seconds before that (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="turns that each program gets (default: %(default)s)")
    parser.add_argument("--no-build", action="store_true", help="measure what is built already")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all readings there too")
    asked = parser.parse_args()

    if not asked.no_build:
        build(whole=asked.subject is None)
    release = target() / "release"
    driver = release / "libfake_nvml.so"
    if not driver.exists():
        parser.error(f"no fake driver in {driver}: run without --no-build")
    subject = shlex.split(asked.subject) if asked.subject else [str(release / "gputop"), "--interval", "1s"]
    if not shutil.which(subject[0]):
        parser.error(f"cannot run {subject[0]}: run without --no-build, or name a --subject")
    programs = [Program(pathlib.Path(subject[0]).name, subject)]
    peer = shlex.split(asked.peer)
    if shutil.which(peer[0]):
        name = pathlib.Path(peer[0]).name
        programs.append(Program(name if name != programs[0].name else f"{name}, again", peer))
    else:
        print(f"{peer[0]} is not on PATH: {programs[0].name} is measured alone.")

    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {COLUMNS}x{LINES}, {asked.seconds:g} s a round")
    scenes = asked.scene or SCENES
    if asked.others:
        scenes = [*scenes, dataclasses.replace(CROWDED, others=asked.others)]
    found = []
    for scene in scenes:
        readings = play(scene, programs, driver, asked)
        print_table(scene, programs, readings)
        found.append({**dataclasses.asdict(scene), "programs": readings})
    if asked.json:
        text = json.dumps({"seconds": asked.seconds, "scenes": found}, indent=1)
        asked.json.write_text(text + "\n", encoding="utf-8")


def build(whole: bool) -> None:
    """Builds the fake driver, and gputop too if all of it is wanted."""
    cargo = ["cargo", "build", "--release", "--quiet"]
    for package in [["--package", "fake-nvml"], *([[]] if whole else [])]:
        if subprocess.run([*cargo, *package], cwd=ROOT).returncode != 0:
            sys.exit("cargo could not build what is to be measured")


def target() -> pathlib.Path:
    """Where cargo puts what it builds."""
    metadata = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
    answer = subprocess.run(metadata, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return pathlib.Path(json.loads(answer.stdout)["target_directory"])


# One scene.


def play(scene: Scene, programs: list[Program], driver: pathlib.Path, asked: argparse.Namespace) -> dict[str, Readings]:
    """Plays one scene for all programs in turn."""
    found: dict[str, Readings] = {it.name: {measure.name: [] for measure in MEASURES} for it in programs}
    with (
        tempfile.TemporaryDirectory(prefix="cost-") as directory,
        Crowd(scene.tenants) as tenants,
        Crowd(scene.others) as others,
    ):
        stage = Stage(pathlib.Path(directory), driver, scene, tenants.pids, others.pids)
        takes = [keep_open] * asked.rounds + [first_frame] * STARTS
        ended = []
        for take, program in itertools.product(takes, programs):
            if program in ended:
                continue
            try:
                readings = take(stage, program, asked)
            except Ended as last_words:
                print(f"{program.name} ended by itself: {last_words}")
                ended.append(program)
                continue
            for name, values in readings.items():
                found[program.name][name] += values
    return found


def first_frame(stage: "Stage", program: Program, _: argparse.Namespace) -> Readings:
    """How long it takes to show the tenants. Nothing if it never does."""
    with Monitor(stage, program) as monitor:
        seen = monitor.wait_for_tenants()
    return {"first_frame_ms": [seen * 1e3] if seen else []}


def keep_open(stage: "Stage", program: Program, asked: argparse.Namespace) -> Readings:
    """What it costs to keep the program open, and how soon it answers."""
    with Monitor(stage, program) as monitor:
        monitor.listen_for(asked.warm_up)
        # From a redraw to a redraw: a part of one interval would count as none, or as a whole one.
        monitor.wait_for_redraw()
        before = monitor.meter()
        monitor.listen_for(asked.seconds)
        monitor.wait_for_redraw()
        after = monitor.meter()
        elapsed = after.at - before.at
        used_ns = sum(ns - before.cpu_ns.get(pid, 0) for pid, ns in after.cpu_ns.items())
        # Down and up, so that the cursor always has somewhere to go.
        arrows = itertools.islice(itertools.cycle("BA"), math.ceil(KEYS / asked.rounds))
        return {
            "cpu_ms_per_s": [used_ns / 1e6 / elapsed],
            "scans_percent": [100 * (after.scans_ns - before.scans_ns) / used_ns] if after.scans_ns else [],
            "pss_mib": [sum(map(pss_kib, after.cpu_ns)) / 1024],
            "nvml_calls_per_s": [(after.calls - before.calls) / elapsed],
            "terminal_bytes_per_s": [(after.heard - before.heard) / elapsed],
            "key_ms": [answer * 1e3 for arrow in arrows if (answer := monitor.press(arrow))],
        }


class Stage:
    """Where a scene is played: a directory with the fake driver, the world, and an empty home."""

    def __init__(
        self, directory: pathlib.Path, driver: pathlib.Path, scene: Scene, tenants: list[int], others: list[int]
    ) -> None:
        self.directory = directory
        self.tenants = set(tenants)
        self.crowd = {*tenants, *others}
        self.runs = 0
        # nvtop asks for the first name first, and should not find a real driver by it.
        for name in ["libnvidia-ml.so", "libnvidia-ml.so.1"]:
            (directory / name).symlink_to(driver)
        (directory / "home").mkdir()
        self.world = directory / "world.json"
        self.world.write_text(json.dumps(world(scene, tenants)), encoding="utf-8")

    def environment(self) -> dict[str, str]:
        """For one run. `FAKE_NVML_COUNTS` is another one each time, and so tells its processes from all others."""
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


def world(scene: Scene, tenants: list[int]) -> dict:
    """Deals the tenants out to the GPUs, as tests/fake-nvml/README.md wants it written."""
    gpus = []
    for gpu in range(scene.gpus):
        share = tenants[gpu :: scene.gpus]
        there = [tenant(rank, pid, of=len(share)) for rank, pid in enumerate(share)]
        gpus.append({"persona": "H100", "jitter": True, "processes": there})
    return {"gpus": gpus}


def tenant(rank: int, pid: int, of: int) -> dict:
    """One that holds its part of four fifths of a GPU. Every fourth only holds, and does not compute."""
    memory = (64 << 30) * (of + rank) // (of * of * 3 // 2)
    # The driver need not find out who lives: all do, and finding out would be the fake's cost, not the monitor's.
    return {"pid": pid, "memory": memory, "sm": None if rank % 4 == 3 else 90 // of + rank % 3, "fictional": True}


class Crowd:
    """So many idle processes, while the context lasts. Their PIDs are in `pids`."""

    # As many as a launcher has on a machine of eight GPUs.
    WORKERS_PER_JOB = 8

    def __init__(self, size: int) -> None:
        self.size = size

    def __enter__(self) -> "Crowd":
        jobs = math.ceil(self.size / self.WORKERS_PER_JOB)
        crowd = [sys.executable, "-IS", str(ROOT / "benches" / "crowd.py"), str(jobs), str(self.size)]
        # A session of its own: a monitor that looks for kin should not find this script, and us all with it.
        self.keeper = subprocess.Popen(crowd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self.pids = [int(it) for it in self.keeper.stdout.readline().split()]
        return self

    def __exit__(self, *_) -> None:
        self.keeper.stdin.close()
        self.keeper.wait()
        self.keeper.stdout.close()


# One program on its terminal.


@dataclasses.dataclass(frozen=True)
class Meter:
    """What a program has used up to a moment: CPU by process, CPU of scans, NVML calls, bytes."""

    at: float
    cpu_ns: dict[int, int]
    scans_ns: int
    calls: int
    heard: int


class Monitor:
    """A running program and its terminal, while the context lasts."""

    def __init__(self, stage: Stage, program: Program) -> None:
        self.stage = stage
        self.program = program
        self.environment = stage.environment()
        # How many bytes came, and the latest of them.
        self.heard = 0
        self.latest = b""
        # Whether the last key was answered.
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
        self.begun = time.perf_counter()
        # Not `subprocess`: its fork of this interpreter would be part of the first frame.
        self.pid = os.posix_spawnp(command[0], command, self.environment, file_actions=streams, setsid=True)
        os.close(inner)
        return self

    def __exit__(self, *_) -> None:
        family = self.family()
        # When it goes, the terminal goes with it.
        with contextlib.suppress(Ended, OSError):
            os.write(self.terminal, b"q")
            self.listen_for(1.0)
        os.close(self.terminal)
        for pid in family & self.family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def listen(self, deadline: float) -> float | None:
        """Reads what comes next, and tells when it came. Without anything until the deadline, nothing."""
        ready, _, _ = select.select([self.terminal], [], [], max(0.0, deadline - time.perf_counter()))
        if not ready:
            return None
        came = time.perf_counter()
        try:
            chunk = os.read(self.terminal, 1 << 16)
        except OSError:
            chunk = b""
        if not chunk:
            raise Ended(SEQUENCE.sub(b" ", self.latest).decode(errors="replace").strip()[-200:] or "without a word")
        self.heard += len(chunk)
        self.latest = (self.latest + chunk)[-(1 << 16) :]
        self.obey(chunk)
        return came

    def obey(self, chunk: bytes) -> None:
        """Does what a terminal does besides drawing."""
        for question, answer in QUESTIONS.items():
            if question in chunk:
                os.write(self.terminal, answer)
        if b"\x1b[?1h" in chunk:
            self.arrow_prefix = b"\x1bO"

    def listen_for(self, seconds: float) -> None:
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            self.listen(deadline)

    def wait_for_rest(self) -> None:
        """Listens until nothing came for a while. Gives up on a program that never rests."""
        end = time.perf_counter() + PATIENCE_S
        while self.listen(time.perf_counter() + REST_S) and time.perf_counter() < end:
            pass

    def wait_for_redraw(self) -> None:
        """Listens until something came, and nothing more. Gives up on a program that never draws."""
        if self.listen(time.perf_counter() + PATIENCE_S):
            self.wait_for_rest()

    def wait_for_tenants(self) -> float | None:
        """Listens until the screen shows three tenants. Gives the seconds since the start, if it ever does."""
        enough = min(3, len(self.stage.tenants))
        deadline = self.begun + PATIENCE_S
        while came := self.listen(deadline):
            text = SEQUENCE.sub(b" ", COLOUR.sub(b"", self.latest))
            if len(self.stage.tenants.intersection(map(int, NUMBER.findall(text)))) >= enough:
                return came - self.begun
        return None

    def press(self, arrow: str) -> float | None:
        """Presses an arrow key when the screen is at rest. Gives the seconds until something comes, if it does."""
        if self.answering:
            self.wait_for_rest()
        else:
            # After a redraw there is time enough to tell an answer from the next one.
            self.wait_for_redraw()
        pressed = time.perf_counter()
        os.write(self.terminal, self.arrow_prefix + arrow.encode())
        came = self.listen(pressed + REST_S)
        self.answering = came is not None
        return came and came - pressed

    def meter(self) -> Meter:
        # The family first, as finding it takes a while.
        family = self.family()
        return Meter(time.perf_counter(), cpu_ns(family), sum(map(scans_ns, family)), self.calls(), self.heard)

    def calls(self) -> int:
        """How often NVML was called up to now: records of 64 bytes, the last eight of each a count."""
        try:
            counts = pathlib.Path(self.environment["FAKE_NVML_COUNTS"]).read_bytes()
        except FileNotFoundError:
            return 0
        return sum(count for _, count in struct.iter_unpack("<56sQ", counts))

    def family(self) -> set[int]:
        """The program's process, and all that descend from it, whichever session or parent they have now."""
        sign = f"FAKE_NVML_COUNTS={self.environment['FAKE_NVML_COUNTS']}".encode()
        family = {self.pid}
        # By PID, so that a parent comes before its child.
        for pid, parent in sorted(processes(besides=self.stage.crowd)):
            if parent in family or sign in environ(pid).split(b"\0"):
                family.add(pid)
        return family


# What the kernel knows of processes.


def processes(besides: set[int]) -> Iterator[tuple[int, int]]:
    """All processes but those, each with its parent."""
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
        # It ended, or belongs to someone else.
        return b""


def cpu_ns(family: set[int]) -> dict[int, int]:
    """The CPU time of each process, its ended threads included.

    The fields of /proc/PID/stat count in ticks of 10 ms, and schedstat forgets ended threads. So this
    reads the clocks that clock_getcpuclockid(3) would name.
    """
    used = {}
    for pid in family:
        try:
            used[pid] = time.clock_gettime_ns(~pid << 3 | 2)
        except OSError:
            continue
    return used


def scans_ns(pid: int) -> int:
    """The CPU time of gputop's thread that looks at all processes; 0 where there is none."""
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


# What comes out.


def print_table(scene: Scene, programs: list[Program], found: dict[str, Readings]) -> None:
    print(f"\n{scene.title()}")
    names = [it.name for it in programs]
    print(f"{'':28}" + "".join(f"{it:>14}" for it in names) + f"{'ratio':>9}   bar")
    for measure in MEASURES:
        values = [statistics.median(it) if (it := found[name][measure.name]) else None for name in names]
        known = len(values) == 2 and None not in values and values[1] > 0
        ratio = values[0] / values[1] if known else None
        judged, unit = (ratio, "x") if measure.by_peer else (values[0], "ms")
        cells = "".join(f"{number(it):>14}" for it in values)
        judgement = verdict(judged, measure.bar(scene), unit)
        print(f"{measure.label:28}{cells}{number(ratio):>9}   {judgement}".rstrip(), flush=True)


def number(value: float | None) -> str:
    """Three digits, or a dash for what is not known."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def verdict(value: float | None, bar: float | None, unit: str) -> str:
    if bar is None:
        return ""
    if value is None:
        return f"≤ {bar:g} {unit}, not known"
    return f"≤ {bar:g} {unit}, {'met' if value <= bar else 'MISSED'}"


if __name__ == "__main__":
    main()
