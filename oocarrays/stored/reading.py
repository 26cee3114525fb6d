"""Reads of a section of a stored array, at once or ahead in a thread; and access to points, each chunk once.

prefetch 0 ─┬─ prefetch 1 ── compute 0 ─┬─ prefetch 2 ── compute 1 ─┬─ …
    thread      └─ read 0 ── read 1 ────────┴─ read 2 ──────────────────┴─ …      at most `read-ahead` bytes ahead

Thakur 1995, section 5.5.2 and Figure 5.8 (data prefetching).
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import zarr

from oocarrays.errors import BudgetError, SelectionError
from oocarrays.graphs import settings
from oocarrays.graphs.events import warn_of_missing
from oocarrays.graphs.settings import setting
from oocarrays.mapping.along import AxisOverGrid
from oocarrays.mapping.casting import TEXTS, lost_value, misfit
from oocarrays.mapping.given import check_unmasked, chosen
from oocarrays.mapping.points import Points, by_chunk
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Selection, Taken, lengths
from oocarrays.plan.sections.read import SectionPlan
from oocarrays.plan.sections.sieve import METHODS, READ_BUFFER_BYTES, Method
from oocarrays.plan.sections.write import SectionWritePlan, WriteMethod
from oocarrays.storage.chunks.elements import PointsUnit
from oocarrays.storage.chunks.rewriting import each_of, unit_writer
from oocarrays.storage.files.array_file import ArrayFile, describe
from oocarrays.storage.meter import WATCHERS, Meter, new_meter
from oocarrays.storage.sections.read import read_section, section_plan
from oocarrays.storage.sections.runs import RunReader, read_runs
from oocarrays.storage.sections.write import check_writable, replacing, write_section
from oocarrays.storage.stores.sessions import settled


def write(
    file: ArrayFile, section: Any, values: Any, *, method: WriteMethod = "auto", memory: int | float | str | None = None
) -> SectionWritePlan:
    """Write values to a section of an array described as written; see `oocarrays.OutOfCoreArray.write`."""
    check_writable(file)
    taken = selection_of(section, file.stored.grid.shape)
    buffer_bytes = None if memory is None else settings.size_in_bytes(memory, "memory")
    data = taken.spread(cast(values, file.dtype))
    try:
        return write_section(
            file, taken.axes, data, meter=new_meter(), method=method, buffer_bytes=buffer_bytes, requests=_at_once(file)
        )
    finally:
        settled(file.zarr.store_path.store)


def selection_of(section: Any, shape: tuple[int, ...]) -> Selection:
    """Return the selection of an index, or a `Section`, in an array of some shape."""
    if isinstance(section, Selection):
        return section
    if not isinstance(section, Section):
        return Selection.of(section, shape)
    fits = len(section.upper) == len(shape) and all(
        lower >= 0 and upper <= n for lower, upper, n in zip(section.lower, section.upper, shape, strict=True)
    )
    if not fits:
        raise SelectionError(f"{section} is not a section of an array of shape {shape}")
    return Selection.of_section(section)


def cast(values: Any, dtype: np.dtype) -> np.ndarray:
    """Return values cast for elements of a type; an array of another type is cast when it is written."""
    check_unmasked(values, error=SelectionError)
    try:
        given = np.asarray(values)
        if dtype.kind in TEXTS and given.dtype.kind in "biufcmM":
            given = given.astype(dtype.kind)  # as long as it is
        lost = lost_value(given, dtype)
        if lost is None:
            numeric = given.dtype.kind in "biufcmM" and np.can_cast(given.dtype, dtype, "unsafe")
            with np.errstate(over="raise", invalid="raise"):
                return given if numeric else np.asarray(values, dtype)
    except (ValueError, TypeError, ArithmeticError, RuntimeError) as error:
        raise SelectionError(f"values of type {type(values).__name__} cannot be stored as {dtype}: {error}") from error
    advice = f"give values that fit, or cast them with astype('{dtype}')"
    raise SelectionError(f"the value {lost} ({given.dtype}) cannot be stored as {dtype}: {advice}")


class Prefetched:
    """Section that is read ahead. Created by `oocarrays.OutOfCoreArray.prefetch`."""

    def __init__(self, read: Callable[[], Any], nbytes: int, ahead: ReadAhead) -> None:
        self.nbytes = nbytes
        """Bytes of the section."""
        self._read: Callable[[], Any] | None = read
        self._future: Future[Any] | None = None
        self._ahead = ahead
        self._free: Callable[[], object] = lambda: None
        """Stop counting the section as read ahead: once it begins to be, its `weakref.finalize`."""

    def result(self, timeout: float | None = None) -> Any:
        """Return the section as a numpy array; if the thread has not begun it, read it here."""
        with self._ahead.lock:
            read, self._read = self._read, None
            future = self._future = self._future if read is None else Future()
        if future is None:
            raise CancelledError("this section was cancelled: prefetch it again")
        if read is not None:
            try:
                future.set_result(read())
            except BaseException as error:  # noqa: BLE001  reported by the result
                future.set_exception(error)
        try:
            return future.result(timeout)
        finally:
            if future.done():
                self._free()

    def done(self) -> bool:
        """Return whether `result` does not wait."""
        return self._future is not None and self._future.done()

    def cancel(self) -> bool:
        """Cancel the read and release its memory; return whether it had not been read."""
        with self._ahead.lock:
            read, self._read, future, self._future = self._read, None, self._future, None
        unread = read is not None or (future is not None and future.cancel())
        self._free()
        return unread


class ReadAhead:
    """Read-ahead of a process: one thread, in the order of requests."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # a dropped section may be collected during any call
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: deque[weakref.ref[Prefetched]] = deque()
        self._bytes = self._most = 0

    def add(self, read: Callable[[], Any], nbytes: int, most: int) -> Prefetched:
        """Read a section as soon as at most ``most`` bytes are ahead, itself included."""
        section = Prefetched(read, nbytes, self)
        with self.lock:
            self._most = most
            if nbytes <= most:
                self._waiting.append(weakref.ref(section))
            self._begin()
        return section

    def _begin(self) -> None:
        while self._waiting:
            section = self._waiting[0]()
            if section is not None and section._read is not None and self._bytes + section.nbytes > self._most:
                return
            self._waiting.popleft()
            if section is not None and section._read is not None:
                self._pool = self._pool or ThreadPoolExecutor(1, "read-ahead")
                self._bytes += section.nbytes
                section._free = weakref.finalize(section, self._freed, section.nbytes)
                section._future, section._read = self._pool.submit(section._read), None

    def _freed(self, nbytes: int) -> None:
        with self.lock:
            self._bytes -= nbytes
            self._begin()


