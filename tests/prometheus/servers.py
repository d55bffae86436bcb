"""Starts a Prometheus or a VictoriaMetrics with a temporary data folder, and asks it."""

import base64
import gzip
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable

DEADLINE_S = 120
KINDS = ("prometheus", "victoria-metrics")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def labels(metric: dict[str, str]) -> tuple:
    return tuple(sorted(metric.items()))


def wait(description: str, is_true: Callable[[], bool], seconds: float = DEADLINE_S) -> None:
    """Waits until something is true. Ends the program if it never is."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if is_true():
                return
        except OSError:
            pass
        if time.monotonic() > deadline:
            sys.exit(f"never: {description}")
        time.sleep(0.2)


def scrape_configuration(
    target: str, paths: list[str], interval: str, is_stored: bool, names: dict[str, str]
) -> str:
    """Returns a configuration that scrapes these paths of one target.

    `names` has the `instance` and the `job` of a path, which its samples get.
    """
    lines = [
        f"global: {{scrape_interval: {interval}, scrape_timeout: {interval}}}",
        "scrape_configs:",
        "  - job_name: lab",
        f"    honor_labels: {str(is_stored).lower()}",
        "    relabel_configs:",
        "      - {source_labels: [path], target_label: __metrics_path__}",
        "      - {source_labels: [own_instance], regex: (.+), target_label: instance}",
        "      - {source_labels: [own_job], regex: (.+), target_label: job}",
        "      - {regex: path|own_instance|own_job, action: labeldrop}",
        "    static_configs:",
    ]
    for path in paths:
        own = {"path": path}
        if path in names:
            own["own_instance"], own["own_job"] = names[path]
        # JSON is YAML.
        lines.append(f"      - {{targets: ['{target}'], labels: {json.dumps(own)}}}")
    return "\n".join(lines) + "\n"


class Server:
    """A running server."""

    def __init__(self, kind: str, folder: pathlib.Path, configuration: str) -> None:
        self.kind, self.folder, self.port = kind, folder, free_port()
        self.file = folder / f"{kind}.yml"
        self.file.write_text(configuration, encoding="utf-8")
        # A password, which the server then demands.
        self.user: tuple[str, str] | None = None
        self.program: subprocess.Popen | None = None
        self.log = folder / f"{kind}.log"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        data = self.folder / f"{self.kind}-data"
        if self.kind == "prometheus":
            return [
                "prometheus",
                f"--config.file={self.file}",
                f"--storage.tsdb.path={data}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--web.enable-lifecycle",
                *self.web_options(),
            ]
        return [
            "victoria-metrics",
            f"-promscrape.config={self.file}",
            f"-storageDataPath={data}",
            f"-httpListenAddr=127.0.0.1:{self.port}",
            "-promscrape.maxScrapeSize=268435456",
            *self.web_options(),
        ]

    def web_options(self) -> list[str]:
        if self.user is None:
            return []
        name, password = self.user
        if self.kind == "prometheus":
            command = ["htpasswd", "-nbBC", "4", name, password]
            hashed = subprocess.check_output(command, text=True).strip().split(":", 1)[1]
            web = self.folder / "web.yml"
            text = f"basic_auth_users: {{{json.dumps(name)}: {json.dumps(hashed)}}}\n"
            web.write_text(text, encoding="utf-8")
            return [f"--web.config.file={web}"]
        return [f"-httpAuth.username={name}", f"-httpAuth.password={password}"]

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.program = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait(f"{self.kind} answers; see {self.log}", lambda: bool(self.query("vector(1)")))

    def reload(self, configuration: str) -> None:
        """Lets the server read another configuration."""
        self.file.write_text(configuration, encoding="utf-8")
        request = urllib.request.Request(f"{self.url}/-/reload", method="POST")
        urllib.request.urlopen(request, timeout=DEADLINE_S).close()

    def end(self) -> None:
        if self.program is not None:
            self.program.kill()
            self.program.wait()
            self.program = None

    def fetch(self, path: str, arguments: dict[str, str]) -> tuple[bytes, int]:
        """Asks with POST. Returns the answer, and its bytes on the wire, compressed."""
        request = urllib.request.Request(
            f"{self.url}{path}", urllib.parse.urlencode(arguments).encode()
        )
        request.add_header("Accept-Encoding", "gzip")
        if self.user is not None:
            token = base64.b64encode(":".join(self.user).encode()).decode()
            request.add_header("Authorization", f"Basic {token}")
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            body = answer.read()
            is_gzip = answer.headers.get("Content-Encoding") == "gzip"
            return gzip.decompress(body) if is_gzip else body, len(body)

    def query(self, expression: str) -> dict[tuple, float]:
        """Asks for the present values. Returns them by their labels."""
        arguments = {"query": expression}
        if self.kind == "victoria-metrics":
            arguments["nocache"] = "1"
        body, _on_wire = self.fetch("/api/v1/query", arguments)
        result = json.loads(body)["data"]["result"]
        if isinstance(result[0] if result else None, float):
            return {(): float(result[1])}
        return {labels(row["metric"]): float(row["value"][1]) for row in result}


def peak_memory_mib(pid: int) -> float:
    """Returns the largest memory of a process so far."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time of a process so far."""
    text = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    fields = text.rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
