"""Decides from the live blocks of one census after the other which groups of blocks leak.

A block leaks when it stays, and when blocks like it keep coming: blocks that came in every quarter
of a window of censuses are still alive, and the group as a whole grew by as much. So nothing is
reported for warm-up (nothing comes later), for variable lengths (nothing stays), for a buffer that
replaces its oldest entry (the group does not grow), or for a cache that fills more and more slowly
(the last quarter is too small), or for blocks that only replace others of their size, such as
gradients (the number of blocks of that size does not grow).

Pure logic: no torch, no clock, no gc.
"""

from bisect import bisect
from collections import Counter, deque

# The fewest censuses that can show a leak.
SHORTEST = 16
# Blocks younger than this many censuses may be locals of the loop.
YOUNG = 2
# The last quarter of a window has at least this part of an average quarter's bytes.
STEADY = 0.5
# Live bytes grew by at least this part of the bytes that came.
STAYED = 0.6
# More sizes of blocks than this are not remembered once no block has them.
MOST_SIZES = 4096


class Block:
    """A live block: the census and step in which it was first seen, the time in seconds, its
    size in bytes and category.
    """

    __slots__ = ("device", "address", "size", "category", "census", "step", "time")

    def __init__(self, device, address, size, category, census, step, time):
        self.device = device
        self.address = address
        self.size = size
        self.category = category
        self.census = census
        self.step = step
        self.time = time


class Growth:
    """A group of blocks that leaks. `blocks` are those that came in the window and stayed,
    oldest first.
    """

    def __init__(self, blocks, censuses, steps, seconds):
        self.blocks = blocks
        self.censuses = censuses
        # The window's length. `steps` is 0 where no optimizer stepped.
        self.steps = steps
        self.seconds = seconds

    @property
    def bytes(self):
        return sum(block.size for block in self.blocks)

    def has_steps(self):
        """Whether optimizers stepped while the blocks came."""
        return 2 * len({block.step for block in self.blocks}) > len(
            {block.census for block in self.blocks}
        )

    def rates(self, blocks):
        """Bytes per step, blocks per step (None where no optimizer stepped), and bytes per
        second of some of the blocks.
        """
        blocks = sorted(blocks, key=lambda block: block.census)
        first, last = blocks[0], blocks[-1]
        # Those that came first are the start of the span.
        later = [block for block in blocks if block.census > first.census]
        amount, steps, seconds = (
            sum(block.size for block in later),
            last.step - first.step,
            last.time - first.time,
        )
        by_second = round(amount / seconds) if seconds > 0 else None
        if not self.has_steps() or steps <= 0:
            return None, None, by_second
        return round(amount / steps), round(len(later) / steps, 2), by_second


class _Entry:
    """One census: its number, step and time, and the live bytes of each group."""

    __slots__ = ("census", "step", "time", "live")

    def __init__(self, census, step, time, live):
        self.census = census
        self.step = step
        self.time = time
        self.live = live


