"""Results of a model that a variable keeps over the end of a step, into the next forward pass."""

from . import holders
from .passes import Pass

# Blocks that are looked at: the largest.
_MOST = 8
# CPU seconds of the search.
_SEARCH = 0.5


def kept_locals(probe, least):
    """The variables that alone hold tensors with a history, of at least so many bytes: `del` frees
    them. Call it in a thread of the program, at the end of a step.
    """
    with probe.reader.guard():
        scan = Pass(probe)
        blocks = probe.allocator.read()
        tensors = {}
        for address, tensor in zip(scan.addresses, scan.tensors):
            place = blocks.find(address)
            if place is not None and blocks.size[place] >= least:
                tensors.setdefault(place, []).append(tensor)
        with_history = {id(tensor) for tensor in scan.with_history}
        places = [
            place
            for place, found in tensors.items()
            if any(id(tensor) in with_history for tensor in found)
        ]
        places = sorted(places, key=lambda place: -blocks.size[place])[:_MOST]
        samples = [tensor for place in places for tensor in tensors[place]]
        owner = [place for place in places for _ in tensors[place]]
        tensor = found = None
        own = scan.own() + (samples, *tensors.values())
        known, is_complete = (
            holders.find(samples, probe.torch, _SEARCH, own) if samples else ([], True)
        )
        tensors = samples = scan = own = None
    if not is_complete:
        return []
    sizes = {}
    for place in places:
        indexes = {at for at, other in enumerate(owner) if other == place}
        names = [holder for holder in known if holder.samples & indexes]
        # A name may hold one view of a block, and another name another.
        held = set().union(*(holder.samples for holder in names)) if names else set()
        is_free = all(holder.kind in ("local", "global") for holder in names)
        if names and is_free and held >= indexes:
            key = (blocks.device[place], tuple(sorted({holder.name for holder in names})))
            line = next((str(holder.line) for holder in names if holder.line), None)
            size, known_line = sizes.get(key, (0, line))
            sizes[key] = (size + blocks.size[place], known_line)
    found = []
    for (device, names), (size, line) in sorted(sizes.items(), key=lambda item: -item[1][0]):
        found.append({"cuda_device": device, "names": list(names), "bytes": size})
        if line is not None:
            found[-1]["line"] = line
    return found
