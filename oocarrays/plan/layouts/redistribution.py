"""Redistributions: plans of the transfers that change an array's layout.

    (block, *) on 2          (*, block) on 2            rank 0 sends to rank 1
    ┌─────────┐              ┌────┬────┐                ┌────┬────┐
    │ 0  0  0 │   ──────►    │ 0  │ 1  │                │    │ ▒▒ │
    ├─────────┤              │ 0  │ 1  │                ├────┼────┤
    │ 1  1  1 │              │ 0  │ 1  │                │    │    │
    └─────────┘              └────┴────┘                └────┴────┘

A `Transfer` is one all-to-all between two layouts; a `Redistribution` is a sequence of one or more transfers. Thakur
1995, chapter 3.

    general   cyclic(11) ─────────────────► cyclic(3)          one transfer
    gcd       cyclic(11) ──► cyclic(1)  ──► cyclic(3)          by way of the block that divides both
    lcm       cyclic(11) ──► cyclic(33) ──► cyclic(3)          by way of the block that both divide
    indirect  one axis after the other; indirect-lcm by way of such a block in each (Figure 3.21)

Thakur 1995, sections 3.3 to 3.6.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from oocarrays.errors import LayoutError
from oocarrays.mapping.layouts.axis import Axis, BlockCyclicAxis
from oocarrays.mapping.layouts.distribution import Cyclic, Distribution
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.plan import shown
from oocarrays.plan.exchange.network import Network
from oocarrays.plan.exchange.prediction import Carrier, regime
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.layouts.assembly import order_of, own_seconds
from oocarrays.plan.layouts.runs import formula
from oocarrays.plan.layouts.transfer import Transfer, TransferWork
from oocarrays.plan.machine import Costs
from oocarrays.plan.memory import Memory, largest
from oocarrays.plan.plan import plural

ONE_AXIS = ("block-to-cyclic", "cyclic-to-block", "ky-to-y", "x-to-kx", "general")
BY_WAY_OF = {"gcd": math.gcd, "lcm": math.lcm}
"""Rules for the intermediate block between two others, such that closed formulas lead to it and from it."""
METHODS = (*ONE_AXIS, *BY_WAY_OF, "direct", "indirect", *(f"indirect-{name}" for name in BY_WAY_OF))
"""All methods, by the thesis's names: for one axis those before "direct", for several those from "gcd"."""


@lru_cache(maxsize=256)
def ways_between(source: Layout, target: Layout) -> dict[str, list[tuple[Transfer, ...]]]:
    """Return the applicable methods with their transfers; formulas come before cutting, which finds the same runs.

    A method with an intermediate block may use the grid of the source or that of the target.
    """
    whole: tuple[Transfer, ...] = (Transfer(source, target),)
    changed = [axis for axis, (s, t) in enumerate(zip(source.axes, target.axes, strict=True)) if s != t]
    between = {name: _between(source, target, changed, rule) for name, rule in BY_WAY_OF.items()}
    ways = {name: [_by_way_of(source, target, [each]) for each in found] for name, found in between.items() if found}
    if len(changed) > 1:
        ways = {"direct": [whole]} | ways
        if source.grid == target.grid:
            ways["indirect"] = [_axis_after_axis(source, target, changed)]
            for name, rule in BY_WAY_OF.items():
                if name in ways:
                    ways[f"indirect-{name}"] = [_axis_after_axis(source, target, changed, rule)]
        return ways
    names = [formula(source.axes[axis], target.axes[axis]) for axis in changed]
    first = {name: [whole] for name in names if name}
    return first | {"general": [whole if changed else ()]} | ways


def _between(source: Layout, target: Layout, axes: list[int], rule: Callable[[int, int], int]) -> list[Layout]:
    """Return the intermediate layouts for the axes without a closed formula; empty if none applies."""
    blocks = {axis: _block_between(source.axes[axis], target.axes[axis], rule) for axis in axes}
    known = {axis: block for axis, block in blocks.items() if block is not None}
    found = []
    for side in dict.fromkeys([source, target] if source.grid != target.grid else [source]):
        layout = side
        for axis, block in known.items():
            layout = _with(layout, axis, Cyclic(block))
        found += [layout] if known and layout not in (source, target) else []
    return found


