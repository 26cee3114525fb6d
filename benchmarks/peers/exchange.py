"""One all-to-all between worker processes: ours by each schedule, slices by hand, Dask's p2p and tasks.

An array that the workers hold in row slabs, one each, becomes column slabs, one each. The warm-up is the same move, as
memory that was never used is slow to come; then it is timed, and every element is checked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
from case import Job, within
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.task_spec import Task, TaskRef
from distributed import Client, wait

import oocarrays as ooc
from peers.dask import cluster

MOVE = "rows to columns"
SCHEDULES = ("pex", "bex", "rex", "gen", "pex-gen", "ipex", "unordered")
Move = Callable[[], Any]


@contextmanager
def workers(job: Job) -> Iterator[tuple[Client, da.Array, int]]:
    """Workers without a limit that hold the rows: element (i, j) is i × edge + j."""
    with cluster(replace(job, memory=0), "oocarrays.jobs.rechunking") as client:
        numbers = da.arange(job.edge, chunks=job.edge // job.workers, dtype="i4")[:, None] * np.int32(job.edge)
        chunks = ((job.edge // job.workers,) * job.workers, (job.edge,))
        rows = numbers.map_blocks(_filled, job.edge, chunks=chunks, dtype="i4").persist()
        wait(rows)
        yield client, rows, job.workers


@within(workers)
def ours(job: Job, held: tuple[Client, da.Array, int]) -> dict:
    """`redistribute` by the schedule that it chooses, and by each of the others."""
    client, rows, count = held
    mine = ooc.ranks.distribute(rows, "(block, *)", ranks=count).persist()
    wait(mine)

    def by(schedule: str) -> list[float]:
        return _timed(client, rows, lambda: ooc.ranks.redistribute(mine, "(*, block)", schedule=schedule).persist())

    return {"figures": {MOVE: by("auto"), **{f"{MOVE}, {name}": by(name) for name in SCHEDULES}}}


@within(workers)
def by_dask(job: Job, held: tuple[Client, da.Array, int]) -> dict:
    """Dask's `rechunk` by p2p, and by tasks."""
    client, rows, count = held

    def by(method: str) -> list[float]:
        with dask.config.set({"array.rechunk.method": method}):
            columns = rows.shape[1] // count
            return _timed(client, rows, lambda: rows.rechunk((rows.shape[0], columns), balance=False).persist())

    return {"figures": {MOVE: by("p2p"), f"{MOVE}, Dask's tasks": by("tasks")}}


@within(workers)
def by_hand(job: Job, held: tuple[Client, da.Array, int]) -> dict:
    """Each slab sliced on its worker, slices concatenated on theirs, all at once."""
    client, rows, _ = held
    addresses = sorted(client.scheduler_info(n_workers=-1)["workers"])
    return {"figures": {MOVE: _timed(client, rows, lambda: _sliced(client, rows, addresses))}}


def _timed(client: Client, rows: da.Array, move: Move) -> list[float]:
    """Seconds of a move; its result is checked and released."""
    begun = time.perf_counter()
    wait(moved := move())
    seconds = time.perf_counter() - begun
    _check(moved, rows.shape[0])
    known = client.run_on_scheduler(_known)
    del moved
    _released(client, known)
    return [seconds]


def _known(dask_scheduler: Any) -> int:
    return len(dask_scheduler.tasks)


def _released(client: Client, known: int) -> None:
    """Wait until the scheduler has let a result go."""
    for _ in range(200):
        if client.run_on_scheduler(_known) < known:
            return
        time.sleep(0.01)


def _filled(first: np.ndarray, edge: int) -> np.ndarray:
    return first + np.arange(edge, dtype="i4")


def _check(moved: Any, edge: int) -> None:
    array = moved.to_dask() if hasattr(moved, "to_dask") else moved
    wrong = array.map_blocks(_wrong, edge, dtype=int, chunks=tuple((1,) * len(c) for c in array.chunks))
    if int(wrong.sum().compute()):
        raise ValueError("elements are not where they should be")


def _wrong(block: np.ndarray, edge: int, block_info: dict | None = None) -> np.ndarray:
    """Elements of a block that are not what they should be."""
    (top, bottom), (left, right) = block_info[0]["array-location"]
    wanted = np.arange(top, bottom, dtype="i4")[:, None] * np.int32(edge) + np.arange(left, right, dtype="i4")
    return np.array([[np.count_nonzero(block != wanted)]])


def _sliced(client: Client, rows: da.Array, addresses: list[str]) -> da.Array:
    ranks, width, token = range(len(addresses)), rows.shape[1] // len(addresses), dask.base.tokenize(time.time())
    cut, joined, graph = f"cut-{token}", f"joined-{token}", {}
    for source in ranks:
        for target in ranks:
            columns = slice(target * width, (target + 1) * width)
            graph[cut, source, target] = Task((cut, source, target), _cut, TaskRef((rows.name, source, 0)), columns)
    for target in ranks:
        parts = [TaskRef((cut, source, target)) for source in ranks]
        graph[joined, 0, target] = Task((joined, 0, target), _joined, *parts)
    where = {"workers": partial(_home, addresses), "allow_other_workers": False}
    layers = {token: MaterializedLayer(graph, annotations=where), **rows.dask.layers}
    pinned = HighLevelGraph(layers, {token: set(rows.dask.layers), **rows.dask.dependencies})
    keys = [(joined, 0, target) for target in ranks]
    futures = dict(zip(keys, client.get(pinned, keys, sync=False), strict=True))
    return da.Array(futures, joined, ((rows.shape[0],), (width,) * len(addresses)), dtype=rows.dtype)


def _home(addresses: list[str], key: tuple[str, int, int]) -> list[str]:
    return [addresses[key[1] if key[0].startswith("cut") else key[2]]]


def _cut(block: np.ndarray, columns: slice) -> np.ndarray:
    return np.ascontiguousarray(block[:, columns])


def _joined(*parts: np.ndarray) -> np.ndarray:
    return np.concatenate(parts)
