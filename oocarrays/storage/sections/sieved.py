"""Section reads of an uncompressed array by byte ranges, in rounds.

    request round 0 ─► 1 ─► 2 ─► sieve 0, request 3 ─► sieve 1 …      uncached bytes are in flight meanwhile

Thakur 1995, section 5.5.1 (data sieving).
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice, product
from typing import Any, TypeVar

import numpy as np
from zarr.abc.store import RangeByteRequest

from oocarrays.errors import CorruptChunkError, StoreFailure
from oocarrays.mapping.grid import Index
from oocarrays.plan.sections.read import SectionPlan
from oocarrays.plan.sections.sieve import IN_FLIGHT, Batch, Part, Sieve
from oocarrays.storage.chunks.places import Places, ShardedBlobs
from oocarrays.storage.files.array_file import ArrayFile, blobs_of
from oocarrays.storage.files.presence import Missing
from oocarrays.storage.local.pages import HUGE_BYTES, allocate, cold_ranges, copy, read_past_cache, want
from oocarrays.storage.local.ranges import NOT_READY, read_ranges
from oocarrays.storage.meter import Meter

T = TypeVar("T")


class PendingBatch:
    """Batch with reads in progress."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.buffer: np.ndarray | None = None
        """Buffer of ranges that are not read directly into the result."""
        self.files: dict[str, int] = {}
        """Open files by key; -1 for a missing file."""
        self.missing: list[Index] = []
        """Indexes of chunks that are not stored."""
        self.here = self.file = self.offset = self.nbytes = np.zeros(0, np.int64)
        """For stored chunks: number in the batch, file descriptor, offset in the file, and size in bytes."""
        self.left: list[np.ndarray] = []
        """Files, offsets, lengths and places of the ranges not yet read."""

    def open(self, places: Places, missing: Missing) -> None:
        """Find the chunks of the batch."""
        self.here, self.file, self.offset, self.nbytes = places.find(self.batch.chunks, self.files)
        if len(self.here) < self.batch.size:
            stored = set(self.here.tolist())
            self.missing = [index for n, index in enumerate(product(*self.batch.chunks)) if n not in stored]
            missing.add(*self.missing)

    def into(self, part: Part, result: np.ndarray) -> np.ndarray:
        """Return the bytes that receive a part's ranges: of the result, or of the buffer."""
        return result if part.straight or self.buffer is None else self.buffer

    def close(self) -> None:
        for file in self.files.values():
            if file >= 0:
                os.close(file)
        self.files = {}


