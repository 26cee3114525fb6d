"""Reads and writes of points of an array: chunk by chunk, each chunk once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from oocarrays.errors import BudgetError
from oocarrays.graphs import settings
from oocarrays.graphs.events import warn_of_missing
from oocarrays.graphs.settings import setting
from oocarrays.mapping.along import AxisOverGrid
from oocarrays.mapping.points import Points, by_chunk
from oocarrays.mapping.selection import Taken
from oocarrays.storage.chunks.rewriting import each_of, unit_writer
from oocarrays.storage.chunks.units import PointsUnit
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.meter import new_meter
from oocarrays.storage.sections.read import read_section
from oocarrays.storage.sections.write import check_writable, replacing
from oocarrays.stored.reading import cast


@dataclass(frozen=True, slots=True)
class Indexed:
    """Reading and writing of an array by one kind of index."""

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None]

    def __getitem__(self, key: Any) -> Any:
        return self.read(key)

    def __setitem__(self, key: Any, values: Any) -> None:
        self.write(key, values)


def check_room(nbytes: int) -> None:
    """Raise if a read exceeds the setting, or the budget."""
    if nbytes <= 2**26:  # so little always fits
        return
    said = setting("whole-array-limit")
    limit = settings.budget(None) if said is None else settings.size_in_bytes(said, "oocarrays.whole-array-limit")
    if nbytes > limit:
        raise BudgetError(limit, nbytes, "what is read (a.load() reads it all the same, a.to_dask() lazily)")


def read_points(file: ArrayFile, taken: Points) -> Any:
    """Return the elements at points of an array; each of their chunks is requested once."""
    meter = new_meter()
    out = np.empty((taken.indices.shape[1], *map(len, taken.rest.axes)), file.dtype)

    def fill(members: np.ndarray) -> None:
        axes, places = _product(taken, members, len(file.zarr.shape))
        data = read_section(file, axes, meter=meter, threads=1)
        data = np.moveaxis(data, taken.paired, range(len(taken.paired)))
        out[members] = data[places]

    with ThreadPoolExecutor(_at_once(file), "points") as pool:
        chunks = [file.zarr.chunks[axis] for axis in taken.paired]
        for _ in pool.map(fill, (members for _, members in by_chunk(taken.indices, chunks))):
            pass
    warn_of_missing(meter, file.presence.name)
    return taken.arranged(out)[()]


def _at_once(file: ArrayFile) -> int:
    return int(setting("requests")) if file.stored.remote else settings.local_cores()


def _product(taken: Points, members: np.ndarray, axes: int) -> tuple[tuple[Taken, ...], tuple[np.ndarray, ...]]:
    """Return the elements of each axis at the points, and each point's position among them along paired axes."""
    rest, wanted, places = iter(taken.rest.axes), list[Taken](), []
    for axis in range(axes):
        if axis not in taken.paired:
            wanted.append(next(rest))
            continue
        named, where = np.unique(taken.indices[taken.paired.index(axis)][members], return_inverse=True)
        wanted.append(named)
        places.append(where.reshape(-1))
    return tuple(wanted), tuple(places)


def write_points(file: ArrayFile, taken: Points, values: Any) -> None:
    """Write values to points of an array described as written; of several for one element the last wins."""
    check_writable(file)
    data = taken.spread(cast(values, file.dtype))
    work = unit_writer(replacing(file).lying, new_meter())
    each_of(work, _units(file, taken, data), min(_at_once(file), 16))


def _units(file: ArrayFile, taken: Points, data: np.ndarray) -> Iterator[PointsUnit]:
    """Yield the chunks, or shards, with written elements."""
    grid, order = file.stored.grid, list(file.stored.order or range(len(file.stored.grid.shape)))
    free = [axis for axis in range(len(order)) if axis not in taken.paired]
    rest = map(AxisOverGrid, taken.rest.axes, (grid.shape[a] for a in free), (grid.chunks[a] for a in free))
    parts = [[piece.out for piece in along] for along in rest]
    chunks = [grid.chunks[axis] for axis in order]
    for _, members in by_chunk(taken.indices, [grid.chunks[axis] for axis in taken.paired]):
        for places in product(*parts):
            there = _coordinates(taken, members, places)[order]
            among: Any = (members, *places)
            written = data[among].reshape(-1)
            for index, _ in by_chunk(there[:, :1], chunks):
                yield PointsUnit(index=index, inside=there - np.multiply(index, chunks)[:, None], data=written)


def _coordinates(taken: Points, members: np.ndarray, places: Sequence[slice]) -> np.ndarray:
    """Return the coordinates of the elements at points and at positions along the other axes: a row for each axis."""
    along = [np.asarray(each[place]) for each, place in zip(taken.rest.axes, places, strict=True)]
    spread = np.meshgrid(members, *along, indexing="ij")
    rows = np.empty((len(taken.paired) + len(along), spread[0].size), np.int64)
    rows[list(taken.paired)] = taken.indices[:, spread[0].reshape(-1)]
    free = (axis for axis in range(len(rows)) if axis not in taken.paired)
    for axis, each in zip(free, spread[1:], strict=True):
        rows[axis] = each.reshape(-1)
    return rows
