"""Writing the blocks of a lazy array, in one graph with the tasks that compute them.

    aligned      create ──┬─► block ─► put ──┬─► finish                    straight to target chunks
                          └─► block ─► put ──┘

    otherwise    make scratch ──┬─► block ─► put ──┬─► join ─► create ─► start pass ─► …    an ordinary rechunk
                                └─► block ─► put ──┘

The tasks of a block are the user's: they are not pinned, and their memory is not ours. A put is done where its block
is. Scratch is given its name when every block is in it, so that what is found under that name is whole; a target that
is to be replaced stays what it is until then, for it may be what the blocks are computed from.
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

from oocarrays.errors import DiskFullError, NotFoundError, RunError
from oocarrays.graphs.rechunk.destination import Destination
from oocarrays.graphs.rechunk.graph import GraphBuilder
from oocarrays.graphs.rechunk.resume import journal_content
from oocarrays.graphs.rechunk.tasks import RechunkRun
from oocarrays.graphs.run.journaled import check_folder
from oocarrays.graphs.run.sealed import Sealed
from oocarrays.graphs.run.steps import Key
from oocarrays.graphs.run.work import Work
from oocarrays.kernels.results import block_of
from oocarrays.mapping.section import Section
from oocarrays.plan.documents import Document
from oocarrays.plan.lazy.blocks import BlocksPlan
from oocarrays.plan.rechunk.as_json import to_json
from oocarrays.storage.chunks.turned import Writer, chunk_writer
from oocarrays.storage.chunks.writer import PieceWriter
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import check_place, create_scratch, remove_scratch
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.places import StoreLike, free_bytes
from oocarrays.storage.files.presence import Presence
from oocarrays.storage.journal.leftovers import discard, hold
from oocarrays.storage.journal.lock import Hold
from oocarrays.storage.local.names import MARK
from oocarrays.storage.meter import Meter

SCRATCH_NAME, PARTIAL_NAME = "blocks", "blocks.partial"
"""Folders in a run's scratch: of an array that holds every block, and of one that may not yet."""


class LazyRun(RechunkRun):
    """A run that has no source: blocks come to it from the tasks that compute them."""

    phases: ClassVar[Mapping[str, str]] = {**RechunkRun.phases, "put": "write"}

    def __init__(
        self, blocks: BlocksPlan, destination: Destination, content: Document, topic: str | None = None
    ) -> None:
        super().__init__(blocks.rechunk, None, destination, content)
        self.blocks = blocks
        self._topic = topic or super().topic

    @property
    def topic(self) -> str:
        """The name under which a cluster tells what happens in this run."""
        return self._topic

    @property
    def read_from(self) -> tuple[zarr.Array, ...]:
        """Nothing that could change: blocks are computed, or are in scratch."""
        return ()

    @property
    def stores(self) -> dict[str, Any]:
        return {"target": self.destination.store}

    def reads(self) -> Iterable[Presence]:
        """Nothing that it does not make."""
        return ()

    def count_with(self, meter: Meter) -> None:
        """Count what is read and written in ``meter``, in this process."""
        self.meter = meter

    def _begin_anew(self) -> None:
        meter = self.meter  # of others, too, and of blocks that have been written
        super()._begin_anew()
        self.meter = meter


