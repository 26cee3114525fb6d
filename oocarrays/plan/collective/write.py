"""Collective writes: aggregators, file domains, rounds, messages, and chunks read before they are written.

    written by 0   █ █ █ █ █ · · ·          domains       A A A A B B B B
    written by 1   · · · ░ ░ ░ ░ ·          sent          0 → A, 1 → A, 0 → B, 1 → B
                                            B's chunk     0 placed first, 1 over it, on the stored elements
    stored         0 0 0 1 1 1 1 ·

    independent    0 0 0 0 · 1 1 1          if no two ranks write one chunk, each writes its own: nothing is sent
    fewer          A A A A A A A A          fewer messages, less parallelism

Each alternative is reduced in parallelism until it fits the budget; the cheapest is chosen.

Aggregators place the ranks' elements in a chunk, the lowest rank first, in any order of arrival. Where sections
overlap, the highest rank wins. A chunk is read before it is written only if the ranks do not cover it. Thakur 1995,
sections 6.3.2, 6.4 and 6.6; del Rosario, Bordawekar and Choudhary 1993, section 3.2.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import get_args

import numpy as np

from oocarrays.errors import InputError, in_number
from oocarrays.mapping.given import chosen
from oocarrays.mapping.grid import Stored, ceil_div
from oocarrays.mapping.selection import Axes
from oocarrays.mapping.union import Union, product_of
from oocarrays.plan.collective.domains import (
    BLOCKS,
    Aggregators,
    Dealing,
    Domain,
    Partition,
    Share,
    chosen_aggregators,
    file_domains,
)
from oocarrays.plan.collective.read import AHEAD, BUFFER_BYTES, Method
from oocarrays.plan.collective.rounds import Round, Rounds
from oocarrays.plan.collective.wanted import Coverage, check_boxes, chunks_of
from oocarrays.plan.cost import Traffic, Work, seconds
from oocarrays.plan.exchange.prediction import Carrier, exchange_seconds
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.machine import Costs
from oocarrays.plan.plan import (
    Alternative,
    Bytes,
    Facts,
    Holding,
    Memory,
    Resources,
    alternative,
    cheapest,
    estimate,
    shared_facts,
)


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
        return next((each.seconds or 0.0 for each in self.alternatives if each.taken), 0.0)

    @property
    def ranks(self) -> int:
        return len(self.requests)

    @property
    def requests(self) -> tuple[Axes, ...]:
        """Elements that each rank writes: the file access descriptor (FAD)."""
        return self.coverage.requests

    @cached_property
    def _writes(self) -> Rounds:
        cut = {domain.rank: tuple(domain.rounds(self.chunks)) for domain in self.domains}
        return Rounds.of(self.coverage, cut, gathers=True)

    @property
    def rounds(self) -> tuple[Round, ...]:
        return self._writes.boxes

    @cached_property
    def aggregators(self) -> tuple[int, ...]:
        return tuple(domain.rank for domain in self.domains if domain.count)

    @cached_property
    def all_sizes(self) -> np.ndarray:
        return self._writes.all_sizes * self.stored.itemsize

    @property
    def sent(self) -> np.ndarray:
        """Bytes by round, source and aggregator, without those that ranks keep."""
        return self._writes.between * self.stored.itemsize

    @cached_property
    def traffic(self) -> Traffic:
        """Reads, writes and messages; exact for uncoded data if no chunk is missing or consists of fill values only."""
        messages, elements = self._writes.messages(self.schedule)
        moved = Traffic(messages=messages, exchanged_bytes=elements * self.stored.itemsize)
        return self.coverage.traffic(self.coded_ratio) + moved

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
        forwarded = max(each.buffer_bytes for each in self._writes.exchanges(self.schedule)) * stored.itemsize
        return making + Memory.of(messages=min(AHEAD, len(self.sent)) * int(come) + int(goes), forwarded=forwarded)

    def __repr__(self) -> str:
        traffic = self.traffic
        return in_number(
            f"<CollectiveWritePlan {self.method}: {traffic.write_requests} chunks, {traffic.read_requests} read first, "
            f"written by {len(self.aggregators)} of {self.ranks} ranks in {len(self.rounds)} rounds, "
            f"{traffic.messages} messages>"
        )


def plan_collective_write(
    stored: Stored,
    requests: Sequence[Axes],
    resources: Resources,
    *,
    method: str = "auto",
    aggregators: Aggregators = "auto",
    dealing: Dealing = BLOCKS,
    buffer_bytes: int = BUFFER_BYTES,
) -> CollectiveWritePlan:
    costs, at_once = resources.costs, max(buffer_bytes // max(stored.chunk_bytes, 1), 1)
    coverage = Coverage(stored=stored, requests=tuple(requests))
    known: tuple[Method, ...] = get_args(Method)
    chosen(method, "method", ("auto", *known))
    if method == "independent" and coverage.shared:
        raise InputError("method='independent': two ranks would write to one chunk; use 'two-phase'")
    way: Method = "two-phase" if method == "two-phase" or coverage.shared else "independent"
    ways = [_own(coverage)]
    if way == "two-phase":
        check_boxes(requests, stored.grid)
        chunks, most = sum(chunks_of(stored.grid, axes) for axes in requests), 100_000
        rounds = ceil_div(chunks, at_once)
        if rounds > most:  # planning computes the writes of each
            raise InputError(
                f"a collective write of {chunks} chunks has {rounds} rounds, more than the {most} that can be planned: "
                "write fewer at a time, or pass sections that share no chunk with method='independent'"
            )
        sets = chosen_aggregators(aggregators, len(requests), dealing.disks)
        ways = [file_domains(coverage.grid, coverage.requests, some, dealing) for some in sets]
        if dealing.partition == "static":
            ways = [tuple(domain.wanted_by(coverage.requests) for domain in domains) for domains in ways]
    plan = CollectiveWritePlan(
        stored=stored,
        coverage=coverage,
        method=way,
        partition="static" if dealing.partition == "static" else "dynamic",
        domains=(),
        chunks=at_once,
        threads=max(min(len(requests), costs.cores), 1),
        at_once=resources.requests if stored.remote else 1,
        processes=resources.workers,
        budget=resources.budget,
        coded_ratio=costs.stored_ratio(stored),
    )
    plans = [_fitted(_ordered(replace(plan, domains=domains), resources)) for domains in ways]

    def price(each: CollectiveWritePlan) -> Alternative:
        took = _seconds(each, costs, dealing) if each.peak_bytes <= each.budget else None
        return replace(alternative(each, each.method, took), ranks=len(each.aggregators))

    best, alternatives = cheapest(plans, price, plan.budget, "this collective write")
    return replace(best, alternatives=alternatives)


def _own(coverage: Coverage) -> tuple[Domain, ...]:
    """Return one domain per rank: the chunks that it writes to."""
    grid, order = coverage.grid, tuple(range(len(coverage.grid.shape)))
    each = enumerate(Union.of([product_of(axes, grid.chunks)]) for axes in coverage.requests)
    return tuple(Domain(rank=rank, grid=grid, order=order, shares=Share.whole(chunks)) for rank, chunks in each)


def _ordered(plan: CollectiveWritePlan, resources: Resources) -> CollectiveWritePlan:
    if not plan.processes or not plan.ranks:
        return plan
    carrier = Carrier.between_workers(plan.ranks, resources.costs)
    return replace(plan, schedule=carrier.cheapest(plan.sent.sum(axis=0), resources.schedule)[0])


def _fitted(plan: CollectiveWritePlan) -> CollectiveWritePlan:
    """Return the plan with less parallelism, halved until it fits the budget or cannot be halved."""
    while plan.peak_bytes > plan.budget:
        less = ("at_once", "threads") if plan.processes is None else ("chunks", "at_once")
        name = next((each for each in less if getattr(plan, each) > 1), None)
        if name is None:
            break
        plan = replace(plan, **{name: getattr(plan, name) // 2})
    return plan


def _seconds(plan: CollectiveWritePlan, costs: Costs, dealing: Dealing) -> float:
    """Return the predicted seconds: reads, encoding and writes of all aggregators in parallel, and messages."""
    stored, traffic = plan.stored, plan.traffic
    chunks = traffic.read_requests + traffic.write_requests
    work = Work(
        requests=chunks, pieces=chunks, copied=chunks * stored.chunk_bytes, decoded=traffic.decoded_bytes,
        encoded=traffic.encoded_bytes, read=traffic.read_bytes, written=traffic.written_bytes,
        waits=ceil_div(chunks, max(len(plan.aggregators) * plan.at_once, 1)),
    )  # fmt: skip
    took = seconds(work, costs, stored)
    counts = np.array([domain.count for domain in plan.domains])
    side_by_side = max(counts.max(initial=0) / max(counts.sum(), 1), 1 / costs.cores)
    device = _measured_seconds(plan, costs, dealing) or took.device
    sending = sum(bool(boxes) for each in plan.rounds for boxes in each) * costs.task_seconds  # between threads
    if plan.schedule is not None:
        sending = exchange_seconds(plan.schedule, plan.sent.sum(axis=0), costs, len(plan.rounds)) + costs.graph_seconds
    return float(max(took.processor * side_by_side, device)) + sending


def _measured_seconds(plan: CollectiveWritePlan, costs: Costs, dealing: Dealing) -> float | None:
    lanes = len(plan.aggregators)
    under_way = max(lanes if plan.processes else min(lanes, plan.threads), 1) * plan.at_once
    ratio, traffic = costs.stored_ratio(plan.stored), plan.traffic
    write = dealing.disk_seconds("write", plan.stored, traffic.written_bytes, ratio, under_way)
    read = dealing.disk_seconds("read", plan.stored, traffic.read_bytes, ratio, under_way)
    return None if write is None else write + (read or 0.0)
