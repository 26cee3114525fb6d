"""Passes over slabs give what the kernel gives on the whole array, and read what is stored once."""

from __future__ import annotations

import mmap
import pickle
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st
from zarr.codecs import GzipCodec
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import (
    BudgetError,
    InputError,
    JournalError,
    NotFoundError,
    RunError,
    TargetError,
    UnfinishedError,
)
from oocarrays.kernels import median
from tests.flat import flat
from tests.pairs import pairs
from tests.profiles import examples
from tests.seams import Journal
from tests.unfinished import left_behind
from tests.whole import around, boundaries, expected

CODED = {"compressors": zarr.codecs.ZstdCodec()}
PLAIN: dict[str, Any] = {"compressors": None}
ROWS = np.random.default_rng(0).random((40, 20))


def smooth(block: np.ndarray) -> np.ndarray:
    return around((1, 1))(block)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    zarr.create_array(tmp_path / "rows.zarr", data=ROWS, chunks=(4, 20), **PLAIN)
    return tmp_path / "rows.zarr"


def job_of(rows: Path, kernel: Callable[..., Any] = smooth, **options: Any) -> ooc.Job:
    given = {"depth": 1, "memory": "64MiB", "ranks": 2, "height": 4, "scheduler": "threads"} | options
    return flat(ooc.map_slabs, kernel, rows, given.pop("target", rows.parent / "target.zarr"), **given)


# ---------------------------------------------------------------------- what a pass gives


@st.composite
def passes(draw: st.DrawFn) -> tuple[Any, ...]:
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    whole = draw(st.integers(0, 2**32 - 1).map(np.random.default_rng)).random(shape)
    if draw(st.booleans()):
        whole.flat[0] = np.nan
    cut = tuple(st.integers(1, n) for n in shape)
    options = {
        "depth": tuple(draw(st.integers(0, 12 if len(shape) < 3 else 2)) for _ in shape),
        "boundary": draw(boundaries(len(shape), ["none", "reflect", "nearest", "periodic", 3.0])),
        "prefetch": draw(st.integers(0, 3)),
        "reuse": draw(st.booleans()),
        "ranks": draw(st.integers(1, 5)),
        "axis": draw(st.sampled_from([None, *range(len(shape))])),
        "height": draw(st.sampled_from([None, 1, 2, 3])),
        "chunks": draw(st.none() | st.tuples(*cut)),
    }
    storing = draw(st.sampled_from([PLAIN, CODED, PLAIN | {"zarr_format": 2}, {"shards": None}]))
    return whole, draw(st.tuples(*cut)), storing, options


@examples(30)
@given(passes())
def test_a_pass_is_the_kernel_on_the_whole_array(case: tuple) -> None:
    whole, chunks, storing, options = case
    if "shards" in storing:
        storing = {"shards": tuple(2 * c for c in chunks)}
    source = zarr.create_array({}, data=whole, chunks=chunks, **storing)
    kernel = around(options["depth"])
    job = flat(ooc.map_slabs, kernel, source, MemoryStore(), memory="64MiB", scheduler="threads", **options)
    (want,) = expected(kernel, [whole], options["depth"], options["boundary"])
    np.testing.assert_allclose(job.run()[...], want, rtol=1e-12)


