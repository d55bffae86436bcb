"""Checks of `gputop --prometheus` with a server that answers badly.

Each fault is tried twice: at the start, and after hosts have been on the screen.
"""

import time

import checks
import faults
import lab
import viewer

# A whole answer may take 20 s, and the next question comes after 15 s.
SENTENCE_S = 60
KEY_S = 1.0


def answer_of_key(view: viewer.Viewer) -> float | None:
    """Returns the seconds until `?` changes the screen. `None`: it did not within 5."""
    before = view.screen()
    view.press("?")
    seen = view.wait(lambda screen: screen != before and "quit" in screen.lower(), 5, 0.02)
    view.press("Escape")
    return seen


def fault_is_survived(there: lab.Lab, fault: faults.Fault, has_data: bool) -> bool:
    """Shows one sentence, answers keys within a second, stays small, and has hosts again."""
    before = ""
    if not has_data:
        there.proxy.fault = fault
    view = there.view()
    if has_data:
        if view.wait(checks.has_hosts, 30) is None:
            print("  no hosts before the fault")
            return False
        before = view.screen()
        there.proxy.fault = fault
    began = time.monotonic()
    may_be_read = fault in faults.MAY_BE_READ
    seconds = SENTENCE_S / 2 if may_be_read else SENTENCE_S
    said = view.wait(lambda screen: bool(checks.new_sentences(before, screen)), seconds, 0.1)
    sentences = checks.new_sentences(before, view.screen())
    if said is None and not may_be_read:
        print("  no sentence on this screen:")
        checks.show(view.screen(), 6)
    if view.has_ended():
        print("  gputop ended")
        checks.show(view.screen())
        there.proxy.fault = None
        return False
    key = answer_of_key(view)
    memory = view.peak_memory_mib()
    there.proxy.fault = None
    again = view.wait(
        lambda screen: checks.has_hosts(screen) and not checks.new_sentences(before, screen),
        SENTENCE_S,
        0.1,
    )
    kept = "after data" if has_data else "at the start"
    text = lambda value: "never" if value is None else f"{value:.1f} s"
    print(
        f"  {kept}: said after {text(said)}, `?` {text(key)}, {memory:.0f} MiB, "
        f"data again {text(again)} ({time.monotonic() - began:.0f} s in all)"
    )
    for sentence in sentences:
        print(f"    {sentence}")
    if again is None:
        checks.show(view.screen(), 40)
    is_small = memory < checks.MEMORY_MIB
    is_said = len(sentences) == 1 or (may_be_read and not sentences)
    return is_said and again is not None and key is not None and key < KEY_S and is_small


def quits(there: lab.Lab) -> bool:
    """`q` ends gputop within a second while the server never answers."""
    there.proxy.fault = faults.never_answers
    arrived = there.proxy.arrived
    view = there.view()
    view.wait(lambda _screen: there.proxy.arrived > arrived, 10)
    view.press("q")
    began = time.monotonic()
    while not view.has_ended() and time.monotonic() - began < 10:
        time.sleep(0.02)
    took = time.monotonic() - began
    there.proxy.fault = None
    print(f"  ended after {took:.2f} s")
    return took < KEY_S
