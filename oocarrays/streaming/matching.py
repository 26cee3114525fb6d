"""Text of every cell, matched with a format of C; and what a function has returned for each cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oocarrays.plan.streams.units import before
from oocarrays.storage.streams.part import RanksPart
from oocarrays.streaming.text import Token, scanned

TEXT_AHEAD = 256
"""Bytes of each cell that scanf looks at first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """The matches of a format in the text of each cell."""

    tokens: list[Token]
    """The parts of the format."""
    matches: list[tuple[list[Any], int, bool]]
    """Of each cell, the values, the bytes that they took, and whether its text ended before a directive."""

    @property
    def counts(self) -> np.ndarray:
        """Conversions that each cell matched, as C returns them: -1 where its text ended before the first."""
        return np.array([-1 if ended and not values else len(values) for values, _, ended in self.matches], np.int64)

    def columns(self) -> list[np.ndarray]:
        """The values of each conversion: 0, nan or empty where a cell did not match it."""
        made = []
        for number, kind in enumerate(token.type for token in self.tokens if token.type is not None):
            empty: Any = "" if kind is str else math.nan if kind is float else 0
            column = [values[number] if number < len(values) else empty for values, _, _ in self.matches]
            made.append(_integers(column) if kind is int else np.array(column, kind))
        return made


def _integers(values: list[int]) -> np.ndarray:
    """Return integers as numpy has them, or as they are where some are too large."""
    limits = [(dtype, np.iinfo(dtype)) for dtype in (np.int64, np.uint64)]
    least, most = min(values, default=0), max(values, default=0)
    return np.array(values, next((dtype for dtype, it in limits if it.min <= least and most <= it.max), object))


def scanned_cells(part: RanksPart, tokens: list[Token]) -> Matches:
    """Match the text of each cell; where a match may go on, with more of it."""
    found: list[tuple[list[Any], int, bool]] = [([], 0, False)] * part.count
    position, ends = part.tell(), part.ends()
    cells, size = np.arange(part.count), TEXT_AHEAD
    while len(cells):
        rest = np.maximum(ends - position, 0)[cells]
        left = np.minimum(rest, size)
        data = part.read(cells + part.lower, position[cells], left).tobytes()
        starts, more = before(left).tolist(), []
        for cell, start, count, all_left in zip(cells.tolist(), starts, left.tolist(), rest.tolist(), strict=True):
            found[cell] = scanned(tokens, data[start : start + count])
            if found[cell][1] == count < all_left:  # it may go on
                more.append(cell)
        cells, size = np.array(more, np.int64), size * 4
    return Matches(tokens=tokens, matches=found)


def returned(results: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray | None:
    """Return what a function returned for each cell as an array; None where it returned nothing."""
    if all(result is None for result in results):
        return None
    if all(isinstance(result, int | float | complex | np.number | np.bool_) for result in results):
        return np.array(results).reshape(shape)
    out = np.empty(len(results), object)
    out[:] = results
    return out.reshape(shape)
