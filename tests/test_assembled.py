"""Targets that are assembled piece by piece: any arrays, fills and budgets; killed, full, with few files open."""

from __future__ import annotations

import math
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, strategies as st

import oocarrays as ooc
from oocarrays.errors import BudgetError, UnsupportedError
from tests.dying import Server
from tests.flat import flat
from tests.profiles import examples
from tests.seams import KEPT_REQUEST, KEPT_SOURCE, find_leftovers, replace_step, set_constants, step
from tests.strategies import chunks_for, shapes
from tests.unfinished import FIELD, Part, check_finished, chunks_of, fail, make_field, options_of, recorded, stamps

pytestmark = pytest.mark.once

THREADS: dict[str, Any] = {"scheduler": "threads", "method": "assembled"}
FILLS = [0.0, np.nan, 7.0]


@st.composite
def requests(draw: st.DrawFn) -> dict:
    shape = draw(shapes(4, most=1500))
    return {
        "shape": shape,
        "source": draw(chunks_for(shape)),
        "chunks": draw(chunks_for(shape)),
        "fill": draw(st.sampled_from(FILLS)),
        "filled": draw(st.lists(st.integers(0, 10**6), max_size=4)),
        "missing": draw(st.integers(0, 3)),
        "ranks": draw(st.integers(1, 5)),
        "more": draw(st.sampled_from([0, 2**20, 2**25])),
        "codec": draw(st.sampled_from([None, zarr.codecs.ZstdCodec()])),
    }


def make_source(folder: Path, request: dict) -> np.ndarray:
    """An array of which some elements, and some chunks, are the fill value."""
    shape = request["shape"]
    data = (np.arange(math.prod(shape), dtype="f4") % 5 + 1).reshape(shape)
    for start in request["filled"]:
        data.reshape(-1)[start % max(data.size, 1) :][:300] = request["fill"]
    z = zarr.create_array(
        folder / "source", shape=shape, chunks=request["source"], dtype="f4", fill_value=request["fill"],
        compressors=None,
    )  # fmt: skip
    z[...] = data
    for path in sorted(path for path in (folder / "source").rglob("*") if path.name != "zarr.json" and path.is_file())[
        : request["missing"]
    ]:
        path.unlink()
    return z[...]


@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests())
def test_any_array_from_the_least_budget_upward(request: dict) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = make_source(folder, request)
        options = {
            "chunks": request["chunks"], "ranks": request["ranks"], "compressors": request["codec"], "scratch": folder,
            **THREADS,
        }  # fmt: skip
        least = 1
        if data.size:
            with pytest.raises(BudgetError) as caught:
                flat(ooc.rechunk, folder / "source", folder / "target", memory=1, **options)
            least = caught.value.least
        job = flat(ooc.rechunk, folder / "source", folder / "target", memory=least + request["more"], **options)
        job.run()
        np.testing.assert_array_equal(zarr.open_array(folder / "target", mode="r")[...], data)
        check_stored(folder / "target", data, request)
        here = [path.name for path in folder.rglob("*") if path.name not in (KEPT_REQUEST, KEPT_SOURCE)]
        assert [name for name in here if name.endswith(".partial") or "oocarrays" in name] == []


TWO_CORES = {"oocarrays.cost.cores": 2}


def test_a_pass_for_which_there_is_no_room_on_all_cores_is_done_by_fewer(tmp_path: Path) -> None:
    data = np.random.default_rng(0).integers(0, 2**30, (2048, 1024), dtype="i4")
    zarr.create_array(tmp_path / "source", data=data, chunks=(64, 1024), compressors=zarr.codecs.ZstdCodec())

    def plan(memory: int) -> Any:
        return ooc.rechunk(tmp_path / "source", tmp_path / "target", chunks=(2048, 512), memory=memory, **THREADS)

    with dask.config.set(TWO_CORES), pytest.raises(BudgetError) as caught:
        plan(1)
    with dask.config.set(TWO_CORES):
        jobs = (plan(caught.value.least + more * 2**18) for more in range(60))
        job = next(job for job in jobs if len({step.ranks for step in job.plan.passes}) > 1)
        assert [step.ranks for step in job.plan.passes] == sorted((s.ranks for s in job.plan.passes), reverse=True)
        assert job.plan.ranks == job.plan.passes[0].ranks > 1
        assert max(step.peak_bytes for step in job.plan.passes) <= job.plan.budget
        np.testing.assert_array_equal(job.run()[...], data)


def check_stored(target: Path, data: np.ndarray, request: dict) -> None:
    """What holds nothing but the fill value is not stored."""
    z = zarr.open_array(target, mode="r")
    stored = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    stored -= {"zarr.json", KEPT_REQUEST, KEPT_SOURCE}
    expected = set()
    for index in np.ndindex(*(math.ceil(n / c) for n, c in zip(data.shape, z.chunks, strict=True))):
        chunk = data[tuple(slice(i * c, (i + 1) * c) for i, c in zip(index, z.chunks, strict=True))]
        if not np.array_equal(chunk, np.full_like(chunk, request["fill"]), equal_nan=True):
            expected.add(z.metadata.encode_chunk_key(index))
    assert stored == expected


def test_where_it_cannot_be_done_it_says_so(tmp_path: Path) -> None:
    make_field(tmp_path)
    options = {"chunks": (1024, 64), "memory": "64MiB", **THREADS, "scratch": "memory://somewhere"}
    with pytest.raises(UnsupportedError, match="pass a local folder as scratch="):
        flat(ooc.rechunk, tmp_path / "source.zarr", "memory://somewhere/else", **options)


