"""Open stream files: writes that all ranks agree on, flushing, and closing, with ranks here or on workers."""

from __future__ import annotations

import atexit
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np

from oocarrays.errors import UnsupportedError
from oocarrays.plan.streams.calls import Mode, Prepared, agreed
from oocarrays.plan.streams.meta import Meta, WriterFacts, committed
from oocarrays.storage.streams.independent import Linked
from oocarrays.storage.streams.stream_file import StreamFile

_ENDS: list[weakref.finalize] = []
"""Finalizers of streams that are open in this process."""
S = TypeVar("S", bound="OpenStreams")


class Ranks(Protocol):
    """All ranks of a file."""

    def settle(self) -> list[WriterFacts]:
        """Write all buffered data to the store, and return the resulting sizes."""

    def begin(self, mode: Mode, nbytes: int, dtype: np.dtype) -> None:
        """Create the arrays of a mode."""

    def link(self, meta: Meta) -> Linked:
        """Link the directory of settled ranks."""

    def end(self) -> None:
        """Release memory and threads."""


class OpenFile:
    """An open file and its ranks. Until it is closed, only flushed data are certain to be stored."""

    def __init__(self, file: StreamFile, mode: str, ranks: Ranks) -> None:
        self.file, self.mode, self.ranks = file, mode, ranks
        self.failure: BaseException | None = None
        self.is_closed = False

    def check(self, *, writes: bool = False) -> None:
        """Raise if streams are closed, a write has failed, or a write is not allowed."""
        if self.is_closed:
            raise UnsupportedError(f"{self.file.name} is closed: open it again")
        if self.failure is not None:
            raise UnsupportedError(f"writing {self.file.name} has failed: {self.failure}; only flushed data is valid")
        if writes and self.mode == "r":
            raise UnsupportedError(f"{self.file.name} is open for reading: open it with mode='a' or 'r+' to write")

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Record a failure to write, Ctrl-C among them: from then on, streams can only be closed."""
        try:
            yield
        except BaseException as error:
            self.failure = error
            raise

    def agree(self, found: Sequence[Prepared]) -> Mode:
        """Return the agreed mode of a write; begin it if it is new, and from the second on record earlier lengths."""
        mode, nbytes = agreed(found)
        if any(each.appends for each in found) and any(each.begun != mode for each in found):
            self.ranks.begin(mode, nbytes, found[0].dtype)
            if mode != "NB":
                facts = self.ranks.settle()
                had_any = any(each.nb.block or each.cb.block for each in facts)
                self.file.commit(committed(self.file.meta, facts, begins_ib=mode == "IB"), synced=had_any)
        return mode

    def flush(self) -> None:
        self.check()
        if self.mode != "r":
            self._commit(is_closed=False)

    def _commit(self, *, is_closed: bool) -> None:
        """Flush all written data to its device, and record it in the file; link a closed file (section 5.2.4)."""
        with self.failing():
            meta = committed(self.file.meta, self.ranks.settle())
            if is_closed and meta.ib.block:
                self.file.keep_cells(*self.ranks.link(meta))
                meta = replace(meta, ib=replace(meta.ib, is_linked=True))
            self.file.commit(replace(meta, is_closed=is_closed))

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        try:
            if self.mode != "r" and self.failure is None:
                self._commit(is_closed=True)
        finally:
            self.ranks.end()
            self.file.release()


class OpenStreams:
    """Streams of the cells of an open file."""

    def __init__(self, opened: OpenFile, shape: tuple[int, ...]) -> None:
        self._open, self._file = opened, opened.file
        self._shape, self._item = shape, opened.file.meta.item

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis of the cells."""
        return self._shape

    @property
    def dtype(self) -> np.dtype:
        """The type that an item is read as."""
        return self._item

    def flush(self) -> None:
        """Flush all written data to its device: it survives a crash from then on."""
        self._open.flush()

    def close(self) -> None:
        """Write all data to its device, and release the file for other writers.

        Raises
        ------
        DiskFullError, StoreFailure
            If that fails; data that was flushed before is safe.
        """
        self._open.close()

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def close_when_dropped(owner: object, file: StreamFile, close: Callable[[], None], outcome: str) -> None:
    """Warn, and close a file that is open for writing, when its owner is collected or the process ends."""
    end = weakref.finalize(owner, _dropped, file, close, outcome)
    end.atexit = False
    _ENDS.append(end)
    _ENDS[:] = [each for each in _ENDS if each.alive]


# before threads end, which Zarr needs
getattr(threading, "_register_atexit", atexit.register)(lambda: [end() for end in _ENDS])


def _dropped(file: StreamFile, close: Callable[[], None], outcome: str) -> None:
    if not file.is_held:
        return
    try:
        warnings.warn(
            f"streams of {file.name} were dropped unclosed, and {outcome}; "
            "call close(), or open them in a with statement",
            ResourceWarning, stacklevel=2,
        )  # fmt: skip
    finally:
        close()
