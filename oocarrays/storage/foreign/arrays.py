"""Arrays in files of another format: of one file, or of several, one behind the other along an axis.

    a.nc, b.nc, c.nc say the same     chunk (3, 0) of the whole ─► file b, bytes 4016 … 9120        mapped
    each is packed, chunked or        chunk (3, 0) of the whole ─► rows of b, decoded and unpacked   made
    coded otherwise                                                as b says

Whatever can be read where it lies is mapped; what is made says so in its codec's name. Each file is opened once, when
its arrays are asked for:

open_array("*.nc", …)     names, of the first file; what each file says of that array
open_group("*.nc")        what each file says of every array; those without the axis that is joined are those of the
                          first file, and held against the others
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np

from oocarrays.errors import UnsupportedError
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.section import Section
from oocarrays.plan.documents import Document
from oocarrays.storage.foreign import fits, hdf5, netcdf3, numpy_files, tiff  # noqa: F401  each enters its format
from oocarrays.storage.foreign.facts import FORMATS, Facts, Reader, Stacked
from oocarrays.storage.foreign.files import Files
from oocarrays.storage.foreign.packing import PACKED, Packing, agreed, told

COORDINATE_BYTES = 2**22
"""Bytes of an array that is not joined, up to which all of it is held against that of the other files."""
_looking = threading.RLock()
JOINED_BYTES = 2**24
"""Arrays with one axis of no more are made whole, as one chunk, where they are joined: coordinates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A description of an array that some of the files share."""

    facts: Facts
    """Of one of them, its shape left out of account."""
    packing: Packing | None = None
    """How its values are unpacked; None where all files pack alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignArray:
    """An array in one file or in several."""

    name: str
    """Its path in each file."""
    facts: Facts
    """What it is as a whole."""
    axis: int
    """The axis along which files follow one another."""
    bounds: tuple[int, ...]
    """Where each file begins along that axis, in elements, and where the last one ends."""
    variants: tuple[Variant, ...]
    """What files say of it."""
    said: bytes
    """Which of those each file says, as 16-bit numbers."""
    made: bool
    """Whether chunks are made of what is read; where not, they are bytes of a file."""

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
        """In which file a chunk lies that is mapped, and its index there."""
        if not index:
            return 0, index
        chunk = self.facts.chunks[self.axis]
        part = bisect_right(self.bounds, index[self.axis] * chunk) - 1
        part = min(part, len(self.bounds) - 2)
        inside = index[self.axis] - self.bounds[part] // chunk
        return part, (*index[: self.axis], inside, *index[self.axis + 1 :])

    def parts(self, section: Section) -> Iterable[tuple[int, Section, Section]]:
        """Yield the files that hold any of a section, with what each has of it: in the file, and in the section."""
        if not section.shape:
            yield 0, section, section
            return
        axis, lower, upper = self.axis, section.lower[self.axis], section.upper[self.axis]
        for part in range(max(bisect_right(self.bounds, lower) - 1, 0), len(self.bounds) - 1):
            start, stop = max(lower, self.bounds[part]), min(upper, self.bounds[part + 1])
            if self.bounds[part] >= upper:
                return
            if start < stop:
                here = _cut(section, axis, start, stop)
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
    """Return the array of several files, one behind the other along an axis."""
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
    made = len(ways) > 1 or whole.library is not None or not _fit(bounds, whole.chunks[axis])
    small = len(all) > 1 and len(shape) == 1 and _nbytes(whole) <= JOINED_BYTES
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
    """Return an array whose chunks are made, as plain elements in C order."""
    by = first.library or ("unpacked" if unpacked else "joined")
    dtype = whole.dtype
    if dtype != "O":
        native = np.dtype(dtype).newbyteorder("=")
        dtype = native if native.names else native.str
    return replace(whole, chunks=chunks, filters=(), order=None, library=by, dtype=dtype)


def _nbytes(facts: Facts) -> int:
    size = 16 if facts.dtype == "O" else np.dtype(facts.dtype).itemsize
    return int(np.prod(facts.shape, dtype=np.int64)) * size


def _fit(bounds: Sequence[int], chunk: int) -> bool:
    """Return whether every file but the last ends where a chunk does."""
    return all(bound % chunk == 0 for bound in bounds[:-1])


def _variants(
    name: str, all: Sequence[Facts], firsts: list[int], path: Callable[[int], str]
) -> tuple[tuple[Variant, ...], Facts]:
    """Return the descriptions in the files, and that of the whole."""
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
"""Reads elements of one file: its number, and where they lie in it."""


