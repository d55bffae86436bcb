"""Which module allocates: follows the calls of modules for one recorded step.

No hook is set on a module. From Python 3.12 on, `sys.monitoring` tells of the calls of
`torch.nn.Module._call_impl` only, which runs each module. Before, a profile function in C is called
at each call of the thread: see `_Profile`. Only the thread that makes the steps is followed. At
each call and return of a module the number of allocations is read, which tells for each event of
the recording in which module it was.
"""

import ctypes
import dis
import sys
from _thread import get_ident
from collections import Counter

from .frames import names_of_locals
from .objects import live_objects, with_subclasses
from .trouble import pass_on_if_foreign

# The rows of a device that are published.
MOST_ROWS = 100


class ModulePath:
    """The path of a module in its model, as in `blocks.3.mlp`, the name of its class, and the path
    of the module that it is part of, or None.
    """

    __slots__ = ("path", "kind", "parent")

    def __init__(self, path, kind, parent):
        self.path, self.kind, self.parent = path, kind, parent


def paths_of(modules):
    """{id of a module: ModulePath}. Of the model with the most modules, paths are those that
    `named_modules()` gives; those of others begin with their class. A model itself has the name of
    its class.
    """
    children, is_part = {}, set()
    for module in modules:
        members = object.__getattribute__(module, "__dict__").get("_modules") or {}
        parts = [(name, part) for name, part in list(members.items()) if part is not None]
        children[id(module)] = parts
        is_part.update(id(part) for _, part in parts)
    models = []
    for module in modules:
        if id(module) not in is_part:
            # (start of the paths below, path, path of the parent, module)
            paths, waiting = {}, [("", None, None, module)]
            while waiting:
                start, path, parent, part = waiting.pop()
                if id(part) not in paths:
                    paths[id(part)] = (path, parent, type(part).__name__)
                    waiting += [
                        (start + name + ".", start + name, path, it)
                        for name, it in children.get(id(part), ())
                    ]
            models.append((type(module).__name__, paths))
    models.sort(key=lambda model: -len(model[1]))
    found = {}
    for place, (name, paths) in enumerate(models):
        start = "" if place == 0 else name + "."
        for key, (path, parent, kind) in paths.items():
            if path is None:
                found.setdefault(key, ModulePath(name, kind, None))
            else:
                parent = name if parent is None else start + parent
                found.setdefault(key, ModulePath(start + path, kind, parent))
    return found


class Tracker:
    """The calls of modules in one thread. `count()` returns the number of allocations so far of
    each device.
    """

    def __init__(self, code, paths, count):
        self.code, self.paths, self.count = code, paths, count
        self.thread = get_ident()
        # Calls that run: (id of the frame, path).
        self.running = []
        # (allocations so far, path from then on), in order; the path is None outside of modules.
        self.log = []
        # Ends of calls that no other module made: (place in the log of the beginning, and of the
        # end).
        self.outermost = []
        self.calls = Counter()
        # The first error, as a sentence.
        self.error = None
        self._first = 0
        self._source = None

    def start(self):
        """Follows the calls of this thread from now on. Returns a sentence where that cannot be."""
        self.log.append((self.count(), None))
        if hasattr(sys, "monitoring"):
            source = _Monitoring(self)
        elif sys.implementation.name == "cpython" and sys.getprofile() is None:
            source = _Profile(self)
        else:
            return "the program has a profiler of its own"
        error = source.start()
        if error is None:
            self._source = source
        return error

    def stop(self):
        if self._source is not None:
            self._source.stop()
            self._source = None

    # In the thread that is followed.

    def call(self, method, frame):
        try:
            method(frame)
        except Exception as error:
            pass_on_if_foreign(error)
            self.error = self.error or "%s: %.200s" % (type(error).__name__, error)

    def enter(self, frame):
        """`frame` begins to run the code."""
        self._leave_lost(frame.f_back)
        path = self.running[-1][1] if self.running else None
        for address, name in names_of_locals(frame).items():
            if name == "self" and address in self.paths:
                path = self.paths[address].path
        if not self.running:
            self._first = len(self.log)
        self.running.append((id(frame), path))
        if path is not None:
            self.calls[path] += 1
        self.log.append((self.count(), path))

    def leave(self, frame):
        """`frame` ends."""
        known = id(frame)
        if any(key == known for key, _ in self.running):
            while self.running.pop()[0] != known:
                pass
            self._left()

    def _left(self):
        path = self.running[-1][1] if self.running else None
        self.log.append((self.count(), path))
        if not self.running:
            self.outermost.append((self._first, len(self.log) - 1))

    def _leave_lost(self, frame):
        """Ends calls that an exception ended: those that did not make the call of this frame."""
        while frame is not None and frame.f_code is not self.code:
            frame = frame.f_back
        while self.running and (frame is None or self.running[-1][0] != id(frame)):
            self.running.pop()
            if not self.running:
                self._left()


