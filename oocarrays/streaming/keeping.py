"""Open streams of a process until they are closed: commits, failures, and streams that are dropped unclosed."""

from __future__ import annotations

import atexit
import threading
import warnings
import weakref
from dataclasses import replace

from oocarrays.errors import OocError, UnsupportedError
from oocarrays.plan.streams.meta import Meta, committed
from oocarrays.storage.streams.part import RanksPart
from oocarrays.storage.streams.stream_file import StreamFile

_ENDS: list[weakref.finalize] = []
"""Ends of streams that are open in this process."""


class Kept:
    """Whatever has to reach the store before streams are closed."""

    def __init__(self, file: StreamFile, part: RanksPart) -> None:
        self.file = file
        self.part = part
        self.failure: BaseException | None = None
        self.is_closed = False

    def check(self) -> None:
        """Raise if streams are closed, or a write has failed."""
        if self.is_closed:
            raise UnsupportedError(f"{self.file.name} is closed: open it again")
        if self.failure is not None:
            said = f"{self.file.name} could not be written: {self.failure}; what was flushed is there"
            raise UnsupportedError(said)

    def commit(self, *, is_closed: bool) -> None:
        """Put all that was written on its device, and say so in the file."""
        try:
            meta = committed(self.file.meta, [self.part.settle()])
            if is_closed and meta.ib.block:
                meta = self._linked(meta)
            self.file.commit(replace(meta, is_closed=is_closed))
        except OocError as error:
            self.failure = error
            raise

    def _linked(self, meta: Meta) -> Meta:
        """Link the directory, and keep the first entry and the length of each cell (section 5.2.4)."""
        self.file.keep_cells(*self.part.apart.link(meta.ib))
        return replace(meta, ib=replace(meta.ib, is_linked=True))

    def close(self) -> None:
        """Commit what was written, and let others write."""
        if self.is_closed:
            return
        self.is_closed = True
        try:
            if self.part.writes and self.failure is None:
                self.commit(is_closed=True)
        finally:
            self.part.apart.close()
            self.file.let_go()


def close_when_dropped(owner: object, kept: Kept) -> None:
    """Warn, and close streams, when their owner is collected or the process ends."""
    end = weakref.finalize(owner, _dropped, kept)
    end.atexit = False
    _ENDS.append(end)
    _ENDS[:] = [each for each in _ENDS if each.alive]


def _end_all() -> None:
    """Close all that is open when the process ends."""
    for end in _ENDS:
        end()


getattr(threading, "_register_atexit", atexit.register)(_end_all)  # before threads end, of which Zarr has need


def _dropped(kept: Kept) -> None:
    if kept.is_closed or not kept.file.is_held:
        return
    try:
        _warn(kept.file, "they are closed now")
    finally:
        kept.close()


def warn_when_dropped(owner: object, file: StreamFile) -> None:
    """Warn when the owner of streams on workers is collected unclosed: they cannot be closed from there."""
    weakref.finalize(owner, _lost, file)


def _lost(file: StreamFile) -> None:
    if file.is_held:
        file.let_go()
        _warn(file, "only what was flushed is there")


def _warn(file: StreamFile, outcome: str) -> None:
    said = (
        f"streams of {file.name} were dropped unclosed, and {outcome}; call close(), or open them in a with statement"
    )
    warnings.warn(said, ResourceWarning, stacklevel=3)
