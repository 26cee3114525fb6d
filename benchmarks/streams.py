"""Streams in each mode beside plain Zarr, the tables of Stream*, and irregular events beside what people write today.

    python benchmarks/streams.py --cells 65536 --rounds 5
    python benchmarks/streams.py --cells 1048576 --ranks 1,2,4
    python benchmarks/streams.py --events 1e8 --event-cells 1e6 --only events
    python benchmarks/streams.py --scale 0.01                              (seconds)

Seconds are of the wall, closing and syncing included, the best of all rounds, which run the candidates in turn; beside
them is the processor's time, which is steady where others use the machine. Everything that is read is checked. Peers
that take too long write fewer events, and are told in events a second.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import numpy as np
import zarr

import oocarrays as ooc
from oocarrays.plan.streams.modes import write_mode

PAPER = {  # percent of the bandwidth of 64-byte blocks, with 1, 2, 3 and 4 I/O nodes: Tables 2 and 3
    "write": {32: (85, 81, 83, 90), 16: (62, 65, 62, 72)},
    "read": {32: (99, 81, 84, 94), 16: (81, 85, 70, 83)},
}
EVENT = np.dtype([("time", "f8"), ("energy", "f8")])
BATCH = 10**6


@contextmanager
def timed(found: dict, name: str) -> Iterator[None]:
    """Keep the least seconds of the wall, and of the processor."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    took = time.perf_counter() - wall, time.process_time() - cpu
    found[name] = min(found.get(name, took), took)


def drop_cache(path: Path) -> None:
    """Have the system forget what it keeps of some files: nothing need be written then."""
    os.sync()
    for file in path.rglob("*"):
        if file.is_file():
            handle = os.open(file, os.O_RDONLY)
            with suppress(OSError):
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


# ---------------------------------------------------------------------- Figures 5 and 8


def write_regular(mode: str, path: Path, values: list, options: dict) -> None:
    """Write 64 values to each cell; a call that is not compliant with the modes before it comes first."""
    cells = len(values[0])
    with ooc.open_streams(path, "w", shape=cells, dtype="f8", **options) as s:
        rest = values
        if mode == "CB":
            s.write(np.repeat(values[0], 2)[::2])
            rest = values[1:]
        if mode == "IB":
            half = np.arange(cells) % 2 == 0
            s.write(values[0], where=half)
            s.write(values[0], where=~half)
            rest = values[1:]
        for value in rest:
            s.write(value)
        assert s.mode == mode


def read_regular(path: Path, values: list) -> None:
    """Read as it was written, and check."""
    with ooc.open_streams(path) as s:
        for value in values:
            assert np.array_equal(s.read(), value)


def write_zarr(path: Path, values: list) -> None:
    """Write the same as a plain array, a step a chunk, as Zarr does it, and sync."""
    array = zarr.create_array(
        path, shape=(len(values), len(values[0])), chunks=(1, len(values[0])), dtype="f8", compressors=None
    )
    for step, value in enumerate(values):
        array[step] = value
    os.sync()


def read_zarr(path: Path, values: list, opened: Callable = zarr.open_array) -> None:
    """Read a plain array step by step, and check."""
    array = opened(path)
    for step, value in enumerate(values):
        assert np.array_equal(array[step], value)


def regular(folder: Path, cells: int, ranks: int, rounds: int, blocks: dict | None = None) -> dict:
    """Seconds of every mode and of plain Zarr, writing and reading."""
    values = [np.random.default_rng(step).random(cells) for step in range(64)]
    found: dict = {}
    options = {"ranks": ranks, "memory": "1GiB", "blocks": blocks}
    for _ in range(rounds):
        for mode in ("plain Zarr", "NB", "CB", "IB"):
            path = folder / f"{mode}.zarr"
            shutil.rmtree(path, ignore_errors=True)
            os.sync()
            with timed(found, f"write {mode}"):
                write_zarr(path, values) if mode == "plain Zarr" else write_regular(mode, path, values, options)
        for cache in ("cold", "warm"):
            for mode in ("plain Zarr", "NB", "CB", "IB"):
                path = folder / f"{mode}.zarr"
                if cache == "cold":
                    drop_cache(path)
                with timed(found, f"read {mode} {cache}"):
                    read_zarr(path, values) if mode == "plain Zarr" else read_regular(path, values)
        with timed(found, "read ours plain warm"):
            read_zarr(folder / "plain Zarr.zarr", values, ooc.open_array)
    return found


