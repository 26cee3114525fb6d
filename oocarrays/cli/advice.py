"""Commands that plan ahead: ``oocarrays advise``, ``calibrate``, and ``plan`` for clusters that do not exist."""

from __future__ import annotations

import itertools
import math
import sys
from dataclasses import asdict
from typing import Any

from dask.utils import format_bytes

from oocarrays.advice import Advice
from oocarrays.cli.options import planned_for, sources_of
from oocarrays.cli.reports import print_json
from oocarrays.cli.signatures import command
from oocarrays.errors import BudgetError, InputError
from oocarrays.graphs.calibrate.machine import calibrate
from oocarrays.graphs.calibrate.striping import calibrate_disks
from oocarrays.graphs.calibrate.workers import calibrate_workers
from oocarrays.graphs.cluster.placement import client_of
from oocarrays.graphs.settings import costs, keep, keep_disks
from oocarrays.jobs.rechunking import rechunk
from oocarrays.jobs.stored import RechunkJob
from oocarrays.plan.advice.trace import Trace
from oocarrays.plan.documents import Document
from oocarrays.show import report
from oocarrays.show.pictures import load_picture
from oocarrays.show.report import SweptPlan, sweep_text


@command()
def advise_command(
    traces: list[str],
    *,
    memory: str | None = None,
    ranks: int | None = None,
    keep: list[str] | tuple[()] = (),
    weight: list[str] | tuple[()] = (),
    copies: bool = True,
    draw: str | None = None,
    json: bool = False,
) -> None:
    """Recommend chunks of arrays from recorded reads and writes.

    traces TRACE.json: files written by ooc.advise.trace(...).save; several are added
    memory: bytes that each process may hold, such as 1GiB (default: the free memory)
    ranks: number of ranks that may read for each other (default: that of the trace, or none)
    keep ARRAY: array whose chunks stay as they are; may be repeated
    weight [PRODUCER:]CONSUMER=NUMBER: how often CONSUMER runs after the block that wrote its input; may be repeated
    copies: recommend one layout of each array, and no second copy
    draw: draw blocks, arrays, and the weight and seconds of each flow, to a .png, .svg or .pdf file
    """
    if draw:
        load_picture().check_file(draw)
    loaded = [Trace.load(path) for path in traces]
    how: dict[str, Any] = {"memory": memory, "ranks": ranks, "keep": list(keep), "weights": dict(map(_weight, weight))}
    advice: Advice = sum(loaded[1:], loaded[0]).advise(copies=copies, **how)
    print_json({"arrays": _documents(advice)}) if json else print(advice)
    if draw:
        advice.draw().savefig(draw)
        print(f"drew {draw}", file=sys.stderr if json else sys.stdout)


def _weight(text: str) -> tuple[tuple[str | None, str], float]:
    edge, _, number = text.rpartition("=")
    producer, _, consumer = edge.rpartition(":")
    try:
        return (producer or None, consumer), float(number if consumer else "")
    except ValueError:
        raise InputError(f"--weight {text!r} is not [PRODUCER:]CONSUMER=NUMBER") from None


def _documents(advice: Advice) -> list[Document]:
    return [
        {
            "array": each.array,
            "producer": each.producer,
            "chunks": each.stored.grid.chunks,
            "advised": each.chunks,
            "keep": each.kept,
            "saving": each.saving,
            "rewriting_seconds": each.rewriting,
            "blocks": [
                {name: getattr(block, name) for name in ("block", "writes", "weight", "method")}
                | {"today": _load(block.today), "advised": _load(block.advised)}
                for block in each.blocks
            ],
        }
        for each in advice.arrays
    ]


def _load(load: Any) -> dict[str, float]:
    return {"requests": float(load.requests), "bytes": float(load.nbytes), "seconds": float(load.seconds)}


@command()
def calibrate_command(
    *, store: str | None = None, scheduler: str | None = None, disks: list[str] | tuple[()] = (), json: bool = False
) -> None:
    """Measure the speed of this machine, and keep it for all later plans.

    store: folder on the device to be measured (default: the current folder)
    scheduler: address of a Dask scheduler: measure its workers too, and messages between them
    disks: disks to measure instead, for striped arrays: folders
    """
    rows, document = _disks(list(disks)) if disks else _machine(store, scheduler)
    print_json(document) if json else print(f"{report.table(rows)}\nkept in {document['file']}")


