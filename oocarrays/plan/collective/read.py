"""Collective reads: requests of all ranks, aggregators, rounds, and messages.

    wanted by 0    █ █ █ █ · · · ·
    wanted by 1    · · █ █ █ █ · ·          bounding section    █ █ █ █ █ █ · ·
    domains        A A A B B B              each stored chunk is read once, by one aggregator, for all
    rounds         1 2 3 1 2 3              in file order; one round is sent while the next is read

    independent    0 0 1 1 2 2 · ·          if no two ranks want one chunk, each reads its own

Thakur 1995, sections 6.3, 6.4 and 6.6 (the extended two-phase method); del Rosario, Bordawekar and Choudhary 1993,
sections 3.2.3 and 4 (a subset of nodes reads).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Literal

import numpy as np

from oocarrays.errors import in_number, plural
from oocarrays.mapping.grid import Stored, chunks_along
from oocarrays.mapping.section import Section, in_one_piece
from oocarrays.mapping.selection import Axes, common, lengths
from oocarrays.plan.collective.domains import BLOCKS, Dealing, Domain, Partition, file_domains
from oocarrays.plan.collective.rounds import Cutting, Round, Rounds
from oocarrays.plan.collective.wanted import AccessTable, Place, chunks_of, places
from oocarrays.plan.cost import Traffic
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.plan import Alternative, Bytes, Facts, Holding, Memory, Value, estimate, shared_facts

Method = Literal["independent", "two-phase"]
BUFFER_BYTES = 2**26
"""Maximum bytes that an aggregator reads or writes in a round, unless one chunk is larger."""
AHEAD = 2
"""Maximum number of rounds that have been read and not yet received, or received and not yet written."""


@dataclass(frozen=True, kw_only=True)
class CollectivePlan(Holding):
    """Plan of a collective read."""

    stored: Stored
    requests: tuple[Axes, ...]
    """Elements that each rank wants, by rank: the file access descriptor (FAD)."""
    method: Method
    """Method: aggregators read for all, or each rank reads independently."""
    partition: Partition = "dynamic"
    """Chunks assigned to aggregators."""
    domains: tuple[Domain, ...] = ()
    read: Rounds
    """Reads of each aggregator, by round."""
    schedule: Schedule | None = None
    """Schedule of messages; None to send all messages of a round at once, and for threads, which send none."""
    buffer_bytes: int = BUFFER_BYTES
    """Maximum bytes that an aggregator reads in a round, unless one chunk is larger."""
    processes: int | None = None
    """Number of workers, to which ranks are assigned in turn; None for threads of this process."""
    alternatives: tuple[Alternative, ...] = field(default=(), compare=False, repr=False)
    """Alternatives compared, the cheapest first."""
    price: Alternative | None = field(default=None, compare=False, repr=False)
    """Chosen alternative; None before the plan is priced."""
    budget: int = 2**62
    """Memory budget of each process, in bytes above its idle level."""
    memory: Memory = field(default=Memory(), compare=False, repr=False)
    """Peak memory of this process, or of the worker that holds most."""

    @property
    def ranks(self) -> int:
        return len(self.requests)

    def facts(self) -> Facts:
        if self.price is None:
            return [("reads", (repr(self),))]
        about, sent = estimate(self.stored.coded), Bytes(self.traffic.exchanged_bytes)
        order = self.schedule.name if self.schedule else "all of a round at one time"
        messages = f" in {self.traffic.messages} messages, {order}" if self.processes else ", without messages"
        method: tuple[Value, ...] = ("independent: each rank reads for itself",)
        if self.method == "two-phase":
            some = f"{len(self.aggregators)} of {self.ranks} ranks read for all, in {plural(len(self.rounds), 'round')}"
            method = f"two-phase, {self.partition}: {some} of at most ", Bytes(self.round_bytes)
        return [
            ("method", method),
            *shared_facts(self, reads=about, **({"decodes": ""} if self.stored.coded else {})),
            ("for others", (sent, messages)),
            ("a worker holds" if self.processes else "this process holds", (Bytes(self.peak_bytes),)),
            *shared_facts(self, predicted=""),
            ("why", (self._why(),)),
        ]

    def _why(self) -> str:
        shared, alone = self.table.are_shared, len({way.name for way in self.alternatives}) == 1
        if self.method == "independent" and not shared:
            return "no chunk is wanted by two ranks: requests conform"
        if alone:
            return "asked for"
        if self.method == "independent":
            return "reading what others read too takes less time than waiting for it"
        if shared:
            return "chunks are wanted by several ranks: each is read once"
        return "what ranks want is dealt out evenly"

    @property
    def traffic(self) -> Traffic:
        return self.price.traffic if self.price else Traffic()

    @property
    def seconds(self) -> float:
        return (self.price and self.price.seconds) or 0.0

    @cached_property
    def aggregators(self) -> tuple[int, ...]:
        return tuple(rank for rank, chunks in enumerate(self.chunks_read) if chunks)

    @property
    def rounds(self) -> tuple[Round, ...]:
        return self.read.boxes

    @property
    def table(self) -> AccessTable:
        return self.read.access

    def tight(self, box: Section) -> Axes:
        """Return the section read of a box: the smallest that contains all ranks' elements there."""
        return self.table.of(box).tight

    def places(self, box: Section, rank: int) -> tuple[Place, Place]:
        return places(self.requests[rank], box, self.tight(box))

    def pieces(self, number: int, rank: int) -> Iterator[tuple[Section, Axes]]:
        """Yield a rank's reads in a round: in pieces that fit a cache, or whole if a box is read into its part."""
        for box in self.rounds[number][rank]:
            whole = not self.stored.coded and self.table.of(box).ranks == (rank,)
            for piece in [box] if whole else _tiles(self.stored, box):
                read = common(self.tight(box), piece)
                if all(map(len, read)):  # a box may contain unwanted chunks
                    yield piece, read

    @cached_property
    def messages(self) -> int:
        """Number of messages between ranks on workers, forwarded messages included; 0 on threads."""
        return 0 if self.processes is None else self.read.messages(self.schedule)[0]

    @property
    def exchanged_bytes(self) -> int:
        """Bytes that ranks read for other ranks."""
        return int(self.read.between.sum()) * self.stored.itemsize

    @cached_property
    def chunks_read(self) -> tuple[int, ...]:
        if self.method == "independent":
            return tuple(chunks_of(self.stored.grid, axes) for axes in self.requests)
        return self.read.chunks_read

    def is_packed(self, box: Section) -> bool:
        """Return True if the section read of a box is stored in one piece of memory."""
        owner = self.only(box) if self.processes is None else None
        if owner is not None and self.stored.order is not None:  # a rank's part lies in C order
            return False
        return owner is None or in_one_piece(lengths(self.tight(box)), lengths(self.requests[owner]))

    def only(self, box: Section) -> int | None:
        """Return the only rank that wants elements of a box, or None; threads read such a box into its part."""
        found = self.table.of(box).ranks
        return found[0] if len(found) == 1 else None

    @property
    def part_bytes(self) -> tuple[int, ...]:
        return tuple(math.prod(lengths(axes)) * self.stored.itemsize for axes in self.requests)

    @property
    def round_bytes(self) -> int:
        """Maximum bytes that an aggregator reads in a round."""
        return int(self.read.read_sizes.max(initial=0)) * self.stored.itemsize

    def __repr__(self) -> str:
        chunks = sum(self.chunks_read)
        if self.method == "independent":
            return in_number(
                f"<CollectivePlan independent: {chunks} chunks read by {self.ranks} ranks, each for itself>"
            )
        messages = f" in {plural(self.messages, 'message')}" if self.processes is not None else ""
        readers = in_number(f"{len(self.aggregators)} of {self.ranks} ranks")
        return (
            f"<CollectivePlan two-phase: {plural(chunks, 'chunk')} read by {readers} "
            f"in {plural(len(self.rounds), 'round')}, {self.exchanged_bytes} bytes for others{messages}>"
        )


