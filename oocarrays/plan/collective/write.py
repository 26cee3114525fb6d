"""Collective writes: who writes which chunks for all, in which rounds, who sends what to whom, what is read first.

    written by 0   █ █ █ █ █ · · ·          domains       A A A A B B B B
    written by 1   · · · ░ ░ ░ ░ ·          sent          0 → A, 1 → A, 0 → B, 1 → B
                                            B's chunk     0 laid first, 1 over it, on what was there before
    stored         0 0 0 1 1 1 1 ·

    independent    0 0 0 0 · 1 1 1          where no chunk is written by two ranks, each writes for itself

Aggregators lay what ranks send into a chunk, the lowest rank first, so that where sections overlap the highest rank's
elements stay, whatever comes first. A chunk is read before it is written only where the ranks leave some of it out.
Thakur 1995, sections 6.3.2, 6.4 and 6.6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from oocarrays.mapping.grid import Stored, ceil_div
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, lengths
from oocarrays.plan.alternative import Alternative
from oocarrays.plan.collective.coverage import Coverage, replacing
from oocarrays.plan.collective.domains import Domain, Partition
from oocarrays.plan.collective.read import nth
from oocarrays.plan.cost import Traffic
from oocarrays.plan.exchange.exchange import Exchange
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.memory import Holding, Memory
from oocarrays.plan.plan import Bytes, Facts, estimate, shared_facts

Method = Literal["independent", "two-phase"]
AHEAD = 2
"""Rounds of which an aggregator has messages that are not yet written, at most."""
BUFFER_BYTES = 2**26
"""Of the chunks that an aggregator writes in a round, where that is no less than a chunk."""


@dataclass(frozen=True, kw_only=True)
class CollectiveWritePlan(Holding):
    """One collective write."""

    stored: Stored
    """The file, as it is written: the unit is a shard, where there are any."""
    coverage: Coverage
    """What each rank writes; which chunks, or shards, are covered, and whose elements stay."""
    method: Method
    """Whether aggregators write for all, or each rank for itself."""
    partition: Partition
    """What is dealt out to aggregators."""
    domains: tuple[Domain, ...]
    """What each aggregator writes; nothing in it that nobody wants."""
    chunks: int
    """Chunks, or shards, that an aggregator writes in a round, at most."""
    at_once: int = 1
    """Of these, those that it writes at one time: more than one where requests travel."""
    threads: int = 1
    """Aggregators that write at one time in this process."""
    processes: int | None = None
    """Workers that ranks are put on in turn; None for threads, which send no messages."""
    schedule: Schedule | None = None
    """The order of messages between workers."""
    budget: int = 2**62
    """Bytes that a process may hold beside the parts."""
    coded_ratio: float = 1.0
    """Stored bytes over those of elements: an estimate."""
    alternatives: tuple[Alternative, ...] = ()
    """Every number of aggregators that was compared."""

    def facts(self) -> Facts:
        traffic, unit = self.traffic, self.stored.unit
        way = "independent: each rank writes for itself, as no chunk is written by two"
        if self.method == "two-phase":
            some = f"{len(self.aggregators)} of {self.ranks} ranks write for all, in {len(self.rounds)} rounds"
            way = f"two-phase, {self.partition}: {some}"
        order = f", {self.schedule.name}" if self.schedule else ", views of parts"
        covered = traffic.write_requests - traffic.read_requests
        written = Bytes(traffic.written_bytes), estimate(self.stored.made)
        return [
            ("method", (way,)),
            ("writes", (f"{traffic.write_requests} {unit}, ", *written)),
            ("reads first", (f"{traffic.read_requests} {unit}; {covered} are covered by what ranks write",)),
            *shared_facts(self, messages=order if traffic.messages else ""),
            *shared_facts(self, peak_memory=", beside the parts", predicted=""),
            ("overlaps", ("the highest rank's elements stay",)),
        ]

    @property
    def seconds(self) -> float:
        """Predicted seconds by the clock."""
        return next((each.seconds or 0.0 for each in self.alternatives if each.taken), 0.0)

    @property
    def ranks(self) -> int:
        """Ranks that write something, or write for others."""
        return len(self.requests)

    @property
    def requests(self) -> tuple[Axes, ...]:
        """Return the requests of each rank: the file access descriptor (FAD)."""
        return self.coverage.requests

    @cached_property
    def inner(self) -> Coverage:
        """The same of the chunks in shards, where there are any."""
        return Coverage(grid=self.stored.inner, requests=self.requests) if self.stored.shard_chunks else self.coverage

    @cached_property
    def rounds(self) -> tuple[tuple[tuple[Section, ...], ...], ...]:
        """The boxes of chunks that each rank writes at one time, by round and rank, in file order."""
        each = {domain.rank: list(domain.rounds(self.chunks)) for domain in self.domains}
        most = max(map(len, each.values()), default=0)
        return tuple(tuple(nth(each.get(rank, []), number) for rank in range(self.ranks)) for number in range(most))

    @property
    def aggregators(self) -> tuple[int, ...]:
        return tuple(domain.rank for domain in self.domains if domain.shares)

    def sources(self, number: int, rank: int) -> list[int]:
        """The ranks that have something that another one writes in a round, lowest first."""
        return sorted({source for box in self.rounds[number][rank] for source, _ in self.standing(box)})

    def standing(self, box: Section) -> list[tuple[int, Axes]]:
        """Who has what of a box that stays, lowest rank first."""
        known: dict[Section, list[tuple[int, Axes]]] = self._standing
        if box not in known:
            known[box] = self.coverage.standing(box)
        return known[box]

    @cached_property
    def _standing(self) -> dict[Section, list[tuple[int, Axes]]]:
        return {}

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_standing"}

    def sizes(self, number: int) -> np.ndarray:
        """Bytes that each rank has for each other in a round: ``sizes[source, aggregator]``."""
        sizes = np.zeros((self.ranks, self.ranks), np.int64)
        for rank, boxes in enumerate(self.rounds[number]):
            for box in boxes:
                for source, axes in self.standing(box):
                    sizes[source, rank] += math.prod(lengths(axes)) * self.stored.itemsize
        return sizes

    @cached_property
    def all_sizes(self) -> np.ndarray:
        """The same of all rounds, one behind the other."""
        none = np.zeros((0, self.ranks, self.ranks), np.int64)
        return np.concatenate([none, *(self.sizes(number)[None] for number in range(len(self.rounds)))])

    @property
    def sent(self) -> np.ndarray:
        """The same without what ranks keep."""
        return np.asarray(self.all_sizes * ~np.eye(self.ranks, dtype=bool))

    # ------------------------------------------------------------------ what it comes to

    @cached_property
    def traffic(self) -> Traffic:
        """Count what is read, written and sent: exact where nothing is coded, no chunk missing, and none all fill."""
        messages, exchanged = self._messages()
        moved = replacing(self.stored, self.coverage, self.inner, self.coded_ratio)
        return moved + Traffic(messages=messages, exchanged_bytes=exchanged)

    def _messages(self) -> tuple[int, int]:
        """Messages between ranks, and their bytes: those that are sent on count again."""
        if self.schedule is None:
            return int((self.sent > 0).sum()), int(self.sent.sum())
        rounds = [Exchange.of(self.schedule, sizes) for sizes in self.sent]
        return sum(each.messages for each in rounds), sum(each.sent_bytes for each in rounds)

    @property
    def memory(self) -> Memory:
        """Held by this process at most, or by each worker, beside the parts."""
        return self._of_rank * (self.threads if self.processes is None else ceil_div(self.ranks, self.processes))

    @property
    def _of_rank(self) -> Memory:
        """Held by a rank at most, beside its part: messages, and the chunk that it makes of them."""
        stored = self.stored
        codecs = stored.encode_workspace + stored.decode_workspace + stored.travel_bytes
        making = Memory.of(chunks=stored.chunk_bytes * self.at_once, codecs=codecs * self.at_once)
        if self.schedule is None or not len(self.sent):
            return making
        come, goes = self.sent.sum(axis=1).max(), self.sent.max()
        forwarded = max(Exchange.of(self.schedule, sizes).buffer_bytes for sizes in self.sent)
        return making + Memory.of(messages=min(AHEAD, len(self.sent)) * int(come) + int(goes), forwarded=forwarded)

    def __repr__(self) -> str:
        traffic = self.traffic
        return (
            f"<CollectiveWritePlan {self.method}: {traffic.write_requests} chunks, {traffic.read_requests} read first, "
            f"written by {len(self.aggregators)} of {self.ranks} ranks in {len(self.rounds)} rounds, "
            f"{traffic.messages} messages>"
        )
