"""Writes of lazy arrays into stored ones: one task writes each target chunk, from any number of blocks.

    blocks          │    0     │    1     │    2     │
    target chunks   │   a   │   b   │   c   │   d   │

    block 0 ─► (a)              a chunk inside one block is written from it
    block 0 ─► cut ──┐
    block 1 ─► cut ──┴─► (b)    a chunk across blocks is written from cut parts, so whole blocks need not be kept

Blocks of whole chunks are written whole. Writes of several arrays to one chunk run in sequence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from types import MappingProxyType
from typing import Any

import numpy as np
from dask.task_spec import Task, TaskRef

from oocarrays.errors import RunError
from oocarrays.graphs.lazy.read_first import TaskAccess
from oocarrays.graphs.lazy.reads import Spans, tiles
from oocarrays.kernels.results import block_of, on_host
from oocarrays.mapping.along import over_edges
from oocarrays.mapping.casting import lost_value
from oocarrays.mapping.section import Section
from oocarrays.plan.lazy.blocks import BlockLengths
from oocarrays.plan.lazy.reads import tile_of
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.sections.write import write_section

Key = Any
Place = tuple[slice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Storing:
    """One lazy array and its target."""

    name: str
    """Name of the lazy array, the first item of its blocks' keys."""
    blocks: BlockLengths
    """Lengths of its blocks along each axis, in elements."""
    dtype: np.dtype
    """Dtype of its elements."""
    file: ArrayFile
    """Target array, described for writing."""
    axes: tuple[range, ...]
    """Indices written in the target, along each axis, ascending."""

    @property
    def edges(self) -> list[tuple[int, ...]]:
        """Return the edges of the blocks along each axis."""
        return [(0, *accumulate(lengths)) for lengths in self.blocks]

    def owned(self) -> Iterator[Spans]:
        """Yield the elements of the lazy array that each task writes; no two tasks share a chunk."""
        along = [self._cut(axis, length) for axis, length in enumerate(self.file.stored.grid.chunks)]
        per_axis = list(zip(along, self.edges, strict=True))
        if all(len(list(over_edges(edges, *span))) <= 1 for spans, edges in per_axis for span in spans):
            return product(*(list(_merged(spans, edges)) for spans, edges in per_axis))
        tile = tile_of(self.file.stored, whole=True)
        return product(*(self._cut(axis, length) for axis, length in enumerate(tile)))

    def _cut(self, axis: int, length: int) -> list[tuple[int, int]]:
        taken = self.axes[axis]
        return [span for (span,) in tiles([taken], [(0, len(taken))], (length,))]

    def written(self, span: Spans) -> tuple[range, ...]:
        """Return the target's indices for some elements of the lazy array."""
        return tuple(taken[first:last] for taken, (first, last) in zip(self.axes, span, strict=True))

    def parts(self, span: Spans) -> Iterator[tuple[Key, Place, Place]]:
        """Yield the blocks that overlap some elements: key, place in the block, and place among the elements."""
        for each in product(*(over_edges(edges, *ends) for edges, ends in zip(self.edges, span, strict=True))):
            index, there, here, _ = zip(*each, strict=True) if each else ((), (), (), ())
            yield (self.name, *index), there, here


