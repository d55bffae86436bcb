"""Measures questions to a server with the metrics of 10,000 GPUs: time, bytes, series.

    apt-get install prometheus victoria-metrics
    python3 tests/prometheus/costs.py --server victoria-metrics

Prints a Markdown table: seconds (the median of five), bytes of JSON, and bytes on the wire.
"""

import argparse
import json
import pathlib
import signal
import statistics
import sys
import tempfile
import time
import urllib.error

import exporters
import scene
import servers

HOST = "hostname,Hostname,instance"
GPU = f"{HOST},UUID"
USED = "DCGM_FI_DEV_FB_USED"
# The values that DCGM has for "not known".
KNOWN = "< 140737488355328"


def by_host(metric: str, known: str = KNOWN) -> str:
    return f"sum by ({HOST}) (max by ({GPU}) ({metric} {known}))"


def as_figure(name: str, question: str) -> str:
    return f'label_replace({question}, "figure", "{name}", "", "")'


def questions(hosts: list[scene.Host]) -> dict[str, str]:
    """The instant questions by a name."""
    names = "|".join(
        f"DCGM_FI_DEV_{name}"
        for name in ("GPU_UTIL", "FB_USED", "FB_FREE", "POWER_USAGE", "GPU_TEMP", "XID_ERRORS")
    )
    forty = "|".join(host.name.replace(".", "\\\\.") for host in hosts[:40])
    here = f'{{hostname=~"{forty}"}} or {{Hostname=~"{forty}"}}'
    one = f'{USED}{{hostname=~"{forty}"}} or {USED}{{Hostname=~"{forty}"}}'
    raw = f"max by ({GPU}) ({USED})"
    figures = [
        as_figure("used", by_host(USED)),
        as_figure("free", by_host("DCGM_FI_DEV_FB_FREE")),
        as_figure("reserved", by_host("DCGM_FI_DEV_FB_RESERVED")),
        as_figure("watts", by_host("DCGM_FI_DEV_POWER_USAGE")),
        as_figure("sm", by_host("DCGM_FI_DEV_GPU_UTIL", "< 2147483632")),
        as_figure("gpus", f"count by ({HOST}) (max by ({GPU}) ({USED}))"),
    ]
    named = f'{{__name__=~"{names}",hostname=~"{forty}"}}'
    return {
        "count by (__name__) of 6 names": f'count by (__name__) ({{__name__=~"{names}"}})',
        "count by (__name__) of one name": f"count by (__name__) ({USED})",
        "sum by host (X), duplicates counted": f"sum by ({HOST}) ({USED})",
        "sum by host (max by GPU (X))": f"sum by ({HOST}) (max by ({GPU}) ({USED}))",
        "the same, blanks left out (X < n)": by_host(USED),
        "count by host (max by GPU (X))": f"count by ({HOST}) (max by ({GPU}) ({USED}))",
        "max by host (time() - timestamp(X))": f"max by ({HOST}) (time() - timestamp({USED}))",
        "max(time() - timestamp(X))": f"max(time() - timestamp({USED}))",
        "gone: group (last_over_time(X[1h])) unless group (X)": (
            f"group by ({HOST}) (last_over_time({USED}[1h])) unless group by ({HOST}) ({USED})"
        ),
        "gone: group (X offset 10m) unless group (X)": (
            f"group by ({HOST}) ({USED} offset 10m) unless group by ({HOST}) ({USED})"
        ),
        "quantile(0.5, count_over_time(X[5m]))": f"quantile(0.5, count_over_time({USED}[5m]))",
        "the same of topk(5, X) alone": (
            f"quantile(0.5, count_over_time({USED}[5m]) and topk(5, {USED}))"
        ),
        "count by host (X == 0)": f"count by ({HOST}) (DCGM_FI_DEV_GPU_UTIL == 0)",
        "sum(X), count(X) over all (2 aggregates)": (
            f"{as_figure('sum', f'sum({raw})')} or {as_figure('count', f'count({raw})')}"
        ),
        "3 joined by label_replace and or": " or ".join(figures[:3]),
        "6 joined by label_replace and or": " or ".join(figures),
        "6 by __name__: sum by (host, __name__)": (
            f'sum by (__name__,{HOST}) ({{__name__=~"{names}"}})'
        ),
        "6 by __name__ without duplicates": (
            f'sum by (__name__,{HOST}) (max by (__name__,{GPU}) ({{__name__=~"{names}"}}))'
        ),
        "X of 40 hosts (hostname or Hostname)": one,
        "6 names of 40 hosts (hostname)": named,
        "6 names of 40 hosts, max by (GPU, pod)": f"max by (__name__,gpu,pod,{GPU}) ({named})",
        "all series of 40 hosts, any name": here,
        "topk(40, sum by host)": f"topk(40, {by_host(USED)})",
        "bottomk(40, count by host of X == 0)": (
            f"bottomk(40, count by ({HOST}) (max by ({GPU}) (DCGM_FI_DEV_GPU_UTIL) == 0))"
        ),
        "X of all GPUs": USED,
        "max by GPU (X) of all GPUs": raw,
        "hardware Xids": f"max by ({GPU},gpu) (DCGM_FI_DEV_XID_ERRORS > 0)",
    }


