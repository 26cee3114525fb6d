"""Unions of products of index sets, in closed form: runs of equal rows, with the contents of each row.

    0 0 0 · · ·        rows 0 to 1    columns 0 to 2                        numbered in order:    0 1 2 · · ·
    0 0 0 · · ·        row  2         columns 0 to 2 and 4 to 5                                   3 4 5 · · ·
    0 0 0 · 1 1        row  3         columns 4 to 5                                              6 7 8 · 9 10
    · · · · 1 1                                                                                   · · · · 11 12

Equal rows are described once, along every axis, so that the size of the described set is unlimited. Indices are those
of elements, or of chunks: one class represents both the chunks that are wanted and those that are covered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from oocarrays.mapping.grid import ChunkGrid, chunk_runs
from oocarrays.mapping.selection import Axes, Taken

Runs = np.ndarray
"""Indices along an axis as runs, ascending and separate: first, and one past the last; runs × 2."""
Product = tuple[Runs, ...]
"""Runs along each axis; the set is their product."""


def runs_of(taken: Taken, unit: int = 1) -> Runs:
    """Return the selected indices along an axis as runs, or the chunks of ``unit`` elements with any of them."""
    if not len(taken):
        return np.empty((0, 2), np.int64)
    if isinstance(taken, range) and taken.step <= unit:
        return np.array([[taken[0] // unit, taken[-1] // unit + 1]])
    indices = np.unique(np.asarray(taken, np.int64) // unit)
    ends = np.flatnonzero(np.diff(indices, append=indices[-1] + 2) > 1)
    return np.stack([indices[np.r_[0, ends[:-1] + 1]], indices[ends] + 1], axis=1)


def product_of(axes: Axes, units: Sequence[int] | None = None) -> Product:
    """Return the selected indices along each axis as runs, or the chunks of ``units`` elements with any of them."""
    return tuple(map(runs_of, axes, units or (1,) * len(axes)))


def touched(grid: ChunkGrid, products: Iterable[Product]) -> list[Product]:
    """Return the chunks that intersect some products of runs of elements."""

    def chunks(runs: Runs, unit: int) -> Runs:
        return _joined([np.stack([runs[:, 0] // unit, -(-runs[:, 1] // unit)], axis=1)])

    return [tuple(map(chunks, product, grid.chunks)) for product in products]


@dataclass(frozen=True, eq=False)
class Union:
    """Union of several products of runs."""

    runs: Runs
    """Runs of indices along the first axis with equal contents along the others."""
    kinds: np.ndarray
    """Index in ``inner`` of the contents of each run."""
    inner: tuple[Union, ...]
    """Distinct contents along the other axes; empty if no axis is left."""

    @classmethod
    def of(cls, products: Iterable[Product]) -> Union:
        return _united([each for each in products if all(map(len, each))], {})

    @cached_property
    def _ends(self) -> np.ndarray:
        """One past the number of the last index of each run."""
        counts = np.array([each.count for each in self.inner], np.int64)
        return np.asarray(np.cumsum((self.runs[:, 1] - self.runs[:, 0]) * counts[self.kinds]))

    @cached_property
    def count(self) -> int:
        return int(self is POINT) if not self.inner else int(self._ends[-1])

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        """Yield its indices, box by box."""
        return (index for box in self.boxes() for index in product(*map(range, *box)))

    def __contains__(self, index: tuple[int, ...]) -> bool:
        if not index:
            return self.count > 0
        run = int(np.searchsorted(self.runs[:, 0], index[0], "right")) - 1
        return run >= 0 and index[0] < self.runs[run, 1] and index[1:] in self.inner[self.kinds[run]]

    def boxes(self, numbers: range | None = None) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Yield its boxes: first index, and one past the last, along each axis."""
        start, stop = (0, self.count) if numbers is None else (numbers.start, min(numbers.stop, self.count))
        if not self.inner:
            yield from [((), ())] if start < stop else []
        run = int(np.searchsorted(self._ends, start, "right")) if start < stop and self.inner else len(self.runs)
        while start < stop and run < len(self.runs):
            yield from self._run_boxes(run, start, min(stop, int(self._ends[run])))
            start, run = int(self._ends[run]), run + 1

    def _run_boxes(self, run: int, start: int, stop: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Yield the boxes of one run: part of a row, whole rows, part of a row."""
        inner, (lower, upper) = self.inner[self.kinds[run]], self.runs[run].tolist()
        base = int(self._ends[run]) - (upper - lower) * inner.count
        for low, high in chunk_runs(start - base, stop - base, inner.count):
            first, inside = divmod(low, inner.count)
            rows = max((high - low) // inner.count, 1)
            for begin, end in inner.boxes(range(inside, min(inside + high - low, inner.count))):
                yield (lower + first, *begin), (lower + first + rows, *end)

    def products(self) -> list[Product]:
        """Return it as disjoint products: one for each kind of row."""
        if not self.inner:
            return [()] if self.count else []
        return [
            (self.runs[self.kinds == kind], *product)
            for kind, inner in enumerate(self.inner)
            for product in inner.products()
        ]

    def within(self, box: Sequence[range]) -> Union:
        return Union.of(tuple(map(_cut, product, box)) for product in self.products())

    def complement(self, shape: Sequence[int]) -> list[Product]:
        """Return the rest of an array of some shape, as products: one for each kind of row."""
        if not shape:
            return [] if self.count else [()]
        gaps = np.stack([np.r_[0, self.runs[:, 1]], np.r_[self.runs[:, 0], shape[0]]], axis=1)
        gaps = gaps[gaps[:, 0] < gaps[:, 1]]
        whole = [(gaps, *(runs_of(range(n)) for n in shape[1:]))] if len(gaps) else []
        parts = [
            (self.runs[self.kinds == kind], *product)
            for kind, inner in enumerate(self.inner)
            for product in inner.complement(shape[1:])
        ]
        return [product for product in whole + parts if all(map(len, product))]

    def __reduce__(self) -> Any:
        return "POINT" if self is POINT else (Union, (self.runs, self.kinds, self.inner))


NONE = np.empty((0, 2), np.int64)
POINT = Union(NONE, NONE[:, 0], ())
"""Union of no axes with one index."""


def _united(products: Sequence[Product], known: dict[Any, Union]) -> Union:
    """Return the union of non-empty products; equal unions are one object in ``known``."""
    if not products:
        return Union(NONE, NONE[:, 0], ())
    if not products[0]:
        return POINT
    groups: dict[Any, tuple[Product, list[Runs]]] = {}
    for first, *rest in products:
        groups.setdefault(tuple(runs.tobytes() for runs in rest), (tuple(rest), []))[1].append(first)
    along = [_joined(firsts) for _, firsts in groups.values()]
    rests = [rest for rest, _ in groups.values()]
    swept = _swept(along) if len(along) > 1 else [(along[0], frozenset([0]))]
    made = {held: _united([rests[group] for group in sorted(held)], known) for held in {held for _, held in swept}}
    runs, kinds, inner = _merged([(runs, made[held]) for runs, held in swept])
    key = runs.tobytes(), kinds.tobytes(), *map(id, inner)
    return known.setdefault(key, Union(runs, kinds, inner))


def _cut(runs: Runs, interval: range) -> Runs:
    cut: Runs = np.clip(runs, interval.start, interval.stop)
    return cut[cut[:, 0] < cut[:, 1]]


def _joined(several: Sequence[Runs]) -> Runs:
    """Return the union of runs along one axis."""
    runs = np.concatenate(several)
    runs = runs[np.argsort(runs[:, 0], kind="stable")]
    ends = np.maximum.accumulate(runs[:, 1])
    last = np.r_[runs[1:, 0] > ends[:-1], True][: len(runs)]
    first = np.r_[True, last[:-1]][: len(runs)]
    return np.stack([runs[first, 0], ends[last]], axis=1)


def _swept(along: Sequence[Runs]) -> list[tuple[Runs, frozenset[int]]]:
    """Return runs along one axis, each with the groups that contain it whole."""
    places = np.concatenate([runs.T.reshape(-1) for runs in along])
    groups = np.concatenate([np.repeat([group, ~group], len(runs)) for group, runs in enumerate(along)])
    order = np.argsort(places, kind="stable")
    swept, held, before = [], set[int](), 0
    for place, group in zip(places[order].tolist(), groups[order].tolist(), strict=True):
        if held and before < place:
            swept.append((np.array([[before, place]]), frozenset(held)))
        before = place
        (held.add if group >= 0 else lambda gone: held.discard(~gone))(group)
    return swept


def _merged(parts: Sequence[tuple[Runs, Union]]) -> tuple[Runs, np.ndarray, tuple[Union, ...]]:
    """Return consecutive runs, joining those that touch and have equal contents along the other axes."""
    inner = {id(union): union for _, union in parts}
    number = {key: kind for kind, key in enumerate(inner)}
    runs = np.concatenate([runs for runs, _ in parts])
    kinds = np.repeat([number[id(union)] for _, union in parts], [len(runs) for runs, _ in parts])
    last = np.r_[(runs[1:, 0] > runs[:-1, 1]) | (kinds[1:] != kinds[:-1]), True]
    first = np.r_[True, last[:-1]]
    return np.stack([runs[first, 0], runs[last, 1]], axis=1), kinds[first], tuple(inner.values())
