"""Local array files as a pass sees them: one array, of which each rank reads and writes its own part.

    array             0 1 2 3 │ 4 5 6 7          elements by their places in the array,
    file of rank 1          · │ 4 5 6 7 ·        and where they are in the file of their rank

Thakur 1995, section 5.4: the local placement model.
"""

from __future__ import annotations

import threading
from typing import Any

from oocarrays.mapping.selection import Axes, moved
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.local_files import LocalFiles
from oocarrays.storage.files.presence import Presence


class RankFiles:
    """The files of all ranks, each opened once in a process, when it is used there.

    Parameters
    ----------
    written : bool
        Whether they are written to, and not finished yet.
    """

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


def placed(array: ArrayFile | RankFiles, rank: int, axes: Axes) -> tuple[ArrayFile, Axes]:
    """Return the array file in which a rank has elements of an array, and their places there."""
    if isinstance(array, RankFiles):
        return array.file(rank), array.places(rank, axes)
    return array, axes
