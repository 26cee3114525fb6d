"""Reads of a graph too large to be written out, found layer by layer from the results down.

    needed blocks of a layer     ██·█        a mask, or keys where tasks are written out
            │ the layer's indices give the blocks needed below
    needed blocks below          ██
                                 │
    reads                        Σ over a mask: ranges along each axis, and the count of each product

An index that is the only user of a read is fused with it, as in Dask's optimisation.

out[i, j, k] = a[k, i] · b[k, j]       a is read for every j, once for each block of b along that axis
out[i, j, k] = a[k, i] · a[k, j]       both reads of a are repeated for each block of a itself
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from itertools import islice, pairwise
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask._task_spec import convert_legacy_task
from dask.array.optimization import fuse_slice
from dask.blockwise import Blockwise, blockwise_token, optimize_blockwise
from dask.highlevelgraph import HighLevelGraph
from dask.layers import ArraySliceDep
from dask.task_spec import Alias, GraphNode, Task, TaskRef

from oocarrays.graphs.tracing import parts
from oocarrays.plan.advice.access import Repeat


class BlockRead(NamedTuple):
    """Read of a layer of blocks."""

    name: str
    indices: set[str]
    axes: dict[str, int]
    """Axes of the array that are read whole, by block index."""


def repeat_of(layer: Blockwise, read: BlockRead, reads: Sequence[BlockRead]) -> Repeat:
    """Return the number of repetitions of a read: once for each block along the indices that it lacks."""
    times, axes = 1, []
    of: set[str] = set()
    for index in layer.output_indices:
        if index in read.indices:
            continue
        owners = {each.name: each.axes[index] for each in reads if index in each.axes}
        if read.name in owners:
            axes.append(owners[read.name])
        else:
            times *= layer.dims[index]
            of |= owners.keys()
    return Repeat(times, tuple(axes), tuple(sorted(of)))


@dataclass
class _Needs:
    """Blocks or tasks of a layer that are needed, and their users."""

    counts: np.ndarray | None = None
    """Number of users of each block, for a layer of blocks."""
    keys: Counter[Any] = field(default_factory=Counter)
    """Number of users of each written-out task."""
    results: set[Any] = field(default_factory=set)
    """Keys of results."""
    alone: set[Any] = field(default_factory=set)
    """Keys that are the only input of some task."""
    indexed: dict[Any, Task] = field(default_factory=dict)
    """Task that indexes a key and has no other input, by key."""


class Layers:
    """Graph of arrays, traversed without writing it out."""

    def __init__(self, graph: HighLevelGraph, arrays: Sequence[da.Array], found: Any) -> None:
        first = [(array.name, *(0 for _ in array.numblocks)) for array in arrays]
        self._graph = optimize_blockwise(graph, keys=first)
        self._layers: Mapping[str, Any] = self._graph.layers
        self._found = found
        self._results = {array.name: array.numblocks for array in arrays}
        self._needs = {name: _Needs() for name in self._layers}
        self._written: dict[str, Mapping[Any, Any]] = {}

    def trace(self) -> None:
        order = TopologicalSorter({name: set(deps) for name, deps in self._graph.dependencies.items()}).static_order()
        for name in reversed(list(order)):
            layer = self._layers.get(name)
            if isinstance(layer, Blockwise):
                self._blocks(name, layer)
            elif layer is not None:
                self._tasks(name)

    def repeats(self) -> dict[str, tuple[Repeat, ...]]:
        """Return how often tasks read each chunk of an array, if the indices of one layer of blocks determine it."""
        found: dict[str, tuple[Repeat, ...]] = {}
        seen: Counter[str] = Counter()
        blocks = (layer for layer in self._layers.values() if isinstance(layer, Blockwise))
        for layer in (each for each in blocks if any(isinstance(dep, ArraySliceDep) for dep in each.io_deps.values())):
            reads = [self._read(*each) for each in self._templates(layer) if each]
            for name in {read.name for read in reads}:
                seen[name] += 1
                found[name] = tuple(repeat_of(layer, read, reads) for read in reads if read.name == name)
        return {name: each for name, each in found.items() if seen[name] == 1 and any(r.axes or r.of for r in each)}

    def _read(self, source: Any, dep: ArraySliceDep, indices: Sequence[str]) -> BlockRead:
        part = self._found.part(source)
        along = zip(indices, part.kept, strict=True) if part.points is None else ()
        axes = {index: axis for index, axis in along if len(part.axes[axis]) == part.array.shape[axis]}
        return BlockRead(self._found.seen.name(part.array), set(indices), axes)

    # ------------------------------------------------------------------ layers of blocks

    def _counts(self, name: str, layer: Blockwise) -> np.ndarray:
        needs = self._needs[name]
        if needs.counts is None:
            shape = tuple(layer.dims[i] for i in layer.output_indices)
            needs.counts = np.zeros(shape, np.int64)
        return needs.counts

    def _blocks(self, name: str, layer: Blockwise) -> None:
        needed = self._counts(name, layer) > 0
        if name in self._results:
            needed[...] = True
        if not needed.any():
            return
        arrays = [(d, i) for d, i in layer.indices if i is not None and d not in layer.io_deps]
        others = [d.key for d, i in layer.indices if i is None and isinstance(d, TaskRef)]
        only = len(set(arrays)) + len(others) == 1
        for below, indices in set(arrays):
            self._need_blocks(below, indices, layer, needed, only)
        for key in others:
            self._need(key, int(needed.sum()), only)
        self._reads_of_blocks(name, layer, needed)

    def _need_blocks(
        self, below: Any, indices: Sequence[str], layer: Blockwise, needed: np.ndarray, only: bool
    ) -> None:
        used = _projected(needed, layer, indices, layer.numblocks[below])
        target = self._layers.get(below)
        if isinstance(target, Blockwise):
            counts = self._counts(below, target)
            counts += used
            return
        for place in np.argwhere(used).tolist():
            self._need((below, *place), int(used[*place]), only)

    def _need(self, key: Any, times: int = 1, only: bool = False) -> None:
        name = self._layer_of(key)
        if name is None:
            return
        layer, needs = self._layers[name], self._needs[name]
        if isinstance(layer, Blockwise):
            self._counts(name, layer)[key[1:]] += times
            return
        needs.keys[key] += times
        if only:
            needs.alone.add(key)

    def __contains__(self, key: object) -> bool:
        name = key[0] if isinstance(key, tuple) and key else key
        return isinstance(name, str) and self._layer_of(key) is not None

    def _layer_of(self, key: Any) -> str | None:
        name = key[0] if isinstance(key, tuple) and key else key
        if isinstance(name, str) and name in self._layers:
            return name
        return next((n for n, layer in self._layers.items() if not isinstance(layer, Blockwise) and key in layer), None)

    def _reads_of_blocks(self, name: str, layer: Blockwise, needed: np.ndarray) -> None:
        templates = list(self._templates(layer))
        if any(template is None for template in templates):  # written out in groups, and seen one by one
            blocks = (tuple(map(int, index)) for index in zip(*np.nonzero(needed), strict=True))
            while some := list(islice(blocks, 10_000)):
                for node in _written_out(layer, some).values():
                    self._found.add_task(node, self._object)
            return
        joined = self._joined(name, layer) if templates else {}
        if joined:
            needed = needed.copy()
            needed[tuple(np.array(list(joined)).T)] = False
            self._add_joined(layer, joined)
        for source, dep, indices in filter(None, templates):
            self._add_blocks(source, dep, _projected(needed, layer, indices, dep.numblocks))

    def _templates(self, layer: Blockwise) -> Iterator[tuple[Any, ArraySliceDep, Sequence[str]] | None]:
        """Yield a task's source, slices and indices of each read in a layer; None for one unlike other tasks'."""
        tokens: dict[Any, Any] = {blockwise_token(i): each for i, each in enumerate(layer.indices)}

        def find(key: Any) -> Any:
            if key not in tokens:
                return self._object(key)
            dep, indices = tokens[key]
            if indices is None:
                return self._object(dep.key) if isinstance(dep, TaskRef) else dep
            slot = layer.io_deps.get(dep)
            return parts.NOTHING if slot is None else (_Slot(slot, indices),)

        try:
            found = list(parts.uses(layer.task, find, self._found.is_source))
        except NotImplementedError:  # an index fused with that of a region, not a block's slices
            yield None
            return
        for use in found:
            slot = use.key[0] if isinstance(use.key, tuple) and len(use.key) == 1 else None
            regular = isinstance(slot, _Slot) and isinstance(slot.dep, ArraySliceDep) and not use.writes
            if isinstance(slot, _Slot) and regular and set(slot.indices) <= set(layer.output_indices):
                yield use.source, slot.dep, slot.indices
            else:
                yield None

    def _add_blocks(self, source: Any, dep: ArraySliceDep, times: np.ndarray) -> None:
        """Add the sections of blocks, each with its number of reads."""
        part = self._found.part(source)
        along = [[range(int(a), int(b)) for a, b in pairwise(starts)] for starts in dep.starts]
        plain = part.points is None and all(isinstance(part.axes[axis], range) for axis in part.kept)
        often = int(times.max(initial=0))
        if plain and bool((times == often).all()):
            taken: list[Any] = [(axis,) if isinstance(axis, range) else axis for axis in part.axes]
            for axis, blocks in zip(part.kept, along, strict=True):
                mine = part.axes[axis]
                taken[axis] = [r for r in (mine[b.start : b.stop] for b in blocks) if len(r)]
            if often:
                self._found.seen.fold(part.array, by=part.by, cut=True).add_product(taken, often)
            return
        for index in zip(*np.nonzero(times), strict=True):
            key = tuple(slice(along[axis][i].start, along[axis][i].stop) for axis, i in enumerate(index))
            for _ in range(int(times[index])):
                self._found.add(parts.TaskUse(source, key), None)

    # ------------------------------------------------------------------ indices fused with reads

    def _joined(self, name: str, layer: Blockwise) -> dict[tuple[int, ...], Task]:
        """Return the blocks with a single user that only indexes them, with that task."""
        needs = self._needs[name]
        if name in self._results or layer.task.func not in parts.GETTERS:
            return {}
        counts = self._counts(name, layer)
        return {key[1:]: task for key, task in needs.indexed.items() if counts[key[1:]] == 1 and self._joins(task)}

    def _joins(self, task: Task) -> bool:
        """Return whether Dask fuses an index with its read: it has a single user, or is never a task's only input."""
        name = self._layer_of(task.key)
        if name is None:
            return False
        needs = self._needs[name]
        once = needs.keys[task.key] == 1 and task.key not in needs.results
        return once or task.key not in needs.alone

    def _add_joined(self, layer: Blockwise, joined: Mapping[tuple[int, ...], Task]) -> None:
        """Add the reads of indexed blocks: the fused index by Dask's rule, or else the whole block."""
        for template in self._templates(layer):
            assert template is not None
            source, dep, indices = template
            places = [layer.output_indices.index(index) for index in indices]
            for block, task in joined.items():
                read = dep[tuple(block[place] for place in places)]
                self._found.add(parts.TaskUse(source, _fused(read, parts.known(task.args[1], self._object))), task)

    # ------------------------------------------------------------------ written-out tasks

    def _object(self, key: Any) -> Any:
        name = self._layer_of(key)
        if name is None or isinstance(self._layers[name], Blockwise):
            return parts.NOTHING
        node = self._written_tasks(name).get(key)
        if isinstance(node, Alias):
            return self._object(node.target)
        if isinstance(node, GraphNode):
            return parts.value(node, self._object)
        if isinstance(node, tuple | list):
            return parts.NOTHING
        return self._object(node) if isinstance(node, str) and self._layer_of(node) else node

    def _written_tasks(self, name: str) -> Mapping[Any, Any]:
        if name not in self._written:
            self._written[name] = getattr(self._layers[name], "mapping", None) or dict(self._layers[name])
        return self._written[name]

    def _tasks(self, name: str) -> None:
        """Add the reads of a layer's needed tasks."""
        needs = self._needs[name]
        if name in self._results:
            grid = self._results[name]
            needs.results = {(name, *map(int, index)) for index in np.ndindex(*grid)}
        written = self._written_tasks(name)
        stack, known = [*needs.keys, *(needs.results - needs.keys.keys())], set()
        while stack:
            key = stack.pop()
            if key in known:
                continue
            known.add(key)
            node = convert_legacy_task(key, written.get(key), self)
            below = node.dependencies if isinstance(node, GraphNode) else ()
            for each in below:
                if each in written:
                    needs.keys[each] += 1
                    stack.append(each)
                    if len(below) == 1:
                        needs.alone.add(each)
                else:
                    self._need(each, 1, len(below) == 1)
            if len(below) == 1 and isinstance(node, Task) and node.func in parts.GETTERS:
                (each,) = below
                layer = self._layer_of(each)
                if layer is not None and isinstance(self._layers[layer], Blockwise):
                    self._needs[layer].indexed[each] = node
            self._found.add_task(node, self._object)


