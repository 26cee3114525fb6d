"""Shift: fill the halos of local array files from the neighbours' files, and change nothing else.

    file of rank 0    │· 0 0 0 0 ▓│░│                  each rank reads its borders ▓ from its own file, once,
                                ╲ ╱
                                ╱ ╲                    sends every neighbour its part of them,
    file of rank 1            │░│▓ 1 1 1 1 ·│          and writes the received elements to its halo ░

Thin boxes of uncompressed chunks are read and written in place; other chunks are read once and replaced as a whole.
Thakur 1995, section 5.4 (PASSION_oc_shift).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from oocarrays.mapping.grid import Stored, ceil_div
from oocarrays.mapping.section import Section
from oocarrays.mapping.union import Union, product_of
from oocarrays.plan.collective.wanted import Coverage
from oocarrays.plan.cost import Pipeline, Traffic
from oocarrays.plan.exchange.ordering import Exchange
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.layouts.halos import HaloPlan
from oocarrays.plan.plan import NO_MESSAGES, Bytes, Facts, Memory, OnePass, estimate, shared_facts
from oocarrays.plan.sections.read import SectionPlan
from oocarrays.plan.sections.write import SectionWritePlan, plan_section_write

Way = Literal["direct", "replace"]
"""Write method of halos: each run in place, or each chunk read, changed and replaced."""


@dataclass(frozen=True, kw_only=True)
class ShiftPlan(OnePass):
    """Plan of a shift of local array files."""

    halos: HaloPlan
    read: tuple[Stored, ...]
    """File of each rank, as read."""
    written: tuple[Stored, ...]
    """File of each rank, as written; its chunks are shards if it has shards."""
    schedule: Schedule

    def facts(self) -> Facts:
        sent, about = self.traffic, estimate(self.written[0].made, self.read[0].coded)
        how = "where they are" if self.title == "direct" else "in chunks that are read first, and replaced at once"
        sends = f"{sent.messages}, ", Bytes(sent.exchanged_bytes), f", {self.schedule.name}"
        return [
            ("files", (f"{self.halos.layout}, halo of depth ", tuple(self.halos.depth))),
            ("boundary", (repr(self.halos.boundary),)),
            *shared_facts(self, reads=about, writes=f"{about}, halos {how}"),
            ("messages", sends if self.processes else (NO_MESSAGES,)),
            *shared_facts(self, peak_memory=None, predicted=""),
        ]

    @property
    def title(self) -> str:
        ways = {self.way(rank) for rank in range(self.ranks)}
        return ", ".join(sorted(ways)) or "nothing to move"

    @property
    def ranks(self) -> int:
        return self.halos.ranks

    @property
    def itemsize(self) -> int:
        return self.halos.itemsize

    @cached_property
    def sizes(self) -> np.ndarray:
        """Elements that each rank packs for each, by sender; for itself those that repeat in its halo."""
        sizes = self.halos.between // self.itemsize
        for rank in range(self.ranks):
            if rank in self.halos.lenders(rank):
                sizes[rank, rank] = sum(loan.size for loan in self.halos.loans(rank, rank))
        return sizes

    def borders(self, rank: int) -> list[Section]:
        """Return the disjoint boxes that a rank reads from its file."""
        return [_moved(box, self.halos.depth) for box in self.halos.borders(rank)]

    def section(self, rank: int, box: Section) -> SectionPlan:
        return SectionPlan.of(self.read[rank], box.axes, self.costs)

    def chunks(self, rank: int) -> Union:
        return Union.of(product_of(box.axes, self.read[rank].grid.chunks) for box in self.borders(rank))

    def halo(self, rank: int) -> list[tuple[Section, Section]]:
        """Return the boxes that a rank writes, each in its window and in its file."""
        before = self.halos.inside(rank).lower
        start = tuple(d - b for d, b in zip(self.halos.depth, before, strict=True))
        return [(box, _moved(box, start)) for box in self.halos.halo(rank)]

    def way(self, rank: int) -> Way:
        """Return the write method of a rank's halo with the least predicted seconds."""
        if not self.written[rank].in_place:
            return "replace"
        costs, stored, cover = self.costs, self.written[rank], self.coverage(rank)
        runs = sum(plan.writes.write_requests + plan.reads.read_requests for plan in self.direct(rank))
        direct = runs * costs.range_seconds + cover.wanted.count * costs.piece_seconds
        chunks = cover.reads * (costs.piece_seconds + stored.chunk_bytes / costs.read_bandwidth)
        chunks += cover.wanted.count * (costs.piece_seconds + stored.chunk_bytes / costs.write_bandwidth)
        return "direct" if direct <= chunks else "replace"

    def direct(self, rank: int) -> Iterator[SectionWritePlan]:
        return (plan_section_write(self.written[rank], box.axes, method="direct") for _, box in self.halo(rank))

    def coverage(self, rank: int) -> Coverage:
        return Coverage(stored=self.written[rank], requests=tuple(box.axes for _, box in self.halo(rank)))

    def _reads(self, rank: int) -> Traffic:
        stored = self.read[rank]
        if not stored.coded:
            return sum((self.section(rank, box).traffic for box in self.borders(rank)), Traffic())
        count = self.chunks(rank).count
        nbytes = count * stored.chunk_bytes
        read_bytes = int(nbytes * self.costs.stored_ratio(stored))
        return Traffic(read_requests=count, read_bytes=read_bytes, decoded_bytes=nbytes)

    def _writes(self, rank: int) -> Traffic:
        if self.way(rank) == "direct":
            return sum((plan.reads + plan.writes for plan in self.direct(rank)), Traffic())
        return self.coverage(rank).traffic(self.costs.stored_ratio(self.written[rank]))

    @cached_property
    def exchange(self) -> Exchange:
        return Exchange.of(self.schedule, self.halos.between)

    @cached_property
    def traffic(self) -> Traffic:
        """Reads, writes and messages; exact for uncoded data without missing chunks."""
        reads, writes = (sum(map(of, range(self.ranks)), Traffic()) for of in (self._reads, self._writes))
        sent = self.exchange.messages if self.processes else 0
        moved = Traffic(
            pieces=reads.read_requests,
            copied_bytes=2 * int(self.sizes.sum()) * self.itemsize,
            messages=sent,
            exchanged_bytes=self.exchange.sent_bytes if self.processes else 0,
            tasks=2 * self.ranks + 2 + 3 * sent,
        )
        return reads + writes + moved

    @cached_property
    def memory(self) -> Memory:
        """Peak memory of a process: messages of its ranks, their halos, and workspace for one border and one halo."""
        in_hand, packed = [*map(self._in_hand, range(self.ranks))], self.sizes.sum(axis=1)
        if self.processes is None:
            return Memory.of(messages=int(packed.sum()) * self.itemsize, in_hand=sum(in_hand))
        come = self.sizes.sum(axis=0) - np.diagonal(self.sizes)
        each = Memory.of(
            messages=int((packed + come).max()) * self.itemsize,
            forwarded=self.exchange.buffer_bytes,
            in_hand=max(in_hand),
        )
        return each * ceil_div(self.ranks, self.processes)

    def _in_hand(self, rank: int) -> int:
        """Return the bytes to read one border or to write the halo of a rank, workspace included."""
        read, written = self.read[rank], self.written[rank]
        if read.coded:
            reading = read.chunk_bytes + read.decode_workspace + read.index_workspace
        else:
            plans = [self.section(rank, box) for box in self.borders(rank)]
            reading = max((plan.held_bytes + plan.useful_bytes for plan in plans), default=0)
        values = sum(box.size for box, _ in self.halo(rank)) * self.itemsize
        chunk = written.chunk_bytes + written.decode_workspace + written.encode_workspace
        direct = self.way(rank) == "direct"
        return max(reading, values + (max((p.held_bytes for p in self.direct(rank)), default=0) if direct else chunk))

    @property
    def _work(self) -> tuple[Stored, Stored, Pipeline]:
        pipeline = Pipeline(ranks=self.ranks, turns=1, workers=self.processes is not None)
        return self.read[0], self.written[0], pipeline


def _moved(box: Section, by: tuple[int, ...]) -> Section:
    return box.relative_to(tuple(-d for d in by))
