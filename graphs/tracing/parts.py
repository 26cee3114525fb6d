"""What an object that tasks read from takes of a stored array: a Zarr array, an array of ours, or xarray's lazy one.

    z[2:, ::3]                     TakenPart     array z, axes (range(2, n), range(0, m, 3))
    part[4:6, :]                   Taken    rows 6 to 7 of z, each third column

Nothing is read: the index that a task has is composed with what the object has taken already.

getter(z, index)                       reads     as da.from_zarr, from_array and xarray have it
read_span(part, span)                  reads     as our lazy arrays have it
load_store_chunk(x, z, index, …)       writes    as da.store and xarray's to_zarr have it
make, begin or independent of a rank   reads     as collective reads have it: what the rank wants, whoever reads it
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import zarr
from dask._expr import ProhibitReuse
from dask._task_spec import _execute_subgraph
from dask.array.chunk import getitem as chunk_getitem
from dask.array.core import getter, getter_inline, getter_nofancy, load_store_chunk
from dask.array.optimization import fuse_slice
from dask.task_spec import Alias, DataNode, GraphNode, Task, TaskRef

from oocarrays.errors import SelectionError
from oocarrays.graphs.collective.read_tasks import FIRST, Reading
from oocarrays.graphs.lazy.reads import PlainCopy, StoredPart, copy_tile, read_copy, read_group, read_span, tiles
from oocarrays.graphs.run.builder import itself
from oocarrays.mapping import orientation
from oocarrays.mapping.selection import Selection, Taken
from oocarrays.plan.collective.wanted import regular
from oocarrays.storage.files.array_file import ArrayFile

GETTERS = (getter, getter_nofancy, getter_inline, chunk_getitem, operator.getitem)
"""Functions that take an index of what they are given."""
HANDING_ON = (itself, ProhibitReuse._identity)
"""Functions that give what they are given: of our graphs, and of what Dask makes of collections in `delayed`."""
ELSEWHERE = (PlainCopy.make, read_copy, *HANDING_ON)
"""Functions that are given an array and read nothing of it where all goes well."""
READERS = frozenset({*GETTERS, read_span, copy_tile, read_group, load_store_chunk})
"""Functions whose arguments tell what they read or write."""
Find = Callable[[Any], Any]
"""The object that a key of the graph stands for, or `NOTHING`."""
NOTHING = object()


class TaskUse(NamedTuple):
    """One read or write that a task does."""

    source: Any
    """What is read from or written to; of a collective read, the read."""
    key: Any
    """The index that is taken; None where that cannot be told; of a collective read the rank that wants its part."""
    writes: bool = False
    """Whether it is written."""


def uses(node: Any, find: Find, is_source: Callable[[Any], bool]) -> Iterator[TaskUse]:
    if not isinstance(node, Task):
        return
    if node.func is _execute_subgraph:
        yield from _inner(node, find, is_source)
        return
    values = [known(arg, find) for arg in node.args]
    named = {name: known(arg, find) for name, arg in node.kwargs.items()}
    yield from _of_call(node.func, values, named, is_source)
    for arg in (*node.args, *node.kwargs.values()):
        if isinstance(arg, Task):
            yield from uses(arg, find, is_source)


def _inner(node: Task, find: Find, is_source: Callable[[Any], bool]) -> Iterator[TaskUse]:
    """Yield the reads and writes of tasks that were made one."""
    inner: Mapping[Any, Any] = node.args[0]
    outer = dict(zip(node.args[2], node.args[3:], strict=False))

    def find_inside(key: Any) -> Any:
        if key in inner:
            return known(inner[key], find_inside)
        return known(outer[key], find) if key in outer else find(key)

    for each in inner.values():
        yield from uses(each, find_inside, is_source)


def value(node: Any, find: Find) -> Any:
    """Return the object that a node of a graph holds, or hands on as it is; `NOTHING` of any other."""
    return known(node, find) if isinstance(node, DataNode) or _hands_on(node) else NOTHING


def _hands_on(node: Any) -> bool:
    """Whether a task gives what it is given."""
    return isinstance(node, Task) and node.func in HANDING_ON


def known(arg: Any, find: Find) -> Any:
    """Return what an argument is, where that is known before anything runs."""
    if isinstance(arg, DataNode):
        return arg.value
    if isinstance(arg, Alias):
        return find(arg.target)
    if isinstance(arg, TaskRef):
        return find(arg.key)
    if _hands_on(arg):
        return known(arg.args[0], find)
    if isinstance(arg, GraphNode):
        return arg({}) if not arg.dependencies and type(arg) is not Task else NOTHING
    return arg


def _of_call(
    function: Any, args: list[Any], named: dict[str, Any], is_source: Callable[[Any], bool]
) -> Iterator[TaskUse]:
    if function in ELSEWHERE:
        return
    if function is Reading.task and isinstance(args[0], Reading):
        if args[1] in FIRST:
            yield TaskUse(args[0], args[2][-1])
        return
    if function is load_store_chunk:
        yield from _stored(*args, **named)
        return
    given = [each for each in (*args, *named.values()) if is_source(each)]
    if not given:
        return
    if function in GETTERS and is_source(args[0]):
        yield TaskUse(args[0], args[1])
    elif function is read_span:
        yield TaskUse(args[0], tuple(slice(*each) for each in args[1]))
    elif function is copy_tile:
        yield TaskUse(args[0], tuple(slice(*each) for each in args[2]))
    elif function is read_group:
        part, edges, tile = args
        for span in tiles(part.axes, [(each[0], each[-1]) for each in edges], tile):
            yield TaskUse(part, tuple(slice(*each) for each in span))
    else:
        yield from (TaskUse(each, None) for each in given)


def _stored(x: Any, out: Any, index: Any, region: Any, *_: Any, **__: Any) -> Iterator[TaskUse]:
    """Yield what `dask.array.store` writes to an array."""
    if region:
        index = fuse_slice(region, index) if index else region
    yield TaskUse(out, index, writes=True)


Product = tuple[tuple[range, ...], ...]
"""Ranges along each axis: what is taken is their product."""


def as_ranges(taken: Taken) -> tuple[range, ...]:
    """Return what is taken along an axis as ranges: one, where it has a rule, or else its contiguous runs."""
    if isinstance(taken, range):
        return (orientation.ascending(taken),)
    found = regular(taken)
    if isinstance(found, range):
        return (orientation.ascending(found),)
    ends = np.flatnonzero(np.diff(found, append=found[-1] + 2) > 1)
    first = np.r_[0, ends[:-1] + 1]
    return tuple(range(int(found[a]), int(found[b]) + 1) for a, b in zip(first, ends, strict=True))


@dataclass(frozen=True, eq=False, kw_only=True)
class TakenPart:
    """Part that an object has taken of a stored array before it is asked for any of it."""

    array: zarr.Array
    """The stored array."""
    by: str
    """Who reads it: one of `oocarrays.plan.advice.access.BY`."""
    axes: tuple[range | np.ndarray, ...]
    """What is taken along each axis of the array."""
    kept: tuple[int, ...]
    """Axes of the array that the object has, in order; of the others one element is taken."""
    points: tuple[np.ndarray, ...] | None = None
    """Where elements are taken one by one: their places along each axis."""

    @classmethod
    def whole(cls, array: zarr.Array, by: str = "zarr") -> TakenPart:
        return cls(array=array, by=by, axes=tuple(map(range, array.shape)), kept=tuple(range(array.ndim)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis that the object has."""
        return self.points[0].shape if self.points else tuple(len(self.axes[axis]) for axis in self.kept)

    def take(self, key: Any) -> Iterator[Product]:
        """Yield what an index takes of the array, as products of ranges."""
        if self.points is not None:
            places = [np.atleast_1d(each[key]).reshape(-1).tolist() for each in self.points]
            yield from (tuple((range(p, p + 1),) for p in point) for point in zip(*places, strict=True))
            return
        axes: list[Any] = list(self.axes)
        taken = self._selected(key)
        for axis, chosen in zip(self.kept, taken, strict=True):
            axes[axis] = _of(axes[axis], chosen)
        if all(len(each) for each in axes):
            yield tuple(map(as_ranges, axes))

    def _selected(self, key: Any) -> Sequence[Taken]:
        """Return the places that an index takes along each axis that the object has."""
        shape, entries = self.shape, tuple(e for e in (key if isinstance(key, tuple) else (key,)) if e is not None)
        return _plain(entries, shape) or Selection.of(entries, shape).axes