class _Monitoring:
    """Python 3.12 and later."""

    def __init__(self, tracker):
        self.tracker, self.tool = tracker, None

    def start(self):
        monitoring = sys.monitoring
        self.tool = next((tool for tool in (4, 3) if monitoring.get_tool(tool) is None), None)
        if self.tool is None:
            return "other tools use all of sys.monitoring"
        monitoring.use_tool_id(self.tool, "gputop")
        events = monitoring.events
        monitoring.register_callback(self.tool, events.PY_START, self._on_start)
        monitoring.register_callback(self.tool, events.PY_RETURN, self._on_return)
        monitoring.set_local_events(
            self.tool, self.tracker.code, events.PY_START | events.PY_RETURN
        )
        return None

    def stop(self):
        monitoring = sys.monitoring
        monitoring.set_local_events(self.tool, self.tracker.code, 0)
        for event in (monitoring.events.PY_START, monitoring.events.PY_RETURN):
            monitoring.register_callback(self.tool, event, None)
        monitoring.free_tool_id(self.tool)

    def _on_start(self, code, offset):
        if get_ident() == self.tracker.thread:
            self.tracker.call(self.tracker.enter, sys._getframe(1))

    def _on_return(self, code, offset, value):
        if get_ident() == self.tracker.thread:
            self.tracker.call(self.tracker.leave, sys._getframe(1))


class _Profile:
    """CPython before 3.12.

    A profile function of Python would keep the arguments of each frame alive in a dictionary until
    the frame ends. One of C does not: int function(object, frame, event, argument).
    `PyObject_IsTrue` can be one, since it leaves the last three alone. It calls `__bool__`, and
    passes on exceptions, which may come from signal handlers of the program.
    """

    def __init__(self, tracker):
        self.tracker = tracker
        self._code, self._bytes = tracker.code, tracker.code.co_code
        self._return, self._begin = dis.opmap["RETURN_VALUE"], dis.opmap.get("RESUME")
        kind = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.py_object)
        self._set = kind(("PyEval_SetProfile", ctypes.pythonapi))

    def start(self):
        function = ctypes.cast(ctypes.pythonapi.PyObject_IsTrue, ctypes.c_void_p)
        self._set(function, self)
        return None

    def stop(self):
        # In another thread it ends at its next event.
        self.tracker, tracker = None, self.tracker
        if get_ident() == tracker.thread and sys.getprofile() is self:
            self._set(None, None)

    def __bool__(self):
        frame = sys._getframe(1)
        if frame.f_code is not self._code:
            return False
        tracker = self.tracker
        if tracker is None:
            if sys.getprofile() is self:
                self._set(None, None)
            return False
        # The other events are calls of C in the frame, and an exception that ends it.
        at = frame.f_lasti
        if at < 0 or self._bytes[at] == self._begin:
            tracker.call(tracker.enter, frame)
        elif self._bytes[at] == self._return:
            tracker.call(tracker.leave, frame)
        return False


