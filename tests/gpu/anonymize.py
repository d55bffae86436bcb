"""Replaces what identifies a machine or a person in a run on a real GPU.

    python3 tests/gpu/anonymize.py RUN tests/data/real/NAME --gputop target/release/gputop

RUN is a folder: output of nvidia-smi (`*.txt`, `*.csv`), reports (`*.md`, `*.json`) and recordings
of gputop (`*.jsonl`, `*.jsonl.zst`), in subfolders too. The copy has the same names. All
files of one run share their stand-ins, so a GPU has the same UUID everywhere. Recordings are
written anew by `gputop clip`, because a checkpoint holds names in a form that no pattern finds.
Lists of processes by `ps` and the environment do not belong into RUN: no pattern knows their words.

Names of programs and words of command lines are replaced unless PROGRAMS and WORDS have them.
`--keep` adds names that everybody may see, such as those of this repository's own scripts.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Replaced wherever they occur in a text. Each row: the kind, the pattern, an example and its
# stand-in. A stand-in is as long as the original, so that tables stay aligned.
PATTERNS = (
    (
        "uuid",
        r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",
        "GPU-4e3a9f00-11aa-22bb-33cc-0123456789ab",
        "GPU-00000001-0000-4000-8000-000000000001",
    ),
    (
        "bus id",
        r"\b(?:[0-9A-Fa-f]{4}){1,2}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]\b",
        "GPU 00000000:00:06.0",
        "GPU 00000000:65:00.0",
    ),
    (
        "device identity",
        r"(?<=GPU PDI)\s*:\s*0x[0-9a-f]{16}",
        "GPU PDI                 : 0x1122334455667788",
        "GPU PDI                 : 0x0000000000000001",
    ),
    (
        "serial",
        r"(?i)serial[^\d\n]{0,40}?\b\d{10,14}\b",
        '{"Serial Number": "1234567890123"}',
        '{"Serial Number": "1650000000001"}',
    ),
    (
        "network address",
        r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b",
        "--addr 10.20.30.40",
        "--addr 192.0.2.1",
    ),
    (
        "path",
        r"(?<![\w./*])/(?:[\w.+@%~-]+/)*[\w.+@%~-]+",
        "/home/anna/env/bin/python3",
        "/xxxx/xxxx/xxx/xxx/python3",
    ),
)

# Lines of `nvidia-smi -q` whose value belongs to one device or chassis, or follows from its bus id.
FIELDS = (
    ("Serial Number", "Serial Number      : 1234567890123", "Serial Number      : 1650000000001"),
    ("Chassis Serial Number", "Chassis Serial Number : 12345", "Chassis Serial Number : 16501"),
    ("GPU Fabric GUID", "GPU Fabric GUID : 0x12ab", "GPU Fabric GUID : 0x1651"),
    ("ClusterUUID", "ClusterUUID : 12ab", "ClusterUUID : 1651"),
    ("Board ID", "Board ID          : 0x6", "Board ID          : 0x6500"),
    ("Bus", "Bus               : 0x00", "Bus               : 0x65"),
    ("Device", "Device            : 0x06", "Device            : 0x00"),
)
BOARD_PLACE = {"Board ID": "0x6500", "Bus": "0x65", "Device": "0x00"}

# Programs that many machines have, by their names without a path.
PROGRAMS = re.compile(
    r"python[\d.]*|pt_\w+|gputop|nvidia-smi|nvidia-persist\w*|(?:ba|da|z)?sh|sshd?|tmux.*|timeout|"
    r"systemd|init|sleep|torchrun|Xorg"
)
# Words of command lines that say nothing about a person, by the program. All others are replaced.
WORDS = (
    (
        re.compile(r"python[\d.]*"),
        re.compile(
            r"-[A-Za-z]|--multiprocessing-fork|\d+(?:\.\d+)?|"
            r"from multiprocessing\.resource_tracker import main;main\(\d+\)|"
            r"from multiprocessing\.spawn import spawn_main; spawn_main\([\w=, ]+\)|"
        ),
    ),
    (
        re.compile(r"gputop|nvidia-smi"),
        re.compile(r"-[A-Za-z]|--[a-z-]+|\d+(?:\.\d+)?[a-z]{0,2}|\d+x\d+|[a-z]{3,8}"),
    ),
)
WORD_EXAMPLES = (
    ("python3 -B --multiprocessing-fork 80", "python3 -B --multiprocessing-fork 80"),
    ("python3 train.py --token=abc", "python3 name1.py word1"),
    ("/home/anna/bin/python3 -m secret", "/xxxx/xxxx/xxx/python3 -m word1"),
    ("gputop record -o /home/anna/a.jsonl.zst", "gputop record -o /xxxx/xxxx/name1.jsonl.zst"),
    ("bash -c secret", "bash word1 word2"),
    ("/secret --port 5", "/name1 word1 word2"),
)
# How a line of a recording or of `gputop --json` begins.
_LINE = '{"kind":'
# Texts of a probe's report that quote the program.
QUOTES = ("held_by", "advice", "allocated_at", "at")


class Replacer:
    """Replaces texts, and remembers the stand-in of each original."""

    def __init__(self, keep=()):
        self.keep = set(keep)
        # (kind, original) → stand-in.
        self.stand_ins = {}
        # Names of hosts and users, which are replaced as whole words.
        self.names = {}

    def stand_in(self, kind, original, make):
        key = (kind, original)
        if key not in self.stand_ins:
            number = 1 + sum(1 for known, _ in self.stand_ins if known == kind)
            self.stand_ins[key] = make(number)
        return self.stand_ins[key]

    # ---- texts ----

    def file(self, content):
        """Replaces in the content of a file: by key in lines of `gputop --json`, else as text."""
        lines = content.splitlines(keepends=True)
        if any(line.startswith(_LINE) for line in lines):
            return "".join(
                json.dumps(self.line(json.loads(line)), separators=(",", ":")) + "\n"
                if line.startswith(_LINE)
                else self.text(line)
                for line in lines
            )
        return self.text(content)

    def text(self, text):
        """Replaces the values of fields, the patterns, and names of hosts and users."""
        text = re.sub(r"(?m)^([ ]+)([A-Z][\w ]*?)([ ]*: )(\S.*)$", self._field, text)
        for kind, pattern, _, _ in PATTERNS:
            text = re.sub(pattern, lambda found, kind=kind: self._found(kind, found[0]), text)
        # Columns of `--query-compute-apps` that have no name: a serial number of 13 digits.
        for original in self.originals("serial"):
            text = re.sub(r"\b%s\b" % re.escape(original), self._serial(original), text)
        for name, stand_in in self.names.items():
            text = re.sub(r"(?<![\w-])%s(?![\w-])" % re.escape(name), stand_in, text)
        return text

    def originals(self, kind):
        return [original for known, original in self.stand_ins if known == kind]

    def _field(self, found):
        indent, name, colon, value = found.groups()
        if name not in [row[0] for row in FIELDS] or value in ("N/A", "[N/A]"):
            return found[0]
        if name in BOARD_PLACE:
            return indent + name + colon + BOARD_PLACE[name]
        return indent + name + colon + self._serial(value)

    def _serial(self, original):
        if original in self.stand_ins.values():
            return original

        def make(number):
            prefix = "0x" if original.startswith("0x") else ""
            length = len(original) - len(prefix)
            return "%s165%0*d" % (prefix, length - 3, number)

        return self.stand_in("serial", original, make)

    def _found(self, kind, original):
        if kind == "uuid":
            make = lambda number: "%08x-0000-4000-8000-%012x" % (number, number)
        elif kind == "bus id":
            domain = original.split(":")[0]
            make = lambda number: "%s:%02X:00.0" % ("0" * len(domain), 0x64 + number)
        elif kind == "device identity":
            before = original[: original.index("0x")]
            make = lambda number: before + "0x%016x" % number
        elif kind == "serial":
            digits = re.search(r"\d+$", original)[0]
            return original[: -len(digits)] + self._serial(digits)
        elif kind == "network address":
            make = lambda number: "192.0.2.%d" % number
        else:
            return self.path(original)
        return self.stand_in(kind, original, make)

    def path(self, path):
        """Replaces each folder by as many letters `x`, and the last name unless it is known."""
        if path.startswith(("/dev/nvidia", "/dev/shm", "/proc/")):
            return path
        *folders, name = path.split("/")
        folders = ["x" * len(folder) for folder in folders]
        return "/".join([*folders, self.program(name)])

    def program(self, name):
        stem = re.sub(r"(?:\.jsonl|\.zst|\.py|\.pickle|\.json)*$", "", name)
        if PROGRAMS.fullmatch(name) or name in self.keep or stem in self.keep:
            return name
        return self.stand_in("name", stem, lambda number: "name%d" % number) + name[len(stem) :]

    # ---- recordings ----

    def argv(self, words):
        if not words:
            return words
        first = self.path(words[0]) if "/" in words[0] else self.program(words[0])
        program = words[0].rsplit("/", 1)[-1]
        kept = [words for name, words in WORDS if name.fullmatch(program)]
        return [first, *(self.word(word, kept) for word in words[1:])]

    def word(self, word, kept):
        if word in self.keep or any(words.fullmatch(word) for words in kept):
            return word
        if re.fullmatch(r"[\w.+@%~/-]+\.(?:py|jsonl|zst|pickle)", word):
            return self.path(word) if "/" in word else self.program(word)
        return self.stand_in("word", word, lambda number: "word%d" % number)

    def line(self, value, key="", inside=()):
        """Replaces in a parsed line of a recording, by key."""
        if isinstance(value, dict):
            is_quote = "cause" in value and not self._quotes_kept(value)
            return {
                name: self._hide(inner)
                if is_quote and name in QUOTES
                else self.line(inner, name, (*inside, name))
                for name, inner in value.items()
            }
        if key == "argv" and isinstance(value, list):
            return self.argv(value)
        if isinstance(value, list):
            return [self.line(inner, key, inside) for inner in value]
        if not isinstance(value, str):
            if key == "uid" and value:
                return 1000
            return value
        if key == "comm":
            return self.program(value)
        if key == "serial" or key.endswith("_serial"):
            return self._serial(value) if value else value
        if key in ("origin", "torchelastic_run_id") and "missing" not in inside:
            return self.stand_in("origin", value, lambda number: "origin %d" % number)
        if key == "mark" or inside[-2:] == ("marks", "name"):
            return self.stand_in("mark", value, lambda number: "mark %d" % number)
        if key in ("path", "freezer_file") and "missing" not in inside:
            return self.path(value)
        return self.text(value)

    def _quotes_kept(self, leak):
        scripts = re.findall(r"[\w-]+\.py", json.dumps([leak.get(name) for name in QUOTES]))
        return bool(scripts) and self.keep.issuperset(scripts)

    def _hide(self, value):
        if isinstance(value, list):
            return ["a line of the program"]
        if isinstance(value, dict):
            return {name: "script.py:1 in function" for name in value}
        return re.sub(r"`[^`]*`", "`…`", value)

    def learn(self, line):
        """Remembers the names of the host and of users that a line of a recording names."""
        facts = (line.get("host") or {}).get("facts") or {}
        self._learn_name("host", facts.get("name"))
        for process in line.get("processes") or ():
            user = (process.get("facts") or {}).get("user")
            if isinstance(user, str) and user != "root" and not user.isdigit():
                self._learn_name("user", user)

    def _learn_name(self, kind, name):
        if isinstance(name, str) and name:
            self.names[name] = self.stand_in(kind, name, lambda number: "%s%d" % (kind, number))

    def left_over(self, text):
        """The originals that are still in a text."""
        kinds = ("uuid", "device identity", "network address", "serial", "host", "user")
        known = [(kind, value.split("0x")[-1]) for kind, value in self.stand_ins if kind in kinds]
        return [
            "%s %s" % (kind, value)
            for kind, value in known
            if re.search(r"(?<![\w-])%s(?![\w-])" % re.escape(value), text)
        ]


def read_lines(path):
    """The lines of a recording without its checkpoints."""
    content = path.read_bytes()
    if content.startswith(b"\x28\xb5\x2f\xfd"):
        if not shutil.which("zstd"):
            sys.exit("cannot read %s: install the program `zstd`" % path)
        content = subprocess.run(["zstd", "-dcq", path], check=True, stdout=subprocess.PIPE).stdout
    lines = [json.loads(line) for line in content.decode().splitlines() if line.strip()]
    return [line for line in lines if line.get("kind") != "checkpoint"]


def write_recording(gputop, lines, path):
    """Writes lines as a recording with checkpoints."""
    with tempfile.TemporaryDirectory() as folder:
        plain = pathlib.Path(folder, "plain.jsonl")
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        plain.write_text(text)
        clip = [gputop, "clip", plain, "-o", path]
        subprocess.run(clip, check=True, stdout=subprocess.DEVNULL)
    os.chmod(path, 0o644)
    return text


def run(options):
    if options.output.exists():
        sys.exit("%s exists: choose another folder" % options.output)
    found = sorted(path for path in options.run.rglob("*") if path.is_file())
    recordings = [path for path in found if path.name.endswith((".jsonl", ".jsonl.zst"))]
    texts = [path for path in found if path.suffix in (".txt", ".csv", ".md", ".json")]
    replacer = Replacer(options.keep)
    lines = {path: read_lines(path) for path in recordings}
    for line in (line for several in lines.values() for line in several):
        replacer.learn(line)
    # `-q` names serial numbers, and other files have them without a name.
    for path in texts:
        replacer.file(path.read_text(errors="replace"))
    problems = []
    for path in [*recordings, *texts]:
        copy = options.output / path.relative_to(options.run)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path in lines:
            if copy.suffix != ".zst":
                copy = copy.with_name(copy.name + ".zst")
            replaced = [replacer.line(line) for line in lines[path]]
            text = write_recording(options.gputop, replaced, copy)
        else:
            text = replacer.file(path.read_text(errors="replace"))
            copy.write_text(text)
        problems += ["%s: %s" % (copy, left) for left in replacer.left_over(text)]
    counts = {}
    for kind, _ in replacer.stand_ins:
        counts[kind] = counts.get(kind, 0) + 1
    print("replaced " + ", ".join("%d × %s" % (count, kind) for kind, count in counts.items()))
    skipped = [str(path) for path in found if path not in recordings and path not in texts]
    if skipped:
        print("not copied: " + ", ".join(skipped))
    if problems:
        sys.exit("still there, so do not share the copy:\n" + "\n".join(problems))


def check_examples():
    """Checks the example of each row of the tables."""
    rows = [(kind, before, after) for kind, _, before, after in PATTERNS]
    rows += [(name, "    " + before, "    " + after) for name, before, after in FIELDS]
    wrong = []
    for name, before, after in rows:
        got = Replacer().text(before)
        if got != after:
            wrong.append("%s: %r becomes %r, not %r" % (name, before, got, after))
    for before, after in WORD_EXAMPLES:
        got = " ".join(Replacer().argv(before.split(" ")))
        if got != after:
            wrong.append("%r becomes %r, not %r" % (before, got, after))
    if wrong:
        sys.exit("\n".join(wrong))
    print("%d examples are right" % (len(rows) + len(WORD_EXAMPLES)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("run", type=pathlib.Path, nargs="?", help="the folder of the run")
    parser.add_argument("output", type=pathlib.Path, nargs="?", help="the new folder")
    parser.add_argument("--gputop", default="gputop", help="the program that writes recordings")
    parser.add_argument("--keep", action="append", default=[], help="a word or name to keep")
    parser.add_argument("--check-examples", action="store_true", help="check the tables, and exit")
    options = parser.parse_args()
    if options.check_examples:
        return check_examples()
    if options.output is None:
        parser.error("name the folder of the run and the new folder")
    run(options)


if __name__ == "__main__":
    main()
