"""Tables 5.4, 5.5 and 5.6 of Thakur 1995, redrawn: the median filter with and without prefetch, reuse on and off.

The thesis's image is 2048², on 4 to 64 processors of a Touchstone Delta, a disk for each. Here a slab is one chunk, so
that more slabs are more requests, as there. `slow` is a store that answers each request after some milliseconds.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import machine
import numpy as np
import slab_cases
import slab_kernels as kernels
import zarr
from cases import MIB
from collective_peers import opened
from peers.s3_stores import open_store
from report import row
from s3 import BUCKET, Server, served
from slab_cases import Case
from slab_overlap import Watched, watched
from zarr.core.sync import sync

import oocarrays as ooc

DATA = Path(__file__).parents[2] / "tests" / "data"
EDGE = 2048
RANKS, SLABS = (1, 2, 4), (4, 8, 16)
Times = Mapping[tuple[int, int, bool], float]
"""Seconds by ranks, slabs of a rank, and whether there is prefetch."""


def printed(size: int) -> dict[tuple[int, int, bool], float]:
    """Table 5.4 (3 × 3) or 5.5 (5 × 5)."""
    with (DATA / f"thesis_table5_{4 if size == 3 else 5}.csv").open() as file:
        return {
            (int(line["processors"]), int(line["slabs"]), line["prefetch"] == "yes"): float(line["seconds"])
            for line in csv.DictReader(file)
        }


# ---------------------------------------------------------------------- the three observations


def observations(times: Times) -> list[tuple[str, int, int]]:
    """List what the thesis saw, and in how many of how many places it is so.

    >>> [(held, of) for _, held, of in observations(printed(3))]
    [(15, 15), (10, 10), (9, 10)]
    """
    ranks, slabs = (sorted({key[i] for key in times}) for i in (0, 1))
    gains = [times[n, k, True] < times[n, k, False] for n, k in product(ranks, slabs)]
    more = {
        ahead: [times[n, b, ahead] - times[n, a, ahead] for n in ranks for a, b in pairwise(slabs)]
        for ahead in (False, True)
    }
    return [
        ("prefetch saves time", sum(gains), len(gains)),
        ("without prefetch more slabs take longer", sum(each > 0 for each in more[False]), len(more[False])),
        ("with prefetch more slabs take less", sum(each < 0 for each in more[True]), len(more[True])),
    ]


def most_saved(times: Times) -> float:
    """Return the largest share of its time that prefetch saves anywhere.

    >>> round(most_saved(printed(3)), 3)
    0.357
    """
    return max(1 - times[n, k, True] / times[n, k, False] for n, k, ahead in times if ahead)


def medians(options: argparse.Namespace) -> Iterator[dict]:
    """A table for each store and window."""
    with ExitStack() as stack:
        server = stack.enter_context(served(options.workdir, moto=False)) if "slow" in options.stores else None
        for store, size in product(options.stores, options.windows):
            place = Place(options, server if store == "slow" else None)
            case = Case(
                operation="median",
                times=size,
                dtype="f4",
                kind=options.kinds[0],
                edge=EDGE // options.scale,
                memory=options.memory,
            )
            runs = {key: _filtered(case, place, *key, options) for key in product(RANKS, SLABS, (True, False))}
            print("", _table(case, store, runs, options), sep="\n", flush=True)
            told = [{"at": key, "run": asdict(run)} for key, run in runs.items()]
            yield {"question": "median", "store": store, "case": asdict(case), "runs": told}


def _filtered(case: Case, place: Place, ranks: int, slabs: int, ahead: bool, options: argparse.Namespace) -> Watched:
    """Return the best of some rounds of one setting, checked."""
    height = max(case.edge // (ranks * slabs), 1)
    kernel = partial(ooc.kernels.median, size=case.times, mode="nearest")
    right = kernels.medians(slab_cases.values(case), case.times)
    how = {"depth": (case.times // 2, 0), "ranks": ranks, "prefetch": int(ahead), "workspace": "6MiB"}
    return best(case, place, height, kernel, how, right, options)


def best(
    case: Case,
    place: Place,
    height: int,
    kernel: Callable[..., Any],
    how: dict[str, Any],
    right: np.ndarray,
    options: argparse.Namespace,
) -> Watched:
    """Return the fastest of some rounds; the result of each is compared with what is right."""
    source = place.source(case, (height, case.edge))
    runs = []
    for _ in range(options.rounds):
        place.empty()
        job = ooc.map_slabs(kernel, source, place.target, height=height, memory=case.memory, scheduler="threads", **how)
        place.ready(source)
        runs.append(watched(job))
        if not np.array_equal(place.result(), right):
            raise SystemExit(f"{case.name}: WRONG VALUES with {how}")
    return min(runs, key=lambda run: run.seconds)


@dataclass(slots=True)
class Place:
    """Where arrays are: folders, cold or warm, or a store behind a latency."""

    options: argparse.Namespace
    """Of the command line."""
    server: Server | None
    """The store, where it is not folders."""

    @property
    def target(self) -> str:
        """Where results go."""
        return f"s3://{BUCKET}/target" if self.server else os.path.join(self.options.workdir, "target")

    def source(self, case: Case, chunks: tuple[int, ...]) -> str:
        """Return the array in some chunks, made where it is not there yet."""
        if self.server is None:
            folder = os.path.join(self.options.workdir, "sources")
            os.makedirs(folder, exist_ok=True)
            return slab_cases.source(case, chunks, folder)
        self.server.tell(0.0)
        store = f"s3://{BUCKET}/{case.kind}-{case.edge}-{chunks[0]}"
        with zarr.config.set({"async.concurrency": 32}):
            slab_cases.create(open_store(store), case, chunks, overwrite=True)[...] = slab_cases.values(case)
        return store

    def empty(self) -> None:
        """Leave nothing at the target, at no distance."""
        if self.server:
            self.server.tell(0.0)
            sync(open_store(self.target).clear())
        else:
            shutil.rmtree(self.target, ignore_errors=True)

    def ready(self, source: str) -> None:
        """Make the cache cold or warm; the store far."""
        if self.server:
            self.server.tell(self.options.latency)
        else:
            {"cold": machine.make_cold, "warm": machine.make_warm}[self.options.cache[0]](source)

    def result(self) -> np.ndarray:
        """Return the contents of the target."""
        if self.server:
            self.server.tell(0.0)
        return opened(self.target)[...]


def _table(case: Case, store: str, runs: Mapping[tuple[int, int, bool], Watched], options: argparse.Namespace) -> str:
    """Milliseconds here, seconds in print; what was observed there and here; memory, bytes."""
    times, there = {key: run.seconds for key, run in runs.items()}, printed(case.times)
    answers = f"{1e3 * options.latency:.0f} ms a request" if store == "slow" else options.cache[0]
    title = f"**Table 5.{4 if case.times == 3 else 5}**, {case.times} × {case.times}, {case.edge}² float32, {answers}"
    heads = [f"{k} slabs, {word}" for k in SLABS for word in ("prefetch", "none")]
    lines = [f"{title}: ms here, least of {options.rounds} rounds; s in print", ""]
    lines += [row(["ranks", *heads]), row(["---", *["---:"] * len(heads)])]
    for table, unit, name in ((times, 1e3, "{} here"), (there, 1, "{} in print")):
        for n in sorted({key[0] for key in table}):
            cells = (f"{unit * table[n, k, ahead]:.4g}" for k in SLABS for ahead in (True, False))
            lines.append(row([name.format(n), *cells]))
    lines.append("")
    for (seen, held, of), (_, printed_held, printed_of) in zip(observations(times), observations(there), strict=True):
        lines.append(f"- {seen}: in {held} of {of} here, {printed_held} of {printed_of} in print")
    lines.append(f"- the most that prefetch saves: {most_saved(times):.0%} here, {most_saved(there):.0%} in print")
    return "\n".join([*lines, f"- {costs(list(runs.values()))}"])


def costs(runs: Sequence[Watched]) -> str:
    """Memory beside the plans', processor time and bytes, of several runs."""
    peak, planned = (max(getattr(run, name) for run in runs) / MIB for name in ("peak", "planned"))
    over = sum(run.peak > run.planned for run in runs)
    cpu = [run.cpu for run in runs]
    moved = {tuple(f"{nbytes / MIB:.2f}" for nbytes in run.moved) for run in runs}
    return (
        f"peak at most {peak:.1f} MiB, planned at most {planned:.1f}, over the plan in {over} of {len(runs)} runs; "
        f"{min(cpu):.2f} to {max(cpu):.2f} s of processors; MiB read, written: "
        + "; ".join(", ".join(each) for each in sorted(moved))
    )


