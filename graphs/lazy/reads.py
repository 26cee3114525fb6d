"""Tasks of the blocks of a lazy array that is read from a stored one.

    blocks      read ─► block                            sliced by Dask, like arrays that Dask opens
    groups      read group ─┬─► take ─► block            each chunk of the group is read once
                            └─► take ─► block
    scratch     make ──┬─► copy tile ──┬─► copied ─┬─► read ─► block      each chunk is read once, and written plain
                       └─► copy tile ──┘           └─► read ─► block

A group's blocks are separate arrays, so keeping one does not keep the others. The plain copy is a task's result, so it
is removed when the scheduler forgets that task. If it was lost with its worker, blocks read the array itself. Names are
always the same for the same array, blocks and budget.
"""

from __future__ import annotations

import os
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, product
from typing import Any, TypeVar

import numpy as np
from dask.base import tokenize
from dask.task_spec import DataNode, Task, TaskRef

from oocarrays.errors import NotFoundError
from oocarrays.graphs.events import warn_of_missing
from oocarrays.mapping.along import AxisOverGrid, over_edges
from oocarrays.mapping.grid import Index, ceil_div
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Selection, Taken, lengths
from oocarrays.plan.lazy.blocks import scratch_of
from oocarrays.plan.lazy.reads import LazyReadsPlan
from oocarrays.plan.sections.sieve import BUFFER_BYTES
from oocarrays.storage.chunks.writer import PieceWriter
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import create_scratch
from oocarrays.storage.journal.leftovers import discard, hold
from oocarrays.storage.meter import Meter
from oocarrays.storage.sections.read import read_section

T = TypeVar("T")
Tasks = dict[Any, Any]
Spans = tuple[tuple[int, int], ...]
"""First element along each axis, and one past the last."""


@dataclass(frozen=True, kw_only=True)
class StoredPart:
    """Part of a stored array that is read on access: ``part[key]`` is a numpy array."""

    file: ArrayFile
    axes: tuple[range, ...]
    """Indices of the part along each axis, ascending."""
    meter: Meter = field(default_factory=Meter)
    """Counter of this process's reads."""

    @property
    def shape(self) -> tuple[int, ...]:
        return lengths(self.axes)

    @property
    def ndim(self) -> int:
        return len(self.axes)

    @property
    def dtype(self) -> np.dtype:
        return self.file.dtype

    def __getitem__(self, key: Any) -> np.ndarray:
        taken = Selection.of(key, self.shape)
        axes = tuple(map(_of_range, self.axes, taken.axes))
        dense = all(isinstance(taken, range) and taken.step == 1 for taken in axes)  # no other block's lie in between
        how: Any = {"method": "direct" if dense and self.file.stored.local else "auto", "threads": 1}
        mapped = self.file.stored.coded and self.file.stored.local  # only the chunk that is decoded is in memory
        nbytes = 1 if mapped else BUFFER_BYTES
        data = read_section(self.file, axes, meter=self.meter, buffer_bytes=nbytes, **how)
        warn_of_missing(self.meter, self.file.presence.name, so_far=True)
        return taken.arranged(data)

    def part(self, axes: Sequence[range]) -> StoredPart:
        return replace(
            self, axes=tuple(each[r.start : r.stop : r.step] for each, r in zip(self.axes, axes, strict=True))
        )

    def __dask_tokenize__(self) -> Any:
        return tokenize(self.file.name, self.file.zarr.metadata.to_dict(), self.file.presence.missing, self.axes)


def _of_range(axis: range, taken: Taken) -> Taken:
    if isinstance(taken, np.ndarray):
        return axis.start + taken * axis.step
    return axis[taken.start : taken.stop : taken.step]


def read_span(part: StoredPart, span: Spans) -> np.ndarray:
    """Read a single block: ``result.shape == tuple(last - first for first, last in span)``."""
    return part[tuple(slice(*each) for each in span)]


