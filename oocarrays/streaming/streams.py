"""Streams of cells, one a cell, with the semantics of C's calls and the arguments of numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import numpy as np
import zarr

from oocarrays.errors import InputError, UnsupportedError
from oocarrays.mapping.given import element_type, whole
from oocarrays.options.chunks import ChunksLike
from oocarrays.plan.streams.calls import Call, CellBytes, Level, Mode, Prepared
from oocarrays.storage.files.creating import check_place, create_target
from oocarrays.storage.files.places import StoreLike, store_path
from oocarrays.storage.streams.part import RanksPart
from oocarrays.storage.streams.plain import PlainStreams
from oocarrays.storage.streams.readahead import StreamReader
from oocarrays.storage.streams.stream_file import StreamFile
from oocarrays.streaming.given import CellValues
from oocarrays.streaming.lazy import GivenBlocks, dask_ragged, given_blocks, is_dask
from oocarrays.streaming.opened import OpenFile, OpenStreams
from oocarrays.streaming.ragged import DaskRagged, Ragged, as_fill, cell_number, check_view
from oocarrays.streaming.reading import (
    Cell,
    boxes_of,
    fill_steps,
    moved,
    read_each,
    read_level,
    returned,
    scanned_cells,
    simple,
    steps_settings,
)
from oocarrays.streaming.text import columns_of, printed, tokens_of


class Streams(OpenStreams):
    """Streams of the cells of a shape; created by `open_streams`.

    Positions are bytes, as in C; counts are items.
    """

    def __init__(self, file: StreamFile, part: RanksPart, mode: str) -> None:
        super().__init__(OpenFile(file, mode, part), part.shape)
        self._part, self._reader = part, StreamReader(part)
        part.appends = mode == "a"
        self._call: Call | None = None
        self._cells = part.count
        self._given = CellValues(shape=part.shape, item=file.meta.item, lower=part.lower)
        self._item_bytes = self._item.itemsize

    # ------------------------------------------------------------------ properties

    @property
    def ranks(self) -> int:
        """Number of ranks that share the cells."""
        return self._file.meta.cells.ranks

    @property
    def mode(self) -> str:
        """Mode of the end of the file: NB, CB or IB."""
        return self._part.mode

    @property
    def segments(self) -> dict[str, dict[str, int]]:
        """Block size of each segment, and the bytes of all streams in it."""
        part, lengths = self._part, int(self._part.ib.lengths().sum())
        segments = {"NB": part.nb.regular, "CB": part.cb.regular}
        found = {name: {"block": each.block, "bytes": each.nbytes * self._cells} for name, each in segments.items()}
        return found | {"IB": {"block": part.ib.ib.block if lengths else 0, "bytes": lengths}}

    @property
    def lengths(self) -> np.ndarray:
        """Bytes of each stream."""
        self._open.check()
        return self._part.ends().reshape(self._shape)

    @property
    def meter(self) -> Any:
        """Meter of all reads and writes."""
        return self._part.meter

    def __repr__(self) -> str:
        state = "closed" if self._open.is_closed else f"mode {self._open.mode!r}"
        return f"<Streams {self._file.name}: shape {self._shape}, dtype {self._item}, {self.mode}, {state}>"

    # ------------------------------------------------------------------ writing

    def write(self, values: Any, *, where: Any = None, at: Any = None) -> None:
        """Write items, each cell to its own stream.

        Parameters
        ----------
        values : array, Ragged, (counts, values), list, or array of awkward
            One item for each cell, or the same number for each along another axis, or a separate number for each cell.
            With ``where``, items of all cells or only of those of the mask; with ``at``, items in any order. Counts and
            values may be Dask arrays: chunks are computed and written one after the other.
        where : array of bool, optional
            Mask of the cells that write.
        at : array of int, or a tuple of one for each axis, optional
            The cell of each item, by number in the order of an array, or by index.

        Raises
        ------
        InputError
            If values, mask or cells do not fit the shape, or values do not have the item's type.
        BudgetError
            If a chunk of a Dask array is larger than a third of the memory.
        """
        is_plain = where is None and at is None
        if is_plain and is_dask(values):
            values = given_blocks(values, self._shape, self._part.budget)
        if isinstance(values, GivenBlocks):
            self._given.items(np.empty(0, values.values.dtype))
            for each in values.calls(self._given.items, self._part.lower):
                self._write(each, self._item)
            return
        is_item_each = is_plain and type(values) is np.ndarray and values.dtype == self._item
        if is_item_each and values.shape == self._shape and values.flags.c_contiguous:  # needs no conversion
            rows = values.reshape(self._cells, 1)
            self._write(Level(values=rows, nbytes=self._item_bytes, is_contiguous=True), self._item)
            return
        call, dtype = self._given.call(values, where, at)
        self._write(call, dtype)

    def prepared(self, values: Any, where: Any) -> Prepared:
        """Check a write, or take a call that is checked with the type of its items, and keep it for `perform`."""
        self._open.check()
        call, dtype = (values, where) if isinstance(values, Call) else self._given.call(values, where, None)
        self._call = call
        return self._part.prepared(call, dtype)

    def perform(self, mode: Mode) -> None:
        """Perform the prepared write in the mode that all ranks agreed on."""
        call, self._call = self._call, None
        if call is not None and call.nbytes:
            self._put(call, mode)

    def _write(self, call: Call, dtype: np.dtype) -> None:
        """Write in the mode that the tests select; after a failure, streams can only be closed."""
        self._open.check(writes=True)
        if not call.nbytes:
            return
        if isinstance(self._file, PlainStreams):
            self._write_steps(call)
            return
        try:
            found = self._part.prepared(call, dtype)
            is_new = found.appends and found.mode != found.begun
            self._put(call, self._open.agree([found]) if is_new else found.mode)
        except BaseException as error:
            self._open.failure = error
            raise

    def _put(self, call: Call, mode: Mode) -> None:
        self._reader.discard()
        self._part.write(call, mode)

    def _write_steps(self, call: Call) -> None:
        """Write steps of a plain file, which supports NB only: all cells, at one position, whole items."""
        part, nbytes = self._part, self._item_bytes
        position = part.nb.nbytes if part.goes_to_ends() else part.position
        if not isinstance(call, Level) or not isinstance(position, int) or (position | call.nbytes) % nbytes:
            raise UnsupportedError(
                f"{self._file.name} is a plain binary file, in which all cells write as many items at the same place; "
                "write a Zarr group, or all cells"
            )
        items = np.moveaxis(call.rows.reshape(self._cells, -1, nbytes), 1, 0)
        with self._open.failing():
            gap = max(position - part.nb.nbytes, 0) // nbytes
            part.position = None if gap else part.position
            for step in (*[np.zeros_like(items[0])] * gap, *items):
                self._put(Level(values=np.ascontiguousarray(step), nbytes=nbytes, is_contiguous=True), "NB")

    # ------------------------------------------------------------------ reading

    def read(self, n: Any = None, *, where: Any = None, dtype: Any = None) -> Any:
        """Read items, each cell from its own stream.

        Parameters
        ----------
        n : int or array of int, optional
            Items of each cell, one number for all or one for each; -1 for all that are left. None for one item, without
            an axis for it.
        where : array of bool, optional
            The cells that read.
        dtype : dtype, optional
            Type to read bytes as, if it differs from the item's.

        Returns
        -------
        numpy.ndarray or Ragged
            An array of the cells, or of those of the mask in one axis, with items along the last axis. `Ragged` if
            cells have fewer items than requested, as C's short counts, or if each has its own number.
        """
        self._open.check()
        item = self._item if dtype is None else element_type(dtype)
        check_view(self._item, item, self._file.name)
        if where is None and (n is None or isinstance(n, int)) and n != -1:
            values = read_level(self._reader, 1 if n is None else whole(n, "n", 0), item)
            if values is not None:
                return values.reshape(self._shape if n is None else (*self._shape, n))
        return read_each(self._reader, n, None if where is None else self._given.mask(where).reshape(-1), item)

    def to_dask(self) -> DaskRagged:
        """Return all of every stream as lazy Dask arrays; positions stay.

        It is a method beside `to_ragged`, as `Ragged.to_dask` is, because it returns a pair of arrays: Dask has no
        ragged array. It flushes earlier writes; later writes are not included.

        Returns
        -------
        DaskRagged
            ``counts`` of each cell, already known, and ``values`` of all cells, one after the other. A block of cells
            has a block of values, of an eighth of the memory at most; larger cells have several. Each block is read by
            its own task, which opens the file on its worker.

        Raises
        ------
        BudgetError
            If three quarters of the memory are too little to read that number of cells.

        Examples
        --------
        >>> import tempfile, oocarrays as ooc
        >>> place = tempfile.mkdtemp() + "/s.zarr"
        >>> ooc.streams.streams_from_ragged(place, [2, 0, 1], [1.5, 2.5, 3.5])
        >>> counts, values = ooc.streams.open_streams(place).to_dask()
        >>> counts.chunks, values.chunks, float(values.sum().compute())
        (((3,),), ((3,),), 7.5)
        """
        self._open.check()
        if self._part.writes:
            self.flush()
        return dask_ragged(self._file, self._item, self._part.budget, self._part.ends())

    def to_ragged(self) -> Ragged:
        """Return all of every stream in memory; positions stay."""
        self._open.check()
        ends = self._part.ends()
        counts = ends // self._item_bytes
        data = self._part.fetch(np.arange(self._cells), np.zeros_like(ends), counts * self._item_bytes)
        return Ragged(counts.reshape(self._shape), data.view(self._item))

    def to_zarr(
        self, store: StoreLike, *, fill: Any = 0, chunks: ChunksLike | None = None, shards: ChunksLike | None = None,
        compressors: Any = None, overwrite: bool = False,
    ) -> zarr.Array:  # fmt: skip
        """Write all streams as one Zarr array of steps × cells, like a file in mode NB only; positions stay.

        Parameters
        ----------
        store : path, URL or Zarr store
            Location of the array: `open_streams` opens it as a stream file, too.
        fill : scalar
            Item to fill shorter streams with.
        chunks, shards, compressors
            As `rechunk` takes them. By default a step is a chunk, or several along the first axis of the cells, without
            shards and codecs: as streams, which are replaced and appended to in place, are stored.

        Raises
        ------
        InputError
            If ``fill`` is not an item.
        ChunksError, UnsupportedError
            If an array of this shape cannot have them.
        BudgetError
            If a chunk or shard is larger than an eighth of the memory.
        """
        self._open.check()
        fill = as_fill(fill, self._item)
        shape = int((self._part.ends() // self._item_bytes).max(initial=0)), *self._shape
        asked = {"chunks": chunks, "shards": shards, "compressors": compressors}
        settings = steps_settings(store, shape, self._file.meta.cells.chunk_shape, self._item, asked)
        boxes = boxes_of(settings, self._cells, self._part.budget)
        check_place(store, overwrite=overwrite)
        made = create_target(store, settings, uuid4().hex[:12], overwrite=overwrite, durable=self._file.durable)
        fill_steps(made, self._part, self._item, fill, boxes)
        return zarr.open_array(store_path(store), mode="r+")

    def __getitem__(self, cell: Any) -> np.ndarray:
        """Return the whole stream of one cell; its position stays."""
        self._open.check()
        number = cell_number(cell, self._shape)
        nbytes = self._part.end_of(number) // self._item_bytes * self._item_bytes
        data = self._reader.one(number, 0, nbytes)
        return (data if data.base is None else data.copy()).view(self._item)

    # ------------------------------------------------------------------ positions

    def seek(self, offset: Any, whence: int = 0) -> None:
        """Move the position of every stream.

        Parameters
        ----------
        offset : int or array of int
            Offset in bytes, of all cells or of each.
        whence : int
            0 from the beginning, 1 from the position, 2 from the end, as ``os.SEEK_SET`` and the others.

        Raises
        ------
        SelectionError
            If the position would be before the beginning of a stream.
        """
        self._open.check()
        self._part.position = moved(self._part, offset, whence)

    def tell(self) -> np.ndarray:
        """Return the bytes of each stream before its position."""
        self._open.check()
        return self._part.tell().reshape(self._shape)

    def eof(self) -> np.ndarray:
        """Return whether each stream is at its end."""
        self._open.check()
        return (self._part.tell() >= self._part.ends()).reshape(self._shape)

    # ------------------------------------------------------------------ text, and one cell at a time

    def printf(self, format: str, *values: Any, where: Any = None) -> None:
        """Write text, each cell its own values in a format of C; cells are independent, as in all writes by cell.

        Conversions are ``%d %i %u %o %x %X %f %F %e %E %g %G %c %s %%``, with flags, width, precision (also ``*``) and
        length. Text is written as UTF-8; widths and precisions count bytes, as in C. Integers of any length are
        written in full.

        Raises
        ------
        InputError
            If the format has another conversion or does not fit the values, before anything is written.
        """
        self._check_bytes()
        each = [self._given.of_cells(value) for value in values]
        cells = np.arange(self._cells) if where is None else np.flatnonzero(self._given.mask(where))
        texts = [printed(format, tuple(value[k] for value in each)) for k in cells.tolist()]
        self._write_texts(cells, texts)

    def _write_texts(self, cells: np.ndarray, texts: list[bytes]) -> None:
        counts = np.array([len(text) for text in texts], np.int64)
        some = np.flatnonzero(counts)
        data = np.frombuffer(b"".join(texts), np.uint8)
        self._write(CellBytes(cells=cells[some] + self._part.lower, counts=counts[some], data=data), self._item)

    def scanf(self, format: str) -> tuple[np.ndarray, list[np.ndarray]]:
        """Read text, each cell as far as it matches a format of C.

        Conversions are ``%d %i %u %o %x %X %f %e %g %c %s %[…] %%``, with ``*``, width and length.

        Returns
        -------
        counts, values
            The conversions that each cell matched, as C returns them: -1 if its text ended before the first. And for
            each conversion an array of the cells; cells without a match have 0, nan or an empty text.

        Raises
        ------
        InputError
            If the format has another conversion.
        """
        self._check_bytes()
        self._open.check()
        tokens = tokens_of(format)
        found = scanned_cells(self._reader, tokens)
        counts = np.array([-1 if ended and not values else len(values) for values, ended in found], np.int64)
        columns = columns_of(tokens, [values for values, _ in found])
        return counts.reshape(self._shape), [column.reshape(self._shape) for column in columns]

    def each(self, function: Callable[..., Any], *values: Any) -> np.ndarray | None:
        """Call a function with the stream of each cell in turn, and with the cell's own value of each array.

        Parameters
        ----------
        function : callable
            ``function(cell, …)``: `Cell` has read, write, printf, scanf, readline, seek, tell and eof.
        values : arrays, optional
            Of the shape of the cells.

        Returns
        -------
        numpy.ndarray or None
            The result of the function for each cell; None if all results are None.
        """
        self._open.check()
        if not callable(function):
            raise InputError(f"each() takes a function of a cell, not {function!r:.80}")
        arrays = [self._given.of_cells(value) for value in values]
        position, ends = self._part.tell(), self._part.ends()
        results: list[Any] = []
        cells: list[Cell] = []
        self._reader.follow(position)
        try:
            for number, bounds in enumerate(zip(position.tolist(), ends.tolist(), strict=True)):
                cells.append(Cell(self._reader, number, *bounds))
                results.append(function(cells[-1], *(array[number] for array in arrays)))
        finally:
            self._reader.follow(None)
            self._finish(cells)
        return returned(results, self._shape)

    def _finish(self, cells: list[Cell]) -> None:
        """Write the cells' data, and set each cell's position."""
        part, position = self._part, self._part.tell()
        for turn in range(max((len(cell.written) for cell in cells), default=0)):
            here = [cell for cell in cells if turn < len(cell.written)]
            numbers = np.array([cell.place for cell in here])
            position[numbers] = [cell.written[turn][0] for cell in here]
            part.position = simple(position)
            self._write_texts(numbers, [cell.written[turn][1] for cell in here])
            position = part.tell()
        position[: len(cells)] = [cell.tell() for cell in cells]
        part.position = simple(position)
        if part.writes:
            part.is_at_end()

    def _check_bytes(self) -> None:
        if self._item_bytes != 1:
            raise UnsupportedError(f"streams of dtype {self._item} hold no text: open them with dtype='u1'")
