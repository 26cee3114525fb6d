"""Options common to all jobs: scheduler, memory and scratch; and factors, scales and units of axes.

factor=2             of every axis                {"time": 24}        of some axes, by name or number
factor=(1, 2, 2)     of each axis                 {0: [31, 28, …]}    groups of unlike lengths: months
scale=0.325          of every axis in space       {"z": 1.0}          of some axes, by name or number
unit="µm"            of every axis in space       {"t": "second"}     of some axes, by name or number
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

from oocarrays.errors import ChunksError, InputError, PlacementError, TargetError, UnsupportedError
from oocarrays.graphs import settings
from oocarrays.graphs.cluster.placement import Cluster, Where, client_of
from oocarrays.graphs.settings import setting
from oocarrays.mapping.given import by_axis, listed, whole
from oocarrays.options.given import around, memory_of
from oocarrays.plan.exchange.schedule import is_unordered
from oocarrays.plan.files.multiscales import ImageAxis
from oocarrays.plan.plan import Resources
from oocarrays.storage.files.making_room import check_target_place
from oocarrays.storage.files.places import StoreLike, name_of
from oocarrays.storage.journal.leftovers import scratch_of
from oocarrays.storage.meter import available_bytes

if TYPE_CHECKING:
    from distributed import Client

FactorLike = int | Sequence[Any] | Mapping[Any, Any]
"""A number for every axis, or for each, or a mapping: elements of a group, or the lengths of all groups of an axis."""

ScaleLike = float | Sequence[float | None] | Mapping[Any, float]
"""A number for all axes in space, or for each axis, or a mapping of names or numbers of axes."""
UnitLike = str | Sequence[str | None] | Mapping[Any, str]
"""A unit for all axes in space, or for each axis, or a mapping of names or numbers of axes."""


def factors_of(
    asked: FactorLike | Any,
    ndim: int,
    names: Sequence[str | None] | None = None,
    axes: Sequence[int] | None = None,
    *,
    word: str = "factor",
    rest: Any = 1,
) -> tuple[Any, ...]:
    """Return the factor of each axis, or another value with the same forms."""
    asked = by_axis(asked, ndim, rest, names, word)
    if isinstance(asked, Sequence) and not isinstance(asked, str):
        return tuple(asked)
    return tuple(asked if axes is None or axis in axes else rest for axis in range(ndim))


def scaled(axes: Sequence[ImageAxis], scale: ScaleLike | None, unit: UnitLike | None) -> tuple[ImageAxis, ...]:
    """Return axes with the given scales and units; None keeps those of the axes."""
    scales, units = _each(axes, scale, "scale"), _each(axes, unit, "unit")
    for each in scales:
        real = isinstance(each, Real) and not isinstance(each, bool)
        if each is not None and not (real and 0 < float(each) < math.inf):
            raise InputError(
                f"scale={scale!r}: {each!r} is not a positive number: pass the distance between two elements"
            )
    for each in units:
        if each is not None and not (isinstance(each, str) and each.strip()):
            raise InputError(f"unit={unit!r}: {each!r} is not the name of a unit, such as 'micrometer'")
    return tuple(axis.measured(*given) for axis, *given in zip(axes, scales, units, strict=True))


def _each(axes: Sequence[ImageAxis], asked: Any, word: str) -> tuple[Any, ...]:
    names, space = [axis.name for axis in axes], [n for n, axis in enumerate(axes) if axis.type == "space"]
    found = factors_of(asked, len(axes), names, space, word=word, rest=None)
    if len(found) != len(axes):
        raise InputError(f"{word}={asked!r} has {len(found)} axes; the levels have {len(axes)}: {', '.join(names)}")
    return found


def as_list(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


def cluster_of(scheduler: Client | Cluster | str | None, workers: Sequence[str] | None) -> Cluster | None:
    scheduler = around().scheduler if scheduler is None else scheduler
    workers = around().workers if workers is None else workers
    if isinstance(scheduler, Cluster):
        return scheduler
    client = None if isinstance(scheduler, str) and scheduler == "threads" else client_of(scheduler)
    if client is None and workers is not None:
        raise PlacementError(f"workers={workers!r}, but there is no cluster: pass scheduler=, or create a client")
    names = None if workers is None else tuple(listed(workers, "workers", error=PlacementError))
    return None if client is None else Cluster(client=client, chosen=names)


def ranks_on(scheduler: Client | Cluster | str | None, workers: Sequence[str] | None) -> Where:
    cluster = cluster_of(scheduler, workers)
    return Where(cluster, tuple(worker.address for worker in cluster.workers()) if cluster else ())


def workspace_of(asked: float | str | None) -> int | float | None:
    """Return the working memory of a kernel: an int in bytes, or a float as a multiple of its block."""
    if asked is None or isinstance(asked, str):
        return asked if asked is None else settings.size_in_bytes(asked, "workspace")
    if isinstance(asked, int | float | np.number) and not isinstance(asked, bool) and 0 <= asked < math.inf:
        return float(asked)
    raise InputError(f"workspace={asked!r} is neither a multiple of the kernel's block nor bytes such as '64MiB'")


def check_distinct(targets: Sequence[StoreLike]) -> None:
    """Raise without a target, or if two targets have one location."""
    if not targets:
        raise InputError("at least one target is required")
    for target in targets:
        check_target_place(target)
    names = [name_of(target) for target in targets]
    for number, target in enumerate(targets):
        if names[number] in names[:number]:
            raise TargetError(f"target {target} is named twice")


def resources_of(
    cluster: Cluster | None, memory: Any, schedule: str | None = None, ranks: int | None = None
) -> Resources:
    memory = memory_of(memory)
    order, ranks = settings.schedule(schedule), None if ranks is None else whole(ranks, "ranks", 1)
    how: Any = {"ranks": ranks, "schedule": order, "requests": settings.ways().requests}
    if cluster is None:
        free = available_bytes()
        budget, costs = settings.budget(memory, free), settings.costs(available=free)
        return Resources(budget=budget, costs=costs, threads=settings.local_cores(), **how)
    there = cluster.workers()
    given = setting("memory") if memory is None else memory
    return Resources(
        budget=cluster.budget() if given is None else settings.budget(given),
        costs=cluster.costs(),
        workers=len(there),
        threads=min(w.threads for w in there),
        synchronous=setting("assembly") == "synchronous" and not is_unordered(order),
        **how,
    )


def scratch_at(place: Callable[[Any], Any], scratch: Any) -> Any:
    """Return what a user passes as scratch, one location or several, as paths or stores."""
    return list(map(place, scratch)) if isinstance(scratch, list | tuple) else place(scratch)


def scratch_folder(scratch: Any, target: StoreLike) -> str:
    scratch = setting("scratch") if scratch is None else scratch
    if "://" in str(scratch) or not isinstance(place := scratch_of(scratch, target), str):
        raise UnsupportedError(f"scratch={scratch!r}: computed blocks are kept in a local folder; pass its path")
    return place


def check_lazy(x: Any) -> None:
    """Raise unless the argument is a Dask array with blocks that can be written."""
    import dask.array as da

    settings.refuse_array_expressions()
    if not isinstance(x, da.Array):
        raise InputError(f"{type(x).__module__}.{type(x).__name__} is not a dask.array.Array")
    if any(math.isnan(n) for lengths in x.chunks for n in lengths):
        raise ChunksError(f"{x.name} has blocks of unknown length: call its compute_chunk_sizes() first")
    if x.dtype.hasobject or x.dtype.itemsize == 0:
        raise UnsupportedError(f"{x.name} has dtype {x.dtype}: its elements have no fixed size")
    if type(x._meta) is not np.ndarray:
        kind = f"{type(x._meta).__module__}.{type(x._meta).__name__}"
        raise UnsupportedError(f"{x.name} has blocks of {kind}: convert them to NumPy arrays with map_blocks")


def is_dataset(source: Any) -> bool:
    """Return whether the source is an xarray object, without importing xarray."""
    return type(source).__module__.partition(".")[0] == "xarray" and hasattr(source, "dims")


def is_lazy(source: Any) -> bool:
    """Return whether the source is a lazy array or a dataset, and not the location of a stored one."""
    return is_dataset(source) or hasattr(type(source), "__dask_graph__")


def check_alike(arrays: Sequence[zarr.Array]) -> None:
    """Raise unless the sources of a pass have one shape."""
    if not arrays:
        raise InputError("at least one source is required")
    other = next((array for array in arrays if array.shape != arrays[0].shape), None)
    if other is not None:
        raise InputError(f"sources have shapes {arrays[0].shape} and {other.shape}: the sources' shapes must be equal")
