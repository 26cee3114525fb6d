"""Sections of one array file: what is taken of it, whatever its shape and that of the chunks.

    chunk       ░░█░░█░░█░░                 what is taken of a chunk is copied to its place in the result
    result      ███

Thakur 1995, section 5.5.1 (data sieving).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product, repeat
from typing import Any

import numpy as np

from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.selection import Axes, Taken, lengths, within
from oocarrays.storage.access import ChunkReader, Index
from oocarrays.storage.array_file import ArrayFile
from oocarrays.storage.meter import Meter


def read_section(
    file: ArrayFile, axes: Axes, out: np.ndarray | None = None, *, meter: Meter | None = None
) -> np.ndarray:
    """What is taken of an array file: ``result.shape == lengths(axes)``.

    Parameters
    ----------
    axes : tuple of range or array
        What is taken along each axis, as `oocarrays.mapping.selection.Selection` has it.
    out : numpy.ndarray, optional
        What is filled and returned.
    """
    out = np.empty(lengths(axes), file.dtype) if out is None else out
    reader, grid = ChunkReader(file, meter or Meter()), file.stored.grid
    places = {index: (there, inside) for index, there, inside in pieces(grid, axes)}
    buffer = np.empty(grid.chunks, file.dtype)
    for index, chunk in reader.whole(places, repeat(buffer)):
        there, inside = places[index]
        out[there] = file.fill_value if chunk is None else chunk[inside]
    return out


def pieces(grid: ChunkGrid, axes: Axes) -> Iterator[tuple[Index, Any, Any]]:
    """Each chunk of which something is taken: its index, and the places of that in the result and in the chunk."""
    along = [list(_along(taken, n, c)) for taken, n, c in zip(axes, grid.shape, grid.chunks, strict=True)]
    for each in product(*along):
        index, there, inside = zip(*each, strict=True) if each else ((), (), ())
        yield index, (*there, ...), _place(inside)


def _along(taken: Taken, extent: int, chunk: int) -> Iterator[tuple[int, slice, slice | np.ndarray]]:
    """The chunks along one axis of which something is taken."""
    number = 0
    while number < len(taken):
        index = int(taken[number]) // chunk
        there, inside = within(taken, index * chunk, min((index + 1) * chunk, extent))
        yield index, there, inside
        number = there.stop


def _place(inside: tuple[slice | np.ndarray, ...]) -> Any:
    """An index of a product of slices and sorted indices; a view, where all are slices."""
    if all(isinstance(part, slice) for part in inside):
        return (*inside, ...)
    return np.ix_(*(np.r_[part] if isinstance(part, slice) else part for part in inside))
