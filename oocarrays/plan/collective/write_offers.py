"""Choice of a collective write method: independent or two-phase, with its aggregators and buffers.

    independent    0 → a b    1 → c d            no two ranks write one chunk: nothing is sent
    two-phase      0 1 → A    0 1 → B            one aggregator per chunk receives all ranks' elements
      fewer        0 1 → A                       fewer messages, less parallelism

Each alternative is reduced in parallelism until it fits the budget; the cheapest is chosen. Thakur 1995, section 6.6;
del Rosario, Bordawekar and Choudhary 1993, section 3.2.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import get_args

import numpy as np

from oocarrays.errors import InputError
from oocarrays.mapping.given import chosen
from oocarrays.mapping.grid import Stored, ceil_div
from oocarrays.mapping.selection import Axes
from oocarrays.mapping.union import Union, product_of
from oocarrays.plan.alternative import Alternative
from oocarrays.plan.collective.coverage import Coverage
from oocarrays.plan.collective.domains import BLOCKS, Dealing, Domain, Share, file_domains
from oocarrays.plan.collective.read_offers import Aggregators, chosen_aggregators
from oocarrays.plan.collective.wanted import check_boxes, chunks_of
from oocarrays.plan.collective.write import BUFFER_BYTES, CollectiveWritePlan, Method
from oocarrays.plan.cost import Work, seconds
from oocarrays.plan.exchange.network import FlatCluster
from oocarrays.plan.exchange.prediction import flat_constants, order_for, schedule_seconds
from oocarrays.plan.machine import Costs, check_rounds
from oocarrays.plan.memory import Resources
from oocarrays.plan.plan import alternative
from oocarrays.plan.search import cheapest


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
    costs = resources.costs
    coverage = Coverage(grid=stored.grid, requests=tuple(requests))
    chosen = _method(method, shared=coverage.shared)
    ways = [_own(coverage)]
    if chosen == "two-phase":
        check_boxes(requests, stored.grid)
        chunks = sum(chunks_of(stored.grid, axes) for axes in requests)
        check_rounds(chunks, max(buffer_bytes // max(stored.chunk_bytes, 1), 1))
        ways = [
            _shared_out(coverage, some, dealing)
            for some in chosen_aggregators(aggregators, len(requests), dealing.disks)
        ]
    plan = CollectiveWritePlan(
        stored=stored,
        coverage=coverage,
        method=chosen,
        partition="static" if dealing.partition == "static" else "dynamic",
        domains=(),
        chunks=max(buffer_bytes // max(stored.chunk_bytes, 1), 1),
        threads=max(min(len(requests), costs.cores), 1),
        at_once=resources.requests if stored.remote else 1,
        processes=resources.workers,
        budget=resources.budget,
        coded_ratio=costs.stored_ratio(stored),
    )
    plans = [_fitted(_ordered(replace(plan, domains=domains), resources)) for domains in ways]
    best, alternatives = cheapest(plans, partial(_price, costs, dealing), plan.budget, "this collective write")
    return replace(best, alternatives=alternatives)


def _price(costs: Costs, dealing: Dealing, plan: CollectiveWritePlan) -> Alternative:
    fits = plan.peak_bytes <= plan.budget
    price = alternative(plan, plan.method, _seconds(plan, costs, dealing) if fits else None)
    return replace(price, ranks=len(plan.aggregators))


def _method(asked: str, *, shared: bool) -> Method:
    known: tuple[Method, ...] = get_args(Method)
    chosen(asked, "method", ("auto", *known))
    if asked == "independent" and shared:
        raise InputError(
            "method='independent': two ranks write to one chunk, which has one writer; 'two-phase' does it"
        )
    return asked if asked in known else "two-phase" if shared else "independent"  # type: ignore[return-value]


def _own(coverage: Coverage) -> tuple[Domain, ...]:
    """Return one domain per rank: the chunks that it writes to."""
    order = tuple(range(len(coverage.grid.shape)))
    each = [Union.of([product_of(axes, coverage.grid.chunks)]) for axes in coverage.requests]
    return tuple(
        Domain(rank=rank, grid=coverage.grid, order=order, shares=Share.whole(chunks))
        for rank, chunks in enumerate(each)
    )


def _shared_out(coverage: Coverage, aggregators: Sequence[int], dealing: Dealing) -> tuple[Domain, ...]:
    if not aggregators:
        return ()
    domains = file_domains(coverage.grid, coverage.requests, aggregators, dealing)
    if dealing.partition != "static":
        return tuple(domain if domain.count else replace(domain, shares=()) for domain in domains)
    return tuple(domain.wanted_by(coverage.requests) for domain in domains)


def _ordered(plan: CollectiveWritePlan, resources: Resources) -> CollectiveWritePlan:
    """Return the plan with the schedule of its messages."""
    if not plan.processes or not plan.ranks:
        return plan
    return replace(plan, schedule=order_for(resources.schedule, plan.ranks, plan.sent.sum(axis=0), resources.costs))


def _fitted(plan: CollectiveWritePlan) -> CollectiveWritePlan:
    """Return the plan with less parallelism, halved until it fits the budget or cannot be halved."""
    while plan.peak_bytes > plan.budget:
        less = ("chunks", "at_once") if plan.schedule else ("at_once", "threads")
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
    return float(max(took.processor * side_by_side, device)) + _exchange_seconds(plan, costs)


def _measured_seconds(plan: CollectiveWritePlan, costs: Costs, dealing: Dealing) -> float | None:
    """Return the seconds of measured disks; None without measurements."""
    lanes = sum(1 for domain in plan.domains if domain.count)
    under_way = max(lanes if plan.processes else min(lanes, plan.threads), 1) * plan.at_once
    ratio, traffic = costs.stored_ratio(plan.stored), plan.traffic
    write = dealing.disk_seconds("write", plan.stored, traffic.written_bytes, ratio, under_way)
    read = dealing.disk_seconds("read", plan.stored, traffic.read_bytes, ratio, under_way)
    return None if write is None else write + (read or 0.0)


def _exchange_seconds(plan: CollectiveWritePlan, costs: Costs) -> float:
    """Return the seconds of messages: one exchange of all rounds, plus the startup of each further round's steps.

    On threads, this is the overhead of tasks.
    """
    if plan.schedule is None:
        return sum(bool(boxes) for each in plan.rounds for boxes in each) * costs.task_seconds
    constants, network = flat_constants(costs), FlatCluster.of(plan.ranks)
    whole = schedule_seconds(plan.schedule, plan.sent.sum(axis=0), network, constants)
    return whole + max(len(plan.rounds) - 1, 0) * len(plan.schedule) * constants[0].startup + costs.graph_seconds
