"""Local array files as a pass sees them: one array, of which each rank reads and writes its own part.

    array             0 1 2 3 │ 4 5 6 7          elements by their places in the array,
    file of rank 1          · │ 4 5 6 7 ·        and where they are in the file of their rank

Thakur 1995, section 5.4: the local placement model.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

import zarr

from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.mapping.selection import Axes, moved
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import create_scratch
from oocarrays.storage.files.local_files import LocalFiles
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.files.presence import Presence
from oocarrays.storage.stores.remote import RemoteStore


class RankFiles:
    """The files of all ranks, each opened once in a process, when it is used there."""

    def __init__(self, files: LocalFiles, *, written: bool = False) -> None:
        self.files = files
        self.written = written
        self._opened: dict[int, ArrayFile] = {}
        self._opening = threading.Lock()

    def __reduce__(self) -> Any:
        return _again, (self.files, self.written)

    def file(self, rank: int) -> ArrayFile:
        """That of a rank."""
        with self._opening:
            if rank not in self._opened:
                self._opened[rank] = self.files.file(rank, written=self.written, unfinished=self.written)
            return self._opened[rank]

    @property
    def presences(self) -> tuple[Presence, ...]:
        """Of those that are open in this process."""
        with self._opening:
            return tuple(file.presence for file in self._opened.values())

    def places(self, rank: int, axes: Axes) -> Axes:
        """Where elements of the array are in the file of the rank that has them."""
        part = self.files.descriptor.part(rank)
        along = zip(axes, part.own, part.depth, strict=True)
        return tuple(moved(taken, depth - int(own[0])) for taken, own, depth in along)


def _again(files: LocalFiles, written: bool) -> RankFiles:
    return RankFiles(files, written=written)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchFiles(LocalFiles):
    """Scratch that ranks have in files of their own, of the same layout: it says nothing of itself."""

    places: tuple[str | RemoteStore, ...]
    """Of each rank."""

    def place(self, rank: int) -> StoreLike | RemoteStore:  # type: ignore[override]
        return self.places[rank]

    def open(self, rank: int, *, mode: str = "r", unfinished: bool = False) -> zarr.Array:
        return array_file.open_array(self.places[rank], mode=mode)

    def file(self, rank: int, *, written: bool = False, unfinished: bool = False) -> ArrayFile:
        return array_file.describe(self.open(rank, mode="r+"), written=True)

    def make(self, rank: int, like: ArrayFile, stored: Stored, *, durable: bool) -> None:
        """Make the file of a rank, in the chunks of ``stored``, or open it."""
        shape = self.descriptor.part(rank).shape
        chunks = tuple(max(min(c, n), 1) for c, n in zip(stored.grid.chunks, shape, strict=True))
        create_scratch(self.places[rank], like, replace(stored, grid=ChunkGrid.of(shape, chunks)), durable=durable)


def placed(array: ArrayFile | RankFiles, rank: int, axes: Axes) -> tuple[ArrayFile, Axes]:
    """Return the array file in which a rank has elements of an array, and their places there."""
    if isinstance(array, RankFiles):
        return array.file(rank), array.places(rank, axes)
    return array, axes
