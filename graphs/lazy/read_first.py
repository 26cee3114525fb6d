"""Lazy arrays computed from their own target: every element must be read before it is overwritten.

    a + 1       read 0 ─► add ─► write 0        each write waits for all reads of its elements: correct in any order
    a[::-1]     read 0 ─► turn ─► write 3       no dependency makes the read of 3 precede its write: refused

Optimised tasks may read the input of two writes twice, once too late; unoptimised tasks read it once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from graphlib import TopologicalSorter
from operator import or_
from typing import Any

import zarr
from dask.core import get_dependencies
from dask.task_spec import DataNode, Task, TaskRef

from oocarrays.graphs.lazy.reads import PlainCopy, StoredPart, copy_tile, read_copy, read_group
from oocarrays.mapping.along import common_range
from oocarrays.mapping.section import Section
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.places import lie_together, location

Key = Any
Axes = tuple[range, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAccess:
    """Elements of a stored array that a task reads or writes."""

    key: Key
    number: int
    """Number of the array among the targets."""
    axes: Axes


def reads_any(tasks: Mapping[Key, Any], targets: Sequence[ArrayFile]) -> bool:
    places = _Places(targets)
    return any(places.numbers(thing) for task in tasks.values() for thing in held(task))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOrder:
    """Order of the reads and writes of targets."""

    late: ArrayFile | None
    """Target with an element that may be overwritten before it is read; None without one."""
    overwritten: dict[Key, set[Key]]
    """Writes that overwrite the data of each reading task, by its key."""
    shared: set[Key]
    """Reading tasks with results that other tasks than these writes need too."""


def order_of(graph: Mapping[Key, Any], writes: Sequence[TaskAccess], targets: Sequence[ArrayFile]) -> ReadOrder:
    reads = list(_reads(graph, _Places(targets)))
    keys = list(dict.fromkeys(read.key for read in reads))
    bits = {key: 1 << number for number, key in enumerate(keys)}
    wanted = _overwritten(reads, bits, writes, targets)
    before = _before(graph, bits, list(wanted))
    overwritten: dict[Key, set[Key]] = defaultdict(set)
    for write, needed in wanted.items():
        for number in _ones(needed):
            overwritten[keys[number]].add(write)
    others = reduce(or_, (before[write] & ~needed for write, needed in wanted.items()), 0)
    late = next((targets[write[1]] for write, needed in wanted.items() if needed & ~before[write]), None)
    return ReadOrder(late=late, overwritten=dict(overwritten), shared={keys[number] for number in _ones(others)})


def _ones(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def _overwritten(
    reads: Sequence[TaskAccess], bits: Mapping[Key, int], writes: Iterable[TaskAccess], targets: Sequence[ArrayFile]
) -> dict[Key, int]:
    owners, found = defaultdict(list), {}
    for write in writes:
        found[write.key] = 0
        for chunk in _chunks(write, targets):
            owners[chunk].append(write)
    for read in reads:
        for chunk in _chunks(read, targets):
            for write in owners.get(chunk, ()):
                if all(map(common_range, read.axes, write.axes)):
                    found[write.key] |= bits[read.key]
    return found


def _chunks(access: TaskAccess, targets: Sequence[ArrayFile]) -> Iterator[tuple[int, tuple[int, ...]]]:
    if all(access.axes):
        grid = targets[access.number].stored.grid
        yield from ((access.number, index) for index in grid.indices(Section.of(access.axes)))


def _before(graph: Mapping[Key, Any], bits: Mapping[Key, int], asked: Sequence[Key]) -> dict[Key, int]:
    """Return the reads that always precede each requested task, as bits, keeping only those still needed."""
    needs = {key: get_dependencies(graph, key) for key in graph}
    left = Counter(needed for each in needs.values() for needed in each)
    left.update(asked)
    held: dict[Key, int] = {}
    for key in TopologicalSorter(needs).static_order():
        held[key] = reduce(or_, map(held.__getitem__, needs[key]), bits.get(key, 0))
        left.subtract(needs[key])
        for needed in needs[key]:
            if not left[needed]:
                del held[needed]
    return held


class _Places:
    """Targets of readable objects; each object is examined once."""

    def __init__(self, targets: Sequence[ArrayFile]) -> None:
        self._names = [target.name for target in targets]
        self._known: dict[int, tuple[Any, list[int]]] = {}

    def numbers(self, thing: Any) -> list[int]:
        """Return the numbers of the targets that are the same array."""
        if id(thing) not in self._known:
            name = thing.file.name if isinstance(thing, StoredPart) else _name(thing)
            self._known[id(thing)] = thing, [n for n, target in enumerate(self._names) if _is_same(name, target)]
        return self._known[id(thing)][1]


def names_read(node: Any, targets: Iterable[str]) -> bool:
    """Return whether a task reads an array with any of these names."""
    read = {thing.file.name if isinstance(thing, StoredPart) else _name(thing) for thing in held(node)}
    return any(_is_same(name, target) for name in read for target in targets)


def _is_same(name: str, target: str) -> bool:
    return name == target or lie_together(name, target)


def _name(array: zarr.Array) -> str:
    """Return the location of an array, including local ones opened by fsspec."""
    store: Any = array.store_path.store
    path = array.store_path.path
    protocols = getattr(getattr(store, "fs", None), "protocol", ())
    return f"{store.path}/{path}".rstrip("/") if "file" in protocols else location(array)


def held(node: Any) -> Iterator[StoredPart | zarr.Array]:
    """Yield the stored arrays that a task reads, including those of tasks fused into it."""
    inside: Iterable[Any] = ()
    if isinstance(node, Task):
        inside = (*node.args, *node.kwargs.values())
    elif isinstance(node, dict):
        inside = node.values()
    elif isinstance(node, list | tuple):
        inside = node
    elif (thing := _alone(node)) is not None:
        yield thing
    for each in inside:
        yield from held(each)


def _alone(node: Any) -> StoredPart | zarr.Array | None:
    """Return a stored array: the object itself, or the array that it wraps."""
    thing = node.value if isinstance(node, DataNode) else node
    if isinstance(thing, StoredPart | zarr.Array):
        return thing
    inner = getattr(thing, "zarr", None)
    return inner if isinstance(inner, zarr.Array) else None


def _reads(graph: Mapping[Key, Any], places: _Places) -> Iterator[TaskAccess]:
    named = {key: thing for key, node in graph.items() if (thing := _alone(node)) is not None}
    for key, task in graph.items():
        if key in named or (
            isinstance(task, Task) and (task.func == PlainCopy.make or ArrayFile in map(type, task.args))
        ):
            continue  # a task that only writes to its arrays, or makes others like them
        of_others = [named[needed] for needed in get_dependencies(graph, key) if needed in named]
        for thing in (*held(task), *of_others):
            for number in places.numbers(thing):
                yield from (TaskAccess(key=key, number=number, axes=axes) for axes in _taken(task, thing, named))


def _taken(task: Any, thing: StoredPart | zarr.Array, named: Mapping[Key, Any]) -> Iterator[Axes]:
    """Yield the elements of an array read by a task and by those fused into it."""
    if not isinstance(task, Task):
        yield _whole(thing)
        return
    given = [_resolved(each, named) for each in task.args]
    calls: list[tuple[Any, Sequence[Any]]] = [(task.func, given)]
    if given and isinstance(given[0], dict):  # tasks, key of the last, names of arguments, arguments
        known = dict(zip(given[2], given[3:], strict=False))
        inner = [each for each in given[0].values() if isinstance(each, Task)]
        calls = [(each.func, [_resolved(value, known) for value in each.args]) for each in inner]
    mine = [(function, args) for function, args in calls if any(_alone(each) is thing for each in args)]
    yield from (_axes(*each, thing) for each in mine or [(None, ())])


def _resolved(node: Any, known: Mapping[Key, Any]) -> Any:
    """Return the value of a fused task's argument."""
    value = known.get(node.key, node) if isinstance(node, TaskRef) else node
    return value.value if isinstance(value, DataNode) else value


def _whole(thing: StoredPart | zarr.Array) -> Axes:
    return thing.axes if isinstance(thing, StoredPart) else tuple(map(range, thing.shape))


def _axes(function: Any, given: Sequence[Any], thing: StoredPart | zarr.Array) -> Axes:
    """Return the elements that a function reads of its argument; all for an unknown function."""
    from dask.array.core import getter, getter_inline, getter_nofancy

    whole, spans = _whole(thing), []
    if function is read_group:
        spans = [slice(edges[0], edges[-1]) for edges in given[1]]
    elif function in (copy_tile, read_copy):
        spans = [slice(*ends) for ends in given[-1]]
    elif function in (getter, getter_inline, getter_nofancy) and isinstance(given[1], tuple):
        spans = list(given[1])
    if len(spans) != len(whole) or not all(isinstance(span, slice) and (span.step or 1) > 0 for span in spans):
        return whole
    return tuple(taken[span] for taken, span in zip(whole, spans, strict=True))
