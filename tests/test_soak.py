"""A process that has done many jobs is no larger than one that has done few: ``python -m tests.test_soak 10000``."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.errors import BudgetError
from tests.flat import flat

pytestmark = pytest.mark.once

ROUNDS = 8
DATA = np.random.default_rng(0).random((64, 64), dtype="f4")


def rechunk(folder: Path, method: str = "auto") -> None:
    """Rewrite the array, and take the target's place."""
    given = {"chunks": (64, 8), "overwrite": True, "memory": "32MiB", "scheduler": "threads"}
    made = flat(ooc.rechunk, folder / "s.zarr", folder / "t.zarr", method=method, **given).run()
    assert (made[...] == DATA).all()


def two_phase(folder: Path) -> None:
    rechunk(folder, "two-phase")


def map_slabs(folder: Path) -> None:
    job = ooc.map_slabs(np.negative, folder / "s.zarr", folder / "m.zarr", overwrite=True, scheduler="threads")
    assert (job.run()[...] == -DATA).all()


def sections(folder: Path) -> None:
    a = ooc.open_array(folder / "s.zarr")
    assert (a[::3, 1:5] == DATA[::3, 1:5]).all()
    parts = ooc.ranks.read_sections(a, [np.s_[:20], np.s_[10:, ::2]], scheduler="threads").compute()
    assert (parts[1] == DATA[10:, ::2]).all()


def lazily(folder: Path) -> None:
    x = ooc.open_array(folder / "s.zarr").to_dask(chunks=(64, 16))
    assert (x.compute(scheduler="threads") == DATA).all()


def files(folder: Path) -> None:
    ooc.ranks.scatter_files(
        folder / "s.zarr", "(block, *)", folder / "l.zarr", ranks=2, overwrite=True, scheduler="threads"
    ).run()


def refused(folder: Path) -> None:
    with pytest.raises(BudgetError):
        ooc.rechunk(folder / "s.zarr", folder / "u.zarr", chunks=(64, 8), memory=1, scheduler="threads")


KINDS: tuple[Callable[[Path], None], ...] = (rechunk, two_phase, map_slabs, sections, lazily, files, refused)


def size() -> tuple[int, int, int]:
    """Descriptors, threads and objects of this process."""
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count(), len(gc.get_objects())


@pytest.mark.long
def test_a_process_does_not_grow(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "s.zarr", data=DATA, chunks=(8, 64))
    sizes = []
    for _ in range(3):
        for _ in range(ROUNDS):
            for kind in KINDS:
                kind(tmp_path)
        sizes.append(size())
    files, threads, objects = (more - few for few, more in zip(*sizes[1:], strict=True))
    assert max(files, threads) < ROUNDS, "what a kind of job leaves each time is there once a round"
    # nine or ten a job come with Dask's tokens and with caches that fill up: 524 alone, 568 after 2,000 other tests
    assert objects < 20 * ROUNDS * len(KINDS), "a plan or a graph has hundreds"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        zarr.create_array(Path(folder, "s.zarr"), data=DATA, chunks=(8, 64))
        jobs = int(sys.argv[1])
        for number in range(jobs):
            KINDS[number % len(KINDS)](Path(folder))
            if number % max(jobs // 20, 1) == 0:
                print(number, *size(), Path("/proc/self/statm").read_text().split()[1], flush=True)
