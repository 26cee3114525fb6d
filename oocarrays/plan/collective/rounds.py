"""Rounds: the parts of its file domain that an aggregator reads or writes one after the other, and their messages.

    domain      █ █ █ · █ · █ · █ █        wanted chunks, in file order
    boxes       ───── ─   ─   ───
    bridged     ───── ───────────          one call across unwanted chunks, which are not read
    rounds      1 1 1   2   2   3 3        as many boxes as fit a buffer; larger ones are split

Thakur 1995, section 6.3.1 (the tight section of a domain, and requests in file order).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest

import numpy as np

from oocarrays.mapping.grid import Stored, ceil_div
from oocarrays.mapping.section import Section
from oocarrays.plan.collective.domains import Domain, Partition
from oocarrays.plan.collective.wanted import AccessTable, Coverage
from oocarrays.plan.exchange.ordering import Exchange
from oocarrays.plan.exchange.schedule import Schedule

Boxes = tuple[Section, ...]
"""Boxes of chunks that one rank reads or writes at one time; of a box to read, only the tight section is read."""
Round = tuple[Boxes, ...]
"""Boxes of each rank, by rank."""


@dataclass(frozen=True)
class Rounds:
    """Boxes of each aggregator in each round, independent of the message schedule."""

    table: AccessTable | Coverage = field(compare=False)
    """Table of the elements that each rank wants, or writes, in any box."""
    boxes: tuple[Round, ...] = ()
    gathers: bool = False
    """Direction: aggregators receive elements to write, or send elements that they have read."""

    @classmethod
    def of(cls, table: AccessTable | Coverage, cut: Mapping[int, Sequence[Boxes]], *, gathers: bool = False) -> Rounds:
        each = (cut.get(rank, ()) for rank in range(len(table.requests)))
        return cls(table, tuple(zip_longest(*each, fillvalue=())), gathers)

    def __reduce__(self) -> tuple[type[Rounds], tuple[AccessTable | Coverage, tuple[Round, ...], bool]]:
        return Rounds, (self.table, self.boxes, self.gathers)  # derived tables are recomputed after unpickling

    @property
    def ranks(self) -> int:
        return len(self.table.requests)

    def sizes(self, number: int) -> np.ndarray:
        """Return a matrix of the elements in a round, by sender and receiver."""
        nothing = np.zeros(self.ranks, np.int64)
        sizes = np.stack([sum(map(self.table.counts, boxes), nothing) for boxes in self.boxes[number]])
        return sizes.T if self.gathers else sizes

    @cached_property
    def all_sizes(self) -> np.ndarray:
        """Elements by round, sender and receiver."""
        sizes = np.zeros((len(self.boxes), self.ranks, self.ranks), np.int64)
        for number in range(len(self.boxes)):
            sizes[number] = self.sizes(number)
        return sizes

    @cached_property
    def between(self) -> np.ndarray:
        """Elements by round, sender and receiver, without those that ranks keep."""
        return self.all_sizes * ~np.eye(self.ranks, dtype=bool)

    def exchanges(self, schedule: Schedule) -> list[Exchange]:
        """Return the exchange of each round, in elements."""
        return [Exchange.of(schedule, sizes) for sizes in self.between]

    def messages(self, schedule: Schedule | None) -> tuple[int, int]:
        """Return the number of messages between ranks and their elements, forwarded messages included."""
        if schedule is None:
            return int((self.between > 0).sum()), int(self.between.sum())
        each = self.exchanges(schedule)
        return sum(exchange.messages for exchange in each), sum(exchange.sent_bytes for exchange in each)

    @property
    def access(self) -> AccessTable:
        assert isinstance(self.table, AccessTable), "writes have no tight sections"
        return self.table

    @cached_property
    def read_sizes(self) -> np.ndarray:
        """Elements that each rank reads in each round, with whole tight sections: by round and rank."""
        read = [[sum(self.access.of(box).size for box in boxes) for boxes in each] for each in self.boxes]
        return np.array(read, np.int64).reshape(len(self.boxes), self.ranks)

    @cached_property
    def chunks_read(self) -> tuple[int, ...]:
        boxes = ([box for each in self.boxes for box in each[rank]] for rank in range(self.ranks))
        return tuple(sum(self.access.of(box).chunks for box in each) for each in boxes)


@dataclass(frozen=True, slots=True)
class Cutting:
    """Limits by which a domain is split into rounds."""

    stored: Stored
    table: AccessTable
    partition: Partition
    """Partition of the domains; static ones may have unwanted chunks."""
    buffer_bytes: int
    """Maximum bytes that an aggregator reads in a round, unless one chunk is larger."""

    def rounds(self, domain: Domain) -> Iterator[Boxes]:
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
        """Merge four or more boxes of a row across unwanted chunks if that reads no more elements and chunks."""
        if len(row) < 4:
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
        """Split a box along the slowest axis into pieces that fit a buffer; uncoded ones also within a chunk."""
        nbytes, unit = self._nbytes(box), self.stored.grid.chunks
        cuttable = [axis for axis, (n, c) in enumerate(zip(box.shape, unit, strict=True)) if n > c]
        if not cuttable and not self.stored.coded:
            cuttable, unit = [axis for axis, n in enumerate(box.shape) if n > 1], (1,) * len(unit)
        if nbytes <= self.buffer_bytes or not cuttable:
            yield box
            return
        axis = next(axis for axis in self.stored.order or range(len(unit)) if axis in cuttable)
        length = ceil_div(ceil_div(box.shape[axis], unit[axis]), ceil_div(nbytes, self.buffer_bytes)) * unit[axis]
        lower, upper = list(box.lower), list(box.upper)
        for start in range(box.lower[axis], box.upper[axis], length):
            lower[axis], upper[axis] = start, min(start + length, box.upper[axis])
            piece = Section(tuple(lower), tuple(upper))
            if self.table.of(piece).ranks:
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
