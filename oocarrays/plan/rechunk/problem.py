"""The problem that one pass of a rechunk is planned for, and the shape of an answer before it is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oocarrays.mapping.grid import COPIED_BYTES, Stored
from oocarrays.plan.exchange.ordering import CREDIT, load_of
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.memory import PROCESS_BYTES, Resources
from oocarrays.plan.rechunk.passes import Access, Method

MIB = 2**20
BASE_BYTES = 24 * MIB
"""What a run holds beside its buffers on workers, or to and from other stores than files: what libraries keep, too."""
THREAD_BYTES = MIB // 2
"""What each rank holds so that is a thread and reads and writes files, beside `PROCESS_BYTES`. 0.4 to 0.9 MiB were held
in all."""
COUNTED = {"zstd", "blosc", "gzip", "zlib"}
"""Codecs of which it is known what they take, and counted."""
TILE_BYTES = MIB
"""A tile stays in a core's cache between the read and the copy."""
REQUESTS = (1, 4, 8, 16, 32, 64, 128)
"""Requests that a rank may have under way, worth a look."""
MOST_AXES = 4
"""Axes that are looked at, at most, where there are many: from which regions are grown, along which they are shared."""
TRAVEL_COPIES = 2
"""A library holds a message twice while it joins the parts that came, or copies what goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One pass to be planned."""

    source: Stored
    target: Stored
    resources: Resources
    """Memory, processes and requests that it may use."""
    schedule: Schedule
    """The order in which ranks exchange."""
    any_order: bool = False
    """Whether another order may be taken, where it is predicted to take less time."""
    remote_scratch: bool = False
    """Whether scratch arrays are in a store that is reached so."""

    @property
    def ranks(self) -> int:
        """Logical processors."""
        return self.schedule.ranks

    @property
    def whole(self) -> bool:
        """Whether one task a rank holds the whole exchange of a round: where ranks are many, or take what has come."""
        steps = self.ranks < self.resources.steps_below and self.resources.synchronous
        return self.resources.on_workers and not steps

    @property
    def under_way(self) -> int:
        """Parts that a rank holds at one time beside its region: those it takes, those that come, those it carries."""
        load = load_of(self.schedule)
        if self.whole and not self.schedule.forwards:
            return 2 if self.resources.synchronous else 1 + CREDIT
        return load.held if self.resources.synchronous else load.held_at_most

    @property
    def neighbours(self) -> int:
        """Ranks in one process."""
        return self.resources.ranks_of_a_process(self.ranks)

    @property
    def base_bytes(self) -> int:
        """Bytes that a process holds beside all that its ranks read, make and write."""
        files = self.source.local and self.target.local and not self.remote_scratch
        known = all(stored.codec is None or stored.codec in COUNTED for stored in (self.source, self.target))
        if self.resources.on_workers or not (files and known):
            return BASE_BYTES
        return min(PROCESS_BYTES + self.ranks * THREAD_BYTES, BASE_BYTES)

    @property
    def coded_bytes(self) -> int:
        """Bytes of a stored chunk that a rank holds while it decodes it; a worker's limit counts pages, too."""
        if not self.source.coded:
            return 0
        return self.source.chunk_bytes if self.resources.on_workers else min(self.source.chunk_bytes, COPIED_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A candidate, before it is counted."""

    method: Method
    access: Access
    region: tuple[int, ...]
    split: int
    slab: int
    slabs: int
    depth: int
    behind: bool
    requests: int
    workspace: tuple[int, int] = (0, 0)
    """Bytes of chunks that a rank keeps, and of what reading and writing take beside them."""


def some(axes: Sequence[int]) -> tuple[int, ...]:
    """All axes, or where they are many some of them, evenly, the first and the last among them.

    >>> some(range(3)), some(range(7))
    ((0, 1, 2), (0, 2, 4, 6))
    """
    if len(axes) <= MOST_AXES:
        return tuple(axes)
    return tuple(axes[place * (len(axes) - 1) // (MOST_AXES - 1)] for place in range(MOST_AXES))
