"""Measures the cost of `gputop exporter` beside `gputop record`, in one run, on the same fake driver.

    cargo build --release && cargo build -p fake-nvml
    python3 benches/exporter.py --gputop target/release/gputop
    python3 benches/exporter.py --gputop target/release/gputop --scene 8/64 --seconds 30 --rounds 5

The programs take turns. Each runs beside the same processes, with readings that change all the time,
and the exporters are scraped every 15 seconds of a server, here every `--scrape` seconds. Prints, as
medians over the rounds, the CPU in milliseconds per second and the PSS of the program and its agent, and
the ratio to `gputop record`. One exporter has neither TLS nor a password, the other one has both, which
needs `openssl` and `htpasswd`; it is left out, with a word, where they are missing.

This is a measurement, not a test: the exit code is 0 whatever the result.
"""

import argparse
import base64
import contextlib
import http.client
import pathlib
import re
import shutil
import ssl
import statistics
import subprocess
import sys
import tempfile
import time

import cost

PASSWORD = "prometheus:hunter2"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gputop", type=pathlib.Path, default=cost.target() / "release/gputop")
    parser.add_argument("--scene", type=cost.Scene.parse, default=cost.Scene.parse("8/64"))
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--scrape", type=float, default=15, help="seconds between two scrapes")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    driver = cost.target() / "debug/libfake_nvml.so"
    names = ["record", "exporter"]
    if shutil.which("openssl") and shutil.which("htpasswd"):
        names.append("exporter with TLS")
    else:
        print("openssl or htpasswd is missing: no exporter with TLS")
    found = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as name, cost.Crowd(options.scene.gpu_processes) as crowd:
        folder = pathlib.Path(name)
        host = cost.Host(folder, driver, options.scene, crowd.pids, [], 0)
        write_web_config(folder)
        for _ in range(options.rounds):
            for program in names:
                found[program].append(measure(program, folder, host, options))
    print(f"{options.scene.title()}, {options.rounds} rounds, medians")
    base = None
    for program, readings in found.items():
        cpu, pss = (statistics.median(column) for column in zip(*readings, strict=True))
        base = base or (cpu, pss)
        print(
            f"  {program:18} {cpu:6.2f} ms/s ({cpu / base[0]:.2f} x)   "
            f"{pss / 1024:6.1f} MiB ({(pss - base[1]) / 1024:+.1f})"
        )


def write_web_config(folder: pathlib.Path) -> None:
    if not shutil.which("openssl") or not shutil.which("htpasswd"):
        return
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run([*command, *files, *subject], check=True, capture_output=True)
    user, password = PASSWORD.split(":")
    entry = subprocess.run(
        ["htpasswd", "-nbBC", "10", user, password], check=True, capture_output=True, text=True
    )
    _, hashed = entry.stdout.strip().split(":")
    (folder / "web.yml").write_text(
        "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"
        f"basic_auth_users:\n  {user}: {hashed}\n",
        encoding="utf-8",
    )


def measure(
    program: str, folder: pathlib.Path, host: cost.Host, options: argparse.Namespace
) -> tuple[float, int]:
    """Returns the CPU in milliseconds per second, and the PSS in KiB."""
    if program == "record":
        arguments = ["record", "-o", str(folder / f"night-{host.runs}.jsonl.zst")]
    else:
        arguments = ["exporter", "--listen", "127.0.0.1:0"]
    if program.endswith("TLS"):
        arguments += ["--web-config", str(folder / "web.yml")]
    process = subprocess.Popen(
        [options.gputop, *arguments],
        env=host.environment(),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        message = process.stderr.readline()
        address = re.search(r"://127\.0\.0\.1:(\d+)/", message)
        port = int(address[1]) if address else None
        warm_up(port, program)
        pids = {process.pid, *children(process.pid)}
        before, began = cost.cpu_ns(pids), time.monotonic()
        while (left := began + options.seconds - time.monotonic()) > 0:
            time.sleep(min(left, options.scrape))
            if port:
                scrape(port, program)
        seconds = time.monotonic() - began
        after = cost.cpu_ns(pids)
        used = sum(after[pid] - before[pid] for pid in after) / 1e6 / seconds
        return used, sum(cost.pss_kib(pid) for pid in pids)
    finally:
        process.terminate()
        process.wait()


def warm_up(port: int | None, program: str) -> None:
    time.sleep(4)
    if port:
        scrape(port, program)


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
        return [int(child) for child in text.split()]
    return []


def scrape(port: int, program: str) -> None:
    headers = {"Accept": "application/openmetrics-text; version=1.0.0", "Host": "localhost"}
    if program.endswith("TLS"):
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=5)
        headers["Authorization"] = "Basic " + base64.b64encode(PASSWORD.encode()).decode()
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", "/metrics", headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200 or b"gputopmon_process_memory_bytes" not in body:
        sys.exit(f"{program}: a scrape failed: {answer.status}")


if __name__ == "__main__":
    main()
