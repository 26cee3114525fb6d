"""Redistributions: plans of the transfers that change an array's layout.

    (block, *) on 2          (*, block) on 2            rank 0 sends to rank 1
    ┌─────────┐              ┌────┬────┐                ┌────┬────┐
    │ 0  0  0 │   ──────►    │ 0  │ 1  │                │    │ ▒▒ │
    ├─────────┤              │ 0  │ 1  │                ├────┼────┤
    │ 1  1  1 │              │ 0  │ 1  │                │    │    │
    └─────────┘              └────┴────┘                └────┴────┘

A `Transfer` is one all-to-all between two layouts; a `Redistribution` is a sequence of one or more transfers. Thakur
1995, chapter 3.

    plan.save("rows-to-columns.json")          layouts before, between and after; costs
    x.redistribute(load_plan("rows-to-columns.json"))

A saved plan is JSON text, from which the same plan is loaded on any machine.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np

from oocarrays.errors import InputError, LayoutError, NotFoundError, plural
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.plan.documents import Document, checked_path, save_text
from oocarrays.plan.exchange.network import Network
from oocarrays.plan.exchange.prediction import Carrier, regime
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.layouts.assembly import fullest, order_of, own_seconds
from oocarrays.plan.layouts.transfer import BY_WAY_OF, Transfer, TransferWork, ways_between
from oocarrays.plan.machine import Costs
from oocarrays.plan.plan import Memory, largest_memory, table

KIND = "oocarrays redistribution"
OFFERED = ("method", "transfers", "steps", "messages", "sent", "elements copied", "in pieces", "seconds")
"""Columns of a table of methods."""
METHODS = (
    "block-to-cyclic", "cyclic-to-block", "ky-to-y", "x-to-kx", "general", *BY_WAY_OF, "direct", "indirect",
    *(f"indirect-{name}" for name in BY_WAY_OF),
)  # fmt: skip
"""All methods, by the thesis's names: for one axis those before "direct", for several those from "gcd"."""


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

    >>> import oocarrays as ooc
    >>> layouts = [ooc.Layout.of((960,), f"cyclic({m})", ranks=4) for m in (15, 10)]
    >>> plan = ooc.ranks.plan_redistribution(*layouts, "float32")
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
            held = int(Transfer(self.source, self.target).work.held[chosen].max(initial=0))
            return Memory.of(parts=held * self.itemsize)
        return largest_memory(*(_held(transfer.work, chosen) for transfer in self.transfers)) * self.itemsize

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
                table([OFFERED, *(_row(offer, offer.method == self.method) for offer in self.offers)], words=1),
                "",
                *([f"by way of {by_way_of}"] if by_way_of else []),
                f"a rank has {_amount(self.peak_bytes())} in memory at most: its parts, and all its messages",
                f"{_amount(self.stored_bytes)} of runs are kept, and serve for the way back",
            ]
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to a file for `oocarrays.ranks.load_plan`; ``x.redistribute(plan)`` runs the loaded plan.

        Raises
        ------
        InputError
            If the file cannot be written.
        """
        layouts = [self.source, *(transfer.target for transfer in self.transfers)]
        said = {
            "kind": KIND,
            "shape": list(self.source.shape),
            "layouts": [str(layout) for layout in (layouts if self.transfers else [self.source, self.target])],
            "moves": bool(self.transfers),
            "itemsize": self.itemsize,
            "price": asdict(self.price),
            "offers": [asdict(offer) for offer in self.offers],
        }
        save_text(path, json.dumps(said, indent=1) + "\n", "the plan")

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
        picture = resolve_name("oocarrays.show.pictures:load_picture")("exchanges")  # a layer above
        return picture.draw_plan(self, network=network, schedule=schedule)

    def __repr__(self) -> str:
        price = self.price
        return (
            f"<Redistribution {self.source} → {self.target}: {self.method}, {plural(price.transfers, 'transfer')}, "
            f"{plural(price.messages, 'message')}, {price.moved_bytes} bytes>"
        )

    def _repr_html_(self) -> str:
        offers = [_row(offer, offer.method == self.method) for offer in self.offers]
        title = f"oocarrays.Redistribution {self.source} → {self.target}"
        html: str = resolve_name("oocarrays.show.notebook:rows_html")([OFFERED, *offers], title=title)
        return html


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
    priced = {
        name: min(
            ((_price(name, transfers, itemsize, costs, carrier, schedule), transfers) for transfers in each),
            key=lambda both: both[0].seconds,
        )
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
    return fullest(parts=parts, messages=messages) if len(parts) else Memory()


def _reversed(price: Price) -> Price:
    return replace(price, method=_REVERSED.get(price.method, price.method), schedules=price.schedules[::-1])


_REVERSED = {"block-to-cyclic": "cyclic-to-block", "ky-to-y": "x-to-kx"}
_REVERSED |= {back: forth for forth, back in _REVERSED.items()}


def _price(
    method: str,
    transfers: tuple[Transfer, ...],
    itemsize: int,
    costs: Costs,
    carrier: Carrier | None,
    schedule: str | Schedule | None,
) -> Price:
    works = [transfer.work for transfer in transfers]
    steps = [int(max(work.sends.max(initial=0), work.receives.max(initial=0))) for work in works]
    carried = [
        ("", 0.0) if carrier is None or not many else _carried(transfer, many, itemsize, carrier, schedule)
        for transfer, many in zip(transfers, steps, strict=True)
    ]
    own = [own_seconds(transfer, itemsize, costs, messages=carrier is not None) for transfer in transfers]
    return Price(
        method=method,
        transfers=len(transfers),
        steps=sum(steps),
        messages=sum(int(work.sends.sum()) for work in works),
        moved_bytes=sum(work.moved for work in works) * itemsize,
        copied_elements=sum(int((work.held + work.due).sum()) for work in works),
        pieces=sum(int(work.pieces.sum()) for work in works),
        seconds=math.fsum([*own, *(seconds for _, seconds in carried)]),
        schedules=tuple(name for name, _ in carried if name),
    )


def _carried(
    transfer: Transfer, steps: int, itemsize: int, carrier: Carrier, asked: str | Schedule | None
) -> tuple[str, float]:
    """Return the schedule of a transfer, and its seconds: for many ranks, those of the busiest one's messages."""
    if max(transfer.source.ranks, transfer.target.ranks) <= 2048:
        schedule, seconds = order_of(transfer, itemsize, carrier, asked)
        return schedule.name, seconds
    work, known = transfer.work, regime(carrier.constants, itemsize)
    sent = max(int((work.held - work.kept).max(initial=0)), int((work.due - work.kept).max(initial=0)))
    return "", steps * known.startup + sent * itemsize * known.exchange


