"""Section writes to one array file: other elements are kept, and each chunk is replaced atomically.

    InWindows    uncompressed chunks in local files     read, changed and written a window of the buffer at a time
    InPlace      the same, on request                   only the runs are written, in place
    Whole        coded chunks, and any other store      decoded, changed and encoded again
    Sharded      shards                                 other chunks are copied as stored

Thakur 1995, section 5.5.1 (writing array sections).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from oocarrays.errors import InputError, SelectionError
from oocarrays.mapping.grid import Index, turned, turned_back
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, lengths
from oocarrays.plan.collective.wanted import Coverage
from oocarrays.plan.sections.write import SectionWritePlan, WriteMethod, plan_section_write, runs_of
from oocarrays.storage.chunks.elements import Needs, Unit, cut, is_fill, overlays, units_of
from oocarrays.storage.chunks.rewriting import UnitWriter, each_of, unit_writer
from oocarrays.storage.codecs.codec import Chain
from oocarrays.storage.files.array_file import ArrayFile, blobs_of, open_array
from oocarrays.storage.journal.texts import UNKEPT, Receipts
from oocarrays.storage.local.blobs import LocalBlob, LocalBlobs, MissingBlob, byte_view, odd_size
from oocarrays.storage.local.pages import Piece, Pool, allocate, on_sectors, shaped
from oocarrays.storage.meter import Meter, watched

RankPiece = tuple[Axes, np.ndarray]
"""A rank's section of a box, and its values: an array of the lengths of the axes."""


@watched(writes=True)
def write_section(
    file: ArrayFile,
    axes: Axes,
    values: np.ndarray,
    *,
    meter: Meter | None = None,
    past_cache: bool = False,
    receipts: Receipts = UNKEPT,
    method: WriteMethod = "auto",
    buffer_bytes: int | None = None,
    requests: int = 1,
) -> SectionWritePlan:
    """Write a section of an array file, and leave the rest unchanged.

    ``method="direct"`` writes runs in place; otherwise each chunk is replaced atomically. At most ``requests`` chunks
    are in progress, within ``buffer_bytes`` beside the values.

    Concurrent writes to the same chunks are allowed from threads of this process to any store, and from other processes
    to local files. A chunk that holds only the fill value is not stored afterwards.
    """
    check_writable(file)
    if values.shape != lengths(axes):
        raise SelectionError(f"values of shape {values.shape} do not fit the section's shape, {lengths(axes)}")
    lying, (axes, values) = replacing(file).lying, _lying(file, axes, values)
    plan = plan_section_write(lying.stored, axes, method=method, buffer_bytes=buffer_bytes, requests=requests)
    units = (Unit(lying.stored.grid, parts, axes, values) for parts in plan.units())
    wanted = (unit for unit in units if not receipts.stays(lying.chunk_key(unit.index)))
    each_of(_writer(lying, plan, meter or Meter(), past_cache, receipts), wanted, plan.at_once)
    return plan


def check_writable(file: ArrayFile) -> None:
    if file.zarr.read_only:
        raise InputError(f"{file.name} is open for reading only: open it with mode='r+' to write to it")


def replacing(file: ArrayFile) -> ArrayFile:
    """Return the file with a codec pipeline that replaces chunks atomically; zarrs writes them in place."""
    if isinstance(file.presence.place, str):
        file.presence.check()
    if file.chain.pipeline != "zarrs":
        return file
    place = file.zarr.store_path
    return replace(file, zarr=open_array(place, mode="r+", unfinished=True), chain=Chain(pipeline="zarr"))


def _lying(file: ArrayFile, axes: Axes, values: np.ndarray) -> tuple[Axes, np.ndarray]:
    order = file.stored.order
    return turned(axes, order), values.transpose(order or range(values.ndim))


def _writer(file: ArrayFile, plan: SectionWritePlan, meter: Meter, past_cache: bool, receipts: Receipts) -> UnitWriter:
    if plan.method == "direct":
        return InPlaceWriter(file, plan.window, meter)
    if file.chain.shard is None and file.stored.local and file.chain.pipeline == "plain":
        return InWindows(file, plan.window, meter, past_cache=past_cache, receipts=receipts)
    return unit_writer(file, meter, receipts)


def write_pieces(
    file: ArrayFile, pieces: Sequence[RankPiece], coverage: Coverage, *, at_once: int = 1, meter: Meter
) -> None:
    """Write sections of several ranks, each with its values, each chunk once, and leave the rest unchanged.

    The coverage tells which written chunks, or chunks in shards, must be read first.
    """
    order, lying = file.stored.order, replacing(file).lying

    def needs(chunks: Coverage) -> Needs:
        return lambda index: chunks.needs(turned_back(index, order))

    units = (unit for piece in pieces for unit in units_of(lying.stored.grid, *_lying(file, *piece)))
    each_of(unit_writer(lying, meter), overlays(units, needs(coverage), needs(coverage.inner)), at_once)


