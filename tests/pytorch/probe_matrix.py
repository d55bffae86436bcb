#!/usr/bin/env python3
"""Runs small programs with and without the probe: what they print and how they end must be equal.

    tests/pytorch/probe_matrix.py [--python PYTHON] [--torch FOLDER] [CASE...]

Needs no PyTorch: stand_in/torch has what the probe uses of it. With --torch, the folder with the
real one is used, and the environment must let it find CUDA. For each case it also checks in which
processes the probe is active: those that used CUDA, and no others. The exit code is 1 when
something differs.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROBE = HERE.parent.parent / "assets/probe"
DEADLINE = 40

# The programs begin with this. `train` makes steps until the file exists that this script makes
# when it has seen the probe.
START = """
import os, sys, time
def train(name="job"):
    import torch
    parameter = torch.nn.Parameter(%s)
    kept = [torch.empty(1000)%s]
    optimizer = torch.optim.%s
    parameter.grad = kept[0].new_empty(3, 4) if hasattr(kept[0], "new_empty") else torch.Tensor(3, 4)
    open(os.environ["READY"] + "/%%d.%%s" %% (os.getpid(), name), "w").close()
    while not os.path.exists(os.environ["READY"] + "/go"):
        optimizer.step()
        time.sleep(0.001)
def done():
    print("done", sys.argv, [it for it in sys.path if "/tmp" not in it and not (sys.flags.no_site and it.endswith("assets/probe"))], flush=True)
"""
STAND_IN = START % ("3, 4", "", "Optimizer([parameter])")
REAL = START % ("torch.empty(3, 4, device='cuda')", ".cuda()", "SGD([parameter], lr=0.1)")

# Name, arguments of Python, files, and options: how many processes publish (`active`, 1), and more
# environment.
CASES = []


def case(name, program, arguments=("job.py",), active=1, files=(), environment=(), **options):
    CASES.append((name, program, arguments, active, dict(files), dict(environment), options))


PLAIN = "train(); done()"
case("plain", PLAIN)
case("module", PLAIN, ["-m", "job", "argument"])
case("command", None, ["-c", "from job import *; train(); done()"], files={"job.py": ""})
case("no probe", PLAIN, active=0, environment={"GPUTOP_PROBE": "0"})
case("-E", PLAIN, ["-E", "job.py"], active=0)
case("-I", PLAIN, ["-I", "job.py"], active=0)
case("-S", PLAIN, ["-S", "job.py"], active=0)
case("-W error", PLAIN, ["-W", "error", "job.py"])
case("-X dev", PLAIN, ["-X", "dev", "job.py"])
case("-O", PLAIN, ["-OO", "job.py"])
case("without torch", "import json, decimal; done()", active=0)
case("without CUDA", "import torch; print(torch.__version__); done()", active=0)
case("torch is broken", "import torch", active=0, environment={"STAND_IN_FAILS": "1"}, real=False)
case("torch is missing", "sys.path = []; import torch", active=0, real=False)
case("error", "def f():\n    raise ValueError('x')\ntrain()\nf()")
case(
    "error in a thread",
    "import threading\ntrain()\nt = threading.Thread(target=lambda: 1 / 0, name='T'); t.start(); t.join(); done()",
)
case("sys.exit", "train(); sys.exit(3)")
case("os._exit", "train(); os._exit(4)")
case("abort", "train(); os.abort()")
case("killed", "import signal; train(); os.kill(os.getpid(), signal.SIGKILL)")
case("terminated", "import signal; train(); os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)")
case("interrupted", "import signal; train(); os.kill(os.getpid(), signal.SIGINT); time.sleep(9)")
case(
    "signal handler",
    "import signal\ndef stop(*_): sys.exit(5)\nsignal.signal(signal.SIGTERM, stop)\ntrain(); os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)",
)
case(
    "exceptions from a timer",
    """
import signal
class Timeout(Exception): pass
def ring(*_): raise Timeout
signal.signal(signal.SIGALRM, ring)
train()
import torch
parameter = torch.nn.Parameter(SHAPE)
optimizer = torch.optim.OPTIMIZER
caught = 0
for _ in range(60):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.005)
        while True:
            optimizer.step()
    except Timeout:
        caught += 1
print(caught)
""",
    environment={"GPUTOP_PROBE_INTERVAL": "0.01"},
)
case(
    "threads are counted",
    "import threading\ntrain(); print(threading.active_count(), threading.enumerate()); done()",
)
case(
    "exit handlers",
    "import atexit\natexit.register(print, 'first')\ntrain()\natexit.register(print, 'last')",
)
case(
    "descriptors are closed",
    """
