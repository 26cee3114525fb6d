"""How several workers get what each wants of one array on disk: ours, Zarr on each for itself, Dask's arrays."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import zarr
from case import Job, within
from data import values
from distributed import Client, Future, wait

import oocarrays as ooc
from peers.dask import cluster

DISTRIBUTIONS = {
    "row block": "(block, *)",
    "row cyclic": "(cyclic, *)",
    "column block": "(*, block)",
    "column cyclic": "(*, cyclic)",
    "(block, block)": "(block, block)",
}
METHODS = {"two-phase": "two-phase", "independent": "direct"}
"""Methods of ours, and what tables call them."""


@contextmanager
def workers(job: Job) -> Iterator[Client]:
    """Workers without a limit that find the modules beside this one."""
    with cluster(replace(job, memory=0), "oocarrays.jobs.rechunking") as client:
        client.run(_warm)
        yield client


def _warm() -> None:
    folder = str(Path(__file__).parents[1])
    if folder not in sys.path:
        sys.path.insert(0, folder)
    importlib.import_module("peers.collective")


def _layout(job: Job, name: str) -> Any:
    return ooc.Layout.of(job.shape, DISTRIBUTIONS[name], ranks=job.workers)


@within(workers)
def ours(job: Job, client: Client) -> dict:
    """`read_sections` as it chooses, and by each method; each rank's part stays with its rank."""

    def by(method: str) -> Callable[[Any], Any]:
        return lambda layout: ooc.ranks.read_sections(job.source, layout, scheduler=client, method=method).persist()

    figures = _timed(job, client, by("auto"))
    for method, called in METHODS.items():
        figures |= {f"{name}, {called}": took for name, took in _timed(job, client, by(method)).items()}
    return {"figures": figures}


@within(workers)
def zarr_each(job: Job, client: Client) -> dict:
    """Each worker for itself, by Zarr."""

    def read(layout: Any) -> list[Future]:
        return [
            client.submit(_read, job.source, _key(layout, rank), workers=[home], pure=False)
            for rank, home in enumerate(_homes(client))
        ]

    return {"figures": _timed(job, client, read)}


def _read(store: str, key: tuple[slice, ...]) -> np.ndarray:
    return zarr.open_array(store, mode="r")[key]


@within(workers)
def dask_array(job: Job, client: Client) -> dict:
    """Dask's array of the stored chunks; each rank's block is made on its worker."""

    def read(layout: Any) -> list[Future]:
        x = da.from_zarr(job.source)
        return [
            client.compute(x[_key(layout, rank)].rechunk(-1), workers=[home], optimize_graph=True)
            for rank, home in enumerate(_homes(client))
        ]

    return {"figures": _timed(job, client, read)}


def _homes(client: Client) -> list[str]:
    return sorted(client.scheduler_info(n_workers=-1)["workers"])


def _key(layout: Any, rank: int) -> tuple[slice, ...]:
    """What a rank wants, as numpy's indices: in these distributions one range an axis."""
    return tuple(slice(only.start, only.stop, only.step) for (only,) in layout.sections(rank))


def _timed(job: Job, client: Client, read: Callable[[Any], Any]) -> dict[str, list[float]]:
    return {name: timed(client, read, _layout(job, name)) for name in DISTRIBUTIONS}


def timed(client: Client, read: Callable[[Any], Any], layout: Any) -> list[float]:
    """Seconds of a read of a layout; what it brings is compared with the field."""
    begun = time.perf_counter()
    wait(made := read(layout))
    seconds = time.perf_counter() - begun
    _check(client, made, layout)
    return [seconds]


def _check(client: Client, made: Any, layout: Any) -> None:
    parts = made if isinstance(made, list) else [client.compute(made.local(rank)) for rank in range(made.ranks)]
    same = [client.submit(_right, part, _key(layout, rank), pure=False) for rank, part in enumerate(parts)]
    if not all(client.gather(same)):
        raise ValueError("a rank has not what it wants")


def _right(part: np.ndarray, key: tuple[slice, ...]) -> bool:
    return bool(np.array_equal(part, values(key)))
