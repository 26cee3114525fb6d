"""Arrays in files of another format: of one file, or of several, one behind the other along an axis.

    a.nc, b.nc, c.nc say the same     chunk (3, 0) of the whole ─► file b, bytes 4016 … 9120        mapped
    each is packed, chunked or        chunk (3, 0) of the whole ─► rows of b, decoded and unpacked   made
    coded otherwise                                                as b says

Whatever can be read where it lies is mapped; what is made says so in its codec's name.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from oocarrays.errors import UnsupportedError
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.section import Section
from oocarrays.storage.foreign.facts import Facts
from oocarrays.storage.foreign.packing import Packing, agreed, told

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
        """Its chunks."""
        return ChunkGrid.of(self.facts.shape, self.facts.chunks)

    def variant(self, part: int) -> Variant:
        """The description in one file."""
        return self.variants[int(np.frombuffer(self.said, "<u2")[part])]

    def part_facts(self, part: int) -> Facts:
        """The same array as it is in one file."""
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
    """Return an array of one file."""
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
    """Return the array of several files, one behind the other along an axis.

    Parameters
    ----------
    all : sequence of Facts
        Of the array in each file.
    path : callable
        The name of a file, by its number.

    Raises
    ------
    UnsupportedError
        Where they cannot be joined: it names two files.
    """
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
            f"{name} has shape {first.shape} in {paths[0]} and {each.shape} in {paths[1]}: along another axis than "
            f"number {axis} files that are joined have the same length"
        )


def rows_taken(array: ForeignArray) -> list[int]:
    """Elements of each file along the axis that is joined."""
    return [stop - start for start, stop in pairwise(array.bounds)]


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
