"""The published state: see FORMAT.md."""

import json
import platform
import time


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
            state = {key: state[key] for key in ("version", "torch", "python", "time")}
            state["trouble"] = ["the state is too large to be published"]


def build(probe):
    state = {
        "version": 1,
        "torch": str(probe.torch.__version__),
        "python": platform.python_version(),
        "time": time.time(),
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
    if probe.changes.marks:
        state["marks"] = list(probe.changes.marks)
    if probe.diagnosis is not None:
        found = probe.diagnosis.published
        state.update((name, value) for name, value in found.items() if value)
    if probe.requests.answer is not None:
        state["answer"] = probe.requests.answer
    if probe.troubles.sentences:
        state["trouble"] = list(probe.troubles.sentences)
    return state


def _devices(probe):
    reading, step_end = probe.reading, probe.step_end
    found = []
    for index, (floor, peak, peak_step) in sorted(probe.levels.items()):
        # Devices that the program never used.
        if not peak:
            continue
        device = {"index": index, "peak": peak}
        if index in probe.uuids:
            device["uuid"] = probe.uuids[index]
        if probe.steps.count:
            device["peak_step"] = peak_step
        if floor is not None:
            device["floor"] = floor
        if reading is not None and index in reading.devices:
            device.update(
                reading.devices[index].publish(), time=reading.time, moment=reading.moment
            )
        if step_end is not None and index in step_end.devices:
            device["step_end"] = dict(
                step_end.devices[index].publish(), step=step_end.step, time=step_end.time
            )
        found.append(device)
    return found
