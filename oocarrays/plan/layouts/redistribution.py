"""Redistributions: who sends which sections to whom when an array's layout changes, and in how many transfers.

    (block, *) on 2          (*, block) on 2            rank 0 sends to rank 1
    ┌─────────┐              ┌────┬────┐                ┌────┬────┐
    │ 0  0  0 │   ──────►    │ 0  │ 1  │                │    │ ▒▒ │
    ├─────────┤              │ 0  │ 1  │                ├────┼────┤
    │ 1  1  1 │              │ 0  │ 1  │                │    │    │
    └─────────┘              └────┴────┘                └────┴────┘

A `Transfer` is one all-to-all between two layouts; a `Redistribution` is one of them, or several one after the other.
Thakur 1995, chapter 3.

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
"""The block by way of which two others are reached, both by closed formulas."""
METHODS = (*ONE_AXIS, *BY_WAY_OF, "direct", "indirect", *(f"indirect-{name}" for name in BY_WAY_OF))
"""Every way to redistribute, by the thesis's names: of one axis those before "direct", of several those from "gcd"."""


@lru_cache(maxsize=256)
def ways_between(source: Layout, target: Layout) -> dict[str, list[tuple[Transfer, ...]]]:
    """Every method that applies, its transfers; the thesis's formula before cutting, which finds the same runs.

    A method that goes by way of another block may do so on the ranks that are there before, or on those afterwards.
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
    """Return the layouts by way of which axes change that no closed formula changes; none where there are no such."""
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
    """Return the block between two block-cyclic axes over several ranks each, if it is neither of theirs."""
    if not (isinstance(s, BlockCyclicAxis) and isinstance(t, BlockCyclicAxis)) or 1 in (s.ranks, t.ranks):
        return None
    block = rule(s.block, t.block)
    direct = s.ranks == t.ranks and formula(s, t) is not None
    return None if direct or block in (s.block, t.block) else block


def _axis_after_axis(
    source: Layout, target: Layout, changed: list[int], rule: Callable[[int, int], int] | None = None
) -> tuple[Transfer, ...]:
    """The first axis first: the order makes no difference to what it costs (Thakur 1995, 3.6.1)."""
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
"""Ranks up to which methods are priced by their schedules; beyond, by the messages of the busiest rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The cost of a method, all ranks together but for steps and seconds."""

    method: str
    """One of ``METHODS``."""
    transfers: int
    """All-to-alls, one after the other."""
    steps: int
    """Messages that the busiest rank sends, or receives, one after the other."""
    messages: int
    """Between different ranks."""
    moved_bytes: int
    """Bytes of those."""
    copied_elements: int
    """Elements copied, into messages and out of them."""
    pieces: int
    """Contiguous pieces of local arrays that those copies are of."""
    seconds: float
    """Predicted: by the schedule of least predicted time on the network that carries them, and a rank's own copies."""
    schedules: tuple[str, ...] = ()
    """The schedule of each transfer by which they are; none where ranks are threads, or too many to look at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redistribution:
    """A change of layout, planned: one transfer, or several one after the other.

    >>> plan = plan_redistribution(*(Layout.of((960,), f"cyclic({m})", ranks=4) for m in (15, 10)), itemsize=4)
    >>> plan
    <Redistribution (cyclic(15)) on 4 → (cyclic(10)) on 4: general, 1 transfer, 12 messages, 2880 bytes>
    >>> sorted(price.method for price in plan.offers)
    ['gcd', 'general', 'lcm']
    """

    source: Layout
    """Who holds what before."""
    target: Layout
    """Who holds what afterwards."""
    transfers: tuple[Transfer, ...]
    """From the source's layout to the target's, one after the other; none where nothing has to move."""
    itemsize: int
    """Bytes of an element."""
    price: Price
    """What the chosen method costs."""
    offers: tuple[Price, ...] = field(repr=False)
    """What every method that applies costs, the cheapest first."""
    costs: Costs = field(default_factory=Costs, repr=False, compare=False)
    """What the prices were made with."""
    carrier: Carrier | None = field(default=None, repr=False, compare=False)
    """What carries its messages; None where there are none, between threads."""

    @property
    def method(self) -> str:
        """One of ``METHODS``."""
        return self.price.method

    @property
    def stored_bytes(self) -> int:
        """Bytes of what is computed once, and kept for the way back too (Thakur 1995, 3.7)."""
        return sum(runs.nbytes for transfer in self.transfers for runs in transfer.axes)

    def sizes(self) -> tuple[np.ndarray, ...]:
        """Elements that each rank sends to each: a matrix a transfer."""
        return tuple(transfer.sizes() for transfer in self.transfers)

    def peak_bytes(self, rank: int | None = None, *, buffers: int = 0) -> int:
        """Bytes that ``rank``, or the rank with the most, has in memory at one time at most.

        In a transfer these are its array before, its array afterwards, and every message to and from others; what
        stays with a rank needs no message.

        Parameters
        ----------
        buffers : int
            Bytes that a schedule needs beside, where it forwards data: L · P / 2 for REX, L · r for IPEX, with
            messages of L bytes (Thakur 1995, 4.2.3 and 4.2.4).
        """
        return self.memory(rank).nbytes + buffers

    def memory(self, rank: int | None = None) -> Memory:
        """Say what ``rank``, or the rank with the most, holds at one time at most: see `peak_bytes`."""
        chosen = slice(None) if rank is None else slice(rank, rank + 1)
        if not self.transfers:
            return (
                Memory.of(parts=int(Transfer(self.source, self.target).work.held[chosen].max(initial=0)))
                * self.itemsize
            )
        return largest(*(_held(transfer.work, chosen) for transfer in self.transfers)) * self.itemsize

    def reversed(self) -> Redistribution:
        """Return the way back by the same transfers, with their sides swapped: it uses what this one has computed."""
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
        """Describe what it costs, what the other methods would, and what is kept: lines for whoever decides."""
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
        """Write the plan to a file, from which `oocarrays.load_plan` makes it again: ``x.redistribute(plan)`` runs it.

        Raises
        ------
        InputError
            Where nothing can be written there.
        """
        shown.by("save redistributions")(self, path)

    def draw(self, network: Network | str | None = None, schedule: str | None = None) -> Any:
        """Return the plan as a picture: which message goes in which step, what links carry, what each step takes.

        Parameters
        ----------
        network : Network or str
            What carries messages, such as ``"mesh:8x8"``; by default a flat cluster of as many ranks.
        schedule : str
            The order of messages; by default the one of least predicted time.

        Returns
        -------
        matplotlib.figure.Figure
            With axes for messages, links and steps of each transfer, in this order.

        Raises
        ------
        UnsupportedError
            Where matplotlib is not installed.
        ScheduleError
            Where there is no such network or schedule, or it does not take this number of ranks.
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
    """Return how to change a layout: by the method that is asked for, or by the cheapest."""
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
    """Elements in a transfer of the one of some ranks that holds most: before, afterwards, and messages each way."""
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
    """Terms by which methods are priced."""

    itemsize: int
    """Bytes of an element."""
    costs: Costs
    """What a rank takes for its own copies."""
    carrier: Carrier | None
    """What carries messages; None where there are none."""
    schedule: str | Schedule | None
    """Their order, or "auto"."""

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
    """Lines of columns, the first one's words to the left."""
    first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
    places = [f"<{first}", *(f">{width}" for width in others)]
    return ["  ".join(map(format, row, places)) for row in rows]


def _row(offer: Price, chosen: bool) -> tuple[str, ...]:
    numbers = offer.transfers, offer.steps, offer.messages, _amount(offer.moved_bytes), offer.copied_elements
    return (f"{offer.method}{' ◄' * chosen}", *map(str, numbers), str(offer.pieces), f"{offer.seconds:.3g}")


def _amount(nbytes: int) -> str:
    """Bytes as Dask writes them."""
    power = next((power for power in (4, 3, 2, 1) if nbytes >= 0.9 * 1024**power), 0)
    return f"{nbytes / 1024**power:.2f} {'kMGT'[power - 1]}iB" if power else f"{nbytes} B"
