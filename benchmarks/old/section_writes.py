"""The writes of Table 5.2 redrawn: sections written run by run, or by data sieving (Thakur 1995, section 5.5.1).

    python benchmarks/section_writes.py
    python benchmarks/section_writes.py --scale 8 --rounds 9

A local array of 2048 x 32 elements of 4 bytes, stored by columns in slabs of 16, as one processor of the paper's 64
has it; `--scale` makes both edges, and the slab, so many times as long. The ways take turns, the array is checked
after every write, and times are the least of all rounds, in milliseconds: wall, and of the processor in brackets.
Requests are what the meter counts. zarr-python writes the same section of the same array.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import machine
import numpy as np
import zarr

import oocarrays as ooc
from oocarrays.mapping.selection import lengths
from oocarrays.show.report import table
from oocarrays.storage.files.array_file import describe
from oocarrays.storage.meter import Meter
from oocarrays.storage.sections.write import write_section

ROWS, COLUMNS, SLAB = 2048, 32, 16
PRINTED = {
    "(1:2048:2, 1:32:2)": (49.96, 5.114),
    "(1:2048:4, 1:32:4)": (13.71, 5.033),
    "(10:1024:3, 3:22:3)": (7.551, 4.825),
    "(100:2048:6, 5:32:4)": (7.293, 4.756),
    "(1024:2048:2, 1:32:3)": (17.98, 5.290),
}
"""Seconds of direct and of sieved writes on the Touchstone Delta, by section."""
WAYS = ("direct", "sieve", "auto", "zarr-python")


def axes_of(section: str, scale: int) -> tuple[range, range]:
    """A section as it is printed, counted from 1 with its last element, of an array that is stored by columns.

    >>> axes_of("(10:1024:3, 3:22:3)", 1)
    (range(2, 22, 3), range(9, 1024, 3))
    """
    down, across = (tuple(map(int, part.split(":"))) for part in section.strip("()").split(","))
    return tuple(range((low - 1) * scale, high * scale, step) for low, high, step in (across, down))


def writer(way: str, array: zarr.Array, axes: tuple[range, range], values: np.ndarray) -> Callable[[], Meter]:
    """Return a function that writes the section once in some way, and returns what was counted."""
    key = tuple(slice(taken.start, taken.stop, taken.step) for taken in axes)
    file = describe(array, written=True)

    def write() -> Meter:
        meter = Meter()
        if way == "zarr-python":
            array[key] = values
        else:
            write_section(file, axes, values, method=way, meter=meter)
        return meter

    return write


def one_section(folder: Path, section: str, scale: int, rounds: int) -> dict[str, dict]:
    """Least seconds and counts of each way to write a section."""
    shape, slab = (COLUMNS * scale, ROWS * scale), (SLAB * scale, ROWS * scale)
    array = zarr.create_array(folder, shape=shape, chunks=slab, dtype="f4", compressors=None, overwrite=True)
    array[...] = before = np.arange(1, np.prod(shape) + 1, dtype="f4").reshape(shape)
    axes = axes_of(section, scale)
    found: dict[str, dict] = {way: {"seconds": np.inf, "cpu": np.inf} for way in WAYS}
    for number in range(rounds):
        for way in WAYS[number % len(WAYS) :] + WAYS[: number % len(WAYS)]:
            values = np.full(lengths(axes), -1.0 - number - WAYS.index(way) / 8, "f4")
            write, best = writer(way, array, axes, values), found[way]
            wall, cpu = time.perf_counter(), time.process_time()
            meter = write()
            best["seconds"] = min(best["seconds"], time.perf_counter() - wall)
            best["cpu"] = min(best["cpu"], time.process_time() - cpu)
            best["requests"] = meter.read_requests + meter.write_requests
            before[np.ix_(*axes)] = values
            if not np.array_equal(ooc.open_array(folder)[...], before):
                raise SystemExit(f"{way} wrote {section} wrongly")
    return found


def table52(folder: Path, *, scale: int = 1, rounds: int = 7) -> dict[str, dict[str, dict]]:
    """All sections of the table, each written in all ways."""
    return {section: one_section(folder / "local.zarr", section, scale, rounds) for section in PRINTED}


def drawn(found: dict[str, dict[str, dict]]) -> str:
    """Return the table as text, beside what the paper printed."""
    head = ("section", *WAYS, "requests", "direct / sieve", "printed", "auto / better")
    return table([head, *(_row(section, ways) for section, ways in found.items())])


def _row(section: str, ways: dict[str, dict]) -> tuple[str, ...]:
    direct, sieve = PRINTED[section]
    seconds = {way: each["seconds"] for way, each in ways.items()}
    return (
        section,
        *(f"{1e3 * each['seconds']:.2f} ({1e3 * each['cpu']:.2f})" for each in ways.values()),
        f"{ways['direct']['requests']} / {ways['sieve']['requests']}",
        f"{seconds['direct'] / seconds['sieve']:.1f}",
        f"{direct / sieve:.1f}",
        f"{seconds['auto'] / min(seconds['direct'], seconds['sieve']):.2f}",
    )


def main() -> None:
    """Run the benchmark as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=1, metavar="N", help="multiply every edge by N (default: 1)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", metavar="OUT", help="write every figure to this file")
    options = parser.parse_args()
    print(machine.facts(None))
    with tempfile.TemporaryDirectory(prefix="oocarrays-bench-", dir=".") as folder:
        found = table52(Path(folder), scale=options.scale, rounds=options.rounds)
    print(drawn(found))
    if options.json:
        Path(options.json).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
