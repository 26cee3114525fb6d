"""Cases of a test with several parameters: those in which any two values meet, and a few that have each value once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, combinations, product
from typing import Any

_Pair = tuple[tuple[int, int], tuple[int, int]]
"""Two values of different parameters: the number of each parameter, and of the value among its values."""


def pairs(**values: Collection[Any]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Return names and cases for `pytest.mark.parametrize`: in few cases each pair of values of two parameters occurs.

    Faults hang together with one value or with two. The cases of two parameters are their product.
    """
    axes = [list(each) for each in values.values()]
    missing = {
        ((a, i), (b, j)): None
        for a, b in combinations(range(len(axes)), 2)
        for i, j in product(range(len(axes[a])), range(len(axes[b])))
    }
    cases = []
    while missing:
        case = _case(dict(next(iter(missing))), [len(axis) for axis in axes], missing)
        for pair in combinations(sorted(case.items()), 2):
            missing.pop(pair, None)
        cases.append(tuple(axis[case[number]] for number, axis in enumerate(axes)))
    return tuple(values), cases


def sample(cases: Sequence[Mapping[str, Any]], least: int, most: int | None = None) -> list[int]:
    """Return the numbers of `least` cases, and of more until each value that several cases have is in one of them.

    Each next case has the most values, then the most pairs of values, that no earlier one has; among equals those are
    taken that are far apart. The elements of a tuple are values, too. There are never more than `most`.

    >>> cases = [{"method": method, "codec": codec} for method in "abc" for codec in "xyz"]
    >>> [tuple(cases[number].values()) for number in sample(cases, 3)]
    [('a', 'x'), ('b', 'y'), ('c', 'z')]
    >>> sample([{"number": number} for number in range(7)], 3)
    [0, 2, 4]
    """
    values = [_all_values(case) for case in cases]
    often = {value for value, count in Counter(chain(*values)).items() if count > 1}
    values = [each & often for each in values]
    pairs = [set(combinations(sorted(each), 2)) for each in values]
    new_values, new_pairs = set(often), set[Any]().union(*pairs)
    stride = max(1, len(cases) // least)
    left, taken = sorted(range(len(cases)), key=lambda number: number % stride), list[int]()
    while left and len(taken) != most and (new_values or len(taken) < least):
        best = max(left, key=lambda number: (len(values[number] & new_values), len(pairs[number] & new_pairs)))
        new_values -= values[best]
        new_pairs -= pairs[best]
        left.remove(best)
        taken.append(best)
    return sorted(taken)


def _all_values(case: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return the values of a case, by names: elements of tuples by their places, too."""
    found = {(name, repr(value)) for name, value in case.items()}
    for name, value in case.items():
        if isinstance(value, tuple):
            found |= {(f"{name} {place}", repr(each)) for place, each in enumerate(value)}
    return found


def is_table(cases: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a parameter has another value in each case: they are no combinations of values."""
    return any(len({repr(case[name]) for case in cases}) == len(cases) for name in cases[0])


def _case(case: dict[int, int], lengths: list[int], missing: dict[_Pair, None]) -> dict[int, int]:
    """Return a case with these values in which many pairs occur that are missing: of each axis the best in turn."""
    for axis in sorted(set(range(len(lengths))) - case.keys(), key=lambda axis: -lengths[axis]):
        gains = [
            sum(tuple(sorted([(axis, value), other])) in missing for other in case.items())
            for value in range(lengths[axis])
        ]
        case[axis] = gains.index(max(gains))
    return case
