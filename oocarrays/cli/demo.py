"""The demo: an array larger than its budget is made, rechunked, and checked."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import zarr

from oocarrays.arrays.array import open_array
from oocarrays.cli.commands import FAILED
from oocarrays.cli.runs import run_and_tell
from oocarrays.errors import InputError
from oocarrays.graphs.settings import size_in_bytes
from oocarrays.jobs.rechunking import rechunk
from oocarrays.storage.stores.urls import check_path


def demo_options(parser: argparse.ArgumentParser) -> None:
    """Let ``demo`` take a size and a budget."""
    parser.add_argument("--size", default="512MiB", help="bytes of the array (default: %(default)s)")
    parser.add_argument("--memory", default="128MiB", help="the budget (default: %(default)s)")
    parser.add_argument("--folder", help="where to work (default: the system's temporary folder)")
    parser.set_defaults(command=_demo)


def _demo(options: argparse.Namespace) -> int:
    if options.folder is not None:
        check_path(options.folder, "--folder")
        if not (os.path.isdir(options.folder) and os.access(options.folder, os.W_OK)):
            raise InputError(f"--folder {options.folder} is not a folder that can be written to")
    nbytes, free = size_in_bytes(options.size, "size"), shutil.disk_usage(options.folder or tempfile.gettempdir()).free
    if 2 * nbytes > free:
        raise InputError(f"--size {options.size}: source and target need {2 * nbytes} bytes, and {free} are free")
    with tempfile.TemporaryDirectory(prefix="oocarrays-demo-", dir=options.folder) as folder:
        rows, columns = Path(folder, "rows.zarr"), Path(folder, "columns.zarr")
        print(f"making an array of {options.size} in row slabs, to be rewritten in column slabs with {options.memory}")
        edge = _demo_array(rows, nbytes)
        job = rechunk(rows, columns, chunks=(edge, max(edge // 64, 1)), memory=options.memory, scheduler="threads")
        print(job)
        run_and_tell(job, progress=True)
        wrong = _wrong_columns(columns, edge)
    print("checked: every element is right" if not wrong else f"WRONG: {wrong} columns differ")
    return FAILED if wrong else 0


def _demo_array(path: Path, nbytes: int) -> int:
    """Make a square array whose element (i, j) is ``i * edge + j``, in row slabs; returns the edge."""
    edge = max(int((nbytes / 8) ** 0.5), 1)
    array = zarr.create_array(path, shape=(edge, edge), chunks=(max(edge // 64, 1), edge), dtype="i8", compressors=None)
    step = max(edge // 64, 1)
    for start in range(0, edge, step):
        stop = min(start + step, edge)
        array[start:stop] = np.arange(start * edge, stop * edge).reshape(stop - start, edge)
    return edge


def _wrong_columns(path: Path, edge: int) -> int:
    """Columns of the demo's target that do not hold what they should."""
    array = open_array(path)
    step: int = array.chunks[1]
    first = np.arange(edge)[:, None] * edge
    return sum(
        int((array[:, start : start + step] != first + np.arange(start, min(start + step, edge))).any(axis=0).sum())
        for start in range(0, edge, step)
    )
