"""Trace of an exchange on a network: shared links and seconds of each step, and arrival of each part.

    PEX on a 1 × 4 mesh, 1 KiB a pair            busiest link    predicted     arrives in step    to 0 1 2 3
    step 1   0↔1  2↔3   0━━1──2━━3               1 message         433 µs      from 0             ·  1 2 3
    step 2   0↔2  1↔3   0──1━━2──3               2 messages        518 µs           1             1  ·  3 2
    step 3   0↔3  1↔2   0──1━━2──3               2 messages        518 µs           2             2  3  ·  1

An exchange's price is the sum over its trace, and its drawing shows each step. Thakur 1995, section 4.3.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from oocarrays.plan.exchange.network import Network, busiest
from oocarrays.plan.exchange.ordering import Exchange
from oocarrays.plan.exchange.prediction import LIKELY, QUICK, Carrier, Constants, step_seconds
from oocarrays.plan.exchange.schedule import IDLE, Schedule


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExchangeTrace:
    """Trace of an exchange on a network: messages, links and seconds of each nonempty step."""

    exchange: Exchange
    numbers: np.ndarray
    """Indices of the schedule's nonempty steps, from 0."""
    messages: int
    shared: np.ndarray
    """Number of messages on the busiest link, per nonempty step."""
    seconds: np.ndarray
    """Predicted seconds, per nonempty step."""
    link_bytes: np.ndarray
    """Bytes on each link of the network, over all steps."""

    @classmethod
    def of(cls, exchange: Exchange, network: Network, constants: Sequence[Constants]) -> ExchangeTrace:
        nobody = np.zeros(0, np.int64)
        link_bytes = network.loads(nobody, nobody, nobody)
        numbers, shared, seconds, messages = [], [], [], 0
        for turn in exchange:
            sources = turn.step.senders
            destinations = turn.step.destinations[sources]
            numbers.append(turn.number)
            messages += len(sources)
            shared.append(busiest(network, sources, destinations))
            seconds.append(step_seconds(turn, network, constants))
            link_bytes = link_bytes + network.loads(sources, destinations, turn.sizes)
        return cls(
            exchange=exchange,
            numbers=np.array(numbers, np.int64),
            messages=messages,
            shared=np.array(shared, float),
            seconds=np.array(seconds, float),
            link_bytes=link_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ordered:
    """Sequence of exchanges with their costs."""

    traces: tuple[ExchangeTrace, ...]

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        return tuple(trace.exchange.schedule for trace in self.traces)

    @property
    def name(self) -> str:
        """Names of the schedules, with consecutive repetitions merged."""
        names = [schedule.name for schedule in self.schedules]
        return ", ".join(name for before, name in zip(["", *names], names, strict=False) if name != before)

    @property
    def steps(self) -> int:
        return sum(len(trace.numbers) for trace in self.traces)

    @property
    def messages(self) -> int:
        """Number of messages of all steps, forwarded messages included."""
        return sum(trace.messages for trace in self.traces)

    @property
    def seconds(self) -> float:
        return sum(float(trace.seconds.sum()) for trace in self.traces)


def in_order(
    sizes: Sequence[np.ndarray],
    network: Network,
    constants: Sequence[Constants],
    asked: str | Schedule | None = "auto",
    *,
    most: int = QUICK,
) -> tuple[list[Ordered], list[str]]:
    """Return the schedules of the ranks, or the requested one, the cheapest first, and the names of unpriced ones.

    If no schedule is the cheapest for every exchange, the combination of each exchange's cheapest is another one.
    """
    carrier = Carrier(network, tuple(constants))
    orders = [carrier.orders(each, asked, most=most // len(sizes)) for each in sizes]
    traced = [
        {order.name: ExchangeTrace.of(Exchange.of(order, each), network, constants) for order in known}
        for each, (known, _) in zip(sizes, orders, strict=True)
    ]
    everywhere = [name for name in traced[0] if all(name in each for each in traced)]
    priced = [Ordered(traces=tuple(each[name] for each in traced)) for name in everywhere]
    best = Ordered(traces=tuple(min(each.values(), key=lambda trace: trace.seconds.sum()) for each in traced))
    if len({schedule.name for schedule in best.schedules}) > 1:
        priced.append(best)
    rank = {name: place for place, name in enumerate(LIKELY)}
    priced.sort(key=lambda each: (each.seconds, rank.get(each.name, len(rank))))
    return priced, list(dict.fromkeys(name for _, names in orders for name in names))


class Arrivals(NamedTuple):
    """Arrival step of the data of each pair of ranks, and the number of messages that carry it: ranks × ranks."""

    steps: np.ndarray
    """``steps[source, target]`` is the arrival step in the schedule, from 0; ``IDLE`` for a rank with itself."""
    messages: np.ndarray
    """Number of messages that carry the data: more than 1 if other ranks forward it."""


def arrivals(schedule: Schedule) -> Arrivals:
    ranks = np.arange(schedule.ranks)
    steps = np.full((schedule.ranks, schedule.ranks), IDLE)
    messages = np.where(ranks[:, None] == ranks, 0, 1)
    match schedule.name:
        case "REX":
            differ = ranks[:, None] ^ ranks
            messages[...] = np.bitwise_count(differ)
            for number, bit in enumerate(schedule.halved_bits):
                steps[differ >> bit & 1 == 1] = number
        case "IPEX":
            for number in range(len(schedule)):
                leg = schedule.leg(number)
                to = ranks ^ leg.forwarded ^ leg.turn
                steps[ranks, to] = number
                messages[ranks, to] = 2 if leg.forwarded else 1
        case _:
            for number, step in enumerate(schedule):
                steps[step.senders, step.destinations[step.senders]] = number
    return Arrivals(steps, messages)
