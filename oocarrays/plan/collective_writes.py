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
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from oocarrays.errors import BudgetError, InputError
from oocarrays.mapping.grid import ChunkGrid, Stored, ceil_div
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, lengths
from oocarrays.mapping.union import Union, product_of
from oocarrays.plan.cost import Costs, Traffic
from oocarrays.plan.coverage import Coverage
from oocarrays.plan.domains import Domain, Partition, Share, file_domains
from oocarrays.plan.exchange import Exchange
from oocarrays.plan.network import FlatCluster
from oocarrays.plan.offers import Aggregators, chosen_aggregators
from oocarrays.plan.prediction import cheapest, flat_constants
from oocarrays.plan.schedule import Schedule

Method = Literal["independent", "two-phase"]
AHEAD = 2
"""Rounds of which an aggregator has messages that are not yet written, at most."""
BUFFER_BYTES = 2**24
"""Of the chunks that an aggregator writes in a round, where that is no less than a chunk."""


@dataclass(frozen=True, kw_only=True)
class CollectiveWritePlan:
    """One collective write.

    >>> rows = Stored(grid=ChunkGrid.of((8, 8), (2, 8)), itemsize=4, local=True)
    >>> plan = plan_collective_write(rows, [(range(8), range(5)), (range(8), range(3, 8))])
    >>> plan
    <CollectiveWritePlan two-phase: 4 chunks, 0 read first, written by 2 of 2 ranks in 1 rounds, 2 messages>
    >>> plan.sizes(0).tolist()
    [[80, 80], [80, 80]]
    """

    stored: Stored
    """The file, as it is written: the unit is a shard, where there are any."""
    requests: tuple[Axes, ...]
    """What each rank writes: the file access descriptor (FAD)."""
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
    coded_ratio: float = field(default=1.0, repr=False)
    """Stored bytes over those of elements: an estimate."""

    @property
    def ranks(self) -> int:
        """Ranks that write something, or write for others."""
        return len(self.requests)

    @cached_property
    def coverage(self) -> Coverage:
        """Which chunks, or shards, are covered, and whose elements stay."""
        return Coverage(grid=self.stored.grid, requests=self.requests)

    @cached_property
    def inner(self) -> Coverage:
        """The same of the chunks in shards, where there are any."""
        shard = self.stored.shard_chunks
        grid = ChunkGrid.of(self.stored.grid.shape, shard) if shard else self.stored.grid
        return Coverage(grid=grid, requests=self.requests) if shard else self.coverage

    @cached_property
    def rounds(self) -> tuple[tuple[tuple[Section, ...], ...], ...]:
        """The boxes of chunks that each rank writes at one time, by round and rank, in file order."""
        each = {domain.rank: list(domain.rounds(self.chunks)) for domain in self.domains}
        most = max(map(len, each.values()), default=0)
        return tuple(tuple(_nth(each.get(rank, []), number) for rank in range(self.ranks)) for number in range(most))

    @property
    def aggregators(self) -> tuple[int, ...]:
        """The ranks that write."""
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
        """What is read, written and sent: exact where nothing is coded, no chunk missing, and none all fill value."""
        stored, units, inner = self.stored, self.coverage, self.inner
        coded = stored.itemsize * inner.grid.chunk_size if stored.coded else 0
        messages, exchanged = self._messages()
        return Traffic(
            read_requests=units.reads,
            read_bytes=int(units.reads * stored.chunk_bytes * self.coded_ratio),
            decoded_bytes=inner.reads * coded,
            write_requests=units.wanted.count,
            written_bytes=int(units.wanted.count * stored.chunk_bytes * self.coded_ratio),
            encoded_bytes=inner.wanted.count * coded,
            messages=messages,
            exchanged_bytes=exchanged,
        )

    def _messages(self) -> tuple[int, int]:
        """Messages between ranks, and their bytes: those that are sent on count again."""
        if self.schedule is None:
            return int((self.sent > 0).sum()), int(self.sent.sum())
        turns = [turn for sizes in self.sent for turn in Exchange.of(self.schedule, sizes)]
        return sum(len(turn.sizes) for turn in turns), int(sum(turn.sizes.sum() for turn in turns))

    @property
    def rank_bytes(self) -> int:
        """Bytes that a rank holds at most, beside its part: messages, and the chunk that it makes of them."""
        stored = self.stored
        making = stored.chunk_bytes + stored.encode_workspace + stored.decode_workspace + stored.travel_bytes
        if self.schedule is None or not len(self.sent):
            return making * self.at_once
        come, goes = self.sent.sum(axis=1).max(), self.sent.max()
        forwarded = max(Exchange.of(self.schedule, sizes).buffer_bytes for sizes in self.sent)
        return making * self.at_once + min(AHEAD, len(self.sent)) * int(come) + int(goes) + forwarded

    @property
    def peak_bytes(self) -> int:
        """Bytes that this process holds at most, or each worker, beside the parts."""
        here = self.threads if self.processes is None else ceil_div(self.ranks, self.processes)
        return here * self.rank_bytes

    def __repr__(self) -> str:
        traffic = self.traffic
        return (
            f"<CollectiveWritePlan {self.method}: {traffic.write_requests} chunks, {traffic.read_requests} read first, "
            f"written by {len(self.aggregators)} of {self.ranks} ranks in {len(self.rounds)} rounds, "
            f"{traffic.messages} messages>"
        )


