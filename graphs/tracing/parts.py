"""Parts of stored arrays that a task's object reads: a Zarr array, an array of this package, or an xarray lazy array.

    z[2:, ::3]                     TakenPart     array z, axes (range(2, n), range(0, m, 3))
    part[4:6, :]                   Taken    rows 6 to 7 of z, each third column

No data is read: the task's index is composed with the part that the object already covers.

getter(z, index)                       reads     of da.from_zarr, from_array and xarray
read_span(part, span)                  reads     of this package's lazy arrays
load_store_chunk(x, z, index, …)       writes    of da.store and xarray's to_zarr
make, begin or independent of a rank   reads     of collective reads: the rank's own part, read by any rank
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
from oocarrays.graphs.collective import read_tasks
from oocarrays.graphs.lazy.reads import PlainCopy, StoredPart, copy_tile, read_copy, read_group, read_span, tiles
from oocarrays.graphs.run.program import itself
from oocarrays.graphs.run.run import Run, call
from oocarrays.mapping.along import ascending
from oocarrays.mapping.selection import Selection, Taken, regular
from oocarrays.mapping.union import runs_of
from oocarrays.storage.files.array_file import ArrayFile

GETTERS = (getter, getter_nofancy, getter_inline, chunk_getitem, operator.getitem)
"""Functions that index their argument."""
HANDING_ON = (itself, ProhibitReuse._identity)
"""Functions that return their argument: of this package's graphs, and of Dask's `delayed` for collections."""
Find = Callable[[Any], Any]
"""Function from a key of the graph to its object, or `NOTHING`."""
NOTHING = object()
PLAIN = frozenset({int, float, str, bool, bytes, tuple, list, dict, slice, type(None), type, set, frozenset})
"""Types of arguments that are not arrays, excluded from the search."""


class TaskUse(NamedTuple):
    """One read or write by a task."""

    source: Any
    """Object that is read or written; the `Reading` of a collective read."""
    key: Any
    """Index; None if unknown; the rank of the part for a collective read."""
    writes: bool = False


class KnownParts:
    """Parts of stored arrays that objects cover; each object is examined once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, TakenPart | None]] = {}

    def part(self, source: Any) -> TakenPart | None:
        """Return an object's part of a stored array; None if it is not a stored array, and reads from none."""
        if type(source) in PLAIN:
            return None
        known = self._known.get(id(source))
        if known is None:
            self._known[id(source)] = known = (source, part_of(source))
        return known[1]

    def is_source(self, source: Any) -> bool:
        return self.part(source) is not None


def finder(nodes: Mapping[Any, Any]) -> Find:
    def find(key: Any) -> Any:
        node = nodes.get(key)
        while isinstance(node, Alias):
            node = nodes.get(node.target)
        return value(node, find)

    return find


def uses(node: Any, find: Find, is_source: Callable[[Any], bool], *, spare: bool = False) -> Iterator[TaskUse]:
    """Yield the reads and writes of a task.

    With ``spare``, also those that are needed only if a copy is lost; collective reads are then of their last tasks.
    """
    if not isinstance(node, Task):
        return
    if node.func is _execute_subgraph:
        yield from _inner(node, find, is_source, spare)
        return
    values = [known(arg, find) for arg in node.args]
    if spare and node.func is read_copy:
        yield TaskUse(values[0], tuple(slice(*each) for each in values[-1]))
    named = {name: known(arg, find) for name, arg in node.kwargs.items()}
    begin = (read_tasks.independent, read_tasks.make, read_tasks.begin)  # of a rank's part of a collective read
    end = (read_tasks.independent, read_tasks.filled, read_tasks.finish, read_tasks.end)  # after these it is read
    yield from _of_call(node.func, values, named, is_source, end if spare else begin)
    for arg in (*node.args, *node.kwargs.values()):
        if isinstance(arg, Task):
            yield from uses(arg, find, is_source, spare=spare)


def _inner(node: Task, find: Find, is_source: Callable[[Any], bool], spare: bool) -> Iterator[TaskUse]:
    """Yield the reads and writes of fused tasks."""
    inner: Mapping[Any, Any] = node.args[0]
    outer = dict(zip(node.args[2], node.args[3:], strict=False))

    def find_inside(key: Any) -> Any:
        if key in inner:
            return known(inner[key], find_inside)
        return known(outer[key], find) if key in outer else find(key)

    for each in inner.values():
        yield from uses(each, find_inside, is_source, spare=spare)


def value(node: Any, find: Find) -> Any:
    """Return the object that a node of a graph holds or passes on; `NOTHING` for another node."""
    return known(node, find) if isinstance(node, DataNode) or _hands_on(node) else NOTHING


def _hands_on(node: Any) -> bool:
    return isinstance(node, Task) and node.func in HANDING_ON


def known(arg: Any, find: Find) -> Any:
    """Return the value of an argument, if it is known before the graph runs."""
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
    function: Any, args: list[Any], named: dict[str, Any], is_source: Callable[[Any], bool], of_ranks: Sequence[Any]
) -> Iterator[TaskUse]:
    if function in (PlainCopy.make, read_copy, *HANDING_ON):  # normally, they do not read their array
        return
    if function is call and isinstance(args[0], Run):
        if args[1] in of_ranks:
            yield TaskUse(args[0].program, args[2][-1])
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
    """Yield the write of `dask.array.store` to an array."""
    if region:
        index = fuse_slice(region, index) if index else region
    yield TaskUse(out, index, writes=True)


