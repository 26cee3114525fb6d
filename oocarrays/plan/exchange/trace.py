"""An exchange followed on a network, step by step: who shares links, what each step takes, when each part arrives.

    PEX on a 1 × 4 mesh, 1 KiB a pair            busiest link    predicted     arrives in step    to 0 1 2 3
    step 1   0↔1  2↔3   0━━1──2━━3               1 message         433 µs      from 0             ·  1 2 3
    step 2   0↔2  1↔3   0──1━━2──3               2 messages        518 µs           1             1  ·  3 2
    step 3   0↔3  1↔2   0──1━━2──3               2 messages        518 µs           2             2  3  ·  1

An exchange has one trace, of which its price is the sum, and its picture each step. Thakur 1995, section 4.3.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from oocarrays.plan.exchange.exchange import Exchange
from oocarrays.plan.exchange.network import Network, busiest
from oocarrays.plan.exchange.prediction import LIKELY, QUICK, Carrier, Constants, step_seconds
from oocarrays.plan.exchange.schedule import IDLE, Schedule


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExchangeTrace:
    """The course of an exchange on a network: messages, links and seconds of each step in which something is sent."""

    exchange: Exchange
    """Who sends what to whom, in which order."""
    numbers: np.ndarray
    """The schedule's steps in which something is sent, from 0."""
    messages: int
    """Of all steps."""
    shared: np.ndarray
    """Messages on the busiest link of each such step."""
    seconds: np.ndarray
    """Predicted, of each such step."""
    link_bytes: np.ndarray
    """Bytes on each link of the network, of all steps together."""
    buffer_bytes: int
    """Bytes that a rank holds for others at most."""

    @property
    def total(self) -> float:
        """Seconds of all steps."""
        return float(self.seconds.sum())

    @classmethod
    def of(cls, exchange: Exchange, network: Network, constants: Sequence[Constants]) -> ExchangeTrace:
        """Return an exchange followed on a network whose messages take these constants."""
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
            buffer_bytes=exchange.buffer_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ordered:
    """Exchanges one after the other: what they cost by their schedules."""

    traces: tuple[ExchangeTrace, ...]
    """Of each exchange."""

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        return tuple(trace.exchange.schedule for trace in self.traces)

    @property
    def schedule(self) -> Schedule:
        """The order of the first."""
        return self.schedules[0]

    @property
    def name(self) -> str:
        """The schedules' names, those that follow each other and are alike once."""
        names = [schedule.name for schedule in self.schedules]
        return ", ".join(name for before, name in zip(["", *names], names, strict=False) if name != before)

    @property
    def forwards(self) -> bool:
        """Whether data travels through ranks that it is not for, in any of them."""
        return any(schedule.forwards for schedule in self.schedules)

    @property
    def steps(self) -> int:
        """Those in which something is sent."""
        return sum(len(trace.numbers) for trace in self.traces)

    @property
    def messages(self) -> int:
        """Of all steps; what is forwarded counts each time."""
        return sum(trace.messages for trace in self.traces)

    @property
    def shared(self) -> float:
        """Messages on the busiest link of any step."""
        return max((float(trace.shared.max(initial=0)) for trace in self.traces), default=0.0)

    @property
    def link_bytes(self) -> float:
        """Bytes over the busiest link, of all steps together."""
        return float(sum((trace.link_bytes for trace in self.traces), np.zeros(1)).max())

    @property
    def buffer_bytes(self) -> int:
        """Bytes that a rank holds for others at most."""
        return max((trace.buffer_bytes for trace in self.traces), default=0)

    @property
    def seconds(self) -> float:
        return sum(trace.total for trace in self.traces)


def in_order(
    sizes: Sequence[np.ndarray],
    network: Network,
    constants: Sequence[Constants],
    asked: str | Schedule | None = "auto",
    *,
    most: int = QUICK,
) -> tuple[list[Ordered], list[str]]:
    """Price each schedule that takes the ranks, or the one that is asked for, the cheapest first.

    Names of those that would take long to price are returned beside them.

    Where there are several exchanges and no schedule is the cheapest of each, what it costs that each goes by its own
    cheapest is among them.
    """
    carrier = Carrier(network, tuple(constants))
    orders = [carrier.orders(each, asked, most=most // len(sizes)) for each in sizes]
    traced = [
        {order.name: ExchangeTrace.of(Exchange.of(order, each), network, constants) for order in known}
        for each, (known, _) in zip(sizes, orders, strict=True)
    ]
    everywhere = [name for name in traced[0] if all(name in each for each in traced)]
    priced = [Ordered(traces=tuple(each[name] for each in traced)) for name in everywhere]
    best = Ordered(traces=tuple(min(each.values(), key=attrgetter("total")) for each in traced))
    if len({schedule.name for schedule in best.schedules}) > 1:
        priced.append(best)
    rank = {name: place for place, name in enumerate(LIKELY)}
    priced.sort(key=lambda each: (each.seconds, rank.get(each.name, len(rank))))
    return priced, list(dict.fromkeys(name for _, names in orders for name in names))


class Arrivals(NamedTuple):
    """When the data of each pair of ranks arrives, and over how many messages: ranks × ranks."""

    steps: np.ndarray
    """``steps[source, target]`` is the schedule's step, from 0, in which it arrives; ``IDLE`` of a rank with itself."""
    messages: np.ndarray
    """Messages that it rides in: more than 1 where other ranks send it on."""


def arrivals(schedule: Schedule) -> Arrivals:
    """When each pair's data arrives."""
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
