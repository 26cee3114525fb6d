"""Writes of lazy arrays into stored ones: one task writes each target chunk, from any number of blocks.

    blocks          │    0     │    1     │    2     │
    target chunks   │   a   │   b   │   c   │   d   │

    block 0 ─► (a)              a chunk inside one block is written from it
    block 0 ─► cut ──┐
    block 1 ─► cut ──┴─► (b)    a chunk across blocks is written from cut parts, so whole blocks need not be kept

Blocks of whole chunks are written whole. Writes of several arrays to one chunk run in sequence.

Tasks that read an overwritten array are verified, as workers may be lost: late reads are never written.

    read 0 ─► add ─► write 0            a worker is lost, with the results of these tasks:
                                        read 0 after write 0 has been done      write 0 detects it, and writes nothing
                                        read 0 after write 0 has begun          the data is unchanged, or the run fails

A write reports its beginning and end to the scheduler. A read checks afterwards whether a write had begun; if so, it
compares its data with the checksum of the earlier read. A scheduler keeps such notes under the key of the last task and
forgets them with it, so a graph can be computed again. Threads of one process are not lost.

    kept 0 ─► note 0 ──┬─► all noted ──────┐
    kept 1 ─► note 1 ──┘                   ├─► write 0        a worker is lost, and kept 0 with it:
    kept 0 ─► same 0 ─► add ───────────────┘                  its checksum is the noted one, or the run fails

Blocks that workers keep may have been computed from the target. The graph does not contain their tasks: the scheduler
determines whether they read it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, product
from types import MappingProxyType
from typing import Any

import numpy as np
from dask.task_spec import DataNode, GraphNode, Task, TaskRef

from oocarrays.errors import RunError
from oocarrays.graphs.events import BEGUN, is_as_noted, noted, this_worker, write_down
from oocarrays.graphs.lazy.reads import Spans, tiles
from oocarrays.graphs.run.program import Unfused, itself
from oocarrays.graphs.storing.read_first import ReadOrder, TaskAccess, names_read, order_of
from oocarrays.kernels.results import block_of, on_host
from oocarrays.mapping.along import over_edges
from oocarrays.mapping.casting import lost_value
from oocarrays.mapping.overlap import BlockLengths
from oocarrays.mapping.section import Section
from oocarrays.plan.lazy.reads import tile_of
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.journal.texts import contents
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
    file: ArrayFile
    """Target array, described for writing."""
    axes: tuple[range, ...]
    """Indices written in the target, along each axis, ascending."""

    @property
    def edges(self) -> list[tuple[int, ...]]:
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
    return on_host(block)[index]


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


def stored(*done: None) -> None:
    """Mark all writes as done, or all kept blocks as noted."""


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
            chunks = storing.file.stored.grid.indices(Section.of(axes)) if len(storings) > 1 else ()
            touched = [(storing.file.name, index) for index in chunks]
            before = {last[chunk] for chunk in touched if chunk in last}
            tasks = _tasks(key, storing, span, axes, suffix, before.union(after))
            graph.update((each, task.substitute(dict(names)) if names else task) for each, task in tasks)
            last.update(dict.fromkeys(touched, key))
            ends.append(key)
    done: Key = f"stored-{suffix}"
    graph[done] = Task(done, stored, *map(TaskRef, ends))
    return graph, done


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


# ---------------------------------------------------------------------- reads of an array that is overwritten


DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """Function that writes once, and does nothing if the write is already done."""

    do: Callable[..., None]
    last: Key
    name: str

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if this_worker() is None:
            self.do(*args, **kwargs)
        elif noted(self.last, self.name) != DONE:
            write_down(self.last, self.name, BEGUN)
            self.do(*args, **kwargs)
            write_down(self.last, self.name, DONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class InTime:
    """Function that reads, and raises if its data was overwritten, unlike what it first read, and may be needed."""

    do: Callable[..., Any]
    last: Key
    name: str
    target: str
    """Name of the overwritten array."""
    writes: tuple[str, ...] = ()
    """Names of the writes that overwrite any of the data; empty for a block that a worker keeps: any may."""
    alone: bool = False
    """Whether only these writes need the data."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        read = self.do(*args, **kwargs)
        if this_worker() is None:
            return read
        states, found = {noted(self.last, name) for name in self.writes or (self.name,)}, contents(read)
        if states == {None}:
            write_down(self.last, self.name, found)
        elif not (self.alone and states == {DONE}) and not is_as_noted(self.last, self.name, found):
            raise RunError(
                f"{self.target} holds old and new elements: a worker was lost while it was overwritten with what is "
                "computed from itself, and the lost values cannot be read again; write to another array instead"
            )
        return read


