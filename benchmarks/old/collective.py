"""Collective reads of one array on disk: the papers' tables drawn again, and ROMIO beside us.

    python benchmarks/collective.py distributions --rounds 3 --cache cold,warm
    python benchmarks/collective.py distributions --stores latency --files column
    python benchmarks/collective.py counts --draw figures.png
    python benchmarks/collective.py sections --tables 6_1,6_2 --stores plain,zstd --on threads,workers
    python benchmarks/collective.py romio --mpi-python ENVIRONMENT/bin/python

`distributions` redraws Tables 8 to 12 of del Rosario, Bordawekar and Choudhary 1993: four ranks on workers of their own
take an array that is stored in row slabs or column slabs by five distributions. *Conforming* is the read of the
distribution that fits the file; *redistribution* goes from there to what is asked for, in memory; *direct* is each rank
for itself; `latency` is a store that answers a request after 20 ms (`objects.py`), of a sixteenth of the bytes.

`counts` says what each method asks of the thesis's files in Tables 6.1 to 6.8 (Thakur 1995), exactly: nothing is read.
A chunk is one column: the thesis's files are stored by columns, and its file domains and sieving are cut by columns.
`sections` reads such files, 16 ranks on four workers or on threads.

`romio` reads by mpi4py's collective and independent reads of a raw file, and by us of a plain and of a coded Zarr array
of the same values, in turn. The raw file is stored by columns, or slab after slab as Zarr's chunks are. The environment
is made by `pip install mpi4py mpich numpy`.

What workers read is what the kernel says of their calls. Every result is checked against the values.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from itertools import product
from pathlib import Path

import collective_report as report
import machine
import romio
import rounds
import thesis_sections
from cases import Case
from collective_files import Far, Near, by_columns, placed, slabs
from collective_peers import WAYS, Ask, Run, redistribution, run, run_here, workers
from s3 import served
from thesis_sections import TABLES

import oocarrays as ooc
from oocarrays.plan.collective.read import requests_of

RANKS = 4
DISTRIBUTIONS = {
    "row block": "(block, *)",
    "row cyclic": "(cyclic, *)",
    "column block": "(*, block)",
    "column cyclic": "(*, cyclic)",
    "(block, block)": "(block, block)",
}
CONFORMING = {"row": "row block", "column": "column block"}
"""What fits a file, by how it is stored."""
METHODS = ("direct", "static", "dynamic")
PEERS = ("two-phase", "direct", "zarr", "dask.array")


def main() -> None:
    """Run the benchmark as the command line asks."""
    options = _parser().parse_args()
    facts = machine.facts(None)
    print(facts, flush=True)
    with rounds.working_folder(options):
        what = {"distributions": distributions, "counts": counts, "sections": sections, "romio": romio.race}
        found = what[options.what](options)
    rounds.save(options, {"machine": facts, "results": found})


def _parser() -> argparse.ArgumentParser:
    parser = rounds.parser(__doc__, cache=("warm",), timeout=300)
    add, names = parser.add_argument, lambda text: text.split(",")
    add("what", choices=("distributions", "counts", "sections", "romio"))
    add("--edge", type=int, default=16384, help="rows and columns of the array (default: %(default)s)")
    add("--files", type=names, default=list(CONFORMING), help="default: row,column")
    add("--stores", type=names, default=["plain", "zstd", "latency"], help="default: plain,zstd,latency")
    add("--ways", type=names, default=list(PEERS), help=f"default: {','.join(PEERS)}; there are {', '.join(WAYS)}")
    add("--distributions", type=lambda text: text.split(";"), default=list(DISTRIBUTIONS), help="parted by ;")
    add("--latency", type=float, default=0.02, help="seconds a request (default: %(default)s)")
    add("--tables", type=names, default=list(TABLES), help=f"default: {','.join(TABLES)}")
    add("--on", type=names, default=["threads", "workers"], help="default: threads,workers")
    add("--draw", type=Path, metavar="FILE", help="draw Figures 6.9 and 6.10")
    add("--mpi-python", metavar="PATH", help="Python of an environment with mpi4py, mpich and numpy")
    return parser


# ---------------------------------------------------------------------- Tables 8 to 12 of 1993


def distributions(options: argparse.Namespace) -> list[dict]:
    """Return a table for each file, store and state of the cache."""
    with ExitStack() as stack:
        server = stack.enter_context(served(options.workdir, moto=False)) if "latency" in options.stores else None
        client = stack.enter_context(workers(RANKS))
        found = []
        for store, file, cache in _settings(options):
            case = slabs(options.edge // options.scale // (4 if store == "latency" else 1), file, store)
            place = placed(case, options, server if store == "latency" else None)
            far = Far(server, options.latency) if store == "latency" else Near(place, cache)
            rows = {name: _row(client, name, place, case, file, far, options) for name in options.distributions}
            title = f"{file} slabs, {store}, {cache}"
            print("", report.distributions(title, file, case, far.nbytes(), rows), sep="\n", flush=True)
            found.append({"file": file, "store": store, "cache": cache, "case": asdict(case), "rounds": plain(rows)})
        return found


def _settings(options: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    for store in options.stores:
        for file in options.files:
            for cache in ["–"] if store == "latency" else options.cache:
                yield store, file, cache


def _row(
    client, name: str, place: str, case: Case, file: str, far, options: argparse.Namespace
) -> list[dict[str, Run]]:
    """Every way of one distribution, in turn, as often as is asked."""
    ask, fits = (asked(place, case, each) for each in (name, CONFORMING[file]))
    calls = {way: lambda way=way: run(client, way, ask) for way in options.ways}
    calls["conforming"] = lambda: run(client, "direct", fits)
    calls["redistribution"] = lambda: redistribution(client, ask, fits)
    return [_round(number, calls, far) for number in range(-options.discard, options.rounds)][options.discard :]


def _round(number: int, calls: dict, far) -> dict[str, Run]:
    """Each way once; each round begins with another."""
    order = list(calls)
    first = number % len(order)
    found = {}
    for way in order[first:] + order[:first]:
        far.ready()
        found[way] = calls[way]()
        found[way].store = far.counts()
        print(f"{way}: {found[way].seconds:.2f} s, {found[way].verdict}", file=sys.stderr)
    return found


def asked(place: str, case: Case, distribution: str) -> Ask:
    """All of an array by a distribution."""
    layout = ooc.Layout.of(case.shape, DISTRIBUTIONS[distribution], ranks=RANKS)
    return Ask(store=place, requests=requests_of(layout), layout=layout)


def plain(rows: dict[str, list[dict[str, Run]]]) -> dict:
    """Runs as plain data."""
    return {
        name: [{way: asdict(each) for way, each in one.items()} for one in all_of_them]
        for name, all_of_them in rows.items()
    }


# ---------------------------------------------------------------------- chapter 6


def counts(options: argparse.Namespace) -> list[dict]:
    """Count the requests and bytes of each method, by the thesis's tables."""
    found = []
    for table in options.tables:
        each = [(case, thesis_sections.counts(case)) for case in thesis_sections.cases(table)]
        print("", report.counts(table, each), sep="\n", flush=True)
        found += [
            {"case": case.name, "operation": case.operation, **{way: asdict(n) for way, n in asks.items()}}
            for case, asks in each
        ]
    if options.draw:
        report.draw(options.draw)
    return found


