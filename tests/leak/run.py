"""A training loop that leaks, and its healthy twin, called by the shipped gputop: on a fake driver, without a GPU.

    cargo build --release && cargo build -p fake-nvml
    python3 tests/leak/run.py target/release/gputop target/debug/deps/libfake_nvml.so [--keep tests/data/memory]

Both are real processes, which take real memory of the host: `trainer.py`. The fake driver says of each what
/proc says of it (`follow_rss`). The one keeps what each step made, about 50 MB in 100 steps; the other lets go of it.
`gputop --csv` logs both GPUs each second, and `gputop analyze` says what it thinks of the logs; so does a screen that
nobody looks at, through `--on-alert`. It takes eight minutes. Ends with 0 when the leak is called one, on the screen too,
and the twin is not; `--keep` writes the logs that tests read: time in seconds, bytes.
"""

import argparse
import csv
import io
import json
import os
import pathlib
import pty
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).parent


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("gputop", type=pathlib.Path)
    arguments.add_argument("library", type=pathlib.Path)
    arguments.add_argument("--seconds", type=int, default=480)
    arguments.add_argument("--keep", type=pathlib.Path)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return watch(given, pathlib.Path(folder))


def watch(given, folder):
    trainers = {
        name: subprocess.Popen([sys.executable, str(HERE / "trainer.py"), name, str(given.seconds + 30)])
        for name in ("leak", "twin")
    }
    tenants = [[{"pid": it.pid, "follow_rss": True, "memory": 300 << 20, "sm": 80}] for it in trainers.values()]
    world = {"gpus": [{"persona": "RTX-4090", "processes": it} for it in tenants]}
    (folder / "world.json").write_text(json.dumps(world))
    environment = {
        **os.environ,
        "GPUTOP_NVML_LIB": str(given.library.resolve()),
        "FAKE_NVML_WORLD": str(folder / "world.json"),
        "XDG_STATE_HOME": str(folder),
        "TERM": "xterm-256color",
    }
    teller = folder / "tell"
    teller.write_text(f'#!/bin/sh\necho "$GPUTOP_ALERT $GPUTOP_ALERT_PID $GPUTOP_ALERT_SENTENCE" >> {folder}/told\n')
    teller.chmod(0o755)
    screen = on_a_terminal([given.gputop, "--on-alert", str(teller)], environment)
    command = [given.gputop, "--query-compute-apps=timestamp,gpu_uuid,pid,used_memory", "--format=csv", "-l", "1"]
    log = folder / "log.csv"
    with log.open("w") as out:
        logger = subprocess.Popen(command, env=environment, stdout=out)
        time.sleep(given.seconds)
        logger.terminate()
        logger.wait()
    screen.terminate()
    screen.wait()
    for trainer in trainers.values():
        trainer.kill()
        trainer.wait()
    said = subprocess.run([given.gputop, "analyze", "--json", "--capacity", "24GiB", log], stdout=subprocess.PIPE)
    by_pid = {it["pid"]: it for it in json.loads(said.stdout)["series"]}
    told = (folder / "told").read_text().splitlines() if (folder / "told").exists() else []
    is_right = True
    for name, trainer in trainers.items():
        series = by_pid[trainer.pid]
        called = any(it["verdict"] == "leak" for it in series["timeline"])
        first = next((it["at"] for it in series["timeline"] if it["verdict"] == "leak"), None)
        alerts = [it for it in told if it.split()[1] == str(trainer.pid)]
        print(f"{name}: {series['verdict']}, called a leak after {first} s, alerts on the screen: {alerts}")
        print(f"      {series['sentence']}")
        is_right &= called == (name == "leak") and bool(alerts) == (name == "leak")
        if given.keep:
            keep(given.keep / f"{name}.csv", log, trainer.pid)
    print("right" if is_right else "WRONG")
    return 0 if is_right else 1


def on_a_terminal(command, environment):
    """A program on a terminal that is always read."""
    master, slave = pty.openpty()
    process = subprocess.Popen(command, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)

    def read():
        try:
            while os.read(master, 65536):
                pass
        except OSError:
            pass

    threading.Thread(target=read, daemon=True).start()
    return process


def keep(path, log, pid):
    """Seconds since the log began, and bytes, of one process."""
    rows = [{k.strip(): v.strip() for k, v in it.items()} for it in csv.DictReader(io.StringIO(log.read_text()))]
    memory = next(key for key in rows[0] if key.startswith("used"))
    mine = [it for it in rows if it["pid"] == str(pid)]
    lines = [f"{second},{int(it[memory].split()[0]) << 20}" for second, it in enumerate(mine)]
    path.write_text("time,bytes\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
