"""Checks with real servers that a host of several names is there once in `gputop --prometheus`.

    apt-get install prometheus victoria-metrics tmux
    cargo build
    python3 tests/prometheus/two_names.py target/debug/gputop

Two exporters read the same GPUs and name their hosts differently, as in Kubernetes, where the name
may be that of the exporter's pod: then it is another after each start. Exits with 1 if a check
fails.
"""

import dataclasses
import http.server
import pathlib
import sys
import tempfile
import threading
from collections.abc import Iterator

import dialects
import exporters
import scene
import servers
import viewer

HOSTS = scene.cluster(3 * scene.GPUS_PER_HOST, has_hostile=False)
# Two GPUs are free, and one of them has an error of which dcgm-exporter alone tells.
for gpu in HOSTS[0].gpus[:2]:
    gpu.is_busy, gpu.pod = False, None
scene.XIDS[0, 0] = 79
WAIT_S = 60


class Gputop(dialects.Gputop):
    """`gputop exporter` of which each has begun after the error."""

    def values(self, gpu: scene.Gpu, now: scene.Reading) -> Iterator[tuple[str, str, float]]:
        return super().values(gpu, dataclasses.replace(now, xid=0))


class Metrics(http.server.BaseHTTPRequestHandler):
    """Serves the text of the exporters that run."""

    running: dict[str, list[dialects.HostText]] = {}

    def log_message(self, *_arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        texts = self.running.get(self.path.lstrip("/"))
        self.send_response(503 if texts is None else 200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        if texts is not None:
            self.wfile.write(dialects.exposition(texts, scene.now_tick(), None))


def texts(hosts: list[scene.Host], dialect: dialects.Dialect, prefix: str) -> list:
    """The series of these hosts, whose names begin with `prefix`."""
    named = []
    for host in hosts:
        other = dataclasses.replace(host, name=f"{prefix}{host.index}", gpus=[])
        other.gpus = [dataclasses.replace(gpu, host=other) for gpu in host.gpus]
        named.append(dialects.HostText(other, dialect, is_stored=False))
    return named


def check(kind: str, gputop: pathlib.Path, folder: pathlib.Path) -> bool:
    running = Metrics.running
    running.clear()
    running["dcgm"] = texts(HOSTS, dialects.Dcgm(), "pod-a")
    here = exporters.QuietServer(("127.0.0.1", 0), Metrics)
    threading.Thread(target=here.serve_forever, daemon=True).start()
    address = f"127.0.0.1:{here.server_address[1]}"
    names = {
        "/gputop": ("10.0.0.1:19400", "gputop"),
        "/dcgm": ("10.0.0.1:9400", "dcgm"),
        "/smi": ("10.0.0.9:9835", "smi"),
    }
    configuration = servers.scrape_configuration(address, list(names), "1s", False, names)
    server = servers.Server(kind, folder, configuration)
    server.start()
    passed = True

    def sees(what: str, view: viewer.Viewer, words: list[str], missing: str) -> None:
        nonlocal passed
        is_seen = lambda screen: all(word in screen for word in words) and missing not in screen
        seen = view.wait(is_seen, WAIT_S) is not None
        print(f"  {'passed' if seen else 'FAILED'}: {what}", flush=True)
        if not seen:
            print(view.screen())
        passed = passed and seen

    def view() -> viewer.Viewer:
        return viewer.Viewer(gputop, folder, ["--prometheus", server.url])

    servers.wait("dcgm", lambda: len(server.query("DCGM_FI_DEV_FB_USED")) == 24)
    running["dcgm"] = texts(HOSTS, dialects.Dcgm(), "pod-b")
    servers.wait(
        "the new names", lambda: len(server.query('DCGM_FI_DEV_FB_USED{hostname=~"pod-a.*"}')) == 0
    )
    screen = view()
    sees("pods of a new name are not lost hosts", screen, ["3 hosts", "24 GPUs", "pod-b2"], "pod-a")
    running["gputop"] = texts(HOSTS[:2], Gputop(), "node-")
    running["smi"] = texts(HOSTS[2:], dialects.NvidiaSmi(), "")
    servers.wait("gputop's series", lambda: len(server.query("gputopmon_gpu_info")) == 16)
    servers.wait("the last", lambda: len(server.query("nvidia_smi_memory_used_bytes")) == 8)
    screen.press("C-r")
    words = ["3 hosts", "24 GPUs", "node-0", "node-1", "pod-b2"]
    sees("hosts get the names of a better exporter", screen, words, "10.0.0.9")
    words = ["1 sick", "22 busy", " 1 free", "last Xid 79"]
    sees("a GPU with an error of the other exporter is not free", screen, words, " 2 free")
    words = ["team-2 8, user1 8, user0 6"]
    sees("each GPU has the users of one exporter", screen, words, "team-1")
    del running["gputop"]
    servers.wait("no series of gputop", lambda: not server.query("gputopmon_gpu_info"))
    screen.press("C-r")
    words = ["24 GPUs", "pod-b0", "pod-b1", "pod-b2"]
    sees("without it they have the other names again", screen, words, "10.0.0.9")
    screen.end()
    # Some targets of an exporter have a label that names the host, and others have none.
    running.clear()
    running["smi"] = texts(HOSTS[2:], dialects.NvidiaSmi(), "")
    running["named"] = texts(HOSTS[1:2], dialects.NvidiaSmi(), "")
    running["gputop"] = texts(HOSTS[:1], Gputop(), "node-")
    running["dcgm"] = texts(HOSTS[:2], dialects.Dcgm(), "pod-c")
    names["/named"] = ("10.0.0.8:9835", "smi")
    named = servers.scrape_configuration(address, list(names), "1s", False, names)
    server.reload(named.replace('"path": "/named",', '"path": "/named", "node": "worker-1",'))
    for series, count in [
        ('nvidia_smi_memory_used_bytes{node="worker-1"}', 8),
        ("DCGM_FI_DEV_FB_USED", 16),
        ("gputopmon_gpu_info", 8),
    ]:
        servers.wait(series, lambda: len(server.query(series)) == count)  # noqa: B023
    screen = view()
    words = ["3 hosts", "24 GPUs", "node-0", "pod-c1", "10.0.0.9"]
    sees("hosts with and without a name of their own", screen, words, "worker-1")
    screen.end()
    server.end()
    here.shutdown()
    return passed


def main() -> None:
    gputop = pathlib.Path(sys.argv[1]).resolve()
    passed = True
    for kind in servers.KINDS:
        print(f"{kind}:", flush=True)
        with tempfile.TemporaryDirectory() as name:
            passed = check(kind, gputop, pathlib.Path(name)) and passed
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