def independent(
    stored: Stored, requests: Sequence[Axes], *, workers: int | None = None, table: AccessTable | None = None
) -> CollectivePlan:
    read = Rounds(table or AccessTable(stored.grid, requests))
    return CollectivePlan(stored=stored, requests=tuple(requests), method="independent", read=read, processes=workers)


def two_phase(
    stored: Stored,
    requests: Sequence[Axes],
    *,
    aggregators: Sequence[int] | None = None,
    dealing: Dealing = BLOCKS,
    buffer_bytes: int = BUFFER_BYTES,
    workers: int | None = None,
    table: AccessTable | None = None,
) -> CollectivePlan:
    assert dealing.partition != "auto", "whoever plans has chosen"
    table, ranks = table or AccessTable(stored.grid, requests), len(requests)
    domains = file_domains(stored.grid, requests, aggregators or range(ranks), dealing)
    cutting = Cutting(stored, table, dealing.partition, buffer_bytes)
    cut = [tuple(cutting.rounds(domain)) for domain in domains]
    if dealing.partition == "dynamic":  # static domains keep the order of ranks, as in Thakur
        domains = _to_who_wants_them(domains, cut, table)
    read = {domain.rank: each for domain, each in zip(domains, cut, strict=True)}
    return CollectivePlan(
        stored=stored,
        requests=tuple(requests),
        method="two-phase",
        partition=dealing.partition,
        domains=domains,
        read=Rounds.of(table, read),
        buffer_bytes=buffer_bytes,
        processes=workers,
    )