def ranges(hosts: list[scene.Host]) -> dict[str, str]:
    """The questions over an hour, a point each minute."""
    forty = "|".join(host.name.replace(".", "\\\\.") for host in hosts[:40])
    one = f'{{hostname=~"{forty}"}}'
    return {
        "1 h at 1 min: sum by host of 40 hosts": (
            f"sum by ({HOST}) (max by ({GPU}) ({USED}{one} {KNOWN}))"
        ),
        "1 h at 1 min: sum by host of all hosts": by_host(USED),
        "1 h at 1 min: one sum over all GPUs": f"sum(max by ({GPU}) ({USED} {KNOWN}))",
        "1 h at 1 min: 8 GPUs of one host": f'{USED}{{hostname="{hosts[1].name}"}}',
        "10 min at 15 s: sum by host of 40 hosts": (
            f"sum by ({HOST}) (max by ({GPU}) ({USED}{one} {KNOWN}))"
        ),
    }


def measured(server: servers.Server, path: str, arguments: dict[str, str]) -> str:
    """Asks five times. Returns the columns of the table."""
    times = []
    for _ in range(5):
        began = time.monotonic()
        try:
            body, on_wire = server.fetch(path, arguments)
        except urllib.error.HTTPError as error:
            return f"HTTP {error.code}: {error.read()[:200].decode()} | | |"
        times.append(time.monotonic() - began)
    series = len(json.loads(body)["data"]["result"])
    median = f"{statistics.median(times):.3f} ({max(times):.2f})"
    return f"{median} | {series:,} | {len(body) / 1000:,.1f} | {on_wire / 1000:,.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", choices=servers.KINDS, default=servers.KINDS[0])
    parser.add_argument("--gpus", type=int, default=10_000)
    parser.add_argument("--past", type=float, default=3600, help="seconds of samples")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_arguments: sys.exit("ended by a signal"))
    hosts = scene.cluster(options.gpus, has_hostile=False)
    served = exporters.Exporters(hosts, ["dcgm"], is_stored=True)
    served.serve_past(options.past)
    with tempfile.TemporaryDirectory() as name:
        configure = lambda interval: servers.scrape_configuration(
            served.address, served.paths(), interval, True, {}
        )
        server = servers.Server(options.server, pathlib.Path(name), configure("1s"))
        try:
            server.start()
            servers.wait("the past is served", served.is_past_served, 900)
            server.reload(configure("15s"))
            now = lambda: server.query(f"count({USED})").get((), 0) >= options.gpus
            servers.wait("all GPUs are there", now)
            report(server, hosts, options.gpus)
        finally:
            server.end()
            served.end()


def report(server: servers.Server, hosts: list[scene.Host], gpus: int) -> None:
    peak = servers.peak_memory_mib(server.program.pid)
    print(f"\n### {server.kind}, {gpus:,} GPUs, {peak:.0f} MiB at most\n")
    print("| question | s, median (worst) | series | kB JSON | kB gzip |")
    print("|---|---|---|---|---|")
    for name, question in questions(hosts).items():
        arguments = {"query": question}
        if server.kind == "victoria-metrics":
            arguments["nocache"] = "1"
        print(f"| {name} | {measured(server, '/api/v1/query', arguments)}", flush=True)
    now = int(time.time())
    for name, question in ranges(hosts).items():
        length, step = (600, "15") if name.startswith("10 min") else (3600, "60")
        arguments = {
            "query": question,
            "start": str(now - length),
            "end": str(now),
            "step": step,
        }
        print(f"| {name} | {measured(server, '/api/v1/query_range', arguments)}", flush=True)


if __name__ == "__main__":
    main()
