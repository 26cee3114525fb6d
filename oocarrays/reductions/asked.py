"""Checked arguments of a reduction: axes, labels, mask and function.

asked ─► Reducer        the same for a result in memory and one that is written
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np

from oocarrays.errors import InputError, UnsupportedError
from oocarrays.graphs.reductions.reducing import FUNCTIONS, Groups, Reducer
from oocarrays.kernels.reductions import NAMES, Reduction, reduction
from oocarrays.mapping.given import axes_of, whole
from oocarrays.plan.reductions.cut import ReduceCut
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.formats import dimension_names

NUMBERS = "biufc"
KINDS = {"sum": NUMBERS + "m", "mean": NUMBERS + "m", "min": "biufmM", "max": "biufmM", "count": NUMBERS + "mM"}
"""Kinds of elements that a reduction supports, if not numbers only."""

Decode = Callable[[np.ndarray], np.ndarray]
How = str | tuple[str, Mapping[str, int]] | tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]
"""Name of a reduction, with a divisor if it has one, or three functions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The request for a reduction, as `reduce` takes it."""

    how: How
    axis: int | str | Sequence[int | str] | None
    by: Any = None
    """Labels of groups along the axis."""
    where: Any = None
    """Mask of the elements that count."""
    skipna: bool = True
    ddof: int = 0
    """Reduction of the count that divides deviations."""

    @classmethod
    def of(cls, how: How, **others: Any) -> Self:
        """Return the request for a reduction with its own options beside its name."""
        if not (isinstance(how, tuple) and len(how) == 2 and isinstance(how[1], Mapping)):
            return cls(how=how, **others)
        name, options = how
        if unknown := options.keys() - {"ddof"}:
            raise InputError(f"how={how!r}: {min(unknown)!r} is no option of a reduction; there is 'ddof'")
        if options.get("ddof") and name not in ("var", "std"):
            raise InputError(f"how={how!r}: a {name} has no ddof; var and std have one")
        return cls(how=name, ddof=options.get("ddof", 0), **others)

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The functions of a reduction without a name."""
        return () if isinstance(self.how, str) else tuple(self.how)  # type: ignore[arg-type]


def wanted(file: ArrayFile, asked: Asked, decode: Decode | None = None, *, box_bytes: int | None = None) -> Reducer:
    """Check a request; packed values are decoded first. The boxes of a resumed run are those that it began with."""
    shape, ndim = tuple(file.zarr.shape), file.zarr.ndim
    axes = axes_of(range(ndim) if asked.axis is None else asked.axis, ndim, dimension_names(file.zarr))
    dtype = file.dtype if decode is None else decode(np.empty((0,) * len(shape), file.dtype)).dtype
    counts = np.dtype("i4" if math.prod(shape[axis] for axis in axes) < 2**31 else "i8")
    groups = None if asked.by is None else _groups(asked.by, shape, axes)
    mask = None if asked.where is None else _mask(asked.where, shape)
    steps = _steps(asked, dtype, counts, some_empty=_some_empty(shape, axes, groups, mask))
    begun: Any = {} if box_bytes is None else {"box_bytes": box_bytes}
    cut = ReduceCut(source=file.stored, axes=axes, groups=groups.count if groups else 0, **begun)
    return Reducer(
        file=file, cut=cut, steps=steps, groups=groups, mask=mask, decode=decode, counts=counts, values=dtype,
        name=asked.how if isinstance(asked.how, str) else FUNCTIONS,
    )  # fmt: skip


def _some_empty(shape: Sequence[int], axes: tuple[int, ...], groups: Groups | None, mask: np.ndarray | None) -> bool:
    """Return whether no element counts for some element of the result, at any values."""
    if mask is None or not math.prod(shape):
        return any(shape[axis] == 0 for axis in axes)
    aligned = mask.reshape((1,) * (len(shape) - mask.ndim) + mask.shape)
    if groups is None or aligned.shape[groups.axis] == 1:
        return not aligned.any(axis=axes).all()
    order = np.argsort(groups.codes, kind="stable")[np.count_nonzero(groups.codes < 0) :]
    begins = np.searchsorted(groups.codes[order], np.arange(groups.count))
    return not np.logical_or.reduceat(aligned.take(order, axis=groups.axis), begins, axis=groups.axis).all()


def _steps(asked: Asked, dtype: np.dtype, counts: np.dtype, *, some_empty: bool) -> Reduction:
    how, ddof = asked.how, asked.ddof
    if isinstance(how, str):
        if how not in NAMES:
            raise InputError(f"how={how!r} is not one of {', '.join(NAMES)}, nor three functions")
        if dtype.kind not in KINDS.get(how, NUMBERS):
            raise UnsupportedError(f"elements of dtype {dtype} have no {how}")
        ddof = whole(ddof, "ddof", 0)
        return reduction(how, skipna=bool(asked.skipna), ddof=ddof, counts=counts, some_empty=some_empty)
    if not (isinstance(how, tuple) and len(how) == 3 and all(map(callable, how))):
        raise InputError(f"how={how!r} is not one of {', '.join(NAMES)}, nor three functions")
    take, fold, finish = how
    return Reduction(state=partial(_unmasked, take), fold=fold, finish=finish)


def _unmasked(take: Callable[..., Any], block: np.ndarray, axes: tuple[int, ...], mask: np.ndarray | None) -> Any:
    if mask is not None:
        raise InputError("where= does not apply to your own functions: they receive all elements")
    return take(block, axes)


def _groups(by: Any, shape: Sequence[int], axes: tuple[int, ...]) -> Groups:
    if len(axes) != 1:
        raise InputError(f"by= takes one axis, not {len(axes)}: pass axis=0")
    labels = np.asarray(by)
    if labels.ndim != 1 or len(labels) != shape[axes[0]]:
        raise InputError(
            f"by= has shape {labels.shape}: axis {axes[0]} has {shape[axes[0]]} indices and needs one label for each"
        )
    if labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels):  # as xarray and pandas hold texts
        labels = labels.astype(str)
    if labels.dtype.kind == "O":
        raise InputError("by= has labels of several types, or None: pass numbers, texts or times")
    known = labels == labels  # neither NaN nor NaT
    names, codes = np.unique(labels[known], return_inverse=True)
    found = np.full(len(labels), -1)
    found[known] = codes
    if not len(names):
        raise InputError("by= has no labels: it is empty or all NaN")
    return Groups(axes[0], found, names)


def _mask(where: Any, shape: Sequence[int]) -> np.ndarray:
    mask = np.asarray(where)
    if mask.dtype != bool:
        raise InputError(f"where= is of dtype {mask.dtype}, not bool")
    try:
        np.broadcast_to(mask, shape)
    except ValueError:
        raise InputError(f"where= of shape {mask.shape} does not broadcast to {tuple(shape)}") from None
    return mask