@examples(25)
@given(st.integers(1, 4), st.integers(0, 6), st.sampled_from(["none", "reflect", "periodic"]), st.booleans())
def test_several_sources_and_targets_of_other_types(ranks: int, depth: int, boundary: str, reuse: bool) -> None:
    a, b = np.arange(60, dtype="i2").reshape(12, 5), np.random.default_rng(1).random((12, 5), dtype="f4")

    def kernel(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        total = around((depth, 0))(x) + y
        x[...] = 0  # a kernel may change its blocks
        return total, total > total.mean(axis=1, keepdims=True)

    job = ooc.map_slabs(
        kernel,
        [zarr.create_array({}, data=a, chunks=(2, 5)), zarr.create_array({}, data=b, chunks=(3, 4))],
        [ooc.Target(MemoryStore(), dtype="f8"), ooc.Target(MemoryStore(), dtype="?")],
        depth=(depth, 0),
        boundary=boundary,
        memory="64MiB",
        scheduler="threads",
        resources=ooc.Resources(reuse=reuse, ranks=ranks),
    )
    for made, want, dtype in zip(job.run(), expected(kernel, [a, b], (depth, 0), boundary), ("f8", "?"), strict=True):
        np.testing.assert_allclose(made[...], want)
        assert made.dtype == dtype


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (1, 1)])
@pytest.mark.parametrize("boundary", ["none", 0])
def test_small_arrays_and_empty_ones(shape: tuple[int, ...], boundary: Any) -> None:
    source = zarr.create_array({}, data=np.ones(shape), chunks=tuple(max(n, 1) for n in shape))
    job = ooc.map_slabs(
        np.negative, source, MemoryStore(), depth=2, boundary=boundary, memory="16MiB", scheduler="threads"
    )
    np.testing.assert_array_equal(job.run()[...], -np.ones(shape))


def test_the_target_is_like_the_source(tmp_path: Path) -> None:
    zarr.create_array(
        tmp_path / "a.zarr", data=ROWS, chunks=(4, 20), attributes={"units": "K"}, dimension_names=["y", "x"]
    )
    made = job_of(tmp_path / "a.zarr", chunks=(8, 10), dtype="f4").run()
    assert (made.attrs, made.dimension_names, made.chunks, made.dtype) == ({"units": "K"}, ("y", "x"), (8, 10), "f4")


# ---------------------------------------------------------------------- reuse and prefetch


@pytest.mark.parametrize(*pairs(depth=[1, 3, 9], boundary=["none", "reflect", "nearest", 0], ranks=[1, 2, 3]))
def test_with_reuse_what_is_stored_is_read_once(rows: Path, depth: int, boundary: Any, ranks: int) -> None:
    job = job_of(rows, depth=depth, boundary=boundary, ranks=ranks)
    job.run()
    assert job.meter.read_bytes == job.plan.read_bytes == ROWS.nbytes
    again = job_of(rows, depth=depth, boundary=boundary, ranks=ranks, reuse=False, overwrite=True)
    again.run()
    assert again.meter.read_bytes == again.plan.read_bytes == ROWS.nbytes + job.plan.saved_bytes > ROWS.nbytes


@pytest.mark.parametrize("prefetch", [0, 1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"depth": 3}, {"depth": 9, "boundary": "periodic"}, {"reuse": False}])
def test_no_more_windows_are_held_than_the_plan_says(rows: Path, prefetch: int, options: dict) -> None:
    job = job_of(rows, **({"depth": 1, "ranks": 2, "prefetch": prefetch} | options))
    job.run()
    spans = {(span.phase, span.args): span for span in job.meter.spans}
    for rank in range(job.plan.ranks):
        slabs = job.plan.slabs(rank)
        for span in (spans["read", slab] for slab in slabs):
            before = [slab for slab in slabs if spans["read", slab].start <= span.start]
            ended = [slab for slab in slabs if spans["compute", slab].stop <= span.start]
            assert len(before) - len(ended) <= job.plan.held
        for this, following in pairwise(slabs):
            assert spans["read", this].stop <= spans["read", following].start, "one at a time, in order"
            assert spans["compute", this].stop <= spans["compute", following].start
            assert spans["write", this].stop <= spans["write", following].start


def test_reading_computing_and_writing_overlap(rows: Path) -> None:
    """Shown by a kernel that waits until the next slab has been read: without prefetch it would wait for ever."""
    made: dict[str, ooc.Job] = {}

    def kernel(block: np.ndarray) -> np.ndarray:
        job = made["job"]
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            done = Counter(span.phase for span in list(job.meter.spans))
            if done["read"] >= min(done["compute"] + 2, 10):
                return block
            time.sleep(0.001)
        raise TimeoutError("the next slab is not read while this one is computed")

    made["job"] = job_of(rows, kernel, depth=0, ranks=1, prefetch=1, workspace="1MiB")  # the first of others is alone
    made["job"].run()
    spans = {(span.phase, *span.args[:1]): span for span in made["job"].meter.spans}
    hidden = [n for n in range(1, 9) if spans["read", n + 1].start < spans["compute", n].stop]
    assert len(hidden) == 8