def made_section(array: ForeignArray, section: Section, read: Read) -> np.ndarray:
    """Return elements of an array whose chunks are made, as they are unpacked."""
    dtype: Any = object if array.facts.dtype == "O" else np.dtype(array.facts.dtype)
    out = np.empty(section.shape, dtype)
    for part, there, here in array.parts(section):
        stored, packing = read(part, there), array.variant(part).packing
        out[here.slices] = stored if packing is None else packing.unpacked(stored, dtype)
    return out


@dataclass(slots=True, kw_only=True)
class Contents:
    """The arrays and groups in some files."""

    files: Files
    """The files."""
    format: str
    """Their format, one of `FORMATS`."""
    names: tuple[str, ...]
    """Paths of the arrays."""
    groups: dict[str, Document]
    """Attributes of the groups, by their paths."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Why arrays are left out, by their paths."""
    dim: str | int | None = None
    """The axis along which files follow one another, by its name or its number; None of one file."""
    stacked: frozenset[str] = frozenset()
    """Paths of the arrays that do not have this axis, and get it as a new first one."""
    known: dict[str, ForeignArray] = field(default_factory=dict)
    """Arrays that have been looked at."""
    told: dict[str, list[Facts]] = field(default_factory=dict)
    """What each file says of arrays that are asked for next."""

    @property
    def reader(self) -> Reader:
        format = FORMATS[self.format]
        return Stacked(format=format, dim=str(self.dim), names=self.stacked) if self.stacked else format

    def array(self, name: str) -> ForeignArray:
        """Return an array; all files are looked at when it is asked for first."""
        if name not in self.known:
            with _looking:
                if name not in self.known:
                    self.known[name] = self._looked_at(name)
        return self.known[name]

    def _looked_at(self, name: str) -> ForeignArray:
        first = self.reader.facts(self.files.readable(0), (name,))[0]
        if self.dim is None:
            return alone(name, first)
        axis, all = self._axis(first), self._told(name)
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
        """The axis along which an array is joined; None where it has none such."""
        if isinstance(self.dim, int):
            return self.dim if self.dim < len(facts.shape) else None
        names = facts.names or ()
        return names.index(self.dim) if self.dim in names else None

    def _check_same(self, name: str, all: list[Facts]) -> None:
        """Refuse an array that is not joined, and is another one in some of the files: of large ones both ends."""
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

    def _told(self, name: str) -> list[Facts]:
        """Return the description of an array in each file, in few words."""
        if name not in self.told:
            self._look_at([name])
        return self.told.pop(name)

    def prepare(self, inner: str) -> None:
        """Read the files' indexes ahead of the first request: with many files that takes seconds."""
        if self.dim is None:
            return
        wanted = [name for name in self.names if name == inner or not inner or name.startswith(f"{inner}/")]
        self.look_at(wanted)
        for name in wanted:
            self.array(name)

    def look_at(self, names: Iterable[str]) -> None:
        """Look at several arrays at once: each file is opened once for all of them."""
        if self.dim is not None:
            with _looking:
                self._look_at([name for name in names if name not in self.known and name not in self.told])

    def _look_at(self, names: list[str]) -> None:
        look = self.reader.facts
        numbers = range(len(self.files.names) if names else 0)
        found = [look(self.files.readable(number), tuple(names), brief=True) for number in numbers]
        self.told |= {name: [each[n] for each in found] for n, name in enumerate(names)}

    def __reduce__(self) -> Any:
        return partial(Contents, **{each.name: getattr(self, each.name) for each in fields(self)}), ()


def _both_ends(facts: Facts) -> list[tuple[slice, ...]]:
    """Return the part of an array that is looked at: all of it, or its first and last rows where it is large."""
    size = 16 if facts.dtype == "O" else np.dtype(facts.dtype).itemsize
    whole = (slice(None),) * len(facts.shape)
    if math.prod(facts.shape) * size <= COORDINATE_BYTES:
        return [whole]
    return [(slice(0, 1), *whole[1:]), (slice(facts.shape[0] - 1, None), *whole[1:])]


def all_equal(some: Iterable[np.ndarray], others: Iterable[np.ndarray]) -> bool:
    """Return whether arrays have the same elements, NaN in the same places."""
    return all(bool(((a == b) | ((a != a) & (b != b))).all()) for a, b in zip(some, others, strict=True))
