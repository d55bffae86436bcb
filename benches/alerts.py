#!/usr/bin/env python3
"""Tells how soon growth shows its figures and raises its alert, and how often the loading of a
model raises a false one.

The shipped binary runs in tmux against the fake driver, in real time, with one GPU of 80 GiB for
each life: leaks of known rates, even or in stairs, and loads of models, which read from files or do
not, before or after their first computation. The screen is read every few seconds, and `--on-alert`
notes each alert.

    cargo build --release && benches/alerts.py --minutes 30

An alert of a load is false if its GPU is not full within twice the stated time. The blind loads
have no sign that tells them from a leak: the process has computed before, and reads its weights
through a mapping or a socket.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
GIB = 1 << 30
CAPACITY = 79.6
SCREEN = (200, 110)

# Reads the bytes that its parent names on the standard input, as `read` of a cached file does.
READER = """
import sys
zero, buffer = open('/dev/zero', 'rb', buffering=0), bytearray(1 << 20)
for line in sys.stdin:
    for _ in range(int(line)):
        zero.readinto(buffer)
"""


@dataclasses.dataclass
class Life:
    """One process on a GPU of its own. `pieces` are (seconds, GiB per second) one after the
    other, from `starts` on.
    """

    name: str
    starts: float
    base: float
    pieces: list[tuple[float, float]]
    is_leak: bool
    computes_before: bool
    reads: bool = False
    is_blind: bool = False
    shown: float | None = None
    gone: int = 0
    alert: tuple[float, float] | None = None
    process: subprocess.Popen | None = None
    told: int = 0

    def held(self, at: float) -> float:
        """The memory in GiB, `at` seconds after the beginning of the growth."""
        held = self.base
        for seconds, rate in self.pieces:
            held += rate * max(0.0, min(at, seconds))
            at -= seconds
        return min(held, CAPACITY)

    def has_grown(self, at: float) -> bool:
        return at >= sum(seconds for seconds, _ in self.pieces)

    def full(self) -> float | None:
        """The seconds after which memory is full; `None` if it never is."""
        at, held = 0.0, self.base
        for seconds, rate in self.pieces:
            if rate > 0 and held + rate * seconds >= CAPACITY - 0.01:
                return at + (CAPACITY - held) / rate
            at, held = at + seconds, held + rate * seconds
        return None


def leaks() -> list[Life]:
    """Twelve leaks, from three minutes to three hours to full; every third in stairs."""
    lives = []
    for number, minutes in enumerate([3, 5, 8.5, 10, 12, 15, 20, 30, 45, 60, 90, 180]):
        seconds, room = minutes * 60, CAPACITY - 4
        name = f"leak_{minutes}min"
        if number % 3 == 2:
            stair = max(10.0, seconds / 40)
            pieces = [(1.0, room / (seconds / stair)), (stair - 1, 0.0)] * int(seconds / stair + 1)
            name += "_stairs"
        else:
            pieces = [(seconds + 10, room / seconds)]
        lives.append(Life(name, 45.0 + 3 * number, 4, pieces, is_leak=True, computes_before=True))
    return lives


def loads() -> list[Life]:
    """Twenty loads: GiB, GiB per second, how."""
    shapes = [
        (1, 0.2, "first"), (2, 0.5, "reads"), (7, 0.2, "first"), (13, 0.5, "reads"), (14, 0.2, "first"), (16, 5, "first"),
        (24, 0.2, "reads"), (26, 0.3, "first"), (30, 0.5, "first"), (35, 0.2, "reads"), (40, 1, "first"), (48, 0.3, "first"),
        (52, 2, "first"), (60, 0.25, "first"), (65, 0.5, "reads"), (70, 0.2, "first"), (70, 5, "first"), (30, 0.5, "stages"),
        (56, 0.4, "shards"), (26, 0.2, "blind"),
    ]  # fmt: skip
    lives = []
    for number, (size, rate, how) in enumerate(shapes):
        starts, base = 60.0 + 29 * number, 0.5 if how != "blind" else 10.0
        pieces = [(size / rate, rate)]
        if how == "stages":
            pieces = [(size / rate / 5, rate), (15.0, 0.0)] * 5
        elif how == "shards":
            pieces = [(size / rate / 20, rate), (4.0, 0.0)] * 20
        # A warm-up ends the load: one step up, and then the memory stays.
        pieces = [*pieces, (2.0, 1.0)]
        before = how in ("reads", "blind")
        lives.append(
            Life(
                f"load_{size}_{rate}_{how}",
                starts,
                base,
                pieces,
                False,
                before,
                how == "reads",
                how == "blind",
            )
        )
    return lives


def world(lives: list[Life], now: float) -> dict:
    gpus = []
    for life in lives:
        at = now - life.starts
        processes = []
        if life.process:
            computes = life.has_grown(at) if not life.computes_before else True
            held = int(life.held(max(at, 0.0)) * GIB)
            processes = [{"pid": life.process.pid, "memory": held, "sm": 90 if computes else 0}]
        gpus.append({"persona": "H100", "processes": processes})
    return {"gpus": gpus}


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--minutes", type=float, default=30)
    arguments.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/gputop")
    arguments.add_argument(
        "--screens", type=pathlib.Path, help="write each tenth screen into this folder"
    )
    options = arguments.parse_args()
    lives = leaks() + loads()
    # gputop may still write its history when the folder goes.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run(options, lives, pathlib.Path(folder))
    print_table(lives, options.minutes * 60)


def run(options: argparse.Namespace, lives: list[Life], folder: pathlib.Path) -> None:
    driver = ROOT / "target/release/deps/libfake_nvml.so"
    for name in ["libnvidia-ml.so", "libnvidia-ml.so.1"]:
        (folder / name).symlink_to(driver)
    (folder / "home").mkdir()
    alerts, notes, world_file, next_file = (
        folder / name for name in ["alerts", "note", "world.json", "next.json"]
    )
    notes.write_text(
        '#!/bin/sh\n[ "$GPUTOP_ALERT" = out_of_memory_soon ] || [ "$GPUTOP_ALERT" = leak ] || exit 0\n'
        f'echo "$(date +%s.%N) $GPUTOP_ALERT_PID $GPUTOP_ALERT $GPUTOP_ALERT_OOM_IN_S" >> {alerts}\n'
    )
    notes.chmod(0o755)
    alerts.touch()
    began = time.time()
    world_file.write_text(json.dumps(world(lives, 0.0)))
    environment = [
        f"HOME={folder}/home",
        f"LD_LIBRARY_PATH={folder}",
        f"FAKE_NVML_WORLD={world_file}",
        "LANG=C.UTF-8",
    ]
    command = ["env", *environment, str(options.binary), "--on-alert", str(notes)]
    tmux = ["tmux", "-L", f"alerts-{os.getpid()}"]
    size = ["-x", str(SCREEN[0]), "-y", str(SCREEN[1])]
    subprocess.run([*tmux, "new-session", "-d", *size, *command], check=True)
    screens = 0
    try:
        while (now := time.time() - began) < options.minutes * 60:
            for life in lives:
                step(life, now)
            next_file.write_text(json.dumps(world(lives, now)))
            next_file.rename(world_file)
            read_alerts(lives, alerts, began)
            if now >= screens * 4:
                screens += 1
                text = subprocess.run(
                    [*tmux, "capture-pane", "-p"], check=True, capture_output=True, text=True
                ).stdout
                read_screen(lives, text, now)
                if options.screens and screens % 10 == 0:
                    (options.screens / f"{int(now):05}.txt").write_text(text)
            time.sleep(0.4)
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
        for life in lives:
            if life.process:
                life.process.kill()


def step(life: Life, now: float) -> None:
    """Starts a process half a minute before its growth if it computes before, lets it read what
    it gained, and ends it when full.
    """
    at = now - life.starts
    if life.process is None and at >= (-40 if life.computes_before else 0) and life.told == 0:
        arguments = [sys.executable, "-ISc", READER, life.name]
        life.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, start_new_session=True)
    if life.process is None:
        return
    gained = int((life.held(max(at, 0.0)) - life.base) * 1024)
    if life.reads and gained > life.told:
        life.process.stdin.write(f"{gained - life.told}\n".encode())
        life.process.stdin.flush()
    life.told = max(gained, life.told)
    full = life.full()
    if full and at > full + 3:
        life.process.kill()
        life.process.wait()
        life.process = None


def read_alerts(lives: list[Life], alerts: pathlib.Path, began: float) -> None:
    for line in alerts.read_text().splitlines():
        at, pid, kind, left = [*line.split(" "), ""][:4]
        life = next((life for life in lives if life.process and str(life.process.pid) == pid), None)
        if life and life.alert is None and left:
            life.alert = (float(at) - began, float(left))


def read_screen(lives: list[Life], text: str, now: float) -> None:
    rows = {
        match[1]: line
        for line in text.splitlines()
        if (match := re.search(r"^[│\s]*\d+\s+(\d+) ", line))
    }
    for life in lives:
        row = rows.get(str(life.process.pid)) if life.process else None
        if row is None or now < life.starts:
            continue
        has_rate = re.search(r"[0-9.]+[KMGT]?/(s|min|h|day)", row) is not None
        if has_rate and life.shown is None:
            life.shown = now
        if not has_rate and life.shown is not None and not life.has_grown(now - life.starts):
            life.gone += 1


def print_table(lives: list[Life], end: float) -> None:
    """Prints a line for each life: times in seconds since its growth began."""
    print(
        f"{'life':24} {'full after':>10} {'figure':>8} {'absent':>7} {'alert':>8} {'left':>8} {'really left':>11}"
    )
    late, quiet, false = [], [], []
    for life in lives:
        full = life.full()
        shown = None if life.shown is None else life.shown - life.starts
        alert = None if life.alert is None else life.alert[0] - life.starts
        left = None if alert is None or full is None else full - alert
        cells = [full, shown, life.gone, alert, life.alert and life.alert[1], left]
        print(
            f"{life.name:24}",
            *(
                f"{'-' if cell is None else f'{cell:.0f}':>{width}}"
                for cell, width in zip(cells, [10, 8, 7, 8, 8, 11], strict=True)
            ),
        )
        if life.is_leak and full and full > 480 and life.starts + full < end:
            if "stairs" not in life.name and (shown is None or shown > 125):
                late.append(life.name)
            if left is None or left < 240:
                quiet.append(life.name)
        if (
            not life.is_leak
            and life.alert
            and not life.is_blind
            and (left is None or left > 2 * life.alert[1])
        ):
            false.append(life.name)
    print(f"figures later than two minutes: {late or 'none'}")
    print(f"alerts later than four minutes before the end: {quiet or 'none'}")
    print(f"false alerts of loads, but for blind ones: {false or 'none'}")


if __name__ == "__main__":
    main()