# ---------------------------------------------------------------------- reuse


HEIGHT = 8
"""Rows of a small slab of 2048²."""


def reuse(options: argparse.Namespace) -> Iterator[dict]:
    """Table 5.6: one pass over small slabs, each row read once or again for each slab that needs it."""
    names = ["array", "kernel", "codec", "without ms", "with ms", "saves", "in print", "CPU s", "read MiB", "stored"]
    print("\n**Table 5.6**, without and with reuse", "", row([*names, "peak MiB"]), sep="\n")
    print(row([*["---"] * 3, *["---:"] * 8]), flush=True)
    for edge, codec, operation in product((2048, 4096), options.codec, ("jacobi", "median")):
        case = Case(
            operation=operation,
            times=1 if operation == "jacobi" else 5,
            dtype="f4",
            kind="noisy",
            edge=edge // options.scale,
            codec=codec,
            memory=options.memory,
        )
        runs = {on: _reused(case, on, options) for on in (False, True)}
        stored = _stored(case, options)
        print(_reuse_row(case, edge, runs, stored), flush=True)
        told = {"without": asdict(runs[False]), "with": asdict(runs[True]), "stored": stored}
        yield {"question": "reuse", "case": asdict(case), **told}


def _reused(case: Case, on: bool, options: argparse.Namespace) -> Watched:
    data = slab_cases.values(case)
    if case.operation == "jacobi":
        depth, kernel, right = 1, kernels.sweep, kernels.swept(data, 1)
    else:
        depth, kernel = 2, partial(ooc.kernels.median, size=5, mode="nearest")
        right = kernels.medians(data, 5)
    how = {"depth": (depth, 0), "reuse": on, "workspace": "6MiB"}
    return best(case, Place(options, None), HEIGHT, kernel, how, right, options)


