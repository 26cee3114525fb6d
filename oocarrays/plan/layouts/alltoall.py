"""All-to-all exchange of rows: each rank sends a given number of its rows to each rank.

    counts     to 0  1  2          rank 0   a a a b         gets   a a a │ d         from 0 and 1
    from 0     ┌ 3   1   0         rank 1   d                      b                 from 0
    from 1     │ 1   0   0         rank 2   e e                    e e               from 2
    from 2     └ 0   0   2

Received rows are ordered by sender. By default each target's rows follow those of the target before; displacements set
the first row for each target. Thakur 1995, chapter 4; MPI calls it alltoallv.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from oocarrays.errors import LayoutError
from oocarrays.mapping.layouts.halo import Boundary
from oocarrays.mapping.selection import Axes
from oocarrays.plan.layouts.assembly import RankExchange
from oocarrays.plan.layouts.halos import Place
from oocarrays.plan.plan import Facts


@dataclass(frozen=True, eq=False, kw_only=True)
class AlltoallPlan(RankExchange):
    """Plan of an all-to-all exchange of rows."""

    counts: np.ndarray
    """Number of rows: ``counts[source, target]``."""
    displacements: np.ndarray
    """``displacements[source, target]`` is the first of these rows in the part of ``source``."""
    lengths: np.ndarray
    """Number of rows of each rank."""
    row: tuple[int, ...]
    """Shape of a row; () if a row is one element."""
    made: ClassVar[str] = "gets"

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
    def held(self) -> np.ndarray:
        return self.lengths * math.prod(self.row)

    @cached_property
    def _starts(self) -> np.ndarray:
        return _displaced(self.counts.T).T

    def shape(self, rank: int) -> tuple[int, ...]:
        return (int(self.counts[:, rank].sum()), *self.row)

    def lenders(self, rank: int) -> list[int]:
        return np.flatnonzero(self.counts[:, rank]).tolist()

    def taken(self, source: int, target: int) -> Axes:
        first = int(self.displacements[source, target])
        return (range(first, first + int(self.counts[source, target])), *map(range, self.row))

    def strips(self, source: int, target: int) -> Iterator[tuple[Place, Place]]:
        """Yield the place in the result of ``target`` of the rows from ``source``, and the index of all of them."""
        first = int(self._starts[source, target])
        yield (slice(first, first + int(self.counts[source, target])), ...), (...,)

    def filled(self, rank: int) -> Iterator[tuple[Place, Boundary]]:
        """Yield nothing: a result has no constants."""
        yield from ()

    def sizes(self) -> np.ndarray:
        return self.counts * math.prod(self.row)

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
    return np.cumsum(counts, axis=1) - counts
