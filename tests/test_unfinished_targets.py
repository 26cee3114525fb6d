"""An unfinished target is no readable array, whoever opens it; and each state in which a run can stop has a way out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

import oocarrays as ooc
from oocarrays.errors import (
    DiskFullError,
    OocError,
    UnfinishedError,
)
from oocarrays.plan.files import scatter
from oocarrays.plan.rechunk import counting
from oocarrays.plan.reductions import cut
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.texts import FOLDER
from oocarrays.storage.local import syncing
from tests.unfinished import break_disk

pytestmark = pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
DATA = np.arange(1, 1025, dtype="i4").reshape(32, 32)
THREADS: dict[str, Any] = {"memory": "64MiB", "scheduler": "threads"}


@pytest.fixture(autouse=True)
def many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays have many parts, each written down as soon as it can be, as in runs that last."""
    monkeypatch.setattr(counting, "BATCH_BYTES", 1)
    monkeypatch.setattr(scatter, "ROUND_BYTES", 2**11)
    monkeypatch.setattr(cut, "BOX_BYTES", 2**11)
    monkeypatch.setattr(syncing, "GROUP_SECONDS", 0.0)


def source(folder: Path, zarr_format: int = 3) -> Path:
    zarr.create_array(folder / "s", data=DATA, chunks=(4, 32), compressors=None, zarr_format=zarr_format)  # type: ignore[arg-type]
    return folder / "s"


def group(folder: Path, zarr_format: int = 3) -> Path:
    """A dataset with an array that is rewritten, arrays that are copied, and a group in it."""
    made = xr.Dataset({"air": (("y", "x"), DATA), "rain": (("y",), DATA[0])}, {"y": np.arange(32)})
    made.chunk({"y": 4}).to_zarr(folder / "g", zarr_format=zarr_format, consolidated=True)  # type: ignore[call-overload]
    made[["rain"]].to_zarr(folder / "g", group="deep", mode="a", zarr_format=zarr_format)  # type: ignore[call-overload]
    return folder / "g"


def local(folder: Path, zarr_format: int = 3) -> Path:
    a = source(folder, zarr_format)
    ooc.scatter_files(a, "(block, *)", folder / "l", ranks=2, chunks=(4, 32), **THREADS).run()
    return folder / "l"


def rechunked(method: str) -> Callable[..., Any]:
    def made(folder: Path, target: Any, zarr_format: int = 3, **more: Any) -> Any:
        there = folder / "s" if (folder / "s").exists() else source(folder, zarr_format)
        return ooc.rechunk(there, target, chunks=(32, 4), method=method, ranks=2, **THREADS, **more)

    return made


def job_of(make: Callable[..., Any], begin: Callable[[Path, int], Path]) -> Callable[..., Any]:
    def made(folder: Path, target: Any, zarr_format: int = 3, **more: Any) -> Any:
        there = next((folder / name for name in ("l", "g", "s") if (folder / name).exists()), None)
        there = there or begin(folder, zarr_format)
        return make(there if there.name == "g" else ooc.open_array(there), target, **more)

    return made


def lazily(s: Any, target: Any, **more: Any) -> Any:
    return ooc.from_dask(s.to_dask() + 0, target, chunks=(32, 4), **THREADS, **more)


def dataset(g: Path, target: Any, **more: Any) -> Any:
    return ooc.rechunk(xr.open_zarr(g).chunk({"y": 8}), target, chunks={"y": 4}, **THREADS, **more)


