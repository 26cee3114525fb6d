"""Cases of a test with several parameters: those in which any two values meet, and a few that have each value once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import combinations, product
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


def few(cases: Iterable[Mapping[str, Any]], most: int) -> list[int]:
    """Return the numbers of at most so many cases, which have as many values among them as so few can have.

    Of cases with as many values that no other has, those are taken that are far apart.
    """
    new = {number: {(name, id(value)) for name, value in case.items()} for number, case in enumerate(cases)}
    count, chosen = len(new), list[int]()
    while new and len(chosen) < most:
        turn = len(chosen) * count // most
        best = max(new, key=lambda number: (len(new[number]), number >= turn, -number))
        chosen.append(best)
        seen = new.pop(best)
        new = {number: values - seen for number, values in new.items()}
    return sorted(chosen)


def _case(case: dict[int, int], lengths: list[int], missing: dict[_Pair, None]) -> dict[int, int]:
    """Return a case with these values in which many pairs occur that are missing: of each axis the best in turn."""
    for axis in sorted(set(range(len(lengths))) - case.keys(), key=lambda axis: -lengths[axis]):
        gains = [
            sum(tuple(sorted([(axis, value), other])) in missing for other in case.items())
            for value in range(lengths[axis])
        ]
        case[axis] = gains.index(max(gains))
    return case
