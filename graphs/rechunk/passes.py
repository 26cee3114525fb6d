"""Files, buffers and scratch of the passes of a rechunk, in one process, and the assembly of target chunks by ranks.

source ─► pass 0 ─► scratch/0 ─► pass 1 ─► … ─► target        each opened once; used buffers are kept for one pass

Several ranks may assemble a target chunk. Between threads it gets its final name when its last piece has been placed:
writers are counted. Workers cannot count, so all chunks get their names at the end of the pass. A piece of only fill
values is left out; if its chunk holds other data, the piece is placed before the chunk gets its name.

source chunks ─► parts ─► region: its chunks, one after the other ─► chunks as written
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set as AbstractSet
from dataclasses import dataclass
from functools import partial, reduce
from itertools import product, repeat
from typing import Any

import numpy as np

from oocarrays.graphs.run.live import Live
from oocarrays.graphs.run.program import Part
from oocarrays.mapping.grid import Index
from oocarrays.mapping.section import Section
from oocarrays.plan.rechunk.assembled import groups, on_sectors
from oocarrays.plan.rechunk.passes import ChunkBox, Pass
from oocarrays.plan.rechunk.plan import RechunkPlan
from oocarrays.storage.chunks.assembling import Assembler, Take
from oocarrays.storage.chunks.elements import chunk_major, common_part
from oocarrays.storage.chunks.reader import ChunkReader
from oocarrays.storage.chunks.writer import ChunkWriter
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import is_scratch
from oocarrays.storage.files.documents import is_finished
from oocarrays.storage.files.places import place_below
from oocarrays.storage.journal.texts import Receipt, Receipts
from oocarrays.storage.local.fs import mark_of_plan
from oocarrays.storage.local.pages import Pool, shaped
from oocarrays.storage.stores.remote import RemoteStore


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPass:
    """Files that one pass reads from and writes to, in this process."""

    step: Pass
    reader: ChunkReader
    writer: ChunkWriter
    assembly: Assembly | None
    """State of the chunks being assembled; None if the pass assembles none."""
    fill_value: Any

    def parts(
        self, indices: Iterable[Index], section: Section, chunk: np.ndarray
    ) -> Iterator[tuple[Section, np.ndarray | None]]:
        """Yield the parts of ``section`` in some source chunks, as the pass accesses them; None for a missing chunk."""
        step, reader = self.step, self.reader
        if step.access == "sieved":
            yield from reader.sieved(indices, section)
        elif step.access == "ranges":
            yield from reader.tiles(indices, section, step.tile)
        else:
            for index, data in reader.whole(indices, repeat(self.chunk_view(chunk))):
                yield from common_part(step.source.grid.section(index), section, data)

    def chunk_view(self, buffer: np.ndarray) -> np.ndarray:
        return shaped(buffer, self.reader.grid.chunks, self.reader.dtype)

    def region(self, box: ChunkBox, buffer: np.ndarray, blank: bool = True) -> np.ndarray:
        """View a buffer as the chunks of a box, each contiguous, one after the other."""
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


Told = Mapping[tuple[int, ...], Mapping[str, Receipt]]
"""Receipts of the parts of a pass, by chunk key; None for a chunk in which the part has placed nothing."""
MOST_SUM = 2**32
"""Modulus of the sums of the checksums of pieces."""
NAMED = -1
"""Number of writers that marks a chunk with its final name."""


class Assembly:
    """State shared by the ranks of a process that assemble the target of a pass."""

    def __init__(self, step: Pass, assembler: Assembler, *, counts: bool, fresh: bool, kept: Iterable[str]) -> None:
        self.step, self.assembler = step, assembler
        self.counts, self.fresh, self.kept = counts, fresh, frozenset(kept)
        self._lock = threading.Lock()
        self._left = _writers(step)
        """Number of units still to write to each chunk."""
        self._stored = np.zeros(step.target.grid.counts, bool)
        """Whether a piece has been placed in each chunk, as far as this process knows."""
        self._fills: defaultdict[Index, set[int]] = defaultdict(set)
        """Units that have only fill values for a chunk, which have not been placed."""

    def key(self, index: Index) -> str:
        return self.assembler.key(index)

    @property
    def leaves_fill(self) -> bool:
        """Whether chunks hold the fill value where nothing is placed."""
        return self.fresh and self.assembler.fill_is_zeros

    def touched(self, unit: int) -> Iterator[Index]:
        """Yield the chunks in which a unit has a piece, except kept ones."""
        for index in self.step.target.grid.indices(self.step.section(self.step.chunk_box(unit))):
            if not self.kept or self.key(index) not in self.kept:
                yield index

    def learn(self, told: Told) -> None:
        """Update the state with the pieces of parts that were done before, or by other processes."""
        for (_, batch, rank), receipts in told.items():
            for unit in self.step.batch_units(batch, rank):
                for index in self.touched(unit):
                    self._left[index] -= 1
                    if receipts.get(self.key(index)) is not None:
                        self._stored[index] = True
                    elif not self.leaves_fill:
                        self._fills[index].add(unit)

    def reopen(self) -> None:
        """Remove the final names of chunks that need further writes."""
        for index in map(tuple, np.argwhere((self._left > 0) & self._stored).tolist()):
            if self.key(index) not in self.kept:
                self.assembler.chunks.reopen(self.key(index))

    def place(self, unit: int, rank: int, stage: np.ndarray, take: Take) -> Counter[Index]:
        """Place a unit's pieces in its chunks, and return their checksums; each rank begins with different chunks."""
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
        """Record the pieces of some units, and name the chunks that are complete."""
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
        """Place the fill values that some units have left out of a chunk with other data."""
        with self._lock:
            mine = self._fills[index].intersection(units) if index in self._fills else ()
            if mine:
                self._fills[index].difference_update(mine)
        for unit in mine:
            piece = self.step.place(unit, index)
            assert piece is not None, "units leave out fill values of chunks that they touch"
            self.assembler.place_fill(index, piece, stage, self.step.tile)

    def _whole(self, here: Mapping[Index, list[int]]) -> list[Index]:
        """Return the chunks without further writers, if writers are counted."""
        with self._lock:
            for index, mine in here.items():
                self._left[index] -= len(mine)
            return [index for index in here if self._left[index] == 0] if self.counts else []

    def name(self, index: Index, stage: np.ndarray) -> None:
        """Give a chunk its final name, if it has none yet; a chunk with nothing placed is not stored."""
        key, stored = self.key(index), self._stored[index]
        if stored and index in self._fills and self.assembler.chunks.is_there(key):
            self._put_fills(index, tuple(self._fills[index]), stage)
        self._left[index] = NAMED
        if stored:
            self.assembler.finish(index)
        else:
            self.assembler.skip(index, fresh=self.fresh)

    def name_all(self, stage: np.ndarray) -> None:
        """Give all other chunks their final names: every chunk is complete."""
        for index in product(*map(range, self.step.target.grid.counts)):
            if not (self.counts and self._left[index] == NAMED) and self.key(index) not in self.kept:
                self.name(index, stage)
        self.assembler.chunks.close()


