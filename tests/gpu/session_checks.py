"""Checks of the whole: a leak until memory is out, the recording of the run, and the cost."""

import json
import os
import pathlib
import re
import struct
import time

from lab import HERE, MIB, Failed, Screen, Skipped, has

TICK = os.sysconf("SC_CLK_TCK")


def doctor(lab, it):
    """`gputop doctor` finds nothing wrong with the driver and the processes."""
    done = lab.gputop("doctor", codes=range(20))
    lines = [line for line in done.stdout.splitlines() if line[:1] not in (" ", "")]
    for topic in ("driver", "GPUs", "processes"):
        row = next((line for line in lines if line.split()[1:2] == [topic]), "")
        it.holds(f"{topic} is ok", row.startswith("ok"), row)


def leak(lab, it):
    """A loss summed with its history fills the memory: forecasts, the report of it, the verdict."""
    if not lab.is_real:
        return stand_in_leak(lab, it)
    lab.needs_torch()
    seconds = lab.leak_seconds
    # A second process holds the rest, so that the leak ends in time at any size of card.
    free = lab.gpu()["load"]["memory_free_bytes"]
    leaked = min(12 << 30, free // 2)
    ballast = lab.holder((free - leaked) // MIB - 1200)
    trainer = lab.trainer(under=[lab.gputop_path, "run", "--"])
    trainer.ask("step 20")
    per_step = 64
    steps = (lab.gpu()["load"]["memory_free_bytes"]) / (per_step * MIB)
    pause = max(0.0, seconds / steps)
    recording = lab.out / "leak.jsonl.zst"
    recorder = lab.record(recording)
    began = time.time()
    trainer.process.stdin.write(f"leak {per_step} {pause}\n".encode())
    trainer.process.stdin.flush()
    first = {}
    screen = lab.screen("--pid", str(trainer.pid))
    try:
        while trainer.process.poll() is None and time.time() - began < 1.6 * seconds + 30:
            text = screen.text()
            for word in ("FULL SOON", "LEAK"):
                if word in text:
                    first.setdefault(word, round(time.time() - began))
            time.sleep(1)
    finally:
        screen.end()
    answer = trainer.read(5)
    code = trainer.process.wait(30)
    lab.end_recorder(recorder)
    ended = answer["out_of_memory"]
    took = ended - began
    it.same("the exit code of the program", code, 3)
    it.note(
        f"out of memory after {took:.0f} s and {answer['steps']} steps; the screen said {first}"
    )
    it.holds("the screen warned before the end", first, first)
    ballast.end()
    ooms = lab.gputop("ooms", codes=(0, 1, 2)).stdout
    it.holds("gputop ooms lists it", re.search(rf"\b{trainer.pid}\b", ooms), ooms)
    report = lab.gputop("explain", "--last").stdout
    it.holds("explain names the line", f"trainer.py:{fault_line()}" in report, report[:900])
    cause = re.search(r"^Why\n(.*)", report, re.M)
    it.holds("explain names the cause", cause and "leak" in cause[1], cause and cause[1])
    compare_forecasts(lab, it, recording, trainer.pid)


def fault_line():
    """The number of the line of trainer.py that leaks."""
    lines = (HERE / "trainer.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith("# fault"))


def series_of(lab, recording, pid):
    """What `gputop analyze` says of the memory of a process."""
    done = lab.gputop("analyze", "--all", "--json", recording, codes=range(20))
    series = json.loads(done.stdout)["series"] if done.stdout else []
    return [one for one in series if one["pid"] == pid]


def forecasts_of(series):
    every = [one for single in series for one in single["timeline"] + single["forecasts"]]
    return sorted((one for one in every if one["oom_in_s"] is not None), key=lambda one: one["at"])


def compare_forecasts(lab, it, recording, pid):
    """Compares each forecast that the series of a process had with its end, when memory was out."""
    series = series_of(lab, recording, pid)
    if not series:
        raise Failed(f"analyze has no series of process {pid}")
    verdicts = {single["worst_verdict"] for single in series}
    it.holds("analyze calls it a leak, or suspect", verdicts & {"leak", "suspect"}, verdicts)
    end = max(single["span_seconds"] for single in series)
    forecasts = forecasts_of(series)
    first = forecasts[0]["at"] if forecasts else end
    it.holds("there is a forecast before the last fifth", first < 0.8 * end, f"{first:.0f} s")
    for one in forecasts:
        truth = end - one["at"]
        low, high = one["oom_low_s"], one["oom_high_s"]
        if low is None or high is None:
            it.holds("each forecast has an interval", False, one)
            continue
        said = (
            f"at {one['at']:.0f} s of {end:.0f} s: {one['oom_in_s']:.0f} s left "
            f"({low:.0f} to {high:.0f}); the truth is {truth:.0f}"
        )
        it.note(said)
        it.holds("the interval holds the truth within 15 s", low - 15 <= truth <= high + 15, said)


def stand_in_leak(lab, it):
    """The same growth by the fake driver: a forecast within three minutes, near the truth."""
    seconds = lab.leak_seconds
    child = lab.holder(4000)
    free = lab.gpu()["load"]["memory_free_bytes"]
    began = time.time()
    with lab.lock:
        rows = lab.world["gpus"][0]["processes"]
        row = next(it for it in rows if it["pid"] == child.pid)
        row.update(growth=free / seconds, since=began)
        lab._write_world()
    forecasts = lab.wait(
        "a forecast", lambda: forecasts_of(series_of(lab, lab.recording, child.pid)), seconds
    )
    now = time.time() - began
    last = forecasts[-1]
    it.near(
        "seconds left", round(last["oom_in_s"]), round(seconds - now), 0.5 * (seconds - now) + 10
    )
    it.note(f"after {now:.0f} s: {last['oom_in_s']:.0f} s left; the truth {seconds - now:.0f}")
    child.end()


def replay(lab, it):
    """The recording of this run: replayed, reported as Markdown, and exported."""
    child = lab.holder(700)
    lab.wait_for_memory(child.pid)
    time.sleep(3)
    child.end()
    svg = lab.out / "session.svg"
    lab.gputop("replay", lab.recording, "--screenshot", svg, "--size", "160x50")
    it.holds(
        "the screen has the GPU", lab.name.removeprefix("NVIDIA ").split()[0] in svg.read_text()
    )
    report = lab.gputop("report", lab.recording, "--md", codes=(0, 2))
    if report.returncode:
        report = lab.gputop("report", lab.recording)
    it.holds(
        "the report names the GPU", lab.name.removeprefix("NVIDIA ").split()[0] in report.stdout
    )
    table = lab.out / "session.csv"

    def exported():
        done = lab.gputop("export", lab.recording, "--of", "processes", "-o", table, codes=range(9))
        return done.returncode == 0 and f",{child.pid}," in table.read_text()

    # The recorder writes a block of many lines at once.
    it.holds("the export has the process", lab.wait("the process in the export", exported, 90))


def ticks(pid):
    """CPU ticks of a process and its living descendants, and their PSS in KiB."""
    children = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(words[1]), []).append((int(folder.name), words))
    words = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    family, at = [(pid, words)], 0
    while at < len(family):
        family += children.get(family[at][0], [])
        at += 1
    pss = 0
    for member, _ in family:
        try:
            rollup = pathlib.Path(f"/proc/{member}/smaps_rollup").read_text()
            pss += int(
                next(line for line in rollup.splitlines() if line.startswith("Pss:")).split()[1]
            )
        except (OSError, StopIteration):
            pass
    return sum(int(words[11]) + int(words[12]) for _, words in family), pss


def cost(lab, it):
    """CPU, memory and bytes of an open gputop beside `nvidia-smi -l 1` and other monitors."""
    seconds = 12
    programs = {"gputop": [lab.gputop_path, "--no-history"]}
    if lab.is_real:
        programs |= {
            name: command
            for name, command in (
                ("nvidia-smi", ["nvidia-smi", "-l", "1"]),
                ("nvtop", ["nvtop"]),
                ("nvitop", ["nvitop"]),
            )
            if has(command[0])
        }
    child = lab.holder(300)
    lab.wait_for_memory(child.pid)
    found = {}
    for name, command in programs.items():
        screen = Screen(command, columns=120, lines=40)
        began = time.monotonic()
        deadline = began + 15
        while f"{child.pid}" not in screen.text() and time.monotonic() < deadline:
            time.sleep(0.005)
        first = time.monotonic() - screen.began
        # The first scan of all processes is over before the measurement.
        time.sleep(3)
        before, _ = ticks(screen.pid)
        written = screen.bytes
        time.sleep(seconds)
        after, pss = ticks(screen.pid)
        found[name] = {
            "cpu_ms_per_s": 1000 * (after - before) / TICK / seconds,
            "pss_mib": pss / 1024,
            "bytes_per_s": (screen.bytes - written) / seconds,
            "first_frame_s": first,
        }
        screen.end()
    for name, figures in found.items():
        it.note(f"{name}: " + ", ".join(f"{key} {value:.2f}" for key, value in figures.items()))
    it.holds(
        "at most 50 ms of CPU in a second", found["gputop"]["cpu_ms_per_s"] <= 50, found["gputop"]
    )
    it.holds("the first frame within 3 s", found["gputop"]["first_frame_s"] <= 3, found["gputop"])
    if "nvidia-smi" in found:
        ratio = found["gputop"]["cpu_ms_per_s"] / max(0.5, found["nvidia-smi"]["cpu_ms_per_s"])
        it.holds(
            "at most 1.5 of the CPU of nvidia-smi -l 1", ratio <= 1.5, f"{ratio:.2f} of its CPU"
        )
    child.end()


def nvml_calls(lab, it):
    """On the stand-in only: the number of NVML calls in a second, which the fake driver counts."""
    if lab.is_real:
        raise Skipped("a real driver does not count its calls; the stand-in does")
    file = lab.out / "nvml-calls-of-one"
    environment = {"FAKE_NVML_COUNTS": str(file)}
    agent = lab.child(
        lab.gputop_path, "agent", "--interval", "1s", name="agent", environment=environment
    )

    def calls():
        record = struct.Struct("<48sQQ")
        data = file.read_bytes()
        return sum(
            record.unpack_from(data, at)[2]
            for at in range(0, len(data) - record.size + 1, 64)
            if data[at]
        )

    for _ in range(4):
        agent.read()
    first = calls()
    for _ in range(6):
        agent.read()
    rate = (calls() - first) / 6
    agent.end()
    it.holds("some calls, and at most 40 a second for a GPU", 0 < rate <= 40, f"{rate:.1f}")
    it.note(f"{rate:.1f} calls a second")


CHECKS = [doctor, cost, nvml_calls, replay, leak]
