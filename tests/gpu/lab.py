"""The checks of prove.py share this: the GPU, child processes that end with the run, waiting for a
condition, comparing, and a screen of gputop.

A Lab is the real machine, or a stand-in: the fake driver of tests/fake-nvml, with real processes
whose memory it makes up.
"""

import codecs
import copy
import fcntl
import itertools
import json
import os
import pathlib
import pty
import re
import secrets
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
TESTS = HERE.parent
sys.path.insert(0, str(TESTS / "pytorch"))
# The variables that a child and all its descendants have: of the run, and of the child.
MARKER, CHILD = "GPUTOP_PROVE", "GPUTOP_PROVE_CHILD"
MIB = 1 << 20
# What a process of CUDA has open; the stand-in has files of these names.
DEVICE_FILES = ["nvidia0", "nvidia-uvm"]
# The sequences of a terminal: with a final letter, of the operating system, and short ones.
SEQUENCE = re.compile(
    r"\x1b(?:\[([0-9;?<>=]*)([ -/]*[@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()].|[=>78])"
)


class Skipped(Exception):
    """The check cannot run here; the text says why."""


class Failed(Exception):
    """The check cannot go on; the text says what was found."""


class NotBuilt(Exception):
    """gputop does not have this yet; the text names the issue."""


class Comparisons:
    """The comparisons of one check. With `injects`, the first value of gputop is spoiled, and the
    check must fail.
    """

    def __init__(self, injects=False):
        self.injects, self.count, self.wrong, self.notes = injects, 0, [], []

    def _judge(self, is_right, sentence):
        self.count += 1
        if self.injects and self.count == 1:
            sentence = f"{sentence} (a wrong value was injected)"
        if not is_right:
            self.wrong.append(sentence)

    def same(self, what, ours, theirs):
        if self.injects and self.count == 0:
            ours = ours + 1 if isinstance(ours, (int, float)) else f"not {ours}"
        self._judge(ours == theirs, f"{what}: gputop says {ours!r}, the other {theirs!r}")

    def near(self, what, ours, theirs, tolerance):
        if self.injects and self.count == 0:
            ours = theirs + 2 * tolerance + 1
        is_right = ours is not None and theirs is not None and abs(ours - theirs) <= tolerance
        self._judge(is_right, f"{what}: gputop says {ours}, the other {theirs} ± {tolerance}")

    def holds(self, what, is_true, found=""):
        if self.injects and self.count == 0:
            is_true = not is_true
        self._judge(bool(is_true), f"{what}: {found}" if str(found) else what)

    def note(self, text):
        """A measured value for the report."""
        self.notes.append(text)


def signal_own(pid, number):
    """Sends a signal to a process that carries the marker of this run, and to no other."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # The environment is read after the pidfd is open. If it is that of a later process with the
        # same PID, the pidfd reaches nobody.
        marker = f"{MARKER}={os.environ[MARKER]}".encode()
        if marker not in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


def own_processes(variable=MARKER, value=None):
    """The PIDs of all processes with this variable, but this one: by default all of the run."""
    marker = f"{variable}={value or os.environ[MARKER]}".encode()
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if marker in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            pass
    return [pid for pid in found if pid != os.getpid()]


def start_guard():
    """Starts a process that ends everything with the marker when this process is gone."""
    os.environ[MARKER] = secrets.token_hex(16)
    read, write = os.pipe()
    # Kept open, and by no child: the guard reads its end when this process dies.
    os.set_inheritable(write, False)
    subprocess.Popen(
        [sys.executable, "-B", str(HERE / "lab.py"), "guard"], stdin=read, start_new_session=True
    )
    os.close(read)
    return write


def guard():
    sys.stdin.buffer.read()
    # A process may be about to fork: look again until there are none.
    while processes := own_processes():
        for pid in processes:
            signal_own(pid, signal.SIGKILL)
        time.sleep(0.1)


class Child:
    """A child process that reads commands and answers, a line of JSON each."""

    def __init__(self, arguments, log, environment=None, cwd=None):
        self.log = log
        with open(log, "wb") as errors:
            self.process = subprocess.Popen(
                [str(it) for it in arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, CHILD: str(log), **(environment or {})},
                cwd=cwd,
                start_new_session=True,
            )
        self.pid = self.process.pid

    def read(self, seconds=90):
        """The next line of JSON; other lines are left out."""
        deadline = time.monotonic() + seconds
        line = b""
        while time.monotonic() < deadline:
            ready, _, _ = select.select([self.process.stdout], [], [], 0.5)
            if not ready:
                continue
            character = os.read(self.process.stdout.fileno(), 1)
            if not character:
                raise Failed(f"{self.process.args} ended: {self.last_words()}")
            line += character
            if character == b"\n":
                if line[:1] in b"{[":
                    return json.loads(line)
                line = b""
        raise Failed(f"{self.process.args} did not answer in {seconds} s: {self.last_words()}")

    def ask(self, command, seconds=90):
        self.process.stdin.write(f"{command}\n".encode())
        self.process.stdin.flush()
        return self.read(seconds)

    def last_words(self):
        return self.log.read_text(errors="replace")[-500:].strip()

    def end(self):
        """Ends the process and its descendants: the workers of a compiler outlive it otherwise."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pid in own_processes(CHILD, self.log):
            signal_own(pid, signal.SIGKILL)
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:
                pass


