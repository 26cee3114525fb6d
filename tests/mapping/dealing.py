"""The distributions by hand: elements are dealt out one by one, and counted."""

from __future__ import annotations

from itertools import cycle

from oocarrays import Block, Collapsed, Cyclic
from oocarrays.mapping.layouts.distribution import Distribution

Table = list[list[int]]
"""The elements that each rank holds, in their order with it."""


def dealt(extent: int, ranks: int, block: int) -> Table:
    """Elements as cards: ``block`` of them to a rank, then to the next, and round again."""
    hands: Table = [[] for _ in range(ranks)]
    turns = cycle(hands)
    hand, given = next(turns), 0
    for element in range(extent):
        if given == block:
            hand, given = next(turns), 0
        hand.append(element)
        given += 1
    return hands


def laid_out(distribution: Distribution, extent: int, ranks: int) -> Table:
    """What HPF says of a distribution, that it fits taken for granted."""
    if isinstance(distribution, Collapsed):
        return [list(range(extent))]
    if isinstance(distribution, Cyclic):
        return dealt(extent, ranks, distribution.length)
    if isinstance(distribution, Block):
        even = next(m for m in range(1, extent + 2) if m * ranks >= extent)
        return dealt(extent, ranks, even if distribution.length is None else distribution.length)
    elements = iter(range(extent))
    return [[next(elements) for _ in range(size)] for size in distribution.sizes]


def owners(table: Table) -> list[int]:
    """The rank that holds each element."""
    return [rank for _, rank in sorted((element, rank) for rank, hand in enumerate(table) for element in hand)]


def places(table: Table) -> list[int]:
    """Where each element is with the rank that holds it."""
    return [place for _, place in sorted((element, place) for hand in table for place, element in enumerate(hand))]
