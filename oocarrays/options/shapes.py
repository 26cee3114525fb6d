"""Arguments for results with another shape than their blocks.

factor={"time": 24}                              days of hours: each element stands for a group of a source's
drop_axis="time"                                 (time, y, x) → (y, x): a kernel that leaves nothing of an axis
new_axis=0, shape=(2, ...)                       (y, x) → (2, y, x): the result's own axes, at their positions
drop_axis=0, new_axis=0, shape={0: 65}           (time, y, x) → (waves, y, x): another axis in its place
shape=(65, None, None)                           the same axis of another length

Positions are counted as by Dask's ``map_blocks``: those of ``drop_axis`` in a block, those of ``new_axis`` in its
result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, Required

from oocarrays.errors import InputError
from oocarrays.mapping.coarsening import Coarsening
from oocarrays.mapping.given import Names, axes_of, by_axis, flag, is_sequence, listed, whole
from oocarrays.mapping.layouts.halo import BoundaryLike
from oocarrays.options.asked import FactorLike, factors_of
from oocarrays.options.chunks import ChunksLike, extent_said
from oocarrays.options.given import WritingKeywords, shown
from oocarrays.plan.documents import Document, Settings
from oocarrays.plan.slabs.options import DepthLike, WindowLike
from oocarrays.storage.files.formats import with_axes

DropLike = int | str | Sequence[int | str]
"""Axes of a block that its result lacks, by number or name."""
NewLike = int | Sequence[int]
"""Positions of the result's own axes."""
ShapeLike = int | Sequence[int | EllipsisType | None] | Mapping[Any, int]
"""The extents of a target: of each axis, of named ones, or of its only new one; None keeps a length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Results of a kernel that differ from its blocks in shape, and their check.

    Parameters
    ----------
    factor : int, sequence or mapping, or one a target
        Elements of the sources along each axis that are merged into one of the target; targets may have different
        shapes: ``{0: 24}`` of hours to days, ``{0: [31, 28, …]}`` of days to months; axes not named stay. The kernel
        returns an array of the merged shape for each target. If the lengths differ, blocks are whole in the axis. A
        target without whole chunks in a slab stays in memory, and is written at the end.
    drop_axis : int, str or sequence of them, or one a target
        Axes that results lack, by number or name, as with ``block.max(axis=0)``: blocks are whole in them.
    new_axis : int or sequence of int, or one a target
        Positions of the result's own axes, as in Dask's ``map_blocks``: each block is whole in them. They have no
        names; their length is that of ``shape`` or of the target's chunks, or else 1. With ``drop_axis``, one axis
        replaces another.
    shape : int, sequence or mapping, or one a target
        Of the targets: ``(65, ...)``, ``(65, None, None)`` or ``{0: 65}``, where None keeps a length; a number is the
        length of the only new axis. By itself it gives an axis another length: blocks are whole in it. If results have
        another shape than the sources, the kernel is tried on a few zeros before a target is made. A wrong shape is an
        error; a kernel that fails with zeros is tested by the first slab.
    verify : bool
        Whether to compute the first, the middle and the last slab of each rank again with a larger halo. A difference
        ends the run: the kernel reads farther than its depth, or depends on where slabs are cut. Axes along which
        results have another length are not compared.

    Examples
    --------
    >>> Results(drop_axis="time")
    Results(drop_axis='time')
    """

    factor: FactorLike | Sequence[FactorLike] | None = None
    drop_axis: DropLike | Sequence[DropLike | None] | None = None
    new_axis: NewLike | Sequence[NewLike | None] | None = None
    shape: ShapeLike | Sequence[ShapeLike | None] | None = None
    verify: bool = False

    def __post_init__(self) -> None:
        flag(self.verify, "verify")

    def __repr__(self) -> str:
        return shown(self)

    @property
    def _others(self) -> bool:
        """Whether results may have other axes than their blocks."""
        return any(each is not None for each in (self.drop_axis, self.new_axis, self.shape))

    @property
    def _words(self) -> str:
        return " and ".join(f"{name}=" for name in NAMES if getattr(self, name) is not None)

    def _levels(
        self, shape: Sequence[int], names: Names, chunks: Sequence[ChunksLike | None], *, single: bool
    ) -> tuple[Coarsening, ...]:
        """Return the coarsening of each target; empty if all have the shape of the sources."""
        if self.factor is None and not self._others:
            return ()
        targets = len(chunks)
        each = [_each(getattr(self, name), name, targets, single=single) for name in NAMES]
        return tuple(_level(_Asked(*one), list(shape), names) for one in zip(*each, chunks, strict=True))


NAMES = ("factor", "drop_axis", "new_axis", "shape")


def _each(asked: Any, name: str, targets: int, *, single: bool) -> list[Any]:
    if asked is None:
        return [None] * targets
    each = [asked] if single else asked
    if not isinstance(each, list | tuple) or len(each) != targets:
        raise InputError(f"{name}={asked!r} has the wrong length for {targets} targets: pass one for each")
    return list(each)


@dataclass(frozen=True, slots=True)
class _Asked:
    """Requested shapes of one target."""

    factor: FactorLike | None
    drop_axis: DropLike | None
    new_axis: NewLike | None
    shape: ShapeLike | None
    chunks: ChunksLike | None

    @property
    def moves(self) -> bool:
        """Whether axes are dropped or added."""
        return self.drop_axis is not None or self.new_axis is not None


