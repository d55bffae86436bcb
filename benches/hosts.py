"""Measures the cost of a viewer of many hosts, whose agents are played.

    python3 benches/hosts.py                                25, 100 and 200 hosts, 16 and 64 processes
    python3 benches/hosts.py --gputop NEW --peer OLD        beside an earlier program, in turn
    python3 benches/hosts.py --hosts 200 --processes 64 --seconds 20

A minute of lines of an agent with 8 GPUs, on the fake driver, is played again and again as the
lines of each host, one a second, with times that go on. A `cat` of a pipe stands in for ssh. The
terminal has 120x40 cells and is always read. For each number of hosts, the script prints, of the
viewer alone:

    CPU           in milliseconds per second, and per line
    growth        of the CPU, as a ratio to the fewest hosts of the same run
    PSS           at the end
    read          how many of the lines of the time were read
    first frame   from the start until the first output
    key           from an arrow key until the next output: the median and the highest tenth

It is a measurement, not a test: the exit code is 0 whatever the result.
"""

import argparse
import contextlib
import os
import pathlib
import re
import select
import subprocess
import tempfile
import threading
import time

from cost import ROOT, Crowd, Host, Monitor, Program, Scene, build, cpu_ns, pss_kib, target

GPUS = 8
# The lines of a recorded minute.
RECORDED = 60
NUMBERS = re.compile(rb'"(time_ms|unix_time_ms|sequence)":(\d+)')


