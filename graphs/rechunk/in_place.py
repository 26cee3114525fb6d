"""Joint work of ranks between threads: they copy from each other's slabs in place.

A slab passes from round to round, and a region from partition to partition; both are refilled in place.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import numpy as np

from oocarrays.graphs.rechunk.run import RechunkState
from oocarrays.graphs.run.builder import ReadSlab
from oocarrays.plan.rechunk.passes import Pass
from oocarrays.storage.chunks.elements import common, scatter
from oocarrays.storage.journal.receipts import Receipts
from oocarrays.storage.local.direct_io import padded
from oocarrays.storage.local.pages import allocate


def read(run: RechunkState, number: int, unit: int, turn: int, rank: int, former: ReadSlab | None) -> ReadSlab:
    """Read this rank's source chunks of a round, for all ranks."""
    step = run.plan.passes[number]
    size = step.source.chunk_bytes
    buffer = former.buffer if former else allocate(step.slab * size)
    outs = (run.opened(number).chunk_view(buffer[i * size : (i + 1) * size]) for i in range(step.slab))
    slab = ReadSlab(buffer)
    for chunk in run.opened(number).reader.whole(step.reads(unit, turn, rank), outs):
        if not slab.chunks:  # the first chunk has been read: the device may begin the next round
            run.opened(number).reader.announce(step.reads_after(unit, turn, rank))
        slab.chunks.append(chunk)
    return slab


def copied(
    run: RechunkState,
    round: tuple[int, ...],
    stage: int,
    rank: int,
    buffer: np.ndarray | None,
    slabs: Iterable[ReadSlab],
) -> np.ndarray:
    """Copy the elements of this rank's target chunks from its partners' slabs; return the rank's buffer."""
    number, unit, turn = round
    step = run.plan.passes[number]
    buffer = _rank_buffer(step) if buffer is None else buffer
    box = step.share(unit, rank)
    if box is None:
        return buffer
    region = run.opened(number).region(box, buffer, blank=turn == stage == 0)
    section = step.section(box)
    for index, chunk in chain.from_iterable(slab.chunks for slab in slabs):
        for part, data in common(step.source.grid.section(index), section, chunk):
            scatter(region, section.lower, part, run.fill(data))
    return buffer


def _rank_buffer(step: Pass) -> np.ndarray:
    return allocate(padded(int(np.prod(step.region, dtype=int)) * step.target.chunk_bytes))


def write(run: RechunkState, number: int, unit: int, rank: int, buffer: np.ndarray) -> np.ndarray:
    """Write this rank's target chunks of a partition, and record the part as done."""
    step = run.plan.passes[number]
    box = step.share(unit, rank)
    if box is not None and not run.is_done((number, unit, rank)):
        receipts = Receipts()
        run.store(number, box, run.opened(number).region(box, buffer, blank=False), receipts)
        run.record_chunks((number, unit, rank), receipts)
    return buffer