def _nth(rounds: list[tuple[Section, ...]], number: int) -> tuple[Section, ...]:
    return rounds[number] if number < len(rounds) else ()


def plan_collective_write(
    stored: Stored,
    requests: Sequence[Axes],
    *,
    method: str = "auto",
    aggregators: Aggregators = "auto",
    schedule: str = "auto",
    buffer_bytes: int = BUFFER_BYTES,
    workers: int = 0,
    budget: int = 2**62,
    costs: Costs | None = None,
    under_way: int = 1,
    **dealing: object,
) -> CollectiveWritePlan:
    """Plan a collective write in a budget.

    Parameters
    ----------
    stored : Stored
        The file, as it is written.
    requests : sequence of axes
        What each rank writes.
    method : "auto", "independent" or "two-phase"
        By default each rank writes for itself where no chunk is written by two.
    workers : int
        Workers that ranks are put on in turn; 0 for threads.
    budget : int
        Bytes that this process may hold beside the parts, or each worker.
    under_way : int
        Requests that a process has under way at one time, to stores over a network.
    **dealing
        As in `file_domains`: partition, deal, run, orientation, disk_of.

    Raises
    ------
    InputError
        For a method that there is not, or ranks that write the same chunk each for itself.
    BudgetError
        Where the messages for one chunk, and the chunk, are too much.
    """
    costs = costs or Costs()
    coverage = Coverage(grid=stored.grid, requests=tuple(requests))
    chosen = _method(method, shared=coverage.shared)
    some = chosen_aggregators(aggregators, len(requests))[0] if requests else ()
    domains = _own(coverage) if chosen == "independent" else _shared_out(coverage, some, dealing)
    plan = CollectiveWritePlan(
        stored=stored,
        requests=tuple(requests),
        method=chosen,
        partition=dealing.get("partition", "dynamic"),  # type: ignore[arg-type]
        domains=domains,
        chunks=max(buffer_bytes // max(stored.chunk_bytes, 1), 1),
        threads=max(min(len(requests), costs.cores), 1),
        at_once=under_way if stored.remote else 1,
        processes=workers or None,
        budget=budget,
        coded_ratio=costs.stored_ratio(stored),
    )
    plan.__dict__["coverage"] = coverage
    return _fitted(_ordered(plan, schedule, costs))


def _method(asked: str, *, shared: bool) -> Method:
    known: tuple[Method, ...] = get_args(Method)
    if asked not in ("auto", *known):
        raise InputError(f"method={asked!r} is not one of 'auto', {', '.join(map(repr, known))}")
    if asked == "independent" and shared:
        raise InputError(
            "method='independent': two ranks write to one chunk, which has one writer; 'two-phase' does it"
        )
    return asked if asked in known else "two-phase" if shared else "independent"  # type: ignore[return-value]


def _own(coverage: Coverage) -> tuple[Domain, ...]:
    """Each rank writes the chunks that it has something of."""
    order = tuple(range(len(coverage.grid.shape)))
    each = [Union.of([product_of(axes, coverage.grid.chunks)]) for axes in coverage.requests]
    return tuple(
        Domain(rank=rank, grid=coverage.grid, order=order, shares=Share.whole(chunks))
        for rank, chunks in enumerate(each)
    )


def _shared_out(coverage: Coverage, aggregators: Sequence[int], dealing: dict[str, object]) -> tuple[Domain, ...]:
    if not aggregators:
        return ()
    domains = file_domains(coverage.grid, coverage.requests, aggregators, **dealing)  # type: ignore[arg-type]
    if dealing.get("partition") != "static":
        return tuple(domain if domain.count else replace(domain, shares=()) for domain in domains)
    return tuple(domain.wanted_by(coverage.requests) for domain in domains)


def _ordered(plan: CollectiveWritePlan, schedule: str, costs: Costs) -> CollectiveWritePlan:
    """The same plan with the order of its messages."""
    if not plan.processes or not plan.ranks:
        return plan
    if schedule.lower() != "auto":
        return _changed(plan, schedule=Schedule.of(schedule, plan.ranks))
    return _changed(plan, schedule=cheapest(plan.sent.sum(axis=0), FlatCluster.of(plan.ranks), flat_constants(costs)))


def _fitted(plan: CollectiveWritePlan) -> CollectiveWritePlan:
    """The same plan, doing less at one time until it keeps its budget."""
    while plan.peak_bytes > plan.budget:
        less = ("chunks", "at_once") if plan.schedule else ("at_once", "threads")
        name = next((each for each in less if getattr(plan, each) > 1), None)
        if name is None:
            raise BudgetError(plan.budget, plan.peak_bytes, "this collective write")
        plan = _changed(plan, **{name: getattr(plan, name) // 2})
    return plan


def _changed(plan: CollectiveWritePlan, **changed: object) -> CollectiveWritePlan:
    """The same plan, with what it has derived of its requests."""
    made = replace(plan, **changed)  # type: ignore[arg-type]
    made.__dict__["coverage"] = plan.coverage
    return made
