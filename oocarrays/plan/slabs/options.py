"""Options of a pass over slabs: they are written down once, and travel whole from who asks to the plan.

map_slabs, iterate, a.slabs ─► SlabOptions ─► the same, checked, with budget and ranks ─► SlabPlan: terms, and its cut
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np

from oocarrays.errors import InputError
from oocarrays.mapping.coarsening import Coarsening
from oocarrays.mapping.given import axis_of, by_axis, is_sequence, whole
from oocarrays.mapping.grid import Stored
from oocarrays.mapping.layouts.halo import Boundaries, of_each
from oocarrays.plan.documents import Document
from oocarrays.plan.machine import Costs

DepthLike = int | Sequence[int] | Mapping[Any, int]
"""Neighbours on each side as a person asks for them: in all axes, in each, or in some by number or name."""
WindowLike = Sequence[int | None] | Mapping[Any, int | None]
"""Elements of a slab along each axis, or along some by number or name."""
COSTS = Costs()
Edges = tuple[tuple[int, ...], ...]
"""Where the regions of ranks begin along each axis, and the extent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlabTerms:
    """Terms of a pass that its plan keeps as they were asked for."""

    depth: int | Sequence[int] = 0
    """Neighbours that the kernel sees on each side: in all axes, or in each."""
    margin: tuple[int, ...] = ()
    """So many more that are read to verify results, in each axis: they are part of the depth of a plan."""
    boundary: Boundaries = "none"
    """What stands beyond the edges; until it is checked, as it was asked for."""
    prefetch: int = 1
    """Slabs that are read ahead of the one that is computed."""
    shared: bool = True
    """Whether a rank can read what is in the region of another: all are in one array file."""
    halos: tuple[tuple[int, ...], ...] = ()
    """Of each source that is in a file a rank: elements of the halo there, on either side; they are not read."""
    among: tuple[Stored, ...] = ()
    """What else is read and written in such slabs, by other passes: there must be room for all."""
    cores_only: bool = False
    """Whether a kernel gives the elements of its slab alone, as sweeps do, and not those of its window."""
    coarser: tuple[Coarsening, ...] = ()
    """Of each target, the elements for which each of its own stands; none where all are of the shape of the sources."""
    processes: int = 1
    """Processes among which the ranks are shared out."""
    budget: int = 0
    """Bytes that each process may hold."""
    costs: Costs = field(default=COSTS, compare=False, repr=False)
    """Costs of this machine."""

    def shapes_made(self, shape: Sequence[int], targets: Sequence[Stored]) -> list[tuple[int, ...]]:
        """Return the shape that is made for each target of so much of the sources."""
        return [coarse.shape(shape) for coarse in self.coarser] or [tuple(shape)] * len(targets)

    def bytes_made(self, shape: Sequence[int], targets: Sequence[Stored]) -> int:
        """Bytes, decoded, that are made for all targets of so much of the sources."""
        made = zip(self.shapes_made(shape, targets), targets, strict=True)
        return sum(math.prod(each) * target.itemsize for each, target in made)


