"""What ranks write of each chunk together: whether that is all of it, and whose elements stay where they overlap.

    rank 0   █ █ █ █ · · · ·         chunks        a · · · │ b · · ·
    rank 1   · · ░ ░ ░ ░ · ·         covered       yes     │ no: it is read before it is written
                                     stays         0 0 1 1 │ 1 1 · ·     the highest rank's

Both are found in closed form: what the requests hold together, and what they leave out, are unions of products, whose
sizes do not grow with the array's. Thakur 1995, section 6.3.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from oocarrays.mapping import orientation
from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, Taken, common
from oocarrays.mapping.union import Union, product_of, touched
from oocarrays.plan.cost import Traffic


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Share of each chunk that the ranks write together."""

    grid: ChunkGrid
    """Of chunks, or of the shards in which they lie."""
    requests: tuple[Axes, ...]
    """What each rank writes."""

    @cached_property
    def wanted(self) -> Union:
        """The chunks of which anything is written."""
        return Union.of(product_of(axes, self.grid.chunks) for axes in self.requests)

    @cached_property
    def _left(self) -> Union:
        """The chunks of which some element is not written."""
        written = Union.of(map(product_of, self.requests))
        return Union.of(touched(self.grid, written.complement(self.grid.shape)))

    @property
    def count(self) -> int:
        """Chunks of which anything is written."""
        return self.wanted.count

    def needs(self, chunk: tuple[int, ...]) -> bool:
        """Whether a chunk that is written has to be read first."""
        return chunk in self._left

    @property
    def reads(self) -> int:
        """Chunks that are read first: those that are written, less those that are covered."""
        return self.wanted.count - (self.grid.count - self._left.count)

    @cached_property
    def shared(self) -> bool:
        """Whether two ranks write to one chunk: then they do not conform."""
        each = (Union.of([product_of(axes, self.grid.chunks)]) for axes in self.requests)
        return sum(chunks.count for chunks in each) > self.wanted.count

    @cached_property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """First element along each axis of what each rank writes, and one past the last; those of nothing meet none."""
        axes = len(self.grid.shape)
        ends = [
            [(int(taken[0]), int(taken[-1]) + 1) for taken in request] if all(map(len, request)) else [(0, 0)] * axes
            for request in self.requests
        ]
        bounds = np.array(ends, np.int64).reshape(len(ends), axes, 2)
        return bounds[:, :, 0], bounds[:, :, 1]

    def standing(self, box: Section) -> list[tuple[int, Axes]]:
        """The ranks that write something of a box that stays, lowest first, and what of it.

        One of which all is covered by what a higher rank writes there is left out: nobody needs to send that.
        """
        lower, upper = self._bounds
        near = np.flatnonzero(((lower < np.array(box.upper)) & (upper > np.array(box.lower))).all(axis=1))
        held: list[tuple[int, Axes]] = []
        for rank in reversed(near.tolist()):
            axes = common(self.requests[rank], box)
            if all(map(len, axes)) and not any(_covers(higher, axes) for _, higher in held):
                held.append((rank, axes))
        return held[::-1]


def replacing(stored: Stored, units: Any, inner: Any, ratio: float) -> Traffic:
    """Count the reads and writes that replace chunks, or shards and the ``inner`` chunks in them."""
    coded = stored.inner.chunk_size * stored.itemsize if stored.coded else 0
    return Traffic(
        read_requests=units.reads,
        read_bytes=int(units.reads * stored.chunk_bytes * ratio),
        decoded_bytes=inner.reads * coded,
        write_requests=units.count,
        written_bytes=int(units.count * stored.chunk_bytes * ratio),
        encoded_bytes=inner.count * coded,
    )


def _covers(outer: Axes, inner: Axes) -> bool:
    return all(map(_holds, outer, inner))


def _holds(outer: Taken, inner: Taken) -> bool:
    if isinstance(outer, range) and isinstance(inner, range):
        return orientation.common(outer, inner) == orientation.ascending(inner)
    return len(inner) <= len(outer) and bool(np.isin(np.asarray(inner), np.asarray(outer), assume_unique=True).all())
