"""Traces of collections, runs, stores and jobs, and what cannot be traced."""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import InputError, NotFoundError, UnsupportedError
from tests.seams import constant, replace_step, set_constants


@pytest.fixture
def stored(tmp_path: Path) -> zarr.Array:
    return zarr.create_array(tmp_path / "a.zarr", data=np.arange(960.0).reshape(24, 40), chunks=(6, 10))


def told(access: Any) -> tuple[Any, ...]:
    return Path(access.dataset).name, access.writes, access.by, access.tasks, access.largest


def test_each_collection_is_a_block_with_its_weight(stored: zarr.Array) -> None:
    x = da.from_zarr(stored)
    found = ooc.advise.trace(x.sum(), x[:6], maps=x + 1, weights={"maps": 7})
    assert [(access.block, access.weight, access.tasks) for access in found.accesses] == [
        ("sum-aggregate", 1, 16),
        ("getitem", 1, 4),
        ("maps", 7, 16),
    ]
    assert [access.weight for access in ooc.advise.trace(x, x, weights=[2, 3]).accesses] == [2, 3]
    assert ooc.advise.trace([x[:6], x[:6] * 2]).accesses[0].tasks == 4  # computed together, it is read once
    assert found.datasets[0].chunks == (6, 10)


def test_a_collection_keeps_its_block_beside_a_keyword_of_its_name(stored: zarr.Array) -> None:
    x = da.from_zarr(stored)
    found = ooc.advise.trace(x + 1, x[:6] + 2, add=x[:12] + 1)
    assert [(access.block, access.tasks) for access in found.accesses] == [("add 2", 16), ("add 3", 4), ("add", 8)]


def test_what_dask_and_xarray_store_is_written(stored: zarr.Array, tmp_path: Path) -> None:
    target = zarr.create_array(tmp_path / "b.zarr", shape=(30, 40), chunks=(6, 40), dtype="f8")
    storing = da.store(da.from_zarr(stored), target, regions=np.s_[6:30, :], compute=False)
    found = ooc.advise.trace(storing)
    assert sorted(map(told, found.accesses)) == [
        ("a.zarr", False, "zarr", 16, (6, 10)),
        ("b.zarr", True, "zarr", 16, (6, 10)),
    ]
    with ooc.advise.trace() as seen:
        storing.compute(scheduler="synchronous")
    for access in found.accesses:
        (same,) = [each for each in seen.accesses if each.dataset == access.dataset]
        assert (same.patterns, same.writes) == (access.patterns, access.writes)
    data = xr.Dataset({"t": (("y", "x"), np.ones((20, 30)))}).chunk(y=5)
    assert told(ooc.advise.trace(data.to_zarr(tmp_path / "x.zarr", compute=False, zarr_format=2)).accesses[0])[1:4] == (
        True,
        "zarr",
        4,
    )


def test_jobs_and_arrays_over_ranks_are_traced(stored: zarr.Array, tmp_path: Path) -> None:
    array = ooc.open_array(tmp_path / "a.zarr")
    job = ooc.rechunk(array, tmp_path / "c.zarr", chunks=(24, 5), memory="64MiB", scheduler="threads")
    expected = [("a.zarr", False, "oocarrays", 16, (6, 10)), ("c.zarr", True, "oocarrays", 8, (24, 5))]
    assert list(map(told, ooc.advise.trace(job).accesses)) == expected
    with ooc.advise.trace() as seen:
        job.run()
    assert list(map(told, seen.accesses)) == expected
    columns = ooc.advise.trace(ooc.ranks.read_sections(array, "(*, block)", ranks=4, scheduler="threads")).accesses
    assert [(told(each), each.ranks) for each in columns] == [(("a.zarr", False, "oocarrays", 4, (24, 10)), 4)]
    lazy = ooc.rechunk(da.from_zarr(stored).T, tmp_path / "d.zarr", scheduler="threads")
    assert told(ooc.advise.trace(lazy).accesses[0]) == ("a.zarr", False, "zarr", 16, (6, 10))


