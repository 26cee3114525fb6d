"""Measured constants of the cost model for each kind of work on this machine.

Each is measured with the code that a run uses, on its own data in a folder that is removed afterwards.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, count as counted, islice, product
from typing import Any

import dask.threaded
import numcodecs
import numpy as np
import zarr
from dask.task_spec import Task, TaskRef

from oocarrays.errors import InputError
from oocarrays.graphs.settings import costs, local_cores
from oocarrays.mapping.section import Section
from oocarrays.plan.cost import PAGE_BYTES, PIECE_CALLS
from oocarrays.plan.machine import OTHER
from oocarrays.storage.chunks.assembling import Assembler, UnfinishedChunks
from oocarrays.storage.chunks.elements import scatter
from oocarrays.storage.chunks.reader import ChunkReader
from oocarrays.storage.files.array_file import describe
from oocarrays.storage.journal.leftovers import hold
from oocarrays.storage.local.blobs import LocalBlobs, byte_view, checksum, open_ahead
from oocarrays.storage.local.fs import write_all
from oocarrays.storage.local.pages import allocate
from oocarrays.storage.meter import Meter

FILES, FILE_BYTES = 16, 2**25
REQUESTS, REQUEST_BYTES = 20_000, 4096
SEEKS = 200
MOST_WRITTEN = 2**32
"""Bytes after which a device's sustained write speed is known."""
SIDE, PIECE = 32, (8, 200)
"""Number of chunks, each written in as many small pieces, and the elements of a piece, not aligned to sectors."""


