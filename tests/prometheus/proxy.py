"""Stands between gputop and the server: records each question, or answers badly in its place."""

import http.client
import http.server
import json
import re
import threading
import time
import urllib.parse
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import exporters

# Labels that tell GPUs of a host apart.
GPU_LABELS = {"uuid", "UUID", "gpu", "gpu_uuid", "gpu_index", "index", "device", "pci_bus_id"}
AGGREGATIONS = ("sum", "count", "max", "min", "avg", "group", "quantile", "count_values", "stddev")
HOST_LABELS = "hostname|Hostname|instance|exported_instance|host|exported_host|node"


@dataclass
class Asked:
    """A question and its answer."""

    path: str
    arguments: dict[str, str]
    status: int
    # Until the answer was sent on.
    seconds: float
    # When the answer was sent on, by the monotonic clock.
    when: float
    # As they were sent: compressed or not.
    bytes_sent: int
    # None: the answer is no JSON of a query.
    series: int | None

    @property
    def expression(self) -> str:
        return self.arguments.get("query", "")


class Proxy:
    """The proxy. `fault` answers instead of the server while it is set."""

    def __init__(self, server_port: int) -> None:
        self.server_port = server_port
        self.asked: list[Asked] = []
        # Questions that arrived, answered or not.
        self.arrived = 0
        self.fault: Callable[[http.server.BaseHTTPRequestHandler], None] | None = None
        self.server = exporters.QuietServer(("127.0.0.1", 0), handler(self))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def end(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def handler(proxy: Proxy) -> type:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Answers go out at once, as those of a server in Go do.
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            self.forward("POST")

        def do_GET(self) -> None:
            self.forward("GET")

        def forward(self, method: str) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            proxy.arrived += 1
            if proxy.fault is not None:
                self.close_connection = True
                try:
                    proxy.fault(self)
                except OSError:
                    pass  # gputop closed the connection
                return
            began = time.monotonic()
            names = ("accept", "accept-encoding", "authorization", "content-type", "x-scope-orgid")
            headers = {name: value for name, value in self.headers.items() if name.lower() in names}
            upstream = http.client.HTTPConnection("127.0.0.1", proxy.server_port, timeout=120)
            try:
                upstream.request(method, self.path, body, headers)
                answer = upstream.getresponse()
                text = answer.read()
            except (OSError, http.client.HTTPException):
                # The server is not there: neither is this proxy.
                self.close_connection = True
                return
            finally:
                upstream.close()
            self.send_response(answer.status)
            for name in ("Content-Type", "Content-Encoding", "WWW-Authenticate", "Retry-After"):
                if answer.headers.get(name):
                    self.send_header(name, answer.headers[name])
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            try:
                self.wfile.write(text)
            except OSError:
                pass
            url = urllib.parse.urlsplit(self.path)
            given = urllib.parse.parse_qsl(url.query) + urllib.parse.parse_qsl(body.decode())
            now = time.monotonic()
            encoding = answer.headers.get("Content-Encoding", "")
            series = series_of(text, encoding)
            asked = Asked(url.path, dict(given), answer.status, now - began, now, len(text), series)
            proxy.asked.append(asked)

        def log_message(self, *_arguments: object) -> None:
            pass

    return Handler


def series_of(text: bytes, encoding: str) -> int | None:
    """Returns how many series an answer has."""
    try:
        plain = zlib.decompress(text, 47) if encoding else text
        result = json.loads(plain)["data"]["result"]
    except (ValueError, KeyError, TypeError, zlib.error):
        return None
    return len(result)


def why_unbounded(asked: Asked) -> str | None:
    """Returns why the answer to a question grows with the number of GPUs. `None`: it does not."""
    if int(asked.arguments.get("limit", "0")) > 0 and asked.arguments["limit"] != "200000":
        return None
    expression = asked.expression
    # Strings may have parentheses.
    plain = re.sub(
        r'"(\\.|[^"\\])*"', lambda found: '"' + "x" * (len(found[0]) - 2) + '"', expression
    )
    selectors = r"\b(DCGM_\w+|nvidia_smi_\w+|gpu_\w+|process_\w+|all_smi_\w+|gputopmon_\w+)"
    for found in re.finditer(selectors, plain):
        if (
            found[1] in GPU_LABELS
            or plain[found.end() :].lstrip().startswith(("=", ",", ")"))
            and (is_in_label_list(plain, found.start()))
        ):
            continue
        if not is_bounded(plain, found.end(), expression):
            return f"{found[1]} at character {found.start()}"
    return None


def is_in_label_list(plain: str, place: int) -> bool:
    opened = plain.rfind("(", 0, place)
    before = plain[:opened].rstrip()
    words = ("by", "without", "on", "ignoring", "group_left", "group_right")
    return before.endswith(words) or plain.rfind("{", 0, place) > plain.rfind("}", 0, place)


def is_bounded(plain: str, end: int, expression: str) -> bool:
    """Whether the selector that ends there names hosts, or an aggregation around it drops GPUs."""
    if plain[end : end + 1] == "{":
        matchers = expression[end : plain.index("}", end)]
        if re.search(rf'\b({HOST_LABELS})\s*=~?\s*"(?!\.[*+]")[^"]', matchers):
            return True
    depth = 0
    for place in range(end, -1, -1):
        if place < len(plain) and plain[place] == ")" and place < end:
            depth += 1
        elif plain[place : place + 1] == "(" and place < end:
            if depth:
                depth -= 1
                continue
            before = plain[:place].rstrip()
            labels = ""
            clause = re.search(r"\b(by|without)\s*\(([^()]*)\)$", before)
            if clause:
                labels = clause[2]
                before = before[: clause.start()].rstrip()
            name = re.search(r"(\w+)$", before)
            if name is None:
                continue
            if name[1] in ("topk", "bottomk", "limitk"):
                return True
            kept = {label.strip() for label in labels.split(",")}
            is_without = clause is not None and clause[1] == "without"
            if name[1] in AGGREGATIONS and not is_without and not kept & GPU_LABELS:
                return True
    return False
