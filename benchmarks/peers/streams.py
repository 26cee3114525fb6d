"""Streams: each mode beside plain arrays, and irregular events beside what people write today."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from case import Job

import oocarrays as ooc

STEPS, TIMES = 64, 3
"""Values of a cell, and how often they are written and read."""
EVENT = np.dtype([("time", "f8"), ("energy", "f8")])
BATCHES = 10
"""Parts in which events come."""
SOME, CHECKED = 1000, 8
"""Cells that are read at random, and those of them that are compared."""
MILLION = 10**6
WRITTEN = "a million events written"


# ---------------------------------------------------------------------- modes


def streams(job: Job) -> dict:
    """Write and read 64 values of each cell by `mode`; a call that leaves the modes before it comes first."""
    options = {"ranks": job.ranks, "memory": job.budget} | job.params.get("options", {})

    def write(path: Path, values: list[np.ndarray]) -> None:
        with ooc.streams.open_streams(path, "w", shape=job.items, dtype="f8", **options) as s:
            _written(s, job.mode, values)
            if s.mode != job.mode[:2]:
                raise AssertionError(s.mode)

    def read(path: Path) -> Iterator[np.ndarray]:
        with ooc.streams.open_streams(path) as s:
            for _ in range(STEPS):
                yield s.read()

    return _timed(job, write, read)


def _written(s: Any, mode: str, values: list[np.ndarray]) -> None:
    half = np.arange(len(values[0])) % 2 == 0
    rest = values if mode == "NB" else values[1:]
    if mode == "CB":
        s.write(np.repeat(values[0], 2)[::2])
    elif mode == "IB":
        s.write(values[0], where=half)
        s.write(values[0], where=~half)
    elif mode == "IB by halves":  # so that cells do not fill together and each has pointers of its own
        for value in values:
            s.write(value, where=half)
            s.write(value, where=~half)
        return
    for value in rest:
        s.write(value)


def plain(job: Job) -> dict:
    """The same as a plain array, a step a chunk, by zarr-python or by ours."""

    def write(path: Path, values: list[np.ndarray]) -> None:
        shape, chunks = (STEPS, job.items), (1, job.items)
        made = zarr.create_array(path, shape=shape, chunks=chunks, dtype="f8", compressors=None)
        array = ooc.open_array(made) if job.ours else made
        for step, value in enumerate(values):
            array[step] = value
        os.sync()

    def read(path: Path) -> Iterator[np.ndarray]:
        array = ooc.open_array(path) if job.ours else zarr.open_array(path)
        for step in range(STEPS):
            yield array[step]

    return _timed(job, write, read)


def _timed(
    job: Job, write: Callable[[Path, list[np.ndarray]], None], read: Callable[[Path], Iterator[np.ndarray]]
) -> dict:
    values = [np.random.default_rng(step).random(job.items) for step in range(STEPS)]
    path, figures = Path(job.scratch, "streams.zarr"), {"write": [], "read": []}
    for _ in range(TIMES):
        shutil.rmtree(path, ignore_errors=True)
        os.sync()
        begun = time.perf_counter()
        write(path, values)
        figures["write"].append(time.perf_counter() - begun)
        begun = time.perf_counter()
        got = list(read(path))
        figures["read"].append(time.perf_counter() - begun)
        if not all(map(np.array_equal, got, values)):
            raise ValueError("values are read wrongly")
    shutil.rmtree(path)
    return {"figures": figures}


# ---------------------------------------------------------------------- events


def batches(job: Job) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield events in batches of a tenth, Zipf over the cells: cells and events; batches repeat after eight."""
    random = np.random.default_rng(0)
    cells, size = _cells(job), -(-job.items // BATCHES)
    places = random.permutation(cells)
    weights = np.cumsum(1 / np.arange(1, cells + 1))
    known = []
    for start in range(0, job.items, size):
        if len(known) < 8:
            values = np.empty(size, EVENT)
            values["time"], values["energy"] = np.arange(start, start + size), 1.0
            known.append((places[np.searchsorted(weights, random.random(size) * weights[-1])], values))
        where, values = known[start // size % len(known)]
        yield where[: job.items - start], values[: job.items - start]


def _cells(job: Job) -> int:
    return max(job.items // 10, 2)


def _by_cell(cells: np.ndarray, values: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the events of a batch cell by cell, as a peer needs them."""
    order = np.argsort(cells, kind="stable")
    found, first = np.unique(cells[order], return_index=True)
    yield from zip(found.tolist(), np.split(values[order], first[1:]), strict=True)


def events(job: Job) -> dict:
    """Write all events, read cells at random, and read all events in the order of time."""
    path, given = Path(job.scratch, "events.zarr"), list(batches(job))
    some = np.random.default_rng(1).integers(0, _cells(job), SOME).tolist()
    begun = time.perf_counter()
    with ooc.streams.open_streams(path, "w", shape=_cells(job), dtype=EVENT, ranks=2, memory=job.budget) as s:
        for where, values in given:
            s.write(values, at=where)
    written = time.perf_counter() - begun
    begun = time.perf_counter()
    with ooc.streams.open_streams(path, memory=job.budget) as s:
        got = [s[cell] for cell in some]
    at_random = time.perf_counter() - begun
    begun = time.perf_counter()
    with ooc.streams.open_streams(path, memory=job.budget) as s:
        total = _in_time(s)
    in_time = time.perf_counter() - begun
    _check_events(given, dict(zip(some[:CHECKED], got, strict=False)), total)
    shutil.rmtree(path)
    return {
        "figures": {
            WRITTEN: [MILLION * written / job.items],
            "a million events read in the order of time": [MILLION * in_time / job.items],
            "a cell read at random": [at_random / len(some)],
        },
    }


def _check_events(given: list[tuple[np.ndarray, np.ndarray]], got: dict[int, np.ndarray], total: int) -> None:
    """Raise if events are missing, or if a cell has not its events in the order in which they came."""
    if total != sum(len(values) for _, values in given):
        raise ValueError(f"{total} events were read")
    for cell, events in got.items():
        if not np.array_equal(events, np.concatenate([values[where == cell] for where, values in given])):
            raise ValueError(f"cell {cell} is wrong")


def _in_time(s: Any) -> int:
    """Read the next 64 events of every cell until few have any; then what is left."""
    total = 0
    for _ in range(8):
        got = s.read(64)
        if not isinstance(got, ooc.streams.Ragged):
            total += got.size
            continue
        total += len(got.values)
        if not len(got.values):
            return total
    return total + len(s.read(-1).values)


def by_peer(job: Job) -> dict:
    """Write events by `peer` for at most a second for each million of them; the time of a million follows."""
    folder = Path(job.scratch, "peer")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    begun = time.perf_counter()
    done = PEERS[job.peer](folder, job, begun + job.items / MILLION)
    took = time.perf_counter() - begun
    shutil.rmtree(folder)
    return {"figures": {WRITTEN: [MILLION * took / done]}}


def _appended(job: Job, until: float, append: Callable[[int, np.ndarray], None]) -> int:
    done = 0
    for where, values in batches(job):
        for cell, mine in _by_cell(where, values):
            append(cell, mine)
            done += len(mine)
            if time.perf_counter() > until:
                return done
    return done


def _files(folder: Path, job: Job, until: float) -> int:
    def append(cell: int, mine: np.ndarray) -> None:
        with open(folder / str(cell), "ab") as file:
            file.write(mine.tobytes())

    return _appended(job, until, append)


def _arrays(folder: Path, job: Job, until: float) -> int:
    group, arrays = zarr.create_group(folder / "group"), {}

    def append(cell: int, mine: np.ndarray) -> None:
        if cell not in arrays:
            how = {"shape": (0, 2), "chunks": (4096, 2), "dtype": "f8", "compressors": None}
            arrays[cell] = group.create_array(str(cell), **how)
        arrays[cell].append(mine.view("f8").reshape(-1, 2))

    return _appended(job, until, append)


def _h5py(folder: Path, job: Job, until: float) -> int:
    import h5py

    with h5py.File(folder / "events.h5", "w") as file:
        data = file.create_dataset("events", (_cells(job),), dtype=h5py.vlen_dtype(np.dtype("f8")))

        def append(cell: int, mine: np.ndarray) -> None:
            data[cell] = np.concatenate((data[cell], mine.view("f8")))

        return _appended(job, until, append)


def _parquet(folder: Path, job: Job, until: float) -> int:
    """Sort each batch by cell, write it as a Parquet file, and at the end merge all with awkward, sorted by cell."""
    import awkward

    done, parts = 0, folder / "parts"
    parts.mkdir()
    for number, (where, values) in enumerate(batches(job)):
        order = np.argsort(where, kind="stable")
        table = {"cell": where[order], "time": values["time"][order], "energy": values["energy"][order]}
        awkward.to_parquet(awkward.Array(table), str(parts / f"{number:05}.parquet"))
        done += len(values)
        if time.perf_counter() > until:
            break
    whole = awkward.from_parquet(str(parts))
    order = np.argsort(np.asarray(whole.cell), kind="stable")
    counts = np.bincount(np.asarray(whole.cell), minlength=_cells(job))
    merged = awkward.unflatten(awkward.zip({"time": whole.time[order], "energy": whole.energy[order]}), counts)
    awkward.to_parquet(merged, str(folder / "streams.parquet"))
    return done


PEERS = {"files": _files, "arrays": _arrays, "h5py": _h5py, "parquet": _parquet}
