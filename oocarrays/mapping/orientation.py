"""Storage order of elements, as axes from the slowest to the fastest: chunks extend along the fastest ones.

    row, (0, 1)    ┌───────────┐      column, (1, 0)    ┌──┬──┬──┬──┐      the fastest axes are whole,
                   ├───────────┤                        │  │  │  │  │      one is cut to fit,
                   ├───────────┤                        │  │  │  │  │      the slower ones have length 1
                   └───────────┘                        └──┴──┴──┴──┘

Within a chunk the order is the same: a column of a column chunk is one range of its bytes. Arrays before 0.6 have
chunks that extend along an orientation, with elements in row order. Thakur 1995, section 5.4.1 (storage order: row 8
of Figure 5.5).

    every 4th from 1      · 1 · · · 5 · · · 9 · · · 13· ·
    every 6th from 3      · · · 3 · · · · · 9 · · · · · 15
    common                · · · · · · · · · 9 · · · · · ·          every 12th: lcm(4, 6)
    hull                  · 1 · 3 · 5 · 7 · 9 · 11· 13· 15         every 2nd: gcd(4, 6, 3 - 1)

The common elements of two ranges follow from the Chinese remainder theorem, for any length. Descending ranges are not
accepted; `ascending` reverses them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeVar


def ascending(axis: range) -> range:
    """Return the same elements in canonical form: ascending, ending after the last, with step 1 for a single
    element."""
    if not axis:
        return range(0)
    if axis.step == 1:
        return axis
    low, high = sorted((axis[0], axis[-1]))
    return range(low, high + 1, abs(axis.step) if low < high else 1)


def common(a: range, b: range) -> range:
    """Return the elements in both, as a range: each ``lcm`` of the strides, or nothing."""
    low, high = max(a.start, b.start), min(a.stop, b.stop)
    apart, shared = b.start - a.start, math.gcd(a.step, b.step)
    if apart % shared or low >= high:
        return range(0)
    # the one x in a whole turn with x = a.start (mod a.step) and x = b.start (mod b.step)
    steps = apart // shared * pow(a.step // shared, -1, b.step // shared) % (b.step // shared)
    turn = a.step * b.step // shared
    return ascending(range(low + (a.start + steps * a.step - low) % turn, high, turn))


def hull(axes: Iterable[range]) -> range:
    """Return the smallest regular section with all elements; its stride divides every distance between them."""
    held = [axis for axis in axes if axis]
    if not held:
        return range(0)
    low, high = min(axis[0] for axis in held), max(axis[-1] for axis in held)
    strides = (axis.step for axis in held if len(axis) > 1)
    return ascending(range(low, high + 1, math.gcd(*strides, *(axis[0] - low for axis in held)) or 1))


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
