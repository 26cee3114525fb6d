"""Partitions of a global array: boxes of whole chunks, in file order, each of which fits in memory.

    chunks 4 × 4, room for 5        0 0 0 0        room for 2        0 0 1 1
                                    1 1 1 1                          2 2 3 3
                                    2 2 2 2                          …
Thakur 1995, section 5.3.2: the partitioned in-core model.

local array, depth 1          slab 1            lower, upper     its own elements (rows 1 and 2 of the OCAD)
    · · · · · · · ·               ░ ░ ░ ░ ░ ░ ░ ░   outer lower …    with the halo (rows 3 and 4)
    · 0 0 0 0 0 0 ·               ░ 1 1 1 1 1 1 ░
    · 1 1 1 1 1 1 ·               ░ ░ ░ ░ ░ ░ ░ ░
    · · · · · · · ·

Slabs follow each other as they are stored; the halo is counted in the budget. Thakur 1995, section 5.4.1, Figure 5.5.

µm, um, micron, micrometres   ─► micrometer   1e-6 m
s, sec, seconds               ─► second       1 s
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from oocarrays.errors import BudgetError
from oocarrays.mapping.grid import ChunkGrid, unravel
from oocarrays.mapping.layouts.local import Depth
from oocarrays.mapping.orientation import chunks_along
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, Taken, lengths

PREFIXES = {
    "yotta": ("Y", 24), "zetta": ("Z", 21), "exa": ("E", 18), "peta": ("P", 15), "tera": ("T", 12), "giga": ("G", 9),
    "mega": ("M", 6), "kilo": ("k", 3), "hecto": ("h", 2), "": ("", 0), "deci": ("d", -1), "centi": ("c", -2),
    "milli": ("m", -3), "micro": ("u", -6), "nano": ("n", -9), "pico": ("p", -12), "femto": ("f", -15),
    "atto": ("a", -18), "zepto": ("z", -21), "yocto": ("y", -24),
}  # fmt: skip
"""Symbols and powers of ten of SI prefixes."""
LENGTHS = {f"{prefix}meter": 10.0**power for prefix, (_, power) in PREFIXES.items()} | {
    "angstrom": 1e-10, "inch": 0.0254, "foot": 0.3048, "yard": 0.9144, "mile": 1609.344,
    "parsec": 3.0856775814913673e16,
}  # fmt: skip
"""Metres of each unit of length."""
TIMES = {f"{prefix}second": 10.0**power for prefix, (_, power) in PREFIXES.items()} | {
    "minute": 60.0, "hour": 3600.0, "day": 86400.0,
}  # fmt: skip
"""Seconds of each unit of time."""
SYMBOLS = {
    **{f"{symbol}m": f"{prefix}meter" for prefix, (symbol, _) in PREFIXES.items()},
    **{f"{symbol}s": f"{prefix}second" for prefix, (symbol, _) in PREFIXES.items()},
    "micron": "micrometer", "Å": "angstrom", "in": "inch", "inches": "inch", '"': "inch", "ft": "foot", "feet": "foot",
    "yd": "yard", "mi": "mile", "pc": "parsec", "sec": "second", "min": "minute", "h": "hour", "hr": "hour", "d": "day",
}  # fmt: skip
"""OME-Zarr names of symbols and of other names."""


def unit_name(text: str) -> str:
    """Return the OME-Zarr name of a unit; a unit that OME-Zarr does not name is returned unchanged."""
    text = text.strip().replace("\\u00B5", "u").replace("\u00b5", "u").replace("\u03bc", "u").replace("\u212b", "Å")
    lower = text.lower().replace("metre", "meter")
    for each in (text, lower, lower.removesuffix("s")):
        found = SYMBOLS.get(each, each)
        if found in LENGTHS or found in TIMES:
            return found
    return text


def in_base_unit(value: float, unit: str | None) -> tuple[float, str | None]:
    """Return a value in metres or seconds, with that unit; a value of another unit is returned unchanged."""
    for base, sizes in (("meter", LENGTHS), ("second", TIMES)):
        if unit in sizes:
            return value * sizes[unit], base
    return value, unit


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBlock:
    """Block that one rank has of one box of a file domain: one part of a message."""

    axes: Axes
    """Its elements, along each axis of the array."""
    place: Section
    """Where they are in the rank's file."""

    @property
    def size(self) -> int:
        """Elements."""
        return self.place.size


