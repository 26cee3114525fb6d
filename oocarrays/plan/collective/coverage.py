"""Coverage of each chunk by the ranks' writes, and precedence of ranks where their sections overlap.

    rank 0   █ █ █ █ · · · ·         chunks        a · · · │ b · · ·
    rank 1   · · ░ ░ ░ ░ · ·         covered       yes     │ no: read before written
                                     stays         0 0 1 1 │ 1 1 · ·     the highest rank wins

Both are computed in closed form: the requests' union and its complement are unions of products, and their description
does not grow with the array. Thakur 1995, section 6.3.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from oocarrays.mapping import ranges
from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, Taken, common
from oocarrays.mapping.union import Union, product_of, touched
from oocarrays.plan.cost import Traffic


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Coverage of each chunk by the writes of all ranks."""

    grid: ChunkGrid
    """Grid of chunks, or of shards for a sharded array."""
    requests: tuple[Axes, ...]
    """Elements that each rank writes."""

    @cached_property
    def wanted(self) -> Union:
        """Chunks with at least one written element."""
        return Union.of(product_of(axes, self.grid.chunks) for axes in self.requests)

    @cached_property
    def _left(self) -> Union:
        """Chunks with at least one element that no rank writes."""
        written = Union.of(map(product_of, self.requests))
        return Union.of(touched(self.grid, written.complement(self.grid.shape)))

    @property
    def count(self) -> int:
        """Number of chunks with at least one written element."""
        return self.wanted.count

    def needs(self, chunk: tuple[int, ...]) -> bool:
        """Return True if a written chunk must be read first."""
        return chunk in self._left

    @property
    def reads(self) -> int:
        """Number of chunks read first: written chunks minus fully covered ones."""
        return self.wanted.count - (self.grid.count - self._left.count)

    @cached_property
    def shared(self) -> bool:
        """True if two ranks write to one chunk: the requests then do not conform."""
        each = (Union.of([product_of(axes, self.grid.chunks)]) for axes in self.requests)
        return sum(chunks.count for chunks in each) > self.wanted.count

    @cached_property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds of each rank's request along each axis; those of an empty request meet no box."""
        axes = len(self.grid.shape)
        ends = [
            [(int(taken[0]), int(taken[-1]) + 1) for taken in request] if all(map(len, request)) else [(0, 0)] * axes
            for request in self.requests
        ]
        bounds = np.array(ends, np.int64).reshape(len(ends), axes, 2)
        return bounds[:, :, 0], bounds[:, :, 1]

    def standing(self, box: Section) -> list[tuple[int, Axes]]:
        """Return the ranks with surviving elements in a box, lowest first, and their elements.

        A rank is left out if one higher rank overwrites all of its elements there, so they need not be sent.
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
    """Count the reads and writes to replace chunks, or shards and their ``inner`` chunks."""
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
        return ranges.common(outer, inner) == ranges.ascending(inner)
    return len(inner) <= len(outer) and bool(np.isin(np.asarray(inner), np.asarray(outer), assume_unique=True).all())
