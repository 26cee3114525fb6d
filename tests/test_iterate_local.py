"""Iterated sweeps over local array files, against numpy on the whole array: each rank sweeps and hands on its own."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.errors import (
    BudgetError,
    InputError,
    JournalError,
    KernelError,
    LayoutError,
    TargetError,
    UnfinishedError,
)
from tests.dying import Server
from tests.flat import flat
from tests.graphs.clusters import within
from tests.padding import blocks
from tests.profiles import examples
from tests.seams import Journal, MemoryWatch
from tests.sweeping import BOUNDARIES, Stencil, gray_scott, jacobi, plain_sweeps, together
from tests.unfinished import left_behind
from tests.whole import boundaries

pytestmark = pytest.mark.once

HERE: dict[str, Any] = {"memory": "64MiB", "scheduler": "threads"}
RANDOM = np.random.default_rng(7)
FIELD = RANDOM.random((45, 34))
U, V = 1 - RANDOM.random((45, 34)) / 4, RANDOM.random((45, 34)) / 2
LAYOUT = ooc.Layout.of(FIELD.shape, "(*, block)", ranks=2)
"""Each slab of a rank has a neighbour on the other; more ranks are drawn, and 30 are in a test of their own."""
SWEPT: dict[str, Any] = {"sweeps": 6, "fuse": 2, "axis": 0, "height": 16, **HERE}
CHUNKS: dict[str, Any] = {"chunks": (16, 17)}
"""No two slabs are in one chunk."""


def made(store: Any, array: np.ndarray, layout: ooc.Layout = LAYOUT, **how: Any) -> ooc.ranks.LocalArrays:
    a = flat(ooc.create_array, store, shape=array.shape, dtype=array.dtype, layout=layout, placement="local", **how)
    a[...] = array
    return a


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class Coupled:
    """A kernel of several fields: each is a stencil of itself, and in turn they are exchanged."""

    def __init__(self, depth: tuple[int, ...], fields: int) -> None:
        self.stencil, self.fields = Stencil(depth), fields

    def __call__(self, *blocks: np.ndarray) -> Any:
        swept = [self.stencil(each) for each in blocks[: self.fields]]
        for each in blocks[self.fields :]:
            swept[0] = swept[0] + each
        return tuple(reversed(swept))


@examples(20)
@given(blocks(), st.data())
def test_passes_are_plain_sweeps(asked: tuple[ooc.Layout, tuple[int, ...]], data: st.DataObject) -> None:
    layout, deep = asked
    depth = tuple(min(each, 2) for each in deep)
    fields, sweeps = data.draw(st.integers(1, 2)), data.draw(st.integers(0, 5))
    boundary = data.draw(boundaries(len(depth), BOUNDARIES))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    arrays = [random.uniform(-9, 9, layout.shape) for _ in range(fields + data.draw(st.integers(0, 1)))]
    sources = [
        made(
            MemoryStore(), each, layout, depth=data.draw(st.integers(0, 2)),
            chunks=tuple(data.draw(st.integers(1, 5)) for _ in depth),
        )
        for each in arrays
    ]  # fmt: skip
    sizes = st.sampled_from([None, 1, 2, 3])
    kernel = Coupled(depth, fields)
    planned = partial(
        ooc.iterate,
        kernel,
        sources,
        [MemoryStore() for _ in range(fields)],
        sweeps=sweeps,
        depth=depth,
        boundary=boundary,
        until=data.draw(st.none() | st.just(0.0)),
        scheduler="threads",
        resources=ooc.Resources(
            fuse=data.draw(st.sampled_from([*range(1, max(sweeps, 1) + 1), "auto"])),
            window=data.draw(st.none() | st.tuples(*[sizes] * len(depth))),
            prefetch=data.draw(st.integers(0, 2)),
        ),
    )
    with pytest.raises(BudgetError) as refused:
        planned(memory=1)
    job = planned(memory=data.draw(st.sampled_from([refused.value.least, "64MiB"])))
    wanted = together(kernel, arrays, fields, depth, boundary, sweeps)
    for each, other in zip(within(job.run), wanted, strict=True):
        assert isinstance(each, ooc.ranks.LocalArrays)
        assert each.layout == layout
        assert not any(each.depth)
        np.testing.assert_array_equal(each[...], other)


@pytest.mark.long
@pytest.mark.parametrize(
    ("layout", "grid", "depth", "boundary"),
    [
        ("(gen_block(3,0,2,1,39), block)", (5, 6), (2, 1), ("reflect", "periodic")),
        ("(gen_block(3,0,2,1,39), *)", (5, 1), (2, 1), "none"),
        ("(gen_block(3,0,2,1,39), *)", (5, 1), (2, 1), "periodic"),
        ("(*, block)", (1, 6), (0, 2), "none"),
        ("(*, block)", (1, 6), (0, 2), "reflect"),
    ],
)
def test_what_sweeps_reach_may_be_wider_than_the_regions_of_neighbours(
    tmp_path: Path, layout: str, grid: tuple[int, int], depth: tuple[int, int], boundary: Any
) -> None:
    a = made(MemoryStore(), FIELD, ooc.Layout.of(FIELD.shape, layout, grid=grid), depth=1)
    how = HERE | {"memory": "256MiB", "depth": depth, "boundary": boundary}
    job = flat(ooc.iterate, Stencil(depth), a, tmp_path / "b", sweeps=10, resources=ooc.Resources(fuse=5), **how)
    wanted = plain_sweeps(FIELD, Stencil(depth), depth, boundary, 10)
    np.testing.assert_array_equal(within(job.run)[...], wanted)


def test_the_plan_says_what_is_read_and_written_and_scratch_goes(tmp_path: Path) -> None:
    plain: dict[str, Any] = {**CHUNKS, "compressors": ()}
    sources = [made(tmp_path / "u", U, depth=2, **plain), made(tmp_path / "v", V, **plain)]
    land = made(tmp_path / "land", U < 0.8, depth=1, **plain)

    def kernel(u: np.ndarray, v: np.ndarray, land: np.ndarray) -> list[np.ndarray]:
        return [np.where(land, 0, each) for each in gray_scott(u, v)]

    job = flat(ooc.iterate, kernel, [*sources, land], [tmp_path / "a", tmp_path / "b"], **SWEPT)
    assert "2 of 45 × 34" in str(job.explain())
    assert job.plan.scratch_bytes == 2 * (U.nbytes + V.nbytes)
    for each, other in zip(job.run(), together(kernel, [U, V, U < 0.8], 2, (1, 1), "none", 6), strict=True):
        np.testing.assert_array_equal(each[...], other)
    planned, counted = job.plan.traffic, job.meter
    assert 1 <= planned.read_bytes / (3 * (U.nbytes + V.nbytes + U.size)) < 1.5, "between rows of halos, too"
    for name in ("read_requests", "read_bytes", "write_requests", "written_bytes"):
        assert getattr(counted, name) == getattr(planned, name), name
    assert names(tmp_path) == ["a", "b", "land", "u", "v"]
    assert left_behind(tmp_path) == []
    (tmp_path / "z").mkdir()
    (again,) = dask.compute(flat(ooc.iterate, gray_scott, sources, [tmp_path / "z/a", tmp_path / "z/b"], **SWEPT))
    for each, other in zip(again, together(gray_scott, [U, V], 2, (1, 1), "none", 6), strict=True):
        np.testing.assert_array_equal(each[...], other)
    assert names(tmp_path / "z") == ["a", "b"]


def test_sweeping_ends_where_the_residual_is_small_enough(tmp_path: Path) -> None:
    states = [plain_sweeps(FIELD, jacobi, (1, 1), "none", sweeps) for sweeps in range(9)]
    residuals = [float(np.abs(states[n] - states[n - 1]).max()) for n in (2, 4, 6)]
    a = made(tmp_path / "a", FIELD, depth=1)
    job = flat(ooc.iterate, jacobi, a, tmp_path / "b", until=residuals[-1], **SWEPT | {"sweeps": 20})
    np.testing.assert_array_equal(job.run()[...], states[6])
    assert job.residuals == residuals
    assert names(tmp_path) == ["a", "b"]


# ---------------------------------------------------------------------- runs that stop


class Failing:
    """A kernel that fails at one call, once."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, block: np.ndarray) -> np.ndarray:
        self.left -= 1
        if self.left == 0:
            raise ValueError("not yet")
        return jacobi(block)


