"""Regular sections of one axis as Python ranges: their intersection and their hull.

    every 4th from 1      · 1 · · · 5 · · · 9 · · · 13· ·
    every 6th from 3      · · · 3 · · · · · 9 · · · · · 15
    common                · · · · · · · · · 9 · · · · · ·          every 12th: lcm(4, 6)
    hull                  · 1 · 3 · 5 · 7 · 9 · 11· 13· 15         every 2nd: gcd(4, 6, 3 - 1)

The common elements of two ranges follow from the Chinese remainder theorem, for any length. Descending ranges are not
accepted; `ascending` reverses them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

Taken = range | np.ndarray
"""Selected indices along one axis, ascending, each once."""


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


def positions(axis: range, among: range) -> range:
    """Return the positions of elements in a range that contains all of them."""
    if not axis:
        return range(0)
    first, last = (axis[0] - among.start) // among.step, (axis[-1] - among.start) // among.step
    return ascending(range(first, last + 1, max(axis.step // among.step, 1)))
