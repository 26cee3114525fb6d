"""Programs whose tasks are cut by the chunks that they find: advice is of the tasks that others would make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray
import zarr
from hypothesis import given, strategies as st
from zarr.storage import MemoryStore

import oocarrays as ooc
from tests.profiles import examples
from tests.seams import counted, set_constants, use_of

EXTENT = 24
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:Increasing number of chunks")]


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


@examples(40)
@given(found=lengths, other=lengths, key=programs())
def test_what_is_counted_in_other_chunks_is_what_the_program_reads_of_them(
    found: tuple[int, int], other: tuple[int, int], key: tuple[slice, ...]
) -> None:
    """The oracle is the program itself, over an array that has these chunks."""

    def traced(chunks: tuple[int, int]) -> ooc.advise.Trace:
        return ooc.advise.trace(da.from_zarr(stored(chunks))[key].sum())

    (access,), (dataset,) = traced(found).accesses, traced(found).datasets
    use = use_of(access, dataset)
    (there,) = traced(other).accesses
    assert sum(int(counted(each, dataset.shape, np.array([other])).visits[0]) for each in use.patterns) == there.tasks
    assert use.elements == there.elements


def test_columns_that_dask_reads_of_maps_are_advised_to_be_columns(tmp_path: Path) -> None:
    path = str(tmp_path / "maps.zarr")
    z = zarr.create_array(path, shape=(2048, 2048), chunks=(8, 2048), dtype="f4", compressors=None)
    z[:] = np.broadcast_to(np.arange(2048, dtype="f4"), z.shape)
    columns = [da.from_zarr(path)[:, start : start + 16].sum() for start in range(0, 2048, 256)]
    trace = ooc.advise.trace(*columns, weights=100)  # one by one: computed together they would take whole chunks
    advice = trace.advise(memory="64MiB", scheduler="threads")
    advice.apply(str(tmp_path / "columns.zarr")).run()
    across = zarr.open_array(str(tmp_path / "columns.zarr"), mode="r").chunks[1]
    assert across < 256
    assert "chunk by chunk" in str(advice)
    requests = [_requests(da.from_zarr(str(tmp_path / f"{name}.zarr"))) for name in ("maps", "columns")]
    assert requests[1] * 50 < requests[0]


def _requests(x: da.Array) -> int:
    """Sections that the columns ask for, one program after the other."""
    with ooc.advise.trace() as seen:
        for start in range(0, 2048, 256):
            x[:, start : start + 16].sum().compute()
    return sum(access.tasks for access in seen.accesses)


def test_sections_of_several_chunks_are_taken_as_they_are() -> None:
    z = stored((4, EXTENT))
    program: Any = da.from_array(z, chunks=(8, EXTENT))[:, :6].sum()
    (access,), (dataset,) = ooc.advise.trace(program).accesses, ooc.advise.trace(program).datasets
    assert not use_of(access, dataset).cut_by_chunks


@pytest.mark.parametrize("way", ["words", "run"])
def test_what_is_said_or_seen_in_a_run_is_no_task_of_a_chunk(way: str) -> None:
    z = stored((4, EXTENT))
    if way == "words":
        trace = ooc.advise.Trace().reads(z, "(block, *)", ranks=6, by="zarr")
    else:
        with ooc.advise.trace() as seen:
            for start in range(0, EXTENT, 4):
                z[start : start + 4, :3]
        trace = seen.trace
    assert not any(access.cut_by_chunks for access in trace.accesses)


def test_a_trace_of_an_earlier_version_says_nothing_of_it() -> None:
    trace = ooc.advise.trace(da.from_zarr(stored((4, EXTENT))).sum())
    said = trace.as_json()
    for access in said["accesses"]:
        assert access.pop("cut_by_chunks")
    assert [access.cut_by_chunks for access in ooc.advise.Trace.from_json(said).accesses] == [False]


# ---------------------------------------------------------------------- strides


STRIDED = {
    "rows of a table": ((2400, 24), (24, 24), np.s_[::24]),
    "one in ten": ((10_000,), (100,), np.s_[::10]),
    "one in seven, from three": ((2000, 5), (20, 5), np.s_[3::7]),
    "more than a chunk apart": ((12_000,), (50,), np.s_[::120]),
    "one element a chunk": ((400, 16), (4, 16), np.s_[1::4]),
    "downwards": ((6000,), (60,), np.s_[::-6]),
    "columns": ((24, 1600), (24, 16), np.s_[:, ::10]),
    "both axes": ((240, 240), (24, 24), np.s_[::12, ::12]),
    "every other": ((1600, 4), (16, 4), np.s_[:1600:2]),
}
"""Shape, chunks, and what is taken."""
DOWNWARDS = ("downwards", "zarr")
"""Zarr refuses it."""


class Counting(dict[str, Any]):
    """What a store holds; it counts the chunks that are asked for."""

    asked = 0

    def __getitem__(self, key: str) -> Any:
        self.asked += "c/" in key
        return super().__getitem__(key)


def array_of(shape: tuple[int, ...], chunks: tuple[int, ...]) -> tuple[zarr.Array, Counting]:
    held = Counting()
    z = zarr.create_array(MemoryStore(held), shape=shape, chunks=chunks, dtype="f4", compressors=None)
    z[...] = 1
    held.asked = 0
    return z, held


def by_dask(z: zarr.Array, key: Any) -> Any:
    return da.from_array(z, chunks=z.chunks)[key].sum()


def by_xarray(z: zarr.Array, key: Any) -> Any:
    names = [f"axis {number}" for number in range(z.ndim)]
    keys = dict(zip(names, key if isinstance(key, tuple) else (key,), strict=False))
    return xarray.DataArray(da.from_array(z, chunks=z.chunks), dims=names).isel(keys).sum()


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("case", "seen"),
    [(case, seen) for case in STRIDED for seen in ("graph", "xarray", "run", "zarr") if (case, seen) != DOWNWARDS],
)
def test_strided_slices_get_chunks_that_take_few_requests(case: str, seen: str) -> None:
    """The oracle is the store, which counts while the program runs."""
    shape, chunks, key = STRIDED[case]

    def program(z: zarr.Array) -> None:
        if seen == "zarr":
            z[key]
        else:
            (by_xarray if seen == "xarray" else by_dask)(z, key).compute(scheduler="sync")

    z, held = array_of(shape, chunks)
    if seen == "graph":
        trace = ooc.advise.trace(by_dask(z, key), weights=50)
    else:
        with ooc.advise.trace(weight=50) as recorded:
            program(z)
        trace = recorded.trace
    (found,) = trace.advise(memory="1GiB", scheduler="threads").arrays
    held.asked = 0
    program(z)
    other, there = array_of(shape, found.copied)
    program(other)
    (block,) = found.blocks
    assert (block.today.requests, block.advised.requests) == (50 * held.asked, 50 * there.asked)
    assert there.asked * 20 <= held.asked
    assert block.advised.seconds * 10 < block.today.seconds


@examples(40)
@given(found=lengths, other=lengths, start=st.integers(0, EXTENT - 1), steps=st.tuples(*[st.integers(1, 9)] * 2))
def test_strides_are_counted_as_the_program_reads_in_other_chunks(
    found: tuple[int, int], other: tuple[int, int], start: int, steps: tuple[int, int]
) -> None:
    key = np.s_[start :: steps[0], :: steps[1]]

    def traced(chunks: tuple[int, int]) -> ooc.advise.Trace:
        return ooc.advise.trace(da.from_zarr(stored(chunks))[key].sum())

    (access,), (dataset,) = traced(found).accesses, traced(found).datasets
    use = use_of(access, dataset)
    (there,) = traced(other).accesses
    assert sum(int(counted(each, dataset.shape, np.array([other])).visits[0]) for each in use.patterns) == there.tasks
    assert use.elements == there.elements


def test_large_graphs_tell_the_same_of_strides(monkeypatch: pytest.MonkeyPatch) -> None:
    program: Any = da.from_zarr(stored((4, 6)))[1::5, ::-4].sum()
    small = ooc.advise.trace(program).accesses
    set_constants(monkeypatch, traced_tasks=0)
    assert ooc.advise.trace(program).accesses == small


# ---------------------------------------------------------------------- contractions


def pair(chunks: tuple[int, int], others: tuple[int, int]) -> tuple[list[da.Array], list[Counting]]:
    made = [array_of((60, 24), each) for each in (chunks, others)]
    return [da.from_array(z, chunks=z.chunks, name=f"array {n}") for n, (z, _) in enumerate(made)], [h for _, h in made]


CONTRACTIONS = {
    "tensordot with itself": lambda a, b: da.tensordot(a, a, axes=([0], [0])),
    "dot with itself": lambda a, b: da.dot(a.T, a),
    "Gram matrix of rows": lambda a, b: da.tensordot(a, a, axes=([1], [1])),
    "dot of two": lambda a, b: da.dot(a.T, b),
    "einsum of two": lambda a, b: da.einsum("ki,kj->ij", a, b),
}


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_reads_that_blocks_of_an_array_repeat_are_counted_in_other_chunks(name: str) -> None:
    """The oracle is the store: what it is asked for while Dask computes in today's and in the advised chunks."""
    program: Any = CONTRACTIONS[name]
    arrays, held = pair((10, 4), (10, 4))
    trace = ooc.advise.trace(program(*arrays), weights=50)
    program(*arrays).compute(scheduler="sync")
    advice = trace.advise(memory="1GiB", scheduler="threads")
    said = {each.array: each for each in advice.arrays}
    assert [50 * each.asked for each in held if each.asked] == [each.today.requests for each in said.values()]
    if len(said) > 1:
        return  # the requests of each depend on the chunks of the other
    (found,) = said.values()
    assert not found.kept
    arrays, held = pair(found.copied, (10, 4))
    program(*arrays).compute(scheduler="sync")
    assert 50 * held[0].asked == found.advised.requests


