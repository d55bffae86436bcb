"""Checks of `gputop --prometheus` with a server that answers as it should.

Each check prints what it saw, and returns whether that is as its docstring says.
"""

import pathlib
import re
import time
from collections.abc import Callable

import lab
import proxy
import scene
import servers
import viewer

HOST = re.compile(r"gpu-node-\d{4}")
FIRST_SCREEN_S = 1.5
REFRESH_CPU_MS = 150
MEMORY_MIB = 200
# The viewer asks again after 15 seconds or more; a server may need as long again to notice.
CHANGE_S = 90


def has_hosts(screen: str) -> bool:
    return HOST.search(screen) is not None


def has_no_samples(screen: str) -> bool:
    return "no samples" in screen


def show(screen: str, lines: int = 12) -> None:
    """Prints the beginning of a screen."""
    for line in screen.splitlines()[:lines]:
        print(f"    | {line}")


def first_screen(there: lab.Lab) -> bool:
    """The first screen with hosts comes within 1.5 s."""
    took = []
    for _ in range(3):
        view = there.view()
        seen = view.wait(has_hosts, 30, 0.02)
        if seen is None:
            print("  no host in 30 s")
            show(view.screen(), 40)
            return False
        took.append(time.monotonic() - view.began)
    print(f"  {', '.join(f'{seconds:.2f}' for seconds in took)} s")
    view.wait(lambda screen: len(HOST.findall(screen)) > 3, 5)
    show(view.screen(), 40)
    return min(took) <= FIRST_SCREEN_S


def refreshes(there: lab.Lab) -> bool:
    """A refresh takes at most 150 ms of the viewer's CPU time."""
    view = there.view()
    if view.wait(has_hosts, 30) is None:
        return False
    # The questions that follow the first screen are answered.
    asked = there.proxy.asked
    wait_for_pause(asked)
    drawing = idle_share(view, asked)
    wait_for_pause(asked)
    began, cpu, first = time.monotonic(), view.cpu_seconds(), len(asked)
    rounds = lambda: count_rounds(asked[first:])
    deadline = began + 150
    while rounds() < 4 and time.monotonic() < deadline:
        time.sleep(0.2)
    wait_for_pause(asked)
    spent, count = view.cpu_seconds() - cpu, rounds()
    seconds = time.monotonic() - began
    here = asked[first:]
    size = sum(one.bytes_sent for one in here) / 1000
    each = 1000 * spent / max(1, count)
    print(f"  {count} refreshes in {seconds:.0f} s, {each:.0f} ms of CPU time each")
    drawn = 1000 * drawing * seconds / max(1, count)
    print(f"  {drawn:.0f} ms of them draw the screen once a second, as between two refreshes")
    print(f"  each {len(here) / max(1, count):.0f} questions, {size / max(1, count):.0f} kB")
    print(f"  memory: {view.peak_memory_mib():.0f} MiB at most")
    return count > 1 and each <= REFRESH_CPU_MS and view.peak_memory_mib() < MEMORY_MIB


def idle_share(view: viewer.Viewer, asked: list[proxy.Asked]) -> float:
    """Returns the share of a CPU that the viewer takes until it asks again."""
    first, began, cpu = len(asked), time.monotonic(), view.cpu_seconds()
    share = 0.0
    while len(asked) == first and time.monotonic() < began + 60:
        if time.monotonic() > began + 1:
            share = (view.cpu_seconds() - cpu) / (time.monotonic() - began)
        time.sleep(0.2)
    return share


def wait_for_pause(asked: list[proxy.Asked]) -> None:
    """Waits until no question was asked for two seconds."""
    has_paused = lambda: bool(asked) and time.monotonic() - asked[-1].when > 2
    servers.wait("a pause between questions", has_paused)


def count_rounds(asked: list[proxy.Asked]) -> int:
    """Counts the bursts of questions."""
    times = [one.when - one.seconds for one in asked]
    gaps = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
    return bool(times) + sum(gap > 3 for gap in gaps)


def questions(there: lab.Lab) -> bool:
    """Each question names hosts, keeps the first few, adds up by host, or has a limit."""
    by_text: dict[str, list[proxy.Asked]] = {}
    for one in there.proxy.asked:
        by_text.setdefault(one.expression, []).append(one)
    wrong = 0
    print("     times   worst s    series        kB  question")
    for text, some in by_text.items():
        slowest = max(one.seconds for one in some)
        series = max((one.series or 0) for one in some)
        size = max(one.bytes_sent for one in some) / 1000
        print(f"  {len(some):8} {slowest:9.3f} {series:9,} {size:9,.1f}  {text[:200]}")
        failed = {one.status for one in some if one.status != 200}
        if failed:
            print(f"           the server said {failed}")
            wrong += 1
        why = proxy.why_unbounded(some[0])
        if why is not None:
            print(f"           unbounded: {why}")
            wrong += 1
    limits = {one.arguments.get("limit") for one in there.proxy.asked}
    print(f"  {len(by_text)} questions, {wrong} wrong; values of `limit`: {limits}")
    return wrong == 0 and bool(by_text)


def expected_totals(there: lab.Lab) -> dict[str, float]:
    """Returns the totals by PromQL: hosts, GPUs, free GPUs, and memory in use in GiB."""
    gpus = len(there.hosts) * scene.GPUS_PER_HOST
    used = f"max by (UUID) (DCGM_FI_DEV_FB_USED < {scene.BLANK_DOUBLE})"
    answer = there.server.query(f"sum({used}) / 1024")
    return {
        "hosts": len(there.hosts),
        "GPUs": gpus,
        "GiB in use": next(iter(answer.values())),
        "free GPUs, as the scene has them": sum(
            not gpu.is_busy for host in there.hosts for gpu in host.gpus
        ),
    }


