"""Seconds of a rechunk against size, ranks and chunks: rows → columns of float32, no codec, on threads, from the cache.

    python benchmarks/curves.py --rounds 3                     # prints the tables
    python benchmarks/curves.py --rounds 3 --store curves      # keeps them as results/curves.json

One of the three is changed at a time, around 128 MiB, four ranks and chunks of 1 MiB, in a budget of 112 MiB. Predicted
seconds are those of the plan, with the constants that are configured. Every output is compared with its source.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from statistics import median

import numpy as np
import results
import zarr

import oocarrays as ooc

MIB = 2**20
SIZE, RANKS, CHUNK = 128, 4, 1.0
SIZES, ALL_RANKS, CHUNKS = (16, 32, 64, 128, 256), (1, 2, 4, 8), (0.0625, 0.25, 1.0, 4.0, 16.0)
COLUMNS = ["median", "predicted", "memory, as planned", "each round, s"]


def main() -> None:
    """Measure, print, and keep what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="112MiB")
    parser.add_argument("--most", type=int, default=max(SIZES), help="MiB of the largest array")
    parser.add_argument("--store", help="name of the result to keep")
    options = parser.parse_args()
    sizes = [size for size in SIZES if size <= options.most]
    with tempfile.TemporaryDirectory() as folder:
        middle = min(SIZE, options.most)
        measured(Path(folder), middle, RANKS, CHUNK, options)  # not counted: everything is imported
        tables = {
            "size": table("MiB", [(size, (size, RANKS, CHUNK)) for size in sizes], Path(folder), options),
            "ranks": table("ranks", [(ranks, (middle, ranks, CHUNK)) for ranks in ALL_RANKS], Path(folder), options),
            "chunks": table("MiB", [(chunk, (middle, RANKS, chunk)) for chunk in CHUNKS], Path(folder), options),
        }
    for name, each in tables.items():
        print(f"{name}\n\n{results.table(each)}")
    if options.store:
        keep(options, tables)


def keep(options: argparse.Namespace, tables: dict) -> None:
    """Write a result as `results/` keeps them."""
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    found = {
        "how": "written by the run itself",
        "machine": f"{machine}; load {os.getloadavg()[0]:.1f} at the end",
        "commands": [f".venv/bin/python benchmarks/curves.py --rounds {options.rounds} --store {options.store}"],
        "tables": tables,
        "stated": [],
    }
    text = json.dumps(found, ensure_ascii=False, indent=1)
    (results.STORED / f"{options.store}.json").write_text(f"{text}\n", encoding="utf-8")


def table(what: str, cases: Sequence[tuple], folder: Path, options: argparse.Namespace) -> dict:
    """Return a row for each case: MiB, ranks, and MiB of a chunk."""
    rows = [[f"{shown:g}", *measured(folder, *case, options)] for shown, case in cases]
    return {"entered": date.today().isoformat(), "columns": [what, *COLUMNS], "rows": rows}


def measured(folder: Path, size: int, ranks: int, chunk: float, options: argparse.Namespace) -> list[str]:
    """Return what the cells of a row say."""
    rows = 2048
    columns = size * MIB // 4 // rows
    height, width = max(int(chunk * MIB) // 4 // columns, 1), max(int(chunk * MIB) // 4 // rows, 1)
    data = np.random.default_rng(0).integers(0, 2**20, (rows, columns)).astype("f4")
    zarr.create_array(folder / "rows", data=data, chunks=(height, columns), compressors=None, overwrite=True)
    ran = [once(folder, data, width, ranks, options.memory) for _ in range(options.rounds)]
    seconds, predicted, held = zip(*ran, strict=True)
    each = ", ".join(f"{second:.2g}" for second in seconds)
    return [f"{median(seconds):.2g} s", f"{predicted[0]:.2g} s", f"{max(held) / MIB:.0f} MiB", each]


def once(folder: Path, data: np.ndarray, width: int, ranks: int, memory: str) -> tuple[float, float, int]:
    """Rechunk once, and return seconds, predicted seconds, and bytes that are planned to be held."""
    how = {"memory": memory, "ranks": ranks, "scheduler": "threads"}
    job = ooc.rechunk(folder / "rows", folder / "columns", chunks=(-1, width), **how)
    made = job.run()
    if not all(np.array_equal(made[i : i + 256], data[i : i + 256]) for i in range(0, len(data), 256)):
        raise SystemExit("wrong: the target is not the source")
    shutil.rmtree(folder / "columns")
    return job.measured_seconds, job.plan.seconds, job.plan.peak_bytes


if __name__ == "__main__":
    main()