def before(taken: Taken, bounds: np.ndarray) -> np.ndarray:
    """How many of what is taken, ascending, lie before each of some bounds."""
    if isinstance(taken, np.ndarray):
        return np.searchsorted(taken, bounds)
    counts: np.ndarray = np.clip(-(-(bounds - taken.start) // taken.step), 0, len(taken))
    return counts


def chunk_count(spans: tuple[np.ndarray, np.ndarray], chunk: int) -> int:
    """Chunks that some spans touch along an axis, those of two spans twice."""
    lower, upper = spans
    return int((-(-upper // chunk) - lower // chunk).sum())


def alike_spans(spans: tuple[np.ndarray, np.ndarray], chunk: int, extent: int) -> list[tuple[range, int]]:
    """Of spans that lie alike in chunks, and alike before the end of a file, one and how many they are."""
    lower, upper = spans
    key = np.stack([lower % chunk, upper - lower, upper > extent // chunk * chunk], axis=1)
    _, first, times = np.unique(key, axis=0, return_index=True, return_counts=True)
    return [(range(int(lower[i]), int(upper[i])), int(n)) for i, n in zip(first, times, strict=True)]


def message_size(blocks: Sequence[FileBlock | None]) -> int:
    return sum(block.size for block in blocks if block)


def views(message: np.ndarray | None, blocks: Sequence[FileBlock | None]) -> list[np.ndarray | None]:
    """The elements of each block, in a message that has them one behind the other."""
    found: list[np.ndarray | None] = []
    start = 0
    for block in blocks:
        if block is None or message is None:
            found.append(None)
            continue
        found.append(message[start : start + block.size].reshape(lengths(block.axes)))
        start += block.size
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class InCore:
    """The bounds of one slab (ICLA), counted from the first element that the rank holds: below zero lies its halo."""

    own: Section
    """Its own elements: rows 1 and 2, ``own.lower`` and ``own.upper``."""
    outer: Section
    """These with the halo on either side: rows 3 and 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slabs:
    """How a local array is cut into slabs."""

    grid: ChunkGrid
    """The local array without its halo, and the most of a slab along each axis, in elements."""
    depth: Depth
    """Elements of the halo along each axis, on either side."""
    order: tuple[int, ...]
    """The axes from the slowest to the fastest."""

    @classmethod
    def of(cls, shape: Sequence[int], *, depth: Depth, order: Sequence[int], itemsize: int, budget: int) -> Slabs:
        """The largest slabs that fit ``budget`` bytes with their halo."""
        least = math.prod(1 + 2 * d for d in depth) * itemsize
        if budget < least:
            raise BudgetError(budget, least, "a slab of one element and its halo")
        slab = [1] * len(shape)
        for axis in reversed(order):
            across = math.prod(n + 2 * d for a, (n, d) in enumerate(zip(slab, depth, strict=True)) if a != axis)
            slab[axis] = max(min(shape[axis], budget // (across * itemsize) - 2 * depth[axis]), 1)
        return cls(grid=ChunkGrid.of(tuple(shape), tuple(slab)), depth=depth, order=tuple(order))

    def __len__(self) -> int:
        return self.grid.count

    def __getitem__(self, number: int) -> InCore:
        """Slab ``number``, in the order in which they are stored."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        places = unravel(number, tuple(self.grid.counts[axis] for axis in self.order))
        index = dict(zip(self.order, places, strict=True))
        own = self.grid.section(tuple(index[axis] for axis in range(len(index))))
        lower = tuple(l - d for l, d in zip(own.lower, self.depth, strict=True))
        return InCore(own=own, outer=Section(lower, tuple(u + d for u, d in zip(own.upper, self.depth, strict=True))))


@dataclass(frozen=True, slots=True)
class Partitions(Sequence[Section]):
    """Boxes of whole chunks in file order, each made when it is asked for: there may be more than could be listed."""

    grid: ChunkGrid
    """The chunks of the array."""
    box: ChunkGrid
    """The boxes, in chunks."""

    def __len__(self) -> int:
        return self.box.count

    @overload
    def __getitem__(self, number: int) -> Section: ...

    @overload
    def __getitem__(self, number: slice) -> tuple[Section, ...]: ...

    def __getitem__(self, number: int | slice) -> Section | tuple[Section, ...]:
        if isinstance(number, slice):
            return tuple(self[i] for i in range(self.box.count)[number])
        left, index = range(self.box.count)[number], []
        for count in reversed(self.box.counts):
            left, place = divmod(left, count)
            index.append(place)
        return self._section(tuple(reversed(index)))

    def __iter__(self) -> Iterator[Section]:
        return map(self.__getitem__, range(self.box.count))  # product would list what it goes through

    def _section(self, index: tuple[int, ...]) -> Section:
        chunks = self.box.section(index)
        return self.grid.block(chunks.lower, chunks.upper)

    def edges(self, axis: int) -> range:
        """Where boxes begin along an axis, in elements."""
        step = self.box.chunks[axis] * self.grid.chunks[axis]
        return range(0, self.box.counts[axis] * step, step)


def partitions(grid: ChunkGrid, room: int) -> Partitions:
    """Boxes of at most ``room`` chunks each, one chunk at least."""
    counts = grid.counts
    return Partitions(grid, ChunkGrid.of(counts, chunks_along(range(len(counts)), counts, room)))