FAILURES = {
    2: ["run", "iterate"],
    5: ["run", "resume", "verify"],
    20: ["iterate", "resume", "anew"],
    31: ["run", "anew", "verify"],
}
"""At the first slab of all, in the first pass, in the second, in the third, of 12 calls each; and how it goes on."""


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize(("at", "again"), [(at, again) for at, ways in FAILURES.items() for again in ways])
def test_a_run_that_failed_goes_on(tmp_path: Path, at: int, again: str) -> None:
    kernel, a = Failing(at), made(tmp_path / "a", FIELD, **CHUNKS)
    job = flat(ooc.iterate, kernel, a, tmp_path / "b", **SWEPT)
    with pytest.raises(KernelError, match="not yet"):
        job.run()
    if at >= 20:
        with pytest.raises(UnfinishedError):
            ooc.open_array(tmp_path / "b")
    if again == "iterate" or not (tmp_path / "b").exists():  # nothing had been written
        job = flat(ooc.iterate, kernel, a, tmp_path / "b", resume=True, **SWEPT)
    elif again != "run":
        more = {"anew": {"memory": "32MiB"}, "verify": {"verify": True}}.get(again, {})
        job = flat(ooc.resume, tmp_path / "b", kernel=kernel, kind="iterate", **more)
    np.testing.assert_array_equal(job.run()[...], plain_sweeps(FIELD, jacobi, (1, 1), "none", 6))
    assert names(tmp_path) == ["a", "b"]
    assert left_behind(tmp_path) == []


