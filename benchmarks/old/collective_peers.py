"""How several workers get what each wants of one array on disk: ours, Zarr on each for itself, Dask's arrays.

A way takes a cluster and what is asked, and gives a future a rank, on its worker. What came is checked there against
the array's values, which are computed from their indices alone. What was read is what the kernel says of the workers:
no way counts for itself.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import dask.array as da
import numpy as np
import zarr
from data import values
from distributed import Client, Future, LocalCluster, wait
from peers.s3_stores import open_store

import oocarrays as ooc
from oocarrays.graphs.cluster.placement import known_workers
from oocarrays.mapping.selection import Axes
from oocarrays.plan.collective.read import CollectivePlan

IMPORTED = ("dask.array", "oocarrays.jobs.rechunking", "data", "collective_peers", "peers.s3_stores")
HERE = os.path.dirname(os.path.abspath(__file__))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The sections that are asked of an array."""

    store: str
    """Where it is: a folder, or a URL of S3."""
    requests: tuple[Axes, ...]
    """What each rank wants."""
    layout: ooc.Layout | None = None
    """The layout that this is, where it is one."""

    @property
    def keys(self) -> list[Any]:
        """The index of each rank's section, for numpy."""
        return [tuple(slice(r.start, r.stop, r.step) for r in axes) for axes in self.requests]


@dataclass(slots=True, kw_only=True)
class Run:
    """The times and counts of one way."""

    way: str
    """Its name."""
    seconds: float
    """From the call to the last rank's last byte."""
    busy: float
    """Seconds of processors, of all workers together."""
    read_bytes: int
    """Bytes that the workers' calls to read files brought."""
    read_requests: int
    """Those calls."""
    verdict: str = "ok"
    """Whether every rank has what it wants."""
    predicted: dict[str, int] = field(default_factory=dict)
    """What the plan says of ours."""
    metered: dict[str, int] = field(default_factory=dict)
    """What our meter counted."""
    store: dict[str, int] = field(default_factory=dict)
    """What a store far away counted."""


