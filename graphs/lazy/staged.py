"""Change of a lazy array's blocks, through plain chunk files in scratch.

    block ─► put ──┐                       put     writes its own bytes to each file that it overlaps
    block ─► put ──┼─► joined ─┬─► take    take    reads one file, front to back
    block ─► put ──┘           └─► take

A put writes only its own bytes, so puts need not wait for each other, and one repeated after the loss of a worker
writes the same. Tasks are plain functions: Dask may fuse them with other tasks, and run them on any worker. Scratch
exists as long as a graph that names it, or a task of it on a cluster.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import accumulate, product
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from dask.blockwise import Blockwise
from dask.highlevelgraph import HighLevelGraph
from dask.task_spec import Task, TaskRef

from oocarrays.errors import NotFoundError, RunError, UnsupportedError
from oocarrays.graphs.lazy.reads import StoredPart, held
from oocarrays.kernels.results import block_of
from oocarrays.mapping.grid import Index, Stored
from oocarrays.mapping.overlap import BlockLengths
from oocarrays.mapping.section import Section
from oocarrays.storage.chunks.writer import PieceWriter
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import create_scratch
from oocarrays.storage.journal.leftovers import discard, hold
from oocarrays.storage.journal.versions import Versions
from oocarrays.storage.meter import Meter
from oocarrays.storage.sections.read import read_section

if TYPE_CHECKING:
    import dask.array as da
    from distributed import Client


class Owner:
    """Object that keeps scratch in existence while it is referenced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """Plain chunk files between the old and the new blocks; copies in other processes do not keep them in existence."""

    folder: str
    stored: Stored
    """Its chunks, one per file."""
    dtype: np.dtype
    owner: Owner | None = field(default=None, compare=False)
    """Owner, in the process that made the graph."""

    def __reduce__(self) -> Any:
        return _again, (self.folder, self.stored, self.dtype)

    @property
    def place(self) -> str:
        return os.path.join(self.folder, "staged")

    def _gone(self) -> RunError:
        return RunError(
            f"{self.folder} does not exist on this worker: scratch must be on a shared disk, or it has been removed"
        )

    def make(self) -> None:
        """Make the array, empty, or keep an existing one."""
        if not os.path.isdir(self.folder):  # a task that runs too late must not make files that stay behind
            raise self._gone()
        like = zarr.create_array({}, shape=(), dtype=self.dtype)
        create_scratch(self.place, array_file.describe(like), self.stored)

    def put(self, section: Section, block: Any, _: None) -> None:
        PieceWriter(self._opened(), Meter()).write(section, block_of(block, section, self.dtype))

    def take(self, section: Section, _: None) -> np.ndarray:
        file = self._opened()
        for index in product(*self.stored.grid.touched(section)):
            if not os.path.isfile(os.path.join(file.folder or "", file.chunk_key(index))):
                raise RunError(f"{self.folder} has lost stored blocks: compute it again")
        return read_section(file, tuple(map(range, section.lower, section.upper)), threads=1)

    def _opened(self) -> ArrayFile:
        try:
            return _open(self.place)
        except NotFoundError as error:
            raise self._gone() from error


def _again(folder: str, stored: Stored, dtype: np.dtype) -> Staged:
    return Staged(folder=folder, stored=stored, dtype=dtype)


@lru_cache(8)
def _open(folder: str) -> ArrayFile:
    return array_file.describe(array_file.open_array(folder, mode="r+"))


@dataclass(frozen=True, slots=True)
class Source:
    """Stored array from which blocks are read, with its versions when the graph was made."""

    file: ArrayFile
    axes: tuple[range, ...]
    versions: Versions


def joined(sources: Sequence[Source], *_: None) -> None:
    """Raise if a source has changed since the graph was made."""
    for source in sources:
        source.versions.check(source.file, source.axes, compared=False)


def sources_of(x: da.Array) -> tuple[Source, ...]:
    """Return the sources of a lazy array, found from one task of each layer, as its other tasks read the same."""
    layers = x.dask.layers.values()
    tasks = (
        [each for each, _ in layer.indices] if isinstance(layer, Blockwise) else next(iter(layer.values()), None)
        for layer in layers
    )
    read: list[Any] = [each for task in tasks for each in held(task, _stored)]
    found = (_source(each) for each in {id(each): each for each in read}.values())
    return tuple(source for source in found if source is not None)