def in_time(
    graph: Mapping[Key, Any],
    last: Key,
    overwritten: Mapping[Key, set[Key]],
    shared: set[Key],
    target: Callable[..., str],
) -> dict[Key, Any]:
    """Return a graph without results from late reads; all keys but the last are new."""
    made = dict(graph)
    for key, writes in overwritten.items():
        reads = partial(
            InTime,
            last=last,
            name=f"read {key}",
            writes=tuple(map(_name, sorted(writes))),
            alone=key not in shared,
            target=target(min(writes)),
        )
        made[key] = _around(graph[key], reads)
    for key in graph[last].dependencies:
        made[key] = _around(graph[key], partial(Once, last=last, name=_name(key)))
    made[last] = Unfused(last, graph[last].func, *graph[last].args)
    return _renamed(made, last)


def _name(key: Key) -> str:
    return "-".join(map(str, key[1:]))


def _around(task: Task, made: Callable[..., Callable[..., Any]]) -> Task:
    """Return a task with its function wrapped; leave nodes that only list others."""
    if type(task) is not Task:
        return task
    return Task(task.key, made(do=task.func), *task.args, _data_producer=task.data_producer, **task.kwargs)


def _renamed(graph: Mapping[Key, Any], last: Key) -> dict[Key, Any]:
    """Return the tasks under keys unique to this graph, as Dask runs a key shared by several graphs only once."""
    names = {key: _own(key, last) for key in graph if key != last}
    return {
        (own := names.get(key, key)): node.substitute(names, key=own) if isinstance(node, GraphNode) else node
        for key, node in graph.items()
    }


def _own(key: Key, last: Key) -> Key:
    return (f"{key[0]}-{last}", *key[1:]) if isinstance(key, tuple) else f"{key}-{last}"


# ---------------------------------------------------------------------- blocks that workers keep


def note(same: InTime, block: Any) -> None:
    """Note the checksum of a block, before anything is written."""
    same(block)


def kept_blocks(graph: Mapping[Key, Any], targets: Collection[str]) -> list[Key]:
    """Return the keys of futures in a graph that were computed from any of the targets."""
    futures = {key: found for key, node in graph.items() if (found := _future(node)) is not None}
    if not futures:
        return []
    client = next(iter(futures.values())).client
    if client is None or client.asynchronous:
        return list(futures)
    asked = [future.key for future in futures.values()]
    reading = client.run_on_scheduler(reads_of_kept, keys=asked, targets=tuple(targets))
    return [key for key, future in futures.items() if future.key in reading]


def read_order(graph: Mapping[Key, Any], last: Key, targets: Sequence[ArrayFile]) -> ReadOrder:
    """Return the order in which the tasks of a graph read and write the targets; futures are plain data."""
    writes = (TaskAccess(key=key, number=key[1], axes=graph[key].args[1]) for key in graph[last].dependencies)
    plain = {key: node if _future(node) is None else DataNode(key, None) for key, node in graph.items()}
    return order_of(plain, list(writes), targets)


def _future(node: Any) -> Any:
    thing = node.value if isinstance(node, DataNode) else node
    return thing if type(thing).__name__ == "Future" and hasattr(thing, "client") else None


def reads_of_kept(keys: Sequence[Key], targets: Sequence[str], dask_scheduler: Any) -> set[Key]:
    """Return, on the scheduler, the keys computed from reads of the target arrays."""
    reads: dict[Key, bool] = {}
    for key in keys:
        stack = [dask_scheduler.tasks[key]] if key in dask_scheduler.tasks else []
        while stack:
            state = stack[-1]
            left = [each for each in state.dependencies if each.key not in reads]
            if left:
                stack.extend(left)
                continue
            stack.pop()
            of_others = any(reads[each.key] for each in state.dependencies)
            reads[state.key] = of_others or names_read(state.run_spec, targets)
    return {key for key in keys if reads.get(key)}


def with_kept_noted(
    graph: Mapping[Key, Any], kept: Sequence[Key], last: Key, target: str
) -> tuple[dict[Key, Any], dict[Key, Key], Key]:
    """Return the tasks with verified blocks, the new keys of kept blocks, and the key that writes wait for."""
    same = {key: InTime(do=itself, last=last, name=f"kept {number}", target=target) for number, key in enumerate(kept)}
    names: dict[Key, Any] = {key: (f"same-{last}", number) for number, key in enumerate(kept)}
    made = {
        key: node if key in names or not isinstance(node, GraphNode) else node.substitute(names)
        for key, node in graph.items()
    }
    notes: list[Key] = []
    for number, key in enumerate(kept):
        notes.append((f"note-{last}", number))
        made[notes[-1]] = Task(notes[-1], note, same[key], TaskRef(key))
        made[names[key]] = Task(names[key], same[key], TaskRef(key))
    barrier: Key = f"noted-{last}"
    made[barrier] = Task(barrier, stored, *map(TaskRef, notes))
    return made, names, barrier