def _disks(disks: list[str]) -> tuple[list[tuple[str, ...]], Document]:
    """Measure disks alone and together: the milliseconds of a block at each."""
    kept = calibrate_disks(disks)
    path = keep_disks(kept)
    measured = [
        (each.mode, disk, row.block, row.times.disks[place])
        for each in kept
        for place, disk in enumerate(each.disks)
        for row in each.measured
    ]
    rows = [(mode, disk, format_bytes(block), f"{1e3 * took:.2f} ms") for mode, disk, block, took in measured]
    names = ("mode", "disk", "block_bytes", "seconds")
    document = {"file": str(path), "disks": [dict(zip(names, each, strict=True)) for each in measured]}
    return [("", "disk", "block", "takes"), *rows], document


def _machine(store: str | None, scheduler: Any) -> tuple[list[tuple[str, ...]], Document]:
    client = client_of(scheduler or "threads")
    planned = asdict(costs())
    measured = calibrate(store)
    if client:
        with client.as_current():
            measured |= calibrate_workers(client)
    path = keep(measured)
    rows = [(name, report.number_text(planned[name]), report.number_text(value)) for name, value in measured.items()]
    return [("oocarrays.cost.", "planned with", "measured"), *rows], {"file": str(path), "cost": measured}


SWEPT = ("workers", "memory", "threads")


@command(planned_for)
def plan_command(
    source: str,
    target: str,
    *,
    chunks: str,
    sweep: list[str],
    concat_dim: str | None = None,
    draw: str | None = None,
    json: bool = False,
    **cluster: Any,
) -> None:
    """Plan a rechunk for clusters that do not exist.

    source: array to read: a path or URL of Zarr, or of a file of another format
    chunks: chunk length of each axis in elements, such as 16384,256 or time=-1,lat=20
    workers: number of workers, unless it is swept
    sweep NAME=VALUES: workers, memory or threads to plan for, such as workers=8,64 or memory=2GiB,8GiB; may be repeated
    draw: draw seconds and tasks to a .png, .svg or .pdf file
    """
    if draw:
        load_picture().check_file(draw)
    swept = _swept(sweep, cluster)
    (read,) = sources_of(concat_dim, None, source)
    found = []
    for values in itertools.product(*swept.values()):
        one = dict(zip(SWEPT, values, strict=True))
        how = cluster | {"workers": one["workers"], "worker_memory": one["memory"], "worker_threads": one["threads"]}
        found.append(_planned(read, target, chunks, one, planned_for(None, True, **how)))
    print_json({"plans": list(map(asdict, found))}) if json else print(sweep_text(found))
    if draw:
        load_picture().draw_sweep(found).savefig(draw)
        print("" if json else f"drew {draw}\n", end="")


def _swept(sweep: list[str], cluster: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the values of each swept option: one, unless it is swept."""
    values: dict[str, list[Any]] = {
        "workers": [cluster["workers"]],
        "memory": [cluster["worker_memory"]],
        "threads": [cluster["worker_threads"]],
    }
    for text in sweep:
        name, equals, said = text.partition("=")
        if name not in SWEPT or not equals or not all(said.split(",")):
            raise InputError(f"--sweep {text!r} is not one of {', '.join(SWEPT)} with values, such as 'workers=8,64'")
        whole = name != "memory"
        if whole and not all(each.isdecimal() for each in said.split(",")):
            raise InputError(f"--sweep {text!r}: {name} are whole numbers")
        values[name] = [int(each) if whole else each for each in said.split(",")]
    missing = [name for name, each in values.items() if each == [None]]
    if missing:
        option = {"workers": "--workers", "memory": "--worker-memory"}[missing[0]]
        raise InputError(f"--sweep needs the {missing[0]} of the clusters: add {option}, or --sweep {missing[0]}=…")
    if (many := math.prod(map(len, values.values()))) > 256:
        raise InputError(f"--sweep asks for {many} plans, more than 256")
    return values


def _planned(source: Any, target: str, chunks: Any, one: dict[str, Any], cluster: Any) -> SweptPlan:
    """Plan for one cluster; if it does not fit, return the memory that it needs."""
    try:
        job = rechunk(source, target, chunks=chunks, scheduler=cluster)
    except BudgetError as error:
        return SweptPlan(**one, why=f"needs {format_bytes(error.least)}")
    if not isinstance(job, RechunkJob):
        raise InputError(f"{source} is a group: plan its arrays one by one")
    known = {name: getattr(job.plan, name) for name in ("strategy", "ranks", "seconds", "peak_bytes")}
    return SweptPlan(**one, **known, tasks=job.plan.traffic.tasks, bytes=job.plan.traffic.exchanged_bytes)
