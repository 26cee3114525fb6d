"""Plan of a reduction: the ranks of its segments, the exchange of partial results, and its cost.

Each rank has a run of segments. If the segments of a part are on several ranks, partial results go in one exchange to
the owners of the result's chunks. Each owner folds them in order: a tree of fixed branches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from oocarrays.errors import plural
from oocarrays.kernels.reductions import PIECE
from oocarrays.mapping.grid import Stored, ceil_div
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes
from oocarrays.plan.cost import Pipeline, Traffic
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.plan import (
    PROCESS_BYTES,
    Bytes,
    Facts,
    Memory,
    OnePass,
    estimate,
    first_fitting,
    largest_memory,
    shared_facts,
)
from oocarrays.plan.reductions.cut import ReduceCut, spread_over
from oocarrays.plan.sections.read import SectionPlan

WORK = {"var": 6, "std": 6}
"""Element copies that take as long as reducing an element; two for all other methods."""


@dataclass(frozen=True, kw_only=True)
class ReducePlan(OnePass):
    """Frozen plan of a reduction."""

    cut: ReduceCut
    how: str
    """Name of the method; ``"functions"`` for user functions."""
    copied_bytes: int
    """Bytes of a thread's copy of an element: decoded, or of a group; 0 without a copy."""
    state_bytes: int
    """Bytes of an element of a partial result."""
    target: Stored | None
    """Array to write; None if the result is returned in memory."""
    most_groups: tuple[int, int]
    """Maximum number of groups with elements in a box, and in a segment."""
    masks: int
    """Bytes of masks and labels in each process."""
    ranks: int
    """Number of ranks with segments: one on threads, otherwise one per worker."""
    threads: int
    """Number of boxes that a rank reduces at one time."""
    schedule: Schedule | None
    """Schedule of sending partial results to the owners of their parts; None without messages."""

    def facts(self) -> Facts:
        cut = self.cut
        groups = f", by {cut.groups} groups" if cut.groups else ""
        parts = f"{cut.units} of {cut.parts} parts; {len(self.shared)} parts lie on several ranks"
        more = f", {self.threads} at one time, {self.ranks} ranks"
        return [
            ("array", (cut.shape, ", ", Bytes(cut.source.nbytes))),
            ("reduction", (f"{self.how} along {', '.join(map(str, cut.axes))}{groups} → ", cut.result_shape)),
            ("boxes", (f"{cut.parts * cut.deep} of ", cut.lengths, more)),
            ("partial results", (parts,)),
            *shared_facts(self, reads=estimate(cut.source.coded), decodes="", writes=" (estimate)", messages=""),
            *shared_facts(self, tasks="", peak_memory=None, predicted=""),
        ]

    @property
    def title(self) -> str:
        boxes = plural(self.threads, "box", "es") + " at one time"
        return boxes if self.schedule is None else f"{boxes}, {self.schedule.name}"

    def mine(self, rank: int) -> range:
        return spread_over(self.cut.units, self.ranks, rank)

    def is_whole(self, part: int, rank: int) -> bool:
        """Return whether all segments of a part belong to one rank, which then owns it."""
        units = self.mine(rank)
        return units.start <= part * self.cut.segments and (part + 1) * self.cut.segments <= units.stop

    @cached_property
    def shared(self) -> list[int]:
        """Parts with segments on several ranks."""
        return sorted(set().union(*self._has))

    def takes(self, rank: int) -> list[tuple[int, int]]:
        """Return the chunks of shared parts that a rank folds and returns, as indices of part and of groups."""
        each = self.cut.group_chunks
        return [(self.shared[n // each], n % each) for n in spread_over(len(self.shared) * each, self.ranks, rank)]

    def wants(self, source: int, target: int) -> bool:
        return not self._has[source].isdisjoint(self._folds[target])

    @cached_property
    def _has(self) -> list[set[int]]:
        """Shared parts with a segment on each rank."""
        return [{part for part in self._ends(rank) if not self.is_whole(part, rank)} for rank in range(self.ranks)]

    @cached_property
    def _folds(self) -> list[set[int]]:
        return [{part for part, _ in self.takes(rank)} for rank in range(self.ranks)]

    def parts(self) -> Iterator[tuple[int, ...]]:
        yield from ((0, unit) for unit in range(self.cut.units))
        yield from ((1, part, chunk) for part in range(self.cut.parts) for chunk in range(self.cut.group_chunks))

    def sections(self, part: tuple[int, ...]) -> dict[str, Sequence[Section]]:
        """Return the elements of the target that a part writes; none for a partial result."""
        return {"": [self.cut.place(*part[1:])]} if part[0] else {}

    @property
    def result_bytes(self) -> int:
        return 8 * math.prod(self.cut.result_shape)

    def _state(self, groups: int, elements: int | None = None) -> int:
        """Return the bytes of a partial result, of a whole part by default."""
        return self.state_bytes * (self.cut.part_elements if elements is None else elements) * max(groups, 1)

    @cached_property
    def box_bytes(self) -> int:
        """Bytes of reducing one box: stored, decoded or copied for a group, masks, and its result."""
        lengths = self.cut.lengths
        elements = math.prod(lengths)
        deviations = min(PIECE, elements) * 32 * (self.how in WORK)
        return (
            elements * (self.cut.source.itemsize + self.copied_bytes + 2)
            + deviations
            + self._state(self.most_groups[0], self._column)
        )

    @property
    def _column(self) -> int:
        """Elements of the result of a box, in one group."""
        return math.prod(self.cut.lengths[axis] for axis in self.cut.kept)

    @cached_property
    def fixed(self) -> Memory:
        """Memory of a rank in addition to boxes: partial results of a part that it owns alone, and its result."""
        cut, groups = self.cut, max(self.cut.groups, 1)
        made = 8 * cut.part_elements * groups
        if self.target is None:
            made = self.result_bytes + made // cut.group_chunks
        alone = any(self.is_whole(part, rank) for rank in range(self.ranks) for part in self._ends(rank))
        folded = self._state(groups) + (self._state(self.most_groups[1]) if cut.segments > 1 else 0)
        folding = (self.state_bytes + 40) * self._column  # two states of a column: the result, and temporaries
        return Memory.of(masks=self.masks, result=made, partial_results=folded * alone, folding=folding)

    def _ends(self, rank: int) -> list[int]:
        """Return the first parts of a rank, and its last; it owns all parts between them alone."""
        units = self.mine(rank)
        parts = range(self.cut.unit(units.start)[0], self.cut.unit(units.stop - 1)[0] + 1) if units else ()
        return [*parts[:2], *parts[-1:]]

    @cached_property
    def waiting(self) -> int:
        """Maximum bytes of a rank's partial results before the exchange."""
        most = max(
            (sum(not self.is_whole(self.cut.unit(unit)[0], rank) for unit in self.mine(rank)) for rank in self._some()),
            default=0,
        )
        return most * self._state(self.most_groups[1])

    @cached_property
    def coming(self) -> int:
        """Maximum bytes of partial results that an owner receives."""
        most = max((len(self.takes(rank)) for rank in self._some()), default=0)
        return most * self.cut.segments * self._state(min(self.cut.group_chunk or 1, self.most_groups[1]))

    def _some(self) -> range:
        return range(self.ranks if self.shared else 0)

    @cached_property
    def memory(self) -> Memory:
        boxes = Memory.of(boxes=self.threads * self.box_bytes)
        if self.processes is None:
            return self.fixed + boxes
        reducing = self.fixed + boxes + Memory.of(waiting=self.waiting)
        apart = Memory.of(masks=self.fixed["masks"], result=self.fixed["result"])
        meeting = apart + Memory.of(waiting=self.waiting, messages=2 * self.coming + self.waiting // self.ranks)
        ranks = ceil_div(self.ranks, self.processes)
        return Memory.of(stacks=PROCESS_BYTES) + largest_memory(reducing, meeting) * ranks

    @property
    def times_decoded(self) -> float:
        """Average number of times a coded source is decoded; 0 if it is not coded."""
        source = self.cut.source
        return self.traffic.decoded_bytes / max(source.padded_bytes, 1) if source.coded else 0.0

    @cached_property
    def traffic(self) -> Traffic:
        """Traffic of the reduction; exact if nothing is coded and no chunk is missing."""
        cut, target = self.cut, self.target
        ranks, away = range(self.ranks if self.schedule else 0), bool(self.processes)
        messages = sum(a != b and self.wants(a, b) for a in ranks for b in ranks)
        results = len(self.shared) * cut.segments * self._state(self.most_groups[1]) if messages else 0
        tasks = 2 + (2 + away) * self.ranks + 3 * messages + away
        total = Traffic(tasks=tasks, messages=messages, exchanged_bytes=results)
        for box, times in self._boxes():
            plan = SectionPlan.of(cut.source, box, self.costs)
            copied = Traffic(pieces=plan.chunks, copied_bytes=WORK.get(self.how, 2) * plan.useful_bytes)
            total += (plan.traffic + copied) * times
        if target is None:
            return total
        ratio = self.costs.stored_ratio(target)
        nbytes = target.grid.count * target.chunk_bytes
        return total + Traffic(
            write_requests=target.grid.count, written_bytes=int(nbytes * ratio), encoded_bytes=nbytes * target.coded
        )

    def _boxes(self) -> Iterator[tuple[Axes, int]]:
        """Yield a box of each shape, with the number of them."""
        along = []
        for n, length in zip(self.cut.shape, self.cut.lengths, strict=True):
            full, rest = divmod(n, length)
            along.append([(range(length), full)] * bool(full) + [(range(n - rest, n), 1)] * bool(rest))
        for each in product(*along):
            yield tuple(axis for axis, _ in each), math.prod(times for _, times in each)

    @property
    def _work(self) -> tuple[Stored, Stored, Pipeline]:
        boxes, cores = self.cut.parts * self.cut.deep, self.threads * self.ranks
        pipeline = Pipeline(ranks=max(min(cores, boxes), 1), turns=boxes, workers=self.processes is not None)
        return self.cut.source, self.target or self.cut.source, pipeline

    def within(self, threads: int) -> ReducePlan:
        """Return the plan with as many threads as memory allows."""
        least, _ = first_fitting([replace(self, threads=1)], self.budget, "this reduction")
        ranks = ceil_div(self.ranks, self.processes or 1)
        more = (self.budget - least.peak_bytes) // (ranks * self.box_bytes)
        plan = replace(self, threads=max(min(threads, 1 + more), 1))
        return plan if plan.peak_bytes <= self.budget else least
