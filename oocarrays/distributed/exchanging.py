"""Exchanges of rows between ranks, and plans of redistributions."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from distributed import Client
from zarr.abc.store import Store
from zarr.storage import StorePath

from oocarrays.distributed.collective import read_sections
from oocarrays.distributed.distributed_array import DistributedArray
from oocarrays.distributed.rank_arrays import RankArrays, RankBlocks
from oocarrays.errors import InputError, LayoutError, UnsupportedError
from oocarrays.graphs import settings
from oocarrays.graphs.cluster.placement import Where
from oocarrays.graphs.layouts.parts import Parts, parts_of_array, parts_of_arrays, parts_of_blocks
from oocarrays.graphs.layouts.redistribution import pieces_exchanged
from oocarrays.mapping.given import element_type, listed, refuse
from oocarrays.mapping.layouts.layout import Layout, LayoutLike, layout_for
from oocarrays.options.asked import check_lazy, ranks_on
from oocarrays.options.given import Resources, means_of, stated_in, verb
from oocarrays.options.networks import carrier_of
from oocarrays.plan.exchange.network import Network
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.layouts import redistribution
from oocarrays.plan.layouts.alltoall import AlltoallPlan
from oocarrays.plan.layouts.redistribution import Redistribution
from oocarrays.plan.machine import spread
from oocarrays.storage.files.places import StoreLike
from oocarrays.stored.array import StoredArray

if TYPE_CHECKING:
    import dask.array as da


@verb(resources=("workers",))
def distribute(
    x: np.ndarray | da.Array | StoredArray | zarr.Array[Any] | StoreLike,
    layout: LayoutLike,
    *,
    ranks: int | None = None,
    grid: Sequence[int] | None = None,
    scheduler: Client | str | None = None,
    resources: Resources | None = None,
) -> DistributedArray:
    """Lay an array out over ranks. Computes nothing.

    An array in this process is cut; on a cluster its parts travel with the graph. The blocks of a Dask array are each
    computed once, and redistributed. An array on disk is read as by `read_sections`, each stored chunk once for all
    ranks.

    Parameters
    ----------
    x : numpy.ndarray, dask.array.Array, OutOfCoreArray, zarr.Array, path, URL or Zarr store
        The array to lay out; it must not change until it has been computed.
    layout : Layout, str, Distribution or sequence of them
        ``"(block, *)"``, ``Cyclic(3)``, ``[Block(), Collapsed()]``, or a whole `Layout`.
    ranks, grid : int, sequence of int
        Ranks in all, or along each axis, as `Layout.of` takes them; by default the number of the cluster's workers, or
        of this machine's cores.
    scheduler : Client, address or "threads"
        As in `rechunk`. There may be more ranks than workers.
    resources : Resources
        ``workers``; of a stored array also ``missing`` and ``storage_options``.

    Returns
    -------
    DistributedArray
        With ``.local(rank)``, ``.to_dask()``, ``.compute()``, ``.redistribute(layout)``.

    Raises
    ------
    InputError
        Before anything is computed: `LayoutError` if layout, array and ranks do not fit.

    Examples
    --------
    >>> x = distribute(np.arange(24).reshape(4, 6), "(block, cyclic)", grid=(2, 2), scheduler="threads")
    >>> x.local(1).compute()
    array([[ 1,  3,  5],
           [ 7,  9, 11]])
    """
    if isinstance(x, StoredArray | zarr.Array | Store | StorePath | str | os.PathLike):
        how: Any = {"ranks": ranks, "grid": grid, "scheduler": scheduler, "resources": resources}
        return read_sections(x, layout, **how)
    means = means_of(resources, distribute, scheduler=scheduler)
    where = ranks_on(means.scheduler, means.workers)
    wanted = _wanted(x, layout, ranks, grid, where.workers)
    first = _first(x, wanted, where)
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
    """Change the layout of a distributed array. Computes nothing.

    Parameters
    ----------
    x : DistributedArray
        Or a numpy or Dask array, which is distributed first, a Dask array in its own blocks.
    layout, ranks, grid
        As in `distribute`; by default as many ranks as ``x`` has. Or a plan made or saved earlier.
    method : str
        Name of the method, as `plan_redistribution` takes it; by default the cheapest.
    schedule : str or Schedule, optional
        Order of the messages between workers, or its name. None and "auto" stand for ``oocarrays.schedule``, by default
        "auto": the schedule of least predicted time. "coloring" groups the messages in steps, as many as the busiest
        rank has partners. "unordered" sends all messages at once.
    assembly : "synchronous" or "asynchronous"
        Synchronous ranks go step by step and unpack messages when all have arrived. Asynchronous ones receive and
        unpack them in the order of arrival, two at a time, which takes less memory. Schedules that forward keep their
        steps.

    Returns
    -------
    DistributedArray
        With ``.plan``, ``.peak_bytes``, ``.explain()``.

    Raises
    ------
    InputError
        `LayoutError` if the layout does not fit array and ranks, `ScheduleError` if the schedule does not exist, or
        does not support the number of ranks.

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
    where = ranks_on(None, None)
    wanted = _wanted(x, layout, ranks, grid, where.workers)
    return _first(x, wanted, where).redistribute(wanted, **how)


