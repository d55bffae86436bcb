"""Serves the simulated exporters, and lets hosts vanish and come back.

GET /group/N                 some hosts of the cluster, as Prometheus stores them
GET /host/N                  one host, as its exporter writes it
GET /control/vanish?hosts=   hosts without samples from now on: indexes with commas
GET /control/return          all hosts have samples again
GET /control/freeze          the readings stand still
GET /control/go              the readings move again
"""

import http.server
import threading
import time
import urllib.parse

import dialects
import scene

# One answer has the GPUs of this many hosts.
HOSTS_PER_GROUP = 64
# Samples of the past are this many seconds apart, the latest ones closer.
PAST_STEP_S = 60
RECENT_STEP_S = 15
RECENT_S = 300


class QuietServer(http.server.ThreadingHTTPServer):
    """A server whose clients may close a connection at any time."""

    daemon_threads = True

    def handle_error(self, *_arguments: object) -> None:
        pass


class Exporters:
    """The exporters of all hosts, behind one port."""

    def __init__(self, hosts: list[scene.Host], names: list[str], is_stored: bool) -> None:
        self.hosts, self.is_stored = hosts, is_stored
        self.vanished: set[int] = set()
        self.frozen_tick: int | None = None
        self.lock = threading.Lock()
        made = {name: dialects.DIALECTS[name]() for name in names}
        self.dialect_of = [made[names[host.index % len(names)]] for host in hosts]
        self.texts = [
            dialects.HostText(host, dialect, is_stored)
            for host, dialect in zip(hosts, self.dialect_of, strict=True)
        ]
        self.cached: dict[int, tuple[object, bytes]] = {}
        # The times that are to be served before the present, by group.
        self.past: dict[int, list[float]] = {}
        self.server = QuietServer(("127.0.0.1", 0), handler(self))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"

    def paths(self) -> list[str]:
        """The paths to scrape."""
        if self.is_stored:
            groups = -(-len(self.hosts) // HOSTS_PER_GROUP)
            return [f"/group/{group}" for group in range(groups)]
        return [f"/host/{host.index}" for host in self.hosts]

    def serve_past(self, seconds: float) -> None:
        """Gives each group samples of the past first, one moment with each scrape."""
        now = time.time()
        times = []
        moment = now - seconds
        while moment < now:
            times.append(moment)
            moment += RECENT_STEP_S if now - moment <= RECENT_S else PAST_STEP_S
        self.past = {group: list(times) for group in range(len(self.paths()))}

    def is_past_served(self) -> bool:
        return not any(self.past.values())

    def group(self, group: int) -> bytes:
        """Returns the text of a group of hosts."""
        first = group * HOSTS_PER_GROUP
        texts = self.texts[first : first + HOSTS_PER_GROUP]
        past = self.past.get(group)
        if past:
            moment = past.pop(0)
            return dialects.exposition(texts, int(moment / scene.PERIOD_S), int(moment * 1000))
        there = [text for text in texts if text.host.index not in self.vanished]
        tick = scene.now_tick() if self.frozen_tick is None else self.frozen_tick
        key = (tick, len(there))
        with self.lock:
            if self.cached.get(group, (None, b""))[0] != key:
                self.cached[group] = (key, dialects.exposition(there, tick, None))
            return self.cached[group][1]

    def host(self, index: int) -> bytes | None:
        """Returns the text of one host. `None`: its exporter does not answer."""
        if index in self.vanished:
            return None
        tick = scene.now_tick() if self.frozen_tick is None else self.frozen_tick
        return dialects.exposition([self.texts[index]], tick, None)

    def control(self, action: str, hosts: str) -> bool:
        """Does what a path below /control/ says. Returns whether it is known."""
        if action == "vanish":
            self.vanished = {int(index) for index in hosts.split(",") if index}
        elif action == "return":
            self.vanished = set()
        elif action == "freeze":
            self.frozen_tick = scene.now_tick()
        elif action == "go":
            self.frozen_tick = None
        else:
            return False
        return True

    def end(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def handler(exporters: Exporters) -> type:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            url = urllib.parse.urlsplit(self.path)
            parts = url.path.strip("/").split("/")
            text: bytes | None = None
            if len(parts) == 2 and parts[0] == "group":
                text = exporters.group(int(parts[1]))
            elif len(parts) == 2 and parts[0] == "host":
                text = exporters.host(int(parts[1]))
            elif len(parts) == 2 and parts[0] == "control":
                hosts = urllib.parse.parse_qs(url.query).get("hosts", [""])[0]
                text = b"done\n" if exporters.control(parts[1], hosts) else None
            self.send_response(503 if text is None else 200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(text or b"")))
            self.end_headers()
            self.wfile.write(text or b"")

        def log_message(self, *_arguments: object) -> None:
            pass

    return Handler
