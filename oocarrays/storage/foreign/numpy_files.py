"""Files of numpy, and raw ones: one array in one piece, in rows or in columns, which is cut in chunks that lie so, too.

a.npy   header │ row 0 row 1 … │ …          chunk i: rows, byte after byte
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocarrays.errors import NotFoundError, UnsupportedError
from oocarrays.plan.documents import Document
from oocarrays.storage.foreign.facts import FORMATS, ChunkTable, Facts, Readable, in_one_piece, rows_of

SIGNATURE = b"\x93NUMPY"
"""How such files begin."""


class Npy:
    """Files of ``numpy.save``."""

    extra = ""

    def groups(self, file: Readable) -> dict[str, Document]:
        """Return none: the file is an array."""
        return {}

    def arrays(self, file: Readable) -> tuple[str, ...]:
        """Return the file itself."""
        return ("",)

    def facts(self, file: Readable, names: tuple[str, ...], *, brief: bool = False) -> list[Facts]:
        """Return the facts of its header."""
        return [_header(file)[0] for _ in names]

    def table(self, file: Readable, name: str, facts: Facts) -> ChunkTable:
        """Where its chunks lie."""
        return in_one_piece(facts, _header(file)[1])

    def read(self, file: Readable, name: str, section: tuple[slice, ...]) -> np.ndarray:
        """Raise: it is never read so."""
        raise NotImplementedError


class Raw(Npy):
    """Files that are nothing but elements: what they are is said by who opens them."""

    def table(self, file: Readable, name: str, facts: Facts) -> ChunkTable:
        """Where chunks lie in a file whose first element is its first byte."""
        return in_one_piece(facts, int(name or 0))


FORMATS["npy"] = Npy()
FORMATS["raw"] = Raw()


def _header(file: Readable) -> tuple[Facts, int]:
    if isinstance(file, str):
        with open(file, "rb") as opened:
            return _read_header(opened, file)
    file.seek(0)
    return _read_header(file, "the file")


def _read_header(file: Any, name: str) -> tuple[Facts, int]:
    try:
        version = np.lib.format.read_magic(file)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, columns, dtype = reader(file)
    except ValueError as error:
        raise NotFoundError(f"{name} cannot be opened as a file of numpy: {error}") from error
    if dtype.hasobject or dtype.fields or dtype.kind not in "biufcSU":
        raise UnsupportedError(f"{name} has elements of type {dtype}: Zarr has none such")
    return piece_facts(shape, dtype, columns=columns), file.tell()


def piece_facts(shape: tuple[int, ...], dtype: np.dtype, *, columns: bool) -> Facts:
    """Facts of an array that lies in one piece, in rows or in columns.

    >>> facts = piece_facts((4, 6), np.dtype("f8"), columns=True)
    >>> facts.chunks, facts.order
    ((4, 6), (1, 0))
    """
    turned = columns and len(shape) > 1
    chunks = rows_of(shape[::-1] if turned else shape, dtype.itemsize)
    return Facts(
        shape=shape,
        chunks=chunks[::-1] if turned else chunks,
        dtype=dtype.str,
        order=tuple(reversed(range(len(shape)))) if turned else None,
    )