class History:
    """The live blocks with their ages, and the size of each group (device and category) in past
    censuses.
    """

    def __init__(self):
        self.blocks = {}
        self.count = 0
        self._recent = deque(maxlen=8 * SHORTEST)
        # The whole past, thinned out: every `_stride`-th census.
        self._sparse = []
        self._stride = 1
        # (device, category, size): [(census, number of live blocks)], one entry for each change of
        # the number.
        self._counts = {}

    def take(self, step, time, blocks):
        """Takes a census: (device, address, size, category) of each live block."""
        before, now, live, counts = self.blocks, {}, {}, {}
        for device, address, size, category in blocks:
            place = (device, address)
            block = before.get(place)
            if block is None or block.size != size:
                block = Block(device, address, size, category, self.count, step, time)
            else:
                block.category = category
            now[place] = block
            kind = (device, category, size)
            counts[kind] = counts.get(kind, 0) + 1
        self.blocks = now
        for (device, category, size), count in counts.items():
            group = (device, category)
            live[group] = live.get(group, 0) + count * size
        self._note_counts(counts)
        entry = _Entry(self.count, step, time, live)
        self._recent.append(entry)
        if self.count % self._stride == 0:
            self._sparse.append(entry)
            if len(self._sparse) >= 8 * SHORTEST:
                del self._sparse[1::2]
                self._stride *= 2
        self.count += 1

    def _note_counts(self, counts):
        """Remembers the number of live blocks of each size, where it changed."""
        for kind in self._counts.keys() | counts.keys():
            changes, count = (
                self._counts.setdefault(kind, [(self.count - 1, 0)]),
                counts.get(kind, 0),
            )
            if changes[-1][1] == count:
                continue
            changes.append((self.count, count))
            if len(changes) >= 16 * SHORTEST:
                # Two old changes become one, with the higher number: growth since then is never
                # overestimated.
                old = changes[: 8 * SHORTEST]
                changes[: 8 * SHORTEST] = [
                    (first[0], max(first[1], second[1]))
                    for first, second in zip(old[::2], old[1::2])
                ]
        if len(self._counts) > MOST_SIZES:
            self._counts = {
                kind: changes for kind, changes in self._counts.items() if changes[-1][1]
            }

    def _count_at(self, kind, census):
        """The number of live blocks of a device, category and size at a past census."""
        changes = self._counts.get(kind, [])
        at = bisect(changes, (census, float("inf"))) - 1
        return changes[at][1] if at >= 0 else 0

    def _without_replacements(self, blocks, window):
        """Leaves out blocks of sizes whose number did not grow in the window: a block at a new
        address may replace one at another.
        """
        start, end = window[:4], window[-4:]
        came = Counter(
            (block.device, block.category, block.size)
            for block in blocks
            if start[-1].census < block.census <= end[0].census
        )
        replaced = set()
        for kind, count in came.items():
            before = max(self._count_at(kind, entry.census) for entry in start)
            after = min(self._count_at(kind, entry.census) for entry in end)
            if after - before < STAYED * count:
                replaced.add(kind)
        return [
            block for block in blocks if (block.device, block.category, block.size) not in replaced
        ]

    def _windows(self):
        """Windows to test, shortest first: the last censuses, then longer and longer pasts."""
        recent = list(self._recent)
        length = SHORTEST
        while length <= len(recent):
            yield recent[-length:]
            length *= 2
        if self._stride > 1:
            yield self._sparse[len(self._sparse) // 2 :]
            yield self._sparse

    def growing(self):
        """Returns the groups that leak: {(device, category): Growth}."""
        if self.count < SHORTEST:
            return {}
        groups = {}
        for block in self.blocks.values():
            groups.setdefault((block.device, block.category), []).append(block)
        found = {}
        for window in self._windows():
            first, last = window[0], window[-1]
            for group, blocks in groups.items():
                came = [
                    block for block in blocks if first.census < block.census <= last.census - YOUNG
                ]
                came = self._without_replacements(came, window)
                if not _is_steady(came, window):
                    continue
                # The time between censuses varies: only what came between the two ends counts.
                start, end = window[:4], window[-4:]
                gained = sum(
                    block.size for block in came if start[-1].census < block.census <= end[0].census
                )
                before = max(entry.live.get(group, 0) for entry in start)
                after = min(entry.live.get(group, 0) for entry in end)
                if after <= before or after - before < STAYED * gained:
                    continue
                came.sort(key=lambda block: block.census)
                # A longer window is better evidence.
                found[group] = Growth(
                    came, last.census - first.census, last.step - first.step, last.time - first.time
                )
        return found

    def swelling(self):
        """Returns the devices whose live bytes rise all along a window, whether blocks come and
        stay or some get larger.
        """
        found = set()
        for window in self._windows():
            for group in window[-1].live:
                if rises([entry.live.get(group, 0) for entry in window]):
                    found.add(group[0])
        return found


def _is_steady(blocks, window):
    """Whether blocks came in each quarter of the window, and the rate of bytes in each was much the
    same.

    The censuses of a window may be at irregular times, so bytes per step count, or bytes per second
    where no optimizer steps.
    """
    if len(blocks) < 4:
        return False
    # The youngest blocks do not count.
    entries = window[:-YOUNG]
    edges = [entries[(len(entries) - 1) * quarter // 4] for quarter in range(5)]
    has_steps = edges[4].step - edges[0].step >= len(entries)
    places = [edge.step if has_steps else edge.time for edge in edges]
    totals, events = [0] * 4, [set() for _ in range(4)]
    for block in blocks:
        for quarter in range(4):
            if edges[quarter].census < block.census <= edges[quarter + 1].census:
                totals[quarter] += block.size
                events[quarter].add(block.census)
    # Two censuses may be so close to each other that nothing came between them.
    counts = [len(event) for event in events]
    if (
        min(counts) < 2
        or counts[3] < 3
        or sum(counts) < 11
        or min(after - before for before, after in zip(places, places[1:])) <= 0
    ):
        return False
    mean = sum(totals) / (places[4] - places[0])
    return all(
        totals[quarter] >= STEADY * mean * (places[quarter + 1] - places[quarter])
        for quarter in range(4)
    )


def is_spread(blocks, growth):
    """Whether `blocks`, part of a growth, came all along its window, and not only at one time."""
    if len(blocks) < 4:
        return False
    at = [block.census for block in growth.blocks]
    first, last = min(at), max(at)
    quarters = {min(3, 4 * (block.census - first) // max(1, last - first)) for block in blocks}
    return len(quarters) == 4


def rises(values):
    """Whether the values of each quarter are larger than those before. Values that vary by chance
    do that once in 10^7 times.

    Neighbours may be equal: the allocator rounds large blocks up to 2 MiB.
    """
    edges = [len(values) * quarter // 4 for quarter in range(5)]
    quarters = [values[first:last] for first, last in zip(edges, edges[1:])]
    return all(
        max(before) <= min(after) and min(before) < max(after)
        for before, after in zip(quarters, quarters[1:])
    )


class Trend:
    """Tells from the number and the bytes of live blocks, which are cheap to read, whether a
    census is worth its time.
    """

    def __init__(self):
        self._counts, self._bytes = deque(maxlen=16), deque(maxlen=16)

    def take(self, count, size):
        self._counts.append(count)
        self._bytes.append(size)

    def is_rising(self):
        if len(self._bytes) == self._bytes.maxlen and rises(list(self._bytes)):
            return True
        counts = list(self._counts)
        if len(counts) < 8:
            return False
        middle = len(counts) // 2
        # A single rise is warm-up.
        return min(counts[:4]) < min(counts[middle - 2 : middle + 2]) < min(counts[-4:])


class Reserved:
    """Watches for fragmentation: the allocator reserved far more than tensors ever needed at the
    same time.

    With variable shapes the cache is larger than the peak for a while: that is healthy.
    """

    # A smaller gap between reserved and peak is normal for a caching allocator: bytes, and part of
    # the reserved bytes.
    LEAST = 256 << 20
    PART = 0.4

    def __init__(self):
        self._count = {}
        self._peak = {}
        self._reserved = {}

    def take(self, device, reserved, peak):
        """Takes the reserved bytes, and the highest allocated bytes so far."""
        self._count[device] = self._count.get(device, 0) + 1
        # The program may have reset its peak.
        self._peak[device] = max(peak, self._peak.get(device, 0))
        self._reserved[device] = reserved

    def gap(self, device):
        """Returns the reserved bytes that were never needed, where they are too many; else None."""
        reserved = self._reserved.get(device, 0)
        gap = reserved - self._peak.get(device, 0)
        is_large = gap >= max(self.LEAST, self.PART * reserved)
        return gap if is_large and self._count[device] >= SHORTEST else None
