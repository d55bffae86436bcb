"""The black box: what memory was made of when an allocation failed, written by the process itself.

Each report is a JSON file below $XDG_STATE_HOME/gputop/ooms, with a snapshot beside it that
memory_viz opens. The observer never raises: an exception in it would replace the program's
torch.cuda.OutOfMemoryError.
"""

import _thread
import gc
import json
import os
import pickle
import stat
import sys
import time

from . import causes, lines, publish
from .allocator import complete
from .authors import HERE
from .files import OwnFile
from .state import VERSION, build

# Reports of one process, and reports that the folder keeps.
MOST = 5
KEPT = 50
# Bytes of a report, bytes of a snapshot, and seconds for both.
REPORT_BYTES = 256 << 10
SNAPSHOT_BYTES = 64 << 20
SECONDS = 3.0
# Building a snapshot and pickling it takes about this long for each block, in seconds.
_SECONDS_PER_BLOCK = 20e-6
_FRAMES = 60
# The flags of a new file.
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


def _state_home():
    return os.environ.get("XDG_STATE_HOME") or os.path.join(
        os.path.expanduser("~"), ".local", "state"
    )


def open_folder(home=None):
    """Opens the folder of reports and creates it where it is missing. Returns an OwnFile; raises
    OSError.

    Only folders that the user owns and nobody else can write count, and no symbolic link.
    """
    home = home or _state_home()
    os.makedirs(home, mode=0o700, exist_ok=True)
    flags = os.O_RDONLY | os.O_DIRECTORY
    folder = OwnFile(home, flags)
    for name in ("gputop", "ooms"):
        with folder:
            try:
                os.mkdir(name, 0o700, dir_fd=folder.number)
            except FileExistsError:
                pass
            folder = OwnFile(name, flags | os.O_NOFOLLOW, folder.number)
        status = os.fstat(folder.number)
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            with folder:
                raise PermissionError(
                    "%s in %s belongs to another user, or others can write it" % (name, home)
                )
    return folder


def write_file(folder, name, content):
    """Writes a file of the folder at once: a reader sees all of it or nothing."""
    draft = "." + name + ".part"
    try:
        os.unlink(draft, dir_fd=folder)
    except FileNotFoundError:
        pass
    try:
        with OwnFile(draft, NEW, folder) as file:
            file.write(content)
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        try:
            os.unlink(draft, dir_fd=folder)
        except OSError:
            pass
        raise


def remove_old(folder, kept=KEPT):
    """Removes all but the newest reports, with their snapshots."""
    reports = sorted(
        name for name in os.listdir(folder) if name.startswith("oom-") and name.endswith(".json")
    )
    for name in reports[:-kept]:
        for file in (name, name[:-5] + ".pickle"):
            try:
                os.unlink(file, dir_fd=folder)
            except OSError:
                pass


def report_bytes(report, most=REPORT_BYTES):
    """The report as JSON of at most `most` bytes: the longest lists are shortened first. None:
    it does not fit.
    """
    for length in (1000, 100, 30, 10, 3, 0):
        short = {
            key: value[:length] if isinstance(value, list) else value
            for key, value in report.items()
        }
        content = json.dumps(short, separators=(",", ":"), default=str).encode("utf-8", "replace")
        if len(content) <= most:
            return content
    return None


class _Limited:
    """A file for pickle that refuses to grow over a limit, or past a deadline."""

    def __init__(self, most, deadline):
        self.parts, self.size, self.most, self.deadline = [], 0, most, deadline

    def write(self, content):
        self.size += len(content)
        if self.size > self.most:
            raise OverflowError("the snapshot is larger than %d MiB" % (self.most >> 20))
        if time.monotonic() > self.deadline:
            raise TimeoutError("the snapshot took too long")
        self.parts.append(bytes(content))
        return len(content)


