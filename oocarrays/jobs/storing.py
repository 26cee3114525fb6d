"""Writes of lazy arrays into stored ones, as by Dask's ``store``, but without losing data in shared chunks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import dask.config
import numpy as np
from dask.utils import ensure_dict

from oocarrays.errors import InputError, NotFoundError, PlacementError, SelectionError, TargetError
from oocarrays.graphs.run.execution import is_here, why_one_writer
from oocarrays.graphs.run.program import new_suffix
from oocarrays.graphs.storing.read_first import reads_any
from oocarrays.graphs.storing.tasks import Storing, in_time, kept_blocks, read_order, store_graph, with_kept_noted
from oocarrays.jobs.lazy import from_dask
from oocarrays.mapping.given import flag
from oocarrays.mapping.selection import Selection
from oocarrays.options.asked import check_lazy, cluster_of
from oocarrays.options.given import Resources, Target, chunked, means_of, stored_as, verb
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile, describe
from oocarrays.storage.files.documents import holds_group, unfinished_run
from oocarrays.storage.files.places import location
from oocarrays.storage.journal.sources import trust_of
from oocarrays.storage.journal.texts import Notes
from oocarrays.storage.stores.urls import check_replaces
from oocarrays.stored.array import placer

if TYPE_CHECKING:
    import dask.array as da
    from dask.delayed import Delayed

HERE = ("threads", "threading", "sync", "synchronous", "single-threaded")
"""Names of Dask's schedulers within this process."""


@verb(
    target=(
        "chunks", "shards", "compressors", "filters", "zarr_format", "fill_value", "attributes", "dimension_names",
    ),
    resources=("workers", "scratch"),
)  # fmt: skip
def store(
    x: da.Array | np.ndarray | Sequence[da.Array | np.ndarray],
    target: Any,
    *,
    region: Any = None,
    compute: bool = True,
    memory: int | float | str | None = None,
    resume: bool | Literal["verify", "as-is"] = False,
    scheduler: Any = None,
    resources: Resources | None = None,
    **options: Any,
) -> Delayed | None:
    """Write Dask arrays of any blocks into stored arrays of any chunks.

    Each target chunk (or shard) is written by one task, which receives the parts of the blocks that overlap it: nothing
    is lost if blocks are not whole chunks. If only some elements of a chunk are written, the others stay. If blocks
    cross chunks, all parts stay in memory until their chunks are complete; `rechunk` uses scratch instead.

    Parameters
    ----------
    x : dask.array.Array or numpy.ndarray, or a sequence of them
        It may be computed from its own target, as in ``x + 1``, if every element is read before it is overwritten;
        otherwise nothing is started. If a worker is lost on a cluster, its work is repeated, provided that its input
        has not been overwritten or is no longer needed. Otherwise a `RunError` is raised, and the target holds old and
        new elements.
    target : OutOfCoreArray, zarr.Array, path, URL, Zarr store or Target; or as many of them
        Existing arrays, opened for writing. A path or URL without an array becomes one with chunks as large as the
        largest block, and so does a `Target`, as it states.
    region : slice or tuple of slices; or as many of them
        The region of the target to write, of the shape of ``x``; by default all.
    compute : bool
        Whether to write now; otherwise the returned `dask.delayed.Delayed` writes when it is computed.
    memory, resources
        As in `rechunk`, for a new target: ``workers``, ``scratch`` and ``storage_options``.
    resume : bool or str
        As in `rechunk`, for a new target. Existing arrays are written again, all of them.
    scheduler : Client, address or str
        As ``dask.compute`` takes it, such as ``"threads"``.
    options
        Other options, as ``dask.compute`` takes them.

    Returns
    -------
    None or Delayed

    Raises
    ------
    InputError
        Before anything is computed: `TargetError` for a target that does not fit, cannot be written, or would be
        overwritten before it is read, `SelectionError` for a region that does not fit.

    Examples
    --------
    >>> import dask.array as da, zarr
    >>> z = zarr.zeros((6,), chunks=(4,), dtype="i8")
    >>> store(da.arange(5, chunks=3), z, region=slice(1, 6), scheduler="threads")
    >>> z[:]
    array([0, 0, 1, 2, 3, 4])
    """
    compute = flag(compute, "compute")
    how: Any = {"scheduler": "threads" if isinstance(scheduler, str) and scheduler in HERE else scheduler}
    means = means_of(resources, store, memory=memory, **how)
    x = [*map(_lazy, x)] if isinstance(x, list | tuple) else _lazy(x)
    if region is None and not isinstance(x, list | tuple) and _is_new(target, resume):
        return _made(x, target, compute, resume, means)
    arrays, targets, regions = _as_many(x, target, region)
    storings = [_storing(*each) for each in zip(arrays, targets, regions, strict=True)]
    graph, done = _graph(arrays, storings)
    from dask.delayed import Delayed

    written = Delayed(done, graph)  # type: ignore[no-untyped-call]
    if not compute:
        return written
    options |= {} if scheduler is None else {"scheduler": scheduler}
    _check_reach(storings, options)
    written.compute(**options)
    return None


def _lazy(x: Any) -> Any:
    """Return a NumPy array as a Dask array; anything else unchanged."""
    import dask.array as da

    return da.from_array(x) if isinstance(x, np.ndarray) else x  # type: ignore[no-untyped-call]