def totals(there: lab.Lab) -> bool:
    """The first lines have the number of hosts and GPUs that PromQL counts."""
    there.control("freeze")
    time.sleep(2 * scene.PERIOD_S)  # the server scrapes what stands still
    view = there.view()
    expected = expected_totals(there)
    has_count = lambda screen: counts_of(screen, int(expected["GPUs"]))
    seen = view.wait(has_count, 40)
    there.control("go")
    print(f"  by PromQL: {', '.join(f'{value:,.1f} {name}' for name, value in expected.items())}")
    show(view.screen(), 4)
    return seen is not None and counts_of(view.screen(), int(expected["hosts"]))


def counts_of(screen: str, number: int) -> bool:
    """Whether the first four lines have a number, with or without commas."""
    text = "\n".join(screen.splitlines()[:4])
    return re.search(rf"(?<![\d,.])({number}|{number:,})(?![\d,.])", text) is not None


def vanished_hosts(there: lab.Lab) -> bool:
    """Hosts that vanish are said to have no samples, and are not shown as free."""
    view = there.view()
    if view.wait(has_hosts, 30) is None:
        return False
    there.control("vanish", [20, 21])
    seen = view.wait(has_no_samples, CHANGE_S)
    show(view.screen(), 16)
    lines = [line for line in view.screen().splitlines() if re.search("gpu-node-002[01]", line)]
    is_free = any(re.search(r"\bfree\b", line) for line in lines)
    there.control("return")
    gone = view.wait(lambda screen: not has_no_samples(screen), CHANGE_S)
    text = lambda value: "never" if value is None else f"after {value:.0f} s"
    print(f"  said {text(seen)}; back {text(gone)}; shown as free: {is_free}")
    return seen is not None and gone is not None and not is_free


def restart(there: lab.Lab) -> bool:
    """While the server is down one sentence says so, and data comes again with the server."""
    view = there.view()
    if view.wait(has_hosts, 30) is None:
        return False
    before = view.screen()
    there.server.end()
    sentence = lambda screen: bool(new_sentences(before, screen))
    said = view.wait(sentence, CHANGE_S)
    print(f"  {new_sentences(before, view.screen())}")
    asked = len(there.proxy.asked)
    there.server.start()
    again = view.wait(
        lambda screen: len(there.proxy.asked) > asked
        and has_hosts(screen)
        and not sentence(screen),
        2 * CHANGE_S,
    )
    print(f"  said after {said} s, data again after {again} s")
    return said is not None and again is not None


def new_sentences(before: str, now: str) -> list[str]:
    """Returns the lines on the server that were not there before."""
    known = {line.strip() for line in before.splitlines()}
    lines = [line.strip() for line in now.splitlines()]
    # Without hosts there is no mark before the sentence.
    begins = ("http://", "the answer of http://")
    is_sentence = lambda line: line.removeprefix("! ").startswith(begins)
    return [line for line in lines if line not in known and is_sentence(line)]


def passwords(there: lab.Lab) -> bool:
    """A server that wants a password: one sentence without it, hosts with it."""
    there.server.end()
    there.server.user = ("reader", "a secret: #1")
    try:
        there.server.start()
        without = there.view()
        said = without.wait(lambda screen: bool(new_sentences("", screen)), 30)
        print(f"  without: {new_sentences('', without.screen())}")
        name, password = there.server.user
        file = there.folder / "client.yml"
        file.write_text(
            f"basic_auth:\n  username: {name}\n  password: '{password}'\n", encoding="utf-8"
        )
        given = there.view("--http.config.file", str(file))
        seen = given.wait(has_hosts, CHANGE_S)
        is_secret = password not in given.screen() + without_secret(given.pid)
        print(f"  with: hosts after {seen} s; the password is on no screen: {is_secret}")
        return said is not None and seen is not None and is_secret
    finally:
        there.server.end()
        there.server.user = None
        there.server.start()


def without_secret(pid: int) -> str:
    """Returns the command line of a process, which other users can read."""
    return pathlib.Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")


def hostile_names(there: lab.Lab) -> bool:
    """Enter gives ssh the name of a host, and refuses a name that begins with a dash."""
    if not there.options.hostile:
        print("  left out: no hostile names")
        return True
    view = there.view()
    if view.wait(has_hosts, 30) is None:
        return False
    given = lambda: view.ssh_record.read_text(encoding="utf-8").splitlines()
    passed = True
    ordinary = there.hosts[1].name
    for typed in (scene.HOSTILE_NAMES[0][1:7], ordinary):
        view.press("/", "C-u")
        view.type(typed)
        view.press("Enter")
        is_found = view.wait(lambda screen, typed=typed: f"filter: {typed}" in screen, 5)
        view.press("Enter")
        said = view.wait(lambda screen: "cannot open" in screen or bool(given()), 5)
        refusal = [line.strip() for line in view.screen().splitlines() if "cannot open" in line]
        print(f"  {typed}: {refusal or given()}")
        passed = passed and None not in (is_found, said)
        if typed == ordinary:
            # Only what follows `--` is no option.
            passed = passed and "--" in given() and ordinary in given()[given().index("--") :]
        else:
            passed = passed and not given()
    return passed


CHECKS: list[Callable[[lab.Lab], bool]] = [
    first_screen,
    totals,
    refreshes,
    vanished_hosts,
    hostile_names,
    questions,
    restart,
    passwords,
]
