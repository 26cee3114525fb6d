"""Arrays in files of another format: in one file, or in several joined along an axis.

    a.nc, b.nc, c.nc stored alike     chunk (3, 0) of the whole ─► file b, bytes 4016 … 9120        mapped
    packed, chunked or coded          chunk (3, 0) of the whole ─► rows of b, decoded and unpacked  assembled
    differently                                                    as b describes

Chunks that can be read in place are mapped; the codec name of assembled chunks says so. Each file is opened once, at
the first access to its arrays:

open_array("*.nc", …)     names, from the first file; the description of that array, from each file
open_group("*.nc")        the description of every array, from each file; arrays without the joined axis are
                          taken from the first file and compared with the others
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from oocarrays.errors import CorruptChunkError, InputError, UnsupportedError
from oocarrays.mapping.along import over_edges
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.section import Section
from oocarrays.plan.documents import Document
from oocarrays.storage.foreign.facts import ChunkTable, Facts, Format, by_rows, is_coordinate
from oocarrays.storage.foreign.files import Files
from oocarrays.storage.foreign.filters import codec_of
from oocarrays.storage.foreign.packing import Packing, agreed, told
from oocarrays.storage.local.cache import Cache

_looking = threading.RLock()


Variant = tuple[Facts, Packing | None]
"""Facts of an array in a file, ignoring its shape, and the unpacking of its values; None if all files pack alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignArray:
    """An array in one file or in several."""

    name: str
    """Path of the array in each file."""
    facts: Facts
    """Facts of the whole array."""
    axis: int
    """Axis along which files are joined."""
    bounds: tuple[int, ...]
    """Start of each file along that axis and end of the last, in elements."""
    variants: tuple[Variant, ...]
    """Description in each file; files that are alike share one."""
    made: bool
    """Whether chunks are assembled from reads; otherwise they are byte ranges of a file."""
    stacked: bool = False
    """Whether this axis is a new first one, of length 1 in each file."""

    @property
    def grid(self) -> ChunkGrid:
        return ChunkGrid.of(self.facts.shape, self.facts.chunks)

    def part_facts(self, part: int) -> Facts:
        (facts, _), shape = self.variants[part], list(self.facts.shape)
        if self.stacked or not shape:
            return facts
        shape[self.axis] = self.bounds[part + 1] - self.bounds[part]
        return replace(facts, shape=tuple(shape))

    def place(self, index: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        """Return the file number of a mapped chunk, and its index in that file."""
        if not index:
            return 0, index
        chunk = self.facts.chunks[self.axis]
        part = bisect_right(self.bounds, index[self.axis] * chunk) - 1
        part = min(part, len(self.bounds) - 2)
        if self.stacked:
            return part, index[1:]
        inside = index[self.axis] - self.bounds[part] // chunk
        return part, (*index[: self.axis], inside, *index[self.axis + 1 :])

    def parts(self, section: Section) -> Iterable[tuple[int, Section, Section]]:
        """Yield the files that overlap a section, with the overlap in the file and in the section."""
        if not section.shape:
            yield 0, section, section
            return
        axis, axes = self.axis, section.axes
        here, lower = tuple(range(len(each)) for each in axes), section.lower[axis]
        for part, _, out, _ in over_edges(self.bounds, lower, section.upper[axis]):
            rows, begin = range(out.start, out.stop), lower - self.bounds[part]
            own = () if self.stacked else (range(begin + out.start, begin + out.stop),)
            there = Section.of((*axes[:axis], *own, *axes[axis + 1 :]))
            yield part, there, Section.of((*here[:axis], rows, *here[axis + 1 :]))


def alone(name: str, facts: Facts) -> ForeignArray:
    return ForeignArray(
        name=name,
        facts=facts,
        axis=0,
        bounds=(0, facts.shape[0] if facts.shape else 1),
        variants=((facts, None),),
        made=facts.library is not None,
    )


def joined(name: str, all: Sequence[Facts], axis: int, path: Callable[[int], str], new: str = "") -> ForeignArray:
    """Return the array of several files joined along an axis; ``new`` is the name of an axis that they do not have."""
    shapes, bounds = [(1,) * bool(new) + each.shape for each in all], [0]
    first = shapes[0]
    for number, shape in enumerate(shapes):
        if (*first[:axis], *first[axis + 1 :], len(first)) != (*shape[:axis], *shape[axis + 1 :], len(shape)):
            raise UnsupportedError(
                f"{name or 'the array'} has shape {first} in {path(0)} and {shape} in {path(number)}: along "
                f"another axis than number {axis} files that are joined have the same length"
            )
        bounds.append(bounds[-1] + shape[axis])
    keys = [(*told(each), each.chunks, each.filters, each.library, each.order) for each in all]
    ways = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    firsts = [keys.index(key) for key in ways]
    parts, whole = [all[number] for number in firsts], all[0]
    packings: Sequence[Packing | None] = [None] * len(parts)
    if len({told(each) for each in parts}) > 1:
        dtype, packings, attributes = agreed(parts, [path(number) for number in firsts], name)
        fill = np.nan if np.dtype(dtype).kind == "f" and np.dtype(whole.dtype) != np.dtype(dtype) else whole.fill
        whole = replace(whole, dtype=dtype, attributes=attributes, native={}, fill=fill)
    variants = list(zip(parts, packings, strict=True))
    whole = _with_axis(whole, new) if new else whole
    shape = tuple(bounds[-1] if a == axis else n for a, n in enumerate(whole.shape))
    whole = replace(whole, shape=shape)
    made = len(ways) > 1 or whole.library is not None or any(bound % whole.chunks[axis] for bound in bounds[:-1])
    small = len(all) > 1 and len(shape) == 1 and whole.nbytes <= 2**24  # a coordinate, assembled as one chunk
    if made or small:
        whole = _made(whole, (max(shape[0], 1),) if small else whole.chunks, all[firsts[0]], len(ways) > 1)
    return ForeignArray(
        name=name,
        facts=whole,
        axis=axis,
        bounds=tuple(bounds),
        variants=tuple(variants[ways[key]] for key in keys),
        made=made or small,
        stacked=bool(new),
    )


def _with_axis(facts: Facts, name: str) -> Facts:
    return replace(
        facts,
        shape=(1, *facts.shape),
        chunks=(1, *facts.chunks),
        names=(name, *(facts.names or (None,) * len(facts.shape))),
        order=None if facts.order is None else (0, *(axis + 1 for axis in facts.order)),
    )


def _made(whole: Facts, chunks: tuple[int, ...], first: Facts, unpacked: bool) -> Facts:
    """Return the facts of an array with assembled chunks: plain elements in C order."""
    by = first.library or ("unpacked" if unpacked else "joined")
    dtype = whole.dtype
    if dtype != "O":
        native = np.dtype(dtype).newbyteorder("=")
        dtype = native if native.names else native.str
    return replace(whole, chunks=chunks, filters=(), order=None, library=by, dtype=dtype)


@dataclass(slots=True, kw_only=True)
class Contents:
    """Arrays and groups in some files."""

    files: Files
    """Source files."""
    format: Format
    """Format of the files."""
    names: tuple[str, ...]
    """Paths of the arrays."""
    groups: dict[str, Document]
    """Attributes of the groups, by path."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Reasons why arrays are left out, by path."""
    dim: str | int | None = None
    """Name or number of the axis along which files are joined; None for a single file."""
    stacked: frozenset[str] = frozenset()
    """Paths of the arrays without this axis, which receive it as a new first one."""
    known: dict[str, ForeignArray] = field(default_factory=dict)
    """Arrays examined so far, by path."""
    tables: Cache[tuple[str, int], ChunkTable] = field(default_factory=lambda: Cache(4096))
    """Locations of chunks by path and number of the file, in this process: at most 4096."""

    def array(self, name: str) -> ForeignArray:
        """Return an array; the first access examines all files."""
        if name not in self.known:
            self._examine([name])
        return self.known[name]

    def prepare(self, inner: str) -> None:
        """Examine the arrays at a path of several files at once, because many files take seconds."""
        if self.dim is not None:
            self._examine(name for name in self.names if name == inner or not inner or name.startswith(f"{inner}/"))

    def _examine(self, names: Iterable[str]) -> None:
        """Look at several arrays, opening each file once for all of them."""
        with _looking:
            left = tuple(name for name in names if name not in self.known)
            each = zip(left, self._first(left), self._facts(left), strict=True)
            self.known |= {name: self._looked_at(name, first, all) for name, first, all in each}

    def _first(self, names: tuple[str, ...]) -> list[Facts]:
        """Return all facts of some arrays in the first file."""
        return self.format.facts(self.files.readable(0), names) if names else []

    def _facts(self, names: tuple[str, ...]) -> list[list[Facts]]:
        """Return the brief facts of some arrays in each file; none of a single file that is not joined."""
        if not names or (self.dim is None and len(self.files.found) == 1):
            return [[] for _ in names]
        look, numbers = self.format.facts, range(len(self.files.found))
        return list(map(list, zip(*(look(self.files.readable(n), names, brief=True) for n in numbers), strict=True)))

    def _looked_at(self, name: str, first: Facts, all: list[Facts]) -> ForeignArray:
        if self.dim is None:
            return alone(name, first)
        new = str(self.dim) if name in self.stacked else ""
        axis = 0 if new else self._axis(first)
        if axis is None:
            self._check_same(name, all)
            return alone(name, first)
        return joined(name, [replace(first, encoding={}), *all[1:]], axis, self.files.path, new)

    def _axis(self, facts: Facts) -> int | None:
        if isinstance(self.dim, int):
            return self.dim if self.dim < len(facts.shape) else None
        names = facts.names or ()
        return names.index(self.dim) if self.dim in names else None

    def _check_same(self, name: str, all: list[Facts]) -> None:
        """Raise if an unjoined array differs between files."""
        other = self._first_unlike(name, all)
        if other is None:
            return
        paths = self.files.path(0), self.files.path(other)
        if (all[other].shape, all[other].dtype) != (all[0].shape, all[0].dtype):
            differ = f"shape {all[0].shape} in {paths[0]} and {all[other].shape} in {paths[1]}"
        else:
            differ = f"other values in {paths[1]} than in {paths[0]}"
        raise UnsupportedError(f"{name} has {differ}, and no axis {self.dim} along which they are joined")

    def _first_unlike(self, name: str, all: list[Facts]) -> int | None:
        """Return the first file in which an array differs from the first; large ones are compared at both ends only."""
        said, whole = (all[0].shape, *told(all[0])), Section((0,) * len(all[0].shape), all[0].shape)
        parts = [whole]
        if all[0].nbytes > 2**22:  # more than a coordinate
            (rows, *_), lower, upper = all[0].shape, whole.lower[1:], whole.upper[1:]
            parts = [Section((0, *lower), (1, *upper)), Section((rows - 1, *lower), (rows, *upper))]
        first = [self.elements(0, name, all[0], part) for part in parts]
        for number, each in enumerate(all):
            there = (self.elements(number, name, each, part) for part in parts)
            if number and ((each.shape, *told(each)) != said or not all_equal(first, there)):
                return number
        return None

    def join(self, dim: str | int | None) -> None:
        """Set the axis along which files are joined; default: unlimited, or of the only coordinate that differs."""
        if dim is None and len(self.files.found) == 1:
            return
        facts = dict(zip(self.names, self._first(self.names), strict=True))
        self.dim = self._common_axis(facts) if dim is None else dim
        if isinstance(self.dim, str):
            if not any(self.dim in (each.names or ()) for each in facts.values()):
                self.stacked = frozenset(name for name, each in facts.items() if not is_coordinate(name, each))
            return
        count = max((len(each.shape) for each in facts.values()), default=0)
        if self.dim not in range(count):
            raise InputError(
                f"concat_dim={self.dim} is not among the {count} axes of {self.files.path(0)}, numbered from 0; a new "
                "name, such as 'run', stacks files along a new first axis"
            )

    def _common_axis(self, facts: dict[str, Facts]) -> str:
        axes = sorted(set().union(*(each.endless for each in facts.values())))
        if len(axes) != 1:
            coordinates = tuple(name for name, each in facts.items() if is_coordinate(name, each))
            each = zip(coordinates, self._facts(coordinates), strict=True)
            axes = sorted({name.rpartition("/")[2] for name, all in each if self._first_unlike(name, all) is not None})
        if len(axes) != 1:
            several = f" ({', '.join(axes)} differ)" if axes else ""
            raise InputError(
                f"{len(self.files.found)} files, {self.files.path(0)} among them, have no single axis along which they "
                f"are joined{several}; name one of theirs, or a new one: open_files(…, concat_dim='time'), "
                "--concat-dim time"
            )
        return axes[0]

    def section(self, array: ForeignArray, section: Section) -> np.ndarray:
        """Return a section of an array with assembled chunks, unpacked."""
        dtype: Any = object if array.facts.dtype == "O" else np.dtype(array.facts.dtype)
        out = np.empty(section.shape, dtype)
        for part, there, here in array.parts(section):
            stored, packing = self.elements(part, array.name, array.part_facts(part), there), array.variants[part][1]
            out[here.slices] = stored if packing is None else packing.unpacked(stored, dtype)
        return out

    def elements(self, part: int, name: str, facts: Facts, section: Section) -> np.ndarray:
        """Read stored elements of one file."""
        if facts.library is not None:
            return self.format.read(self.files.readable(part), name, section.slices)
        table, grid = self.table(name, part), ChunkGrid.of(facts.shape, facts.chunks)
        out = np.empty(section.shape, facts.dtype)
        for index, place, inside in grid.placed(section.axes):
            out[place] = self._chunk(table, part, index, facts)[inside]
        return out

    def table(self, name: str, part: int) -> ChunkTable:
        found = self.tables.get((name, part))
        if found is None:
            facts = self.format.facts(self.files.readable(part), (name,), brief=True, located=True)[0]
            found = by_rows(facts) if facts.table is None else facts.table
            self.tables.keep((name, part), found)
        return found

    def _chunk(self, table: ChunkTable, part: int, index: tuple[int, ...], facts: Facts) -> np.ndarray:
        found, dtype = table.place(index), np.dtype(facts.dtype)
        if found is None:
            return np.full(facts.chunks, 0 if facts.fill is None else facts.fill, dtype)
        data, codec = self.files.read(part, found[0], sum(found)), codec_of(facts.filters, None)
        out = np.empty(math.prod(facts.chunks) * dtype.itemsize, np.uint8)
        if codec is None:
            out[: len(data)], out[len(data) :] = data, 0
        else:
            try:
                codec.decode(data, out=out)
            except (RuntimeError, ValueError, OSError, EOFError) as error:
                raise CorruptChunkError(f"a chunk in {self.files.path(part)} cannot be decoded: {error}") from error
        order = facts.order or tuple(range(len(facts.chunks)))
        elements: np.ndarray = out.view(dtype).reshape([facts.chunks[axis] for axis in order])
        return elements.transpose(tuple(np.argsort(order)))


def all_equal(some: Iterable[np.ndarray], others: Iterable[np.ndarray]) -> bool:
    return all(bool(((a == b) | ((a != a) & (b != b))).all()) for a, b in zip(some, others, strict=True))