Product = tuple[tuple[range, ...], ...]
"""Ranges along each axis; the section is their product."""


def as_ranges(taken: Taken) -> tuple[range, ...]:
    """Return indices along an axis as ranges: a single one if they are regular, else their contiguous runs."""
    if isinstance(taken, range):
        return (ascending(taken),)
    found = regular(taken)
    if isinstance(found, range):
        return (ascending(found),)
    return tuple(range(first, last) for first, last in runs_of(found).tolist())


@dataclass(frozen=True, eq=False, kw_only=True)
class TakenPart:
    """Part of a stored array that an object covers before it is indexed."""

    array: zarr.Array
    by: str
    """Reader: one of `oocarrays.plan.advice.access.BY`."""
    axes: tuple[range | np.ndarray, ...]
    """Indices along each axis of the array."""
    kept: tuple[int, ...]
    """Axes of the array that the object has, in order; the others have a single index."""
    points: tuple[np.ndarray, ...] | None = None
    """Coordinates along each axis, if elements are selected one by one; else None."""

    @classmethod
    def whole(cls, array: zarr.Array, by: str = "zarr") -> TakenPart:
        return cls(array=array, by=by, axes=tuple(map(range, array.shape)), kept=tuple(range(array.ndim)))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.points[0].shape if self.points else tuple(len(self.axes[axis]) for axis in self.kept)

    def take(self, key: Any) -> Iterator[Product]:
        """Yield the elements of the array at an index, as products of ranges."""
        if self.points is not None:
            places = [np.atleast_1d(each[key]).reshape(-1).tolist() for each in self.points]
            yield from (tuple((range(p, p + 1),) for p in point) for point in zip(*places, strict=True))
            return
        axes: list[Any] = list(self.axes)
        shape, entries = self.shape, tuple(e for e in _tuple(key) if e is not None)
        for axis, chosen in zip(self.kept, _plain(entries, shape) or Selection.of(entries, shape).axes, strict=True):
            axes[axis] = _of(axes[axis], chosen)
        if all(len(each) for each in axes):
            yield tuple(map(as_ranges, axes))


def _plain(key: Any, shape: Sequence[int]) -> list[range] | None:
    """Return the places of an index along each axis, if it consists of Dask's slices of a block."""
    if isinstance(key, tuple) and len(key) == len(shape) and all(map(_is_plain, key)):
        return [range(e.start, min(e.stop, n)) for e, n in zip(key, shape, strict=True)]
    return None


def _is_plain(entry: Any) -> bool:
    """Return whether an entry of an index is a slice as in Dask's blocks."""
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
    """Return an object's part of a stored array; None if it is not a stored array."""
    if isinstance(source, zarr.Array):
        return TakenPart.whole(source)
    if isinstance(source, StoredPart):
        kept = tuple(range(source.ndim))
        return TakenPart(array=source.file.zarr, by="oocarrays", axes=source.axes, kept=kept)
    if isinstance(source, ArrayFile):
        return TakenPart.whole(source.zarr, "oocarrays")
    if type(source).__module__.startswith("xarray."):
        return _xarray_part(source)
    opened = getattr(source, "zarr", None)  # an array of this package, from open_array
    if isinstance(opened, zarr.Array) and type(source).__module__.startswith("oocarrays."):
        return TakenPart.whole(opened, "oocarrays")
    return None


def _xarray_part(source: Any) -> TakenPart | None:
    """Return the part of a Zarr array covered by nested xarray lazy arrays."""
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
    if outer:
        taken = Selection.of(key, array.shape).axes
        kept = tuple(axis for axis, entry in enumerate(key) if not isinstance(entry, int | np.integer))
        axes = tuple(t if isinstance(e, slice) else np.asarray(e) for t, e in zip(taken, key, strict=True))
        axes = tuple(a if axis in kept else taken[axis] for axis, a in enumerate(axes))
        axes = tuple(ascending(axis) if isinstance(axis, range) else axis for axis in axes)
        return TakenPart(array=array, by="zarr", axes=axes, kept=kept)
    if any(isinstance(entry, slice) for entry in key):
        return None
    points = tuple(np.broadcast_arrays(*map(np.asarray, key)))
    return TakenPart(array=array, by="zarr", axes=(), kept=(), points=points)


def asked(array: zarr.Array, how: str, key: Any) -> Iterator[Product]:
    """Yield the elements of a selection by one of Zarr's own methods."""
    if how in ("basic", "orthogonal"):
        plain = _plain(key, array.shape)  # most reads: a read of a chunk takes less than a millisecond
        if plain is not None:
            yield from [tuple(zip(plain, strict=True))] if all(map(len, plain)) else ()
            return
        try:
            yield from TakenPart.whole(array).take(key)
        except SelectionError:
            return  # Zarr raises, too
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
    entries = []
    for entry, n, c in zip(_tuple(key), array.shape, array.chunks, strict=False):
        taken = Selection.of(entry, (-(-n // c),)).axes[0]
        entries.append(slice(int(taken[0]) * c, min((int(taken[-1]) + 1) * c, n)))
    return tuple(entries)
