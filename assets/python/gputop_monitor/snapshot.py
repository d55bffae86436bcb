"""Snapshots of the GPUs, as `gputop --json` prints them.

A value that could not be read is None, never 0.
"""

import json
import os
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from typing import IO, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from .program import GputopEnded, GputopNotFound, NoDriver, NoGpu, program_path

# A process: its PID, and the clock tick at which it started, because PIDs are used again. The tick
# is None for a PID that the driver names and this machine or container does not have.
Identity = Tuple[int, Optional[int]]


@dataclass(frozen=True)
class GpuProcess:
    """The use of one GPU by one process."""

    pid: int
    start_ticks: Optional[int]
    user: Optional[str]
    command: Optional[str]
    memory_used_bytes: Optional[int]
    sm_utilization_percent: Optional[float]

    @property
    def identity(self) -> Identity:
        return (self.pid, self.start_ticks)


@dataclass(frozen=True)
class Process:
    """A process with gputop's verdict on it."""

    pid: int
    start_ticks: Optional[int]
    parent_pid: Optional[int]
    user: Optional[str]
    # Such as `active` or `orphan`.
    verdict: Optional[str]
    sentence: Optional[str]
    # The growth of its memory, such as `leak`, with its rate and the line of the program.
    growth: Optional[str]
    growth_bytes_per_s: Optional[float]
    leak_line: Optional[str]
    # Whether the driver may mean a process of another PID namespace by this PID, as in a container
    # without the PIDs of the host.
    is_foreign: bool

    @property
    def identity(self) -> Identity:
        return (self.pid, self.start_ticks)


@dataclass(frozen=True)
class Gpu:
    """A GPU, or an instance of a split one."""

    index: Optional[int]
    uuid: Optional[str]
    name: Optional[str]
    memory_used_bytes: Optional[int]
    memory_total_bytes: Optional[int]
    sm_utilization_percent: Optional[float]
    temperature_celsius: Optional[int]
    power_watts: Optional[float]
    processes: List[GpuProcess]


@dataclass(frozen=True)
class Snapshot:
    """The GPUs and processes of this machine at one time."""

    # Seconds since 1970.
    time: float
    # The time of the oldest reading of a GPU in it.
    read_at: float
    host: Optional[str]
    gpus: List[Gpu]
    processes: List[Process]
    # The sentence on a driver that does not answer.
    trouble: Optional[str]
    # The whole line of `gputop --json`; `gputop schema` describes it.
    raw: Mapping[str, Any]


def snapshots(
    interval: float = 5.0, program: Optional[str] = None, arguments: Sequence[str] = ()
) -> Iterator[Snapshot]:
    """Yields a snapshot every `interval` seconds, until the caller stops.

    `program` is the path of gputop, by default that of `program_path`. It gets `arguments`, too.
    Raises a `GputopError`.
    """
    return read_from(Child(), interval, program, arguments)


