"""Sums, means, deviations and extremes of arrays that do not fit: one pass over the disk, in a budget of memory.

array   ┌────┬────┬────┐   time ─►      boxes of whole chunks, cut by shape and chunks alone
        │ 0  │ 1  │ 2  │   fold ─► ▯    read and reduced on threads, folded in their order
        ├────┼────┼────┤
        │ 3  │ 4  │ 5  │   fold ─► ▯    so that neither threads nor memory change a bit
        └────┴────┴────┘
"""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import zarr

from oocarrays.errors import BudgetError, InputError, KernelError, OocError, UnsupportedError
from oocarrays.graphs import settings
from oocarrays.graphs.run.missing import warn_of_missing
from oocarrays.kernels.reductions import NAMES, PIECE, Reduction, reduction
from oocarrays.mapping.grid import ceil_div
from oocarrays.options.packing import warn_of_packed
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.meter import Meter
from oocarrays.storage.metered import new_meter
from oocarrays.storage.sections.read import read_section
from oocarrays.stored.array import StoredArray, missing_of, placer

BOX_BYTES = 2**24
"""Of what is read and reduced at one time, where chunks are no larger."""
STATES = 3
"""Arrays of float64 that are held of a result while it is made."""
NUMBERS = "biufc"
TIMES = "mM"

Decode = Callable[[np.ndarray], np.ndarray]
How = str | tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]


