"""Positions of streams, reads from there, and copies of whole streams to an array.

A position is one number if all streams have the same, else one for each cell; None at the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from oocarrays.errors import BudgetError, InputError, SelectionError, UnsupportedError
from oocarrays.mapping.given import chosen, element_type, whole
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.options.chunks import regular_chunks, regular_shards
from oocarrays.plan.documents import Settings
from oocarrays.plan.streams.units import before
from oocarrays.storage.files.array_file import ArrayFile, preview
from oocarrays.storage.files.creating import finish_target
from oocarrays.storage.files.formats import check_shards, compressors_in
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.local.syncing import sync_tree
from oocarrays.storage.streams.part import RanksPart
from oocarrays.storage.streams.readahead import StreamReader
from oocarrays.streaming.ragged import Ragged, as_array, as_items, check_view
from oocarrays.streaming.text import Token, printed, scanned, tokens_of

SHARE = 8
"""Divisor of the budget for gathering steps."""


def steps_settings(
    store: StoreLike, shape: tuple[int, ...], cells: tuple[int, ...], item: np.dtype, asked: Settings
) -> Settings:
    given, shards, compressors = asked["chunks"], asked["shards"], asked["compressors"]
    chunks = (1, *cells)
    if given is not None:
        chunks = regular_chunks(given, ChunkGrid.of(shape, chunks), item)
    made: Settings = {"shape": shape, "chunks": chunks, "dtype": item, "compressors": None, "attributes": {}}
    if shards is not None:
        made["shards"] = regular_shards(shards, chunks, shape, item, word="shards={!r}")
        check_shards(chunks, made["shards"], 3, word="shards={!r}")
    if compressors is not None:
        made["compressors"] = compressors_in(3, compressors, item.itemsize)
    if any(each is not None for each in asked.values()):
        preview(made, store)
    return made


def boxes_of(settings: Settings, count: int, budget: int) -> tuple[int, int]:
    """Return the steps and the rows of cells to write together: whole chunks or shards that fit the budget."""
    unit = settings.get("shards") or settings["chunks"]
    (first, second), rows = (*unit, 1)[:2], max((*settings["shape"], 1)[1], 1)
    step, room = max(count, 1) * settings["dtype"].itemsize, budget // SHARE
    if together := room // step // first * first:
        return together, rows
    each = step // rows * first
    fits = room // max(each, 1) // second * second
    if not fits and first > 1:
        raise BudgetError(budget, SHARE * each * second, f"an array in units of {unit}")
    return (first, fits) if fits else (1, rows)


def fill_steps(made: ArrayFile, part: RanksPart, item: np.dtype, fill: Any, boxes: tuple[int, int]) -> None:
    """Write the steps of an array, which becomes one when all are on the device."""
    (steps, rows), array = boxes, made.zarr
    extent, *inner = array.shape[1:] or (1,)
    for first in range(0, extent, rows):
        last = min(first + rows, extent)
        cells = np.arange(first * math.prod(inner), last * math.prod(inner))
        for start in range(0, array.shape[0] if len(cells) else 0, steps):
            stop = min(start + steps, array.shape[0])
            box = (slice(start, stop), slice(first, last))[: array.ndim]
            block = _padded(part, cells, (start, stop), item, fill).T
            array[box] = block.reshape(stop - start, *(last - first, *inner)[: array.ndim - 1])
    if made.folder is not None and part.file.durable:
        sync_tree(made.folder)
    finish_target(made, durable=part.file.durable)


def _padded(part: RanksPart, cells: np.ndarray, steps: tuple[int, int], item: np.dtype, fill: Any) -> np.ndarray:
    """Return some items of some cells as cells × items, with shorter streams filled."""
    start, stop = steps
    ends = part.ends()[cells] // item.itemsize
    counts = np.clip(ends - start, 0, stop - start)
    data = part.fetch(cells, np.minimum(start, ends) * item.itemsize, counts * item.itemsize)
    block = np.full((len(cells), stop - start), fill, item)
    block[np.arange(stop - start) < counts[:, None]] = data.view(item)
    return block


def moved(part: RanksPart, offset: Any, whence: int) -> int | np.ndarray | None:
    chosen(whence, "whence", (0, 1, 2))
    given = as_array(offset, "offset=")
    if given.dtype.kind not in "iu" or given.shape not in ((), part.shape):
        raise InputError(f"offset={offset!r:.80} is no whole number, nor one for each cell of shape {part.shape}")
    if whence == 2 and given.ndim == 0 and given == 0:
        return None if part.writes else simple(part.ends())
    start = 0 if whence == 0 else part.tell() if whence == 1 else part.ends()
    position = start + given.reshape(-1).astype(np.int64) if given.ndim else start + int(given)
    if np.min(position, initial=0) < 0:
        raise SelectionError(f"seek to byte {np.min(position)} is before the beginning of a stream")
    return position if isinstance(position, int) else simple(position)


def simple(position: np.ndarray) -> int | np.ndarray:
    """Return one number for the positions of all cells if they are equal."""
    if len(position) and bool((position == position[0]).all()):
        return int(position[0])
    return position if len(position) else 0


def read_level(reader: StreamReader, items: int, item: np.dtype) -> np.ndarray | None:
    """Read as many items of all cells at one position, as cells × items; return None if a cell has fewer."""
    part, nbytes = reader.part, items * item.itemsize
    position = part.position
    if not isinstance(position, int) or position + nbytes > part.level_end():
        return None
    rows = reader.level(position, nbytes)
    part.position = position + nbytes
    viewed = rows.view(item) if rows.shape[1] and rows.strides[1] == 1 else np.empty((len(rows), 0), item)
    return np.ascontiguousarray(viewed)  # copied as items, many times faster than as bytes


def read_each(reader: StreamReader, n: Any, mask: np.ndarray | None, item: np.dtype) -> Any:
    """Read a number of items of each cell, or of the cells of a mask: an array if all cells have that number."""
    part = reader.part
    counts = _wanted(part, n)
    cells = np.arange(part.count) if mask is None else np.flatnonzero(mask)
    here = slice(None) if mask is None else cells
    position = part.tell()
    left = np.maximum(part.ends() - position, 0)[here] // item.itemsize
    got = left if counts is None else np.minimum(counts[here], left)
    data = reader.read(cells, position[here], got * item.itemsize)
    position[here] += got * item.itemsize
    part.position = simple(position)
    is_full = counts is not None and bool((got == counts[here]).all()) and np.ndim(n) == 0
    values = data.view(item)
    if not is_full:
        all_counts = np.zeros(part.count, np.int64)
        all_counts[here] = got
        return Ragged(all_counts.reshape(part.shape), values)
    within = () if n is None else (int(n),)
    return values.reshape((*(part.shape if mask is None else (len(cells),)), *within))


def scanned_cells(reader: StreamReader, tokens: list[Token]) -> list[tuple[list[Any], bool]]:
    """Match the text of each cell; return its values, and whether its text ended before the next one."""
    part = reader.part
    found: list[tuple[list[Any], int, bool]] = [([], 0, False)] * part.count
    position, ends = part.tell(), part.ends()
    cells, size = np.arange(part.count), 256
    while len(cells):
        rest = np.maximum(ends - position, 0)[cells]
        left = np.minimum(rest, size)
        data = reader.read(cells, position[cells], left).tobytes()
        starts, more = before(left).tolist(), []
        for cell, start, count, all_left in zip(cells.tolist(), starts, left.tolist(), rest.tolist(), strict=True):
            found[cell] = scanned(tokens, data[start : start + count])
            if found[cell][1] == count < all_left:  # the match may continue
                more.append(cell)
        cells, size = np.array(more, np.int64), size * 4
    part.position = simple(position + np.array([place for _, place, _ in found], np.int64))
    return [(values, has_ended) for values, _, has_ended in found]


def _wanted(part: RanksPart, n: Any) -> np.ndarray | None:
    """Return the number of items of each cell; None for all that are left."""
    counts = as_array(1 if n is None else n, "n=")
    if not counts.ndim:
        number = 1 if n is None else min(whole(n, "n", -1), 2**62)
        return None if number == -1 else np.full(part.count, number)
    if counts.shape != part.shape or counts.dtype.kind not in "iu" or (counts < 0).any():
        raise InputError(f"n= of shape {counts.shape} and dtype {counts.dtype} are no counts of shape {part.shape}")
    return counts.reshape(-1).astype(np.int64)


class Cell:
    """Stream of one cell; its writes reach the file after all cells have had their turn."""

    __slots__ = ("_end", "_part", "_position", "_reader", "_stored", "place", "written")

    def __init__(self, reader: StreamReader, place: int, position: int, end: int) -> None:
        self._reader, self._part = reader, reader.part
        self.place = place
        """Its number among the cells of this process."""
        self._position = position
        self._stored = self._end = end
        self.written: list[tuple[int, bytes]] = []
        """Offset and bytes of each of its writes."""

    @property
    def number(self) -> int:
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
        found = self._reader.one(self.place, start, stored).tobytes() if stored else b""
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
        if not data:
            return  # as in C: nothing written moves no position
        if self._part.appends:
            self._position = self._end
        if self.written and self.written[-1][0] + len(self.written[-1][1]) == self._position:
            offset, former = self.written.pop()
            self.written.append((offset, former + data))
        else:
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
