"""Try until the time is over: ``python -m tests.fuzz calls --seconds 600 --seed 7``."""

from __future__ import annotations

import argparse
import itertools
import sys
import time

from tests.fuzz.watched import tries


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("kind", choices=("calls", "parameters", "commands"))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first try")
    parser.add_argument("--only", type=int, help="one try, with its traceback")
    parser.add_argument("--trace", action="store_true", help="show tracebacks")
    options = parser.parse_args()
    numbers = itertools.count(options.first) if options.only is None else [options.only]
    until, tried, failed = time.monotonic() + options.seconds, 0, 0
    for failure in tries(options.kind, options.seed, numbers):
        tried += 1
        if failure:
            failed += 1
            print(failure, failure.where if options.trace or options.only is not None else "", sep="\n", flush=True)
        if time.monotonic() > until:
            break
    print(f"{failed} of {tried} {options.kind} failed, seed {options.seed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
