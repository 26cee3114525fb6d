"""Streams as a person holds them: one of each cell, with the meaning of C's calls and the manners of numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any

import numpy as np
import zarr

from oocarrays.errors import InputError, OocError, SelectionError, UnsupportedError
from oocarrays.mapping.given import element_type, whole
from oocarrays.plan.streams.calls import Call, CellBytes, Events, Level
from oocarrays.plan.streams.meta import Meta
from oocarrays.plan.streams.modes import Mode, ModeAnswer
from oocarrays.plan.streams.units import before
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.streams.part import RanksPart, committed
from oocarrays.storage.streams.stream_file import StreamFile, new_array
from oocarrays.streaming.cell import Cell, SharedFile
from oocarrays.streaming.ragged import Ragged, ragged_of
from oocarrays.streaming.text import printed, scanned, tokens_of

WHENCES = (0, 1, 2)
"""From the beginning, from where a stream stands, from its end: os.SEEK_SET, os.SEEK_CUR, os.SEEK_END."""
TEXT_AHEAD = 256
"""Bytes of each cell that scanf looks at first."""


class Streams:
    """The streams of the cells of a shape; `open_streams` makes it.

    Positions are bytes, as in C; counts are items.
    """

    def __init__(self, file: StreamFile, part: RanksPart, mode: str) -> None:
        self._file = file
        self._part = part
        self._opened_as = mode
        self._failure: BaseException | None = None
        self._closed = False
        self._shape, self._item, self._cells = part.shape, file.meta.item, part.count
        self._item_bytes = self._item.itemsize

    # ------------------------------------------------------------------ what it is

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis of the cells."""
        return self._shape

    @property
    def dtype(self) -> np.dtype:
        """The type that an item is read as."""
        return self._item

    @property
    def ranks(self) -> int:
        """Logical processors that the cells are dealt to."""
        return self._file.meta.cells.ranks

    @property
    def mode(self) -> str:
        """The mode that the end of the file is written in: NB, CB or IB."""
        return self._part.mode

    @property
    def segments(self) -> dict[str, dict[str, int]]:
        """The block of each segment, and the bytes of all streams in it."""
        part, ib = self._part, self._part.ib
        lengths = int(part.independent_lengths().sum())
        blocks = {"NB": part.nb_block if part.nb_end else 0, "CB": part.cb_block if part.cb_bytes else 0}
        nbytes = {"NB": part.nb_end * self._cells, "CB": part.cb_bytes * self._cells, "IB": lengths}
        blocks["IB"] = ib.block if lengths else 0
        return {name: {"block": blocks[name], "bytes": nbytes[name]} for name in ("NB", "CB", "IB")}

    @property
    def lengths(self) -> np.ndarray:
        """Bytes of each stream."""
        self._check_open()
        return self._part.ends().reshape(self._shape)

    @property
    def meter(self) -> Any:
        """What has been read and written."""
        return self._part.meter

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"mode {self._opened_as!r}"
        return f"<Streams {self._file.name}: shape {self._shape}, dtype {self._item}, {self.mode}, {state}>"

    # ------------------------------------------------------------------ writing

    def write(self, values: Any, *, where: Any = None, at: Any = None) -> None:
        """Write items, each cell to its own stream.

        Parameters
        ----------
        values : array, Ragged, (counts, values), list, or array of awkward
            One item for each cell, or as many for each along another axis, or of each cell its own number. With
            ``where``, items of all cells or of those of the mask alone; with ``at``, items in any order.
        where : array of bool, optional
            The cells that write.
        at : array of int, or a tuple of one for each axis, optional
            The cell of each item, by number in the order of an array, or by index.

        Raises
        ------
        InputError
            Where values, mask or cells do not fit the shape, or values are not of the type of an item.
        """
        if (
            where is None
            and at is None
            and type(values) is np.ndarray
            and values.dtype == self._item
            and values.shape == self._shape
            and values.flags.c_contiguous
        ):
            rows = values.reshape(self._cells, 1)
            self._write(Level(values=rows, nbytes=self._item_bytes, is_contiguous=True), self._item)
            return
        call, dtype = self._call(values, where, at)
        self._write(call, dtype)

    def prepared(self, values: Any, where: Any) -> tuple[Call, ModeAnswer, str]:
        """Look at a call: what it writes, the mode that these cells allow, and the type of its items."""
        self._check_open()
        call, dtype = self._call(values, where, None)
        part = self._part
        if self._opened_as == "a":
            part.position = None
        if part.position is not None:
            part.is_at_end()
        return call, part.found(call), dtype.str

    def perform(self, call: Call, mode: Mode) -> None:
        """Do a call in the mode that all ranks agreed on."""
        if call.nbytes if isinstance(call, Level) else len(call.cells):
            self._part.write(call, mode)

    def _call(self, values: Any, where: Any, at: Any) -> tuple[Call, np.dtype]:
        if where is not None and at is not None:
            raise InputError("where= and at= both say which cells write: one of them is taken")
        ragged = None if where is not None or at is not None else ragged_of(values, self._shape, self._item)
        if ragged is not None:
            return self._ragged_call(ragged), self._item
        array = self._items(values)
        if at is not None:
            return self._event_call(array, at), array.dtype
        if where is None:
            return self._level_call(array), array.dtype
        mask = self._mask(where)
        if mask.all():
            return self._level_call(array), array.dtype
        return self._masked_call(array, mask), array.dtype

    def _items(self, values: Any) -> np.ndarray:
        """Return values as items; of streams of bytes, the bytes of whatever they are."""
        array = np.asarray(values)
        if array.dtype == self._item:
            return array
        if self._item == np.uint8 and array.dtype.kind in "biufcV" and isinstance(values, np.ndarray):
            return array
        try:
            return array.astype(self._item, casting="same_kind")
        except (TypeError, ValueError):
            raise InputError(f"values of dtype {array.dtype} are no items of dtype {self._item}") from None

    def _level_call(self, array: np.ndarray) -> Level:
        ndim = len(self._shape)
        if array.shape[:ndim] != self._shape or array.ndim > ndim + 1:
            try:
                array = np.broadcast_to(array, self._shape)
            except ValueError:
                raise InputError(
                    f"values of shape {array.shape} do not fit streams of shape {self._shape}, nor as many for each"
                ) from None
        items = array.shape[ndim] if array.ndim > ndim else 1
        rows = array.reshape(self._cells, items)
        return Level(values=rows, nbytes=items * array.dtype.itemsize, is_contiguous=array.flags.c_contiguous)

    def _mask(self, where: Any) -> np.ndarray:
        mask = np.asarray(where)
        if mask.dtype != np.bool_ or mask.shape != self._shape:
            raise InputError(f"where= of shape {mask.shape} and dtype {mask.dtype} is no mask of shape {self._shape}")
        return mask

    def _masked_call(self, array: np.ndarray, mask: np.ndarray) -> Call:
        ndim, count = len(self._shape), int(mask.sum())
        if array.shape[:ndim] == self._shape and array.ndim <= ndim + 1:
            array = array[mask]
        elif array.shape[:1] != (count,) or array.ndim > 2:
            try:
                array = np.broadcast_to(array, self._shape)[mask]
            except ValueError:
                raise InputError(
                    f"values of shape {array.shape} fit neither shape {self._shape} nor {count} cells of a mask"
                ) from None
        return Events(cells=np.flatnonzero(mask) + self._part.lower, items=_rows(array, count))

    def _event_call(self, array: np.ndarray, at: Any) -> Events:
        cells = self._numbers(at)
        if array.shape != cells.shape:
            raise InputError(f"at= names {cells.size} cells, and values of shape {array.shape} are given")
        return Events(cells=cells + self._part.lower, items=_rows(array, len(cells)))

    def _numbers(self, at: Any) -> np.ndarray:
        try:
            numbers = np.asarray(np.ravel_multi_index(at, self._shape) if isinstance(at, tuple) else at)
        except (ValueError, TypeError) as error:
            raise SelectionError(f"at= names cells that are not in shape {self._shape}: {error}") from None
        if numbers.ndim != 1 or (numbers.dtype.kind not in "iu" and numbers.size):
            raise SelectionError(f"at= of shape {numbers.shape} and dtype {numbers.dtype} is no list of cells")
        if numbers.size and not (numbers.min() >= 0 and numbers.max() < self._cells):
            raise SelectionError(f"at= names cells from {numbers.min()} to {numbers.max()}; there are {self._cells}")
        return numbers if numbers.size else numbers.astype(np.int64)

    def _ragged_call(self, ragged: Ragged) -> Call:
        values = np.ascontiguousarray(self._items(ragged.values))
        counts = ragged.counts.reshape(-1)
        if len(counts) and bool((counts == counts[0]).all()):
            rows = values.reshape(self._cells, int(counts[0]))
            return Level(values=rows, nbytes=int(counts[0]) * values.dtype.itemsize, is_contiguous=True)
        cells = np.flatnonzero(counts)
        if values.dtype.itemsize < 8:
            nbytes = counts[cells] * values.dtype.itemsize
            return CellBytes(cells=cells + self._part.lower, counts=nbytes, data=values.view(np.uint8))
        return Events(cells=np.repeat(cells, counts[cells]) + self._part.lower, items=_rows(values, len(values)))

    def _write(self, call: Call, dtype: np.dtype) -> None:
        """Write in the mode that the tests find; after a failure, nothing but closing is left."""
        if self._opened_as == "r":
            raise UnsupportedError(f"{self._file.name} is open for reading: open it with mode='a' or 'r+' to write")
        self._check_open()
        part = self._part
        if self._opened_as == "a":
            part.position = None
        if not (call.nbytes if isinstance(call, Level) else len(call.cells)):
            return
        try:
            at_end = part.position is None or part.is_at_end()
            found = part.found(call)
            if at_end and found.mode != part.begun:
                self._begin(found.mode, found.nbytes, dtype)
            part.write(call, found.mode)
        except OocError as error:
            self._failure = error
            raise

    def _begin(self, mode: Mode, nbytes: int, dtype: np.dtype) -> None:
        """Go over to another mode: from then on the file says how long the segments before it are."""
        had_any = self._part.cb_end > 0
        self._part.begin(mode, nbytes, dtype)
        if mode != "NB":
            meta = committed(self._file.meta, [self._part.settle()], begins_ib=mode == "IB")
            self._file.commit(meta, synced=had_any)

    # ------------------------------------------------------------------ reading

    def read(self, n: Any = None, *, where: Any = None, dtype: Any = None) -> Any:
        """Read items, each cell from its own stream.

        Parameters
        ----------
        n : int or array of int, optional
            Items of each cell, or of each its own number; -1 for all that are left. None for one, without an axis for
            it.
        where : array of bool, optional
            The cells that read.
        dtype : dtype, optional
            What bytes are read as, where that is another type.

        Returns
        -------
        numpy.ndarray or Ragged
            An array of the cells, or of those of the mask in one axis, and of items along the last axis. `Ragged` where
            cells have fewer items than were asked for, as C's short counts, and where each has its own number.
        """
        self._check_open()
        item = self._item if dtype is None else element_type(dtype)
        if where is None and (n is None or isinstance(n, int)) and n != -1 and isinstance(self._part.position, int):
            rows = self._read_level(1 if n is None else whole(n, "n", 0), item.itemsize)
            if rows is not None:
                values = np.ascontiguousarray(_viewed(rows, item))
                return values.reshape(self._shape if n is None else (*self._shape, n))
        return self._read_each(n, None if where is None else self._mask(where).reshape(-1), item)

    def _read_level(self, items: int, itemsize: int) -> np.ndarray | None:
        part, nbytes = self._part, items * itemsize
        position = part.position
        assert isinstance(position, int)
        if position + nbytes > part.level_end():
            return None
        rows = part.read_level(position, nbytes)
        part.position = position + nbytes
        return rows

    def _read_each(self, n: Any, mask: np.ndarray | None, item: np.dtype) -> Any:
        part, counts = self._part, self._wanted(n)
        cells = np.arange(self._cells) if mask is None else np.flatnonzero(mask)
        position, ends = part.tell(), part.ends()
        left = np.maximum(ends - position, 0)[cells] // item.itemsize
        got = left if counts is None else np.minimum(counts[cells], left)
        data = part.read(cells + part.lower, position[cells], got * item.itemsize)
        position[cells] += got * item.itemsize
        part.position = _simple(position)
        is_full = counts is not None and bool((got == counts[cells]).all()) and not isinstance(n, np.ndarray | list)
        values = data.view(item)
        if not is_full:
            all_counts = np.zeros(self._cells, np.int64)
            all_counts[cells] = got
            return Ragged(all_counts.reshape(self._shape), values)
        within = () if n is None else (int(n),)
        return values.reshape(*(self._shape if mask is None else (len(cells),)), *within)

    def _wanted(self, n: Any) -> np.ndarray | None:
        """Items of each cell; None for all that there are."""
        if n is None or np.ndim(n) == 0:
            number = 1 if n is None else whole(n, "n", -1)
            return None if number == -1 else np.full(self._cells, number)
        counts = np.asarray(n)
        if counts.shape != self._shape or counts.dtype.kind not in "iu" or (counts < 0).any():
            raise InputError(
                f"n= of shape {counts.shape} and dtype {counts.dtype} are no counts of shape {self._shape}"
            )
        return counts.reshape(-1).astype(np.int64)

    def to_ragged(self) -> Ragged:
        """Return all of every stream; positions stay."""
        self._check_open()
        ends = self._part.ends()
        counts = ends // self._item_bytes
        everyone = np.arange(self._cells) + self._part.lower
        data = self._part.read(everyone, np.zeros_like(ends), counts * self._item_bytes)
        return Ragged(counts.reshape(self._shape), data.view(self._item))

    def to_zarr(self, store: StoreLike, *, fill: Any = 0, overwrite: bool = False) -> zarr.Array:
        """Write all streams as one Zarr array of steps × cells, as a file of NB alone has them; positions stay.

        Parameters
        ----------
        store : path, URL or Zarr store
            Where to write: `open_streams` opens it as a stream file, too.
        fill : scalar
            The items that shorter streams end in.
        """
        self._check_open()
        ends = self._part.ends() // self._item_bytes
        steps = int(ends.max(initial=0))
        at_once = max(self._part.budget // 8 // max(self._cells * self._item_bytes, 1), 1)
        array = new_array(store, (steps, *self._shape), self._file.meta.cells.chunk_shape, self._item, overwrite)
        for start in range(0, steps, at_once):
            counts = np.clip(ends - start, 0, at_once)
            cells, offsets = np.arange(self._cells), np.minimum(np.full(self._cells, start), ends) * self._item_bytes
            data = self._part.read(cells + self._part.lower, offsets, counts * self._item_bytes).view(self._item)
            block = Ragged(counts, data).padded(fill)
            array[start : start + block.shape[1]] = block.T.reshape(-1, *self._shape)
        return array

    def __getitem__(self, cell: Any) -> np.ndarray:
        """Return all of one cell's stream; its position stays."""
        self._check_open()
        number = np.array([self._number(cell)])
        end = self._part.end_of(int(number[0])) // self._item_bytes * self._item_bytes
        return self._part.read(number + self._part.lower, np.zeros(1, np.int64), np.array([end])).view(self._item)

    def _number(self, cell: Any) -> int:
        index = cell if isinstance(cell, tuple) else (cell,)
        numbers = all(isinstance(k, int | np.integer) for k in index)
        if (
            not numbers
            or len(index) != len(self._shape)
            or not all(-n <= k < n for k, n in zip(index, self._shape, strict=True))
        ):
            raise SelectionError(f"{cell!r} is no cell of shape {self._shape}")
        wrapped = tuple(int(k) % n for k, n in zip(index, self._shape, strict=True))
        return int(np.ravel_multi_index(wrapped, self._shape)) if self._shape else 0

    # ------------------------------------------------------------------ positions

    def seek(self, offset: Any, whence: int = 0) -> None:
        """Move the position of every stream.

        Parameters
        ----------
        offset : int or array of int
            Bytes, of all cells or of each.
        whence : int
            0 from the beginning, 1 from the position, 2 from the end, as ``os.SEEK_SET`` and the others.

        Raises
        ------
        SelectionError
            Where that is before the beginning of a stream.
        """
        self._check_open()
        if whence not in WHENCES:
            raise InputError(f"whence={whence!r} is none of 0, 1 and 2")
        given = np.asarray(offset)
        if given.dtype.kind not in "iu" or given.shape not in ((), self._shape):
            raise InputError(f"offset={offset!r:.80} is no whole number, nor one for each cell of shape {self._shape}")
        part = self._part
        if whence == 2 and given.ndim == 0 and given == 0:
            part.position = None if part.writes else _simple(part.ends())
            return
        start = 0 if whence == 0 else part.tell() if whence == 1 else part.ends()
        position = start + given.reshape(-1).astype(np.int64) if given.ndim else start + int(given)
        if np.min(position, initial=0) < 0:
            raise SelectionError(f"seek to byte {np.min(position)} is before the beginning of a stream")
        part.position = position if isinstance(position, int) else _simple(position)

    def tell(self) -> np.ndarray:
        """Return the bytes of each stream before its position."""
        self._check_open()
        return self._part.tell().reshape(self._shape)

    def eof(self) -> np.ndarray:
        """Return whether nothing is left of each stream after its position."""
        self._check_open()
        return (self._part.tell() >= self._part.ends()).reshape(self._shape)

    # ------------------------------------------------------------------ text, and one cell at a time

    def printf(self, format: str, *values: Any, where: Any = None) -> None:
        """Write text, each cell its own values in a format of C; independent, as whatever is written cell by cell.

        Raises
        ------
        InputError
            Where the format does not fit the values, before anything is written.
        """
        self._check_bytes()
        each = [self._of_cells(value) for value in values]
        cells = np.arange(self._cells) if where is None else np.flatnonzero(self._mask(where))
        texts = [printed(format, tuple(value[k] for value in each)) for k in cells.tolist()]
        self._write_texts(cells, texts)

    def _of_cells(self, value: Any) -> list[Any]:
        try:
            return np.broadcast_to(np.asarray(value), self._shape).reshape(-1).tolist()
        except ValueError:
            raise InputError(f"values of shape {np.shape(value)} do not fit streams of shape {self._shape}") from None

    def _write_texts(self, cells: np.ndarray, texts: list[bytes]) -> None:
        counts = np.array([len(text) for text in texts], np.int64)
        some = np.flatnonzero(counts)
        data = np.frombuffer(b"".join(texts), np.uint8)
        self._write(CellBytes(cells=cells[some] + self._part.lower, counts=counts[some], data=data), self._item)

    def scanf(self, format: str) -> tuple[np.ndarray, list[np.ndarray]]:
        """Read text, each cell as far as it matches a format of C.

        Returns
        -------
        counts, values
            The conversions that each cell matched, as C returns them; and for each conversion an array of the cells,
            whose values are 0, nan or empty where a cell did not match it.
        """
        self._check_bytes()
        self._check_open()
        tokens, part = tokens_of(format), self._part
        position, ends = part.tell(), part.ends()
        found = self._scanned(tokens, position, ends)
        part.position = _simple(position + np.array([place for _, place in found], np.int64))
        wanted = [token.convert for token in tokens if token.convert is not None]
        counts = np.array([len(values) for values, _ in found], np.int64).reshape(self._shape)
        columns = []
        for number, convert in enumerate(wanted):
            empty = "" if convert is str else math.nan if convert is float else 0
            column = [values[number] if number < len(values) else empty for values, _ in found]
            columns.append(np.array(column).reshape(self._shape))
        return counts, columns

    def _scanned(self, tokens: list[Any], position: np.ndarray, ends: np.ndarray) -> list[tuple[list[Any], int]]:
        """Match the text of each cell; where a match may go on, with more of it."""
        found: list[tuple[list[Any], int]] = [([], 0)] * self._cells
        cells, size = np.arange(self._cells), TEXT_AHEAD
        while len(cells):
            left = np.minimum(np.maximum(ends - position, 0)[cells], size)
            data = self._part.read(cells + self._part.lower, position[cells], left).tobytes().decode("latin-1")
            starts, more = before(left).tolist(), []
            for cell, start, count in zip(cells.tolist(), starts, left.tolist(), strict=True):
                values, place, _ = scanned(tokens, data[start : start + count])
                found[cell] = values, place
                if (count == size and place > count - TEXT_AHEAD // 2) or (
                    count == size and len(values) < sum(token.convert is not None for token in tokens)
                ):
                    more.append(cell)
            cells, size = np.array(more, np.int64), size * 4
        return found

    def each(self, function: Callable[..., Any], *values: Any) -> np.ndarray | None:
        """Call a function with the stream of one cell after the other, and of each array the cell's own value.

        Parameters
        ----------
        function : callable
            ``function(cell, …)``: `Cell` has read, write, printf, scanf, readline, seek, tell and eof.
        values : arrays, optional
            Of the shape of the cells.

        Returns
        -------
        numpy.ndarray or None
            What the function returned for each cell; None where it returned nothing.
        """
        self._check_open()
        arrays = [self._of_cells(value) for value in values]
        self._part.prime()
        position, ends = self._part.tell(), self._part.ends()
        shared = SharedFile(part=self._part, dtype=self._item, mode=self._opened_as, items=self._items)
        cells = [Cell(shared, k, int(position[k]), int(ends[k])) for k in range(self._cells)]
        results = []
        try:
            for number, cell in enumerate(cells):
                results.append(function(cell, *(array[number] for array in arrays)))
        finally:
            self._finish(cells[: len(results) + 1])
        if all(result is None for result in results):
            return None
        if all(isinstance(result, int | float | complex | np.number | np.bool_) for result in results):
            return np.array(results).reshape(self._shape)
        out = np.empty(self._cells, object)
        out[:] = results
        return out.reshape(self._shape)

    def _finish(self, cells: list[Cell]) -> None:
        """Write what cells have written, and leave each where it stands."""
        part, position = self._part, self._part.tell()
        for turn in range(max((len(cell.written) for cell in cells), default=0)):
            here = [cell for cell in cells if turn < len(cell.written)]
            numbers = np.array([cell.number for cell in here])
            position[numbers] = [cell.written[turn][0] for cell in here]
            part.position = _simple(position)
            self._write_texts(numbers, [cell.written[turn][1] for cell in here])
            position = part.tell()
        for cell in cells:
            position[cell.number] = cell.tell()
        part.position = _simple(position)
        if part.writes:
            part.is_at_end()

    def _check_bytes(self) -> None:
        if self._item_bytes != 1:
            raise UnsupportedError(f"streams of dtype {self._item} hold no text: open them with dtype='u1'")

    # ------------------------------------------------------------------ the end

    def flush(self) -> None:
        """Put all that was written on its device: from then on no crash loses it."""
        self._check_open()
        if self._part.writes:
            self._commit(is_closed=False)

    def _commit(self, *, is_closed: bool) -> None:
        try:
            meta = self._settled()
            if is_closed and meta.ib.block:
                meta = self._linked(meta)
            self._file.commit(replace(meta, is_closed=is_closed))
        except OocError as error:
            self._failure = error
            raise

    def _settled(self) -> Meta:
        return committed(self._file.meta, [self._part.settle()])

    def _linked(self, meta: Meta) -> Meta:
        """Link the directory, and keep the first entry and the length of each cell (section 5.2.4)."""
        self._file.keep_cells(*self._part.link(meta.ib))
        return replace(meta, ib=replace(meta.ib, is_linked=True))

    def close(self) -> None:
        """Put all that was written on its device, and let others write.

        Raises
        ------
        DiskFullError, StoreFailure
            Where that fails: what was flushed before is there.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._part.writes and self._failure is None:
                self._commit(is_closed=True)
        finally:
            self._part.close()
            self._file.let_go()

    def __enter__(self) -> Streams:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise UnsupportedError(f"{self._file.name} is closed: open it again")
        if self._failure is not None:
            raise UnsupportedError(
                f"{self._file.name} could not be written: {self._failure}; what was flushed is there"
            )


def _rows(items: np.ndarray, count: int) -> np.ndarray:
    """The bytes of items, in a row for each of ``count``."""
    width = items.dtype.itemsize * (items.size // count if count else 1)
    return np.ascontiguousarray(items).reshape(-1).view(np.uint8).reshape(count, width)


def _simple(position: np.ndarray) -> int | np.ndarray:
    """One number for the positions of all cells, where they are the same."""
    if len(position) and bool((position == position[0]).all()):
        return int(position[0])
    return position if len(position) else 0


def _viewed(rows: np.ndarray, item: np.dtype) -> np.ndarray:
    """View rows of bytes as items: those that lie apart are moved as such, many times faster than as bytes."""
    return rows.view(item) if rows.shape[1] and rows.strides[1] == 1 else np.empty((len(rows), 0), item)