def _plain(key: Any, shape: Sequence[int]) -> list[range] | None:
    """Return what an index takes along each axis, where it is one of slices as Dask has them for a block."""
    if isinstance(key, tuple) and len(key) == len(shape) and all(map(_is_plain, key)):
        return [range(e.start, min(e.stop, n)) for e, n in zip(key, shape, strict=True)]
    return None


def _is_plain(entry: Any) -> bool:
    """Whether an entry of an index is a slice as Dask has it for a block."""
    if type(entry) is not slice or entry.step not in (None, 1):
        return False
    return type(entry.start) is int and type(entry.stop) is int and 0 <= entry.start <= entry.stop


def _of(axis: range | np.ndarray, places: Taken) -> Taken:
    if isinstance(axis, np.ndarray):
        return np.sort(axis[np.asarray(places, np.int64)])
    if isinstance(places, range):
        return axis[places.start : places.stop : places.step]
    return np.asarray(axis.start + places * axis.step)


def part_of(source: Any) -> TakenPart | None:
    """Return what an object that tasks read from has taken of a stored array; None where it is none."""
    if isinstance(source, zarr.Array):
        return TakenPart.whole(source)
    if isinstance(source, StoredPart):
        kept = tuple(range(source.ndim))
        return TakenPart(array=source.file.zarr, by="oocarrays", axes=source.axes, kept=kept)
    if isinstance(source, ArrayFile):
        return TakenPart.whole(source.zarr, "oocarrays")
    if type(source).__module__.startswith("xarray."):
        return _xarray_part(source)
    opened = getattr(source, "zarr", None)  # an array of ours, as open_array gives it
    if isinstance(opened, zarr.Array) and type(source).__module__.startswith("oocarrays."):
        return TakenPart.whole(opened, "oocarrays")
    return None


