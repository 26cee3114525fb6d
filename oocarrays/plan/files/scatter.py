"""Scatter of one array file into one per rank, and gather: rounds over boxes of whole chunks, each read once.

    scatter   round 0   ████····   each stored chunk of the global file is read once, by the rank that owns its domain;
              round 1   ····████   each rank receives its elements and halo, and writes them to its own file
    gather    the reverse: a rank reads its part of a box, and the owner of a chunk's domain writes it once, whole

Boxes are large enough for few rounds and small enough that two of them fit in memory. If a box ends inside a chunk of a
local file, the next round reads, changes and replaces the chunk. Thakur 1995, section 5.3.2: the creation of local
array files; 6.3: file domains of readers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import product
from operator import mul
from typing import Literal

import numpy as np

from oocarrays.errors import plural
from oocarrays.mapping.grid import ChunkGrid, Stored, ceil_div
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.layouts.local import Depth, LocalPart
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Taken, within
from oocarrays.plan.collective.domains import file_domains
from oocarrays.plan.cost import Pipeline, Traffic
from oocarrays.plan.exchange.ordering import Exchange, schedule_for
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.files.partitions import FileBlock, Partitions, alike_spans, before, partitions
from oocarrays.plan.machine import check_count
from oocarrays.plan.plan import (
    NO_MESSAGES,
    Bytes,
    Facts,
    Memory,
    OnePass,
    Resources,
    estimate,
    first_fitting,
    halvings,
    shared_facts,
)
from oocarrays.plan.sections.read import SectionPlan

Way = Literal["scatter", "gather"]
ROUND_BYTES = 2**26
"""Maximum bytes of a round, unless one chunk is larger; more would only increase memory that is touched first."""
UNDER_WAY = 2
"""Number of rounds in memory at one time: one is read while the one before is written."""


@dataclass(frozen=True, kw_only=True)
class FilesPlan(OnePass):
    """Plan of a scatter or a gather."""

    way: Way
    """Direction: from the global file to local ones, or back."""
    whole: Stored
    local: Stored
    """Largest local array file."""
    grids: tuple[ChunkGrid, ...]
    """Shape and chunks of each rank's file, in elements."""
    layout: Layout
    depth: Depth
    """Halo width along each axis, on either side, in elements."""
    rounds: Partitions
    """Rounds: boxes of whole chunks of the global file."""
    schedule: Schedule
    room: int = 1
    """Maximum number of chunks of the global file in a round; a resumed run derives the same rounds from it."""

    def facts(self) -> Facts:
        sent, about = self.traffic, estimate(self.whole.coded, self.local.coded)
        halo = (", halo of depth ", tuple(self.depth)) if any(self.depth) else ()
        changed = f", {sum(self.changed)} of them of chunks that a round before began" if any(self.changed) else ""
        sends = f"{sent.messages}, at most ", Bytes(sent.exchanged_bytes), f", {self.schedule.name}"
        return [
            ("array", (self.layout.shape, ", ", Bytes(self.whole.nbytes))),
            ("layout", (str(self.layout), *halo)),
            ("rounds", (f"{len(self.rounds)} of ", self.rounds[0].shape if self.rounds else "nothing")),
            *shared_facts(self, reads=about + changed, writes=about),
            ("messages", sends if self.processes else (NO_MESSAGES,)),
            *shared_facts(self, tasks="", peak_memory=None, predicted=""),
        ]

    @property
    def title(self) -> str:
        return plural(len(self.rounds), "round")

    @property
    def ranks(self) -> int:
        """Number of logical processors; each has a local file and a domain of the global one."""
        return self.layout.ranks

    def domains(self, number: int) -> tuple[tuple[Section, ...], ...]:
        """Return the boxes of whole chunks of the global file that each rank reads or writes for all in a round."""
        given = file_domains(self.whole.grid, [self.rounds[number].axes], range(self.ranks))
        return tuple(domain.boxes for domain in given)

    def part(self, rank: int) -> LocalPart:
        """Return the part of the array in a rank's file; the halo is written in a scatter, but not read in a gather."""
        part = LocalPart.of(self.layout, rank, self.depth)
        return part if self.way == "scatter" else replace(part, seen=part.own, start=part.depth)

    def block(self, rank: int, box: Section) -> FileBlock | None:
        axes, place = self.part(rank).of_box(box)
        return FileBlock(axes=axes, place=place) if place.size else None

    def sizes(self, number: int) -> np.ndarray:
        """Return the elements that each rank sends to each in a round, itself included."""
        sizes = np.stack(
            [sum(map(self._counts, boxes), np.zeros(self.ranks, np.int64)) for boxes in self.domains(number)]
        )
        return sizes if self.way == "scatter" else sizes.T

    def _counts(self, box: Section) -> np.ndarray:
        along = [
            [place.stop - place.start for place, _ in (within(taken, lower, upper) for taken in taken_along)]
            for taken_along, lower, upper in zip(self._taken, box.lower, box.upper, strict=True)
        ]
        return reduce(np.multiply.outer, along, np.ones((), np.int64)).reshape(-1)

    def parts(self) -> Iterator[tuple[int, ...]]:
        """Yield the parts that are recorded once done: the files of all ranks, and each rank's share of each round."""
        yield from ((rank,) for rank in range(self.ranks))
        yield from product(range(len(self.rounds)), range(self.ranks))

    def sections(self, part: tuple[int, ...]) -> dict[str, Sequence[Section]]:
        """Return the sections that a rank writes in a round, in the coordinates of the file."""
        if len(part) == 1:
            return {}
        number, rank = part
        if self.way == "gather":
            boxes = self.domains(number)[rank]
            return {"": boxes} if boxes else {}
        block = self.block(rank, self.rounds[number])
        return {str(rank): [block.place]} if block else {}

    @cached_property
    def memory(self) -> Memory:
        """Peak memory of a process.

        On threads: all ranks' elements of a box, as messages and once more as they are read or written. On a worker:
        the same for each of its ranks, and their domains. In both cases also one chunk in progress on each side.
        """
        there = self.ranks if self.processes is None else ceil_div(self.ranks, self.processes)
        most = [[np.diff(places) for places in along] for along in self._places]
        every = math.prod(int(np.sum(along, axis=0).max(initial=0)) for along in most)
        one = math.prod(max(int(each.max(initial=0)) for each in along) for along in most)
        domains, messages = every, every
        if self.processes:
            sizes = map(self.sizes, range(len(self.rounds)))
            domain = max((int(each.sum(axis=int(self.way == "scatter")).max()) for each in sizes), default=0)
            domains, messages = min(there * domain, every), 2 * min(there * one, every)
        forwarded = max((each.buffer_bytes for each in self._forwarded), default=0)
        rounds = Memory.of(domains=domains, messages=messages) * (UNDER_WAY * self.whole.itemsize)
        return rounds + Memory.of(forwarded=forwarded, chunks=self._in_hand) * there

    @property
    def _in_hand(self) -> int:
        """Bytes of the chunks that a rank reads and writes, one at a time, with their codecs' workspace."""
        whole, local = self.whole, self.local
        if self.way == "scatter":  # a chunk of a local file may be read and changed
            changed = local.chunk_bytes + local.decode_workspace + local.encode_workspace
            return whole.chunk_bytes + whole.decode_workspace + whole.index_workspace + changed
        read = local.chunk_bytes + local.decode_workspace
        if not local.coded:
            read = max((section.held_bytes for section, _ in self._sections), default=0)
        written = whole.chunk_bytes + whole.encode_workspace + whole.behind_workspace
        return read + local.index_workspace + written

    @cached_property
    def _taken(self) -> list[list[Taken]]:
        """Elements of each place of the process grid, along each axis."""
        none = [0] * len(self.layout.grid)
        return [
            [self.part(self.layout.rank([*none[:axis], place, *none[axis + 1 :]])).seen[axis] for place in range(count)]
            for axis, count in enumerate(self.layout.grid)
        ]

    @cached_property
    def _places(self) -> list[list[np.ndarray]]:
        """Number of elements of each place of the process grid before each edge of the boxes, along each axis.

        Boxes are a product over axes, and so are the ranks' elements in them, so no box needs to be enumerated.
        """
        edges = [[*self.rounds.edges(axis), extent] for axis, extent in enumerate(self.layout.shape)]
        return [
            [before(taken, np.array(bounds)) for taken in along]
            for along, bounds in zip(self._taken, edges, strict=True)
        ]

    def _spans(self, rank: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the start and end of each nonempty box in a rank's file, along each axis."""
        spans = []
        for axis, (place, start) in enumerate(zip(self.layout.coordinates(rank), self.part(rank).start, strict=True)):
            edges = self._places[axis][place] + start
            some = edges[1:] > edges[:-1]
            spans.append((edges[:-1][some], edges[1:][some]))
        return spans

    @cached_property
    def touched(self) -> tuple[int, ...]:
        """Number of chunks of each rank's file that are written, or read, over all rounds; in each round anew."""
        if not self.rounds.box.count:
            return (0,) * self.ranks
        each = [zip(self._spans(rank), grid.chunks, strict=True) for rank, grid in enumerate(self.grids)]
        return tuple(math.prod(int((-(-b // c) - a // c).sum()) for (a, b), c in spans) for spans in each)

    @cached_property
    def changed(self) -> tuple[int, ...]:
        """Number of chunks of each rank's file that a later round reads, changes and replaces; 0 in a gather."""
        if self.way == "gather":
            return (0,) * self.ranks
        everything = Section((0,) * len(self.layout.shape), self.layout.shape)
        blocks = [self.block(rank, everything) for rank in range(self.ranks)]
        each = zip(self.touched, self.grids, blocks, strict=True)
        return tuple(n - (math.prod(map(len, grid.touched(b.place))) if b else 0) for n, grid, b in each)

    @cached_property
    def _sections(self) -> list[tuple[SectionPlan, int]]:
        """Section plans by which ranks read uncompressed local files in a gather, one per kind, with their counts."""
        found = []
        for rank, grid in enumerate(self.grids if self.rounds.box.count else ()):
            along = map(alike_spans, self._spans(rank), grid.chunks, grid.shape)
            stored = replace(self.local, grid=grid)
            for kinds in product(*along):
                plan = SectionPlan.of(stored, tuple(axis for axis, _ in kinds), self.costs)
                found.append((plan, math.prod(times for _, times in kinds)))
        return found

    @cached_property
    def messages(self) -> int:
        """Number of messages between different ranks over all rounds, forwarded messages included."""
        if self._forwarded:
            return sum(each.messages for each in self._forwarded)
        return sum(int(np.count_nonzero(self._between(number))) for number in range(len(self.rounds)))

    @cached_property
    def _forwarded(self) -> list[Exchange]:
        """Exchange of each round, in bytes, if ranks on workers forward data; otherwise empty."""
        if not (self.processes and self.schedule.forwards):
            return []
        rounds = range(len(self.rounds))
        return [Exchange.of(self.schedule, self._between(number) * self.whole.itemsize) for number in rounds]

    def _between(self, number: int) -> np.ndarray:
        sizes = self.sizes(number)
        np.fill_diagonal(sizes, 0)
        return sizes

    @cached_property
    def traffic(self) -> Traffic:
        """Reads, writes and messages; exact for uncoded data without missing chunks."""
        moved = math.prod(sum(map(len, along)) for along in self._taken) * self.whole.itemsize
        whole = self.whole.grid.count, self.whole.grid.count * self.whole.chunk_bytes
        sizes = [grid.chunk_size * self.local.itemsize for grid in self.grids]
        touched, changed = ((sum(n), sum(map(mul, n, sizes))) for n in (self.touched, self.changed))
        if self.way == "scatter":
            read, written, (writes, written_bytes) = self.whole, self.local, touched
            reads, read_bytes = whole[0] + changed[0], whole[1] + changed[1]
        else:
            read, written, (writes, written_bytes) = self.local, self.whole, whole
            reads, read_bytes = touched
            if not read.coded:
                reads = sum(section.requests * times for section, times in self._sections)
                read_bytes = sum(section.asked_bytes * times for section, times in self._sections)
        sent = sum(each.sent_bytes for each in self._forwarded) if self._forwarded else moved
        return Traffic(
            read_requests=reads,
            read_bytes=int(read_bytes * self.costs.stored_ratio(read)),
            decoded_bytes=read_bytes if read.coded else 0,
            copied_bytes=2 * moved,
            pieces=reads,
            write_requests=writes,
            encoded_bytes=written_bytes if written.coded else 0,
            written_bytes=int(written_bytes * self.costs.stored_ratio(written)),
            messages=self.messages if self.processes else 0,
            exchanged_bytes=sent if self.processes else 0,
            tasks=_tasks(len(self.rounds), self.ranks),
        )

    @property
    def _work(self) -> tuple[Stored, Stored, Pipeline]:
        read, written = (self.whole, self.local) if self.way == "scatter" else (self.local, self.whole)
        return read, written, Pipeline(ranks=self.ranks, turns=len(self.rounds), workers=self.processes is not None)


def plan_files(
    way: Way,
    whole: Stored,
    local: Stored,
    grids: Sequence[ChunkGrid],
    layout: Layout,
    depth: Depth,
    resources: Resources,
    *,
    room: int | None = None,
) -> FilesPlan:
    """Return a plan with the fewest rounds that fit the budget."""
    order = schedule_for(resources.schedule, layout.ranks)
    room = min(whole.grid.count, ROUND_BYTES // whole.chunk_bytes) if room is None else room

    def plan_of(room: int) -> FilesPlan:
        rounds = partitions(whole.grid, room)
        check_count(_tasks(rounds.box.count, layout.ranks), f"this {way}", "give larger chunks")
        return FilesPlan(
            way=way, whole=whole, local=local, grids=tuple(grids), layout=layout, depth=depth,
            rounds=rounds, schedule=order, budget=resources.budget, processes=resources.workers,
            costs=resources.costs, room=room,
        )  # fmt: skip

    plan, refused = first_fitting(map(plan_of, halvings(max(room, 1))), resources.budget, f"this {way}")
    return plan.after(refused)


def _tasks(rounds: int, ranks: int) -> int:
    """Return the number of tasks of a graph without tasks for messages."""
    return (2 * rounds + 2) * ranks + 2
