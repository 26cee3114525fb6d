"""Public functions for rechunking and cleaning."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import numpy as np
import zarr
from distributed import Client
from zarr.abc.codec import Codec
from zarr.codecs import TransposeCodec

from oocarrays.arrays.array import OutOfCoreArray
from oocarrays.arrays.groups import OutOfCoreGroup
from oocarrays.errors import ChunksError, InputError, NotFoundError, TargetError
from oocarrays.graphs import settings
from oocarrays.graphs.cluster.placement import Cluster
from oocarrays.graphs.settings import setting
from oocarrays.jobs.lazy import FromDaskJob
from oocarrays.jobs.lazy_dataset import DatasetJob, lazy_job, rechunked
from oocarrays.jobs.stored import GroupJob, RechunkJob, array_job, group_job
from oocarrays.jobs.updating import ANEW, UpdateJob, update_array
from oocarrays.mapping.given import flag, refuse
from oocarrays.options.asked import cluster_of, is_lazy, resources_of, scratch_at
from oocarrays.options.chunks import ChunksLike
from oocarrays.options.given import (
    ChunkedKeywords,
    OneTarget,
    RechunkKeywords,
    Resources,
    Target,
    chunked,
    means_of,
    own_of,
    stated_in,
    stored_as,
    verb,
)
from oocarrays.options.rechunks import Planner
from oocarrays.requests import apart, is_resumable, unnamed
from oocarrays.storage.files import array_file
from oocarrays.storage.files.documents import holds_group, unfinished_run
from oocarrays.storage.files.formats import stored_order
from oocarrays.storage.files.making_room import is_empty
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.journal.leftovers import Leftover, find_leftovers, scratch_of
from oocarrays.stored.array import missing_of, placer

if TYPE_CHECKING:
    import dask.array as da


@overload
def rechunk(source: da.Array, target: None = None, **keywords: Unpack[ChunkedKeywords]) -> da.Array: ...
@overload
def rechunk(
    source: OutOfCoreArray | zarr.Array[Any] | np.ndarray, target: OneTarget, **keywords: Unpack[ChunkedKeywords]
) -> RechunkJob: ...
@overload
def rechunk(
    source: OutOfCoreGroup | zarr.Group, target: OneTarget, **keywords: Unpack[ChunkedKeywords]
) -> GroupJob: ...
@overload
def rechunk(
    source: StoreLike,
    target: OneTarget,
    *,
    chunks: int | str | tuple[Any, ...] | list[Any] | Mapping[int, Any] | None = None,
    **keywords: Unpack[RechunkKeywords],
) -> RechunkJob: ...
@overload
def rechunk(
    source: StoreLike,
    target: OneTarget,
    *,
    chunks: Mapping[str, tuple[Any, ...] | list[Any] | Mapping[Any, Any]],
    **keywords: Unpack[RechunkKeywords],
) -> GroupJob: ...
@overload
def rechunk(
    source: Any, target: OneTarget, **keywords: Unpack[ChunkedKeywords]
) -> RechunkJob | GroupJob | FromDaskJob | DatasetJob: ...
@overload
def rechunk(source: Any, target: None = None, **keywords: Unpack[ChunkedKeywords]) -> Any: ...
@verb(
    target=(
        "chunks", "shards", "orientation", "compressors", "filters", "zarr_format", "fill_value", "attributes",
        "dimension_names",
    ),
    resources=("workers", "ranks", "schedule", "scratch"),
    old={
        "update": "update(target, source=source, chunks=…)",
        "": "source and target come first, all else by name: rechunk(source, target, chunks=…, memory=…)",
    },
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
        `Target` states other codecs, shards, orientation or format; of a Dask or NumPy array, which has none, also fill
        value, attributes and dimension names. A format changes all arrays of a group: those not in ``chunks`` keep
        theirs, and texts are converted by Zarr. Without a target, a lazy source is rechunked in the middle of a
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
        return rechunked(source, chunks, means, others=others | stated_in(resources, LAZY))
    to = chunked(stored_as(target, rechunk), chunks)
    if is_lazy(source):
        others = {"method": None if method == "auto" else method} | stated_in(resources, (*LAZY, "storage_options"))
        return lazy_job(source, to, means, overwrite=overwrite, resume=resume, others=others)
    if not isinstance(source, np.ndarray):
        refuse("is carried over from a stored source: leave it out", **own_of(to))
    place, cluster, planner = _planner(source, to, means, method=method, overwrite=overwrite)
    source, store = place(source), place(to.store)
    kind: Any = group_job if holds_group(source) else array_job
    return kind(source, store, planner, cluster, resume, means)  # type: ignore[no-any-return]


LAZY = ("memory", "scratch", "scheduler", "workers")
"""Resources that apply to lazy sources."""


def _planner(
    source: Any, to: Target, means: Resources, *, method: Any, overwrite: bool, grows: bool = False
) -> tuple[Callable[[Any], Any], Cluster | None, Planner]:
    where = setting("scratch") if means.scratch is None else means.scratch
    policy, place = missing_of(source, means.missing), placer(means.storage_options, source, to.store, where)
    cluster = cluster_of(means.scheduler, means.workers)
    planner = Planner(
        to=to,
        method=method,
        overwrite=overwrite,
        scratch=scratch_of(scratch_at(place, where), place(to.store), place(source)),
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
        or a `Target` that states them, a target that does not exist is made, as by `rechunk`; one that exists stays as
        it is stored, and must be stored as the `Target` states.
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
        `ChunksError` or `TargetError` if the target has other chunks, shards or codecs; `BudgetError`.

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
    stated = {name: value for name in update.target if (value := getattr(to, name)) is not None}  # type: ignore[attr-defined]
    if is_lazy(source):
        raise InputError("update needs a stored source: changes of a lazy array cannot be detected")
    if source is None or not stated:
        if is_empty(placer(means.storage_options, to.store, source)(to.store)):
            way = "rechunk makes it, or update with source= and chunks="
            raise NotFoundError(f"the target {to.store} does not exist: {way}")
        refuse("is for a target that does not exist: pass source= too", **stated)
        return update_array(to.store, source, means, resume=resume)
    place, cluster, planner = _planner(source, to, means, method="auto", overwrite=False, grows=True)
    read, store = place(source), place(to.store)
    if is_empty(store) or (resume and is_resumable(store)):
        kind: Any = group_job if holds_group(read) else array_job
        planned: RechunkJob = kind(read, store, planner, cluster, resume, means)
        if unnamed(read) is not None:
            raise InputError("update needs a stored source: changes of an array in memory cannot be detected")
        return planned
    job = update_array(store, read, replace(means, missing=planner.missing), resume=resume)
    asked = zarr.create_array({}, **planner.planned(array_file.open_array(read), store, to.chunks)[2].settings)
    there = array_file.open_array(store, unfinished=True)
    for name in stated:
        _check_stored(name, _stored(name, asked), _stored(name, there), store, asked.shape)
    return job


def _stored(name: str, array: zarr.Array) -> Any:
    """Return how an array is stored, as a field of a target states it."""
    if name == "orientation":
        return stored_order(array) or tuple(range(array.ndim))
    if name in ("compressors", "filters"):
        found = [each for each in getattr(array, name) if not isinstance(each, TransposeCodec)]
        return [each.to_dict() if isinstance(each, Codec) else each.get_config() for each in found]
    return array.metadata.zarr_format if name == "zarr_format" else getattr(array, name)


def _check_stored(name: str, asked: Any, there: Any, target: StoreLike, shape: Sequence[int]) -> None:
    """Raise if the target to update is stored otherwise; an axis that was one chunk keeps its chunk length."""
    are_lengths = name in ("chunks", "shards") and asked and there
    if asked == there or (are_lengths and all(a == b or a >= n for a, b, n in zip(asked, there, shape, strict=True))):
        return
    was, now = (str(there), str(asked)) if are_lengths else apart(there, asked)
    kind = ChunksError if name in ("chunks", "shards") else TargetError
    raise kind(f"{target} has {name} {was}, not {now}: omit {name}, or {ANEW}")


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
