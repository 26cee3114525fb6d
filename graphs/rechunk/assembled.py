"""Target chunks that are assembled where they are stored: each rank reads boxes of source chunks, for itself.

    start ─┬─► assemble ─► assemble ──┬─► name ─► …      a chain of batches a rank, as of those that build regions
           └─► assemble ─► assemble ──┘

What a batch has placed is on the device before it is recorded. Who goes on with a run knows from the journal in which
chunks something was placed, and which pieces hold nothing but the fill value and were left out.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from oocarrays.graphs.rechunk.assembly import Told
from oocarrays.graphs.rechunk.run import RechunkState
from oocarrays.graphs.run.buffers import RankBuffers
from oocarrays.mapping.section import Section
from oocarrays.plan.rechunk.assembled import stage_of
from oocarrays.plan.rechunk.passes import Pass
from oocarrays.storage.chunks.assembling import Take
from oocarrays.storage.chunks.elements import scatter
from oocarrays.storage.files.documents import is_finished
from oocarrays.storage.journal.receipts import Receipts
from oocarrays.storage.local.pages import allocate


def go_on(run: RechunkState, number: int) -> None:
    """Take up what parts of a pass have done that this run, or the process before, has begun."""
    if _has_ended(run):
        return
    assembly = run.assembly(number)
    assembly.learn(_told(run, number))
    assembly.reopen()


def _has_ended(run: RechunkState) -> bool:
    """Whether a task is done again of a run that has ended: all chunks have their names."""
    return run.processes is not None and not run.journal.is_there() and is_finished(run.destination.store)


def _told(run: RechunkState, number: int) -> Told:
    """Return the record of the parts of a pass that are not done again."""
    stored = run.journal.stored()
    mine = {part for part in (run.done if run.processes is None else run.done.union(stored)) if part[0] == number}
    return {part: (stored.get(part) or {}).get("", {}) for part in mine}


def assemble(run: RechunkState, number: int, batch: int, rank: int, holding: RankBuffers | None) -> RankBuffers | None:
    """Read some boxes, one after the other, and place what is in them."""
    step, part = run.plan.passes[number], (number, batch, rank)
    if run.is_done(part):
        return holding
    if holding is None or holding.empty:
        holding = _holding(step)
    assembly, units, receipts = run.assembly(number), step.batch_units(batch, rank), Receipts()
    sums: Counter[tuple[int, ...]] = Counter()
    for unit in units:
        with run.meter.phase("read"):
            take = _read(run, number, unit, holding.region)
            if unit + step.ranks < step.units:
                following = step.section(step.chunk_box(unit + step.ranks))
                run.opened(number).reader.announce(step.source.grid.indices(following))
        with run.meter.phase("write"):
            sums.update(assembly.place(unit, rank, holding.chunk, take))
    with run.meter.phase("write"):
        assembly.end(units, holding.chunk, sums, receipts)
    run.record_chunks(part, receipts)
    return holding


def _holding(step: Pass) -> RankBuffers:
    """Memory for a box, and for what is laid out of a piece."""
    box = int(np.prod(step.unit, dtype=int)) * step.source.chunk_bytes
    return RankBuffers(allocate(box), _stage(step))


def _stage(step: Pass) -> np.ndarray:
    return allocate(stage_of(step))


def _read(run: RechunkState, number: int, unit: int, box: np.ndarray) -> Take:
    """Read a box; returned is what takes elements of it."""
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


def name(run: RechunkState, number: int, rank: int = 0) -> None:
    """Give the chunks their names that have none yet, at the end of a pass."""
    if _has_ended(run):
        return
    step, assembly = run.plan.passes[number], run.assembly(number)
    if run.processes is not None:
        assembly.learn(_told(run, number))
    with run.meter.phase("write"):
        assembly.name_all(_stage(step))


VERBS = {"assemble": assemble, "name": name}
"""What tasks do."""
