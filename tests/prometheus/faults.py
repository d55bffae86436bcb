"""Bad answers of a server: each takes the handler of a request and answers it."""

import gzip
import http.server
import time
from collections.abc import Callable

Handler = http.server.BaseHTTPRequestHandler
Fault = Callable[[Handler], None]
BEGIN = b'{"status":"success","data":{"resultType":"vector","result":['
END = b"]}}"


def head(handler: Handler, status: int, kind: str, length: int | None, encoding: str = "") -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    if encoding:
        handler.send_header("Content-Encoding", encoding)
    if length is not None:
        handler.send_header("Content-Length", str(length))
    handler.send_header("Connection", "close")
    handler.end_headers()


def answers_after_30_seconds(handler: Handler) -> None:
    time.sleep(30)
    empty = BEGIN + END
    head(handler, 200, "application/json", len(empty))
    handler.wfile.write(empty)


def never_answers(handler: Handler) -> None:
    # Until gputop closes the connection.
    handler.connection.settimeout(600)
    handler.connection.recv(1)


def drips(handler: Handler) -> None:
    """One byte a second: each read is in time, the whole is not."""
    head(handler, 200, "application/json", 10_000)
    for byte in BEGIN + b" " * 600:
        handler.wfile.write(bytes([byte]))
        handler.wfile.flush()
        time.sleep(1)


def answers_html(handler: Handler) -> None:
    text = b"<!DOCTYPE html><html><title>Sign in</title><body>\x1b[2JSign in" + b"<p>" * 2000
    head(handler, 200, "text/html", len(text))
    handler.wfile.write(text)


def answers_1_gb(handler: Handler) -> None:
    """A label's value of 1 GB."""
    head(handler, 200, "application/json", None)
    handler.wfile.write(BEGIN + b'{"metric":{"hostname":"')
    for _ in range(1024):
        handler.wfile.write(b"a" * (1 << 20))
    handler.wfile.write(b'"},"value":[1,"1"]}' + END)


def answers_1_gb_of_spaces(handler: Handler) -> None:
    head(handler, 200, "application/json", None)
    handler.wfile.write(BEGIN)
    for _ in range(1024):
        handler.wfile.write(b" " * (1 << 20))
    handler.wfile.write(END)


def answers_1_gb_in_1_mb(handler: Handler) -> None:
    """1 GB of spaces that gzip made small."""
    text = gzip.compress(BEGIN) + gzip.compress(b" " * (1 << 24), 9) * 64 + gzip.compress(END)
    head(handler, 200, "application/json", len(text), "gzip")
    handler.wfile.write(text)


def answers_damaged_gzip(handler: Handler) -> None:
    text = gzip.compress(BEGIN + b" " * 9000 + END)[:-12] + b"x" * 12
    head(handler, 200, "application/json", len(text), "gzip")
    handler.wfile.write(text)


def answers_a_million_series(handler: Handler) -> None:
    head(handler, 200, "application/json", None)
    handler.wfile.write(BEGIN)
    now = time.time()
    for block in range(1000):
        rows = [
            f'{{"metric":{{"__name__":"DCGM_FI_DEV_FB_USED","hostname":"h{block}-{row}",'
            f'"UUID":"GPU-{block}-{row}"}},"value":[{now:.3f},"1"]}}'
            for row in range(1000)
        ]
        handler.wfile.write((("," if block else "") + ",".join(rows)).encode())
    handler.wfile.write(END)


def answers_a_million_labels(handler: Handler) -> None:
    head(handler, 200, "application/json", None)
    handler.wfile.write(BEGIN + b'{"metric":{"hostname":"x"')
    for block in range(1000):
        handler.wfile.write("".join(f',"l{block}_{row}":"v"' for row in range(1000)).encode())
    handler.wfile.write(b'},"value":[1,"1"]}' + END)


def answers_deep_json(handler: Handler) -> None:
    text = BEGIN + b"[" * 5_000_000
    head(handler, 200, "application/json", len(text))
    handler.wfile.write(text)


def answers_deep_extra(handler: Handler) -> None:
    """Depth in a field that gputop does not read."""
    text = b'{"status":"success","extra":' + b'{"a":' * 1_000_000
    head(handler, 200, "application/json", len(text))
    handler.wfile.write(text)


def closes_midway(handler: Handler) -> None:
    head(handler, 200, "application/json", 10_000)
    handler.wfile.write(BEGIN + b'{"metric":{"hostname":"x"},"value":[1,"')


def closes_at_once(handler: Handler) -> None:
    handler.close_connection = True


def says_unavailable(handler: Handler) -> None:
    text = b"couldn't start executing the request in 10 seconds"
    handler.send_response(429)
    handler.send_header("Retry-After", "10")
    handler.send_header("Content-Length", str(len(text)))
    handler.end_headers()
    handler.wfile.write(text)


def says_error(handler: Handler) -> None:
    """An error of the server with escape sequences and a megabyte of text."""
    text = b'{"status":"error","errorType":"execution","error":"\\u001b[2Jbad ' + b"e" * 1_000_000
    text += b'"}'
    head(handler, 422, "application/json", len(text))
    handler.wfile.write(text)


def answers_nonsense_values(handler: Handler) -> None:
    """The right form with values of the wrong kind."""
    text = BEGIN + b'{"metric":[],"value":"x"},7,null' + END
    head(handler, 200, "application/json", len(text))
    handler.wfile.write(text)


def redirects_elsewhere(handler: Handler) -> None:
    handler.send_response(307)
    handler.send_header("Location", "http://192.0.2.1/api/v1/query")
    handler.send_header("Content-Length", "0")
    handler.end_headers()


FAULTS: list[Fault] = [
    answers_after_30_seconds,
    never_answers,
    drips,
    answers_html,
    answers_1_gb,
    answers_1_gb_of_spaces,
    answers_1_gb_in_1_mb,
    answers_damaged_gzip,
    answers_a_million_series,
    answers_a_million_labels,
    answers_deep_json,
    answers_deep_extra,
    closes_midway,
    closes_at_once,
    says_unavailable,
    says_error,
    answers_nonsense_values,
    redirects_elsewhere,
]

# Answers of which gputop may read a part, without a word.
MAY_BE_READ = {answers_a_million_labels}
