"""Measures autograd graphs: how many operations a tensor's history has. Only reads `grad_fn` and `next_functions`."""

import time

# A longer history is not counted to its end.
MOST = 10000


def size(tensor, seen=None):
    """Returns the number of operations in the history of `tensor`, at most MOST. `seen` is shared between tensors."""
    first = tensor.grad_fn
    if first is None:
        return 0
    # Keeps the wrappers alive while their ids are compared.
    seen = {} if seen is None else seen
    pending, count = [first], 0
    while pending and count < MOST:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen[id(node)] = node
        count += 1
        for child, _ in node.next_functions:
            if child is not None and type(child).__name__ != "AccumulateGrad":
                pending.append(child)
    return count


def roots(tensors, seconds=0.05):
    """The tensors whose operation is no part of another tensor's history, as far as the histories can be walked in `seconds`."""
    deadline = time.thread_time() + seconds
    firsts = {}
    for tensor in tensors:
        node = tensor.grad_fn
        firsts.setdefault(id(node), (node, tensor))
    seen, inner = {}, set()
    for node, _ in list(firsts.values()):
        pending = [node]
        while pending:
            node = pending.pop()
            if id(node) in seen:
                continue
            seen[id(node)] = node
            for child, _ in node.next_functions:
                if child is not None:
                    inner.add(id(child))
                    pending.append(child)
            if len(seen) % 256 == 0 and time.thread_time() > deadline:
                pending = firsts = None
                break
        if firsts is None:
            break
    if firsts is None:
        return [tensor for tensor in tensors if id(tensor.grad_fn) not in inner]
    return [tensor for key, (_, tensor) in firsts.items() if key not in inner]


class Chain:
    """Watches the longest history of any tensor. It is a leak when it gets longer with every step."""

    def __init__(self):
        # (step, operations) of past looks.
        self.looks = []

    def take(self, clock, tensors):
        """Takes a look at a moment (`clock`: a step or another counter). Returns the tensor with the longest history, or None."""
        longest, most = None, 0
        found = roots(tensors)
        # Many roots: each output has a history of its own, and no single one grows.
        for tensor in found[:32] + found[-32:]:
            operations = size(tensor)
            if operations > most:
                longest, most = tensor, operations
        if self.looks and self.looks[-1][0] == clock:
            self.looks.pop()
        self.looks.append((clock, most))
        del self.looks[:-8]
        return longest

    def is_long(self, blocks):
        """Whether the longest history can explain so many blocks that only a graph holds."""
        return bool(self.looks) and self.looks[-1][1] >= max(64, min(MOST, blocks) // 5)

    def growth(self):
        """Returns operations per step when the history grew between all of the last looks, at least three; else None."""
        looks = self.looks[-3:]
        if len(looks) < 3:
            return None
        rates = []
        for (before, few), (after, many) in zip(looks, looks[1:]):
            if after <= before:
                return None
            rates.append((many - few) / (after - before))
        if looks[-1][1] >= MOST and looks[-2][1] >= MOST:
            return float(MOST)
        # A steady rate, at least one operation for each step or for each few of them.
        return rates[-1] if min(rates) > 0.2 and max(rates) < 3 * min(rates) else None
