"""Blocks of a lazy array that are whole target chunks, as a program: each is written by the worker of the block.

create ──┬─► block ─► put ──┬─► finish
         └─► block ─► put ──┘
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from oocarrays.graphs.rechunk.program import Destination, Rechunk
from oocarrays.graphs.run import recording
from oocarrays.graphs.run.live import Live
from oocarrays.graphs.run.program import Part, Program, Remaining
from oocarrays.kernels.results import block_of
from oocarrays.mapping.grid import ChunkGrid, Index
from oocarrays.mapping.section import Section
from oocarrays.plan.documents import Document, written
from oocarrays.plan.lazy.blocks import BlocksPlan
from oocarrays.storage.chunks.writer import ChunkWriter
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.documents import remove_partials
from oocarrays.storage.files.target import TargetSpec
from oocarrays.storage.journal.leftovers import remove_dead_scratch, scratch_below
from oocarrays.storage.journal.texts import Kept
from oocarrays.storage.local.names import MARK


@dataclass(frozen=True, kw_only=True)
class Straight(Program):
    """Writes of aligned blocks to the target; an interrupted run starts over."""

    phases: ClassVar[Mapping[str, str]] = Rechunk.phases
    threads_stay: ClassVar[bool] = True
    plan: BlocksPlan
    dtype: np.dtype
    """Dtype of the blocks."""
    target: Destination

    @property
    def targets(self) -> Sequence[TargetSpec]:
        return (self.target,)

    @property
    def merges(self) -> bool:
        return True

    @property
    def removable(self) -> bool:
        return False

    @property
    def room(self) -> Mapping[str, int]:
        return self.target.room(self.plan.rechunk)

    def remaining(self, done: Collection[Part], kept: Kept) -> Remaining:
        return Remaining(1.0, 0.0, self.plan.pieces)

    def begin(self, live: Live[Any]) -> None:
        """Remove what dead runs, or earlier attempts, have left."""
        if live.state.made:
            remove_dead_scratch(live.store, scratch_below(self.target.scratch, live.id))
        elif not live.on_workers:
            remove_partials(live.store)


def straight_content(plan: BlocksPlan) -> Document:
    nowhere = {"source": None, "source_metadata": "", "scratch": ""}
    return {"plan": written(plan.rechunk), "blocks": True} | nowhere


def put(live: Live[Straight], *args: Any) -> None:
    """Write the chunks of a block, unless the run had ended before a worker was lost."""
    program, (*index, given) = live.program, args
    target: ArrayFile = live.target()
    if MARK not in target.zarr.attrs:
        return
    section = program.plan.section(tuple(index))
    block, grid = block_of(given, section, program.dtype), program.plan.stored.grid
    writer: ChunkWriter = live.once("writer", partial(_writer, live))
    indices = grid.indices(section) if section.size else ()
    writer.write_all((each, _chunk(target, grid, block, section, each)) for each in indices)


def _writer(live: Live[Straight]) -> ChunkWriter:
    target = live.program.target
    past_cache = live.program.plan.stored.nbytes > target.past_cache_above
    return ChunkWriter(live.target(), live.meter, past_cache=past_cache, fresh=live.state.made)


def _chunk(target: ArrayFile, grid: ChunkGrid, block: np.ndarray, section: Section, index: Index) -> np.ndarray:
    """Return a whole chunk, padded with the fill value."""
    there = grid.section(index)
    data = block[there.relative_to(section.lower).slices]
    if data.shape == grid.chunks:
        return np.ascontiguousarray(data, target.dtype)
    chunk = np.full(grid.chunks, target.fill_value, target.dtype)
    chunk[there.relative_to(there.lower).slices] = data
    return chunk


def finish(live: Live[Straight]) -> str:
    name: str = recording.end(live, live.target().name)
    return name
