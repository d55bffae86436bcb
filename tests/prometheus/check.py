"""Checks `gputop exporter` with a real Prometheus: its answers are the gauges of `gputop --json`.

    apt-get install prometheus                    # the server and promtool
    cargo build && cargo build -p fake-nvml
    python3 tests/prometheus/check.py target/debug/gputop
    python3 tests/prometheus/check.py target/debug/gputop --minutes 10

Starts the fake driver's machine with readings that stand still, `gputop exporter`, and a Prometheus
that scrapes it each second. Compares what Prometheus answers with one line of `--json`, gauge by
gauge, then runs `promtool check metrics` on the text and `promtool check rules` on
assets/alerts.yml. With `--minutes`, processes come and go meanwhile, each with another PID, and the
number of series is compared before and after. At last, `gputop --prometheus` has to tell which GPUs
are free where that is hard to tell. Exits with 1 if something differs.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator

import servers
import viewer

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PORT = 19090


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gputop", type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        lab = Lab(options.gputop.resolve(), pathlib.Path(name))
        try:
            sys.exit(check(lab, options.minutes))
        finally:
            lab.end()


class Lab:
    """The machine, the exporter and the server, which end together."""

    def __init__(self, gputop: pathlib.Path, folder: pathlib.Path) -> None:
        self.gputop, self.folder, self.programs = gputop, folder, []
        self.sleepers = [self.start(["sleep", "1000"]) for _ in range(4)]
        self.world = folder / "world.json"
        self.write_world()
        (folder / "libnvidia-ml.so.1").symlink_to(ROOT / "target/debug/libfake_nvml.so")
        exporter = self.start([gputop, "exporter", "--listen", "127.0.0.1:0"])
        found = re.search(r"://(127\.0\.0\.1:\d+)/", exporter.stderr.readline())
        self.target = found[1]
        (folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
            "scrape_configs:\n"
            "  - job_name: gputop\n"
            f"    static_configs: [{{targets: ['{self.target}']}}]\n",
            encoding="utf-8",
        )
        self.start(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{PORT}",
            ],
            quiet=True,
        )

    def start(self, command: list, quiet: bool = False) -> subprocess.Popen:
        errors = subprocess.DEVNULL if quiet else subprocess.PIPE
        program = subprocess.Popen(
            command,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            text=True,
        )
        self.programs.append(program)
        return program

    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "LD_LIBRARY_PATH": str(self.folder),
            "FAKE_NVML_WORLD": str(self.folder / "world.json"),
        }

    def write_world(self) -> None:
        """Writes the world file, whose readings stand still."""
        gpus = []
        for place in range(2):
            there = [
                {"pid": sleeper.pid, "memory": (rank + 1) << 30, "sm": 10 * rank}
                for rank, sleeper in enumerate(self.sleepers[place::2])
            ]
            gpus.append({"persona": "H100", "processes": there})
        self.write_gpus(gpus)

    def hard_gpus(self) -> None:
        """Replaces the GPUs by two that MIG splits, of which one has a process on its second
        instance, one whose processes the driver does not tell, and one that asks for a reboot."""
        process = {"pid": self.sleepers[0].pid, "memory": 3 << 30}
        splits = [
            {
                "enabled": True,
                "max": 7,
                "instances": [
                    {
                        "uuid": f"MIG-{gpu:08x}-4444-5555-6666-{number:012x}",
                        "profile": "3g.20gb",
                        "gpu_instance": number,
                        "memory": {"total": 20 << 30, "v2": True},
                        "processes": [process] if (gpu, number) == (0, 2) else [],
                    }
                    for number in (1, 2)
                ],
            }
            for gpu in (0, 1)
        ]
        self.write_gpus(
            [
                *({"persona": "A100-MIG", "mig": mig} for mig in splits),
                {"persona": "H100", "no_process_lists": True, "memory": {"unaccounted": 70 << 30}},
                {"persona": "H100", "recovery_action": 2},
            ]
        )

    def write_gpus(self, gpus: list[dict]) -> None:
        text = json.dumps({"gpus": gpus})
        unfinished = self.world.with_suffix(".new")
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(self.world)

    def json(self) -> dict:
        output = subprocess.run(
            [self.gputop, "--json"], env=self.environment(), check=True, capture_output=True
        )
        return json.loads(output.stdout)

    def text(self) -> str:
        with urllib.request.urlopen(f"http://{self.target}/metrics") as answer:
            return answer.read().decode()

    def query(self, expression: str) -> dict[tuple, float]:
        """Asks Prometheus. Returns the values by their labels."""
        query = urllib.parse.urlencode({"query": expression})
        url = f"http://127.0.0.1:{PORT}/api/v1/query?{query}"
        with urllib.request.urlopen(url) as answer:
            result = json.load(answer)["data"]["result"]
        return {servers.labels(row["metric"]): float(row["value"][1]) for row in result}

    def end(self) -> None:
        for program in self.programs:
            program.terminate()
        for program in self.programs:
            program.wait()
            if program.stderr:
                program.stderr.close()


def gauges(gpu: dict) -> Iterator[tuple[str, str, float]]:
    """The gauges that a GPU of `--json` stands for: the name, a selector, and the value."""
    of_gpu = f'{{uuid="{gpu["uuid"]}"}}'
    load, health = gpu["load"], gpu["health"]
    for name, value in [
        ("gpu_memory_total_bytes", load["memory_total_bytes"]),
        ("gpu_memory_used_bytes", load["memory_used_bytes"]),
        ("gpu_memory_reserved_bytes", load["memory_reserved_bytes"]),
        ("gpu_sm_use_ratio", load["sm_utilization_percent"] / 100),
        ("gpu_memory_use_ratio", load["memory_utilization_percent"] / 100),
        ("gpu_temperature_celsius", load["temperature_celsius"]),
        ("gpu_power_watts", load["power_watts"]),
        ("gpu_power_limit_watts", health["power_limit_watts"]),
        ("gpu_sm_clock_hertz", load["sm_clock_hertz"]),
        ("gpu_ecc_uncorrected_errors_total", health["ecc_uncorrected_errors"]),
        ("gpu_row_remap_failed", int(health["remapped_rows_failed"])),
    ]:
        yield f"gputopmon_{name}", of_gpu, value
    listed = gpu["processes"]
    used = sum(process["memory_used_bytes"] for process in listed)
    yield "gputopmon_process_memory_bytes", of_gpu, used
    yield "gputopmon_processes", of_gpu, len(listed)
    busy = sum(process["sm_utilization_percent"] or 0 for process in listed)
    yield "gputopmon_process_sm_use_ratio", of_gpu, busy / 100


def check(lab: Lab, minutes: float) -> int:
    servers.wait("Prometheus has the processes", lambda: len(lab.query("gputopmon_processes")) == 2)
    wrong = compare(lab)
    # Growth and idle times are known after some time only.
    series = "count({__name__=~'gputopmon_process(es|_memory_bytes|_sm_use_ratio|_leftovers)'})"
    before = lab.query(series)
    end, changes = time.monotonic() + minutes * 60, 0
    while time.monotonic() < end:
        gone = lab.sleepers.pop(0)
        gone.terminate()
        gone.wait()
        lab.sleepers.append(lab.start(["sleep", "1000"]))
        lab.write_world()
        changes += 1
        time.sleep(1)
    servers.wait("each process is there", lambda: len(lab.query("gputopmon_processes")) == 2)
    servers.wait("the series are as many as before", lambda: lab.query(series) == before)
    wrong += compare(lab)
    kinds = lab.query("count(count by (program, user) (gputopmon_process_memory_bytes))")
    print(f"{changes} processes came and went; series before and after: {before}; {kinds}")
    lab.hard_gpus()
    view = viewer.Viewer(lab.gputop, lab.folder, ["--prometheus", f"http://127.0.0.1:{PORT}"])
    words = ["1 sick", "2 busy  1 free", "vm:3", "root 1  sleep"]
    is_right = lambda screen: all(word in screen for word in words)
    is_seen = view.wait(is_right, 60) is not None
    print(f"of four GPUs, one is free: {is_seen}" + ("" if is_seen else f"\n{view.screen()}"))
    wrong += not is_seen
    view.end()
    text = lab.text()
    for command, given in [
        (["promtool", "check", "metrics"], text),
        (["promtool", "check", "rules", str(ROOT / "assets/alerts.yml")], None),
    ]:
        output = subprocess.run(command, input=given, text=True, capture_output=True)
        said = (output.stdout + output.stderr).strip()
        print(f"{' '.join(command[:3])}: {said or 'clean'}")
        wrong += output.returncode != 0
    return 1 if wrong else 0


def compare(lab: Lab) -> int:
    """Compares the answers of Prometheus with a line of `--json`. Returns how many differ."""
    wrong = compared = 0
    for gpu in lab.json()["gpus"]:
        for name, selector, expected in gauges(gpu):
            found = list(lab.query(f"sum by (uuid) ({name}{selector})").values())
            compared += 1
            if len(found) != 1 or abs(found[0] - expected) > 1e-6 * abs(expected):
                wrong += 1
                print(f"{name}{selector}: Prometheus {found}, --json {expected}")
    print(f"{compared} gauges compared, {wrong} differ")
    return wrong


if __name__ == "__main__":
    main()