# ---------------------------------------------------------------------- failures


def broken(block: np.ndarray) -> np.ndarray:
    if ROWS[20, 0] in block:
        raise ZeroDivisionError("row twenty")
    return smooth(block)


def test_a_kernel_that_raises_names_the_slab(rows: Path) -> None:
    job = job_of(rows, broken, ranks=1)
    says = r"the kernel failed on slab \[16:20, 0:20\] \(number 4 of rank 0\): ZeroDivisionError: row twenty"
    with pytest.raises(RunError, match=says) as caught:
        job.run()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(UnfinishedError, match="is unfinished"):
        ooc.open_array(rows.parent / "target.zarr")


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        (lambda block: block[1:], r"returned shape \(4, 20\) for slab \[0:4, 0:20\].*; its block has \(5, 20\)"),
        (lambda block: block + 1j, r"returned dtype complex128 for slab .*; the target has float64: pass Target"),
        (lambda block: (block, block), r"returned 2 arrays for slab .*; there is 1 target"),
        (lambda block: None, r"returned (shape \(\)|dtype object) for slab"),
    ],
    ids=["shape", "dtype", "number", "nothing"],
)
def test_a_wrong_result_is_caught_on_the_first_slab(rows: Path, kernel: Callable, says: str) -> None:
    job = job_of(rows, kernel, ranks=1)
    with pytest.raises(RunError, match=says) as caught:
        job.run()
    assert "\n" not in str(caught.value)
    assert job.meter.write_requests == 0
    assert Counter(span.phase for span in job.meter.spans)["compute"] == 1


def greedy(block: np.ndarray) -> np.ndarray:
    return sum(np.stack([block] * 16)) - 15 * block


def greedy_in_c(block: np.ndarray) -> np.ndarray:
    """Neither Python nor numpy knows of what it takes."""
    with mmap.mmap(-1, 16 * block.nbytes) as memory:
        np.frombuffer(memory, np.uint8)[...] = 1
    return block


@pytest.mark.long
@pytest.mark.parametrize(
    ("greedy", "coding"),
    [(greedy, PLAIN), (greedy, CODED), (greedy_in_c, PLAIN), (greedy_in_c, {"compressors": GzipCodec()})],
    ids=["plain", "coded", "in C, plain", "in C, gzip"],
)
def test_a_kernel_that_holds_more_than_there_is_room_for(tmp_path: Path, greedy: Any, coding: dict) -> None:
    """In arrays larger than any that glibc keeps for later, whatever other tests have left."""
    zarr.create_array(tmp_path / "a.zarr", data=np.ones((256, 8192)), chunks=(64, 8192), **coding)
    tight = {"depth": 0, "height": None, "overwrite": True, "ranks": 1, "prefetch": 0}
    with pytest.raises(BudgetError) as caught:
        job_of(tmp_path / "a.zarr", greedy, memory=1, workspace=0.5, **tight)
    least = caught.value.least
    job = job_of(tmp_path / "a.zarr", greedy, memory=least, workspace=0.5, **tight)
    with pytest.raises(
        RunError,
        match=r"held \d+ bytes beside .* more than the 2097152 planned: .* pass Resources\(workspace='\d+MiB'\)",
    ) as told:
        job.run()
    (wanted,) = re.findall(r"workspace='(.*)'", str(told.value))
    more = job_of(tmp_path / "a.zarr", greedy, memory=4 * least, workspace=wanted, **tight)
    assert (more.run()[...] == 1).all()
    job_of(tmp_path / "a.zarr", greedy, memory="512MiB", workspace=0.5, **tight).run()  # there is room for it


