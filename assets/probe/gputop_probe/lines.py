"""Which line allocates: records stacks for a few steps, on request only, and never touches a
recording that the program has on.

A recording starts and ends in the step hook, at the end of a step. A program without steps is
recorded for some seconds.
"""

import os
import time
from collections import Counter, deque

from . import kept, modules
from .authors import HERE, STANDARD, TORCH, is_library
from .trouble import is_ours

# Seconds that a recorded stack costs for each allocation: 1.0 to 1.8 µs, measured with PyTorch 2.5
# to 2.15.
SECONDS_PER_ALLOCATION = 1.5e-6
# Without steps a recording ends after so many seconds.
SECONDS = 3.0
_MOST_EVENTS = 200000
_ROWS = 20
_NOT_STARTED, _RUNNING, _WRITING = "waiting", "running", "writing"


def is_user_file(file):
    return not (is_library(file) or "torchinductor_" in file)


def user_and_inner(stack):
    """The user's line and the innermost line outside torch, of frames [(file, line, function)],
    innermost first.
    """
    user = inner = None
    for file, number, function in stack:
        is_known = (
            file.startswith((HERE, "<")) or "torchinductor_" in file or file.startswith(STANDARD)
        )
        if TORCH in file or is_known and "site-packages" not in file:
            continue
        place = "%s:%d" % (os.path.basename(file), number)
        place = place if function == "<module>" else "%s in %s" % (place, function)
        inner = inner or place
        if is_user_file(file):
            user = place
            break
    return user, inner


def _stack(entry):
    found = []
    for frame in entry.get("frames") or ():
        if (
            isinstance(frame, dict)
            and str(frame.get("filename", "")).endswith((".py", ">"))
            or "ipykernel" in str(frame.get("filename", ""))
        ):
            found.append((frame["filename"], frame["line"], frame["name"]))
    return found


def line_of(frames):
    """The line of a block: (user's line, innermost line outside torch), from the frames of a
    snapshot. None if it has no Python frames.
    """
    user, inner = user_and_inner(_stack({"frames": frames}))
    return (user or inner, inner) if user or inner else None


def blocks_of(snapshot):
    """Yields (device, address, block) of each live block of a snapshot."""
    for segment in snapshot["segments"]:
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                yield segment["device"], address, block
            address += block["size"]


def rows(places):
    """Groups [(user, inner, bytes)] into rows for the screen, the largest first."""
    sizes, counts = Counter(), Counter()
    for user, inner, size in places:
        sizes[user, inner] += size
        counts[user, inner] += 1
    found = []
    for (user, inner), size in sizes.most_common(_ROWS):
        row = {"bytes": size, "count": counts[user, inner], "user": user}
        if inner and inner != user:
            row["inner"] = inner
        found.append(row)
    left = sum(sizes.values()) - sum(row["bytes"] for row in found)
    if left:
        found.append({"bytes": left, "user": "other lines"})
    return found


def rebuild_peak(live, events):
    """The live blocks at the highest moment: `live` is {address: (size, what)} at the start,
    `events` are (action, address, size, what) in order. Returns (bytes, [(size, what)]).
    """
    now = dict(live)
    total = most = sum(size for size, _ in now.values())
    at = 0
    for index, (action, address, size, what) in enumerate(events, 1):
        if action == "alloc":
            now[address] = (size, what)
            total += size
            if total > most:
                most, at = total, index
        elif action == "free_requested" and address in now:
            total -= now.pop(address)[0]
    now = dict(live)
    for action, address, size, what in events[:at]:
        if action == "alloc":
            now[address] = (size, what)
        elif action == "free_requested":
            now.pop(address, None)
    return most, list(now.values())


