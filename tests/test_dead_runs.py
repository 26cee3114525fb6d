"""Files that killed runs leave beside a target: the next run at that target removes them, and no others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

import oocarrays as ooc
from tests.dying import Server
from tests.flat import flat
from tests.test_resume_in_place import DATA, PARTS, SHIFT, TILES, WRITE
from tests.unfinished import left_behind, make_field, options_of

FIELD = np.arange(96 * 40.0).reshape(96, 40)
DATASET = """
from pathlib import Path
from tests.test_dead_runs import dataset_job
dataset_job(Path("t.zarr")).run()
"""
LAZY = """
from pathlib import Path
from tests.test_dead_runs import lazy_job
lazy_job(Path("t.zarr")).run()
"""


def dataset_job(target: Path, **how: bool) -> Any:
    """Two variables in blocks of rows, written in chunks of columns."""
    x = da.from_array(FIELD, chunks=(7, 40))
    ds = xr.Dataset({"a": (("y", "x"), x + 1), "b": (("y", "x"), x * 2)})
    return flat(ooc.rechunk, ds, target, chunks={"y": -1, "x": 3}, memory="64MiB", scheduler="threads", **how)


def lazy_job(target: Path, **how: bool) -> Any:
    """A lazy array in blocks of rows, written in chunks of columns."""
    x = da.from_array(FIELD, chunks=(7, 40)) + 1
    return flat(ooc.rechunk, x, target, chunks=(96, 3), memory="64MiB", scheduler="threads", **how)


def scratch(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith(".oocarrays-"))


def partials(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.partial"))


@pytest.mark.parametrize(("kind", "after"), [("dataset", 2), ("dataset", 20), ("lazy", 2)])
def test_scratch_of_lazy_arrays(
    tmp_path: Path, runs: Server, monkeypatch: pytest.MonkeyPatch, kind: str, after: int
) -> None:
    script, job = {"dataset": (DATASET, dataset_job), "lazy": (LAZY, lazy_job)}[kind]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(script)
    runs.run("script", tmp_path / "script.py", at="chunk", after=after)
    assert scratch(tmp_path)
    other = tmp_path / "other"
    job(other).run()
    assert scratch(tmp_path), "it is of another target"
    made = job(tmp_path / "t.zarr", overwrite=True).run()
    np.testing.assert_array_equal(made.a if kind == "dataset" else made[...], FIELD + 1)
    assert scratch(tmp_path) == []


def test_scratch_of_a_rechunk_whose_target_is_written_over(tmp_path: Path, runs: Server) -> None:
    source, target = make_field(tmp_path), tmp_path / "t.zarr"
    runs.run("rechunk", source, target, at="entry", after=4, **options_of("staged"))
    (left,) = scratch(tmp_path)
    flat(ooc.rechunk, source, tmp_path / "other", scheduler="threads", **options_of("staged")).run()
    assert scratch(tmp_path) == [left], "it is of another target"
    flat(ooc.rechunk, source, target, overwrite=True, scheduler="threads", **options_of("independent")).run()
    assert scratch(tmp_path) == left_behind(target) == []


def test_scratch_of_an_iteration_whose_target_is_written_over(tmp_path: Path, runs: Server) -> None:
    zarr.create_array(tmp_path / "a", data=FIELD, chunks=(8, 40))
    how = {"sweeps": 3, "fuse": 1, "memory": "64MiB", "ranks": 1, "height": 8}
    runs.run("iterate", "numpy:negative", tmp_path / "a", tmp_path / "t", at="entry", after=4, **how)
    assert scratch(tmp_path)
    made = flat(
        ooc.iterate, np.negative, tmp_path / "a", tmp_path / "t", overwrite=True, scheduler="threads", **how
    ).run()
    np.testing.assert_array_equal(made[...], -FIELD)
    assert scratch(tmp_path) == []


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("kind", ["write", "shift"])
def test_partial_files_of_writes_in_place(
    tmp_path: Path, runs: Server, monkeypatch: pytest.MonkeyPatch, kind: str, resume: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    zarr.create_array(tmp_path / "z", data=DATA, chunks=(5, 7))
    ooc.ranks.scatter_files(
        tmp_path / "z",
        "(block, *)",
        ooc.Target(tmp_path / "l", chunks=(3, 20)),
        ranks=4,
        depth=(1, 0),
        scheduler="threads",
    ).run()
    (tmp_path / "script.py").write_text(WRITE.format(kind="tiles") if kind == "write" else SHIFT)
    runs.run("script", tmp_path / "script.py", at="partial", after=2)
    (left, *_) = partials(tmp_path)
    living = left.with_name(f"0.{os.urandom(16).hex()}.partial")
    living.write_bytes(b"of another machine")
    if kind == "write":
        job = ooc.ranks.write_sections("z", TILES, PARTS, resume=resume, scheduler="threads")
    else:
        job = ooc.ranks.shift(ooc.open_array("l", mode="r+"), boundary="periodic", resume=resume, scheduler="threads")
    job.run()
    assert partials(tmp_path) == [living]


def test_partial_files_of_dead_processes_are_cleaned_at_once(
    tmp_path: Path, runs: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    zarr.create_array(tmp_path / "z", data=DATA, chunks=(5, 7))
    (tmp_path / "script.py").write_text(WRITE.format(kind="tiles"))
    runs.run("script", tmp_path / "script.py", at="partial", after=2)
    assert {each.kind for each in ooc.clean(tmp_path)} == {"partial"}
    assert partials(tmp_path) == []
