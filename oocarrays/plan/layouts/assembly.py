"""Memory of one rank during an exchange: its old part, its new part, and messages.

    synchronous     part │ message ►   ► message message message │ part      assembled when all have arrived
    asynchronous    part │ message ►                   ► message │ part      each unpacked on arrival
    between threads part │                                       │ part      no messages

A rank sends one message in a step and receives one; forwarded data (REX, IPEX) is held until it is sent. Thakur 1995,
section 3.4 (the two methods), section 4.2.2 (the buffers of REX).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, Literal, get_args

import numpy as np

from oocarrays.mapping.given import chosen
from oocarrays.plan.exchange.ordering import CREDIT, Exchange
from oocarrays.plan.exchange.prediction import Carrier, exchange_seconds, square
from oocarrays.plan.exchange.schedule import Schedule, complete_exchange, is_auto, is_coloring, is_unordered
from oocarrays.plan.layouts.transfer import Transfer
from oocarrays.plan.machine import Costs
from oocarrays.plan.plan import Holding, Memory

Assembly = Literal["synchronous", "asynchronous"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Messaging:
    """Messaging of a redistribution's transfers: schedules and assembly."""

    schedules: tuple[Schedule | None, ...]
    """Schedule of each transfer, over all ranks before or after it; None on threads."""
    assembly: Assembly
    """Assembly: messages are unpacked on arrival (asynchronous), or when all have arrived (synchronous)."""
    ordered: bool
    """True if a step waits for the one before; otherwise a rank may pack all its messages at once."""

    @classmethod
    def of(
        cls,
        transfers: Sequence[Transfer],
        itemsize: int,
        *,
        schedule: str | Schedule,
        assembly: str,
        costs: Costs | None,
    ) -> Messaging:
        assembly = chosen(assembly, "assembly", get_args(Assembly))
        direct = assembly == "asynchronous"
        known = tuple(_schedule(schedule, transfer, itemsize, costs, direct) for transfer in transfers)
        return cls(
            schedules=known if costs else tuple(None for _ in known),
            assembly=assembly,  # type: ignore[arg-type]
            ordered=not is_unordered(schedule),
        )

    def seconds(self, transfers: Sequence[Transfer], itemsize: int, costs: Costs) -> float:
        each = list(zip(transfers, self.schedules, strict=True))
        own = sum(crowded_seconds(t, itemsize, costs, messages=schedule is not None) for t, schedule in each)
        steps = sum(exchange_seconds(order, t.sizes() * itemsize, costs) for t, order in each if order is not None)
        return own + steps + (costs.graph_seconds if any(self.schedules) else 0.0)

    def held(self, transfers: Sequence[Transfer]) -> int:
        """Return the maximum number of elements that one rank holds at any time in consecutive transfers."""
        each = zip(transfers, self.schedules, strict=True)
        held = (held_elements(t, schedule, self.assembly, ordered=self.ordered).max() for t, schedule in each)
        return max(map(int, held), default=0)


def own_seconds(transfer: Transfer, itemsize: int, costs: Costs, *, messages: bool = True) -> float:
    """Return the seconds in which a rank on its own core copies the elements it keeps, or on threads its new part."""
    work = transfer.work
    copied = int((work.kept if messages else work.due).max(initial=0)) * itemsize
    pieces = int(work.pieces.max(initial=0)) * costs.element_seconds
    return copied / costs.copy_bandwidth + copied / costs.touch_bandwidth + pieces


def crowded_seconds(transfer: Transfer, itemsize: int, costs: Costs, *, messages: bool = True) -> float:
    """Return the seconds of the ranks' own copies if ranks share the available cores."""
    ranks = max(transfer.source.ranks, transfer.target.ranks)
    return max(ranks / costs.cores, 1) * own_seconds(transfer, itemsize, costs, messages=messages)


@lru_cache(maxsize=256)
def order_of(
    transfer: Transfer, itemsize: int, carrier: Carrier, asked: str | Schedule | None = "auto"
) -> tuple[Schedule, float]:
    """Return the schedule of a transfer, as requested or with the least predicted seconds, and the seconds."""
    return carrier.cheapest(square(transfer.sizes()) * itemsize, asked)


def _schedule(asked: str | Schedule, transfer: Transfer, itemsize: int, costs: Costs | None, direct: bool) -> Schedule:
    ranks = max(transfer.source.ranks, transfer.target.ranks)
    if is_unordered(asked) or (costs is None and is_auto(asked)):
        return complete_exchange(ranks)
    if not (is_auto(asked) or is_coloring(asked)):
        return Schedule.of(asked, ranks)
    carrier = Carrier.between_workers(ranks, costs or Costs(), direct=direct)
    return order_of(transfer, itemsize, carrier, asked)[0]


