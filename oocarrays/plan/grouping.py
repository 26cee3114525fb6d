"""Groups of blocks along one axis, and the stored chunks that they touch.

    chunks    ├───0───┼───1───┼───2───┼───3───┤
    blocks    ├──0──┼──1──┼─2─┼──3──┼──4──┼─5─┤     each by itself: 8 visits, two of each chunk
    groups    ├───────0───────┼───────1───────┤     2 + 2: a group that ends where a chunk does shares none

What N-d groups touch is the product of what they touch along each axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from oocarrays.mapping.grid import ceil_div
from oocarrays.plan.requests import Line


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
    """What some groups of blocks touch along an axis.

    >>> grouping(range(12), (2, 4, 4, 2), 4, ((0, 2), (2, 4)))
    Grouping(groups=((0, 2), (2, 4)), longest=6, line=Line(elements=12, runs=4, wholes=2, longest=1), visits=4)
    """
    edges = (0, *accumulate(lengths))
    spans = [(edges[first], edges[last]) for first, last in groups]
    visits = sum(_touched(taken, lower, upper, chunk) for lower, upper in spans)
    whole = sum(_whole(taken, lower, upper, chunk) for lower, upper in spans)
    line = Line(elements=len(taken), runs=visits if taken.step == 1 else len(taken), wholes=whole)
    longest = max((upper - lower for lower, upper in spans), default=0)
    return Grouping(groups=groups, longest=longest, line=line, visits=visits)


def _touched(taken: range, lower: int, upper: int, chunk: int) -> int:
    """Chunks that hold any of some elements."""
    if lower >= upper:
        return 0
    return min(taken[upper - 1] // chunk - taken[lower] // chunk + 1, upper - lower)


def _whole(taken: range, lower: int, upper: int, chunk: int) -> int:
    """Chunks all of whose elements are taken."""
    if lower >= upper or taken.step > 1:
        return 0
    return max((taken[upper - 1] + 1) // chunk - ceil_div(taken[lower], chunk), 0)


def singly(count: int) -> tuple[tuple[int, int], ...]:
    """Each block a group.

    >>> singly(2)
    ((0, 1), (1, 2))
    """
    return tuple((i, i + 1) for i in range(count))


def groupings(taken: range, lengths: Sequence[int], chunk: int) -> Iterator[Grouping]:
    """Ways to group the blocks of an axis, from the smallest groups: each touches fewer chunks than those before."""
    edges = (0, *accumulate(lengths))
    aligned = [i for i, edge in enumerate(edges) if _is_aligned(taken, edge, chunk)]
    ways = {groups for marks in (range(len(edges)), aligned) for groups in _in_runs(marks)}
    fewest: int | None = None
    found = (grouping(taken, lengths, chunk, groups) for groups in ways)
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


def _is_aligned(taken: range, edge: int, chunk: int) -> bool:
    """Whether no chunk has elements on both sides of an edge."""
    return not 0 < edge < len(taken) or taken[edge - 1] // chunk != taken[edge] // chunk
