"""Shares the blocks that came out among the names that hold them."""

from . import code_lines

# At most so many names are told for tensors of one shape.
_MOST = 3


class Kept:
    """The blocks that one line of the program keeps."""

    def __init__(self, holder, shape, covers):
        self.holder, self.shape = holder, shape
        # The part of the sampled blocks that holders explain.
        self.covers = covers
        self.places, self.blocks = [], []
        self.is_computed = False
        # Optimizers that hold some of the samples.
        self.optimizers = 0
        # A view keeps its base, which is so many times its size.
        self.waste = 1


def shared_out(search, block_of, chosen):
    """Shares the sampled blocks out among holders: those with a container that grew first, then
    those that hold most. Returns [(holder, blocks)] and the blocks that none holds.
    """
    rest, parts = set(chosen), []
    candidates = []
    for holder in search.found:
        container = holder.container()
        blocks = {block_of[at] for at in holder.samples}
        fills = bool(holder.line) and code_lines.fills(holder.line)
        candidates.append((holder, blocks, bool(container and container.has_grown), fills))
    while rest and candidates and len(parts) < _MOST:
        holder, blocks, _, _ = max(
            candidates,
            key=lambda it: (
                len(it[1] & rest) > 1,
                it[2] and len(it[1] & rest) > 0,
                it[3] and len(it[1] & rest) > 0,
                len(it[1] & rest),
                -len(it[1]),
                -len(it[0].steps),
                "library" not in it[0].via,
            ),
        )
        # A local of a running function may hold the latest one only.
        if len(blocks & rest) < (2 if len(chosen) > 2 else 1):
            break
        parts.append((holder, blocks & rest))
        rest -= blocks
    return parts, rest


def share(places, part, sampled):
    """The part of the blocks that belongs to a holder of `part` of the `sampled` ones."""
    others = [at for at in places if at not in part]
    count = round(len(others) * len(part) / sampled)
    return set(part) | set(some(others, count) if count > 1 else ())


def waste(samples, block_of, holder, blocks, tensors):
    """How many times its size a view keeps, where only views are held; else 1."""
    least = None
    held = {at for at in holder.samples}
    for at in held:
        tensor = samples[at]
        size = tensor.numel() * tensor.element_size()
        kept = blocks[block_of[at]].size
        # The allocator rounds small blocks up.
        times = kept // size if tensor._is_view() and size and kept > max(512, size) else 1
        least = times if least is None else min(least, times)
    return least or 1


def some(values, count):
    """At most `count` of the values, spread over all of them."""
    if len(values) <= count:
        return list(values)
    return [values[at * (len(values) - 1) // (count - 1)] for at in range(count)]