def _block_between(s: Axis, t: Axis, rule: Callable[[int, int], int]) -> int | None:
    """Return the intermediate block of two block-cyclic axes over several ranks each; None if it is one of theirs."""
    if not (isinstance(s, BlockCyclicAxis) and isinstance(t, BlockCyclicAxis)) or 1 in (s.ranks, t.ranks):
        return None
    block = rule(s.block, t.block)
    direct = s.ranks == t.ranks and formula(s, t) is not None
    return None if direct or block in (s.block, t.block) else block


def _axis_after_axis(
    source: Layout, target: Layout, changed: list[int], rule: Callable[[int, int], int] | None = None
) -> tuple[Transfer, ...]:
    """Return transfers that change one axis after the other, at equal cost in any order (Thakur 1995, 3.6.1)."""
    between = [source]
    for axis in changed:
        block = rule and _block_between(source.axes[axis], target.axes[axis], rule)
        if block:
            between.append(_with(between[-1], axis, Cyclic(block)))
        between.append(_with(between[-1], axis, target.distributions[axis]))
    return _by_way_of(source, target, between[1:-1])


def _by_way_of(source: Layout, target: Layout, between: list[Layout]) -> tuple[Transfer, ...]:
    return tuple(Transfer(*pair) for pair in pairwise([source, *between, target]))


def _with(layout: Layout, axis: int, distribution: Distribution) -> Layout:
    distributions = (*layout.distributions[:axis], distribution, *layout.distributions[axis + 1 :])
    return replace(layout, distributions=distributions)


__all__ = ["METHODS", "Price", "Redistribution", "Transfer", "plan_redistribution"]

