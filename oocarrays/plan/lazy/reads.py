"""Plan of reading a stored array as the blocks of a lazy one, grouped so that each chunk is read once.

    stored chunks   ┌───────┬───────┬───────┐     blocks    each block reads the chunks that it needs
    blocks          │ 0 │ 1 │ 2 │ 3 │ 4 │ 5 │     groups    (0 1) (2 3) (4 5): a task reads a box of blocks,
                    └───────┴───────┴───────┘               each chunk once, and returns the blocks

    row slabs       ────────────────
    to columns      ────────────────              scratch   no group of columns fits in memory: chunks are read once,
                    0 │ 1 │ 2 │ 3                           and written plain; a block reads its own from there

Groups are chosen axis by axis. They end at chunk boundaries if possible; otherwise each further group that touches a
chunk reads it again. The fastest way that fits a task's share of memory is chosen. Thakur 1995, section 5.3.2, reads
the partitions of the array in sequence; here they are read when a scheduler asks for them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import ClassVar, Literal

from oocarrays.errors import BudgetError, in_number
from oocarrays.mapping.along import Line, product_line
from oocarrays.mapping.grid import Stored, turned, turned_back
from oocarrays.mapping.overlap import (
    BlockLengths,
    Grouping,
    cut_line,
    grouping,
    groupings,
    largest_block,
    singly,
    span_elements,
)
from oocarrays.plan.cost import Traffic, Work, seconds
from oocarrays.plan.plan import (
    TAKEN,
    Alternative,
    Bytes,
    Facts,
    Holding,
    Memory,
    Resources,
    largest_memory,
    shared_facts,
)
from oocarrays.plan.sections.sieve import BUFFER_BYTES, IN_FLIGHT

Method = Literal["blocks", "groups", "scratch"]
SIEVE_BYTES = IN_FLIGHT * BUFFER_BYTES
"""Bytes of the buffers for reading byte ranges."""
MOST_TILE_BYTES = 16 * 2**20
"""Maximum bytes that a group reads at a time, unless a chunk is larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyReadsPlan(Holding):
    """Frozen plan of reading the blocks of a lazy array."""

    stored: Stored
    axes: tuple[range, ...]
    """Elements of the lazy array along each axis of the stored one."""
    blocks: BlockLengths
    """Lengths of its blocks along each axis, in elements."""
    method: Method
    """``"blocks"``: each block is read separately; ``"groups"``: several together; ``"scratch"``: from a plain copy."""
    groups: tuple[tuple[tuple[int, int], ...], ...]
    """First block of each group along each axis, and one past its last."""
    tile: tuple[int, ...]
    """Elements along each axis of a single read, for tasks that read several blocks."""
    task_memory: Memory
    """Peak memory of one task: its result, and the buffers for reading."""
    budget: int
    """Bytes that a process may hold."""
    threads: int
    """Concurrent tasks of a process that share the budget."""
    read_requests: int
    """Visits to stored chunks that are read whole; otherwise contiguous runs."""
    read_bytes: int
    """Stored bytes read to compute every block; an estimate if chunks are coded."""
    once_bytes: int = 0
    """Stored bytes if each were read only once."""
    most_read_bytes: int
    """Stored bytes read if every gap between requested elements of a chunk is read as well."""
    seconds: float
    processes: ClassVar[None] = None
    """Blocks are read by any scheduler."""
    alternatives: tuple[Alternative, ...] = ()
    """Every method that was compared."""

    def facts(self) -> Facts:
        about = "" if self.exact else " (estimate)"
        requests = "chunks" if self.stored.coded else "contiguous runs"
        how = {
            "blocks": "each block by itself",
            "groups": "blocks in groups, each stored chunk once a group",
            "scratch": "each stored chunk once, into a plain copy; blocks out of that",
        }
        return [
            ("array", (self.shape, ", ", Bytes(self.nbytes))),
            ("blocks", (f"{math.prod(map(len, self.blocks))}, at most ", Bytes(self.block_bytes), " each")),
            ("read", (how[self.method],)),
            ("a task holds", (Bytes(self.task_bytes), " at most")),
            *shared_facts(self, peak_memory=f", {self.threads} tasks at one time"),
            ("reads", (Bytes(self.read_bytes), f"{about} in {self.read_requests} {requests}{self._times()}")),
            *shared_facts(self, scratch="", predicted=""),
        ]

    def _times(self) -> str:
        """Return the number of times that stored bytes are read as text, empty for one."""
        least, most = (f"{times:.3g}" for times in self.times_read)
        if most == "1":
            return ""
        if least == most:
            return f": each stored byte {least} times, on average"
        return f": with what lies between, each stored byte {least} to {most} times, on average"

    @property
    def ranks(self) -> int:
        return self.threads

    @property
    def traffic(self) -> Traffic:
        return Traffic(read_requests=self.read_requests, read_bytes=self.read_bytes)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(len, self.axes))

    @property
    def exact(self) -> bool:
        """Whether a read requests exactly the bytes of its elements; otherwise gaps between them may be read, too."""
        return self.stored.local and not self.stored.coded and all(axis.step == 1 for axis in self.axes)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.stored.itemsize

    @property
    def times_read(self) -> tuple[float, float]:
        """Mean reads of a stored byte, at least and at most: above 1 if tasks share chunks, or read gaps, too."""
        once = self.once_bytes or 1
        return self.read_bytes / once, self.most_read_bytes / once

    @property
    def block_bytes(self) -> int:
        return largest_block(self.blocks) * self.stored.itemsize

    @property
    def task_bytes(self) -> int:
        return self.task_memory.nbytes

    @property
    def memory(self) -> Memory:
        """Peak memory of a process: its tasks, and one finished task with blocks not yet consumed."""
        return self.task_memory * (self.threads + 1)

    @property
    def scratch_bytes(self) -> int:
        """Bytes of the plain copy on disk."""
        return self.nbytes if self.method == "scratch" else 0

    def __repr__(self) -> str:
        return in_number(
            f"<oocarrays.LazyReadsPlan {self.shape} in {math.prod(map(len, self.blocks))} blocks, {self.method}, "
            f"a task holds {self.task_bytes / 2**20:.1f} MiB>"
        )


