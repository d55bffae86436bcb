"""The ledger of marks: which groups of tensors were there at each mark of the program, and which
came and went between two of them. Pure logic, apart from `caller`.
"""

import sys
import time
from collections import Counter, deque

# Marks that are kept, and groups that they have together: those of older marks are dropped.
MOST_MARKS, MOST_GROUPS = 32, 20000
# Pairs of marks that are kept and published, and the groups of a pair that are published.
MOST_PAIRS, PUBLISHED = 16, 24
# The groups of a pair in an answer.
ANSWERED = 200
# Reading all tensors at marks may take CPU time of one part in so many of the program's time, after
# so many seconds. At other marks only the totals are read.
SHARE, BURST = 50, 2.0
NAME = 80

# Marks that the program set before CUDA started, when no GPU memory was used.
early = deque(maxlen=MOST_MARKS)


def mark(name=None, since=None):
    """Sets a mark of the program. `since` is the mark at which its phase began. Returns the mark;
    None if it could not be set.
    """
    probe = getattr(sys.modules.get("gputop_probe.probe"), "active", None)
    name = "mark" if name is None else str(name)[:NAME]
    if probe is not None:
        return probe.mark(name, caller(), since)
    early.append(Mark(name, None, time.time(), caller(), {}, {}))
    return early[-1]


def caller():
    """The line that set the mark, as in `train.py:40 in main`; None if it cannot be told."""
    frame = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        # The package, also as a stub inside another package.
        if "gputop_probe" not in module.split("."):
            break
        frame = frame.f_back
    if frame is None:
        return None
    code = frame.f_code
    place = "%s:%d" % (code.co_filename.rsplit("/", 1)[-1], frame.f_lineno)
    return place if code.co_name == "<module>" else "%s in %s" % (place, code.co_name)


class Mark:
    """The memory of the GPUs at a mark.

    `allocated` is {device: bytes}. `groups` is {key: [count, bytes]} with the keys of `key_of`, and
    None if only the totals were read. `lines` has, by key, the bytes of each line that allocated
    them, where a recording saw that.
    """

    __slots__ = ("name", "step", "time", "at", "allocated", "groups", "lines", "is_first", "ledger")

    def __init__(self, name, step, moment, at, allocated, groups=None, lines=None):
        self.name, self.step, self.time, self.at = name, step, moment, at
        self.allocated, self.groups, self.lines = allocated, groups, lines or {}
        # Whether the time of the program had room to read all tensors here, so that the next mark
        # reads them too.
        self.is_first = False
        # None before the probe is active. A forked child has another one than its parent.
        self.ledger = None

    def publish(self):
        found = {"name": self.name, "unix_time_seconds": self.time}
        for name, value in (("step", self.step), ("at", self.at)):
            if value is not None:
                found[name] = value
        return found


def key_of(device, label, block):
    """(device, category, kind, shape, dtype, is_part, size of the block without a tensor)"""
    if block is not None:
        return device, label, None, None, None, False, block
    return device, label.category, label.kind, label.shape, label.dtype, label.is_part, None


def groups_of(reading):
    """The groups of a reading: {key: [count, bytes]}."""
    found = {}
    for (device, label, block), group in reading.groups.items():
        entry = found.setdefault(key_of(device, label, block), [0, 0])
        entry[0] += group.count
        entry[1] += group.bytes
    return found


def lines_of(blocks, labels, libraries, line_of):
    """{key: Counter of bytes by line} of the blocks that a recording saw. `line_of(frames)` returns
    the line of a block, or None.

    PyTorch keeps the frames of a block until it is freed, also when the recording has ended.
    """
    found, known = {}, {}
    for place, frames in enumerate(blocks.frames):
        if not frames:
            continue
        # PyTorch has one object for each frame of a snapshot.
        stack = tuple(map(id, frames))
        line = known[stack] if stack in known else known.setdefault(stack, line_of(frames))
        if line is None:
            continue
        size = blocks.size[place]
        label, block = labels.get(place), None
        if label is None:
            block = size
            label = (
                "graph_pools"
                if blocks.private[place]
                else "libraries"
                if libraries.get(blocks.address[place]) == size
                else "activations"
            )
        key = key_of(blocks.device[place], label, block)
        found.setdefault(key, Counter())[line] += size
    return found


def entry_of(key, count, size):
    """The fields of a group in the state."""
    device, category, kind, shape, dtype, is_part, block = key
    found = {"cuda_device": device, "category": category, "count": count, "bytes": size}
    for name, value in (
        ("kind", kind),
        ("shape", shape),
        ("dtype", dtype),
        ("block_bytes", block),
        ("part", is_part or None),
    ):
        if value is not None:
            found[name] = value
    return found


def compare(since, until, most):
    """The groups that changed between two marks with groups: at most so many, the largest change
    first. Returns (groups, those left out or None).
    """
    changed = []
    for key in since.groups.keys() | until.groups.keys():
        old_count, old_size = since.groups.get(key, (0, 0))
        count, size = until.groups.get(key, (0, 0))
        if (count, size) != (old_count, old_size):
            changed.append((key, count, size, count - old_count, size - old_size))
    changed.sort(key=lambda group: (-abs(group[4]), -abs(group[3]), str(group[0])))
    groups = []
    for key, count, size, count_change, bytes_change in changed[:most]:
        entry = entry_of(key, count, size)
        entry["count_change"], entry["bytes_change"] = count_change, bytes_change
        line = _line(since.lines.get(key), until.lines.get(key), bytes_change)
        if line is not None:
            entry["allocated_at"] = line
        groups.append(entry)
    rest = changed[most:]
    left_out = {"count": len(rest), "bytes_change": sum(group[4] for group in rest)}
    return groups, left_out if rest else None