MOST_RANKS = 2048
"""Maximum number of ranks for pricing by schedules; beyond it, the busiest rank's messages are priced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Cost of a method, over all ranks except for steps and seconds."""

    method: str
    """Name of the method: one of ``METHODS``."""
    transfers: int
    """Number of consecutive all-to-alls."""
    steps: int
    """Number of consecutive messages that the busiest rank sends, or receives."""
    messages: int
    """Number of messages between different ranks."""
    moved_bytes: int
    """Bytes of messages between different ranks."""
    copied_elements: int
    """Number of elements copied into messages and out of them."""
    pieces: int
    """Number of contiguous pieces of local arrays in those copies."""
    seconds: float
    """Predicted seconds: the fastest schedule on the network that carries the messages, plus a rank's own copies."""
    schedules: tuple[str, ...] = ()
    """Schedule of each transfer in the prediction; empty on threads, or for too many ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redistribution:
    """Plan of a change of layout: one transfer, or several in sequence.

    >>> plan = plan_redistribution(*(Layout.of((960,), f"cyclic({m})", ranks=4) for m in (15, 10)), itemsize=4)
    >>> plan
    <Redistribution (cyclic(15)) on 4 → (cyclic(10)) on 4: general, 1 transfer, 12 messages, 2880 bytes>
    >>> sorted(price.method for price in plan.offers)
    ['gcd', 'general', 'lcm']
    """

    source: Layout
    """Layout before."""
    target: Layout
    """Layout after."""
    transfers: tuple[Transfer, ...]
    """Transfers from the source's layout to the target's, in sequence; empty if no element moves."""
    itemsize: int
    """Bytes of an element."""
    price: Price
    """Cost of the chosen method."""
    offers: tuple[Price, ...] = field(repr=False)
    """Costs of all applicable methods, the cheapest first."""
    costs: Costs = field(default_factory=Costs, repr=False, compare=False)
    """Machine costs used for the prices."""
    carrier: Carrier | None = field(default=None, repr=False, compare=False)
    """Network and constants of the messages; None on threads, which send none."""

    @property
    def method(self) -> str:
        """Name of the method: one of ``METHODS``."""
        return self.price.method

    @property
    def stored_bytes(self) -> int:
        """Bytes of the runs that are computed once and reused for the way back (Thakur 1995, 3.7)."""
        return sum(runs.nbytes for transfer in self.transfers for runs in transfer.axes)

    def sizes(self) -> tuple[np.ndarray, ...]:
        """Return one matrix per transfer, of the elements that each rank sends to each."""
        return tuple(transfer.sizes() for transfer in self.transfers)

    def peak_bytes(self, rank: int | None = None, *, buffers: int = 0) -> int:
        """Return the peak memory, in bytes, of ``rank``, or of the rank with the most.

        In a transfer this covers the array before, the array after, and all messages to and from other ranks; elements
        that stay at a rank need no message.

        Parameters
        ----------
        buffers : int
            Additional bytes of a schedule that forwards data: L · P / 2 for REX, L · r for IPEX, with messages of L
            bytes (Thakur 1995, 4.2.3 and 4.2.4).
        """
        return self.memory(rank).nbytes + buffers

    def memory(self, rank: int | None = None) -> Memory:
        """Return the peak memory of ``rank``, or of the rank with the most: see `peak_bytes`."""
        chosen = slice(None) if rank is None else slice(rank, rank + 1)
        if not self.transfers:
            return (
                Memory.of(parts=int(Transfer(self.source, self.target).work.held[chosen].max(initial=0)))
                * self.itemsize
            )
        return largest(*(_held(transfer.work, chosen) for transfer in self.transfers)) * self.itemsize

    def reversed(self) -> Redistribution:
        """Return the plan of the way back, with the same transfers reversed; it reuses the computed runs."""
        transfers = tuple(transfer.reversed() for transfer in reversed(self.transfers))
        return replace(
            self,
            source=self.target,
            target=self.source,
            transfers=transfers,
            price=_reversed(self.price),
            offers=tuple(map(_reversed, self.offers)),
        )

    def explain(self) -> str:
        """Return a description of the cost, of the other methods' costs, and of the stored runs, as lines of text."""
        shape = " × ".join(map(str, self.source.shape)) or "1"
        by_way_of = ", then ".join(str(transfer.target) for transfer in self.transfers[:-1])
        return "\n".join(
            [
                f"{shape} elements of {self.itemsize} bytes: {self.source} → {self.target}",
                "",
                *_table([_HEAD, *(_row(offer, offer.method == self.method) for offer in self.offers)]),
                "",
                *([f"by way of {by_way_of}"] if by_way_of else []),
                f"a rank has {_amount(self.peak_bytes())} in memory at most: its parts, and all its messages",
                f"{_amount(self.stored_bytes)} of runs are kept, and serve for the way back",
            ]
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to a file for `oocarrays.load_plan`; ``x.redistribute(plan)`` runs the loaded plan.

        Raises
        ------
        InputError
            If the file cannot be written.
        """
        shown.by("save redistributions")(self, path)

    def draw(self, network: Network | str | None = None, schedule: str | None = None) -> Any:
        """Return a figure of the messages by step, the load of links, and the seconds of each step.

        Parameters
        ----------
        network : Network or str
            Network of the messages, such as ``"mesh:8x8"``; by default a flat cluster with the plan's number of ranks.
        schedule : str
            Schedule of messages; by default the one with the least predicted seconds.

        Returns
        -------
        matplotlib.figure.Figure
            Figure with axes for messages, links and steps of each transfer, in this order.

        Raises
        ------
        UnsupportedError
            If matplotlib is not installed.
        ScheduleError
            If the network or schedule is unknown, or does not support this number of ranks.
        """
        return shown.by("draw exchanges")(self, network=network, schedule=schedule)

    def __repr__(self) -> str:
        price = self.price
        return (
            f"<Redistribution {self.source} → {self.target}: {self.method}, {plural(price.transfers, 'transfer')}, "
            f"{plural(price.messages, 'message')}, {price.moved_bytes} bytes>"
        )


def plan_redistribution(
    source: Layout,
    target: Layout,
    itemsize: int = 8,
    method: str = "auto",
    *,
    costs: Costs | None = None,
    carrier: Carrier | None = None,
    schedule: str | Schedule | None = "auto",
) -> Redistribution:
    """Return the plan of a change of layout, by the requested method or the cheapest."""
    costs = costs or Costs()
    ways = ways_between(source, target)
    if carrier is None and any(costs.exchange.values()):
        carrier = Carrier.between_workers(max(source.ranks, target.ranks), costs)
    way = _Pricing(itemsize=itemsize, costs=costs, carrier=carrier, schedule=schedule)
    priced = {
        name: min(((way.price(name, transfers), transfers) for transfers in each), key=lambda both: both[0].seconds)
        for name, each in ways.items()
    }
    offers = sorted((price for price, _ in priced.values()), key=lambda price: price.seconds)
    if not isinstance(method, str):
        raise LayoutError(f"method={method!r} is unknown: {', '.join(ways)}, or auto")
    if method != "auto" and method not in ways:
        what = f"does not apply to {source} → {target}" if method in METHODS else "is unknown"
        raise LayoutError(f"method={method!r} {what}: {', '.join(ways)} {'does' if len(ways) == 1 else 'do'}, or auto")
    chosen = next(offer for offer in offers if method in ("auto", offer.method))
    return Redistribution(
        source=source,
        target=target,
        transfers=tuple(transfer.holding() for transfer in priced[chosen.method][1]),
        itemsize=itemsize,
        price=chosen,
        offers=tuple(offers),
        costs=costs,
        carrier=carrier,
    )


def _held(work: TransferWork, chosen: slice) -> Memory:
    """Return the memory, in elements, of the rank that holds most: parts before and after, and messages."""
    parts, messages = (work.held + work.due)[chosen], (work.held + work.due - 2 * work.kept)[chosen]
    if not len(parts):
        return Memory()
    most = int((parts + messages).argmax())
    return Memory.of(parts=int(parts[most]), messages=int(messages[most]))


def _reversed(price: Price) -> Price:
    return replace(price, method=_REVERSED.get(price.method, price.method), schedules=price.schedules[::-1])


_REVERSED = {"block-to-cyclic": "cyclic-to-block", "ky-to-y": "x-to-kx"}
_REVERSED |= {back: forth for forth, back in _REVERSED.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pricing:
    """Parameters by which methods are priced."""

    itemsize: int
    """Bytes of an element."""
    costs: Costs
    """Machine costs of a rank's own copies."""
    carrier: Carrier | None
    """Network and constants of the messages; None on threads."""
    schedule: str | Schedule | None
    """Schedule of the messages, or "auto"."""

    def price(self, method: str, transfers: tuple[Transfer, ...]) -> Price:
        works = [transfer.work for transfer in transfers]
        steps = [int(max(work.sends.max(initial=0), work.receives.max(initial=0))) for work in works]
        carried = [self._carried(transfer, many) for transfer, many in zip(transfers, steps, strict=True)]
        messages = self.carrier is not None
        own = [own_seconds(transfer, self.itemsize, self.costs, messages=messages) for transfer in transfers]
        return Price(
            method=method,
            transfers=len(transfers),
            steps=sum(steps),
            messages=sum(int(work.sends.sum()) for work in works),
            moved_bytes=sum(work.moved for work in works) * self.itemsize,
            copied_elements=sum(int((work.held + work.due).sum()) for work in works),
            pieces=sum(int(work.pieces.sum()) for work in works),
            seconds=math.fsum([*own, *(seconds for _, seconds in carried)]),
            schedules=tuple(name for name, _ in carried if name),
        )

    def _carried(self, transfer: Transfer, steps: int) -> tuple[str, float]:
        """Return the schedule of a transfer, and its seconds."""
        if self.carrier is None or not steps:
            return "", 0.0
        ranks = max(transfer.source.ranks, transfer.target.ranks)
        if ranks <= MOST_RANKS:
            schedule, seconds = order_of(transfer, self.itemsize, self.carrier, self.schedule)
            return schedule.name, seconds
        work, known = transfer.work, regime(self.carrier.constants, self.itemsize)
        sent = max(int((work.held - work.kept).max(initial=0)), int((work.due - work.kept).max(initial=0)))
        return "", steps * known.startup + sent * self.itemsize * known.exchange


_HEAD = ("method", "transfers", "steps", "messages", "sent", "elements copied", "in pieces", "seconds")


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    """Return the rows as lines of aligned columns, the first column left-aligned."""
    first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
    places = [f"<{first}", *(f">{width}" for width in others)]
    return ["  ".join(map(format, row, places)) for row in rows]


def _row(offer: Price, chosen: bool) -> tuple[str, ...]:
    numbers = offer.transfers, offer.steps, offer.messages, _amount(offer.moved_bytes), offer.copied_elements
    return (f"{offer.method}{' ◄' * chosen}", *map(str, numbers), str(offer.pieces), f"{offer.seconds:.3g}")


def _amount(nbytes: int) -> str:
    """Return bytes in Dask's format."""
    power = next((power for power in (4, 3, 2, 1) if nbytes >= 0.9 * 1024**power), 0)
    return f"{nbytes / 1024**power:.2f} {'kMGT'[power - 1]}iB" if power else f"{nbytes} B"
