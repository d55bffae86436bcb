"""Runs a training loop that leaks and a healthy twin, and checks gputop's verdicts: on the fake
driver, without a GPU.

    cargo build --release && cargo build -p fake-nvml
    python3 tests/leak/run.py target/release/gputop target/debug/deps/libfake_nvml.so [--keep tests/data/memory]

Both are real processes that use memory of the host: `trainer.py`. The fake driver reports their
resident memory as GPU memory (`follow_rss`). The leak keeps some 50 MB per 100 steps; the twin
frees them. gputop logs both GPUs each second, and `gputop analyze` judges the log; a gputop on a
terminal reports alerts through `--on-alert`. This takes eight minutes. The exit code is 0 when
analysis and screen report the leak, and neither reports the twin. `--keep` writes the logs that
tests read: seconds and bytes.
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
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("gputop", type=pathlib.Path)
    arguments.add_argument("library", type=pathlib.Path)
    arguments.add_argument("--seconds", type=int, default=480)
    arguments.add_argument("--keep", type=pathlib.Path)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return run(options, pathlib.Path(folder))


def run(options, folder):
    trainers = {
        name: subprocess.Popen(
            [sys.executable, str(HERE / "trainer.py"), name, str(options.seconds + 30)]
        )
        for name in ("leak", "twin")
    }
    gpu_processes = [
        [{"pid": trainer.pid, "follow_rss": True, "memory": 300 << 20, "sm": 80}]
        for trainer in trainers.values()
    ]
    world = {
        "gpus": [{"persona": "RTX-4090", "processes": processes} for processes in gpu_processes]
    }
    (folder / "world.json").write_text(json.dumps(world))
    environment = {
        **os.environ,
        "GPUTOP_NVML_LIB": str(options.library.resolve()),
        "FAKE_NVML_WORLD": str(folder / "world.json"),
        "XDG_STATE_HOME": str(folder),
        "TERM": "xterm-256color",
    }
    alert_program = folder / "alert"
    alert_program.write_text(
        f'#!/bin/sh\necho "$GPUTOP_ALERT $GPUTOP_ALERT_PID $GPUTOP_ALERT_SENTENCE" >> {folder}/alerts.log\n'
    )
    alert_program.chmod(0o755)
    screen = start_on_terminal([options.gputop, "--on-alert", str(alert_program)], environment)
    command = [
        options.gputop,
        "--query-compute-apps=timestamp,gpu_uuid,pid,used_memory",
        "--format=csv",
        "-l",
        "1",
    ]
    log = folder / "log.csv"
    with log.open("w") as out:
        logger = subprocess.Popen(command, env=environment, stdout=out)
        time.sleep(options.seconds)
        logger.terminate()
        logger.wait()
    screen.terminate()
    screen.wait()
    for trainer in trainers.values():
        trainer.kill()
        trainer.wait()
    analysis = subprocess.run(
        [options.gputop, "analyze", "--json", "--capacity", "24GiB", log], stdout=subprocess.PIPE
    )
    by_pid = {series["pid"]: series for series in json.loads(analysis.stdout)["series"]}
    alert_lines = (
        (folder / "alerts.log").read_text().splitlines() if (folder / "alerts.log").exists() else []
    )
    is_right = True
    for name, trainer in trainers.items():
        series = by_pid[trainer.pid]
        is_reported = any(entry["verdict"] == "leak" for entry in series["timeline"])
        first = next(
            (entry["at"] for entry in series["timeline"] if entry["verdict"] == "leak"), None
        )
        alerts = [line for line in alert_lines if line.split()[1] == str(trainer.pid)]
        print(
            f"{name}: {series['verdict']}, reported as a leak after {first} s, alerts on the screen: {alerts}"
        )
        print(f"      {series['sentence']}")
        is_right &= is_reported == (name == "leak") and bool(alerts) == (name == "leak")
        if options.keep:
            write_log(options.keep / f"{name}.csv", log, trainer.pid)
    print("right" if is_right else "WRONG")
    return 0 if is_right else 1


def start_on_terminal(command, environment):
    """Starts a program on a terminal whose output is read and dropped."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        command, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)

    def read():
        try:
            while os.read(master, 65536):
                pass
        except OSError:
            pass

    threading.Thread(target=read, daemon=True).start()
    return process


def write_log(path, log, pid):
    """Writes the memory of one process: seconds since the beginning of the log, and bytes."""
    rows = [
        {k.strip(): v.strip() for k, v in row.items()}
        for row in csv.DictReader(io.StringIO(log.read_text()))
    ]
    memory = next(key for key in rows[0] if key.startswith("used"))
    own = [row for row in rows if row["pid"] == str(pid)]
    lines = [f"{second},{int(row[memory].split()[0]) << 20}" for second, row in enumerate(own)]
    path.write_text("time,bytes\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
