"""Streams in each mode beside plain Zarr, the tables of Stream*, and irregular events beside what people write today.

    python benchmarks/streams.py --cells 65536 --rounds 5
    python benchmarks/streams.py --cells 1048576 --ranks 1,2,4
    python benchmarks/streams.py --events 1e8 --event-cells 1e6 --only events
    python benchmarks/streams.py --ranks 1,2,4 --events 1e8 --store streams            (results/streams.json)
    python benchmarks/streams.py --scale 0.01                              (seconds)

Seconds are of the wall, closing and syncing included; rounds run the candidates in turn, and ratios are medians of
those within a round; in brackets those of the processor's time, which is steady where others use the machine.
Everything that is read is checked. Peers that take too long write fewer events, and are told in events a second.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import results
import zarr

import oocarrays as ooc
from oocarrays.plan.streams.calls import write_mode
from oocarrays.storage.local.devices import sync_file_system
from oocarrays.storage.meter import MemoryWatch

PAPER = {  # percent of the bandwidth of 64-byte blocks, with 1, 2, 3 and 4 I/O nodes: Tables 2 and 3
    "write": {32: (85, 81, 83, 90), 16: (62, 65, 62, 72)},
    "read": {32: (99, 81, 84, 94), 16: (81, 85, 70, 83)},
}
PAPER_POINTERS = {"write": {2: (100,), 6: (107,), 14: (107,)}, "read": {2: (100,), 6: (106,), 14: (106,)}}
PAPER_MODES = {"NB": "1", "CB": "1", "IB": "0.6 writing"}
EVENT = np.dtype([("time", "f8"), ("energy", "f8")])
BATCH = 10**6


Times = dict[str, list[tuple[float, float]]]
"""Seconds of the wall and of the processor, of each round, by what was done."""


@contextmanager
def timed(found: Times, name: str) -> Iterator[None]:
    """Keep the seconds of a round."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    found.setdefault(name, []).append((time.perf_counter() - wall, time.process_time() - cpu))


def least(found: Times, name: str, which: int = 0) -> float:
    """Return the least seconds of the wall (0) or of the processor (1)."""
    return min(each[which] for each in found[name])


def speed(found: Times, name: str, base: str, which: int = 0) -> float:
    """Return how many times as fast something was as another: the median of the rounds."""
    return statistics.median(b[which] / a[which] for a, b in zip(found[name], found[base], strict=True))


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


def write_zarr(path: Path, values: list, *, ours: bool) -> None:
    """Write the same as a plain array, a step a chunk, by Zarr or by us, and sync."""
    shape, chunks = (len(values), len(values[0])), (1, len(values[0]))
    made = zarr.create_array(path, shape=shape, chunks=chunks, dtype="f8", compressors=None)
    array = ooc.open_array(made) if ours else made
    for step, value in enumerate(values):
        array[step] = value
    sync_file_system(str(path))


def read_zarr(path: Path, values: list, opened: Callable = zarr.open_array) -> None:
    """Read a plain array step by step, and check."""
    array = opened(path)
    for step, value in enumerate(values):
        assert np.array_equal(array[step], value)


MODES = ("plain, zarr", "plain, ours", "NB", "CB", "IB")


def regular(folder: Path, cells: int, ranks: int, rounds: int) -> Times:
    """Seconds of every mode and of plain arrays, writing and reading."""
    values = [np.random.default_rng(step).random(cells) for step in range(64)]
    found: Times = {}
    options = {"ranks": ranks, "memory": "1GiB"}
    for turn in range(rounds + 1):
        kept = found if turn else {}  # the first round warms up
        for mode in MODES:
            path = folder / f"{mode}.zarr"
            shutil.rmtree(path, ignore_errors=True)
            sync_file_system(str(folder))
            with timed(kept, f"write {mode}"):
                if mode.startswith("plain"):
                    write_zarr(path, values, ours=mode.endswith("ours"))
                else:
                    write_regular(mode, path, values, options)
        for cache in ("cold", "warm"):
            for mode in MODES:
                path = folder / f"{mode}.zarr"
                if cache == "cold":
                    drop_cache(path)
                with timed(kept, f"{cache} {mode}"):
                    if mode.startswith("plain"):
                        read_zarr(path, values, ooc.open_array if mode.endswith("ours") else zarr.open_array)
                    else:
                        read_regular(path, values)
    return found


def regular_rows(found: Times, cells: int, ranks: int) -> list[list[str]]:
    """Rows of a table: MB/s and what that is of NB, and by the processor's time."""
    rows = []
    for mode in MODES:
        cells_of_row = [f"{cells} × 64, {ranks} ranks", mode]
        for kind in ("write", "cold", "warm"):
            name, base = f"{kind} {mode}", f"{kind} NB"
            rate = cells * 64 * 8 / 1e6 / least(found, name)
            cells_of_row.append(
                f"{rate:.0f} MB/s, {speed(found, name, base):.2f} × ({speed(found, name, base, 1):.2f})"
            )
        rows.append([*cells_of_row, PAPER_MODES.get(mode, "")])
    return rows


