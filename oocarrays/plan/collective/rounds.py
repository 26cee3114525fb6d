"""Rounds of a collective read: the parts of its file domain that an aggregator reads one after the other.

    domain      █ █ █ · █ · █ · █ █        wanted chunks, in file order
    boxes       ───── ─   ─   ───
    bridged     ───── ───────────          one call across unwanted chunks, which are not read
    rounds      1 1 1   2   2   3 3        as many boxes as fit a buffer; larger ones are split

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
"""Minimum number of boxes, separated by unwanted chunks, that are merged into one read."""


@dataclass(frozen=True, slots=True)
class Cutting:
    """Limits by which a domain is split into rounds."""

    stored: Stored
    """Array to read."""
    table: AccessTable
    """Elements of the array that each rank wants."""
    partition: Partition
    """Partition of the domains; static ones may have unwanted chunks."""
    buffer_bytes: int
    """Maximum bytes that an aggregator reads in a round, unless one chunk is larger."""

    def rounds(self, domain: Domain) -> Iterator[tuple[Section, ...]]:
        """Yield the boxes of each round: as many as fill a buffer."""
        wanted = list(domain.boxes)
        if self.partition == "static":  # may have unwanted chunks
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
        """Merge boxes of a row across unwanted chunks wherever that reads no more elements and chunks."""
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
        """Split a box along the slowest axis into pieces that fit a buffer.

        Coded boxes are split between chunks only; uncoded ones also within a chunk, by ranges.
        """
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
    """Yield runs of boxes that follow each other along one axis and agree along the others."""
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
    """Return the only axis along which `more` lies behind `box`, or None."""
    bounds = zip(box.lower, box.upper, more.lower, more.upper, strict=True)
    apart = [axis for axis, (lower, upper, *there) in enumerate(bounds) if [lower, upper] != there]
    return apart[0] if len(apart) == 1 and more.lower[apart[0]] >= box.upper[apart[0]] else None


def _between(box: Section, axis: int, lower: int, upper: int) -> Section:
    """Return the part of a box between two bounds along an axis."""
    lowers, uppers = list(box.lower), list(box.upper)
    lowers[axis], uppers[axis] = lower, upper
    return Section(tuple(lowers), tuple(uppers))