def _line(before, after, change):
    """The line whose bytes changed most in the direction of the group."""
    difference = Counter(after or {})
    difference.subtract(before or {})
    sign = 1 if change >= 0 else -1
    user, inner = max(difference, key=lambda line: sign * difference[line], default=(None, None))
    if user is None or sign * difference[user, inner] <= 0:
        return None
    return {"user": user, "inner": inner} if inner and inner != user else {"user": user}


class Pair:
    """Two marks that follow each other, or begin and end a phase, each time that both came."""

    def __init__(self, since, until):
        self.times = 0
        # {device: bytes} of all times together.
        self.total = Counter()
        # The number of the time that the groups are of, and the groups.
        self.groups_from, self.groups, self.left_out = None, [], None
        self.add(since, until)

    def add(self, since, until):
        self.since, self.until = since, until
        self.times += 1
        for device, change in _changes(since, until).items():
            self.total[device] += change
        if since.groups is not None and until.groups is not None:
            self.groups_from = self.times
            self.groups, self.left_out = compare(since, until, PUBLISHED)

    def publish(self):
        found = _pair(self.since, self.until)
        found["times"] = self.times
        for device in found["devices"]:
            device["total_bytes_change"] = self.total[device["cuda_device"]]
        if self.groups_from is not None:
            found["groups_from"], found["groups"] = self.groups_from, self.groups
            if self.left_out is not None:
                found["groups_left_out"] = self.left_out
        return found


def _changes(since, until):
    """{device: bytes} by which the memory of tensors changed."""
    return {
        device: until.allocated.get(device, 0) - since.allocated.get(device, 0)
        for device in since.allocated.keys() | until.allocated.keys()
    }


def _pair(since, until):
    """The fields of a pair that need no groups."""
    found = {
        "since": since.publish(),
        "until": until.publish(),
        "seconds": max(0.0, until.time - since.time),
        "devices": [
            {
                "cuda_device": device,
                "allocated_bytes": until.allocated.get(device, 0),
                "bytes_change": change,
            }
            for device, change in sorted(_changes(since, until).items())
            if change or until.allocated.get(device)
        ],
    }
    return found


class Ledger:
    def __init__(self, now):
        self.marks = []
        self._pairs = {}
        # CPU seconds that reading all tensors at marks took, and since when.
        self._spent, self._began = 0.0, now
        while early:
            self.add(early.popleft())

    def wants_groups(self, now, since):
        """Whether all tensors are read at the next mark. `since` is the mark at which its phase
        began, or None. Returns that, and whether the marks after it read them for its sake.
        """
        if since is not None:
            return since.groups is not None, False
        if self.marks and self.marks[-1].is_first:
            return True, False
        has_room = self._spent < BURST + (now - self._began) / SHARE
        return has_room, has_room

    def spend(self, seconds):
        self._spent += seconds

    def add(self, mark, since=None):
        """Adds a mark, and the pairs that end with it. `since` is the mark at which its phase
        began.
        """
        mark.ledger = self
        previous = self.marks[-1] if self.marks else None
        self.marks.append(mark)
        if previous is not None:
            self._add_pair(previous, mark)
        if since is not None and since is not previous and since.ledger is self:
            self._add_pair(since, mark)
        del self.marks[:-MOST_MARKS]
        # The last two are kept whatever they need.
        room = MOST_GROUPS
        for place, kept in enumerate(reversed(self.marks)):
            room -= len(kept.groups or ())
            if room < 0 and place > 1:
                kept.groups, kept.lines = None, {}

    def _add_pair(self, since, until):
        name = (since.name, until.name)
        pair = self._pairs.pop(name, None)
        if pair is None:
            pair = Pair(since, until)
        else:
            pair.add(since, until)
        # The latest are last.
        self._pairs[name] = pair
        while len(self._pairs) > MOST_PAIRS:
            del self._pairs[next(iter(self._pairs))]

    def publish(self):
        return [pair.publish() for pair in list(self._pairs.values())]

    def answer(self, since, until):
        """Compares a mark with another, both named, or with a `Mark`. Returns the fields of
        the answer; raises LookupError with a sentence.
        """
        marks = list(self.marks)
        if isinstance(until, Mark):
            end = until
        else:
            end = self._find(marks, until)
            marks = marks[: marks.index(end)]
        begin = self._find(marks, since, until if end is not until else None)
        for mark in (begin, end):
            if mark.groups is None:
                raise LookupError(
                    "only the totals were read at the mark %s: the program sets marks so often "
                    "that reading all tensors at each would slow it down" % mark.name
                )
        found = _pair(begin, end)
        found["groups"], left_out = compare(begin, end, ANSWERED)
        if left_out is not None:
            found["groups_left_out"] = left_out
        return found

    def _find(self, marks, name, before=None):
        """The latest of some marks with a name."""
        for mark in reversed(marks):
            if mark.name == name:
                return mark
        if before is not None and any(mark.name == name for mark in self.marks):
            raise LookupError("no mark %s is before the mark %s" % (name, before))
        if not self.marks:
            raise LookupError("the program has set no mark: `gputop_probe.mark(NAME)` sets one")
        names = list(dict.fromkeys(mark.name for mark in self.marks))
        raise LookupError("there is no mark %s; the last ones are %s" % (name, ", ".join(names)))


class Phase:
    """Marks the beginning and the end of a `with` block: the end is the mark `NAME end`."""

    def __init__(self, name):
        self.name, self._began = str(name), []

    def __enter__(self):
        self._began.append(mark(self.name))
        return self

    def __exit__(self, *error):
        mark(self.name[: NAME - 4] + " end", self._began.pop())
        return False
