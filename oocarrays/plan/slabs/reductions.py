"""A reduction: how an array is cut, who reduces what, and where partial results meet.

    axes that are kept      ┌────┬────┬────┬────┐   time ─►     boxes of whole chunks
                            │ 0    1 │ 2    3   │               segments of them: folded in order, a partial result each
        part 0 = a chunk of │────┴────┼────┴────│
        the result          ├────┬────┼────┬────┤
        part 1              │ 4    5 │ 6    7   │
                            └────┴────┴────┴────┘
                              segment 0  segment 1              partial results of a part: folded in order, once more

All that depends on shape, chunks and groups alone, and so the bits of the result do: neither memory, nor threads, nor
ranks change one. Each rank has a run of segments; where those of a part are on several ranks, partial results go in one
exchange to the owners of the result's chunks, each of which folds them in order: a tree of fixed branches.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product

from oocarrays.errors import BudgetError
from oocarrays.kernels.reductions import PIECE
from oocarrays.mapping.grid import Stored, ceil_div
from oocarrays.mapping.section import Section
from oocarrays.plan.cost import OnePass, Phases, Pipeline, Traffic, pass_seconds
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.machine import Costs
from oocarrays.plan.memory import Holding, Memory, largest
from oocarrays.plan.sections.batches import gap_bytes
from oocarrays.plan.sections.read import SectionPlan

BOX_BYTES = 2**24
"""Of what is read and reduced at one time, where chunks are no larger."""
PART_BYTES = 2**20
"""Of a chunk of the result, where boxes are no larger."""
PARTS = 64
"""Of which there are so many, where boxes are small enough: for ranks."""
SEGMENTS, FEWEST = 16, 4
"""Partial results of all parts together, and of a part whose partial results are large."""
MOST_BYTES = 2**29
"""Of the partial results of a part, where there are more than the fewest."""
STATE_BYTES = 24
"""Of an element of a partial result, as segments are cut: a count, a sum, and what that lacks."""
REQUESTS = 16
"""Requests that a box has under way at one time, in stores that are not local files."""
PROCESS_BYTES = 3 * 2**20
"""Bytes that a process takes to run it on workers: stacks of threads, open arrays."""
FOLD_BYTES = 40
"""Of an element of what folding two states makes on its way."""
WORK = {"var": 6, "std": 6}
"""Copies of an element that take as long as reducing it; of all others two."""

Unit = tuple[int, int]
"""A part, and a segment of it."""
Spans = dict[int, tuple[int, int]]
"""First element, and one past the last, by axis."""


def spread_over(count: int, ranks: int, rank: int) -> range:
    """Return a rank's run of so many things.

    >>> [list(spread_over(5, 3, rank)) for rank in range(3)]
    [[0], [1, 2], [3, 4]]
    """
    return range(rank * count // ranks, (rank + 1) * count // ranks)


@dataclass(frozen=True, kw_only=True)
class ReduceCut:
    """How an array is cut for a reduction: a function of what is named here, and of nothing else.

    >>> from oocarrays.mapping.grid import ChunkGrid
    >>> maps = Stored(grid=ChunkGrid.of((1000, 256, 256), (10, 256, 256)), itemsize=8, local=True)
    >>> cut = ReduceCut(source=maps, axes=(0,), groups=0)
    >>> cut.lengths, cut.parts, cut.segments, cut.result_shape
    ((30, 256, 256), 1, 16, (256, 256))
    """

    source: Stored
    """What is reduced, as it is read."""
    axes: tuple[int, ...]
    """Along which."""
    groups: int
    """Groups of the indices of the axis; 0 where there are none, and no axis of them."""
    box_bytes: int = field(default_factory=lambda: BOX_BYTES)
    """Of a box, where chunks are no larger."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        return self.source.grid.shape

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """The axes that are not reduced."""
        return tuple(axis for axis in range(len(self.shape)) if axis not in self.axes)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Elements of a box along each axis: whole chunks, first as many as can be along axes that are reduced."""
        chunks = list(self.source.grid.chunks)
        nbytes = math.prod(chunks) * max(self.source.itemsize, 1)
        for axis in (*reversed(self.axes), *reversed(self.kept)):
            most = ceil_div(max(self.shape[axis], 1), chunks[axis])
            times = max(min(most, self.box_bytes // max(nbytes, 1)), 1)
            chunks[axis] *= times
            nbytes *= times
        return tuple(min(length, max(n, 1)) for length, n in zip(chunks, self.shape, strict=True))

    @cached_property
    def part_lengths(self) -> Spans:
        """Elements of a part along each axis that is kept, in a tuple with those of a box."""
        lengths = {axis: self.lengths[axis] for axis in self.kept}
        room = min(PART_BYTES // (8 * max(self.groups, 1)), math.prod(map(self.shape.__getitem__, self.kept)) // PARTS)
        for axis in reversed(self.kept):
            most = ceil_div(max(self.shape[axis], 1), lengths[axis])
            lengths[axis] *= max(min(most, room // math.prod(lengths.values())), 1)
        return {axis: (min(n, max(self.shape[axis], 1)), self.lengths[axis]) for axis, n in lengths.items()}

    @property
    def part_elements(self) -> int:
        """Of a part, in one group."""
        return math.prod(most for most, _ in self.part_lengths.values())

    @cached_property
    def group_chunk(self) -> int:
        """Groups in a chunk of the result; 0 where there are none."""
        return min(max(PART_BYTES // (8 * self.part_elements), 1), self.groups)

    @property
    def group_chunks(self) -> int:
        """Chunks of the result that a part is: of groups; 1 where there are none."""
        return ceil_div(self.groups, self.group_chunk) if self.groups else 1

    @property
    def _part_counts(self) -> dict[int, int]:
        return {axis: ceil_div(max(self.shape[axis], 1), most) for axis, (most, _) in self.part_lengths.items()}

    @cached_property
    def parts(self) -> int:
        """Parts in all."""
        return math.prod(self._part_counts.values())

    @cached_property
    def deep(self) -> int:
        """Boxes behind one another along the axes that are reduced."""
        return math.prod(ceil_div(max(self.shape[axis], 1), self.lengths[axis]) for axis in self.axes)

    @cached_property
    def segments(self) -> int:
        """Segments of a part: as many as make partial results for many ranks, fewer where these are large."""
        most = max(MOST_BYTES // (STATE_BYTES * self.part_elements * max(self.groups, 1)), FEWEST)
        return min(self.deep, ceil_div(SEGMENTS, self.parts), 1 << (most.bit_length() - 1))

    @property
    def units(self) -> int:
        """Segments of all parts."""
        return self.parts * self.segments

    def unit(self, number: int) -> Unit:
        """Return the part and the segment of a unit."""
        return divmod(number, self.segments)

    # ------------------------------------------------------------------ where things are

    def part(self, number: int) -> Spans:
        """Return the elements of a part along the axes that are kept."""
        return {
            axis: (first, min(first + self.part_lengths[axis][0], self.shape[axis]))
            for axis, first in zip(self.kept, self._first_of(number), strict=True)
        }

    def _first_of(self, part: int) -> list[int]:
        found = []
        for axis in reversed(self.kept):
            part, index = divmod(part, self._part_counts[axis])
            found.append(index * self.part_lengths[axis][0])
        return found[::-1]

    def columns(self, part: int) -> Iterator[Spans]:
        """Yield the boxes of a part, as they stand along the axes that are kept."""
        along = [
            [(i, min(i + self.lengths[axis], last)) for i in range(first, max(last, first + 1), self.lengths[axis])]
            for axis, (first, last) in self.part(part).items()
        ]
        for each in product(*along):
            yield dict(zip(self.kept, each, strict=True))

    def layers(self, segment: int) -> Iterator[Spans]:
        """Yield the boxes of a segment, in order, as they stand along the axes that are reduced."""
        along = [range(0, max(self.shape[axis], 1), self.lengths[axis]) for axis in self.axes]
        counts = [len(each) for each in along]
        for number in spread_over(self.deep, self.segments, segment):
            found, left = {}, number
            for axis, count, firsts in zip(self.axes[::-1], counts[::-1], along[::-1], strict=True):
                left, index = divmod(left, count)
                found[axis] = (firsts[index], min(firsts[index] + self.lengths[axis], self.shape[axis]))
            yield found

    def group_span(self, group_chunk: int) -> range:
        """Return the groups of a chunk of the result."""
        first = group_chunk * self.group_chunk
        return range(first, min(first + self.group_chunk, self.groups))

    def place(self, part: int, group_chunk: int) -> Section:
        """Return where a chunk of the result is in it."""
        spans = self.part(part)
        along = [spans[axis] for axis in self.kept]
        if self.groups:
            span = self.group_span(group_chunk)
            along.insert(self.axes[0], (span.start, span.stop))
        return Section(tuple(first for first, _ in along), tuple(last for _, last in along))

    @property
    def result_shape(self) -> tuple[int, ...]:
        """Of the result."""
        return self._with_groups([self.shape[axis] for axis in self.kept], self.groups)

    @property
    def result_chunks(self) -> tuple[int, ...]:
        """Of the chunks of the result: a part each, and some groups of it."""
        return self._with_groups([self.part_lengths[axis][0] for axis in self.kept], self.group_chunk)

    def _with_groups(self, lengths: Sequence[int], groups: int) -> tuple[int, ...]:
        found = list(lengths)
        if self.groups:
            found.insert(self.axes[0], groups)
        return tuple(found)


@dataclass(frozen=True, kw_only=True)
class ReducePlan(Holding, OnePass):
    """Everything that a reduction will do."""

    cut: ReduceCut
    """Boxes, segments and parts."""
    how: str
    """Its name; ``"functions"`` of a person's own."""
    copied_bytes: int
    """Bytes of the copy of an element that a thread makes: decoded, or of a group; 0 where it makes none."""
    state_bytes: int
    """Bytes of an element of a partial result."""
    target: Stored | None
    """What is written; None where the result is given in memory."""
    most_groups: tuple[int, int]
    """Groups of which a box has some, and a segment, at most."""
    masks: int
    """Bytes of what counts, and of labels, which each process has."""
    ranks: int
    """Who has runs of segments: one on threads, each worker."""
    threads: int
    """Boxes that a rank reduces at one time."""
    budget: int
    """Bytes that each process may hold above its idle level."""
    processes: int | None
    """Workers of the cluster that it is made for; None for threads of one process."""
    schedule: Schedule | None
    """The order in which partial results go to the owners of what they are of; None where none go."""
    costs: Costs = field(default_factory=Costs)
    """What things take."""

    # ------------------------------------------------------------------ who does what

    def mine(self, rank: int) -> range:
        """Return the units of a rank."""
        return spread_over(self.cut.units, self.ranks, rank)

    def is_whole(self, part: int, rank: int) -> bool:
        """Whether all segments of a part are one rank's: it is then its owner."""
        units = self.mine(rank)
        return units.start <= part * self.cut.segments and (part + 1) * self.cut.segments <= units.stop

    def parts_of(self, rank: int) -> range:
        """Return the parts of which a rank has a segment."""
        units = self.mine(rank)
        if not units:
            return range(0)
        return range(self.cut.unit(units.start)[0], self.cut.unit(units.stop - 1)[0] + 1)

    @cached_property
    def shared(self) -> list[int]:
        """The parts whose segments are on several ranks."""
        return sorted(set().union(*self._has))

    def owned(self, rank: int) -> list[tuple[int, int]]:
        """Return the chunks of shared parts, each with its chunk of groups, that a rank folds and gives."""
        each = self.cut.group_chunks
        return [divmod(n, each) for n in spread_over(len(self.shared) * each, self.ranks, rank)]

    def takes(self, rank: int) -> list[tuple[int, int]]:
        """Return the same with the numbers of parts."""
        return [(self.shared[n], chunk) for n, chunk in self.owned(rank)]

    def wants(self, source: int, target: int) -> bool:
        """Whether one rank has partial results for another."""
        return not self._has[source].isdisjoint(self._folds[target])

    @cached_property
    def _has(self) -> list[set[int]]:
        """The shared parts of which each rank has a segment."""
        return [{part for part in self._ends(rank) if not self.is_whole(part, rank)} for rank in range(self.ranks)]

    @cached_property
    def _folds(self) -> list[set[int]]:
        """The parts of which each rank folds some."""
        return [{part for part, _ in self.takes(rank)} for rank in range(self.ranks)]

    # ------------------------------------------------------------------ as a journal sees it

    def parts(self) -> Iterator[tuple[int, ...]]:
        """Return all that is done: partial results, and chunks of the result."""
        yield from ((0, unit) for unit in range(self.cut.units))
        yield from ((1, part, chunk) for part in range(self.cut.parts) for chunk in range(self.cut.group_chunks))

    def sections(self, part: tuple[int, ...]) -> dict[str, Sequence[Section]]:
        """Return the elements of the target that a part writes: none of a partial result."""
        return {"": [self.cut.place(*part[1:])]} if part[0] else {}

    # ------------------------------------------------------------------ what it costs

    @property
    def result_bytes(self) -> int:
        """Bytes of the result."""
        return 8 * math.prod(self.cut.result_shape)

    def _state(self, groups: int, elements: int | None = None) -> int:
        """Bytes of a partial result, of a whole part by default."""
        return self.state_bytes * (self.cut.part_elements if elements is None else elements) * max(groups, 1)

    @cached_property
    def box_bytes(self) -> int:
        """Bytes that reducing one box takes: as it is stored, decoded or copied for a group, masks, and its result."""
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

    @property
    def _folding(self) -> int:
        """Bytes that folding two states of a column takes: what is made of them, and on the way."""
        return (self.state_bytes + FOLD_BYTES) * self._column

    @cached_property
    def fixed(self) -> Memory:
        """Held by a rank beside boxes: partial results of a part that is all its own, and what is made of it."""
        cut, groups = self.cut, max(self.cut.groups, 1)
        made = 8 * cut.part_elements * groups
        if self.target is None:
            made = self.result_bytes + made // cut.group_chunks
        alone = any(self.is_whole(part, rank) for rank in range(self.ranks) for part in self._ends(rank))
        folded = self._state(groups) + (self._state(self.most_groups[1]) if cut.segments > 1 else 0)
        return Memory.of(masks=self.masks, result=made, partial_results=folded * alone, folding=self._folding)

    def _ends(self, rank: int) -> list[int]:
        """The first parts of a rank, and its last: others are its own."""
        parts = self.parts_of(rank)
        return [*parts[:2], *parts[-1:]]

    @cached_property
    def waiting(self) -> int:
        """Bytes of the partial results with which a rank waits for the exchange, at most."""
        most = max(
            (sum(not self.is_whole(self.cut.unit(unit)[0], rank) for unit in self.mine(rank)) for rank in self._some()),
            default=0,
        )
        return most * self._state(self.most_groups[1])

    @cached_property
    def coming(self) -> int:
        """Bytes of those that come to an owner, at most."""
        most = max((len(self.owned(rank)) for rank in self._some()), default=0)
        return most * self.cut.segments * self._state(min(self.cut.group_chunk or 1, self.most_groups[1]))

    def _some(self) -> range:
        return range(self.ranks if self.shared else 0)

    @cached_property
    def memory(self) -> Memory:
        """Held by a process at one time, at most."""
        boxes = Memory.of(boxes=self.threads * self.box_bytes)
        if self.processes is None:
            return self.fixed + boxes
        reducing = self.fixed + boxes + Memory.of(waiting=self.waiting)
        apart = Memory.of(masks=self.fixed["masks"], result=self.fixed["result"])
        meeting = apart + Memory.of(waiting=self.waiting, messages=2 * self.coming + self.waiting // self.ranks)
        ranks = ceil_div(self.ranks, self.processes)
        return Memory.of(stacks=PROCESS_BYTES) + largest(reducing, meeting) * ranks

    @cached_property
    def traffic(self) -> Traffic:
        """Count what moves; exact where nothing is coded and no chunk is missing."""
        cut, target = self.cut, self.target
        gap = gap_bytes("auto", cut.source, self.costs, REQUESTS)
        total = Traffic(tasks=self._tasks, messages=self._messages, exchanged_bytes=self._exchanged)
        for box, times in self._boxes().items():
            plan = SectionPlan(stored=cut.source, axes=tuple(map(range, *box)), gap=gap, costs=self.costs)
            total += Traffic(
                read_requests=plan.requests * times,
                read_bytes=plan.asked_bytes * times,
                decoded_bytes=plan.decoded_bytes * times,
                pieces=plan.chunks * times,
                copied_bytes=WORK.get(self.how, 2) * plan.useful_bytes * times,
            )
        if target is None:
            return total
        ratio = self.costs.stored_ratio(target)
        nbytes = target.grid.count * target.chunk_bytes
        return total + Traffic(
            write_requests=target.grid.count, written_bytes=int(nbytes * ratio), encoded_bytes=nbytes * target.coded
        )

    def _boxes(self) -> Counter[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Boxes that are cut alike, one for all, by how many there are."""
        along = []
        for n, length in zip(self.cut.shape, self.cut.lengths, strict=True):
            full, rest = divmod(n, length)
            along.append([((0, length), full)] * bool(full) + [((n - rest, n), 1)] * bool(rest))
        found: Counter[tuple[tuple[int, ...], tuple[int, ...]]] = Counter()
        for each in product(*along):
            spans, times = [span for span, _ in each], [count for _, count in each]
            box = tuple(first for first, _ in spans), tuple(last for _, last in spans)
            found[box] += math.prod(times)
        return found

    @property
    def _pairs(self) -> list[tuple[int, int]]:
        ranks = range(self.ranks)
        return [(a, b) for a in ranks for b in ranks if a != b and self.wants(a, b)] if self.schedule else []

    @cached_property
    def _messages(self) -> int:
        return len(self._pairs)

    @property
    def _exchanged(self) -> int:
        """Bytes of all partial results that are not where they are folded, at most."""
        units = len(self.shared) * self.cut.segments
        return units * self._state(self.most_groups[1]) if self._messages else 0

    @property
    def _tasks(self) -> int:
        return 2 + (2 + bool(self.processes)) * self.ranks + 3 * self._messages + bool(self.processes)

    @cached_property
    def _predicted(self) -> tuple[float, Phases]:
        cores = self.threads * self.ranks
        boxes = self.cut.parts * self.cut.deep
        pipeline = Pipeline(ranks=max(min(cores, boxes), 1), turns=boxes, workers=self.processes is not None)
        return pass_seconds(self.traffic, self.costs, self.cut.source, self.target or self.cut.source, pipeline)

    def within(self, threads: int) -> ReducePlan:
        """Return the same with as many threads as there is memory for.

        Raises
        ------
        BudgetError
            Where there is none for one.
        """
        least = replace(self, threads=1)
        if least.peak_bytes > self.budget:
            raise BudgetError(self.budget, least.peak_bytes, "this reduction")
        ranks = ceil_div(self.ranks, self.processes or 1)
        more = (self.budget - least.peak_bytes) // (ranks * self.box_bytes)
        plan = replace(self, threads=max(min(threads, 1 + more), 1))
        return plan if plan.peak_bytes <= self.budget else least
