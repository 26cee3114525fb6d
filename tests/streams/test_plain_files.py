"""Plain binary files as streams, beside NumPy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.errors import CorruptChunkError, InputError, NotFoundError, OocError, TargetError, UnsupportedError
from tests.flat import flat
from tests.pairs import pairs

pytestmark = pytest.mark.usefixtures("quick")

SHAPES: list[tuple[int, ...]] = [(), (4,), (3, 2), (2, 3, 5)]
DTYPES = ["<f8", ">i4", "u1", "i1,>f4"]
KINDS = [("C", 0), ("F", 7)]
"""The order of the elements of a step, and the bytes before the first."""


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """Where a plain file is."""
    return tmp_path / "raw.bin"


def steps_of(count: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return an array of steps × cells."""
    item = np.dtype(dtype)
    data = np.random.default_rng(0).integers(0, 100, count * int(np.prod(shape)) * item.itemsize, np.uint8)
    return data.view(item).reshape(count, *shape)


def to_file(path: Path, steps: np.ndarray, offset: int, order: str) -> None:
    """Write a plain file with NumPy alone."""
    each = (np.asarray(step, steps.dtype).tobytes(order=order) for step in steps)  # type: ignore[arg-type]
    path.write_bytes(b"h" * offset + b"".join(each))


@pytest.mark.parametrize(*pairs(shape=SHAPES, dtype=DTYPES, kind=KINDS))
def test_a_plain_file_is_read(raw: Path, shape: Any, dtype: str, kind: tuple[Any, int]) -> None:
    order, offset = kind
    steps = steps_of(6, shape, dtype)
    to_file(raw, steps, offset, order)
    layout = {"shape": shape, "dtype": dtype, "offset": offset, "order": order}
    with flat(ooc.streams.open_streams, raw, **layout) as s:
        assert s.mode == "NB"
        assert s.dtype == np.dtype(dtype)
        assert s.read().tobytes() == steps[:1].tobytes()
        assert s.read(3).tobytes() == np.moveaxis(steps[1:4], 0, -1).tobytes()
        cell = tuple(n - 1 for n in shape)
        assert s[cell].tobytes() == np.ascontiguousarray(steps[(slice(None), *cell)]).tobytes()
        s.seek(np.dtype(dtype).itemsize)
        assert s.read(-1).values.tobytes() == np.moveaxis(steps[1:], 0, -1).tobytes()
        whole = np.moveaxis(steps, 0, -1).tobytes()
        assert s.to_ragged().values.tobytes() == whole
        assert s.to_dask().values.compute(scheduler="sync").tobytes() == whole


@pytest.mark.parametrize(*pairs(shape=SHAPES, dtype=DTYPES[:3], kind=KINDS))
def test_a_plain_file_is_written_appended_to_and_changed(
    raw: Path, tmp_path: Path, shape: Any, dtype: str, kind: tuple[Any, int]
) -> None:
    order, offset = kind
    steps, size = steps_of(8, shape, dtype), np.dtype(dtype).itemsize
    layout: Any = {"shape": shape, "dtype": dtype, "offset": offset, "order": order}
    with flat(ooc.streams.open_streams, raw, "w", **layout) as s:
        s.write(steps[0])
        s.write(np.moveaxis(steps[1:3], 0, -1))
        with pytest.raises(TargetError, match="open for writing elsewhere"):
            flat(ooc.streams.open_streams, raw, "a", **layout)
    with flat(ooc.streams.open_streams, raw, "a", **layout) as s:
        s.seek(0)
        s.write(steps[3])
    with flat(ooc.streams.open_streams, raw, "r+", **layout) as s:
        s.seek(size)
        s.write(np.moveaxis(steps[4:6], 0, -1))
        s.seek(5 * size)
        s.write(steps[6])
        s.seek(2 * size)
        assert s.read().tobytes() == steps[5:6].tobytes()
    want = np.zeros((6, *shape), dtype)
    want[[0, 1, 2, 3, 5]] = steps[[0, 4, 5, 3, 6]]
    to_file(tmp_path / "numpy.bin", want, 0, order)
    assert raw.read_bytes() == bytes(offset) + (tmp_path / "numpy.bin").read_bytes()


def test_one_value_and_equal_counts_are_steps_and_a_header_stays(raw: Path) -> None:
    np.full(4, -1, "i4").tofile(raw)
    with ooc.streams.open_streams(raw, "a", shape=2, dtype="i4", offset=16) as s:
        s.write(5)
        s.write([[1, 2], [3, 4]])
        s.write((np.array([1, 1]), [8, 9]))
        s.write([6, 7], where=[True, True])
    assert np.fromfile(raw, "i4").tolist() == [-1] * 4 + [5, 5, 1, 3, 2, 4, 8, 9, 6, 7]


