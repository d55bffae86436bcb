"""Starts the probe where CUDA starts, or in a program that runs already, and makes forked
children forget it.
"""

import os
import sys

# The state of an attached probe that waits for CUDA. None: there is none.
_waiting = None


class WaitForCuda:
    """A finder of modules that finds none: it waits, during `import torch`, until `torch.cuda` is
    complete.

    It never wraps the import of torch: an ImportError shows the same traceback as without the
    probe.
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


class _FindNothing:
    """A finder of modules that finds none."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        return None


def attach():
    """Starts the probe in a program that runs already. `gputop attach` makes the main thread call
    this between two bytecodes.

    Python swallows exceptions here, also those of the program's signal handlers, such as
    KeyboardInterrupt. So the work is done in a pending call, which passes them on.
    """
    import ctypes

    function = ctypes.cast(ctypes.pythonapi.PyObject_IsTrue, ctypes.c_void_p)
    ctypes.pythonapi.Py_AddPendingCall(function, ctypes.py_object(_attachment))


class _Attachment:
    """CPython calls `__bool__` in the main thread: see `_PendingCall` in probe.py."""

    def __bool__(self):
        try:
            _attach()
        except Exception as error:
            _quiet(error)
        return False


_attachment = _Attachment()


def _attach():
    global _waiting
    from . import probe, publish

    if probe.active is not None or _waiting is not None and _waiting.is_own():
        return
    # `gputop attach` waits for this memfd.
    _waiting = publish.Memfd(*publish.STATE)
    cuda = sys.modules.get("torch.cuda")
    if cuda is None or getattr(getattr(cuda, "__spec__", None), "_initializing", False):
        sys.meta_path.insert(0, WaitForCuda(_FindNothing))
    else:
        cuda._lazy_call(start)


def _take_state():
    """The memfd of an attached probe, at its first start in the process that it was made in.
    None: there is none.
    """
    global _waiting
    state, _waiting = _waiting, None
    return state if state is not None and state.is_own() else None


def start():
    """Runs at the end of `torch.cuda._lazy_init()`, in the thread of the program that first used
    CUDA; attached later, in the main thread.
    """
    try:
        from . import probe

        if probe.active is None:
            probe.active = probe.Probe(sys.modules["torch"])
            os.register_at_fork(after_in_child=_forget)
            probe.active.start(_take_state())
    except Exception as error:
        _quiet(error)


def _quiet(error):
    """Tells only the agent of an error of the probe, where that is possible."""
    from .trouble import Troubles, pass_on_if_foreign

    pass_on_if_foreign(error)
    troubles = Troubles()
    troubles.add_error("starting the probe", error)
    folder = os.environ.get("GPUTOP_LAST_STATES")
    if folder:
        try:
            from .last_state import write_failure

            write_failure(folder, troubles.sentences[0])
        except Exception as failure:
            pass_on_if_foreign(failure)
    probe = sys.modules.get("gputop_probe.probe")
    state = _take_state() or getattr(probe and probe.active, "state", None)
    if state is not None:
        from .state import encode_trouble

        state.write(encode_trouble(troubles))


def _forget():
    """Runs in a forked child, which has no thread of the probe.

    The memfds stay open and mapped. The agent ignores them, because the header names the parent.
    """
    from . import probe

    probe.active = None
