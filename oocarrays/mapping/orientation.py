"""Storage order of elements, as axes from the slowest to the fastest: chunks extend along the fastest ones.

    row, (0, 1)    ┌───────────┐      column, (1, 0)    ┌──┬──┬──┬──┐      the fastest axes are whole,
                   ├───────────┤                        │  │  │  │  │      one is cut to fit,
                   ├───────────┤                        │  │  │  │  │      the slower ones have length 1
                   └───────────┘                        └──┴──┴──┴──┘

Within a chunk the order is the same: a column of a column chunk is one range of its bytes. Arrays before 0.6 have
chunks that extend along an orientation, with elements in row order. Thakur 1995, section 5.4.1 (storage order: row 8
of Figure 5.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def turned(each: Sequence[T], order: Sequence[int] | None) -> tuple[T, ...]:
    """Return values of axes reordered from the slowest to the fastest."""
    return tuple(each) if order is None else tuple(each[axis] for axis in order)


def turned_back(each: Sequence[T], order: Sequence[int] | None) -> tuple[T, ...]:
    """Return values in the array's own axis order: the inverse of `turned`."""
    return turned(each, None if order is None else inverse(order))


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """Return the inverse of an order of axes: the position of each axis in it."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def chunks_along(order: Sequence[int], shape: Sequence[int], size: int) -> tuple[int, ...]:
    """Return chunks of at most ``size`` elements, at least 1, that extend along the fastest axes first."""
    chunks, room = [1] * len(shape), size
    for axis in reversed(order):
        chunks[axis] = max(min(shape[axis], room), 1)
        room = max(room // chunks[axis], 1)
    return tuple(chunks)


def runs_along(order: Sequence[int], shape: Sequence[int], chunks: Sequence[int]) -> bool:
    """Return whether chunks extend along the fastest axes: whole, then one that is cut, then length 1."""
    cut = False
    for axis in reversed(order):
        if cut and chunks[axis] > 1:
            return False
        cut = cut or chunks[axis] < shape[axis]
    return True


def orientation_of(shape: Sequence[int], chunks: Sequence[int]) -> tuple[int, ...] | None:
    """Return the order of axes along which chunks extend, from the slowest to the fastest, or None."""
    speed = [(c > 1) + (c >= n) for n, c in zip(shape, chunks, strict=True)]
    order = tuple(sorted(range(len(shape)), key=speed.__getitem__))
    return order if runs_along(order, shape, chunks) else None