def plan_lazy_reads(
    stored: Stored,
    axes: Sequence[range],
    blocks: BlockLengths,
    resources: Resources,
    *,
    scratch_room: int = 0,
    strict: bool = False,
) -> LazyReadsPlan:
    """Choose among ways within a twentieth of the least seconds: one without scratch, then the smallest."""
    problem, budget = _Problem(stored=stored, axes=tuple(axes), blocks=blocks, resources=resources), resources.budget
    ways = problem.ways(scratch_room)
    rooms = (problem.share, budget // resources.threads, budget)
    fitting = next((fit for room in rooms if (fit := [way for way in ways if way.task_bytes <= room])), ways[:1])
    if strict and fitting[0].task_bytes > budget:
        raise BudgetError(budget, problem.least(scratch_room), "a block of the lazy array")
    least = min(way.seconds for way in fitting)
    alike = (way for way in fitting if way.seconds <= 1.05 * least)
    best = min(alike, key=lambda way: (way.method == "scratch", way.task_bytes))
    considered = tuple(_considered(way, best, problem.share) for way in _one_a_method(ways, problem.share))
    return replace(best, once_bytes=problem.once(), alternatives=considered)


@dataclass(frozen=True, kw_only=True)
class _Problem:
    stored: Stored
    axes: tuple[range, ...]
    blocks: BlockLengths
    resources: Resources

    @cached_property
    def share(self) -> int:
        """Bytes of a task, beside one finished task whose blocks are not yet consumed."""
        return self.resources.budget // (self.resources.threads + 1)

    @property
    def nbytes(self) -> int:
        return math.prod(map(len, self.axes)) * self.stored.itemsize

    @cached_property
    def tile(self) -> tuple[int, ...]:
        """Elements along each axis that are copied to scratch at a time."""
        return tile_of(self.stored, min(MOST_TILE_BYTES, self.share // 8))

    def ways(self, scratch_room: int) -> list[LazyReadsPlan]:
        """Return every way; a plain copy is included if scratch has room for it."""
        copied = 0 < self.nbytes <= scratch_room and self.stored.coded
        return [self.alone(), *self.grouped(), *([self.through_scratch()] if copied else [])]

    def least(self, scratch_room: int) -> int:
        """Return the minimum budget above one that is too small: tiles, and the memory for them, grow with it."""
        problem, budget = self, self.resources.budget
        while (needed := min(way.task_bytes for way in problem.ways(scratch_room))) > budget:
            problem, budget = replace(self, resources=replace(self.resources, budget=needed)), needed
        return budget

    def alone(self) -> LazyReadsPlan:
        return self._way([grouping(*axis, singly(len(axis[1]))) for axis in self._along()])

    def grouped(self) -> Iterator[LazyReadsPlan]:
        """Yield every way that groups blocks, at most 4,096."""
        along = [list(groupings(*axis)) for axis in self._along()]
        while math.prod(map(len, along)) > 2**12:
            longest = max(range(len(along)), key=lambda axis: len(along[axis]))
            along[longest] = along[longest][::2]
        for way in map(self._way, product(*along)):
            if way.method == "groups":
                yield way

    def _along(self) -> Iterator[tuple[range, tuple[int, ...], int]]:
        return zip(self.axes, self.blocks, self.stored.grid.chunks, strict=True)

    def _way(self, groupings: Sequence[Grouping]) -> LazyReadsPlan:
        stored, costs = self.stored, self.resources.costs
        visits = math.prod(each.visits for each in groupings)
        count = math.prod(len(each.groups) for each in groupings)
        together = count < math.prod(map(len, self.blocks))
        lines = [each.line for each in groupings]
        if together:  # read tile by tile
            along = zip(groupings, self._along(), self.tile, strict=True)
            lines = [cut_line(each, *axis, tile) for each, axis, tile in along]
        runs = visits if stored.coded else product_line(turned(lines, stored.order)).runs
        read = int(visits * stored.chunk_bytes * costs.stored_ratio(stored)) if stored.coded else self.nbytes
        held = math.prod(each.longest for each in groupings) * stored.itemsize
        copied = self.nbytes * (2 if together else 1) + (visits * stored.chunk_bytes if stored.coded else 0)
        return LazyReadsPlan(
            stored=stored,
            axes=self.axes,
            blocks=self.blocks,
            method="groups" if together else "blocks",
            groups=tuple(each.groups for each in groupings),
            tile=self.tile,
            task_memory=reading_memory(stored, held, _tile_bytes(self.tile, stored) if together else 0),
            budget=self.resources.budget,
            threads=self.resources.threads,
            read_requests=runs,
            read_bytes=read,
            most_read_bytes=read if stored.coded else self._most_bytes(lines, groupings),
            seconds=self._seconds(visits, runs, read, copied, count) + costs.task_seconds * count * together,
        )

    def once(self) -> int:
        if not self.stored.coded:
            return self.nbytes
        return int(self._visits_once() * self.stored.chunk_bytes * self.resources.costs.stored_ratio(self.stored))

    def _visits_once(self) -> int:
        return math.prod(grouping(axis, (len(axis),), chunk, ((0, 1),)).visits for axis, _, chunk in self._along())

    def _most_bytes(self, lines: Sequence[Line], groupings: Sequence[Grouping]) -> int:
        """Return the bytes from the first to the last element of each piece of a chunk requested at one time."""
        if self.stored.local and all(axis.step == 1 for axis in self.axes):
            return self.nbytes
        cut = zip(lines, groupings, self.axes, strict=True)
        pieces = [each.visits if axis.step > 1 else line.runs for line, each, axis in cut]
        if any(axis.step > 1 for axis in self.axes):
            return max(math.prod(pieces) * self.stored.chunk_bytes, self.nbytes)
        lying = ([line.elements for line in lines], pieces, self.stored.grid.chunks)
        return span_elements(*(turned(each, self.stored.order) for each in lying)) * self.stored.itemsize

    def through_scratch(self) -> LazyReadsPlan:
        stored, costs, alone, visits = self.stored, self.resources.costs, self.alone(), self._visits_once()
        read = int(visits * stored.chunk_bytes * costs.stored_ratio(stored))
        copying = self._seconds(visits, visits, read, 3 * self.nbytes, visits) + costs.task_seconds * visits
        device = self.nbytes / costs.write_bandwidth + max(self.nbytes - costs.cache_bytes, 0) / costs.read_bandwidth
        pieces = alone.read_requests * (costs.piece_seconds + 2 * costs.request_seconds)
        block, tile = largest_block(self.blocks) * stored.itemsize, _tile_bytes(self.tile, stored)
        copying_memory = reading_memory(stored, tile) + Memory.of(blocks=min(tile, block))
        return replace(
            alone,
            method="scratch",
            task_memory=largest_memory(copying_memory, Memory.of(blocks=block, reading=min(SIEVE_BYTES, block))),
            read_requests=visits,
            read_bytes=read,
            most_read_bytes=read,
            seconds=copying + device + pieces,
        )

    def _seconds(self, visits: int, runs: int, read: int, copied: int, tasks: int) -> float:
        """Return the seconds of the device and of the cores, limited by the number of tasks."""
        stored, costs = self.stored, self.resources.costs
        cores = max(min(costs.cores, tasks), 1)
        decoded = visits * stored.chunk_bytes
        took = seconds(
            Work(pieces=visits, copied=copied, decoded=decoded, read=read, waits=runs / cores), costs, stored
        )
        asking = 0.0 if stored.remote else seconds(Work(ranges=runs), costs, stored).processor
        return float(took.processor / cores + took.device + asking)


# ---------------------------------------------------------------------- memory of a task


def tile_of(stored: Stored, most: int = MOST_TILE_BYTES, *, whole: bool = False) -> tuple[int, ...]:
    """Return the elements of a read along each axis: whole chunks, or parts of large divisible ones."""
    grid = stored.lying.grid
    shape = grid.shape
    tile = [max(min(c, n), 1) for c, n in zip(grid.chunks, shape, strict=True)]
    room = most // stored.itemsize
    for axis in reversed(range(len(tile))):
        more = max(room // math.prod(tile), 1)
        tile[axis] = max(min(tile[axis] * more, shape[axis]), 1)
    for axis in () if whole or stored.coded else range(len(tile)):
        others = math.prod(tile) // tile[axis]
        tile[axis] = min(tile[axis], max(room // others, 1))
    return turned_back(tile, stored.order)


def reading_memory(stored: Stored, held: int, tile: int = 0) -> Memory:
    """Return the memory of reading blocks: the blocks, a tile, and a decoded chunk or the buffers of a sieve."""
    beside = stored.chunk_bytes + stored.decode_workspace if stored.coded else min(SIEVE_BYTES, held)
    return Memory.of(blocks=held, tile=tile, reading=beside)


def _tile_bytes(tile: tuple[int, ...], stored: Stored) -> int:
    return math.prod(tile) * stored.itemsize


# ---------------------------------------------------------------------- alternatives


def _one_a_method(ways: Sequence[LazyReadsPlan], share: int) -> Iterator[LazyReadsPlan]:
    """Yield the best way of each method, preferring those that fit."""
    for method in ("blocks", "groups", "scratch"):
        mine = [way for way in ways if way.method == method]
        if mine:
            yield min(mine, key=lambda way: (way.task_bytes > share, way.seconds))


def _considered(way: LazyReadsPlan, best: LazyReadsPlan, share: int) -> Alternative:
    if way.method == best.method:
        way, reason = best, TAKEN
    elif way.task_bytes > share:
        reason = f"does not fit a task's share of {share} bytes"
    else:
        reason = "slower" if way.seconds > best.seconds else "no faster, and takes more room"
    name, peak = way.method, way.task_bytes
    return Alternative(name=name, seconds=way.seconds, peak_bytes=peak, reason=reason, traffic=way.traffic)