def show_regular(found: dict, cells: int, ranks: int) -> None:
    """Print MB/s and what that is of NB."""
    nbytes = cells * 64 * 8 / 1e6
    print(f"\nFigures 5 and 8: {cells} cells of 64 doubles, {ranks} ranks; the paper has CB = NB, IB = 0.6 NB")
    for name, (wall, cpu) in found.items():
        kind, rest = name.split(" ", 1)
        base = found[f"{kind} NB{' ' + rest.rsplit(' ', 1)[1] if kind == 'read' else ''}"]
        print(f"  {name:24} {nbytes / wall:8.0f} MB/s  {base[0] / wall:5.2f} × NB   processor {cpu:.3f} s")


# ---------------------------------------------------------------------- Tables 2 and 3


def tables(folder: Path, cells: int, rounds: int) -> dict:
    """Print IB by the bytes of its blocks, and by pointers of an entry."""
    values = [np.random.default_rng(step).random(cells) for step in range(64)]
    found: dict = {}
    kinds = [{"ib_block": block} for block in (64, 32, 16, 128, 256)] + [{"ib_pointers": n} for n in (2, 6, 14)]
    for _ in range(rounds):
        for blocks in kinds:
            name, path = str(blocks), folder / "table.zarr"
            shutil.rmtree(path, ignore_errors=True)
            with timed(found, f"write {name}"):
                write_regular("IB", path, values, {"memory": "64MiB" if cells <= 2**16 else "1GiB", "blocks": blocks})
            with timed(found, f"read {name}"):
                read_regular(path, values)
    print("\nTables 2 and 3: percent of the speed of 64-byte blocks; the paper's with 1 to 4 I/O nodes")
    for kind in ("write", "read"):
        base = found[f"{kind} {kinds[0]}"][0]
        for blocks in kinds:
            paper = PAPER[kind].get(blocks.get("ib_block", 0), "")
            print(f"  {kind:6} {blocks!s:22} {100 * base / found[f'{kind} {blocks}'][0]:5.0f} %   {paper}")
    return found


def detection(cells: int = 2**16) -> float:
    """Print what the tests of a call cost beside an NB write of 512 KiB."""
    times = 100_000
    start = time.perf_counter()
    for _ in range(times):
        write_mode("NB", 8, True, True, 8)
    each = (time.perf_counter() - start) / times
    with tempfile.TemporaryDirectory() as folder:
        values = np.random.default_rng(0).random(cells)
        with ooc.open_streams(f"{folder}/s.zarr", "w", shape=cells, dtype="f8") as s:
            s.write(values)
            start = time.perf_counter()
            for _ in range(32):
                s.write(values)
            write = (time.perf_counter() - start) / 32
    print(
        f"\nmode detection: {1e6 * each:.2f} µs of {1e6 * write:.0f} µs of a write of 512 KiB: {100 * each / write:.2f} %"
    )
    return each / write


# ---------------------------------------------------------------------- irregular events