def _row(offer: Price, chosen: bool) -> tuple[str, ...]:
    numbers = offer.transfers, offer.steps, offer.messages, _amount(offer.moved_bytes), offer.copied_elements
    return (f"{offer.method}{' ◄' * chosen}", *map(str, numbers), str(offer.pieces), f"{offer.seconds:.3g}")


def _amount(nbytes: int) -> str:
    """Return bytes in Dask's format."""
    power = next((power for power in (4, 3, 2, 1) if nbytes >= 0.9 * 1024**power), 0)
    return f"{nbytes / 1024**power:.2f} {'kMGT'[power - 1]}iB" if power else f"{nbytes} B"


def load_plan(path: str | os.PathLike[str]) -> Redistribution:
    """Read a saved plan.

    Raises
    ------
    NotFoundError
        If the file does not exist.
    InputError
        If the file cannot be read or holds no plan.

    Examples
    --------
    >>> import tempfile
    >>> from oocarrays.mapping.layouts.layout import Layout
    >>> from oocarrays.plan.layouts.redistribution import plan_redistribution
    >>> layouts = (Layout.of((100,), f"cyclic({m})", ranks=4) for m in (15, 10))
    >>> plan = plan_redistribution(*layouts, method="lcm")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     plan.save(f"{folder}/plan.json")
    ...     load_plan(f"{folder}/plan.json") == plan
    True
    """
    name = checked_path(path)
    try:
        said = json.loads(Path(name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFoundError(f"no such plan: {name}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{name} is not a plan of a redistribution: {error}") from None
    try:
        if said["kind"] != KIND:
            raise InputError(f"{name} holds a plan of another kind: {said['kind']!r}")
        return _plan(said)
    except (KeyError, TypeError, LayoutError) as error:
        raise InputError(f"{name} is not a plan of a redistribution: {error!r}") from None


def _plan(said: Document) -> Redistribution:
    layouts = [Layout.of(tuple(said["shape"]), text) for text in said["layouts"]]
    pairs = pairwise(layouts) if said["moves"] else ()
    known = [said["price"], *said["offers"]]
    price, *offers = (Price(**{**each, "schedules": tuple(each["schedules"])}) for each in known)
    return Redistribution(
        source=layouts[0],
        target=layouts[-1],
        transfers=tuple(Transfer(*pair) for pair in pairs),
        itemsize=said["itemsize"],
        price=price,
        offers=tuple(offers),
    )
