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

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from oocarrays.errors import UnsupportedError
from oocarrays.mapping.along import over_edges
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.section import Section
from oocarrays.plan.documents import Document
from oocarrays.storage.foreign.facts import Facts, Format, Reader, Stacked
from oocarrays.storage.foreign.files import Files
from oocarrays.storage.foreign.packing import PACKED, Packing, agreed, told

_looking = threading.RLock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Description of an array shared by some of the files."""

    facts: Facts
    """Facts from one of these files; its shape is ignored."""
    packing: Packing | None = None
    """Unpacking of its values; None if all files pack alike."""


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
    """Distinct descriptions in the files."""
    said: bytes
    """Index of each file's variant, as 16-bit numbers."""
    made: bool
    """Whether chunks are assembled from reads; otherwise they are byte ranges of a file."""

    @property
    def grid(self) -> ChunkGrid:
        return ChunkGrid.of(self.facts.shape, self.facts.chunks)

    def variant(self, part: int) -> Variant:
        return self.variants[int(np.frombuffer(self.said, "<u2")[part])]

    def part_facts(self, part: int) -> Facts:
        facts, shape = self.variant(part).facts, list(self.facts.shape)
        if shape:
            shape[self.axis] = self.bounds[part + 1] - self.bounds[part]
        return replace(facts, shape=tuple(shape))

    def place(self, index: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        """Return the file number of a mapped chunk, and its index in that file."""
        if not index:
            return 0, index
        chunk = self.facts.chunks[self.axis]
        part = bisect_right(self.bounds, index[self.axis] * chunk) - 1
        part = min(part, len(self.bounds) - 2)
        inside = index[self.axis] - self.bounds[part] // chunk
        return part, (*index[: self.axis], inside, *index[self.axis + 1 :])

    def parts(self, section: Section) -> Iterable[tuple[int, Section, Section]]:
        """Yield the files that overlap a section, with the overlap in the file and in the section."""
        if not section.shape:
            yield 0, section, section
            return
        axis, lower, upper = self.axis, section.lower[self.axis], section.upper[self.axis]
        for part, _, out, _ in over_edges(self.bounds, lower, upper):
            here = _cut(section, axis, lower + out.start, lower + out.stop)
            yield part, _moved(here, axis, self.bounds[part]), here.relative_to(section.lower)


def _cut(section: Section, axis: int, start: int, stop: int) -> Section:
    lower, upper = list(section.lower), list(section.upper)
    lower[axis], upper[axis] = start, stop
    return Section(tuple(lower), tuple(upper))


def _moved(section: Section, axis: int, origin: int) -> Section:
    return section.relative_to(tuple(origin if a == axis else 0 for a in range(len(section.lower))))


def alone(name: str, facts: Facts) -> ForeignArray:
    return ForeignArray(
        name=name,
        facts=facts,
        axis=0,
        bounds=(0, facts.shape[0] if facts.shape else 1),
        variants=(Variant(facts=facts),),
        said=b"\0\0",
        made=facts.library is not None,
    )


def joined(name: str, all: Sequence[Facts], axis: int, path: Callable[[int], str]) -> ForeignArray:
    """Return the array of several files joined along an axis."""
    bounds = [0]
    for number, each in enumerate(all):
        _check_shape(name, all[0], each, axis, (path(0), path(number)))
        bounds.append(bounds[-1] + each.shape[axis])
    keys = [(*told(each), each.chunks, each.filters, each.library, each.order) for each in all]
    ways = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    firsts = [keys.index(key) for key in ways]
    variants, whole = _variants(name, all, firsts, path)
    shape = tuple(bounds[-1] if a == axis else n for a, n in enumerate(all[0].shape))
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
        variants=variants,
        said=np.array([ways[key] for key in keys], "<u2").tobytes(),
        made=made or small,
    )


def _made(whole: Facts, chunks: tuple[int, ...], first: Facts, unpacked: bool) -> Facts:
    """Return the facts of an array with assembled chunks: plain elements in C order."""
    by = first.library or ("unpacked" if unpacked else "joined")
    dtype = whole.dtype
    if dtype != "O":
        native = np.dtype(dtype).newbyteorder("=")
        dtype = native if native.names else native.str
    return replace(whole, chunks=chunks, filters=(), order=None, library=by, dtype=dtype)


def _variants(
    name: str, all: Sequence[Facts], firsts: list[int], path: Callable[[int], str]
) -> tuple[tuple[Variant, ...], Facts]:
    """Return the variants in the files, and the facts of the whole."""
    first, ways = all[0], [all[number] for number in firsts]
    if len({told(each) for each in ways}) == 1:
        return tuple(Variant(facts=each) for each in ways), first
    dtype, packings, attributes = agreed(ways, [path(number) for number in firsts], name)
    fill = np.nan if np.dtype(dtype).kind == "f" and np.dtype(first.dtype) != np.dtype(dtype) else first.fill
    whole = replace(first, dtype=dtype, attributes=attributes, native={}, fill=fill)
    return tuple(Variant(facts=f, packing=p) for f, p in zip(ways, packings, strict=True)), whole


