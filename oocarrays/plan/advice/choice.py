"""Which layout each array should have, and how each block reads it: the cheapest of all that can be.

    producer ──► layout c ──────────────────► consumer 1, alone or together
                    └── rewrite ──► layout c′ ──► consumer 2, alone or together

    seconds(c, c′) = w · write(c) + w · rewrite(c, c′) + Σ weight · min(read(c), read(c′))

An array and one of its producers are decided for themselves, as in the paper: nothing that one array costs depends on
the layout of another. So the least of each is the least of all, and a graph of a thousand blocks is no harder than its
parts. Memik, Kandemir and Choudhary 2000, section 3.2, with seconds in place of counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from oocarrays.errors import BudgetError
from oocarrays.mapping.grid import Stored
from oocarrays.plan.advice.price import METHODS, Prices, Use, prices, rewriting_seconds
from oocarrays.plan.memory import Resources

WORTH = 0.9
"""Of the seconds today: what would take more is kept as it is, for predictions are no better than that."""
ALIKE = 256
"""Prices that are kept, at most: a few KiB each."""
WORTH_A_COPY = 0.9
"""Of the seconds with one layout: a second copy that saves less is not made."""
LEAST_COPY = 2**26
"""Bytes of an array of which a second copy may be advised."""
EQUAL = 1.05
"""Of the least seconds: among layouts that take no more, Dask's programs get the one of the fewest chunks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockReader:
    """A block that reads an array, in one or several ways."""

    block: str
    """Its name."""
    weight: float
    """Times that it runs after the producer."""
    uses: tuple[tuple[Use, float], ...]
    """What it reads, and how often in one run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceUnit:
    """An array, one producer of it, and who reads what that makes: what is decided at one time."""

    array: str
    """Its name."""
    producer: str | None
    """The block that writes it; None where it was there before."""
    stored: Stored
    """As it is today."""
    shapes: np.ndarray
    """Chunk shapes that are looked at, a row each; the first is today's."""
    readers: tuple[BlockReader, ...]
    """Blocks that read it."""
    writing: tuple[tuple[Use, float], ...] = ()
    """What the producer writes, and how often."""
    fixed: bool = False
    """Whether the array stays as it is."""


@dataclass(frozen=True, eq=False)
class Priced:
    """Price of a unit in each of its layouts."""

    unit: ChoiceUnit
    reading: tuple[np.ndarray, ...]
    """Seconds of each reader, weighted: a row for each method, a column for each layout."""
    writing: np.ndarray
    """Seconds of the producer, weighted: the same."""
    rewriting: np.ndarray
    """Seconds of a rewrite from each layout in each other, weighted."""
    details: tuple[tuple[Prices, ...], ...]
    """Of each reader, what one run costs, a use each."""
    written: tuple[Prices, ...]
    """Of the producer."""

    @property
    def starts(self) -> np.ndarray:
        """The layouts in which the array can be made: of what was there before, today's."""
        here = self.unit.producer is None or self.unit.fixed
        return np.arange(1 if here else len(self.unit.shapes))

    @cached_property
    def table(self) -> np.ndarray:
        """Seconds in all: a row for each layout that is made, a column for each that it is rewritten in; on the
        diagonal it is not rewritten."""
        total = self._made
        for each in self._best:
            total = total + np.minimum(each[self.starts, None], each[None, :])
        return total

    @cached_property
    def single(self) -> np.ndarray:
        """Seconds in all, as `table`, where all read the last layout."""
        return np.asarray(self._made + sum(self._best, np.zeros(len(self.unit.shapes))))

    @cached_property
    def _best(self) -> list[np.ndarray]:
        """Seconds of each reader in its best way, by layout."""
        return [each.min(axis=0) for each in self.reading]

    @cached_property
    def _made(self) -> np.ndarray:
        """Seconds of the producer, and of rewriting what it has made."""
        return np.asarray(self.writing.min(axis=0)[self.starts, None] + self.rewriting[self.starts])


def priced(unit: ChoiceUnit, resources: Resources) -> Priced:
    look = len(unit.shapes), unit.shapes.astype(np.int64).tobytes()
    found = {id(use): _alike(use, unit.stored, *look, resources) for use in _uses(unit)}
    least = max(map(_least_held, found.values()), default=0)
    if least > resources.budget:
        raise BudgetError(resources.budget, least, f"array {unit.array!r} in any chunks")
    fitting = {key: each.within(resources.budget) for key, each in found.items()}
    details = tuple(tuple(fitting[id(use)] for use, _ in reader.uses) for reader in unit.readers)
    written = tuple(fitting[id(use)] for use, _ in unit.writing)
    reading = tuple(
        weighed(reader.weight, _sum(each, [count for _, count in reader.uses], len(unit.shapes)))
        for reader, each in zip(unit.readers, details, strict=True)
    )
    times = sum(count for _, count in unit.writing) if unit.writing else 1.0
    rewriting = times * _rewriting(unit.stored, *look, resources)
    writing = _sum(written, [count for _, count in unit.writing], len(unit.shapes))
    if unit.fixed:
        rewriting = np.where(np.eye(len(unit.shapes), dtype=bool), 0.0, math.inf)
    return Priced(unit, reading, writing, rewriting, details, written)