# ---------------------------------------------------------------------- Tables 2 and 3


def tables(folder: Path, cells: int, rounds: int) -> list[list[str]]:
    """Rows of IB by the bytes of its blocks, and by pointers of an entry: what is written has a block for each pointer.

    Half of the cells write at a time, in turn, so that cells do not fill together and each has pointers of its own.
    """
    values = [np.random.default_rng(step).random(cells) for step in range(64)]
    found: Times = {}
    kinds = [{"ib_block": block} for block in (64, 32, 16, 128, 256)] + [{"ib_pointers": n} for n in (2, 6, 14)]
    for turn in range(rounds + 1):
        for blocks in kinds:
            kept, name, path = found if turn else {}, str(blocks), folder / "table.zarr"
            shutil.rmtree(path, ignore_errors=True)
            with timed(kept, f"write {name}"):
                write_halves(path, values, {"memory": "64MiB" if cells <= 2**16 else "1GiB", "blocks": blocks})
            with timed(kept, f"read {name}"):
                read_regular(path, values)
    rows = []
    for blocks in kinds:
        base = kinds[0] if "ib_block" in blocks else {"ib_pointers": 2}
        (what, size), row = next(iter(blocks.items())), []
        for kind in ("write", "read"):
            share = 100 * speed(found, f"{kind} {blocks}", f"{kind} {base}")
            paper = PAPER[kind].get(size, ()) if what == "ib_block" else PAPER_POINTERS[kind].get(size, ())
            row += [f"{share:.0f} %", " ".join(map(str, paper))]
        rows.append([f"{size} B a block" if what == "ib_block" else f"{size} pointers an entry", *row])
    return rows


def write_halves(path: Path, values: list, options: dict) -> None:
    """Write 64 values to each cell, half of the cells at a time."""
    cells = len(values[0])
    half = np.arange(cells) % 2 == 0
    with ooc.open_streams(path, "w", shape=cells, dtype="f8", **options) as s:
        for value in values:
            s.write(value, where=half)
            s.write(value, where=~half)
            if s.mode != "IB":
                raise AssertionError(s.mode)


def detection(cells: int = 2**16) -> list[str]:
    """A row: what the tests of a call cost beside an NB write of 512 KiB."""
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
    return [
        "mode detection, of an NB write of 512 KiB",
        f"{1e6 * each:.2f} µs of {1e6 * write:.0f} µs: {100 * each / write:.2f} %",
    ]


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


