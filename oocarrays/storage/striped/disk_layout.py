"""Assignment of keys to disks in a striped store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from zarr.abc.store import Store

from oocarrays.storage.local.blobs import LocalBlobs
from oocarrays.storage.local.direct_io import Piece
from oocarrays.storage.striped.layout import turn_of


class DiskLayout:
    """Layout of a striped store over its disks."""

    def __init__(
        self, *, parts: dict[int, Store], cycle: tuple[int, ...], before: tuple[int, ...], block: int | None, made: bool
    ) -> None:
        self.parts, self.cycle, self.before, self.block, self.made = parts, cycle, before, block, made

    def number_of(self, key: str, cycle: Sequence[int] = ()) -> int:
        """Return the disk number of a key; keys that are not chunks belong to the first disk."""
        cycle = cycle or self.cycle
        return cycle[(turn_of(key) or 0) % len(cycle)]

    def part_of(self, key: str) -> Store:
        return self.parts[self.number_of(key)]

    def places(self, key: str) -> list[Store]:
        """Return the disks that may hold a key: the current one and, during a move, the previous one."""
        here = self.part_of(key)
        there = self.parts[self.number_of(key, self.before)] if self.before else here
        return [here] if there is here else [here, there]

    def from_turn(self, key: str) -> tuple[int, ...]:
        """Return all disk numbers in rotation, from the disk of a key."""
        disks = sorted(set(self.cycle))
        first = disks.index(self.number_of(key))
        return (*disks[first:], *disks[:first])


class StripedBlobs(LocalBlobs):
    """Chunks of one array in the folders of several disks."""

    def __init__(
        self, layout: DiskLayout, prefix: str, *, begin: Callable[[], object], past_cache: bool = False
    ) -> None:
        self._layout, self._begin, self._begun = layout, begin, False
        self._roots = [str(layout.parts[number].root) for number in layout.cycle]  # type: ignore[attr-defined]
        super().__init__(os.path.join(self._roots[0], prefix) if prefix else self._roots[0], past_cache=past_cache)
        self._prefix = prefix

    def root_of(self, key: str) -> str:
        """Return the folder of the disk of a chunk."""
        return self._roots[(turn_of(key) or 0) % len(self._roots)]

    def path(self, key: str) -> str:
        """Return the path of the chunk under ``key``, existing or not."""
        return os.path.join(self.root_of(key), self._prefix, key)

    def put(self, key: str, data: memoryview) -> None:
        self._announce()
        super().put(key, data)

    def put_pieces(self, key: str, pieces: Iterator[Piece]) -> bool:
        self._announce()
        return super().put_pieces(key, pieces)

    def change(self, key: str, pieces: Iterable[Piece]) -> None:
        self._announce()
        super().change(key, pieces)

    def remove(self, key: str) -> None:
        self._announce()
        super().remove(key)

    def _announce(self) -> None:
        """Announce a writer on the disks before the first write."""
        if not self._begun:
            self._begin()
            self._begun = True

    def check(self) -> None:
        """Raise if a disk is missing."""
        super().check()
        for root in dict.fromkeys(self._roots):
            LocalBlobs(root).check()
