"""Writes of boxes of chunks from several ranks: where pieces overlap, the last one wins.

    rank 0     ┌─────────┐               chunk    ┌───────────┐
    rank 1     │    ┌────┼────┐    ──►            │ 0 0 1 1 1 │     read first only if ranks leave a gap,
               └────┼────┘    │                   │ 0 0 1 1 1 │     replaced atomically
                    └─────────┘                   │ · · 1 1 1 │

Thakur 1995, section 6.3.2.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from oocarrays.mapping.grid import Index, turned, turned_back
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes
from oocarrays.storage.chunks.rewriting import Sharded
from oocarrays.storage.chunks.write_units import Unit
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.meter import Meter
from oocarrays.storage.sections.write import Whole, each_of, replacing

Piece = tuple[Axes, np.ndarray]
"""A rank's section of a box, and its values: an array of the lengths of the axes."""
Needs = Callable[[Index], bool]
"""Predicate: whether a chunk must be read before it is written."""


class Covering(Protocol):
    """Sections that are written of each chunk together."""

    def needs(self, index: Index, /) -> bool:
        """Return whether a written chunk must be read first."""


class Overlay(Unit):
    """Chunk or shard written by several ranks."""

    def __init__(self, units: Sequence[Unit], needs: Needs, inner: Needs) -> None:
        self.index, self.lower = units[0].index, units[0].lower
        self.whole = not needs(self.index)
        self.extents = units[0].extents
        self._units, self._inner = units, inner

    def put_in(self, data: np.ndarray, box: Section) -> None:
        for unit in self._units:
            unit.put_in(data, box)

    def cut(self, chunks: tuple[int, ...]) -> Iterator[Unit]:
        """Yield a unit for each chunk of a shard that is written."""
        return overlays((inner for unit in self._units for inner in unit.cut(chunks)), self._inner, self._inner)


def overlays(units: Iterator[Unit], needs: Needs, inner: Needs) -> Iterator[Overlay]:
    """Group units of the same chunk, in order."""
    found: defaultdict[Index, list[Unit]] = defaultdict(list)
    for unit in units:
        found[unit.index].append(unit)
    return (Overlay(each, needs, inner) for each in found.values())


def write_pieces(
    file: ArrayFile,
    pieces: Sequence[Piece],
    coverage: Covering,
    inner: Covering,
    *,
    at_once: int = 1,
    meter: Meter,
) -> None:
    """Write pieces of an array file, each chunk once, and leave the rest unchanged."""
    order = file.stored.order
    file = replacing(file).lying
    pieces = [(turned(axes, order), values.transpose(order or range(values.ndim))) for axes, values in pieces]
    writer = Sharded(file, meter) if file.chain.shard is not None else Whole(file, meter)

    needs, inner_needs = (_turned_needs(each, order) for each in (coverage, inner))
    each_of(writer, overlays(_units(file, pieces), needs, inner_needs), at_once)


def _turned_needs(coverage: Covering, order: tuple[int, ...] | None) -> Needs:
    """Return the predicate for chunk indexes in storage order of axes."""
    return lambda index: coverage.needs(turned_back(index, order))


def _units(file: ArrayFile, pieces: Sequence[Piece]) -> Iterator[Unit]:
    grid = file.stored.grid
    for axes, values in pieces:
        for parts in grid.pieces(axes):
            yield Unit(grid, parts, axes, values)
