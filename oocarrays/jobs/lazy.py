"""Writes of lazy arrays: a Dask array of any blocks into a Zarr array of any chunks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from dask.utils import ensure_dict

from oocarrays.arrays.array import OutOfCoreArray
from oocarrays.errors import BudgetError, UnsupportedError
from oocarrays.graphs import settings
from oocarrays.graphs.cluster.placement import Cluster
from oocarrays.graphs.lazy.blocks import BlockTasks, blocks_run
from oocarrays.graphs.lazy.staged import staged
from oocarrays.graphs.rechunk.program import Destination, Rechunk
from oocarrays.graphs.run.execution import Graph
from oocarrays.graphs.run.run import Run
from oocarrays.graphs.settings import setting
from oocarrays.jobs.job import Job, array_at, opener
from oocarrays.mapping.given import named, names_of_axes
from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.mapping.overlap import BlockLengths
from oocarrays.options.asked import check_lazy, cluster_of, resources_of, scratch_folder
from oocarrays.options.chunks import ChunksLike, block_grid, block_lengths
from oocarrays.options.given import NONE, Resources, Target
from oocarrays.options.rechunks import settings_of
from oocarrays.plan.documents import Settings
from oocarrays.plan.lazy.blocks import BlocksPlan, plan_blocks
from oocarrays.plan.plan import Resources as PlanResources
from oocarrays.requests import checked, requested
from oocarrays.show import report
from oocarrays.show.notebook import lazy_html
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import check_place
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.making_room import is_empty
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.files.target import uneven_target
from oocarrays.storage.stores.urls import check_replaces
from oocarrays.stored.array import placer

if TYPE_CHECKING:
    import dask.array as da


class FromDaskJob(Job[Run[Rechunk], OutOfCoreArray, BlocksPlan]):
    """Planned write of a lazy array: ``.plan``, ``.explain()``, ``.run()``, ``dask.compute(job)``."""

    _restarts = True

    def __init__(self, x: da.Array, run: Run[Rechunk], target: StoreLike, cluster: Cluster | None) -> None:
        self._lazy = x
        super().__init__(run, opener(array_at, target), cluster)

    @property
    def plan(self) -> BlocksPlan:
        """Frozen plan: blocks to compute, writes and memory."""
        return self._run.program.blocks.plan

    def _planned(self) -> str:
        text = super()._planned()
        if self.plan.aligned:
            return text
        return f"{text}\n\nfrom scratch to the target\n{report.table(report.plan_rows(self.plan.rechunk))}"

    def _rows(self) -> list[tuple[str, str]]:
        shape, nbytes = report.shape_text(self.plan.shape), report.bytes_text(self.plan.stored.nbytes)
        return [("array", f"{shape} {self._lazy.dtype}, {nbytes}"), *super()._rows()[1:]]

    def _build(self) -> Graph:
        keys = self._lazy.__dask_keys__()
        tasks = ensure_dict(self._lazy.__dask_optimize__(self._lazy.__dask_graph__(), keys))
        mine = BlockTasks(self._run, self._addresses, keys)
        written = mine.blocks(())
        last, self._pinned = mine.rest([written]) or written, {mine.suffix: self._addresses}
        return {**tasks, **mine.graph}, last

    def _threads(self) -> int:
        return self.plan.threads

    def _title(self) -> str:
        return f"oocarrays.FromDaskJob {self._lazy.name} → {self._run.destination.store}"

    def _repr_html_(self) -> str:
        places = (self._lazy.name, str(self._run.destination.store))
        blocks, target = self.plan.blocks, self.plan.rechunk.target
        return lazy_html(
            blocks, target, self._rows(), title="oocarrays.FromDaskJob", places=places, measured=self._ran()
        )


def from_dask(
    x: da.Array, to: Target, means: Resources = NONE, *, overwrite: bool = False, resume: Any = False
) -> FromDaskJob:
    """Plan to write a Dask array of any blocks into a Zarr array of any chunks: see `oocarrays.rechunk`."""
    check_lazy(x)
    target = placer(means.storage_options, to.store)(to.store)
    names = names_of_axes(to.dimension_names, x.ndim)
    attributes = {} if to.attributes is None else named(to.attributes, "attributes")
    like = described(x, fill_value=to.fill_value, attributes=attributes, dimension_names=names)
    stated = replace(to, zarr_format=3 if to.zarr_format is None else to.zarr_format)
    made, lengths, said = settings_of(stated, like, names)
    made |= {} if to.fill_value is None else {"fill_value": to.fill_value}
    checked(check_place, target, overwrite=overwrite, resume=resume)
    target, made = uneven_target(target, made, lengths, durable=setting("durable"))
    check_replaces(target, new=True)
    checked(check_place, target, overwrite=overwrite, resume=resume)
    cluster = cluster_of(means.scheduler, means.workers)
    restarts = bool(resume) and unfinished_run(target) is not None
    run = planned(
        x.chunks, like, target, made, resources_of(cluster, means.memory), straight=is_empty(target),
        overwrite=overwrite or restarts, scratch=means.scratch, said=said,
    )  # fmt: skip
    job = FromDaskJob(x, run, target, cluster)
    job = job.asked_for(requested("from_dask", [x.name], [], [(made, job.plan.rechunk.target.grid.count)]))
    return job.again(resume, overwrite=overwrite, means=means._only("memory", "scheduler", "workers"))


def planned(
    blocks: BlockLengths,
    like: ArrayFile,
    target: StoreLike,
    made: Settings,
    resources: PlanResources,
    *,
    overwrite: bool,
    straight: bool,
    scratch: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None,
    said: tuple[str, ...] = (),
) -> Run[Rechunk]:
    """Return the run that writes blocks: directly to the target if allowed and they are aligned."""
    folder = scratch_folder(scratch, target)
    plan = plan_blocks(blocks, array_file.preview(made, target), resources, straight=straight)
    past_cache_above = settings.past_cache_above()
    destination = Destination(
        store=target,
        settings=made,
        overwrite=overwrite,
        scratch=folder,
        past_cache_above=max(past_cache_above - plan.scratch_bytes, 0),  # the cache takes the pieces in scratch, too
        said=said,
    )
    return blocks_run(plan, like, destination)


def rechunk_lazily(
    x: da.Array, chunks: ChunksLike, means: Resources = NONE, *, names: Sequence[str | None] | None = None
) -> da.Array:
    """Return a lazy array in other chunks; its blocks go through scratch: see `oocarrays.rechunk`."""
    check_lazy(x)
    grid = block_grid(x)
    blocks = block_lengths(chunks, grid, x.dtype, names)
    if not x.size or blocks == x.chunks:
        return x.rechunk(blocks)  # nothing moves
    cluster = cluster_of(means.scheduler, means.workers)
    resources = resources_of(cluster, means.memory)
    longest = tuple(max(*lengths, 1) for lengths in blocks)
    stored = Stored(grid=ChunkGrid.of(x.shape, longest), itemsize=x.dtype.itemsize, local=True)
    most = min(grid.chunk_size * x.dtype.itemsize, stored.chunk_bytes) * resources.threads
    if most > resources.budget:
        raise BudgetError(resources.budget, most, "writing the blocks of each thread")
    folder = scratch_folder(means.scratch, zarr.storage.MemoryStore())
    return staged(x, stored, blocks, folder, cluster.client if cluster else None)


def described(x: da.Array, **options: Any) -> ArrayFile:
    """Describe an empty array in memory with such elements."""
    how: Any = {"dtype": x.dtype.newbyteorder("="), "chunks": block_grid(x).chunks, **options}
    try:
        with np.errstate(over="ignore"):  # of the fill value, which is checked with all settings
            array = zarr.create_array({}, shape=x.shape, **how)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise UnsupportedError(f"Zarr does not accept these settings for the target: {error}") from error
    return array_file.describe(array)