def calibrate(folder: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    with _work_folder(os.path.expanduser(folder or os.getcwd())) as place:
        blobs, data = LocalBlobs(place, past_cache=True), _field()
        keys = [str(number) for number in range(FILES)]
        written = written_curve(_times_of_writes(blobs, keys, data), FILE_BYTES)
        for key in keys:
            forget(os.path.join(place, key))
        read = seconds_of(lambda: _read_whole(blobs, keys))
        decode, encode = _codec_speeds(data)
        ranges = _least_seconds(lambda: _read_ranges(blobs, keys[0])) / REQUESTS
        return {
            **written,
            "read_bandwidth": FILES * FILE_BYTES / read,
            "copy_bandwidth": FILE_BYTES / _seconds_of_all(lambda: _scatter(data)),
            "cache_bandwidth": FILE_BYTES
            / _seconds_of_all(partial(_read_cached, os.path.join(place, keys[0]), threading.local())),
            "cache_write_bandwidth": FILE_BYTES / _seconds_of_all(partial(_write_cached, place, data, counted())),
            "touch_bandwidth": FILE_BYTES / _seconds_of_all(_touch),
            "decode_bandwidth": decode,
            "encode_bandwidth": encode,
            "request_seconds": _least_seconds(lambda: _read_short(blobs, keys[0])) / REQUESTS,
            "range_seconds": ranges,
            **_piece_seconds(place, ranges),
            "file_seconds": _least_seconds(partial(_put_small, blobs, data, counted())) / SEEKS,
            "seek_seconds": _seek_seconds(os.path.join(place, keys[1])),
            "place_seconds": _place_seconds(place),
            "put_seconds": _put_seconds(place, data),
            "task_seconds": _task_seconds(),
        }


@contextmanager
def _work_folder(folder: str) -> Iterator[str]:
    try:
        place = tempfile.mkdtemp(prefix=".oocarrays-calibrate-", dir=folder)
    except OSError as error:
        raise InputError(f"cannot write in {folder}: {error.strerror}") from None
    held = hold(place)
    try:
        yield place
    finally:
        held.close()
        shutil.rmtree(place, ignore_errors=True)


def seconds_of(work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    work()
    return max(clock() - start, 1e-9)


def _least_seconds(work: Callable[[], Any], times: int = 3) -> float:
    return min(seconds_of(work) for _ in range(times))


def _field() -> np.ndarray:
    """Return a smooth field with small steps and a few bits of noise, like measured data, in allocated memory."""
    data = allocate(FILE_BYTES).view("f4")
    index = np.arange(len(data))
    noise = np.random.default_rng(0).integers(0, 2**8, len(data))
    data[:] = (np.rint(600 * np.sin(index / 311.0)) + noise) / 32
    return data


def forget(path: str) -> None:
    """Drop a file from the page cache."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def _times_of_writes(blobs: LocalBlobs, keys: list[str], data: np.ndarray) -> list[float]:
    """Return the seconds until each file is on the device: the given files, and more within limits.

    Files are not rewritten, as a run writes new ones.
    """
    start, times = time.perf_counter(), []
    most = min(MOST_WRITTEN, shutil.disk_usage(blobs.root).free // 4) // FILE_BYTES
    for key in islice(chain(keys, (f"more-{n}" for n in counted())), max(most, len(keys))):
        blobs.put(key, data.view(np.uint8).data)
        times.append(time.perf_counter() - start)
        if len(times) >= len(keys) and times[-1] > 4.0:  # seconds
            break
    return times


def written_curve(times: list[float], nbytes: int) -> dict[str, float]:
    """Fit two straight lines, burst and steady state, to the seconds until each file was written."""
    count, total = len(times), times[-1]
    mean = {"write_bandwidth": count * nbytes / total, "burst_bytes": math.inf}
    knees = range(max(count // 8, 1), count - count // 8)
    knee = min(knees, key=lambda knee: _off(times, knee), default=count)
    if knee >= count:
        return mean | {"sustained_bandwidth": mean["write_bandwidth"]}
    burst, later = times[knee - 1] / knee, (total - times[knee - 1]) / (count - knee)
    if later < 1.3 * burst:  # less is noise
        return mean | {"sustained_bandwidth": mean["write_bandwidth"]}
    return {"write_bandwidth": nbytes / burst, "burst_bytes": knee * nbytes, "sustained_bandwidth": nbytes / later}


def _off(times: list[float], knee: int) -> float:
    """Return the squared error of two lines that meet after ``knee`` files."""
    first, last, count = times[knee - 1], times[-1], len(times)
    x, seen = np.arange(1, count + 1), np.array(times)
    lines = np.where(x <= knee, x * first / knee, first + (x - knee) * (last - first) / (count - knee))
    return float(((lines - seen) ** 2).sum())


def _write_cached(place: str, data: np.ndarray, numbers: Iterator[int]) -> None:
    """Write a new file to the page cache and keep it, so that the next one needs new memory."""
    with open(os.path.join(place, f"cached-{next(numbers)}"), "wb", buffering=0) as file:
        write_all(file.fileno(), byte_view(data))


def _read_cached(path: str, rooms: threading.local) -> None:
    """Read a cached file into memory that the thread has used before."""
    if not hasattr(rooms, "room"):
        rooms.room = bytearray(FILE_BYTES)
    with open(path, "rb", buffering=0) as file:
        file.readinto(rooms.room)


def _read_whole(blobs: LocalBlobs, keys: list[str]) -> None:
    buffer = allocate(FILE_BYTES)
    for blob in open_ahead(blobs, keys, read_ahead=True):
        assert blob is not None, "it has just been written"
        blob.read_into(0, buffer.data)


def _read_short(blobs: LocalBlobs, key: str) -> None:
    blob, out = blobs.open(key), memoryview(bytearray(REQUEST_BYTES))
    for start in _starts():
        blob.read_into(int(start), out)
    blob.close()


def _read_ranges(blobs: LocalBlobs, key: str) -> None:
    blob = blobs.open(key)
    blob.read_runs(_starts(), np.empty((REQUESTS, REQUEST_BYTES), np.uint8))
    blob.close()


def _piece_seconds(folder: str, ranges: float) -> dict[str, float]:
    """Return the seconds to open a chunk and locate its pieces, and the extra seconds of a short call.

    The first exclude the reads of ranges. The second, by `Costs`' rule, are those of a short call while every processor
    reads pieces of small chunks.
    """
    rows, columns = PIECE
    shape = (rows * SIDE, columns * SIDE)
    chunks = (rows, shape[1])
    array = zarr.create_array(os.path.join(folder, "rows"), shape=shape, chunks=chunks, dtype="i4", compressors=None)
    array[:] = 1
    reader, within = ChunkReader(describe(array), Meter()), Section((0, 0), (shape[0], columns))
    indices, piece = [(row, 0) for row in range(SIDE)], np.empty((rows, columns), "i4")

    def read_all() -> None:
        for _, part in reader.tiles(indices, within, PIECE):
            if part is not None:
                np.copyto(piece, part)

    count = max(local_cores(), 2)
    calls = SIDE * (rows + PIECE_CALLS) * count
    alone = _least_seconds(read_all)
    together = _least_seconds(lambda: _by_all(read_all, count))
    return {
        "piece_seconds": max(alone / SIDE - rows * ranges, 1e-9),
        "handoff_seconds": max(together - alone, 1e-9) / (calls * math.sqrt(count - 1)),
    }


def _put_small(blobs: LocalBlobs, data: np.ndarray, numbers: Iterator[int]) -> None:
    """Write small files in sequence under new names, as a run does."""
    for number in islice(numbers, SEEKS):
        blobs.put(f"small-{number}", byte_view(data)[:REQUEST_BYTES])


def _starts() -> np.ndarray:
    """Return the offsets of short requests in random order."""
    return np.random.default_rng(0).integers(0, FILE_BYTES // REQUEST_BYTES, REQUESTS) * REQUEST_BYTES


def _seek_seconds(path: str) -> float:
    """Return the seconds of one uncached short read, in sequence."""
    forget(path)
    starts = np.random.default_rng(0).permutation(FILE_BYTES // REQUEST_BYTES)[:SEEKS] * REQUEST_BYTES
    file = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
        return seconds_of(lambda: [os.pread(file, REQUEST_BYTES, start) for start in starts.tolist()]) / SEEKS
    finally:
        os.close(file)


def _place_seconds(folder: str) -> float:
    """Return the seconds to lay out a small piece of a chunk, and to write it at its place in a file just begun."""
    rows, columns = PIECE
    shape, chunks = (rows * SIDE, columns * SIDE), (rows * SIDE, columns)
    array = zarr.create_array(os.path.join(folder, "pieces"), shape=shape, chunks=chunks, dtype="i4", compressors=None)
    file, data = describe(array, written=True), np.ones((rows, columns * SIDE), "i4")
    stage, take = allocate(data.nbytes), lambda section, out: scatter(out, section.lower, section, data)

    def place_all(mark: int) -> None:
        assembler = Assembler(file, Meter(), f"{mark:032x}", past_cache=False)
        for row in range(0, rows * SIDE, rows):
            piece = Section((row, 0), (row + rows, columns))
            list(assembler.place((0, 0), (1, SIDE), piece, stage, piece.shape, take))
        assembler.chunks.close()

    return min(seconds_of(partial(place_all, mark), time.thread_time) for mark in range(3)) / SIDE**2


def _put_seconds(folder: str, data: np.ndarray) -> float:
    """Return the extra seconds of a run of chunks written in place past the cache, over its share of a long one."""
    short, long = 2**18, 2**21  # many short ones show the fixed cost of a write
    seconds = {nbytes: _least_seconds(partial(_put_runs, folder, data, nbytes)) for nbytes in (short, long)}
    more = 2 * FILE_BYTES // short - 2 * FILE_BYTES // long
    return max(seconds[short] - seconds[long], 1e-9) / more


def _put_runs(folder: str, data: np.ndarray, nbytes: int) -> None:
    """Write unfinished chunks in runs of ``nbytes``, one run of each in turn, and check them."""
    size, keys = FILE_BYTES * 2 // FILES, [f"put-{number}" for number in range(FILES)]
    chunks = UnfinishedChunks(folder, f"{nbytes:032x}", size, past_cache=True)
    for start, key in product(range(0, size, nbytes), keys):
        run = byte_view(data)[start : start + nbytes]
        chunks.write_runs(key, [start], run)
        checksum(run)
    chunks.close()
    for key in keys:
        chunks.discard(key)


def _scatter(data: np.ndarray) -> None:
    """Copy rows into column chunks with 1 KiB runs."""
    rows = data.reshape(256, -1)
    target = np.empty((1, rows.shape[1] // 256, 256, 256), data.dtype)
    scatter(target, (0, 0), Section((0, 0), rows.shape), rows)


def _touch() -> None:
    allocate(FILE_BYTES)[::PAGE_BYTES] = 1


def _codec_speeds(data: np.ndarray) -> tuple[dict[str, float], dict[str, float]]:
    """Return the bytes a second that one core decodes and encodes; other codecs are assumed as slow as zstd."""
    codecs = {
        "zstd": numcodecs.Zstd(0),
        "blosc": numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE),
        "gzip": numcodecs.GZip(1),
    }
    speeds = {name: _codec_speed(codec, data[: len(data) // 4]) for name, codec in codecs.items()}
    speeds[OTHER] = speeds["zstd"]
    return {name: speed[0] for name, speed in speeds.items()}, {name: speed[1] for name, speed in speeds.items()}


def _codec_speed(codec: Any, piece: np.ndarray) -> tuple[float, float]:
    coded = codec.encode(piece)
    decoding = _seconds_of_all(lambda: codec.decode(coded, out=np.empty_like(piece)))
    encoding = _seconds_of_all(lambda: codec.encode(piece))
    return piece.nbytes / decoding, piece.nbytes / encoding


def _seconds_of_all(work: Callable[[], Any], times: int = 3) -> float:
    """Return the processor seconds of some work while every processor does the same, as in a run: they share caches.

    Processor time excludes other processes on the machine. The work runs in new threads, as blosc uses more cores in
    the main thread.
    """
    count = local_cores()
    together = threading.Barrier(count)
    seconds: list[float] = []

    def work_together() -> None:
        for _ in range(times):
            together.wait()
            seconds.append(seconds_of(work, time.thread_time))

    _by_all(work_together, count)
    return float(np.median(seconds))


def _by_all(work: Callable[[], Any], count: int) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _task_seconds() -> float:
    count, cores = 2000, costs().cores
    graph = {0: Task(0, int)} | {n: Task(n, abs, TaskRef(n - 1)) for n in range(1, count)}
    return _least_seconds(lambda: dask.threaded.get(graph, count - 1, num_workers=cores)) / count
