"""Jobs on a device that is full, or over quota, from one call of the system on: ``python -m tests.full SHARED KIND …``.

It is run with ``LD_PRELOAD=SHARED``, made of full.c: what is written below Python fails, too. Each line of its output
is a try: the kind of job, whether it was to sync that failed, the number of the call, and how it went.
"""

from __future__ import annotations

import ctypes
import errno
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import zarr

import oocarrays as ooc
from oocarrays.errors import DiskFullError, OocError
from tests.flat import flat
from tests.seams import (
    JOURNAL_FOLDER,
    JOURNAL_PLAN,
    KEPT_REQUEST,
    KEPT_SOURCE,
    PROCESS,
    RECHUNK_METHODS,
    is_finished,
    set_constants,
)

DATA = np.arange(1, 257, dtype="i4").reshape(16, 16)
GIVEN: dict[str, Any] = {"memory": "64MiB", "ranks": 2, "scheduler": "threads"}
Made = Callable[..., Any]


def rechunk(method: str) -> Made:
    def made(source: Path, target: Path, **options: Any) -> Any:
        scratch = {"scratch": target.parent} if method in ("staged", "assembled") else {}
        return flat(ooc.rechunk, source, target, chunks=(16, 4), method=method, **GIVEN, **scratch, **options)

    return made


def map_slabs(source: Path, target: Path, **options: Any) -> Any:
    return flat(ooc.map_slabs, np.negative, source, target, window=4, **GIVEN, **options)


def iterate(source: Path, target: Path, **options: Any) -> Any:
    return flat(
        ooc.iterate,
        np.negative,
        source,
        target,
        depth=0,
        sweeps=3,
        resources=ooc.Resources(fuse=1, window=4),
        **GIVEN,
        **options,
    )


def scatter(source: Path, target: Path, **options: Any) -> Any:
    return flat(ooc.ranks.scatter_files, source, "(block, *)", target, **GIVEN, **options)


def group(source: Path, target: Path, **options: Any) -> Any:
    return flat(ooc.rechunk, source.parent / "group.zarr", target, chunks={"air": (16, 4)}, **GIVEN, **options)


KINDS: dict[str, Made] = {method: rechunk(method) for method in RECHUNK_METHODS}
KINDS |= {"map_slabs": map_slabs, "iterate": iterate, "scatter": scatter, "group": group}
SIGNS = {"map_slabs": -1, "iterate": -1}


def again(make: Made, kind: str, source: Path, target: Path) -> Any:
    """The job that goes on with what is left, or begins anew."""
    if is_finished(target) or not (target / JOURNAL_FOLDER / JOURNAL_PLAN).exists() or kind == "scatter":
        return make(source, target, overwrite=True)
    if kind in ("map_slabs", "iterate"):
        return make(source, target, resume=True)
    return ooc.resume(target, scheduler="threads")


def values(kind: str, target: Path) -> np.ndarray:
    if kind == "scatter":
        return np.asarray(ooc.open_array(target)[...])
    return np.asarray(zarr.open_array(target / "air" if kind == "group" else target, mode="r")[...])


def tries(full: Any, kind: str, folder: Path, every: int) -> Iterator[tuple[str, bool, int, str]]:
    """Fail at each call, or at some, and go on when there is room."""
    make, source, disk = KINDS[kind], folder / "source.zarr", folder / "disk"
    for late in (False, True):
        number, left = 0, 1
        while number < left:
            target = disk / f"{late}{number}.zarr"
            full.full_from(bytes(disk), -1, 0, late)
            if number == 0:
                make(source, disk / f"{late}.zarr").run()
                left = full.full_from(bytes(disk), -1, 0, late)
            job = make(source, target)
            full.full_from(bytes(disk), number, (errno.EDQUOT, errno.ENOSPC)[number % 2], late)
            try:
                job.run()
                how = "done"
            except OocError as error:
                told = str(error)
                how = "" if isinstance(error, DiskFullError) and "\n" not in told else f"{type(error).__name__}: {told}"
            except Exception as error:  # noqa: BLE001
                how = f"{type(error).__name__}: {error}"
            reached = full.full_from(b"", -1, 0, late) > number
            try:
                if how != "done" or not is_finished(target):
                    again(make, kind, source, target).run()
                if not np.array_equal(values(kind, target), SIGNS.get(kind, 1) * DATA):
                    how = f"WRONG after {how}"
            except OocError as error:
                how = f"not gone on with: {type(error).__name__}: {error}; {how}"
            hidden = [
                str(each.relative_to(disk))
                for each in disk.rglob(".oocarrays*")
                if each.name not in (KEPT_REQUEST, KEPT_SOURCE)
            ]
            if hidden:
                how += f" left {hidden[:3]}"
            yield kind, late, number, how if reached else f"not reached; {how}"
            number += every


def main(shared: str, every: int, *kinds: str) -> None:
    full = ctypes.CDLL(shared)
    full.full_from.argtypes, full.full_from.restype = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int], int
    set_constants(PROCESS, batch_bytes=1)
    warnings.simplefilter("ignore")
    for kind in kinds or KINDS:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            (folder / "disk").mkdir()
            zarr.create_array(folder / "source.zarr", data=DATA, chunks=(4, 16), compressors=None)
            both = zarr.create_group(folder / "group.zarr")
            for name, data in {"air": DATA, "lat": DATA[0]}.items():
                both.create_array(name, data=data, chunks=(4, 16)[: data.ndim])
            for told in tries(full, kind, folder, every):
                print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
