#!/usr/bin/env python3
"""Compares the size and the work of gputop with .ci/limits: `.ci/budget.py`, after `cargo test`.

    .ci/budget.py                     # size and instructions of the debug build, lines of code
    .ci/budget.py --packaged PROGRAM  # the size of the program of a release, after .ci/release

The debug build is measured because `.ci/run` has it anyway. Its figures are for comparison with
those of other commits only: a release is a quarter of that size, and faster. Instructions are
counted by valgrind, so they do not depend on the machine or its load; one pass is a fourth of the
difference between six passes and two. Without valgrind, and without root to install it, they are
left out. A figure under its limit by a tenth is told, so that the limit can follow.
"""

import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMITS = ROOT / ".ci/limits"
BUILD = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
FEW, MANY = 2, 6
# A limit that is so much larger than the figure can be lowered.
SLACK = 1.10


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--packaged"] and len(arguments) == 2:
        figures = {"packaged_bytes": os.path.getsize(arguments[1])}
    elif not arguments:
        figures = {
            "debug_program_bytes": loaded_bytes(BUILD / "debug/gputop"),
            "lines_of_code": lines_of_code(),
            **instructions(),
        }
    else:
        print("write .ci/budget.py, or .ci/budget.py --packaged PROGRAM", file=sys.stderr)
        return 2
    return compare(figures, read_limits())


def read_limits() -> dict[str, int]:
    limits = {}
    for number, line in enumerate(LIMITS.read_text().splitlines(), 1):
        if line.startswith("#") or not line.strip():
            continue
        match = re.fullmatch(r"(\w+) +([\d_]+) +# (.{10,})", line)
        if match is None:
            sys.exit(f"{LIMITS}:{number}: a limit is `NAME NUMBER # REASON`, with a reason")
        limits[match[1]] = int(match[2])
    return limits


def compare(figures: dict[str, int], limits: dict[str, int]) -> int:
    exceeded = False
    for name, figure in figures.items():
        limit = limits[name]
        print(f"{name}: {figure:_} of {limit:_} ({100 * figure / limit:.1f} %)")
        if figure > limit:
            exceeded = True
            print(
                f"{name} exceeds its limit. Make it smaller, or raise the limit in .ci/limits, "
                "with the reason on its line",
                file=sys.stderr,
            )
        elif figure * SLACK < limit:
            print(f"  the limit in .ci/limits can be lowered to {round_up(figure):_}")
    return int(exceeded)


def round_up(figure: int) -> int:
    """Adds 2 % and rounds to three digits."""
    unit = 10 ** max(0, len(str(figure)) - 3)
    return -(-figure * 102 // (100 * unit)) * unit


def loaded_bytes(program: pathlib.Path) -> int:
    """The bytes of the program that are loaded into memory: without symbols and line tables."""
    data = program.read_bytes()
    offset, size, count = (
        struct.unpack_from("<Q", data, 32)[0],
        *struct.unpack_from("<HH", data, 54),
    )
    segments = (struct.unpack_from("<II6Q", data, offset + size * index) for index in range(count))
    load = 1
    return sum(segment[5] for segment in segments if segment[0] == load)


def lines_of_code() -> int:
    """The lines of src/ that are neither empty nor comments, without files of tests."""
    count = 0
    for path in (ROOT / "src").rglob("*.rs"):
        parts = path.relative_to(ROOT).parts
        if "tests" in parts or path.stem == "tests" or path.stem.endswith("_tests"):
            continue
        lines = (line.strip() for line in path.read_text().splitlines())
        count += sum(1 for line in lines if line and not line.startswith("//"))
    return count


def instructions() -> dict[str, int]:
    if not has_valgrind():
        print("instructions are not counted: valgrind is missing (apt-get install valgrind)")
        return {}
    return {
        f"{side}_pass_instructions": (count(side, MANY) - count(side, FEW)) // (MANY - FEW)
        for side in ("agent", "viewer")
    }


def has_valgrind() -> bool:
    if not shutil.which("valgrind") and os.geteuid() == 0 and shutil.which("apt-get"):
        install = ["apt-get", "install", "--yes", "--no-install-recommends", "valgrind"]
        subprocess.run(["apt-get", "update"], stdout=subprocess.DEVNULL, check=False)
        subprocess.run(install, stdout=subprocess.DEVNULL, check=False)
    return shutil.which("valgrind") is not None


def count(side: str, passes: int) -> int:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    command += [BUILD / "debug/examples/passes", side, str(passes)]
    # The variables of the user change neither colours nor locale.
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]}
    )
    match = re.search(r"Collected : (\d+)", result.stderr)
    if result.returncode != 0 or match is None:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{result.stderr}")
    return int(match[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
