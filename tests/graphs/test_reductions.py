"""Reductions on several planned ranks, in one process."""

from __future__ import annotations

from typing import Any

import dask
import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st

import oocarrays as ooc
from oocarrays.graphs.reductions.program import Reduction
from oocarrays.graphs.run.run import Run
from oocarrays.plan.plan import Resources
from oocarrays.reductions.asked import Asked, wanted
from oocarrays.storage.files import array_file
from tests.flat import flat
from tests.profiles import examples
from tests.seams import small
from tests.test_reduce_jobs import HERE

pytestmark = pytest.mark.long


@st.composite
def reduced_arrays(draw: st.DrawFn) -> tuple[zarr.Array, dict[str, Any]]:
    shape = tuple(draw(st.lists(st.integers(1, 12), min_size=1, max_size=3)))
    chunks = tuple(draw(st.integers(1, n)) for n in shape)
    data = np.random.default_rng(draw(st.integers(0, 2**16))).normal(1e5, 3, shape).astype(draw(st.sampled_from("fd")))
    if draw(st.booleans()):
        data.reshape(-1)[:: draw(st.integers(1, 5))] = np.nan
    axes = tuple(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    asked: dict[str, Any] = {"axis": axes, "how": draw(st.sampled_from(["sum", "mean", "std", "max", "count"]))}
    if len(axes) == 1 and draw(st.booleans()):
        asked["by"] = draw(st.lists(st.integers(0, 3), min_size=shape[axes[0]], max_size=shape[axes[0]]))
    return zarr.create_array({}, data=data, chunks=chunks), asked


@examples(80)
@given(case=reduced_arrays(), ranks=st.integers(1, 7), box=st.sampled_from([8, 64, 400]))
def test_the_same_bits_whatever_the_ranks(case: tuple[zarr.Array, dict[str, Any]], ranks: int, box: int) -> None:
    array, asked = case
    with small(box_bytes=box):
        want = wanted(array_file.describe_source(array, "fill"), Asked(**asked))
        plan = want.plan(Resources(budget=2**30, workers=ranks), None)
        run = Run(Reduction(plan=plan, reducer=want, dtype=want.result))
        found = dask.threaded.get(*run.graph(["x"] * ranks))
        assert found.tobytes() == np.asarray(flat(ooc.reduce, array, **asked, **HERE)).tobytes()
    assert run.meter.messages == plan.traffic.messages
    assert run.meter.read_requests == plan.traffic.read_requests == array.nchunks
