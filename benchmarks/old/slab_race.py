"""Rounds of the peers of `slabs.py`: each run in a fresh process, from a clean state, its output checked."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import machine
import report
import rounds
from measure import Run, measure
from peers import Entry
from slab_cases import Case, beside, expected, job_for, verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to answer a case."""

    label: str
    """As tables call it."""
    module: str
    """The peer's module."""
    variant: str
    """What the module calls it."""
    layout: str = "rows"
    """Chunks of source and target that serve it best, see `slab_cases.LAYOUTS`."""

    @property
    def entry(self) -> Entry:
        """The entry that `measure` runs."""
        return Entry(self.label, self.module, self.variant, 1.0)


def play(case: Case, ways: Sequence[Way], cache: str, options: argparse.Namespace) -> report.Rounds:
    """Rounds of one case; each begins with another way. Who fails, or takes long, has but one."""
    sources = os.path.join(options.workdir, "sources")
    os.makedirs(sources, exist_ok=True)
    right = expected(case, sources)
    played: report.Rounds = []
    done: set[str] = set()
    for number in range(options.rounds):
        played.append({})
        first = number % len(ways)
        for way in (*ways[first:], *ways[:first]):
            if way.label in done:
                continue
            run = played[-1][way.label] = _kept(case, way, cache, right, options)
            print(f"{case.name}, {cache}, {way.label}: {run.seconds:.2f} s, {run.verdict}", file=sys.stderr)
            if run.verdict != "ok" or run.seconds > options.patience:
                done.add(way.label)
    return played


def _kept(case: Case, way: Way, cache: str, right: str, options: argparse.Namespace) -> Run:
    """One run; whatever goes wrong is its result, so that the others' are kept."""
    try:
        return run_once(case, way, cache, right, options)
    except Exception as error:  # noqa: BLE001  (it stands in the way's row)
        return Run(f"failed: {type(error).__name__}: {error}".splitlines()[0][:200])


def run_once(case: Case, way: Way, cache: str, right: str, options: argparse.Namespace) -> Run:
    """One run of one way from a clean state, its output checked."""
    sources = os.path.join(options.workdir, "sources")
    folder = rounds.clean(os.path.join(options.workdir, "run"), options.pause)
    tiny = job_for(case.tiny(), way.layout, sources, os.path.join(folder, "tiny"), way.variant)
    beside(tiny)
    job = job_for(case, way.layout, sources, folder, way.variant)
    for source in (*beside(job), job.source):
        how = {"cold": machine.make_cold, "warm": machine.make_warm}[cache](source)
    run = measure(sys.executable, way.entry, job, tiny, options.timeout)
    run.told["cache"] = how
    run.told["cpu"] = run.busy * (run.seconds or options.timeout) * job.cores
    if run.verdict == "ok":
        run.verdict = verdict(job, right)
    shutil.rmtree(folder)
    return run