class Recorder:
    def __init__(self, probe):
        self.probe = probe
        self.torch = probe.torch
        # The category of the block at an address, or None.
        self.label = lambda address: None
        # Where recorded blocks that stayed were allocated: {(device, address): (user, inner,
        # size)}.
        self.places = {}
        self._job = None
        self._steps = 0
        self._cost = None
        self._measured = None
        # The last predictions: other load on the machine makes single ones too low.
        self._predicted = deque(maxlen=5)

    # State.

    def is_users(self):
        """Whether the program itself records memory history. Unknown before torch 2.4: no."""
        job = self._job
        if job and job["state"] == _RUNNING:
            return False
        try:
            return bool(self.torch._C._cuda_isHistoryEnabled())
        except AttributeError:
            return False

    def state(self):
        found = {"state": "off"}
        job = self._job
        if job and job["state"] == _RUNNING:
            found = {"state": "on", "steps_left": max(0, job["until"] - self._steps)}
        elif self.is_users():
            found = {"state": "users"}
        if self._cost is not None:
            found["cost_percent"] = round(self._cost, 2)
        return found

    def after_step(self, step):
        """Runs at the end of each step."""
        self._steps = step
        job = self._job
        if job is not None:
            if job["state"] == _NOT_STARTED:
                self._start(job)
            elif job["state"] == _RUNNING and step >= job["until"]:
                self._finish(job)
        elif step % 32 in (0, 8):
            self._measure(step)

    def _allocations(self):
        return sum(
            self.torch._C._cuda_memoryStats(device)["allocation"]["all"]["allocated"]
            for device in range(self.torch.cuda.device_count())
        )

    def _measure(self, step):
        """Predicts the cost of a recording from the allocations of some steps."""
        now, count = time.perf_counter(), self._allocations()
        if step % 32 == 8 and self._measured and self._measured[0] == step - 8:
            elapsed = now - self._measured[1]
            if elapsed > 0:
                self._predicted.append(
                    100.0 * (count - self._measured[2]) * SECONDS_PER_ALLOCATION / elapsed
                )
                self._cost = sorted(self._predicted)[len(self._predicted) // 2]
            self._measured = None
        elif step % 32 == 0:
            self._measured = (step, now, count)

    # Requests, in the probe's thread.

    def answer(self, request):
        """Starts a recording for a request `record`, `peak`, `modules` or `snapshot`. The answer
        follows when it has ended.
        """
        job = self._job
        if job is not None:
            request.fail("another recording runs")
        elif self._version() < (2, 1):
            request.fail("recording stacks needs PyTorch 2.1 or newer")
        elif self.is_users() and request.name != "record":
            request.fail("the program records memory history itself")
        elif self.is_users():
            request.answer(**self._read_users())
        else:
            steps = request.arguments.get("steps")
            most = {"peak": 2, "modules": 1}.get(request.name, 100)
            steps = max(1, min(steps if type(steps) is int else 3, most))
            self._job = {
                "kind": request.name,
                "state": _NOT_STARTED,
                "steps": steps,
                "asked": time.monotonic(),
                "request": request,
            }

    def turn(self, now):
        """Goes on with a recording in a program without steps, and ends one that waits too long."""
        job = self._job
        if job is None or job.get("is_queued"):
            return
        if job["state"] == _WRITING:
            self._write(job)
            return
        ended_at = self.probe.steps.ended_at
        is_stepping = ended_at is not None and now - ended_at < max(
            2.0, 3 * (self.probe.steps.seconds() or 0)
        )
        if job["state"] == _NOT_STARTED and not is_stepping and now - job["asked"] > 1.0:
            self._queue(job, self._start)
        elif job["state"] == _RUNNING and not is_stepping and now - job["began"] > SECONDS:
            self._queue(job, self._finish)
        elif now - job["asked"] > 600.0:
            self._queue(job, self._finish)

    def _queue(self, job, function):
        def run():
            job["is_queued"] = False
            if self._job is job:
                function(job)

        def give_up():
            job["is_queued"] = False

        job["is_queued"] = True
        self.probe.in_program(run, give_up)

    def _end(self, job, error=None, **content):
        self._job = None
        if error:
            job["request"].fail(error)
        else:
            job["request"].answer(**content)

    def _version(self):
        return tuple(
            int(part)
            for part in self.torch.__version__.split("+")[0].split(".")[:2]
            if part.isdigit()
        )

    def _start(self, job):
        if self.is_users():
            self._end(job, "the program records memory history itself")
            return
        blocks = self.probe.allocator.read()
        job["before"] = {
            address: (size, device)
            for address, size, device in zip(blocks.address, blocks.size, blocks.device)
        }
        has_events = job["kind"] != "record"
        events, which = (_MOST_EVENTS, "all") if has_events else (1, "state")
        self.torch.cuda.memory._record_memory_history(
            enabled=which, context=which, stacks="python", max_entries=events
        )
        if job["kind"] == "modules":
            devices = [index for index, (_, peak, _) in self.probe.levels.items() if peak]
            job["modules"] = modules.Recording(self.probe, devices, blocks)
            error = job["modules"].tracker.start()
            if error is not None:
                self._stop(None)
                self._end(job, error)
                return
        job.update(state=_RUNNING, began=time.monotonic(), until=self._steps + job["steps"])

    def _finish(self, job):
        if job["state"] == _NOT_STARTED:
            self._end(job, "no step ended in 10 minutes")
            return
        try:
            if "modules" in job:
                job["modules"].tracker.stop()
            job["steps"] = self._steps - (job["until"] - job["steps"])
            snapshot = self.torch.cuda.memory._snapshot()
            if job["kind"] == "snapshot":
                # The program goes on while the probe's thread writes the file.
                self._stop(None)
                job.update(state=_WRITING, snapshot=snapshot)
                return
            read = {"record": self._lines, "peak": self._peak, "modules": self._modules}
            content = read[job["kind"]](snapshot, job)
        except Exception as error:
            if not is_ours(error):
                raise
            self._stop(None)
            self._end(job, "%s: %.200s" % (type(error).__name__, error))
            return
        self._stop(snapshot if job["kind"] == "record" else None)
        self._end(job, **content)

    def _stop(self, snapshot):
        """Ends the recording, unless the program started its own since: then there are more
        events than ours keeps.
        """
        if snapshot is None or not any(
            len(trace) > 1 for trace in snapshot.get("device_traces", ())
        ):
            self.torch.cuda.memory._record_memory_history(enabled=None)

    def _write(self, job):
        """Writes the snapshot of a recording, in the probe's thread."""
        from .ooms import write_snapshot

        path = job["request"].arguments.get("path")
        content = write_snapshot(self.torch, path, job.pop("snapshot"))
        error = content.pop("error", None)
        self._end(job, error, **dict(content, steps=job["steps"]))

    def _read_users(self):
        places, count = [], 0
        for _, _, block in blocks_of(self.torch.cuda.memory._snapshot()):
            user, inner = user_and_inner(_stack(block))
            if user or inner:
                count += 1
                places.append((user or inner, inner, block["size"]))
        return {"lines": rows(places), "blocks": count}

    def _lines(self, snapshot, job):
        places = []
        now = set()
        for device, address, block in blocks_of(snapshot):
            now.add((device, address))
            user, inner = user_and_inner(_stack(block))
            if not user and not inner:
                if address in job["before"]:
                    continue
                # The autograd engine's threads have no Python frames.
                user = inner = "backward"
            self.places[device, address] = (user or inner, inner, block["size"])
            places.append((user or inner, inner, block["size"]))
        self.places = {place: line for place, line in self.places.items() if place in now}
        return {"lines": rows(places), "blocks": len(places), "steps": job["steps"]}

    def _peak(self, snapshot, job):
        devices = []
        for device, trace in enumerate(snapshot["device_traces"]):
            live = {
                address: (size, (self.label(address) or "other", None, None))
                for address, (size, index) in job["before"].items()
                if index == device
            }
            events = []
            for event in trace:
                if event["action"] not in ("alloc", "free_requested"):
                    continue
                what = None
                if event["action"] == "alloc":
                    user, inner = user_and_inner(_stack(event))
                    if not user and not inner:
                        user = inner = "backward"
                    # Gradients stay where they are from this step to the next reading.
                    what = (self.label(event["addr"]) or "activations", user or inner, inner)
                events.append((event["action"], event["addr"], event["size"], what))
            if not live and not events:
                continue
            peak, parts = rebuild_peak(live, events)
            categories = Counter()
            for size, (category, _, _) in parts:
                categories[category] += size
            places = [(user, inner, size) for size, (_, user, inner) in parts if user]
            devices.append(
                {
                    "cuda_device": device,
                    "peak_bytes": peak,
                    "category_bytes": dict(categories),
                    "lines": rows(places),
                    "is_complete": len(trace) < _MOST_EVENTS,
                }
            )
        return {"peak": devices, "steps": job["steps"]}

    def _modules(self, snapshot, job):
        recording, found = job["modules"], []
        if recording.tracker.error is not None:
            raise RuntimeError(recording.tracker.error)
        for place, device in enumerate(recording.devices):
            trace = snapshot["device_traces"][device]
            if len(trace) >= _MOST_EVENTS:
                raise RuntimeError("a step has more than %d allocations" % (_MOST_EVENTS // 2))
            is_known = lambda event: user_and_inner(_stack(event)) != (None, None)
            memory = recording.device(place, trace, is_known)
            if memory["rows"]:
                found.append(dict(memory, cuda_device=device))
        least = min((memory["peak_bytes"] for memory in found), default=0) // 100
        return {
            "modules": found,
            "kept": kept.kept_locals(self.probe, least) if found else [],
            "steps": job["steps"],
        }

    def line_of(self, device, blocks):
        """Where most of the blocks {(address, size)} were allocated, of those that a recording
        saw: {"user", "inner"}, or None.
        """
        # A block of another size took the place of the recorded one.
        known = ((self.places.get((device, address)), size) for address, size in blocks)
        counts = Counter(place[:2] for place, size in known if place and place[2] == size)
        if not counts:
            return None
        user, inner = counts.most_common(1)[0][0]
        return {"user": user, "inner": inner} if inner and inner != user else {"user": user}
