"""Passes over slabs: the true least budget of an iteration, and no more slabs than a graph takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st

import oocarrays as ooc
from oocarrays.errors import BudgetError
from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.plan.slabs.iterate import IteratePlan, SweepOptions, plan_iterate
from tests.flat import flat
from tests.profiles import examples

pytestmark = pytest.mark.once


@st.composite
def arrays(draw: st.DrawFn) -> list[Stored]:
    shape = tuple(draw(st.lists(st.sampled_from([1, 7, 96, 500, 3000]), min_size=1, max_size=3)))
    chunks = st.sampled_from([1, 8, 60, 64, 1000])
    return [
        Stored(
            grid=ChunkGrid(shape, tuple(min(draw(chunks), n) for n in shape)),
            itemsize=draw(st.sampled_from([1, 8])),
            local=draw(st.booleans()),
            codec=draw(st.sampled_from([None, "zstd"])),
        )
        for _ in range(3)
    ]


@pytest.mark.long
@examples(15)
@given(arrays(), st.sampled_from([1, 7, 40]), st.sampled_from(["auto", 1, 4]), st.booleans(), st.sampled_from([1, 2]))
def test_the_least_budget_of_an_iteration_is_the_least(
    known: list[Stored], sweeps: int, fuse: Any, watched: bool, threads: int
) -> None:
    source, other, target = (replace(each, itemsize=8) for each in known)
    scratch = replace(source, codec=None, local=other.local)

    def plan(budget: int) -> IteratePlan:
        options = SweepOptions(budget=budget, depth=1, ranks=2, sweeps=sweeps, fuse=fuse, watched=watched)
        return plan_iterate([source], [scratch], [target], options, threads=threads)

    with pytest.raises(BudgetError) as caught:
        plan(1)
    least = caught.value.least
    assert plan(least).peak_bytes <= least
    with pytest.raises(BudgetError):
        plan(least - 1)


# ---------------------------------------------------------------------- bounds that golden plans do not see


def test_an_iteration_holds_what_its_largest_pass_does() -> None:
    rows = Stored(grid=ChunkGrid.of((1024, 1024), (64, 1024)), itemsize=4, local=True)
    asked = SweepOptions(sweeps=7, depth=1, budget=2**26, fuse=3, watched=True)
    plan = plan_iterate([rows], [rows], [rows], asked)
    passes = [each.memory for each in (*plan.passes, plan.copy) if each]
    assert plan.memory in passes
    assert plan.peak_bytes == max(each.nbytes for each in passes)


def test_large_arrays_have_no_more_slabs_than_a_graph_can_take(tmp_path: Path) -> None:
    rows = zarr.create_array(tmp_path / "a", shape=(2**24, 2**14), chunks=(16, 2**14), dtype="f8", compressors=None)
    how: dict[str, Any] = {"memory": 2**33, "ranks": 2, "scheduler": "threads"}
    plan = flat(ooc.map_slabs, np.negative, rows, tmp_path / "b", **how).plan
    assert plan.count <= 2**12 + 2
    assert plan.traffic.read_bytes == plan.source_bytes == 2**41