def batches(events: int, cells: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield events as they come, Zipf over the cells."""
    rng = np.random.default_rng(0)
    places = rng.permutation(cells)
    weights = np.cumsum(1 / np.arange(1, cells + 1))
    for start in range(0, events, BATCH):
        count = min(BATCH, events - start)
        values = np.empty(count, EVENT)
        values["time"] = np.arange(start, start + count)
        values["energy"] = 1.0
        yield places[np.searchsorted(weights, rng.random(count) * weights[-1])], values


def by_cell(cells: np.ndarray, values: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the events of a batch cell by cell, as a peer needs them."""
    order = np.argsort(cells, kind="stable")
    found, first = np.unique(cells[order], return_index=True)
    yield from zip(found.tolist(), np.split(values[order], first[1:]), strict=True)


def ours_events(path: Path, cells: int, given: Iterator, ranks: int = 2) -> None:
    """Write events as streams."""
    with ooc.open_streams(path, "w", shape=cells, dtype=EVENT, ranks=ranks, memory="1GiB") as s:
        for where, values in given:
            s.write(values, at=where)


def files_events(path: Path, cells: int, given: Iterator, seconds: float) -> int:
    """Append to a file a cell: the events that were written in time."""
    path.mkdir()
    done, end = 0, time.perf_counter() + seconds
    for where, values in given:
        for cell, mine in by_cell(where, values):
            with open(path / str(cell), "ab") as file:
                file.write(mine.tobytes())
            done += len(mine)
            if time.perf_counter() > end:
                return done
    return done


def zarr_events(path: Path, cells: int, given: Iterator, seconds: float) -> int:
    """Append to a Zarr array a cell."""
    group, arrays, done, end = zarr.create_group(path), {}, 0, time.perf_counter() + seconds
    for where, values in given:
        for cell, mine in by_cell(where, values):
            if cell not in arrays:
                arrays[cell] = group.create_array(
                    str(cell), shape=(0, 2), chunks=(4096, 2), dtype="f8", compressors=None
                )
            arrays[cell].append(mine.view("f8").reshape(-1, 2))
            done += len(mine)
            if time.perf_counter() > end:
                return done
    return done


def h5py_events(path: Path, cells: int, given: Iterator, seconds: float) -> int:
    """Append to variable-length elements of HDF5, each read and replaced as HDF5 has it."""
    import h5py

    done, end = 0, time.perf_counter() + seconds
    with h5py.File(path, "w") as file:
        data = file.create_dataset("events", (cells,), dtype=h5py.vlen_dtype(np.dtype("f8")))
        for where, values in given:
            for cell, mine in by_cell(where, values):
                data[cell] = np.concatenate((data[cell], mine.view("f8")))
                done += len(mine)
                if time.perf_counter() > end:
                    return done
    return done


def parquet_events(path: Path, cells: int, given: Iterator, seconds: float) -> int:
    """Sort each batch by cell, write it as a Parquet file, and at the end merge all with awkward, sorted by cell."""
    import awkward

    path.mkdir()
    done, end = 0, time.perf_counter() + seconds
    for number, (where, values) in enumerate(given):
        order = np.argsort(where, kind="stable")
        table = {"cell": where[order], "time": values["time"][order], "energy": values["energy"][order]}
        awkward.to_parquet(awkward.Array(table), str(path / f"{number:05}.parquet"))
        done += len(values)
        if time.perf_counter() > end:
            break
    whole = awkward.from_parquet(str(path))
    order = np.argsort(np.asarray(whole.cell), kind="stable")
    counts = np.bincount(np.asarray(whole.cell), minlength=cells)
    streams = awkward.unflatten(awkward.zip({"time": whole.time[order], "energy": whole.energy[order]}), counts)
    awkward.to_parquet(streams, str(path.parent / "streams.parquet"))
    return done


def disk_rate(folder: Path, nbytes: int) -> float:
    """MB/s of plain large writes, synced."""
    data, start = np.ones(2**22, np.uint8), time.perf_counter()
    with open(folder / "plain", "wb") as file:
        for _ in range(max(nbytes // len(data), 1)):
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    rate = max(nbytes // len(data), 1) * len(data) / 1e6 / (time.perf_counter() - start)
    (folder / "plain").unlink()
    return rate


def events(folder: Path, count: int, cells: int, seconds: float) -> dict:
    """Print events a second, of ours and of what people write today."""
    given = list(batches(min(count, 8 * BATCH), cells))

    def all_of_them() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, count, BATCH):
            yield given[start // BATCH % len(given)]

    disk, found, rates = disk_rate(folder, min(count * 16, 2**30)), {}, {}
    path = folder / "events.zarr"
    with timed(found, "write"):
        ours_events(path, cells, all_of_them())
    rates["ours"] = count / found["write"][0]
    drop_cache(path)
    some = np.random.default_rng(1).integers(0, cells, min(1000, cells))
    with timed(found, "read cells"), ooc.open_streams(path, memory="1GiB") as s:
        got = sum(len(s[int(cell)]) for cell in some)
        requests = s.meter.read_requests
    drop_cache(path)
    with timed(found, "read all"), ooc.open_streams(path, memory="1GiB") as s:
        total = _read_in_time(s, cells)
    assert total == count
    rate = {name: count * 16 / 1e6 / took[0] for name, took in found.items()}
    print(f"\n{count} events of 16 bytes over {cells} cells, Zipf; the disk writes {disk:.0f} MB/s")
    share = f"{rate['write'] / disk:.2f} × the disk, processor {found['write'][1]:.1f} s"
    print(f"  ours, write              {rate['write']:6.0f} MB/s, {share}")
    print(f"  ours, all in time, cold  {rate['read all']:6.0f} MB/s, processor {found['read all'][1]:.1f} s")
    print(f"  ours, {len(some)} cells, cold {found['read cells'][0]:.2f} s: {got} events, {requests} requests")
    peers = {
        "a file a cell": files_events,
        "a Zarr array a cell": zarr_events,
        "h5py, variable length": h5py_events,
        "awkward + Parquet, sorted": parquet_events,
    }
    for name, peer in peers.items():
        try:
            start = time.perf_counter()
            done = peer(folder / name.replace(" ", "_").replace(",", ""), cells, all_of_them(), seconds)
            rates[name] = done / (time.perf_counter() - start)
        except ImportError as error:
            print(f"  {name}: {error}")
            continue
        print(
            f"  {name:26} {rates[name]:12.0f} events/s ({done} written); ours {rates['ours'] / rates[name]:.1f} × as fast"
        )
    return {"seconds": found, "rates": rates, "disk": disk}


def _read_in_time(s: ooc.Streams, cells: int) -> int:
    """Read the next 64 events of every cell, again and again, until few have any; then what is left."""
    total = 0
    for _ in range(8):
        got = s.read(64)
        if not isinstance(got, ooc.Ragged):
            total += got.size
            continue
        total += len(got.values)
        if not len(got.values):
            return total
    return total + len(s.read(-1).values)


def main() -> None:
    """Run the benchmark as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=2**16)
    parser.add_argument("--ranks", default="1", help="as in 1,2,4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=float, default=1e7)
    parser.add_argument("--event-cells", type=float, default=1e6)
    parser.add_argument("--peer-seconds", type=float, default=10.0, help="time that a peer writes, at most")
    parser.add_argument("--only", choices=["regular", "tables", "events"])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--folder", help="where to write (default: the system's temporary folder)")
    parser.add_argument("--json", help="a file for all figures")
    options = parser.parse_args()
    cells = max(int(options.cells * options.scale), 64)
    many, event_cells = (max(int(n * options.scale), 64) for n in (options.events, options.event_cells))
    kept: dict = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        steps: dict[str, Callable] = {
            "tables": partial(tables, folder, cells, options.rounds),
            "events": partial(events, folder, many, event_cells, options.peer_seconds * min(options.scale * 10, 1)),
        }
        if options.only in (None, "regular"):
            for ranks in map(int, options.ranks.split(",")):
                kept[f"regular, {ranks} ranks"] = found = regular(folder, cells, ranks, options.rounds)
                show_regular(found, cells, ranks)
            kept["detection"] = detection()
        for step, act in steps.items():
            if options.only in (None, step):
                kept[step] = act()
    if options.json:
        Path(options.json).write_text(json.dumps(kept, indent=1))


if __name__ == "__main__":
    sys.exit(main())