STOPS = [
    ("begun", 1),
    ("pieces", 3),
    ("unrecorded", 7),
    ("entry", 2),
    ("entry", 7),
    ("entry", 10),
    ("entry", 15),
    ("entry", 20),
    ("mark", 1),
    ("mark", 2),
    ("group", 1),
]
"""There are 8 entries of each pass: of 6 slabs, and of what 2 ranks have been sent."""
SLABS = 3 * 6


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("at", "after"), STOPS)
def test_a_killed_run_goes_on_with_the_pass_it_was_in(tmp_path: Path, runs: Server, at: str, after: int) -> None:
    a = made(tmp_path / "a", FIELD, **CHUNKS)
    runs.run("iterate", "tests.sweeping:jacobi", tmp_path / "a", tmp_path / "b", at=at, after=after, **SWEPT)
    done = SLABS if at == "group" else sum(len(part) == 3 for part in Journal(tmp_path / "b").parts())
    how: Any = "verify" if at == "entry" else True
    job = flat(ooc.iterate, jacobi, a, tmp_path / "b", resume=how, **SWEPT)
    assert job.plan.sweeps == 6
    assert sum(step.count for step in job.plan.passes) == SLABS
    assert job.left == pytest.approx(1 - done / SLABS)
    assert job.is_finished == (at == "group")
    np.testing.assert_array_equal(job.run()[...], plain_sweeps(FIELD, jacobi, (1, 1), "none", 6))
    computed = [span for span in job.meter.spans if span.phase == "write"]
    assert len(computed) <= SLABS
    assert left_behind(tmp_path) == []


