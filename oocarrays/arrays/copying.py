"""Reads of arrays through rechunked copies in scratch, for arrays with chunks across the slabs.

a   maps, zstd    ──► rechunked into scratch, each chunk decoded once ──┐
                                                                        ├─ whole chunks of all, slab by slab
b   series, zstd  ──────────────────────────────────────────────────────┘

Without copies, slabs across coded chunks decode each chunk once for every slab that it overlaps. For an array of maps
forty times the budget, read as series, that is about forty times for every chunk.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import reduce
from math import inf
from operator import add
from typing import Any

from oocarrays.errors import BudgetError, OocError
from oocarrays.mapping.grid import Stored
from oocarrays.plan.plan import largest_memory
from oocarrays.plan.slabs.plan import SlabPlan, SourceCopies
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.places import free_bytes
from oocarrays.storage.journal.leftovers import discard, hold, scratch_below

Planned = Callable[[Sequence[Stored], int], SlabPlan]
"""Planner of the slabs to read arrays together, within a budget in bytes."""
Chunkings = Iterable[Mapping[int, tuple[int, ...]]]
"""Candidate chunks of copies, by the number of the array."""
WORTH = 0.8
"""Maximum share of the seconds without copies that copies may take: above it, the extra writes are not worth it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copying:
    """Copies of some arrays in scratch, and the slabs to read them together with the others."""

    files: Sequence[ArrayFile]
    folder: str
    jobs: Mapping[int, Any]
    """Job for each copy, by the number of the array."""
    plan: SlabPlan

    @property
    def seconds(self) -> float:
        """Predicted seconds of making the copies and reading them."""
        copying: float = sum(job.plan.seconds for job in self.jobs.values())
        return copying + self.plan.pass_seconds

    @property
    def nbytes(self) -> int:
        """Peak size of scratch in bytes."""
        plans = [job.plan for job in self.jobs.values()]
        made: int = sum(plan.target.nbytes for plan in plans)
        return made + max(int(plan.scratch_bytes) for plan in plans)

    @property
    def planned(self) -> SlabPlan:
        plans = [job.plan for job in self.jobs.values()]
        copies = SourceCopies(
            sources=tuple(file.stored for file in self.files),
            times_decoded=max(plan.times_decoded for plan in plans),
            memory=largest_memory(*(plan.memory for plan in plans)),
            traffic=reduce(add, (plan.traffic for plan in plans)),
            seconds=sum(plan.seconds for plan in plans),
            scratch_bytes=self.nbytes,
        )
        return replace(self.plan, copies=copies)

    @contextmanager
    def made(self) -> Iterator[list[ArrayFile]]:
        """Make the copies, and yield all arrays to read; the copies are removed at the end."""
        held = hold(self.folder)
        try:
            made = {n: array_file.describe_source(job.run().zarr, "fill") for n, job in self.jobs.items()}
            yield [made.get(number, file) for number, file in enumerate(self.files)]
        finally:
            discard(self.folder, held)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copier:
    files: Sequence[ArrayFile]
    """The arrays, all of one shape."""
    planned: Planned
    """Planner of slabs of the arrays, or of their copies."""
    copy: Callable[..., Any]
    """Planner of a rewrite of one array in scratch, as `scratch_copy`."""
    place: str

    def best(self, chunkings: Chunkings, budget: int) -> SlabPlan | Copying:
        """Return the slabs of the arrays, or a plan with copies if that takes less time."""
        chunkings = list(chunkings)
        try:
            plan = self.planned([file.stored for file in self.files], budget)
        except BudgetError as error:
            found = self.cheapest(chunkings, budget, inf)
            if found is None:
                least = filter(None, (self._least(chunks, budget) for chunks in chunkings))
                raise BudgetError(budget, min([error.least, *least]), error.what) from None
            return found
        return self.cheapest(chunkings, budget, WORTH * plan.pass_seconds) or plan

    def cheapest(self, chunkings: Chunkings, budget: int, most: float) -> Copying | None:
        """Return the plan of least time; None if it is not below ``most`` seconds, or does not fit."""
        ways, room = [], free_bytes(self.place)
        for chunks in chunkings:
            with suppress(OocError):  # it cannot be copied, or not in this budget
                ways.append(self._way(chunks, budget))
        fitting = [way for way in ways if way.seconds < most and way.nbytes < room]
        return min(fitting, key=lambda way: way.seconds, default=None)

    def _least(self, chunks: Mapping[int, tuple[int, ...]], budget: int) -> int | None:
        """Return the minimum budget of a plan; None if no budget suffices."""
        for _ in range(16):  # each part of a plan states its own
            try:
                return budget if self._way(chunks, budget).nbytes < free_bytes(self.place) else None
            except BudgetError as error:
                budget = error.least
            except OocError:
                return None
        return None

    def _way(self, chunks: Mapping[int, tuple[int, ...]], budget: int) -> Copying:
        folder = str(scratch_below(self.place, uuid.uuid4().hex[:12]))
        jobs = {
            number: self.copy(self.files[number], f"{folder}/{number}", lengths, budget, self.place)
            for number, lengths in chunks.items()
        }
        stored = [jobs[n].plan.target if n in jobs else file.stored for n, file in enumerate(self.files)]
        return Copying(files=self.files, folder=folder, jobs=jobs, plan=self.planned(stored, budget))
