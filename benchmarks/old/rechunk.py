"""Rechunk Zarr arrays with oocarrays and with its peers, in turn, each run in a fresh process.

    python benchmarks/rechunk.py 1g 1g-zstd --rounds 3
    python benchmarks/rechunk.py 4g-1g --peers oocarrays,tensorstore,dask-p2p@4 --cache cold,warm
    python benchmarks/rechunk.py all --scale 16 --rounds 1

Peers are named `name[:variant][@factor]`; the factor multiplies the case's memory budget for that peer.
Prints one Markdown table for each case and state of the page cache. Sources are made once and kept in the
working folder.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from dataclasses import replace

import machine
import report
import rounds
from cases import CASES, GIB, Case, job_for, parse_bytes
from measure import measure
from peers import DEFAULT, entry

PLANS = (
    Case(name="plan-slabs", shape=(100_000, 100_000), source_chunks=(1, 100_000), target_chunks=(100_000, 1)),
    Case(name="plan-tiles", shape=(163_840, 163_840), source_chunks=(512, 512), target_chunks=(64, 4096)),
)
"""100 000 chunks each; planned for eight ranks, never read."""
PLAN_MEMORY = 8 * GIB


def main() -> None:
    """Run the benchmark as the command line asks."""
    options = _parser().parse_args()
    facts = machine.facts(options.rechunker_python)
    with rounds.working_folder(options):
        print(facts, "\n", report.LEGEND, sep="\n", flush=True)
        found = [result for name in _names(options.cases) for result in _case(name, options)]
    rounds.save(options, {"machine": facts, "results": found})


def _parser() -> argparse.ArgumentParser:
    parser = rounds.parser(__doc__, cache=("cold", "warm"), timeout=180)
    add, entries = parser.add_argument, rounds.entries()
    add(
        "cases",
        nargs="+",
        choices=[*CASES, "plan", "all"],
        metavar="CASE",
        help=f"{', '.join(CASES)}, plan or all",
    )
    add("--peers", type=entries, default=entries(",".join(DEFAULT)), help=f"default: {','.join(DEFAULT)}")
    add("--baseline", default="oocarrays", help="the peer that ratios are to (default: oocarrays)")
    add("--memory", type=parse_bytes, help="budget instead of the case's, such as 512MiB")
    add("--rechunker-python", metavar="PATH", help="interpreter of an environment with rechunker and zarr < 3")
    return parser


def _names(asked: list[str]) -> list[str]:
    return [*CASES, "plan"] if "all" in asked else asked


def _case(name: str, options: argparse.Namespace) -> list[dict]:
    """Every table of one case; the runs as plain data."""
    if name == "plan":
        return [_planning(case, options) for case in PLANS]
    case = CASES[name].scaled(options.scale)
    if options.memory:
        case = replace(case, memory=options.memory)
    played = ((cache, rounds.play(case, options.peers, cache, options)) for cache in options.cache)
    return [_shown(case, cache, runs, options.baseline) for cache, runs in played]


def _shown(case: Case, cache: str, runs: report.Rounds, baseline: str) -> dict:
    print("", report.table(case, cache, runs, baseline), sep="\n", flush=True)
    return rounds.plain(case, cache, runs)


def _planning(case: Case, options: argparse.Namespace) -> dict:
    """Plan a large array `rounds` times; only its metadata exists."""
    case = replace(case, memory=PLAN_MEMORY)
    peer = entry("planning")
    found = []
    for _ in range(options.rounds):
        folder = rounds.clean(os.path.join(options.workdir, "run"), options.pause)
        tiny = rounds.tiny_job(case, peer, folder, options)
        job = job_for(case, os.path.join(folder, "source"), folder)
        rounds.data("describe", job.source, job)
        found.append({"planning": measure(sys.executable, peer, job, tiny, options.timeout)})
        shutil.rmtree(folder)
    return _shown(case, "–", found, "planning")


if __name__ == "__main__":
    main()