train()
os.closerange(3, 4096)
file = open("out", "w+")
os.remove(os.environ["READY"] + "/go")
import threading
threading.Timer(0.7, lambda: open(os.environ["READY"] + "/go", "w").close()).start()
train("again")
file.write("unharmed"); file.flush(); file.seek(0)
print(file.read())
""",
)
# Python 3.12 warns of fork in a process with threads, which CUDA's driver has anyway, and the
# stand-in has not.
case(
    "os.fork",
    "train()\nchild = os.fork()\nif not child:\n    done(); os._exit(7)\nprint(os.waitpid(child, 0)[1]); done()",
    ["-W", "ignore::DeprecationWarning", "job.py"],
)
case(
    "fork before CUDA",
    "import torch\nchild = os.fork()\ntrain('child' if not child else 'job')\nif child: print(os.waitpid(child, 0)[1])\ndone()",
    active=2,
    unordered=True,
)
case(
    "daemon",
    "if os.fork(): os.wait(); os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\ntrain(); done(); open(os.environ['READY'] + '/end', 'w').close()",
    wait="end",
)
for method in ("fork", "spawn", "forkserver"):
    case(
        method,
        f"""
import multiprocessing
def work(queue):
    train("work"); queue.put(sys.argv); print("worked", flush=True); sys.exit(6)
if __name__ == "__main__":
    import torch
    context = multiprocessing.get_context("{method}")
    queue = context.Queue()
    workers = [context.Process(target=work, args=(queue,)) for _ in range(2)]
    for worker in workers: worker.start()
    print([queue.get() for _ in workers]); [worker.join() for worker in workers]
    print([worker.exitcode for worker in workers]); done()
""",
        active=2,
    )
case(
    "launcher",
    """
import subprocess, torch
ranks = [subprocess.Popen([sys.executable, "-u", "rank.py"], env=dict(os.environ, RANK=str(n)), stdout=subprocess.PIPE) for n in range(2)]
for rank in ranks: print(rank.communicate(), rank.returncode)
done()
""",
    active=2,
    files={"rank.py": "from job_start import *\ntrain(); print(os.environ['RANK']); done()"},
)
HOOK = "import sys\nprint('site hook', __name__, __file__.split('/')[-2:], 'sitecustomize' in sys.modules)\n"
case(
    "sitecustomize",
    PLAIN + "; import sitecustomize; print(sitecustomize.mine)",
    files={"site/sitecustomize.py": HOOK + "mine = 1"},
    site=True,
)
case("sitecustomize fails", PLAIN, files={"site/sitecustomize.py": HOOK + "1 / 0"}, site=True)
case(
    "sitecustomize needs a module",
    PLAIN,
    files={"site/sitecustomize.py": "import missing"},
    site=True,
)
case("usercustomize", "import site; " + PLAIN)
case(
    "import hooks",
    """
import importlib.abc
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in ("torch", "torch.cuda", "torch._C"): print("finds", name)
sys.meta_path.insert(0, Finder())
train(); done()
""",
)
case(
    "marks",
    "train()\ntry:\n    import gputop_probe\nexcept ImportError:\n    pass\nelse:\n    gputop_probe.mark('here')\ndone()",
)
STUB = (HERE.parent.parent / "assets/stub/gputop_probe.py").read_text()
MARKS = """
mark("begin")
train()
with phase("eval"):
    mark("within")