@pytest.mark.parametrize("method", ["independent", "two-phase"])
def test_parts_of_ranks_are_traced_in_whatever_takes_them(tmp_path: Path, stored: zarr.Array, method: str) -> None:
    parts = ooc.ranks.read_sections(tmp_path / "a.zarr", "(*, block)", ranks=4, method=method, scheduler="threads")
    every, anew = 4, 4 if method == "two-phase" else 1  # a part of a collective read takes those of all ranks with it
    programs = {
        "all": (parts, every),
        "one of them": (parts.local(2), anew),
        "arithmetic": (parts.local(2).sum() + 1, anew),
        "a call": (dask.delayed(np.sum)(parts.local(2)), anew),
        "calls, of which Dask makes each a read of its own": (
            [dask.delayed(np.sum)(parts.local(rank)) for rank in range(4)],
            4 * anew,
        ),
    }
    for name, (program, sections) in programs.items():
        (access,) = ooc.advise.trace(**{name: program}).accesses
        assert (told(access), access.ranks) == (("a.zarr", False, "oocarrays", sections, (24, 10)), 4), name
        with ooc.advise.trace(block=name) as seen:
            dask.compute(program, scheduler="synchronous")
        assert seen.accesses[0].kind == access.kind, f"{name}: a run tells what ranks want, not who reads it for them"
    here = dask.compute(programs["a call"][0], scheduler="synchronous")
    assert here == (np.asarray(stored[:, 20:30]).sum(),)
    with pytest.raises(InputError, match="what has been computed already is seen in a run"):
        ooc.advise.trace(parts.persist(scheduler="threads"))


def test_calls_that_share_what_they_read_are_traced_together(stored: zarr.Array) -> None:
    shared = dask.delayed(np.asarray)(da.from_zarr(stored))
    calls = [dask.delayed(np.sum)(shared), dask.delayed(np.max)(shared)]
    assert ooc.advise.trace(both=calls).accesses[0].tasks == 16
    with ooc.advise.trace() as seen:
        dask.compute(*calls, scheduler="synchronous")
    assert seen.accesses[0].tasks == 16


def test_what_xarray_reads_without_dask_is_traced(tmp_path: Path) -> None:
    xr.Dataset({"t": (("y", "x"), np.ones((20, 30)))}).to_zarr(tmp_path / "x.zarr", zarr_format=2)
    data = xr.open_zarr(tmp_path / "x.zarr", chunks=None)
    (access,) = ooc.advise.trace(data.t.isel(y=slice(3, 9), x=[1, 2, 7])).accesses
    assert sorted(map(str, access.sections())) == sorted(
        map(str, [ooc.Section((3, 1), (9, 3)), ooc.Section((3, 7), (9, 8))])
    )


def test_a_run_tells_of_every_way_of_reading_and_writing(stored: zarr.Array, tmp_path: Path) -> None:
    array = ooc.open_array(tmp_path / "a.zarr", mode="r+")
    with ooc.advise.trace(block="all", weight=2) as seen:
        stored[3], stored.oindex[[1, 5], 2:4], stored.vindex[[0, 1], [2, 3]], stored.blocks[0, 1]
        array[2:4], array.read(np.s_[:, 7])
        array[0] = 1
        reader = threading.Thread(target=lambda: stored[8:9])
        reader.start()
        reader.join()
    stored[5], array[5]  # nobody listens any more
    by = {(each.by, each.writes): each for each in seen.accesses}
    assert {key: each.tasks for key, each in by.items()} == {
        ("zarr", False): 6,
        ("oocarrays", False): 2,
        ("oocarrays", True): 1,
    }
    zarrs = by["zarr", False]
    assert zarrs.threads == 2
    assert zarrs.seconds is not None
    assert zarrs.seconds > 0
    assert set(zarrs.sections()) == {
        ooc.Section((3, 0), (4, 40)),
        ooc.Section.of([range(1, 6, 4), range(2, 4)]),
        ooc.Section((0, 2), (1, 3)),
        ooc.Section((1, 3), (2, 4)),
        ooc.Section((0, 10), (6, 20)),
        ooc.Section((8, 0), (9, 40)),
    }
    assert (seen.blocks, zarrs.weight) == (("all",), 2)


def test_recordings_lie_one_inside_the_other_and_are_added(stored: zarr.Array) -> None:
    methods = [getattr(zarr.Array, f"{verb}_basic_selection") for verb in ("get", "set")]
    with ooc.advise.trace(block="outer") as outer, ooc.advise.trace(block="inner") as inner:
        stored[0]
    with pytest.raises(KeyError), ooc.advise.trace():
        raise KeyError("theirs")
    assert methods == [getattr(zarr.Array, f"{verb}_basic_selection") for verb in ("get", "set")]
    assert [each.block for each in (outer + inner).accesses] == ["outer", "inner"]
    assert (ooc.advise.trace(first=da.from_zarr(stored)) + outer).blocks == ("first", "outer")
    with pytest.raises(InputError, match="block=Array is not a name"):
        ooc.advise.trace(block=da.from_zarr(stored))


