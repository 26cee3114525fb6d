"""Arrays of NumPy as stores of Zarr, read-only: chunks are views of the array, made when they are read.

x[0:512]      ──►  c/0/0    rows that lie in one piece: no copy
x[::2, 3:]    ──►  c/0/0    anything else: a copy of one chunk at a time
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.storage import MemoryStore

from oocarrays.errors import UnsupportedError
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.storage.foreign.facts import Facts, document
from oocarrays.storage.foreign.numpy_files import piece_facts
from oocarrays.storage.foreign.store import DOCUMENT, index_of, whole_chunk

KINDS = "biufcmMSU"
"""Kinds of elements that Zarr stores in a fixed number of bytes."""


class ArrayInMemory(MemoryStore):
    """A NumPy array as a store that holds one Zarr array.

    Parameters
    ----------
    array : numpy.ndarray
        Not copied: it must not change while it is read.
    """

    def __init__(self, array: np.ndarray) -> None:
        chunks: Any = ArrayChunks(np.asarray(array) if isinstance(array, np.matrix) else array)
        super().__init__(chunks, read_only=True)
        self._name = f"<{type(array).__module__}.{type(array).__name__} {array.shape} {array.dtype}>"

    def with_read_only(self, read_only: bool = False) -> ArrayInMemory:
        """Return the same store, which cannot be written."""
        if not read_only:
            raise NotImplementedError(f"{self} is read-only")
        return self

    def __str__(self) -> str:
        return self._name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArrayInMemory) and self._store_dict is other._store_dict

    __hash__ = None  # type: ignore[assignment]


class ArrayChunks(Mapping[str, Buffer]):
    """The documents and chunks of an array, by their keys."""

    def __init__(self, array: np.ndarray) -> None:
        self._array, self._facts = array, facts_of(array)
        self._grid = ChunkGrid.of(self._facts.shape, self._facts.chunks)

    def __getitem__(self, key: str) -> Buffer:
        buffer = default_buffer_prototype().buffer
        if key == DOCUMENT:
            return buffer.from_bytes(json.dumps(document(self._facts)).encode())
        if key not in self:
            raise KeyError(key)
        part = self._array[self._grid.section(index_of(key)).slices]
        order = self._facts.order or range(part.ndim)
        chunks = tuple(self._facts.chunks[axis] for axis in order)
        data = whole_chunk(part.transpose(*order), chunks, np.zeros((), part.dtype)[()])
        return buffer.from_array_like(data.reshape(-1).view(np.uint8))

    def __contains__(self, key: object) -> bool:
        parts = str(key).split("/")
        index = [int(n) if n.isdecimal() else -1 for n in parts[1:]]
        counts = self._grid.counts
        inside = len(index) == len(counts) and all(0 <= i < n for i, n in zip(index, counts, strict=True))
        return key == DOCUMENT or (parts[0] == "c" and inside)

    def __iter__(self) -> Iterator[str]:
        yield DOCUMENT
        for index in product(*map(range, self._grid.counts)):
            yield "/".join(("c", *map(str, index)))

    def __len__(self) -> int:
        return 1 + self._grid.count


def facts_of(array: np.ndarray) -> Facts:
    """Return the facts of an array, its chunks as it lies in memory.

    Raises
    ------
    UnsupportedError
        If the array is masked, or Zarr has no such elements.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise UnsupportedError("a masked array has no mask in Zarr: pass x.filled(value)")
    columns = array.flags.f_contiguous and not array.flags.c_contiguous
    facts = piece_facts(array.shape, array.dtype, columns=columns)
    try:
        if array.dtype.kind in KINDS and array.dtype.itemsize:
            document(facts)
            return facts
    except (ValueError, TypeError):  # Zarr's own, of types that it does not have
        pass
    raise UnsupportedError(f"an array of dtype {array.dtype} cannot be a source: Zarr has no elements of this type")
