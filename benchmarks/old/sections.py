"""Sections of arrays on disk: our read beside zarr-python, TensorStore, h5py and numpy.memmap, cold and warm.

    python benchmarks/sections.py sparse                     [::64, ::64] and [:, 5] of 1 GiB in rows, columns, shards
    python benchmarks/sections.py dense --cache warm         [::4, ::4] and a block, of compressed chunks too
    python benchmarks/sections.py table52                    reads of the thesis's Table 5.2: direct, sieved, auto

An array of 16384 x 16384 elements of 4 bytes, in slabs of 256 rows or columns, or in shards of 2048 x 2048 with chunks
of 128 x 128. h5py reads a contiguous data set, numpy.memmap a plain file. The ways take turns in one process, and every
result is checked. Times are medians in milliseconds, with the least and the most; in
brackets those of the processor. Ratios are medians of those within a round; memory is what the process had at most
above what it had before, mapped pages included.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import machine
import numpy as np
import rounds
import zarr

import oocarrays as ooc
from oocarrays.show.report import table

EDGE = 16384
LARGEST = 2**24
"""Elements count up to this, and begin anew: float32 holds no larger integer that has a neighbour."""
SECTIONS: dict[str, dict[str, Callable[[int], tuple[slice | int, slice | int]]]] = {
    "sparse": {
        "[::64, ::64]": lambda n: np.s_[::64, ::64],
        "[:, 5]": lambda n: np.s_[:, 5:6],
    },
    "dense": {
        "[::4, ::4]": lambda n: np.s_[::4, ::4],
        "a block": lambda n: np.s_[n // 16 : n // 2, n // 5 : n * 3 // 4],
    },
}
STORED = {"sparse": ("rows", "columns", "shards"), "dense": ("rows", "columns", "shards", "zstd")}
PEERS = ("oocarrays", "zarr-python", "tensorstore", "h5py", "memmap")
Way = Callable[[Any], np.ndarray]


def layouts(n: int) -> dict[str, dict[str, Any]]:
    """Return how the array is stored, by name."""
    plain = {"compressors": None}
    return {
        "rows": {"chunks": (n // 64, n), **plain},
        "columns": {"chunks": (n, n // 64), **plain},
        "shards": {"chunks": (n // 128, n // 128), "shards": (n // 8, n // 8), **plain},
        "zstd": {"chunks": (n // 64, n), "compressors": zarr.codecs.ZstdCodec(level=1)},
    }


def elements(rows: np.ndarray, columns: np.ndarray, n: int) -> np.ndarray:
    """Return the elements at a product of indices: each has its number."""
    return ((rows[:, None] * n + columns) % LARGEST).astype("f4")


def make(folder: Path, n: int) -> None:
    """Store the array in every way, where it is not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, how in layouts(n).items():
        fill(folder / name, lambda path, how=how: zarr.create_array(path, shape=(n, n), dtype="f4", **how), n)
    fill(folder / "plain.bin", lambda path: np.memmap(path, "f4", "w+", shape=(n, n)), n)
    h5py = module("h5py")
    if h5py:
        fill(folder / "plain.h5", lambda path: h5py.File(path, "w").create_dataset("a", (n, n), "f4"), n)


def fill(path: Path, create: Callable[[str], Any], n: int) -> None:
    """Make one file of the array, under another name first."""
    if path.exists():
        return
    partial = path.with_name(f"partial-{path.name}")
    shutil.rmtree(partial, ignore_errors=True)
    array, rows = create(str(partial)), max(n // 8, 1)
    for low in range(0, n, rows):
        array[low : low + rows] = elements(np.arange(low, low + rows), np.arange(n), n)
    getattr(getattr(array, "file", None), "close", lambda: None)()
    del array
    partial.rename(path)


def module(name: str) -> Any:
    """A library, or None where it is not installed."""
    try:
        return __import__(name)
    except ImportError:
        return None


def ways(folder: Path, stored: str, n: int, peers: list[str]) -> dict[str, tuple[Path, Way]]:
    """Return functions that read a key, with the files that they read, by peer; those that are installed."""
    path = folder / stored
    array, mine = zarr.open_array(path, mode="r"), ooc.open_array(path)
    found: dict[str, tuple[Path, Way]] = {
        "oocarrays": (path, lambda key: mine[key]),
        "zarr-python": (path, lambda key: array[key]),
        "memmap": (
            folder / "plain.bin",
            lambda key: np.array(np.memmap(folder / "plain.bin", "f4", "r", shape=(n, n))[key]),
        ),
    }
    if tensorstore := module("tensorstore"):
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path}/"}}
        opened = tensorstore.open(spec).result()
        found["tensorstore"] = path, lambda key: opened[key].read().result()
    if h5py := module("h5py"):
        data = h5py.File(folder / "plain.h5")["a"]
        found["h5py"] = folder / "plain.h5", lambda key: data[key]
    return {name: found[name] for name in peers if name in found}


def measured(way: tuple[Path, Way], key: Any, expected: np.ndarray, cache: str) -> dict[str, float]:
    """Seconds, processor seconds and bytes of one read, which is checked."""
    path, read = way
    {"cold": machine.make_cold, "warm": machine.make_warm}[cache](str(path))
    before = forget_peak()
    wall, cpu = time.perf_counter(), time.process_time()
    found = read(key)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if not np.array_equal(found, expected):
        raise SystemExit(f"{path} was read wrongly")
    return {"wall": wall, "cpu": cpu, "peak": max(status("VmHWM") - before, 0)}


