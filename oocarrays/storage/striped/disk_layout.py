"""Where what lies in a striped store: the disk of each key, by whose turn it is."""

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
        """Return the disk of a key: of what is no chunk the first."""
        cycle = cycle or self.cycle
        return cycle[(turn_of(key) or 0) % len(cycle)]

    def part_of(self, key: str) -> Store:
        """Return the same as a store."""
        return self.parts[self.number_of(key)]

    def places(self, key: str) -> list[Store]:
        """Where a key may be: on its disk; where chunks are being moved on the one before, or meanwhile on its own."""
        here = self.part_of(key)
        there = self.parts[self.number_of(key, self.before)] if self.before else here
        return [here] if there is here else [here, there]

    def from_turn(self, key: str) -> tuple[int, ...]:
        """Return all disks, from that of a key on."""
        disks = sorted(set(self.cycle))
        first = disks.index(self.number_of(key))
        return (*disks[first:], *disks[:first])


class StripedBlobs(LocalBlobs):
    """The chunks of one array in the folders of several disks."""

    def __init__(
        self, layout: DiskLayout, prefix: str, *, begin: Callable[[], object], past_cache: bool = False
    ) -> None:
        self._layout, self._begin, self._begun = layout, begin, False
        self._roots = [str(layout.parts[number].root) for number in layout.cycle]  # type: ignore[attr-defined]
        super().__init__(os.path.join(self._roots[0], prefix) if prefix else self._roots[0], past_cache=past_cache)
        self._prefix = prefix

    def root_of(self, key: str) -> str:
        """Return the folder of the disk that has a chunk."""
        return self._roots[(turn_of(key) or 0) % len(self._roots)]

    def path(self, key: str) -> str:
        """Where the chunk under ``key`` is, or would be."""
        return os.path.join(self.root_of(key), self._prefix, key)

    def put(self, key: str, data: memoryview) -> None:
        """Replace the chunk under ``key`` by ``data``."""
        self._announce()
        super().put(key, data)

    def put_pieces(self, key: str, pieces: Iterator[Piece]) -> bool:
        """Replace the chunk under ``key`` by pieces."""
        self._announce()
        return super().put_pieces(key, pieces)

    def change(self, key: str, pieces: Iterable[Piece]) -> None:
        """Write pieces of a chunk where they are."""
        self._announce()
        super().change(key, pieces)

    def remove(self, key: str) -> None:
        """Take the chunk under ``key`` away."""
        self._announce()
        super().remove(key)

    def _announce(self) -> None:
        """Have the disks say that somebody writes, before the first write."""
        if not self._begun:
            self._begin()
            self._begun = True

    def check(self) -> None:
        """Refuse to write where a disk has gone."""
        super().check()
        for root in dict.fromkeys(self._roots):
            LocalBlobs(root).check()
