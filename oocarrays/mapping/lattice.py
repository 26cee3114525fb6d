"""Sums over multiples of one number within periods of another, without going through them.

    n = 4, a = 3, b = 1, m = 5       ⌊1/5⌋ + ⌊4/5⌋ + ⌊7/5⌋ + ⌊10/5⌋ = 3       points of a lattice below a line

As Euclid's algorithm: axes are exchanged until no point is left, so that it takes as many turns as numbers have digits.
(Graham, Knuth, Patashnik 1994, section 3.5.)
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

Numbers = TypeVar("Numbers", int, np.ndarray)


def floor_sum(n: int, a: int, b: Numbers, m: int) -> Numbers:
    """The sum of ``(a * i + b) // m`` for ``i`` in ``range(n)``; of many ``b`` at once as unsigned, modulo 2**64.

    >>> floor_sum(4, 3, 1, 5), floor_sum(10**15, 2, 1, 2)
    (3, 499999999999999500000000000000)
    >>> floor_sum(4, 3, np.array([1, 2], np.uint64), 5).tolist()
    [3, 4]
    """
    total, left = 0 * b, 0 * b + n
    while np.any(left):
        total = total + left // 2 * ((left - 1) | 1) * (a // m) + left * (b // m)  # of an array also 0 - 1 may be taken
        a, b = a % m, b % m
        reached = left * a + b
        left, b = reached // m, reached % m
        a, m = m, max(a, 1)
    return total
