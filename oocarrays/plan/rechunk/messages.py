"""What one rank packs for another: the receiver's elements, in the order in which it stores them.

    source rank 1's chunks            message 1 → 0                  rank 0's region
    ┌───────────────┐                 ┌──────┬──────┐                ┌──────┬──────┐
    │ ······ ······ │ ──► pack ──►    │ c 0  │ c 1  │ ──► unpack ──► │ c 0  │ c 1  │  in long runs
    └───────────────┘                 └──────┴──────┘                └──────┴──────┘

The sender's chunks in a partition are a few boxes. What such a box shares with the receiver's target chunks is cut in
blocks of alike chunks; a block lies in the message chunk after chunk, as the target stores it.
del Rosario, Bordawekar, Choudhary 1993, section 4.1; Thakur 1995, section 4.2 (one message a partner and step).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from oocarrays.mapping.grid import ChunkGrid, boxes, chunk_runs
from oocarrays.mapping.layouts.distribution import GenBlock
from oocarrays.mapping.section import Section
from oocarrays.plan.rechunk.passes import Pass


@dataclass(frozen=True, slots=True)
class MessageBlock:
    """A part of a message: whole target chunks along an axis, or a part of one."""

    section: Section
    """Its elements in the array."""
    counts: tuple[int, ...]
    """Chunks that it touches in each axis."""
    lengths: tuple[int, ...]
    """Elements that it has of each of them, in each axis."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape in the message: ``counts + lengths``, each chunk's part contiguous."""
        return self.counts + self.lengths

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def place(self, grid: ChunkGrid, first: tuple[int, ...]) -> tuple[slice, ...]:
        """Where the block lies in a region of shape ``counts + chunks`` whose first chunk is ``first``."""
        starts = [divmod(l, c) for l, c in zip(self.section.lower, grid.chunks, strict=True)]
        chunks = (slice(i - f, i - f + n) for (i, _), f, n in zip(starts, first, self.counts, strict=True))
        inside = (slice(at, at + n) for (_, at), n in zip(starts, self.lengths, strict=True))
        return (*chunks, *inside)


def blocks(section: Section, chunks: tuple[int, ...]) -> Iterator[MessageBlock]:
    """A section cut in blocks.

    >>> [(b.section.lower, b.counts, b.lengths) for b in blocks(Section((2,), (9,)), (4,))]
    [((2,), (1,), (2,)), ((4,), (1,), (4,)), ((8,), (1,), (1,))]
    """
    axes = [list(chunk_runs(l, u, c)) for l, u, c in zip(section.lower, section.upper, chunks, strict=True)]
    for runs in product(*axes):
        lower, upper = (tuple(ends) for ends in zip(*runs, strict=True)) if runs else ((), ())
        counts = tuple(max((u - l) // c, 1) for l, u, c in zip(lower, upper, chunks, strict=True))
        lengths = tuple((u - l) // n for l, u, n in zip(lower, upper, counts, strict=True))
        yield MessageBlock(Section(lower, upper), counts, lengths)


def sent_sections(step: Pass, unit: int, source: int) -> Iterator[Section]:
    """Yield the elements that ``source`` reads of a partition, as a few sections."""
    touched = step.source.grid.touched(step.section(step.chunk_box(unit)))
    counts = tuple(map(len, touched))
    for first, last in boxes(GenBlock.even(math.prod(counts), step.ranks).part(source), counts):
        low = tuple(axis.start + i for axis, i in zip(touched, first, strict=True))
        high = tuple(axis.start + i for axis, i in zip(touched, last, strict=True))
        yield step.source.grid.block(low, high)


def message_blocks(step: Pass, unit: int, source: int, destination: int) -> Iterator[MessageBlock]:
    """Yield the blocks that ``source`` sends to ``destination`` in a partition, in the order of their packing."""
    share = step.share(unit, destination)
    if share is None:
        return
    wanted = step.section(share)
    for section in sent_sections(step, unit, source):
        common = section.intersection(wanted)
        if common is not None:
            yield from blocks(common, step.target.grid.chunks)