def reduce(
    a: StoredArray | zarr.Array | StoreLike,
    how: How,
    axis: int | Sequence[int] | None = None,
    *,
    by: Any = None,
    where: Any = None,
    skipna: bool = True,
    ddof: int = 0,
    memory: int | float | str | None = None,
    storage_options: Any = None,
) -> np.ndarray:
    """Reduce an array on disk along axes; each chunk is read once, on threads of this process.

    Parameters
    ----------
    a : OutOfCoreArray, zarr.Array, path, URL or store
        What is reduced.
    how : str or (callable, callable, callable)
        ``"sum"``, ``"mean"``, ``"var"``, ``"std"``, ``"min"``, ``"max"`` or ``"count"``; or three functions: of a block
        and the axes, of two of their results, and of the last one.
    axis : int or sequence of int
        Along which; by default all.
    by : sequence
        A label for each index of ``axis``, which must be one: the result has in its place an axis of groups, in the
        order of ``numpy.unique(by)``. Where a label is NaN or NaT, nothing counts.
    where : array of bool
        What counts, broadcast to the array.
    skipna : bool
        Whether NaN does not count, as for xarray; else it makes NaN, as for numpy.
    ddof : int
        Of ``"var"`` and ``"std"``: they are divided by the count less this.
    memory : int or str
        Bytes that this process may hold for it; by default as in `rechunk`.
    storage_options : mapping
        How a URL is opened.

    Returns
    -------
    numpy.ndarray
        Sums of integers are as numpy has them, of floating-point numbers float64, from box to box with what rounding
        lost. The same bits whatever the memory and the threads. Where nothing counts: 0 for ``"sum"`` and ``"count"``,
        else NaN.

    Raises
    ------
    InputError
        For an axis that is not there, labels or masks that do not fit; `BudgetError` where not one box of chunks fits;
        `UnsupportedError` for elements that cannot be reduced so.
    KernelError
        Where a function of ``how`` fails.

    Examples
    --------
    >>> import numpy as np, zarr
    >>> a = zarr.create_array({}, data=np.arange(12.0).reshape(4, 3), chunks=(2, 3))
    >>> reduce(a, "mean", axis=0)
    array([4.5, 5.5, 6.5])
    >>> reduce(a, "max", axis=0, by=["wet", "dry", "wet", "dry"])
    array([[ 9., 10., 11.],
           [ 6.,  7.,  8.]])
    """
    array = array_file.open_array(placer(storage_options)(a))
    warn_of_packed(array)
    file = array_file.describe_source(array, missing_of(a))
    return reduced(file, Asked(how=how, axis=axis, by=by, where=where, skipna=skipna, ddof=ddof), memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The request for a reduction, as `reduce` takes it."""

    how: How
    """Which one."""
    axis: int | Sequence[int] | None
    """Along which axes."""
    by: Any = None
    """Labels."""
    where: Any = None
    """What counts."""
    skipna: bool = True
    """Whether NaN does not count."""
    ddof: int = 0
    """By how much less than the count deviations are divided."""


def reduced(
    file: ArrayFile, asked: Asked, memory: int | float | str | None, decode: Decode | None = None
) -> np.ndarray:
    """Reduce an array file: see `reduce`; what is stored is decoded first, where it stands for something else."""
    shape, axes = tuple(file.zarr.shape), _axes(asked.axis, file.zarr.ndim)
    dtype = file.dtype if decode is None else decode(np.empty((0,) * len(shape), file.dtype)).dtype
    steps = _steps(asked.how, dtype, asked.skipna, asked.ddof)
    groups = None if asked.by is None else _groups(asked.by, shape, axes)
    mask = None if asked.where is None else _mask(asked.where, shape)
    work = _Work(file=file, axes=axes, steps=steps, groups=groups, mask=mask, decode=decode, meter=new_meter())
    return work.result(settings.budget(memory), dtype.itemsize)


def _axes(axis: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    named: Sequence[Any] = range(ndim) if axis is None else axis if isinstance(axis, list | tuple) else [axis]
    try:
        found = tuple(sorted(range(ndim)[operator.index(each)] for each in named))
    except (IndexError, TypeError, ValueError):
        raise InputError(f"axis={axis!r} is not among the {ndim} axes of the array") from None
    if len(set(found)) != len(found):
        raise InputError(f"axis={axis!r} names an axis twice")
    return found


def _steps(how: How, dtype: np.dtype, skipna: bool, ddof: int) -> Reduction:
    if isinstance(how, str):
        if how not in NAMES:
            raise InputError(f"how={how!r} is not one of {', '.join(NAMES)}, nor three functions")
        allowed = NUMBERS + TIMES if how in ("min", "max") else NUMBERS
        if dtype.kind not in allowed or (how in ("min", "max") and dtype.kind == "c"):
            raise UnsupportedError(f"elements of dtype {dtype} have no {how}")
        if isinstance(ddof, bool) or not isinstance(ddof, int) or ddof < 0:
            raise InputError(f"ddof={ddof!r} is not a whole number from 0 on")
        return reduction(how, skipna=bool(skipna), ddof=ddof)
    if not (isinstance(how, tuple) and len(how) == 3 and all(map(callable, how))):
        raise InputError(f"how={how!r} is neither one of {', '.join(NAMES)}, nor three functions")
    take, fold, finish = how
    return Reduction(state=partial(_unmasked, take), fold=fold, finish=finish)


def _unmasked(take: Callable[..., Any], block: np.ndarray, axes: tuple[int, ...], mask: np.ndarray | None) -> Any:
    if mask is not None:
        raise InputError("functions of one's own take no where=: they are given all elements")
    return take(block, axes)


@dataclass(frozen=True, slots=True)
class _Groups:
    """Groups of indices along one axis."""

    axis: int
    """Which."""
    codes: np.ndarray
    """The group of each index; -1 for none."""
    count: int
    """Groups."""


def _groups(by: Any, shape: Sequence[int], axes: tuple[int, ...]) -> _Groups:
    if len(axes) != 1:
        raise InputError(f"by= takes one axis, and there are {len(axes)}: name it, axis=0")
    labels = np.asarray(by)
    if labels.ndim != 1 or len(labels) != shape[axes[0]]:
        raise InputError(f"by= has shape {labels.shape}: axis {axes[0]} has {shape[axes[0]]} indices, a label for each")
    if labels.dtype.kind == "O":
        raise InputError("by= has labels of several types, or None: give numbers, texts or times")
    known = labels == labels  # neither NaN nor NaT
    names, codes = np.unique(labels[known], return_inverse=True)
    found = np.full(len(labels), -1)
    found[known] = codes
    return _Groups(axes[0], found, len(names))


def _mask(where: Any, shape: Sequence[int]) -> np.ndarray:
    mask = np.asarray(where)
    if mask.dtype != bool:
        raise InputError(f"where= is of dtype {mask.dtype}, not bool")
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        raise InputError(f"where= of shape {mask.shape} does not broadcast to {tuple(shape)}") from None


Box = tuple[slice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """A reduction of one array."""

    file: ArrayFile
    """The array."""
    axes: tuple[int, ...]
    """Along which it is reduced."""
    steps: Reduction
    """How."""
    groups: _Groups | None
    """Of the indices of the axis."""
    mask: np.ndarray | None
    """What counts."""
    decode: Decode | None
    """What makes values of what is stored."""
    meter: Meter
    """Counts what is read."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        return tuple(self.file.zarr.shape)

    def lengths(self) -> tuple[int, ...]:
        """Elements of a box along each axis: whole chunks, first as many as can be along axes that are reduced."""
        chunks, itemsize = list(self.file.zarr.chunks), max(self.file.dtype.itemsize, 1)
        nbytes = math.prod(chunks) * itemsize
        kept = [axis for axis in range(len(chunks)) if axis not in self.axes]
        for axis in (*reversed(self.axes), *reversed(kept)):
            most = ceil_div(max(self.shape[axis], 1), chunks[axis])
            times = max(min(most, BOX_BYTES // max(nbytes, 1)), 1)
            chunks[axis] *= times
            nbytes *= times
        return tuple(min(length, max(n, 1)) for length, n in zip(chunks, self.shape, strict=True))

    def boxes(self, axes: Sequence[int]) -> Iterator[dict[int, slice]]:
        """The places of boxes along some axes."""
        lengths = self.lengths()
        starts = (range(0, max(self.shape[axis], 1), lengths[axis]) for axis in axes)
        for each in product(*starts):
            yield {axis: slice(i, min(i + lengths[axis], self.shape[axis])) for axis, i in zip(axes, each, strict=True)}

    def threads(self, budget: int, itemsize: int) -> int:
        """Boxes that are reduced at one time.

        Raises
        ------
        BudgetError
            Where not one fits.
        """
        lengths, groups = self.lengths(), self.groups.count if self.groups else 1
        kept = math.prod(n for axis, n in enumerate(self.shape) if axis not in self.axes)
        part = 8 * STATES * math.prod(n for axis, n in enumerate(lengths) if axis not in self.axes)
        elements = math.prod(lengths)  # as they are stored; decoded, or copied for a group; masks; deviations
        box = (
            elements * (self.file.dtype.itemsize + itemsize + 2)
            + min(PIECE, elements) * 32
            + part * self._most_groups()
        )
        fixed = 8 * kept * groups + part * groups
        if fixed + box > budget:
            raise BudgetError(budget, fixed + box, "this reduction")
        return min(settings.local_cores(), (budget - fixed) // box)

    def _most_groups(self) -> int:
        """Groups of which one box has some, at most."""
        if self.groups is None:
            return 1
        codes, step = self.groups.codes, self.lengths()[self.groups.axis]
        return max((len(np.unique(codes[i : i + step])) for i in range(0, len(codes), step)), default=1)

    def result(self, budget: int, itemsize: int) -> np.ndarray:
        """Return what comes out, of values of so many bytes each."""
        threads = self.threads(budget, itemsize)
        kept = [axis for axis in range(len(self.shape)) if axis not in self.axes]
        made: Any = None
        with ThreadPoolExecutor(threads, "oocarrays-reduce") as pool:
            for here in self.boxes(kept):
                states = _in_order(pool, self._state, (here | there for there in self.boxes(self.axes)), threads + 1)
                value = self._finished(self._folded(states))
                if made is None:
                    made = np.empty(self._made_shape(value, here), value.dtype)
                made[self._place(here)] = value
        self.file.presence.check()
        warn_of_missing(self.meter, self.file.presence.name)
        return np.asarray(made)[()]

    def _made_shape(self, value: np.ndarray, here: dict[int, slice]) -> tuple[int, ...]:
        """The shape of the result, of which one part is known."""
        if self.groups is None and value.ndim != len(here):
            raise InputError(f"the last function of how= gives {value.ndim} axes; {len(here)} are not reduced")
        shape = [self.shape[axis] for axis in sorted(here)]
        if self.groups is not None:
            shape.insert(self.groups.axis, self.groups.count)
        return tuple(shape)

    def _place(self, here: dict[int, slice]) -> tuple[slice, ...]:
        places = [here[axis] for axis in sorted(here)]
        if self.groups is not None:
            places.insert(self.groups.axis, slice(None))
        return tuple(places)

    def _state(self, place: dict[int, slice]) -> Any:
        """Read a box and reduce it; of groups, what there is of each."""
        box = tuple(place[axis] for axis in range(len(self.shape)))
        block = read_section(self.file, tuple(range(s.start, s.stop) for s in box), meter=self.meter, threads=1)
        block = block if self.decode is None else self.decode(block)
        mask = None if self.mask is None else self.mask[box]
        if self.groups is None:
            return _called(self.steps.state, block, self.axes, mask)
        axis = self.groups.axis
        codes = self.groups.codes[box[axis]]
        found = {}
        for code in np.unique(codes[codes >= 0]).tolist():
            chosen: Any = (slice(None),) * axis + (_as_slice(np.flatnonzero(codes == code)),)
            found[code] = _called(self.steps.state, block[chosen], self.axes, None if mask is None else mask[chosen])
        return found

    def _folded(self, states: Iterator[Any]) -> Any:
        folded = next(states)
        for state in states:
            if self.groups is None:
                folded = _called(self.steps.fold, folded, state)
                continue
            for code, each in state.items():
                folded[code] = _called(self.steps.fold, folded[code], each) if code in folded else each
        return folded

    def _finished(self, state: Any) -> np.ndarray:
        if self.groups is None:
            return np.asarray(_called(self.steps.finish, state))
        if not self.groups.count:
            raise InputError("by= has no label: all are NaN, or there are none")
        values = [np.asarray(_called(self.steps.finish, state[code])) for code in range(self.groups.count)]
        return np.stack(values, axis=self.groups.axis)


def _as_slice(indices: np.ndarray) -> Any:
    """A slice where indices follow each other at equal distances: nothing is copied then."""
    if len(indices) == 1:
        return slice(int(indices[0]), int(indices[0]) + 1)
    step = int(indices[1] - indices[0])
    even = (np.diff(indices) == step).all()
    return slice(int(indices[0]), int(indices[-1]) + 1, step) if even else indices


def _called(function: Callable[..., Any], *given: Any) -> Any:
    """Call a function that a person may have given.

    Raises
    ------
    KernelError
        Where it fails.
    """
    try:
        return function(*given)
    except OocError:
        raise
    except Exception as error:
        raise KernelError(f"the reduction failed: {type(error).__name__}: {error}") from error


def _in_order(pool: ThreadPoolExecutor, work: Callable[[Any], Any], items: Iterator[Any], ahead: int) -> Iterator[Any]:
    """Yield the result of each item, in their order, so many of them under way at one time."""
    under_way: deque[Future[Any]] = deque()
    for item in items:
        under_way.append(pool.submit(work, item))
        if len(under_way) == ahead:
            yield under_way.popleft().result()
    while under_way:
        yield under_way.popleft().result()
