"""Passes over slabs: overlap, the median filter, reuse and Jacobi's sweeps, with peers beside us in one run.

    python benchmarks/slabs.py overlap --picture figure58.png     a kernel that takes as long as the read; Figure 5.8
    python benchmarks/slabs.py median                             Tables 5.4 and 5.5, local and on a store that is slow
    python benchmarks/slabs.py reuse --codec none,zstd            Table 5.6: bytes read with reuse are those stored
    python benchmarks/slabs.py filter                             median of 8192², uint8 and float32, smooth and noisy
    python benchmarks/slabs.py jacobi --sweeps 10,40              sweeps of 8192² float64 in 256 MiB
    python benchmarks/slabs.py poisson --sweeps 10                a right-hand side and a mask beside what is swept
    python benchmarks/slabs.py windows                            both in chunks of 1024², in budgets down to 64 MiB

`filter`, `jacobi`, `poisson` and `windows` are races: each way in a process of its own, in turn, from a cold cache, its
output compared with OpenCV's median of the whole image, or numpy's sweeps of the whole grid, element by element. Peers
have the chunks, the number of threads and the way of working that serve them best, and no limit of memory. Who takes
longer than `--patience` runs once. The others are ours alone, in one process; every result is checked there, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

import machine
import rounds
import slab_overlap
import slab_report as report
import slab_thesis
from cases import MIB, parse_bytes
from slab_cases import EDGE, LAYOUTS, Case
from slab_race import Way, play
from slab_report import Must

OURS, OURS_CV, BY_HAND, BY_CLUSTER = "ours", "ours + OpenCV", "dask fused by hand", "dask each sweep, cluster"
FILTERS = (
    Way(label=OURS, module="peers.slab_ours", variant="median"),
    Way(label=OURS_CV, module="peers.slab_ours", variant="opencv"),
    Way(label="dask-image", module="peers.slab_dask", variant="image", layout="tall"),
    Way(label="dask + OpenCV", module="peers.slab_dask", variant="opencv", layout="tall"),
    Way(label="in-core OpenCV", module="peers.slab_in_core", variant="opencv", layout="tall"),
    Way(label="in-core scipy", module="peers.slab_in_core", variant="scipy", layout="tall"),
)
SWEEPS = (
    Way(label=OURS, module="peers.slab_ours", variant="jacobi"),
    Way(label="dask each sweep", module="peers.slab_dask", variant="each", layout="tall"),
    Way(label=BY_CLUSTER, module="peers.slab_dask", variant="cluster", layout="tall"),
    Way(label="cubed", module="peers.slab_cubed", variant="", layout="tall"),
    Way(label=BY_HAND, module="peers.slab_dask", variant="fused", layout="tall"),
    Way(label="in-core numpy", module="peers.slab_in_core", variant="numpy", layout="tall"),
    Way(label="in-core numpy, threads", module="peers.slab_in_core", variant="numpy-threads", layout="tall"),
    Way(label="in-core numba", module="peers.slab_in_core", variant="numba", layout="tall"),
    Way(label="in-core numba, parallel", module="peers.slab_in_core", variant="numba-parallel", layout="tall"),
)
RACES = ("filter", "jacobi", "poisson", "windows")
BUDGETS = (64, 128, 256, 1024)
"""Of `windows`, in MiB."""
FILTERS_MUST = (
    Must(ours=OURS, other="dask-image", times=3),
    Must(ours=OURS_CV, other="dask + OpenCV", times=1.4),
    Must(ours=OURS_CV, other="in-core OpenCV", times=1 / 1.3),
)
SWEEPS_MUST = (
    Must(ours=OURS, other="dask each sweep", times=5),
    Must(ours=OURS, other=BY_CLUSTER, times=5),
    Must(ours=OURS, other="cubed", times=5),
    Must(ours=OURS, other=BY_HAND, times=1.2),
    Must(ours=OURS, other="in-core numpy", times=1),
)


def main() -> None:
    """Run the benchmark as the command line asks."""
    options = _parser().parse_args()
    facts, found = machine.facts(None), []
    print(facts, *([report.LEGEND] if options.what in RACES else []), sep="\n\n", flush=True)
    with rounds.working_folder(options):
        for result in QUESTIONS[options.what](options):
            found.append(result)
            rounds.save(options, {"machine": facts, "results": found})


def _parser() -> argparse.ArgumentParser:
    parser = rounds.parser(__doc__, cache=("cold",), timeout=300)
    add, names = parser.add_argument, lambda text: text.split(",")
    add("what", choices=QUESTIONS)
    add("--codec", type=names, default=["none"], help="default: none; there are none, zstd, blosc")
    add("--dtypes", type=names, default=["u1", "f4"], help="of filter (default: u1,f4)")
    add("--kinds", type=names, default=["smooth", "noisy"], help="of filter (default: smooth,noisy)")
    add("--windows", type=lambda text: [*map(int, text.split(","))], default=[3, 5], help="default: 3,5")
    add("--sweeps", type=lambda text: [*map(int, text.split(","))], default=[10, 40], help="default: 10,40")
    add("--memory", type=parse_bytes, default=256 * MIB, help="for ours (default: 256MiB)")
    add("--ways", type=lambda text: text.split(";"), help="labels as the tables have them, parted by ;")
    add("--layout", choices=LAYOUTS, help="chunks for every way, instead of those that serve it best")
    add("--patience", type=float, default=4, help="a way that takes longer runs once (default: %(default)s s)")
    add("--stores", type=names, default=["local", "slow"], help="of median (default: local,slow)")
    add("--latency", type=float, default=0.02, help="seconds a request of the slow store (default: %(default)s)")
    add("--picture", type=Path, metavar="FILE", help="draw Figure 5.8")
    parser.set_defaults(rounds=2, pause=0)
    return parser


def filters(options: argparse.Namespace):
    """A table for each codec, window, type and kind of data."""
    for codec, size, dtype, kind in product(options.codec, options.windows, options.dtypes, options.kinds):
        case = Case(operation="median", times=size, dtype=dtype, kind=kind, codec=codec, memory=options.memory)
        yield from _raced(case, FILTERS, FILTERS_MUST, options)


def sweeps(options: argparse.Namespace):
    """A table for each codec and number of sweeps."""
    for codec, count in product(options.codec, options.sweeps):
        case = Case(operation="jacobi", times=count, dtype="f8", kind="noisy", codec=codec, memory=options.memory)
        yield from _raced(case, SWEEPS, SWEEPS_MUST, options)


def windows(options: argparse.Namespace):
    """A table for each budget of a median and of sweeps in square chunks, and one of a larger image."""
    ours = [Way(label=OURS, module="peers.slab_ours", variant=name, layout="squares") for name in ("median", "jacobi")]
    numba = [replace(way, layout="squares") for way in SWEEPS if way.label.startswith("in-core numba")]
    for codec, budget in product(options.codec, BUDGETS):
        about = {"codec": codec, "memory": budget * MIB, "kind": "noisy"}
        yield from _raced(Case(operation="median", times=5, dtype="f4", **about), ours[:1], (), options)
        for count in options.sweeps:
            case = Case(operation="jacobi", times=count, dtype="f8", **about)
            yield from _raced(case, [ours[1], *(numba if budget == BUDGETS[-1] else [])], (), options)
    larger = Case(operation="median", times=3, dtype="f4", kind="noisy", edge=2 * EDGE, memory=128 * MIB)
    yield from _raced(larger, ours[:1], (), options)


def poisson(options: argparse.Namespace):
    """Tables of Laplace's sweeps and of Poisson's, which read twice as many arrays, for each codec and number."""
    for codec, count in product(options.codec, options.sweeps):
        for operation in ("jacobi", "poisson"):
            case = Case(operation=operation, times=count, dtype="f8", kind="noisy", codec=codec, memory=options.memory)
            yield from _raced(case, [Way(label=OURS, module="peers.slab_ours", variant=operation)], (), options)


def _raced(case: Case, ways: Sequence[Way], musts: Sequence[Must], options: argparse.Namespace):
    case = replace(case, edge=case.edge // options.scale)
    ways = [way for way in ways if not options.ways or way.label in options.ways]
    if options.layout:
        ways = [replace(way, layout=options.layout) for way in ways]
    for cache in options.cache:
        played = play(case, ways, cache, options)
        print("", report.table(case, cache, played, musts), sep="\n", flush=True)
        runs = [{label: asdict(run) for label, run in found.items()} for found in played]
        yield {"case": asdict(case), "cache": cache, "rounds": runs}


QUESTIONS = {
    "overlap": slab_overlap.overlap,
    "median": slab_thesis.medians,
    "reuse": slab_thesis.reuse,
    "filter": filters,
    "jacobi": sweeps,
    "poisson": poisson,
    "windows": windows,
}


if __name__ == "__main__":
    main()
