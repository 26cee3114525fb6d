"""Choosing slabs: along which axis, how tall, how many ranks.

    chunks of sources    │   │   │   │   │   │   │        a slab is whole chunks of all arrays
    chunks of targets    │     │     │     │     │
    slabs                │           │           │        as tall as memory has room for all that a rank holds

Thakur 1995, section 5.4: the memory of a process, shared out to its slabs, decides how many there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from oocarrays.errors import BudgetError
from oocarrays.mapping.grid import Stored, ceil_div
from oocarrays.plan.slabs.options import Edges, SlabOptions
from oocarrays.plan.slabs.plan import SlabPlan

EVEN_BYTES = 2**25
"""Bytes of a window above which a taller one wins nothing."""
FEWEST = 8
"""Slabs of a rank, at least, where they can be had: its first read and its last write are waited for."""
MOST = 2**12
"""Slabs in all, at most, where they can be had so tall: each has some tasks."""
WORKSPACE = 2.0
"""What a kernel is taken to hold beside its blocks and its results, in multiples of its blocks."""


def plan_slabs(sources: Sequence[Stored], targets: Sequence[Stored], options: SlabOptions) -> SlabPlan:
    """Choose the axis and the height of slabs, cut on chunk boundaries of sources and targets, within a budget.

    Parameters
    ----------
    sources, targets : sequence of Stored
        All of one shape; where each rank has files of its own, the largest ones.

    Raises
    ------
    InputError
        Where depth, axis, height or prefetch is impossible.
    BudgetError
        Where no slab fits; it names the least budget that would do.
    """
    shape = tuple(each[-1] for each in options.edges) if options.edges else sources[0].grid.shape
    asked = options.checked(shape)
    cut = _Cut(shape=shape, sources=tuple(sources), targets=tuple(targets), options=asked)
    axes = range(len(shape)) if asked.axis is None else [range(len(shape))[asked.axis]]
    ranks = asked.ranks or 1
    fewer = range(ranks, 0, -1) if asked.processes == 1 and asked.edges is None else [ranks]
    tried: list[SlabPlan] = []
    for plan in (cut.best(along, count) for count in fewer for along in axes):
        if plan.fits:
            return plan
        tried.append(plan)
    least = min(tried, key=lambda plan: plan.bare.nbytes)
    raise BudgetError(asked.budget, least.peak_bytes, "one slab")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """Slabs of one global array file, or of a file a rank, along any axis and of any height."""

    shape: tuple[int, ...]
    sources: tuple[Stored, ...]
    targets: tuple[Stored, ...]
    options: SlabOptions

    def extent(self, axis: int) -> int:
        """The longest that an array file has of an axis, at least 1."""
        edges = self.options.edges
        return max(self.shape[axis] if edges is None else max(b - a for a, b in pairwise(edges[axis])), 1)

    def unit(self, axis: int) -> int:
        """The least height that cuts no chunk: all of the axis, where it comes to more."""
        extent = self.extent(axis)
        chunks = (min(each.grid.chunks[axis], extent) for each in (*self.sources, *self.targets))
        return min(math.lcm(*chunks), extent)

    def plan(self, axis: int, height: int, ranks: int) -> SlabPlan:
        """Slabs of one height in regions that are given; else about as many for each rank, and no target chunk is
        written by two of them."""
        if self.options.edges is not None:
            return self.of(self.options.edges, axis, height)
        unit = math.lcm(height, *(target.grid.chunks[axis] for target in self.targets))
        share = max(ceil_div(ceil_div(self.shape[axis], unit), ranks), 1) * unit
        starts = range(0, max(self.shape[axis], 1), share)
        return self.of(tuple((*starts, n) if a == axis else (0, n) for a, n in enumerate(self.shape)), axis, height)

    def of(self, edges: Edges, axis: int, height: int) -> SlabPlan:
        """Slabs of one height in such regions."""
        asked = WORKSPACE if self.options.workspace is None else self.options.workspace
        written = math.prod(self.shape) * sum(each.itemsize for each in self.targets or self.sources)
        plan = SlabPlan(
            **self.options.terms,
            edges=edges,
            axis=axis,
            height=height,
            sources=self.sources,
            targets=self.targets,
            workspace=0,
            estimated=not isinstance(asked, int),
            past_cache=written > self.options.past_cache_above,
        )
        return replace(plan, workspace=asked if isinstance(asked, int) else int(asked * plan.window_bytes()))

    def best(self, axis: int, ranks: int) -> SlabPlan:
        """The height that is asked for, or best: tall enough for large requests, short enough to overlap. Where none
        fits, that which needs least."""
        if self.options.height is not None:
            return self.plan(axis, self.options.height, ranks)
        unit, extent = self.unit(axis), self.extent(axis)
        wanted = self._wanted(axis, ranks)
        units = [wanted, *(2**n for n in reversed(range(wanted.bit_length())) if 2**n < wanted)]
        units += [wanted * 2**n for n in range(1, ceil_div(extent, wanted * unit).bit_length() + 1)]
        plans = {n: self.plan(axis, min(n * unit, extent), ranks) for n in units}
        found = next((n for n in units if plans[n].fits), None)
        if found is None:
            return min(plans.values(), key=lambda plan: plan.bare.nbytes)
        return self._taller(axis, found, min(2 * found, wanted), ranks)

    def _wanted(self, axis: int, ranks: int) -> int:
        """The height that were best if there were memory enough, in units."""
        extent = self.extent(axis)
        row = math.prod(self.extent(a) for a in range(len(self.shape)) if a != axis)
        row_bytes = row * sum(source.itemsize for source in self.sources)
        fewest = FEWEST * (ranks if self.options.edges is None else 1)
        most = max(EVEN_BYTES // row_bytes, extent // MOST)
        return max(min(most, ceil_div(extent, fewest)) // self.unit(axis), 1)

    def _taller(self, axis: int, low: int, high: int, ranks: int) -> SlabPlan:
        """As tall as fits, between so many units that do and more."""
        unit, extent = self.unit(axis), self.extent(axis)
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.plan(axis, middle * unit, ranks).fits
            low, high = (middle, high) if fits else (low, middle - 1)
        return self.plan(axis, min(low * unit, extent), ranks)
