"""Facts of an array in a file of another format, sufficient to read its chunks in place.

a.nc    air    shape, type, chunk, filters, attributes  ─► Facts        read when the array is opened
               chunk 0: bytes 4016 … 9120
               chunk 1: bytes 9120 … 13977              ─► ChunkTable   read with the first chunks
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np
from zarr.dtype import parse_dtype

from oocarrays.errors import NotFoundError
from oocarrays.mapping.grid import ceil_div, ravel
from oocarrays.plan.documents import Document
from oocarrays.storage.foreign.filters import FILTERS
from oocarrays.storage.local.fs import open_regular

Readable = str | BinaryIO
"""File argument of libraries: its path, or an object that reads it."""
ROW_BYTES = 2**22
"""Approximate bytes of a chunk of a file without chunks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts of an array in a file."""

    shape: tuple[int, ...]
    """Extent of each axis, in elements."""
    chunks: tuple[int, ...]
    """Length of a chunk in each axis, in elements."""
    dtype: Any
    """Element type in numpy's notation, or a structure; ``"O"`` for strings of any length."""
    filters: tuple[str, ...] = ()
    """Filters of the bytes of a chunk in order of encoding, each a numcodecs codec as JSON."""
    library: str | None = None
    """Library that reads the array if its chunks cannot be read as bytes; None otherwise."""
    fill: Any = None
    """Value of missing chunks; None for zero."""
    attributes: Document = field(default_factory=dict)
    """Attributes as JSON."""
    native: Document = field(default_factory=dict)
    """Attributes that define the meaning of values, in their types in the file."""
    encoding: Document = field(default_factory=dict)
    """Storage settings under the names of xarray's readers of the format: chunksizes, zlib, complevel and others."""
    endless: frozenset[str] = frozenset()
    """Names of its unlimited axes."""
    names: tuple[str | None, ...] | None = None
    """Names of its axes."""
    scales: dict[str, tuple[float, str | None]] = field(default_factory=dict)
    """Distance of neighbouring elements and its unit by axis name, where the file states them."""
    order: tuple[int, ...] | None = None
    """Axes of a chunk in storage order, slowest first; None for the array's own order."""

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of chunks along each axis."""
        return tuple(map(ceil_div, self.shape, self.chunks))

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, with 16 for a string of any length."""
        return math.prod(self.shape) * (16 if self.dtype == "O" else np.dtype(self.dtype).itemsize)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkTable:
    """Locations of the chunks of an array in its file."""

    counts: tuple[int, ...]
    """Number of chunks along each axis."""
    offsets: np.ndarray
    """Offset of each chunk in bytes, in C order."""
    nbytes: np.ndarray
    """Size of each chunk in bytes; 0 for a missing one."""

    def place(self, index: tuple[int, ...]) -> tuple[int, int] | None:
        """Return the offset and size in bytes of a chunk; None if it is not stored."""
        number = ravel(index, self.counts)
        nbytes = int(self.nbytes[number])
        return (int(self.offsets[number]), nbytes) if nbytes else None


class Reader(Protocol):
    """Reader of the arrays of a file."""

    def facts(self, file: Readable, names: tuple[str, ...], *, brief: bool = False) -> list[Facts]:
        """Return the facts of some arrays; with ``brief``, only attributes that define the meaning of values."""

    def table(self, file: Readable, name: str, facts: Facts) -> ChunkTable:
        """Return the locations of the chunks of an array."""

    def stored_bytes(self, file: Readable, name: str) -> int:
        """Return the stored bytes of an array in the file."""

    def read(self, file: Readable, name: str, section: tuple[slice, ...]) -> np.ndarray:
        """Read elements by the format's own library."""


class FileParts(NamedTuple):
    """Arrays and groups in a file."""

    arrays: tuple[str, ...]
    """Paths of all arrays; "" for a file that is one array."""
    groups: dict[str, Document]
    """Attributes of all groups, by path; "" is the file itself."""
    skipped: dict[str, str]
    """Reasons why arrays are left out, by path, as the end of a sentence."""


class Format(Reader, Protocol):
    """A file format: an object registered by its module in `FORMATS`."""

    extra: str
    """Our extra with the package that the format needs."""

    def parts(self, file: Readable) -> FileParts:
        """Return the arrays and groups in a file."""