def _stored(thing: Any) -> StoredPart | zarr.Array | None:
    """Return a stored array: the object itself, or the array that it wraps."""
    there = thing if isinstance(thing, StoredPart | zarr.Array) else getattr(thing, "zarr", None)
    return there if isinstance(there, StoredPart | zarr.Array) else None


def _source(read: StoredPart | zarr.Array) -> Source | None:
    """Return the array that a task reads, with its versions; None if its changes cannot be detected."""
    try:
        part = read if isinstance(read, StoredPart) else _whole(read)
    except UnsupportedError:
        return None
    versions = Versions.of(part.file, [part.axes])
    return None if versions is None else Source(part.file, part.axes, versions)


def _whole(array: zarr.Array) -> StoredPart:
    return StoredPart(file=array_file.describe(array), axes=tuple(map(range, array.shape)))


def staged(x: da.Array, stored: Stored, blocks: BlockLengths, scratch: str, client: Client | None) -> da.Array:
    """Return ``x`` in other blocks, by way of chunks of ``stored``."""
    import dask.array as da

    suffix = uuid.uuid4().hex[:12]
    owner, folder = Owner(), os.path.join(scratch, f".oocarrays-{suffix}")
    held = hold(folder)
    weakref.finalize(owner, _let_go, folder, held, suffix, None if client is None else weakref.ref(client))
    way = Staged(folder=folder, stored=stored, dtype=x.dtype, owner=owner)
    make, put, join, name = (f"{word}-{suffix}" for word in ("make-scratch", "put-block", "joined", "rechunked"))
    made: Any = (make, 0)
    puts: dict[Any, Task] = {}
    for index, section in _sections(x.chunks):
        key: Any = (put, *index)
        puts[key] = Task(key, way.put, section, TaskRef((x.name, *index)), TaskRef(made))
    all: Any = (join, 0)
    takes: dict[Any, Task] = {}
    for index, section in _sections(blocks):
        key = (name, *index)
        takes[key] = Task(key, way.take, section, TaskRef(all))
    layers: Any = dict(x.dask.layers) | {
        make: {made: Task(made, way.make)},
        put: puts,
        join: {all: Task(all, partial(joined, sources_of(x)), *map(TaskRef, puts))},
        name: takes,
    }
    depends: Any = dict(x.dask.dependencies) | {make: set(), put: {x.name, make}, join: {put}, name: {join}}
    return da.Array(HighLevelGraph(layers, depends), name, blocks, meta=x._meta)


def _sections(blocks: BlockLengths) -> Iterator[tuple[Index, Section]]:
    edges = [(0, *accumulate(lengths)) for lengths in blocks]
    for index in product(*(range(len(lengths)) for lengths in blocks)):
        lower, upper = (tuple(each[i + d] for i, each in zip(index, edges, strict=True)) for d in (0, 1))
        yield index, Section(lower, upper)


def _let_go(folder: str, held: Any, suffix: str, client: weakref.ref[Client] | None) -> None:
    """Remove scratch; on a cluster, a thread first waits until the scheduler has forgotten its tasks."""
    there = None if client is None else client()
    if there is None or there.status != "running":
        discard(folder, held)
        return
    threading.Thread(target=_wait, args=(folder, held, suffix, there, _pending(there)), daemon=True).start()


def _wait(folder: str, held: Any, suffix: str, client: Client, sent: set[Any]) -> None:
    """Wait until the scheduler has forgotten the tasks, including those of graphs still on their way to it."""
    try:
        while client.status == "running":
            sent &= _pending(client)
            known, sent = client.run_on_scheduler(known_of, suffix, sent)
            if not known and not sent:
                break
            time.sleep(0.5)
    finally:
        discard(folder, held)


def _pending(client: Client) -> set[Any]:
    """Return pending keys, some possibly unknown to the scheduler."""
    return {key for key, state in list(client.futures.items()) if state.status == "pending"}


def known_of(suffix: str, sent: set[Any], dask_scheduler: Any) -> tuple[bool, set[Any]]:
    """Return whether a scheduler has tasks with this suffix, and the sent keys that it does not have."""
    tasks = dask_scheduler.tasks
    return any(suffix in str(key) for key in tasks), {key for key in sent if key not in tasks}
