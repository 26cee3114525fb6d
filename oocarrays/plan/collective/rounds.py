"""Rounds of a collective read: what of its file domain an aggregator reads at one time.

    domain      █ █ █ · █ · █ · █ █        chunks that somebody wants, in file order
    boxes       ───── ─   ─   ───
    bridged     ───── ───────────          one call over chunks that nobody wants, which are not read
    rounds      1 1 1   2   2   3 3        as many as a buffer holds; a larger box is cut

Thakur 1995, section 6.3.1 (the tight section of a domain, and requests in file order).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oocarrays.mapping.grid import Stored, ceil_div
from oocarrays.mapping.section import Section
from oocarrays.plan.collective.domains import Domain, Partition
from oocarrays.plan.collective.wanted import AccessTable

WORTH_BRIDGING = 4
"""Boxes with chunks between that nobody wants which are read as one, at least."""


@dataclass(frozen=True, slots=True)
class Cutting:
    """Limits by which a domain is cut into rounds."""

    stored: Stored
    """The file."""
    table: AccessTable
    """What ranks want of it."""
    partition: Partition
    """How domains were dealt out: static ones may have chunks that nobody wants."""
    buffer_bytes: int
    """Bytes that an aggregator reads in a round at most, where that is no less than a chunk."""

    def rounds(self, domain: Domain) -> Iterator[tuple[Section, ...]]:
        """Yield what an aggregator reads at one time: as many boxes as fill a buffer."""
        wanted = list(domain.boxes)
        if self.partition == "static":  # of which there may be chunks that nobody wants
            wanted = [box for within in wanted for box in self.table.boxes(within)]
        self.table.learn(wanted)
        wanted = [bridged for row in _rows(wanted) for bridged in self._bridged(row)]
        together: list[Section] = []
        held = 0
        for box in (piece for each in wanted for piece in self._pieces(each)):
            nbytes = self._nbytes(box)
            if together and held + nbytes > self.buffer_bytes:
                yield tuple(together)
                together, held = [], 0
            together.append(box)
            held += nbytes
        if together:
            yield tuple(together)

    def _bridged(self, row: Sequence[Section]) -> Iterator[Section]:
        """Boxes of a row as one, with chunks between that nobody wants, where just as much is read of that."""
        if len(row) < WORTH_BRIDGING:
            yield from row
            return
        bridge = Section(row[0].lower, row[-1].upper)
        whole, parts = self.table.of(bridge), list(map(self.table.of, row))
        if whole.size <= sum(part.size for part in parts) and whole.chunks == sum(part.chunks for part in parts):
            yield bridge
            return
        half = len(row) // 2
        yield from self._bridged(row[:half])
        yield from self._bridged(row[half:])

    def _nbytes(self, box: Section) -> int:
        return self.table.of(box).size * self.stored.itemsize

    def _pieces(self, box: Section) -> Iterator[Section]:
        """A box in pieces of which no more than a buffer is read, cut along the slowest axis: between chunks, or also
        within one, where ranges of it can be read."""
        nbytes, unit = self._nbytes(box), self.stored.grid.chunks
        cuttable = [axis for axis, (n, c) in enumerate(zip(box.shape, unit, strict=True)) if n > c]
        if not cuttable and not self.stored.coded:
            cuttable, unit = [axis for axis, n in enumerate(box.shape) if n > 1], (1,) * len(unit)
        if nbytes <= self.buffer_bytes or not cuttable:
            yield box
            return
        axis = next(axis for axis in self.stored.order or range(len(unit)) if axis in cuttable)
        length = ceil_div(ceil_div(box.shape[axis], unit[axis]), ceil_div(nbytes, self.buffer_bytes)) * unit[axis]
        for start in range(box.lower[axis], box.upper[axis], length):
            piece = _between(box, axis, start, min(start + length, box.upper[axis]))
            if self.table.ranks(piece):
                yield from self._pieces(piece)


def _rows(boxes: Sequence[Section]) -> Iterator[list[Section]]:
    """Boxes that follow each other along one axis, and are alike along the others."""
    row: list[Section] = []
    along: int | None = None
    for box in boxes:
        axis = _follows(row[-1], box) if row else None
        if row and (axis is None or (len(row) > 1 and axis != along)):
            yield row
            row = []
        row.append(box)
        along = axis
    if row:
        yield row


def _follows(box: Section, more: Section) -> int | None:
    """The one axis along which a box lies behind another."""
    bounds = zip(box.lower, box.upper, more.lower, more.upper, strict=True)
    apart = [axis for axis, (lower, upper, *there) in enumerate(bounds) if [lower, upper] != there]
    return apart[0] if len(apart) == 1 and more.lower[apart[0]] >= box.upper[apart[0]] else None


def _between(box: Section, axis: int, lower: int, upper: int) -> Section:
    """Return the part of a box between two bounds along an axis."""
    lowers, uppers = list(box.lower), list(box.upper)
    lowers[axis], uppers[axis] = lower, upper
    return Section(tuple(lowers), tuple(uppers))
