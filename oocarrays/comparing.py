"""Comparison of two arrays, or two groups, by element, for any chunks and codecs, within a memory budget.

a   ├───┼───┼───┼───┤ ┐
                      ├─ slab by slab ─► its differences ─► all differences
b   ├─┼─┼─┼─┼─┼─┼─┼─┤ ┘   a thread each
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any

import numpy as np
import zarr
from zarr.storage import MemoryStore

from oocarrays.arrays.copying import Copier
from oocarrays.arrays.groups import OutOfCoreGroup
from oocarrays.errors import BudgetError, InputError
from oocarrays.graphs import settings
from oocarrays.graphs.events import warn_of_missing
from oocarrays.jobs.stored import scratch_copy
from oocarrays.kernels.differences import HELD, Differences, Tolerance, differences
from oocarrays.mapping.given import flag
from oocarrays.mapping.grid import Stored
from oocarrays.options.asked import scratch_folder
from oocarrays.options.given import Resources, means_of, verb
from oocarrays.plan.slabs.cuts import plan_slabs
from oocarrays.plan.slabs.options import SlabOptions
from oocarrays.plan.slabs.plan import SlabPlan
from oocarrays.show import report
from oocarrays.show.notebook import rows_html
from oocarrays.storage.files import array_file, group_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.documents import holds_group
from oocarrays.storage.files.places import StoreLike, location
from oocarrays.storage.journal.versions import unchanged
from oocarrays.storage.meter import new_meter
from oocarrays.storage.sections.windows import Windows
from oocarrays.stored.array import StoredArray, missing_of, placer


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Differences of two arrays, or of two groups; true if there are none."""

    names: tuple[str, str]
    """Names of the two sides, as given by the user."""
    shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    """Shapes of two arrays."""
    dtypes: tuple[str, str] | None = None
    """Types of two arrays: elements of different types are equal if their values are."""
    differences: Differences = field(default_factory=Differences)
    """Elements of two arrays of one shape."""
    attributes: tuple[str, ...] = ()
    """Attributes with different values, or of one side only: of groups, and of their arrays."""
    only: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """For two groups: arrays of the first only, and arrays of the second only."""
    arrays: Mapping[str, Comparison] = field(default_factory=dict)
    """For two groups: common arrays, by their paths."""

    def __bool__(self) -> bool:
        alike = self.shapes is None or self.shapes[0] == self.shapes[1]
        here = alike and not self.differences.count and not self.attributes and not any(self.only)
        return here and all(self.arrays.values())

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        first, *more = self._lines()
        others = f", and {len(more)} more lines in its text" if more else ""
        return f"<oocarrays.Comparison of {' and '.join(self.names)}: {first}{others}>"

    def _repr_html_(self) -> str:
        rows = [tuple(line.rpartition(": ")[::2]) for line in self._lines()]
        return rows_html(rows, title=f"oocarrays.Comparison of {' and '.join(self.names)}")

    def _lines(self) -> Iterable[str]:
        for name, each in self.arrays.items():
            yield from (f"{name}: {line}" for line in each._lines())
        for which, names in zip(self.names, self.only, strict=True):
            if names:
                yield f"only in {which}: {', '.join(names)}"
        if self.attributes:
            yield f"attributes differ: {', '.join(self.attributes)}"
        if self.shapes is not None:
            yield self._elements()
        elif self:
            yield "equal"

    def _elements(self) -> str:
        assert self.shapes is not None
        if self.shapes[0] != self.shapes[1]:
            return f"shapes differ: {report.shape_text(self.shapes[0])} and {report.shape_text(self.shapes[1])}"
        said = "" if self.dtypes is None or self.dtypes[0] == self.dtypes[1] else f", of {' and '.join(self.dtypes)}"
        found, size = self.differences, int(np.prod(self.shapes[0], dtype=object))
        if not found.count:
            return f"equal{said}"
        a, b = found.values
        far = f", at most {found.largest:g} apart" if found.largest == found.largest else ""
        return f"{found.count} of {size} elements differ{said}{far}; the first at {found.first}: {a!r} and {b!r}"


Compared = Callable[[Sequence[ArrayFile]], Comparison]