@pytest.mark.parametrize("calls", [1, 4], ids=["once", "each time"])
def test_what_is_held_beside_the_first_kernel_alone_may_be_another_s(tmp_path: Path, calls: int) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=np.ones((256, 1024)), chunks=(64, 1024), **PLAIN)
    left = [*range(calls)]

    def kernel(block: np.ndarray) -> np.ndarray:
        if left and left.pop() >= 0:
            with mmap.mmap(-1, 5 * 2**20) as memory:
                np.frombuffer(memory, np.uint8)[...] = 1
        return block

    tight = {"depth": 0, "axis": 0, "height": 64, "overwrite": True, "ranks": 1, "prefetch": 0, "workspace": 0.5}
    with pytest.raises(BudgetError) as caught:
        job_of(tmp_path / "a.zarr", kernel, memory=1, **tight)
    job = job_of(tmp_path / "a.zarr", kernel, memory=caught.value.least, **tight)
    if calls == 1:
        assert (job.run()[...] == 1).all()
    else:
        with pytest.raises(RunError, match=r"held \d+ bytes beside"):
            job.run()


def test_a_job_runs_twice(rows: Path) -> None:
    job = job_of(rows, overwrite=True)
    first = job.run()[...]
    again = job.run()
    np.testing.assert_array_equal(again, first)
    assert job.meter.read_bytes == ROWS.nbytes, "counted anew"
    with pytest.raises(TargetError, match="exists; pass overwrite=True"):
        job_of(rows)
    once = job_of(rows, target=rows.parent / "once.zarr")
    once.run()
    with pytest.raises(TargetError, match="exists; pass overwrite=True"):
        once.run()


def test_two_runs_at_one_target_are_refused(rows: Path) -> None:
    target = rows.parent / "target.zarr"
    said: list[str] = []

    def meanwhile(block: np.ndarray) -> np.ndarray:
        if not said:
            said.append("")
            with pytest.raises(TargetError) as caught:
                job_of(rows, overwrite=True).run()
            said[0] = str(caught.value)
        return smooth(block)

    job_of(rows, meanwhile, ranks=1).run()
    assert said == [f"another run is writing to {target}"]


