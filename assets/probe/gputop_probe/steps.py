"""Counts training steps, from calls of `optimizer.step()`."""

import collections
import functools
import importlib
import time
import weakref
from _thread import get_ident


class Optimizer:
    """An optimizer of the program, and the thread that called its `step` last, or None."""

    __slots__ = ("reference", "thread")

    def __init__(self, reference, thread):
        self.reference, self.thread = reference, thread


class Steps:
    def __init__(self):
        self.count = 0
        self.ended_at = None
        # Optimizers by their `id`.
        self.optimizers = {}
        self._clean_at = 16
        self._durations = collections.deque(maxlen=20)
        self._stepped = set()
        self._previous = self._last = None

    def add(self, optimizer, thread=None):
        """Remembers an optimizer, if it is new. A weak reference without a callback: Python
        swallows errors of callbacks.
        """
        key = id(optimizer)
        known = self.optimizers.get(key)
        if known is None or known.reference() is not optimizer:
            self.optimizers[key] = Optimizer(weakref.ref(optimizer), thread)
            if len(self.optimizers) > self._clean_at:
                self.optimizers = {
                    key: known
                    for key, known in self.optimizers.items()
                    if known.reference() is not None
                }
                self._clean_at = 2 * len(self.optimizers) + 16
        elif thread is not None:
            known.thread = thread

    def note(self, optimizer):
        """Counts a call of `step`. Returns whether it ends a training step.

        A program may have several optimizers (GANs), or one per parameter that steps during
        backward. A training step begins when parameters are updated again. They stand for the
        optimizer, because some programs make a new one each time. The step ends with the optimizer
        that was the last one in the step before.
        """
        self.add(optimizer, get_ident())
        groups = optimizer.param_groups
        key = id(groups[0]["params"][0]) if groups and groups[0]["params"] else id(optimizer)
        if self.count == 0 or key in self._stepped:
            self.count += 1
            self._last = self._previous
            self._stepped.clear()
        self._stepped.add(key)
        self._previous = key
        if self._last is not None and key != self._last:
            return False
        now = time.monotonic()
        if self.ended_at is not None:
            self._durations.append(now - self.ended_at)
        self.ended_at = now
        return True

    def seconds(self):
        """The mean duration of the last steps, or None."""
        durations = list(self._durations)
        return sum(durations) / len(durations) if durations else None


def watch(torch, after_step):
    """Calls `after_step(optimizer)` after each `optimizer.step()`."""
    module = importlib.import_module("torch.optim.optimizer")
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register is None:
        _wrap_steps(torch.optim.Optimizer, after_step)
        return
    # The place changed with PyTorch 2.3.
    places = [getattr(torch, name, None) for name in ("compiler", "_utils")]
    is_compiling = next(
        filter(None, (getattr(place, "is_compiling", None) for place in places)), None
    )

    def hook(optimizer, arguments, keywords):
        # torch.compile traces the hooks of a compiled `step`: there, nothing of this may remain.
        if is_compiling is None or not is_compiling():
            after_step(optimizer)

    register(hook)


def _wrap_steps(base, after_step):
    """PyTorch before 2.0 has no hook."""
    running = []

    def wrap(kind):
        step = kind.__dict__.get("step")
        if step is None or hasattr(step, "_gputop_probe"):
            return

        @functools.wraps(step)
        def wrapper(*arguments, **keywords):
            # A subclass may call the `step` of its base class.
            is_outer = not running
            running.append(None)
            try:
                result = step(*arguments, **keywords)
            finally:
                running.pop()
            if is_outer and arguments:
                after_step(arguments[0])
            return result

        wrapper._gputop_probe = True
        kind.step = wrapper

    from .objects import with_subclasses

    for kind in with_subclasses(base):
        if kind is not base:
            wrap(kind)
    original = base._hook_for_profile

    @functools.wraps(original)
    def hook_for_profile(optimizer):
        original(optimizer)
        wrap(type(optimizer))

    base._hook_for_profile = hook_for_profile
