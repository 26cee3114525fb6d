"""Writes of a lazy array's blocks, in one graph with the tasks that compute them, as the source of a rechunk.

    aligned      create ──┬─► block ─► put ──┬─► finish                    each block is whole target chunks
                          └─► block ─► put ──┘

    otherwise    make scratch ──┬─► block ─► put ──┬─► join ─► create ─► start pass ─► …    an ordinary rechunk
                                └─► block ─► put ──┘

The tasks of a block belong to the user: they are not pinned, and their memory is not counted in the plan. A put runs on
the worker of its block. Scratch is renamed when it holds every block, so scratch under its final name is complete.
Until then, a target to be replaced is unchanged, as the blocks may be computed from it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from dask.core import flatten
from dask.task_spec import Task, TaskRef

from oocarrays.errors import NotFoundError, RunError
from oocarrays.graphs.rechunk.passes import scratch_place
from oocarrays.graphs.rechunk.program import Blocks, Destination, Rechunk, rechunk_run
from oocarrays.graphs.rechunk.tasks import finish
from oocarrays.graphs.run.live import Live
from oocarrays.graphs.run.program import Builder, new_suffix
from oocarrays.graphs.run.recording import check_room
from oocarrays.graphs.run.run import Run, call
from oocarrays.graphs.run.steps import Key
from oocarrays.kernels.results import block_of
from oocarrays.mapping.grid import Index
from oocarrays.mapping.section import Section
from oocarrays.plan.documents import written
from oocarrays.plan.lazy.blocks import BlocksPlan
from oocarrays.storage.chunks.writer import ChunkWriter, PieceWriter
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import create_scratch
from oocarrays.storage.local.fs import MARK
from oocarrays.storage.local.syncing import sync_tree

PARTIAL = "blocks.partial"
"""Name in scratch of the array that does not hold every block yet."""


def blocks_run(plan: BlocksPlan, like: ArrayFile, target: Destination) -> Run[Rechunk]:
    """Return a run that writes the blocks of a lazy array; the journal of aligned ones only shows that it has begun."""
    nowhere = {"source": None, "source_metadata": "", "scratch": ""}
    content = {"plan": written(plan.rechunk), "blocks": True} | nowhere if plan.aligned else None
    return rechunk_run(plan.rechunk, Blocks(plan=plan, like=like), target, content)


class BlockTasks:
    def __init__(self, run: Run[Rechunk], addresses: Sequence[str], keys: Any) -> None:
        self.run, self.addresses, self.suffix = run, addresses, new_suffix()
        self.graph: dict[Any, Any] = {}
        self.plan = run.program.blocks.plan
        self._indices = product(*(range(len(each)) for each in self.plan.blocks)) if self.plan.stored.nbytes else ()
        self._blocks = list(flatten(keys))

    def blocks(self, after: Iterable[Any]) -> Key:
        """Add the writes of the blocks; return the key of the task that waits for all of them."""
        if self.plan.aligned:
            builder = self.run.builder(self.addresses, after, self.suffix)
            created = builder.create(self.addresses)
        else:
            builder = Builder(self.suffix, call, self.run)
            created = builder.add(create, name="make scratch", after=after, rank=0)
            if self.addresses:
                builder.receive(created)
        last = builder.add(finish if self.plan.aligned else join, after=self._puts(builder, created), rank=0)
        self.graph |= builder.graph
        return last

    def rest(self, after: Iterable[Any]) -> Key | None:
        """Add the tasks that follow the last block, if any."""
        if self.plan.aligned:
            return None
        graph, last = self.run.graph(self.addresses, after, self.suffix)
        self.graph |= graph
        return last

    def _puts(self, builder: Builder, created: Key) -> list[Any]:
        """Add a task for each block, under a key that is not a tuple, so that it is not pinned."""
        puts = []
        for index, block in zip(self._indices, self._blocks, strict=False):
            key: Any = "-".join(("put block", self.suffix, *map(str, index)))
            builder.graph[key] = Task(key, call, builder.shared, put, index, 1, TaskRef(block), TaskRef(created))
            puts.append(key)
        return puts or [created]


def create(live: Live[Rechunk]) -> None:
    """Make the scratch array, unless scratch already holds every block."""
    if not live.on_workers:
        live.begin_anew()
        live.shares_meter = True  # the rechunk begins anew, and its counts include the blocks'
    live.state.begun = True
    if _is_whole(live):
        return
    blocks, below = live.program.blocks, live.program.below
    check_room({str(below): blocks.plan.scratch_bytes})
    live.use(below)
    create_scratch(scratch_place(live, PARTIAL), blocks.like, blocks.plan.stored)


def _is_whole(live: Live[Rechunk]) -> bool:
    """Return whether scratch holds every block."""
    return os.path.isdir(str(scratch_place(live, "blocks")))


def put(live: Live[Rechunk], *args: Any) -> None:
    """Write a block, unless all are written: a worker was lost when its run had ended, or the run was resumed."""
    blocks, (*index, given) = live.program.blocks, args
    done = MARK not in live.target().zarr.attrs if blocks.plan.aligned else _is_whole(live)
    if done:
        return
    section = blocks.plan.section(tuple(index))
    write: Callable[..., Any] = live.once("writer", partial(_writer, live, blocks.plan))
    write(section, block_of(given, section, blocks.like.dtype))


def _writer(live: Live[Rechunk], plan: BlocksPlan) -> Callable[[Section, np.ndarray], Any]:
    """Return the function that writes a block: target chunks, or its own bytes in scratch."""
    if plan.aligned:
        past_cache = plan.stored.nbytes > live.program.target.past_cache_above
        writer = ChunkWriter(live.target(), live.meter, past_cache=past_cache, fresh=live.state.made)
        return partial(_put_chunks, writer)
    try:
        array = array_file.open_array(scratch_place(live, PARTIAL), mode="r+")
    except NotFoundError as error:
        raise RunError(f"{error} on this worker: scratch must be shared") from error
    live.use(live.program.below)
    return PieceWriter(array_file.describe(array), live.meter).write


def _put_chunks(writer: ChunkWriter, section: Section, block: np.ndarray) -> None:
    indices = writer.file.stored.grid.indices(section) if section.size else ()
    writer.write_all((each, _chunk(writer.file, block, section, each)) for each in indices)


def _chunk(target: ArrayFile, block: np.ndarray, section: Section, index: Index) -> np.ndarray:
    """Return a whole chunk, padded with the fill value."""
    grid = target.stored.grid
    there = grid.section(index)
    data = block[there.relative_to(section.lower).slices]
    if data.shape == grid.chunks:
        return np.ascontiguousarray(data, target.dtype)
    chunk = np.full(grid.chunks, target.fill_value, target.dtype)
    chunk[there.relative_to(there.lower).slices] = data
    return chunk


def join(live: Live[Rechunk]) -> None:
    """Rename scratch to its final name, as every block is written."""
    if _is_whole(live):
        return
    if live.state.durable:
        sync_tree(str(live.program.below))
    os.rename(str(scratch_place(live, PARTIAL)), str(scratch_place(live, "blocks")))
