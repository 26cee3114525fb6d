"""Writes of a lazy array's blocks, in one graph with the tasks that compute them.

    aligned      create ──┬─► block ─► put ──┬─► finish                    written to target chunks directly
                          └─► block ─► put ──┘

    otherwise    make scratch ──┬─► block ─► put ──┬─► join ─► create ─► start pass ─► …    an ordinary rechunk
                                └─► block ─► put ──┘

The tasks of a block belong to the user: they are not pinned, and their memory is not counted in the plan. A put runs on
the worker of its block. Scratch is renamed when it holds every block, so scratch under its final name is complete.
Until then, a target to be replaced is unchanged, as the blocks may be computed from it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, ClassVar

import numpy as np
import zarr
from dask.core import flatten
from dask.task_spec import Task, TaskRef

from oocarrays.errors import NotFoundError, RunError
from oocarrays.graphs.rechunk.graph import GraphBuilder
from oocarrays.graphs.rechunk.run import Destination, journal_content
from oocarrays.graphs.rechunk.tasks import RechunkRun
from oocarrays.graphs.run.journaled import check_room
from oocarrays.graphs.run.steps import Key
from oocarrays.graphs.run.tasks import Sealed
from oocarrays.graphs.run.work import Work
from oocarrays.kernels.results import block_of
from oocarrays.mapping.section import Section
from oocarrays.plan.documents import Document, written
from oocarrays.plan.lazy.blocks import BlocksPlan
from oocarrays.storage.chunks.writer import ChunkWriter, PieceWriter
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import check_place, create_scratch, remove_scratch
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.files.presence import Presence
from oocarrays.storage.journal.leftovers import discard, hold
from oocarrays.storage.journal.lock import Hold
from oocarrays.storage.local.names import MARK
from oocarrays.storage.meter import Meter


def blocks_folder(scratch: Any, *, whole: bool = True) -> str:
    """Return the folder in a run's scratch of the array with every block, or of the one that is still being filled."""
    return os.path.join(str(scratch), "blocks" if whole else "blocks.partial")


class LazyRun(RechunkRun):
    """Run without a source: its blocks come from the tasks that compute them, and are counted with it."""

    shares_meter: ClassVar[bool] = True
    phases: ClassVar[Mapping[str, str]] = {**RechunkRun.phases, "put": "write"}

    def __init__(
        self, blocks: BlocksPlan, destination: Destination, content: Document, topic: str | None = None
    ) -> None:
        super().__init__(blocks.rechunk, None, destination, content)
        self.blocks = blocks
        self.of_topic = topic

    @property
    def read_from(self) -> tuple[zarr.Array, ...]:
        """Return no arrays: blocks are computed, or in scratch."""
        return ()

    @property
    def stores(self) -> dict[str, Any]:
        return {"target": self.destination.store}

    def reads(self) -> Iterable[Presence]:
        """Return no sources, only arrays that the run makes."""
        return ()

    def count_with(self, meter: Meter) -> None:
        """Count reads and writes of this process in ``meter``."""
        self.meter = meter


