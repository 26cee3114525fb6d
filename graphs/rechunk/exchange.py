"""Joint work of ranks on workers, which send messages; between threads they copy: see `tasks.gather`.

    read      every source chunk of this rank in a partition, packed at once: its outbox
    …         messages, from the outbox and into the region: see `oocarrays.graphs.exchange.messages`
    write     the region's chunks, and a record in the journal
    free      the outbox, when all ranks have written: until then a lost worker's messages need not be read again

The data of a lost worker is made again from the other ranks' outboxes and from its own sources; recorded parts are not
made again. Regions and outboxes travel along local edges only; messages and ``taken`` travel between workers.
"""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from oocarrays.errors import PlacementError, RunError
from oocarrays.graphs.events import this_worker
from oocarrays.graphs.exchange.messages import Round
from oocarrays.graphs.rechunk.passes import opened, pool, source
from oocarrays.graphs.run.live import Live
from oocarrays.graphs.run.program import Outbox, Region
from oocarrays.plan.rechunk.counting import MessageBlock, message_blocks
from oocarrays.plan.rechunk.passes import Pass
from oocarrays.storage.chunks.elements import chunk_major, scatter

if TYPE_CHECKING:  # importing it takes longer than most commands
    from oocarrays.graphs.exchange.between import Exchanges


def read(live: Live[Any], number: int, unit: int, rank: int) -> Outbox:
    """Read this rank's chunks of a partition, and pack each rank's part; offer them to the other ranks."""
    outbox = _packed(live, number, unit, rank)
    answer(live).hold(live, (number, unit), rank, outbox)
    return outbox


def _step(live: Live[Any], number: int) -> Pass:
    return live.program.plan.passes[number]


def _packed(live: Live[Any], number: int, unit: int, rank: int) -> Outbox:
    step = _step(live, number)
    wanted = [
        [] if live.is_done((number, unit, other)) else list(message_blocks(step, unit, rank, other))
        for other in range(step.ranks)
    ]
    if not any(wanted):
        return Outbox([None] * step.ranks, None)
    buffer = live.rooms.take(step.outbox_bytes)
    ends = accumulate(sum(block.size for block in blocks) * step.source.itemsize for blocks in wanted)
    pieces = (buffer[start:end] for start, end in pairwise([0, *ends]))
    outbox = Outbox([piece if len(piece) else None for piece in pieces], buffer)
    packed = [
        view
        for blocks, message in zip(wanted, outbox.messages, strict=True)
        for view in _views(live, step.target.order, blocks, message)
    ]  # fmt: skip
    _pack(live, number, unit, rank, packed)
    return outbox


def answer(live: Live[Any]) -> Exchanges:
    """Return the exchanges of this worker, which answer requests for messages."""
    from oocarrays.graphs.exchange.between import Exchanges

    worker = this_worker()
    if worker is None:
        raise PlacementError(f"run {live.id} was planned for a cluster's workers: pass scheduler='threads'")
    return Exchanges.of(worker)


def _views(
    live: Live[Any], order: tuple[int, ...] | None, blocks: list[MessageBlock], message: np.ndarray | None
) -> list[tuple[MessageBlock, np.ndarray]]:
    """Return each block of a message with a view of its elements, in the order in which the target stores them."""
    views, start, dtype = [], 0, source(live).dtype
    for block in blocks:
        assert message is not None, "a message has the blocks that are wanted"
        views.append((block, chunk_major(message[start:], block.counts, block.lengths, dtype, order)))
        start += block.size * dtype.itemsize
    return views


def _pack(live: Live[Any], number: int, unit: int, rank: int, packed: list[tuple[MessageBlock, np.ndarray]]) -> None:
    step, there = _step(live, number), opened(live, number)
    partition = step.section(step.chunk_box(unit))
    chunk = pool(live, number).take(step.source.chunk_bytes if step.access == "chunks" else 0)
    for part, data in there.parts(step.reads(unit, 0, rank), partition, chunk):
        for block, view in packed:
            common = part.intersection(block.section)
            if common is not None:
                values = there.fill_value if data is None else data[common.relative_to(part.lower).slices]
                scatter(view, block.section.lower, common, values)
    pool(live, number).give(chunk)
    there.reader.announce(step.reads_after(unit, 0, rank))


def unpack(
    live: Live[Any],
    round: Round,
    rank: int,
    region: Region | None,
    came: dict[int, np.ndarray | None],
    *,
    blank: bool = False,
) -> Region:
    """Place the part from each origin in this rank's region; make the region if it is None."""
    number, unit = round
    step = _step(live, number)
    box = step.share(unit, rank)
    if box is None or live.is_done((number, unit, rank)):
        return Region(None)
    if region is None:
        region = Region(pool(live, number).take(math.prod(step.region) * step.target.chunk_bytes))
    elements = opened(live, number).region(box, region.memory, blank=blank)
    for origin, part in came.items():
        blocks = list(message_blocks(step, unit, origin, rank))
        if blocks and part is None:
            raise RunError(f"rank {rank} received nothing from rank {origin} in partition {unit}")
        for block, data in _views(live, step.target.order, blocks, part):
            place: Any = (*block.place(step.target.grid, box[0]), ...)
            view = elements[place]
            view[...] = data.reshape(view.shape)
    return region


def is_over(live: Live[Any], round: Round, rank: int) -> bool:
    """Return whether a rank has no part of a partition, or has written it."""
    number, unit = round
    return _step(live, number).share(unit, rank) is None or live.is_done((number, unit, rank))


def begin(live: Live[Any], round: Round, rank: int, held: Outbox) -> Region:
    """Return a new region of a rank, with the part that it packed for itself."""
    return unpack(live, round, rank, None, {rank: held.messages[rank]}, blank=True)


def free(live: Live[Any], number: int, unit: int, rank: int, outbox: Outbox) -> None:
    """Release an outbox, when all ranks have written."""
    answer(live).let_go((live.id, (number, unit), rank))
    outbox.buffer, outbox.messages = None, [None] * len(outbox.messages)
