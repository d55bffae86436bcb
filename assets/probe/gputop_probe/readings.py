"""Sums up a reading of the allocator by category and by groups of equal tensors."""

import time

CATEGORIES = (
    "parameters",
    "gradients",
    "optimizer_state",
    "buffers",
    "named_tensors",
    "activations",
    "not_looked_at",
    "libraries",
    "graph_pools",
    "pending",
    "cache",
    "fragmentation",
)
# A block without a Python tensor belongs to a library if it was there at the end of the second
# step. Or if it is that old, in steps, and blocks of its size have not become more in that time.
FIRST_STEPS, OLD = 2, 20
# The same age in a program without steps, in readings; and where no tensor has a history, so that
# no graph holds anything.
OLD_READINGS, WITHOUT_GRAPH = 5, 2


class Group:
    """Blocks with equal labels."""

    __slots__ = ("count", "bytes", "first_seen")

    def __init__(self):
        self.count = self.bytes = 0
        self.first_seen = None


class DeviceReading:
    def __init__(self, memory):
        self.allocated, self.reserved, self.requested = (
            memory.allocated,
            memory.reserved,
            memory.requested,
        )
        self.categories = dict.fromkeys(CATEGORIES, 0)
        self.categories.update(memory.free)
        self.optimizer_state = {}

    def publish(self, reading):
        """The fields of the state that describe the device; `reading` is the one that it is of."""
        found = {
            "unix_time_seconds": reading.time,
            "allocated_bytes": self.allocated,
            "reserved_bytes": self.reserved,
        }
        if self.requested is not None:
            found["requested_bytes"] = self.requested
        if self.categories is not None:
            found["category_bytes"] = self.categories
        if self.optimizer_state:
            found["optimizer_state_bytes"] = self.optimizer_state
        return found


class Reading:
    """The memory of all devices at one moment.

    `step` is None in a program without steps. `groups` maps (device, label, size of the block) to a
    Group, and is None if no tensors were looked at; of blocks without a tensor the label is a
    category, of others the size is None.
    """

    def __init__(self, step, moment):
        self.step, self.moment = step, moment
        # Whether all objects were scanned for this reading, and whether that was done for it or for
        # one before.
        self.is_scan = self.has_scan = False
        self.time = time.time()
        self.devices = {}
        self.groups = None
        # Bytes that no tensor of Python holds, apart from libraries.
        self.hidden = 0


class History:
    """Remembers since when blocks are there."""

    def __init__(self):
        # Address → (size of the block, step of its first reading).
        self.first_seen = {}
        self.libraries = {}
        self.first_tick = None
        # Address → size of the blocks without a tensor of Python when objects were scanned.
        self.looked = {}
        # (device, size) of blocks without a tensor → (count, step since when it is not higher).
        self.counts = {}

    def note(self, blocks, tick):
        before = self.first_seen
        after = {}
        for address, size in zip(blocks.address, blocks.size):
            seen = before.get(address)
            after[address] = seen if seen is not None and seen[0] == size else (size, tick)
        self.first_seen = after

    def find_libraries(self, blocks, labels, tick, has_steps, is_attached):
        """Call it after a scan: a block without a label belongs to no tensor of Python then.

        In a program that ran before the probe did, a block of the first reading may belong to the
        graph that leaks.
        """
        if self.first_tick is None:
            self.first_tick = tick
        newest = self.first_tick + FIRST_STEPS - 1 if has_steps and not is_attached else -1
        has_graph = any(label.category == "activations" for label in labels.values())
        old = OLD if has_steps else OLD_READINGS if has_graph else WITHOUT_GRAPH
        hidden = [
            place
            for place in range(len(blocks.address))
            if place not in labels and not blocks.private[place]
        ]
        counts = {}
        for place in hidden:
            key = (blocks.device[place], blocks.size[place])
            counts[key] = counts.get(key, 0) + 1
        for key, count in counts.items():
            highest, since = self.counts.get(key, (0, tick))
            self.counts[key] = (count, tick) if count > highest else (highest, since)
        if len(self.counts) > 20000:
            self.counts.clear()
        libraries = {}
        for place in hidden:
            address, size = blocks.address[place], blocks.size[place]
            first = self.first_seen[address][1]
            key = (blocks.device[place], size)
            stays_since = self.counts.get(key, (0, tick))[1]
            is_settled = tick - first >= old and (old == WITHOUT_GRAPH or tick - stays_since >= old)
            if self.libraries.get(address) == size or first <= newest or is_settled:
                libraries[address] = size
        self.libraries = libraries
        self.looked = {blocks.address[place]: blocks.size[place] for place in hidden}


def sum_up(reading, blocks, labels, history, with_groups):
    """Fills the reading: each allocated block is counted once, in one category."""
    devices = reading.devices = {
        index: DeviceReading(memory) for index, memory in blocks.devices.items()
    }
    libraries, first_seen, looked = history.libraries, history.first_seen, history.looked
    groups = {} if with_groups else None
    for place, size in enumerate(blocks.size):
        index = blocks.device[place]
        device = devices[index]
        label = labels.get(place)
        if label is not None:
            category = label.category
            key = (index, label, None)
            if category == "optimizer_state":
                kinds = device.optimizer_state
                kinds[label.kind] = kinds.get(label.kind, 0) + size
        else:
            if blocks.private[place]:
                category = "graph_pools"
            elif libraries.get(blocks.address[place]) == size:
                category = "libraries"
            else:
                # A step makes activations all the time. Without steps a block may be anything.
                is_known = reading.step is not None or looked.get(blocks.address[place]) == size
                category = "activations" if is_known else "not_looked_at"
                reading.hidden += size
            key = (index, category, size)
        device.categories[category] += size
        if groups is not None:
            group = groups.get(key)
            if group is None:
                group = groups[key] = Group()
            group.count += 1
            group.bytes += size
            first = first_seen.get(blocks.address[place])
            if first is not None and (group.first_seen is None or first[1] < group.first_seen):
                group.first_seen = first[1]
    reading.groups = groups
    return reading