class AlignedRun(LazyRun):
    """Run with blocks of whole target chunks, each written by the worker of the block."""

    def __init__(self, blocks: BlocksPlan, dtype: np.dtype, destination: Destination, topic: str | None = None) -> None:
        nowhere = {"source": None, "source_metadata": "", "scratch": ""}
        super().__init__(blocks, destination, {"plan": written(blocks.rechunk), "blocks": True} | nowhere, topic)
        self.dtype = dtype

    def _here(self) -> None:
        super()._here()
        self._writer: ChunkWriter | None = None

    @property
    def expected(self) -> tuple[float, float]:
        """Requests for reading, and chunks to write."""
        return 0, self.blocks.pieces

    def _check_target(self) -> None:
        check_place(self.destination.store, overwrite=self.destination.overwrite)

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._writer = None

    def _put(self, *args: Any) -> None:
        """Write the chunks of a block, unless the run had ended before a worker was lost."""
        if MARK not in self.target.zarr.attrs:
            return
        section = self.blocks.section(args[:-1])
        block = block_of(args[-1], section, self.dtype)
        indices = self.blocks.stored.grid.indices(section) if section.size else ()
        self._opened_writer().write_all((index, self._chunk(block, section, index)) for index in indices)

    def _opened_writer(self) -> ChunkWriter:
        with self._opening:
            if self._writer is None:
                past_cache = self.plan.target.nbytes > self.destination.past_cache_above
                self._writer = ChunkWriter(self.target, self.meter, past_cache=past_cache, fresh=self.made)
            return self._writer

    def _chunk(self, block: np.ndarray, section: Section, index: tuple[int, ...]) -> np.ndarray:
        """Return a whole chunk, padded with the fill value."""
        grid, target = self.blocks.stored.grid, self.target
        there = grid.section(index)
        data = block[there.relative_to(section.lower).slices]
        if data.shape == grid.chunks:
            return np.ascontiguousarray(data, target.dtype)
        chunk = np.full(grid.chunks, target.fill_value, target.dtype)
        chunk[there.relative_to(there.lower).slices] = data
        return chunk


class ScratchWork(Work):
    """Writer of blocks to a scratch array, the source of a following rechunk."""

    threads_stay: ClassVar[bool] = True

    def __init__(self, blocks: BlocksPlan, like: ArrayFile, run: RechunkRun) -> None:
        self.blocks = blocks
        self._like = Sealed(like)
        self.scratch = str(run.scratch)
        self.of_topic = run.topic
        super().__init__(run.destination.store, run.processes, f"{run.id}-blocks")

    def _here(self) -> None:
        super()._here()
        self._opening = threading.Lock()
        self._writer: PieceWriter | None = None
        self._hold: Hold | None = None
        self._discard: weakref.finalize | None = None

    @property
    def like(self) -> ArrayFile:
        """Array with the same dtype."""
        return self._like.value

    @property
    def written_places(self) -> list[StoreLike]:
        """Return scratch: a resumed run continues from it."""
        return [self.scratch]

    def _create(self) -> ScratchWork:
        """Make the scratch array, unless it already holds every block."""
        with self._opening:
            if self.processes is None:
                self.failure, self._writer = None, None
        if self._is_whole():
            return self
        check_room({self.scratch: self.blocks.scratch_bytes})
        self._take_hold()
        create_scratch(blocks_folder(self.scratch, whole=False), self.like, self.blocks.stored)
        return self

    def _take_hold(self) -> None:
        """Mark scratch as in use by this process."""
        if self._hold is None:
            self._hold = hold(self.scratch, self.journal.store)
            if self.processes is None:
                self._discard = weakref.finalize(self, discard, self.scratch, self._hold)

    def _put(self, *args: Any) -> None:
        """Write a block's own bytes, unless scratch already holds every block."""
        if self._is_whole():
            return
        section = self.blocks.section(args[:-1])
        self._opened_writer().write(section, block_of(args[-1], section, self.like.dtype))

    def _opened_writer(self) -> PieceWriter:
        with self._opening:
            if self._writer is None:
                try:
                    array = array_file.open_array(blocks_folder(self.scratch, whole=False), mode="r+")
                except NotFoundError as error:
                    raise RunError(f"{error} on this worker: scratch must be shared") from error
                self._take_hold()
                self._writer = PieceWriter(array_file.describe(array), self.meter)
            return self._writer

    def _join(self) -> None:
        """Rename scratch to its final name, as every block is written."""
        if not self._is_whole():
            self.syncer.finish()
            os.rename(blocks_folder(self.scratch, whole=False), blocks_folder(self.scratch))

    def _is_whole(self) -> bool:
        return os.path.isdir(blocks_folder(self.scratch))

    def let_go(self) -> None:
        """Wait for running tasks, and leave scratch to the following run."""
        self._wait()
        if self._discard:
            self._discard.detach()
        if self._hold:
            self._hold.close()
        self._hold = self._discard = self._writer = None