class Recording:
    """One recorded step, followed by module. `blocks` are those at its beginning. Sizes are those
    that the program requested, as PyTorch records them: blocks may be larger.
    """

    def __init__(self, probe, devices, blocks):
        torch = probe.torch
        kinds = with_subclasses(torch.nn.Module)
        modules = live_objects(kinds)
        self.devices = devices
        self.before = {index: {} for index in devices}
        for place, address in enumerate(blocks.address):
            if blocks.device[place] in self.before:
                size = blocks.requested[place] or blocks.size[place]
                self.before[blocks.device[place]][address] = size
        stats = torch._C._cuda_memoryStats
        count = lambda: [stats(index)["allocation"]["all"]["allocated"] for index in devices]
        code = torch.nn.Module._call_impl.__code__
        self.paths = paths_of(modules)
        self._parents = {known.path: known.parent for known in self.paths.values()}
        self.tracker = Tracker(code, self.paths, count)

    def device(self, place, trace, is_known):
        """The memory of `devices[place]` by module. `trace` has the events of the device;
        `is_known(event)` says whether Python allocated it.
        """
        first = self.tracker.log[0][0][place]
        log = [(counts[place] - first, path) for counts, path in self.tracker.log]
        events, at, allocations = [], 0, 0
        # The place in `events` where each entry of the log begins.
        begins = []
        for event in trace:
            if event["action"] == "alloc":
                while at < len(log) and log[at][0] <= allocations:
                    begins.append(len(events))
                    at += 1
                path = log[at - 1][1]
                what = ("module", path) if path is not None else ("other", is_known(event))
                events.append((event["addr"], event["size"], what))
                allocations += 1
            elif event["action"] == "free_requested":
                events.append((event["addr"], 0, None))
        begins += [len(events)] * (len(log) - len(begins))
        return self._sum_up(self.before[self.devices[place]], events, begins)

    def _sum_up(self, before, events, begins):
        live = {address: (size, ("before", None)) for address, size in before.items()}
        total = most = sum(before.values())
        ends = {}
        for first, last in self.tracker.outermost:
            ends.setdefault(begins[last], []).append(begins[first])
        activations = {}
        # The peak is found first: a copy of what lives at each new one would take too long.
        highest = 0
        for place, (address, size, what) in enumerate(events, 1):
            total += size if what else -live.pop(address, (0, None))[0]
            if what:
                live[address] = (size, what)
                if total > most:
                    most, highest = total, place
        live = {address: (size, ("before", None)) for address, size in before.items()}
        born = {}
        for place, (address, size, what) in enumerate([*events, (None, 0, None)]):
            for begin in ends.get(place, ()):
                self._add_activations(activations, live, born, begin)
            if place == highest:
                at_peak = list(live.values())
            if what:
                live[address], born[address] = (size, what), place
            else:
                live.pop(address, None)
        peaks, others = Counter(), Counter()
        for size, (kind, path) in at_peak:
            if kind == "module":
                peaks[path] += size
            else:
                others[kind if kind == "before" else "outside" if path else "backward"] += size
        found = {"peak_bytes": most, "before_bytes": others["before"]}
        found["outside_bytes"], found["backward_bytes"] = others["outside"], others["backward"]
        found["rows"], left_out = self._rows(
            self._with_parents(activations), self._with_parents(peaks)
        )
        if left_out:
            found["rows_left_out"] = left_out
        return found

    @staticmethod
    def _add_activations(activations, live, born, begin):
        """Adds what the modules of a call left behind. Of several calls the one with the most
        counts.
        """
        own = Counter()
        for address, (size, (kind, path)) in live.items():
            if kind == "module" and born[address] >= begin:
                own[path] += size
        for path, size in own.items():
            activations[path] = max(size, activations.get(path, 0))

    def _rows(self, activations, peaks):
        kinds = {known.path: known.kind for known in self.paths.values()}
        rows = []
        for path in sorted(activations.keys() | peaks.keys()):
            row = {"path": path, "activation_bytes": activations.get(path, 0)}
            row["peak_bytes"], row["calls"] = peaks.get(path, 0), self.tracker.calls[path]
            if path in kinds:
                row["type"] = kinds[path]
            rows.append(row)
        rows.sort(key=lambda row: -max(row["activation_bytes"], row["peak_bytes"]))
        return rows[:MOST_ROWS], len(rows[MOST_ROWS:])

    def _with_parents(self, sizes):
        """The bytes of each path, with those of the modules in it."""
        found = Counter()
        for path, size in sizes.items():
            while path is not None:
                found[path] += size
                path = self._parents.get(path)
        return found
