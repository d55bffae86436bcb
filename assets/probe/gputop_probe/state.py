"""The published state: see FORMAT.md."""

import json
import platform
import time

# The version of the format.
VERSION = 2
# Marks that are published.
MOST_MARKS = 16


def encode(probe, room):
    """The state in JSON, with fewer groups if it would need more room."""
    state = build(probe)
    while True:
        payload = json.dumps(state, separators=(",", ":")).encode()
        if len(payload) <= room:
            return payload
        groups = state.get("groups")
        if groups:
            kept = groups[: len(groups) // 2]
            left_out = state.get("groups_left_out", {"count": 0, "bytes": 0})
            dropped = groups[len(kept) :]
            state["groups"] = kept
            state["groups_left_out"] = {
                "count": left_out["count"] + len(dropped),
                "bytes": left_out["bytes"] + sum(group["bytes"] for group in dropped),
            }
        else:
            kept = ("version", "torch", "python", "unix_time_seconds")
            state = {key: state[key] for key in kept}
            state["trouble"] = ["the state is too large to be published"]


def encode_trouble(troubles):
    """The state in JSON of a probe that cannot start."""
    state = {"version": VERSION, "unix_time_seconds": time.time(), "trouble": troubles.sentences}
    return json.dumps(state).encode()


def build(probe):
    state = {
        "version": VERSION,
        "torch": str(probe.torch.__version__),
        "python": platform.python_version(),
        "unix_time_seconds": time.time(),
    }
    steps = probe.steps
    if steps.count:
        source = "optimizer_since_attach" if probe.is_attached else "optimizer"
        state["steps"] = {"count": steps.count, "source": source}
        seconds = steps.seconds()
        if seconds is not None:
            state["steps"]["seconds"] = seconds
    state["devices"] = _devices(probe)
    if probe.grouped is not None:
        state.update(probe.changes.publish(probe.grouped))
    if probe.ledger.marks:
        state["marks"] = [mark.publish() for mark in probe.ledger.marks[-MOST_MARKS:]]
        state["mark_pairs"] = probe.ledger.publish()
    if probe.diagnosis is not None:
        found = probe.diagnosis.published
        state.update((name, value) for name, value in found.items() if value)
    if probe.requests.answer is not None:
        state["answer"] = probe.requests.answer
    sentences = probe.troubles.sentences + ([probe.waits] if probe.waits else [])
    if sentences:
        state["trouble"] = sentences
    return state


def _devices(probe):
    reading, step_end = probe.reading, probe.step_end
    found = []
    for index, (floor, peak, peak_step, base) in sorted(probe.levels.items()):
        # Devices that the program never used.
        if not peak:
            continue
        device = {"cuda_device": index, "peak_bytes": peak}
        if index in probe.uuids:
            device["gpu_uuid"] = probe.uuids[index]
        if probe.steps.count:
            device["peak_step"] = peak_step
            if base is not None:
                device["peak_base_bytes"] = base
        if floor is not None:
            device["floor_bytes"] = floor
        if reading is not None and index in reading.devices:
            device.update(reading.devices[index].publish(reading), moment=reading.moment)
        if step_end is not None and index in step_end.devices:
            device["step_end"] = step_end.devices[index].publish(step_end)
            device["step_end"]["step"] = step_end.step
        found.append(device)
    return found
