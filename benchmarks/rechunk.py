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
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace

import machine
import report
from cases import CASES, GIB, Case, Job, job_for, parse_bytes
from measure import HERE, Run, measure
from peers import DEFAULT, Entry, entry

PLANS = (
    Case(name="plan-slabs", shape=(100_000, 100_000), source_chunks=(1, 100_000), target_chunks=(100_000, 1)),
    Case(name="plan-tiles", shape=(163_840, 163_840), source_chunks=(512, 512), target_chunks=(64, 4096)),
)
"""100 000 chunks each; planned for eight ranks, never read."""
PLAN_MEMORY = 8 * GIB


def main() -> None:
    """Run the benchmark as the command line asks."""
    options = _parser().parse_args()
    os.makedirs(options.workdir or ".", exist_ok=True)
    folder = tempfile.mkdtemp(prefix="oocarrays-bench-", dir=None if os.environ.get("TMPDIR") else ".")
    try:
        options.workdir = os.path.abspath(options.workdir or folder)
        print(machine.facts(options.rechunker_python), "\n", report.LEGEND, sep="\n", flush=True)
        found = [result for name in _names(options.cases) for result in _case(name, options)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"machine": machine.facts(options.rechunker_python), "results": found}, file, indent=1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add(
        "cases",
        nargs="+",
        choices=[*CASES, "plan", "all"],
        metavar="CASE",
        help=f"{', '.join(CASES)}, plan or all",
    )
    add("--peers", type=_entries, default=_entries(",".join(DEFAULT)), help=f"default: {','.join(DEFAULT)}")
    add("--baseline", default="oocarrays", help="the peer that ratios are to (default: oocarrays)")
    add("--rounds", type=int, default=3)
    add("--cache", type=lambda text: text.split(","), default=["cold", "warm"], help="default: cold,warm")
    add("--workdir", help="kept afterwards, sources included (default: a temporary folder here or in $TMPDIR)")
    add("--json", metavar="OUT", help="write every run to this file")
    add("--scale", type=int, default=1, metavar="N", help="divide every edge by N")
    add("--memory", type=parse_bytes, help="budget instead of the case's, such as 512MiB")
    add("--timeout", type=float, default=180, help="seconds for one run (default: 180)")
    add("--pause", type=float, default=2, help="seconds between runs (default: 2)")
    add("--rechunker-python", metavar="PATH", help="interpreter of an environment with rechunker and zarr < 3")
    return parser


def _entries(text: str) -> list[Entry]:
    try:
        return [entry(label) for label in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _names(asked: list[str]) -> list[str]:
    return [*CASES, "plan"] if "all" in asked else asked


def _case(name: str, options: argparse.Namespace) -> list[dict]:
    """Every table of one case; the runs as plain data."""
    if name == "plan":
        return [_planning(case, options) for case in PLANS]
    case = CASES[name].scaled(options.scale)
    if options.memory:
        case = replace(case, memory=options.memory)
    return [_table(case, cache, options) for cache in options.cache]


def _table(case: Case, cache: str, options: argparse.Namespace) -> dict:
    """Rounds of one case with one state of the cache, and their table; each round begins with another peer.

    The first run is thrown away: on a machine that was idle it can take twice as long, whoever it is.
    """
    rounds: report.Rounds = []
    given_up: set[str] = set()
    _run(case, options.peers[0], cache, options)
    for number in range(options.rounds):
        rounds.append({})
        first = number % len(options.peers)
        for peer in options.peers[first:] + options.peers[:first]:
            if peer.label not in given_up:
                run = rounds[-1][peer.label] = _run(case, peer, cache, options)
                print(f"{case.name} {cache} {peer.label}: {run.seconds:.2f} s, {run.verdict}", file=sys.stderr)
                given_up |= {peer.label} if run.verdict != "ok" else set()
    return _shown(case, cache, rounds, options.baseline)


def _shown(case: Case, cache: str, rounds: report.Rounds, baseline: str) -> dict:
    print("", report.table(case, cache, rounds, baseline), sep="\n", flush=True)
    runs = [{label: asdict(run) for label, run in found.items()} for found in rounds]
    return {"case": asdict(case), "cache": cache, "rounds": runs}


def _run(case: Case, peer: Entry, cache: str, options: argparse.Namespace) -> Run:
    """One run of one peer from a clean state, its output checked."""
    python = options.rechunker_python if peer.zarr_format == 2 else sys.executable
    if python is None:
        return Run("not installed (see --rechunker-python)")
    folder = _clean(os.path.join(options.workdir, "run"), options.pause)
    tiny = _job(case.tiny(), peer, os.path.join(folder, "tiny"), options)
    job = _job(case, peer, folder, options)
    how = {"cold": machine.make_cold, "warm": machine.make_warm}[cache](job.source)
    run = measure(python, peer, job, tiny, options.timeout)
    run.told["cache"] = how
    if run.verdict == "ok":
        run.verdict = _data("check", job.target, job)
    shutil.rmtree(folder)
    return run


def _clean(folder: str, pause: float) -> str:
    """An empty folder on a disk at rest."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("scratch", "tiny/scratch"):
        os.makedirs(os.path.join(folder, name))
    os.sync()
    time.sleep(pause)
    machine.wait_for_rest()
    return folder


def _job(case: Case, peer: Entry, folder: str, options: argparse.Namespace) -> Job:
    """The case as a job of this peer; its source is made where it is not there yet."""
    sizes = "-".join("x".join(map(str, lengths)) for lengths in (case.shape, case.source_chunks))
    source = os.path.join(options.workdir, "sources", f"{sizes}-{case.codec}-v{peer.zarr_format}")
    job = job_for(case, source, folder, peer.factor, peer.variant)
    if not os.path.exists(source):
        os.makedirs(os.path.dirname(source), exist_ok=True)
        _data("make", source, job, str(peer.zarr_format))
    return job


def _data(verb: str, store: str, job: Job, *more: str) -> str:
    """`data.py` in a process of its own: its answer."""
    command = [sys.executable, os.path.join(HERE, "data.py"), verb, store, job.to_json(), *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else f"could not {verb} the array"


def _planning(case: Case, options: argparse.Namespace) -> dict:
    """Plan a large array `rounds` times; only its metadata exists."""
    case = replace(case, memory=PLAN_MEMORY)
    peer = entry("planning")
    rounds = []
    for _ in range(options.rounds):
        folder = _clean(os.path.join(options.workdir, "run"), 0)
        tiny = _job(case.tiny(), peer, os.path.join(folder, "tiny"), options)
        job = job_for(case, os.path.join(folder, "source"), folder)
        _data("describe", job.source, job)
        rounds.append({"planning": measure(sys.executable, peer, job, tiny, options.timeout)})
        shutil.rmtree(folder)
    return _shown(case, "–", rounds, "planning")


if __name__ == "__main__":
    main()
