"""Measures autograd graphs: how many operations a tensor's history has. Only reads
`next_functions` of operations.
"""

import collections
import time

# A longer history is not counted to its end.
MOST = 10000
# The tensor that carries a history is at most so many operations from its end.
_NEAR = 64


def size(first):
    """Returns the number of operations in the history that ends with the operation `first`, at
    most MOST.
    """
    # Keeps the wrappers alive while their ids are compared.
    seen = {}
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


def roots(tensors, grad_fn, seconds=0.05):
    """Returns (operation, tensor) of the tensors whose operation is no part of another tensor's
    history.

    The histories are walked for at most `seconds`. `grad_fn` returns the operation of a tensor, or
    None.
    """
    deadline = time.thread_time() + seconds
    firsts = {}
    for tensor in tensors:
        node = grad_fn(tensor)
        if node is not None:
            firsts.setdefault(id(node), (node, tensor))
    seen, inner, is_late = {}, set(), False
    for node, _ in firsts.values():
        pending = [] if is_late else [node]
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
                is_late = True
                break
    return [pair for key, pair in firsts.items() if key not in inner]


class Chain:
    """Watches the longest history of any tensor. It is a leak when it gets longer with every
    step.
    """

    def __init__(self, grad_fn):
        self.grad_fn = grad_fn
        # (step, operations) of past looks.
        self.looks = []

    def take(self, clock, tensors):
        """Takes a look at a moment (`clock`: a step or another counter). Returns the tensor with
        the longest history, or None.
        """
        longest, most = None, 0
        found = roots(tensors, self.grad_fn)
        # Many roots: each output has a history of its own, and no single one grows.
        for first, tensor in found[:32] + found[-32:]:
            operations = size(first)
            if operations > most:
                longest, most = tensor, operations
        if self.looks and self.looks[-1][0] == clock:
            self.looks.pop()
        self.looks.append((clock, most))
        del self.looks[:-8]
        return longest

    def carried(self, longest, tensors):
        """Returns the tensors through which the longest history may go on from step to step, the
        earliest operation first: later ones are computed from them. A graph may keep some of them.
        """
        owners, first = {}, self.grad_fn(longest)
        for tensor in tensors:
            operation = self.grad_fn(tensor)
            if operation is not None:
                # An operation's wrapper has the same `id` only while it lives.
                owners.setdefault(id(operation), (operation, tensor))
        most = self.looks[-1][1] if self.looks else 0
        found, pending, seen = [longest], collections.deque([first]), {}
        while pending and len(seen) < _NEAR:
            operation = pending.popleft()
            if operation is None or id(operation) in seen:
                continue
            seen[id(operation)] = operation
            owner = owners.get(id(operation))
            if owner and owner[1] is not longest and size(operation) > most // 2:
                found.append(owner[1])
            pending.extend(child for child, _ in operation.next_functions)
        return found[::-1]

    def is_long(self, blocks):
        """Whether the longest history can explain so many blocks that only a graph holds."""
        return bool(self.looks) and self.looks[-1][1] >= max(64, min(MOST, blocks) // 5)

    def may_grow(self):
        """Whether the longest history got longer between the last two looks, or is too long to
        tell, or was looked at only once.
        """
        sizes = [operations for _, operations in self.looks[-2:]]
        return len(sizes) == 1 or len(sizes) == 2 and (sizes[0] < sizes[1] or sizes[1] >= MOST)

    def growth(self):
        """Returns operations per step when the history grew between all of the last looks, at
        least three; else None.
        """
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