IRREGULAR: dict[str, Any] = {
    "a mask": lambda s: s.write([1.0, 2.0], where=[True, False]),
    "events": lambda s: s.write([1.0], at=[0]),
    "ragged": lambda s: s.write(ooc.streams.Ragged([1, 2], np.ones(3))),
    "one by one": lambda s: s.each(lambda cell: cell.write([1.0])),
    "at different places": lambda s: [s.seek([0, 8]), s.write([1.0, 2.0])],
    "within an item": lambda s: [s.seek(4), s.write([1.0, 2.0])],
}


@pytest.mark.parametrize("write", IRREGULAR.values(), ids=IRREGULAR)
def test_irregular_writes_are_refused_and_nothing_is_lost(raw: Path, write: Any) -> None:
    with ooc.streams.open_streams(raw, "w", shape=2, dtype="f8", order="C") as s:
        s.write([1.0, 2.0])
        with pytest.raises(UnsupportedError, match="plain binary file"):
            write(s)
        s.seek(0, 2)
        s.write([3.0, 4.0])
    assert np.fromfile(raw).tolist() == [1, 2, 3, 4]


WRONG: dict[str, tuple[type[OocError], str, str, dict[str, Any]]] = {
    "neither shape nor dtype": (NotFoundError, r"give shape= and dtype=", "r", {}),
    "an offset without shape": (InputError, r"give shape= and dtype=", "r", {"offset": 8}),
    "bytes left over": (InputError, r"no whole steps of 24 bytes", "r", {"shape": 3, "dtype": "f8"}),
    "an offset past the end": (InputError, r"no whole steps", "r", {"shape": 4, "dtype": "f8", "offset": 100}),
    "a negative offset": (InputError, r"offset=-8", "r", {"shape": 4, "dtype": "f8", "offset": -8}),
    "another order": (InputError, r"order='K'", "r", {"shape": 4, "dtype": "f8", "order": "K"}),
    "no cells": (InputError, r"at least one cell", "r", {"shape": 0, "dtype": "f8"}),
    "a file that is there": (
        TargetError,
        r"exists; pass overwrite=True",
        "w",
        {"shape": 4, "dtype": "f8", "order": "C"},
    ),
    "no word of a plain file": (TargetError, r"exists", "w", {"shape": 4, "dtype": "f8", "overwrite": True}),
}


@pytest.mark.parametrize(("kind", "words", "mode", "asked"), WRONG.values(), ids=WRONG)
def test_wrong_layouts_get_one_line(raw: Path, kind: Any, words: str, mode: Any, asked: Any) -> None:
    np.arange(8.0).tofile(raw)
    with pytest.raises(kind, match=words) as error:
        flat(ooc.streams.open_streams, raw, mode, **asked)
    assert "\n" not in str(error.value)
    assert np.fromfile(raw).tolist() == list(range(8))


def test_overwrite_replaces_a_plain_file_and_no_folder(raw: Path, tmp_path: Path) -> None:
    np.arange(8.0).tofile(raw)
    with ooc.streams.open_streams(raw, "w", shape=2, dtype="f8", order="C", overwrite=True) as s:
        s.write([1, 2])
    assert np.fromfile(raw).tolist() == [1, 2]
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    for name in ("folder", "fifo"):
        for mode in ("w", "r", "a"):
            with pytest.raises(TargetError, match="no regular file"):
                ooc.streams.open_streams(tmp_path / name, mode, shape=2, dtype="f8", order="C", overwrite=True)
    with pytest.raises(NotFoundError, match="no file"):
        ooc.streams.open_streams(tmp_path / "none.bin", "a", shape=2, dtype="f8", order="C")


def test_a_file_that_shrinks_is_an_error(raw: Path) -> None:
    np.arange(8.0).tofile(raw)
    with ooc.streams.open_streams(raw, shape=2, dtype="f8") as s:
        os.truncate(raw, 24)
        assert s.read().tolist() == [0, 1]
        with pytest.raises(CorruptChunkError, match="shorter than when it was opened"):
            s.read(3)


def test_other_formats_are_addressed_as_before(tmp_path: Path) -> None:
    values = np.arange(12.0).reshape(3, 4)
    np.save(tmp_path / "a.npy", values)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"] = values
    zarr.create_array(tmp_path / "a.zarr", data=values)
    for name in ("a.npy", "a.h5/a", "a.zarr"):
        with ooc.streams.open_streams(tmp_path / name, shape=4, dtype="f8") as s:
            np.testing.assert_array_equal(s.read(3).T, values)
    for name in ("a.h5", "none.bin"):
        with pytest.raises(NotFoundError, match=r"no Zarr group or array, \.npy file or dataset such as 'file\.h5/a'"):
            ooc.streams.open_streams(tmp_path / name)
    with pytest.raises(InputError, match="plain binary file at a local path"):
        ooc.streams.open_streams(tmp_path / "a.npy", shape=4, dtype="f8", order="F")
