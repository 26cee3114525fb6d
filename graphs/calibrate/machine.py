"""Constants of the cost model for each kind of work on this machine, measured and kept.

Each is measured by the code that does the work in a run, on data of its own in a folder that is removed again. They are
kept in a file of Dask's configuration folder, which Dask reads when it starts.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask.config
import dask.threaded
import numcodecs
import numpy as np
import zarr
from dask.task_spec import Task, TaskRef

from oocarrays.errors import InputError
from oocarrays.graphs.settings import costs
from oocarrays.mapping.section import Section
from oocarrays.plan.cost import OTHER, PAGE_BYTES
from oocarrays.storage.chunks.access import scatter
from oocarrays.storage.chunks.assembling import Assembler
from oocarrays.storage.files.array_file import describe
from oocarrays.storage.journal.leftovers import hold
from oocarrays.storage.meter import Meter
from oocarrays.storage.stores.blobs import LocalBlobs
from oocarrays.storage.stores.opening import open_ahead
from oocarrays.storage.stores.pages import allocate, can_map

MIB = 2**20
FILES, FILE_BYTES = 16, 32 * MIB
REQUESTS, REQUEST_BYTES = 20_000, 4096
TASKS, SEEKS = 2000, 200
SIDE = 32
"""Chunks to which as many small pieces each are written."""
CODECS = {
    "zstd": numcodecs.Zstd(0),
    "blosc": numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE),
    "gzip": numcodecs.GZip(1),
}
FILE_NAME = "oocarrays.yaml"


def calibrate(folder: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Measure the constants of the cost model.

    Parameters
    ----------
    folder : path
        On the device that arrays are read from and written to; by default the current one.

    Returns
    -------
    dict
        Values of ``oocarrays.cost.*``: seconds, and bytes a second (see `oocarrays.plan.cost.Costs`).

    Raises
    ------
    InputError
        Where nothing can be written in ``folder``.
    """
    with _work_folder(os.fspath(folder or os.getcwd())) as place:
        blobs = LocalBlobs(place, past_cache=True)
        keys = [str(number) for number in range(FILES)]
        data = _field()
        write = _seconds(lambda: _write_whole(blobs, keys, data))
        for key in keys:
            _forget(os.path.join(place, key))
        read = _seconds(lambda: _read_whole(blobs, keys))
        decode, encode = _codec_speeds(data)
        return {
            "write_bandwidth": FILES * FILE_BYTES / write,
            "read_bandwidth": FILES * FILE_BYTES / read,
            "copy_bandwidth": FILE_BYTES / _least_seconds(lambda: _scatter(data)),
            "touch_bandwidth": FILE_BYTES / _least_seconds(_touch),
            "decode_bandwidth": decode,
            "encode_bandwidth": encode,
            "request_seconds": _least_seconds(lambda: _read_short(blobs, keys[0])) / REQUESTS,
            **_page_seconds(blobs, keys[0]),
            "seek_seconds": _seek_seconds(os.path.join(place, keys[1])),
            "place_seconds": _place_seconds(place),
            "task_seconds": _least_seconds(_run_tasks) / TASKS,
        }


def keep(measured: dict[str, Any]) -> Path:
    """Write what was measured to Dask's configuration folder, and use it in this process too; returns the file.

    What the file holds besides stays: constants that were measured earlier and not now, and other settings.
    """
    path = Path(os.environ.get("DASK_CONFIG", dask.config.PATH), FILE_NAME)
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = dask.config.merge(*dask.config.collect_yaml([str(path)]), {"oocarrays": {"cost": measured}})
    path.write_text("".join(_yaml_lines(kept)))
    dask.config.set({f"oocarrays.cost.{name}": value for name, value in measured.items()})
    return path


def _yaml_lines(values: dict[str, Any], indent: str = "") -> Iterator[str]:
    """Settings by name as YAML, which takes a number with an exponent for text unless it has a point.

    >>> print("".join(_yaml_lines({"a": {"x": 1e-7, "y": float("inf")}, "b": "1GiB", "c": None})), end="")
    a:
      x: 1.000000e-07
      y: .inf
    b: "1GiB"
    c: null
    """
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{name}:\n"
            yield from _yaml_lines(value, indent + "  ")
        elif isinstance(value, float):
            yield f"{indent}{name}: {value:.6e}\n".replace(" inf", " .inf").replace(" -inf", " -.inf")
        else:
            yield f"{indent}{name}: {json.dumps(value)}\n"


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


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _least_seconds(work: Callable[[], Any], times: int = 3) -> float:
    return min(_seconds(work) for _ in range(times))


