"""Rechunks as they are asked for: the same terms for one array, or for each of a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import zarr

from oocarrays.errors import UnsupportedError
from oocarrays.graphs import settings
from oocarrays.graphs.defaults import setting
from oocarrays.graphs.rechunk.destination import Destination
from oocarrays.mapping.orientation import chunks_along
from oocarrays.mapping.section import axis_order
from oocarrays.options.chunks import ChunksLike, cuts, regular_chunks, regular_shards, uneven_lengths
from oocarrays.plan.machine import check_priced
from oocarrays.plan.memory import Resources
from oocarrays.plan.rechunk.plan import RechunkPlan, plan_rechunk
from oocarrays.plan.rechunk.ways import Strategy
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.formats import dimension_names, target_settings
from oocarrays.storage.files.places import StoreLike, in_files
from oocarrays.storage.files.presence import Policy
from oocarrays.storage.files.target import uneven_target
from oocarrays.storage.stores.remote import RemoteStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """Terms of a rechunk, by which arrays are planned."""

    orientation: Any
    """The order of axes in a chunk; None for that of the source."""
    method: Strategy | Literal["auto"]
    """The strategy."""
    shards: ChunksLike | None
    """Lengths of shards, in elements; None for none."""
    zarr_format: Literal[2, 3] | None
    """By default that of the source."""
    compressors: Any
    """Codecs of the target, as Zarr takes them; None for those of the source."""
    filters: Any
    """The same of its filters."""
    overwrite: bool
    """Whether a target that is there may be replaced."""
    scratch: str | RemoteStore
    """Where scratch arrays are made."""
    missing: Policy
    """What is made of chunks that the source lacks."""
    resources: Resources
    """Memory, processors and requests that plans may use."""
    grows: bool = False
    """Whether the target is to grow with its source: chunks and shards may then be longer than its axes."""

    def planned(
        self, opened: zarr.Array, target: StoreLike, chunks: Any, *, member: bool = False
    ) -> tuple[RechunkPlan, ArrayFile, Destination]:
        """Plan what is to be done with one array, which may be a member of a group, and where."""
        file = array_file.describe_source(opened, self.missing)
        order = None if self.orientation is None else axis_order(self.orientation, opened.ndim)
        names = dimension_names(opened)
        lengths = uneven_lengths(chunks, file.stored.grid, file.dtype, names)
        if lengths and member:
            raise UnsupportedError("chunks of unequal lengths are made of one array at a time, not of a group's")
        shape = self._chunks(tuple(map(max, lengths)) if lengths else chunks, order, file)
        made = target_settings(
            opened,
            shape,
            shards=regular_shards(self.shards, shape, file.stored.grid.shape, file.dtype, names, grows=self.grows),
            zarr_format=self.zarr_format,
            compressors=self.compressors,
            filters=self.filters,
            order=order,
        )
        target, made = uneven_target(target, made, lengths, durable=setting("durable"))
        made_of = array_file.preview(made, target)
        check_priced(made_of, "the target")
        plan = plan_rechunk(
            file.stored,
            made_of,
            self.resources,
            method=self.method,
            remote_scratch=not in_files(self.scratch),
        )
        destination = Destination(
            store=target,
            settings=made,
            overwrite=self.overwrite,
            scratch=self.scratch,
            past_cache_above=settings.past_cache_above(),
            said=() if self.grows else cuts(chunks, self.shards, file.stored.grid, names),
        )
        return plan, file, destination

    def _chunks(self, chunks: ChunksLike | None, order: tuple[int, ...] | None, file: ArrayFile) -> tuple[int, ...]:
        """The target's chunks, checked."""
        grid = file.stored.grid
        if chunks is not None:
            return regular_chunks(chunks, grid, file.dtype, dimension_names(file.zarr), grows=self.grows)
        return grid.chunks if order is None else chunks_along(order, grid.shape, grid.chunk_size)