def held_elements(
    transfer: Transfer, schedule: Schedule | None = None, assembly: Assembly = "synchronous", *, ordered: bool = True
) -> np.ndarray:
    """Return the maximum number of elements that each rank holds at any time in a transfer."""
    sizes = square(transfer.sizes())
    parts: np.ndarray = sizes.sum(axis=1) + sizes.sum(axis=0)
    if schedule:
        parts += held_messages(sizes, schedule, assembly, ordered=ordered)
    return parts


def held_messages(
    sizes: np.ndarray, schedule: Schedule, assembly: Assembly = "asynchronous", *, ordered: bool = True
) -> np.ndarray:
    """Return the maximum number of elements that each rank holds in messages at any time in an exchange."""
    sizes = sizes * (1 - np.eye(len(sizes), dtype=np.int64))
    if is_together(schedule, assembly):
        goes, comes = np.sort(sizes, axis=1)[:, -CREDIT:], np.sort(sizes, axis=0)[-CREDIT:]
        return goes.sum(axis=1) + comes.sum(axis=0)
    out, largest = _messages(sizes, schedule)
    messages: np.ndarray = out if ordered else sizes.sum(axis=1)
    messages = messages + (sizes.sum(axis=0) if assembly == "synchronous" else largest)
    if schedule.forwards:
        messages += _carried(sizes, schedule)
    return messages


def is_together(schedule: Schedule | None, assembly: Assembly) -> bool:
    """Return True if one task per rank receives from all others in the order of arrival."""
    return schedule is not None and assembly == "asynchronous" and schedule.ranks > 1 and not schedule.forwards


def _messages(sizes: np.ndarray, schedule: Schedule) -> tuple[np.ndarray, np.ndarray]:
    """Return the maximum elements that each rank sends in a step, and the maximum that it receives in one."""
    out, largest = np.zeros(schedule.ranks, np.int64), np.zeros(schedule.ranks, np.int64)
    for turn in Exchange.of(schedule, sizes):
        came = np.zeros_like(largest)
        np.add.at(came, turn.step.destinations[turn.step.senders], turn.sizes)
        out, largest = np.maximum(out, turn.sent), np.maximum(largest, came)
    return out, largest


def _carried(sizes: np.ndarray, schedule: Schedule) -> np.ndarray:
    """Return the maximum number of elements that each rank holds for others after a step."""
    load, most = np.zeros(schedule.ranks, np.int64), np.zeros(schedule.ranks, np.int64)
    for number, step in enumerate(schedule):
        for source, target in step.pairs:
            ride = schedule.ride(number, source)
            rides = sizes[np.ix_(ride.origins, ride.finals)]
            load[source] -= rides[ride.origins != source].sum()
            load[target] += rides[:, ride.finals != target].sum()
        most = np.maximum(most, load)
    return most


def fullest(**held: np.ndarray) -> Memory:
    """Return the memory of the rank that holds most, from an array over ranks for each term."""
    terms = {name: np.asarray(each) for name, each in held.items()}
    most = int(sum(terms.values(), np.zeros(1)).argmax())
    return Memory.of(**{name: int(each[most]) for name, each in terms.items()})


@dataclass(frozen=True, eq=False, kw_only=True)
class RankExchange(Holding):
    """Base of plans of one exchange, in which each rank makes an array of pieces of all ranks' parts."""

    itemsize: int
    schedule: Schedule | None = None
    """Schedule of messages between workers; None on threads, which send none."""
    made: ClassVar[str]
    """Name of the ranks' new arrays among the terms of memory."""

    @property
    @abstractmethod
    def held(self) -> np.ndarray:
        """Number of elements of each rank's part."""

    @abstractmethod
    def shape(self, rank: int) -> tuple[int, ...]:
        """Return the shape of a rank's new array."""

    @abstractmethod
    def sizes(self) -> np.ndarray:
        """Return a matrix of the elements that each rank sends to each, itself included."""

    @property
    def ranks(self) -> int:
        return len(self.held)

    @cached_property
    def between(self) -> np.ndarray:
        sizes = self.sizes() * self.itemsize
        np.fill_diagonal(sizes, 0)
        return sizes

    @property
    def messages(self) -> int:
        return int(np.count_nonzero(self.between))

    @property
    def sent_bytes(self) -> int:
        return int(self.between.sum())

    @property
    def memory(self) -> Memory:
        """Peak memory of the rank that holds most: its part, its new array, and messages."""
        made = np.array([math.prod(self.shape(rank)) for rank in range(self.ranks)], np.int64) * self.itemsize
        messages = np.zeros_like(made) if self.schedule is None else held_messages(self.between, self.schedule)
        return fullest(part=self.held * self.itemsize, **{self.made: made}, messages=messages)

    @property
    def order(self) -> str:
        return self.schedule.name if self.schedule else "no order"