def test_the_second_target_says_that_it_is_unfinished(rows: Path) -> None:
    targets = [rows.parent / "a.zarr", rows.parent / "b.zarr"]

    def two(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return broken(block), block

    with pytest.raises(RunError, match="row twenty"):
        job_of(rows, two, target=targets).run()
    for target in targets:
        with pytest.raises(UnfinishedError):
            ooc.open_array(target)
    with pytest.raises(TargetError, match=r"a\.zarr already exists"):
        job_of(rows, two, target=targets)


# ---------------------------------------------------------------------- going on


def switched(on: list[bool]) -> Callable[[np.ndarray], np.ndarray]:
    """A kernel that fails when it has been called eight times, as long as it is switched on."""
    calls = count(1)

    def kernel_with_a_switch(block: np.ndarray) -> np.ndarray:
        if on[0] and next(calls) >= 8:
            raise ZeroDivisionError
        return smooth(block)

    return kernel_with_a_switch


@pytest.mark.parametrize(
    *pairs(
        options=[{}, {"depth": 6, "boundary": "periodic"}, {"reuse": False, "prefetch": 3}],
        targets=[1, 2],
        ranks=[1, 3],
    )
)
def test_what_stopped_is_resumed(rows: Path, ranks: int, targets: int, options: dict) -> None:
    on = [True]
    places = [rows.parent / f"{number}.zarr" for number in range(targets)]
    switch = switched(on)

    def kernel(block: np.ndarray) -> Any:
        return switch(block) if targets == 1 else (switch(block), -block)

    asked = {"target": places if targets == 2 else places[0], "ranks": ranks} | options
    with pytest.raises(RunError):
        job_of(rows, kernel, **asked).run()
    done = Journal(places[0]).parts()
    stamps = {path: path.stat().st_mtime_ns for path in places[0].joinpath("c").rglob("*") if path.is_file()}
    assert 0 < len(done) < 10
    on[0] = False
    other = {"ranks": 5, "height": None, "axis": 1, "memory": "1GiB"}  # all that may differ
    job = job_of(rows, kernel, **(asked | other), resume=True)
    assert job.plan.height == 4
    made = job.run()
    depth = options.get("depth", 1)
    wants = expected(kernel, [ROWS], (depth, depth), options.get("boundary", "none"))
    for got, want in zip(made if targets == 2 else [made], wants, strict=True):
        np.testing.assert_allclose(got[...], want)
    assert left_behind(rows.parent) == []
    computed = {span.args for span in job.meter.spans if span.phase == "compute"}
    assert len(computed) == 10 - len(done)
    assert not computed & done
    kept = [path for path, stamp in stamps.items() if path.stat().st_mtime_ns == stamp]
    assert len(kept) >= len(done), "what was written stays as it is"


def test_resume_begins_where_nothing_is_there(rows: Path) -> None:
    job_of(rows, resume=True).run()
    assert job_of(rows, resume=True).is_finished
    with pytest.raises(TargetError, match="exists; pass overwrite=True"):
        job_of(rows)


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"depth": 2}, r"depth=\[1, 1\], not \[2, 2\]"),
        ({"boundary": "nearest"}, "boundary=none, not nearest"),
        ({"dtype": "f4"}, r"dtype=\['<f8'\], not \['<f4'\]"),
        ({"chunks": (8, 10)}, r"chunks=\[\[4, 20\]\], not \[\[8, 10\]\]"),
        ({"kernel": smooth}, r"kernel=.*switch, not .*smooth"),
        ({"rows": "other.zarr"}, "another source"),
        ({"target": ["target.zarr", "second.zarr"]}, "target="),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_another_pass_does_not_go_on_with_it(rows: Path, other: dict, says: str) -> None:
    with pytest.raises(RunError):
        job_of(rows, switched([True])).run()
    zarr.create_array(rows.parent / "other.zarr", data=ROWS, chunks=(5, 20))
    asked = {"kernel": switched([False]), "rows": rows} | other
    source = rows.parent / asked.pop("rows")
    if "target" in asked:
        asked["target"] = [rows.parent / name for name in asked["target"]]
    with pytest.raises(JournalError, match=says) as caught:
        job_of(source, resume=True, **asked)
    assert "\n" not in str(caught.value)


def test_resume_says_what_to_call(rows: Path) -> None:
    with pytest.raises(RunError):
        job_of(rows, broken).run()
    with pytest.raises(JournalError, match=r"pass it again as resume\(target, kernel=broken\)"):
        ooc.resume(rows.parent / "target.zarr")