FORMATS: dict[str, Format] = {}
"""Readers by format name, registered by their modules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacked:
    """Reader of files with arrays joined along a new first axis of length one."""

    format: Reader
    """Reader of the stored arrays."""
    dim: str
    """Name of the new axis."""
    names: frozenset[str]
    """Paths of the arrays with the new axis."""

    def facts(self, file: Readable, names: tuple[str, ...], *, brief: bool = False) -> list[Facts]:
        """Return the facts of some arrays, with the new axis."""
        found = self.format.facts(file, names, brief=brief)
        return [self._with_axis(f) if n in self.names else f for n, f in zip(names, found, strict=True)]

    def _with_axis(self, facts: Facts) -> Facts:
        named = facts.names or (None,) * len(facts.shape)
        return replace(
            facts,
            shape=(1, *facts.shape),
            chunks=(1, *facts.chunks),
            names=(self.dim, *named),
            order=None if facts.order is None else (0, *(axis + 1 for axis in facts.order)),
            encoding={},
        )

    def table(self, file: Readable, name: str, facts: Facts) -> ChunkTable:
        """Return the locations of the chunks, unchanged by the new axis."""
        if name not in self.names:
            return self.format.table(file, name, facts)
        order = None if facts.order is None else tuple(axis - 1 for axis in facts.order[1:])
        stored = replace(facts, shape=facts.shape[1:], chunks=facts.chunks[1:], order=order)
        table = self.format.table(file, name, stored)
        return replace(table, counts=(1, *table.counts))

    def stored_bytes(self, file: Readable, name: str) -> int:
        return self.format.stored_bytes(file, name)

    def read(self, file: Readable, name: str, section: tuple[slice, ...]) -> np.ndarray:
        """Read elements, with the new axis."""
        if name not in self.names:
            return self.format.read(file, name, section)
        return np.asarray(self.format.read(file, name, section[1:]))[np.newaxis][section[:1]]


def is_coordinate(name: str, facts: Facts) -> bool:
    """Return whether an array has one axis, named like itself."""
    return facts.names == (name.rpartition("/")[2],)


def document(facts: Facts) -> Document:
    """Return the Zarr format 3 metadata of an array."""
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(facts.shape),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(facts.chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        **_typed(facts),
        "codecs": _codecs(facts),
        "attributes": facts.attributes,
        **({"dimension_names": list(facts.names)} if facts.names else {}),
        "storage_transformers": [],
    }


def _typed(facts: Facts) -> Document:
    if facts.dtype == "O":
        return {"data_type": "string", "fill_value": ""}
    dtype = np.dtype(facts.dtype)
    made = parse_dtype(dtype.newbyteorder("="), zarr_format=3)
    fill = np.zeros((), dtype)[()] if facts.fill is None else np.asarray(facts.fill, dtype.newbyteorder("="))[()]
    return {"data_type": made.to_json(zarr_format=3), "fill_value": made.to_json_scalar(fill, zarr_format=3)}


def _codecs(facts: Facts) -> list[Document]:
    if facts.dtype == "O":
        return [{"name": "vlen-utf8"}]
    dtype = np.dtype(facts.dtype)
    endian = {"configuration": {"endian": "big" if dtype.str[0] == ">" else "little"}} if dtype.itemsize > 1 else {}
    turned = [] if facts.order is None else [{"name": "transpose", "configuration": {"order": list(facts.order)}}]
    filters = [json.loads(each) for each in facts.filters]
    named = {"name": FILTERS, "configuration": {"filters": filters, "library": facts.library}}
    return [*turned, {"name": "bytes", **endian}, *([named] if filters or facts.library else [])]


def rows_of(shape: tuple[int, ...], itemsize: int, most: int = ROW_BYTES) -> tuple[int, ...]:
    """Return chunk lengths for a contiguous array, with about ``most`` contiguous bytes per chunk."""
    chunks = list(shape)
    for axis in range(len(shape)):
        inner = itemsize * int(np.prod(shape[axis + 1 :], dtype=np.int64))
        chunks[axis] = max(min(most // max(inner, 1), shape[axis]), 1)
        if chunks[axis] > 1 or inner <= most:
            break
    return tuple(max(c, 1) for c in chunks)


def in_one_piece(facts: Facts, offset: int) -> ChunkTable:
    """Return the locations of the chunks by `rows_of` of a contiguous array at ``offset``."""
    order = facts.order or tuple(range(len(facts.shape)))
    size, steps = np.dtype(facts.dtype).itemsize, dict[int, int]()
    for axis in reversed(order):
        steps[axis], size = size, size * facts.shape[axis]
    offsets = np.full((1,) * len(order), offset, np.int64)
    for axis, (count, chunk) in enumerate(zip(facts.counts, facts.chunks, strict=True)):
        along = np.arange(count, dtype=np.int64) * chunk * steps[axis]
        offsets = offsets + along.reshape(-1, *(1,) * (len(order) - axis - 1))
    nbytes = int(np.prod(facts.chunks, dtype=np.int64)) * np.dtype(facts.dtype).itemsize
    return ChunkTable(counts=facts.counts, offsets=offsets.reshape(-1), nbytes=np.full(offsets.size, nbytes))


def whole_chunk(data: np.ndarray, chunks: tuple[int, ...], beyond: Any) -> np.ndarray:
    """Return a part of a chunk padded to its full length."""
    if data.shape == chunks:
        return np.ascontiguousarray(data)
    out = np.full(chunks, beyond, data.dtype)
    out[tuple(map(slice, data.shape))] = data
    return out


def file_name(file: Readable) -> str:
    return file if isinstance(file, str) else "the file"


@contextmanager
def opened_file(file: Readable, kind: str) -> Iterator[BinaryIO]:
    if not isinstance(file, str):
        yield file
        return
    try:
        with open(file, "rb", opener=open_regular) as opened:
            yield opened
    except OSError as error:
        raise NotFoundError(f"{file} cannot be opened as a {kind} file: {error.strerror}") from error
