"""Creation of local array files from a global array file, and its reverse."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Literal

import numpy as np
import zarr
from distributed import Client

from oocarrays.arrays.array import OutOfCoreArray, open_array as open_global
from oocarrays.arrays.creating import CHUNK_BYTES, chunks_and_order, described, largest_shape, open_array
from oocarrays.arrays.local_array import LocalArrays, own_disks
from oocarrays.errors import InputError, JournalError
from oocarrays.graphs.cluster.placement import Cluster, Disks, client_of
from oocarrays.graphs.files.scatter import Files, files_content, made_like, resumed_files
from oocarrays.graphs.run.recovery import Interrupted
from oocarrays.graphs.run.run import Run
from oocarrays.jobs.job import Job, Result
from oocarrays.mapping.grid import ChunkGrid, Stored, orientation_of
from oocarrays.mapping.layouts.layout import LayoutLike
from oocarrays.options.asked import cluster_of, resources_of
from oocarrays.options.chunks import cuts, regular_shards
from oocarrays.options.given import Resources, Target, codecs_of, means_of, stored_as, verb
from oocarrays.plan.documents import Document, Settings
from oocarrays.plan.files.scatter import FilesPlan, plan_files
from oocarrays.plan.plan import Resources as PlanResources
from oocarrays.requests import checked, requested, unnamed
from oocarrays.storage.files import local_files
from oocarrays.storage.files.array_file import ArrayFile, describe, describe_source
from oocarrays.storage.files.creating import TargetSpec, check_place, written_file
from oocarrays.storage.files.descriptor import Descriptor
from oocarrays.storage.files.formats import dimension_names, target_settings
from oocarrays.storage.files.local_files import LocalFiles, RankFiles
from oocarrays.storage.files.making_room import check_apart
from oocarrays.storage.files.places import StoreLike, named
from oocarrays.storage.files.target import LocalTarget
from oocarrays.storage.journal.calls import CALL, call_content
from oocarrays.storage.journal.sources import metadata_digest
from oocarrays.storage.local.fs import DESCRIPTOR
from oocarrays.stored.array import missing_of, placer


class FilesJob(Job[Run[Files], Result, FilesPlan], Generic[Result]):
    """Planned scatter or gather of array files: ``.plan``, ``.explain()``, ``.run()``, ``dask.compute(job)``."""

    def _title(self) -> str:
        return f"oocarrays.FilesJob {self.plan.way} → {self._run.destination.store}"


STORED = ("chunks", "shards", "orientation", "compressors", "filters", "zarr_format")
"""Fields of a target that scatters and gathers take."""


@verb(target=(*STORED, "folders"), resources=("workers", "schedule"), old={"a": "source="})
def scatter_files(
    source: OutOfCoreArray | zarr.Array[Any] | np.ndarray | StoreLike,
    layout: LayoutLike,
    target: Target | StoreLike,
    *,
    ranks: int | None = None,
    grid: Sequence[int] | None = None,
    depth: int | Sequence[int] | Mapping[Any, int] = 0,
    memory: int | float | str | None = None,
    overwrite: bool = False,
    resume: bool | Literal["verify", "as-is"] = False,
    scheduler: Client | str | None = None,
    resources: Resources | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> FilesJob[LocalArrays]:
    """Plan to write each rank's part of an array to a file of its own, with its halo. Reads no data.

    Each stored chunk is read and decoded once, in rounds that fit the memory budget. Each rank receives its part of it.

    Parameters
    ----------
    source : OutOfCoreArray, zarr.Array, path, URL or store
        The global array file.
    layout, ranks, grid
        The layout of the array over ranks, as `Layout.of` takes them.
    target : path, URL, Zarr store or Target
        Location of the new group of local array files. By default their chunks have about the size and the orientation
        of the source's, and their codecs and format are the source's.
    depth : int, sequence of int or mapping
        Halo width along each axis in elements. Halos are filled from the neighbours' elements; beyond the array's
        border, with the fill value.
    memory, overwrite, resume, scheduler, storage_options
        As in `rechunk`.
    resources : Resources
        ``workers``, ``schedule`` and ``missing``.

    Returns
    -------
    FilesJob
        ``.run()`` returns `LocalArrays`.

    Raises
    ------
    InputError
        Before anything is written: see `oocarrays.errors`.

    Notes
    -----
    Thakur 1995, section 5.3.2: local array file creation.

    Examples
    --------
    >>> import numpy as np
    >>> z = zarr.create_array({}, data=np.arange(8), chunks=(4,))
    >>> job = scatter_files(z, "block", zarr.storage.MemoryStore(), ranks=2, depth=1, scheduler="threads")
    >>> job.plan.traffic.read_requests, job.run().local(1)[...]
    (2, array([3, 4, 5, 6, 7, 0]))
    """
    means = means_of(resources, scatter_files, memory=memory, scheduler=scheduler, storage_options=storage_options)
    to = stored_as(target, scatter_files)
    place = placer(means.storage_options, source, to.store)
    opened, store = open_global(place(source), mode="r").zarr, place(to.store)
    file = describe_source(opened, missing_of(source, means.missing))
    cluster = cluster_of(means.scheduler, means.workers)
    said = described(tuple(opened.shape), layout, ranks, grid, "local", depth, dimension_names(opened))
    runs = orientation_of(opened.shape, file.stored.grid.chunks)
    said, made, cut = _chunked(to, opened, said, runs, file.stored.chunk_bytes)
    said, disks = own_disks(said, to.folders, means.scheduler)
    check_apart(opened, store)
    checked(local_files.check_group_place, store, overwrite=overwrite, resume=resume)
    files = LocalFiles(store=store, descriptor=said, name=str(store))
    spec = LocalTarget(store=store, settings=made, overwrite=overwrite, said=cut, files=files)
    program, content = _scattering(file, spec, resources_of(cluster, means.memory, means.schedule))
    request = requested(
        "scatter_files", [named(opened.store_path)], [metadata_digest(file)],
        [(spec.made, sum(grid.count for grid in program.plan.grids))], files=said.as_json(),
    )  # fmt: skip
    job = _job(Run(program, content), cluster, disks, means.scheduler).asked_for(request)
    same = means._only("memory", "scheduler", "workers", "storage_options")
    return job.again(resume, overwrite=overwrite, source=unnamed(source), means=same)


def _chunked(
    to: Target, like: zarr.Array, said: Descriptor, runs: Any, nbytes: int
) -> tuple[Descriptor, Settings, tuple[str, ...]]:
    """Return the descriptor with its orientation, the settings, and notices of cut chunks, for files like an array."""
    names, shape, dtype = dimension_names(like), largest_shape(said), like.dtype.newbyteorder("=")
    known = runs if to.orientation is to.chunks is None else to.orientation
    size = min(max(nbytes, 2**20), CHUNK_BYTES)  # no smaller chunks, though the source may have them
    chunked, order = chunks_and_order(said, dtype, known, to.chunks, names, size)
    how: Any = {"order": None if to.orientation is None else order, **codecs_of(to)}
    made = target_settings(like, chunked, shards=regular_shards(to.shards, chunked, shape, dtype, names), **how)
    return replace(said, orientation=order), made, cuts(to.chunks, to.shards, ChunkGrid.of(shape, chunked), names)


def _job(run: Run[Files], cluster: Cluster | None, disks: Disks, scheduler: Any) -> FilesJob[Any]:
    program, store = run.program, run.destination.store
    on_own_disks = program.scatters and program.local.descriptor.folders
    there = scheduler if on_own_disks else None  # a client cannot be sent in Dask's tasks
    return FilesJob(run, lambda name: open_array(store, scheduler=there), cluster, disks)


def _scattering(
    source: ArrayFile, target: LocalTarget, resources: PlanResources, room: int | None = None
) -> tuple[Files, Document]:
    said = target.files.descriptor
    assert said.layout is not None, "local array files have a layout"
    grids = local_files.rank_grids(said, target.settings)
    plan = plan_files(
        "scatter", source.stored, target.preview(), grids, said.layout, said.depth, resources, room=room
    )  # fmt: skip
    called = _called("scatter_files", source.zarr.store_path, plan, missing=source.presence.missing)
    return Files(plan=plan, source=source, target=target), files_content(
        plan, called, metadata_digest(source), target.made
    )


def _gathering(
    local: LocalArrays, target: TargetSpec, whole: Stored, resources: PlanResources, room: int | None = None
) -> tuple[Files, Document]:
    grids = [stored.grid for stored in local.stored]
    largest = max(local.stored, key=lambda stored: stored.chunk_bytes)
    plan = plan_files("gather", whole, largest, grids, local.layout, local.depth, resources, room=room)
    content = files_content(plan, _called("gather_files", local.files.store, plan), _said(local))
    return Files(plan=plan, source=RankFiles(local.files), target=target), content


def _said(local: LocalArrays) -> list[Any]:
    """Return the values that identify local array files."""
    return [local.files.descriptor.as_json(), local.dtype.str]


def _called(function: str, source: StoreLike, plan: FilesPlan, **options: Any) -> Document:
    schedule = plan.schedule.name if plan.processes else None
    return call_content(
        function, [named(source)], memory=plan.budget, processes=plan.processes, schedule=schedule, **options
    )  # fmt: skip


@verb(target=STORED, resources=("workers", "schedule"), old={"local": "source="})
def gather_files(
    source: LocalArrays | StoreLike,
    target: Target | StoreLike,
    *,
    memory: int | float | str | None = None,
    overwrite: bool = False,
    resume: bool | Literal["verify", "as-is"] = False,
    scheduler: Client | str | None = None,
    resources: Resources | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> FilesJob[OutOfCoreArray]:
    """Plan to write local array files into one global array file. Reads no data.

    Halos are left out. Each chunk of the target is written once, whole. The target's descriptor keeps layout and
    depth.

    Parameters
    ----------
    source : LocalArrays, path, URL or store
        The local array files.
    target : path, URL, Zarr store or Target
        Location of the new array. By default its chunks have about the size and the orientation of those of the local
        files, and its codecs and format are theirs.
    memory, overwrite, resume, scheduler, storage_options
        As in `rechunk`.
    resources : Resources
        ``workers`` and ``schedule``.

    Returns
    -------
    FilesJob
        ``.run()`` returns an `OutOfCoreArray`.

    Raises
    ------
    InputError
        Before anything is written: see `oocarrays.errors`.

    Examples
    --------
    >>> store, halves = zarr.storage.MemoryStore(), zarr.storage.MemoryStore()
    >>> import oocarrays as ooc
    >>> a = ooc.create_array(halves, shape=8, dtype=int, layout="cyclic", ranks=2, placement="local")
    >>> a[...] = range(8)
    >>> gather_files(a, ooc.Target(store, chunks=4), scheduler="threads").run()[...]
    array([0, 1, 2, 3, 4, 5, 6, 7])
    """
    means = means_of(resources, gather_files, memory=memory, scheduler=scheduler, storage_options=storage_options)
    to = stored_as(target, gather_files)
    place = placer(means.storage_options, source, to.store)
    opened = source if isinstance(source, LocalArrays) else open_array(place(source), scheduler=means.scheduler)
    if not isinstance(opened, LocalArrays):
        raise InputError(f"{opened.store} is one array, not local array files: there is nothing to gather")
    like, store, cluster = opened.like(), place(to.store), cluster_of(means.scheduler, means.workers)
    said = Descriptor(placement="global", shape=opened.shape, layout=opened.layout, depth=opened.depth)
    largest = max(stored.chunk_bytes for stored in opened.stored)
    said, made, cut = _chunked(to, like, said, opened.files.descriptor.orientation, largest)
    made |= {"shape": said.shape, "attributes": {**opened.attrs, DESCRIPTOR: said.as_json()}}
    check_apart(opened.zarr, store)
    checked(check_place, store, overwrite=overwrite, resume=resume)
    spec = TargetSpec(store=store, settings=made, overwrite=overwrite, said=cut)
    whole, name = spec.preview(), named(opened.files.store)
    program, content = _gathering(opened, spec, whole, resources_of(cluster, means.memory, means.schedule))
    request = requested("gather_files", [name], _said(opened), [(made, whole.grid.count)])
    job = _job(Run(program, content), cluster, opened.disks, None).asked_for(request)
    same = means._only("memory", "scheduler", "workers", "storage_options")
    return job.again(resume, overwrite=overwrite, source=opened if name is None else None, means=same)


def resume_files(left: Interrupted, source: Any, cluster: Cluster | None, means: Resources) -> FilesJob[Any]:
    local = source if isinstance(source, LocalArrays) else None
    now = _said(local) if local else metadata_digest(describe(source.zarr))
    if json.loads(json.dumps(now)) != left.content["source_metadata"]:
        raise JournalError(f"the journal in {left.target} belongs to a different source")
    planned: Callable[..., tuple[Files, Document]]
    if local:
        planned = partial(_gathering, local, TargetSpec(store=left.target), written_file(left.target).stored)
        disks = local.disks
    else:
        files = local_files.open_local_files(left.target, unfinished=True)
        assert files is not None, "a scatter makes local array files"
        like, workers = made_like(left.content), files.descriptor.workers
        made = target_settings(like, like.chunks, shards=like.shards)
        target = LocalTarget(store=left.target, settings=made, files=replace(files, store=left.target))
        planned = partial(_scattering, describe_source(source.zarr, source.missing), target)
        disks = Disks(client=client_of(means.scheduler) if workers else None, workers=workers)
    resources = resources_of(cluster, means.memory, left.content[CALL]["options"]["schedule"])
    program, content = planned(resources, left.content["room"])
    one_chunk_at_least = replace(resources, budget=max(resources.budget, left.content[CALL]["memory"]))
    before, _ = planned(one_chunk_at_least, left.content["room"])
    return _job(resumed_files(program, content, left, before.plan), cluster, disks, means.scheduler)
