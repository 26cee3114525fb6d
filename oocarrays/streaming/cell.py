"""One cell's stream, as C's functions see a file: what a function gets that `Streams.each` calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from oocarrays.errors import SelectionError, UnsupportedError
from oocarrays.mapping.given import chosen, element_type, whole
from oocarrays.storage.streams.part import RanksPart
from oocarrays.streaming.items import check_view
from oocarrays.streaming.text import printed, scanned, tokens_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFile:
    """The file of all cells, as each of them sees it."""

    part: RanksPart
    """The streams."""
    dtype: np.dtype
    """Type of an item."""
    mode: str
    """The mode that the file was opened in."""
    items: Callable[[Any], np.ndarray]
    """Makes values items."""


class Cell:
    """The stream of one cell; what it writes is written when all cells have had their turn, or when it reads."""

    def __init__(self, shared: SharedFile, place: int, position: int, end: int) -> None:
        self._shared = shared
        self.place = place
        """Its number among the cells of this process."""
        self.number = place + shared.part.lower
        """Its number among all cells."""
        self._position = position
        self._end = end
        self.written: list[tuple[int, bytes]] = []
        """Where it wrote, and what."""

    @property
    def index(self) -> tuple[int, ...]:
        """Its index in the shape of all cells."""
        shape = self._shared.part.file.meta.cells.shape
        return tuple(int(k) for k in np.unravel_index(self.number, shape)) if shape else ()

    def read(self, n: int = 1, dtype: Any = None) -> np.ndarray:
        """Read as many items as there are, at most ``n``; -1 for all that are left."""
        item = self._shared.dtype if dtype is None else element_type(dtype)
        check_view(self._shared.dtype, item, "the stream")
        n = whole(n, "n")
        left = max(self._end - self._position, 0) // item.itemsize
        return np.frombuffer(self._bytes((left if n < 0 else min(n, left)) * item.itemsize), item)

    def _bytes(self, count: int) -> bytes:
        """The next bytes, of what is in the file and of what the cell itself has written since."""
        start, self._position = self._position, self._position + count
        there = min(max(self._shared.part.end_of(self.place) - start, 0), count)
        found = bytearray(count)
        if there:
            one = np.array([self.number]), np.array([start]), np.array([there])
            found[:there] = self._shared.part.read(*one).tobytes()
        for offset, data in self.written:
            lower, upper = max(offset, start), min(offset + len(data), start + count)
            if lower < upper:
                found[lower - start : upper - start] = data[lower - offset : upper - offset]
        return bytes(found)

    def readline(self) -> str:
        """Read a line of text, with its end; empty where nothing is left."""
        start, line = self._position, b""
        while self._position < self._end and b"\n" not in line:
            line += self._bytes(min(256, self._end - self._position))
        line = line[: line.index(b"\n") + 1] if b"\n" in line else line
        self._position = start + len(line)
        return line.decode(errors="replace")

    def write(self, values: Any) -> None:
        """Write items, or bytes, or text."""
        if self._shared.mode == "r":
            raise UnsupportedError("the streams are open for reading: open them with mode='a' or 'r+' to write")
        if isinstance(values, str | bytes):
            data = values.encode() if isinstance(values, str) else values
        else:
            data = np.ascontiguousarray(self._shared.items(values)).tobytes()
        if self._shared.mode == "a":
            self._position = self._end
        if self.written and sum(map(len, self.written[-1][1:])) + self.written[-1][0] == self._position:
            offset, former = self.written.pop()
            self.written.append((offset, former + data))
        elif data:
            self.written.append((self._position, data))
        self._position += len(data)
        self._end = max(self._end, self._position)

    def printf(self, format: str, *values: Any) -> None:
        """Write text in a format of C."""
        self.write(printed(format, values))

    def scanf(self, format: str) -> list[Any]:
        """Read text as far as it matches a format of C: the values of the conversions that matched.

        None of them matched where the list is empty; `eof` says whether text was left.
        """
        start, tokens = self._position, tokens_of(format)
        values, place, _ = scanned(tokens, self._bytes(max(self._end - start, 0)))
        self._position = start + place
        return values

    def seek(self, offset: int, whence: int = 0) -> None:
        """Move the position: bytes from the beginning, from the position, or from the end."""
        position = (0, self._position, self._end)[chosen(whence, "whence", (0, 1, 2))] + whole(offset, "offset")
        if not 0 <= position < 2**63:
            raise SelectionError(f"seek to byte {position} is before the beginning of the stream, or beyond 2**63")
        self._position = position

    def tell(self) -> int:
        """Return the bytes before the position."""
        return self._position

    def eof(self) -> bool:
        """Whether nothing is left."""
        return self._position >= self._end
