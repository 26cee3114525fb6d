"""NetCDF-3 files: variables located by the header; versions 1 (classic), 2 (64-bit) and 5 (64-bit data).

    header   records n, dimensions, attributes, variables: type, dimensions, begin
    fixed    a: contiguous from its begin
    records  b0 c0 | b1 c1 | b2 c2 | …      a record holds one row of every variable with the unlimited dimension

Format: NetCDF Users Guide, "File Format Specifications". scipy and kerchunk read versions 1 and 2 only, and a remote
file whole; the header alone suffices here.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np

from oocarrays.errors import NotFoundError
from oocarrays.storage.foreign.facts import FORMATS, Facts, Headed, Manifest, Readable, file_name, opened_file, rows_of
from oocarrays.storage.foreign.packing import PACKED, as_json

TYPES = ("", "i1", "S1", ">i2", ">i4", ">f4", ">f8", "u1", ">u2", ">u4", ">i8", ">u8")
"""Element types by number."""
LEAST_ROW = 2**16
"""Minimum bytes of a record's row that is a chunk by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable as described by the header."""

    dims: list[tuple[str, int]]
    """Names and lengths of the axes; length 0 for the unlimited one."""
    dtype: np.dtype
    """Type of an element, with its byte order."""
    attributes: dict[str, Any]
    """Attributes: texts, numbers and arrays of numbers."""
    begin: int
    """Offset of the first element, in bytes."""

    @property
    def records(self) -> bool:
        return bool(self.dims) and self.dims[0][1] == 0

    @property
    def row(self) -> tuple[int, ...]:
        """Extent of the axes in one record; of all axes of a variable without records."""
        return tuple(length for _, length in self.dims[self.records :])

    @property
    def row_bytes(self) -> int:
        return math.prod(self.row) * self.dtype.itemsize

    def facts(self, records: int, step: int) -> Facts:
        """Return the facts of the variable in a file of so many records, with ``step`` bytes between them."""
        shape, size = (records,) * self.records + self.row, self.dtype.itemsize
        apart = self.records and step != self.row_bytes
        mapped = not apart or self.row_bytes >= LEAST_ROW
        native = {key: value for key, value in self.attributes.items() if key in PACKED}
        if self.dtype.kind == "S":
            native = {key: value.encode() if isinstance(value, str) else value for key, value in native.items()}
        return Facts(
            shape=shape,
            chunks=(1, *rows_of(self.row, size)) if apart and mapped else rows_of(shape, size),
            dtype=self.dtype.str,
            library=None if mapped else "netcdf3",
            attributes=as_json(self.attributes),
            native=native,
            endless=frozenset(name for name, length in self.dims if length == 0),
            names=tuple(name for name, _ in self.dims),
            offset=self.begin,
            step=step if apart else 0,
        )


def _manifest(file: Readable) -> Manifest:
    """Return the contents of a file, from a part of it that has the whole header."""
    with opened_file(file, "NetCDF-3") as opened:
        size = opened.seek(0, os.SEEK_END)
        length = 2**16
        while True:
            opened.seek(0)
            head = opened.read(length)
            try:
                return _Reader(head, size).manifest()
            except EOFError as error:
                if length >= size:
                    raise NotFoundError(f"{file_name(file)} is a damaged NetCDF-3 file: {error}") from None
                length *= 16
            except (ValueError, IndexError, UnicodeDecodeError) as error:
                raise NotFoundError(f"{file_name(file)} is a damaged NetCDF-3 file: {error}") from None


FORMATS["netcdf3"] = Headed(_manifest)


class _Reader:
    def __init__(self, head: bytes, size: int) -> None:
        self._bytes, self._size, self._version = BytesIO(head), size, head[3]
        self._bytes.seek(4)

    def manifest(self) -> Manifest:
        records = self._count(streaming=True)
        dims = self._list(10, lambda: (self._text(), self._count()))
        attributes = as_json(dict(self._list(12, self._attribute)))
        variables = dict(self._list(11, lambda: self._variable(dims)))
        rows = [each for each in variables.values() if each.records]
        step = rows[0].row_bytes if len(rows) == 1 else sum(-(-each.row_bytes // 4) * 4 for each in rows)
        if records is None:  # written to a pipe
            records = (self._size - min((each.begin for each in rows), default=self._size)) // step if step else 0
        for name, each in variables.items():
            end = each.begin + each.row_bytes + (records - 1) * step * each.records
            if end > self._size and each.row_bytes and (records or not each.records):
                raise ValueError(f"{name} ends at byte {end}, and the file at byte {self._size}")
        return Manifest({name: each.facts(records, step) for name, each in variables.items()}, {"": attributes}, {})

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

    def _variable(self, dims: list[tuple[str, int]]) -> tuple[str, Variable]:
        name = self._text()
        own = [dims[self._count()] for _ in range(self._count())]
        attributes, dtype = dict(self._list(12, self._attribute)), np.dtype(self._type())
        self._count()  # its size in bytes, too small a field for large ones
        begin = self._integer(4 if self._version == 1 else 8)
        return name, Variable(dims=own, dtype=dtype, attributes=attributes, begin=begin)