class AlignedRun(LazyRun):
    """A run whose blocks are whole target chunks: each is written by the task that has it."""

    def __init__(self, blocks: BlocksPlan, dtype: np.dtype, destination: Destination, topic: str | None = None) -> None:
        nowhere = {"source": None, "source_metadata": "", "scratch": ""}
        super().__init__(blocks, destination, {"plan": to_json(blocks.rechunk), "blocks": True} | nowhere, topic)
        self.dtype = dtype

    def _here(self) -> None:
        super()._here()
        self._writer: Writer | None = None

    @property
    def expected(self) -> tuple[float, float]:
        """Requests that read, and chunks that are written."""
        return 0, self.blocks.pieces

    def _check_visible(self) -> None:
        check_folder(self.destination.store)

    def _check_target(self) -> None:
        check_place(self.destination.store, overwrite=self.destination.overwrite)

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._writer = None

    def _put(self, *args: Any) -> None:
        """Write the chunks that a block is made of, unless the run had ended before a worker was lost."""
        if MARK not in self.target.zarr.attrs:
            return
        section = self.blocks.section(args[:-1])
        block = block_of(args[-1], section, self.dtype)
        indices = self.blocks.stored.grid.indices(section) if section.size else ()
        self._opened_writer().write_all((index, self._chunk(block, section, index)) for index in indices)

    def _opened_writer(self) -> Writer:
        with self._opening:
            if self._writer is None:
                past_cache = self.plan.target.nbytes > self.destination.past_cache_above
                self._writer = chunk_writer(self.target, self.meter, past_cache=past_cache, fresh=self.made)
            return self._writer

    def _chunk(self, block: np.ndarray, section: Section, index: tuple[int, ...]) -> np.ndarray:
        """A whole chunk, padded with the fill value."""
        grid, target = self.blocks.stored.grid, self.target
        there = grid.section(index)
        data = block[there.relative_to(section.lower).slices]
        if data.shape == grid.chunks:
            return np.ascontiguousarray(data, target.dtype)
        chunk = np.full(grid.chunks, target.fill_value, target.dtype)
        chunk[there.relative_to(there.lower).slices] = data
        return chunk


class ScratchWork(Work):
    """Writes blocks into a scratch array, from which an ordinary rechunk goes on."""

    threads_stay: ClassVar[bool] = True

    def __init__(self, blocks: BlocksPlan, like: ArrayFile, run: RechunkRun) -> None:
        self.blocks = blocks
        self._like = Sealed(like)
        self.scratch = str(run.scratch)
        self.run_topic = run.topic
        super().__init__(run.destination.store, run.processes, f"{run.id}-blocks")

    def _here(self) -> None:
        super()._here()
        self._opening = threading.Lock()
        self._writer: PieceWriter | None = None
        self._hold: Hold | None = None
        self._discard: weakref.finalize | None = None

    @property
    def like(self) -> ArrayFile:
        """An array of the same elements."""
        return self._like.value

    @property
    def topic(self) -> str:
        """That of the run that goes on: who hears the one hears both."""
        return self.run_topic

    @property
    def written_places(self) -> list[StoreLike]:
        """Scratch: a run that stopped goes on with what is there."""
        return [self.scratch]

    def _create(self) -> ScratchWork:
        """Make the scratch array, unless every block is there: before a worker was lost, or the run was stopped."""
        with self._opening:
            if self.processes is None:
                self.failure, self._writer = None, None
        if self._is_whole():
            return self
        free, wanted = free_bytes(self.scratch), self.blocks.scratch_bytes
        if wanted > free:
            raise DiskFullError(f"{self.scratch} needs {wanted} bytes; its device has {free} left")
        self._take_hold()
        create_scratch(os.path.join(self.scratch, PARTIAL_NAME), self.like, self.blocks.stored)
        return self

    def _take_hold(self) -> None:
        """Say that scratch is in use, until this process has done with it."""
        if self._hold is None:
            self._hold = hold(self.scratch)
            if self.processes is None:
                self._discard = weakref.finalize(self, discard, self.scratch, self._hold)

    def _put(self, *args: Any) -> None:
        """Write a block's own bytes; a block that is computed again after a worker was lost is there already."""
        if self._is_whole():
            return
        section = self.blocks.section(args[:-1])
        self._opened_writer().write(section, block_of(args[-1], section, self.like.dtype))

    def _opened_writer(self) -> PieceWriter:
        with self._opening:
            if self._writer is None:
                try:
                    array = array_file.open_array(os.path.join(self.scratch, PARTIAL_NAME), mode="r+")
                except NotFoundError as error:
                    raise RunError(f"{error} on this worker: scratch must be shared") from error
                self._take_hold()
                self._writer = PieceWriter(array_file.describe(array), self.meter)
            return self._writer

    def _join(self) -> None:
        """Every block is there: give scratch its name."""
        if not self._is_whole():
            self.syncer.finish()
            os.rename(os.path.join(self.scratch, PARTIAL_NAME), os.path.join(self.scratch, SCRATCH_NAME))

    def _is_whole(self) -> bool:
        return os.path.isdir(os.path.join(self.scratch, SCRATCH_NAME))

    def let_go(self) -> None:
        """Wait for tasks that had begun, and leave scratch to the run that goes on."""
        self._wait()
        if self._discard:
            self._discard.detach()
        if self._hold:
            self._hold.close()
        self._hold = self._discard = self._writer = None


