"""Calls: what a program asks of the streams of some cells at one time, as plain bytes.

level    all cells, as many bytes each     values with one row for each cell, wherever they lie in memory
events   items in any order                a row of bytes for each, and its cell
runs     some cells, each its own number   bytes of all, one cell after the other
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from oocarrays.plan.streams.modes import Mode, ModeAnswer, write_mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Values for all cells, as many bytes each."""

    values: np.ndarray
    """Items, with the cells along the first axis."""
    nbytes: int
    """Bytes of each cell."""
    is_contiguous: bool
    """Whether the values of a cell follow those of the cell before it where they came from."""

    def found(self, current: Mode, block: int) -> ModeAnswer:
        """Find the mode of the call, as far as these cells can tell."""
        return ModeAnswer(write_mode(current, self.nbytes, True, self.is_contiguous, block), self.nbytes, True)

    @property
    def rows(self) -> np.ndarray:
        """The bytes of each cell, in a row."""
        values = np.ascontiguousarray(self.values)
        return values.reshape(-1).view(np.uint8).reshape(len(values), self.nbytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Items for some cells, in the order in which they come."""

    cells: np.ndarray
    """The cell of each item, of those of the file."""
    items: np.ndarray
    """A row of bytes for each."""

    def found(self, current: Mode, block: int) -> ModeAnswer:
        """Find the mode of the call: independent."""
        return ModeAnswer("IB", -1, False)

    def as_runs(self) -> CellBytes:
        """Return the same, sorted by cell."""
        order = np.argsort(self.cells, kind="stable")
        cells, counts = np.unique(self.cells, return_counts=True)
        data = np.ascontiguousarray(self.items[order]).reshape(-1)
        return CellBytes(cells=cells, counts=counts * self.items.shape[1], data=data)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellBytes:
    """Bytes for some cells."""

    cells: np.ndarray
    """The cells, rising, of those of the file."""
    counts: np.ndarray
    """Bytes of each."""
    data: np.ndarray
    """The bytes, one cell after the other."""

    def found(self, current: Mode, block: int) -> ModeAnswer:
        """Find the mode of the call: independent."""
        return ModeAnswer("IB", -1, False)


Call = Level | Events | CellBytes


def of_cells(call: Call, lower: int, upper: int) -> Call:
    """Return the part of a call for some cells, from and to.

    >>> of_cells(Events(cells=np.array([3, 9, 4]), items=np.arange(3, dtype="u1")[:, None]), 3, 5).items.tolist()
    [[0], [2]]
    """
    if isinstance(call, Level):
        return replace(call, values=call.values[lower:upper])
    mine = (call.cells >= lower) & (call.cells < upper)
    if isinstance(call, Events):
        return call if mine.all() else Events(cells=call.cells[mine], items=call.items[mine])
    ends = np.cumsum(call.counts)
    first, last = np.searchsorted(call.cells, (lower, upper))
    begin, end = (int(ends[k - 1]) if k else 0 for k in (first, last))
    return CellBytes(cells=call.cells[first:last], counts=call.counts[first:last], data=call.data[begin:end])