@lru_cache(maxsize=ALIKE)
def _alike(use: Use, stored: Stored, shapes: int, chunks: bytes, resources: Resources) -> Prices:
    """Price a use; arrays that are alike, and are used alike, are priced once."""
    return prices(use, stored, np.frombuffer(chunks, np.int64).reshape(shapes, len(stored.grid.chunks)), resources)


@lru_cache(maxsize=ALIKE)
def _rewriting(stored: Stored, shapes: int, chunks: bytes, resources: Resources) -> np.ndarray:
    every = np.frombuffer(chunks, np.int64).reshape(shapes, len(stored.grid.chunks))
    return rewriting_seconds(stored, every, every, resources)


def _sum(each: Sequence[Prices], counts: Sequence[float], layouts: int) -> np.ndarray:
    """Seconds of several uses, a row for each method: every use of a block is read in the same way."""
    total = np.zeros((len(METHODS), layouts))
    for prices_, count in zip(each, counts, strict=True):
        total = total + weighed(count, prices_.seconds)
    return total


def weighed(weight: float, seconds: np.ndarray) -> np.ndarray:
    """Multiply seconds by a weight; what cannot be does not become possible by being rare."""
    found: np.ndarray = np.multiply(seconds, weight, where=np.isfinite(seconds), out=np.full(seconds.shape, math.inf))
    return found


def _uses(unit: ChoiceUnit) -> Iterator[Use]:
    """Every use of an array, by whoever."""
    for uses in (unit.writing, *(reader.uses for reader in unit.readers)):
        yield from (use for use, _ in uses)


def _least_held(found: Prices) -> int:
    """Bytes of memory in which some layout and method can be."""
    possible = found.held[np.isfinite(found.seconds)]
    return math.ceil(float((possible if len(possible) else found.held).min()))


# ---------------------------------------------------------------------- choices


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The layout of an array that one producer makes, the copy in another, and each reader's way."""

    made: int
    """Number of the layout in which the array is made, or is."""
    copied: int
    """Number of the layout in which it is rewritten; the same where it is not."""
    seconds: float
    """Predicted for all runs together, with weights: writing, rewriting and reading."""
    today: float
    """The same in today's chunks, each block in its best way."""
    ways: tuple[tuple[int, int], ...]
    """Of each reader: its layout, and its method, a row of `METHODS`."""
    writes: int
    """The producer's method."""

    @property
    def kept(self) -> bool:
        return self.made == self.copied == 0

    @property
    def saving(self) -> float:
        """The share of today's seconds that is saved."""
        return 1 - self.seconds / self.today if 0 < self.today < math.inf else 0.0


def choose(
    priced: Priced, worth: float = WORTH, worth_a_copy: float = WORTH_A_COPY, least_copy: float = LEAST_COPY
) -> Choice:
    """Choose layouts and ways: the cheapest, unless what is there, or one layout for all, takes hardly longer.

    Where Dask cuts its tasks by chunks, layouts of nearly the same seconds are equal, and the one of the fewest chunks
    is taken: what the tasks compute is not priced, and fewer tasks compute the same.
    """
    one, both = priced.single, priced.table
    may_copy = priced.unit.stored.nbytes >= least_copy
    best = both if may_copy and both.min() < worth_a_copy * one.min() else one
    made, copied = _cheapest(priced, best)
    if not best[made, copied] <= worth * one[0, 0]:
        made, copied = 0, 0
    return chosen(priced, made, copied, both=best is both)


def _cheapest(priced: Priced, seconds: np.ndarray) -> tuple[int, int]:
    """Return the layouts of the least seconds; of equal ones, the fewest chunks where these are tasks of Dask."""
    unit = priced.unit
    places = np.argwhere(seconds <= EQUAL * seconds.min())
    if not (any(use.cut_by_chunks for use in _uses(unit)) and np.isfinite(seconds.min())):
        places = np.array([np.unravel_index(int(np.argmin(seconds)), seconds.shape)])
    chunks = np.prod(-(-np.array(unit.stored.grid.shape) // unit.shapes), axis=1, dtype=float)
    made, copied = min(places.tolist(), key=lambda place: (chunks[place].sum(), seconds[tuple(place)]))
    return made, copied


def chosen(priced: Priced, made: int, copied: int, *, both: bool = True) -> Choice:
    """Return the choice of some layouts, with each reader's cheapest way."""
    ways = []
    for each in priced.reading:
        layout = made if both and each[:, made].min() <= each[:, copied].min() else copied
        ways.append((layout, int(np.argmin(each[:, layout]))))
    return Choice(
        made=made,
        copied=copied,
        seconds=float((priced.table if both else priced.single)[made, copied]),
        today=float(priced.single[0, 0]),
        ways=tuple(ways),
        writes=int(np.argmin(priced.writing[:, made])),
    )
