"""Rechunk the same array with and without shards, in turn, each run in a fresh process.

    python benchmarks/shards.py --rounds 3
    python benchmarks/shards.py --codec zstd --cache cold,warm

`plain` has 64 files on either side, each one chunk; in shards, each of these files has 16 chunks. What that costs is
the ratio.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import machine
import report
import rounds
from cases import ONE_GIB, Case
from peers import entry

SOURCE = {"source_chunks": (256, 1024), "source_per_shard": (1, 16)}
TARGET = {"target_chunks": (1024, 256), "target_per_shard": (16, 1)}
CASES = (
    replace(ONE_GIB, name="plain"),
    replace(ONE_GIB, name="source in shards", **SOURCE),
    replace(ONE_GIB, name="target in shards", **TARGET),
    replace(ONE_GIB, name="both in shards", **SOURCE, **TARGET),
)


def main() -> None:
    """Run the benchmark as the command line asks."""
    parser = rounds.parser(__doc__, cache=("cold", "warm"), timeout=180)
    parser.add_argument("--codec", choices=["none", "zstd", "blosc"], default="none")
    parser.set_defaults(rechunker_python=None)
    options = parser.parse_args()
    cases = [replace(case.scaled(options.scale), codec=options.codec) for case in CASES]
    facts = machine.facts(None)
    with rounds.working_folder(options):
        print(facts, "\n", report.LEGEND, sep="\n", flush=True)
        played = {cache: _play(cases, cache, options) for cache in options.cache}
    rounds.save(options, {"machine": facts, "results": [rounds.plain(cases[0], *item) for item in played.items()]})


def _play(cases: list[Case], cache: str, options) -> report.Rounds:
    """Rounds of all cases; each round begins with another."""
    ours, found = entry("oocarrays"), []
    for _ in range(options.discard):
        rounds.run_once(cases[0], ours, cache, options)
    for number in range(options.rounds):
        first = number % len(cases)
        turn = cases[first:] + cases[:first]
        found.append({case.name: rounds.run_once(case, ours, cache, options) for case in turn})
        print(f"{cache}: { ({name: round(run.seconds, 2) for name, run in found[-1].items()}) }", file=sys.stderr)
    print("", report.table(cases[0], cache, found, "plain"), sep="\n", flush=True)
    return found


if __name__ == "__main__":
    main()
