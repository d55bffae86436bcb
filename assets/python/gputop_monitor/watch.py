"""Passes snapshots on to a service of experiments, from a thread beside the training."""

import threading
import warnings
from types import TracebackType
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Type

from .program import GputopError
from .snapshot import Child, Snapshot, read_from

Callback = Callable[[Snapshot], None]


def metrics(snapshot: Snapshot) -> Dict[str, float]:
    """Returns the figures of each GPU by name, as `gputop/gpu0/memory_used_bytes`.

    Figures that could not be read are left out.
    """
    found: Dict[str, float] = {}
    for place, gpu in enumerate(snapshot.gpus):
        number = place if gpu.index is None else gpu.index
        figures = {
            "memory_used_bytes": gpu.memory_used_bytes,
            "sm_utilization_percent": gpu.sm_utilization_percent,
            "temperature_celsius": gpu.temperature_celsius,
            "power_watts": gpu.power_watts,
        }
        for name, value in figures.items():
            if value is not None:
                found["gputop/gpu%d/%s" % (number, name)] = value
    return found


def to_wandb(run: Any) -> Callback:
    """Returns a callback for a run of W&B. The figures go with the next `run.log` of the program,
    whose steps stay as they are."""
    return lambda snapshot: run.log(metrics(snapshot), commit=False)


def to_tensorboard(writer: Any) -> Callback:
    """Returns a callback for a `SummaryWriter`. The steps are seconds since the first snapshot."""
    seconds = _Seconds()

    def write(snapshot: Snapshot) -> None:
        step = seconds.since_first(snapshot)
        for name, value in metrics(snapshot).items():
            writer.add_scalar(name, value, global_step=step, walltime=snapshot.time)

    return write


def to_mlflow(mlflow: Any) -> Callback:
    """Returns a callback for the module `mlflow`. Steps are seconds since the first snapshot."""
    seconds = _Seconds()
    return lambda snapshot: mlflow.log_metrics(
        metrics(snapshot), step=seconds.since_first(snapshot)
    )


class _Seconds:
    """Counts seconds from the first snapshot on."""

    def __init__(self) -> None:
        self._first: Optional[float] = None

    def since_first(self, snapshot: Snapshot) -> int:
        if self._first is None:
            self._first = snapshot.time
        return round(snapshot.time - self._first)


class Watch:
    """Calls callbacks with each snapshot, until `stop` or the end of the `with` block."""

    def __init__(
        self, child: Child, source: Iterator[Snapshot], callbacks: Sequence[Callback]
    ) -> None:
        self._child = child
        self._callbacks = callbacks
        self._changed = threading.Condition()
        self._is_stopped = False
        self._latest: Optional[Snapshot] = None
        self._trouble: Optional[str] = None
        self._thread = threading.Thread(
            target=self._run, args=(source,), name="gputop_monitor", daemon=True
        )
        self._thread.start()

    @property
    def latest(self) -> Optional[Snapshot]:
        """The latest snapshot; None before the first."""
        return self._latest

    @property
    def trouble(self) -> Optional[str]:
        """The sentence on what ended the watch; None if nothing did."""
        return self._trouble

    def stop(self) -> None:
        """Ends the watch and its gputop, now."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        self._child.end()

    def wait_for(self, is_met: Callable[[Snapshot], bool], seconds: float) -> Optional[Snapshot]:
        """Waits for a snapshot that meets a condition. Returns None if the watch ends before, or
        the time is over."""

        def is_over() -> bool:
            return self._is_over() or (self._latest is not None and is_met(self._latest))

        with self._changed:
            self._changed.wait_for(is_over, seconds)
            found = self._latest
        return found if found is not None and is_met(found) else None

    def _is_over(self) -> bool:
        return self._is_stopped or self._trouble is not None

    def _run(self, source: Iterator[Snapshot]) -> None:
        try:
            for snapshot in source:
                if self._is_stopped:
                    break
                for callback in self._callbacks:
                    callback(snapshot)
                with self._changed:
                    self._latest = snapshot
                    self._changed.notify_all()
        except GputopError as error:
            if not self._is_stopped:
                self._give_up(str(error))
        except Exception as error:  # A callback failed: the program around it goes on.
            self._give_up("a callback failed: %s: %s" % (type(error).__name__, error))
        finally:
            close = getattr(source, "close", None)
            if close is not None:
                close()

    def _give_up(self, sentence: str) -> None:
        with self._changed:
            self._trouble = sentence
            self._changed.notify_all()
        try:
            warnings.warn("gputop_monitor: %s" % sentence, RuntimeWarning, stacklevel=2)
        except RuntimeWarning:  # `python -W error` makes exceptions of warnings.
            pass

    def __enter__(self) -> "Watch":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.stop()


def watch(
    *callbacks: Callback,
    interval: float = 10.0,
    program: Optional[str] = None,
    arguments: Sequence[str] = (),
) -> Watch:
    """Calls the callbacks with a snapshot every `interval` seconds, from a thread of its own."""
    child = Child()
    return Watch(child, read_from(child, interval, program, arguments), callbacks)
