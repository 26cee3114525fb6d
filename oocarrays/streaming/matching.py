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
    matches: list[tuple[list[Any], int]]
    """Of each cell, the values, and the bytes that they took."""

    @property
    def counts(self) -> np.ndarray:
        """Conversions that each cell matched, as C returns them."""
        return np.array([len(values) for values, _ in self.matches], np.int64)

    def columns(self) -> list[np.ndarray]:
        """The values of each conversion: 0, nan or empty where a cell did not match it."""
        made = []
        for number, convert in enumerate(token.convert for token in self.tokens if token.convert is not None):
            empty: Any = "" if convert is str else math.nan if convert is float else 0
            made.append(np.array([values[number] if number < len(values) else empty for values, _ in self.matches]))
        return made


def scanned_cells(part: RanksPart, tokens: list[Token]) -> Matches:
    """Match the text of each cell; where a match may go on, with more of it."""
    found: list[tuple[list[Any], int]] = [([], 0)] * part.count
    position, ends, wanted = part.tell(), part.ends(), sum(token.convert is not None for token in tokens)
    cells, size = np.arange(part.count), TEXT_AHEAD
    while len(cells):
        left = np.minimum(np.maximum(ends - position, 0)[cells], size)
        data = part.read(cells + part.lower, position[cells], left).tobytes().decode("latin-1")
        starts, more = before(left).tolist(), []
        for cell, start, count in zip(cells.tolist(), starts, left.tolist(), strict=True):
            values, place, _ = scanned(tokens, data[start : start + count])
            found[cell] = values, place
            if count == size and (place > count - TEXT_AHEAD // 2 or len(values) < wanted):
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