done()
"""
case(
    "stub before torch",
    "import gputop_probe\nfrom gputop_probe import mark, phase" + MARKS,
    files={"gputop_probe.py": STUB},
)
case(
    "stub after torch",
    "import torch\nimport gputop_probe\nfrom gputop_probe import mark, phase" + MARKS,
    files={"gputop_probe.py": STUB},
)
case(
    "stub in a package",
    "from own.gputop_probe import mark, phase" + MARKS,
    files={"own/__init__.py": "", "own/gputop_probe.py": STUB},
)
case(
    "stub without a probe",
    "from gputop_probe import mark, phase" + MARKS,
    files={"gputop_probe.py": STUB},
    active=0,
    environment={"GPUTOP_PROBE": "0"},
)
case(
    "tracing",
    "calls = []\nsys.settrace(lambda frame, *_: calls.append(frame.f_code.co_name))\ndef f(): pass\nf(); sys.settrace(None)\ntrain(); print(calls); done()",
)
case("venv", PLAIN, venv=True)


def is_active(pid):
    """Whether the process published a state of its own."""
    try:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            if os.readlink(link).startswith("/memfd:gputop-probe "):
                with open(link, "rb") as file:
                    header = file.read(64)
                if (
                    int.from_bytes(header[12:16], "little") == pid
                    and int.from_bytes(header[24:32], "little") > 0
                ):
                    return True
    except OSError:
        pass
    return False


class Run:
    """One program in a folder of its own."""

    def __init__(self, options, case, with_probe):
        name, program, arguments, active, files, environment, more = case
        self.folder = Path(tempfile.mkdtemp(prefix="gputop-matrix-"))
        start = REAL if options.torch else STAND_IN
        if program is not None:
            program = program.replace(
                "SHAPE", "torch.empty(3, 4, device='cuda')" if options.torch else "3, 4"
            )
            program = program.replace(
                "OPTIMIZER",
                "SGD([parameter], lr=0.1)" if options.torch else "Optimizer([parameter])",
            )
        for path, content in dict(
            files, **{"job_start.py": start, "job.py": start + (program or "")}
        ).items():
            (self.folder / path).parent.mkdir(exist_ok=True)
            (self.folder / path).write_text(content)
        (self.folder / "ready").mkdir()
        paths = [str(options.torch or HERE / "stand_in")]
        if more.get("site"):
            paths.insert(0, str(self.folder / "site"))
        if with_probe:
            paths.insert(0, str(PROBE))
        python = options.python
        if more.get("venv"):
            subprocess.run(
                [python, "-m", "venv", "--without-pip", self.folder / "venv"], check=True
            )
            python = self.folder / "venv/bin/python"
        clean = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("PYTHON", "GPUTOP"))
        }
        self.environment = dict(
            clean,
            PYTHONPATH=":".join(paths),
            READY=str(self.folder / "ready"),
            PYTHONDONTWRITEBYTECODE="1",
            **environment,
        )
        if "-E" in arguments or "-I" in arguments:
            # What drops PYTHONPATH drops the stand-in too.
            (self.folder / "job.py").write_text(
                start.split("def train")[0] + "import json; print('dropped', sys.flags)"
            )
        self.process = subprocess.Popen(
            [str(python), *arguments],
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )
        self.more, self.with_probe, self.wanted, self.seen = more, with_probe, active, set()

    def finish(self):
        """Lets the program end. Returns what it printed, and how it ended."""
        pool = ThreadPoolExecutor(1)
        output = pool.submit(self.process.communicate)
        ready, deadline = self.folder / "ready", time.monotonic() + DEADLINE
        while time.monotonic() < deadline and not output.done():
            pids = {int(it.name.split(".")[0]) for it in ready.iterdir() if it.name[0].isdigit()}
            self.seen |= {pid for pid in pids if is_active(pid)}
            wanted = self.wanted if self.with_probe else 0
            if len(self.seen) >= wanted and (len(pids) >= max(wanted, self.wanted)):
                # A probe that must not be there would show up by now: it starts with CUDA.
                (ready / "go").touch()
            if self.more.get("wait") and (ready / self.more["wait"]).exists():
                break
            time.sleep(0.005)
        try:
            out, errors = output.result(max(0.1, deadline - time.monotonic()))
        except Exception:
            self.process.kill()
            out, errors = output.result()
            errors += b"\nended by the deadline"
        return (
            self.clean(out, self.more.get("unordered")),
            self.clean(errors),
            self.process.returncode,
        )

    def clean(self, text, is_unordered=False):
        """Without what differs from run to run."""
        text = text.decode(errors="replace").replace(str(self.folder), "FOLDER")
        text = re.sub(r"0x[0-9a-f]+|\d{12,}", "ADDRESS", text)
        return "".join(sorted(text.splitlines(True))) if is_unordered else text


def check(options, case):
    runs = [Run(options, case, with_probe) for with_probe in (True, False)]
    found = [run.finish() for run in runs]
    wrong = []
    for what, ours, theirs in zip(("output", "errors", "exit code"), *found):
        if ours != theirs:
            wrong.append(f"{what} with the probe:\n{ours}\n  without:\n{theirs}")
    if len(runs[0].seen) != case[3]:
        wrong.append(
            f"the probe is active in {len(runs[0].seen)} processes, not in {case[3]}\n{found[0]}"
        )
    if "deadline" in found[0][1]:
        wrong.append("it did not end")
    for run in runs:
        subprocess.run(["rm", "-r", str(run.folder)], check=True)
    return case[0], found[0][2], wrong


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--torch")
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    cases = [
        it
        for it in CASES
        if (not options.cases or it[0] in options.cases)
        and not (options.torch and it[6].get("real") is False)
    ]
    failed = 0
    with ThreadPoolExecutor(4) as pool:
        for name, code, wrong in pool.map(lambda it: check(options, it), cases):
            print(f"{'FAILED' if wrong else 'ok':<7} {name:<30} exit code {code}", flush=True)
            print("".join(f"    {it}\n" for it in wrong), end="")
            failed += bool(wrong)
    print(f"{len(cases)} cases, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