@contextmanager
def few_files(more: int) -> Iterator[None]:
    """Let this process open no more than some files beside those that it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_few_files_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 256 chunks, to each of which every batch writes."""
    source, target = make_field(tmp_path), tmp_path / "target.zarr"
    set_constants(monkeypatch, unfinished_files=8)
    with few_files(40):
        ooc.rechunk(source, target, chunks=(1024, 4), memory="64MiB", resources=ooc.Resources(ranks=3), **THREADS).run()
    check_finished(target)


def test_pieces_on_sectors_go_past_the_cache(tmp_path: Path) -> None:
    with dask.config.set({"oocarrays.past-cache-above": 1}):
        source, target = make_field(tmp_path), tmp_path / "target.zarr"
        for chunks in [(1024, 64), (512, 512), (1000, 100)]:  # the last ones do not lie on sectors
            ooc.rechunk(source, target, chunks=chunks, memory="64MiB", **THREADS, overwrite=True).run()
            check_finished(target)


# ---------------------------------------------------------------------- killed

STOPS = product(("chunk", "partial", "named", "unrecorded", "entry"), (1, 7, 30))


@pytest.mark.long
@pytest.mark.parametrize("fill", FILLS)
def test_killed_anywhere_it_goes_on_with_what_was_placed(tmp_path: Path, runs: Server, fill: float) -> None:
    """Half of the chunks, and some pieces of others, hold nothing but the fill value."""
    data = FIELD.copy()
    data[:, 512:] = fill
    data[100:300, 64:256] = fill
    source = make_field(tmp_path, fill_value=fill)
    zarr.open_array(source, mode="r+")[...] = data
    for number, (at, after) in enumerate(STOPS if fill != 7 else [("entry", 3)]):
        target = tmp_path / f"{number}.zarr"
        child = runs.start("rechunk", source, target, at=at, after=after, **options_of("assembled"))
        if child.wait() != 0:
            done = recorded(target)
            job = ooc.resume(target, verify=after == 7)
            assert job._run.done == done, "a warning would be an error"
            job.run()
        check_finished(target, data)
        assert len(list((target / "c" / "0").iterdir())) == 8


def test_unfinished_chunks_are_no_chunks(tmp_path: Path, runs: Server) -> None:
    source, target = make_field(tmp_path), tmp_path / "target.zarr"
    runs.run("rechunk", source, target, at="entry", after=3, **options_of("assembled"))
    names = [path.name for path in (target / "c").rglob("*") if path.is_file()]
    assert names
    assert all(name.endswith(".partial") for name in names)
    assert [each.kind for each in find_leftovers(tmp_path)] == ["unfinished"]
    flat(ooc.rechunk, source, target, overwrite=True, **options_of("assembled")).run()
    check_finished(target)


def test_chunks_that_another_plan_has_written_stay(
    tmp_path: Path, runs: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns of chunks that were recorded; what was not, another plan has left, too."""
    source, target = make_field(tmp_path), tmp_path / "target.zarr"
    killed = runs.run("rechunk", source, target, at="entry", after=6, **options_of("independent"))
    kept = {
        target.joinpath("c", *map(str, index)) for part in recorded(target) for index in chunks_of(killed.plan, part)
    }
    (target / "c/0/15").write_bytes(b"stale" * 1000)
    before = stamps(target)
    replace_step(monkeypatch, "plan again", partial(step("plan again"), method="assembled"))
    job = ooc.resume(target, memory="64MiB", scheduler="threads")
    assert job.plan.strategy == "assembled"
    job.run()
    check_finished(target)
    assert kept
    assert all(stamps(target)[str(path)] == before[str(path)] for path in kept)


def test_another_plan_goes_on_with_what_was_assembled(tmp_path: Path, runs: Server) -> None:
    """A target of two rows of chunks: the upper ones are whole, the lower ones are not."""
    source, target = make_field(tmp_path), tmp_path / "target.zarr"
    options = options_of("assembled") | {"chunks": (512, 64)}
    runs.run("rechunk", source, target, at="entry", after=12, **options)
    whole = stamps(target)
    job = ooc.resume(target, memory="300MiB", scheduler="threads")
    job.run()
    check_finished(target)
    assert whole
    assert {path for path, stamp in whole.items() if stamps(target)[path] == stamp} or job.plan.strategy == "assembled"


@pytest.mark.long
@examples(15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stops=st.lists(st.integers(1, 60), min_size=1, max_size=3), fill=st.sampled_from(FILLS))
def test_a_job_that_fails_again_and_again(tmp_path_factory: pytest.TempPathFactory, stops: list, fill: float) -> None:
    folder = tmp_path_factory.mktemp("fails")
    source, target = make_field(folder, fill_value=fill), folder / "target.zarr"
    job: Any = flat(ooc.rechunk, source, target, scheduler="threads", **options_of("assembled"))
    for after in stops:
        fail(job, after)
        job = ooc.resume(target, scheduler="threads")
    job.run()
    check_finished(target)


def test_what_was_placed_is_read_to_be_verified(tmp_path: Path, runs: Server) -> None:
    source, target = make_field(tmp_path), tmp_path / "target.zarr"
    runs.run("rechunk", source, target, at="entry", after=6, **options_of("assembled"))
    done: set[Part] = recorded(target)
    assert ooc.resume(target, verify=True)._run.done == done
    path = sorted((target / "c").rglob("*.partial"))[0]
    data = bytearray(path.read_bytes())
    first = next(number for number, byte in enumerate(data) if byte)
    data[first] ^= 1
    path.write_bytes(data)
    with pytest.warns(RuntimeWarning, match="1 of 16 chunks that had been written are not as they were"):
        job = ooc.resume(target, verify=True)
    assert not job._run.done
    job.run()
    check_finished(target)
