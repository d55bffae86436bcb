"""The simulated exporters, a real server that scrapes them, the proxy before it, and viewers."""

import argparse
import pathlib
import time

import dialects
import exporters
import proxy
import scene
import servers
import viewer

# A series that each GPU has, by dialect, and how to tell GPUs apart.
SIGNS = {
    "dcgm": ("DCGM_FI_DEV_FB_USED", "UUID"),
    "nvidia_smi": ("nvidia_smi_memory_used_bytes", "uuid"),
    "nvitop": ("gpu_memory_used_MiB", "uuid"),
    "all_smi": ("all_smi_gpu_memory_used_bytes", "gpu_uuid,uuid"),
    "gputop": ("gputopmon_gpu_memory_used_bytes", "uuid"),
}
# With more hosts than these, few targets hold them all.
MOST_TARGETS = 40


class Lab:
    """All of it, which ends together."""

    def __init__(self, options: argparse.Namespace, folder: pathlib.Path) -> None:
        self.options, self.folder = options, folder
        self.hosts = scene.cluster(options.gpus, has_hostile=options.hostile)
        is_stored = len(self.hosts) > MOST_TARGETS
        self.exporters = exporters.Exporters(self.hosts, options.dialect, is_stored)
        self.past_s = options.past if is_stored else 0
        if self.past_s:
            self.exporters.serve_past(self.past_s)
        names = {}
        if not is_stored:
            for host, dialect in zip(self.hosts, self.exporters.dialect_of, strict=True):
                names[f"/host/{host.index}"] = (f"{host.name}:{dialect.port}", dialect.job)
        self.configure = lambda interval: servers.scrape_configuration(
            self.exporters.address, self.exporters.paths(), interval, is_stored, names
        )
        began = "1s" if self.past_s else options.interval
        self.server = servers.Server(options.server, folder, self.configure(began))
        self.proxy = proxy.Proxy(self.server.port)
        self.viewers: list[viewer.Viewer] = []

    def start(self) -> None:
        """Starts the server, and waits until it has all GPUs."""
        began = time.monotonic()
        self.server.start()
        if self.past_s:
            servers.wait("the past is served", self.exporters.is_past_served, 900)
            self.server.reload(self.configure(self.options.interval))
        expected = len(self.hosts) * scene.GPUS_PER_HOST
        servers.wait("the server has all GPUs", lambda: self.gpus_known() == expected)
        print(f"{self.server.kind} has {expected:,} GPUs: {time.monotonic() - began:.0f} s")

    def gpus_known(self) -> int:
        """Returns how many GPUs the server has."""
        known = 0
        for name in set(self.options.dialect):
            sign, gpu = SIGNS[name]
            answer = self.server.query(f"count(count by ({gpu}) ({sign}))")
            known += int(next(iter(answer.values()), 0))
        return known

    def view(self, *arguments: str) -> viewer.Viewer:
        """Starts gputop in a terminal. The viewer before it ends."""
        for earlier in self.viewers:
            earlier.end()
        given = ["--prometheus", self.proxy.url, *arguments]
        self.viewers = [viewer.Viewer(self.options.gputop.resolve(), self.folder, given)]
        return self.viewers[0]

    def control(self, action: str, hosts: list[int] | None = None) -> None:
        self.exporters.control(action, ",".join(str(index) for index in hosts or []))

    def end(self) -> None:
        for earlier in self.viewers:
            earlier.end()
        self.proxy.end()
        self.server.end()
        self.exporters.end()


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--server", choices=servers.KINDS, default=servers.KINDS[0])
    parser.add_argument("--gpus", type=int, default=10_000)
    parser.add_argument("--interval", default="15s", help="between two scrapes")
    parser.add_argument("--past", type=float, default=300, help="seconds of samples at the start")
    parser.add_argument(
        "--dialect",
        action="append",
        choices=list(dialects.DIALECTS),
        help="again for several, which the hosts take in turn; default: dcgm",
    )
    parser.add_argument("--no-hostile", dest="hostile", action="store_false")
