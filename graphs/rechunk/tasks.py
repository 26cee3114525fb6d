"""Tasks of a rechunk: of ranks that work by themselves, and of threads that copy from each other's slabs in place.

Ranks on workers exchange messages: see `exchange`.

start ─┬─► assemble ─► assemble ──┬─► name ─► …      one chain of batches per rank, as for ranks that build regions
       └─► assemble ─► assemble ──┘

The pieces of a batch are on the device before the batch is recorded. The journal tells a resumed run in which chunks
pieces were placed, and which pieces hold only the fill value and were left out.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from oocarrays.graphs.exchange import messages
from oocarrays.graphs.exchange.messages import Exchange
from oocarrays.graphs.rechunk import exchange
from oocarrays.graphs.rechunk.assembly import Told
from oocarrays.graphs.rechunk.run import RechunkState
from oocarrays.graphs.run.builder import Outbox, RankBuffers, ReadSlab, Region
from oocarrays.graphs.run.steps import PHASES, VERBS
from oocarrays.mapping.section import Section
from oocarrays.plan.rechunk.assembled import stage_of
from oocarrays.plan.rechunk.passes import ChunkBox, Pass
from oocarrays.storage.chunks.assembling import Take
from oocarrays.storage.chunks.elements import scatter
from oocarrays.storage.files.documents import is_finished
from oocarrays.storage.journal.receipts import Receipts
from oocarrays.storage.local.pages import allocate


def _holding(step: Pass) -> RankBuffers:
    """Allocate memory for a box, and for staging a piece."""
    box = int(np.prod(step.unit, dtype=int)) * step.source.chunk_bytes
    return RankBuffers(allocate(box), _stage(step))


def _stage(step: Pass) -> np.ndarray:
    return allocate(stage_of(step))


def _read_box(run: RechunkState, number: int, unit: int, box: np.ndarray) -> Take:
    """Read a box; return a function that copies elements from it."""
    step, reader = run.plan.passes[number], run.opened(number).reader
    grid, size = step.source.grid, step.source.chunk_bytes
    outs = (run.opened(number).chunk_view(box[at : at + size]) for at in range(0, len(box), size))
    chunks = dict(reader.whole(grid.indices(step.section(step.chunk_box(unit))), outs))

    def take(section: Section, out: np.ndarray) -> None:
        if run.failure:
            raise run.failure
        for index in grid.indices(section):
            there = grid.section(index)
            part = section.intersection(there)
            assert part is not None, "a touched chunk shares an element with the section"
            data = chunks[index]
            taken = run.fill(None) if data is None else data[part.relative_to(there.lower).slices]
            scatter(out, section.lower, part, taken)

    return take


class RechunkRun(RechunkState):
    """Run of a rechunk plan; each task is a method here, or a function in the modules of joint work.

    Its live state, and the program of its exchange, is the run itself.
    """

    phases: ClassVar[Mapping[str, str]] = PHASES
    exchange: ClassVar[Exchange] = exchange.EXCHANGE
    homes: Sequence[str] = ()
    """Worker of each rank when the graph was built."""

    @property
    def program(self) -> RechunkRun:
        return self

    @property
    def live(self) -> RechunkRun:
        return self

    @contextmanager
    def during(self, verb: str, args: tuple[int, ...], *, key: Any = None) -> Iterator[None]:
        """Count a task while it runs."""
        with self._counted(), self._during(verb, args):
            yield

    def _do(self, verb: str, args: tuple[int, ...], inputs: tuple[Any, ...]) -> Any:
        if verb not in VERBS:
            return super()._do(verb, args, inputs)
        *round, stage, rank = args
        if verb == "receive" and not stage:  # the part that the rank has packed for itself
            return exchange.begin(self, tuple(round), rank, inputs[1])
        return getattr(messages, verb)(self, tuple(round), stage, rank, *inputs)  # as tasks name it on a worker

    def __getstate__(self) -> dict[str, Any]:
        return RechunkState.__getstate__(self) | {"homes": self.homes}

    def _start(self, number: int) -> None:
        """Begin a pass; restore the assembly from parts that this run, or the previous process, has done."""
        super()._start(number)
        if self.plan.passes[number].assembled and not self.made and not self._is_repeated():
            assembly = self.assembly(number)
            assembly.learn(self._told(number))
            assembly.reopen()

    # ------------------------------------------------------------------ joint work: between threads, or workers

    def _read(self, number: int, unit: int, *args: Any) -> Outbox | ReadSlab:
        """Read this rank's chunks: of a partition, packed for other workers; of a round, for other threads."""
        if self.processes is None:
            return self._read_round(number, unit, *args)
        return exchange.read(self, number, unit, *args)

    def _read_round(self, number: int, unit: int, turn: int, rank: int, former: ReadSlab | None) -> ReadSlab:
        """Read this rank's source chunks of a round; a slab passes from round to round, and is refilled in place."""
        step = self.plan.passes[number]
        size = step.source.chunk_bytes
        buffer = former.buffer if former else allocate(step.slab * size)
        outs = (self.opened(number).chunk_view(buffer[i * size : (i + 1) * size]) for i in range(step.slab))
        slab = ReadSlab(buffer)
        for chunk in self.opened(number).reader.whole(step.reads(unit, turn, rank), outs):
            if not slab.chunks:  # the first chunk has been read: the device may begin the next round
                self.opened(number).reader.announce(step.reads_after(unit, turn, rank))
            slab.chunks.append(chunk)
        return slab

    def _write(self, number: int, unit: int, rank: int, held: np.ndarray | Region) -> np.ndarray | None:
        """Write this rank's target chunks of a partition, and record the part; release a region, keep a buffer."""
        box = self.plan.passes[number].share(unit, rank)
        if box is not None and not self.is_done((number, unit, rank)):
            receipts, buffer = Receipts(), held.memory if isinstance(held, Region) else held
            self.store(number, box, self.opened(number).region(box, buffer, blank=False), receipts)
            self.record_chunks((number, unit, rank), receipts)
        if not isinstance(held, Region):
            return held
        if held.buffer is not None:
            self.pool(number).give(held.buffer)
        held.buffer = None
        return None

    def _free(self, number: int, unit: int, rank: int, outbox: Outbox) -> None:
        """Release an outbox."""
        exchange.free(self, number, unit, rank, outbox)

    def _probe(self, address: str, rank: int) -> tuple[int, str, str]:
        """Return a rank, its planned and its actual worker; set up that worker's exchanges if a pass needs them."""
        if any(step.whole for step in self.plan.passes):
            exchange.answer(self)
        return super()._probe(address, rank)

    # ------------------------------------------------------------------ ranks that work by themselves

    def _assemble(self, number: int, batch: int, rank: int, holding: RankBuffers | None) -> RankBuffers | None:
        """Read the boxes of a batch, one after the other, and place their elements in target chunks."""
        step, part = self.plan.passes[number], (number, batch, rank)
        if self.is_done(part):
            return holding
        if holding is None or holding.empty:
            holding = _holding(step)
        assembly, units, receipts = self.assembly(number), step.batch_units(batch, rank), Receipts()
        sums: Counter[tuple[int, ...]] = Counter()
        for unit in units:
            with self.meter.phase("read"):
                take = _read_box(self, number, unit, holding.region)
                if unit + step.ranks < step.units:
                    following = step.section(step.chunk_box(unit + step.ranks))
                    self.opened(number).reader.announce(step.source.grid.indices(following))
            with self.meter.phase("write"):
                sums.update(assembly.place(unit, rank, holding.chunk, take))
        with self.meter.phase("write"):
            assembly.end(units, holding.chunk, sums, receipts)
        self.record_chunks(part, receipts)
        return holding

    def _name(self, number: int, rank: int = 0) -> None:
        """Give final names to the chunks without one, at the end of a pass."""
        if self._is_repeated():
            return
        step, assembly = self.plan.passes[number], self.assembly(number)
        if self.processes is not None:
            assembly.learn(self._told(number))
        with self.meter.phase("write"):
            assembly.name_all(_stage(step))

    def _is_repeated(self) -> bool:
        """Return whether a task is repeated after the end of its run: all chunks have their final names."""
        return self.processes is not None and not self.journal.is_there() and is_finished(self.destination.store)

    def _told(self, number: int) -> Told:
        """Return the records of the parts of a pass that are not repeated."""
        stored = self.journal.stored()
        done = self.done if self.processes is None else self.done.union(stored)
        return {part: (stored.get(part) or {}).get("", {}) for part in done if part[0] == number}

    def _copy(self, number: int, batch: int, rank: int, holding: RankBuffers | None) -> RankBuffers | None:
        """Build and write the regions of a batch, one after the other."""
        step, part = self.plan.passes[number], (number, batch, rank)
        if self.is_done(part):
            return holding
        if holding is None or holding.empty:
            region = min(np.prod(step.region, dtype=int), step.target.grid.count) * step.target.chunk_bytes
            chunk = step.source.chunk_bytes if step.access == "chunks" else 0
            holding = RankBuffers(allocate(int(region)), allocate(chunk))
        reader, receipts, recorded = self.opened(number).reader, Receipts(), time.monotonic()
        for unit in step.batch_units(batch, rank):
            if self._left_in(number, step.chunk_box(unit)):
                self._build(number, step.chunk_box(unit), holding, receipts)
                if time.monotonic() - recorded > self.record_seconds:
                    self.record_some(part, unit, receipts)
                    recorded = time.monotonic()
            if unit + step.ranks < step.units:
                following = step.section(step.chunk_box(unit + step.ranks))
                reader.announce(step.source.grid.indices(following))
        self.record_chunks(part, receipts)
        return holding

    def _build(self, number: int, box: ChunkBox, holding: RankBuffers, receipts: Receipts) -> None:
        """Build one region, and write it."""
        step = self.plan.passes[number]
        region, section = self.opened(number).region(box, holding.region), step.section(box)
        with self.meter.phase("read"):
            for piece, data in self.opened(number).parts(step.source.grid.indices(section), section, holding.chunk):
                scatter(region, section.lower, piece, self.fill(data))
        with self.meter.phase("write"):
            self.store(number, box, region, receipts)
