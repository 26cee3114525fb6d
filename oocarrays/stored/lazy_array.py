"""Lazy array of `OutOfCoreArray.to_dask`: a Dask array with a plan for the reads of its blocks."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from types import EllipsisType
from typing import Any

import dask.array as da
import numpy as np
from dask.highlevelgraph import HighLevelGraph
from dask.utils import format_bytes

from oocarrays.errors import ChunksError, LayoutError
from oocarrays.graphs import settings
from oocarrays.graphs.lazy.reads import StoredPart, layers_of, name_of
from oocarrays.graphs.settings import setting
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.layouts.layout import LayoutLike, block_lengths as layout_blocks, is_blocks, layout_for
from oocarrays.mapping.overlap import BlockLengths
from oocarrays.mapping.selection import Selection, within
from oocarrays.options.asked import cluster_of, resources_of
from oocarrays.options.chunks import ChunksLike, block_lengths
from oocarrays.plan.lazy.reads import LazyReadsPlan, plan_lazy_reads
from oocarrays.show import report
from oocarrays.show.notebook import rows_html
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.places import free_bytes
from oocarrays.storage.journal.leftovers import check_scratch_place
from oocarrays.storage.meter import Meter
from oocarrays.storage.stores.urls import scratch_place
from oocarrays.stored.array import StoredArray


def _scratch(asked: Any, file: ArrayFile) -> str:
    """Return a local folder: the given one, or beside the array, or the system's temporary one."""
    if asked is not None and isinstance(place := scratch_place(asked), str):
        check_scratch_place(place, source=file.folder)
        return place
    beside = os.path.dirname(file.folder) if file.folder else ""
    return beside if beside and os.access(beside, os.W_OK) else tempfile.gettempdir()


class LazyArray(da.Array):  # type: ignore[misc]
    """Dask array with blocks that are read from a stored array: ``.plan``, ``.explain()``, ``.meter``.

    Arrays computed from it are plain Dask arrays. So are its slices, unless reading one by itself is cheaper.
    """

    _part: StoredPart
    _lazy: Callable[[StoredPart, BlockLengths], LazyArray]
    _read_as: str
    _plan: LazyReadsPlan

    @property
    def plan(self) -> LazyReadsPlan:
        """Frozen plan: the blocks that are read together, and the memory of each task."""
        return self._plan

    @property
    def meter(self) -> Meter:
        """Counts of this process's reads for the array; other processes count for themselves."""
        return self._part.meter

    @property
    def _is_read(self) -> bool:
        """Whether it still is the array that was read: assignment changes a Dask array in place."""
        return bool(self.name == self._read_as)

    def __getitem__(self, key: Any) -> Any:
        plain = super().__getitem__(key)  # type: ignore[no-untyped-call]
        if plain is self or not self._is_read or self._plan.method == "blocks":
            return plain
        apart = self._apart(key)
        return plain if apart is None else apart

    def _apart(self, key: Any) -> Any:
        """Return a slice that is read by itself, if that is cheaper than reading its blocks."""
        entries, basic = key if isinstance(key, tuple) else (key,), int | np.integer | slice | EllipsisType | None
        if any(isinstance(each, bool) or not isinstance(each, basic) for each in entries):
            return None
        taken = Selection.of(key, self.shape)
        axes = [axis for axis in taken.axes if isinstance(axis, range)]
        blocks = tuple(map(_cut, axes, self.chunks))
        part = self._lazy(self._part.part(axes), blocks)
        if part.plan.seconds > 0.5 * self._seconds_of(axes):  # reading the slice by itself is not worth it
            return None
        index = tuple(stands if axis in taken.result else 0 for axis, stands in enumerate(taken.order))
        added = tuple(None if axis is None else slice(None) for axis in taken.result)
        return da.Array.__getitem__(da.Array.__getitem__(part, index), added)

    def _seconds_of(self, axes: Sequence[range]) -> float:
        """Return the predicted seconds of reading the blocks that overlap a slice."""
        if self._plan.method == "scratch":
            return self._plan.seconds
        shares = [
            _held(axis, chunks, groups) / max(len(groups), 1)
            for axis, chunks, groups in zip(axes, self.chunks, self._plan.groups, strict=True)
        ]
        return self._plan.seconds * float(np.prod(shares))

    def explain(self) -> str:
        """Describe the reads of the blocks, the memory of each task, and the cost of other methods."""
        ways = [
            (
                each.name,
                report.seconds_text(each.seconds),
                format_bytes(each.peak_bytes),
                format_bytes(each.traffic.read_bytes),
                each.reason,
            )
            for each in self._plan.alternatives
        ]
        head = ("method", "predicted", "a task holds", "stored bytes read", "")
        tables = report.table(self._rows()), report.table([head, *ways]), report.memory_text(self._plan.memory)
        return "\n\n".join(tables)

    def _rows(self) -> list[tuple[str, str]]:
        array = f"{report.shape_text(self.shape)} {self.dtype}, {report.bytes_text(self._plan.nbytes)}"
        return [("array", array), *report.plan_rows(self._plan)[1:]]

    def __repr__(self) -> str:
        if not self._is_read:
            return str(super().__repr__())  # type: ignore[no-untyped-call]
        title = f"<oocarrays.LazyArray {report.shape_text(self.shape)} {self.dtype}, chunksize {self.chunksize}>"
        return f"{title}\n{report.table(self._rows()[1:], indent='  ')}"

    def _repr_html_(self) -> str:
        drawn = str(super()._repr_html_())  # type: ignore[no-untyped-call]
        return rows_html(self._rows(), title="oocarrays.LazyArray", above=drawn) if self._is_read else drawn


