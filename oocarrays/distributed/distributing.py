"""Laying arrays out over ranks: numpy and Dask arrays in, and from one layout to another."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.storage import StorePath

from oocarrays.distributed.collective import read_sections
from oocarrays.distributed.distributed_array import DistributedArray
from oocarrays.distributed.rank_arrays import Where
from oocarrays.errors import UnsupportedError
from oocarrays.graphs import settings
from oocarrays.graphs.cluster.workers import Cluster
from oocarrays.graphs.layouts.parts import Parts, parts_of_array, parts_of_blocks
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.layouts.placing import spread
from oocarrays.options.asked import check_lazy, cluster_of
from oocarrays.options.layouts import LayoutLike, layout_for
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.storage.files.places import StoreLike
from oocarrays.stored.array import StoredArray

if TYPE_CHECKING:
    import dask.array as da
    from distributed import Client


def distribute(
    x: np.ndarray | da.Array | StoredArray | zarr.Array | StoreLike,
    layout: LayoutLike,
    *,
    ranks: int | None = None,
    grid: Sequence[int] | None = None,
    scheduler: Client | str | None = None,
    workers: Sequence[str] | None = None,
) -> DistributedArray:
    """Lay an array out over ranks. Computes nothing.

    An array in this process is cut: on a cluster its parts travel with the graph. The blocks of a Dask array are each
    computed once, and redistributed. An array on disk is read as `read_sections` does, each stored chunk once for all.

    Parameters
    ----------
    x : numpy.ndarray, dask.array.Array, OutOfCoreArray, zarr.Array, path, URL or Zarr store
        What is shared out; it must not change until it has been computed.
    layout : Layout, str, Distribution or sequence of them
        ``"(block, *)"``, ``Cyclic(3)``, ``[Block(), Collapsed()]``, or a whole `Layout`.
    ranks, grid : int, sequence of int
        Ranks in all, or along each axis, as `Layout.of` takes them; by default as many as the cluster has workers, or
        this machine cores.
    scheduler, workers
        As in `rechunk`. There may be more ranks than workers.

    Returns
    -------
    DistributedArray
        With ``.local(rank)``, ``.to_dask()``, ``.compute()``, ``.redistribute(layout)``.

    Raises
    ------
    InputError
        One of its kinds, before anything is computed: `LayoutError` where layout, array and ranks do not fit.

    Examples
    --------
    >>> x = distribute(np.arange(24).reshape(4, 6), "(block, cyclic)", grid=(2, 2), scheduler="threads")
    >>> x.local(1).compute()
    array([[ 1,  3,  5],
           [ 7,  9, 11]])
    """
    if isinstance(x, StoredArray | zarr.Array | Store | StorePath | str | os.PathLike):
        read: DistributedArray = read_sections(x, layout, ranks=ranks, grid=grid, scheduler=scheduler, workers=workers)
        return read
    cluster, there = ranks_on(scheduler, workers)
    wanted = _wanted(x, layout, ranks, grid, there)
    first = _first(x, wanted, cluster, there)
    return first if isinstance(x, np.ndarray) else first.redistribute(wanted)


def redistribute(
    x: DistributedArray | np.ndarray | da.Array,
    layout: LayoutLike,
    *,
    ranks: int | None = None,
    grid: Sequence[int] | None = None,
    method: str = "auto",
    schedule: str | Schedule | None = "auto",
    assembly: str = "asynchronous",
) -> DistributedArray:
    """Lay a distributed array out in another way. Computes nothing.

    Parameters
    ----------
    x : DistributedArray
        Or a numpy or Dask array, which is distributed first, a Dask array as its blocks are.
    layout, ranks, grid
        As in `distribute`; by default as many ranks as ``x`` has. Or a plan that was made or saved before.
    method : str
        How, by name, as `plan_redistribution` takes it; by default the cheapest.
    schedule : str or Schedule, optional
        The order of the messages between workers, or its name. None and "auto" stand for ``oocarrays.schedule``, which
        is "auto" by default: the order of least predicted time. "coloring" makes steps of the messages, as many as the
        busiest rank has partners. "unordered" is no order: all messages may be under way at one time.
    assembly : "synchronous" or "asynchronous"
        Whether a rank goes step by step and unpacks messages when all have come, or receives and unpacks them in the
        order of arrival, two at a time, which takes less memory. Schedules that forward keep their steps.

    Returns
    -------
    DistributedArray
        With ``.plan``, ``.peak_bytes``, ``.explain()``.

    Raises
    ------
    InputError
        `LayoutError` where the layout does not fit array and ranks, `ScheduleError` where there is no such schedule,
        or not for so many ranks.

    Examples
    --------
    >>> rows = distribute(np.arange(6).reshape(2, 3), "(block, *)", ranks=2, scheduler="threads")
    >>> redistribute(rows, "(*, cyclic)").local(0).compute()
    array([[0, 2],
           [3, 5]])
    """
    how: Any = {"method": method, "schedule": schedule, "assembly": assembly}
    if isinstance(x, DistributedArray):
        return x.redistribute(layout, ranks=ranks, grid=grid, **how)
    cluster, there = ranks_on(None, None)
    wanted = _wanted(x, layout, ranks, grid, there)
    return _first(x, wanted, cluster, there).redistribute(wanted, **how)


def ranks_on(scheduler: Client | str | None, workers: Sequence[str] | None) -> tuple[Cluster | None, list[str]]:
    """Where ranks are put: on the workers of a cluster, or on threads."""
    cluster = cluster_of(scheduler, workers)
    return cluster, [worker.address for worker in cluster.workers()] if cluster else []


def _wanted(
    x: Any, layout: LayoutLike, ranks: int | None, grid: Sequence[int] | None, workers: Sequence[str]
) -> Layout:
    """The layout that is asked for, of an array that can be shared out."""
    if not isinstance(x, np.ndarray):
        check_lazy(x)
    elif x.dtype.hasobject or x.dtype.itemsize == 0:
        raise UnsupportedError(f"the array has dtype {x.dtype}: its elements have no fixed size")
    return layout_for(x.shape, layout, ranks=ranks, grid=grid, about=len(workers) or settings.local_cores())


def _first(x: Any, wanted: Layout, cluster: Cluster | None, workers: Sequence[str]) -> DistributedArray:
    """An array in this process, cut as is wanted; a Dask array, each of its blocks the part of one rank."""
    build: Callable[[], Parts]
    if isinstance(x, np.ndarray):
        layout = wanted
        build = partial(parts_of_array, x, layout, spread(layout.ranks, workers))
    else:
        layout = Layout.from_chunks(x.chunks)
        build = partial(parts_of_blocks, x, layout, spread(layout.ranks, workers))
    return DistributedArray(layout, x.dtype, build, Where(cluster, tuple(workers)))
