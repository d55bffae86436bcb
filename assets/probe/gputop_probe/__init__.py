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

__all__ = ["mark", "estimate"]


def mark(name=None):
    """Changes of tensor groups are counted from now on; `name` appears in gputop."""
    from . import probe

    if probe.active is not None:
        probe.active.mark(name)


def estimate(*arguments, **options):
    """Estimates the GPU memory that training needs: see `gputop_probe.estimate`."""
    # The name of the module is the name of the function.
    import importlib

    return importlib.import_module("gputop_probe.estimates").estimate(*arguments, **options)
