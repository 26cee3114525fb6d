"""Passes over local array files, against numpy on the whole array: borders and corners travel in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.errors import BudgetError, InputError, JournalError, LayoutError, RunError, TargetError
from tests.flat import flat
from tests.graphs.clusters import within
from tests.padding import BOUNDARIES, blocks
from tests.profiles import examples
from tests.seams import do_task
from tests.unfinished import left_behind
from tests.whole import boundaries, corners, expected

pytestmark = pytest.mark.once


def made(store: Any, array: np.ndarray, layout: ooc.Layout, **how: Any) -> ooc.ranks.LocalArrays:
    a = flat(ooc.create_array, store, shape=array.shape, dtype=array.dtype, layout=layout, placement="local", **how)
    a[...] = array
    return a


def field(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 99, shape)


@examples(25)
@given(blocks(max_axes=2), st.data())
def test_a_pass_is_what_numpy_gives(asked: tuple[ooc.Layout, tuple[int, ...]], data: st.DataObject) -> None:
    layout, depth = asked
    boundary = data.draw(boundaries(len(depth), BOUNDARIES))
    array, kernel = field(layout.shape), corners(depth)
    halo = data.draw(st.integers(0, 2))
    sizes = st.sampled_from([None, 1, 2, 3])
    along = {data.draw(st.integers(0, len(depth) - 1)): data.draw(sizes) or "auto"}
    window: Any = along if data.draw(st.booleans()) else [data.draw(sizes) for _ in depth]
    a = made(MemoryStore(), array, layout, depth=halo, chunks=tuple(data.draw(st.integers(1, 4)) for _ in depth))
    job = ooc.map_slabs(
        kernel,
        a,
        MemoryStore(),
        depth=depth,
        boundary=boundary,
        memory="64MiB",
        scheduler="threads",
        window=window,
        resources=ooc.Resources(prefetch=data.draw(st.integers(0, 2)), reuse=data.draw(st.booleans())),
    )
    b = within(job.run)
    np.testing.assert_array_equal(b[...], expected(kernel, [array], depth, boundary)[0])
    assert b.layout == layout
    assert not any(b.depth)


def test_several_sources_and_targets_of_other_types(tmp_path: Path) -> None:
    layout = ooc.Layout.of((30, 24), "(block, block)", grid=(2, 3))
    x, y = field(layout.shape), field(layout.shape, 1)

    def kernel(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return corners((1, 1))(a + b), (a > b).astype("u1")

    sources = [made(tmp_path / "x", x, layout, depth=2), made(tmp_path / "y", y, layout)]
    job = ooc.map_slabs(
        kernel,
        sources,
        [ooc.Target(tmp_path / "s", dtype=int), ooc.Target(tmp_path / "g", dtype="u1")],
        depth=1,
        boundary="periodic",
        memory="64MiB",
        scheduler="threads",
    )
    summed, greater = job.run()
    wholes = expected(kernel, [x, y], (1, 1), "periodic")
    np.testing.assert_array_equal(summed[...], wholes[0])
    np.testing.assert_array_equal(greater[...], wholes[1])
    assert greater.dtype == np.dtype("u1")
    assert isinstance(ooc.open_array(tmp_path / "s"), ooc.ranks.LocalArrays)


@pytest.mark.parametrize("boundary", ["none", "reflect", "nearest", -7])
def test_nothing_is_read_twice_and_halos_in_files_are_not_read(tmp_path: Path, boundary: Any) -> None:
    array, layout = field((64, 48)), ooc.Layout.of((64, 48), "(block, block)", grid=(2, 2))
    a = made(tmp_path / "a", array, layout, depth=2, chunks=(8, 16), compressors=())
    for rank in range(4):  # what is in them is wrong
        file, own = zarr.open_array(a.files.place(rank), mode="r+"), a.inside(rank).slices
        kept = file[own]
        file[...] = -99
        file[own] = kept
    job = ooc.map_slabs(
        corners((2, 2)), a, tmp_path / "b", depth=2, boundary=boundary, memory="64MiB", scheduler="threads", window=8
    )
    np.testing.assert_array_equal(job.run()[...], expected(corners((2, 2)), [array], (2, 2), boundary)[0])
    assert job.plan.read_bytes == array.nbytes
    for name in ("read_requests", "read_bytes", "write_requests", "written_bytes"):
        assert getattr(job.meter, name) == getattr(job.plan.traffic, name), name
    assert job.plan.count == 16


def test_the_pass_after_the_pass_takes_its_files(tmp_path: Path) -> None:
    array, layout = field((40, 30)).astype(float), ooc.Layout.of((40, 30), "(block, *)", ranks=4)
    how: dict[str, Any] = {"depth": 1, "boundary": "nearest", "memory": "64MiB", "scheduler": "threads"}
    b = flat(ooc.map_slabs, corners((1, 1)), made(tmp_path / "a", array, layout), tmp_path / "b", **how).run()
    c = flat(ooc.map_slabs, corners((1, 1)), b, tmp_path / "c", **how).run()
    once = expected(corners((1, 1)), [array], (1, 1), "nearest")
    np.testing.assert_array_equal(c[...], expected(corners((1, 1)), once, (1, 1), "nearest")[0])


def test_a_kernel_that_raises_at_once_leaves_no_files(tmp_path: Path) -> None:
    a = made(tmp_path / "a", field((16, 8)), ooc.Layout.of((16, 8), "(block, *)", ranks=2))

    def kernel(block: np.ndarray) -> np.ndarray:
        return block[:-1]

    with pytest.raises(RunError, match="the kernel returned shape"):
        ooc.map_slabs(kernel, a, tmp_path / "b", memory="64MiB", scheduler="threads").run()
    assert not (tmp_path / "b").exists()
    again = ooc.map_slabs(np.negative, a, tmp_path / "b", memory="64MiB", scheduler="threads")
    np.testing.assert_array_equal(again.run()[...], -a[...])


@pytest.mark.parametrize("targets", [1, 2])
def test_what_stopped_is_resumed(tmp_path: Path, targets: int) -> None:
    array, on = field((48, 20)), [True]
    a = made(tmp_path / "a", array, ooc.Layout.of((48, 20), "(block, *)", ranks=3), chunks=(4, 20))
    last = array[44:].tobytes()

    def kernel(block: np.ndarray) -> Any:
        if on[0] and last in block.tobytes():
            raise ValueError("switched on")
        return (-block, block + 1)[:targets] if targets > 1 else -block

    stores = [tmp_path / f"{number}" for number in range(targets)]
    how: dict[str, Any] = {
        "target": stores if targets > 1 else stores[0],
        "depth": 1,
        "height": 4,
        "scheduler": "threads",
    }
    with pytest.raises(RunError, match="switched on"):
        flat(ooc.map_slabs, kernel, a, memory="64MiB", **how).run()
    on[0] = False
    with pytest.raises(JournalError, match="depth"):
        flat(ooc.map_slabs, kernel, a, memory="64MiB", **how | {"depth": 2}, resume=True)
    job = flat(ooc.map_slabs, kernel, a, memory="128MiB", **how | {"height": 8}, resume=True)
    assert job.plan.height == 4
    assert 0 < len([part for part in job._run.done if len(part) == 2]) < 12
    got = job.run()
    for each, want in zip(got if targets > 1 else [got], [-array, array + 1], strict=False):
        np.testing.assert_array_equal(each[...], want)
    assert len([span for span in job.meter.spans if span.phase == "compute"]) < 12
    assert left_behind(tmp_path) == []


def test_files_that_are_closed_are_not_made_again(tmp_path: Path) -> None:
    """Where a worker is lost, tasks that had been done are done again: the files of others hold what was written."""
    a = made(tmp_path / "a", field((16, 8)), ooc.Layout.of((16, 8), "(block, *)", ranks=2))
    made(tmp_path / "b", field((16, 8)), a.layout)
    job = ooc.map_slabs(np.negative, a, tmp_path / "b", overwrite=True, memory="64MiB", scheduler="threads")
    do_task(job, "begin")
    for _ in range(2):
        for rank in range(2):
            do_task(job, "make files", rank)
    (slab,) = job.plan.slabs(1)
    do_task(job, "write", *slab, [-a[8:]])
    do_task(job, "close", 1)
    do_task(job, "make files", 1)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "b" / "rank-0001", mode="r")[...], -a[8:])
    job._run.settle()


def test_wrong_inputs_are_told_in_a_line(tmp_path: Path) -> None:
    rows = ooc.Layout.of((16, 8), "(block, *)", ranks=2)
    a = made(tmp_path / "a", field((16, 8)), rows)
    dealt = made(tmp_path / "dealt", field((16, 8)), ooc.Layout.of((16, 8), "(cyclic, *)", ranks=2))
    columns = made(tmp_path / "columns", field((16, 8)), ooc.Layout.of((16, 8), "(*, block)", ranks=2))
    z = zarr.create_array(tmp_path / "z", data=field((16, 8)))
    cases: list[tuple[type[InputError], str, Any, dict[str, Any]]] = [
        (LayoutError, "is not in blocks: local array files need block, gen_block", dealt, {}),
        (LayoutError, "sources have layouts .* must be equal", [a, columns], {}),
        (InputError, "sources are local array files and Array", [a, z], {}),
        (LayoutError, "ranks=3 differs from the 2 ranks", a, {"ranks": 3}),
        (TargetError, "the target .* is the source", a, {"target": tmp_path / "a", "overwrite": True}),
        (InputError, "at least one target is required", a, {"target": []}),
        (TargetError, "is named twice", a, {"target": [tmp_path / "b", tmp_path / "b"]}),
        (TargetError, "exists; pass overwrite=True", a, {"target": tmp_path / "columns"}),
        (BudgetError, "too small: one slab needs at least", a, {"memory": 100}),
        (InputError, "depth=-1 must be a whole number", a, {"depth": -1}),
        (LayoutError, "must contain {rank}", a, {"folders": "/tmp/x"}),
    ]
    for error, told, source, how in cases:
        asked: dict[str, Any] = {"target": tmp_path / "b", "memory": "64MiB", "scheduler": "threads"} | how
        with pytest.raises(error, match=told) as caught:
            flat(ooc.map_slabs, np.negative, source, **asked)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "b").exists()
