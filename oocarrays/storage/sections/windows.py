"""Windows of a pass over slabs: each has a band read into its middle, and a halo from other slabs.

    read    ░░[──1──)░░        a band, and elements that no other slab reads
    fill    ▒▒[──1──)▒▒        elements from other slabs, and values beyond an edge

Thakur 1995, section 5.5.3.

    chunks requested      1 ─ 2 ─ 3 ─ 4 …      as many in flight as for one section
    pieces                1 │ 2 3 │ 4 …          each in reusable memory

Thakur 1995, section 6.3.1: an aggregator's reads of its domain.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from oocarrays.mapping.grid import inverse, turned
from oocarrays.mapping.layouts.halo import of_axis
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, Taken, index_of, moved
from oocarrays.plan.machine import Costs
from oocarrays.plan.sections.read import REQUESTS
from oocarrays.plan.slabs.geometry import Piece, Slab
from oocarrays.plan.slabs.plan import SlabPlan, buffer_bytes
from oocarrays.storage.chunks.reader import ChunkReader
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.local_files import RankFiles, placed
from oocarrays.storage.local.pages import Pool
from oocarrays.storage.meter import Meter
from oocarrays.storage.sections.read import read_chunks, read_section, section_plan


def read_pieces(
    file: ArrayFile,
    sections: Sequence[Axes],
    rooms: Iterable[np.ndarray],
    *,
    meter: Meter,
    requests: int = 16,
    costs: Costs | None = None,
) -> Iterator[np.ndarray]:
    """Read sections of an array file in order, in this thread, each into the next of ``rooms``."""
    if file.chain.pipeline == "plain":
        for axes, out in zip(sections, rooms, strict=True):
            yield read_section(file, axes, out, meter=meter, requests=requests, threads=1, costs=costs)
    elif sections:
        order, file = file.stored.order, file.lying
        sections = [turned(axes, order) for axes in sections]
        requests = section_plan(file, sections[0], costs=costs).under_way(requests)
        if order is None:
            yield from read_chunks(ChunkReader(file, meter, requests=requests), sections, rooms)
            return
        lying = (room.transpose(order) for room in rooms)
        for piece in read_chunks(ChunkReader(file, meter, requests=requests), sections, lying):
            yield piece.transpose(inverse(order))


Blocks = list[np.ndarray]
"""One block per source, or one per target."""


class Windows:
    """Windows of a plan, filled with blocks of its sources."""

    def __init__(
        self,
        plan: SlabPlan,
        sources: Sequence[ArrayFile | RankFiles],
        meter: Meter,
        pool: Pool | None = None,
    ) -> None:
        self.plan = plan
        self.pool = pool or Pool()
        self.sources = sources
        self.meter = meter

    def read(self, slab: Slab) -> Blocks:
        """Return a window of each source, with its band and the elements that only this window needs."""
        window, section = self.plan.window(slab), self.plan.read(slab)
        apart = [piece for piece in self._owned(slab, None) if piece.is_read]
        blocks = []
        for source in self.sources:
            file, axes = placed(source, slab.rank, section.axes)
            block = self.pool.lend(window.shape, file.dtype, elements=self.plan.window_elements)
            self._section(file, axes, block[within(section, window)])
            for piece in apart:
                block[piece.place] = self._apart(source, slab.rank, piece)
            blocks.append(block)
        return blocks

    def _apart(self, source: ArrayFile | RankFiles, rank: int, piece: Piece) -> np.ndarray:
        """Read values beyond an edge that a single window needs."""
        axes, back = zip(*map(_distinct, piece.elements), strict=True)
        return self._section(*placed(source, rank, axes))[np.ix_(*back)]

    def _section(self, file: ArrayFile, axes: Axes, out: np.ndarray | None = None) -> np.ndarray:
        most = buffer_bytes(file.stored, math.prod(map(len, axes)))
        how: Any = {"threads": 1, "requests": REQUESTS, "past_cache": self.plan.past_cache}
        return read_section(file, axes, out, meter=self.meter, buffer_bytes=most, **how)

    def given(self, taker: Slab, slab: Slab, blocks: Blocks) -> list[Blocks]:
        """Return copies, from the window of ``slab``, of each piece that ``taker`` lacks: one per source."""
        return [_taken(blocks, piece, self.plan.window(slab)) for piece in self._owned(taker, slab)]

    def fetched(self, taker: Slab, rank: int) -> list[Blocks]:
        """Return the blocks that a rank reads again for another rank's window."""
        pieces = self._fetched(taker, rank)
        return [[self._apart(source, rank, piece) for source in self.sources] for piece in pieces]

    def fill(self, slab: Slab, blocks: Blocks, given: Iterable[list[Blocks]]) -> None:
        """Complete a window: pieces of its givers in order, those that others fetched, values beyond edges."""
        lacking = [self._owned(slab, giver) for giver in self.plan.givers(slab)]
        lacking += [self._fetched(slab, other) for other in self.plan.fetchers(slab)]
        for missing, came in zip(lacking, given, strict=True):
            for piece, parts in zip(missing, came, strict=True):
                _put(blocks, piece, parts)
        for piece in self._owned(slab, slab):
            _put(blocks, piece, _taken(blocks, piece, self.plan.window(slab)))
        for piece in self._owned(slab, None):
            if not piece.is_read:
                last = max(axis for axis, elements in enumerate(piece.elements) if elements[0] < 0)
                _put(blocks, piece, [np.asarray(of_axis(self.plan.boundary, last))] * len(blocks))

    def _owned(self, slab: Slab, owner: Slab | None) -> list[Piece]:
        return [piece for piece in self.plan.pieces(slab) if piece.owner == owner and (piece.met or owner is None)]

    def _fetched(self, slab: Slab, rank: int) -> list[Piece]:
        return [piece for piece in self.plan.pieces(slab) if piece.owner and piece.owner.rank == rank and not piece.met]

    def in_order(self) -> Iterator[tuple[Slab, Blocks]]:
        """Yield the windows of a one-rank plan in order, each once its halo has been read."""
        waiting: dict[Slab, Blocks] = {}
        given: dict[Slab, dict[Slab, list[Blocks]]] = defaultdict(dict)
        for slab in self.plan.slabs(0):
            waiting[slab] = self.read(slab)
            for taker in self.plan.takers(slab):
                given[taker][slab] = self.given(taker, slab, waiting[slab])
            while waiting:
                first, givers = next(iter(waiting)), self.plan.givers(next(iter(waiting)))
                if len(given[first]) < len(givers):
                    break
                blocks, came = waiting.pop(first), given.pop(first)
                self.fill(first, blocks, [came[giver] for giver in givers])
                del came
                yield first, blocks


def within(part: Section, whole: Section) -> Any:
    """Return the position of a part in a whole, as a numpy index."""
    return part.relative_to(whole.lower).slices


def _taken(blocks: Blocks, piece: Piece, window: Section) -> Blocks:
    places = tuple(moved(each, -start) for each, start in zip(piece.elements, window.lower, strict=True))
    index, straight = index_of(places), all(isinstance(each, range) for each in places)
    return [block[index].copy() if straight else block[index] for block in blocks]


def _distinct(elements: Taken) -> tuple[Taken, np.ndarray]:
    """Return the distinct elements in order, and the position of each given one among them."""
    if isinstance(elements, range):
        return elements, np.arange(len(elements))
    distinct, places = np.unique(elements, return_inverse=True)
    return distinct, places


def _put(blocks: Blocks, piece: Piece, parts: Blocks) -> None:
    for block, part in zip(blocks, parts, strict=True):
        block[piece.place] = part
