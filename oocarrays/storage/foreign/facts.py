"""What is known of an array in a file of another format, as data: enough to read its chunks where they lie.

a.nc    air    shape, type, chunk, filters, attributes  ─► Facts        looked at when it is opened
               chunk 0: bytes 4016 … 9120
               chunk 1: bytes 9120 … 13977              ─► ChunkTable   looked at when its chunks are read
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Protocol

import numpy as np
from zarr.dtype import parse_dtype

from oocarrays.errors import NotFoundError
from oocarrays.mapping.grid import ceil_div, ravel
from oocarrays.plan.documents import Document

Readable = str | BinaryIO
"""A file as libraries open it: its path, or what reads it."""
FILTERS = "oocarrays.filters"
"""The codec that stands for all filters of a chunk, by its name in documents."""
ROW_BYTES = 2**22
"""Bytes of a chunk of a file that has none: about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """An array in a file."""

    shape: tuple[int, ...]
    """Extent of each axis, in elements."""
    chunks: tuple[int, ...]
    """Length of a chunk in each axis, in elements."""
    dtype: Any
    """The type of an element, as numpy writes it, or a structure; ``"O"`` for texts of any length."""
    filters: tuple[str, ...] = ()
    """What was done to the bytes of a chunk, the first one first: each a codec of numcodecs, as JSON."""
    library: str | None = None
    """What reads it, where its chunks cannot be read by their bytes; None where they can."""
    fill: Any = None
    """The value of what is not stored; None for zero."""
    attributes: Document = field(default_factory=dict)
    """Its attributes, as JSON has them."""
    native: Document = field(default_factory=dict)
    """Those of its attributes that say what values stand for, of the types they have in the file."""
    encoding: Document = field(default_factory=dict)
    """How it is stored, as xarray's readers of the format call that: chunksizes, zlib, complevel and others."""
    endless: frozenset[str] = frozenset()
    """Names of its axes that have no end."""
    names: tuple[str | None, ...] | None = None
    """Names of its axes."""
    scales: dict[str, tuple[float, str | None]] = field(default_factory=dict)
    """Distance of two elements and its unit by the name of the axis, where the file states them."""
    order: tuple[int, ...] | None = None
    """The axes from the slowest to the fastest, as elements lie in a chunk; None where that is their own order."""

    @property
    def counts(self) -> tuple[int, ...]:
        """Chunks along each axis."""
        return tuple(map(ceil_div, self.shape, self.chunks))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkTable:
    """Where the chunks of an array lie in its file."""

    counts: tuple[int, ...]
    """Chunks along each axis."""
    offsets: np.ndarray
    """Where each begins, in bytes, the last axis running fastest."""
    nbytes: np.ndarray
    """Bytes of each; 0 for one that is not stored."""

    def place(self, index: tuple[int, ...]) -> tuple[int, int] | None:
        """Where a chunk begins, and its bytes; None where it is not stored."""
        number = ravel(index, self.counts)
        nbytes = int(self.nbytes[number])
        return (int(self.offsets[number]), nbytes) if nbytes else None


class Reader(Protocol):
    """Reads arrays of a file."""

    def facts(self, file: Readable, names: tuple[str, ...], *, brief: bool = False) -> list[Facts]:
        """Facts of some arrays; without attributes that say nothing of values, where they are to be ``brief``."""

    def table(self, file: Readable, name: str, facts: Facts) -> ChunkTable:
        """Where the chunks of an array lie."""

    def stored_bytes(self, file: Readable, name: str) -> int:
        """Bytes of an array in the file, as they are stored."""

    def read(self, file: Readable, name: str, section: tuple[slice, ...]) -> np.ndarray:
        """Read elements by the format's own library."""


class Format(Reader, Protocol):
    """A format of files: each is a module's object, known by its name in `FORMATS`."""

    extra: str
    """Our extra that brings the package that it needs."""

    def groups(self, file: Readable) -> dict[str, Document]:
        """Attributes of all groups in a file, by their paths; "" is the file itself."""

    def arrays(self, file: Readable) -> tuple[str, ...]:
        """Paths of all arrays in a file; "" where the file is one array."""

    def skipped(self, file: Readable) -> dict[str, str]:
        """Return why arrays in a file are left out, by their paths, as the end of a sentence."""


FORMATS: dict[str, Format] = {}
"""What reads files of each format: each module enters its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacked:
    """Reader of files whose arrays have a new first axis of length one, along which the files are joined."""

    format: Reader
    """Reader of the arrays as they are stored."""
    dim: str
    """Name of the new axis."""
    names: frozenset[str]
    """Paths of the arrays that have it."""

    def facts(self, file: Readable, names: tuple[str, ...], *, brief: bool = False) -> list[Facts]:
        """Facts of some arrays, with the new axis."""
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
        """Where the chunks of an array lie: the new axis does not move them."""
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
    """Return whether an array has one axis and the name of that axis."""
    return facts.names == (name.rpartition("/")[2],)


def document(facts: Facts) -> Document:
    """Return the metadata of an array as Zarr writes them in format 3."""
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
    """Cut an array that lies in one piece in chunks that do so, too, of ``most`` bytes, about."""
    chunks = list(shape)
    for axis in range(len(shape)):
        inner = itemsize * int(np.prod(shape[axis + 1 :], dtype=np.int64))
        chunks[axis] = max(min(most // max(inner, 1), shape[axis]), 1)
        if chunks[axis] > 1 or inner <= most:
            break
    return tuple(max(c, 1) for c in chunks)


def in_one_piece(facts: Facts, offset: int) -> ChunkTable:
    """Return where chunks lie in an array that lies in one piece from ``offset`` on, cut by `rows_of`."""
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


def index_of(name: str) -> tuple[int, ...]:
    return tuple(map(int, name.split("/")[1:]))


def whole_chunk(data: np.ndarray, chunks: tuple[int, ...], beyond: Any) -> np.ndarray:
    """A chunk of its full length, of what the array has of it."""
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
        with open(file, "rb") as opened:
            yield opened
    except OSError as error:
        raise NotFoundError(f"{file} cannot be opened as a {kind} file: {error.strerror}") from error