def _is_new(target: Any, resume: Any) -> bool:
    """Return whether the target does not exist yet, or was made by the same call."""
    if isinstance(target, Target):
        return True
    if not isinstance(target, str | os.PathLike):
        return False
    if trust_of(resume) and (unfinished_run(placer(None)(target)) or Notes(placer(None)(target)).made()):
        return True
    try:
        array_file.open_array(placer(None)(target), unfinished=True)
    except NotFoundError:
        return not holds_group(placer(None)(target))
    return False


def _made(x: Any, target: Any, compute: bool, resume: Any, means: Resources) -> Delayed | None:
    """Write a Dask array as a new one, with chunks of the largest block, by a job that can be resumed."""
    check_lazy(x)
    to = stored_as(target, store)
    job = from_dask(x, chunked(to, None if to.chunks else x.chunksize), means, resume=resume)
    if compute:
        job.run()
        return None
    from dask.delayed import delayed

    return delayed(job)


def _as_many(x: Any, target: Any, region: Any) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
    if not isinstance(x, list | tuple):
        return [x], [target], [region]
    targets = target if isinstance(target, list | tuple) else [target] * len(x)
    regions = region if isinstance(region, list) else [region] * len(x)
    if len(targets) != len(x) or len(regions) != len(x):
        raise InputError(
            f"{len(x)} arrays, {len(targets)} targets and {len(regions)} regions: their numbers must be equal"
        )
    return x, targets, regions


def _storing(x: Any, target: Any, region: Any) -> Storing:
    check_lazy(x)
    file = _opened(target)
    axes = _region(region, file)
    if tuple(map(len, axes)) != x.shape:
        place = "" if region is None else f"region={region!r} of "
        raise TargetError(f"{x.name} has shape {x.shape}; {place}{file.name} has shape {tuple(map(len, axes))}")
    if not np.can_cast(x.dtype, file.dtype, "same_kind"):
        raise TargetError(f"{x.name} has dtype {x.dtype}; {file.name} has {file.dtype}: convert it with astype")
    return Storing(name=x.name, blocks=x.chunks, dtype=x.dtype, file=file, axes=axes)


def _opened(target: Any) -> ArrayFile:
    array = array_file.open_array(placer(None)(target), mode="r+")
    if array.read_only:
        raise TargetError(f"{location(array)} is open for reading only: open it with mode='r+'")
    check_replaces(array.store_path)
    return describe(array, written=True)


def _region(region: Any, file: ArrayFile) -> tuple[range, ...]:
    entries = (...,) if region is None else region if isinstance(region, tuple) else (region,)
    if not all(isinstance(entry, slice) or entry is ... for entry in entries):
        raise SelectionError(f"region={region!r} is not a slice for each axis of {file.name}")
    taken = Selection.of(entries, file.stored.grid.shape)
    if any(order != slice(None) for order in taken.order):
        raise SelectionError(f"region={region!r} has a negative step: pass x[::-1] and a region with a positive step")
    return tuple(axis for axis in taken.axes if isinstance(axis, range))


def _graph(arrays: Sequence[da.Array], storings: Sequence[Storing]) -> tuple[dict[Any, Any], Any]:
    """Return the graph that writes blocks and its last key; Dask optimises the blocks together, if at all."""
    import dask.array as da
    from dask.core import flatten
    from dask.highlevelgraph import HighLevelGraph
    from dask.optimization import cull

    keys = list(flatten([x.__dask_keys__() for x in arrays]))
    made = HighLevelGraph.merge(*(x.__dask_graph__() for x in arrays))
    targets, suffix = [storing.file for storing in storings], new_suffix()
    tasks: Any = cull(ensure_dict(made), keys)[0]
    kept, after = kept_blocks(tasks, [target.name for target in targets]), dict[str, Any]()
    if kept:  # writes wait until all of them are noted
        tasks, names, barrier = with_kept_noted(tasks, kept, f"stored-{suffix}", targets[0].name)
        after = {"after": [barrier], "names": names}
    fused = tasks if kept else dict(ensure_dict(da.Array.__dask_optimize__(made, keys)))
    graph, done = store_graph(storings, fused, suffix, **after)
    if not (kept or reads_any(fused, targets)):
        return graph, done
    order = read_order(graph, done, targets)
    if order.late and not kept:
        graph, done = store_graph(storings, tasks, suffix)
        order = read_order(graph, done, targets)
    if order.late:
        raise TargetError(
            f"{order.late.name} is read in a different order than it is written, and would be overwritten before it is "
            "read: write to another array, or all of it by rechunk with overwrite"
        )
    return in_time(graph, done, order.overwritten, order.shared, lambda key: targets[key[1]].name), done


def _check_reach(storings: Sequence[Storing], options: Any) -> None:
    """Raise if workers would write to targets in the memory of this process."""
    scheduler = options.get("scheduler") or dask.config.get("scheduler", None)
    if scheduler in HERE or (scheduler is None and cluster_of(None, None) is None):
        return
    for storing in storings:
        store = storing.file.zarr.store_path.store
        if is_here(store):
            raise PlacementError(f"{storing.file.name} is in this process's memory: pass scheduler='threads'")
        if why := why_one_writer(store):
            raise PlacementError(f"{storing.file.name} {why}")