def _wanted(
    x: Any, layout: LayoutLike, ranks: int | None, grid: Sequence[int] | None, workers: Sequence[str]
) -> Layout:
    if not isinstance(x, np.ndarray):
        check_lazy(x)
    elif x.dtype.hasobject or x.dtype.itemsize == 0:
        raise UnsupportedError(f"the array has dtype {x.dtype}: its elements have no fixed size")
    return layout_for(x.shape, layout, ranks=ranks, grid=grid, about=len(workers) or settings.local_cores())


def _first(x: Any, wanted: Layout, where: Where) -> DistributedArray:
    """Return an array of this process cut by the layout, or a Dask array with each block as the part of one rank."""
    is_here = isinstance(x, np.ndarray)
    layout, parts = (wanted, parts_of_array) if is_here else (Layout.from_chunks(x.chunks), parts_of_blocks)
    build = partial(parts, x, layout, spread(layout.ranks, where.workers))
    return DistributedArray(layout, x.dtype, build, where)


@verb(resources=("workers",))
def exchange(
    parts: Sequence[np.ndarray] | RankArrays,
    counts: Any,
    *,
    displacements: Any = None,
    schedule: str | Schedule | None = "auto",
    scheduler: Client | str | None = None,
    resources: Resources | None = None,
) -> RankBlocks[AlltoallPlan]:
    """Send rows of each rank to each rank by a matrix of counts (MPI's alltoallv). Computes nothing.

    Parameters
    ----------
    parts : sequence of arrays, DistributedArray, RankBlocks or SectionArrays
        The rows of each rank, of one type, along the first axis; all other axes are equal. Arrays of this process
        travel with the graph.
    counts : array of int
        ``counts[source, target]`` rows that each rank sends to each, and keeps for itself.
    displacements : array of int, optional
        ``displacements[source, target]`` is the first of these rows in the part of ``source``; the rows of targets may
        overlap. By default they follow one another in the order of targets.
    schedule : str or Schedule
        Order of the messages between workers, or its name, as in `redistribute`.
    scheduler, resources
        For arrays of this process, as in `rechunk`: ``workers``.

    Returns
    -------
    RankBlocks
        ``sum(counts[:, rank])`` rows for each rank, those of rank 0 first.

    Raises
    ------
    InputError
        `LayoutError` if counts do not match the ranks, or exceed their rows; `ScheduleError` if the schedule does not
        exist, or does not support the number of ranks.

    Notes
    -----
    Thakur 1995, chapter 4.

    Examples
    --------
    >>> parts = [np.array([0, 1, 2, 3]), np.array([4])]
    >>> exchange(parts, [[3, 1], [1, 0]], scheduler="threads").compute()
    [array([0, 1, 2, 4]), array([3])]
    """
    build: Callable[[], Parts]
    if isinstance(parts, RankArrays):
        why = "goes with arrays of this process; those of ranks are where these are"
        refuse(why, scheduler=scheduler, **stated_in(resources))
        shapes, dtype = [parts.local_shape(rank) for rank in range(parts.ranks)], parts.dtype
        held, where = parts, Where(parts.cluster, parts.workers)
        build = lambda: held.tasks  # noqa: E731
    else:
        means = means_of(resources, exchange, scheduler=scheduler)
        arrays, where = _arrays(parts), ranks_on(means.scheduler, means.workers)
        shapes, dtype = [array.shape for array in arrays], arrays[0].dtype
        build = partial(parts_of_arrays, arrays, dtype, spread(len(arrays), where.workers))
    row, lengths = _row(shapes), [shape[0] for shape in shapes]
    plan = AlltoallPlan.of(counts, displacements, lengths=lengths, row=row, itemsize=dtype.itemsize)
    order, _ = settings.carrier(plan.ranks).cheapest(plan.between, settings.schedule(schedule))
    if where.cluster:
        plan = replace(plan, schedule=order)
    made = lambda: pieces_exchanged("rows", build(), plan, plan.schedule, where.workers, where.meter)  # noqa: E731
    return RankBlocks(plan, dtype, made, where)


