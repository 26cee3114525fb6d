"""The blocks that ranks have of a box of a file, and the chunks in which they lie: one part of a message each.

µm, um, micron, micrometres   ─► micrometer   1e-6 m
s, sec, seconds               ─► second       1 s
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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
    """Return the OME-Zarr name of a unit; a unit that OME-Zarr does not name is returned unchanged.

    >>> [unit_name(each) for each in ("µm", "microns", "Millimetre", "sec", "degrees_north")]
    ['micrometer', 'micrometer', 'millimeter', 'second', 'degrees_north']
    """
    text = text.strip().replace("\\u00B5", "u").replace("\u00b5", "u").replace("\u03bc", "u").replace("\u212b", "Å")
    lower = text.lower().replace("metre", "meter")
    for each in (text, lower, lower.removesuffix("s")):
        found = SYMBOLS.get(each, each)
        if found in LENGTHS or found in TIMES:
            return found
    return text


def in_base_unit(value: float, unit: str | None) -> tuple[float, str | None]:
    """Return a value in metres or seconds, with that unit; a value of another unit is returned unchanged.

    >>> in_base_unit(2, "millimeter"), in_base_unit(1, "hour"), in_base_unit(3, None)
    ((0.002, 'meter'), (3600.0, 'second'), (3, None))
    """
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
    """How many of what is taken, ascending, lie before each of some bounds.

    >>> before(range(1, 20, 4), np.array([0, 5, 12])), before(np.array([2, 3, 7]), np.array([3, 8]))
    (array([0, 1, 3]), array([1, 3]))
    """
    if isinstance(taken, np.ndarray):
        return np.searchsorted(taken, bounds)
    counts: np.ndarray = np.clip(-(-(bounds - taken.start) // taken.step), 0, len(taken))
    return counts


def chunk_count(spans: tuple[np.ndarray, np.ndarray], chunk: int) -> int:
    """Chunks that some spans touch along an axis, those of two spans twice.

    >>> chunk_count((np.array([0, 5]), np.array([5, 8])), 4)
    3
    """
    lower, upper = spans
    return int((-(-upper // chunk) - lower // chunk).sum())


def alike_spans(spans: tuple[np.ndarray, np.ndarray], chunk: int, extent: int) -> list[tuple[range, int]]:
    """Of spans that lie alike in chunks, and alike before the end of a file, one and how many they are.

    >>> alike_spans((np.array([0, 5, 10]), np.array([5, 10, 15])), 5, 20)
    [(range(0, 5), 3)]
    """
    lower, upper = spans
    key = np.stack([lower % chunk, upper - lower, upper > extent // chunk * chunk], axis=1)
    _, first, times = np.unique(key, axis=0, return_index=True, return_counts=True)
    return [(range(int(lower[i]), int(upper[i])), int(n)) for i, n in zip(first, times, strict=True)]


def message_size(blocks: Sequence[FileBlock | None]) -> int:
    """Elements of a message.

    >>> message_size([None, FileBlock(axes=(range(3),), place=Section((1,), (4,)))])
    3
    """
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