def events(folder: Path, count: int, cells: int, seconds: float) -> list[list[str]]:
    """Rows: events a second, of ours and of what people write today."""
    given = list(batches(min(count, 8 * BATCH), cells))

    def all_of_them() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, count, BATCH):
            where, values = given[start // BATCH % len(given)]
            yield where[: count - start], values[: count - start]

    found: Times = {}
    path = folder / "events.zarr"
    ours_events(folder / "warm.zarr", 1000, iter([(given[0][0] % 1000, given[0][1])]))
    disk = [disk_rate(folder, min(count * 16, 2**30))]
    with MemoryWatch() as watch, timed(found, "write"):
        ours_events(path, cells, all_of_them())
    disk.append(disk_rate(folder, min(count * 16, 2**30)))
    drop_cache(path)
    some = np.random.default_rng(1).integers(0, cells, min(1000, cells))
    with timed(found, "read cells"), ooc.open_streams(path, memory="1GiB") as s:
        got = sum(len(s[int(cell)]) for cell in some)
        requests = s.meter.read_requests
        touched = sum(_superblocks(s, int(cell)) for cell in some)
    drop_cache(path)
    with MemoryWatch() as reading, timed(found, "read in time"), ooc.open_streams(path, memory="1GiB") as s:
        total = _read_in_time(s, cells)
    assert total == count
    rate = {name: count * 16 / 1e6 / least(found, name) for name in ("write", "read in time")}
    mean = sum(disk) / 2
    rows = [
        [
            "ours, write", f"{count / least(found, 'write'):.3g}",
            f"{rate['write']:.0f} MB/s, {rate['write'] / mean:.2f} × the disk ({disk[0]:.0f}, {disk[1]:.0f} MB/s); "
            f"processor {least(found, 'write', 1):.1f} s; {watch.peak_bytes / 2**20:.0f} MiB of 1024 held",
        ],
        [
            "ours, all by time, 64 of each cell at a time, cold", f"{count / least(found, 'read in time'):.3g}",
            f"{rate['read in time']:.0f} MB/s; processor {least(found, 'read in time', 1):.1f} s; "
            f"{reading.peak_bytes / 2**20:.0f} MiB held, results among them",
        ],
        [
            f"ours, {len(some)} cells at random, cold", f"{got / least(found, 'read cells'):.3g}",
            f"{least(found, 'read cells'):.2f} s, {got} events, {requests} requests, {requests / touched:.2f} for each "
            "superblock touched",
        ],
    ]  # fmt: skip
    return rows + peer_rows(folder, cells, all_of_them, seconds, count / least(found, "write"))


def _superblocks(s: ooc.Streams, cell: int) -> int:
    """Superblocks of data and of the directory that hold a cell."""
    reader = s._part.apart.reader
    one, length = np.array([cell]), reader.lengths[cell : cell + 1]
    data = len(np.unique(reader.pieces(one, np.zeros(1, np.int64), length).chunk))
    return data + (data > 0)


def peer_rows(folder: Path, cells: int, given: Callable[[], Iterator], seconds: float, ours: float) -> list[list[str]]:
    """Rows of what people write today."""
    peers = {
        "a file a cell": files_events,
        "a Zarr array a cell": zarr_events,
        "h5py, variable length": h5py_events,
        "awkward + Parquet a batch, sorted at the end": parquet_events,
    }
    rows = []
    for name, peer in peers.items():
        try:
            start = time.perf_counter()
            done = peer(folder / name.replace(" ", "_").replace(",", ""), cells, given(), seconds)
            rate = done / (time.perf_counter() - start)
            rows.append([name, f"{rate:.3g}", f"{done} events were written; ours {ours / rate:.1f} × as fast"])
        except ImportError as error:
            rows.append([name, "", str(error)])
    return rows


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


def measured(folder: Path, options: argparse.Namespace) -> Iterator[tuple[str, dict]]:
    """Yield tables as `results/` keeps them, and the name of each."""
    many_cells = [max(int(int(each) * options.scale), 64) for each in options.cells.split(",")]
    if options.only in (None, "regular"):
        for cells in many_cells:
            rows = []
            for ranks in map(int, options.ranks.split(",")):
                rows += regular_rows(regular(folder, cells, ranks, options.rounds), cells, ranks)
            columns = ["cells × doubles", "mode", "write", "read, cold", "read, warm", "the paper"]
            yield f"modes{cells}", _table(columns, rows)
        yield "detection", _table(["what", "measured"], [detection()])
    if options.only in (None, "tables"):
        columns = ["IB with", "write", "the paper, 1 to 4 I/O nodes", "read", "the paper, 1 to 4 I/O nodes, reading"]
        yield "blocks", _table(columns, tables(folder, many_cells[0], options.rounds))
    if options.only in (None, "events"):
        count, cells = (max(int(n * options.scale), 64) for n in (options.events, options.event_cells))
        seconds = options.peer_seconds * min(options.scale * 10, 1)
        yield "events", _table([f"{count:.3g} events over {cells:.3g} cells", "events a second", "measured"],
                               events(folder, count, cells, seconds))  # fmt: skip


def _table(columns: list[str], rows: list[list[str]]) -> dict:
    return {"entered": time.strftime("%Y-%m-%d"), "columns": columns, "rows": rows}


def main() -> None:
    """Run the benchmark as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", default=str(2**16), help="as in 65536,1048576")
    parser.add_argument("--ranks", default="1", help="as in 1,2,4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=float, default=1e7)
    parser.add_argument("--event-cells", type=float, default=1e6)
    parser.add_argument("--peer-seconds", type=float, default=10.0, help="time that a peer writes, at most")
    parser.add_argument("--only", choices=["regular", "tables", "events"])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--folder", help="where to write (default: the system's temporary folder)")
    parser.add_argument("--store", help="name of the result to keep; its other tables stay")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        for what, table in measured(Path(name), options):
            print(f"\n{what}\n{results.table(table)}", end="", flush=True)
            if options.store:
                keep(options.store, what, table)


def keep(name: str, what: str, table: dict) -> None:
    """Keep a table beside those that are there."""
    path = results.STORED / f"{name}.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"commands": [], "tables": {}}
    python = f"Linux {platform.machine()}, Python {platform.python_version()}"
    found |= {
        "how": "written by the run itself",
        "machine": f"{os.cpu_count()} cores, {python}; load {os.getloadavg()[0]:.1f} at the end",
    }
    command = " ".join([".venv/bin/python", *sys.argv])
    found["commands"] = [*dict.fromkeys([*found["commands"], command])]
    found["tables"][what] = table
    path.write_text(f"{json.dumps(found, ensure_ascii=False, indent=1)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
