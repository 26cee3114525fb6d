"""Options of a pass over slabs: defined once, and passed unchanged from the caller to the plan.

map_slabs, iterate, a.slabs ─► SlabOptions ─► the same, checked, with budget and ranks ─► SlabPlan: terms and cut
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from oocarrays.errors import InputError
from oocarrays.mapping.coarsening import Coarsening
from oocarrays.mapping.given import axis_of, by_axis, index_of, is_sequence, whole
from oocarrays.mapping.grid import Stored
from oocarrays.mapping.layouts.halo import Boundaries, of_each
from oocarrays.plan.documents import Document
from oocarrays.plan.machine import Costs

DepthLike = int | Sequence[int] | Mapping[Any, int]
"""Neighbours on each side as given by a user: in all axes, in each, or in some by number or name."""
WindowLike = Sequence[Any] | Mapping[Any, Any]
"""Elements of a slab along each axis, or along some by number or name; None or -1 for all, "auto" to choose."""
COSTS = Costs()
Edges = tuple[tuple[int, ...], ...]
"""Start of each rank's region along each axis, and the extent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlabTerms:
    """Terms of a pass that its plan keeps as requested."""

    depth: int | Sequence[int] = 0
    """Number of neighbours that the kernel sees on each side: in all axes, or in each."""
    margin: tuple[int, ...] = ()
    """Additional elements read in each axis to verify results; they are included in the depth of a plan."""
    boundary: Boundaries = "none"
    """Boundary condition beyond the edges; as requested until it is checked."""
    prefetch: int = 1
    """Number of slabs read ahead of the computed one."""
    reuse: bool = True
    """Whether elements shared by two windows are passed on in memory instead of being read again."""
    shared: bool = True
    """Whether a rank can read the region of another: all are in one array file."""
    halos: tuple[tuple[int, ...], ...] = ()
    """Halo of each source with a file per rank, in elements on either side; it is not read."""
    among: tuple[Stored, ...] = ()
    """Other arrays that further passes read and write in such slabs, and that must fit as well."""
    cores_only: bool = False
    """Whether a kernel returns the elements of its slab only, as sweeps do, and not those of its window."""
    coarser: tuple[Coarsening, ...] = ()
    """Coarsening of each target; empty if all targets have the shape of the sources."""
    processes: int = 1
    """Number of processes that share the ranks."""
    budget: int = 0
    """Bytes that each process may hold."""
    costs: Costs = field(default=COSTS, compare=False, repr=False)

    def shapes_made(self, shape: Sequence[int], targets: Sequence[Stored]) -> list[tuple[int, ...]]:
        """Return the shape of each target for a part of the sources with this shape."""
        return [coarse.shape(shape) for coarse in self.coarser] or [tuple(shape)] * len(targets)

    def bytes_made(self, shape: Sequence[int], targets: Sequence[Stored]) -> int:
        """Return the decoded bytes of all targets for a part of the sources with this shape."""
        made = zip(self.shapes_made(shape, targets), targets, strict=True)
        return sum(math.prod(each) * target.itemsize for each, target in made)


def window_options(window: WindowLike | int | None) -> Document:
    """Return a window as options: elements along each axis, along the axis that is chosen, or the axis of slabs."""
    if window is None:
        return {}
    if (height := index_of(window)) is not None:
        return {"height": height}
    if isinstance(window, int) or not (isinstance(window, Mapping) or is_sequence(window)):
        raise InputError(f"window={window!r} is neither a number of elements nor one for each axis, or by axis")
    each = dict(window) if isinstance(window, Mapping) else dict(enumerate(window))
    chosen = [axis for axis, n in each.items() if isinstance(n, str) and n == "auto"]
    if not chosen:
        return {"heights": window}
    if len(chosen) > 1 or any(n not in (None, -1) for axis, n in each.items() if axis != chosen[0]):
        raise InputError(f"window={window!r}: only one axis may be 'auto', and slabs are then whole in all others")
    return {"axis": chosen[0]}


