"""Reads PyTorch's CUDA caching allocator: totals, and the list of all blocks."""

import bisect


class DeviceMemory:
    """The memory of one device that the allocator holds, in bytes."""

    __slots__ = ("allocated", "reserved", "requested", "free")

    def __init__(self):
        self.allocated = self.reserved = 0
        # None if this version of PyTorch does not tell.
        self.requested = None
        # By category: memory of no live block.
        self.free = {"graph_pools": 0, "pending": 0, "cache": 0, "fragmentation": 0}


class Blocks:
    """All allocated blocks, sorted by address. Unified addressing: no two devices have the same
    address.
    """

    def __init__(self):
        self.devices = {}
        # One entry per block in each list. `frames` are those that allocated the block: empty where
        # no recording saw it, None unless they were asked for.
        self.address, self.size, self.requested, self.device, self.private = [], [], [], [], []
        self.frames = []
        self.place = {}

    def find(self, address):
        """The position of the block that contains the address, or None."""
        place = self.place.get(address)
        if place is not None:
            return place
        place = bisect.bisect_right(self.address, address) - 1
        if place >= 0 and address < self.address[place] + self.size[place]:
            return place
        return None


def complete(snapshot):
    """A snapshot with all its parts: PyTorch 1.13 gives a list of segments."""
    return {"segments": snapshot, "device_traces": []} if type(snapshot) is list else snapshot


class Allocator:
    def __init__(self, torch):
        self.stats = torch._C._cuda_memoryStats
        self.snapshot = torch._C._cuda_memorySnapshot
        # The arguments by version: 2.11 can leave out the traces, earlier ones take a pool or
        # nothing.
        self.forms = [((0, 0, False),), ((0, 0),), (None,), ()]

    def segments(self):
        while True:
            try:
                return complete(self.snapshot(*self.forms[0]))["segments"]
            except TypeError:
                if len(self.forms) == 1:
                    raise
                del self.forms[0]

    def read(self, with_frames=False):
        """Reads all blocks. No CUDA call; the allocator locks each device while it copies the
        list.
        """
        found = Blocks()
        entries = []
        for segment in self.segments():
            device = segment["device"]
            memory = found.devices.get(device)
            if memory is None:
                memory = found.devices[device] = DeviceMemory()
            free = memory.free
            memory.reserved += segment["total_size"]
            blocks = segment["blocks"]
            # Unknown before PyTorch 2.1.
            private = tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0)
            if private:
                unused = "graph_pools"
            elif len(blocks) > 1 and not segment.get("is_expandable", False):
                unused = "fragmentation"
            else:
                unused = "cache"
            address = segment["address"]
            for block in blocks:
                size, state = block["size"], block["state"]
                if state == "active_allocated":
                    memory.allocated += size
                    frames = block.get("frames") if with_frames else None
                    requested = block.get("requested_size")
                    entries.append((address, size, requested, device, private, frames))
                elif state == "inactive":
                    free[unused] += size
                else:
                    free["pending"] += size
                # PyTorch counts a block as requested until it is free for all streams.
                if state != "inactive" and "requested_size" in block:
                    memory.requested = (memory.requested or 0) + block["requested_size"]
                # Blocks have no address before PyTorch 2.1.
                address += size
        entries.sort()
        if entries:
            (
                found.address,
                found.size,
                found.requested,
                found.device,
                found.private,
                found.frames,
            ) = map(list, zip(*entries))
        found.place = dict(zip(found.address, range(len(entries))))
        return found

    def levels(self, device):
        """Allocated bytes of a device: now, and at most since the start or the program's last
        reset.
        """
        figures = self.stats(device)["allocated_bytes"]["all"]
        return figures["current"], figures["peak"]

    def population(self, device):
        """The number of live blocks of a device, and their bytes."""
        figures = self.stats(device)
        return figures["allocation"]["all"]["current"], figures["allocated_bytes"]["all"]["current"]
