"""One cell at a time: a function is called with the stream of each cell in turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from oocarrays.errors import SelectionError, UnsupportedError
from oocarrays.mapping.given import chosen, element_type, whole
from oocarrays.storage.streams.part import RanksPart
from oocarrays.streaming.items import as_items, check_view
from oocarrays.streaming.text import printed, scanned, tokens_of


class Cell:
    """Stream of one cell; its writes reach the file after all cells have had their turn."""

    __slots__ = ("_end", "_part", "_position", "_stored", "place", "written")

    def __init__(self, part: RanksPart, place: int, position: int, end: int) -> None:
        self._part = part
        self.place = place
        """Its number among the cells of this process."""
        self._position = position
        self._stored = self._end = end
        self.written: list[tuple[int, bytes]] = []
        """Offset and bytes of each of its writes."""

    @property
    def number(self) -> int:
        """Its number among all cells."""
        return self.place + self._part.lower

    @property
    def index(self) -> tuple[int, ...]:
        shape = self._part.file.meta.cells.shape
        return tuple(int(k) for k in np.unravel_index(self.number, shape)) if shape else ()

    def read(self, n: int = 1, dtype: Any = None) -> np.ndarray:
        """Read items, at most ``n``; -1 for all that are left."""
        item = self._part.item
        if dtype is not None:
            item = element_type(dtype)
            check_view(self._part.item, item, "the stream")
        n = n if type(n) is int else whole(n, "n")
        left = max(self._end - self._position, 0) // item.itemsize
        return np.frombuffer(self._bytes((left if n < 0 else min(n, left)) * item.itemsize), item)

    def _bytes(self, count: int) -> bytes:
        """Return the next bytes, from the file and from the cell's own writes since."""
        start, self._position = self._position, self._position + count
        stored = min(max(self._stored - start, 0), count)
        found = self._part.ahead.one(self.place, start, stored).tobytes() if stored else b""
        if not self.written:
            return found
        data = bytearray(found.ljust(count, b"\0"))
        for offset, written in self.written:
            lower, upper = max(offset, start), min(offset + len(written), start + count)
            if lower < upper:
                data[lower - start : upper - start] = written[lower - offset : upper - offset]
        return bytes(data)

    def readline(self) -> str:
        """Read a line of text, with its end; empty if nothing is left."""
        start, line = self._position, b""
        while self._position < self._end and b"\n" not in line:
            line += self._bytes(min(256, self._end - self._position))
        line = line[: line.index(b"\n") + 1] if b"\n" in line else line
        self._position = start + len(line)
        return line.decode(errors="replace")

    def write(self, values: Any) -> None:
        """Write items, or bytes, or text."""
        if not self._part.writes:
            raise UnsupportedError("the streams are open for reading: open them with mode='a' or 'r+' to write")
        if isinstance(values, str | bytes):
            data = values.encode() if isinstance(values, str) else values
        else:
            data = np.ascontiguousarray(as_items(values, self._part.item)).tobytes()
        if self._part.appends:
            self._position = self._end
        if self.written and self.written[-1][0] + len(self.written[-1][1]) == self._position:
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
        """Read text as far as it matches a format of C, and return the values of the matched conversions.

        The list is empty if none matched; `eof` returns whether text is left.
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
        return self._position >= self._end


def returned(results: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray | None:
    """Return the results of a function for each cell as an array; None if all are None."""
    if all(result is None for result in results):
        return None
    if all(isinstance(result, int | float | complex | np.number | np.bool_) for result in results):
        return np.array(results).reshape(shape)
    out = np.empty(len(results), object)
    out[:] = results
    return out.reshape(shape)
