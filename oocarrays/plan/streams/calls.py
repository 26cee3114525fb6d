"""Calls: the requests of a program for the streams of some cells at one time, as plain bytes.

    level    all cells, as many bytes each     values with one row for each cell, at any stride in memory
    events   items in any order                a row of bytes for each, and its cell
    runs     some cells, each its own number   bytes of all, one cell after the other

    NB  no buffering             all cells, b bytes each, contiguous      ──► a row of the array, as it is in memory
    CB  collective buffering     all cells, the same number of bytes      ──► buffers of all cells, full together
    IB  independent buffering    some cells, each its own number of bytes ──► a buffer of each cell, and superblocks

The tests are those of section 4.2 and 5.2 of Moore, Hatcher and Quinn, in their order. A file goes from NB to CB to IB
as it is written, and never back: after one write in IB, all further ones use IB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from oocarrays.plan.streams.buffers import CellBytes as CellBytes, grouped

Mode = Literal["NB", "CB", "IB"]
MODES: tuple[Mode, ...] = ("NB", "CB", "IB")
"""Modes from the fastest to the most general."""


class Prepared(NamedTuple):
    """A write as far as one rank determines it, exchanged between ranks."""

    mode: Mode
    """Fastest mode that its own cells allow."""
    nbytes: int
    """Bytes of each of its cells; -1 if they differ, or some write nothing."""
    dtype: np.dtype
    """Type of the items."""
    appends: bool
    """Whether the write only appends."""
    begun: Mode | None
    """Mode that was begun last."""


def write_mode(current: Mode, nbytes: int, contiguous: bool, block: int) -> Mode:
    """Return the mode of a write of as many bytes to the ends of all streams."""
    if current == "IB":
        return "IB"
    if current == "CB" or not contiguous or (block and nbytes != block):
        return "CB"
    return "NB"


def agreed(found: Sequence[Prepared]) -> tuple[Mode, int]:
    """Return the mode in which all ranks can write, and the bytes of each cell."""
    if len({one.nbytes for one in found}) > 1:
        return "IB", -1
    return max((one.mode for one in found), key=MODES.index), found[0].nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Values for all cells, with the same number of bytes each."""

    values: np.ndarray
    nbytes: int
    is_contiguous: bool
    """Whether the values of consecutive cells were adjacent in the caller's memory."""

    @property
    def rows(self) -> np.ndarray:
        values = np.ascontiguousarray(self.values)
        return values.reshape(-1).view(np.uint8).reshape(len(values), self.nbytes)

    def as_runs(self, lower: int) -> CellBytes:
        cells = np.arange(lower, lower + len(self.values))
        return CellBytes(cells=cells, counts=np.full(len(cells), self.nbytes), data=self.rows.reshape(-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Items for some cells, in order of arrival."""

    cells: np.ndarray
    """Cell of each item, by its number in the file."""
    items: np.ndarray
    """Row of bytes for each item."""

    @property
    def nbytes(self) -> int:
        return self.items.nbytes

    def as_runs(self, lower: int) -> CellBytes:
        cells, counts, items = grouped(self.cells, self.items, int(self.cells.max(initial=0)) + 1)
        return CellBytes(cells=cells, counts=counts * items.shape[1], data=items.reshape(-1))


Call = Level | Events | CellBytes


def of_cells(call: Call, lower: int, upper: int) -> Call:
    if isinstance(call, Level):
        return replace(call, values=call.values[lower:upper])
    mine = (call.cells >= lower) & (call.cells < upper)
    if isinstance(call, Events):
        return call if mine.all() else Events(cells=call.cells[mine], items=call.items[mine])
    ends = np.cumsum(call.counts)
    first, last = np.searchsorted(call.cells, (lower, upper))
    begin, end = (int(ends[k - 1]) if k else 0 for k in (first, last))
    return CellBytes(cells=call.cells[first:last], counts=call.counts[first:last], data=call.data[begin:end])
