"""Collective reads: what every rank wants of a file, who reads it, in which rounds, and who sends what to whom.

    wanted by 0    █ █ █ █ · · · ·
    wanted by 1    · · █ █ █ █ · ·          bounding section    █ █ █ █ █ █ · ·
    domains        A A A B B B              each stored chunk is read once, by one aggregator, for all
    rounds         1 2 3 1 2 3              in file order; one round is sent while the next is read

    independent    0 0 1 1 2 2 · ·          where no chunk is wanted by two ranks, each reads for itself

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

from oocarrays.mapping.grid import Stored
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, common, lengths
from oocarrays.plan.alternative import Alternative
from oocarrays.plan.collective.domains import BLOCKS, Dealing, Domain, Partition, file_domains
from oocarrays.plan.collective.rounds import Cutting
from oocarrays.plan.collective.wanted import AccessTable, Place, chunks_of, places, requests_of
from oocarrays.plan.cost import Traffic
from oocarrays.plan.exchange.exchange import Exchange
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.memory import Holding, Memory
from oocarrays.plan.plan import Bytes, Facts, Value, estimate, plural, shared_facts

__all__ = ["BUFFER_BYTES", "CollectivePlan", "Method", "Round", "part_shape", "requests_of"]

Method = Literal["independent", "two-phase"]
Round = tuple[tuple[Section, ...], ...]
"""The boxes of chunks that each rank reads at one time, by rank; of each box its tight section is read."""
BUFFER_BYTES = 2**26
"""Of what an aggregator reads in a round, at most, or one chunk."""
PIECE_BYTES = 2**20
"""Of what an aggregator decodes at one time, and then packs for all who want it, or one chunk."""
MOST_READERS = 256
"""Readers among which it is looked who wants most of a domain: of more, that takes longer than what it saves."""
AHEAD = 2
"""Rounds that an aggregator has read and others not yet taken, at most."""


@dataclass(frozen=True)
class Rounds:
    """Reads of each aggregator in each round, whatever the order of messages."""

    table: AccessTable = field(compare=False)
    """Return the table that says what each rank wants of any box."""
    boxes: tuple[Round, ...] = ()
    """What is read at one time."""

    def __reduce__(self) -> tuple[type[Rounds], tuple[AccessTable, tuple[Round, ...]]]:
        return Rounds, (self.table, self.boxes)  # what is derived is derived again there

    @property
    def ranks(self) -> int:
        """Ranks that want something, or read for others."""
        return len(self.table.requests)

    def sizes(self, number: int) -> np.ndarray:
        """Elements that each rank has read in a round for each other: a matrix."""
        nothing = np.zeros(self.ranks, np.int64)
        return np.stack([sum(map(self.table.counts, boxes), nothing) for boxes in self.boxes[number]])

    @cached_property
    def all_sizes(self) -> np.ndarray:
        """The same of all rounds, one behind the other."""
        sizes = np.zeros((len(self.boxes), self.ranks, self.ranks), np.int64)
        for number in range(len(self.boxes)):
            sizes[number] = self.sizes(number)
        return sizes

    @cached_property
    def between(self) -> np.ndarray:
        """Elements that each rank has read in each round for each other rank."""
        return self.all_sizes * ~np.eye(self.ranks, dtype=bool)

    @cached_property
    def read_sizes(self) -> np.ndarray:
        """Elements that each rank reads in each round, tight sections whole: by round and rank."""
        read = [[sum(self.table.of(box).size for box in boxes) for boxes in each] for each in self.boxes]
        return np.array(read, np.int64).reshape(len(self.boxes), self.ranks)

    @cached_property
    def chunks_read(self) -> tuple[int, ...]:
        boxes = ([box for each in self.boxes for box in each[rank]] for rank in range(self.ranks))
        return tuple(sum(self.table.of(box).chunks for box in each) for each in boxes)


@dataclass(frozen=True, kw_only=True)
class CollectivePlan(Holding):
    """One collective read."""

    stored: Stored
    """The file."""
    requests: tuple[Axes, ...]
    """What each rank wants, by rank: the file access descriptor (FAD)."""
    method: Method
    """Whether aggregators read for all, or each rank for itself."""
    partition: Partition = "dynamic"
    """What is dealt out to aggregators."""
    domains: tuple[Domain, ...] = ()
    """What each aggregator reads of."""
    read: Rounds
    """What is read at one time, by whom."""
    schedule: Schedule | None = None
    """The order of messages; None for all of a round at one time, and between threads, which send none."""
    buffer_bytes: int = BUFFER_BYTES
    """Bytes that an aggregator reads in a round at most, where that is no less than a chunk."""
    processes: int | None = None
    """Workers that ranks are put on in turn; None for threads of this process."""
    alternatives: tuple[Alternative, ...] = field(default=(), compare=False, repr=False)
    """Every way that was compared, the cheapest first."""
    price: Alternative | None = field(default=None, compare=False, repr=False)
    """The alternative that is taken; None before the plan is priced."""
    budget: int = 2**62
    """Bytes that each process may hold above its idle level."""
    memory: Memory = field(default=Memory(), compare=False, repr=False)
    """Held by this process at one time, at most, or by the worker that holds most."""

    @property
    def ranks(self) -> int:
        """Ranks that want something, or read for others."""
        return len(self.requests)

    def facts(self) -> Facts:
        if self.price is None:
            return [("reads", (repr(self),))]
        about, sent = estimate(self.stored.coded), Bytes(self.traffic.exchanged_bytes)
        order = self.schedule.name if self.schedule else "all of a round at one time"
        messages = f" in {self.traffic.messages} messages, {order}" if self.processes else ", without messages"
        return [
            ("method", self._way()),
            *shared_facts(self, reads=about, **({"decodes": ""} if self.stored.coded else {})),
            ("for others", (sent, messages)),
            ("a worker holds" if self.processes else "this process holds", (Bytes(self.peak_bytes),)),
            *shared_facts(self, predicted=""),
            ("why", (self._why(),)),
        ]

    def _way(self) -> tuple[Value, ...]:
        if self.method == "independent":
            return ("independent: each rank reads for itself",)
        some = f"{len(self.aggregators)} of {self.ranks} ranks read for all, in {plural(len(self.rounds), 'round')}"
        return f"two-phase, {self.partition}: {some} of at most ", Bytes(self.round_bytes)

    def _why(self) -> str:
        """Say why this way was chosen."""
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
        """Requests, bytes and messages of all ranks together."""
        return self.price.traffic if self.price else Traffic()

    @property
    def seconds(self) -> float:
        """Predicted seconds by the clock."""
        return (self.price and self.price.seconds) or 0.0

    @cached_property
    def aggregators(self) -> tuple[int, ...]:
        return tuple(rank for rank, chunks in enumerate(self.chunks_read) if chunks)

    # ------------------------------------------------------------------ the file domain access table

    @property
    def rounds(self) -> tuple[Round, ...]:
        """The boxes of chunks that each rank reads at one time."""
        return self.read.boxes

    @property
    def table(self) -> AccessTable:
        """Return the table that says what each rank wants of any box."""
        return self.read.table

    def tight(self, box: Section) -> Axes:
        """Return the section that is read of a box: the smallest that holds what all ranks want of it."""
        return self.table.tight(box)

    def places(self, box: Section, rank: int) -> tuple[Place, Place]:
        """Where what a rank wants of a box is in its part, and in what is read of the box."""
        return places(self.requests[rank], box, self.tight(box))

    def pieces(self, number: int, rank: int) -> Iterator[tuple[Section, Axes]]:
        """Yield a rank's reads in a round, in pieces that a processor's cache holds where chunks are coded, which takes
        a copy anyway: each made of whole chunks, and what is read of it."""
        for box in self.rounds[number][rank]:
            for piece in _tiles(self.stored, box) if self.stored.coded else [box]:
                read = common(self.tight(box), piece)
                if all(map(len, read)):  # a box may have chunks in it that nobody wants
                    yield piece, read

    def sizes(self, number: int) -> np.ndarray:
        """Elements that each rank has read in a round for each other: a matrix."""
        return self.read.sizes(number)

    # ------------------------------------------------------------------ what it comes to

    @property
    def all_sizes(self) -> np.ndarray:
        """The same of all rounds, one behind the other."""
        return self.read.all_sizes

    @cached_property
    def messages(self) -> int:
        """Messages between different ranks, where they are on workers: those that are sent on count again."""
        if self.schedule is None or self.processes is None:
            return 0 if self.processes is None else int((self.between > 0).sum())
        return sum(Exchange.of(self.schedule, sizes).messages for sizes in self.between)

    @property
    def exchanged_bytes(self) -> int:
        """Bytes that one rank has read for another."""
        return int(self.between.sum()) * self.stored.itemsize

    @property
    def between(self) -> np.ndarray:
        """Elements that each rank has read in each round for each other rank."""
        return self.read.between

    @cached_property
    def chunks_read(self) -> tuple[int, ...]:
        if self.method == "independent":
            return tuple(chunks_of(self.stored.grid, axes) for axes in self.requests)
        return self.read.chunks_read

    def is_packed(self, box: Section) -> bool:
        """Whether what is read of a box goes to one piece of memory."""
        owner = self.only(box) if self.processes is None else None
        if owner is not None and self.stored.order is not None:  # a rank's part lies in C order
            return False
        return owner is None or in_one_piece(lengths(self.tight(box)), part_shape(self, owner))

    def only(self, box: Section) -> int | None:
        """The one rank that wants any of a box, if it is one: between threads that is read to its place."""
        found = self.table.ranks(box)
        return found[0] if len(found) == 1 else None

    @property
    def taken_bytes(self) -> np.ndarray:
        """Bytes that each rank takes of what it reads."""
        if self.method == "independent":
            return np.array(self.part_bytes, np.int64)
        taken: np.ndarray = self.read.read_sizes.sum(axis=0) * self.stored.itemsize
        return taken

    @property
    def part_bytes(self) -> tuple[int, ...]:
        return tuple(math.prod(lengths(axes)) * self.stored.itemsize for axes in self.requests)

    @property
    def round_bytes(self) -> int:
        """Bytes that an aggregator reads in a round, at most."""
        return int(self.read.read_sizes.max(initial=0)) * self.stored.itemsize

    def __repr__(self) -> str:
        chunks = sum(self.chunks_read)
        if self.method == "independent":
            return f"<CollectivePlan independent: {chunks} chunks read by {self.ranks} ranks, each for itself>"
        messages = f" in {plural(self.messages, 'message')}" if self.processes is not None else ""
        readers = f"{len(self.aggregators)} of {self.ranks} ranks"
        return (
            f"<CollectivePlan two-phase: {plural(chunks, 'chunk')} read by {readers} "
            f"in {plural(len(self.rounds), 'round')}, {self.exchanged_bytes} bytes for others{messages}>"
        )


def part_shape(plan: CollectivePlan, rank: int) -> tuple[int, ...]:
    """Extent of each axis of what a rank gets."""
    return lengths(plan.requests[rank])


def in_one_piece(inside: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether a box of some lengths in an array of some shape lies in one piece, in C order."""
    apart = [i for i, (n, whole) in enumerate(zip(inside, shape, strict=True)) if n != whole]
    return not apart or math.prod(inside[: apart[-1]]) <= 1 or 0 in inside


