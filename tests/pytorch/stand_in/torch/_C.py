"""The allocator: blocks of 512 bytes or a multiple, in one segment."""

BLOCKS = {}
# The number of allocations so far.
COUNT = [0]
STARTS = 0x7F0000000000


class DisableTorchFunction:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def allocate(size):
    address = STARTS
    for start, taken in sorted(BLOCKS.items()):
        if address + size <= start:
            break
        address = start + _rounded(taken)
    BLOCKS[address] = size
    COUNT[0] += 1
    return address


def free(address):
    BLOCKS.pop(address, None)


def _rounded(size):
    return (size + 511) // 512 * 512


def _cuda_memoryStats(device):
    current = sum(map(_rounded, list(BLOCKS.values())))
    return {
        "allocated_bytes": {"all": {"current": current, "peak": max(current, 1)}},
        "allocation": {"all": {"current": len(BLOCKS), "allocated": COUNT[0]}},
    }


def _cuda_memorySnapshot(arguments):
    blocks, address = [], STARTS
    for start, size in sorted(BLOCKS.items()):
        if start > address:
            blocks.append({"size": start - address, "state": "inactive"})
        blocks.append({"size": _rounded(size), "requested_size": size, "state": "active_allocated"})
        address = start + _rounded(size)
    blocks.append({"size": 1 << 20, "state": "inactive"})
    total = sum(block["size"] for block in blocks)
    return {"segments": [{"device": 0, "address": STARTS, "total_size": total, "blocks": blocks}]}
