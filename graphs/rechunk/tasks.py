"""Tasks of a rechunk: the beginning of the run and of each pass, the work of ranks by themselves, and the end.

Joint work of ranks on workers: see `exchange`.

start ─┬─► assemble ─► assemble ──┬─► name ─► …      one chain of batches per rank, as for ranks that build regions
       └─► assemble ─► assemble ──┘

The pieces of a batch are on the device before the batch is recorded. The journal tells a resumed run in which chunks
pieces were placed, and which pieces hold only the fill value and were left out.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any

import numpy as np

from oocarrays.errors import OocError
from oocarrays.graphs.cluster.placement import Probed
from oocarrays.graphs.exchange.messages import Round
from oocarrays.graphs.rechunk.exchange import answer
from oocarrays.graphs.rechunk.passes import (
    Told,
    assembly_of,
    has_left,
    is_repeated,
    opened,
    pool,
    scratch_place,
    source,
    store,
)
from oocarrays.graphs.run import recording, run
from oocarrays.graphs.run.live import Live
from oocarrays.graphs.run.program import Part, RankBuffers, ReadSlab, Region
from oocarrays.mapping.grid import Index
from oocarrays.mapping.section import Section
from oocarrays.plan.rechunk.assembled import stage_of
from oocarrays.plan.rechunk.passes import ChunkBox, Pass
from oocarrays.storage.chunks.assembling import Take
from oocarrays.storage.chunks.elements import common_part, scatter
from oocarrays.storage.files.creating import create_scratch, remove_scratch
from oocarrays.storage.journal.texts import Receipts
from oocarrays.storage.local import syncing
from oocarrays.storage.local.pages import allocate, padded


def probe(live: Live[Any], address: str, rank: int) -> Probed:
    """Return a rank, its planned and its actual worker; set up that worker's exchanges if a pass needs them."""
    if live.program.whole:
        answer(live)
    return run.probe(live, address, rank)


def create(live: Live[Any], *probes: Probed) -> None:
    """Begin the run; the journal of a lazy array's describes the blocks in scratch."""
    if not live.program.sources:
        live.state.content = live.state.content | live.program.content_of(source(live))
    recording.begin(live, probes)


def start(live: Live[Any], number: int) -> None:
    """Begin a pass, which reads the output of the previous one.

    Restore the assembly from parts that this run, or the previous process, has done.
    """
    program, state = live.program, live.state
    step: Pass = program.plan.passes[number]
    if live.ended:
        return
    if number > 1:
        live.syncer.wait()  # to resume, either a pass's source or the record of its end must exist
        remove_scratch(scratch_place(live, number - 2))
    if number < len(program.plan.passes) - 1:
        live.use(program.below)
        cached = bool(program.cached)
        create_scratch(
            scratch_place(live, number), source(live), step.target,
            durable=state.durable and not cached, boot=syncing.boot() if cached else "",
        )  # fmt: skip
    if step.assembled and not state.made and not is_repeated(live):
        assembly = assembly_of(live, number)
        assembly.learn(_told(live, number))
        assembly.reopen()


def finish(live: Live[Any]) -> str:
    """End the run, and remove its scratch; an array of a group closes its files before the next one begins."""
    program = live.program
    if program.cached:  # before the sync, which then need not write scratch
        remove_scratch(program.below)
    if not recording.has_ended(live):
        recording.keep_source_of(live.journal, [file.zarr for file in program.sources])
    ended: str = recording.end(live, live.target().name)
    live.give_up(program.below)
    remove_scratch(program.below)
    if program.member:
        live.forget()
    return ended


def read(live: Live[Any], number: int, unit: int, turn: int, rank: int, former: ReadSlab | None) -> ReadSlab:
    """Read this rank's source chunks of a round, for other threads; a slab is refilled in place in a later round."""
    step, files = live.program.plan.passes[number], opened(live, number)
    size = step.source.chunk_bytes
    buffer = former.buffer if former else allocate(step.slab * size)
    outs = (files.chunk_view(buffer[i * size : (i + 1) * size]) for i in range(step.slab))
    slab = ReadSlab(buffer)
    for chunk in files.reader.whole(step.reads(unit, turn, rank), outs):
        if not slab.chunks:  # the first chunk has been read: the device may begin the next round
            files.reader.announce(step.reads_after(unit, turn, rank))
        slab.chunks.append(chunk)
    return slab


def gather(
    live: Live[Any], round: Round, stage: int, rank: int, there: np.ndarray | None, held: Mapping[int, ReadSlab]
) -> np.ndarray:
    """Copy the elements of a rank's target chunks from its partners' slabs, between threads; return its buffer."""
    number, unit, turn = round
    step, files = live.program.plan.passes[number], opened(live, number)
    if there is None:
        there = allocate(padded(int(np.prod(step.region, dtype=int)) * step.target.chunk_bytes))
    box = step.share(unit, rank)
    if box is None:
        return there
    region = files.region(box, there, blank=turn == stage == 0)
    section = step.section(box)
    for index, chunk in chain.from_iterable(slab.chunks for slab in held.values()):
        for part, data in common_part(step.source.grid.section(index), section, chunk):
            scatter(region, section.lower, part, files.fill_value if data is None else data)
    return there


