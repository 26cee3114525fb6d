"""Exchanges of rows between ranks, and plans of redistributions, as a person asks for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from dask.highlevelgraph import HighLevelGraph
from dask.task_spec import Task

from oocarrays.distributed.distributing import ranks_on
from oocarrays.distributed.rank_arrays import RankArrays, Where
from oocarrays.distributed.rank_blocks import RankBlocks
from oocarrays.errors import InputError, LayoutError, UnsupportedError
from oocarrays.graphs import settings
from oocarrays.graphs.layouts.alltoall import rows_exchanged
from oocarrays.graphs.layouts.parts import RankParts, layered
from oocarrays.graphs.run.builder import itself, new_suffix
from oocarrays.mapping.given import element_type, listed
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.layouts.placing import spread
from oocarrays.options.networks import carrier_of
from oocarrays.plan.exchange.network import Network
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.layouts import redistribution
from oocarrays.plan.layouts.alltoall import AlltoallPlan
from oocarrays.plan.layouts.redistribution import Redistribution

if TYPE_CHECKING:
    from distributed import Client


def exchange(
    parts: Sequence[np.ndarray] | RankArrays[Any],
    counts: Any,
    *,
    displacements: Any = None,
    schedule: str | Schedule | None = "auto",
    scheduler: Client | str | None = None,
    workers: Sequence[str] | None = None,
) -> RankBlocks[AlltoallPlan]:
    """Give rows of each rank to each rank, as many as are said (MPI's alltoallv). Computes nothing.

    Parameters
    ----------
    parts : sequence of arrays, DistributedArray, RankBlocks or SectionArrays
        What each rank has, of one type; its rows are along the first axis, and alike in all others. What is not with
        ranks yet travels with the graph.
    counts : array of int
        ``counts[source, target]`` rows that each rank sends to each, and keeps for itself.
    displacements : array of int, optional
        ``displacements[source, target]`` is the first of these rows in what ``source`` has, and some may go to several;
        by default they lie one behind the other in the order of targets.
    schedule : str or Schedule
        The order of messages between workers, or its name, as in `redistribute`.
    scheduler, workers
        Of arrays of this process, as in `rechunk`.

    Returns
    -------
    RankBlocks
        Of each rank ``sum(counts[:, rank])`` rows, those of rank 0 first.

    Raises
    ------
    InputError
        `LayoutError` where counts are not those of the ranks, or of more rows than there are; `ScheduleError` where
        there is no such schedule, or not for so many ranks.

    Notes
    -----
    Thakur 1995, chapter 4.

    Examples
    --------
    >>> parts = [np.array([0, 1, 2, 3]), np.array([4])]
    >>> exchange(parts, [[3, 1], [1, 0]], scheduler="threads").compute()
    [array([0, 1, 2, 4]), array([3])]
    """
    held = (
        _of_ranks(parts, scheduler, workers) if isinstance(parts, RankArrays) else _of_here(parts, scheduler, workers)
    )
    row = _row(held.shapes)
    lengths = [shape[0] for shape in held.shapes]
    plan = AlltoallPlan.of(counts, displacements, lengths=lengths, row=row, itemsize=held.dtype.itemsize)
    order, _ = settings.carrier(plan.ranks).cheapest(plan.between, settings.schedule(schedule))
    where = held.where
    if where.cluster:
        plan = replace(plan, schedule=order)
    return RankBlocks(plan, held.dtype, lambda: rows_exchanged(held.build(), plan, where.workers, where.meter), where)


class _Held(NamedTuple):
    """Arrays of ranks, wherever they are."""

    shapes: list[tuple[int, ...]]
    """Of each rank's."""
    dtype: np.dtype
    """Of the elements."""
    build: Callable[[], RankParts]
    """Gives their tasks."""
    where: Where
    """Place of ranks."""


def _of_ranks(parts: RankArrays[Any], scheduler: Any, workers: Any) -> _Held:
    """Return arrays that are with ranks."""
    for name, given in {"scheduler": scheduler, "workers": workers}.items():
        if given is not None:
            raise InputError(f"{name}={given!r} goes with arrays of this process; those of ranks are where these are")
    shapes = [parts.local_shape(rank) for rank in range(parts.ranks)]
    return _Held(shapes, parts.dtype, lambda: parts.tasks, Where(parts.cluster, parts.workers))


def _of_here(parts: Any, scheduler: Any, workers: Any) -> _Held:
    """Return arrays of this process, on their way to ranks."""
    arrays = _arrays(parts)
    cluster, there = ranks_on(scheduler, workers)
    shapes = [array.shape for array in arrays]
    build = partial(_parts, arrays, spread(len(arrays), there))
    return _Held(shapes, arrays[0].dtype, build, Where(cluster, tuple(there)))


def _arrays(given: Any) -> list[np.ndarray]:
    """Return the array of each rank, all of one type."""
    arrays = [np.asarray(part, order="C") for part in listed(given, "parts")]
    if not arrays:
        raise LayoutError("parts are none: an exchange has at least 1 rank")
    types = {array.dtype for array in arrays}
    if len(types) > 1:
        raise InputError(f"parts are of types {', '.join(sorted(map(str, types)))}: they must be of one")
    (dtype,) = types
    if dtype.hasobject or dtype.itemsize == 0:
        raise UnsupportedError(f"parts have dtype {dtype}: its elements have no fixed size")
    return arrays


def _row(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the extents of a row, the same with all ranks."""
    rows = {shape[1:] for shape in shapes if shape}
    if len(rows) != 1 or not all(shapes):
        raise LayoutError(f"parts of shapes {', '.join(map(str, shapes[:8]))} have no rows alike along the first axis")
    return rows.pop()


def _parts(arrays: Sequence[np.ndarray], addresses: Sequence[str]) -> RankParts:
    """Give each rank its array."""
    suffix = new_suffix()
    keys = [(f"part-{suffix}", rank) for rank in range(len(arrays))]
    tasks = {key: Task(key, itself, array) for key, array in zip(keys, arrays, strict=True)}
    name = f"parts-{suffix}"
    return RankParts(
        dtype=arrays[0].dtype,
        graph=layered(HighLevelGraph({}, {}), name, tasks),
        name=name,
        keys=tuple(keys),
        homes={suffix: addresses} if addresses else {},
    )


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
    """Plan how an array changes its layout, on this cluster or on a network that is not there. Computes nothing.

    Parameters
    ----------
    source, target : Layout
        Who holds what before and afterwards, of one shape.
    dtype : numpy.dtype
        Of the elements.
    method : str
        One of the thesis's: "general", "gcd", "lcm", "direct", "indirect", "indirect-lcm", …; "auto" for the cheapest.
    schedule : str or Schedule
        The order of messages, or its name, as in `redistribute`.
    network : Network or str, optional
        What carries messages: ``ooc.Mesh(rows=8, columns=8)``, "torus:8x8", "fat-tree", …; by default workers on a flat
        one.
    constants : str, mapping or list of mappings, optional
        What messages take there: "delta", "cm-5", "workers", "startup=5us,exchange=0.1ns", a file, or what it would
        hold; by default what ``oocarrays.networks`` says, or what is known of such a network.

    Returns
    -------
    Redistribution
        With ``.method``, ``.offers``, ``.explain()``, ``.draw()``, ``.reversed()``, ``.save(path)``;
        ``x.redistribute(plan)`` runs it.

    Raises
    ------
    InputError
        `LayoutError` where the layouts are of different shapes, or there is no such method for them; `ScheduleError`
        where there is no such schedule or network, or not for so many ranks.

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
            raise LayoutError(f"{layout!r} is no Layout: Layout.of(shape, {layout!r}, ranks=…) makes one")
    return redistribution.plan_redistribution(
        source,
        target,
        element_type(dtype).itemsize,
        method,
        costs=settings.costs(),
        carrier=carrier_of(network, max(source.ranks, target.ranks), constants),
        schedule=settings.schedule(schedule),
    )
