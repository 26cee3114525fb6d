"""Array files made, opened, converted: beside what is dealt out by hand, and what other Zarr readers see."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st

import oocarrays as ooc
from oocarrays.errors import (
    BudgetError,
    ChunksError,
    DescriptorError,
    InputError,
    LayoutError,
    ScheduleError,
    TargetError,
    UnfinishedError,
    UnsupportedError,
)
from tests.dying import Server
from tests.flat import flat
from tests.mapping.local_parts import expected, local_files
from tests.profiles import examples
from tests.strategies import chunks_for

pytestmark = pytest.mark.once

FIELD = np.arange(1, 13 * 7 + 1, dtype="i4").reshape(13, 7)
HALO: dict[str, Any] = {"layout": "(block, *)", "ranks": 4, "depth": (2, 1)}


def local(path: Path, data: np.ndarray = FIELD, **options: Any) -> ooc.ranks.LocalArrays:
    """Local array files that hold ``data``."""
    a = flat(ooc.create_array, path, shape=data.shape, dtype=data.dtype, placement="local", **(HALO | options))
    a[...] = data
    return a


def tight(plan: Callable[..., ooc.Job]) -> ooc.Job:
    """A job in the least memory that it needs: of many rounds."""
    try:
        return plan(memory=1)
    except BudgetError as error:
        return plan(memory=error.least)


# ---------------------------------------------------------------------- made and opened


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("orientation", ["row", "column", (1, 2, 0), (0, 2, 1)])
def test_chunks_of_a_global_file_run_along_its_orientation(tmp_path: Path, orientation: Any, zarr_format: Any) -> None:
    if zarr_format == 2 and not isinstance(orientation, str):
        with pytest.raises(UnsupportedError, match="Zarr format 2 stores the first or the last axis fastest only"):
            ooc.create_array(
                ooc.Target(tmp_path / "a", orientation=orientation, zarr_format=2), shape=(4, 5, 6), dtype="f4"
            )
        return
    a = ooc.create_array(
        ooc.Target(tmp_path / "a.zarr", orientation=orientation, zarr_format=zarr_format, compressors=()),
        shape=(8, 10, 12),
        dtype="f4",
        layout="(block, cyclic, *)",
        grid=(2, 2),
        depth=(1, 0, 3),
        resources=ooc.Resources(memory=8 * 4 * 30),
    )
    lengths = {"row": (1, 2, 12), "column": (8, 3, 1), (1, 2, 0): (8, 1, 3), (0, 2, 1): (1, 10, 3)}
    assert a.chunks == lengths[orientation]
    order = {"row": (0, 1, 2), "column": (2, 1, 0)}.get(orientation, orientation)
    again = ooc.open_array(tmp_path / "a.zarr")
    assert (again.orientation, again.depth, str(again.layout)) == (order, (1, 0, 3), "(block, cyclic, *) on 2 × 2 × 1")
    assert again.attrs == {}
    assert again.zarr.metadata.zarr_format == zarr_format
    assert not again[...].any()
    again = ooc.open_array(tmp_path / "a.zarr", mode="r+")
    again[:] = values = np.arange(8 * 10 * 12, dtype="f4").reshape(8, 10, 12)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "a.zarr", mode="r")[...], values)
    first = tmp_path / "a.zarr" / ("0.0.0" if zarr_format == 2 else "c/0/0/0")
    chunk = values[tuple(map(slice, a.chunks))].transpose(order)
    np.testing.assert_array_equal(np.frombuffer(first.read_bytes(), "f4"), chunk.reshape(-1))


def test_arrays_whose_descriptor_told_of_chunks_only_say_how_elements_lie(tmp_path: Path) -> None:
    ooc.create_array(ooc.Target(tmp_path / "a", orientation="column"), shape=(8, 6), dtype="f4")
    older = zarr.create_array(tmp_path / "b", shape=(8, 6), chunks=(8, 2), dtype="f4")
    older.attrs.update(zarr.open_array(tmp_path / "a").attrs.asdict())
    assert (ooc.open_array(tmp_path / "a").orientation, ooc.open_array(tmp_path / "b").orientation) == ((1, 0), (0, 1))


def test_a_file_is_made_as_zarr_is_asked_to(tmp_path: Path) -> None:
    options = {"dimension_names": ("y", "x"), "attributes": {"units": "K"}, "fill_value": 7, "chunks": (4, 3)}
    for placement, name in (("global", "g"), ("local", "l/rank-0001")):
        how = {"layout": "(block, *)", "ranks": 2, "placement": placement, "shards": (8, 6), **options}
        flat(ooc.create_array, ooc.Target(tmp_path / name[0], compressors=()), shape=(16, 12), dtype="f8", **how)
        there = zarr.open_array(tmp_path / name, mode="r")
        assert (there.chunks, there.shards, there.fill_value, there.compressors) == ((4, 3), (8, 6), 7, ())
        assert (there.attrs["units"], there.metadata.dimension_names) == ("K", ("y", "x"))
        assert (there[...] == 7).all()


@examples(25)
@given(local_files(), st.data())
def test_local_files_are_one_array(case: Any, data: st.DataObject) -> None:
    layout, depth = case
    field = np.random.default_rng(0).integers(1, 99, layout.shape)
    store = zarr.storage.MemoryStore()
    order = tuple(data.draw(st.permutations(range(field.ndim))))
    a = ooc.create_array(
        ooc.Target(store, orientation=order, fill_value=-5, compressors=()),
        shape=field.shape,
        dtype=field.dtype,
        layout=layout,
        depth=depth,
        placement="local",
        resources=ooc.Resources(memory=data.draw(st.sampled_from([None, 400]))),
    )
    a[...] = field
    for rank in range(layout.ranks):
        there = zarr.open_array(store, path=f"rank-{rank:04}", mode="r")[...]
        np.testing.assert_array_equal(there, expected(field, layout, rank, depth, -5))
    part = st.tuples(*(st.slices(n) for n in field.shape))
    key, other = data.draw(part), data.draw(part)
    again = ooc.open_array(store, mode="r+")
    np.testing.assert_array_equal(again[key], field[key])
    again[other] = 0
    field[other] = 0
    for rank in range(layout.ranks):  # in the halos of others, too
        np.testing.assert_array_equal(again.local(rank)[...], expected(field, layout, rank, depth, -5))


def test_what_a_person_reads(tmp_path: Path) -> None:
    a = local(tmp_path / "l", orientation="column")
    assert (a.shape, a.dtype, a.depth, a.ranks, a.orientation) == ((13, 7), np.dtype("i4"), (2, 1), 4, (1, 0))
    assert repr(a).startswith("<oocarrays.LocalArrays 13 × 7 int32, (block, *) on 4 × 1, 364 B")
    assert "rank 3       5 × 9, 180 B" in repr(a)
    assert "depth 2 × 1" in a._repr_html_()
    np.testing.assert_array_equal(a.local(1)[a.inside(1).slices], FIELD[4:8])
    np.testing.assert_array_equal(np.asarray(a), FIELD)
    assert [slab.own.lower for slab in a.slabs(0, memory=200)] == [(0, 0), (0, 4)]


def test_a_descriptor_is_no_attribute_of_a_copy(tmp_path: Path) -> None:
    ooc.create_array(
        ooc.Target(tmp_path / "a", orientation="column", attributes={"units": "K"}), shape=(8, 8), dtype="f4"
    )
    b = ooc.rechunk(tmp_path / "a", tmp_path / "b", chunks=(1, 8), scheduler="threads").run()
    assert b.zarr.attrs.asdict() == {"units": "K"}


# ---------------------------------------------------------------------- a descriptor that lies


def set_descriptor(path: Path, **changes: Any) -> None:
    """Change what an array file says of itself; None takes it out."""
    document = json.loads((path / "zarr.json").read_text())
    said = document["attributes"]["oocarrays"] | changes
    document["attributes"]["oocarrays"] = {name: value for name, value in said.items() if value is not None}
    (path / "zarr.json").write_text(json.dumps(document))


LIES = {
    "version": (2, "version 2"),
    "placement": ("both", "'both'"),
    "shape": ([13, 8], "shape|block"),
    "ranks": ([2, 2], "ranks|takes 1 rank"),
    "distribution": (["cyclic", "*"], "block|more than one block"),
    "block": ([3, 7], r"block \[3, 7\]"),
    "depth": ([1, 1], "depth|shape"),
    "orientation": ([0, 2], "orientation"),
    "workers": (["a"], "worker"),
    "colour": ("red", "'colour'"),
}


@pytest.mark.parametrize("field", LIES)
@pytest.mark.parametrize("where", ["", "rank-0002"])
def test_a_descriptor_that_lies_is_refused(tmp_path: Path, field: str, where: str) -> None:
    local(tmp_path / "l", orientation="column")
    set_descriptor(tmp_path / "l" / where, **{field: LIES[field][0]})
    with pytest.raises(DescriptorError, match=LIES[field][1]) as caught:
        ooc.open_array(tmp_path / "l")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("field", ["version", "placement", "shape", "ranks", "distribution", "block", "depth"])
def test_a_descriptor_without_a_row_is_refused(tmp_path: Path, field: str) -> None:
    local(tmp_path / "l")
    set_descriptor(tmp_path / "l", **{field: None})
    with pytest.raises(DescriptorError, match=f"'{field}' is missing"):
        ooc.open_array(tmp_path / "l")


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"rank": 1}, "rank 1"), ({"local_shape": [3, 7]}, "local_shape"), ({"orientation": [0, 1]}, "orientation")],
)
def test_the_file_of_a_rank_that_lies_is_refused(tmp_path: Path, changes: dict, said: str) -> None:
    local(tmp_path / "l", orientation="column")
    set_descriptor(tmp_path / "l" / "rank-0002", **changes)
    with pytest.raises(DescriptorError, match=said):
        ooc.open_array(tmp_path / "l")


def test_a_file_that_is_not_there_or_of_another_shape_is_refused(tmp_path: Path) -> None:
    local(tmp_path / "l")
    (tmp_path / "l" / "rank-0003").rename(tmp_path / "away")
    with pytest.raises(DescriptorError, match="the file of rank 3 is missing"):
        ooc.open_array(tmp_path / "l")
    said = zarr.open_array(tmp_path / "away").attrs.asdict()
    zarr.create_array(tmp_path / "l" / "rank-0003", shape=(5, 8), dtype="i4", attributes=said)
    with pytest.raises(DescriptorError, match=r"shape \(5, 9\).* the array has \(5, 8\)"):
        ooc.open_array(tmp_path / "l")
    zarr.create_array(tmp_path / "l" / "rank-0003", shape=(5, 9), dtype="f4", attributes=said, overwrite=True)
    with pytest.raises(DescriptorError, match="rank 0 has dtype int32, that of rank 3 float32"):
        ooc.open_array(tmp_path / "l")


def test_a_global_file_that_lies_is_refused(tmp_path: Path) -> None:
    ooc.create_array(
        ooc.Target(tmp_path / "g", orientation="column"),
        shape=(8, 6),
        dtype="f4",
        resources=ooc.Resources(memory=8 * 4 * 8),
    )
    for changes in ({"orientation": [0, 1]}, {"shape": [8, 7]}):
        set_descriptor(tmp_path / "g", **({"orientation": [1, 0], "shape": [8, 6]} | changes))
        with pytest.raises(DescriptorError, match=next(iter(changes))):
            ooc.open_array(tmp_path / "g")


# ---------------------------------------------------------------------- wrong inputs


@pytest.mark.parametrize(
    ("error", "options", "said"),
    [
        (LayoutError, {"depth": -1}, "depth=-1"),
        (LayoutError, {"depth": (1, 2, 3)}, "2 axes"),
        (LayoutError, {"orientation": "diagonal"}, "'diagonal'"),
        (LayoutError, {"orientation": (0, 0)}, r"\(0, 0\)"),
        (LayoutError, {"ranks": 0}, "ranks=0"),
        (LayoutError, {"ranks": 3, "grid": (2, 1)}, "ranks=3"),
        (LayoutError, {"ranks": None}, "pass ranks="),
        (LayoutError, {"layout": None}, "needs a layout"),
        (LayoutError, {"layout": "(block, *, *)"}, "3 axes"),
        (LayoutError, {"layout": "(cyclic, *)", "depth": 1}, "depth=1 along axis 0"),
        (LayoutError, {"placement": "everywhere"}, "'everywhere'"),
        (LayoutError, {"folders": "/scratch/f"}, "{rank}"),
        (ChunksError, {"chunks": (2, 2), "orientation": "row"}, "do not run along"),
        (ChunksError, {"chunks": (0, 2)}, "at least 1"),
        (ChunksError, {"chunks": ((3, 5), (8,))}, r"blocks \(3, 5\) must have equal length"),
        (InputError, {"dtype": object}, "no fixed size"),
        (InputError, {"compressors": 3}, "Zarr does not accept"),
        (TargetError, {}, "pass overwrite=True"),
    ],
)
def test_a_wrong_input_is_one_line_and_makes_nothing(
    tmp_path: Path, error: type[InputError], options: dict, said: str
) -> None:
    if not options:
        zarr.create_group(tmp_path / "l")
    with pytest.raises(error, match=said) as caught:
        flat(
            ooc.create_array,
            tmp_path / "l",
            **({"shape": (8, 8), "dtype": "f4", "placement": "local"} | HALO | {"depth": 0} | options),
        )
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ([] if options else ["l"])


def test_what_is_no_array_file_is_not_overwritten(tmp_path: Path) -> None:
    zarr.create_group(tmp_path / "group").create_array("x", shape=(3,), dtype="i4")
    with pytest.raises(TargetError, match="not a group of local array files"):
        local(tmp_path / "group", overwrite=True)
    a = local(tmp_path / "l")
    with pytest.raises(TargetError, match="open for reading only"):
        ooc.open_array(tmp_path / "l")[0, 0] = 1
    with pytest.raises(LayoutError, match="rank 4"):
        a.local(4)
    smaller = local(tmp_path / "l", ranks=2, overwrite=True)
    assert sorted(ooc.open_group(smaller.store)) == ["rank-0000", "rank-0001"]


# ---------------------------------------------------------------------- scattered and gathered


@examples(25)
@given(local_files(), st.data())
def test_files_are_scattered_and_gathered(case: Any, data: st.DataObject) -> None:
    layout, depth = case
    field = np.random.default_rng(1).integers(1, 99, layout.shape)
    coding = data.draw(st.sampled_from([{"compressors": None}, {"compressors": "auto"}]))
    source = zarr.create_array(
        zarr.storage.MemoryStore(), data=field, chunks=data.draw(chunks_for(field.shape)), fill_value=-5, **coding
    )
    parts, whole = zarr.storage.MemoryStore(), zarr.storage.MemoryStore()
    plan = tight if data.draw(st.booleans()) else lambda make: make(memory="1GiB")
    how: dict[str, Any] = {"depth": depth, "scheduler": "threads"}
    if data.draw(st.booleans()):
        how["orientation"] = tuple(data.draw(st.permutations(range(field.ndim))))
    job = plan(lambda memory: flat(ooc.ranks.scatter_files, source, layout, parts, memory=memory, **how))
    a = job.run()
    for rank in range(layout.ranks):
        there = zarr.open_array(parts, path=f"rank-{rank:04}", mode="r")[...]
        np.testing.assert_array_equal(there, expected(field, layout, rank, depth, -5))
    counted_as_planned(job)
    chunks = data.draw(chunks_for(field.shape))
    back = plan(
        lambda memory: ooc.ranks.gather_files(a, ooc.Target(whole, chunks=chunks), memory=memory, scheduler="threads")
    )
    g = back.run()
    np.testing.assert_array_equal(zarr.open_array(whole, mode="r")[...], field)
    assert (g.layout, g.depth) == (layout, depth)
    counted_as_planned(back)


def counted_as_planned(job: ooc.Job) -> None:
    planned, plan = job.plan.traffic, job.plan
    assert job.meter.read_requests == planned.read_requests
    assert job.meter.write_requests == planned.write_requests
    assert job.meter.decoded_bytes == planned.decoded_bytes
    if not (plan.whole.coded or plan.local.coded):
        assert (job.meter.read_bytes, job.meter.written_bytes) == (planned.read_bytes, planned.written_bytes)
    assert plan.peak_bytes <= plan.budget


def test_a_stored_chunk_is_read_once_however_many_ranks_have_of_it(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a", data=FIELD, chunks=(2, 7), fill_value=-1)
    job = ooc.ranks.scatter_files(tmp_path / "a", "(*, block)", tmp_path / "l", ranks=7, depth=2, scheduler="threads")
    assert dask.compute(job)[0].ranks == 7
    assert job.meter.read_requests == job.plan.whole.grid.count == 7
    assert "reads" in job.explain()


@pytest.mark.parametrize(("at", "after"), [("pieces", 1), ("pieces", 3), ("finished", 2), ("group", 1)])
def test_killed_and_run_again(runs: Server, tmp_path: Path, at: str, after: int) -> None:
    zarr.create_array(tmp_path / "a", data=FIELD, chunks=(2, 7), compressors=None, fill_value=-1)
    call = ("scatter_files", tmp_path / "a", "(block, *)", tmp_path / "l")
    how = {"ranks": 3, "depth": 1, "scheduler": "threads"}
    runs.run(*call, **how, at=at, after=after)
    if at != "group":
        with pytest.raises(UnfinishedError, match="unfinished"):
            ooc.open_array(tmp_path / "l")
        with pytest.raises(TargetError, match="overwrite"):
            flat(ooc.ranks.scatter_files, *call[1:], **how)
    runs.run(*call, **how, overwrite=True)
    a = ooc.open_array(tmp_path / "l")
    for rank in range(3):
        np.testing.assert_array_equal(a.local(rank)[...], expected(FIELD, a.layout, rank, (1, 1), -1))


def test_conversions_refuse_in_one_line(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a", data=FIELD, chunks=(2, 7))
    for error, call in (
        (TargetError, lambda: ooc.ranks.scatter_files(tmp_path / "a", "(block, *)", tmp_path / "a", ranks=2)),
        (LayoutError, lambda: ooc.ranks.scatter_files(tmp_path / "a", "(block, *)", tmp_path / "l")),
        (
            BudgetError,
            lambda: ooc.ranks.scatter_files(tmp_path / "a", "(block, *)", tmp_path / "l", ranks=2, memory=10),
        ),
        (
            ScheduleError,
            lambda: ooc.ranks.scatter_files(
                tmp_path / "a", "(block, *)", tmp_path / "l", ranks=3, resources=ooc.Resources(schedule="rex")
            ),
        ),
        (InputError, lambda: ooc.ranks.gather_files(tmp_path / "a", tmp_path / "g")),
    ):
        with pytest.raises(error) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


# ---------------------------------------------------------------------- partitions


def test_partitions_fit_and_are_the_array(tmp_path: Path) -> None:
    field = np.random.default_rng(2).random((4096, 512), dtype="f4")
    made = ooc.create_array(
        tmp_path / "a", shape=field.shape, dtype="f4", chunks=(32, 512), layout="(block, cyclic(5))", grid=(2, 2)
    )
    made[...] = field
    a = ooc.open_array(tmp_path / "a")
    parts = list(ooc.ranks.partitions(a, memory="7MiB", scheduler="threads"))
    assert len(parts) > 1
    for part in parts:
        assert str(part.layout) == "(block, cyclic(5)) on 2 × 2"
        assert part.section.lower[0] % 32 == 0
        np.testing.assert_array_equal(part.compute(), field[part.section.slices])
    assert sum(part.section.size for part in parts) == field.size
    with pytest.raises(BudgetError):
        ooc.ranks.partitions(a, memory=1000, scheduler="threads")
    with pytest.raises(LayoutError, match="no layout"):
        ooc.ranks.partitions(zarr.create_array({}, data=field))


def test_an_array_of_a_zip_file_that_is_opened_to_be_read_is_not_written(tmp_path: Path) -> None:
    with zarr.storage.ZipStore(tmp_path / "a.zip", mode="w") as store:
        z = zarr.create_array(store, data=np.arange(4), chunks=(2,))
        a = ooc.open_array(z, mode="r")
        with pytest.raises(InputError, match="is open for reading only: open it with mode='r\\+'"):
            a[0] = 7
        with pytest.raises(ValueError, match="read-only"):
            a.zarr[0] = 7
        np.testing.assert_array_equal(z[...], np.arange(4))
        np.testing.assert_array_equal(a[...], np.arange(4))