TERMS = tuple(field.name for field in fields(SlabTerms))
"""Their names: plans by the thousand are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlabOptions(SlabTerms):
    """All that may be asked of a pass over slabs; what is left out is chosen."""

    workspace: int | float | Callable[[tuple[int, ...]], int] | None = None
    """Bytes that the kernel holds beside its blocks and its results, or as a float multiples of its blocks; or what
    gives the bytes for a slab of some shape."""
    reuse: bool = True
    """Whether what two windows share is handed on in memory instead of being read again."""
    axis: int | None = None
    """The axis along which slabs follow one another."""
    height: int | None = None
    """Elements of a slab along it."""
    heights: Sequence[int | None] | None = None
    """Elements of a slab along each axis; None, or -1, for all of it."""
    edges: Edges | None = None
    """Where the regions of ranks begin along each axis, and the extent, where they are given."""
    ranks: int | None = None
    """Ranks, at most: no more than there are slabs, and in one process fewer, where not all fit; by default one."""
    past_cache_above: float = math.inf
    """Bytes: where more is written, or of a loop read, that goes past the system's cache, and what is read, too."""

    def along(self, ndim: int, names: Sequence[str | None] | None) -> Self:
        """Return the same with axes as numbers, and one depth and height for each, where some axes are named."""
        numbers = {name: axis for axis, name in enumerate(names or ()) if name is not None}
        boundary: Any = self.boundary
        if isinstance(boundary, Mapping):
            boundary = {numbers.get(axis, axis): each for axis, each in boundary.items()}
        return replace(
            self,
            depth=by_axis(self.depth, ndim, 0, names, "depth"),
            boundary=boundary,
            heights=by_axis(self.heights, ndim, None, names, "window"),
            axis=axis_of(self.axis, ndim, names) if isinstance(self.axis, str) and numbers else self.axis,
        )

    def checked(self, shape: tuple[int, ...]) -> Self:
        """Give the same with the depth in each axis."""
        depth, axis, height, prefetch = self.depth, self.axis, self.height, self.prefetch
        given: Any = depth
        depths: tuple[Any, ...] = tuple(given) if is_sequence(given) else (given,) * len(shape)
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
        seeing = next((axis for axis, d in enumerate(depths) if d and not self._stays(axis)), None)
        if seeing is not None:
            raise InputError(
                f"depth={depth!r}: a kernel whose results are of another length than its blocks along axis {seeing} "
                "sees no neighbours there: give one depth for each axis"
            )
        heights = self._checked_heights(shape)
        if heights is None and axis is not None and height is not None:
            self.check_whole(shape, [height if a == axis % len(shape) else None for a in range(len(shape))])
        self.check_whole(shape, heights or ())
        height = None if height is None else min(int(height), max(*shape, 1))
        return replace(self, depth=tuple(map(int, depths)), heights=heights, height=height)

    def check_whole(self, shape: Sequence[int], heights: Sequence[int | None]) -> None:
        """Refuse slabs that cut groups of elements for which one of a target stands."""
        for axis, (height, extent) in enumerate(zip(heights, shape, strict=False)):
            unit = math.lcm(*(coarse.unit(axis, extent) for coarse in self.coarser))
            if height is not None and height < extent and height % unit:
                raise InputError(
                    f"slabs of {height} elements along axis {axis} cut what an element of a target stands for: {unit}"
                )

    def verified(self) -> Self:
        """The same with a larger halo, to see whether a kernel sees farther than its depth.

        Where something stands beyond the edges of an axis, and the kernel sees no neighbours along it, it may need all
        of that axis as it is.
        """
        assert isinstance(self.depth, tuple), "options have been checked"
        each = zip(self.depth, of_each(self.boundary, len(self.depth)), strict=True)
        wider = [d + 1 if d or boundary == "none" else 0 for d, boundary in each]
        margin = tuple(m if self._stays(axis) else 0 for axis, m in enumerate(wider))
        if not any(self._stays(axis) for axis in range(len(margin))):
            raise InputError("verify=True: results are of another length than their blocks along each axis")
        return replace(self, margin=margin, depth=tuple(d + m for d, m in zip(self.depth, margin, strict=True)))

    def _stays(self, axis: int) -> bool:
        """Whether along an axis each element of a target is that of the sources in its place."""
        return all(coarse.factor(axis) == 1 for coarse in self.coarser)

    def shape_of(self, sources: Sequence[Stored]) -> tuple[int, ...]:
        """Extent of each axis of the whole array: sources may be the files of one rank."""
        return tuple(each[-1] for each in self.edges) if self.edges else sources[0].grid.shape

    def cut_as(self, **cut: Any) -> Self:
        """The same for slabs that have been cut before: those of one plan are those of another."""
        return replace(self, **({"height": None} | cut))

    def _checked_heights(self, shape: tuple[int, ...]) -> tuple[int | None, ...] | None:
        """Of windows cut along any axes, where they are asked for: None for all of an axis."""
        asked = self.heights
        if asked is None:
            return None
        if self.height is not None:
            raise InputError(f"height={self.height!r} and window={asked!r}: give the one or the other")
        heights = list(asked) if is_sequence(asked) else []
        whole = [None if isinstance(height, int | np.integer) and height == -1 else height for height in heights]
        good = all(h is None or (isinstance(h, int | np.integer) and not isinstance(h, bool) and h > 0) for h in whole)
        if len(whole) != len(shape) or not good:
            raise InputError(
                f"window={asked!r} is not a whole number from 1 on for each of {len(shape)} axes; None or -1 is the "
                "whole axis"
            )
        return tuple(None if h is None else int(h) for h in whole)

    @property
    def terms(self) -> Document:
        """The terms that a plan keeps."""
        return {name: getattr(self, name) for name in TERMS}
