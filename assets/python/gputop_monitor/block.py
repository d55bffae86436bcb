"""The GPU memory of a block of a program."""

import os
import time
from types import TracebackType
from typing import Dict, List, Optional, Sequence, Set, Type

from .snapshot import GpuProcess, Identity, Process, Snapshot
from .watch import Watch, watch

# The longest that a block waits for gputop at its beginning and at its end, beyond the interval.
PATIENCE_S = 10.0


class Block:
    """The GPU memory of this process and of the processes that it starts, while a block runs.

    The figures are there after the block. They are None where gputop could not read them: then
    `trouble` says why. gputop samples the memory, so a peak between two samples is not seen.
    """

    def __init__(self, interval: float, program: Optional[str], arguments: Sequence[str]) -> None:
        # The most memory at once, in bytes.
        self.peak_bytes: Optional[int] = None
        # The memory after the block less that before it, in bytes.
        self.growth_bytes: Optional[int] = None
        # Processes that the block started, and that still hold GPU memory after it.
        self.leftovers: Optional[List[GpuProcess]] = None
        # The sentence on why figures are missing.
        self.trouble: Optional[str] = None
        self._options = (interval, program, arguments)
        self._watch: Optional[Watch] = None
        self._family: Set[Identity] = set()
        self._before: Optional[int] = None
        self._known: Set[Identity] = set()
        self._peak: Optional[int] = None
        self._is_unknown = False
        self._why_unknown = "the GPU memory of these processes cannot be read"

    def __enter__(self) -> "Block":
        interval, program, arguments = self._options
        self._watch = watch(self._take, interval=interval, program=program, arguments=arguments)
        first = self._watch.wait_for(lambda snapshot: True, interval + PATIENCE_S)
        if first is not None:
            self._before = self._memory(first)
            self._known = set(self._family)
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        assert self._watch is not None
        end = time.time()
        interval = self._options[0]
        try:
            last = self._watch.wait_for(
                lambda snapshot: snapshot.read_at >= end, interval + PATIENCE_S
            )
        finally:
            self._watch.stop()
        if last is None:
            late = self._watch.latest
            self.trouble = self._watch.trouble or (late and late.trouble) or "gputop is late"
            return
        after = self._memory(last)
        if self._is_unknown or self._before is None or after is None:
            self.trouble = last.trouble or self._why_unknown
            return
        self.peak_bytes = self._peak
        self.growth_bytes = after - self._before
        self.leftovers = [
            process
            for process in self._used(last)
            if process.identity not in self._known and process.pid != os.getpid()
        ]

    def _take(self, snapshot: Snapshot) -> None:
        """Counts one sample."""
        used = self._memory(snapshot)
        if used is None:
            self._is_unknown = True
        else:
            self._peak = used if self._peak is None else max(self._peak, used)

    def _memory(self, snapshot: Snapshot) -> Optional[int]:
        """The memory of this process and its descendants, in bytes; None if a part is unknown."""
        total = 0
        for process in self._used(snapshot):
            if process.memory_used_bytes is None:
                return None
            total += process.memory_used_bytes
        if any(process.is_foreign for process in snapshot.processes):
            # In a container: one of these PIDs may be the host's PID of this process.
            self._why_unknown = (
                "the driver lists PIDs of another PID namespace, which may be those of these "
                "processes: start the container with the PIDs of the host (docker run --pid=host)"
            )
            return None
        # Where the driver lists no processes, this one may be on the GPU all the same.
        missing = [gpu.get("missing") or {} for gpu in snapshot.raw["gpus"]]
        is_listed = all("processes" not in reasons for reasons in missing)
        return total if is_listed and snapshot.trouble is None else None

    def _used(self, snapshot: Snapshot) -> List[GpuProcess]:
        """What this process and its descendants use, also those whose parent has ended since."""
        children: Dict[Optional[int], List[Process]] = {}
        for process in snapshot.processes:
            children.setdefault(process.parent_pid, []).append(process)
        found = [process for process in snapshot.processes if process.pid == os.getpid()]
        for process in found:
            if process.pid in children:
                found.extend(children.pop(process.pid))
            self._family.add(process.identity)
        return [
            process
            for gpu in snapshot.gpus
            for process in gpu.processes
            if process.identity in self._family
        ]


def measure(
    interval: float = 1.0, program: Optional[str] = None, arguments: Sequence[str] = ()
) -> Block:
    """Measures the GPU memory of a `with` block.

    gputop reads the GPUs every `interval` seconds. The block begins after its first reading, and
    ends with the next one.
    """
    return Block(interval, program, arguments)
