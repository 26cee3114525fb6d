"""What becomes of a group: some of its arrays are rewritten, one after the other; all others are copied as they are.

    group/ lat, lon, time   ─► copied, object by object, nothing decoded:   lane 0  ▤▤ ▤▤ ▤
           deep/static      ─►                                              lane 1  ▤▤ ▤▤
           air              ─► a plan of its own                                          ▶▶▶▶▶
           deep/temp        ─► a plan of its own                                                ▶▶▶▶▶   time ─►

Lanes copy at the same time; the plans follow one another. So no more is held than the largest of them holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from oocarrays.errors import BudgetError
from oocarrays.plan.alternative import Alternative
from oocarrays.plan.cost import Traffic
from oocarrays.plan.memory import Holding, Memory, Resources, largest
from oocarrays.plan.plan import Bytes, Facts, of_members, shared_facts, where
from oocarrays.plan.rechunk.passes import Pass
from oocarrays.plan.rechunk.plan import RechunkPlan

BATCH_BYTES = 2**26
"""Bytes of the arrays that one task copies, about: few tasks, and none that takes much longer than the others."""
BATCHES_A_LANE = 8
"""Tasks of each lane at most, about."""
COPIES_IN_MEMORY = 2
"""An object that goes from store to store is in memory as it came, and as it goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPiece:
    """Some stored objects of one array, told by their keys: every object is in one of ``parts``."""

    name: str
    """Path of the array in its group."""
    part: int
    """Which of the parts."""
    parts: int
    """Into how many the array is divided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToCopy:
    """An array that is to be copied as it is."""

    name: str
    """Path of the array in its group."""
    nbytes: int
    """Bytes of its elements; of those of no fixed size, an estimate."""
    object_bytes: int
    """Bytes of the largest object that it is stored in, at most; of elements of no fixed size, an estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """How arrays are copied as they are."""

    batches: tuple[tuple[MemberPiece, ...], ...] = ()
    """What each task copies."""
    lanes: int = 1
    """Tasks at one time."""
    at_once: int = 1
    """Objects that a task has under way."""
    nbytes: int = 0
    """Bytes of all elements that are copied."""
    peak_bytes: int = 0
    """Bytes that a process holds meanwhile, at most."""
    seconds: float = 0.0
    """Predicted."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(piece.name for batch in self.batches for piece in batch))

    def lane(self, number: int) -> Iterator[int]:
        yield from range(number, len(self.batches), self.lanes)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan(Holding):
    """Everything that the rechunk of a group will do, before it does anything."""

    members: tuple[tuple[str, RechunkPlan], ...]
    """The arrays that are rewritten, by their paths, in the order in which they are."""
    copies: CopyPlan
    """The arrays that are copied as they are, before the others."""
    budget: int
    """Bytes that each process may hold above its idle level."""
    processes: int | None
    """Workers of the cluster that it is made for; None for threads of one process."""

    def __getitem__(self, name: str) -> RechunkPlan:
        return dict(self.members)[name]

    def facts(self) -> Facts:
        copies = self.copies
        copied = f"{len(copies.names)} arrays, ", Bytes(copies.nbytes), f", {len(copies.batches)} tasks"
        return [
            *([("workers", (self.processes,))] if self.processes else []),
            ("arrays", (f"{len(self.members)} to rechunk, one after the other",)),
            ("copied as stored", copied if copies.names else ("none",)),
            *shared_facts(self, reads="", writes="", scratch="", tasks=""),
            *shared_facts(self, peak_memory=where(self.processes), predicted=""),
        ]

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        """Strategies that were compared for each array, by its path."""
        return of_members(self.members)

    @property
    def passes(self) -> tuple[Pass, ...]:
        """Those of all arrays, in the order in which they run."""
        return tuple(step for _, plan in self.members for step in plan.passes)

    @property
    def ranks(self) -> int:
        """The most logical processors that one array has; on a cluster no fewer than workers, which all copy."""
        return max((plan.ranks for _, plan in self.members), default=1)

    @property
    def memory(self) -> Memory:
        """Held at one time, at most."""
        return largest(Memory.of(copies=self.copies.peak_bytes), *(plan.memory for _, plan in self.members))

    @property
    def scratch_bytes(self) -> int:
        """Bytes of disk that scratch takes at one time, at most."""
        return max((plan.scratch_bytes for _, plan in self.members), default=0)

    @property
    def seconds(self) -> float:
        return self.copies.seconds + sum(plan.seconds for _, plan in self.members)

    @property
    def traffic(self) -> Traffic:
        """Count what moves of the arrays that are rewritten, with the tasks that copy the others."""
        frame = Traffic(tasks=2 + len(self.copies.batches))
        return reduce(add, (plan.traffic for _, plan in self.members), frame)

    @property
    def tasks(self) -> int:
        return self.traffic.tasks


def plan_copies(arrays: Sequence[ToCopy], resources: Resources, *, at_once: int, local: bool) -> CopyPlan:
    """Plan how some arrays are copied as they are, in a budget of bytes."""
    if not arrays:
        return CopyPlan()
    budget, costs, shared = resources.budget, resources.costs, resources.workers is None
    lanes = resources.workers or resources.threads
    nbytes = sum(array.nbytes for array in arrays)
    largest = max(arrays, key=lambda array: array.object_bytes)
    each = 0 if local else COPIES_IN_MEMORY * largest.object_bytes
    if each > budget:
        raise BudgetError(budget, each, f"copying {largest.name}")
    size = max(BATCH_BYTES, -(-nbytes // (lanes * BATCHES_A_LANE)))
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
    """Small arrays together, large ones in parts."""
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