def _writers(step: Pass) -> np.ndarray:
    """Return the number of units that write to each target chunk."""
    along = [np.array(axis, np.int32) for axis in step.writers]
    return reduce(np.multiply.outer, along, np.ones((), np.int32)).reshape(step.target.grid.counts)


def source(live: Live[Any]) -> ArrayFile:
    """Return the source; that of a lazy array is in scratch, and complete once every block has been written."""
    file = live.program.source
    return file if isinstance(file, ArrayFile) else live.once("source", partial(scratch_array, live, "blocks"))


def scratch_array(live: Live[Any], name: str | int) -> ArrayFile:
    """Open an array in scratch, and mark scratch as in use."""
    live.use(live.program.below)
    return array_file.describe(array_file.open_array(scratch_place(live, name), mode="r+"))


def scratch_place(live: Live[Any], name: str | int) -> str | RemoteStore:
    """Return the location of an array in scratch: the output of a pass, by its number, or blocks."""
    return place_below(live.program.below, str(name))


def opened(live: Live[Any], number: int) -> OpenPass:
    return live.once(("pass", number), lambda: _open(live, number))


def _open(live: Live[Any], number: int) -> OpenPass:
    program, made = live.program, live.state.made
    step: Pass = program.plan.passes[number]
    past_cache = program.plan.target.nbytes > program.target.past_cache_above and not step.target.cached
    reads = scratch_array(live, number - 1) if number else source(live)
    writes = live.target() if number == len(program.plan.passes) - 1 else scratch_array(live, number)
    assembly = None
    if step.assembled:
        aligned = on_sectors(step.source, step.target, step.unit)
        assembler = Assembler(writes, live.meter, mark(live, number), past_cache=past_cache and aligned)
        counts = not live.on_workers
        assembly = Assembly(step, assembler, counts=counts, fresh=made, kept=kept(live, number))
    return OpenPass(
        step=step,
        reader=ChunkReader(reads, live.meter, read_ahead=step.read_ahead, requests=step.requests),
        writer=ChunkWriter(
            writes, live.meter, past_cache=past_cache, behind=step.write_behind, requests=step.requests, fresh=made
        ),
        assembly=assembly,
        fill_value=source(live).fill_value,
    )