def _merged(spans: Sequence[tuple[int, int]], edges: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Merge intervals that lie in one block."""
    first = None
    for lower, upper in spans:
        first = lower if first is None else first
        if upper in edges or upper == spans[-1][1]:
            yield first, upper
            first = None


# ---------------------------------------------------------------------- functions of tasks


def cut(block: Any, place: Place) -> np.ndarray:
    """Return a copy of a part of a block, so that the rest can be released."""
    return np.array(_at(block, place))


def _at(block: Any, place: Place) -> np.ndarray:
    index: Any = (*place, ...)
    part: np.ndarray = on_host(block)[index]
    return part


def write_block(
    file: ArrayFile, axes: tuple[range, ...], dtype: np.dtype, place: Place, block: Any, _after: Sequence[None]
) -> None:
    lower, upper = tuple(each.start for each in place), tuple(each.stop for each in place)
    write_section(file, axes, _fitting(file, block_of(_at(block, place), Section(lower, upper), dtype)))


def write_parts(
    file: ArrayFile, axes: tuple[range, ...], dtype: np.dtype, places: Sequence[Place], *parts: Any
) -> None:
    """Write elements that lie in several blocks; the last argument lists dependencies only."""
    values = np.empty(tuple(map(len, axes)), file.dtype)
    for place, part in zip(places, parts, strict=False):
        lower, upper = tuple(each.start for each in place), tuple(each.stop for each in place)
        index: Any = (*place, ...)
        values[index] = _fitting(file, block_of(part, Section(lower, upper), dtype))
    write_section(file, axes, values)


def _fitting(file: ArrayFile, block: np.ndarray) -> np.ndarray:
    """Return the block, or raise if an element does not fit the target's dtype."""
    lost = lost_value(block, file.dtype)
    if lost is not None:
        raise RunError(f"{lost} ({block.dtype}) does not fit {file.name} of dtype {file.dtype}: convert it with astype")
    return block


def stored(*written: None) -> None:
    """Mark all writes as done."""


# ---------------------------------------------------------------------- the graph


def store_graph(
    storings: Sequence[Storing],
    blocks: Mapping[Any, Any],
    suffix: str,
    *,
    after: Collection[Key] = (),
    names: Mapping[Key, Key] = MappingProxyType({}),
) -> tuple[dict[Key, Any], Key]:
    """Return the graph that writes lazy arrays, and the key of its last task."""
    graph = dict(blocks)
    last: dict[tuple[str, tuple[int, ...]], Key] = {}
    ends: list[Key] = []
    for number, storing in enumerate(storings):
        for turn, span in enumerate(storing.owned()):
            axes = storing.written(span)
            if not all(axes):
                continue
            key: Key = (f"store-{suffix}", number, turn)
            touched = [(storing.file.name, index) for index in _chunks(storing, axes)] if len(storings) > 1 else []
            before = {last[chunk] for chunk in touched if chunk in last}
            tasks = _tasks(key, storing, span, axes, suffix, before.union(after))
            graph.update((each, task.substitute(dict(names)) if names else task) for each, task in tasks)
            last.update(dict.fromkeys(touched, key))
            ends.append(key)
    done: Key = f"stored-{suffix}"
    graph[done] = Task(done, stored, *map(TaskRef, ends))
    return graph, done


def writes(graph: Mapping[Key, Any], key: Key) -> Iterator[TaskAccess]:
    """Yield the writes of the tasks that the last task, named by its ``key``, depends on."""
    for each in graph[key].dependencies:
        yield TaskAccess(key=each, number=each[1], axes=graph[each].args[1])


def _chunks(storing: Storing, axes: tuple[range, ...]) -> Iterator[tuple[int, ...]]:
    return storing.file.stored.grid.indices(Section.of(axes))


def _tasks(
    key: Key, storing: Storing, span: Spans, axes: tuple[range, ...], suffix: str, before: set[Key]
) -> Iterator[tuple[Key, Task]]:
    """Yield the task that writes some chunks after earlier writes, and the tasks that cut its parts from blocks."""
    parts, after = list(storing.parts(span)), tuple(map(TaskRef, before))
    if len(parts) == 1:
        block, there, _ = parts[0]
        yield key, Task(key, write_block, storing.file, axes, storing.dtype, there, TaskRef(block), after)
        return
    cuts = [(f"cut-{suffix}", *key[1:], number) for number in range(len(parts))]
    for name, (block, there, _) in zip(cuts, parts, strict=True):
        yield name, Task(name, cut, TaskRef(block), there)
    places = [here for _, _, here in parts]
    taken = map(TaskRef, cuts)
    yield key, Task(key, write_parts, storing.file, axes, storing.dtype, places, *taken, after)