def snapshot_bytes(snapshot, most=SNAPSHOT_BYTES, deadline=float("inf")):
    """A snapshot as memory_viz reads it: pickle protocol 4, no integer over 8 bytes. Raises
    OverflowError or TimeoutError.
    """
    output = _Limited(most, deadline)
    pickle.Pickler(output, protocol=4).dump(_plain(snapshot))
    return b"".join(output.parts)


def _plain(value):
    """The value with integers of at most 8 bytes; keys that memory_viz does not know stay."""
    if type(value) is int:
        return value if -(1 << 63) <= value < 1 << 63 else value & ((1 << 63) - 1)
    if type(value) is dict:
        return {key: _plain(held) for key, held in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_plain(held) for held in value)
    return value


def stack():
    """The Python frames of this thread, innermost first, without the probe's: (file, line,
    function). Empty in a thread of the autograd engine.
    """
    found, frame = [], sys._getframe()
    while frame is not None and len(found) < _FRAMES:
        if not frame.f_code.co_filename.startswith(HERE):
            found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return found


def main_stack():
    """The frames of the main thread: what waits in backward() when a thread of the engine runs
    out of memory.
    """
    import threading

    main = threading.main_thread().ident
    was_on = gc.isenabled()
    gc.disable()
    try:
        frame = sys._current_frames().get(main)
    finally:
        if was_on:
            gc.enable()
    found = []
    while frame is not None and len(found) < _FRAMES:
        found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return found


class BlackBox:
    """Attaches to the allocator. `leaks` returns the leaks of the state: see FORMAT.md."""

    def __init__(self, probe, leaks, home=None):
        self.probe = probe
        self.torch = torch = probe.torch
        self.leaks = leaks
        self.home = home
        self.count = 0
        self.pid = os.getpid()
        attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None) or getattr(
            torch._C, "_cuda_attachOutOfMemoryObserver", None
        )
        self.is_attached = attach is not None
        if attach:
            attach(self._observe)

    def _observe(self, device, requested, total, free):
        """Called by the allocator, without its lock, right before it raises."""
        try:
            # A forked child has the observer too, but no probe.
            if self.count >= MOST or os.getpid() != self.pid:
                return
            self.count += 1
            self.write(device, requested, total, free)
        except KeyboardInterrupt:
            _thread.interrupt_main()
        except BaseException as error:
            self.probe.troubles.add("no out-of-memory report: %.200s" % error)

    def write(self, device, requested, total, free):
        deadline = time.monotonic() + SECONDS
        began = time.time()
        with open_folder(self.home) as opened:
            folder = opened.number
            name = "oom-%013d-%d-%d" % (began * 1000, os.getpid(), self.count)
            report = self.report(device, requested, total, free, began)
            try:
                snapshot = self._snapshot(device, deadline)
                write_file(folder, name + ".pickle", snapshot)
                report["snapshot"] = name + ".pickle"
                report["snapshot_bytes"] = len(snapshot)
            except Exception as error:
                report["no_snapshot"] = "%s: %s" % (type(error).__name__, str(error)[:200])
            content = report_bytes(report)
            if content is not None:
                write_file(folder, name + ".json", content)
            remove_old(folder)

    def _stats(self, device):
        found = self.torch._C._cuda_memoryStats(device)
        figures = {}
        for name in (
            "allocated_bytes",
            "reserved_bytes",
            "active_bytes",
            "inactive_split_bytes",
            "requested_bytes",
        ):
            if name in found:
                figures[name] = found[name]["all"]["current"]
                figures[name + "_peak"] = found[name]["all"]["peak"]
        for name in ("num_alloc_retries", "num_ooms"):
            figures[name] = found.get(name)
        figures["blocks"] = found["active"]["all"]["current"]
        figures["segments"] = found["segment"]["all"]["current"]
        return figures

    def report(self, device, requested, total, free, began):
        report = {
            "version": VERSION,
            "time": began,
            "pid": os.getpid(),
            "start_ticks": publish.owner()[1],
            "program": os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else "",
            "torch": self.torch.__version__,
            "python": sys.version.split()[0],
            "device": device,
            "requested": requested,
            "total": total,
            "free": free,
        }
        for key, read in (
            ("stats", lambda: self._stats(device)),
            ("stack", lambda: [list(frame) for frame in stack() or main_stack()]),
        ):
            try:
                report[key] = read()
            except Exception as error:
                report["trouble"] = "%s: %s" % (key, str(error)[:200])
        user, inner = lines.user_and_inner(report.get("stack") or [])
        if user or inner:
            report["at"] = {"user": user or inner, "inner": inner}
        try:
            # The last reading is of the end of an earlier step: without what fills the memory now.
            self.probe.read_all()
        except Exception as error:
            report["trouble"] = "tensors: %s" % str(error)[:200]
        state = build(self.probe)
        for key in ("steps", "devices", "groups", "groups_at"):
            if key in state:
                report[key] = state[key][:40] if isinstance(state[key], list) else state[key]
        report["leaks"] = self.leaks()
        report["why"] = why(report)
        return report

    def _snapshot(self, device, deadline):
        blocks = self._stats(device)["blocks"]
        if blocks * _SECONDS_PER_BLOCK > SECONDS:
            raise TimeoutError("%d blocks would take too long" % blocks)
        # With the program's own recording on, its traces are what memory_viz shows best.
        snapshot = complete(self.torch.cuda.memory._snapshot())
        try:
            return snapshot_bytes(snapshot, deadline=deadline)
        except OverflowError:
            snapshot["device_traces"] = []
            return snapshot_bytes(snapshot, deadline=deadline)