def _to_who_wants_them(
    domains: Sequence[Domain], cut: Sequence[Sequence[tuple[Section, ...]]], table: AccessTable
) -> tuple[Domain, ...]:
    """Assign each domain to the reader that wants most of it, one each, if that sends less than file order."""
    readers, nothing = [domain.rank for domain in domains], np.zeros(len(table.requests), np.int64)
    if len(readers) > 256:  # matching takes longer than it saves
        return tuple(domains)
    wanted = np.stack([sum((table.counts(box) for boxes in rounds for box in boxes), nothing) for rounds in cut])
    given = list(readers)
    left, free = set(range(len(readers))), set(range(len(readers)))
    for pair in np.argsort(-wanted[:, readers], axis=None, kind="stable").tolist():
        domain, place = divmod(pair, len(readers))
        if domain in left and place in free:
            given[domain] = readers[place]
            left.remove(domain)
            free.remove(place)
    if not _sent(wanted, given) < _sent(wanted, readers):
        return tuple(domains)
    return tuple(replace(domain, rank=rank) for domain, rank in zip(domains, given, strict=True))


def _sent(wanted: np.ndarray, readers: Sequence[int]) -> tuple[int, int]:
    """Return the elements sent or received by the busiest rank, and those sent by all ranks."""
    kept = wanted[np.arange(len(readers)), readers]
    sent, got = wanted.sum(axis=1) - kept, wanted.sum(axis=0)
    got[list(readers)] -= kept
    return int(max(sent.max(initial=0), got.max(initial=0))), int(sent.sum())


def _tiles(stored: Stored, box: Section) -> Iterator[Section]:
    """Yield a box in tiles of whole chunks, of at most a MiB or of one chunk, less what lies outside the box."""
    touched = stored.grid.touched(box)
    tile = chunks_along(range(len(touched)), tuple(map(len, touched)), 2**20 // stored.chunk_bytes)
    along = ([(at, min(at + n, axis.stop)) for at in axis[::n]] for axis, n in zip(touched, tile, strict=True))
    for each in product(*along):
        part = stored.grid.block(*zip(*each, strict=True)).intersection(box) if each else box
        if part is not None:
            yield part