class Screen:
    """gputop on a terminal of its own, as text."""

    def __init__(self, arguments, environment=None, columns=160, lines=50):
        self.rows = [[" "] * columns for _ in range(lines)]
        self.row = self.column = 0
        self.lock, self.rest, self.bytes = threading.Lock(), "", 0
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.began = time.monotonic()
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ.update({"TERM": "xterm-256color", **(environment or {})})
            os.execvp(arguments[0], [str(it) for it in arguments])
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        while True:
            try:
                data = os.read(self.terminal, 65536)
            except OSError:
                return
            if not data:
                return
            self.bytes += len(data)
            with self.lock:
                self._draw(self.rest + self.decoder.decode(data))

    def _draw(self, text):
        """Only what gputop writes: text, and moves of the cursor."""
        at = 0
        self.rest = ""
        while at < len(text):
            if text[at] == "\x1b":
                found = SEQUENCE.match(text, at)
                if not found:
                    self.rest = text[at:]
                    return
                at = found.end()
                if found[2] in ("H", "f"):
                    row, _, column = (found[1] or "1;1").partition(";")
                    self.row, self.column = int(row or 1) - 1, int(column or 1) - 1
                elif found[2]:
                    self._move(found[2], found[1])
                continue
            if text[at] == "\r":
                self.column = 0
            elif text[at] == "\n":
                self.row += 1
            else:
                self._put(text[at])
            at += 1

    def _move(self, letter, words):
        count = int(words) if (words or "").isdigit() else 1
        if letter == "A":
            self.row -= count
        elif letter == "B":
            self.row += count
        elif letter == "C":
            self.column += count
        elif letter == "D":
            self.column -= count
        elif letter == "G":
            self.column = count - 1
        elif letter == "d":
            self.row = count - 1
        elif letter == "J":
            self.rows = [[" "] * len(row) for row in self.rows]
        elif letter in "KX" and self.row < len(self.rows):
            row = self.rows[self.row]
            end = len(row) if letter == "K" else min(len(row), self.column + count)
            row[self.column : end] = " " * (end - self.column)
        elif letter == "b" and self.column:
            self._put(self.rows[self.row][self.column - 1] * count)

    def _put(self, text):
        for character in text:
            if self.row < len(self.rows) and self.column < len(self.rows[0]):
                self.rows[self.row][self.column] = character
                self.column += 1

    def text(self):
        with self.lock:
            return "\n".join("".join(row).rstrip() for row in self.rows)

    def keys(self, text):
        os.write(self.terminal, text.encode())

    def wait_for(self, text, seconds=30):
        deadline = time.monotonic() + seconds
        while text not in self.text():
            if time.monotonic() > deadline:
                raise Failed(f"the screen does not show {text!r} in {seconds} s:\n{self.text()}")
            time.sleep(0.05)

    def end(self):
        try:
            self.keys("q")
        except OSError:
            pass
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                break
            time.sleep(0.05)
        else:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        # The next pipe gets the number of the closed terminal, and the reader would read from that.
        self.reader.join(5)
        if not self.reader.is_alive():
            os.close(self.terminal)


