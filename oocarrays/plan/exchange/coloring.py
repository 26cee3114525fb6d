"""Many-to-many: steps for the messages that there are, as many as the busiest rank has partners.

    cyclic(4) → cyclic(2) on 4 ranks         0 has for 0, 1      1 for 2, 3      2 for 0, 1      3 for 2, 3
    PEX          0→1  3→2 │ 1→3  2→0 │ 1→2  2→1          three steps
    COLORING     0→1  1→3  2→0  3→2 │ 1→2  2→1           two: nobody has more than two others to send to

Ranks as they send stand on one side, ranks as they receive on the other, and messages are edges between: a bipartite
graph, whose edges can be coloured with as many colours as its busiest rank has edges, no two of one colour at one rank
(König 1916). A colour is a step. The largest messages choose first, so that steps are of messages that are alike.
"""

from __future__ import annotations

import numpy as np

from oocarrays.errors import ScheduleError
from oocarrays.plan.exchange.schedule import COLORING, IDLE, Schedule

FEW = 0.75
"""The share of a complete exchange's steps below which colouring is worth the trouble."""
MOST_EDGES = 2**20
"""Messages of an exchange that is coloured, at most: those of a thousand ranks take half a second."""
MOST_ALIKE = 2**16
"""The same where there are no fewer steps for it: a tenth of a second."""


def colored(sizes: np.ndarray) -> Schedule:
    """Return the schedule of the fewest steps in which some messages go, one from and one to a rank in each.

    Examples
    --------
    >>> schedule = colored(np.array([[0, 5, 0], [0, 0, 7], [2, 3, 0]]))
    >>> [step.pairs for step in schedule]
    [[(0, 1), (1, 2), (2, 0)], [(2, 1)]]
    """
    if np.ndim(sizes) != 2 or sizes.shape[0] != sizes.shape[1]:
        raise ScheduleError(f"sizes of shape {np.shape(sizes)} are not of as many ranks on both sides")
    sources, targets = np.nonzero(sizes * (1 - np.eye(len(sizes), dtype=int)))
    order = np.argsort(-sizes[sources, targets], kind="stable")
    edges = list(zip(sources[order].tolist(), targets[order].tolist(), strict=True))
    listed = _Colors(len(sizes), partners(sizes)).of(edges)
    return Schedule(COLORING, len(sizes), 1, tuple(map(tuple, listed)))  # type: ignore[arg-type]


def partners(sizes: np.ndarray) -> int:
    """Return how many others the busiest rank sends to, or receives from.

    >>> partners(np.array([[9, 5, 0], [0, 0, 7], [2, 3, 0]]))
    2
    """
    others = sizes > 0
    np.fill_diagonal(others, val=False)
    return int(max(others.sum(axis=0).max(initial=0), others.sum(axis=1).max(initial=0)))


def is_worth_coloring(sizes: np.ndarray) -> bool:
    """Return whether a schedule of their own may be faster for some messages than others are.

    It is where each rank has few partners, and where messages differ: a step takes as long as its largest message, and
    colours have those together that are alike. Links, too, are shared otherwise by other pairs.

    >>> even = np.ones((8, 8), int)
    >>> is_worth_coloring(even), is_worth_coloring(even * np.arange(1, 9)), is_worth_coloring(np.eye(8, k=1))
    (False, True, True)
    """
    if sizes.shape[0] != sizes.shape[1]:
        return False
    others = sizes[(sizes > 0) & ~np.eye(len(sizes), dtype=bool)]
    most = partners(sizes)
    if most <= FEW * (len(sizes) - 1):
        return len(others) <= MOST_EDGES
    return len(others) <= MOST_ALIKE and bool(others.max() > others.min())


class _Colors:
    """Edges as they get colours: the target of each source, and the source of each target, in each colour.

    Colours that an end has free are the bits of one number: which both ends have free takes one operation.
    """

    def __init__(self, ranks: int, colors: int) -> None:
        self._to = [[IDLE] * ranks for _ in range(colors)]
        self._come = [[IDLE] * ranks for _ in range(colors)]
        self._free_to, self._free_come = [2**colors - 1] * ranks, [2**colors - 1] * ranks

    def of(self, edges: list[tuple[int, int]]) -> list[list[int]]:
        """Colour edges, the first with the first choice; targets by colour and source."""
        for source, target in edges:
            both = self._free_to[source] & self._free_come[target]
            self._put(source, target, _first(both) if both else self._freed(source, target))
        return self._to

    def _put(self, source: int, target: int, color: int) -> None:
        self._to[color][source], self._come[color][target] = target, source
        self._free_to[source] &= ~(1 << color)
        self._free_come[target] &= ~(1 << color)

    def _take(self, source: int, target: int, color: int) -> None:
        self._to[color][source] = self._come[color][target] = IDLE
        self._free_to[source] |= 1 << color
        self._free_come[target] |= 1 << color

    def _freed(self, source: int, target: int) -> int:
        """Free a colour for both ends of an edge, by changing those of a path of two colours that begins at its target.

        The path leaves the target by the colour that the source has free. It never comes to the source: it would have
        to come there by just that colour.
        """
        mine, yours = _first(self._free_to[source]), _first(self._free_come[target])
        path, here, at_target, color = [], target, True, mine
        while (there := (self._come if at_target else self._to)[color][here]) != IDLE:
            path.append((there, here, color) if at_target else (here, there, color))
            here, at_target, color = there, not at_target, mine + yours - color
        for a, b, old in path:
            self._take(a, b, old)
        for a, b, old in path:
            self._put(a, b, mine + yours - old)
        return mine


def _first(colors: int) -> int:
    """Return the first of some colours.

    >>> _first(0b1100)
    2
    """
    return (colors & -colors).bit_length() - 1
