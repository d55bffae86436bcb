"""Tensor groups as they are published, and how they changed since a mark or since the reading
before.
"""

from .ledger import entry_of, key_of

MAX_GROUPS, LARGEST = 200, 120


def _flat(reading):
    """Maps the key of a group to the group."""
    return {key_of(*key): group for key, group in reading.groups.items()}


class Changes:
    def __init__(self):
        self._mark = None
        self._latest = self._before = None
        self._published = None

    def mark(self, name, reading):
        self._mark = (name, reading)
        self._published = None

    def unmark(self):
        self._mark = self._published = None

    def publish(self, reading):
        """The fields of the state that describe the groups of a reading."""
        if reading is not self._latest:
            self._before, self._latest = self._latest, reading
            self._published = None
        if self._published is None:
            self._published = self._compare()
        return self._published

    def _compare(self):
        reading = self._latest
        name, base = self._mark if self._mark is not None else (None, self._before)
        old = _flat(base) if base is not None else {}
        entries = []
        for key, group in _flat(reading).items():
            before = old.pop(key, None)
            count, size = (before.count, before.bytes) if before is not None else (0, 0)
            entries.append(
                (
                    key,
                    group.count,
                    group.bytes,
                    group.count - count,
                    group.bytes - size,
                    group.first_seen,
                )
            )
        # Groups that are gone.
        entries += [(key, 0, 0, -group.count, -group.bytes, None) for key, group in old.items()]
        entries.sort(key=lambda entry: -entry[2])
        if len(entries) > MAX_GROUPS:
            rest = sorted(entries[LARGEST:], key=lambda entry: -abs(entry[4]))
            entries, rest = (
                entries[:LARGEST] + rest[: MAX_GROUPS - LARGEST],
                rest[MAX_GROUPS - LARGEST :],
            )
        else:
            rest = []
        found = {
            "groups_at": {"unix_time_seconds": reading.time, "python_tensors": reading.has_scan},
            "groups": [_entry(reading, base is not None, *entry) for entry in entries],
        }
        if reading.step is not None:
            found["groups_at"]["step"] = reading.step
        if base is not None:
            found["changes_since"] = {"unix_time_seconds": base.time}
            if base.step is not None:
                found["changes_since"]["step"] = base.step
            if name is not None:
                found["changes_since"]["mark"] = name
        if rest:
            found["groups_left_out"] = {
                "count": len(rest),
                "bytes": sum(entry[2] for entry in rest),
            }
        return found


def _entry(reading, has_base, key, count, size, count_change, bytes_change, first_seen):
    found = entry_of(key, count, size)
    if has_base:
        found["count_change"], found["bytes_change"] = count_change, bytes_change
    if reading.step is not None and first_seen is not None:
        found["age_steps"] = reading.step - first_seen
    return found
