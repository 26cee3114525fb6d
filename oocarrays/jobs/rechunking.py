"""Public functions for rechunking and cleaning."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import numpy as np
import zarr

from oocarrays.arrays.array import OutOfCoreArray
from oocarrays.arrays.groups import OutOfCoreGroup
from oocarrays.errors import ChunksError, InputError
from oocarrays.graphs import settings
from oocarrays.graphs.cluster.workers import Cluster
from oocarrays.graphs.defaults import setting
from oocarrays.jobs.lazy import FromDaskJob
from oocarrays.jobs.lazy_dataset import DatasetJob, lazy_job, rechunked
from oocarrays.jobs.stored import GroupJob, RechunkJob, array_job, group_job
from oocarrays.jobs.updating import UpdateJob, update_array
from oocarrays.mapping.given import flag, refuse
from oocarrays.mapping.grid import Stored
from oocarrays.options.asked import cluster_of, is_lazy, resources_of, scratch_of
from oocarrays.options.chunks import ChunksLike
from oocarrays.options.given import Resources, Target, chunked, means_of, stated_in, stored_as, verb
from oocarrays.options.keywords import RechunkKeywords
from oocarrays.options.rechunks import Planner
from oocarrays.requests import is_resumable, unnamed
from oocarrays.storage.files import array_file
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.group_file import holds_group
from oocarrays.storage.files.making_room import is_empty
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.journal.leftovers import Leftover, find_leftovers
from oocarrays.stored.array import missing_of, placer

if TYPE_CHECKING:
    import dask.array as da
    from distributed import Client


@overload
def rechunk(
    source: da.Array, target: None = None, *, chunks: ChunksLike | None = None, **keywords: Unpack[RechunkKeywords]
) -> da.Array: ...


@overload
def rechunk(
    source: OutOfCoreArray | zarr.Array | np.ndarray,
    target: Target | StoreLike,
    *,
    chunks: ChunksLike | None = None,
    **keywords: Unpack[RechunkKeywords],
) -> RechunkJob: ...


@overload
def rechunk(
    source: OutOfCoreGroup | zarr.Group,
    target: Target | StoreLike,
    *,
    chunks: ChunksLike | None = None,
    **keywords: Unpack[RechunkKeywords],
) -> GroupJob: ...


@overload
def rechunk(
    source: StoreLike,
    target: Target | StoreLike,
    *,
    chunks: int | str | tuple[Any, ...] | list[Any] | Mapping[int, Any] | None = None,
    **keywords: Unpack[RechunkKeywords],
) -> RechunkJob: ...


@overload
def rechunk(
    source: StoreLike,
    target: Target | StoreLike,
    *,
    chunks: Mapping[str, tuple[Any, ...] | list[Any] | Mapping[Any, Any]],
    **keywords: Unpack[RechunkKeywords],
) -> GroupJob: ...


@overload
def rechunk(
    source: Any,
    target: Target | StoreLike,
    *,
    chunks: ChunksLike | None = None,
    **keywords: Unpack[RechunkKeywords],
) -> RechunkJob | GroupJob | FromDaskJob | DatasetJob: ...


@overload
def rechunk(
    source: Any, target: None = None, *, chunks: ChunksLike | None = None, **keywords: Unpack[RechunkKeywords]
) -> Any: ...


@verb(
    target=(
        "chunks", "shards", "orientation", "compressors", "filters", "zarr_format", "fill_value", "attributes",
        "dimension_names",
    ),
    resources=("workers", "ranks", "schedule", "scratch"),
    old={"update": "update(target, source=source, chunks=…)"},
)  # fmt: skip
def rechunk(
    source: Any,
    target: Target | StoreLike | None = None,
    *,
    chunks: ChunksLike | None = None,
    method: Literal["auto", "independent", "two-phase", "assembled", "staged"] = "auto",
    memory: int | float | str | None = None,
    overwrite: bool = False,
    resume: bool | Literal["verify", "as-is"] = False,
    scheduler: Client | str | None = None,
    resources: Resources | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> RechunkJob | GroupJob | FromDaskJob | DatasetJob | da.Array:
    """Plan to rewrite an array, or some of a group, in other chunks within a memory budget. Reads no data.

    Parameters
    ----------
    source : path, URL, Zarr store, array or group, numpy or dask array, xarray.Dataset or xarray.DataArray
        The array to read: Zarr format 2 or 3, regular chunks, sharded or not, any codec; or a group of such arrays, as
        xarray writes it. Each block of a lazy source, of any length, is computed once. If the blocks of a Dask array
        consist of whole target chunks (or shards), the task that computes a block writes them; otherwise blocks are
        written to scratch, a local folder, as plain bytes, and are rechunked from there. xarray writes the rest of a
        dataset.
    target : path, URL, Zarr store or Target
        Location of the result. Attributes, dimension names, fill value, dtype and codecs are carried over, unless a
        `Target` states other codecs, shards, orientation or format; of a Dask array, which has none, also fill value,
        attributes and dimension names. A format changes all arrays of a group: those not in ``chunks`` keep their
        chunks, and texts are converted by Zarr. Without a target, a lazy source is rechunked in the middle of a
        pipeline, and the result is lazy: its blocks, each computed once, go through plain files in scratch, which exist
        until the tasks that need them are done. Only memory, scratch, scheduler and workers are accepted then.
    chunks : int, str, tuple or dict
        Chunk length in each axis, in elements, as Dask takes it: one for all axes, a tuple, or a dict by axis number or
        dimension name; -1 for the whole axis, None for that of the source, ``"auto"`` or a size such as ``"128MiB"`` to
        choose multiples of the source's. Or lengths that add up to the axis, such as ``(3, 5, 2)``; one process writes
        chunks of unequal lengths, which need zarr-python 3.3. By default those of the source, of a Dask array the
        longest block in each axis; with an orientation, chunks of about the same size that run along the fastest axes.
        Of a group or dataset, a dict of them by array, such as ``{"air": (100, 20), "deep/temp": {"time": -1}}``; other
        arrays of a group are copied as they are stored.
    method : str
        ``"auto"`` for the cheapest; or one of ``"independent"``, ``"two-phase"``, ``"assembled"``, ``"staged"``.
    memory : int or str
        Budget of this process, or of each worker on a cluster, in bytes above its idle level, such as ``"1GiB"``. By
        default half of the free memory; on a worker, the memory below its spill threshold.
    overwrite : bool
        Whether a Zarr array at ``target`` may be replaced, or a group if a group or dataset is written. The old target
        stays until every block of a lazy source has been computed.
    resume : bool or str
        Whether the target may exist already, unfinished or finished, as in a cron job or a batch queue. If it does not
        exist, the run starts. A stopped run of the same request continues from its journal; memory, ranks, workers,
        method and schedule may differ. A target that the same request has finished stays as it is: ``job.is_finished``
        is True, and ``job.run()`` returns the target. Otherwise the call fails, and the error names the difference. A
        Dask array is compared by its name, which Dask derives from its graph, and its run continues if all blocks had
        been computed.
        ``"verify"`` and ``"as-is"`` continue as `resume` does with ``verify=True`` and ``as_is=True``.
    scheduler : Client, address or "threads"
        Location of the ranks: the workers of a cluster, or threads of this process. By default the workers of the
        active client, if any. Workers must see source, target and scratch under the same paths.
    resources : Resources
        ``ranks``, ``workers``, ``schedule`` of the messages between ranks, ``scratch`` of a staged or assembled plan,
        and ``missing``.
    storage_options : mapping
        Options for opening URLs, by their names in fsspec; if its keys are schemes, each scheme has its own.

    Returns
    -------
    RechunkJob, GroupJob, FromDaskJob or DatasetJob
        With ``.plan``, ``.explain()`` and ``.run()``; ``dask.compute(job)`` runs it too. Without a target, a lazy
        dask.array.Array, xarray.DataArray or xarray.Dataset, of the same kind as the source.

    Raises
    ------
    InputError
        Before anything is written: see `oocarrays.errors`.

    Notes
    -----
    Strategies: del Rosario, Bordawekar and Choudhary 1993, section 4; Thakur 1995, section 5.3.

    Examples
    --------
    >>> import numpy as np, zarr
    >>> rows, columns = zarr.storage.MemoryStore(), zarr.storage.MemoryStore()
    >>> z = zarr.create_array(rows, data=np.arange(12).reshape(3, 4), chunks=(1, 4))
    >>> job = rechunk(rows, columns, chunks=(3, 1), memory="64MiB")
    >>> job.plan.strategy, job.plan.write_requests
    ('independent', 4)
    >>> job.run()[:, 1]
    array([1, 5, 9])
    """
    settings.refuse_array_expressions()
    means = means_of(resources, rechunk, memory=memory, scheduler=scheduler, storage_options=storage_options)
    if target is None:
        others = {"method": method, "overwrite": overwrite, "resume": resume, "storage_options": storage_options}
        return rechunked(source, chunks, means, others=others | stated_in(resources, LAZY))  # type: ignore[no-any-return]
    to = chunked(stored_as(target, rechunk), chunks)
    if is_lazy(source):
        others = {"method": None if method == "auto" else method} | stated_in(resources, (*LAZY, "storage_options"))
        return lazy_job(source, to, means, overwrite=overwrite, resume=resume, others=others)  # type: ignore[no-any-return]
    refuse("is carried over from a stored source: leave it out", **_own(to))
    place, cluster, planner = _planner(source, to, means, method=method, overwrite=overwrite)
    source, store = place(source), place(to.store)
    kind: Any = group_job if holds_group(source) else array_job
    planned: RechunkJob | GroupJob = kind(source, store, planner, cluster, resume)
    return planned.again(resume, overwrite=overwrite, source=unnamed(source), means=means)


LAZY = ("memory", "scratch", "scheduler", "workers")
"""Resources that apply to lazy sources."""


def _own(to: Target) -> dict[str, Any]:
    """Return what a stored source gives its target, as a target states it."""
    return {name: getattr(to, name) for name in ("fill_value", "attributes", "dimension_names")}


def _planner(
    source: Any, to: Target, means: Resources, *, method: Any, overwrite: bool, grows: bool = False
) -> tuple[Callable[[Any], Any], Cluster | None, Planner]:
    """Return the function that opens locations, the cluster, and the planner of a rechunk."""
    where = setting("scratch") if means.scratch is None else means.scratch
    place, policy = placer(means.storage_options, source, to.store, where), missing_of(source, means.missing)
    cluster = cluster_of(means.scheduler, means.workers)
    planner = Planner(
        to=to,
        method=method,
        overwrite=overwrite,
        scratch=scratch_of(place(where), place(to.store), place(source)),
        missing=policy,
        resources=resources_of(
            cluster, means.memory, means.schedule, setting("ranks") if means.ranks is None else means.ranks
        ),
        grows=grows,
    )
    return place, cluster, planner


@verb(
    target=("chunks", "shards", "orientation", "compressors", "filters", "zarr_format"),
    resources=("workers", "ranks", "schedule", "scratch"),
    old={"": "a source is passed by its name now: update(target, source=source)"},
)
def update(
    target: Target | StoreLike,
    *,
    source: Any = None,
    chunks: ChunksLike | None = None,
    memory: int | float | str | None = None,
    resume: bool | Literal["verify", "as-is"] = False,
    scheduler: Client | str | None = None,
    resources: Resources | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> RechunkJob | UpdateJob:
    """Plan to bring a rechunked array up to date after its source grew or some of its chunks changed. Reads no data.

    A finished target keeps sizes and times of its source's chunks, or their ETags, and changes are found by these. The
    changed data is read, and the target grows. Each target chunk that overlaps it is read, changed and replaced by one
    rank. All other chunks and all attributes stay as they are. The target is marked unfinished meanwhile.

    Parameters
    ----------
    target : path, URL or Target
        A result of `rechunk`, or an interrupted update of one, which is then continued. With ``source`` and ``chunks``,
        or a `Target` that states them, a target that does not exist is made, as by `rechunk`; one that exists keeps its
        codecs, format and shards.
    source : path, URL, Zarr store or array
        Location of the source, if it has moved, or if the target may not exist. Chunks of a copy must have the same
        sizes and times.
    chunks : int, str, tuple or dict
        Chunk length in each axis of a target that may not exist, as in `rechunk`; they may be longer than an axis that
        will grow. An existing target must have them.
    resume : bool or str
        As in `rechunk`. A stopped update is continued in any case.
    memory, scheduler, storage_options
        As in `rechunk`.
    resources : Resources
        ``workers`` and ``missing``; for a target that does not exist as in `rechunk`.

    Returns
    -------
    UpdateJob or RechunkJob
        With ``.plan``, ``.explain()`` and ``.run()``, which returns the array; ``dask.compute(job)`` runs it too.
        ``plan.source_share`` and ``plan.target_share`` of an update are the shares that are read and replaced.

    Raises
    ------
    InputError
        Before anything is written: `NotFoundError` if the target keeps no record of its source, `TargetError` if its
        source is another one, `JournalError` if the source has another type or other chunks now, or is smaller;
        `ChunksError` if the target has other chunks; `BudgetError`.

    Examples
    --------
    >>> import numpy as np, oocarrays, tempfile, zarr
    >>> folder = tempfile.mkdtemp()
    >>> z = zarr.create_array(f"{folder}/days", data=np.arange(12).reshape(3, 4), chunks=(1, 4))
    >>> a = oocarrays.rechunk(f"{folder}/days", f"{folder}/series", chunks=(8, 1)).run()
    >>> z.append(np.arange(12, 16)[None])
    (4, 4)
    >>> job = update(f"{folder}/series")
    >>> job.plan.source_share, job.run()[:, 1]
    (0.25, array([ 1,  5,  9, 13]))
    """
    means = means_of(resources, update, memory=memory, scheduler=scheduler, storage_options=storage_options)
    to = chunked(stored_as(target, update), chunks)
    if is_lazy(source):
        raise InputError("update needs a stored source: changes of a lazy array cannot be detected")
    asked = not to.chunks is to.orientation is None
    if source is None or not asked:
        refuse("is for a target that does not exist: pass source= too", chunks=to.chunks)
        return update_array(to.store, source, means, resume=resume)
    place, cluster, planner = _planner(source, to, means, method="auto", overwrite=False, grows=True)
    read, store = place(source), place(to.store)
    if is_empty(store) or (resume and is_resumable(store)):
        kind: Any = group_job if holds_group(read) else array_job
        planned: RechunkJob = kind(read, store, planner, cluster, resume)
        return planned.again(resume, source=unnamed(read), means=means)
    job = update_array(store, read, replace(means, missing=planner.missing), resume=resume)
    _check_chunks(planner.planned(array_file.open_array(read), store, to.chunks)[0].target, job.plan.target, store)
    return job


def _check_chunks(asked: Stored, there: Stored, target: StoreLike) -> None:
    """Raise if the target to update has other chunks; an axis that was one chunk keeps its chunk length."""
    pairs = zip(asked.grid.chunks, there.grid.chunks, asked.grid.shape, strict=True)
    if not all(a == b or a >= n for a, b, n in pairs) or asked.shard_chunks != there.shard_chunks:
        raise ChunksError(
            f"{target} has chunks {there.grid.chunks}, not {asked.grid.chunks}: omit chunks, or pass "
            "overwrite=True (--overwrite)"
        )


def clean(path: str | os.PathLike[str], *, unfinished: bool = False, dry_run: bool = False) -> list[Leftover]:
    """Remove the remains of dead runs in a local folder and below it.

    Parameters
    ----------
    path : path
        The folder.
    unfinished : bool
        Whether to remove unfinished targets too, with their scratch data, and notes of interrupted writes to existing
        arrays: these runs cannot be resumed afterwards.
    dry_run : bool
        Whether to remove nothing and only list.

    Returns
    -------
    list of Leftover
        The removed items, or those that would be removed. Files of living runs are never among them.

    Raises
    ------
    NotFoundError
        If the folder does not exist.
    """
    unfinished, dry_run = flag(unfinished, "unfinished"), flag(dry_run, "dry_run")
    found = [leftover for leftover in find_leftovers(path) if not leftover.alive]
    resumable = {unfinished_run(each.path) for each in found if each.kind == "unfinished"}
    wanted = ("note", "unfinished")
    useful = [each for each in found if each.kind in wanted or each.path.rpartition("-")[2] in resumable]
    removed = found if unfinished else [each for each in found if each not in useful]
    for leftover in () if dry_run else removed:
        leftover.remove()
    return removed