def assembly_of(live: Live[Any], number: int) -> Assembly:
    assembly = opened(live, number).assembly
    assert assembly is not None, "chunks are assembled in passes of that method"
    return assembly


def mark(live: Live[Any], number: int) -> str:
    """Return the mark in the names of chunks that a pass has not finished."""
    return mark_of_plan(live.id, live.state.recovered.beginning, number)


def marks(live: Live[Any]) -> set[str]:
    return {mark(live, number) for number in range(len(live.program.plan.passes))}


def pool(live: Live[Any], number: int) -> Pool:
    """Return the pool of used buffers of a pass; its first use drops that of the pass before."""
    return live.once(("pool", number), lambda: _new_pool(live, number))


def _new_pool(live: Live[Any], number: int) -> Pool:
    if number:
        live.forget(("pool", number - 1), "rooms")
    return Pool()


def is_repeated(live: Live[Any]) -> bool:
    """Return whether a task is repeated after the end of its run: all chunks have their final names."""
    return live.ended or (live.on_workers and not live.journal.is_there() and is_finished(live.store))


def usable_parts(plan: RechunkPlan, parts: AbstractSet[Part], scratch: str | RemoteStore) -> set[Part]:
    """Return the parts that need not be repeated; parts in missing scratch must be, unless a later pass is complete."""
    every = [set(step.parts(number)) for number, step in enumerate(plan.passes)]
    usable: set[Part] = set()
    for number, mine in reversed(list(enumerate(every))):
        if number == len(every) - 1 or is_scratch(place_below(scratch, str(number))):
            usable |= mine & parts
        if mine <= usable:
            return usable.union(*every[:number])
    return usable


def kept(live: Live[Any], number: int) -> Mapping[str, Receipt]:
    """Return the receipts of chunks that a pass need not write, because an earlier plan of this run has."""
    return live.program.kept(live.state.recovered.kept, number)


def has_left(live: Live[Any], number: int, box: ChunkBox) -> bool:
    """Return whether a box has a chunk that no earlier plan of this run has stored."""
    there = kept(live, number)
    if not there:
        return True
    key = opened(live, number).writer.file.chunk_key
    return any(key(index) not in there for index in product(*map(range, *box)))


def store(live: Live[Any], number: int, box: ChunkBox, region: np.ndarray, receipts: Receipts) -> None:
    """Write the chunks of a region, except kept ones; stop if the run has failed."""
    writer, stored = opened(live, number).writer, kept(live, number)

    def chunks() -> Iterator[tuple[Index, np.ndarray]]:
        for index in product(*map(range, *box)):
            if live.failure:
                raise live.failure
            if not (stored and writer.file.chunk_key(index) in stored):
                place: Any = (*(i - a for i, a in zip(index, box[0], strict=True)), ...)
                yield index, region[place]

    writer.write_all(chunks(), receipts)