def _xarray_part(source: Any) -> TakenPart | None:
    """Return what xarray's lazy arrays, one around the other, have taken of a Zarr array."""
    from xarray.core.indexing import LazilyIndexedArray

    while not isinstance(getattr(source, "_array", None), zarr.Array):
        inner: Any = getattr(source, "array", None)
        lazy = type(source).__name__ in ("LazilyIndexedArray", "LazilyVectorizedIndexedArray")
        if lazy and isinstance(getattr(inner, "_array", None), zarr.Array):
            return _indexed(inner._array, source.key.tuple, isinstance(source, LazilyIndexedArray))
        if inner is None or not type(inner).__module__.startswith("xarray."):
            return None
        source = inner
    return TakenPart.whole(source._array)


def _indexed(array: zarr.Array, key: tuple[Any, ...], outer: bool) -> TakenPart | None:
    """Return what one of xarray's indices takes of an array."""
    if outer:
        taken = Selection.of(key, array.shape).axes
        kept = tuple(axis for axis, entry in enumerate(key) if not isinstance(entry, int | np.integer))
        axes = tuple(t if isinstance(e, slice) else np.asarray(e) for t, e in zip(taken, key, strict=True))
        axes = tuple(a if axis in kept else taken[axis] for axis, a in enumerate(axes))
        return TakenPart(array=array, by="zarr", axes=_forwards(axes), kept=kept)
    if any(isinstance(entry, slice) for entry in key):
        return None
    points = tuple(np.broadcast_arrays(*map(np.asarray, key)))
    return TakenPart(array=array, by="zarr", axes=(), kept=(), points=points)


def _forwards(axes: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(orientation.ascending(axis) if isinstance(axis, range) else axis for axis in axes)


def asked(array: zarr.Array, how: str, key: Any) -> Iterator[Product]:
    """Yield what one of Zarr's own ways of reading or writing takes of an array."""
    if how in ("basic", "orthogonal"):
        plain = _plain(key, array.shape)  # of most reads: those of a chunk take less than a millisecond
        if plain is not None:
            yield from [tuple(zip(plain, strict=True))] if all(map(len, plain)) else ()
            return
        try:
            yield from TakenPart.whole(array).take(key)
        except SelectionError:
            return  # Zarr refuses it, too
    elif how == "block":
        yield from asked(array, "basic", _of_blocks(array, key))
    else:
        places = np.nonzero(np.asarray(key)) if how == "mask" else np.broadcast_arrays(*map(np.asarray, _tuple(key)))
        flat = [(np.asarray(p).reshape(-1) % max(n, 1)).tolist() for p, n in zip(places, array.shape, strict=False)]
        if len(flat) == array.ndim:
            yield from (tuple((range(p, p + 1),) for p in point) for point in zip(*flat, strict=True))


def _tuple(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _of_blocks(array: zarr.Array, key: Any) -> tuple[Any, ...]:
    """Return the elements of some blocks, as an index."""
    entries = []
    for entry, n, c in zip(_tuple(key), array.shape, array.chunks, strict=False):
        taken = Selection.of(entry, (-(-n // c),)).axes[0]
        entries.append(slice(int(taken[0]) * c, min((int(taken[-1]) + 1) * c, n)))
    return tuple(entries)
