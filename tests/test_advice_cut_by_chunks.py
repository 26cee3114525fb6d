"""Programs whose tasks are cut by the chunks that they find: advice is of the tasks that others would make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import oocarrays as ooc
from oocarrays.plan.advice.trace import Trace
from oocarrays.plan.advice.uses import use_of

EXTENT = 24


def stored(chunks: tuple[int, int]) -> zarr.Array:
    return zarr.create_array({}, shape=(EXTENT, EXTENT), chunks=chunks, dtype="f4")


@st.composite
def programs(draw: st.DrawFn) -> tuple[slice, ...]:
    """A section of plain slices, with something in it."""
    made = []
    for _ in range(2):
        start = draw(st.integers(0, EXTENT - 1))
        made.append(slice(start, draw(st.integers(start + 1, EXTENT))))
    return tuple(made)


lengths = st.tuples(*(st.integers(1, EXTENT) for _ in range(2)))


@settings(max_examples=40, deadline=None)
@given(found=lengths, other=lengths, key=programs())
def test_what_is_counted_in_other_chunks_is_what_the_program_reads_of_them(
    found: tuple[int, int], other: tuple[int, int], key: tuple[slice, ...]
) -> None:
    """The oracle is the program itself, over an array that has these chunks."""

    def traced(chunks: tuple[int, int]) -> Trace:
        return ooc.trace(da.from_zarr(stored(chunks))[key].sum())

    (access,), (dataset,) = traced(found).accesses, traced(found).datasets
    counted = [each.counts(np.array([other])) for each in use_of(access, dataset).footprints]
    (there,) = traced(other).accesses
    assert sum(int(each.visits[0]) for each in counted) == there.tasks
    assert sum(each.elements for each in use_of(access, dataset).footprints) == there.elements


def test_columns_that_dask_reads_of_maps_are_advised_to_be_columns(tmp_path: Path) -> None:
    path = str(tmp_path / "maps.zarr")
    z = zarr.create_array(path, shape=(2048, 2048), chunks=(8, 2048), dtype="f4", compressors=None)
    z[:] = np.broadcast_to(np.arange(2048, dtype="f4"), z.shape)
    columns = [da.from_zarr(path)[:, start : start + 16].sum() for start in range(0, 2048, 256)]
    trace = ooc.trace(*columns, weights=100)  # one by one: computed together they would take whole chunks
    advice = trace.advise(memory="64MiB", scheduler="threads")
    advice.apply(str(tmp_path / "columns.zarr")).run()
    across = zarr.open_array(str(tmp_path / "columns.zarr"), mode="r").chunks[1]
    assert across < 256
    assert "chunk by chunk" in str(advice)
    requests = [_requests(da.from_zarr(str(tmp_path / f"{name}.zarr"))) for name in ("maps", "columns")]
    assert requests[1] * 50 < requests[0]


def _requests(x: da.Array) -> int:
    """Sections that the columns ask for, one program after the other."""
    with ooc.trace() as seen:
        for start in range(0, 2048, 256):
            x[:, start : start + 16].sum().compute()
    return sum(access.tasks for access in seen.accesses)


def test_sections_of_several_chunks_are_taken_as_they_are() -> None:
    z = stored((4, EXTENT))
    program: Any = da.from_array(z, chunks=(8, EXTENT))[:, :6].sum()
    (access,), (dataset,) = ooc.trace(program).accesses, ooc.trace(program).datasets
    assert not use_of(access, dataset).cut_by_chunks


@pytest.mark.parametrize("way", ["words", "run"])
def test_what_is_said_or_seen_in_a_run_is_no_task_of_a_chunk(way: str) -> None:
    z = stored((4, EXTENT))
    if way == "words":
        trace = ooc.Trace().reads(z, "(block, *)", ranks=6, by="zarr")
    else:
        with ooc.trace() as seen:
            for start in range(0, EXTENT, 4):
                z[start : start + 4, :3]
        trace = seen.trace
    assert not any(access.cut_by_chunks for access in trace.accesses)


def test_a_trace_of_an_earlier_version_says_nothing_of_it() -> None:
    trace = ooc.trace(da.from_zarr(stored((4, EXTENT))).sum())
    said = trace.as_json()
    for access in said["accesses"]:
        assert access.pop("cut_by_chunks")
    assert [access.cut_by_chunks for access in Trace.from_json(said).accesses] == [False]
