"""The order in which elements are stored, the axes from the slowest to the fastest: chunks run along the fastest ones.

    row, (0, 1)    ┌───────────┐      column, (1, 0)    ┌──┬──┬──┬──┐      the fastest axes run whole,
                   ├───────────┤                        │  │  │  │  │      one is cut to what fits,
                   ├───────────┤                        │  │  │  │  │      the slower ones have length 1
                   └───────────┘                        └──┴──┴──┴──┘

In a chunk, too, the fastest axis runs fastest: a column of a column chunk is one range of its bytes. Arrays of before
0.6 have chunks that run along an orientation, and in them elements in row order. Thakur 1995, section 5.4.1 (storage
order: row 8 of Figure 5.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def turned(each: Sequence[T], order: Sequence[int] | None) -> tuple[T, ...]:
    """Reorder what belongs to the axes, from the slowest to the fastest.

    >>> turned((10, 20, 30), (2, 0, 1)), turned((10, 20, 30), None)
    ((30, 10, 20), (10, 20, 30))
    """
    return tuple(each) if order is None else tuple(each[axis] for axis in order)


def turned_back(each: Sequence[T], order: Sequence[int] | None) -> tuple[T, ...]:
    """The same in the order of the array's own axes: what `turned` was given.

    >>> turned_back((30, 10, 20), (2, 0, 1))
    (10, 20, 30)
    """
    return turned(each, None if order is None else inverse(order))


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """Where each axis stands in an order of them: the order that undoes it.

    >>> inverse((2, 0, 1))
    (1, 2, 0)
    """
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def chunks_along(order: Sequence[int], shape: Sequence[int], size: int) -> tuple[int, ...]:
    """Chunks of at most ``size`` elements, 1 at least, that run along the fastest axes first.

    Examples
    --------
    >>> chunks_along((1, 0), (100, 100), 1000), chunks_along((0, 2, 1), (9, 5, 4), 12)
    ((100, 10), (1, 5, 2))
    """
    chunks, room = [1] * len(shape), size
    for axis in reversed(order):
        chunks[axis] = max(min(shape[axis], room), 1)
        room = max(room // chunks[axis], 1)
    return tuple(chunks)


def runs_along(order: Sequence[int], shape: Sequence[int], chunks: Sequence[int]) -> bool:
    """Return whether chunks run along the fastest axes: whole, then one that is cut, then length 1.

    >>> runs_along((1, 0), (100, 100), (100, 10)), runs_along((0, 1), (100, 100), (100, 10))
    (True, False)
    """
    cut = False
    for axis in reversed(order):
        if cut and chunks[axis] > 1:
            return False
        cut = cut or chunks[axis] < shape[axis]
    return True


def orientation_of(shape: Sequence[int], chunks: Sequence[int]) -> tuple[int, ...] | None:
    """The order in which chunks run along the axes, from the slowest to the fastest; None where they run along none.

    >>> orientation_of((100, 100), (100, 10)), orientation_of((100, 100), (10, 100)), orientation_of((9, 9), (3, 3))
    ((1, 0), (0, 1), None)
    """
    speed = [(c > 1) + (c >= n) for n, c in zip(shape, chunks, strict=True)]
    order = tuple(sorted(range(len(shape)), key=speed.__getitem__))
    return order if runs_along(order, shape, chunks) else None