class Lab:
    """The machine under test."""

    def __init__(self, gputop, out, gpu=None, driver=None):
        self.gputop_path, self.out, self.driver = str(gputop), out, driver
        self.logs = out / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.children, self.every_child = [], []
        self.numbers, self.lock = itertools.count(1), threading.Lock()
        os.environ["XDG_STATE_HOME"] = str(out / "state")
        os.environ["XDG_CONFIG_HOME"] = str(out / "config")
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        self.is_real = driver is None
        self.world = {"gpus": [{"persona": "H100", "processes": []}]}
        if driver:
            self.world_file = out / "world.json"
            self._write_world()
            os.environ["GPUTOP_NVML_LIB"] = str(driver)
            os.environ["FAKE_NVML_WORLD"] = str(self.world_file)
            os.environ["GPUTOP_DEVICES"] = str(out / "nvidia")
            for name in DEVICE_FILES:
                (out / name).touch()
            os.environ["FAKE_NVML_COUNTS"] = str(out / "nvml-calls")
        # On a host with a scheduler, the first GPU that is mine.
        gpu = gpu or os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or None
        gpus = self.json()["gpus"]
        chosen = [it for it in gpus if gpu in (None, it["uuid"], str(it["facts"]["index"]))]
        if not chosen:
            raise Failed(f"there is no GPU {gpu}: this host has {len(gpus)}")
        if (chosen[0].get("health") or {}).get("mig_enabled"):
            raise Failed("the GPU is split by MIG: the checks need a whole one")
        self.uuid, self.index = chosen[0]["uuid"], chosen[0]["facts"]["index"]
        self.name = chosen[0]["facts"]["name"]
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        os.environ["CUDA_VISIBLE_DEVICES"] = self.uuid
        self.python, self.has_fake_cuda = sys.executable, False

    def use_fake_cuda(self, directory):
        """PyTorch runs on the fake CUDA runtime of tests/pytorch/check.py."""
        import check

        os.environ.update(check.prepare(directory, "2.11.0"), DISABLE_ADDMM_CUDA_LT="1")
        self.python, self.has_fake_cuda = str(check.python_of(directory)), True

    # gputop

    def gputop(self, *arguments, seconds=60, codes=(0,)):
        """Runs gputop to its end."""
        command = [self.gputop_path, *map(str, arguments)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"`gputop {' '.join(command[1:])}` ran longer than {seconds} s") from None
        if done.returncode not in codes:
            words = " ".join(command[1:])
            raise Failed(f"`gputop {words}` ended with {done.returncode}: {done.stderr[-500:]}")
        return done

    def json(self, *arguments):
        """The host, by `gputop --json`."""
        return json.loads(self.gputop("--json", *arguments).stdout)

    def gpu(self):
        """The GPU under test, by `gputop --json`."""
        for gpu in self.json()["gpus"]:
            if gpu["uuid"] == self.uuid:
                return gpu
        raise Failed(f"gputop does not list the GPU {self.uuid}")

    def memory_of(self, pid):
        """The GPU memory of a process in bytes; None if gputop does not list it."""
        return {it["pid"]: it["memory_used_bytes"] for it in self.gpu()["processes"]}.get(pid)

    def wait_for_memory(self, pid):
        """Waits until gputop lists GPU memory of this process, and returns its bytes."""
        return self.wait(f"GPU memory of process {pid}", lambda: self.memory_of(pid))

    def allocator(self, pid):
        """The allocator stats of a process, as `gputop --json` reports them, or None."""
        for process in self.json()["processes"]:
            if process["pid"] == pid:
                return process.get("allocator_stats")
        return None

    def wait(self, what, condition, seconds=30):
        """Waits until the condition returns something true, and returns it."""
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            if time.monotonic() > deadline:
                raise Failed(f"{what}: not in {seconds} s; the last value is {found!r}")
            time.sleep(0.1)
        return found

    # Children

    def log(self, name):
        return self.logs / f"{next(self.numbers):03}-{name}.log"

    def child(self, *arguments, name="child", environment=None, cwd=None):
        child = Child(arguments, self.log(name), environment, cwd)
        self.children.append(child)
        self.every_child.append(child)
        return child

    def trainer(self, *arguments, environment=None, under=()):
        """A PyTorch process that trainer.py describes, ready for commands."""
        self.needs_torch()
        child = self.child(
            *under,
            self.python,
            HERE / "trainer.py",
            *arguments,
            name="trainer",
            environment=environment,
        )
        self.pretend(child.pid, 600 * MIB)
        child.read()
        return child

    def holder(self, mib, *arguments):
        """A process that holds GPU memory without PyTorch, ready for commands."""
        if self.is_real:
            child = self.child(self.python, HERE / "holder.py", mib, *arguments, name="holder")
        else:
            child = self.child(
                self.python, HERE / "holder.py", mib, *arguments, "--stand-in", name="holder"
            )
        answer = child.read()
        for pid in answer["pids"]:
            self.pretend(pid, mib * MIB)
        child.answer = answer
        return child

    def pretend(self, pid, memory, **more):
        """Makes the fake driver list a process; does nothing on a real machine."""
        if not self.is_real:
            with self.lock:
                self.world["gpus"][0]["processes"].append({"pid": pid, "memory": memory, **more})
                self._write_world()

    def outlives(self, pid):
        """Makes the fake driver keep the memory of a process after its end, as real ones do while a
        forked child lives: it goes on listing the PID.
        """
        if not self.is_real:
            with self.lock:
                row = next(it for it in self.world["gpus"][0]["processes"] if it["pid"] == pid)
                row.update(fictional=True, name="python3")
                self._write_world()

    def lists_no_more(self, pid):
        """Makes the fake driver forget a process that `outlives` kept."""
        if not self.is_real:
            with self.lock:
                rows = self.world["gpus"][0]["processes"]
                self.world["gpus"][0]["processes"] = [it for it in rows if it["pid"] != pid]
                self._write_world()

    def _write_world(self):
        draft = self.world_file.with_suffix(".draft")
        draft.write_text(json.dumps(self.world))
        draft.rename(self.world_file)

    def record(self, file):
        """A recorder of this host, which writes to this file until `end_recorder`. A recorder would
        add to a file of an earlier run.
        """
        for old in file.parent.glob(f"{file.name}*"):
            old.unlink()
        recorder = self.child(
            self.gputop_path, "record", "-o", file, "--max-size", "4MB", name="record"
        )
        self.wait("the recording", file.exists)
        return recorder

    def end_recorder(self, recorder):
        recorder.process.send_signal(signal.SIGINT)
        recorder.process.wait(20)

    def screen(self, *arguments, **options):
        return Screen([self.gputop_path, "--no-history", *arguments], **options)

    def for_a_check(self):
        """The same lab with a list of children of its own, which end with the check."""
        lab = copy.copy(self)
        lab.children = []
        return lab

    def end_children(self):
        for child in self.children:
            child.end()

    def own_pids(self):
        """The processes of this run that live, and those that it started: the driver may list a PID
        for a moment after its end.
        """
        return {*own_processes(), *(it.pid for it in self.every_child)}

    # What a check needs

    def needs_real(self, why="the stand-in has no such thing"):
        if not self.is_real:
            raise Skipped(why)

    def needs_smi(self):
        self.needs_real("there is no nvidia-smi beside the stand-in")
        if not has("nvidia-smi"):
            raise Skipped("nvidia-smi is not installed")

    def needs_torch(self):
        if not self.is_real and not self.has_fake_cuda:
            raise Skipped("PyTorch needs a GPU, or --fake-cuda")
        if not has_torch(self.python):
            raise Skipped(f"{self.python} has no torch with CUDA")


def has(program):
    return any(os.access(os.path.join(folder, program), os.X_OK) for folder in os.get_exec_path())


_torch = {}


def has_torch(python):
    if python not in _torch:
        code = "import sys, torch; sys.exit(not torch.version.cuda)"
        _torch[python] = subprocess.run([python, "-c", code], capture_output=True).returncode == 0
    return _torch[python]


if __name__ == "__main__" and sys.argv[1:] == ["guard"]:
    guard()