@pytest.mark.long
@pytest.mark.parametrize(("after", "memory"), [(3, "least"), (11, "64MiB"), (11, "least"), (19, "least")])
def test_fields_go_on_together(tmp_path: Path, runs: Server, after: int, memory: str) -> None:
    sources, targets = [tmp_path / "u", tmp_path / "v"], [tmp_path / "a", tmp_path / "b"]
    opened = [made(where, each, **CHUNKS, depth=1) for where, each in zip(sources, (U, V), strict=True)]
    how: dict[str, Any] = {"sweeps": 6, "fuse": 2, "boundary": "periodic", "scheduler": "threads"}
    runs.run(
        "iterate", "tests.sweeping:gray_scott", sources, targets, at="entry", after=after, memory="64MiB", axis=0,
        height=16, **how,
    )  # fmt: skip
    if memory == "least":
        with pytest.raises(BudgetError) as refused:
            flat(ooc.iterate, gray_scott, opened, [tmp_path / "x", tmp_path / "y"], memory=1, **how)
        memory = str(refused.value.least)
    job = flat(ooc.iterate, gray_scott, opened, targets, memory=memory, resume=True, **how)
    assert job.left < 1
    for each, other in zip(job.run(), together(gray_scott, [U, V], 2, (1, 1), "periodic", 6), strict=True):
        np.testing.assert_array_equal(each[...], other)
    assert names(tmp_path) == ["a", "b", "u", "v"]


def test_a_pass_whose_scratch_is_gone_on_one_rank_begins_anew(tmp_path: Path, runs: Server) -> None:
    made(tmp_path / "a", FIELD, **CHUNKS)
    runs.run("iterate", "tests.sweeping:jacobi", tmp_path / "a", tmp_path / "b", at="entry", after=13, **SWEPT)
    (scratch,) = tmp_path.glob(".oocarrays-*")
    last = max(int(each.parent.name) for each in scratch.glob("*/zarr.json"))
    assert last >= 2, "it was in the second pass, or in the third"
    os.unlink(scratch / f"{last // 2 * 2 - 2}" / "zarr.json")
    os.unlink(scratch / f"{last}" / "zarr.json")
    job = ooc.resume(tmp_path / "b", kernel=jacobi, kind="iterate")
    assert job.left == 1
    np.testing.assert_array_equal(job.run()[...], plain_sweeps(FIELD, jacobi, (1, 1), "none", 6))
    assert left_behind(tmp_path) == []


def test_slabs_that_are_cut_anew_keep_the_chunks_that_are_written(tmp_path: Path, runs: Server) -> None:
    array = RANDOM.random((128, 512))
    a = made(tmp_path / "a", array, ooc.Layout.of(array.shape, "(block, *)", ranks=2), chunks=(8, 512))
    how = {"sweeps": 6, "fuse": 2, "scheduler": "threads"}
    runs.run(
        "iterate", "tests.sweeping:jacobi", tmp_path / "a", tmp_path / "b", at="entry", after=14, memory="64MiB",
        height=16, **how,
    )  # fmt: skip
    with pytest.raises(BudgetError) as refused:
        flat(ooc.iterate, jacobi, a, tmp_path / "c", memory=1, **how)
    job = flat(ooc.iterate, jacobi, a, tmp_path / "b", memory=refused.value.least, resume=True, **how)
    assert any("planned anew" in notice and "stay as they are" in notice for notice in job.notices)
    np.testing.assert_array_equal(job.run()[...], plain_sweeps(array, jacobi, (1, 1), "none", 6))
    assert names(tmp_path) == ["a", "b"]


def test_another_call_is_not_gone_on_with(tmp_path: Path) -> None:
    a = made(tmp_path / "a", FIELD, depth=1)
    kernel = Failing(20)
    with pytest.raises(KernelError, match="not yet"):
        flat(ooc.iterate, kernel, a, tmp_path / "b", **SWEPT).run()
    for more, told in [({"sweeps": 7}, "sweeps=6, not 7"), ({"depth": 2}, "depth="), ({"until": 0.5}, "until=None")]:
        with pytest.raises(JournalError, match=told):
            flat(ooc.iterate, kernel, a, tmp_path / "b", resume=True, **SWEPT | more)
    with pytest.raises(JournalError, match="not being written by map_slabs"):
        ooc.map_slabs(kernel, a, tmp_path / "b", depth=1, resume=True, **HERE)


# ---------------------------------------------------------------------- memory, and what cannot be


