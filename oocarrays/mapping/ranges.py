"""Regular sections of one axis are Python's ranges: their intersection and their hull.

    every 4th from 1      · 1 · · · 5 · · · 9 · · · 13· ·
    every 6th from 3      · · · 3 · · · · · 9 · · · · · 15
    common                · · · · · · · · · 9 · · · · · ·          every 12th: lcm(4, 6)
    hull                  · 1 · 3 · 5 · 7 · 9 · 11· 13· 15         every 2nd: gcd(4, 6, 3 - 1)

What two of them share comes from the Chinese remainder theorem, however long they are. Ranges that run down are not
taken; `ascending` turns them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable


def ascending(axis: range) -> range:
    """The same elements in the one form that they have: upwards, ending after the last, by 1 where there is but one.

    >>> ascending(range(9, -1, -4)), ascending(range(3, 9, 7)), ascending(range(5, 2))
    (range(1, 10, 4), range(3, 4), range(0, 0))
    """
    if not axis:
        return range(0)
    if axis.step == 1:
        return axis
    low, high = sorted((axis[0], axis[-1]))
    return range(low, high + 1, abs(axis.step) if low < high else 1)


def common(a: range, b: range) -> range:
    """Return the elements in both, as a range: each ``lcm`` of the strides, or nothing.

    >>> common(range(1, 14, 4), range(3, 16, 6)), common(range(0, 9, 2), range(1, 9, 2))
    (range(9, 10), range(0, 0))
    """
    low, high = max(a.start, b.start), min(a.stop, b.stop)
    apart, shared = b.start - a.start, math.gcd(a.step, b.step)
    if apart % shared or low >= high:
        return range(0)
    # the one x in a whole turn with x = a.start (mod a.step) and x = b.start (mod b.step)
    steps = apart // shared * pow(a.step // shared, -1, b.step // shared) % (b.step // shared)
    turn = a.step * b.step // shared
    return ascending(range(low + (a.start + steps * a.step - low) % turn, high, turn))


def hull(axes: Iterable[range]) -> range:
    """The smallest regular section that holds them all; its stride divides every distance between their elements.

    >>> hull([range(1, 14, 4), range(3, 16, 6)]), hull([range(7, 8), range(0), range(2, 3)]), hull([])
    (range(1, 16, 2), range(2, 8, 5), range(0, 0))
    """
    held = [axis for axis in axes if axis]
    if not held:
        return range(0)
    low, high = min(axis[0] for axis in held), max(axis[-1] for axis in held)
    strides = (axis.step for axis in held if len(axis) > 1)
    return ascending(range(low, high + 1, math.gcd(*strides, *(axis[0] - low for axis in held)) or 1))