def record(gputop: str, driver: pathlib.Path, processes: int) -> list[bytes]:
    """Returns the lines of an agent, as if one had come each second."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Crowd(processes) as crowd,
    ):
        host = Host(pathlib.Path(folder), driver, Scene(GPUS, processes), crowd.pids, [], 0)
        command = [gputop, "agent", "--interval", "100ms"]
        agent = subprocess.Popen(
            command, env=host.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        lines = [agent.stdout.readline() for _ in range(RECORDED)]
        agent.stdin.close()
        agent.stdout.close()
        agent.wait()
    first = numbers(lines[0])
    return [
        shifted(line, {name: (place * 1000) - (value - first[name]) for name, value in times(line)})
        for place, line in enumerate(lines)
    ]


def numbers(line: bytes) -> dict[bytes, int]:
    return dict(times(line))


def times(line: bytes) -> list[tuple[bytes, int]]:
    """The time of a line by both clocks, which are its first numbers of these names."""
    found = {}
    for name, value in NUMBERS.findall(line):
        if name != b"sequence":
            found.setdefault(name, int(value))
    return list(found.items())


def shifted(line: bytes, by: dict[bytes, int]) -> bytes:
    """Returns a line with other numbers. A number of 0 means none."""

    def change(match: re.Match) -> bytes:
        name, value = match[1], int(match[2])
        return b'"%s":%d' % (name, value + by.get(name, 0) if value else 0)

    return NUMBERS.sub(change, line)


class Players:
    """Plays lines as those of many hosts through named pipes, while the context lasts."""

    def __init__(self, lines: list[bytes], hosts: int, folder: pathlib.Path) -> None:
        self.lines = lines
        self.pipes = [folder / f"host-{number:03}" for number in range(hosts)]
        self.written = 0
        self.is_over = False

    def __enter__(self) -> "Players":
        for pipe in self.pipes:
            os.mkfifo(pipe)
        self.thread = threading.Thread(target=self.play, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.is_over = True
        self.thread.join()

    def sources(self) -> list[str]:
        return [word for pipe in self.pipes for word in ("--via", f"{pipe.name}=cat {pipe}")]

    def play(self) -> None:
        # Opened for reading too: the open does not wait for the viewer's `cat`.
        files = [os.open(pipe, os.O_RDWR | os.O_NONBLOCK) for pipe in self.pipes]
        rests = [b""] * len(files)
        began = time.monotonic()
        step = 0
        while not self.is_over:
            rounds, place = divmod(step, len(self.lines))
            on = {b"sequence": rounds * len(self.lines)}
            on |= dict.fromkeys((b"time_ms", b"unix_time_ms"), rounds * len(self.lines) * 1000)
            line = shifted(self.lines[place], on)
            for number, file in enumerate(files):
                # The hosts of a second are spread over it.
                due = began + step + number / len(files)
                while not self.is_over and (left := due - time.monotonic()) > 0:
                    time.sleep(min(left, 0.1))
                rests[number] = self.write(file, rests[number] + line)
                self.written += rests[number] == b""
            step += 1
        for file in files:
            os.close(file)

    def write(self, file: int, text: bytes) -> bytes:
        """Writes what a pipe takes within a moment. Returns the rest."""
        while text:
            _, ready, _ = select.select([], [file], [], 0.02)
            if not ready:
                break
            with contextlib.suppress(BlockingIOError):
                text = text[os.write(file, text) :]
        return text


def measure(
    gputop: str, driver: pathlib.Path, lines: list[bytes], hosts: int, options: argparse.Namespace
) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, Crowd(1) as crowd:
        home = pathlib.Path(folder)
        host = Host(home, driver, Scene(1, 1), crowd.pids, [], 0)
        with Players(lines, hosts, home) as players:
            program = Program("gputop", [gputop, *players.sources()])
            with Monitor(host, program) as viewer:
                came = viewer.read_output(viewer.started + 10)
                viewer.read_for(options.warm_up)
                written, used = players.written, cpu_ns({viewer.pid})[viewer.pid]
                began = time.perf_counter()
                viewer.read_for(options.seconds)
                seconds = time.perf_counter() - began
                used = (cpu_ns({viewer.pid})[viewer.pid] - used) / 1e6
                written = players.written - written
                keys = sorted(press(viewer, place) for place in range(options.keys))
                return {
                    "CPU, ms/s": used / seconds,
                    "ms per line": used / max(written, 1),
                    "PSS, MiB": pss_kib(viewer.pid) / 1024,
                    "read, %": 100 * written / (hosts * seconds),
                    "first frame, ms": 1000 * (came - viewer.started) if came else float("nan"),
                    "key, ms": keys[len(keys) // 2],
                    "key 90 %, ms": keys[len(keys) * 9 // 10],
                }


def press(viewer: Monitor, place: int) -> float:
    """Returns the milliseconds from an arrow key until the next output."""
    viewer.read_for(0.1 + 0.037 * (place % 5))
    pressed = time.perf_counter()
    os.write(viewer.terminal, viewer.arrow_prefix + (b"B" if place % 2 == 0 else b"A"))
    came = viewer.read_output(pressed + 2)
    return 1000 * ((came or pressed + 2) - pressed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gputop", default=str(ROOT / "target/release/gputop"))
    parser.add_argument("--peer", help="another gputop, measured in turn")
    parser.add_argument("--hosts", type=int, nargs="+", default=[25, 100, 200])
    parser.add_argument("--processes", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--warm-up", type=float, default=12)
    parser.add_argument("--keys", type=int, default=20)
    options = parser.parse_args()
    build(whole=False)
    driver = target() / "release/libfake_nvml.so"
    programs = [program for program in (options.gputop, options.peer) if program]
    for processes in options.processes:
        lines = record(options.gputop, driver, processes)
        print(f"\n{GPUS} GPUs and {processes} processes on each host")
        first: dict[str, float] = {}
        for hosts in options.hosts:
            for program in programs:
                found = measure(program, driver, lines, hosts, options)
                base = first.setdefault(program, found["CPU, ms/s"])
                found["growth"] = found["CPU, ms/s"] / base
                figures = "  ".join(f"{name} {value:.1f}" for name, value in found.items())
                print(f"{hosts:4} hosts  {pathlib.Path(program).name:12}  {figures}", flush=True)


if __name__ == "__main__":
    main()