class Child:
    """The gputop that an iterator of snapshots reads from. Any thread may end it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._is_ended = False
        self._owner = os.getpid()

    def start(self, command: Sequence[str], errors: IO[bytes]) -> IO[bytes]:
        """Starts gputop, and returns its output. If it was ended before, the output is empty."""
        with self._lock:
            try:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
                )
            except OSError as error:
                raise GputopNotFound("cannot start %s: %s" % (command[0], error.strerror)) from None
            if self._is_ended:
                self._process.terminate()
            assert self._process.stdout is not None
            return self._process.stdout

    def end(self) -> None:
        """Ends gputop now, or as soon as it is started."""
        # A process that the program forked leaves its `with` blocks, too.
        if os.getpid() != self._owner:
            return
        with self._lock:
            self._is_ended = True
            if self._process is not None:
                self._process.terminate()

    def wait(self) -> int:
        """Waits for the end of gputop, and returns its exit code."""
        # From here on nobody signals its PID: once it is reaped, another process may get the PID.
        with self._lock:
            process, self._process = self._process, None
        assert process is not None
        return process.wait()


def read_from(
    child: Child, interval: float, program: Optional[str], arguments: Sequence[str]
) -> Iterator[Snapshot]:
    """Yields the snapshots of `snapshots`, from a gputop that another thread may end."""
    command = [program or program_path(), "--json", "--loop=%s" % interval, *arguments]
    with tempfile.TemporaryFile() as errors:
        lines = child.start(command, errors)
        try:
            is_first = True
            for line in lines:
                snapshot = _parse(line, command[0])
                if is_first:
                    _check(snapshot)
                is_first = False
                yield snapshot
        finally:
            child.end()
            lines.close()
            code = child.wait()
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip().replace("\n", "; ")
        raise GputopEnded(
            "%s ended with code %d%s" % (command[0], code, ": " + said if said else "")
        )


def _parse(line: bytes, program: str) -> Snapshot:
    try:
        return from_json(json.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError):
        start = line[:60].decode(errors="replace").strip()
        raise GputopEnded(
            "%s printed no snapshot, but %r: is it another program called gputop?"
            % (program, start)
        ) from None


def _check(snapshot: Snapshot) -> None:
    if snapshot.gpus:
        return
    if snapshot.trouble is not None:
        raise NoDriver(snapshot.trouble)
    raise NoGpu("the NVIDIA driver finds no GPU on this machine")


def from_json(line: Mapping[str, Any]) -> Snapshot:
    """Returns the snapshot of a parsed line of `gputop --json`."""
    if line["kind"] != "full":
        raise ValueError("no whole snapshot")
    judged = {
        (entry["pid"], entry["start_ticks"]): entry
        for entry in (line.get("judged") or {}).get("processes") or ()
    }
    trouble = (line.get("driver") or {}).get("trouble")
    ages = [
        line["time_ms"] - _part(entry, "load").get("time_ms", line["time_ms"])
        for entry in line["gpus"]
    ]
    return Snapshot(
        time=line["unix_time_ms"] / 1000,
        read_at=(line["unix_time_ms"] - max(ages, default=0)) / 1000,
        host=_part(line.get("host"), "facts").get("name"),
        gpus=[_gpu(entry) for entry in line["gpus"]],
        processes=[
            _process(entry, judged.get((entry["pid"], entry["start_ticks"]), {}))
            for entry in line.get("processes") or ()
        ],
        trouble=trouble["sentence"] if trouble else None,
        raw=line,
    )


def _part(group: Any, name: str) -> Dict[str, Any]:
    """A group of readings; empty if it is missing."""
    return (group or {}).get(name) or {}


def _gpu(entry: Mapping[str, Any]) -> Gpu:
    facts, load = _part(entry, "facts"), _part(entry, "load")
    return Gpu(
        index=facts.get("index"),
        uuid=entry.get("uuid"),
        name=facts.get("name"),
        memory_used_bytes=load.get("memory_used_bytes"),
        memory_total_bytes=load.get("memory_total_bytes"),
        sm_utilization_percent=load.get("sm_utilization_percent"),
        temperature_celsius=load.get("temperature_celsius"),
        power_watts=load.get("power_watts"),
        processes=[
            GpuProcess(
                pid=process["pid"],
                start_ticks=process["start_ticks"],
                user=process.get("user"),
                command=process.get("command"),
                memory_used_bytes=process.get("memory_used_bytes"),
                sm_utilization_percent=process.get("sm_utilization_percent"),
            )
            for process in entry.get("processes") or ()
        ],
    )


def _process(entry: Mapping[str, Any], judged: Mapping[str, Any]) -> Process:
    facts, growth = _part(entry, "facts"), _part(judged, "growth")
    # /proc may also hide a process of another user (hidepid), which is no other namespace.
    is_hidden = _part(_part(entry, "load"), "missing").get("state") == "denied"
    return Process(
        pid=entry["pid"],
        start_ticks=entry["start_ticks"],
        parent_pid=facts.get("parent_pid"),
        user=facts.get("user"),
        verdict=judged.get("verdict"),
        sentence=judged.get("sentence"),
        growth=growth.get("verdict"),
        growth_bytes_per_s=growth.get("rate_bytes_per_s"),
        leak_line=judged.get("leak_line"),
        is_foreign=judged.get("verdict") == "foreign" and not is_hidden,
    )
