"""ROMIO's collective and independent reads of a raw file, and ours of Zarr arrays of the same values, in turn.

    columns    one column after the other         row block: a run a column
    slabs      one chunk after the other, as      row block: a run a slab
               Zarr stores a plain array

ROMIO has no answer to coded chunks: they are ours alone, and Zarr's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

import machine
import numpy as np
from cases import MIB, Case
from collective_files import placed, slabs
from collective_peers import Ask, run, workers
from data import values
from report import row

RANKS = 4
WAYS = {"plain": ("two-phase", "direct", "auto"), "zstd": ("two-phase", "direct", "zarr")}
"""Ours, by store."""
Requests = list[tuple[range, range]]
"""Rows and columns of each rank."""


def race(options: argparse.Namespace) -> list[dict]:
    """Return a table for each state of the cache: every request by every way."""
    if not options.mpi_python:
        raise SystemExit("romio: name the Python of an environment with mpi4py, mpich and numpy by --mpi-python PATH")
    stored = {store: slabs(options.edge // options.scale, "column", store) for store in WAYS}
    places = {store: placed(case, options, None) for store, case in stored.items()}
    raw = {kind: _raw(kind, stored["plain"], options) for kind in ("columns", "slabs")}
    found = []
    with workers(RANKS) as client:
        for cache in options.cache:
            for name, requests in asked(stored["plain"].shape[0]).items():
                times: dict[str, list[float]] = {}
                for number in range(-options.discard, options.rounds):
                    each = _theirs(raw, requests, stored["plain"], cache, options)
                    each |= _ours(client, places, requests, cache)
                    if number >= 0:
                        for way, seconds in each.items():
                            times.setdefault(way, []).append(seconds)
                print("", _table(f"{name}, {cache}", stored["plain"], times), sep="\n", flush=True)
                found.append({"request": name, "cache": cache, "case": asdict(stored["plain"]), "seconds": times})
    return found


def asked(edge: int) -> dict[str, Requests]:
    """Return the sections that the ranks want of an array, by case."""
    quarter, whole = edge // RANKS, range(edge)
    middle = range(quarter, 3 * quarter)
    return {
        "row block": [(range(p * quarter, (p + 1) * quarter), whole) for p in range(RANKS)],
        "common section": [(middle, middle)] * RANKS,
        "strides": [(range(p, edge, RANKS), range(p, edge, RANKS)) for p in range(RANKS)],
    }


def _raw(kind: str, case: Case, options: argparse.Namespace) -> str:
    """Return the raw file of one kind; made where it is not there yet."""
    rows, slab = case.source_chunks
    place = os.path.join(options.workdir, "sources", f"{kind}-{rows}")
    if not os.path.exists(place):
        with open(place + ".unfinished", "wb") as file:
            for start in range(0, case.shape[1], slab):
                part = values((slice(0, rows), slice(start, start + slab)))
                file.write(np.ascontiguousarray(part.T if kind == "columns" else part))
        os.rename(place + ".unfinished", place)
    return place


def in_file(kind: str, case: Case, rows: range, columns: range) -> tuple[list[int], list[range]]:
    """The file as an array in C order, and what of it a rank wants: columns in whole slabs, or strided from one on."""
    extent, slab = case.source_chunks
    if kind == "columns":
        return [case.shape[1], extent], [columns, rows]
    slabs, inside = range(columns.start // slab, -(-columns.stop // slab)), range(slab)
    return [case.shape[1] // slab, extent, slab], [slabs, rows, inside[columns.start % slab :: columns.step]]


def _theirs(
    raw: Mapping[str, str], requests: Requests, case: Case, cache: str, options: argparse.Namespace
) -> dict[str, float]:
    """ROMIO's ways, each in seconds."""
    found = {}
    for kind, place in raw.items():
        {"cold": machine.make_cold, "warm": machine.make_warm}[cache](os.path.dirname(place))
        views = [in_file(kind, case, *request) for request in requests]
        told = {
            "file": place,
            "dims": views[0][0],
            "requests": [[(axis.start, axis.stop, axis.step) for axis in wanted] for _, wanted in views],
            "drop": machine.DROP if cache == "cold" else "",
        }
        for said in _program(told, options):
            if said["verdict"] != "ok":
                raise SystemExit(f"romio: {said['way']} of {kind} is {said['verdict']}")
            found[f"ROMIO, {kind}: {said['way']}"] = said["seconds"]
    return found


def _program(told: dict[str, Any], options: argparse.Namespace) -> list[dict]:
    """Run the program and return what it printed, a dict a line."""
    start = os.path.join(os.path.dirname(options.mpi_python), "mpiexec")
    child = os.path.join(os.path.dirname(os.path.abspath(__file__)), "romio_child.py")
    command = [start, "-n", str(RANKS), options.mpi_python, child, json.dumps(told)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout)
    if done.returncode:
        raise SystemExit(f"romio: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def _ours(client, places: Mapping[str, str], requests: Requests, cache: str) -> dict[str, float]:
    """Our ways, each in seconds."""
    found = {}
    for store, ways in WAYS.items():
        for way in ways:
            {"cold": machine.make_cold, "warm": machine.make_warm}[cache](places[store])
            done = run(client, way, Ask(store=places[store], requests=tuple(requests)))
            if done.verdict != "ok":
                raise SystemExit(f"{way} of {store} is {done.verdict}")
            found[f"{'zarr' if way == 'zarr' else 'oocarrays'}, {store}: {way}"] = done.seconds
    return found


def _table(title: str, case: Case, times: Mapping[str, Sequence[float]]) -> str:
    """Return a line a way, beside ROMIO's best and its best collective one."""
    taken = {way: median(each) for way, each in times.items()}
    theirs = {way: seconds for way, seconds in taken.items() if way.startswith("ROMIO")}
    best, together = min(theirs.values()), min(s for way, s in theirs.items() if ": collective" in way)
    lines = [f"**{title}**: {case.shape} float32, {case.nbytes / MIB:.0f} MiB, slabs of {case.source_chunks}", ""]
    lines += [row(["way", "ms", "× its best", "× its best collective"]), row(["---", "---:", "---:", "---:"])]
    for way, seconds in taken.items():
        lines.append(row([way, f"{1e3 * seconds:.0f}", f"{seconds / best:.2f}", f"{seconds / together:.2f}"]))
    return "\n".join(lines)
