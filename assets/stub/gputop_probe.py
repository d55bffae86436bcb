"""Marks for gputop, in a program that also runs without gputop: put this file beside the script.

    import gputop_probe

    gputop_probe.mark("before eval")
    with gputop_probe.phase("eval"):
        evaluate()

`gputop tensors PID --since "before eval"` then shows which tensors came and went. This file does
nothing by itself. It passes calls on to the probe of gputop where `gputop run` started the program,
or `gputop attach` looks into it, whenever that begins.
"""

import sys

__all__ = ["mark", "phase", "estimate"]


def _probe():
    """The probe of gputop in this process, or None. It is a package of the name `gputop_probe`."""
    found = sys.modules.get("gputop_probe")
    return found if hasattr(found, "__path__") else None


def mark(name=None):
    """Keeps which tensors are on the GPUs now."""
    probe = _probe()
    if probe is not None:
        probe.mark(name)


class phase:
    """Sets the mark `name` at the beginning of a `with` block, and `NAME end` at its end."""

    def __init__(self, name):
        self._name, self._entered = name, []

    def __enter__(self):
        probe = _probe()
        # None: the probe is missing, or of a gputop without phases.
        begin = getattr(probe, "phase", None)
        self._entered.append(None if begin is None else begin(self._name))
        if self._entered[-1] is not None:
            self._entered[-1].__enter__()
        return self

    def __exit__(self, *error):
        entered = self._entered.pop()
        if entered is not None:
            entered.__exit__(*error)
        return False


def estimate(*arguments, **options):
    """Estimates the GPU memory that training needs. That needs gputop."""
    probe = _probe()
    if probe is None:
        raise RuntimeError("gputop_probe.estimate: start the program as `gputop run -- python ...`")
    return probe.estimate(*arguments, **options)