def test_a_store_tells_of_chunks_and_shards(tmp_path: Path) -> None:
    store = ooc.advise.traced(str(tmp_path / "s.zarr"))
    root = zarr.create_group(store)
    plain = root.create_array("plain", shape=(8, 6), chunks=(2, 6), dtype="f4")
    plain[:4] = 1
    store_again = ooc.advise.traced(tmp_path / "s.zarr")
    read = zarr.open_group(store_again, mode="r")["plain"][1:3]
    assert read.sum() == 12
    assert [(Path(a.dataset).name, a.writes, a.tasks) for a in store.trace().accesses] == [("plain", True, 2)]
    found = store_again.trace("program", weight=3)
    assert [(a.block, a.weight, a.tasks, a.largest) for a in found.accesses] == [("program", 3, 2, (2, 6))]
    sharded = root.create_array("sharded", shape=(8, 6), chunks=(2, 3), shards=(4, 6), dtype="f4")
    sharded[...] = 1
    assert {a.largest for a in store.trace().accesses if a.dataset.endswith("sharded") and a.writes} == {(4, 6)}


def test_a_trace_in_words_takes_arrays_that_are_there(stored: zarr.Array, tmp_path: Path) -> None:
    found = ooc.advise.Trace().reads(tmp_path / "a.zarr", "(block, *)", ranks=4).reads(stored, "(*, block)", ranks=2)
    assert found.datasets == ooc.advise.trace(da.from_zarr(stored)).datasets
    with pytest.raises(NotFoundError):
        ooc.advise.Trace().reads(tmp_path / "none.zarr", "(block, *)", ranks=4)


@pytest.mark.parametrize("most", [constant("traced_tasks"), 0])
def test_a_graph_with_nothing_stored_is_refused(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    set_constants(monkeypatch, traced_tasks=most)
    with pytest.raises(InputError, match="'ones_like' reads no stored array: there is no Zarr array in its graph"):
        ooc.advise.trace(da.ones((4, 4), chunks=2))
    with pytest.raises(InputError, match="'t' reads no stored array"):
        ooc.advise.trace(xr.DataArray(np.ones(3), name="t"))


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"weights": -1}, "weights is -1: it must be a finite number, at least 0"),
        ({"weights": [math.nan]}, "the weight of 'x' is nan"),
        ({"weights": {"x": math.inf}}, "the weight of 'x' is inf"),
        ({"weights": {"y": 1}}, "names 'y', which is not a block: x"),
        ({"weights": [1, 2]}, "are not a number, one for each of 1 block, or by name"),
        ({"weights": "often"}, "are not a number"),
    ],
)
def test_weights_that_fit_no_block_are_refused(stored: zarr.Array, given: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line):
        ooc.advise.trace(x=da.from_zarr(stored), **given)


def test_what_is_no_collection_is_refused(stored: zarr.Array) -> None:
    with pytest.raises(
        UnsupportedError, match=r"int 'x' is neither a Dask collection, an object of xarray, nor an oocarrays job"
    ):
        ooc.advise.trace(x=3)
    with pytest.raises(InputError, match="the weight of 'run' is -1"):
        ooc.advise.trace(weight=-1)
    with pytest.raises(InputError, match=r"asarray.* is given the stored array .*/a\.zarr itself: .* inside 'with ooc"):
        ooc.advise.trace(dask.delayed(np.asarray)(stored))
    with pytest.warns(RuntimeWarning, match="is given the stored array .* itself"):
        ooc.advise.trace([da.from_zarr(stored).sum(), dask.delayed(np.asarray)(stored)])


def test_an_array_that_has_changed_since_is_not_added(stored: zarr.Array, tmp_path: Path) -> None:
    before = ooc.advise.trace(da.from_zarr(stored))
    zarr.create_array(tmp_path / "a.zarr", shape=(5, 5), chunks=(5, 5), dtype="i2", overwrite=True)
    after = ooc.advise.trace(da.from_zarr(zarr.open_array(tmp_path / "a.zarr")))
    with pytest.raises(InputError, match=r"is <f8 of shape \(24, 40\) in one trace and <i2 of shape \(5, 5\) in the"):
        before + after


