"""Collective writes: aggregators, file domains, rounds, messages, and chunks read before they are written.

    written by 0   █ █ █ █ █ · · ·          domains       A A A A B B B B
    written by 1   · · · ░ ░ ░ ░ ·          sent          0 → A, 1 → A, 0 → B, 1 → B
                                            B's chunk     0 placed first, 1 over it, on the stored elements
    stored         0 0 0 1 1 1 1 ·

    independent    0 0 0 0 · 1 1 1          if no two ranks write one chunk, each writes its own

Aggregators place the ranks' elements in a chunk, the lowest rank first, in any order of arrival. Where sections
overlap, the highest rank wins. A chunk is read before it is written only if the ranks do not cover it. Thakur 1995,
sections 6.3.2, 6.4 and 6.6.
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
"""Maximum number of rounds of received messages that an aggregator has not yet written."""
BUFFER_BYTES = 2**26
"""Maximum bytes of the chunks that an aggregator writes in a round, unless one chunk is larger."""


@dataclass(frozen=True, kw_only=True)
class CollectiveWritePlan(Holding):
    """Plan of a collective write."""

    stored: Stored
    """Array to write; its unit is the shard if it has shards."""
    coverage: Coverage
    """Elements that each rank writes, covered chunks (or shards), and precedence of ranks."""
    method: Method
    """Method: aggregators write for all, or each rank writes independently."""
    partition: Partition
    """Chunks assigned to aggregators."""
    domains: tuple[Domain, ...]
    """File domain of each aggregator, without unwritten chunks."""
    chunks: int
    """Maximum number of chunks (or shards) that an aggregator writes in a round."""
    at_once: int = 1
    """Number of chunks that an aggregator writes at one time; more than one for remote stores."""
    threads: int = 1
    """Number of aggregators that write at one time in this process."""
    processes: int | None = None
    """Number of workers, to which ranks are assigned in turn; None for threads, which send no messages."""
    schedule: Schedule | None = None
    """Schedule of messages between workers; None on threads."""
    budget: int = 2**62
    """Memory budget of each process beside the parts, in bytes."""
    coded_ratio: float = 1.0
    """Ratio of stored bytes to decoded bytes; an estimate."""
    alternatives: tuple[Alternative, ...] = ()
    """Alternatives compared, by number of aggregators."""

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
        """Predicted wall-clock seconds."""
        return next((each.seconds or 0.0 for each in self.alternatives if each.taken), 0.0)

    @property
    def ranks(self) -> int:
        """Number of ranks that write elements or write for others."""
        return len(self.requests)

    @property
    def requests(self) -> tuple[Axes, ...]:
        """Elements that each rank writes: the file access descriptor (FAD)."""
        return self.coverage.requests

    @cached_property
    def inner(self) -> Coverage:
        """Coverage of the chunks inside shards; equal to `coverage` without shards."""
        return Coverage(grid=self.stored.inner, requests=self.requests) if self.stored.shard_chunks else self.coverage

    @cached_property
    def rounds(self) -> tuple[tuple[tuple[Section, ...], ...], ...]:
        """Boxes of chunks that each rank writes at one time, by round and rank, in file order."""
        each = {domain.rank: list(domain.rounds(self.chunks)) for domain in self.domains}
        most = max(map(len, each.values()), default=0)
        return tuple(tuple(nth(each.get(rank, []), number) for rank in range(self.ranks)) for number in range(most))

    @property
    def aggregators(self) -> tuple[int, ...]:
        return tuple(domain.rank for domain in self.domains if domain.shares)

    def sources(self, number: int, rank: int) -> list[int]:
        """Return the ranks with surviving elements in another rank's round, lowest first."""
        return sorted({source for box in self.rounds[number][rank] for source, _ in self.standing(box)})

    def standing(self, box: Section) -> list[tuple[int, Axes]]:
        """Return the ranks with surviving elements in a box, lowest first, and their elements."""
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
        """Return the bytes of a round from each rank to each other: ``sizes[source, aggregator]``."""
        sizes = np.zeros((self.ranks, self.ranks), np.int64)
        for rank, boxes in enumerate(self.rounds[number]):
            for box in boxes:
                for source, axes in self.standing(box):
                    sizes[source, rank] += math.prod(lengths(axes)) * self.stored.itemsize
        return sizes

    @cached_property
    def all_sizes(self) -> np.ndarray:
        """Bytes by round, source and aggregator."""
        none = np.zeros((0, self.ranks, self.ranks), np.int64)
        return np.concatenate([none, *(self.sizes(number)[None] for number in range(len(self.rounds)))])

    @property
    def sent(self) -> np.ndarray:
        """Bytes by round, source and aggregator, without those that ranks keep."""
        return np.asarray(self.all_sizes * ~np.eye(self.ranks, dtype=bool))

    # ------------------------------------------------------------------ what it comes to

    @cached_property
    def traffic(self) -> Traffic:
        """Reads, writes and messages; exact for uncoded data if no chunk is missing or consists of fill values only."""
        messages, exchanged = self._messages()
        moved = replacing(self.stored, self.coverage, self.inner, self.coded_ratio)
        return moved + Traffic(messages=messages, exchanged_bytes=exchanged)

    def _messages(self) -> tuple[int, int]:
        """Return the number of messages between ranks and their bytes, forwarded messages included."""
        if self.schedule is None:
            return int((self.sent > 0).sum()), int(self.sent.sum())
        rounds = [Exchange.of(self.schedule, sizes) for sizes in self.sent]
        return sum(each.messages for each in rounds), sum(each.sent_bytes for each in rounds)

    @property
    def memory(self) -> Memory:
        """Peak memory of this process, or of each worker, beside the parts."""
        return self._of_rank * (self.threads if self.processes is None else ceil_div(self.ranks, self.processes))

    @property
    def _of_rank(self) -> Memory:
        """Peak memory of a rank beside its part: messages, and the chunk assembled from them."""
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
