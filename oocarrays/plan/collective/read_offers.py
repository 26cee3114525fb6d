"""Choice of a collective read method: independent or two-phase, with its aggregators and file domains.

    independent    reads and decodes     all touched chunks, for every rank
    two-phase      reads and decodes     each chunk once; then sends others their elements
                   static, dynamic       more rounds if few domains hold all wanted chunks
                   fewer aggregators     fewer messages and tasks, less parallelism

The cheapest alternative within the budget is chosen. del Rosario, Bordawekar and Choudhary 1993, section 3.2.3: fewer
readers may be faster; Thakur 1995, section 6.6.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Literal, get_args

import numpy as np

from oocarrays.errors import BudgetError, InputError
from oocarrays.mapping.given import chosen
from oocarrays.mapping.grid import Stored, ceil_div
from oocarrays.mapping.layouts.local import spread
from oocarrays.mapping.selection import Axes, lengths
from oocarrays.plan.collective.cost import Means, priced
from oocarrays.plan.collective.domains import Deal, Dealing, Partition, spaced
from oocarrays.plan.collective.read import BUFFER_BYTES, CollectivePlan, Method, independent, two_phase
from oocarrays.plan.collective.wanted import AccessTable, chunks_of
from oocarrays.plan.exchange.prediction import Carrier
from oocarrays.plan.exchange.schedule import Schedule, is_auto, is_coloring, is_unordered
from oocarrays.plan.machine import MOST_TASKS
from oocarrays.plan.memory import Resources
from oocarrays.plan.search import cheapest

UNEVEN = 1.5
"""Factor of the mean share of chunks; a rank that wants more may have others read for it."""
LEAST_BUFFER_BYTES = 2**16
"""Smallest buffer tried, in bytes."""
MOST_ROUNDS = 2**12
"""Maximum number of rounds: the smallest buffer must hold all wanted bytes in that many."""
ANY = Dealing(partition="auto")
"""Default: wanted chunks or the whole array, whichever is faster."""
Aggregators = str | int | Sequence[int]
"""Number of aggregators, their ranks, or "auto"."""


def plan_collective(
    stored: Stored,
    requests: Sequence[Axes],
    resources: Resources,
    *,
    method: str = "auto",
    aggregators: Aggregators = "auto",
    dealing: Dealing = ANY,
    buffer_bytes: int = BUFFER_BYTES,
) -> CollectivePlan:
    """Plan a collective read with the given options, or the cheapest within the budget."""
    budget = resources.budget
    means = Means(
        resources=resources,
        schedule=_schedule(resources, len(requests)),
        buffer_bytes=buffer_bytes,
        dealing=_known(dealing),
    )
    table = AccessTable(stored.grid, requests)
    _check_parts(requests, stored, means)
    sets = chosen_aggregators(aggregators, len(requests), dealing.disks)
    plans = list(_plans(stored, table, _methods(method), _partitions(means.dealing), sets, means))
    likely = min(plans, key=partial(_rank, budget))
    if means.schedule == "auto" and likely.method == "two-phase" and likely.schedule is None:
        plans.append(_in_steps(likely, means))
    plans.sort(key=lambda plan: plan.seconds)
    best, alternatives = cheapest(plans, attrgetter("price"), budget, "this collective read")
    price = next(each for each in alternatives if each.taken)
    return replace(best, alternatives=alternatives, price=price, budget=budget)


def _rank(budget: int, plan: CollectivePlan) -> tuple[bool, float]:
    """Return a sort key: plans within the budget by seconds, then the others by bytes."""
    excess = plan.peak_bytes > budget
    return excess, plan.peak_bytes if excess else plan.seconds


def _check_parts(requests: Sequence[Axes], stored: Stored, means: Means) -> None:
    """Raise if the parts exceed the budget; only for many chunks, before they are enumerated."""
    if sum(chunks_of(stored.grid, axes) for axes in requests) <= MOST_TASKS:
        return
    parts = [math.prod(lengths(axes)) * stored.itemsize for axes in requests]
    there = Counter[int]()
    for part, worker in zip(parts, spread(len(parts), range(means.resources.workers or 1)), strict=True):
        there[worker] += part
    least = max(there.values())
    if least > means.resources.budget:
        raise BudgetError(means.resources.budget, least, "this collective read")


def _methods(method: str) -> tuple[str, ...]:
    known = get_args(Method)
    chosen(method, "method", ("auto", *known))
    return known if method == "auto" else (method,)


def _known(dealing: Dealing) -> Dealing:
    chosen(dealing.partition, "domains", ("auto", *get_args(Partition)))
    chosen(dealing.deal, "deal", get_args(Deal))
    return dealing


def _partitions(dealing: Dealing) -> tuple[Partition, ...]:
    known: tuple[Partition, ...] = get_args(Partition)
    return known if dealing.partition == "auto" else (dealing.partition,)


def _schedule(resources: Resources, ranks: int) -> Schedule | Literal["auto", "coloring"] | None:
    asked = resources.schedule
    if resources.workers is None or is_unordered(asked):
        return None
    if is_coloring(asked):
        return "coloring"
    return "auto" if is_auto(asked) else Schedule.of(asked, ranks)


def chosen_aggregators(asked: Aggregators, ranks: int, disks: int = 0) -> list[tuple[int, ...]]:
    """Return the candidate sets of aggregators; with measured disks, one set has one rank per disk."""
    if isinstance(asked, str) and asked == "auto":
        counts = {ceil_div(ranks, 2**k) for k in range(ranks.bit_length())} | ({min(disks, ranks)} if disks else set())
        return [spaced(ranks, count) for count in sorted(counts, reverse=True)]
    if isinstance(asked, int) and not isinstance(asked, bool) and 1 <= asked <= ranks:
        return [spaced(ranks, asked)]
    if _are_ranks(asked, ranks):
        return [tuple(asked)]  # type: ignore[arg-type]
    raise InputError(
        f"aggregators={asked!r} is not 'auto', a number from 1 to {ranks}, or distinct ranks below {ranks}"
    )


def _are_ranks(asked: Aggregators, ranks: int) -> bool:
    if not isinstance(asked, Sequence) or isinstance(asked, str) or not asked:
        return False
    return len({*map(repr, asked)}) == len(asked) and all(isinstance(rank, int) and 0 <= rank < ranks for rank in asked)


def _plans(
    stored: Stored,
    table: AccessTable,
    methods: Sequence[str],
    partitions: Sequence[Partition],
    sets: Sequence[tuple[int, ...]],
    means: Means,
) -> Iterator[CollectivePlan]:
    """Yield every candidate plan with its price.

    Smaller sets of aggregators are tried with the first partition only. If requests conform, two-phase plans are tried
    only when the method is "two-phase".
    """
    if "independent" in methods:
        plan = independent(stored, table.requests, workers=means.resources.workers, table=table)
        yield (alone := priced(plan, means))
        if _conforms(alone, means):
            return
    for number, some in enumerate(sets if "two-phase" in methods else []):
        for partition in partitions if number == 0 else partitions[:1]:
            yield _fitted(stored, table, some, partition, means)


def _conforms(alone: CollectivePlan, means: Means) -> bool:
    """Return True if no two ranks want one chunk, and no rank wants far more than its share."""
    even = UNEVEN * ceil_div(sum(alone.chunks_read), alone.ranks)
    return not alone.table.are_shared and max(alone.chunks_read) <= even and alone.peak_bytes <= means.resources.budget


def _fitted(
    stored: Stored, table: AccessTable, aggregators: Sequence[int], partition: Partition, means: Means
) -> CollectivePlan:
    """Return a plan with buffers as large as the budget allows; if none fits, the plan with the least memory.

    The halved sizes do not depend on the budget, and neither does the least memory of their plans.
    """

    def of(buffer_bytes: int) -> CollectivePlan:
        plan = two_phase(
            stored,
            table.requests,
            aggregators=aggregators,
            dealing=replace(means.dealing, partition=partition),
            buffer_bytes=buffer_bytes,
            workers=means.resources.workers,
            table=table,
        )
        return _ordered(plan, means)

    budget, least = means.resources.budget, _least_buffer(stored, table)
    tried = [of(means.buffer_bytes)]
    while tried[-1].peak_bytes > budget and tried[-1].buffer_bytes > least:
        last = tried[-1]
        tried.append(of(max(min(last.buffer_bytes, last.round_bytes) // 2, least)))
    found = min(tried, key=lambda plan: plan.peak_bytes)
    if len(tried) == 1 or found.peak_bytes > budget:
        return found
    more = of(_between(tried[-2], budget, least))
    return more if found.buffer_bytes < more.buffer_bytes and more.peak_bytes <= budget else found


def _between(plan: CollectivePlan, budget: int, least: int) -> int:
    """Return a buffer size, in bytes, with which a plan over the budget should fit."""
    fixed = plan.memory["parts"] + plan.memory["reading"]
    left = max(budget - fixed, 0) / max(plan.peak_bytes - fixed, 1)
    return max(int(plan.round_bytes * left), least)


def _least_buffer(stored: Stored, table: AccessTable) -> int:
    """Return the smallest buffer tried, in bytes: with a smaller one, planning takes longer than the read."""
    wanted = sum(math.prod(lengths(axes)) for axes in table.requests) * stored.itemsize
    return max(LEAST_BUFFER_BYTES, wanted // MOST_ROUNDS)


def _ordered(plan: CollectivePlan, means: Means) -> CollectivePlan:
    """Return the plan with the requested schedule; "auto" sends everything at once, or in steps to fit the budget."""
    if means.schedule == "coloring":
        return _in_steps(plan, means)
    best = priced(replace(plan, schedule=means.schedule if isinstance(means.schedule, Schedule) else None), means)
    if means.schedule != "auto" or best.peak_bytes <= means.resources.budget:
        return best
    return min(best, _in_steps(plan, means), key=lambda each: each.peak_bytes)


def _in_steps(plan: CollectivePlan, means: Means) -> CollectivePlan:
    """Return the plan with a schedule of one partner per step: the cheapest, or a coloring of its messages."""
    sizes = plan.all_sizes.sum(axis=0) * plan.stored.itemsize
    np.fill_diagonal(sizes, 0)
    schedule, _ = Carrier.between_workers(plan.ranks, means.resources.costs).cheapest(sizes, str(means.schedule))
    return priced(replace(plan, schedule=schedule), means)
