"""Lazy arrays computed from their own target: every element must be read before it is overwritten.

    a + 1       read 0 ─► add ─► write 0        each write waits for all reads of its elements: correct in any order
    a[::-1]     read 0 ─► turn ─► write 3       no dependency makes the read of 3 precede its write: refused

Optimised tasks may read the input of two writes twice, once too late; unoptimised tasks read it once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from graphlib import TopologicalSorter
from itertools import product
from operator import or_
from typing import Any, cast

from dask._task_spec import convert_legacy_graph
from dask.core import get_dependencies
from dask.task_spec import Task

from oocarrays.graphs.collective.read_tasks import Reading
from oocarrays.graphs.lazy.reads import PlainCopy, held
from oocarrays.graphs.run.run import Run
from oocarrays.graphs.tracing.parts import KnownParts, TakenPart, TaskUse, as_ranges, finder, uses
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
    names, known = [target.name for target in targets], KnownParts()

    def part_in(thing: Any) -> TakenPart | None:
        is_read = isinstance(thing, Run) and isinstance(thing.program, Reading)
        return known.part(thing.program.file if is_read else thing)

    parts = {id(part): part for task in tasks.values() for part in held(task, part_in)}
    return any(_numbers(part, names) for part in parts.values())


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
    reads = list(_reads(graph, [target.name for target in targets]))
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


def names_read(node: Any, targets: Sequence[str]) -> bool:
    """Return whether a task reads an array with any of these names."""
    return any(_numbers(part, targets) for part in held(node, KnownParts().part))


def _numbers(part: TakenPart, targets: Sequence[str]) -> list[int]:
    """Return the numbers of the targets that are the array of a part, or local arrays opened by fsspec."""
    store, path = cast("Any", part.array.store_path.store), part.array.store_path.path
    protocols = getattr(getattr(store, "fs", None), "protocol", ())
    name = f"{store.path}/{path}".rstrip("/") if "file" in protocols else location(part.array)
    return [number for number, target in enumerate(targets) if name == target or lie_together(name, target)]


def _reads(graph: Mapping[Key, Any], targets: Sequence[str]) -> Iterator[TaskAccess]:
    known, numbers, nodes = KnownParts(), dict[int, list[int]](), convert_legacy_graph(graph)
    find = finder(nodes)
    for key, task in nodes.items():
        if not isinstance(task, Task) or task.func == PlainCopy.make or ArrayFile in map(type, task.args):
            continue  # a task that only writes to its arrays, or makes others like them
        each = map(partial(_used, known), uses(task, find, known.is_source, spare=True))
        used = [found for found in each if found is not None]
        seen = {id(part) for part, _ in used}
        others = [(part, [_whole(part)]) for part in held(task, known.part) if id(part) not in seen]
        for part, taken in (*used, *others):
            if id(part) not in numbers:
                numbers[id(part)] = _numbers(part, targets)
            for number, axes in product(numbers[id(part)], taken):
                yield TaskAccess(key=key, number=number, axes=axes)


def _used(known: KnownParts, use: TaskUse) -> tuple[TakenPart, list[Axes]] | None:
    """Return the elements of an array that a task uses, along each axis from the first to the last one."""
    is_collective = isinstance(use.source, Reading)
    part = known.part(use.source.file if is_collective else use.source)
    if part is None:  # Dask may store elsewhere
        return None
    if is_collective:
        return part, [tuple(_hull(as_ranges(taken)) for taken in use.source.plan.requests[use.key])]
    if use.key is None or use.writes or part.points is not None:
        return part, [_whole(part)]
    return part, [tuple(map(_hull, along)) for along in part.take(use.key)]


def _whole(part: TakenPart) -> Axes:
    axes = part.axes if part.points is None else map(range, part.array.shape)
    return tuple(_hull(as_ranges(axis)) for axis in axes)


def _hull(ranges: Sequence[range]) -> range:
    return ranges[0] if len(ranges) == 1 else range(ranges[0].start, ranges[-1].stop) if ranges else range(0)