def test_what_depends_on_the_chunks_of_another_array_is_said() -> None:
    arrays, _ = pair((10, 4), (10, 4))
    advice = ooc.advise.trace(da.tensordot(*arrays, axes=([0], [0])), weights=50).advise(memory="1GiB")
    for one, other in zip(advice.arrays, reversed(advice.arrays), strict=True):
        assert f"its requests depend on the chunks of {other.array}" in " ".join(one.against)
    assert "seconds are of reading and writing these arrays alone" in str(advice)


@examples(6)
@given(found=st.tuples(st.integers(6, EXTENT), st.integers(6, EXTENT)), other=lengths)
def test_repeats_of_an_array_by_itself_are_those_of_the_graph_in_other_chunks(
    found: tuple[int, int], other: tuple[int, int]
) -> None:
    def traced(chunks: tuple[int, int]) -> ooc.advise.Trace:
        a = da.from_zarr(stored(chunks))
        return ooc.advise.trace(da.tensordot(a, a, axes=([0], [0])))

    other = tuple(max(n, 6) for n in other)  # type: ignore[assignment]
    (access,), (dataset,) = traced(found).accesses, traced(found).datasets
    use = use_of(access, dataset)
    there = sum(access.tasks for access in traced(other).accesses)
    visits = sum(int(counted(each, dataset.shape, np.array([other])).visits[0]) for each in use.patterns)
    assert visits * int(np.max(use.often((EXTENT, EXTENT), np.array([other])))) == there


def test_large_graphs_tell_the_same_of_contractions_and_of_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays, _ = pair((10, 12), (10, 12))
    target = stored((6, 6))
    programs = [
        da.tensordot(*arrays, axes=([0], [0])),
        da.store(arrays[0][:12, :12], target, regions=(slice(6, 18), slice(0, 12)), compute=False),
    ]
    small = [sorted(map(str, ooc.advise.trace(program).accesses)) for program in programs]
    set_constants(monkeypatch, traced_tasks=0)
    assert [sorted(map(str, ooc.advise.trace(program).accesses)) for program in programs] == small


def test_a_trace_keeps_what_repeats_its_reads() -> None:
    arrays, _ = pair((10, 12), (10, 12))
    trace = ooc.advise.trace(da.tensordot(*arrays, axes=([0], [0])))
    assert any(access.repeats for access in trace.accesses)
    said = trace.as_json()
    assert ooc.advise.Trace.from_json(said) == trace
    for access in said["accesses"]:
        del access["repeats"]
    assert not any(access.repeats for access in ooc.advise.Trace.from_json(said).accesses)
