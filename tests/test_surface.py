"""Targets, resources and results as verbs take them, and the names and arguments of version 0.5."""

from __future__ import annotations

import threading
from collections.abc import Callable
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
    "SlabJob": "oocarrays.Job",
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
}


@pytest.mark.parametrize("word", OLD_KEYWORDS)
def test_an_old_keyword_tells_the_new_form(word: str, source: Path, tmp_path: Path) -> None:
    verb, how, said = OLD_KEYWORDS[word]
    given = {
        "map_slabs": (np.negative, source, tmp_path / "t"), "iterate": (np.negative, source, tmp_path / "t"),
        "create_array": (tmp_path / "t",), "open_streams": (source,), "reduce": (source, "std"),
        "read_sections": (source, "(block, *)"), "distribute": (source, "(block, *)"),
    }.get(verb.__name__, (source, tmp_path / "t"))  # fmt: skip
    with pytest.raises(InputError, match=said) as caught:
        verb(*given, **how)
    assert "\n" not in str(caught.value)
    with pytest.raises(TypeError, match="unexpected keyword"):
        verb(*given, nothing_of_the_kind=1)
