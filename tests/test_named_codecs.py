"""Compressors by name, wherever compressors are taken: the names of ``oocarrays rechunk --codec``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import UnsupportedError
from tests.flat import flat

FIELD = np.arange(120, dtype="i4").reshape(12, 10)
KINDS = {"zstd": ["ZstdCodec"], "blosc": ["BloscCodec"], "gzip": ["GzipCodec"], "none": []}


def _rechunk(target: Path, **how: Any) -> None:
    zarr.create_array(target.parent / "a.zarr", data=FIELD, chunks=(4, 5))
    flat(ooc.rechunk, target.parent / "a.zarr", target, chunks=(6, 5), scheduler="threads", **how).run()


def _from_dask(target: Path, **how: Any) -> None:
    flat(ooc.rechunk, da.from_array(FIELD, chunks=(6, 5)), target, scheduler="threads", **how).run()


def _create(target: Path, **how: Any) -> None:
    flat(ooc.create_array, target, shape=(12, 10), dtype="i4", chunks=(6, 5), **how)[...] = FIELD


def _gather(target: Path, **how: Any) -> None:
    zarr.create_array(target.parent / "a.zarr", data=FIELD, chunks=(4, 5))
    ooc.ranks.scatter_files(
        target.parent / "a.zarr", "(block, *)", target.parent / "l", ranks=2, scheduler="threads"
    ).run()
    flat(ooc.ranks.gather_files, target.parent / "l", target, scheduler="threads", **how).run()


VERBS: dict[str, Callable[..., None]] = {
    "rechunk": _rechunk, "from_dask": _from_dask, "create_array": _create, "gather_files": _gather,
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", KINDS)
def test_a_compressor_is_named(verb: str, name: str, tmp_path: Path) -> None:
    VERBS[verb](tmp_path / "b.zarr", compressors=name)
    made = zarr.open_array(tmp_path / "b.zarr")
    assert [type(each).__name__ for each in made.compressors] == KINDS[name]
    np.testing.assert_array_equal(made[...], FIELD)


@pytest.mark.parametrize("verb", VERBS)
def test_names_and_codecs_of_either_format_are_taken_in_both(verb: str, tmp_path: Path) -> None:
    VERBS[verb](tmp_path / "b.zarr", compressors=["gzip"], zarr_format=2)
    made = zarr.open_array(tmp_path / "b.zarr")
    assert [each.codec_id for each in made.compressors] == ["gzip"]  # type: ignore[union-attr]
    np.testing.assert_array_equal(made[...], FIELD)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", ["lz5", ["zstd", "lz5"]])
def test_a_name_that_is_none_is_refused_with_those_that_are(verb: str, name: Any, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="compressors='lz5' is not a codec or one of none, zstd, blosc, gzip"):
        VERBS[verb](tmp_path / "b.zarr", compressors=name)
    assert not (tmp_path / "b.zarr").exists()


def test_streams_are_written_out_with_a_named_compressor(tmp_path: Path) -> None:
    with ooc.streams.open_streams(tmp_path / "s.zarr", "w", shape=4, dtype="i4") as streams:
        streams.write([1, 2, 3, 4])
        streams.to_zarr(tmp_path / "t.zarr", compressors="zstd")
    assert [type(each).__name__ for each in zarr.open_array(tmp_path / "t.zarr").compressors] == ["ZstdCodec"]


@pytest.mark.parametrize("name", KINDS)
def test_the_command_line_has_the_same_names(name: str, tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=FIELD, chunks=(4, 5))
    line = [
        "rechunk",
        str(tmp_path / "a.zarr"),
        str(tmp_path / "b.zarr"),
        "--chunks",
        "6,5",
        "--codec",
        name,
        "--quiet",
    ]
    assert main(line) == 0
    made = zarr.open_array(tmp_path / "b.zarr")
    assert [type(each).__name__ for each in made.compressors] == KINDS[name]
