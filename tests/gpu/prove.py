#!/usr/bin/env python3
"""Proves gputop on a real GPU, in eight minutes, without a network and without root.

    cargo build --release
    python3 tests/gpu/prove.py target/release/gputop --out proof

It starts what it needs, compares gputop with nvidia-smi, with PyTorch and with the CUDA driver, and
writes report.md, report.json and a recording into the folder. It changes no setting of the GPU, and
signals only processes that it started. It refuses a GPU that others use (exit code 2): `--share`
runs there without the checks that fill the memory. The exit code is 1 when a check failed.

Checks with PyTorch run with the Python that runs this script, if it has torch.

    --stand-in LIBRARY    without a GPU: on the fake driver, libfake_nvml.so of tests/fake-nvml
    --fake-cuda FOLDER    also with PyTorch on a fake CUDA: tests/pytorch/check.py FOLDER 2.11.0
    --inject              spoils a value of gputop in each check: each must fail
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback

import lab as lab_module
import process_checks
import session_checks
import smi_checks
import torch_checks
from lab import Comparisons, Failed, Lab, NotBuilt, Skipped

CHECKS = [
    *smi_checks.CHECKS,
    *process_checks.CHECKS,
    *torch_checks.CHECKS,
    *session_checks.CHECKS,
]
# These run first, one after the other, while nothing moves.
FIRST = [it.__name__ for it in smi_checks.CHECKS if it is not smi_checks.sm_use]
# These run last, one after the other: they measure time, watch the memory of the whole GPU, or take
# all of it.
LAST = ["forked_context", "shared_memory", "cost", "probe_overhead", "replay", "leak"]
# On the stand-in, these run beside all others: they wait for long, and disturb nothing there.
BESIDE = ["warm_up"]
# What the checks that run side by side may need, each.
ROOM = 6 << 30
FILLS = ["leak"]
# No check starts after this time, in seconds.
LAST_START = 450
# A check that takes longer has failed. Seconds.
LIMIT = 170
LIMITS = {"probe_faults": 240}


class Report:
    def __init__(self, out, about):
        self.out, self.about, self.results = out, about, {}
        self.lock = threading.Lock()
        self.began = time.monotonic()

    def add(self, name, result):
        with self.lock:
            self.results[name] = result
            print(
                f"[{time.monotonic() - self.began:5.0f} s] {name:<18} {result['result']:<9} "
                f"{result['comparisons']:>3} comparisons, {result['seconds']:.0f} s  "
                f"{result['reason'][:300]}",
                flush=True,
            )
            self.write()

    def write(self):
        draft = self.out / "report.draft"
        draft.write_text(json.dumps({"about": self.about, "checks": self.results}, indent=1) + "\n")
        draft.rename(self.out / "report.json")
        (self.out / "report.md").write_text(self.markdown())

    def markdown(self):
        counts = {}
        for result in self.results.values():
            counts[result["result"]] = counts.get(result["result"], 0) + 1
        lines = ["# gputop on " + self.about.get("GPU", "a GPU"), ""]
        lines += [f"- {key}: {value}" for key, value in self.about.items()]
        lines += ["- " + ", ".join(f"{count} {word}" for word, count in counts.items()), ""]
        lines += ["| check | result | comparisons | seconds | |", "|---|---|---|---|---|"]
        for name, result in self.results.items():
            said = "; ".join(
                [result["reason"], *result["notes"]] if result["reason"] else result["notes"]
            )
            said = said.replace("|", "\\|").replace("\n", " ")
            lines.append(
                f"| {name}: {result['title']} | {result['result']} | {result['comparisons']} | "
                f"{result['seconds']:.0f} | {said[:900]} |"
            )
        return "\n".join(lines) + "\n"


def run_check(lab, check, injects):
    it, began, mine = Comparisons(injects), time.monotonic(), lab.for_a_check()
    outcome, reason = "passed", ""

    def body():
        nonlocal outcome, reason
        try:
            check(mine, it)
            if it.wrong:
                outcome, reason = "failed", "; ".join(it.wrong[:12])
            elif it.count == 0:
                outcome, reason = "failed", "nothing was compared"
        except Skipped as why:
            outcome, reason = "skipped", str(why)
        except NotBuilt as why:
            outcome, reason = "not built", str(why)
        except Failed as why:
            outcome, reason = "failed", "; ".join([str(why), *it.wrong[:8]])
        except BaseException as error:
            traceback.print_exc()
            outcome, reason = "failed", f"the check itself broke: {error!r}"

    limit = LIMITS.get(check.__name__, LIMIT)
    if check.__name__ in FILLS:
        limit = 1.6 * lab.leak_seconds + 120
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(limit)
    if thread.is_alive():
        outcome, reason = "failed", f"it took longer than {limit} s"
    mine.end_children()
    return {
        "title": " ".join((check.__doc__ or "").split()),
        "result": outcome,
        "reason": reason,
        "comparisons": it.count,
        "notes": list(it.notes),
        "seconds": round(time.monotonic() - began, 1),
    }


def strangers(lab):
    """Why this GPU is not free for the run, or None."""
    gpu = lab.gpu()
    if "processes" in (gpu.get("missing") or {}):
        return "the driver does not list the processes of the GPU"
    own = lab.own_pids()
    others = [one["pid"] for one in gpu["processes"] if one["pid"] not in own]
    if others:
        return f"processes that this run did not start use the GPU: {others}"
    held = sum(one["memory_used_bytes"] or 0 for one in gpu["processes"])
    used, total = gpu["load"]["memory_used_bytes"], gpu["load"]["memory_total_bytes"]
    if used - held > total * 0.01:
        return f"{(used - held) >> 20} MiB of the GPU are in use by nobody that the driver lists"
    return None


def why_not(lab, check, report, options):
    """Why the check is not started, or None."""
    if time.monotonic() - report.began > LAST_START and not options.long:
        return f"not started: the run is past its {LAST_START} s"
    if check.__name__ in FILLS and options.share:
        return "--share: it would fill the memory"
    if options.share and lab.gpu()["load"]["memory_free_bytes"] < ROOM:
        return f"--share: less than {ROOM >> 30} GiB are free"
    if check.__name__ in FILLS:
        deadline = time.monotonic() + 5
        # The driver needs a moment to forget a process that has ended.
        while (why := strangers(lab)) and time.monotonic() < deadline:
            time.sleep(0.2)
        return why
    return None


def about(lab):
    host = lab.json()
    text = {
        "GPU": lab.name,
        "driver": host["driver"].get("version"),
        "CUDA of the driver": host["driver"].get("cuda_version"),
        "gputop": lab.gputop("--version").stdout.strip(),
        "kernel": platform.release(),
        "Python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }
    if lab.is_real and lab_module.has_torch(lab.python):
        code = "import torch; print(torch.__version__)"
        done = subprocess.run([lab.python, "-c", code], capture_output=True, text=True)
        text["torch"] = done.stdout.strip()
    if not lab.is_real:
        text["GPU"] += " (stand-in: no hardware was seen)"
    return text


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("gputop", type=pathlib.Path, help="the release binary")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("proof"))
    parser.add_argument("--gpu", help="index or UUID")
    parser.add_argument("--only", help="names of checks, with commas")
    parser.add_argument("--resume", action="store_true", help="leave out what passed before")
    parser.add_argument("--share", action="store_true", help="also on a GPU that others use")
    parser.add_argument("--long", action="store_true", help="a leak over half an hour")
    parser.add_argument("--leak-seconds", type=int, default=180)
    parser.add_argument("--stand-in", type=pathlib.Path, metavar="LIBRARY")
    parser.add_argument("--fake-cuda", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--inject", action="store_true")
    parser.add_argument("--list", action="store_true", help="print the names of the checks")
    return parser.parse_args()


def refuse(sentence):
    print(f"prove.py: {sentence}")
    return 2


def main():
    options = arguments()
    if options.list:
        for check in CHECKS:
            print(f"{check.__name__:<18} {' '.join((check.__doc__ or '').split())}")
        return 0
    gputop, out = options.gputop.resolve(), options.out.resolve()
    if not (hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")):
        return refuse("this Python has no pidfd_open: use another of 3.10 or later")
    if not os.access(gputop, os.X_OK):
        build = "build it with `cargo build --release`"
        return refuse(f"there is no program {options.gputop}: {build}")
    if options.stand_in and not options.stand_in.exists():
        build = "build it with `cargo build -p fake-nvml`"
        return refuse(f"there is no {options.stand_in}: {build}")
    names = options.only.split(",") if options.only else [it.__name__ for it in CHECKS]
    unknown = set(names) - {it.__name__ for it in CHECKS}
    if unknown:
        return refuse(f"no check is named {', '.join(sorted(unknown))}; `--list` prints all names")
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "report.draft").write_text("")
    except OSError as error:
        return refuse(f"cannot write to {out}: {error.strerror}")
    if not options.resume:
        shutil.rmtree(out / "state", ignore_errors=True)
    # It ends what is left of the run when this process is gone, however it ends.
    lab_module.start_guard()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        lab = Lab(gputop, out, options.gpu, options.stand_in and options.stand_in.resolve())
        why = strangers(lab)
    except Failed as error:
        return refuse(f"{error} `gputop doctor` says more; --stand-in needs no GPU")
    if why and not options.share:
        return refuse(f"{why}; end them, choose another GPU with --gpu, or add --share")
    if options.fake_cuda:
        lab.use_fake_cuda(options.fake_cuda.resolve())
    lab.leak_seconds = 1800 if options.long else options.leak_seconds
    lab.recording = out / "session.jsonl.zst"
    report = Report(out, about(lab))
    if options.resume and (out / "report.json").exists():
        before = json.loads((out / "report.json").read_text())
        if {**before["about"], "date": ""} != {**report.about, "date": ""}:
            return refuse(f"{out} has the report of another machine or gputop: leave out --resume")
        report.results = {
            name: it for name, it in before["checks"].items() if it["result"] == "passed"
        }
        names = [name for name in names if name not in report.results]
    recorder = lab.record(lab.recording)
    try:
        run_all(lab, report, names, options)
    finally:
        lab.end_recorder(recorder)
        lab.end_children()
    report.write()
    failed = [name for name, it in report.results.items() if it["result"] == "failed"]
    if options.inject:
        passed = [name for name, it in report.results.items() if it["result"] == "passed"]
        print(f"with a wrong value injected, these passed: {', '.join(passed) or 'none'}")
        return 1 if passed else 0
    told = ", ".join(failed) or "none"
    print(f"{len(report.results)} checks; failed: {told}; {out / 'report.md'}")
    return 1 if failed else 0


def run_all(lab, report, names, options):
    chosen = [it for it in CHECKS if it.__name__ in names]

    def one(check):
        result = {
            "title": " ".join((check.__doc__ or "").split()),
            "result": "skipped",
            "comparisons": 0,
            "notes": [],
            "seconds": 0,
        }
        if why := why_not(lab, check, report, options):
            result["reason"] = why
        else:
            result |= run_check(lab, check, options.inject)
        report.add(check.__name__, result)

    free = lab.gpu()["load"]["memory_free_bytes"]
    side_by_side = max(1, min(8 if lab.is_real else 2, free // ROOM))
    beside = [] if lab.is_real else BESIDE
    others = [it.__name__ for it in CHECKS if it.__name__ not in [*FIRST, *LAST, *beside]]
    background = concurrent.futures.ThreadPoolExecutor(1)
    started = [background.submit(one, it) for it in chosen if it.__name__ in beside]
    for group, workers in ((FIRST, 1), (others, side_by_side), (LAST, 1)):
        pool = concurrent.futures.ThreadPoolExecutor(workers)
        try:
            list(pool.map(one, [it for it in chosen if it.__name__ in group]))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    for check in started:
        check.result()
    background.shutdown()


if __name__ == "__main__":
    try:
        code = main()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of checks that ran past their limit start nothing any more; the guard ends the rest.
    os._exit(code)
