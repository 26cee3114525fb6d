"""Plan of a group: some of its arrays are rewritten, one after the other; all others are copied as stored.

    group/ lat, lon, time   ─► copied, object by object, nothing decoded:   lane 0  ▤▤ ▤▤ ▤
           deep/static      ─►                                              lane 1  ▤▤ ▤▤
           air              ─► a plan of its own                                          ▶▶▶▶▶
           deep/temp        ─► a plan of its own                                                ▶▶▶▶▶   time ─►

Lanes copy at the same time; the plans follow one another. So peak memory is that of the largest of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from oocarrays.errors import BudgetError
from oocarrays.mapping.section import Section
from oocarrays.plan.cost import Traffic
from oocarrays.plan.plan import (
    Alternative,
    Bytes,
    Facts,
    Holding,
    Memory,
    Resources,
    largest_memory,
    of_members,
    shared_facts,
)
from oocarrays.plan.rechunk.counting import BATCH_BYTES
from oocarrays.plan.rechunk.passes import Pass
from oocarrays.plan.rechunk.plan import RechunkPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPiece:
    """Stored objects of one array, selected by their keys: every object is in one of ``parts``."""

    name: str
    """Path of the array in its group."""
    part: int
    parts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToCopy:
    """Array to copy as stored."""

    name: str
    nbytes: int
    """Bytes of its elements; an estimate for elements of no fixed size."""
    object_bytes: int
    """Maximum bytes of its stored objects; an estimate for elements of no fixed size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """Frozen plan of copying arrays as stored."""

    batches: tuple[tuple[MemberPiece, ...], ...] = ()
    """Pieces that each task copies."""
    lanes: int = 1
    """Number of concurrent tasks."""
    at_once: int = 1
    """Number of concurrent objects of a task."""
    nbytes: int = 0
    """Bytes of all copied elements."""
    peak_bytes: int = 0
    """Peak bytes of a process while copying."""
    seconds: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(piece.name for batch in self.batches for piece in batch))

    def parts(self) -> Iterator[tuple[int, ...]]:
        return ((number,) for number in range(len(self.batches)))

    def sections(self, part: tuple[int, ...]) -> dict[str, Sequence[Section]]:
        """Return no elements: a part copies whole objects."""
        return {}

    def lane(self, number: int) -> Iterator[int]:
        yield from range(number, len(self.batches), self.lanes)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan(Holding):
    """Frozen plan of rechunking a group."""

    members: tuple[tuple[str, RechunkPlan], ...]
    """Plans of the rewritten arrays by their paths, in the order of running."""
    copies: CopyPlan
    """Plan of the arrays that are copied as stored, before the others."""
    budget: int
    """Bytes that each process may hold above its idle level."""
    processes: int | None
    """Workers of the target cluster; None for threads of one process."""

    def __repr__(self) -> str:
        names = ", ".join(name for name, _ in self.members)
        return f"<oocarrays.GroupPlan {names}, {len(self.copies.names)} copied, {self.peak_text}>"

    def __getitem__(self, name: str) -> RechunkPlan:
        return dict(self.members)[name]

    def facts(self) -> Facts:
        copies = self.copies
        copied = f"{len(copies.names)} arrays, ", Bytes(copies.nbytes), f", {len(copies.batches)} tasks"
        return [
            *([("workers", (self.processes,))] if self.processes else []),
            ("arrays", (f"{len(self.members)} to rechunk, one after the other",)),
            ("copied as stored", copied if copies.names else ("none",)),
            *shared_facts(self, reads="", writes="", scratch="", tasks="", peak_memory=None, predicted=""),
        ]

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        return of_members(self.members)

    @property
    def passes(self) -> tuple[Pass, ...]:
        return tuple(step for _, plan in self.members for step in plan.passes)

    @property
    def ranks(self) -> int:
        return max((plan.ranks for _, plan in self.members), default=1)

    @property
    def memory(self) -> Memory:
        return largest_memory(Memory.of(copies=self.copies.peak_bytes), *(plan.memory for _, plan in self.members))

    @property
    def scratch_bytes(self) -> int:
        return max((plan.scratch_bytes for _, plan in self.members), default=0)

    @property
    def seconds(self) -> float:
        return self.copies.seconds + sum(plan.seconds for _, plan in self.members)

    @property
    def traffic(self) -> Traffic:
        """Traffic of the rewritten arrays, including the tasks that copy the others."""
        frame = Traffic(tasks=2 + len(self.copies.batches))
        return reduce(add, (plan.traffic for _, plan in self.members), frame)

    @property
    def tasks(self) -> int:
        return self.traffic.tasks


def plan_copies(arrays: Sequence[ToCopy], resources: Resources, *, at_once: int, local: bool) -> CopyPlan:
    """Plan about eight tasks a lane at most; an object that moves between stores is in memory twice."""
    if not arrays:
        return CopyPlan()
    budget, costs, shared = resources.budget, resources.costs, resources.workers is None
    lanes = resources.workers or resources.threads
    nbytes = sum(array.nbytes for array in arrays)
    largest = max(arrays, key=lambda array: array.object_bytes)
    each = 0 if local else 2 * largest.object_bytes
    if each > budget:
        raise BudgetError(budget, each, f"copying {largest.name}")
    size = max(BATCH_BYTES, -(-nbytes // (lanes * 8)))
    batches = tuple(_batches(arrays, size))
    lanes = min(lanes, len(batches), budget // max(each, 1) if shared else lanes)
    at_once = min(at_once, budget // max(each * (lanes if shared else 1), 1))
    return CopyPlan(
        batches=batches,
        lanes=lanes,
        at_once=at_once,
        nbytes=nbytes,
        peak_bytes=each * at_once * (lanes if shared else 1),
        seconds=nbytes / costs.read_bandwidth + nbytes / costs.write_bandwidth,
    )


def _batches(arrays: Iterable[ToCopy], size: int) -> Iterator[tuple[MemberPiece, ...]]:
    """Yield small arrays together, and large ones in parts."""
    batch: list[MemberPiece] = []
    room = size
    for array in arrays:
        parts = max(math.ceil(array.nbytes / size), 1)
        for part in range(parts):
            if batch and array.nbytes > room * parts:
                yield tuple(batch)
                batch, room = [], size
            batch.append(MemberPiece(name=array.name, part=part, parts=parts))
            room -= array.nbytes // parts
    if batch:
        yield tuple(batch)
