"""Reading a section of a plain array by byte ranges, a round after the other.

    ask round 0 ─► ask 1 ─► ask 2 ─► sieve 0, ask 3 ─► sieve 1 …      what is not in the cache is on its way meanwhile

Thakur 1995, section 5.5.1 (data sieving).
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np
from zarr.abc.store import RangeByteRequest

from oocarrays.errors import CorruptChunkError, StoreFailure
from oocarrays.plan.sections import IN_FLIGHT, Round, SectionPlan
from oocarrays.storage.array_file import ArrayFile
from oocarrays.storage.blobs import blobs_of
from oocarrays.storage.meter import Meter
from oocarrays.storage.ranges import NOT_READY, read_ranges
from oocarrays.storage.shards import ShardedBlobs, ShardKey

Index = tuple[int, ...]
ALONE_BYTES = 2**19
"""A section of which less is asked is read by one thread."""
PAGE = 4096


class Places:
    """Where chunks lie in local files: an open file, and the offset in it."""

    def __init__(self, file: ArrayFile, meter: Meter) -> None:
        self._file = file
        self._blobs: Any = blobs_of(file.zarr)
        self._root = self._blobs.root
        self._shard = file.chain.shard
        self._indices = ShardedBlobs(self._blobs, self._shard, meter) if self._shard else None

    def opened(self, index: Index, files: dict[str, int]) -> tuple[int, int] | None:
        """A chunk's file, and where it begins in it; None where it is not stored.

        Parameters
        ----------
        files : dict
            Files that are open already, by their keys; what is opened is added.
        """
        if self._shard is None or self._indices is None:
            key, offset, nbytes = self._file.chunk_key(index), 0, self._file.stored.chunk_bytes
        else:
            shard, number = self._shard.place(index)
            key = self._file.chunk_key(shard)
            place = self._indices.place(ShardKey(key, number))
            if place is None:
                return None
            offset, nbytes = place
        if key not in files:
            files[key] = self._open(key)
        return None if files[key] < 0 else (self._checked(key, files[key], offset, nbytes), offset)

    def _open(self, key: str) -> int:
        """An open file; -1 where there is none."""
        try:
            return os.open(os.path.join(self._root, key), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return -1
        except OSError as error:
            raise StoreFailure(f"cannot open {os.path.join(self._root, key)}: {error.strerror}") from error

    def _checked(self, key: str, file: int, offset: int, nbytes: int) -> int:
        size, expected = os.fstat(file).st_size, self._file.stored.chunk_bytes
        if self._shard is None and size != expected:
            raise CorruptChunkError(f"{self._root}/{key} has {size} bytes; a chunk has {expected}")
        if offset + nbytes > size:
            raise CorruptChunkError(
                f"{self._root}/{key} is cut short: it has {size} bytes, its index says {offset + nbytes}"
            )
        if nbytes != expected:
            raise CorruptChunkError(f"a chunk in {self._root}/{key} has {nbytes} bytes; a chunk has {expected}")
        return file


class Asked:
    """A round that is under way."""

    def __init__(self, each: Round, buffer: np.ndarray | None) -> None:
        self.round = each
        self.buffer = buffer
        self.files: dict[str, int] = {}
        self.missing: list[Index] = []
        self.ranges: list[np.ndarray] = []
        """Files, offsets, lengths and places of what has not come yet."""

    def close(self) -> None:
        """Close its files."""
        for file in self.files.values():
            if file >= 0:
                os.close(file)
        self.files = {}


class SectionReader:
    """Reads what a plan says into ``out``.

    Parameters
    ----------
    out : numpy.ndarray
        In one piece, in C order, where the plan says so.
    """

    def __init__(self, file: ArrayFile, plan: SectionPlan, out: np.ndarray, meter: Meter) -> None:
        self.file = file
        self.plan = plan
        self.out = out
        self.meter = meter
        self._bytes = out.reshape(-1).view(np.uint8) if plan.packed else np.empty(0, np.uint8)
        self._steps = tuple(math.prod(out.shape[axis + 1 :]) * out.itemsize for axis in range(out.ndim))

    # -------------------------------------------------------------------------------------------- local files

    def read_local(self, threads: int) -> None:
        """Read from local files, with so many threads."""
        rounds, lock = self.plan.rounds(), threading.Lock()
        places = Places(self.file, self.meter)

        def taken() -> Iterator[Round]:
            while True:
                with lock:
                    each = next(rounds, None)
                if each is None:
                    return
                yield each

        if self.plan.requests * PAGE + self.plan.asked_bytes < ALONE_BYTES or threads < 2:
            self._work(rounds, places, IN_FLIGHT)
            return
        with ThreadPoolExecutor(threads, "sieve") as pool:
            work = [pool.submit(self._work, taken(), places, IN_FLIGHT // threads) for _ in range(threads)]
            try:
                for each in work:
                    each.result()
            except BaseException:
                with lock:
                    deque(rounds, 0)
                raise

    def _work(self, rounds: Iterator[Round], places: Places, most: int) -> None:
        waiting: deque[Asked] = deque()
        free: list[np.ndarray] = []
        try:
            for each in rounds:
                while len(waiting) >= most:
                    self._finish(waiting.popleft(), free)
                asked = Asked(each, _buffer(free, each.held_bytes))
                waiting.append(asked)
                self._ask(asked, places)
                if not asked.ranges:
                    self._finish(waiting.pop(), free)
            while waiting:
                self._finish(waiting.popleft(), free)
        finally:
            for asked in waiting:
                asked.close()

    def _ask(self, asked: Asked, places: Places) -> None:
        """Copy what the cache has, and let the device bring the rest."""
        each = asked.round
        opened = [places.opened(index, asked.files) for index in product(*each.chunks)]
        asked.missing = [index for index, place in zip(product(*each.chunks), opened, strict=True) if place is None]
        here = np.array([number for number, place in enumerate(opened) if place is not None], np.int64)
        if not len(here):
            return
        where = np.array([place for place in opened if place is not None], np.int64)
        sieve = each.sieve
        count = len(here) * sieve.requests
        ranges = [
            np.repeat(where[:, 0], sieve.requests),
            (where[:, 1, None] + sieve.starts).reshape(-1),
            np.broadcast_to(sieve.lengths, (len(here), sieve.requests)).reshape(-1),
            self._places(each)[here].reshape(-1),
        ]
        self.meter.add(read_requests=count, read_bytes=len(here) * sieve.asked_bytes)
        into = self._bytes if asked.buffer is None else asked.buffer
        got = read_ranges(ranges[0], ranges[1], ranges[2], into, ranges[3], wait=False)
        asked.ranges = self._left(ranges, got)

    def _places(self, each: Round) -> np.ndarray:
        """Where the ranges of each chunk go, in bytes: ``shape == (chunks, requests)``."""
        if not each.straight:
            return np.arange(each.count)[:, None] * each.sieve.held_bytes + each.sieve.places
        chunk = np.zeros(1, np.int64)
        run = np.zeros(1, np.int64)
        for axis, (first, step, inside) in enumerate(zip(each.first, self._steps, each.sieve.shape, strict=True)):
            chunk = (chunk[:, None] + (first + np.arange(len(each.chunks[axis])) * inside) * step).reshape(-1)
            if axis < each.sieve.run_axis:
                run = (run[:, None] + np.arange(inside) * step).reshape(-1)
        return chunk[:, None] + run

    def _left(self, ranges: list[np.ndarray], got: np.ndarray) -> list[np.ndarray]:
        """What has not come, or not wholly."""
        failed = got[got < 0]
        hard = failed[~np.isin(failed, NOT_READY)]
        if len(hard):
            raise StoreFailure(f"cannot read {self.file.name}: {os.strerror(-int(hard[0]))}")
        part = np.flatnonzero(got != ranges[2])
        if not len(part):
            return []
        files, offsets, lengths, places = (each[part] for each in ranges)
        done = np.maximum(got[part], 0)
        return [files, offsets + done, lengths - done, places + done]

    def _finish(self, asked: Asked, free: list[np.ndarray]) -> None:
        """Wait for what has not come, and take what is wanted."""
        into = self._bytes if asked.buffer is None else asked.buffer
        try:
            while asked.ranges:
                files, offsets, lengths, places = asked.ranges
                got = read_ranges(files, offsets, lengths, into, places)
                if (got == 0).any():
                    raise CorruptChunkError(f"a chunk of {self.file.name} is cut short")
                _refuse(got, self.file.name)
                asked.ranges = self._left(asked.ranges, got)
        finally:
            asked.close()
        self._take(asked.round, asked.buffer, asked.missing)
        if asked.buffer is not None:
            free.append(asked.buffer)

    # ------------------------------------------------------------------------------------------------ stores

    def read_store(self, requests: int) -> None:
        """Read from any store, with so many requests under way."""
        blobs: Any = blobs_of(self.file.zarr, requests=requests)
        if self.file.chain.shard:
            blobs = ShardedBlobs(blobs, self.file.chain.shard, self.meter)
        come = blobs.fetched(self._wanted())
        free: list[np.ndarray] = []
        for each in self.plan.rounds():
            buffer = _buffer(free, each.held_bytes)
            missing = self._receive(each, buffer, come)
            self._take(each, buffer, missing)
            if buffer is not None:
                free.append(buffer)

    def _wanted(self) -> Iterator[tuple[Any, RangeByteRequest]]:
        shard = self.file.chain.shard
        for each in self.plan.rounds():
            ranges = list(zip(each.sieve.starts.tolist(), each.sieve.lengths.tolist(), strict=True))
            for index in product(*each.chunks):
                if shard is None:
                    key: Any = self.file.chunk_key(index)
                else:
                    place, number = shard.place(index)
                    key = ShardKey(self.file.chunk_key(place), number)
                yield from ((key, RangeByteRequest(start, start + nbytes)) for start, nbytes in ranges)

    def _receive(self, each: Round, buffer: np.ndarray | None, come: Iterator[np.ndarray | None]) -> list[Index]:
        """Put what comes where it belongs; the chunks that are missing."""
        into, missing = self._bytes if buffer is None else buffer, []
        lengths = each.sieve.lengths.tolist()
        for index, places in zip(product(*each.chunks), self._places(each).tolist(), strict=True):
            data = [next(come) for _ in lengths]
            if any(part is None for part in data):
                missing.append(index)
                continue
            for part, place, length in zip(data, places, lengths, strict=True):
                if part is None or len(part) != length:
                    raise CorruptChunkError(f"chunk {index} of {self.file.name} is cut short")
                into[place : place + length] = part
            self.meter.add(read_requests=len(lengths), read_bytes=sum(lengths))
        return missing

    # ------------------------------------------------------------------------------------------------- result

    def _take(self, each: Round, buffer: np.ndarray | None, missing: list[Index]) -> None:
        """Copy what is wanted from a buffer to the result, and the fill value for chunks that are missing."""
        if buffer is not None and len(missing) < each.count:
            self._sieved(each, buffer)
        inside = self._inside(each)
        for index in missing:
            place: Any = tuple(
                slice(first + chunks.index(i) * n, first + (chunks.index(i) + 1) * n)
                for first, chunks, i, n in zip(each.first, each.chunks, index, inside, strict=True)
            )
            self.out[(*place, ...)] = self.file.fill_value

    def _inside(self, each: Round) -> tuple[int, ...]:
        """Elements that are taken of each chunk along each axis."""
        return tuple(
            n if pick is None else len(pick) for n, pick in zip(each.sieve.shape, each.sieve.picks, strict=True)
        )

    def _sieved(self, each: Round, buffer: np.ndarray) -> None:
        sieve, counts = each.sieve, tuple(map(len, each.chunks))
        ndim = len(counts)
        apart = tuple(math.prod(counts[axis + 1 :]) * sieve.held_bytes for axis in range(ndim))
        data: np.ndarray = np.ndarray(counts + sieve.shape, self.out.dtype, buffer.data, strides=apart + sieve.strides)
        if any(pick is not None for pick in sieve.picks):
            every = (np.arange(n) if pick is None else pick for n, pick in zip(sieve.shape, sieve.picks, strict=True))
            data = data[np.ix_(*map(np.arange, counts), *every)]
        inside = self._inside(each)
        place: Any = tuple(slice(f, f + g * n) for f, g, n in zip(each.first, counts, inside, strict=True))
        into = self.out[(*place, ...)]
        if math.prod(counts) == 1:
            into[...] = data.reshape(inside) if ndim == 0 else data[(0,) * ndim]
            return
        into = into.reshape([n for pair in zip(counts, inside, strict=True) for n in pair])
        into[...] = data.transpose([axis for a in range(ndim) for axis in (a, a + ndim)])


def _refuse(got: np.ndarray, name: str) -> None:
    """An error that waiting does not help."""
    failed = got[got < 0]
    if len(failed):
        raise StoreFailure(f"cannot read {name}: {os.strerror(-int(failed[0]))}")


def _buffer(free: list[np.ndarray], nbytes: int) -> np.ndarray | None:
    """Memory for a round, one that was used before where there is one: new pages cost as much as reading."""
    if not nbytes:
        return None
    for number, buffer in enumerate(free):
        if len(buffer) >= nbytes:
            return free.pop(number)
    free.clear()
    return np.empty(nbytes, np.uint8)
