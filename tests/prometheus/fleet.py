"""Checks `gputop --prometheus` with real servers and 10,000 simulated GPUs, in a terminal.

    apt-get install prometheus victoria-metrics tmux apache2-utils
    cargo build --release
    python3 tests/prometheus/fleet.py --gputop target/release/gputop
    python3 tests/prometheus/fleet.py --gpus 160 --dialect nvitop --dialect all_smi
    python3 tests/prometheus/fleet.py --server victoria-metrics --only first_screen --only questions
    python3 tests/prometheus/fleet.py --gpus 160 --fault never_answers
    python3 tests/prometheus/fleet.py --wait     # servers only, to look at with gputop by hand

The scene is in scene.py, the text of five exporters in dialects.py. A proxy between gputop and the
server records each question, and answers badly in the server's place (faults.py). With 40 hosts or
fewer each is a target of its own, as in a real cluster. Exits with 1 if a check fails.
"""

import argparse
import functools
import pathlib
import signal
import sys
import tempfile
import traceback

import checks
import fault_checks
import faults
import lab

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def main() -> None:
    by_name = {check.__name__: check for check in checks.CHECKS}
    by_name["quits"] = fault_checks.quits
    fault_by_name = {fault.__name__: fault for fault in faults.FAULTS}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gputop", type=pathlib.Path, default=ROOT / "target/debug/gputop")
    lab.add_options(parser)
    parser.add_argument("--only", action="append", choices=list(by_name), help="these checks")
    parser.add_argument("--fault", action="append", choices=list(fault_by_name))
    parser.add_argument("--faults", action="store_true", help="all bad answers, for 30 minutes")
    parser.add_argument("--wait", action="store_true", help="check nothing, until Ctrl-C")
    options = parser.parse_args()
    options.dialect = options.dialect or ["dcgm"]
    signal.signal(signal.SIGTERM, lambda *_arguments: sys.exit("ended by a signal"))
    chosen = [by_name[name] for name in options.only or []]
    bad = [fault_by_name[name] for name in options.fault or []]
    if not chosen and not bad and not options.faults:
        chosen = list(by_name.values())
    if options.faults:
        bad = faults.FAULTS
    with tempfile.TemporaryDirectory() as name:
        there = lab.Lab(options, pathlib.Path(name))
        try:
            there.start()
            if options.wait:
                wait_for_end(there)
            for fault in bad:
                for has_data in (False, True):
                    check = functools.partial(
                        fault_checks.fault_is_survived, fault=fault, has_data=has_data
                    )
                    check.__name__ = fault.__name__
                    check.__doc__ = fault_checks.fault_is_survived.__doc__
                    chosen.append(check)
            failed = [check.__name__ for check in chosen if not is_passed(check, there)]
        finally:
            there.end()
    print(f"\n{len(chosen) - len(failed)} of {len(chosen)} checks passed", end="")
    print(f"; failed: {', '.join(failed)}" if failed else "")
    sys.exit(1 if failed else 0)


def is_passed(check: functools.partial, there: lab.Lab) -> bool:
    print(f"\n{check.__name__}: {check.__doc__.strip().splitlines()[0]}", flush=True)
    try:
        passed = check(there)
    except Exception:
        traceback.print_exc(file=sys.stdout)
        passed = False
    there.proxy.fault = None
    print(f"  {'passed' if passed else 'FAILED'}", flush=True)
    return passed


def wait_for_end(there: lab.Lab) -> None:
    print(f"server:    {there.server.url}\nproxy:     {there.proxy.url}")
    print(f"exporters: http://{there.exporters.address}/control/vanish?hosts=20,21", flush=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        sys.exit()


if __name__ == "__main__":
    main()