def _arrays(given: Any) -> list[np.ndarray]:
    arrays = [np.asarray(part, order="C") for part in listed(given, "parts")]
    if not arrays:
        raise LayoutError("parts is empty: an exchange has at least 1 rank")
    types = {array.dtype for array in arrays}
    if len(types) > 1:
        raise InputError(f"parts are of types {', '.join(sorted(map(str, types)))}: they must be of one")
    (dtype,) = types
    if dtype.hasobject or dtype.itemsize == 0:
        raise UnsupportedError(f"parts have dtype {dtype}: its elements have no fixed size")
    return arrays


def _row(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    rows = {shape[1:] for shape in shapes if shape}
    if len(rows) != 1 or not all(shapes):
        raise LayoutError(f"parts of shapes {', '.join(map(str, shapes[:8]))} differ in more than the first axis")
    return rows.pop()


def plan_redistribution(
    source: Layout,
    target: Layout,
    dtype: Any = "float64",
    *,
    method: str = "auto",
    schedule: str | Schedule | None = "auto",
    network: Network | str | None = None,
    constants: Any = None,
) -> Redistribution:
    """Plan a change of layout, on this cluster or on the model of a network. Computes nothing.

    Parameters
    ----------
    source, target : Layout
        The layouts before and after, of one shape.
    dtype : numpy.dtype
        Of the elements.
    method : str
        A method of the thesis: "general", "gcd", "lcm", "direct", "indirect", "indirect-lcm", …; "auto" for the
        cheapest.
    schedule : str or Schedule
        Order of the messages, or its name, as in `redistribute`.
    network : Network or str, optional
        The network: ``ooc.networks.Mesh(rows=8, columns=8)``, "torus:8x8", …; by default workers on a flat one.
    constants : str, mapping or list of mappings, optional
        Cost constants of its messages: "delta", "cm-5", "workers", "startup=5us,exchange=0.1ns", a file, or its
        content; by default the setting ``oocarrays.networks``, or built-in constants of such a network.

    Returns
    -------
    Redistribution
        With ``.method``, ``.offers``, ``.explain()``, ``.draw()``, ``.reversed()``, ``.save(path)``;
        ``x.redistribute(plan)`` runs it.

    Raises
    ------
    InputError
        `LayoutError` if the layouts are of different shapes, or the method does not apply to them; `ScheduleError` if
        the schedule or network does not exist, or does not support the number of ranks.

    Notes
    -----
    Thakur 1995, chapters 3 and 4.

    Examples
    --------
    >>> import oocarrays as ooc
    >>> layouts = (ooc.Layout.of((10**6,), f"cyclic({m})", ranks=64) for m in (7, 8))
    >>> plan_redistribution(*layouts, network="mesh:8x8").method
    'general'
    """
    for layout in (source, target):
        if not isinstance(layout, Layout):
            raise LayoutError(f"{layout!r} is not a Layout: create one with Layout.of(shape, {layout!r}, ranks=…)")
    carrier = carrier_of(network, max(source.ranks, target.ranks), constants)
    how: Any = {"costs": settings.costs(), "carrier": carrier, "schedule": settings.schedule(schedule)}
    return redistribution.plan_redistribution(source, target, element_type(dtype).itemsize, method, **how)