class JoinedRun(LazyRun):
    """A rechunk whose source is a scratch array that is there when every block has been written."""

    work: ScratchWork | None = None
    """What writes the blocks; a worker has it by itself."""

    def __init__(self, blocks: BlocksPlan, like: ArrayFile, destination: Destination, topic: str | None = None) -> None:
        super().__init__(blocks, destination, {}, topic)
        self.work = ScratchWork(blocks, like, self)
        self.count_with(self.meter)

    def count_with(self, meter: Meter) -> None:
        """Count what is read and written in ``meter``, in this process."""
        self.meter = meter
        if self.work:
            self.work.meter = meter

    @property
    def source(self) -> ArrayFile:
        with self._opening:
            if self._source is None:
                self._hold_scratch()
                scratch = array_file.open_array(os.path.join(str(self.scratch), SCRATCH_NAME))
                self._source = Sealed(array_file.describe(scratch))
            return self._source.value

    @property
    def expected(self) -> tuple[float, float]:
        """Requests that read, and pieces and chunks that are written."""
        reads, writes = super().expected
        return reads, writes + self.blocks.pieces

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._source = None

    def abort(self, error: BaseException) -> BaseException:
        """Stop, also what writes blocks."""
        if self.work:
            self.work.abort(error)
        return super().abort(error)

    def _create(self, *probes: tuple[int, str, str]) -> Any:
        self.content |= journal_content(self.plan, self.source, self.destination) | {"blocks": True}
        return super()._create(*probes)

    def settle(self, *, resumable: bool = False) -> None:
        """As of every run; scratch can be of use where all blocks are in it and the target has been begun."""
        assert self.work is not None, "runs are settled where they were planned"
        self.work.let_go()
        begun = unfinished_run(self.destination.store) == self.id
        super().settle(resumable=resumable and begun)
        if not begun:
            remove_scratch(self.scratch)


class BlocksBuilder(GraphBuilder):
    """Builds the graph of a lazy array that is written."""

    def __init__(self, run: LazyRun, suffix: str, addresses: Any, tasks: Mapping[Any, Any], keys: Any) -> None:
        super().__init__(run, suffix, addresses)
        self.graph.update(tasks)
        self._lengths = run.blocks.blocks
        self._block_keys = list(flatten(keys)) if run.blocks.stored.nbytes else []

    def build(self, after: Any = ()) -> Key:
        """Add every task; returns the key of the last one."""
        written = self.blocks(after)
        return self.rest([written]) or written

    def blocks(self, after: Any) -> Key:
        """Add what writes the blocks; returns the key of the task that waits for them all."""
        if not isinstance(self.run, JoinedRun):
            created = self.create(self.addresses, after)
            return self.add("finish", after=self._puts(self._shared, created), rank=0)
        assert self.run.work, "graphs are built where a run was planned"
        return self._scratch(self.run.work, after)

    def rest(self, after: Any) -> Key | None:
        """Add what comes when all blocks are written, if anything does."""
        return super().build(after) if isinstance(self.run, JoinedRun) else None

    def _scratch(self, work: ScratchWork, after: Any) -> Key:
        """Blocks into scratch; returns the key of the task that joins them."""
        created, joined = (f"make scratch-{self.suffix}", 0), (f"join-{self.suffix}", 0)
        self.graph[created] = Task(created, Work.task, work, "create", (), 0, *map(TaskRef, after))
        shared = TaskRef(created) if self.addresses else work
        puts = self._puts(shared, created)
        self.graph[joined] = Task(joined, Work.task, shared, "join", (), 0, *map(TaskRef, puts))
        return joined

    def _puts(self, work: Any, created: Key) -> list[Any]:
        """A task for each block: its key is no tuple, and so it is not pinned."""
        puts = []
        indices = product(*(range(len(lengths)) for lengths in self._lengths))
        for index, block in zip(indices, self._block_keys, strict=False):
            key: Any = "-".join(("put block", self.suffix, *map(str, index)))
            self.graph[key] = Task(key, Work.task, work, "put", index, 1, TaskRef(block), TaskRef(created))
            puts.append(key)
        return puts or [created]
