"""The work that ranks do together between threads: they take from each other's slabs in place.

A slab is handed from round to round, a region from partition to partition: both are filled anew where they lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np

from oocarrays.graphs.rechunk.run import RechunkState
from oocarrays.graphs.run.buffers import ReadSlab
from oocarrays.plan.rechunk.passes import Part, Pass
from oocarrays.storage.chunks.elements import common, scatter
from oocarrays.storage.chunks.kept import Reader
from oocarrays.storage.journal.receipts import Receipts
from oocarrays.storage.local.pages import allocate
from oocarrays.storage.local.sectors import padded
from oocarrays.storage.pool import shaped


def read(run: RechunkState, number: int, unit: int, turn: int, rank: int, former: ReadSlab | None) -> ReadSlab:
    """Read this rank's chunks of a round, whoever wants them."""
    step = run.plan.passes[number]
    size = step.source.chunk_bytes
    buffer = former.buffer if former else allocate(step.slab * size)
    outs = (run.chunk_view(number, buffer[i * size : (i + 1) * size]) for i in range(step.slab))
    slab = ReadSlab(buffer)
    for chunk in run.opened(number).reader.whole(step.reads(unit, turn, rank), outs):
        if not slab.chunks:  # the first one is here: the device may go on to the next round
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
    """Take from partners' slabs what this rank's target chunks need: a view there, a copy here."""
    number, unit, turn = round
    step = run.plan.passes[number]
    buffer = _rank_buffer(step) if buffer is None else buffer
    if step.kept:
        for slab in slabs:
            _keep(run, number, rank, slab, _message_pages(step, buffer))
    box = step.share(unit, rank)
    if box is None:
        return buffer
    region = run.region(number, box, buffer, blank=turn == stage == 0)
    section = step.section(box)
    for index, chunk in chain.from_iterable(slab.chunks for slab in slabs):
        for part, data in common(step.source.grid.section(index), section, chunk):
            scatter(region, section.lower, part, run.fill(data))
    return buffer


def _keep(run: RechunkState, number: int, rank: int, slab: ReadSlab, buffer: np.ndarray) -> None:
    """Pack what this rank needs of a partner's slab in later partitions, and keep it in scratch."""
    step, kept = run.plan.passes[number], run.kept(number)
    chunks = {index: chunk for index, chunk in slab.chunks if chunk is not None}
    kept.missing.update(index for index, chunk in slab.chunks if chunk is None)
    halves = np.split(buffer, 2)
    for unit in run.units(number)[1:]:
        for message in step.messages(unit, rank, chunks):
            pages = halves[kept.count(rank) % 2]
            for (index, part), out in _unpacked(run, message, pages):
                origin = step.source.grid.section(index).lower
                out[...] = chunks[index][part.relative_to(origin).slices]
            nbytes = _elements(message) * step.source.itemsize
            kept.append(unit, rank, pages.data, nbytes)
            run.meter.add(kept_bytes=nbytes)


def take(run: RechunkState, number: int, unit: int, rank: int, buffer: np.ndarray | None) -> np.ndarray:
    """Build this rank's target chunks of a later partition from the messages that were kept for it."""
    step = run.plan.passes[number]
    buffer = _rank_buffer(step) if buffer is None else buffer
    box = step.share(unit, rank)
    if box is None:
        return buffer
    region, section, kept = run.region(number, box, buffer), step.section(box), run.kept(number)
    pages = _message_pages(step, buffer)

    def unpack(reader: Reader) -> None:
        for indices in step.taken(rank):
            for message in step.messages(unit, rank, (i for i in indices if i not in kept.missing)):
                reader.next(pages.data, _elements(message) * step.source.itemsize)
                for (_, part), data in _unpacked(run, message, pages):
                    scatter(region, section.lower, part, data)

    for index in kept.missing:
        for part, _ in common(step.source.grid.section(index), section, None):
            scatter(region, section.lower, part, run.source.fill_value)
    kept.take(unit, rank, unpack)
    return buffer


def _unpacked(run: RechunkState, message: list[Part], pages: np.ndarray) -> Iterator[tuple[Part, np.ndarray]]:
    """Each part of a message, and where its elements lie in memory: one part behind the other."""
    packed, start = shaped(pages, (_elements(message),), run.source.dtype), 0
    for index, part in message:
        yield (index, part), packed[start : start + part.size].reshape(part.shape)
        start += part.size


def _rank_buffer(step: Pass) -> np.ndarray:
    """Memory for a region and, behind it, for the message that is being packed and the one being written."""
    region_bytes = int(np.prod(step.region, dtype=int)) * step.target.chunk_bytes
    return allocate(padded(region_bytes) + (2 * padded(step.source.chunk_bytes) if step.kept else 0))


def _message_pages(step: Pass, buffer: np.ndarray) -> np.ndarray:
    """The part of a rank's buffer in which two messages are packed, behind its region."""
    return buffer[-2 * padded(step.source.chunk_bytes) :]


def write(run: RechunkState, number: int, unit: int, rank: int, buffer: np.ndarray) -> np.ndarray:
    """Write this rank's target chunks of a partition."""
    step = run.plan.passes[number]
    if step.kept and unit + 1 < step.units:
        run.kept(number).announce(unit + 1, rank)
    box = step.share(unit, rank)
    if box is not None and not run.is_done((number, unit, rank)):
        receipts = Receipts()
        run.store(number, box, run.region(number, box, buffer, blank=False), receipts)
        run.record_chunks((number, unit, rank), receipts)
    return buffer


def _elements(message: list[Part]) -> int:
    return sum(part.size for _, part in message)


VERBS = {"read": read, "take": take, "write": write}
"""Tasks of threads in two phases, beside exchanging."""