TERMS = tuple(field.name for field in fields(SlabTerms))
"""Names of the terms, kept because thousands of plans are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlabOptions(SlabTerms):
    """Options of a pass over slabs; omitted ones are chosen."""

    workspace: int | float | Callable[[tuple[int, ...]], int] | None = None
    """Bytes of the kernel in addition to its blocks and results; as a float, multiples of its blocks; or a function
    that returns the bytes for a slab's shape.
    """
    axis: int | None = None
    """Axis along which slabs follow one another."""
    height: int | None = None
    """Elements of a slab along that axis."""
    heights: Sequence[int | None] | None = None
    """Elements of a slab along each axis; None, or -1, for the whole axis."""
    edges: Edges | None = None
    """Start of each rank's region along each axis, and the extent; None to choose regions."""
    ranks: int | None = None
    """Maximum number of ranks: at most the number of slabs, and in one process fewer if not all fit; by default one."""
    past_cache_above: float = math.inf
    """Bytes written by a pass, or read by a loop, above which local files bypass the system's cache."""

    def along(self, ndim: int, names: Sequence[str | None] | None) -> Self:
        """Return the options with axes as numbers, and one depth and height for each axis."""
        return replace(
            self,
            depth=by_axis(self.depth, ndim, 0, names, "depth"),
            boundary=by_axis(self.boundary, ndim, "none", names, "boundary"),
            heights=by_axis(self.heights, ndim, None, names, "window"),
            axis=None if self.axis is None else axis_of(self.axis, ndim, names, f"window={{{self.axis!r}: 'auto'}}"),
        )

    def checked(self, shape: tuple[int, ...]) -> Self:
        """Return the options with axes from 0 on and the depth in each, or raise if any is invalid."""
        depth, height = self.depth, self.height
        given: Any = depth
        depths: tuple[Any, ...] = tuple(given) if is_sequence(given) else (given,) * len(shape)
        if len(depths) != len(shape) or any((n := index_of(d)) is None or n < 0 for d in depths):
            raise InputError(
                f"depth={depth!r} must be a whole number, at least 0, or one for each of {len(shape)} axes"
            )
        if not shape:
            raise InputError("an array without axes has no slabs: at least one axis is required")
        prefetch = whole(self.prefetch, "prefetch", 0)
        axis = None if self.axis is None else axis_of(self.axis, len(shape), word="window")
        height = None if height is None else min(whole(height, "window", 1), max(*shape, 1))
        seeing = next((axis for axis, d in enumerate(depths) if d and not self._stays(axis)), None)
        if seeing is not None:
            raise InputError(
                f"depth={depth!r}: along axis {seeing} results have another length than their blocks, so the kernel "
                "sees no neighbours there; pass one depth for each axis"
            )
        heights = self._checked_heights(shape)
        self.check_whole(shape, heights or ())
        depths = tuple(map(int, depths))
        return replace(self, depth=depths, axis=axis, heights=heights, height=height, prefetch=prefetch)

    def check_whole(self, shape: Sequence[int], heights: Sequence[int | None]) -> None:
        """Raise if slabs cut the groups of elements of a coarser target."""
        for axis, (height, extent) in enumerate(zip(heights, shape, strict=False)):
            unit = math.lcm(*(coarse.unit(axis, extent) for coarse in self.coarser))
            if height is not None and height < extent and height % unit:
                raise InputError(
                    f"slabs of {height} elements along axis {axis} cut the {unit} elements of one element of a target"
                )

    def verified(self) -> Self:
        """Return the options with a larger halo, to check whether a kernel sees farther than its depth.

        With a boundary other than ``"none"``, an axis without neighbours stays as it is: the kernel may need all of it.
        """
        assert isinstance(self.depth, tuple), "options have been checked"
        each = zip(self.depth, of_each(self.boundary, len(self.depth)), strict=True)
        wider = [d + 1 if d or boundary == "none" else 0 for d, boundary in each]
        margin = tuple(m if self._stays(axis) else 0 for axis, m in enumerate(wider))
        if not any(self._stays(axis) for axis in range(len(margin))):
            raise InputError("verify=True: results have another length than their blocks along every axis")
        return replace(self, margin=margin, depth=tuple(d + m for d, m in zip(self.depth, margin, strict=True)))

    def _stays(self, axis: int) -> bool:
        """Return whether targets have the sources' resolution along an axis."""
        return all(coarse.factor(axis) == 1 for coarse in self.coarser)

    def shape_of(self, sources: Sequence[Stored]) -> tuple[int, ...]:
        """Return the extent of each axis of the whole array: sources may be the files of one rank."""
        return tuple(each[-1] for each in self.edges) if self.edges else sources[0].grid.shape

    def cut_as(self, **cut: Any) -> Self:
        """Return the options for slabs cut before: those of one plan are those of another."""
        return replace(self, **({"height": None} | cut))

    def _checked_heights(self, shape: tuple[int, ...]) -> tuple[int | None, ...] | None:
        """Return the requested heights of windows along each axis: None for the whole axis."""
        asked = self.heights
        if asked is None:
            return None
        heights = list(asked) if is_sequence(asked) else []
        lengths = [None if height is None else index_of(height) or 0 for height in heights]
        if len(lengths) != len(shape) or any(n is not None and n < 1 and n != -1 for n in lengths):
            raise InputError(
                f"window={asked!r} must be a whole number, at least 1, for each of {len(shape)} axes; None or -1 is "
                "the whole axis"
            )
        return tuple(None if n == -1 else n for n in lengths)

    @property
    def terms(self) -> Document:
        return {name: getattr(self, name) for name in TERMS}
