"""The chunks of a target that ranks assemble: who has still to write to each, and what has been placed in it.

Between threads a chunk gets its name when its last piece is in it: writers are counted. Between workers nobody can
count: all chunks get their names at the end of the pass. A piece of nothing but the fill value is left out; where
anything else is in its chunk, it is placed before that gets its name.

source chunks ─► parts ─► region: its chunks one behind the other ─► chunks, as they are written
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import product, repeat
from typing import Any

import numpy as np

from oocarrays.mapping.grid import Index
from oocarrays.mapping.section import Section
from oocarrays.plan.rechunk.assembled import groups
from oocarrays.plan.rechunk.passes import ChunkBox, Pass
from oocarrays.storage.chunks.assembling import Assembler, Take
from oocarrays.storage.chunks.elements import common
from oocarrays.storage.chunks.turned import Reader, Writer, chunk_major
from oocarrays.storage.journal.receipts import Receipt, Receipts
from oocarrays.storage.pool import shaped


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPass:
    """The files that one pass reads from and writes to, in this process."""

    step: Pass
    """The pass."""
    reader: Reader
    """Reads what it reads."""
    writer: Writer
    """Writes what it writes."""
    assembly: Assembly | None
    """Chunks that are assembled, where any are."""
    fill_value: Any
    """The value of what is not stored."""

    def parts(
        self, indices: Iterable[Index], section: Section, chunk: np.ndarray
    ) -> Iterator[tuple[Section, np.ndarray | None]]:
        """Yield what some source chunks have of ``section``, as the pass reads it; None for a chunk that is missing."""
        step, reader = self.step, self.reader
        if step.access == "sieved":
            yield from reader.sieved(indices, section)
        elif step.access == "ranges":
            yield from reader.tiles(indices, section, step.tile)
        else:
            for index, data in reader.whole(indices, repeat(self.chunk_view(chunk))):
                yield from common(step.source.grid.section(index), section, data)

    def chunk_view(self, buffer: np.ndarray) -> np.ndarray:
        """View a buffer as one chunk of what the pass reads."""
        return shaped(buffer, self.reader.grid.chunks, self.reader.dtype)

    def region(self, box: ChunkBox, buffer: np.ndarray, blank: bool = True) -> np.ndarray:
        """View the chunks of a box in a buffer, one contiguous chunk after the other."""
        grid, file = self.step.target.grid, self.writer.file
        counts = tuple(b - a for a, b in zip(*box, strict=True))
        region = chunk_major(buffer, counts, grid.chunks, file.dtype, file.stored.order)
        if blank:
            for axis, (last, n, c) in enumerate(zip(box[1], grid.shape, grid.chunks, strict=True)):
                if last * c > n:
                    padding: list[Any] = [slice(None)] * region.ndim
                    padding[axis], padding[len(counts) + axis] = -1, slice(n - (last - 1) * c, None)
                    region[tuple(padding)] = self.fill_value
        return region

    def chunks(
        self, box: ChunkBox, region: np.ndarray, stored: Container[str] = ()
    ) -> Iterator[tuple[Index, np.ndarray]]:
        """Yield the chunks of a region, but for those that are ``stored`` under their keys."""
        key = self.writer.file.chunk_key
        for index in product(*map(range, *box)):
            if not (stored and key(index) in stored):
                place: Any = (*(i - a for i, a in zip(index, box[0], strict=True)), ...)
                yield index, region[place]


Told = Mapping[tuple[int, ...], Mapping[str, Receipt]]
"""What parts of a pass have placed, by the keys of chunks; None where they placed nothing."""
MOST_SUM = 2**32
"""What checksums of pieces are added up to at most, to begin again from 0."""
NAMED = -1
"""Stands for the writers of a chunk that has got its name."""


class Assembly:
    """State that the ranks of a process share while they assemble the target of a pass."""

    def __init__(self, step: Pass, assembler: Assembler, *, counts: bool, fresh: bool, kept: Iterable[str]) -> None:
        self.step, self.assembler = step, assembler
        self.counts, self.fresh, self.kept = counts, fresh, frozenset(kept)
        self._lock = threading.Lock()
        self._left = _writers(step)
        """How many units have still to write to each chunk."""
        self._stored = np.zeros(step.target.grid.counts, bool)
        """In which chunks something has been placed, as far as is known here."""
        self._fills: defaultdict[Index, set[int]] = defaultdict(set)
        """The units of which a chunk has nothing but the fill value, which has not been placed."""

    def key(self, index: Index) -> str:
        return self.assembler.key(index)

    @property
    def leaves_fill(self) -> bool:
        """Whether the fill value is there where nothing is placed."""
        return self.fresh and self.assembler.fill_is_zeros

    def touched(self, unit: int) -> Iterator[Index]:
        """The chunks in which a unit has a piece, but for those that are kept."""
        for index in product(*([place for place, _, _ in axis] for axis in self.step.places_along(unit))):
            if not self.kept or self.key(index) not in self.kept:
                yield index

    # ------------------------------------------------------------------ going on

    def learn(self, told: Told) -> None:
        """Know what parts have placed that were done before, or elsewhere."""
        for (_, batch, rank), receipts in told.items():
            for unit in self.step.batch_units(batch, rank):
                for index in self.touched(unit):
                    self._left[index] -= 1
                    if receipts.get(self.key(index)) is not None:
                        self._stored[index] = True
                    elif not self.leaves_fill:
                        self._fills[index].add(unit)

    def reopen(self) -> None:
        """Take their names from chunks to which something must be written again."""
        for index in map(tuple, np.argwhere((self._left > 0) & self._stored).tolist()):
            if self.key(index) not in self.kept:
                self.assembler.chunks.reopen(self.key(index))

    # ------------------------------------------------------------------ what a unit does

    def place(self, unit: int, rank: int, stage: np.ndarray, take: Take) -> Counter[Index]:
        """Place what was read of a unit in all chunks that it touches: each rank begins with another one."""
        sums: Counter[Index] = Counter()
        boxes = list(groups(self.step, unit, len(stage) // self.step.target.itemsize))
        start = rank * len(boxes) // self.step.ranks
        for box in boxes[start:] + boxes[:start]:
            for index, key, placed in self.assembler.place(*box, stage, self.step.tile, take, self.kept):
                if placed is not None:
                    self._stored[index] = True
                    sums[index] += placed
                elif not self.leaves_fill and key not in self.kept:
                    with self._lock:
                        self._fills[index].add(unit)
        return sums

    def end(self, units: Iterable[int], stage: np.ndarray, sums: Mapping[Index, int], receipts: Receipts) -> None:
        """Say what some units have placed, and give the chunks their names of which nothing is missing."""
        here: defaultdict[Index, list[int]] = defaultdict(list)
        for unit in units:
            for index in self.touched(unit):
                here[index].append(unit)
        for index, mine in here.items():
            if not self._stored[index]:
                receipts.absent(self.key(index))
                continue
            self._put_fills(index, mine, stage)
            self.assembler.chunks.placed(self.key(index))
            receipts.stored(self.key(index), self.step.target.chunk_bytes, sums.get(index, 0) % MOST_SUM)
        for index in self._whole(here):
            self.name(index, stage)

    def _put_fills(self, index: Index, units: Iterable[int], stage: np.ndarray) -> None:
        """Place what some units have left out of a chunk in which there is something else."""
        with self._lock:
            mine = self._fills[index].intersection(units) if index in self._fills else ()
            if mine:
                self._fills[index].difference_update(mine)
        for unit in mine:
            self.assembler.place_fill(index, dict(self.step.places(unit))[index], stage, self.step.tile)

    def _whole(self, here: Mapping[Index, list[int]]) -> list[Index]:
        """The chunks that nobody has still to write to, where that is known."""
        with self._lock:
            for index, mine in here.items():
                self._left[index] -= len(mine)
            return [index for index in here if self._left[index] == 0] if self.counts else []

    # ------------------------------------------------------------------ the end

    def name(self, index: Index, stage: np.ndarray) -> None:
        """Give a chunk its name, where it has none yet; one in which nothing was placed is not stored."""
        key, stored = self.key(index), self._stored[index]
        if stored and index in self._fills and self.assembler.chunks.is_there(key):
            self._put_fills(index, tuple(self._fills[index]), stage)
        self._left[index] = NAMED
        if stored:
            self.assembler.finish(index)
        else:
            self.assembler.skip(index, fresh=self.fresh)

    def name_all(self, stage: np.ndarray) -> None:
        """Give all other chunks their names: nothing is missing of any."""
        for index in product(*map(range, self.step.target.grid.counts)):
            if not (self.counts and self._left[index] == NAMED) and self.key(index) not in self.kept:
                self.name(index, stage)
        self.assembler.chunks.close()


def _writers(step: Pass) -> np.ndarray:
    """How many units write to each target chunk."""
    along = [np.array(axis, np.int32) for axis in step.writers]
    return reduce(np.multiply.outer, along, np.ones((), np.int32)).reshape(step.target.grid.counts)