def write(live: Live[Any], number: int, unit: int, rank: int, held: np.ndarray | Region) -> np.ndarray | None:
    """Write this rank's target chunks of a partition, and record the part; release a region, keep a buffer."""
    box = live.program.plan.passes[number].share(unit, rank)
    if box is not None and not live.is_done((number, unit, rank)):
        part, receipts = (number, unit, rank), Receipts()
        buffer = held.memory if isinstance(held, Region) else held
        with _recorded_so_far(live, part, receipts):
            store(live, number, box, opened(live, number).region(box, buffer, blank=False), receipts)
        live.record(part, {"": receipts.kept})
    if not isinstance(held, Region):
        return held
    if held.buffer is not None:
        pool(live, number).give(held.buffer)
    held.buffer = None
    return None


def copy(live: Live[Any], number: int, batch: int, rank: int, holding: RankBuffers | None) -> RankBuffers | None:
    """Build and write the regions of a batch, one after the other."""
    program, part = live.program, (number, batch, rank)
    step: Pass = program.plan.passes[number]
    if live.is_done(part):
        return holding
    if holding is None or holding.empty:
        region = min(np.prod(step.region, dtype=int), step.target.grid.count) * step.target.chunk_bytes
        chunk = step.source.chunk_bytes if step.access == "chunks" else 0
        holding = RankBuffers(allocate(int(region)), allocate(chunk))
    reader, receipts, recorded = opened(live, number).reader, Receipts(), time.monotonic()
    with _recorded_so_far(live, part, receipts) as so_far:
        for unit in step.batch_units(batch, rank):
            if has_left(live, number, step.chunk_box(unit)):
                _build(live, number, step.chunk_box(unit), holding, receipts)
                if time.monotonic() - recorded > program.record_seconds:
                    so_far()
                    recorded = time.monotonic()
            if unit + step.ranks < step.units:
                following = step.section(step.chunk_box(unit + step.ranks))
                reader.announce(step.source.grid.indices(following))
    live.record(part, {"": receipts.kept})
    return holding


@contextmanager
def _recorded_so_far(live: Live[Any], part: Part, receipts: Receipts) -> Iterator[Callable[[], None]]:
    """Give a function that records the chunks written so far of a part, and call it if the part is interrupted."""
    to_target = part[0] == len(live.program.plan.passes) - 1  # a resumed run does not write recorded chunks again

    def record() -> None:
        if to_target and receipts.kept:
            live.record((*part, time.time_ns()), {"": dict(receipts.kept)})  # no name of an earlier process

    try:
        yield record
    except BaseException:
        with suppress(OocError):  # the first error is the one to report
            record()
        raise


def _build(live: Live[Any], number: int, box: ChunkBox, holding: RankBuffers, receipts: Receipts) -> None:
    step, files = live.program.plan.passes[number], opened(live, number)
    region, section = files.region(box, holding.region), step.section(box)
    with live.meter.phase("read"):
        for piece, data in files.parts(step.source.grid.indices(section), section, holding.chunk):
            scatter(region, section.lower, piece, files.fill_value if data is None else data)
    with live.meter.phase("write"):
        store(live, number, box, region, receipts)


def assemble(live: Live[Any], number: int, batch: int, rank: int, holding: RankBuffers | None) -> RankBuffers | None:
    """Read the boxes of a batch, one after the other, and place their elements in target chunks."""
    step, part = live.program.plan.passes[number], (number, batch, rank)
    if live.is_done(part):
        return holding
    if holding is None or holding.empty:
        holding = RankBuffers(
            allocate(int(np.prod(step.unit, dtype=int)) * step.source.chunk_bytes), allocate(stage_of(step))
        )
    assembly, units, receipts = assembly_of(live, number), step.batch_units(batch, rank), Receipts()
    sums: Counter[Index] = Counter()
    for unit in units:
        with live.meter.phase("read"):
            take = _read_box(live, number, unit, holding.region)
            if unit + step.ranks < step.units:
                following = step.section(step.chunk_box(unit + step.ranks))
                opened(live, number).reader.announce(step.source.grid.indices(following))
        with live.meter.phase("write"):
            sums.update(assembly.place(unit, rank, holding.chunk, take))
    with live.meter.phase("write"):
        assembly.end(units, holding.chunk, sums, receipts)
    live.record(part, {"": receipts.kept})
    return holding


def _read_box(live: Live[Any], number: int, unit: int, box: np.ndarray) -> Take:
    """Read a box; return a function that copies elements from it."""
    step, files = live.program.plan.passes[number], opened(live, number)
    grid, size = step.source.grid, step.source.chunk_bytes
    outs = (files.chunk_view(box[at : at + size]) for at in range(0, len(box), size))
    chunks = dict(files.reader.whole(grid.indices(step.section(step.chunk_box(unit))), outs))

    def take(section: Section, out: np.ndarray) -> None:
        if live.failure:
            raise live.failure
        for index in grid.indices(section):
            there = grid.section(index)
            part = section.intersection(there)
            assert part is not None, "a touched chunk shares an element with the section"
            data = chunks[index]
            taken = files.fill_value if data is None else data[part.relative_to(there.lower).slices]
            scatter(out, section.lower, part, taken)

    return take


def name(live: Live[Any], number: int) -> None:
    """Give final names to the chunks without one, at the end of a pass."""
    if is_repeated(live):
        return
    assembly = assembly_of(live, number)
    if live.on_workers:
        assembly.learn(_told(live, number))
    with live.meter.phase("write"):
        assembly.name_all(allocate(stage_of(live.program.plan.passes[number])))


def _told(live: Live[Any], number: int) -> Told:
    """Return the records of the parts of a pass that are not repeated."""
    stored, done = live.journal.stored(), live.state.recovered.done
    known = done.union(stored) if live.on_workers else done
    return {part: (stored.get(part) or {}).get("", {}) for part in known if part[0] == number}
