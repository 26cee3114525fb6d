"""Public functions for rechunking and cleaning."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import numpy as np
import zarr

from oocarrays.arrays.array import OutOfCoreArray
from oocarrays.arrays.groups import OutOfCoreGroup
from oocarrays.errors import ChunksError, InputError
from oocarrays.graphs import settings
from oocarrays.graphs.defaults import setting
from oocarrays.jobs.lazy import FromDaskJob
from oocarrays.jobs.lazy_dataset import DatasetJob, is_lazy, lazy_job, rechunked
from oocarrays.jobs.stored import GroupJob, RechunkJob, array_job, group_job
from oocarrays.jobs.updating import UpdateJob
from oocarrays.jobs.updating import update as update_array
from oocarrays.mapping.given import flag
from oocarrays.mapping.grid import Stored
from oocarrays.options.asked import cluster_of, resources_of, scratch_of
from oocarrays.options.chunks import ChunksLike
from oocarrays.options.keywords import RechunkKeywords
from oocarrays.options.rechunks import Planner
from oocarrays.requests import is_resumable, unnamed
from oocarrays.storage.files import array_file
from oocarrays.storage.files.creating import is_empty
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.group_file import holds_group
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
    target: StoreLike,
    *,
    chunks: ChunksLike | None = None,
    **keywords: Unpack[RechunkKeywords],
) -> RechunkJob: ...


@overload
def rechunk(
    source: OutOfCoreGroup | zarr.Group,
    target: StoreLike,
    *,
    chunks: ChunksLike | None = None,
    **keywords: Unpack[RechunkKeywords],
) -> GroupJob: ...


@overload
def rechunk(
    source: StoreLike,
    target: StoreLike,
    *,
    chunks: int | str | tuple[Any, ...] | list[Any] | Mapping[int, Any] | None = None,
    **keywords: Unpack[RechunkKeywords],
) -> RechunkJob: ...


@overload
def rechunk(
    source: StoreLike,
    target: StoreLike,
    *,
    chunks: Mapping[str, tuple[Any, ...] | list[Any] | Mapping[Any, Any]],
    **keywords: Unpack[RechunkKeywords],
) -> GroupJob: ...


@overload
def rechunk(
    source: Any,
    target: StoreLike,
    *,
    update: Literal[True],
    chunks: ChunksLike | None = None,
    **keywords: Unpack[RechunkKeywords],
) -> RechunkJob | UpdateJob: ...


@overload
def rechunk(
    source: Any,
    target: StoreLike,
    *,
    chunks: ChunksLike | None = None,
    **keywords: Unpack[RechunkKeywords],
) -> RechunkJob | GroupJob | FromDaskJob | DatasetJob: ...


@overload
def rechunk(
    source: Any, target: None = None, *, chunks: ChunksLike | None = None, **keywords: Unpack[RechunkKeywords]
) -> Any: ...


def rechunk(
    source: Any,
    target: StoreLike | None = None,
    *,
    chunks: ChunksLike | None = None,
    shards: ChunksLike | None = None,
    orientation: Literal["row", "column"] | tuple[int, ...] | None = None,
    memory: int | float | str | None = None,
    ranks: int | None = None,
    method: Literal["auto", "independent", "two-phase", "assembled", "staged"] = "auto",
    schedule: str | None = None,
    compressors: Any = None,
    filters: Any = None,
    zarr_format: Literal[2, 3] | None = None,
    overwrite: bool = False,
    resume: bool | Literal["verify", "as-is"] = False,
    update: bool = False,
    scratch: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    missing: Literal["fill", "warn", "error"] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    scheduler: Client | str | None = None,
    workers: Sequence[str] | None = None,
) -> RechunkJob | GroupJob | FromDaskJob | DatasetJob | UpdateJob | da.Array:
    """Plan to rewrite an array, or some of a group, in other chunks within a memory budget. Reads no data.

    Parameters
    ----------
    source : path, URL, Zarr store, array or group, numpy or dask array, xarray.Dataset or xarray.DataArray
        The array to read: Zarr format 2 or 3, regular chunks, sharded or not, any codec; or a group of such arrays, as
        xarray writes it. Each block of a lazy source is computed once (see `from_dask`); xarray writes the rest of a
        dataset.
    target : path, URL or Zarr store
        Location of the result. Attributes, dimension names, fill value, dtype and codecs are carried over. Without a
        target, a lazy source is rechunked in the middle of a pipeline, and the result is lazy: its blocks, each
        computed once, go through plain files in scratch, which exist until the tasks that need them are done. Only the
        options ``memory``, ``scratch``, ``scheduler`` and ``workers`` are accepted then.
    chunks : int, str, tuple or dict
        Chunk length in each axis, in elements, as Dask takes it: one for all axes, a tuple, or a dict by axis number or
        dimension name; -1 for the whole axis, None for that of the source, ``"auto"`` or a size such as ``"128MiB"`` to
        choose multiples of the source's. Or lengths that add up to the axis, such as ``(3, 5, 2)``; one process writes
        chunks of unequal lengths, which need zarr-python 3.3. By default those of the source; with ``orientation``,
        chunks of about the same size that run along the fastest axes. Of a group or dataset, a dict of them by array,
        such as ``{"air": (100, 20), "deep/temp": {"time": -1}}``; other arrays of a group are copied as they are
        stored.
    shards : int, str, tuple or dict
        Shard length in each axis, in elements, in the same forms: a multiple of the chunk's; -1 for the whole axis. By
        default the target is not sharded.
    orientation : "row", "column" or tuple of int
        Storage order of the axes in a chunk: ``"row"`` has the last axis fastest, ``"column"`` the first; a tuple names
        the axes from the slowest to the fastest (Zarr's ``transpose`` codec).
    memory : int or str
        Budget of this process, or of each worker on a cluster, in bytes above its idle level, such as ``"1GiB"``. By
        default half of the free memory; on a worker, the memory below its spill threshold.
    ranks : int
        Logical processors; by default the plan chooses.
    method : str
        ``"auto"`` for the cheapest; or one of ``"independent"``, ``"two-phase"``, ``"assembled"``, ``"staged"``.
    schedule : str
        Order of the messages between ranks: ``"lex"``, ``"pex"``, ``"bex"``, ``"pex-gen"``, ``"pex-gen-shift"``,
        ``"gen"``, ``"rex"`` or ``"ipex"`` (the last two forward messages between workers); or ``"coloring"`` or
        ``"unordered"``, as in `redistribute`. By default, and with ``"auto"``, the setting ``oocarrays.schedule``; if
        that is ``"auto"`` too, the schedule of least predicted time.
    compressors, filters
        Codecs of the target, as ``zarr.create_array`` takes them; ``()`` for none; None carries the source's over.
        Compressors also by name: ``"zstd"``, ``"blosc"``, ``"gzip"`` or ``"none"``.
    zarr_format : 2 or 3
        By default that of the source. Format 2 keeps dimension names in ``_ARRAY_DIMENSIONS`` and the missing value in
        the fill value, format 3 in ``_FillValue``, both as xarray does. All arrays of a group change: those not in
        ``chunks`` keep their chunks, and texts are converted by Zarr. With a format, ``chunks`` may be left out.
    overwrite : bool
        Whether a Zarr array at ``target`` may be replaced, or a group if a group or dataset is written. The old target
        stays until every block of a lazy source has been computed.
    resume : bool or str
        Whether the target may exist already, unfinished or finished, as in a cron job or a batch queue. If it does not
        exist, the run starts. A stopped run of the same request continues from its journal; memory, ranks, workers,
        method and schedule may differ. A target that the same request has finished stays as it is: ``job.is_finished``
        is True, and ``job.run()`` returns the target. Otherwise the call fails, and the error names the difference.
        ``"verify"`` and ``"as-is"`` continue as `resume` does with ``verify=True`` and ``as_is=True``.
    update : bool
        Whether to bring an array at ``target`` that was made from this source up to date, as `update` does; without
        one, it is made. Chunks may then be longer than an axis that will grow.
    scratch : path or URL
        Folder for the intermediate data of a staged or assembled plan; by default beside a local target, else in the
        system's temporary folder.
    missing : str
        Treatment of chunks that the source lacks, as in `open_array`; by default as the source was opened.
    storage_options : mapping
        Options for opening URLs, by their names in fsspec; if its keys are schemes, each scheme has its own.
    scheduler : Client, address or "threads"
        Location of the ranks: the workers of a cluster, or threads of this process. By default the workers of the
        active client, if any. Workers must see source, target and scratch under the same paths.
    workers : sequence of str
        Addresses or names of the workers to use; by default all.

    Returns
    -------
    RechunkJob, GroupJob, FromDaskJob, DatasetJob or UpdateJob
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
    if target is None:
        others = {
            "shards": shards, "orientation": orientation, "ranks": ranks, "method": method, "schedule": schedule,
            "compressors": compressors, "filters": filters, "zarr_format": zarr_format, "overwrite": overwrite,
            "resume": resume, "update": update, "missing": missing, "storage_options": storage_options,
        }  # fmt: skip
        how: Any = {"memory": memory, "scratch": scratch, "scheduler": scheduler, "workers": workers}
        return rechunked(source, chunks, others=others, **how)  # type: ignore[no-any-return]
    if update:
        _check_updatable(source, flag(update, "update"), overwrite)
    if is_lazy(source):
        return lazy_job(  # type: ignore[no-any-return]
            source, target, chunks,
            shards=shards, zarr_format=zarr_format, memory=memory, compressors=compressors, filters=filters,
            overwrite=overwrite, resume=resume, scratch=scratch, scheduler=scheduler, workers=workers,
            storage_options=storage_options,
            others={
                "orientation": orientation,
                "ranks": ranks,
                "method": None if method == "auto" else method,
                "schedule": schedule,
                "missing": missing,
            },
        )  # fmt: skip
    where = setting("scratch") if scratch is None else scratch
    place, policy = placer(storage_options, source, target, where), missing_of(source, missing)
    source, target = place(source), place(target)
    cluster = cluster_of(scheduler, workers)
    resources = resources_of(cluster, memory, schedule, setting("ranks") if ranks is None else ranks)
    planner = Planner(
        orientation=orientation,
        method=method,
        shards=shards,
        zarr_format=zarr_format,
        compressors=compressors,
        filters=filters,
        overwrite=overwrite,
        scratch=scratch_of(place(where), target, source),
        missing=policy,
        resources=resources,
        grows=update,
    )
    if update and not is_empty(target) and not (resume and is_resumable(target)):
        on: Any = {"storage_options": storage_options, "scheduler": scheduler, "workers": workers}
        job = update_array(target, source, memory=memory, missing=policy, resume=resume, **on)
        if not chunks is orientation is None:
            asked = planner.planned(array_file.open_array(source), target, chunks)[0].target
            _check_chunks(asked, job.plan.target, target)
        return job
    means: Any = {
        "overwrite": overwrite, "memory": memory, "ranks": ranks, "missing": missing, "scheduler": scheduler,
        "workers": workers, "storage_options": storage_options,
    }  # fmt: skip
    kind: Any = group_job if holds_group(source) else array_job
    planned: RechunkJob | GroupJob = kind(source, target, chunks, planner, cluster, resume)
    return planned.again(resume, source=unnamed(source), **means)


def _check_updatable(source: Any, update: bool, overwrite: Any) -> None:
    """Raise if a lazy source would be updated, or if a target would be both updated and replaced."""
    if update and overwrite:
        raise InputError(
            "update=True and overwrite=True exclude each other: update changes the target, overwrite replaces it"
        )
    if update and is_lazy(source):
        raise InputError("update=True needs a stored source: changes of a lazy array cannot be detected")


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