def sections(options: argparse.Namespace) -> list[dict]:
    """Return the sections that are read, as wall time: a chunk is one column, of a plain array and of a coded one."""
    with ExitStack() as stack:
        client = stack.enter_context(workers(RANKS)) if "workers" in options.on else None
        found = []
        for store, on, table in product(options.stores, options.on, options.tables):
            read = [case.scaled(options.scale) for case in thesis_sections.cases(table) if case.operation == "read"]
            each = [(case, _read(case, store, client if on == "workers" else None, options)) for case in read]
            if each:
                title = f"Table {table.replace('_', '.')}, {store}, {on}"
                print("", report.sections(title, each), sep="\n", flush=True)
            found += [
                {"case": case.name, "store": store, "on": on, "rounds": plain({"": runs})[""]} for case, runs in each
            ]
        return found


def _read(case: thesis_sections.Case, store: str, client, options: argparse.Namespace) -> list[dict[str, Run]]:
    """One case by each method, in turn."""
    place = placed(by_columns(case.shape[0], store), options, None)
    ask = Ask(store=place, requests=case.requests)
    calls = {way: lambda way=way: run(client, way, ask) if client else run_here(way, ask) for way in METHODS}
    near = Near(place, options.cache[0])
    return [_round(number, calls, near) for number in range(-options.discard, options.rounds)][options.discard :]


if __name__ == "__main__":
    main()
