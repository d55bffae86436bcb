"""Runs `gputop analyze` on each format of `formats.py`, and on the spoiled logs of `spoiled.py`.

    python3 tests/formats/check.py GPUTOP [NAME]

A format is right if the leak is called, with its rate and its amount, with no option or with those
that gputop's own sentences name. A spoiled log may be read right, doubted, refused or noted; it is
silently wrong if the verdict is wrong and gputop has no doubt.
"""

import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import formats
import spoiled

MIB = 1 << 20
OPTION = re.compile(r"(--(?:interval|time|memory|unit|capacity)) (`[^`]+`|\"[^\"]+\"|[\w.]+)")


def analyze(gputop, text, options):
    """Returns the exit code, the JSON and the messages."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        log.write_text(text, encoding="utf-8", newline="")
        command = [gputop, "analyze", "--json", *options, str(log)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    answer = (
        json.loads(done.stdout) if done.stdout.startswith("{") else {"series": [], "files": [{}]}
    )
    return done.returncode, answer, done.stderr


def is_right(answer, axis):
    """Whether the leak is called, with its rate and its amount."""
    for series in answer["series"]:
        if series["verdict"] != "leak" or not series["episodes"]:
            continue
        last = series["episodes"][-1]
        # MB of 10^6 and MiB differ by 5 %, and tensors hold 2000 MiB less.
        is_held = (
            0.87 < last["held_bytes"] / MIB / (formats.BASE + formats.GAIN * formats.SAMPLES) < 1.06
        )
        if axis == formats.TIME:
            rate, expected = last["rate_bytes_per_s"], formats.GAIN / formats.SECONDS
        else:
            rate, expected = last.get("rate_bytes_per_step"), formats.GAIN / axis
        if is_held and rate and 0.85 < rate / MIB / expected < 1.15:
            return True
    return False


def sentences(answer, messages):
    """Returns all that gputop says about the log besides its verdicts."""
    file = answer["files"][0]
    return [*file.get("doubts", []), *file.get("notes", []), messages]


def named_options(answer, messages):
    """Returns the first option that a sentence of gputop names, as words of a command."""
    file = answer["files"][0]
    for sentence in [messages, *file.get("doubts", []), *file.get("notes", [])]:
        found = OPTION.findall(sentence)
        if found:
            return [
                word
                for name, value in found[:3]
                for word in (name, value.strip('`"').replace("COLUMN", "Value"))
            ]
    return []


def check_format(gputop, function, axis):
    text = function()
    code, answer, messages = analyze(gputop, text, [])
    if is_right(answer, axis):
        return "right", ""
    options = named_options(answer, messages)
    if options:
        code, again, more = analyze(gputop, text, options)
        if is_right(again, axis):
            return "right", " ".join(options)
    return "WRONG", f"exit {code}: {messages.strip() or summary(answer)} | {' '.join(options)}"


def summary(answer):
    return "; ".join(series["headline"] for series in answer["series"][:3])


def check_spoiled(gputop, name, text, axis):
    code, answer, messages = analyze(gputop, text, [])
    if is_right(answer, axis):
        return "right", ""
    file = answer["files"][0]
    if code != 0 or file.get("problem"):
        return "refused", messages.strip()
    if file.get("doubts"):
        return "doubted", file["doubts"][0]
    return (
        "SILENTLY WRONG",
        f"{summary(answer)} | {file.get('notes')} | {file.get('bad_lines')} bad lines",
    )


def main():
    gputop = sys.argv[1]
    wanted = sys.argv[2:]
    wrong = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        checks = [
            (function.__name__, pool.submit(check_format, gputop, function, axis))
            for function, axis in formats.FORMATS
            if not wanted or function.__name__ in wanted
        ]
        checks += [
            (name, pool.submit(check_spoiled, gputop, name, text(), axis))
            for name, text, axis in spoiled.LOGS
            if not wanted or name in wanted
        ]
        for name, check in checks:
            word, words = check.result()
            wrong += word in ("WRONG", "SILENTLY WRONG")
            print(f"{name:40} {word:14} {words}")
    print(f"{wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
