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
from typing import Any

import numpy as np

from oocarrays.errors import BudgetError, InputError
from oocarrays.mapping.given import whole
from oocarrays.mapping.grid import Stored, ceil_div
from oocarrays.mapping.layouts.boundary import Boundary
from oocarrays.plan.slabs.geometry import Edges
from oocarrays.plan.slabs.plan import SlabPlan

EVEN_BYTES = 2**25
"""Bytes of a window above which a taller one wins nothing."""
FEWEST = 8
"""Slabs of a rank, at least, where they can be had: its first read and its last write are waited for."""
MOST = 2**12
"""Slabs in all, at most, where they can be had so tall: each has some tasks."""
WORKSPACE = 2.0
"""What a kernel is taken to hold beside its blocks and its results, in multiples of its blocks."""


def plan_slabs(
    sources: Sequence[Stored],
    targets: Sequence[Stored] = (),
    *,
    budget: int,
    depth: int | Sequence[int] = 0,
    boundary: Boundary = "none",
    prefetch: int = 1,
    reuse: bool = True,
    workspace: int | float | None = None,
    axis: int | None = None,
    height: int | None = None,
    ranks: int = 1,
    processes: int = 1,
    edges: Edges | None = None,
    shared: bool = True,
    halos: tuple[tuple[int, ...], ...] = (),
    past_cache_above: float = math.inf,
) -> SlabPlan:
    """Choose the axis and the height of slabs, cut on chunk boundaries of sources and targets, within ``budget`` bytes.

    Parameters
    ----------
    sources, targets : sequence of Stored
        All of one shape.
    budget : int
        Bytes that each process may hold.
    depth : int or sequence of int
        Neighbours that are needed on each side, in all axes or in each.
    workspace : int or float
        What the kernel holds beside its blocks and its results: bytes, or as a float multiples of its blocks.
    axis, height : int, optional
        Of the slabs, instead of what is best.
    ranks : int
        Ranks, at most: no more than there are slabs. In one process fewer, where not all fit.
    edges : tuple of tuple of int, optional
        Where regions of ranks begin along each axis, and its extent, where they are given.
    shared : bool
        Whether all are in one array file; else each is in a file of its own, and ``sources`` and ``targets`` are the
        largest ones.
    halos : tuple of tuple of int
        Of each source, where each rank has its own: elements of the halo in its files.
    past_cache_above : float
        Bytes: where more is written, or of a loop read, that goes past the system's cache, and what is read, too.

    Raises
    ------
    InputError
        Where depth, axis, height or prefetch is impossible.
    BudgetError
        Where no slab fits; it names the least budget that would do.
    """
    shape = tuple(each[-1] for each in edges) if edges else sources[0].grid.shape
    depths = checked(depth, shape, prefetch, axis, height)
    cut = _Cut(
        shape=shape,
        edges=edges,
        shared=shared,
        halos=halos,
        sources=tuple(sources),
        targets=tuple(targets),
        budget=budget,
        depth=depths,
        boundary=boundary,
        prefetch=prefetch,
        reuse=reuse,
        workspace=WORKSPACE if workspace is None else workspace,
        processes=processes,
        past_cache=math.prod(shape) * sum(each.itemsize for each in targets or sources) > past_cache_above,
    )
    axes = range(len(shape)) if axis is None else [range(len(shape))[axis]]
    fewer = range(ranks, 0, -1) if processes == 1 and edges is None else [ranks]
    tried: list[SlabPlan] = []
    for plan in (cut.best(along, height, count) for count in fewer for along in axes):
        if plan.fits:
            return plan
        tried.append(plan)
    least = min(tried, key=lambda plan: plan.bare_bytes)
    raise BudgetError(budget, least.peak_bytes, "one slab")