def test_a_second_target_that_was_replaced_is_not_written_to(rows: Path) -> None:
    targets = [rows.parent / "a.zarr", rows.parent / "b.zarr"]
    on = [True]
    switch = switched(on)

    def two(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return switch(block), block

    with pytest.raises(RunError):
        job_of(rows, two, target=targets).run()
    zarr.create_array(targets[1], data=ROWS + 1, chunks=(4, 20), overwrite=True)
    on[0] = False
    with pytest.raises(RunError, match=r"b\.zarr has changed since run"):
        job_of(rows, two, target=targets, resume=True).run()
    np.testing.assert_array_equal(ooc.open_array(targets[1]), ROWS + 1)


@pytest.mark.parametrize("at", ["begun", "pieces", "entry", "mark"])
def test_a_killed_run_is_resumed(rows: Path, runs: Any, at: str) -> None:
    """SIGKILL with the first word, in the middle of a chunk, after it, at the end."""
    target = rows.parent / "target.zarr"
    options = {"depth": 0, "memory": "64MiB", "ranks": 2, "height": 4, "scheduler": "threads"}
    runs.run("map_slabs", "numpy:negative", rows, target, at=at, after=1 if at in ("begun", "mark") else 4, **options)
    with pytest.raises(UnfinishedError):
        ooc.open_array(target)
    job = flat(ooc.map_slabs, np.negative, rows, target, resume=True, **options)
    np.testing.assert_array_equal(job.run(), -ROWS)
    assert (job.meter.write_requests == 0) == (at == "mark")
    assert sorted(path.name for path in target.iterdir()) == [".oocarrays.made", "c", "zarr.json"]
    assert not list(target.rglob("*.partial"))


def test_a_run_that_was_killed_before_its_target_was_made_is_begun_by_the_same_call(rows: Path, runs: Any) -> None:
    target = rows.parent / "target.zarr"
    options = {"depth": 0, "memory": "64MiB", "ranks": 2, "height": 4, "scheduler": "threads"}
    runs.run("map_slabs", "numpy:negative", rows, target, at="journal", **options)
    with pytest.raises(NotFoundError, match="no Zarr array"):
        ooc.open_array(target)
    np.testing.assert_array_equal(flat(ooc.map_slabs, np.negative, rows, target, resume=True, **options).run(), -ROWS)


# ---------------------------------------------------------------------- a job


def test_it_is_a_dask_collection(rows: Path) -> None:
    job = job_of(rows, overwrite=True)
    (made,) = dask.compute(job, scheduler="threads")
    (want,) = expected(smooth, [ROWS], (1, 1), "none")
    np.testing.assert_allclose(made[...], want)
    kept = job_of(rows, overwrite=True).persist(scheduler="threads")
    np.testing.assert_allclose(kept.compute(scheduler="threads")[...], want)
    assert len(kept.__dask_graph__()) == 1


def test_planning_reads_nothing(rows: Path) -> None:
    before = sorted(rows.parent.rglob("*"))
    job = job_of(rows)
    assert all([repr(job), job._repr_html_(), job.explain(), job.__dask_graph__(), pickle.dumps(job.plan)])
    assert sorted(rows.parent.rglob("*")) == before
    assert job.meter.read_requests == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"depth": -1}, "depth=-1 must be a whole number, at least 0"),
        ({"depth": (1,)}, r"depth=\(1,\) must be a whole number, at least 0, or one for each of 2 axes"),
        ({"depth": 1.5}, "depth=1.5 must be a whole number"),
        ({"boundary": "mirror"}, "boundary='mirror' is not 'none', 'reflect', 'nearest', 'periodic' or a number"),
        ({"prefetch": -1}, "prefetch=-1 must be a whole number, at least 0"),
        ({"axis": 2}, "2 is not one of the 2 axes"),
        ({"height": 0}, "window=0 must be a whole number, at least 1"),
        ({"ranks": 0}, "ranks=0 must be a whole number, at least 1"),
        ({"workspace": -1}, "workspace=-1"),
        ({"workspace": float("nan")}, "workspace=nan"),
        ({"axis": "0"}, "'0' is not one of the 2 axes"),
        ({"height": 2.5}, "window=2.5 is neither a number"),
        ({"boundary": 1j}, "boundary=1j is not a value of an array of"),
        ({"target": None}, "the target is of type NoneType: pass a path, a URL or a Zarr store"),
        ({"target": zarr.create_array({}, shape=(2, 2), dtype="f8")}, "the target is of type Array"),
        ({"workspace": "lots"}, "workspace='lots' is not a size"),
        ({"dtype": ["f4", "f8"]}, "dtype=.* is no type"),
        ({"dtype": "text"}, "dtype='text'"),
        ({"kernel": 3}, "kernel=3 is not callable"),
        ({"target": []}, "at least one target is required"),
        ({"folders": "/x/{rank}"}, "needs local array files; the sources are in one file each"),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_wrong_inputs_in_one_line(rows: Path, options: dict, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        job_of(rows, **options)
    assert "\n" not in str(caught.value)
    assert not (rows.parent / "target.zarr").exists()


def test_sources_and_targets_that_do_not_go_together(rows: Path) -> None:
    with pytest.raises(TargetError, match="is the source itself"):
        job_of(rows, target=rows)
    with pytest.raises(TargetError, match="is named twice"):
        job_of(rows, target=[rows.parent / "a.zarr", rows.parent / "a.zarr"])
    other = zarr.create_array({}, data=np.ones((3, 3)), chunks=(3, 3))
    with pytest.raises(InputError, match=r"sources have shapes \(40, 20\) and \(3, 3\)"):
        ooc.map_slabs(np.add, [rows, other], MemoryStore(), memory="64MiB", scheduler="threads")


@pytest.mark.parametrize("options", [{}, {"ranks": 3}, {"prefetch": 0}, {"reuse": False}, {"height": None}])
def test_the_least_budget_that_is_named_is_enough(rows: Path, options: dict) -> None:
    with pytest.raises(BudgetError, match="one slab needs at least") as caught:
        job_of(rows, memory=100, **options)
    job = job_of(rows, memory=caught.value.least, **options)
    assert job.plan.peak_bytes <= job.plan.budget
    np.testing.assert_allclose(job.run()[...], expected(smooth, [ROWS], (1, 1), "none")[0])


def test_a_kernel_of_a_packed_array_is_given_what_is_stored_and_that_is_said(tmp_path: Path) -> None:
    packed = {"scale_factor": 0.01, "add_offset": 273.15}
    zarr.create_array(tmp_path / "a.zarr", data=np.arange(12, dtype="i2").reshape(3, 4), attributes=packed)
    with pytest.warns(UserWarning, match=r"a.zarr is packed \(scale_factor=0.01, add_offset=273.15\): .* int16"):
        ooc.map_slabs(np.negative, tmp_path / "a.zarr", tmp_path / "b.zarr", memory="16MiB")
    with pytest.warns(UserWarning, match="is packed") as said:
        ooc.iterate(np.negative, tmp_path / "a.zarr", tmp_path / "c.zarr", sweeps=2, memory="16MiB")
    with pytest.warns(UserWarning, match="is packed") as also:
        ooc.reduce(tmp_path / "a.zarr", "sum", axis=0)
    assert {each.filename for each in (*said, *also)} == {__file__}


def test_a_kernel_that_mixes_channels_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    names, image, out = ("c", "y", "x"), tmp_path / "a.zarr", tmp_path / "b.zarr"
    zarr.create_array(image, data=np.zeros((3, 20, 20)), dimension_names=names)
    with pytest.warns(
        UserWarning, match=r"mixes its channels \(axis 'c'\): pass depth={'c': 0, 'y': 1, 'x': 1}"
    ) as said:
        ooc.map_slabs(median, image, out, memory="16MiB")
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ooc.map_slabs(partial(median, size=(1, 3, 3)), image, out, memory="16MiB")
        ooc.map_slabs(np.negative, image, out, depth={"y": 2, "x": 2}, memory="16MiB")
    words = ["map", str(image), str(out), "--kernel", "oocarrays.kernels:median", "--memory", "16MiB", "--dry-run"]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(words) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "channels" in line]
    assert line.startswith("oocarrays: depth=1 is that of all axes"), "a warning is one line, as errors are"


def test_a_failed_kernel_is_told_by_its_own_file_and_line(tmp_path: Path) -> None:
    def broken(block: np.ndarray) -> np.ndarray:
        return np.concatenate([block, block[None]])  # the line that is told

    line = broken.__code__.co_firstlineno + 1
    zarr.create_array(tmp_path / "a.zarr", data=np.zeros((3, 4)), chunks=(1, 4))
    with pytest.raises(ooc.errors.KernelError, match=rf"must have same.*\({re.escape(__file__)}:{line}\)$"):
        ooc.map_slabs(broken, tmp_path / "a.zarr", tmp_path / "b.zarr", memory="16MiB").run()
    assert not (tmp_path / "b.zarr").exists()
