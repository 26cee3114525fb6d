"""Collective reads: what every rank wants of a file, who reads it, in which rounds, and who sends what to whom.

    wanted by 0    █ █ █ █ · · · ·
    wanted by 1    · · █ █ █ █ · ·          bounding section    █ █ █ █ █ █ · ·
    domains        A A A B B B              each stored chunk is read once, by one aggregator, for all
    rounds         1 2 3 1 2 3              in file order; one round is sent while the next is read

Thakur 1995, section 6.3 (the extended two-phase method); del Rosario, Bordawekar and Choudhary 1993, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from oocarrays.mapping import ranges
from oocarrays.mapping.grid import Stored, boxes, ceil_div
from oocarrays.mapping.layout import Layout
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, Taken, common, lengths, within
from oocarrays.plan.domains import Domain, Partition, file_domains

Place = tuple[slice | np.ndarray, ...]
"""Where elements are along each axis; their product is where they are in an array."""


def requests_of(layout: Layout) -> tuple[Axes, ...]:
    """What each rank of a layout holds, as requests: in the order in which the rank holds it.

    >>> requests_of(Layout.of((6,), "cyclic(2)", ranks=2))[1]
    (array([2, 3]),)
    """
    return tuple(tuple(map(_joined, layout.sections(rank))) for rank in range(layout.ranks))


def _joined(parts: Sequence[range]) -> Taken:
    """Ranges along one axis, of which no two share an element, as one."""
    held = [part for part in parts if part]
    if len(held) < 2:
        return held[0] if held else range(0)
    return np.sort(np.concatenate([np.arange(part.start, part.stop, part.step) for part in held]))


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectivePlan:
    """One collective read."""

    stored: Stored
    """The file."""
    requests: tuple[Axes, ...]
    """What each rank wants, by rank: the file access descriptor (FAD)."""
    domains: tuple[Domain, ...]
    """Who reads what."""
    rounds: tuple[tuple[Section | None, ...], ...]
    """What each rank reads in each round: a box of chunks, None for nothing; by round and rank."""

    @property
    def ranks(self) -> int:
        """Ranks that want something, or read for others."""
        return len(self.requests)

    def wants(self, box: Section, rank: int) -> bool:
        """Whether a rank wants any of a box: the file domain access table (FDAT)."""
        return all(map(len, common(self.requests[rank], box)))

    def tight(self, box: Section) -> Axes:
        """What is read of a box: the smallest section that holds what all ranks want of it."""
        wanted = [axes for axes in (common(request, box) for request in self.requests) if all(map(len, axes))]
        return tuple(map(_union, zip(*wanted, strict=True)))

    def places(self, box: Section, tight: Axes, rank: int) -> tuple[Place, Place]:
        """Where what a rank wants of a box is in its part, and in what is read."""
        there, inside = [], []
        for taken, read, lower, upper in zip(self.requests[rank], tight, box.lower, box.upper, strict=True):
            place = within(taken, lower, upper)[0]
            there.append(place)
            inside.append(_among(taken[place], read))
        return tuple(there), tuple(inside)


def plan_collective(
    stored: Stored,
    requests: Sequence[Axes],
    *,
    partition: Partition = "dynamic",
    buffer_bytes: int = 2**24,
) -> CollectivePlan:
    """Plan a collective read by all ranks.

    Parameters
    ----------
    buffer_bytes : int
        Bytes of chunks that a rank reads in a round, at least one chunk.
    """
    domains = file_domains(stored.grid, requests, range(len(requests)), partition=partition)
    each = max(buffer_bytes // max(stored.chunk_bytes, 1), 1)
    wanted = [[box for box in _rounds(stored, domain, each) if _any(requests, box)] for domain in domains]
    most = max(map(len, wanted), default=0)
    rounds = tuple(tuple(boxes[k] if k < len(boxes) else None for boxes in wanted) for k in range(most))
    return CollectivePlan(stored=stored, requests=tuple(requests), domains=domains, rounds=rounds)


def _any(requests: Sequence[Axes], box: Section) -> bool:
    return any(all(map(len, common(request, box))) for request in requests)


def _rounds(stored: Stored, domain: Domain, each: int) -> Iterator[Section]:
    """The boxes of a domain cut into boxes of so many chunks."""
    for box in domain.boxes:
        touched = stored.grid.touched(box)
        counts, first = tuple(map(len, touched)), [chunks.start for chunks in touched]
        for number in range(ceil_div(math.prod(counts), each)):
            for low, high in boxes(range(number * each, min((number + 1) * each, math.prod(counts))), counts):
                yield stored.grid.block(
                    tuple(f + i for f, i in zip(first, low, strict=True)),
                    tuple(f + i for f, i in zip(first, high, strict=True)),
                )


def _union(along: Sequence[Taken]) -> Taken:
    """What is read along an axis for all."""
    regular = [taken for taken in along if isinstance(taken, range)]
    if len(regular) == len(along):
        return ranges.hull(regular)
    return np.unique(np.concatenate([np.asarray(taken) for taken in along]))


def _among(taken: Taken, read: Taken) -> slice | np.ndarray:
    """The places of what is taken among what is read."""
    if isinstance(read, np.ndarray):
        return np.searchsorted(read, np.asarray(taken))
    if isinstance(taken, np.ndarray):
        return (taken - read.start) // read.step
    if not taken:
        return slice(0, 0)
    return slice(
        (taken[0] - read.start) // read.step, (taken[-1] - read.start) // read.step + 1, max(taken.step // read.step, 1)
    )


def part_shape(plan: CollectivePlan, rank: int) -> tuple[int, ...]:
    """Extent of each axis of what a rank gets."""
    return lengths(plan.requests[rank])