def _stored(case: Case, options: argparse.Namespace) -> int:
    store = Place(options, None).source(case, (HEIGHT, case.edge))
    return sum(
        os.path.getsize(os.path.join(folder, name))
        for folder, _, names in os.walk(os.path.join(store, "c"))
        for name in names
    )


def _reuse_row(case: Case, edge: int, runs: Mapping[bool, Watched], stored: int) -> str:
    with (DATA / "thesis_table5_6.csv").open() as file:
        there = {(int(line["array_rows"]), line["reuse"]): float(line["seconds"]) for line in csv.DictReader(file)}
    saves, in_print = 1 - runs[True].seconds / runs[False].seconds, 1 - there[edge, "yes"] / there[edge, "no"]
    both = [runs[False], runs[True]]
    return row(
        [
            f"{case.edge}²",
            case.name.split(",")[0],
            case.codec,
            *(f"{1e3 * run.seconds:.0f}" for run in both),
            f"{saves:.0%}",
            f"{in_print:.1%}" if case.operation == "jacobi" else "",
            " / ".join(f"{run.cpu:.2f}" for run in both),
            " / ".join(f"{run.moved[0] / MIB:.2f}" for run in both),
            f"{stored / MIB:.2f}" + (": once" if runs[True].moved[0] == stored else ": NOT ONCE"),
            " / ".join(f"{run.peak / MIB:.0f}" for run in both) + f" of {runs[True].planned / MIB:.0f} planned",
        ]
    )