@contextmanager
def workers(number: int, threads: int = 1) -> Iterator[Client]:
    """A cluster of processes of so many threads, warm: all that the ways import is there."""
    with (
        LocalCluster(
            n_workers=number, threads_per_worker=threads, processes=True, memory_limit=0, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(number)
        client.run(_warm)
        yield client


def _warm() -> None:
    import sys

    sys.path.insert(0, HERE)
    for name in IMPORTED:
        importlib.import_module(name)


def opened(store: str) -> zarr.Array:
    """Return the array as Zarr opens it."""
    return zarr.open_array(open_store(store) if store.startswith("s3://") else store, mode="r")


# ---------------------------------------------------------------------- ways


COUNTED = ("read_requests", "read_bytes", "decoded_bytes")
"""What plan and meter count."""
PATIENCE = 1.0
"""Seconds until the last worker has told what it counted."""
Made = Any
"""A future a rank, or what `read_sections` gives, persisted: what can be waited for."""


OURS: dict[str, dict[str, Any]] = {
    "two-phase": {"method": "two-phase"},
    "static": {"method": "two-phase", "domains": "static"},
    "dynamic": {"method": "two-phase", "domains": "dynamic"},
    "direct": {"method": "independent"},
    "auto": {},
}
"""How `read_sections` is called, by the way's name."""


def ours(name: str) -> Callable[[Client, Ask], Made]:
    """`read_sections`, each rank's part left with its rank."""
    return lambda client, ask: ooc.read_sections(
        ask.store, ask.layout or ask.keys, scheduler=client, **OURS[name]
    ).persist()


def zarr_each(client: Client, ask: Ask) -> Made:
    """Each worker for itself, by Zarr."""
    there = homes(client, len(ask.keys))
    return [
        client.submit(_read, ask.store, key, workers=[home], pure=False)
        for key, home in zip(ask.keys, there, strict=True)
    ]


def _read(store: str, key: tuple[slice, ...]) -> np.ndarray:
    return opened(store)[key]


def dask_array(client: Client, ask: Ask) -> Made:
    """Dask's array of the stored chunks, of which each rank's block is made on its worker."""
    x = da.from_zarr(opened(ask.store))
    return _blocks(client, [x[key] for key in ask.keys])


def dask_chunks(client: Client, ask: Ask) -> Made:
    """Dask's array whose chunks are the ranks' blocks: a stored chunk is read for each block that touches it."""
    array = opened(ask.store)
    shape = tuple(max(map(len, along)) for along in zip(*ask.requests, strict=True))
    x = da.from_zarr(array, chunks=shape)
    return _blocks(client, [x[key] for key in ask.keys])


def _blocks(client: Client, made: Sequence[da.Array]) -> list[Future]:
    return [
        client.compute(x.rechunk(-1), workers=[home], optimize_graph=True)
        for x, home in zip(made, homes(client, len(made)), strict=True)
    ]


def homes(client: Client, ranks: int) -> list[str]:
    """Return the worker of each rank."""
    addresses = sorted(known_workers(client))
    return [addresses[rank % len(addresses)] for rank in range(ranks)]


WAYS: dict[str, Callable[[Client, Ask], Made]] = {
    **{name: ours(name) for name in OURS},
    "zarr": zarr_each,
    "dask.array": dask_array,
    "dask.array, chunks=": dask_chunks,
}


# ---------------------------------------------------------------------- one run, watched


def run(client: Client, way: str, ask: Ask) -> Run:
    """One read by a way, timed and watched; then checked."""
    found, made = watched(client, way, lambda: WAYS[way](client, ask))
    found.verdict = verdict(client, parts(client, made), ask)
    return found


def run_here(way: str, ask: Ask) -> Run:
    """Return the same by threads of this process."""
    before, start = used(), time.perf_counter()
    made = ooc.read_sections(ask.store, ask.keys, scheduler="threads", **OURS[way])
    came = made.compute()
    seconds = time.perf_counter() - start
    busy, nbytes, requests = np.subtract(used(), before).tolist()
    found = Run(way=way, seconds=seconds, busy=busy, read_bytes=int(nbytes), read_requests=int(requests))
    _add_counts(found, made)
    found.verdict = "ok" if all(map(right, came, ask.requests)) else "wrong"
    return found


def redistribution(client: Client, ask: Ask, conforming: Ask) -> Run:
    """From the conforming distribution to what is asked, of what is in memory: the second phase alone."""
    held = WAYS["direct"](client, conforming)
    wait(held)
    found, made = watched(client, "redistribution", lambda: held.redistribute(ask.layout).persist())
    found.verdict = verdict(client, parts(client, made), ask)
    return found


def watched(client: Client, way: str, call: Callable[[], Made]) -> tuple[Run, Made]:
    """Time a call until all that it made is there, and count what it read."""
    before = client.run(used)
    start = time.perf_counter()
    wait(made := call())
    seconds = time.perf_counter() - start
    after = client.run(used)
    busy, nbytes, requests = np.sum([np.subtract(after[w], before[w]) for w in before], 0).tolist()
    found = Run(way=way, seconds=seconds, busy=busy, read_bytes=int(nbytes), read_requests=int(requests))
    _add_counts(found, made)
    return found, made


def _add_counts(found: Run, made: Made) -> None:
    """Add the counts of plan and meter, where there are any: the meter's once it has heard of all that was planned."""
    plan = getattr(made, "plan", None)
    if not isinstance(plan, CollectivePlan) or plan.price is None:
        return
    planned = plan.price.traffic
    found.predicted = {name: getattr(planned, name) for name in COUNTED}
    deadline = time.monotonic() + PATIENCE
    while made.meter.read_requests < planned.read_requests and time.monotonic() < deadline:
        time.sleep(0.01)
    found.metered = {name: getattr(made.meter, name) for name in COUNTED}


def parts(client: Client, made: Made) -> list[Future]:
    """Return the part of each rank as a future: no data is moved."""
    return made if isinstance(made, list) else [client.compute(made.local(rank)) for rank in range(made.ranks)]


def used() -> tuple[float, int, int]:
    """Of this process: seconds of processors, bytes that its calls read, and those calls."""
    with open("/proc/self/io", encoding="ascii") as file:
        counted = dict(line.split(": ") for line in file.read().splitlines())
    times = os.times()
    return times.user + times.system, int(counted["rchar"]), int(counted["syscr"])


def verdict(client: Client, futures: Sequence[Future], ask: Ask) -> str:
    """Return whether each rank has what it wants, asked where it is."""
    same = [client.submit(right, part, axes, pure=False) for part, axes in zip(futures, ask.requests, strict=True)]
    return "ok" if all(client.gather(same)) else "wrong"


def right(part: np.ndarray, axes: Axes) -> bool:
    """Return whether a part is what is asked for."""
    if part.shape != tuple(map(len, axes)):
        return False
    return bool(np.array_equal(part, values(tuple(slice(axis.start, axis.stop, axis.step) for axis in axes))))