class InWindows(UnitWriter):
    """Writer of uncompressed chunks in local files: changes a window at a time, and replaces chunks atomically."""

    def __init__(
        self,
        file: ArrayFile,
        window: tuple[int, ...],
        meter: Meter,
        *,
        past_cache: bool = False,
        receipts: Receipts = UNKEPT,
    ) -> None:
        super().__init__(file, meter, receipts)
        self.windows = list(_windows(file.stored.grid.chunks, window, file.dtype.itemsize))
        blobs = blobs_of(file.zarr, past_cache=past_cache)
        assert isinstance(blobs, LocalBlobs), "only local files are read and written in part"
        self.blobs = blobs
        self._shape, self._nbytes = window, math.prod(window) * file.dtype.itemsize
        if past_cache:
            self._pool = Pool(allocate)

    def rewrite(self, unit: Unit) -> None:
        key, memory = self.file.chunk_key(unit.index), self._pool.take(self._nbytes)
        buffer = shaped(memory, self._shape, self.file.dtype)
        old = None if unit.whole else self._open(unit.index)
        try:
            pieces = self._pieces(unit, old, buffer)
            if len(self.windows) == 1:
                pieces = self._kept(key, pieces)
            if not self.blobs.put_pieces(key, pieces):
                self.blobs.remove(key)
                self._receipts.absent(key)
                self.meter.add(skipped_chunks=1)
            elif len(self.windows) > 1:
                self._receipts.stored(key, self.file.stored.chunk_bytes)
        finally:
            if old is not None:
                old.close()
        self._pool.give(memory)

    def _kept(self, key: str, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """Yield the only piece of a chunk after recording its receipt."""
        for offset, data in pieces:
            self._receipts.put(key, data)
            yield offset, data

    def _open(self, index: Index) -> LocalBlob | None:
        key = self.file.chunk_key(index)
        try:
            blob = self.blobs.open(key)
        except MissingBlob:
            self.missing.add(index)
            return None
        nbytes, due = blob.size, self.file.stored.chunk_bytes
        if nbytes != due:
            blob.close()
            raise odd_size(blob.name, nbytes, due)
        return blob

    def _pieces(self, unit: Unit, old: LocalBlob | None, buffer: np.ndarray) -> Iterator[Piece]:
        """Yield the new windows of a chunk; none if all hold only the fill value."""
        held_back: list[tuple[int, int]] | None = []
        for box, offset in self.windows:
            data = self._window(unit, box, offset, old, buffer)
            if held_back is not None and is_fill(data, self._fill):
                held_back.append((offset, box.size))
                continue
            yield self._counted(offset, data)
            if held_back:
                buffer[...] = self.file.fill_value
                yield from (self._counted(at, _first(buffer, (size,))) for at, size in held_back)
            held_back = None

    def _counted(self, offset: int, data: np.ndarray) -> Piece:
        self.meter.add(write_requests=1, written_bytes=data.nbytes)
        return offset, byte_view(data)

    def _window(self, unit: Unit, box: Section, offset: int, old: LocalBlob | None, buffer: np.ndarray) -> np.ndarray:
        """Return the new elements of a window: the values themselves if they are laid out as stored."""
        covered = unit.covers(box)
        if covered:
            given = unit.values(box)
            as_stored = given.dtype == self.file.dtype and given.flags.c_contiguous
            if as_stored and (not self.blobs.past_cache or on_sectors(byte_view(given))):
                return given
        data = _first(buffer, box.shape)
        if old is not None:
            old.read_into(offset, byte_view(data))
            self.meter.add(read_requests=1, read_bytes=data.nbytes)
        elif not covered:
            data[...] = self.file.fill_value
        unit.put_in(data, box)
        return data


class InPlaceWriter(InWindows):
    """Writer of runs in place; chunks that are wholly written, missing, or shared by a link are replaced."""

    def rewrite(self, unit: Unit) -> None:
        key = self.file.chunk_key(unit.index)
        if unit.whole or not self.blobs.is_its_own(key):
            super().rewrite(unit)
            return
        old = self._open(unit.index)
        if old is not None:
            old.close()
        starts, data, ends = self._runs(unit)
        runs = zip(starts, [0, *ends], ends, strict=False)
        self.blobs.change(key, ((at, data[start:stop]) for at, start, stop in runs))
        self.meter.add(write_requests=len(starts), written_bytes=len(data))

    def _runs(self, unit: Unit) -> tuple[list[int], memoryview, list[int]]:
        """Return the offset of each run in the chunk, their bytes, and the end of each in these bytes."""
        chunks, size = self.file.stored.grid.chunks, self.file.dtype.itemsize
        box = Section((0,) * len(chunks), chunks)
        _, inside = unit.places(box)
        starts, lengths = runs_of([np.arange(n)[part] for part, n in zip(inside, chunks, strict=True)], chunks)
        data = byte_view(np.ascontiguousarray(unit.values(box), self.file.dtype))
        return (starts * size).tolist(), data, (np.cumsum(lengths) * size).tolist()


def _windows(chunks: tuple[int, ...], window: tuple[int, ...], itemsize: int) -> Iterator[tuple[Section, int]]:
    """Yield the consecutive windows of a chunk, with the byte offset of each."""
    offset = 0
    for box in cut(Section((0,) * len(chunks), chunks), window):
        yield box, offset
        offset += box.size * itemsize


def _first(buffer: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return buffer.reshape(-1)[: math.prod(shape)].reshape(shape)
