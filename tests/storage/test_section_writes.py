"""Written sections against numpy's own assignment, whatever the shape, the chunks, their coding and their store."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec
from zarr.storage import MemoryStore

from oocarrays.errors import BudgetError, CorruptChunkError, InputError, SelectionError, UnsupportedError
from oocarrays.mapping.selection import Selection
from oocarrays.plan.sieve_writes import can_change, plan_section_write
from oocarrays.storage.array_file import describe
from oocarrays.storage.meter import Meter
from oocarrays.storage.section_writes import write_section
from tests.strategies import chunks_for, shapes

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
def keys(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Integers, slices with steps of both signs, and lists of indices."""
    key: list[Any] = []
    for extent in shape:
        listed = st.lists(st.integers(-extent, extent - 1), max_size=4, unique_by=lambda i: i % extent) if extent else st.just([])
        bound = st.none() | st.integers(-extent - 1, extent + 1)
        slices = st.builds(slice, bound, bound, st.none() | st.integers(1, 5) | st.integers(-5, -1))
        key.append(draw(slices | listed | st.integers(-extent, extent - 1) if extent else slices))
    return tuple(key)


def as_numpy(key: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
    """The same as numpy writes it: the product of what is taken along each axis."""
    along = [np.arange(n)[k] for k, n in zip(key, shape, strict=True)]
    return np.ix_(*map(np.atleast_1d, along))


@contextmanager
def stored(coding: str, shape: tuple[int, ...], chunks: tuple[int, ...], *, local: bool, **more: Any) -> Iterator[zarr.Array]:
    how = dict(CODINGS[coding])
    if how.pop("sharded", False) and shape:  # zarr-python itself fails on a shard without axes
        how["shards"] = tuple(2 * c for c in chunks)
    if how.get("filters") == "transpose":
        how["filters"] = [TransposeCodec(order=tuple(reversed(range(len(shape)))))]
    with tempfile.TemporaryDirectory() as folder:
        store = folder if local else MemoryStore()
        yield zarr.create_array(store, shape=shape, chunks=chunks, dtype="i4", fill_value=7, **how, **more)


def chunk_files(array: zarr.Array) -> set[str]:
    root = Path(str(array.store_path.store.root))
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() and p.name not in ("zarr.json", ".zarray", ".zattrs")}


@settings(deadline=None, max_examples=150)
@given(st.data(), st.sampled_from(sorted(CODINGS)), st.booleans())
def test_what_is_written_is_what_numpy_writes(data: st.DataObject, coding: str, local: bool) -> None:
    shape = data.draw(shapes(5, 600))
    chunks = data.draw(chunks_for(shape))
    model = np.full(shape, 7, "i4")
    with stored(coding, shape, chunks, local=local) as array:
        file = describe(array, written=True)
        methods = ["auto", "direct"] if can_change(file.stored) else ["auto"]
        for turn in range(data.draw(st.integers(1, 4))):
            taken = Selection.of(data.draw(keys(shape)), shape)
            values = np.arange(taken.size, dtype="i4").reshape(taken.shape) + 1000 * turn
            values = values if data.draw(st.booleans()) else np.full_like(values, 7)
            least = plan_section_write(file.stored, taken.axes).held_bytes
            small = data.draw(st.sampled_from([None, 4 if can_change(file.stored) else least]))
            method = data.draw(st.sampled_from(methods))
            if method == "direct" and small:
                small = least
            write_section(file, taken.axes, taken.spread(values), method=method, buffer_bytes=small, requests=2)
            place = tuple(np.ix_(*taken.axes)) if shape else ()
            model[place] = taken.spread(values)
        np.testing.assert_array_equal(array[...], model)
        if local and coding != "shards through Zarr":
            unit = file.stored.grid
            due = {
                file.chunk_key(i) for i in np.ndindex(unit.counts) if (model[unit.section(i).slices] != 7).any()
            }
            assert chunk_files(array) == due
