"""Fused sweeps of a stencil: their reach, and their tiles and steps.

    halo 3     ░░░███████░░░        sweep 1: right in all but the outermost neighbours
               ·░░███████░░·        sweep 2: the region with right values shrinks by the depth
               ··░███████░··        sweep 3: the slab remains, equal to three plain sweeps bit for bit

A part of an array is swept tile by tile. Each tile goes down the first axis in steps of a few rows, a sweep `depth`
rows behind the previous one, so that no row is swept twice and everything stays in a second cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product

import numpy as np

from oocarrays.mapping.grid import ceil_div
from oocarrays.mapping.layouts.halo import Boundaries, of_axis

BLOCK_BYTES = 2**18
"""Approximate bytes of a kernel's block: a second cache contains a few such arrays at a time."""
LARGEST, SMALLER = 5, (2, 0)
"""Blocks of up to ``2**LARGEST * BLOCK_BYTES`` are compared; smaller ones if these leave no room for all threads."""
Ends = Sequence[tuple[int, int]]
"""Start and end along each axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepStep:
    """One step down a tile: rows of the first axis, by number of completed sweeps."""

    made: tuple[tuple[int, int], ...]
    """Rows read, and rows added by each sweep."""
    windows: tuple[tuple[int, int], ...]
    """Rows of the read block, then of the kernel's block in each sweep; they may lie beyond the edges."""
    first: bool
    last: bool

    @property
    def top(self) -> int:
        return min(lower for lower, _ in self.windows)

    @property
    def bottom(self) -> int:
        """One past the last row of any block."""
        return max(upper for _, upper in self.windows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweeps:
    """Sweeps of one kernel in one pass."""

    shape: tuple[int, ...]
    """Extent of each axis of the whole array, in elements."""
    count: int
    """Number of sweeps."""
    depth: tuple[int, ...]
    """Number of neighbours that one sweep needs on each side, in each axis."""
    boundary: Boundaries
    """Boundary condition beyond the edges."""
    tile: tuple[int, ...]
    """Rows of a step, and elements of a tile along each other axis."""

    @property
    def reach(self) -> tuple[int, ...]:
        """Number of neighbours that all sweeps together need on each side, in each axis."""
        return tuple(self.count * depth for depth in self.depth)

    def needed(self, axis: int, part: tuple[int, int], after: int) -> tuple[int, int]:
        """Return the elements that must be right after ``after`` sweeps, for a part to be right after the last."""
        reach = (self.count - after) * self.depth[axis]
        lower, upper = part[0] - reach, part[1] + reach
        if of_axis(self.boundary, axis) == "periodic":
            return lower, upper
        return max(lower, 0), min(upper, self.shape[axis])

    def span(self, axis: int, part: tuple[int, int]) -> tuple[int, int]:
        """Return the range of an axis that sweeps of a part read, including values beyond the edges."""
        return self._clipped(axis, part[0] - self.reach[axis], part[1] + self.reach[axis])

    def _clipped(self, axis: int, lower: int, upper: int) -> tuple[int, int]:
        """Clip a range to the array and the boundary values that a block contains."""
        boundary = of_axis(self.boundary, axis)
        if boundary == "periodic":
            return lower, upper
        beyond = 0 if boundary == "none" else self.depth[axis]
        return max(lower, -beyond), min(upper, self.shape[axis] + beyond)

    def tiles(self, core: Ends) -> Iterator[list[tuple[int, int]]]:
        """Yield tiles of a part of the array, cut evenly along each axis but the first."""
        for across in product(*(_even(ends, n) for ends, n in zip(core[1:], self.tile[1:], strict=True))):
            yield [core[0], *across]

    def steps(self, rows: tuple[int, int]) -> Iterator[SweepStep]:
        """Yield the steps down a tile; the last one is so long that none before it ends within reach of the edge."""
        start, stop = rows
        starts = [start, *range(start + self.tile[0], stop - self.reach[0] - self.depth[0], self.tile[0])]
        for lower, upper in zip(starts, [*starts[1:], stop], strict=True):
            yield self._step(rows, lower, upper)

    def _step(self, rows: tuple[int, int], lower: int, upper: int) -> SweepStep:
        first, last = lower == rows[0], upper == rows[1]
        made, windows = [], []
        for after in range(self.count + 1):
            ends, ahead = self.needed(0, rows, after), (self.count - after) * self.depth[0]
            made.append((ends[0] if first else lower + ahead, ends[1] if last else upper + ahead))
            around = self.depth[0] if after else 0
            windows.append(self._clipped(0, made[-1][0] - around, made[-1][1] + around))
        return SweepStep(made=tuple(made), windows=tuple(windows), first=first, last=last)

    def block_bytes(self, itemsize: int) -> int:
        rows = self.tile[0] + 3 * (self.reach[0] + self.depth[0])
        most = (n + 2 * max(reach, 1) for n, reach in zip(self.shape, self.reach, strict=True))
        sides = [rows, *(n + 2 * reach for n, reach in zip(self.tile[1:], self.reach[1:], strict=True))]
        return math.prod(map(min, sides, most)) * itemsize

    def held_bytes(self, itemsize: int) -> int:
        """Return the bytes of a step's buffer and of the rows kept of each sweep, without the kernel's own."""
        wide = (n + 2 * reach for n, reach in zip(self.tile[1:], self.reach[1:], strict=True))
        return self.block_bytes(itemsize) + 2 * self.reach[0] * math.prod(wide) * itemsize


def _even(ends: tuple[int, int], most: int) -> list[tuple[int, int]]:
    (lower, upper), parts = ends, ceil_div(ends[1] - ends[0], most)
    cuts = [lower + (upper - lower) * part // parts for part in range(parts + 1)]
    return list(pairwise(cuts))


@lru_cache(maxsize=2**12)
def fitting_tile(
    shape: tuple[int, ...],
    count: int,
    depth: tuple[int, ...],
    itemsize: int,
    *,
    tiles: int = 1,
    largest: int = LARGEST,
    together: bool = False,
) -> tuple[tuple[int, ...], float]:
    """Return the cheapest tile, and its cost: the sweeps of a plain element in cache are 1.

    The cost includes repeated sweeps at its sides, the rows of a block's halo, calls, and cache misses. Threads
    that sweep ``together`` hinder each other at every call, as they wait for the interpreter's lock: they use blocks
    of megabytes. If threads share a slab, it is cut into at least ``tiles`` tiles, if possible. ``largest`` limits
    the size of a block.
    """
    thinned = [round(2 ** (step / 2)) for step in range(0, 40, max(len(shape) - 1, 1))]  # numbers of tiles
    lengths = [
        sorted({max(ceil_div(n, parts), min(n, 2 * d + 2), 1) for parts in thinned})  # a block has a halo on one side
        for n, d in zip(shape[1:], depth[1:], strict=True)
    ]
    across = np.array(list(product(*lengths)), float)
    extents, halo = np.array(shape[1:], float), 2 * depth[0]
    enough = np.ceil(extents / across).prod(axis=1) >= tiles
    across = across[enough] if enough.any() else across
    wide = np.minimum(across + 2 * count * np.array(depth[1:]), extents)
    area = wide.prod(axis=1, keepdims=True)
    most = BLOCK_BYTES * 2.0 ** np.arange(largest + 1) // (np.maximum(area, 1) * itemsize)
    rows = np.maximum(np.minimum(most - halo, shape[0]), halo + 1)
    elements = (rows + halo) * area
    far = np.maximum(elements * itemsize / BLOCK_BYTES, 1) ** (1 / 7)  # seconds an element grow with a block
    run = np.broadcast_to(wide[:, -1:], rows.shape) if lengths else rows
    calls = (2**15 if together else 2**12) / np.maximum(elements, 1)  # elements swept in the time of a call, ...
    calls += 2**6 / np.maximum(run, 1)  # ... and of a run
    twice = area / across.prod(axis=1, keepdims=True)
    cost = twice * far * (1 + 3 * depth[0] / rows) * (1 + calls)
    best = np.unravel_index(cost.argmin(), cost.shape)
    return (int(rows[best]), *map(int, across[best[0]])), float(cost[best])
