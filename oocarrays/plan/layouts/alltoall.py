"""An all-to-all of rows: each rank sends some of its rows to each, as many as it is said to.

    counts     to 0  1  2          rank 0   a a a b         gets   a a a │ d         of 0 and 1
    of 0       ┌ 3   1   0         rank 1   d                     b               of 0
    of 1       │ 1   0   0         rank 2   e e                   e e             of 2
    of 2       └ 0   0   2

What comes lies in the order of the ranks that sent it. By default rows are sent in the order in which they lie;
displacements say where each rank's begin. Thakur 1995, chapter 4; MPI calls it alltoallv.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from oocarrays.errors import LayoutError
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.layouts.assembly import held_messages
from oocarrays.plan.memory import Holding, Memory
from oocarrays.plan.plan import Facts


@dataclass(frozen=True, eq=False, kw_only=True)
class AlltoallPlan(Holding):
    """An all-to-all of rows: who sends how many to whom, from where."""

    counts: np.ndarray
    """``counts[source, target]`` rows."""
    displacements: np.ndarray
    """``displacements[source, target]`` is the first of these in what ``source`` has."""
    lengths: np.ndarray
    """Rows that each rank has."""
    row: tuple[int, ...]
    """Extents of a row; none where it is one element."""
    itemsize: int
    """Bytes of an element."""
    schedule: Schedule | None = None
    """The order of messages between workers; None between threads, which send none."""

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
        """Where each source's rows begin with each target."""
        return _displaced(self.counts.T).T

    def shape(self, rank: int) -> tuple[int, ...]:
        """Elements in each axis of what a rank gets."""
        return (int(self.counts[:, rank].sum()), *self.row)

    def taken(self, source: int, target: int) -> slice:
        """Return the rows of a rank that it sends to another."""
        return _rows(self.displacements[source, target], self.counts[source, target])

    def place(self, source: int, target: int) -> slice:
        """Return the rows in which they lie with the other."""
        return _rows(self._starts[source, target], self.counts[source, target])

    def sizes(self) -> np.ndarray:
        """Elements that each rank sends to each, and to itself: a matrix."""
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
        """Those between different ranks."""
        return int(np.count_nonzero(self.between))

    @property
    def sent_bytes(self) -> int:
        return int(self.between.sum())

    @property
    def memory(self) -> Memory:
        """Held by the rank that holds most: what it has and gets, and messages."""
        nbytes = self._row_elements * self.itemsize
        has, gets = self.lengths * nbytes, self.counts.sum(axis=0) * nbytes
        messages = np.zeros_like(has) if self.schedule is None else held_messages(self.between, self.schedule)
        most = int((has + gets + messages).argmax())
        return Memory.of(part=int(has[most]), gets=int(gets[most]), messages=int(messages[most]))

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
    """Return a matrix of whole numbers, none below 0, for each pair of ranks."""
    try:
        found = np.asarray(given)
    except ValueError:  # rows of different lengths
        found = np.empty(0)
    if found.shape != (ranks, ranks):
        shape = " × ".join(map(str, found.shape))
        raise LayoutError(f"{name} of {shape} are not one for each pair of {ranks} ranks: {ranks} × {ranks}")
    if found.dtype.kind not in "iu":
        raise LayoutError(f"{name} of type {found.dtype} are no whole numbers")
    if found.min(initial=0) < 0:
        raise LayoutError(f"{name} hold {found.min()}: they are whole numbers, at least 0")
    return found.astype(np.int64)


def _displaced(counts: np.ndarray) -> np.ndarray:
    """Return where each begins in a row, one behind the other."""
    found: np.ndarray = np.cumsum(counts, axis=1) - counts
    return found


def _rows(first: int, count: int) -> slice:
    return slice(int(first), int(first + count))