class SectionReader:
    """Reader that executes a section plan into ``out``."""

    def __init__(
        self, file: ArrayFile, plan: SectionPlan, out: np.ndarray, meter: Meter, *, past_cache: bool = False
    ) -> None:
        self.file = file
        self.plan = plan
        self.out = out
        self.meter = meter
        self._past_cache = past_cache
        self._missing = Missing(file.presence, meter, file.axes)
        self._bytes = out.reshape(-1).view(np.uint8) if plan.packed else np.empty(0, np.uint8)
        self._steps = tuple(math.prod(out.shape[axis + 1 :]) * out.itemsize for axis in range(out.ndim))

    def read_local(self, threads: int) -> None:
        """Read from local files, with at most ``threads`` threads, and no more than batches."""
        places, batches = Places(self.file, self.meter, scattered=self.plan.scattered), self.plan.batches()
        first = [*islice(batches, 1 if self._is_little() else threads)]
        with self._missing:
            if len(first) < 2:
                self._work(chain(first, batches), places, IN_FLIGHT)
            else:
                self._work_together(chain(first, batches), places, len(first))

    def _work_together(self, batches: Iterator[Batch], places: Places, threads: int) -> None:
        shared = SharedQueue(batches)
        with ThreadPoolExecutor(threads, "sieve") as pool:
            work = [pool.submit(self._work, shared, places, max(IN_FLIGHT // threads, 1)) for _ in range(threads)]
            for each in work:
                each.add_done_callback(shared.end_if_failed)
            for each in work:
                each.result()

    def _is_little(self) -> bool:
        """Return whether one thread reads the section: each request takes as long as a page."""
        return self.plan.requests * 4096 + self.plan.asked_bytes < 2**22

    def _work(self, batches: Iterable[Batch], places: Places, most: int) -> None:
        waiting: deque[PendingBatch] = deque()
        free: list[np.ndarray] = []
        try:
            for batch in batches:
                while len(waiting) >= most:
                    self._finish(waiting[0], free)
                    waiting.popleft()
                waiting.append(PendingBatch(batch))
                if self._ask(waiting[-1], places, free):
                    self._finish(waiting[-1], free)
                    waiting.pop()
            while waiting:
                self._finish(waiting[0], free)
                waiting.popleft()
        finally:
            for asked in waiting:
                asked.close()

    def _ask(self, asked: PendingBatch, places: Places, free: list[np.ndarray]) -> bool:
        """Copy the first part from the page cache and start reading the rest; return whether nothing remains."""
        asked.open(places, self._missing)
        asked.buffer, part = taken_buffer(free, asked.batch.buffer_bytes), asked.batch.parts[0]
        asked.left = self._read(asked.into(part, self._bytes), self._begun(asked, part), wait=False)
        if asked.left:
            _announce(asked)
        return not asked.left

    def _finish(self, asked: PendingBatch, free: list[np.ndarray]) -> None:
        """Wait for the remaining bytes and copy the wanted elements, part by part."""
        for number, part in enumerate(asked.batch.parts):
            left, into = asked.left if number == 0 else self._begun(asked, part), asked.into(part, self._bytes)
            while left:
                left = self._read(into, left, wait=True)
            self._take(asked.batch, part, asked.buffer, asked.missing)
        asked.close()
        if asked.buffer is not None:
            free.append(asked.buffer)

    def _begun(self, asked: PendingBatch, part: Part) -> list[np.ndarray]:
        """Return the ranges of a part, less cold ones, which are read past the cache: a trial read would fill it."""
        ranges = self._ranges(asked, part)
        return _without_cold(ranges, asked.into(part, self._bytes)) if self._past_cache else ranges

    def _ranges(self, asked: PendingBatch, part: Part) -> list[np.ndarray]:
        """Return the files, offsets, lengths and places of the ranges of a part."""
        sieve, chunks = part.sieve, len(asked.here)
        self.meter.add(read_requests=chunks * sieve.requests, read_bytes=chunks * sieve.asked_bytes)
        return [
            np.repeat(asked.file, sieve.requests),
            _sums(asked.offset, sieve.starts).reshape(-1),
            _sums(np.zeros(chunks, np.int64), sieve.lengths).reshape(-1),
            self._places(asked.batch, part)[asked.here].reshape(-1),
        ]

    def _places(self, batch: Batch, part: Part) -> np.ndarray:
        """Return the byte offset of each chunk's ranges in the destination: ``shape == (chunks, requests)``."""
        sieve = part.sieve
        if not part.straight:
            return _sums(np.arange(batch.size) * sieve.held_bytes, sieve.places)
        chunk, run = np.zeros(1, np.int64), np.zeros(1, np.int64)
        for axis, (first, at, step) in enumerate(zip(batch.first, part.at, self._steps, strict=True)):
            inside = sieve.shape[axis]
            numbers = first + at + np.arange(len(batch.chunks[axis])) * inside
            chunk = _sums(chunk, numbers * step).reshape(-1)
            if axis < sieve.run_axis:
                run = _sums(run, np.arange(inside) * step).reshape(-1)
        return _sums(chunk, run)

    def _read(self, into: np.ndarray, ranges: list[np.ndarray], *, wait: bool) -> list[np.ndarray]:
        """Read ranges; return those not yet read, or read only in part."""
        files, offsets, nbytes, places = ranges
        got = read_ranges(files, offsets, nbytes, into, places, wait=wait)
        part = np.flatnonzero(got != nbytes)
        if not len(part):
            return []
        got = got[part]
        hard = [number for number in got[got < 0].tolist() if wait or number not in NOT_READY]
        if hard:
            raise StoreFailure(f"cannot read {self.file.name}: {os.strerror(-hard[0])}")
        if not got.all():
            raise CorruptChunkError(f"a chunk of {self.file.name} was truncated while it was read")
        return _rest([each[part] for each in ranges], np.maximum(got, 0))

    def read_store(self, requests: int) -> None:
        """Read from any store, with at most ``requests`` in flight, or as many as the buffers hold."""
        blobs: Any = blobs_of(self.file.zarr, requests=self.plan.under_way(requests))
        if self.file.chain.shard:
            blobs = ShardedBlobs(blobs, self.file.chain.shard, self.meter)
        free: list[np.ndarray] = []
        with self._missing:
            come = blobs.fetched(self._wanted())
            for each in self.plan.batches():
                for number, part in enumerate(each.parts):
                    buffer = taken_buffer(free, each.buffer_bytes)
                    missing = self._receive(each, part, buffer, come)
                    self._missing.add(*(() if number else missing))
                    self._take(each, part, buffer, missing)
                    free = [] if buffer is None else [buffer]

    def _wanted(self) -> Iterator[tuple[Any, RangeByteRequest]]:
        for batch in self.plan.batches():
            for part in batch.parts:
                starts, nbytes = part.sieve.starts.tolist(), part.sieve.lengths.tolist()
                for index in product(*batch.chunks):
                    key = self.file.place_of(index)
                    yield from ((key, RangeByteRequest(at, at + n)) for at, n in zip(starts, nbytes, strict=True))

    def _receive(
        self, batch: Batch, part: Part, buffer: np.ndarray | None, come: Iterator[np.ndarray | None]
    ) -> list[Index]:
        """Copy received ranges to their places; return the missing chunks."""
        into, missing, nbytes = self._bytes if buffer is None else buffer, [], part.sieve.lengths.tolist()
        for index, places in zip(product(*batch.chunks), self._places(batch, part).tolist(), strict=True):
            data = [next(come) for _ in nbytes]
            if any(each is None for each in data):
                missing.append(index)
                continue
            for each, place, n in zip(data, places, nbytes, strict=True):
                if each is None or len(each) != n:
                    raise CorruptChunkError(f"chunk {index} of {self.file.name} is truncated")
                into[place : place + n] = each
            self.meter.add(read_requests=len(nbytes), read_bytes=sum(nbytes))
        return missing

    def _take(self, batch: Batch, part: Part, buffer: np.ndarray | None, missing: list[Index]) -> None:
        """Copy the wanted elements from a buffer to the result, and the fill value for missing chunks."""
        inside = part.sieve.counts
        lower = tuple(first + at for first, at in zip(batch.first, part.at, strict=True))
        if buffer is not None and not part.straight and len(missing) < batch.size:
            counts = tuple(map(len, batch.chunks))
            place: Any = tuple(slice(l, l + g * n) for l, g, n in zip(lower, counts, inside, strict=True))
            _sieved(self.out[(*place, ...)], part.sieve, counts, buffer.view(self.file.dtype))
        for index in missing:
            numbers = (chunks.index(i) for chunks, i in zip(batch.chunks, index, strict=True))
            place = tuple(slice(l + i * n, l + (i + 1) * n) for l, i, n in zip(lower, numbers, inside, strict=True))
            self.out[(*place, ...)] = self.file.fill_value


def _without_cold(ranges: list[np.ndarray], into: np.ndarray) -> list[np.ndarray]:
    """Read uncached ranges past the cache; return the remaining ranges."""
    files, offsets, nbytes, places = ranges
    cold, got = cold_ranges(files, offsets, nbytes), np.zeros(len(nbytes), np.int64)
    if cold.any():
        got[cold] = read_past_cache(files[cold], offsets[cold], nbytes[cold], into, places[cold])
    left = np.flatnonzero(got != nbytes)
    return _rest([each[left] for each in ranges], got[left])


def _rest(ranges: list[np.ndarray], done: np.ndarray) -> list[np.ndarray]:
    files, offsets, nbytes, places = ranges
    return [files, offsets + done, nbytes - done, places + done]


def _announce(asked: PendingBatch) -> None:
    """Start read-ahead of the other parts; the system does that itself for contiguous ranges."""
    for part in asked.batch.parts[1:]:
        if part.sieve.requests > 1:
            for file, offset in zip(asked.file.tolist(), asked.offset.tolist(), strict=True):
                for start, nbytes in zip(part.sieve.starts.tolist(), part.sieve.lengths.tolist(), strict=True):
                    want(file, offset + start, nbytes)


class SharedQueue(Iterator[T]):
    """Work shared by several threads; after a failure it is empty for the others."""

    def __init__(self, source: Iterator[T]) -> None:
        self._source = source
        self._lock = threading.Lock()

    def __next__(self) -> T:
        with self._lock:
            return next(self._source)

    def end_if_failed(self, work: Future[None]) -> None:
        if work.exception():
            with self._lock:
                self._source = iter(())


def _sieved(into: np.ndarray, sieve: Sieve, counts: Index, buffer: np.ndarray) -> None:
    """Copy the wanted elements of the chunks in a buffer to a part of the result, in one strided copy."""
    ndim = len(counts)
    apart = tuple(math.prod(counts[axis + 1 :]) * sieve.held_bytes for axis in range(ndim))
    data: np.ndarray = np.ndarray(
        counts + sieve.shape, buffer.dtype, buffer, sieve.before_bytes, strides=apart + sieve.strides
    )
    if sieve.picked_bytes:
        picks = (np.arange(n) if pick is None else pick for n, pick in zip(sieve.shape, sieve.picks, strict=True))
        data = data[np.ix_(*map(np.arange, counts), *picks)]
    into = into.reshape([n for pair in zip(counts, sieve.counts, strict=True) for n in pair])
    copy(into, data.transpose([axis for a in range(ndim) for axis in (a, a + ndim)]))


def _sums(outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Return all pairwise sums: ``shape == (len(outer), len(inner))``."""
    return outer[:, None] + inner


def taken_buffer(free: list[np.ndarray], nbytes: int) -> np.ndarray | None:
    """Return memory for a round, reused if possible: new pages cost as much as reading."""
    if not nbytes:
        return None
    for number, buffer in enumerate(free):
        if len(buffer) >= nbytes:
            return free.pop(number)
    free.clear()
    return allocate(nbytes) if nbytes >= HUGE_BYTES else np.empty(nbytes, np.uint8)
