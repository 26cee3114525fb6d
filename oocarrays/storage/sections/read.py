"""Sections of one array file, read for any shape of section and chunk.

    chunk       ░░█░░█░░█░░                 the wanted part of a chunk is copied to its place in the result
    result      ███

Thakur 1995, section 5.5.1 (data sieving).

files or shards     ▪ ▪ ▪ ▪          coded bytes of a batch: one call for all of them
decoded             ▬▬▬▬▬▬▬▬         consecutive in a buffer that fits a core's cache
result              ░░█░░█░░         the wanted part of all of them, in one strided copy
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from itertools import product

import numpy as np

from oocarrays.errors import InputError
from oocarrays.mapping.grid import inverse, turned
from oocarrays.mapping.selection import Axes, lengths
from oocarrays.plan.machine import Costs
from oocarrays.plan.sections.read import REQUESTS, SectionPlan
from oocarrays.plan.sections.sieve import BUFFER_BYTES, STORE_BUFFER_BYTES, Method, gap_bytes
from oocarrays.storage.chunks.places import Places
from oocarrays.storage.chunks.reader import ChunkName, ChunkReader
from oocarrays.storage.codecs.codec import decode_into
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.local.pages import can_map, mapped, want
from oocarrays.storage.meter import Meter, watched
from oocarrays.storage.sections.sieved import PendingBatch, SectionReader, taken_buffer


class CodedReader(SectionReader):
    """Reader of planned sections of coded chunks; each chunk is read and decoded once."""

    def _is_little(self) -> bool:
        return self.plan.decoded_bytes < 2**19

    def _ask(self, asked: PendingBatch, places: Places, free: list[np.ndarray]) -> bool:
        """Copy coded bytes from the page cache and start reading the rest; return whether all were there."""
        asked.open(places, self._missing)
        nbytes = asked.nbytes
        self.meter.add(read_requests=len(nbytes), read_bytes=int(nbytes.sum()))
        if nbytes.sum() > self.plan.coded_bytes:
            for file, at, n in zip(asked.file.tolist(), asked.offset.tolist(), nbytes.tolist(), strict=True):
                want(file, at, n)
            return False
        if nbytes.sum():
            asked.buffer = taken_buffer(free, self.plan.coded_bytes)
        if asked.buffer is not None:
            ranges = [asked.file, asked.offset, nbytes, np.cumsum(nbytes) - nbytes]
            asked.left = self._read(asked.buffer, ranges, wait=False)
        return not asked.left

    def _finish(self, asked: PendingBatch, free: list[np.ndarray]) -> None:
        """Wait for the remaining bytes, decode them, and copy the wanted elements."""
        while asked.buffer is not None and asked.left:
            asked.left = self._read(asked.buffer, asked.left, wait=True)
        (part,) = asked.batch.parts
        decoded = taken_buffer(free, asked.batch.buffer_bytes)
        into, size = self._bytes if decoded is None else decoded, self.file.stored.chunk_bytes
        rooms = self._places(asked.batch, part)[asked.here, 0].tolist()
        indices = list(product(*asked.batch.chunks))
        for number, coded, at in zip(asked.here.tolist(), self._coded(asked), rooms, strict=True):
            name = ChunkName(self.file, indices[number])
            decode_into(self.file.chain.compressor, coded, into[at : at + size], name)
        self.meter.add(decoded_bytes=len(rooms) * size)
        self._take(asked.batch, part, decoded, asked.missing)
        asked.close()
        free += [buffer for buffer in (asked.buffer, decoded) if buffer is not None]

    def _coded(self, asked: PendingBatch) -> Iterator[np.ndarray]:
        nbytes = asked.nbytes
        if asked.buffer is not None:
            ends = np.cumsum(nbytes)
            yield from (
                asked.buffer[low:high] for low, high in zip((ends - nbytes).tolist(), ends.tolist(), strict=True)
            )
            return
        for file, at, n in zip(asked.file.tolist(), asked.offset.tolist(), nbytes.tolist(), strict=True):
            yield self._pages(file, at, n)

    def _pages(self, file: int, offset: int, nbytes: int) -> np.ndarray:
        """Return the coded bytes of a large chunk, mapped if the system supports it."""
        if can_map():
            return mapped(file, self.file.name, offset, nbytes)
        data = np.empty(nbytes, np.uint8)
        ranges = [np.array([each]) for each in (file, offset, nbytes, 0)]
        while ranges:
            ranges = self._read(data, ranges, wait=True)
        return data


@watched(writes=False)
def read_section(
    file: ArrayFile,
    axes: Axes,
    out: np.ndarray | None = None,
    *,
    meter: Meter | None = None,
    threads: int = 2,
    past_cache: bool = False,
    method: Method = "auto",
    buffer_bytes: int | None = None,
    requests: int = REQUESTS,
    costs: Costs | None = None,
) -> np.ndarray:
    """Read a section of an array file, as `section_plan` plans it: ``result.shape == lengths(axes)``."""
    order, file, axes = file.stored.order, file.lying, turned(axes, file.stored.order)
    room = _room(lengths(axes), file.dtype) if out is None else out if order is None else out.transpose(order)
    meter = meter or Meter()
    plan = section_plan(file, axes, room, method=method, buffer_bytes=buffer_bytes, requests=requests, costs=costs)
    if plan.chunks:
        _fill(file, plan, room, meter, requests=requests, threads=threads, past_cache=past_cache)
    if out is not None:
        return out
    return room if order is None else room.transpose(inverse(order))


def _fill(
    file: ArrayFile, plan: SectionPlan, out: np.ndarray, meter: Meter, *, requests: int, threads: int, past_cache: bool
) -> None:
    """Execute a plan, with axes in storage order."""
    if file.stored.local and file.stored.coded:
        CodedReader(file, plan, out, meter).read_local(threads)
    elif file.stored.local:
        SectionReader(file, plan, out, meter, past_cache=past_cache).read_local(threads)
    elif file.stored.coded:
        list(read_chunks(ChunkReader(file, meter, requests=plan.under_way(requests)), [plan.axes], [out]))
    else:
        SectionReader(file, plan, out, meter).read_store(requests)


def section_plan(
    file: ArrayFile,
    axes: Axes,
    out: np.ndarray | None = None,
    *,
    method: Method = "auto",
    buffer_bytes: int | None = None,
    requests: int = REQUESTS,
    costs: Costs | None = None,
) -> SectionPlan:
    """Return the plan by which `read_section` reads a section, with axes in storage order.

    ``method="direct"`` requests each contiguous run, ``"sieve"`` the whole span of the wanted elements, ``"auto"`` the
    cheaper one, by ``costs``; coded chunks are read whole. At most four buffers of ``buffer_bytes`` are used, and
    ``requests`` are in flight in stores other than local files.
    """
    stored, axes, costs = file.stored.lying, turned(axes, file.stored.order), costs or Costs()
    gap = gap_bytes(method, stored, costs, requests)
    packed = stored.local and (out is None or (out.flags.c_contiguous and out.dtype == file.dtype))
    buffer_bytes = buffer_bytes or (BUFFER_BYTES if stored.local else STORE_BUFFER_BYTES)
    few = math.prod(lengths(axes)) <= 2**14  # a plan of them takes 400 KiB
    small = few and all(isinstance(taken, range) for taken in axes)
    make = _kept if small else SectionPlan
    return make(stored=stored, axes=axes, gap=gap, buffer_bytes=buffer_bytes, packed=packed, costs=costs)


_kept = lru_cache(16)(SectionPlan)
"""Cached plan of a small section, which takes as long to plan as to read."""


def _room(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError) as error:  # numpy raises ValueError beyond the address space
        nbytes = math.prod(shape) * dtype.itemsize
        raise InputError(f"a section of shape {shape} needs {nbytes} bytes of memory: read it in parts") from error


def read_chunks(reader: ChunkReader, sections: Sequence[Axes], rooms: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Read sections of coded chunks in order, each into the next of ``rooms``: each chunk whole, once for each section.

    Axes are in storage order. A chunk that is whole and contiguous in its room is decoded there.
    """
    each, shape = [list(reader.grid.placed(axes)) for axes in sections], reader.grid.chunks
    buffer: np.ndarray | None = None
    out = part = np.empty(0, reader.dtype)
    straight = False

    def decoded() -> Iterator[np.ndarray]:
        """Yield the memory that the next chunk is decoded into."""
        nonlocal buffer, straight
        while True:
            straight = part.shape == shape and part.flags.c_contiguous and part.dtype == reader.dtype
            if not straight and buffer is None:
                buffer = np.empty(shape, reader.dtype)
            yield part if straight or buffer is None else buffer

    with closing(reader.whole([index for chunks in each for index, *_ in chunks], decoded())) as come:  # type: ignore[type-var]
        for chunks, out in zip(each, rooms, strict=True):
            for _, there, inside in chunks:
                part = out[there]
                _, chunk = next(come)
                if chunk is None:
                    part[...] = reader.file.fill_value
                elif not straight:
                    part[...] = chunk[inside]
            yield out