JOBS: dict[str, Callable[..., Any]] = {
    "independent": rechunked("independent"),
    "two-phase": rechunked("two-phase"),
    "staged": rechunked("staged"),
    "assembled": rechunked("assembled"),
    "map_slabs": job_of(
        lambda s, t, **more: ooc.map_slabs(np.negative, s, t, height=4, ranks=1, **THREADS, **more), source
    ),
    "iterate": job_of(
        lambda s, t, **more: ooc.iterate(np.negative, s, t, depth=0, sweeps=2, fuse=1, height=4, **THREADS, **more),
        source,
    ),
    "reduce": job_of(lambda s, t, **more: ooc.reduce(s, "max", axis=1, target=t, **THREADS, **more), source),
    "from_dask": job_of(lazily, source),
    "scatter_files": job_of(
        lambda s, t, **more: ooc.scatter_files(s, "(block, *)", t, ranks=2, chunks=(4, 32), **THREADS, **more), source
    ),
    "gather_files": job_of(lambda s, t, **more: ooc.gather_files(s, t, chunks=(8, 32), **THREADS, **more), local),
    "local slabs": job_of(lambda s, t, **more: ooc.map_slabs(np.negative, s, t, height=4, **THREADS, **more), local),
    "pyramid": job_of(lambda s, t, **more: ooc.pyramid(s, t, levels=3, chunks=(8, 8), **THREADS, **more), source),
    "group": job_of(lambda s, t, **more: ooc.rechunk(s, t, chunks={"air": (32, 4)}, **THREADS, **more), group),
    "group, other format": job_of(
        lambda s, t, **more: ooc.rechunk(s, t, chunks={"air": (32, 4)}, zarr_format=2, **THREADS, **more), group
    ),
    "dataset": job_of(dataset, group),
}
LOCAL_ONLY = {"scatter_files", "local slabs", "dataset"}
BEGUN_AGAIN = {"from_dask", "dataset"}
"""Jobs whose source no journal keeps: they are written again."""


def opened_by(store: Any) -> Iterator[str]:
    """The readers by which something at a place is opened."""
    for name, read in {
        "zarr.open_array": lambda: zarr.open_array(store, mode="r"),
        "zarr.open": lambda: zarr.open(store, mode="r"),
        "zarr.open_group": lambda: zarr.open_group(store, mode="r"),
        "dask": lambda: da.from_zarr(store),
        "xarray": lambda: xr.open_zarr(store),
        "xarray, consolidated": lambda: xr.open_zarr(store, consolidated=True),
    }.items():
        try:
            read()
        except Exception:  # noqa: BLE001  each has errors of its own
            continue
        yield name


def nodes_below(target: Path) -> dict[str, Any]:
    """All arrays below a folder that plain Zarr opens, with what it reads."""
    found = {}
    for at, _, _ in os.walk(target):
        try:
            found[os.path.relpath(at, target)] = zarr.open_array(at, mode="r")[...]
        except Exception:  # noqa: BLE001
            continue
    return found


def stop(job: Any, after: int) -> None:
    """Run a job to the ``after``-th chunk, or entry of its journal, where its device is full."""
    calls, prepare = count(), Journal.prepare

    def full(*args: Any, **more: Any) -> Any:
        if next(calls) >= after:
            raise DiskFullError("no room left on the device for an entry")
        return prepare(*args, **more)

    with pytest.MonkeyPatch.context() as patch:
        break_disk(patch, after)
        patch.setattr(Journal, "prepare", full)
        with pytest.raises(OocError):
            job.run()


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("after", [1, 3])
@pytest.mark.parametrize("name", JOBS)
def test_nobody_opens_a_target_that_a_run_has_left(tmp_path: Path, name: str, after: int, zarr_format: int) -> None:
    target = tmp_path / "t"
    job = JOBS[name](tmp_path, target, zarr_format)
    stop(job, 0 if name in ("pyramid", "reduce") else after)
    with pytest.raises(UnfinishedError, match="overwrite"):
        ooc.open_array(target)
    assert list(opened_by(target)) == []
    left = nodes_below(target)
    made = JOBS[name](tmp_path, tmp_path / "whole", zarr_format).run()
    assert made is not None
    whole = nodes_below(tmp_path / "whole")
    for path, values in left.items():  # arrays of a group that are finished by themselves
        np.testing.assert_array_equal(values, whole[path])
    JOBS[name](tmp_path, target, zarr_format, overwrite=True).run()
    again = nodes_below(target)
    assert again.keys() == whole.keys()
    for path, values in again.items():
        np.testing.assert_array_equal(values, whole[path])
    assert not list(target.rglob(FOLDER))