def read_group(part: StoredPart, edges: tuple[tuple[int, ...], ...], tile: Index) -> dict[Index, np.ndarray]:
    """Read the blocks between some edges along each axis, by their index in the group; each chunk is read once."""
    counts = [len(each) - 1 for each in edges]
    blocks = {
        index: np.empty([each[i + 1] - each[i] for i, each in zip(index, edges, strict=True)], part.dtype)
        for index in product(*map(range, counts))
    }
    for span in tiles(part.axes, [(each[0], each[-1]) for each in edges], tile):
        data = read_span(part, span)
        for shares in product(*(over_edges(each, *ends) for each, ends in zip(edges, span, strict=True))):
            index, there, here, _ = zip(*shares, strict=True) if shares else ((), (), (), ())
            blocks[index][(*there, ...)] = data[(*here, ...)]
        del data  # before the next tile is read
    return blocks


def tiles(axes: Sequence[range], span: Iterable[tuple[int, int]], tile: Index) -> Iterator[Spans]:
    """Split a span of elements at the edges of the stored array's tiles."""
    cut = zip(axes, span, tile, strict=True)
    return product(*(list(_cut(taken, *ends, length)) for taken, ends, length in cut))


def _cut(taken: range, first: int, last: int, length: int) -> Iterator[tuple[int, int]]:
    for piece in AxisOverGrid(taken[first:last], taken.stop, length):
        yield first + piece.out.start, first + piece.out.stop


def take(blocks: Mapping[Index, np.ndarray], index: Index) -> np.ndarray:
    return blocks[index]


