"""Targets, resources and results as verbs take them, and the names and arguments of version 0.5."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import dask.config
import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.errors import BudgetError, InputError, UnsupportedError

DATA = np.arange(48.0).reshape(8, 6)
HERE: dict[str, Any] = {"memory": "64MiB", "scheduler": "threads"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    zarr.create_array(tmp_path / "source", data=DATA, chunks=(2, 6), dimension_names=("y", "x"))
    return tmp_path / "source"


WRITING: dict[str, Callable[[Any, Callable[[str], Any]], Any]] = {
    "rechunk": lambda s, at: ooc.rechunk(s, at("t"), chunks=(8, 2), **HERE),
    "rechunk, lazy": lambda s, at: ooc.rechunk(da.from_zarr(str(s)), at("t"), chunks=(8, 2), **HERE),
    "map_slabs": lambda s, at: ooc.map_slabs(lambda block: block, s, at("t"), **HERE),
    "map_slabs, several": lambda s, at: ooc.map_slabs(lambda a, b: (a, b), [s, s], [at("t"), at("u")], **HERE),
    "iterate": lambda s, at: ooc.iterate(lambda block: block, s, at("t"), sweeps=2, **HERE),
    "scatter_files": lambda s, at: ooc.ranks.scatter_files(s, "(block, *)", at("t"), ranks=2, **HERE),
    "gather_files": lambda s, at: ooc.ranks.gather_files(_scattered(s, at("local")), at("t"), **HERE),
}


def _scattered(source: Path, target: Any) -> Any:
    return ooc.ranks.scatter_files(source, "(block, *)", target, ranks=2, **HERE).run()


@pytest.mark.parametrize("verb", WRITING)
def test_a_target_is_taken_wherever_a_path_is(verb: str, source: Path, tmp_path: Path) -> None:
    made = WRITING[verb](source, lambda name: ooc.Target(tmp_path / name)).run()
    for each in _each(made):
        np.testing.assert_array_equal(each[...], DATA)


def _each(made: Any) -> list[Any]:
    return made if isinstance(made, list) else [made]


def test_how_a_target_is_stored_is_stated_in_it(source: Path, tmp_path: Path) -> None:
    target = ooc.Target(tmp_path / "t", shards=(8, 4), compressors="gzip", zarr_format=3)
    made = zarr.open_array(str(ooc.rechunk(source, target, chunks=(8, 2), **HERE).run().store), mode="r")
    assert (made.chunks, made.shards) == ((8, 2), (8, 4))
    assert "gzip" in type(made.compressors[0]).__name__.lower()
    assert made.metadata.dimension_names == ("y", "x")
    lazy = ooc.Target(tmp_path / "l", fill_value=7, attributes={"units": "K"}, dimension_names=("a", "b"))
    stored = zarr.open_array(str(ooc.rechunk(da.ones((4, 4), chunks=2), lazy, **HERE).run().store), mode="r")
    assert (stored.fill_value, dict(stored.attrs), stored.metadata.dimension_names) == (7, {"units": "K"}, ("a", "b"))


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("codec", ["gzip", "none", "zstd"])
def test_codecs_and_format_of_results_of_a_kernel(source: Path, tmp_path: Path, codec: str, zarr_format: int) -> None:
    target = ooc.Target(tmp_path / "t", dtype="f4", chunks=(4, 3), compressors=codec, zarr_format=zarr_format)
    ooc.map_slabs(np.negative, source, target, **HERE).run()
    made = zarr.open_array(tmp_path / "t", mode="r")
    np.testing.assert_array_equal(made[...], -DATA)
    assert (made.dtype, made.chunks, made.metadata.zarr_format) == (np.dtype("f4"), (4, 3), zarr_format)
    found = [type(each).__name__.lower() for each in made.compressors if each is not None]
    assert not found if codec == "none" else codec in found[0]


REFUSED: dict[str, tuple[Callable[[Any, Any], Any], type, str]] = {
    "chunks twice": (
        lambda s, t: ooc.rechunk(s, ooc.Target(t, chunks=(8, 2)), chunks=(4, 2), **HERE), InputError, "once"
    ),
    "shards of a pass": (
        lambda s, t: ooc.map_slabs(np.negative, s, ooc.Target(t, shards=(8, 6)), **HERE), UnsupportedError,
        "map_slabs takes no shards of a Target: it takes store, chunks, dtype",
    ),
    "chunks of a reduction": (
        lambda s, t: ooc.reduce(s, "sum", target=ooc.Target(t, chunks=2), **HERE), UnsupportedError, "no chunks"
    ),
    "fill value of a copy": (
        lambda s, t: ooc.rechunk(s, ooc.Target(t, fill_value=1), chunks=(8, 2), **HERE), InputError,
        "fill_value=1 is carried over",
    ),
    "sweeps of a rechunk": (
        lambda s, t: ooc.rechunk(s, t, chunks=(8, 2), resources=ooc.Resources(fuse=2)), UnsupportedError,
        "rechunk takes no fuse of a Resources",
    ),
    "resources as a mapping": (
        lambda s, t: ooc.rechunk(s, t, chunks=(8, 2), resources={"ranks": 2}), InputError, "is not a Resources"
    ),
    "missing chunks of a comparison": (
        lambda s, t: ooc.compare(s, s, resources=ooc.Resources(missing="error")), UnsupportedError,
        "compare takes no missing",
    ),
    "resources of a store": (
        lambda s, t: ooc.store(da.from_zarr(str(s)), t, resources=ooc.Resources(fuse=5)), UnsupportedError,
        "store takes no fuse",
    ),
    "a divisor of a mean": (lambda s, t: ooc.reduce(s, ("mean", {"ddof": 1})), InputError, "has no ddof"),
    "a codec that is none": (
        lambda s, t: ooc.map_slabs(np.negative, s, ooc.Target(t, compressors=5), **HERE), UnsupportedError, "settings"
    ),
    "results as a mapping": (
        lambda s, t: ooc.map_slabs(np.negative, s, t, results={"drop_axis": 0}, **HERE), InputError, "not a Results"
    ),
    "a source by position": (lambda s, t: ooc.update(t, s), InputError, r"update\(target, source=source\)"),
    "verify as a word": (lambda s, t: ooc.Results(verify="yes"), InputError, "verify"),
    "two axes of slabs": (
        lambda s, t: ooc.map_slabs(np.negative, s, t, window={0: "auto", 1: "auto"}, **HERE), InputError, "only one"
    ),
    "a window of an unknown axis": (
        lambda s, t: ooc.map_slabs(np.negative, s, t, window={"z": "auto"}, **HERE), InputError, "'z'"
    ),
    "an unknown option of a reduction": (
        lambda s, t: ooc.reduce(s, ("std", {"dof": 1})), InputError, "'dof' is no option"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_verb_does_not_take_is_refused_by_name(case: str, source: Path, tmp_path: Path) -> None:
    plan, kind, said = REFUSED[case]
    with pytest.raises(kind, match=said):
        plan(source, tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_arguments_count_before_resources_before_those_around_before_settings(source: Path) -> None:
    def budget(**how: Any) -> int:
        return ooc.rechunk(source, MemoryStore(), chunks=(8, 2), scheduler="threads", **how).plan.budget

    mib = 2**20
    with dask.config.set({"oocarrays.memory": "40MiB"}):
        assert budget() == 40 * mib
        with ooc.Resources(memory="41MiB"):
            assert budget() == 41 * mib
            with ooc.Resources(ranks=2) as inner:
                assert inner.memory is None
                assert budget() == 41 * mib
                assert budget(resources=ooc.Resources(memory="42MiB")) == 42 * mib
                assert budget(resources=ooc.Resources(memory="42MiB"), memory="43MiB") == 43 * mib
            with pytest.raises(ZeroDivisionError), ooc.Resources(memory="44MiB"):
                _ = 1 / 0
            assert budget() == 41 * mib
        assert budget() == 40 * mib


def test_resources_around_are_those_of_their_thread(source: Path) -> None:
    found: list[int] = []

    def plan() -> None:
        found.append(ooc.rechunk(source, MemoryStore(), chunks=(8, 2), scheduler="threads").plan.budget)

    with dask.config.set({"oocarrays.memory": "40MiB"}), ooc.Resources(memory="41MiB"):
        thread = threading.Thread(target=plan)
        thread.start()
        thread.join()
        plan()
    assert found == [40 * 2**20, 41 * 2**20]


def test_resources_around_apply_to_every_verb(source: Path, tmp_path: Path) -> None:
    with ooc.Resources(memory=1, scheduler="threads"):
        for call in (
            partial(ooc.rechunk, source, tmp_path / "t", chunks=(8, 2)),
            partial(ooc.map_slabs, np.negative, source, tmp_path / "t"),
            partial(ooc.iterate, np.negative, source, tmp_path / "t", sweeps=1),
            partial(ooc.reduce, source, "sum"),
            partial(ooc.pyramid, source, tmp_path / "t"),
            partial(ooc.compare, source, source),
            partial(ooc.ranks.read_sections, source, "(block, *)", ranks=2),
            partial(ooc.ranks.scatter_files, source, "(block, *)", tmp_path / "t", ranks=2),
        ):
            with pytest.raises(BudgetError):
                call()


def test_contexts_that_exit_in_another_order_leave_their_own_resources() -> None:
    def within(memory: str) -> Iterator[None]:
        with ooc.Resources(memory=memory):
            yield

    def budget() -> int:
        return ooc.rechunk(DATA, MemoryStore(), chunks=(8, 2), scheduler="threads").plan.budget

    with dask.config.set({"oocarrays.memory": "40MiB"}):
        outer, inner = within("41MiB"), within("42MiB")
        next(outer), next(inner)
        assert budget() == 42 * 2**20
        outer.close()
        assert budget() == 42 * 2**20
        inner.close()
        assert budget() == 40 * 2**20


NO_NUMBERS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "ranks": lambda s, t, n: ooc.rechunk(s, t, chunks=(8, 2), resources=ooc.Resources(ranks=n)),
    "ranks of a pass": lambda s, t, n: ooc.map_slabs(np.negative, s, t, resources=ooc.Resources(ranks=n), **HERE),
    "ranks of sections": lambda s, t, n: ooc.ranks.read_sections(s, "(block, *)", ranks=n, **HERE),
    "memory": lambda s, t, n: ooc.rechunk(s, t, chunks=(8, 2), memory=n * 2**28 if n is not True else n),
    "chunks": lambda s, t, n: ooc.rechunk(s, t, chunks=n, **HERE),
    "chunks of an axis": lambda s, t, n: ooc.rechunk(s, t, chunks=(8, n), **HERE),
    "chunks by axis": lambda s, t, n: ooc.rechunk(s, t, chunks={n: 2}, **HERE),
    "shards": lambda s, t, n: ooc.rechunk(s, ooc.Target(t, shards=(8, n)), chunks=(8, 1), **HERE),
    "depth": lambda s, t, n: ooc.map_slabs(lambda b: b, s, t, depth=n, **HERE),
    "depth by axis": lambda s, t, n: ooc.map_slabs(lambda b: b, s, t, depth={"y": n}, **HERE),
    "depth of files": lambda s, t, n: ooc.ranks.scatter_files(s, "(block, *)", t, ranks=2, depth=n, **HERE),
    "window": lambda s, t, n: ooc.map_slabs(np.negative, s, t, window=n, **HERE),
    "window of an axis": lambda s, t, n: ooc.map_slabs(np.negative, s, t, window=(n, -1), **HERE),
    "window by axis": lambda s, t, n: ooc.open_array(s).slabs(window={"y": n}, memory="64MiB"),
    "prefetch": lambda s, t, n: ooc.map_slabs(np.negative, s, t, resources=ooc.Resources(prefetch=n), **HERE),
    "workspace": lambda s, t, n: ooc.map_slabs(np.negative, s, t, resources=ooc.Resources(workspace=n), **HERE),
    "sweeps": lambda s, t, n: ooc.iterate(lambda b: b, s, t, sweeps=n, **HERE),
    "fuse": lambda s, t, n: ooc.iterate(lambda b: b, s, t, sweeps=2, resources=ooc.Resources(fuse=n), **HERE),
    "until": lambda s, t, n: ooc.iterate(lambda b: b, s, t, sweeps=2, until=n, **HERE),
    "factor": lambda s, t, n: ooc.map_slabs(lambda b: b, s, t, results=ooc.Results(factor=n), **HERE),
    "levels": lambda s, t, n: ooc.pyramid(s, t, levels=n, **HERE),
    "ddof": lambda s, t, n: ooc.reduce(s, ("std", {"ddof": n}), target=t, **HERE),
    "aggregators": lambda s, t, n: ooc.ranks.read_sections(s, "(block, *)", ranks=2, aggregators=n, **HERE),
}


@pytest.mark.parametrize("option", NO_NUMBERS)
def test_true_is_no_number_but_integers_of_numpy_are(option: str, source: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="True"):
        NO_NUMBERS[option](source, tmp_path / "t", True)
    assert NO_NUMBERS[option](source, tmp_path / "t", np.int64(1)) is not None


WINDOWS: dict[str, tuple[Any, str]] = {
    "none": (0, "window=0 must be a whole number, at least 1"), "less": (-1, "window=-1 must be a whole number"),
    "an axis": ({"z": "auto"}, r"window={'z': 'auto'}: 'z' is not one of the 2 axes, 0 to 1, or 'y', 'x'"),
    "lengths": ({"z": 4}, r"window={'z': 4}: 'z' is not one of the 2 axes"),
    "too many": ((4, 4, 4), r"window=\(4, 4, 4\) must be a whole number"), "zero": ((0, 4), r"window=\(0, 4\) must be"),
    "a fraction": (1.5, r"window=1\.5 is neither"),
}  # fmt: skip


@pytest.mark.parametrize("case", WINDOWS)
def test_errors_of_a_window_name_it(case: str, source: Path, tmp_path: Path) -> None:
    window, said = WINDOWS[case]
    for call in (
        lambda: ooc.map_slabs(np.negative, source, tmp_path / "t", window=window, **HERE),
        lambda: ooc.open_array(source).slabs(window=window),
        lambda: ooc.iterate(
            lambda b: b, source, tmp_path / "t", sweeps=1, resources=ooc.Resources(window=window), **HERE
        ),
    ):
        with pytest.raises(InputError, match=said):
            call()


def _with_halos(source: Any, place: Path) -> Any:
    ooc.ranks.scatter_files(source, "(block, *)", place, ranks=2, depth=1, **HERE).run()
    return ooc.open_array(place, mode="r+")


NAMED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "chunks": lambda s, t, y: ooc.rechunk(s, t, chunks={y: -1}, **HERE),
    "shards": lambda s, t, y: ooc.rechunk(s, ooc.Target(t, shards={y: 8}), chunks=(4, 6), **HERE),
    "orientation": lambda s, t, y: ooc.rechunk(s, ooc.Target(t, orientation=(1, y)), chunks=(8, 6), **HERE),
    "orientation of a new array": lambda s, t, y: ooc.create_array(
        ooc.Target(t, orientation=(1, y), dimension_names=("y", "x")), shape=(8, 6), dtype="f8"
    ),
    "depth": lambda s, t, y: ooc.map_slabs(lambda b: b, s, t, depth={y: 1}, **HERE),
    "boundary": lambda s, t, y: ooc.map_slabs(lambda b: b, s, t, depth=1, boundary={y: "reflect"}, **HERE),
    "window": lambda s, t, y: ooc.map_slabs(np.negative, s, t, window={y: "auto"}, **HERE),
    "chunks of a pass": lambda s, t, y: ooc.map_slabs(np.negative, s, ooc.Target(t, chunks={y: 4}), **HERE),
    "factor": lambda s, t, y: ooc.map_slabs(
        lambda b: b[::2], s, t, results=ooc.Results(factor={y: 2}), **HERE
    ),
    "drop_axis": lambda s, t, y: ooc.map_slabs(lambda b: b.max(0), s, t, results=ooc.Results(drop_axis=y), **HERE),
    "shape": lambda s, t, y: ooc.map_slabs(lambda b: b[:5], s, t, results=ooc.Results(shape={y: 5}), **HERE),
    "iterate": lambda s, t, y: ooc.iterate(
        lambda b: b, s, t, sweeps=2, depth={y: 1}, boundary={y: 0}, resources=ooc.Resources(window={y: "auto"}), **HERE
    ),
    "slabs": lambda s, t, y: list(ooc.open_array(s).slabs(depth={y: 1}, boundary={y: 0}, window={y: 4})),
    "to_dask": lambda s, t, y: ooc.open_array(s).to_dask({y: 4}).compute(),
    "reduce": lambda s, t, y: ooc.reduce(s, "sum", y, target=t, **HERE),
    "reduce over several": lambda s, t, y: ooc.reduce(s, "sum", [y, 1], **HERE),
    "pyramid": lambda s, t, y: ooc.pyramid(
        s, ooc.Target(t, chunks={y: 4}), factor={y: 2}, levels=2, scale={y: 2.0}, unit={y: "metre"}, **HERE
    ),
    "scatter_files": lambda s, t, y: ooc.ranks.scatter_files(
        s, "(block, *)", ooc.Target(t, chunks={y: 2}), ranks=2, depth={y: 1}, **HERE
    ),
    "orientation of files": lambda s, t, y: ooc.ranks.scatter_files(
        s, "(block, *)", ooc.Target(t, orientation=(1, y)), ranks=2, **HERE
    ),
    "shift": lambda s, t, y: ooc.ranks.shift(
        _with_halos(s, t), depth={y: 1, 1: 1}, boundary={y: "periodic"}, memory="64MiB"
    ),
    "update": lambda s, t, y: ooc.update(t, source=s, chunks={y: 4}, **HERE),
}  # fmt: skip


@pytest.mark.parametrize("option", NAMED)
def test_an_axis_has_its_number_or_its_name(option: str, source: Path, tmp_path: Path) -> None:
    places = {"number": 0, "of numpy": np.int64(0), "name": "y"}
    made = [NAMED[option](source, tmp_path / place, axis) for place, axis in places.items()]
    varying = r"of numpy|number|name|costs=Costs\(.*?\)"
    shown = [re.sub(varying, "place", str(getattr(each, "plan", each))) for each in made]
    assert shown[0] == shown[1] == shown[2]
    with pytest.raises(InputError, match="z"):
        NAMED[option](source, tmp_path / "z", "z")


def test_a_numpy_source_has_the_fill_value_attributes_and_names_that_a_target_states(tmp_path: Path) -> None:
    named: dict[str, Any] = {"fill_value": 7, "attributes": {"units": "K"}, "dimension_names": ("a", "b")}
    for number, zarr_format in enumerate((2, 3)):
        for verb in ("rechunk", "store", "map_slabs"):
            to = ooc.Target(tmp_path / f"{verb}-{number}", zarr_format=zarr_format, **named)
            if verb == "rechunk":
                ooc.rechunk(DATA, to, chunks={"b": 2}, **HERE).run()
            elif verb == "store":
                ooc.store(DATA, to, scheduler="threads")
            else:
                ooc.map_slabs(np.positive, DATA, replace(to, chunks={"b": 2}), **HERE).run()
            made = ooc.open_array(to.store)
            np.testing.assert_array_equal(made[...], DATA)
            assert (made.fill_value, made.dimension_names) == (7, ("a", "b"))
            assert made.attrs["units"] == "K"
            assert verb == "store" or made.chunks[1] == 2


SHOWN = {
    "Target('a', chunks=2)": lambda: ooc.Target("a", chunks=2),
    "Resources()": lambda: ooc.Resources(),
    "Resources(memory='1GiB', ranks=2)": lambda: ooc.Resources(ranks=2, memory="1GiB"),
    "Results(drop_axis=0, verify=True)": lambda: ooc.Results(verify=True, drop_axis=0),
}


@pytest.mark.parametrize("text", SHOWN)
def test_they_are_shown_as_they_are_written(text: str) -> None:
    assert repr(SHOWN[text]()) == text
    assert eval(text, vars(ooc) | {n: getattr(ooc, n) for n in ("Target", "Resources", "Results")}) == SHOWN[text]()


OLD_NAMES = {
    "read_sections": "oocarrays.ranks.read_sections", "Ragged": "oocarrays.streams.Ragged",
    "StripedStore": "oocarrays.disks.StripedStore", "metered": "oocarrays.advise.metered",
    "Mesh": "oocarrays.networks.Mesh", "Cluster": "planned_cluster", "files": "open_files", "from_dask": "rechunk",
    "SlabJob": "oocarrays.Job", "map_blocks": "is oocarrays.map_slabs here", "map_overlap": "map_slabs.*depth=",
    "from_zarr": "is oocarrays.open_array here", "open_zarr": "xarray.open_dataset here",
    "Spec": "is oocarrays.Resources",
}  # fmt: skip


@pytest.mark.parametrize("name", OLD_NAMES)
def test_an_old_name_tells_the_new_one(name: str) -> None:
    with pytest.raises(ImportError, match=OLD_NAMES[name]) as caught:
        exec(f"from oocarrays import {name}")
    assert "\n" not in str(caught.value)
    with pytest.raises(ImportError, match=OLD_NAMES[name]):
        getattr(ooc, name)


OLD_KEYWORDS: dict[str, tuple[Callable[..., Any], dict[str, Any], str]] = {
    "shards": (ooc.rechunk, {"shards": (4, 4)}, r"Target\(store, shards=…\)"),
    "ranks": (ooc.rechunk, {"ranks": 2}, r"Resources\(ranks=…\)"),
    "update": (ooc.rechunk, {"update": True}, r"update\(target, source=source"),
    "args": (ooc.map_slabs, {"args": (1,)}, "partial"),
    "kwargs": (ooc.map_slabs, {"kwargs": {}}, "partial"),
    "drop_axis": (ooc.map_slabs, {"drop_axis": 0}, r"Results\(drop_axis=…\)"),
    "verify": (ooc.map_slabs, {"verify": True}, r"Results\(verify=…\)"),
    "axis": (ooc.map_slabs, {"axis": 0}, "window={axis: 'auto'}"),
    "height": (ooc.map_slabs, {"height": 4}, "window=height"),
    "dtype": (ooc.map_slabs, {"dtype": "f4"}, r"Target\(store, dtype=…\)"),
    "residual": (ooc.iterate, {"sweeps": 1, "residual": max}, r"until=\(tolerance, residual\)"),
    "fuse": (ooc.iterate, {"sweeps": 1, "fuse": 2}, r"Resources\(fuse=…\)"),
    "ddof": (ooc.reduce, {"ddof": 1}, "ddof"),
    "fill_value": (ooc.create_array, {"shape": 3, "dtype": int, "fill_value": 3}, r"Target\(store, fill_value=…\)"),
    "partition": (ooc.ranks.read_sections, {"partition": "static"}, "domains="),
    "workers": (ooc.ranks.distribute, {"workers": ["a"]}, r"Resources\(workers=…\)"),
    "layout": (ooc.streams.open_streams, {"layout": "(block, *)"}, "left out"),
    "axis of slabs": (ooc.OutOfCoreArray.slabs, {"axis": 0}, "window={axis: 'auto'} now"),
    "height of slabs": (ooc.OutOfCoreArray.slabs, {"height": 4}, "window=height"),
}


@pytest.mark.parametrize("word", OLD_KEYWORDS)
def test_an_old_keyword_tells_the_new_form(word: str, source: Path, tmp_path: Path) -> None:
    verb, how, said = OLD_KEYWORDS[word]
    given = {
        "map_slabs": (np.negative, source, tmp_path / "t"), "iterate": (np.negative, source, tmp_path / "t"),
        "create_array": (tmp_path / "t",), "open_streams": (source,), "reduce": (source, "std"),
        "read_sections": (source, "(block, *)"), "distribute": (source, "(block, *)"),
        "slabs": (ooc.open_array(source),),
    }.get(verb.__name__, (source, tmp_path / "t"))  # fmt: skip
    with pytest.raises(InputError, match=said) as caught:
        verb(*given, **how)
    assert "\n" not in str(caught.value)
    with pytest.raises(TypeError, match="unexpected keyword"):
        verb(*given, nothing_of_the_kind=1)


OTHERS: dict[str, tuple[Callable[..., Any], str]] = {
    "target_chunks": (ooc.rechunk, "chunks= here"), "max_mem": (ooc.rechunk, "memory= here"),
    "allowed_mem": (ooc.rechunk, "memory= here"), "executor": (ooc.rechunk, "scheduler= here"),
    "client": (ooc.rechunk, "scheduler= here"),
    "temp_store": (ooc.rechunk, "resources=oocarrays.Resources(scratch=…) here"),
    "work_dir": (ooc.rechunk, "resources=oocarrays.Resources(scratch=…) here"),
    "target_options": (ooc.rechunk, "oocarrays.Target(store, compressors=…) here"),
    "encoding": (ooc.rechunk, "oocarrays.Target(store, compressors=…) here"),
    "compressor": (ooc.map_slabs, "oocarrays.Target(store, compressors=…) here"),
    "dtype": (ooc.rechunk, "not taken: the type stays; map_slabs to oocarrays.Target(store, dtype=…) converts"),
    "region": (ooc.rechunk, "not taken: oocarrays.open_array(target, mode='r+')[section] = values writes a part"),
    "dim": (ooc.reduce, "axis= here"), "keepdims": (ooc.reduce, "not taken: numpy.expand_dims(result, axis)"),
    "trim": (ooc.map_slabs, "not taken: halos are always trimmed"),
}  # fmt: skip


@pytest.mark.parametrize("word", OTHERS)
def test_a_keyword_of_another_library_tells_ours(word: str) -> None:
    verb, said = OTHERS[word]
    with pytest.raises(InputError, match=rf"^{verb.__name__}: {word}= is {re.escape(said)}"):
        verb(**{word: 1})
    with pytest.raises(TypeError, match="temp_store"):  # a name of none of its parameters
        ooc.reduce("a.zarr", "sum", temp_store=1)


def test_a_call_of_rechunker_tells_the_form_of_ours(source: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"by name: rechunk\(source, target, chunks=…, memory=…\)"):
        ooc.rechunk(source, (2, 6), "64MiB", tmp_path / "t")  # type: ignore[call-overload]


def test_old_names_of_methods_tell_the_new_ones(source: Path) -> None:
    with pytest.raises(AttributeError, match=r"oocarrays\.ranks\.partitions\(a, layout\) now"):
        ooc.open_array(source).partitions("(block, *)")
    with pytest.raises(AttributeError, match="'OutOfCoreArray' object has no attribute 'nothing'"):
        _ = ooc.open_array(source).nothing


WRITTEN: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "shards": (
        lambda s, t: ooc.rechunk(s, ooc.Target(t, shards=(3, 6)), chunks=(2, 6), **HERE),
        r"Target\(shards=\(3, 6\)\) must be multiples",
    ),
    "shards of other axes": (
        lambda s, t: ooc.rechunk(s, ooc.Target(t, shards=(4,)), chunks=(2, 6), **HERE),
        r"Target\(shards=\(4,\)\) has 1 axis;",
    ),
    "shards of no length": (
        lambda s, t: ooc.rechunk(s, ooc.Target(t, shards=("a", 6)), chunks=(2, 6), **HERE),
        r"Target\(shards=\('a', 6\)\): 'a' is not",
    ),
    "shards of format 2": (
        lambda s, t: ooc.rechunk(s, ooc.Target(t, shards=(4, 6), zarr_format=2), chunks=(2, 6), **HERE),
        r"Target\(shards=\(4, 6\)\): Zarr format 2 has no shards",
    ),
    "options": (
        lambda s, t: ooc.map_slabs(np.negative, s, t, resources=ooc.Resources(storage_options={"anon": True})),
        r"^storage_options \(anon\) are for URLs",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRITTEN)
def test_messages_name_options_as_they_are_written(case: str, source: Path, tmp_path: Path) -> None:
    call, said = WRITTEN[case]
    with pytest.raises(InputError, match=said):
        call(source, tmp_path / "t")


def test_options_for_urls_around_a_call_leave_local_paths_alone(source: Path, tmp_path: Path) -> None:
    with ooc.Resources(storage_options={"anon": True}):
        np.testing.assert_array_equal(ooc.map_slabs(np.negative, source, tmp_path / "t", **HERE).run()[...], -DATA)


def test_a_difference_of_codecs_is_shown_where_it_is(source: Path, tmp_path: Path) -> None:
    codec = {level: zarr.codecs.BloscCodec(cname="zstd", clevel=level, shuffle="shuffle") for level in (3, 7)}
    made = ooc.Target(tmp_path / "t", compressors=codec[3])
    ooc.rechunk(source, made, chunks=(8, 2), **HERE).run()
    with pytest.raises(
        InputError, match=r'codecs={"name": "blosc", "configuration": {"clevel": 3}}, not .*"clevel": 7'
    ):
        ooc.rechunk(source, replace(made, compressors=codec[7]), chunks=(8, 2), resume=True, **HERE)
