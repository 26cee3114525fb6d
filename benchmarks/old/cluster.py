"""Rechunk Zarr arrays on a local cluster with oocarrays and with Dask's own ways, in turn, each on a fresh cluster.

    python benchmarks/cluster.py tight two free-2 --rounds 3
    python benchmarks/cluster.py two-zstd --peers oocarrays,oocarrays:two-phase,p2p --cache cold,warm
    python benchmarks/cluster.py free-4 --peers oocarrays:two-phase/pex,oocarrays:two-phase/rex,oocarrays:two-phase/gen!
    python benchmarks/cluster.py kill-25 kill-50 kill-75 resume-50 --codec zstd
    python benchmarks/cluster.py predict --rounds 1

Workers are processes of one thread. `tight`, `two` and `free-N` race; `kill-N` kills one worker when N % of the
target is written; `resume-N` kills the driver and all workers then, and a fresh process finishes the work;
`predict` sets the plan's time beside the clock's, after `oocarrays calibrate`.

Peers are named `name[:variant][@factor][+fault]`: a variant of ours is a strategy, such as `two-phase`, and after a
slash a schedule, with `!` where its steps do not wait for one another; the factor multiplies the workers' memory.
DASK_OOCARRAYS__MEMORY=300MB in the environment sets our budget for each worker.
Sources are made once and kept in the working folder.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import cluster_report
import machine
import rounds
from cases import Case
from cluster_cases import FAULTS, RACES, TRIALS, Trial
from measure import Run
from peers import CLUSTER, Entry, entry

CASES = {**RACES, **FAULTS}


def main() -> None:
    """Run the benchmark as the command line asks."""
    options = _parser().parse_args()
    facts = machine.facts(None)
    with rounds.working_folder(options):
        print(facts, "\n", cluster_report.LEGEND, sep="\n", flush=True)
        found = [result for name in options.cases for result in _asked(name, options)]
    rounds.save(options, {"machine": facts, "results": found})


def _parser() -> argparse.ArgumentParser:
    parser = rounds.parser(__doc__, cache=("warm",), timeout=120)
    add, entries = parser.add_argument, rounds.entries(CLUSTER)
    add(
        "cases",
        nargs="+",
        choices=[*CASES, "predict"],
        metavar="CASE",
        help=f"{', '.join(CASES)} or predict",
    )
    add("--peers", type=entries, default=entries(",".join(CLUSTER)), help=f"default: {','.join(CLUSTER)}")
    add("--baseline", default="oocarrays", help="the peer that ratios are to (default: oocarrays)")
    add("--codec", choices=["none", "zstd", "blosc"], help="instead of the case's; `predict` has its own")
    parser.set_defaults(rechunker_python=None)
    return parser


def _asked(name: str, options: argparse.Namespace) -> list[dict]:
    """Every table of what one name asks for; the runs as plain data."""
    if name == "predict":
        return [_predicted(cache, options) for cache in options.cache]
    case, peers = _case(name, options), _peers(name, options.peers)
    return [_raced(case, peers, cache, options) for cache in options.cache]


def _case(name: str, options: argparse.Namespace) -> Case:
    case = CASES[name].scaled(options.scale)
    return replace(case, codec=options.codec) if options.codec else case


def _peers(name: str, asked: list[Entry]) -> list[Entry]:
    """Who runs: a fault befalls only ours, each beside the same undisturbed."""
    if name not in FAULTS:
        return asked
    ours = [peer for peer in asked if peer.module == CLUSTER["oocarrays"]]
    return [each for peer in ours for each in (peer, entry(f"{peer.label}+{name}", CLUSTER))]


def _raced(case: Case, peers: list[Entry], cache: str, options: argparse.Namespace) -> dict:
    played = rounds.play(case, peers, cache, options)
    print("", cluster_report.table(case, cache, played, options.baseline), sep="\n", flush=True)
    return rounds.plain(case, cache, played)


def _predicted(cache: str, options: argparse.Namespace) -> dict:
    """Every trial in turn, their table and the median error."""
    trials = [replace(trial, case=trial.case.scaled(options.scale)) for trial in TRIALS]
    played = [(trial, _tried(trial, cache, options)) for trial in trials]
    found = [(trial, [runs[trial.label] for runs in each if trial.label in runs]) for trial, each in played]
    print("", f"**predict**, cache {cache}", "", cluster_report.predictions(found), sep="\n", flush=True)
    results = [rounds.plain(trial.case, cache, each) for trial, each in played]
    return {"predict": results, "median_error": cluster_report.median_error(found)}


def _tried(trial: Trial, cache: str, options: argparse.Namespace) -> list[dict[str, Run]]:
    return rounds.play(trial.case, [entry(trial.label, CLUSTER)], cache, options)


if __name__ == "__main__":
    main()
