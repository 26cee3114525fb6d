"""Advice as a person gets it: from a trace to chunks that are there, and to the way in which sections are read."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import dask.array as da
import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.errors import BudgetError, InputError, NotFoundError
from tests import unfinished
from tests.flat import flat

VALUES = np.arange(512 * 512, dtype="f8").reshape(512, 512)


def made(place: Path, chunks: tuple[int, int] = (8, 512), **how: object) -> zarr.Array:
    """An array of rows."""
    zarr.create_array(str(place), data=VALUES, chunks=chunks, **how)  # type: ignore[arg-type]
    return zarr.open_array(str(place), mode="r")


def columns(dataset: zarr.Array, weight: float = 50, ranks: int = 8, **how: object) -> ooc.advise.Trace:
    """A trace of a block that reads columns by Zarr."""
    return ooc.advise.Trace().reads(
        dataset, "(*, block)", ranks=ranks, weight=weight, block="columns", **{"by": "zarr", **how}
    )


def test_an_array_of_rows_of_which_columns_are_read_is_rewritten_in_columns(tmp_path: Path) -> None:
    advice = columns(made(tmp_path / "x.zarr")).advise(memory="1GiB")
    (found,) = advice.arrays
    assert 64 % found.chunks[1] == 0 or found.chunks[1] % 64 == 0
    assert found.saving > 0.5
    job = advice.apply(tmp_path / "y.zarr", scheduler="threads")
    assert job.plan.target.grid.chunks == found.chunks
    assert np.array_equal(job.run()[:], VALUES)
    assert advice.method("columns", str(tmp_path / "x.zarr")) == "independent"


def test_a_rewrite_that_stopped_is_gone_on_with(tmp_path: Path) -> None:
    advice = columns(made(tmp_path / "x.zarr")).advise(memory="1GiB")
    unfinished.fail(advice.apply(tmp_path / "y.zarr", scheduler="threads"), 1)
    unfinished.check_unfinished(tmp_path / "y.zarr")
    ooc.resume(tmp_path / "y.zarr").run()
    unfinished.check_finished(tmp_path / "y.zarr", VALUES)


def test_shards_are_kept(tmp_path: Path) -> None:
    dataset = made(tmp_path / "x.zarr", chunks=(8, 512), shards=(128, 512))
    advice = columns(dataset).advise(memory="1GiB")
    advice.apply(tmp_path / "y.zarr", scheduler="threads").run()
    target = zarr.open_array(tmp_path / "y.zarr")
    assert target.chunks == advice.arrays[0].chunks
    assert target.shards is not None
    assert all(s >= least for s, least in zip(target.shards, (128, 512), strict=True))


def test_several_arrays_of_a_group_are_rewritten_in_one_job(tmp_path: Path) -> None:
    zarr.create_group(str(tmp_path / "g.zarr"))
    trace = columns(made(tmp_path / "g.zarr" / "a")) + columns(made(tmp_path / "g.zarr" / "b"))
    zarr.open_group(str(tmp_path / "g.zarr")).create_array("left", data=np.arange(5))
    advice = trace.advise(memory="1GiB")
    group = advice.apply(tmp_path / "h.zarr", scheduler="threads").run()
    assert {name: group[name].chunks for name in ("a", "b")} == {
        name: each.chunks for name, each in zip("ab", advice.arrays, strict=True)
    }
    assert group["left"][:].tolist() == list(range(5))


def test_sections_are_read_as_is_advised_where_nothing_else_is_asked_for(tmp_path: Path) -> None:
    place = tmp_path / "x.zarr"
    trace = columns(made(place), weight=1, by="oocarrays").reads(
        str(place), "(block, *)", ranks=8, block="rows", weight=100
    )
    advice = trace.advise(memory="1GiB", keep=str(place))
    assert advice.arrays[0].kept
    methods = {block: advice.method(block, str(place)) for block in ("columns", "rows")}
    assert methods == {"columns": "two-phase", "rows": "independent"}

    def method(layout: str, **how: str) -> str:
        found: str = flat(ooc.ranks.read_sections, place, layout, ranks=8, scheduler="threads", **how).plan.method
        return found

    with advice:
        assert method("(*, block)") == "two-phase"
        assert method("(block, *)") == "independent"
        assert method("(*, block)", method="independent") == "independent"
        read = ooc.ranks.read_sections(place, "(*, block)", ranks=8, scheduler="threads")
        assert np.array_equal(read.compute(), VALUES)
    alone = ooc.ranks.read_sections(place, "(*, block)", ranks=8, scheduler="threads").plan
    assert len(alone.alternatives) > 1, "outside the statement the cheapest is looked for"


def test_the_advised_method_is_that_for_the_chunks_that_an_array_has(tmp_path: Path) -> None:
    place = tmp_path / "x.zarr"
    trace = columns(made(place), by="oocarrays", weight=1000, ranks=8)
    advice = trace.advise(memory="1GiB")
    (found,) = advice.arrays
    if not found.kept:
        advice.apply(tmp_path / "y.zarr", scheduler="threads").run()
        with advice:
            plan = ooc.ranks.read_sections(tmp_path / "y.zarr", "(*, block)", ranks=8, scheduler="threads").plan
        assert plan.method == found.blocks[0].method
    with advice:
        plan = ooc.ranks.read_sections(place, "(*, block)", ranks=8, scheduler="threads").plan
    assert plan.method == found.blocks[0].today_method


def test_advice_is_printed_shown_and_drawn(tmp_path: Path) -> None:
    trace = columns(made(tmp_path / "x.zarr")).reads(
        made(tmp_path / "z.zarr", (512, 512)), "(block, *)", ranks=2, block="rows", by="zarr"
    )
    trace = trace.writes("out.zarr", "(block, *)", ranks=4, shape=(64, 64), dtype="f4", block="rows")
    advice = trace.advise(memory="1GiB")
    text = str(advice)
    assert "keep it as it is" in text
    assert "rewriting takes" in text
    assert "8 of 512 × 64" in text
    ElementTree.fromstring(advice._repr_html_())
    drawn = advice.draw()
    words = " ".join(each.get_text() for each in drawn.axes[0].texts)
    assert "columns" in words and "8 × 512" in words  # noqa: PT018


def test_arrays_that_are_made_are_advised_for_those_who_read_them(tmp_path: Path) -> None:
    trace = ooc.advise.Trace().writes(
        "made.zarr", "(block, *)", ranks=4, shape=(512, 512), dtype="f8", chunks=(8, 512), block="make"
    )
    trace = trace.reads("made.zarr", "(*, block)", ranks=4, block="use", weight=30)
    (found,) = trace.advise(memory="1GiB", weights={("make", "use"): 1}).arrays
    assert found.producer == "make"
    assert found.saving > 0.1
    assert found.made[0] == 128, "who writes has chunks of its own"
    with pytest.raises(InputError, match="no array should be rewritten"):
        trace.advise(memory="1GiB").apply(tmp_path / "y.zarr")


# ---------------------------------------------------------------------- what cannot be


def test_a_trace_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="this trace reads and writes no stored array"):
        ooc.advise.Trace().advise()


def test_names_that_there_are_not_are_refused(tmp_path: Path) -> None:
    trace = columns(made(tmp_path / "x.zarr"))
    with pytest.raises(NotFoundError, match="'other' is not an array of this trace"):
        trace.advise(keep="other")
    with pytest.raises(NotFoundError, match="5 is not an array of this trace"):
        trace.advise(keep=[5])
    with pytest.raises(InputError, match="keep=5 is not a sequence"):
        trace.advise(keep=5)
    advice = trace.advise(memory="1GiB")
    with pytest.raises(NotFoundError, match=r"no block 'rows' reads .*; those that do: columns"):
        advice.method("rows", str(tmp_path / "x.zarr"))


def test_memory_in_which_no_chunks_fit_is_refused_with_the_least(tmp_path: Path) -> None:
    trace = columns(made(tmp_path / "x.zarr"))
    with pytest.raises(BudgetError, match="in any chunks needs at least") as error:
        trace.advise(memory=1000, scheduler="threads")
    assert trace.advise(memory=error.value.least, scheduler="threads").arrays


def test_ranks_for_which_no_chunks_fit_are_refused_with_the_least(tmp_path: Path) -> None:
    z = zarr.create_array(str(tmp_path / "x.zarr"), shape=(2048, 2048), chunks=(64, 2048), dtype="f8")
    trace = ooc.advise.Trace().reads(z, "(*, block)", by="oocarrays", ranks=8)
    with pytest.raises(BudgetError, match=r"array '.*x.zarr' in any chunks needs at least") as error:
        trace.advise(memory="16MiB", scheduler="threads")
    assert error.value.least >= z.nbytes, "threads hold the parts of all ranks"
    assert trace.advise(memory=error.value.least, scheduler="threads").arrays
    many = ooc.advise.trace(x=da.from_zarr(z).sum())
    with pytest.raises(BudgetError, match="in any chunks needs at least"):
        many.advise(memory="1MiB", ranks=10**6, scheduler="threads")


def test_todays_chunks_that_do_not_fit_are_said_to(tmp_path: Path) -> None:
    z = zarr.create_array(str(tmp_path / "x.zarr"), shape=(2048, 2048), chunks=(2048, 2048), dtype="f8")
    trace = ooc.advise.Trace().reads(z, "(*, block)", ranks=64, by="zarr")
    least = trace.advise(memory="1GiB", keep=str(tmp_path / "x.zarr"), scheduler="threads")
    assert "does not fit" not in str(least)
    said = str(trace.advise(memory="48MiB", scheduler="threads"))
    assert "does not fit →" in said
    assert "inf" not in said


def test_arrays_are_named_by_paths_however_they_were_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "x.zarr")
    monkeypatch.chdir(tmp_path)
    opened = [da.from_zarr("x.zarr"), da.from_zarr(str(tmp_path / "x.zarr")), da.from_zarr(zarr.open_array("x.zarr"))]
    traces = [ooc.advise.trace(x=x.sum()) for x in opened]
    (dataset,) = (traces[0] + traces[1] + traces[2]).datasets
    assert dataset.name == str((tmp_path / "x.zarr").resolve())
    assert dataset.stored.local
    advice = traces[0].advise(memory="1GiB", keep="x.zarr")
    assert advice.arrays[0].kept
    assert advice.method("x", "x.zarr") == "independent"


@pytest.mark.parametrize("ranks", [0, -1, 1.5, "many"])
def test_ranks_are_whole_numbers(tmp_path: Path, ranks: object) -> None:
    with pytest.raises(InputError, match=r"ranks=.* must be a whole number, at least 1"):
        columns(made(tmp_path / "x.zarr")).advise(ranks=ranks)


def test_producers_in_a_cycle_are_refused() -> None:
    about = {"shape": (8, 8), "dtype": "f4"}
    trace = (
        ooc.advise.Trace()
        .writes("x", "(block, *)", ranks=2, block="a", **about)
        .reads("x", "(block, *)", ranks=2, block="b")
    )
    trace = trace.writes("y", "(block, *)", ranks=2, block="b", **about).reads("y", "(block, *)", ranks=2, block="a")
    with pytest.raises(InputError, match="in a cycle"):
        trace.advise()


def test_an_array_that_several_blocks_make_of_unlike_types_is_refused() -> None:
    trace = ooc.advise.Trace().writes("x", "(block, *)", ranks=2, block="a", shape=(8, 8), dtype="f4")
    assert trace.writes("x", "(block, *)", ranks=2, block="b", shape=(8, 8), dtype="f4").accesses[1].block == "b"
    with pytest.raises(InputError, match=r"x is <f4 of shape \(8, 8\) in one trace and <f8"):
        trace.writes("x", "(block, *)", ranks=2, block="b", shape=(8, 8), dtype="f8")


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_weights_that_cannot_be_are_refused(tmp_path: Path, weight: float) -> None:
    about = {"shape": (8, 8), "dtype": "f4"}
    trace = (
        ooc.advise.Trace()
        .writes("x", "(block, *)", ranks=2, block="a", **about)
        .reads("x", "(block, *)", ranks=2, block="b")
    )
    with pytest.raises(InputError, match="must be a finite number, at least 0"):
        trace.advise(weights={("a", "b"): weight})


@pytest.mark.parametrize("change", [{"data": VALUES[:100]}, {"data": VALUES.astype("f4")}, {"chunks": (16, 512)}])
def test_an_array_that_has_changed_is_advised_on_and_rewritten_when_it_is_traced_again(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    trace = columns(made(tmp_path / "x.zarr"))
    advice = trace.advise(memory="1GiB")
    zarr.create_array(tmp_path / "x.zarr", **{"data": VALUES, "chunks": (8, 512), "overwrite": True, **change})
    for late in (lambda: trace.advise(memory="1GiB"), lambda: advice.apply(tmp_path / "y.zarr")):
        with pytest.raises(InputError, match=r"x.zarr is <f. of shape .* and was <f8 .* when it was traced: record"):
            late()


def test_an_array_that_is_gone_is_said_to_be_and_is_not_rewritten(tmp_path: Path) -> None:
    trace = columns(made(tmp_path / "x.zarr"))
    assert "not there" not in str(trace.advise(memory="1GiB"))
    (tmp_path / "x.zarr").rename(tmp_path / "gone")
    trace.save(tmp_path / "trace.json")
    advice = ooc.advise.Trace.load(tmp_path / "trace.json").advise(memory="1GiB")
    assert sum("is not there any more, or not on this machine" in line for line in advice.arrays[0].against) == 1
    assert "x.zarr: it is not there any more" in str(advice)
    with pytest.raises(NotFoundError, match=r"no such store: .*x\.zarr"):
        advice.apply(tmp_path / "y.zarr")


def test_what_is_yet_to_be_made_is_not_missed() -> None:
    about = {"shape": (64, 64), "dtype": "f4"}
    trace = ooc.advise.Trace().writes("/nowhere/made.zarr", "(block, *)", ranks=2, block="make", **about)
    advice = trace.reads("/nowhere/made.zarr", "(*, block)", ranks=2, block="use").advise(memory="1GiB")
    assert "not there" not in str(advice)


@pytest.mark.parametrize("path", [None, 3, b"trace.json", "a\0b"])
def test_what_is_no_path_is_refused_in_one_line(path: Any) -> None:
    for call in (ooc.advise.Trace.load, ooc.advise.Trace.of((), ()).save, ooc.ranks.load_plan):
        with pytest.raises(InputError, match="is not the path of a file"):
            call(path)


def test_a_weight_of_nothing_is_no_warning(tmp_path: Path) -> None:
    z = zarr.create_array(tmp_path / "x.zarr", shape=(64, 512), chunks=(8, 512), dtype="f4")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        advice = ooc.advise.trace(da.from_zarr(z).sum(), weights=0).advise(memory="1GiB")
    assert (advice.arrays[0].kept, advice.arrays[0].today.seconds) == (True, 0)
