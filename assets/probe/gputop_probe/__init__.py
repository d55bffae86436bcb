"""The probe of gputop: publishes what the GPU memory of a PyTorch program is used for.

It runs inside the user's process. FORMAT.md describes what it publishes. Rules:

- It never prints, never raises into the program, and never starts CUDA.
- It makes no CUDA calls from its own thread. Tensors are only looked at in a thread of the program:
  at the end of an optimizer step, or between two bytecodes of the main thread. There, the autograd
  engine does not change or free them at the same time.
- It closes no descriptor that may be one of the program by now: see files.py and publish.py.
- It keeps no strong reference to an object of the program, and calls none of its methods.

Programs may use the functions below. They work, and do nothing, where the probe is not active.
"""

__all__ = ["mark", "phase", "estimate"]


def mark(name=None):
    """Keeps which tensors are on the GPUs now: `gputop tensors PID --since NAME` shows which came
    and went since then. Changes of tensor groups are counted from now on.
    """
    from . import ledger

    ledger.mark(name)


def phase(name):
    """Sets the mark `name` at the beginning of a `with` block, and `NAME end` at its end."""
    from . import ledger

    return ledger.Phase(name)


def estimate(*arguments, **options):
    """Estimates the GPU memory that training needs: see `gputop_probe.estimate`."""
    # The name of the module is the name of the function.
    import importlib

    return importlib.import_module("gputop_probe.estimates").estimate(*arguments, **options)
