"""NetCDF-3 files: variables located by the header; versions 1 (classic), 2 (64-bit) and 5 (64-bit data).

    header   records n, dimensions, attributes, variables: type, dimensions, begin
    fixed    a: contiguous from its begin
    records  b0 c0 | b1 c1 | b2 c2 | …      a record holds one row of every variable with the unlimited dimension

Format: NetCDF Users Guide, "File Format Specifications". scipy and kerchunk read versions 1 and 2 only, and a remote
file whole; the header alone suffices here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any, BinaryIO

import numpy as np
from numpy.lib.stride_tricks import as_strided

from oocarrays.errors import NotFoundError, RunError
from oocarrays.plan.documents import Document
from oocarrays.storage.foreign.facts import (
    FORMATS,
    ChunkTable,
    Facts,
    FileParts,
    Readable,
    file_name,
    in_one_piece,
    opened_file,
    rows_of,
)
from oocarrays.storage.foreign.packing import PACKED, coded_fill

TYPES = ("", "i1", "S1", ">i2", ">i4", ">f4", ">f8", "u1", ">u2", ">u4", ">i8", ">u8")
"""Element types by number."""
LEAST_ROW = 2**16
"""Minimum bytes of a record's row that is a chunk by itself."""
LONGEST_READ = 2**20
"""Maximum bytes read at a time across records with small rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable as described by the header."""

    shape: tuple[int, ...]
    """Extent of each axis, in elements."""
    names: tuple[str, ...]
    """Names of the axes."""
    dtype: str
    """Type of an element, with its byte order."""
    attributes: dict[str, Any]
    """Attributes: texts, numbers and arrays of numbers."""
    begin: int
    """Offset of the first element, in bytes."""
    records: bool
    """Whether the first axis is the unlimited one."""

    @property
    def row_bytes(self) -> int:
        """Bytes of the row in one record; all bytes of a variable without records."""
        return int(np.prod(self.shape[self.records :], dtype=np.int64)) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Header of a file."""

    attributes: Document
    """Attributes of the file."""
    variables: dict[str, Variable]
    """All variables, by name."""
    record_bytes: int
    """Bytes from one record to the next."""
    endless: frozenset[str]
    """Name of the unlimited dimension, if any."""


class Netcdf3:
    """NetCDF-3 files."""

    extra = ""

    def parts(self, file: Readable) -> FileParts:
        header = _header(file)
        attributes = {name: _plain(value) for name, value in header.attributes.items()}
        return FileParts(tuple(header.variables), {"": attributes}, {})

    def facts(self, file: Readable, names: tuple[str, ...], *, brief: bool = False) -> list[Facts]:
        header = _header(file)
        return [_facts(header, name, file) for name in names]

    def table(self, file: Readable, name: str, facts: Facts) -> ChunkTable:
        header = _header(file)
        said = header.variables[name]
        if not said.records or header.record_bytes == said.row_bytes:
            return in_one_piece(facts, said.begin)
        row = in_one_piece(replace(facts, shape=facts.shape[1:], chunks=facts.chunks[1:], order=None), said.begin)
        starts = np.arange(facts.shape[0], dtype=np.int64)[:, None] * header.record_bytes
        return ChunkTable(
            counts=facts.counts,
            offsets=(starts + row.offsets).reshape(-1),
            nbytes=np.tile(row.nbytes, facts.shape[0]),
        )

    def stored_bytes(self, file: Readable, name: str) -> int:
        said = _header(file).variables[name]
        return said.row_bytes * (said.shape[0] if said.records else 1)

    def read(self, file: Readable, name: str, section: tuple[slice, ...]) -> np.ndarray:
        """Read rows of records, and select elements from them."""
        header = _header(file)
        said = header.variables[name]
        shape = said.shape or (1,)
        section = section or (slice(0, 1),)
        rows, inner = range(*section[0].indices(shape[0])), shape[1:]
        row = int(np.prod(inner, dtype=np.int64)) * np.dtype(said.dtype).itemsize
        with opened_file(file, "NetCDF-3") as opened:
            data = _rows(opened, said.begin, header.record_bytes if said.records else row, row, rows)
        elements = data.view(said.dtype).reshape(len(rows), *inner)[(slice(None), *section[1:])]
        return elements if said.shape else elements[0]


def _rows(opened: BinaryIO, begin: int, step: int, nbytes: int, rows: range) -> np.ndarray:
    """Read rows of ``nbytes`` bytes at a stride of ``step`` bytes, several at a time if they are close."""
    out = np.zeros((len(rows), nbytes), "u1")
    several = max(LONGEST_READ // max(step, 1), 1)
    for first in range(0, len(rows), several):
        some = rows[first : first + several]
        opened.seek(begin + some[0] * step)
        data = np.frombuffer(opened.read((len(some) - 1) * step + nbytes), "u1")
        if len(data) < (len(some) - 1) * step + nbytes:
            raise RunError("a NetCDF-3 file has become shorter since it was opened")
        out[first : first + several] = as_strided(data, (len(some), nbytes), (step, 1), writeable=False)
    return out


FORMATS["netcdf3"] = Netcdf3()


def _facts(header: Header, name: str, file: Readable) -> Facts:
    said = header.variables.get(name)
    if said is None:
        raise NotFoundError(f"no array {name} in {file_name(file)}")
    size = np.dtype(said.dtype).itemsize
    apart = said.records and header.record_bytes != said.row_bytes
    mapped = not apart or said.row_bytes >= LEAST_ROW
    chunks = (1, *rows_of(said.shape[1:], size)) if apart and mapped else rows_of(said.shape, size)
    attributes = {key: _plain(value) for key, value in said.attributes.items()}
    if "_FillValue" in said.attributes:
        attributes["_FillValue"] = coded_fill(np.ravel(said.attributes["_FillValue"])[0])
    native = {key: value for key, value in said.attributes.items() if key in PACKED}
    if np.dtype(said.dtype).kind == "S":
        native = {key: value.encode() if isinstance(value, str) else value for key, value in native.items()}
    return Facts(
        shape=said.shape,
        chunks=chunks,
        dtype=said.dtype,
        library=None if mapped else "netcdf3",
        attributes=attributes,
        native=native,
        endless=header.endless & set(said.names),
        names=said.names,
    )


def _plain(value: Any) -> Any:
    return value if isinstance(value, str) else value.tolist()


def _header(file: Readable) -> Header:
    with opened_file(file, "NetCDF-3") as opened:
        size = opened.seek(0, os.SEEK_END)
        length = 2**16
        while True:
            opened.seek(0)
            head = opened.read(length)
            try:
                return _Reader(head, size).header()
            except EOFError as error:
                if length >= size:
                    raise NotFoundError(f"{file_name(file)} is a damaged NetCDF-3 file: {error}") from None
                length *= 16
            except (ValueError, IndexError, UnicodeDecodeError) as error:
                raise NotFoundError(f"{file_name(file)} is a damaged NetCDF-3 file: {error}") from None


class _Reader:
    """Sequential reader of the parts of a header."""

    def __init__(self, head: bytes, size: int) -> None:
        self._bytes, self._size, self._version = BytesIO(head), size, head[3]
        self._bytes.seek(4)

    def header(self) -> Header:
        records = self._count(streaming=True)
        dims = self._list(10, lambda: (self._text(), self._count()))
        attributes = dict(self._list(12, self._attribute))
        said = self._list(11, self._variable)
        endless = frozenset(name for name, length in dims if length == 0)
        rows = {name: _of(each, dims, 0) for name, each in said}
        in_records = [each for each in rows.values() if each.records]
        padded = sum(-(-each.row_bytes // 4) * 4 for each in in_records)
        step = in_records[0].row_bytes if len(in_records) == 1 else padded
        if records is None:  # written to a pipe
            first = min((each.begin for each in in_records), default=self._size)
            records = (self._size - first) // step if step else 0
        variables = {name: _of(each, dims, records) for name, each in said}
        for name, each in variables.items():
            self._check_end(name, each, step)
        return Header(attributes=attributes, variables=variables, record_bytes=step, endless=endless)

    def _check_end(self, name: str, said: Variable, step: int) -> None:
        last = (said.shape[0] - 1) * step if said.records else 0
        end = said.begin + last + said.row_bytes
        if last >= 0 and said.row_bytes and end > self._size:
            raise ValueError(f"{name} ends at byte {end}, and the file at byte {self._size}")

    def _take(self, nbytes: int) -> bytes:
        data = self._bytes.read(nbytes)
        if len(data) < nbytes:
            raise EOFError("it ends within its header")
        return data

    def _integer(self, nbytes: int) -> int:
        return int.from_bytes(self._take(nbytes), "big")

    def _count(self, *, streaming: bool = False) -> Any:
        nbytes = 8 if self._version == 5 else 4
        number = self._integer(nbytes)
        return None if streaming and number == 2 ** (8 * nbytes) - 1 else number

    def _padded(self, nbytes: int) -> bytes:
        data = self._take(nbytes)
        self._take(-nbytes % 4)
        return data

    def _text(self) -> str:
        return self._padded(self._count()).decode()

    def _list(self, tag: int, each: Any) -> list[Any]:
        found, count = self._integer(4), self._count()
        if found not in (0, tag) or (not found and count):
            raise ValueError("its header has parts that are not known")
        return [each() for _ in range(count)]

    def _values(self) -> Any:
        dtype = self._type()
        count = self._count()
        data = self._padded(count * np.dtype(dtype).itemsize)
        if dtype == "S1":
            return data.rstrip(b"\0").decode(errors="replace")
        values = np.frombuffer(data, dtype).astype(np.dtype(dtype).newbyteorder("="))
        return values[0] if len(values) == 1 else values

    def _type(self) -> str:
        number = self._integer(4)
        if not 0 < number < len(TYPES):
            raise ValueError(f"type {number} is not one of its types")
        return TYPES[number]

    def _attribute(self) -> tuple[str, Any]:
        return self._text(), self._values()

    def _variable(self) -> tuple[str, Any]:
        name = self._text()
        dims = [self._count() for _ in range(self._count())]
        attributes = dict(self._list(12, self._attribute))
        dtype = self._type()
        self._count()  # its size in bytes, too small a field for large ones
        return name, (dims, attributes, dtype, self._integer(4 if self._version == 1 else 8))


def _of(said: Any, dims: list[tuple[str, int]], records: int) -> Variable:
    ids, attributes, dtype, begin = said
    named = [dims[each] for each in ids]
    in_records = bool(named) and named[0][1] == 0
    shape = tuple(length or (records if axis == 0 else 0) for axis, (_, length) in enumerate(named))
    names = tuple(name for name, _ in named)
    return Variable(shape=shape, names=names, dtype=dtype, attributes=attributes, begin=begin, records=in_records)
