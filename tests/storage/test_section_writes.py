"""Written sections against numpy's own assignment, whatever the shape, the chunks, their coding and their store."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.errors import BudgetError, CorruptChunkError, InputError, SelectionError, UnsupportedError
from oocarrays.mapping.along import ascending
from oocarrays.mapping.selection import Axes, Taken, lengths
from oocarrays.plan.sections.write import plan_section_write
from oocarrays.storage.files.array_file import describe
from oocarrays.storage.meter import Meter
from oocarrays.storage.sections.write import write_section
from tests import printed
from tests.profiles import examples
from tests.seams import MemoryWatch
from tests.selections import key_of
from tests.strategies import chunks_for, shapes

pytestmark = pytest.mark.once

FILL = 7
CODINGS: dict[str, dict[str, Any]] = {
    "plain": {"compressors": None},
    "zstd": {"compressors": ZstdCodec()},
    "gzip": {"compressors": GzipCodec()},
    "checked": {"compressors": [BloscCodec(cname="lz4"), Crc32cCodec()]},
    "big-endian": {"compressors": None, "serializer": BytesCodec(endian="big")},
    "transposed": {"compressors": None, "filters": "transpose"},
    "two": {"compressors": None, "zarr_format": 2},
    "two in F order": {"compressors": numcodecs.Zstd(), "zarr_format": 2, "order": "F"},
    "two with filters": {"compressors": numcodecs.LZ4(), "filters": [numcodecs.Delta(dtype="i4")], "zarr_format": 2},
    "shards": {"compressors": None, "sharded": True},
    "shards of zstd": {"compressors": ZstdCodec(), "sharded": True},
    "shards through Zarr": {"compressors": [ZstdCodec(), Crc32cCodec()], "sharded": True},
}


@st.composite
def axes_of(draw: st.DrawFn, shape: tuple[int, ...]) -> Axes:
    """Ranges with a stride, and any indices, of each axis."""
    axes: list[Taken] = []
    for extent in shape:
        start, stop, step = draw(st.integers(0, extent)), draw(st.integers(0, extent)), draw(st.integers(1, 5))
        some = st.lists(st.integers(0, max(extent - 1, 0)), max_size=min(extent, 5), unique=True)
        listed = some.map(lambda indices: np.array(sorted(indices), np.int64))
        axes.append(draw(st.just(ascending(range(start, stop, step))) | listed))
    return tuple(axes)


@contextmanager
def stored(
    coding: str, shape: tuple[int, ...], chunks: tuple[int, ...], *, local: bool, **more: Any
) -> Iterator[zarr.Array]:
    how = dict(CODINGS[coding])
    if how.pop("sharded", False) and shape:  # zarr-python itself fails on a shard without axes
        how["shards"] = tuple(2 * c for c in chunks)
    if how.get("filters") == "transpose":
        how["filters"] = [TransposeCodec(order=tuple(reversed(range(len(shape)))))]
    with tempfile.TemporaryDirectory() as folder:
        store = folder if local else MemoryStore()
        yield zarr.create_array(store, shape=shape, chunks=chunks, dtype="i4", fill_value=FILL, **how, **more)


def files_of(array: zarr.Array, model: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The key of every chunk, or shard, and what it holds."""
    lengths = array.shards or array.chunks
    for index in np.ndindex(*(-(-n // c) for n, c in zip(array.shape, lengths, strict=True))):
        held = model[tuple(slice(i * c, (i + 1) * c) for i, c in zip(index, lengths, strict=True))]
        yield array.metadata.encode_chunk_key(index), held


def chunk_files(array: zarr.Array) -> set[str]:
    root = Path(str(array.store_path.store.root))
    return {
        str(p.relative_to(root))
        for p in root.rglob("*")
        if p.is_file() and p.name not in ("zarr.json", ".zarray", ".zattrs")
    }


def write(array: zarr.Array, key: Any, values: np.ndarray, method: Any, more: float | None) -> None:
    """Write a section by a method, where chunks can be changed so, in the least memory or some times as much."""
    a = ooc.open_array(array)
    try:
        a.write(key, values, method=method, memory=None if more is None else 1)
    except UnsupportedError:
        write(array, key, values, "auto", more)
    except BudgetError as error:
        assert more is not None
        a.write(key, values, method=method, memory=int(more * error.least))


@examples(60)
@given(st.data(), st.sampled_from(sorted(CODINGS)), st.booleans())
def test_what_is_written_is_what_numpy_writes(data: st.DataObject, coding: str, local: bool) -> None:
    shape = data.draw(shapes(5, 600))
    model = np.full(shape, FILL, "i4")
    with stored(coding, shape, data.draw(chunks_for(shape)), local=local) as array:
        for turn in range(data.draw(st.integers(1, 4))):
            axes = data.draw(axes_of(shape))
            taken = tuple(map(len, axes))
            values = np.arange(np.prod(taken), dtype="i4").reshape(taken) + 1000 * turn
            values = data.draw(st.sampled_from([values, np.full_like(values, FILL), np.array(values, "f8", order="F")]))
            method = data.draw(st.sampled_from(["auto", "direct", "sieve"]))
            write(array, key_of(axes), values, method, data.draw(st.sampled_from([None, 1, 3])))
            model[np.ix_(*axes) if axes else ()] = values
        np.testing.assert_array_equal(array[...], model)
        if local:
            assert chunk_files(array) == {key for key, held in files_of(array, model) if (held != FILL).any()}


@examples(50)
@given(st.data(), st.sampled_from(["plain", "transposed", "shards", "zstd", "shards of zstd"]), st.booleans())
def test_the_plan_says_what_the_meter_counts(data: st.DataObject, coding: str, direct: bool) -> None:
    shape = data.draw(shapes(3, 600))
    with stored(coding, shape, data.draw(chunks_for(shape)), local=True) as array:
        array[...] = np.arange(array.size).reshape(shape) + FILL + 1
        file, meter, axes = describe(array, written=True), Meter(), data.draw(axes_of(shape))
        method = "direct" if direct and file.stored.in_place else "auto"
        buffer = data.draw(st.none() | st.integers(1, 8).map(lambda n: n * 64)) if coding == "plain" else None
        try:
            plan = plan_section_write(file.stored, axes, method=method, buffer_bytes=buffer)
        except BudgetError:
            return
        write_section(file, axes, np.full(lengths(axes), -1), method=method, buffer_bytes=buffer, meter=meter)
        exact = ("read_requests", "write_requests", "decoded_bytes", "encoded_bytes")
        exact += () if file.stored.coded else ("read_bytes", "written_bytes")
        assert {name: getattr(plan.reads + plan.writes, name) for name in exact} == {
            name: getattr(meter, name) for name in exact
        }


@pytest.mark.parametrize("row", printed.table("5_3"), ids=lambda row: f"{row['section_fortran']} {row['method']}")
@pytest.mark.parametrize("chunk", [16, 32], ids=["slabs of 16 columns", "one file, a buffer of 16 columns"])
def test_table_5_3_written(tmp_path: Path, row: dict[str, str], chunk: int) -> None:
    """Sieving writes with twice the requests of a read, however sparse the section; direct writes with one a run."""
    array = zarr.create_array(tmp_path, shape=(32, 2048), chunks=(chunk, 2048), dtype="f4", compressors=None)
    array[...] = 1
    across, down = (range(*(int(row[f"{name}_{axis}"]) for name in ("lower", "upper", "stride"))) for axis in (1, 0))
    key = tuple(slice(each.start, each.stop, each.step) for each in (across, down))
    method: Any = {"sieving": "sieve"}.get(row["method"], "direct")
    with ooc.advise.metered() as meter:
        ooc.open_array(array).write(key, np.zeros((len(across), len(down))), method=method, memory=16 * 2048 * 4)
    reads, writes = (0, int(row["requests"])) if method == "direct" else (int(row["requests"]),) * 2
    assert (meter.read_requests, meter.write_requests) == (reads, writes)
    assert (array[...] == 0).sum() == len(across) * len(down)


@pytest.mark.parametrize("coding", ["plain", "zstd", "shards of zstd"])
def test_a_chunk_that_is_cut_short_is_told_and_left(tmp_path: Path, coding: str) -> None:
    with stored(coding, (8, 8), (2, 4), local=True) as array:
        array[...] = np.arange(64).reshape(8, 8) + FILL + 1
        (path,) = Path(str(array.store_path.store.root)).rglob("c/0/0")
        path.write_bytes(path.read_bytes()[:-5])
        before = path.read_bytes()
        with pytest.raises(CorruptChunkError, match="c/0/0"):
            ooc.open_array(array)[:1, :1] = 1
        assert path.read_bytes() == before
        assert not list(path.parent.glob("*.partial"))


def test_what_cannot_be_written_is_refused_in_one_line_before_anything_is_done() -> None:
    with stored("plain", (8, 8), (4, 4), local=False) as array:
        refused: dict[str, tuple[type[Exception], dict[str, Any]]] = {
            "open for reading.*mode='r\\+'": (InputError, {"array": zarr.open_array(array.store, mode="r")}),
            "of shape \\(2, 1\\).*\\(1, 1\\)": (SelectionError, {"values": np.ones((2, 1))}),
            "'through' is not one of 'auto', 'direct', 'sieve'": (UnsupportedError, {"method": "through"}),
            "these are in no local file": (UnsupportedError, {"method": "direct"}),
            "too small: writing this section needs": (BudgetError, {"memory": 10}),
        }
        for says, (kind, wrong) in refused.items():
            asked = {"array": array, "values": np.ones((1, 1))} | wrong
            with ooc.advise.metered() as meter, pytest.raises(kind, match=says) as caught:
                ooc.open_array(asked.pop("array")).write(np.s_[:1, :1], asked.pop("values"), **asked)
            assert "\n" not in str(caught.value)
            assert meter.write_requests == meter.read_requests == 0
        assert not (array[...] != FILL).any()


@pytest.mark.parametrize("coding", ["plain", "zstd", "shards"])
def test_no_more_is_held_than_planned(tmp_path: Path, coding: str) -> None:
    how = {name: value for name, value in CODINGS[coding].items() if name != "sharded"}
    how |= {"chunks": (512, 4096), "shards": (2048, 4096)} if coding == "shards" else {"chunks": (2048, 4096)}
    array = zarr.create_array(tmp_path, shape=(2048, 8192), dtype="i4", **how)
    array[...] = np.random.default_rng(0).integers(0, 2**30, array.shape, "i4")  # chunks of 32 MiB
    a, key = ooc.open_array(array), np.s_[5::64, ::64]
    memory = 2**22
    if coding != "plain":
        with pytest.raises(BudgetError) as caught:
            a.write(key, 1, memory=1)
        memory = caught.value.least
    with MemoryWatch() as watch:
        a.write(key, 1, memory=memory)
    assert watch.peak_bytes <= memory + 2**22


@pytest.mark.parametrize("copy", ["hard link", "symbolic link"])
def test_direct_writes_of_a_copy_by_links_leave_the_original(tmp_path: Path, copy: str) -> None:
    values = np.arange(64, dtype="i4").reshape(8, 8)
    zarr.create_array(tmp_path / "a.zarr", data=values, chunks=(4, 8), compressors=None)
    link = {"hard link": os.link, "symbolic link": os.symlink}[copy]
    shutil.copytree(tmp_path / "a.zarr", tmp_path / "b.zarr", copy_function=link)
    os.unlink(tmp_path / "b.zarr" / "zarr.json")
    shutil.copy(tmp_path / "a.zarr" / "zarr.json", tmp_path / "b.zarr" / "zarr.json")
    copied, section = ooc.open_array(tmp_path / "b.zarr", mode="r+"), ooc.Section((1, 2), (7, 5))
    copied.write(section, np.full(section.shape, -1, "i4"), method="direct")
    np.testing.assert_array_equal(ooc.open_array(tmp_path / "a.zarr"), values)
    values[section.slices] = -1
    np.testing.assert_array_equal(ooc.open_array(tmp_path / "b.zarr"), values)
    before = os.stat(tmp_path / "b.zarr" / "c" / "0" / "0").st_ino
    copied.write(section, np.full(section.shape, -2, "i4"), method="direct")
    assert os.stat(tmp_path / "b.zarr" / "c" / "0" / "0").st_ino == before
