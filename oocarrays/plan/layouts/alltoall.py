"""All-to-all exchange of rows: each rank sends a given number of its rows to each rank.

    counts     to 0  1  2          rank 0   a a a b         gets   a a a │ d         from 0 and 1
    from 0     ┌ 3   1   0         rank 1   d                      b                 from 0
    from 1     │ 1   0   0         rank 2   e e                    e e               from 2
    from 2     └ 0   0   2

Received rows are ordered by sender. By default each target's rows follow those of the target before; displacements set
the first row for each target. Thakur 1995, chapter 4; MPI calls it alltoallv.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from oocarrays.errors import LayoutError
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.layouts.assembly import fullest, held_messages
from oocarrays.plan.memory import Holding, Memory
from oocarrays.plan.plan import Facts


@dataclass(frozen=True, eq=False, kw_only=True)
class AlltoallPlan(Holding):
    """Plan of an all-to-all exchange of rows."""

    counts: np.ndarray
    """Number of rows: ``counts[source, target]``."""
    displacements: np.ndarray
    """``displacements[source, target]`` is the first of these rows in the part of ``source``."""
    lengths: np.ndarray
    """Number of rows of each rank."""
    row: tuple[int, ...]
    """Shape of a row; () if a row is one element."""
    itemsize: int
    """Bytes of an element."""
    schedule: Schedule | None = None
    """Schedule of messages between workers; None on threads, which send none."""

    @classmethod
    def of(
        cls,
        counts: object,
        displacements: object = None,
        *,
        lengths: object,
        row: tuple[int, ...] = (),
        itemsize: int = 8,
    ) -> AlltoallPlan:
        has = np.asarray(lengths, np.int64)
        many = _whole(counts, "counts", len(has))
        first = _displaced(many) if displacements is None else _whole(displacements, "displacements", len(has))
        beyond = np.argwhere((first + many > has[:, None]) & (many > 0))
        if len(beyond):
            source, target = map(int, beyond[0])
            rows = f"{first[source, target]} to {first[source, target] + many[source, target]}"
            raise LayoutError(f"rank {source} is to send rows {rows} to rank {target}, and has {has[source]}")
        return cls(counts=many, displacements=first, lengths=has, row=row, itemsize=itemsize)

    @property
    def ranks(self) -> int:
        return len(self.lengths)

    @cached_property
    def _starts(self) -> np.ndarray:
        """First row of each source's rows in each target's result."""
        return _displaced(self.counts.T).T

    def shape(self, rank: int) -> tuple[int, ...]:
        """Return the shape of a rank's result."""
        return (int(self.counts[:, rank].sum()), *self.row)

    def taken(self, source: int, target: int) -> slice:
        """Return the rows of ``source`` that it sends to ``target``."""
        return _rows(self.displacements[source, target], self.counts[source, target])

    def place(self, source: int, target: int) -> slice:
        """Return the rows of the result of ``target`` that come from ``source``."""
        return _rows(self._starts[source, target], self.counts[source, target])

    def sizes(self) -> np.ndarray:
        """Return a matrix of the elements that each rank sends to each, itself included."""
        return self.counts * self._row_elements

    @property
    def _row_elements(self) -> int:
        return int(np.prod(self.row, dtype=np.int64))

    @cached_property
    def between(self) -> np.ndarray:
        """Bytes from each rank to each other."""
        sizes = self.sizes() * self.itemsize
        np.fill_diagonal(sizes, 0)
        return sizes

    @property
    def messages(self) -> int:
        """Number of messages between different ranks."""
        return int(np.count_nonzero(self.between))

    @property
    def sent_bytes(self) -> int:
        return int(self.between.sum())

    @property
    def memory(self) -> Memory:
        """Peak memory of the rank that holds most: its part, its result, and messages."""
        nbytes = self._row_elements * self.itemsize
        has, gets = self.lengths * nbytes, self.counts.sum(axis=0) * nbytes
        messages = np.zeros_like(has) if self.schedule is None else held_messages(self.between, self.schedule)
        return fullest(part=has, gets=gets, messages=messages)

    @property
    def order(self) -> str:
        return self.schedule.name if self.schedule else "no order"

    @property
    def title(self) -> str:
        return f"{int(self.counts.sum())} rows from rank to rank"

    def facts(self) -> Facts:
        gets = self.counts.sum(axis=0)
        return [("exchange", (self.title,)), ("ranks get", (f"{int(gets.min())} to {int(gets.max())} rows",))]


def _whole(given: object, name: str, ranks: int) -> np.ndarray:
    """Return a matrix of nonnegative whole numbers, one per pair of ranks; raise otherwise."""
    try:
        found = np.asarray(given)
    except ValueError:  # rows of different lengths
        found = np.empty(0)
    if found.shape != (ranks, ranks):
        shape = " × ".join(map(str, found.shape))
        raise LayoutError(f"{name} of {shape} must have one entry for each pair of {ranks} ranks: {ranks} × {ranks}")
    if found.dtype.kind not in "iu":
        raise LayoutError(f"{name} of type {found.dtype} are not whole numbers")
    if found.min(initial=0) < 0:
        raise LayoutError(f"{name} contain {found.min()}: they must be whole numbers of at least 0")
    return found.astype(np.int64)


def _displaced(counts: np.ndarray) -> np.ndarray:
    """Return the exclusive cumulative sum of each row: the start of each entry."""
    found: np.ndarray = np.cumsum(counts, axis=1) - counts
    return found


def _rows(first: int, count: int) -> slice:
    return slice(int(first), int(first + count))