@dataclass(frozen=True, slots=True)
class _Slot:
    """Placeholder for the slices of each block."""

    dep: Any
    indices: Sequence[str]


def _projected(needed: np.ndarray, layer: Blockwise, indices: Sequence[str], numblocks: Sequence[int]) -> np.ndarray:
    """Return the number of needed tasks that use each block of an array with other indices."""
    mine = list(layer.output_indices)
    lost = tuple(axis for axis, index in enumerate(mine) if index not in indices)
    counts = needed.sum(axis=lost, dtype=np.int64)
    left = [index for index in mine if index in indices]
    order = [left.index(index) for index in indices if index in left]
    counts = counts.transpose(order)
    for axis, (index, blocks) in enumerate(zip(indices, numblocks, strict=True)):
        if index not in left:
            counts = np.expand_dims(counts, axis).repeat(blocks, axis=axis)
        elif blocks == 1:
            counts = counts.sum(axis=axis, keepdims=True)
    return np.asarray(counts)


def _fused(read: Any, index: Any) -> Any:
    """Return the fused index of a read and the following index if Dask can fuse them; else the index of the read."""
    if not (isinstance(read, tuple) and isinstance(index, tuple)):
        return read
    if len(read) != len(index) and any(each is None for each in (*read, *index)):
        return read
    try:
        return fuse_slice(read, index)
    except NotImplementedError:
        return read


def _written_out(layer: Blockwise, blocks: Iterable[tuple[int, ...]]) -> dict[Any, Any]:
    return dict(layer._cull(set(blocks)))