@pytest.mark.long
def test_it_holds_no_more_than_it_plans(tmp_path: Path) -> None:
    array = np.random.default_rng(3).random((1024, 1024))
    a = made(tmp_path / "a", array, ooc.Layout.of(array.shape, "(block, *)", ranks=2), chunks=(32, 1024), depth=1)
    planned = partial(ooc.iterate, jacobi, a, sweeps=4, scheduler="threads", resources=ooc.Resources(fuse=2))
    planned(tmp_path / "warm", memory="64MiB").run()
    with pytest.raises(BudgetError) as refused:
        planned(tmp_path / "b", memory=1)
    job = planned(tmp_path / "b", memory=refused.value.least)
    with MemoryWatch() as watch:
        b = job.run()
    assert watch.peak_bytes <= job.plan.budget
    np.testing.assert_array_equal(b[...], plain_sweeps(array, jacobi, (1, 1), "none", 4))


def first_swept(block: np.ndarray, other: np.ndarray) -> np.ndarray:
    return jacobi(block)


def test_wrong_inputs_are_told_in_a_line(tmp_path: Path) -> None:
    a, b = made(tmp_path / "a", FIELD), made(tmp_path / "b", FIELD)
    dealt = made(tmp_path / "dealt", FIELD, ooc.Layout.of(FIELD.shape, "(cyclic, *)", ranks=2))
    rows = made(tmp_path / "rows", FIELD, ooc.Layout.of(FIELD.shape, "(block, *)", ranks=4))
    z = zarr.create_array(tmp_path / "z", data=FIELD)
    (tmp_path / "file").write_text("x")
    one, two = tmp_path / "x", [tmp_path / "x", tmp_path / "y"]
    own = str(tmp_path / "{rank}" / "x")
    cases: list[tuple[type[InputError], str, Any, Any, dict[str, Any]]] = [
        (LayoutError, "is not in blocks: local array files need block, gen_block", dealt, one, {}),
        (LayoutError, "sources have layouts .* must be equal", [a, rows], one, {}),
        (InputError, "sources are local array files and Array", [a, z], one, {}),
        (InputError, "sources are local array files and Array", [z, a], one, {}),
        (LayoutError, "ranks=3 differs from the 2 ranks", a, one, {"ranks": 3}),
        (TargetError, "the target .* is the source", a, tmp_path / "a", {"overwrite": True}),
        (TargetError, "exists; pass overwrite=True", a, tmp_path / "b", {}),
        (TargetError, "is not a group of local array files", a, tmp_path / "z", {"overwrite": True}),
        (TargetError, "is not a group of local array files", a, tmp_path / "file", {"overwrite": True}),
        (TargetError, "is named twice", [a, b], [one, one], {}),
        (InputError, "2 targets for 1 source: target i receives the result of source i", a, two, {}),
        (BudgetError, "too small: one slab needs at least", a, one, {"memory": 100}),
        (InputError, "depth=-1 must be a whole number", a, one, {"depth": -1}),
        (InputError, "sweeps=-1 must be a whole number", a, one, {"sweeps": -1}),
        (InputError, "fuse=0 must be a whole number", a, one, {"fuse": 0}),
        (LayoutError, "must contain {rank}", a, one, {"folders": "/tmp/x"}),
        (InputError, "must contain {target}: there are 2 targets", [a, b], two, {"folders": own}),
        (InputError, "folders=.* needs local array files; the sources are in one file each", z, one, {"folders": own}),
        (InputError, "is inside the source", a, one, {"scratch": tmp_path / "a"}),
    ]  # fmt: skip
    before = names(tmp_path)
    for error, told, source, target, how in cases:
        kernel = first_swept if isinstance(source, list) else jacobi
        with pytest.raises(error, match=told) as caught:
            flat(ooc.iterate, kernel, source, target, **{"sweeps": 2, **HERE} | how)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="the kernel returned"):
        ooc.iterate(lambda block: block[1:], a, one, sweeps=2, **HERE)
    assert names(tmp_path) == before