def checked(
    depth: int | Sequence[int], shape: tuple[int, ...], prefetch: int, axis: int | None, height: int | None
) -> tuple[int, ...]:
    """The depth in each axis.

    Raises
    ------
    InputError
        Where it, or anything else that is asked for, cannot be.
    """
    depths: tuple[Any, ...] = (
        tuple(depth) if np.ndim(depth) and isinstance(depth, Sequence | np.ndarray) else (depth,) * len(shape)
    )
    if len(depths) != len(shape) or not all(isinstance(d, int | np.integer) and d >= 0 for d in depths):
        raise InputError(f"depth={depth!r} is not one whole number from 0 on, or one for each of {len(shape)} axes")
    if not shape:
        raise InputError("an array without axes has no slabs: it needs one axis at least")
    if not isinstance(prefetch, int | np.integer) or prefetch < 0:
        raise InputError(f"prefetch={prefetch!r} is no whole number from 0 on: with 0 nothing is read ahead")
    if axis is not None and whole(axis, "axis") not in range(-len(shape), len(shape)):
        raise InputError(f"axis={axis!r} is none of the {len(shape)} axes of shape {shape}")
    if height is not None and (not isinstance(height, int | np.integer) or height < 1):
        raise InputError(f"height={height!r} is less than 1, or not whole: a slab has one row at least")
    return tuple(map(int, depths))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """Slabs of one global array file, or of a file a rank, along any axis and of any height."""

    shape: tuple[int, ...]
    edges: Edges | None
    shared: bool
    halos: tuple[tuple[int, ...], ...]
    sources: tuple[Stored, ...]
    targets: tuple[Stored, ...]
    budget: int
    depth: tuple[int, ...]
    boundary: Boundary
    prefetch: int
    reuse: bool
    workspace: int | float
    processes: int
    past_cache: bool

    def extent(self, axis: int) -> int:
        """The longest that an array file has of an axis, at least 1."""
        return max(self.shape[axis] if self.edges is None else max(b - a for a, b in pairwise(self.edges[axis])), 1)

    def unit(self, axis: int) -> int:
        """The least height that cuts no chunk: all of the axis, where it comes to more."""
        extent = self.extent(axis)
        chunks = (min(each.grid.chunks[axis], extent) for each in (*self.sources, *self.targets))
        return min(math.lcm(*chunks), extent)

    def plan(self, axis: int, height: int, ranks: int) -> SlabPlan:
        """Slabs of one height in regions that are given; else about as many for each rank, and no target chunk is
        written by two of them."""
        if self.edges is not None:
            return self.of(self.edges, axis, height)
        unit = math.lcm(height, *(target.grid.chunks[axis] for target in self.targets))
        share = max(ceil_div(ceil_div(self.shape[axis], unit), ranks), 1) * unit
        starts = range(0, max(self.shape[axis], 1), share)
        return self.of(tuple((*starts, n) if a == axis else (0, n) for a, n in enumerate(self.shape)), axis, height)

    def of(self, edges: Edges, axis: int, height: int) -> SlabPlan:
        """Slabs of one height in such regions."""
        plan = SlabPlan(
            edges=edges,
            axis=axis,
            height=height,
            depth=self.depth,
            boundary=self.boundary,
            prefetch=self.prefetch,
            reuse=self.reuse,
            shared=self.shared,
            halos=self.halos,
            sources=self.sources,
            targets=self.targets,
            workspace=0,
            processes=self.processes,
            budget=self.budget,
            estimated=not isinstance(self.workspace, int),
            past_cache=self.past_cache,
        )
        held = self.workspace if isinstance(self.workspace, int) else self.workspace * plan.window_bytes()
        return replace(plan, workspace=int(held))

    def best(self, axis: int, height: int | None, ranks: int) -> SlabPlan:
        """The height that is best: tall enough for large requests, short enough to overlap. Where none fits, that
        which needs least."""
        if height is not None:
            return self.plan(axis, height, ranks)
        unit, extent = self.unit(axis), self.extent(axis)
        wanted = self._wanted(axis, ranks)
        units = [wanted, *(2**n for n in reversed(range(wanted.bit_length())) if 2**n < wanted)]
        units += [wanted * 2**n for n in range(1, ceil_div(extent, wanted * unit).bit_length() + 1)]
        plans = {n: self.plan(axis, min(n * unit, extent), ranks) for n in units}
        found = next((n for n in units if plans[n].fits), None)
        if found is None:
            return min(plans.values(), key=lambda plan: plan.bare_bytes)
        return self._taller(axis, found, min(2 * found, wanted), ranks)

    def _wanted(self, axis: int, ranks: int) -> int:
        """The height that were best if there were memory enough, in units."""
        extent = self.extent(axis)
        row = math.prod(self.extent(a) for a in range(len(self.shape)) if a != axis)
        row_bytes = row * sum(source.itemsize for source in self.sources)
        fewest = FEWEST * (ranks if self.edges is None else 1)
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
