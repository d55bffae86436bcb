"""Tells whether only reference cycles hold an object."""

import collections
import gc
import sys

# With more objects around it, an object is not looked at further.
_MOST = 400


def is_in_cycle(sample, skip):
    """Whether an object only waits for the garbage collector: all that refers to it, directly
    or not, is referred to by nothing else. Frames of `skip` are running.
    """
    # The references of this function are counted on an object that nothing else refers to.
    found, waiting = {None: [None]}, [sample]
    while waiting:
        if len(found) > _MOST:
            return False
        wanted, above = [id(it) for it in waiting], []
        for value in gc.get_referrers(*waiting):
            is_call = type(value) is tuple and [id(it) for it in value] == wanted
            is_own = value is waiting or value is found or is_call
            if not is_own and id(value) not in found and id(value) not in skip:
                found[id(value)] = value
                above.append(value)
        waiting = above
    value = above = waiting = None
    counts = collections.Counter(
        id(held) for value in found.values() for held in gc.get_referents(value)
    )
    excess = [sys.getrefcount(value) - counts[id(value)] for value in found.values()]
    return len(found) > 1 and max(excess) <= excess[0]