@verb(resources=("scratch",), run=("memory", "storage_options"))
def compare(
    a: StoredArray | OutOfCoreGroup | zarr.Array[Any] | zarr.Group | np.ndarray | StoreLike,
    b: StoredArray | OutOfCoreGroup | zarr.Array[Any] | zarr.Group | np.ndarray | StoreLike,
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
    equal_nan: bool = True,
    memory: int | float | str | None = None,
    resources: Resources | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Comparison:
    """Compare two arrays element by element, or two groups array by array with their attributes.

    Reads each slab of both once. If the chunks of coded arrays cross so that the budget would require decoding many of
    them repeatedly, one is first rechunked into the other's chunks in scratch, provided that this takes less time.

    Parameters
    ----------
    a, b : OutOfCoreArray, OutOfCoreGroup, zarr.Array, zarr.Group, path, URL or store
        Two arrays, of any chunks, codecs and formats, or two groups.
    rtol, atol : float
        Elements are equal if ``|a - b| <= atol + rtol * |b|``, as in numpy.
    equal_nan : bool
        Whether NaN is equal to NaN in the same place.
    memory : int or str
        Budget of this process in bytes; by default as in `rechunk`.
    resources : Resources
        ``scratch``, the folder for the rechunked array; by default the setting, or the system's folder for temporary
        files. It needs room for one decoded array, and its bytes as they are rechunked; other comparisons do not use
        it.
    storage_options : mapping
        Options for opening URLs.

    Returns
    -------
    Comparison
        True if they are equal; as text, it has the number of different elements, the largest difference, and the first
        one.

    Raises
    ------
    InputError
        If one is an array and the other a group; `BudgetError` if not one slab of both fits.

    Examples
    --------
    >>> import numpy as np, zarr
    >>> a = zarr.create_array({}, data=np.arange(12.0).reshape(3, 4), chunks=(1, 4))
    >>> b = zarr.create_array({}, data=np.arange(12.0).reshape(3, 4), chunks=(3, 1))
    >>> bool(compare(a, b))
    True
    >>> b[1, 2] = 6.5
    >>> print(compare(a, b))
    1 of 12 elements differ, at most 0.5 apart; the first at (1, 2): 6.0 and 6.5
    """
    near = Tolerance(
        rtol=_not_negative(rtol, "rtol"), atol=_not_negative(atol, "atol"), equal_nan=flag(equal_nan, "equal_nan")
    )
    means = means_of(resources, compare, memory=memory, storage_options=storage_options)
    compared = partial(_arrays, tolerance=near, budget=settings.budget(means.memory), scratch=means.scratch)
    place = placer(means.storage_options, a, b)
    kinds = [_is_group(each, place) for each in (a, b)]
    if kinds[0] != kinds[1]:
        raise InputError(f"of {a!r} and {b!r} one is a group and the other an array: name an array in the group")
    if kinds[0]:
        first, second = (x.zarr if isinstance(x, OutOfCoreGroup) else group_file.open_group(place(x)) for x in (a, b))
        return _groups(first, second, compared)
    opened = [(array_file.open_array(place(each)), missing_of(each)) for each in (a, b)]
    return compared([array_file.describe_source(*each) for each in opened])


def _not_negative(value: Any, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if not number >= 0:
        raise InputError(f"{name}={value!r} is not a number of at least 0")
    return number


def _is_group(given: Any, place: Any) -> bool:
    return isinstance(given, OutOfCoreGroup | zarr.Group) or (
        not isinstance(given, StoredArray | zarr.Array) and holds_group(place(given))
    )


def _groups(a: zarr.Group, b: zarr.Group, compared: Compared) -> Comparison:
    files = [group_file.describe_group(group).arrays for group in (a, b)]
    mine, theirs = ({name for name in here if name not in there} for here, there in (files, files[::-1]))
    both = [name for name in files[0] if name in files[1]]
    return Comparison(
        names=(location(a), location(b)),
        attributes=_unlike(a.attrs.asdict(), b.attrs.asdict()),
        only=(tuple(sorted(mine)), tuple(sorted(theirs))),
        arrays={name: _members([each[name] for each in files], compared) for name in both},
    )


def _members(arrays: Sequence[zarr.Array], compared: Compared) -> Comparison:
    """Compare two arrays of groups with their attributes; those without a fixed item size as Zarr reads them."""
    attributes = _unlike(*(array.attrs.asdict() for array in arrays))
    if any(array.dtype.kind in "OT" for array in arrays):
        return replace(_by_zarr(arrays), attributes=attributes)
    files = [array_file.describe_source(array, missing_of(array)) for array in arrays]
    return replace(compared(files), attributes=attributes)


def _unlike(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names with different values in both, compared as text, so that NaN equals NaN."""
    missing = object()
    names = {*a, *b}
    return tuple(sorted(name for name in names if repr(a.get(name, missing)) != repr(b.get(name, missing))))


def _by_zarr(arrays: Sequence[zarr.Array]) -> Comparison:
    a, b = arrays
    found = Differences()
    if a.shape == b.shape:
        step = max(a.chunks[0] if a.ndim else 1, 1)
        for start in range(0, a.shape[0] if a.ndim else 1, step):
            index = (slice(start, start + step),) if a.ndim else ()
            x, y = (np.asarray(each[index]) for each in arrays)
            unlike = np.argwhere(x != y)
            if len(unlike):
                first = tuple(int(i) for i in unlike[0])
                place = (first[0] + start, *first[1:]) if a.ndim else ()
                found += Differences(count=len(unlike), first=place, values=(x[first], y[first]), largest=np.nan)
    return _comparison(arrays, found)


def _comparison(arrays: Sequence[zarr.Array], found: Differences) -> Comparison:
    a, b = arrays
    return Comparison(
        names=(location(a), location(b)),
        shapes=(a.shape, b.shape),
        dtypes=(str(a.dtype), str(b.dtype)),
        differences=found,
    )


def _arrays(files: Sequence[ArrayFile], tolerance: Tolerance, budget: int, scratch: Any) -> Comparison:
    arrays = [file.zarr for file in files]
    if arrays[0].shape != arrays[1].shape or not np.prod(arrays[0].shape, dtype=object):
        return _comparison(arrays, Differences())
    if not arrays[0].shape:
        x, y = (np.asarray(array[()]).reshape(1) for array in arrays)
        found = differences(x, y, (0,), tolerance)
        return _comparison(arrays, replace(found, first=None if found.first is None else ()))
    place = scratch_folder(scratch, MemoryStore())
    copier = Copier(files=files, planned=_planned, copy=scratch_copy, place=place)
    with unchanged(files):
        best = copier.best(_chunkings(files), budget)
        if isinstance(best, SlabPlan):
            return _comparison(arrays, _elements(files, best, tolerance))
        with best.made() as copied:
            return _comparison(arrays, _elements(copied, best.plan, tolerance))


def _chunkings(files: Sequence[ArrayFile]) -> list[dict[int, tuple[int, ...]]]:
    """Return either array in the chunks of the other, if these differ and one is coded."""
    chunks = [file.stored.grid.chunks for file in files]
    if not any(file.stored.coded for file in files) or chunks[0] == chunks[1]:
        return []
    return [{0: chunks[1]}, {1: chunks[0]}]


def _planned(stored: Sequence[Stored], budget: int) -> SlabPlan:
    asked = SlabOptions(
        budget=budget,
        ranks=settings.local_cores(),
        prefetch=0,
        workspace=HELD,
        past_cache_above=settings.past_cache_above(),
    )
    try:
        return plan_slabs(stored, (), asked)
    except BudgetError as error:
        raise BudgetError(error.budget, error.least, "comparing two arrays") from None


def _elements(files: Sequence[ArrayFile], plan: SlabPlan, tolerance: Tolerance) -> Differences:
    """Compare all slabs, those of each rank in its own thread."""
    meter = new_meter()
    windows = Windows(plan, files, meter)

    def of_rank(rank: int) -> Differences:
        found = Differences()
        for slab in plan.slabs(rank):
            a, b = windows.read(slab)
            found += differences(a, b, plan.core(slab).lower, tolerance)
            del a, b  # before the next ones are read
        return found

    with ThreadPoolExecutor(plan.ranks, "oocarrays-compare") as pool:
        found = reduce(Differences.__add__, pool.map(of_rank, range(plan.ranks)), Differences())
    for file in files:
        file.presence.check()
    warn_of_missing(meter, files[0].presence.name)
    return found