def blocks_for(array: StoredArray, chunks: ChunksLike | None, layout: LayoutLike | None, **ranks: Any) -> BlockLengths:
    if layout is not None:
        if chunks is not None:
            raise ChunksError(f"chunks={chunks!r} and layout={layout!r} exclude each other: pass one of them")
        whole = layout_for(array.shape, layout, about=settings.local_cores(), **ranks)
        if not is_blocks(whole):
            raise LayoutError(f"{whole} gives a rank more than one block: use block or gen_block axes")
        return layout_blocks(whole)
    stored = tuple(array.zarr.shards or array.zarr.chunks)
    grid = ChunkGrid.of(array.shape, stored)
    return block_lengths(stored if chunks is None else chunks, grid, array.dtype, array.dimension_names)


def to_dask(
    file: ArrayFile, blocks: BlockLengths, *, memory: int | float | str | None = None, scratch: Any = None
) -> LazyArray:
    settings.refuse_array_expressions()
    resources, strict = resources_of(cluster_of(None, None), memory), (memory, setting("memory")) != (None, None)
    folder = _scratch(setting("scratch") if scratch is None else scratch, file)

    def lazy(part: StoredPart, blocks: BlockLengths) -> LazyArray:
        stored, room = part.file.stored, free_bytes(folder) if part.file.stored.coded else 0
        plan = plan_lazy_reads(stored, part.axes, blocks, resources, scratch_room=room, strict=strict)
        name, meta = name_of(part, plan), np.empty((0,) * part.ndim, part.dtype)
        graph = _graph(name, part, plan, folder, meta)
        made = LazyArray(graph, name, plan.blocks, meta=meta)  # type: ignore[no-untyped-call]
        made._part, made._plan, made._lazy, made._read_as = part, plan, lazy, name
        return made

    return lazy(StoredPart(file=file, axes=tuple(map(range, file.stored.grid.shape))), blocks)


def _graph(name: str, part: StoredPart, plan: LazyReadsPlan, scratch: str, meta: np.ndarray) -> HighLevelGraph:
    if plan.method == "blocks":
        read = da.from_array(part, chunks=plan.blocks, name=name, inline_array=True, meta=meta)  # type: ignore[no-untyped-call]
        return read.dask
    return HighLevelGraph(*layers_of(name, part, plan, scratch))


def _cut(axis: range, blocks: Sequence[int]) -> tuple[int, ...]:
    spans = (within(axis, lower, upper)[0] for lower, upper in pairwise((0, *accumulate(blocks))))
    return tuple(span.stop - span.start for span in spans if span.stop > span.start) or (0,)


def _held(axis: range, blocks: Sequence[int], groups: Sequence[tuple[int, int]]) -> int:
    return len(_cut(axis, [sum(blocks[first:last]) for first, last in groups])) if axis else 0
