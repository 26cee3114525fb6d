"""Every kind of job has a plan with the same properties, and explains them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr

import oocarrays as ooc
from tests.flat import flat
from tests.golden.jobs import FIELD, HERE, group, local, source

PLANNED: dict[str, Callable[[Path], Any]] = {
    "rechunk": lambda f: flat(ooc.rechunk, source(f), f / "target", chunks=(24, 3), **HERE),
    "rechunk to shards": lambda f: flat(
        ooc.rechunk, source(f), ooc.Target(f / "target", shards=(24, 6)), chunks=(24, 3), **HERE
    ),
    "group": lambda f: flat(ooc.rechunk, group(f), f / "target", chunks={"air": (24, 3)}, **HERE),
    "map_slabs": lambda f: flat(ooc.map_slabs, np.negative, source(f), f / "target", depth=1, **HERE),
    "windows": lambda f: flat(ooc.map_slabs, np.negative, source(f), f / "target", window=(8, 8), **HERE),
    "local slabs": lambda f: flat(ooc.map_slabs, np.negative, local(f), f / "target", **HERE),
    "iterate": lambda f: flat(ooc.iterate, np.negative, source(f), f / "target", sweeps=5, depth=1, **HERE),
    "pyramid": lambda f: flat(ooc.pyramid, source(f), f / "target", levels=3, **HERE),
    "reduce": lambda f: flat(ooc.reduce, source(f), "mean", 0, target=f / "target", **HERE),
    "scatter": lambda f: flat(ooc.ranks.scatter_files, source(f), "(block, *)", f / "target", ranks=4, **HERE),
    "gather": lambda f: flat(ooc.ranks.gather_files, local(f), ooc.Target(f / "target", chunks=(5, 7)), **HERE),
    "shift": lambda f: flat(ooc.ranks.shift, local(f, depth=1), **HERE),
    "update": lambda f: changed(f),
    "write_sections": lambda f: flat(
        ooc.ranks.write_sections, ooc.open_array(source(f), mode="r+"), "(block, *)", [FIELD[:12], FIELD[12:]], **HERE
    ),
    "from_dask": lambda f: flat(
        ooc.rechunk, da.from_array(FIELD, chunks=(4, 20)), f / "target", chunks=(24, 3), **HERE
    ),
    "from_dask straight": lambda f: flat(
        ooc.rechunk, da.from_array(FIELD, chunks=(4, 20)), f / "target", chunks=(4, 20), **HERE
    ),
}


def changed(folder: Path) -> Any:
    flat(ooc.rechunk, source(folder), folder / "target", chunks=(24, 3), **HERE).run()
    zarr.open_array(folder / "source", mode="r+")[5, 7] = -1
    return flat(ooc.update, folder / "target", **HERE)


@pytest.mark.parametrize("kind", PLANNED)
def test_a_plan_predicts_and_compares_and_explain_shows_it(tmp_path: Path, kind: str) -> None:
    job = PLANNED[kind](tmp_path)
    plan = job.plan
    assert plan.ranks >= 1
    assert plan.processes in (None, 1), "threads of this process"
    assert plan.seconds > 0 or kind == "from_dask straight"
    assert plan.traffic.write_requests > 0
    assert 0 < plan.peak_bytes <= plan.budget
    assert plan.memory.nbytes == plan.peak_bytes
    taken = [each for each in plan.alternatives if each.taken]
    assert len(taken) == (1 if kind != "group" else len(plan.members))
    if kind != "group" and "from_dask" not in kind:
        assert (taken[0].seconds, taken[0].peak_bytes) == (pytest.approx(plan.seconds), plan.peak_bytes)
    text = job.explain()
    for word in ("peak memory", "predicted", "considered", "held at one time", *(each.reason for each in taken)):
        assert word in text


def test_a_plan_with_too_large_parts_names_them(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "large", shape=(4096, 4096), chunks=(64, 4096), dtype="f4", compressors=None)
    plan = ooc.ranks.scatter_files(tmp_path / "large", "(block, *)", tmp_path / "t", ranks=4, memory="64MiB",
                             scheduler="threads").plan  # fmt: skip
    taken, *refused = plan.alternatives
    assert taken.taken
    assert refused
    assert all(each.seconds is None and each.peak_bytes > plan.budget and "needs" in each.reason for each in refused)


@pytest.mark.parametrize(
    "read", [lambda a: a.to_dask(memory="64MiB"), lambda a: ooc.ranks.read_sections(a, "(block, *)", ranks=2)]
)
def test_a_plan_of_a_read_is_one_too(tmp_path: Path, read: Callable[[Any], Any]) -> None:
    plan = read(ooc.open_array(source(tmp_path))).plan
    assert 0 < plan.peak_bytes == plan.memory.nbytes <= plan.budget
    assert plan.traffic.read_requests > 0
    assert plan.ranks >= 1
    assert plan.seconds == next(each.seconds for each in plan.alternatives if each.taken)