def _level(asked: _Asked, shape: list[int], names: Names) -> Coarsening:
    factors = factors_of(1 if asked.factor is None else asked.factor, len(shape), names)
    level = Coarsening.of(factors, shape)
    if asked.moves:
        level = _moved(asked, level, shape, names)
    own = level.shape(shape)
    wanted = _extents(asked.shape, len(own), names_of(level, names), _new(level)) if asked.shape is not None else own
    other = {axis: n for axis, (n, m) in enumerate(zip(wanted, own, strict=True)) if n is not None and n != m}
    for axis, n in other.items():
        if asked.moves or level.factors[axis] != 1:
            raise InputError(
                f"shape={asked.shape!r}: axis {axis} of the target should have {n} elements, but gets {own[axis]}: "
                "an axis that changes is in drop_axis= and new_axis=, or in shape= alone"
            )
    level = level.resized(other) if other else level
    if math.prod(shape) == 0 < math.prod(level.shape(shape)):
        raise InputError(f"sources of shape {tuple(shape)} have no elements to compute from")
    return level


def _moved(asked: _Asked, level: Coarsening, shape: list[int], names: Names) -> Coarsening:
    """Return the coarsening without dropped axes, and with new ones."""
    dropped = () if asked.drop_axis is None else axes_of(asked.drop_axis, len(shape), names, "drop_axis")
    both = next((axis for axis in dropped if level.factors[axis] != 1), None)
    if both is not None:
        raise InputError(f"factor={asked.factor!r} and drop_axis={asked.drop_axis!r} both name axis {both}")
    added: Any = asked.new_axis
    ndim = len(shape) - len(dropped) + (len(added) if is_sequence(added) else int(added is not None))
    if not ndim:
        raise InputError(f"drop_axis={asked.drop_axis!r} leaves no axis: a target has at least one; pass new_axis=0")
    new = () if added is None else axes_of(added, ndim, None, "new_axis")
    bare = level.reshaped(dropped, dict.fromkeys(new, 1))
    said = [None] * ndim if asked.shape is None else _extents(asked.shape, ndim, names_of(bare, names), new)
    lengths = {axis: said[axis] or extent_said(asked.chunks, axis, ndim) or 1 for axis in new}
    return level.reshaped(dropped, lengths)


def _new(level: Coarsening) -> list[int]:
    """Return the target's own axes."""
    return [place for place, axis in enumerate(level.of_axes) if axis is None]


def names_of(level: Coarsening, names: Names) -> tuple[str | None, ...] | None:
    """Return the names of a target's axes: those of the corresponding source axes."""
    return None if names is None else tuple(None if axis is None else names[axis] for axis in level.of_axes)


def _extents(asked: ShapeLike, ndim: int, names: Names, new: Sequence[int]) -> list[int | None]:
    """Return the requested extent of each axis of a target; None for an axis without one."""
    if isinstance(asked, Mapping):
        each = list(by_axis(asked, ndim, None, names, "shape"))
    elif hasattr(asked, "__iter__"):
        each = listed(asked, "shape")
        if each.count(...) == 1:
            at = each.index(...)
            each[at : at + 1] = [None] * (ndim - len(each) + 1)
    elif ndim == 1 or len(new) == 1:
        place = new[0] if new else 0
        each = [asked if axis == place else None for axis in range(ndim)]
    else:
        raise InputError(
            f"shape={asked!r} is one length; the result has {ndim} axes: pass one for each, or {{axis: length}}"
        )
    if len(each) != ndim:
        raise InputError(
            f"shape={asked!r} has {len(each)} axes, and the result has {ndim}: drop_axis= and new_axis= say which axes "
            "go and which come; None stands for a length that stays"
        )
    return [None if n is None else whole(n, "shape", 1) for n in each]


def coarsened(made: Settings, level: Coarsening) -> Settings:
    """Return the arguments of ``zarr.create_array`` for a coarsened array; no chunk is longer than its axis.

    A new axis is whole in a chunk, unless that exceeds both 4 MiB and a chunk of the source.
    """
    shape = level.shape(made["shape"])
    of = [None if axis is None else made["chunks"][axis] for axis in level.of_axes]
    kept = [None if chunk is None else max(min(chunk, n), 1) for chunk, n in zip(of, shape, strict=True)]
    most = max(math.prod(made["chunks"]), 2**22 // made["dtype"].itemsize)
    chunks: list[int] = []
    for place, (chunk, n) in enumerate(zip(kept, shape, strict=True)):
        others = math.prod(chunks) * math.prod(each or 1 for each in kept[place + 1 :])
        chunks.append(max(min(n, most // others), 1) if chunk is None else chunk)
    return (with_axes(made, level.of_axes) if level.axes else made) | {"shape": shape, "chunks": tuple(chunks)}


def shapes_said(levels: Sequence[Coarsening], shape: Sequence[int]) -> Document:
    """Return the arguments on shapes that a resumed call must repeat, one a target, as plain values."""
    if not levels:
        return {}
    if all(not level.axes and all(isinstance(each, int | tuple) for each in level.factors) for level in levels):
        return {"factor": [level.factors for level in levels]}
    fine = range(len(shape))
    return {
        "factor": [[n if isinstance(n := level.factor(a), int | tuple) else 1 for a in fine] for level in levels],
        "drop_axis": [[axis for axis in fine if axis not in level.of_axes] or None for level in levels],
        "new_axis": [_new(level) or None for level in levels],
        "shape": [list(level.shape(shape)) for level in levels],
    }


SeveralTargets = list[Any] | tuple[Any, ...]


class SlabKeywords(WritingKeywords, total=False):
    """Keywords of `oocarrays.map_slabs` beside kernel, sources and targets."""

    depth: DepthLike | None
    boundary: BoundaryLike
    window: WindowLike | int | None
    results: Results | None


class SweepKeywords(WritingKeywords, total=False):
    """Keywords of `oocarrays.iterate` beside kernel, sources and targets."""

    sweeps: Required[int]
    until: float | tuple[float | None, Callable[..., float]] | None
    depth: DepthLike | None
    boundary: BoundaryLike