class JoinedRun(LazyRun):
    """Rechunk from a scratch array that is complete once every block has been written."""

    work: ScratchWork | None = None
    """Writer of the blocks; sent to workers separately."""

    def __init__(self, blocks: BlocksPlan, like: ArrayFile, destination: Destination, topic: str | None = None) -> None:
        super().__init__(blocks, destination, {}, topic)
        self.work = ScratchWork(blocks, like, self)
        self.count_with(self.meter)

    def count_with(self, meter: Meter) -> None:
        """Count reads and writes of this process in ``meter``."""
        self.meter = meter
        if self.work:
            self.work.meter = meter

    @property
    def source(self) -> ArrayFile:
        with self._opening:
            if self._source is None:
                self._hold_scratch()
                scratch = array_file.open_array(blocks_folder(self.scratch))
                self._source = Sealed(array_file.describe(scratch))
            return self._source.value

    @property
    def expected(self) -> tuple[float, float]:
        """Requests for reading, and pieces and chunks to write."""
        reads, writes = super().expected
        return reads, writes + self.blocks.pieces

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._source = None

    def abort(self, error: BaseException) -> BaseException:
        """Stop the run and the writer of its blocks."""
        if self.work:
            self.work.abort(error)
        return super().abort(error)

    def _create(self, *probes: tuple[int, str, str]) -> Any:
        self.content |= journal_content(self.plan, self.source, self.destination) | {"blocks": True}
        return super()._create(*probes)

    def settle(self, *, resumable: bool = False) -> None:
        """Settle the run; keep scratch only if it holds all blocks and the target has been begun."""
        assert self.work is not None, "runs are settled where they were planned"
        self.work.let_go()
        begun = unfinished_run(self.destination.store) == self.id
        super().settle(resumable=resumable and begun)
        if not begun:
            remove_scratch(self.scratch)


class BlocksBuilder(GraphBuilder):
    """Builder of the graph that writes a lazy array."""

    def __init__(self, run: LazyRun, suffix: str, addresses: Any, tasks: Mapping[Any, Any], keys: Any) -> None:
        super().__init__(run, suffix, addresses)
        self.graph.update(tasks)
        self._lengths = run.blocks.blocks
        self._block_keys = list(flatten(keys)) if run.blocks.stored.nbytes else []

    def build(self, after: Any = ()) -> Key:
        """Add every task; return the key of the last one."""
        written = self.blocks(after)
        return self.rest([written]) or written

    def blocks(self, after: Any) -> Key:
        """Add the tasks that write the blocks; return the key of the task that waits for all of them."""
        if not isinstance(self.run, JoinedRun):
            created = self.create(self.addresses, after)
            return self.add("finish", after=self._puts(self._shared, created), rank=0)
        assert self.run.work, "graphs are built where a run was planned"
        return self._scratch(self.run.work, after)

    def rest(self, after: Any) -> Key | None:
        """Add the tasks that follow the last block, if any."""
        return super().build(after) if isinstance(self.run, JoinedRun) else None

    def _scratch(self, work: ScratchWork, after: Any) -> Key:
        """Add the writes of blocks to scratch; return the key of the task that joins them."""
        created, joined = (f"make scratch-{self.suffix}", 0), (f"join-{self.suffix}", 0)
        self.graph[created] = Task(created, Work.task, work, "create", (), 0, *map(TaskRef, after))
        shared = TaskRef(created) if self.addresses else work
        puts = self._puts(shared, created)
        self.graph[joined] = Task(joined, Work.task, shared, "join", (), 0, *map(TaskRef, puts))
        return joined

    def _puts(self, work: Any, created: Key) -> list[Any]:
        """Add a task for each block, under a key that is not a tuple, so that it is not pinned."""
        puts = []
        indices = product(*(range(len(lengths)) for lengths in self._lengths))
        for index, block in zip(indices, self._block_keys, strict=False):
            key: Any = "-".join(("put block", self.suffix, *map(str, index)))
            self.graph[key] = Task(key, Work.task, work, "put", index, 1, TaskRef(block), TaskRef(created))
            puts.append(key)
        return puts or [created]
