"""One process of `exchange.py`: a cluster, and moves on it, one after the other.

    python exchange_child.py JSON       (peers, workers, sizes in bytes; calibrate)

For each move it says in JSON lines who works, and waits for a line; then what the move took, and whether it is right.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import dask
import dask.array as da
import numpy as np
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.task_spec import Task, TaskRef
from distributed import Client, LocalCluster, Scheduler, Worker, WorkerPlugin, wait
from tornado.ioloop import PeriodicCallback

import oocarrays as ooc
from oocarrays.graphs.calibrate.workers import calibrate_workers
from oocarrays.graphs.cluster.placement import known_workers

TIMES = 3
"""Moves that are timed; their median counts."""
LOOK = 2
"""Milliseconds between two looks at a worker's queue."""


class Queue(WorkerPlugin):
    """Keeps the most messages that its worker wants and does not have."""

    name = "queue"

    def setup(self, worker: Worker) -> None:
        self.worker, self.most = worker, 0
        self.looks = PeriodicCallback(self.look, LOOK)
        self.looks.start()

    def look(self) -> None:
        state = self.worker.state
        self.most = max(self.most, len(state.in_flight_tasks) + sum(map(len, state.data_needed.values())))


def _queue(dask_worker: Worker) -> int:
    """Return the most since the last time that it was asked."""
    plugin = dask_worker.plugins["queue"]
    plugin.most, most = 0, plugin.most
    return most


def main(line: str) -> None:
    """Serve the moves that are asked for."""
    asked = json.loads(line)
    with (
        LocalCluster(
            n_workers=asked["workers"], threads_per_worker=1, processes=True, memory_limit=0, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(asked["workers"])
        for name in ("dask.array", "distributed.shuffle", "oocarrays.jobs.rechunking"):
            client.run(importlib.import_module, name)
        client.register_plugin(Queue())
        if asked.get("calibrate"):
            dask.config.set({f"oocarrays.cost.{k}": v for k, v in calibrate_workers(client).items()})
        for peer, nbytes in zip(asked["peers"], asked["sizes"], strict=True):
            _moved(client, peer, asked["workers"], nbytes)


def _moved(client: Client, peer: str, workers: int, nbytes: int) -> None:
    """One move, done once to no end (memory that was never used is slow to come), then timed ``TIMES``, and checked."""
    edge = int((nbytes / 4) ** 0.5) // workers * workers
    rows = _rows(edge, workers).persist()
    wait(rows)
    move = _peer(peer, client, rows, workers)
    _timed(client, move)
    _say({"pids": list(client.run(os.getpid).values())})
    sys.stdin.readline()
    client.run(_queue)
    seconds = [_timed(client, move) for _ in range(TIMES - 1)]
    start = time.perf_counter()
    wait(moved := move())
    seconds.append(time.perf_counter() - start)
    _say(
        {
            "peer": peer,
            "workers": workers,
            "nbytes": edge * edge * 4,
            "seconds": statistics.median(seconds),
            "all_seconds": seconds,
            "predicted": getattr(moved, "seconds", None),
            "queue": max(client.run(_queue).values()),
        }
    )
    _say({"verdict": _verdict(moved, edge)})


def _timed(client: Client, move: Callable[[], object]) -> float:
    """Seconds of a move whose result is then let go."""
    known = client.run_on_scheduler(_known)
    start = time.perf_counter()
    wait(moved := move())
    seconds = time.perf_counter() - start
    del moved
    while client.run_on_scheduler(_known) > known:
        time.sleep(0.01)
    return seconds


def _known(dask_scheduler: Scheduler) -> int:
    return len(dask_scheduler.tasks)


def _say(facts: dict) -> None:
    print(json.dumps(facts), flush=True)


def _rows(edge: int, workers: int) -> da.Array:
    """Return an array in row slabs whose element (i, j) is i * edge + j."""
    numbers = da.arange(edge, chunks=edge // workers, dtype="i4")[:, None] * np.int32(edge)
    return numbers.map_blocks(_filled, edge, chunks=((edge // workers,) * workers, (edge,)), dtype="i4")


def _filled(first: np.ndarray, edge: int) -> np.ndarray:
    return first + np.arange(edge, dtype="i4")


def _verdict(moved: object, edge: int) -> str:
    array = moved.to_dask() if hasattr(moved, "to_dask") else moved
    wrong = array.map_blocks(_wrong, edge, dtype=int, chunks=tuple((1,) * len(c) for c in array.chunks))
    return "ok" if int(wrong.sum().compute()) == 0 else "wrong"


def _wrong(block: np.ndarray, edge: int, block_info: dict | None = None) -> np.ndarray:
    """Elements of a block that are not what they should be."""
    (top, bottom), (left, right) = block_info[0]["array-location"]
    wanted = np.arange(top, bottom, dtype="i4")[:, None] * np.int32(edge) + np.arange(left, right, dtype="i4")
    return np.array([[np.count_nonzero(block != wanted)]])


def _peer(peer: str, client: Client, rows: da.Array, workers: int):
    """Return a function that moves `rows` as a peer does."""
    columns = (rows.shape[0], rows.shape[1] // workers)
    if peer in ("p2p", "tasks"):
        return lambda: _rechunked(rows, columns, peer)
    if peer == "unordered":
        addresses = sorted(known_workers(client))
        return lambda: unordered(client, rows, addresses)
    held = ooc.distribute(rows, "(block, *)", ranks=workers).persist()
    wait(held)
    name, _, assembly = peer.partition("/")
    schedule = None if name == "no-order" else name
    how = {"schedule": schedule, "assembly": assembly or "asynchronous"}
    return lambda: ooc.redistribute(held, "(*, block)", **how).persist()


def _rechunked(rows: da.Array, columns: tuple[int, int], method: str) -> da.Array:
    with dask.config.set({"array.rechunk.method": method}):
        return rows.rechunk(columns, balance=False).persist()


def unordered(client: Client, rows: da.Array, addresses: list[str]) -> da.Array:
    """Slices on the workers that have the rows, joined on those that are to have the columns, in no order."""
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
    chunks = ((rows.shape[0],), (width,) * len(addresses))
    return da.Array(futures, joined, chunks, dtype=rows.dtype)


def _home(addresses: list[str], key: tuple[str, int, int]) -> list[str]:
    return [addresses[key[1] if key[0].startswith("cut") else key[2]]]


def _cut(block: np.ndarray, columns: slice) -> np.ndarray:
    return np.ascontiguousarray(block[:, columns])


def _joined(*parts: np.ndarray) -> np.ndarray:
    return np.concatenate(parts)


if __name__ == "__main__":
    main(sys.argv[1])
