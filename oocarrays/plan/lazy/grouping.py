"""Groups of blocks along one axis, and the stored chunks that they touch.

    chunks    ├───0───┼───1───┼───2───┼───3───┤
    blocks    ├──0──┼──1──┼─2─┼──3──┼──4──┼─5─┤     each by itself: 8 visits, two of each chunk
    groups    ├───────0───────┼───────1───────┤     2 + 2: a group that ends where a chunk does shares none

What N-d groups touch is the product of what they touch along each axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from oocarrays.plan.sections.requests import Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """One axis: which blocks are read together, and what that touches."""

    groups: tuple[tuple[int, int], ...]
    """First block of each group, and one past its last."""
    longest: int
    """Elements of the longest group."""
    line: Line
    """Elements, contiguous pieces and whole chunks of all groups; a piece in each chunk that a group touches."""
    visits: int
    """Chunks that groups touch: one that two of them touch is counted twice."""


def grouping(taken: range, lengths: Sequence[int], chunk: int, groups: tuple[tuple[int, int], ...]) -> Grouping:
    """Count what some groups of blocks touch along an axis.

    >>> grouping(range(12), (2, 4, 4, 2), 4, ((0, 2), (2, 4)))
    Grouping(groups=((0, 2), (2, 4)), longest=6, line=Line(elements=12, runs=4, wholes=2, longest=1), visits=4)
    """
    return _grouping(taken, _edges(lengths), chunk, groups)


def cut_line(each: Grouping, taken: range, lengths: Sequence[int], chunk: int, tile: int) -> Line:
    """Count the pieces of an axis whose groups are read tile by tile, where tiles may be shorter than chunks.

    >>> cut_line(grouping(range(96), (50, 46), 8, ((0, 2),)), range(96), (50, 46), 8, 6)
    Line(elements=96, runs=24, wholes=0, longest=1)
    """
    if tile >= chunk or taken.step > 1:
        return each.line

    def visits(length: int) -> int:
        return grouping(taken, lengths, length, each.groups).visits

    runs = each.visits + visits(tile) - visits(math.lcm(chunk, tile))  # where both end, a piece ends once
    return Line(elements=len(taken), runs=runs, wholes=0)


def _grouping(taken: range, edges: np.ndarray, chunk: int, groups: tuple[tuple[int, int], ...]) -> Grouping:
    lower, upper = _spans(edges, groups)
    some = upper > lower
    first, last = (taken.start + taken.step * edge[some] for edge in (lower, upper - 1))
    visits = _sum(np.minimum(last // chunk - first // chunk + 1, (upper - lower)[some]))
    whole = 0 if taken.step > 1 else _sum(np.maximum((last + 1) // chunk - -(-first // chunk), 0))
    line = Line(elements=len(taken), runs=visits if taken.step == 1 else len(taken), wholes=whole)
    return Grouping(groups=groups, longest=int((upper - lower).max(initial=0)), line=line, visits=visits)


def _spans(edges: np.ndarray, groups: tuple[tuple[int, int], ...]) -> tuple[np.ndarray, np.ndarray]:
    """The first element of each group, and one past its last."""
    ends = edges[np.array(groups, np.int64).reshape(-1, 2)]
    return ends[:, 0], ends[:, 1]


def _edges(lengths: Sequence[int]) -> np.ndarray:
    """Where blocks begin and end."""
    return np.cumsum([0, *lengths], dtype=np.int64)


def _sum(counts: np.ndarray) -> int:
    """A sum, however large."""
    return sum(counts.tolist())


def singly(count: int) -> tuple[tuple[int, int], ...]:
    """Each block a group.

    >>> singly(2)
    ((0, 1), (1, 2))
    """
    return tuple((i, i + 1) for i in range(count))


def groupings(taken: range, lengths: Sequence[int], chunk: int) -> Iterator[Grouping]:
    """Ways to group the blocks of an axis, from the smallest groups: each touches fewer chunks than those before."""
    edges = _edges(lengths)
    aligned = _aligned(taken, edges, chunk)
    ways = {groups for marks in (range(len(lengths) + 1), aligned) for groups in _in_runs(marks)}
    fewest: int | None = None
    found = (_grouping(taken, edges, chunk, groups) for groups in ways)
    for each in sorted(found, key=lambda each: (each.longest, each.visits, len(each.groups))):
        if fewest is None or each.visits < fewest:
            fewest = each.visits
            yield each


def _in_runs(marks: Sequence[int]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Groups from each mark to the next, to the second next, the fourth …

    >>> list(_in_runs([0, 2, 3]))
    [((0, 2), (2, 3)), ((0, 3),)]
    """
    step, count = 1, len(marks) - 1
    while step < 2 * count:
        ends = [*marks[:count:step], marks[-1]]
        yield tuple(pairwise(ends))
        step *= 2


def _aligned(taken: range, edges: np.ndarray, chunk: int) -> list[int]:
    """The numbers of the edges of which no chunk has elements on both sides.

    >>> _aligned(range(12), np.array([0, 2, 4, 12]), 4)
    [0, 2, 3]
    """
    inside = (edges > 0) & (edges < len(taken))
    before, after = (np.where(inside, taken.start + taken.step * each, 0) // chunk for each in (edges - 1, edges))
    kept: list[int] = np.flatnonzero(~inside | (before != after)).tolist()
    return kept
