"""Superblocks: records that a rank gathers, and writes at once.

    rank 0 of 2   superblocks 0 2 4 …        rank 1 of 2   superblocks 1 3 5 …

They are dealt to ranks in turn, so that no rank need ask where the others are (section 5.2.2). One that is not full is
put when all is to be there, and put again when it is.
"""

from __future__ import annotations

import numpy as np

from oocarrays.plan.streams.directory import cut
from oocarrays.storage.streams.raw import RawChunks


class Superblocks:
    """The superblocks of one rank."""

    def __init__(self, chunks: RawChunks, nbytes: int, first: int, step: int, fill: int = 0) -> None:
        self.chunks = chunks
        self.nbytes = nbytes
        self.first = first
        self.step = step
        self.fill = fill
        self.end = 0
        self._tail = np.empty(0, np.uint8)
        self._is_changed = False

    def number(self, turn: int) -> int:
        """Number of the rank's superblock of this turn."""
        return self.first + turn * self.step

    def append(self, data: np.ndarray) -> None:
        """Append bytes; superblocks that are full are written, from where they are where they lie together."""
        done = 0
        while done < len(data):
            turn, place = divmod(self.end, self.nbytes)
            part = data[done : done + self.nbytes - place]
            if len(part) == self.nbytes:
                self.chunks.put(self.number(turn), part)
            else:
                self._gather(turn, place, part)
            self.end += len(part)
            done += len(part)

    @property
    def room(self) -> int:
        """Bytes that fit in the superblock that is being filled."""
        return self.nbytes - self.end % self.nbytes

    @property
    def place(self) -> int:
        """Bytes of the segment before what comes next."""
        turn, place = divmod(self.end, self.nbytes)
        return self.number(turn) * self.nbytes + place

    def skip(self) -> None:
        """Leave what is left of a superblock as it is."""
        self.append(np.full(self.room, self.fill, np.uint8))

    def _gather(self, turn: int, place: int, part: np.ndarray) -> None:
        if not place:
            self._tail = np.full(self.nbytes, self.fill, np.uint8)
            self.chunks.hold(self.number(turn), self._tail)
        self._tail[place : place + len(part)] = part
        self._is_changed = True
        if place + len(part) == self.nbytes:
            self.chunks.put(self.number(turn), self._tail)
            self._is_changed = False

    def settle(self) -> None:
        """Put what has been gathered, too."""
        if self._is_changed:
            self.chunks.put(self.number(self.end // self.nbytes), self._tail, held=True)
            self._is_changed = False

    def changed(self) -> None:
        """Keep that bytes which are gathered were changed where they are."""
        self._is_changed = bool(self.end % self.nbytes)

    def places(self, start: int, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Cut runs that are appended from ``start`` on: what each piece is of, where it is, and its bytes."""
        of, starts, counts = cut(start, lengths, self.nbytes)
        turn, place = np.divmod(starts, self.nbytes)
        return of, (self.first + turn * self.step) * self.nbytes + place, counts
