"""Facts of an array in a file of another format, sufficient to read its chunks in place.

a.nc    air    shape, type, chunk, filters, attributes  ─► Facts        read when the array is opened
               chunk 0: bytes 4016 … 9120
               chunk 1: bytes 9120 … 13977              ─► ChunkTable   read with the first chunks

A format is a parser to these facts. Everything behind them is the same for all formats: see `arrays` and `store`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np
from numpy.lib.stride_tricks import as_strided
from zarr.dtype import parse_dtype

from oocarrays.errors import NotFoundError, RunError
from oocarrays.mapping.grid import ceil_div, ravel
from oocarrays.plan.documents import Document
from oocarrays.storage.foreign.filters import FILTERS
from oocarrays.storage.local.fs import open_regular

Readable = str | BinaryIO
"""File argument of libraries: its path, or an object that reads it."""
ROW_BYTES = 2**22
"""Approximate bytes of a chunk of a file without chunks."""
LONGEST_READ = 2**20
"""Maximum bytes read at a time across rows of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
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
    offset: int | None = None
    """Offset of the first element in bytes, if elements are stored by rows; None for chunks, or if none are stored."""
    step: int = 0
    """Bytes from one row to the next, if other arrays have rows between them; 0 if rows are contiguous."""
    table: ChunkTable | None = None
    """Locations of the chunks of an array without an offset; None if it is not asked for, or a library reads them."""
    stored: int | None = None
    """Stored bytes in the file, if they are asked for; None for the bytes of all elements."""

    @property
    def counts(self) -> tuple[int, ...]:
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


class Manifest(NamedTuple):
    """Arrays and groups in a file."""

    arrays: dict[str, Facts | None]
    """Facts of all arrays, by path; None where `Format.facts` looks them up; "" for a file that is one array."""
    groups: dict[str, Document]
    """Attributes of all groups, by path; "" is the file itself."""
    skipped: dict[str, str]
    """Reasons why arrays are left out, by path, as the end of a sentence."""


class Format(Protocol):
    """A file format: a parser, which its module registers in `FORMATS`."""

    def manifest(self, file: Readable, /) -> Manifest:
        """Return the arrays and groups in a file."""

    def facts(
        self, file: Readable, names: tuple[str, ...], *, brief: bool = False, located: bool = False
    ) -> list[Facts]:
        """Return facts of arrays: ``brief``, with attributes of values only; ``located``, with places and sizes."""

    def read(self, file: Readable, name: str, section: tuple[slice, ...]) -> np.ndarray:
        """Read elements of an array with a ``library`` by it."""


@dataclass(frozen=True, slots=True)
class Headed:
    """Format of files that a header describes whole: every array is stored by rows."""

    parse: Callable[[Readable], Manifest]
    """Parser of the header."""

    def manifest(self, file: Readable) -> Manifest:
        """Return the arrays and groups in a file; a local one is not parsed again until it changes."""
        if not isinstance(file, str):
            return self.parse(file)
        status = os.stat(file)
        return _parsed(self.parse, file, status.st_size, status.st_mtime_ns)

    def facts(
        self, file: Readable, names: tuple[str, ...], *, brief: bool = False, located: bool = False
    ) -> list[Facts]:
        arrays = self.manifest(file).arrays
        if missing := [name for name in names if name not in arrays]:
            raise NotFoundError(f"no array {missing[0]} in {file_name(file)}")
        found: list[Any] = [arrays[name] for name in names]
        return found

    def read(self, file: Readable, name: str, section: tuple[slice, ...]) -> np.ndarray:
        """Read rows of a step, and select elements from them."""
        facts = self.facts(file, (name,))[0]
        rows, inner = range(*section[0].indices(facts.shape[0])), facts.shape[1:]
        with opened_file(file, facts.library or "") as opened:
            data = _rows(opened, facts, math.prod(inner) * np.dtype(facts.dtype).itemsize, rows)
        return data.view(facts.dtype).reshape(len(rows), *inner)[(slice(None), *section[1:])]


@lru_cache(64)
def _parsed(parse: Callable[[Readable], Manifest], path: str, size: int, changed: int) -> Manifest:
    return parse(path)


def _rows(opened: BinaryIO, facts: Facts, nbytes: int, rows: range) -> np.ndarray:
    """Read rows of ``nbytes`` bytes, several at a time if they are close."""
    out, begin = np.zeros((len(rows), nbytes), "u1"), facts.offset or 0
    several = max(LONGEST_READ // max(facts.step, 1), 1)
    for first in range(0, len(rows), several):
        some = rows[first : first + several]
        opened.seek(begin + some[0] * facts.step)
        data = np.frombuffer(opened.read((len(some) - 1) * facts.step + nbytes), "u1")
        if len(data) < (len(some) - 1) * facts.step + nbytes:
            raise RunError("a file has become shorter since it was opened")
        out[first : first + several] = as_strided(data, (len(some), nbytes), (facts.step, 1), writeable=False)
    return out


FORMATS: dict[str, Format] = {}
"""Formats by name, registered by their modules."""


def is_coordinate(name: str, facts: Facts) -> bool:
    """Return whether an array has one axis, named like itself."""
    return facts.names == (name.rpartition("/")[2],)


def document(facts: Facts) -> Document:
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


def rows_of(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return chunk lengths for a contiguous array, with about `ROW_BYTES` contiguous bytes per chunk."""
    chunks = list(shape)
    for axis in range(len(shape)):
        inner = itemsize * int(np.prod(shape[axis + 1 :], dtype=np.int64))
        chunks[axis] = max(min(ROW_BYTES // max(inner, 1), shape[axis]), 1)
        if chunks[axis] > 1 or inner <= ROW_BYTES:
            break
    return tuple(max(c, 1) for c in chunks)


def by_rows(facts: Facts) -> ChunkTable:
    """Return the locations of the chunks by `rows_of` of an array that is stored by rows, or not at all."""
    order = facts.order or tuple(range(len(facts.shape)))
    size, steps = np.dtype(facts.dtype).itemsize, dict[int, int]()
    nbytes = math.prod(facts.chunks) * size if facts.offset is not None else 0
    for axis in reversed(order):
        steps[axis], size = size, size * facts.shape[axis]
    if facts.step:
        steps[0] = facts.step
    offsets = np.full((1,) * len(order), facts.offset or 0, np.int64)
    for axis, (count, chunk) in enumerate(zip(facts.counts, facts.chunks, strict=True)):
        along = np.arange(count, dtype=np.int64) * chunk * steps[axis]
        offsets = offsets + along.reshape(-1, *(1,) * (len(order) - axis - 1))
    return ChunkTable(counts=facts.counts, offsets=offsets.reshape(-1), nbytes=np.full(offsets.size, nbytes))


def whole_chunk(data: np.ndarray, chunks: tuple[int, ...], beyond: Any) -> np.ndarray:
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
