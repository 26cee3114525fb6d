"""Plain binary files as streams: steps of one item per cell, as an array-oriented program writes them.

    raw.bin   │ offset bytes │ step 0: cell 0 │ cell 1 │ … │ step 1 … │      cells in C order, or in Fortran's

"Files consisting of a single NB segment are laid out exactly as an array-oriented program would write them" (section 6
of the paper): the file has no metadata; the user states its shape and type.
"""

from __future__ import annotations

import os
import stat
import weakref
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from oocarrays.errors import CorruptChunkError, InputError, NotFoundError, TargetError
from oocarrays.plan.streams.meta import Cells, Meta, Regular, described
from oocarrays.storage.local.fs import read_into, translated, write_at
from oocarrays.storage.meter import Meter
from oocarrays.storage.streams.raw import ChunkCache, RawChunks
from oocarrays.storage.streams.stream_file import StreamFile, held


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainLayout:
    """User-given layout of a plain file."""

    shape: tuple[int, ...]
    """Extent of each axis of the cells."""
    item: np.dtype
    """Type of an item, with its byte order."""
    offset: int = 0
    """Bytes before the first step."""
    order: str = "C"
    """Order of the cells in a step."""

    @property
    def step_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.item.itemsize

    def steps_in(self, nbytes: int, name: str) -> int:
        data = nbytes - self.offset
        if data < 0 or data % self.step_bytes:
            had = f"{name} has {max(data, 0)} bytes after offset={self.offset}"
            raise InputError(
                f"{had}: no whole steps of {self.step_bytes} bytes, "
                f"an item of {self.item} for each of {self.shape} cells; check shape=, dtype= and offset="
            )
        return data // self.step_bytes

    def turned(self, step: np.ndarray, *, into_file: bool) -> np.ndarray:
        """Return the bytes of a step in file order, given in cell order, or the other way round."""
        items = step.view(f"V{self.item.itemsize}").reshape(self.shape if into_file else self.shape[::-1])
        return np.ascontiguousarray(items.T).reshape(-1).view(np.uint8)

    @property
    def is_turned(self) -> bool:
        return self.order == "F" and len(self.shape) > 1


class PlainStreams(StreamFile):
    """A plain binary file as a single NB segment of one item per cell; its steps are chunks by number."""

    def __init__(self, path: str, layout: PlainLayout, *, writes: bool, durable: bool = True) -> None:
        self.layout = layout
        self._given = path, layout
        with translated("open", path):
            self._file = os.open(path, (os.O_RDWR if writes else os.O_RDONLY) | os.O_NONBLOCK | os.O_CLOEXEC)
        self._close = weakref.finalize(self, os.close, self._file)
        size, count = layout.item.itemsize, layout.steps_in(os.fstat(self._file).st_size, path)
        cells, nb = Cells.of(layout.shape, 1, size), Regular(block=size, nbytes=count * size)
        super().__init__(path, Meta(cells=cells, dtype=described(layout.item), nb=nb, is_closed=True), durable=durable)

    def __reduce__(self) -> Any:
        return partial(PlainStreams, writes=False, durable=self.durable), self._given

    def latest(self) -> StreamFile:
        return PlainStreams(*self._given, writes=False, durable=self.durable)

    def steps(self, meter: Meter, budget: int, cache: ChunkCache) -> RawChunks:
        return RawChunks(self, int, self.layout.step_bytes, meter, name=self.name, cache=cache)

    def _place(self, number: int) -> int:
        return self.layout.offset + number * self.layout.step_bytes

    def put(self, number: int, data: memoryview) -> None:
        view = self.layout.turned(np.frombuffer(data, np.uint8), into_file=True).data if self.layout.is_turned else data
        with translated("write", self.name):
            write_at(self._file, self._place(number), view)

    def read_into(self, number: int, start: int, out: memoryview) -> bool:
        if self.layout.is_turned:
            step = np.empty(self.layout.step_bytes, np.uint8)
            self._read(self._place(number), step.data)
            out[:] = self.layout.turned(step, into_file=False).data[start : start + len(out)]
        else:
            self._read(self._place(number) + start, out)
        return True

    def _read(self, place: int, out: memoryview) -> None:
        with translated("read", self.name):
            lacks = read_into(self._file, place, out)
        if lacks:
            end = place + len(out) - lacks
            raise CorruptChunkError(f"{self.name} ends at byte {end}; it is shorter than when it was opened")

    def hold(self) -> None:
        self._hold = held(self.name, self.name)
        self.is_held = True

    def release(self) -> None:
        self._close()
        if self._hold is not None:
            self._hold.close()
        self.is_held = False

    def begin_again(self, ranks: int) -> None:
        """Do nothing, because the file has no metadata."""

    def commit(self, meta: Meta, *, synced: bool = True) -> None:
        if self.durable and self.is_held:
            with translated("write", self.name):
                os.fsync(self._file)
        self.meta = meta


def plain_file(path: str, mode: str, layout: PlainLayout, *, overwrite: bool, durable: bool) -> PlainStreams:
    if mode == "w":
        _make(path, layout.offset, overwrite=overwrite)
    elif not os.path.lexists(path):
        raise NotFoundError(f"no file {path}; mode='w' makes one")
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise TargetError(f"{path} is no regular file; leave out offset= and order= to open a Zarr store")
    return PlainStreams(path, layout, writes=mode != "r", durable=durable)


def _make(path: str, offset: int, *, overwrite: bool) -> None:
    if os.path.lexists(path) and not overwrite:
        raise TargetError(f"{path} exists; pass overwrite=True to replace it, or mode='a' to append")
    if os.path.lexists(path) and not os.path.isfile(path):
        raise TargetError(f"{path} exists and is no regular file; it is not overwritten")
    with translated("write", path):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
        try:
            hold = held(path, path)
            os.ftruncate(file, 0)
            os.ftruncate(file, offset)
            hold.close()
        finally:
            os.close(file)
