"""Ranks in places: one rule for the workers of jobs and of arrays, and for the disks of their files.

rank      0  1  2  3  4
place     a  a  a  b  b        neighbours together: their borders stay where they are
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Place = TypeVar("Place")


def spread(ranks: int, places: Sequence[Place]) -> tuple[Place, ...]:
    """Return the place of each rank: neighbours together, and in no place more than one rank more than in another.

    Of fewer ranks than places each has one of the first; no place makes no places.

    >>> spread(5, "ab"), spread(2, "abc"), spread(2, "")
    (('a', 'a', 'a', 'b', 'b'), ('a', 'b'), ())
    """
    if not places:
        return ()
    return tuple(places[rank * len(places) // max(ranks, len(places))] for rank in range(ranks))


def evenly(count: int, places: Sequence[Place]) -> Sequence[Place]:
    """Return so many of the places, or all, where they are no more: evenly, as neighbours may be on one machine.

    >>> evenly(2, "abcd"), evenly(3, "ab")
    (('a', 'c'), 'ab')
    """
    return tuple(places[n * len(places) // count] for n in range(count)) if count < len(places) else places


def sides(before: int, after: int, places: Sequence[Place]) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
    """The places of the ranks of an exchange as they send and as they receive, where it changes how many there are.

    A rank that is there on one side only is, on the other, where it would be of all.

    >>> sides(2, 4, "ab")
    (('a', 'b', 'b', 'b'), ('a', 'a', 'b', 'b'))
    """
    every = spread(max(before, after), places)
    return spread(before, places) + every[before:], spread(after, places) + every[after:]