def _field() -> np.ndarray:
    """Return a smooth field in small steps with a few bits of noise, as measurements have, in memory on pages."""
    data = allocate(FILE_BYTES).view("f4")
    index = np.arange(len(data))
    noise = np.random.default_rng(0).integers(0, 2**8, len(data))
    data[:] = (np.rint(600 * np.sin(index / 311.0)) + noise) / 32
    return data


def _forget(path: str) -> None:
    """Let the system's cache forget a file."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def _write_whole(blobs: LocalBlobs, keys: list[str], data: np.ndarray) -> None:
    for key in keys:
        blobs.put(key, data.view(np.uint8).data)


def _read_whole(blobs: LocalBlobs, keys: list[str]) -> None:
    buffer = allocate(FILE_BYTES)
    for blob in open_ahead(blobs, keys, read_ahead=True):
        assert blob is not None, "it has just been written"
        blob.read_into(0, buffer.data)


def _read_short(blobs: LocalBlobs, key: str) -> None:
    blob = blobs.open(key)
    out = memoryview(bytearray(REQUEST_BYTES))
    starts = np.random.default_rng(0).integers(0, FILE_BYTES // REQUEST_BYTES, REQUESTS) * REQUEST_BYTES
    blob.read_runs(starts.tolist(), [out] * REQUESTS)
    blob.close()


def _page_seconds(blobs: LocalBlobs, key: str) -> dict[str, float]:
    if not can_map():
        return {}
    blob = blobs.open(key)
    seconds = _least_seconds(blob.pages)
    blob.close()
    return {"page_seconds": seconds * PAGE_BYTES / FILE_BYTES}


def _seek_seconds(path: str) -> float:
    """Seconds of one short read that is not in the cache, one after the other."""
    _forget(path)
    starts = np.random.default_rng(0).permutation(FILE_BYTES // REQUEST_BYTES)[:SEEKS] * REQUEST_BYTES
    file = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
        return _seconds(lambda: [os.pread(file, REQUEST_BYTES, start) for start in starts.tolist()]) / SEEKS
    finally:
        os.close(file)


def _place_seconds(folder: str) -> float:
    """Seconds to lay out a small piece of a chunk, and to write it in its place."""
    array = zarr.create_array(
        os.path.join(folder, "pieces"), shape=(4 * SIDE, SIDE), chunks=(4 * SIDE, 1), dtype="i4", compressors=None
    )
    assembler = Assembler(describe(array, written=True), Meter(), "0" * 32, past_cache=False)
    rows = np.ones((4, SIDE), "i4")
    stage = allocate(rows.nbytes)

    def place_all() -> None:
        for row in range(0, 4 * SIDE, 4):
            piece = Section((row, 0), (row + 4, 1))
            list(assembler.place((0, 0), (1, SIDE), piece, stage, piece.shape, _taking(rows)))

    seconds = _least_seconds(place_all)
    assembler.chunks.close()
    return seconds / SIDE**2


def _taking(rows: np.ndarray) -> Callable[[Section, np.ndarray], None]:
    return lambda section, out: scatter(out, section.lower, section, rows)


def _scatter(data: np.ndarray) -> None:
    """Rows become column chunks of 1 KiB runs."""
    rows = data.reshape(256, -1)
    target = np.empty((1, rows.shape[1] // 256, 256, 256), data.dtype)
    scatter(target, (0, 0), Section((0, 0), rows.shape), rows)


def _touch() -> None:
    allocate(FILE_BYTES)[::PAGE_BYTES] = 1


def _codec_speeds(data: np.ndarray) -> tuple[dict[str, float], dict[str, float]]:
    """Bytes a second that one core decodes and encodes; other codecs are taken to be as slow as zstd."""
    speeds = {name: _codec_speed(codec, data[: len(data) // 4]) for name, codec in CODECS.items()}
    speeds[OTHER] = speeds["zstd"]
    return {name: speed[0] for name, speed in speeds.items()}, {name: speed[1] for name, speed in speeds.items()}


def _codec_speed(codec: Any, piece: np.ndarray) -> tuple[float, float]:
    coded, out = codec.encode(piece), np.empty_like(piece)
    decoding = _in_a_thread(lambda: codec.decode(coded, out=out))
    encoding = _in_a_thread(lambda: codec.encode(piece))
    return piece.nbytes / decoding, piece.nbytes / encoding


def _in_a_thread(work: Callable[[], Any]) -> float:
    """Seconds in a thread of its own, as in a run: blosc uses more cores in the main one."""
    seconds: list[float] = []
    thread = threading.Thread(target=lambda: seconds.append(_least_seconds(work)))
    thread.start()
    thread.join()
    return seconds[0]


def _run_tasks() -> None:
    graph = {0: Task(0, int)} | {n: Task(n, abs, TaskRef(n - 1)) for n in range(1, TASKS)}
    dask.threaded.get(graph, TASKS - 1, num_workers=costs().cores)
