"""Levels of a pyramid, block by block: each is computed from the one below, one value for each group of elements.

    level 0   ┌─┬─┬─┬─┐      level 1   ┌───┬───┐      level 2   ┌───────┐
              ├─┼─┼─┼─┤                │   │   │                │       │
              ├─┼─┼─┼─┤                ├───┼───┤                │       │
              ├─┼─┼─┼─┤                │   │   │                │       │
              └─┴─┴─┴─┘                └───┴───┘                └───────┘

If an extent is odd, the last group along an axis has the remainder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from oocarrays.mapping.coarsening import pieces

PIECE_BYTES = 2**18
"""Bytes of a block that are coarsened at a time: temporary arrays stay in a cache, and are negligible."""
WORKSPACE = 16 * PIECE_BYTES
"""Bytes of temporary arrays, in addition to a block and its result."""
METHODS = ("mean", "median", "nearest", "mode")
"""Methods of choosing a value for a group."""


def coarsen(block: np.ndarray, factors: Sequence[int], method: str = "mean") -> np.ndarray:
    """Return a block with one value for each group of elements."""
    if method == "nearest":
        return block[tuple(slice(None, None, factor) for factor in factors)]
    shape = tuple(-(-n // factor) for n, factor in zip(block.shape, factors, strict=True))
    made, of = np.empty(shape, block.dtype), {"mean": _mean, "median": _median, "mode": _mode}[method]
    for parts in pieces(factors, block.shape):
        fine, coarse, each = (tuple(part) for part in zip(*parts, strict=True))
        _in_pieces(block[fine], made[coarse], each, of)
    return made


def _in_pieces(
    block: np.ndarray, made: np.ndarray, factors: tuple[int, ...], of: Callable[..., None], axis: int = 0
) -> None:
    """Coarsen whole groups, several at a time: cut along the first axis, and parts that are still too large further."""
    if block.nbytes <= PIECE_BYTES or axis == block.ndim:
        of(block, made, factors)
        return
    before, factor, count = (slice(None),) * axis, factors[axis], made.shape[axis]
    rows = max(PIECE_BYTES * count // block.nbytes, 1)
    for start in range(0, count, rows):
        stop = min(start + rows, count)
        part = block[(*before, slice(start * factor, stop * factor))]
        _in_pieces(part, made[(*before, slice(start, stop))], factors, of, axis + 1)


def _mean(block: np.ndarray, made: np.ndarray, factors: tuple[int, ...]) -> None:
    count = math.prod(factors)
    if block.dtype.kind in "iu" and block.dtype.itemsize == 8:  # no wider type has their sum
        n, half = block.dtype.type(count), block.dtype.type(count // 2)
        whole, rest = np.divmod(block, n)
        made[...] = _sum(whole, factors) + (_sum(rest, factors) + half) // n
        return
    total = _sum(block, factors)
    if block.dtype.kind in "iu":
        total += total.dtype.type(count // 2)
        made[...] = total >> (count.bit_length() - 1) if count & (count - 1) == 0 else total // count
    elif block.dtype.kind == "b":
        made[...] = 2 * total >= count
    else:
        np.divide(total, count, out=made, casting="unsafe")


def _sum(block: np.ndarray, factors: tuple[int, ...]) -> np.ndarray:
    """Sum groups along each axis by position in the group: whole rows are added, and nothing is reshaped."""
    total, dtype = block, _sum_type(block.dtype, math.prod(factors))
    for axis, factor in enumerate(factors):
        before = (slice(None),) * axis
        first, *others = (total[(*before, slice(place, None, factor))] for place in range(factor))
        total = np.add(first, others[0], dtype=dtype) if others else first.astype(dtype, copy=False)
        for each in others[1:]:
            total += each
    return total


def _sum_type(dtype: np.dtype, count: int) -> np.dtype:
    """Return a type for the sum of ``count`` values plus half of their number."""
    if dtype.kind not in "iub":
        return np.result_type(dtype, np.float64) if dtype.kind in "fc" else dtype
    kind, most = ("u" if dtype.kind in "ub" else "i"), 2 ** (8 * dtype.itemsize) * 2 * count
    wide = next((n for n in (2, 4) if most <= 2 ** (8 * n)), 8)
    return np.dtype(f"{kind}{max(wide, dtype.itemsize)}")


def _median(block: np.ndarray, made: np.ndarray, factors: tuple[int, ...]) -> None:
    ordered = np.sort(_grouped(block, factors), axis=0)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    if block.dtype.kind in "fc":
        missing = np.isnan(ordered[-1])  # sorted to the end
        total = np.add(low, high, dtype=_sum_type(block.dtype, 2))
        np.divide(total, 2, out=made, where=~missing, casting="unsafe")
        made[missing] = np.nan
    else:
        _mean(np.stack([low, high], axis=-1), made[..., np.newaxis], (1,) * made.ndim + (2,))


def _mode(block: np.ndarray, made: np.ndarray, factors: tuple[int, ...]) -> None:
    ordered = np.sort(_grouped(block, factors), axis=0)
    best, most = ordered[0].copy(), np.zeros(ordered.shape[1:], np.int64)
    run = np.zeros_like(most)
    for place, values in enumerate(ordered):
        same = values == ordered[place - 1] if place else np.zeros(values.shape, bool)
        run = np.where(same, run + 1, 1)
        better = run > most
        best[better], most = values[better], np.maximum(most, run)
    made[...] = best


def _grouped(block: np.ndarray, factors: tuple[int, ...]) -> np.ndarray:
    """Return the values of each group along a new first axis."""
    places = product(*map(range, factors))
    strided = (block[tuple(slice(i, None, f) for i, f in zip(place, factors, strict=True))] for place in places)
    return np.stack(list(strided))


@dataclass(frozen=True, slots=True)
class Levels:
    """A kernel that returns a block and the levels above it."""

    steps: tuple[tuple[int, ...], ...]
    """Elements of a group along each axis, from each level to the next."""
    method: str
    axes: tuple[int, ...] = ()
    """Axis of the source for each axis of the levels; empty if their order is the same."""

    def __call__(self, block: np.ndarray) -> list[np.ndarray]:
        block = block.transpose(self.axes) if self.axes else block
        return [block, *self.above(block, 0)]

    def above(self, block: np.ndarray, level: int) -> Iterator[np.ndarray]:
        """Yield the levels above a block of ``level``, with axes in the order of the levels."""
        for factors in self.steps[level:]:
            block = coarsen(block, factors, self.method)
            yield block