class PlainCopy:
    """Plain copy of a part in local files, removed when the result of `make` is no longer referenced.

    Other processes receive only the name of its folder.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder

    @classmethod
    def make(cls, scratch: str, part: StoredPart, plan: LazyReadsPlan) -> PlainCopy:
        """Make an empty copy in a new folder."""
        part.file.presence.check()
        copy = cls(os.path.join(scratch, f".oocarrays-{uuid.uuid4().hex[:12]}"))
        held = hold(copy.folder)
        weakref.finalize(copy, discard, copy.folder, held)
        stored = scratch_of(plan.blocks, part.shape, part.dtype.itemsize)
        create_scratch(copy.place, part.file, stored)
        return copy

    def __reduce__(self) -> Any:
        return PlainCopy, (self.folder,)

    @property
    def place(self) -> str:
        return os.path.join(self.folder, "copy")

    @cached_property
    def file(self) -> ArrayFile | None:
        """Open copy in this process; None if it no longer exists."""
        try:
            return array_file.describe(array_file.open_array(self.place, mode="r+"))
        except NotFoundError:
            return None


def copy_tile(part: StoredPart, copy: PlainCopy, span: Spans) -> str:
    """Read a tile, write it to the plain copy, and return the folder of the copy."""
    if copy.file is not None:
        lower, upper = zip(*span, strict=True) if span else ((), ())
        PieceWriter(copy.file, part.meter).write(Section(lower, upper), read_span(part, span))
    return copy.folder


def copied(*folders: str) -> frozenset[str]:
    """Return the folders of the plain copies that hold some tiles: one, unless a worker was lost meanwhile."""
    return frozenset(folders)


def read_copy(part: StoredPart, copy: PlainCopy, folders: frozenset[str], span: Spans) -> np.ndarray:
    """Read a block from the plain copy, or from the array itself if the copy is incomplete."""
    if folders != {copy.folder} or copy.file is None:
        return read_span(part, span)
    return read_section(copy.file, tuple(range(*each) for each in span), threads=1)


def held(node: Any, found: Callable[[Any], T | None]) -> Iterator[T]:
    """Yield what ``found`` sees in the objects that a task holds, including those of tasks fused into it."""
    inside: Iterable[Any] = ()
    if isinstance(node, Task):
        inside = (*node.args, *node.kwargs.values())
    elif isinstance(node, dict):
        inside = node.values()
    elif isinstance(node, list | tuple):
        inside = node
    elif (each := found(node.value if isinstance(node, DataNode) else node)) is not None:
        yield each
    for each in inside:
        yield from held(each, found)


def name_of(part: StoredPart, plan: LazyReadsPlan) -> str:
    """Return the name of a lazy array, the same for the same array and method of reading."""
    numbers = [np.array(each, np.int64) for each in (*plan.blocks, *plan.groups)]  # tuples of many blocks take seconds
    return f"oocarrays-{tokenize(part, numbers, plan.method, plan.tile)}"


def layers_of(
    name: str, part: StoredPart, plan: LazyReadsPlan, scratch: str
) -> tuple[dict[str, Tasks], dict[str, set[str]]]:
    """Return the layers of a lazy array read in groups or through scratch, and their dependencies."""
    if plan.method == "scratch":
        return _scratch(name, part, plan, scratch)
    return _groups(name, part, plan)


def _groups(name: str, part: StoredPart, plan: LazyReadsPlan) -> tuple[dict[str, Tasks], dict[str, set[str]]]:
    read, blocks, edges = f"read-{name}", {}, _edges(plan)
    groups: Tasks = {}
    for number in product(*(range(len(each)) for each in plan.groups)):
        ends = [each[i] for each, i in zip(plan.groups, number, strict=True)]
        mine = tuple(each[first : last + 1] for each, (first, last) in zip(edges, ends, strict=True))
        key: Any = (read, *number)
        groups[key] = Task(key, read_group, part, mine, plan.tile)
        for index in product(*(range(last - first) for first, last in ends)):
            block = (name, *(i + first for i, (first, _) in zip(index, ends, strict=True)))
            blocks[block] = Task(block, take, TaskRef(key), index)
    return {read: groups, name: blocks}, {read: set(), name: {read}}


def _scratch(
    name: str, part: StoredPart, plan: LazyReadsPlan, scratch: str
) -> tuple[dict[str, Tasks], dict[str, set[str]]]:
    make, copying, join = f"make-scratch-{name}", f"copy-{name}", f"copied-{name}"
    key: Any = (make, 0)
    made: Tasks = {key: Task(key, PlainCopy.make, scratch, part, plan)}
    whole = [(0, n) for n in part.shape]
    copies: dict[Index, Any] = {}
    tasks: dict[str, Tasks] = {make: made, copying: {}, join: {}, name: {}}
    for span in tiles(part.axes, whole, plan.tile):
        number = _tile_number(part.axes, span, plan.tile)
        copies[number] = (copying, *number)
        tasks[copying][copies[number]] = Task(copies[number], copy_tile, part, TaskRef(key), span)
    edges = _edges(plan)
    for index in product(*(range(len(each)) for each in plan.blocks)):
        span = tuple((each[i], each[i + 1]) for each, i in zip(edges, index, strict=True))
        joined: Any = _joined(join, part.axes, span, plan.tile)
        if joined not in tasks[join]:
            needed = (copies[_tile_number(part.axes, each, plan.tile)] for each in tiles(part.axes, span, plan.tile))
            tasks[join][joined] = Task(joined, copied, *map(TaskRef, needed))
        block = (name, *index)
        tasks[name][block] = Task(block, read_copy, part, TaskRef(key), TaskRef(joined), span)
    return tasks, {make: set(), copying: {make}, join: {copying}, name: {make, join}}


def _edges(plan: LazyReadsPlan) -> list[tuple[int, ...]]:
    return [(0, *accumulate(each)) for each in plan.blocks]


def _tile_number(axes: Sequence[range], span: Spans, tile: Index) -> Index:
    """Return the index of the tile that contains the first of some elements."""
    return tuple(taken[first] // length for taken, (first, _), length in zip(axes, span, tile, strict=True))


def _joined(join: str, axes: Sequence[range], span: Spans, tile: Index) -> tuple[Any, ...]:
    """Return the key of the task that waits for the tiles of a block; blocks of the same tiles share it."""
    ends = [
        (taken[first] // length, ceil_div(taken[last - 1] + 1, length)) if first < last else (0, 0)
        for taken, (first, last), length in zip(axes, span, tile, strict=True)
    ]
    return (join, *(end for each in ends for end in each))
