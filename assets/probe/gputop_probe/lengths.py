"""The lengths of containers, without running code of the program."""

import collections
import gc
import itertools

CONTAINERS = (dict, list, tuple, set, frozenset, collections.deque)


def attributes_of(value):
    try:
        found = object.__getattribute__(value, "__dict__")
    except Exception:
        return None
    return found if type(found) is dict else None


def length_of(value):
    """The length of a container, without running code of the program."""
    base = next(base for base in CONTAINERS if issubclass(type(value), base))
    return base.__len__(value)


def lengths_of(addresses):
    """Returns the lengths of the containers at these addresses: {address: length}."""
    objects = gc.get_objects()
    found = itertools.compress(objects, map(addresses.__contains__, map(id, objects)))
    result = {}
    for value in found:
        if issubclass(type(value), CONTAINERS):
            result[id(value)] = length_of(value)
        elif type(value).__name__ == "_lru_cache_wrapper":
            result[id(value)] = value.cache_info().currsize
        else:
            result[id(value)] = len((attributes_of(value) or {}).get("_modules") or ())
    return result