def why(report):
    """The likely cause of an out-of-memory error: {"cause", "sentence", "advice"}."""
    stats = report.get("stats") or {}
    requested, free, total = report["requested"], report["free"], report["total"]
    allocated, reserved = stats.get("allocated_bytes"), stats.get("reserved_bytes")
    if requested > total:
        sentence = "one tensor is larger than the GPU"
        return {
            "cause": "too_big",
            "sentence": sentence,
            "advice": "look at the sizes in the line that allocates it",
        }
    leaks = [
        leak
        for leak in report.get("leaks") or ()
        if leak.get("bytes", 0) > 0 and leak["cause"] != "fragmentation"
    ]
    if leaks and allocated and leaks[0]["bytes"] > 0.2 * allocated:
        return {
            "cause": leaks[0]["cause"],
            "sentence": "memory leaks: " + leaks[0]["title"],
            "advice": leaks[0]["advice"],
        }
    if allocated is not None and reserved is not None:
        if reserved - allocated + free >= requested and reserved - allocated > requested // 2:
            title, advice = causes.explain("fragmentation", causes.Facts())
            return {"cause": "fragmentation", "sentence": title, "advice": advice}
        others = total - free - reserved
        if others > 0.1 * total and requested <= others:
            return {
                "cause": "other_processes",
                "sentence": "other processes and the CUDA context hold %d MiB" % (others >> 20),
                "advice": "look for other processes on this GPU: gputop orphans",
            }
    return {
        "cause": "too_big",
        "sentence": "the model and batch need more than there is",
        "advice": "try a smaller batch with gradient accumulation, checkpointing, or mixed precision",
    }


def write_snapshot(torch, path, snapshot=None):
    """Writes a snapshot for `gputop snapshot`, one of now if there is none. Returns the fields of
    the answer. An existing file is not replaced.
    """
    if not path or not os.path.isabs(path):
        return {"ok": False, "error": "the path of a snapshot must be absolute"}
    try:
        snapshot = torch.cuda.memory._snapshot() if snapshot is None else snapshot
        content = snapshot_bytes(complete(snapshot), most=1 << 30)
        with OwnFile(path, NEW) as file:
            file.write(content)
    except Exception as error:
        return {"ok": False, "error": "%s: %s" % (type(error).__name__, str(error)[:200])}
    return {"ok": True, "path": path, "bytes": len(content)}
