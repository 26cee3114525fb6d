"""What the processes that write a stream file have done, and what the file says once all of them have settled."""

from __future__ import annotations

from dataclasses import dataclass, replace

from oocarrays.plan.streams.meta import Independent, Meta, Regular


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterFacts:
    """The work of a process, as the file is to say it."""

    nb: int
    """Bytes of each stream in NB."""
    cb: int
    """Bytes of each stream in CB."""
    ends: tuple[tuple[int, tuple[int, int]], ...]
    """Of its ranks that write in IB, their number, and where they are in data and directory."""
    blocks: tuple[int, int]
    """Bytes of a block of NB and of CB."""
    ib: Independent
    """Blocks of IB."""


def committed(meta: Meta, facts: list[WriterFacts], *, begins_ib: bool = False) -> Meta:
    """Return what a file is to say once all of its ranks have settled."""
    one, ranks, ib = facts[0], meta.cells.ranks, meta.ib
    nb_block = max(each.blocks[0] for each in facts)
    nb = Regular(block=nb_block if one.nb else 0, nbytes=one.nb)
    cb = Regular(block=one.blocks[1] if one.cb else 0, nbytes=one.cb)
    ends = dict(end for each in facts for end in each.ends)
    if ends:
        all_ends = tuple(ends.get(rank, (0, 0)) for rank in range(ranks))
        ib = replace(one.ib, ranks=ranks, ends=all_ends, is_linked=False)
    elif begins_ib and not ib.block:
        ib = replace(one.ib, ranks=ranks)
    return replace(meta, nb=nb, cb=cb, ib=ib, is_closed=False)
