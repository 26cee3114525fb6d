"""Numpy's files and raw ones: one contiguous array in C or Fortran order, cut into contiguous chunks.

a.npy          header │ row 0 row 1 … │ …          chunk i: contiguous rows
x              an array in memory                  chunk i: a view of rows, made on read
x[::2, 3:]     a non-contiguous array              chunk i: a copy, one chunk at a time
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.storage import MemoryStore

from oocarrays.errors import NotFoundError, UnsupportedError
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.storage.foreign.facts import (
    FORMATS,
    Facts,
    Headed,
    Manifest,
    Readable,
    document,
    file_name,
    opened_file,
    rows_of,
    whole_chunk,
)
from oocarrays.storage.local.fs import METADATA, chunk_index, chunk_keys


def raw_manifest(facts: Facts, file: Readable) -> Manifest:
    """Return the contents of a raw file of elements without a header; the user states shape and type."""
    return Manifest({"": facts}, {}, {})


def _npy(file: Readable) -> Manifest:
    name = file_name(file)
    with opened_file(file, "numpy") as opened:
        opened.seek(0)
        try:
            version = np.lib.format.read_magic(opened)
            reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, columns, dtype = reader(opened)
        except ValueError as error:
            raise NotFoundError(f"{name} cannot be opened as a file of numpy: {error}") from error
        if dtype.hasobject or dtype.fields or dtype.kind not in "biufcSU":
            raise UnsupportedError(f"{name} has elements of type {dtype}: Zarr has none such")
        facts = piece_facts(shape, dtype, opened.tell(), columns=columns)
        end, size = opened.tell() + facts.nbytes, opened.seek(0, os.SEEK_END)
        if size < end:
            raise NotFoundError(f"{name} is truncated: it has {size} bytes, and its header says {end}")
        return raw_manifest(facts, file)


FORMATS["npy"] = Headed(_npy)


def piece_facts(shape: tuple[int, ...], dtype: np.dtype, offset: int = 0, *, columns: bool) -> Facts:
    turned = columns and len(shape) > 1
    chunks = rows_of(shape[::-1] if turned else shape, dtype.itemsize)
    return Facts(
        shape=shape,
        chunks=chunks[::-1] if turned else chunks,
        dtype=dtype.str,
        order=tuple(reversed(range(len(shape)))) if turned else None,
        offset=offset,
    )


class ArrayInMemory(MemoryStore):
    """A NumPy array as a store of one Zarr array."""

    def __init__(self, array: np.ndarray) -> None:
        chunks: Any = ArrayChunks(np.asarray(array) if isinstance(array, np.matrix) else array)
        super().__init__(chunks, read_only=True)
        self._name = f"<{type(array).__module__}.{type(array).__name__} {array.shape} {array.dtype}>"

    def with_read_only(self, read_only: bool = False) -> ArrayInMemory:
        if not read_only:
            raise NotImplementedError(f"{self} is read-only")
        return self

    def __str__(self) -> str:
        return self._name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArrayInMemory) and self._store_dict is other._store_dict

    __hash__ = None  # type: ignore[assignment]


class ArrayChunks(Mapping[str, Buffer]):
    """Metadata document and chunks of an array, by key."""

    def __init__(self, array: np.ndarray) -> None:
        self._array, self._facts = array, facts_of(array)
        self._grid = ChunkGrid.of(self._facts.shape, self._facts.chunks)

    def __getitem__(self, key: str) -> Buffer:
        buffer = default_buffer_prototype().buffer
        if key == METADATA:
            return buffer.from_bytes(json.dumps(document(self._facts)).encode())
        index = chunk_index(key, self._grid.counts)
        if index is None:
            raise KeyError(key)
        part = self._array[self._grid.section(index).slices]
        order = self._facts.order or range(part.ndim)
        chunks = tuple(self._facts.chunks[axis] for axis in order)
        data = whole_chunk(part.transpose(*order), chunks, np.zeros((), part.dtype)[()])
        return buffer.from_array_like(data.reshape(-1).view(np.uint8))

    def __contains__(self, key: object) -> bool:
        return key == METADATA or chunk_index(str(key), self._grid.counts) is not None

    def __iter__(self) -> Iterator[str]:
        return chain((METADATA,), chunk_keys(self._grid.counts))

    def __len__(self) -> int:
        return 1 + self._grid.count


def facts_of(array: np.ndarray) -> Facts:
    """Return the facts of an array, with chunks that follow its memory order."""
    if isinstance(array, np.ma.MaskedArray):
        raise UnsupportedError("a masked array has no mask in Zarr: pass x.filled(value)")
    columns = array.flags.f_contiguous and not array.flags.c_contiguous
    facts = piece_facts(array.shape, array.dtype, columns=columns)
    try:
        if array.dtype.kind in "biufcmMSU" and array.dtype.itemsize:
            document(facts)
            return facts
    except (ValueError, TypeError):  # Zarr's own errors for unsupported types
        pass
    raise UnsupportedError(f"an array of dtype {array.dtype} cannot be a source: Zarr has no elements of this type")
