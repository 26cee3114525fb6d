"""Local array files as one array, in which each rank reads and writes its own part.

    array             0 1 2 3 │ 4 5 6 7          elements by their index in the array,
    file of rank 1          · │ 4 5 6 7 ·        and by their index in the file of their rank

Thakur 1995, section 5.4: the local placement model.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import cached_property
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
    """Files of all ranks, each opened once per process, on first use."""

    def __init__(self, files: LocalFiles, *, written: bool = False) -> None:
        self.files = files
        self.written = written
        self._opened: dict[int, ArrayFile] = {}
        self._opening = threading.Lock()

    def __reduce__(self) -> Any:
        return _again, (self.files, self.written)

    def file(self, rank: int) -> ArrayFile:
        """Return the file of a rank, opening it on first use."""
        with self._opening:
            if rank not in self._opened:
                self._opened[rank] = self.files.file(rank, written=self.written, unfinished=self.written)
            return self._opened[rank]

    @cached_property
    def shared(self) -> list[ArrayFile]:
        """Files of all ranks, opened apart to see whether they change; none if they are on workers' own disks."""
        return [] if self.files.descriptor.folders else [self.files.file(rank) for rank in range(self.files.ranks)]

    @property
    def presences(self) -> tuple[Presence, ...]:
        """Presence records of the files open in this process."""
        with self._opening:
            return tuple(file.presence for file in self._opened.values())

    def places(self, rank: int, axes: Axes) -> Axes:
        """Return the indices of elements of the array in the file of the rank that holds them."""
        part = self.files.descriptor.part(rank)
        along = zip(axes, part.own, part.depth, strict=True)
        return tuple(moved(taken, depth - int(own[0])) for taken, own, depth in along)


def _again(files: LocalFiles, written: bool) -> RankFiles:
    return RankFiles(files, written=written)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchFiles(LocalFiles):
    """Scratch in one file per rank, with the same layout and without descriptors."""

    places: tuple[str | RemoteStore, ...]
    """Location of each rank's file."""

    def place(self, rank: int) -> StoreLike | RemoteStore:  # type: ignore[override]
        return self.places[rank]

    def open(self, rank: int, *, mode: str = "r", unfinished: bool = False) -> zarr.Array:
        return array_file.open_array(self.places[rank], mode=mode)

    def file(self, rank: int, *, written: bool = False, unfinished: bool = False) -> ArrayFile:
        return array_file.describe(self.open(rank, mode="r+"), written=True)

    def make(self, rank: int, like: ArrayFile, stored: Stored, *, durable: bool) -> None:
        """Create or open the file of a rank, in the chunks of ``stored``."""
        shape = self.descriptor.part(rank).shape
        chunks = tuple(max(min(c, n), 1) for c, n in zip(stored.grid.chunks, shape, strict=True))
        create_scratch(self.places[rank], like, replace(stored, grid=ChunkGrid.of(shape, chunks)), durable=durable)


def placed(array: ArrayFile | RankFiles, rank: int, axes: Axes) -> tuple[ArrayFile, Axes]:
    """Return the array file that holds a rank's elements, and their indices in it."""
    if isinstance(array, RankFiles):
        return array.file(rank), array.places(rank, axes)
    return array, axes