def test_the_command_line_advises_from_a_file(
    stored: zarr.Array, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, file = da.from_zarr(stored), tmp_path / "trace.json"
    ooc.advise.trace(x.sum(), weights=4).save(file)
    assert main(["advise", str(file), str(file), "--memory", "1GiB"]) == 0
    assert "a.zarr" in capsys.readouterr().out
    assert main(["advise", str(file), "--memory", "1GiB", "--ranks", "2", "--json"]) == 0
    (advised,) = json.loads(capsys.readouterr().out)["arrays"]
    assert advised["chunks"] == [6, 10]
    assert advised["blocks"][0]["weight"] == 4
    assert main(["advise", str(file), "--memory", "1GiB", "--no-copies"]) == 0
    assert "and a copy" not in capsys.readouterr().out
    assert main(["advise", str(tmp_path / "none.json")]) == 2
    assert "none.json cannot be read" in capsys.readouterr().err


def test_the_command_line_draws_advice_with_the_weights_of_edges(
    stored: zarr.Array, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, picture = ooc.advise.Trace(), tmp_path / "advice.svg"
    trace = trace.writes(stored, "(block, *)", ranks=2, block="load").reads(stored, "(*, block)", ranks=2, block="plot")
    trace.save(tmp_path / "t.json")
    asked = ["advise", str(tmp_path / "t.json"), "--memory", "1GiB", "--weight", "load:plot=7"]
    assert main([*asked, "--draw", str(picture)]) == 0
    assert f"drew {picture}" in capsys.readouterr().out
    assert "<!-- 7 × -->" in picture.read_text() or "7 ×" in picture.read_text()
    assert main([*asked, "--json"]) == 0
    (advised,) = json.loads(capsys.readouterr().out)["arrays"]
    assert {block["block"]: block["weight"] for block in advised["blocks"]}["plot"] == 7
    assert main([*asked, "--draw", str(tmp_path / "no/advice.svg")]) == 2
    assert "no such folder" in capsys.readouterr().err
    for wrong in ("plot", "=3", "load:plot=x"):
        assert main([*asked, "--weight", wrong]) == 2
        assert f"{wrong!r} is not [PRODUCER:]CONSUMER=NUMBER" in capsys.readouterr().err
    assert main([*asked, "--weight", "nobody=3"]) == 2
    assert "nobody" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("where", "value", "line"),
    [
        (("version",), 9, "is not a trace: version 9 is not supported; 1 is"),
        (("accesses", 0, "weight"), -3, "must be a finite number, at least 0"),
        (("accesses", 0, "dataset"), "x", "which is not in the trace"),
        (("datasets", 0, "stored", "grid", "chunks"), [0, 0], "every chunk length must be at least 1"),
        (("datasets", 0, "stored", "grid", "chunks"), [5], "has 1 axis; the array has 2"),
        (("datasets", 0, "stored", "itemsize"), -8, "elements of -8 bytes"),
        (("datasets", 0, "stored", "grid", "shape"), [2, 3], "which has shape (2, 3)"),
    ],
)
def test_a_file_that_says_what_cannot_be_is_refused_in_one_line(
    stored: zarr.Array,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    where: tuple[Any, ...],
    value: Any,
    line: str,
) -> None:
    data = ooc.advise.trace(da.from_zarr(stored)).as_json()
    data = json.loads(json.dumps(data))
    inner = data
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    (tmp_path / "t.json").write_text(json.dumps(data))
    assert main(["advise", str(tmp_path / "t.json")]) == 2
    told = capsys.readouterr().err
    assert line in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("content", [b"", b"[1]", b"\xff\xfe", b'{"format": "oocarrays tr'])
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t.json").write_bytes(content)
    with pytest.raises(InputError, match="is not a trace"):
        ooc.advise.Trace.load(tmp_path / "t.json")


def test_what_a_program_read_before_it_failed_is_traced(stored: zarr.Array) -> None:
    with pytest.raises(ZeroDivisionError), ooc.advise.trace() as seen:  # noqa: PT012
        stored[3]
        1 / 0  # noqa: B018
    assert [access.largest for access in seen.accesses] == [(1, 40)]
    with pytest.raises(IndexError), ooc.advise.trace() as failed:
        stored[99]
    assert failed.accesses == ()


@pytest.mark.parametrize("shape", [(), (0, 6)])
def test_arrays_of_one_element_and_of_none_are_kept_as_they_are(tmp_path: Path, shape: tuple[int, ...]) -> None:
    array = zarr.create_array(tmp_path / "z.zarr", shape=shape, chunks=tuple(max(n, 1) for n in shape), dtype="f4")
    with ooc.advise.trace() as seen:
        array[...]
    if seen.accesses:
        assert all(each.kept for each in seen.advise(memory="64MiB", scheduler="threads").arrays)
    else:
        with pytest.raises(InputError, match="this trace reads and writes no stored array"):
            seen.advise(memory="64MiB")


def test_a_large_graph_is_not_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    big = zarr.create_array({}, shape=(10**6, 10**6), chunks=(1000, 1000), dtype="f4")

    def refuse(*_: Any) -> None:
        raise AssertionError("tasks were written out")

    replace_step(monkeypatch, "lower layers", refuse)
    (access,) = ooc.advise.trace((da.from_zarr(big) + 1).T * 2).accesses
    assert (access.tasks, len(access.patterns), access.elements) == (10**6, 1, 10**12)


def test_a_trace_is_a_table_in_notebooks_and_a_drawing(stored: zarr.Array) -> None:
    pytest.importorskip("matplotlib")
    with ooc.advise.trace(block="reads & sums") as seen:
        stored[3]
    found = ooc.advise.trace(da.from_zarr(stored).sum()) + seen
    assert "reads &amp; sums" in found._repr_html_()
    (axes,) = found.draw().axes
    words = [text.get_text() for text in axes.texts]
    assert "16 of 6 × 10, weight 1" in words
    assert "reads & sums" in words
