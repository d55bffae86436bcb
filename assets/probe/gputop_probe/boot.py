"""Starts the probe where CUDA starts, and makes forked children forget it."""

import os
import sys


class WaitForCuda:
    """A finder of modules that finds none: it waits, during `import torch`, until `torch.cuda` is complete.

    It never wraps the import of torch: an ImportError shows the same traceback as without the probe.
    """

    def __init__(self, successor):
        self.successor = successor

    def find_spec(self, name, path=None, target=None):
        cuda = sys.modules.get("torch.cuda")
        if cuda is None or getattr(getattr(cuda, "__spec__", None), "_initializing", False):
            return None
        try:
            sys.meta_path[sys.meta_path.index(self)] = self.successor
            cuda._lazy_call(start)
        except (AttributeError, TypeError, ValueError):
            pass
        return None


def start():
    """Runs at the end of `torch.cuda._lazy_init()`, in the thread of the program that first used CUDA."""
    try:
        from . import probe

        if probe.active is None:
            probe.active = probe.Probe(sys.modules["torch"])
            os.register_at_fork(after_in_child=_forget)
            probe.active.start()
    except Exception as error:
        from .trouble import pass_on_if_foreign

        pass_on_if_foreign(error)


def _forget():
    """Runs in a forked child, which has no thread of the probe.

    The descriptors stay open: the program may have closed them already, and the numbers may be those of other files. The agent ignores
    them, because the header names the parent.
    """
    from . import probe

    if probe.active is not None:
        # The memory map must not be closed either.
        _abandoned.append(probe.active)
        probe.active = None


_abandoned = []