AHEAD = ReadAhead()
"""Read-ahead of this process, with one count of bytes."""


def read(
    array: zarr.Array[Any] | ArrayFile,
    taken: Selection,
    *,
    method: Method = "auto",
    out: np.ndarray | None = None,
    meter: Meter | None = None,
    runs: RunReader | None = None,
) -> Any:
    """Read the selected elements of an array; see `oocarrays.OutOfCoreArray.read`."""
    file, meter = array if isinstance(array, ArrayFile) else describe(array), meter or new_meter()
    read_as = _read_into(file, taken, method, out, meter, runs)
    warn_of_missing(meter, file.presence.name)
    return read_as


def read_small(reader: RunReader, key: Any) -> Any:
    """Read a section as ``a[key]`` if it is one run of each of a few chunks; otherwise return None."""
    if WATCHERS:
        return None
    meter = new_meter()
    found = reader.read(key if type(key) is tuple else (key,), meter)
    if found is None:
        return None
    if meter.warned_chunks:
        warn_of_missing(meter, reader.file.presence.name)
    return found[()]


def _read_into(
    file: ArrayFile, taken: Selection, method: Method, out: np.ndarray | None, meter: Meter, runs: RunReader | None
) -> Any:
    chosen(method, "method", METHODS)
    found = read_runs(file, taken.axes, meter, runs) if out is None else None
    if found is not None:
        return taken.arranged(found)[()]
    how: Any = {"meter": meter, "method": method, "threads": settings.local_cores(), **_ways(file)}
    if out is None:
        return taken.arranged(read_section(file, taken.axes, **how))[()]
    if not isinstance(out, np.ndarray):
        raise SelectionError(f"out is of type {type(out).__name__}: pass a NumPy array of shape {taken.shape}")
    if out.shape != taken.shape:
        raise SelectionError(f"out has shape {out.shape}; the selection has {taken.shape}")
    plain = all(isinstance(stands, slice) and stands == slice(None) for stands in taken.order)
    if plain and taken.shape == lengths(taken.axes) and np.can_cast(file.dtype, out.dtype, "safe"):
        return read_section(file, taken.axes, out, **how)
    found = taken.arranged(read_section(file, taken.axes, **how))
    unfit = misfit(found, out.dtype)
    if unfit is not None:
        raise SelectionError(f"{unfit} does not fit out= of dtype {out.dtype}: pass an array of dtype {file.dtype}")
    out[...] = found
    return out


def plan(array: zarr.Array, taken: Selection, *, method: Method = "auto") -> SectionPlan:
    file = describe(array)
    return section_plan(file, taken.axes, method=method, **_ways(file))


def _ways(file: ArrayFile) -> dict[str, Any]:
    nbytes, default = setting("sieve-buffer"), READ_BUFFER_BYTES if file.stored.local else None
    return {
        "buffer_bytes": default if nbytes is None else settings.size_in_bytes(nbytes, "sieve-buffer"),
        "requests": setting("requests") if file.stored.remote else 16,
        "costs": settings.set_costs(),
    }


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