def independent(
    stored: Stored, requests: Sequence[Axes], *, workers: int | None = None, table: AccessTable | None = None
) -> CollectivePlan:
    """Plan that each rank reads for itself."""
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
    cut = [list(cutting.rounds(domain)) for domain in domains]
    if dealing.partition == "dynamic":  # static ones go to ranks in their order, as Thakur has them
        domains = _to_who_wants_them(domains, cut, table)
    read = {domain.rank: each for domain, each in zip(domains, cut, strict=True)}
    most = max(map(len, read.values()), default=0)
    rounds = tuple(tuple(nth(read.get(rank, []), k) for rank in range(ranks)) for k in range(most))
    return CollectivePlan(
        stored=stored,
        requests=tuple(requests),
        method="two-phase",
        partition=dealing.partition,
        domains=domains,
        read=Rounds(table, rounds),
        buffer_bytes=buffer_bytes,
        processes=workers,
    )


def _to_who_wants_them(
    domains: Sequence[Domain], cut: Sequence[Sequence[tuple[Section, ...]]], table: AccessTable
) -> tuple[Domain, ...]:
    """Give each domain to the reader that wants most of it, one to each, where less is sent than in file order."""
    readers, nothing = [domain.rank for domain in domains], np.zeros(len(table.requests), np.int64)
    if len(readers) > MOST_READERS:
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
    """Elements that the rank sends or gets that has most to do with others, and those of all ranks."""
    kept = wanted[np.arange(len(readers)), readers]
    sent, got = wanted.sum(axis=1) - kept, wanted.sum(axis=0)
    got[list(readers)] -= kept
    return int(max(sent.max(initial=0), got.max(initial=0))), int(sent.sum())


def nth(rounds: list[tuple[Section, ...]], number: int) -> tuple[Section, ...]:
    return rounds[number] if number < len(rounds) else ()


def _tiles(stored: Stored, box: Section) -> Iterator[Section]:
    """A box of whole chunks in smaller ones of `PIECE_BYTES`, or of one chunk."""
    left, along = max(PIECE_BYTES // stored.chunk_bytes, 1), []
    for touched in reversed(stored.grid.touched(box)):
        length = min(left, len(touched))
        along.append([(at, min(at + length, touched.stop)) for at in touched[::length]])
        left //= length
    for each in product(*reversed(along)):
        yield stored.grid.block(*zip(*each, strict=True)) if each else box