def forget_peak() -> int:
    """Let the system forget the most memory that the process had; what it has now, in bytes."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def status(name: str) -> int:
    """Bytes that the system tells of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def compare(which: str, folder: Path, n: int, options: argparse.Namespace) -> list[dict]:
    """All sections of all ways to store the array, all peers in turn."""
    make(folder, n)
    results = []
    for stored, (name, section), cache in product(STORED[which], SECTIONS[which].items(), options.cache):
        key, found = section(n), ways(folder, stored, n, options.peers)
        expected = elements(*(np.arange(n)[each] for each in key), n)
        taken: dict[str, list[dict]] = {peer: [] for peer in found}
        for number in range(-options.discard, options.rounds):
            order = list(found)
            first = number % len(order)
            for peer in order[first:] + order[:first]:
                run = measured(found[peer], key, expected, cache)
                taken[peer] += [run] if number >= 0 else []
        results.append({"stored": stored, "section": name, "cache": cache, "runs": taken})
        print(f"\n**{name} of {stored}, {cache}**\n\n{drawn(taken)}", flush=True)
    return results


def drawn(taken: dict[str, list[dict]]) -> str:
    """Return the runs of one section as a table."""
    ours = taken.get("oocarrays")
    rows = [("peer", "ms", "least–most", "(cpu)", "× oocarrays", "× (cpu)", "MiB")]
    for peer, runs in taken.items():
        ratios = [
            f"{median(run[what] / max(own[what], 1e-6) for run, own in zip(runs, ours, strict=True)):.1f}"
            if ours
            else "–"
            for what in ("wall", "cpu")
        ]
        wall, cpu = ([1e3 * run[what] for run in runs] for what in ("wall", "cpu"))
        peak = f"{median(run['peak'] for run in runs) / 2**20:.0f}"
        spread = f"{min(wall):.1f}–{max(wall):.1f}"
        rows.append((peer, f"{median(wall):.1f}", spread, f"({median(cpu):.1f})", *ratios, peak))
    return table(rows)


TABLE52 = {
    "(1:2048:2, 1:32:2)": (np.s_[0:32:2, 0:2048:2], 52.95, 1.970),
    "(1:2048:4, 1:32:4)": (np.s_[0:32:4, 0:2048:4], 14.03, 1.925),
    "(10:1024:3, 3:22:3)": (np.s_[2:22:3, 9:1024:3], 8.070, 1.352),
    "(100:2048:6, 5:32:4)": (np.s_[4:32:4, 99:2048:6], 7.881, 1.606),
    "(1024:2048:2, 1:32:3)": (np.s_[0:32:3, 1023:2048:2], 18.43, 1.745),
}
"""Sections as printed and by our axes, columns first; seconds of direct and of sieved reads on the Touchstone Delta."""


def table52(folder: Path, options: argparse.Namespace) -> list[dict]:
    """Reads of an array of 2048 x 32 elements, stored by columns, both edges so many times as long."""
    folder.mkdir(parents=True, exist_ok=True)
    shape = (32 * options.times, 2048 * options.times)
    data = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    path = folder / "local"
    zarr.create_array(path, data=data, chunks=shape, compressors=None, overwrite=True)
    array, mine = zarr.open_array(path, mode="r"), ooc.open_array(path)
    reads: dict[str, Way] = {
        f"oocarrays {method}": (lambda key, method=method: mine.read(key, method=method))
        for method in ("direct", "sieve", "auto")
    }
    reads["zarr-python"] = lambda key: array[key]
    if h5py := module("h5py"):
        with h5py.File(folder / "local.h5", "w") as file:
            file.create_dataset("a", data=data)
        opened = h5py.File(folder / "local.h5")["a"]
        reads["h5py"] = lambda key: opened[key]
    rows, results = [("section", *reads, "direct / sieve", "printed", "auto / better", "auto / h5py")], []
    for name, (printed, direct, sieve) in TABLE52.items():
        key = tuple(slice(each.start * options.times, each.stop * options.times, each.step) for each in printed)
        least = {
            way: min(timed(read, key, data[key]) for _ in range(options.rounds * 4)) for way, read in reads.items()
        }
        a, b, c = (least[f"oocarrays {method}"] for method in ("direct", "sieve", "auto"))
        against = f"{c / least['h5py']:.2f}" if "h5py" in least else "–"
        ratios = (f"{a / b:.1f}", f"{direct / sieve:.1f}", f"{c / min(a, b):.2f}", against)
        rows.append((name, *(f"{1e3 * seconds:.2f}" for seconds in least.values()), *ratios))
        results.append({"section": name, "seconds": least})
    print(f"\n**Table 5.2, reads**: least milliseconds of the processor\n\n{table(rows)}", flush=True)
    return results


def timed(read: Way, key: Any, expected: np.ndarray) -> float:
    """Processor seconds of one read, which is checked."""
    cpu = time.process_time()
    found = read(key)
    cpu = time.process_time() - cpu
    if not np.array_equal(found, expected):
        raise SystemExit("a section was read wrongly")
    return cpu


def main() -> None:
    """Run the benchmark as the command line asks."""
    parser = rounds.parser(__doc__ or "", ("cold", "warm"), 600)
    parser.add_argument("what", choices=["sparse", "dense", "table52"])
    parser.add_argument("--peers", type=lambda text: text.split(","), default=list(PEERS), help=",".join(PEERS))
    parser.add_argument("--times", type=int, default=1, help="of table52: multiply both edges by this (default: 1)")
    options = parser.parse_args()
    print(machine.facts(None), flush=True)
    with rounds.working_folder(options):
        folder = Path(options.workdir) / "sections"
        if options.what == "table52":
            results = table52(folder, options)
        else:
            n = EDGE // options.scale
            results = compare(options.what, folder / str(n), n, options)
        rounds.save(options, {"results": results})


if __name__ == "__main__":
    main()