def _check_shape(name: str, first: Facts, each: Facts, axis: int, paths: tuple[str, str]) -> None:
    mine, other = list(first.shape), list(each.shape)
    if len(mine) == len(other):
        mine[axis] = other[axis] = 0
    if mine != other:
        raise UnsupportedError(
            f"{name or 'the array'} has shape {first.shape} in {paths[0]} and {each.shape} in {paths[1]}: along "
            f"another axis than number {axis} files that are joined have the same length"
        )


Read = Callable[[int, Section], np.ndarray]
"""Function that reads elements of one file, from its number and the section in it."""


def made_section(array: ForeignArray, section: Section, read: Read) -> np.ndarray:
    """Return a section of an array with assembled chunks, unpacked."""
    dtype: Any = object if array.facts.dtype == "O" else np.dtype(array.facts.dtype)
    out = np.empty(section.shape, dtype)
    for part, there, here in array.parts(section):
        stored, packing = read(part, there), array.variant(part).packing
        out[here.slices] = stored if packing is None else packing.unpacked(stored, dtype)
    return out


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
    told: dict[str, list[Facts]] = field(default_factory=dict)
    """Facts from each file of arrays about to be examined, by path."""

    @property
    def reader(self) -> Reader:
        return Stacked(format=self.format, dim=str(self.dim), names=self.stacked) if self.stacked else self.format

    def array(self, name: str) -> ForeignArray:
        """Return an array; the first access examines all files."""
        if name not in self.known:
            with _looking:
                if name not in self.known:
                    self.known[name] = self._looked_at(name)
        return self.known[name]

    def _looked_at(self, name: str) -> ForeignArray:
        first = self.reader.facts(self.files.readable(0), (name,))[0]
        if self.dim is None:
            return alone(name, first)
        self.look_at([name])
        axis, all = self._axis(first), self.told.pop(name)
        if axis is None:
            self._check_same(name, all)
            return alone(name, first)
        made = joined(name, all, axis, self.files.path)
        packed = made.variants[0].packing is not None
        said = {key: value for key, value in first.attributes.items() if not (packed and key in PACKED)}
        native = {} if packed else first.native
        facts = replace(
            made.facts, attributes=said, native=native, names=first.names, scales=first.scales, endless=first.endless
        )
        return replace(made, facts=facts)

    def _axis(self, facts: Facts) -> int | None:
        """Return the axis along which an array is joined; None if it has none."""
        if isinstance(self.dim, int):
            return self.dim if self.dim < len(facts.shape) else None
        names = facts.names or ()
        return names.index(self.dim) if self.dim in names else None

    def _check_same(self, name: str, all: list[Facts]) -> None:
        """Raise if an unjoined array differs between files; large arrays are compared at both ends only."""
        for number, each in enumerate(all):
            if (each.shape, each.dtype) != (all[0].shape, all[0].dtype):
                raise UnsupportedError(
                    f"{name} has shape {all[0].shape} in {self.files.path(0)} and {each.shape} in "
                    f"{self.files.path(number)}, and no axis {self.dim} along which they are joined"
                )
        parts = _both_ends(all[0])
        first = [self._values(0, name, part) for part in parts]
        for number in range(1, len(all)):
            there = (self._values(number, name, part) for part in parts)
            if told(all[number]) != told(all[0]) or not all_equal(first, there):
                raise UnsupportedError(
                    f"{name} has other values in {self.files.path(number)} than in {self.files.path(0)}, and no axis "
                    f"{self.dim} along which they are joined"
                )

    def _values(self, number: int, name: str, part: tuple[slice, ...]) -> np.ndarray:
        return self.reader.read(self.files.readable(number), name, part)

    def prepare(self, inner: str) -> None:
        """Read the files' indexes before the first request, because many files take seconds."""
        if self.dim is None:
            return
        wanted = [name for name in self.names if name == inner or not inner or name.startswith(f"{inner}/")]
        self.look_at(wanted)
        for name in wanted:
            self.array(name)

    def look_at(self, names: Iterable[str]) -> None:
        """Examine several arrays at once, opening each file once for all of them."""
        if self.dim is None:
            return
        with _looking:
            left = tuple(name for name in names if name not in self.known and name not in self.told)
            look, numbers = self.reader.facts, range(len(self.files.names) if left else 0)
            found = [look(self.files.readable(number), left, brief=True) for number in numbers]
            self.told |= {name: [each[n] for each in found] for n, name in enumerate(left)}


def _both_ends(facts: Facts) -> list[tuple[slice, ...]]:
    """Return the sections of an array to compare: all of it, or the first and last rows of a large one."""
    whole = (slice(None),) * len(facts.shape)
    if facts.nbytes <= 2**22:  # a coordinate
        return [whole]
    return [(slice(0, 1), *whole[1:]), (slice(facts.shape[0] - 1, None), *whole[1:])]


def all_equal(some: Iterable[np.ndarray], others: Iterable[np.ndarray]) -> bool:
    """Return whether arrays have the same elements, with NaN in the same places."""
    return all(bool(((a == b) | ((a != a) & (b != b))).all()) for a, b in zip(some, others, strict=True))
